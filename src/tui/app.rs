//! The shell's synchronous half: a timeline, the state of the screen, and what is between them.
//!
//! Executes effects, folds in slices, fills the cache, and says when to wake up. It must not wait for anything.

mod time;

use std::time::Duration;

use ratatui::buffer::Buffer;
use tokio::sync::mpsc;

use super::{
    Exit, Left, Options,
    breakpoint::Watch,
    cache::{self, Cache},
    effect::{Command, Effect, Step},
    frame::{Dirty, Limiter},
    handout::{self, Handout},
    load,
    model::{Model, Pace, View},
    msg::Msg,
    outside::{Herald, Outside},
    play::Player,
    seek,
    theme::Theme,
    update::update,
    view::{self, Scene, Shown},
    world::Moment as Now,
};
use crate::{
    run::{Moment, Progress, Timeline, state::UnitStatus},
    tape::{Millis, Seq},
};

/// Bytes folded before the first frame.
pub const FIRST_WINDOW: usize = 256 * 1024;
/// Bytes of a slice of folding: small enough that a key never waits long.
const SLICES: (usize, usize) = (64 * 1024, 4 * 1024 * 1024);
/// How long a slice may take.
const SLICE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(3));
/// How often a record that may grow is looked at, when nobody tells that it grew.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Most bytes that a terminal takes for its clipboard.
const CLIPBOARD: usize = 74_000;

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
    /// When the story last changed, and by then how long the run was.
    changed: Duration,
}

impl App {
    /// A screen over `timeline`; orders go to `commands`.
    pub fn new(timeline: Timeline, commands: Option<mpsc::Sender<Command>>, options: Options, moment: Now) -> Self {
        let live = commands.is_some();
        let mut model = Model::new(options.keymap, live);
        model.mouse = options.manners.mouse;
        model.can_hold = live && options.can_hold;
        model.pace = match (options.paused, options.speed) {
            (true, _) => Pace::Hold,
            (false, Some(speed)) if speed.is_infinite() => Pace::Full,
            (false, Some(speed)) => Pace::Scaled(speed),
            (false, None) => Pace::Follow,
        };
        let origin = timeline.source().origin().clone();
        model.extent.has_times = origin.has_times;
        model.extent.started_at = origin.started_at;
        model.extent.zone = options.zone;
        let shown = Shown {
            known: timeline.known(),
            position: timeline.source().position(),
            at_end: false,
            ended: false,
            passed: options.passed,
            broken: None,
            cut: None,
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
        let shown = |model: &Model| (model.time.0 / 1000, model.extent.now.0 / 1000, model.toasts.len());
        let before = shown(&self.model);
        self.moment = moment;
        let msg = Msg::Tick { now: moment.now, time: self.run_time(), present: self.present() };
        self.update(msg);
        if before != shown(&self.model) {
            self.limiter.mark(Dirty::Soon);
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

    fn perform(&mut self, effect: Effect) -> Option<Act> {
        match effect {
            Effect::Quit => return Some(Act::Quit),
            Effect::Suspend => return Some(Act::Suspend),
            Effect::Mouse(ours) => return Some(Act::Mouse(ours)),
            Effect::Redraw => return Some(Act::Clear),
            Effect::Copy { text, what } => return self.copy(text, &what),
            Effect::CopyEntries { seqs, what } => return self.copy_entries(&seqs, &what),
            Effect::CopySection { line } => {
                let section = self.cache.document().and_then(|document| document.section(line));
                match section.and_then(|section| Some((section.what, section.text.clone()?))) {
                    Some((what, text)) => return self.copy(text.to_string(), what),
                    None => self.model.say("there is nothing to copy here"),
                }
            }
            Effect::CopyName { row, text, what } => {
                let named = row.and_then(|(seq, block)| load::named(&mut self.timeline, seq, block));
                return match named {
                    Some((what, text)) => self.copy(text, what),
                    None => self.copy(text, what),
                };
            }
            Effect::HandOut(wish) => match handout::collect(&mut self.timeline, &wish, self.cache.document()) {
                Ok(handout) => {
                    if handout.cut {
                        self.model.say(format!("{} was too long; only its beginning was handed out", wish.what));
                    }
                    return Some(Act::HandOut(handout));
                }
                Err(error) => self.model.say(error),
            },
            Effect::Command(command) => self.command(command),
            Effect::Go(moment) => self.go(moment),
            Effect::Scrub(moment) => self.scrub = Some(moment),
            Effect::Step(step) => self.step(&step),
            Effect::Until(condition) => self.until(condition),
            Effect::SetPace(pace) => self.set_pace(pace),
            Effect::Find(find) => self.search = Some(seek::Search::new(find)),
        }
        None
    }

    fn copy_entries(&mut self, seqs: &[Seq], what: &str) -> Option<Act> {
        let (mut lines, mut all) = (Vec::new(), 0);
        for seq in seqs {
            let line = load::read_head(&mut self.timeline, *seq, CLIPBOARD, |arrived, size| {
                all += size;
                // Of what is too large nothing is kept.
                (all <= CLIPBOARD as u64).then(|| String::from_utf8_lossy(arrived.body.bytes()).into_owned())
            });
            match line {
                Ok(line) => lines.extend(line),
                Err(error) => {
                    self.model.say(error);
                    return None;
                }
            }
        }
        if all > CLIPBOARD as u64 { self.refuse(what, all) } else { self.copy(lines.join("\n"), what) }
    }

    fn refuse(&mut self, what: &str, size: u64) -> Option<Act> {
        let size = super::text::size(size);
        self.model.say(format!("{what} is too large for the clipboard: {size}"));
        None
    }

    fn copy(&mut self, text: String, what: &str) -> Option<Act> {
        let size = super::text::size(text.len() as u64);
        if text.len() > CLIPBOARD {
            return self.refuse(what, text.len() as u64);
        }
        self.model.say(format!("copied {what}, {size}"));
        Some(Act::Copy(text))
    }

    fn command(&mut self, command: Command) {
        let Some(commands) = &self.commands else { return };
        match commands.try_send(command) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.model.say("the run is busy; try again"),
            Err(mpsc::error::TrySendError::Closed(_)) => self.model.say("the run is over; it takes no more orders"),
        }
    }

    /// True when there is work that needs no event.
    pub fn is_busy(&self) -> bool {
        if self.scrub.is_some() || self.search.is_some() || self.walk.is_some() || !self.indexed || self.unread {
            return true;
        }
        match self.model.pace {
            Pace::Follow | Pace::Hold => self.progress == Progress::More,
            Pace::Scaled(_) => self.is_next_due() || self.progress == Progress::More,
            Pace::Full => true,
        }
    }

    /// One slice of work.
    pub fn work(&mut self) {
        if self.scrub.is_some() {
            self.settle_scrub();
            return;
        }
        if let Some(search) = &mut self.search {
            if let Some(place) = search.slice(&mut self.timeline, &self.cache) {
                self.search = None;
                self.input(Msg::Found(place));
            }
            return;
        }
        if self.unread {
            self.read_on();
            return;
        }
        let begun = std::time::Instant::now();
        match self.model.pace {
            _ if self.walk.is_some() => self.walk(self.slice),
            Pace::Scaled(_) if self.is_next_due() => self.play(),
            _ if !self.indexed => self.index(),
            Pace::Follow => self.fold(self.slice),
            Pace::Full => self.play(),
            Pace::Scaled(_) | Pace::Hold => self.scout(),
        }
        let took = begun.elapsed();
        if took < SLICE.0 {
            self.slice = (self.slice * 2).min(SLICES.1);
        } else if took > SLICE.1 {
            self.slice = (self.slice / 2).max(SLICES.0);
        }
    }

    /// Finds where entries begin, many times faster than they are folded: how much there is, is soon told.
    fn index(&mut self) {
        match self.timeline.look_ahead(self.slice) {
            Ok(Progress::More) => {}
            Ok(Progress::Waiting | Progress::End) => self.indexed = true,
            Err(error) => {
                self.indexed = true;
                self.model.say(error.to_string());
            }
        }
        self.facts();
        self.limiter.mark(Dirty::Soon);
    }

    fn fold(&mut self, bytes: usize) {
        let before = self.timeline.story().state.entries;
        match self.timeline.advance(bytes, &mut |_| {}) {
            Ok(progress) => self.progress = progress,
            Err(error) => {
                self.progress = Progress::End;
                self.shown.broken = Some(error.to_string());
            }
        }
        if self.timeline.story().state.entries != before || self.progress != Progress::More {
            self.changed = self.moment.now;
            self.facts();
            self.limiter.mark(Dirty::Soon);
        }
    }

    /// The run broke off: what is on the record is all there will be, and nobody takes orders any more.
    pub fn broke(&mut self, why: String) {
        self.model.say(why.clone());
        self.shown.cut = Some(why);
        self.model.live = false;
        self.commands = None;
        self.grew();
        self.redraw();
    }

    /// False while no frame could show that the record grew: lines come one by one, and waking up for each costs more
    /// than all of them do.
    pub fn takes_growth(&self) -> bool {
        self.limiter.rests_until(self.moment.now).is_none()
    }

    /// The record grew.
    pub fn grew(&mut self) {
        self.progress = Progress::More;
    }

    fn facts(&mut self) {
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
        let rested = self.commands.is_some().then(|| self.limiter.rests_until(now)).flatten();
        [toast, frame, play, second, grow, rested].into_iter().flatten().min()
    }

    /// A timer went off.
    pub fn woke(&mut self) {
        if self.progress == Progress::Waiting && !self.model.live {
            self.progress = Progress::More;
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

    /// Paints a frame: brings everything into range, reads what will be visible, draws.
    pub fn paint(&mut self, buf: &mut Buffer) {
        self.model.size = (buf.area.width, buf.area.height);
        self.model.settle(self.timeline.story());
        let wants = cache::wants(&self.model, self.timeline.story(), &self.cache);
        load::load(&mut self.timeline, &mut self.cache, &wants);
        self.unread = load::is_unread(&self.timeline, &self.cache, &wants);
        self.lay(&wants);
        if let Some(View::Compare(_)) = self.model.views.last() {
            // What there is to show is known only now.
            let wants = cache::wants(&self.model, self.timeline.story(), &self.cache);
            load::load(&mut self.timeline, &mut self.cache, &wants);
        }
        let scene = Scene {
            model: &self.model,
            story: self.timeline.story(),
            chronicle: self.timeline.chronicle(),
            cache: &self.cache,
            theme: &self.theme,
            source: &self.shown,
        };
        view::draw(&scene, buf);
    }

    /// Tells the views how much of their documents there is.
    fn lay(&mut self, wants: &cache::Wants) {
        let document = self.cache.document().filter(|_| wants.document.is_some());
        match self.model.views.last_mut() {
            Some(View::Entry(view)) => view.lines = document.map_or(0, |document| document.lines.len()),
            Some(View::Inspect(view)) => view.lay(document, self.cache.is_complete()),
            Some(View::Compare(view)) => {
                let sides = wants.comparison.filter(|sides| self.cache.has_comparison(sides));
                view.lay(sides.and_then(|_| self.cache.comparison()));
            }
            _ => {}
        }
        self.model.settle(self.timeline.story());
    }

    /// Reads a little more of what the views ask for and the first frame did not wait for.
    fn read_on(&mut self) {
        let wants = cache::wants(&self.model, self.timeline.story(), &self.cache);
        self.unread = load::more(&mut self.timeline, &mut self.cache, &wants);
        // Whoever waits for the whole of it waits no longer than that.
        self.limiter.mark(if self.unread { Dirty::Soon } else { Dirty::Now });
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
