//! The effective result of a unit at a moment, whether this run or a prior run produced it: its verdict, its output,
//! and whether its changes are in the project. Pure.

use super::state::{RunState, UnitState, UnitStatus};
use crate::tape::note::{AttemptOutput, ReusedSuccess, Verdict};

impl RunState {
    /// Returns the verdict that applies to a unit: that of its newest attempt, or of the patch of a prior run. `None`
    /// before the first verdict.
    pub(crate) fn verdict<'a>(&'a self, unit: &'a UnitState) -> Option<&'a Verdict> {
        match unit.latest() {
            Some(attempt) => attempt.verdict.as_ref(),
            None => self.publication.prior_patches.get(&unit.key)?.verdict.as_deref(),
        }
    }

    /// Returns the output of a unit that succeeded, if this run must put it into the project: the output of the unit's
    /// own attempt, or of a prior run's patch. Other work of prior runs is in the reports of those runs.
    pub(crate) fn work<'a>(&'a self, unit: &'a UnitState) -> Option<&'a AttemptOutput> {
        match unit.status {
            UnitStatus::Succeeded | UnitStatus::BudgetExhausted => unit.latest()?.delivery.output.as_deref(),
            UnitStatus::Reused => self.prior_success(unit).map(|reused| &reused.output),
            _ => None,
        }
    }

    /// True for a unit that succeeded, here or in the prior run, and whose changes are not in the project.
    pub(crate) fn is_unsaved(&self, unit: &UnitState) -> bool {
        match unit.status {
            UnitStatus::Succeeded | UnitStatus::BudgetExhausted => {
                unit.latest().is_some_and(|attempt| attempt.delivery.is_unsaved())
            }
            UnitStatus::Reused => {
                let is_saved = self.publication.prior_patches.get(&unit.key).is_some_and(|taken| taken.is_saved);
                self.prior_success(unit).is_some() && !is_saved
            }
            _ => false,
        }
    }

    /// Returns the success of a prior run whose patch is not on the branch yet.
    fn prior_success(&self, unit: &UnitState) -> Option<&ReusedSuccess> {
        self.prior_unit_summary(&unit.key)?.reused.as_ref().filter(|reused| reused.pending_patch.is_some())
    }
}
