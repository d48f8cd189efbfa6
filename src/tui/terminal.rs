//! The real terminal: taken whole, given back whatever happens, written to once a frame.
//!
//! Owns modes, escape sequences and signals. It must not know what is drawn.

mod child;
mod encoder;
mod osc;
mod outlet;

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

pub use child::Programs;
pub use encoder::Encoder;
pub use osc::draws_progress;

use self::outlet::Outlet;
use super::{
    handout::{Handout, Tool},
    key::Key,
    outside::{Gauge, News},
    world::{Input, Moment, World},
};
use crate::{file_limit, program_path};

/// Number of the signal that Ctrl-C stands for.
pub const INTERRUPT: i32 = Unix::SIGINT as i32;

/// Events that may wait while a frame is drawn.
const EVENTS: usize = 1024;

/// How soon a process that a signal is to stop has stopped, however busy the machine is.
const STOPPING: Duration = Duration::from_millis(500);

// The title that was there, kept aside.
const KEEP_TITLE: &str = "\x1b[22;2t";
// Alternate screen, bracketed paste, focus told. The cursor is hidden by the first frame.
const ENTER: &str = "\x1b[?1049h\x1b[2J\x1b[?2004h\x1b[?1004h";
// Ends a torn synchronised update too.
const LEAVE: &str =
    "\x1b[?2026l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?1004l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l\x1b[23;2t";
// Buttons, the wheel, and motion while a button is held down.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1002l\x1b[?1000l";

/// True while the terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The progress mark that the terminal shows for us.
static MARK: AtomicU8 = AtomicU8::new(NO_MARK);
const NO_MARK: u8 = 0;
const PLAIN_MARK: u8 = 1;
const TMUX_MARK: u8 = 2;

/// Who is told what besides the screen, and by which programs and sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manners {
    /// Take the mouse.
    pub mouse: bool,
    /// How somebody is told who looks elsewhere.
    pub notify: Notify,
    /// Show progress outside of the screen.
    pub progress: bool,
    /// The terminal is tmux: what is meant for the terminal around it has to be handed through.
    pub tmux: bool,
    /// Editor and pager.
    pub programs: Programs,
}

/// A way to tell somebody who looks elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notify {
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
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        // Nothing can be done about a terminal that is gone.
        let _ = match MARK.swap(NO_MARK, Ordering::SeqCst) {
            PLAIN_MARK => out.write_all(osc::NO_GAUGE.as_bytes()),
            TMUX_MARK => out.write_all(osc::through_tmux(osc::NO_GAUGE).as_bytes()),
            _ => Ok(()),
        };
        let _ = out.write_all(LEAVE.as_bytes());
        let _ = out.flush();
        let _ = tty::disable_raw_mode();
    }
}

fn take(mouse: bool) -> io::Result<()> {
    tty::enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    io::stdout().write_all(KEEP_TITLE.as_bytes())?;
    set_modes(mouse)
}

/// Takes a terminal again that is ours already, whatever a shell made of it meanwhile.
fn retake(mouse: bool) -> io::Result<()> {
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
struct OneWrite {
    out: Outlet,
    frame: Vec<u8>,
    /// A frame could not be written, and whoever drew it was told.
    lost: bool,
}

impl OneWrite {
    const BEGIN: &'static [u8] = b"\x1b[?2026h";
    const END: &'static [u8] = b"\x1b[?2026l";

    fn new() -> Self {
        Self { out: Outlet::open(), frame: Vec::new(), lost: false }
    }
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
        // What is written on the way out, after the terminal was given back or lost, is for nobody. It must not fail
        // either: the drawing library then complains on stderr, and panics if that is gone with the terminal.
        if self.frame.is_empty() || self.lost || !TAKEN.load(Ordering::SeqCst) {
            self.frame.clear();
            return Ok(());
        }
        self.frame.extend_from_slice(Self::END);
        let written = self.out.write_all(&self.frame);
        self.frame.clear();
        self.lost = written.is_err();
        written
    }
}

/// Signals that end a program by default and that it can answer: whoever listens to them gives the terminal back and ends
/// what it has started. Of an abort this catches the signal that others send; one of our own ends the program all the
/// same.
const ENDINGS: [Unix; 9] = [
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
pub struct EndingSignals(Vec<(Unix, Signal)>);

impl EndingSignals {
    /// Listens from now on: none of them ends the program by itself any longer.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn listen() -> io::Result<Self> {
        let listened = ENDINGS.iter().map(|kind| Ok((*kind, listen(SignalKind::from_raw(*kind as i32))?)));
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
struct Signals {
    interrupt: Signal,
    endings: EndingSignals,
    hangup: Signal,
    go_on: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            endings: EndingSignals::listen()?,
            hangup: listen(SignalKind::hangup())?,
            go_on: listen(SignalKind::from_raw(Unix::SIGCONT as i32))?,
        })
    }

    async fn next(&mut self) -> Input {
        tokio::select! {
            biased;
            ending = self.endings.next() => Input::Signal(ending as i32),
            _ = self.hangup.recv() => Input::Signal(Unix::SIGHUP as i32),
            _ = self.interrupt.recv() => Input::Signal(INTERRUPT),
            _ = self.go_on.recv() => Input::Continued,
        }
    }

    /// Stops the whole job, or the shell would not get its prompt back. Returns once it goes on.
    async fn stop_job(&mut self) -> io::Result<()> {
        // Of what went on before, nothing is to be heard now.
        let _ = self.go_on.recv().now_or_never();
        signal::kill(Pid::from_raw(0), Unix::SIGTSTP)?;
        // Any thread may take the signal, so this one may get this far before all stand still. Where no shell could
        // bring the job back, it is not stopped at all.
        let _ = timeout(STOPPING, self.go_on.recv()).await;
        Ok(())
    }
}

/// The terminal of this process.
pub struct Terminal {
    screen: Screen<Encoder<OneWrite>>,
    /// Nothing while another program has the terminal.
    events: Option<Events>,
    signals: Signals,
    gone: oneshot::Receiver<()>,
    manners: Manners,
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
    pub fn enter(manners: Manners) -> io::Result<Self> {
        let signals = Signals::new()?;
        let gone = watch_for_the_end()?;
        take(manners.mouse).inspect_err(|_| restore())?;
        let screen = empty_screen(size().inspect_err(|_| restore())?).inspect_err(|_| restore())?;
        Ok(Self {
            screen,
            events: Some(Events::new()),
            signals,
            gone,
            manners,
            resized: false,
            started: Instant::now(),
        })
    }

    /// Starts over with an empty screen. Not `Terminal::clear`: that asks the terminal where its cursor is, and the
    /// answer would be taken for keys.
    fn blank(&mut self) -> io::Result<()> {
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
    fn send_out(&mut self, sequence: &str) {
        // Into the frame that follows; a Vec takes everything.
        let _ = if self.manners.tmux { self.send(&osc::through_tmux(sequence)) } else { self.send(sequence) };
    }

    async fn hand_over(&mut self, handout: &Handout) -> Result<Option<Input>, String> {
        let file = child::keep(handout).map_err(|error| format!("cannot write a temporary file: {error}"))?;
        let command = child::command(&self.manners.programs, handout, &file)?;
        let program = command.get_program().to_string_lossy().into_owned();
        let names = match handout.tool {
            Tool::Editor => "VISUAL or EDITOR",
            Tool::Pager => "PAGER",
        };
        match child::foreground(command, &mut self.signals).await {
            Ok(child::End::Told(input)) => Ok(Some(input)),
            Ok(child::End::Exited(0)) => Ok(None),
            Ok(child::End::Exited(code)) => Err(format!("`{program}` ended with code {code}")),
            Ok(child::End::Killed(signal)) => Err(format!("`{program}` was ended by {signal}")),
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
fn empty_screen(area: Rect) -> io::Result<Screen<Encoder<OneWrite>>> {
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    Screen::with_options(Encoder::new(OneWrite::new()), options)
}

/// Tells when nobody is at the other end of the terminal any more. A hang-up reaches only those whose session it ends,
/// and crossterm reads the end of its input over and over.
fn watch_for_the_end() -> io::Result<oneshot::Receiver<()>> {
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
struct Events {
    received: mpsc::Receiver<io::Result<Event>>,
    /// Ends the reading when it is dropped.
    stop: oneshot::Sender<()>,
    reading: JoinHandle<()>,
}

impl Events {
    fn new() -> Self {
        let (send, received) = mpsc::channel(EVENTS);
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
        let _ = timeout(STOPPING, reading).await;
    }

    async fn next(events: &mut Option<Self>) -> Option<io::Result<Event>> {
        match events {
            Some(events) => events.received.recv().await,
            None => None,
        }
    }
}

impl World for Terminal {
    fn moment(&self) -> Moment {
        Moment { now: self.started.elapsed(), wall: Timestamp::now() }
    }

    async fn input(&mut self) -> Input {
        let input = tokio::select! {
            biased;
            signal = self.signals.next() => signal,
            _ = &mut self.gone => Input::Closed,
            event = Events::next(&mut self.events) => match event {
                Some(Ok(event)) => translate(event),
                Some(Err(_)) | None => Input::Closed,
            },
        };
        self.resized |= matches!(input, Input::Resize(..));
        input
    }

    fn draw(&mut self, paint: &mut dyn FnMut(&mut Buffer)) -> io::Result<()> {
        if std::mem::take(&mut self.resized) || size()? != self.screen.get_frame().area() {
            self.blank()?;
        }
        self.screen.draw(|frame| paint(frame.buffer_mut())).map(|_| ())
    }

    fn title(&mut self, title: &str) {
        // Into the frame that follows; a Vec takes everything.
        let _ = self.send(&osc::title(title));
    }

    fn progress(&mut self, gauge: Gauge) {
        if self.manners.progress {
            let mark = match (gauge, self.manners.tmux) {
                (Gauge::None, _) => NO_MARK,
                (Gauge::Share { .. }, false) => PLAIN_MARK,
                (Gauge::Share { .. }, true) => TMUX_MARK,
            };
            MARK.store(mark, Ordering::SeqCst);
            self.send_out(&osc::gauge(gauge));
        }
    }

    fn notify(&mut self, news: &News) -> Result<(), String> {
        match &self.manners.notify {
            Notify::Off => {}
            // tmux has a bell of its own, and hands it on by itself.
            Notify::Bell => {
                let _ = self.send("\x07");
            }
            Notify::Osc9 => self.send_out(&osc::osc9(&news.title, &news.text)),
            Notify::Osc777 => self.send_out(&osc::osc777(&news.title, &news.text)),
            Notify::Command(words) => return tell(words, news),
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
        retake(self.manners.mouse)?;
        self.blank()
    }

    async fn open(&mut self, handout: &Handout) -> Result<Option<Input>, String> {
        if let Some(events) = self.events.take() {
            events.stop().await;
        }
        restore();
        let end = self.hand_over(handout).await;
        let taken = take(self.manners.mouse).and_then(|()| self.blank());
        self.events = Some(Events::new());
        taken.map_err(|error| format!("cannot take the terminal again: {error}"))?;
        end
    }

    async fn suspend(&mut self) -> io::Result<()> {
        // The reader of keys stays: a stopped program reads nothing, and a new reader could miss the first key.
        restore();
        self.signals.stop_job().await?;
        take(self.manners.mouse)?;
        self.blank()
    }
}

/// Starts the program that tells somebody, and does not wait for it.
fn tell(words: &[String], news: &News) -> Result<(), String> {
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
        Event::FocusGained => Input::Focus(true),
        Event::FocusLost => Input::Focus(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back() {
        for mode in ["1049", "2004", "1004", "1000", "1002", "1006"] {
            let on = format!("\x1b[?{mode}h");
            assert!(ENTER.contains(&on) || MOUSE_ON.contains(&on), "{mode} is never set");
            assert!(LEAVE.contains(&format!("\x1b[?{mode}l")), "{mode} is never reset");
        }
        assert!(LEAVE.contains("\x1b[?25h"));
    }
}
