//! What determines verdicts, by its names on the tape and on screens.

use serde::{Deserialize, Serialize};

/// What determined a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictCause {
    /// The model finished by itself.
    Completed,
    /// The turn or cost budget was spent; not a failure.
    Budget,
    /// System and user prompt exceed the limit; no process was spawned.
    PromptTooLarge,
    /// The agent offered more or fewer tools than the curated set.
    Isolation,
    /// A person stopped the attempt.
    Cancelled,
    /// The model's context is full.
    ContextOverflow,
    /// A usage limit of the subscription, until the given time (unix seconds).
    UsageLimit {
        /// Reset time, if the service reported it.
        resets_at: Option<i64>,
    },
    /// Too many requests in a short time: the run waits, and tries again.
    RateLimited,
    /// Overload or a server error that justifies a retry.
    Transient,
    /// Connection refused, dropped or timed out.
    Network,
    /// The agent wrote nothing for longer than `--silence-timeout`.
    SilenceTimeout,
    /// The attempt took longer than `--unit-timeout`.
    UnitTimeout,
    /// A call waited for a decision for longer than `--approval-timeout`.
    ApprovalTimeout,
    /// Not logged in, or the key is invalid.
    Auth,
    /// The account has no credit.
    Credit,
    /// The model does not exist or may not be used.
    Model,
    /// The agent died without a result.
    Crashed,
    /// Failed tool calls that count.
    ToolFailures,
    /// The agent ended by itself without having read or decided anything.
    NothingDone,
    /// The agent left raw files unread, which the settings do not permit.
    #[serde(rename = "unread")]
    UnreadFiles,
    /// A wiki page refers to a page that does not exist.
    DanglingReferences,
    /// The changes are invalid.
    Validation,
    /// The changes conflict with those of other units.
    Conflict,
    /// The changes include files that the unit may not change.
    Policy,
    /// The agent wrote a line that exceeds the limit.
    OversizedLine,
    /// The agent loop failed for another reason.
    LoopError,
    /// The worker that ran the attempt was lost: it is repeated elsewhere.
    WorkerLost,
    /// Claude Code refused to start, for example because its settings are damaged.
    StartFailed,
    /// The process has no file descriptors left: the unit waits for another one to end.
    OpenFiles,
    /// The agent's program is missing or cannot be executed, for example during its update.
    ProgramMissing,
    /// The program itself failed (disk, permissions).
    Internal,
    /// A cause of a later version.
    #[serde(untagged)]
    Other(String),
}

impl VerdictCause {
    /// The text on screens.
    pub fn label(&self) -> &str {
        match self {
            Self::Completed => "completed",
            Self::Budget => "budget",
            Self::PromptTooLarge => "prompt too large",
            Self::Isolation => "isolation",
            Self::Cancelled => "cancelled",
            Self::ContextOverflow => "context overflow",
            Self::UsageLimit { .. } => "usage limit",
            Self::RateLimited => "rate limit",
            Self::Transient => "service busy",
            Self::Network => "network",
            Self::SilenceTimeout => "silence timeout",
            Self::UnitTimeout => "unit timeout",
            Self::ApprovalTimeout => "approval timeout",
            Self::Auth => "login",
            Self::Credit => "credit",
            Self::Model => "model",
            Self::Crashed => "crashed",
            Self::ToolFailures => "tool failures",
            Self::NothingDone => "nothing done",
            Self::UnreadFiles => "unread files",
            Self::DanglingReferences => "dangling references",
            Self::Validation => "validation",
            Self::Conflict => "conflict",
            Self::Policy => "patch policy",
            Self::OversizedLine => "oversized line",
            Self::LoopError => "agent loop",
            Self::WorkerLost => "worker lost",
            Self::StartFailed => "start failure",
            Self::OpenFiles => "open files",
            Self::ProgramMissing => "program missing",
            Self::Internal => "internal",
            Self::Other(other) => other,
        }
    }
}
