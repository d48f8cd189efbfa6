//! The shell's synchronous half: a timeline, the state of the screen, and what is between them.
//!
//! Executes effects, folds in slices, fills the cache, and says when to wake up. It must not wait for anything.

mod paint;
mod perform;
mod side_pane;
mod time;
mod work;

use std::time::Duration;

use tokio::sync::mpsc;

use self::side_pane::SidePaneFollower;
use super::{
    ExitReason, Options, TuiExit,
    breakpoint::StopWatcher,
    cache::Cache,
    effect::{RunCommand, TimeStep},
    export::Export,
    frame::{FrameLimiter, GrowthLimiter, RedrawPriority},
    host::ClockReading as Now,
    model::{Playback, ScreenModel},
    msg::ScreenMessage,
    notification::{Notifier, TerminalStatus},
    playback::Player,
    text_search,
    theme::Theme,
    update::update,
    view::SourceStatus,
};
use crate::{
    run::{PollStatus, SeekTarget, Timeline, state::UnitStatus},
    tape::Millis,
};

/// Bytes folded before the first frame.
pub const INITIAL_FOLD_BYTES: usize = 256 * 1024;
/// How often a record that may grow is looked at, when nobody tells that it grew.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Something that only the world can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRequest {
    /// Leave.
    Quit,
    /// Stop the program until it is continued.
    Suspend,
    /// Put text on the clipboard.
    Copy(String),
    /// Give text to an editor or a pager.
    OpenExport(Export),
    /// Take or leave the mouse.
    Mouse(bool),
    /// Paint everything again.
    Clear,
}

/// What the screen is to the run.
#[derive(Debug)]
pub enum RunAccess {
    /// It shows a record.
    Replay,
    /// It shows the run of another process, which takes no orders from here.
    Watch,
    /// It shows the run of this process, which takes orders.
    Control(mpsc::Sender<RunCommand>),
}

/// A timeline on a screen.
#[derive(Debug)]
pub struct App {
    timeline: Timeline,
    model: ScreenModel,
    cache: Cache,
    theme: Theme,
    shown: SourceStatus,
    commands: Option<mpsc::Sender<RunCommand>>,
    limiter: FrameLimiter,
    growth: GrowthLimiter,
    notifier: Notifier,
    player: Option<Player>,
    /// When the next entry is due at the player's pace.
    next: Option<Millis>,
    /// The pace that is kept; the model may want another one.
    playback: Playback,
    /// On the way to a goal.
    goal_watch: Option<StopWatcher>,
    /// Somebody points at this moment.
    pending_scrub: Option<SeekTarget>,
    search: Option<text_search::TextSearch>,
    progress: PollStatus,
    /// False until the beginnings of all entries are known.
    indexed: bool,
    /// True while a view shows something that is not read or laid out to its end.
    has_unread: bool,
    slice: usize,
    clock: Now,
    side_pane: SidePaneFollower,
    /// When the story last changed, and by then how long the run was.
    changed: Duration,
}

impl App {
    /// A screen over `timeline`, playing that part.
    pub fn new(timeline: Timeline, part: RunAccess, options: Options, moment: Now) -> Self {
        let (live, watching, commands) = match part {
            RunAccess::Replay => (false, false, None),
            RunAccess::Watch => (true, true, None),
            RunAccess::Control(commands) => (true, false, Some(commands)),
        };
        let mut model = ScreenModel::new(options.keymap, live);
        model.is_watching = watching;
        model.mouse = options.terminal.mouse;
        model.can_hold = live && !watching && options.can_hold;
        model.playback = match (options.paused, options.speed) {
            (true, _) => Playback::Paused,
            (false, Some(speed)) if speed.is_infinite() => Playback::Unthrottled,
            (false, Some(speed)) => Playback::Speed(speed),
            (false, None) => Playback::Follow,
        };
        options.startup_messages.into_iter().for_each(|told| model.announce(told));
        let origin = timeline.source().info().clone();
        model.bounds.has_times = origin.has_times;
        model.bounds.started_at = origin.started_at;
        model.bounds.zone = options.zone;
        let shown = SourceStatus {
            known_entries: timeline.known_entries(),
            position: timeline.source().position(),
            at_end: false,
            ended: false,
            read_error: None,
            origin,
        };
        let mut app = Self {
            timeline,
            model,
            cache: Cache::default(),
            theme: options.theme,
            shown,
            commands,
            limiter: FrameLimiter::new(options.fps),
            growth: GrowthLimiter::new(options.fps),
            notifier: Notifier::default(),
            player: None,
            next: None,
            playback: Playback::Follow,
            goal_watch: None,
            pending_scrub: None,
            search: None,
            progress: PollStatus::More,
            // A live run is at its end as soon as it is folded; there is nothing to find ahead.
            indexed: live,
            has_unread: false,
            slice: INITIAL_FOLD_BYTES,
            clock: moment,
            side_pane: SidePaneFollower::default(),
            changed: moment.now,
        };
        app.limiter.mark(RedrawPriority::Now);
        app.fold(INITIAL_FOLD_BYTES);
        app.refresh_facts();
        if app.model.playback != Playback::Follow {
            app.seek_when_read(SeekTarget::Entries(0));
            app.set_pace(app.model.playback);
        }
        app
    }

    /// What is left of the screen.
    pub fn leave(self, how: ExitReason) -> TuiExit {
        TuiExit { reason: how, interrupted: self.model.interrupts > 0, timeline: self.timeline }
    }

    /// Moves the clock.
    pub fn tick(&mut self, moment: Now) {
        let shown = |model: &ScreenModel| {
            (model.time.0 / 1000, model.bounds.now.0 / 1000, model.toasts.len(), model.totals.count(UnitStatus::Silent))
        };
        let before = shown(&self.model);
        self.clock = moment;
        if self.advance_clock() {
            self.refresh_facts();
        }
        let msg = ScreenMessage::Tick { now: moment.now, time: self.run_time(), present: self.present() };
        self.update(msg);
        if before != shown(&self.model) {
            self.limiter.mark(RedrawPriority::Soon);
        }
        if self.side_pane.due().is_some_and(|due| due <= moment.now) {
            self.limiter.mark(RedrawPriority::Now);
        }
    }

    /// The time of the run at the moment that is shown.
    fn run_time(&self) -> Millis {
        let now = self.timeline.view().state.last_entry_at;
        match (self.model.playback, &self.player) {
            (Playback::Speed(_), Some(player)) => player.time(self.clock.now).max(now),
            (Playback::Follow, _) if self.is_clock_running() => self.present().max(now),
            _ => now,
        }
    }

    /// True while time passes without entries.
    fn is_clock_running(&self) -> bool {
        let totals = &self.model.bounds.present_totals;
        let queued = self.timeline.latest_state().ended.is_none() && totals.count(UnitStatus::Queued) > 0;
        self.model.is_live && (totals.active_units() > 0 || queued)
    }

    /// A message from outside.
    pub fn input(&mut self, msg: ScreenMessage) -> Vec<HostRequest> {
        if matches!(
            msg,
            ScreenMessage::Key(_) | ScreenMessage::Paste(_) | ScreenMessage::Click { .. } | ScreenMessage::Wheel { .. }
        ) {
            self.notifier.key_pressed(self.clock.now);
        }
        self.limiter.mark(RedrawPriority::Now);
        // Whoever drags over many moments wants to see the last one.
        if !matches!(msg, ScreenMessage::Drag { .. } | ScreenMessage::Click { .. }) {
            self.apply_scrub();
        }
        self.update(msg)
    }

    fn update(&mut self, msg: ScreenMessage) -> Vec<HostRequest> {
        let effects = update(&mut self.model, self.timeline.view(), msg);
        effects.into_iter().filter_map(|effect| self.perform(effect)).collect()
    }

    /// The run broke off: what is on the record is all there will be, and nobody takes orders any more.
    pub fn recording_failed(&mut self, why: String) {
        self.model.show_message(why.clone());
        self.model.recording_failure = Some(why);
        self.tape_finished();
    }

    /// The record will not grow any more, and nobody takes orders.
    pub fn tape_finished(&mut self) {
        (self.model.is_live, self.model.is_watching) = (false, false);
        self.commands = None;
        self.poll_tape();
        self.redraw();
    }

    /// False while nothing new could be heard of how the record grows.
    pub fn accepts_growth(&self) -> bool {
        self.growth.accepts_growth()
    }

    /// The record grew. It is looked at now or a little later.
    pub fn tape_grew(&mut self, now: Duration) {
        if self.growth.note_growth(now) {
            self.poll_tape();
        }
    }

    fn poll_tape(&mut self) {
        self.progress = PollStatus::More;
    }

    /// Brings what depends on time alone to the moment that is shown. True if a unit became silent, or is not yet.
    fn advance_clock(&mut self) -> bool {
        // What has not been read yet may break a silence.
        let caught_up = self.progress != PollStatus::More;
        let shown = if caught_up || self.player.is_some() { self.run_time() } else { Millis(0) };
        let present = if caught_up { self.present() } else { Millis(0) };
        self.timeline.advance_clock(shown, present, &mut |_| {})
    }

    fn refresh_facts(&mut self) {
        self.advance_clock();
        self.shown.known_entries =
            self.timeline.known_entries().max(self.timeline.source().known_entries().unwrap_or_default());
        self.shown.position = self.timeline.source().position();
        self.shown.at_end = self.progress != PollStatus::More;
        self.shown.ended = self.progress == PollStatus::End;
        let entries = self.timeline.view().state.entries;
        let extent = &mut self.model.bounds;
        (extent.last_at, extent.known_entries) = (self.timeline.activity().end_time(), self.shown.known_entries);
        if let Some(present) = extent.present_totals.updated(self.timeline.latest_state()) {
            extent.present_totals = present;
        }
        self.model.at_end = self.shown.ended && self.indexed && entries > 0 && entries >= self.shown.known_entries;
        self.model.refresh(self.timeline.view());
    }

    /// When to look again although nothing happens; `None` to sleep until something does.
    pub fn next_wakeup(&self) -> Option<Duration> {
        let now = self.clock.now;
        let toast = self.model.toasts.iter().map(|toast| toast.until).min();
        let frame = self.limiter.due();
        let play = self.player.zip(self.next).map(|(player, next)| player.due(next));
        let runs = self.is_clock_running() || self.player.is_some();
        // The clock on screen shows whole seconds.
        let second = runs.then(|| {
            let time = if self.player.is_some() { self.model.time } else { self.model.bounds.now };
            let rest = 1000 - time.0 % 1000;
            let speed = if let Playback::Speed(speed) = self.model.playback { speed } else { 1.0 };
            #[expect(clippy::cast_precision_loss, reason = "below 1000")]
            let wait = Duration::from_secs_f64((rest as f64 / 1000.0 / speed).max(0.033));
            now + wait
        });
        let grow = (self.progress == PollStatus::Waiting && !self.model.is_live).then_some(now + POLL_INTERVAL);
        [toast, frame, play, second, grow, self.growth.due(), self.side_pane.due()].into_iter().flatten().min()
    }

    /// A timer went off.
    pub fn timer_fired(&mut self, now: Duration) {
        let may_have_grown = self.progress == PollStatus::Waiting && !self.model.is_live;
        if self.growth.take_due(now) || may_have_grown {
            self.poll_tape();
        }
    }

    /// True when a frame is due.
    pub fn is_due(&self) -> bool {
        self.limiter.is_due(self.clock.now)
    }

    /// Asks for a whole frame at once, on a terminal that others have used meanwhile.
    pub fn redraw(&mut self) {
        self.notifier.reset();
        self.limiter.mark(RedrawPriority::Now);
    }

    /// A frame is on the screen.
    pub fn frame_drawn(&mut self) {
        self.limiter.frame_drawn(self.clock.now);
    }

    /// True when it is known how many entries there are.
    pub fn is_indexed(&self) -> bool {
        self.indexed
    }

    /// True when everything there is has been folded, or played.
    pub fn is_at_end(&self) -> bool {
        match self.model.playback {
            Playback::Follow => self.progress == PollStatus::End,
            Playback::Speed(_) | Playback::Unthrottled => false,
            Playback::Paused => self.indexed && self.timeline.view().state.entries >= self.shown.known_entries,
        }
    }

    /// What is to be told outside of the screen, with the frame that is due.
    pub fn terminal_status(&mut self) -> TerminalStatus {
        let caught_up = self.progress != PollStatus::More;
        let state = if self.model.is_live { self.timeline.latest_state() } else { &self.timeline.view().state };
        self.notifier.poll_status(&self.model, &self.shown.origin, state, caught_up)
    }

    /// The terminal got or lost the focus.
    pub fn focus(&mut self, gained: bool) {
        self.notifier.focus(gained);
    }

    /// Tells something for a while.
    pub fn show_message(&mut self, text: String) {
        self.model.show_message(text);
        self.limiter.mark(RedrawPriority::Now);
    }
}
