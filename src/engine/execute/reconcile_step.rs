//! The reconcile step: its backlog, and what its attempts review.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::PathBuf,
};

use super::ingest_run::{IngestRun, ReconcileOptions};
use ingestdeck_core::{
    run::recorded_decisions,
    tape::{
        UnitKey,
        note::{AttemptOutput, FilesEvicted, StopReason},
    },
    text::list_some,
    units::schedule::IntegratedUnit,
};
use ingestdeck_ingest::{
    reconcile::{
        self, Eviction, EvictionCandidate, StageIndex, StagedChange, StagedUnit, staged_path,
    },
    work_unit::WorkUnit,
};

/// Work for the reconcile step besides the patches that are being integrated.
#[derive(Debug, Default)]
pub(super) struct ReconcileBacklog {
    /// Units whose changes are on the branch.
    unreconciled: BTreeSet<UnitKey>,
    evictions: Vec<FilesEvicted>,
    /// Deleted raw files that its last successful attempt handled.
    settled_evictions: Vec<FilesEvicted>,
    /// Artifacts of deleted files without a decision of its last successful attempt, as `connection/path: wiki key`.
    undecided: Vec<String>,
    /// The sentence about conflicts that its last successful attempt flagged for a person.
    flagged: Option<String>,
}

impl ReconcileBacklog {
    pub(super) fn new(pass: Option<&ReconcileOptions>) -> Self {
        let Some(pass) = pass else {
            return Self::default();
        };
        let unreconciled = pass.unreconciled.keys().cloned().collect();
        Self {
            unreconciled,
            evictions: pass.evictions.clone(),
            ..Self::default()
        }
    }

    /// The work that the step reviews. `results` is what became of the patches, and `patch` the file of one.
    pub(super) fn stage_index(
        &self,
        run: &IngestRun,
        results: &[IntegratedUnit],
        patch: &dyn Fn(&UnitKey) -> Option<PathBuf>,
    ) -> StageIndex {
        let root = &run.project.root;
        let changes = |unit: &UnitKey| -> Vec<StagedChange> {
            let file = patch(unit);
            let path = file
                .as_ref()
                .and_then(|file| file.strip_prefix(root).ok()?.to_str());
            path.map(|path| reconcile::read_patch_changes(root, path))
                .unwrap_or_default()
        };
        let staged = |unit: &WorkUnit| {
            let planned = &unit.planned;
            let result = results.iter().rfind(|of| of.unit == planned.unit);
            let (status, changes) = match result.map(|of| &of.verdict) {
                Some(Some(verdict)) => (format!("failed: {}", verdict.reason), Vec::new()),
                None if !self.unreconciled.contains(&planned.unit) => {
                    ("no part of this commit".to_owned(), Vec::new())
                }
                Some(None) | None => ("success".to_owned(), changes(&planned.unit)),
            };
            let raw_files = planned
                .raw_files
                .iter()
                .map(|path| staged_path(&planned.connection, path))
                .collect();
            StagedUnit {
                unit: planned.unit.as_str().to_owned(),
                status,
                raw_files,
                changes,
            }
        };
        let mut planned: Vec<&(usize, WorkUnit)> = run.units.values().collect();
        planned.sort_by_key(|(index, _)| *index);
        let source_dirs = planned
            .iter()
            .map(|(_, unit)| (unit.planned.connection.clone(), unit.source_root.clone()))
            .collect();
        // A prior run may have saved units that are not in this plan.
        let others = self
            .unreconciled
            .iter()
            .filter(|unit| !run.units.contains_key(*unit))
            .map(|unit| StagedUnit {
                unit: unit.as_str().to_owned(),
                status: "success".to_owned(),
                raw_files: Vec::new(),
                changes: changes(unit),
            });
        let units = planned
            .into_iter()
            .map(|(_, unit)| staged(unit))
            .chain(others)
            .collect();
        let eviction = |raw_path: String| {
            let artifacts = run
                .reconcile
                .as_ref()
                .and_then(|pass| pass.artifacts_by_deleted_file.get(&raw_path));
            Eviction {
                artifacts: artifacts.cloned().unwrap_or_default(),
                raw_path,
            }
        };
        let deleted = self.evictions.iter().flat_map(|of| {
            of.paths
                .iter()
                .map(|path| staged_path(&of.connection, path))
        });
        let mut evictions: Vec<Eviction> = deleted.map(eviction).collect();
        // If the list is cut, evictions without artifacts are omitted first.
        evictions.sort_by_key(|eviction| eviction.artifacts.is_empty());
        StageIndex {
            units,
            evictions,
            source_dirs,
        }
    }

    /// Records a successful attempt. A deleted file is handled once the attempt decided about every artifact in
    /// `resting`. A file without artifacts is handled unless the attempt ran out of turns before it mentioned the file.
    pub(super) fn record_success(
        &mut self,
        stop: StopReason,
        work: &AttemptOutput,
        artifacts_by_deleted_file: &BTreeMap<String, Vec<EvictionCandidate>>,
    ) {
        let named: HashSet<&str> = work
            .evictions
            .iter()
            .filter_map(|decided| decided["rawPath"].as_str())
            .collect();
        (self.settled_evictions, self.undecided) = Default::default();
        for of in &self.evictions {
            let mut paths = Vec::new();
            for path in &of.paths {
                let raw_path = staged_path(&of.connection, path);
                let artifacts = artifacts_by_deleted_file
                    .get(&raw_path)
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let undecided = artifacts
                    .iter()
                    .filter(|artifact| !artifact.is_decided(&raw_path, work));
                let undecided: Vec<String> = undecided.map(EvictionCandidate::name).collect();
                let is_settled = stop == StopReason::Natural || named.contains(raw_path.as_str());
                match artifacts {
                    _ if !undecided.is_empty() => self
                        .undecided
                        .push(format!("{raw_path}: {}", list_some(&undecided))),
                    [] if !is_settled => {}
                    _ => paths.push(path.clone()),
                }
            }
            if !paths.is_empty() {
                self.settled_evictions.push(FilesEvicted {
                    paths,
                    ..of.clone()
                });
            }
        }
        self.flagged = recorded_decisions::flagged_conflicts_summary(work);
    }

    /// Deleted files that the last successful attempt decided about, before it is saved.
    pub(super) fn settled_evictions(&self) -> &[FilesEvicted] {
        &self.settled_evictions
    }

    /// Takes the sentence about flagged conflicts: the caller reports it when the reconcile step is saved.
    pub(super) fn take_flagged(&mut self) -> Option<String> {
        self.flagged.take()
    }

    /// Takes the undecided artifacts of a saved reconcile step; their files remain open for the next run.
    pub(super) fn take_undecided(&mut self) -> Vec<String> {
        std::mem::take(&mut self.undecided)
    }

    /// Marks the changes of the `accepted` units as saved, and those of the reconcile step if it `passed`. Returns the
    /// deleted files that it settled.
    pub(super) fn mark_saved(&mut self, accepted: Vec<UnitKey>, passed: bool) -> Vec<FilesEvicted> {
        if !passed {
            self.unreconciled.extend(accepted);
            return Vec::new();
        }
        self.unreconciled.clear();
        let settled = std::mem::take(&mut self.settled_evictions);
        for of in &mut self.evictions {
            let is_same = |other: &&FilesEvicted| {
                other.connection == of.connection && other.adapter == of.adapter
            };
            let gone: HashSet<&String> = settled
                .iter()
                .filter(is_same)
                .flat_map(|other| &other.paths)
                .collect();
            of.paths.retain(|path| !gone.contains(path));
        }
        self.evictions.retain(|of| !of.paths.is_empty());
        settled
    }

    /// Units whose changes are on the branch without a review.
    pub(super) fn unreconciled_units(&self) -> Vec<UnitKey> {
        self.unreconciled.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ingestdeck_core::tape::note::attempt_output::{self, ArtifactTarget, MemoryAction};
    use ingestdeck_ingest::reconcile::PriorProvenance;

    fn gone(paths: &[&str]) -> FilesEvicted {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        FilesEvicted {
            connection: "notes".into(),
            adapter: "docs".into(),
            paths,
        }
    }

    fn units(left: &ReconcileBacklog) -> Vec<String> {
        left.unreconciled_units()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn unreconciled_units_accumulate_until_a_step_succeeds() {
        let mut left = ReconcileBacklog::default();
        assert_eq!(left.mark_saved(vec!["b".into()], false), []);
        assert_eq!(left.mark_saved(vec!["a".into(), "b".into()], false), []);
        assert_eq!(units(&left), ["a", "b"]);
        assert_eq!(left.mark_saved(vec!["c".into()], true), []);
        assert_eq!(units(&left), Vec::<String>::new());
    }

    fn artifact(kind: &str, key: &str) -> EvictionCandidate {
        let (kind, key) = (kind.to_owned(), key.to_owned());
        EvictionCandidate {
            provenance: PriorProvenance {
                artifact_kind: kind,
                artifact_key: key,
                ..PriorProvenance::default()
            },
            ..EvictionCandidate::default()
        }
    }

    #[test]
    fn gone_file_is_open_until_every_artifact_has_a_decision() {
        let three = vec![
            artifact("wiki", "own"),
            artifact("wiki", "shared"),
            artifact("sl", "shop/orders"),
        ];
        let artifacts_by_deleted_file = BTreeMap::from([("notes/a.md".to_owned(), three)]);
        let decided = |keys: &[(&str, &str)]| {
            AttemptOutput {
            evictions: keys
                .iter()
                .map(|(kind, key)| json!({"rawPath": "notes/a.md", "artifactKind": kind, "artifactKey": key}))
                .collect(),
            ..AttemptOutput::default()
        }
        };
        let mut left = ReconcileBacklog {
            evictions: vec![gone(&["a.md", "b.md"])],
            ..ReconcileBacklog::default()
        };
        left.record_success(
            StopReason::Natural,
            &decided(&[("wiki", "nonsense"), ("sl", "own")]),
            &artifacts_by_deleted_file,
        );
        assert_eq!(
            left.take_undecided(),
            ["notes/a.md: wiki own, wiki shared, sl shop/orders"]
        );
        left.record_success(
            StopReason::Natural,
            &decided(&[("wiki", "own"), ("wiki", "shared")]),
            &artifacts_by_deleted_file,
        );
        assert_eq!(left.take_undecided(), ["notes/a.md: sl shop/orders"]);
        assert_eq!(
            left.mark_saved(Vec::new(), true),
            [gone(&["b.md"])],
            "nothing rests on it"
        );
        let mut work = decided(&[("wiki", "own"), ("sl", "orders")]);
        work.actions = vec![MemoryAction {
            target: ArtifactTarget::Wiki,
            change: attempt_output::ArtifactChange::Updated,
            key: "shared".into(),
            detail: String::new(),
            target_connection_id: None,
            raw_paths: None,
        }];
        left.record_success(StopReason::Budget, &work, &artifacts_by_deleted_file);
        assert_eq!(left.take_undecided(), Vec::<String>::new());
        assert_eq!(left.mark_saved(Vec::new(), true), [gone(&["a.md"])]);
    }

    #[test]
    fn step_out_of_turns_settles_only_recorded_decisions() {
        let mut left = ReconcileBacklog {
            evictions: vec![gone(&["a.md", "b.md", "c.md"])],
            ..ReconcileBacklog::default()
        };
        let work = AttemptOutput {
            evictions: vec![json!({"rawPath": "notes/b.md"}), json!(7)],
            ..AttemptOutput::default()
        };
        let artifacts_by_deleted_file = BTreeMap::new();
        left.record_success(StopReason::Budget, &work, &artifacts_by_deleted_file);
        assert_eq!(left.mark_saved(Vec::new(), false), [], "it was not taken");
        assert_eq!(left.mark_saved(Vec::new(), true), [gone(&["b.md"])]);
        left.record_success(StopReason::Budget, &work, &artifacts_by_deleted_file);
        assert_eq!(left.mark_saved(Vec::new(), true), [], "not twice");
        assert_eq!(left.take_undecided(), Vec::<String>::new());
        left.record_success(
            StopReason::Natural,
            &AttemptOutput::default(),
            &artifacts_by_deleted_file,
        );
        assert_eq!(
            left.take_undecided(),
            Vec::<String>::new(),
            "nothing rests on them"
        );
        assert_eq!(left.mark_saved(Vec::new(), true), [gone(&["a.md", "c.md"])]);
        assert!(left.evictions.is_empty());
    }
}
