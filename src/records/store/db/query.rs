//! SQL of the user over the index: documented views on a connection that can do nothing but read them.
//!
//! The file is opened read-only, the connection is query-only, and an authorizer permits reads of the views alone, so
//! that the tables can change between versions. Time, rows and memory are bounded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rusqlite::{
    Batch, Connection, ErrorCode, OpenFlags,
    config::DbConfig,
    fallible_iterator::FallibleIterator as _,
    hooks::{AuthAction, AuthContext, Authorization},
    limits::Limit,
};
use serde_json::Value;
use uuid::Uuid;

use super::{Db, DbError, DbFault, views};
use ingestdeck_core::diagnostic::Diagnostic;

/// Name and definition of each view. The guide lists their columns.
pub(crate) const VIEWS: [(&str, &str); 8] = [
    (
        "runs",
        "SELECT run, project, agent, scripted, started_at, duration_ms, outcome, units, succeeded, budget, failed,
            cost_usd, cost_partial, entries, lost AS lost_lines FROM main.runs",
    ),
    (
        "units",
        "SELECT run, unit, connection, unit_key, adapter, position, status, attempts, unsaved, detail FROM main.units",
    ),
    (
        "attempts",
        "SELECT a.run, a.unit, u.connection, a.attempt, a.session, a.model,
            strftime('%Y-%m-%dT%H:%M:%fZ', r.started_at, format('%+.3f seconds', a.started_ms / 1000.0)) AS started_at,
            a.ended_ms - a.started_ms AS duration_ms, a.outcome, a.stop, a.cause, a.reason, a.turns, a.calls,
            a.failures, a.denials, a.cost_usd, a.input_tokens, a.output_tokens, a.cache_read AS cache_read_tokens,
            a.cache_write AS cache_write_tokens
         FROM main.attempts a JOIN main.runs r USING (run) LEFT JOIN main.units u USING (run, unit)",
    ),
    (
        "tool_calls",
        "SELECT c.run, c.unit, c.attempt, c.turn_number, c.tool_use_id, c.parent_tool_use_id, c.tool, c.status,
            strftime('%Y-%m-%dT%H:%M:%fZ', r.started_at, format('%+.3f seconds', c.started_ms / 1000.0)) AS started_at,
            c.duration_ms, c.waited_ms, c.input, c.output_bytes, c.error, c.decision, c.decided_by, c.decision_reason,
            c.seq
         FROM main.tool_calls c JOIN main.runs r USING (run)",
    ),
    (
        "costs",
        "SELECT m.run, m.unit, u.connection, m.attempt, m.model, m.cost_usd, m.input_tokens, m.output_tokens,
            m.cache_read AS cache_read_tokens, m.cache_write AS cache_write_tokens
         FROM main.model_usage m LEFT JOIN main.units u USING (run, unit)",
    ),
    (
        "agents",
        "SELECT session, model, status, run, unit AS task, attempts, completed, failed, last_error, last_started_at,
            last_error_type
         FROM (
            SELECT a.session, a.model,
                iif(a.ended_ms IS NOT NULL, a.outcome, iif(r.outcome IS NULL AND u.status IS NOT 'interrupted', 'running', 'interrupted')) AS status,
                a.run, a.unit, count(*) OVER every AS attempts,
                count(*) FILTER (WHERE a.outcome = 'succeeded') OVER every AS completed,
                count(*) FILTER (WHERE a.outcome = 'failed') OVER every AS failed,
                first_value(iif(a.outcome = 'failed', a.reason, NULL)) OVER (
                    PARTITION BY a.session ORDER BY a.outcome = 'failed' DESC, r.started_at DESC, a.started_ms DESC
                ) AS last_error,
                first_value(iif(a.outcome = 'failed', a.cause, NULL)) OVER (
                    PARTITION BY a.session ORDER BY a.outcome = 'failed' DESC, r.started_at DESC, a.started_ms DESC
                ) AS last_error_type,
                strftime('%Y-%m-%dT%H:%M:%fZ', r.started_at, format('%+.3f seconds', a.started_ms / 1000.0))
                    AS last_started_at,
                row_number() OVER (PARTITION BY a.session ORDER BY r.started_at DESC, a.started_ms DESC) AS age
            FROM main.attempts a JOIN main.runs r USING (run) LEFT JOIN main.units u USING (run, unit)
            WHERE a.session IS NOT NULL
            WINDOW every AS (PARTITION BY a.session)
         ) WHERE age = 1",
    ),
    ("files", "SELECT run, connection, adapter, path, sha256, bytes, state FROM main.raw_files"),
    (
        "artifacts",
        "SELECT run, connection, path AS raw_file, target, target_connection, key, change FROM main.artifacts
         WHERE path <> ''",
    ),
];

/// Table-valued functions that read only their argument.
const TABLE_FUNCTIONS: [&str; 2] = ["json_each", "json_tree"];
/// Functions that access something outside the database.
const DENIED_FUNCTIONS: [&str; 5] = [
    "load_extension",
    "fts3_tokenizer",
    "readfile",
    "writefile",
    "edit",
];
/// Largest value, row and statement in bytes.
const MAX_VALUE_BYTES: i32 = 1024 * 1024;
/// Maximum number of columns. A row of the largest values must fit in the memory, because the binding panics otherwise.
const MAX_COLUMNS: i32 = 100;
/// Memory of SQLite in this process, in bytes.
const MAX_MEMORY_BYTES: i64 = 128 * 1024 * 1024;
/// SQLite virtual machine steps between two checks of the deadline.
const PROGRESS_STEPS: i32 = 2_000;

/// Bounds of a query.
#[derive(Clone, Copy, Debug)]
pub struct QueryLimits {
    pub rows: u64,
    pub time: Duration,
}

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum IndexQueryError {
    #[error(transparent)]
    Index(#[from] DbError),
    /// SQLite rejected the statement.
    #[error("cannot run the query: {0}")]
    Invalid(String),
    /// It would do something other than read the views.
    #[error("cannot run the query: it may only read the views of the index")]
    Denied,
    /// The text has no statement, or several.
    #[error("cannot run the query: expected one statement, but got {0}")]
    StatementCount(&'static str),
    /// It did not end in time.
    #[error("the query was stopped after {} s", .0.as_secs())]
    TimedOut(Duration),
    /// It needs more memory than is permitted.
    #[error("the query was stopped: it needs more than {} MiB of memory", MAX_MEMORY_BYTES >> 20)]
    OutOfMemory,
}

impl Diagnostic for IndexQueryError {
    fn help(&self) -> Option<String> {
        const VIEWS_HELP: &str = "`ingestdeck help audit` lists the views and their columns";
        Some(match self {
            Self::Index(error) => return error.help(),
            Self::Invalid(_) | Self::Denied => VIEWS_HELP.into(),
            Self::StatementCount(_) => "write one SELECT statement".into(),
            Self::TimedOut(_) | Self::OutOfMemory => "select fewer rows, or join on `run`".into(),
        })
    }
}

impl Db {
    /// Runs one statement. `begin` receives the names of its columns, `take` each row until it returns false. Returns
    /// true if there are more rows than permitted.
    pub fn query(
        &self,
        sql: &str,
        limits: QueryLimits,
        begin: &mut dyn FnMut(Vec<String>),
        take: &mut dyn FnMut(Vec<Value>) -> bool,
    ) -> Result<bool, IndexQueryError> {
        let time = QueryTime {
            start: Instant::now(),
            limit: limits.time,
            excluded: Arc::default(),
        };
        let excluded = Arc::clone(&time.excluded);
        // A statement could give the name of a view to an expression of its `WITH`, but it cannot know this name.
        let prefix = Uuid::new_v4().to_string();
        let mut connection = self
            .read_only(&prefix, time)
            .map_err(|error| DbFault::from(error).into_db_error(&self.path))?;
        // Another program may be replacing the file.
        if super::version(&connection).ok() != Some(super::SCHEMA_VERSION) {
            return Err(DbError::Busy(self.path.clone()).into());
        }
        connection
            .authorizer(Some(move |context: AuthContext<'_>| {
                authorize(&prefix, context)
            }))
            .map_err(|error| DbFault::from(error).into_db_error(&self.path))?;
        let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::AuthorizationForStatementDenied) => IndexQueryError::Denied,
            Some(ErrorCode::OperationInterrupted) => IndexQueryError::TimedOut(limits.time),
            Some(ErrorCode::OutOfMemory) => IndexQueryError::OutOfMemory,
            Some(
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseCorrupt | ErrorCode::SystemIoFailure,
            ) => DbFault::from(error).into_db_error(&self.path).into(),
            _ => IndexQueryError::Invalid(match error {
                rusqlite::Error::SqlInputError { msg, offset, .. } => {
                    format!("{msg} at offset {offset}")
                }
                rusqlite::Error::SqliteFailure(_, Some(message)) => message,
                other => other.to_string(),
            }),
        };
        let mut statements = Batch::new(&connection, sql);
        let Some(mut statement) = statements.next().map_err(failed)? else {
            return Err(IndexQueryError::StatementCount("none"));
        };
        // A statement without columns is not a query.
        if !statement.readonly() || statement.column_count() == 0 {
            return Err(IndexQueryError::Denied);
        }
        // A statement that cannot be compiled is also one too many.
        if !matches!(statements.next(), Ok(None)) {
            return Err(IndexQueryError::StatementCount("several"));
        }
        if statement.parameter_count() > 0 {
            return Err(IndexQueryError::Invalid(
                "it has parameters, which have no values".into(),
            ));
        }
        let names = unique_names(statement.column_names());
        begin(names);
        let mut rows = statement.query([]).map_err(failed)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            if count == limits.rows {
                return Ok(true);
            }
            count += 1;
            let values = views::json_values(row).map_err(failed)?;
            // The limit does not include the time of a slow reader.
            let before = Instant::now();
            let is_open = take(values);
            excluded.fetch_add(
                u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX),
                Relaxed,
            );
            if !is_open {
                break;
            }
        }
        Ok(false)
    }

    /// Another connection to the index, while this one keeps its log alive.
    fn read_only(&self, prefix: &str, time: QueryTime) -> Result<Connection, rusqlite::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(super::BUSY_TIMEOUT)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "hard_heap_limit", MAX_MEMORY_BYTES)?;
        for (name, select) in VIEWS {
            connection.execute_batch(&format!(
                "CREATE TEMP VIEW \"{prefix}{name}\" AS {select};
                 CREATE TEMP VIEW {name} AS SELECT * FROM temp.\"{prefix}{name}\""
            ))?;
        }
        connection.pragma_update(None, "query_only", true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        for (limit, value) in [
            (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
            (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_VALUE_BYTES),
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
            (Limit::SQLITE_LIMIT_COLUMN, MAX_COLUMNS),
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 500),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
            (Limit::SQLITE_LIMIT_VDBE_OP, 250_000),
        ] {
            connection.set_limit(limit, value)?;
        }
        connection.progress_handler(PROGRESS_STEPS, Some(move || time.is_over()))?;
        Ok(connection)
    }
}

/// The time of a query, without that of its reader.
struct QueryTime {
    start: Instant,
    limit: Duration,
    /// Time of the reader in microseconds.
    excluded: Arc<AtomicU64>,
}

impl QueryTime {
    fn is_over(&self) -> bool {
        self.start
            .elapsed()
            .saturating_sub(Duration::from_micros(self.excluded.load(Relaxed)))
            >= self.limit
    }
}

/// Permits the views, of which those whose name begins with `prefix` read the tables.
fn authorize(prefix: &str, context: AuthContext<'_>) -> Authorization {
    let is_permitted = match context.action {
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => !DENIED_FUNCTIONS
            .iter()
            .any(|denied| denied.eq_ignore_ascii_case(function_name)),
        // Values of the tables are read by the views only; without a column, rows are counted.
        AuthAction::Read {
            table_name,
            column_name,
        } => {
            !table_name.starts_with("sqlite_")
                && (context.database_name != Some("main")
                    || column_name.is_empty()
                    || context
                        .accessor
                        .is_some_and(|view| view.starts_with(prefix))
                    || TABLE_FUNCTIONS.contains(&table_name))
        }
        _ => false,
    };
    if is_permitted {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

/// Adds a number to names that occur again, because the keys of an object are unique.
fn unique_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for name in names {
        let number = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.to_owned())
            .chain(number)
            .find(|name| !unique.contains(name));
        unique.extend(free);
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueryLimits = QueryLimits {
        rows: 10,
        time: Duration::from_secs(60),
    };

    /// Names, rows, and whether there are more rows.
    type QueryResult = (Vec<String>, Vec<Vec<Value>>, bool);

    struct Index {
        _directory: tempfile::TempDir,
        db: Db,
    }

    impl Index {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let db = Db::open(&directory.path().join("db.sqlite")).unwrap();
            db.connection
                .execute_batch(
                    "INSERT INTO runs VALUES ('r1', 'p', 'ingestdeck', '2026-01-31T23:59:59.5Z', 0, 1, 2, 3, NULL, 1, 1, 0,
                        0.5, 0, 0, 'claude', 0, 0, 0, NULL);
                     INSERT INTO attempts VALUES ('r1', 'u', 1, 's', 'm', 1600, 2000, 'succeeded', 'natural', NULL, NULL,
                        1, 1, 0, 0, 0.5, 1, 2, 3, 4)",
                )
                .unwrap();
            Self {
                _directory: directory,
                db,
            }
        }

        fn query(&self, sql: &str, limits: QueryLimits) -> Result<QueryResult, IndexQueryError> {
            let (mut names, mut rows) = (Vec::new(), Vec::new());
            let more = self
                .db
                .query(sql, limits, &mut |found| names = found, &mut |row| {
                    rows.push(row);
                    true
                })?;
            Ok((names, rows, more))
        }
    }

    #[test]
    fn views_are_readable_in_any_combination() {
        let index = Index::new();
        for (view, _) in VIEWS {
            for sql in [
                format!("SELECT * FROM {view}"),
                format!("SELECT count(*) FROM {view}"),
                format!(
                    "WITH x AS (SELECT run FROM {view}) SELECT x.run FROM x JOIN runs USING (run) ORDER BY 1"
                ),
                format!("SELECT run FROM {view} UNION SELECT run FROM runs"),
                format!(
                    "SELECT (SELECT max(run) FROM {view} AS v WHERE v.run = r.run) FROM runs r"
                ),
            ] {
                index
                    .query(&sql, LIMITS)
                    .unwrap_or_else(|error| panic!("{sql}: {error}"));
            }
        }
        let (names, rows, more) = index
            .query("SELECT run, run, started_at FROM attempts", LIMITS)
            .unwrap();
        assert_eq!(
            (names.join(" "), more),
            ("run run_2 started_at".to_owned(), false)
        );
        assert_eq!(rows[0][2], "2026-02-01T00:00:01.100Z");
        let (_, rows, _) = index
            .query("SELECT value FROM json_each('[1,2]')", LIMITS)
            .unwrap();
        assert_eq!(rows, [[Value::from(1)], [Value::from(2)]]);
    }

    #[test]
    fn agents_have_their_last_task_counts_and_error() {
        let index = Index::new();
        index
            .db
            .connection
            .execute_batch(
                "INSERT INTO attempts VALUES ('r1', 'u', 2, 's', 'm', 3000, 4000, 'failed', 'error', 'x', 'no page',
                    1, 1, 0, 0, 0.5, 1, 2, 3, 4);
                 INSERT INTO attempts VALUES ('r1', 'w', 1, 's', 'n', 5000, NULL, NULL, NULL, NULL, NULL,
                    1, 1, 0, 0, 0.5, 1, 2, 3, 4);
                 INSERT INTO attempts VALUES ('r1', 'v', 1, NULL, 'n', 5000, NULL, NULL, NULL, NULL, NULL,
                    1, 1, 0, 0, 0.5, 1, 2, 3, 4)",
            )
            .unwrap();
        let sql = "SELECT session, model, status, task, attempts, completed, failed, last_error, last_error_type FROM agents";
        let (_, rows, _) = index.query(sql, LIMITS).unwrap();
        let expected = ["s", "n", "running", "w"]
            .map(|text| Value::from(text.to_owned()))
            .to_vec();
        let counts = [3, 1, 1].map(Value::from);
        let error = Value::from("no page".to_owned());
        assert_eq!(
            rows,
            [[
                &expected[..],
                &counts,
                &[error, Value::from("x".to_owned())]
            ]
            .concat()]
        );

        index
            .db
            .connection
            .execute_batch("DELETE FROM attempts WHERE unit = 'u'; UPDATE runs SET outcome = 'x'")
            .unwrap();
        let (_, rows, _) = index
            .query(
                "SELECT status, attempts, completed, failed FROM agents",
                LIMITS,
            )
            .unwrap();
        assert_eq!(
            rows,
            [[Value::from("interrupted"), 1.into(), 0.into(), 0.into()]]
        );
    }

    #[test]
    fn guide_lists_exactly_the_columns_of_the_views() {
        let guide = include_str!("../../../../assets/guide/audit.md");
        let index = Index::new();
        for (view, _) in VIEWS {
            let (names, _, _) = index
                .query(&format!("SELECT * FROM {view}"), LIMITS)
                .unwrap();
            let row = format!("| `{view}` | `{}` |\n", names.join("`, `"));
            assert!(guide.contains(&row), "{row}");
        }
    }

    #[test]
    fn statements_that_do_more_than_read_are_denied() {
        let index = Index::new();
        let other = tempfile::tempdir().unwrap();
        let attach = format!("ATTACH '{}/x.db' AS x", other.path().display());
        let vacuum = format!("VACUUM INTO '{}/y.db'", other.path().display());
        for sql in [
            "INSERT INTO runs VALUES (1)",
            "DELETE FROM main.runs",
            "UPDATE main.runs SET run = 'x'",
            "DROP VIEW runs",
            "CREATE TABLE t (x)",
            "CREATE TEMP TABLE t (x)",
            "CREATE TEMP VIEW v AS SELECT 1",
            "PRAGMA query_only = 0",
            "PRAGMA hard_heap_limit = 0",
            "SELECT * FROM pragma_table_info('runs')",
            "SELECT * FROM main.runs",
            "SELECT output FROM main.tool_calls",
            "SELECT * FROM main.sqlite_schema",
            "SELECT sql FROM sqlite_temp_schema",
            "WITH runs AS (SELECT output FROM main.tool_calls) SELECT * FROM runs",
            "WITH runs AS (SELECT sql FROM main.sqlite_schema) SELECT * FROM runs",
            "SELECT * FROM (SELECT output FROM main.tool_calls) AS runs",
            "SELECT load_extension('x')",
            "BEGIN IMMEDIATE",
            "WITH x AS (SELECT 1) DELETE FROM main.runs",
            "REINDEX",
            "ANALYZE",
            &attach,
            &vacuum,
        ] {
            let error = index.query(sql, LIMITS).unwrap_err();
            let is_refused = matches!(error, IndexQueryError::Denied | IndexQueryError::Invalid(_));
            assert!(is_refused, "{sql}: {error}");
        }
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
        assert_eq!(
            index.query("SELECT count(*) FROM runs", LIMITS).unwrap().1,
            [[Value::from(1)]]
        );
    }

    #[test]
    fn excess_of_time_rows_or_size_ends_the_query() {
        let index = Index::new();
        let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)";
        let (_, rows, more) = index
            .query(&format!("{endless} SELECT x FROM n"), LIMITS)
            .unwrap();
        assert_eq!((rows.len(), more), (10, true));
        let short = QueryLimits {
            time: Duration::from_millis(20),
            ..LIMITS
        };
        let error = index
            .query(&format!("{endless} SELECT count(*) FROM n"), short)
            .unwrap_err();
        assert!(matches!(error, IndexQueryError::TimedOut(_)), "{error}");
        let error = index
            .query("SELECT zeroblob(100000000)", LIMITS)
            .unwrap_err();
        assert!(error.to_string().contains("too big"), "{error}");
        let wide = |columns| format!("SELECT {}", vec!["zeroblob(1000000)"; columns].join(", "));
        let error = index.query(&wide(140), LIMITS).unwrap_err();
        assert!(error.to_string().contains("too many columns"), "{error}");
        index.query(&wide(100), LIMITS).unwrap();
        index.query("SELECT * FROM runs", LIMITS).unwrap();
    }

    #[test]
    fn time_of_the_reader_is_not_counted() {
        let time = |excluded| QueryTime {
            start: Instant::now(),
            limit: Duration::ZERO,
            excluded: Arc::new(AtomicU64::new(excluded)),
        };
        assert!(time(0).is_over());
        let slow = QueryTime {
            limit: Duration::from_nanos(1),
            ..time(u64::MAX)
        };
        assert!(!slow.is_over());
    }

    #[test]
    fn malformed_query_is_reported_with_its_cause() {
        let index = Index::new();
        for (sql, expected) in [
            ("", "expected one statement, but got none"),
            ("-- nothing", "but got none"),
            ("SELECT 1; SELECT 2", "but got several"),
            ("SELECT 1; garbage", "but got several"),
            ("SELECT nope FROM runs", "no such column: nope"),
            ("SELECT * FROM nowhere", "no such table: nowhere"),
            ("SELEC 1", "syntax error"),
            ("SELECT ?1", "it has parameters"),
        ] {
            let error = index.query(sql, LIMITS).unwrap_err().to_string();
            assert!(error.contains(expected), "{sql}: {error}");
        }
        assert!(index.query("SELECT 1;  -- done\n", LIMITS).is_ok());
    }
}
