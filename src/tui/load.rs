//! Reads what the screen is about to show into the cache: lines again, decoded, cut to a row's worth.
//!
//! The only place of the screen that touches bodies. It reads nothing that is not visible or asked for.

use std::collections::BTreeSet;

use super::{
    cache::{Cache, EntryLine, RowId, RowLine, Wanted, Wants, What},
    document::{Document, Layout, Piece},
    model::Part,
    text,
    theme::Role,
};
use crate::{
    decode::{self, Block, Kind, Raw, ToolUse},
    run::{
        Arrived, SourceError, Timeline,
        state::{Row, RowEnd, RowKind},
    },
    tape::{Body, Note, Seq},
};

pub mod align;
mod change;
pub mod compare;
pub mod gather;
mod inspect;
mod parts;
mod words;

/// Longest line that is decoded to show a row. Of longer ones, the head must do.
const DECODED: usize = 256 * 1024;
/// Characters of a row that are kept.
const KEPT: usize = 400;
/// Bytes of an entry that a document shows.
const SHOWN: usize = 4 * 1024 * 1024;
/// Bytes of a document that are laid out before it is shown; the rest follows in slices.
const FIRST: usize = 128 * 1024;
/// Entries among which the beginning of an attempt is looked for.
pub const PROLOGUE: usize = 256;

/// Fills the cache with what `wants` lists and the cache lacks.
pub fn load(timeline: &mut Timeline, cache: &mut Cache, wants: &Wants) {
    for row in &wants.rows {
        let id = RowId::of(row, timeline.story());
        if cache.row(id).is_none() {
            let line = row_line(timeline, row, id);
            cache.put_row(id, line);
        }
    }
    for seq in &wants.entries {
        if cache.entry(*seq).is_none() {
            let line = read_head(timeline, *seq, DECODED, entry_line);
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
        && !cache.has(wanted)
    {
        let mut layout = lay(timeline, cache, wanted);
        layout.step(FIRST);
        cache.put_document(wanted.clone(), layout);
    }
}

/// A slice of what is still to be read or laid out. False when there is nothing left.
pub fn more(timeline: &mut Timeline, cache: &mut Cache, wants: &Wants) -> bool {
    if let Some(layout) = cache.layout().filter(|layout| !layout.is_complete() && wants.document.is_some()) {
        layout.step(FIRST);
        return true;
    }
    let entries = timeline.story().state.entries;
    let unread = wants.gathered.iter().find(|lane| {
        let rows = timeline.story().rows(**lane);
        cache.gathered(**lane).is_none_or(|gathered| !gathered.is_complete(rows, entries))
    });
    let Some(lane) = unread else { return false };
    cache.gather(*lane).slice(timeline, *lane);
    true
}

/// True when [`more`] has something to do.
pub fn is_unread(timeline: &Timeline, cache: &Cache, wants: &Wants) -> bool {
    let story = timeline.story();
    (wants.document.is_some() && !cache.is_complete())
        || wants.gathered.iter().any(|lane| {
            let rows = story.rows(*lane);
            cache.gathered(*lane).is_none_or(|gathered| !gathered.is_complete(rows, story.state.entries))
        })
}

/// What a call names, with the word for it: a command, a path, the key of a page.
pub fn named(timeline: &mut Timeline, seq: Seq, block: u8) -> Option<(&'static str, String)> {
    let edited = edited(timeline, seq, block);
    let found = read(timeline, seq, |arrived| {
        let line = decode::line(bytes(&arrived.body));
        let Some(Block::ToolUse(call)) = blocks(&line).get(usize::from(block)) else { return None };
        const NAMES: [(&str, &str); 7] = [
            ("command", "command"),
            ("file_path", "path"),
            ("path", "path"),
            ("notebook_path", "path"),
            ("key", "key"),
            ("sourceName", "source"),
            ("query", "query"),
        ];
        let input = ran(call, edited.as_deref()).input?;
        NAMES.into_iter().find_map(|(key, what)| Some((what, input.get(key)?.as_str()?.into_owned())))
    });
    found.ok().flatten()
}

fn lay(timeline: &mut Timeline, cache: &Cache, wanted: &Wanted) -> Layout {
    let (pieces, turned): (Vec<Piece>, _) = match &wanted.what {
        What::Parts(parts) => (parts::pieces(timeline, parts), BTreeSet::new()),
        What::Page(page) => (inspect::pieces(timeline, cache, page), page.turned.clone()),
    };
    Layout::new(pieces, turned, wanted.width)
}

/// The arguments that a person put in place of those of the model, for the call in block `block` of the entry `first`.
fn edited(timeline: &mut Timeline, first: Seq, block: u8) -> Option<String> {
    let note = timeline.story().edited(first, block)?;
    let input = read(timeline, note, |arrived| match arrived.body {
        Body::Note(json) => match Note::parse(json) {
            Note::CallDecided { input, .. } => input.map(|input| input.to_string()),
            _ => None,
        },
        _ => None,
    });
    input.ok().flatten()
}

/// A call as it ran: with the arguments of a person, if there are any.
fn ran<'a>(call: &ToolUse<'a>, edited: Option<&'a str>) -> ToolUse<'a> {
    ToolUse { input: edited.map(Raw).or(call.input), ..call.clone() }
}

/// Reads one entry and makes something of it.
pub fn read<T>(timeline: &mut Timeline, seq: Seq, make: impl FnOnce(&Arrived<'_>) -> T) -> Result<T, String> {
    let (mut make, mut made) = (Some(make), None);
    let found = timeline.read(seq, &mut |arrived| {
        if let Some(make) = make.take() {
            made = Some(make(&arrived));
        }
    });
    told(seq, found, made)
}

/// Reads the beginning of one entry and makes something of it and of its size.
pub fn read_head<T>(
    timeline: &mut Timeline,
    seq: Seq,
    most: usize,
    make: impl FnOnce(&Arrived<'_>, u64) -> T,
) -> Result<T, String> {
    let (mut make, mut made) = (Some(make), None);
    let found = timeline.read_head(seq, most, &mut |arrived, size| {
        if let Some(make) = make.take() {
            made = Some(make(&arrived, size));
        }
    });
    told(seq, found, made)
}

fn told<T>(seq: Seq, found: Result<bool, SourceError>, made: Option<T>) -> Result<T, String> {
    match (found, made) {
        (Ok(_), Some(made)) => Ok(made),
        (Ok(_), None) => Err(format!("entry {seq} is not there any more")),
        (Err(error), _) => Err(error.to_string()),
    }
}

/// The bytes of a body.
pub fn bytes<'a>(body: &'a Body<'_>) -> &'a [u8] {
    body.bytes()
}

fn head(bytes: &[u8], most: usize) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(most)])
}

fn row_line(timeline: &mut Timeline, row: &Row, id: RowId) -> RowLine {
    let edited = edited(timeline, id.first, id.block);
    let begun = read_head(timeline, id.first, DECODED, |arrived, size| {
        let (label, call) = label(&arrived.body, size, row, edited.as_deref());
        (RowLine { label, at: arrived.at, ..RowLine::default() }, call)
    });
    let (mut line, call) = begun.unwrap_or_else(|error| (RowLine { label: error, ..RowLine::default() }, None));
    let end = row.end(timeline.story().state.entries);
    if let Some(last) = id.last.filter(|last| *last != id.first)
        && let Ok((ended, fact)) = read_head(timeline, last, DECODED, |arrived, size| {
            (arrived.at, fact(&arrived.body, size, call.as_deref(), end))
        })
    {
        line.ended = Some(ended);
        line.fact = fact;
    }
    line
}

/// The words of a row, and the id of the call if it is one.
fn label(body: &Body<'_>, size: u64, row: &Row, edited: Option<&str>) -> (String, Option<String>) {
    let raw = bytes(body);
    if row.kind == RowKind::Completed && !is_result(body, size) {
        // The end of a session that has no result stands at whatever line came last, which says something else.
        return ("the session ends here without a result line".to_owned(), None);
    }
    match body {
        Body::Raw(_) | Body::Err(_) => (text::one_row(&head(raw, KEPT), KEPT), None),
        _ if is_huge(size) => (words::huge(&head(raw, 4096), size), None),
        Body::Note(json) => {
            let note = Note::parse(json);
            // The second row of a note that begins an attempt.
            let amendment = (row.block > 0).then(|| words::amendment(&note)).flatten();
            (amendment.unwrap_or_else(|| words::note_row(&note)), None)
        }
        Body::Out(json) | Body::In(json) => {
            let line = decode::line(json);
            let blocks = match &line.body {
                decode::Body::Assistant(chat) | decode::Body::User(chat) => chat.blocks.as_slice(),
                decode::Body::Result(result) if row.repeats() => return (words::end(result), None),
                _ => &[],
            };
            match blocks.get(usize::from(row.block)) {
                Some(Block::ToolUse(call)) if row.kind == RowKind::Tool => {
                    (words::call(&call.name, ran(call, edited).input), Some(call.id.clone().into_owned()))
                }
                Some(block) => (words::block(block, KEPT), None),
                None => (words::line(&line.body, json, KEPT), None),
            }
        }
    }
}

/// Too long to be decoded for a row. What there is of it may be only its head.
fn is_huge(size: u64) -> bool {
    size > DECODED as u64
}

fn is_result(body: &Body<'_>, size: u64) -> bool {
    // A line too long to decode here is taken at its word: answers of several megabytes are results.
    matches!(body, Body::Out(json) if is_huge(size) || matches!(decode::line(json).body, decode::Body::Result(_)))
}

/// What the end of a row says: the size of a result, the error, or why the tool did not do it.
fn fact(body: &Body<'_>, size: u64, call: Option<&str>, end: RowEnd) -> String {
    if is_huge(size) {
        return text::size(size);
    }
    let Body::Out(json) = body else { return String::new() };
    let line = decode::line(json);
    let blocks = match &line.body {
        decode::Body::User(chat) | decode::Body::Assistant(chat) => chat.blocks.as_slice(),
        decode::Body::Result(_) => return "no result before the run ended".to_owned(),
        _ => &[],
    };
    let results = blocks.iter().filter_map(|block| match block {
        Block::ToolResult(result) => Some(result),
        _ => None,
    });
    let mut results = results.filter(|result| call.is_none_or(|call| result.tool_use_id == call));
    let Some(result) = results.next() else { return String::new() };
    if end == RowEnd::Declined { words::declined(result, KEPT) } else { words::result(result, KEPT) }
}

fn entry_line(arrived: &Arrived<'_>, size: u64) -> EntryLine {
    let raw = bytes(&arrived.body);
    let text = |words: String| if words.is_empty() { text::one_row(&head(raw, KEPT), KEPT) } else { words };
    let (stream, kind, role, text) = match &arrived.body {
        Body::Note(_) if is_huge(size) => ("note", "note".to_owned(), Role::Focus, words::huge(&head(raw, 4096), size)),
        Body::Note(json) => {
            let note = Note::parse(json);
            let amendment = words::amendment(&note).map(|words| format!(" · {words}")).unwrap_or_default();
            ("note", words::note_kind(json), Role::Focus, words::note(&note) + &amendment)
        }
        Body::Err(_) => ("err", "stderr".to_owned(), Role::Warning, text(String::new())),
        Body::Raw(_) => ("raw", "not JSON".to_owned(), Role::Warning, text(String::new())),
        Body::Out(json) | Body::In(json) => {
            let stream = if matches!(arrived.body, Body::In(_)) { "in" } else { "out" };
            if is_huge(size) {
                (stream, words::type_of(&head(raw, 4096)), Role::Text, words::huge(&head(raw, 4096), size))
            } else {
                let line = decode::line(json);
                let role = match line.body.kind() {
                    Kind::Assistant => Role::Succeeded,
                    Kind::User => Role::Budget,
                    Kind::Result => Role::Strong,
                    Kind::Init => Role::Focus,
                    Kind::Malformed | Kind::Other => Role::Warning,
                    Kind::System | Kind::StreamEvent | Kind::ToolProgress | Kind::RateLimit | Kind::Control => {
                        Role::Dim
                    }
                };
                (stream, words::kind(&line.body), role, text(words::line(&line.body, json, KEPT)))
            }
        }
    };
    EntryLine { at: arrived.at, stream, kind, role, text, size }
}

fn unreadable(error: String) -> EntryLine {
    EntryLine {
        at: crate::tape::Millis(0),
        stream: "?",
        kind: "unreadable".to_owned(),
        role: Role::Failed,
        text: error,
        size: 0,
    }
}

/// Parts of entries laid out to their end, for whoever does not wait for slices.
pub fn laid(timeline: &mut Timeline, parts: &[Part], width: u16) -> Document {
    let mut layout = Layout::new(parts::pieces(timeline, parts), BTreeSet::new(), width);
    layout.step(usize::MAX);
    layout.into_document()
}

/// Where an entry came from.
fn stream(body: &Body<'_>) -> &'static str {
    match body {
        Body::Out(_) => "out",
        Body::In(_) => "in",
        Body::Note(_) => "note",
        Body::Raw(_) => "raw",
        Body::Err(_) => "err",
    }
}

fn blocks<'a, 'b>(line: &'b decode::Line<'a>) -> &'b [Block<'a>] {
    match &line.body {
        decode::Body::Assistant(chat) | decode::Body::User(chat) => &chat.blocks,
        _ => &[],
    }
}
