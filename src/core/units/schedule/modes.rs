//! Choices of a person about a whole run.

use serde::Deserialize;

/// How a failed unit affects the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureMode {
    #[default]
    Continue,
    /// Starts no more units and stops the running ones.
    Abort,
}

impl FailureMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Abort => "abort",
        }
    }
}

/// What happens to integrated patches before they are saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReviewMode {
    /// They are saved without a review.
    #[default]
    Off,
    /// The run waits for a review.
    Wait,
    /// The run ends, and a later one continues with the review.
    End,
}
