//! `ingestdeck` runs ingest *work units* through the user's own Claude Code session and shows them live.
//!
//! This page is an overview. Data follows one path from the stream to the screen:
//!
//! ```text
//! live     claude process ─► Recorder ─► tape file ─┐
//! replay   tape, capture, stdin ────────────────────┴► Source ─► Timeline ─► fold ─► RunState ─► tui | lines | json
//! ```
//!
//! A live run is a tape that still grows; a replay reads a finished one. Modules after
//! [`run::entry_source::EntrySource`] do not distinguish them.
//!
//! # Layers
//!
//! | layer | modules | may use |
//! |---|---|---|
//! | 0 | [`diagnostic`], [`guide`], [`text`] | nothing |
//! | 0 | [`tape`], [`config`] | `diagnostic` |
//! | 1 | [`decode`]; [`actions`]; [`units`] | `decode` → nothing; `actions` → `decode`; `units` → `tape` |
//! | 2 | [`run`] | `text`, `tape`, `decode`, `actions`, `units` |
//! | 3 | [`scoped_dir`], [`program_path`], [`group_guard`], [`open_file_limit`] | nothing; the files and processes that the others of this layer use |
//! | 3 | [`claude`], [`ingest`], [`store`], [`replay`], [`tui`] | layers below, never each other |
//! | 4 | [`engine`] | layers below, but neither `tui` nor `replay` |
//! | 5 | [`cli`] | everything |
//!
//! `tests/it/architecture.rs` checks the `crate::` paths of every file against the table.
//!
//! # Invariants
//!
//! * Layers 1 and 2 are pure: no tokio, no files, no clock, no environment. They cannot fail, only report.
//! * Decoding is total: [`decode::decode_line()`] has no error type; unreadable input is a variant of its result.
//! * Lines of `claude` are written to the tape before they are interpreted ([`run::entry_source::Recorder`]).
//! * The tape contains received data and our own decisions, never interpretations of the data.

pub mod actions;
pub mod claude;
pub mod cli;
pub mod config;
pub mod decode;
pub mod diagnostic;
pub mod engine;
pub mod group_guard;
pub mod guide;
pub mod ingest;
pub mod open_file_limit;
pub mod program_path;
pub mod replay;
pub mod run;
pub mod scoped_dir;
pub mod store;
pub mod tape;
pub mod text;
pub mod tui;
pub mod units;

#[cfg(test)]
#[path = "../tests/it/support/fuzz.rs"]
mod fuzz;
