//! The project of a command, and warnings about it.

use std::path::{Path, PathBuf};

use super::{
    args::{GlobalArgs, ResumeArgs, SelectArgs},
    exit::{self, CliError},
    settings,
};
use crate::{
    diagnostic::Problem,
    engine::resume::{self, ContinueMode, PlanRequest, ResumeError, RunPlan},
    ingest::{
        SqlWorkers,
        plan::UnitSelection,
        project::{self, ModelRole, Project, ProjectError, ProjectLookup},
        workspace_check,
    },
};

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
    let inputs = ProjectLookup { flag: global.project_dir.as_deref(), env: env.as_deref(), cwd: &cwd };
    Ok(project::find_project_dir(inputs)?)
}

/// Reads the project at `resolve_directory`. Its databases are read by child processes of this program.
pub(super) fn read(directory: &Path) -> Result<Project, ProjectError> {
    let mut project = Project::open(directory)?;
    // The link refers to the running program even after an update replaced or removed its file.
    let program = match cfg!(target_os = "linux") {
        true => PathBuf::from("/proc/self/exe"),
        false => std::env::current_exe().unwrap_or_default(),
    };
    project.sql_workers = SqlWorkers::new(program);
    Ok(project)
}

/// Opens the project and prints its warnings.
///
/// # Errors
/// If there is no project, or its `ktx.yaml` cannot be used.
pub(crate) fn open(global: &GlobalArgs) -> Result<Project, CliError> {
    let project = read(&resolve_directory(global)?)?;
    print_warnings(&project.warnings);
    let paths = settings::allowed_paths(global)?;
    paths.warnings.iter().for_each(exit::print_warning);
    Ok(project.with_allowed_paths(paths.allowed, &paths.file))
}

/// The project; `None` outside of projects, for commands that do not need one.
///
/// # Errors
/// If its `ktx.yaml` cannot be used.
pub(crate) fn find(global: &GlobalArgs) -> Result<Option<Project>, CliError> {
    match read(&resolve_directory(global)?) {
        Ok(project) => {
            print_warnings(&project.warnings);
            Ok(Some(project))
        }
        Err(ProjectError::NotFound(_)) if global.project_dir.is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The selection of the flags.
pub(crate) fn selection(select: &SelectArgs) -> UnitSelection {
    UnitSelection { connections: select.connections.clone(), only: select.only.clone(), full: select.full }
}

/// Plans the run that the flags select, and prints warnings about it.
///
/// # Errors
/// If nothing matches the selection, the run to continue cannot be read, or the project cannot be planned.
pub(crate) fn plan_run(
    global: &GlobalArgs,
    project: &Project,
    select: &SelectArgs,
    model: Option<&str>,
) -> Result<RunPlan, CliError> {
    let ResumeArgs { resume_run, failed } = &select.resume;
    let resumed = resume_run.as_deref().map(|run| (ContinueMode::Unfinished, run));
    let failed = failed.as_deref().map(|run| (ContinueMode::Failed, run));
    let request = PlanRequest { selection: selection(select), continued: resumed.or(failed), model };
    resume::plan_run(project, request, &exit::print_warning).map_err(|error| match (&error, &global.project_dir) {
        (ResumeError::NoRun, Some(_)) => {
            CliError::from(error).with_help("start one with `ingestdeck run --project-dir DIR`")
        }
        _ => error.into(),
    })
}

/// The effective settings of `ktx.yaml`, as lines of `key = value  # origin`. Lines are TOML, like those of the
/// settings.
pub(crate) fn effective_settings(project: &Project) -> Vec<String> {
    let settings = &project.settings;
    let (units, limits, retry) = (&settings.work_units, &settings.rate_limit, &settings.rate_limit.retry);
    let origin = |key: &str| match settings.key_lines.get(key) {
        Some(line) => format!("project {}:{line}", project.root.join(project::PROJECT_FILE).display()),
        None => "default".to_owned(),
    };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let models = ModelRole::ALL.into_iter().map(|role| {
        let key = format!("llm.models.{}", role.as_str());
        match settings.model_with_role(role) {
            Some((named, model)) if named == role => format!("{key} = {}  # {}", quoted(model), origin(&key)),
            Some((_, model)) => format!("{key} = {}  # llm.models.default", quoted(model)),
            None => format!("# {key} is not set  # Claude Code's own choice"),
        }
    });
    let values = [
        ("ingest.workUnits.stepBudget", units.step_budget.to_string()),
        ("ingest.workUnits.maxConcurrency", units.max_concurrency.to_string()),
        ("ingest.workUnits.failureMode", quoted(units.failure_mode.as_str())),
        ("ingest.rateLimit.enabled", limits.enabled.to_string()),
        ("ingest.rateLimit.throttleThreshold", format!("{:?}", limits.throttle_threshold)),
        ("ingest.rateLimit.minConcurrencyUnderPressure", limits.min_concurrency_under_pressure.to_string()),
        ("ingest.rateLimit.maxWaitMs", limits.max_wait_ms.map(|wait| wait.to_string()).unwrap_or_default()),
        ("ingest.rateLimit.retry.maxAttempts", retry.max_attempts.to_string()),
        ("ingest.rateLimit.retry.baseDelayMs", retry.base_delay_ms.to_string()),
        ("ingest.rateLimit.retry.maxDelayMs", retry.max_delay_ms.to_string()),
        ("ingest.rateLimit.retry.jitter", retry.jitter.to_string()),
    ];
    let values = values.into_iter().map(|(key, value)| match value.as_str() {
        "" => format!("# {key} is not set  # {}", origin(key)),
        value => format!("{key} = {value}  # {}", origin(key)),
    });
    let brought = project.instructions.overrides.iter().map(|brought| format!("# {brought}"));
    models.chain(values).chain(brought).collect()
}

/// Files of the project that prevent KTX from ingesting: pages with broken references, and sources that KTX cannot load.
pub(crate) fn blocking_files_problems(project: &Project) -> Vec<Problem> {
    // A wiki or semantic layer that cannot be listed is an error when it is read.
    let connections = project.target_ids(None);
    let stale = workspace_check::blocking_references(&project.root, &connections).unwrap_or_default();
    let unloadable = workspace_check::unloadable_sources(&project.root, &connections).unwrap_or_default();
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
    let named = texts.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    match texts.len().saturating_sub(NAMED) {
        _ if texts.is_empty() => None,
        0 => Some(named),
        more => Some(format!("{named}; and {more} more")),
    }
}

/// Prints each warning to stderr.
pub(crate) fn print_warnings<T: Clone + Into<Problem>>(warnings: &[T]) {
    warnings.iter().cloned().map(T::into).for_each(|warning| exit::print_warning(&warning));
}
