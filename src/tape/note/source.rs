//! What a run read: the files of each connection as they were. Later plans compare with it.

use std::fmt;

use serde::{Deserialize, Serialize};

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
pub struct Evicted {
    /// Connection id.
    pub connection: String,
    /// Adapter that cut it.
    pub adapter: String,
    /// Paths relative to the source.
    pub paths: Vec<String>,
}
