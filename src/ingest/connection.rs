//! A connection of `ktx.yaml`, and the types of the keys that adapters add to it. It must not know any adapter.

use std::{borrow::Cow, fmt};

use serde_json::Value;

use ingestdeck_core::text::percent_decoded;

/// File with the settings of a project.
pub const PROJECT_FILE: &str = "ktx.yaml";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Its key in `connections`.
    pub id: String,
    pub driver: Option<String>,
    /// Location of its files.
    pub source: Option<SourceLocation>,
    /// Folder inside the source, or the file of a database (`path`).
    pub subdir: Option<String>,
    /// Branch that KTX clones. A plan warns if the files belong to another branch.
    pub branch: Option<String>,
    /// `url` of a database.
    pub url: Option<String>,
    /// All of its keys, for the adapter.
    pub keys: ConnectionKeys,
}

/// Location of a connection's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceLocation {
    /// `source_dir`: a directory, relative to the project.
    Dir(String),
    /// `repoUrl` or `repo_url`, a remote or `file:` URL.
    Url(String),
}

/// The keys of a connection. They may be passwords, so they are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConnectionKeys(pub(crate) Value);

impl fmt::Debug for ConnectionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionKeys").finish_non_exhaustive()
    }
}

impl Connection {
    /// The text at a JSON pointer into its keys.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.keys.0.pointer(pointer)?.as_str()
    }
}

/// Type of a value.
#[derive(Clone, Copy, Debug)]
pub enum ValueType {
    Any,
    /// Text that is not empty.
    Text,
    /// Text that may be empty.
    AnyText,
    Boolean,
    /// A whole number, at least this.
    Integer(u32),
    /// A number between 0 and 1.
    Fraction,
    /// A list of texts.
    TextList,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// One of the strings that KTX accepts today. This program ignores the value, so another one is only a warning.
    OneOfOrOther(&'static [&'static str]),
    /// True, false or one of these strings.
    BooleanOr(&'static [&'static str]),
    /// A whole number or one of these strings.
    IntegerOr(&'static [&'static str]),
    /// A map with exactly these keys.
    Map(&'static [KeySpec]),
    /// A map with these keys and others. Only a likely misspelling is a warning.
    OpenMap(&'static [KeySpec]),
    /// The map of connections.
    Connections,
}

pub type KeySpec = (&'static str, ValueType);

/// `url` without the user name and password.
pub(crate) fn without_login(url: &str) -> Cow<'_, str> {
    let parts = url.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        Some(format!(
            "{scheme}://{}{path}",
            authority.rsplit_once('@')?.1
        ))
    });
    parts.map_or(Cow::Borrowed(url), Cow::Owned)
}

/// The path of a `file:` URL: `file:sources/bi`, `file:///srv/bi` or `file://localhost/srv/bi`.
pub(crate) fn local_path(url: &str) -> Option<String> {
    let rest = url.strip_prefix("file:")?;
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest
            .strip_prefix("localhost")
            .filter(|path| path.starts_with('/'))
            .unwrap_or(rest),
        None => rest,
    };
    // `file://host/path` names another machine.
    (!path.is_empty() && (!rest.starts_with("//") || path.starts_with('/')))
        .then(|| percent_decoded(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_urls_are_paths() {
        let cases = [
            ("file:sources/bi", Some("sources/bi")),
            ("file:///srv/my%20bi", Some("/srv/my bi")),
            ("file://localhost/srv", Some("/srv")),
            ("file:100%", Some("100%")),
            ("file:%+1", Some("%+1")),
            ("file://host/srv", None),
            ("file:", None),
            ("https://example.com/x.git", None),
            ("git@example.com:x.git", None),
        ];
        for (url, path) in cases {
            assert_eq!(local_path(url).as_deref(), path, "{url}");
        }
    }

    #[test]
    fn addresses_lose_their_logins() {
        let cases = [
            ("https://u:p@h.example/x@y", "https://h.example/x@y"),
            ("https://token@h", "https://h"),
            ("ssh://git@h/x?a=b@c", "ssh://h/x?a=b@c"),
            ("https://h/x@y", "https://h/x@y"),
            ("git@h:x.git", "git@h:x.git"),
            ("file:x", "file:x"),
        ];
        for (url, expected) in cases {
            assert_eq!(without_login(url), expected);
        }
    }
}
