//! The output of an attempt besides its verdict, in KTX's formats: its changes, unmapped files, and its transcript.
//! Plain data.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::verification::VerificationRecord;

/// The changes of an attempt, and the figures of its transcript. All empty on tapes of older versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptOutput {
    /// Its changes; empty if it failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<MemoryAction>,
    /// The writes that made them, in order; empty if it failed, and on tapes of older versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<RecordedWrite>,
    /// Paths that it changed although it failed, relative to the project and sorted. The changes were discarded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub discarded: Vec<String>,
    /// Identifiers in its artifacts that were in nothing that it received, at most [`MAX_UNSOURCED`]; by path and line.
    /// `None` if they were not looked for. Older versions also leave out an empty list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsourced: Option<Vec<UnsourcedIdentifier>>,
    /// References that did not resolve when the attempt ended, at most [`MAX_DANGLING`], one text each. `None` if they
    /// were not checked, and on tapes of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dangling: Option<Vec<String>>,
    /// What answers of databases and scans prove about its identifiers. `None` if they were not compared, and on tapes
    /// of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationRecord>,
    /// Raw files that it could not map; empty if it failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmapped: Vec<UnmappedFile>,
    /// Raw files of its unit that it left unread, completely or in part, although it was asked to read them. Empty on
    /// tapes of older versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadFile>,
    /// It succeeded, and neither changed nor decided anything. Always false on tapes of older versions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nothing_written: bool,
    /// Conflicts between units that it settled, as KTX reports them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Value>,
    /// Its decisions about deleted raw files, as KTX reports them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Value>,
    /// Pages and sources that it merged into others, as KTX reports them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resolutions: Vec<Value>,
    /// Its tool transcript, relative to the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript: Option<String>,
    /// Number of failed calls that no later call made good; `None` if they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fatal_failures: Option<u32>,
}

impl AttemptOutput {
    /// True if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One change of the wiki or the semantic layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryAction {
    /// Whether it changes the wiki or the semantic layer.
    pub target: ArtifactTarget,
    #[serde(rename = "type")]
    pub change: ArtifactChange,
    /// Page key or source name.
    pub key: String,
    /// One sentence; may be empty.
    #[serde(default)]
    pub detail: String,
    /// Connection of a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_connection_id: Option<String>,
    /// Raw files that the change is based on, as the agent named them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_paths: Option<Vec<String>>,
}

impl MemoryAction {
    /// The key, preceded by the connection of a source: `orders`, `shop/orders`.
    pub fn full_key(&self) -> String {
        match &self.target_connection_id {
            Some(connection) => format!("{connection}/{}", self.key),
            None => self.key.clone(),
        }
    }
}

/// The lines of one file that one tool call changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedWrite {
    /// Id of the call, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Path relative to the project.
    pub path: String,
    /// Replaced lines, from top to bottom.
    pub edits: Vec<LineEdit>,
}

/// Maximum number of unsourced identifiers that are recorded for an attempt.
pub const MAX_UNSOURCED: usize = 200;
/// Maximum number of dangling references that are recorded for an attempt.
pub const MAX_DANGLING: usize = 200;

/// A name in an added line of an artifact that was in nothing that the agent received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsourcedIdentifier {
    /// Path of the artifact, relative to the project.
    pub path: String,
    /// First line with the name in the artifact, counted from 1.
    pub line: u32,
    /// The name as the artifact spells it.
    pub name: String,
    /// True if the verification ledger lists the name as unverified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
}

/// Words after an unsourced identifier in a sentence about it.
pub const UNSOURCED_FINDING: &str = "was in nothing that the agent received";
/// Words before a list of unsourced identifiers.
pub const UNSOURCED_LIST: &str = "appeared in nothing that it received:";

impl UnsourcedIdentifier {
    /// A sentence without its end.
    pub fn finding(&self) -> String {
        format!("{self} {UNSOURCED_FINDING}")
    }
}

impl fmt::Display for UnsourcedIdentifier {
    /// The place and the name: ``wiki/global/arr.md:12 `churn_flag` ``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} `{}`", self.path, self.line, self.name)?;
        if self.declared {
            f.write_str(" (declared as unverified)")
        } else {
            Ok(())
        }
    }
}

/// Consecutive lines that were replaced, as `[start, removed, added]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u32; 3]", into = "[u32; 3]")]
pub struct LineEdit {
    /// Number of lines before the edit in the text before the write.
    pub start: u32,
    /// Number of removed lines.
    pub removed: u32,
    /// Number of added lines.
    pub added: u32,
}

impl From<[u32; 3]> for LineEdit {
    fn from([start, removed, added]: [u32; 3]) -> Self {
        Self {
            start,
            removed,
            added,
        }
    }
}

impl From<LineEdit> for [u32; 3] {
    fn from(
        LineEdit {
            start,
            removed,
            added,
        }: LineEdit,
    ) -> Self {
        [start, removed, added]
    }
}

/// The target of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactTarget {
    /// A page of the wiki.
    Wiki,
    /// A source of the semantic layer.
    #[serde(rename = "sl")]
    SemanticLayer,
}

impl ArtifactTarget {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wiki => "wiki",
            Self::SemanticLayer => "sl",
        }
    }
}

/// The type of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactChange {
    /// The artifact is new.
    Created,
    /// The artifact existed before.
    Updated,
    /// The artifact was deleted.
    Removed,
}

impl ArtifactChange {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Removed => "removed",
        }
    }

    /// Combines this change with a `later` change of the same artifact. `None` if they cancel out.
    pub fn merged_with(self, later: Self) -> Option<Self> {
        match (self, later) {
            (Self::Created, Self::Removed) => None,
            (Self::Created, Self::Created | Self::Updated) => Some(Self::Created),
            (Self::Removed, Self::Created) => Some(Self::Updated),
            (Self::Updated | Self::Removed, later) => Some(later),
        }
    }
}

/// A raw file that could not be mapped to the semantic layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmappedFile {
    /// Path of the file.
    pub raw_path: String,
    /// KTX's word for the reason.
    pub reason: String,
    /// An explanation for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// KTX's word for what was done instead.
    pub fallback: String,
}

/// A raw file that the agent did not read completely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadFile {
    /// Path of the file.
    pub path: String,
    /// The part that was read; `None` if nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartialRead>,
}

/// The part of a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialRead {
    pub read: u64,
    pub of: u64,
    pub unit: ReadUnit,
}

/// Unit of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadUnit {
    /// Answers of the tool that reads the file.
    Pages,
    Lines,
}

impl UnreadFile {
    /// Its state: `unread` or `read in part (2 of 5 pages)`.
    pub(crate) fn state(&self) -> String {
        match self.part {
            None => "unread".to_owned(),
            Some(part) => format!("read in part ({part})"),
        }
    }

    /// The part that was read, in parentheses after a space; empty if nothing was.
    pub fn part_note(&self) -> String {
        self.part
            .map_or_else(String::new, |part| format!(" ({part} read)"))
    }
}

impl fmt::Display for PartialRead {
    /// Formats it as `2 of 5 pages`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            ReadUnit::Pages => "pages",
            ReadUnit::Lines => "lines",
        };
        write!(f, "{} of {} {unit}", self.read, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_action_serializes_in_ktx_shape() {
        let action = MemoryAction {
            target: ArtifactTarget::SemanticLayer,
            change: ArtifactChange::Created,
            key: "orders".into(),
            detail: "One row per order".into(),
            target_connection_id: Some("warehouse".into()),
            raw_paths: None,
        };
        let json = r#"{"target":"sl","type":"created","key":"orders","detail":"One row per order","targetConnectionId":"warehouse"}"#;
        assert_eq!(serde_json::to_string(&action).unwrap(), json);
        assert_eq!(serde_json::from_str::<MemoryAction>(json).unwrap(), action);
    }

    #[test]
    fn successive_changes_merge_into_one() {
        use ArtifactChange::{Created, Removed, Updated};
        assert_eq!(Created.merged_with(Updated), Some(Created));
        assert_eq!(Created.merged_with(Removed), None);
        assert_eq!(Removed.merged_with(Created), Some(Updated));
        assert_eq!(Updated.merged_with(Removed), Some(Removed));
    }
}
