//! Two runs compared, unit by unit. Pure.

use std::collections::{HashMap, HashSet};

use super::{
    report::{RunReport, UnitReport},
    state::UnitStatus,
};
use crate::tape::{Millis, UnitKey};

/// What became otherwise from one run to another.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDiff {
    /// Units in the order of the later run; those that it does not have follow.
    pub units: Vec<UnitDiff>,
}

/// One unit in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitDiff {
    /// Key.
    pub key: UnitKey,
    /// In the earlier run.
    pub before: Option<UnitSnapshot>,
    /// In the later run.
    pub after: Option<UnitSnapshot>,
}

/// A unit in one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitSnapshot {
    /// Where it stands.
    pub status: UnitStatus,
    /// What decided, if it was judged.
    pub cause: Option<String>,
    /// Attempts.
    pub attempts: usize,
    /// Tool calls.
    pub calls: u64,
    /// Failed calls.
    pub failures: u64,
    /// Dollars, if all of it is known.
    pub cost: Option<f64>,
    /// Time in which it ran.
    pub active_time: Millis,
    /// Pages and sources that it saved, sorted.
    pub saved: Vec<String>,
}

/// How a unit differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnitChange {
    /// Only the later run has it.
    New,
    /// Only the earlier run has it.
    Removed,
    /// It ended otherwise, by other means, or saved something else.
    Changed,
    /// Only cost and time differ, which always do.
    Same,
}

impl UnitChange {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Removed => "gone",
            Self::Changed => "changed",
            Self::Same => "same",
        }
    }
}

impl RunDiff {
    /// Compares `after` with `before`.
    pub fn new(before: &RunReport, after: &RunReport) -> Self {
        let earlier: HashMap<&UnitKey, &UnitReport> = before.units.iter().map(|unit| (&unit.key, unit)).collect();
        let mut units: Vec<UnitDiff> = after
            .units
            .iter()
            .map(|unit| UnitDiff {
                key: unit.key.clone(),
                before: earlier.get(&unit.key).map(|unit| UnitSnapshot::from_report(unit)),
                after: Some(UnitSnapshot::from_report(unit)),
            })
            .collect();
        let known: HashSet<&UnitKey> = after.units.iter().map(|unit| &unit.key).collect();
        let gone = before.units.iter().filter(|unit| !known.contains(&unit.key));
        units.extend(gone.map(|unit| UnitDiff {
            key: unit.key.clone(),
            before: Some(UnitSnapshot::from_report(unit)),
            after: None,
        }));
        Self { units }
    }

    /// How many units differ so.
    pub fn count(&self, change: UnitChange) -> usize {
        self.units.iter().filter(|unit| unit.change() == change).count()
    }
}

impl UnitDiff {
    /// How it differs.
    pub fn change(&self) -> UnitChange {
        match (&self.before, &self.after) {
            (None, _) => UnitChange::New,
            (Some(_), None) => UnitChange::Removed,
            (Some(before), Some(after)) if before.is_equivalent(after) => UnitChange::Same,
            (Some(_), Some(_)) => UnitChange::Changed,
        }
    }
}

impl UnitSnapshot {
    fn from_report(unit: &UnitReport) -> Self {
        let sum = |count: fn(&super::report::AttemptReport) -> u32| {
            unit.attempts.iter().map(|attempt| u64::from(count(attempt))).sum()
        };
        let mut saved: Vec<String> = unit
            .actions()
            .into_iter()
            .map(|action| {
                let connection = action.target_connection_id.map(|id| format!("{id}/")).unwrap_or_default();
                format!("{} {connection}{}", action.target.as_str(), action.key)
            })
            .collect();
        saved.sort_unstable();
        Self {
            status: unit.status,
            cause: unit.cause.clone(),
            attempts: unit.attempts.len(),
            calls: sum(|attempt| attempt.calls),
            failures: sum(|attempt| attempt.failures),
            cost: unit.spending.complete_cost(),
            active_time: unit.spending.active_time,
            saved,
        }
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        let facts = |side: &Self| (side.status, side.attempts, side.calls, side.failures);
        facts(self) == facts(other) && self.cause == other.cause && self.saved == other.saved
    }
}
