//! `sql_execution`: queries the database of a connection.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AgentTool, MAX_ANSWER_CHARS, ToolContext, not_found_reply, sl_common::join_names};
use crate::{
    database::{Database, QueryRows, RowLimits, SqlCell, StatementAnswer},
    spelling::did_you_mean_in_brackets,
    untrusted_text::excerpt,
};
use ingestdeck_core::units::ToolReply;

/// Longest result in characters. The rest of the answer is for notes about the result.
pub(super) const MAX_RESULT_CHARS: usize = MAX_ANSWER_CHARS - 3_000;

impl ToolContext {
    /// Whether at least one connection can be queried.
    pub(super) fn has_database(&self) -> bool {
        self.scope
            .connections
            .iter()
            .any(|connection| connection.database.is_some())
    }

    pub(super) fn database(&self, id: &str) -> Result<&Database, String> {
        let queryable = || {
            self.scope
                .connections
                .iter()
                .filter(|connection| connection.database.is_some())
        };
        let found = queryable().find(|connection| connection.id == id);
        found
            .and_then(|connection| connection.database.as_ref())
            .ok_or_else(|| {
                let ids: Vec<&str> = queryable()
                    .map(|connection| connection.id.as_str())
                    .collect();
                if self.scope.get(id).is_some() {
                    return format!(
                        "connection `{id}` cannot be queried; connections with a database: {}",
                        join_names(&ids)
                    );
                }
                let hint = did_you_mean_in_brackets(id, &ids);
                format!(
                    "there is no connection `{}`{hint}; connections with a database: {}",
                    excerpt(id),
                    join_names(&ids)
                )
            })
    }
}

#[derive(Debug)]
pub(super) struct SqlExecution;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SqlExecutionInput {
    /// Id of the connection to query.
    #[serde(rename = "connectionId")]
    connection: String,
    /// One SELECT or WITH statement, in the SQL dialect of the connection.
    #[schemars(length(min = 1, max = 100_000))]
    sql: String,
    /// Maximum number of rows; 100 by default.
    #[serde(rename = "rowLimit")]
    #[schemars(range(min = 1, max = 1_000))]
    row_limit: Option<u32>,
}

impl AgentTool for SqlExecution {
    const NAME: &'static str = "sql_execution";
    const DESCRIPTION: &'static str = "Run one read-only SELECT or WITH statement on a database connection, in its SQL \
        dialect. Returns a table of at most `rowLimit` rows (1 to 1000, default 100), or the error of the database. A \
        statement that runs too long is stopped.";
    const READ_ONLY: bool = true;
    type Input = SqlExecutionInput;

    fn is_offered(context: &ToolContext) -> bool {
        context.has_database()
    }

    fn run(
        context: &ToolContext,
        SqlExecutionInput {
            connection,
            sql,
            row_limit,
        }: SqlExecutionInput,
    ) -> ToolReply {
        let database = match context.database(&connection) {
            Ok(database) => database,
            Err(why) => return not_found_reply(why),
        };
        let limits = RowLimits {
            rows: row_limit.unwrap_or(100) as usize,
            chars: MAX_RESULT_CHARS,
        };
        match context
            .scope
            .sql_workers
            .query(database, database.query_timeout(), &sql, limits)
        {
            Ok(answer) => table(&connection, &sql, &answer, limits),
            Err(error) => ToolReply {
                structured: Some(json!({
                    "connectionId": connection, "headers": [], "rows": [], "rowCount": 0, "truncated": false, "sql": sql, "error": error.to_string(),
                })),
                ..ToolReply::declined(format!("SQL execution failed: {error}"))
            },
        }
    }
}

fn table(connection: &str, sql: &str, answer: &StatementAnswer, limits: RowLimits) -> ToolReply {
    let StatementAnswer {
        rows: found,
        tables,
        columns,
    } = answer;
    let QueryRows {
        headers,
        rows,
        truncated,
    } = found;
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let count = rows.len();
    let mut lines = vec![
        line(
            headers
                .iter()
                .map(|name| excerpt(name).replace('|', "\\|"))
                .collect(),
        ),
        line(headers.iter().map(|_| "---".to_owned()).collect()),
    ];
    lines.extend(
        rows.iter()
            .map(|row| line(row.iter().map(ToString::to_string).collect())),
    );
    lines.push(match (count, truncated) {
        (0, _) => "\nQuery returned no rows.".to_owned(),
        (_, false) => format!("\n{count} row(s)."),
        (_, true) if count < limits.rows => format!(
            "\n[the first {count} rows are shown, because more do not fit into one answer; select fewer columns, or \
             continue with ORDER BY … LIMIT … OFFSET {count}]"
        ),
        (_, true) => format!(
            "\n[the first {count} rows are shown, which is the rowLimit; raise it (at most 1000), or continue with \
             ORDER BY … LIMIT … OFFSET {count}]"
        ),
    });
    let values: Vec<Vec<Value>> = rows
        .iter()
        .map(|row| row.iter().map(SqlCell::to_json).collect())
        .collect();
    let columns: Vec<Value> = columns
        .iter()
        .map(|(table, column)| json!({"table": table, "column": column}))
        .collect();
    ToolReply {
        markdown: lines.join("\n"),
        structured: Some(json!({
            "connectionId": connection, "tables": tables, "columns": columns, "headers": headers, "rows": values, "rowCount": count, "truncated": truncated, "sql": sql,
        })),
        ..ToolReply::default()
    }
}
