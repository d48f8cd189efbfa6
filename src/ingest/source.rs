//! Sources: where the raw files of a connection are, and the adapters that cut them into units.
//!
//! Owns the trait, the list of adapters, and the way from a connection to its directory. It must not know how units
//! run, nor which of them were asked for.

use std::{
    collections::BTreeSet,
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use super::project::{Connection, FILE, PathPolicy, PathRefusal, Project, SourceAt, without_login};
use crate::scoped_dir::ScopedDir;

mod collate;
pub(crate) mod dbt;
pub(crate) mod docs;
pub(crate) mod fake;
pub(crate) mod lookml;
pub(crate) mod manifest;
pub(crate) mod memo;
pub(crate) mod metricflow;
pub(crate) mod notion;
pub(crate) mod print;
pub(crate) mod slug;
pub mod tree;

pub use metricflow::{ProjectedSource, Projection};
pub use print::Fingerprint;
pub use tree::{RawFile, Tree};

#[cfg(test)]
pub(super) use tests::tree_of;

/// A connection and the project that it is of.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Directory of the project.
    pub project: &'a Path,
    /// Which paths it may read.
    pub policy: &'a PathPolicy,
    /// The connection.
    pub connection: &'a Connection,
}

impl<'a> Origin<'a> {
    /// `connection` of `project`.
    pub fn new(project: &'a Project, connection: &'a Connection) -> Self {
        Self { project: &project.root, policy: &project.policy, connection }
    }

    /// `path` without links, if the connection may read it. The inner error is the system's.
    fn resolve(self, path: &Path) -> io::Result<Result<PathBuf, PathRefusal>> {
        let real = path.canonicalize()?;
        Ok(self.policy.check(self.project, &real).map(|()| real))
    }
}

/// Cuts the raw files of one kind of source into units.
pub trait Adapter: Sync + std::fmt::Debug {
    /// Its name: the `driver` of a connection and the entry of `ingest.adapters`.
    fn name(&self) -> &'static str;

    /// Whether the file at `path` is a raw file of such a source.
    fn takes(&self, path: &str) -> bool;

    /// Whether files of such a source may be in the folder at `path`.
    fn enters(&self, _path: &str) -> bool {
        true
    }

    /// The raw files of a connection, or why there are none, as the end of a sentence about it.
    fn gather(&self, origin: Origin<'_>) -> Result<Tree, String> {
        let root = directory(origin).map_err(|why| why.to_string())?;
        let ours = written_by_runs(origin.project, &root);
        let wanted = tree::Wanted {
            takes: &|path| !is_settings(path) && self.takes(path),
            enters: &|path| self.enters(path) && !ours.iter().any(|our| our == path),
        };
        Tree::walk_where(&root, wanted).map_err(|cause| format!("cannot read {}: {cause}", display(&root)))
    }

    /// What is missing for `tree` to be a source of this kind, as the end of a sentence about its directory.
    fn detect(&self, tree: &Tree) -> Result<(), String>;

    /// The units, in an order that depends on the files alone; or what is wrong with what the source says about itself,
    /// as the end of a sentence about the connection. Keys are unique within the result. Every file of `tree` can be
    /// given to an agent.
    fn chunk(&self, tree: &Tree, origin: Origin<'_>) -> Result<Chunks, String>;

    /// What is left of `units` when only the files in `touched` are new or changed since they last succeeded.
    fn resync(&self, units: Vec<Chunk>, touched: &BTreeSet<&str>) -> Vec<Chunk> {
        units.into_iter().filter_map(|unit| narrowed(unit, touched)).collect()
    }

    /// What is written to the semantic layer before any unit runs, as it follows from `tree` alone.
    fn project(&self, _tree: &Tree) -> Projection {
        Projection::default()
    }

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
    /// Why it may not write sources of the semantic layer, in one word; `None` where it may.
    pub sl_disallowed: Option<String>,
    /// Files that its own build upon, which it may read too once it runs for a change alone.
    pub behind: Vec<String>,
}

/// Folders below `root` that runs of `project` write: what they wrote is not what they are to read.
fn written_by_runs(project: &Path, root: &Path) -> Vec<String> {
    let Ok(inside) = project.strip_prefix(root) else { return Vec::new() };
    let folders = ["raw-sources", "semantic-layer", "wiki"].into_iter();
    folders.filter_map(|folder| inside.join(folder).to_str().map(str::to_owned)).collect()
}

/// Whether the file at `path` holds the settings of a project, and with them passwords.
fn is_settings(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.eq_ignore_ascii_case(FILE))
}

/// The usual way to cut a unit down to what changed: unchanged raw files become dependencies.
fn narrowed(mut unit: Chunk, touched: &BTreeSet<&str>) -> Option<Chunk> {
    let (changed, unchanged): (Vec<_>, Vec<_>) =
        unit.raw_files.into_iter().partition(|path| touched.contains(path.as_str()));
    if changed.is_empty() {
        return None;
    }
    unit.raw_files = changed;
    depend(&mut unit, unchanged);
    Some(unit)
}

/// Adds dependencies, sorted and each once; raw files are none.
fn depend(unit: &mut Chunk, paths: impl IntoIterator<Item = String>) {
    unit.dependency_paths.extend(paths);
    unit.dependency_paths.sort_unstable();
    unit.dependency_paths.dedup();
    unit.dependency_paths.retain(|path| !unit.raw_files.contains(path));
}

/// Most names of a peer index.
const PEERS: usize = 200;

/// The first names among `all` that are not in `own`.
fn peers<'a>(all: impl IntoIterator<Item = &'a Arc<str>>, own: &BTreeSet<&str>) -> Vec<Arc<str>> {
    all.into_iter().filter(|path| !own.contains(&***path)).take(PEERS).cloned().collect()
}

/// Names to share between units, as each unit names nearly all files of the others.
fn shared<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<Arc<str>> {
    paths.into_iter().map(Arc::from).collect()
}

const ADAPTERS: [&dyn Adapter; 7] = [
    &dbt::Dbt,
    &lookml::Lookml,
    &metricflow::Metricflow,
    &notion::Notion,
    &docs::Docs,
    &manifest::Manifest,
    &fake::Fake,
];

/// Names of all adapters.
pub fn names() -> impl Iterator<Item = &'static str> {
    ADAPTERS.iter().map(|adapter| adapter.name())
}

/// Drivers of KTX whose connections hold context about data, not data, and that have no adapter here.
const CONTEXT: [&str; 8] = ["confluence", "gdrive", "jira", "looker", "metabase", "sharepoint", "sigma", "tableau"];

/// Drivers of KTX that have no adapter here, those of databases among them.
pub(crate) const FOREIGN: &[&str] = &[
    "athena",
    "bigquery",
    "clickhouse",
    "confluence",
    "databricks",
    "duckdb",
    "gdrive",
    "jira",
    "looker",
    "mariadb",
    "metabase",
    "mongodb",
    "motherduck",
    "mssql",
    "mysql",
    "postgres",
    "postgresql",
    "redshift",
    "sharepoint",
    "sigma",
    "snowflake",
    "sqlite",
    "sqlserver",
    "tableau",
    "trino",
];

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
    #[error("its repository `{}` is not on this machine; clone it and set source_dir to the clone", tree::shown(.0))]
    Remote(String),
    /// The directory is not there.
    #[error("its directory {} does not exist; correct source_dir in ktx.yaml{}", display(.0), unexpanded(.0))]
    Missing(PathBuf),
    /// It is something else.
    #[error("{} is not a directory; correct source_dir in ktx.yaml", display(.0))]
    NotADirectory(PathBuf),
    /// Nothing allows to read it.
    #[error(transparent)]
    Refused(#[from] PathRefusal),
    /// The system refuses.
    #[error("cannot read {}: {cause}", display(path))]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
}

fn display(path: &Path) -> String {
    tree::shown(&path.to_string_lossy())
}

/// What to say of a path that somebody wrote for a shell.
fn unexpanded(path: &Path) -> &'static str {
    let is_for_a_shell =
        |part: Component<'_>| part.as_os_str().as_encoded_bytes().first().is_some_and(|byte| b"~$".contains(byte));
    if path.components().any(is_for_a_shell) { ": `~` and variables mean nothing there" } else { "" }
}

/// The directory of a connection, absolute and without links: its source, or the part of it that is meant.
pub fn directory(origin: Origin<'_>) -> Result<PathBuf, SourceError> {
    at(origin, origin.connection.subdir.as_deref())
}

/// The source of a connection, whatever its `path` is.
fn source_root(origin: Origin<'_>) -> Result<PathBuf, SourceError> {
    at(origin, None)
}

/// Why the files of a connection may not be those of its `branch`, as a sentence about it. KTX clones that branch; here a
/// local repository is read as it is checked out.
pub fn other_branch(origin: Origin<'_>) -> Option<String> {
    /// Bytes of a `.git/HEAD`.
    const LARGEST: u64 = 4096;
    let (Some(SourceAt::Url(_)), Some(branch)) = (&origin.connection.source, &origin.connection.branch) else {
        return None;
    };
    let head = source_root(origin).ok().and_then(|root| ScopedDir::open(&root).ok()?.read(".git/HEAD", LARGEST).ok());
    let head = head.map(|head| String::from_utf8_lossy(&head).trim().to_owned());
    let found = match head.as_deref().map(|head| head.strip_prefix("ref: refs/heads/")) {
        Some(Some(current)) if current == branch => return None,
        Some(Some(current)) => format!(", which is branch `{}`", tree::shown(current)),
        Some(None) => ", which is no branch".to_owned(),
        None => String::new(),
    };
    let branch = tree::shown(branch);
    Some(format!(
        "branch `{branch}` is not looked for: a local repository is read as it is checked out{found}; check out \
         `{branch}` there"
    ))
}

fn at(origin: Origin<'_>, subdir: Option<&str>) -> Result<PathBuf, SourceError> {
    let mut path = match origin.connection.source.as_ref().ok_or(SourceError::Nowhere)? {
        SourceAt::Dir(dir) => origin.project.join(dir),
        SourceAt::Url(url) => {
            origin.project.join(local_path(url).ok_or_else(|| SourceError::Remote(without_login(url).into_owned()))?)
        }
    };
    if let Some(subdir) = subdir {
        path.push(subdir);
    }
    match origin.resolve(&path) {
        Ok(Ok(real)) if real.is_dir() => Ok(real),
        Ok(Ok(real)) => Err(SourceError::NotADirectory(real)),
        Ok(Err(refusal)) => Err(refusal.into()),
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
    use proptest::prelude::*;

    use super::*;

    static NOWHERE: std::sync::LazyLock<(PathPolicy, Connection)> = std::sync::LazyLock::new(Default::default);

    /// A connection that says nothing.
    pub(super) fn anywhere() -> Origin<'static> {
        Origin { project: Path::new("/"), policy: &NOWHERE.0, connection: &NOWHERE.1 }
    }

    /// A directory with these files, and the tree of it after every file was read.
    pub(in crate::ingest) fn tree_of(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut tree = Tree::walk(dir.path(), &|_| true).unwrap();
        print::read(&mut tree, &print::Known::new());
        (dir, tree)
    }

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
    fn a_branch_that_is_not_checked_out_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("bi/.git")).unwrap();
        let told = |head: Option<&str>, source: SourceAt| {
            let file = root.join("bi/.git/HEAD");
            head.map_or_else(|| drop(std::fs::remove_file(&file)), |head| std::fs::write(&file, head).unwrap());
            let branch = Some("dev".to_owned());
            let connection = Connection { source: Some(source), branch, ..Connection::default() };
            other_branch(Origin { project: &root, connection: &connection, ..anywhere() })
        };
        let url = || SourceAt::Url("file:bi".into());
        assert_eq!(told(Some("ref: refs/heads/dev\n"), url()), None);
        let other = told(Some("ref: refs/heads/main\n"), url()).unwrap();
        assert!(other.contains("branch `dev`") && other.contains("which is branch `main`"), "{other}");
        assert!(told(Some("0123456789\n"), url()).unwrap().contains("which is no branch"));
        assert!(told(None, url()).unwrap().contains("as it is checked out; check out `dev` there"));
        assert_eq!(told(None, SourceAt::Dir("bi".into())), None, "KTX reads a directory as it is, too");
    }

    #[test]
    fn directories_are_found_or_explained() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("raw/models")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let at = |source: Option<SourceAt>, subdir: Option<&str>| {
            let subdir = subdir.map(str::to_owned);
            let connection = Connection { id: "c".into(), source, subdir, ..Connection::default() };
            directory(Origin { project: &root, connection: &connection, ..anywhere() })
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

    fn first_run(adapter: &dyn Adapter, tree: &Tree) -> Vec<Chunk> {
        let chunks = adapter.chunk(tree, anywhere()).unwrap();
        assert_eq!(adapter.chunk(tree, anywhere()).unwrap(), chunks, "the same files give the same units");
        chunks.units
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn files_are_cut_into_units_once_and_keys_are_unique(
            paths in prop::collection::btree_set("(models/)?([abA_.é-]{1,3}/)?[abA_.é -]{1,3}\\.(yml|md|txt)", 1..40),
            touched in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            // A dot in front hides a file from every adapter.
            let paths: Vec<&str> =
                paths.iter().map(String::as_str).filter(|path| !path.split('/').any(|part| part.starts_with('.'))).collect();
            let files: Vec<(&str, &str)> = paths.iter().map(|path| (*path, "text: 1")).collect();
            for adapter in [&dbt::Dbt as &dyn Adapter, &docs::Docs, &fake::Fake] {
                let (_dir, mut tree) = tree_of(&files);
                tree.files.retain(|file| adapter.takes(&file.path));
                if tree.files.is_empty() {
                    continue;
                }
                let units = first_run(adapter, &tree);
                let keys: BTreeSet<&str> = units.iter().map(|unit| unit.key.as_str()).collect();
                prop_assert_eq!(keys.len(), units.len());
                let mut raw: Vec<&String> = units.iter().flat_map(|unit| &unit.raw_files).collect();
                raw.sort();
                let all = raw.len();
                raw.dedup();
                prop_assert_eq!(raw.len(), all, "{} puts a file into two units", adapter.name());
                if adapter.name() == "docs" {
                    prop_assert_eq!(all, tree.files.len());
                }
                // A re-sync shows the changed files to somebody, and gives no unit a file twice.
                let changed: BTreeSet<&str> =
                    touched.iter().map(|index| index.get(&tree.files).path.as_str()).collect();
                let in_units: BTreeSet<String> = raw.into_iter().cloned().collect();
                let left = adapter.resync(units, &changed);
                for path in changed.iter().filter(|path| in_units.contains(**path)) {
                    prop_assert!(left.iter().any(|unit| unit.raw_files.iter().any(|raw| raw == path)));
                }
                for unit in &left {
                    prop_assert!(unit.dependency_paths.iter().all(|path| !unit.raw_files.contains(path)));
                }
                prop_assert!(!changed.is_empty() || left.is_empty());
            }
        }
    }
}
