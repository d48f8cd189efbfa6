//! The tables of KTX's database, read in pieces, newest row first.
//!
//! The file may be damaged or hostile, so this runs in a worker process ([`super::super::worker`]) on a read-only
//! connection. A row that cannot be read is counted and skipped. This module must not interpret how the rows relate.

use jiff::Timestamp;
use rusqlite::{Connection, Row, ToSql, limits::Limit, types::ValueRef};
use serde::{Deserialize, Serialize};

use crate::database::QueryError;

/// Tables that the reader needs.
const TABLES: [&str; 3] = [
    "bundle_ingest_runs",
    "bundle_ingest_reports",
    "bundle_ingest_provenance",
];

/// Largest report in bytes. A larger one counts as a report with failed units.
const MAX_REPORT_BYTES: i32 = 32 << 20;
/// Longest path and longest name in bytes.
const MAX_PATH_BYTES: i64 = 4096;
const MAX_NAME_BYTES: i64 = 500;
/// Longest key of an artifact in characters; KTX accepts no longer one.
const MAX_KEY_CHARS: usize = 200;

/// KTX's names for what a run did with a file. KTX rejects any other.
const ACTIONS: [&str; 7] = [
    "source_created",
    "measure_added",
    "join_added",
    "merged",
    "subsumed",
    "wiki_written",
    "skipped",
];
/// KTX's names for the kinds of artifacts.
const KINDS: [&str; 2] = ["wiki", "sl"];

/// Completed runs with the size of their report and their outcome: `clean` (had units, none failed), `idle` (no units)
/// or `failed` (had failed units). Texts that are too long become blobs, because loading one ends the statement.
const RUNS: &str = "
    SELECT run.number,
           coalesce((SELECT octet_length(body_json) FROM bundle_ingest_reports WHERE run_id = run.key LIMIT 1), 0),
           iif(octet_length(connection_id) > ?2, x'', connection_id),
           iif(octet_length(source_key) > ?2, x'', source_key),
           iif(octet_length(sync_id) > ?2, x'', sync_id),
           iif(octet_length(job_id) > ?2, x'', job_id),
           iif(octet_length(completed_at) > ?2, x'', completed_at),
           coalesce((
               SELECT CASE
                   WHEN octet_length(body_json) > ?3 OR NOT json_valid(body_json) THEN 'failed'
                   WHEN json_type(body_json, '$.workUnits') IS NOT 'array' THEN 'failed'
                   WHEN json_type(body_json, '$.failedWorkUnits') IS NOT 'array' THEN 'failed'
                   WHEN json_array_length(body_json, '$.failedWorkUnits') > 0 THEN 'failed'
                   WHEN json_array_length(body_json, '$.workUnits') = 0 THEN 'idle'
                   ELSE 'clean'
               END FROM bundle_ingest_reports WHERE run_id = run.key LIMIT 1
           ), 'clean')
    FROM (SELECT *, rowid AS number, iif(octet_length(id) > ?2, NULL, id) AS key FROM bundle_ingest_runs) AS run
    WHERE run.number <= ?1 AND iif(octet_length(status) > ?2, x'', status) = 'completed' ORDER BY run.number DESC";

/// Rows that connect a raw file and a run with an action and an artifact.
const PROVENANCE_QUERY: &str = "
    SELECT rowid, 0,
           iif(octet_length(connection_id) > ?2, x'', connection_id),
           iif(octet_length(source_key) > ?2, x'', source_key),
           iif(octet_length(sync_id) > ?2, x'', sync_id),
           iif(octet_length(raw_path) > ?3, x'', raw_path),
           iif(octet_length(raw_content_hash) > ?2, x'', raw_content_hash),
           iif(octet_length(action_type) > ?2, x'', action_type),
           iif(octet_length(artifact_kind) > ?2, x'', artifact_kind),
           iif(octet_length(artifact_key) > ?2, x'', artifact_key),
           iif(octet_length(target_connection_id) > ?2, x'', target_connection_id)
    FROM bundle_ingest_provenance WHERE rowid <= ?1 ORDER BY rowid DESC";

/// Limits of one piece of a table. A piece ends after the row that reaches one of them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::database) struct PageLimits {
    /// Bytes of the rows as JSON.
    pub(in crate::database) bytes: u64,
    /// Bytes of the reports that are parsed.
    pub(in crate::database) reports: u64,
    /// Rows, damaged ones included.
    pub(in crate::database) rows: u64,
}

/// A part of a table, newest row first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::database) struct KtxHistoryPage<T> {
    pub(super) rows: Vec<T>,
    pub(super) damaged: DamagedRows,
    /// Bytes of the rows as JSON.
    pub(super) bytes: u64,
    /// Rows that were read, damaged ones included.
    pub(super) visited: u64,
    /// First row of the next piece; `None` if this is the last one.
    pub(super) next: Option<i64>,
    /// Error that ended the piece before its limits and before the end of the table.
    pub(super) stopped: Option<QueryError>,
}

/// Rows with values that KTX does not write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedRows {
    pub count: u64,
    /// Position of one damaged row and what is wrong with it.
    pub example: Option<String>,
}

impl DamagedRows {
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.example = self.example.take().or(other.example);
    }
}

/// A completed run of KTX.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::database) struct KtxRunRow {
    /// Row number; later runs have a higher one.
    pub(super) row: i64,
    pub(super) connection: String,
    pub(super) adapter: String,
    pub(super) sync: String,
    pub(super) job: String,
    pub(super) completed_ms: u64,
    pub(super) outcome: KtxRunOutcome,
}

/// How the units of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum KtxRunOutcome {
    /// The run had units, and none failed.
    Clean,
    /// The run had no units.
    Idle,
    /// At least one unit failed.
    Failed,
}

/// What a run did with a raw file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::database) struct ProvenanceRow {
    pub(super) connection: String,
    pub(super) adapter: String,
    pub(super) sync: String,
    pub(super) path: String,
    /// SHA-256 in hexadecimal; `None` for a deleted file.
    pub(super) sha256: Option<String>,
    pub(super) action: String,
    /// Kind and key of the artifact, if the run wrote one.
    pub(super) artifact: Option<(String, String)>,
    pub(super) target_connection: Option<String>,
}

/// Reads completed runs from row `from` downwards; `None` if KTX never ingested anything in this project.
pub(in crate::database) fn runs(
    connection: &Connection,
    from: i64,
    limits: PageLimits,
) -> Result<Option<KtxHistoryPage<KtxRunRow>>, QueryError> {
    let tables: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN (?1, ?2, ?3)",
        TABLES,
        |row| row.get(0),
    )?;
    match usize::try_from(tables) {
        Ok(0) => return Ok(None),
        Ok(count) if count == TABLES.len() => {}
        _ => return Err(QueryError::Reported("it lacks tables of KTX".to_owned())),
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_REPORT_BYTES)?;
    piece(
        connection,
        TABLES[0],
        RUNS,
        &[&from, &MAX_NAME_BYTES, &MAX_REPORT_BYTES],
        limits,
        run,
    )
    .map(Some)
}

/// Reads provenance from row `from` downwards.
pub(in crate::database) fn provenance(
    connection: &Connection,
    from: i64,
    limits: PageLimits,
) -> Result<KtxHistoryPage<ProvenanceRow>, QueryError> {
    piece(
        connection,
        TABLES[2],
        PROVENANCE_QUERY,
        &[&from, &MAX_NAME_BYTES, &MAX_PATH_BYTES],
        limits,
        provenance_row,
    )
}

/// Reads rows of `sql` until a limit. The first two columns must be the row number and the bytes of a report.
fn piece<T: Serialize>(
    connection: &Connection,
    table: &str,
    sql: &str,
    params: &[&dyn ToSql],
    limits: PageLimits,
    parse: fn(&Row<'_>) -> Result<T, String>,
) -> Result<KtxHistoryPage<T>, QueryError> {
    let (mut piece, mut reports) = (KtxHistoryPage::default(), 0_u64);
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(params)?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(piece),
            Err(error) => {
                piece.stopped = Some(error.into());
                return Ok(piece);
            }
        };
        let number: i64 = row.get(0)?;
        piece.visited += 1;
        reports += row
            .get::<_, i64>(1)
            .map_or(0, |bytes| u64::try_from(bytes).unwrap_or_default());
        match parse(row) {
            Ok(row) => {
                piece.bytes += serde_json::to_vec(&row).map_or(0, |json| json.len() as u64);
                piece.rows.push(row);
            }
            Err(why) => {
                piece.damaged.add(DamagedRows {
                    count: 1,
                    example: Some(format!("row {number} of {table}: {why}")),
                });
            }
        }
        if piece.bytes >= limits.bytes || reports >= limits.reports || piece.visited >= limits.rows
        {
            piece.next = number.checked_sub(1);
            return Ok(piece);
        }
    }
}

impl<T> Default for KtxHistoryPage<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            damaged: DamagedRows::default(),
            bytes: 0,
            visited: 0,
            next: None,
            stopped: None,
        }
    }
}

fn run(row: &Row<'_>) -> Result<KtxRunRow, String> {
    let completed: Timestamp = text(row, 6, "completed_at")?
        .parse()
        .map_err(|_| "completed_at is not a time".to_owned())?;
    Ok(KtxRunRow {
        row: row.get(0).map_err(|error| error.to_string())?,
        connection: text(row, 2, "connection_id")?,
        adapter: text(row, 3, "source_key")?,
        sync: text(row, 4, "sync_id")?,
        job: text(row, 5, "job_id")?,
        completed_ms: u64::try_from(completed.as_millisecond()).unwrap_or_default(),
        outcome: match text(row, 7, "outcome")?.as_str() {
            "clean" => KtxRunOutcome::Clean,
            "idle" => KtxRunOutcome::Idle,
            _ => KtxRunOutcome::Failed,
        },
    })
}

fn provenance_row(row: &Row<'_>) -> Result<ProvenanceRow, String> {
    let hash = text(row, 6, "raw_content_hash")?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let sha256 = match (hash.is_empty(), is_hash) {
        (true, _) => None,
        (_, true) => Some(hash),
        _ => return Err("raw_content_hash is not a SHA-256".to_owned()),
    };
    let kind = optional_text(row, 8, "artifact_kind")?
        .map(|kind| word(kind, &KINDS, "artifact_kind"))
        .transpose()?;
    let key = optional_text(row, 9, "artifact_key")?.filter(|key| !key.is_empty());
    if key
        .as_ref()
        .is_some_and(|key| key.chars().any(char::is_control) || key.chars().count() > MAX_KEY_CHARS)
    {
        return Err("artifact_key is not a key of a page or source".to_owned());
    }
    Ok(ProvenanceRow {
        connection: text(row, 2, "connection_id")?,
        adapter: text(row, 3, "source_key")?,
        sync: text(row, 4, "sync_id")?,
        path: text(row, 5, "raw_path")?,
        sha256,
        action: word(text(row, 7, "action_type")?, &ACTIONS, "action_type")?,
        artifact: kind.zip(key),
        target_connection: optional_text(row, 10, "target_connection_id")?,
    })
}

fn word(word: String, known: &[&str], column: &str) -> Result<String, String> {
    if known.contains(&word.as_str()) {
        Ok(word)
    } else {
        Err(format!("{column} is not a word of KTX"))
    }
}

fn text(row: &Row<'_>, index: usize, column: &str) -> Result<String, String> {
    optional_text(row, index, column)?.ok_or_else(|| format!("{column} is missing"))
}

fn optional_text(row: &Row<'_>, index: usize, column: &str) -> Result<Option<String>, String> {
    match row.get_ref(index) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(ValueRef::Text(bytes)) => {
            let text =
                std::str::from_utf8(bytes).map_err(|_| format!("{column} is not UTF-8 text"))?;
            Ok(Some(text.to_owned()))
        }
        _ => Err(format!("{column} is not text, or too long")),
    }
}
