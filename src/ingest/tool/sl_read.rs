//! `sl_discover`, `sl_read_source` and `sl_validate`: read and check the semantic layer of this attempt.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    AgentTool, MAX_ANSWER_CHARS, ToolContext, not_found_reply, pagination,
    sl_common::source_not_found, wiki_read::query_words,
};
use crate::{
    semantic_layer::{
        self, EffectiveSource, SemanticSources, SourceDoc, SourceKind, first_description, maps_at,
        texts,
    },
    untrusted_text::{excerpt, one_line},
    workspace_check::{self, SemanticLayerReport},
};
use ingestdeck_core::{diagnostic::Problem, units::ToolReply};

/// Most sources that a search result describes in full.
const MAX_DETAILED: usize = 5;
/// Most sources that one answer names.
const MAX_LISTED: usize = 200;
/// Longest description in a list, in characters.
const MAX_DESCRIPTION_CHARS: usize = 160;

#[derive(Debug)]
pub(super) struct SlDiscover;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlDiscoverInput {
    /// Id of the connection to search; by default, all connections.
    #[serde(rename = "connectionId")]
    connection: Option<String>,
    /// Words to search for in names and descriptions of sources and their parts. Without them, all sources are listed.
    query: Option<String>,
    /// Name of a source to describe in full, instead of a search.
    #[serde(rename = "sourceName")]
    source: Option<String>,
}

impl AgentTool for SlDiscover {
    const NAME: &'static str = "sl_discover";
    const DESCRIPTION: &'static str = "Find semantic layer sources, or describe one: its columns, measures, joins and \
        grain. Without connectionId it searches all connections. A search also returns the connections that sources \
        may be written for. Use sl_read_source for the YAML.";
    const READ_ONLY: bool = true;
    type Input = SlDiscoverInput;

    fn run(
        context: &ToolContext,
        SlDiscoverInput {
            connection,
            query,
            source,
        }: SlDiscoverInput,
    ) -> ToolReply {
        let connections = match connection_ids(context, connection.as_deref()) {
            Ok(connections) => connections,
            Err(why) => return not_found_reply(why),
        };
        match source {
            Some(name) => describe_source(context, &connections, &name),
            None => append_targets(
                context,
                SourceSearch::search(context, &connections, query.as_deref())
                    .to_reply(query.as_deref()),
            ),
        }
    }
}

/// A source with its connection and its score.
pub(super) struct SourceMatch {
    pub(super) connection: String,
    pub(super) source: EffectiveSource,
    score: u32,
}

/// Result of a search.
pub(super) struct SourceSearch {
    /// Best match first; by connection and name if there is no query.
    pub(super) matches: Vec<SourceMatch>,
    broken_files: Vec<String>,
}

impl SourceSearch {
    /// Sources of `connections` that contain a word of `query`; all of them if there is no query.
    pub(super) fn search(context: &ToolContext, connections: &[&str], query: Option<&str>) -> Self {
        let words = query_words(query.unwrap_or_default());
        let mut found = Self {
            matches: Vec::new(),
            broken_files: Vec::new(),
        };
        for connection in connections {
            match context.semantic_layer().sources(connection) {
                Ok(SemanticSources {
                    by_name: all,
                    broken_files: broken,
                    ..
                }) => {
                    found.broken_files.extend(
                        broken
                            .into_iter()
                            .map(|(path, why)| format!("{path}: {why}")),
                    );
                    let hits = all.into_values().map(|source| SourceMatch {
                        connection: (*connection).to_owned(),
                        score: score(&words, &source),
                        source,
                    });
                    found
                        .matches
                        .extend(hits.filter(|hit| words.is_empty() || hit.score > 0));
                }
                Err(error) => found
                    .broken_files
                    .push(format!("semantic-layer/{connection}: {error}")),
            }
        }
        // The sort is stable: equal matches keep the order of connections and names.
        found
            .matches
            .sort_by_key(|hit| std::cmp::Reverse(hit.score));
        found
    }

    pub(super) fn to_reply(&self, query: Option<&str>) -> ToolReply {
        let matching = query.filter(|query| !query.trim().is_empty());
        let suffix = matching.map_or_else(String::new, |query| {
            format!(" matching \"{}\"", excerpt(query))
        });
        let total = self.matches.len();
        let mut text = match (total, matching) {
            (0, Some(_)) => format!("No semantic layer sources found{suffix}."),
            (0, None) => {
                "No semantic layer sources found. Create sources with sl_write_source.".to_owned()
            }
            (_, _) => format!("**{total} source(s) found**{suffix}:\n"),
        };
        let detailed = if matching.is_some() { MAX_DETAILED } else { 0 };
        let mut shown_hits = 0;
        for hit in self.matches.iter().take(MAX_LISTED) {
            let entry = if shown_hits < detailed {
                detail_text(hit)
            } else {
                brief_line(hit)
            };
            if text.chars().count() + entry.chars().count() > MAX_ANSWER_CHARS - 2_000 {
                break;
            }
            text.push_str(if shown_hits < detailed && shown_hits > 0 {
                "\n\n"
            } else {
                "\n"
            });
            text.push_str(&entry);
            shown_hits += 1;
        }
        if shown_hits < total {
            text.push_str(&format!(
                "\n\n{} more sources; narrow the query or give connectionId.",
                total - shown_hits
            ));
        }
        if !self.broken_files.is_empty() {
            let broken: Vec<String> = self
                .broken_files
                .iter()
                .take(20)
                .map(|why| format!("- {why}"))
                .collect();
            text.push_str(&format!("\n\nCannot be read:\n{}", broken.join("\n")));
        }
        let sources: Vec<Value> = self
            .matches
            .iter()
            .take(shown_hits)
            .map(summary_json)
            .collect();
        ToolReply {
            markdown: text,
            structured: Some(json!({"sources": sources, "totalSources": total})),
            ..ToolReply::default()
        }
    }
}

/// Appends the connections that sources may be written for, because connections without sources appear in no list.
pub(super) fn append_targets(context: &ToolContext, mut reply: ToolReply) -> ToolReply {
    if let Some(targets) = context.targets_sentence() {
        reply.markdown.push_str(&format!("\n\n{targets}"));
    }
    reply
}

/// The given connection id, or all ids.
pub(super) fn connection_ids<'a>(
    context: &'a ToolContext,
    id: Option<&'a str>,
) -> Result<Vec<&'a str>, Problem> {
    match id {
        Some(id) => context
            .find_connection(id)
            .map(|connection| vec![connection.id.as_str()]),
        None => Ok(context
            .scope
            .connections
            .iter()
            .map(|connection| connection.id.as_str())
            .collect()),
    }
}

pub(super) fn describe_source(
    context: &ToolContext,
    connections: &[&str],
    name: &str,
) -> ToolReply {
    let mut hits: Vec<SourceMatch> = Vec::new();
    for connection in connections {
        match context.semantic_layer().sources(connection) {
            Ok(mut sources) => {
                hits.extend(sources.by_name.remove(name).map(|source| SourceMatch {
                    connection: (*connection).to_owned(),
                    source,
                    score: 0,
                }))
            }
            Err(error) => {
                return not_found_reply(format_args!("the semantic layer cannot be read: {error}"));
            }
        }
    }
    match hits.as_slice() {
        [] => source_not_found(
            context,
            connections
                .first()
                .copied()
                .filter(|_| connections.len() == 1)
                .unwrap_or("(any)"),
            name,
        ),
        [hit] => ToolReply {
            markdown: detail_text(hit),
            structured: Some(json!({"sources": [summary_json(hit)], "totalSources": 1})),
            ..ToolReply::default()
        },
        hits => {
            let ids: Vec<String> = hits
                .iter()
                .map(|hit| format!("- `{}`", hit.connection))
                .collect();
            ToolReply {
                markdown: format!(
                    "Several connections have a source \"{}\". Give connectionId:\n\n{}",
                    excerpt(name),
                    ids.join("\n")
                ),
                structured: Some(json!({"sources": [], "totalSources": 0})),
                ..ToolReply::default()
            }
        }
    }
}

fn score(words: &[String], source: &EffectiveSource) -> u32 {
    let doc = &source.doc;
    let name = source.name.to_lowercase();
    let description = first_description(doc).unwrap_or_default().to_lowercase();
    let mut parts: Vec<&str> = Vec::new();
    for key in ["columns", "measures", "segments"] {
        parts.extend(texts(doc, key, "name"));
        parts.extend(maps_at(doc, key).filter_map(first_description));
    }
    let parts = parts.join(" ").to_lowercase();
    let weigh = |text: &str, word: &str, weight| if text.contains(word) { weight } else { 0 };
    words
        .iter()
        .map(|word| weigh(&name, word, 8) + weigh(&description, word, 4) + weigh(&parts, word, 1))
        .sum()
}

fn kind_label(doc: &SourceDoc) -> &'static str {
    match SourceKind::from_doc(doc) {
        SourceKind::Table => "table",
        SourceKind::Sql => "sql",
        SourceKind::Overlay => "overlay without a scanned table",
    }
}

fn count(doc: &SourceDoc, key: &str) -> usize {
    doc.get(key).and_then(Value::as_array).map_or(0, Vec::len)
}

fn brief_line(hit: &SourceMatch) -> String {
    let doc = &hit.source.doc;
    let description = first_description(doc).map_or_else(String::new, |text| {
        format!(" — {}", truncate_line(text, MAX_DESCRIPTION_CHARS))
    });
    format!(
        "- **{}** [{}]{description} ({} measures, {} cols)",
        one_line(&hit.source.name),
        hit.connection,
        count(doc, "measures"),
        count(doc, "columns")
    )
}

fn detail_text(hit: &SourceMatch) -> String {
    let doc = &hit.source.doc;
    let description = first_description(doc).map_or_else(String::new, |text| {
        format!(" — {}", truncate_line(text, 2_000))
    });
    let mut lines = vec![
        format!(
            "### {} [{}]{description}",
            one_line(&hit.source.name),
            hit.connection
        ),
        format!(
            "Type: {} | Columns: {} | Measures: {} | Joins: {}",
            kind_label(doc),
            count(doc, "columns"),
            count(doc, "measures"),
            count(doc, "joins")
        ),
    ];
    let text = |map: &SourceDoc, key: &str| {
        truncate_line(map.get(key).and_then(Value::as_str).unwrap_or("?"), 200)
    };
    let list = |key: &str, line: &dyn Fn(&SourceDoc) -> String| {
        maps_at(doc, key).map(line).collect::<Vec<_>>().join(", ")
    };
    let parts = [
        (
            "Measures",
            list("measures", &|map| {
                format!("`{}` ({})", text(map, "name"), text(map, "expr"))
            }),
        ),
        (
            "Segments",
            list("segments", &|map| {
                format!("`{}` ({})", text(map, "name"), text(map, "expr"))
            }),
        ),
        (
            "Joins",
            list("joins", &|map| {
                format!("→ {} ({})", text(map, "to"), text(map, "relationship"))
            }),
        ),
        ("Columns", columns(doc)),
        ("Grain", texts(doc, "grain", "").join(", ")),
    ];
    let filled = parts.into_iter().filter(|(_, line)| !line.is_empty());
    lines.extend(filled.map(|(title, line)| format!("{title}: {}", truncate_line(&line, 12_000))));
    lines.join("\n")
}

fn columns(doc: &SourceDoc) -> String {
    let public = maps_at(doc, "columns").filter(|column| {
        column
            .get("visibility")
            .is_none_or(|visibility| visibility != "hidden")
    });
    let text = |column: &SourceDoc, key: &str| {
        truncate_line(column.get(key).and_then(Value::as_str).unwrap_or("?"), 200)
    };
    public
        .map(|column| format!("`{}` ({})", text(column, "name"), text(column, "type")))
        .collect::<Vec<_>>()
        .join(", ")
}

fn summary_json(hit: &SourceMatch) -> Value {
    let doc = &hit.source.doc;
    json!({
        "connectionId": hit.connection, "name": hit.source.name, "description": first_description(doc),
        "columnCount": count(doc, "columns"), "measureCount": count(doc, "measures"), "joinCount": count(doc, "joins"),
    })
}

/// The first `most` characters of `text`, on one line.
fn truncate_line(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}

#[derive(Debug)]
pub(super) struct SlReadSource;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlReadInput {
    /// Id of the connection that the source belongs to.
    #[serde(rename = "connectionId")]
    connection: String,
    /// Name of the source.
    #[serde(rename = "sourceName")]
    name: String,
    /// First line to return of a long source, counted from 1; 1 by default.
    #[serde(rename = "startLine")]
    #[schemars(range(min = 1, max = 100_000_000))]
    start_line: Option<u32>,
}

impl AgentTool for SlReadSource {
    const NAME: &'static str = "sl_read_source";
    const DESCRIPTION: &'static str = "Read the YAML of one semantic layer source. Copy the text for sl_edit_source \
        from here. If the YAML does not fit into one answer, the answer ends with the call that continues it. To find \
        sources, use sl_discover.";
    const READ_ONLY: bool = true;
    type Input = SlReadInput;

    fn run(
        context: &ToolContext,
        SlReadInput {
            connection,
            name,
            start_line,
        }: SlReadInput,
    ) -> ToolReply {
        if let Err(why) = context.find_connection(&connection) {
            return not_found_reply(why);
        }
        let (text, path) = match context
            .semantic_layer()
            .find_source_file(&connection, &name)
        {
            Err(error) => {
                return not_found_reply(format_args!("Source **{}**: {error}", excerpt(&name)));
            }
            Ok(Some(file)) => match context.workspace.read(&file.path) {
                Ok(Some(bytes)) => (
                    String::from_utf8_lossy(&bytes).into_owned(),
                    Some(file.path),
                ),
                Ok(None) => return source_not_found(context, &connection, &name),
                Err(error) => {
                    return not_found_reply(format_args!("{} cannot be read: {error}", file.path));
                }
            },
            // A scanned table without a file is shown as scanned.
            Ok(None) => match scanned(context, &connection, &name) {
                Some(text) => (text, None),
                None => return source_not_found(context, &connection, &name),
            },
        };
        let lines: Vec<&str> = text.lines().collect();
        let start = start_line.unwrap_or(1) as usize;
        if start > lines.len() && start > 1 {
            return not_found_reply(format_args!(
                "startLine is {start}, but source `{}` has {} lines; give a smaller startLine",
                excerpt(&name),
                lines.len()
            ));
        }
        let page = pagination::paginate(&lines, start, lines.len());
        let mut markdown = format!("## Source: {}\n\n```yaml\n{}```", excerpt(&name), page.text);
        if path.is_none() {
            markdown.push_str(
                "\n\n[a scanned table without an overlay; create one with sl_write_source]",
            );
        }
        let next =
            |next| json!({"connectionId": connection, "sourceName": name, "startLine": next});
        if let Some(note) =
            page.continuation_note(start, lines.len(), lines.len(), "sl_read_source", next)
        {
            markdown.push_str(&format!("\n\n[{note}]"));
        }
        let structured = json!({
            "connectionId": connection, "sourceName": name, "path": path, "startLine": start, "endLine": page.last_line,
            "totalLines": lines.len(),
        });
        ToolReply {
            markdown,
            structured: Some(structured),
            ..ToolReply::default()
        }
    }
}

fn scanned(context: &ToolContext, connection: &str, name: &str) -> Option<String> {
    let sources = context.semantic_layer().sources(connection).ok()?;
    semantic_layer::render_source(&semantic_layer::order_fields(SourceDoc::clone(
        sources.scanned_tables.named(name)?,
    )))
    .ok()
}

#[derive(Debug)]
pub(super) struct SlValidate;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlValidateInput {
    /// Id of the connection whose sources are checked.
    #[serde(rename = "connectionId")]
    connection: String,
}

impl AgentTool for SlValidate {
    const NAME: &'static str = "sl_validate";
    const DESCRIPTION: &'static str = "Check that the semantic layer sources of a connection are valid and \
        consistent: fields, grain, join targets, segments, duplicates. Once this session has changed sources of the \
        connection, only those, and sources that join to them, are reported.";
    const READ_ONLY: bool = true;
    type Input = SlValidateInput;

    fn run(context: &ToolContext, SlValidateInput { connection }: SlValidateInput) -> ToolReply {
        if let Err(why) = context.find_connection(&connection) {
            return not_found_reply(why);
        }
        match workspace_check::check_connection_sources(
            &context.workspace,
            &connection,
            &context.scope,
        ) {
            Ok(report) => validation(&connection, report),
            Err(error) => {
                not_found_reply(format_args!("the semantic layer cannot be read: {error}"))
            }
        }
    }
}

fn validation(connection: &str, report: SemanticLayerReport) -> ToolReply {
    const MAX_FINDINGS: usize = 100;
    let SemanticLayerReport { sources, findings } = report;
    if sources == 0 && findings.errors.is_empty() {
        let text = format!("No sources found for connection {}.", excerpt(connection));
        let structured =
            json!({"success": true, "sourceName": "(all)", "validationErrors": [text]});
        return ToolReply {
            markdown: text,
            structured: Some(structured),
            ..ToolReply::default()
        };
    }
    let mut lines = vec![format!(
        "**Semantic layer validation** for {sources} source(s):"
    )];
    if findings.errors.is_empty() && findings.warnings.is_empty() {
        lines.push("All sources are valid. Join graph is consistent.".into());
    }
    for (title, found) in [
        ("Errors", &findings.errors),
        ("Warnings", &findings.warnings),
    ] {
        if !found.is_empty() {
            lines.push(format!("\n**{title}** ({}):", found.len()));
            lines.extend(
                found
                    .iter()
                    .take(MAX_FINDINGS)
                    .map(|text| format!("- {}", truncate_line(text, 400))),
            );
            if found.len() > MAX_FINDINGS {
                lines.push(format!("{} more are not shown", found.len() - MAX_FINDINGS));
            }
        }
    }
    let structured = json!({
        "success": findings.errors.is_empty(), "sourceName": "(all)", "validationErrors": findings.errors,
        "validationWarnings": findings.warnings,
    });
    ToolReply {
        markdown: lines.join("\n"),
        structured: Some(structured),
        ..ToolReply::default()
    }
}
