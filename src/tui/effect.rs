//! Effects that the screen model requests. Plain data; the shell performs them.

use super::{entry_part::EntryPart, home_choice::HomeChoice, playback::Playback};
use ingestdeck_core::{
    control::{BreakCondition, RunCommand},
    run::{SeekTarget, bookmark::BookmarkChange, state::AttemptId},
    tape::Seq,
};

/// An effect that the screen model requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScreenEffect {
    /// Send a command to the run.
    Command(RunCommand),
    Quit,
    /// Leave the screen; the run continues.
    Detach,
    /// Leave the home screen for what was chosen there.
    Choose(HomeChoice),
    /// Show the call that wrote a line.
    Explain(WrittenLine),
    /// Restore the terminal and suspend the program.
    Suspend,
    /// Copy a text to the clipboard.
    Copy {
        text: String,
        /// Name of the text for the confirmation message.
        what: String,
    },
    /// Copy the recorded bytes of entries to the clipboard.
    CopyEntries {
        seqs: Vec<Seq>,
        /// Name of the entries for the confirmation message.
        what: String,
    },
    /// Seek to a moment.
    Seek(SeekTarget),
    /// Seek to a moment while the user drags on the timeline bar; only the latest target matters.
    Scrub(SeekTarget),
    /// Play until a condition is met.
    RunUntil(BreakCondition),
    /// Copy the original text of a section of the document on screen to the clipboard.
    CopySection {
        /// A line of the section.
        line: usize,
    },
    /// Copy the target of a call to the clipboard, or a text if the call has none.
    CopyName {
        /// Entry and block of the call.
        row: Option<(Seq, u8)>,
        /// Text to copy otherwise.
        text: String,
        /// Name of that text for the confirmation message.
        what: &'static str,
    },
    /// Seek relative to the current moment.
    Step(TimeStep),
    /// Open text in an editor or a pager.
    Export(ExportRequest),
    /// Open the file that a call wrote in an editor.
    OpenFile {
        attempt_id: AttemptId,
        /// Index of the row of the call.
        row: usize,
        /// Paths below the project that the attempt wrote, if the present is shown.
        paths: Vec<String>,
    },
    /// Edit a changed file that waits for a review.
    EditReviewed(String),
    /// Edit the text of the open form in another program.
    EditText(String),
    /// Change the bookmarks, and keep the change.
    ChangeBookmarks(BookmarkChange),
    /// Change how the timeline advances.
    SetPlayback(Playback),
    /// Search for text outside of the loaded rows.
    Find(SearchRequest),
    /// Search the actions of all attempts for a text.
    FindInRun(String),
    /// Search all runs and sessions for a text.
    FindInRecords(String),
    /// Capture the mouse, or return it to the terminal.
    Mouse(bool),
    /// Redraw the whole screen.
    Redraw,
}

/// A step through time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TimeStep {
    /// One entry forward or backward.
    Entry { forward: bool },
    /// One turn of a unit.
    Turn {
        /// Index of the unit.
        unit: usize,
        forward: bool,
    },
    /// One row of a unit.
    Action {
        /// Index of the unit.
        unit: usize,
        forward: bool,
    },
    /// To the next or previous failure or denial of any unit.
    Failure { forward: bool },
    /// To the last entry.
    End,
}

/// A search in entries or lines that must be read first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRequest {
    pub query: String,
    pub scope: SearchScope,
    /// Position next to which the search starts. It wraps around, so this position is searched last.
    pub from: usize,
    /// True to search towards the end.
    pub forward: bool,
}

/// Range of a search. Only the first one is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchScope {
    /// Content in memory of the page with this name.
    Page(&'static str),
    /// Rows of an attempt; the bytes of their entries are searched.
    Rows(AttemptId),
    /// Entries of an attempt.
    Entries(AttemptId),
    /// Rows of the session whose first attempt this is, and of its sub-agents, in the order of the reading page.
    Session(AttemptId),
    /// Lines of the document on screen.
    Document,
}

/// The kind of program that receives an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportTool {
    Editor,
    Pager,
}

/// A request to export content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExportRequest {
    pub tool: ExportTool,
    /// Description for a message.
    pub what: String,
    /// Entries of the tape to export.
    pub entries: Vec<Seq>,
    /// The same content for a pager: parts of views, or a text.
    pub pager_content: PagerContent,
    /// Index of the selected entry in `entries`.
    pub selected: Option<usize>,
}

impl ExportRequest {
    /// Content that the tape does not have.
    pub(crate) fn pager_only(what: &str, pager_content: PagerContent, tool: ExportTool) -> Self {
        Self {
            tool,
            what: what.to_owned(),
            entries: Vec::new(),
            pager_content,
            selected: None,
        }
    }
}

/// Content for a pager.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PagerContent {
    /// Parts of views, rendered on export.
    Parts(Vec<EntryPart>),
    Text(String),
    /// The document on screen.
    Document,
}

/// A line of an artifact whose writer is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenLine {
    /// Path of the artifact, relative to the project.
    pub path: String,
    /// Its number in the artifact, from 1; `None` for a removed line.
    pub line: Option<usize>,
    /// Its text; `None` for any line.
    pub text: Option<String>,
    /// Number of lines of a created artifact, if it is known.
    pub lines: Option<usize>,
}
