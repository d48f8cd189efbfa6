//! The agents: starts their processes, exchanges messages with them, verifies their isolation, ends them.
//!
//! Owns every process of an attempt and all of its input and output. It must not depend on the subject of a unit, the
//! source of its tools or the use of the result: tools, recorder and approval gate are passed in as traits. [`Agent`] is
//! what distinguishes one agent from another; [`attempt`] runs an attempt of any of them.

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

use std::{ffi::OsString, fmt, path::PathBuf};

use self::claude::{
    command_line::{self, UnitArgs},
    isolation::IsolationProof,
};
use ingestdeck_core::{
    decode::{self, LineDecoder},
    tape::{AgentName, UnitKey, note::Verdict},
    units::verdict::{self, AttemptFacts, FailureRule},
};

/// An agent that a run can use. The default methods are those of Claude Code, whose protocol the scripted agent speaks,
/// too.
pub trait Agent: Send + Sync + fmt::Debug {
    /// Its name on the tape, by which a replay selects the decoder.
    fn name(&self) -> AgentName;

    /// The program of an attempt.
    fn program(&self, unit: &UnitKey, attempt: u32) -> AgentProgram;

    /// The arguments of a unit, after those of the program.
    fn unit_args(&self, args: &UnitArgs<'_>) -> Vec<OsString> {
        command_line::unit_argv(args)
    }

    /// Decodes the lines of its stdout.
    fn decoder(&self) -> LineDecoder {
        decode::decode_line
    }

    /// The proof that an attempt has the tools `tool_ids` and nothing else.
    fn isolation_proof(&self, tool_ids: Vec<String>) -> IsolationProof {
        IsolationProof::new(tool_ids)
    }

    /// How an attempt ended, and why.
    fn classify(&self, unit: &UnitKey, facts: &AttemptFacts, rule: FailureRule) -> Verdict {
        verdict::judge_attempt(unit, facts, rule)
    }

    /// True if a script plays the model, so that costs and tokens are invented.
    fn is_scripted(&self) -> bool {
        self.name() == AgentName::Scripted
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
