//! Where a text occurs in a row: the first line with it in what the row shows in short, such as the arguments and the result
//! of a call. The recorded line contains more, which no page but the transcript shows.

use serde_json::Value;

use super::{
    EntryReadError, MAX_SHOWN_BYTES, blocks, bytes, call_as_run, edited, entry_blocks::result_of,
    label, read_head, row_text,
};
use crate::search_match::{MatchPlace, matches};
use ingestdeck_core::{
    actions::label::short_name,
    decode::{
        self, LineBody, MessageBlock,
        line::{SessionFileLine, TextAuthor},
        user_text::UserText,
    },
    run::{
        Timeline,
        state::{RowKind, StreamRow},
    },
    tape::{EntryBody, Note, Seq},
};

/// The first line with `query` in what a row shows in short. Adds the bytes that it read to `spent`.
///
/// # Errors
/// If an entry of the row cannot be read.
pub(crate) fn row_match(
    timeline: &mut Timeline,
    row: &StreamRow,
    query: &str,
    spent: &mut usize,
) -> Result<Option<(MatchPlace, String)>, EntryReadError> {
    let edited = edited(timeline, row.first(), row.block);
    let mut call = None;
    for seq in timeline.view().row_entries(row).into_iter().flatten() {
        let found = read_head(timeline, seq, MAX_SHOWN_BYTES, |arrived, size| {
            *spent += bytes(&arrived.body).len();
            let found = in_body(&arrived.body, row, edited.as_deref(), &mut call, query);
            found.or_else(|| {
                let place = match row.kind {
                    RowKind::Tool => return None,
                    RowKind::Prompt => MatchPlace::Prompt,
                    _ => MatchPlace::Action,
                };
                let (label, _) = label(&arrived.body, size, row, edited.as_deref());
                Some((place, line_with(&label, query)?))
            })
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The first line with `query` in an entry whose rows do not show the text. Adds the bytes that it read to `spent`.
///
/// # Errors
/// If the entry cannot be read.
pub(crate) fn entry_match(
    timeline: &mut Timeline,
    seq: Seq,
    query: &str,
    spent: &mut usize,
) -> Result<(MatchPlace, String), EntryReadError> {
    read_head(timeline, seq, MAX_SHOWN_BYTES, |arrived, _| {
        let raw = bytes(&arrived.body);
        *spent += raw.len();
        if let EntryBody::Note(json) = &arrived.body
            && let Note::AttemptStarted(started) = Note::parse(json)
        {
            let mut prompts = [&started.prompt, &started.system_prompt].into_iter();
            if let Some(line) = prompts.find_map(|text| line_with(text, query)) {
                return (MatchPlace::Prompt, line);
            }
        }
        let line = line_with(&String::from_utf8_lossy(raw), query);
        (MatchPlace::HiddenLine, line.unwrap_or_default())
    })
}

fn in_body(
    body: &EntryBody<'_>,
    row: &StreamRow,
    edited: Option<&str>,
    call: &mut Option<String>,
    query: &str,
) -> Option<(MatchPlace, String)> {
    let action = |text: &str| Some((MatchPlace::Action, line_with(text, query)?));
    let prompt = |text: &str| Some((MatchPlace::Prompt, line_with(text, query)?));
    let json = match body {
        EntryBody::Note(json) => {
            let note = Note::parse(json);
            return match &note {
                Note::AttemptStarted(started) if row.kind == RowKind::Prompt => {
                    prompt(&started.prompt)
                }
                // The second row of a start has what the user asked for.
                Note::AttemptStarted(_) if row.block > 0 => {
                    prompt(&row_text::amendment(&note).unwrap_or_default())
                }
                Note::MessageSent { text } => prompt(text),
                _ => None,
            };
        }
        EntryBody::StdoutRaw(raw) => return action(&String::from_utf8_lossy(raw)),
        EntryBody::Stderr(text) => return action(text),
        EntryBody::Stdout(json) | EntryBody::Stdin(json) => json,
    };
    let line = decode::decode_line(json);
    let written = |author: TextAuthor, text: &str| match row.kind {
        RowKind::Prompt => prompt(UserText::parse(author, text).text()),
        _ => action(text),
    };
    if let (RowKind::Tool, Some(id)) = (row.kind, &*call) {
        return action(&result_of(&line, Some(id))?.text());
    }
    match &line.body {
        LineBody::SessionFile(SessionFileLine::QueuedText(author, text)) => {
            return written(*author, &text.text());
        }
        // Its last message has a row.
        LineBody::Result(_) if row.is_redundant() => return None,
        LineBody::Result(result) => {
            let errors = result.error.iter().chain(&result.errors);
            return errors.chain(&result.result).find_map(|text| action(text));
        }
        _ => {}
    }
    match blocks(&line).get(usize::from(row.block))? {
        MessageBlock::ToolUse(made) if row.kind == RowKind::Tool => {
            *call = Some(made.id.clone().into_owned());
            let input = call_as_run(made, edited).input?;
            action(short_name(&made.name))
                .or_else(|| Some((MatchPlace::Action, value_with(&input.value(), query)?)))
                .or_else(|| action(input.0))
        }
        MessageBlock::Text(text) | MessageBlock::Thinking(text) => {
            written(line.text_author(), &text.text())
        }
        _ => None,
    }
}

/// The first line with `query` in the texts of a value.
fn value_with(value: &Value, query: &str) -> Option<String> {
    match value {
        Value::String(text) => line_with(text, query),
        Value::Array(items) => items.iter().find_map(|item| value_with(item, query)),
        Value::Object(fields) => fields.values().find_map(|field| value_with(field, query)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn line_with(text: &str, query: &str) -> Option<String> {
    let mut lines = text.lines();
    let line = lines.find(|line| matches(line, query))?;
    Some(line.trim().to_owned())
}
