//! What an attempt did in all: which tools it used, which paths it named, how its calls compare with those of another.
//!
//! Read in slices while somebody looks, so that ten thousand calls never stall a key. Rows only ever grow, so what was
//! read stays true; whoever shows a moment in the past leaves out what came after it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{bytes, read, read_head};
use crate::{
    actions::label,
    decode::{self, Block, Raw},
    run::{
        Timeline,
        state::{LaneId, Row, RowKind},
    },
    tape::{Body, Note, Seq},
};

/// Rows that are read at most of one attempt.
const MOST: usize = 200_000;
/// Rows and bytes of a slice.
const SLICE: (usize, usize) = (400, 1024 * 1024);
/// Arguments that name what is touched.
const PATHS: [&str; 8] = ["file_path", "path", "notebook_path", "rawPath", "key", "sourceName", "command", "pattern"];

/// What was read of an attempt so far.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// Rows that were read.
    pub rows: usize,
    /// Changes whenever more is known.
    pub version: u64,
    /// Calls, in order of their rows.
    pub calls: Vec<Call>,
    /// Rows of stderr, and of stdout that is not JSON.
    pub noise: Vec<Noise>,
    /// Entries with the proof of isolation.
    pub checks: Vec<Seq>,
    /// Names of tools, by [`Call::tool`].
    pub tools: Vec<String>,
    /// Calls that had no result when they were read, by index.
    open: Vec<usize>,
}

/// A call of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
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
    pub touches: Option<(Touch, String)>,
}

/// What a call does to what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Touch {
    /// Looks.
    Reads,
    /// Changes.
    Writes,
    /// Whatever the command says.
    Runs,
}

/// A line beside the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Its entry.
    pub seq: Seq,
    /// True for stdout that is not JSON.
    pub stdout: bool,
}

impl Gathered {
    /// True when every row up to `rows` was read.
    pub fn is_complete(&self, rows: &[Row], entries: u64) -> bool {
        self.rows >= rows.len().min(MOST) && self.next_open(rows, entries).is_none()
    }

    /// True when there are more rows than are read.
    pub fn is_cut(&self, rows: usize) -> bool {
        rows > MOST
    }

    /// The name of the tool of a call.
    pub fn tool(&self, call: &Call) -> &str {
        self.tools.get(call.tool).map_or("?", String::as_str)
    }

    fn next_open(&self, rows: &[Row], entries: u64) -> Option<usize> {
        self.open.iter().position(|call| {
            let row = self.calls.get(*call).and_then(|call| rows.get(call.row));
            row.is_some_and(|row| row.last(entries).is_some())
        })
    }

    /// Reads on.
    pub fn slice(&mut self, timeline: &mut Timeline, lane: LaneId) {
        let entries = timeline.story().state.entries;
        let mut spent = 0;
        for _ in 0..SLICE.0 {
            if spent >= SLICE.1 {
                return;
            }
            let rows = timeline.story().rows(lane);
            if let Some(place) = self.next_open(rows, entries) {
                let call = self.open.swap_remove(place);
                let row = rows.get(self.calls[call].row).copied();
                if let Some((row, last)) = row.and_then(|row| Some((row, row.last(entries)?))) {
                    // A person may have replaced its arguments since it was read.
                    if timeline.story().edited(row.first(), row.block).is_some()
                        && let Some(ran) = self.call(timeline, self.calls[call].row, &row, &mut spent)
                    {
                        self.calls[call] = ran;
                    }
                    self.calls[call].result = result(timeline, last, &mut spent);
                }
                self.version += 1;
                continue;
            }
            if self.rows >= rows.len().min(MOST) {
                return;
            }
            let (index, row) = (self.rows, rows[self.rows]);
            self.rows += 1;
            self.row(timeline, index, &row, &mut spent);
        }
    }

    fn row(&mut self, timeline: &mut Timeline, index: usize, row: &Row, spent: &mut usize) {
        self.version += 1;
        let entries = timeline.story().state.entries;
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
                    Body::Err(_) => Some(false),
                    Body::Raw(_) => Some(true),
                    Body::Out(_) | Body::In(_) | Body::Note(_) => None,
                });
                if let Ok(Some(stdout)) = stdout {
                    self.noise.push(Noise { seq: row.first(), stdout });
                }
            }
            RowKind::Note => {
                let is_check = read(timeline, row.first(), |arrived| match arrived.body {
                    Body::Note(json) => matches!(Note::parse(json), Note::IsolationChecked(_)),
                    _ => false,
                });
                if is_check == Ok(true) {
                    self.checks.push(row.first());
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

    fn call(&mut self, timeline: &mut Timeline, index: usize, row: &Row, spent: &mut usize) -> Option<Call> {
        let edited = super::edited(timeline, row.first(), row.block);
        let found = read(timeline, row.first(), |arrived| {
            let raw = bytes(&arrived.body);
            *spent += raw.len();
            let line = decode::line(raw);
            let (decode::Body::Assistant(chat) | decode::Body::User(chat)) = &line.body else { return None };
            let Some(Block::ToolUse(call)) = chat.blocks.get(usize::from(row.block)) else { return None };
            let call = super::ran(call, edited.as_deref());
            let input = call.input.map_or("", |input| input.0);
            let action = hash(&label::call(&call.name, call.input, None).text);
            Some((call.name.to_string(), action, hash(input), touches(&call.name, call.input)))
        });
        let (name, action, input, touches) = found.ok()??;
        let tool = self.tools.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.tools.push(name);
            self.tools.len() - 1
        });
        Some(Call { row: index, tool, action, input, result: None, touches })
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
        let line = decode::line(raw);
        let decode::Body::User(chat) = &line.body else { return None };
        let results = chat.blocks.iter().filter_map(|block| match block {
            Block::ToolResult(result) => Some(result),
            _ => None,
        });
        let texts: Vec<_> = results.map(|result| result.text()).collect();
        (!texts.is_empty()).then(|| hash(&texts.join("\n")))
    })
    .ok()
    .flatten()
}

/// What a call names, and what it does to it.
pub fn touches(name: &str, input: Option<Raw<'_>>) -> Option<(Touch, String)> {
    let short = label::short_name(name).to_ascii_lowercase();
    let found = input?.pick(PATHS);
    let (key, value) =
        PATHS.into_iter().zip(found).find_map(|(key, value)| Some((key, value.and_then(Raw::as_str)?)))?;
    let touch = match short.as_str() {
        "bash" | "shell" => Touch::Runs,
        name if ["write", "edit", "remove", "delete", "create"].iter().any(|word| name.contains(word)) => Touch::Writes,
        _ => Touch::Reads,
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

    fn touched(name: &str, input: &str) -> Option<(Touch, String)> {
        touches(name, Some(Raw(input)))
    }

    #[test]
    fn calls_are_told_by_what_they_do_to_what_they_name() {
        assert_eq!(touched("Read", r#"{"file_path":"/p/a"}"#), Some((Touch::Reads, "/p/a".into())));
        assert_eq!(touched("mcp__ktx__wiki_write", r#"{"key":"arr"}"#), Some((Touch::Writes, "wiki page arr".into())));
        assert_eq!(touched("Bash", r#"{"command":"ls"}"#), Some((Touch::Runs, "ls".into())));
        assert_eq!(touched("mcp__ktx__wiki_search", r#"{"query":"arr"}"#), None);
        assert_eq!(touched("Edit", "[1]"), None);
        assert_eq!(touches("Edit", None), None);
    }
}
