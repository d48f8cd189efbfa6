//! Claude Code: its command line and environment, the proof of its isolation, and the checks of an installation.
//!
//! Knows what the user's `claude` accepts and reports. It must not run attempts; `agent::attempt` does.

pub mod agent_env;
pub mod availability;
pub(crate) mod command_line;
pub(crate) mod isolation;
pub mod managed_settings;
pub mod version;
