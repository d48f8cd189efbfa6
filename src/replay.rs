//! Opens any recorded transcript as a [`Source`](crate::run::EntrySource): tapes, bare captures, session files, KTX's
//! own records, stdin.
//!
//! The content of a file determines its format, its name does not. This module must not depend on how entries are
//! displayed or how tapes are written. Files are read in blocks (`pread`) and never mapped: a file that shrinks while
//! it is open causes an error and not a crash.

mod agent_files;
pub(crate) mod claude_sessions;
pub(crate) mod detect;
pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod index;

mod file_lines;
mod ktx;
mod line_parser;
mod line_shortener;
mod line_time;
mod prefetch;
mod session_process;
mod session_tape;
mod spool;
mod tape_builder;
mod zstd_reader;

pub(crate) use claude_sessions::SessionFile;
pub(crate) use error::OpenError;
pub(crate) use file::FileSource;
pub(crate) use session_process::SessionProcess;
pub(crate) use session_tape::SessionFollower;
