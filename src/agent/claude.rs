//! Claude Code: its command line and environment, the proof of its isolation, and the checks of an installation.
//!
//! Knows what the user's `claude` accepts and reports. It must not run attempts; `agent::attempt` does.

pub mod agent_env;
pub mod availability;
pub(crate) mod command_line;
pub(crate) mod isolation;
pub mod managed_settings;
pub mod version;

use std::{ffi::OsString, path::PathBuf};

use self::{
    command_line::UnitArgs,
    version::{ClaudeVersion, FIRST_TESTED_RESTRICTED},
};
use super::{Agent, AgentProgram};
use ingestdeck_core::tape::{AgentName, UnitKey};

/// The user's Claude Code.
#[derive(Clone, Debug)]
pub struct ClaudeCode {
    exe: PathBuf,
    /// The program has the restricted mode.
    has_restricted_mode: bool,
}

impl ClaudeCode {
    /// A program of `release`, if that is known.
    pub fn new(exe: PathBuf, release: Option<ClaudeVersion>) -> Self {
        Self {
            exe,
            has_restricted_mode: release.is_some_and(|release| release >= FIRST_TESTED_RESTRICTED),
        }
    }
}

impl Agent for ClaudeCode {
    fn name(&self) -> AgentName {
        AgentName::ClaudeCode
    }

    fn program(&self, _unit: &UnitKey, _attempt: u32) -> AgentProgram {
        AgentProgram {
            exe: self.exe.clone(),
            prefix: Vec::new(),
        }
    }

    fn unit_args(&self, args: &UnitArgs<'_>) -> Vec<OsString> {
        let mut argv = command_line::unit_argv(args);
        if self.has_restricted_mode {
            // Another layer of the isolation, should a later release ignore one of the others.
            argv.insert(1, "--restricted".into());
        }
        argv
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{command_line::SessionChoice, *};

    #[test]
    fn restricted_mode_is_used_where_it_was_tested() {
        let args = UnitArgs {
            tool_ids: &[],
            system_prompt: Path::new("/private/system.md"),
            model: None,
            max_turns: 40,
            max_budget_usd: None,
            partial_messages: false,
            session: SessionChoice::New("s"),
        };
        let is_restricted = |release: Option<ClaudeVersion>| {
            let argv = ClaudeCode::new("claude".into(), release).unit_args(&args);
            assert_eq!(argv[0], "-p");
            argv.iter().any(|word| word == "--restricted")
        };
        assert!(
            is_restricted(Some(FIRST_TESTED_RESTRICTED))
                && is_restricted(Some(ClaudeVersion(2, 1, 332)))
        );
        assert!(!is_restricted(Some(ClaudeVersion(2, 1, 329))) && !is_restricted(None));
    }
}
