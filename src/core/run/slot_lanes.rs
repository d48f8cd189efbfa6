//! The attempts of a run as bars in lanes, one lane for each slot of its concurrency, and what they waited for.
//!
//! Pure, and derived from the run view at one moment. A wait is attributed to a cause only if the tape records it; the
//! rest is [`TimeUse::Other`]. `critical_path` finds the chain that decided the end of the run.

mod critical_path;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
};

pub(crate) use critical_path::PathStep;

use super::{
    schedule_change::{RecordedChange, ScheduleChange},
    spending::attempt_end,
    state::{AttemptId, AttemptState, RECONCILE_KEY, RunState, RunView, UnitState, UnitStatus},
};
use crate::tape::{Millis, note::AttemptOutcome};

/// What time of an attempt, or before it, was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUse {
    /// The run read its inputs and made the plan.
    Planning,
    /// As many attempts ran as the concurrency allows.
    Slot,
    /// The run waited for a usage or request limit.
    Limit,
    /// The delay before an automatic retry.
    Backoff,
    /// Nothing was to be done until a person requested another attempt.
    Request,
    /// No cause is recorded: preparing a workspace, integrating and saving patches.
    Other,
    /// From the start of the process to the first output of the model.
    StartUp,
    /// A call waited for an approval.
    Hold,
    Work,
}

impl TimeUse {
    pub const ALL: [Self; 9] = [
        Self::Planning,
        Self::Slot,
        Self::Limit,
        Self::Backoff,
        Self::Request,
        Self::Other,
        Self::StartUp,
        Self::Hold,
        Self::Work,
    ];

    /// Its text on the screen.
    pub fn label(self) -> &'static str {
        match self {
            Self::Planning => "planning",
            Self::Slot => "free slot",
            Self::Limit => "limit",
            Self::Backoff => "backoff",
            Self::Request => "retry request",
            Self::Other => "other",
            Self::StartUp => "start-up",
            Self::Hold => "hold",
            Self::Work => "work",
        }
    }

    /// True for time in which the attempt did not run yet.
    pub fn is_before_start(self) -> bool {
        !matches!(self, Self::StartUp | Self::Hold | Self::Work)
    }
}

/// A duration for each [`TimeUse`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeUses([Millis; TimeUse::ALL.len()]);

impl TimeUses {
    pub fn get(&self, time_use: TimeUse) -> Millis {
        self.0[time_use as usize]
    }

    fn add(&mut self, time_use: TimeUse, duration: Millis) {
        let known = &mut self.0[time_use as usize].0;
        *known = known.saturating_add(duration.0);
    }

    fn add_all(&mut self, other: &Self) {
        for time_use in TimeUse::ALL {
            self.add(time_use, other.get(time_use));
        }
    }

    /// The sum of all durations.
    pub fn total(&self) -> Millis {
        Millis(
            self.0
                .iter()
                .fold(0, |sum, duration| sum.saturating_add(duration.0)),
        )
    }
}

/// An attempt in its lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneAttempt {
    /// Index of the unit in the state.
    pub unit: usize,
    /// Index of the attempt in its unit.
    pub attempt: usize,
    pub id: AttemptId,
    /// Status of the unit during or after this attempt.
    pub status: UnitStatus,
    pub lane: usize,
    pub from: Millis,
    /// Its end, or the moment of the view while it runs.
    pub to: Millis,
    /// Time at which the start-up was over.
    pub ready_at: Millis,
    /// Times in which a call waited for an approval, in order and without overlaps.
    pub holds: Vec<(Millis, Millis)>,
    /// What the attempt waited for, and what its time was used for.
    pub uses: TimeUses,
    pub is_on_critical_path: bool,
    gate: StartGate,
}

/// The earliest start of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct StartGate {
    /// Since when the attempt was to be made.
    pending_since: Millis,
    /// End of the backoff; equal to `pending_since` without one.
    due: Millis,
    /// A person requested the attempt.
    is_requested: bool,
}

/// All attempts up to a moment in lanes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotLanes {
    /// In the order of their starts.
    pub attempts: Vec<LaneAttempt>,
    pub lanes: usize,
    /// End of the time that the lanes cover.
    pub end: Millis,
    /// Times in which the run waited for a limit, in order and without overlaps.
    pub pauses: Vec<(Millis, Millis)>,
    /// Sum over all attempts.
    pub totals: TimeUses,
    /// The chain of attempts and waits that ends with the run. Empty without a recorded plan.
    pub critical_path: Vec<PathStep>,
}

impl SlotLanes {
    /// The lanes of a run at the moment of `run_view`.
    pub fn new(run_view: &RunView) -> Self {
        let (state, changes) = (&run_view.state, run_view.schedule_changes());
        let now = state.clock.max(state.last_entry_at);
        let mut attempts = collect_attempts(state, now);
        let lanes = assign_lanes(&mut attempts);
        let log = ScheduleLog::new(&attempts, changes, now);
        for lane_attempt in &mut attempts {
            log.measure(state, lane_attempt, now);
        }
        let ended = changes
            .iter()
            .rev()
            .find(|change| change.change == ScheduleChange::RunEnded);
        let last = attempts
            .iter()
            .map(|attempt| attempt.to)
            .max()
            .unwrap_or_default();
        let end = match ended.map(|change| change.at) {
            // Time after the end of the run is not a part of it.
            Some(ended) if state.ended.is_some() => ended.max(last),
            _ => now.max(last),
        };
        let mut lanes = Self {
            attempts,
            lanes,
            end,
            pauses: log.paused.spans(),
            ..Self::default()
        };
        for attempt in &lanes.attempts {
            lanes.totals.add_all(&attempt.uses);
        }
        if log.planned_at.is_some() {
            lanes.critical_path = critical_path::find(&lanes.attempts, &log, end);
            for step in &lanes.critical_path {
                if let Some(attempt) = step.attempt.and_then(|index| lanes.attempts.get_mut(index))
                {
                    attempt.is_on_critical_path = true;
                }
            }
        }
        lanes
    }

    /// The index of an attempt.
    pub fn position(&self, id: AttemptId) -> Option<usize> {
        self.attempts.iter().position(|attempt| attempt.id == id)
    }
}

fn collect_attempts(state: &RunState, now: Millis) -> Vec<LaneAttempt> {
    let mut attempts = Vec::new();
    for (index, unit) in state.units.iter().enumerate() {
        attempts.extend(unit.attempts.iter().enumerate().map(|(number, attempt)| {
            let from = attempt.started_at;
            let to = attempt_end(unit, attempt, now).max(from);
            LaneAttempt {
                unit: index,
                attempt: number,
                id: attempt.id,
                status: status_of(unit, attempt),
                lane: 0,
                from,
                to,
                ready_at: match attempt.setup.first_output_ms {
                    Some(passed) => Millis(from.0.saturating_add(u64::from(passed.get()))).min(to),
                    None => to,
                },
                holds: Vec::new(),
                uses: TimeUses::default(),
                is_on_critical_path: false,
                gate: StartGate {
                    pending_since: from,
                    due: from,
                    is_requested: false,
                },
            }
        }));
    }
    attempts.sort_by_key(|attempt| (attempt.from, attempt.id.0));
    attempts
}

/// The status of a unit during or after one of its attempts.
pub fn status_of(unit: &UnitState, attempt: &AttemptState) -> UnitStatus {
    let is_latest = unit.latest().is_some_and(|latest| latest.id == attempt.id);
    if is_latest && !matches!(unit.status, UnitStatus::Queued | UnitStatus::Waiting) {
        return unit.status;
    }
    match attempt.verdict.as_ref().map(|verdict| verdict.outcome) {
        Some(AttemptOutcome::Succeeded) => UnitStatus::Succeeded,
        Some(AttemptOutcome::Failed) => UnitStatus::Failed,
        Some(AttemptOutcome::Stopped) => UnitStatus::Stopped,
        None => UnitStatus::Interrupted,
    }
}

/// Puts each attempt into the first free lane. Returns the number of lanes, which is the highest number of attempts that
/// ran at the same time.
fn assign_lanes(attempts: &mut [LaneAttempt]) -> usize {
    let (mut busy, mut free, mut lanes) = (BinaryHeap::new(), BTreeSet::new(), 0);
    for attempt in attempts {
        while let Some(Reverse((end, lane))) = busy.peek().copied()
            && end <= attempt.from
        {
            busy.pop();
            free.insert(lane);
        }
        attempt.lane = free.pop_first().unwrap_or_else(|| {
            lanes += 1;
            lanes - 1
        });
        busy.push(Reverse((attempt.to, attempt.lane)));
    }
    lanes
}

/// Spans of time in order and without overlaps, with the time that they cover before each of them.
#[derive(Debug, Default)]
struct CoveredTime(Vec<(Millis, Millis, Millis)>);

impl CoveredTime {
    fn push(&mut self, from: Millis, to: Millis) {
        match self.0.last_mut() {
            _ if from >= to => {}
            Some(last) if last.1 == from => last.1 = to,
            _ => self.0.push((from, to, self.covered_before(from))),
        }
    }

    fn covered_before(&self, at: Millis) -> Millis {
        let place = self.0.partition_point(|(from, ..)| *from < at);
        let Some((from, to, before)) = place.checked_sub(1).and_then(|place| self.0.get(place))
        else {
            return Millis(0);
        };
        Millis(before.0 + at.min(*to).since(*from).0)
    }

    fn within(&self, from: Millis, to: Millis) -> Millis {
        self.covered_before(to).since(self.covered_before(from))
    }

    fn spans(&self) -> Vec<(Millis, Millis)> {
        self.0.iter().map(|(from, to, _)| (*from, *to)).collect()
    }
}

/// The recorded changes of the schedule, prepared for questions about a time.
#[derive(Debug, Default)]
struct ScheduleLog {
    /// Time of the plan; `None` for captures, which have none.
    planned_at: Option<Millis>,
    /// The run waits for a limit.
    paused: CoveredTime,
    /// All slots are in use, and the run does not wait for a limit.
    full: CoveredTime,
    /// Requests and schedules of retries by unit: when, and when the attempt is due if it is automatic.
    retries: HashMap<usize, Vec<(Millis, Option<Millis>)>>,
    /// Begins and ends of waits for an approval by attempt.
    held_calls: HashMap<AttemptId, Vec<(Millis, bool)>>,
}

enum Edge {
    AttemptEnded,
    Changed(ScheduleChange),
    AttemptStarted,
}

impl ScheduleLog {
    fn new(attempts: &[LaneAttempt], changes: &[RecordedChange], now: Millis) -> Self {
        let mut log = Self::default();
        let mut edges: Vec<(Millis, Edge)> = Vec::with_capacity(attempts.len() * 2 + changes.len());
        for attempt in attempts.iter().filter(|attempt| attempt.from < attempt.to) {
            edges.push((attempt.from, Edge::AttemptStarted));
            edges.push((attempt.to, Edge::AttemptEnded));
        }
        for RecordedChange { at, change, .. } in changes {
            match *change {
                ScheduleChange::RetryScheduled { unit, due } => {
                    log.retries
                        .entry(unit as usize)
                        .or_default()
                        .push((*at, Some(due)));
                }
                ScheduleChange::RetryRequested { unit } => {
                    log.retries
                        .entry(unit as usize)
                        .or_default()
                        .push((*at, None));
                }
                ScheduleChange::CallHeld { attempt } => {
                    log.held_calls
                        .entry(AttemptId(attempt))
                        .or_default()
                        .push((*at, true));
                }
                ScheduleChange::CallDecided { attempt } => {
                    log.held_calls
                        .entry(AttemptId(attempt))
                        .or_default()
                        .push((*at, false));
                }
                ScheduleChange::Concurrency(_) => {
                    log.planned_at.get_or_insert(*at);
                    edges.push((*at, Edge::Changed(*change)));
                }
                ScheduleChange::Throttled(_)
                | ScheduleChange::LimitPaused
                | ScheduleChange::LimitLifted => {
                    edges.push((*at, Edge::Changed(*change)));
                }
                ScheduleChange::RunEnded => {}
            }
        }
        edges.sort_by_key(|(at, _)| *at);
        let (mut running, mut concurrency, mut throttled, mut is_paused) =
            (0_u32, None, None, false);
        let mut before = Millis(0);
        for (at, edge) in edges
            .into_iter()
            .map(Some)
            .chain([None])
            .map(|edge| edge.map_or((now, None), |(at, edge)| (at, Some(edge))))
        {
            let slots: Option<u32> = concurrency
                .map(|slots: u32| throttled.map_or(slots, |lower: u32| lower.min(slots)));
            if is_paused {
                log.paused.push(before, at);
            } else if slots.is_some_and(|slots| running >= slots) {
                log.full.push(before, at);
            }
            before = before.max(at);
            match edge {
                Some(Edge::AttemptStarted) => running += 1,
                Some(Edge::AttemptEnded) => running = running.saturating_sub(1),
                Some(Edge::Changed(ScheduleChange::Concurrency(slots))) => {
                    concurrency = Some(slots)
                }
                Some(Edge::Changed(ScheduleChange::Throttled(slots))) => throttled = slots,
                Some(Edge::Changed(change)) => {
                    is_paused = change == ScheduleChange::LimitPaused;
                    // The usage windows start again with the process.
                    throttled = throttled.filter(|_| is_paused);
                }
                None => {}
            }
        }
        log
    }

    /// Sets what an attempt waited for and what its time was used for.
    fn measure(&self, state: &RunState, lane_attempt: &mut LaneAttempt, now: Millis) {
        lane_attempt.gate = self.gate(state, lane_attempt, now);
        let StartGate {
            pending_since, due, ..
        } = lane_attempt.gate;
        let (from, to) = (lane_attempt.from, lane_attempt.to);
        let mut uses = TimeUses::default();
        uses.add(TimeUse::Backoff, due.since(pending_since));
        self.add_wait(due, from, &mut uses);
        lane_attempt.holds = self.holds(lane_attempt);
        let held = lane_attempt.holds.iter().fold(0, |sum: u64, (from, to)| {
            sum.saturating_add(to.since(*from).0)
        });
        uses.add(TimeUse::StartUp, lane_attempt.ready_at.since(from));
        uses.add(TimeUse::Hold, Millis(held));
        uses.add(
            TimeUse::Work,
            Millis(to.since(lane_attempt.ready_at).0.saturating_sub(held)),
        );
        lane_attempt.uses = uses;
    }

    /// Attributes a wait for the start of an attempt to the limit, to the slots, or to no recorded cause.
    fn add_wait(&self, from: Millis, to: Millis, uses: &mut TimeUses) {
        let (limit, slot) = (self.paused.within(from, to), self.full.within(from, to));
        uses.add(TimeUse::Limit, limit);
        uses.add(TimeUse::Slot, slot);
        uses.add(
            TimeUse::Other,
            Millis(
                to.since(from)
                    .0
                    .saturating_sub(limit.0.saturating_add(slot.0)),
            ),
        );
    }

    fn gate(&self, state: &RunState, lane_attempt: &LaneAttempt, now: Millis) -> StartGate {
        let from = lane_attempt.from;
        let (Some(planned_at), Some(unit)) = (self.planned_at, state.units.get(lane_attempt.unit))
        else {
            return lane_attempt.gate;
        };
        let prior = lane_attempt
            .attempt
            .checked_sub(1)
            .and_then(|prior| unit.attempts.get(prior));
        let since = prior.map_or(Millis(0), |prior| prior.started_at);
        let retries = self
            .retries
            .get(&lane_attempt.unit)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let retry = retries
            .iter()
            .rev()
            .find(|(at, _)| *at <= from)
            .filter(|(at, _)| *at >= since);
        let at_start = |at: Millis| at.min(from);
        let pending_since = match (retry, prior) {
            (Some((at, None)), _) => *at,
            (_, Some(prior)) => attempt_end(unit, prior, now),
            // Nothing waits for the reconcile step: it follows from the ends of the units.
            (_, None) if unit.key.as_str() == RECONCILE_KEY || unit.planned.is_none() => from,
            (_, None) => planned_at,
        };
        let pending_since = at_start(pending_since);
        let due = retry
            .and_then(|(_, due)| *due)
            .map_or(pending_since, at_start)
            .max(pending_since);
        StartGate {
            pending_since,
            due,
            is_requested: matches!(retry, Some((_, None))),
        }
    }

    /// Times after the start-up in which at least one call waited for an approval.
    fn holds(&self, lane_attempt: &LaneAttempt) -> Vec<(Millis, Millis)> {
        let Some(changes) = self.held_calls.get(&lane_attempt.id) else {
            return Vec::new();
        };
        let (mut waiting, mut since, mut held) = (0_u32, Millis(0), CoveredTime::default());
        let in_range = |at: Millis| at.clamp(lane_attempt.ready_at, lane_attempt.to);
        let open = (lane_attempt.to, false);
        for (at, is_begin) in changes
            .iter()
            .chain(std::iter::repeat_n(&open, changes.len()))
        {
            match (is_begin, waiting) {
                (true, 0) => (since, waiting) = (*at, 1),
                (true, _) => waiting += 1,
                (false, 0) => {}
                (false, _) => {
                    waiting -= 1;
                    if waiting == 0 {
                        held.push(in_range(since), in_range(*at));
                    }
                }
            }
        }
        held.spans()
    }
}

#[cfg(test)]
mod tests;
