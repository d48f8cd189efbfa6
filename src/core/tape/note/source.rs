//! The files of each connection as a run read them. Later plans compare with them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::attempt_output::MemoryAction;
use crate::tape::{PROJECTION_KEY, VERBATIM_KEY};

/// A connection as a run found it. Follows the plan, once for each connection that was split into units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceRead {
    pub connection: String,
    /// Adapter that split it into units.
    pub adapter: String,
    /// Directory of the copies that the units read, relative to the project; `None` if they read the source itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
    /// Duration of the copying, in milliseconds. `None` without copies, and on tapes of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_ms: Option<u64>,
    /// Comparison of its files with the files that prior runs processed.
    pub diff: DiffCounts,
    /// Files that are new or changed, or that belong to a unit of the run. The other files are unchanged since an
    /// earlier tape.
    pub files: Vec<FileRead>,
    /// Files that were processed before and are deleted now.
    pub deleted: Vec<String>,
    /// The repository that git fetched the files from. `None` for other files, and on tapes of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<FetchedRepository>,
    /// Files that need a unit which is not part of the run: a later run will plan it, whatever happens in this run.
    #[serde(rename = "open", skip_serializing_if = "Vec::is_empty")]
    pub left_for_later_runs: Vec<String>,
    /// True if every unit that the changes need is part of the run, or was done by the run that it continues.
    #[serde(rename = "complete")]
    pub is_complete: bool,
}

/// A repository that git fetched, and its commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FetchedRepository {
    /// Its address, without a login.
    pub url: String,
    /// `None` for a detached HEAD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    pub commit: String,
}

/// Why an artifact follows from raw files without an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectionCause {
    /// A document became a wiki page unchanged.
    Verbatim,
    /// A semantic model became a source. No record names this cause.
    #[default]
    #[serde(other)]
    SemanticModel,
}

impl ProjectionCause {
    /// What follows from the raw files, in the plural.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Verbatim => "documents",
            Self::SemanticModel => "sources",
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A document of a run that keeps it verbatim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptDocument {
    /// Path relative to the source, or the label of a text of the command line.
    pub path: String,
    /// Key of its page.
    pub page: String,
    /// Why the page does not hold the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Artifacts that follow from raw files without an agent: sources of the semantic layer, which are KTX's deterministic
/// projection, or pages that are documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourcesProjected {
    /// The connection of the raw files. An older record has one note for all connections, without this key, whose sources
    /// are those of the connection of their files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    #[serde(skip_serializing_if = "ProjectionCause::is_default")]
    pub cause: ProjectionCause,
    /// Changes in the order of the files, without unchanged artifacts.
    pub actions: Vec<MemoryAction>,
    /// Models that could not become a source and are left to the units, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The commit; `None` on tapes of earlier versions in projects without git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Changed files, project-relative and sorted.
    pub paths: Vec<String>,
    /// Patch with the changes, project-relative, if they wait for a review with those of the units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// The documents that are kept verbatim, also those whose page was up to date.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<KeptDocument>,
    /// Why nothing was written, although artifacts were pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl SourcesProjected {
    /// Name of the writer, in place of a unit key.
    pub fn writer(&self) -> &'static str {
        match self.cause {
            ProjectionCause::Verbatim => VERBATIM_KEY,
            ProjectionCause::SemanticModel => PROJECTION_KEY,
        }
    }

    /// Documents whose page does not hold them, with the reasons.
    pub fn refusals(&self) -> impl Iterator<Item = (&KeptDocument, &str)> {
        let documents = self.documents.iter();
        documents.filter_map(|document| Some((document, document.refused.as_deref()?)))
    }

    /// True if the changes are in a patch, and in no commit.
    pub fn is_unsaved(&self) -> bool {
        self.patch.is_some() && self.commit.is_none()
    }

    /// The connection of the raw files that `action` follows from.
    pub fn connection_of<'a>(&'a self, action: &'a MemoryAction) -> Option<&'a str> {
        let connection = self.connection.as_deref();
        connection.or(action.target_connection_id.as_deref())
    }

    /// True if the note is about texts of the command line, which belong to no connection.
    pub fn is_about_texts(&self) -> bool {
        self.cause == ProjectionCause::Verbatim && self.connection.is_none()
    }

    /// True if the note is about the sources or documents of `connection`.
    pub fn is_of(&self, connection: Option<&str>) -> bool {
        match &self.connection {
            Some(own) => Some(own.as_str()) == connection,
            None if self.is_about_texts() => connection.is_none(),
            None => {
                let is_of =
                    |action: &MemoryAction| action.target_connection_id.as_deref() == connection;
                self.reason.is_some() || self.actions.iter().any(is_of)
            }
        }
    }
}

impl fmt::Display for SourcesProjected {
    /// One sentence for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_NAMED: usize = 8;
        if let Some(reason) = &self.reason {
            let of = self
                .connection
                .as_deref()
                .map(|connection| format!(" for {connection}"))
                .unwrap_or_default();
            let what = match self.cause {
                ProjectionCause::Verbatim => "documents",
                ProjectionCause::SemanticModel => "sources of semantic models",
            };
            return write!(f, "the {what} are not written{of}: {reason}");
        }
        if self.actions.is_empty() {
            return f.write_str(match self.cause {
                ProjectionCause::Verbatim => "no page of a document had to be written",
                ProjectionCause::SemanticModel => {
                    "no source of semantic models had to be written before the units"
                }
            });
        }
        let (count, plural) = (
            self.actions.len(),
            if self.actions.len() == 1 { "" } else { "s" },
        );
        let names: Vec<&str> = self
            .actions
            .iter()
            .take(MAX_NAMED)
            .map(|action| action.key.as_str())
            .collect();
        let more = count.saturating_sub(MAX_NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let names = names.join(", ");
        if self.cause == ProjectionCause::Verbatim {
            // They are in the commit of the run, which has its own sentence.
            return write!(f, "{count} document{plural} kept verbatim: {names}{more}");
        }
        write!(
            f,
            "{count} source{plural} of semantic models written before the units: {names}{more}"
        )?;
        match &self.commit {
            Some(commit) => write!(f, ", commit {}", commit.get(..7).unwrap_or(commit)),
            None if self.patch.is_some() => f.write_str(", to be reviewed"),
            None => Ok(()),
        }
    }
}

/// The selection of a plan. Empty lists mean everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitSelection {
    /// Ids of the selected connections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<String>,
    /// `--only` globs over unit keys; a unit that matches one of them is selected. A unit whose full key is given runs
    /// even if it is unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// True if units run whether or not anything changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// True if any change around a unit is a reason to run it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub neighbours: bool,
    /// True if a raw file that its unit left unread is a reason to run the unit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
}

/// Numbers of files by kind of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiffCounts {
    pub added: u64,
    /// Changed, or part of a unit that failed.
    pub modified: u64,
    pub deleted: u64,
    pub unchanged: u64,
}

/// `+2/~1/-0/=7`, as KTX prints it.
impl fmt::Display for DiffCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            added,
            modified,
            deleted,
            unchanged,
        } = self;
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
    pub bytes: u64,
    /// Names that the file defines and that other files may refer to. `None` if they are not known, and on tapes of older
    /// versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defines: Option<Vec<String>>,
}

/// The decisions about deleted files are complete, so that no later plan lists the files again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesEvicted {
    pub connection: String,
    /// Adapter that split it into units.
    pub adapter: String,
    /// Paths relative to the source.
    pub paths: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_about_texts_belongs_to_no_connection() {
        let mut note = SourcesProjected {
            cause: ProjectionCause::Verbatim,
            reason: Some("it no longer fits".into()),
            ..SourcesProjected::default()
        };
        assert!(note.is_of(None) && !note.is_of(Some("notes")));
        note.connection = Some("notes".into());
        assert!(note.is_of(Some("notes")) && !note.is_about_texts());
        let older = SourcesProjected {
            reason: note.reason.take(),
            ..SourcesProjected::default()
        };
        assert!(
            older.is_of(Some("notes")),
            "it has one note for all connections"
        );
    }
}
