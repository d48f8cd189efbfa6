//! Estimates the duration of the run with other concurrencies: simulates its schedule with the recorded durations.
//!
//! Units start in plan order, as in the scheduler. Delays of retries are kept; waits for limits and for people are not.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use super::{ScheduleLog, SlotLanes};
use crate::{
    run::{
        run_forecast::expected_active_times,
        state::{RECONCILE_KEY, RunState, UnitStatus},
    },
    tape::Millis,
};

/// Highest concurrency that is estimated, which is also the highest that a person can set.
const MAX_SLOTS: u32 = 64;

/// Estimated duration of the whole run with a concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEstimate {
    pub slots: u32,
    /// `None` if the duration of a unit that waits for a slot cannot be forecast.
    pub total: Option<Millis>,
    /// True if a running unit has taken longer than expected, so that the rest of its time is not in `total`.
    pub is_minimum: bool,
    /// True for the concurrency at the moment of the view.
    pub is_current: bool,
}

/// Attempts at a unit: the delay before each, and its duration.
type Job = Vec<(Millis, Millis)>;

pub(super) fn estimate(
    state: &RunState,
    lanes: &SlotLanes,
    log: &ScheduleLog,
    now: Millis,
) -> Vec<SlotEstimate> {
    let current = state
        .planned
        .as_ref()
        .map_or(1, |plan| plan.concurrency)
        .max(1);
    let jobs = jobs(state, lanes, now);
    let is_step = |index: &usize| state.units[*index].key.as_str() == RECONCILE_KEY;
    let last = lanes
        .attempts
        .iter()
        .map(|attempt| attempt.to)
        .max()
        .unwrap_or_default();
    // Before the plan and after the last attempt, the concurrency changes nothing.
    let after = lanes.end.since(last).0 * u64::from(state.ended.is_some());
    let around = log.planned_at.unwrap_or_default().0.saturating_add(after);
    let mut slots: Vec<u32> = [
        current / 2,
        current,
        current.saturating_mul(2),
        current.saturating_mul(4),
    ]
    .into();
    slots.retain(|slots| *slots > 0 && (*slots <= MAX_SLOTS || *slots == current));
    slots
        .into_iter()
        .map(|slots| {
            let total = jobs.as_ref().map(|(jobs, _)| {
                let (steps, units): (Vec<usize>, Vec<usize>) = (0..jobs.len()).partition(is_step);
                let of_step = |sum: u64, (delay, took): &(Millis, Millis)| {
                    sum.saturating_add(delay.0).saturating_add(took.0)
                };
                let steps = steps
                    .iter()
                    .flat_map(|index| &jobs[*index])
                    .fold(0, of_step);
                let units: Vec<&Job> = units.iter().map(|index| &jobs[*index]).collect();
                Millis(
                    around
                        .saturating_add(makespan(&units, slots).0)
                        .saturating_add(steps),
                )
            });
            let is_minimum = jobs.as_ref().is_some_and(|(_, is_minimum)| *is_minimum);
            SlotEstimate {
                slots,
                total,
                is_minimum,
                is_current: slots == current,
            }
        })
        .collect()
}

/// The attempts at every unit, with the expected ones of units that are not finished, and whether the rest of a running
/// one is unknown. `None` if nothing is known about one that waits for a slot.
fn jobs(state: &RunState, lanes: &SlotLanes, now: Millis) -> Option<(Vec<Job>, bool)> {
    let mut is_minimum = false;
    let mut jobs: Vec<Job> = vec![Vec::new(); state.units.len()];
    let mut ends: Vec<Option<Millis>> = vec![None; state.units.len()];
    for attempt in &lanes.attempts {
        let backoff = if attempt.gate.is_requested {
            Millis(0)
        } else {
            attempt.gate.due.since(attempt.gate.pending_since)
        };
        let delay = ends[attempt.unit].map_or(Millis(0), |_| backoff);
        jobs[attempt.unit].push((delay, attempt.to.since(attempt.from)));
        ends[attempt.unit] = Some(attempt.to);
    }
    let expected = expected_active_times(state, now);
    for (index, unit) in state
        .units
        .iter()
        .enumerate()
        .filter(|(_, unit)| !unit.status.is_finished())
    {
        let used: u64 = jobs[index].iter().map(|(_, took)| took.0).sum();
        let rest = match expected.get(index).copied().flatten() {
            Some(expected) => Millis(expected.0.saturating_sub(used)),
            None if unit.status.is_in_flight() => {
                is_minimum = true;
                Millis(0)
            }
            None => return None,
        };
        match jobs[index]
            .last_mut()
            .filter(|_| unit.status.is_in_flight())
        {
            Some((_, took)) => took.0 += rest.0,
            None => {
                let is_waiting = unit.status == UnitStatus::Waiting;
                let delay = unit
                    .retry_at
                    .zip(ends[index])
                    .filter(|_| is_waiting)
                    .map(|(due, end)| due.since(end));
                jobs[index].push((delay.unwrap_or_default(), rest));
            }
        }
    }
    Some((jobs, is_minimum))
}

/// Time until the last job ends if at most `slots` attempts run at the same time.
fn makespan(jobs: &[&Job], slots: u32) -> Millis {
    let mut ready: BTreeSet<usize> = (0..jobs.len())
        .filter(|job| !jobs[*job].is_empty())
        .collect();
    let mut next = vec![0_usize; jobs.len()];
    // Ends of attempts and of delays; only the former occupy a slot.
    let mut events: BinaryHeap<Reverse<(Millis, usize, bool)>> = BinaryHeap::new();
    let (mut now, mut running, mut last) = (Millis(0), 0, Millis(0));
    loop {
        while running < slots
            && let Some(job) = ready.pop_first()
        {
            let (_, took) = jobs[job][next[job]];
            events.push(Reverse((Millis(now.0.saturating_add(took.0)), job, true)));
            running += 1;
        }
        let Some(Reverse((at, job, is_attempt))) = events.pop() else {
            return last;
        };
        now = at;
        if !is_attempt {
            ready.insert(job);
            continue;
        }
        (running, last) = (running - 1, at);
        next[job] += 1;
        if let Some((delay, _)) = jobs[job].get(next[job]) {
            if *delay > Millis(0) {
                events.push(Reverse((Millis(at.0.saturating_add(delay.0)), job, false)));
            } else {
                ready.insert(job);
            }
        }
    }
}
