//! The state of the screen: what is selected, opened, typed and asked. Never what the run did; that is the story.
//!
//! Knows no terminal, no clock and no file. It changes in [`super::update`] and in [`ScreenModel::refresh`], nowhere else.

mod amend;
pub mod compare;
mod failure_groups;
mod forecast_view;
mod grid;
mod hold;
pub mod inspect;
mod overlay_views;
mod scroll_list;
mod side_pane;
mod timeline_bounds;
mod toast;
mod unit_listing;

use std::time::Duration;

pub use amend::{AmendField, AmendForm};
pub use compare::CompareView;
pub use failure_groups::{FailureGroupLine, FailureGroupsView};
use forecast_view::ForecastView;
pub use grid::{Grid, GridPane, PaneDirection};
pub use hold::{ArgumentsEditor, CallId, InputPurpose, LineInput};
pub use inspect::{InspectSide, InspectView, Panel};
pub(super) use overlay_views::row_parts;
pub use overlay_views::{EntryPart, EntrySubject, EntryView, OverlayView, PartContent, TranscriptView};
pub use scroll_list::{ScrollList, scrolled};
pub use side_pane::SidePane;
pub use timeline_bounds::TimelineBounds;
pub use toast::Toast;
pub(super) use toast::ToastTopic;
pub use unit_listing::{StatusFilter, TableLine, UnitGroup, UnitListing, UnitSort};

use super::{
    breakpoint::Breakpoint,
    command::CommandHistory,
    effect::{RunCommand, ScreenEffect},
    key::KeyPress,
    keymap::Keymap,
    layout::{self, ScreenLayout},
};
use crate::{
    run::{
        run_forecast::RunForecast,
        state::{AttemptId, AttemptState, HoldMode, RunState, RunView, StateVersion, UnitState, UnitStatus},
    },
    tape::{Millis, UnitKey},
};

/// State of the screen.
#[derive(Clone, Debug)]
pub struct ScreenModel {
    /// Columns and rows.
    pub size: (u16, u16),
    /// Keys.
    pub keymap: Keymap,
    /// True when orders reach a run.
    pub is_live: bool,
    /// The run belongs to another process: it can be looked at, and takes no orders from here.
    pub is_watching: bool,
    /// Why the run broke off without an end on its record, if it did and we saw it.
    pub recording_failure: Option<String>,
    /// True when tool calls of the run can be held.
    pub can_hold: bool,
    /// True when the mouse is ours.
    pub mouse: bool,
    /// True while the button that was pressed on the bar may be held down.
    pub is_dragging_bar: bool,
    /// The bottom of the view stack.
    pub units_view: UnitsView,
    /// Views opened on top of the deck; the last one is shown.
    pub views: Vec<OverlayView>,
    /// An open question.
    pub question: Option<Question>,
    /// A line that is being typed.
    pub line_input: Option<LineInput>,
    /// Arguments of a call that are being edited.
    pub editor: Option<ArgumentsEditor>,
    /// What the next attempt at a unit is to do otherwise.
    pub amend_form: Option<AmendForm>,
    /// The search that `n` repeats.
    pub search: Option<String>,
    /// True while the shell searches.
    pub is_searching: bool,
    /// Messages, newest last.
    pub toasts: Vec<Toast>,
    /// Keys of an unfinished chord.
    pub pending: Vec<KeyPress>,
    /// How time passes.
    pub playback: Playback,
    /// True when the last entry of a record is shown.
    pub at_end: bool,
    /// The whole of the run.
    pub bounds: TimelineBounds,
    /// Conditions that time stops at.
    pub breakpoints: Vec<Breakpoint>,
    /// Commands that were typed.
    pub history: CommandHistory,
    /// Units at once when the present was last shown.
    shown_concurrency: Option<u32>,
    /// Times Ctrl-C was pressed.
    pub interrupts: u8,
    /// Time since the screen came up.
    pub now: Duration,
    /// Time in the run that is shown.
    pub time: Millis,
    /// Counts over all units.
    pub totals: StatusTotals,
    /// Panes of several units.
    pub grid: Grid,
    /// What is left.
    forecast: ForecastView,
}

/// How time passes on the screen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Playback {
    /// Everything at once as it is there: live, or to the end of a record.
    Follow,
    /// By its own times, so many times as fast.
    Speed(f64),
    /// One entry after the other, as fast as possible.
    Unthrottled,
    /// It stands.
    Paused,
}

/// Units and the stream of the selected one.
#[derive(Clone, Debug, Default)]
pub struct UnitsView {
    /// Pane with the focus.
    pub focus: Pane,
    /// The focused pane alone.
    pub zoom: bool,
    /// Which units are listed, and how.
    pub listing: UnitListing,
    /// Selected unit, by index.
    pub unit: usize,
    /// The selection as somebody made it. If a filter or a moment of the past hides it, it comes back with it.
    pub(super) chosen_unit: usize,
    /// The selection as it was last brought into range.
    pub(super) last_valid_unit: usize,
    /// The filter that hides what was chosen. Under it, the selection stays where it went.
    pub(super) hidden_by: Option<(StatusFilter, String)>,
    /// Row of the selected unit.
    pub(super) row: usize,
    /// True until somebody chooses a unit: the selection then goes where the work is.
    pub follows_work: bool,
    /// First line of the table on screen.
    pub offset: usize,
    /// Attempt to show instead of the newest, by index.
    pub attempt: Option<usize>,
    /// Rows of that attempt.
    pub stream: ScrollList,
    /// Whose rows `stream` is about.
    pub attempt_id: Option<AttemptId>,
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
    status.is_retryable() || status == UnitStatus::Silent
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
    pub then: Vec<super::effect::ScreenEffect>,
}

/// Counts over all units, kept until the story moves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusTotals {
    /// Moment of the counts.
    version: Option<StateVersion>,
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
    pub isolation_breaches: usize,
    /// Units that run until a call of theirs meets a condition.
    pub until_units: usize,
    /// The first of them, by index.
    pub first_until_unit: Option<usize>,
}

impl StatusTotals {
    /// Statuses in the order of the header.
    pub const ORDER: [UnitStatus; 12] = [
        UnitStatus::Held,
        UnitStatus::Failed,
        UnitStatus::Interrupted,
        UnitStatus::Silent,
        UnitStatus::Running,
        UnitStatus::Waiting,
        UnitStatus::Succeeded,
        UnitStatus::BudgetExhausted,
        UnitStatus::Reused,
        UnitStatus::Stopped,
        UnitStatus::Queued,
        UnitStatus::NotStarted,
    ];

    /// Counts of `state`, or nothing if they have not changed.
    pub fn updated(&self, state: &RunState) -> Option<Self> {
        (self.version != Some(state.version())).then(|| Self::compute(state))
    }

    fn compute(state: &RunState) -> Self {
        let mut totals = Self { version: Some(state.version()), ..Self::default() };
        for (place, unit) in state.units.iter().enumerate() {
            if matches!(unit.hold_mode, HoldMode::Until(_)) && !unit.status.is_finished() {
                totals.until_units += 1;
                totals.first_until_unit.get_or_insert(place);
            }
            if let Some(place) = Self::ORDER.iter().position(|status| *status == unit.status) {
                totals.statuses[place] += 1;
            }
            totals.attempts += unit.attempts.len();
            for attempt in &unit.attempts {
                totals.turns += u64::from(attempt.turns);
                totals.tokens = totals.tokens.saturating_add(attempt.tokens.total());
                totals.cost += attempt.cost_usd.unwrap_or_default();
                totals.priced += usize::from(attempt.cost_usd.is_some());
                totals.isolation_breaches += usize::from(attempt.breach.is_some());
            }
        }
        totals
    }

    /// Units of a status.
    pub fn count(&self, status: UnitStatus) -> usize {
        Self::ORDER.iter().position(|known| *known == status).map_or(0, |place| self.statuses[place])
    }

    /// Units of an attempt that runs, or that wait to run again.
    pub fn active_units(&self) -> usize {
        let active = [UnitStatus::Running, UnitStatus::Silent, UnitStatus::Held, UnitStatus::Waiting];
        active.into_iter().map(|status| self.count(status)).sum()
    }

    /// Units that something happened to, and nothing more will.
    pub fn finished_units(&self) -> usize {
        let never = self.count(UnitStatus::Queued) + self.count(UnitStatus::NotStarted);
        self.statuses.iter().sum::<usize>() - self.active_units() - never
    }
}

impl ScreenModel {
    /// The state before anything happened.
    pub fn new(keymap: Keymap, live: bool) -> Self {
        Self {
            size: (0, 0),
            keymap,
            is_live: live,
            recording_failure: None,
            can_hold: false,
            is_watching: false,
            mouse: true,
            is_dragging_bar: false,
            units_view: UnitsView { follows_work: true, stream: ScrollList::following(), ..UnitsView::default() },
            views: Vec::new(),
            question: None,
            line_input: None,
            editor: None,
            amend_form: None,
            search: None,
            is_searching: false,
            toasts: Vec::new(),
            pending: Vec::new(),
            playback: Playback::Follow,
            at_end: false,
            bounds: TimelineBounds::default(),
            breakpoints: Vec::new(),
            history: CommandHistory::default(),
            shown_concurrency: None,
            interrupts: 0,
            now: Duration::ZERO,
            time: Millis(0),
            totals: StatusTotals::default(),
            grid: Grid::default(),
            forecast: ForecastView::default(),
        }
    }

    /// Where everything goes on the screen.
    pub fn layout(&self, story: &RunView) -> ScreenLayout {
        layout::screen_layout(self.size, &self.units_view, story.state.units.len(), self.shows_timeline())
    }

    /// True when time is walked through: in a record, and while somebody looks back on a run that goes on.
    pub fn shows_timeline(&self) -> bool {
        !self.is_live || self.playback != Playback::Follow
    }

    /// True when a run goes on beyond the moment that is shown.
    pub fn is_in_past(&self) -> bool {
        self.is_live && self.playback != Playback::Follow
    }

    /// True when the run takes orders from here.
    pub fn accepts_commands(&self) -> bool {
        self.is_live && !self.is_watching
    }

    /// A plain session that goes on: it writes into the user's own directory, and its calls wait for nobody.
    pub fn is_session(&self) -> bool {
        self.accepts_commands() && !self.can_hold
    }

    /// A question about something that is over by itself must not be answered any more.
    fn drop_stale_question(&mut self, story: &RunView) {
        let is_over =
            |key: &UnitKey| story.state.units.iter().any(|unit| unit.key == *key && unit.status.is_finished());
        let active = self.bounds.present_totals.active_units();
        let is_stale = |effect: &ScreenEffect| match effect {
            ScreenEffect::Command(RunCommand::Stop { unit }) => is_over(unit),
            ScreenEffect::Command(RunCommand::StopAll) => active == 0,
            _ => false,
        };
        if self.question.as_ref().is_some_and(|question| question.then.iter().any(is_stale)) {
            self.question = None;
        }
    }

    /// The selected unit. Where a filter lists none, none is selected, except among panes, which know no filter.
    pub fn unit<'a>(&self, story: &'a RunView) -> Option<&'a UnitState> {
        let any = self.listed_count(story) > 0 || matches!(self.views.last(), Some(OverlayView::Grid));
        story.state.units.get(self.units_view.unit).filter(|_| any)
    }

    /// The attempt of it that is shown, with its index.
    pub fn attempt<'a>(&self, story: &'a RunView) -> Option<(usize, &'a AttemptState)> {
        let attempts = &self.unit(story)?.attempts;
        let index = self.units_view.attempt.unwrap_or(usize::MAX).min(attempts.len().checked_sub(1)?);
        attempts.get(index).map(|attempt| (index, attempt))
    }

    /// Units that are listed.
    pub fn listed_count(&self, story: &RunView) -> usize {
        self.units_view.listing.len(story.state.units.len())
    }

    /// The unit of a row of the table.
    pub fn listed_unit(&self, row: usize) -> Option<usize> {
        self.units_view.listing.unit(row)
    }

    /// The row of the selected unit in the table, or where it would be.
    pub fn unit_row(&self) -> usize {
        self.units_view.listing.row(self.units_view.unit).unwrap_or(self.units_view.row)
    }

    /// What stands on the lines of the table that are on screen, with the number of each line.
    pub fn visible_lines(&self, story: &RunView, height: usize) -> impl Iterator<Item = (usize, TableLine<'_>)> {
        let from = self.units_view.offset;
        let to = (from + height).min(self.units_view.listing.lines(story.state.units.len()));
        (from..to).filter_map(|line| Some((line, self.units_view.listing.at(line)?)))
    }

    /// Brings everything into range of the story and the size. Cheap: nothing is done per row of a stream.
    pub fn refresh(&mut self, story: &RunView) {
        let moment = story.state.version();
        if self.totals.version != Some(moment) {
            self.totals = StatusTotals::compute(&story.state);
            self.follow_work(&story.state);
            self.units_view.listing.refresh(&story.state);
        }
        self.forecast.refresh(&story.state, &self.totals, self.time);
        self.drop_stale_question(story);
        self.drop_stale_toasts(story);
        self.announce_concurrency(story);
        let plan = self.layout(story);
        if matches!(self.views.last(), Some(OverlayView::Grid)) {
            self.grid.refresh(story, plan.body);
            // Orders are about the focused pane, whatever the table hides.
            if let Some(unit) = self.grid.unit().filter(|unit| *unit != self.units_view.unit) {
                (self.units_view.unit, self.units_view.attempt) = (unit, None);
            }
            (self.units_view.chosen_unit, self.units_view.last_valid_unit, self.units_view.hidden_by) =
                (self.units_view.unit, self.units_view.unit, None);
        } else {
            self.restore_selection(story, plan.unit_rows());
        }

        let lane = self.attempt(story).map(|(_, attempt)| attempt.id);
        if lane != self.units_view.attempt_id {
            self.units_view.attempt_id = lane;
            self.units_view.stream = ScrollList::following();
        }
        let height = plan.stream_rows(self.attempt(story).map(|(_, attempt)| attempt));
        self.units_view.stream.clamp(lane.map_or(0, |lane| story.rows(lane).len()), height);

        let body = usize::from(plan.body_rows());
        match self.views.last_mut() {
            Some(OverlayView::Transcript(view)) => view.clamp(story, body),
            Some(OverlayView::Entry(view)) => view.clamp(story, body),
            Some(OverlayView::Compare(view)) => view.clamp(plan.body),
            Some(OverlayView::Inspect(view)) => view.clamp(story, plan.body),
            Some(OverlayView::Log(list)) => {
                let above = super::view::log::header_rows(self.recording_failure.as_deref(), layout::inner(plan.body));
                list.clamp(story.messages().len(), body.saturating_sub(usize::from(above)));
            }
            Some(OverlayView::Grid) => {}
            Some(OverlayView::Breakpoints(list)) => list.clamp(self.breakpoints.len(), body),
            Some(OverlayView::FailureGroups(view)) => {
                let above = super::view::failure_groups::header_rows(plan.body_rows());
                view.refresh(story, body.saturating_sub(usize::from(above)));
            }
            Some(OverlayView::Help(list)) => {
                let lines = super::view::help::rows(&self.keymap, plan.body.width);
                list.offset = list.offset.min(lines.saturating_sub(body));
            }
            None => {}
        }
    }

    /// What is left of the run.
    pub fn forecast(&self) -> &RunForecast {
        &self.forecast.forecast
    }

    /// Selects the unit that somebody chose, or the one nearest to it that is there, and scrolls to it.
    fn restore_selection(&mut self, story: &RunView, height: usize) {
        let (units, listed) = (story.state.units.len(), self.listed_count(story));
        let deck = &mut self.units_view;
        if deck.unit != deck.last_valid_unit {
            deck.chosen_unit = deck.unit;
            deck.hidden_by = None;
        }
        let filter = (deck.listing.filter, deck.listing.text.clone());
        let wanted = if deck.hidden_by.as_ref() == Some(&filter) { deck.last_valid_unit } else { deck.chosen_unit };
        deck.unit = wanted.min(units.saturating_sub(1));
        if deck.listing.row(deck.unit).is_none()
            && let Some(nearest) = deck.listing.unit(deck.row.min(listed.saturating_sub(1)))
        {
            deck.unit = nearest;
            deck.hidden_by = Some(filter);
        }
        if deck.unit != deck.last_valid_unit && deck.unit != deck.chosen_unit {
            deck.attempt = None;
        }
        deck.last_valid_unit = deck.unit;
        deck.row = deck.listing.row(deck.unit).unwrap_or(deck.row.min(listed.saturating_sub(1)));
        let line = deck.listing.line_of(deck.row);
        deck.offset = scrolled(deck.offset, line, deck.listing.lines(units), height);
        if deck.offset == line && line > 0 && height > 1 && deck.listing.starts_group(deck.row) {
            deck.offset -= 1;
        }
    }

    /// Until somebody chooses, the first unit with a call that waits for a person is selected, or one that is silent or runs, or one
    /// that will run again, or the first failure.
    /// Depends on the state alone: the same moment shows the same selection, however it was reached.
    fn follow_work(&mut self, state: &RunState) {
        if !self.units_view.follows_work {
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
        if place != self.units_view.unit {
            self.units_view.unit = place;
            self.units_view.attempt = None;
        }
    }
}
