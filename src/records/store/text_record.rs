//! What the index of words is about: runs and session files.

use std::path::PathBuf;

use ingestdeck_core::tape::RunId;

/// A record whose words are in the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TextRecord {
    Run(RunId),
    /// A session file of Claude Code.
    Session(PathBuf),
}

impl TextRecord {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.starts_with('/') {
            true => Some(Self::Session(text.into())),
            false => RunId::parse(text).map(Self::Run),
        }
    }

    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Run(id) => id.to_string(),
            Self::Session(path) => path.to_string_lossy().into_owned(),
        }
    }
}
