//! Which paths and modes a patch may change. This module must not know how a patch is applied.

use super::{REGULAR_FILE_MODE, SEMANTIC_LAYER_DIR, WIKI_DIR};
use crate::scoped_dir;

/// Why a patch must not change `path`; `None` if it may.
pub(super) fn forbidden_reason(path: &str, semantic_layer: bool) -> Option<String> {
    let shown = path.escape_debug();
    if scoped_dir::validate_relative_path(path).is_err()
        || !(path.starts_with(WIKI_DIR) || path.starts_with(SEMANTIC_LAYER_DIR))
    {
        return Some(format!("changes {shown}, which is not below wiki/ or semantic-layer/"));
    }
    if !semantic_layer && path.starts_with(SEMANTIC_LAYER_DIR) {
        return Some(format!("changes {shown}, and this unit may not change the semantic layer"));
    }
    None
}

/// The changed paths in the output of `diff-index --raw -z`, or why one of them is not permitted.
pub(super) fn parse_staged_paths(raw: &str, semantic_layer: bool) -> Result<Vec<String>, String> {
    let mut fields = raw.split('\0');
    let mut paths = Vec::new();
    while let (Some(meta), Some(path)) = (fields.next().filter(|meta| !meta.is_empty()), fields.next()) {
        let mode = meta.split(' ').nth(1).unwrap_or_default();
        let is_gone = meta.ends_with('D');
        if let Some(why) = forbidden_reason(path, semantic_layer) {
            return Err(why);
        }
        if !is_gone && mode != REGULAR_FILE_MODE {
            return Err(format!("gives {} the mode {mode}; only {REGULAR_FILE_MODE} may be", path.escape_debug()));
        }
        paths.push(path.to_owned());
    }
    Ok(paths)
}
