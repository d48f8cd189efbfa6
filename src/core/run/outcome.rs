//! The outcome of a run as one word that all summaries, lists and reports share. Pure.

use super::state::{RunState, UnitState, UnitStatus};
use crate::tape::{RunId, note::RunEndOutcome};

/// The text of [`RunOutcome::Reviewed`].
pub const REVIEWED: &str = "reviewed";

/// The text of an outcome in a narrow column.
pub fn column_text(outcome: &str) -> &str {
    if outcome == RunOutcome::WaitingApproval.as_str() {
        "waiting"
    } else {
        outcome
    }
}

/// The current or final outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    Running,
    Done,
    /// Some units are done, and others failed.
    Partial,
    /// No unit is done, or a failure ended the run.
    Error,
    /// The only obstacle was Claude Code itself, such as a missing login.
    AgentUnusable,
    Limit,
    Stopped,
    /// Changes wait for a review.
    WaitingApproval,
    /// Changes waited for a review, and this later run finished it. No record of the run itself has this outcome.
    Reviewed(RunId),
    /// The tape ends without the end of the run.
    Interrupted,
}

impl RunOutcome {
    /// Derives the outcome from `state`; `live` is true for an active run and false for a source that does not grow.
    pub fn from_state(state: &RunState, live: bool) -> Self {
        if let Some(ended) = &state.ended {
            return match ended.outcome {
                RunEndOutcome::Done => Self::Done,
                RunEndOutcome::Partial => Self::Partial,
                RunEndOutcome::Error => Self::Error,
                RunEndOutcome::Limit => Self::Limit,
                RunEndOutcome::Stopped => Self::Stopped,
                RunEndOutcome::Unusable => Self::AgentUnusable,
                RunEndOutcome::WaitingApproval => Self::WaitingApproval,
                RunEndOutcome::Other(_) => Self::from_units(state),
            };
        }
        if live {
            return Self::Running;
        }
        // Changes that were not on the branch when the tape ended are in no project.
        let is_left = |unit: &UnitState| {
            !unit.status.is_finished() || is_interrupted(unit.status) || state.is_unsaved(unit)
        };
        if state.publication.is_integrating || state.units.iter().any(is_left) {
            return Self::Interrupted;
        }
        Self::from_units(state)
    }

    /// Its words for a person.
    pub fn text(self) -> &'static str {
        match self {
            Self::WaitingApproval => "waiting for review",
            outcome => outcome.as_str(),
        }
    }

    /// Its word in JSON and in the index.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Error => "error",
            Self::AgentUnusable => "unusable",
            Self::Limit => "limit",
            Self::Stopped => "stopped",
            Self::WaitingApproval => "waiting_approval",
            Self::Reviewed(_) => REVIEWED,
            Self::Interrupted => "interrupted",
        }
    }

    fn from_units(state: &RunState) -> Self {
        let is_good = |status| {
            matches!(
                status,
                UnitStatus::Succeeded | UnitStatus::BudgetExhausted | UnitStatus::Reused
            )
        };
        let good = state
            .units
            .iter()
            .filter(|unit| is_good(unit.status))
            .count();
        match good {
            _ if good == state.units.len() => Self::Done,
            0 => Self::Error,
            _ => Self::Partial,
        }
    }
}

fn is_interrupted(status: UnitStatus) -> bool {
    matches!(status, UnitStatus::Interrupted | UnitStatus::NotStarted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, sync::Arc};

    use crate::{
        run::state::{AttemptDelivery, AttemptState, PriorPatchIntegration},
        tape::{
            RunId,
            note::{
                ContinuedRun, PatchResult, PatchWritten, PriorUnitSummary, ReusedSuccess, RunEnded,
                RunPlanned,
            },
        },
    };

    fn state(units: &[UnitStatus], ended: Option<&str>) -> RunState {
        let unit = |status: &UnitStatus| UnitState {
            key: "u".into(),
            planned: None,
            status: *status,
            attempts: Vec::new(),
            retry_at: None,
            hold_mode: Default::default(),
        };
        RunState {
            units: units.iter().map(unit).collect(),
            ended: ended.map(|outcome| RunEnded {
                outcome: outcome.into(),
                ..RunEnded::default()
            }),
            ..RunState::default()
        }
    }

    #[test]
    fn recorded_outcome_wins_over_outcome_of_units() {
        use UnitStatus::{BudgetExhausted, Failed, Interrupted, Queued, Running, Succeeded};
        let word = |units: &[UnitStatus], ended, live| {
            RunOutcome::from_state(&state(units, ended), live).as_str()
        };
        assert_eq!(word(&[Succeeded, Failed], Some("limit"), false), "limit");
        assert_eq!(
            word(&[Succeeded, Failed], Some("of the future"), false),
            "partial"
        );
        assert_eq!(word(&[Succeeded, BudgetExhausted], None, false), "done");
        assert_eq!(word(&[Failed], None, false), "error");
        assert_eq!(word(&[Succeeded, Interrupted], None, false), "interrupted");
        assert_eq!(word(&[Queued], None, false), "interrupted");
        assert_eq!(word(&[Queued], None, true), "running");
        assert_eq!(word(&[Running, Succeeded], None, false), "interrupted");
        assert_eq!(word(&[Running, Succeeded], None, true), "running");
        assert_eq!(word(&[], None, false), "done");
    }

    #[test]
    fn run_interrupted_before_commit_is_not_done() {
        let word = |state: &RunState| RunOutcome::from_state(state, false).as_str();
        let mut cut = state(&[UnitStatus::Succeeded], None);
        cut.publication.is_integrating = true;
        assert_eq!(word(&cut), "interrupted");
        cut.publication.is_integrating = false;
        let patch = PatchWritten {
            path: Some("0000-u.patch".into()),
            ..PatchWritten::default()
        };
        cut.units[0].attempts = vec![AttemptState {
            delivery: AttemptDelivery {
                patch: Some(Arc::new(patch)),
                ..AttemptDelivery::default()
            },
            ..AttemptState::default()
        }];
        assert_eq!(word(&cut), "interrupted");
        cut.units[0].attempts[0].delivery.is_saved = true;
        assert_eq!(word(&cut), "done");
    }

    #[test]
    fn run_with_unsaved_patches_of_prior_run_is_not_done() {
        let run = RunId(uuid::Uuid::from_u128(1));
        let reused = |patch: Option<&str>| {
            let patch = patch.map(str::to_owned);
            let reused = Some(ReusedSuccess {
                attempt: 1,
                is_budget_exhausted: false,
                content: Default::default(),
                pending_patch: patch,
                output: Default::default(),
            });
            let units = BTreeMap::from([(
                "u".into(),
                PriorUnitSummary {
                    run,
                    attempts: 1,
                    cost_usd: None,
                    reused,
                },
            )]);
            let continues = Some(ContinuedRun {
                run,
                outcome: None,
                cost_usd: None,
                units,
                unreconciled: BTreeMap::new(),
            });
            let planned = Some(Arc::new(RunPlanned {
                continues,
                ..RunPlanned::default()
            }));
            RunState {
                planned,
                ..state(&[UnitStatus::Reused], None)
            }
        };
        let word = |state: &RunState| RunOutcome::from_state(state, false).as_str();
        assert_eq!(word(&reused(None)), "done");
        let mut left = reused(Some("0000-u.patch"));
        assert_eq!(word(&left), "interrupted");
        let taken = PriorPatchIntegration {
            result: PatchResult::Accepted,
            verdict: None,
            is_saved: true,
            shared_writes: Arc::default(),
        };
        left.publication.prior_patches.insert("u".into(), taken);
        assert_eq!(word(&left), "done");
    }
}
