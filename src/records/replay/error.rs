//! Errors of opening a file for replay, as messages for people. Contains no decisions.

use super::detect::UnsupportedInput;
use ingestdeck_core::diagnostic::Diagnostic;

/// A file that cannot be opened as a source.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The file does not exist.
    #[error("there is no file {name}")]
    NotFound {
        /// As the user wrote it.
        name: String,
    },
    /// It is a directory.
    #[error("{name} is a directory")]
    Directory {
        /// As the user wrote it.
        name: String,
    },
    /// It is a directory without a record.
    #[error("{name} has no record")]
    WithoutRecord {
        /// As the user wrote it.
        name: String,
    },
    /// The system refuses access.
    #[error("cannot read {name}: {cause}")]
    Unreadable {
        /// As the user wrote it.
        name: String,
        /// The system's error message.
        cause: String,
    },
    /// The file is readable, but its format is not supported.
    #[error("cannot replay {name}: {refusal}")]
    Unsupported {
        /// As the user wrote it.
        name: String,
        /// The detected kind of file.
        refusal: UnsupportedInput,
    },
}

impl Diagnostic for OpenError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NotFound { .. } => "list the recorded runs with `ingestdeck runs list`".into(),
            Self::WithoutRecord { .. } => {
                "records are tapes (tape.jsonl), captures and session files; \
                `ingestdeck runs list` lists the runs of a project"
                    .into()
            }
            Self::Directory { .. } => "name one file inside it, such as a run's tape.jsonl".into(),
            Self::Unsupported { refusal, .. } => return refusal.help(),
            Self::Unreadable { .. } => return None,
        })
    }
}

impl OpenError {
    /// Converts an I/O error.
    pub(super) fn from_io(name: &str, error: &std::io::Error) -> Self {
        let name = name.to_owned();
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound { name },
            std::io::ErrorKind::IsADirectory => Self::Directory { name },
            _ => Self::Unreadable {
                name,
                cause: error.to_string(),
            },
        }
    }
}
