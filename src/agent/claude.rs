//! Claude Code: its command line and environment, the proof of its isolation, and the checks of an installation.
//!
//! Knows what the user's `claude` accepts and reports. It must not run attempts; the runner of `agent::unit` does.

pub(crate) mod agent_env;
pub(crate) mod availability;
pub(crate) mod command_line;
pub(crate) mod isolation;
pub(crate) mod managed_settings;
pub(crate) mod version;
