//! What an attempt is asked while it runs, and its verdict if it cannot begin.

use ingestdeck_core::{
    control::AgentRequest,
    tape::note::{AttemptOutcome, StopMode, StopReason, Verdict, VerdictCause},
};

/// A request to a running attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOrder {
    Stop(StopMode),
    /// A message of a person to the agent.
    Message(String),
    /// A request of a person to the agent of a session.
    Request(AgentRequest),
}

/// The verdict of an attempt that could not be prepared.
pub(crate) fn preparation_failed(reason: impl Into<String>) -> Verdict {
    Verdict {
        outcome: AttemptOutcome::Failed,
        stop: StopReason::Error,
        cause: VerdictCause::Internal,
        reason: reason.into(),
        remedy: None,
    }
}
