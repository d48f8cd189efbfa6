//! The pass after the units: once their patches are put together, one more unit looks at all of it, before it is saved.
//! Its failure costs what it wrote itself, and nothing else.

use super::{
    HaltReason, IntegratedUnit, RunStage, Schedule, ScheduleEffect, push_message,
    unit_table::{UnitPhase, UnitTable},
};
use crate::tape::{UnitKey, note::Severity};

/// The pass, where one is wanted.
#[derive(Clone, Debug)]
pub(super) struct ReconcileStep {
    key: UnitKey,
    /// Its place on the board, once it was due.
    index: Option<usize>,
}

impl ReconcileStep {
    /// Puts it on the board, as one that has not run.
    fn add_to(&mut self, board: &mut UnitTable, phase: UnitPhase) {
        self.index = Some(board.add(&self.key, phase));
    }
}

impl Schedule {
    /// The same run with a pass `unit` over what the units write. One that is `due` has something to look at whatever
    /// they do: raw files that are gone, or what an earlier run saved.
    pub fn with_reconcile_step(mut self, unit: UnitKey, due: bool) -> Self {
        let mut pass = ReconcileStep { key: unit, index: None };
        if due && self.settings.integrates_patches {
            pass.add_to(&mut self.board, UnitPhase::ReconcilePending);
        }
        self.reconcile = Some(pass);
        self
    }

    pub(super) fn is_reconcile_unit(&self, key: &UnitKey) -> bool {
        self.reconcile.as_ref().is_some_and(|pass| pass.key == *key)
    }

    fn reconcile_index(&self) -> Option<usize> {
        self.reconcile.as_ref()?.index
    }

    fn reconcile_phase(&self) -> Option<UnitPhase> {
        Some(self.board.units()[self.reconcile_index()?].phase)
    }

    pub(super) fn is_reconcile_pending(&self) -> bool {
        self.reconcile_phase() == Some(UnitPhase::ReconcilePending)
    }

    /// The pass, if it was due and never came to run.
    pub(super) fn unattempted_reconcile(&self) -> Option<usize> {
        self.reconcile_index().filter(|at| self.stage == RunStage::Ended && self.board.is_unattempted(*at))
    }

    /// Where a unit goes that a person wants to run: the pass waits for what it is to look at. What it made of patches
    /// that could not be saved does not fit what a unit makes anew.
    pub(super) fn phase_for(&mut self, at: usize) -> UnitPhase {
        if self.reconcile_index() == Some(at) {
            return if self.stage == RunStage::Reconciling { UnitPhase::Queued } else { UnitPhase::ReconcilePending };
        }
        if let Some(pass) = &mut self.reconcile
            && self.stage == RunStage::Ended
            && pass.index.is_some_and(|at| self.board.is_unsaved(at))
        {
            pass.add_to(&mut self.board, UnitPhase::ReconcilePending);
        }
        UnitPhase::Queued
    }

    /// True, with the pass on the board, unless there is none, it is over, or there is nothing for it to look at.
    pub(super) fn start_reconcile_stage(
        &mut self,
        results: &[IntegratedUnit],
        orders: &mut Vec<ScheduleEffect>,
    ) -> bool {
        let Some(ReconcileStep { key, .. }) = &self.reconcile else { return false };
        if results.iter().any(|taken| taken.unit == *key) {
            return false;
        }
        let wrote = results.iter().any(|taken| taken.has_changes && taken.verdict.is_none());
        let is_due = wrote || self.is_reconcile_pending();
        let goes_on = if self.halt.is_some() {
            push_message(Severity::Info, "not reconciled: the run is ending".to_owned(), orders);
            false
        } else if !is_due {
            push_message(
                Severity::Info,
                "not reconciled: nothing was written, and no raw file is gone".to_owned(),
                orders,
            );
            false
        } else {
            self.has_budget_for_reconcile(orders)
        };
        if let Some(pass) = self.reconcile.as_mut().filter(|_| is_due) {
            pass.add_to(&mut self.board, if goes_on { UnitPhase::Queued } else { UnitPhase::Settled });
        }
        if goes_on {
            self.stage = RunStage::Reconciling;
        }
        goes_on
    }

    /// There is nothing that the pass could look at.
    pub(super) fn cancel_reconcile(&mut self) {
        if let Some(at) = self.reconcile_index().filter(|_| self.is_reconcile_pending()) {
            self.board.set_phase(at, UnitPhase::Settled);
        }
    }

    /// True while the budget lasts. Where it is spent, that is said, and nothing starts any more.
    pub(super) fn has_budget_for_reconcile(&mut self, orders: &mut Vec<ScheduleEffect>) -> bool {
        let Some(sentence) = self.budget.exhausted_message() else { return true };
        push_message(Severity::Error, format!("not reconciled: {sentence}; the run can be resumed"), orders);
        self.halt(HaltReason::LimitReached, orders);
        false
    }

    /// Withdraws a pass that would start although the budget is spent.
    pub(super) fn cancel_unaffordable_reconcile(&mut self, orders: &mut Vec<ScheduleEffect>) {
        if self.stage == RunStage::Reconciling
            && self.halt.is_none()
            && self.reconcile_phase() == Some(UnitPhase::Queued)
        {
            self.has_budget_for_reconcile(orders);
        }
    }

    /// Starts the pass, if it waits for that.
    pub(super) fn start_reconcile(&mut self) -> Option<ScheduleEffect> {
        self.board.start_queued(self.reconcile_index()?)
    }

    /// Goes on once the pass is over.
    pub(super) fn finish_reconcile(&mut self, orders: &mut Vec<ScheduleEffect>) {
        let Some(ReconcileStep { key, index: Some(at) }) = &self.reconcile else { return };
        let (key, at) = (key.clone(), *at);
        if !self.board.is_settled(at) {
            return;
        }
        if self.is_killed {
            return self.keep_patches("the run was killed", orders);
        }
        if self.board.has_succeeded(at) {
            self.stage = RunStage::Integrating;
            orders.push(ScheduleEffect::Integrate { units: vec![(key, self.board.units()[at].attempts)] });
        } else {
            self.stage = RunStage::Saving;
            orders.push(ScheduleEffect::Save { failed: self.unsuccessful_units() });
        }
    }

    /// Units whose writes do not count, for the commit. The pass is no unit of the ingest.
    pub(super) fn unsuccessful_units(&self) -> Vec<UnitKey> {
        self.board.unsuccessful_units().into_iter().filter(|unit| !self.is_reconcile_unit(unit)).collect()
    }
}
