//! The units of a run with their phases and counts. One function updates both. The module must not depend on the
//! policy.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use crate::tape::{
    Note, UnitKey,
    note::{Amendment, AttemptOutcome, RunEnded, StopMode, StopReason},
};

use super::{ScheduleEffect, TimerId, settle::has_failed_outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitPhase {
    /// May start when a slot is free.
    Queued,
    /// Starts again when its timer fires.
    RetryPending(TimerId),
    InFlight {
        /// The agent has started up.
        ready: bool,
        /// How firmly it was requested to end.
        stop: Option<StopMode>,
    },
    /// It is the reconcile step and starts once all others are over and integrated.
    ReconcilePending,
    /// Nothing happens until a person requests it.
    Settled,
}

/// Purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerPurpose {
    /// Retry of the unit at this index.
    Retry(usize),
    /// End of the pause for a limit.
    Limit,
    /// Next trial to start a unit with a program that was missing.
    Program,
    /// End of the time in which a refused start is the same fault.
    Refusal,
    /// End of the wait for workers, or of the time before it is reported.
    Workers,
}

/// Numbers of attempts that are repeated without a person.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RepeatCounts {
    /// Repeated by the retry policy.
    pub(super) retries: u32,
    /// Ended at a limit.
    limit_attempts: u32,
    /// Repeated on another worker.
    lost_attempts: u32,
}

#[derive(Clone, Debug)]
pub(super) struct ScheduledUnit {
    pub(super) key: UnitKey,
    pub(super) attempts: u32,
    /// What was repeated automatically since the last request of a person.
    pub(super) repeated: RepeatCounts,
    /// Number of units that were running when its newest attempt started.
    running_at_start: u32,
    /// Current phase. Only [`UnitTable::set_phase`] changes it.
    pub(super) phase: UnitPhase,
    /// Changes to the planned attempts. Automatic retries repeat them.
    pub(super) amendment: Option<Arc<Amendment>>,
    /// Session that automatic attempts continue.
    resume: Option<String>,
    last_outcome: Option<AttemptOutcome>,
    /// Its last attempt proves nothing about it, because the agent refused to start or the worker was lost. It counts
    /// as not run.
    is_untried: bool,
    out_of_budget: bool,
    /// Messages of a person that wait for its next attempt.
    messages: Vec<String>,
    /// A person accepted its result although it is out of turns or budget.
    is_accepted: bool,
    /// Its last success is not saved yet.
    is_unsaved: bool,
    /// It is reused from a prior run.
    is_reused: bool,
}

impl ScheduledUnit {
    fn new(key: UnitKey) -> Self {
        Self {
            key,
            attempts: 0,
            repeated: RepeatCounts::default(),
            running_at_start: 0,
            phase: UnitPhase::Settled,
            amendment: None,
            resume: None,
            last_outcome: None,
            is_untried: false,
            out_of_budget: false,
            messages: Vec::new(),
            is_accepted: false,
            is_unsaved: false,
            is_reused: false,
        }
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.phase, UnitPhase::InFlight { .. })
    }

    /// The amendment of its next attempt. A continued session already has the feedback.
    fn next_amendment(&self) -> Option<Arc<Amendment>> {
        let Some(session) = &self.resume else {
            return self.amendment.clone();
        };
        let before = self.amendment.as_deref().cloned().unwrap_or_default();
        Some(Arc::new(Amendment {
            resume: Some(session.clone()),
            feedback: None,
            message: None,
            ..before
        }))
    }

    pub(super) fn note_effect(&self, note: Note) -> ScheduleEffect {
        ScheduleEffect::RecordNote {
            attempt: Some((self.key.clone(), self.attempts)),
            note,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct UnitTable {
    units: Vec<ScheduledUnit>,
    index: HashMap<UnitKey, usize>,
    /// Indices of queued units, in plan order.
    queue: BTreeSet<usize>,
    in_flight: u32,
    starting: u32,
    waiting: usize,
    /// Active timers. All others are stale.
    timers: HashMap<TimerId, TimerPurpose>,
    limit_timer: Option<TimerId>,
    next_timer: u64,
    /// The first unit that was settled and may run again, since the last look.
    reopened: Option<usize>,
}

impl UnitTable {
    pub(super) fn new(keys: Vec<UnitKey>) -> Self {
        let mut table = Self {
            units: Vec::with_capacity(keys.len()),
            index: HashMap::with_capacity(keys.len()),
            queue: BTreeSet::new(),
            in_flight: 0,
            starting: 0,
            waiting: 0,
            timers: HashMap::new(),
            limit_timer: None,
            next_timer: 0,
            reopened: None,
        };
        for key in keys {
            let at = table.units.len();
            if let Entry::Vacant(entry) = table.index.entry(key.clone()) {
                entry.insert(at);
                table.units.push(ScheduledUnit::new(key));
                table.set_phase(at, UnitPhase::Queued);
            }
        }
        table
    }

    /// Removes a unit from the queue because it is reused from a prior run.
    pub(super) fn reuse(&mut self, at: usize) {
        self.units[at].is_reused = true;
        self.set_phase(at, UnitPhase::Settled);
    }

    /// Changes the planned attempts of all units.
    pub(super) fn amend_all(&mut self, amendment: &Arc<Amendment>) {
        self.units
            .iter_mut()
            .for_each(|unit| unit.amendment = Some(Arc::clone(amendment)));
    }

    /// Marks the patch of a reused unit as not saved.
    pub(super) fn mark_unsaved(&mut self, at: usize) {
        self.units[at].is_unsaved = true;
    }

    /// Adds an unplanned unit in `phase`, or resets one that has to run again. Returns its index.
    pub(super) fn add(&mut self, key: &UnitKey, phase: UnitPhase) -> usize {
        let at = self.find(key).unwrap_or_else(|| {
            self.units.push(ScheduledUnit::new(key.clone()));
            self.index.insert(key.clone(), self.units.len() - 1);
            self.units.len() - 1
        });
        let unit = &mut self.units[at];
        (unit.last_outcome, unit.is_unsaved, unit.out_of_budget) = (None, false, false);
        self.set_phase(at, phase);
        at
    }

    pub(super) fn is_settled(&self, at: usize) -> bool {
        self.units[at].phase == UnitPhase::Settled
    }

    pub(super) fn has_succeeded(&self, at: usize) -> bool {
        self.units[at].last_outcome == Some(AttemptOutcome::Succeeded)
    }

    /// Its last success waits to be saved.
    pub(super) fn is_unsaved(&self, at: usize) -> bool {
        self.units[at].is_unsaved
    }

    pub(super) fn units(&self) -> &[ScheduledUnit] {
        &self.units
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &UnitKey> {
        self.units.iter().map(|unit| &unit.key)
    }

    pub(super) fn find(&self, key: &UnitKey) -> Option<usize> {
        self.index.get(key).copied()
    }

    /// Index of a unit whose newest attempt is `attempt` and running, and the stop request it has.
    pub(super) fn find_running_attempt(
        &self,
        key: &UnitKey,
        attempt: u32,
    ) -> Option<(usize, bool)> {
        let at = self.find(key)?;
        match &self.units[at] {
            ScheduledUnit {
                phase: UnitPhase::InFlight { stop, .. },
                attempts,
                ..
            } if *attempts == attempt => Some((at, stop.is_some())),
            _ => None,
        }
    }

    /// Moves a unit to another phase and updates the counts.
    pub(super) fn set_phase(&mut self, at: usize, phase: UnitPhase) {
        match self.units[at].phase {
            UnitPhase::Queued => _ = self.queue.remove(&at),
            UnitPhase::RetryPending(timer) => {
                self.waiting -= 1;
                self.timers.remove(&timer);
            }
            UnitPhase::InFlight { ready, .. } => {
                self.in_flight -= 1;
                self.starting -= u32::from(!ready);
            }
            UnitPhase::Settled if phase != UnitPhase::Settled => {
                self.reopened = Some(self.reopened.map_or(at, |first| first.min(at)));
            }
            UnitPhase::ReconcilePending | UnitPhase::Settled => {}
        }
        match phase {
            UnitPhase::Queued => _ = self.queue.insert(at),
            UnitPhase::RetryPending(_) => self.waiting += 1,
            UnitPhase::InFlight { ready, .. } => {
                self.in_flight += 1;
                self.starting += u32::from(!ready);
            }
            UnitPhase::ReconcilePending | UnitPhase::Settled => {}
        }
        self.units[at].phase = phase;
    }

    /// The first unit that was settled and may run again, since the last call.
    pub(super) fn take_reopened(&mut self) -> Option<usize> {
        self.reopened.take()
    }

    /// Starts the first queued unit.
    pub(super) fn start_next(&mut self) -> Option<ScheduleEffect> {
        self.start_queued(*self.queue.first()?)
    }

    /// Starts a unit, if it is queued.
    pub(super) fn start_queued(&mut self, at: usize) -> Option<ScheduleEffect> {
        if !self.queue.contains(&at) {
            return None;
        }
        let others = self.in_flight;
        self.set_phase(
            at,
            UnitPhase::InFlight {
                ready: false,
                stop: None,
            },
        );
        let unit = &mut self.units[at];
        unit.running_at_start = others;
        unit.attempts += 1;
        Some(ScheduleEffect::StartAttempt {
            unit: unit.key.clone(),
            attempt: unit.attempts,
            amendment: unit.next_amendment(),
        })
    }

    pub(super) fn mark_ready(&mut self, key: &UnitKey, attempt: u32) {
        let Some((at, _)) = self.find_running_attempt(key, attempt) else {
            return;
        };
        if let UnitPhase::InFlight { stop, .. } = self.units[at].phase {
            self.set_phase(at, UnitPhase::InFlight { ready: true, stop });
        }
    }

    /// Records a stop request for a running attempt. Returns the number of the attempt, or `None` if the unit does not
    /// run or has an equally firm request.
    pub(super) fn request_stop(&mut self, at: usize, how: StopMode) -> Option<u32> {
        let UnitPhase::InFlight { ready, stop } = self.units[at].phase else {
            return None;
        };
        if stop == Some(how) || stop == Some(StopMode::Kill) {
            return None;
        }
        self.set_phase(
            at,
            UnitPhase::InFlight {
                ready,
                stop: Some(how),
            },
        );
        Some(self.units[at].attempts)
    }

    /// Moves a unit to `phase` on request of a person and resets its retries. Without an amendment, the new attempt
    /// gets the input of the last one, but not its session.
    pub(super) fn restart(&mut self, at: usize, amendment: Option<Amendment>, phase: UnitPhase) {
        let unit = &mut self.units[at];
        unit.repeated = RepeatCounts::default();
        unit.resume = None;
        let amendment = amendment.or_else(|| {
            let before = unit.amendment.as_deref()?;
            Some(Amendment {
                resume: None,
                ..before.clone()
            })
        });
        unit.amendment = amendment
            .filter(|amendment| !amendment.is_empty())
            .map(Arc::new);
        self.set_phase(at, phase);
    }

    /// Settles all units that wait to start.
    pub(super) fn settle_pending(&mut self) {
        for at in 0..self.units.len() {
            if !self.units[at].is_in_flight() {
                self.set_phase(at, UnitPhase::Settled);
            }
        }
    }

    pub(super) fn record_outcome(&mut self, at: usize, outcome: AttemptOutcome, stop: StopReason) {
        self.units[at].last_outcome = Some(outcome);
        self.units[at].is_untried = false;
        self.units[at].is_unsaved = outcome == AttemptOutcome::Succeeded;
        self.units[at].out_of_budget = stop == StopReason::Budget;
        self.units[at].is_accepted = false;
    }

    /// The last attempt proves nothing about the unit.
    pub(super) fn mark_untried(&mut self, at: usize) {
        self.units[at].is_untried = true;
    }

    /// Keeps a message for the next attempt of a unit.
    pub(super) fn queue_message(&mut self, at: usize, text: String) {
        self.units[at].messages.push(text);
    }

    /// The messages for the attempt that starts.
    pub(super) fn take_messages(&mut self, unit: &UnitKey, attempt: u32) -> Vec<ScheduleEffect> {
        let Some(at) = self.find(unit) else {
            return Vec::new();
        };
        let messages = std::mem::take(&mut self.units[at].messages).into_iter();
        messages
            .map(|text| ScheduleEffect::MessageAttempt {
                unit: unit.clone(),
                attempt,
                text,
            })
            .collect()
    }

    /// Units that are out of turns or budget and about which no person has decided.
    pub(super) fn undecided_units(&self) -> Vec<UnitKey> {
        let undecided =
            |unit: &&ScheduledUnit| unit.out_of_budget && !unit.is_accepted && !unit.is_reused;
        self.units
            .iter()
            .filter(undecided)
            .map(|unit| unit.key.clone())
            .collect()
    }

    /// Marks a unit as decided. Returns false if it waits for no decision.
    pub(super) fn accept_result(&mut self, at: usize) -> bool {
        let unit = &mut self.units[at];
        let is_undecided =
            unit.out_of_budget && unit.phase == UnitPhase::Settled && !unit.is_accepted;
        unit.is_accepted |= is_undecided;
        is_undecided
    }

    /// Makes automatic attempts continue `session`, or none.
    pub(super) fn set_resume_session(&mut self, at: usize, session: Option<String>) {
        self.units[at].resume = session;
    }

    /// The next attempt is a new session that begins with `message`.
    pub(super) fn set_message(&mut self, at: usize, message: String) {
        let unit = &mut self.units[at];
        let before = unit.amendment.as_deref().cloned().unwrap_or_default();
        let amendment = Amendment {
            message: Some(message),
            feedback: None,
            resume: None,
            ..before
        };
        (unit.amendment, unit.resume) = (Some(Arc::new(amendment)), None);
    }

    pub(super) fn spend_retry(&mut self, at: usize) {
        self.units[at].repeated.retries += 1;
    }

    /// Counts an attempt that ended at a limit and returns the number of such attempts.
    pub(super) fn count_limit_attempt(&mut self, at: usize) -> u32 {
        self.units[at].repeated.limit_attempts += 1;
        self.units[at].repeated.limit_attempts
    }

    /// Counts an attempt that is repeated on another worker and returns the number of such attempts.
    pub(super) fn count_lost_attempt(&mut self, at: usize) -> u32 {
        self.units[at].repeated.lost_attempts += 1;
        self.units[at].repeated.lost_attempts
    }

    /// Nothing else ran when the newest attempt of the unit started.
    pub(super) fn started_alone(&self, at: usize) -> bool {
        self.units[at].running_at_start == 0
    }

    /// Settled units without a verdict.
    pub(super) fn unattempted_units(&self) -> Vec<usize> {
        (0..self.units.len())
            .filter(|at| self.is_unattempted(*at))
            .collect()
    }

    /// The unit is settled and has no verdict.
    pub(super) fn is_unattempted(&self, at: usize) -> bool {
        let unit = &self.units[at];
        unit.phase == UnitPhase::Settled && unit.last_outcome.is_none() && !unit.is_reused
    }

    /// A settled unit failed, without being stopped.
    pub(super) fn has_failed(&self) -> bool {
        let has_failed = |unit: &ScheduledUnit| {
            unit.last_outcome == Some(AttemptOutcome::Failed) && !unit.is_untried
        };
        self.units
            .iter()
            .any(|unit| unit.phase == UnitPhase::Settled && has_failed(unit))
    }

    /// Settled units that did not succeed: they failed, were stopped, or spent their budget.
    pub(super) fn retryable_units(&self) -> Vec<usize> {
        let not_done =
            |unit: &ScheduledUnit| unit.out_of_budget || has_failed_outcome(unit.last_outcome);
        (0..self.units.len())
            .filter(|at| self.is_settled(*at) && not_done(&self.units[*at]))
            .collect()
    }

    /// Settled successes that are not saved, in plan order.
    pub(super) fn unsaved_attempts(&self) -> Vec<(UnitKey, u32)> {
        let unsaved = self
            .units
            .iter()
            .filter(|unit| unit.phase == UnitPhase::Settled && unit.is_unsaved);
        unsaved
            .map(|unit| (unit.key.clone(), unit.attempts))
            .collect()
    }

    /// Marks the writes of these attempts as saved.
    pub(super) fn mark_saved(&mut self, taken: &[(UnitKey, u32)]) {
        for (key, attempt) in taken {
            if let Some(at) = self
                .find(key)
                .filter(|at| self.units[*at].attempts == *attempt)
            {
                self.units[at].is_unsaved = false;
            }
        }
    }

    /// Units whose writes do not count, in plan order.
    pub(super) fn units_without_result(&self) -> Vec<UnitKey> {
        self.units
            .iter()
            .filter(|unit| has_failed_outcome(unit.last_outcome))
            .map(|unit| unit.key.clone())
            .collect()
    }

    pub(super) fn in_flight_count(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn starting_count(&self) -> u32 {
        self.starting
    }

    /// True if a unit waits to start.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.queue.is_empty() || self.waiting > 0
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.waiting == 0 && self.in_flight == 0
    }

    pub(super) fn new_timer(&mut self, timer: TimerPurpose) -> TimerId {
        let id = TimerId(self.next_timer);
        self.next_timer += 1;
        self.timers.insert(id, timer);
        id
    }

    /// Creates the timer for the end of the pause; the previous one becomes stale.
    pub(super) fn new_limit_timer(&mut self) -> TimerId {
        self.drop_limit_timer();
        let id = self.new_timer(TimerPurpose::Limit);
        self.limit_timer = Some(id);
        id
    }

    /// Makes the timer of the pause stale. Returns true if there was one.
    pub(super) fn drop_limit_timer(&mut self) -> bool {
        let id = self.limit_timer.take();
        if let Some(id) = id {
            self.timers.remove(&id);
        }
        id.is_some()
    }

    /// Removes a timer and returns its purpose; `None` if it is stale.
    pub(super) fn take_timer(&mut self, id: TimerId) -> Option<TimerPurpose> {
        self.timers.remove(&id)
    }

    /// Counts units by their last verdict. The caller decides the outcome of the run.
    pub(super) fn tally_outcomes(&self) -> RunEnded {
        let mut ended = RunEnded::default();
        for unit in &self.units {
            match unit.last_outcome {
                Some(AttemptOutcome::Succeeded) if unit.out_of_budget => ended.budget += 1,
                Some(AttemptOutcome::Succeeded) => ended.succeeded += 1,
                Some(AttemptOutcome::Failed) if unit.is_untried => ended.not_run += 1,
                Some(AttemptOutcome::Failed) => ended.failed += 1,
                Some(AttemptOutcome::Stopped) => ended.stopped += 1,
                None if unit.is_reused => ended.reused += 1,
                None => ended.not_run += 1,
            }
        }
        ended
    }
}
