//! The audit trail: the tool calls of all runs with the decisions about them.

use rusqlite::{Row, named_params, types::ValueRef};
use serde_json::Value;

use super::{Db, DbError, DbFault};
use ingestdeck_core::tape::RunId;

/// The columns of the audit trail, in order.
pub const AUDIT_COLUMNS: [&str; 24] = [
    "at",
    "project",
    "run",
    "agent",
    "connection",
    "unit",
    "attempt",
    "session",
    "model",
    "turn_number",
    "tool_use_id",
    "parent_tool_use_id",
    "tool",
    "input",
    "status",
    "error",
    "output_bytes",
    "output",
    "duration_ms",
    "waited_ms",
    "decision",
    "decided_by",
    "decision_reason",
    "seq",
];

/// Which calls are selected. Every condition must hold.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub run: Option<RunId>,
    /// Pattern for the key of the unit, as in SQLite's GLOB.
    pub unit: Option<String>,
    /// Pattern for the tool, with or without the prefix of its server.
    pub tool: Option<String>,
    pub decision: Option<&'static str>,
    /// Only failed and denied calls.
    pub only_failed: bool,
    /// First moment, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// First moment that is not included.
    pub until_ms: Option<i64>,
    /// Only this many of the newest calls.
    pub limit: Option<u64>,
}

impl Db {
    /// Passes the values of each selected call in the order of [`AUDIT_COLUMNS`], oldest first, until the callback
    /// returns false.
    pub fn audit(
        &self,
        filter: &AuditFilter,
        take: &mut dyn FnMut(Vec<Value>) -> bool,
    ) -> Result<(), DbError> {
        let at = super::moment("c.started_ms");
        let sql = format!(
            "SELECT * FROM (
                SELECT {at} AS at, r.project, c.run, r.agent, u.connection, c.unit, c.attempt, a.session, a.model,
                    c.turn_number, c.tool_use_id, c.parent_tool_use_id, c.tool, c.input, c.status, c.error,
                    c.output_bytes, c.output, c.duration_ms, c.waited_ms, c.decision, c.decided_by, c.decision_reason,
                    c.seq
                FROM tool_calls c JOIN runs r USING (run) LEFT JOIN units u USING (run, unit)
                    LEFT JOIN attempts a USING (run, unit, attempt)
                WHERE (:run IS NULL OR c.run = :run) AND (:unit IS NULL OR c.unit GLOB :unit)
                    AND (:tool IS NULL OR c.tool GLOB :tool OR c.tool GLOB 'mcp__*__' || :tool)
                    AND (:decision IS NULL OR c.decision = :decision)
                    AND (NOT :failed OR c.status IN ('error', 'denied') OR c.decision = 'denied')
                    AND (:since IS NULL OR {at} >= :since) AND (:until IS NULL OR {at} < :until)
                ORDER BY at DESC, c.run DESC, c.seq DESC, c.turn_number DESC LIMIT :limit)
            ORDER BY at, run, seq, turn_number"
        );
        let mut read = || -> Result<(), rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query(named_params! {
                ":run": filter.run.map(|run| run.to_string()),
                ":unit": filter.unit,
                ":tool": filter.tool,
                ":decision": filter.decision,
                ":failed": filter.only_failed,
                ":since": filter.since_ms,
                ":until": filter.until_ms,
                // SQLite reads a negative limit as none.
                ":limit": filter.limit.map_or(-1, super::to_i64),
            })?;
            while let Some(row) = rows.next()? {
                if !take(json_values(row, AUDIT_COLUMNS.len())?) {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }
}

/// The first `count` values of a row as JSON. A blob becomes hexadecimal text.
pub(super) fn json_values(row: &Row<'_>, count: usize) -> Result<Vec<Value>, rusqlite::Error> {
    let value = |index| {
        Ok(match row.get_ref(index)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => number.into(),
            // JSON has no infinity.
            ValueRef::Real(number) if number.is_finite() => number.into(),
            ValueRef::Real(number) => number.to_string().into(),
            ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
            ValueRef::Blob(bytes) => bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
                .into(),
        })
    };
    (0..count).map(value).collect()
}
