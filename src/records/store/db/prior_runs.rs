//! Queries about prior runs: processed files, the last status of units, and the effort of finished units. Must not know
//! plans or forecasts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rusqlite::{Transaction, params};

use serde_json::json;

use super::{Db, DbError, from_json, run_id, to_i64, to_u64};
use crate::store::index_rows::{FileIndexRow, FileState, UnitFileResult};
use ingestdeck_core::{
    tape::{Millis, RunId, UnitKey, note::attempt_output::UnreadFile},
    token_prices::USUAL_RATIOS,
};

/// What one run recorded about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    pub run: RunId,
    /// SHA-256; `None` for a deleted file.
    pub sha256: Option<String>,
    pub state: FileState,
    /// Results of the units that ingest it, by KTX's key.
    pub units: BTreeMap<String, UnitFileResult>,
    /// The part that units with a saved success left unread, by KTX's key.
    pub unread: BTreeMap<String, UnreadFile>,
    /// Names that the file defines; `None` if they are not recorded.
    pub defines: Option<Vec<String>>,
}

impl FileRecord {
    /// True if a plan that finds this content later does not record the file again.
    fn is_settled(&self) -> bool {
        matches!(self.state, FileState::Processed | FileState::Evicted)
            || self
                .units
                .values()
                .any(|result| matches!(result, UnitFileResult::Succeeded(_)))
    }
}

/// SHA-256 of a file when all its units last succeeded; `None` if that never happened, or if the file was deleted since.
pub fn processed_sha256(records: &[FileRecord]) -> Option<&String> {
    let is_result =
        |record: &&FileRecord| matches!(record.state, FileState::Processed | FileState::Evicted);
    records.iter().rev().find(is_result)?.sha256.as_ref()
}

/// Connection, adapter and path.
pub type FileKey = (String, String, String);

/// State of a unit at the end of the last run that planned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitHistory {
    pub connection: String,
    /// KTX's key, unique in the connection.
    pub unit_key: String,
    /// Status as text, from [`UnitStatus::as_str`](ingestdeck_core::run::state::UnitStatus::as_str).
    pub status: String,
    /// True if the unit succeeded but its artifacts never reached the project.
    pub unsaved: bool,
    /// Why a unit that spent its turn budget is not done.
    pub detail: Option<String>,
    pub run: RunId,
}

/// The last saved success of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSuccess {
    pub connection: String,
    /// KTX's key, unique in the connection.
    pub unit_key: String,
    /// The run whose files the result rests on.
    pub read_in: RunId,
    /// The run that recorded the success.
    pub run: RunId,
}

/// A result that is in no commit, and the later run that saved another one of its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupersededResult {
    pub run: RunId,
    pub unit: UnitKey,
    pub by: RunId,
}

/// Cost and time of a finished unit, summed over its attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitEffort {
    pub adapter: String,
    /// Cost in US dollars, if all attempts reported their cost.
    pub cost_usd: Option<f64>,
    /// Total run time of its attempts.
    pub worked: Millis,
}

/// What earlier runs of the project cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriorEfforts {
    /// Efforts of finished units, oldest first.
    pub units: Vec<UnitEffort>,
    /// Prices of models, the last one that was used first.
    pub prices: Vec<ModelPrice>,
}

/// The price of a model as its sessions reported their costs.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPrice {
    pub model: String,
    /// Price of a million input tokens that are not cached, in US dollars.
    pub usd_per_million: f64,
}

/// Maximum number of newest finished units to return, over all adapters.
const MAX_EFFORTS: u32 = 2_000;

/// Matches units that are done, in this run or in a prior one.
const DONE_STATUSES: &str = "status IN ('succeeded', 'reused')";

/// Matches units that plans compare with those of prior runs. Texts are not compared, so no run is kept for them.
/// Units whose commits were only reviewed are as they were before.
const COMPARED_UNITS: &str =
    "connection IS NOT NULL AND adapter IS NOT 'external_ingest' AND status IS NOT 'reviewed'";

/// Matches units with a review of their changes.
const REVIEWED_UNITS: &str =
    "connection IS NOT NULL AND adapter IS NOT 'external_ingest' AND review_remarks IS NOT NULL";

/// What a reviewer did not accept of the changes of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewRemarks {
    pub connection: String,
    /// Key of the unit in KTX.
    pub unit_key: String,
    /// Empty if everything was accepted.
    pub text: String,
    /// The run that was reviewed.
    pub run: RunId,
}

impl Db {
    /// The records of all files, oldest first; with `before`, only of runs that started before that run.
    pub fn file_records(
        &self,
        before: Option<RunId>,
    ) -> Result<BTreeMap<FileKey, Vec<FileRecord>>, DbError> {
        let records: Vec<(FileKey, FileRecord)> = self.select(
            "SELECT connection, adapter, path, run, sha256, state, units, defines, unread FROM raw_files
             WHERE run < ?1 ORDER BY run",
            [upper_bound(before)],
            |row| {
                let (Some(run), Some(state)) =
                    (run_id(row, 3)?, FileState::parse(&row.get::<_, String>(5)?))
                else {
                    return Ok(None);
                };
                let record = FileRecord {
                    run,
                    sha256: row.get(4)?,
                    state,
                    units: from_json(row, 6)?.unwrap_or_default(),
                    unread: from_json(row, 8)?.unwrap_or_default(),
                    defines: from_json(row, 7)?,
                };
                Ok(Some(((row.get(0)?, row.get(1)?, row.get(2)?), record)))
            },
        )?;
        let mut files: BTreeMap<FileKey, Vec<FileRecord>> = BTreeMap::new();
        for (key, record) in records {
            files.entry(key).or_default().push(record);
        }
        Ok(files)
    }

    /// For each unit, by connection and KTX's key, the newest run whose files a saved result of the unit rests on, and
    /// the run that recorded this; `before` as for [`file_records`](Self::file_records).
    pub fn last_successes(&self, before: Option<RunId>) -> Result<Vec<UnitSuccess>, DbError> {
        self.select(
            &format!(
                "SELECT connection, unit_key, max(read_in), run FROM units
                 WHERE {COMPARED_UNITS} AND read_in IS NOT NULL AND run < ?1 GROUP BY connection, unit_key"
            ),
            [upper_bound(before)],
            |row| {
                let (Some(read_in), Some(run)) = (run_id(row, 2)?, run_id(row, 3)?) else {
                    return Ok(None);
                };
                Ok(Some(UnitSuccess {
                    connection: row.get(0)?,
                    unit_key: row.get(1)?,
                    read_in,
                    run,
                }))
            },
        )
    }

    /// Results in no commit that a later saved success of the same unit, which does not rest on them, has replaced.
    pub fn superseded_results(&self) -> Result<Vec<SupersededResult>, DbError> {
        self.select(
            &format!(
                "WITH saved AS (SELECT connection, unit_key, max(read_in) AS read_in, run FROM units
                                WHERE {COMPARED_UNITS} AND read_in IS NOT NULL GROUP BY connection, unit_key)
                 SELECT units.run, units.unit, saved.run FROM units JOIN saved USING (connection, unit_key)
                 WHERE {COMPARED_UNITS} AND units.unsaved AND saved.read_in > units.run"
            ),
            [],
            |row| {
                let (Some(run), Some(by)) = (run_id(row, 0)?, run_id(row, 2)?) else {
                    return Ok(None);
                };
                let unit = UnitKey::new(row.get::<_, String>(1)?);
                Ok(Some(SupersededResult { run, unit, by }))
            },
        )
    }

    /// All units as of the last run that planned them; with `before`, only runs that started before that run.
    pub fn prior_units(&self, before: Option<RunId>) -> Result<Vec<UnitHistory>, DbError> {
        self.query_units("run < ?1", before)
    }

    /// What reviewers did not accept of the changes of units, in the last run that reviewed each, by connection and key.
    pub fn review_remarks(&self) -> Result<Vec<ReviewRemarks>, DbError> {
        self.select(
            &format!(
                "SELECT connection, unit_key, review_remarks, max(run) FROM units
                 WHERE {REVIEWED_UNITS} GROUP BY connection, unit_key"
            ),
            [],
            |row| {
                let Some(run) = run_id(row, 3)? else {
                    return Ok(None);
                };
                Ok(Some(ReviewRemarks {
                    connection: row.get(0)?,
                    unit_key: row.get(1)?,
                    text: row.get(2)?,
                    run,
                }))
            },
        )
    }

    /// All units as of the last run that completed or reused them. Later runs may have planned a unit without reaching
    /// it.
    pub fn prior_successes(&self) -> Result<Vec<UnitHistory>, DbError> {
        self.query_units(&format!("{DONE_STATUSES} AND run < ?1"), None)
    }

    fn query_units(&self, which: &str, before: Option<RunId>) -> Result<Vec<UnitHistory>, DbError> {
        self.select(
            &format!(
                "SELECT connection, unit_key, status, max(run), unsaved, detail FROM units
                 WHERE {COMPARED_UNITS} AND {which} GROUP BY connection, unit_key"
            ),
            [upper_bound(before)],
            |row| {
                let Some(run) = run_id(row, 3)? else {
                    return Ok(None);
                };
                Ok(Some(UnitHistory {
                    connection: row.get(0)?,
                    unit_key: row.get(1)?,
                    status: row.get(2)?,
                    unsaved: row.get(4)?,
                    detail: row.get(5)?,
                    run,
                }))
            },
        )
    }

    /// Runs that incremental planning needs, not counting costs and times.
    pub fn required_runs(&self) -> Result<BTreeSet<RunId>, DbError> {
        let times = self
            .last_successes(None)?
            .into_iter()
            .map(|success| success.read_in)
            .collect();
        let records = self.file_records(None)?;
        let mut required: BTreeSet<RunId> = records
            .values()
            .flat_map(|of| required_records(of, &times))
            .collect();
        let by_units: BTreeSet<RunId> = self.select(
            &format!(
                "WITH saved AS (SELECT connection, unit_key, max(run) AS run FROM units
                                WHERE {COMPARED_UNITS} AND {DONE_STATUSES} AND NOT unsaved GROUP BY connection, unit_key)
                 SELECT max(run) FROM units WHERE {COMPARED_UNITS} GROUP BY connection, unit_key
                 UNION SELECT max(read_in) FROM units WHERE {COMPARED_UNITS} AND read_in IS NOT NULL
                       GROUP BY connection, unit_key
                 UNION SELECT units.run FROM units LEFT JOIN saved USING (connection, unit_key)
                       WHERE {COMPARED_UNITS} AND units.unsaved AND (saved.run IS NULL OR units.run > saved.run)
                 UNION SELECT max(run) FROM units WHERE {REVIEWED_UNITS} GROUP BY connection, unit_key
                 UNION SELECT max(run) FROM artifacts GROUP BY connection, path, target, target_connection, key"
            ),
            [],
            |row| run_id(row, 0),
        )?;
        required.extend(by_units);
        Ok(required)
    }

    /// The sessions of all attempts.
    pub fn attempt_sessions(&self) -> Result<HashSet<String>, DbError> {
        let sessions = "SELECT DISTINCT session FROM attempts WHERE session IS NOT NULL";
        self.select(sessions, [], |row| row.get::<_, String>(0).map(Some))
    }

    /// Number of units that succeeded and neither changed nor decided anything, of the runs with such units.
    pub fn nothing_written_counts(&self) -> Result<HashMap<RunId, u64>, DbError> {
        // The verdict states it; the newest attempt decides.
        self.select(
            "SELECT run, count(*) FROM units JOIN attempts USING (run, unit)
             WHERE units.status = 'succeeded' AND attempts.reason LIKE 'completed; read, nothing written%'
                AND attempts.attempt = (SELECT max(attempt) FROM attempts AS last
                    WHERE last.run = units.run AND last.unit = units.unit)
             GROUP BY run",
            [],
            |row| {
                let count = to_u64(row.get(1)?);
                Ok(run_id(row, 0)?.map(|run| (run, count)))
            },
        )
    }

    /// What the newest finished units cost. Units of scripted agents or stopped by a person are excluded, since they do not
    /// predict others.
    pub fn prior_efforts(&self) -> Result<PriorEfforts, DbError> {
        let mut units: Vec<UnitEffort> = self.select(
            "SELECT units.adapter, sum(attempts.cost_usd), count(attempts.cost_usd) = count(*),
                    sum(ended_ms - started_ms)
             FROM units JOIN runs USING (run) JOIN attempts USING (run, unit)
             WHERE NOT runs.scripted AND units.adapter IS NOT NULL AND units.status IN ('succeeded', 'budget', 'failed')
             GROUP BY run, unit
             HAVING count(ended_ms) = count(*) AND count(*) FILTER (WHERE attempts.outcome = 'stopped') = 0
             ORDER BY run DESC, position DESC LIMIT ?1",
            [MAX_EFFORTS],
            |row| {
                let cost: Option<f64> = row.get(1)?;
                let whole: bool = row.get(2)?;
                Ok(Some(UnitEffort {
                    adapter: row.get(0)?,
                    cost_usd: cost.filter(|_| whole),
                    worked: Millis(to_u64(row.get(3)?)),
                }))
            },
        )?;
        units.reverse();
        Ok(PriorEfforts {
            units,
            prices: self.model_prices()?,
        })
    }

    /// Prices from reported costs, which have the same ratios for all models.
    fn model_prices(&self) -> Result<Vec<ModelPrice>, DbError> {
        self.select(
            "SELECT model, 1e6 * sum(model_usage.cost_usd)
                    / sum(input_tokens + ?1 * cache_read + ?2 * cache_write + ?3 * output_tokens)
             FROM model_usage JOIN runs USING (run)
             WHERE NOT runs.scripted AND model_usage.cost_usd > 0
             GROUP BY model ORDER BY max(run) DESC, sum(model_usage.cost_usd) DESC LIMIT 20",
            USUAL_RATIOS,
            |row| {
                let price: Option<f64> = row.get(1)?;
                let model = row.get(0)?;
                Ok(price.map(|usd_per_million| ModelPrice {
                    model,
                    usd_per_million,
                }))
            },
        )
    }
}

/// The runs without which a plan would judge a file in another way: the last result of each of its units and of all
/// together, and the content as of `times`, at which units last succeeded.
fn required_records(
    records: &[FileRecord],
    times: &BTreeSet<RunId>,
) -> impl Iterator<Item = RunId> {
    let mut required = BTreeSet::new();
    let mut units: BTreeMap<&str, (RunId, UnitFileResult)> = BTreeMap::new();
    for record in records {
        units.extend(
            record
                .units
                .iter()
                .map(|(unit, result)| (unit.as_str(), (record.run, *result))),
        );
    }
    required.extend(units.values().map(|(run, _)| *run));
    // A run that reuses a saved result does not repeat what was left unread.
    let states_unread = |record: &&FileRecord| {
        record.unread.keys().any(|unit| {
            let result = record.units.get(unit);
            result.is_some() && units.get(unit.as_str()).map(|(_, last)| last) == result
        })
    };
    required.extend(
        records
            .iter()
            .filter(states_unread)
            .map(|record| record.run),
    );
    let last = records.iter().rposition(FileRecord::is_settled);
    required.extend(last.and_then(|at| records.get(at)).map(|record| record.run));
    for time in times {
        let upto = records.partition_point(|record| record.run <= *time);
        let known = records.get(..upto).unwrap_or_default();
        required.extend(
            known
                .iter()
                .rfind(|record| record.is_settled())
                .map(|record| record.run),
        );
    }
    let rest = records
        .get(last.map_or(0, |at| at + 1)..)
        .unwrap_or_default();
    required.extend(
        rest.iter()
            .rfind(|record| record.state == FileState::Failed)
            .map(|record| record.run),
    );
    required.into_iter()
}

/// Upper bound for run ids in SQL: ids sort by start time, and as text before this letter.
pub(super) fn upper_bound(before: Option<RunId>) -> String {
    before.map_or_else(|| "g".into(), |run| run.to_string())
}

pub(super) fn write_file(
    transaction: &Transaction<'_>,
    run: &str,
    file: &FileIndexRow,
) -> Result<(), rusqlite::Error> {
    super::insert(
        transaction,
        "raw_files",
        params![
            run,
            file.connection,
            file.adapter,
            file.path,
            file.sha256,
            file.bytes.map(to_i64),
            file.state.as_str(),
            (!file.units.is_empty()).then(|| json!(file.units).to_string()),
            file.defines.as_ref().map(|names| json!(names).to_string()),
            (!file.unread.is_empty()).then(|| json!(file.unread).to_string()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_success_is_the_run_that_a_saved_result_rests_on() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&directory.path().join("db.sqlite")).unwrap();
        db.connection
            .execute_batch("PRAGMA foreign_keys = OFF")
            .unwrap();
        let add = |run: u32, unit: &str, status: &str, unsaved: bool| {
            let sql =
                "INSERT INTO units (run, unit, position, connection, unit_key, status, attempts, unsaved, read_in)
                VALUES (?1, ?2, 0, 'notes', ?2, ?3, 1, ?4, ?5)";
            let id = |run: u32| format!("0190{run:04}-0000-7000-8000-000000000000");
            let read_in = match status {
                "succeeded" if !unsaved => Some(id(run)),
                "reused" => Some(id(run - 1)),
                _ => None,
            };
            db.connection
                .execute(sql, params![id(run), unit, status, unsaved, read_in])
                .unwrap();
        };
        for unit in ["saved", "failed-since", "reused-since", "unsaved-since"] {
            add(1, unit, "succeeded", false);
        }
        add(2, "failed-since", "failed", false);
        add(2, "reused-since", "succeeded", true);
        add(3, "reused-since", "reused", false);
        add(2, "unsaved-since", "succeeded", true);
        let listed = db.last_successes(None).unwrap().into_iter();
        let mut listed: Vec<(String, String)> = listed
            .map(|unit| (unit.unit_key, unit.read_in.to_string()[4..8].to_owned()))
            .collect();
        listed.sort();
        let expected = [
            ("failed-since", "0001"),
            ("reused-since", "0002"),
            ("saved", "0001"),
            ("unsaved-since", "0001"),
        ];
        assert_eq!(
            listed,
            expected.map(|(unit, run)| (unit.to_owned(), run.to_owned()))
        );
        assert_eq!(
            db.superseded_results().unwrap(),
            [],
            "the later result is the same one"
        );
        add(4, "unsaved-since", "succeeded", false);
        let superseded = db.superseded_results().unwrap();
        let found: Vec<_> = superseded
            .iter()
            .map(|of| (&*of.unit, &of.run.to_string()[4..8] == "0002"))
            .collect();
        assert_eq!(found, [("unsaved-since", true)]);
    }

    #[test]
    fn required_records_decide_about_a_file() {
        use FileState::{Evicted, Failed, Processed, Unfinished};
        let id = |number: u32| RunId(uuid::Uuid::from_u128(u128::from(number)));
        // The run with the files that the result of each unit rests on, if it succeeded.
        type Record<'a> = (FileState, &'a [(&'a str, Option<u32>)], &'a [&'a str]);
        let required = |records: &[Record<'_>], times: &[u32]| -> Vec<u32> {
            let record = |(number, (state, units, unread)): (usize, &Record<'_>)| FileRecord {
                run: id(number as u32 + 1),
                sha256: None,
                state: *state,
                units: units
                    .iter()
                    .map(|(unit, read_in)| {
                        (
                            (*unit).to_owned(),
                            read_in.map_or(UnitFileResult::Failed, |run| {
                                UnitFileResult::Succeeded(id(run))
                            }),
                        )
                    })
                    .collect(),
                unread: unread
                    .iter()
                    .map(|unit| {
                        (
                            (*unit).to_owned(),
                            UnreadFile {
                                path: "f".into(),
                                part: None,
                            },
                        )
                    })
                    .collect(),
                defines: None,
            };
            let records: Vec<FileRecord> = records.iter().enumerate().map(record).collect();
            let times = times.iter().map(|time| id(*time)).collect();
            let mut required: Vec<u32> = required_records(&records, &times)
                .map(|run| run.0.as_u128() as u32)
                .collect();
            required.sort_unstable();
            required
        };
        let success = |run: u32| (Processed, [("a", Some(run))]);
        let [(p, one), (_, two), (_, three)] = [1, 2, 3].map(success);
        assert_eq!(
            required(&[(p, &one, &[]), (p, &two, &[]), (p, &three, &[])], &[]),
            [3]
        );
        assert_eq!(
            required(&[(p, &one, &[]), (p, &two, &[]), (p, &three, &[])], &[1]),
            [1, 3],
            "as of a success"
        );
        let both = [("a", Some(1)), ("b", Some(1))];
        let shared: [Record<'_>; 3] = [
            (p, &both, &[]),
            (Unfinished, &[("a", Some(2))], &[]),
            (Unfinished, &[("b", Some(3))], &[]),
        ];
        assert_eq!(
            required(&shared, &[]),
            [2, 3],
            "the last result of each unit"
        );
        assert_eq!(
            required(
                &[
                    (p, &one, &[]),
                    (Failed, &[("a", None)], &[]),
                    (Unfinished, &[], &[])
                ],
                &[]
            ),
            [1, 2]
        );
        assert_eq!(
            required(&[(p, &one, &["a"]), (p, &one, &[]), (p, &one, &[])], &[]),
            [1, 3],
            "left unread by the result"
        );
        assert_eq!(
            required(&[(p, &one, &["a"]), (p, &two, &[])], &[]),
            [2],
            "a later result has read it"
        );
        assert_eq!(
            required(
                &[
                    (p, &one, &["a"]),
                    (Evicted, &[], &[]),
                    (FileState::Missing, &[], &[])
                ],
                &[]
            ),
            [1, 2]
        );
        assert_eq!(required(&[(Unfinished, &[], &[])], &[]), [0; 0]);
    }

    #[test]
    fn no_run_is_kept_for_texts() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&directory.path().join("db.sqlite")).unwrap();
        db.connection
            .execute_batch("PRAGMA foreign_keys = OFF")
            .unwrap();
        let run = "01900001-0000-7000-8000-000000000000";
        let sql =
            "INSERT INTO units (run, unit, position, connection, adapter, unit_key, status, attempts, unsaved, read_in)
            VALUES (?1, 'u', 0, 'wh', 'external_ingest', 'u', 'succeeded', 1, 0, ?1)";
        db.connection.execute(sql, [run]).unwrap();
        assert!(
            db.required_runs().unwrap().is_empty() && db.last_successes(None).unwrap().is_empty()
        );
        db.connection
            .execute("UPDATE units SET adapter = 'docs'", [])
            .unwrap();
        assert_eq!(db.required_runs().unwrap().len(), 1);
    }
}
