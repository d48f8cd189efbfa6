//! The time limits of an attempt: on silence, and on the whole of it. Reads no clock: the caller names the time.
//!
//! An attempt is not silent while it waits for a tool of ours or for a person, and the time in which it waits for a person
//! is not part of its own.

use std::time::Duration;

use tokio::time::Instant;

use crate::{tape::Millis, units::verdict::TimeLimit};

/// Time limits of an attempt; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptTimeouts {
    /// Without a byte of the agent.
    pub silence: Option<Duration>,
    /// From the start of the process on.
    pub total: Option<Duration>,
}

/// What an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::claude) enum WaitReason {
    /// The agent works.
    Agent,
    /// A tool of ours runs.
    Tool,
    /// A person decides over a call.
    Approval,
}

/// When the limits of an attempt run out.
#[derive(Debug)]
pub(super) struct Deadlines {
    timeouts: AttemptTimeouts,
    /// Since when the agent has to write something.
    silent_since: Instant,
    /// Time that counts, up to `counted`.
    elapsed: Duration,
    elapsed_until: Instant,
    waits_for: WaitReason,
}

impl Deadlines {
    pub(super) fn new(limits: AttemptTimeouts, now: Instant) -> Self {
        Self {
            timeouts: limits,
            silent_since: now,
            elapsed: Duration::ZERO,
            elapsed_until: now,
            waits_for: WaitReason::Agent,
        }
    }

    /// The agent wrote something.
    pub(super) fn record_output(&mut self, now: Instant) {
        self.silent_since = now;
    }

    /// Something happened, and the attempt waits for this now.
    pub(super) fn update(&mut self, now: Instant, waits_for: WaitReason) {
        if self.waits_for != WaitReason::Approval {
            self.elapsed += now - self.elapsed_until;
        }
        self.elapsed_until = now;
        if waits_for == WaitReason::Agent && self.waits_for != WaitReason::Agent {
            self.silent_since = now;
        }
        self.waits_for = waits_for;
    }

    /// The limit that runs out first, and when.
    pub(super) fn next_deadline(&self) -> Option<(Instant, TimeLimit)> {
        let silence = self.timeouts.silence.filter(|_| self.waits_for == WaitReason::Agent);
        let silence = silence.map(|limit| (self.silent_since + limit, TimeLimit::Silence(millis(limit))));
        let attempt = self.timeouts.total.filter(|_| self.waits_for != WaitReason::Approval);
        let attempt = attempt
            .map(|limit| (self.elapsed_until + limit.saturating_sub(self.elapsed), TimeLimit::Attempt(millis(limit))));
        silence.into_iter().chain(attempt).min_by_key(|(at, _)| *at)
    }

    /// There is no limit from now on.
    pub(super) fn clear(&mut self) {
        self.timeouts = AttemptTimeouts::default();
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
        AttemptTimeouts { silence: Some(SECOND * silence), total: Some(SECOND * attempt) }
    }

    #[test]
    fn silence_is_counted_from_the_last_byte() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 600), start);
        assert_eq!(deadlines.next_deadline(), Some((start + SECOND * 60, TimeLimit::Silence(Millis(60_000)))));
        deadlines.record_output(start + SECOND * 50);
        deadlines.update(start + SECOND * 50, WaitReason::Agent);
        assert_eq!(deadlines.next_deadline(), Some((start + SECOND * 110, TimeLimit::Silence(Millis(60_000)))));
    }

    #[test]
    fn waiting_for_a_tool_does_not_count_as_silence() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 600), start);
        deadlines.update(start + SECOND, WaitReason::Tool);
        assert_eq!(deadlines.next_deadline(), Some((start + SECOND * 600, TimeLimit::Attempt(Millis(600_000)))));
        deadlines.update(start + SECOND * 300, WaitReason::Agent);
        assert_eq!(deadlines.next_deadline(), Some((start + SECOND * 360, TimeLimit::Silence(Millis(60_000)))));
    }

    #[test]
    fn approval_time_does_not_count() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 100), start);
        deadlines.update(start + SECOND * 10, WaitReason::Approval);
        assert_eq!(deadlines.next_deadline(), None);
        deadlines.update(start + SECOND * 1000, WaitReason::Tool);
        assert_eq!(deadlines.next_deadline(), Some((start + SECOND * 1090, TimeLimit::Attempt(Millis(100_000)))));
        deadlines.clear();
        assert_eq!(deadlines.next_deadline(), None);
    }
}
