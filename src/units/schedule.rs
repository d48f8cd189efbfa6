//! Who runs next: a state machine over the units of a run. Inputs are what happened, orders are what to do; timers
//! are orders too.
//!
//! It must not know how a unit runs, what time it is, or who carries out its orders. Whoever does answers every
//! [`ScheduleEffect::StartAttempt`] with one [`ScheduleEvent::AttemptEnded`], and every [`ScheduleEffect::SetTimer`] with at most one [`ScheduleEvent::TimerFired`].

mod automatic_retry;
mod begin;
mod descriptor_limit;
mod reconcile;
mod run_blockers;
mod run_budget;
mod settle;
mod stopping;
mod unit_table;

use std::sync::Arc;

use crate::tape::{
    Note, UnitKey,
    note::{Amendment, AttemptOutcome, Cause, RunEnded, Severity, StopMode, Verdict},
};

use self::{
    reconcile::ReconcileStep,
    run_blockers::MissingProgram,
    run_budget::RunBudget,
    unit_table::{TimerPurpose, UnitPhase, UnitTable},
};
use super::{
    governor::{self, Governor, ThrottleChange, ThrottlePolicy},
    limits::LimitObservation,
    retry::{self, RetryDecision, RetryMode, RetryPolicy},
};

/// What a failed unit means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureMode {
    /// Nothing.
    #[default]
    Continue,
    /// Nothing new starts, and what runs is stopped.
    Abort,
}

impl FailureMode {
    /// Reads the setting's value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "continue" => Some(Self::Continue),
            "abort" => Some(Self::Abort),
            _ => None,
        }
    }

    /// The setting's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Abort => "abort",
        }
    }
}

/// How a run is to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleSettings {
    /// Units that may run at once; at least 1.
    pub concurrency: u32,
    /// Units that may be starting up at once; at least 1. Start-up is what costs CPU, so cores are a good number.
    pub max_starting: u32,
    /// What a failed unit means for the others.
    pub failure_mode: FailureMode,
    /// Retries that nobody asks for.
    pub retry: RetryPolicy,
    /// What units wrote is in patches, which have to be put together once all of them have settled.
    pub integrates_patches: bool,
    /// What all attempts together may cost, in US dollars; when it is spent, nothing more starts and the run ends as
    /// `limit`. `None` for anything.
    pub budget_usd: Option<f64>,
    /// How limits of the service are met.
    pub throttle_policy: ThrottlePolicy,
}

impl ScheduleSettings {
    /// `slots` units at once on a machine of `cores`, everything else as by default.
    pub fn new(slots: u32, cores: u32) -> Self {
        Self {
            concurrency: slots,
            max_starting: cores,
            failure_mode: FailureMode::default(),
            retry: RetryPolicy::default(),
            integrates_patches: false,
            budget_usd: None,
            throttle_policy: ThrottlePolicy::default(),
        }
    }
}

/// What a person can set the slots to while the run goes on.
pub const CONCURRENCY_RANGE: std::ops::RangeInclusive<u32> = 1..=64;

/// Name of a timer. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleEvent {
    /// The run begins.
    RunStarted,
    /// An attempt is up: its agent has said what it offers.
    AttemptReady {
        /// Unit.
        unit: UnitKey,
        /// Attempt.
        attempt: u32,
    },
    /// An attempt is over.
    AttemptEnded {
        /// Unit.
        unit: UnitKey,
        /// Attempt.
        attempt: u32,
        /// How.
        verdict: Verdict,
        /// How it may be made again without anybody asking.
        repeat: RetryMode,
    },
    /// What [`ScheduleEffect::Project`] asked for has been done, or could not be.
    Projected,
    /// What came of [`ScheduleEffect::Integrate`].
    Integrated(IntegrationReport),
    /// What [`ScheduleEffect::Save`] asked for has been done.
    Saved {
        /// False if what was taken is not on the project's branch; the patches are still there.
        ok: bool,
    },
    /// A timer ran out.
    TimerFired(TimerId),
    /// A person wants a new attempt.
    RetryRequested {
        /// Unit.
        unit: UnitKey,
        /// What is to be otherwise than planned. `None` repeats what the last attempt was given, in a session of its own.
        amendment: Option<Amendment>,
    },
    /// A person wants a new attempt of every unit that failed, was stopped or ran out of turns.
    RetryFailed,
    /// A person wants a unit stopped; asked again while it still runs, killed.
    StopRequested {
        /// Unit.
        unit: UnitKey,
    },
    /// Start nothing new, let what runs end.
    DrainRequested,
    /// Start nothing new and stop what runs.
    StopAllRequested,
    /// Start nothing new and end what runs now.
    KillAllRequested,
    /// The service spoke of a usage window. Tell it before the end of the attempt that heard it.
    LimitObserved(LimitObservation),
    /// A person does not want to wait for the limit.
    LimitOverridden,
    /// What the run has cost so far. Tell it before the end of the attempt that it comes from.
    CostUpdated {
        /// In US dollars.
        usd: f64,
    },
    /// A person wants more slots or fewer: relative, so that two wishes in a row are two. Stays within [`CONCURRENCY_RANGE`]; with
    /// fewer, what runs ends by itself.
    ConcurrencyChanged {
        /// How many more.
        by: i32,
    },
}

/// Patches that have been put together, as far as they go together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntegrationReport {
    /// What became of each unit, as far as it went.
    pub results: Vec<IntegratedUnit>,
    /// False if it broke off: there is nothing to save then, and the patches are all that there is.
    pub ok: bool,
}

/// What became of the patch of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct IntegratedUnit {
    /// Unit.
    pub unit: UnitKey,
    /// The attempt that left the patch.
    pub attempt: u32,
    /// The verdict that holds from now on, where the patch was not taken.
    pub verdict: Option<Verdict>,
    /// It changes something.
    pub has_changes: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleEffect {
    /// Start an attempt.
    StartAttempt {
        /// Unit.
        unit: UnitKey,
        /// Attempt: 1 for the first, never reused.
        attempt: u32,
        /// What is otherwise than planned.
        amendment: Option<Arc<Amendment>>,
    },
    /// End a running attempt. May be followed by a firmer one.
    StopAttempt {
        /// Unit.
        unit: UnitKey,
        /// Attempt.
        attempt: u32,
        /// How firmly.
        how: StopMode,
    },
    /// Write the sources that units build on, and say [`ScheduleEvent::Projected`].
    Project,
    /// Put the patches of these attempts together, in this order, and say [`ScheduleEvent::Integrated`]. The pass alone goes on
    /// top of what the order before it put together, unless that was saved meanwhile.
    Integrate {
        /// Units and attempts, in plan order; none where only the pass is to look at what there is.
        units: Vec<(UnitKey, u32)>,
    },
    /// Put what was taken on the project's branch as one commit, and say [`ScheduleEvent::Saved`].
    Save {
        /// Units whose writes do not count, in plan order, for the commit's message.
        failed: Vec<UnitKey>,
    },
    /// Say [`ScheduleEvent::TimerFired`] later.
    SetTimer {
        /// Which.
        id: TimerId,
        /// When, from now.
        after_ms: u64,
    },
    /// Write a note on the tape.
    RecordNote {
        /// The unit and its newest attempt (0 before the first); `None` for the run itself.
        lane: Option<(UnitKey, u32)>,
        /// What.
        note: Note,
    },
    /// Nothing is left to do. A later request of a person may open the run again, and lead to another end.
    EndRun(RunEnded),
}

/// Why nothing new starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HaltReason {
    /// A person said so.
    Requested,
    /// A unit failed and the run aborts.
    UnitFailed,
    /// A limit resets too late, or never seems to.
    LimitReached,
    /// Login, credit, model or network are in the way of every unit.
    Unusable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    Planned,
    /// The sources that units build on are being written.
    Projecting,
    Running,
    /// All units have settled; their patches are being put together.
    Integrating,
    /// One more unit looks at what was put together.
    Reconciling,
    /// What was taken is being put on the branch.
    Saving,
    Ended,
}

/// The units of a run and where they stand.
#[derive(Clone, Debug)]
pub struct Schedule {
    settings: ScheduleSettings,
    board: UnitTable,
    governor: Governor,
    budget: RunBudget,
    stage: RunStage,
    /// Sources are to be written before the first unit starts.
    projects: bool,
    halt: Option<HaltReason>,
    /// Somebody wants out now: what is in patches stays there.
    is_killed: bool,
    /// The pass over what the units wrote, where one is wanted.
    reconcile: Option<ReconcileStep>,
    /// Attempts whose patches are put together and not saved yet.
    integrated_attempts: Vec<(UnitKey, u32)>,
    /// Some attempt succeeded.
    had_success: bool,
    /// Units for which there are file descriptors, once it turned out that there are not enough for all.
    descriptor_limit: Option<u32>,
    /// The agent's program could not be started.
    missing_program: Option<MissingProgram>,
}

impl Schedule {
    /// A run of `units` in this order. A key that comes twice counts once.
    pub fn new(units: Vec<UnitKey>, settings: ScheduleSettings) -> Self {
        let settings = ScheduleSettings {
            concurrency: settings.concurrency.max(1),
            max_starting: settings.max_starting.max(1),
            ..settings
        };
        let governor = Governor::new(settings.throttle_policy);
        Self {
            budget: RunBudget::new(settings.budget_usd),
            settings,
            board: UnitTable::new(units),
            governor,
            stage: RunStage::Planned,
            projects: false,
            halt: None,
            is_killed: false,
            reconcile: None,
            integrated_attempts: Vec::new(),
            had_success: false,
            descriptor_limit: None,
            missing_program: None,
        }
    }

    /// The same run without `units`, which an earlier run did: they run only when a person asks for it.
    pub fn with_reused<'a>(mut self, units: impl IntoIterator<Item = &'a UnitKey>) -> Self {
        for unit in units {
            if let Some(at) = self.board.find(unit) {
                self.board.reuse(at);
            }
        }
        self
    }

    /// The same run with patches of `units` that an earlier run left: they are put together with those of this one.
    pub fn with_prior_patches<'a>(mut self, units: impl IntoIterator<Item = &'a UnitKey>) -> Self {
        for unit in units {
            if let Some(at) = self.board.find(unit) {
                self.board.mark_unsaved(at);
            }
        }
        self
    }

    /// Takes an input and answers with orders, to be carried out in their order. Inputs about units, attempts and
    /// timers that it does not know (any more) change nothing.
    pub fn handle(&mut self, input: ScheduleEvent) -> Vec<ScheduleEffect> {
        let mut orders = Vec::new();
        match input {
            ScheduleEvent::RunStarted => self.begin(&mut orders),
            ScheduleEvent::Projected => self.projected(),
            ScheduleEvent::AttemptReady { unit, attempt } => {
                if let Some((at, _)) = self.board.in_flight(&unit, attempt) {
                    self.board.mark_ready(&unit, attempt);
                    self.handle_program_started(at, &mut orders);
                }
            }
            ScheduleEvent::AttemptEnded { unit, attempt, verdict, repeat } => {
                self.handle_attempt_end(&unit, attempt, &verdict, repeat, &mut orders);
            }
            ScheduleEvent::Integrated(together) => self.handle_integrated(together, &mut orders),
            ScheduleEvent::Saved { ok } => self.handle_saved(ok, &mut orders),
            ScheduleEvent::TimerFired(id) => self.handle_timer(id, &mut orders),
            ScheduleEvent::RetryRequested { unit, amendment } => {
                self.handle_retry_request(&unit, amendment, &mut orders)
            }
            ScheduleEvent::RetryFailed => self.retry_failed(&mut orders),
            ScheduleEvent::StopRequested { unit } => self.handle_stop_request(&unit, &mut orders),
            ScheduleEvent::DrainRequested => self.stop_run(StopMode::Drain, &mut orders),
            ScheduleEvent::StopAllRequested => self.stop_run(StopMode::Stop, &mut orders),
            ScheduleEvent::KillAllRequested => self.stop_run(StopMode::Kill, &mut orders),
            ScheduleEvent::LimitObserved(seen) => {
                let change = self.governor.observe(&seen);
                self.apply_throttle_change(change, &seen.name, &mut orders);
            }
            ScheduleEvent::LimitOverridden => self.resume_after_limit(&mut orders),
            ScheduleEvent::CostUpdated { usd } => self.budget.set_spent(usd),
            ScheduleEvent::ConcurrencyChanged { by } => self.change_concurrency(by, &mut orders),
        }
        self.start_queued_units(&mut orders);
        self.settle_if_idle(&mut orders);
        orders
    }

    /// Attempts that run now, with their units.
    pub fn in_flight(&self) -> impl Iterator<Item = (&UnitKey, u32)> {
        self.board.units().iter().filter(|unit| unit.is_in_flight()).map(|unit| (&unit.key, unit.attempts))
    }

    /// True once there is nothing to do until a person asks.
    pub fn is_finished(&self) -> bool {
        self.stage == RunStage::Ended
    }

    fn handle_attempt_end(
        &mut self,
        key: &UnitKey,
        attempt: u32,
        verdict: &Verdict,
        repeat: RetryMode,
        orders: &mut Vec<ScheduleEffect>,
    ) {
        let Some((at, asked_to_stop)) = self.board.in_flight(key, attempt) else { return };
        self.board.record_outcome(at, verdict.outcome, verdict.stop);
        if verdict.outcome == AttemptOutcome::Succeeded {
            self.handle_program_started(at, orders);
            self.had_success = true;
            let change = self.governor.record_success();
            self.apply_throttle_change(change, governor::REQUEST_RATE_LIMIT, orders);
        }
        let next = self.decide_retry(at, verdict, repeat, asked_to_stop, orders);
        let given_up = next == RetryDecision::AwaitLimit
            && self.board.count_limit_attempt(at) >= self.settings.throttle_policy.max_limit_attempts;
        if next == RetryDecision::AwaitLimit && !given_up {
            let change = self.governor.record_limit_hit();
            self.apply_throttle_change(change, verdict.cause.label(), orders);
        }
        match next {
            // Whoever asked to stop did not ask for another try.
            _ if asked_to_stop || self.halt.is_some() => self.board.set_phase(at, UnitPhase::Settled),
            RetryDecision::AwaitLimit if given_up => {
                self.board.set_phase(at, UnitPhase::Settled);
                self.halt_for_limit(at, orders);
            }
            RetryDecision::AwaitProgram if self.wait_for_program(at, &verdict.cause, orders) => {}
            RetryDecision::AwaitProgram | RetryDecision::Final => {
                self.board.set_phase(at, UnitPhase::Settled);
                self.halt_if_unusable(at, verdict, orders);
                // The pass is no unit of the ingest: what the others wrote stands without it.
                if !self.is_reconcile_unit(key) {
                    self.abort_after(key, verdict.outcome, orders);
                }
            }
            RetryDecision::Retry { delay_ms } => {
                let timer = self.board.new_timer(TimerPurpose::Retry(at));
                self.board.spend_retry(at);
                self.board.set_phase(at, UnitPhase::RetryPending(timer));
                self.push_retry_note(at, delay_ms, &verdict.cause, orders);
                orders.push(ScheduleEffect::SetTimer { id: timer, after_ms: delay_ms });
            }
            RetryDecision::AwaitLimit => {
                self.board.set_phase(at, UnitPhase::Queued);
                self.push_retry_note(at, self.governor.wait_ms(), &verdict.cause, orders);
            }
            RetryDecision::AwaitCapacity => self.wait_for_descriptors(at, &verdict.cause, orders),
        }
        self.finish_program_trial(at);
    }

    fn abort_after(&mut self, key: &UnitKey, outcome: AttemptOutcome, orders: &mut Vec<ScheduleEffect>) {
        if outcome != AttemptOutcome::Failed || self.settings.failure_mode == FailureMode::Continue {
            return;
        }
        push_message(Severity::Error, format!("{key} failed, and the failure mode is abort: the run stops"), orders);
        self.halt(HaltReason::UnitFailed, orders);
        self.stop_in_flight(StopMode::Stop, orders);
    }

    fn handle_timer(&mut self, id: TimerId, orders: &mut Vec<ScheduleEffect>) {
        match self.board.take_timer(id) {
            Some(TimerPurpose::Retry(at)) => self.board.set_phase(at, UnitPhase::Queued),
            Some(TimerPurpose::Limit) => self.resume_after_limit(orders),
            Some(TimerPurpose::Program) => self.make_trial_due_after_timer(id),
            None => {}
        }
    }

    fn handle_retry_request(&mut self, key: &UnitKey, amendment: Option<Amendment>, orders: &mut Vec<ScheduleEffect>) {
        let Some(at) = self.board.find(key) else { return };
        let unit = &self.board.units()[at];
        match unit.phase {
            // It runs anyway; only what it is told may change.
            UnitPhase::Queued | UnitPhase::ReconcilePending if amendment.is_none() => {}
            UnitPhase::InFlight { .. } => {
                push_message(Severity::Warning, format!("{key} still runs: stop it before you retry it"), orders);
            }
            _ if self.is_ending() => push_ending_message(orders),
            _ if self.stop_if_over_budget(orders) => {}
            UnitPhase::Queued | UnitPhase::RetryPending(_) | UnitPhase::ReconcilePending | UnitPhase::Settled => {
                self.queue_again(at, amendment, orders)
            }
        }
    }

    fn retry_failed(&mut self, orders: &mut Vec<ScheduleEffect>) {
        let mut failed = self.board.unfinished_units();
        // Units that had no part in what cut the run short were to be run all the same.
        if !self.board.has_failed() || matches!(self.halt, Some(HaltReason::LimitReached | HaltReason::Unusable)) {
            failed.extend(self.board.unattempted_units());
        }
        failed.extend(self.unattempted_reconcile());
        failed.sort_unstable();
        failed.dedup();
        if self.is_ending() && !failed.is_empty() {
            return push_ending_message(orders);
        }
        // Saving costs nothing.
        if !failed.is_empty() && self.stop_if_over_budget(orders) {
            failed.clear();
        }
        if failed.is_empty() {
            self.retry_save();
        }
        for at in failed {
            self.queue_again(at, None, orders);
        }
    }

    /// Nothing may start any more, whoever asks; says so.
    fn stop_if_over_budget(&self, orders: &mut Vec<ScheduleEffect>) -> bool {
        let empty = self.budget.exhausted_message();
        let is_broke = empty.is_some();
        if let Some(sentence) = empty {
            push_message(Severity::Warning, format!("{sentence}; resume the run with a budget of its own"), orders);
        }
        is_broke
    }

    fn queue_again(&mut self, at: usize, amendment: Option<Amendment>, orders: &mut Vec<ScheduleEffect>) {
        let phase = self.phase_for(at);
        self.reopen();
        self.board.restart(at, amendment, phase);
        let unit = &self.board.units()[at];
        let amendment = unit.amendment.as_deref().cloned();
        orders.push(unit.note_effect(Note::RetryRequested { next: unit.attempts + 1, amendment }));
    }

    /// Nothing new may start, and something still runs.
    fn is_ending(&self) -> bool {
        self.halt.is_some() && self.stage != RunStage::Ended
    }

    /// Nothing starts any more, so nothing waits for a limit either. The first reason stays.
    fn halt(&mut self, why: HaltReason, orders: &mut Vec<ScheduleEffect>) {
        self.halt.get_or_insert(why);
        self.missing_program = None;
        self.board.settle_pending();
        self.resume_after_limit(orders);
    }

    fn apply_throttle_change(&mut self, change: ThrottleChange, limit: &str, orders: &mut Vec<ScheduleEffect>) {
        match change {
            ThrottleChange::Unchanged => {}
            ThrottleChange::Throttled(slots) => push_throttle_note(Some(slots), limit, orders),
            ThrottleChange::Restored => self.push_restored_note(limit, orders),
            // Nothing starts anyway, and a later request of a person is worth a try.
            ThrottleChange::Paused { .. } if self.halt.is_some() => self.governor.end_pause(),
            ThrottleChange::ResetTooLate if self.halt.is_some() => {}
            ThrottleChange::ResetTooLate => {
                let text = format!("{limit} resets too late to wait for: the run ends and can be resumed");
                push_message(Severity::Error, text, orders);
                self.halt(HaltReason::LimitReached, orders);
            }
            ThrottleChange::Paused { wait_ms, until } => {
                let id = self.board.new_limit_timer();
                let note = Note::LimitPaused { until, limit: limit.to_owned(), wait_ms: Some(wait_ms) };
                orders.push(ScheduleEffect::RecordNote { lane: None, note });
                orders.push(ScheduleEffect::SetTimer { id, after_ms: wait_ms });
            }
        }
    }

    fn resume_after_limit(&mut self, orders: &mut Vec<ScheduleEffect>) {
        self.governor.end_pause();
        if self.board.drop_limit_timer() {
            orders.push(ScheduleEffect::RecordNote { lane: None, note: Note::LimitLifted });
        }
    }

    fn change_concurrency(&mut self, by: i32, orders: &mut Vec<ScheduleEffect>) {
        let now = self.settings.concurrency;
        // A run that was started with more than can be set here may keep them, but gets no more.
        let slots = now.saturating_add_signed(by).clamp(*CONCURRENCY_RANGE.start(), now.max(*CONCURRENCY_RANGE.end()));
        if slots != now {
            self.settings.concurrency = slots;
            orders.push(ScheduleEffect::RecordNote { lane: None, note: Note::ConcurrencyChanged { slots } });
        }
    }

    fn start_queued_units(&mut self, orders: &mut Vec<ScheduleEffect>) {
        if self.stage == RunStage::Running
            && self.halt.is_none()
            && self.board.has_pending()
            && let Some(sentence) = self.budget.exhausted_message()
        {
            push_message(Severity::Error, format!("{sentence}; the run can be resumed"), orders);
            self.halt(HaltReason::LimitReached, orders);
        }
        self.cancel_unaffordable_reconcile(orders);
        let slots = self.concurrency();
        while matches!(self.stage, RunStage::Running | RunStage::Reconciling)
            && self.halt.is_none()
            && !self.governor.is_paused()
            && self.may_start_attempt()
            && self.board.in_flight_count() < slots
            && self.board.starting_count() < self.settings.max_starting
        {
            // Whoever asks for another try meanwhile waits until all of this is saved.
            let start =
                if self.stage == RunStage::Reconciling { self.start_reconcile() } else { self.board.start_next() };
            let Some(start) = start else { return };
            self.record_start(&start);
            orders.push(start);
        }
    }

    fn push_retry_note(&self, at: usize, delay_ms: u64, cause: &Cause, orders: &mut Vec<ScheduleEffect>) {
        let unit = &self.board.units()[at];
        let note = Note::RetryScheduled { next: unit.attempts + 1, delay_ms, cause: cause.clone() };
        orders.push(unit.note_effect(note));
    }
}

fn push_throttle_note(slots: Option<u32>, limit: &str, orders: &mut Vec<ScheduleEffect>) {
    orders.push(ScheduleEffect::RecordNote { lane: None, note: Note::Throttled { slots, limit: limit.to_owned() } });
}

fn push_ending_message(orders: &mut Vec<ScheduleEffect>) {
    push_message(Severity::Warning, "the run is ending: retry once it has ended".to_owned(), orders);
}

fn push_message(level: Severity, text: String, orders: &mut Vec<ScheduleEffect>) {
    orders.push(ScheduleEffect::RecordNote { lane: None, note: Note::Message { level, text } });
}

#[cfg(test)]
mod tests;
