//! What `doctor` finds out about the project: its settings, each connection, its repository, and what a run left behind.

use super::{
    super::{args::Global, ground, model::Choice, past, plan::outside, project, settings, summary::counted},
    Check, Finding,
};
use crate::ingest::{
    plan::{PlanError, Planned, Selection, plan},
    project::{Project, ProjectError, Role},
    repository::RepositoryError,
};

/// Looks at the project, if there is one. Returns the model that its units would have: another might answer where that one
/// does not.
pub(super) fn examine(global: &Global, findings: &mut Vec<Finding>) -> Option<String> {
    let opened = match project::directory(global) {
        Ok(directory) => Project::open(&directory),
        Err(failure) => {
            findings.push(Finding::fail(Check::Project, failure.message));
            return None;
        }
    };
    let project = match opened {
        // Settings that cannot be read are reported before this.
        Ok(project) => {
            let paths = settings::allowed_paths(global).unwrap_or_default();
            findings.extend(paths.warnings.into_iter().map(|warning| Finding::note(Check::Project, warning)));
            project.with_allowed_paths(paths.allowed, &paths.file)
        }
        // Being nowhere near a project is no fault, unless one was named; one that cannot be used is.
        Err(error @ ProjectError::Missing(_)) if global.project_dir.is_none() => {
            findings.push(Finding::note(Check::Project, error.to_string()));
            return None;
        }
        Err(error) => {
            findings.push(Finding::fail(Check::Project, error.to_string()));
            return None;
        }
    };
    let planned = plan(&project, &Selection::default());
    examine_settings(&project, &planned, findings);
    let (kept, disabled) = ground::examine(&project, planned.as_ref().ok());
    findings.push(repository(kept));
    findings.extend(disabled.map(|text| Finding::note(Check::Repository, text)));
    findings.extend(records(global, &project, planned.ok().as_ref()));
    Choice::of(&project, Role::CandidateExtraction, None).model
}

fn examine_settings(project: &Project, planned: &Result<Planned, PlanError>, findings: &mut Vec<Finding>) {
    findings.extend(project.warnings.iter().map(|warning| Finding::note(Check::Project, warning)));
    let connections = counted(project.settings.connections.len(), "connection");
    findings.push(match (project.runnable(), planned) {
        (Err(error), _) => Finding::fail(Check::Project, error.to_string()),
        (Ok(()), Err(error)) => Finding::fail(Check::Project, error.to_string()),
        (Ok(()), Ok(planned)) if planned.sources.is_empty() => {
            let text = format!("project {} with {connections}, none of which gives units", project.root.display());
            Finding::fail(Check::Project, text)
        }
        (Ok(()), Ok(_)) => {
            Finding::ok(Check::Project, format!("project {} with {connections}", project.root.display()))
        }
    });
    if let Ok(planned) = planned {
        findings.extend(project.settings.connections.iter().map(|connection| standing(&connection.id, planned)));
    }
}

/// Whether a connection gives units.
fn standing(id: &str, planned: &Planned) -> Finding {
    if let Some(skipped) = planned.skipped.iter().find(|skipped| skipped.connection == id) {
        let finding = if skipped.fault { Finding::fail } else { Finding::note };
        return finding(Check::Connection, skipped.why.clone());
    }
    let units = planned.units.iter().filter(|unit| unit.planned.connection == id).count();
    let given = format!("connection {id} gives {}", counted(units, "unit"));
    let source = planned.sources.iter().find(|source| source.connection == id);
    match source.and_then(outside) {
        Some(place) => Finding::note(Check::Connection, format!("{given}; {place}")),
        None => Finding::ok(Check::Connection, given),
    }
}

/// How the project keeps what units write.
fn repository(kept: Result<String, RepositoryError>) -> Finding {
    match kept {
        Ok(text) if text == ground::NO_HISTORY => Finding::note(Check::Repository, text),
        Ok(text) => Finding::ok(Check::Repository, text),
        Err(error) => Finding::fail(Check::Repository, error.to_string()),
    }
}

/// Why a run could not be recorded, in the words of its refusal; else work of an earlier run that is in no commit.
fn records(global: &Global, project: &Project, planned: Option<&Planned>) -> Option<Finding> {
    let past = past::read(project, None).and_then(|past| ground::check_writable(&project.root).map(|()| past));
    match past {
        Ok(past) => {
            let left = past.left.and_then(|left| left.among(&planned?.units));
            left.map(|left| Finding::note(Check::Runs, left.sentence(global)))
        }
        Err(failure) => Some(Finding::fail(Check::Runs, failure.message)),
    }
}
