//! The Claude Code backend: starts `claude`, exchanges messages with it, verifies its isolation, ends it.
//!
//! Owns every process of an attempt and all of its input and output. It must not depend on the subject of a unit, the
//! source of its tools or the use of the result: tools, recorder and approval gate are passed in as traits.

pub mod agent_env;
pub mod argv;
mod attempt_machine;
pub mod availability;
pub mod caught_panics;
pub mod control;
pub mod facts_collector;
pub mod isolation;
pub mod line_reader;
pub mod managed_settings;
pub mod mcp;
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
