//! `entity_details`: looks up tables and columns of a connection.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{AgentTool, ToolContext, not_found_reply, sql_execution::MAX_RESULT_CHARS};
use crate::{
    database::{ColumnInfo, LookupTarget, STATEMENT_TIMEOUT, TableInfo, TableLookup},
    untrusted_text::one_line,
};
use ingestdeck_core::units::ToolReply;

#[derive(Debug)]
pub(super) struct EntityDetails;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EntityDetailsInput {
    /// Id of the connection to query.
    #[serde(rename = "connectionId")]
    connection: String,
    /// Tables or columns to look up.
    #[schemars(length(min = 1, max = 50))]
    targets: Vec<EntityTarget>,
}

/// A table or column, given either by `display` (`orders`, `main.orders`, `orders.total`) or by `name` and `column`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EntityTarget {
    /// The table or column as written in SQL. Required unless `name` is given.
    display: Option<String>,
    /// Ignored, because SQLite has no catalogs.
    catalog: Option<String>,
    /// Ignored, because only the schema `main` is read.
    db: Option<String>,
    /// Name of the table or view. Required unless `display` is given.
    name: Option<String>,
    /// Name of the column; only used with `name`.
    column: Option<String>,
}

impl EntityTarget {
    /// Name of the target in an answer.
    fn label(&self) -> String {
        let parts = [&self.catalog, &self.db, &self.name, &self.column];
        let joined = parts
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(".");
        one_line(self.display.as_deref().unwrap_or(&joined))
    }

    /// The tables and columns that the target may mean, the likeliest first. Names may contain dots.
    fn interpretations(&self) -> LookupTarget {
        if let Some(name) = &self.name {
            return vec![(name.clone(), self.column.clone())];
        }
        let display = self.display.as_deref().unwrap_or_default().trim();
        let bare = display.strip_prefix("main.").unwrap_or(display);
        let mut readings = Vec::new();
        for text in [display, bare] {
            readings.push((unquote(text), None));
            readings.extend(
                text.rsplit_once('.')
                    .map(|(table, column)| (unquote(table), Some(unquote(column)))),
            );
        }
        readings
    }
}

fn unquote(name: &str) -> String {
    let ends = [('"', '"'), ('`', '`'), ('[', ']')];
    let inner = ends
        .iter()
        .find_map(|(open, close)| name.strip_prefix(*open)?.strip_suffix(*close));
    inner.unwrap_or(name).to_owned()
}

impl AgentTool for EntityDetails {
    const NAME: &'static str = "entity_details";
    const DESCRIPTION: &'static str = "Look up tables, views and columns of a SQLite connection: types, keys, \
        nullability and sample values. Use it before you name them in a page or source.";
    const READ_ONLY: bool = true;
    type Input = EntityDetailsInput;

    fn is_offered(context: &ToolContext) -> bool {
        context.has_database()
    }

    fn run(
        context: &ToolContext,
        EntityDetailsInput {
            connection,
            targets,
        }: EntityDetailsInput,
    ) -> ToolReply {
        let path = match context.database(&connection) {
            Ok(path) => path,
            Err(why) => return not_found_reply(why),
        };
        if let Some(index) = targets
            .iter()
            .position(|target| target.display.is_none() && target.name.is_none())
        {
            return not_found_reply(format_args!(
                "targets[{index}] names no table; give it `display` or `name`"
            ));
        }
        let readings = targets.iter().map(EntityTarget::interpretations).collect();
        match context
            .scope
            .sql_workers
            .look_up(path, STATEMENT_TIMEOUT, readings)
        {
            Ok(found) => details_reply(&targets, &found),
            Err(error) => not_found_reply(format_args!("connection `{connection}`: {error}")),
        }
    }
}

fn details_reply(targets: &[EntityTarget], found: &[TableLookup]) -> ToolReply {
    let mut text = String::new();
    let (mut resolved, mut missing) = (Vec::new(), Vec::new());
    for (index, (target, found)) in targets.iter().zip(found).enumerate() {
        let label = target.label();
        let part = match found {
            TableLookup::Found(table) => describe_table(table),
            TableLookup::MissingColumn(table) => {
                let names: Vec<&str> = table
                    .columns
                    .iter()
                    .map(|column| column.name.as_str())
                    .collect();
                format!(
                    "Column not found: {label}\nAvailable columns: {}",
                    names.join(", ")
                )
            }
            TableLookup::MissingTable { closest: None } => format!("Not found: {label}"),
            TableLookup::MissingTable {
                closest: Some(closest),
            } => {
                format!("Not found: {label}\nClosest matches: {closest}")
            }
        };
        if !text.is_empty() && text.chars().count() + part.chars().count() > MAX_RESULT_CHARS {
            text.push_str(&format!(
                "\n\n[the first {index} targets are shown; look up the others in another call]"
            ));
            break;
        }
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&part);
        match found {
            TableLookup::Found(table) => resolved.push(table.name.as_str()),
            TableLookup::MissingColumn(_) | TableLookup::MissingTable { .. } => missing.push(label),
        }
    }
    let structured = json!({"resolved": resolved, "missing": missing, "scanAvailable": true});
    ToolReply {
        markdown: text,
        structured: Some(structured),
        ..ToolReply::default()
    }
}

fn describe_table(table: &TableInfo) -> String {
    let column = |column: &ColumnInfo| {
        let kind = if column.declared_type.is_empty() {
            "no type"
        } else {
            &column.declared_type
        };
        let key = if column.is_key { ", PK" } else { "" };
        let samples = if column.samples.is_empty() {
            String::new()
        } else {
            format!(" - sample: {}", json!(column.samples))
        };
        format!(
            "- {} ({kind}, nullable={}{key}){samples}",
            one_line(&column.name),
            column.nullable
        )
    };
    let mut lines = vec![
        format!("### {}", one_line(&table.name)),
        format!(
            "Type: {} | Native columns: {}",
            table.kind,
            table.columns.len()
        ),
    ];
    if !table.foreign_keys.is_empty() {
        let keys: Vec<String> = table.foreign_keys.iter().map(ToString::to_string).collect();
        lines.push(format!("Foreign keys: {}", keys.join(", ")));
    }
    if let Some(problem) = &table.error {
        lines.push(format!("Cannot be read: {problem}"));
    }
    lines.push("Columns:".into());
    lines.extend(table.columns.iter().map(column));
    lines.join("\n")
}
