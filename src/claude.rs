//! The Claude Code backend: starting `claude`, speaking with it, proving its isolation, ending it.
//!
//! Owns every process of an attempt and everything that is written to or read from it. It must not know what a unit
//! is about, where its tools come from, or who looks at the result: tools, recorder and gate come in as traits.

pub mod agent_env;
pub mod argv;
mod attempt_machine;
pub mod attempt_stats;
pub mod availability;
pub mod control;
pub mod isolation;
pub mod line_reader;
pub mod managed_settings;
pub mod mcp;
pub mod panic_guard;
pub mod pausable_pipe;
pub mod private_dir;
pub mod process;
pub mod scripted;
pub mod session;
pub mod session_lock;
mod start_error;
mod stderr_limit;
pub mod unit;
pub mod version;
