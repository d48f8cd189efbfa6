//! The shell's synchronous half: a timeline, the state of the screen, and what is between them.
//!
//! Executes effects, folds in slices, fills the cache, and says when to wake up. It must not wait for anything.

mod beside;
mod frame;
mod perform;
mod time;
mod work;

use std::time::Duration;

use tokio::sync::mpsc;

use self::beside::Follower;
use super::{
    Exit, Left, Options,
    breakpoint::Watch,
    cache::Cache,
    effect::{Command, Step},
    frame::{Dirty, Growth, Limiter},
    handout::Handout,
    model::{Model, Pace},
    msg::Msg,
    outside::{Herald, Outside},
    play::Player,
    seek,
    theme::Theme,
    update::update,
    view::Shown,
    world::Moment as Now,
};
use crate::{
    run::{Moment, Progress, Timeline, state::UnitStatus},
    tape::Millis,
};

/// Bytes folded before the first frame.
pub const FIRST_WINDOW: usize = 256 * 1024;
/// How often a record that may grow is looked at, when nobody tells that it grew.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Something that only the world can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Leave.
    Quit,
    /// Stop the program until it is continued.
    Suspend,
    /// Put text on the clipboard.
    Copy(String),
    /// Give text to an editor or a pager.
    HandOut(Handout),
    /// Take or leave the mouse.
    Mouse(bool),
    /// Paint everything again.
    Clear,
}

/// What the screen is to the run.
#[derive(Debug)]
pub enum Part {
    /// It shows a record.
    Replays,
    /// It shows the run of another process, which takes no orders from here.
    Watches,
    /// It shows the run of this process, which takes orders.
    Runs(mpsc::Sender<Command>),
}

/// A timeline on a screen.
#[derive(Debug)]
pub struct App {
    timeline: Timeline,
    model: Model,
    cache: Cache,
    theme: Theme,
    shown: Shown,
    commands: Option<mpsc::Sender<Command>>,
    limiter: Limiter,
    growth: Growth,
    herald: Herald,
    player: Option<Player>,
    /// When the next entry is due at the player's pace.
    next: Option<Millis>,
    /// The pace that is kept; the model may want another one.
    pace: Pace,
    /// On the way to a goal.
    walk: Option<Watch>,
    /// Somebody points at this moment.
    scrub: Option<Moment>,
    search: Option<seek::Search>,
    progress: Progress,
    /// False until the beginnings of all entries are known.
    indexed: bool,
    /// True while a view shows something that is not read or laid out to its end.
    unread: bool,
    slice: usize,
    moment: Now,
    follower: Follower,
    /// When the story last changed, and by then how long the run was.
    changed: Duration,
}

impl App {
    /// A screen over `timeline`, playing that part.
    pub fn new(timeline: Timeline, part: Part, options: Options, moment: Now) -> Self {
        let (live, watching, commands) = match part {
            Part::Replays => (false, false, None),
            Part::Watches => (true, true, None),
            Part::Runs(commands) => (true, false, Some(commands)),
        };
        let mut model = Model::new(options.keymap, live);
        model.watching = watching;
        model.mouse = options.manners.mouse;
        model.can_hold = live && !watching && options.can_hold;
        model.pace = match (options.paused, options.speed) {
            (true, _) => Pace::Hold,
            (false, Some(speed)) if speed.is_infinite() => Pace::Full,
            (false, Some(speed)) => Pace::Scaled(speed),
            (false, None) => Pace::Follow,
        };
        options.told.into_iter().for_each(|told| model.announce(told));
        let origin = timeline.source().origin().clone();
        model.extent.has_times = origin.has_times;
        model.extent.started_at = origin.started_at;
        model.extent.zone = options.zone;
        let shown = Shown {
            known: timeline.known(),
            position: timeline.source().position(),
            at_end: false,
            ended: false,
            broken: None,
            origin,
        };
        let mut app = Self {
            timeline,
            model,
            cache: Cache::default(),
            theme: options.theme,
            shown,
            commands,
            limiter: Limiter::new(options.fps),
            growth: Growth::new(options.fps),
            herald: Herald::default(),
            player: None,
            next: None,
            pace: Pace::Follow,
            walk: None,
            scrub: None,
            search: None,
            progress: Progress::More,
            // A live run is at its end as soon as it is folded; there is nothing to find ahead.
            indexed: live,
            unread: false,
            slice: FIRST_WINDOW,
            moment,
            follower: Follower::default(),
            changed: moment.now,
        };
        app.limiter.mark(Dirty::Now);
        app.fold(FIRST_WINDOW);
        app.facts();
        if app.model.pace != Pace::Follow {
            app.go(Moment::Entries(0));
            app.set_pace(app.model.pace);
        }
        app
    }

    /// What is left of the screen.
    pub fn leave(self, how: Left) -> Exit {
        Exit { how, interrupted: self.model.interrupts > 0, timeline: self.timeline }
    }

    /// Moves the clock.
    pub fn tick(&mut self, moment: Now) {
        let shown = |model: &Model| {
            (model.time.0 / 1000, model.extent.now.0 / 1000, model.toasts.len(), model.totals.count(UnitStatus::Silent))
        };
        let before = shown(&self.model);
        self.moment = moment;
        if self.pass_time() {
            self.facts();
        }
        let msg = Msg::Tick { now: moment.now, time: self.run_time(), present: self.present() };
        self.update(msg);
        if before != shown(&self.model) {
            self.limiter.mark(Dirty::Soon);
        }
        if self.follower.due().is_some_and(|due| due <= moment.now) {
            self.limiter.mark(Dirty::Now);
        }
    }

    /// The time of the run at the moment that is shown.
    fn run_time(&self) -> Millis {
        let now = self.timeline.story().state.now;
        match (self.model.pace, &self.player) {
            (Pace::Scaled(_), Some(player)) => player.time(self.moment.now).max(now),
            (Pace::Follow, _) if self.runs() => self.present().max(now),
            _ => now,
        }
    }

    /// True while time passes without entries.
    fn runs(&self) -> bool {
        let totals = &self.model.extent.present;
        let queued = self.timeline.present().ended.is_none() && totals.count(UnitStatus::Queued) > 0;
        self.model.live && (totals.active() > 0 || queued)
    }

    /// A message from outside.
    pub fn input(&mut self, msg: Msg) -> Vec<Act> {
        if matches!(msg, Msg::Key(_) | Msg::Paste(_) | Msg::Click { .. } | Msg::Wheel { .. }) {
            self.herald.touched(self.moment.now);
        }
        self.limiter.mark(Dirty::Now);
        // Whoever drags over many moments wants to see the last one.
        if !matches!(msg, Msg::Drag { .. } | Msg::Click { .. }) {
            self.settle_scrub();
        }
        self.update(msg)
    }

    fn update(&mut self, msg: Msg) -> Vec<Act> {
        let effects = update(&mut self.model, self.timeline.story(), msg);
        effects.into_iter().filter_map(|effect| self.perform(effect)).collect()
    }

    /// The run broke off: what is on the record is all there will be, and nobody takes orders any more.
    pub fn broke(&mut self, why: String) {
        self.model.say(why.clone());
        self.model.broken = Some(why);
        self.over();
    }

    /// The record will not grow any more, and nobody takes orders.
    pub fn over(&mut self) {
        (self.model.live, self.model.watching) = (false, false);
        self.commands = None;
        self.look_again();
        self.redraw();
    }

    /// False while nothing new could be heard of how the record grows.
    pub fn takes_growth(&self) -> bool {
        self.growth.is_news()
    }

    /// The record grew. It is looked at now or a little later.
    pub fn grew(&mut self, now: Duration) {
        if self.growth.arrives(now) {
            self.look_again();
        }
    }

    fn look_again(&mut self) {
        self.progress = Progress::More;
    }

    /// Brings what depends on time alone to the moment that is shown. True if a unit became silent, or is not yet.
    fn pass_time(&mut self) -> bool {
        // What has not been read yet may break a silence.
        let caught_up = self.progress != Progress::More;
        let shown = if caught_up || self.player.is_some() { self.run_time() } else { Millis(0) };
        let present = if caught_up { self.present() } else { Millis(0) };
        self.timeline.pass_time(shown, present, &mut |_| {})
    }

    fn facts(&mut self) {
        self.pass_time();
        self.shown.known = self.timeline.known().max(self.timeline.source().found().unwrap_or_default());
        self.shown.position = self.timeline.source().position();
        self.shown.at_end = self.progress != Progress::More;
        self.shown.ended = self.progress == Progress::End;
        let entries = self.timeline.story().state.entries;
        let extent = &mut self.model.extent;
        (extent.last, extent.known) = (self.timeline.chronicle().last(), self.shown.known);
        if let Some(present) = extent.present.again(self.timeline.present()) {
            extent.present = present;
        }
        self.model.at_end = self.shown.ended && self.indexed && entries > 0 && entries >= self.shown.known;
        self.model.settle(self.timeline.story());
    }

    /// When to look again although nothing happens; `None` to sleep until something does.
    pub fn wake(&self) -> Option<Duration> {
        let now = self.moment.now;
        let toast = self.model.toasts.iter().map(|toast| toast.until).min();
        let frame = self.limiter.due();
        let play = self.player.zip(self.next).map(|(player, next)| player.due(next));
        let runs = self.runs() || self.player.is_some();
        // The clock on screen shows whole seconds.
        let second = runs.then(|| {
            let time = if self.player.is_some() { self.model.time } else { self.model.extent.now };
            let rest = 1000 - time.0 % 1000;
            let speed = if let Pace::Scaled(speed) = self.model.pace { speed } else { 1.0 };
            #[expect(clippy::cast_precision_loss, reason = "below 1000")]
            let wait = Duration::from_secs_f64((rest as f64 / 1000.0 / speed).max(0.033));
            now + wait
        });
        let grow = (self.progress == Progress::Waiting && !self.model.live).then_some(now + LOOK_AGAIN);
        [toast, frame, play, second, grow, self.growth.due(), self.follower.due()].into_iter().flatten().min()
    }

    /// A timer went off.
    pub fn woke(&mut self, now: Duration) {
        let may_have_grown = self.progress == Progress::Waiting && !self.model.live;
        if self.growth.is_taken(now) || may_have_grown {
            self.look_again();
        }
    }

    /// True when a frame is due.
    pub fn is_due(&self) -> bool {
        self.limiter.is_due(self.moment.now)
    }

    /// Asks for a whole frame at once, on a terminal that others have used meanwhile.
    pub fn redraw(&mut self) {
        self.herald.forget();
        self.limiter.mark(Dirty::Now);
    }

    /// A frame is on the screen.
    pub fn drawn(&mut self) {
        self.limiter.drawn(self.moment.now);
    }

    /// True when it is known how many entries there are.
    pub fn is_indexed(&self) -> bool {
        self.indexed
    }

    /// True when everything there is has been folded, or played.
    pub fn is_at_end(&self) -> bool {
        match self.model.pace {
            Pace::Follow => self.progress == Progress::End,
            Pace::Scaled(_) | Pace::Full => false,
            Pace::Hold => self.indexed && self.timeline.story().state.entries >= self.shown.known,
        }
    }

    /// What is to be told outside of the screen, with the frame that is due.
    pub fn outside(&mut self) -> Outside {
        let caught_up = self.progress != Progress::More;
        let state = if self.model.live { self.timeline.present() } else { &self.timeline.story().state };
        self.herald.tell(&self.model, &self.shown.origin, state, caught_up)
    }

    /// The terminal got or lost the focus.
    pub fn focus(&mut self, gained: bool) {
        self.herald.focus(gained);
    }

    /// Tells something for a while.
    pub fn say(&mut self, text: String) {
        self.model.say(text);
        self.limiter.mark(Dirty::Now);
    }
}
