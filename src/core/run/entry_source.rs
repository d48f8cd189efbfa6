//! The two traits at the edge of the pure part: `EntrySource` reads entries, `Recorder` writes them.

use std::{fmt, io};

use jiff::Timestamp;

use super::entry_search::{EntryBatch, TextMatcher};
use crate::{
    decode::AgentLine,
    diagnostic::Diagnostic,
    tape::{EntryBody, Header, Millis, Note, Seq, UnitKey},
};

/// Reads entries in order, from a finished or a growing source. Every entry can be read again by its number.
pub trait EntrySource: Send {
    fn info(&self) -> &SourceInfo;

    /// Passes the next entries to `sink`, in order, about `max_bytes` of them, and continues where the previous call
    /// stopped.
    fn poll(
        &mut self,
        max_bytes: usize,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<PollStatus, EntrySourceError>;

    /// Makes the next [`poll`](Self::poll) start at `seq`, which an earlier poll has passed (or zero).
    fn rewind(&mut self, seq: Seq) -> Result<(), EntrySourceError>;

    /// Passes one entry to `sink` that an earlier poll has passed. Returns false if it does not exist.
    fn read(
        &mut self,
        seq: Seq,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<bool, EntrySourceError>;

    /// Like [`read`](Self::read), for callers that need only the beginning: the source may read at most `most` bytes of
    /// the body. `sink` also receives the full length in bytes. A body that is shorter than this length is cut and not
    /// valid JSON.
    fn read_head(
        &mut self,
        seq: Seq,
        most: usize,
        sink: &mut dyn FnMut(EntryRef<'_>, u64),
    ) -> Result<bool, EntrySourceError> {
        let _ = most;
        self.read(seq, &mut |entry| {
            let size = entry.body.bytes().len() as u64;
            sink(entry, size);
        })
    }

    /// Searches the content of the next entries of `batch`, about `max_bytes` of them, and returns the number of bytes.
    /// An earlier poll has passed all entries of the batch.
    fn search(
        &mut self,
        text: &TextMatcher,
        batch: &mut EntryBatch,
        max_bytes: usize,
    ) -> Result<usize, EntrySourceError> {
        let mut bytes = 0;
        while bytes < max_bytes
            && let Some(seq) = batch.remaining().first()
        {
            let mut is_match = false;
            self.read(*seq, &mut |entry| {
                let content = entry.body.bytes();
                bytes += content.len();
                is_match = text.is_in(content);
            })?;
            batch.record(is_match);
        }
        Ok(bytes)
    }

    /// Bytes read so far, and the total up to now if it is known, for a progress display.
    fn position(&self) -> (u64, Option<u64>);

    /// Finds the starts of entries in about `max_bytes` more, without passing entries on. It is many times faster than
    /// [`poll`](Self::poll) and independent of it. Sources that know all their entries do nothing.
    fn scan_ahead(&mut self, _max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        Ok(PollStatus::End)
    }

    /// True while the source consists of some entries at its beginning only, and what they mean is not certain yet.
    fn is_provisional(&self) -> bool {
        false
    }

    /// Replaces provisional entries by all entries, once these are known. Returns the new numbers of the entries that
    /// were passed on; polls start again at the first entry. `None` if nothing has changed.
    fn settle(&mut self) -> Option<Vec<Seq>> {
        None
    }

    /// Number of entries that are known to exist, polled or found ahead. `None` if the source does not scan ahead.
    fn known_entries(&self) -> Option<u64> {
        None
    }
}

/// Description of a source, for the header of a screen.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceInfo {
    /// File name, run id or `stdin`.
    pub name: String,
    /// Title of a session, if its file contains one.
    pub title: Option<String>,
    /// Name of the format: `tape`, `stream-json capture`, `session file`, `two-way transcript`.
    pub format: &'static str,
    /// The header, if the source is a tape.
    pub header: Option<Header>,
    /// Wall-clock time of `at` 0, if known.
    pub started_at: Option<Timestamp>,
    /// False if the `at` values are invented because the file has no times.
    pub has_times: bool,
    /// Unit key to use for lines that name no session.
    pub fallback_unit: UnitKey,
    /// Number of records that were recovered from damaged lines.
    pub recovered: u64,
}

/// One entry, borrowed from the source's buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryRef<'a> {
    /// Position in the source: entries are numbered from 0 without gaps, whatever numbers the file contains.
    pub seq: Seq,
    pub at: Millis,
    pub scope: EntryScope<'a>,
    pub body: EntryBody<'a>,
    /// False for a line of a tape that is not an entry; `body` is then its raw bytes.
    pub is_well_formed: bool,
    /// The stdout line of `body`, if the source has decoded it already.
    pub decoded: Option<&'a AgentLine<'a>>,
}

/// The attempt that an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryScope<'a> {
    Run,
    /// Unit key and attempt number.
    Attempt(&'a str, u32),
    /// A capture: the session id in the line determines the attempt.
    BySession,
}

/// The position of a source after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStatus {
    /// More entries can be read immediately.
    More,
    /// No more entries now; the source may grow.
    Waiting,
    /// Finished: the source does not grow.
    End,
}

/// A source that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}: {cause}")]
pub struct EntrySourceError {
    /// File name or run id.
    pub name: String,
    /// The system's error message.
    pub cause: String,
}

impl Diagnostic for EntrySourceError {}

/// The only writer of a growing tape. `record` returns only after the entries are passed to the operating system, so
/// that everything that is processed afterwards is already on the tape.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// Appends `items` in order, with one timestamp, in one write.
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError>;

    /// Appends a note about an attempt, or about the run itself.
    fn record_note(
        &self,
        attempt: Option<(&UnitKey, u32)>,
        note: &Note,
    ) -> Result<(), RecordError> {
        let json = note.to_json();
        self.record(&[NewEntry {
            attempt,
            body: EntryBody::Note(&json),
        }])
    }
}

/// An entry to record.
#[derive(Clone, Debug)]
pub struct NewEntry<'a> {
    /// The attempt; `None` for the run itself.
    pub attempt: Option<(&'a UnitKey, u32)>,
    pub body: EntryBody<'a>,
}

/// The tape cannot be written, so later events would be lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write {path}: {cause}")]
pub struct RecordError {
    pub path: String,
    /// The system's error message.
    pub cause: String,
    /// Kind of the I/O error; it selects the remedy.
    pub kind: io::ErrorKind,
}

impl Diagnostic for RecordError {
    fn help(&self) -> Option<String> {
        let first = match self.kind {
            io::ErrorKind::FileTooLarge => "raise the limit on the size of files (`ulimit -f`)",
            io::ErrorKind::NotFound => "keep other programs from deleting it",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space",
            _ => "free some space or correct the permissions",
        };
        Some(format!("{first}, then run the remaining units again"))
    }
}

impl RecordError {
    /// Wraps the I/O `error` of writing `path`.
    pub fn new(path: impl ToString, error: &io::Error) -> Self {
        Self {
            path: path.to_string(),
            cause: error.to_string(),
            kind: error.kind(),
        }
    }
}
