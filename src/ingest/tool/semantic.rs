//! What the tools of the semantic layer share: which connection is meant, and how they decline.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use super::{Bench, miss, refusal};
use crate::{
    ingest::{
        database::{RowLimits, SqlWorkers},
        layer::{self, Doc, FindError, Kind, Layer, maps},
        project::nearest,
        reach::Reached,
        schema::shown,
        workspace::WriteError,
    },
    units::ToolReply,
};

/// How long the database may take to say what a source is made of.
const PROBE: Duration = Duration::from_secs(5);

impl Bench {
    /// The semantic layer as this attempt sees it.
    pub(super) fn layer(&self) -> Layer<'_> {
        Layer(&self.workspace)
    }

    /// The connections that sources may be written for, as a sentence. `None` if this session writes no sources.
    pub(super) fn targets(&self) -> Option<String> {
        let target = |of: &Reached| match &of.driver {
            Some(driver) => format!("{} ({})", of.id, shown(driver)),
            None => of.id.clone(),
        };
        let targets: Vec<String> = self.reach.targets().map(target).collect();
        let is_told = self.unit.planned.sl_disallowed.is_none() && !targets.is_empty();
        is_told.then(|| format!("Sources may be written for these connections: {}.", listed(&targets)))
    }

    /// The connection `id`, or a sentence that names those there are.
    pub(super) fn connection(&self, id: &str) -> Result<&Reached, String> {
        self.reach.get(id).ok_or_else(|| {
            let ids: Vec<&str> = self.reach.connections.iter().map(|connection| connection.id.as_str()).collect();
            let hint = nearest(id, &ids).map_or_else(String::new, |id| format!(" (did you mean `{id}`?)"));
            format!("there is no connection `{}`{hint}; there are {}", shown(id), listed(&ids))
        })
    }
}

/// Most connections that an answer names.
const NAMED: usize = 50;

/// The names, as many as an answer may hold.
pub(super) fn listed(names: &[impl AsRef<str>]) -> String {
    let named: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    match (named.len(), names.len() - named.len()) {
        (0, _) => "none".to_owned(),
        (_, 0) => named.join(", "),
        (_, more) => format!("{} and {more} more", named.join(", ")),
    }
}

/// Why a source is not changed.
pub(super) struct No {
    reason: &'static str,
    errors: Vec<String>,
}

impl No {
    pub(super) fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Self { reason, errors: vec![text.into()] }
    }

    pub(super) fn invalid(errors: Vec<String>) -> Self {
        Self { reason: "validation_failed", errors }
    }

    pub(super) fn reply(self, tool: &str, connection: &str, source: &str) -> ToolReply {
        let lines: Vec<String> = self.errors.iter().map(|error| format!("- {error}")).collect();
        let text = format!(
            "Source **{}** was NOT saved, {} error(s):\n{}",
            shown(source),
            self.errors.len(),
            lines.join("\n")
        );
        let detail = json!({
            "reason": self.reason, "connectionId": connection, "sourceName": source, "errors": self.errors,
        });
        refusal(tool, text, detail)
    }
}

impl From<WriteError> for No {
    fn from(error: WriteError) -> Self {
        Self::new(super::word(&error), error.to_string())
    }
}

impl From<FindError> for No {
    fn from(error: FindError) -> Self {
        Self::new("source_unreadable", error.to_string())
    }
}

impl From<std::io::Error> for No {
    fn from(error: std::io::Error) -> Self {
        Self::new("source_unreadable", format!("the semantic layer cannot be read: {error}"))
    }
}

/// What every change of a source needs: a connection that may be written, and raw files of the unit.
pub(super) fn admit(bench: &Bench, connection: &str, raw_paths: Option<&[String]>) -> Result<(), No> {
    if !bench.reach.get(connection).is_some_and(|reached| reached.is_target) {
        let targets: Vec<&str> = bench.reach.targets().map(|target| target.id.as_str()).collect();
        let hint = nearest(connection, &targets).map_or_else(String::new, |id| format!(" (did you mean `{id}`?)"));
        let text = format!(
            "Connection \"{}\" is not available to this ingest stage{hint}; sources may be written for {}",
            shown(connection),
            listed(&targets)
        );
        return Err(No::new("connection_not_allowed", text));
    }
    bench.admits(raw_paths).map_err(|why| No::new("raw_paths_not_allowed", why))
}

/// Judges `doc` as the source `name` of `connection`; the warnings, if nothing speaks against it.
pub(super) fn proved(bench: &Bench, connection: &str, name: &str, doc: &Doc) -> Result<Vec<String>, No> {
    if doc.get("name").and_then(Value::as_str) != Some(name) {
        let found = doc.get("name").map_or_else(|| "nothing".to_owned(), |found| format!("`{}`", shown(&words(found))));
        return Err(No::new("name_mismatch", format!("the source says name: {found}, it must be `{}`", shown(name))));
    }
    let mut sources = bench.layer().sources(connection)?;
    sources.put(name, doc.clone());
    let found = layer::judge(name, doc, &sources);
    if !found.errors.is_empty() {
        return Err(No::invalid(found.errors));
    }
    let mut warnings = found.warnings;
    if let Some(path) = bench.connection(connection).ok().and_then(|reached| reached.database.as_deref()) {
        warnings.extend(probe(&bench.reach.sql_workers, path, name, doc));
    }
    Ok(warnings)
}

/// What the database says about the table or query of a source. It may know better than we: its word is a warning.
fn probe(sql_workers: &SqlWorkers, path: &Path, name: &str, doc: &Doc) -> Option<String> {
    let text = |key: &str| doc.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let sql = match (Kind::of(doc), text("sql"), text("table")) {
        (Kind::Sql, Some(sql), _) => format!("SELECT * FROM (\n{}\n) LIMIT 0", sql.trim_end_matches(';')),
        (Kind::Table, _, Some(table)) => format!("SELECT * FROM {} LIMIT 0", quoted(table)),
        _ => return None,
    };
    match sql_workers.query(path, PROBE, &sql, RowLimits { rows: 0, chars: 0 }) {
        Err(error) => Some(format!("{}: the database says: {error}", shown(name))),
        Ok(found) => {
            let has = |name: &str| found.headers.iter().any(|header| header.eq_ignore_ascii_case(name));
            let plain = maps(doc, "columns").filter(|column| column.get("expr").is_none());
            let names = plain.filter_map(|column| column.get("name")?.as_str());
            let missing: Vec<String> =
                names.filter(|name| !has(name)).map(|name| format!("`{}`", shown(name))).collect();
            let headers = found.headers.iter().take(30).map(|name| shown(name)).collect::<Vec<_>>().join(", ");
            (!missing.is_empty()).then(|| {
                format!("{}: the database has no column {}; it has {headers}", shown(name), missing.join(", "))
            })
        }
    }
}

/// `main.orders` as SQL that means nothing but a name.
fn quoted(table: &str) -> String {
    let parts = table.split('.').map(|part| format!("\"{}\"", part.trim_matches('"').replace('"', "\"\"")));
    parts.collect::<Vec<_>>().join(".")
}

/// Answers that a source is not there, with the one that was likely meant.
pub(super) fn no_source(bench: &Bench, connection: &str, name: &str) -> ToolReply {
    let sources = bench.layer().sources(connection).unwrap_or_default();
    let names: Vec<&str> = sources.all.keys().map(String::as_str).collect();
    let hint = nearest(name, &names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    miss(format_args!("Source **{}** not found for connection {}{hint}", shown(name), shown(connection)))
}

fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
