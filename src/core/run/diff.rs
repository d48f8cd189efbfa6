//! Compares two runs, unit by unit and artifact by artifact. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    artifacts::{LineCounts, RunArtifact},
    report::{RunReport, UnitReport},
    state::UnitStatus,
};
use crate::tape::{Millis, UnitKey, note::attempt_output::ArtifactChange};

/// The differences between two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDiff {
    /// Units in the order of the later run, followed by units that only the earlier run has.
    pub units: Vec<UnitDiff>,
    /// Artifacts of either run, sorted by path.
    pub artifacts: Vec<ArtifactDiff>,
}

/// One artifact in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ArtifactDiff {
    /// Relative to the project.
    pub path: String,
    pub before: Option<ArtifactSnapshot>,
    pub after: Option<ArtifactSnapshot>,
}

/// The values of an artifact in one run that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactSnapshot {
    /// `None` if it is not recorded, or if the run created and removed it.
    pub change: Option<ArtifactChange>,
    /// What became of it.
    pub state: &'static str,
    /// `None` if they are not recorded.
    pub lines: Option<LineCounts>,
    /// Number of identifiers that no agent received.
    pub unsourced: usize,
}

/// One unit in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitDiff {
    pub key: UnitKey,
    pub before: Option<UnitSnapshot>,
    pub after: Option<UnitSnapshot>,
}

/// The values of a unit in one run that are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitSnapshot {
    pub status: UnitStatus,
    /// The cause of its verdict, if it has one.
    pub cause: Option<String>,
    pub attempts: usize,
    pub calls: u64,
    pub failures: u64,
    /// In US dollars; `None` if the cost of some attempt is unknown.
    pub cost: Option<f64>,
    /// Time in which an attempt of the unit ran.
    pub active_time: Millis,
    /// Pages and sources that it saved, sorted.
    pub saved: Vec<String>,
}

/// How a unit or an artifact differs between the two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiffStatus {
    New,
    Removed,
    /// A value that is compared differs: of a unit its status, cause, calls, failures, attempts or saved files.
    Changed,
    /// At most the cost and time of a unit differ; they differ in every run.
    Same,
}

impl DiffStatus {
    /// Its text in JSON.
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
        let earlier: HashMap<&UnitKey, &UnitReport> =
            before.units.iter().map(|unit| (&unit.key, unit)).collect();
        let mut units: Vec<UnitDiff> = after
            .units
            .iter()
            .map(|unit| UnitDiff {
                key: unit.key.clone(),
                before: earlier
                    .get(&unit.key)
                    .map(|unit| UnitSnapshot::from_report(unit)),
                after: Some(UnitSnapshot::from_report(unit)),
            })
            .collect();
        let known: HashSet<&UnitKey> = after.units.iter().map(|unit| &unit.key).collect();
        let gone = before
            .units
            .iter()
            .filter(|unit| !known.contains(&unit.key));
        units.extend(gone.map(|unit| UnitDiff {
            key: unit.key.clone(),
            before: Some(UnitSnapshot::from_report(unit)),
            after: None,
        }));
        Self {
            units,
            artifacts: artifact_diffs(&before.artifacts.list, &after.artifacts.list),
        }
    }

    /// Returns the number of units with this change.
    pub fn count(&self, change: DiffStatus) -> usize {
        self.units
            .iter()
            .filter(|unit| unit.change() == change)
            .count()
    }

    /// Returns the number of artifacts with this change.
    pub fn count_artifacts(&self, change: DiffStatus) -> usize {
        self.artifacts
            .iter()
            .filter(|artifact| artifact.change() == change)
            .count()
    }
}

fn artifact_diffs(before: &[RunArtifact], after: &[RunArtifact]) -> Vec<ArtifactDiff> {
    let mut sides: BTreeMap<&str, [Option<ArtifactSnapshot>; 2]> = BTreeMap::new();
    for (index, list) in [before, after].into_iter().enumerate() {
        for artifact in list {
            sides.entry(&artifact.path).or_default()[index] = Some(ArtifactSnapshot::new(artifact));
        }
    }
    let diff = |(path, [before, after]): (&str, [Option<ArtifactSnapshot>; 2])| ArtifactDiff {
        path: path.to_owned(),
        before,
        after,
    };
    sides.into_iter().map(diff).collect()
}

impl ArtifactDiff {
    pub fn change(&self) -> DiffStatus {
        match (&self.before, &self.after) {
            (None, _) => DiffStatus::New,
            (Some(_), None) => DiffStatus::Removed,
            (Some(before), Some(after)) if before == after => DiffStatus::Same,
            (Some(_), Some(_)) => DiffStatus::Changed,
        }
    }
}

impl ArtifactSnapshot {
    fn new(artifact: &RunArtifact) -> Self {
        Self {
            change: artifact.change,
            state: artifact.state.label(),
            lines: artifact.lines(),
            unsourced: artifact.unsourced().count(),
        }
    }
}

impl UnitDiff {
    pub fn change(&self) -> DiffStatus {
        match (&self.before, &self.after) {
            (None, _) => DiffStatus::New,
            (Some(_), None) => DiffStatus::Removed,
            (Some(before), Some(after)) if before.is_equivalent(after) => DiffStatus::Same,
            (Some(_), Some(_)) => DiffStatus::Changed,
        }
    }
}

impl UnitSnapshot {
    fn from_report(unit: &UnitReport) -> Self {
        let sum = |count: fn(&super::report::AttemptReport) -> u32| {
            unit.attempts
                .iter()
                .map(|attempt| u64::from(count(attempt)))
                .sum()
        };
        let mut saved: Vec<String> = unit
            .actions()
            .into_iter()
            .map(|action| {
                let connection = action
                    .target_connection_id
                    .map(|id| format!("{id}/"))
                    .unwrap_or_default();
                format!("{} {connection}{}", action.target.as_str(), action.key)
            })
            .collect();
        saved.sort_unstable();
        Self {
            status: unit.status,
            cause: unit.cause.clone(),
            attempts: unit.attempts.len(),
            calls: sum(|attempt| attempt.state.counts.calls),
            failures: sum(|attempt| attempt.state.counts.failures),
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
