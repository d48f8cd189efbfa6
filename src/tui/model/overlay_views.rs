//! Views on top of the units view: their state, and how they are updated with the run view.

use super::{
    artifacts_view::ArtifactsView, compare::CompareView, failure_groups::FailureGroupsView,
    find_view::FindView, home_view::HomeView, inspect::InspectView, lanes_view::LanesView,
    review_view::ReviewView, scroll_list::ScrollList,
};
use crate::{
    action::{UserAction, help_size},
    entry_part::{EntryPart, PartContent},
};
use ingestdeck_core::{
    run::state::{AttemptId, AttemptState, RunView, UnitState},
    tape::{Seq, UnitKey},
};

/// A view on top of the units view.
#[derive(Clone, Debug)]
pub(crate) enum OverlayView {
    /// Every line of an attempt.
    Transcript(TranscriptView),
    /// The full content of one entry or row.
    Entry(EntryView),
    /// The inspector of a unit.
    Inspect(Box<InspectView>),
    /// Two attempts at a unit.
    Compare(Box<CompareView>),
    /// The list of keys.
    Help(HelpView),
    /// The messages of the run.
    Log(ScrollList),
    /// Panes for several units.
    Grid,
    /// Conditions at which playback stops.
    Breakpoints(ScrollList),
    /// Moments that the user marked.
    Bookmarks(ScrollList),
    /// The forecast and the failure groups.
    FailureGroups(FailureGroupsView),
    /// Where a text occurs in the run.
    Find(FindView),
    /// The runs of the project. It is below all other views, and is never closed.
    Home(HomeView),
    /// Attempts over time, one lane for each slot.
    Lanes(Box<LanesView>),
    /// The changes that wait for a review.
    Review(ReviewView),
    /// The artifacts of the run.
    Artifacts(Box<ArtifactsView>),
}

/// The help, which begins with the keys of the view from which it was opened.
#[derive(Clone, Debug)]
pub(crate) struct HelpView {
    /// First line on screen.
    pub offset: usize,
    /// Name of that view.
    pub about: &'static str,
    /// The actions of that view.
    pub actions: Vec<UserAction>,
}

impl HelpView {
    /// Number of columns of the help at this width, and their rows: the section of the view after its heading, with an
    /// empty row below, and the sections of all actions and signs.
    pub(crate) fn size(&self, width: u16) -> (u16, usize) {
        help_size(width, self.actions.len() + 2)
    }
}

/// The last panel of the inspector: every line of an attempt, in both directions.
#[derive(Clone, Debug)]
pub(crate) struct TranscriptView {
    pub unit: UnitKey,
    /// Index of the attempt.
    pub attempt: usize,
    /// Scroll position in its entries.
    pub list: ScrollList,
    /// Number of attempts when the user asked for another one, as in the inspector.
    pub awaited: Option<usize>,
}

/// The view of one entry.
#[derive(Clone, Debug)]
pub(crate) struct EntryView {
    pub unit: UnitKey,
    /// The attempt whose neighbouring entries can be shown.
    pub attempt_id: AttemptId,
    /// Index of the entry in the attempt.
    pub entry: usize,
    /// Parts to show at the current moment.
    pub parts: Vec<EntryPart>,
    /// First line on screen.
    pub scroll: usize,
    /// Lines of the document; 0 until the shell has laid it out.
    pub lines: usize,
    /// Line of the last match.
    pub match_line: Option<usize>,
}

impl TranscriptView {
    pub(crate) fn unit<'a>(&self, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view
            .state
            .units
            .iter()
            .find(|unit| unit.key == self.unit)
    }

    /// The attempt that is shown, with its index.
    pub(crate) fn attempt<'a>(&self, run_view: &'a RunView) -> Option<(usize, &'a AttemptState)> {
        let unit = self.unit(run_view)?;
        let index = self.attempt.min(unit.attempts.len().checked_sub(1)?);
        unit.attempts.get(index).map(|attempt| (index, attempt))
    }

    pub(crate) fn attempt_id(&self, run_view: &RunView) -> Option<AttemptId> {
        self.attempt(run_view).map(|(_, attempt)| attempt.id)
    }

    pub(super) fn clamp(&mut self, run_view: &RunView, height: usize) {
        let attempts = self.unit(run_view).map_or(0, |unit| unit.attempts.len());
        if self.awaited.is_some_and(|known| attempts > known) {
            self.awaited = None;
            (self.attempt, self.list) = (attempts - 1, ScrollList::following());
        }
        let len = self
            .attempt_id(run_view)
            .map_or(0, |attempt_id| run_view.entries(attempt_id).len());
        self.list.clamp(len, height);
    }
}

impl EntryView {
    pub(crate) fn new(unit: UnitKey, attempt_id: AttemptId, entry: usize) -> Self {
        Self {
            unit,
            attempt_id,
            entry,
            parts: Vec::new(),
            scroll: 0,
            lines: 0,
            match_line: None,
        }
    }

    /// Shows the entry `by` positions away.
    pub(crate) fn show_neighbour(&mut self, run_view: &RunView, by: isize) {
        let last = run_view.entries(self.attempt_id).len().saturating_sub(1);
        let next = self.entry.saturating_add_signed(by).min(last);
        if next != self.entry {
            self.entry = next;
            (self.scroll, self.match_line) = (0, None);
        }
    }

    pub(super) fn clamp(&mut self, run_view: &RunView, height: usize) {
        let seq = run_view
            .entries(self.attempt_id)
            .get(self.entry)
            .map(|seq| Seq(u64::from(*seq)));
        let part = |seq| EntryPart {
            title: "line",
            seq,
            content: PartContent::Line,
        };
        self.parts = seq.map(part).into_iter().collect();
        self.scroll = self.scroll.min(self.lines.saturating_sub(height));
    }
}
