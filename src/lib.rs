//! `ingestdeck` runs ingest *work units* through the user's own Claude Code session and shows them live.
//!
//! This page is an overview. Data follows one path from the stream to the screen:
//!
//! ```text
//! live     claude process ─► Recorder ─► tape file ─┐
//! replay   tape, capture, stdin ────────────────────┴► Source ─► Timeline ─► fold ─► RunView ─►  tui | lines | json
//! ```
//!
//! A live run is a tape that still grows; a replay reads a finished one. What follows
//! [`EntrySource`](ingestdeck_core::run::EntrySource) does not distinguish them.
//!
//! To change something, see `assets/guide/architecture.md` and `assets/guide/extending.md`.
//!
//! # Crates
//!
//! | folder | crate | uses |
//! |---|---|---|
//! | `src/core` | [`ingestdeck_core`]: tape, decoding, events, decisions, fold | none |
//! | `src/os` | [`ingestdeck_os`]: files and processes | none |
//! | `src/agent` | [`ingestdeck_agent`]: Claude Code and the scripted agent | `core`, `os` |
//! | `src/ingest` | [`ingestdeck_ingest`]: projects, sources, units, tools, worktrees, integration | `core`, `os` |
//! | `src/warehouse` | [`ingestdeck_warehouse`]: the child process that reads a warehouse | `core`, `ingest` |
//! | `src/records` | [`ingestdeck_records`]: the index, and every format that replay reads | `core`, `os` |
//! | `src/tui` | [`ingestdeck_tui`]: the screen | `core`, `os` |
//! | `src/report` | [`ingestdeck_report`]: reports, exports, redaction | `core`, `os`, `ingest` |
//! | `src/engine` | [`ingestdeck_engine`]: the process that owns a run | all above but `tui` and `report` |
//! | `src/bench` | [`ingestdeck_bench`]: the command `bench` | all above but `tui` |
//! | `src` | this crate: [`cli`], [`guide`] | all |
//!
//! A crate can use only what its `Cargo.toml` names; clippy forbids `src/core` the functions that read files, start
//! tasks or know the time (`src/core/.clippy.toml`).

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests prepare files")
)]

mod cli;
pub mod guide;

// The commands use only `main`; the rest is what `tests/it` compares with the guide and the golden files.
pub use cli::{command, debug::install_panic_hooks, exit::Exit, main, review::finished_json};
