//! Storage on disk: tapes, run directories, and the index over them.
//!
//! Tapes are the source of truth; everything else here can be deleted and rebuilt from them. The module must not know
//! how a tape is read back (callers pass [`ingestdeck_core::run::EntrySource`]) or what is drawn from it.

pub(crate) mod bookmarks;
pub mod db;
pub mod index_refresh;
pub mod index_rows;
pub mod retention;
pub mod runs;
pub(crate) mod tape_file;
pub mod text_exclusions;
pub mod text_index;
pub mod text_record;
pub mod text_refresh;

pub use bookmarks::BookmarkFile;
pub use db::Db;
pub use index_refresh::RefreshReport;
pub use runs::{RecordedRun, RunStatus, RunStore};
pub use tape_file::TapeWriter;
pub use text_index::TextIndex;
