//! Counts of failed, denied and declined calls of an attempt.

use std::borrow::Cow;

use super::AttemptFold;
use crate::{actions::label::short_name, run::state::RunView, units::error_groups::headline};

impl AttemptFold {
    /// Counts a failed call once, although several lines may report it.
    pub(in crate::run::fold) fn count_failure(&mut self, view: &mut RunView, id: Option<&str>) {
        if id.is_none_or(|id| self.reducer.calls_mut().mark_failed(id)) {
            self.attempt(view).counts.failures += 1;
        }
    }

    /// A person denied a call: it counts as denied, and the agent's error about it does not count as a failure.
    pub(in crate::run::fold) fn record_refusal(&mut self, view: &mut RunView, id: &str) {
        if self.reducer.calls_mut().mark_denied(id) {
            self.attempt(view).counts.denials += 1;
        }
        if self.reducer.calls_mut().mark_failed(id) {
            self.attempt(view).counts.refused_by_person += 1;
        }
    }

    /// Counts a call that its tool declined.
    pub(in crate::run::fold) fn record_decline(&mut self, view: &mut RunView, id: Option<&str>) {
        if id.is_none_or(|id| self.reducer.calls_mut().mark_declined(id)) {
            self.attempt(view).counts.declined += 1;
        }
    }

    /// Marks calls without a result as aborted, because the attempt is being ended.
    pub(in crate::run::fold) fn abort_open_calls(&mut self) {
        self.reducer.calls_mut().mark_interrupted();
    }

    /// Stores the error of the first failure.
    pub(in crate::run::fold) fn record_first_failure<'a>(
        &self,
        view: &mut RunView,
        tool: Option<&str>,
        error: impl FnOnce() -> Cow<'a, str>,
    ) {
        const KEPT: usize = 300;
        let attempt = self.attempt(view);
        if attempt.first_failure.is_none() {
            let error = error();
            let line = match headline(&error) {
                line if line.is_empty() => "no error text".into(),
                line => line,
            };
            let tool = tool.map(|tool| format!("{}: ", short_name(tool))).unwrap_or_default();
            attempt.first_failure = Some(tool.chars().chain(line.chars()).take(KEPT).collect::<String>().into());
        }
    }
}
