//! Storage on disk: tapes, run directories, and the index over them.
//!
//! Tapes are the source of truth; everything else here can be deleted and rebuilt from them. The module must not know
//! how a tape is read back (callers pass [`crate::run::EntrySource`]) or what is drawn from it.

pub mod db;
pub mod refresh;
pub mod retention;
pub mod rows;
pub mod runs;
pub mod tape_file;

pub use db::Db;
pub use refresh::RefreshReport;
pub use rows::RunRows;
pub use runs::{NewRun, RecordedRun, RunStatus, RunStore};
pub use tape_file::TapeWriter;
