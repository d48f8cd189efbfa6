//! What `doctor` finds out about the project: its settings, each connection, its repository, and what a run left behind.

use super::{
    super::{
        args::Global, exit::Failure, ground, model::Choice, past::ProjectHistory, plan::outside, project, settings,
        summary::counted,
    },
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
        Ok(directory) => project::read(&directory),
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
    findings.extend(project::stale_pages(&project).map(|text| Finding::note(Check::Project, text)));
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
    if let Some(target) = planned.targets.iter().find(|target| target.connection == id) {
        return Finding::ok(Check::Connection, target.why.clone());
    }
    let units = planned.units.iter().filter(|unit| unit.planned.connection == id).count();
    let given = format!("connection {id} gives {}", counted(units, "unit"));
    let source = planned.sources.iter().find(|source| source.connection == id);
    let remarks = source.and_then(outside).into_iter().chain(source.and_then(|source| source.other_branch.clone()));
    let text = std::iter::once(given).chain(remarks).collect::<Vec<_>>();
    let finding = if text.len() > 1 { Finding::note } else { Finding::ok };
    finding(Check::Connection, text.join("; "))
}

/// How the project keeps what units write.
fn repository(kept: Result<String, RepositoryError>) -> Finding {
    match kept {
        Ok(text) if text == ground::NO_HISTORY => Finding::note(Check::Repository, text),
        Ok(text) => Finding::ok(Check::Repository, text),
        Err(error) => Finding::fail(Check::Repository, error.to_string()),
    }
}

/// Why a run could not be recorded, in the words of its refusal; else which records cannot be read, and work of an earlier
/// run that is in no commit.
fn records(global: &Global, project: &Project, planned: Option<&Planned>) -> Vec<Finding> {
    let read = || -> Result<_, Failure> {
        let history = ProjectHistory::open(project)?;
        ground::check_writable(&project.root)?;
        Ok((history.past(None)?, history.warnings))
    };
    match read() {
        Ok((past, warnings)) => {
            let left = past.left.and_then(|left| left.among(&planned?.units));
            let sentences = warnings.into_iter().chain(left.map(|left| left.sentence(global)));
            sentences.map(|sentence| Finding::note(Check::Runs, sentence)).collect()
        }
        Err(failure) => vec![Finding::fail(Check::Runs, failure.message)],
    }
}
