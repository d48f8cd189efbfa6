//! Opens any recorded transcript as a [`Source`](ingestdeck_core::run::EntrySource): tapes, bare captures, session files, KTX's
//! own records, stdin.
//!
//! The content of a file determines its format, its name does not. This module must not depend on how entries are
//! displayed or how tapes are written. Files are read in blocks (`pread`) and never mapped: a file that shrinks while
//! it is open causes an error and not a crash.

mod agent_files;
pub mod claude_sessions;
pub mod detect;
pub(crate) mod error;
pub mod file;
pub(crate) mod index;

mod conversation_tree;
mod file_lines;
mod foreign_agent;
mod inserted_notes;
mod ktx;
mod line_parser;
mod line_repair;
mod line_shortener;
mod line_time;
mod prefetch;
mod session_forks;
mod session_process;
mod session_tape;
mod spool;
mod tape_builder;
mod zstd_reader;

pub use claude_sessions::SessionFile;
pub use error::OpenError;
pub use file::FileSource;
pub use session_process::{ActiveSession, SessionProcess, SessionStatus, running_sessions};
pub use session_tape::SessionFollower;
