//! The agents: starts their processes, exchanges messages with them, verifies their isolation, ends them.
//!
//! Owns every process of an attempt and all of its input and output. It must not depend on the subject of a unit, the
//! source of its tools or the use of the result: tools, recorder and approval gate are passed in as traits. [`Agent`] is
//! the program, and [`attempt`] runs it. A program that speaks the protocol of Claude Code can take its place.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests prepare files")
)]

pub mod attempt;
pub mod caught_panics;
pub mod claude;
pub(crate) mod control;
pub mod facts_collector;
pub mod line_reader;
pub mod mcp;
pub mod private_dir;
pub mod process;
pub mod scripted;
pub mod session;
pub mod session_lock;
mod start_error;
pub mod unit;

use std::{ffi::OsString, path::PathBuf};

use self::claude::{
    command_line::{self, UnitArgs},
    version::{ClaudeVersion, FIRST_TESTED_RESTRICTED},
};
use ingestdeck_core::tape::{AgentName, UnitKey};

/// The agent of a run: Claude Code, or a program that speaks its protocol.
#[derive(Clone, Debug)]
pub struct Agent {
    program: AgentProgram,
    /// The program has the restricted mode.
    has_restricted_mode: bool,
    /// The speed of a program that plays a script in the place of a model.
    script_speed: Option<f64>,
}

impl Agent {
    /// Claude Code of `release`, if that is known.
    pub fn claude_code(exe: PathBuf, release: Option<ClaudeVersion>) -> Self {
        let has_restricted_mode = release.is_some_and(|release| release >= FIRST_TESTED_RESTRICTED);
        Self {
            has_restricted_mode,
            ..Self::from(AgentProgram {
                exe,
                prefix: Vec::new(),
            })
        }
    }

    /// The scripted agent of the program `exe`, for demos and tests. `speed` is a factor; 1 is real time.
    pub fn scripted(exe: PathBuf, script: PathBuf, speed: f64) -> Self {
        let prefix = vec![
            scripted::SUBCOMMAND.into(),
            "--script".into(),
            script.into(),
        ];
        Self {
            script_speed: Some(speed),
            ..Self::from(AgentProgram { exe, prefix })
        }
    }

    /// Its name on the tape.
    pub fn name(&self) -> AgentName {
        if self.is_scripted() {
            AgentName::Scripted
        } else {
            AgentName::ClaudeCode
        }
    }

    /// True if a script plays the model, so that costs and tokens are invented.
    pub fn is_scripted(&self) -> bool {
        self.script_speed.is_some()
    }

    /// The program of an attempt.
    fn program(&self, unit: &UnitKey, attempt: u32) -> AgentProgram {
        let mut program = self.program.clone();
        if let Some(speed) = self.script_speed {
            let (attempt, speed) = (attempt.to_string(), speed.to_string());
            let words = [
                "--attempt",
                &attempt,
                "--unit",
                unit.as_str(),
                "--speed",
                &speed,
                "--",
            ];
            program.prefix.extend(words.map(OsString::from));
        }
        program
    }

    /// The arguments of a unit, after those of the program.
    fn unit_args(&self, args: &UnitArgs<'_>) -> Vec<OsString> {
        let mut argv = command_line::unit_argv(args);
        if self.has_restricted_mode {
            // Another layer of the isolation, should a later release ignore one of the others.
            argv.insert(1, "--restricted".into());
        }
        argv
    }
}

/// Any program in the place of Claude Code.
impl From<AgentProgram> for Agent {
    fn from(program: AgentProgram) -> Self {
        Self {
            program,
            has_restricted_mode: false,
            script_speed: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProgram {
    pub exe: PathBuf,
    /// Arguments before those of the protocol.
    pub prefix: Vec<OsString>,
}

impl AgentProgram {
    fn with_args(&self, args: Vec<OsString>) -> Vec<OsString> {
        self.prefix.iter().cloned().chain(args).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{claude::command_line::SessionChoice, *};

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
            let argv = Agent::claude_code("claude".into(), release).unit_args(&args);
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
