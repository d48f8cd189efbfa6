//! A connection that can only read and creates no files, and one statement on it.
//!
//! Four independent protections, each sufficient alone: the file is opened read-only, the connection is query-only, an
//! authorizer denies every action except reads, and SQLite must report the statement as read-only.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::Arc,
    time::Instant,
};

use parking_lot::Mutex;

use rusqlite::{
    Batch, Connection, ErrorCode, OpenFlags,
    config::DbConfig,
    fallible_iterator::FallibleIterator as _,
    hooks::{AuthAction, AuthContext, Authorization},
    limits::Limit,
    types::ValueRef,
};
use serde::{Deserialize, Serialize};

use super::{QueryError, SqlCell, catalog, warehouse::StatementAnswer};
use ingestdeck_core::text;
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Memory limit of SQLite in MiB. Temporary tables and sorts count, because they are kept in memory.
pub(super) const SQLITE_MEMORY_MIB: u64 = 256;

/// Bytes of the header of a database file that are read.
const HEADER_BYTES: u64 = 100;
/// Largest value, row and statement in bytes.
const MAX_VALUE_BYTES: i32 = 1024 * 1024;
/// SQLite virtual machine steps between two checks of the deadline.
const PROGRESS_STEPS: i32 = 2_000;

/// How much of the result of a statement is returned.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RowLimits {
    pub rows: usize,
    /// Characters of all cells together.
    pub chars: usize,
}

/// Result of a statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryRows {
    /// Names of the columns.
    pub headers: Vec<String>,
    /// Rows, up to the limits.
    pub rows: Vec<Vec<SqlCell>>,
    /// More rows exist, or may exist.
    pub truncated: bool,
}

/// How SQLite opens a file so that it reads the latest commit and creates nothing next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileAccess {
    /// The default. For files with a rollback journal.
    Normal,
    /// Without locks. For a file in WAL mode without a log: opening one would create a log and an index.
    Immutable,
    /// Opens the shared index of the log read-only. If no writer uses the index, it is left from a crash; SQLite then
    /// builds one in memory instead of rebuilding it.
    ReadOnlyIndex,
    /// Keeps the index of the log in memory. For a log without a shared index, which no writer can have open.
    PrivateIndex,
}

impl FileAccess {
    /// Inspects the regular file `path` and SQLite's files next to it. It opens no other file type, because opening a
    /// named pipe would block.
    fn for_file(path: &Path) -> Result<Self, QueryError> {
        let unreadable = |cause: io::Error| QueryError::Unreadable(cause.to_string());
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(directory), Some(name)) = (path.parent(), name) else {
            return Err(QueryError::Unreadable(
                "its name is not UTF-8 text; rename it".into(),
            ));
        };
        let directory = ScopedDir::open(directory).map_err(unreadable)?;
        let (file, size) = directory.open_entry(name).map_err(unreadable)?;
        let has = |suffix: &str| {
            let name = format!("{name}{suffix}");
            match directory.kind(&name).map_err(unreadable)? {
                None => Ok(false),
                Some(FileKind::File) => Ok(true),
                Some(_) => {
                    let name = name.escape_debug();
                    Err(QueryError::Unreadable(format!(
                        "`{name}` next to it is not a regular file; remove it"
                    )))
                }
            }
        };
        let mut header = Vec::new();
        file.take(HEADER_BYTES)
            .read_to_end(&mut header)
            .map_err(unreadable)?;
        let is_wal_mode = header
            .get(18..20)
            .is_some_and(|versions| versions.contains(&2));
        has("-journal")?;
        Ok(match (has("-wal")?, has("-shm")?) {
            // SQLite deletes a log next to an empty file.
            _ if size == 0 => Self::Immutable,
            (false, _) if is_wal_mode => Self::Immutable,
            (false, _) => Self::Normal,
            (true, true) => Self::ReadOnlyIndex,
            (true, false) => Self::PrivateIndex,
        })
    }
}

/// Opens the database for reading; every statement on it is interrupted at `deadline`.
pub(super) fn open(path: &Path, deadline: Instant) -> Result<Connection, QueryError> {
    let access = FileAccess::for_file(path)?;
    let mut connection = connect(path, access, deadline)?;
    check_names(&connection)?;
    connection.authorizer(Some(authorize))?;
    Ok(connection)
}

fn connect(path: &Path, access: FileAccess, deadline: Instant) -> Result<Connection, QueryError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let with_option = |option: &str| {
        Connection::open_with_flags(uri(path, option), flags | OpenFlags::SQLITE_OPEN_URI)
    };
    let mut connection = match access {
        FileAccess::Normal => Connection::open_with_flags(path, flags),
        FileAccess::Immutable => with_option("immutable=1"),
        FileAccess::ReadOnlyIndex => with_option("readonly_shm=1"),
        FileAccess::PrivateIndex => Connection::open_with_flags_and_vfs(path, flags, c"unix-none"),
    }?;
    if access == FileAccess::PrivateIndex {
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    connection.busy_timeout(std::time::Duration::from_secs(2))?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_VALUE_BYTES),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
        // A lower limit would reject databases with wide tables.
        (Limit::SQLITE_LIMIT_COLUMN, 2_000),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 500),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 1_000),
        (Limit::SQLITE_LIMIT_VDBE_OP, 250_000),
    ] {
        connection.set_limit(limit, value)?;
    }
    connection.progress_handler(PROGRESS_STEPS, Some(move || Instant::now() >= deadline))?;
    Ok(connection)
}

/// `path` as a SQLite URI with `option`.
fn uri(path: &Path, option: &str) -> String {
    let path = text::percent_encoded(path.as_os_str().as_bytes());
    format!("file:{path}?{option}")
}

/// Rejects names that are not UTF-8, because the driver panics on them.
fn check_names(connection: &Connection) -> Result<(), QueryError> {
    let mut statement =
        connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for index in 0..4 {
            if let ValueRef::Text(bytes) | ValueRef::Blob(bytes) = row.get_ref(index)?
                && std::str::from_utf8(bytes).is_err()
            {
                return Err(QueryError::InvalidNames);
            }
        }
    }
    Ok(())
}

fn authorize(context: AuthContext<'_>) -> Authorization {
    /// Pragmas that describe a table and cannot change anything.
    const ALLOWED_PRAGMAS: [&str; 6] = [
        "table_info",
        "table_xinfo",
        "table_list",
        "foreign_key_list",
        "index_list",
        "index_info",
    ];
    /// Functions that access something outside the database.
    const DENIED_FUNCTIONS: [&str; 5] = [
        "load_extension",
        "fts3_tokenizer",
        "readfile",
        "writefile",
        "edit",
    ];
    let among =
        |names: &[&str], name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    let is_read = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => !among(&DENIED_FUNCTIONS, function_name),
        AuthAction::Pragma { pragma_name, .. } => among(&ALLOWED_PRAGMAS, pragma_name),
        _ => false,
    };
    if is_read {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

/// Runs `sql` as [`query`] does. Returns the tables and views that it reads as well, and the columns of them that it reads.
pub(super) fn query_with_tables(
    mut connection: Connection,
    sql: &str,
    limits: RowLimits,
) -> Result<StatementAnswer, QueryError> {
    /// How SQLite reports the number of a row, which is not a column.
    const ROW_NUMBER: &str = "ROWID";
    // Table-valued functions are reported, too. The time limit may be over after the statement.
    let known = catalog::list_tables(&connection)?.into_iter();
    let known: BTreeMap<String, String> = known
        .map(|(name, _)| (name.to_ascii_lowercase(), name))
        .collect();
    let read: Arc<Mutex<BTreeSet<(String, String)>>> = Arc::default();
    let noted = Arc::clone(&read);
    connection.authorizer(Some(move |context: AuthContext<'_>| {
        if let AuthAction::Read {
            table_name,
            column_name,
        } = context.action
        {
            let column = (table_name.to_owned(), column_name.to_owned());
            noted.lock().insert(column);
        }
        authorize(context)
    }))?;
    let rows = query(&connection, sql, limits)?;
    // Without a column, the name is that of the statement.
    let read = std::mem::take(&mut *read.lock()).into_iter();
    let of_tables = read.filter_map(|(table, column)| {
        let table = known.get(&table.to_ascii_lowercase())?;
        Some((table.clone(), column))
    });
    let mut columns: BTreeSet<(String, String)> = of_tables.collect();
    let tables: BTreeSet<String> = columns.iter().map(|(table, _)| table.clone()).collect();
    columns.retain(|(_, column)| !column.is_empty() && column != ROW_NUMBER);
    Ok(StatementAnswer {
        rows,
        tables: tables.into_iter().collect(),
        columns: columns.into_iter().collect(),
    })
}

/// Runs `sql`, which must be one read-only statement, and returns its rows.
pub(super) fn query(
    connection: &Connection,
    sql: &str,
    limits: RowLimits,
) -> Result<QueryRows, QueryError> {
    let mut batch = Batch::new(connection, sql);
    let mut statement = batch.next()?.ok_or(QueryError::EmptyStatement)?;
    if batch.next()?.is_some() {
        return Err(QueryError::MultipleStatements);
    }
    // A statement without columns (such as REINDEX without an index) is not a query.
    if !statement.readonly() || statement.column_count() == 0 {
        return Err(QueryError::NotReadOnly);
    }
    let headers: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let widest = SqlCell::max_chars(limits.chars, headers.len());
    let mut found = QueryRows {
        headers,
        ..QueryRows::default()
    };
    let mut used: usize = 0;
    let mut rows = statement.query([])?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(found),
            // The requested rows are complete; finding out whether more exist took too long.
            Err(_) if found.rows.len() == limits.rows => {
                found.truncated = true;
                return Ok(found);
            }
            Err(error) => return Err(error.into()),
        };
        if found.rows.len() == limits.rows {
            found.truncated = true;
            return Ok(found);
        }
        let cells = (0..found.headers.len())
            .map(|index| Ok(SqlCell::from_value(row.get_ref(index)?, widest)));
        let cells = cells.collect::<Result<Vec<_>, rusqlite::Error>>()?;
        used += cells.iter().map(SqlCell::width).sum::<usize>();
        if used > limits.chars && !found.rows.is_empty() {
            found.truncated = true;
            return Ok(found);
        }
        found.rows.push(cells);
    }
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        let extended_code = error.sqlite_error().map(|error| error.extended_code);
        match (code, error) {
            (Some(ErrorCode::OperationInterrupted), _) => Self::TimedOut(0),
            // The plain code is about the statement, the extended codes are about the file.
            (Some(ErrorCode::ReadOnly), _)
                if extended_code != Some(rusqlite::ffi::SQLITE_READONLY) =>
            {
                Self::Unreadable(
                    "its last change was interrupted; open it once with the program that writes it"
                        .into(),
                )
            }
            (Some(ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly), _) => {
                Self::NotReadOnly
            }
            (Some(ErrorCode::TooBig), _) => Self::ValueTooLarge(MAX_VALUE_BYTES),
            (Some(ErrorCode::OutOfMemory), _) => Self::OutOfMemory(SQLITE_MEMORY_MIB),
            (_, rusqlite::Error::SqlInputError { msg, offset, .. }) => {
                Self::Reported(format!("{msg} at offset {offset}"))
            }
            (_, rusqlite::Error::SqliteFailure(_, Some(message))) => Self::Reported(message),
            (_, error) => Self::Reported(error.to_string()),
        }
    }
}
