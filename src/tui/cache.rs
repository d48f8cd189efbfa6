//! What is on screen, read and cut to what a row can show. Views look here and nowhere else.
//!
//! Bounded: a row that left the screen may be forgotten, since it can be read again. [`super::load`] fills it.

use std::collections::HashMap;

use super::{
    document::Document,
    model::{Line, Model, Part, View},
    theme::Role,
};
use crate::{
    run::state::{Row, RowKind, Story},
    tape::{Millis, Seq},
};

/// Rows and entries that are kept at most.
const MOST: usize = 4096;

/// What views show of bodies.
#[derive(Debug, Default)]
pub struct Cache {
    rows: HashMap<RowId, RowLine>,
    entries: HashMap<u64, EntryLine>,
    document: Option<(Wanted, Document)>,
}

/// A row, as far as its text can change: an open row gets another line once it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowId {
    /// Entry that began it.
    pub first: Seq,
    /// Its block.
    pub block: u8,
    /// What it is: where a record breaks off, an entry may have a row of its own and be the end of the session.
    pub kind: RowKind,
    /// Entry that ended it.
    pub last: Option<Seq>,
}

impl RowId {
    /// The id of a row at a moment.
    pub fn of(row: &Row, entries: u64) -> Self {
        Self { first: row.first(), block: row.block, kind: row.kind, last: row.last(entries) }
    }
}

/// One row of a stream in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowLine {
    /// What it is; not yet safe to draw.
    pub label: String,
    /// What came of it; not yet safe to draw.
    pub fact: String,
    /// When it began.
    pub at: Millis,
    /// When it ended.
    pub ended: Option<Millis>,
}

/// One entry of a transcript in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryLine {
    /// When.
    pub at: Millis,
    /// `out`, `in`, `err`, `raw`, `note`.
    pub stream: &'static str,
    /// Kind of the line.
    pub kind: String,
    /// How to show the kind.
    pub role: Role,
    /// Its beginning; not yet safe to draw.
    pub text: String,
    /// Size in bytes.
    pub size: u64,
}

/// A document that is on screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What is in it.
    pub parts: Vec<Part>,
    /// For how many columns.
    pub width: u16,
}

/// What has to be in the cache before a draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// Rows of streams.
    pub rows: Vec<Row>,
    /// Entries of a transcript.
    pub entries: Vec<Seq>,
    /// The document.
    pub document: Option<Wanted>,
}

impl Cache {
    /// A row in words.
    pub fn row(&self, id: RowId) -> Option<&RowLine> {
        self.rows.get(&id)
    }

    /// An entry in words.
    pub fn entry(&self, seq: Seq) -> Option<&EntryLine> {
        self.entries.get(&seq.0)
    }

    /// The document on screen.
    pub fn document(&self) -> Option<&Document> {
        self.document.as_ref().map(|(_, document)| document)
    }

    /// True if the document is the one that is wanted.
    pub fn has(&self, wanted: &Wanted) -> bool {
        self.document.as_ref().is_some_and(|(known, _)| known == wanted)
    }

    /// Keeps a row.
    pub fn put_row(&mut self, id: RowId, line: RowLine) {
        if self.rows.len() >= MOST {
            self.rows.clear();
        }
        self.rows.insert(id, line);
    }

    /// Keeps an entry.
    pub fn put_entry(&mut self, seq: Seq, line: EntryLine) {
        if self.entries.len() >= MOST {
            self.entries.clear();
        }
        self.entries.insert(seq.0, line);
    }

    /// Keeps a document in place of the last one.
    pub fn put_document(&mut self, wanted: Wanted, document: Document) {
        self.document = Some((wanted, document));
    }
}

/// What the screen is about to show.
pub fn wants(model: &Model, story: &Story) -> Wants {
    let plan = model.plan(story);
    let mut wants = Wants::default();
    if plan.too_small() {
        return wants;
    }
    let body = usize::from(plan.body_rows());
    match model.views.last() {
        Some(View::Transcript(view)) => {
            if let Some(lane) = view.lane(story) {
                let seqs = story.entries(lane).iter().skip(view.list.offset).take(body);
                wants.entries = seqs.map(|seq| Seq(u64::from(*seq))).collect();
            }
        }
        Some(View::Entry(view)) => {
            let width = plan.body.width.saturating_sub(2);
            wants.document = Some(Wanted { parts: view.parts.clone(), width });
        }
        Some(View::Help(_) | View::Log(_) | View::Breakpoints(_)) => {}
        None => {
            if let (Some(_), Some((_, attempt))) = (plan.stream, model.attempt(story)) {
                let rows = story.rows(attempt.lane).iter().skip(model.deck.stream.offset);
                wants.rows.extend(rows.take(plan.stream_rows(Some(attempt))));
            }
            if let Some(pane) = plan.units.filter(|pane| super::view::units::shows_last_action(pane.width)) {
                let rows = usize::from(super::layout::unit_list(pane).height);
                let units = model.visible_lines(story, rows).filter_map(|(_, line)| match line {
                    Line::Unit { unit, .. } => story.state.units.get(unit),
                    Line::Group(_) => None,
                });
                let last = units
                    .filter_map(|unit| unit.latest())
                    .filter_map(|attempt| super::view::units::last_action(story, attempt));
                wants.rows.extend(last);
            }
        }
    }
    wants
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::state::RowEnd;

    #[test]
    fn the_cache_stays_bounded_and_an_ended_row_is_another_row() {
        let mut cache = Cache::default();
        for seq in 0..(2 * MOST as u64) {
            let row = Row::new(Seq(seq), 0, RowKind::Text, RowEnd::Ok, 0);
            cache.put_row(RowId::of(&row, u64::MAX), RowLine::default());
        }
        assert!(cache.rows.len() <= MOST);
        let mut row = Row::new(Seq(1), 0, RowKind::Tool, RowEnd::Open, 0);
        let open = RowId::of(&row, 9);
        row.close(Seq(5), RowEnd::Ok);
        assert_ne!(RowId::of(&row, 9), open);
        assert_eq!(RowId::of(&row, 5), open);
    }
}
