//! Views above the deck: what they show, and how they stay in range of the story.

use super::{causes::Causes, compare::Compare, inspect::Inspect, list::List};
use crate::{
    run::state::{Attempt, LaneId, RowEnd, RowKind, Story},
    tape::{Seq, UnitKey},
};

/// A view above the deck.
#[derive(Clone, Debug)]
pub enum View {
    /// Every line of an attempt.
    Transcript(Transcript),
    /// Everything of one entry or row.
    Entry(EntryView),
    /// Everything about a unit.
    Inspect(Box<Inspect>),
    /// Two attempts at a unit.
    Compare(Box<Compare>),
    /// Keys.
    Help(List),
    /// The run's remarks.
    Log(List),
    /// Panes of several units.
    Grid,
    /// Conditions that time stops at.
    Breakpoints(List),
    /// What is left, and failures by cause.
    Causes(Causes),
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
    /// What of it.
    pub of: Of,
}

/// What of an entry is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    /// All of it, as it came.
    Line,
    /// The text or the arguments of one of its blocks.
    Block(u8),
    /// The result of the call before.
    Result,
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

    pub(super) fn settle(&mut self, story: &Story, height: usize) {
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

    pub(super) fn settle(&mut self, story: &Story, height: usize) {
        self.parts = match self.subject {
            Subject::Row(index) => row_parts(story, self.lane, index),
            Subject::Entry(index) => story
                .entries(self.lane)
                .get(index)
                .map(|seq| Part { title: "line", seq: Seq(u64::from(*seq)), of: Of::Line })
                .into_iter()
                .collect(),
        };
        self.scroll = self.scroll.min(self.lines.saturating_sub(height));
    }
}

/// What it says first, the lines behind it below.
pub(in crate::tui) fn row_parts(story: &Story, lane: LaneId, index: usize) -> Vec<Part> {
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
            return vec![Part { title: "line", seq: row.first(), of: Of::Line }];
        }
    };
    let mut parts = vec![Part { title, seq: row.first(), of: Of::Block(row.block) }];
    let last = row.last(entries).filter(|last| *last != row.first());
    if let Some(seq) = last {
        let title = match row.end(entries) {
            RowEnd::Failed => "result, failed",
            RowEnd::Denied => "result, denied",
            RowEnd::Cut => "result, cut short",
            RowEnd::Declined => "result, declined",
            RowEnd::Open | RowEnd::Ok => "result",
        };
        parts.push(Part { title, seq, of: Of::Result });
    }
    let lines = [Some(row.first()), last].into_iter().flatten();
    parts.extend(lines.map(|seq| Part { title: "line", seq, of: Of::Line }));
    parts
}
