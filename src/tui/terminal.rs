//! The real terminal: acquired completely, restored on every exit path, written once per frame.
//!
//! Owns modes, escape sequences and signals. It must not know what is drawn.

#![expect(
    clippy::disallowed_methods,
    reason = "the screen escapes what it draws"
)]

mod encoder;
mod foreground;
mod osc;
mod tty_writer;

use std::{
    future::poll_fn,
    io::{self, Write},
    os::fd::{AsFd as _, BorrowedFd},
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
use ratatui::layout::Rect;
use rustix::termios;
use tempfile::NamedTempFile;
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal as listen},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout},
};

pub use encoder::FrameWriter;
pub use foreground::ToolPrograms;
pub use osc::supports_progress;

use self::{foreground::ForegroundEnd, tty_writer::TtyWriter};
use super::{
    edited_text::UnusableEdit,
    effect::ExportTool,
    export::Export,
    host::{ClockReading, FramePainter, HostInput, ScreenHost, ToolExit},
    key::KeyPress,
    notification::{Notification, TerminalProgress},
};
use ingestdeck_core::diagnostic::{Diagnostic as _, Problem};
use ingestdeck_os::{open_file_limit, program_path};

/// Number of the signal that Ctrl-C sends.
pub(crate) const INTERRUPT: i32 = Unix::SIGINT as i32;

/// Maximum number of events queued while a frame is drawn.
const EVENT_QUEUE: usize = 1024;

/// Maximum time until a stop signal takes effect on a busy machine.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

// Saves the current title.
const SAVE_TITLE: &str = "\x1b[22;2t";
// Alternate screen, bracketed paste, focus events. The first frame hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[2J\x1b[?2004h\x1b[?1004h";
// Also ends an interrupted synchronised update.
const LEAVE: &str = "\x1b[?2026l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?1004l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l\x1b[23;2t";
// Buttons, the wheel, and motion while a button is held down.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1002l\x1b[?1000l";

/// True while the screen uses the terminal.
static TERMINAL_IN_USE: AtomicBool = AtomicBool::new(false);

/// The progress indicator that the terminal shows for this process.
static PROGRESS_MARK: AtomicU8 = AtomicU8::new(NO_MARK);
const NO_MARK: u8 = 0;
const PLAIN_MARK: u8 = 1;
const TMUX_MARK: u8 = 2;

/// Options of the terminal: mouse, notifications, progress and external programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TtyOptions {
    pub mouse: bool,
    /// How notifications are delivered.
    pub notify: NotifyMethod,
    /// Report progress to the terminal.
    pub progress: bool,
    /// The terminal is tmux: sequences for the outer terminal must be wrapped for passthrough.
    pub tmux: bool,
    pub programs: ToolPrograms,
}

/// A method to deliver notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotifyMethod {
    Off,
    Bell,
    /// `OSC 9`: iTerm2, WezTerm, Ghostty, Windows Terminal.
    Osc9,
    /// `OSC 777`: urxvt, foot, Ghostty, WezTerm.
    Osc777,
    /// A program with arguments; title and text are appended.
    Command(Vec<String>),
}

/// Restores the terminal. Safe to call at any time; the panic hook must call it, so that its message is readable.
pub fn restore() {
    if TERMINAL_IN_USE.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        // Errors are ignored: a closed terminal cannot be restored.
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

/// Reacquires a terminal that another program may have reconfigured.
fn reenter_terminal(mouse: bool) -> io::Result<()> {
    // crossterm skips raw mode if it is already enabled, and cannot detect that a shell has reset the terminal.
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

/// Collects a frame and writes it with one call, inside a synchronised update.
#[derive(Debug)]
struct FrameOutput {
    out: TtyWriter,
    frame: Vec<u8>,
    /// Writing a frame failed, and the error was reported to the caller.
    write_failed: bool,
}

impl FrameOutput {
    const BEGIN: &'static [u8] = b"\x1b[?2026h";
    const END: &'static [u8] = b"\x1b[?2026l";

    fn new() -> Self {
        Self {
            out: TtyWriter::open(),
            frame: Vec::new(),
            write_failed: false,
        }
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
        // Discard output after the terminal was released or lost.
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

/// Signals that terminate a process by default and that it can handle: the listener restores the terminal and ends the
/// child processes. SIGABRT is only caught if another process sends it; an abort of this process still ends it.
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

/// Listens for signals that must end the process.
#[derive(Debug)]
pub struct TerminationSignals(Vec<(Unix, Signal)>);

impl TerminationSignals {
    /// Starts listening; from now on, none of these signals ends the process by default.
    ///
    /// # Errors
    ///
    /// If the system does not allow it.
    pub fn listen() -> io::Result<Self> {
        let listened = TERMINATION_SIGNALS
            .iter()
            .map(|kind| Ok((*kind, listen(SignalKind::from_raw(*kind as i32))?)));
        listened.collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next signal. Cancel-safe.
    pub async fn next(&mut self) -> Unix {
        poll_fn(|context| {
            let mut heard = self
                .0
                .iter_mut()
                .filter_map(|(kind, signal)| signal.poll_recv(context).is_ready().then_some(*kind));
            heard.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Signals that a terminal program handles.
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

    /// Stops the whole job, so that the shell gets its prompt back. Returns after the job continues.
    async fn stop_job(&mut self) -> io::Result<()> {
        // Discard an earlier SIGCONT.
        let _ = self.resume.recv().now_or_never();
        signal::kill(Pid::from_raw(0), Unix::SIGTSTP)?;
        // The signal may be delivered to another thread, so this code can run before the process stops. If no shell
        // could continue the job, the process does not stop at all.
        let _ = timeout(STOP_TIMEOUT, self.resume.recv()).await;
        Ok(())
    }
}

/// The terminal of this process.
pub struct Terminal {
    screen: FrameWriter<FrameOutput>,
    /// `None` while another program uses the terminal.
    events: Option<EventReader>,
    signals: TerminalSignals,
    hung_up: oneshot::Receiver<()>,
    options: TtyOptions,
    /// The terminal was resized. Its content is then unknown, even if it has the size of the last frame again.
    resized: bool,
    started: Instant,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Terminal {
    /// Acquires the terminal. Must be called inside a tokio runtime.
    pub fn enter(options: TtyOptions) -> io::Result<Self> {
        let signals = TerminalSignals::new()?;
        let gone = watch_hangup()?;
        enter_terminal(options.mouse).inspect_err(|_| restore())?;
        let size = size().inspect_err(|_| restore())?;
        Ok(Self {
            screen: FrameWriter::new(FrameOutput::new(), size),
            events: Some(EventReader::new()),
            signals,
            hung_up: gone,
            options,
            resized: false,
            started: Instant::now(),
        })
    }

    /// Starts with an empty screen.
    fn clear_screen(&mut self) -> io::Result<()> {
        self.screen.restart(size()?);
        self.send("\x1b[0m\x1b[2J")
    }

    fn send(&mut self, sequence: &str) -> io::Result<()> {
        self.screen.send(sequence.as_bytes())
    }

    /// Sends a sequence to the outermost terminal.
    fn send_to_outer_terminal(&mut self, sequence: &str) {
        // Added to the next frame; writing to a `Vec` cannot fail.
        let _ = if self.options.tmux {
            self.send(&osc::through_tmux(sequence))
        } else {
            self.send(sequence)
        };
    }

    async fn run_export_tool(&mut self, export: &Export) -> Result<ToolExit, Problem> {
        let file = foreground::write_private_copy(export)
            .map_err(|error| Problem::new(format!("cannot write a temporary file: {error}")))?;
        match self.run_tool(export, &file).await {
            Ok(None) => {
                let edited = export
                    .edits
                    .is_some()
                    .then(|| foreground::edited_text(file));
                Ok(ToolExit {
                    signal: None,
                    edited,
                })
            }
            Ok(signal) => {
                foreground::keep_changed_file(export, file);
                Ok(ToolExit {
                    signal,
                    edited: None,
                })
            }
            Err(problem) => match foreground::keep_changed_file(export, file) {
                None => Err(problem),
                file => {
                    let edit = UnusableEdit {
                        reason: problem.to_line(),
                        file,
                    };
                    Ok(ToolExit {
                        signal: None,
                        edited: Some(Err(edit)),
                    })
                }
            },
        }
    }

    /// Runs the tool until it exits, or until an input arrives that must end the screen.
    ///
    /// # Errors
    /// If it cannot be started, or fails.
    async fn run_tool(
        &mut self,
        export: &Export,
        file: &NamedTempFile,
    ) -> Result<Option<HostInput>, Problem> {
        let command = foreground::command(&self.options.programs, export, file)?;
        let program = command.get_program().to_string_lossy().into_owned();
        let names = match export.tool {
            ExportTool::Editor => "VISUAL or EDITOR",
            ExportTool::Pager => "PAGER",
        };
        match foreground::foreground(command, &mut self.signals).await {
            Ok(ForegroundEnd::Interrupted(input)) => Ok(Some(input)),
            Ok(ForegroundEnd::Exited(0)) => Ok(None),
            Ok(ForegroundEnd::Exited(code)) => {
                Err(Problem::new(format!("`{program}` ended with code {code}")))
            }
            Ok(ForegroundEnd::Killed(signal)) => {
                Err(Problem::new(format!("`{program}` was ended by {signal}")))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Problem::new(format!("there is no program `{program}`"))
                    .with_help(format!("set {names} to one that is installed")))
            }
            Err(error) => Err(Problem::new(format!("cannot start `{program}`: {error}"))
                .with_help(format!("set {names} to another program"))),
        }
    }
}

/// The current size of the terminal. Each frame needs it, and crossterm would open the terminal each time.
fn size() -> io::Result<Rect> {
    let (width, height) = match termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => tty::size()?,
    };
    Ok(Rect {
        x: 0,
        y: 0,
        width,
        height,
    })
}

/// Detects that the terminal was closed. SIGHUP is sent only within the terminal's session, and crossterm reads the
/// end of its input repeatedly.
fn watch_hangup() -> io::Result<oneshot::Receiver<()>> {
    let terminal = io::stdout().as_fd().try_clone_to_owned()?;
    let (hangup_tx, hangup_rx) = oneshot::channel();
    // This thread sleeps in `poll` until the process ends.
    std::thread::Builder::new()
        .name("terminal".into())
        .spawn(move || {
            poll_hangup(terminal.as_fd(), PollTimeout::NONE);
            // The receiver is gone after the screen closed.
            let _ = hangup_tx.send(());
        })?;
    Ok(hangup_rx)
}

/// Waits until the terminal is closed, or for `limit`; returns whether it is closed.
fn poll_hangup(terminal: BorrowedFd<'_>, limit: PollTimeout) -> bool {
    // No events are requested, so `poll` reports only errors and hang-up.
    let mut watched = [PollFd::new(terminal, PollFlags::empty())];
    loop {
        match poll(&mut watched, limit) {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => return false,
            Ok(reported) => return reported > 0,
        }
    }
}

/// Whether the terminal of this process was closed.
pub(crate) fn is_closed() -> bool {
    poll_hangup(io::stdout().as_fd(), PollTimeout::ZERO)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Terminal events, read by a dedicated thread. A crossterm stream wakes only the task that polled it first, so a loop
/// that polls without waiting must not poll it directly; a channel allows that. A poll may block forever after the
/// terminal was closed, so it must not run on a thread of the runtime, which also runs the agents.
struct EventReader {
    received: mpsc::Receiver<io::Result<Event>>,
    /// Dropping it ends the thread.
    stop: oneshot::Sender<()>,
    reading: JoinHandle<()>,
}

impl EventReader {
    fn new() -> Self {
        let (send, received) = mpsc::channel(EVENT_QUEUE);
        let (stop, mut stopped) = oneshot::channel();
        // Created before the thread starts, so that a resize before the first frame is not missed.
        let mut stream = EventStream::new();
        let runtime = Handle::current();
        let read = async move {
            loop {
                // The stream is polled until it waits for input before it is dropped: only then does its thread consume
                // the wake-up that ends it. Otherwise crossterm would answer the next stream's first poll with that
                // wake-up, and discard the readiness of a key that arrived before.
                let event = tokio::select! {
                    biased;
                    event = stream.next() => event,
                    _ = &mut stopped => return,
                };
                let Some(event) = event else { return };
                let failed = event.is_err();
                // After a stop, keys that have been read are dropped, and the stream is polled again.
                if send.send(event).await.is_err() && failed {
                    return;
                }
            }
        };
        let reading = tokio::task::spawn_blocking(move || runtime.block_on(read));
        Self {
            received,
            stop,
            reading,
        }
    }

    /// Stops reading; no event is consumed after this returns. Waits only for a limited time if the terminal is closed.
    async fn stop(self) {
        let Self {
            received,
            stop,
            reading,
        } = self;
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
        ClockReading {
            now: self.started.elapsed(),
            wall: Timestamp::now(),
        }
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

    fn is_closed(&self) -> bool {
        is_closed()
    }

    fn draw(&mut self, paint: &mut FramePainter<'_>) -> io::Result<()> {
        if std::mem::take(&mut self.resized) || size()? != self.screen.shown().area {
            self.clear_screen()?;
        }
        self.screen.draw(paint)
    }

    fn title(&mut self, title: &str) {
        // Added to the next frame; writing to a `Vec` cannot fail.
        let _ = self.send(&osc::title(title));
    }

    fn progress(&mut self, gauge: TerminalProgress) {
        if self.options.progress {
            let mark = match (gauge, self.options.tmux) {
                (TerminalProgress::None, _) => NO_MARK,
                (TerminalProgress::Percent { .. }, false) => PLAIN_MARK,
                (TerminalProgress::Percent { .. }, true) => TMUX_MARK,
            };
            PROGRESS_MARK.store(mark, Ordering::SeqCst);
            self.send_to_outer_terminal(&osc::progress(gauge));
        }
    }

    fn notify(&mut self, notification: &Notification) -> Result<(), Problem> {
        match &self.options.notify {
            NotifyMethod::Off => {}
            // tmux handles the bell and forwards it without passthrough.
            NotifyMethod::Bell => {
                let _ = self.send("\x07");
            }
            NotifyMethod::Osc9 => {
                self.send_to_outer_terminal(&osc::osc9(&notification.title, &notification.text))
            }
            NotifyMethod::Osc777 => {
                self.send_to_outer_terminal(&osc::osc777(&notification.title, &notification.text))
            }
            NotifyMethod::Command(words) => return spawn_notifier(words, notification),
        }
        Ok(())
    }

    fn copy(&mut self, text: &str) {
        let _ = self.send(&osc::clipboard(text));
    }

    fn mouse(&mut self, ours: bool) -> io::Result<()> {
        self.options.mouse = ours;
        self.send(if ours { MOUSE_ON } else { MOUSE_OFF })
    }

    fn clear(&mut self) -> io::Result<()> {
        reenter_terminal(self.options.mouse)?;
        self.clear_screen()
    }

    async fn open(&mut self, export: &Export) -> Result<ToolExit, Problem> {
        if let Some(events) = self.events.take() {
            events.stop().await;
        }
        restore();
        let end = self.run_export_tool(export).await;
        // Before raw mode: a new stream waits for the thread of the last one, and entering raw mode reports input that
        // has arrived meanwhile as ready.
        self.events = Some(EventReader::new());
        let taken = enter_terminal(self.options.mouse).and_then(|()| self.clear_screen());
        taken.map_err(|error| Problem::new(format!("cannot reacquire the terminal: {error}")))?;
        end
    }

    async fn suspend(&mut self) -> io::Result<()> {
        // The event reader keeps running: a stopped process reads nothing, and a new reader could miss the first key.
        restore();
        self.signals.stop_job().await?;
        enter_terminal(self.options.mouse)?;
        self.clear_screen()
    }
}

/// Starts the notification program without waiting for it.
fn spawn_notifier(words: &[String], notification: &Notification) -> Result<(), Problem> {
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    let mut command = tokio::process::Command::new(program);
    open_file_limit::restore_limit_in(command.as_std_mut());
    let started = command
        .args(arguments)
        .env("PATH", program_path::search_path())
        .args([&notification.title, &notification.text])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    // The runtime reaps the child process.
    started.map(|_| ()).map_err(|error| {
        Problem::new(format!("cannot run `{program}`: {error}"))
            .with_help("correct ui.notify_command")
    })
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
    fn closed_terminal_hangs_up() {
        let (master, slave) = ingestdeck_test_support::open_terminal();
        assert!(!poll_hangup(slave.as_fd(), PollTimeout::ZERO));
        drop(master);
        assert!(poll_hangup(slave.as_fd(), PollTimeout::ZERO));
    }

    #[test]
    fn entered_terminal_is_restored() {
        for mode in ["1049", "2004", "1004", "1000", "1002", "1006"] {
            let on = format!("\x1b[?{mode}h");
            assert!(
                ENTER.contains(&on) || MOUSE_ON.contains(&on),
                "{mode} is never set"
            );
            assert!(
                LEAVE.contains(&format!("\x1b[?{mode}l")),
                "{mode} is never reset"
            );
        }
        assert!(LEAVE.contains("\x1b[?25h"));
    }
}
