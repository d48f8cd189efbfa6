//! Integration while units run: which patches come first for certain.
//!
//! The order of the plan decides what becomes of a patch, so only those of the first units are announced, up to the
//! first that may still write.

use super::{
    RunStage, Schedule, ScheduleEffect,
    unit_table::{UnitPhase, UnitTable},
};
use crate::tape::UnitKey;

/// How far the units of the plan are announced.
#[derive(Clone, Debug, Default)]
pub(super) struct AheadProgress {
    /// Indices of the units whose patches are announced, in plan order.
    announced: Vec<usize>,
    /// The first unit that is not examined.
    next: usize,
}

impl AheadProgress {
    /// Forgets the unit at this index and all after it, since it may write again.
    fn reopen(&mut self, at: usize) {
        self.announced
            .truncate(self.announced.partition_point(|of| *of < at));
        self.next = self.next.min(at);
    }

    /// Examines the next units up to the first that may still write or is the reconcile step. Returns the number of announced units that are
    /// still valid, and those that follow.
    fn advance(&mut self, table: &UnitTable, reconcile: Option<&UnitKey>) -> (usize, Vec<usize>) {
        let kept = self.announced.len();
        let units = table.units();
        while let Some(unit) = units.get(self.next)
            && unit.phase == UnitPhase::Settled
            && Some(&unit.key) != reconcile
        {
            if table.is_unsaved(self.next) {
                self.announced.push(self.next);
            }
            self.next += 1;
        }
        (kept, self.announced[kept..].to_vec())
    }
}

impl Schedule {
    /// Announces the patches that are next in plan order, if units still run.
    pub(super) fn integrate_ahead(&mut self, effects: &mut Vec<ScheduleEffect>) {
        let reopened = self.table.take_reopened();
        if !self.settings.integrates_ahead || self.settings.saves_between_units {
            return;
        }
        if self.stage != RunStage::Running {
            self.saving.ahead = AheadProgress::default();
            return;
        }
        // Nothing may be integrated after an abort.
        if self.patches_kept_reason().is_some() {
            return;
        }
        reopened.inspect(|at| self.saving.ahead.reopen(*at));
        let reconcile = self.reconcile.as_ref().map(|step| &step.key);
        let (kept, next) = self.saving.ahead.advance(&self.table, reconcile);
        let units = self.table.units();
        let units: Vec<_> = next
            .into_iter()
            .map(|at| (units[at].key.clone(), units[at].attempts))
            .collect();
        if !units.is_empty() {
            effects.push(ScheduleEffect::IntegrateAhead { kept, units });
        }
    }
}
