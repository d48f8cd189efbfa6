//! The critical path: the chain of attempts and waits that decided when the run ended, followed back from its end.

use super::{LaneAttempt, ScheduleLog, TimeUse, TimeUses};
use crate::tape::Millis;

/// A part of the critical path: an attempt, or the time between two of them.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStep {
    /// Index in the attempts; `None` for the time between two attempts.
    pub attempt: Option<usize>,
    pub uses: TimeUses,
}

/// The path from the start of the run to `end`. The durations of its steps add up to `end`.
pub(super) fn find(attempts: &[LaneAttempt], log: &ScheduleLog, end: Millis) -> Vec<PathStep> {
    // Among attempts that end at the same time, the one that began first.
    let last = (0..attempts.len())
        .rev()
        .max_by_key(|index| attempts[*index].to);
    let Some(last) = last else { return Vec::new() };
    let mut by_end: Vec<usize> = (0..attempts.len()).collect();
    by_end.sort_by_key(|index| (attempts[*index].to, *index));
    let mut steps = Vec::new();
    let mut push = |attempt: Option<usize>, uses: TimeUses| {
        if uses.total() > Millis(0) || attempt.is_some() {
            steps.push(PathStep { attempt, uses });
        }
    };
    let mut tail = TimeUses::default();
    log.add_wait(attempts[last].to, end, &mut tail);
    push(None, tail);
    let mut next = Some(last);
    while let Some(index) = next {
        let attempt = &attempts[index];
        let mut uses = TimeUses::default();
        for time_use in TimeUse::ALL
            .into_iter()
            .filter(|time_use| !time_use.is_before_start())
        {
            uses.add(time_use, attempt.uses.get(time_use));
        }
        push(Some(index), uses);
        next = predecessor(attempts, &by_end, index);
        push(
            None,
            gap(
                log,
                next.map_or(Millis(0), |before| attempts[before].to),
                attempt,
            ),
        );
    }
    steps.reverse();
    steps
}

/// The attempt whose end allowed this one to start. Its index is lower, so that the path has an end.
fn predecessor(attempts: &[LaneAttempt], by_end: &[usize], index: usize) -> Option<usize> {
    let attempt = &attempts[index];
    let before =
        by_end.partition_point(|other| (attempts[*other].to, *other) < (attempt.from, index));
    let freed = before.checked_sub(1).map(|place| by_end[place]);
    let is_backoff = attempt.gate.due > attempt.gate.pending_since;
    // A slot that became free before the attempt was due did not decide its start.
    if is_backoff && freed.is_some_and(|freed| attempts[freed].to < attempt.gate.due) {
        let is_prior = |other: &LaneAttempt| other.unit == attempt.unit && other.to <= attempt.from;
        let prior = attempts[..index].iter().rposition(is_prior);
        return prior.or(freed);
    }
    freed
}

/// What the time from `from` to the start of `attempt` was used for.
fn gap(log: &ScheduleLog, from: Millis, attempt: &LaneAttempt) -> TimeUses {
    let (to, gate) = (attempt.from, &attempt.gate);
    let from = from.min(to);
    let mut uses = TimeUses::default();
    let planned = log.planned_at.unwrap_or_default().clamp(from, to);
    uses.add(TimeUse::Planning, planned.since(from));
    let due = gate.due.clamp(planned, to);
    let since = if gate.is_requested {
        due
    } else {
        gate.pending_since.clamp(planned, due)
    };
    if gate.is_requested {
        uses.add(TimeUse::Request, due.since(planned));
    } else if gate.due > gate.pending_since {
        log.add_wait(planned, since, &mut uses);
        uses.add(TimeUse::Backoff, due.since(since));
    } else {
        log.add_wait(planned, due, &mut uses);
    }
    log.add_wait(due, to, &mut uses);
    uses
}
