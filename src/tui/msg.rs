//! What reaches the screen's state: keys, the mouse, time, answers of the shell.

use std::time::Duration;

use super::{breakpoint::TimeStop, key::KeyPress};
use crate::tape::Millis;

/// A message to [`super::update::update`].
#[derive(Clone, Debug, PartialEq)]
pub enum ScreenMessage {
    /// A key was pressed.
    Key(KeyPress),
    /// Text was pasted.
    Paste(String),
    /// The left button was pressed at a cell.
    Click {
        /// Column.
        x: u16,
        /// Row.
        y: u16,
    },
    /// The left button is held down over a column.
    Drag {
        /// Column.
        x: u16,
    },
    /// The wheel was turned over a cell.
    Wheel {
        /// Column.
        x: u16,
        /// Row.
        y: u16,
        /// Towards the end.
        down: bool,
    },
    /// The terminal has a new size.
    Resize {
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
    /// What time it is.
    Tick {
        /// Since the screen came up.
        now: Duration,
        /// In the run that is shown.
        time: Millis,
        /// In the run, in the present.
        present: Millis,
    },
    /// A search ended, at a position of the pane that it was started from.
    SearchFinished(Option<usize>),
    /// Time has stopped by itself.
    TimeStopped(TimeStop),
    /// Something to tell.
    ShowMessage(String),
}
