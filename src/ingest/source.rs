//! Sources: the directory of a connection's raw files, and the adapters that cut the files into units.
//!
//! Owns the trait, the list of adapters, and the resolution of a connection to its directory. It must not know how
//! units run or which units the user selected.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory of a source, after the path policy"
)]

use std::{
    collections::BTreeSet,
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    connection::{Connection, PROJECT_FILE, SourceLocation, local_path},
    git_source::{GitSource, GitSourceError, RepositoryKeys, SourceVersion},
    path_policy::{PathPolicy, PathRefusal},
    untrusted_text::visible_path,
};
use ingestdeck_core::diagnostic::{Diagnostic, Problem};
use ingestdeck_os::scoped_dir::ScopedDir;

mod collate;
pub(crate) mod dbt;
pub(crate) mod docs;
pub(crate) mod fake;
pub(crate) mod file_stamp;
pub mod fingerprint;
pub(crate) mod fingerprint_cache;
#[cfg(test)]
mod layout_tests;
pub(crate) mod lookml;
pub(crate) mod manifest;
pub(crate) mod metricflow;
pub(crate) mod notion;
pub(crate) mod proposal;
pub(crate) mod references;
pub(crate) mod split;
pub(crate) mod tree;
mod verbatim;

pub use super::connection::{KeySpec, ValueType};
pub(crate) use dbt::profiles::ProposedDatabase;
pub use file_stamp::Fingerprint;
pub use proposal::{ProposalScan, ProposedLists};
use references::ReferenceReader;
pub use tree::{RawFile, SourceTree};

#[cfg(test)]
pub(super) use tests::tree_of;

/// A connection and its project.
#[derive(Clone, Copy, Debug)]
pub struct ProjectConnection<'a> {
    /// Directory of the project.
    pub project: &'a Path,
    /// Paths that the connection may read.
    pub policy: &'a PathPolicy,
    pub connection: &'a Connection,
    /// Largest raw files of a unit that is not split, in bytes.
    pub unit_bytes: u64,
}

impl<'a> ProjectConnection<'a> {
    /// The repository of the connection; `None` if git does not fetch its files.
    pub(crate) fn repository(self) -> Result<Option<GitSource<'a>>, GitSourceError> {
        let driver = self.connection.driver.as_deref().unwrap_or_default();
        let Some(adapter) = find_adapter(driver) else {
            return Ok(None);
        };
        let keys = RepositoryKeys {
            clone_dir: adapter.clone_dir(),
            section: adapter.section(),
        };
        GitSource::find(self.project, self.policy, self.connection, keys)
    }

    /// `path` without symbolic links, if the connection may read it. The outer error is that of the system call.
    fn resolve(self, path: &Path) -> io::Result<Result<PathBuf, PathRefusal>> {
        let real = path.canonicalize()?;
        Ok(self.check(&real).map(|()| real))
    }

    /// Whether the connection may read `path`, which is absolute and has no links.
    fn check(self, path: &Path) -> Result<(), PathRefusal> {
        match self.repository() {
            Ok(Some(source)) => PathPolicy::check_clone(&source.clone_path(), path),
            _ => self.policy.check(self.project, path),
        }
    }
}

/// Cuts the raw files of one kind of source into units.
pub trait SourceAdapter: Sync + std::fmt::Debug {
    /// Name of the adapter: the `driver` of a connection and the entry of `ingest.adapters`.
    fn name(&self) -> &'static str;

    /// The adapter that takes its place for connections with certain keys.
    fn for_connection(&self, _connection: &Connection) -> Option<&'static dyn SourceAdapter> {
        None
    }

    /// Whether its raw files become wiki pages unchanged, and no units.
    fn keeps_documents(&self) -> bool {
        false
    }

    /// The keys of its connections, in addition to those that all connections have.
    fn keys(&self) -> &'static [KeySpec] {
        &[]
    }

    /// The section of a connection in which KTX keeps its repository, if it is not in the connection itself.
    fn section(&self) -> Option<&'static str> {
        None
    }

    /// Why a connection that names no files is skipped, if that is expected: the end of a sentence about it.
    fn without_files(&self) -> Option<Problem> {
        None
    }

    /// Folders for which a new project gets a connection. Those that adapters before it have found are in `scan`.
    fn propose<'a>(&self, _scan: &ProposalScan<'a>) -> Vec<&'a str> {
        Vec::new()
    }

    /// The key with the location of a new connection: a directory, or a `file:` URL in `repoUrl`, which KTX requires of some.
    fn location_key(&self) -> &'static str {
        "source_dir"
    }

    /// The directory of its clones below KTX's cache.
    fn clone_dir(&self) -> &'static str {
        self.name()
    }

    /// The adapter whose connections for the same folder read the same files.
    fn alternative_to(&self) -> Option<&'static str> {
        None
    }

    /// Lists of texts that a new connection gets for `folder`, one that it proposes, by their keys.
    fn proposed_lists(&self, _scan: &ProposalScan<'_>, _folder: &str) -> ProposedLists {
        Vec::new()
    }

    /// The database that the tables of the source in `folder` are in, if its settings or those in `home` name it.
    fn proposed_database(
        &self,
        _tree: &SourceTree,
        _folder: &str,
        _home: Option<&Path>,
    ) -> Option<ProposedDatabase> {
        None
    }

    /// Whether its files describe tables of a warehouse, which needs a separate connection.
    fn describes_warehouse(&self) -> bool {
        false
    }

    /// Whether the file at `path` is a raw file of such a source.
    fn accepts_file(&self, path: &str) -> bool;

    /// Whether a source above the page at `path` reads it.
    fn reads_page(&self, _tree: &SourceTree, path: &str) -> bool {
        self.accepts_file(path)
    }

    /// Whether the folder at `path` may contain raw files of such a source.
    fn accepts_dir(&self, _path: &str) -> bool {
        true
    }

    /// The raw files of a connection, whose directory is `dir`. The error is the reason why there are none, as the end of
    /// a sentence about the connection.
    fn list_files(
        &self,
        origin: ProjectConnection<'_>,
        dir: Result<PathBuf, SourceDirError>,
    ) -> Result<SourceTree, Problem> {
        let wanted = tree::WalkFilter {
            accepts_file: &|path| self.accepts_file(path),
            accepts_dir: &|path| self.accepts_dir(path),
        };
        walk_source(origin, dir, wanted)
    }

    /// Checks that `tree` is a source of this kind. The error names what is missing, as the end of a sentence about the
    /// directory.
    fn detect(&self, tree: &SourceTree) -> Result<(), Problem>;

    /// The units, in an order that depends only on the files. Keys are unique within the result. Every file of `tree`
    /// can be given to an agent. The error describes invalid metadata of the source, as the end of a sentence about the
    /// connection.
    fn chunk(
        &self,
        tree: &SourceTree,
        origin: ProjectConnection<'_>,
    ) -> Result<ChunkedSource, Problem>;

    /// Narrows a unit of a source that was ingested before to its raw files that are `due`; to none if it only runs for
    /// changes around it. Units with the same key afterwards are one.
    fn narrow_unit(&self, unit: UnitChunk, due: &BTreeSet<&str>) -> UnitChunk {
        narrow_unit(unit, due)
    }

    /// Whether its own rules decide which units have raw files in common. The success of one of them then does not settle the
    /// file for others, and large units are not split.
    fn shares_files(&self) -> bool {
        false
    }

    /// The names that a file defines, for references of other files; `None` if they are not known.
    fn defined_names(&self, _path: &str, _text: &str) -> Option<BTreeSet<String>> {
        Some(BTreeSet::new())
    }

    /// Reads what the files in `tree` refer to; `None` if such files have no references. `deleted` are files that no longer
    /// exist.
    fn reference_reader<'a>(
        &self,
        _connection: &Connection,
        _tree: &'a SourceTree,
        _deleted: &'a [String],
    ) -> Option<Box<dyn ReferenceReader + 'a>> {
        None
    }

    /// Whether units may read the file for its content only, such as the code of what their raw files describe: a change of it
    /// is a reason to run them.
    fn is_reading_aid(&self, _path: &str) -> bool {
        false
    }

    /// The texts that `text`, from the file at `path`, names by calls, each with a heading. They are found in the
    /// `readable` files; `read` returns the content of one.
    fn named_texts(
        &self,
        _path: &str,
        _text: &str,
        _readable: &[&str],
        _read: &dyn Fn(&str) -> Option<String>,
    ) -> Vec<NamedText> {
        Vec::new()
    }

    /// The semantic-layer sources that follow from `tree` without an agent. They are written before any unit runs.
    fn project_sources(&self, _tree: &SourceTree) -> SourceProjection {
        SourceProjection::default()
    }

    /// The `SKILL.md` that its units get in addition to the common skills.
    fn skill(&self) -> Option<&'static str> {
        None
    }
}

/// A text that a raw file names by a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedText {
    /// The call and the file, such as `doc orders, from models/docs.md`.
    pub heading: String,
    pub text: String,
}

/// A semantic-layer source that follows from raw files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectedSource {
    /// Name of the source, unique in its connection.
    pub name: String,
    /// The raw files that define it.
    pub files: Vec<String>,
    /// Content of the source file.
    pub doc: Map<String, Value>,
}

/// A document, and the page that holds it unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbatimDocument {
    /// Raw file, relative to its source, or the label of a text of the command line.
    pub path: String,
    /// Key of the page.
    pub page: String,
    /// The text of the page, or why there is none.
    pub text: Result<String, String>,
}

/// The sources that follow from the raw files of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceProjection {
    /// The sources, in the order of their files.
    pub sources: Vec<ProjectedSource>,
    /// Raw files with a definition that a source cannot express, and a sentence about it.
    pub skipped: Vec<(String, String)>,
    /// The database that the sources are written for; `None` for the connection of the files.
    pub target: Option<String>,
    /// New and changed files that become pages unchanged.
    pub documents: Vec<VerbatimDocument>,
}

/// Result of cutting a source into units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkedSource {
    pub units: Vec<UnitChunk>,
    /// Files that units may read for their content only, which are not in the tree.
    pub reading_aids: Vec<RawFile>,
    /// Files that unexpectedly are not in a unit, one sentence each.
    pub warnings: Vec<Problem>,
}

/// One connection and its units.
pub(crate) struct ChunkedConnection<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) adapter: &'static dyn SourceAdapter,
    pub(crate) tree: SourceTree,
    pub(crate) chunks: Vec<UnitChunk>,
    pub(crate) warnings: Vec<Problem>,
    pub(crate) version: SourceVersion,
}

/// Why a source gives no units.
pub(crate) struct SkippedSource {
    /// The end of a sentence about the connection.
    pub(crate) problem: Problem,
    /// False for an expected reason.
    pub(crate) is_fault: bool,
}

impl From<Problem> for SkippedSource {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            is_fault: true,
        }
    }
}

/// Reads the files of a connection and cuts them into units.
pub(crate) fn cut_connection<'a>(
    origin: ProjectConnection<'a>,
    adapter: &'static dyn SourceAdapter,
) -> Result<ChunkedConnection<'a>, SkippedSource> {
    let dir = source_dir(origin);
    // KTX fetches these sources itself, so skipping them is expected.
    let expected = match &dir {
        Err(SourceDirError::NotConfigured) => adapter.without_files(),
        _ => None,
    };
    if let Some(problem) = expected {
        return Err(SkippedSource {
            problem,
            is_fault: false,
        });
    }
    let mut tree = adapter.list_files(origin, dir)?;
    let root = display_path(&tree.root);
    adapter
        .detect(&tree)
        .map_err(|why| why.prefixed(format_args!("{root} ")))?;
    let id = &origin.connection.id;
    let known = fingerprint_cache::load(origin.project, id);
    fingerprint::fingerprint_tree(&mut tree, &known);
    let chunks = adapter.chunk(&tree, origin)?;
    if !chunks.reading_aids.is_empty() {
        let mut aids = SourceTree {
            root: tree.root.clone(),
            files: chunks.reading_aids,
            ..SourceTree::default()
        };
        fingerprint::fingerprint_tree(&mut aids, &known);
        tree.files.extend(aids.files);
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
    }
    fingerprint_cache::save(origin.project, id, &tree, &known);
    let version = match origin.repository().ok().flatten() {
        Some(source) => source.version(),
        None => SourceVersion {
            branch_mismatch: branch_mismatch(origin),
            clone: None,
        },
    };
    let warnings = version
        .branch_mismatch
        .iter()
        .chain(&tree.warnings)
        .chain(&chunks.warnings)
        .cloned()
        .collect();
    Ok(ChunkedConnection {
        connection: origin.connection,
        adapter,
        chunks: match adapter.shares_files() {
            true => chunks.units,
            false => split::split_large_units(&tree, chunks.units, origin.unit_bytes),
        },
        tree,
        warnings,
        version,
    })
}

/// One unit as cut by an adapter. Paths are relative to the source, with `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitChunk {
    pub key: String,
    /// Display name, if it is more descriptive than the key.
    pub label: Option<String>,
    /// Files that the unit ingests.
    pub raw_files: Vec<String>,
    /// Files that the agent may read in addition to the raw files.
    pub dependency_paths: Vec<String>,
    /// Files that the prompt lists but the agent may not read.
    pub peer_file_index: Vec<Arc<str>>,
    /// Notes for the agent.
    pub notes: Option<String>,
    /// KTX's one-word reason why the unit may not write semantic-layer sources; `None` if it may.
    pub sl_disallowed: Option<String>,
    /// Files that the raw files depend on. The agent may read them too when the unit is narrowed to its changes.
    pub upstream_files: Vec<String>,
    /// The lines of one raw file that the unit ingests, if other units ingest the rest of it.
    pub assigned_lines: Option<AssignedLines>,
}

/// A part of a raw file that units share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedLines {
    pub path: String,
    /// Number of the first line, counted from 1.
    pub first: usize,
    /// Number of the last line.
    pub last: usize,
    /// Size of the lines; 0 if it is not known.
    #[serde(default)]
    pub bytes: u64,
}

/// Folders of installed packages and build output, whose files do not describe the project.
const DEPENDENCY_DIRS: [&str; 5] = [".venv", "node_modules", "target", "vendor", "venv"];

/// Folders that runs write.
const OUTPUT_DIRS: [&str; 3] = ["raw-sources", "semantic-layer", "wiki"];

/// Folders below `root` that runs of `project` write. Their content is output, so it is not read as a source.
fn run_output_dirs(project: &Path, root: &Path) -> Vec<String> {
    let Ok(inside) = project.strip_prefix(root) else {
        return Vec::new();
    };
    OUTPUT_DIRS
        .into_iter()
        .filter_map(|folder| inside.join(folder).to_str().map(str::to_owned))
        .collect()
}

/// The wanted files below `dir`, without what runs write and the settings of the project.
fn walk_source(
    origin: ProjectConnection<'_>,
    dir: Result<PathBuf, SourceDirError>,
    wanted: tree::WalkFilter<'_>,
) -> Result<SourceTree, Problem> {
    let root = dir.map_err(|why| Problem::from_error(&why))?;
    let ours = run_output_dirs(origin.project, &root);
    let wanted = tree::WalkFilter {
        accepts_file: &|path| !is_project_file(path) && (wanted.accepts_file)(path),
        accepts_dir: &|path| !ours.iter().any(|our| our == path) && (wanted.accepts_dir)(path),
    };
    SourceTree::walk_filtered(&root, wanted)
        .map_err(|cause| Problem::new(format!("cannot read {}: {cause}", display_path(&root))))
}

/// Whether the file at `path` contains the settings of a project, which may include passwords.
fn is_project_file(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .is_some_and(|name| name.eq_ignore_ascii_case(PROJECT_FILE))
}

/// Default narrowing of a unit to its changes: unchanged raw files become dependencies.
fn narrow_unit(mut unit: UnitChunk, due: &BTreeSet<&str>) -> UnitChunk {
    if due.is_empty() {
        return unit;
    }
    let (changed, unchanged): (Vec<_>, Vec<_>) = unit
        .raw_files
        .into_iter()
        .partition(|path| due.contains(path.as_str()));
    unit.raw_files = changed;
    add_dependencies(&mut unit, unchanged);
    unit
}

/// Adds dependencies, sorted and without duplicates. Raw files are skipped.
pub(super) fn add_dependencies(unit: &mut UnitChunk, paths: impl IntoIterator<Item = String>) {
    unit.dependency_paths.extend(paths);
    unit.dependency_paths.sort_unstable();
    unit.dependency_paths.dedup();
    unit.dependency_paths
        .retain(|path| !unit.raw_files.contains(path));
}

/// Most entries of a peer file index.
const MAX_PEERS: usize = 200;

/// The first [`MAX_PEERS`] names of `all` that are not in `own`.
fn peers<'a>(all: impl IntoIterator<Item = &'a Arc<str>>, own: &BTreeSet<&str>) -> Vec<Arc<str>> {
    all.into_iter()
        .filter(|path| !own.contains(&***path))
        .take(MAX_PEERS)
        .cloned()
        .collect()
}

/// Names that units share, because each unit lists nearly all files of the others.
fn shared_names<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<Arc<str>> {
    paths.into_iter().map(Arc::from).collect()
}

/// All adapters, in the order in which they propose connections. A new one is added here.
const ADAPTERS: [&dyn SourceAdapter; 7] = [
    &dbt::DbtAdapter,
    &lookml::LookmlAdapter,
    &metricflow::MetricflowAdapter,
    &notion::NotionAdapter,
    &docs::DocsAdapter,
    &manifest::ManifestAdapter,
    &fake::FakeAdapter,
];

pub(crate) fn adapters() -> impl Iterator<Item = &'static dyn SourceAdapter> {
    ADAPTERS.into_iter()
}

pub(crate) fn adapter_names() -> impl Iterator<Item = &'static str> {
    adapters().map(|adapter| adapter.name())
}

/// Drivers of KTX whose connections contain context about data instead of data, and that need no adapter here.
const CONTEXT_DRIVERS: [&str; 8] = [
    "confluence",
    "gdrive",
    "jira",
    "looker",
    "metabase",
    "sharepoint",
    "sigma",
    "tableau",
];

/// Drivers of databases that KTX can read.
const DATABASE_DRIVERS: [&str; 17] = [
    "athena",
    "bigquery",
    "clickhouse",
    "databricks",
    "duckdb",
    "mariadb",
    "mongodb",
    "motherduck",
    "mssql",
    "mysql",
    "postgres",
    "postgresql",
    "redshift",
    "snowflake",
    "sqlite",
    "sqlserver",
    "trino",
];

/// Drivers that KTX accepts in `connections`. It refuses a file with any other one.
const KTX_DRIVERS: [&str; 13] = [
    "bigquery",
    "clickhouse",
    "dbt",
    "looker",
    "lookml",
    "metabase",
    "metricflow",
    "mysql",
    "notion",
    "postgres",
    "snowflake",
    "sqlite",
    "sqlserver",
];

/// Whether KTX accepts connections with this `driver`.
pub(crate) fn is_ktx_driver(driver: &str) -> bool {
    KTX_DRIVERS.contains(&driver)
}

/// Whether connections with this `driver` are databases that KTX can read.
pub(crate) fn is_database_driver(driver: &str) -> bool {
    DATABASE_DRIVERS.contains(&driver)
}

/// The drivers of connections: those of adapters, and those that only KTX has.
pub(crate) fn known_drivers() -> impl Iterator<Item = &'static str> {
    adapter_names()
        .chain(CONTEXT_DRIVERS)
        .chain(DATABASE_DRIVERS)
}

/// Names that `ingest.adapters` may contain: those of adapters, and those that only KTX has.
pub(crate) fn known_adapters() -> impl Iterator<Item = &'static str> {
    adapter_names()
        .chain(CONTEXT_DRIVERS)
        .chain(["live-database", "historic-sql"])
}

/// Whether connections with this `driver` contain context about data that is stored elsewhere.
pub(crate) fn is_context_driver(driver: &str) -> bool {
    CONTEXT_DRIVERS.contains(&driver) || find_adapter(driver).is_some()
}

pub fn find_adapter(driver: &str) -> Option<&'static dyn SourceAdapter> {
    ADAPTERS
        .into_iter()
        .find(|adapter| adapter.name() == driver)
}

/// Why a connection has no usable directory. Continues a sentence about the connection.
#[derive(Debug, thiserror::Error)]
pub enum SourceDirError {
    /// The connection has no `source_dir` and no repository URL.
    #[error("it names no files")]
    NotConfigured,
    /// git fetches its files, and there is no clone of them.
    #[error(transparent)]
    Repository(#[from] GitSourceError),
    #[error("its directory {} does not exist", display_path(.0))]
    NotFound(PathBuf),
    /// The path is a file or something else.
    #[error("{} is not a directory", display_path(.0))]
    NotADirectory(PathBuf),
    /// Neither the project nor the settings allow the path.
    #[error(transparent)]
    NotAllowed(#[from] PathRefusal),
    /// A system call failed.
    #[error("cannot read {}: {cause}", display_path(path))]
    Unreadable {
        path: PathBuf,
        /// Error of the system call.
        cause: String,
    },
}

impl Diagnostic for SourceDirError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NotConfigured => "give it a source_dir".into(),
            Self::Repository(error) => return error.help(),
            Self::NotFound(path) => {
                format!("correct source_dir in ktx.yaml{}", shell_syntax_hint(path))
            }
            Self::NotADirectory(_) => "correct source_dir in ktx.yaml".into(),
            Self::NotAllowed(refusal) => return refusal.help(),
            Self::Unreadable { .. } => return None,
        })
    }
}

fn display_path(path: &Path) -> String {
    visible_path(&path.to_string_lossy())
}

/// A hint for a path with shell syntax, else an empty text.
fn shell_syntax_hint(path: &Path) -> &'static str {
    let is_for_a_shell = |part: Component<'_>| {
        part.as_os_str()
            .as_encoded_bytes()
            .first()
            .is_some_and(|byte| b"~$".contains(byte))
    };
    if path.components().any(is_for_a_shell) {
        ": `~` and variables are not expanded"
    } else {
        ""
    }
}

/// The directory of a connection, absolute and without symbolic links, including its `path`.
pub(crate) fn source_dir(origin: ProjectConnection<'_>) -> Result<PathBuf, SourceDirError> {
    resolve_dir(origin, origin.connection.subdir.as_deref())
}

/// The directory of a connection without its `path`.
fn source_root_dir(origin: ProjectConnection<'_>) -> Result<PathBuf, SourceDirError> {
    resolve_dir(origin, None)
}

/// Why the files of a connection may not be from its `branch`, as a sentence about the connection. KTX clones that
/// branch; this program reads a local repository as it is checked out.
fn branch_mismatch(origin: ProjectConnection<'_>) -> Option<Problem> {
    /// Largest `.git/HEAD` that is read, in bytes.
    const MAX_HEAD_BYTES: u64 = 4096;
    let (Some(SourceLocation::Url(_)), Some(branch)) =
        (&origin.connection.source, &origin.connection.branch)
    else {
        return None;
    };
    let head = source_root_dir(origin).ok().and_then(|root| {
        ScopedDir::open(&root)
            .ok()?
            .read(".git/HEAD", MAX_HEAD_BYTES)
            .ok()
    });
    let head = head.map(|head| String::from_utf8_lossy(&head).trim().to_owned());
    let found = match head
        .as_deref()
        .map(|head| head.strip_prefix("ref: refs/heads/"))
    {
        Some(Some(current)) if current == branch => return None,
        Some(Some(current)) => format!(", on branch `{}`", visible_path(current)),
        Some(None) => ", with a detached HEAD".to_owned(),
        None => String::new(),
    };
    let branch = visible_path(branch);
    Some(
        Problem::new(format!(
            "branch `{branch}` has no effect: a local repository is read as it is checked out{found}"
        ))
        .with_help(format!("check out `{branch}` there")),
    )
}

fn resolve_dir(
    origin: ProjectConnection<'_>,
    subdir: Option<&str>,
) -> Result<PathBuf, SourceDirError> {
    let mut path = match origin
        .connection
        .source
        .as_ref()
        .ok_or(SourceDirError::NotConfigured)?
    {
        SourceLocation::Dir(dir) => origin.project.join(dir),
        SourceLocation::Url(url) => match origin.repository()? {
            Some(source) => {
                source.clone_state()?;
                source.clone_path()
            }
            None => origin.project.join(local_path(url).unwrap_or_default()),
        },
    };
    if let Some(subdir) = subdir {
        path.push(subdir);
    }
    match origin.resolve(&path) {
        Ok(Ok(real)) if real.is_dir() => Ok(real),
        Ok(Ok(real)) => Err(SourceDirError::NotADirectory(real)),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(SourceDirError::NotFound(path))
        }
        Err(error) => Err(SourceDirError::Unreadable {
            path,
            cause: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    static NOWHERE: std::sync::LazyLock<(PathPolicy, Connection)> =
        std::sync::LazyLock::new(Default::default);

    /// A connection without settings.
    pub(super) fn anywhere() -> ProjectConnection<'static> {
        ProjectConnection {
            project: Path::new("/"),
            policy: &NOWHERE.0,
            connection: &NOWHERE.1,
            unit_bytes: split::DEFAULT_UNIT_BYTES,
        }
    }

    /// A directory with these files, and its tree with the fingerprints of all files.
    pub(crate) fn tree_of(files: &[(&str, &str)]) -> (tempfile::TempDir, SourceTree) {
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
    fn branch_that_is_not_checked_out_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("bi/.git")).unwrap();
        let mismatch = |head: Option<&str>, source: SourceLocation| {
            let file = root.join("bi/.git/HEAD");
            head.map_or_else(
                || drop(std::fs::remove_file(&file)),
                |head| std::fs::write(&file, head).unwrap(),
            );
            let branch = Some("dev".to_owned());
            let connection = Connection {
                source: Some(source),
                branch,
                ..Connection::default()
            };
            branch_mismatch(ProjectConnection {
                project: &root,
                connection: &connection,
                ..anywhere()
            })
        };
        let url = || SourceLocation::Url("file:bi".into());
        assert_eq!(mismatch(Some("ref: refs/heads/dev\n"), url()), None);
        let other = mismatch(Some("ref: refs/heads/main\n"), url())
            .unwrap()
            .to_line();
        assert!(
            other.contains("branch `dev`") && other.contains("on branch `main`"),
            "{other}"
        );
        assert!(
            mismatch(Some("0123456789\n"), url())
                .unwrap()
                .to_line()
                .contains("with a detached HEAD")
        );
        assert!(
            mismatch(None, url())
                .unwrap()
                .to_line()
                .contains("as it is checked out; check out `dev` there")
        );
        assert_eq!(
            mismatch(None, SourceLocation::Dir("bi".into())),
            None,
            "KTX also reads a directory as it is"
        );
    }

    #[test]
    fn directories_are_found_or_explained() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("raw/models")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let at = |source: Option<SourceLocation>, subdir: Option<&str>| {
            let subdir = subdir.map(str::to_owned);
            let connection = Connection {
                id: "c".into(),
                driver: Some("dbt".into()),
                source,
                subdir,
                ..Connection::default()
            };
            source_dir(ProjectConnection {
                project: &root,
                connection: &connection,
                ..anywhere()
            })
        };
        let local = |location: &str| Some(SourceLocation::Dir(location.into()));
        let url = |url: &str| Some(SourceLocation::Url(url.into()));
        assert_eq!(at(local("raw"), None).unwrap(), root.join("raw"));
        assert_eq!(
            at(url("file:raw"), Some("models")).unwrap(),
            root.join("raw/models")
        );
        for (source, why) in [
            (local("no"), "/no does not exist"),
            (local("file"), "/file is not a directory"),
            (None, "it names no files"),
            (
                url("https://e.org/r"),
                "its repository `https://e.org/r` is not on this machine yet",
            ),
            (
                url("https://me:secret@e.org/r"),
                "its repository address contains a user name or a password: `https://e.org/r`",
            ),
            (
                url("ext::sh -c id"),
                "its repository address is not one of https, ssh or file: `ext::sh -c id`",
            ),
            (
                url("file://host/srv"),
                "its repository address is not one of https, ssh or file: `file://host/srv`",
            ),
        ] {
            let error = at(source, None).unwrap_err().to_string();
            assert!(error.ends_with(why), "{error}");
        }
    }

    fn first_run(adapter: &dyn SourceAdapter, tree: &SourceTree) -> Vec<UnitChunk> {
        let chunks = adapter.chunk(tree, anywhere()).unwrap();
        assert_eq!(
            adapter.chunk(tree, anywhere()).unwrap(),
            chunks,
            "the same files give the same units"
        );
        chunks.units
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn files_are_cut_into_units_once_and_keys_are_unique(
            paths in prop::collection::btree_set("(models/)?([abA_.é-]{1,3}/)?[abA_.é -]{1,3}\\.(yml|md|txt)", 1..40),
            touched in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            // A leading dot hides a file from every adapter.
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
                // A re-sync gives every changed file to a unit, and no file to two units.
                let changed: BTreeSet<&str> =
                    touched.iter().map(|index| index.get(&tree.files).path.as_str()).collect();
                let in_units: BTreeSet<String> = raw.into_iter().cloned().collect();
                let is_due = |unit: &UnitChunk| unit.raw_files.iter().any(|path| changed.contains(path.as_str()));
                let left: Vec<UnitChunk> =
                    units.into_iter().filter(is_due).map(|unit| adapter.narrow_unit(unit, &changed)).collect();
                for path in changed.iter().filter(|path| in_units.contains(**path)) {
                    prop_assert!(left.iter().any(|unit| unit.raw_files.iter().any(|raw| raw == path)));
                }
                for unit in &left {
                    prop_assert!(unit.dependency_paths.iter().all(|path| !unit.raw_files.contains(path)));
                }
            }
        }
    }
}
