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

use super::project::{Connection, PROJECT_FILE, PathPolicy, PathRefusal, Project, SourceLocation, without_login};
use crate::scoped_dir::ScopedDir;

mod collate;
pub(crate) mod dbt;
pub(crate) mod docs;
pub(crate) mod fake;
pub(crate) mod fingerprint;
pub(crate) mod fingerprint_cache;
pub(crate) mod lookml;
pub(crate) mod manifest;
pub(crate) mod metricflow;
pub(crate) mod notion;
pub(crate) mod slug;
pub mod tree;

pub use fingerprint::Fingerprint;
pub use metricflow::{ProjectedSource, Projection};
pub use tree::{RawFile, SourceTree};

#[cfg(test)]
pub(super) use tests::tree_of;

/// A connection and the project that it is of.
#[derive(Clone, Copy, Debug)]
pub struct ProjectConnection<'a> {
    /// Directory of the project.
    pub project: &'a Path,
    /// Which paths it may read.
    pub policy: &'a PathPolicy,
    /// The connection.
    pub connection: &'a Connection,
}

impl<'a> ProjectConnection<'a> {
    /// `connection` of `project`.
    pub fn new(project: &'a Project, connection: &'a Connection) -> Self {
        Self { project: &project.root, policy: &project.path_policy, connection }
    }

    /// `path` without links, if the connection may read it. The inner error is the system's.
    fn resolve(self, path: &Path) -> io::Result<Result<PathBuf, PathRefusal>> {
        let real = path.canonicalize()?;
        Ok(self.policy.check(self.project, &real).map(|()| real))
    }
}

/// Cuts the raw files of one kind of source into units.
pub trait SourceAdapter: Sync + std::fmt::Debug {
    /// Its name: the `driver` of a connection and the entry of `ingest.adapters`.
    fn name(&self) -> &'static str;

    /// Whether the file at `path` is a raw file of such a source.
    fn accepts_file(&self, path: &str) -> bool;

    /// Whether files of such a source may be in the folder at `path`.
    fn accepts_dir(&self, _path: &str) -> bool {
        true
    }

    /// The raw files of a connection, or why there are none, as the end of a sentence about it.
    fn list_files(&self, origin: ProjectConnection<'_>) -> Result<SourceTree, String> {
        let root = source_dir(origin).map_err(|why| why.to_string())?;
        let ours = run_output_dirs(origin.project, &root);
        let wanted = tree::WalkFilter {
            accepts_file: &|path| !is_project_file(path) && self.accepts_file(path),
            accepts_dir: &|path| self.accepts_dir(path) && !ours.iter().any(|our| our == path),
        };
        SourceTree::walk_filtered(&root, wanted)
            .map_err(|cause| format!("cannot read {}: {cause}", display_path(&root)))
    }

    /// What is missing for `tree` to be a source of this kind, as the end of a sentence about its directory.
    fn detect(&self, tree: &SourceTree) -> Result<(), String>;

    /// The units, in an order that depends on the files alone; or what is wrong with what the source says about itself,
    /// as the end of a sentence about the connection. Keys are unique within the result. Every file of `tree` can be
    /// given to an agent.
    fn chunk(&self, tree: &SourceTree, origin: ProjectConnection<'_>) -> Result<ChunkedSource, String>;

    /// What is left of `units` when only the files in `touched` are new or changed since they last succeeded.
    fn narrow_units(&self, units: Vec<UnitChunk>, touched: &BTreeSet<&str>) -> Vec<UnitChunk> {
        units.into_iter().filter_map(|unit| narrow_unit(unit, touched)).collect()
    }

    /// What is written to the semantic layer before any unit runs, as it follows from `tree` alone.
    fn project_sources(&self, _tree: &SourceTree) -> Projection {
        Projection::default()
    }

    /// Names of the skills that its units are offered beside the common ones.
    fn skills(&self) -> &'static [&'static str];
}

/// What an adapter made of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkedSource {
    /// The units.
    pub units: Vec<UnitChunk>,
    /// Files that are in no unit although one might expect it, one sentence each.
    pub warnings: Vec<String>,
}

/// One unit as an adapter cuts it. Paths are relative to the source, with `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitChunk {
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
    pub upstream_files: Vec<String>,
}

/// Folders below `root` that runs of `project` write: what they wrote is not what they are to read.
fn run_output_dirs(project: &Path, root: &Path) -> Vec<String> {
    let Ok(inside) = project.strip_prefix(root) else { return Vec::new() };
    let folders = ["raw-sources", "semantic-layer", "wiki"].into_iter();
    folders.filter_map(|folder| inside.join(folder).to_str().map(str::to_owned)).collect()
}

/// Whether the file at `path` holds the settings of a project, and with them passwords.
fn is_project_file(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.eq_ignore_ascii_case(PROJECT_FILE))
}

/// The usual way to cut a unit down to what changed: unchanged raw files become dependencies.
fn narrow_unit(mut unit: UnitChunk, touched: &BTreeSet<&str>) -> Option<UnitChunk> {
    let (changed, unchanged): (Vec<_>, Vec<_>) =
        unit.raw_files.into_iter().partition(|path| touched.contains(path.as_str()));
    if changed.is_empty() {
        return None;
    }
    unit.raw_files = changed;
    add_dependencies(&mut unit, unchanged);
    Some(unit)
}

/// Adds dependencies, sorted and each once; raw files are none.
fn add_dependencies(unit: &mut UnitChunk, paths: impl IntoIterator<Item = String>) {
    unit.dependency_paths.extend(paths);
    unit.dependency_paths.sort_unstable();
    unit.dependency_paths.dedup();
    unit.dependency_paths.retain(|path| !unit.raw_files.contains(path));
}

/// Most names of a peer index.
const MAX_PEERS: usize = 200;

/// The first names among `all` that are not in `own`.
fn peers<'a>(all: impl IntoIterator<Item = &'a Arc<str>>, own: &BTreeSet<&str>) -> Vec<Arc<str>> {
    all.into_iter().filter(|path| !own.contains(&***path)).take(MAX_PEERS).cloned().collect()
}

/// Names to share between units, as each unit names nearly all files of the others.
fn shared_names<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<Arc<str>> {
    paths.into_iter().map(Arc::from).collect()
}

const ADAPTERS: [&dyn SourceAdapter; 7] = [
    &dbt::DbtAdapter,
    &lookml::LookmlAdapter,
    &metricflow::MetricflowAdapter,
    &notion::NotionAdapter,
    &docs::DocsAdapter,
    &manifest::ManifestAdapter,
    &fake::FakeAdapter,
];

/// Names of all adapters.
pub fn adapter_names() -> impl Iterator<Item = &'static str> {
    ADAPTERS.iter().map(|adapter| adapter.name())
}

/// Drivers of KTX whose connections hold context about data, not data, and that have no adapter here.
const CONTEXT_DRIVERS: [&str; 8] =
    ["confluence", "gdrive", "jira", "looker", "metabase", "sharepoint", "sigma", "tableau"];

/// Drivers of KTX that have no adapter here, those of databases among them.
pub(crate) const UNSUPPORTED_DRIVERS: &[&str] = &[
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
pub(crate) fn is_context_driver(driver: &str) -> bool {
    CONTEXT_DRIVERS.contains(&driver) || find_adapter(driver).is_some()
}

/// The adapter for connections with this `driver`.
pub fn find_adapter(driver: &str) -> Option<&'static dyn SourceAdapter> {
    ADAPTERS.into_iter().find(|adapter| adapter.name() == driver)
}

/// Why a connection has no usable directory. Reads as the end of a sentence about the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceDirError {
    /// Nothing says where.
    #[error("it names no files; give it a source_dir")]
    NotConfigured,
    /// The URL is not of a local directory.
    #[error("its repository `{}` is not on this machine; clone it and set source_dir to the clone", tree::visible_path(.0))]
    RemoteUrl(String),
    /// The directory is not there.
    #[error("its directory {} does not exist; correct source_dir in ktx.yaml{}", display_path(.0), shell_syntax_hint(.0))]
    NotFound(PathBuf),
    /// It is something else.
    #[error("{} is not a directory; correct source_dir in ktx.yaml", display_path(.0))]
    NotADirectory(PathBuf),
    /// Nothing allows to read it.
    #[error(transparent)]
    NotAllowed(#[from] PathRefusal),
    /// The system refuses.
    #[error("cannot read {}: {cause}", display_path(path))]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
}

fn display_path(path: &Path) -> String {
    tree::visible_path(&path.to_string_lossy())
}

/// What to say of a path that somebody wrote for a shell.
fn shell_syntax_hint(path: &Path) -> &'static str {
    let is_for_a_shell =
        |part: Component<'_>| part.as_os_str().as_encoded_bytes().first().is_some_and(|byte| b"~$".contains(byte));
    if path.components().any(is_for_a_shell) { ": `~` and variables mean nothing there" } else { "" }
}

/// The directory of a connection, absolute and without links: its source, or the part of it that is meant.
pub fn source_dir(origin: ProjectConnection<'_>) -> Result<PathBuf, SourceDirError> {
    resolve_dir(origin, origin.connection.subdir.as_deref())
}

/// The source of a connection, whatever its `path` is.
fn source_root_dir(origin: ProjectConnection<'_>) -> Result<PathBuf, SourceDirError> {
    resolve_dir(origin, None)
}

/// Why the files of a connection may not be those of its `branch`, as a sentence about it. KTX clones that branch; here a
/// local repository is read as it is checked out.
pub fn branch_mismatch(origin: ProjectConnection<'_>) -> Option<String> {
    /// Bytes of a `.git/HEAD`.
    const MAX_HEAD_BYTES: u64 = 4096;
    let (Some(SourceLocation::Url(_)), Some(branch)) = (&origin.connection.source, &origin.connection.branch) else {
        return None;
    };
    let head = source_root_dir(origin)
        .ok()
        .and_then(|root| ScopedDir::open(&root).ok()?.read(".git/HEAD", MAX_HEAD_BYTES).ok());
    let head = head.map(|head| String::from_utf8_lossy(&head).trim().to_owned());
    let found = match head.as_deref().map(|head| head.strip_prefix("ref: refs/heads/")) {
        Some(Some(current)) if current == branch => return None,
        Some(Some(current)) => format!(", which is branch `{}`", tree::visible_path(current)),
        Some(None) => ", which is no branch".to_owned(),
        None => String::new(),
    };
    let branch = tree::visible_path(branch);
    Some(format!(
        "branch `{branch}` is not looked for: a local repository is read as it is checked out{found}; check out \
         `{branch}` there"
    ))
}

fn resolve_dir(origin: ProjectConnection<'_>, subdir: Option<&str>) -> Result<PathBuf, SourceDirError> {
    let mut path = match origin.connection.source.as_ref().ok_or(SourceDirError::NotConfigured)? {
        SourceLocation::Dir(dir) => origin.project.join(dir),
        SourceLocation::Url(url) => origin
            .project
            .join(local_path(url).ok_or_else(|| SourceDirError::RemoteUrl(without_login(url).into_owned()))?),
    };
    if let Some(subdir) = subdir {
        path.push(subdir);
    }
    match origin.resolve(&path) {
        Ok(Ok(real)) if real.is_dir() => Ok(real),
        Ok(Ok(real)) => Err(SourceDirError::NotADirectory(real)),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SourceDirError::NotFound(path)),
        Err(error) => Err(SourceDirError::Unreadable { path, cause: error.to_string() }),
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
    pub(super) fn anywhere() -> ProjectConnection<'static> {
        ProjectConnection { project: Path::new("/"), policy: &NOWHERE.0, connection: &NOWHERE.1 }
    }

    /// A directory with these files, and the tree of it after every file was read.
    pub(in crate::ingest) fn tree_of(files: &[(&str, &str)]) -> (tempfile::TempDir, SourceTree) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut tree = SourceTree::walk(dir.path(), &|_| true).unwrap();
        fingerprint::fingerprint_tree(&mut tree, &fingerprint::KnownFingerprints::new());
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
    fn branch_that_is_not_checked_out_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("bi/.git")).unwrap();
        let told = |head: Option<&str>, source: SourceLocation| {
            let file = root.join("bi/.git/HEAD");
            head.map_or_else(|| drop(std::fs::remove_file(&file)), |head| std::fs::write(&file, head).unwrap());
            let branch = Some("dev".to_owned());
            let connection = Connection { source: Some(source), branch, ..Connection::default() };
            branch_mismatch(ProjectConnection { project: &root, connection: &connection, ..anywhere() })
        };
        let url = || SourceLocation::Url("file:bi".into());
        assert_eq!(told(Some("ref: refs/heads/dev\n"), url()), None);
        let other = told(Some("ref: refs/heads/main\n"), url()).unwrap();
        assert!(other.contains("branch `dev`") && other.contains("which is branch `main`"), "{other}");
        assert!(told(Some("0123456789\n"), url()).unwrap().contains("which is no branch"));
        assert!(told(None, url()).unwrap().contains("as it is checked out; check out `dev` there"));
        assert_eq!(told(None, SourceLocation::Dir("bi".into())), None, "KTX reads a directory as it is, too");
    }

    #[test]
    fn directories_are_found_or_explained() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("raw/models")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let at = |source: Option<SourceLocation>, subdir: Option<&str>| {
            let subdir = subdir.map(str::to_owned);
            let connection = Connection { id: "c".into(), source, subdir, ..Connection::default() };
            source_dir(ProjectConnection { project: &root, connection: &connection, ..anywhere() })
        };
        assert_eq!(at(Some(SourceLocation::Dir("raw".into())), None), Ok(root.join("raw")));
        assert_eq!(at(Some(SourceLocation::Url("file:raw".into())), Some("models")), Ok(root.join("raw/models")));
        assert_eq!(at(Some(SourceLocation::Dir("no".into())), None), Err(SourceDirError::NotFound(root.join("no"))));
        assert_eq!(
            at(Some(SourceLocation::Dir("file".into())), None),
            Err(SourceDirError::NotADirectory(root.join("file")))
        );
        assert_eq!(at(None, None), Err(SourceDirError::NotConfigured));
        assert_eq!(
            at(Some(SourceLocation::Url("https://e.org/r".into())), None),
            Err(SourceDirError::RemoteUrl("https://e.org/r".into()))
        );
    }

    fn first_run(adapter: &dyn SourceAdapter, tree: &SourceTree) -> Vec<UnitChunk> {
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
            for adapter in [&dbt::DbtAdapter as &dyn SourceAdapter, &docs::DocsAdapter, &fake::FakeAdapter] {
                let (_dir, mut tree) = tree_of(&files);
                tree.files.retain(|file| adapter.accepts_file(&file.path));
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
                let left = adapter.narrow_units(units, &changed);
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
