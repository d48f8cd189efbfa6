//! The schedule: a state machine over the units of a run. Its inputs are events, its outputs are effects; timers are
//! effects, too.
//!
//! The module must not depend on how a unit runs, on clocks, or on the caller that performs the effects. The caller
//! answers every [`ScheduleEffect::StartAttempt`] with one [`ScheduleEvent::AttemptEnded`], and every
//! [`ScheduleEffect::SetTimer`] with at most one [`ScheduleEvent::TimerFired`].

mod ahead;
mod automatic_retry;
mod begin;
mod descriptor_limit;
mod modes;
mod person_wait;
mod reconcile;
mod request;
mod requested_retry;
mod review;
mod run_blockers;
mod run_budget;
mod settle;
mod stopping;
mod throttle;
mod unit_table;
mod worker_wait;

use std::{collections::BTreeMap, sync::Arc};

use crate::tape::note::{
    Amendment, AttemptOutcome, RunEnded, Severity, StopMode, Verdict, VerdictCause,
};
use crate::{
    control::{AgentRequest, RunCommand},
    tape::{Millis, Note, UnitKey},
};

use self::{
    ahead::AheadProgress,
    begin::Projection,
    person_wait::PersonState,
    reconcile::ReconcileStep,
    run_blockers::{RefusalState, RunBlockers},
    run_budget::RunBudget,
    unit_table::{TimerPurpose, UnitPhase, UnitTable},
};
pub use self::{
    modes::{FailureMode, ReviewMode},
    person_wait::PersonWait,
};
use super::{
    governor::{self, Governor, ThrottlePolicy},
    limits::LimitObservation,
    retry::{self, RetryDecision, RetryMode, RetryPolicy},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleSettings {
    /// Maximum number of units that run on this machine; at least 1 without workers.
    pub concurrency: u32,
    /// Number of units that run on workers in addition; `None` if the run has no workers.
    pub worker_slots: Option<u32>,
    /// How long a run without any place for its units waits for workers, in milliseconds.
    pub worker_wait_ms: u64,
    /// Maximum number of units that are starting; at least 1. Starting costs CPU, so the number of cores is a good
    /// value.
    pub max_starting: u32,
    /// How a failed unit affects the others.
    pub failure_mode: FailureMode,
    /// Policy of automatic retries.
    pub retry: RetryPolicy,
    /// Attempts write patches, which are integrated once all units have settled.
    pub integrates_patches: bool,
    /// Patches of the first units of the plan are integrated while others still run.
    pub integrates_ahead: bool,
    /// Patches are integrated and saved before further units start, so that these units start from the result.
    pub saves_between_units: bool,
    /// Maximum cost of all attempts together, in US dollars. When it is spent, nothing more starts and the run ends as
    /// `limit`. `None` for no limit.
    pub budget_usd: Option<f64>,
    /// How the run reacts to limits of the service.
    pub throttle_policy: ThrottlePolicy,
    /// A unit that has used its turns waits for a decision of a person before its result is used.
    pub waits_at_turn_limit: bool,
    /// The integrated patches wait for the review of a person before they are saved.
    pub reviews: ReviewMode,
    /// The units are sessions: a message to one that does not run starts its next turn.
    pub is_session: bool,
}

impl ScheduleSettings {
    /// Settings for `slots` concurrent units on a machine with `cores` cores; everything else has its default.
    pub fn new(slots: u32, cores: u32) -> Self {
        Self {
            concurrency: slots,
            worker_slots: None,
            worker_wait_ms: 0,
            max_starting: cores,
            failure_mode: FailureMode::default(),
            retry: RetryPolicy::default(),
            integrates_patches: false,
            integrates_ahead: false,
            saves_between_units: false,
            budget_usd: None,
            throttle_policy: ThrottlePolicy::default(),
            waits_at_turn_limit: false,
            reviews: ReviewMode::default(),
            is_session: false,
        }
    }
}

/// Id of a timer. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u64);

#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleEvent {
    RunStarted,
    /// An attempt has started: its agent has announced its tools.
    AttemptReady {
        unit: UnitKey,
        attempt: u32,
    },
    AttemptEnded {
        unit: UnitKey,
        attempt: u32,
        verdict: Verdict,
        /// How the attempt may be repeated automatically.
        repeat: RetryMode,
    },
    /// [`ScheduleEffect::Project`] is done or has failed.
    Projected {
        /// They are in patches and in no commit.
        is_unsaved: bool,
    },
    /// The result of [`ScheduleEffect::Integrate`].
    Integrated(IntegrationReport),
    /// The result of [`ScheduleEffect::RequestReview`].
    ReviewRequested {
        /// False if nothing has changed, so that there is nothing to review.
        waits: bool,
    },
    /// A person ended the review.
    ReviewFinished {
        /// Units that make their changes again, with the feedback for each. If there are none, the result is saved.
        sent_back: Vec<(UnitKey, Amendment)>,
    },
    /// The result of [`ScheduleEffect::Save`], if it failed and the review is open again.
    ReviewReopened,
    /// The result of [`ScheduleEffect::Save`], if files of the user block a part of a reviewed result.
    PartlySaved {
        /// Units that have changes which are not on the branch.
        left: Vec<UnitKey>,
    },
    /// The result of [`ScheduleEffect::Save`].
    Saved {
        /// False if the integrated patches are not on the project's branch; the patches are kept.
        ok: bool,
    },
    TimerFired(TimerId),
    /// A command of a person. Those about calls, changes and workers have no effect on the schedule.
    Requested(RunCommand),
    /// The service reported a usage window. Send this before the end of the attempt that received it.
    LimitObserved(LimitObservation),
    /// Cost of the run so far, in US dollars. Send this before the end of the attempt that caused it.
    CostUpdated {
        usd: f64,
    },
    /// Workers joined or left.
    WorkerSlotsChanged {
        /// The slots of all workers that units can use.
        slots: u32,
        /// Why there is no worker and none can come.
        lack: Option<String>,
    },
    /// An agent announced its release.
    ReleaseSeen {
        release: String,
        /// The worker that it runs on; `None` for this machine.
        worker: Option<String>,
    },
    /// The run has waited for a person for this long.
    PersonWaitExpired(PersonWait, Millis),
}

/// Result of one integration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntegrationReport {
    /// Results of the units that were processed.
    pub results: Vec<IntegratedUnit>,
    /// False if the integration failed: there is nothing to save, and all results are still in patches.
    pub ok: bool,
}

/// Result of integrating the patch of one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct IntegratedUnit {
    pub unit: UnitKey,
    /// The attempt that wrote the patch.
    pub attempt: u32,
    /// The new verdict, if the patch could not be integrated.
    pub verdict: Option<Verdict>,
    pub has_changes: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleEffect {
    StartAttempt {
        unit: UnitKey,
        /// Number of the attempt: 1 for the first, never reused.
        attempt: u32,
        /// Changes to the planned attempt.
        amendment: Option<Arc<Amendment>>,
    },
    /// End a running attempt. A firmer request may follow.
    StopAttempt {
        unit: UnitKey,
        attempt: u32,
        how: StopMode,
    },
    /// Pass a message on to the agent of a running attempt.
    MessageAttempt {
        unit: UnitKey,
        attempt: u32,
        text: String,
    },
    /// Pass a request of a person on to the agent of a running session.
    RequestAttempt {
        unit: UnitKey,
        attempt: u32,
        request: AgentRequest,
    },
    /// Write the sources that units build on, then send [`ScheduleEvent::Projected`].
    Project,
    /// Integrate the patches of these attempts, in this order, then send [`ScheduleEvent::Integrated`]. The reconcile
    /// step is applied on top of the previous integration, unless that was saved meanwhile.
    Integrate {
        /// Units and attempts in plan order. Empty if only the reconcile step has anything to review.
        units: Vec<(UnitKey, u32)>,
    },
    /// Integrate these patches while units run: they are the next in plan order after the first `kept` of those that
    /// were announced before. The others, which an earlier unit comes before again, are taken back. Nothing is
    /// recorded about single patches; [`ScheduleEffect::Integrate`] follows, with the whole list.
    IntegrateAhead {
        kept: usize,
        units: Vec<(UnitKey, u32)>,
    },
    /// Record what the integration changed, and wait for decisions about it; then send
    /// [`ScheduleEvent::ReviewRequested`].
    RequestReview,
    /// Commit the integrated result to the project's branch, then send [`ScheduleEvent::Saved`].
    Save {
        /// Units whose writes do not count, in plan order, for the commit message.
        failed: Vec<UnitKey>,
    },
    SetTimer {
        id: TimerId,
        after_ms: u64,
    },
    /// Write a note to the tape.
    RecordNote {
        /// The unit and its newest attempt (0 before the first); `None` for the run itself.
        attempt: Option<(UnitKey, u32)>,
        note: Note,
    },
    /// Nothing remains to be done. A later request may reopen the run, which then ends again.
    EndRun(RunEnded),
}

/// Why nothing new starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HaltReason {
    /// A person requested it.
    Requested,
    /// A unit failed and the failure mode is abort.
    UnitFailed,
    /// A limit resets too late, or units hit it repeatedly.
    LimitReached,
    /// Every unit would fail because of login, credit, model or network.
    Unusable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    Planned,
    /// The sources that units build on are being written.
    Projecting,
    Running,
    /// All units have settled; their patches are being integrated.
    Integrating,
    /// The reconcile step reviews the integrated result.
    Reconciling,
    /// The changes for a review are being recorded.
    RequestingReview,
    /// The integrated result waits for a review.
    Reviewing,
    /// The integrated result is being committed to the branch.
    Saving,
    /// The reviewed result is being committed to the branch.
    SavingReviewed,
    Ended,
}

/// The units of a run and their states.
#[derive(Clone, Debug)]
pub struct Schedule {
    settings: ScheduleSettings,
    table: UnitTable,
    governor: Governor,
    budget: RunBudget,
    stage: RunStage,
    projection: Projection,
    halt: Option<HaltReason>,
    /// Immediate stop requested; patches are kept unmerged.
    is_killed: bool,
    /// The reconcile step, if the run has one.
    reconcile: Option<ReconcileStep>,
    saving: SaveProgress,
    had_success: bool,
    /// Maximum number of units that file descriptors allow, once they have run out.
    descriptor_limit: Option<u32>,
    person: PersonState,
    blockers: RunBlockers,
    releases: AgentReleases,
}

/// The releases of the agents.
#[derive(Clone, Debug, Default)]
struct AgentReleases {
    /// The newest release on each worker, and on this machine (`None`).
    newest: BTreeMap<Option<String>, String>,
    /// Number of changes that are reported.
    changes: u32,
}

/// What of the run is saved.
#[derive(Clone, Debug, Default)]
struct SaveProgress {
    /// What is integrated while units run.
    ahead: AheadProgress,
    /// Attempts whose patches are integrated and not saved yet.
    integrated_attempts: Vec<(UnitKey, u32)>,
    /// Saving has failed, so it is tried once more at the end only.
    has_failed: bool,
}

impl Schedule {
    /// A run of `units` in this order. Duplicate keys count once.
    pub fn new(units: Vec<UnitKey>, settings: ScheduleSettings) -> Self {
        let settings = ScheduleSettings {
            concurrency: settings
                .concurrency
                .max(u32::from(settings.worker_slots.is_none())),
            max_starting: settings.max_starting.max(1),
            ..settings
        };
        let governor = Governor::new(settings.throttle_policy);
        Self {
            budget: RunBudget::new(settings.budget_usd),
            settings,
            table: UnitTable::new(units),
            governor,
            stage: RunStage::Planned,
            projection: Projection::default(),
            halt: None,
            is_killed: false,
            reconcile: None,
            saving: SaveProgress::default(),
            had_success: false,
            descriptor_limit: None,
            person: PersonState::default(),
            blockers: RunBlockers::default(),
            releases: AgentReleases::default(),
        }
    }

    /// Gives the first attempts at all units this feedback.
    pub fn with_feedback(mut self, feedback: &str) -> Self {
        let amendment = Arc::new(Amendment {
            feedback: Some(feedback.to_owned()),
            ..Amendment::default()
        });
        self.table.amend_all(&amendment);
        self
    }

    /// Marks `units` as reused from a prior run: they run only when a person requests it.
    pub fn with_reused<'a>(mut self, units: impl IntoIterator<Item = &'a UnitKey>) -> Self {
        for unit in units {
            if let Some(at) = self.table.find(unit) {
                self.table.reuse(at);
            }
        }
        self
    }

    /// The first attempts at these units continue sessions of a prior run.
    pub fn with_sessions<'a>(
        mut self,
        sessions: impl IntoIterator<Item = (&'a UnitKey, &'a str)>,
    ) -> Self {
        for (unit, session) in sessions {
            if let Some(at) = self.table.find(unit) {
                self.table.set_resume_session(at, Some(session.to_owned()));
            }
        }
        self
    }

    /// Marks the patches that a prior run left for `units`: they are integrated together with those of this run.
    pub fn with_prior_patches<'a>(mut self, units: impl IntoIterator<Item = &'a UnitKey>) -> Self {
        for unit in units {
            if let Some(at) = self.table.find(unit) {
                self.table.mark_unsaved(at);
            }
        }
        self
    }

    /// The units, with the reconcile step if the run has one.
    pub fn unit_keys(&self) -> impl Iterator<Item = &UnitKey> {
        self.table
            .keys()
            .chain(self.reconcile.as_ref().map(|step| &step.key))
    }

    /// True if there is nothing to do until a person requests it.
    pub fn is_finished(&self) -> bool {
        self.stage == RunStage::Ended
    }

    /// Handles an event and returns the effects to perform, in this order. Events about unknown units, attempts and
    /// timers change nothing.
    pub fn handle(&mut self, input: ScheduleEvent) -> Vec<ScheduleEffect> {
        let mut effects = Vec::new();
        match input {
            ScheduleEvent::RunStarted => self.begin(&mut effects),
            ScheduleEvent::Projected { is_unsaved } => self.projected(is_unsaved),
            ScheduleEvent::AttemptReady { unit, attempt } => {
                if let Some((at, _)) = self.table.find_running_attempt(&unit, attempt) {
                    self.table.mark_ready(&unit, attempt);
                    self.handle_program_started(at, &mut effects);
                }
            }
            ScheduleEvent::AttemptEnded {
                unit,
                attempt,
                verdict,
                repeat,
            } => {
                self.handle_attempt_end(&unit, attempt, &verdict, repeat, &mut effects);
            }
            ScheduleEvent::Integrated(together) => self.handle_integrated(together, &mut effects),
            ScheduleEvent::ReviewRequested { waits } => {
                self.handle_review_requested(waits, &mut effects)
            }
            ScheduleEvent::ReviewFinished { sent_back } => {
                self.finish_review(sent_back, &mut effects)
            }
            ScheduleEvent::ReviewReopened => self.reopen_review(),
            ScheduleEvent::PartlySaved { left } => self.handle_partly_saved(&left, &mut effects),
            ScheduleEvent::Saved { ok } => self.handle_saved(ok, &mut effects),
            ScheduleEvent::TimerFired(id) => self.handle_timer(id, &mut effects),
            ScheduleEvent::Requested(command) => self.carry_out(command, &mut effects),
            ScheduleEvent::LimitObserved(seen) => {
                let change = self.governor.observe(&seen);
                self.apply_throttle_change(change, &seen.name, &mut effects);
            }
            ScheduleEvent::CostUpdated { usd } => self.budget.set_spent(usd),
            ScheduleEvent::WorkerSlotsChanged { slots, lack } => self.set_worker_slots(slots, lack),
            ScheduleEvent::ReleaseSeen { release, worker } => {
                self.record_release(release, worker, &mut effects)
            }
            ScheduleEvent::PersonWaitExpired(wait, limit) => {
                self.end_person_wait(wait, limit, &mut effects)
            }
        }
        self.update_review(&mut effects);
        self.update_worker_wait(&mut effects);
        self.start_queued_units(&mut effects);
        self.pass_queued_messages(&mut effects);
        self.settle_if_idle(&mut effects);
        self.integrate_ahead(&mut effects);
        effects
    }

    /// Records the verdict of an attempt, and retries, delays or settles its unit.
    fn handle_attempt_end(
        &mut self,
        key: &UnitKey,
        attempt: u32,
        verdict: &Verdict,
        repeat: RetryMode,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        let Some((at, asked_to_stop)) = self.table.find_running_attempt(key, attempt) else {
            return;
        };
        self.table.record_outcome(at, verdict.outcome, verdict.stop);
        let is_refused =
            verdict.cause == VerdictCause::StartFailed && verdict.outcome == AttemptOutcome::Failed;
        if is_refused {
            self.table.mark_untried(at);
        } else {
            self.blockers.refusal = RefusalState::None;
        }
        self.person.is_missing |= verdict.cause == VerdictCause::ApprovalTimeout;
        if verdict.outcome == AttemptOutcome::Succeeded {
            self.handle_program_started(at, effects);
            self.had_success = true;
            let change = self.governor.record_success();
            self.apply_throttle_change(change, governor::REQUEST_RATE_LIMIT, effects);
        }
        let next = self.decide_retry(at, verdict, repeat, asked_to_stop, effects);
        let given_up = next == RetryDecision::AwaitLimit
            && self.table.count_limit_attempt(at)
                >= self.settings.throttle_policy.max_limit_attempts;
        if next == RetryDecision::AwaitLimit && !given_up {
            let change = self.governor.record_limit_hit();
            self.apply_throttle_change(change, verdict.cause.label(), effects);
        }
        // If no other place comes, the unit has not failed.
        if next == RetryDecision::Elsewhere && verdict.cause == VerdictCause::WorkerLost {
            self.table.mark_untried(at);
        }
        match next {
            // A stop request excludes a retry.
            _ if asked_to_stop || self.halt.is_some() => {
                self.table.set_phase(at, UnitPhase::Settled)
            }
            RetryDecision::AwaitLimit if given_up => {
                self.table.set_phase(at, UnitPhase::Settled);
                self.halt_for_limit(at, effects);
            }
            RetryDecision::AwaitProgram if self.wait_for_program(at, &verdict.cause, effects) => {}
            RetryDecision::AwaitProgram | RetryDecision::Final => {
                self.table.set_phase(at, UnitPhase::Settled);
                self.halt_if_unusable(at, verdict, effects);
                // The reconcile step does not belong to the ingest: the writes of the units are valid without it. A
                // refused start does not count as a failure of its unit.
                if !self.is_reconcile_unit(key) && !is_refused {
                    self.abort_after(key, verdict.outcome, effects);
                }
            }
            RetryDecision::Retry { delay_ms } => {
                let timer = self.table.new_timer(TimerPurpose::Retry(at));
                self.table.spend_retry(at);
                self.table.set_phase(at, UnitPhase::RetryPending(timer));
                self.push_retry_note(at, delay_ms, &verdict.cause, effects);
                effects.push(ScheduleEffect::SetTimer {
                    id: timer,
                    after_ms: delay_ms,
                });
            }
            RetryDecision::AwaitLimit => {
                self.table.set_phase(at, UnitPhase::Queued);
                self.push_retry_note(at, self.governor.wait_ms(), &verdict.cause, effects);
            }
            RetryDecision::Elsewhere => {
                self.table.set_phase(at, UnitPhase::Queued);
                self.push_retry_note(at, 0, &verdict.cause, effects);
            }
            RetryDecision::AwaitCapacity => self.wait_for_descriptors(at, &verdict.cause, effects),
        }
        self.finish_program_trial(at);
    }

    fn abort_after(
        &mut self,
        key: &UnitKey,
        outcome: AttemptOutcome,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        if outcome != AttemptOutcome::Failed || self.settings.failure_mode == FailureMode::Continue
        {
            return;
        }
        push_message(
            Severity::Error,
            format!("{key} failed, and the failure mode is abort: the run stops"),
            effects,
        );
        self.halt(HaltReason::UnitFailed, effects);
        self.stop_in_flight(StopMode::Stop, effects);
    }

    fn handle_timer(&mut self, id: TimerId, effects: &mut Vec<ScheduleEffect>) {
        match self.table.take_timer(id) {
            Some(TimerPurpose::Retry(at)) => self.table.set_phase(at, UnitPhase::Queued),
            Some(TimerPurpose::Limit) => self.resume_after_limit(effects),
            Some(TimerPurpose::Program) => self.make_trial_due_after_timer(id),
            Some(TimerPurpose::Refusal) => self.end_refusal(id),
            Some(TimerPurpose::Workers) => self.handle_worker_timer(id, effects),
            None => {}
        }
    }

    /// Nothing new may start, and something still runs.
    fn is_ending(&self) -> bool {
        self.halt.is_some() && self.stage != RunStage::Ended
    }

    /// Stops starting units, and stops waiting for a limit. Keeps the first reason.
    fn halt(&mut self, why: HaltReason, effects: &mut Vec<ScheduleEffect>) {
        self.halt.get_or_insert(why);
        self.blockers.missing_program = None;
        self.table.settle_pending();
        self.resume_after_limit(effects);
    }

    fn start_queued_units(&mut self, effects: &mut Vec<ScheduleEffect>) {
        if self.stage == RunStage::Running
            && self.halt.is_none()
            && self.table.has_pending()
            && let Some(sentence) = self.budget.exhausted_message()
        {
            push_message(
                Severity::Error,
                format!("{sentence}; the run can be resumed"),
                effects,
            );
            self.halt(HaltReason::LimitReached, effects);
        }
        self.cancel_unaffordable_reconcile(effects);
        let slots = self.concurrency();
        while matches!(self.stage, RunStage::Running | RunStage::Reconciling)
            && self.halt.is_none()
            && !self.governor.is_paused()
            && !self.person.is_paused
            && !self.must_save_first()
            && self.may_start_attempt()
            && self.table.in_flight_count() < slots
            && self.table.starting_count() < self.max_starting()
        {
            // Attempts that are requested meanwhile wait until the result is saved.
            let start = if self.stage == RunStage::Reconciling {
                self.start_reconcile()
            } else {
                self.table.start_next()
            };
            let Some(start) = start else { return };
            self.record_start(&start);
            effects.push(start);
        }
    }
}

fn push_throttle_note(slots: Option<u32>, limit: &str, effects: &mut Vec<ScheduleEffect>) {
    effects.push(ScheduleEffect::RecordNote {
        attempt: None,
        note: Note::Throttled {
            slots,
            limit: limit.to_owned(),
        },
    });
}

fn push_ending_message(effects: &mut Vec<ScheduleEffect>) {
    push_message(
        Severity::Warning,
        "the run is ending: retry once it has ended".to_owned(),
        effects,
    );
}

fn push_message(level: Severity, text: String, effects: &mut Vec<ScheduleEffect>) {
    effects.push(ScheduleEffect::RecordNote {
        attempt: None,
        note: Note::Message { level, text },
    });
}

#[cfg(test)]
mod tests;
