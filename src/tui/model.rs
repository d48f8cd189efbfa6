//! The state of the screen: what is selected, opened, typed and asked. Never what the run did; that is the story.
//!
//! Knows no terminal, no clock and no file. It changes in [`super::update`] and in [`Model::settle`], nowhere else.

mod ahead;
mod amend;
mod beside;
mod causes;
pub mod compare;
mod extent;
mod grid;
mod hold;
pub mod inspect;
mod list;
mod listing;
mod toast;
mod views;

use std::time::Duration;

use ahead::Ahead;
pub use amend::{Amending, Field};
pub use beside::Beside;
pub use causes::{CauseLine, Causes};
pub use compare::Compare;
pub use extent::Extent;
pub use grid::{Grid, Slot, Towards};
pub use hold::{CallId, Editor, Purpose, Typing};
pub use inspect::{Inspect, Panel, Side};
pub use list::{List, scrolled};
pub use listing::{Filter, Group, Line, Listing, Sort};
pub(super) use toast::About;
pub use toast::Toast;
pub(super) use views::row_parts;
pub use views::{EntryView, Of, Part, Subject, Transcript, View};

use super::{
    breakpoint::Breakpoint,
    command::History,
    effect::{Command, Effect},
    key::Key,
    keymap::Keymap,
    layout::{self, Plan},
};
use crate::{
    run::{
        outlook::Outlook,
        state::{Attempt, Holding, LaneId, RunState, StateMoment, Story, Unit, UnitStatus},
    },
    tape::{Millis, UnitKey},
};

/// State of the screen.
#[derive(Clone, Debug)]
pub struct Model {
    /// Columns and rows.
    pub size: (u16, u16),
    /// Keys.
    pub keymap: Keymap,
    /// True when orders reach a run.
    pub live: bool,
    /// The run belongs to another process: it can be looked at, and takes no orders from here.
    pub watching: bool,
    /// Why the run broke off without an end on its record, if it did and we saw it.
    pub broken: Option<String>,
    /// True when tool calls of the run can be held.
    pub can_hold: bool,
    /// True when the mouse is ours.
    pub mouse: bool,
    /// True while the button that was pressed on the bar may be held down.
    pub pointing: bool,
    /// The bottom of the view stack.
    pub deck: Deck,
    /// Views opened on top of the deck; the last one is shown.
    pub views: Vec<View>,
    /// An open question.
    pub question: Option<Question>,
    /// A line that is being typed.
    pub typing: Option<Typing>,
    /// Arguments of a call that are being edited.
    pub editor: Option<Editor>,
    /// What the next attempt at a unit is to do otherwise.
    pub amending: Option<Amending>,
    /// The search that `n` repeats.
    pub search: Option<String>,
    /// True while the shell searches.
    pub searching: bool,
    /// Messages, newest last.
    pub toasts: Vec<Toast>,
    /// Keys of an unfinished chord.
    pub pending: Vec<Key>,
    /// How time passes.
    pub pace: Pace,
    /// True when the last entry of a record is shown.
    pub at_end: bool,
    /// The whole of the run.
    pub extent: Extent,
    /// Conditions that time stops at.
    pub breakpoints: Vec<Breakpoint>,
    /// Commands that were typed.
    pub history: History,
    /// Units at once when the present was last shown.
    slots: Option<u32>,
    /// Times Ctrl-C was pressed.
    pub interrupts: u8,
    /// Time since the screen came up.
    pub now: Duration,
    /// Time in the run that is shown.
    pub time: Millis,
    /// Counts over all units.
    pub totals: Totals,
    /// Panes of several units.
    pub grid: Grid,
    /// What is left.
    ahead: Ahead,
}

/// How time passes on the screen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Everything at once as it is there: live, or to the end of a record.
    Follow,
    /// By its own times, so many times as fast.
    Scaled(f64),
    /// One entry after the other, as fast as possible.
    Full,
    /// It stands.
    Hold,
}

/// Units and the stream of the selected one.
#[derive(Clone, Debug, Default)]
pub struct Deck {
    /// Pane with the focus.
    pub focus: Pane,
    /// The focused pane alone.
    pub zoom: bool,
    /// Which units are listed, and how.
    pub listing: Listing,
    /// Selected unit, by index.
    pub unit: usize,
    /// The selection as somebody made it. If a filter or a moment of the past hides it, it comes back with it.
    pub(super) chosen: usize,
    /// The selection as it was last brought into range.
    pub(super) settled: usize,
    /// The filter that hides what was chosen. Under it, the selection stays where it went.
    pub(super) hidden_by: Option<(Filter, String)>,
    /// Row of the selected unit.
    pub(super) row: usize,
    /// True until somebody chooses a unit: the selection then goes where the work is.
    pub auto: bool,
    /// First line of the table on screen.
    pub offset: usize,
    /// Attempt to show instead of the newest, by index.
    pub attempt: Option<usize>,
    /// Rows of that attempt.
    pub stream: List,
    /// Whose rows `stream` is about.
    pub lane: Option<LaneId>,
}

/// A pane of the deck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pane {
    /// Table of units.
    #[default]
    Units,
    /// Actions of the selected one.
    Stream,
}

/// True for what a person has to look at: it is not done, and nothing happens to it.
pub fn is_problem(status: UnitStatus) -> bool {
    status.is_unfinished() || status == UnitStatus::Silent
}

/// True for what went wrong by itself.
pub fn is_failure(status: UnitStatus) -> bool {
    matches!(status, UnitStatus::Failed | UnitStatus::Interrupted)
}

/// A question with a yes.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// What is asked.
    pub text: String,
    /// What it means, line by line.
    pub details: Vec<String>,
    /// What a yes does.
    pub then: Vec<super::effect::Effect>,
}

/// Counts over all units, kept until the story moves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Moment of the counts.
    moment: Option<StateMoment>,
    /// Units by status, in the order of the header.
    pub statuses: [usize; 12],
    /// Turns of all attempts.
    pub turns: u64,
    /// Tokens of all attempts, those of the cache included.
    pub tokens: u64,
    /// Cost of all attempts that said one.
    pub cost: f64,
    /// Attempts whose cost is known.
    pub priced: usize,
    /// Attempts.
    pub attempts: usize,
    /// Attempts that ran without proof of isolation, or with a breach.
    pub breaches: usize,
    /// Units that run until a call of theirs meets a condition.
    pub until: usize,
    /// The first of them, by index.
    pub first_until: Option<usize>,
}

impl Totals {
    /// Statuses in the order of the header.
    pub const ORDER: [UnitStatus; 12] = [
        UnitStatus::Held,
        UnitStatus::Failed,
        UnitStatus::Interrupted,
        UnitStatus::Silent,
        UnitStatus::Running,
        UnitStatus::Waiting,
        UnitStatus::Succeeded,
        UnitStatus::Budget,
        UnitStatus::Reused,
        UnitStatus::Stopped,
        UnitStatus::Queued,
        UnitStatus::Untried,
    ];

    /// Counts of `state`, or nothing if they have not changed.
    pub fn again(&self, state: &RunState) -> Option<Self> {
        (self.moment != Some(state.moment())).then(|| Self::of(state))
    }

    fn of(state: &RunState) -> Self {
        let mut totals = Self { moment: Some(state.moment()), ..Self::default() };
        for (place, unit) in state.units.iter().enumerate() {
            if matches!(unit.holding, Holding::Until(_)) && !unit.status.is_over() {
                totals.until += 1;
                totals.first_until.get_or_insert(place);
            }
            if let Some(place) = Self::ORDER.iter().position(|status| *status == unit.status) {
                totals.statuses[place] += 1;
            }
            totals.attempts += unit.attempts.len();
            for attempt in &unit.attempts {
                totals.turns += u64::from(attempt.turns);
                totals.tokens = totals.tokens.saturating_add(attempt.tokens.all());
                totals.cost += attempt.cost_usd.unwrap_or_default();
                totals.priced += usize::from(attempt.cost_usd.is_some());
                totals.breaches += usize::from(attempt.breach.is_some());
            }
        }
        totals
    }

    /// Units of a status.
    pub fn count(&self, status: UnitStatus) -> usize {
        Self::ORDER.iter().position(|known| *known == status).map_or(0, |place| self.statuses[place])
    }

    /// Units of an attempt that runs, or that wait to run again.
    pub fn active(&self) -> usize {
        let active = [UnitStatus::Running, UnitStatus::Silent, UnitStatus::Held, UnitStatus::Waiting];
        active.into_iter().map(|status| self.count(status)).sum()
    }

    /// Units that something happened to, and nothing more will.
    pub fn over(&self) -> usize {
        let never = self.count(UnitStatus::Queued) + self.count(UnitStatus::Untried);
        self.statuses.iter().sum::<usize>() - self.active() - never
    }
}

impl Model {
    /// The state before anything happened.
    pub fn new(keymap: Keymap, live: bool) -> Self {
        Self {
            size: (0, 0),
            keymap,
            live,
            broken: None,
            can_hold: false,
            watching: false,
            mouse: true,
            pointing: false,
            deck: Deck { auto: true, stream: List::following(), ..Deck::default() },
            views: Vec::new(),
            question: None,
            typing: None,
            editor: None,
            amending: None,
            search: None,
            searching: false,
            toasts: Vec::new(),
            pending: Vec::new(),
            pace: Pace::Follow,
            at_end: false,
            extent: Extent::default(),
            breakpoints: Vec::new(),
            history: History::default(),
            slots: None,
            interrupts: 0,
            now: Duration::ZERO,
            time: Millis(0),
            totals: Totals::default(),
            grid: Grid::default(),
            ahead: Ahead::default(),
        }
    }

    /// Where everything goes on the screen.
    pub fn plan(&self, story: &Story) -> Plan {
        layout::plan(self.size, &self.deck, story.state.units.len(), self.is_walked())
    }

    /// True when time is walked through: in a record, and while somebody looks back on a run that goes on.
    pub fn is_walked(&self) -> bool {
        !self.live || self.pace != Pace::Follow
    }

    /// True when a run goes on beyond the moment that is shown.
    pub fn looks_back(&self) -> bool {
        self.live && self.pace != Pace::Follow
    }

    /// True when the run takes orders from here.
    pub fn takes_orders(&self) -> bool {
        self.live && !self.watching
    }

    /// A plain session that goes on: it writes into the user's own directory, and its calls wait for nobody.
    pub fn is_session(&self) -> bool {
        self.takes_orders() && !self.can_hold
    }

    /// A question about something that is over by itself must not be answered any more.
    fn drop_stale_question(&mut self, story: &Story) {
        let is_over = |key: &UnitKey| story.state.units.iter().any(|unit| unit.key == *key && unit.status.is_over());
        let active = self.extent.present.active();
        let is_stale = |effect: &Effect| match effect {
            Effect::Command(Command::Stop { unit }) => is_over(unit),
            Effect::Command(Command::StopAll) => active == 0,
            _ => false,
        };
        if self.question.as_ref().is_some_and(|question| question.then.iter().any(is_stale)) {
            self.question = None;
        }
    }

    /// The selected unit. Where a filter lists none, none is selected, except among panes, which know no filter.
    pub fn unit<'a>(&self, story: &'a Story) -> Option<&'a Unit> {
        let any = self.listed(story) > 0 || matches!(self.views.last(), Some(View::Grid));
        story.state.units.get(self.deck.unit).filter(|_| any)
    }

    /// The attempt of it that is shown, with its index.
    pub fn attempt<'a>(&self, story: &'a Story) -> Option<(usize, &'a Attempt)> {
        let attempts = &self.unit(story)?.attempts;
        let index = self.deck.attempt.unwrap_or(usize::MAX).min(attempts.len().checked_sub(1)?);
        attempts.get(index).map(|attempt| (index, attempt))
    }

    /// Units that are listed.
    pub fn listed(&self, story: &Story) -> usize {
        self.deck.listing.len(story.state.units.len())
    }

    /// The unit of a row of the table.
    pub fn listed_unit(&self, row: usize) -> Option<usize> {
        self.deck.listing.unit(row)
    }

    /// The row of the selected unit in the table, or where it would be.
    pub fn unit_row(&self) -> usize {
        self.deck.listing.row(self.deck.unit).unwrap_or(self.deck.row)
    }

    /// What stands on the lines of the table that are on screen, with the number of each line.
    pub fn visible_lines(&self, story: &Story, height: usize) -> impl Iterator<Item = (usize, Line<'_>)> {
        let from = self.deck.offset;
        let to = (from + height).min(self.deck.listing.lines(story.state.units.len()));
        (from..to).filter_map(|line| Some((line, self.deck.listing.at(line)?)))
    }

    /// Brings everything into range of the story and the size. Cheap: nothing is done per row of a stream.
    pub fn settle(&mut self, story: &Story) {
        let moment = story.state.moment();
        if self.totals.moment != Some(moment) {
            self.totals = Totals::of(&story.state);
            self.follow_work(&story.state);
            self.deck.listing.refresh(&story.state);
        }
        self.ahead.settle(&story.state, &self.totals, self.time);
        self.drop_stale_question(story);
        self.drop_stale_toasts(story);
        self.tell_slots(story);
        let plan = self.plan(story);
        if matches!(self.views.last(), Some(View::Grid)) {
            self.grid.settle(story, plan.body);
            // Orders are about the focused pane, whatever the table hides.
            if let Some(unit) = self.grid.unit().filter(|unit| *unit != self.deck.unit) {
                (self.deck.unit, self.deck.attempt) = (unit, None);
            }
            (self.deck.chosen, self.deck.settled, self.deck.hidden_by) = (self.deck.unit, self.deck.unit, None);
        } else {
            self.settle_selection(story, plan.unit_rows());
        }

        let lane = self.attempt(story).map(|(_, attempt)| attempt.lane);
        if lane != self.deck.lane {
            self.deck.lane = lane;
            self.deck.stream = List::following();
        }
        let height = plan.stream_rows(self.attempt(story).map(|(_, attempt)| attempt));
        self.deck.stream.settle(lane.map_or(0, |lane| story.rows(lane).len()), height);

        let body = usize::from(plan.body_rows());
        match self.views.last_mut() {
            Some(View::Transcript(view)) => view.settle(story, body),
            Some(View::Entry(view)) => view.settle(story, body),
            Some(View::Compare(view)) => view.settle(plan.body),
            Some(View::Inspect(view)) => view.settle(story, plan.body),
            Some(View::Log(list)) => {
                let above = super::view::log::head(self.broken.as_deref(), layout::inner(plan.body));
                list.settle(story.remarks().len(), body.saturating_sub(usize::from(above)));
            }
            Some(View::Grid) => {}
            Some(View::Breakpoints(list)) => list.settle(self.breakpoints.len(), body),
            Some(View::Causes(view)) => {
                let above = super::view::causes::head(plan.body_rows());
                view.settle(story, body.saturating_sub(usize::from(above)));
            }
            Some(View::Help(list)) => {
                let lines = super::view::help::rows(&self.keymap, plan.body.width);
                list.offset = list.offset.min(lines.saturating_sub(body));
            }
            None => {}
        }
    }

    /// What is left of the run.
    pub fn outlook(&self) -> &Outlook {
        &self.ahead.outlook
    }

    /// Selects the unit that somebody chose, or the one nearest to it that is there, and scrolls to it.
    fn settle_selection(&mut self, story: &Story, height: usize) {
        let (units, listed) = (story.state.units.len(), self.listed(story));
        let deck = &mut self.deck;
        if deck.unit != deck.settled {
            deck.chosen = deck.unit;
            deck.hidden_by = None;
        }
        let filter = (deck.listing.filter, deck.listing.text.clone());
        let wanted = if deck.hidden_by.as_ref() == Some(&filter) { deck.settled } else { deck.chosen };
        deck.unit = wanted.min(units.saturating_sub(1));
        if deck.listing.row(deck.unit).is_none()
            && let Some(nearest) = deck.listing.unit(deck.row.min(listed.saturating_sub(1)))
        {
            deck.unit = nearest;
            deck.hidden_by = Some(filter);
        }
        if deck.unit != deck.settled && deck.unit != deck.chosen {
            deck.attempt = None;
        }
        deck.settled = deck.unit;
        deck.row = deck.listing.row(deck.unit).unwrap_or(deck.row.min(listed.saturating_sub(1)));
        let line = deck.listing.line_of(deck.row);
        deck.offset = scrolled(deck.offset, line, deck.listing.lines(units), height);
        if deck.offset == line && line > 0 && height > 1 && deck.listing.begins_group(deck.row) {
            deck.offset -= 1;
        }
    }

    /// Until somebody chooses, the first unit with a call that waits for a person is selected, or one that is silent or runs, or one
    /// that will run again, or the first failure.
    /// Depends on the state alone: the same moment shows the same selection, however it was reached.
    fn follow_work(&mut self, state: &RunState) {
        if !self.deck.auto {
            return;
        }
        let first = |wanted: fn(UnitStatus) -> bool| state.units.iter().position(|unit| wanted(unit.status));
        let place = first(|status| status == UnitStatus::Held)
            .or_else(|| first(|status| status == UnitStatus::Silent))
            .or_else(|| first(|status| status == UnitStatus::Running))
            .or_else(|| first(|status| status == UnitStatus::Waiting))
            .or_else(|| first(is_failure))
            .or_else(|| first(is_problem))
            .unwrap_or(0);
        if place != self.deck.unit {
            self.deck.unit = place;
            self.deck.attempt = None;
        }
    }
}
