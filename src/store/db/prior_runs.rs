//! Queries about prior runs: processed files, the last status of units, and the effort of finished units. Must not know
//! plans or forecasts.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Transaction, params};

use super::{Db, DbError, DbFault, to_i64, to_u64};
use crate::{
    run::state::UnitStatus,
    store::index_rows::FileIndexRow,
    tape::{Millis, RunId},
};

/// A file that some run processed or failed with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileHistory {
    /// SHA-256 of the file when all its units last succeeded; `None` if that never happened, or if the file was deleted
    /// since.
    pub processed_sha256: Option<String>,
    /// The newest later run in which a unit of the file failed, spent its turn budget or was stopped.
    pub failed_run: Option<RunId>,
    /// The run that processed the file or found it deleted.
    pub processed_run: Option<RunId>,
}

/// Connection, adapter and path.
pub(crate) type FileKey = (String, String, String);

/// State of a unit at the end of the last run that planned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitHistory {
    pub connection: String,
    /// KTX's key, unique in the connection.
    pub unit_key: String,
    /// Status as text, from [`UnitStatus::as_str`].
    pub status: String,
    /// True if the unit succeeded but its artifacts never reached the project.
    pub unsaved: bool,
    /// Why a unit that spent its turn budget is not done.
    pub detail: Option<String>,
    pub run: RunId,
}

/// Cost and time of a finished unit, summed over its attempts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnitEffort {
    pub adapter: String,
    /// Cost in US dollars, if all attempts reported their cost.
    pub cost_usd: Option<f64>,
    /// Total run time of its attempts.
    pub worked: Millis,
}

/// Maximum number of newest finished units to return, over all adapters.
const MAX_EFFORTS: u32 = 2_000;

/// Matches units that are done, in this run or in a prior one.
const DONE_STATUSES: &str = "status IN ('succeeded', 'reused')";

/// Matches units that plans compare with those of prior runs. Texts are not compared, so no run is kept for them.
/// Units whose commits were only reviewed are as they were before.
const COMPARED_UNITS: &str = "connection IS NOT NULL AND adapter IS NOT 'external_ingest' AND status IS NOT 'reviewed'";

/// Matches units with a review of their changes.
const REVIEWED_UNITS: &str =
    "connection IS NOT NULL AND adapter IS NOT 'external_ingest' AND review_remarks IS NOT NULL";

/// What a reviewer did not accept of the changes of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReviewRemarks {
    pub connection: String,
    /// Key of the unit in KTX.
    pub unit_key: String,
    /// Empty if everything was accepted.
    pub text: String,
    /// The run that was reviewed.
    pub run: RunId,
}

impl Db {
    /// All files that a run processed or failed with; with `before`, only of runs that started before that run.
    pub(crate) fn prior_files(&self, before: Option<RunId>) -> Result<BTreeMap<FileKey, FileHistory>, DbError> {
        let read = || -> Result<BTreeMap<FileKey, FileHistory>, rusqlite::Error> {
            let mut files: BTreeMap<FileKey, (FileHistory, String)> = BTreeMap::new();
            let end = upper_bound(before);
            // SQLite takes the other columns from the row that holds the maximum.
            let mut newest = self.connection.prepare_cached(
                "SELECT connection, adapter, path, max(run), sha256 FROM raw_files
                 WHERE state IN ('processed', 'gone') AND run < ?1 GROUP BY connection, adapter, path",
            )?;
            let mut rows = newest.query([&end])?;
            while let Some(row) = rows.next()? {
                let run: String = row.get(3)?;
                let file =
                    FileHistory { processed_sha256: row.get(4)?, failed_run: None, processed_run: RunId::parse(&run) };
                files.insert((row.get(0)?, row.get(1)?, row.get(2)?), (file, run));
            }
            let mut failed = self.connection.prepare_cached(
                "SELECT connection, adapter, path, max(run) FROM raw_files
                 WHERE state = 'failed' AND run < ?1 GROUP BY connection, adapter, path",
            )?;
            let mut rows = failed.query([&end])?;
            while let Some(row) = rows.next()? {
                let run: String = row.get(3)?;
                let (file, since) = files.entry((row.get(0)?, row.get(1)?, row.get(2)?)).or_default();
                file.failed_run = RunId::parse(&run).filter(|_| run > *since);
            }
            Ok(files.into_iter().map(|(key, (file, _))| (key, file)).collect())
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }

    /// Units as of the run in which they last succeeded; `before` as for [`prior_files`](Self::prior_files). Units whose
    /// newest result is not saved, or was saved by a run that reused it, are omitted: it may rest on other contents.
    pub(crate) fn last_successes(&self, before: Option<RunId>) -> Result<Vec<UnitHistory>, DbError> {
        let mut units = self.query_units(&format!("{DONE_STATUSES} AND run < ?1"), before)?;
        units.retain(|unit| unit.status == UnitStatus::Succeeded.as_str() && !unit.unsaved);
        Ok(units)
    }

    /// Contents of open and failed files in the runs in which units last succeeded with a saved result; `before` as for
    /// [`prior_files`](Self::prior_files).
    pub(crate) fn open_files(&self, before: Option<RunId>) -> Result<Vec<(FileKey, RunId, String)>, DbError> {
        let read = || -> Result<Vec<(FileKey, RunId, String)>, rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(&format!(
                "WITH newest AS (SELECT connection, adapter, path, max(run), state FROM raw_files
                                 WHERE run < ?1 GROUP BY connection, adapter, path),
                      successes AS (SELECT max(run) AS run FROM units WHERE {COMPARED_UNITS}
                                    AND status = 'succeeded' AND NOT unsaved AND run < ?1 GROUP BY connection, unit_key)
                 SELECT connection, adapter, path, run, sha256 FROM raw_files JOIN newest USING (connection, adapter, path)
                 WHERE newest.state IN ('open', 'failed') AND sha256 IS NOT NULL AND run IN (SELECT run FROM successes)"
            ))?;
            let file = |row: &rusqlite::Row<'_>| {
                let key = (row.get(0)?, row.get(1)?, row.get(2)?);
                let (run, sha256): (String, String) = (row.get(3)?, row.get(4)?);
                Ok(RunId::parse(&run).map(|run| (key, run, sha256)))
            };
            statement.query_map([upper_bound(before)], file)?.filter_map(Result::transpose).collect()
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }

    /// All units as of the last run that planned them; with `before`, only runs that started before that run.
    pub(crate) fn prior_units(&self, before: Option<RunId>) -> Result<Vec<UnitHistory>, DbError> {
        self.query_units("run < ?1", before)
    }

    /// What reviewers did not accept of the changes of units, in the last run that reviewed each, by connection and key.
    pub(crate) fn review_remarks(&self) -> Result<Vec<ReviewRemarks>, DbError> {
        let read = || -> Result<Vec<ReviewRemarks>, rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT connection, unit_key, review_remarks, max(run) FROM units
                 WHERE {REVIEWED_UNITS} GROUP BY connection, unit_key"
            ))?;
            let remarks = |row: &rusqlite::Row<'_>| {
                let Some(run) = RunId::parse(&row.get::<_, String>(3)?) else { return Ok(None) };
                Ok(Some(ReviewRemarks { connection: row.get(0)?, unit_key: row.get(1)?, text: row.get(2)?, run }))
            };
            statement.query_map([], remarks)?.filter_map(Result::transpose).collect()
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }

    /// All units as of the last run that completed or reused them. Later runs may have planned a unit without reaching
    /// it.
    pub(crate) fn prior_successes(&self) -> Result<Vec<UnitHistory>, DbError> {
        self.query_units(&format!("{DONE_STATUSES} AND run < ?1"), None)
    }

    fn query_units(&self, which: &str, before: Option<RunId>) -> Result<Vec<UnitHistory>, DbError> {
        let read = || -> Result<Vec<UnitHistory>, rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT connection, unit_key, status, max(run), unsaved, detail FROM units
                 WHERE {COMPARED_UNITS} AND {which} GROUP BY connection, unit_key"
            ))?;
            let unit = |row: &rusqlite::Row<'_>| {
                let Some(run) = RunId::parse(&row.get::<_, String>(3)?) else { return Ok(None) };
                let (connection, unit_key, status, unsaved) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(4)?);
                Ok(Some(UnitHistory { connection, unit_key, status, unsaved, detail: row.get(5)?, run }))
            };
            statement.query_map([upper_bound(before)], unit)?.filter_map(Result::transpose).collect()
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }

    /// Runs that incremental planning needs, not counting costs and times.
    pub(crate) fn required_runs(&self) -> Result<BTreeSet<RunId>, DbError> {
        let read = || -> Result<BTreeSet<RunId>, rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(&format!(
                "WITH good AS (SELECT connection, adapter, path, max(run) AS run FROM raw_files
                               WHERE state IN ('processed', 'gone') GROUP BY connection, adapter, path),
                      bad AS (SELECT connection, adapter, path, max(run) AS run FROM raw_files
                              WHERE state = 'failed' GROUP BY connection, adapter, path),
                      saved AS (SELECT connection, unit_key, max(run) AS run FROM units
                                WHERE {COMPARED_UNITS} AND {DONE_STATUSES} AND NOT unsaved GROUP BY connection, unit_key)
                 SELECT run FROM good
                 UNION SELECT bad.run FROM bad LEFT JOIN good USING (connection, adapter, path)
                       WHERE good.run IS NULL OR bad.run > good.run
                 UNION SELECT max(run) FROM units WHERE {COMPARED_UNITS} GROUP BY connection, unit_key
                 UNION SELECT units.run FROM units LEFT JOIN saved USING (connection, unit_key)
                       WHERE {COMPARED_UNITS} AND units.unsaved AND (saved.run IS NULL OR units.run > saved.run)
                 UNION SELECT max(run) FROM units WHERE {REVIEWED_UNITS} GROUP BY connection, unit_key
                 UNION SELECT max(run) FROM artifacts GROUP BY connection, path, target, target_connection, key"
            ))?;
            let runs = statement.query_map([], |row| row.get::<_, String>(0))?;
            runs.filter_map(|run| run.map(|run| RunId::parse(&run)).transpose()).collect()
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }

    /// Effort of the newest finished units, oldest first. Units of scripted agents or stopped by a person are excluded,
    /// since they do not predict others.
    pub(crate) fn prior_efforts(&self) -> Result<Vec<UnitEffort>, DbError> {
        let read = || -> Result<Vec<UnitEffort>, rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(
                "SELECT units.adapter, sum(attempts.cost_usd), count(attempts.cost_usd) = count(*),
                        sum(ended_ms - started_ms)
                 FROM units JOIN runs USING (run) JOIN attempts USING (run, unit)
                 WHERE NOT runs.scripted AND units.adapter IS NOT NULL AND units.status IN ('succeeded', 'budget', 'failed')
                 GROUP BY run, unit
                 HAVING count(ended_ms) = count(*) AND count(*) FILTER (WHERE attempts.outcome = 'stopped') = 0
                 ORDER BY run DESC, position DESC LIMIT ?1",
            )?;
            let effort = |row: &rusqlite::Row<'_>| {
                let cost: Option<f64> = row.get(1)?;
                let whole: bool = row.get(2)?;
                Ok(UnitEffort {
                    adapter: row.get(0)?,
                    cost_usd: cost.filter(|_| whole),
                    worked: Millis(to_u64(row.get(3)?)),
                })
            };
            let mut efforts: Vec<UnitEffort> = statement.query_map([MAX_EFFORTS], effort)?.collect::<Result<_, _>>()?;
            efforts.reverse();
            Ok(efforts)
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }
}

/// Upper bound for run ids in SQL: ids sort by start time, and as text before this letter.
pub(super) fn upper_bound(before: Option<RunId>) -> String {
    before.map_or_else(|| "g".into(), |run| run.to_string())
}

pub(super) fn write_file(transaction: &Transaction<'_>, run: &str, file: &FileIndexRow) -> Result<(), rusqlite::Error> {
    let sql = "INSERT OR REPLACE INTO raw_files VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    transaction.prepare_cached(sql)?.execute(params![
        run,
        file.connection,
        file.adapter,
        file.path,
        file.sha256,
        file.bytes.map(to_i64),
        file.state.as_str(),
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_whose_saved_result_is_of_another_run_is_not_listed() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&directory.path().join("db.sqlite")).unwrap();
        db.connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        let add = |run: u32, unit: &str, status: &str, unsaved: bool| {
            let sql = "INSERT INTO units (run, unit, position, connection, unit_key, status, attempts, unsaved)
                VALUES (?1, ?2, 0, 'notes', ?2, ?3, 1, ?4)";
            let run = format!("0190{run:04}-0000-7000-8000-000000000000");
            db.connection.execute(sql, params![run, unit, status, unsaved]).unwrap();
        };
        for unit in ["saved", "failed-since", "reused-since", "unsaved-since"] {
            add(1, unit, "succeeded", false);
        }
        add(2, "failed-since", "failed", false);
        add(2, "reused-since", "succeeded", true);
        add(3, "reused-since", "reused", false);
        add(2, "unsaved-since", "succeeded", true);
        let mut listed: Vec<String> = db.last_successes(None).unwrap().into_iter().map(|unit| unit.unit_key).collect();
        listed.sort();
        assert_eq!(listed, ["failed-since", "saved"]);
    }

    #[test]
    fn no_run_is_kept_for_texts() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&directory.path().join("db.sqlite")).unwrap();
        db.connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        let run = "01900001-0000-7000-8000-000000000000";
        let sql = "INSERT INTO units (run, unit, position, connection, adapter, unit_key, status, attempts, unsaved)
            VALUES (?1, 'u', 0, 'wh', 'external_ingest', 'u', 'succeeded', 1, 0)";
        db.connection.execute(sql, [run]).unwrap();
        assert!(db.required_runs().unwrap().is_empty() && db.last_successes(None).unwrap().is_empty());
        db.connection.execute("UPDATE units SET adapter = 'docs'", []).unwrap();
        assert_eq!(db.required_runs().unwrap().len(), 1);
    }
}
