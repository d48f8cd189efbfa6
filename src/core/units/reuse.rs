//! Decides which units of a prior run are reused, and why the others run again. The module is pure: it must not depend
//! on tapes or files.

use std::fmt;

use crate::tape::{
    RunId,
    note::{AttemptOutput, ContentDigests, PriorUnitSummary, ReusedSuccess},
};

/// State of a unit when its run ended or was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorOutcome<'a> {
    /// Its last attempt succeeded.
    Succeeded,
    /// Its last attempt spent its turn or cost budget before the model was done. Its writes may be in the project.
    OutOfBudget(BudgetExhaustion),
    /// Its last attempt failed, for this reason.
    Failed(&'a str),
    /// A person stopped it.
    Stopped,
    /// An attempt was running at the end of the tape.
    Interrupted,
    /// It waited for a slot or for a retry.
    Pending,
}

/// A budget of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpentBudget {
    Turns,
    Cost,
}

/// The budget that an attempt spent before the model was done. `turns` is zero if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetExhaustion {
    /// Number of turns of the attempt.
    pub turns: u32,
    /// Maximum number of turns.
    pub allowed: Option<u32>,
    /// The budget that the agent named, if it did.
    pub reported: Option<SpentBudget>,
}

/// `ran out of turns (20/20)`, as the end of a sentence.
impl fmt::Display for BudgetExhaustion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            turns,
            allowed,
            reported,
        } = *self;
        match (reported, allowed) {
            (None | Some(SpentBudget::Turns), Some(allowed)) if turns >= allowed => {
                write!(f, "ran out of turns ({turns}/{allowed})")
            }
            (Some(SpentBudget::Turns), _) => f.write_str("ran out of turns"),
            (Some(SpentBudget::Cost), _) => f.write_str("spent its cost budget"),
            (None, Some(_)) if turns > 0 => f.write_str("spent its cost budget"),
            (None, _) => f.write_str("ran out of turns or spent its cost budget"),
        }
    }
}

/// A unit of a prior run.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorUnit<'a> {
    /// The run that attempted it last.
    pub run: RunId,
    pub outcome: PriorOutcome<'a>,
    /// Its newest attempt; 0 if there was none.
    pub attempt: u32,
    /// Digests of its inputs in that run.
    pub content: Option<&'a ContentDigests>,
    /// Its patch, relative to the project, if no commit contains it.
    pub patch: Option<&'a str>,
    pub work: Option<&'a AttemptOutput>,
}

/// What happens to a unit in the run that continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReuseDecision {
    Reuse(Box<ReusedSuccess>),
    /// The unit runs, for this reason.
    Run(String),
}

/// Decides about a unit whose inputs are `now`; `None` if they are unknown. Only a success with the same inputs is
/// reused.
pub fn decide_reuse(past: &PriorUnit<'_>, now: Option<&ContentDigests>) -> ReuseDecision {
    let run = past.run.short();
    match past.outcome {
        PriorOutcome::Succeeded => {}
        PriorOutcome::OutOfBudget(spent) => {
            return ReuseDecision::Run(format!("{spent} in run {run}"));
        }
        PriorOutcome::Failed(reason) => {
            return ReuseDecision::Run(format!("failed in run {run}: {reason}"));
        }
        PriorOutcome::Stopped => return ReuseDecision::Run(format!("was stopped in run {run}")),
        PriorOutcome::Interrupted => {
            return ReuseDecision::Run(format!("was interrupted in run {run}"));
        }
        PriorOutcome::Pending => return ReuseDecision::Run(format!("did not start in run {run}")),
    }
    match (past.content, now) {
        (None, _) => ReuseDecision::Run(format!("run {run} did not record its inputs")),
        (Some(_), None) => ReuseDecision::Run(format!(
            "succeeded in run {run}, but its files cannot be compared now"
        )),
        (Some(then), Some(now)) if then.combined == now.combined => {
            let patch = past.patch.map(str::to_owned);
            // The report of the prior run already lists what is on the branch.
            let work = past
                .work
                .filter(|_| patch.is_some())
                .cloned()
                .unwrap_or_default();
            ReuseDecision::Reuse(Box::new(ReusedSuccess {
                attempt: past.attempt,
                is_budget_exhausted: false,
                content: now.clone(),
                pending_patch: patch,
                output: work,
            }))
        }
        (Some(then), Some(now)) => ReuseDecision::Run(format!(
            "succeeded in run {run}, but {}",
            describe_change(then, now)
        )),
    }
}

/// Merges the summary of one more run of a unit into that of the runs before it.
pub(crate) fn merge_prior(
    before: Option<&PriorUnitSummary>,
    mut last: PriorUnitSummary,
) -> PriorUnitSummary {
    if let Some(before) = before {
        last.attempts = last.attempts.saturating_add(before.attempts);
        last.cost_usd = match (before.cost_usd, last.cost_usd) {
            (Some(before), Some(last)) => Some(before + last),
            (known, None) | (None, known) => known,
        };
    }
    last
}

/// What changed, most informative part first, as the end of a sentence.
fn describe_change(then: &ContentDigests, now: &ContentDigests) -> String {
    let model = |content: &ContentDigests| {
        content
            .model
            .clone()
            .unwrap_or_else(|| "the default".into())
    };
    let mut changed = Vec::new();
    if then.algorithm_version != now.algorithm_version {
        changed.push("it was recorded by another version of this program".to_owned());
    } else {
        let parts = [
            (then.raw_files != now.raw_files, "its raw files changed"),
            (
                then.dependencies != now.dependencies,
                "its dependencies changed",
            ),
            (then.prompt != now.prompt, "its prompt or skills changed"),
            (then.tools != now.tools, "its tools changed"),
        ];
        changed.extend(
            parts
                .into_iter()
                .filter(|(differs, _)| *differs)
                .map(|(_, words)| words.to_owned()),
        );
        if then.model != now.model {
            changed.push(format!(
                "its model changed from {} to {}",
                model(then),
                model(now)
            ));
        }
    }
    if changed.is_empty() {
        "it is a different unit now".to_owned()
    } else {
        changed.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(key: &str) -> ContentDigests {
        ContentDigests {
            combined: key.into(),
            ..ContentDigests::default()
        }
    }

    fn past<'a>(standing: PriorOutcome<'a>, content: Option<&'a ContentDigests>) -> PriorUnit<'a> {
        PriorUnit {
            run: RunId(uuid::Uuid::from_u128(0xa1_b2c3)),
            outcome: standing,
            attempt: 2,
            content,
            patch: Some("0001-a.patch"),
            work: None,
        }
    }

    #[test]
    fn unchanged_success_is_reused() {
        let (same, work) = (
            content("k"),
            AttemptOutput {
                fatal_failures: Some(0),
                ..AttemptOutput::default()
            },
        );
        let past = PriorUnit {
            work: Some(&work),
            ..past(PriorOutcome::Succeeded, Some(&same))
        };
        let reused = |patch: Option<&str>, work| {
            let patch = patch.map(str::to_owned);
            ReuseDecision::Reuse(Box::new(ReusedSuccess {
                attempt: 2,
                is_budget_exhausted: false,
                content: same.clone(),
                pending_patch: patch,
                output: work,
            }))
        };
        assert_eq!(
            decide_reuse(&past, Some(&same)),
            reused(Some("0001-a.patch"), work.clone())
        );
        let saved = PriorUnit {
            patch: None,
            ..past
        };
        assert_eq!(
            decide_reuse(&saved, Some(&same)),
            reused(None, AttemptOutput::default()),
            "the prior run reports it"
        );
    }

    #[test]
    fn everything_else_runs_with_a_reason() {
        let (then, now) = (
            content("k"),
            ContentDigests {
                raw_files: "r".into(),
                model: Some("opus".into()),
                ..content("n")
            },
        );
        let newer = ContentDigests {
            algorithm_version: 9,
            raw_files: "r".into(),
            ..content("n")
        };
        let success = PriorOutcome::Succeeded;
        let spent = |turns, allowed| {
            PriorOutcome::OutOfBudget(BudgetExhaustion {
                turns,
                allowed,
                reported: None,
            })
        };
        let reported = |budget, allowed| {
            PriorOutcome::OutOfBudget(BudgetExhaustion {
                turns: 7,
                allowed,
                reported: Some(budget),
            })
        };
        let cases = [
            (
                PriorOutcome::Failed("no luck"),
                Some(&then),
                Some(&then),
                "failed in run a1b2c3: no luck",
            ),
            (
                spent(20, Some(20)),
                Some(&then),
                Some(&then),
                "ran out of turns (20/20) in run a1b2c3",
            ),
            (
                spent(7, Some(20)),
                Some(&then),
                Some(&then),
                "spent its cost budget in run a1b2c3",
            ),
            (
                spent(7, None),
                Some(&then),
                None,
                "ran out of turns or spent its cost budget in run a1b2c3",
            ),
            (
                reported(SpentBudget::Turns, None),
                Some(&then),
                None,
                "ran out of turns in run a1b2c3",
            ),
            (
                reported(SpentBudget::Turns, Some(7)),
                Some(&then),
                None,
                "ran out of turns (7/7) in run a1b2c3",
            ),
            (
                reported(SpentBudget::Cost, Some(7)),
                Some(&then),
                None,
                "spent its cost budget in run a1b2c3",
            ),
            (
                PriorOutcome::Stopped,
                Some(&then),
                Some(&then),
                "was stopped in run a1b2c3",
            ),
            (
                PriorOutcome::Interrupted,
                Some(&then),
                Some(&then),
                "was interrupted in run a1b2c3",
            ),
            (
                PriorOutcome::Pending,
                None,
                Some(&then),
                "did not start in run a1b2c3",
            ),
            (
                success,
                None,
                Some(&then),
                "run a1b2c3 did not record its inputs",
            ),
            (
                success,
                Some(&then),
                None,
                "succeeded in run a1b2c3, but its files cannot be compared now",
            ),
            (
                success,
                Some(&then),
                Some(&now),
                "succeeded in run a1b2c3, but its raw files changed, its model changed from the default to opus",
            ),
            (
                success,
                Some(&then),
                Some(&newer),
                "succeeded in run a1b2c3, but it was recorded by another version of this program",
            ),
            (
                success,
                Some(&then),
                Some(&content("n")),
                "succeeded in run a1b2c3, but it is a different unit now",
            ),
        ];
        for (standing, then, now, why) in cases {
            assert_eq!(
                decide_reuse(&past(standing, then), now),
                ReuseDecision::Run(why.into()),
                "{standing:?}"
            );
        }
    }

    #[test]
    fn unknown_prior_values_are_not_summed() {
        let earlier = |attempts, cost_usd| PriorUnitSummary {
            run: RunId(uuid::Uuid::from_u128(u128::from(attempts))),
            attempts,
            cost_usd,
            reused: None,
        };
        let sum = merge_prior(Some(&earlier(2, None)), earlier(3, Some(0.5)));
        assert_eq!(
            (sum.run, sum.attempts, sum.cost_usd),
            (earlier(3, None).run, 5, Some(0.5))
        );
        assert_eq!(
            merge_prior(Some(&earlier(1, Some(1.0))), earlier(1, Some(0.5))).cost_usd,
            Some(1.5)
        );
        assert_eq!(
            merge_prior(Some(&earlier(1, None)), earlier(1, None)).cost_usd,
            None
        );
        assert_eq!(
            merge_prior(None, earlier(1, Some(1.0))),
            earlier(1, Some(1.0))
        );
    }
}
