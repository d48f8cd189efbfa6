//! The effective result of a unit at a moment, whether this run or a prior run produced it: its verdict, the reason of
//! a failure, its output, and whether its changes are in the project. Pure.

use std::borrow::Cow;

use super::state::{AttemptState, RunState, UnitState, UnitStatus};
use crate::tape::note::{
    AttemptOutcome, AttemptOutput, ReusedSuccess, StopReason, Verdict, VerdictCause,
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
                    .unwrap_or(&verdict.reason)
                    .into(),
            ),
            _ => Some(special_part_first(&verdict.reason)),
        }
    }
}

/// A reason with the part first that differs between failures, because tables cut the end:
/// `node: out of memory (exit code 137)` for an agent that ended without a result.
fn special_part_first(reason: &str) -> Cow<'_, str> {
    // The name of the unit is next to the reason.
    if let Some((what, _)) = reason.split_once(" during WorkUnit ")
        && what.ends_with(" tool call(s) failed")
    {
        return what.into();
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
        let (label, text) = rest.strip_prefix("failed (")?.split_once("): ")?;
        Some(format!("{text} ({label})"))
    };
    moved().map_or(Cow::Borrowed(reason), Cow::Owned)
}

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
    pub(crate) fn remedy<'a>(&'a self, unit: &'a UnitState) -> Option<&'a str> {
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

    #[test]
    fn reason_begins_with_what_is_special() {
        let shown = [
            "Claude Code query returned no result message (exit code 137): node: out of memory",
            "Claude Code query returned no result message (ended by SIGKILL)",
            "Claude Code query failed (api_error): API Error: 400 no",
            "Claude Code query failed (prompt_too_long)",
            "1 tool call(s) failed during WorkUnit a",
        ]
        .map(special_part_first);
        assert_eq!(
            shown,
            [
                "node: out of memory (exit code 137)",
                "no result: ended by SIGKILL",
                "API Error: 400 no (api_error)",
                "Claude Code query failed (prompt_too_long)",
                "1 tool call(s) failed",
            ]
        );
    }
}
