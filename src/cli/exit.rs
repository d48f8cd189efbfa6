//! Exit codes and the errors that lead to them: the contract with scripts.

use std::{fmt, process::ExitCode};

use crate::tape::note::Cause;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Every unit succeeded, or there was nothing to do.
    Ok,
    /// The program itself failed.
    Internal,
    /// Invalid usage or configuration.
    Usage,
    /// The unit, run or file does not exist.
    NotFound,
    /// Doctor or set-up failed: no `claude`, not logged in.
    Setup,
    /// At least one unit failed.
    UnitFailed,
    /// Stopped by a limit; the run can be resumed.
    Limit,
    /// Ended by this signal.
    Signal(u8),
}

impl Exit {
    /// The exit for a `cause` that prevents any use of Claude Code.
    pub fn from_cause(cause: &Cause) -> Self {
        match cause {
            Cause::UsageLimit { .. } | Cause::RateLimited | Cause::Transient => Self::Limit,
            Cause::Model => Self::Usage,
            _ => Self::Setup,
        }
    }

    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::NotFound => 4,
            Self::Setup => 96,
            Self::UnitFailed => 100,
            Self::Limit => 102,
            Self::Signal(number) => 128 + number,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error for the user: one sentence with the subject and the remedy, and the exit code.
#[derive(Debug)]
pub struct CliError {
    pub exit: Exit,
    pub message: String,
}

impl CliError {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// Invalid usage or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The unit, run or file does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message)
    }

    /// The program itself failed.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(Exit::Internal, message.to_string())
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}
