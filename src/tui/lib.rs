//! The terminal screen: shows a live run or a recorded one, navigates through its timeline and sends commands to a live
//! run.
//!
//! Owns the terminal while the screen is open. Its only input is a [`Timeline`], so it does not know whether the data
//! is live. User actions are sent as [`RunCommand`]s to the run. This module must not know how units are executed or
//! where tapes are stored.
//!
//! Structure: [`host`] delivers an input, [`update`] finds the action of a key in [`actions`] and returns [`effect`]s as
//! data, [`app`] executes them, and [`view`] renders a pure function of [`model`], run view and [`cache`].
//! [`load`] reads visible content before the draw. Modules use each other in one direction only: [`model`] (what pages
//! share), [`page`] (what a page is), [`pages`] (one folder each), actions, update, app; what a page shows is computed
//! below the model, in [`layout`] and the modules it uses.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests prepare files")
)]

mod action;
pub mod action_spec;
pub mod actions;
pub mod app;
mod attempt_summary;
pub mod cache;
mod comparison;
pub(crate) mod document;
pub mod edited_text;
pub mod effect;
mod entry_part;
pub mod export;
mod export_request;
mod forecast_text;
pub(crate) mod frame_limiter;
mod home_choice;
pub mod host;
mod inspect_panel;
pub mod key;
mod key_table;
pub(crate) mod keymap;
pub(crate) mod layout;
mod legend;
pub(crate) mod load;
pub mod model;
mod moment;
mod moved_rows;
pub mod notification;
pub(crate) mod page;
pub mod pages;
pub(crate) mod playback;
mod reading_order;
mod record_matches;
pub mod screen_message;
mod search_match;
mod stream_frame;
mod stream_rows;
pub mod terminal;
pub mod text_search;
pub mod theme;
mod unit_row;
pub(crate) mod update;
pub mod view;
pub(crate) mod wide_cells;
mod widgets;

use std::{io, path::PathBuf, time::Duration};

use futures_util::FutureExt as _;
use jiff::tz::TimeZone;
use tokio::sync::{mpsc, oneshot, watch};

pub use home_choice::{ChosenMoment, HomeChoice};
pub use key_table::{ChordList, KeyOverrides, KeymapError};
pub use keymap::Keymap;
pub use model::{ArgumentsCheck, Bookmarks, TableSettings};
pub use pages::home::{
    HomeContent, HomeLine, HomeRun, HomeRunState, HomeSession, HomeSessionState,
};
pub use record_matches::{OpenSearch, RecordMatch, RecordMatches, RecordSearchChannel};
pub use terminal::{NotifyMethod, ToolPrograms, TtyOptions};
pub use theme::{ColorChoice, ColorLevel, Theme, ThemeError};

use app::{App, HostRequest, RunAccess};
use host::{HostInput, ScreenHost, ToolExit};
use key::KeyPress;
use screen_message::ScreenMessage;

use ingestdeck_core::{
    control::{CommandOutcome, DisconnectAction, RunCommand},
    diagnostic::Diagnostic,
    run::Timeline,
};

/// Maximum number of inputs processed before the next frame.
pub(crate) const MAX_INPUTS_PER_FRAME: usize = 256;

/// Connection to a running run.
#[derive(Debug)]
pub struct LiveHandle {
    /// Access to the engine; `None` if the run belongs to another process and is only watched.
    pub engine: Option<EngineChannel>,
    /// Changes whenever the tape grows.
    pub changed: watch::Receiver<u64>,
    /// Delivers the reason why recording failed. The tape cannot contain it, since writing failed. A dropped sender
    /// means that the tape will not grow further.
    pub failed: Option<oneshot::Receiver<String>>,
}

/// Commands to the engine of a run, and its answers in the same order.
#[derive(Debug)]
pub struct EngineChannel {
    pub commands: mpsc::Sender<RunCommand>,
    pub outcomes: mpsc::UnboundedReceiver<CommandOutcome>,
    /// What leaving the screen does to the run by default; `None` if the run cannot continue without this screen.
    pub leave_action: Option<DisconnectAction>,
}

impl LiveHandle {
    /// Connects to a run of another process, without commands.
    pub fn watching(changed: watch::Receiver<u64>, broken: oneshot::Receiver<String>) -> Self {
        Self {
            engine: None,
            changed,
            failed: Some(broken),
        }
    }
}

/// Appearance, keys and start state of the screen.
#[derive(Clone, Debug)]
pub struct Options {
    pub theme: Theme,
    pub keymap: Keymap,
    /// Capabilities and settings of the terminal.
    pub terminal: TtyOptions,
    /// Maximum frames per second for redraws that no key caused.
    pub fps: u32,
    /// Start paused after this number of entries, with the action of the last of them open. A call is shown at its end.
    pub paused_after: Option<u64>,
    /// Playback speed relative to the recorded times; infinity plays as fast as possible.
    pub speed: Option<f64>,
    /// The run is a session, to which messages can be sent at any time.
    pub is_session: bool,
    /// Checks edited arguments of held calls, if the tools of the run are known.
    pub check_arguments: Option<ArgumentsCheck>,
    /// Messages shown when the screen opens.
    pub startup_messages: Vec<String>,
    /// Time zone of wall clock times.
    pub zone: TimeZone,
    /// Condition that closes the screen automatically.
    pub exit_when: Option<ExitCondition>,
    /// Arrangement of the table of units.
    pub table: TableSettings,
    /// Bookmarks of the record.
    pub bookmarks: Bookmarks,
    /// What is shown first.
    pub first_page: FirstPage,
    /// The directory of the project, in which files that the run wrote can be opened.
    pub project: Option<PathBuf>,
}

/// What the screen shows first.
#[derive(Clone, Debug)]
pub enum FirstPage {
    /// The units of the run.
    Units,
    /// A session as a page to read, if the record contains only one.
    Session,
    /// The home screen, which shows no run.
    Home(HomeSources),
    /// A moment of a record that was opened on the home screen, to which the key for back returns.
    FromHome {
        /// True for a session, which is a page to read.
        is_session: bool,
    },
}

/// What the home screen shows.
#[derive(Clone, Debug)]
pub struct HomeSources {
    /// What it lists. The sender changes it.
    pub content: watch::Receiver<HomeContent>,
    /// The search of all runs and sessions; `None` if there is none.
    pub search: Option<RecordSearchChannel>,
}

/// When the screen closes automatically; used for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCondition {
    FirstFrame,
    /// After the frame that shows the number of entries.
    Indexed,
    /// After the frame that shows the end, at any playback speed.
    End,
}

/// Result of a closed screen.
#[derive(Debug)]
pub struct TuiExit {
    pub reason: ExitReason,
    /// The timeline, for a summary. Its cursor may be at an earlier moment.
    pub timeline: Timeline,
    /// True if Ctrl-C or SIGINT arrived while units ran.
    pub interrupted: bool,
    /// Arrangement of the table of units.
    pub table: TableSettings,
}

/// Why the screen closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    Quit,
    /// The user left the run, which continues.
    Detached,
    /// The user chose something on the home screen.
    Chosen(HomeChoice),
    /// The condition [`Options::exit_when`] was met.
    ConditionMet,
    /// A signal requested termination.
    Signal(i32),
    /// The terminal was closed.
    Closed,
}

/// Fatal error of the screen.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// Writing to the terminal failed.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
}

impl Diagnostic for TuiError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Terminal(_) => "use `--ui lines`, which works without one".into(),
        })
    }
}

/// Shows `timeline` on the terminal until the screen closes.
pub async fn run(
    timeline: Timeline,
    live: Option<LiveHandle>,
    options: Options,
) -> Result<TuiExit, TuiError> {
    let mut host = match terminal::Terminal::enter(options.terminal.clone()) {
        Ok(host) => host,
        // Closed before the first frame.
        Err(_) if terminal::is_closed() => {
            return Ok(TuiExit {
                reason: ExitReason::Closed,
                timeline,
                interrupted: false,
                table: options.table,
            });
        }
        Err(error) => return Err(error.into()),
    };
    run_event_loop(timeline, live, options, &mut host).await
}

enum LoopEvent {
    RecordingFailed(Option<String>),
    CommandAnswered(Option<CommandOutcome>),
    Input(HostInput),
    TapeGrew,
    HomeChanged(Option<HomeContent>),
    RecordsFound(Option<RecordMatches>),
    Work,
    Timer,
}

/// Runs the event loop: one event, a synchronous decision, its effects, a slice of work, and a frame if one is due.
pub async fn run_event_loop<W: ScreenHost>(
    timeline: Timeline,
    live: Option<LiveHandle>,
    options: Options,
    host: &mut W,
) -> Result<TuiExit, TuiError> {
    let until = options.exit_when;
    let mut sources = LiveEvents::default();
    if let FirstPage::Home(home) = &options.first_page {
        sources.home = Some(home.content.clone());
        sources.found = home.search.as_ref().map(|search| search.found.clone());
    }
    let access = match live {
        None => RunAccess::Replay,
        Some(LiveHandle {
            engine,
            changed,
            failed,
        }) => {
            (sources.changed, sources.failed) = (Some(changed), failed);
            match engine {
                None => RunAccess::Watch,
                Some(engine) => {
                    sources.outcomes = Some(engine.outcomes);
                    RunAccess::Control {
                        commands: engine.commands,
                        leave_action: engine.leave_action,
                    }
                }
            }
        }
    };
    let mut app = App::new(timeline, access, options, host.clock());
    match handle_events(&mut app, sources, until, host).await {
        Ok(reason) => Ok(app.leave(reason)),
        // A frame written to a terminal that has just been closed fails before `input` delivers the hang-up.
        Err(_) if host.is_closed() => Ok(app.leave(ExitReason::Closed)),
        Err(error) => Err(error),
    }
}

/// What a running run, or the home screen's caller, reports to the screen.
#[derive(Debug, Default)]
struct LiveEvents {
    home: Option<watch::Receiver<HomeContent>>,
    found: Option<watch::Receiver<RecordMatches>>,
    changed: Option<watch::Receiver<u64>>,
    failed: Option<oneshot::Receiver<String>>,
    outcomes: Option<mpsc::UnboundedReceiver<CommandOutcome>>,
}

/// Handles events until one closes the screen; returns the reason.
async fn handle_events<W: ScreenHost>(
    app: &mut App,
    live: LiveEvents,
    until: Option<ExitCondition>,
    host: &mut W,
) -> Result<ExitReason, TuiError> {
    let LiveEvents {
        mut home,
        mut found,
        mut changed,
        failed: mut broken,
        mut outcomes,
    } = live;
    loop {
        app.tick(host.clock());
        if app.is_due() {
            update_terminal_status(app, host);
            host.draw(&mut |buf, shown| app.paint(buf, shown))?;
            app.frame_drawn();
            let reached = match until {
                None => false,
                Some(ExitCondition::FirstFrame) => true,
                Some(ExitCondition::Indexed) => app.is_indexed(),
                Some(ExitCondition::End) => app.is_at_end(),
            };
            if reached {
                return Ok(ExitReason::ConditionMet);
            }
        }
        let busy = app.is_busy();
        // Work has priority over timers: a timer that is already due would always win.
        let wait = app
            .next_wakeup()
            .filter(|_| !busy)
            .map(|at| at.saturating_sub(host.clock().now));
        let event = tokio::select! {
            biased;
            input = host.input() => LoopEvent::Input(input),
            why = recording_failure(&mut broken), if broken.is_some() => LoopEvent::RecordingFailed(why),
            outcome = answered_command(&mut outcomes), if outcomes.is_some() => LoopEvent::CommandAnswered(outcome),
            grew = tape_grew(&mut changed), if changed.is_some() && app.accepts_growth() => {
                if !grew {
                    changed = None;
                }
                LoopEvent::TapeGrew
            }
            content = next_value(&mut home), if home.is_some() => LoopEvent::HomeChanged(content),
            rows = next_value(&mut found), if found.is_some() => LoopEvent::RecordsFound(rows),
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
            LoopEvent::CommandAnswered(Some(outcome)) => app.command_answered(outcome),
            LoopEvent::CommandAnswered(None) => outcomes = None,
            LoopEvent::TapeGrew => app.tape_grew(host.clock().now),
            LoopEvent::HomeChanged(Some(content)) => app.home_changed(content),
            LoopEvent::HomeChanged(None) => home = None,
            LoopEvent::RecordsFound(Some(rows)) => app.records_found(rows),
            LoopEvent::RecordsFound(None) => found = None,
            LoopEvent::Work => app.work(),
            LoopEvent::Timer => app.timer_fired(host.clock().now),
            LoopEvent::Input(first) => {
                let mut next = Some(first);
                for _ in 0..MAX_INPUTS_PER_FRAME {
                    let Some(input) = next else { break };
                    if let Some(how) = handle_input(app, host, input).await? {
                        return Ok(how);
                    }
                    next = host.input().now_or_never();
                }
                if let Some(input) = next
                    && let Some(how) = handle_input(app, host, input).await?
                {
                    return Ok(how);
                }
            }
        }
    }
}

/// Returns why recording failed, or `None` if the sender was dropped.
async fn recording_failure(broken: &mut Option<oneshot::Receiver<String>>) -> Option<String> {
    match broken {
        Some(broken) => broken.await.ok(),
        None => None,
    }
}

/// Returns the answer to the oldest command without one, or `None` if the engine is gone.
async fn answered_command(
    outcomes: &mut Option<mpsc::UnboundedReceiver<CommandOutcome>>,
) -> Option<CommandOutcome> {
    match outcomes {
        Some(outcomes) => outcomes.recv().await,
        None => None,
    }
}

/// Returns true if the tape grew, and false if the sender was dropped.
async fn tape_grew(changed: &mut Option<watch::Receiver<u64>>) -> bool {
    match changed {
        Some(changed) => changed.changed().await.is_ok(),
        None => false,
    }
}

/// Returns the next value, or `None` if the sender was dropped.
async fn next_value<T: Clone>(values: &mut Option<watch::Receiver<T>>) -> Option<T> {
    let values = values.as_mut()?;
    values.changed().await.ok()?;
    Some(values.borrow_and_update().clone())
}

/// Updates title, progress and notifications together with the frame.
fn update_terminal_status<W: ScreenHost>(app: &mut App, host: &mut W) {
    let outside = app.terminal_status();
    if let Some(title) = outside.title {
        host.title(&title);
    }
    if let Some(gauge) = outside.progress {
        host.progress(gauge);
    }
    for notification in outside.notifications {
        if let Err(why) = host.notify(&notification) {
            app.show_message(why.to_line());
        }
    }
}

async fn handle_input<W: ScreenHost>(
    app: &mut App,
    host: &mut W,
    input: HostInput,
) -> Result<Option<ExitReason>, TuiError> {
    app.tick(host.clock());
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
            host.clear()?;
            app.redraw();
            return Ok(None);
        }
        HostInput::Signal(signal) if signal == terminal::INTERRUPT => {
            ScreenMessage::Key(KeyPress {
                code: crossterm::event::KeyCode::Char('c'),
                modifiers: crossterm::event::KeyModifiers::CONTROL,
            })
        }
        HostInput::Signal(signal) => return Ok(Some(ExitReason::Signal(signal))),
        HostInput::Closed => return Ok(Some(ExitReason::Closed)),
        HostInput::Ignored => return Ok(None),
    };
    for act in app.input(msg) {
        match act {
            HostRequest::Quit(reason) => return Ok(Some(reason)),
            HostRequest::Suspend => {
                host.suspend().await?;
                app.redraw();
            }
            HostRequest::Copy(text) => host.copy(&text),
            HostRequest::OpenExport(export) => {
                let end = host.open(&export).await;
                app.tick(host.clock());
                app.redraw();
                match end {
                    Ok(ToolExit {
                        signal: Some(HostInput::Signal(signal)),
                        ..
                    }) => {
                        return Ok(Some(ExitReason::Signal(signal)));
                    }
                    Ok(ToolExit { edited, .. }) => {
                        if let Some((target, text)) = export.edits.zip(edited) {
                            app.edited(target, text);
                        }
                    }
                    Err(why) => app.show_message(why.to_line()),
                }
            }
            HostRequest::Mouse(ours) => host.mouse(ours)?,
            HostRequest::Clear => {
                host.clear()?;
                app.redraw();
            }
        }
    }
    Ok(None)
}
