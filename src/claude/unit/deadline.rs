//! The time limits of an attempt: on silence, and on the whole of it. Reads no clock: the caller names the time.
//!
//! An attempt is not silent while it waits for a tool of ours or for a person, and the time in which it waits for a person
//! is not part of its own.

use std::time::Duration;

use tokio::time::Instant;

use crate::{tape::Millis, units::verdict::TimedOut};

/// Time limits of an attempt; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptTimeouts {
    /// Without a byte of the agent.
    pub silence: Option<Duration>,
    /// From the start of the process on.
    pub attempt: Option<Duration>,
}

/// What an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::claude) enum WaitsFor {
    /// The agent works.
    Agent,
    /// A tool of ours runs.
    Tool,
    /// A person decides over a call.
    Decision,
}

/// When the limits of an attempt run out.
#[derive(Debug)]
pub(super) struct Deadlines {
    limits: AttemptTimeouts,
    /// Since when the agent has to write something.
    quiet_since: Instant,
    /// Time that counts, up to `counted`.
    spent: Duration,
    counted: Instant,
    waits_for: WaitsFor,
}

impl Deadlines {
    pub(super) fn new(limits: AttemptTimeouts, now: Instant) -> Self {
        Self { limits, quiet_since: now, spent: Duration::ZERO, counted: now, waits_for: WaitsFor::Agent }
    }

    /// The agent wrote something.
    pub(super) fn record_output(&mut self, now: Instant) {
        self.quiet_since = now;
    }

    /// Something happened, and the attempt waits for this now.
    pub(super) fn settle(&mut self, now: Instant, waits_for: WaitsFor) {
        if self.waits_for != WaitsFor::Decision {
            self.spent += now - self.counted;
        }
        self.counted = now;
        if waits_for == WaitsFor::Agent && self.waits_for != WaitsFor::Agent {
            self.quiet_since = now;
        }
        self.waits_for = waits_for;
    }

    /// The limit that runs out first, and when.
    pub(super) fn next(&self) -> Option<(Instant, TimedOut)> {
        let silence = self.limits.silence.filter(|_| self.waits_for == WaitsFor::Agent);
        let silence = silence.map(|limit| (self.quiet_since + limit, TimedOut::Silence(millis(limit))));
        let attempt = self.limits.attempt.filter(|_| self.waits_for != WaitsFor::Decision);
        let attempt =
            attempt.map(|limit| (self.counted + limit.saturating_sub(self.spent), TimedOut::Attempt(millis(limit))));
        silence.into_iter().chain(attempt).min_by_key(|(at, _)| *at)
    }

    /// There is no limit from now on.
    pub(super) fn clear(&mut self) {
        self.limits = AttemptTimeouts::default();
    }
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(silence: u32, attempt: u32) -> AttemptTimeouts {
        AttemptTimeouts { silence: Some(SECOND * silence), attempt: Some(SECOND * attempt) }
    }

    #[test]
    fn silence_is_counted_from_the_last_byte() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 600), start);
        assert_eq!(deadlines.next(), Some((start + SECOND * 60, TimedOut::Silence(Millis(60_000)))));
        deadlines.record_output(start + SECOND * 50);
        deadlines.settle(start + SECOND * 50, WaitsFor::Agent);
        assert_eq!(deadlines.next(), Some((start + SECOND * 110, TimedOut::Silence(Millis(60_000)))));
    }

    #[test]
    fn waiting_for_a_tool_is_no_silence() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 600), start);
        deadlines.settle(start + SECOND, WaitsFor::Tool);
        assert_eq!(deadlines.next(), Some((start + SECOND * 600, TimedOut::Attempt(Millis(600_000)))));
        deadlines.settle(start + SECOND * 300, WaitsFor::Agent);
        assert_eq!(deadlines.next(), Some((start + SECOND * 360, TimedOut::Silence(Millis(60_000)))));
    }

    #[test]
    fn time_of_a_decision_does_not_count() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 100), start);
        deadlines.settle(start + SECOND * 10, WaitsFor::Decision);
        assert_eq!(deadlines.next(), None);
        deadlines.settle(start + SECOND * 1000, WaitsFor::Tool);
        assert_eq!(deadlines.next(), Some((start + SECOND * 1090, TimedOut::Attempt(Millis(100_000)))));
        deadlines.clear();
        assert_eq!(deadlines.next(), None);
    }
}
