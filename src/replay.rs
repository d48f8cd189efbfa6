//! Opens any recorded transcript as a [`Source`](crate::run::EntrySource): our tapes, bare captures, session files, KTX's
//! own records, stdin.
//!
//! What a file is, its content decides and never its name. It must not know who shows the entries, nor how tapes come
//! into being. Files are read in blocks (`pread`) and never mapped: a file that shrinks while it is open is an error,
//! not a crash.

pub mod detect;
pub mod error;
pub mod file;
pub mod index;
pub mod search;

mod file_lines;
mod ktx;
mod line_parser;
mod line_shortener;
mod line_time;
mod prefetch;
mod spool;
mod unpack;

pub use detect::InputFormat;
pub use error::OpenError;
pub use file::FileSource;
pub use index::LineIndex;
pub use search::{Direction, EscapedNeedle};
pub use spool::open_stdin;
