//! Storage on disk: tapes, run directories, and the index over them.
//!
//! Tapes are the source of truth; everything else here can be deleted and rebuilt from them. The module must not know
//! how a tape is read back (callers pass [`crate::run::EntrySource`]) or what is drawn from it.

pub(crate) mod bookmarks;
pub(crate) mod db;
pub(crate) mod index_refresh;
pub(crate) mod index_rows;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod tape_file;

pub(crate) use bookmarks::BookmarkFile;
pub(crate) use db::Db;
pub(crate) use index_refresh::RefreshReport;
pub(crate) use runs::{RecordedRun, RunStatus, RunStore};
pub(crate) use tape_file::TapeWriter;
