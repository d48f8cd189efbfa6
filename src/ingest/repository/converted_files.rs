//! Files of a run that git would convert. A run disables filters, so it would commit the file's bytes instead of, for
//! example, a Git LFS pointer, and it writes UTF-8 only.
//!
//! It must not know why a run writes them.

use uuid::Uuid;

use super::super::git::{Git, GitError};
use ingestdeck_core::diagnostic::Diagnostic;

/// Files of the repository that a run may change.
const WRITABLE_PATTERNS: &[&str] = &["wiki/*.md", "semantic-layer/*.yaml", "semantic-layer/*.yml"];

/// Replaces an unknown name in a path that a run will write.
pub const PATH_PLACEHOLDER: &str = "*";

/// A file that a run writes, and the git attribute that converts it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertedFile {
    #[error(
        "`{}` goes through the git filter `{}`, which a run does not start", path.escape_debug(), filter.escape_debug()
    )]
    Filtered { path: String, filter: String },
    /// The attribute `working-tree-encoding` names another encoding than UTF-8.
    #[error(
        "`{}` has the git attribute `working-tree-encoding={}`, and a run writes UTF-8",
        path.escape_debug(), encoding.escape_debug()
    )]
    Encoded { path: String, encoding: String },
}

impl Diagnostic for ConvertedFile {
    fn help(&self) -> Option<String> {
        let (it, exemption) = match self {
            Self::Filtered { .. } => ("it", "-filter"),
            Self::Encoded { .. } => ("this attribute", "!working-tree-encoding"),
        };
        let exempt =
            format!("exempt wiki/, semantic-layer/ and raw-sources/ from {it} with `{exemption}`");
        Some(format!(
            "{exempt} in .gitattributes, commit that, then try again"
        ))
    }
}

impl ConvertedFile {
    fn new(path: &str, attribute: &str, value: &str) -> Option<Self> {
        let is_utf8 = ["utf-8", "utf8"]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(value));
        let (path, value) = (path.to_owned(), value.to_owned());
        match (attribute, value.as_str()) {
            (_, "unspecified" | "") | ("filter", "unset" | "set") => None,
            ("filter", _) => Some(Self::Filtered {
                path,
                filter: value,
            }),
            _ if is_utf8 => None,
            // git refuses `set` and `unset`, too.
            _ => Some(Self::Encoded {
                path,
                encoding: value,
            }),
        }
    }

    pub(super) fn path(&self) -> &str {
        let (Self::Filtered { path, .. } | Self::Encoded { path, .. }) = self;
        path
    }

    fn path_mut(&mut self) -> &mut String {
        let (Self::Filtered { path, .. } | Self::Encoded { path, .. }) = self;
        path
    }
}

/// Whether a run may change the file `path` of the repository.
pub(super) fn is_writable_by_run(path: &str) -> bool {
    WRITABLE_PATTERNS.iter().any(|pattern| {
        pattern
            .split_once(PATH_PLACEHOLDER)
            .is_some_and(|(start, end)| path.starts_with(start) && path.ends_with(end))
    })
}

/// The first converted file among the files of the repository that a run may change and the files that it may add,
/// `new`. The files that a run really writes are checked again before the commit.
pub(super) fn first_converted_of_run(
    git: &Git,
    new: &[String],
) -> Result<Option<ConvertedFile>, GitError> {
    let mut paths = git.run(&[&["ls-files", "-z", "--"], WRITABLE_PATTERNS].concat())?;
    // Use a name that no pattern can anticipate: git reads the attributes in every directory of a path.
    let later = Uuid::new_v4().to_string();
    for path in new {
        paths.extend([path.replacen(PATH_PLACEHOLDER, &later, 1).as_bytes(), b"\0"].concat());
    }
    let mut found = first_converted(git, &paths)?;
    if let Some(found) = &mut found {
        *found.path_mut() = found.path().replacen(&later, PATH_PLACEHOLDER, 1);
    }
    Ok(found)
}

/// The first converted file among `paths`, each terminated by a NUL.
pub(crate) fn first_converted(git: &Git, paths: &[u8]) -> Result<Option<ConvertedFile>, GitError> {
    Ok(list_converted(git, paths)?.into_iter().next())
}

/// The converted files among `paths`, each terminated by a NUL. Reads attributes only and runs no filter.
pub(super) fn list_converted(git: &Git, paths: &[u8]) -> Result<Vec<ConvertedFile>, GitError> {
    let attributes = git.run_with_input(
        &[
            "check-attr",
            "-z",
            "--stdin",
            "filter",
            "working-tree-encoding",
        ],
        paths,
    )?;
    let attributes = String::from_utf8_lossy(&attributes);
    let (mut fields, mut found) = (attributes.split('\0'), Vec::new());
    while let (Some(path), Some(attribute), Some(value)) =
        (fields.next(), fields.next(), fields.next())
    {
        found.extend(ConvertedFile::new(path, attribute, value));
    }
    Ok(found)
}
