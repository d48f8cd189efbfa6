//! What of a unit counts at a moment, whichever run did it: its verdict, what it left on record, and whether what it wrote
//! is in the project. Pure.

use super::state::{Attempt, RunState, Unit, UnitStatus};
use crate::tape::note::{Reused, Verdict, Work};

impl RunState {
    /// The verdict that holds for a unit: of its newest attempt, or of the patch that an earlier run left. `None` before
    /// there is one.
    pub fn verdict<'a>(&'a self, unit: &'a Unit) -> Option<&'a Verdict> {
        match unit.latest() {
            Some(attempt) => attempt.verdict.as_ref(),
            None => self.taken_over.get(&unit.key)?.verdict.as_deref(),
        }
    }

    /// What a unit that succeeded left on record, if this run has to put it into the project: its own attempt's, or that of
    /// an earlier run's patch. Whatever else was done earlier stands in the report of then.
    pub fn work<'a>(&'a self, unit: &'a Unit) -> Option<&'a Work> {
        match unit.status {
            UnitStatus::Succeeded | UnitStatus::Budget => unit.latest()?.work.as_deref(),
            UnitStatus::Reused => self.takes_over(unit).map(|reused| &reused.work),
            _ => None,
        }
    }

    /// True for a unit that succeeded, here or in the run that this one continues, while what it wrote never reached the
    /// project.
    pub fn is_unsaved(&self, unit: &Unit) -> bool {
        match unit.status {
            UnitStatus::Succeeded | UnitStatus::Budget => unit.latest().is_some_and(Attempt::is_unsaved),
            UnitStatus::Reused => {
                let is_saved = self.taken_over.get(&unit.key).is_some_and(|taken| taken.saved);
                self.takes_over(unit).is_some() && !is_saved
            }
            _ => false,
        }
    }

    /// The success of an earlier run whose patch is still to be put on the branch.
    fn takes_over(&self, unit: &Unit) -> Option<&Reused> {
        self.earlier(&unit.key)?.reused.as_ref().filter(|reused| reused.patch.is_some())
    }
}
