//! What a run may cost, and what it has cost. Knows no units.

/// The money of a run, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RunBudget {
    budget: Option<f64>,
    spent: f64,
}

impl RunBudget {
    /// A run that may cost so much; `None` for anything.
    pub(super) fn new(budget: Option<f64>) -> Self {
        Self { budget, spent: 0.0 }
    }

    /// By now the run has cost so much.
    pub(super) fn set_spent(&mut self, dollars: f64) {
        self.spent = dollars;
    }

    /// The sentence about a budget that is spent.
    pub(super) fn exhausted_message(&self) -> Option<String> {
        let budget = self.budget.filter(|budget| self.spent >= *budget)?;
        Some(format!("the run's budget of ${budget:.2} is spent (${:.2}): nothing more starts", self.spent))
    }
}
