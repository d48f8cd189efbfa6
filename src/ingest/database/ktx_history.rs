//! What KTX's own ingests of a project processed and wrote, as its database `.ktx/db.sqlite` has it.
//!
//! The file may be damaged or hostile, so this runs in a worker process ([`super::worker`]) on a connection that can only
//! read. It must not know what a plan is.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use rusqlite::{Connection, Row, limits::Limit};
use serde::{Deserialize, Serialize};

use super::QueryError;

/// Where KTX keeps its database, relative to the project.
pub(crate) const KTX_DATABASE: &str = ".ktx/db.sqlite";

/// Tables that are read.
const TABLES: [&str; 3] = ["bundle_ingest_runs", "bundle_ingest_reports", "bundle_ingest_provenance"];

/// Largest report in bytes. A larger one counts as that of a run with failed units.
const REPORT: i32 = 32 << 20;
/// Longest path and longest name in bytes; rows with longer ones are passed over.
const PATH: usize = 4096;
const NAME: usize = 500;

/// The provenance of completed runs, newest run first, each row with what its run came to:
/// `clean` had units and none failed, `idle` had no units, `failed` had units that failed.
const PROVENANCE: &str = "
    WITH done AS MATERIALIZED (
        SELECT run.rowid AS place, run.connection_id, run.source_key, run.sync_id, run.job_id, run.completed_at,
               CASE
                   WHEN report.id IS NULL THEN 'clean'
                   WHEN octet_length(report.body_json) > ?1 OR NOT json_valid(report.body_json) THEN 'failed'
                   WHEN json_type(report.body_json, '$.workUnits') IS NOT 'array' THEN 'failed'
                   WHEN json_type(report.body_json, '$.failedWorkUnits') IS NOT 'array' THEN 'failed'
                   WHEN json_array_length(report.body_json, '$.failedWorkUnits') > 0 THEN 'failed'
                   WHEN json_array_length(report.body_json, '$.workUnits') = 0 THEN 'idle'
                   ELSE 'clean'
               END AS outcome
        FROM bundle_ingest_runs AS run LEFT JOIN bundle_ingest_reports AS report ON report.run_id = run.id
        WHERE run.status = 'completed'
    )
    SELECT made.connection_id, made.source_key, made.raw_path, made.raw_content_hash, made.action_type,
           made.artifact_kind, made.artifact_key, made.target_connection_id, done.job_id, done.completed_at, done.outcome
    FROM bundle_ingest_provenance AS made JOIN done USING (connection_id, source_key, sync_id)
    ORDER BY done.completed_at DESC, done.place DESC, made.created_at DESC, made.rowid DESC";

/// What KTX's runs left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KtxHistory {
    /// Files that KTX counts as processed.
    pub(crate) files: Vec<KtxFile>,
    /// What KTX wrote from files, each artifact once for each file: the newest row.
    pub(crate) artifacts: Vec<KtxArtifact>,
}

/// A raw file that KTX processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KtxFile {
    /// Id of the connection in `ktx.yaml`.
    pub(crate) connection: String,
    /// Adapter that read the file, such as `dbt`.
    pub(crate) adapter: String,
    /// Path relative to the source.
    pub(crate) path: String,
    /// SHA-256 of what it held, in hexadecimal.
    pub(crate) sha256: String,
    /// When the run completed, in milliseconds since 1970.
    pub(crate) completed_ms: u64,
}

/// A page or source that KTX wrote from a raw file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KtxArtifact {
    /// Id of the connection in `ktx.yaml`.
    pub(crate) connection: String,
    /// Raw file, relative to the source.
    pub(crate) path: String,
    /// `wiki` or `sl`.
    pub(crate) kind: String,
    /// Connection of a source; empty for a page.
    pub(crate) target_connection: String,
    /// Page key or source name.
    pub(crate) key: String,
    /// KTX's word for what it did, like `wiki_written`.
    pub(crate) action: String,
    /// Id of KTX's job that wrote it, `local-<base36 milliseconds>`.
    pub(crate) job: String,
    /// When the run completed, in milliseconds since 1970.
    pub(crate) completed_ms: u64,
}

/// A row of [`PROVENANCE`].
struct Provenance {
    connection: String,
    adapter: String,
    path: String,
    hash: String,
    action: String,
    kind: Option<String>,
    key: Option<String>,
    target_connection: Option<String>,
    job: String,
    completed_ms: u64,
    outcome: RunOutcome,
}

/// What a run of KTX came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunOutcome {
    Clean,
    Idle,
    Failed,
}

/// What is known of a file while rows get older.
enum FileState {
    /// Only runs without units mentioned it, with this hash and at that time.
    Idle(String, u64),
    /// A run decided about it.
    Decided,
}

/// Reads the history; `None` if KTX never ingested anything here.
pub(super) fn read(connection: &Connection) -> Result<Option<KtxHistory>, QueryError> {
    let tables: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN (?1, ?2, ?3)",
        TABLES,
        |row| row.get(0),
    )?;
    match usize::try_from(tables) {
        Ok(0) => return Ok(None),
        Ok(count) if count == TABLES.len() => {}
        _ => return Err(QueryError::Sqlite("it lacks tables of KTX".to_owned())),
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, REPORT)?;
    let mut statement = connection.prepare(PROVENANCE)?;
    let mut rows = statement.query([REPORT])?;
    let mut history = KtxHistory::default();
    let mut states: HashMap<(String, String, String), FileState> = HashMap::new();
    let mut known: HashSet<(String, String, String, String, String)> = HashSet::new();
    while let Some(row) = rows.next()? {
        let Some(row) = provenance(row)? else { continue };
        if let Some(artifact) = artifact(&row) {
            let KtxArtifact { connection, path, kind, target_connection, key, .. } = artifact.clone();
            if known.insert((connection, path, kind, target_connection, key)) {
                history.artifacts.push(artifact);
            }
        }
        let file = (row.connection.clone(), row.adapter.clone(), row.path.clone());
        let state = states.get(&file);
        if matches!(state, Some(FileState::Decided)) {
            continue;
        }
        let idle = match state {
            Some(FileState::Idle(hash, _)) if *hash != row.hash => None,
            Some(FileState::Idle(_, completed_ms)) => Some(*completed_ms),
            _ => Some(row.completed_ms),
        };
        // KTX skips what has no output, also what has not changed: such a row counts if no unit of the run failed. A run
        // that had no units found nothing new, so the one before it decides.
        let next = match (row.action.as_str(), row.outcome, idle) {
            ("skipped", RunOutcome::Idle, Some(completed_ms)) => FileState::Idle(row.hash, completed_ms),
            ("skipped", RunOutcome::Idle | RunOutcome::Failed, _) | (_, _, None) => FileState::Decided,
            (_, _, Some(completed_ms)) => {
                let Provenance { connection, adapter, path, hash, .. } = row;
                history.files.push(KtxFile { connection, adapter, path, sha256: hash, completed_ms });
                FileState::Decided
            }
        };
        states.insert(file, next);
    }
    Ok(Some(history))
}

/// `None` for a row that is too long, or of no time.
fn provenance(row: &Row<'_>) -> Result<Option<Provenance>, rusqlite::Error> {
    let completed_at: Option<String> = row.get(9)?;
    let completed = completed_at.and_then(|at| at.parse::<Timestamp>().ok());
    let Some(completed) = completed else { return Ok(None) };
    let outcome: String = row.get(10)?;
    let row = Provenance {
        connection: row.get(0)?,
        adapter: row.get(1)?,
        path: row.get(2)?,
        hash: row.get(3)?,
        action: row.get(4)?,
        kind: row.get(5)?,
        key: row.get(6)?,
        target_connection: row.get(7)?,
        job: row.get(8)?,
        completed_ms: u64::try_from(completed.as_millisecond()).unwrap_or(0),
        outcome: match outcome.as_str() {
            "clean" => RunOutcome::Clean,
            "idle" => RunOutcome::Idle,
            _ => RunOutcome::Failed,
        },
    };
    let names = [&row.connection, &row.adapter, &row.hash, &row.action, &row.job];
    let optional = [&row.kind, &row.key, &row.target_connection];
    let fits = row.path.len() <= PATH
        && names.into_iter().chain(optional.into_iter().flatten()).all(|name| name.len() <= NAME);
    Ok(fits.then_some(row))
}

/// The artifact of a row, if it names one of a kind that exists.
fn artifact(row: &Provenance) -> Option<KtxArtifact> {
    let kind = row.kind.as_deref().filter(|kind| ["wiki", "sl"].contains(kind))?;
    let key = row.key.clone().filter(|key| !key.is_empty())?;
    // As in KTX: a source is of the ingested connection unless the row names another one.
    let target_connection = match (kind, &row.target_connection) {
        ("wiki", _) => String::new(),
        (_, Some(target)) => target.clone(),
        (_, None) => row.connection.clone(),
    };
    Some(KtxArtifact {
        connection: row.connection.clone(),
        path: row.path.clone(),
        kind: kind.to_owned(),
        target_connection,
        key,
        action: row.action.clone(),
        job: row.job.clone(),
        completed_ms: row.completed_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What KTX 0.12.0 left behind after a run that wrote a page and two sources.
    const DUMP: &str = include_str!("../../../tests/fixtures/ktx/history.sql");

    const SCHEMA: &str = "99b249fbeab03e4b814d96c32f14560cee4f011d38306c5c9497536f6b7be9e2";

    fn ingested() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(DUMP).unwrap();
        connection
    }

    /// A later run that skips every file with the hash that it had; a report of `units` and `failed` ones.
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
        let mut paths: Vec<String> =
            read(connection).unwrap().unwrap().files.into_iter().map(|file| file.path).collect();
        paths.sort();
        paths
    }

    #[test]
    fn files_and_artifacts_of_a_completed_run_are_known() {
        let history = read(&ingested()).unwrap().unwrap();
        assert_eq!(processed(&ingested()).len(), 6, "also those without output");
        let schema = history.files.iter().find(|file| file.path == "schema.yml").unwrap();
        assert_eq!((schema.connection.as_str(), schema.adapter.as_str()), ("orbit", "dbt"));
        assert_eq!((schema.sha256.as_str(), schema.completed_ms), (SCHEMA, 1_795_375_893_608));
        let mut made: Vec<String> = history
            .artifacts
            .iter()
            .filter(|made| made.path == "schema.yml")
            .map(|made| {
                format!("{} {}/{} {} by {}", made.kind, made.target_connection, made.key, made.action, made.job)
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
            let report =
                "UPDATE bundle_ingest_reports SET body_json = json_set(body_json, '$.failedWorkUnits', json(?1))";
            connection.execute(report, [file]).unwrap();
            processed(&connection)
        };
        assert_eq!(with_failure("[]").len(), 6);
        assert_eq!(with_failure("[\"dbt-all\"]"), ["dbt_project.yml", "schema.yml", "sources.yml"]);
        let broken = ingested();
        broken.execute_batch("UPDATE bundle_ingest_reports SET body_json = '{'").unwrap();
        assert_eq!(processed(&broken).len(), 3, "a report that cannot be read excuses nothing");
        broken.execute_batch("DELETE FROM bundle_ingest_reports").unwrap();
        assert_eq!(processed(&broken).len(), 6, "as in KTX");
        broken.execute_batch("UPDATE bundle_ingest_runs SET status = 'failed'").unwrap();
        assert_eq!(processed(&broken).len(), 0);
    }

    #[test]
    fn newest_run_decides_and_idle_runs_ask_the_one_before() {
        let connection = ingested();
        again(&connection, 3, "[{}]", "[]");
        assert_eq!(processed(&connection).len(), 6, "unchanged files of a clean run");
        again(&connection, 4, "[]", "[]");
        assert_eq!(processed(&connection).len(), 6, "nothing was new");
        connection
            .execute_batch("UPDATE bundle_ingest_provenance SET raw_content_hash = 'x' WHERE sync_id = 's4'")
            .unwrap();
        assert_eq!(processed(&connection), Vec::<String>::new(), "they changed, and no unit was made of that");
        again(&connection, 5, "[{}]", "[\"dbt-all\"]");
        assert_eq!(processed(&connection), Vec::<String>::new(), "units that failed come back");
        again(&connection, 6, "[{}]", "[]");
        assert_eq!(processed(&connection).len(), 6);
        assert_eq!(read(&connection).unwrap().unwrap().artifacts.len(), 7, "whatever came after");
    }

    #[test]
    fn database_without_ingests_has_no_history() {
        let connection = Connection::open_in_memory().unwrap();
        assert_eq!(read(&connection), Ok(None));
        connection.execute_batch("CREATE TABLE bundle_ingest_runs (id)").unwrap();
        assert!(read(&connection).unwrap_err().to_string().contains("lacks tables"));
        let others = "CREATE TABLE bundle_ingest_reports (id); CREATE TABLE bundle_ingest_provenance (id)";
        connection.execute_batch(others).unwrap();
        assert!(read(&connection).is_err(), "tables of KTX's names with other columns");
        let connection = ingested();
        connection
            .execute_batch("UPDATE bundle_ingest_provenance SET raw_path = x'ff' WHERE raw_path = 'schema.yml'")
            .unwrap();
        assert!(read(&connection).is_err(), "a path that is no text");
    }
}
