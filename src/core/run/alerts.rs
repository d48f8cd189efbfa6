//! What happened in a run that a user in another window, or without a screen, wants to know.
//!
//! Derived from the run view alone. The module must not know how an alert is delivered, or whether it was seen.

use std::sync::Arc;

use serde::Serialize;

use super::state::{RunState, UnitState, UnitStatus};
use crate::{
    tape::{Millis, UnitKey},
    units::limits::window_name,
};

/// The kind of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    FirstFailure,
    /// An agent has not written anything for a while.
    Silent,
    /// A tool call or the result waits for a decision.
    NeedsApproval,
    /// The run waits for a limit of the service.
    Limit,
    /// The run waits for workers.
    Workers,
    Ended,
}

/// Identifies an alert, so that each is delivered once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AlertKey {
    Failure,
    /// The run ended, after this number of attempts.
    Ended(usize),
    /// An attempt has been silent since this time.
    Silent(UnitKey, Millis),
    /// A call that waits for a decision.
    HeldCall(UnitKey, Option<Arc<str>>),
    /// Changes wait for a review after this number of attempts.
    Review(usize),
    /// A wait for a limit, which ends at this time.
    Limit(Option<Millis>),
    /// A wait for workers since this time.
    Workers(Millis),
}

/// Something that the user wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct RunAlert<'a> {
    pub key: AlertKey,
    pub unit: Option<&'a UnitState>,
    /// One sentence for people, without texts of agents.
    pub text: String,
}

impl AlertKey {
    pub fn kind(&self) -> AlertKind {
        match self {
            Self::Failure => AlertKind::FirstFailure,
            Self::Ended(_) => AlertKind::Ended,
            Self::Silent(..) => AlertKind::Silent,
            Self::HeldCall(..) | Self::Review(_) => AlertKind::NeedsApproval,
            Self::Limit(_) => AlertKind::Limit,
            Self::Workers(_) => AlertKind::Workers,
        }
    }
}

/// Everything that applies at the moment `now`.
pub fn alerts(state: &RunState, now: Millis) -> Vec<RunAlert<'_>> {
    let mut alerts = Vec::new();
    if let Some(unit) = state.units.iter().find(|unit| is_failure(unit.status)) {
        let text = format!("{} {}", unit.key, unit.status_text());
        alerts.push(RunAlert {
            key: AlertKey::Failure,
            unit: Some(unit),
            text,
        });
    }
    for unit in state.units.iter().filter(|unit| unit.status.is_in_flight()) {
        let Some(attempt) = unit.latest() else {
            continue;
        };
        // The person who paused the run knows that its calls wait.
        if let Some(call) = unit.oldest_held_call().filter(|_| !state.limits.is_paused) {
            let key = AlertKey::HeldCall(unit.key.clone(), call.tool_use_id.clone());
            alerts.push(RunAlert {
                key,
                unit: Some(unit),
                text: format!("{} waits for you: {}", unit.key, call.tool),
            });
        }
        if let (UnitStatus::Silent, Some(since)) = (unit.status, attempt.silent_since) {
            let text = format!("{} has been silent for {}", unit.key, now.since(since));
            alerts.push(RunAlert {
                key: AlertKey::Silent(unit.key.clone(), since),
                unit: Some(unit),
                text,
            });
        }
    }
    let attempts = state.units.iter().map(|unit| unit.attempts.len()).sum();
    if let Some(review) = state.open_review() {
        alerts.push(RunAlert {
            key: AlertKey::Review(attempts),
            unit: None,
            text: review.request.to_string(),
        });
    }
    if let Some(pause) = &state.limits.pause {
        let text = format!("waiting for the {} limit", window_name(&pause.reason));
        alerts.push(RunAlert {
            key: AlertKey::Limit(pause.until),
            unit: None,
            text,
        });
    }
    if let Some(wait) = state.workers.wait {
        let text = format!(
            "waiting for workers: no unit can run; the run ends after {}",
            wait.until.since(wait.since)
        );
        alerts.push(RunAlert {
            key: AlertKey::Workers(wait.since),
            unit: None,
            text,
        });
    }
    if let Some(ended) = &state.ended {
        let failed = state
            .units
            .iter()
            .filter(|unit| is_failure(unit.status))
            .count();
        let (units, time) = (state.units.len(), state.duration_text(state.last_entry_at));
        let text = format!(
            "{} after {time}: {failed} of {units} units failed",
            ended.outcome
        );
        alerts.push(RunAlert {
            key: AlertKey::Ended(attempts),
            unit: None,
            text,
        });
    }
    alerts
}

fn is_failure(status: UnitStatus) -> bool {
    matches!(status, UnitStatus::Failed | UnitStatus::Interrupted)
}
