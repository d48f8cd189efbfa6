//! What earlier runs of a project tell its next plan: what was processed, and what units of a kind took.
//!
//! The index knows it, the plan wants it, and neither knows the other.

use std::collections::{HashMap, HashSet};

use super::{exit::Failure, project as opened, resume::Left, runs};
use crate::{
    ingest::{
        self,
        diff::{self, Baseline, Standing},
        plan::{Prior, WorkUnit},
        project::Project,
        source::Fingerprint,
    },
    run::state::UnitStatus,
    store::{
        Runs,
        db::{PastArtifact, PastEffort, PastFile, PastUnit},
    },
    tape::RunId,
    units::reuse::SpentBudget,
};

/// What earlier runs tell.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// What was processed.
    pub baseline: Baseline,
    /// What finished units took, oldest first.
    pub efforts: Vec<PastEffort>,
    /// The newest run with units that are done and not saved.
    pub left: Option<Left>,
    artifacts: HashMap<(String, String), Vec<PastArtifact>>,
}

impl Past {
    /// Tells each unit what was written from its raw files before.
    pub fn tell(&self, units: &mut [WorkUnit]) {
        for unit in units {
            let connection = &unit.planned.connection;
            let found = unit
                .planned
                .raw_files
                .iter()
                .filter_map(|path| self.artifacts.get(&(connection.clone(), path.clone())));
            unit.prior = found.flatten().map(written).collect();
        }
    }
}

fn written(past: &PastArtifact) -> Prior {
    let row = &past.row;
    let key = match row.target_connection.as_str() {
        "" => row.key.clone(),
        connection => format!("{connection}/{}", row.key),
    };
    let run = RunId::parse(&past.run).map_or_else(|| past.run.clone(), |run| run.short().to_string());
    Prior { path: row.path.clone(), run, kind: row.target.clone(), key, action: row.change.clone() }
}

/// Reads the past of `project`, as far as what was processed goes only what was `before` that run. A project that never
/// ran has none, and gets no index.
///
/// # Errors
/// When the index cannot be used: a plan without it would take everything for new.
pub fn read(project: &Project, before: Option<RunId>) -> Result<Past, Failure> {
    let runs = Runs::of_project(&project.root);
    let recorded = runs.list().map_err(Failure::internal)?;
    if recorded.is_empty() {
        return Ok(Past::default());
    }
    // A shipped index may name runs that have no tape, so only runs with a mark count as written here.
    let marked = recorded.iter().map(|found| found.id).filter(|run| ingest::is_run_marked(&project.root, *run));
    let marked: HashSet<RunId> = marked.collect();
    let (db, unreadable) = runs::indexed(&runs).map_err(Failure::internal)?;
    opened::warn(&unreadable);
    let mut baseline = Baseline::default();
    for ((connection, adapter, path), file) in db.past_files(before).map_err(Failure::internal)? {
        baseline.add_file(&connection, &adapter, path, prior(&file, &marked));
    }
    let units = db.past_units(before).map_err(Failure::internal)?;
    let left = Left::of(&runs, &db, &db.past_successes().map_err(Failure::internal)?, &marked)?;
    for unit in units {
        let standing = standing(&unit);
        baseline.add_unit(unit.connection, unit.unit, standing);
    }
    let artifacts = db.past_artifacts(before).map_err(Failure::internal)?;
    Ok(Past { baseline, efforts: db.past_efforts().map_err(Failure::internal)?, left, artifacts })
}

fn prior(file: &PastFile, marked: &HashSet<RunId>) -> diff::Prior {
    diff::Prior {
        processed: file.processed.as_deref().and_then(Fingerprint::parse),
        failed: file.failed,
        foreign: file.run.is_none_or(|run| !marked.contains(&run)),
    }
}

fn standing(past: &PastUnit) -> Standing {
    let is = |statuses: &[UnitStatus]| statuses.iter().any(|known| known.word() == past.status);
    let run = past.run.short();
    if is(&[UnitStatus::Budget]) {
        let spent = past.detail.clone().unwrap_or_else(|| SpentBudget::default().to_string());
        Standing::NotDone(format!("{spent} in run {run}"))
    } else if past.unsaved {
        Standing::Unsaved
    } else if is(&[UnitStatus::Stopped]) {
        Standing::NotDone(format!("was stopped in run {run}"))
    } else if is(&[UnitStatus::Succeeded, UnitStatus::Reused]) {
        Standing::Succeeded
    } else if is(&[UnitStatus::Failed]) {
        Standing::Failed
    } else {
        Standing::Unfinished
    }
}
