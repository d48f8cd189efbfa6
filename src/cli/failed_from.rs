//! `--failed-from`: plans the units that need another attempt in a record of another machine, such as an artifact of a CI
//! system. The record is not continued: its patches and sessions may not exist here.

use std::path::Path;

use ingestdeck_core::{
    diagnostic::Problem,
    run::{RunOutcome, report::UnitReport},
    tape::{UnitKey, note::PlannedUnit},
    text::{one_row, pluralize, printable},
};
use ingestdeck_engine::resume::{ResumeError, RunPlan};
use ingestdeck_ingest::{plan::PlanError, project::Project};

use super::{
    args::{GlobalArgs, SelectArgs},
    exit::{self, CliError},
    gh_artifact::{ArtifactAddress, FetchedTape},
    playback_output,
    project::{self, PlannedAttempts},
    report, runs,
};

/// Maximum number of units that a warning names, and of columns of a name.
const MAX_NAMED: usize = 6;
const MAX_NAME_COLUMNS: usize = 80;

/// A unit of the record: its connection and KTX's key, which is unique in the connection.
#[derive(Debug, PartialEq, Eq)]
struct FailedUnit {
    connection: String,
    key: UnitKey,
}

impl FailedUnit {
    /// `None` for the steps of a run that belong to no plan.
    fn new(unit: &UnitReport) -> Option<Self> {
        let planned = unit.planned.as_deref()?;
        Some(Self::of_plan(planned))
    }

    fn of_plan(planned: &PlannedUnit) -> Self {
        Self {
            connection: planned.connection.clone(),
            key: planned.ktx_key().clone(),
        }
    }
}

/// Plans what the flags select. With `--failed-from`, `None` after a message if nothing of the record is to run.
///
/// # Errors
/// If the record cannot be read or its run is still active, or for the reasons of a plan.
pub(crate) fn plan_run(
    global: &GlobalArgs,
    project: &Project,
    select: &SelectArgs,
    attempts: PlannedAttempts<'_>,
) -> Result<Option<RunPlan>, CliError> {
    let Some(record) = &select.resume.failed_from else {
        return project::plan_run(global, project, select, attempts).map(Some);
    };
    let wanted = failed_units(global, select, record)?;
    if wanted.is_empty() {
        let text = format!("no unit of the run in {record:?} needs another attempt");
        playback_output::print_stderr(&format!("ingestdeck: {text}"));
        return Ok(None);
    }
    let only = wanted.iter().map(|unit| globset::escape(unit.key.as_str()));
    let keys = SelectArgs {
        only: only.collect(),
        ..select.clone()
    };
    let mut taken = match project::try_plan_run(project, &keys, attempts) {
        // The warning names them.
        Err(ResumeError::Plan(PlanError::NoSuchUnit { .. })) => None,
        planned => Some(planned.map_err(|error| project::plan_failure(global, error))?),
    };
    let mut found = Vec::new();
    if let Some(taken) = &mut taken {
        let units = std::mem::take(&mut taken.planned.units);
        // Units of several connections may have the same key.
        for unit in units {
            let failed = FailedUnit::of_plan(&unit.planned);
            if wanted.contains(&failed) {
                found.push(failed);
                taken.planned.units.push(unit);
            } else {
                taken.planned.exclude_unit(&unit, false);
            }
        }
    }
    let missing = wanted.iter().filter(|unit| !found.contains(unit));
    warn_missing(record, &missing.collect::<Vec<_>>());
    Ok(taken.filter(|_| !found.is_empty()))
}

/// The units of the record without a result that is saved, of the selected connections.
fn failed_units(
    global: &GlobalArgs,
    select: &SelectArgs,
    record: &str,
) -> Result<Vec<FailedUnit>, CliError> {
    let fetched = fetch_artifact(global, record)?;
    let path = fetched.as_ref().map(|tape| tape.path.display().to_string());
    let report = report::gather_report(global, path.as_deref().unwrap_or(record))?;
    if report.outcome == RunOutcome::Running {
        return Err(
            CliError::usage(format!("the run in {record:?} is still active"))
                .with_help("wait for its end, or use `--failed` for a run of this project"),
        );
    }
    let is_lost = |unit: &UnitReport| unit.is_successful() && unit.is_unsaved;
    let left = report
        .units
        .iter()
        .filter(|unit| unit.status.needs_retry() || is_lost(unit));
    let names = &select.connections;
    let is_selected = |unit: &FailedUnit| names.is_empty() || names.contains(&unit.connection);
    Ok(left
        .filter_map(FailedUnit::new)
        .filter(is_selected)
        .collect())
}

/// Fetches the tape if `record` names an artifact of GitHub Actions, and no file or run here.
fn fetch_artifact(global: &GlobalArgs, record: &str) -> Result<Option<FetchedTape>, CliError> {
    let Some(address) = ArtifactAddress::parse(record) else {
        return Ok(None);
    };
    if address.is_bare() && (is_file(record) || runs::resolve_tape(global, record).is_ok()) {
        return Ok(None);
    }
    let project = project::resolve_directory(global)?;
    address.fetch(&project).map(Some)
}

#[expect(clippy::disallowed_methods, reason = "whether an argument is a path")]
fn is_file(argument: &str) -> bool {
    Path::new(argument).exists()
}

/// Warns about units of the record that the project no longer has.
fn warn_missing(record: &str, missing: &[&FailedUnit]) {
    if missing.is_empty() {
        return;
    }
    let name = |unit: &&FailedUnit| {
        let key = one_row(unit.key.as_str(), 4 * MAX_NAME_COLUMNS);
        printable(&key, MAX_NAME_COLUMNS).into_owned()
    };
    let named: Vec<String> = missing.iter().take(MAX_NAMED).map(name).collect();
    let more = match missing.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    exit::print_warning(&Problem::new(format!(
        "the plan of this project lacks {} of the run in {record:?}: {}{more}",
        pluralize(missing.len(), "unit"),
        named.join(", ")
    )));
}
