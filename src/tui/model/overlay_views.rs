//! Views above the deck: what they show, and how they stay in range of the story.

use super::{compare::CompareView, failure_groups::FailureGroupsView, inspect::InspectView, scroll_list::ScrollList};
use crate::{
    run::state::{AttemptId, AttemptState, RowEnd, RowKind, RunView},
    tape::{Seq, UnitKey},
};

/// A view above the deck.
#[derive(Clone, Debug)]
pub enum OverlayView {
    /// Every line of an attempt.
    Transcript(TranscriptView),
    /// Everything of one entry or row.
    Entry(EntryView),
    /// Everything about a unit.
    Inspect(Box<InspectView>),
    /// Two attempts at a unit.
    Compare(Box<CompareView>),
    /// Keys.
    Help(ScrollList),
    /// The run's remarks.
    Log(ScrollList),
    /// Panes of several units.
    Grid,
    /// Conditions that time stops at.
    Breakpoints(ScrollList),
    /// What is left, and failures by cause.
    FailureGroups(FailureGroupsView),
}

/// Every line of an attempt.
#[derive(Clone, Debug)]
pub struct TranscriptView {
    /// Unit.
    pub unit: UnitKey,
    /// Attempt, by index.
    pub attempt: usize,
    /// Its entries.
    pub list: ScrollList,
}

/// Everything of one entry or row.
#[derive(Clone, Debug)]
pub struct EntryView {
    /// Unit.
    pub unit: UnitKey,
    /// Where its neighbours are.
    pub attempt_id: AttemptId,
    /// What it shows.
    pub subject: EntrySubject,
    /// Parts to show, as the story has them now.
    pub parts: Vec<EntryPart>,
    /// First line on screen.
    pub scroll: usize,
    /// Lines of the document, once the shell has laid it out.
    pub lines: usize,
    /// Line of the last match.
    pub match_line: Option<usize>,
}

/// What an entry view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntrySubject {
    /// A row of a lane: its beginning and its end.
    Row(usize),
    /// An entry of a lane.
    Entry(usize),
}

/// A part of an entry view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryPart {
    /// Its heading.
    pub title: &'static str,
    /// Its entry.
    pub seq: Seq,
    /// What of it.
    pub content: PartContent,
}

/// What of an entry is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartContent {
    /// All of it, as it came.
    Line,
    /// The text or the arguments of one of its blocks.
    Block(u8),
    /// The result of the call before.
    Result,
}

impl TranscriptView {
    /// The attempt that is shown.
    pub fn attempt<'a>(&self, story: &'a RunView) -> Option<(usize, &'a AttemptState)> {
        let unit = story.state.units.iter().find(|unit| unit.key == self.unit)?;
        let index = self.attempt.min(unit.attempts.len().checked_sub(1)?);
        unit.attempts.get(index).map(|attempt| (index, attempt))
    }

    /// Its lane.
    pub fn lane(&self, story: &RunView) -> Option<AttemptId> {
        self.attempt(story).map(|(_, attempt)| attempt.id)
    }

    pub(super) fn clamp(&mut self, story: &RunView, height: usize) {
        let len = self.lane(story).map_or(0, |lane| story.entries(lane).len());
        // The first line of the body is the tabs.
        self.list.clamp(len, height.saturating_sub(1));
    }
}

impl EntryView {
    /// A view of `subject`.
    pub fn new(unit: UnitKey, lane: AttemptId, subject: EntrySubject) -> Self {
        Self { unit, attempt_id: lane, subject, parts: Vec::new(), scroll: 0, lines: 0, match_line: None }
    }

    /// The neighbour of what is shown.
    pub fn show_neighbour(&mut self, story: &RunView, by: isize) {
        let (index, len) = match self.subject {
            EntrySubject::Row(index) => (index, story.rows(self.attempt_id).len()),
            EntrySubject::Entry(index) => (index, story.entries(self.attempt_id).len()),
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

    pub(super) fn clamp(&mut self, story: &RunView, height: usize) {
        self.parts = match self.subject {
            EntrySubject::Row(index) => row_parts(story, self.attempt_id, index),
            EntrySubject::Entry(index) => story
                .entries(self.attempt_id)
                .get(index)
                .map(|seq| EntryPart { title: "line", seq: Seq(u64::from(*seq)), content: PartContent::Line })
                .into_iter()
                .collect(),
        };
        self.scroll = self.scroll.min(self.lines.saturating_sub(height));
    }
}

/// What it says first, the lines behind it below.
pub(in crate::tui) fn row_parts(story: &RunView, lane: AttemptId, index: usize) -> Vec<EntryPart> {
    let entries = story.state.entries;
    let Some(row) = story.rows(lane).get(index) else { return Vec::new() };
    let title = match row.kind {
        RowKind::Tool => "call",
        RowKind::Text => "text",
        RowKind::Thinking => "thinking",
        RowKind::Denial
        | RowKind::Warning
        | RowKind::Notice
        | RowKind::Started
        | RowKind::Completed
        | RowKind::Note => {
            return vec![EntryPart { title: "line", seq: row.first(), content: PartContent::Line }];
        }
    };
    let mut parts = vec![EntryPart { title, seq: row.first(), content: PartContent::Block(row.block) }];
    let last = row.last(entries).filter(|last| *last != row.first());
    if let Some(seq) = last {
        let title = match row.end(entries) {
            RowEnd::Failed => "result, failed",
            RowEnd::Denied => "result, denied",
            RowEnd::Aborted => "result, cut short",
            RowEnd::Declined => "result, declined",
            RowEnd::Open | RowEnd::Ok => "result",
        };
        parts.push(EntryPart { title, seq, content: PartContent::Result });
    }
    let lines = [Some(row.first()), last].into_iter().flatten();
    parts.extend(lines.map(|seq| EntryPart { title: "line", seq, content: PartContent::Line }));
    parts
}
