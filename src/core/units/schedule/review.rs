//! The review: the integrated result waits for a person before it is saved.

use super::{ReviewMode, RunStage, Schedule, ScheduleEffect};
use crate::tape::{
    UnitKey,
    note::{Amendment, RunEndOutcome, RunEnded},
};

impl Schedule {
    /// Requests a review of the integrated result, or saves it if the run has none.
    pub(super) fn review_or_save(&mut self, effects: &mut Vec<ScheduleEffect>) {
        match self.settings.reviews {
            ReviewMode::Off => self.save(effects),
            ReviewMode::Wait | ReviewMode::End => {
                self.stage = RunStage::RequestingReview;
                effects.push(ScheduleEffect::RequestReview);
            }
        }
    }

    pub(super) fn handle_review_requested(
        &mut self,
        waits: bool,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        if self.stage != RunStage::RequestingReview {
            return;
        }
        if !waits {
            return self.save(effects);
        }
        self.stage = RunStage::Reviewing;
        if self.settings.reviews == ReviewMode::End {
            self.leave_for_review(effects);
        }
    }

    /// Ends the run with changes that wait for a review.
    fn leave_for_review(&mut self, effects: &mut Vec<ScheduleEffect>) {
        self.saving.integrated_attempts.clear();
        self.stage = RunStage::Ended;
        effects.push(ScheduleEffect::EndRun(RunEnded {
            outcome: RunEndOutcome::WaitingApproval,
            ..self.run_summary()
        }));
    }

    /// Ends the wait for a review if a person requests more attempts, or the end of the run.
    pub(super) fn update_review(&mut self, effects: &mut Vec<ScheduleEffect>) {
        if self.stage != RunStage::Reviewing {
            return;
        }
        if self.halt.is_some() {
            self.leave_for_review(effects);
        } else if !self.table.is_idle() || self.is_reconcile_pending() {
            // Their patches and the others are integrated again, and the result is reviewed again.
            self.saving.integrated_attempts.clear();
            self.stage = RunStage::Running;
        }
    }

    pub(super) fn finish_review(
        &mut self,
        sent_back: Vec<(UnitKey, Amendment)>,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        // A client may be faster than the report that the request is recorded.
        if !matches!(self.stage, RunStage::RequestingReview | RunStage::Reviewing) {
            return;
        }
        self.stage = RunStage::Reviewing;
        if sent_back.is_empty() {
            self.save(effects);
            self.stage = RunStage::SavingReviewed;
            return;
        }
        for (unit, amendment) in sent_back {
            self.handle_retry_request(&unit, Some(amendment), effects);
        }
        if self.table.is_idle() && !self.is_reconcile_pending() {
            // None of them may start, for example because the budget is spent: the review is open again.
            self.review_or_save(effects);
        }
    }

    /// The result could not be saved, and waits for the end of its review again.
    pub(super) fn reopen_review(&mut self) {
        if self.stage == RunStage::SavingReviewed {
            self.stage = RunStage::Reviewing;
        }
    }

    /// The rest of a reviewed result is integrated again, on top of what is on the branch now, and waits for another review.
    pub(super) fn handle_partly_saved(
        &mut self,
        left: &[UnitKey],
        effects: &mut Vec<ScheduleEffect>,
    ) {
        if self.stage != RunStage::SavingReviewed {
            return;
        }
        self.saving
            .integrated_attempts
            .retain(|(unit, _)| !left.contains(unit));
        let saved = std::mem::take(&mut self.saving.integrated_attempts);
        self.table.mark_saved(&saved);
        if !self.integrate_for_review(effects) {
            // The end of the run was requested: a later one continues with the rest.
            self.leave_for_review(effects);
        }
    }

    /// After a save that failed although the result was reviewed, for example because the branch moved, integrates the
    /// patches again for another review. Returns false if the run does not wait for reviews.
    pub(super) fn integrate_for_review(&mut self, effects: &mut Vec<ScheduleEffect>) -> bool {
        let units = self.unsaved_attempts();
        let integrates =
            self.settings.reviews == ReviewMode::Wait && self.halt.is_none() && !units.is_empty();
        if integrates {
            self.saving.integrated_attempts.clear();
            self.stage = RunStage::Integrating;
            effects.push(ScheduleEffect::Integrate { units });
        }
        integrates
    }
}
