//! Scans of databases: the tables of a connection, in the files where KTX and this program look for them.
//!
//! A scan is two sets of files. `semantic-layer/<connection>/_schema` is part of the semantic layer and has what people
//! added to it ([`manifest`]). `raw-sources/<connection>/live-database/<sync>` is the catalogue as it is ([`live_database`]);
//! its file `connection.json` is written last, so its date is that of a complete scan. In a project with git, all changes
//! become one commit, because a run starts from commits ([`commit`]). This module must not know how a database is reached.

use std::{collections::BTreeMap, io};

use jiff::Timestamp;

use super::{
    branch_update::{self, BranchUpdateError},
    connection_scope::resolve_database,
    database::{self, CatalogProgress, Database, QueryError, TableInfo},
    git::GitError,
    job::IngestJob,
    lock::{self, ProjectLock, ProjectLockError},
    project::{Connection, Project},
    repository::{Repository, RepositoryError},
    source,
    spelling::did_you_mean,
    untrusted_text::{excerpt, one_line},
    warehouse_access,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    text::pluralize,
};
use ingestdeck_os::scoped_dir::{self, FileLock, SHARED_MODE, ScopedDir};

use self::{
    live_database::StoredScan,
    manifest::StoredManifest,
    reach::ScanReach,
    tables::{ScannedTableName, StagedTable, TableIndex},
};

mod column_type;
mod commit;
mod live_database;
mod manifest;
mod manifest_text;
mod reach;
mod tables;

/// Why a database was not scanned. Nothing is changed then, unless the message states otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    #[error("ktx.yaml has no connection `{}`{hint}", excerpt(id))]
    NoSuchConnection {
        id: String,
        /// The most similar connection, as the end of the sentence.
        hint: String,
        /// The names of all connections, for the help.
        known: String,
    },
    /// The connection is not a database that this program can read.
    #[error("connection {}: {what}", one_line(id))]
    NotScannable { id: String, what: String },
    /// The user's settings do not allow the connection, or its file cannot be used.
    #[error("connection {}: {problem}", one_line(id))]
    NotAllowed { id: String, problem: Problem },
    #[error("connection {}: {cause}", one_line(id))]
    Database { id: String, cause: QueryError },
    /// The database shows no tables, although an earlier scan has some.
    #[error(
        "connection {}: the database shows no tables to this user, but the last scan has {before}",
        one_line(id)
    )]
    NoTables { id: String, before: usize },
    /// A file that people may have edited cannot be read.
    #[error("{path}: {problem}")]
    InvalidFile { path: String, problem: Problem },
    #[error("{path} cannot be written as YAML")]
    NotWritable { path: String },
    #[error(transparent)]
    Lock(#[from] ProjectLockError),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error("cannot commit the scan: {0}")]
    BranchUpdate(#[from] BranchUpdateError),
    /// The branch moved again and again.
    #[error("the branch kept changing while the scan was committed")]
    BranchMovedRepeatedly,
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("`{path}`: {cause}")]
    Io {
        /// Relative to the project.
        path: String,
        cause: io::Error,
    },
}

impl ScanError {
    fn io(path: &str, cause: io::Error) -> Self {
        Self::Io {
            path: path.trim_end_matches('/').to_owned(),
            cause,
        }
    }
}

impl Diagnostic for ScanError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NoSuchConnection { known, .. } => match known.as_str() {
                "" => "add one to `connections` in ktx.yaml".into(),
                known => format!("name one of its connections: {known}"),
            },
            Self::NotScannable { .. } => {
                "name a connection to a database, as in `warehouse: {driver: postgres, url: \"env:DATABASE_URL\"}`"
                    .into()
            }
            Self::NotAllowed { problem, .. } | Self::InvalidFile { problem, .. } => {
                return problem.help();
            }
            Self::NoTables { .. } => {
                "check the rights of the user and the schemas of the connection; to start again, delete the scan".into()
            }
            Self::Lock(error) => return error.help(),
            Self::Repository(error) => return error.help(),
            Self::BranchUpdate(error) => return error.help(),
            Self::BranchMovedRepeatedly => "stop other commits, then try again".into(),
            Self::Git(error) => return error.help(),
            Self::Io { cause, .. } => return scoped_dir::remedy(cause).map(str::to_owned),
            Self::Database { cause, .. } => return cause.help(),
            Self::NotWritable { .. } => return None,
        })
    }
}

/// What a scan changed.
#[derive(Clone, Debug, Default)]
pub struct ScanChanges {
    pub tables: usize,
    pub columns: usize,
    /// Names of tables that the scan before did not have, sorted.
    pub added: Vec<String>,
    /// Names of tables with other columns, keys or comments than before.
    pub changed: Vec<String>,
    /// Names of tables that the database has no longer.
    pub removed: Vec<String>,
    /// Folder of the tables, relative to the project.
    pub folder: String,
    pub files_written: usize,
    pub files_deleted: usize,
    /// The commit, and the branch that it is on.
    pub commit: Option<(String, Option<String>)>,
    /// What the user should know: files that are deleted or in no commit, joins and settings that fit no table.
    pub warnings: Vec<Problem>,
}

/// Files to write and to delete, by their paths relative to the project.
#[derive(Debug, Default)]
struct PlannedFiles {
    /// `None` deletes the file.
    files: BTreeMap<String, Option<Vec<u8>>>,
    /// The file that is written after all others.
    last: Option<(String, Vec<u8>)>,
}

impl PlannedFiles {
    fn write(&mut self, path: String, bytes: Vec<u8>) {
        self.files.insert(path, Some(bytes));
    }

    fn delete(&mut self, path: String) {
        self.files.insert(path, None);
    }

    fn finish_with(&mut self, path: String, bytes: Vec<u8>) {
        self.last = Some((path, bytes));
    }

    /// The files in the order in which they are written.
    fn in_order(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        let files = self
            .files
            .iter()
            .map(|(path, bytes)| (path.as_str(), bytes.as_deref()));
        let last = self.last.iter();
        files.chain(last.map(|(path, bytes)| (path.as_str(), Some(bytes.as_slice()))))
    }
}

/// The connection of a scan.
#[derive(Clone, Copy)]
struct ScannedConnection<'a> {
    id: &'a str,
    /// Its driver, by its name in KTX.
    driver: &'static str,
    reach: &'a ScanReach,
}

/// A scan of one connection, with exclusive access to the project.
#[derive(Debug)]
pub struct DatabaseScan<'p> {
    project: &'p Project,
    connection: &'p Connection,
    database: Database,
    reach: ScanReach,
    /// `None` if the files are not committed.
    repository: Option<(Repository, FileLock)>,
    warnings: Vec<Problem>,
    _lock: ProjectLock,
}

impl<'p> DatabaseScan<'p> {
    /// Prepares a scan of the connection `id`. Connects to nothing.
    ///
    /// # Errors
    /// If the connection cannot be scanned, another process changes the project, or files of an earlier scan have changes
    /// that are in no commit.
    pub fn prepare(project: &'p Project, id: &str) -> Result<Self, ScanError> {
        let connection = find_connection(project, id)?;
        let database = database_of(project, connection)?;
        let lock = lock::acquire(&project.root)?;
        let mut warnings = Vec::new();
        let repository = match Repository::find(&project.root) {
            Ok(None) => None,
            Ok(Some(repository)) => {
                let held = repository.lock()?;
                if branch_update::recover(&repository)?.commit.is_some() {
                    warnings.push(Problem::new(
                        "an update of the project that was interrupted is undone",
                    ));
                }
                let dirs = [manifest::folder(id), live_database::scans_dir(id)];
                repository.check_committed(&dirs.each_ref().map(String::as_str))?;
                Some((repository, held))
            }
            // A run is refused in such a project, but its files are of use.
            Err(
                error @ (RepositoryError::EnclosingRepository { .. }
                | RepositoryError::LinkedWorktree { .. }),
            ) => {
                let text = format!("the files of the scan are not committed: {error}");
                warnings.push(Problem::new(text).with_help("commit them yourself"));
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            project,
            connection,
            reach: ScanReach::of(connection, &database),
            database,
            repository,
            warnings,
            _lock: lock,
        })
    }

    /// Reads the tables of the database. Blocks.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn read(
        &mut self,
        progress: &mut dyn FnMut(CatalogProgress),
    ) -> Result<Vec<TableInfo>, ScanError> {
        let workers = &self.project.sql_workers;
        let tables = match &self.database {
            Database::Sqlite(path) => workers.sqlite_tables(path, progress),
            Database::Warehouse(warehouse) => workers.tables(warehouse, progress),
        };
        let mut tables = tables.map_err(|cause| ScanError::Database {
            id: self.connection.id.clone(),
            cause,
        })?;
        self.warnings.extend(self.reach.keep_enabled(&mut tables));
        Ok(tables)
    }

    /// Writes `tables` to the files of the scan: only those whose content changed, and the date.
    ///
    /// # Errors
    /// If files cannot be read, written or committed.
    pub fn write(self, tables: &[TableInfo], now: Timestamp) -> Result<ScanChanges, ScanError> {
        let id = self.connection.id.as_str();
        let driver = self.driver();
        let project =
            ScopedDir::open(&self.project.root).map_err(|cause| ScanError::io(".", cause))?;
        let job = IngestJob::new(now);
        let newest = live_database::newest(&project, id)?;
        let sync = newest.unwrap_or_else(|| job.sync_id.clone());
        let folder = format!("{}/{sync}", live_database::scans_dir(id));
        let stored = StoredScan::read(&project, &folder)?;
        if tables.is_empty() && !stored.tables.is_empty() {
            return Err(ScanError::NoTables {
                id: id.to_owned(),
                before: stored.tables.len(),
            });
        }
        let manifest = StoredManifest::read(&project, id)?;
        let index = TableIndex::new(tables);
        let mut scanned: Vec<StagedTable<'_>> = tables
            .iter()
            .zip(live_database::table_paths(tables))
            .map(|(info, path)| StagedTable {
                name: ScannedTableName::of(info),
                json: live_database::table_json(driver, info, &index),
                info,
                path,
            })
            .collect();
        // The order in which KTX reads the files, and so writes the tables.
        scanned.sort_by(|a, b| a.path.cmp(&b.path));
        let mut planned = PlannedFiles::default();
        let about = ScannedConnection {
            id,
            driver,
            reach: &self.reach,
        };
        live_database::plan_files(&mut planned, &folder, &stored, about, &scanned, now);
        let dropped =
            manifest::plan_files(&mut planned, &manifest, about, &scanned, &index, &stored)?;
        let mut result = compare(&scanned, &stored, &self.reach);
        result.folder = folder;
        result.warnings = self.warnings.clone();
        result.warnings.extend(dropped);
        result.warnings.extend(undescribed(&scanned));
        for (_, bytes) in planned.in_order() {
            match bytes {
                Some(_) => result.files_written += 1,
                None => result.files_deleted += 1,
            }
        }
        self.save(&project, &planned, &job, &mut result)?;
        Ok(result)
    }

    /// The driver, by its name in KTX.
    fn driver(&self) -> &'static str {
        match &self.database {
            Database::Sqlite(_) => database::DRIVER,
            Database::Warehouse(warehouse) => warehouse.driver.name(),
        }
    }

    /// Brings the planned files into the project. Files that git ignores, and those of a project without git, are written one
    /// after the other.
    fn save(
        &self,
        project: &ScopedDir,
        planned: &PlannedFiles,
        job: &IngestJob,
        result: &mut ScanChanges,
    ) -> Result<(), ScanError> {
        let mut committed = Vec::new();
        let is_ignored = match &self.repository {
            Some((repository, _)) => commit::is_ignored(repository, planned)?,
            None => true,
        };
        for (path, bytes) in planned.in_order() {
            let raw = path.starts_with("raw-sources/");
            match (&self.repository, bytes) {
                (Some(_), _) if !(raw && is_ignored) => committed.push((path, bytes)),
                (_, Some(bytes)) => project
                    .write(path, bytes, SHARED_MODE, 0o666)
                    .map_err(|cause| ScanError::io(path, cause))?,
                (_, None) => {
                    project
                        .remove(path)
                        .map_err(|cause| ScanError::io(path, cause))?;
                }
            }
        }
        let Some((repository, _)) = &self.repository else {
            return Ok(());
        };
        if is_ignored {
            let text = format!("git ignores {}, so it is in no commit", result.folder);
            result.warnings.push(Problem::new(text).with_help(
                "clones of the project have no scan; to keep it, remove the rule from .gitignore",
            ));
        }
        if !committed.is_empty() {
            let message = commit_message(&self.connection.id, result, &job.sync_id);
            result.commit = Some(commit::commit(repository, &committed, &message)?);
        }
        Ok(())
    }
}

/// The message of the commit, in KTX's form.
fn commit_message(id: &str, result: &ScanChanges, sync: &str) -> String {
    let counts = [
        ("added", &result.added),
        ("changed", &result.changed),
        ("removed", &result.removed),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(_, tables)| !tables.is_empty())
        .map(|(what, tables)| format!("{} {what}", tables.len()))
        .collect();
    let counts = match counts.is_empty() {
        true => "unchanged".to_owned(),
        false => counts.join(", "),
    };
    format!("scan(live-database): {id}: {counts}\n\nsyncId={sync}\n")
}

/// Compares the tables with those of the scan before.
fn compare(scanned: &[StagedTable<'_>], stored: &StoredScan, reach: &ScanReach) -> ScanChanges {
    let mut result = ScanChanges {
        tables: scanned.len(),
        columns: scanned.iter().map(|table| table.info.columns.len()).sum(),
        ..ScanChanges::default()
    };
    let mut gone: BTreeMap<&ScannedTableName, _> = stored.tables.iter().collect();
    for table in scanned {
        match gone.remove(&table.name) {
            None => result.added.push(table.name.reference()),
            Some(before) if tables::is_changed(before, &table.json) => {
                result.changed.push(table.name.reference());
            }
            Some(_) => {}
        }
    }
    let gone = gone.keys().filter(|name| reach.covers(name));
    result.removed = gone.map(|name| name.reference()).collect();
    result.added.sort_unstable();
    result.changed.sort_unstable();
    result
}

/// The problem that tables could not be described.
fn undescribed(scanned: &[StagedTable<'_>]) -> Option<Problem> {
    let errors = || {
        let described =
            |table: &StagedTable<'_>| Some((table.name.reference(), table.info.error.clone()?));
        scanned.iter().filter_map(described)
    };
    let (name, error) = errors().next()?;
    let text = format!(
        "{} without a description, such as `{}`: {}",
        pluralize(errors().count(), "table"),
        excerpt(&name),
        excerpt(&error)
    );
    Some(Problem::new(text).with_help("scan again if the database changed meanwhile"))
}

fn find_connection<'p>(project: &'p Project, id: &str) -> Result<&'p Connection, ScanError> {
    let connections = &project.settings.connections;
    if let Some(connection) = connections.iter().find(|connection| connection.id == id) {
        return Ok(connection);
    }
    let known: Vec<&str> = connections.iter().map(|known| known.id.as_str()).collect();
    let shown: Vec<String> = known.iter().map(|known| one_line(known)).collect();
    Err(ScanError::NoSuchConnection {
        id: id.to_owned(),
        hint: did_you_mean(id, &known),
        known: shown.join(", "),
    })
}

/// The database of `connection` if it may be read.
///
/// # Errors
/// If it is not a database, cannot be read here, or is not allowed.
pub fn database_of(project: &Project, connection: &Connection) -> Result<Database, ScanError> {
    let id = || connection.id.clone();
    let not_scannable = |what: String| ScanError::NotScannable { id: id(), what };
    let not_allowed = |problem| ScanError::NotAllowed { id: id(), problem };
    match connection.driver.as_deref() {
        Some(database::DRIVER) => match resolve_database(project, connection) {
            Some(Ok(path)) => Ok(Database::Sqlite(path)),
            Some(Err(refusal)) => Err(not_allowed(Problem::from_error(&refusal))),
            None => Err(not_allowed(
                Problem::new("its database file does not exist")
                    .with_help("correct `path` in ktx.yaml"),
            )),
        },
        Some(driver) => match warehouse_access::resolve(project, connection) {
            Some(Ok(warehouse)) => Ok(Database::Warehouse(warehouse)),
            Some(Err(problem)) => Err(not_allowed(problem)),
            None if source::is_context_driver(driver) => Err(not_scannable(format!(
                "`{}` is not a database, so there is nothing to scan",
                excerpt(driver)
            ))),
            None => Err(not_scannable(format!(
                "databases of the driver `{}` cannot be read here",
                excerpt(driver)
            ))),
        },
        None => Err(not_scannable("it has no driver".to_owned())),
    }
}

#[cfg(test)]
mod tests;
