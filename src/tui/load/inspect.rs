//! Documents of the inspector's panels: the details of an action, the prompts, the isolation, stderr and the verdict of
//! an attempt.
//!
//! They show recorded facts only. A fact that was not recorded is "not on this record"; a fact that this program cannot
//! observe is "not observable".

use std::{collections::BTreeSet, sync::Arc};

use super::{MAX_SHOWN_BYTES, bytes, entry_blocks, file_change, read, read_head};
use crate::{
    cache::{MAX_PROLOGUE_ENTRIES, PanelPage, ScreenCache},
    document::DocumentBlock,
    inspect_panel::InspectPanel,
    theme::StyleRole,
};
use ingestdeck_core::{
    actions::sql_query::SqlQuery,
    decode::{
        self, MessageBlock, RawJson,
        line::{InitLine, SessionFileLine},
    },
    run::{
        Timeline,
        state::{AttemptId, AttemptState, RowKind, RowOutcome, StreamRow},
    },
    tape::{EntryBody, Millis, Note, Seq, note::AttemptStarted},
    text::{clock, latency},
};

mod evidence;
mod outcome;

/// Text for a fact that was not recorded.
const ABSENT: &str = "not on this record";
/// Depth and length in bytes above which values of a raw line are folded.
const RAW_FOLD: (usize, usize) = (1, 400);

/// The document of a panel.
pub(super) fn panel_blocks(
    timeline: &mut Timeline,
    cache: &ScreenCache,
    page: &PanelPage,
) -> Vec<DocumentBlock> {
    let unit = timeline.view().state.units.get(page.unit).cloned();
    let Some((unit, attempt)) = unit.and_then(|unit| {
        let attempt = unit.attempts.get(page.attempt).cloned()?;
        Some((unit, attempt))
    }) else {
        return vec![DocumentBlock::line(
            StyleRole::Dim,
            "this unit has not run yet",
        )];
    };
    match page.panel {
        InspectPanel::Actions => match page.action {
            Some((index, _)) => action(timeline, &attempt, index),
            None => Vec::new(),
        },
        InspectPanel::Prompt => prompt(timeline, &attempt),
        InspectPanel::Isolation => evidence::isolation_blocks(timeline, cache, &attempt),
        InspectPanel::Stderr => outcome::stderr(timeline, cache, &attempt),
        InspectPanel::Verdict => outcome::verdict(timeline, cache, &unit, &attempt),
    }
}

/// The details of one action.
fn action(timeline: &mut Timeline, attempt: &AttemptState, index: usize) -> Vec<DocumentBlock> {
    let run_view = timeline.view();
    let (entries, rows) = (run_view.state.entries, run_view.rows(attempt.id));
    let Some(row) = rows.get(index).copied() else {
        return Vec::new();
    };
    let before = index
        .checked_sub(1)
        .and_then(|index| rows.get(index))
        .map(StreamRow::first);
    let last = row.last(entries).filter(|last| *last != row.first());
    let mut pieces = match row.kind {
        RowKind::Tool => call(timeline, attempt.id, index, &row).joined(),
        RowKind::Text => text_blocks(timeline, &row, "text"),
        RowKind::Thinking => text_blocks(timeline, &row, "thinking"),
        RowKind::Prompt => text_blocks(timeline, &row, "prompt"),
        RowKind::Completed => answer(timeline, &row),
        RowKind::Denial
        | RowKind::Task
        | RowKind::Warning
        | RowKind::Notice
        | RowKind::Started
        | RowKind::Note => Vec::new(),
    };
    if !pieces.is_empty() {
        pieces.push(DocumentBlock::BlankLine);
    }
    if timeline.source().info().has_times {
        pieces.extend(timing(timeline, &row, last, before));
        pieces.push(DocumentBlock::BlankLine);
    }
    let lines = timeline.view().row_entries(&row);
    for (index, seq) in lines.into_iter().flatten().enumerate() {
        if index > 0 {
            pieces.push(DocumentBlock::BlankLine);
        }
        // When only the raw line is shown, nothing in it is folded.
        let fold = if row.kind == RowKind::Tool {
            RAW_FOLD
        } else {
            (usize::MAX - 1, usize::MAX)
        };
        let line = read_head(timeline, seq, MAX_SHOWN_BYTES, |arrived, size| {
            entry_blocks::line(seq, arrived, size, fold)
        });
        pieces.extend(line.unwrap_or_else(|error| {
            vec![DocumentBlock::line(StyleRole::Failed, error.to_string())]
        }));
    }
    pieces
}

#[derive(Default)]
struct CallDocument {
    id: String,
    tool: String,
    /// The arguments of the model, if the user replaced them.
    replaced: Option<String>,
    pieces: Vec<DocumentBlock>,
    write: Option<file_change::FileWrite>,
}

/// The parts of a call.
#[derive(Default)]
pub(super) struct CallBlocks {
    pub(super) result: Vec<DocumentBlock>,
    /// What it changed; empty for calls that do not write.
    pub(super) change: Vec<DocumentBlock>,
    /// What a person decided about the call.
    decisions: Vec<DocumentBlock>,
    pub(super) arguments: Vec<DocumentBlock>,
    /// True for a query, without which its rows mean nothing.
    is_query: bool,
    /// True for a call without a result, which may wait for a decision.
    is_open: bool,
}

impl CallBlocks {
    /// The parts below each other, with an empty line between them: what came of the call, then what it was; of an open
    /// call, what it would do.
    pub(super) fn joined(self) -> Vec<DocumentBlock> {
        let (asked, answered) = (self.arguments, self.result);
        let parts = match (self.is_open, self.is_query) {
            (true, _) => [self.change, asked, self.decisions, answered],
            (false, true) => [asked, self.decisions, answered, self.change],
            (false, false) => [answered, self.change, self.decisions, asked],
        };
        let mut pieces = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            if !pieces.is_empty() {
                pieces.push(DocumentBlock::BlankLine);
            }
            pieces.extend(part);
        }
        pieces
    }
}

/// Reads the call that begins in `row`, the row with this index.
pub(super) fn call(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    index: usize,
    row: &StreamRow,
) -> CallBlocks {
    let entries = timeline.view().state.entries;
    let last = row.last(entries).filter(|last| *last != row.first());
    let background = timeline.view().background_result(row);
    // The result of the call is not the end of its task.
    let (last, end, task_end) = match background {
        Some(result) => (Some(result), RowOutcome::Ok, last),
        None => (last, row.end(entries), None),
    };
    let edited = super::edited(timeline, row.first(), row.block);
    let begun = read_head(timeline, row.first(), MAX_SHOWN_BYTES, |arrived, size| {
        if is_too_long(size) {
            return Some(CallDocument {
                pieces: too_long_notice("call", size),
                ..CallDocument::default()
            });
        }
        let line = decode::decode_line(bytes(&arrived.body));
        match super::blocks(&line).get(usize::from(row.block)) {
            Some(MessageBlock::ToolUse(call)) => {
                let model = call.input.map_or("{}", |input| input.0);
                let replaced = edited.as_ref().map(|_| model.to_owned());
                let call = super::call_as_run(call, edited.as_deref());
                let input: Arc<str> = call.input.map_or("{}", |input| input.0).into();
                let mut facts = vec![
                    (StyleRole::Text, call.name.to_string()),
                    (StyleRole::Dim, call.id.to_string()),
                ];
                if edited.is_some() {
                    facts.push((StyleRole::Paused, "with edited arguments".to_owned()));
                }
                let title = DocumentBlock::titled(
                    "arguments",
                    "call".to_owned(),
                    facts,
                    Some(Arc::clone(&input)),
                );
                let mut pieces = vec![title];
                pieces.extend(entry_blocks::arguments(&call.name, input, (3, 4096)));
                Some(CallDocument {
                    id: call.id.to_string(),
                    tool: call.name.to_string(),
                    replaced,
                    pieces,
                    write: file_change::write_of(&call),
                })
            }
            _ => None,
        }
    });
    let called = match begun {
        Ok(Some(called)) => called,
        Ok(None) => CallDocument {
            pieces: vec![
                DocumentBlock::section("call", None),
                DocumentBlock::line(
                    StyleRole::Warning,
                    "the call of this result is not on this record",
                ),
            ],
            ..CallDocument::default()
        },
        Err(error) => {
            return CallBlocks {
                arguments: vec![DocumentBlock::line(StyleRole::Failed, error.to_string())],
                ..CallBlocks::default()
            };
        }
    };
    let decisions = decisions(timeline, attempt_id, row, last, &called);
    let result = result(
        timeline,
        row,
        last.unwrap_or_else(|| row.first()),
        &called,
        end,
    );
    let change = called.write.as_ref().map(|write| {
        file_change::write_blocks(timeline, attempt_id, index, write, end, result.original)
    });
    let mut result = result.pieces;
    if background.is_some() {
        result.push(DocumentBlock::BlankLine);
        result.extend(background_task(timeline, row, task_end));
    }
    CallBlocks {
        result,
        change: change.unwrap_or_default(),
        decisions,
        arguments: called.pieces,
        is_query: SqlQuery::is_query_tool(&called.tool),
        is_open: end == RowOutcome::Open && background.is_none(),
    }
}

/// The task that a call started in the background.
fn background_task(
    timeline: &mut Timeline,
    row: &StreamRow,
    last: Option<Seq>,
) -> Vec<DocumentBlock> {
    let (role, text) = match (last, row.end(timeline.view().state.entries)) {
        (None, _) => (StyleRole::Running, "runs in the background".to_owned()),
        (Some(last), end) => {
            let text = read_head(timeline, last, MAX_SHOWN_BYTES, |arrived, size| {
                super::row_outcome(&arrived.body, size, (row, "", None), end)
            });
            let role = match end {
                RowOutcome::Failed => StyleRole::Failed,
                RowOutcome::Aborted => StyleRole::Stopped,
                _ => StyleRole::Succeeded,
            };
            (role, text.unwrap_or_else(|error| error.to_string()))
        }
    };
    vec![
        DocumentBlock::section("task", None),
        DocumentBlock::line(role, text),
    ]
}

/// The content of a result.
struct ResultDocument {
    pieces: Vec<DocumentBlock>,
    /// The text before a write, if the result contains it.
    original: Option<String>,
}

fn result(
    timeline: &mut Timeline,
    row: &StreamRow,
    last: Seq,
    called: &CallDocument,
    end: RowOutcome,
) -> ResultDocument {
    let word = match end {
        RowOutcome::Open => {
            let waits = vec![
                DocumentBlock::section("result", None),
                DocumentBlock::line(StyleRole::Running, "none yet"),
            ];
            return ResultDocument {
                pieces: waits,
                original: None,
            };
        }
        RowOutcome::Ok => (StyleRole::Succeeded, "ok".to_owned()),
        RowOutcome::Failed => (StyleRole::Failed, "failed".to_owned()),
        RowOutcome::Denied => (StyleRole::Denied, "denied".to_owned()),
        RowOutcome::Declined => (
            StyleRole::Warning,
            "declined: the tool did not perform the call; this is not a failure".to_owned(),
        ),
        RowOutcome::Aborted => (
            StyleRole::Stopped,
            "cut short by the end of the attempt".to_owned(),
        ),
    };
    let document = read_head(timeline, last, MAX_SHOWN_BYTES, |arrived, size| {
        if is_too_long(size) {
            let pieces = vec![
                DocumentBlock::titled("result", "result".to_owned(), vec![word], None),
                entry_blocks::too_large(),
            ];
            return ResultDocument {
                pieces,
                original: None,
            };
        }
        let raw = bytes(&arrived.body);
        let line = decode::decode_line(raw);
        let id = Some(called.id.as_str()).filter(|id| !id.is_empty());
        let Some(result) = entry_blocks::result_of(&line, id) else {
            let none = match last == row.first() {
                true => "none on this record",
                false => "none before the run ended",
            };
            let pieces = vec![
                DocumentBlock::titled("result", "result".to_owned(), vec![word], None),
                DocumentBlock::line(StyleRole::Warning, none),
            ];
            return ResultDocument {
                pieces,
                original: None,
            };
        };
        let text: Arc<str> = result.text().into();
        let facts = vec![word, (StyleRole::Dim, super::row_text::result_size(result))];
        let mut pieces = vec![DocumentBlock::titled(
            "result",
            "result".to_owned(),
            facts,
            Some(Arc::clone(&text)),
        )];
        pieces.extend(entry_blocks::content(&called.tool, result));
        ResultDocument {
            pieces,
            original: original(RawJson(std::str::from_utf8(raw).unwrap_or("{}")), &text),
        }
    });
    document.unwrap_or_else(|error| ResultDocument {
        pieces: vec![DocumentBlock::line(StyleRole::Failed, error.to_string())],
        original: None,
    })
}

/// The text before a write, if the result contains it; empty for a new file.
fn original(line: RawJson<'_>, text: &str) -> Option<String> {
    let [stream, file] = line.pick(["tool_use_result", "toolUseResult"]);
    if let Some(structured) = stream.or(file) {
        let [original, kind] = structured.pick(["originalFile", "type"]);
        if let Some(original) = original.and_then(RawJson::as_str) {
            return Some(original.into_owned());
        }
        if kind.and_then(RawJson::as_str).as_deref() == Some("create") {
            return Some(String::new());
        }
    }
    (text.starts_with("Wiki page ") && text.ends_with(" created.")).then(String::new)
}

/// The user's decisions about the call while it was held.
fn decisions(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    row: &StreamRow,
    last: Option<Seq>,
    called: &CallDocument,
) -> Vec<DocumentBlock> {
    /// Number of entries after a call that are searched for decisions about it.
    const NEAR: usize = 400;
    let id = called.id.as_str();
    if id.is_empty() {
        return Vec::new();
    }
    let entries = timeline.view().entries(attempt_id);
    let from = entries.partition_point(|seq| u64::from(*seq) <= row.first().0);
    let until = last.map_or(entries.len(), |last| {
        entries.partition_point(|seq| u64::from(*seq) < last.0)
    });
    let between: Vec<_> = entries[from..until.max(from)]
        .iter()
        .take(NEAR)
        .map(|seq| Seq(u64::from(*seq)))
        .collect();
    let mut pieces = Vec::new();
    for seq in between {
        let decision = read(timeline, seq, |arrived| {
            let EntryBody::Note(json) = arrived.body else {
                return None;
            };
            match Note::parse(json) {
                Note::CallHeld { tool_use_id, .. } if tool_use_id.as_deref() == Some(id) => {
                    Some((arrived.at, "held for a decision".to_owned(), None))
                }
                Note::CallDecided {
                    tool_use_id,
                    input,
                    decision,
                    reason,
                    rule,
                } if tool_use_id.as_deref() == Some(id) => {
                    let words = Note::CallDecided {
                        tool_use_id: None,
                        decision,
                        input: None,
                        reason,
                        rule,
                    }
                    .to_string();
                    Some((arrived.at, words, input.map(|input| input.to_string())))
                }
                _ => None,
            }
        });
        if let Ok(Some((at, words, input))) = decision {
            if pieces.is_empty() {
                pieces.push(DocumentBlock::section("decisions", None));
            }
            pieces.push(DocumentBlock::fact(
                &format!("+{}", clock(at)),
                StyleRole::Paused,
                words,
            ));
            if let Some(input) = input {
                pieces.extend(file_change::arguments(
                    called.replaced.as_deref().unwrap_or("{}"),
                    &input,
                ));
            }
        }
    }
    pieces
}

/// True for a line that is too long to be decoded for a page.
fn is_too_long(size: u64) -> bool {
    size > MAX_SHOWN_BYTES as u64
}

fn too_long_notice(what: &'static str, size: u64) -> Vec<DocumentBlock> {
    let facts = vec![(
        StyleRole::Dim,
        format!("in a line of {}", ingestdeck_core::text::size(size)),
    )];
    vec![
        DocumentBlock::titled(what, what.to_owned(), facts, None),
        entry_blocks::too_large(),
    ]
}

/// A message of the model.
pub(super) fn text_blocks(
    timeline: &mut Timeline,
    row: &StreamRow,
    what: &'static str,
) -> Vec<DocumentBlock> {
    let said = read_head(timeline, row.first(), MAX_SHOWN_BYTES, |arrived, size| {
        if is_too_long(size) {
            return too_long_notice(what, size);
        }
        if let EntryBody::Note(json) = &arrived.body {
            return match Note::parse(json) {
                Note::AttemptStarted(started) => document(what, &started.prompt),
                _ => Vec::new(),
            };
        }
        let line = decode::decode_line(bytes(&arrived.body));
        if let decode::LineBody::SessionFile(SessionFileLine::QueuedText(_, text)) = &line.body {
            return document(what, &text.text());
        }
        match super::blocks(&line).get(usize::from(row.block)) {
            Some(MessageBlock::Text(text) | MessageBlock::Thinking(text)) => {
                let text: Arc<str> = text.text().into();
                vec![
                    DocumentBlock::section(what, Some(Arc::clone(&text))),
                    DocumentBlock::Markdown { text },
                ]
            }
            _ => vec![
                DocumentBlock::section(what, None),
                DocumentBlock::line(StyleRole::Dim, "withheld"),
            ],
        }
    });
    said.unwrap_or_else(|error| vec![DocumentBlock::line(StyleRole::Failed, error.to_string())])
}

/// The result line of a session.
pub(super) fn answer(timeline: &mut Timeline, row: &StreamRow) -> Vec<DocumentBlock> {
    let answer = read_head(timeline, row.first(), MAX_SHOWN_BYTES, |arrived, size| {
        if is_too_long(size) {
            return Some(too_long_notice("answer", size));
        }
        let line = decode::decode_line(bytes(&arrived.body));
        match &line.body {
            decode::LineBody::Result(result) => result.result.as_deref().map(|text| {
                let text: Arc<str> = text.into();
                vec![
                    DocumentBlock::section("answer", Some(Arc::clone(&text))),
                    DocumentBlock::Markdown { text },
                ]
            }),
            _ => Some(vec![DocumentBlock::line(
                StyleRole::Warning,
                "the session ends here without a result line",
            )]),
        }
    });
    match answer {
        Ok(answer) => answer.unwrap_or_default(),
        Err(error) => vec![DocumentBlock::line(StyleRole::Failed, error.to_string())],
    }
}

fn timing(
    timeline: &mut Timeline,
    row: &StreamRow,
    last: Option<Seq>,
    before: Option<Seq>,
) -> Vec<DocumentBlock> {
    let mut at = |seq: Seq| read_head(timeline, seq, 0, |arrived, _| arrived.at).ok();
    let Some(began) = at(row.first()) else {
        return Vec::new();
    };
    let (ended, before) = (last.and_then(&mut at), before.and_then(&mut at));
    let started = timeline.source().info().started_at;
    let point = |at: Millis| {
        let wall = started.and_then(|start| {
            start
                .checked_add(jiff::SignedDuration::from_millis(i64::try_from(at.0).ok()?))
                .ok()
        });
        let wall = wall
            .map(|wall| format!(" ({})", wall.strftime("%Y-%m-%d %H:%M:%S%.3fZ")))
            .unwrap_or_default();
        format!("+{}.{:03}{wall}", clock(at), at.0 % 1000)
    };
    let mut pieces = vec![
        DocumentBlock::section("time", None),
        DocumentBlock::fact("began", StyleRole::Text, point(began)),
    ];
    if let Some(before) = before {
        pieces.push(DocumentBlock::fact(
            "after the last",
            StyleRole::Text,
            latency(began.since(before)),
        ));
    }
    if let Some(ended) = ended {
        let waited = timeline.view().waited_for_person(row.first(), row.block);
        let took = ended.since(began).0;
        let took = took.saturating_sub(waited.unwrap_or_default().0);
        pieces.push(DocumentBlock::fact("ended", StyleRole::Text, point(ended)));
        pieces.push(DocumentBlock::fact(
            "took",
            StyleRole::Text,
            latency(Millis(took)),
        ));
        pieces.extend(
            waited.map(|waited| {
                DocumentBlock::fact("waited for you", StyleRole::Text, latency(waited))
            }),
        );
    }
    pieces
}

/// The prompts that the agent received, or the first message of the user.
fn prompt(timeline: &mut Timeline, attempt: &AttemptState) -> Vec<DocumentBlock> {
    if let Some(started) = started(timeline, attempt) {
        let mut pieces = project_instructions(timeline);
        pieces.extend(document("prompt", &started.prompt));
        pieces.push(DocumentBlock::BlankLine);
        pieces.extend(document("system prompt", &started.system_prompt));
        return pieces;
    }
    let mut pieces = Vec::new();
    for seq in prologue(timeline, attempt) {
        let text = read(timeline, seq, |arrived| {
            let (EntryBody::Stdin(json) | EntryBody::Stdout(json)) = arrived.body else {
                return None;
            };
            let line = decode::decode_line(json);
            let decode::LineBody::User(chat) = &line.body else {
                return None;
            };
            let texts = chat.blocks.iter().filter_map(|block| match block {
                MessageBlock::Text(text) if !chat.synthetic => Some(text.text()),
                _ => None,
            });
            let text = texts.collect::<Vec<_>>().join("\n");
            (!text.is_empty()).then_some(text)
        });
        if let Ok(Some(text)) = text {
            pieces = document("prompt", &text);
            break;
        }
    }
    if pieces.is_empty() {
        pieces = vec![
            DocumentBlock::section("prompt", None),
            DocumentBlock::line(StyleRole::Dim, ABSENT),
        ];
    }
    pieces.extend([
        DocumentBlock::BlankLine,
        DocumentBlock::section("system prompt", None),
        DocumentBlock::line(StyleRole::Dim, ABSENT),
    ]);
    pieces
}

/// Prompts, skills and pins of the project, as recorded in the plan.
fn project_instructions(timeline: &Timeline) -> Vec<DocumentBlock> {
    let planned = timeline.view().state.planned.as_ref();
    let brought = planned
        .map(|plan| plan.instructions.as_slice())
        .unwrap_or_default();
    if brought.is_empty() {
        return Vec::new();
    }
    let lines = brought
        .iter()
        .map(|line| DocumentBlock::line(StyleRole::Text, line.clone()));
    [DocumentBlock::section("project instructions", None)]
        .into_iter()
        .chain(lines)
        .chain([DocumentBlock::BlankLine])
        .collect()
}

/// A prompt, line by line as it was sent; headings and tags are highlighted.
fn document(what: &'static str, text: &str) -> Vec<DocumentBlock> {
    if text.is_empty() {
        return vec![
            DocumentBlock::section(what, None),
            DocumentBlock::line(StyleRole::Dim, ABSENT),
        ];
    }
    let facts = vec![(
        StyleRole::Dim,
        format!("{} characters", text.chars().count()),
    )];
    let mut pieces = vec![DocumentBlock::titled(
        what,
        what.to_owned(),
        facts,
        Some(text.into()),
    )];
    pieces.extend(text.lines().map(|line| {
        let role = match line.as_bytes().first() {
            Some(b'#') => StyleRole::Strong,
            Some(b'<') if line.ends_with('>') => StyleRole::Focus,
            _ => StyleRole::Text,
        };
        let hang = line.len() - line.trim_start_matches([' ', '-', '*']).len();
        DocumentBlock::Spans {
            indent: 0,
            hang,
            runs: vec![(role, line.to_owned())],
        }
    }));
    pieces
}

/// The note that began the attempt.
pub(super) fn started(timeline: &mut Timeline, attempt: &AttemptState) -> Option<AttemptStarted> {
    let read = read(
        timeline,
        attempt.setup.start_note?,
        |arrived| match arrived.body {
            EntryBody::Note(json) => match Note::parse(json) {
                Note::AttemptStarted(started) => Some(*started),
                _ => None,
            },
            _ => None,
        },
    );
    read.ok().flatten()
}

/// The first entries of the attempt.
fn prologue(timeline: &Timeline, attempt: &AttemptState) -> Vec<Seq> {
    let entries = timeline.view().entries(attempt.id);
    entries
        .iter()
        .take(MAX_PROLOGUE_ENTRIES)
        .map(|seq| Seq(u64::from(*seq)))
        .collect()
}

/// The announcement of the agent when its session began.
fn init<T>(
    timeline: &mut Timeline,
    attempt: &AttemptState,
    make: impl Fn(&InitLine<'_>, Seq) -> T,
) -> Option<T> {
    let run_view = timeline.view();
    let mut rows = run_view.rows(attempt.id).iter().take(MAX_PROLOGUE_ENTRIES);
    let first = rows.find_map(|row| match (row.kind, run_view.row_entries(row)) {
        (RowKind::Started, _) => Some(row.first()),
        (_, [_, announcement, _]) => announcement,
    });
    let places = first.map_or_else(|| prologue(timeline, attempt), |first| vec![first]);
    places.into_iter().find_map(|seq| {
        let read = read(timeline, seq, |arrived| {
            let EntryBody::Stdout(json) = arrived.body else {
                return None;
            };
            match &decode::decode_line(json).body {
                decode::LineBody::Init(init) => Some(make(init, seq)),
                _ => None,
            }
        });
        read.ok().flatten()
    })
}

/// A sorted list of names, or `none`.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.into_iter().collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.into_iter().collect::<Vec<_>>().join(", ")
    }
}

/// The progress of reading the attempt.
fn read_progress(
    pieces: &mut Vec<DocumentBlock>,
    cache: &ScreenCache,
    attempt: &AttemptState,
    rows: usize,
) {
    let read = cache
        .summary(attempt.id)
        .map_or(0, |gathered| gathered.rows);
    let cut = cache
        .summary(attempt.id)
        .is_some_and(|gathered| gathered.is_truncated(rows));
    if cut && read < rows {
        pieces.push(DocumentBlock::line(
            StyleRole::Warning,
            format!("only the first {read} of {rows} rows are counted"),
        ));
    } else if read < rows {
        pieces.push(DocumentBlock::line(
            StyleRole::Dim,
            format!("reading, {} % …", read * 100 / rows.max(1)),
        ));
    }
}
