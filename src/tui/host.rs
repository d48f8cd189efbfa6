//! The whole outside world of the screen, behind one small trait: a terminal in production, a script in tests.

use std::{io, time::Duration};

use jiff::Timestamp;
use ratatui::buffer::Buffer;

use super::{
    export::Export,
    key::KeyPress,
    notification::{Notification, TerminalProgress},
};

/// What time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Since the screen came up.
    pub now: Duration,
    /// By the wall clock.
    pub wall: Timestamp,
}

/// Something from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostInput {
    /// A key.
    Key(KeyPress),
    /// Pasted text.
    Paste(String),
    /// The left button at a cell.
    Click(u16, u16),
    /// The left button, held down over a column.
    Drag(u16),
    /// The wheel over a cell; true towards the end.
    Wheel(u16, u16, bool),
    /// A new size.
    Resize(u16, u16),
    /// The terminal got the focus, or lost it.
    Focus(bool),
    /// The program goes on after it was stopped.
    Resumed,
    /// A signal that ends programs.
    Signal(i32),
    /// There is no more input.
    Closed,
    /// Nothing that concerns us.
    Ignored,
}

/// A place to draw to, and keys.
pub trait ScreenHost {
    /// What time it is.
    fn clock(&self) -> ClockReading;

    /// The next input. Dropping the future loses nothing.
    fn input(&mut self) -> impl Future<Output = HostInput>;

    /// Draws one frame in one write.
    fn draw(&mut self, paint: &mut dyn FnMut(&mut Buffer)) -> io::Result<()>;

    /// Sets the title with the next frame.
    fn title(&mut self, title: &str);

    /// Shows how far it is, outside of the screen, with the next frame.
    fn progress(&mut self, gauge: TerminalProgress);

    /// Tells somebody who looks elsewhere. The error is a sentence.
    fn notify(&mut self, news: &Notification) -> Result<(), String>;

    /// Puts text on the clipboard with the next frame.
    fn copy(&mut self, text: &str);

    /// Takes the mouse, or leaves it to the terminal.
    fn mouse(&mut self, ours: bool) -> io::Result<()>;

    /// Forgets what is on the screen, so that the next frame is painted whole.
    fn clear(&mut self) -> io::Result<()>;

    /// Hands the terminal to an editor or a pager until that ends. Gives the signal that came instead, if one did; the
    /// error is a sentence.
    fn open(&mut self, handout: &Export) -> impl Future<Output = Result<Option<HostInput>, String>>;

    /// Hands the terminal back, stops the program, and takes the terminal again when it goes on.
    fn suspend(&mut self) -> impl Future<Output = io::Result<()>>;
}
