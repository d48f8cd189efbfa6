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
//! | 0 | [`diagnostic`], [`guide`] | nothing |
//! | 0 | [`tape`], [`config`]; [`text`] | `tape` and `config` → `diagnostic`; `text` → `tape` |
//! | 1 | [`decode`]; [`actions`]; [`units`]; [`control`] | `decode` → nothing; `actions` → `decode`, `text`; `units` → `tape`, `control`, `text`; `control` → `tape` |
//! | 2 | [`run`] | layers 0 and 1, but not `config` |
//! | 3 | [`scoped_dir`], [`program_path`], [`group_guard`], [`open_file_limit`] | nothing; the files and processes that the others of this layer use |
//! | 3 | [`agent`], [`ingest`], [`store`], [`replay`] | layers below, never each other |
//! | 4 | [`engine`] | layers below |
//! | 5 | [`tui`] | layers 0 to 2, `program_path`, `open_file_limit` |
//! | 5 | [`report`] | layers 0 to 2, `scoped_dir`, `ingest`, `replay` |
//! | 6 | [`cli`] | everything |
//!
//! `tests/it/architecture.rs` checks the `crate::` paths of every file against the table.
//!
//! # Invariants
//!
//! * Layers 1 and 2 are pure: no tokio, no files, no clock, no environment. They cannot fail, only report.
//! * Decoding is total: [`decode::decode_line()`] has no error type; unreadable input is a variant of its result.
//! * Lines of `claude` are written to the tape before they are interpreted ([`run::entry_source::Recorder`]).
//! * The tape contains received data and our own decisions, never interpretations of the data.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
mod actions;
mod agent;
mod cli;
mod config;
mod control;
mod decode;
mod diagnostic;
mod engine;
mod group_guard;
mod guide;
mod ingest;
mod open_file_limit;
mod program_path;
mod replay;
mod report;
mod run;
mod scoped_dir;
mod store;
mod tape;
mod text;
mod tui;
mod units;

pub use cli::main;

#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;
