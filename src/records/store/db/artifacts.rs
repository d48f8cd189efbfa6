//! Queries for the artifacts that prior runs wrote, by raw file.

use std::collections::HashMap;

use rusqlite::{Transaction, params};

use super::{Db, DbError, DbFault, prior_runs};
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
        let read = || -> Result<_, rusqlite::Error> {
            // SQLite takes the other columns from the row that holds the maximum.
            let mut statement = self.connection.prepare_cached(
                "SELECT connection, path, target, target_connection, key, change, max(run) FROM artifacts
                 WHERE run < ?1 GROUP BY connection, path, target, target_connection, key",
            )?;
            let mut rows = statement.query([prior_runs::upper_bound(before)])?;
            let mut found: HashMap<(String, String), Vec<ArtifactHistory>> = HashMap::new();
            let mut of_all_files = Vec::new();
            while let Some(row) = rows.next()? {
                let artifact = ArtifactIndexRow {
                    connection: row.get(0)?,
                    path: row.get(1)?,
                    target: row.get(2)?,
                    target_connection: row.get(3)?,
                    key: row.get(4)?,
                    change: row.get(5)?,
                };
                let key = (artifact.connection.clone(), artifact.path.clone());
                let history = ArtifactHistory {
                    run: row.get(6)?,
                    row: artifact,
                };
                if key.1.is_empty() {
                    of_all_files.push(history);
                } else {
                    found.entry(key).or_default().push(history);
                }
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
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }
}

pub(super) fn write_artifact(
    transaction: &Transaction<'_>,
    run: &str,
    row: &ArtifactIndexRow,
) -> Result<(), rusqlite::Error> {
    let sql = "INSERT OR REPLACE INTO artifacts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let columns = params![
        run,
        row.connection,
        row.path,
        row.target,
        row.target_connection,
        row.key,
        row.change
    ];
    transaction.prepare_cached(sql)?.execute(columns)?;
    Ok(())
}
