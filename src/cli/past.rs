//! What earlier runs of a project tell its next plan: what was processed, and what units of a kind took.
//!
//! The index knows it, the plan wants it, and neither knows the other.

use super::{exit::Failure, project as opened, runs};
use crate::{
    ingest::{
        diff::{Baseline, Prior, Standing},
        project::Project,
        source::Fingerprint,
    },
    run::state::UnitStatus,
    store::{
        Db, Runs,
        db::{PastEffort, PastFile, PastUnit},
    },
    tape::RunId,
};

/// What earlier runs tell.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// What was processed.
    pub baseline: Baseline,
    /// What finished units took, oldest first.
    pub efforts: Vec<PastEffort>,
}

/// Reads the past of `project`, as far as what was processed goes only what was `before` that run. A project that never
/// ran has none, and gets no index.
///
/// # Errors
/// When the index cannot be used: a plan without it would take everything for new.
pub fn read(project: &Project, before: Option<RunId>) -> Result<Past, Failure> {
    let runs = Runs::of_project(&project.root);
    if runs.list().map_err(Failure::internal)?.is_empty() {
        return Ok(Past::default());
    }
    let unreadable = runs::index(&runs).map_err(Failure::internal)?;
    opened::warn(&unreadable);
    let db = Db::open(&runs.database()).map_err(Failure::internal)?;
    let mut baseline = Baseline::default();
    for ((connection, adapter, path), file) in db.past_files(before).map_err(Failure::internal)? {
        baseline.add_file(&connection, &adapter, path, prior(&file));
    }
    for PastUnit { connection, unit, status, unsaved } in db.past_units(before).map_err(Failure::internal)? {
        let standing = if unsaved { Standing::Unsaved } else { standing(&status) };
        baseline.add_unit(connection, unit, standing);
    }
    Ok(Past { baseline, efforts: db.past_efforts().map_err(Failure::internal)? })
}

fn prior(file: &PastFile) -> Prior {
    Prior { processed: file.processed.as_deref().and_then(Fingerprint::parse), failed: file.failed }
}

fn standing(status: &str) -> Standing {
    let is = |statuses: &[UnitStatus]| statuses.iter().any(|known| known.word() == status);
    if is(&[UnitStatus::Succeeded, UnitStatus::Budget, UnitStatus::Reused]) {
        Standing::Succeeded
    } else if is(&[UnitStatus::Failed]) {
        Standing::Failed
    } else {
        Standing::Unfinished
    }
}
