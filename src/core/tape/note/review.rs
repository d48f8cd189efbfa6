//! Notes about the review of integrated changes by a person.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{attempt_output::ArtifactChange, source::FilesEvicted};
use crate::tape::UnitKey;

/// The integrated changes wait for a review before they become a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReviewRequested {
    /// The commit that the changes are based on.
    pub base: String,
    /// The changed files, sorted by path.
    pub files: Vec<ReviewedFile>,
    /// Decisions of a prior run about the same changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decided: Vec<ReviewDecided>,
    /// Deleted files about which the reconcile step decided, once its changes are saved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<FilesEvicted>,
}

impl fmt::Display for ReviewRequested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.files.len() {
            1 => f.write_str("1 changed file waits for a review"),
            files => write!(f, "{files} changed files wait for a review"),
        }
    }
}

/// A file that the integrated patches change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedFile {
    /// Path relative to the project.
    pub path: String,
    #[serde(rename = "type")]
    pub change: ArtifactChange,
    /// The units that changed it, in integration order.
    pub units: Vec<UnitKey>,
    /// The hunks of its unified diff.
    pub diff: String,
    /// Digest of the text before the run; `None` for a new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Digest of the diff, if it is left out because it is too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<String>,
}

/// A person decided about a changed file or one hunk of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReviewDecided {
    /// Path of the file, relative to the project.
    pub path: String,
    /// Id of the hunk; `None` for the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunk: Option<String>,
    pub decision: ReviewDecision,
    /// The text that replaces the file, if it was edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What the unit should change, if it was sent back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// Why it was rejected, if the person wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl fmt::Display for ReviewDecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self
            .hunk
            .as_ref()
            .map(|hunk| format!(", change {hunk}"))
            .unwrap_or_default();
        let what = match self.decision {
            ReviewDecision::Open => "decision withdrawn",
            decided => decided.as_str(),
        };
        write!(f, "{}{part}: {what}", self.path)?;
        match (self.decision, &self.feedback, &self.reason) {
            (ReviewDecision::SentBack, Some(text), _)
            | (ReviewDecision::Rejected, _, Some(text)) => {
                write!(f, ": {text}")
            }
            _ => Ok(()),
        }
    }
}

/// A decision about a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewDecision {
    /// Not decided yet, or a decision was withdrawn.
    #[default]
    Open,
    Accepted,
    Rejected,
    /// The whole file has a text that a person wrote.
    Edited,
    /// The unit should make it again.
    SentBack,
}

impl ReviewDecision {
    /// Its text on screens and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Edited => "edited",
            Self::SentBack => "sent back",
        }
    }
}
