//! What the state wants done in the world. Plain data; the shell executes it.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{breakpoint::Condition, export::ExportRequest, model::Playback};
use crate::{
    run::{SeekTarget, state::AttemptId},
    tape::{Seq, UnitKey, note::Amendment},
};

/// An order of a person to the run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunCommand {
    /// A new attempt at a unit.
    Retry {
        /// Unit.
        unit: UnitKey,
        /// What is to be otherwise than planned; `None` for the same again.
        amendment: Option<Amendment>,
    },
    /// New attempts at everything that has failed by now; where nothing has, at what had no turn, or else at saving.
    RetryAll,
    /// New attempts at these units, which failed for the same reason.
    RetryFailed {
        /// Units.
        units: Vec<UnitKey>,
    },
    /// Stop a unit.
    Stop {
        /// Unit.
        unit: UnitKey,
    },
    /// Start nothing new, let what runs end.
    Drain,
    /// Go on without waiting for the limit.
    LiftLimit,
    /// Run so many more units at once, or fewer.
    AdjustConcurrency {
        /// How many more.
        by: i32,
    },
    /// Interrupt everything, giving it time to say so.
    StopAll,
    /// End everything now.
    KillAll,
    /// Let the tool calls of a unit wait, from the next one on.
    Hold {
        /// Unit.
        unit: UnitKey,
    },
    /// Let the tool calls of a unit pass again, and those that wait.
    Release {
        /// Unit.
        unit: UnitKey,
    },
    /// Let a unit run until one of its calls meets a condition; that one waits.
    RunUntil {
        /// Unit.
        unit: UnitKey,
        /// Id of the call that it stands at, where known.
        call: Option<Arc<str>>,
        /// Conditions of which one is to be met.
        conditions: Vec<Condition>,
    },
    /// Let one call pass.
    Step {
        /// Unit.
        unit: UnitKey,
        /// Id of the call, where known.
        call: Option<Arc<str>>,
    },
    /// Refuse a call.
    Deny {
        /// Unit.
        unit: UnitKey,
        /// Id of the call, where known.
        call: Option<Arc<str>>,
        /// What the model reads.
        reason: String,
    },
    /// Let one call pass with other arguments.
    Edit {
        /// Unit.
        unit: UnitKey,
        /// Id of the call, where known.
        call: Option<Arc<str>>,
        /// The arguments.
        input: Map<String, Value>,
    },
}

/// A wish of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum ScreenEffect {
    /// Pass an order on to the run.
    Command(RunCommand),
    /// Leave the screen.
    Quit,
    /// Hand the terminal back until the program is continued.
    Suspend,
    /// Put a text on the clipboard.
    Copy {
        /// The text.
        text: String,
        /// What it is, to be said afterwards.
        what: String,
    },
    /// Put the true bytes of entries on the clipboard.
    CopyEntries {
        /// Entries.
        seqs: Vec<Seq>,
        /// What they are.
        what: String,
    },
    /// Show a moment.
    Seek(SeekTarget),
    /// Show a moment that somebody points at; the last one counts.
    Scrub(SeekTarget),
    /// Go on until something happens.
    RunUntil(Condition),
    /// Put the true text of the section of the document on screen that a line is in on the clipboard.
    CopySection {
        /// Line.
        line: usize,
    },
    /// Put on the clipboard what a call names, or a text if it names nothing.
    CopyName {
        /// The call: its entry and its block.
        row: Option<(Seq, u8)>,
        /// The text otherwise.
        text: String,
        /// What that is.
        what: &'static str,
    },
    /// Show another moment, relative to this one.
    Step(TimeStep),
    /// Give text to an editor or a pager.
    Export(ExportRequest),
    /// Change how time passes.
    SetPace(Playback),
    /// Look for text in what is not loaded.
    Find(SearchRequest),
    /// Take the mouse, or leave it to the terminal.
    Mouse(bool),
    /// Draw everything again.
    Redraw,
}

/// A step through time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeStep {
    /// One entry.
    Entry {
        /// Towards the end.
        forward: bool,
    },
    /// One turn of a unit.
    Turn {
        /// Whose; an index into the units.
        unit: usize,
        /// Towards the end.
        forward: bool,
    },
    /// One row of a unit.
    Action {
        /// Whose; an index into the units.
        unit: usize,
        /// Towards the end.
        forward: bool,
    },
    /// One failure or denial, of whatever unit.
    Failure {
        /// Towards the end.
        forward: bool,
    },
    /// To the last entry there is.
    End,
}

/// A search over lines that have to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRequest {
    /// Text.
    pub query: String,
    /// Where.
    pub scope: SearchScope,
    /// Position that the search starts beside.
    pub from: usize,
    /// Towards the end.
    pub forward: bool,
}

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchScope {
    /// Rows of an attempt, by the bytes of their entries.
    Rows(AttemptId),
    /// Entries of an attempt.
    Entries(AttemptId),
    /// Lines of the document on screen.
    Document,
}
