//! Notes about what became of the patches of a run. In a project without a repository there are none.

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
    /// Its file, relative to the project; `None` if nothing was changed.
    pub path: Option<String>,
    /// Changed paths, relative to the project and sorted.
    pub paths: Vec<String>,
}

/// The patches of a run are being put together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntegrationStarted {
    /// The commit that they are put on.
    pub onto: String,
    /// Their units, in order.
    pub units: Vec<UnitKey>,
}

/// What became of the patch of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PatchIntegrated {
    /// KTX's word for it.
    pub result: PatchResult,
    /// Its commit before everything becomes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Paths that changed, or that the conflict is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Files that units before it in the plan wrote too, where the patch was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedWrite>,
    /// The verdict that now holds for the attempt, where the patch was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// A file that several units wrote, and whose changes fit together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedWrite {
    /// Relative to the project.
    pub path: String,
    /// Those that wrote it before, in the order in which their patches were taken.
    pub units: Vec<UnitKey>,
    /// git put the changes of all together; else they had come to the same text.
    pub merged: bool,
}

impl fmt::Display for SharedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units: Vec<&str> = self.units.iter().map(UnitKey::as_str).collect();
        let came_of_it = if self.merged { "git merged the texts; read the result" } else { "the texts agree" };
        write!(f, "{} also wrote {}: {came_of_it}", units.join(", "), self.path)
    }
}

/// What became of a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatchResult {
    /// It is in.
    Accepted,
    /// It changes nothing.
    #[default]
    Noop,
    /// Others changed the same lines.
    TextualConflict,
    /// It fits, but the result does not hold.
    SemanticConflict,
    /// It changes what it may not.
    Policy,
    /// Its file is gone or cannot be read.
    Lost,
}

impl PatchResult {
    /// Its word, on screens.
    pub fn label(self) -> &'static str {
        match self {
            Self::Accepted => "integrated",
            Self::Noop => "unchanged",
            Self::TextualConflict | Self::SemanticConflict => "conflict",
            Self::Policy => "policy",
            Self::Lost => "lost",
        }
    }

    /// True when the unit keeps its success.
    pub fn keeps_success(self) -> bool {
        matches!(self, Self::Accepted | Self::Noop)
    }
}

/// Everything that was taken is on the project's branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSaved {
    /// The commit; `None` if nothing had changed.
    pub commit: Option<String>,
    /// The branch; `None` when it was detached.
    pub branch: Option<String>,
    /// First line of its message.
    pub subject: String,
    /// Changed paths, relative to the project and sorted.
    pub paths: Vec<String>,
    /// Units whose changes are on the branch by now although the pass that was to look at them has not, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreconciled: Vec<UnitKey>,
}

impl RunSaved {
    /// The commit as people write it.
    pub fn short_commit(&self) -> Option<&str> {
        self.commit.as_deref().map(|commit| commit.get(..8).unwrap_or(commit))
    }
}

/// Pages that spoke of sources that are gone do so no longer: KTX's repair, made with everything that is saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlRefsRepaired {
    /// One for each page, sorted by path.
    pub repairs: Vec<SlRefRepair>,
}

/// What a page lost, as KTX's report has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlRefRepair {
    /// Its key.
    pub page_key: String,
    /// Whose it is; `None` for a page that everybody shares.
    pub scope_id: Option<String>,
    /// Entries that its `sl_refs` lost.
    pub removed_refs: Vec<String>,
}

impl fmt::Display for SlRefRepair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} no longer has sl_refs to {}", self.page_key, self.removed_refs.join(", "))?;
        self.scope_id.as_ref().map_or(Ok(()), |person| write!(f, " (a page of user {person})"))
    }
}

/// What was taken could not be put on the branch. The patches are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SaveFailed {
    /// One sentence with the remedy.
    pub reason: String,
}
