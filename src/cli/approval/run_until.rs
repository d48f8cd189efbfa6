//! What a held unit runs to: the call that meets it is the next one that waits. Pure.

use crate::{claude::unit::ApprovalRequest, tui::breakpoint::Condition};

/// Conditions of which one is to be met.
#[derive(Clone, Debug)]
pub(super) struct RunUntil {
    conditions: Vec<Condition>,
    /// Calls of the attempt that had failed when the unit was let run.
    failures: usize,
}

impl RunUntil {
    /// Runs on from a moment at which so many calls of the attempt had failed.
    pub(super) fn new(conditions: Vec<Condition>, failures: usize) -> Self {
        Self { conditions, failures }
    }

    /// Another attempt begins, and none of its calls has failed.
    pub(super) fn reset_failures(&mut self) {
        self.failures = 0;
    }

    /// The condition that is met when `call` is about to be made and the run has cost so much.
    pub(super) fn met_condition(&self, call: &ApprovalRequest, spent: f64) -> Option<&Condition> {
        self.conditions.iter().find(|condition| match condition {
            Condition::Failure => call.earlier_failures > self.failures,
            Condition::Cost(dollars) => spent >= *dollars,
            Condition::Tool(_) | Condition::Path(_) => condition.matches_call_input(&call.tool, &call.input),
            // A call that waits says nothing about the silence before it; nobody is offered this.
            Condition::Silence(_) => false,
        })
    }

    /// As a person types it, several parted by commas.
    pub(super) fn to_text(&self) -> String {
        self.conditions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}
