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

use crate::decode::{Body, line::Delta};

/// Between two beats: more than a growing screen rests between two frames, so that each shows all there is. The runtime
/// keeps its timers by 64 milliseconds, and wakes up once for those that end with them, else twice.
const BEAT: Duration = Duration::from_millis(128);

/// Whoever has spoken so long will go on for longer than a beat. A short text is never held up.
const SPEAKING: Duration = Duration::from_millis(100);

/// Bytes of a beat from which on nothing is left in the pipe: it holds four times as much, and must never be full, or
/// whoever writes to it waits for us.
const FLOOD: usize = 16 * 1024;

/// The first beat.
static FIRST: RwLock<Option<Instant>> = RwLock::new(None);

/// Begins to count the beats, as has to be done whenever a runtime begins to count its time.
pub fn first_beat() {
    *FIRST.write().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

fn next_beat(now: Instant) -> Instant {
    // Where a test stops the clock, another one's may be ahead.
    let first = FIRST.read().unwrap_or_else(PoisonError::into_inner).unwrap_or(now).min(now);
    let passed = now.duration_since(first).as_millis();
    let beats = u32::try_from(passed / BEAT.as_millis()).unwrap_or(u32::MAX).saturating_add(1);
    first + BEAT * beats
}

/// Until when nothing is taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lull {
    /// Since when nothing came but pieces of a text.
    speaking: Option<Instant>,
    until: Option<Instant>,
    poured: Option<Poured>,
}

/// How much came of late.
#[derive(Clone, Copy, Debug)]
struct Poured {
    /// For a beat from here on it is added up.
    begun: Instant,
    bytes: usize,
    /// In the beat before.
    before: usize,
}

impl Poured {
    fn add(self, now: Instant, size: usize) -> Self {
        match now.duration_since(self.begun) {
            age if age < BEAT => Self { bytes: self.bytes.saturating_add(size), ..self },
            age if age < 2 * BEAT => Self { begun: self.begun + BEAT, bytes: size, before: self.bytes },
            _ => Self { begun: now, bytes: size, before: 0 },
        }
    }

    /// Also when little of it has come yet in this beat.
    fn is_flood(self) -> bool {
        self.bytes.max(self.before) >= FLOOD
    }
}

impl Lull {
    /// After `lines` of `size` bytes in all.
    pub(super) fn after<'a>(self, lines: impl IntoIterator<Item = &'a Body<'a>>, size: usize) -> Self {
        let is_piece = |line: &Body<'_>| matches!(line, Body::StreamEvent(Delta::Text(_) | Delta::Thinking(_)));
        if !lines.into_iter().all(is_piece) {
            return Self::default();
        }
        let now = Instant::now();
        let since = self.speaking.unwrap_or(now);
        let poured = self.poured.unwrap_or(Poured { begun: now, bytes: 0, before: 0 }).add(now, size);
        let rests = !poured.is_flood() && now.duration_since(since) >= SPEAKING;
        Self { speaking: Some(since), until: rests.then(|| next_beat(now)), poured: Some(poured) }
    }

    /// Something else happened, after which it may be answered at once.
    pub(super) fn over(self) -> Self {
        Self { until: None, ..self }
    }

    /// True if something is left in the pipe for a while.
    pub(super) fn is_on(self) -> bool {
        self.until.is_some()
    }

    /// Does `next` once the lull is over. May be dropped if `next` may.
    pub(super) async fn then<T>(self, next: impl Future<Output = T>) -> T {
        if let Some(end) = self.until {
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

    fn after(lull: Lull, line: &str, size: usize) -> Lull {
        lull.after([&decode::line(line.as_bytes()).body], size)
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_has_spoken_for_a_while_makes_a_lull() {
        let mut lull = Lull::default();
        for step in 0..10 {
            lull = after(lull, PIECE, 300);
            assert_eq!(lull.is_on(), step >= 5, "after {step} pieces of 20 ms each");
            advance(Duration::from_millis(20)).await;
        }
        assert!(!after(lull, PIECE, FLOOD).is_on(), "the pipe must not fill up");
        assert!(!lull.over().is_on());
        assert!(after(lull.over(), PIECE, 300).is_on(), "it still speaks");
        let thinking = PIECE.replace("text", "thinking");
        assert!(after(lull, &thinking, 300).is_on());
        for other in [
            &PIECE.replace("text_delta\",\"text", "input_json_delta\",\"partial_json"),
            r#"{"type":"stream_event","event":{"type":"content_block_stop","index":0}}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"fox"}]}}"#,
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback"}}"#,
            r#"{"type":"result","subtype":"success","is_error":false}"#,
            "not JSON",
        ] {
            let broken = after(lull, other, 300);
            assert!(!broken.is_on() && broken.speaking.is_none(), "{other}");
        }
    }

    /// The most that a pipe holds of a model that pours out `rate` bytes a millisecond for two seconds, and how often
    /// something is taken from it.
    async fn flood(rate: usize) -> (usize, usize) {
        let (mut lull, mut held, mut most, mut taken) = (Lull::default(), 0, 0, 0);
        for _ in 0..2_000 {
            advance(Duration::from_millis(1)).await;
            held += rate;
            most = most.max(held);
            if lull.until.is_none_or(|end| end <= Instant::now()) {
                lull = after(lull.over(), PIECE, std::mem::take(&mut held));
                taken += 1;
            }
        }
        (most, taken)
    }

    #[tokio::test(start_paused = true)]
    async fn no_flood_fills_the_pipe() {
        for rate in [1, 60, 120, 160, 250, 500, 1_000, 10_000] {
            let (most, taken) = flood(rate).await;
            assert!(most < 64 * 1024, "{rate} KB/s: {most} bytes in the pipe");
            assert_eq!(taken < 200, rate < 128, "{rate} KB/s are taken {taken} times");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_lasts_until_the_next_beat() {
        let begun = Instant::now();
        let lull = Lull { speaking: Some(begun), until: Some(next_beat(begun)), ..Lull::default() };
        lull.then(async {}).await;
        assert!(begun.elapsed() <= BEAT + Duration::from_millis(1), "{:?}", begun.elapsed());
        let (beat, now) = (next_beat(Instant::now()), Instant::now());
        assert!(beat > now && beat - now <= BEAT);
        lull.over().then(async {}).await;
        assert_eq!(Instant::now(), now);
    }
}
