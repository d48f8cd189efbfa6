//! The format of a run's record: header, entries, notes, ids and times.
//!
//! Owns the text form of tape format 1 only: it reads and writes byte slices, never files. It must not know the meaning
//! of a `claude` line.

pub(crate) mod entry;
pub(crate) mod header;
pub(crate) mod id;
pub(crate) mod note;
pub(crate) mod shared_value;
pub(crate) mod time;

pub(crate) use entry::{EntryBody, TapeEntry};
pub(crate) use header::{AgentName, FORMAT_VERSION, Header, HeaderError};
pub(crate) use id::{PROJECTION_KEY, RECONCILE_KEY, RunId, Seq, UnitKey};
pub(crate) use note::Note;
pub(crate) use time::Millis;
