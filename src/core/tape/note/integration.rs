//! Notes about the integration of patches.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::tape::UnitKey;

/// A successful attempt left a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PatchWritten {
    /// The commit that it applies to.
    pub base: String,
    /// Its file, relative to the project; `None` if the patch is empty.
    pub path: Option<String>,
    /// Changed paths, relative to the project and sorted.
    pub paths: Vec<String>,
}

/// Patches of the first units were integrated while others run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntegrationAdvanced {
    /// Number of patches since the last save. It becomes smaller when a unit before them runs again.
    pub patches: usize,
    /// Number of them that were refused, as far as is known now.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl fmt::Display for IntegrationAdvanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patches = match self.patches {
            1 => "1 patch".to_owned(),
            patches => format!("{patches} patches"),
        };
        write!(f, "{patches} integrated so far")?;
        match self.refused {
            0 => Ok(()),
            refused => write!(f, ", {refused} of them refused"),
        }
    }
}

/// Integration of the patches of a run began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntegrationStarted {
    /// The commit that the patches are applied to.
    pub onto: String,
    /// The units of the patches, in order.
    pub units: Vec<UnitKey>,
}

/// The result of integrating the patch of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PatchIntegrated {
    /// KTX's word for the result.
    pub result: PatchResult,
    /// The commit of this patch, before all become one commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Changed paths, or the paths of the conflict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Files that earlier units of the plan wrote too, if the patch was accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedWrite>,
    /// The new verdict of the attempt, if the patch was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// A file that several units wrote without a conflict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedWrite {
    /// Path relative to the project.
    pub path: String,
    /// The units that wrote it before, in integration order.
    #[serde(rename = "units")]
    pub earlier_writers: Vec<UnitKey>,
    /// True if git merged the changes; false if all texts are the same.
    #[serde(rename = "merged")]
    pub was_merged: bool,
}

impl fmt::Display for SharedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units: Vec<&str> = self.earlier_writers.iter().map(UnitKey::as_str).collect();
        let came_of_it = if self.was_merged {
            "git merged the texts; read the result"
        } else {
            "the texts agree"
        };
        write!(
            f,
            "{} also wrote {}: {came_of_it}",
            units.join(", "),
            self.path
        )
    }
}

/// The result of integrating a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatchResult {
    /// The patch was applied.
    Accepted,
    /// The patch changes nothing.
    #[default]
    Noop,
    /// Other units changed the same lines.
    TextualConflict,
    /// The patch applies, but the result is invalid.
    SemanticConflict,
    /// The patch changes files that the unit may not change.
    #[serde(rename = "policy")]
    ForbiddenPaths,
    /// The patch file is missing or unreadable.
    #[serde(rename = "lost")]
    PatchUnreadable,
}

impl PatchResult {
    /// The text on screens.
    pub fn label(self) -> &'static str {
        match self {
            Self::Accepted => "integrated",
            Self::Noop => "unchanged",
            Self::TextualConflict | Self::SemanticConflict => "conflict",
            Self::ForbiddenPaths => "policy",
            Self::PatchUnreadable => "lost",
        }
    }

    /// True if the unit keeps its success.
    pub fn keeps_success(self) -> bool {
        matches!(self, Self::Accepted | Self::Noop)
    }
}

/// All integrated patches are on the project's branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSaved {
    /// The commit; `None` if nothing had changed.
    pub commit: Option<String>,
    /// The branch; `None` if the head was detached.
    pub branch: Option<String>,
    /// First line of the commit message.
    pub subject: String,
    /// Changed paths, relative to the project and sorted.
    pub paths: Vec<String>,
    /// Units whose changes are on the branch without the reconcile step that was planned, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreconciled: Vec<UnitKey>,
    /// Files that were left out on request, because files of the user block them. Their changes
    /// still wait for a review.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<BlockedFile>,
}

/// A changed file that cannot be written, because the user has changed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockedFile {
    /// Path relative to the project.
    pub path: String,
    /// What is in the way, as the end of a sentence about the file.
    pub reason: String,
}

impl RunSaved {
    /// The abbreviated hash of the commit.
    pub fn short_commit(&self) -> Option<&str> {
        self.commit
            .as_deref()
            .map(|commit| commit.get(..8).unwrap_or(commit))
    }
}

/// KTX's repair: references of pages to deleted sources were removed in the same commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlRefsRepaired {
    /// One repair for each page, sorted by path.
    pub repairs: Vec<SlRefRepair>,
}

/// The references that a page lost, in the format of KTX's report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlRefRepair {
    pub page_key: String,
    /// The user of the page; `None` for a shared page.
    pub scope_id: Option<String>,
    /// Entries that its `sl_refs` lost.
    pub removed_refs: Vec<String>,
}

impl fmt::Display for SlRefRepair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "page {} no longer has sl_refs to {}",
            self.page_key,
            self.removed_refs.join(", ")
        )?;
        self.scope_id
            .as_ref()
            .map_or(Ok(()), |person| write!(f, " (a page of user {person})"))
    }
}

/// The integrated patches could not be put on the branch. The patches are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SaveFailed {
    /// One sentence with the remedy.
    pub reason: String,
    /// The changes are still integrated, and their review is open again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub review_open: bool,
    /// The files of the user that block it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<BlockedFile>,
}
