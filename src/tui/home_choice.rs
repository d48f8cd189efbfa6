//! What the user can choose on the home screen.

use std::path::PathBuf;

/// What the user chose on the home screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HomeChoice {
    /// Replay a recorded run, by its id.
    Replay(String),
    /// Watch an active run, by its id.
    Watch(String),
    /// Replay a session file.
    Session(PathBuf),
    /// Compare two runs: the earlier one and the later one.
    Diff(String, String),
    /// Run the units of a run that did not succeed.
    Resume(String),
    /// Start a run of the project.
    Start,
}
