//! What the translator remembers of calls: open ones in full, finished ones only as far as a repeated result needs.
//!
//! A clone is cheap: finished calls are sealed into shared segments, open ones hold shared texts.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::event::ActionKind;

/// Arguments longer than this are not remembered for the later events of a call.
const LONGEST_INPUT: usize = 64 << 10;

/// Bytes of arguments that all open calls together may hold. A stream has a few open calls; only a broken or hostile
/// one reaches this.
const OPEN_INPUTS: usize = 4 << 20;

/// Finished calls in one sealed segment.
const SEGMENT: usize = 1024;

/// Bytes of names and titles after which a segment is sealed too, so that a clone never copies much.
const SEGMENT_WORDS: usize = 256 << 10;

/// An open call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) kind: ActionKind,
    pub(super) name: Arc<str>,
    pub(super) title: Arc<str>,
    pub(super) change: Option<&'static str>,
    pub(super) input: Option<Arc<str>>,
    pub(super) message_id: Option<Arc<str>>,
    pub(super) parent: Option<Arc<str>>,
    order: u64,
}

impl Call {
    /// A call that holds no arguments yet.
    pub(super) fn new(kind: ActionKind, name: &str, title: &str) -> Self {
        let name: Arc<str> = name.into();
        let title = if *name == *title { Arc::clone(&name) } else { title.into() };
        Self { kind, name, title, change: None, input: None, message_id: None, parent: None, order: 0 }
    }
}

/// What is left of a finished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Past<'s> {
    pub(super) kind: ActionKind,
    pub(super) name: &'s str,
    pub(super) title: &'s str,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    open: HashMap<Arc<str>, Call>,
    opened: u64,
    inputs: usize,
    fresh: Segment,
    sealed: Vec<Arc<Segment>>,
}

impl Calls {
    /// Opens a call, or opens it again. Keeps `input` if it is not too long.
    pub(super) fn open(&mut self, id: &str, mut call: Call, input: Option<&str>) {
        self.opened += 1;
        call.order = self.opened;
        let room = OPEN_INPUTS.saturating_sub(self.inputs).min(LONGEST_INPUT);
        call.input = input.filter(|input| input.len() <= room).map(Arc::from);
        self.inputs += length(&call);
        if let Some(earlier) = self.open.insert(id.into(), call) {
            self.inputs -= length(&earlier);
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<&Call> {
        self.open.get(id)
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Takes an open call out and keeps its name and title.
    pub(super) fn finish(&mut self, id: &str) -> Option<Call> {
        let call = self.open.remove(id)?;
        self.inputs -= length(&call);
        self.fresh.push(id, &call);
        if self.fresh.rows.len() >= SEGMENT || self.fresh.words.len() >= SEGMENT_WORDS {
            let mut segment = std::mem::take(&mut self.fresh);
            segment.rows.sort_unstable_by_key(|row| row.id);
            self.sealed.push(Arc::new(segment));
        }
        Some(call)
    }

    /// A finished call.
    pub(super) fn past(&self, id: &str) -> Option<Past<'_>> {
        let id = hash(id);
        let fresh = self.fresh.rows.iter().rev().find(|row| row.id == id).map(|row| self.fresh.past(row));
        fresh.or_else(|| {
            self.sealed.iter().rev().find_map(|segment| {
                let at = segment.rows.binary_search_by_key(&id, |row| row.id).ok()?;
                Some(segment.past(&segment.rows[at]))
            })
        })
    }

    /// Takes every open call, in the order in which they were opened.
    pub(super) fn drain(&mut self) -> Vec<(Arc<str>, Call)> {
        let mut calls: Vec<_> = self.open.drain().collect();
        calls.sort_unstable_by_key(|(_, call)| call.order);
        self.inputs = 0;
        calls
    }
}

fn length(call: &Call) -> usize {
    call.input.as_deref().map_or(0, str::len)
}

/// Finished calls, packed: a capture has hundreds of thousands.
#[derive(Clone, Debug, Default)]
struct Segment {
    rows: Vec<Row>,
    words: String,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// Hash of the call's id.
    id: u64,
    /// Where its name starts in the words.
    start: u32,
    name: u32,
    /// Length of the title that follows the name; zero if the name is the title.
    title: u32,
    kind: ActionKind,
}

impl Segment {
    fn push(&mut self, id: &str, call: &Call) {
        let title = if call.name == call.title { "" } else { &call.title };
        let sizes = (u32::try_from(self.words.len()), u32::try_from(call.name.len()), u32::try_from(title.len()));
        let (Ok(start), Ok(name), Ok(title_length)) = sizes else { return };
        self.words.push_str(&call.name);
        self.words.push_str(title);
        self.rows.push(Row { id: hash(id), start, name, title: title_length, kind: call.kind });
    }

    fn past(&self, row: &Row) -> Past<'_> {
        let start = row.start as usize;
        let middle = start + row.name as usize;
        let name = &self.words[start..middle];
        let title = if row.title == 0 { name } else { &self.words[middle..middle + row.title as usize] };
        Past { kind: row.kind, name, title }
    }
}

/// Ids are compared by hash: a wrong match only costs an orphan result a better title.
fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// A remembered text as part of an event.
pub(super) fn owned<'a>(text: &str) -> Cow<'a, str> {
    Cow::Owned(text.to_owned())
}
