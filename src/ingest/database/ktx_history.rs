//! What KTX's own ingests of a project processed and wrote, according to its database `.ktx/db.sqlite`.
//!
//! [`tables`] reads the rows in a worker process, piece by piece. This module combines the pieces, within limits,
//! because the file may be hostile. It must not know about plans.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use super::QueryError;

pub(super) mod tables;

pub use tables::DamagedRows;
use tables::{KtxHistoryPage, KtxRunOutcome, KtxRunRow, PageLimits, ProvenanceRow};

/// Where KTX keeps its database, relative to the project.
pub const KTX_DATABASE: &str = ".ktx/db.sqlite";

/// Limits of how much history is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryLimits {
    /// Limits of one answer of a worker process, which must not be larger than 16 MiB.
    pub(super) piece: PageLimits,
    /// Bytes of all rows, as JSON.
    bytes: u64,
    /// Rows of each table, damaged ones included.
    rows: u64,
}

pub(super) const LIMITS: HistoryLimits = HistoryLimits {
    piece: PageLimits {
        bytes: 4 << 20,
        reports: 64 << 20,
        rows: 100_000,
    },
    bytes: 32 << 20,
    rows: 500_000,
};

/// What KTX's runs processed and wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KtxHistory {
    /// Files that KTX processed, and files whose deletion KTX handled.
    pub files: Vec<KtxFile>,
    /// Artifacts that KTX wrote, once per raw file and artifact: the newest row.
    pub artifacts: Vec<KtxArtifact>,
    /// Rows that were skipped because they are damaged.
    pub damaged: DamagedRows,
    /// Why older rows were not read; `None` if the history is complete.
    pub incomplete: Option<String>,
}

/// A raw file that KTX processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KtxFile {
    /// Id of the connection in `ktx.yaml`.
    pub connection: String,
    /// Adapter that read the file, such as `dbt`.
    pub adapter: String,
    /// Path relative to the source.
    pub path: String,
    /// SHA-256 of its content, in hexadecimal; `None` if the run handled its deletion.
    pub sha256: Option<String>,
    /// When the run completed, in milliseconds since 1970.
    pub completed_ms: u64,
}

/// A page or source that KTX wrote from a raw file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KtxArtifact {
    /// Id of the connection in `ktx.yaml`.
    pub connection: String,
    /// Raw file, relative to the source.
    pub path: String,
    /// Artifact kind, `wiki` or `sl`.
    pub kind: String,
    /// Connection of a semantic-layer source; empty for a page.
    pub target_connection: String,
    /// Page key or source name.
    pub key: String,
    /// KTX's name for the action, such as `wiki_written`.
    pub action: String,
    /// Id of KTX's job that wrote it, `local-<base36 milliseconds>`.
    pub job: String,
    /// When the run completed, in milliseconds since 1970.
    pub completed_ms: u64,
}

/// State of a file while rows are read from newest to oldest.
enum KtxFileState {
    /// So far only runs without units mention the file, with this hash and at this time.
    Idle(Option<String>, u64),
    /// A run with units mentions the file, so older rows do not matter.
    Decided,
}

/// Reads the history with `runs` and `provenance`, each of which reads the piece that begins with a row. Returns `None`
/// if KTX never ingested anything in this project.
///
/// # Errors
/// Fails when no row of a table can be read. A later failure makes the history incomplete.
pub(super) fn load(
    mut runs: impl FnMut(i64) -> Result<Option<KtxHistoryPage<KtxRunRow>>, QueryError>,
    provenance: impl FnMut(i64) -> Result<KtxHistoryPage<ProvenanceRow>, QueryError>,
    limits: HistoryLimits,
) -> Result<Option<KtxHistory>, QueryError> {
    let Some(first) = runs(i64::MAX)? else {
        return Ok(None);
    };
    let (mut history, mut bytes) = (KtxHistory::default(), limits.bytes);
    let mut first = Some(first);
    // A table that is missing when the second piece is read has no more rows.
    let runs = |from| {
        first
            .take()
            .map_or_else(|| runs(from).map(Option::unwrap_or_default), Ok)
    };
    let runs = history.read_table(runs, &mut bytes, limits)?;
    let rows = history.read_table(provenance, &mut bytes, limits)?;
    history.add_rows(runs, rows);
    Ok(Some(history))
}

impl KtxHistory {
    /// Reads a table to its end or to a limit. `bytes` is the remaining byte budget.
    fn read_table<T>(
        &mut self,
        mut read: impl FnMut(i64) -> Result<KtxHistoryPage<T>, QueryError>,
        bytes: &mut u64,
        limits: HistoryLimits,
    ) -> Result<Vec<T>, QueryError> {
        let (mut rows, mut visited, mut next) = (Vec::new(), 0, Some(i64::MAX));
        while let Some(from) = next {
            let stopped = match read(from) {
                Ok(piece) => {
                    *bytes = bytes.saturating_sub(piece.bytes);
                    visited += piece.visited;
                    next = piece.next;
                    self.damaged.add(piece.damaged);
                    rows.extend(piece.rows);
                    piece.stopped
                }
                Err(error) => Some(error),
            };
            match stopped {
                Some(error) if visited == 0 => return Err(error),
                Some(error) => {
                    self.incomplete.get_or_insert_with(|| match error {
                        QueryError::TimedOut(_) => "reading it takes too long".to_owned(),
                        error => error.to_string(),
                    });
                    break;
                }
                None if next.is_some() && (*bytes == 0 || visited >= limits.rows) => {
                    let limit = format!(
                        "at most {} MiB and {} rows of a table are read",
                        limits.bytes >> 20,
                        limits.rows
                    );
                    self.incomplete.get_or_insert(limit);
                    break;
                }
                None => {}
            }
        }
        Ok(rows)
    }

    /// Derives the state of files from the rows of completed `runs`.
    fn add_rows(&mut self, runs: Vec<KtxRunRow>, rows: Vec<ProvenanceRow>) {
        let mut by_sync: HashMap<(String, String, String), KtxRunRow> = HashMap::new();
        let age = |run: &KtxRunRow| Reverse((run.completed_ms, run.row));
        for run in runs {
            let sync = (
                run.connection.clone(),
                run.adapter.clone(),
                run.sync.clone(),
            );
            match by_sync.get(&sync) {
                Some(known) if age(known) <= age(&run) => {}
                _ => drop(by_sync.insert(sync, run)),
            }
        }
        let mut dated: Vec<(&KtxRunRow, ProvenanceRow)> = Vec::with_capacity(rows.len());
        for mut row in rows {
            let sync = std::mem::take(&mut row.sync);
            if let Some(run) = by_sync.get(&(row.connection.clone(), row.adapter.clone(), sync)) {
                dated.push((run, row));
            }
        }
        // The sort is stable: rows of one run keep their order, newest first.
        dated.sort_by_key(|(run, _)| age(run));
        let mut states: HashMap<(String, String, String), KtxFileState> = HashMap::new();
        let mut known: HashSet<(String, String, String, String, String)> = HashSet::new();
        for (run, row) in dated {
            if let Some(artifact) = artifact(run, &row) {
                let KtxArtifact {
                    connection,
                    path,
                    kind,
                    target_connection,
                    key,
                    ..
                } = artifact.clone();
                if known.insert((connection, path, kind, target_connection, key)) {
                    self.artifacts.push(artifact);
                }
            }
            let file = (
                row.connection.clone(),
                row.adapter.clone(),
                row.path.clone(),
            );
            let state = states.get(&file);
            if matches!(state, Some(KtxFileState::Decided)) {
                continue;
            }
            let idle = match state {
                Some(KtxFileState::Idle(hash, _)) if *hash != row.sha256 => None,
                Some(KtxFileState::Idle(_, completed_ms)) => Some(*completed_ms),
                _ => Some(run.completed_ms),
            };
            // KTX writes `skipped` rows for files without output and for unchanged files: such a row counts if no unit
            // of the run failed. A run without units found nothing new, so the run before it decides.
            let next = match (row.action.as_str(), run.outcome, idle) {
                ("skipped", KtxRunOutcome::Idle, Some(completed_ms)) => {
                    KtxFileState::Idle(row.sha256, completed_ms)
                }
                ("skipped", KtxRunOutcome::Idle | KtxRunOutcome::Failed, _) | (_, _, None) => {
                    KtxFileState::Decided
                }
                (_, _, Some(completed_ms)) => {
                    let ProvenanceRow {
                        connection,
                        adapter,
                        path,
                        sha256,
                        ..
                    } = row;
                    self.files.push(KtxFile {
                        connection,
                        adapter,
                        path,
                        sha256,
                        completed_ms,
                    });
                    KtxFileState::Decided
                }
            };
            states.insert(file, next);
        }
    }
}

/// The artifact of a row, if it names one.
fn artifact(run: &KtxRunRow, row: &ProvenanceRow) -> Option<KtxArtifact> {
    let (kind, key) = row.artifact.clone()?;
    // As in KTX: a source belongs to the ingested connection unless the row names another one.
    let target_connection = match (kind.as_str(), &row.target_connection) {
        ("wiki", _) => String::new(),
        (_, Some(target)) if !target.is_empty() => target.clone(),
        _ => row.connection.clone(),
    };
    Some(KtxArtifact {
        connection: row.connection.clone(),
        path: row.path.clone(),
        kind,
        target_connection,
        key,
        action: row.action.clone(),
        job: run.job.clone(),
        completed_ms: run.completed_ms,
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// What KTX 0.12.0 left behind after a run that wrote a page and two sources.
    const DUMP: &str = include_str!("../../../tests/fixtures/ktx/history.sql");

    /// SHA-256 that no file of the fixture has.
    const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    const SCHEMA: &str = "99b249fbeab03e4b814d96c32f14560cee4f011d38306c5c9497536f6b7be9e2";

    fn ingested() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(DUMP).unwrap();
        connection
    }

    fn read_within(
        connection: &Connection,
        limits: HistoryLimits,
    ) -> Result<Option<KtxHistory>, QueryError> {
        let runs = |from| tables::runs(connection, from, limits.piece);
        load(
            runs,
            |from| tables::provenance(connection, from, limits.piece),
            limits,
        )
    }

    fn read(connection: &Connection) -> Result<Option<KtxHistory>, QueryError> {
        read_within(connection, LIMITS)
    }

    /// Adds a later run that skips every file with its current hash and reports `units` and `failed`.
    fn again(connection: &Connection, number: u32, units: &str, failed: &str) {
        let body = format!("{{\"workUnits\":{units},\"failedWorkUnits\":{failed}}}");
        connection
            .execute_batch(&format!(
                "INSERT INTO bundle_ingest_runs SELECT 'r{number}', 'j{number}', connection_id, source_key, 's{number}',
                     trigger, NULL, 'completed', NULL, started_at, '2026-11-2{number}T00:00:00.000Z', NULL
                 FROM bundle_ingest_runs WHERE job_id = 'local-mws8g82v';
                 INSERT INTO bundle_ingest_reports VALUES ('p{number}', 'r{number}', 'j{number}', 'orbit', 'dbt', '{body}', 'x');
                 INSERT INTO bundle_ingest_provenance
                 SELECT DISTINCT raw_path || '{number}', connection_id, source_key, 's{number}', raw_path, raw_content_hash,
                     NULL, NULL, NULL, NULL, 'skipped', 'x'
                 FROM bundle_ingest_provenance WHERE sync_id LIKE '2026%'"
            ))
            .unwrap();
    }

    fn processed(connection: &Connection) -> Vec<String> {
        let mut paths: Vec<String> = read(connection)
            .unwrap()
            .unwrap()
            .files
            .into_iter()
            .map(|file| file.path)
            .collect();
        paths.sort();
        paths
    }

    #[test]
    fn files_and_artifacts_of_a_completed_run_are_known() {
        let history = read(&ingested()).unwrap().unwrap();
        assert_eq!(
            processed(&ingested()).len(),
            6,
            "files without output are included"
        );
        let schema = history
            .files
            .iter()
            .find(|file| file.path == "schema.yml")
            .unwrap();
        assert_eq!(
            (schema.connection.as_str(), schema.adapter.as_str()),
            ("orbit", "dbt")
        );
        assert_eq!(
            (schema.sha256.as_deref(), schema.completed_ms),
            (Some(SCHEMA), 1_795_375_893_608)
        );
        let mut made: Vec<String> = history
            .artifacts
            .iter()
            .filter(|made| made.path == "schema.yml")
            .map(|made| {
                format!(
                    "{} {}/{} {} by {}",
                    made.kind, made.target_connection, made.key, made.action, made.job
                )
            })
            .collect();
        made.sort();
        insta::assert_snapshot!(made.join("\n"), @r"
        sl orbit/m source_created by local-mws8g82v
        sl wh/orders source_created by local-mws8g82v
        wiki /p1 wiki_written by local-mws8g82v
        ");
    }

    #[test]
    fn skipped_files_count_unless_a_unit_of_their_run_failed() {
        let with_failure = |file: &str| {
            let connection = ingested();
            let report = "UPDATE bundle_ingest_reports SET body_json = json_set(body_json, '$.failedWorkUnits', json(?1))";
            connection.execute(report, [file]).unwrap();
            processed(&connection)
        };
        assert_eq!(with_failure("[]").len(), 6);
        assert_eq!(
            with_failure("[\"dbt-all\"]"),
            ["dbt_project.yml", "schema.yml", "sources.yml"]
        );
        let broken = ingested();
        broken
            .execute_batch("UPDATE bundle_ingest_reports SET body_json = '{'")
            .unwrap();
        assert_eq!(
            processed(&broken).len(),
            3,
            "an unreadable report counts as failed units"
        );
        broken
            .execute_batch("DELETE FROM bundle_ingest_reports")
            .unwrap();
        assert_eq!(processed(&broken).len(), 6, "as in KTX");
        broken
            .execute_batch("UPDATE bundle_ingest_runs SET status = 'failed'")
            .unwrap();
        assert_eq!(processed(&broken).len(), 0);
    }

    #[test]
    fn idle_runs_defer_to_the_run_before() {
        let connection = ingested();
        again(&connection, 3, "[{}]", "[]");
        assert_eq!(
            processed(&connection).len(),
            6,
            "unchanged files of a clean run"
        );
        again(&connection, 4, "[]", "[]");
        assert_eq!(processed(&connection).len(), 6, "nothing was new");
        connection
            .execute(
                "UPDATE bundle_ingest_provenance SET raw_content_hash = ?1 WHERE sync_id = 's4'",
                [OTHER],
            )
            .unwrap();
        assert_eq!(
            processed(&connection),
            Vec::<String>::new(),
            "the files changed, but no unit ingested them"
        );
        again(&connection, 5, "[{}]", "[\"dbt-all\"]");
        assert_eq!(
            processed(&connection),
            Vec::<String>::new(),
            "failed units run again"
        );
        again(&connection, 6, "[{}]", "[]");
        assert_eq!(processed(&connection).len(), 6);
        assert_eq!(
            read(&connection).unwrap().unwrap().artifacts.len(),
            7,
            "later runs do not remove artifacts"
        );
    }

    #[test]
    fn database_without_ingests_has_no_history() {
        let connection = Connection::open_in_memory().unwrap();
        assert_eq!(read(&connection), Ok(None));
        connection
            .execute_batch("CREATE TABLE bundle_ingest_runs (id)")
            .unwrap();
        assert!(
            read(&connection)
                .unwrap_err()
                .to_string()
                .contains("lacks tables")
        );
        let others =
            "CREATE TABLE bundle_ingest_reports (id); CREATE TABLE bundle_ingest_provenance (id)";
        connection.execute_batch(others).unwrap();
        assert!(
            read(&connection).is_err(),
            "tables of KTX's names with other columns"
        );
    }

    #[test]
    fn damaged_row_costs_that_row_and_is_named_once() {
        let schema = "WHERE raw_path = 'schema.yml' AND artifact_key = 'p1'";
        for (damage, why) in [
            ("raw_path = x'ff'", "raw_path is not text, or too long"),
            (
                "raw_path = CAST(x'ff' AS TEXT)",
                "raw_path is not UTF-8 text",
            ),
            (
                "raw_path = CAST(zeroblob(40000000) AS TEXT)",
                "raw_path is not text, or too long",
            ),
            (
                "raw_content_hash = 'none'",
                "raw_content_hash is not a SHA-256",
            ),
            (
                "artifact_kind = 'secret'",
                "artifact_kind is not a word of KTX",
            ),
            (
                "artifact_key = zeroblob(40000000)",
                "artifact_key is not text, or too long",
            ),
            (
                "artifact_key = 'p' || char(10) || '1'",
                "artifact_key is not a key of a page or source",
            ),
            (
                "artifact_key = printf('%0300d', 1)",
                "artifact_key is not a key of a page or source",
            ),
            (
                "action_type = 'ignore all rules'",
                "action_type is not a word of KTX",
            ),
        ] {
            let connection = ingested();
            connection
                .execute_batch(&format!(
                    "UPDATE bundle_ingest_provenance SET {damage} {schema}"
                ))
                .unwrap();
            // Reading has a lower limit than writing.
            connection
                .set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LENGTH, 1 << 20)
                .unwrap();
            let history = read(&connection).unwrap().unwrap();
            assert_eq!(
                (history.files.len(), history.artifacts.len()),
                (6, 6),
                "{damage}"
            );
            assert_eq!(history.damaged.count, 1, "{damage}");
            let example = history.damaged.example.unwrap();
            assert_eq!(
                example,
                format!("row 7 of bundle_ingest_provenance: {why}"),
                "{damage}"
            );
            assert_eq!(history.incomplete, None, "{damage}");
        }
        let connection = ingested();
        again(&connection, 3, "[{}]", "[]");
        connection
            .execute_batch(
                "UPDATE bundle_ingest_runs SET completed_at = 'soon' WHERE sync_id = 's3'",
            )
            .unwrap();
        let history = read(&connection).unwrap().unwrap();
        assert_eq!(
            (
                history.files.len(),
                history.artifacts.len(),
                history.damaged.count
            ),
            (6, 7, 1)
        );
        assert_eq!(
            history.damaged.example.as_deref(),
            Some("row 2 of bundle_ingest_runs: completed_at is not a time")
        );
    }

    #[test]
    fn history_in_small_pieces_is_the_whole_history() {
        let connection = ingested();
        for number in 3..9 {
            again(
                &connection,
                number,
                if number % 2 == 0 { "[]" } else { "[{}]" },
                "[]",
            );
        }
        let whole = read(&connection).unwrap();
        let pieces = [
            (1, u64::MAX, u64::MAX),
            (u64::MAX, 1, u64::MAX),
            (u64::MAX, u64::MAX, 3),
            (700, 200, 2),
        ];
        for (bytes, reports, rows) in pieces {
            let limits = HistoryLimits {
                piece: PageLimits {
                    bytes,
                    reports,
                    rows,
                },
                ..LIMITS
            };
            assert_eq!(
                read_within(&connection, limits).unwrap(),
                whole,
                "{limits:?}"
            );
        }
    }

    #[test]
    fn history_beyond_the_bounds_loses_the_oldest_rows() {
        let connection = ingested();
        again(&connection, 3, "[{}]", "[]");
        let piece = PageLimits {
            rows: 3,
            ..LIMITS.piece
        };
        let bounds = [
            (
                HistoryLimits {
                    piece,
                    rows: 6,
                    ..LIMITS
                },
                6,
            ),
            (
                HistoryLimits {
                    piece,
                    bytes: 900,
                    ..LIMITS
                },
                3,
            ),
        ];
        for (limits, files) in bounds {
            let history = read_within(&connection, limits).unwrap().unwrap();
            assert_eq!(
                history.files.len(),
                files,
                "the newest run has a row for each file"
            );
            assert_eq!(history.artifacts, [], "the older one is not read");
            assert!(history.incomplete.unwrap().starts_with("at most "));
        }
    }

    #[test]
    fn failure_after_the_first_piece_keeps_what_was_read() {
        let connection = ingested();
        let mut left = 1;
        let piece = PageLimits {
            rows: 8,
            ..LIMITS.piece
        };
        let fails_later = |from| {
            left -= 1;
            if left < 0 {
                Err(QueryError::TimedOut(3))
            } else {
                tables::provenance(&connection, from, piece)
            }
        };
        let history = load(
            |from| tables::runs(&connection, from, piece),
            fails_later,
            LIMITS,
        )
        .unwrap()
        .unwrap();
        assert!(!history.files.is_empty());
        assert_eq!(
            history.incomplete.as_deref(),
            Some("reading it takes too long")
        );
        let fails = |_| Err(QueryError::TimedOut(3));
        assert_eq!(
            load(|from| tables::runs(&connection, from, piece), fails, LIMITS),
            Err(QueryError::TimedOut(3))
        );
    }

    /// KTX records actions for a deleted file with an empty hash.
    #[test]
    fn files_that_a_run_found_gone_have_no_hash() {
        let connection = ingested();
        again(&connection, 3, "[]", "[]");
        connection
            .execute_batch(
                "UPDATE bundle_ingest_provenance SET raw_content_hash = '', artifact_kind = 'wiki', artifact_key = 'p1',
                     action_type = 'wiki_written' WHERE sync_id = 's3' AND raw_path = 'schema.yml'",
            )
            .unwrap();
        let history = read(&connection).unwrap().unwrap();
        let schema = history
            .files
            .iter()
            .find(|file| file.path == "schema.yml")
            .unwrap();
        assert_eq!((schema.sha256.as_deref(), history.files.len()), (None, 6));
    }
}
