//! What keeps every unit from running, so that nothing more starts.
//!
//! If the agent's program is missing in the middle of a run, as while it is being updated, nothing starts for a while, and
//! then one unit tries whether it is back. Failed starts cost no retry. Everything else ends the run.

use super::{HaltReason, Schedule, ScheduleEffect, TimerId, UnitPhase, push_message, retry, unit_table::TimerPurpose};
use crate::tape::note::{AttemptOutcome, Cause, Severity, Verdict};

/// Waits before each try, in milliseconds; about 40 s together. An update takes some ten.
const WAITS_MS: [u64; 6] = [1_000, 2_000, 4_000, 8_000, 10_000, 15_000];

/// A program that is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct MissingProgram {
    /// Tries so far.
    tries: usize,
    state: MissingProgramState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingProgramState {
    /// Until this timer fires, nothing starts.
    Waiting(TimerId),
    /// The next unit to start tries it.
    Due,
    /// This unit tries it.
    Trying(usize),
}

impl Schedule {
    /// A unit could not be started because the program is missing. False once it was waited for long enough.
    pub(super) fn wait_for_program(&mut self, at: usize, cause: &Cause, orders: &mut Vec<ScheduleEffect>) -> bool {
        let tries = match self.missing_program {
            // It was started before this was known, together with the unit that found out.
            Some(MissingProgram { tries, state }) if state != MissingProgramState::Trying(at) => {
                self.board.set_phase(at, UnitPhase::Queued);
                self.push_retry_note(at, WAITS_MS[tries - 1], cause, orders);
                return true;
            }
            Some(MissingProgram { tries, .. }) => tries,
            None => {
                let seconds = WAITS_MS.iter().sum::<u64>() / 1000;
                let text = format!(
                    "the agent's program is missing; waiting up to {seconds} s for it, as an update may be in progress"
                );
                push_message(Severity::Warning, text, orders);
                0
            }
        };
        let Some(wait_ms) = WAITS_MS.get(tries).copied() else {
            self.missing_program = None;
            return false;
        };
        self.board.set_phase(at, UnitPhase::Queued);
        self.push_retry_note(at, wait_ms, cause, orders);
        let id = self.board.new_timer(TimerPurpose::Program);
        self.missing_program = Some(MissingProgram { tries: tries + 1, state: MissingProgramState::Waiting(id) });
        orders.push(ScheduleEffect::SetTimer { id, after_ms: wait_ms });
        true
    }

    /// The timer of a wait fired: the next unit tries. A timer of a wait that was given up changes nothing.
    pub(super) fn make_trial_due_after_timer(&mut self, timer: TimerId) {
        self.set_program_trial_due(MissingProgramState::Waiting(timer));
    }

    /// The attempt of this unit is over. If it was to try the program and its end does not show whether the program is
    /// back, the next unit tries.
    pub(super) fn finish_program_trial(&mut self, at: usize) {
        self.set_program_trial_due(MissingProgramState::Trying(at));
    }

    fn set_program_trial_due(&mut self, after: MissingProgramState) {
        if let Some(absence) = self.missing_program.as_mut().filter(|absence| absence.state == after) {
            absence.state = MissingProgramState::Due;
        }
    }

    /// True unless the program is missing and a unit tries already, or is to wait.
    pub(super) fn may_start_attempt(&self) -> bool {
        self.missing_program.is_none_or(|absence| absence.state == MissingProgramState::Due)
    }

    /// A unit starts.
    pub(super) fn record_start(&mut self, order: &ScheduleEffect) {
        if let (Some(absence), ScheduleEffect::StartAttempt { unit, .. }) = (&mut self.missing_program, order)
            && let Some(at) = self.board.find(unit)
        {
            absence.state = MissingProgramState::Trying(at);
        }
    }

    /// The process of this unit started.
    pub(super) fn handle_program_started(&mut self, at: usize, orders: &mut Vec<ScheduleEffect>) {
        if self.missing_program.is_some_and(|absence| absence.state == MissingProgramState::Trying(at)) {
            self.missing_program = None;
            push_message(Severity::Info, "the agent's program is back".to_owned(), orders);
        }
    }

    /// The limit would turn the others away as well.
    pub(super) fn halt_for_limit(&mut self, at: usize, orders: &mut Vec<ScheduleEffect>) {
        let (key, tries) = (&self.board.units()[at].key, self.settings.throttle_policy.max_limit_attempts);
        push_message(
            Severity::Error,
            format!("{key} met the limit {tries} times: the run ends and can be resumed"),
            orders,
        );
        self.halt(HaltReason::LimitReached, orders);
    }

    /// Told once, instead of by every unit. What runs may end by itself: it may have got through before.
    pub(super) fn halt_if_unusable(&mut self, at: usize, verdict: &Verdict, orders: &mut Vec<ScheduleEffect>) {
        let unit = &self.board.units()[at];
        let amended = || unit.amendment.as_ref().is_some_and(|amendment| amendment.model.is_some());
        let own_model = self.is_reconcile_unit(&unit.key) || amended();
        if verdict.outcome != AttemptOutcome::Failed
            || !retry::affects_every_unit(&verdict.cause, own_model, self.had_success)
        {
            return;
        }
        if !self.board.is_idle() {
            let (word, remedy) = (verdict.cause.label(), verdict.remedy.as_deref().unwrap_or("mend it, then retry"));
            let text = format!("no unit can run ({word}), so none is started any more: {remedy}");
            push_message(Severity::Error, text, orders);
        }
        self.halt(HaltReason::Unusable, orders);
    }
}
