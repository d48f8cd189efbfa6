//! The checks of `doctor` that concern the project: its settings, connections and repository, and what earlier runs
//! left.

use super::{
    super::{
        args::GlobalArgs, exit::CliError, git_sources, model_choice::ModelChoice,
        plan::outside_project_message, policy, project, runs, settings,
    },
    DoctorCheck, DoctorFinding, warehouse,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, to_lines},
    text::pluralize,
};
use ingestdeck_engine::{prepare, prior_results::ProjectHistory};
use ingestdeck_ingest::{
    connection_scope,
    plan::{IngestPlan, PlanError, UnitSelection, plan},
    project::{ModelRole, Project, ProjectError},
    repository::RepositoryError,
};

/// Checks the project, if there is one. Returns the model of its units, because the login may not include every model.
pub(super) fn check_project(
    global: &GlobalArgs,
    findings: &mut Vec<DoctorFinding>,
) -> Option<String> {
    let opened = match project::resolve_directory(global) {
        Ok(directory) => project::read(&directory),
        Err(failure) => {
            findings.push(DoctorFinding::fail(DoctorCheck::Project, failure.to_line()));
            return None;
        }
    };
    let project = match opened {
        // Invalid settings were reported before.
        Ok(project) => {
            let (permissions, warnings) = settings::permissions(global).unwrap_or_default();
            findings.extend(notes(&warnings));
            project.with_permissions(permissions)
        }
        // A missing project is not a failure unless the user named one; an unusable project always is.
        Err(error @ ProjectError::NotFound(_)) if global.project_dir.is_none() => {
            findings.push(DoctorFinding::note(DoctorCheck::Project, error.to_line()));
            return None;
        }
        Err(error) => {
            findings.push(DoctorFinding::fail(DoctorCheck::Project, error.to_line()));
            findings.extend(notes(error.warnings()));
            return None;
        }
    };
    let planned = plan(&project, &UnitSelection::default());
    examine_settings(&project, &planned, findings);
    if let Err(error) = policy::check_project_rules(&project.root) {
        findings.push(DoctorFinding::fail(DoctorCheck::Project, error.to_line()));
    }
    findings.extend(notes(&project::blocking_files_problems(&project)));
    let (kept, disabled) = prepare::inspect_repository(&project, planned.as_ref().ok());
    findings.push(repository(kept));
    findings.extend(disabled.map(|text| DoctorFinding::note(DoctorCheck::Repository, text)));
    findings.extend(records(global, &project, planned.ok().as_ref()));
    ModelChoice::resolve(&project, ModelRole::CandidateExtraction, None).model
}

fn notes<'a>(
    problems: impl IntoIterator<Item = &'a (impl Diagnostic + 'a)>,
) -> impl Iterator<Item = DoctorFinding> {
    let note = |problem| DoctorFinding::note(DoctorCheck::Project, problem);
    to_lines(problems).into_iter().map(note)
}

fn examine_settings(
    project: &Project,
    planned: &Result<IngestPlan, PlanError>,
    findings: &mut Vec<DoctorFinding>,
) {
    findings.extend(notes(&project.warnings));
    let connections = pluralize(project.settings.connections.len(), "connection");
    findings.push(match (project.check_backend(), planned) {
        (Err(error), _) => DoctorFinding::fail(DoctorCheck::Project, error.to_line()),
        (Ok(()), Err(error)) => DoctorFinding::fail(DoctorCheck::Project, error.to_line()),
        (Ok(()), Ok(planned)) if planned.sources.is_empty() => {
            let text = format!(
                "project {} with {connections}, none of which has units",
                project.root.display()
            );
            DoctorFinding::fail(DoctorCheck::Project, text)
        }
        (Ok(()), Ok(_)) => DoctorFinding::ok(
            DoctorCheck::Project,
            format!("project {} with {connections}", project.root.display()),
        ),
    });
    if let Ok(planned) = planned {
        let connections = project.settings.connections.iter();
        // The databases are checked separately.
        let sources = connections.filter(|connection| !connection_scope::is_database(connection));
        findings
            .extend(sources.map(|connection| check_connection(project, &connection.id, planned)));
    }
    findings.extend(warehouse::check_databases(project));
}

/// Checks whether a connection has units.
fn check_connection(project: &Project, id: &str, planned: &IngestPlan) -> DoctorFinding {
    if let Some(skipped) = planned
        .skipped
        .iter()
        .find(|skipped| skipped.connection == id)
    {
        let finding = if skipped.fault {
            DoctorFinding::fail
        } else {
            DoctorFinding::note
        };
        return finding(DoctorCheck::Connection, skipped.problem.to_line());
    }
    if let Some(target) = planned
        .targets
        .iter()
        .find(|target| target.connection == id)
    {
        return DoctorFinding::ok(DoctorCheck::Connection, target.problem.to_line());
    }
    let units = planned
        .units
        .iter()
        .filter(|unit| unit.planned.connection == id)
        .count();
    let source = planned
        .sources
        .iter()
        .find(|source| source.connection == id);
    let mut given = format!("connection {id} gives {}", pluralize(units, "unit"));
    if let Some(clone) = source.and_then(|source| source.version.clone.as_ref()) {
        given = format!("{given}, from {}", git_sources::describe_clone(clone));
    }
    let remarks = source
        .and_then(outside_project_message)
        .into_iter()
        .chain(source.and_then(|_| git_sources::permission_problem(project, id)))
        .chain(source.and_then(|source| Some(source.version.branch_mismatch.as_ref()?.to_line())));
    let text = std::iter::once(given).chain(remarks).collect::<Vec<_>>();
    let finding = if text.len() > 1 {
        DoctorFinding::note
    } else {
        DoctorFinding::ok
    };
    finding(DoctorCheck::Connection, text.join("; "))
}

/// Reports how the project stores the results of units.
fn repository(kept: Result<String, RepositoryError>) -> DoctorFinding {
    match kept {
        Ok(text) if text == prepare::NO_REPOSITORY => {
            DoctorFinding::note(DoctorCheck::Repository, text)
        }
        Ok(text) => DoctorFinding::ok(DoctorCheck::Repository, text),
        Err(error) => DoctorFinding::fail(DoctorCheck::Repository, error.to_line()),
    }
}

/// Reports why a run cannot be recorded, or which records cannot be read, which run is active and which earlier work is not
/// committed.
fn records(
    global: &GlobalArgs,
    project: &Project,
    planned: Option<&IngestPlan>,
) -> Vec<DoctorFinding> {
    let read = || -> Result<_, CliError> {
        let history = ProjectHistory::open(project)?;
        prepare::check_writable(&project.root)?;
        Ok((history.past(None)?, history.warnings))
    };
    match read() {
        Ok((past, warnings)) => {
            let left = past
                .unsaved_run
                .and_then(|left| left.still_planned(&planned?.units));
            let left = left.map(|left| left.problem(global.project_dir.as_deref()));
            let active = runs::active_run_problem(global);
            let problems = active
                .into_iter()
                .chain(left)
                .map(|problem| problem.to_line());
            warnings
                .into_iter()
                .chain(problems)
                .map(|sentence| DoctorFinding::note(DoctorCheck::Runs, sentence))
                .collect()
        }
        Err(failure) => vec![DoctorFinding::fail(DoctorCheck::Runs, failure.to_line())],
    }
}
