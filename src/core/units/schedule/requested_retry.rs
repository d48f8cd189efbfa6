//! Attempts that a person requests again.

use super::{
    HaltReason, Schedule, ScheduleEffect, push_ending_message, push_message, unit_table::UnitPhase,
};
use crate::tape::{
    Note, UnitKey,
    note::{Amendment, Severity},
};

impl Schedule {
    pub(super) fn handle_retry_request(
        &mut self,
        key: &UnitKey,
        amendment: Option<Amendment>,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        let Some(at) = self.table.find(key) else {
            return;
        };
        let unit = &self.table.units()[at];
        match unit.phase {
            // The unit runs anyway; only its input may change.
            UnitPhase::Queued | UnitPhase::ReconcilePending if amendment.is_none() => {
                push_message(
                    Severity::Info,
                    format!("{key} is queued: it runs without a retry"),
                    effects,
                );
            }
            UnitPhase::InFlight { .. } => {
                push_message(
                    Severity::Warning,
                    format!("{key} still runs: stop it before you retry it"),
                    effects,
                );
            }
            _ if self.is_ending() => push_ending_message(effects),
            _ if self.stop_if_over_budget(effects) => {}
            UnitPhase::Queued
            | UnitPhase::RetryPending(_)
            | UnitPhase::ReconcilePending
            | UnitPhase::Settled => self.queue_again(at, amendment, effects),
        }
    }

    pub(super) fn retry_failed(&mut self, effects: &mut Vec<ScheduleEffect>) {
        let mut failed = self.table.retryable_units();
        // Units that did not cause the early end of the run still have to run.
        if !self.table.has_failed()
            || matches!(
                self.halt,
                Some(HaltReason::LimitReached | HaltReason::Unusable)
            )
        {
            failed.extend(self.table.unattempted_units());
        }
        failed.extend(self.unattempted_reconcile());
        failed.sort_unstable();
        failed.dedup();
        if self.is_ending() && !failed.is_empty() {
            return push_ending_message(effects);
        }
        // Saving costs no money.
        if !failed.is_empty() && self.stop_if_over_budget(effects) {
            failed.clear();
        }
        if failed.is_empty() {
            self.retry_save();
        }
        for at in failed {
            self.queue_again(at, None, effects);
        }
    }

    /// Returns true, and records a message, if the budget is spent: nothing may start.
    fn stop_if_over_budget(&self, effects: &mut Vec<ScheduleEffect>) -> bool {
        let empty = self.budget.exhausted_message();
        let is_broke = empty.is_some();
        if let Some(sentence) = empty {
            push_message(
                Severity::Warning,
                format!("{sentence}; resume the run with a new budget"),
                effects,
            );
        }
        is_broke
    }

    fn queue_again(
        &mut self,
        at: usize,
        amendment: Option<Amendment>,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        let phase = self.phase_for(at);
        self.reopen();
        self.table.restart(at, amendment, phase);
        let unit = &self.table.units()[at];
        let amendment = unit.amendment.as_deref().cloned();
        effects.push(unit.note_effect(Note::RetryRequested {
            next: unit.attempts + 1,
            amendment,
        }));
    }
}
