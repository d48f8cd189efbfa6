//! What of an earlier run is left for the pass. It must not judge units, nor start anything.

use crate::{
    cli::{exit::Failure, past},
    ingest::{plan::Planned, project::Project, reconcile::RECONCILE},
    run::{RunState, state::UnitStatus},
    tape::note::Continues,
};

/// Takes files off the plan that are gone since before the earlier run, where a pass has dealt with that meanwhile.
pub(super) fn forget_evicted(project: &Project, planned: &mut Planned) -> Result<(), Failure> {
    if planned.sources.iter().all(|source| source.diff.deleted.is_empty()) {
        return Ok(());
    }
    let now = past::read(project, None)?.baseline;
    for source in &mut planned.sources {
        let (connection, adapter) = (&source.connection, &source.adapter);
        source.diff.deleted.retain(|path| now.is_processed(connection, adapter, path));
    }
    Ok(())
}

/// Leaves what is still there of patches that no pass has looked at.
pub(super) fn keep(project: &Project, continues: &mut Continues) {
    continues.unreconciled.retain(|_, path| project.root.join(path).is_file());
}

/// The same for a run of what failed, of which these patches are a part only if the pass over them failed.
pub(super) fn keep_failed(project: &Project, continues: &mut Continues, state: &RunState) {
    let failed = state.units.iter().any(|unit| unit.key.as_str() == RECONCILE && unit.status == UnitStatus::Failed);
    if !failed {
        continues.unreconciled.clear();
    }
    keep(project, continues);
}
