//! What the user can choose on the home screen, and the command that does the same.

use std::path::PathBuf;

use crate::text::commands;

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

impl HomeChoice {
    /// The command that does the same.
    pub(crate) fn command(&self) -> String {
        match self {
            Self::Replay(run) => format!("ingestdeck replay {run}"),
            Self::Watch(run) => format!("ingestdeck watch {run}"),
            Self::Session(path) => format!("ingestdeck replay {}", commands::shell_quote(&path.to_string_lossy())),
            Self::Diff(earlier, later) => format!("ingestdeck diff {earlier} {later}"),
            Self::Resume(run) => format!("ingestdeck run --resume-run {run}"),
            Self::Start => "ingestdeck run".to_owned(),
        }
    }
}
