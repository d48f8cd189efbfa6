//! The tools without an attempt, for use by any client.
//!
//! This module must not know the client. There is no prompt and no transcript, and nothing is published.

use std::{io, path::Path, sync::Arc};

use super::{
    connection_scope::ConnectionScope,
    project::Project,
    tool::{AttemptTools, ToolContext},
    work_unit::WorkUnit,
    workspace::Workspace,
};
use ingestdeck_core::units::Toolset;

/// The workspace cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {path}: {cause}")]
pub struct StandaloneToolsError {
    path: String,
    cause: io::Error,
}

/// Opens the tools for `project`. They read the raw files of `units`, which must belong to one connection, and write to
/// `workspace`, which is kept; without one they are read-only.
pub fn open_tools(
    project: &Project,
    units: &[WorkUnit],
    workspace: Option<&Path>,
) -> Result<Arc<dyn Toolset>, StandaloneToolsError> {
    let workspace = match workspace {
        None => Workspace::read_only(&project.root),
        Some(dir) => Workspace::open_persistent(&project.root, dir).map_err(|cause| {
            StandaloneToolsError {
                path: dir.display().to_string(),
                cause,
            }
        })?,
    };
    let unit = merge_units(units);
    let own = (!units.is_empty()).then_some(unit.planned.connection.as_str());
    let mut scope = ConnectionScope::new(project, own);
    // A server may run for days, and sees scans that are newer than its start.
    scope.fixed_now = None;
    let context = ToolContext {
        scope,
        workspace,
        loadable_skills: project.instructions.loadable_skills(),
        unit,
        records: Default::default(),
    };
    Ok(Arc::new(AttemptTools::new(Arc::new(context), None)))
}

/// Merges `units` into one unit with the files of all.
fn merge_units(units: &[WorkUnit]) -> WorkUnit {
    let Some((first, more)) = units.split_first() else {
        return WorkUnit::default();
    };
    let mut all = first.clone();
    for unit in more {
        all.planned
            .raw_files
            .extend(unit.planned.raw_files.iter().cloned());
        all.planned
            .dependency_paths
            .extend(unit.planned.dependency_paths.iter().cloned());
    }
    for paths in [
        &mut all.planned.raw_files,
        &mut all.planned.dependency_paths,
    ] {
        paths.sort_unstable();
        paths.dedup();
    }
    all
}
