//! What a run read: the files of each connection as they were. Later plans compare with it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::attempt_output::MemoryAction;

/// A connection as a run found it. Stands after the plan, once for each connection that was cut into units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceRead {
    /// Connection id.
    pub connection: String,
    /// Adapter that cut it.
    pub adapter: String,
    /// Directory of the copies that the units read, relative to the project; `None` where they read the source itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
    /// How long copying took, in milliseconds. `None` without copies, and on tapes of older programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_ms: Option<u64>,
    /// How its files stood against what earlier runs processed.
    pub diff: DiffCounts,
    /// Files that are new or changed, or that a unit of the run is made of. The others are as an earlier tape has them.
    pub files: Vec<FileRead>,
    /// Files that were processed once and are gone now.
    pub deleted: Vec<String>,
    /// Files that call for a unit which is no part of the run: whatever becomes of the run, they call for it again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
    /// Every unit that the changes call for is part of the run, or was done by one that it continues.
    pub complete: bool,
}

/// Sources of the semantic layer that follow from raw files alone: KTX's deterministic projection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourcesProjected {
    /// The connection of the sources. An older record has one note about all connections, which names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// What was changed, in the order of the files. What was there already is not among it.
    pub actions: Vec<MemoryAction>,
    /// What could not become a source and is left to the units, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The commit, where the project is a repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Changed files, project-relative and sorted.
    pub paths: Vec<String>,
    /// Why nothing was written, although something was to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl SourcesProjected {
    /// Whether it is about the sources of `connection`.
    pub fn is_of(&self, connection: Option<&str>) -> bool {
        match &self.connection {
            Some(own) => Some(own.as_str()) == connection,
            None => {
                let is_of = |action: &MemoryAction| action.target_connection_id.as_deref() == connection;
                self.reason.is_some() || self.actions.iter().any(is_of)
            }
        }
    }
}

impl fmt::Display for SourcesProjected {
    /// One sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_NAMED: usize = 8;
        if let Some(reason) = &self.reason {
            let of = self.connection.as_deref().map(|connection| format!(" for {connection}")).unwrap_or_default();
            return write!(f, "the sources of semantic models are not written{of}: {reason}");
        }
        if self.actions.is_empty() {
            return f.write_str("no source of semantic models had to be written before the units");
        }
        let (count, plural) = (self.actions.len(), if self.actions.len() == 1 { "" } else { "s" });
        let names: Vec<&str> = self.actions.iter().take(MAX_NAMED).map(|action| action.key.as_str()).collect();
        let more = count.saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        write!(f, "{count} source{plural} of semantic models written before the units: {}{more}", names.join(", "))?;
        self.commit.as_deref().map_or(Ok(()), |commit| write!(f, ", commit {}", commit.get(..7).unwrap_or(commit)))
    }
}

/// What was asked of a plan. Empty lists mean everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Connection ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<String>,
    /// `--only` globs over unit keys; a unit that matches one of them is in. One that is named in full runs even if
    /// nothing of it changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Units run whether or not anything changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
}

/// Numbers of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiffCounts {
    /// New.
    pub added: u64,
    /// Changed, or of a unit that failed.
    pub modified: u64,
    /// Gone.
    pub deleted: u64,
    /// The rest.
    pub unchanged: u64,
}

/// `+2/~1/-0/=7`, as KTX prints it.
impl fmt::Display for DiffCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { added, modified, deleted, unchanged } = self;
        write!(f, "+{added}/~{modified}/-{deleted}/={unchanged}")
    }
}

/// One file as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileRead {
    /// Path relative to the source.
    pub path: String,
    /// SHA-256, 64 hexadecimal digits.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// What came of files that are gone was decided, so that no later plan lists them again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesEvicted {
    /// Connection id.
    pub connection: String,
    /// Adapter that cut it.
    pub adapter: String,
    /// Paths relative to the source.
    pub paths: Vec<String>,
}
