//! Claude Code: its command line and environment, the proof of its isolation, and the checks of an installation.
//!
//! Knows what the user's `claude` accepts and reports. It must not run attempts; `agent::attempt` does.

pub(crate) mod agent_env;
pub(crate) mod availability;
pub(crate) mod command_line;
pub(crate) mod isolation;
pub(crate) mod managed_settings;
pub(crate) mod version;

use std::path::PathBuf;

use super::{Agent, AgentProgram};
use crate::tape::{AgentName, UnitKey};

/// The user's Claude Code.
#[derive(Clone, Debug)]
pub(crate) struct ClaudeCode {
    pub exe: PathBuf,
}

impl Agent for ClaudeCode {
    fn name(&self) -> AgentName {
        AgentName::ClaudeCode
    }

    fn program(&self, _unit: &UnitKey, _attempt: u32) -> AgentProgram {
        AgentProgram { exe: self.exe.clone(), prefix: Vec::new() }
    }
}
