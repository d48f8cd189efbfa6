//! Test doubles: a scripted Messages API, and a private home for the real CLI.
//!
//! This module must not know the product; assertions belong in the tests.

pub(crate) mod api;
pub(crate) mod cli;
pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod hostile;
mod service;

pub(crate) use ingestdeck_test_support::{
    fuzz, missing, open_terminal, pause_before_check, pause_task_before_check,
};

/// Path of the program.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_ingestdeck")
}
