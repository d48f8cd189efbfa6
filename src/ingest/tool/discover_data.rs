//! `discover_data`: one search in the wiki, the semantic layer, the raw files and the databases.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    AgentTool, ToolContext, not_found_reply, raw_files,
    sl_read::{self, SourceSearch},
    wiki_read::{WikiSearch, query_words},
};
use crate::{
    connection_scope::ConnectionAccess,
    facts::{FactOrigin, full_name},
    untrusted_text::{excerpt, one_line},
};
use ingestdeck_core::{diagnostic::Diagnostic as _, units::ToolReply};

/// Most bytes of raw files that one search reads.
const MAX_SEARCHED_BYTES: usize = 16 * 1024 * 1024;
/// Time limit of the search in one database.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line that is quoted, in characters.
const MAX_QUOTE_CHARS: usize = 200;

#[derive(Debug)]
pub(super) struct DiscoverData;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiscoverDataInput {
    /// Words to search for. Without them, lists sources, raw files and tables, but no wiki pages.
    query: Option<String>,
    /// Connection whose sources and tables are searched; by default, all connections.
    #[serde(rename = "connectionId")]
    connection: Option<String>,
    /// Maximum number of results of each kind; 10 by default.
    #[schemars(range(min = 1, max = 50))]
    limit: Option<u32>,
    /// Name of a semantic layer source to describe in full, instead of a search.
    #[serde(rename = "sourceName")]
    source: Option<String>,
}

impl AgentTool for DiscoverData {
    const NAME: &'static str = "discover_data";
    const DESCRIPTION: &'static str = "Find what exists before you write: wiki pages, semantic layer sources, lines \
        of the raw files and dependencies of this work unit, and tables and columns, from scans, dbt's artifacts and \
        databases, that contain words of `query`. Returns at most `limit` results of each kind (1 to 50, default 10), and the connections that \
        sources may be written for. With `sourceName`, describes that source only.";
    const READ_ONLY: bool = true;
    type Input = DiscoverDataInput;

    fn run(
        context: &ToolContext,
        DiscoverDataInput {
            query,
            connection,
            limit,
            source,
        }: DiscoverDataInput,
    ) -> ToolReply {
        let connections = match sl_read::connection_ids(context, connection.as_deref()) {
            Ok(connections) => connections,
            Err(why) => return not_found_reply(why),
        };
        if let Some(name) = source {
            let reply = sl_read::describe_source(context, &connections, &name);
            let structured =
                json!({"wiki": null, "sl": reply.structured, "raw": null, "tables": null});
            return ToolReply {
                structured: Some(structured),
                ..reply
            };
        }
        let query = query.unwrap_or_default();
        let limit = limit.unwrap_or(10) as usize;
        let sections = [
            ("wiki", wiki(context, &query, limit)),
            (
                "sl",
                search_semantic_layer(context, &connections, &query, limit),
            ),
            ("raw", files(context, &query, limit)),
            ("tables", tables(context, &connections, &query, limit)),
        ];
        let mut structured = serde_json::Map::new();
        let mut parts = Vec::new();
        for (key, section) in sections {
            let (text, found) =
                section.map_or((None, Value::Null), |(text, found)| (Some(text), found));
            parts.extend(text);
            structured.insert(key.into(), found);
        }
        let markdown = match (parts.is_empty(), query.trim().is_empty()) {
            (true, true) => {
                "There are no semantic layer sources, raw files or tables yet.".to_owned()
            }
            (true, false) => format!(
                "No matches for \"{}\" across wiki, semantic layer, raw files and databases. Try broader terms; this concept may \
                 not exist yet.",
                excerpt(&query)
            ),
            (false, _) => parts.join("\n\n"),
        };
        let reply = ToolReply {
            markdown,
            structured: Some(Value::Object(structured)),
            ..ToolReply::default()
        };
        sl_read::append_targets(context, reply)
    }
}

/// One section of the answer, and its entry in the transcript.
type DiscoverSection = Option<(String, Value)>;

fn wiki(context: &ToolContext, query: &str, limit: usize) -> DiscoverSection {
    if query_words(query).is_empty() {
        return None;
    }
    let reply = WikiSearch::find(context, query, limit);
    let found = reply.structured?;
    (found["totalFound"].as_u64()? > 0).then(|| {
        (
            format!(
                "## Wiki Pages\n> wiki_read returns the content\n{}",
                reply.markdown
            ),
            found,
        )
    })
}

fn search_semantic_layer(
    context: &ToolContext,
    connections: &[&str],
    query: &str,
    limit: usize,
) -> DiscoverSection {
    let mut found = SourceSearch::search(context, connections, Some(query));
    let total = found.matches.len();
    if total == 0 {
        return None;
    }
    found.matches.truncate(limit);
    let reply = found.to_reply(Some(query));
    let mut text = format!(
        "## Semantic Layer Sources\n> sl_read_source returns the YAML\n{}",
        reply.markdown
    );
    if total > limit {
        text.push_str(&format!(
            "\n\n{} more sources match; raise limit or narrow the query.",
            total - limit
        ));
    }
    Some((text, reply.structured?))
}

fn files(context: &ToolContext, query: &str, limit: usize) -> DiscoverSection {
    let planned = &context.unit.planned;
    let words = query_words(query);
    let mut hits: Vec<(usize, String, Value)> = Vec::new();
    let mut read = 0;
    let mut skipped = 0;
    for path in planned.raw_files.iter().chain(&planned.dependency_paths) {
        if words.is_empty() {
            hits.push((0, format!("- {}", one_line(path)), json!({"path": path})));
            continue;
        }
        let text = match raw_files::searchable_text(context, path) {
            Some(text) if read + text.len() <= MAX_SEARCHED_BYTES => text,
            _ => {
                skipped += 1;
                continue;
            }
        };
        read += text.len();
        if let Some((score, number, line)) = best_line(&words, path, &text) {
            let quote: String = line.trim().chars().take(MAX_QUOTE_CHARS).collect();
            let entry = format!("- {}:{number}: {quote}", one_line(path));
            hits.push((
                score,
                entry,
                json!({"path": path, "line": number, "text": quote}),
            ));
        }
    }
    hits.sort_by_key(|(score, ..)| std::cmp::Reverse(*score));
    let total = hits.len();
    if total == 0 && skipped == 0 {
        return None;
    }
    hits.truncate(limit);
    let lines: Vec<&str> = hits.iter().map(|(_, line, _)| line.as_str()).collect();
    let mut text = match total {
        0 => "## Raw Files\nNo other raw file matches.".to_owned(),
        _ => format!(
            "## Raw Files\n> read_raw_span returns the surrounding lines\n{}",
            lines.join("\n")
        ),
    };
    if total > limit {
        text.push_str(&format!(
            "\n{} more files match; raise limit or narrow the query.",
            total - limit
        ));
    }
    if skipped > 0 {
        text.push_str(&format!(
            "\n{skipped} files were not searched: they are too large or cannot be read."
        ));
    }
    let hits: Vec<Value> = hits.into_iter().map(|(_, _, hit)| hit).collect();
    Some((
        text,
        json!({"hits": hits, "totalFound": total, "notSearched": skipped}),
    ))
}

/// The line of `text` that contains the most `words`, with the number of words in the file and in the line.
fn best_line<'a>(words: &[String], path: &str, text: &'a str) -> Option<(usize, usize, &'a str)> {
    let matching_words = |text: &str| {
        let text = text.to_lowercase();
        words
            .iter()
            .filter(|word| text.contains(word.as_str()))
            .count()
    };
    let mut best = (
        matching_words(path),
        1,
        text.lines().next().unwrap_or_default(),
    );
    for (index, line) in text.lines().enumerate() {
        let count = matching_words(line);
        if count > best.0 {
            best = (count, index + 1, line);
        }
    }
    (best.0 > 0).then_some(best)
}

/// Tables and columns of `connections` that contain a word of `query` in their names or comments; all tables if `query`
/// is empty. Of a connection with files about its tables, the database is asked only if they have no match.
fn tables(
    context: &ToolContext,
    connections: &[&str],
    query: &str,
    limit: usize,
) -> DiscoverSection {
    let words = query_words(query);
    let mut found = TableHits::default();
    for connection in context
        .scope
        .connections
        .iter()
        .filter(|connection| connections.contains(&connection.id.as_str()))
    {
        let before = found.total;
        found.add_facts(connection, &words, limit, context.scope.now());
        let Some(database) = connection
            .database
            .as_ref()
            .filter(|_| found.total == before)
        else {
            continue;
        };
        match context.scope.sql_workers.search(
            database,
            DATABASE_TIMEOUT,
            &words,
            limit.saturating_sub(found.hits.len()),
        ) {
            Ok(matches) => {
                found.total += matches.total;
                for (kind, display) in matches.first {
                    let place = format!("connectionId={}", connection.id);
                    found.add(
                        connection,
                        (&kind, &display),
                        (&place, FactOrigin::Connection),
                    );
                }
            }
            Err(error) => found.lines.push(format!(
                "- connection `{}` cannot be searched: {error}",
                connection.id
            )),
        }
    }
    let TableHits { lines, hits, total } = found;
    if lines.is_empty() {
        return None;
    }
    let mut text = format!(
        "## Raw Warehouse Schema\n> entity_details returns columns and samples\n{}",
        lines.join("\n")
    );
    if total > hits.len() {
        text.push_str(&format!(
            "\n{} more match; raise limit or narrow the query.",
            total - hits.len()
        ));
    }
    Some((text, json!({"hits": hits, "totalFound": total})))
}

/// Matching tables and columns.
#[derive(Default)]
struct TableHits {
    lines: Vec<String>,
    hits: Vec<Value>,
    /// Number of all matches.
    total: usize,
}

impl TableHits {
    /// Adds the matches in the files about the connection, tables before columns.
    fn add_facts(
        &mut self,
        connection: &ConnectionAccess,
        words: &[String],
        limit: usize,
        now: Timestamp,
    ) {
        let holds = |text: &str| {
            let text = text.to_lowercase();
            words.iter().any(|word| text.contains(word.as_str()))
        };
        let comment_holds = |comment: &Option<String>| comment.as_deref().is_some_and(holds);
        let mut columns = Vec::new();
        let facts = connection.facts.load();
        for (set, table) in facts.distinct_tables() {
            let place = format!("connectionId={}, from {}", connection.id, set.describe(now));
            let name = full_name(table).to_string();
            if words.is_empty() || holds(&table.name) || comment_holds(&table.comment) {
                self.total += 1;
                if self.hits.len() < limit {
                    self.add(connection, (&table.kind, &name), (&place, set.origin));
                }
            }
            let matching = table.columns.iter().filter(|column| {
                !words.is_empty() && (holds(&column.name) || comment_holds(&column.comment))
            });
            for column in matching {
                self.total += 1;
                if columns.len() < limit {
                    columns.push((format!("{name}.{}", column.name), place.clone(), set.origin));
                }
            }
        }
        for (name, place, origin) in columns {
            if self.hits.len() < limit {
                self.add(connection, ("column", &name), (&place, origin));
            }
        }
        let unused = facts.warnings.iter();
        self.lines
            .extend(unused.map(|warning| format!("- {}", one_line(&warning.to_line()))));
    }

    fn add(
        &mut self,
        connection: &ConnectionAccess,
        (kind, display): (&str, &str),
        (place, origin): (&str, FactOrigin),
    ) {
        self.lines
            .push(format!("- {kind}: {} [{place}]", one_line(display)));
        self.hits.push(json!({
            "connectionId": connection.id, "kind": kind, "display": display, "origin": origin.name(),
        }));
    }
}
