//! What the search of all runs and sessions found. The caller searches; this reads no file.

use std::path::PathBuf;

use tokio::sync::{mpsc, watch};

/// The search of all runs and sessions, which another thread does.
#[derive(Clone, Debug)]
pub struct RecordSearchChannel {
    /// Receives each text as it is typed.
    pub queries: mpsc::UnboundedSender<String>,
    /// What is found for the last text.
    pub found: watch::Receiver<RecordMatches>,
    /// What is shown first: the search from which a record was opened.
    pub reopened: Option<Box<OpenSearch>>,
}

/// What was found so far, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordMatches {
    /// The text that was searched, as it was typed.
    pub query: String,
    /// What an entry must contain, for the highlights.
    pub texts: Vec<String>,
    pub rows: Vec<RecordMatch>,
    /// True if there are more than those of `rows`.
    pub has_more: bool,
    /// What is done now; empty once everything is searched.
    pub progress: String,
    /// Why nothing is found, with a remedy; empty if the search works.
    pub problem: String,
    /// What is not searched, one sentence each.
    pub left_out: Vec<String>,
}

/// An entry that contains the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordMatch {
    /// The id of its run; empty for a session.
    pub run: String,
    /// The file of its session; empty for a run.
    pub session: PathBuf,
    pub entry: u64,
    /// The short id of its run or session.
    pub short: String,
    /// Its unit and attempt; empty if it belongs to none.
    pub unit: String,
    /// `call`, `result`, `answer` or another kind.
    pub kind: String,
    /// The tool of a call or a result; empty for others.
    pub tool: String,
    pub has_failed: bool,
    /// Time since it was written.
    pub age: String,
    /// The found text, and what is around it.
    pub text: String,
}

impl RecordMatch {
    /// True for an entry of a session file.
    pub(crate) fn is_of_session(&self) -> bool {
        self.run.is_empty()
    }
}

/// A search and the place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSearch {
    pub found: RecordMatches,
    /// Index of the selected row.
    pub selected: usize,
}
