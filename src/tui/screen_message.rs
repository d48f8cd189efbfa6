//! Messages to the screen model: keys, the mouse, time, and results of the shell.

use std::time::Duration;

use super::{
    edited_text::{EditTarget, UnusableEdit},
    key::KeyPress,
    model::PaneMatches,
    search_match::FoundRow,
};
use ingestdeck_core::{run::breakpoint::TimeStop, tape::Millis};

/// A message to [`super::update::update`].
#[derive(Clone, Debug, PartialEq)]
pub enum ScreenMessage {
    Key(KeyPress),
    Paste(String),
    /// The left button was pressed at a cell.
    Click {
        x: u16,
        y: u16,
    },
    /// The left button is dragged to a column.
    Drag {
        x: u16,
    },
    /// The wheel was turned over a cell.
    Wheel {
        x: u16,
        y: u16,
        /// True for scrolling towards the end.
        down: bool,
    },
    /// The terminal was resized.
    Resize {
        width: u16,
        height: u16,
    },
    Tick {
        /// Time since the screen opened.
        now: Duration,
        /// Run time of the moment that is shown.
        time: Millis,
        /// Run time of the present.
        present: Millis,
    },
    /// An editor was closed.
    Edited {
        target: EditTarget,
        text: Result<String, UnusableEdit>,
    },
    /// A search ended, with the matching position in the pane that started it.
    SearchFinished(Option<usize>),
    /// The matches in the pane that started the last search are counted.
    MatchesCounted(PaneMatches),
    /// What a search of the whole run found since the last message, and how many attempts of how many it searched.
    FoundInRun {
        rows: Vec<FoundRow>,
        searched: (usize, usize),
    },
    /// A goal or a breakpoint stopped time.
    TimeStopped(TimeStop),
}
