//! Reads the summary of an attempt.
//!
//! Rows are read in slices while the summary is shown, so that ten thousand calls do not block the keyboard.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{bytes, read, read_head};
use crate::attempt_summary::{
    AttemptSummary, CallAccessKind, MAX_ROWS, NonProtocolOutput, SummarizedCall,
};
use ingestdeck_core::{
    actions::label,
    decode::{self, MessageBlock, RawJson},
    run::{
        Timeline,
        state::{AttemptId, RowKind, StreamRow},
    },
    tape::{EntryBody, Note, Seq},
};

/// Rows and bytes of a slice.
const SLICE: (usize, usize) = (400, 1024 * 1024);
/// Arguments that name the accessed object.
const PATHS: [&str; 8] = [
    "file_path",
    "path",
    "notebook_path",
    "rawPath",
    "key",
    "sourceName",
    "command",
    "pattern",
];

impl AttemptSummary {
    /// Reads the next slice.
    pub(crate) fn slice(&mut self, timeline: &mut Timeline, attempt_id: AttemptId) {
        let entries = timeline.view().state.entries;
        let mut spent = 0;
        for _ in 0..SLICE.0 {
            if spent >= SLICE.1 {
                return;
            }
            let rows = timeline.view().rows(attempt_id);
            if let Some(place) = self.next_open(rows, entries) {
                let call = self.open.swap_remove(place);
                let row = rows.get(self.calls[call].row).copied();
                if let Some((row, last)) = row.and_then(|row| Some((row, row.last(entries)?))) {
                    let last = timeline.view().background_result(&row).unwrap_or(last);
                    // The user may have replaced its arguments since it was read.
                    if timeline
                        .view()
                        .edited_arguments_entry(row.first(), row.block)
                        .is_some()
                        && let Some(ran) =
                            self.call(timeline, self.calls[call].row, &row, &mut spent)
                    {
                        self.calls[call] = ran;
                    }
                    self.calls[call].result = result(timeline, last, &mut spent);
                }
                self.version += 1;
                continue;
            }
            if self.rows >= rows.len().min(MAX_ROWS) {
                return;
            }
            let (index, row) = (self.rows, rows[self.rows]);
            self.rows += 1;
            self.row(timeline, index, &row, &mut spent);
        }
    }

    fn row(&mut self, timeline: &mut Timeline, index: usize, row: &StreamRow, spent: &mut usize) {
        self.version += 1;
        let entries = timeline.view().state.entries;
        match row.kind {
            RowKind::Tool => {
                let Some(mut call) = self.call(timeline, index, row, spent) else {
                    return;
                };
                match row.last(entries).filter(|last| *last != row.first()) {
                    Some(last) => {
                        let last = timeline.view().background_result(row).unwrap_or(last);
                        call.result = result(timeline, last, spent);
                    }
                    None => self.open.push(self.calls.len()),
                }
                self.calls.push(call);
            }
            RowKind::Warning => {
                let stdout = read_head(timeline, row.first(), 0, |arrived, _| match arrived.body {
                    EntryBody::Stderr(_) => Some(false),
                    EntryBody::StdoutRaw(_) => Some(true),
                    EntryBody::Stdout(_) | EntryBody::Stdin(_) | EntryBody::Note(_) => None,
                });
                if let Ok(Some(stdout)) = stdout {
                    self.stray_output.push(NonProtocolOutput {
                        seq: row.first(),
                        stdout,
                    });
                }
            }
            RowKind::Note => {
                let is_check = read(timeline, row.first(), |arrived| match arrived.body {
                    EntryBody::Note(json) => matches!(Note::parse(json), Note::IsolationChecked(_)),
                    _ => false,
                });
                if matches!(is_check, Ok(true)) {
                    self.isolation_entries.push(row.first());
                }
            }
            RowKind::Text
            | RowKind::Thinking
            | RowKind::Prompt
            | RowKind::Denial
            | RowKind::Task
            | RowKind::Notice
            | RowKind::Started
            | RowKind::Completed => {}
        }
    }

    fn call(
        &mut self,
        timeline: &mut Timeline,
        index: usize,
        row: &StreamRow,
        spent: &mut usize,
    ) -> Option<SummarizedCall> {
        let edited = super::edited(timeline, row.first(), row.block);
        let found = read(timeline, row.first(), |arrived| {
            let raw = bytes(&arrived.body);
            *spent += raw.len();
            let line = decode::decode_line(raw);
            let (decode::LineBody::Assistant(chat) | decode::LineBody::User(chat)) = &line.body
            else {
                return None;
            };
            let Some(MessageBlock::ToolUse(call)) = chat.blocks.get(usize::from(row.block)) else {
                return None;
            };
            let call = super::call_as_run(call, edited.as_deref());
            let input = call.input.map_or("", |input| input.0);
            let action = hash(&label::call_label(&call.name, call.input, None).text);
            Some((
                call.name.to_string(),
                action,
                hash(input),
                access_of(&call.name, call.input),
            ))
        });
        let (name, action, input, touches) = found.ok()??;
        let tool = self
            .tools
            .iter()
            .position(|known| *known == name)
            .unwrap_or_else(|| {
                self.tools.push(name);
                self.tools.len() - 1
            });
        Some(SummarizedCall {
            row: index,
            tool,
            action,
            input,
            result: None,
            access: touches,
        })
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Hash of the result in a line, without the ids, which always differ between attempts.
fn result(timeline: &mut Timeline, seq: Seq, spent: &mut usize) -> Option<u64> {
    read(timeline, seq, |arrived| {
        let raw = bytes(&arrived.body);
        *spent += raw.len();
        let line = decode::decode_line(raw);
        let decode::LineBody::User(chat) = &line.body else {
            return None;
        };
        let results = chat.blocks.iter().filter_map(|block| match block {
            MessageBlock::ToolResult(result) => Some(result),
            _ => None,
        });
        let texts: Vec<_> = results.map(|result| result.text()).collect();
        (!texts.is_empty()).then(|| hash(&texts.join("\n")))
    })
    .ok()
    .flatten()
}

/// The object that a call accesses, and the kind of access.
pub(crate) fn access_of(
    name: &str,
    input: Option<RawJson<'_>>,
) -> Option<(CallAccessKind, String)> {
    let short = label::short_name(name).to_ascii_lowercase();
    let found = input?.pick(PATHS);
    let (key, value) = PATHS
        .into_iter()
        .zip(found)
        .find_map(|(key, value)| Some((key, value.and_then(RawJson::as_str)?)))?;
    let touch = match short.as_str() {
        "bash" | "shell" => CallAccessKind::Run,
        name if ["write", "edit", "remove", "delete", "create"]
            .iter()
            .any(|word| name.contains(word)) =>
        {
            CallAccessKind::Write
        }
        _ => CallAccessKind::Read,
    };
    let value = match key {
        "key" if short.starts_with("wiki") => format!("wiki page {value}"),
        "sourceName" => format!("semantic layer source {value}"),
        _ => value.into_owned(),
    };
    Some((touch, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(name: &str, input: &str) -> Option<(CallAccessKind, String)> {
        access_of(name, Some(RawJson(input)))
    }

    #[test]
    fn call_access_is_derived_from_tool_and_arguments() {
        assert_eq!(
            touched("Read", r#"{"file_path":"/p/a"}"#),
            Some((CallAccessKind::Read, "/p/a".into()))
        );
        assert_eq!(
            touched("mcp__ktx__wiki_write", r#"{"key":"arr"}"#),
            Some((CallAccessKind::Write, "wiki page arr".into()))
        );
        assert_eq!(
            touched("Bash", r#"{"command":"ls"}"#),
            Some((CallAccessKind::Run, "ls".into()))
        );
        assert_eq!(touched("mcp__ktx__wiki_search", r#"{"query":"arr"}"#), None);
        assert_eq!(touched("Edit", "[1]"), None);
        assert_eq!(access_of("Edit", None), None);
    }
}
