//! Files of a run that have a git filter. A run disables filters, so it would commit the file's bytes instead of, for
//! example, a Git LFS pointer.
//!
//! It must not know why a run writes them.

use uuid::Uuid;

use super::super::git::{Git, GitError};
use crate::diagnostic::Diagnostic;

/// Files of the repository that a run may change.
const WRITABLE_PATTERNS: &[&str] = &["wiki/*.md", "semantic-layer/*.yaml", "semantic-layer/*.yml"];

/// Replaces an unknown name in a path that a run will write.
pub(crate) const PATH_PLACEHOLDER: &str = "*";

/// A file that a run writes, and its git filter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` goes through the git filter `{}`, which a run does not start", path.escape_debug(), filter.escape_debug()
)]
pub(crate) struct FilteredFile {
    pub(super) path: String,
    filter: String,
}

impl Diagnostic for FilteredFile {
    fn help(&self) -> Option<String> {
        let exempt = "exempt wiki/, semantic-layer/ and raw-sources/ from it with `-filter` in .gitattributes";
        Some(format!("{exempt}, commit that, then try again"))
    }
}

/// Whether a run may change the file `path` of the repository.
pub(super) fn is_writable_by_run(path: &str) -> bool {
    WRITABLE_PATTERNS.iter().any(|pattern| {
        pattern.split_once(PATH_PLACEHOLDER).is_some_and(|(start, end)| path.starts_with(start) && path.ends_with(end))
    })
}

/// The first file with a filter among the files of the repository that a run may change and the files that it may add,
/// `new`. The files that a run really writes are checked again before the commit.
pub(super) fn first_filtered_of_run(git: &Git, new: &[String]) -> Result<Option<FilteredFile>, GitError> {
    let mut paths = git.run(&[&["ls-files", "-z", "--"], WRITABLE_PATTERNS].concat())?;
    // Use a name that no pattern can anticipate: git reads the attributes in every directory of a path.
    let later = Uuid::new_v4().to_string();
    for path in new {
        paths.extend([path.replacen(PATH_PLACEHOLDER, &later, 1).as_bytes(), b"\0"].concat());
    }
    let found = first_filtered(git, &paths)?;
    Ok(found.map(|found| FilteredFile { path: found.path.replacen(&later, PATH_PLACEHOLDER, 1), ..found }))
}

/// The first file with a filter among `paths`, each terminated by a NUL.
pub(in crate::ingest) fn first_filtered(git: &Git, paths: &[u8]) -> Result<Option<FilteredFile>, GitError> {
    Ok(list_filtered(git, paths)?.into_iter().next())
}

/// The files with a filter among `paths`, each terminated by a NUL. Reads attributes only and runs no filter.
pub(super) fn list_filtered(git: &Git, paths: &[u8]) -> Result<Vec<FilteredFile>, GitError> {
    let attributes = git.run_with_input(&["check-attr", "-z", "--stdin", "filter"], paths)?;
    let attributes = String::from_utf8_lossy(&attributes);
    let (mut fields, mut found) = (attributes.split('\0'), Vec::new());
    while let (Some(path), Some(_), Some(filter)) = (fields.next(), fields.next(), fields.next()) {
        if !matches!(filter, "unspecified" | "unset" | "set" | "") {
            found.push(FilteredFile { path: path.to_owned(), filter: filter.to_owned() });
        }
    }
    Ok(found)
}
