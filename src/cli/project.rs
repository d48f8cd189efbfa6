//! The project that a command is about, and what is odd about it.

use std::path::PathBuf;

use super::{
    args::{Global, SelectArgs},
    exit::{Exit, Failure},
    show,
};
use crate::ingest::{
    plan::{self, PlanError, Planned, Selection},
    project::{self, Project, ProjectError, Where},
};

/// Where the project is, whether or not there is one.
///
/// # Errors
/// When `KTX_PROJECT_DIR` is empty or the current directory is gone.
pub fn directory(global: &Global) -> Result<PathBuf, Failure> {
    let cwd = std::env::current_dir()
        .map_err(|error| Failure::usage(format!("cannot tell the current directory: {error}; change to one")))?;
    let env = std::env::var_os("KTX_PROJECT_DIR");
    let inputs = Where { flag: global.project_dir.as_deref(), env: env.as_deref(), cwd: &cwd };
    project::resolve(inputs).map_err(|error| misconfigured(&error))
}

/// Opens the project and says what is odd about it.
///
/// # Errors
/// When there is none, or its `ktx.yaml` cannot be used.
pub fn open(global: &Global) -> Result<Project, Failure> {
    let project = Project::open(&directory(global)?).map_err(|error| misconfigured(&error))?;
    warn(&project.warnings);
    Ok(project)
}

/// Plans what `select` asks for.
///
/// # Errors
/// When it asks for something that does not exist or cannot be ingested.
pub fn planned(project: &Project, select: &SelectArgs) -> Result<Planned, Failure> {
    let selection = Selection { connections: select.connections.clone(), only: select.only.clone() };
    plan::plan(project, &selection).map_err(|error: PlanError| {
        let exit = if error.is_not_found() { Exit::NotFound } else { Exit::Usage };
        Failure::new(exit, error.to_string())
    })
}

/// Says each warning on stderr.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        show::tell(&format!("ingestdeck: warning: {warning}"));
    }
}

fn misconfigured(error: &ProjectError) -> Failure {
    Failure::usage(error.to_string())
}
