//! How an attempt ended: facts in, one verdict out.

use crate::tape::note::StopHow;

use super::tally::Tally;

/// Everything that decides over an attempt. The Claude backend fills what it saw; the ingest stage adds what it checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Characters of system and user prompt together.
    pub prompt_chars: usize,
    /// Why the process could not be started.
    pub spawn_error: Option<String>,
    /// The sentence of an isolation breach.
    pub isolation_breach: Option<String>,
    /// A person ended it.
    pub stopped: Option<StopHow>,
    /// The tape could not be written.
    pub record_error: Option<String>,
    /// The (last) result line, if there was one.
    pub result: Option<ResultFacts>,
    /// `error` of the last synthetic assistant line (`authentication_failed`, `rate_limit`, …).
    pub error_class: Option<String>,
    /// Its `api_error` (`usage_limit_reached`, `connection_failed`, …).
    pub api_error: Option<String>,
    /// Its `api_error_status`.
    pub api_status: Option<u64>,
    /// Its text, or the last text of the model.
    pub last_text: Option<String>,
    /// Reset time of a rejected usage window, unix seconds.
    pub limit_resets_at: Option<i64>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal that ended the process.
    pub signal: Option<i32>,
    /// Last lines of stderr.
    pub stderr_tail: Vec<String>,
    /// Failed tool calls.
    pub tally: Tally,
    /// Wiki references without a page, as `page -> missing`.
    pub dangling: Vec<String>,
    /// Validation errors of what it wrote.
    pub invalid: Vec<String>,
    /// What it wrote could not be moved into the project.
    pub publish_error: Option<String>,
}

/// Owned facts of a result line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultFacts {
    /// `subtype`.
    pub subtype: Option<String>,
    /// `is_error`.
    pub is_error: Option<bool>,
    /// `terminal_reason`.
    pub terminal_reason: Option<String>,
    /// `stop_reason`.
    pub stop_reason: Option<String>,
    /// `result` text.
    pub text: Option<String>,
    /// `error`, `errors[]` joined by `; `.
    pub errors: Option<String>,
    /// `api_error_status`.
    pub api_status: Option<u64>,
}

/// Which failed calls fail a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureRule {
    /// Any.
    #[default]
    Strict,
    /// Those that no later call made good.
    Recoverable,
}

/// Decides over an attempt.
pub fn decide(_unit: &crate::tape::UnitKey, _facts: &Facts, _rule: FailureRule) -> crate::tape::note::Verdict {
    crate::tape::note::Verdict {
        outcome: crate::tape::note::Outcome::Succeeded,
        stop: crate::tape::note::StopReason::Natural,
        cause: crate::tape::note::Cause::Completed,
        reason: String::new(),
        remedy: None,
    }
}
