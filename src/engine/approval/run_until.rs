//! Conditions for running a held unit: the call that meets one is the next call that waits. Pure.

use ingestdeck_agent::attempt::ApprovalRequest;
use ingestdeck_core::control::BreakCondition;

/// Alternative conditions: one of them must be met.
#[derive(Clone, Debug)]
pub(super) struct RunUntil {
    conditions: Vec<BreakCondition>,
    /// Failed calls of the attempt when the unit was released to run.
    failures: usize,
}

impl RunUntil {
    /// Starts at a moment at which `failures` calls of the attempt had failed.
    pub(super) fn new(conditions: Vec<BreakCondition>, failures: usize) -> Self {
        Self {
            conditions,
            failures,
        }
    }

    /// Resets the count for a new attempt.
    pub(super) fn reset_failures(&mut self) {
        self.failures = 0;
    }

    /// Returns the condition that `call` meets when the run has cost `spent` US dollars.
    pub(super) fn met_condition(
        &self,
        call: &ApprovalRequest,
        spent: f64,
    ) -> Option<&BreakCondition> {
        self.conditions.iter().find(|condition| match condition {
            BreakCondition::Failure => call.earlier_failures > self.failures,
            BreakCondition::Cost(dollars) => spent >= *dollars,
            BreakCondition::Tool(_) | BreakCondition::Path(_) => {
                condition.matches_call_input(&call.tool, &call.input)
            }
            // A waiting call does not measure the silence before it, and the screen does not offer this condition.
            BreakCondition::Silence(_) => false,
        })
    }

    /// The conditions as a person types them, separated by commas.
    pub(super) fn to_text(&self) -> String {
        self.conditions
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    }
}
