//! The real terminal: taken whole, given back whatever happens, written to once a frame.
//!
//! Owns modes, escape sequences and signals. It must not know what is drawn.

use std::{
    io::{self, Write},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use crossterm::{
    event::{Event, EventStream, KeyEventKind, MouseButton, MouseEventKind},
    terminal as tty,
};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use nix::sys::signal::{self, Signal as Unix};
use ratatui::{Terminal as Screen, backend::CrosstermBackend, buffer::Buffer};
use tokio::{
    signal::unix::{Signal, SignalKind, signal as listen},
    sync::mpsc,
    task::JoinHandle,
    time::Instant,
};

use super::{
    key::Key,
    world::{Input, Moment, World},
};

/// Number of the signal that Ctrl-C stands for.
pub const INTERRUPT: i32 = Unix::SIGINT as i32;

/// Events that may wait while a frame is drawn.
const EVENTS: usize = 1024;

// Alternate screen, title kept aside, bracketed paste. The cursor is hidden by the first frame.
const ENTER: &str = "\x1b[22;2t\x1b[?1049h\x1b[2J\x1b[?2004h";
// Ends a torn synchronised update too.
const LEAVE: &str = "\x1b[?2026l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l\x1b[23;2t";
// Buttons and the wheel, no motion.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1002l\x1b[?1000l";

/// True while the terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back. Safe to call at any time, from a panic too.
pub fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        // Nothing can be done about a terminal that is gone.
        let _ = out.write_all(LEAVE.as_bytes());
        let _ = out.flush();
        let _ = tty::disable_raw_mode();
    }
}

fn take(mouse: bool) -> io::Result<()> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
    tty::enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let mut out = io::stdout();
    out.write_all(ENTER.as_bytes())?;
    if mouse {
        out.write_all(MOUSE_ON.as_bytes())?;
    }
    out.flush()
}

/// Collects a frame and hands it over in one write, inside a synchronised update.
#[derive(Debug, Default)]
struct OneWrite {
    frame: Vec<u8>,
}

impl OneWrite {
    const BEGIN: &'static [u8] = b"\x1b[?2026h";
    const END: &'static [u8] = b"\x1b[?2026l";
}

impl Write for OneWrite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.frame.is_empty() {
            self.frame.extend_from_slice(Self::BEGIN);
        }
        self.frame.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // What is written on the way out, after the terminal was given back, is for nobody. It must not fail either:
        // the drawing library then complains on stderr, and panics if that is gone with the terminal.
        if self.frame.is_empty() || !TAKEN.load(Ordering::SeqCst) {
            self.frame.clear();
            return Ok(());
        }
        self.frame.extend_from_slice(Self::END);
        let mut out = io::stdout().lock();
        let written = out.write_all(&self.frame).and_then(|()| out.flush());
        self.frame.clear();
        written
    }
}

/// Signals that concern a terminal program.
#[derive(Debug)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    go_on: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            go_on: listen(SignalKind::from_raw(Unix::SIGCONT as i32))?,
        })
    }

    async fn next(&mut self) -> Input {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Input::Signal(Unix::SIGTERM as i32),
            _ = self.hangup.recv() => Input::Signal(Unix::SIGHUP as i32),
            _ = self.interrupt.recv() => Input::Signal(INTERRUPT),
            _ = self.go_on.recv() => Input::Continued,
        }
    }
}

/// The terminal of this process.
pub struct Terminal {
    screen: Screen<CrosstermBackend<OneWrite>>,
    events: Events,
    signals: Signals,
    mouse: bool,
    started: Instant,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("mouse", &self.mouse).finish_non_exhaustive()
    }
}

impl Terminal {
    /// Takes the terminal. Must be called inside a tokio runtime.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        let signals = Signals::new()?;
        take(mouse).inspect_err(|_| restore())?;
        let screen = Screen::new(CrosstermBackend::new(OneWrite::default())).inspect_err(|_| restore())?;
        Ok(Self { screen, events: Events::new(), signals, mouse, started: Instant::now() })
    }

    /// Starts over with an empty screen. Not `Terminal::clear`: that asks the terminal where its cursor is, and the
    /// answer would be taken for keys.
    fn blank(&mut self) -> io::Result<()> {
        self.screen.backend_mut().flush()?;
        self.screen = Screen::new(CrosstermBackend::new(OneWrite::default()))?;
        self.send("\x1b[0m\x1b[2J")
    }

    fn send(&mut self, sequence: &str) -> io::Result<()> {
        self.screen.backend_mut().write_all(sequence.as_bytes())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Keys of the terminal, read by a task of their own. A crossterm stream wakes only the task that polled it first, so
/// it must not be polled by a loop that looks without waiting; a channel may be.
struct Events {
    received: mpsc::Receiver<io::Result<Event>>,
    reading: JoinHandle<()>,
}

impl Events {
    fn new() -> Self {
        let (send, received) = mpsc::channel(EVENTS);
        let reading = tokio::spawn(async move {
            let mut stream = EventStream::new();
            while let Some(event) = stream.next().await {
                if send.send(event).await.is_err() {
                    return;
                }
            }
        });
        Self { received, reading }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl World for Terminal {
    fn moment(&self) -> Moment {
        Moment { now: self.started.elapsed(), wall: Timestamp::now() }
    }

    async fn input(&mut self) -> Input {
        tokio::select! {
            biased;
            signal = self.signals.next() => signal,
            event = self.events.received.recv() => match event {
                Some(Ok(event)) => translate(event),
                Some(Err(_)) | None => Input::Closed,
            },
        }
    }

    fn draw(&mut self, paint: &mut dyn FnMut(&mut Buffer)) -> io::Result<()> {
        self.screen.draw(|frame| paint(frame.buffer_mut())).map(|_| ())
    }

    fn title(&mut self, title: &str) {
        // Into the frame that follows; a Vec takes everything.
        let _ = self.send(&format!("\x1b]2;{title}\x1b\\"));
    }

    fn copy(&mut self, text: &str) {
        let _ = self.send(&format!("\x1b]52;c;{}\x1b\\", BASE64.encode(text)));
    }

    fn mouse(&mut self, ours: bool) -> io::Result<()> {
        self.mouse = ours;
        self.send(if ours { MOUSE_ON } else { MOUSE_OFF })
    }

    fn clear(&mut self) -> io::Result<()> {
        tty::enable_raw_mode()?;
        self.blank()
    }

    fn suspend(&mut self) -> io::Result<()> {
        // The reader of keys stays: a stopped program reads nothing, and a new reader could miss the first key.
        restore();
        // The whole job stops, or the shell would not get its prompt back.
        signal::kill(nix::unistd::Pid::from_raw(0), Unix::SIGTSTP).map_err(io::Error::from)?;
        take(self.mouse)?;
        self.blank()
    }
}

fn translate(event: Event) -> Input {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => Input::Nothing,
        Event::Key(key) => Input::Key(Key::of(key)),
        Event::Paste(text) => Input::Paste(text),
        Event::Resize(width, height) => Input::Resize(width, height),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => Input::Click(mouse.column, mouse.row),
            MouseEventKind::Drag(MouseButton::Left) => Input::Drag(mouse.column),
            MouseEventKind::ScrollDown => Input::Wheel(mouse.column, mouse.row, true),
            MouseEventKind::ScrollUp => Input::Wheel(mouse.column, mouse.row, false),
            _ => Input::Nothing,
        },
        Event::FocusGained | Event::FocusLost => Input::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back() {
        for mode in ["1049", "2004", "1000", "1002", "1006"] {
            let on = format!("\x1b[?{mode}h");
            assert!(ENTER.contains(&on) || MOUSE_ON.contains(&on), "{mode} is never set");
            assert!(LEAVE.contains(&format!("\x1b[?{mode}l")), "{mode} is never reset");
        }
        assert!(LEAVE.contains("\x1b[?25h"));
    }
}
