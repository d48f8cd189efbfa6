//! One integration binary.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod architecture;
mod captures;
mod commands;
mod config;
mod demo;
mod demo_runs;
mod entry_heads;
mod faults;
mod formats;
mod guide;
mod hostile_clones;
mod hostile_git;
mod ingest;
mod mcp;
mod output_agreement;
mod outside_paths;
mod plan;
mod real_ingest;
mod references;
mod replay;
mod screenshots;
mod scripted;
mod session;
mod soak;
mod store;
mod support;
mod tui;
mod unit_protocol;
