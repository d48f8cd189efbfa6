//! The calls that the translator keeps: open ones completely, finished ones only as far as a repeated result needs
//! them.
//!
//! Cloning is cheap: finished calls are sealed into shared segments, open ones contain shared texts.

use std::{collections::HashMap, hash::BuildHasher as _, sync::Arc};

use foldhash::fast::{FixedState, RandomState};

use super::event::ActionKind;

/// Values by the id of a call. Each line of a call reads several of these, so they use a fast hash with a random seed.
/// It promises less against crafted ids than the hash of the standard library.
pub(crate) type CallMap<K, V> = HashMap<K, V, RandomState>;

/// Maximum length of the arguments that are kept for later events of a call.
const MAX_INPUT_BYTES: usize = 64 << 10;

/// Maximum size of the arguments of all open calls together. A stream has a few open calls; only a broken or hostile
/// one reaches this.
const MAX_OPEN_INPUT_BYTES: usize = 4 << 20;

/// Finished calls in one sealed segment.
const SEGMENT_ROWS: usize = 1024;

/// Size of names and titles after which a segment is sealed, which limits the bytes that a clone copies.
const SEGMENT_TEXT_BYTES: usize = 256 << 10;

#[derive(Clone, Debug)]
pub(super) struct OngoingCall {
    pub(super) kind: ActionKind,
    pub(super) name: Arc<str>,
    pub(super) title: Arc<str>,
    pub(super) file_change: Option<&'static str>,
    pub(super) input: Option<Arc<str>>,
    pub(super) message_id: Option<Arc<str>>,
    pub(super) parent_tool_use_id: Option<Arc<str>>,
    /// It waits for the answer of a person.
    pub(super) waits_for_answer: bool,
    order: u64,
}

impl OngoingCall {
    /// Creates a call without arguments.
    pub(super) fn new(kind: ActionKind, name: &str, title: &str) -> Self {
        let name: Arc<str> = name.into();
        let title = if *name == *title {
            Arc::clone(&name)
        } else {
            title.into()
        };
        // Tools with which the model asks a person.
        let waits_for_answer = matches!(&*name, "AskUserQuestion" | "ExitPlanMode");
        Self {
            kind,
            name,
            title,
            file_change: None,
            input: None,
            message_id: None,
            parent_tool_use_id: None,
            waits_for_answer,
            order: 0,
        }
    }
}

/// The kept parts of a finished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinishedCall<'s> {
    pub(super) kind: ActionKind,
    pub(super) name: &'s str,
    pub(super) title: &'s str,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CallHistory {
    open: CallMap<Arc<str>, OngoingCall>,
    opened_count: u64,
    input_bytes: usize,
    unsealed: FinishedCalls,
    sealed: Vec<Arc<FinishedCalls>>,
}

impl CallHistory {
    /// Opens a call, or opens it again. Keeps `input` if it is not too long.
    pub(super) fn open(&mut self, id: &str, mut call: OngoingCall, input: Option<&str>) {
        self.opened_count += 1;
        call.order = self.opened_count;
        let room = MAX_OPEN_INPUT_BYTES
            .saturating_sub(self.input_bytes)
            .min(MAX_INPUT_BYTES);
        call.input = input.filter(|input| input.len() <= room).map(Arc::from);
        self.input_bytes += input_len(&call);
        if let Some(earlier) = self.open.insert(id.into(), call) {
            self.input_bytes -= input_len(&earlier);
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<&OngoingCall> {
        self.open.get(id)
    }

    /// The agent asked for permission to make a call.
    pub(super) fn mark_waiting(&mut self, id: &str) {
        if let Some(call) = self.open.get_mut(id) {
            call.waits_for_answer = true;
        }
    }

    /// True if an open call waits for the answer of a person.
    pub(super) fn has_waiting(&self) -> bool {
        self.open.values().any(|call| call.waits_for_answer)
    }

    /// Removes an open call and keeps its name and title.
    pub(super) fn finish(&mut self, id: &str) -> Option<OngoingCall> {
        let call = self.open.remove(id)?;
        self.input_bytes -= input_len(&call);
        self.unsealed.push(id, &call);
        if self.unsealed.rows.len() >= SEGMENT_ROWS
            || self.unsealed.text.len() >= SEGMENT_TEXT_BYTES
        {
            let mut segment = std::mem::take(&mut self.unsealed);
            segment.rows.sort_unstable_by_key(|row| row.id_hash);
            self.sealed.push(Arc::new(segment));
        }
        Some(call)
    }

    pub(super) fn finished(&self, id: &str) -> Option<FinishedCall<'_>> {
        let id = hash_id(id);
        let fresh = self
            .unsealed
            .rows
            .iter()
            .rev()
            .find(|row| row.id_hash == id)
            .map(|row| self.unsealed.row(row));
        fresh.or_else(|| {
            self.sealed.iter().rev().find_map(|segment| {
                let at = segment
                    .rows
                    .binary_search_by_key(&id, |row| row.id_hash)
                    .ok()?;
                Some(segment.row(&segment.rows[at]))
            })
        })
    }

    /// Removes all open calls, in the order in which they were opened.
    pub(super) fn drain(&mut self) -> Vec<(Arc<str>, OngoingCall)> {
        let mut calls: Vec<_> = self.open.drain().collect();
        calls.sort_unstable_by_key(|(_, call)| call.order);
        self.input_bytes = 0;
        calls
    }
}

fn input_len(call: &OngoingCall) -> usize {
    call.input.as_deref().map_or(0, str::len)
}

/// Finished calls in compact form: a capture has hundreds of thousands.
#[derive(Clone, Debug, Default)]
struct FinishedCalls {
    rows: Vec<FinishedCallRow>,
    text: String,
}

#[derive(Clone, Copy, Debug)]
struct FinishedCallRow {
    /// Hash of the call's id.
    id_hash: u64,
    /// Offset of its name in the text of the segment.
    start: u32,
    name_len: u32,
    /// Length of the title that follows the name; zero if the name is the title.
    title_len: u32,
    kind: ActionKind,
}

impl FinishedCalls {
    fn push(&mut self, id: &str, call: &OngoingCall) {
        let title = if call.name == call.title {
            ""
        } else {
            &call.title
        };
        let sizes = (
            u32::try_from(self.text.len()),
            u32::try_from(call.name.len()),
            u32::try_from(title.len()),
        );
        let (Ok(start), Ok(name), Ok(title_length)) = sizes else {
            return;
        };
        self.text.push_str(&call.name);
        self.text.push_str(title);
        self.rows.push(FinishedCallRow {
            id_hash: hash_id(id),
            start,
            name_len: name,
            title_len: title_length,
            kind: call.kind,
        });
    }

    fn row(&self, row: &FinishedCallRow) -> FinishedCall<'_> {
        let start = row.start as usize;
        let middle = start + row.name_len as usize;
        let name = &self.text[start..middle];
        let title = if row.title_len == 0 {
            name
        } else {
            &self.text[middle..middle + row.title_len as usize]
        };
        FinishedCall {
            kind: row.kind,
            name,
            title,
        }
    }
}

/// Ids are compared by hash: a collision only gives an orphan result a wrong title.
fn hash_id(id: &str) -> u64 {
    FixedState::default().hash_one(id)
}
