//! What the user can choose on the home screen.

use std::path::PathBuf;

use super::record_matches::OpenSearch;

/// What the user chose on the home screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeChoice {
    /// Replay a recorded run, by its id.
    Replay(String),
    /// Attach to an active run or a background session, by its id.
    Watch(String),
    /// Stop a background session, by its id.
    StopSession(String),
    /// Replay a file, or list the records in a directory.
    File(PathBuf),
    /// Replay a run or a session from a moment that the search found.
    Moment(Box<ChosenMoment>),
    /// Run the bundled project with a scripted agent.
    Demo,
    /// Write a first configuration of a project.
    Init,
    /// Compare two runs: the earlier one and the later one.
    Diff(String, String),
    /// Run the units of a run that did not succeed.
    Resume(String),
    /// Start a run of the project.
    Start,
    /// Start a run of these units only, whatever they did before.
    RunUnits {
        /// Keys of the units, as in the plan.
        units: Vec<String>,
        /// What the agents should do differently.
        feedback: Option<String>,
        /// Name of the model; `None` for the project's.
        model: Option<String>,
        /// Number of turns; `None` for the project's.
        step_budget: Option<u32>,
        /// Nothing is committed before a review, as in the earlier run.
        review: bool,
        /// The branch that the earlier run committed to; `None` for the current one.
        branch: Option<String>,
    },
}

/// A moment that the search of all runs and sessions found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenMoment {
    /// The id of the run; empty for a session.
    pub run: String,
    /// The file of the session; empty for a run.
    pub session: PathBuf,
    pub entry: u64,
    /// The search, which is shown again after the replay.
    pub search: OpenSearch,
}
