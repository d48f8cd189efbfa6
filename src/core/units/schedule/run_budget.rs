//! The run budget and the cost of the run. The module must not depend on units.

/// The run budget and the amount spent, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RunBudget {
    budget: Option<f64>,
    spent: f64,
}

impl RunBudget {
    /// `None` for no limit.
    pub(super) fn new(budget: Option<f64>) -> Self {
        Self { budget, spent: 0.0 }
    }

    /// Changes the limit, and returns the previous one.
    pub(super) fn replace(&mut self, budget: Option<f64>) -> Option<f64> {
        std::mem::replace(&mut self.budget, budget)
    }

    /// Sets the cost of the run so far, in US dollars.
    pub(super) fn set_spent(&mut self, dollars: f64) {
        self.spent = dollars;
    }

    /// The message about a spent budget; `None` if it is not spent.
    pub(super) fn exhausted_message(&self) -> Option<String> {
        let budget = self.budget.filter(|budget| self.spent >= *budget)?;
        Some(format!(
            "the run's budget of ${budget:.2} is spent (${:.2}): nothing more starts",
            self.spent
        ))
    }
}
