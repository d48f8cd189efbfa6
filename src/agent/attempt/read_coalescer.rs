//! Decides when to leave lines in the pipe for a moment, to read several together. While a model streams text, a line
//! arrives with every word or two, and waking up for each costs more than processing it.
//!
//! Reads pause only while a model has been streaming for some time, and only until the next tick, which all agents
//! share. The end of a text may be read a tick late, and so may a request that arrives during streaming: a tool call
//! may begin before its message ends. Lines after a request or a result are read without a pause. The module must not
//! depend on pipes.

use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::{Instant, sleep_until};

use ingestdeck_core::decode::{LineBody, line::StreamDelta};

/// Time between two ticks, which is how often text on the screen grows: about five times a second, as each time costs
/// the engine and the screen a quarter of a millisecond. It is longer than the interval between two frames of a growing
/// screen, so that each frame shows all lines. The runtime groups timers by 64 milliseconds and wakes up once for those
/// at a group's end, and twice for others.
const TICK: Duration = Duration::from_millis(192);

/// A model that has streamed this long will probably stream for longer than a tick. Short texts are never delayed.
const MIN_STREAMING_TIME: Duration = Duration::from_millis(100);

/// Bytes per tick from which reads do not pause. The pipe holds four times as much and must never be full, because the
/// writer would wait for us.
const HIGH_RATE_BYTES: usize = 16 * 1024;

static TICK_CLOCK_START: RwLock<Option<Instant>> = RwLock::new(None);

/// Starts the shared tick clock. Must be called when a runtime starts its clock.
pub fn start_tick_clock() {
    *TICK_CLOCK_START.write() = Some(Instant::now());
}

fn next_tick(now: Instant) -> Instant {
    // In tests that stop the clock, another test's clock may be ahead.
    let first = TICK_CLOCK_START.read().unwrap_or(now).min(now);
    let passed = now.duration_since(first).as_millis();
    let beats = u32::try_from(passed / TICK.as_millis())
        .unwrap_or(u32::MAX)
        .saturating_add(1);
    first + TICK * beats
}

/// Until when reads pause.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadCoalescer {
    /// Since when only deltas of a text have arrived.
    streaming_since: Option<Instant>,
    paused_until: Option<Instant>,
    rate: Option<ReadRate>,
}

/// Number of bytes that arrived recently.
#[derive(Clone, Copy, Debug)]
struct ReadRate {
    /// Start of the current tick.
    tick_start: Instant,
    bytes: usize,
    /// Bytes in the previous tick.
    previous_bytes: usize,
}

impl ReadRate {
    fn add(self, now: Instant, size: usize) -> Self {
        match now.duration_since(self.tick_start) {
            age if age < TICK => Self {
                bytes: self.bytes.saturating_add(size),
                ..self
            },
            age if age < 2 * TICK => Self {
                tick_start: self.tick_start + TICK,
                bytes: size,
                previous_bytes: self.bytes,
            },
            _ => Self {
                tick_start: now,
                bytes: size,
                previous_bytes: 0,
            },
        }
    }

    /// True also at the start of a tick, if the previous tick had a high rate.
    fn is_high(self) -> bool {
        self.bytes.max(self.previous_bytes) >= HIGH_RATE_BYTES
    }
}

impl ReadCoalescer {
    /// The state after `lines` of `size` bytes in total.
    pub(super) fn observe<'a>(
        self,
        lines: impl IntoIterator<Item = &'a LineBody<'a>>,
        size: usize,
    ) -> Self {
        let is_piece = |line: &LineBody<'_>| {
            matches!(
                line,
                LineBody::StreamEvent(StreamDelta::Text(_) | StreamDelta::Thinking(_))
            )
        };
        if !lines.into_iter().all(is_piece) {
            return Self::default();
        }
        let now = Instant::now();
        let since = self.streaming_since.unwrap_or(now);
        let rate = self
            .rate
            .unwrap_or(ReadRate {
                tick_start: now,
                bytes: 0,
                previous_bytes: 0,
            })
            .add(now, size);
        let rests = !rate.is_high() && now.duration_since(since) >= MIN_STREAMING_TIME;
        Self {
            streaming_since: Some(since),
            paused_until: rests.then(|| next_tick(now)),
            rate: Some(rate),
        }
    }

    /// The state after another event, whose reply may follow immediately.
    pub(super) fn cancel_pause(self) -> Self {
        Self {
            paused_until: None,
            ..self
        }
    }

    pub(super) fn is_paused(self) -> bool {
        self.paused_until.is_some()
    }

    /// Runs `next` once the pause is over. Cancel-safe if `next` is.
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
    use ingestdeck_core::decode;

    const PIECE: &str = r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"fox"}}}"#;

    fn after(coalescer: ReadCoalescer, line: &str, size: usize) -> ReadCoalescer {
        coalescer.observe([&decode::decode_line(line.as_bytes()).body], size)
    }

    #[tokio::test(start_paused = true)]
    async fn long_streaming_text_pauses_reading() {
        let mut coalescer = ReadCoalescer::default();
        for step in 0..10 {
            coalescer = after(coalescer, PIECE, 300);
            assert_eq!(
                coalescer.is_paused(),
                step >= 5,
                "after {step} pieces of 20 ms each"
            );
            advance(Duration::from_millis(20)).await;
        }
        assert!(
            !after(coalescer, PIECE, HIGH_RATE_BYTES).is_paused(),
            "the pipe must not fill up"
        );
        assert!(!coalescer.cancel_pause().is_paused());
        assert!(
            after(coalescer.cancel_pause(), PIECE, 300).is_paused(),
            "it still speaks"
        );
        let thinking = PIECE.replace("text", "thinking");
        assert!(after(coalescer, &thinking, 300).is_paused());
        for other in [
            &PIECE.replace("text_delta\",\"text", "input_json_delta\",\"partial_json"),
            r#"{"type":"stream_event","event":{"type":"content_block_stop","index":0}}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"fox"}]}}"#,
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback"}}"#,
            r#"{"type":"result","subtype":"success","is_error":false}"#,
            "not JSON",
        ] {
            let broken = after(coalescer, other, 300);
            assert!(
                !broken.is_paused() && broken.streaming_since.is_none(),
                "{other}"
            );
        }
    }

    /// The maximum fill of the pipe while a model streams `rate` bytes per millisecond for two seconds, and the number
    /// of reads.
    async fn flood(rate: usize) -> (usize, usize) {
        let (mut coalescer, mut held, mut most, mut taken) = (ReadCoalescer::default(), 0, 0, 0);
        for _ in 0..2_000 {
            advance(Duration::from_millis(1)).await;
            held += rate;
            most = most.max(held);
            if coalescer
                .paused_until
                .is_none_or(|end| end <= Instant::now())
            {
                coalescer = after(coalescer.cancel_pause(), PIECE, std::mem::take(&mut held));
                taken += 1;
            }
        }
        (most, taken)
    }

    #[tokio::test(start_paused = true)]
    async fn high_output_rate_does_not_fill_the_pipe() {
        for rate in [1, 60, 80, 120, 160, 250, 500, 1_000, 10_000] {
            let (most, taken) = flood(rate).await;
            assert!(most < 64 * 1024, "{rate} KB/s: {most} bytes in the pipe");
            let is_high = rate * usize::try_from(TICK.as_millis()).unwrap() >= HIGH_RATE_BYTES;
            assert_eq!(taken < 200, !is_high, "{rate} KB/s are taken {taken} times");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pause_ends_at_the_next_tick() {
        let begun = Instant::now();
        let coalescer = ReadCoalescer {
            streaming_since: Some(begun),
            paused_until: Some(next_tick(begun)),
            ..ReadCoalescer::default()
        };
        coalescer.wait_then(async {}).await;
        assert!(
            begun.elapsed() <= TICK + Duration::from_millis(1),
            "{:?}",
            begun.elapsed()
        );
        let (beat, now) = (next_tick(Instant::now()), Instant::now());
        assert!(beat > now && beat - now <= TICK);
        coalescer.cancel_pause().wait_then(async {}).await;
        assert_eq!(Instant::now(), now);
    }
}
