//! The Claude Code backend: starts `claude`, exchanges messages with it, verifies its isolation, ends it.
//!
//! Owns every process of an attempt and all of its input and output. It must not depend on the subject of a unit, the
//! source of its tools or the use of the result: tools, recorder and approval gate are passed in as traits.

pub(crate) mod agent_env;
mod attempt_machine;
pub(crate) mod availability;
pub(crate) mod caught_panics;
pub(crate) mod command_line;
pub(crate) mod control;
pub(crate) mod facts_collector;
pub(crate) mod isolation;
pub(crate) mod line_reader;
pub(crate) mod managed_settings;
pub(crate) mod mcp;
pub(crate) mod pausable_pipe;
pub(crate) mod private_dir;
pub(crate) mod process;
pub(crate) mod scripted;
pub(crate) mod session;
pub(crate) mod session_lock;
mod start_error;
mod stderr_limit;
pub(crate) mod unit;
pub(crate) mod version;
