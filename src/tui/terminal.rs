//! The real terminal: taken whole, given back whatever happens, written to once a frame.
//!
//! Owns modes, escape sequences and signals. It must not know what is drawn.

mod encoder;
mod foreground;
mod osc;
mod tty_writer;

use std::{
    future::poll_fn,
    io::{self, Write},
    os::fd::AsFd as _,
    process::Stdio,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    task::Poll,
    time::Duration,
};

use crossterm::{
    event::{Event, EventStream, KeyEventKind, MouseButton, MouseEventKind},
    terminal as tty,
};
use futures_util::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{self, Signal as Unix},
    unistd::Pid,
};
use ratatui::{Terminal as Screen, TerminalOptions, Viewport, backend::Backend as _, buffer::Buffer, layout::Rect};
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal as listen},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout},
};

pub use encoder::EncodingBackend;
pub use foreground::ToolPrograms;
pub use osc::supports_progress;

use self::tty_writer::TtyWriter;
use super::{
    export::{Export, ExportTool},
    host::{ClockReading, HostInput, ScreenHost},
    key::KeyPress,
    notification::{Notification, TerminalProgress},
};
use crate::{file_limit, program_path};

/// Number of the signal that Ctrl-C stands for.
pub const INTERRUPT: i32 = Unix::SIGINT as i32;

/// Events that may wait while a frame is drawn.
const EVENT_QUEUE: usize = 1024;

/// How soon a process that a signal is to stop has stopped, however busy the machine is.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

// The title that was there, kept aside.
const SAVE_TITLE: &str = "\x1b[22;2t";
// Alternate screen, bracketed paste, focus told. The cursor is hidden by the first frame.
const ENTER: &str = "\x1b[?1049h\x1b[2J\x1b[?2004h\x1b[?1004h";
// Ends a torn synchronised update too.
const LEAVE: &str =
    "\x1b[?2026l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?1004l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l\x1b[23;2t";
// Buttons, the wheel, and motion while a button is held down.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1002l\x1b[?1000l";

/// True while the terminal is ours.
static TERMINAL_IN_USE: AtomicBool = AtomicBool::new(false);

/// The progress mark that the terminal shows for us.
static PROGRESS_MARK: AtomicU8 = AtomicU8::new(NO_MARK);
const NO_MARK: u8 = 0;
const PLAIN_MARK: u8 = 1;
const TMUX_MARK: u8 = 2;

/// Who is told what besides the screen, and by which programs and sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TtyOptions {
    /// Take the mouse.
    pub mouse: bool,
    /// How somebody is told who looks elsewhere.
    pub notify: NotifyMethod,
    /// Show progress outside of the screen.
    pub progress: bool,
    /// The terminal is tmux: what is meant for the terminal around it has to be handed through.
    pub tmux: bool,
    /// Editor and pager.
    pub programs: ToolPrograms,
}

/// A way to tell somebody who looks elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotifyMethod {
    /// Nobody is told.
    Off,
    /// The terminal's bell.
    Bell,
    /// `OSC 9`: iTerm2, WezTerm, Ghostty, Windows Terminal.
    Osc9,
    /// `OSC 777`: urxvt, foot, Ghostty, WezTerm.
    Osc777,
    /// A program with arguments; title and text are added.
    Command(Vec<String>),
}

/// Gives the terminal back. Safe to call at any time; the hook of a panic has to, or nobody could read what it says.
pub fn restore() {
    if TERMINAL_IN_USE.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        // Nothing can be done about a terminal that is gone.
        let _ = match PROGRESS_MARK.swap(NO_MARK, Ordering::SeqCst) {
            PLAIN_MARK => out.write_all(osc::CLEAR_PROGRESS.as_bytes()),
            TMUX_MARK => out.write_all(osc::through_tmux(osc::CLEAR_PROGRESS).as_bytes()),
            _ => Ok(()),
        };
        let _ = out.write_all(LEAVE.as_bytes());
        let _ = out.flush();
        let _ = tty::disable_raw_mode();
    }
}

fn enter_terminal(mouse: bool) -> io::Result<()> {
    tty::enable_raw_mode()?;
    TERMINAL_IN_USE.store(true, Ordering::SeqCst);
    io::stdout().write_all(SAVE_TITLE.as_bytes())?;
    set_modes(mouse)
}

/// Takes a terminal again that is ours already, whatever a shell made of it meanwhile.
fn reenter_terminal(mouse: bool) -> io::Result<()> {
    // What is raw already is not made raw again, and nobody tells when a shell sets a terminal back.
    tty::disable_raw_mode()?;
    tty::enable_raw_mode()?;
    set_modes(mouse)
}

fn set_modes(mouse: bool) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(ENTER.as_bytes())?;
    if mouse {
        out.write_all(MOUSE_ON.as_bytes())?;
    }
    out.flush()
}

/// Collects a frame and hands it over in one write, inside a synchronised update.
#[derive(Debug)]
struct FrameOutput {
    out: TtyWriter,
    frame: Vec<u8>,
    /// A frame could not be written, and whoever drew it was told.
    write_failed: bool,
}

impl FrameOutput {
    const BEGIN: &'static [u8] = b"\x1b[?2026h";
    const END: &'static [u8] = b"\x1b[?2026l";

    fn new() -> Self {
        Self { out: TtyWriter::open(), frame: Vec::new(), write_failed: false }
    }
}

impl Write for FrameOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.frame.is_empty() {
            self.frame.extend_from_slice(Self::BEGIN);
        }
        self.frame.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // What is written on the way out, after the terminal was given back or lost, is for nobody. It must not fail
        // either: the drawing library then complains on stderr, and panics if that is gone with the terminal.
        if self.frame.is_empty() || self.write_failed || !TERMINAL_IN_USE.load(Ordering::SeqCst) {
            self.frame.clear();
            return Ok(());
        }
        self.frame.extend_from_slice(Self::END);
        let written = self.out.write_all(&self.frame);
        self.frame.clear();
        self.write_failed = written.is_err();
        written
    }
}

/// Signals that end a program by default and that it can answer: whoever listens to them gives the terminal back and ends
/// what it has started. Of an abort this catches the signal that others send; one of our own ends the program all the
/// same.
const TERMINATION_SIGNALS: [Unix; 9] = [
    Unix::SIGTERM,
    Unix::SIGQUIT,
    Unix::SIGABRT,
    Unix::SIGUSR1,
    Unix::SIGUSR2,
    Unix::SIGALRM,
    Unix::SIGVTALRM,
    Unix::SIGPROF,
    Unix::SIGXCPU,
];

/// Signals after which a program ends, whatever it is doing.
#[derive(Debug)]
pub struct TerminationSignals(Vec<(Unix, Signal)>);

impl TerminationSignals {
    /// Listens from now on: none of them ends the program by itself any longer.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn listen() -> io::Result<Self> {
        let listened = TERMINATION_SIGNALS.iter().map(|kind| Ok((*kind, listen(SignalKind::from_raw(*kind as i32))?)));
        listened.collect::<io::Result<_>>().map(Self)
    }

    /// The next one. May be dropped and called again.
    pub async fn next(&mut self) -> Unix {
        poll_fn(|context| {
            let mut heard =
                self.0.iter_mut().filter_map(|(kind, signal)| signal.poll_recv(context).is_ready().then_some(*kind));
            heard.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Signals that concern a terminal program.
#[derive(Debug)]
struct TerminalSignals {
    interrupt: Signal,
    termination: TerminationSignals,
    hangup: Signal,
    resume: Signal,
}

impl TerminalSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            termination: TerminationSignals::listen()?,
            hangup: listen(SignalKind::hangup())?,
            resume: listen(SignalKind::from_raw(Unix::SIGCONT as i32))?,
        })
    }

    async fn next(&mut self) -> HostInput {
        tokio::select! {
            biased;
            ending = self.termination.next() => HostInput::Signal(ending as i32),
            _ = self.hangup.recv() => HostInput::Signal(Unix::SIGHUP as i32),
            _ = self.interrupt.recv() => HostInput::Signal(INTERRUPT),
            _ = self.resume.recv() => HostInput::Resumed,
        }
    }

    /// Stops the whole job, or the shell would not get its prompt back. Returns once it goes on.
    async fn stop_job(&mut self) -> io::Result<()> {
        // Of what went on before, nothing is to be heard now.
        let _ = self.resume.recv().now_or_never();
        signal::kill(Pid::from_raw(0), Unix::SIGTSTP)?;
        // Any thread may take the signal, so this one may get this far before all stand still. Where no shell could
        // bring the job back, it is not stopped at all.
        let _ = timeout(STOP_TIMEOUT, self.resume.recv()).await;
        Ok(())
    }
}

/// The terminal of this process.
pub struct Terminal {
    screen: Screen<EncodingBackend<FrameOutput>>,
    /// Nothing while another program has the terminal.
    events: Option<EventReader>,
    signals: TerminalSignals,
    hung_up: oneshot::Receiver<()>,
    manners: TtyOptions,
    /// The terminal changed its size, and what it shows with it, even if it is back at the size of the last frame.
    resized: bool,
    started: Instant,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("manners", &self.manners).finish_non_exhaustive()
    }
}

impl Terminal {
    /// Takes the terminal. Must be called inside a tokio runtime.
    pub fn enter(manners: TtyOptions) -> io::Result<Self> {
        let signals = TerminalSignals::new()?;
        let gone = watch_hangup()?;
        enter_terminal(manners.mouse).inspect_err(|_| restore())?;
        let screen = empty_screen(size().inspect_err(|_| restore())?).inspect_err(|_| restore())?;
        Ok(Self {
            screen,
            events: Some(EventReader::new()),
            signals,
            hung_up: gone,
            manners,
            resized: false,
            started: Instant::now(),
        })
    }

    /// Starts over with an empty screen. Not `Terminal::clear`: that asks the terminal where its cursor is, and the
    /// answer would be taken for keys.
    fn clear_screen(&mut self) -> io::Result<()> {
        self.screen.backend_mut().flush()?;
        // Else the old screen does it when it is dropped, and panics if the terminal is gone.
        self.screen.show_cursor()?;
        self.screen = empty_screen(size()?)?;
        self.send("\x1b[0m\x1b[2J")
    }

    fn send(&mut self, sequence: &str) -> io::Result<()> {
        self.screen.backend_mut().send(sequence.as_bytes())
    }

    /// Sends what is meant for the terminal that a person sees.
    fn send_to_outer_terminal(&mut self, sequence: &str) {
        // Into the frame that follows; a Vec takes everything.
        let _ = if self.manners.tmux { self.send(&osc::through_tmux(sequence)) } else { self.send(sequence) };
    }

    async fn run_export_tool(&mut self, handout: &Export) -> Result<Option<HostInput>, String> {
        let file = foreground::write_private_copy(handout)
            .map_err(|error| format!("cannot write a temporary file: {error}"))?;
        let command = foreground::command(&self.manners.programs, handout, &file)?;
        let program = command.get_program().to_string_lossy().into_owned();
        let names = match handout.tool {
            ExportTool::Editor => "VISUAL or EDITOR",
            ExportTool::Pager => "PAGER",
        };
        match foreground::foreground(command, &mut self.signals).await {
            Ok(foreground::ForegroundEnd::Interrupted(input)) => Ok(Some(input)),
            Ok(foreground::ForegroundEnd::Exited(0)) => Ok(None),
            Ok(foreground::ForegroundEnd::Exited(code)) => Err(format!("`{program}` ended with code {code}")),
            Ok(foreground::ForegroundEnd::Killed(signal)) => Err(format!("`{program}` was ended by {signal}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("there is no program `{program}`; set {names} to one that is installed"))
            }
            Err(error) => Err(format!("cannot start `{program}`: {error}; set {names} to another program")),
        }
    }
}

/// The whole terminal as it is now.
fn size() -> io::Result<Rect> {
    let (width, height) = tty::size()?;
    Ok(Rect { x: 0, y: 0, width, height })
}

/// A screen that nothing was drawn on. Its area is fixed: the drawing library would follow a new size by asking the
/// terminal where its cursor is, and whatever arrives before the answer is heard of only after the next key.
fn empty_screen(area: Rect) -> io::Result<Screen<EncodingBackend<FrameOutput>>> {
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    Screen::with_options(EncodingBackend::new(FrameOutput::new()), options)
}

/// Tells when nobody is at the other end of the terminal any more. A hang-up reaches only those whose session it ends,
/// and crossterm reads the end of its input over and over.
fn watch_hangup() -> io::Result<oneshot::Receiver<()>> {
    let terminal = io::stdout().as_fd().try_clone_to_owned()?;
    let (tell, told) = oneshot::channel();
    // It waits for as long as the program lives, and is one sleeping thread.
    std::thread::Builder::new().name("terminal".into()).spawn(move || {
        // Nothing is asked for: only the end is told then.
        let mut watched = [PollFd::new(terminal.as_fd(), PollFlags::empty())];
        while let Err(Errno::EINTR | Errno::EAGAIN) = poll(&mut watched, PollTimeout::NONE) {}
        // Nobody listens once the screen was left.
        let _ = tell.send(());
    })?;
    Ok(told)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Keys of the terminal, read by a thread of their own. A crossterm stream wakes only the task that polled it first, so
/// it must not be polled by a loop that looks without waiting; a channel may be. A poll may never return once the terminal is gone,
/// so it must not happen on a thread of the runtime, which runs the agents, too.
struct EventReader {
    received: mpsc::Receiver<io::Result<Event>>,
    /// Ends the reading when it is dropped.
    stop: oneshot::Sender<()>,
    reading: JoinHandle<()>,
}

impl EventReader {
    fn new() -> Self {
        let (send, received) = mpsc::channel(EVENT_QUEUE);
        let (stop, mut stopped) = oneshot::channel();
        // Made here and not by the thread: from now on a change of size is noticed, also one before the first frame.
        let mut stream = EventStream::new();
        let runtime = Handle::current();
        let read = async move {
            loop {
                let event = tokio::select! {
                    biased;
                    _ = &mut stopped => return,
                    event = stream.next() => event,
                };
                let Some(event) = event else { return };
                if send.send(event).await.is_err() {
                    return;
                }
            }
        };
        let reading = tokio::task::spawn_blocking(move || runtime.block_on(read));
        Self { received, stop, reading }
    }

    /// Reads no more, from the moment that this returns; a terminal that is gone is not waited for.
    async fn stop(self) {
        let Self { received, stop, reading } = self;
        drop((received, stop));
        let _ = timeout(STOP_TIMEOUT, reading).await;
    }

    async fn next(events: &mut Option<Self>) -> Option<io::Result<Event>> {
        match events {
            Some(events) => events.received.recv().await,
            None => None,
        }
    }
}

impl ScreenHost for Terminal {
    fn clock(&self) -> ClockReading {
        ClockReading { now: self.started.elapsed(), wall: Timestamp::now() }
    }

    async fn input(&mut self) -> HostInput {
        let input = tokio::select! {
            biased;
            signal = self.signals.next() => signal,
            _ = &mut self.hung_up => HostInput::Closed,
            event = EventReader::next(&mut self.events) => match event {
                Some(Ok(event)) => translate(event),
                Some(Err(_)) | None => HostInput::Closed,
            },
        };
        self.resized |= matches!(input, HostInput::Resize(..));
        input
    }

    fn draw(&mut self, paint: &mut dyn FnMut(&mut Buffer)) -> io::Result<()> {
        if std::mem::take(&mut self.resized) || size()? != self.screen.get_frame().area() {
            self.clear_screen()?;
        }
        self.screen.draw(|frame| paint(frame.buffer_mut())).map(|_| ())
    }

    fn title(&mut self, title: &str) {
        // Into the frame that follows; a Vec takes everything.
        let _ = self.send(&osc::title(title));
    }

    fn progress(&mut self, gauge: TerminalProgress) {
        if self.manners.progress {
            let mark = match (gauge, self.manners.tmux) {
                (TerminalProgress::None, _) => NO_MARK,
                (TerminalProgress::Percent { .. }, false) => PLAIN_MARK,
                (TerminalProgress::Percent { .. }, true) => TMUX_MARK,
            };
            PROGRESS_MARK.store(mark, Ordering::SeqCst);
            self.send_to_outer_terminal(&osc::progress(gauge));
        }
    }

    fn notify(&mut self, news: &Notification) -> Result<(), String> {
        match &self.manners.notify {
            NotifyMethod::Off => {}
            // tmux has a bell of its own, and hands it on by itself.
            NotifyMethod::Bell => {
                let _ = self.send("\x07");
            }
            NotifyMethod::Osc9 => self.send_to_outer_terminal(&osc::osc9(&news.title, &news.text)),
            NotifyMethod::Osc777 => self.send_to_outer_terminal(&osc::osc777(&news.title, &news.text)),
            NotifyMethod::Command(words) => return spawn_notifier(words, news),
        }
        Ok(())
    }

    fn copy(&mut self, text: &str) {
        let _ = self.send(&osc::clipboard(text));
    }

    fn mouse(&mut self, ours: bool) -> io::Result<()> {
        self.manners.mouse = ours;
        self.send(if ours { MOUSE_ON } else { MOUSE_OFF })
    }

    fn clear(&mut self) -> io::Result<()> {
        reenter_terminal(self.manners.mouse)?;
        self.clear_screen()
    }

    async fn open(&mut self, handout: &Export) -> Result<Option<HostInput>, String> {
        if let Some(events) = self.events.take() {
            events.stop().await;
        }
        restore();
        let end = self.run_export_tool(handout).await;
        let taken = enter_terminal(self.manners.mouse).and_then(|()| self.clear_screen());
        self.events = Some(EventReader::new());
        taken.map_err(|error| format!("cannot take the terminal again: {error}"))?;
        end
    }

    async fn suspend(&mut self) -> io::Result<()> {
        // The reader of keys stays: a stopped program reads nothing, and a new reader could miss the first key.
        restore();
        self.signals.stop_job().await?;
        enter_terminal(self.manners.mouse)?;
        self.clear_screen()
    }
}

/// Starts the program that tells somebody, and does not wait for it.
fn spawn_notifier(words: &[String], news: &Notification) -> Result<(), String> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let mut command = tokio::process::Command::new(program);
    file_limit::restore_in(command.as_std_mut());
    let started = command
        .args(arguments)
        .env("PATH", program_path::search_path())
        .args([&news.title, &news.text])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    // The runtime reaps it.
    started.map(|_| ()).map_err(|error| format!("cannot run `{program}`: {error}; correct ui.notify_command"))
}

fn translate(event: Event) -> HostInput {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => HostInput::Ignored,
        Event::Key(key) => HostInput::Key(KeyPress::from_event(key)),
        Event::Paste(text) => HostInput::Paste(text),
        Event::Resize(width, height) => HostInput::Resize(width, height),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => HostInput::Click(mouse.column, mouse.row),
            MouseEventKind::Drag(MouseButton::Left) => HostInput::Drag(mouse.column),
            MouseEventKind::ScrollDown => HostInput::Wheel(mouse.column, mouse.row, true),
            MouseEventKind::ScrollUp => HostInput::Wheel(mouse.column, mouse.row, false),
            _ => HostInput::Ignored,
        },
        Event::FocusGained => HostInput::Focus(true),
        Event::FocusLost => HostInput::Focus(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entered_terminal_is_restored() {
        for mode in ["1049", "2004", "1004", "1000", "1002", "1006"] {
            let on = format!("\x1b[?{mode}h");
            assert!(ENTER.contains(&on) || MOUSE_ON.contains(&on), "{mode} is never set");
            assert!(LEAVE.contains(&format!("\x1b[?{mode}l")), "{mode} is never reset");
        }
        assert!(LEAVE.contains("\x1b[?25h"));
    }
}
