//! Test doubles: a scripted Messages API, and a private home for the real CLI.
//!
//! This module must not know the product; assertions belong in the tests.

pub(crate) mod api;
pub(crate) mod cli;
pub(crate) mod files;
pub(crate) mod fuzz;
pub(crate) mod git;
pub(crate) mod hostile;
mod service;
