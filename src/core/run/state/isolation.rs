//! The proof of the isolation of an attempt, as its checks recorded it.

use std::sync::Arc;

/// What the last check of the isolation found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordedIsolation {
    /// No check is recorded.
    #[default]
    Unproven,
    Verified,
    /// The agent has something else; the message.
    Breached(Arc<str>),
}

impl RecordedIsolation {
    /// The result of a check that found `breach`.
    pub(crate) fn of_check(breach: Option<&str>) -> Self {
        breach.map_or(Self::Verified, |breach| Self::Breached(breach.into()))
    }
}
