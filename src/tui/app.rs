//! The synchronous half of the shell: connects a timeline with the screen model.
//!
//! Executes effects, folds in slices, fills the cache and computes the next wake-up. It must not block.

mod paint;
mod perform;
mod side_pane;
mod time;
mod work;

use std::{path::PathBuf, time::Duration};

use tokio::sync::mpsc;

use self::side_pane::SidePaneFollower;
use super::{
    ExitReason, FirstPage, HomeContent, HomeSources, Options, RecordMatches, TuiExit,
    cache::ScreenCache,
    edited_text::{EditTarget, UnusableEdit},
    effect::TimeStep,
    export::Export,
    frame_limiter::{FrameLimiter, GrowthLimiter, RedrawPriority},
    host::ClockReading as Now,
    model::{SessionPage, SharedModel},
    notification::{Notifier, TerminalStatus},
    page::{ScreenModel, SourceStatus},
    pages::{home::HomePage, record_search::RecordSearchPage, units::UnitsPage},
    playback::{Playback, Player},
    screen_message::ScreenMessage,
    text_search,
    theme::Theme,
    update::update,
};
use ingestdeck_core::{
    control::{CommandOutcome, DisconnectAction, RunCommand},
    run::breakpoint::StopWatcher,
    run::{PollStatus, SeekTarget, Timeline, state::UnitStatus},
    tape::{Millis, Seq},
};

/// Bytes folded before the first frame.
pub const INITIAL_FOLD_BYTES: usize = 256 * 1024;
/// Unread bytes of a live run from which the moment that is shown is not the present.
const CATCH_UP_BYTES: u64 = 256 * 1024;
/// Interval for checking a tape that may grow without notice.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Interval for checking whether a session has been read, of which only the beginning is shown.
const SETTLE_INTERVAL: Duration = Duration::from_millis(30);

/// How much later the clock on the screen may advance while entries arrive, whose frames also show the time. It is longer
/// than the interval at which streamed text arrives.
const CLOCK_SLACK: Duration = Duration::from_millis(300);

/// A request that only the host can carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRequest {
    Quit(ExitReason),
    /// Stop the process until it is continued.
    Suspend,
    Copy(String),
    /// Open an editor or a pager.
    OpenExport(Export),
    /// Capture or release the mouse.
    Mouse(bool),
    /// Redraw the whole screen.
    Clear,
}

/// Access of the screen to the run.
#[derive(Debug)]
pub enum RunAccess {
    /// The run is a recorded one.
    Replay,
    /// A run of another process; no commands.
    Watch,
    /// A run that accepts commands of this screen.
    Control {
        commands: mpsc::Sender<RunCommand>,
        /// What leaving the screen does to the run by default.
        leave_action: Option<DisconnectAction>,
    },
}

/// Connects a timeline with the screen.
#[derive(Debug)]
pub struct App {
    timeline: Timeline,
    model: ScreenModel,
    cache: ScreenCache,
    theme: Theme,
    shown: SourceStatus,
    commands: Option<mpsc::Sender<RunCommand>>,
    /// Receives texts to find in all runs and sessions.
    record_queries: Option<mpsc::UnboundedSender<String>>,
    /// The directory of the project, if the run is in it.
    project: Option<PathBuf>,
    notifier: Notifier,
    playing: PlaybackProgress,
    reading: ReadProgress,
    frames: FrameSchedule,
    clock: Now,
    /// Clock time of the last change of the run view, and the run time at that moment.
    changed: Duration,
}

/// How the shown moment is moving.
#[derive(Debug)]
struct PlaybackProgress {
    player: Option<Player>,
    /// Run time at which the player shows the next entry.
    next: Option<Millis>,
    /// The value of `next` for which the skipped time is counted.
    skipped_to: Option<Millis>,
    /// The speed that is in effect; the model may request another one.
    playback: Playback,
    /// Active while time moves to a goal.
    goal_watch: Option<StopWatcher>,
    /// Moment under the mouse pointer, until it is shown.
    pending_scrub: Option<SeekTarget>,
}

/// How far the tape is read.
#[derive(Debug)]
struct ReadProgress {
    search: Option<text_search::TextSearch>,
    run_search: Option<text_search::RunSearch>,
    /// True if the last slice of work was one of `run_search`.
    is_search_due: bool,
    progress: PollStatus,
    /// True once the positions of all entries are known.
    indexed: bool,
    /// True while a page shows content that is not completely read or laid out.
    has_unread: bool,
    slice: usize,
}

/// When frames are drawn.
#[derive(Debug)]
struct FrameSchedule {
    limiter: FrameLimiter,
    growth: GrowthLimiter,
    side_pane: SidePaneFollower,
}

impl App {
    /// Creates the screen over `timeline`.
    pub fn new(timeline: Timeline, part: RunAccess, options: Options, moment: Now) -> Self {
        let (live, watching, commands, leave_action) = match part {
            RunAccess::Replay => (false, false, None, None),
            RunAccess::Watch => (true, true, None, None),
            RunAccess::Control {
                commands,
                leave_action,
            } => (true, false, Some(commands), leave_action),
        };
        let mut model = ScreenModel::new(SharedModel::new(options.keymap, live), UnitsPage);
        model.connection.is_watching = watching;
        model.connection.leave_action = leave_action;
        model.dialogs.views = options.table.views.clone();
        model.units_view.listing.arrange(options.table);
        let mut record_queries = None;
        match options.first_page {
            FirstPage::Units => {}
            FirstPage::Session => model.connection.session_page = SessionPage::Wanted,
            FirstPage::Home(HomeSources { content, search }) => {
                model.is_home = true;
                model.connection.has_record_search = search.is_some();
                model.open(HomePage::new(content.borrow().clone()));
                if let Some(search) = search {
                    if let Some(reopened) = search.reopened {
                        // Meanwhile, more may have been recorded. A search that has ended is shown when a text is typed.
                        let _ = search.queries.send(reopened.found.query.clone());
                        model.open(RecordSearchPage::reopened(*reopened));
                    }
                    record_queries = Some(search.queries);
                }
            }
            FirstPage::FromHome { is_session } => {
                model.connection.is_from_home = true;
                if is_session {
                    model.connection.session_page = SessionPage::Wanted;
                }
            }
        }
        model.mouse.is_captured = options.terminal.mouse;
        model.connection.check_arguments = options.check_arguments;
        model.connection.is_session = live && !watching && options.is_session;
        model.playhead.playback = match (options.paused_after, options.speed) {
            (Some(_), _) => Playback::Paused,
            (None, Some(speed)) if speed.is_infinite() => Playback::Unthrottled,
            (None, Some(speed)) => Playback::Speed(speed),
            (None, None) => Playback::Follow,
        };
        options
            .startup_messages
            .into_iter()
            .for_each(|message| model.toasts.announce(message));
        let origin = timeline.source().info().clone();
        let header = origin.header.as_ref().filter(|_| !live);
        model.connection.recorded_run = header.map(|header| super::model::RecordedRunName {
            id: header.run.to_string(),
            short: header.run.short(),
            is_of_project: options.project.is_some(),
        });
        model.playhead.bounds.has_times = origin.has_times;
        model.playhead.bounds.started_at = origin.started_at;
        model.playhead.bounds.zone = options.zone.clone();
        model.playhead.bookmarks = options.bookmarks;
        let shown = SourceStatus {
            known_entries: timeline.known_entries(),
            position: timeline.source().position(),
            at_end: false,
            is_catching_up: false,
            ended: false,
            read_error: None,
            origin,
        };
        let mut app = Self {
            timeline,
            model,
            cache: ScreenCache::new(options.zone),
            theme: options.theme,
            shown,
            commands,
            record_queries,
            project: options.project,
            notifier: Notifier::default(),
            playing: PlaybackProgress {
                player: None,
                next: None,
                skipped_to: None,
                playback: Playback::Follow,
                goal_watch: None,
                pending_scrub: None,
            },
            reading: ReadProgress {
                search: None,
                run_search: None,
                is_search_due: false,
                progress: PollStatus::More,
                // A live run reaches its end by folding; there is nothing to index ahead.
                indexed: live,
                has_unread: false,
                slice: INITIAL_FOLD_BYTES,
            },
            frames: FrameSchedule {
                limiter: FrameLimiter::new(options.fps),
                growth: GrowthLimiter::new(options.fps),
                side_pane: SidePaneFollower::default(),
            },
            clock: moment,
            changed: moment.now,
        };
        app.frames.limiter.mark(RedrawPriority::Now);
        app.fold(INITIAL_FOLD_BYTES);
        app.refresh_facts();
        if app.model.playhead.playback != Playback::Follow {
            app.seek_when_read(SeekTarget::Entries(0));
            app.set_playback(app.model.playhead.playback);
        }
        if let Some(entry) = options
            .paused_after
            .and_then(|entries| entries.checked_sub(1))
        {
            app.seek_to_entry(Seq(entry));
        }
        app
    }

    /// Takes what an editor left.
    pub(crate) fn edited(&mut self, target: EditTarget, text: Result<String, UnusableEdit>) {
        // Neither a form nor a review asks the host for anything.
        drop(self.input(ScreenMessage::Edited { target, text }));
    }

    /// Returns the result of the closed screen.
    pub(crate) fn leave(self, how: ExitReason) -> TuiExit {
        let (interrupted, table) = (
            self.model.connection.interrupts > 0,
            self.model
                .units_view
                .listing
                .settings()
                .of_project(self.model.dialogs.views.clone()),
        );
        TuiExit {
            reason: how,
            interrupted,
            timeline: self.timeline,
            table,
        }
    }

    pub fn tick(&mut self, moment: Now) {
        let shown = |model: &ScreenModel| {
            (
                model.playhead.time.0 / 1000,
                model.playhead.bounds.now.0 / 1000,
                model.toasts.list.len(),
                model.totals.count(UnitStatus::Silent),
            )
        };
        let before = shown(&self.model);
        self.clock = moment;
        self.skip_idle();
        if self.advance_clock() {
            self.refresh_facts();
        }
        let msg = ScreenMessage::Tick {
            now: moment.now,
            time: self.run_time(),
            present: self.present(),
        };
        self.update(msg);
        if before != shown(&self.model) {
            self.frames.limiter.mark(RedrawPriority::Soon);
        }
        if self
            .frames
            .side_pane
            .due()
            .is_some_and(|due| due <= moment.now)
        {
            self.frames.limiter.mark(RedrawPriority::Now);
        }
    }

    /// Run time of the moment that is shown.
    fn run_time(&self) -> Millis {
        let now = self.timeline.view().state.last_entry_at;
        match (self.model.playhead.playback, &self.playing.player) {
            (Playback::Speed(_), Some(player)) => player.time(self.clock.now).max(now),
            (Playback::Follow, _) if self.is_clock_running() && !self.shown.is_catching_up => {
                self.present().max(now)
            }
            _ => now,
        }
    }

    /// True while time advances without new entries.
    fn is_clock_running(&self) -> bool {
        let totals = &self.model.playhead.bounds.present_totals;
        let latest = self.timeline.latest_state();
        let is_open = totals.count(UnitStatus::Queued) > 0 || latest.open_review().is_some();
        self.model.connection.is_live
            && (totals.active_units() > 0 || latest.ended.is_none() && is_open)
    }

    /// Handles an input message.
    pub fn input(&mut self, msg: ScreenMessage) -> Vec<HostRequest> {
        if matches!(
            msg,
            ScreenMessage::Key(_)
                | ScreenMessage::Paste(_)
                | ScreenMessage::Click { .. }
                | ScreenMessage::Wheel { .. }
        ) {
            self.notifier.key_pressed(self.clock.now);
        }
        self.frames.limiter.mark(RedrawPriority::Now);
        // While the pointer is dragged, only the last moment matters.
        if !matches!(
            msg,
            ScreenMessage::Drag { .. } | ScreenMessage::Click { .. }
        ) {
            self.apply_scrub();
        }
        self.update(msg)
    }

    fn update(&mut self, msg: ScreenMessage) -> Vec<HostRequest> {
        let effects = update(&mut self.model, self.timeline.view(), msg);
        if self.date_recent_page() {
            self.model.refresh(self.timeline.view());
        }
        effects
            .into_iter()
            .filter_map(|effect| self.perform(effect))
            .collect()
    }

    /// Recording failed: the tape is complete as it is, and the run accepts no further commands.
    pub(crate) fn recording_failed(&mut self, why: String) {
        self.model.toasts.show(why.clone());
        self.model.connection.recording_failure = Some(why);
        self.tape_finished();
    }

    /// The engine answered the oldest command without an answer.
    pub(super) fn command_answered(&mut self, outcome: CommandOutcome) {
        self.model.unrecorded_acts.answered(&outcome);
        if let Some(text) = self.model.dialogs.command_answered(outcome) {
            self.show_message(text);
        }
    }

    /// The tape will not grow further, and the run accepts no further commands.
    pub(crate) fn tape_finished(&mut self) {
        (
            self.model.connection.is_live,
            self.model.connection.is_watching,
        ) = (false, false);
        self.commands = None;
        self.poll_tape();
        self.redraw();
    }

    /// False while a growth of the tape is pending.
    pub(crate) fn accepts_growth(&self) -> bool {
        self.frames.growth.accepts_growth()
    }

    /// Records that the tape grew. It is read now or after an interval.
    pub(crate) fn tape_grew(&mut self, now: Duration) {
        if self.frames.growth.note_growth(now) {
            self.poll_tape();
        }
    }

    fn poll_tape(&mut self) {
        self.reading.progress = PollStatus::More;
    }

    /// Updates everything that depends on time alone. Returns true if a unit became silent or ended its silence.
    fn advance_clock(&mut self) -> bool {
        // Unread entries may end a silence.
        let caught_up = self.reading.progress != PollStatus::More;
        let shown = if caught_up || self.playing.player.is_some() {
            self.run_time()
        } else {
            Millis(0)
        };
        let present = if caught_up { self.present() } else { Millis(0) };
        self.timeline.advance_clock(shown, present, &mut |_| {})
    }

    fn refresh_facts(&mut self) {
        self.advance_clock();
        self.shown.known_entries = self
            .timeline
            .known_entries()
            .max(self.timeline.source().known_entries().unwrap_or_default());
        self.shown.position = self.timeline.source().position();
        let is_whole = !self.timeline.is_provisional();
        self.shown.at_end = self.reading.progress != PollStatus::More && is_whole;
        self.shown.ended = self.reading.progress == PollStatus::End;
        let (read, total) = self.shown.position;
        let is_behind = total.is_some_and(|total| total.saturating_sub(read) > CATCH_UP_BYTES);
        let is_shown =
            self.model.connection.is_live && self.model.playhead.playback == Playback::Follow;
        self.shown.is_catching_up =
            is_shown && !self.shown.at_end && (self.shown.is_catching_up || is_behind);
        let is_record = !self.model.connection.is_live;
        let percent = self
            .shown
            .percent_read()
            .filter(|_| is_record || self.shown.is_catching_up);
        self.model.playhead.bounds.percent_read = percent;
        let entries = self.timeline.view().state.entries;
        let extent = &mut self.model.playhead.bounds;
        (extent.last_at, extent.known_entries) = (
            self.timeline.activity().end_time(),
            self.shown.known_entries,
        );
        let latest = self.timeline.latest_state();
        if let Some(present) = extent.present_totals.updated(latest) {
            extent.present_totals = present;
        }
        extent.is_provisional = self.timeline.is_provisional();
        extent.is_review_open = latest.open_review().is_some();
        self.model.playhead.at_end = self.shown.ended
            && self.reading.indexed
            && entries > 0
            && entries >= self.shown.known_entries;
        self.model.refresh(self.timeline.view());
    }

    /// Time of the next wake-up without an event; `None` if only an event can cause work.
    pub(crate) fn next_wakeup(&self) -> Option<Duration> {
        let now = self.clock.now;
        let toast = self.model.toasts.list.iter().map(|toast| toast.until).min();
        let frame = self.frames.limiter.due();
        let play = self
            .playing
            .player
            .zip(self.playing.next)
            .map(|(player, next)| player.due(next));
        let runs = self.is_clock_running() || self.playing.player.is_some();
        // The clock on the screen shows whole seconds.
        let second = runs.then(|| {
            let time = if self.playing.player.is_some() {
                self.model.playhead.time
            } else {
                self.model.playhead.bounds.now
            };
            let rest = 1000 - time.0 % 1000;
            let speed = if let Playback::Speed(speed) = self.model.playhead.playback {
                speed
            } else {
                1.0
            };
            #[expect(clippy::cast_precision_loss, reason = "below 1000")]
            let wait = Duration::from_secs_f64((rest as f64 / 1000.0 / speed).max(0.033));
            let is_growing =
                self.playing.player.is_none() && now.saturating_sub(self.changed) < CLOCK_SLACK;
            now + wait
                + if is_growing {
                    CLOCK_SLACK
                } else {
                    Duration::ZERO
                }
        });
        let interval = match self.timeline.is_provisional() {
            true => SETTLE_INTERVAL,
            false => POLL_INTERVAL,
        };
        let grow = (self.reading.progress == PollStatus::Waiting && !self.model.connection.is_live)
            .then_some(now + interval);
        [
            toast,
            frame,
            play,
            second,
            grow,
            self.frames.growth.due(),
            self.frames.side_pane.due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Handles an expired timer.
    pub(crate) fn timer_fired(&mut self, now: Duration) {
        let may_have_grown =
            self.reading.progress == PollStatus::Waiting && !self.model.connection.is_live;
        let is_growth_due = self.frames.growth.take_due(now);
        if may_have_grown && self.timeline.is_provisional() {
            self.settle();
        } else if is_growth_due || may_have_grown {
            self.poll_tape();
        }
    }

    pub fn is_due(&self) -> bool {
        self.frames.limiter.is_due(self.clock.now)
    }

    /// Requests a complete redraw, after another program used the terminal.
    pub(crate) fn redraw(&mut self) {
        self.notifier.reset();
        self.frames.limiter.mark(RedrawPriority::Now);
    }

    /// Records that a frame was drawn.
    pub fn frame_drawn(&mut self) {
        self.frames.limiter.frame_drawn(self.clock.now);
    }

    /// True once the number of entries is known.
    pub(crate) fn is_indexed(&self) -> bool {
        self.reading.indexed && !self.timeline.is_provisional()
    }

    /// True if all entries have been folded or played.
    pub(crate) fn is_at_end(&self) -> bool {
        match self.model.playhead.playback {
            // A run that is shown live has no end, so everything that is there counts.
            Playback::Follow if self.model.connection.is_live => {
                self.reading.progress != PollStatus::More
            }
            Playback::Follow => self.reading.progress == PollStatus::End,
            Playback::Speed(_) | Playback::Unthrottled => false,
            Playback::Paused => {
                self.reading.indexed
                    && self.timeline.view().state.entries >= self.shown.known_entries
            }
        }
    }

    /// Changes of the terminal's title, progress and notifications, sent with the next frame.
    pub(crate) fn terminal_status(&mut self) -> TerminalStatus {
        let caught_up = self.reading.progress != PollStatus::More;
        let state = if self.model.connection.is_live {
            self.timeline.latest_state()
        } else {
            &self.timeline.view().state
        };
        self.notifier
            .poll_status(&self.model, &self.shown.origin, state, caught_up)
    }

    /// Records that the terminal gained or lost the focus.
    pub(crate) fn focus(&mut self, gained: bool) {
        self.notifier.focus(gained);
    }

    /// The home screen lists other content.
    pub(crate) fn home_changed(&mut self, content: HomeContent) {
        if let Some(page) = self.model.find_mut::<HomePage>() {
            page.replace(content);
            self.model.refresh(self.timeline.view());
            self.frames.limiter.mark(RedrawPriority::Soon);
        }
    }

    /// The search of all runs and sessions found more.
    pub(crate) fn records_found(&mut self, found: RecordMatches) {
        if let Some(page) = self.model.find_mut::<RecordSearchPage>() {
            page.replace(found);
            self.model.refresh(self.timeline.view());
            self.frames.limiter.mark(RedrawPriority::Soon);
        }
    }

    /// Shows a message for a limited time.
    pub(crate) fn show_message(&mut self, text: String) {
        self.model.toasts.show(text);
        self.frames.limiter.mark(RedrawPriority::Now);
    }
}
