//! The format of a run's record: header, entries, notes, ids and times.
//!
//! Owns the text form of tape format 1 only: it reads and writes byte slices, never files. It must not know the meaning
//! of a `claude` line.

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
