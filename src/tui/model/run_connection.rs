//! What the screen knows about the run that it shows: whether it is live, whose it is, and what leaving does.

use std::sync::Arc;

use super::{ArgumentsCheck, RunResults};
use ingestdeck_core::{control::DisconnectAction, tape::note::ReviewRequested};

/// What the user may do with the run from this screen.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunConnection {
    /// True when commands can be sent to the run.
    pub is_live: bool,
    /// The run belongs to another process: it can be watched, but accepts no commands from this screen.
    pub is_watching: bool,
    /// What leaving the screen does to the run by default; `None` if the run cannot continue without this screen.
    pub leave_action: Option<DisconnectAction>,
    /// Why recording stopped before the end of the run was recorded, if this process observed it.
    pub recording_failure: Option<String>,
    /// The recorded run that is replayed, if the record is a tape.
    pub recorded_run: Option<RecordedRunName>,
    /// What it left, once its end is shown.
    pub results: RunResults,
    pub session_page: SessionPage,
    /// The record was opened on the home screen, to which the last step back returns.
    pub is_from_home: bool,
    /// The home screen can search all runs and sessions.
    pub has_record_search: bool,
    /// True if the screen has watched the run live, also after its end.
    pub was_live: bool,
    /// True for a live session: it writes into the user's own directory, and messages start its turns.
    pub is_session: bool,
    /// Checks edited arguments, if the tools of the run are known.
    pub check_arguments: Option<ArgumentsCheck>,
    /// Number of times that Ctrl-C was pressed.
    pub interrupts: u8,
    /// Concurrency when the present was last shown.
    pub(super) shown_concurrency: Option<u32>,
    /// The last request for a review that opened its page.
    pub(crate) shown_review: Option<Arc<ReviewRequested>>,
}

/// Whether a record of a single session opens as a page to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SessionPage {
    #[default]
    Unwanted,
    /// The units of the record are not known yet.
    Wanted,
    /// It is open, and no key was pressed on it.
    Shown,
}

/// Names of a recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedRunName {
    pub id: String,
    pub short: String,
    /// True for a run of the project of this process.
    pub is_of_project: bool,
}

impl RunConnection {
    /// True when the run accepts commands from this screen.
    pub(crate) fn accepts_commands(&self) -> bool {
        self.is_live && !self.is_watching
    }
}
