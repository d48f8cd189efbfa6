//! The SQLite file of a connection: where it is, and questions to it that change nothing and end.
//!
//! A file or a query may be hostile. What a question may cost is bounded here: time, rows, characters. It must not know
//! about tools.

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::project::Connection;

mod catalog;
mod cell;
mod guard;

pub(crate) use catalog::{Column, Table, columns, describe, names};
pub(crate) use cell::Cell;
pub(crate) use guard::{Most, Rows, query};

/// The driver of connections that are a SQLite file.
pub(crate) const DRIVER: &str = "sqlite";

/// How long one question may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer a single step inside SQLite is waited for; nothing can interrupt one.
const GRACE: Duration = Duration::from_secs(2);

/// A question without an answer. Reads as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    /// It would do more than read.
    #[error("not allowed: only reading is; send one SELECT or WITH statement")]
    NotReading,
    /// There is more than one statement.
    #[error("it holds more than one statement; send one SELECT or WITH statement")]
    Several,
    /// There is no statement.
    #[error("it holds no statement; send one SELECT or WITH statement")]
    Nothing,
    /// It took too long.
    #[error("stopped after {0} s; ask for less, with a WHERE or a smaller table")]
    TooSlow(u64),
    /// A value is larger than one may be.
    #[error("a value is larger than {0} bytes; leave its column out")]
    TooLarge(i32),
    /// The names in the database cannot be shown.
    #[error("the names of its tables and columns are not UTF-8 text, so it cannot be queried")]
    Names,
    /// What SQLite says.
    #[error("{0}")]
    Sqlite(String),
}

/// Where the file of `connection` should be; `None` if it is none.
pub(crate) fn path(project: &Path, connection: &Connection) -> Option<PathBuf> {
    if connection.driver.as_deref() != Some(DRIVER) {
        return None;
    }
    let named = connection.subdir.as_deref().or(connection.url.as_deref())?;
    // `sqlite:///srv/x.db`, `sqlite:x.db`, `file:x.db` and plain paths name the same kind of file.
    let path = ["sqlite://", "sqlite:", "file://", "file:"].iter().find_map(|prefix| named.strip_prefix(prefix));
    let path = path.unwrap_or(named);
    (!path.is_empty()).then(|| project.join(path))
}

/// Asks the database at `path`, which has to answer within `patience`. Blocks.
///
/// The question runs on a thread of its own: a single step of SQLite cannot be interrupted, only left behind. Its limits
/// keep such a step below a minute.
pub(crate) fn ask<T: Send + 'static>(
    path: &Path,
    patience: Duration,
    question: impl FnOnce(&rusqlite::Connection) -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryError> {
    let deadline = Instant::now() + patience;
    let too_slow = || QueryError::TooSlow(patience.as_secs().max(1));
    let (answer, answered) = mpsc::channel();
    let path = path.to_path_buf();
    let asked = thread::Builder::new().name("sqlite".into()).spawn(move || {
        let result = guard::open(&path, deadline).and_then(|connection| question(&connection));
        // Nobody listens any more once the deadline has passed.
        let _ = answer.send(result);
    });
    if let Err(error) = asked {
        return Err(QueryError::Sqlite(format!("no thread to ask from: {error}")));
    }
    match answered.recv_timeout(patience + GRACE) {
        Ok(Err(QueryError::TooSlow(_))) | Err(mpsc::RecvTimeoutError::Timeout) => Err(too_slow()),
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(QueryError::Sqlite("the question broke down".into())),
    }
}

#[cfg(test)]
mod tests;
