//! The effective result of a unit at a moment, whether this run or a prior run produced it: its verdict, the reason of
//! a failure, its output, and whether its changes are in the project. Pure.

use std::borrow::Cow;

use super::state::{AttemptState, RunState, UnitState, UnitStatus};
use crate::{
    tape::note::{AttemptOutcome, AttemptOutput, ReusedSuccess, StopReason, Verdict, VerdictCause},
    text::pluralize,
};

impl AttemptState {
    /// Why the attempt ended without full success; `None` if it succeeded or has no verdict yet.
    pub fn failure_reason(&self) -> Option<Cow<'_, str>> {
        let verdict = self.verdict.as_ref()?;
        match (verdict.outcome, verdict.stop) {
            (AttemptOutcome::Succeeded, StopReason::Budget) => {
                Some(self.budget_exhaustion().to_string().into())
            }
            (AttemptOutcome::Succeeded, _) => None,
            _ if verdict.cause == VerdictCause::ToolFailures => Some(
                self.deciding_failure
                    .as_deref()
                    .map_or_else(|| plain_reason(&verdict.reason), Cow::Borrowed),
            ),
            _ => Some(special_part_first(&verdict.reason)),
        }
    }
}

/// The reason of a verdict for a person. The tape has KTX's sentence about failed calls, which names the unit.
pub fn plain_reason(reason: &str) -> Cow<'_, str> {
    let calls = reason.split_once(" tool call(s) failed during WorkUnit ");
    match calls.and_then(|(count, _)| count.parse().ok()) {
        Some(count) => format!("{} failed", pluralize(count, "tool call")).into(),
        None => reason.into(),
    }
}

/// A reason with the part first that differs between failures, because tables cut the end:
/// `node: out of memory (exit code 137)` for an agent that ended without a result.
fn special_part_first(reason: &str) -> Cow<'_, str> {
    if let plain @ Cow::Owned(_) = plain_reason(reason) {
        return plain;
    }
    if let Some((with, finding)) = reason
        .strip_prefix("its changes are no longer valid")
        .and_then(|rest| rest.split_once(": "))
    {
        return format!("{finding} (no longer valid{with})").into();
    }
    let moved = || {
        let rest = reason.strip_prefix("Claude Code query ")?;
        if let Some(rest) = rest.strip_prefix("returned no result message (") {
            let (end, text) = rest.split_once(')')?;
            return Some(match text.strip_prefix(": ") {
                Some(text) => format!("{text} ({end})"),
                None => format!("no result: {end}"),
            });
        }
        Some(match rest.strip_prefix("failed (")?.split_once("): ") {
            Some((label, text)) => format!("{text} ({label})"),
            None => format!("query {rest}"),
        })
    };
    let known = || {
        let (beginning, label) = COMMON_BEGINNINGS
            .iter()
            .find(|(beginning, _)| reason.starts_with(beginning))?;
        let special = &reason[beginning.len()..];
        (!special.is_empty()).then(|| format!("{special} ({label})"))
    };
    moved()
        .or_else(known)
        .map_or(Cow::Borrowed(reason), Cow::Owned)
}

/// How many reasons begin, and the words for it behind what follows.
const COMMON_BEGINNINGS: [(&str, &str); 9] = [
    ("Claude Code query failed: ", "query failed"),
    ("Claude Code could not be started: ", "not started"),
    ("Claude Code did not start: ", "not started"),
    ("Claude Code runtime isolation failed: ", "isolation failed"),
    ("the tape could not be written: ", "tape not written"),
    (
        "its changes could not be saved as a patch: ",
        "patch not saved",
    ),
    (
        "wiki references target missing page(s): ",
        "missing wiki pages",
    ),
    ("validation failed for: ", "validation failed"),
    ("textual conflict in ", "textual conflict"),
];

impl RunState {
    /// Returns the verdict that applies to a unit: that of its newest attempt, or of the patch of a prior run. `None`
    /// before the first verdict.
    pub fn verdict<'a>(&'a self, unit: &'a UnitState) -> Option<&'a Verdict> {
        match unit.latest() {
            Some(attempt) => attempt.verdict.as_ref(),
            None => self
                .publication
                .prior_patches
                .get(&unit.key)?
                .verdict
                .as_deref(),
        }
    }

    /// Why a unit needs a person: why it ended without success, is silent or waits. The screen, the lines and the summary
    /// show this reason. For failed calls it is the call that decided, because the verdict only counts them.
    pub fn failure_reason<'a>(&'a self, unit: &'a UnitState) -> Cow<'a, str> {
        let attempt = unit.latest();
        match unit.status {
            UnitStatus::Silent => return "no output; the agent or a tool may hang".into(),
            UnitStatus::Held => {
                let call = unit.oldest_held_call();
                return call.map_or("waits for a decision".into(), |call| {
                    format!("{} waits for a decision", call.tool).into()
                });
            }
            _ => {}
        }
        match (
            attempt.and_then(AttemptState::failure_reason),
            self.verdict(unit),
        ) {
            (Some(reason), _) => reason,
            (None, Some(verdict)) => special_part_first(&verdict.reason),
            (None, None) if unit.status == UnitStatus::Interrupted => {
                "interrupted before it had a verdict".into()
            }
            (None, None) if unit.status == UnitStatus::Stopped => {
                "stopped before the first attempt".into()
            }
            (None, None) => {
                let failed_call = attempt.and_then(|attempt| attempt.deciding_failure.as_deref());
                failed_call.unwrap_or("no reason is on record").into()
            }
        }
    }

    /// What a person can do about a unit that needs one, if known.
    pub fn remedy<'a>(&'a self, unit: &'a UnitState) -> Option<&'a str> {
        match self.verdict(unit) {
            _ if unit.status == UnitStatus::Silent => Some("inspect it; stop it, then retry it"),
            _ if unit.status == UnitStatus::Held => Some("allow, edit or deny the call"),
            Some(verdict) => verdict.remedy.as_deref(),
            None if unit.status == UnitStatus::Stopped => Some("retry it when you are ready"),
            None => Some("retry it; its attempt has no verdict"),
        }
    }

    /// Returns the output of a unit that succeeded, if this run must put it into the project: the output of the unit's
    /// own attempt, or of a prior run's patch. Other work of prior runs is in the reports of those runs.
    pub fn work<'a>(&'a self, unit: &'a UnitState) -> Option<&'a AttemptOutput> {
        match unit.status {
            UnitStatus::Succeeded | UnitStatus::BudgetExhausted => {
                unit.latest()?.delivery.output.as_deref()
            }
            UnitStatus::Reused => self.prior_success(unit).map(|reused| &reused.output),
            _ => None,
        }
    }

    /// The output of a unit of an earlier run whose commits this run reviews, unless the unit worked again.
    pub fn committed_work<'a>(&'a self, unit: &'a UnitState) -> Option<&'a AttemptOutput> {
        let publication = &self.publication;
        let is_reviewed = publication.committed_run.is_some() && publication.review.is_some();
        let reused = self.prior_unit_summary(&unit.key)?.reused.as_ref()?;
        let is_committed = unit.status == UnitStatus::Reused && reused.pending_patch.is_none();
        (is_reviewed && is_committed).then_some(&reused.output)
    }

    /// True for a unit that succeeded, here or in the prior run, and whose changes are not in the project.
    pub fn is_unsaved(&self, unit: &UnitState) -> bool {
        match unit.status {
            UnitStatus::Succeeded | UnitStatus::BudgetExhausted => unit
                .latest()
                .is_some_and(|attempt| attempt.delivery.is_unsaved()),
            UnitStatus::Reused => {
                let is_saved = self
                    .publication
                    .prior_patches
                    .get(&unit.key)
                    .is_some_and(|taken| taken.is_saved);
                self.prior_success(unit).is_some() && !is_saved
            }
            _ => false,
        }
    }

    /// Returns the success of a prior run whose patch is not on the branch yet.
    fn prior_success(&self, unit: &UnitState) -> Option<&ReusedSuccess> {
        self.prior_unit_summary(&unit.key)?
            .reused
            .as_ref()
            .filter(|reused| reused.pending_patch.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasons of every cause, and what distinguishes them from others of it.
    const REASONS: &[(&str, &str)] = &[
        (
            "Claude Code query returned no result message (exit code 137): node: out of memory",
            "node: out of memory (exit code 137)",
        ),
        (
            "Claude Code query returned no result message (ended by SIGKILL)",
            "no result: ended by SIGKILL",
        ),
        (
            "Claude Code query failed (api_error): API Error: 400 no such option",
            "API Error: 400 no such option",
        ),
        ("Claude Code query failed: Overloaded", "Overloaded"),
        ("Claude Code query failed: ", "Claude Code query failed: "),
        (
            "Claude Code query failed (prompt_too_long)",
            "prompt_too_long",
        ),
        (
            "Claude Code query failed (error_during_execution): You've hit your 5-hour limit",
            "You've hit your 5-hour limit",
        ),
        (
            "Claude Code query failed (api_error): Invalid API key · Please run /login",
            "Invalid API key",
        ),
        ("Claude Code was interrupted (aborted_tools)", "interrupted"),
        (
            "Claude Code ended before it was done (aborted)",
            "ended before it was done",
        ),
        (
            "Claude Code could not be started: No such file or directory (os error 2)",
            "No such file or directory",
        ),
        (
            "Claude Code did not start: its release is not supported",
            "its release is not supported",
        ),
        (
            "Claude Code runtime isolation failed: tools=Bash,mcp__other__x",
            "tools=Bash,mcp__other__x",
        ),
        (
            "Claude Code wrote nothing for 5m (silence timeout)",
            "wrote nothing for 5m",
        ),
        (
            "Claude Code wrote a line longer than 64 MiB",
            "a line longer",
        ),
        (
            "Claude Code stopped reading: more than 1 MiB of input is unread",
            "stopped reading",
        ),
        (
            "the attempt took longer than 30m (unit timeout)",
            "longer than 30m",
        ),
        (
            "a call waited for a decision for 1h (approval timeout)",
            "waited for a decision",
        ),
        ("stopped before it was done", "stopped"),
        (
            "the tape could not be written: No space left on device",
            "No space left on device",
        ),
        (
            "prompt too large for WorkUnit a: 240001 chars exceeds 240000",
            "prompt too large",
        ),
        ("the model wrote no message", "no message"),
        (
            "read none of its raw files and decided nothing",
            "read none of its raw files",
        ),
        (
            "2 of 3 raw files unread: a.md, b.md",
            "2 of 3 raw files unread",
        ),
        (
            "1 tool call(s) failed during WorkUnit a",
            "1 tool call failed",
        ),
        (
            "wiki references target missing page(s): orders -> churn",
            "orders -> churn",
        ),
        (
            "validation failed for: semantic-layer/wh/orders.yaml: no column `amount`",
            "semantic-layer/wh/orders.yaml",
        ),
        (
            "textual conflict in wiki/global/orders.md with docs-a",
            "wiki/global/orders.md",
        ),
        (
            "its changes are no longer valid with the changes of docs-a: orders: no column `amount`",
            "orders: no column `amount`",
        ),
        (
            "its changes could not be saved as a patch: Permission denied",
            "Permission denied",
        ),
    ];

    #[test]
    fn reasons_show_what_distinguishes_them_in_40_columns() {
        for (reason, distinguishing) in REASONS {
            let shown = special_part_first(reason);
            let cut: String = shown.chars().take(39).collect();
            assert!(cut.contains(distinguishing), "{cut:?}: {distinguishing:?}");
        }
    }
}
