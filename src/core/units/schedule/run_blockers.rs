//! Conditions that prevent every unit from running, so that nothing more starts.
//!
//! If the agent's program is missing during a run, for example while it is updated, or refuses to start, nothing starts
//! for a while, and then one unit tests whether it is available. Failed starts do not count as retries. All other
//! conditions end the run.

use super::{
    HaltReason, Schedule, ScheduleEffect, TimerId, UnitPhase, push_message, retry,
    unit_table::TimerPurpose, worker_wait::WorkerWaitState,
};
use crate::tape::note::{AttemptOutcome, Severity, Verdict, VerdictCause};

/// Waits before each trial, in milliseconds; about 40 s in total. An update takes about 10 s.
const WAITS_MS: [u64; 6] = [1_000, 2_000, 4_000, 8_000, 10_000, 15_000];

/// How long a trial after a refused start must run until another refusal counts as another fault, in milliseconds.
const REFUSAL_WINDOW_MS: u64 = 30_000;

/// Why nothing starts for now.
#[derive(Clone, Debug, Default)]
pub(super) struct RunBlockers {
    /// Set while the agent's program cannot be started.
    pub(super) missing_program: Option<MissingProgram>,
    pub(super) refusal: RefusalState,
    pub(super) worker_wait: WorkerWaitState,
    /// Why no worker can come.
    pub(super) worker_lack: Option<String>,
}

/// What the run knows about refused starts. Each fault is retried once: other processes of Claude Code write its settings,
/// and a file that is damaged for longer needs a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RefusalState {
    #[default]
    None,
    /// The start is tried again, or was; another refusal is the same fault. A process that becomes ready may still refuse.
    Retried,
    /// The trial, this attempt at the unit at this index, has become ready. The fault is over when the timer fires.
    Probation(TimerId, (usize, u32)),
    /// The fault is over, unless the trial itself is still refused.
    Over((usize, u32)),
}

/// State while the agent's program is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct MissingProgram {
    tries: usize,
    state: MissingProgramState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingProgramState {
    /// Nothing starts until this timer fires.
    Waiting(TimerId),
    /// The next unit to start is the trial.
    Due,
    /// This unit is the trial.
    Trying(usize),
}

impl Schedule {
    /// Handles a unit that could not start because the program is missing. Returns false once all waits are used.
    pub(super) fn wait_for_program(
        &mut self,
        at: usize,
        cause: &VerdictCause,
        effects: &mut Vec<ScheduleEffect>,
    ) -> bool {
        let tries = match self.blockers.missing_program {
            // This unit started before the trial, together with the unit that found the program missing.
            Some(MissingProgram { tries, state }) if state != MissingProgramState::Trying(at) => {
                self.table.set_phase(at, UnitPhase::Queued);
                self.push_retry_note(at, WAITS_MS[tries - 1], cause, effects);
                return true;
            }
            Some(MissingProgram { tries, .. }) => tries,
            None => 0,
        };
        let is_refused = *cause == VerdictCause::StartFailed;
        let attempt = (at, self.table.units()[at].attempts);
        let before = if is_refused {
            std::mem::replace(&mut self.blockers.refusal, RefusalState::Retried)
        } else {
            RefusalState::None
        };
        let is_same_fault = match before {
            RefusalState::None => false,
            RefusalState::Over(trial) => trial == attempt,
            RefusalState::Retried | RefusalState::Probation(..) => true,
        };
        let Some(wait_ms) = WAITS_MS.get(tries).copied().filter(|_| !is_same_fault) else {
            self.blockers.missing_program = None;
            return false;
        };
        if is_refused {
            let text = format!(
                "the agent refused to start; trying once more in {} s",
                wait_ms / 1_000
            );
            push_message(Severity::Warning, text, effects);
        } else if tries == 0 {
            let seconds = WAITS_MS.iter().sum::<u64>() / 1_000;
            let text = format!(
                "the agent's program is missing; waiting up to {seconds} s for it, as an update may be in progress"
            );
            push_message(Severity::Warning, text, effects);
        }
        self.table.set_phase(at, UnitPhase::Queued);
        self.push_retry_note(at, wait_ms, cause, effects);
        let id = self.table.new_timer(TimerPurpose::Program);
        self.blockers.missing_program = Some(MissingProgram {
            tries: tries + 1,
            state: MissingProgramState::Waiting(id),
        });
        effects.push(ScheduleEffect::SetTimer {
            id,
            after_ms: wait_ms,
        });
        true
    }

    /// Makes the next unit the trial after the timer of a wait fired. Stale timers change nothing.
    pub(super) fn make_trial_due_after_timer(&mut self, timer: TimerId) {
        self.set_program_trial_due(MissingProgramState::Waiting(timer));
    }

    /// Handles the end of an attempt. If it was the trial and does not show whether the program is available, the next
    /// unit is the trial.
    pub(super) fn finish_program_trial(&mut self, at: usize) {
        self.set_program_trial_due(MissingProgramState::Trying(at));
    }

    fn set_program_trial_due(&mut self, after: MissingProgramState) {
        if let Some(absence) = self
            .blockers
            .missing_program
            .as_mut()
            .filter(|absence| absence.state == after)
        {
            absence.state = MissingProgramState::Due;
        }
    }

    /// False while the program is missing and a trial runs or a wait is active.
    pub(super) fn may_start_attempt(&self) -> bool {
        self.blockers
            .missing_program
            .is_none_or(|absence| absence.state == MissingProgramState::Due)
    }

    pub(super) fn record_start(&mut self, order: &ScheduleEffect) {
        if let (Some(absence), ScheduleEffect::StartAttempt { unit, .. }) =
            (&mut self.blockers.missing_program, order)
            && let Some(at) = self.table.find(unit)
        {
            absence.state = MissingProgramState::Trying(at);
        }
    }

    /// The process of this unit started.
    pub(super) fn handle_program_started(&mut self, at: usize, effects: &mut Vec<ScheduleEffect>) {
        if self
            .blockers
            .missing_program
            .is_some_and(|absence| absence.state == MissingProgramState::Trying(at))
        {
            self.blockers.missing_program = None;
            let text = if self.blockers.refusal == RefusalState::Retried {
                let id = self.table.new_timer(TimerPurpose::Refusal);
                self.blockers.refusal =
                    RefusalState::Probation(id, (at, self.table.units()[at].attempts));
                effects.push(ScheduleEffect::SetTimer {
                    id,
                    after_ms: REFUSAL_WINDOW_MS,
                });
                "the agent starts again"
            } else {
                "the agent's program is back"
            };
            push_message(Severity::Info, text.to_owned(), effects);
        }
    }

    /// Ends the probation after its timer fired. Stale timers change nothing.
    pub(super) fn end_refusal(&mut self, timer: TimerId) {
        if let RefusalState::Probation(id, trial) = self.blockers.refusal
            && id == timer
        {
            self.blockers.refusal = RefusalState::Over(trial);
        }
    }

    /// The limit would reject the other units as well.
    pub(super) fn halt_for_limit(&mut self, at: usize, effects: &mut Vec<ScheduleEffect>) {
        let (key, tries) = (
            &self.table.units()[at].key,
            self.settings.throttle_policy.max_limit_attempts,
        );
        push_message(
            Severity::Error,
            format!("{key} hit the limit {tries} times: the run ends and can be resumed"),
            effects,
        );
        self.halt(HaltReason::LimitReached, effects);
    }

    /// Reports the condition once instead of for every unit. Running attempts may end normally, because they may have
    /// got through before.
    pub(super) fn halt_if_unusable(
        &mut self,
        at: usize,
        verdict: &Verdict,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        let unit = &self.table.units()[at];
        let amended = || {
            unit.amendment
                .as_ref()
                .is_some_and(|amendment| amendment.model.is_some())
        };
        let own_model = self.is_reconcile_unit(&unit.key) || amended();
        if verdict.outcome != AttemptOutcome::Failed
            || !retry::affects_every_unit(&verdict.cause, own_model, self.had_success)
        {
            return;
        }
        let is_refused = verdict.cause == VerdictCause::StartFailed;
        if !self.table.is_idle() || is_refused {
            let what = if is_refused {
                &verdict.reason
            } else {
                verdict.cause.label()
            };
            let remedy = verdict.remedy.as_deref().unwrap_or("fix it, then retry");
            let text = format!("stopped starting units: {what}; {remedy}");
            push_message(Severity::Error, text, effects);
        }
        self.halt(HaltReason::Unusable, effects);
    }
}
