//! Sources: where the raw files of a connection are, and the adapters that cut them into units.
//!
//! Owns the trait, the list of adapters, and the way from a connection to its directory. It must not know how units
//! run, nor which of them were asked for.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::project::{Connection, SourceAt, without_login};

pub(crate) mod dbt;
pub(crate) mod docs;
pub(crate) mod slug;
pub mod tree;

pub use tree::{RawFile, Tree};

/// Cuts the raw files of one kind of source into units.
pub trait Adapter: Sync + std::fmt::Debug {
    /// Its name: the `driver` of a connection and the entry of `ingest.adapters`.
    fn name(&self) -> &'static str;

    /// What is missing for `tree` to be a source of this kind, as the end of a sentence about its directory.
    fn detect(&self, tree: &Tree) -> Result<(), String>;

    /// The units, in an order that depends on the files alone. Keys are unique within the result.
    fn chunk(&self, tree: &Tree) -> Chunks;

    /// Names of the skills that its units are offered beside the common ones.
    fn skills(&self) -> &'static [&'static str];
}

/// What an adapter made of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The units.
    pub units: Vec<Chunk>,
    /// Files that are in no unit although one might expect it, one sentence each.
    pub warnings: Vec<String>,
}

/// One unit as an adapter cuts it. Paths are relative to the source, with `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Key.
    pub key: String,
    /// Name for people, where it says more than the key.
    pub label: Option<String>,
    /// Files it is made of.
    pub raw_files: Vec<String>,
    /// Files it may read beside its own.
    pub dependency_paths: Vec<String>,
    /// Names it is told but may not read.
    pub peer_file_index: Vec<Arc<str>>,
    /// What the agent should know about it.
    pub notes: Option<String>,
}

const ADAPTERS: [&dyn Adapter; 2] = [&dbt::Dbt, &docs::Docs];

/// Names of all adapters.
pub fn names() -> impl Iterator<Item = &'static str> {
    ADAPTERS.iter().map(|adapter| adapter.name())
}

/// Drivers of KTX whose connections hold context about data, not data.
const CONTEXT: [&str; 8] = ["dbt", "lookml", "looker", "metabase", "metricflow", "notion", "docs", "fake"];

/// Whether connections with this `driver` hold context about data that lies elsewhere.
pub(crate) fn is_context(driver: &str) -> bool {
    CONTEXT.contains(&driver) || adapter(driver).is_some()
}

/// The adapter for connections with this `driver`.
pub fn adapter(driver: &str) -> Option<&'static dyn Adapter> {
    ADAPTERS.into_iter().find(|adapter| adapter.name() == driver)
}

/// Why a connection has no usable directory. Reads as the end of a sentence about the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Nothing says where.
    #[error("it names no files; give it a source_dir")]
    Nowhere,
    /// The URL is not of a local directory.
    #[error("its repository `{0}` is not on this machine; clone it and set source_dir to the clone")]
    Remote(String),
    /// The directory is not there.
    #[error("its directory {} does not exist; correct source_dir in ktx.yaml", .0.display())]
    Missing(PathBuf),
    /// It is something else.
    #[error("{} is not a directory; correct source_dir in ktx.yaml", .0.display())]
    NotADirectory(PathBuf),
    /// The system refuses.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
}

/// The directory of `connection`, absolute and without links.
pub fn directory(project: &Path, connection: &Connection) -> Result<PathBuf, SourceError> {
    let mut path = match connection.source.as_ref().ok_or(SourceError::Nowhere)? {
        SourceAt::Dir(dir) => project.join(dir),
        SourceAt::Url(url) => {
            project.join(local_path(url).ok_or_else(|| SourceError::Remote(without_login(url).into_owned()))?)
        }
    };
    if let Some(subdir) = &connection.subdir {
        path.push(subdir);
    }
    match path.canonicalize() {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(real) => Err(SourceError::NotADirectory(real)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SourceError::Missing(path)),
        Err(error) => Err(SourceError::Unreadable { path, cause: error.to_string() }),
    }
}

/// The path of a `file:` URL: `file:sources/bi`, `file:///srv/bi` or `file://localhost/srv/bi`.
fn local_path(url: &str) -> Option<String> {
    let rest = url.strip_prefix("file:")?;
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest),
        None => rest,
    };
    // `file://host/path` names another machine.
    (!path.is_empty() && (!rest.starts_with("//") || path.starts_with('/'))).then(|| percent_decoded(path))
}

/// Decodes `%20` and its kind; what is no valid escape or no UTF-8 stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = tail.first_chunk::<2>().filter(|_| first == b'%').and_then(|pair| {
            std::str::from_utf8(pair)
                .ok()
                .filter(|hex| !hex.starts_with('+'))
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
        });
        bytes.push(escape.unwrap_or(first));
        rest = if escape.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
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
    fn directories_are_found_or_explained() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("raw/models")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let at = |source: Option<SourceAt>, subdir: Option<&str>| {
            let subdir = subdir.map(str::to_owned);
            let connection = Connection { id: "c".into(), driver: None, source, subdir, url: None };
            directory(&root, &connection)
        };
        assert_eq!(at(Some(SourceAt::Dir("raw".into())), None), Ok(root.join("raw")));
        assert_eq!(at(Some(SourceAt::Url("file:raw".into())), Some("models")), Ok(root.join("raw/models")));
        assert_eq!(at(Some(SourceAt::Dir("no".into())), None), Err(SourceError::Missing(root.join("no"))));
        assert_eq!(at(Some(SourceAt::Dir("file".into())), None), Err(SourceError::NotADirectory(root.join("file"))));
        assert_eq!(at(None, None), Err(SourceError::Nowhere));
        assert_eq!(
            at(Some(SourceAt::Url("https://e.org/r".into())), None),
            Err(SourceError::Remote("https://e.org/r".into()))
        );
    }
}
