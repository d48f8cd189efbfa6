//! The environment of the screen behind one small trait: a terminal in production, a script in tests.

use std::{io, time::Duration};

use ingestdeck_core::diagnostic::Problem;

use jiff::Timestamp;
use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    edited_text::UnusableEdit,
    export::Export,
    key::KeyPress,
    notification::{Notification, TerminalProgress},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Time since the screen opened.
    pub now: Duration,
    pub wall: Timestamp,
}

/// An input from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostInput {
    Key(KeyPress),
    Paste(String),
    /// Left button pressed at a cell (column, row).
    Click(u16, u16),
    /// Left button dragged to a column.
    Drag(u16),
    /// Wheel turned over a cell (column, row); true means down.
    Wheel(u16, u16, bool),
    /// New size (columns, rows).
    Resize(u16, u16),
    /// True if the terminal gained the focus, false if it lost it.
    Focus(bool),
    /// The process was continued after it was stopped.
    Resumed,
    Signal(i32),
    Closed,
    /// An event without meaning for the screen.
    Ignored,
}

/// How an editor or a pager left its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolExit {
    /// The signal that interrupted it, if any.
    pub signal: Option<HostInput>,
    /// What an editor left of a text that is wanted.
    pub edited: Option<Result<String, UnusableEdit>>,
}

/// A function that paints a frame into an empty buffer, or the part of it outside an area that keeps the content of the
/// last frame, and returns that area. The flag is true if the last frame is on the screen; otherwise the area is empty.
pub type FramePainter<'a> = dyn FnMut(&mut Buffer, bool) -> Rect + 'a;

/// Copies the kept area of the last frame into the next one of the same size.
pub fn copy_kept_area(last: &Buffer, next: &mut Buffer, kept: Rect) {
    for position in kept
        .intersection(last.area)
        .intersection(next.area)
        .positions()
    {
        next[position] = last[position].clone();
    }
}

/// Draws frames and delivers input.
pub trait ScreenHost {
    fn clock(&self) -> ClockReading;

    /// Waits for the next input. Cancel-safe: dropping the future loses no input.
    fn input(&mut self) -> impl Future<Output = HostInput>;

    /// Whether the terminal was closed, which also explains a failed write.
    fn is_closed(&self) -> bool {
        false
    }

    /// Draws one frame with a single write.
    fn draw(&mut self, paint: &mut FramePainter<'_>) -> io::Result<()>;

    /// Sets the title with the next frame.
    fn title(&mut self, title: &str);

    /// Sets the terminal's progress indicator with the next frame.
    fn progress(&mut self, gauge: TerminalProgress);

    /// Sends a notification outside the screen.
    fn notify(&mut self, notification: &Notification) -> Result<(), Problem>;

    /// Puts text on the clipboard with the next frame.
    fn copy(&mut self, text: &str);

    /// Captures the mouse, or releases it to the terminal.
    fn mouse(&mut self, ours: bool) -> io::Result<()>;

    /// Discards the known screen content, so that the next frame is drawn completely.
    fn clear(&mut self) -> io::Result<()>;

    /// Gives the terminal to an editor or a pager until that exits.
    fn open(&mut self, export: &Export) -> impl Future<Output = Result<ToolExit, Problem>>;

    /// Releases the terminal, stops the process, and reacquires the terminal when the process continues.
    fn suspend(&mut self) -> impl Future<Output = io::Result<()>>;
}
