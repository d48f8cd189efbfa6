//! Queries for the artifacts that prior runs wrote, by raw file.

use std::collections::HashMap;

use rusqlite::{Transaction, params};

use super::{Db, DbError, prior_runs};
use crate::store::index_rows::ArtifactIndexRow;
use ingestdeck_core::tape::RunId;

/// The last change of a prior run to an artifact of a raw file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactHistory {
    pub run: String,
    pub row: ArtifactIndexRow,
}

impl Db {
    /// Changes of the newest run to each artifact, by connection and raw file; with `before`, only of runs that started
    /// before that run. An artifact that a later run removed or restored counts as such for all of its raw files.
    pub fn prior_artifacts(
        &self,
        before: Option<RunId>,
    ) -> Result<HashMap<(String, String), Vec<ArtifactHistory>>, DbError> {
        // SQLite takes the other columns from the row that holds the maximum.
        let rows: Vec<ArtifactHistory> = self.select(
            "SELECT connection, path, target, target_connection, key, change, max(run) FROM artifacts
             WHERE run < ?1 GROUP BY connection, path, target, target_connection, key",
            [prior_runs::upper_bound(before)],
            |row| {
                Ok(Some(ArtifactHistory {
                    run: row.get(6)?,
                    row: ArtifactIndexRow {
                        connection: row.get(0)?,
                        path: row.get(1)?,
                        target: row.get(2)?,
                        target_connection: row.get(3)?,
                        key: row.get(4)?,
                        change: row.get(5)?,
                    },
                }))
            },
        )?;
        let (of_all_files, of_files): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|history| history.row.path.is_empty());
        let mut found: HashMap<(String, String), Vec<ArtifactHistory>> = HashMap::new();
        for history in of_files {
            let key = (history.row.connection.clone(), history.row.path.clone());
            found.entry(key).or_default().push(history);
        }
        let id = |row: &ArtifactIndexRow| {
            (
                row.target.clone(),
                row.target_connection.clone(),
                row.key.clone(),
            )
        };
        let newest: HashMap<_, _> = of_all_files
            .iter()
            .map(|newest| (id(&newest.row), newest))
            .collect();
        for known in found.values_mut().flatten() {
            if let Some(newest) = newest
                .get(&id(&known.row))
                .filter(|newest| newest.run >= known.run)
            {
                (known.run, known.row.change) = (newest.run.clone(), newest.row.change.clone());
            }
        }
        Ok(found)
    }
}

pub(super) fn write_artifact(
    transaction: &Transaction<'_>,
    run: &str,
    row: &ArtifactIndexRow,
) -> Result<(), rusqlite::Error> {
    super::insert(
        transaction,
        "artifacts",
        params![
            run,
            row.connection,
            row.path,
            row.target,
            row.target_connection,
            row.key,
            row.change
        ],
    )
}
