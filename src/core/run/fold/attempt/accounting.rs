//! The accounting of an attempt in the state of its run.

use std::borrow::Cow;

use super::AttemptFold;
use crate::{
    actions::label::short_name,
    run::{
        attempt_reducer::AttemptReducer,
        state::{AttemptCounts, RunView},
    },
    units::error_groups::headline,
};

impl AttemptFold {
    /// Records something about calls that no line reports.
    pub(in crate::run::fold) fn record_calls(
        &mut self,
        view: &mut RunView,
        record: impl FnOnce(&mut AttemptReducer),
    ) {
        record(&mut self.reducer);
        self.copy_counts(view);
    }

    /// Marks calls without a result as cut short, because the attempt is being ended.
    pub(in crate::run::fold) fn mark_interrupted(&mut self) {
        self.reducer.mark_interrupted();
    }

    /// Copies the accounting to the state.
    pub(super) fn copy_counts(&self, view: &mut RunView) {
        let messages_sent = self.attempt(view).counts.messages_sent;
        let counts = AttemptCounts {
            messages_sent,
            ..self.reducer.counts()
        };
        let known = std::mem::replace(&mut self.attempt(view).counts, counts);
        view.state.spent_usd +=
            counts.cost_usd.unwrap_or_default() - known.cost_usd.unwrap_or_default();
    }

    /// Stores the error of the first failure. The end of the attempt replaces it by the one that decided.
    pub(in crate::run::fold) fn record_failure_error<'a>(
        &self,
        view: &mut RunView,
        tool: Option<&str>,
        error: impl FnOnce() -> Cow<'a, str>,
    ) {
        const KEPT: usize = 300;
        let attempt = self.attempt(view);
        if attempt.deciding_failure.is_none() {
            let error = error();
            let line = match headline(&error) {
                line if line.is_empty() => "no error text".into(),
                line => line,
            };
            let tool = tool.map(short_name).unwrap_or_default();
            // The name of the tool is not repeated.
            let refusal = line
                .strip_prefix(tool)
                .and_then(|rest| rest.strip_prefix(" was not called: "));
            let line = refusal.unwrap_or(&line);
            let names_tool = line
                .strip_prefix(tool)
                .is_some_and(|rest| rest.starts_with(' '));
            let tool = if tool.is_empty() || names_tool {
                String::new()
            } else {
                format!("{tool}: ")
            };
            attempt.deciding_failure = Some(
                tool.chars()
                    .chain(line.chars())
                    .take(KEPT)
                    .collect::<String>()
                    .into(),
            );
        }
    }
}
