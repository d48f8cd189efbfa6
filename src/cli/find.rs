//! `find`: what contains a text, in all recorded runs of the project.
//!
//! The index of words names entries that contain all words; each is read on its tape and compared, so that everything
//! printed is on a tape. What the index leaves out is counted on stderr.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use globset::{Glob, GlobMatcher};
use serde_json::{Value, json};

use super::{
    args::{FindArgs, GlobalArgs, TableFormat},
    audit,
    exit::{self, CliError, Exit},
    project, runs,
    table::TableWriter,
};
use ingestdeck_core::{
    diagnostic::Problem,
    run::{EntryRef, EntryScope, EntrySource as _, PollStatus, entry_search::TextMatcher},
    tape::{EntryBody, Millis, RunId, Seq},
    text::pluralize,
    units::failure_tally::bare_name,
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_records::{
    replay::FileSource,
    store::{
        Db, RunStore,
        db::{IndexFilter, IndexView},
        text_index::TextIndex,
    },
};
use ingestdeck_report::redact::Redactor;

/// How long runs may be read that are not searched yet.
const INDEX_TIME: Duration = Duration::from_secs(10);
/// Candidates that are compared together.
const BATCH: usize = 500;
/// Bytes of a tape in which entries are looked for together.
const SLICE: usize = 16 << 20;
/// Characters around a found text.
const CONTEXT_CHARS: usize = 60;
/// Largest nesting of JSON that is looked into.
const MAX_DEPTH: usize = 64;

/// Prints the entries that contain all texts of `args`, newest run first.
///
/// # Errors
/// If a text or a filter is invalid, no run matches, or the index cannot be used.
pub(super) fn find(global: &GlobalArgs, args: &FindArgs) -> Result<Exit, CliError> {
    let store = &runs::resolve_store(global)?;
    let format = TableFormat::resolve(args.format, global);
    let query = FindQuery::new(store, args)?;
    let columns: &[&str] = match format {
        TableFormat::Text => &["time", "run", "unit", "kind", "tool", "text", "entry"],
        TableFormat::Json | TableFormat::Csv => &[
            "at", "run", "unit", "attempt", "seq", "kind", "tool", "failed", "text",
        ],
    };
    let redactor = Redactor::for_process(project::resolve_directory(global).ok().as_deref());
    let columns = columns.iter().copied().map(str::to_owned).collect();
    let mut table = TableWriter::new(format, columns, Some(1), redactor);
    let Some(db) = audit::open_index(store)? else {
        return table
            .finish("no runs yet; `ingestdeck run` records one\n")
            .map(|()| Exit::Ok);
    };
    let texts = open_texts(store, args.all)?;
    let (mut count, mut compared) = (0, 0);
    let mut tape = None;
    loop {
        let candidates = texts.candidates(&args.text.join(" "), compared + BATCH)?;
        let is_last = candidates.len() < compared + BATCH;
        for candidate in candidates.iter().skip(compared) {
            if query.run.is_some_and(|run| run != candidate.run) {
                continue;
            }
            let opened = match tape.take() {
                Some(opened @ SearchedTape { run, .. }) if run == candidate.run => opened,
                _ => match SearchedTape::open(store, &db, candidate.run) {
                    Ok(opened) => opened,
                    Err(problem) => {
                        exit::print_warning(&problem);
                        continue;
                    }
                },
            };
            let opened = tape.insert(opened);
            let Some(moment) = opened.read(candidate.seq, &query)? else {
                continue;
            };
            count += 1;
            if !table.push(moment.to_row(format, candidate.run, candidate.seq))
                || count >= args.limit
            {
                return finish(table, count, args.limit);
            }
        }
        if is_last {
            return finish(table, count, args.limit);
        }
        compared += BATCH;
    }
}

fn finish(table: TableWriter, count: u64, limit: u64) -> Result<Exit, CliError> {
    let note = match count {
        0 => "nothing contains it\n".to_owned(),
        count if count == limit => format!("the newest {count}; --limit shows more\n"),
        count => format!(
            "{}\n",
            pluralize(usize::try_from(count).unwrap_or(0), "entry")
        ),
    };
    table.finish(&note)?;
    Ok(Exit::Ok)
}

/// The index of words, with the words of as many runs as the time allows.
fn open_texts(store: &RunStore, reads_all: bool) -> Result<TextIndex, CliError> {
    let mut texts = store.open_text_index()?;
    let now = Instant::now();
    let deadline = match reads_all {
        true => now + Duration::from_secs(u32::MAX.into()),
        false => now + INDEX_TIME,
    };
    let report = recorded_tapes::refresh_texts(store, &mut texts, deadline)?;
    for (run, cause) in &report.unreadable {
        exit::print_warning(&Problem::new(format!(
            "run {} is left out: {cause}",
            run.short()
        )));
    }
    if report.waiting > 0 {
        let text = format!("{} not searched yet", pluralize(report.waiting, "run"));
        exit::print_warning(&Problem::new(text).with_help("call it again, or once with --all"));
    }
    let left_out = texts.left_out()?;
    if left_out > 0 {
        let left_out = usize::try_from(left_out).unwrap_or(usize::MAX);
        let text = format!(
            "{} of more than 1 MiB searched at the beginning only",
            pluralize(left_out, "entry")
        );
        exit::print_warning(&Problem::new(text));
    }
    Ok(texts)
}

/// What is looked for.
struct FindQuery {
    /// All of these texts must be in the entry.
    texts: Vec<TextMatcher>,
    run: Option<RunId>,
    unit: Option<GlobMatcher>,
    tool: Option<GlobMatcher>,
    only_failed: bool,
    /// The period, in milliseconds since 1970.
    since: Option<i64>,
    until: Option<i64>,
}

impl FindQuery {
    fn new(store: &RunStore, args: &FindArgs) -> Result<Self, CliError> {
        let period = audit::period_filter(store, args.run.as_deref(), &args.period)?;
        let matcher = |text: &String| {
            let text = text.strip_suffix('*').unwrap_or(text);
            TextMatcher::new(text)
                .map_err(|error| CliError::usage(format!("the text cannot be searched: {error}")))
        };
        let glob = |given: &Option<String>| {
            let parse = |given: &String| {
                let glob = Glob::new(given).map(|glob| glob.compile_matcher());
                glob.map_err(|error| CliError::usage(format!("invalid pattern: {error}")))
            };
            given.as_ref().map(parse).transpose()
        };
        if !args
            .text
            .iter()
            .any(|text| text.chars().any(char::is_alphanumeric))
        {
            return Err(CliError::usage("the text has no word").with_help("name at least one word"));
        }
        Ok(Self {
            texts: args.text.iter().map(matcher).collect::<Result<_, _>>()?,
            run: period.run,
            unit: glob(&args.unit)?,
            tool: glob(&args.tool)?,
            only_failed: args.failed,
            since: period.since_ms,
            until: period.until_ms,
        })
    }
}

/// The tape of one run.
struct SearchedTape {
    run: RunId,
    source: FileSource,
    /// The tool of each call.
    tools: HashMap<String, String>,
    is_scanned: bool,
}

impl SearchedTape {
    fn open(store: &RunStore, db: &Db, run: RunId) -> Result<Self, Problem> {
        let source = recorded_tapes::open_source(store, &store.recorded_run(run));
        let source = source.map_err(|error| Problem::from_error(&error))?;
        let mut tools = HashMap::new();
        let filter = IndexFilter {
            run: Some(run),
            ..IndexFilter::default()
        };
        let read = db.rows(IndexView::Audit, &filter, &mut |row| {
            let [id, tool] =
                ["tool_use_id", "tool"].map(|name| row.get(name).and_then(Value::as_str));
            tools.extend(
                id.zip(tool)
                    .map(|(id, tool)| (id.to_owned(), tool.to_owned())),
            );
            true
        });
        read.map_err(|error| Problem::from_error(&error))?;
        Ok(Self {
            run,
            source,
            tools,
            is_scanned: false,
        })
    }

    /// The entry, if it is what the query looks for.
    fn read(&mut self, seq: Seq, query: &FindQuery) -> Result<Option<FoundMoment>, CliError> {
        if !self.is_scanned {
            while self.source.scan_ahead(SLICE).map_err(CliError::internal)? == PollStatus::More {}
            self.is_scanned = true;
        }
        let began = self.source.info().started_at.map(|at| at.as_millisecond());
        let (tools, mut found) = (&self.tools, None);
        let read = self.source.read(seq, &mut |entry| {
            found = FoundMoment::new(&entry, began, tools, query);
        });
        read.map_err(CliError::internal)?;
        Ok(found)
    }
}

/// An entry that contains the texts.
struct FoundMoment {
    at: String,
    unit: Option<String>,
    attempt: Option<u32>,
    /// `call`, `result`, `answer`, `prompt`, `stderr`, `note`, or the type of the line.
    kind: String,
    tool: Option<String>,
    has_failed: bool,
    /// The found text, and what is around it.
    text: String,
}

impl FoundMoment {
    fn new(
        entry: &EntryRef<'_>,
        began: Option<i64>,
        tools: &HashMap<String, String>,
        query: &FindQuery,
    ) -> Option<Self> {
        let bytes = entry.body.bytes();
        if !query.texts.iter().all(|text| text.is_in(bytes)) {
            return None;
        }
        let Millis(at) = entry.at;
        let at = began.map(|began| began.saturating_add(i64::try_from(at).unwrap_or(i64::MAX)));
        let is_before = |limit: Option<i64>| at.zip(limit).is_some_and(|(at, limit)| at < limit);
        if is_before(query.since) || (query.until.is_some() && !is_before(query.until)) {
            return None;
        }
        let (unit, attempt) = match entry.scope {
            EntryScope::Attempt(unit, attempt) => (Some(unit.to_owned()), Some(attempt)),
            EntryScope::Run | EntryScope::BySession => (None, None),
        };
        let matches = |glob: &Option<GlobMatcher>, name: Option<&str>| {
            glob.as_ref()
                .is_none_or(|glob| name.is_some_and(|name| glob.is_match(name)))
        };
        if !matches(&query.unit, unit.as_deref()) {
            return None;
        }
        let first = query.texts.first()?;
        let place = match &entry.body {
            EntryBody::Stdout(json) | EntryBody::Stdin(json) | EntryBody::Note(json) => {
                serde_json::from_slice::<Value>(json)
                    .ok()
                    .and_then(|value| TextPlace::find(&value, first, 0))
            }
            EntryBody::StdoutRaw(_) | EntryBody::Stderr(_) => None,
        };
        let place = place.unwrap_or_else(|| TextPlace {
            text: snippet(&String::from_utf8_lossy(bytes), first),
            ..TextPlace::default()
        });
        let kind = match (&entry.body, place.kind.as_deref()) {
            (EntryBody::Stderr(_), _) => "stderr",
            (EntryBody::StdoutRaw(_), _) => "stdout",
            (EntryBody::Note(_), _) => "note",
            (_, Some("tool_use")) => "call",
            (_, Some("tool_result")) => "result",
            (_, Some("assistant" | "text" | "thinking")) => "answer",
            (EntryBody::Stdin(_), _) | (_, Some("user")) => "prompt",
            (_, kind) => kind.unwrap_or("line"),
        };
        let tool = place.tool.or_else(|| tools.get(&place.call?).cloned());
        let is_named = matches(&query.tool, tool.as_deref())
            || matches(&query.tool, tool.as_deref().map(bare_name));
        if !is_named || (query.only_failed && !place.has_failed) {
            return None;
        }
        let at = at.and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
        Some(Self {
            at: at.map(|at| at.to_string()).unwrap_or_default(),
            unit,
            attempt,
            kind: kind.to_owned(),
            tool,
            has_failed: place.has_failed,
            text: place.text,
        })
    }

    fn to_row(&self, format: TableFormat, run: RunId, seq: Seq) -> Vec<Value> {
        if format == TableFormat::Text {
            let unit = match (&self.unit, self.attempt) {
                (Some(unit), Some(attempt)) => format!("{unit} #{attempt}"),
                _ => String::new(),
            };
            let time: String = self.at.chars().take(19).collect();
            let tool = self.tool.as_deref().map(bare_name).unwrap_or_default();
            return vec![
                json!(time.replace('T', " ")),
                json!(run.short().to_string()),
                json!(unit),
                json!(self.kind),
                json!(tool),
                json!(self.text),
                json!(seq.0.to_string()),
            ];
        }
        vec![
            json!(self.at),
            json!(run.to_string()),
            json!(self.unit),
            json!(self.attempt),
            json!(seq.0),
            json!(self.kind),
            json!(self.tool),
            json!(self.has_failed),
            json!(self.text),
        ]
    }
}

/// Where a text is in the JSON of an entry.
#[derive(Debug, Default, PartialEq, Eq)]
struct TextPlace {
    /// The `type` of the innermost object around it that has one.
    kind: Option<String>,
    tool: Option<String>,
    /// The id of the call of a result.
    call: Option<String>,
    has_failed: bool,
    text: String,
}

impl TextPlace {
    fn find(value: &Value, text: &TextMatcher, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        match value {
            Value::String(content) => text.is_in(content.as_bytes()).then(|| Self {
                text: snippet(content, text),
                ..Self::default()
            }),
            Value::Array(values) => values
                .iter()
                .find_map(|value| Self::find(value, text, depth + 1)),
            Value::Object(fields) => {
                let mut found = fields
                    .values()
                    .find_map(|value| Self::find(value, text, depth + 1))?;
                let field =
                    |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
                match field("type").as_deref() {
                    Some("tool_use") => {
                        found.kind = field("type");
                        found.tool = field("name");
                    }
                    Some("tool_result") => {
                        found.kind = field("type");
                        found.call = field("tool_use_id");
                        found.has_failed = fields.get("is_error") == Some(&Value::Bool(true));
                    }
                    Some(_) if found.kind.is_none() => found.kind = field("type"),
                    _ => {}
                }
                Some(found)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }
}

/// The first occurrence in `content` on one line, with what is around it.
fn snippet(content: &str, text: &TextMatcher) -> String {
    let at = text.find_from(content.as_bytes(), 0).unwrap_or(0);
    let is_start = |at: &usize| content.is_char_boundary(*at);
    let at = (0..=at).rev().find(is_start).unwrap_or(0);
    let (before, after) = content.split_at(at);
    let start = before
        .char_indices()
        .rev()
        .nth(CONTEXT_CHARS)
        .map_or(0, |(start, _)| start);
    let end = after
        .char_indices()
        .nth(2 * CONTEXT_CHARS)
        .map_or(content.len(), |(end, _)| at + end);
    let words = content
        .get(start..end)
        .unwrap_or_default()
        .split_whitespace();
    let text = words.collect::<Vec<_>>().join(" ");
    let (cut_start, cut_end) = (start > 0, end < content.len());
    format!(
        "{}{text}{}",
        if cut_start { "…" } else { "" },
        if cut_end { "…" } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(json: &str, text: &str) -> TextPlace {
        let value: Value = serde_json::from_str(json).unwrap();
        TextPlace::find(&value, &TextMatcher::new(text).unwrap(), 0).unwrap()
    }

    #[test]
    fn text_is_placed_in_the_block_that_has_it() {
        let call = place(
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"Hello"},{"type":"tool_use","id":"t","name":"read","input":{"path":"orders.md"}}]}}"#,
            "orders",
        );
        assert_eq!(
            (
                call.kind.as_deref(),
                call.tool.as_deref(),
                call.text.as_str()
            ),
            (Some("tool_use"), Some("read"), "orders.md")
        );
        let result = place(
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":[{"type":"text","text":"no Orders"}]}]}}"#,
            "orders",
        );
        assert_eq!(
            (
                result.kind.as_deref(),
                result.call.as_deref(),
                result.has_failed
            ),
            (Some("tool_result"), Some("t"), true)
        );
    }

    #[test]
    fn snippet_is_one_line_around_the_text() {
        let content = format!("{}\nneedle\n{}", "a ".repeat(100), "ä ".repeat(200));
        let shown = snippet(&content, &TextMatcher::new("needle").unwrap());
        assert!(
            shown.starts_with('…') && shown.ends_with('…') && !shown.contains('\n'),
            "{shown}"
        );
        assert!(
            shown.contains("needle") && shown.chars().count() < 200,
            "{shown}"
        );
    }
}
