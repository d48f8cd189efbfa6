//! Secrets in streamed text, which a tape holds as deltas of content blocks. A first pass over the tape joins the deltas
//! and finds the secrets; the second pass masks the part of each delta.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use serde::Deserialize;
use serde_json::Value;

use super::json::TextEdit;
use ingestdeck_core::tape::{EntryBody, TapeEntry};

/// Bytes of a block after which its deltas begin a new text, which bounds the memory.
const LONGEST: usize = 8 << 20;

/// A part of every line that holds a delta, and of every complete message, which ends the deltas of its stream.
const MARKER: &[u8] = b"\"content_block_";
const COMPLETE: &[u8] = b"\"assistant\"";

/// Edits by line of the tape and field of the delta.
#[derive(Debug, Default)]
pub(super) struct DeltaEdits(HashMap<u64, Vec<(String, Vec<TextEdit>)>>);

impl DeltaEdits {
    /// The edits of the delta in `field` of a line; `None` if it has no such delta.
    pub(super) fn edits_of(&self, line: u64, field: &str) -> Option<&[TextEdit]> {
        let fields = self.0.get(&line)?;
        fields
            .iter()
            .find(|(name, _)| name == field)
            .map(|(_, edits)| edits.as_slice())
    }
}

/// Joins the deltas of a tape.
#[derive(Debug, Default)]
pub(super) struct DeltaAssembler {
    /// The blocks of each stream, by their index and the field of their deltas.
    open: HashMap<String, BTreeMap<(Option<u64>, String), JoinedDeltas>>,
    done: DeltaEdits,
}

/// The text of a field of the deltas of a block.
#[derive(Debug, Default)]
struct JoinedDeltas {
    text: String,
    /// The line of each delta, and where its text begins.
    deltas: Vec<(u64, usize)>,
}

#[derive(Deserialize)]
struct StreamLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    session_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    parent_tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    event: Option<StreamEventHead<'a>>,
}

#[derive(Deserialize)]
struct StreamEventHead<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    index: Option<u64>,
    delta: Option<BTreeMap<String, Value>>,
}

/// True for a line that may hold a delta.
pub(super) fn may_hold_delta(line: &[u8]) -> bool {
    memchr::memmem::find(line, MARKER).is_some()
}

impl DeltaAssembler {
    /// Reads a line of the tape. `find` returns the edits of a text.
    pub(super) fn push_line(
        &mut self,
        number: u64,
        line: &[u8],
        find: &mut dyn FnMut(&str) -> Vec<TextEdit>,
    ) {
        let is_complete =
            || !self.open.is_empty() && memchr::memmem::find(line, COMPLETE).is_some();
        if !may_hold_delta(line) && !is_complete() {
            return;
        }
        let Ok(TapeEntry {
            body: EntryBody::Stdout(body),
            attempt,
            ..
        }) = TapeEntry::parse(line)
        else {
            return;
        };
        let Ok(line) = serde_json::from_slice::<StreamLine<'_>>(body) else {
            return;
        };
        let (session, parent) = (
            line.session_id.unwrap_or_default(),
            line.parent_tool_use_id.unwrap_or_default(),
        );
        let stream = format!("{attempt:?} {session} {parent}");
        let Some(event) = line.event else {
            if line.kind == "assistant" {
                self.finish_blocks(&stream, None, find);
            }
            return;
        };
        if event.kind != "content_block_delta" {
            self.finish_blocks(&stream, Some(event.index), find);
        }
        for (field, value) in event.delta.into_iter().flatten() {
            let Value::String(piece) = value else {
                continue;
            };
            if field == "type" {
                continue;
            }
            let blocks = self.open.entry(stream.clone()).or_default();
            let joined = blocks.entry((event.index, field.clone())).or_default();
            joined.deltas.push((number, joined.text.len()));
            joined.text.push_str(&piece);
            if joined.text.len() > LONGEST {
                let joined = std::mem::take(joined);
                self.finish_field(&field, &joined, find);
            }
        }
    }

    /// Ends the tape and returns all edits.
    pub(super) fn finish(mut self, find: &mut dyn FnMut(&str) -> Vec<TextEdit>) -> DeltaEdits {
        for stream in self.open.keys().cloned().collect::<Vec<_>>() {
            self.finish_blocks(&stream, None, find);
        }
        self.done
    }

    /// Ends the blocks of a stream with an index, or all.
    fn finish_blocks(
        &mut self,
        stream: &str,
        index: Option<Option<u64>>,
        find: &mut dyn FnMut(&str) -> Vec<TextEdit>,
    ) {
        let Some(blocks) = self.open.remove(stream) else {
            return;
        };
        let is_open = |of| index.is_some_and(|index| index != of);
        let (open, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
            blocks.into_iter().partition(|((of, _), _)| is_open(*of));
        for ((_, field), joined) in ended {
            self.finish_field(&field, &joined, find);
        }
        if !open.is_empty() {
            self.open.insert(stream.to_owned(), open);
        }
    }

    fn finish_field(
        &mut self,
        field: &str,
        joined: &JoinedDeltas,
        find: &mut dyn FnMut(&str) -> Vec<TextEdit>,
    ) {
        let edits = find(&joined.text);
        for (at, (line, start)) in joined.deltas.iter().enumerate() {
            let end = joined
                .deltas
                .get(at + 1)
                .map_or(joined.text.len(), |(_, next)| *next);
            // Also without edits: a delta must not be searched alone.
            let own = edits
                .iter()
                .filter(|edit| edit.range.start < end && *start < edit.range.end);
            let own = own.map(|edit| {
                let range = edit.range.start.max(*start) - start..edit.range.end.min(end) - start;
                // The first delta gets the mask, the others lose their part.
                let with = if edit.range.start >= *start {
                    edit.replacement.clone()
                } else {
                    Cow::Borrowed("")
                };
                TextEdit {
                    range,
                    replacement: with,
                }
            });
            self.done
                .0
                .entry(*line)
                .or_default()
                .push((field.to_owned(), own.collect()));
        }
    }
}
