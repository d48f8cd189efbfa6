//! What an attempt is asked while it runs, and its verdict if it cannot begin.

use ingestdeck_core::tape::note::{AttemptOutcome, StopMode, StopReason, Verdict, VerdictCause};

/// A request to a running attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOrder {
    Stop(StopMode),
    /// A message of a person to the agent.
    Message(String),
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
