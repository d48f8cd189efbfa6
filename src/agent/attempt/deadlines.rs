//! The time limits of an attempt: on its silence, on its total time, and on its waits for a person. Reads no clock: the
//! caller passes the time.
//!
//! Waits for a person and for one of our tools count neither as silence nor as part of the total time. A tool that is
//! busy for longer than the agent waits for it excuses nothing.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    machine::WaitReason,
    time_limits::{AttemptTimeouts, LONGEST_TOOL_WAIT},
};
use ingestdeck_core::{tape::Millis, units::verdict::TimeLimit};

/// Deadlines of an attempt.
#[derive(Debug)]
pub(super) struct Deadlines {
    timeouts: AttemptTimeouts,
    /// Start of the current silence.
    silent_since: Instant,
    /// Time that counts, up to `counted_until`.
    elapsed: Duration,
    counted_until: Instant,
    waits_for: WaitReason,
    /// Since when it waits for this.
    waits_since: Instant,
}

impl Deadlines {
    pub(super) fn new(limits: AttemptTimeouts, now: Instant) -> Self {
        Self {
            timeouts: limits,
            silent_since: now,
            elapsed: Duration::ZERO,
            counted_until: now,
            waits_for: WaitReason::Agent,
            waits_since: now,
        }
    }

    /// Records output of the agent, which ends its silence.
    pub(super) fn record_output(&mut self, now: Instant) {
        self.silent_since = now;
    }

    /// Updates what the attempt waits for.
    pub(super) fn update(&mut self, now: Instant, waits_for: WaitReason) {
        if let Some(from) = self.counts_from() {
            self.elapsed += now.saturating_duration_since(from.max(self.counted_until));
        }
        self.counted_until = now;
        if waits_for != self.waits_for {
            self.waits_since = now;
            if waits_for == WaitReason::Agent {
                self.silent_since = now;
            }
        }
        self.waits_for = waits_for;
    }

    /// From when the current wait counts; `None` if it never does.
    fn counts_from(&self) -> Option<Instant> {
        match self.waits_for {
            WaitReason::Agent => Some(self.waits_since),
            WaitReason::Tool => Some(self.waits_since + LONGEST_TOOL_WAIT),
            WaitReason::Approval => None,
        }
    }

    /// The limit that expires first, and when.
    pub(super) fn next_deadline(&self) -> Option<(Instant, TimeLimit)> {
        let AttemptTimeouts {
            silence,
            total,
            approval,
        } = self.timeouts;
        let Some(from) = self.counts_from() else {
            return approval
                .map(|limit| (self.waits_since + limit, TimeLimit::Approval(millis(limit))));
        };
        let silence = silence.map(|limit| {
            (
                self.silent_since.max(from) + limit,
                TimeLimit::Silence(millis(limit)),
            )
        });
        let counted = from.max(self.counted_until);
        let total = total.map(|limit| {
            (
                counted + limit.saturating_sub(self.elapsed),
                TimeLimit::Attempt(millis(limit)),
            )
        });
        silence.into_iter().chain(total).min_by_key(|(at, _)| *at)
    }

    /// Changes the limits. A limit that did not apply before counts from now, the others from where they were: a person
    /// who leaves the screen does not end attempts that they watched.
    pub(super) fn set_timeouts(&mut self, timeouts: AttemptTimeouts, now: Instant) {
        let old = std::mem::replace(&mut self.timeouts, timeouts);
        if old.silence.is_none() {
            self.silent_since = now;
        }
        if old.total.is_none() {
            (self.elapsed, self.counted_until) = (Duration::ZERO, now);
        }
        if old.approval.is_none() && self.waits_for == WaitReason::Approval {
            self.waits_since = now;
        }
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
        AttemptTimeouts {
            silence: Some(SECOND * silence),
            total: Some(SECOND * attempt),
            approval: None,
        }
    }

    fn silence(seconds: u64) -> TimeLimit {
        TimeLimit::Silence(Millis(seconds * 1_000))
    }

    fn attempt(seconds: u64) -> TimeLimit {
        TimeLimit::Attempt(Millis(seconds * 1_000))
    }

    #[test]
    fn silence_is_counted_from_the_last_byte() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 600), start);
        assert_eq!(
            deadlines.next_deadline(),
            Some((start + SECOND * 60, silence(60)))
        );
        deadlines.record_output(start + SECOND * 50);
        deadlines.update(start + SECOND * 50, WaitReason::Agent);
        assert_eq!(
            deadlines.next_deadline(),
            Some((start + SECOND * 110, silence(60)))
        );
    }

    #[test]
    fn running_tool_counts_for_no_limit() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 100), start);
        deadlines.update(start + SECOND * 10, WaitReason::Tool);
        deadlines.update(start + SECOND * 310, WaitReason::Agent);
        assert_eq!(
            deadlines.next_deadline(),
            Some((start + SECOND * 370, silence(60)))
        );
        deadlines.record_output(start + SECOND * 365);
        assert_eq!(
            deadlines.next_deadline(),
            Some((start + SECOND * 400, attempt(100))),
            "10 s and 90 s count"
        );
    }

    #[test]
    fn tool_that_never_ends_excuses_nothing_after_ten_minutes() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 6_000), start);
        deadlines.update(start + SECOND, WaitReason::Tool);
        assert_eq!(
            deadlines.next_deadline(),
            Some((start + SECOND * 661, silence(60)))
        );
        deadlines.update(start + SECOND * 650, WaitReason::Tool);
        assert_eq!(
            deadlines.next_deadline(),
            Some((start + SECOND * 661, silence(60)))
        );
    }

    #[test]
    fn approval_time_does_not_count() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(limits(60, 100), start);
        deadlines.update(start + SECOND * 10, WaitReason::Approval);
        assert_eq!(deadlines.next_deadline(), None);
        deadlines.update(start + SECOND * 1000, WaitReason::Agent);
        deadlines.record_output(start + SECOND * 1050);
        assert_eq!(
            deadlines.next_deadline(),
            Some((start + SECOND * 1090, attempt(100)))
        );
        deadlines.clear();
        assert_eq!(deadlines.next_deadline(), None);
    }

    #[test]
    fn approval_has_a_limit_of_its_own() {
        let start = Instant::now();
        let timeouts = AttemptTimeouts {
            approval: Some(SECOND * 500),
            ..limits(60, 100)
        };
        let mut deadlines = Deadlines::new(timeouts, start);
        deadlines.update(start + SECOND * 10, WaitReason::Approval);
        deadlines.record_output(start + SECOND * 20);
        deadlines.update(start + SECOND * 20, WaitReason::Approval);
        let expected = (start + SECOND * 510, TimeLimit::Approval(Millis(500_000)));
        assert_eq!(deadlines.next_deadline(), Some(expected));
    }

    #[test]
    fn new_limits_count_from_the_moment_they_apply() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(AttemptTimeouts::default(), start);
        let detached = start + SECOND * 10_000;
        deadlines.set_timeouts(limits(60, 100), detached);
        assert_eq!(
            deadlines.next_deadline(),
            Some((detached + SECOND * 60, silence(60)))
        );
        deadlines.record_output(detached + SECOND * 70);
        assert_eq!(
            deadlines.next_deadline(),
            Some((detached + SECOND * 100, attempt(100)))
        );
        // A change of a limit that applies keeps what has passed.
        deadlines.set_timeouts(limits(90, 200), detached + SECOND * 75);
        assert_eq!(
            deadlines.next_deadline(),
            Some((detached + SECOND * 160, silence(90)))
        );
    }
}
