//! What is kept on disk: tapes, run directories, and the index over them.
//!
//! The tape is the only truth. Everything else here can be deleted and is built again from the tapes. It must not
//! know how a tape is read back ([`crate::run::EntrySource`] comes in from outside) or what is drawn from it.

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
