//! The pass over what the units wrote: what its attempts are made of, on what terms they run, and what is left for it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::PoisonError,
};

use super::{
    Attempts,
    patches::{Round, some},
};
use crate::{
    ingest::{
        git::CommitId,
        plan::WorkUnit,
        reconcile::{self, Change, Eviction, RECONCILE, RestingArtifact, STEP_BUDGET, Stage, StagedUnit, staged_path},
    },
    run::decisions,
    tape::{
        UnitKey,
        note::{Evicted, StopReason, Work},
    },
};

/// What holds for the pass alone.
#[derive(Clone, Debug, Default)]
pub struct PassTerms {
    /// Model, or the agent's default.
    pub model: Option<String>,
    /// Raw files that are gone, by connection.
    pub evictions: Vec<Evicted>,
    /// What rests on them, by `connection/path`.
    pub resting: BTreeMap<String, Vec<RestingArtifact>>,
    /// Patches that an earlier run saved without a pass over them, relative to the project.
    pub unreconciled: BTreeMap<UnitKey, String>,
}

impl PassTerms {
    /// True when there is something to look at, whatever the units write.
    pub fn is_due(&self) -> bool {
        !self.evictions.is_empty() || !self.unreconciled.is_empty()
    }
}

/// What the pass has yet to look at, beside what is being put together.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Units whose changes are on the branch.
    units: BTreeSet<UnitKey>,
    /// Raw files that are gone.
    evictions: Vec<Evicted>,
    /// Those of them that its last good attempt dealt with.
    dealt_with: Vec<Evicted>,
    /// What rests on gone files without a decision of its last good attempt: `connection/path: wiki key`.
    undecided: Vec<String>,
    /// The sentence about conflicts that its last good attempt flagged for a person.
    flagged: Option<String>,
}

impl Left {
    /// The pass ended well. A gone file is handled once it decided about everything that is `resting` on it. Where nothing
    /// rests on it, it is handled unless the pass ran out of turns before it named the file.
    pub(super) fn passed(&mut self, stop: StopReason, work: &Work, resting: &BTreeMap<String, Vec<RestingArtifact>>) {
        let named: HashSet<&str> = work.evictions.iter().filter_map(|decided| decided["rawPath"].as_str()).collect();
        (self.dealt_with, self.undecided) = Default::default();
        for of in &self.evictions {
            let mut paths = Vec::new();
            for path in &of.paths {
                let raw_path = staged_path(&of.connection, path);
                let artifacts = resting.get(&raw_path).map(Vec::as_slice).unwrap_or_default();
                let undecided = artifacts.iter().filter(|artifact| !artifact.is_decided(&raw_path, work));
                let undecided: Vec<String> = undecided.map(RestingArtifact::name).collect();
                let is_settled = stop == StopReason::Natural || named.contains(raw_path.as_str());
                match artifacts {
                    _ if !undecided.is_empty() => self.undecided.push(format!("{raw_path}: {}", some(&undecided))),
                    [] if !is_settled => {}
                    _ => paths.push(path.clone()),
                }
            }
            if !paths.is_empty() {
                self.dealt_with.push(Evicted { paths, ..of.clone() });
            }
        }
        self.flagged = decisions::flagged_sentence(work);
    }

    /// The sentence about flagged conflicts, once: the caller reports it when the reconcile step is saved.
    pub(super) fn take_flagged(&mut self) -> Option<String> {
        self.flagged.take()
    }

    /// What a pass that is saved leaves undecided, once: these files stay open for the next run.
    pub(super) fn undecided(&mut self) -> Vec<String> {
        std::mem::take(&mut self.undecided)
    }

    /// What `accepted` changed is on the branch, and so is what the pass made of it, if it `passed`. What that settled.
    pub(super) fn saved(&mut self, accepted: Vec<UnitKey>, passed: bool) -> Vec<Evicted> {
        if !passed {
            self.units.extend(accepted);
            return Vec::new();
        }
        self.units.clear();
        let settled = std::mem::take(&mut self.dealt_with);
        for of in &mut self.evictions {
            let is_same = |other: &&Evicted| other.connection == of.connection && other.adapter == of.adapter;
            let gone: HashSet<&String> = settled.iter().filter(is_same).flat_map(|other| &other.paths).collect();
            of.paths.retain(|path| !gone.contains(path));
        }
        self.evictions.retain(|of| !of.paths.is_empty());
        settled
    }

    /// Units whose changes are on the branch without having been looked at.
    pub(super) fn units(&self) -> Vec<UnitKey> {
        self.units.iter().cloned().collect()
    }
}

/// What an attempt is made of.
pub(super) struct Material {
    /// Place in the plan.
    pub(super) index: usize,
    pub(super) work_unit: WorkUnit,
    /// The commit that it starts from, if that is not the one that all start from.
    pub(super) base: Option<CommitId>,
}

impl Attempts {
    /// The same attempts, and those of a pass over what they wrote.
    pub fn reconciling(self, pass: Option<PassTerms>) -> Self {
        if let Some(pass) = &pass {
            let mut round = self.round();
            round.left.evictions.clone_from(&pass.evictions);
            for (unit, path) in &pass.unreconciled {
                round.left.units.insert(unit.clone());
                // No attempt of this run: they are counted from 1.
                round.written(unit, 0, Some(self.project.root.join(path)));
            }
        }
        Self { pass, ..self }
    }

    /// Adapters of the files that are gone: where they are all there is, the commit is about them.
    pub(super) fn evicting(&self) -> impl Iterator<Item = &str> {
        self.pass.iter().flat_map(|pass| &pass.evictions).map(|of| of.adapter.as_str())
    }

    /// What an attempt at `unit` is made of; `None` for a unit that nobody planned.
    pub(super) fn material(&self, unit: &UnitKey) -> Option<Material> {
        if let Some((index, work_unit)) = self.units.get(unit) {
            return Some(Material { index: *index, work_unit: work_unit.clone(), base: None });
        }
        self.pass.as_ref().filter(|_| unit.as_str() == RECONCILE)?;
        let round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let work_unit = self.staged(&round).into_unit();
        Some(Material { index: self.units.len(), work_unit, base: round.head.clone() })
    }

    /// Model and turns of an attempt at `unit`.
    pub(super) fn terms_of(&self, unit: &UnitKey) -> (Option<String>, u32) {
        match &self.pass {
            Some(pass) if unit.as_str() == RECONCILE => (pass.model.clone(), STEP_BUDGET),
            _ => (self.terms.model.clone(), self.terms.step_budget),
        }
    }

    /// What the units wrote, as far as it is put together.
    fn staged(&self, round: &Round) -> Stage {
        let mut units: Vec<&(usize, WorkUnit)> = self.units.values().collect();
        units.sort_by_key(|(index, _)| *index);
        let folders: BTreeMap<_, _> =
            units.iter().map(|(_, unit)| (unit.planned.connection.clone(), unit.source_root.clone())).collect();
        let staged = units.into_iter().map(|(_, unit)| self.staged_unit(round, unit));
        // An earlier run may have saved what this one did not plan.
        let others = round.left.units.iter().filter(|unit| !self.units.contains_key(*unit)).map(|unit| StagedUnit {
            unit: unit.as_str().to_owned(),
            status: "success".to_owned(),
            raw_files: Vec::new(),
            changes: self.changes(round, unit),
        });
        let units = staged.chain(others).collect();
        let eviction = |raw_path: String| {
            let resting = self.pass.as_ref().and_then(|pass| pass.resting.get(&raw_path));
            Eviction { artifacts: resting.cloned().unwrap_or_default(), raw_path }
        };
        let gone = |of: &Evicted| of.paths.iter().map(|path| staged_path(&of.connection, path)).collect::<Vec<_>>();
        let mut evictions: Vec<Eviction> = round.left.evictions.iter().flat_map(gone).map(eviction).collect();
        // Where the list is cut, what nothing rests on is missing first.
        evictions.sort_by_key(|eviction| eviction.artifacts.is_empty());
        Stage { units, evictions, folders }
    }

    fn staged_unit(&self, round: &Round, unit: &WorkUnit) -> StagedUnit {
        let planned = &unit.planned;
        let (status, changes) = match round.lost.get(&planned.unit) {
            Some(reason) => (format!("failed: {reason}"), Vec::new()),
            None if round.taken.contains(&planned.unit) || round.left.units.contains(&planned.unit) => {
                ("success".to_owned(), self.changes(round, &planned.unit))
            }
            None => ("no part of this commit".to_owned(), Vec::new()),
        };
        let raw_files = planned.raw_files.iter().map(|path| staged_path(&planned.connection, path)).collect();
        StagedUnit { unit: planned.unit.as_str().to_owned(), status, raw_files, changes }
    }

    /// What the newest patch of a unit changes.
    fn changes(&self, round: &Round, unit: &UnitKey) -> Vec<Change> {
        let root = &self.project.root;
        let path = || round.patches.get(unit)?.1.as_ref()?.strip_prefix(root).ok()?.to_str();
        path().map(|path| reconcile::changes_of(root, path)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        ingest::plan::Prior,
        tape::note::work::{self, MemoryAction, Target},
    };

    fn gone(paths: &[&str]) -> Evicted {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Evicted { connection: "notes".into(), adapter: "docs".into(), paths }
    }

    fn units(left: &Left) -> Vec<String> {
        left.units().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_no_pass_has_seen_adds_up_until_one_has() {
        let mut left = Left::default();
        assert_eq!(left.saved(vec!["b".into()], false), []);
        assert_eq!(left.saved(vec!["a".into(), "b".into()], false), []);
        assert_eq!(units(&left), ["a", "b"]);
        assert_eq!(left.saved(vec!["c".into()], true), []);
        assert_eq!(units(&left), Vec::<String>::new());
    }

    fn artifact(kind: &str, key: &str) -> RestingArtifact {
        let (kind, key) = (kind.to_owned(), key.to_owned());
        RestingArtifact { prior: Prior { kind, key, ..Prior::default() }, ..RestingArtifact::default() }
    }

    #[test]
    fn gone_file_is_open_until_every_artifact_has_a_decision() {
        let three = vec![artifact("wiki", "own"), artifact("wiki", "shared"), artifact("sl", "shop/orders")];
        let resting = BTreeMap::from([("notes/a.md".to_owned(), three)]);
        let decided = |keys: &[(&str, &str)]| Work {
            evictions: keys
                .iter()
                .map(|(kind, key)| json!({"rawPath": "notes/a.md", "artifactKind": kind, "artifactKey": key}))
                .collect(),
            ..Work::default()
        };
        let mut left = Left { evictions: vec![gone(&["a.md", "b.md"])], ..Left::default() };
        left.passed(StopReason::Natural, &decided(&[("wiki", "nonsense"), ("sl", "own")]), &resting);
        assert_eq!(left.undecided(), ["notes/a.md: wiki own, wiki shared, sl shop/orders"]);
        left.passed(StopReason::Natural, &decided(&[("wiki", "own"), ("wiki", "shared")]), &resting);
        assert_eq!(left.undecided(), ["notes/a.md: sl shop/orders"]);
        assert_eq!(left.saved(Vec::new(), true), [gone(&["b.md"])], "nothing rests on it");
        let mut work = decided(&[("wiki", "own"), ("sl", "orders")]);
        work.actions = vec![MemoryAction {
            target: Target::Wiki,
            change: work::Change::Updated,
            key: "shared".into(),
            detail: String::new(),
            target_connection_id: None,
            raw_paths: None,
        }];
        left.passed(StopReason::Budget, &work, &resting);
        assert_eq!(left.undecided(), Vec::<String>::new());
        assert_eq!(left.saved(Vec::new(), true), [gone(&["a.md"])]);
    }

    #[test]
    fn a_pass_that_ran_out_of_turns_settles_what_it_put_on_record() {
        let mut left = Left { evictions: vec![gone(&["a.md", "b.md", "c.md"])], ..Left::default() };
        let work = Work { evictions: vec![json!({"rawPath": "notes/b.md"}), json!(7)], ..Work::default() };
        let resting = BTreeMap::new();
        left.passed(StopReason::Budget, &work, &resting);
        assert_eq!(left.saved(Vec::new(), false), [], "it was not taken");
        assert_eq!(left.saved(Vec::new(), true), [gone(&["b.md"])]);
        left.passed(StopReason::Budget, &work, &resting);
        assert_eq!(left.saved(Vec::new(), true), [], "not twice");
        assert_eq!(left.undecided(), Vec::<String>::new());
        left.passed(StopReason::Natural, &Work::default(), &resting);
        assert_eq!(left.undecided(), Vec::<String>::new(), "nothing rests on them");
        assert_eq!(left.saved(Vec::new(), true), [gone(&["a.md", "c.md"])]);
        assert!(left.evictions.is_empty());
    }
}
