//! The arguments of a call that queries a database, for people who read it.
//!
//! Values for screens and lists only. It must not run or judge a query.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::text::one_row;

/// Longest arguments that are read. The tool takes 100,000 characters.
const MAX_INPUT_BYTES: usize = 512 * 1024;

/// A query that an agent sends to a database.
#[derive(Debug, Deserialize)]
pub struct SqlQuery {
    /// Id of the connection to query.
    #[serde(rename = "connectionId")]
    pub connection: String,
    /// The statement as the agent wrote it.
    pub sql: String,
    /// All other arguments, such as `rowLimit`.
    #[serde(flatten)]
    options: Map<String, Value>,
}

impl SqlQuery {
    /// True for the tool that runs a query, with or without the name of a server.
    pub fn is_query_tool(tool: &str) -> bool {
        tool.rsplit("__").next() == Some("sql_execution")
    }

    /// The query of a call. `None` for other tools, and for arguments that a reader should see as they are: those that
    /// are incomplete, or have a name twice.
    pub fn parse(tool: &str, input: &str) -> Option<Self> {
        if !Self::is_query_tool(tool) || input.len() > MAX_INPUT_BYTES {
            return None;
        }
        serde_json::from_str(input).ok()
    }

    /// The other arguments, each with its name.
    pub fn options(&self) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let options = self.options.iter();
        options
            .map(|(name, value)| format!("{name} {}", text(value)))
            .collect()
    }

    /// The query in one row, with marks for its line breaks.
    pub fn to_row(&self) -> String {
        let options = match self.options() {
            options if options.is_empty() => String::new(),
            options => format!(" ({})", options.join(", ")),
        };
        let row = format!("{}{options}: {}", self.connection, self.sql);
        one_row(&row, usize::MAX)
    }
}

/// The arguments of a call for one row: a query with marks for its line breaks, other arguments unchanged.
pub fn arguments_row(tool: &str, input: &str) -> String {
    SqlQuery::parse(tool, input).map_or_else(|| input.to_owned(), |query| query.to_row())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: &str = "mcp__ktx__sql_execution";

    #[test]
    fn query_is_shown_in_one_row_with_its_options() {
        let input = r#"{"sql":"SELECT \"a\"\n  FROM t -- all\n","connectionId":"wh","rowLimit":5}"#;
        assert_eq!(
            arguments_row(TOOL, input),
            "wh (rowLimit 5): SELECT \"a\" ⏎ FROM t -- all"
        );
    }

    #[test]
    fn other_arguments_are_shown_as_they_are() {
        for input in [
            r#"{"sql":"SELECT 1","connectionId":"wh","sql":"DROP TABLE t"}"#,
            r#"{"sql":"SELECT 1"}"#,
            r#"{"connectionId":"wh","sql":["SELECT 1"]}"#,
            r#"{"connectionId":"wh","sql":"SELECT"#,
            r#"{"connectionId":"wh","sql":"\ud800"}"#,
            "null",
        ] {
            assert_eq!(arguments_row(TOOL, input), input);
        }
        let query = r#"{"connectionId":"wh","sql":"SELECT 1"}"#;
        assert_eq!(arguments_row("mcp__ktx__wiki_read", query), query);
        assert_eq!(arguments_row("sql_execution", query), "wh: SELECT 1");
        let long = format!(
            r#"{{"connectionId":"wh","sql":"{}"}}"#,
            "x".repeat(MAX_INPUT_BYTES)
        );
        assert!(SqlQuery::parse(TOOL, &long).is_none());
    }
}
