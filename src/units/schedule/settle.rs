//! What follows once all units have settled: their patches are put together, the result is saved, the run ends. Where
//! attempts write into the project themselves, it ends at once.

use crate::tape::{
    UnitKey,
    note::{AttemptOutcome, RunEnded, Severity},
};

use super::{HaltReason, IntegratedUnit, IntegrationReport, RunStage, Schedule, ScheduleEffect, push_message};

impl Schedule {
    /// Goes on to the next stage when nothing runs or waits any more.
    pub(super) fn settle_if_idle(&mut self, orders: &mut Vec<ScheduleEffect>) {
        if self.stage == RunStage::Reconciling {
            return self.finish_reconcile(orders);
        }
        if self.stage != RunStage::Running || !self.board.is_idle() {
            return;
        }
        let units = self.unsaved_attempts();
        // With patches to save, the pass is judged once they are put together.
        let pass = self.is_reconcile_pending() && (!units.is_empty() || self.has_budget_for_reconcile(orders));
        match self.patches_kept_reason() {
            _ if units.is_empty() && !pass => self.end_run(orders),
            Some(why) => self.keep_patches(why, orders),
            None => {
                self.stage = RunStage::Integrating;
                orders.push(ScheduleEffect::Integrate { units });
            }
        }
    }

    /// Ends with patches that stay patches.
    pub(super) fn keep_patches(&mut self, why: &str, orders: &mut Vec<ScheduleEffect>) {
        let what = match self.unsaved_attempts().len() {
            0 => None,
            1 => Some("1 patch is".to_owned()),
            patches => Some(format!("{patches} patches are")),
        };
        if let Some(what) = what {
            push_message(Severity::Warning, format!("{what} kept and not put on the branch: {why}"), orders);
        }
        self.integrated_attempts.clear();
        self.end_run(orders);
    }

    /// Why patches stay patches for now.
    fn patches_kept_reason(&self) -> Option<&'static str> {
        if self.is_killed {
            return Some("the run was killed");
        }
        (self.halt == Some(HaltReason::UnitFailed)).then_some("a unit failed, and the failure mode is abort")
    }

    pub(super) fn unsaved_attempts(&self) -> Vec<(UnitKey, u32)> {
        if self.settings.integrates_patches { self.board.unsaved_attempts() } else { Vec::new() }
    }

    pub(super) fn handle_integrated(
        &mut self,
        IntegrationReport { results, ok }: IntegrationReport,
        orders: &mut Vec<ScheduleEffect>,
    ) {
        if self.stage != RunStage::Integrating {
            return;
        }
        for IntegratedUnit { unit, attempt, verdict, .. } in &results {
            match (verdict, self.board.find(unit).filter(|at| self.board.units()[*at].attempts == *attempt)) {
                (Some(verdict), Some(at)) => self.board.record_outcome(at, verdict.outcome, verdict.stop),
                (None, Some(_)) => self.integrated_attempts.push((unit.clone(), *attempt)),
                (_, None) => {}
            }
        }
        if self.is_killed {
            return self.keep_patches("the run was killed", orders);
        }
        if ok && self.start_reconcile_stage(&results, orders) {
            return;
        }
        if !ok {
            // Saving says why. What is not put together cannot be looked at, nor is another try any better by itself.
            self.cancel_reconcile();
        }
        self.stage = RunStage::Saving;
        orders.push(ScheduleEffect::Save { failed: self.unsuccessful_units() });
    }

    pub(super) fn handle_saved(&mut self, ok: bool, orders: &mut Vec<ScheduleEffect>) {
        if self.stage != RunStage::Saving {
            return;
        }
        let round = std::mem::take(&mut self.integrated_attempts);
        if ok {
            self.board.mark_saved(&round);
        }
        // Somebody may have asked for another attempt meanwhile; what it writes is saved in a round of its own.
        if self.board.is_idle() && !self.is_reconcile_pending() {
            self.end_run(orders);
        } else {
            self.stage = RunStage::Running;
        }
    }

    /// Another try to save what is not saved, where that is all there is to try again.
    pub(super) fn retry_save(&mut self) {
        if self.stage == RunStage::Ended && !self.unsaved_attempts().is_empty() {
            // A limit that cut the run short still did. An aborted one may not save, and whoever asked for an end asks
            // for more now.
            let halt = self.halt.filter(|halt| !matches!(halt, HaltReason::UnitFailed | HaltReason::Requested));
            self.reopen();
            self.halt = halt;
        }
    }

    /// Goes on after the end, because a person asked.
    pub(super) fn reopen(&mut self) {
        if self.stage == RunStage::Ended {
            self.stage = RunStage::Running;
            self.halt = None;
            self.is_killed = false;
        }
    }

    fn end_run(&mut self, orders: &mut Vec<ScheduleEffect>) {
        self.stage = RunStage::Ended;
        orders.push(ScheduleEffect::EndRun(self.run_summary()));
    }

    fn run_summary(&self) -> RunEnded {
        let mut ended = self.board.tally_outcomes();
        ended.unsaved = u32::try_from(self.unsaved_attempts().len()).unwrap_or(u32::MAX);
        let all = ended.failed + ended.stopped + ended.not_run + ended.unsaved == 0;
        let cut_short = ended.stopped + ended.not_run > 0;
        let saved = (ended.succeeded + ended.budget + ended.reused).saturating_sub(ended.unsaved) > 0;
        let outcome = match self.halt {
            _ if all => "done",
            Some(HaltReason::LimitReached) => "limit",
            Some(HaltReason::Unusable) => "unusable",
            Some(HaltReason::UnitFailed) => "error",
            Some(HaltReason::Requested) if cut_short => "stopped",
            Some(HaltReason::Requested) | None if saved => "partial",
            Some(HaltReason::Requested) | None if ended.failed + ended.unsaved > 0 => "error",
            Some(HaltReason::Requested) | None => "stopped",
        };
        ended.outcome = outcome.to_owned();
        ended
    }
}

/// True for a last verdict that does not count.
pub(super) fn has_failed_outcome(last: Option<AttemptOutcome>) -> bool {
    matches!(last, Some(AttemptOutcome::Failed | AttemptOutcome::Stopped))
}
