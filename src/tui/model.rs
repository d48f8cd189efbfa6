//! The state of the screen: what is selected, opened, typed and asked. Never what the run did; that is the story.
//!
//! Knows no terminal, no clock and no file. It changes in [`super::update`] and in [`Model::settle`], nowhere else.

use std::time::Duration;

use super::{
    key::Key,
    keymap::Keymap,
    layout::{self, Plan},
};
use crate::{
    run::state::{Attempt, LaneId, RowEnd, RunState, Story, Unit, UnitStatus},
    tape::{Millis, Seq, UnitKey},
};

/// How long a message stays.
const TOAST: Duration = Duration::from_secs(5);

/// State of the screen.
#[derive(Clone, Debug)]
pub struct Model {
    /// Columns and rows.
    pub size: (u16, u16),
    /// Keys.
    pub keymap: Keymap,
    /// True when orders reach a run.
    pub live: bool,
    /// True when the mouse is ours.
    pub mouse: bool,
    /// The bottom of the view stack.
    pub deck: Deck,
    /// Views opened on top of the deck; the last one is shown.
    pub views: Vec<View>,
    /// An open question.
    pub question: Option<Question>,
    /// A search that is being typed.
    pub typing: Option<String>,
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
    /// Times Ctrl-C was pressed.
    pub interrupts: u8,
    /// Time since the screen came up.
    pub now: Duration,
    /// Time in the run that is shown.
    pub time: Millis,
    /// Counts over all units.
    pub totals: Totals,
}

/// How time passes on the screen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Everything at once as it is there: live, or to the end of a record.
    Follow,
    /// By its own times, so many times as fast.
    Scaled(f64),
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
    /// Which units are listed.
    pub filter: Filter,
    /// Units that pass the filter, by index; `None` when all do.
    pub shown: Option<Vec<usize>>,
    /// Selected unit, by index.
    pub unit: usize,
    /// True until somebody chooses a unit: the selection then goes where the work is.
    pub auto: bool,
    /// First unit row on screen.
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

/// Which units are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// All.
    #[default]
    All,
    /// Failed and interrupted ones.
    Failed,
    /// Running and waiting ones.
    Running,
}

impl Filter {
    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::All => Self::Failed,
            Self::Failed => Self::Running,
            Self::Running => Self::All,
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Failed => "failed",
            Self::Running => "running",
        }
    }

    /// True when a unit of that status is listed.
    pub fn passes(self, status: UnitStatus) -> bool {
        match self {
            Self::All => true,
            Self::Failed => is_failure(status),
            Self::Running => matches!(status, UnitStatus::Running | UnitStatus::Waiting),
        }
    }
}

/// True for what a person has to look at.
pub fn is_failure(status: UnitStatus) -> bool {
    matches!(status, UnitStatus::Failed | UnitStatus::Interrupted)
}

/// A view above the deck.
#[derive(Clone, Debug)]
pub enum View {
    /// Every line of an attempt.
    Transcript(Transcript),
    /// Everything of one entry or row.
    Entry(EntryView),
    /// Keys.
    Help(List),
    /// The run's remarks.
    Log(List),
}

/// Every line of an attempt.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// Unit.
    pub unit: UnitKey,
    /// Attempt, by index.
    pub attempt: usize,
    /// Its entries.
    pub list: List,
}

/// Everything of one entry or row.
#[derive(Clone, Debug)]
pub struct EntryView {
    /// Unit.
    pub unit: UnitKey,
    /// Where its neighbours are.
    pub lane: LaneId,
    /// What it shows.
    pub subject: Subject,
    /// Parts to show, as the story has them now.
    pub parts: Vec<Part>,
    /// First line on screen.
    pub scroll: usize,
    /// Lines of the document, once the shell has laid it out.
    pub lines: usize,
    /// Line of the last match.
    pub hit: Option<usize>,
}

/// What an entry view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A row of a lane: its beginning and its end.
    Row(usize),
    /// An entry of a lane.
    Entry(usize),
}

/// A part of an entry view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Its heading.
    pub title: &'static str,
    /// Its entry.
    pub seq: Seq,
}

/// A list that is scrolled row by row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Selected row.
    pub selected: usize,
    /// First row on screen.
    pub offset: usize,
    /// Stay at the last row as rows arrive.
    pub follow: bool,
    /// Rows there were when following ended.
    pub seen: usize,
}

impl List {
    /// A list that stays at its end.
    pub fn following() -> Self {
        Self { follow: true, ..Self::default() }
    }

    /// Rows that arrived since following ended.
    pub fn news(&self, len: usize) -> usize {
        if self.follow { 0 } else { len.saturating_sub(self.seen.max(1)) }
    }

    /// Selects a row. Following ends, unless it is a move to the end of a followed list.
    pub fn select(&mut self, row: usize, len: usize) {
        let row = row.min(len.saturating_sub(1));
        if self.follow && row + 1 < len {
            self.follow = false;
            self.seen = len;
        }
        self.selected = row;
    }

    /// Moves the selection.
    pub fn step(&mut self, by: isize, len: usize) {
        self.select(self.selected.saturating_add_signed(by), len);
    }

    /// Selects the last row and follows.
    pub fn end(&mut self, len: usize) {
        self.follow = true;
        self.selected = len.saturating_sub(1);
    }

    /// Brings selection and offset into range.
    pub fn settle(&mut self, len: usize, height: usize) {
        if self.follow {
            self.selected = len.saturating_sub(1);
            self.seen = len;
        }
        self.seen = self.seen.min(len);
        self.selected = self.selected.min(len.saturating_sub(1));
        self.offset = scrolled(self.offset, self.selected, len, height);
    }
}

/// The offset nearest to `offset` that shows `selected` and leaves no gap at the end.
pub fn scrolled(offset: usize, selected: usize, len: usize, height: usize) -> usize {
    let height = height.max(1);
    offset.min(len.saturating_sub(height)).min(selected).max((selected + 1).saturating_sub(height))
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

/// A message that goes away by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toast {
    /// Text.
    pub text: String,
    /// When it goes.
    pub until: Duration,
}

/// Counts over all units, kept until the story moves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Moment of the counts: entries and units.
    moment: Option<(u64, usize)>,
    /// Units by status, in the order of the header.
    pub statuses: [usize; 8],
    /// Turns of all attempts.
    pub turns: u64,
    /// Cost of all attempts that said one.
    pub cost: f64,
    /// Attempts whose cost is known.
    pub priced: usize,
    /// Attempts.
    pub attempts: usize,
    /// Attempts that ran without proof of isolation, or with a breach.
    pub breaches: usize,
}

impl Totals {
    /// Statuses in the order of the header.
    pub const ORDER: [UnitStatus; 8] = [
        UnitStatus::Failed,
        UnitStatus::Interrupted,
        UnitStatus::Running,
        UnitStatus::Waiting,
        UnitStatus::Succeeded,
        UnitStatus::Budget,
        UnitStatus::Stopped,
        UnitStatus::Queued,
    ];

    fn of(state: &RunState) -> Self {
        let mut totals = Self { moment: Some((state.entries, state.units.len())), ..Self::default() };
        for unit in &state.units {
            if let Some(place) = Self::ORDER.iter().position(|status| *status == unit.status) {
                totals.statuses[place] += 1;
            }
            totals.attempts += unit.attempts.len();
            for attempt in &unit.attempts {
                totals.turns += u64::from(attempt.turns);
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
        self.count(UnitStatus::Running) + self.count(UnitStatus::Waiting)
    }

    /// Units that nothing more happens to.
    pub fn over(&self) -> usize {
        self.statuses.iter().sum::<usize>() - self.active() - self.count(UnitStatus::Queued)
    }
}

impl Model {
    /// The state before anything happened.
    pub fn new(keymap: Keymap, live: bool) -> Self {
        Self {
            size: (0, 0),
            keymap,
            live,
            mouse: true,
            deck: Deck { auto: true, stream: List::following(), ..Deck::default() },
            views: Vec::new(),
            question: None,
            typing: None,
            search: None,
            searching: false,
            toasts: Vec::new(),
            pending: Vec::new(),
            pace: Pace::Follow,
            interrupts: 0,
            now: Duration::ZERO,
            time: Millis(0),
            totals: Totals::default(),
        }
    }

    /// Where everything goes on the screen.
    pub fn plan(&self, story: &Story) -> Plan {
        layout::plan(self.size, &self.deck, story.state.units.len())
    }

    /// Tells something for a while.
    pub fn say(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.toasts.retain(|toast| toast.text != text);
        self.toasts.push(Toast { text, until: self.now + TOAST });
        let excess = self.toasts.len().saturating_sub(3);
        self.toasts.drain(..excess);
    }

    /// The selected unit.
    pub fn unit<'a>(&self, story: &'a Story) -> Option<&'a Unit> {
        story.state.units.get(self.deck.unit)
    }

    /// The attempt of it that is shown, with its index.
    pub fn attempt<'a>(&self, story: &'a Story) -> Option<(usize, &'a Attempt)> {
        let attempts = &self.unit(story)?.attempts;
        let index = self.deck.attempt.unwrap_or(usize::MAX).min(attempts.len().checked_sub(1)?);
        attempts.get(index).map(|attempt| (index, attempt))
    }

    /// Units that are listed.
    pub fn listed(&self, story: &Story) -> usize {
        self.deck.shown.as_ref().map_or(story.state.units.len(), Vec::len)
    }

    /// The unit of a row of the table.
    pub fn listed_unit(&self, row: usize) -> Option<usize> {
        self.deck.shown.as_ref().map_or(Some(row), |shown| shown.get(row).copied())
    }

    /// The row of the selected unit in the table, or where it would be.
    pub fn unit_row(&self) -> usize {
        self.deck.shown.as_ref().map_or(self.deck.unit, |shown| shown.partition_point(|unit| *unit < self.deck.unit))
    }

    /// Brings everything into range of the story and the size. Cheap: nothing is done per row of a stream.
    pub fn settle(&mut self, story: &Story) {
        let moment = (story.state.entries, story.state.units.len());
        if self.totals.moment != Some(moment) {
            self.totals = Totals::of(&story.state);
            self.follow_work(&story.state);
            self.refilter(&story.state);
        }
        self.deck.unit = self.deck.unit.min(story.state.units.len().saturating_sub(1));
        if let Some(shown) = &self.deck.shown
            && !shown.is_empty()
            && shown.binary_search(&self.deck.unit).is_err()
        {
            self.deck.unit = shown[self.unit_row().min(shown.len() - 1)];
        }
        let plan = self.plan(story);
        let (rows, len) = (plan.unit_rows(), self.listed(story));
        self.deck.offset = scrolled(self.deck.offset, self.unit_row(), len, rows);

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
            Some(View::Log(list)) => list.settle(story.remarks().len(), body),
            Some(View::Help(list)) => {
                let lines = super::view::help::rows(&self.keymap, plan.body.width);
                list.offset = list.offset.min(lines.saturating_sub(body));
            }
            None => {}
        }
    }

    /// Applies the filter again.
    pub fn refilter(&mut self, state: &RunState) {
        let filter = self.deck.filter;
        self.deck.shown = (filter != Filter::All).then(|| {
            let passing = state.units.iter().enumerate().filter(|(_, unit)| filter.passes(unit.status));
            passing.map(|(index, _)| index).collect()
        });
    }

    /// Until somebody chooses, the selection goes to a unit that runs, and in the end to the first failure.
    fn follow_work(&mut self, state: &RunState) {
        let runs = |unit: &Unit| unit.status == UnitStatus::Running;
        if !self.deck.auto || state.units.get(self.deck.unit).is_some_and(runs) {
            return;
        }
        let over = state.units.iter().all(|unit| unit.status.is_over());
        let place = state
            .units
            .iter()
            .position(runs)
            .or_else(|| over.then(|| state.units.iter().position(|unit| is_failure(unit.status))).flatten());
        if let Some(place) = place {
            self.deck.unit = place;
            self.deck.attempt = None;
        }
    }
}

impl Transcript {
    /// The attempt that is shown.
    pub fn attempt<'a>(&self, story: &'a Story) -> Option<(usize, &'a Attempt)> {
        let unit = story.state.units.iter().find(|unit| unit.key == self.unit)?;
        let index = self.attempt.min(unit.attempts.len().checked_sub(1)?);
        unit.attempts.get(index).map(|attempt| (index, attempt))
    }

    /// Its lane.
    pub fn lane(&self, story: &Story) -> Option<LaneId> {
        self.attempt(story).map(|(_, attempt)| attempt.lane)
    }

    fn settle(&mut self, story: &Story, height: usize) {
        let len = self.lane(story).map_or(0, |lane| story.entries(lane).len());
        // The first line of the body is the tabs.
        self.list.settle(len, height.saturating_sub(1));
    }
}

impl EntryView {
    /// A view of `subject`.
    pub fn new(unit: UnitKey, lane: LaneId, subject: Subject) -> Self {
        Self { unit, lane, subject, parts: Vec::new(), scroll: 0, lines: 0, hit: None }
    }

    /// The neighbour of what is shown.
    pub fn turn(&mut self, story: &Story, by: isize) {
        let (index, len) = match self.subject {
            Subject::Row(index) => (index, story.rows(self.lane).len()),
            Subject::Entry(index) => (index, story.entries(self.lane).len()),
        };
        let next = index.saturating_add_signed(by).min(len.saturating_sub(1));
        if next != index {
            self.subject = match self.subject {
                Subject::Row(_) => Subject::Row(next),
                Subject::Entry(_) => Subject::Entry(next),
            };
            (self.scroll, self.hit) = (0, None);
        }
    }

    fn settle(&mut self, story: &Story, height: usize) {
        self.parts = match self.subject {
            Subject::Row(index) => row_parts(story, self.lane, index),
            Subject::Entry(index) => story
                .entries(self.lane)
                .get(index)
                .map(|seq| Part { title: "all of it", seq: Seq(u64::from(*seq)) })
                .into_iter()
                .collect(),
        };
        self.scroll = self.scroll.min(self.lines.saturating_sub(height));
    }
}

fn row_parts(story: &Story, lane: LaneId, index: usize) -> Vec<Part> {
    let entries = story.state.entries;
    let Some(row) = story.rows(lane).get(index) else { return Vec::new() };
    let mut parts = vec![Part {
        title: if row.last(entries) == Some(row.first()) { "all of it" } else { "call" },
        seq: row.first(),
    }];
    if let Some(seq) = row.last(entries).filter(|seq| *seq != row.first()) {
        let title = match row.end(entries) {
            RowEnd::Failed => "result (failed)",
            RowEnd::Denied => "result (denied)",
            RowEnd::Open | RowEnd::Ok => "result",
        };
        parts.push(Part { title, seq });
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn following_ends_with_a_step_up_and_counts_what_is_new() {
        let mut list = List::following();
        list.settle(10, 4);
        assert_eq!((list.selected, list.offset, list.news(10)), (9, 6, 0));
        list.step(-1, 10);
        list.settle(47, 4);
        assert_eq!((list.selected, list.offset, list.news(47), list.follow), (8, 6, 37, false));
        list.end(47);
        list.settle(47, 4);
        assert_eq!((list.selected, list.news(47), list.follow), (46, 0, true));
    }

    #[test]
    fn a_step_down_at_the_end_keeps_following() {
        let mut list = List::following();
        list.settle(3, 9);
        list.step(1, 3);
        assert!(list.follow);
    }

    proptest! {
        #[test]
        fn the_selection_is_always_on_screen(offset in 0..99_usize, selected in 0..99_usize, len in 0..99_usize, height in 0..20_usize) {
            let mut list = List { selected, offset, follow: false, seen: 0 };
            list.settle(len, height);
            prop_assert!(list.offset <= list.selected);
            prop_assert!(list.selected < list.offset + height.max(1));
            prop_assert!(len == 0 || list.selected < len);
        }
    }
}
