//! The prior run that a run continues, and the content digests that units are compared by. Plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::AttemptOutput;
use crate::tape::{RunId, UnitKey};

/// The content of a unit when it was run: digests, so that two attempts can be compared without their inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContentDigests {
    /// Digest of everything below and of the unit's identity, in hexadecimal. Equal keys mean equal inputs.
    #[serde(rename = "key")]
    pub combined: String,
    /// Digest of the raw files: names and bytes.
    #[serde(rename = "raw")]
    pub raw_files: String,
    /// Digest of the files that it may read in addition to its raw files.
    pub dependencies: String,
    /// Digest of the prompt and the skills, without the changing content of the project.
    pub prompt: String,
    /// Digest of the tools that are offered.
    pub tools: String,
    /// Model that was planned; `None` for the agent's default.
    pub model: Option<String>,
    /// Version of the digest algorithm.
    #[serde(rename = "program")]
    pub algorithm_version: u32,
    /// Names of the skills that are offered. Empty on tapes of older versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
}

/// The run that this one continues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContinuedRun {
    pub run: RunId,
    /// Outcome in its last note; `None` if its tape breaks off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Its known cost, in US dollars; not part of the cost of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Units that were tried before.
    #[serde(default)]
    pub units: BTreeMap<UnitKey, PriorUnitSummary>,
    /// Patches that it saved without a reconcile step, relative to the project; the step of this run reviews them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unreconciled: BTreeMap<UnitKey, String>,
}

/// The history of a unit in prior runs. Attempts of this run still count from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriorUnitSummary {
    /// The run that tried it last.
    pub run: RunId,
    /// Number of attempts in all prior runs.
    pub attempts: u32,
    /// Their known cost, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The reused success: the unit does not run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<ReusedSuccess>,
}

/// A success of a prior run that this one reuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReusedSuccess {
    /// The attempt of [`PriorUnitSummary::run`] that succeeded.
    pub attempt: u32,
    /// True if its turn or cost budget was spent.
    #[serde(default, rename = "budget", skip_serializing_if = "std::ops::Not::not")]
    pub is_budget_exhausted: bool,
    /// The content of the unit, which is the same in both runs.
    pub content: ContentDigests,
    /// Its patch, relative to the project, if it is not on the branch yet: it is integrated with those of this run.
    #[serde(default, rename = "patch", skip_serializing_if = "Option::is_none")]
    pub pending_patch: Option<String>,
    /// The recorded output of the attempt, if there is a patch. Empty on tapes of older versions.
    #[serde(
        default,
        rename = "work",
        skip_serializing_if = "AttemptOutput::is_empty"
    )]
    pub output: AttemptOutput,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Note, note::RunPlanned};

    #[test]
    fn continued_run_round_trips() {
        let run = RunId(uuid::Uuid::from_u128(7));
        let reused = ReusedSuccess {
            attempt: 2,
            is_budget_exhausted: true,
            content: ContentDigests {
                combined: "ab".into(),
                ..ContentDigests::default()
            },
            pending_patch: Some("a.patch".into()),
            output: AttemptOutput {
                transcript: Some("t.jsonl".into()),
                ..AttemptOutput::default()
            },
        };
        let earlier = PriorUnitSummary {
            run,
            attempts: 3,
            cost_usd: Some(0.5),
            reused: Some(reused),
        };
        let continues = ContinuedRun {
            run,
            outcome: Some("limit".into()),
            cost_usd: Some(0.5),
            units: BTreeMap::from([("docs/a b".into(), earlier)]),
            unreconciled: BTreeMap::from([("docs/c".into(), "c.patch".into())]),
        };
        let note = Note::RunPlanned(Box::new(RunPlanned {
            continues: Some(continues),
            ..RunPlanned::default()
        }));
        assert_eq!(Note::parse(&note.to_json()), note);
    }

    #[test]
    fn plan_without_prior_run_keeps_the_old_json() {
        let json = Note::RunPlanned(Box::default()).to_json();
        assert!(!String::from_utf8(json).unwrap().contains("continues"));
    }
}
