//! The tools without an attempt: the same set, for whoever wants to call them.
//!
//! It must not know who that is. There is no prompt and no transcript, and nothing is published.

use std::{io, path::Path, sync::Arc};

use super::{
    connection_scope::ConnectionScope,
    plan::WorkUnit,
    project::Project,
    tool::{AttemptTools, ToolContext},
    workspace::Workspace,
};
use crate::units::Toolset;

/// The workspace cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {path}: {cause}")]
pub struct StandaloneToolsError {
    path: String,
    cause: io::Error,
}

/// The tools over `project`. They read the raw files of `units`, which are of one connection, and write below
/// `workspace`, where it stays; without one they write nothing.
pub fn open_tools(
    project: &Project,
    units: &[WorkUnit],
    workspace: Option<&Path>,
) -> Result<Arc<dyn Toolset>, StandaloneToolsError> {
    let workspace = match workspace {
        None => Workspace::read_only(&project.root),
        Some(dir) => Workspace::open_persistent(&project.root, dir)
            .map_err(|cause| StandaloneToolsError { path: dir.display().to_string(), cause })?,
    };
    let unit = merge_units(units);
    let own = (!units.is_empty()).then_some(unit.planned.connection.as_str());
    let reach = ConnectionScope::new(project, own);
    let bench = ToolContext {
        scope: reach,
        workspace,
        loadable_skills: project.instructions.loadable_skills(),
        unit,
        records: Default::default(),
    };
    Ok(Arc::new(AttemptTools::new(Arc::new(bench), None)))
}

/// One unit with the files of all.
fn merge_units(units: &[WorkUnit]) -> WorkUnit {
    let Some((first, more)) = units.split_first() else { return WorkUnit::default() };
    let mut all = first.clone();
    for unit in more {
        all.planned.raw_files.extend(unit.planned.raw_files.iter().cloned());
        all.planned.dependency_paths.extend(unit.planned.dependency_paths.iter().cloned());
    }
    for paths in [&mut all.planned.raw_files, &mut all.planned.dependency_paths] {
        paths.sort_unstable();
        paths.dedup();
    }
    all
}
