//! The panels of the inspector as documents: an action in full, and what an attempt was told, given, and came to.
//!
//! Says what is on the record and what is not. It must not guess: a fact that nobody recorded is "not on this record",
//! one that nobody can see from here is "not observable".

use std::{collections::BTreeSet, sync::Arc};

use super::{SHOWN, bytes, change, parts, read, read_head};
use crate::{
    decode::{self, Block, Raw, line::Init},
    run::{
        Timeline,
        state::{Attempt, Row, RowEnd, RowKind},
    },
    tape::{Body, Millis, Note, Seq, note::AttemptStarted},
    tui::{
        cache::{Cache, Page},
        document::{Piece, Pretty},
        model::Panel,
        theme::Role,
        view::{clock, latency},
    },
};

mod evidence;
mod outcome;

/// What is said where a record has no such fact.
const ABSENT: &str = "not on this record";
/// Values of a raw line below this depth, and longer than this, are folded.
const RAW_FOLD: (usize, usize) = (1, 400);

/// The document of a panel.
pub(super) fn pieces(timeline: &mut Timeline, cache: &Cache, page: &Page) -> Vec<Piece> {
    let unit = timeline.story().state.units.get(page.unit).cloned();
    let Some((unit, attempt)) = unit.and_then(|unit| {
        let attempt = unit.attempts.get(page.attempt).cloned()?;
        Some((unit, attempt))
    }) else {
        return vec![Piece::line(Role::Dim, "this unit has not run yet")];
    };
    match page.panel {
        Panel::Actions => match page.action {
            Some((index, _)) => action(timeline, &attempt, index),
            None => Vec::new(),
        },
        Panel::Prompt => prompt(timeline, &attempt),
        Panel::Isolation => evidence::pieces(timeline, cache, &attempt),
        Panel::Stderr => outcome::stderr(timeline, cache, &attempt),
        Panel::Verdict => outcome::verdict(timeline, cache, &unit, &attempt),
    }
}

/// Everything about one action.
fn action(timeline: &mut Timeline, attempt: &Attempt, index: usize) -> Vec<Piece> {
    let story = timeline.story();
    let (entries, rows) = (story.state.entries, story.rows(attempt.lane));
    let Some(row) = rows.get(index).copied() else { return Vec::new() };
    let before = index.checked_sub(1).and_then(|index| rows.get(index)).map(Row::first);
    let last = row.last(entries).filter(|last| *last != row.first());
    let mut pieces = match row.kind {
        RowKind::Tool => call(timeline, attempt, index, &row, last),
        RowKind::Text => said(timeline, &row, "text"),
        RowKind::Thinking => said(timeline, &row, "thinking"),
        RowKind::Completed => answer(timeline, &row),
        RowKind::Denial | RowKind::Warning | RowKind::Notice | RowKind::Started | RowKind::Note => Vec::new(),
    };
    if !pieces.is_empty() {
        pieces.push(Piece::Gap);
    }
    if timeline.source().origin().has_times {
        pieces.extend(timing(timeline, &row, last, before));
        pieces.push(Piece::Gap);
    }
    for (index, seq) in [Some(row.first()), last].into_iter().flatten().enumerate() {
        if index > 0 {
            pieces.push(Piece::Gap);
        }
        // Where the line is all there is, nothing of it is folded.
        let fold = if row.kind == RowKind::Tool { RAW_FOLD } else { (usize::MAX - 1, usize::MAX) };
        let line = read_head(timeline, seq, SHOWN, |arrived, size| parts::line(seq, arrived, size, fold));
        pieces.extend(line.unwrap_or_else(|error| vec![Piece::line(Role::Failed, error)]));
    }
    pieces
}

struct Called {
    id: String,
    /// The arguments of the model, where a person replaced them.
    replaced: Option<String>,
    pieces: Vec<Piece>,
    write: Option<change::Write>,
}

fn call(timeline: &mut Timeline, attempt: &Attempt, index: usize, row: &Row, last: Option<Seq>) -> Vec<Piece> {
    let entries = timeline.story().state.entries;
    let end = row.end(entries);
    let edited = super::edited(timeline, row.first(), row.block);
    let begun = read_head(timeline, row.first(), SHOWN, |arrived, size| {
        if is_cut(size) {
            return Some(Called { id: String::new(), replaced: None, pieces: cut("call", size), write: None });
        }
        let line = decode::line(bytes(&arrived.body));
        match super::blocks(&line).get(usize::from(row.block)) {
            Some(Block::ToolUse(call)) => {
                let model = call.input.map_or("{}", |input| input.0);
                let replaced = edited.as_ref().map(|_| model.to_owned());
                let call = super::ran(call, edited.as_deref());
                let input: Arc<str> = call.input.map_or("{}", |input| input.0).into();
                let mut facts = vec![(Role::Text, call.name.to_string()), (Role::Dim, call.id.to_string())];
                if edited.is_some() {
                    facts.push((Role::Paused, "with the arguments of a person".to_owned()));
                }
                let title = Piece::titled("arguments", "call".to_owned(), facts, Some(Arc::clone(&input)));
                Some(Called {
                    id: call.id.to_string(),
                    replaced,
                    pieces: vec![title, Piece::Json(Pretty::folded(input, 3, 4096))],
                    write: change::of(&call),
                })
            }
            _ => None,
        }
    });
    let called = match begun {
        Ok(Some(called)) => called,
        Ok(None) => Called {
            id: String::new(),
            replaced: None,
            pieces: vec![
                Piece::section("call", None),
                Piece::line(Role::Warning, "the call of this result is not on this record"),
            ],
            write: None,
        },
        Err(error) => return vec![Piece::line(Role::Failed, error)],
    };
    let decisions = decisions(timeline, attempt, row, last, &called);
    let mut pieces = called.pieces;
    pieces.extend(decisions);
    let told = result(timeline, row, last.unwrap_or_else(|| row.first()), &called.id, end);
    if let Some(write) = &called.write {
        pieces.push(Piece::Gap);
        pieces.extend(change::pieces(timeline, attempt.lane, index, write, end, told.original));
    }
    pieces.push(Piece::Gap);
    pieces.extend(told.pieces);
    pieces
}

/// What a result says.
struct Result {
    pieces: Vec<Piece>,
    /// The text before a write, where the result has it.
    original: Option<String>,
}

fn result(timeline: &mut Timeline, row: &Row, last: Seq, id: &str, end: RowEnd) -> Result {
    let word = match end {
        RowEnd::Open => {
            let waits =
                vec![Piece::section("result", None), Piece::line(Role::Running, "none yet: the call is going on")];
            return Result { pieces: waits, original: None };
        }
        RowEnd::Ok => (Role::Succeeded, "ok".to_owned()),
        RowEnd::Failed => (Role::Failed, "failed".to_owned()),
        RowEnd::Denied => (Role::Denied, "denied".to_owned()),
        RowEnd::Declined => {
            (Role::Warning, "declined: the tool did not do what was asked, and that is no failure".to_owned())
        }
        RowEnd::Cut => (Role::Stopped, "cut short by the end of the attempt".to_owned()),
    };
    let told = read_head(timeline, last, SHOWN, |arrived, size| {
        if is_cut(size) {
            let pieces = vec![Piece::titled("result", "result".to_owned(), vec![word], None), parts::too_large()];
            return Result { pieces, original: None };
        }
        let raw = bytes(&arrived.body);
        let line = decode::line(raw);
        let id = (!id.is_empty()).then_some(id);
        let Some(result) = parts::result_of(&line, id) else {
            let none = match last == row.first() {
                true => "none on this record",
                false => "none before the run ended",
            };
            let pieces =
                vec![Piece::titled("result", "result".to_owned(), vec![word], None), Piece::line(Role::Warning, none)];
            return Result { pieces, original: None };
        };
        let text: Arc<str> = result.text().into();
        let facts = vec![word, (Role::Dim, super::words::fact(result))];
        let mut pieces = vec![Piece::titled("result", "result".to_owned(), facts, Some(Arc::clone(&text)))];
        pieces.extend(parts::content(result));
        Result { pieces, original: original(Raw(std::str::from_utf8(raw).unwrap_or("{}")), &text) }
    });
    told.unwrap_or_else(|error| Result { pieces: vec![Piece::line(Role::Failed, error)], original: None })
}

/// The text that was there before a write, where the result tells: empty for a new file.
fn original(line: Raw<'_>, text: &str) -> Option<String> {
    let [stream, file] = line.pick(["tool_use_result", "toolUseResult"]);
    if let Some(structured) = stream.or(file) {
        let [original, kind] = structured.pick(["originalFile", "type"]);
        if let Some(original) = original.and_then(Raw::as_str) {
            return Some(original.into_owned());
        }
        if kind.and_then(Raw::as_str).as_deref() == Some("create") {
            return Some(String::new());
        }
    }
    (text.starts_with("Wiki page ") && text.ends_with(" created.")).then(String::new)
}

/// What a person decided about the call while it waited.
fn decisions(timeline: &mut Timeline, attempt: &Attempt, row: &Row, last: Option<Seq>, called: &Called) -> Vec<Piece> {
    /// Entries after a call among which decisions about it are looked for.
    const NEAR: usize = 400;
    let id = called.id.as_str();
    if id.is_empty() {
        return Vec::new();
    }
    let entries = timeline.story().entries(attempt.lane);
    let from = entries.partition_point(|seq| u64::from(*seq) <= row.first().0);
    let until = last.map_or(entries.len(), |last| entries.partition_point(|seq| u64::from(*seq) < last.0));
    let between: Vec<_> = entries[from..until.max(from)].iter().take(NEAR).map(|seq| Seq(u64::from(*seq))).collect();
    let mut pieces = Vec::new();
    for seq in between {
        let told = read(timeline, seq, |arrived| {
            let Body::Note(json) = arrived.body else { return None };
            match Note::parse(json) {
                Note::CallHeld { tool_use_id, .. } if tool_use_id.as_deref() == Some(id) => {
                    Some((arrived.at, "held for a person".to_owned(), None))
                }
                Note::CallDecided { tool_use_id, input, decision, reason } if tool_use_id.as_deref() == Some(id) => {
                    let words =
                        super::words::note(&Note::CallDecided { tool_use_id: None, decision, input: None, reason });
                    Some((arrived.at, words, input.map(|input| input.to_string())))
                }
                _ => None,
            }
        });
        if let Ok(Some((at, words, input))) = told {
            if pieces.is_empty() {
                pieces.push(Piece::Gap);
                pieces.push(Piece::section("decisions", None));
            }
            pieces.push(Piece::fact(&format!("+{}", clock(at)), Role::Paused, words));
            if let Some(input) = input {
                pieces.extend(change::arguments(called.replaced.as_deref().unwrap_or("{}"), &input));
            }
        }
    }
    pieces
}

/// True for a line that is too long to be taken apart for a view.
fn is_cut(size: u64) -> bool {
    size > SHOWN as u64
}

fn cut(what: &'static str, size: u64) -> Vec<Piece> {
    let facts = vec![(Role::Dim, format!("in a line of {}", crate::tui::text::size(size)))];
    vec![Piece::titled(what, what.to_owned(), facts, None), parts::too_large()]
}

/// Text of the model.
fn said(timeline: &mut Timeline, row: &Row, what: &'static str) -> Vec<Piece> {
    let said = read_head(timeline, row.first(), SHOWN, |arrived, size| {
        if is_cut(size) {
            return cut(what, size);
        }
        let line = decode::line(bytes(&arrived.body));
        match super::blocks(&line).get(usize::from(row.block)) {
            Some(Block::Text(text) | Block::Thinking(text)) => {
                let text: Arc<str> = text.read().into();
                vec![Piece::section(what, Some(Arc::clone(&text))), Piece::Markdown { text }]
            }
            _ => vec![Piece::section(what, None), Piece::line(Role::Dim, "withheld")],
        }
    });
    said.unwrap_or_else(|error| vec![Piece::line(Role::Failed, error)])
}

/// The result line of a session.
fn answer(timeline: &mut Timeline, row: &Row) -> Vec<Piece> {
    let answer = read_head(timeline, row.first(), SHOWN, |arrived, size| {
        if is_cut(size) {
            return Some(cut("answer", size));
        }
        let line = decode::line(bytes(&arrived.body));
        match &line.body {
            decode::Body::Result(result) => result.result.as_deref().map(|text| {
                let text: Arc<str> = text.into();
                vec![Piece::section("answer", Some(Arc::clone(&text))), Piece::Markdown { text }]
            }),
            _ => Some(vec![Piece::line(Role::Warning, "the session ends here without a result line")]),
        }
    });
    match answer {
        Ok(answer) => answer.unwrap_or_default(),
        Err(error) => vec![Piece::line(Role::Failed, error)],
    }
}

fn timing(timeline: &mut Timeline, row: &Row, last: Option<Seq>, before: Option<Seq>) -> Vec<Piece> {
    let mut at = |seq: Seq| read_head(timeline, seq, 0, |arrived, _| arrived.at).ok();
    let Some(began) = at(row.first()) else { return Vec::new() };
    let (ended, before) = (last.and_then(&mut at), before.and_then(&mut at));
    let started = timeline.source().origin().started_at;
    let point = |at: Millis| {
        let wall = started
            .and_then(|start| start.checked_add(jiff::SignedDuration::from_millis(i64::try_from(at.0).ok()?)).ok());
        let wall = wall.map(|wall| format!(" ({})", wall.strftime("%Y-%m-%d %H:%M:%S%.3fZ"))).unwrap_or_default();
        format!("+{}.{:03}{wall}", clock(at), at.0 % 1000)
    };
    let mut pieces = vec![Piece::section("time", None), Piece::fact("began", Role::Text, point(began))];
    if let Some(before) = before {
        pieces.push(Piece::fact("after the last", Role::Text, latency(began.since(before))));
    }
    if let Some(ended) = ended {
        pieces.push(Piece::fact("ended", Role::Text, point(ended)));
        pieces.push(Piece::fact("took", Role::Text, latency(ended.since(began))));
    }
    pieces
}

/// What the agent was told: the prompts that were sent, or the first words of the user.
fn prompt(timeline: &mut Timeline, attempt: &Attempt) -> Vec<Piece> {
    if let Some(started) = started(timeline, attempt) {
        let mut pieces = brought(timeline);
        pieces.extend(document("prompt", &started.prompt));
        pieces.push(Piece::Gap);
        pieces.extend(document("system prompt", &started.system_prompt));
        return pieces;
    }
    let mut pieces = Vec::new();
    for seq in prologue(timeline, attempt) {
        let told = read(timeline, seq, |arrived| {
            let (Body::In(json) | Body::Out(json)) = arrived.body else { return None };
            let line = decode::line(json);
            let decode::Body::User(chat) = &line.body else { return None };
            let texts = chat.blocks.iter().filter_map(|block| match block {
                Block::Text(text) if !chat.synthetic => Some(text.read()),
                _ => None,
            });
            let text = texts.collect::<Vec<_>>().join("\n");
            (!text.is_empty()).then_some(text)
        });
        if let Ok(Some(text)) = told {
            pieces = document("prompt", &text);
            break;
        }
    }
    if pieces.is_empty() {
        pieces = vec![Piece::section("prompt", None), Piece::line(Role::Dim, ABSENT)];
    }
    pieces.extend([Piece::Gap, Piece::section("system prompt", None), Piece::line(Role::Dim, ABSENT)]);
    pieces
}

/// Instructions that the project brought itself.
fn brought(timeline: &Timeline) -> Vec<Piece> {
    let planned = timeline.story().state.planned.as_ref();
    let brought = planned.map(|plan| plan.instructions.as_slice()).unwrap_or_default();
    if brought.is_empty() {
        return Vec::new();
    }
    let lines = brought.iter().map(|line| Piece::line(Role::Text, line.clone()));
    [Piece::section("of the project", None)].into_iter().chain(lines).chain([Piece::Gap]).collect()
}

/// A prompt, line for line as it was sent; headings and tags stand out.
fn document(what: &'static str, text: &str) -> Vec<Piece> {
    if text.is_empty() {
        return vec![Piece::section(what, None), Piece::line(Role::Dim, ABSENT)];
    }
    let facts = vec![(Role::Dim, format!("{} characters", text.chars().count()))];
    let mut pieces = vec![Piece::titled(what, what.to_owned(), facts, Some(text.into()))];
    pieces.extend(text.lines().map(|line| {
        let role = match line.as_bytes().first() {
            Some(b'#') => Role::Strong,
            Some(b'<') if line.ends_with('>') => Role::Focus,
            _ => Role::Text,
        };
        let hang = line.len() - line.trim_start_matches([' ', '-', '*']).len();
        Piece::Runs { indent: 0, hang, runs: vec![(role, line.to_owned())] }
    }));
    pieces
}

/// The note that the attempt began with.
pub(super) fn started(timeline: &mut Timeline, attempt: &Attempt) -> Option<AttemptStarted> {
    let read = read(timeline, attempt.start_note?, |arrived| match arrived.body {
        Body::Note(json) => match Note::parse(json) {
            Note::AttemptStarted(started) => Some(*started),
            _ => None,
        },
        _ => None,
    });
    read.ok().flatten()
}

/// The first entries of the attempt.
fn prologue(timeline: &Timeline, attempt: &Attempt) -> Vec<Seq> {
    let entries = timeline.story().entries(attempt.lane);
    entries.iter().take(super::PROLOGUE).map(|seq| Seq(u64::from(*seq))).collect()
}

/// What the agent said of itself when it began.
fn init<T>(timeline: &mut Timeline, attempt: &Attempt, make: impl Fn(&Init<'_>, Seq) -> T) -> Option<T> {
    let mut rows = timeline.story().rows(attempt.lane).iter().take(super::PROLOGUE);
    let first = rows.find(|row| row.kind == RowKind::Started).map(Row::first);
    let places = first.map_or_else(|| prologue(timeline, attempt), |first| vec![first]);
    places.into_iter().find_map(|seq| {
        let read = read(timeline, seq, |arrived| {
            let Body::Out(json) = arrived.body else { return None };
            match &decode::line(json).body {
                decode::Body::Init(init) => Some(make(init, seq)),
                _ => None,
            }
        });
        read.ok().flatten()
    })
}

/// Names, or the word for none.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.into_iter().collect();
    if names.is_empty() { "none".to_owned() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

/// How much of the attempt was read.
fn reading(pieces: &mut Vec<Piece>, cache: &Cache, attempt: &Attempt, rows: usize) {
    let read = cache.gathered(attempt.lane).map_or(0, |gathered| gathered.rows);
    let cut = cache.gathered(attempt.lane).is_some_and(|gathered| gathered.is_cut(rows));
    if cut && read < rows {
        pieces.push(Piece::line(Role::Warning, format!("only the first {read} of {rows} rows are counted")));
    } else if read < rows {
        pieces.push(Piece::line(Role::Dim, format!("reading, {} % …", read * 100 / rows.max(1))));
    }
}
