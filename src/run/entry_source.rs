//! Where entries come from, and where they go first. The two traits at the edge of the pure part.

use std::{fmt, io};

use jiff::Timestamp;

use crate::{
    decode::AgentLine,
    tape::{EntryBody, Header, Millis, Seq, UnitKey},
};

/// A reader of entries, in order, growing or finished. Line `n` of it can be read again at any time.
pub trait EntrySource: Send {
    /// What it is.
    fn info(&self) -> &SourceInfo;

    /// Hands the next entries to `sink`, in order, about `max_bytes` of them, continuing where the last call stopped.
    fn poll(&mut self, max_bytes: usize, sink: &mut dyn FnMut(EntryRef<'_>)) -> Result<PollStatus, EntrySourceError>;

    /// The next [`poll`](Self::poll) starts at `seq`, which an earlier poll has already passed (or zero).
    fn rewind(&mut self, seq: Seq) -> Result<(), EntrySourceError>;

    /// Hands one entry to `sink` that an earlier poll has already passed. False if there is none.
    fn read(&mut self, seq: Seq, sink: &mut dyn FnMut(EntryRef<'_>)) -> Result<bool, EntrySourceError>;

    /// As [`read`](Self::read) for whoever looks at the beginning only: of a body that is longer than `most` bytes no
    /// more than that need be read. `sink` is also told how many bytes it has in all; a body with fewer is cut, and is
    /// no JSON then.
    fn read_head(
        &mut self,
        seq: Seq,
        most: usize,
        sink: &mut dyn FnMut(EntryRef<'_>, u64),
    ) -> Result<bool, EntrySourceError> {
        let _ = most;
        self.read(seq, &mut |arrived| {
            let size = arrived.body.bytes().len() as u64;
            sink(arrived, size);
        })
    }

    /// Bytes read so far, and bytes in all where that is known: for a progress display.
    fn position(&self) -> (u64, Option<u64>);

    /// Finds where entries start in about `max_bytes` more, without handing any out: many times faster than
    /// [`poll`](Self::poll), and independent of it. Sources that know all their entries have nothing to do.
    fn scan_ahead(&mut self, _max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        Ok(PollStatus::End)
    }

    /// Entries that are known to exist, passed or found ahead. `None` if the source does not look ahead.
    fn known_entries(&self) -> Option<u64> {
        None
    }
}

/// What a source is, for the header of a screen.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceInfo {
    /// File name, run id or `stdin`.
    pub name: String,
    /// Format in words: `tape`, `stream-json capture`, `session file`, `two-way transcript`.
    pub format: &'static str,
    /// Header of a tape.
    pub header: Option<Header>,
    /// Wall-clock time of `at` 0, if known.
    pub started_at: Option<Timestamp>,
    /// False when `at` values are invented because the file has no times.
    pub has_times: bool,
    /// Unit key to use for lines that name no session.
    pub fallback_unit: UnitKey,
}

/// One entry, borrowed from the source's buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryRef<'a> {
    /// Position in the source: entries are numbered from 0 without gaps, whatever the file says.
    pub seq: Seq,
    /// When.
    pub at: Millis,
    /// Whose.
    pub scope: EntryScope<'a>,
    /// What.
    pub body: EntryBody<'a>,
    /// False for a line of a tape that is not an entry; `body` is then its raw bytes.
    pub is_well_formed: bool,
    /// The stdout line of `body`, if the source has decoded it already.
    pub decoded: Option<&'a AgentLine<'a>>,
}

/// Which attempt an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryScope<'a> {
    /// The run itself.
    Run,
    /// An attempt of a unit.
    Attempt(&'a str, u32),
    /// A capture: the session id inside the line says.
    BySession,
}

/// Where a source stands after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStatus {
    /// There is more at once.
    More,
    /// Nothing now, but it may grow.
    Waiting,
    /// Finished: it will not grow any more.
    End,
}

/// A source could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}: {cause}")]
pub struct EntrySourceError {
    /// File or run.
    pub name: String,
    /// The system's words.
    pub cause: String,
}

/// The one owner of a growing tape. Returns only after the entries are handed to the system, so that whatever is
/// interpreted afterwards is on the tape already.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// Appends `items` in order, stamped with one time, in one write.
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError>;
}

/// One thing to record.
#[derive(Clone, Debug)]
pub struct NewEntry<'a> {
    /// The attempt; `None` for the run itself.
    pub attempt: Option<(&'a UnitKey, u32)>,
    /// What.
    pub body: EntryBody<'a>,
}

/// The tape cannot be written; nothing that happens from now on would be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write {path}: {cause}")]
pub struct RecordError {
    /// The tape.
    pub path: String,
    /// The system's words.
    pub cause: String,
    /// What kind of error it is, for the remedy.
    pub kind: io::ErrorKind,
}

impl RecordError {
    /// `error`, which writing `path` ended with.
    pub fn new(path: impl ToString, error: &io::Error) -> Self {
        Self { path: path.to_string(), cause: error.to_string(), kind: error.kind() }
    }
}
