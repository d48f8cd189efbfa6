//! The vocabulary of a run's record: header, entries, notes, ids and times.
//!
//! Owns the text form of tape format 1 and nothing else: it reads and writes byte slices, never files.
//! It must not know what a `claude` line means.

pub mod entry;
pub mod header;
pub mod id;
pub mod note;
pub mod time;

pub use entry::{EntryBody, MalformedEntry, TapeEntry};
pub use header::{FORMAT_VERSION, Header, HeaderError};
pub use id::{RunId, Seq, UnitKey};
pub use note::Note;
pub use time::Millis;
