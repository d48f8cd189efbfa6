//! Loads the content that the screen is about to show into the cache: reads entries, decodes them and cuts them to a
//! row.
//!
//! This is the only part of the screen that reads bodies. It must not read content that is neither visible nor
//! requested.

use std::collections::BTreeSet;

use super::{
    cache::{
        CacheRequest, DocumentContent, DocumentRequest, EntryLine, RowId, RowLine, ScreenCache,
    },
    document::{DocumentBlock, DocumentLayout, LaidOutDocument},
    entry_part::EntryPart,
    theme::StyleRole,
};
use ingestdeck_core::{
    decode::{self, LineKind, MessageBlock, RawJson, ToolUse, line::SystemLine},
    run::{
        EntryRef, EntrySourceError, Timeline,
        state::{AttemptId, RowKind, RowOutcome, StreamRow},
    },
    tape::{EntryBody, Note, Seq, note::CallDecision},
    text,
};

mod artifact;
mod attempt_summary;
mod compare;
mod entry_blocks;
mod file_change;
mod inspect;
mod line_writer;
mod reading;
mod row_match;
mod row_text;

pub(crate) use self::{
    file_change::pending_change,
    line_writer::find_writer,
    row_match::{entry_match, row_match},
};

/// Longest line that is decoded for a row. Of a longer line only the beginning is used.
const MAX_DECODED_BYTES: usize = 256 * 1024;
/// Characters of a row that are cached.
const MAX_ROW_CHARS: usize = 400;
/// Bytes of an entry that a document shows.
const MAX_SHOWN_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a document that are laid out before it is shown; the rest follows in slices.
const FIRST: usize = 128 * 1024;

/// Loads the content that `wants` lists and the cache lacks.
pub(crate) fn load(timeline: &mut Timeline, cache: &mut ScreenCache, wants: &CacheRequest) {
    for row in &wants.rows {
        let id = RowId::new(row, timeline.view());
        if cache.row(id).is_none() {
            let line = row_line(timeline, row, id);
            cache.put_row(id, line);
        }
    }
    cache.limit_reading(&wants.reading);
    for key in &wants.reading {
        if cache.reading(key).is_none() {
            let lines = reading::reading_lines(timeline, key);
            cache.put_reading(*key, lines);
        }
    }
    for seq in &wants.entries {
        if cache.entry(*seq).is_none() {
            let line = read_head(timeline, *seq, MAX_DECODED_BYTES, entry_line);
            cache.put_entry(*seq, line.unwrap_or_else(unreadable));
        }
    }
    if let Some(sides) = &wants.comparison
        && !cache.has_comparison(sides)
        && let Some(comparison) = compare::compare(timeline, cache, sides)
    {
        cache.put_comparison(*sides, comparison);
    }
    if let Some(wanted) = &wants.document
        && !cache.select_document(wanted)
    {
        let mut layout = start_layout(timeline, cache, wanted);
        layout.step(FIRST);
        cache.put_document(wanted.clone(), layout);
    }
}

/// Reads or lays out one slice of the missing content. False when none is missing.
pub(crate) fn load_more(
    timeline: &mut Timeline,
    cache: &mut ScreenCache,
    wants: &CacheRequest,
) -> bool {
    if let Some(layout) = cache
        .layout()
        .filter(|layout| !layout.is_complete() && wants.document.is_some())
    {
        layout.step(FIRST);
        return true;
    }
    let entries = timeline.view().state.entries;
    let unread = wants.summaries.iter().find(|attempt_id| {
        let rows = timeline.view().rows(**attempt_id);
        cache
            .summary(**attempt_id)
            .is_none_or(|gathered| !gathered.is_complete(rows, entries))
    });
    let Some(attempt_id) = unread else {
        return false;
    };
    cache.summary_mut(*attempt_id).slice(timeline, *attempt_id);
    true
}

/// True when [`load_more`] has work to do.
pub(crate) fn has_more(timeline: &Timeline, cache: &ScreenCache, wants: &CacheRequest) -> bool {
    let run_view = timeline.view();
    (wants.document.is_some() && !cache.is_complete())
        || wants.summaries.iter().any(|attempt_id| {
            let rows = run_view.rows(*attempt_id);
            cache
                .summary(*attempt_id)
                .is_none_or(|gathered| !gathered.is_complete(rows, run_view.state.entries))
        })
}

/// The target of a call with a name for it: a command, a path, or the key of a page.
pub(crate) fn call_target(
    timeline: &mut Timeline,
    seq: Seq,
    block: u8,
) -> Option<(&'static str, String)> {
    let edited = edited(timeline, seq, block);
    let found = read(timeline, seq, |arrived| {
        let line = decode::decode_line(bytes(&arrived.body));
        let Some(MessageBlock::ToolUse(call)) = blocks(&line).get(usize::from(block)) else {
            return None;
        };
        const NAMES: [(&str, &str); 7] = [
            ("command", "command"),
            ("file_path", "path"),
            ("path", "path"),
            ("notebook_path", "path"),
            ("key", "key"),
            ("sourceName", "source"),
            ("query", "query"),
        ];
        let input = call_as_run(call, edited.as_deref()).input?;
        NAMES
            .into_iter()
            .find_map(|(key, what)| Some((what, input.get(key)?.as_str()?.into_owned())))
    });
    found.ok().flatten()
}

/// The target of a writing call, and its text after the call as far as it is on the tape. `None` for other actions and
/// for calls that did not go through.
pub(crate) fn written_text(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    row: usize,
) -> Option<(String, Option<String>)> {
    let entries = timeline.view().state.entries;
    let shown = *timeline.view().rows(attempt_id).get(row)?;
    if shown.kind != RowKind::Tool || shown.end(entries) != RowOutcome::Ok {
        return None;
    }
    let edited = edited(timeline, shown.first(), shown.block);
    let write = read(timeline, shown.first(), |arrived| {
        let line = decode::decode_line(bytes(&arrived.body));
        let Some(MessageBlock::ToolUse(call)) = blocks(&line).get(usize::from(shown.block)) else {
            return None;
        };
        file_change::write_of(&call_as_run(call, edited.as_deref()))
    });
    let target = write.ok().flatten()?.target;
    // The text before the next row is the one after this row.
    let text = file_change::text_before(timeline, attempt_id, row + 1, &target);
    Some((target, text))
}

fn start_layout(
    timeline: &mut Timeline,
    cache: &ScreenCache,
    wanted: &DocumentRequest,
) -> DocumentLayout {
    let (pieces, turned): (Vec<DocumentBlock>, _) = match &wanted.content {
        DocumentContent::Parts(parts) => {
            (entry_blocks::entry_blocks(timeline, parts), BTreeSet::new())
        }
        DocumentContent::Artifact(shown) => {
            (artifact::artifact_blocks(timeline, shown), BTreeSet::new())
        }
        DocumentContent::InspectPanel(page) => (
            inspect::panel_blocks(timeline, cache, page),
            page.toggled_folds.clone(),
        ),
        DocumentContent::Difference(sides, pair) => (
            compare::difference_blocks(timeline, sides, *pair),
            BTreeSet::new(),
        ),
    };
    DocumentLayout::new(pieces, turned, wanted.width)
}

/// The arguments with which the user replaced those of the model, for the call in block `block` of the entry `first`.
fn edited(timeline: &mut Timeline, first: Seq, block: u8) -> Option<String> {
    let note = timeline.view().edited_arguments_entry(first, block)?;
    let input = read(timeline, note, |arrived| match arrived.body {
        EntryBody::Note(json) => match Note::parse(json) {
            Note::CallDecided { input, .. } => input.map(|input| input.to_string()),
            _ => None,
        },
        _ => None,
    });
    input.ok().flatten()
}

/// A call as it was executed: with the user's arguments, if there are any.
fn call_as_run<'a>(call: &ToolUse<'a>, edited: Option<&'a str>) -> ToolUse<'a> {
    ToolUse {
        input: edited.map(RawJson).or(call.input),
        ..call.clone()
    }
}

/// Why an entry cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntryReadError {
    #[error("entry {0} no longer exists")]
    Gone(Seq),
    #[error(transparent)]
    Source(#[from] EntrySourceError),
}

/// Reads one entry and applies `make` to it.
///
/// # Errors
/// When the entry cannot be read or does not exist.
pub(crate) fn read<T>(
    timeline: &mut Timeline,
    seq: Seq,
    make: impl FnOnce(&EntryRef<'_>) -> T,
) -> Result<T, EntryReadError> {
    let (mut make, mut made) = (Some(make), None);
    let found = timeline.read(seq, &mut |arrived| {
        if let Some(make) = make.take() {
            made = Some(make(&arrived));
        }
    });
    read_result(seq, found, made)
}

/// Like [`read`], but reads only the beginning of the entry; `make` also receives its full size.
pub(crate) fn read_head<T>(
    timeline: &mut Timeline,
    seq: Seq,
    most: usize,
    make: impl FnOnce(&EntryRef<'_>, u64) -> T,
) -> Result<T, EntryReadError> {
    let (mut make, mut made) = (Some(make), None);
    let found = timeline.read_head(seq, most, &mut |arrived, size| {
        if let Some(make) = make.take() {
            made = Some(make(&arrived, size));
        }
    });
    read_result(seq, found, made)
}

fn read_result<T>(
    seq: Seq,
    found: Result<bool, EntrySourceError>,
    made: Option<T>,
) -> Result<T, EntryReadError> {
    match (found, made) {
        (Ok(_), Some(made)) => Ok(made),
        (Ok(_), None) => Err(EntryReadError::Gone(seq)),
        (Err(error), _) => Err(error.into()),
    }
}

/// The bytes of a body.
pub(crate) fn bytes<'a>(body: &'a EntryBody<'_>) -> &'a [u8] {
    body.bytes()
}

fn head(bytes: &[u8], most: usize) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(most)])
}

fn row_line(timeline: &mut Timeline, row: &StreamRow, id: RowId) -> RowLine {
    let edited = edited(timeline, id.first, id.block);
    let begun = read_head(timeline, id.first, MAX_DECODED_BYTES, |arrived, size| {
        let (label, call) = label(&arrived.body, size, row, edited.as_deref());
        (
            RowLine {
                label,
                at: arrived.at,
                ..RowLine::default()
            },
            call,
        )
    });
    let (mut line, call) = begun.unwrap_or_else(|error| {
        (
            RowLine {
                label: error.to_string(),
                ..RowLine::default()
            },
            None,
        )
    });
    if id.kind == RowKind::Note {
        let decision = decision_label(timeline, id.first, &line.label);
        line.label = decision.unwrap_or(line.label);
    }
    let end = row.end(timeline.view().state.entries);
    if end == RowOutcome::Open && id.last.is_some() {
        line.outcome = "in the background".to_owned();
        return line;
    }
    if let (RowKind::Note, Some(_)) = (id.kind, id.last.filter(|last| *last != id.first)) {
        line.label = start_label(timeline, row).unwrap_or(line.label);
        return line;
    }
    if let Some(last) = id.last.filter(|last| *last != id.first)
        && let Ok((ended, row_outcome)) =
            read_head(timeline, last, MAX_DECODED_BYTES, |arrived, size| {
                (
                    arrived.at,
                    row_outcome(
                        &arrived.body,
                        size,
                        (row, &line.label, call.as_deref()),
                        end,
                    ),
                )
            })
    {
        line.ended = Some(ended);
        line.outcome = row_outcome;
    }
    let waited = timeline.view().waited_for_person(id.first, id.block);
    if let Some(waited) = waited.filter(|waited| waited.0 > 0) {
        line.waited = waited;
        let waited = format!("you {}", text::latency(waited));
        line.outcome = match end {
            _ if line.outcome.is_empty() => waited,
            RowOutcome::Ok => format!("{waited} · {}", line.outcome),
            // A reason is more important.
            _ => format!("{} · {waited}", line.outcome),
        };
    }
    line
}

/// The label of a decision, with the call that it is about: calls may be parallel. An answer needs no call.
fn decision_label(timeline: &mut Timeline, decision: Seq, label: &str) -> Option<String> {
    use CallDecision::{Answered, Cancelled};
    let (first, block) = timeline.view().decided_call(decision)?;
    let is_answer = read(timeline, decision, |arrived| match arrived.body {
        EntryBody::Note(json) => matches!(
            Note::parse(json),
            Note::CallDecided {
                decision: Answered | Cancelled,
                ..
            }
        ),
        _ => false,
    });
    if is_answer.ok()? {
        return None;
    }
    let call = read_head(timeline, first, MAX_DECODED_BYTES, |arrived, _| {
        let line = decode::decode_line(bytes(&arrived.body));
        match blocks(&line).get(usize::from(block)) {
            Some(MessageBlock::ToolUse(call)) => Some(row_text::call(&call.name, call.input)),
            _ => None,
        }
    });
    let call = call.ok()??;
    Some(match label.split_once(": ") {
        Some((decision, why)) => format!("{decision}: {call} · {why}"),
        None => format!("{label}: {call}"),
    })
}

/// The text of the row of a start, from the entries that it covers.
fn start_label(timeline: &mut Timeline, row: &StreamRow) -> Option<String> {
    let view = timeline.view();
    let mut attempts = view.state.units.iter().flat_map(|unit| &unit.attempts);
    let number = attempts
        .find(|attempt| attempt.setup.start_note == Some(row.first()))?
        .number;
    let mut facts = row_text::StartFacts::default();
    for seq in view.row_entries(row).into_iter().flatten() {
        read_head(timeline, seq, MAX_DECODED_BYTES, |arrived, size| {
            facts.read(&arrived.body, size)
        })
        .ok()?;
    }
    Some(facts.label(number))
}

/// The text of a row, and the id of the call if it is one.
fn label(
    body: &EntryBody<'_>,
    size: u64,
    row: &StreamRow,
    edited: Option<&str>,
) -> (String, Option<String>) {
    let raw = bytes(body);
    if row.kind == RowKind::Completed && !is_result(body, size) {
        // A session without a result ends at its last line, which has other content. Session files have no results.
        let is_file =
            matches!(body, EntryBody::Stdout(json) if decode::decode_line(json).is_session_file);
        let missing = if is_file {
            ""
        } else {
            " without a result line"
        };
        return (format!("the session ends here{missing}"), None);
    }
    match body {
        EntryBody::StdoutRaw(_) | EntryBody::Stderr(_) => (
            text::one_row(&head(raw, MAX_ROW_CHARS), MAX_ROW_CHARS),
            None,
        ),
        _ if is_huge(size) => (row_text::oversized_line(&head(raw, 4096), size), None),
        EntryBody::Note(json) => {
            let note = Note::parse(json);
            if let (RowKind::Prompt, Note::AttemptStarted(started)) = (row.kind, &note) {
                return (text::one_row(&started.prompt, MAX_ROW_CHARS), None);
            }
            // The second row of a note that begins an attempt.
            let amendment = (row.block > 0)
                .then(|| row_text::amendment(&note))
                .flatten();
            (amendment.unwrap_or_else(|| row_text::note_row(&note)), None)
        }
        EntryBody::Stdout(json) | EntryBody::Stdin(json) => {
            let line = decode::decode_line(json);
            let blocks = match &line.body {
                decode::LineBody::Assistant(chat) | decode::LineBody::User(chat) => &*chat.blocks,
                decode::LineBody::Result(result) if row.is_redundant() => {
                    return (row_text::end(result), None);
                }
                decode::LineBody::System(SystemLine::Task(task)) => {
                    return (row_text::task(task, row), None);
                }
                _ => &[],
            };
            match blocks.get(usize::from(row.block)) {
                Some(MessageBlock::ToolUse(call)) if row.kind == RowKind::Tool => {
                    let mark = if edited.is_some() { " (edited)" } else { "" };
                    let label = row_text::call(&call.name, call_as_run(call, edited).input) + mark;
                    (label, Some(call.id.clone().into_owned()))
                }
                Some(MessageBlock::Text(text))
                    if matches!(row.kind, RowKind::Prompt | RowKind::Notice) =>
                {
                    (
                        row_text::user(line.text_author(), text, MAX_ROW_CHARS),
                        None,
                    )
                }
                Some(block) => (row_text::block(block, MAX_ROW_CHARS), None),
                None => (row_text::line(&line.body, json, MAX_ROW_CHARS), None),
            }
        }
    }
}

/// True for a line that is too long to be decoded for a row. Only its beginning may be loaded.
fn is_huge(size: u64) -> bool {
    size > MAX_DECODED_BYTES as u64
}

fn is_result(body: &EntryBody<'_>, size: u64) -> bool {
    // A line that is too long to be decoded is assumed to be a result: only results have several megabytes.
    matches!(body, EntryBody::Stdout(json) if is_huge(size) || matches!(decode::decode_line(json).body, decode::LineBody::Result(_)))
}

/// The outcome of a row: the size of a result, the error, or why the tool declined.
fn row_outcome(
    body: &EntryBody<'_>,
    size: u64,
    (row, label, call): (&StreamRow, &str, Option<&str>),
    end: RowOutcome,
) -> String {
    if is_huge(size) {
        return text::size(size);
    }
    let EntryBody::Stdout(json) = body else {
        return String::new();
    };
    let line = decode::decode_line(json);
    let blocks = match &line.body {
        decode::LineBody::User(chat) | decode::LineBody::Assistant(chat) => &*chat.blocks,
        decode::LineBody::Result(_) => return "no result before the run ended".to_owned(),
        decode::LineBody::System(SystemLine::Task(task)) => {
            return row_text::task_outcome(task, row, label);
        }
        _ => &[],
    };
    let results = blocks.iter().filter_map(|block| match block {
        MessageBlock::ToolResult(result) => Some(result),
        _ => None,
    });
    let mut results = results.filter(|result| call.is_none_or(|call| result.tool_use_id == call));
    let Some(result) = results.next() else {
        return String::new();
    };
    if end == RowOutcome::Declined {
        row_text::declined(result, MAX_ROW_CHARS)
    } else {
        row_text::result(result, MAX_ROW_CHARS)
    }
}

fn entry_line(arrived: &EntryRef<'_>, size: u64) -> EntryLine {
    let raw = bytes(&arrived.body);
    let text = |words: String| {
        if words.is_empty() {
            text::one_row(&head(raw, MAX_ROW_CHARS), MAX_ROW_CHARS)
        } else {
            words
        }
    };
    let (stream, kind, role, text) = match &arrived.body {
        EntryBody::Note(_) if is_huge(size) => (
            "note",
            "note".to_owned(),
            StyleRole::Focus,
            row_text::oversized_line(&head(raw, 4096), size),
        ),
        EntryBody::Note(json) => {
            let note = Note::parse(json);
            let amendment = row_text::amendment(&note)
                .map(|words| format!(" · {words}"))
                .unwrap_or_default();
            (
                "note",
                row_text::note_kind(json),
                StyleRole::Focus,
                note.to_string() + &amendment,
            )
        }
        EntryBody::Stderr(_) => (
            "err",
            "stderr".to_owned(),
            StyleRole::Warning,
            text(String::new()),
        ),
        EntryBody::StdoutRaw(_) => (
            "raw",
            "not JSON".to_owned(),
            StyleRole::Warning,
            text(String::new()),
        ),
        EntryBody::Stdout(json) | EntryBody::Stdin(json) => {
            let stream = if matches!(arrived.body, EntryBody::Stdin(_)) {
                "in"
            } else {
                "out"
            };
            if is_huge(size) {
                (
                    stream,
                    row_text::type_of(&head(raw, 4096)),
                    StyleRole::Text,
                    row_text::oversized_line(&head(raw, 4096), size),
                )
            } else {
                let line = decode::decode_line(json);
                let role = match line.body.kind() {
                    LineKind::Assistant => StyleRole::Succeeded,
                    LineKind::User => StyleRole::Budget,
                    LineKind::Result => StyleRole::Strong,
                    LineKind::Init => StyleRole::Focus,
                    LineKind::Malformed | LineKind::Other => StyleRole::Warning,
                    LineKind::System
                    | LineKind::StreamEvent
                    | LineKind::ToolProgress
                    | LineKind::RateLimit
                    | LineKind::Control => StyleRole::Dim,
                };
                (
                    stream,
                    row_text::kind(&line.body),
                    role,
                    text(row_text::line(&line.body, json, MAX_ROW_CHARS)),
                )
            }
        }
    };
    EntryLine {
        at: arrived.at,
        stream,
        kind,
        role,
        text,
        size,
    }
}

fn unreadable(error: EntryReadError) -> EntryLine {
    EntryLine {
        at: ingestdeck_core::tape::Millis(0),
        stream: "?",
        kind: "unreadable".to_owned(),
        role: StyleRole::Failed,
        text: error.to_string(),
        size: 0,
    }
}

/// Lays out parts of entries completely, for callers that do not work in slices.
pub(crate) fn render_document(
    timeline: &mut Timeline,
    parts: &[EntryPart],
    width: u16,
) -> LaidOutDocument {
    let mut layout = DocumentLayout::new(
        entry_blocks::entry_blocks(timeline, parts),
        BTreeSet::new(),
        width,
    );
    layout.step(usize::MAX);
    layout.into_document()
}

/// The name of the stream that an entry belongs to.
fn stream(body: &EntryBody<'_>) -> &'static str {
    match body {
        EntryBody::Stdout(_) => "out",
        EntryBody::Stdin(_) => "in",
        EntryBody::Note(_) => "note",
        EntryBody::StdoutRaw(_) => "raw",
        EntryBody::Stderr(_) => "err",
    }
}

fn blocks<'a, 'b>(line: &'b decode::AgentLine<'a>) -> &'b [MessageBlock<'a>] {
    match &line.body {
        decode::LineBody::Assistant(chat) | decode::LineBody::User(chat) => &chat.blocks,
        _ => &[],
    }
}
