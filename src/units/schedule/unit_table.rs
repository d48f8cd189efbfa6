//! The units of a run with their phases, and the counts over them, kept in step by one function. Knows no policy.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use crate::tape::{
    Note, UnitKey,
    note::{Amendment, AttemptOutcome, RunEnded, StopMode, StopReason},
};

use super::{ScheduleEffect, TimerId, settle::has_failed_outcome};

/// Where a unit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitPhase {
    /// May start when there is room.
    Queued,
    /// Starts again when its timer fires.
    RetryPending(TimerId),
    /// An attempt runs.
    InFlight {
        /// Its start-up is over.
        ready: bool,
        /// How firmly it was asked to end.
        stop: Option<StopMode>,
    },
    /// It is the pass, and starts once all others are over and put together.
    ReconcilePending,
    /// Nothing happens until a person asks.
    Settled,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerPurpose {
    /// Retry of the unit at this position.
    Retry(usize),
    /// End of the pause for a limit.
    Limit,
    /// Next try to start a unit with a program that was missing.
    Program,
}

/// A unit.
#[derive(Clone, Debug)]
pub(super) struct ScheduledUnit {
    /// Key.
    pub(super) key: UnitKey,
    /// Attempts so far.
    pub(super) attempts: u32,
    /// Retries used since a person last asked.
    pub(super) retries: u32,
    /// Tries that ended at a limit since a person last asked.
    limit_attempts: u32,
    /// Units that were running when its newest attempt started.
    running_at_start: u32,
    /// Where it stands. Changed by [`UnitTable::set_phase`] only.
    pub(super) phase: UnitPhase,
    /// What its attempts do otherwise than planned. Retries that nobody asks for repeat it.
    pub(super) amendment: Option<Arc<Amendment>>,
    /// Session that retries continue that nobody asks for.
    resume: Option<String>,
    last_outcome: Option<AttemptOutcome>,
    out_of_budget: bool,
    /// Its last success is not saved yet.
    is_unsaved: bool,
    /// An earlier run did it.
    is_reused: bool,
}

impl ScheduledUnit {
    /// A unit that nothing has happened to.
    fn new(key: UnitKey) -> Self {
        Self {
            key,
            attempts: 0,
            retries: 0,
            limit_attempts: 0,
            running_at_start: 0,
            phase: UnitPhase::Settled,
            amendment: None,
            resume: None,
            last_outcome: None,
            out_of_budget: false,
            is_unsaved: false,
            is_reused: false,
        }
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.phase, UnitPhase::InFlight { .. })
    }

    /// What its next attempt does otherwise than planned. A session that is continued was given the feedback already.
    fn next_amendment(&self) -> Option<Arc<Amendment>> {
        let Some(session) = &self.resume else { return self.amendment.clone() };
        let before = self.amendment.as_deref().cloned().unwrap_or_default();
        Some(Arc::new(Amendment { resume: Some(session.clone()), feedback: None, ..before }))
    }

    pub(super) fn note_effect(&self, note: Note) -> ScheduleEffect {
        ScheduleEffect::RecordNote { lane: Some((self.key.clone(), self.attempts)), note }
    }
}

/// All units.
#[derive(Clone, Debug)]
pub(super) struct UnitTable {
    units: Vec<ScheduledUnit>,
    index: HashMap<UnitKey, usize>,
    /// Positions of queued units: plan order is their order.
    queue: BTreeSet<usize>,
    in_flight: u32,
    starting: u32,
    waiting: usize,
    /// Timers that still mean something. All others are stale.
    timers: HashMap<TimerId, TimerPurpose>,
    limit_timer: Option<TimerId>,
    next_timer: u64,
}

impl UnitTable {
    pub(super) fn new(keys: Vec<UnitKey>) -> Self {
        let mut board = Self {
            units: Vec::with_capacity(keys.len()),
            index: HashMap::with_capacity(keys.len()),
            queue: BTreeSet::new(),
            in_flight: 0,
            starting: 0,
            waiting: 0,
            timers: HashMap::new(),
            limit_timer: None,
            next_timer: 0,
        };
        for key in keys {
            let at = board.units.len();
            if let Entry::Vacant(entry) = board.index.entry(key.clone()) {
                entry.insert(at);
                board.units.push(ScheduledUnit::new(key));
                board.set_phase(at, UnitPhase::Queued);
            }
        }
        board
    }

    /// Takes a unit off the board that an earlier run did.
    pub(super) fn reuse(&mut self, at: usize) {
        self.units[at].is_reused = true;
        self.set_phase(at, UnitPhase::Settled);
    }

    /// The patch of a unit that an earlier run did is not saved yet.
    pub(super) fn mark_unsaved(&mut self, at: usize) {
        self.units[at].is_unsaved = true;
    }

    /// Puts a unit into `phase` that was not planned, or that is to run once more: what it did before counts no longer.
    /// Its place.
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

    pub(super) fn find(&self, key: &UnitKey) -> Option<usize> {
        self.index.get(key).copied()
    }

    /// The position of a unit whose newest attempt is `attempt` and runs, and whether it was asked to end.
    pub(super) fn in_flight(&self, key: &UnitKey, attempt: u32) -> Option<(usize, bool)> {
        let at = self.find(key)?;
        match &self.units[at] {
            ScheduledUnit { phase: UnitPhase::InFlight { stop, .. }, attempts, .. } if *attempts == attempt => {
                Some((at, stop.is_some()))
            }
            _ => None,
        }
    }

    /// Moves a unit to another phase, and the counts with it.
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
        self.set_phase(at, UnitPhase::InFlight { ready: false, stop: None });
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
        let Some((at, _)) = self.in_flight(key, attempt) else { return };
        if let UnitPhase::InFlight { stop, .. } = self.units[at].phase {
            self.set_phase(at, UnitPhase::InFlight { ready: true, stop });
        }
    }

    /// Remembers that a running attempt was asked to end. Its number, unless it does not run or was asked as firmly.
    pub(super) fn request_stop(&mut self, at: usize, how: StopMode) -> Option<u32> {
        let UnitPhase::InFlight { ready, stop } = self.units[at].phase else { return None };
        if stop == Some(how) || stop == Some(StopMode::Kill) {
            return None;
        }
        self.set_phase(at, UnitPhase::InFlight { ready, stop: Some(how) });
        Some(self.units[at].attempts)
    }

    /// Puts a unit into `phase` because a person asked: its retries are its own again. Without an amendment it is told
    /// what it was told before, but not in the session of before: as it was, the session had not begun.
    pub(super) fn restart(&mut self, at: usize, amendment: Option<Amendment>, phase: UnitPhase) {
        let unit = &mut self.units[at];
        unit.retries = 0;
        unit.limit_attempts = 0;
        unit.resume = None;
        let amendment = amendment.or_else(|| {
            let before = unit.amendment.as_deref()?;
            Some(Amendment { resume: None, ..before.clone() })
        });
        unit.amendment = amendment.filter(|amendment| !amendment.is_empty()).map(Arc::new);
        self.set_phase(at, phase);
    }

    /// Takes everything off the board that does not run.
    pub(super) fn settle_pending(&mut self) {
        for at in 0..self.units.len() {
            if !self.units[at].is_in_flight() {
                self.set_phase(at, UnitPhase::Settled);
            }
        }
    }

    pub(super) fn record_outcome(&mut self, at: usize, outcome: AttemptOutcome, stop: StopReason) {
        self.units[at].last_outcome = Some(outcome);
        self.units[at].is_unsaved = outcome == AttemptOutcome::Succeeded;
        self.units[at].out_of_budget = stop == StopReason::Budget;
    }

    /// Retries that nobody asks for continue `session`.
    pub(super) fn set_resume_session(&mut self, at: usize, session: String) {
        self.units[at].resume = Some(session);
    }

    pub(super) fn spend_retry(&mut self, at: usize) {
        self.units[at].retries += 1;
    }

    /// A try ended at a limit. How many have.
    pub(super) fn count_limit_attempt(&mut self, at: usize) -> u32 {
        self.units[at].limit_attempts += 1;
        self.units[at].limit_attempts
    }

    /// Nothing else ran when the newest attempt of a unit started.
    pub(super) fn started_alone(&self, at: usize) -> bool {
        self.units[at].running_at_start == 0
    }

    /// Units that never came to a verdict and that nothing happens to.
    pub(super) fn unattempted_units(&self) -> Vec<usize> {
        (0..self.units.len()).filter(|at| self.is_unattempted(*at)).collect()
    }

    /// It never came to a verdict, and nothing happens to it.
    pub(super) fn is_unattempted(&self, at: usize) -> bool {
        let unit = &self.units[at];
        unit.phase == UnitPhase::Settled && unit.last_outcome.is_none() && !unit.is_reused
    }

    /// A unit failed by itself, and nothing happens to it.
    pub(super) fn has_failed(&self) -> bool {
        self.units
            .iter()
            .any(|unit| unit.phase == UnitPhase::Settled && unit.last_outcome == Some(AttemptOutcome::Failed))
    }

    /// Units that nothing happens to and that are not done: they failed, were stopped, or spent their budget.
    pub(super) fn unfinished_units(&self) -> Vec<usize> {
        let not_done = |unit: &ScheduledUnit| unit.out_of_budget || has_failed_outcome(unit.last_outcome);
        (0..self.units.len()).filter(|at| self.is_settled(*at) && not_done(&self.units[*at])).collect()
    }

    /// Successes that are not saved and that nothing happens to, in plan order.
    pub(super) fn unsaved_attempts(&self) -> Vec<(UnitKey, u32)> {
        let unsaved = self.units.iter().filter(|unit| unit.phase == UnitPhase::Settled && unit.is_unsaved);
        unsaved.map(|unit| (unit.key.clone(), unit.attempts)).collect()
    }

    /// What these attempts left is saved.
    pub(super) fn mark_saved(&mut self, taken: &[(UnitKey, u32)]) {
        for (key, attempt) in taken {
            if let Some(at) = self.find(key).filter(|at| self.units[*at].attempts == *attempt) {
                self.units[at].is_unsaved = false;
            }
        }
    }

    /// Units whose writes do not count, in plan order.
    pub(super) fn unsuccessful_units(&self) -> Vec<UnitKey> {
        self.units.iter().filter(|unit| has_failed_outcome(unit.last_outcome)).map(|unit| unit.key.clone()).collect()
    }

    pub(super) fn in_flight_count(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn starting_count(&self) -> u32 {
        self.starting
    }

    /// True when something waits to start.
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

    /// A timer for the end of the pause; the one before it goes stale.
    pub(super) fn new_limit_timer(&mut self) -> TimerId {
        self.drop_limit_timer();
        let id = self.new_timer(TimerPurpose::Limit);
        self.limit_timer = Some(id);
        id
    }

    /// Makes the timer of the pause stale. True if there was one.
    pub(super) fn drop_limit_timer(&mut self) -> bool {
        let id = self.limit_timer.take();
        if let Some(id) = id {
            self.timers.remove(&id);
        }
        id.is_some()
    }

    /// What a timer is for; `None` if it is stale.
    pub(super) fn take_timer(&mut self, id: TimerId) -> Option<TimerPurpose> {
        self.timers.remove(&id)
    }

    /// Units by their last verdict; the outcome of the run is not this module's to say.
    pub(super) fn tally_outcomes(&self) -> RunEnded {
        let mut ended = RunEnded::default();
        for unit in &self.units {
            match unit.last_outcome {
                Some(AttemptOutcome::Succeeded) if unit.out_of_budget => ended.budget += 1,
                Some(AttemptOutcome::Succeeded) => ended.succeeded += 1,
                Some(AttemptOutcome::Failed) => ended.failed += 1,
                Some(AttemptOutcome::Stopped) => ended.stopped += 1,
                None if unit.is_reused => ended.reused += 1,
                None => ended.not_run += 1,
            }
        }
        ended
    }
}
