//! The time limits of an attempt: on its silence, and on its total time. Reads no clock: the caller passes the time.
//!
//! An attempt is not silent while it waits for one of our tools or for a person, and waits for a person do not count as
//! part of its total time.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use tokio::time::Instant;

use super::machine::WaitReason;
use crate::{tape::Millis, units::verdict::TimeLimit};

/// Time limits of an attempt; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttemptTimeouts {
    /// Longest time without output of the agent.
    pub silence: Option<Duration>,
    /// Longest time since the start of the process.
    pub total: Option<Duration>,
}

/// Deadlines of an attempt.
#[derive(Debug)]
pub(super) struct Deadlines {
    timeouts: AttemptTimeouts,
    /// Start of the current silence.
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

    /// Records output of the agent, which ends its silence.
    pub(super) fn record_output(&mut self, now: Instant) {
        self.silent_since = now;
    }

    /// Updates what the attempt waits for.
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

    /// The limit that expires first, and when.
    pub(super) fn next_deadline(&self) -> Option<(Instant, TimeLimit)> {
        let silence = self.timeouts.silence.filter(|_| self.waits_for == WaitReason::Agent);
        let silence = silence.map(|limit| (self.silent_since + limit, TimeLimit::Silence(millis(limit))));
        let attempt = self.timeouts.total.filter(|_| self.waits_for != WaitReason::Approval);
        let attempt = attempt
            .map(|limit| (self.elapsed_until + limit.saturating_sub(self.elapsed), TimeLimit::Attempt(millis(limit))));
        silence.into_iter().chain(attempt).min_by_key(|(at, _)| *at)
    }

    /// Changes the limits; the time that has passed counts.
    pub(super) fn set_timeouts(&mut self, timeouts: AttemptTimeouts) {
        self.timeouts = timeouts;
    }

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
