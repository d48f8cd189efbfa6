//! The SQLite index over the tapes, for lists, reports and audits without folding every tape again.
//!
//! Never the source of truth: a broken index is deleted and rebuilt. It must not know how a tape is read.

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, Params, Row, ToSql, Transaction, TransactionBehavior,
    config::DbConfig, params,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::index_rows::{AttemptIndexRow, CallIndexRow, RunIndexRows, UnitIndexRow};
use ingestdeck_core::{diagnostic::Diagnostic, run::state::ModelSpending, tape::RunId};
use ingestdeck_os::scoped_dir::ScopedDir;

mod artifacts;
mod continuations;
mod prior_runs;
mod query;
mod unit_sources;
mod views;

pub use artifacts::ArtifactHistory;
pub use continuations::IndexedContinuation;
pub use prior_runs::{
    FileKey, FileRecord, ModelPrice, PriorEfforts, SupersededResult, UnitEffort, UnitHistory,
    processed_sha256,
};
pub use query::{IndexQueryError, QueryLimits};
pub use unit_sources::UnitSource;
pub use views::{IndexFilter, IndexView};

/// Creates all tables and indexes of an empty database.
const SCHEMA: &str = include_str!("../../../assets/index.sql");

/// `user_version` of [`SCHEMA`]. A change of the schema or of the meaning of its rows increments it, and an index of an
/// earlier version is emptied, so that its rows are made again from the tapes. [`is_earlier`] must know all names that
/// an earlier version used.
const SCHEMA_VERSION: usize = 18;

/// Maximum wait for another process that writes to the index.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two attempts where SQLite does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// Suffixes of the files that SQLite keeps next to a database. It reads each of them when it opens the database.
pub(super) const DATABASE_SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// All tables, children before their parents.
const TABLES: [&str; 7] = [
    "artifacts",
    "raw_files",
    "model_usage",
    "tool_calls",
    "attempts",
    "units",
    "runs",
];

#[derive(Debug)]
pub struct Db {
    connection: Connection,
    path: PathBuf,
}

/// Why the index cannot be used. It can always be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// Another process holds the write lock.
    #[error("{0} is busy: another ingestdeck writes to it")]
    Busy(PathBuf),
    /// A newer version of the program created it.
    #[error("{path} was made by a newer ingestdeck (version {found}, this one knows {known})")]
    NewerSchema {
        /// Path of the index.
        path: PathBuf,
        /// Schema version of the index.
        found: usize,
        /// Newest schema version that this program supports.
        known: usize,
    },
    /// It contains schema objects that this program does not create.
    #[error("cannot use `{}` as the index: it belongs to another program (it holds `{name}`)", path.display())]
    Foreign {
        path: PathBuf,
        /// Name of the foreign table, view, index or trigger.
        name: String,
    },
    /// SQLite or the file system reported an error.
    #[error("cannot use {path}: {cause}")]
    Failed {
        /// Path of the index.
        path: PathBuf,
        cause: String,
    },
}

impl Diagnostic for DbError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Busy(_) => "try again in a moment".into(),
            Self::NewerSchema { .. } => "`ingestdeck runs reindex` builds it again".into(),
            Self::Foreign { .. } => "move it away, then run `ingestdeck runs reindex`".into(),
            Self::Failed { .. } => return None,
        })
    }
}

/// A run in the list.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedRun {
    pub id: RunId,
    /// Start time, RFC 3339.
    pub started_at: String,
    pub project: Option<String>,
    /// True if a scripted agent replaced the model.
    pub scripted: bool,
    /// Outcome, if the run ended in order.
    pub outcome: Option<String>,
    /// Duration of the run in milliseconds.
    pub duration_ms: u64,
    pub units: u64,
    pub succeeded: u64,
    /// Units that spent their budget.
    pub budget: u64,
    /// Units reused from a prior run.
    pub reused: u64,
    pub failed: u64,
    /// Cost in US dollars, if known.
    pub cost_usd: Option<f64>,
    /// True if the cost of an attempt is unknown.
    pub is_cost_partial: bool,
    /// True if the run worked on when it was indexed. Its state may have changed without an entry, if it was killed.
    pub is_active: bool,
    /// Length in bytes of the tape when it was indexed. A tape of another length must be indexed again.
    pub tape_bytes: u64,
}

impl DbError {
    pub(super) fn failed(path: &Path, cause: &io::Error) -> Self {
        Self::Failed {
            path: path.to_owned(),
            cause: cause.to_string(),
        }
    }
}

impl Db {
    /// Opens or creates the index; symbolic links in its path are refused. A damaged index is replaced by an empty one,
    /// and one of an earlier version is emptied.
    pub(super) fn open(path: &Path) -> Result<Self, DbError> {
        Self::open_with_timeout(path, BUSY_TIMEOUT)
    }

    fn open_with_timeout(path: &Path, patience: Duration) -> Result<Self, DbError> {
        match Self::connect(path, patience) {
            Err(DbFault::Damaged(_)) => {
                remove(path).map_err(|error| DbError::failed(path, &error))?;
                Self::connect(path, patience).map_err(|fault| fault.into_db_error(path))
            }
            other => other.map_err(|fault| fault.into_db_error(path)),
        }
    }

    fn connect(path: &Path, patience: Duration) -> Result<Self, DbFault> {
        // SQLite refuses a path with a symbolic link in any component.
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(patience)?;
        // A database from elsewhere could call functions from its schema.
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        // Verify before the first write, which includes the journal mode.
        verify_schema(&connection)?;
        if version(&connection)? == 0 {
            // A new index that a power failure damages is rebuilt.
            connection.pragma_update(None, "synchronous", "off")?;
        }
        use_write_ahead_log(&connection, patience)?;
        create_schema(&mut connection)?;
        // With grouped commits, the cost of full durability is negligible.
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(Self {
            connection,
            path: path.to_owned(),
        })
    }

    /// Replaces all rows of these runs in one commit.
    pub fn put(&mut self, runs: &[RunIndexRows]) -> Result<(), DbError> {
        if runs.is_empty() {
            return Ok(());
        }
        let path = self.path.clone();
        self.commit(|transaction| runs.iter().try_for_each(|rows| write(transaction, rows)))
            .map_err(|fault| fault.into_db_error(&path))
    }

    /// Deletes the rows of all runs except `keep`, in one commit.
    pub fn retain(&mut self, keep: &[RunId]) -> Result<(), DbError> {
        let path = self.path.clone();
        self.commit(|transaction| {
            let known: Vec<String> = transaction
                .prepare("SELECT run FROM runs")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let gone = known
                .iter()
                .filter(|run| !RunId::parse(run).is_some_and(|id| keep.contains(&id)));
            gone.into_iter()
                .try_for_each(|run| delete_run(transaction, run))
        })
        .map_err(|fault| fault.into_db_error(&path))
    }

    /// Returns the space of deleted rows to the file system. Other processes wait meanwhile.
    pub fn shrink(&self) -> Result<(), DbError> {
        // The checkpoint copies the new file from the log, and truncates both.
        let shrunk = self
            .connection
            .execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
        self.checked(shrunk)
    }

    /// All indexed runs, newest first.
    pub fn list(&self) -> Result<Vec<IndexedRun>, DbError> {
        self.select(
            "SELECT run, started_at, project, scripted, outcome, duration_ms, units, succeeded, failed, cost_usd,
                    tape_bytes, budget,
                    (SELECT count(*) FROM units WHERE units.run = runs.run AND units.status = 'reused'),
                    cost_partial, active
             FROM runs ORDER BY run DESC",
            [],
            read_indexed_run,
        )
    }

    /// What `read` makes of the rows of `sql`, without those for which it returns `None`.
    fn select<T, C: FromIterator<T>>(
        &self,
        sql: &str,
        parameters: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<Option<T>, rusqlite::Error>,
    ) -> Result<C, DbError> {
        let select = || {
            self.connection
                .prepare_cached(sql)?
                .query_map(parameters, |row| read(row))?
                .filter_map(Result::transpose)
                .collect()
        };
        self.checked(select())
    }

    fn checked<T>(&self, result: Result<T, rusqlite::Error>) -> Result<T, DbError> {
        result.map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }

    fn commit(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<(), rusqlite::Error>,
    ) -> Result<(), DbFault> {
        // Immediate, so that a writer waits here, where the busy handler applies.
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        work(&transaction)?;
        Ok(transaction.commit()?)
    }
}

/// Internal cause of a [`DbError`].
#[derive(Debug)]
pub(super) enum DbFault {
    Damaged(String),
    Busy,
    Newer(usize),
    Foreign(String),
    Other(String),
}

impl DbFault {
    pub(super) fn into_db_error(self, path: &Path) -> DbError {
        let path = path.to_owned();
        match self {
            Self::Busy => DbError::Busy(path),
            Self::Newer(found) => DbError::NewerSchema {
                path,
                found,
                known: SCHEMA_VERSION,
            },
            Self::Foreign(name) => DbError::Foreign { path, name },
            Self::Damaged(cause) | Self::Other(cause) => DbError::Failed { path, cause },
        }
    }
}

impl From<rusqlite::Error> for DbFault {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.to_string())
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull) => Self::Other(format!(
                "{error}; check the free space and the limit on the size of files (`ulimit -f`)"
            )),
            Some(_) | None => Self::Other(error.to_string()),
        }
    }
}

/// Compares the schema with [`SCHEMA`], exactly: a foreign table with a known name could have checks or generated
/// columns that run with every row. Of an earlier version, whose tables are only dropped, the names are compared.
fn verify_schema(connection: &Connection) -> Result<(), DbFault> {
    // One snapshot for both, since another process may be creating the index.
    let connection = &connection.unchecked_transaction()?;
    let version = version(connection)?;
    if version > SCHEMA_VERSION {
        return Err(DbFault::Newer(version));
    }
    let found = schema(connection)?;
    if found.is_empty() && version == 0 {
        return Ok(());
    }
    let model = Connection::open_in_memory()?;
    model.execute_batch(SCHEMA)?;
    let expected = schema(&model)?;
    for object in &found {
        let is_known = match version {
            0 => false,
            SCHEMA_VERSION => expected.contains(object),
            _ => is_earlier(object, connection, &expected, &model)?,
        };
        if !is_known {
            return Err(DbFault::Foreign(object.name.escape_debug().to_string()));
        }
    }
    if version == SCHEMA_VERSION && found.len() < expected.len() {
        return Err(DbFault::Damaged("a table or index is missing".to_owned()));
    }
    Ok(())
}

/// True if an earlier version of the program may have created `object`: it has the name of an object of today, and a
/// table has the key of all tables and no other columns than that of today.
fn is_earlier(
    object: &SchemaObject,
    connection: &Connection,
    expected: &[SchemaObject],
    model: &Connection,
) -> Result<bool, rusqlite::Error> {
    let has_name = |ours: &SchemaObject| {
        (&ours.kind, &ours.name, &ours.table) == (&object.kind, &object.name, &object.table)
    };
    if !expected.iter().any(has_name) {
        return Ok(false);
    }
    if object.kind != "table" {
        return Ok(true);
    }
    let (found, ours) = (
        columns(connection, &object.name)?,
        columns(model, &object.name)?,
    );
    Ok(found.iter().any(|column| column == "run")
        && found.iter().all(|column| ours.contains(column)))
}

fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, rusqlite::Error> {
    connection
        .prepare("SELECT name FROM pragma_table_xinfo(?1)")?
        .query_map([table], |row| row.get(0))?
        .collect()
}

/// A table, index, view or trigger in the schema of SQLite.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SchemaObject {
    kind: String,
    pub(super) name: String,
    table: String,
    /// `None` for indexes that SQLite creates for keys.
    sql: Option<String>,
}

pub(super) fn schema(connection: &Connection) -> Result<Vec<SchemaObject>, rusqlite::Error> {
    let mut statement =
        connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let object = |row: &Row<'_>| {
        Ok(SchemaObject {
            kind: row.get(0)?,
            name: row.get(1)?,
            table: row.get(2)?,
            sql: row.get(3)?,
        })
    };
    statement.query_map([], object)?.collect()
}

fn create_schema(connection: &mut Connection) -> Result<(), DbFault> {
    // The usual case, which needs no write transaction.
    if version(connection)? == SCHEMA_VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have created it meanwhile.
    match version(&transaction)? {
        SCHEMA_VERSION => return Ok(()),
        newer if newer > SCHEMA_VERSION => return Err(DbFault::Newer(newer)),
        _ => {}
    }
    for table in TABLES {
        transaction.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION as i64)?;
    Ok(transaction.commit()?)
}

/// Changes the journal mode. If two processes do so to a new index, SQLite does not wait: one of them gets an error.
pub(super) fn use_write_ahead_log(
    connection: &Connection,
    patience: Duration,
) -> Result<(), rusqlite::Error> {
    let deadline = Instant::now() + patience;
    loop {
        let changed = connection.pragma_update(None, "journal_mode", "wal");
        let is_busy = changed
            .as_ref()
            .is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy));
        if !is_busy || Instant::now() >= deadline {
            return changed;
        }
        thread::sleep(BUSY_PAUSE);
    }
}

/// Version of the schema; 0 for an empty database.
fn version(connection: &Connection) -> Result<usize, DbFault> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Returns `None` if the id of the row is not a valid run id.
fn read_indexed_run(row: &Row<'_>) -> Result<Option<IndexedRun>, rusqlite::Error> {
    let Some(id) = run_id(row, 0)? else {
        return Ok(None);
    };
    Ok(Some(IndexedRun {
        id,
        started_at: row.get(1)?,
        project: row.get(2)?,
        scripted: row.get(3)?,
        outcome: row.get(4)?,
        duration_ms: to_u64(row.get(5)?),
        units: to_u64(row.get(6)?),
        succeeded: to_u64(row.get(7)?),
        failed: to_u64(row.get(8)?),
        cost_usd: row.get(9)?,
        tape_bytes: to_u64(row.get(10)?),
        budget: to_u64(row.get(11)?),
        reused: to_u64(row.get(12)?),
        is_cost_partial: row.get(13)?,
        is_active: row.get(14)?,
    }))
}

fn run_id(row: &Row<'_>, column: usize) -> Result<Option<RunId>, rusqlite::Error> {
    Ok(RunId::parse(&row.get::<_, String>(column)?))
}

/// The value in a column of JSON; `None` if it is NULL or damaged.
fn from_json<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
) -> Result<Option<T>, rusqlite::Error> {
    let json: Option<String> = row.get(column)?;
    Ok(json.and_then(|json| serde_json::from_str(&json).ok()))
}

fn insert(
    transaction: &Transaction<'_>,
    table: &str,
    values: &[&dyn ToSql],
) -> Result<(), rusqlite::Error> {
    let places = vec!["?"; values.len()].join(", ");
    let sql = format!("INSERT OR REPLACE INTO {table} VALUES ({places})");
    transaction.prepare_cached(&sql)?.execute(values)?;
    Ok(())
}

fn delete_run(transaction: &Transaction<'_>, run: &str) -> Result<(), rusqlite::Error> {
    for table in TABLES {
        transaction
            .prepare_cached(&format!("DELETE FROM {table} WHERE run = ?1"))?
            .execute([run])?;
    }
    Ok(())
}

fn write(transaction: &Transaction<'_>, rows: &RunIndexRows) -> Result<(), rusqlite::Error> {
    let run = rows.run.header.run.to_string();
    delete_run(transaction, &run)?;
    write_run(transaction, &run, rows)?;
    for (position, unit) in rows.units.iter().enumerate() {
        write_unit(transaction, &run, position, unit)?;
    }
    rows.attempts
        .iter()
        .try_for_each(|attempt| write_attempt(transaction, &run, attempt))?;
    rows.calls
        .iter()
        .try_for_each(|call| write_call(transaction, &run, call))?;
    rows.files
        .iter()
        .try_for_each(|file| prior_runs::write_file(transaction, &run, file))?;
    rows.artifacts
        .iter()
        .try_for_each(|artifact| artifacts::write_artifact(transaction, &run, artifact))
}

fn write_run(
    transaction: &Transaction<'_>,
    id: &str,
    rows: &RunIndexRows,
) -> Result<(), rusqlite::Error> {
    let run = &rows.run;
    insert(
        transaction,
        "runs",
        params![
            id,
            run.header.project,
            run.header.program,
            run.header.started_at.to_string(),
            run.header.scripted,
            to_i64(run.tape_bytes),
            to_i64(run.entries),
            to_i64(run.duration.0),
            run.outcome,
            to_i64(run.units),
            to_i64(run.succeeded),
            to_i64(run.failed),
            run.cost_usd,
            to_i64(run.lost),
            to_i64(run.budget),
            run.header.agent.as_ref().map(serde_name),
            run.has_unsaved_review,
            run.is_cost_partial,
            run.is_active,
            (!run.continuation.is_empty())
                .then(|| serde_json::to_string(&run.continuation).ok())
                .flatten(),
        ],
    )
}

fn write_unit(
    transaction: &Transaction<'_>,
    run: &str,
    position: usize,
    unit: &UnitIndexRow,
) -> Result<(), rusqlite::Error> {
    insert(
        transaction,
        "units",
        params![
            run,
            unit.unit,
            to_i64(position as u64),
            unit.connection,
            unit.adapter,
            unit.status,
            to_i64(unit.attempts),
            unit.unsaved,
            unit.detail,
            unit.unit_key,
            unit.review_remarks,
            unit.read_in.map(|run| run.to_string()),
        ],
    )
}

fn write_attempt(
    transaction: &Transaction<'_>,
    run: &str,
    attempt: &AttemptIndexRow,
) -> Result<(), rusqlite::Error> {
    let verdict = attempt.verdict.as_ref();
    let [input, output, cache_read, cache_write] = attempt.tokens.map(to_i64);
    insert(
        transaction,
        "attempts",
        params![
            run,
            attempt.unit,
            attempt.attempt,
            attempt.session,
            attempt.model,
            to_i64(attempt.started.0),
            attempt.ended.map(|ended| to_i64(ended.0)),
            verdict.map(|verdict| serde_name(&verdict.outcome)),
            verdict.map(|verdict| serde_name(&verdict.stop)),
            verdict.map(|verdict| serde_name(&verdict.cause)),
            verdict.map(|verdict| &verdict.reason),
            attempt.turns,
            attempt.calls,
            attempt.failures,
            attempt.denials,
            attempt.cost_usd,
            input,
            output,
            cache_read,
            cache_write,
        ],
    )?;
    for ModelSpending {
        model,
        cost_usd,
        tokens,
    } in &attempt.models
    {
        let [input, output] = [tokens.input, tokens.output].map(to_i64);
        let [cache_read, cache_write] = [tokens.cache_read, tokens.cache_write].map(to_i64);
        let (unit, attempt) = (&attempt.unit, attempt.attempt);
        insert(
            transaction,
            "model_usage",
            params![
                run,
                unit,
                attempt,
                model,
                input,
                output,
                cache_read,
                cache_write,
                cost_usd
            ],
        )?;
    }
    Ok(())
}

fn write_call(
    transaction: &Transaction<'_>,
    run: &str,
    call: &CallIndexRow,
) -> Result<(), rusqlite::Error> {
    insert(
        transaction,
        "tool_calls",
        params![
            run,
            call.unit,
            call.attempt,
            call.turn_number,
            call.tool_use_id,
            call.tool,
            call.status.as_str(),
            to_i64(call.seq.0),
            call.result_seq.map(|seq| to_i64(seq.0)),
            to_i64(call.times.started.0),
            call.times.duration.map(|duration| to_i64(duration.0)),
            call.input,
            call.output,
            call.output_bytes.map(to_i64),
            call.error,
            call.parent_tool_use_id,
            call.times.waited.map(|waited| to_i64(waited.0)),
            call.ruling.decision.as_str(),
            call.ruling.decided_by,
            call.ruling.reason,
        ],
    )
}

/// The name of a value on the tape.
fn serde_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        // A variant with fields.
        Ok(Value::Object(fields)) => fields
            .into_iter()
            .next()
            .map(|(name, _)| name)
            .unwrap_or_default(),
        _ => String::new(),
    }
}

/// SQLite integers are signed; larger values are saturated.
pub(super) fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn to_u64(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Removes a damaged index. The caller creates the new file before SQLite opens it, so that it is private.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str))
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = ScopedDir::open(parent)?;
    [""].iter()
        .chain(&DATABASE_SIDE_FILES)
        .try_for_each(|suffix| dir.remove(&format!("{name}{suffix}")).map(drop))?;
    dir.create_new(name).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::tape::note::VerdictCause;

    #[test]
    fn shrunk_index_gives_its_space_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.sqlite");
        let db = Db::open(&path).unwrap();
        let insert =
            "INSERT INTO runs VALUES ('r', hex(zeroblob(1000000)), 'p', 't', 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0,
            0, NULL, 0, 0, 0, NULL); PRAGMA wal_checkpoint(TRUNCATE)";
        db.connection.execute_batch(insert).unwrap();
        let size = || std::fs::metadata(&path).unwrap().len();
        let before = size();
        db.connection.execute_batch("DELETE FROM runs").unwrap();
        db.shrink().unwrap();
        assert!(size() < before / 4, "{before} {}", size());
        assert_eq!(
            std::fs::metadata(dir.path().join("db.sqlite-wal")).map_or(0, |log| log.len()),
            0
        );
    }

    #[test]
    fn names_leave_out_the_fields_of_a_value() {
        assert_eq!(serde_name(&VerdictCause::ToolFailures), "tool_failures");
        assert_eq!(
            serde_name(&VerdictCause::UsageLimit { resets_at: Some(1) }),
            "usage_limit"
        );
    }

    #[test]
    fn damaged_index_is_replaced_but_newer_index_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db.sqlite");
        std::fs::write(
            &path,
            "this file is not a database, despite its name".repeat(100),
        )
        .unwrap();
        let db = Db::open(&path).unwrap();
        assert_eq!(db.list().unwrap(), []);
        db.connection
            .pragma_update(None, "user_version", 99)
            .unwrap();
        drop(db);
        let error = Db::open(&path).unwrap_err();
        assert!(
            matches!(
                error,
                DbError::NewerSchema {
                    found: 99,
                    known: SCHEMA_VERSION,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_line().contains("reindex"));
    }

    #[test]
    fn database_of_another_program_is_left_unchanged() {
        for sql in [
            "CREATE TABLE runs (x)",
            "CREATE TABLE notes (x)",
            "CREATE TABLE runs (x); PRAGMA user_version = 2; CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
            "PRAGMA user_version = 1; CREATE VIEW units AS SELECT 1",
            "CREATE TABLE runs (x); PRAGMA user_version = 2",
            "CREATE TABLE units (run, x AS (run)); PRAGMA user_version = 9",
        ] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db.sqlite");
            Connection::open(&path).unwrap().execute_batch(sql).unwrap();
            let before = std::fs::read(&path).unwrap();
            let error = Db::open(&path).unwrap_err();
            assert!(matches!(error, DbError::Foreign { .. }), "{sql}: {error}");
            assert_eq!(std::fs::read(&path).unwrap(), before, "{sql}");
            assert_eq!(
                std::fs::read_dir(directory.path()).unwrap().count(),
                1,
                "{sql}"
            );
        }
    }

    #[test]
    fn index_with_an_altered_table_is_refused() {
        let alterations = [
            "ALTER TABLE runs ADD COLUMN x INTEGER AS (length(run))",
            "ALTER TABLE units ADD COLUMN x TEXT CHECK (x IS NULL)",
            "DROP INDEX units_by_key; CREATE INDEX units_by_key ON units (length(run))",
        ];
        for sql in alterations {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db.sqlite");
            drop(Db::open(&path).unwrap());
            Connection::open(&path).unwrap().execute_batch(sql).unwrap();
            let error = Db::open(&path).unwrap_err();
            assert!(matches!(error, DbError::Foreign { .. }), "{sql}: {error}");
        }
    }

    #[test]
    fn index_of_an_earlier_version_is_emptied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db.sqlite");
        let earlier = "CREATE TABLE runs (run TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
            CREATE TABLE units (run TEXT, unit TEXT); CREATE INDEX units_by_key ON units (run);
            INSERT INTO runs VALUES ('r'); PRAGMA user_version = 1";
        let other = Connection::open(&path).unwrap();
        other.execute_batch(earlier).unwrap();
        assert_eq!(Db::open(&path).unwrap().list().unwrap(), []);
        assert_eq!(
            version(&Db::open(&path).unwrap().connection).unwrap(),
            SCHEMA_VERSION
        );
        // A process that had it open sees the new tables.
        assert_eq!(
            other.query_row("SELECT count(budget) FROM runs", [], |row| row.get(0)),
            Ok(0)
        );
    }

    #[test]
    fn index_without_one_of_its_tables_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db.sqlite");
        drop(Db::open(&path).unwrap());
        Connection::open(&path)
            .unwrap()
            .execute_batch("DROP TABLE artifacts")
            .unwrap();
        let connection = Db::open(&path).unwrap().connection;
        connection
            .execute_batch("SELECT count(*) FROM artifacts")
            .unwrap();
    }

    #[test]
    fn index_behind_a_link_is_refused() {
        let (outside, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Connection::open(outside.path().join("db.sqlite"))
            .unwrap()
            .execute_batch("CREATE TABLE v (x)")
            .unwrap();
        let link = directory.path().join("db.sqlite");
        std::os::unix::fs::symlink(outside.path().join("db.sqlite"), &link).unwrap();
        std::os::unix::fs::symlink(outside.path(), directory.path().join("dir")).unwrap();
        for path in [link, directory.path().join("dir/new.sqlite")] {
            let error = Db::open(&path).unwrap_err();
            assert!(matches!(error, DbError::Failed { .. }), "{error}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn index_locked_by_another_writer_is_busy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db.sqlite");
        let mut holder = Db::open(&path).unwrap();
        let held = holder
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        let mut other = Db::open_with_timeout(&path, Duration::from_millis(1)).unwrap();
        assert_eq!(
            other.list().unwrap(),
            [],
            "a reader does not wait for the writer"
        );
        let error = other.retain(&[]).unwrap_err();
        assert!(matches!(error, DbError::Busy(_)), "{error}");
        held.rollback().unwrap();
        Db::open_with_timeout(&path, Duration::from_millis(1)).unwrap();
    }

    #[test]
    fn recreated_index_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db.sqlite");
        std::fs::write(
            &path,
            "this file is not a database, despite its name".repeat(100),
        )
        .unwrap();
        Db::open(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
