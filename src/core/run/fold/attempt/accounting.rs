//! The accounting of an attempt in the state of its run.

use std::borrow::Cow;

use super::AttemptFold;
use crate::{
    actions::label::short_name,
    run::{
        attempt_reducer::AttemptReducer,
        state::{AttemptCounts, CostReport, RunView},
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
        if self.reducer.has_total() && counts.cost_usd > known.cost_usd {
            self.cover_sub_agents(view);
        }
    }

    /// The session reported a total, which includes its sub-agents so far.
    fn cover_sub_agents(&self, view: &mut RunView) {
        if !view.sub_agents.has_attempts || self.attempt(view).setup.is_cost_included() {
            return;
        }
        let attempts = view
            .state
            .units
            .iter_mut()
            .flat_map(|unit| &mut unit.attempts);
        for attempt in attempts.filter(|attempt| attempt.setup.is_cost_included()) {
            attempt.setup.cost_report = CostReport::ReportedSession;
        }
    }

    /// Stores the error of the first failure. The end of the attempt replaces it by the one that decided.
    pub(in crate::run::fold) fn record_failure_error<'a>(
        &self,
        view: &mut RunView,
        tool: Option<&str>,
        error: impl FnOnce() -> Cow<'a, str>,
    ) {
        let attempt = self.attempt(view);
        if attempt.deciding_failure.is_none() {
            let tool = tool.map(short_name).unwrap_or_default();
            attempt.deciding_failure = Some(failure_text(tool, &error()).into());
        }
    }
}

/// The error of a call in one line: what is wrong first, then the tool and what it was called for, because tables cut the
/// end. Lists of all fields of a tool are left out.
fn failure_text(tool: &str, error: &str) -> String {
    const KEPT: usize = 300;
    const MAX_SUBJECT_CHARS: usize = 100;
    let line = headline(error);
    let line = line.split(". Its fields are: ").next().unwrap_or_default();
    let (about, reason) = split_subject(tool, line);
    if reason.is_empty() {
        return match tool {
            "" => "no error text".to_owned(),
            tool => format!("no error text ({tool})"),
        };
    }
    let about: String = about.chars().take(MAX_SUBJECT_CHARS).collect();
    // The name of the tool is not repeated.
    let names_tool = tool.is_empty() || reason.split_whitespace().any(|word| word == tool);
    let at_end = match (names_tool, about.as_str()) {
        (true, "") => String::new(),
        (true, about) => format!(" ({about})"),
        (false, "") => format!(" ({tool})"),
        (false, about) => format!(" ({tool} {about})"),
    };
    let room = KEPT.saturating_sub(at_end.chars().count());
    reason
        .chars()
        .take(room)
        .chain(at_end.chars())
        .take(KEPT)
        .collect()
}

/// Splits the error of a tool into what it is about, and what is wrong with it.
fn split_subject<'l>(tool: &str, line: &'l str) -> (&'l str, &'l str) {
    let denial = "Permission to use ";
    if line.starts_with(denial) && line.contains(" has been denied") {
        return ("", "permission denied");
    }
    let refused = line
        .strip_prefix(tool)
        .and_then(|rest| rest.strip_prefix(" was not called: "));
    if let Some(reason) = refused {
        return ("", reason);
    }
    let source = line.strip_prefix("Source ").and_then(|rest| {
        let (name, rest) = rest.split_once(" was NOT saved, ")?;
        Some((name.trim_matches('*'), rest.split_once(": ")?.1))
    });
    let page = || {
        let rest = line.strip_prefix("Wiki page ")?;
        let (name, reason) = rest.split_once(" was not changed: ")?;
        Some((name, reason.trim_end_matches('.')))
    };
    let (about, reason) = source.or_else(page).unwrap_or(("", line));
    let repeated = reason
        .strip_prefix(about.trim_matches('`'))
        .and_then(|rest| rest.strip_prefix(": "));
    (about, repeated.unwrap_or(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_before_the_tool() {
        let texts = [
            (
                "wiki_write",
                "Wiki page `a/b` was not changed: a key has no slash.",
            ),
            (
                "wiki_write",
                "wiki_write was not called: `text` is not a field. Its fields are: key (text), content.",
            ),
            (
                "sl_write_source",
                "Source **orders** was NOT saved, 2 error(s):\n- orders: no grain\n- more",
            ),
            (
                "Bash",
                "Permission to use Bash has been denied because Claude Code is running in don't ask mode.",
            ),
            ("read_raw_file", "no file raw/b.md"),
            ("Bash", "Bash cannot start"),
            ("", "no connection"),
            ("wiki_search", ""),
            ("", ""),
        ];
        let shown = texts.map(|(tool, error)| failure_text(tool, error));
        assert_eq!(
            shown,
            [
                "a key has no slash (wiki_write `a/b`)",
                "`text` is not a field (wiki_write)",
                "no grain (sl_write_source orders)",
                "permission denied (Bash)",
                "no file raw/b.md (read_raw_file)",
                "Bash cannot start",
                "no connection",
                "no error text (wiki_search)",
                "no error text",
            ]
        );
        let name = format!("Wiki page `{}` was not changed: too long.", "k".repeat(400));
        assert!(failure_text("wiki_write", &name).starts_with("too long (wiki_write `kkk"));
        let long = failure_text("wiki_write", &"x".repeat(1000));
        assert!(long.chars().count() == 300 && long.ends_with(" (wiki_write)"));
    }
}
