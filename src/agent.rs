//! The agents: starts their processes, exchanges messages with them, verifies their isolation, ends them.
//!
//! Owns every process of an attempt and all of its input and output. It must not depend on the subject of a unit, the
//! source of its tools or the use of the result: tools, recorder and approval gate are passed in as traits.

mod attempt_machine;
pub(crate) mod caught_panics;
pub(crate) mod claude;
pub(crate) mod control;
pub(crate) mod facts_collector;
pub(crate) mod line_reader;
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
