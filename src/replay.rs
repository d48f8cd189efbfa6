//! Opens any recorded transcript as a [`Source`](crate::run::Source): our tapes, bare captures, session files, KTX's
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

mod ahead;
mod giant;
mod ktx;
mod lines;
mod parsed;
mod spool;
mod times;
mod unpack;

pub use detect::Format;
pub use error::OpenError;
pub use file::FileSource;
pub use index::LineIndex;
pub use search::{Direction, Needle};
pub use spool::stdin;
