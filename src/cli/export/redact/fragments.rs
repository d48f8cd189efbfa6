//! Texts that a tape holds in pieces: what a model writes arrives as deltas of one content block. A first pass over the
//! tape puts the pieces together and finds the secrets, so that the second one knows which part of each piece to mask.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use serde::Deserialize;
use serde_json::Value;

use super::json::Edit;
use crate::tape::{Body, Entry};

/// Bytes of a block from which its pieces are taken as a text of their own, so that no tape takes all memory.
const LONGEST: usize = 8 << 20;

/// A marker of every line that is of interest here.
const MARKER: &[u8] = b"\"content_block_";

/// What to mask in the pieces, by line of the tape and field of the delta.
#[derive(Debug, Default)]
pub(super) struct Fragments(HashMap<u64, Vec<(String, Vec<Edit>)>>);

impl Fragments {
    /// What to mask in the piece that a line has in `field`; `None` if it has none there.
    pub(super) fn of(&self, line: u64, field: &str) -> Option<&[Edit]> {
        let fields = self.0.get(&line)?;
        fields.iter().find(|(name, _)| name == field).map(|(_, edits)| edits.as_slice())
    }
}

/// Puts the pieces together.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    open: HashMap<String, BTreeMap<String, Joined>>,
    done: Fragments,
}

/// A field of the deltas of a block.
#[derive(Debug, Default)]
struct Joined {
    text: String,
    /// Line of each piece, and where it begins.
    pieces: Vec<(u64, usize)>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    session_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    parent_tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    event: Event<'a>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    index: Option<u64>,
    delta: Option<BTreeMap<String, Value>>,
}

/// True for a line that may hold a piece.
pub(super) fn may_hold_a_piece(line: &[u8]) -> bool {
    memchr::memmem::find(line, MARKER).is_some()
}

impl Assembly {
    /// Takes in a line of the tape. `find` finds what to mask in a text.
    pub(super) fn take(&mut self, number: u64, line: &[u8], find: &mut dyn FnMut(&str) -> Vec<Edit>) {
        if !may_hold_a_piece(line) {
            return;
        }
        let Ok(Entry { body: Body::Out(body), lane, .. }) = Entry::parse(line) else { return };
        let Ok(line) = serde_json::from_slice::<Line<'_>>(body) else { return };
        let (session, parent) = (line.session_id.unwrap_or_default(), line.parent_tool_use_id.unwrap_or_default());
        let key = format!("{lane:?} {session} {parent} {:?}", line.event.index);
        if line.event.kind != "content_block_delta"
            && let Some(block) = self.open.remove(&key)
        {
            self.finish_block(block, find);
        }
        for (field, value) in line.event.delta.into_iter().flatten() {
            let Value::String(piece) = value else { continue };
            if field == "type" {
                continue;
            }
            let joined = self.open.entry(key.clone()).or_default().entry(field.clone()).or_default();
            joined.pieces.push((number, joined.text.len()));
            joined.text.push_str(&piece);
            if joined.text.len() > LONGEST {
                let joined = std::mem::take(joined);
                self.finish_field(&field, &joined, find);
            }
        }
    }

    /// The tape is read: what is to be masked.
    pub(super) fn finish(mut self, find: &mut dyn FnMut(&str) -> Vec<Edit>) -> Fragments {
        for block in std::mem::take(&mut self.open).into_values() {
            self.finish_block(block, find);
        }
        self.done
    }

    fn finish_block(&mut self, block: BTreeMap<String, Joined>, find: &mut dyn FnMut(&str) -> Vec<Edit>) {
        for (field, joined) in block {
            self.finish_field(&field, &joined, find);
        }
    }

    fn finish_field(&mut self, field: &str, joined: &Joined, find: &mut dyn FnMut(&str) -> Vec<Edit>) {
        let edits = find(&joined.text);
        for (at, (line, start)) in joined.pieces.iter().enumerate() {
            let end = joined.pieces.get(at + 1).map_or(joined.text.len(), |(_, next)| *next);
            // Every piece is noted: it must not be looked at alone.
            let own = edits.iter().filter(|edit| edit.range.start < end && *start < edit.range.end);
            let own = own.map(|edit| {
                let range = edit.range.start.max(*start) - start..edit.range.end.min(end) - start;
                // The first piece gets the mask, the others only lose their part.
                let with = if edit.range.start >= *start { edit.with.clone() } else { Cow::Borrowed("") };
                Edit { range, with }
            });
            self.done.0.entry(*line).or_default().push((field.to_owned(), own.collect()));
        }
    }
}
