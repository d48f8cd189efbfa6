//! How a run ended, as one word of the tape.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEndOutcome {
    Done,
    /// Some units are done, and others failed.
    Partial,
    /// No unit is done, or a failure ended the run.
    Error,
    Limit,
    /// A person stopped it.
    Stopped,
    /// Only Claude Code itself (login, credit, model, network) prevented the run.
    Unusable,
    /// Changes wait for a review.
    WaitingApproval,
    /// A word of another version, or none.
    Other(String),
}

impl RunEndOutcome {
    /// The word on the tape and in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Error => "error",
            Self::Limit => "limit",
            Self::Stopped => "stopped",
            Self::Unusable => "unusable",
            Self::WaitingApproval => "waiting_approval",
            Self::Other(word) => word,
        }
    }
}

impl From<&str> for RunEndOutcome {
    fn from(word: &str) -> Self {
        let known = [
            Self::Done,
            Self::Partial,
            Self::Error,
            Self::Limit,
            Self::Stopped,
            Self::Unusable,
            Self::WaitingApproval,
        ];
        let found = known.into_iter().find(|outcome| outcome.as_str() == word);
        found.unwrap_or_else(|| Self::Other(word.to_owned()))
    }
}

impl Default for RunEndOutcome {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

/// The outcome as text for a person.
impl fmt::Display for RunEndOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WaitingApproval => "waiting for review",
            outcome => outcome.as_str(),
        })
    }
}

impl Serialize for RunEndOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RunEndOutcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer).map(|word| word.as_ref().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_it_is_written() {
        for word in [
            "done",
            "partial",
            "error",
            "limit",
            "stopped",
            "unusable",
            "waiting_approval",
            "from_the_future",
            "",
        ] {
            let json = serde_json::to_string(word).unwrap();
            let outcome: RunEndOutcome = serde_json::from_str(&json).unwrap();
            let is_other = matches!(outcome, RunEndOutcome::Other(_));
            assert_eq!(is_other, ["from_the_future", ""].contains(&word), "{word}");
            assert_eq!(serde_json::to_string(&outcome).unwrap(), json);
            assert!(is_other || !outcome.to_string().contains('_'), "{outcome}");
        }
    }
}
