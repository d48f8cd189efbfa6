//! What a run takes over from an earlier one, and what a unit was made of, by which both are compared. Plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::AttemptOutput;
use crate::tape::{RunId, UnitKey};

/// What a unit was made of when it was asked: digests, so that two attempts can be compared without their inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContentDigests {
    /// Digest of everything below and of the unit's identity, in hexadecimal. Equal keys: the same was asked.
    pub key: String,
    /// Digest of the raw files: names and bytes.
    pub raw: String,
    /// Digest of the files it may read beside its own.
    pub dependencies: String,
    /// Digest of the prompt and the skills, without what the project says at the moment.
    pub prompt: String,
    /// Digest of the tools that are offered.
    pub tools: String,
    /// Model that was planned; `None` for the agent's default.
    pub model: Option<String>,
    /// Version of the way these digests are made.
    pub program: u32,
    /// Names of the skills that are offered. Empty on tapes of older programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
}

/// The run that this one continues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContinuedRun {
    /// Which.
    pub run: RunId,
    /// Its outcome, as its last note says; `None` if its tape breaks off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What it cost, as far as it said; not part of the cost of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Units that were tried before.
    #[serde(default)]
    pub units: BTreeMap<UnitKey, PriorUnitSummary>,
    /// Patches that it saved without a pass over them, relative to the project: that of this run looks at them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unreconciled: BTreeMap<UnitKey, String>,
}

/// What earlier runs did about a unit. Attempts of this run are counted from 1 all the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriorUnitSummary {
    /// The run that tried it last.
    pub run: RunId,
    /// Attempts in all earlier runs.
    pub attempts: u32,
    /// Their cost, as far as they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The success that stands: the unit is not run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<ReusedSuccess>,
}

/// A success of an earlier run that this one counts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReusedSuccess {
    /// The attempt of [`PriorUnitSummary::run`] that succeeded.
    pub attempt: u32,
    /// True if its turn or cost budget was spent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub budget: bool,
    /// What the unit was made of then, and is now.
    pub content: ContentDigests,
    /// Its patch, relative to the project, if that is not on the branch yet: it is put there with those of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// What the attempt left on record, where there is a patch. Empty on tapes of older programs.
    #[serde(default, skip_serializing_if = "AttemptOutput::is_empty")]
    pub work: AttemptOutput,
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
            budget: true,
            content: ContentDigests { key: "ab".into(), ..ContentDigests::default() },
            patch: Some("a.patch".into()),
            work: AttemptOutput { transcript: Some("t.jsonl".into()), ..AttemptOutput::default() },
        };
        let earlier = PriorUnitSummary { run, attempts: 3, cost_usd: Some(0.5), reused: Some(reused) };
        let continues = ContinuedRun {
            run,
            outcome: Some("limit".into()),
            cost_usd: Some(0.5),
            units: BTreeMap::from([("docs/a b".into(), earlier)]),
            unreconciled: BTreeMap::from([("docs/c".into(), "c.patch".into())]),
        };
        let note = Note::RunPlanned(Box::new(RunPlanned { continues: Some(continues), ..RunPlanned::default() }));
        assert_eq!(Note::parse(&note.to_json()), note);
    }

    #[test]
    fn plan_without_prior_run_keeps_the_old_json() {
        let json = Note::RunPlanned(Box::default()).to_json();
        assert!(!String::from_utf8(json).unwrap().contains("continues"));
    }
}
