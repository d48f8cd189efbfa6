//! The Claude Code backend: starting `claude`, speaking with it, proving its isolation, ending it.
//!
//! Owns every process of an attempt and everything that is written to or read from it. It must not know what a unit
//! is about, where its tools come from, or who looks at the result: tools, recorder and gate come in as traits.

pub mod argv;
pub mod auth;
pub mod contained;
pub mod control;
mod course;
pub mod env;
pub mod gather;
pub mod isolation;
pub mod lock;
pub mod managed;
pub mod mcp;
mod not_started;
pub mod pipe;
pub mod private_dir;
pub mod process;
pub mod reader;
pub mod scripted;
pub mod session;
mod stderr_limit;
pub mod unit;
pub mod version;
