//! What of a unit counts at a moment, whichever run did it: its verdict, what it left on record, and whether what it wrote
//! is in the project. Pure.

use super::state::{AttemptState, RunState, UnitState, UnitStatus};
use crate::tape::note::{AttemptOutput, ReusedSuccess, Verdict};

impl RunState {
    /// The verdict that holds for a unit: of its newest attempt, or of the patch that an earlier run left. `None` before
    /// there is one.
    pub fn verdict<'a>(&'a self, unit: &'a UnitState) -> Option<&'a Verdict> {
        match unit.latest() {
            Some(attempt) => attempt.verdict.as_ref(),
            None => self.prior_patches.get(&unit.key)?.verdict.as_deref(),
        }
    }

    /// What a unit that succeeded left on record, if this run has to put it into the project: its own attempt's, or that of
    /// an earlier run's patch. Whatever else was done earlier stands in the report of then.
    pub fn work<'a>(&'a self, unit: &'a UnitState) -> Option<&'a AttemptOutput> {
        match unit.status {
            UnitStatus::Succeeded | UnitStatus::BudgetExhausted => unit.latest()?.work.as_deref(),
            UnitStatus::Reused => self.prior_success(unit).map(|reused| &reused.work),
            _ => None,
        }
    }

    /// True for a unit that succeeded, here or in the run that this one continues, while what it wrote never reached the
    /// project.
    pub fn is_unsaved(&self, unit: &UnitState) -> bool {
        match unit.status {
            UnitStatus::Succeeded | UnitStatus::BudgetExhausted => unit.latest().is_some_and(AttemptState::is_unsaved),
            UnitStatus::Reused => {
                let is_saved = self.prior_patches.get(&unit.key).is_some_and(|taken| taken.saved);
                self.prior_success(unit).is_some() && !is_saved
            }
            _ => false,
        }
    }

    /// The success of an earlier run whose patch is still to be put on the branch.
    fn prior_success(&self, unit: &UnitState) -> Option<&ReusedSuccess> {
        self.prior_unit_summary(&unit.key)?.reused.as_ref().filter(|reused| reused.patch.is_some())
    }
}
