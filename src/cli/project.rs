//! The project of a command, and warnings about it.

use std::path::{Path, PathBuf};

use super::{
    args::{GlobalArgs, ResumeArgs, SelectArgs},
    exit::{self, CliError},
    model_choice::ModelChoice,
    settings,
};
use ingestdeck_core::{
    config::{ContinueAction, IngestSettings},
    diagnostic::Problem,
};
use ingestdeck_engine::resume::{self, ContinueMode, PlanRequest, ResumeError, RunPlan};
use ingestdeck_ingest::{
    SqlWorkers,
    plan::UnitSelection,
    project::{self, ModelRole, Project, ProjectError, ProjectLookup},
    workspace_check,
};

/// Tokens of the context of a model: the least that a current one has, and that of models with this mark.
const CONTEXT: u64 = 200_000;
const LONG_CONTEXT: u64 = 1_000_000;
const LONG_CONTEXT_MARK: &str = "[1m]";

/// The directory of the project, whether or not it exists.
///
/// # Errors
/// If `KTX_PROJECT_DIR` is empty or the current directory was deleted.
pub(crate) fn resolve_directory(global: &GlobalArgs) -> Result<PathBuf, CliError> {
    let cwd = std::env::current_dir().map_err(|error| {
        CliError::usage("cannot determine the current directory")
            .with_cause(error)
            .with_help("change to an existing directory")
    })?;
    let env = std::env::var_os("KTX_PROJECT_DIR");
    let inputs = ProjectLookup {
        flag: global.project_dir.as_deref(),
        env: env.as_deref(),
        cwd: &cwd,
    };
    Ok(project::find_project_dir(inputs)?)
}

/// Reads the project at `resolve_directory`. Its databases are read by child processes of this program.
pub(super) fn read(directory: &Path) -> Result<Project, ProjectError> {
    let mut project = Project::open(directory)?;
    project.sql_workers = sql_workers();
    Ok(project)
}

/// The worker processes that read databases.
pub(super) fn sql_workers() -> SqlWorkers {
    // The link refers to the running program even after an update replaced or removed its file.
    let program = match cfg!(target_os = "linux") {
        true => PathBuf::from("/proc/self/exe"),
        false => std::env::current_exe().unwrap_or_default(),
    };
    SqlWorkers::new(program)
}

/// Reads the project and prints its warnings, which help to correct a `ktx.yaml` that cannot be used.
fn read_with_warnings(global: &GlobalArgs) -> Result<Result<Project, ProjectError>, CliError> {
    let project = read(&resolve_directory(global)?);
    exit::print_warnings(match &project {
        Ok(project) => &project.warnings,
        Err(error) => error.warnings(),
    });
    Ok(project)
}

/// Opens the project and prints its warnings.
///
/// # Errors
/// If there is no project, or its `ktx.yaml` cannot be used.
pub(crate) fn open(global: &GlobalArgs) -> Result<Project, CliError> {
    let project = read_with_warnings(global)??;
    let (permissions, warnings) = settings::permissions(global)?;
    warnings.iter().for_each(exit::print_warning);
    let share = settings::max_unit_share(global)?;
    let model = ModelChoice::resolve(&project, ModelRole::CandidateExtraction, None).model;
    let is_long = model.is_some_and(|model| model.ends_with(LONG_CONTEXT_MARK));
    let context = if is_long { LONG_CONTEXT } else { CONTEXT };
    Ok(project
        .with_permissions(permissions)
        .with_unit_share(share, context))
}

/// The project; `None` outside of projects, for commands that do not need one.
///
/// # Errors
/// If its `ktx.yaml` cannot be used.
pub(crate) fn find(global: &GlobalArgs) -> Result<Option<Project>, CliError> {
    match read_with_warnings(global)? {
        Ok(project) => Ok(Some(project)),
        Err(ProjectError::NotFound(_)) if global.project_dir.is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The selection of the flags.
pub(crate) fn selection(select: &SelectArgs) -> UnitSelection {
    let SelectArgs {
        connections,
        only,
        full,
        neighbours,
        unread,
        ..
    } = select;
    let (connections, only) = (connections.clone(), only.clone());
    UnitSelection {
        connections,
        only,
        full: *full,
        neighbours: *neighbours,
        unread: *unread,
    }
}

/// How the attempts of a plan run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlannedAttempts<'a> {
    pub model: Option<&'a str>,
    /// Units that were cut from outside continue in their sessions.
    pub continues_sessions: bool,
}

impl<'a> PlannedAttempts<'a> {
    pub(crate) fn new(model: Option<&'a str>, settings: &IngestSettings) -> Self {
        Self {
            model,
            continues_sessions: *settings.continue_cut == ContinueAction::Auto,
        }
    }
}

/// Plans the run that the flags select, and prints warnings about it.
///
/// # Errors
/// If nothing matches the selection, the run to continue cannot be read, or the project cannot be planned.
pub(crate) fn plan_run(
    global: &GlobalArgs,
    project: &Project,
    select: &SelectArgs,
    attempts: PlannedAttempts<'_>,
) -> Result<RunPlan, CliError> {
    try_plan_run(project, select, attempts).map_err(|error| plan_failure(global, error))
}

/// As [`plan_run`], with the error of the plan.
pub(crate) fn try_plan_run(
    project: &Project,
    select: &SelectArgs,
    attempts: PlannedAttempts<'_>,
) -> Result<RunPlan, ResumeError> {
    let ResumeArgs {
        resume_run, failed, ..
    } = &select.resume;
    let resumed = resume_run
        .as_deref()
        .map(|run| (ContinueMode::Unfinished, run));
    let failed = failed.as_deref().map(|run| (ContinueMode::Failed, run));
    let request = PlanRequest {
        selection: selection(select),
        continued: resumed.or(failed),
        model: attempts.model,
        continues_sessions: attempts.continues_sessions,
    };
    resume::plan_run(project, request, &exit::print_warning)
}

/// The error of a plan for the command line.
pub(crate) fn plan_failure(global: &GlobalArgs, error: ResumeError) -> CliError {
    match (&error, &global.project_dir) {
        (ResumeError::NoRun, Some(_)) => {
            CliError::from(error).with_help("start one with `ingestdeck run --project-dir DIR`")
        }
        _ => error.into(),
    }
}

/// Files of the project that prevent KTX from ingesting: pages with broken references, and sources that KTX cannot load.
pub(crate) fn blocking_files_problems(project: &Project) -> Vec<Problem> {
    // A wiki or semantic layer that cannot be listed is an error when it is read.
    let connections = project.target_ids(None);
    let stale =
        workspace_check::blocking_references(&project.root, &connections).unwrap_or_default();
    let unloadable =
        workspace_check::unloadable_sources(&project.root, &connections).unwrap_or_default();
    let stale = list_first(&stale).map(|named| {
        Problem::new(format!(
            "wiki pages have broken references ({named}): runs here do not change them, but KTX refuses its \
             next ingest that changes a source or removes a page"
        ))
        .with_help("correct these references, or create their targets")
    });
    let unloadable = list_first(&unloadable).map(|named| {
        Problem::new(format!(
            "KTX cannot load sources ({named}): they do not exist for KTX, and it refuses edits of all sources of their \
             connection"
        ))
        .with_help("correct these files")
    });
    stale.into_iter().chain(unloadable).collect()
}

/// The first texts in one line; `None` without any.
fn list_first(texts: &[String]) -> Option<String> {
    const NAMED: usize = 5;
    let named = texts
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    match texts.len().saturating_sub(NAMED) {
        _ if texts.is_empty() => None,
        0 => Some(named),
        more => Some(format!("{named}; and {more} more")),
    }
}
