//! What a person edits in another program: what the text is for, and why it is not accepted.

use std::{fmt, path::PathBuf};

/// What an edited text is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditTarget {
    /// The form that is open on the screen.
    Form,
    /// The changed file with this path, which is reviewed.
    Reviewed(String),
}

/// A text of an editor that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableEdit {
    pub reason: String,
    /// Where it is now; `None` if there is none.
    pub file: Option<PathBuf>,
}

/// The reason, and where the text is.
impl fmt::Display for UnusableEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, file } = self;
        match file {
            Some(file) => write!(
                f,
                "{reason}; your text is not used, and kept in {}",
                file.display()
            ),
            None => f.write_str(reason),
        }
    }
}
