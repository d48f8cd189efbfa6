//! Why something cannot be replayed, in sentences for people. Decides nothing.

use super::detect::UnsupportedInput;

/// A file that cannot be opened as a source.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("there is no file {name}; `ingestdeck runs list` shows the recorded runs")]
    NotFound {
        /// As the user wrote it.
        name: String,
    },
    /// It is a directory.
    #[error("{name} is a directory; name one file inside it, such as a run's tape.jsonl")]
    Directory {
        /// As the user wrote it.
        name: String,
    },
    /// The system does not let us read it.
    #[error("cannot read {name}: {cause}")]
    Unreadable {
        /// As the user wrote it.
        name: String,
        /// The system's words.
        cause: String,
    },
    /// It is readable, but nothing that can be replayed.
    #[error("cannot replay {name}: {refusal}")]
    Unsupported {
        /// As the user wrote it.
        name: String,
        /// What it is instead.
        refusal: UnsupportedInput,
    },
}

impl OpenError {
    /// Sorts an error of the system.
    pub(super) fn from_io(name: &str, error: &std::io::Error) -> Self {
        let name = name.to_owned();
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound { name },
            std::io::ErrorKind::IsADirectory => Self::Directory { name },
            _ => Self::Unreadable { name, cause: error.to_string() },
        }
    }
}
