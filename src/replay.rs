//! Opens any recorded transcript as a [`Source`](crate::run::EntrySource): tapes, bare captures, session files, KTX's
//! own records, stdin.
//!
//! The content of a file determines its format, its name does not. This module must not depend on how entries are
//! displayed or how tapes are written. Files are read in blocks (`pread`) and never mapped: a file that shrinks while
//! it is open causes an error and not a crash.

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
