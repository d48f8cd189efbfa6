//! The format of a run's record: header, entries, notes, ids and times.
//!
//! Owns the text form of tape format 1 only: it reads and writes byte slices, never files. It must not know the meaning
//! of a `claude` line.

pub mod entry;
pub(crate) mod header;
pub(crate) mod id;
pub mod note;
pub mod shared_value;
pub(crate) mod time;

pub use entry::{EntryBody, TapeEntry};
pub use header::{AgentName, FORMAT_VERSION, Header, HeaderError};
pub use id::{PROJECTION_KEY, RECONCILE_KEY, RunId, SESSION_KEY, Seq, UnitKey, VERBATIM_KEY};
pub use note::Note;
pub use time::Millis;
