//! What the files of a project contain about the tables of a connection: KTX's scan of the database, and what dbt wrote.
//!
//! The files are read when the first question is asked, and again when they have changed; all attempts share the answer.
//! They are untrusted: sizes and counts are limited, and what exceeds a limit is a warning without facts. This module must
//! not open a connection.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{database::TableInfo, git::Git, spelling::nearest_names};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir::{ScopedDir, validate_relative_path};

mod available;
mod dbt;
mod found_files;
mod scan;
mod schema_files;
mod table_name;
mod table_set;

use found_files::FoundFactFiles;

pub use available::{AvailableFacts, StoredScanDate};
pub(crate) use table_name::{TableName, full_name};
pub(crate) use table_set::{FactOrigin, TableMatch, TableSet};

/// Most names that are suggested for a missing table.
const MAX_CANDIDATES: usize = 5;
/// Option of `git log` for the commits of scans, KTX's and those of this program.
const SCAN_SUBJECT: &str = "--grep=^scan(live-database): ";
/// Time limit of a call that asks git for the age of a scan.
const GIT_TIME_LIMIT: Duration = Duration::from_secs(2);

/// Where the facts about a connection may be.
#[derive(Clone, Debug, Default)]
pub(crate) struct FactFiles {
    /// Directory of the project.
    pub(crate) project: PathBuf,
    /// Id of the connection.
    pub(crate) connection: String,
    /// Directories of the dbt sources whose tables are in its database.
    pub(crate) dbt_sources: Vec<PathBuf>,
    /// Name of its database, if it is known. Tables of a scan may not name it.
    pub(crate) database: Option<String>,
    /// Whether the connection limits scans to some tables now. A scan may have been limited to others.
    pub(crate) has_enabled_tables: bool,
}

/// Folders with scans of a connection, relative to the project.
#[derive(Debug)]
struct ScanDirs {
    /// Snapshots, one folder for each scan.
    snapshots: String,
    /// YAML files of the semantic layer.
    schema_files: String,
}

/// The facts about the connections of a project. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ProjectFacts(Arc<Mutex<BTreeMap<String, Arc<ConnectionFacts>>>>);

impl ProjectFacts {
    /// The facts about the connection `id`. Reads no files yet.
    pub(crate) fn of(&self, id: &str, files: impl FnOnce() -> FactFiles) -> Arc<ConnectionFacts> {
        let mut known = self.0.lock();
        let facts = known.entry(id.to_owned()).or_insert_with(|| {
            Arc::new(ConnectionFacts {
                files: files(),
                ..ConnectionFacts::default()
            })
        });
        Arc::clone(facts)
    }
}

/// The facts about one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFacts {
    files: FactFiles,
    /// What was read last, with the state of the files before they were read.
    loaded: Mutex<Option<(FactFileStamps, Arc<LoadedFacts>)>>,
}

/// Paths of files, with what changes when they are written.
pub(crate) type FactFileStamps = Vec<(PathBuf, found_files::FactFileStamp)>;

/// The facts after they were read.
#[derive(Debug, Default)]
pub(crate) struct LoadedFacts {
    /// The scan first, then the newest artifact of dbt.
    pub(crate) sets: Vec<TableSet>,
    /// Files that are not used, one sentence each.
    pub(crate) warnings: Vec<Problem>,
}

impl ConnectionFacts {
    /// Whether there are files with facts. Does not read them.
    pub(crate) fn exist(&self) -> bool {
        FoundFactFiles::list(&self.files).has_any()
    }

    /// Name of the database of the connection, if it is known.
    pub(crate) fn database_name(&self) -> Option<&str> {
        self.files.database.as_deref()
    }

    /// What the files can answer, without the tables in them.
    pub(crate) fn available(&self) -> AvailableFacts {
        let found = FoundFactFiles::list(&self.files);
        let date = || StoredScanDate(self.files.scan_date(&found));
        AvailableFacts {
            scan: found.has_scan().then(date),
            has_dbt_catalog: found.has_dbt(FactOrigin::DbtCatalog),
            has_dbt_manifest: found.has_dbt(FactOrigin::DbtManifest),
            ..AvailableFacts::default()
        }
    }

    /// What changes when a file with facts is written, added or removed.
    pub(crate) fn stamps(&self) -> FactFileStamps {
        FoundFactFiles::list(&self.files).stamps(&self.files)
    }

    /// The facts. Reads the files if they have changed since the last call.
    pub(crate) fn load(&self) -> Arc<LoadedFacts> {
        let found = FoundFactFiles::list(&self.files);
        let stamps = found.stamps(&self.files);
        // Concurrent callers wait instead of reading the same files.
        let mut loaded = self.loaded.lock();
        if let Some((of, facts)) = &*loaded
            && *of == stamps
        {
            return Arc::clone(facts);
        }
        // Frees the old facts first: both may be large.
        *loaded = None;
        let facts = Arc::new(self.files.read(&found));
        *loaded = Some((stamps, Arc::clone(&facts)));
        facts
    }
}

impl LoadedFacts {
    /// The first table that one of `readings` means, in the order of the readings.
    pub(crate) fn find(&self, readings: &[(TableName, Option<String>)]) -> FactLookup<'_> {
        let mut missing = FactLookup::Missing;
        for (name, column) in readings {
            for set in &self.sets {
                match set.find(name) {
                    TableMatch::One(table) => {
                        let has = |wanted: &String| {
                            let lower = wanted.to_lowercase();
                            table
                                .columns
                                .iter()
                                .any(|known| known.name.to_lowercase() == lower)
                        };
                        if column.as_ref().is_none_or(has) {
                            return FactLookup::Found(set, table);
                        }
                        if matches!(missing, FactLookup::Missing) {
                            missing = FactLookup::MissingColumn(set, table);
                        }
                    }
                    TableMatch::Several(tables) => {
                        if matches!(missing, FactLookup::Missing) {
                            missing = FactLookup::Ambiguous(tables);
                        }
                        // Another origin does not decide which of them is meant.
                        break;
                    }
                    TableMatch::None => {}
                }
            }
        }
        missing
    }

    /// Every table once, from the first origin that has it.
    pub(crate) fn distinct_tables(&self) -> impl Iterator<Item = (&TableSet, &TableInfo)> {
        let sets = &self.sets;
        sets.iter().enumerate().flat_map(move |(index, set)| {
            let earlier = sets.get(..index).unwrap_or_default();
            let is_new = move |table: &&TableInfo| {
                let name = full_name(table);
                earlier
                    .iter()
                    .all(|set| matches!(set.find(&name), TableMatch::None))
            };
            set.tables
                .iter()
                .filter(is_new)
                .map(move |table| (set, table))
        })
    }

    /// The tables with the most similar names.
    pub(crate) fn candidates(&self, name: &str) -> Vec<&TableInfo> {
        let sets = &self.sets;
        let mut found: Vec<&TableInfo> = Vec::new();
        for set in sets.iter().filter(|set| !set.tables.is_empty()) {
            let names: Vec<&str> = set.tables.iter().map(|table| table.name.as_str()).collect();
            for near in nearest_names(name, &names, MAX_CANDIDATES) {
                let tables = set.tables.iter().filter(|table| table.name == near);
                for table in tables {
                    let is_known = found
                        .iter()
                        .any(|known| full_name(known).agrees_with(&full_name(table)));
                    if !is_known && found.len() < MAX_CANDIDATES {
                        found.push(table);
                    }
                }
            }
        }
        found
    }
}

/// What a target means among the facts.
#[derive(Debug)]
pub(crate) enum FactLookup<'a> {
    Found(&'a TableSet, &'a TableInfo),
    /// The table has no such column.
    MissingColumn(&'a TableSet, &'a TableInfo),
    /// Several tables have that name.
    Ambiguous(Vec<&'a TableInfo>),
    Missing,
}

impl FactFiles {
    /// The folders of its scans; `None` if its id cannot be the name of a folder.
    fn scan_dirs(&self) -> Option<ScanDirs> {
        let id = &self.connection;
        validate_relative_path(id).ok()?;
        Some(ScanDirs {
            snapshots: format!("raw-sources/{id}/live-database"),
            schema_files: format!("semantic-layer/{id}/_schema"),
        })
    }

    fn read(&self, found: &FoundFactFiles) -> LoadedFacts {
        let mut warnings = Vec::new();
        let scan = self.read_scan(found, &mut warnings);
        let scan = scan.filter(|set| !set.tables.is_empty());
        let scan = scan.map(|set| set.in_database(self.database.clone()));
        let mut artifacts = dbt::read(&found.dbt, &mut warnings);
        if let Some(scan) = &scan {
            let databases = scan.databases();
            let is_other =
                |of: &String| !databases.is_empty() && !databases.contains(&of.to_lowercase());
            let kept = artifacts.into_iter().map(|set: TableSet| {
                let is_outdated =
                    set.origin == FactOrigin::DbtCatalog && set.read_at < scan.read_at;
                set.filtered(|table| {
                    let mut name = full_name(table);
                    if databases.is_empty() && self.database.is_none() {
                        // dbt writes into the database of the connection, whatever its name is.
                        name = TableName::from_parts([None, table.schema.as_deref()], &table.name);
                    }
                    let is_gone = is_outdated && scan.proves_missing(&name);
                    !is_gone && !table.catalog.as_ref().is_some_and(is_other)
                })
            });
            artifacts = kept.collect();
        }
        artifacts.retain(|set| !set.tables.is_empty());
        artifacts.sort_by_key(|set| {
            let age = std::cmp::Reverse(set.read_at);
            (set.origin == FactOrigin::DbtManifest, age)
        });
        // dbt may have written its artifacts for another target than the database of the connection.
        let sets = scan.into_iter().chain(artifacts).collect();
        LoadedFacts { sets, warnings }
    }

    fn read_scan(&self, found: &FoundFactFiles, warnings: &mut Vec<Problem>) -> Option<TableSet> {
        let dirs = self.scan_dirs()?;
        let root = ScopedDir::open(&self.project).ok()?;
        let is_limited = self.has_enabled_tables;
        let snapshot = found.snapshot.as_ref();
        let snapshot = snapshot
            .and_then(|path| scan::read(&root, path, is_limited, warnings))
            .filter(|set| !set.tables.is_empty());
        snapshot.or_else(|| {
            if found.schema_files.is_empty() {
                return None;
            }
            let folder = (&*dirs.schema_files, &found.schema_files[..]);
            let read_at = self.last_scan(&dirs.schema_files);
            schema_files::read(&root, folder, is_limited, read_at, warnings)
        })
    }

    /// When the scan read the database; `None` if that is unknown.
    fn scan_date(&self, found: &FoundFactFiles) -> Option<Timestamp> {
        match &found.snapshot {
            Some(path) => scan::date(&ScopedDir::open(&self.project).ok()?, path),
            None => self.last_scan(&self.scan_dirs()?.schema_files),
        }
    }

    /// When a scan last committed files in the folder `path`. `None` if that is unknown or it has changes that are in no
    /// commit.
    fn last_scan(&self, path: &str) -> Option<Timestamp> {
        let git = Git::open(&self.project)
            .ok()?
            .with_time_limit(GIT_TIME_LIMIT);
        // The first commit of a shallow clone seems to have written every file.
        if git
            .run_for_line(&["rev-parse", "--is-shallow-repository"])
            .ok()?
            != "false"
        {
            return None;
        }
        let changes = git
            .run(&["--no-optional-locks", "status", "--porcelain", "--", path])
            .ok()?;
        if !changes.is_empty() {
            return None;
        }
        let committed = git
            .run_for_line(&[
                "log",
                "-1",
                "--format=%cI",
                "--basic-regexp",
                SCAN_SUBJECT,
                "--",
                path,
            ])
            .ok()?;
        committed.parse().ok()
    }
}

/// The facts about a connection as a check of sources needs them.
#[derive(Clone, Debug)]
pub(crate) struct KnownTables {
    facts: Arc<ConnectionFacts>,
    /// The facts of the first question, so that one check does not mix two states of the files.
    loaded: OnceLock<Arc<LoadedFacts>>,
    /// The time that ages refer to.
    pub(crate) now: Timestamp,
    /// Age from which a scan no longer proves that a table is missing.
    pub(crate) max_scan_age: Duration,
    /// Whether the database has a table, by its name in a source, as far as it was asked and answered. Files decide about
    /// the others.
    pub(crate) answers: BTreeMap<String, bool>,
    /// A table that the source named before it was rewritten, which is then only a warning.
    pub(crate) tolerated: Option<String>,
}

/// How the facts judge the table of a source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TableFinding {
    /// It exists, or nothing is known against it.
    Fine,
    /// It does not exist. The text is a sentence about it.
    Missing(String),
    /// It may not exist.
    Doubtful(String),
}

impl KnownTables {
    pub(crate) fn new(
        facts: &Arc<ConnectionFacts>,
        now: Timestamp,
        max_scan_age: Duration,
    ) -> Self {
        Self {
            facts: Arc::clone(facts),
            loaded: OnceLock::new(),
            now,
            max_scan_age,
            answers: BTreeMap::new(),
            tolerated: None,
        }
    }

    fn facts(&self) -> &LoadedFacts {
        self.loaded.get_or_init(|| self.facts.load())
    }

    /// Judges the table that a source names.
    pub(crate) fn judge(&self, table: &str) -> TableFinding {
        match self.judge_new(table) {
            TableFinding::Missing(why) if self.tolerated.as_deref() == Some(table) => {
                TableFinding::Doubtful(why)
            }
            finding => finding,
        }
    }

    fn judge_new(&self, table: &str) -> TableFinding {
        let name = TableName::parse(table);
        let readings = [(TableName::whole(table), None), (name.clone(), None)];
        let facts = self.facts();
        let sets = &facts.sets;
        let complete = sets.iter().find(|set| set.is_complete());
        let exists = self.answers.get(table).copied();
        if exists == Some(true) {
            return TableFinding::Fine;
        }
        match facts.find(&readings) {
            FactLookup::Found(set, _) if set.origin == FactOrigin::DbtManifest => {
                let is_elsewhere = exists == Some(false);
                return match is_elsewhere
                    || sets.iter().any(|set| set.origin != FactOrigin::DbtManifest)
                {
                    true => TableFinding::Doubtful(format!(
                        "only {} knows it, so it will exist after `dbt build`",
                        set.describe(self.now)
                    )),
                    false => TableFinding::Fine,
                };
            }
            FactLookup::Found(..) | FactLookup::MissingColumn(..) | FactLookup::Ambiguous(..)
                if exists.is_none() =>
            {
                return TableFinding::Fine;
            }
            FactLookup::Found(set, _) | FactLookup::MissingColumn(set, _) => {
                let described = set.describe(self.now);
                return TableFinding::Missing(format!(
                    "the database does not have it, only {described} does"
                ));
            }
            FactLookup::Ambiguous(_) | FactLookup::Missing => {}
        }
        let near = self.suggestion(&name);
        let Some(scan) = complete else {
            return match exists {
                // Without files, a source may come before its table: the answer is a warning of the caller.
                Some(_) if !sets.is_empty() => {
                    TableFinding::Missing(format!("the database does not have it{near}"))
                }
                _ => TableFinding::Fine,
            };
        };
        let described = scan.describe(self.now);
        if !scan.covers(&name) && exists.is_some() {
            return TableFinding::Missing(format!("the database does not have it{near}"));
        }
        if !scan.covers(&name) {
            return TableFinding::Doubtful(format!(
                "it is outside of what {described} covers, so it was not checked"
            ));
        }
        match exists {
            Some(_) => {
                TableFinding::Missing(format!("neither the database nor {described} has it{near}"))
            }
            None if self.is_young(scan) => {
                TableFinding::Missing(format!("{described} does not have it{near}"))
            }
            None => TableFinding::Doubtful(format!("{described} does not have it{near}")),
        }
    }

    /// Whether a column that a table of the set lacks does not exist.
    pub(crate) fn proves_columns(&self, set: &TableSet) -> bool {
        set.is_complete() && self.is_young(set)
    }

    /// Whether the age of the scan is known and below the limit.
    fn is_young(&self, scan: &TableSet) -> bool {
        let age = scan.read_at.map(|at| self.now.duration_since(at));
        age.and_then(|age| Duration::try_from(age).ok())
            .is_some_and(|age| age < self.max_scan_age)
    }

    /// A question with the nearest names; empty if there are none.
    fn suggestion(&self, name: &TableName) -> String {
        let near = self.facts().candidates(name.table());
        let near: Vec<String> = near
            .into_iter()
            .map(|table| {
                format!(
                    "`{}`",
                    super::untrusted_text::excerpt(&full_name(table).to_string())
                )
            })
            .collect();
        match near.is_empty() {
            true => String::new(),
            false => format!("; did you mean {}?", near.join(" or ")),
        }
    }

    /// The table of a source with its columns, from an origin that has them.
    pub(crate) fn columns_of(&self, table: &str) -> Option<(&TableSet, &TableInfo)> {
        let readings = [
            (TableName::whole(table), None),
            (TableName::parse(table), None),
        ];
        match self.facts().find(&readings) {
            FactLookup::Found(set, table) => Some((set, table)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
