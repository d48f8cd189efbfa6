//! How the indexed runs continue each other.

use super::{Db, DbError};
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
        self.select(
            "SELECT run, unsaved_review, continuation FROM runs
             WHERE unsaved_review OR continuation IS NOT NULL ORDER BY run DESC",
            [],
            |row| {
                let has_unsaved_review = row.get(1)?;
                // A damaged text proves nothing.
                let continuation = super::from_json(row, 2)?.unwrap_or_default();
                Ok(super::run_id(row, 0)?.map(|run| IndexedContinuation {
                    run,
                    has_unsaved_review,
                    continuation,
                }))
            },
        )
    }
}
