//! The reconcile step: after the patches of the units are integrated, one more unit reviews the result before it is
//! saved. If it fails, only its own changes are lost.

use super::{
    HaltReason, IntegratedUnit, RunStage, Schedule, ScheduleEffect, push_message,
    unit_table::{UnitPhase, UnitTable},
};
use crate::tape::{UnitKey, note::Severity};

/// The reconcile step, if the run has one.
#[derive(Clone, Debug)]
pub(super) struct ReconcileStep {
    pub(super) key: UnitKey,
    /// Its index in the unit table, once it was due.
    index: Option<usize>,
}

impl ReconcileStep {
    /// Adds the step to the unit table as a unit that has not run.
    fn add_to(&mut self, table: &mut UnitTable, phase: UnitPhase) {
        self.index = Some(table.add(&self.key, phase));
    }
}

impl Schedule {
    /// Adds the reconcile step `unit`. With `due`, it has something to review even if no unit writes: deleted raw
    /// files, or results that a prior run saved.
    pub fn with_reconcile_step(mut self, unit: UnitKey, due: bool) -> Self {
        let mut step = ReconcileStep {
            key: unit,
            index: None,
        };
        if due && self.settings.integrates_patches {
            step.add_to(&mut self.table, UnitPhase::ReconcilePending);
        }
        self.reconcile = Some(step);
        self
    }

    pub(super) fn is_reconcile_unit(&self, key: &UnitKey) -> bool {
        self.reconcile.as_ref().is_some_and(|step| step.key == *key)
    }

    fn reconcile_index(&self) -> Option<usize> {
        self.reconcile.as_ref()?.index
    }

    fn reconcile_phase(&self) -> Option<UnitPhase> {
        Some(self.table.units()[self.reconcile_index()?].phase)
    }

    pub(super) fn is_reconcile_pending(&self) -> bool {
        self.reconcile_phase() == Some(UnitPhase::ReconcilePending)
    }

    /// The reconcile step, if it was due and never ran.
    pub(super) fn unattempted_reconcile(&self) -> Option<usize> {
        self.reconcile_index()
            .filter(|at| self.stage == RunStage::Ended && self.table.is_unattempted(*at))
    }

    /// Next phase of a unit that a person wants to run. The reconcile step waits for the units it reviews. Its changes
    /// on top of unsaved patches are invalid once a unit is attempted again.
    pub(super) fn phase_for(&mut self, at: usize) -> UnitPhase {
        if self.reconcile_index() == Some(at) {
            return if self.stage == RunStage::Reconciling {
                UnitPhase::Queued
            } else {
                UnitPhase::ReconcilePending
            };
        }
        if let Some(step) = &mut self.reconcile
            && matches!(
                self.stage,
                RunStage::Ended | RunStage::Reviewing | RunStage::RequestingReview
            )
            && step.index.is_some_and(|at| self.table.is_unsaved(at))
        {
            step.add_to(&mut self.table, UnitPhase::ReconcilePending);
        }
        UnitPhase::Queued
    }

    /// Starts the reconcile stage and returns true, unless the run has no reconcile step, the step or the run is over,
    /// the budget is spent, or there is nothing to review.
    pub(super) fn start_reconcile_stage(
        &mut self,
        results: &[IntegratedUnit],
        effects: &mut Vec<ScheduleEffect>,
    ) -> bool {
        let Some(ReconcileStep { key, .. }) = &self.reconcile else {
            return false;
        };
        if results.iter().any(|taken| taken.unit == *key) {
            return false;
        }
        let wrote = results
            .iter()
            .any(|taken| taken.has_changes && taken.verdict.is_none());
        let is_due = wrote || self.is_reconcile_pending();
        let continues = if self.halt.is_some() {
            push_message(
                Severity::Info,
                "not reconciled: the run is ending".to_owned(),
                effects,
            );
            false
        } else if !is_due {
            push_message(
                Severity::Info,
                "not reconciled: no unit wrote anything, and no raw file was deleted".to_owned(),
                effects,
            );
            false
        } else {
            self.has_budget_for_reconcile(effects)
        };
        if let Some(step) = self.reconcile.as_mut().filter(|_| is_due) {
            step.add_to(
                &mut self.table,
                if continues {
                    UnitPhase::Queued
                } else {
                    UnitPhase::Settled
                },
            );
        }
        if continues {
            self.stage = RunStage::Reconciling;
        }
        continues
    }

    /// Cancels the reconcile step because there is nothing to review.
    pub(super) fn cancel_reconcile(&mut self) {
        if let Some(at) = self
            .reconcile_index()
            .filter(|_| self.is_reconcile_pending())
        {
            self.table.set_phase(at, UnitPhase::Settled);
        }
    }

    /// Returns whether the budget allows the step. If it is spent, records a message and starts nothing.
    pub(super) fn has_budget_for_reconcile(&mut self, effects: &mut Vec<ScheduleEffect>) -> bool {
        let Some(sentence) = self.budget.exhausted_message() else {
            return true;
        };
        push_message(
            Severity::Error,
            format!("not reconciled: {sentence}; the run can be resumed"),
            effects,
        );
        self.halt(HaltReason::LimitReached, effects);
        false
    }

    /// Cancels a step that would start after the budget is spent.
    pub(super) fn cancel_unaffordable_reconcile(&mut self, effects: &mut Vec<ScheduleEffect>) {
        if self.stage == RunStage::Reconciling
            && self.halt.is_none()
            && self.reconcile_phase() == Some(UnitPhase::Queued)
        {
            self.has_budget_for_reconcile(effects);
        }
    }

    /// Starts the reconcile step, if it is pending.
    pub(super) fn start_reconcile(&mut self) -> Option<ScheduleEffect> {
        self.table.start_queued(self.reconcile_index()?)
    }

    /// Continues with saving once the reconcile step is over.
    pub(super) fn finish_reconcile(&mut self, effects: &mut Vec<ScheduleEffect>) {
        let Some(ReconcileStep {
            key,
            index: Some(at),
        }) = &self.reconcile
        else {
            return;
        };
        let (key, at) = (key.clone(), *at);
        if !self.table.is_settled(at) {
            return;
        }
        if self.is_killed {
            return self.keep_patches("the run was killed", effects);
        }
        if self.table.has_succeeded(at) {
            self.stage = RunStage::Integrating;
            effects.push(ScheduleEffect::Integrate {
                units: vec![(key, self.table.units()[at].attempts)],
            });
        } else {
            self.review_or_save(effects);
        }
    }

    /// Units whose writes do not count, for the commit message. The reconcile step is not one of them.
    pub(super) fn units_without_result(&self) -> Vec<UnitKey> {
        self.table
            .units_without_result()
            .into_iter()
            .filter(|unit| !self.is_reconcile_unit(unit))
            .collect()
    }
}
