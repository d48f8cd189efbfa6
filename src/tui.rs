//! The screen: a run that grows or a record, shown live, walked through, acted on.
//!
//! Owns the terminal while it is up. It shows a [`Timeline`] and nothing else, so it cannot tell whether what it shows is
//! live; orders go out as [`Command`]s to whoever runs units. It must not know how units are run or where records lie.
//!
//! Shape: [`world`] hands in an event, [`update`] decides and returns [`effect`]s as data, [`app`] executes them, [`view`]
//! paints a pure function of [`model`], story and [`cache`]. What is visible is read before the draw ([`load`]).

pub mod action;
pub mod app;
pub mod breakpoint;
pub mod cache;
pub mod command;
pub mod document;
pub mod effect;
pub mod frame;
pub mod handout;
pub mod key;
pub mod keymap;
pub mod layout;
pub mod load;
pub mod model;
pub mod msg;
pub mod outside;
pub mod play;
pub mod seek;
pub mod still;
pub mod terminal;
pub mod text;
pub mod theme;
pub mod update;
pub mod view;
pub mod world;

use std::{io, time::Duration};

use futures_util::FutureExt as _;
use jiff::tz::TimeZone;
use tokio::sync::{mpsc, oneshot, watch};

pub use effect::Command;
pub use keymap::{Keymap, KeymapError, Overrides};
pub use terminal::{Manners, Notify, Programs};
pub use theme::{ColorChoice, ColorLevel, Theme, ThemeError};

use app::{Act, App, Part};
use key::Key;
use msg::Msg;
use world::{Input, World};

use crate::run::Timeline;

/// Frames a second that suit any terminal.
pub const FPS: u32 = 30;

/// Inputs that are taken before the next frame.
const BATCH: usize = 256;

/// The way to a run that is going on.
#[derive(Debug)]
pub struct LiveHandle {
    /// Where orders go; `None` where the run belongs to another process and is only looked at.
    pub commands: Option<mpsc::Sender<Command>>,
    /// Changes whenever the record grows.
    pub changed: watch::Receiver<u64>,
    /// Says why the run broke off, if it does: it is not on the record, as that is what cannot be written. Dropped, it
    /// says that the record will not grow any more.
    pub broken: Option<oneshot::Receiver<String>>,
}

impl LiveHandle {
    /// The way to a run that does not break off.
    pub fn new(commands: mpsc::Sender<Command>, changed: watch::Receiver<u64>) -> Self {
        Self { commands: Some(commands), changed, broken: None }
    }

    /// The way to a run of another process.
    pub fn watching(changed: watch::Receiver<u64>, broken: oneshot::Receiver<String>) -> Self {
        Self { commands: None, changed, broken: Some(broken) }
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
    pub manners: Manners,
    /// Most frames a second that no key asked for.
    pub fps: u32,
    /// Start at entry 0 and stand there.
    pub paused: bool,
    /// Play by the record's own times, so many times as fast; infinity for as fast as possible.
    pub speed: Option<f64>,
    /// Tool calls of the run can be held.
    pub can_hold: bool,
    /// Sentences for whoever begins to look.
    pub told: Vec<String>,
    /// Where the wall clock hangs.
    pub zone: TimeZone,
    /// Leave by itself.
    pub until: Option<Until>,
}

/// What a user chose about looks and keys.
#[derive(Clone, Debug, Default)]
pub struct Look<'a> {
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
pub enum LookError {
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
    pub fn new(look: &Look<'_>, variable: impl Fn(&str) -> Option<String>) -> Result<Self, LookError> {
        let ascii = look.ascii.unwrap_or_else(|| theme::wants_ascii(&variable));
        Ok(Self {
            theme: Theme::new(look.theme.unwrap_or("dark"), look.color.resolve(&variable), ascii)?,
            keymap: Keymap::new(&look.keys).map_err(LookError::Keys)?,
            manners: Manners {
                mouse: true,
                notify: Notify::Off,
                progress: false,
                tmux: false,
                programs: Programs::of(&variable),
            },
            fps: FPS,
            paused: false,
            speed: None,
            can_hold: false,
            told: Vec::new(),
            zone: TimeZone::UTC,
            until: None,
        })
    }
}

/// When the screen leaves by itself: for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After the first frame.
    FirstFrame,
    /// After the frame that shows how many entries there are.
    Indexed,
    /// After the frame that shows the end, at whatever pace it is reached.
    End,
}

/// How the screen was left.
#[derive(Debug)]
pub struct Exit {
    /// Why.
    pub how: Left,
    /// The timeline, for a summary. It may stand at a moment in the past.
    pub timeline: Timeline,
    /// Somebody pressed Ctrl-C, or sent that signal, while units ran.
    pub interrupted: bool,
}

/// Why the screen was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Somebody left.
    Quit,
    /// [`Options::until`] was reached.
    Reached,
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
pub async fn run(timeline: Timeline, live: Option<LiveHandle>, options: Options) -> Result<Exit, TuiError> {
    let mut world = terminal::Terminal::enter(options.manners.clone())?;
    drive(timeline, live, options, &mut world).await
}

enum Event {
    Broke(Option<String>),
    Input(Input),
    Grew,
    Work,
    Timer,
}

/// The loop: one event, a synchronous decision, its effects, a slice of work, a frame if one is due.
pub async fn drive<W: World>(
    timeline: Timeline,
    live: Option<LiveHandle>,
    options: Options,
    world: &mut W,
) -> Result<Exit, TuiError> {
    let until = options.until;
    let (part, mut changed, mut broken) = match live {
        None => (Part::Replays, None, None),
        Some(LiveHandle { commands: None, changed, broken }) => (Part::Watches, Some(changed), broken),
        Some(LiveHandle { commands: Some(commands), changed, broken }) => (Part::Runs(commands), Some(changed), broken),
    };
    let mut app = App::new(timeline, part, options, world.moment());
    loop {
        app.tick(world.moment());
        if app.is_due() {
            tell(&mut app, world);
            world.draw(&mut |buf| app.paint(buf))?;
            app.drawn();
            let reached = match until {
                None => false,
                Some(Until::FirstFrame) => true,
                Some(Until::Indexed) => app.is_indexed(),
                Some(Until::End) => app.is_at_end(),
            };
            if reached {
                return Ok(app.leave(Left::Reached));
            }
        }
        let busy = app.is_busy();
        // Work comes before timers: a timer that is due already would win every time.
        let wait = app.wake().filter(|_| !busy).map(|at| at.saturating_sub(world.moment().now));
        let event = tokio::select! {
            biased;
            input = world.input() => Event::Input(input),
            why = broke(&mut broken), if broken.is_some() => Event::Broke(why),
            grew = grew(&mut changed), if changed.is_some() && app.takes_growth() => {
                if !grew {
                    changed = None;
                }
                Event::Grew
            }
            () = tokio::task::yield_now(), if busy => Event::Work,
            () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => Event::Timer,
        };
        match event {
            Event::Broke(why) => {
                broken = None;
                match why {
                    Some(why) => app.broke(why),
                    None => app.over(),
                }
            }
            Event::Grew => app.grew(world.moment().now),
            Event::Work => app.work(),
            Event::Timer => app.woke(world.moment().now),
            Event::Input(first) => {
                let mut next = Some(first);
                for _ in 0..BATCH {
                    let Some(input) = next else { break };
                    if let Some(how) = take(&mut app, world, input).await? {
                        return Ok(app.leave(how));
                    }
                    next = world.input().now_or_never();
                }
                if let Some(input) = next
                    && let Some(how) = take(&mut app, world, input).await?
                {
                    return Ok(app.leave(how));
                }
            }
        }
    }
}

/// Why the run broke off; `None` when nobody will tell any more.
async fn broke(broken: &mut Option<oneshot::Receiver<String>>) -> Option<String> {
    match broken {
        Some(broken) => broken.await.ok(),
        None => None,
    }
}

/// True when the record grew, false when nobody will tell any more.
async fn grew(changed: &mut Option<watch::Receiver<u64>>) -> bool {
    match changed {
        Some(changed) => changed.changed().await.is_ok(),
        None => false,
    }
}

/// What is told outside of the screen goes out with the frame.
fn tell<W: World>(app: &mut App, world: &mut W) {
    let outside = app.outside();
    if let Some(title) = outside.title {
        world.title(&title);
    }
    if let Some(gauge) = outside.gauge {
        world.progress(gauge);
    }
    for news in outside.news {
        if let Err(why) = world.notify(&news) {
            app.say(why);
        }
    }
}

async fn take<W: World>(app: &mut App, world: &mut W, input: Input) -> Result<Option<Left>, TuiError> {
    app.tick(world.moment());
    let msg = match input {
        Input::Key(key) => Msg::Key(key),
        Input::Paste(text) => Msg::Paste(text),
        Input::Click(x, y) => Msg::Click { x, y },
        Input::Drag(x) => Msg::Drag { x },
        Input::Wheel(x, y, down) => Msg::Wheel { x, y, down },
        Input::Resize(width, height) => Msg::Resize { width, height },
        Input::Focus(gained) => {
            app.focus(gained);
            return Ok(None);
        }
        Input::Continued => {
            world.clear()?;
            app.redraw();
            return Ok(None);
        }
        Input::Signal(signal) if signal == terminal::INTERRUPT => Msg::Key(Key {
            code: crossterm::event::KeyCode::Char('c'),
            modifiers: crossterm::event::KeyModifiers::CONTROL,
        }),
        Input::Signal(signal) => return Ok(Some(Left::Signal(signal))),
        Input::Closed => return Ok(Some(Left::Closed)),
        Input::Nothing => return Ok(None),
    };
    for act in app.input(msg) {
        match act {
            Act::Quit => return Ok(Some(Left::Quit)),
            Act::Suspend => {
                world.suspend().await?;
                app.redraw();
            }
            Act::Copy(text) => world.copy(&text),
            Act::HandOut(handout) => {
                let end = world.open(&handout).await;
                app.tick(world.moment());
                app.redraw();
                match end {
                    Ok(Some(Input::Signal(signal))) => return Ok(Some(Left::Signal(signal))),
                    Ok(_) => {}
                    Err(why) => app.say(why),
                }
            }
            Act::Mouse(ours) => world.mouse(ours)?,
            Act::Clear => {
                world.clear()?;
                app.redraw();
            }
        }
    }
    Ok(None)
}
