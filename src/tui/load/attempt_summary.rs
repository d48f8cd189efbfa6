//! What an attempt did in all: which tools it used, which paths it named, how its calls compare with those of another.
//!
//! Read in slices while somebody looks, so that ten thousand calls never stall a key. Rows only ever grow, so what was
//! read stays true; whoever shows a moment in the past leaves out what came after it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{bytes, read, read_head};
use crate::{
    actions::label,
    decode::{self, MessageBlock, RawJson},
    run::{
        Timeline,
        state::{AttemptId, RowKind, StreamRow},
    },
    tape::{EntryBody, Note, Seq},
};

/// Rows that are read at most of one attempt.
const MAX_ROWS: usize = 200_000;
/// Rows and bytes of a slice.
const SLICE: (usize, usize) = (400, 1024 * 1024);
/// Arguments that name what is touched.
const PATHS: [&str; 8] = ["file_path", "path", "notebook_path", "rawPath", "key", "sourceName", "command", "pattern"];

/// What was read of an attempt so far.
#[derive(Clone, Debug, Default)]
pub struct AttemptSummary {
    /// Rows that were read.
    pub rows: usize,
    /// Changes whenever more is known.
    pub version: u64,
    /// Calls, in order of their rows.
    pub calls: Vec<SummarizedCall>,
    /// Rows of stderr, and of stdout that is not JSON.
    pub stray_output: Vec<StrayOutput>,
    /// Entries with the proof of isolation.
    pub isolation_entries: Vec<Seq>,
    /// Names of tools, by [`SummarizedCall::tool`].
    pub tools: Vec<String>,
    /// Calls that had no result when they were read, by index.
    open: Vec<usize>,
}

/// A call of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummarizedCall {
    /// Its row.
    pub row: usize,
    /// Its tool.
    pub tool: usize,
    /// What it does: tool and most telling argument.
    pub action: u64,
    /// All of its arguments.
    pub input: u64,
    /// Its result, once there is one.
    pub result: Option<u64>,
    /// What it names.
    pub access: Option<(AccessKind, String)>,
}

/// What a call does to what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// Looks.
    Read,
    /// Changes.
    Write,
    /// Whatever the command says.
    Run,
}

/// A line beside the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayOutput {
    /// Its entry.
    pub seq: Seq,
    /// True for stdout that is not JSON.
    pub stdout: bool,
}

impl AttemptSummary {
    /// True when every row up to `rows` was read.
    pub fn is_complete(&self, rows: &[StreamRow], entries: u64) -> bool {
        self.rows >= rows.len().min(MAX_ROWS) && self.next_open(rows, entries).is_none()
    }

    /// True when there are more rows than are read.
    pub fn is_truncated(&self, rows: usize) -> bool {
        rows > MAX_ROWS
    }

    /// The name of the tool of a call.
    pub fn tool(&self, call: &SummarizedCall) -> &str {
        self.tools.get(call.tool).map_or("?", String::as_str)
    }

    fn next_open(&self, rows: &[StreamRow], entries: u64) -> Option<usize> {
        self.open.iter().position(|call| {
            let row = self.calls.get(*call).and_then(|call| rows.get(call.row));
            row.is_some_and(|row| row.last(entries).is_some())
        })
    }

    /// Reads on.
    pub fn slice(&mut self, timeline: &mut Timeline, lane: AttemptId) {
        let entries = timeline.view().state.entries;
        let mut spent = 0;
        for _ in 0..SLICE.0 {
            if spent >= SLICE.1 {
                return;
            }
            let rows = timeline.view().rows(lane);
            if let Some(place) = self.next_open(rows, entries) {
                let call = self.open.swap_remove(place);
                let row = rows.get(self.calls[call].row).copied();
                if let Some((row, last)) = row.and_then(|row| Some((row, row.last(entries)?))) {
                    // A person may have replaced its arguments since it was read.
                    if timeline.view().edited_arguments_entry(row.first(), row.block).is_some()
                        && let Some(ran) = self.call(timeline, self.calls[call].row, &row, &mut spent)
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
                let Some(mut call) = self.call(timeline, index, row, spent) else { return };
                match row.last(entries).filter(|last| *last != row.first()) {
                    Some(last) => call.result = result(timeline, last, spent),
                    None => self.open.push(self.calls.len()),
                }
                self.calls.push(call);
            }
            RowKind::Warning => {
                let stdout = read_head(timeline, row.first(), 0, |arrived, _| match arrived.body {
                    EntryBody::Err(_) => Some(false),
                    EntryBody::Raw(_) => Some(true),
                    EntryBody::Out(_) | EntryBody::In(_) | EntryBody::Note(_) => None,
                });
                if let Ok(Some(stdout)) = stdout {
                    self.stray_output.push(StrayOutput { seq: row.first(), stdout });
                }
            }
            RowKind::Note => {
                let is_check = read(timeline, row.first(), |arrived| match arrived.body {
                    EntryBody::Note(json) => matches!(Note::parse(json), Note::IsolationChecked(_)),
                    _ => false,
                });
                if is_check == Ok(true) {
                    self.isolation_entries.push(row.first());
                }
            }
            RowKind::Text
            | RowKind::Thinking
            | RowKind::Denial
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
            let (decode::LineBody::Assistant(chat) | decode::LineBody::User(chat)) = &line.body else { return None };
            let Some(MessageBlock::ToolUse(call)) = chat.blocks.get(usize::from(row.block)) else { return None };
            let call = super::call_as_run(call, edited.as_deref());
            let input = call.input.map_or("", |input| input.0);
            let action = hash(&label::call_label(&call.name, call.input, None).text);
            Some((call.name.to_string(), action, hash(input), access_of(&call.name, call.input)))
        });
        let (name, action, input, touches) = found.ok()??;
        let tool = self.tools.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.tools.push(name);
            self.tools.len() - 1
        });
        Some(SummarizedCall { row: index, tool, action, input, result: None, access: touches })
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The result that a line brings, without the ids in which two attempts always differ.
fn result(timeline: &mut Timeline, seq: Seq, spent: &mut usize) -> Option<u64> {
    read(timeline, seq, |arrived| {
        let raw = bytes(&arrived.body);
        *spent += raw.len();
        let line = decode::decode_line(raw);
        let decode::LineBody::User(chat) = &line.body else { return None };
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

/// What a call names, and what it does to it.
pub fn access_of(name: &str, input: Option<RawJson<'_>>) -> Option<(AccessKind, String)> {
    let short = label::short_name(name).to_ascii_lowercase();
    let found = input?.pick(PATHS);
    let (key, value) =
        PATHS.into_iter().zip(found).find_map(|(key, value)| Some((key, value.and_then(RawJson::as_str)?)))?;
    let touch = match short.as_str() {
        "bash" | "shell" => AccessKind::Run,
        name if ["write", "edit", "remove", "delete", "create"].iter().any(|word| name.contains(word)) => {
            AccessKind::Write
        }
        _ => AccessKind::Read,
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

    fn touched(name: &str, input: &str) -> Option<(AccessKind, String)> {
        access_of(name, Some(RawJson(input)))
    }

    #[test]
    fn call_access_is_derived_from_tool_and_arguments() {
        assert_eq!(touched("Read", r#"{"file_path":"/p/a"}"#), Some((AccessKind::Read, "/p/a".into())));
        assert_eq!(
            touched("mcp__ktx__wiki_write", r#"{"key":"arr"}"#),
            Some((AccessKind::Write, "wiki page arr".into()))
        );
        assert_eq!(touched("Bash", r#"{"command":"ls"}"#), Some((AccessKind::Run, "ls".into())));
        assert_eq!(touched("mcp__ktx__wiki_search", r#"{"query":"arr"}"#), None);
        assert_eq!(touched("Edit", "[1]"), None);
        assert_eq!(access_of("Edit", None), None);
    }
}
