//! The remaining reconcile work of a prior run. Must not judge units or start anything.

use std::collections::HashSet;

use super::{ResumeError, RunPlan};
use crate::{prior_results::ProjectHistory, recorded_tapes};
use ingestdeck_core::{
    run::{
        RunState,
        state::{RECONCILE_KEY, UnitStatus},
    },
    tape::{UnitKey, note::ContinuedRun},
};
use ingestdeck_ingest::{plan::IngestPlan, project::Project, reconcile::staged_path};
use ingestdeck_os::scoped_dir::ScopedDir;
use ingestdeck_records::store::RunStore;

/// Removes evictions from the plan that a reconcile step settled after the prior run began.
pub(super) fn drop_settled_evictions(
    history: &ProjectHistory,
    planned: &mut IngestPlan,
) -> Result<(), ResumeError> {
    if planned
        .sources
        .iter()
        .all(|source| source.diff.deleted.is_empty())
    {
        return Ok(());
    }
    let now = history.past(None)?.baseline;
    for source in &mut planned.sources {
        let (connection, adapter) = (&source.connection, &source.adapter);
        source
            .diff
            .deleted
            .retain(|path| now.is_processed(connection, adapter, path));
    }
    Ok(())
}

/// Removes the artifacts of deleted files from the plan about which an earlier reconcile step decided since the file was
/// deleted.
pub(super) fn drop_decided_artifacts(
    runs: &RunStore,
    planned: &mut IngestPlan,
) -> Result<(), ResumeError> {
    let sources = planned.sources.iter();
    let files = sources.flat_map(|source| {
        source
            .eviction_candidates
            .keys()
            .map(|path| (source.connection.clone(), path.clone()))
    });
    let mut open: HashSet<(String, String)> = files.collect();
    for found in runs.list()? {
        if open.is_empty() {
            return Ok(());
        }
        // An unreadable record proves no decision.
        let Ok(state) = recorded_tapes::fold(runs, &found) else {
            continue;
        };
        // What was decided before the file was last read is about an earlier deletion.
        for source in &state.inputs.sources {
            for file in &source.files {
                open.remove(&(source.connection.clone(), file.path.clone()));
            }
        }
        let step = state
            .units
            .iter()
            .find(|unit| unit.key.as_str() == RECONCILE_KEY && !state.is_unsaved(unit));
        let Some(work) = step.and_then(|step| state.work(step)) else {
            continue;
        };
        for source in &mut planned.sources {
            for (path, artifacts) in &mut source.eviction_candidates {
                if open.contains(&(source.connection.clone(), path.clone())) {
                    let raw_path = staged_path(&source.connection, path);
                    artifacts.retain(|artifact| !artifact.is_decided(&raw_path, work));
                }
            }
            source
                .eviction_candidates
                .retain(|_, artifacts| !artifacts.is_empty());
        }
    }
    Ok(())
}

/// Removes patches that a later run reconciled: a second review would only cost money.
pub(super) fn drop_reconciled_patches(
    runs: &RunStore,
    taken: &mut RunPlan,
) -> Result<(), ResumeError> {
    let Some(continues) = taken
        .continues
        .as_mut()
        .filter(|continues| !continues.unreconciled.is_empty())
    else {
        return Ok(());
    };
    let run = continues.run;
    for found in runs.list()?.into_iter().take_while(|found| found.id != run) {
        // An unreadable record proves no reconciled patch.
        let Ok(state) = recorded_tapes::fold(runs, &found) else {
            continue;
        };
        let plan = state
            .planned
            .as_ref()
            .and_then(|plan| plan.continues.as_ref())
            .filter(|then| then.run == run);
        let saw = |unit: &UnitKey| plan.is_some_and(|then| then.unreconciled.contains_key(unit));
        continues
            .unreconciled
            .retain(|unit, _| !saw(unit) || state.publication.unreconciled.contains(unit));
    }
    Ok(())
}

/// Keeps the existing files among the patches without a reconcile step.
pub(super) fn retain_existing(project: &Project, continues: &mut ContinuedRun) {
    let root = ScopedDir::open(&project.root);
    continues
        .unreconciled
        .retain(|_, path| root.as_ref().is_ok_and(|root| root.is_file(path)));
}

/// As [`retain_existing`], for `--failed`, which includes these patches only if their reconcile step failed.
pub(super) fn retain_for_failed(project: &Project, continues: &mut ContinuedRun, state: &RunState) {
    let failed = state
        .units
        .iter()
        .any(|unit| unit.key.as_str() == RECONCILE_KEY && unit.status == UnitStatus::Failed);
    if !failed {
        continues.unreconciled.clear();
    }
    retain_existing(project, continues);
}
