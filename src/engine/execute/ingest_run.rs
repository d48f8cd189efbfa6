//! What a run ingests: the project, the units and the job, and what follows from them. Fixed for the whole run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

use super::reconcile_step::ReconcileOptions;
use crate::{
    ingest::{
        integrate::{RawCopy, UnitPatch},
        job::IngestJob,
        project::Project,
        projection::PendingProjection,
        work_unit::WorkUnit,
        worktree::Worktrees,
    },
    tape::UnitKey,
};

/// The inputs of a run.
#[derive(Debug)]
pub(crate) struct IngestRun {
    pub project: Arc<Project>,
    /// The units with their positions in the plan.
    pub units: HashMap<UnitKey, (usize, WorkUnit)>,
    /// The changes of their sources, in KTX's format.
    pub diff: String,
    pub job: IngestJob,
    pub worktrees: Arc<Worktrees>,
    /// The reconcile step, if one is wanted.
    pub reconcile: Option<ReconcileOptions>,
    /// The pending projections of each connection. If one cannot be written, units run without it.
    pub projections: Vec<PendingProjection>,
}

impl IngestRun {
    /// The units of a plan, by their keys.
    pub(crate) fn index_units(units: Vec<WorkUnit>) -> HashMap<UnitKey, (usize, WorkUnit)> {
        units.into_iter().enumerate().map(|(index, unit)| (unit.planned.unit.clone(), (index, unit))).collect()
    }

    pub(super) fn work_unit(&self, unit: &UnitKey) -> Option<&WorkUnit> {
        self.units.get(unit).map(|(_, unit)| unit)
    }

    /// KTX's key of `unit`, which occurs in the reasons of verdicts.
    pub(super) fn ktx_key<'a>(&'a self, unit: &'a UnitKey) -> &'a UnitKey {
        self.work_unit(unit).map_or(unit, |unit| unit.planned.ktx_key())
    }

    /// The patch of a unit, in `file` unless it is empty.
    pub(super) fn unit_patch(&self, unit: &UnitKey, file: Option<PathBuf>) -> UnitPatch {
        let planned = self.work_unit(unit).map(|unit| &unit.planned);
        UnitPatch {
            unit: unit.clone(),
            file,
            may_change_semantic_layer: planned.is_none_or(|planned| planned.sl_disallowed.is_none()),
            targets: planned
                .map_or_else(|| self.all_targets(), |planned| self.project.target_ids(Some(&planned.connection))),
        }
    }

    /// All connections whose sources the pages of a unit may refer to.
    pub(super) fn all_targets(&self) -> Vec<String> {
        let of_units = self.units.values().map(|(_, unit)| &unit.planned.connection);
        let of_deleted = self.reconcile.iter().flat_map(|pass| &pass.evictions).map(|of| &of.connection);
        let connections: BTreeSet<&String> = of_units.chain(of_deleted).collect();
        let all: BTreeSet<String> =
            connections.into_iter().flat_map(|connection| self.project.target_ids(Some(connection))).collect();
        if all.is_empty() { self.project.target_ids(None) } else { all.into_iter().collect() }
    }

    /// The raw files of these units.
    pub(super) fn raw_copies(&self, units: &[UnitKey]) -> Vec<RawCopy> {
        let units = units.iter().filter_map(|unit| self.work_unit(unit));
        let copies = units.flat_map(|unit| {
            let copies = unit.raw_copies(&self.job.sync_id);
            copies.map(|(file, to)| RawCopy { source: unit.source_root.join(file), destination: to })
        });
        // Units may share files.
        copies.map(|copy| (copy.destination.clone(), copy)).collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// KTX's message for the commit of an ingest.
    pub(super) fn commit_message(&self, failed: &[UnitKey]) -> String {
        let mut sources: BTreeSet<&str> = self.units.values().map(|(_, unit)| unit.planned.adapter.as_str()).collect();
        if sources.is_empty() {
            // A commit without units is about deleted files.
            sources.extend(self.reconcile.iter().flat_map(|pass| &pass.evictions).map(|of| of.adapter.as_str()));
        }
        let sources: Vec<&str> = sources.into_iter().collect();
        let failed: Vec<&str> = failed.iter().map(UnitKey::as_str).collect();
        let failed = if failed.is_empty() { String::new() } else { format!("; failed WUs: {}", failed.join(", ")) };
        format!("ingest({}): {} syncId={} diff={}{failed}", sources.join(","), self.job.id, self.job.sync_id, self.diff)
    }
}
