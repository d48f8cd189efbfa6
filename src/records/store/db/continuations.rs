//! How the indexed runs continue each other.

use rusqlite::Error;

use super::{Db, DbError, DbFault};
use ingestdeck_core::{run::continuation::RunContinuation, tape::RunId};

/// A run that continues another one, or that another one can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedContinuation {
    pub run: RunId,
    /// True if no commit of this run has the changes of its last review.
    pub has_unsaved_review: bool,
    pub continuation: RunContinuation,
}

impl Db {
    /// The runs that continue another one, or that another one can continue, newest first.
    pub fn continuations(&self) -> Result<Vec<IndexedContinuation>, DbError> {
        let read = || -> Result<Vec<IndexedContinuation>, Error> {
            let mut statement = self.connection.prepare_cached(
                "SELECT run, unsaved_review, continuation FROM runs
                 WHERE unsaved_review OR continuation IS NOT NULL ORDER BY run DESC",
            )?;
            let rows = statement.query_map([], |row| {
                let (id, has_unsaved_review, json): (String, bool, Option<String>) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                // A damaged text proves nothing.
                let continuation = json
                    .and_then(|json| serde_json::from_str(&json).ok())
                    .unwrap_or_default();
                Ok(RunId::parse(&id).map(|run| IndexedContinuation {
                    run,
                    has_unsaved_review,
                    continuation,
                }))
            })?;
            rows.filter_map(Result::transpose).collect()
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }
}
