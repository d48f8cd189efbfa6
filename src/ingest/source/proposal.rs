//! The files of a directory for which connections are proposed.
//!
//! It must not know what makes a folder a source: adapters do ([`SourceAdapter::propose`](super::SourceAdapter::propose)).

use super::{DEPENDENCY_DIRS, OUTPUT_DIRS, RawFile, SourceTree, find_adapter};

/// Lists of texts that a connection has, by their keys.
pub type ProposedLists = Vec<(&'static str, Vec<String>)>;

/// Directories of packages that are skipped in addition to [`DEPENDENCY_DIRS`] and [`OUTPUT_DIRS`].
const PACKAGE_DIRS: [&str; 2] = ["dbt_packages", "site-packages"];

/// A directory, and the connections that were proposed for it so far.
#[derive(Debug)]
pub struct ProposalScan<'a> {
    pub(super) tree: &'a SourceTree,
    /// Files outside of the output of runs and of packages.
    pub(super) paths: Vec<&'a str>,
    /// Name of the adapter, and folder; empty for the whole tree.
    pub(crate) found: Vec<(&'static str, &'a str)>,
}

impl<'a> ProposalScan<'a> {
    pub(crate) fn new(tree: &'a SourceTree) -> Self {
        let is_skipped = |part: &str| {
            DEPENDENCY_DIRS.contains(&part)
                || OUTPUT_DIRS.contains(&part)
                || PACKAGE_DIRS.contains(&part)
        };
        let paths = tree.files.iter().map(|file: &RawFile| file.path.as_str());
        Self {
            tree,
            paths: paths
                .filter(|path| !path.split('/').any(is_skipped))
                .collect(),
            found: Vec::new(),
        }
    }

    pub(crate) fn paths(&self) -> &[&'a str] {
        &self.paths
    }

    /// Whether a proposed connection reads the page at `path`.
    pub(super) fn is_read(&self, path: &str) -> bool {
        self.found.iter().any(|(driver, place)| {
            is_below(path, place)
                && find_adapter(driver).is_some_and(|adapter| adapter.reads_page(self.tree, path))
        })
    }

    /// Whether no connection was proposed for a folder above `path`.
    pub(super) fn is_free(&self, path: &str) -> bool {
        !self.found.iter().any(|(_, place)| is_below(path, place))
    }
}

/// Splits a path into folder (empty for the root) and name.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty()
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// `path` relative to `folder`, if it is below.
pub(super) fn within<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    match folder {
        "" => Some(path),
        _ => path.strip_prefix(folder)?.strip_prefix('/'),
    }
}

/// The deepest folder that contains all of `paths`, empty for the root; `None` for no paths.
pub(super) fn common_folder<'a>(paths: &[&'a str]) -> Option<&'a str> {
    let mut common = split(paths.first()?).0;
    while !paths.iter().all(|path| is_below(path, common)) {
        common = split(common).0;
    }
    Some(common)
}
