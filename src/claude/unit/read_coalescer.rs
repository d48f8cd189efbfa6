//! When to leave lines in the pipe for a moment, to take several at once: while a model speaks, a line comes with every
//! word or two, and waking up for each costs more than all that is done with it.
//!
//! Only a model that has been speaking for a while makes a lull, and only until the next beat, which all agents share.
//! What ends its text may come a beat late, and so may a request that is made while it speaks: a tool that it called may
//! begin before its message ends. What follows a request or a result is waited for as always. It must not know pipes.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use crate::decode::{LineBody, line::StreamDelta};

/// Between two beats: more than a growing screen rests between two frames, so that each shows all there is. The runtime
/// keeps its timers by 64 milliseconds, and wakes up once for those that end with them, else twice.
const TICK: Duration = Duration::from_millis(128);

/// Whoever has spoken so long will go on for longer than a beat. A short text is never held up.
const MIN_STREAMING_TIME: Duration = Duration::from_millis(100);

/// Bytes of a beat from which on nothing is left in the pipe: it holds four times as much, and must never be full, or
/// whoever writes to it waits for us.
const HIGH_RATE_BYTES: usize = 16 * 1024;

/// The first beat.
static TICK_CLOCK_START: RwLock<Option<Instant>> = RwLock::new(None);

/// Begins to count the beats, as has to be done whenever a runtime begins to count its time.
pub fn start_tick_clock() {
    *TICK_CLOCK_START.write().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

fn next_tick(now: Instant) -> Instant {
    // Where a test stops the clock, another one's may be ahead.
    let first = TICK_CLOCK_START.read().unwrap_or_else(PoisonError::into_inner).unwrap_or(now).min(now);
    let passed = now.duration_since(first).as_millis();
    let beats = u32::try_from(passed / TICK.as_millis()).unwrap_or(u32::MAX).saturating_add(1);
    first + TICK * beats
}

/// Until when nothing is taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadCoalescer {
    /// Since when nothing came but pieces of a text.
    streaming_since: Option<Instant>,
    paused_until: Option<Instant>,
    rate: Option<ReadRate>,
}

/// How much came of late.
#[derive(Clone, Copy, Debug)]
struct ReadRate {
    /// For a beat from here on it is added up.
    tick_start: Instant,
    bytes: usize,
    /// In the beat before.
    previous_bytes: usize,
}

impl ReadRate {
    fn add(self, now: Instant, size: usize) -> Self {
        match now.duration_since(self.tick_start) {
            age if age < TICK => Self { bytes: self.bytes.saturating_add(size), ..self },
            age if age < 2 * TICK => {
                Self { tick_start: self.tick_start + TICK, bytes: size, previous_bytes: self.bytes }
            }
            _ => Self { tick_start: now, bytes: size, previous_bytes: 0 },
        }
    }

    /// Also when little of it has come yet in this beat.
    fn is_high(self) -> bool {
        self.bytes.max(self.previous_bytes) >= HIGH_RATE_BYTES
    }
}

impl ReadCoalescer {
    /// After `lines` of `size` bytes in all.
    pub(super) fn observe<'a>(self, lines: impl IntoIterator<Item = &'a LineBody<'a>>, size: usize) -> Self {
        let is_piece = |line: &LineBody<'_>| {
            matches!(line, LineBody::StreamEvent(StreamDelta::Text(_) | StreamDelta::Thinking(_)))
        };
        if !lines.into_iter().all(is_piece) {
            return Self::default();
        }
        let now = Instant::now();
        let since = self.streaming_since.unwrap_or(now);
        let poured = self.rate.unwrap_or(ReadRate { tick_start: now, bytes: 0, previous_bytes: 0 }).add(now, size);
        let rests = !poured.is_high() && now.duration_since(since) >= MIN_STREAMING_TIME;
        Self { streaming_since: Some(since), paused_until: rests.then(|| next_tick(now)), rate: Some(poured) }
    }

    /// Something else happened, after which it may be answered at once.
    pub(super) fn cancel_pause(self) -> Self {
        Self { paused_until: None, ..self }
    }

    /// True if something is left in the pipe for a while.
    pub(super) fn is_paused(self) -> bool {
        self.paused_until.is_some()
    }

    /// Does `next` once the lull is over. May be dropped if `next` may.
    pub(super) async fn wait_then<T>(self, next: impl Future<Output = T>) -> T {
        if let Some(end) = self.paused_until {
            sleep_until(end).await;
        }
        next.await
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::decode;

    const PIECE: &str = r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"fox"}}}"#;

    fn after(lull: ReadCoalescer, line: &str, size: usize) -> ReadCoalescer {
        lull.observe([&decode::decode_line(line.as_bytes()).body], size)
    }

    #[tokio::test(start_paused = true)]
    async fn long_streaming_text_pauses_reading() {
        let mut lull = ReadCoalescer::default();
        for step in 0..10 {
            lull = after(lull, PIECE, 300);
            assert_eq!(lull.is_paused(), step >= 5, "after {step} pieces of 20 ms each");
            advance(Duration::from_millis(20)).await;
        }
        assert!(!after(lull, PIECE, HIGH_RATE_BYTES).is_paused(), "the pipe must not fill up");
        assert!(!lull.cancel_pause().is_paused());
        assert!(after(lull.cancel_pause(), PIECE, 300).is_paused(), "it still speaks");
        let thinking = PIECE.replace("text", "thinking");
        assert!(after(lull, &thinking, 300).is_paused());
        for other in [
            &PIECE.replace("text_delta\",\"text", "input_json_delta\",\"partial_json"),
            r#"{"type":"stream_event","event":{"type":"content_block_stop","index":0}}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"fox"}]}}"#,
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback"}}"#,
            r#"{"type":"result","subtype":"success","is_error":false}"#,
            "not JSON",
        ] {
            let broken = after(lull, other, 300);
            assert!(!broken.is_paused() && broken.streaming_since.is_none(), "{other}");
        }
    }

    /// The most that a pipe holds of a model that pours out `rate` bytes a millisecond for two seconds, and how often
    /// something is taken from it.
    async fn flood(rate: usize) -> (usize, usize) {
        let (mut lull, mut held, mut most, mut taken) = (ReadCoalescer::default(), 0, 0, 0);
        for _ in 0..2_000 {
            advance(Duration::from_millis(1)).await;
            held += rate;
            most = most.max(held);
            if lull.paused_until.is_none_or(|end| end <= Instant::now()) {
                lull = after(lull.cancel_pause(), PIECE, std::mem::take(&mut held));
                taken += 1;
            }
        }
        (most, taken)
    }

    #[tokio::test(start_paused = true)]
    async fn high_output_rate_does_not_fill_the_pipe() {
        for rate in [1, 60, 120, 160, 250, 500, 1_000, 10_000] {
            let (most, taken) = flood(rate).await;
            assert!(most < 64 * 1024, "{rate} KB/s: {most} bytes in the pipe");
            assert_eq!(taken < 200, rate < 128, "{rate} KB/s are taken {taken} times");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pause_ends_at_the_next_tick() {
        let begun = Instant::now();
        let lull = ReadCoalescer {
            streaming_since: Some(begun),
            paused_until: Some(next_tick(begun)),
            ..ReadCoalescer::default()
        };
        lull.wait_then(async {}).await;
        assert!(begun.elapsed() <= TICK + Duration::from_millis(1), "{:?}", begun.elapsed());
        let (beat, now) = (next_tick(Instant::now()), Instant::now());
        assert!(beat > now && beat - now <= TICK);
        lull.cancel_pause().wait_then(async {}).await;
        assert_eq!(Instant::now(), now);
    }
}
