//! The exit codes of the program: the contract with scripts.

use crate::tape::note::VerdictCause;

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
    /// Changes wait for a review.
    ReviewOpen,
    /// A cell of a bench does not meet a rule.
    GateFailed,
    /// Ended by this signal.
    Signal(u8),
}

impl Exit {
    /// The exit for a `cause` that prevents any use of Claude Code.
    pub fn from_cause(cause: &VerdictCause) -> Self {
        match cause {
            VerdictCause::UsageLimit { .. }
            | VerdictCause::RateLimited
            | VerdictCause::Transient => Self::Limit,
            VerdictCause::Model => Self::Usage,
            _ => Self::Setup,
        }
    }

    /// The exit with this code; `None` for a code that the program does not use.
    pub fn from_code(code: u8) -> Option<Self> {
        let known = [
            Self::Ok,
            Self::Internal,
            Self::Usage,
            Self::NotFound,
            Self::Setup,
            Self::UnitFailed,
            Self::Limit,
            Self::ReviewOpen,
            Self::GateFailed,
        ];
        let signal = code
            .checked_sub(128)
            .filter(|number| *number > 0)
            .map(Self::Signal);
        known
            .into_iter()
            .find(|exit| exit.code() == code)
            .or(signal)
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
            Self::ReviewOpen => 103,
            Self::GateFailed => 104,
            Self::Signal(number) => 128 + number,
        }
    }
}
