//! Finds a prior run with unsaved work: finished units that no commit contains.
//!
//! Queries the index, and reads the tapes only to check whether their runs are over. Must not change the plan.

use std::{collections::HashSet, path::Path};

use super::continued_runs::ContinuedRuns;
use ingestdeck_core::{
    diagnostic::Problem,
    tape::RunId,
    text::{commands, pluralize},
};
use ingestdeck_ingest::work_unit::WorkUnit;
use ingestdeck_records::store::{
    Db, RunStatus, RunStore, db::UnitHistory, index_refresh::RefreshError,
};

/// A finished run with unsaved units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedRun {
    run: RunId,
    /// Connection and key of each unit.
    units: Vec<(String, String)>,
    was_interrupted: bool,
    /// True if another installation wrote its record.
    is_foreign: bool,
    /// True if the changes wait for a review, which saves them.
    waits_for_review: bool,
}

impl UnsavedRun {
    /// The newest run whose last results for `units` are unsaved; `None` while it is running. `marked` are the runs
    /// that this installation recorded.
    ///
    /// # Errors
    /// If the index or the runs cannot be read.
    pub(crate) fn find(
        runs: &RunStore,
        db: &Db,
        units: &[UnitHistory],
        marked: &HashSet<RunId>,
    ) -> Result<Option<Self>, RefreshError> {
        let unsaved = || units.iter().filter(|unit| unit.unsaved);
        let Some(run) = unsaved().map(|unit| unit.run).max() else {
            return Ok(None);
        };
        let listed = db.list()?;
        // A scripted run cannot be resumed.
        if listed
            .iter()
            .any(|listed| listed.id == run && listed.scripted)
        {
            return Ok(None);
        }
        let found = runs.list()?.into_iter().find(|found| found.id == run);
        let standing = found.map(|found| runs.status(&found)).transpose()?;
        let cut_off = match standing {
            None | Some(RunStatus::Running) => return Ok(None),
            Some(standing) => standing == RunStatus::Interrupted,
        };
        let of_it = unsaved().filter(|unit| unit.run == run);
        let units = of_it
            .map(|unit| (unit.connection.clone(), unit.unit_key.clone()))
            .collect();
        let waits_for_review = ContinuedRuns::from_index(db, runs.project())?.has_open_review(run);
        let is_foreign = !marked.contains(&run);
        Ok(Some(Self {
            run,
            units,
            was_interrupted: cut_off,
            is_foreign,
            waits_for_review,
        }))
    }

    /// Keeps the unsaved units that are among `units`, which are all units of the project; `None` if no unit is left.
    pub fn still_planned(mut self, units: &[WorkUnit]) -> Option<Self> {
        let there: HashSet<(&str, &str)> = units
            .iter()
            .map(|unit| {
                (
                    unit.planned.connection.as_str(),
                    unit.planned.ktx_key().as_str(),
                )
            })
            .collect();
        self.units
            .retain(|(connection, unit)| there.contains(&(connection.as_str(), unit.as_str())));
        (!self.units.is_empty()).then_some(self)
    }

    /// True if the sentence about it names the review.
    pub(super) fn waits_for_review(&self) -> bool {
        self.waits_for_review
    }

    /// What is not saved; the help is the command that reviews or resumes the run of the project that `--project-dir` names.
    pub fn problem(&self, project_dir: Option<&Path>) -> Problem {
        let run = self.run.short().to_string();
        let how = if self.was_interrupted {
            "was cut off"
        } else {
            "ended"
        };
        let are = if self.units.len() == 1 { "is" } else { "are" };
        let origin = if self.is_foreign {
            " (this installation did not write its record)"
        } else {
            ""
        };
        let units = pluralize(self.units.len(), "unit");
        if self.waits_for_review {
            let command = commands::review_command(project_dir, &run);
            return Problem::new(format!(
                "the changes of {units} of run {run}{origin} wait for a review"
            ))
            .with_help(format!("`{command}` decides about them"));
        }
        let command = commands::resume_command(project_dir, &run);
        Problem::new(format!(
            "run {run}{origin} {how} with {units} done that {are} not saved"
        ))
        .with_help(format!("`{command}` resumes it"))
    }
}
