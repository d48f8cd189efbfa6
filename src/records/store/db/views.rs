//! The views of the index that commands print: the tool calls with the decisions about them, and the costs of attempts.

use rusqlite::{Row, types::ValueRef};
use serde_json::{Map, Value};

use super::{Db, DbError, to_i64};
use ingestdeck_core::tape::RunId;

/// A view that a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexView {
    /// Tool calls, oldest first.
    Audit,
    /// Attempts, summed up by [`IndexFilter::by`]; the last row, without a key, is the total.
    Costs,
}

/// Which rows are selected. Every condition must hold; each view has those that fit it.
#[derive(Clone, Debug, Default)]
pub struct IndexFilter {
    /// What a row sums up: `day`, `connection`, `model`, `unit` or `run`.
    pub by: String,
    pub run: Option<RunId>,
    /// Pattern for the key of the unit, as in SQLite's GLOB.
    pub unit: Option<String>,
    /// Pattern for the tool, with or without the prefix of its server.
    pub tool: Option<String>,
    pub decision: Option<String>,
    /// Only failed and denied calls.
    pub only_failed: bool,
    /// First moment, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// First moment that is not included.
    pub until_ms: Option<i64>,
    /// Only this many of the newest calls.
    pub limit: Option<u64>,
}

const AUDIT: &str = "
    SELECT strftime('%Y-%m-%dT%H:%M:%fZ', ms / 1000.0, 'unixepoch') AS at, * FROM (
        SELECT r.project, c.run, r.agent, u.connection, c.unit, c.attempt, a.session, a.model, c.turn_number,
            c.tool_use_id, c.parent_tool_use_id, c.tool, c.input, c.status, c.error, c.output_bytes, c.output,
            c.duration_ms, c.waited_ms, c.decision, c.decided_by, c.decision_reason, c.seq, {moment of c} AS ms
        FROM tool_calls c JOIN runs r USING (run) LEFT JOIN units u USING (run, unit)
            LEFT JOIN attempts a USING (run, unit, attempt)
        WHERE (:run IS NULL OR c.run = :run) AND (:unit IS NULL OR c.unit GLOB :unit)
            AND (:tool IS NULL OR c.tool GLOB :tool OR c.tool GLOB 'mcp__*__' || :tool)
            AND (:decision IS NULL OR c.decision = :decision)
            AND (NOT :failed OR c.status IN ('error', 'denied') OR c.decision = 'denied')
            AND (:since IS NULL OR ms >= :since) AND (:until IS NULL OR ms < :until)
        ORDER BY ms DESC, c.run DESC, c.seq DESC, c.turn_number DESC LIMIT :limit)
    ORDER BY ms, run, seq, turn_number";

/// An attempt whose agent reported no models belongs to the model of its session. The cost of a result cannot be divided
/// among models. Sums of tokens saturate, and costs have the digits that agents report.
const COSTS: &str = "
    WITH attempt AS (
        SELECT a.*, {moment of a} AS ms, r.scripted, u.connection, count(m.model) AS models,
            iif(count(m.cost_usd) = count(m.model), sum(m.cost_usd), NULL) AS usage
        FROM attempts a JOIN runs r USING (run) LEFT JOIN units u USING (run, unit)
            LEFT JOIN model_usage m USING (run, unit, attempt)
        WHERE (:run IS NULL OR a.run = :run) AND (:since IS NULL OR ms >= :since) AND (:until IS NULL OR ms < :until)
        GROUP BY a.run, a.unit, a.attempt),
    part AS (
        SELECT NULL AS key, 1 AS models, cost_usd AS cost, cost_usd AS total, usage, scripted,
            input_tokens, output_tokens, cache_read, cache_write
        FROM attempt
        UNION ALL SELECT
            CASE :by WHEN 'run' THEN run WHEN 'unit' THEN unit WHEN 'connection'
                THEN coalesce(connection, iif(unit = 'reconcile', 'reconcile', '?'))
                WHEN 'day' THEN date(ms / 1000.0, 'unixepoch') ELSE coalesce(model, '?') END,
            1, cost_usd, cost_usd, usage, scripted, input_tokens, output_tokens, cache_read, cache_write
        FROM attempt WHERE :by <> 'model' OR models = 0
        UNION ALL SELECT m.model, a.models, m.cost_usd, a.cost_usd, m.cost_usd, a.scripted,
            m.input_tokens, m.output_tokens, m.cache_read, m.cache_write
        FROM attempt a JOIN model_usage m USING (run, unit, attempt) WHERE :by = 'model')
    SELECT :by AS by, key, count(*) AS attempts, sum(cost IS NULL) AS unknown_attempts,
        CAST(total(input_tokens) AS INTEGER) AS input_tokens, CAST(total(output_tokens) AS INTEGER) AS output_tokens,
        CAST(total(cache_read) AS INTEGER) AS cache_read_tokens,
        CAST(total(cache_write) AS INTEGER) AS cache_write_tokens,
        round(sum(usage), 9) + 0.0 AS model_usage_usd,
        iif(max(models) > 1, NULL, round(sum(total), 9) + 0.0) AS total_cost_usd,
        iif(max(models) > 1, NULL, round(sum(total - usage), 9) + 0.0) AS difference_usd,
        sum(cost) AS cost_usd, sum(usage IS NULL) AS unknown_usages, sum(scripted) AS scripted_attempts
    FROM part GROUP BY key ORDER BY key IS NULL, key";

impl IndexView {
    /// The published columns, in order. Rows may have more.
    pub fn columns(self) -> Vec<&'static str> {
        let columns = match self {
            Self::Audit => {
                "at project run agent connection unit attempt session model turn_number tool_use_id \
                 parent_tool_use_id tool input status error output_bytes output duration_ms waited_ms decision \
                 decided_by decision_reason seq"
            }
            Self::Costs => {
                "by key attempts unknown_attempts input_tokens output_tokens cache_read_tokens cache_write_tokens \
                 model_usage_usd total_cost_usd difference_usd"
            }
        };
        columns.split(' ').collect()
    }
}

impl Db {
    /// Passes each selected row by the names of its columns, until the callback returns false.
    pub fn rows(
        &self,
        view: IndexView,
        filter: &IndexFilter,
        take: &mut dyn FnMut(Map<String, Value>) -> bool,
    ) -> Result<(), DbError> {
        let sql = match view {
            IndexView::Audit => AUDIT.replace("{moment of c}", &moment("c.started_ms")),
            IndexView::Costs => COSTS.replace("{moment of a}", &moment("a.started_ms")),
        };
        let mut read = || -> Result<(), rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let parameters: [(&str, &dyn rusqlite::ToSql); 9] = [
                (":by", &filter.by),
                (":run", &filter.run.map(|run| run.to_string())),
                (":unit", &filter.unit),
                (":tool", &filter.tool),
                (":decision", &filter.decision),
                (":failed", &filter.only_failed),
                (":since", &filter.since_ms),
                (":until", &filter.until_ms),
                // SQLite reads a negative limit as none.
                (":limit", &filter.limit.map_or(-1, to_i64)),
            ];
            for (name, value) in parameters {
                if let Some(index) = statement.parameter_index(name)? {
                    statement.raw_bind_parameter(index, value)?;
                }
            }
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                if !take(names.iter().cloned().zip(json_values(row)?).collect()) {
                    break;
                }
            }
            Ok(())
        };
        self.checked(read())
    }
}

/// SQL for a moment in milliseconds since 1970. A tape counts `elapsed` from the start of its run `r`; moments outside
/// the years 0 to 9999, which only a damaged tape has, become the first or last one.
fn moment(elapsed: &str) -> String {
    const RANGE_MS: (i64, i64) = (-62_167_219_200_000, 253_402_207_199_999);
    let (first, last) = RANGE_MS;
    format!(
        "max({first}, min({last}, min({last}, {elapsed})
            + coalesce(CAST(unixepoch(r.started_at, 'subsec') * 1000 AS INTEGER), {first})))"
    )
}

/// The values of a row as JSON. A blob becomes hexadecimal text.
pub(super) fn json_values(row: &Row<'_>) -> Result<Vec<Value>, rusqlite::Error> {
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
    (0..row.as_ref().column_count()).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_hostile_tokens_saturate() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&directory.path().join("db.sqlite")).unwrap();
        db.connection
            .execute_batch(
                "INSERT INTO runs VALUES ('r', 'p', 'ingestdeck', '2026-01-31T23:59:59.5Z', 0, 1, 2, 3, NULL, 1, 1, 0,
                    0.5, 0, 0, 'claude', 0, 0, 0, NULL);
                 INSERT INTO attempts SELECT 'r', value, 1, 's', 'm', 600, NULL, NULL, NULL, NULL, NULL, 1, 1, 0, 0,
                    0.1, 9223372036854775807, 2, 3, 4 FROM json_each('[\"u\", \"v\"]')",
            )
            .unwrap();
        let filter = IndexFilter {
            by: "day".to_owned(),
            ..IndexFilter::default()
        };
        let mut rows = Vec::new();
        db.rows(IndexView::Costs, &filter, &mut |row| {
            rows.push(row);
            true
        })
        .unwrap();
        let keys: Vec<&Value> = rows.iter().map(|row| &row["key"]).collect();
        assert_eq!(keys, [&Value::from("2026-02-01"), &Value::Null]);
        assert_eq!(
            (&rows[1]["input_tokens"], &rows[1]["total_cost_usd"]),
            (&i64::MAX.into(), &0.2.into())
        );
    }
}
