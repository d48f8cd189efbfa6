//! What an attempt leaves behind beside its verdict, in KTX's shapes: what it saved, what it could not map, and where its
//! calls are on file. Plain data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a successful attempt did, and the figures of its transcript. All empty on tapes of older programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptOutput {
    /// What it changed; nothing if it failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<MemoryAction>,
    /// Raw files that it could not map; none if it failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmapped: Vec<UnmappedFile>,
    /// Conflicts between units that it settled, as KTX reports them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Value>,
    /// What it decided about raw files that are gone, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Value>,
    /// Pages and sources that it merged into others, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resolutions: Vec<Value>,
    /// Its tool transcript, relative to the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript: Option<String>,
    /// Failed calls that no later one made good; `None` if nobody counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fatal_failures: Option<u32>,
}

impl AttemptOutput {
    /// True when there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One change of the wiki or the semantic layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryAction {
    /// Which of the two.
    pub target: ArtifactTarget,
    /// What was done.
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
    /// Raw files that it rests on, as the agent named them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_paths: Option<Vec<String>>,
}

impl MemoryAction {
    /// Its key, with the connection of a source before it: `orders`, `shop/orders`.
    pub fn full_key(&self) -> String {
        match &self.target_connection_id {
            Some(connection) => format!("{connection}/{}", self.key),
            None => self.key.clone(),
        }
    }
}

/// What an action changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactTarget {
    /// A wiki page.
    Wiki,
    /// A source of the semantic layer.
    Sl,
}

impl ArtifactTarget {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wiki => "wiki",
            Self::Sl => "sl",
        }
    }
}

/// How an action changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactChange {
    /// It is new.
    Created,
    /// It was there before.
    Updated,
    /// It is gone.
    Removed,
}

impl ArtifactChange {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Removed => "removed",
        }
    }

    /// Both changes of one thing, the `later` one after this, as one. `None` if it is as it was before.
    pub fn merged_with(self, later: Self) -> Option<Self> {
        match (self, later) {
            (Self::Created, Self::Removed) => None,
            (Self::Created, Self::Created | Self::Updated) => Some(Self::Created),
            (Self::Removed, Self::Created) => Some(Self::Updated),
            (Self::Updated | Self::Removed, later) => Some(later),
        }
    }
}

/// A raw file without a place in the semantic layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmappedFile {
    /// The file.
    pub raw_path: String,
    /// KTX's word for the reason.
    pub reason: String,
    /// What a person should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// KTX's word for what was done instead.
    pub fallback: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_action_serializes_in_ktx_shape() {
        let action = MemoryAction {
            target: ArtifactTarget::Sl,
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
