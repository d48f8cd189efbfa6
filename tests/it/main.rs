//! The only binary of the integration tests.

#![allow(
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot continue should report the line"
)]

mod architecture;
mod captures;
mod commands;
mod config;
mod demo;
mod demo_runs;
mod entry_heads;
mod faults;
mod formats;
mod git_sources;
mod guide;
mod hostile_clones;
mod hostile_git;
mod ingest;
mod language;
mod mcp;
mod neighbours;
mod outside_paths;
mod plan;
mod real_ingest;
mod references;
mod replay;
mod screenshots;
mod scripted;
mod search;
mod session;
mod session_files;
mod soak;
mod spellings;
mod store;
pub(crate) mod support;
mod transcripts;
mod tui;
mod unit_protocol;
mod version;
