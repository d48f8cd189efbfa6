//! Remedies: one line for every cause that a person can act on.

use jiff::Timestamp;

use crate::tape::note::VerdictCause;

/// For a unit whose failed calls all recovered.
pub(super) const RECOVERED_REMEDY: &str =
    "every failed call succeeded later: set tool_failures = \"recoverable\" to accept such units";

/// For a program that did not start.
pub(super) const SPAWN_REMEDY: &str = "install it with `npm install -g @anthropic-ai/claude-code`, or name it with --claude-bin; `ingestdeck doctor` checks";

/// For a program that is missing.
pub(super) const MISSING_PROGRAM_REMEDY: &str = "wait for the end of a Claude Code update, or install it with `npm install -g @anthropic-ai/claude-code`, then retry; `ingestdeck doctor` checks";

/// For a program whose interpreter is missing.
pub(super) const MISSING_INTERPRETER_REMEDY: &str = "install the interpreter, or name another program with --claude-bin, then retry; `ingestdeck doctor` checks";

/// For a session that cannot be continued.
pub(super) const NEW_SESSION_REMEDY: &str = "retry it with a fresh attempt, in a new session";

/// For an agent that stopped reading.
pub(super) const UNREAD_REMEDY: &str = "retry it; if it happens again, update `claude`";

pub(super) fn remedy_for(cause: &VerdictCause) -> Option<String> {
    let text = match cause {
        VerdictCause::Completed | VerdictCause::Other(_) => return None,
        VerdictCause::UsageLimit { resets_at } => return Some(usage_limit_remedy(*resets_at)),
        VerdictCause::Budget => {
            "if work is missing, retry it with more turns, or raise ingest.workUnits.stepBudget in ktx.yaml"
        }
        VerdictCause::PromptTooLarge => {
            "split its raw files into smaller ones, or give it fewer dependencies"
        }
        VerdictCause::Isolation => {
            "remove the additional tools or settings of the agent; `ingestdeck doctor` shows their source"
        }
        VerdictCause::Cancelled => "retry it when you are ready",
        VerdictCause::ContextOverflow => {
            "retry it with a model that has a larger context, or split its raw files"
        }
        VerdictCause::RateLimited => "retry it later, with fewer concurrent units",
        VerdictCause::Transient => "the service is busy: retry it later",
        VerdictCause::SilenceTimeout => {
            "check the connection and the service, then retry; --silence-timeout or `silence_timeout` in [ingest] raises the limit, `none` lifts it"
        }
        VerdictCause::UnitTimeout => {
            "give the unit fewer files, or raise --unit-timeout or `unit_timeout` in [ingest] (`none` lifts it), then retry"
        }
        VerdictCause::ApprovalTimeout => {
            "retry it and decide about its call; --approval-timeout or `approval_timeout` in [ingest] raises the limit, `none` lifts it"
        }
        VerdictCause::Network => "check the connection and proxy settings, then retry",
        VerdictCause::Auth => {
            "run `claude` and sign in with /login, then retry; `ingestdeck doctor` checks the login"
        }
        VerdictCause::Credit => {
            "add credit to the account or sign in with a subscription, then retry"
        }
        VerdictCause::Model => "choose a model that your account may use in llm.models of ktx.yaml",
        VerdictCause::Crashed => {
            "read its stderr in the transcript; `ingestdeck doctor` checks the installation"
        }
        VerdictCause::ToolFailures => "retry it with feedback about the failed call",
        VerdictCause::NothingDone => {
            "retry it with feedback that names what to read; if that does not help, check its model and prompt"
        }
        VerdictCause::UnreadFiles => {
            "retry it with feedback that names these files, or set `unread = \"warn\"` in [ingest]"
        }
        VerdictCause::DanglingReferences => {
            "retry it with feedback about these references, or write the missing pages first"
        }
        VerdictCause::Validation => "retry it with feedback about these errors",
        VerdictCause::Conflict => "retry it: it will see what the others wrote",
        VerdictCause::Policy => {
            "read its patch and check the worker that made it, then retry; units may only write pages and sources, as their tools do"
        }
        VerdictCause::OversizedLine => {
            "read the pieces of the line in the transcript; update `claude`, then retry"
        }
        VerdictCause::LoopError => "read the end of the transcript, then retry",
        VerdictCause::ProgramMissing => MISSING_PROGRAM_REMEDY,
        VerdictCause::StartFailed => {
            "run `claude` in a terminal to see why, then run again; `ingestdeck doctor` checks"
        }
        VerdictCause::WorkerLost => {
            "check the machine of the worker and the connection to it, then retry"
        }
        VerdictCause::OpenFiles => {
            "raise `ulimit -n`, or lower ingest.workUnits.maxConcurrency in ktx.yaml"
        }
        VerdictCause::Internal => {
            "check free disk space and the permissions of the project directory, then retry"
        }
    };
    Some(text.to_owned())
}

/// The remedy for a plain session, which has no plan, raw files or project. `own` is the remedy for a unit.
pub fn session_remedy(cause: &VerdictCause, own: Option<String>) -> Option<String> {
    let text = match cause {
        VerdictCause::Budget => "raise max_turns in [agent] and continue the session with --resume",
        VerdictCause::Isolation => {
            "update `claude`, or find out what sets its permission mode: a wrapper, or settings that an organization manages"
        }
        VerdictCause::ContextOverflow => {
            "begin a new session with a shorter prompt, or choose a model with a larger context"
        }
        VerdictCause::RateLimited => "try again later",
        VerdictCause::Model => {
            "choose a model that your account may use, with --model or in config.toml"
        }
        VerdictCause::OpenFiles => "raise `ulimit -n`",
        VerdictCause::Internal if own.as_deref() != Some(SPAWN_REMEDY) => {
            "check free disk space and the permissions of the state directory"
        }
        VerdictCause::LoopError if own.as_deref() == Some(NEW_SESSION_REMEDY) => {
            "check the session id, or leave out --resume"
        }
        _ => return own,
    };
    Some(text.to_owned())
}

fn usage_limit_remedy(resets_at: Option<i64>) -> String {
    match resets_at.and_then(|at| Timestamp::from_second(at).ok()) {
        Some(at) => format!("wait for the reset at {at}, or sign in with another account"),
        None => "wait for the limit to reset, or sign in with another account".to_owned(),
    }
}
