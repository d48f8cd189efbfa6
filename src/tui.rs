//! The screen: a run that grows or a record, shown live, walked through, acted on.
//!
//! Owns the terminal while it is up. It shows a [`Timeline`] and nothing else, so it cannot tell whether what it shows is
//! live; orders go out as [`RunCommand`]s to whoever runs units. It must not know how units are run or where records lie.
//!
//! Shape: [`host`] hands in an event, [`update`] decides and returns [`effect`]s as data, [`app`] executes them, [`view`]
//! paints a pure function of [`model`], story and [`cache`]. What is visible is read before the draw ([`load`]).

pub mod action;
pub mod app;
pub mod breakpoint;
pub mod cache;
pub mod command;
pub mod document;
pub mod effect;
pub mod export;
pub mod frame;
pub mod host;
pub mod key;
pub mod keymap;
pub mod layout;
pub mod load;
pub mod model;
pub mod msg;
pub mod notification;
pub mod playback;
pub mod static_screen;
pub mod terminal;
pub mod text;
pub mod text_search;
pub mod theme;
pub mod update;
pub mod view;

use std::{io, time::Duration};

use futures_util::FutureExt as _;
use jiff::tz::TimeZone;
use tokio::sync::{mpsc, oneshot, watch};

pub use effect::RunCommand;
pub use keymap::{Keymap, KeymapError, Overrides};
pub use terminal::{NotifyMethod, ToolPrograms, TtyOptions};
pub use theme::{ColorChoice, ColorLevel, Theme, ThemeError};

use app::{App, HostRequest, RunAccess};
use host::{HostInput, ScreenHost};
use key::KeyPress;
use msg::ScreenMessage;

use crate::run::Timeline;

/// Frames a second that suit any terminal.
pub const FPS: u32 = 30;

/// Inputs that are taken before the next frame.
const MAX_INPUTS_PER_FRAME: usize = 256;

/// The way to a run that is going on.
#[derive(Debug)]
pub struct LiveHandle {
    /// Where orders go; `None` where the run belongs to another process and is only looked at.
    pub commands: Option<mpsc::Sender<RunCommand>>,
    /// Changes whenever the record grows.
    pub changed: watch::Receiver<u64>,
    /// Says why the run broke off, if it does: it is not on the record, as that is what cannot be written. Dropped, it
    /// says that the record will not grow any more.
    pub failed: Option<oneshot::Receiver<String>>,
}

impl LiveHandle {
    /// The way to a run that does not break off.
    pub fn new(commands: mpsc::Sender<RunCommand>, changed: watch::Receiver<u64>) -> Self {
        Self { commands: Some(commands), changed, failed: None }
    }

    /// The way to a run of another process.
    pub fn watching(changed: watch::Receiver<u64>, broken: oneshot::Receiver<String>) -> Self {
        Self { commands: None, changed, failed: Some(broken) }
    }
}

/// How the screen looks and starts.
#[derive(Clone, Debug)]
pub struct Options {
    /// Colours and glyphs.
    pub theme: Theme,
    /// Keys.
    pub keymap: Keymap,
    /// What surrounds the screen.
    pub terminal: TtyOptions,
    /// Most frames a second that no key asked for.
    pub fps: u32,
    /// Start at entry 0 and stand there.
    pub paused: bool,
    /// Play by the record's own times, so many times as fast; infinity for as fast as possible.
    pub speed: Option<f64>,
    /// Tool calls of the run can be held.
    pub can_hold: bool,
    /// Sentences for whoever begins to look.
    pub startup_messages: Vec<String>,
    /// Where the wall clock hangs.
    pub zone: TimeZone,
    /// Leave by itself.
    pub exit_when: Option<ExitCondition>,
}

/// What a user chose about looks and keys.
#[derive(Clone, Debug, Default)]
pub struct UiPreferences<'a> {
    /// Theme; `None` for the dark one.
    pub theme: Option<&'a str>,
    /// Colour.
    pub color: ColorChoice,
    /// ASCII only; `None` to let the locale decide.
    pub ascii: Option<bool>,
    /// `[keys]` of the config.
    pub keys: Overrides,
}

/// A look that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UiPreferencesError {
    /// The theme.
    #[error(transparent)]
    Theme(#[from] ThemeError),
    /// The keys, every problem of them.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Keys(Vec<KeymapError>),
}

impl Options {
    /// Options for a look, in an environment that `variable` reads.
    ///
    /// # Errors
    /// When the theme is unknown, or keys conflict.
    pub fn new(
        look: &UiPreferences<'_>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, UiPreferencesError> {
        let ascii = look.ascii.unwrap_or_else(|| theme::wants_ascii(&variable));
        Ok(Self {
            theme: Theme::new(look.theme.unwrap_or("dark"), look.color.resolve(&variable), ascii)?,
            keymap: Keymap::new(&look.keys).map_err(UiPreferencesError::Keys)?,
            terminal: TtyOptions {
                mouse: true,
                notify: NotifyMethod::Off,
                progress: false,
                tmux: false,
                programs: ToolPrograms::from_env(&variable),
            },
            fps: FPS,
            paused: false,
            speed: None,
            can_hold: false,
            startup_messages: Vec::new(),
            zone: TimeZone::UTC,
            exit_when: None,
        })
    }
}

/// When the screen leaves by itself: for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCondition {
    /// After the first frame.
    FirstFrame,
    /// After the frame that shows how many entries there are.
    Indexed,
    /// After the frame that shows the end, at whatever pace it is reached.
    End,
}

/// How the screen was left.
#[derive(Debug)]
pub struct TuiExit {
    /// Why.
    pub reason: ExitReason,
    /// The timeline, for a summary. It may stand at a moment in the past.
    pub timeline: Timeline,
    /// Somebody pressed Ctrl-C, or sent that signal, while units ran.
    pub interrupted: bool,
}

/// Why the screen was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// Somebody left.
    Quit,
    /// [`Options::exit_when`] was reached.
    ConditionMet,
    /// A signal asked for it.
    Signal(i32),
    /// The terminal is gone.
    Closed,
}

/// The screen cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal does not take what is drawn.
    #[error("cannot use the terminal: {0}; `--ui lines` works without one")]
    Terminal(#[from] io::Error),
}

/// Shows `timeline` on the terminal until somebody leaves.
pub async fn run(timeline: Timeline, live: Option<LiveHandle>, options: Options) -> Result<TuiExit, TuiError> {
    let mut world = terminal::Terminal::enter(options.terminal.clone())?;
    run_event_loop(timeline, live, options, &mut world).await
}

enum LoopEvent {
    RecordingFailed(Option<String>),
    Input(HostInput),
    TapeGrew,
    Work,
    Timer,
}

/// The loop: one event, a synchronous decision, its effects, a slice of work, a frame if one is due.
pub async fn run_event_loop<W: ScreenHost>(
    timeline: Timeline,
    live: Option<LiveHandle>,
    options: Options,
    world: &mut W,
) -> Result<TuiExit, TuiError> {
    let until = options.exit_when;
    let (part, mut changed, mut broken) = match live {
        None => (RunAccess::Replay, None, None),
        Some(LiveHandle { commands: None, changed, failed: broken }) => (RunAccess::Watch, Some(changed), broken),
        Some(LiveHandle { commands: Some(commands), changed, failed: broken }) => {
            (RunAccess::Control(commands), Some(changed), broken)
        }
    };
    let mut app = App::new(timeline, part, options, world.clock());
    loop {
        app.tick(world.clock());
        if app.is_due() {
            update_terminal_status(&mut app, world);
            world.draw(&mut |buf| app.paint(buf))?;
            app.frame_drawn();
            let reached = match until {
                None => false,
                Some(ExitCondition::FirstFrame) => true,
                Some(ExitCondition::Indexed) => app.is_indexed(),
                Some(ExitCondition::End) => app.is_at_end(),
            };
            if reached {
                return Ok(app.leave(ExitReason::ConditionMet));
            }
        }
        let busy = app.is_busy();
        // Work comes before timers: a timer that is due already would win every time.
        let wait = app.next_wakeup().filter(|_| !busy).map(|at| at.saturating_sub(world.clock().now));
        let event = tokio::select! {
            biased;
            input = world.input() => LoopEvent::Input(input),
            why = recording_failure(&mut broken), if broken.is_some() => LoopEvent::RecordingFailed(why),
            grew = tape_grew(&mut changed), if changed.is_some() && app.accepts_growth() => {
                if !grew {
                    changed = None;
                }
                LoopEvent::TapeGrew
            }
            () = tokio::task::yield_now(), if busy => LoopEvent::Work,
            () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => LoopEvent::Timer,
        };
        match event {
            LoopEvent::RecordingFailed(why) => {
                broken = None;
                match why {
                    Some(why) => app.recording_failed(why),
                    None => app.tape_finished(),
                }
            }
            LoopEvent::TapeGrew => app.tape_grew(world.clock().now),
            LoopEvent::Work => app.work(),
            LoopEvent::Timer => app.timer_fired(world.clock().now),
            LoopEvent::Input(first) => {
                let mut next = Some(first);
                for _ in 0..MAX_INPUTS_PER_FRAME {
                    let Some(input) = next else { break };
                    if let Some(how) = handle_input(&mut app, world, input).await? {
                        return Ok(app.leave(how));
                    }
                    next = world.input().now_or_never();
                }
                if let Some(input) = next
                    && let Some(how) = handle_input(&mut app, world, input).await?
                {
                    return Ok(app.leave(how));
                }
            }
        }
    }
}

/// Why the run broke off; `None` when nobody will tell any more.
async fn recording_failure(broken: &mut Option<oneshot::Receiver<String>>) -> Option<String> {
    match broken {
        Some(broken) => broken.await.ok(),
        None => None,
    }
}

/// True when the record grew, false when nobody will tell any more.
async fn tape_grew(changed: &mut Option<watch::Receiver<u64>>) -> bool {
    match changed {
        Some(changed) => changed.changed().await.is_ok(),
        None => false,
    }
}

/// What is told outside of the screen goes out with the frame.
fn update_terminal_status<W: ScreenHost>(app: &mut App, world: &mut W) {
    let outside = app.terminal_status();
    if let Some(title) = outside.title {
        world.title(&title);
    }
    if let Some(gauge) = outside.progress {
        world.progress(gauge);
    }
    for news in outside.notifications {
        if let Err(why) = world.notify(&news) {
            app.show_message(why);
        }
    }
}

async fn handle_input<W: ScreenHost>(
    app: &mut App,
    world: &mut W,
    input: HostInput,
) -> Result<Option<ExitReason>, TuiError> {
    app.tick(world.clock());
    let msg = match input {
        HostInput::Key(key) => ScreenMessage::Key(key),
        HostInput::Paste(text) => ScreenMessage::Paste(text),
        HostInput::Click(x, y) => ScreenMessage::Click { x, y },
        HostInput::Drag(x) => ScreenMessage::Drag { x },
        HostInput::Wheel(x, y, down) => ScreenMessage::Wheel { x, y, down },
        HostInput::Resize(width, height) => ScreenMessage::Resize { width, height },
        HostInput::Focus(gained) => {
            app.focus(gained);
            return Ok(None);
        }
        HostInput::Resumed => {
            world.clear()?;
            app.redraw();
            return Ok(None);
        }
        HostInput::Signal(signal) if signal == terminal::INTERRUPT => ScreenMessage::Key(KeyPress {
            code: crossterm::event::KeyCode::Char('c'),
            modifiers: crossterm::event::KeyModifiers::CONTROL,
        }),
        HostInput::Signal(signal) => return Ok(Some(ExitReason::Signal(signal))),
        HostInput::Closed => return Ok(Some(ExitReason::Closed)),
        HostInput::Ignored => return Ok(None),
    };
    for act in app.input(msg) {
        match act {
            HostRequest::Quit => return Ok(Some(ExitReason::Quit)),
            HostRequest::Suspend => {
                world.suspend().await?;
                app.redraw();
            }
            HostRequest::Copy(text) => world.copy(&text),
            HostRequest::OpenExport(handout) => {
                let end = world.open(&handout).await;
                app.tick(world.clock());
                app.redraw();
                match end {
                    Ok(Some(HostInput::Signal(signal))) => return Ok(Some(ExitReason::Signal(signal))),
                    Ok(_) => {}
                    Err(why) => app.show_message(why),
                }
            }
            HostRequest::Mouse(ours) => world.mouse(ours)?,
            HostRequest::Clear => {
                world.clear()?;
                app.redraw();
            }
        }
    }
    Ok(None)
}
