//! The text of a row on the reading page: a message, or the first lines of what a call returned or changed.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use super::{MAX_SHOWN_BYTES, blocks, bytes, inspect, read_head};
use crate::{
    cache::{ReadingKey, ReadingLines},
    document::{DocumentBlock, DocumentLayout},
    theme::StyleRole,
};
use ingestdeck_core::{
    actions::label,
    decode::{self, LineBody, MessageBlock, line::SessionFileLine, user_text::UserText},
    run::{
        Timeline,
        state::{RowKind, RowOutcome, StreamRow},
    },
    tape::{EntryBody, Note},
    text::pluralize,
};

/// Bytes of a folded and of an unfolded text that are laid out.
const FOLDED_BYTES: usize = 32 * 1024;
const UNFOLDED_BYTES: usize = 512 * 1024;
/// Columns by which results and changes are indented below their call.
const TOOL_INDENT: u16 = 2;
/// Lines of an unfolded text.
const UNFOLDED_LINES: usize = 4000;

/// The lines below or next to the sign of a row, each with its roles.
pub(super) fn reading_lines(timeline: &mut Timeline, key: &ReadingKey) -> ReadingLines {
    let run_view = timeline.view();
    let entries = run_view.state.entries;
    let Some(row) = run_view.rows(key.attempt_id).get(key.index).copied() else {
        return Vec::new();
    };
    let is_in_background = run_view.background_result(&row).is_some();
    let (content, most) = match row.kind {
        RowKind::Text => (inspect::text_blocks(timeline, &row, "text"), 300),
        RowKind::Thinking => (inspect::text_blocks(timeline, &row, "thinking"), 2),
        RowKind::Prompt => {
            let role = if key.is_sub_agent {
                StyleRole::Text
            } else {
                StyleRole::Strong
            };
            let most = if key.is_sub_agent { 4 } else { 16 };
            (user_text(timeline, &row, role), most)
        }
        // The row itself shows the beginning of a report, or that the attempt with this prompt started.
        RowKind::Notice | RowKind::Note if key.is_unfolded => {
            (user_text(timeline, &row, StyleRole::Text), 0)
        }
        RowKind::Completed if !row.is_redundant() => {
            let mut answer = inspect::answer(timeline, &row);
            // The row itself shows that there is none.
            if !matches!(answer.first(), Some(DocumentBlock::Section { .. })) {
                answer.clear();
            }
            (answer, 12)
        }
        RowKind::Tool => {
            let call = inspect::call(timeline, key.attempt_id, key.index, &row);
            match (key.is_unfolded, row.end(entries)) {
                (true, _) => (call.joined(), 0),
                (false, RowOutcome::Open | RowOutcome::Aborted) => (Vec::new(), 0),
                // The result only names the task; the row shows what came of it.
                (false, RowOutcome::Ok) if is_in_background => (Vec::new(), 0),
                (false, RowOutcome::Ok) if !call.change.is_empty() => (call.change, 8),
                (false, RowOutcome::Ok) => (call.result, 4),
                (false, _) => (error_reason(call.result), 5),
            }
        }
        _ => (Vec::new(), 0),
    };
    let is_summary = row.kind == RowKind::Tool && !key.is_unfolded;
    let is_titled = row.kind == RowKind::Tool && key.is_unfolded;
    let content: Vec<_> = content
        .into_iter()
        .filter(|block| is_titled || !matches!(block, DocumentBlock::Section { .. }))
        .collect();
    let (most, budget) = match key.is_unfolded {
        true => (UNFOLDED_LINES, UNFOLDED_BYTES),
        false => (most.max(usize::from(key.room)), FOLDED_BYTES),
    };
    let indent = if row.kind == RowKind::Tool {
        TOOL_INDENT
    } else {
        0
    };
    let width = key.width.saturating_sub(indent);
    let mut layout = DocumentLayout::new(content, BTreeSet::new(), width);
    layout.step(budget);
    let is_complete = layout.is_complete();
    let mut lines = layout.into_document().lines;
    let is_blank = |line: &Vec<(StyleRole, String)>| {
        let mut texts = line.iter();
        texts.all(|(_, text)| text.trim().is_empty())
    };
    while lines.last().is_some_and(is_blank) {
        lines.pop();
    }
    // A part of a file often begins between two paragraphs.
    if is_summary && lines.first().is_some_and(is_blank) {
        lines.remove(0);
    }
    if is_summary && lines.len() == 1 && lines.iter().flatten().any(|(_, text)| text == "empty") {
        return Vec::new();
    }
    let hidden = lines.len().saturating_sub(most);
    // The note takes a line, too.
    if hidden > 1 || !is_complete {
        lines.truncate(most);
        let more = if is_complete { "" } else { "more than " };
        let hidden = pluralize(hidden.max(1), "more line");
        lines.push(vec![(StyleRole::Border, format!("… {more}{hidden}"))]);
    }
    for line in lines.iter_mut().filter(|_| indent > 0) {
        line.insert(0, (StyleRole::Text, " ".repeat(usize::from(indent))));
    }
    let quiet = match row.kind {
        RowKind::Thinking => Some(StyleRole::Thinking),
        RowKind::Tool if is_summary => Some(StyleRole::Dim),
        _ => None,
    };
    if let Some(quiet) = quiet {
        let texts = lines.iter_mut().flatten();
        let plain = texts.filter(|(role, _)| *role == StyleRole::Text);
        plain.for_each(|(role, _)| *role = quiet);
    }
    lines
}

/// The result of a failed call without what Claude Code writes around the reason.
fn error_reason(result: Vec<DocumentBlock>) -> Vec<DocumentBlock> {
    let text = result.iter().find_map(|block| match block {
        DocumentBlock::Section {
            what: "result",
            text: Some(text),
            ..
        } => Some(Arc::clone(text)),
        _ => None,
    });
    let reason = text.as_deref().map(label::tool_error_reason);
    match reason {
        Some(reason @ Cow::Owned(_)) => vec![DocumentBlock::text(StyleRole::Text, reason)],
        _ => result,
    }
}

/// What a person, another agent or a background task wrote to the agent, without the markup of Claude Code.
fn user_text(timeline: &mut Timeline, row: &StreamRow, role: StyleRole) -> Vec<DocumentBlock> {
    let text = read_head(timeline, row.first(), MAX_SHOWN_BYTES, |arrived, _| {
        if let EntryBody::Note(json) = &arrived.body {
            return match Note::parse(json) {
                Note::AttemptStarted(started) => Some(started.prompt.clone()),
                _ => None,
            };
        }
        let line = decode::decode_line(bytes(&arrived.body));
        let (author, text) = match &line.body {
            LineBody::SessionFile(SessionFileLine::QueuedText(author, text)) => {
                (*author, text.text())
            }
            _ => match blocks(&line).get(usize::from(row.block)) {
                Some(MessageBlock::Text(text)) => (line.text_author(), text.text()),
                _ => return None,
            },
        };
        Some(UserText::parse(author, &text).text().to_owned())
    });
    match text {
        Ok(Some(text)) => vec![DocumentBlock::text(role, text)],
        Ok(None) => Vec::new(),
        Err(error) => vec![DocumentBlock::line(StyleRole::Failed, error.to_string())],
    }
}
