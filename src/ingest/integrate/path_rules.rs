//! Which paths and modes a patch may change: those that the tools of an agent can write, whatever its
//! origin is.
//!
//! This module must not know how a patch is applied.

use super::{Originals, REGULAR_FILE_MODE, SEMANTIC_LAYER_DIR, WIKI_DIR};
use crate::{semantic_layer, wiki};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir;

/// What a patch contains.
#[derive(Clone, Copy, Debug)]
pub(super) enum PatchContent<'a> {
    /// The changes of a unit, which may write sources of these connections.
    Unit { source_connections: &'a [String] },
    /// Changes that were accepted before.
    Accepted,
}

/// Why a patch must not change `path`; `None` if it may.
pub(super) fn forbidden_reason(path: &str, content: PatchContent<'_>) -> Option<String> {
    let shown = path.escape_debug();
    let is_layer = path.starts_with(SEMANTIC_LAYER_DIR);
    if scoped_dir::validate_relative_path(path).is_err()
        || !(path.starts_with(WIKI_DIR) || is_layer)
    {
        return Some(format!(
            "changes {shown}, which is not below wiki/ or semantic-layer/"
        ));
    }
    let PatchContent::Unit { source_connections } = content else {
        return None;
    };
    if !is_layer {
        let is_page = wiki::page_key(path).is_some_and(wiki::is_page_key);
        return (!is_page).then(|| {
            format!(
                "changes {shown}, which is not a page: the tools write `wiki/global/KEY.md` only"
            )
        });
    }
    if source_connections.is_empty() {
        return Some(format!(
            "changes {shown}, and this unit may not change the semantic layer"
        ));
    }
    match semantic_layer::split_source_path(path).filter(|(_, file)| !file.starts_with('.')) {
        None => Some(format!(
            "changes {shown}, which is not a source: the tools write `semantic-layer/CONNECTION/NAME.yaml` only"
        )),
        Some((connection, _)) if !source_connections.iter().any(|id| id == connection) => Some(
            format!("changes {shown}, and this unit may not write sources of that connection"),
        ),
        Some(_) => None,
    }
}

/// Why a unit must not create one of the files that exist `now` and not before. The tools choose the names of new files.
pub(super) fn forbidden_new_file(before: &Originals, now: &Originals) -> Option<String> {
    let is_new = |path: &String| before.get(path).is_none_or(Option::is_none);
    let created = now.iter().filter(|(path, _)| is_new(path));
    created.filter_map(|(path, bytes)| Some((path, bytes.as_deref()?))).find_map(|(path, bytes)| {
        let shown = path.escape_debug();
        if let Some((connection, _)) = semantic_layer::split_source_path(path) {
            let name = semantic_layer::source_name(&String::from_utf8_lossy(bytes), path);
            let expected = semantic_layer::new_source_path(connection, &name);
            return (*path != expected)
                .then(|| format!("creates {shown}, and the tools write a new source of its name to {expected}"));
        }
        let why = wiki::reserved_key_reason(wiki::page_key(path)?)?;
        Some(format!("creates {shown}, and {why}"))
    })
}

/// The changed paths in the output of `diff-index --raw -z`, or why one of them is not permitted.
pub(super) fn parse_staged_paths(
    raw: &str,
    content: PatchContent<'_>,
) -> Result<Vec<String>, Problem> {
    let mut fields = raw.split('\0');
    let mut paths = Vec::new();
    while let (Some(meta), Some(path)) =
        (fields.next().filter(|meta| !meta.is_empty()), fields.next())
    {
        let mode = meta.split(' ').nth(1).unwrap_or_default();
        let is_gone = meta.ends_with('D');
        if let Some(why) = forbidden_reason(path, content) {
            return Err(why.into());
        }
        if !is_gone && mode != REGULAR_FILE_MODE {
            return Err(Problem::new(format!(
                "gives {} the mode {mode}; only {REGULAR_FILE_MODE} may be",
                path.escape_debug()
            )));
        }
        paths.push(path.to_owned());
    }
    Ok(paths)
}
