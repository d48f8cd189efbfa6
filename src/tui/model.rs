//! What the pages of the screen share: what is selected, typed and being confirmed. The state of the run itself is in
//! [`RunView`], and the stack of pages in [`crate::page`].
//!
//! It must not use the terminal, the clock or files. Only [`super::update`], [`super::actions`], the pages and
//! [`SharedModel::refresh_run`] change it.

mod amend;
mod answer_form;
mod arguments_editor;
mod bookmarks;
mod command_history;
mod dialogs;
mod forecast_view;
mod grid;
mod hold;
mod kept_text;
mod mouse;
mod question;
mod run_connection;
mod run_results;
mod scroll_list;
mod search;
mod selection;
mod side_pane;
mod text_keys;
mod timeline_bounds;
mod toast;
mod unit_filter;
mod unit_listing;
mod unrecorded_acts;

use std::collections::BTreeSet;

pub(crate) use amend::{AmendField, AmendForm};
pub(crate) use answer_form::{AnswerForm, FormStep};
pub use arguments_editor::{ArgumentsCheck, ArgumentsEditor};
pub use bookmarks::Bookmarks;
pub(crate) use command_history::CommandHistory;
pub(crate) use dialogs::Dialogs;
use forecast_view::ForecastView;
pub(crate) use grid::{Grid, GridPane, PaneDirection};
pub(crate) use hold::{CallId, InputPurpose, LineInput, ReviewTarget, release_consequences};
pub(crate) use kept_text::{KeptTexts, TextPurpose, WrittenText};
pub(crate) use mouse::{ClickAction, ClickTargets, MouseState};
pub(crate) use question::{AnswerMeaning, ConfirmQuestion, QuestionAnswer, listed_keys};
pub(crate) use run_connection::{RecordedRunName, RunConnection, SessionPage};
pub(crate) use run_results::{RunResults, unfinished_units};
pub(crate) use scroll_list::{ScrollList, scrolled};
pub(crate) use search::{
    MAX_MATCHES, PaneMatches, SearchOrigin, SearchPane, SearchState, around_match, matching_cells,
};
pub(crate) use side_pane::SidePane;
pub(crate) use timeline_bounds::short_date_time;
pub use timeline_bounds::{TimelineBounds, wall_clock};
pub(super) use toast::ToastTopic;
pub(crate) use toast::Toasts;
pub(crate) use unit_filter::{FILTER_SYNTAX, UnitFilter};
pub use unit_listing::TableSettings;
pub(crate) use unit_listing::{
    ConnectionProgress, GroupKey, Grouping, StatusFilter, TableLine, UnitCounts, UnitGroup,
    UnitListing, UnitSort,
};
pub(crate) use unrecorded_acts::UnrecordedActs;

use super::{
    effect::ScreenEffect,
    key::KeyPress,
    keymap::Keymap,
    layout::{self, Pane, ScreenLayout, UnitsPanes},
    playback::Playback,
};
use ingestdeck_core::{
    control::RunCommand,
    run::breakpoint::Breakpoint,
    run::{
        run_forecast::RunForecast,
        spending::CostFigure,
        state::{
            AttemptId, AttemptState, HoldMode, RecordedIsolation, RowOutcome, RunState, RunView,
            StateVersion, UnitNeed, UnitState, UnitStatus,
        },
    },
    tape::{Millis, SESSION_KEY, UnitKey},
    text::{self, clock},
};

/// Everything on the screen that does not belong to one page.
#[derive(Debug)]
pub(crate) struct SharedModel {
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    pub keymap: Keymap,
    /// Keys of an unfinished chord.
    pub pending: Vec<KeyPress>,
    pub mouse: MouseState,
    pub connection: RunConnection,
    pub units_view: UnitsView,
    /// True on the home screen, where no run is shown.
    pub is_home: bool,
    pub dialogs: Dialogs,
    pub unrecorded_acts: UnrecordedActs,
    pub search: SearchState,
    pub toasts: Toasts,
    pub playhead: Playhead,
    /// Counts over all units.
    pub totals: RunTotals,
    /// Panes for several units.
    pub grid: Grid,
    forecast: ForecastView,
}

/// The moment that is shown, and how it moves.
#[derive(Clone, Debug)]
pub(crate) struct Playhead {
    /// How the timeline advances.
    pub playback: Playback,
    /// True when the last entry of a recorded run is shown.
    pub at_end: bool,
    /// Time of the moment that is shown, since the start of the run.
    pub time: Millis,
    /// Bounds of the whole run, whichever moment is shown.
    pub bounds: TimelineBounds,
    /// Conditions at which playback stops.
    pub breakpoints: Vec<Breakpoint>,
    pub bookmarks: Bookmarks,
    /// True if playback shortens times without entries.
    pub skips_idle: bool,
    /// Time that the current playback has skipped.
    pub skipped: Millis,
    /// True if lists show the time of day instead of the time since the start of the run.
    pub shows_wall_clock: bool,
}

impl Playhead {
    /// The time of a moment in a list.
    pub(crate) fn moment(&self, at: Millis) -> String {
        let start = self.bounds.started_at.filter(|_| self.shows_wall_clock);
        start
            .and_then(|start| timeline_bounds::wall_clock(start, at, &self.bounds.zone))
            .unwrap_or_else(|| clock(at))
    }

    /// Columns of the times in a list with a gap, for the longest time of the run; 0 if the record has no times.
    pub(crate) fn moment_columns(&self) -> usize {
        let longest = self.moment(self.bounds.last_at.max(self.time));
        match self.bounds.has_times {
            true => text::width(&longest) + 1,
            false => 0,
        }
    }
}

/// The table of units and the action stream of the selected one.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitsView {
    /// The pane that has the focus.
    pub focus: Pane,
    /// True when only the focused pane is shown.
    pub zoom: bool,
    /// Filter, order and groups of the table.
    pub listing: UnitListing,
    /// Index of the selected unit.
    pub unit: usize,
    /// Index of the unit that the user selected. When a filter or a moment in the past hides it, the selection moves,
    /// and returns once the unit is visible.
    pub(super) chosen_unit: usize,
    /// The selection after it was last brought into range.
    pub(super) last_valid_unit: usize,
    /// The filter that hides the chosen unit. While it is set, the selection stays on the unit that replaced it.
    pub(super) hidden_by: Option<(StatusFilter, String)>,
    /// Rank of the selected unit among the listed ones.
    pub(super) rank: usize,
    /// The selected heading; `None` when a unit is selected.
    pub(super) heading: Option<GroupKey>,
    /// True until the user selects a unit. Until then the selection follows the units that need attention.
    pub follows_work: bool,
    /// First line of the table on screen.
    pub offset: usize,
    /// Index of the attempt to show; `None` for the newest.
    pub attempt: Option<usize>,
    /// Scroll position in the rows of that attempt.
    pub stream: ScrollList,
    /// The attempt that `stream` refers to.
    pub attempt_id: Option<AttemptId>,
    /// Indexes of the units that the user marked, for commands that apply to several.
    pub marked: BTreeSet<usize>,
}

/// True for row ends that need the user's attention.
pub(crate) fn is_problem_end(end: RowOutcome) -> bool {
    matches!(end, RowOutcome::Failed | RowOutcome::Denied)
}

/// True for a status in which the unit failed without being stopped by a person.
pub(crate) fn is_failure(status: UnitStatus) -> bool {
    matches!(status, UnitStatus::Failed | UnitStatus::Interrupted)
}

/// Counts over all units, recomputed only when the run view changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunTotals {
    /// Version of the run view that was counted.
    version: Option<StateVersion>,
    /// Units by status, in the order of [`Self::ORDER`].
    pub statuses: [usize; 12],
    /// Turns of all attempts.
    pub turns: u64,
    /// Tokens of all attempts, including cached ones.
    pub tokens: u64,
    /// Cost of all attempts.
    pub cost: CostFigure,
    pub attempts: usize,
    /// Attempts that ran without proof of isolation, or with a breach.
    pub isolation_breaches: usize,
    /// Units that run until one of their calls meets a condition.
    pub until_units: usize,
    /// Index of the first of them.
    pub first_until_unit: Option<usize>,
    /// True if some unit had more than one attempt.
    pub has_retries: bool,
    /// Time at which the last attempt ended.
    pub last_end: Millis,
}

impl RunTotals {
    /// Statuses in the order of the header.
    pub(crate) const ORDER: [UnitStatus; 12] = [
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

    /// Counts the units of `state`, or returns `None` if nothing has changed.
    pub(crate) fn updated(&self, state: &RunState) -> Option<Self> {
        (self.version != Some(state.version())).then(|| Self::compute(state))
    }

    fn compute(state: &RunState) -> Self {
        let mut totals = Self {
            version: Some(state.version()),
            cost: state.cost_figure(),
            ..Self::default()
        };
        for (place, unit) in state.units.iter().enumerate() {
            if matches!(unit.hold_mode, HoldMode::Until(_)) && !unit.status.is_finished() {
                totals.until_units += 1;
                totals.first_until_unit.get_or_insert(place);
            }
            if let Some(place) = Self::ORDER.iter().position(|status| *status == unit.status) {
                totals.statuses[place] += 1;
            }
            totals.attempts += unit.attempts.len();
            totals.has_retries |= unit.attempts.len() > 1;
            for attempt in &unit.attempts {
                totals.last_end = totals.last_end.max(attempt.ended_at.unwrap_or_default());
                totals.turns += u64::from(attempt.counts.turns);
                totals.tokens = totals.tokens.saturating_add(attempt.counts.tokens.total());
                totals.isolation_breaches += usize::from(matches!(
                    attempt.setup.isolation,
                    RecordedIsolation::Breached(_)
                ));
            }
        }
        totals
    }

    pub(crate) fn count(&self, status: UnitStatus) -> usize {
        Self::ORDER
            .iter()
            .position(|known| *known == status)
            .map_or(0, |place| self.statuses[place])
    }

    /// Units with an attempt that runs or is scheduled.
    pub(crate) fn active_units(&self) -> usize {
        let active = [
            UnitStatus::Running,
            UnitStatus::Silent,
            UnitStatus::Held,
            UnitStatus::Waiting,
        ];
        active.into_iter().map(|status| self.count(status)).sum()
    }

    /// True while an attempt runs.
    pub(crate) fn has_units_in_flight(&self) -> bool {
        let in_flight = |(status, units): (&UnitStatus, usize)| status.is_in_flight() && units > 0;
        Self::ORDER.iter().zip(self.statuses).any(in_flight)
    }

    /// Number of units that have this need.
    pub(crate) fn with_need(&self, need: UnitNeed) -> usize {
        Self::ORDER
            .iter()
            .zip(self.statuses)
            .filter(|(status, _)| status.need() == need)
            .map(|(_, units)| units)
            .sum()
    }

    /// Units that ended and will not run again.
    pub(crate) fn finished_units(&self) -> usize {
        let never = self.count(UnitStatus::Queued) + self.count(UnitStatus::NotStarted);
        self.statuses.iter().sum::<usize>() - self.active_units() - never
    }
}

impl SharedModel {
    /// The model before the first entry.
    pub(crate) fn new(keymap: Keymap, live: bool) -> Self {
        let units_view = UnitsView {
            follows_work: true,
            stream: ScrollList::following(),
            ..UnitsView::default()
        };
        Self {
            size: (0, 0),
            keymap,
            pending: Vec::new(),
            mouse: MouseState::new(),
            connection: RunConnection {
                is_live: live,
                was_live: live,
                ..RunConnection::default()
            },
            units_view,
            is_home: false,
            dialogs: Dialogs::default(),
            unrecorded_acts: UnrecordedActs::default(),
            search: SearchState::default(),
            toasts: Toasts::default(),
            playhead: Playhead {
                playback: Playback::Follow,
                at_end: false,
                time: Millis(0),
                bounds: TimelineBounds::default(),
                breakpoints: Vec::new(),
                bookmarks: Bookmarks::default(),
                skips_idle: true,
                skipped: Millis(0),
                shows_wall_clock: false,
            },
            totals: RunTotals::default(),
            grid: Grid::default(),
            forecast: ForecastView::default(),
        }
    }

    /// Layout of the screen for the current view and size.
    pub(crate) fn layout(&self) -> ScreenLayout {
        let view = &self.units_view;
        let panes = UnitsPanes {
            focus: view.focus,
            zoom: view.zoom,
            lines: view.listing.line_count(),
            has_dialog: self.dialogs.needs_rows(self.size),
        };
        layout::screen_layout(self.size, panes, self.shows_timeline())
    }

    /// True if the page shows what waits for a decision, in too few rows to see all of it.
    pub(crate) fn is_too_low_to_decide(&self) -> bool {
        self.dialogs.awaits_decision && self.size.1 < layout::MIN_DIALOG_ROWS
    }

    /// True when the user moves through time: in a recorded run, and while a live run is shown at an earlier moment.
    pub(crate) fn shows_timeline(&self) -> bool {
        !self.is_home && (!self.connection.is_live || self.playhead.playback != Playback::Follow)
    }

    /// True when a live run is shown at an earlier moment.
    pub(crate) fn is_in_past(&self) -> bool {
        self.connection.is_live && self.playhead.playback != Playback::Follow
    }

    /// True at the end of a recorded run of the project, whose results are then known.
    pub(crate) fn has_results(&self, run_view: &RunView) -> bool {
        let run = self.connection.recorded_run.as_ref();
        run.is_some_and(|run| run.is_of_project)
            && self.playhead.at_end
            && run_view.state.is_closed
            // A session has a conversation, and no results.
            && run_view.state.units.iter().any(|unit| unit.key.as_str() != SESSION_KEY)
    }

    /// True while the page of units shows these results, until the user selects a unit.
    pub(crate) fn shows_results(&self, run_view: &RunView) -> bool {
        let view = &self.units_view;
        view.follows_work && view.focus == Pane::Units && self.has_results(run_view)
    }

    /// Withdraws the answers of a confirmation that no longer applies.
    fn withdraw_stale_question(&mut self, run_view: &RunView) {
        let is_over = |key: &UnitKey| {
            run_view
                .state
                .units
                .iter()
                .any(|unit| unit.key == *key && unit.status.is_finished())
        };
        let totals = &self.playhead.bounds.present_totals;
        let (active, queued) = (totals.active_units(), totals.count(UnitStatus::Queued));
        let find = |key: &UnitKey| run_view.state.units.iter().find(|unit| unit.key == *key);
        let starts =
            |unit: &UnitState| unit.status.is_in_flight() || unit.status == UnitStatus::Queued;
        let is_review_open = self.playhead.bounds.is_review_open;
        // In the past, questions about the present are not asked.
        let stale_reason = |question: &ConfirmQuestion, effect: &ScreenEffect| {
            let (is_stale, reason) = match effect {
                // A question about several units remains while one of them runs.
                ScreenEffect::Command(RunCommand::Stop { .. }) => {
                    let is_over = question.effects().all(
                        |effect| matches!(effect, ScreenEffect::Command(RunCommand::Stop { unit }) if is_over(unit)),
                    );
                    (is_over, "it has ended")
                }
                ScreenEffect::Command(RunCommand::StopAll) | ScreenEffect::Detach => {
                    (active + queued == 0 && !is_review_open, "the run has ended")
                }
                ScreenEffect::Command(RunCommand::Retry { unit, .. }) => {
                    (find(unit).is_some_and(starts), "it runs already")
                }
                // A unit that was retried elsewhere must not run again.
                ScreenEffect::Command(RunCommand::RetryUnits { units, .. }) => {
                    let is_stale = units
                        .iter()
                        .any(|unit| find(unit).is_some_and(|unit| !unit.status.is_retryable()));
                    (is_stale, "one of them runs already")
                }
                ScreenEffect::Command(RunCommand::Release { unit }) => {
                    let is_stale = find(unit)
                        .is_some_and(|unit| release_consequences(unit) != question.details);
                    (is_stale, "its waiting calls have changed")
                }
                ScreenEffect::Command(RunCommand::LiftLimit) => (
                    run_view.state.limits.pause.is_none(),
                    "the run no longer waits for the limit",
                ),
                ScreenEffect::Command(RunCommand::Resume) => {
                    (!run_view.state.limits.is_paused, "the run is not paused")
                }
                ScreenEffect::Command(RunCommand::FinishReview { .. }) => {
                    let review = run_view.state.open_review();
                    let is_same = review.is_some_and(|review| {
                        question.details.contains(&review.counts().to_string())
                    });
                    (
                        !is_same,
                        if review.is_some() {
                            "the decisions have changed"
                        } else {
                            "the review is over"
                        },
                    )
                }
                _ => (false, ""),
            };
            is_stale.then_some(reason)
        };
        let asked = self.dialogs.question.as_ref();
        let reason = asked.and_then(|asked| {
            asked
                .effects()
                .find_map(|effect| stale_reason(asked, effect))
        });
        if let (Some(question), Some(reason)) = (&mut self.dialogs.question, reason) {
            question.withdraw(reason);
        }
    }

    /// The selected unit. `None` when the filter lists no unit, or a heading is selected; the grid ignores both.
    pub(crate) fn unit<'a>(&self, run_view: &'a RunView) -> Option<&'a UnitState> {
        let view = &self.units_view;
        let any = view.listing.listed_count() > 0 && view.heading.is_none() || self.grid.is_shown;
        run_view.state.units.get(view.unit).filter(|_| any)
    }

    /// The selected heading of the table.
    pub(crate) fn heading(&self) -> Option<&UnitGroup> {
        self.units_view
            .listing
            .find_group(self.units_view.heading.as_ref()?)
    }

    /// The attempt of the selected unit that is shown, with its index.
    pub(crate) fn attempt<'a>(&self, run_view: &'a RunView) -> Option<(usize, &'a AttemptState)> {
        let attempts = &self.unit(run_view)?.attempts;
        let index = self
            .units_view
            .attempt
            .unwrap_or(usize::MAX)
            .min(attempts.len().checked_sub(1)?);
        attempts.get(index).map(|attempt| (index, attempt))
    }

    /// The rank of the selected unit among the listed ones, or where it would be.
    pub(crate) fn unit_rank(&self) -> usize {
        let heading = self.heading().map(UnitGroup::first_rank);
        heading
            .or_else(|| self.units_view.listing.rank(self.units_view.unit))
            .unwrap_or(self.units_view.rank)
    }

    /// The selected line of the table.
    pub(crate) fn selected_line(&self) -> usize {
        let listing = &self.units_view.listing;
        let heading = self
            .units_view
            .heading
            .as_ref()
            .and_then(|key| listing.heading_line(key));
        heading
            .or_else(|| listing.line_of(self.units_view.unit))
            .unwrap_or_default()
    }

    /// Lines of the table that are on screen, with the number of each line.
    pub(crate) fn visible_lines(
        &self,
        height: usize,
    ) -> impl Iterator<Item = (usize, TableLine<'_>)> {
        let from = self.units_view.offset;
        let to = (from + height).min(self.units_view.listing.line_count());
        (from..to).filter_map(|line| Some((line, self.units_view.listing.at(line)?)))
    }

    /// Updates everything that depends on the run view.
    pub(crate) fn refresh_run(&mut self, run_view: &RunView) {
        let moment = run_view.state.version();
        if self.totals.version != Some(moment) {
            self.totals = RunTotals::compute(&run_view.state);
            self.units_view.listing.refresh(&run_view.state);
            self.follow_work(&run_view.state);
        }
        self.forecast
            .refresh(&run_view.state, &self.totals, self.playhead.time);
        if self.has_results(run_view) {
            self.connection.results.refresh(&run_view.state);
        }
        self.withdraw_stale_question(run_view);
        self.drop_stale_toasts(run_view);
        let is_expected = |key: &UnitKey| {
            let unit = run_view.state.units.iter().find(|unit| unit.key == *key);
            unit.is_some_and(|unit| unit.status.is_in_flight() && !unit.is_held())
        };
        self.dialogs.requested_holds.retain(is_expected);
        if !self.is_in_past() {
            let reports = self.dialogs.settle_messages(run_view);
            reports
                .into_iter()
                .for_each(|report| self.toasts.show(report));
        }
        self.announce_concurrency(run_view);
    }

    /// Brings the table of units and the action stream into range.
    pub(crate) fn refresh_table(&mut self, run_view: &RunView) {
        // The number of lines, which the layout needs, depends on the selection.
        let selected = self
            .units_view
            .heading
            .is_none()
            .then_some(self.units_view.unit);
        let rows = self.layout().most_unit_rows();
        self.units_view.listing.fold(selected, rows);
        let plan = self.layout();
        let line = self.selected_line();
        let deck = &mut self.units_view;
        let lines = deck.listing.line_count();
        // The progress bars cannot be selected, and follow the last line that can.
        let is_bar = |line: usize| matches!(deck.listing.at(line), Some(TableLine::Connection(_)));
        let shown = if (line + 1..lines).all(is_bar) {
            lines.saturating_sub(1)
        } else {
            line
        };
        deck.offset = scrolled(deck.offset, shown, lines, plan.unit_rows()).min(line);
        let is_heading = |line: usize| matches!(deck.listing.at(line), Some(TableLine::Group(_)));
        // The headings directly above the selected line are shown with it.
        while deck.offset > 0
            && line + 1 - deck.offset < plan.unit_rows()
            && (deck.offset - 1..line).all(is_heading)
        {
            deck.offset -= 1;
        }

        let attempt_id = self.attempt(run_view).map(|(_, attempt)| attempt.id);
        if attempt_id != self.units_view.attempt_id {
            self.units_view.attempt_id = attempt_id;
            self.units_view.stream = ScrollList::following();
        }
        let attempt = self.attempt(run_view).map(|(_, attempt)| attempt);
        let height = plan.stream_rows(attempt, &self.dialogs.held_changes);
        self.units_view.stream.clamp(
            attempt_id.map_or(0, |attempt_id| run_view.rows(attempt_id).len()),
            height,
        );
    }

    /// Marks the figures of a question while the run is still being read.
    pub(crate) fn reading_note(&self) -> Option<String> {
        let percent = self.playhead.bounds.percent_read?;
        Some(format!(
            "Still reading ({percent} %): the figures are those of the part read so far."
        ))
    }

    pub(crate) fn forecast(&self) -> &RunForecast {
        &self.forecast.forecast
    }

    /// Selects the unit that the user chose, or the nearest one that is listed.
    pub(crate) fn restore_selection(&mut self, run_view: &RunView) {
        let units = run_view.state.units.len();
        let deck = &mut self.units_view;
        if deck.unit != deck.last_valid_unit {
            deck.chosen_unit = deck.unit;
            deck.hidden_by = None;
        }
        let (last_rank, heading_rank) = (deck.listing.listed_count().saturating_sub(1), deck.rank);
        let filter = (deck.listing.filter, deck.listing.text.to_string());
        let wanted = if deck.hidden_by.as_ref() == Some(&filter) {
            deck.last_valid_unit
        } else {
            deck.chosen_unit
        };
        deck.unit = wanted.min(units.saturating_sub(1));
        if deck.listing.rank(deck.unit).is_none()
            && let Some(nearest) = deck.listing.unit(deck.rank.min(last_rank))
        {
            deck.unit = nearest;
            deck.hidden_by = Some(filter);
        }
        if deck.unit != deck.last_valid_unit && deck.unit != deck.chosen_unit {
            deck.attempt = None;
        }
        deck.last_valid_unit = deck.unit;
        deck.rank = deck
            .listing
            .rank(deck.unit)
            .unwrap_or(deck.rank.min(last_rank));
        match deck
            .heading
            .as_ref()
            .map(|key| deck.listing.find_group(key).map(UnitGroup::first_rank))
        {
            Some(Some(rank)) => deck.rank = rank,
            // A heading that was not chosen gives way to its first unit.
            Some(None) if deck.follows_work => deck.heading = None,
            // The group is gone. The next unit takes its place.
            Some(None) => {
                deck.heading = None;
                if let Some(unit) = deck.listing.unit(heading_rank.min(last_rank)) {
                    (deck.unit, deck.chosen_unit, deck.last_valid_unit) = (unit, unit, unit);
                    (deck.attempt, deck.rank) = (None, heading_rank.min(last_rank));
                }
            }
            None => {}
        }
    }

    /// Until the user selects a unit, selects the first unit that has a pending approval, is silent, runs, will run
    /// again, or needs a person for another reason, in this order. Of units that failed for one reason, the heading.
    ///
    /// Depends only on `state`, so the same moment always has the same selection.
    fn follow_work(&mut self, state: &RunState) {
        if !self.units_view.follows_work {
            return;
        }
        let first = |wanted: fn(UnitStatus) -> bool| {
            state.units.iter().position(|unit| wanted(unit.status))
        };
        let place = first(|status| status == UnitStatus::Held)
            .or_else(|| first(|status| status == UnitStatus::Silent))
            .or_else(|| first(|status| status == UnitStatus::Running))
            .or_else(|| first(|status| status == UnitStatus::Waiting))
            .or_else(|| first(is_failure))
            .or_else(|| first(|status| status.need() == UnitNeed::Person))
            .unwrap_or(0);
        let has_ended_badly = |unit: &UnitState| {
            unit.status.need() == UnitNeed::Person && !unit.status.is_in_flight()
        };
        let listing = &self.units_view.listing;
        let cause = listing
            .first_cause()
            .filter(|_| state.units.get(place).is_some_and(has_ended_badly));
        let first_of_cause = cause.and_then(|cause| listing.units_of(cause).first().copied());
        let place = first_of_cause.unwrap_or(place);
        self.units_view.heading = cause.map(|cause| cause.key.clone());
        if place != self.units_view.unit {
            self.units_view.unit = place;
            self.units_view.attempt = None;
        }
    }
}
