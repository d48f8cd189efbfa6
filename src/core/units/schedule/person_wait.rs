//! Waits that only a person can end. Each has a limit, which the driver measures: a run must not wait forever for a
//! person who is gone.

use super::{HaltReason, ReviewMode, RunStage, Schedule, ScheduleEffect, push_message};
use crate::tape::{Millis, UnitKey, note::Severity};

/// What a run waits for while nothing else can happen in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonWait {
    /// The end of a pause, or a decision about a unit that has used its turns.
    Decision,
    /// The review of the integrated result.
    Review,
}

/// What a person decided about the run as a whole, and what it needs a person for.
#[derive(Clone, Debug, Default)]
pub(super) struct PersonState {
    pub(super) is_paused: bool,
    /// Units about whose results the run waits for a decision, as reported last.
    pub(super) awaited_decisions: Vec<UnitKey>,
    /// A call waited for a decision for too long, so its unit was stopped.
    pub(super) is_missing: bool,
}

impl Schedule {
    /// The wait that only a person can end, if there is one.
    pub fn person_wait(&self) -> Option<PersonWait> {
        // A pause counts from its request: attempts that still run may wait for a decision as long, and must not add to it.
        let waits = self.person.is_paused
            || !self.person.awaited_decisions.is_empty() && self.table.in_flight_count() == 0;
        match self.stage {
            RunStage::Reviewing if self.settings.reviews == ReviewMode::Wait => {
                Some(PersonWait::Review)
            }
            RunStage::Running | RunStage::Reconciling if waits && self.halt.is_none() => {
                Some(PersonWait::Decision)
            }
            _ => None,
        }
    }

    /// Ends the run after it has waited for `limit`. Its results are kept.
    pub(super) fn end_person_wait(
        &mut self,
        wait: PersonWait,
        limit: Millis,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        if self.person_wait() != Some(wait) {
            return;
        }
        let text = match wait {
            PersonWait::Decision => format!(
                "the run waited for a decision for {limit} (approval timeout): it ends and can be resumed; `approval_timeout` in [ingest] sets the limit"
            ),
            PersonWait::Review => format!(
                "the changes waited for a review for {limit} without a screen: the run ends, and `ingestdeck review` continues with all decisions; `review_idle_timeout` in [ingest] sets the limit"
            ),
        };
        push_message(Severity::Warning, text, effects);
        self.halt(HaltReason::LimitReached, effects);
    }
}
