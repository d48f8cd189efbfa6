//! Stand-ins for the outside world: a scripted Messages API, and a private home for the real CLI.
//!
//! Knows nothing about the product; what a test asserts stands in the test.

pub(crate) mod api;
pub(crate) mod cli;
pub(crate) mod files;
pub(crate) mod fuzz;
pub(crate) mod git;
pub(crate) mod hostile;
mod service;
