//! Shared parts of the semantic-layer tools: resolving connections and declining calls.

use std::time::Duration;

use serde_json::{Value, json};

use super::{ToolContext, not_found_reply, refusal};
use crate::{
    connection_scope::ConnectionAccess,
    database::{
        Database, QueryError, RowLimits, SqlWorkers, TableInfo, TableLookup, WarehouseDriver,
    },
    facts::TableName,
    line_budget::first_names,
    semantic_layer::{self, FindSourceError, SemanticLayer, SourceDoc, SourceKind, maps_at},
    spelling::{did_you_mean, did_you_mean_in_brackets},
    untrusted_text::{excerpt, one_line},
    workspace::WriteError,
};
use ingestdeck_core::{diagnostic::Problem, units::ToolReply};

/// Time limit for checking a source in the database.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

impl ToolContext {
    /// The semantic layer of this attempt.
    pub(super) fn semantic_layer(&self) -> SemanticLayer<'_> {
        SemanticLayer(&self.workspace)
    }

    /// A sentence with the connections that sources may be written for. `None` if this attempt writes no sources.
    pub(super) fn targets_sentence(&self) -> Option<String> {
        let target = |connection: &ConnectionAccess| match &connection.driver {
            Some(driver) => format!("{} ({})", connection.id, excerpt(driver)),
            None => connection.id.clone(),
        };
        let targets: Vec<String> = self.scope.targets().map(target).collect();
        let may_write = self.unit.planned.sl_disallowed.is_none() && !targets.is_empty();
        may_write.then(|| {
            format!(
                "Sources may be written for these connections: {}.",
                join_names(&targets)
            )
        })
    }

    /// The connection `id`. The error is a sentence with the existing ones.
    pub(super) fn find_connection(&self, id: &str) -> Result<&ConnectionAccess, Problem> {
        self.scope.get(id).ok_or_else(|| {
            let ids: Vec<&str> = self
                .scope
                .connections
                .iter()
                .map(|connection| connection.id.as_str())
                .collect();
            let hint = did_you_mean_in_brackets(id, &ids);
            Problem::new(format!(
                "there is no connection `{}`{hint}; available connections: {}",
                excerpt(id),
                join_names(&ids)
            ))
        })
    }
}

/// Most connections that an answer names.
const MAX_LISTED: usize = 50;

/// The names in backquotes, up to a limit.
pub(super) fn join_names(names: &[impl AsRef<str>]) -> String {
    first_names(names, MAX_LISTED)
}

/// Why a source is not changed.
pub(super) struct DeclinedSourceChange {
    reason: &'static str,
    errors: Vec<String>,
}

impl DeclinedSourceChange {
    pub(super) fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            reason,
            errors: vec![text.into()],
        }
    }

    pub(super) fn invalid(errors: Vec<String>) -> Self {
        Self {
            reason: "validation_failed",
            errors,
        }
    }

    pub(super) fn into_reply(self, tool: &str, connection: &str, source: &str) -> ToolReply {
        let lines: Vec<String> = self
            .errors
            .iter()
            .map(|error| format!("- {error}"))
            .collect();
        let text = format!(
            "Source **{}** was NOT saved, {} error(s):\n{}",
            excerpt(source),
            self.errors.len(),
            lines.join("\n")
        );
        let detail = json!({
            "reason": self.reason, "connectionId": connection, "sourceName": source, "errors": self.errors,
        });
        refusal(tool, text, detail)
    }
}

impl From<WriteError> for DeclinedSourceChange {
    fn from(error: WriteError) -> Self {
        Self::new(super::decline_reason(&error), error.to_string())
    }
}

impl From<FindSourceError> for DeclinedSourceChange {
    fn from(error: FindSourceError) -> Self {
        Self::new("source_unreadable", error.to_string())
    }
}

impl From<std::io::Error> for DeclinedSourceChange {
    fn from(error: std::io::Error) -> Self {
        Self::new(
            "source_unreadable",
            format!("the semantic layer cannot be read: {error}"),
        )
    }
}

/// Checks that the connection is writable and that the raw files belong to the unit.
pub(super) fn check_change(
    context: &ToolContext,
    connection: &str,
    raw_paths: Option<&[String]>,
) -> Result<(), DeclinedSourceChange> {
    if !context
        .scope
        .get(connection)
        .is_some_and(|connection| connection.is_target)
    {
        let targets: Vec<&str> = context
            .scope
            .targets()
            .map(|target| target.id.as_str())
            .collect();
        let hint = did_you_mean_in_brackets(connection, &targets);
        let text = format!(
            "Connection \"{}\" is not available to this ingest stage{hint}; sources may be written for {}",
            excerpt(connection),
            join_names(&targets)
        );
        return Err(DeclinedSourceChange::new("connection_not_allowed", text));
    }
    context
        .check_raw_paths(raw_paths)
        .map_err(|why| DeclinedSourceChange::new("raw_paths_not_allowed", why))
}

/// Validates `doc` as the source `name` of `connection`. Returns the warnings if there are no errors. An edit is judged
/// by the errors that it adds to those of the source `before`.
pub(super) fn validate_change(
    context: &ToolContext,
    connection: &str,
    name: &str,
    doc: &SourceDoc,
    before: Option<&SourceDoc>,
) -> Result<Vec<String>, DeclinedSourceChange> {
    if doc.get("name").and_then(Value::as_str) != Some(name) {
        let found = doc.get("name").map_or_else(
            || "missing".to_owned(),
            |name| format!("`{}`", excerpt(&display_text(name))),
        );
        return Err(DeclinedSourceChange::new(
            "name_mismatch",
            format!(
                "the name in source is {found}; it must be `{}`, the same as sourceName",
                one_line(name)
            ),
        ));
    }
    let mut sources = context.semantic_layer().sources(connection)?;
    let database = context
        .scope
        .get(connection)
        .and_then(|connection| connection.database.as_ref());
    let probe = database
        .and_then(|database| probe_database(&context.scope.sql_workers, database, name, doc));
    sources.known_tables = context.scope.known_tables(connection);
    if let (Some(known), Some(probe)) = (&mut sources.known_tables, &probe) {
        known.answers.extend(probe.answer.clone());
    }
    let existing = sources
        .by_name
        .get(name)
        .and_then(|source| source.doc.get("table")?.as_str());
    let existing = existing.map(|table| table.trim().to_owned());
    if let Some(known) = &mut sources.known_tables {
        known.tolerated = existing;
    }
    let before = before.map(|before| semantic_layer::validate_source(name, before, &sources));
    sources.insert(name, doc.clone());
    let mut found = semantic_layer::validate_source(name, doc, &sources);
    if let Some(before) = before {
        found.excuse_known(&before);
    }
    if !found.errors.is_empty() {
        return Err(DeclinedSourceChange::invalid(found.errors));
    }
    let mut warnings = found.warnings;
    warnings.extend(probe.and_then(|probe| probe.warning));
    Ok(warnings)
}

/// What the database answers about the table or query of a source.
struct SourceProbe {
    /// The table, and whether it exists; `None` for a query, and if the database did not answer.
    answer: Option<(String, bool)>,
    /// What is wrong with the source, if anything is.
    warning: Option<String>,
}

/// Checks the table or query of a source in the database. `None` if there is nothing to check.
fn probe_database(
    sql_workers: &SqlWorkers,
    database: &Database,
    name: &str,
    doc: &SourceDoc,
) -> Option<SourceProbe> {
    let text = |key: &str| {
        doc.get(key)
            .and_then(Value::as_str)
            .map(str::trim)
            .filter(|text| !text.is_empty())
    };
    let (sql, table) = match (SourceKind::from_doc(doc), text("sql"), text("table")) {
        (SourceKind::Sql, Some(sql), _) => (sql, None),
        (SourceKind::Table, _, Some(table)) => (table, Some(table)),
        _ => return None,
    };
    let report =
        |why: &dyn std::fmt::Display| format!("{}: the database reports: {why}", excerpt(name));
    let query = |sql: &str| {
        let limits = RowLimits { rows: 0, chars: 0 };
        let found = sql_workers.query(database, PROBE_TIMEOUT, sql, limits)?;
        Ok::<_, QueryError>(found.rows.headers)
    };
    let Some(table) = table else {
        let sql = sql.trim_end_matches(';');
        // A subquery needs a name in most databases, and SQL Server has no LIMIT.
        let sql = match database {
            Database::Sqlite(_) => format!("SELECT * FROM (\n{sql}\n) LIMIT 0"),
            Database::Warehouse(of) if of.driver == WarehouseDriver::SqlServer => return None,
            Database::Warehouse(_) => format!("SELECT * FROM (\n{sql}\n) AS source LIMIT 0"),
        };
        let warning = match query(&sql) {
            Err(error) => Some(report(&error)),
            Ok(headers) => missing_columns(name, doc, &headers),
        };
        return Some(SourceProbe {
            answer: None,
            warning,
        });
    };
    let answer = |exists| Some((table.to_owned(), exists));
    let mut refused = None;
    if let Database::Sqlite(_) = database {
        // Cheaper than a description with sample values, which a view may compute.
        match query(&format!("SELECT * FROM {} LIMIT 0", quoted(table))) {
            Ok(headers) => {
                return Some(SourceProbe {
                    answer: answer(true),
                    warning: missing_columns(name, doc, &headers),
                });
            }
            Err(error) => refused = Some(report(&error)),
        }
    }
    let target = vec![(TableName::parse(table).parts().to_vec(), None)];
    let found = sql_workers.look_up(database, PROBE_TIMEOUT, vec![target]);
    let (answer, warning) = match found.map(|mut found| found.pop()) {
        Err(error) => (None, Some(report(&error))),
        Ok(None | Some(TableLookup::Ambiguous(_))) => (None, refused),
        Ok(Some(TableLookup::MissingTable {
            closest,
            is_covered,
        })) => {
            let hint = closest.map_or_else(String::new, |closest| {
                format!("; did you mean `{}`?", excerpt(&closest))
            });
            let why = || report(&format_args!("there is no table `{}`", excerpt(table)));
            let missing = answer(false).filter(|_| is_covered);
            (missing, Some(refused.unwrap_or_else(why) + &hint))
        }
        Ok(Some(TableLookup::Found(table) | TableLookup::MissingColumn(table))) => {
            let TableInfo { columns, error, .. } = table;
            let headers: Vec<String> = columns.into_iter().map(|column| column.name).collect();
            let error = error.map(|error| report(&error));
            let warning = refused
                .or(error)
                .or_else(|| missing_columns(name, doc, &headers));
            (answer(true), warning)
        }
    };
    Some(SourceProbe { answer, warning })
}

/// Quotes `main.orders` as an SQL identifier.
fn quoted(table: &str) -> String {
    let parts = table
        .split('.')
        .map(|part| format!("\"{}\"", part.trim_matches('"').replace('"', "\"\"")));
    parts.collect::<Vec<_>>().join(".")
}

/// A sentence about the columns of a source that are not among `headers`, if there are such.
fn missing_columns(name: &str, doc: &SourceDoc, headers: &[String]) -> Option<String> {
    let has = |name: &str| {
        headers
            .iter()
            .any(|header| header.eq_ignore_ascii_case(name))
    };
    let plain = maps_at(doc, "columns").filter(|column| column.get("expr").is_none());
    let names = plain.filter_map(|column| column.get("name")?.as_str());
    let missing: Vec<String> = names
        .filter(|name| !has(name))
        .map(|name| format!("`{}`", excerpt(name)))
        .collect();
    let headers = headers
        .iter()
        .take(30)
        .map(|name| excerpt(name))
        .collect::<Vec<_>>()
        .join(", ");
    (!missing.is_empty()).then(|| {
        format!(
            "{}: the table or query has no column {}; its columns are {headers}",
            excerpt(name),
            missing.join(", ")
        )
    })
}

/// The answer for a missing source, with the most similar name.
pub(super) fn source_not_found(context: &ToolContext, connection: &str, name: &str) -> ToolReply {
    let sources = context
        .semantic_layer()
        .sources(connection)
        .unwrap_or_default();
    let names: Vec<&str> = sources.by_name.keys().map(String::as_str).collect();
    let hint = did_you_mean(name, &names);
    not_found_reply(format_args!(
        "Source **{}** not found for connection {}{hint}",
        excerpt(name),
        excerpt(connection)
    ))
}

fn display_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
