//! Views on top of the units view: their state, and how they are updated with the run view.

use super::{compare::CompareView, failure_groups::FailureGroupsView, inspect::InspectView, scroll_list::ScrollList};
use crate::{
    run::state::{AttemptId, AttemptState, RunView},
    tape::{Seq, UnitKey},
    tui::entry_part::{EntryPart, PartContent, row_parts},
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
    Help(ScrollList),
    /// The messages of the run.
    Log(ScrollList),
    /// Panes for several units.
    Grid,
    /// Conditions at which playback stops.
    Breakpoints(ScrollList),
    /// The forecast and the failure groups.
    FailureGroups(FailureGroupsView),
}

/// The view of every line of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct TranscriptView {
    pub unit: UnitKey,
    /// Index of the attempt.
    pub attempt: usize,
    /// Scroll position in its entries.
    pub list: ScrollList,
}

/// The view of one entry or row.
#[derive(Clone, Debug)]
pub(crate) struct EntryView {
    pub unit: UnitKey,
    /// The attempt whose neighbouring entries or rows can be shown.
    pub attempt_id: AttemptId,
    pub subject: EntrySubject,
    /// Parts to show at the current moment.
    pub parts: Vec<EntryPart>,
    /// First line on screen.
    pub scroll: usize,
    /// Lines of the document; 0 until the shell has laid it out.
    pub lines: usize,
    /// Line of the last match.
    pub match_line: Option<usize>,
}

/// Subject of an entry view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntrySubject {
    /// A row of an attempt: its first and its last entry.
    Row(usize),
    /// An entry of an attempt.
    Entry(usize),
}

impl TranscriptView {
    /// The attempt that is shown, with its index.
    pub(crate) fn attempt<'a>(&self, run_view: &'a RunView) -> Option<(usize, &'a AttemptState)> {
        let unit = run_view.state.units.iter().find(|unit| unit.key == self.unit)?;
        let index = self.attempt.min(unit.attempts.len().checked_sub(1)?);
        unit.attempts.get(index).map(|attempt| (index, attempt))
    }

    pub(crate) fn attempt_id(&self, run_view: &RunView) -> Option<AttemptId> {
        self.attempt(run_view).map(|(_, attempt)| attempt.id)
    }

    pub(super) fn clamp(&mut self, run_view: &RunView, height: usize) {
        let len = self.attempt_id(run_view).map_or(0, |attempt_id| run_view.entries(attempt_id).len());
        // The first line of the body contains the tabs.
        self.list.clamp(len, height.saturating_sub(1));
    }
}

impl EntryView {
    /// A view of `subject`.
    pub(crate) fn new(unit: UnitKey, attempt_id: AttemptId, subject: EntrySubject) -> Self {
        Self { unit, attempt_id, subject, parts: Vec::new(), scroll: 0, lines: 0, match_line: None }
    }

    /// Shows the entry or row `by` positions away.
    pub(crate) fn show_neighbour(&mut self, run_view: &RunView, by: isize) {
        let (index, len) = match self.subject {
            EntrySubject::Row(index) => (index, run_view.rows(self.attempt_id).len()),
            EntrySubject::Entry(index) => (index, run_view.entries(self.attempt_id).len()),
        };
        let next = index.saturating_add_signed(by).min(len.saturating_sub(1));
        if next != index {
            self.subject = match self.subject {
                EntrySubject::Row(_) => EntrySubject::Row(next),
                EntrySubject::Entry(_) => EntrySubject::Entry(next),
            };
            (self.scroll, self.match_line) = (0, None);
        }
    }

    pub(super) fn clamp(&mut self, run_view: &RunView, height: usize) {
        self.parts = match self.subject {
            EntrySubject::Row(index) => row_parts(run_view, self.attempt_id, index),
            EntrySubject::Entry(index) => run_view
                .entries(self.attempt_id)
                .get(index)
                .map(|seq| EntryPart { title: "line", seq: Seq(u64::from(*seq)), content: PartContent::Line })
                .into_iter()
                .collect(),
        };
        self.scroll = self.scroll.min(self.lines.saturating_sub(height));
    }
}
