//! A connection that can only read, and one statement on it.
//!
//! Four locks, each enough alone: the file is opened read-only, the connection is query-only, an authorizer refuses every
//! action but reading, and the statement itself must say that it writes nothing.

use std::{path::Path, time::Instant};

use rusqlite::{
    Batch, Connection, ErrorCode, OpenFlags,
    config::DbConfig,
    fallible_iterator::FallibleIterator as _,
    hooks::{AuthAction, AuthContext, Authorization},
    limits::Limit,
    types::ValueRef,
};

use super::{Cell, QueryError};

/// Largest value, row and statement in bytes.
const VALUE: i32 = 1024 * 1024;
/// Steps of SQLite between two looks at the clock.
const STEPS: i32 = 2_000;

/// What one statement may yield.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Rows.
    pub(crate) rows: usize,
    /// Characters of all cells together.
    pub(crate) chars: usize,
}

/// What a statement yielded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows {
    /// Names of the columns.
    pub(crate) headers: Vec<String>,
    /// Rows, as many as were allowed.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// There are more, or may be.
    pub(crate) truncated: bool,
}

/// Opens the database for reading; every statement on it is interrupted at `deadline`.
pub(super) fn open(path: &Path, deadline: Instant) -> Result<Connection, QueryError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(2))?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, VALUE),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, VALUE),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
    ] {
        connection.set_limit(limit, value)?;
    }
    connection.progress_handler(STEPS, Some(move || Instant::now() >= deadline))?;
    readable_names(&connection)?;
    connection.authorizer(Some(authorize))?;
    Ok(connection)
}

/// Names that are no text would be a panic inside the driver later.
fn readable_names(connection: &Connection) -> Result<(), QueryError> {
    let mut statement = connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for index in 0..4 {
            if let ValueRef::Text(bytes) | ValueRef::Blob(bytes) = row.get_ref(index)?
                && std::str::from_utf8(bytes).is_err()
            {
                return Err(QueryError::Names);
            }
        }
    }
    Ok(())
}

fn authorize(context: AuthContext<'_>) -> Authorization {
    /// Pragmas that describe a table and can change nothing.
    const DESCRIBING: [&str; 6] =
        ["table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info"];
    /// Functions that reach beyond the database.
    const REACHING: [&str; 5] = ["load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"];
    let among = |names: &[&str], name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    let is_read = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => !among(&REACHING, function_name),
        AuthAction::Pragma { pragma_name, .. } => among(&DESCRIBING, pragma_name),
        _ => false,
    };
    if is_read { Authorization::Allow } else { Authorization::Deny }
}

/// The rows of `sql`, which must be one statement that reads.
pub(crate) fn query(connection: &Connection, sql: &str, most: Most) -> Result<Rows, QueryError> {
    let mut batch = Batch::new(connection, sql);
    let mut statement = batch.next()?.ok_or(QueryError::Nothing)?;
    if batch.next()?.is_some() {
        return Err(QueryError::Several);
    }
    // What yields no columns (REINDEX without an index, for one) is no question.
    if !statement.readonly() || statement.column_count() == 0 {
        return Err(QueryError::NotReading);
    }
    let headers: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let widest = Cell::widest(most.chars, headers.len());
    let mut found = Rows { headers, ..Rows::default() };
    let mut used: usize = 0;
    let mut rows = statement.query([])?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(found),
            // The rows that were asked for are there; whether more exist was not worth the time.
            Err(_) if found.rows.len() == most.rows => {
                found.truncated = true;
                return Ok(found);
            }
            Err(error) => return Err(error.into()),
        };
        if found.rows.len() == most.rows {
            found.truncated = true;
            return Ok(found);
        }
        let cells = (0..found.headers.len()).map(|index| Ok(Cell::of(row.get_ref(index)?, widest)));
        let cells = cells.collect::<Result<Vec<_>, rusqlite::Error>>()?;
        used += cells.iter().map(Cell::width).sum::<usize>();
        if used > most.chars && !found.rows.is_empty() {
            found.truncated = true;
            return Ok(found);
        }
        found.rows.push(cells);
    }
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        match (code, error) {
            (Some(ErrorCode::OperationInterrupted), _) => Self::TooSlow(0),
            (Some(ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly), _) => Self::NotReading,
            (Some(ErrorCode::TooBig), _) => Self::TooLarge(VALUE),
            (_, rusqlite::Error::SqlInputError { msg, offset, .. }) => {
                Self::Sqlite(format!("{msg} at offset {offset}"))
            }
            (_, rusqlite::Error::SqliteFailure(_, Some(message))) => Self::Sqlite(message),
            (_, error) => Self::Sqlite(error.to_string()),
        }
    }
}
