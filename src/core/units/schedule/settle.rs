//! The stages after all units have settled: patches are integrated, the result is saved, the run ends. If attempts
//! write into the project directly, the run ends immediately.

use crate::tape::{
    Note, UnitKey,
    note::{AttemptOutcome, RunEndOutcome, RunEnded, Severity},
};

use super::{
    HaltReason, IntegratedUnit, IntegrationReport, RunStage, Schedule, ScheduleEffect, push_message,
};

impl Schedule {
    /// Continues with the next stage when nothing runs or waits.
    pub(super) fn settle_if_idle(&mut self, effects: &mut Vec<ScheduleEffect>) {
        if self.stage == RunStage::Reconciling {
            return self.finish_reconcile(effects);
        }
        if self.stage != RunStage::Running || !(self.table.is_idle() || self.is_between_units()) {
            self.person.awaited_decisions.clear();
            return;
        }
        if self.settings.waits_at_turn_limit && self.halt.is_none() && !self.is_killed {
            let undecided = self.table.undecided_units();
            if !undecided.is_empty() {
                return self.await_decisions(undecided, effects);
            }
        }
        let units = self.unsaved_attempts();
        // If there are patches to save, the reconcile step is decided after their integration.
        let needs_reconcile = self.is_reconcile_pending()
            && (!units.is_empty() || self.has_budget_for_reconcile(effects));
        match self.patches_kept_reason() {
            _ if units.is_empty() && !needs_reconcile && !self.projection.is_unsaved => {
                self.end_run(effects)
            }
            Some(why) => self.keep_patches(why, effects),
            None => {
                self.stage = RunStage::Integrating;
                effects.push(ScheduleEffect::Integrate { units });
            }
        }
    }

    /// True if nothing may start before the patches so far are saved.
    pub(super) fn must_save_first(&self) -> bool {
        self.settings.saves_between_units
            && !self.saving.has_failed
            && !self.unsaved_attempts().is_empty()
    }

    /// True if patches can be saved although units wait to start.
    fn is_between_units(&self) -> bool {
        self.must_save_first() && self.table.in_flight_count() == 0
    }

    /// Reports once which units wait for a decision.
    fn await_decisions(&mut self, undecided: Vec<UnitKey>, effects: &mut Vec<ScheduleEffect>) {
        if self.person.awaited_decisions != undecided {
            self.person.awaited_decisions.clone_from(&undecided);
            let note = Note::DecisionAwaited { units: undecided };
            effects.push(ScheduleEffect::RecordNote {
                attempt: None,
                note,
            });
        }
    }

    pub(super) fn accept_result(&mut self, key: &UnitKey, effects: &mut Vec<ScheduleEffect>) {
        match self
            .table
            .find(key)
            .filter(|at| self.table.accept_result(*at))
        {
            Some(at) => effects.push(self.table.units()[at].note_effect(Note::ResultAccepted)),
            None => push_message(
                Severity::Warning,
                format!("{key} does not wait for a decision"),
                effects,
            ),
        }
    }

    /// Ends with patches that are not integrated.
    pub(super) fn keep_patches(&mut self, why: &str, effects: &mut Vec<ScheduleEffect>) {
        let what = match self.unsaved_attempts().len() {
            0 => None,
            1 => Some("1 patch is".to_owned()),
            patches => Some(format!("{patches} patches are")),
        };
        if let Some(what) = what {
            push_message(
                Severity::Warning,
                format!("{what} kept and not put on the branch: {why}"),
                effects,
            );
        }
        self.saving.integrated_attempts.clear();
        self.end_run(effects);
    }

    /// Why patches are not integrated for now.
    pub(super) fn patches_kept_reason(&self) -> Option<&'static str> {
        if self.is_killed {
            return Some("the run was killed");
        }
        (self.halt == Some(HaltReason::UnitFailed))
            .then_some("a unit failed, and the failure mode is abort")
    }

    pub(super) fn unsaved_attempts(&self) -> Vec<(UnitKey, u32)> {
        if self.settings.integrates_patches {
            self.table.unsaved_attempts()
        } else {
            Vec::new()
        }
    }

    /// Records which patches were integrated. A conflict turns the success of its unit into a failure.
    pub(super) fn handle_integrated(
        &mut self,
        IntegrationReport { results, ok }: IntegrationReport,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        if self.stage != RunStage::Integrating {
            return;
        }
        for IntegratedUnit {
            unit,
            attempt,
            verdict,
            ..
        } in &results
        {
            match (
                verdict,
                self.table
                    .find(unit)
                    .filter(|at| self.table.units()[*at].attempts == *attempt),
            ) {
                (Some(verdict), Some(at)) => {
                    self.table.record_outcome(at, verdict.outcome, verdict.stop)
                }
                (None, Some(_)) => self
                    .saving
                    .integrated_attempts
                    .push((unit.clone(), *attempt)),
                (_, None) => {}
            }
        }
        if self.is_killed {
            return self.keep_patches("the run was killed", effects);
        }
        if ok && self.start_reconcile_stage(&results, effects) {
            return;
        }
        if !ok {
            // The save step reports the reason. A result that is not integrated cannot be reviewed, and an automatic
            // retry would fail in the same way.
            self.cancel_reconcile();
            return self.save(effects);
        }
        self.review_or_save(effects);
    }

    pub(super) fn save(&mut self, effects: &mut Vec<ScheduleEffect>) {
        self.stage = RunStage::Saving;
        effects.push(ScheduleEffect::Save {
            failed: self.units_without_result(),
        });
    }

    /// Continues after a commit that was made or refused: the run ends, unless more was requested meanwhile.
    pub(super) fn handle_saved(&mut self, ok: bool, effects: &mut Vec<ScheduleEffect>) {
        let is_reviewed = self.stage == RunStage::SavingReviewed;
        if self.stage != RunStage::Saving && !is_reviewed {
            return;
        }
        if !ok && is_reviewed && self.integrate_for_review(effects) {
            return;
        }
        let round = std::mem::take(&mut self.saving.integrated_attempts);
        if ok {
            self.projection.is_unsaved = false;
            self.table.mark_saved(&round);
        } else {
            // Saving again before each unit would fail in the same way; the end of the run tries it once more.
            self.saving.has_failed = true;
        }
        // A person may have requested another attempt meanwhile; its writes are saved by a separate integration.
        if self.table.is_idle() && !self.is_reconcile_pending() {
            self.end_run(effects);
        } else {
            self.stage = RunStage::Running;
        }
    }

    /// Retries saving, if that is all there is to retry.
    pub(super) fn retry_save(&mut self) {
        if self.stage == RunStage::Ended && !self.unsaved_attempts().is_empty() {
            // A limit that ended the run still applies. An aborted run may not save, and a person who requested the end
            // now requests more.
            let halt = self
                .halt
                .filter(|halt| !matches!(halt, HaltReason::UnitFailed | HaltReason::Requested));
            self.reopen();
            self.halt = halt;
        }
    }

    /// Reopens an ended run because a person requested it.
    pub(super) fn reopen(&mut self) {
        if self.stage == RunStage::Ended {
            self.stage = RunStage::Running;
            self.halt = None;
            self.is_killed = false;
        }
    }

    fn end_run(&mut self, effects: &mut Vec<ScheduleEffect>) {
        self.stage = RunStage::Ended;
        effects.push(ScheduleEffect::EndRun(self.run_summary()));
    }

    pub(super) fn run_summary(&self) -> RunEnded {
        let mut ended = self.table.tally_outcomes();
        ended.unsaved = u32::try_from(self.unsaved_attempts().len()).unwrap_or(u32::MAX);
        // The run ended although a person had to decide about results.
        let is_undecided = self.halt == Some(HaltReason::LimitReached)
            && self.settings.waits_at_turn_limit
            && !self.table.undecided_units().is_empty();
        let all =
            ended.failed + ended.stopped + ended.not_run + ended.unsaved == 0 && !is_undecided;
        let cut_short = ended.stopped + ended.not_run > 0;
        let saved =
            (ended.succeeded + ended.budget + ended.reused).saturating_sub(ended.unsaved) > 0;
        ended.outcome = match self.halt {
            _ if all => RunEndOutcome::Done,
            Some(HaltReason::LimitReached) => RunEndOutcome::Limit,
            Some(HaltReason::Unusable) => RunEndOutcome::Unusable,
            Some(HaltReason::UnitFailed) => RunEndOutcome::Error,
            None if self.person.is_missing => RunEndOutcome::Limit,
            Some(HaltReason::Requested) if cut_short => RunEndOutcome::Stopped,
            Some(HaltReason::Requested) | None if saved => RunEndOutcome::Partial,
            Some(HaltReason::Requested) | None if ended.failed + ended.unsaved > 0 => {
                RunEndOutcome::Error
            }
            Some(HaltReason::Requested) | None => RunEndOutcome::Stopped,
        };
        ended
    }
}

/// True for a last outcome whose writes do not count.
pub(super) fn has_failed_outcome(last: Option<AttemptOutcome>) -> bool {
    matches!(last, Some(AttemptOutcome::Failed | AttemptOutcome::Stopped))
}
