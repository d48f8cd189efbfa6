//! The SQLite file of a connection: where it is, and reading it without changing it.
//!
//! A file or a statement may be hostile, so SQLite never runs in this process: [`pool`] bounds how many statements run
//! concurrently, [`process`] starts a child process for each and kills it at its time limit, and [`worker`] is what the
//! child does after it has limited itself. It must not know about tools.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use ingestdeck_core::diagnostic::Diagnostic;
use ingestdeck_os::scoped_dir::ScopedDir;

mod catalog;
mod cell;
pub mod ktx_history;
mod pool;
mod process;
mod read_only_connection;
mod warehouse;
mod worker;

pub use catalog::{ColumnInfo, ForeignKey, TableInfo};
pub(crate) use catalog::{LookupTarget, TableLookup};
pub use cell::SqlCell;
pub use ktx_history::{DamagedRows, KTX_DATABASE, KtxArtifact, KtxFile, KtxHistory};
pub(crate) use pool::STATEMENT_TIMEOUT;
pub use pool::SqlWorkers;
pub use read_only_connection::{QueryRows, RowLimits};
pub(crate) use warehouse::database_name;
pub use warehouse::{
    CatalogProgress, ServerInfo, StatementAnswer, StatementKind, WAREHOUSE_WORKER, Warehouse,
    WarehouseDriver, WarehouseSettings, WarehouseStatement,
};
pub use worker::{SUBCOMMAND as SQL_WORKER, confine_process, run as run_sql_worker};

/// A database that can be queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// Absolute path of a SQLite file, without links.
    Sqlite(PathBuf),
    /// A warehouse that an ADBC driver reaches.
    Warehouse(Arc<Warehouse>),
}

impl Database {
    /// Time limit of one statement of an agent.
    pub(crate) fn query_timeout(&self) -> Duration {
        match self {
            Self::Sqlite(_) => STATEMENT_TIMEOUT,
            Self::Warehouse(warehouse) => warehouse.query_timeout,
        }
    }
}

/// The driver of connections that are a SQLite file.
pub(crate) const DRIVER: &str = "sqlite";

/// Time limit for reading everything that KTX recorded.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a database was not read. Reads as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum QueryError {
    /// The statement would do more than read.
    #[error("not allowed: only reading is; send one SELECT or WITH statement")]
    NotReadOnly,
    /// The text contains more than one statement.
    #[error("it holds more than one statement; send one SELECT or WITH statement")]
    MultipleStatements,
    /// The text contains no statement.
    #[error("it holds no statement; send one SELECT or WITH statement")]
    EmptyStatement,
    /// The statement ran longer than this many seconds.
    #[error("stopped after {0} s; ask for less, with a WHERE or a smaller table")]
    TimedOut(u64),
    /// The statement needed more memory than this many MiB.
    #[error(
        "stopped because it needs more than {0} MiB of memory; ask for less, with a WHERE or a smaller table"
    )]
    OutOfMemory(u64),
    /// A value is larger than this many bytes.
    #[error("a value is larger than {0} bytes; leave its column out")]
    ValueTooLarge(i32),
    /// The whole answer is larger than this many bytes.
    #[error("the answer is larger than {0} bytes; ask for fewer tables or columns")]
    AnswerTooLarge(u64),
    /// The names in the database cannot be shown.
    #[error("the names of its tables and columns are not UTF-8 text, so it cannot be queried")]
    InvalidNames,
    /// The file cannot be opened, or must not be.
    #[error("unable to open the database file: {0}")]
    Unreadable(String),
    /// An error of the database, in its own words.
    #[error("{0}")]
    Reported(String),
    /// The statement cannot be parsed, with the reason.
    #[error("it cannot be parsed: {0}; send one SELECT or WITH statement")]
    Unparsed(String),
    /// The statement uses something that reads or writes outside of the database.
    #[error("not allowed: {0}; leave it out")]
    Refused(String),
    /// The warehouse cannot be reached, in the words of its driver.
    #[error("unable to connect: {0}")]
    Unreachable(String),
    /// There is no library of this ADBC driver.
    #[error("there is no ADBC driver `{driver}`")]
    MissingDriver {
        /// Its name for `dbc install`.
        driver: String,
    },
    /// The library of an ADBC driver cannot be loaded.
    #[error("the ADBC driver `{driver}` cannot be loaded: {why}")]
    InvalidDriver {
        /// Its name for `dbc install`.
        driver: String,
        /// The reason of the system.
        why: String,
    },
    /// A secret that the connection names is missing; contains its place.
    #[error("{0} contains no secret")]
    MissingSecret(String),
    /// The connection lacks this key.
    #[error("its `{0}` is missing")]
    MissingKey(String),
    /// A key of the connection is invalid, with the reason.
    #[error("its `{0}` cannot be used: {1}")]
    InvalidKey(String, String),
    /// The attempt that sent the statement has ended.
    #[error("stopped together with its attempt")]
    Stopped,
    /// The queue is full, or the statement waited longer than the limit.
    #[error(
        "too many statements are waiting for the databases; send fewer at a time, then send this one again"
    )]
    QueueFull,
    /// The worker process did not start or did not answer. The text continues the sentence `the SQL worker process …`.
    #[error("the SQL worker process {0}")]
    WorkerFailed(String),
}

impl Diagnostic for QueryError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::MissingDriver { driver } => format!(
                "install it with `dbc install {driver}`, or name its library in warehouse.drivers of your settings"
            ),
            Self::InvalidDriver { driver, .. } => {
                format!("install it for this system with `dbc install {driver}`")
            }
            Self::MissingSecret(_) => "set it, or correct the connection in ktx.yaml".into(),
            Self::MissingKey(_) | Self::InvalidKey(..) => {
                "correct the connection in ktx.yaml".into()
            }
            Self::Unreachable(_) => {
                "correct its address and login, or start the server; then run `ingestdeck doctor`"
                    .into()
            }
            _ => return None,
        })
    }
}

impl QueryError {
    /// True if another program held a lock on the database until the statement gave up.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Reported(message) if message.contains("database is locked"))
    }
}

/// Reads what KTX's own ingests of the project at `root` processed and wrote; `None` if KTX never ingested anything.
pub fn ktx_history(root: &Path, workers: &SqlWorkers) -> Result<Option<KtxHistory>, QueryError> {
    let unreadable = |cause: std::io::Error| QueryError::Unreadable(cause.to_string());
    let found = ScopedDir::open(root)
        .and_then(|root| root.kind(KTX_DATABASE))
        .map_err(unreadable)?;
    match found {
        None => Ok(None),
        Some(_) => {
            let read = || workers.ktx_history(&root.join(KTX_DATABASE), HISTORY_TIMEOUT);
            // SQLite waits for a lock by itself; a second try outlasts a long transaction of KTX.
            read().or_else(|error| {
                if error.is_locked() {
                    read()
                } else {
                    Err(error)
                }
            })
        }
    }
}

#[cfg(test)]
mod tests;
