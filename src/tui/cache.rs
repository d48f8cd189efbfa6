//! What is on screen, read and cut to what a row can show. Views look here and nowhere else.
//!
//! Bounded: a row that left the screen may be forgotten, since it can be read again. [`super::load`] fills it.

use std::collections::{BTreeSet, HashMap};

use super::{
    document::{DocumentLayout, FoldId, LaidOutDocument},
    load::{
        attempt_summary::AttemptSummary,
        compare::{CompareKey, Comparison},
    },
    model::{CompareView, EntryPart, InspectView, OverlayView, Panel, ScreenModel, TableLine},
    theme::StyleRole,
};
use crate::{
    run::state::{AttemptId, RowKind, RunView, StreamRow},
    tape::{Millis, Seq},
};

/// Rows and entries that are kept at most.
const MAX_ROWS: usize = 4096;
/// Documents that are kept, so that a step back costs nothing.
const MAX_DOCUMENTS: usize = 4;
/// Attempts of which is kept what they did in all.
const MAX_SUMMARIES: usize = 8;

/// What views show of bodies.
#[derive(Debug, Default)]
pub struct Cache {
    rows: HashMap<RowId, RowLine>,
    entries: HashMap<u64, EntryLine>,
    /// The one on screen last.
    documents: Vec<(DocumentRequest, DocumentLayout)>,
    summaries: Vec<(AttemptId, AttemptSummary)>,
    comparison: Option<(CompareKey, Comparison)>,
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
    /// Entry with the arguments that a person gave the call.
    pub edited: Option<Seq>,
}

impl RowId {
    /// The id of a row at the moment of `story`.
    pub fn new(row: &StreamRow, story: &RunView) -> Self {
        let first = row.first();
        let (last, edited) = (row.last(story.state.entries), story.edited_arguments_entry(first, row.block));
        Self { first, block: row.block, kind: row.kind, last, edited }
    }
}

/// One row of a stream in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowLine {
    /// What it is; not yet safe to draw.
    pub label: String,
    /// What came of it; not yet safe to draw.
    pub outcome: String,
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
    pub role: StyleRole,
    /// Its beginning; not yet safe to draw.
    pub text: String,
    /// Size in bytes.
    pub size: u64,
}

/// A document that is on screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRequest {
    /// What is in it.
    pub content: DocumentContent,
    /// For how many columns.
    pub width: u16,
}

/// What a document is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentContent {
    /// Parts of entries.
    Parts(Vec<EntryPart>),
    /// A panel of the inspector.
    Panel(PanelPage),
}

/// A panel of the inspector, as far as its text can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanelPage {
    /// Unit, by index.
    pub unit: usize,
    /// Attempt of it, by index.
    pub attempt: usize,
    /// What of it.
    pub panel: Panel,
    /// The selected action.
    pub action: Option<(usize, RowId)>,
    /// Folds that a person turned over.
    pub toggled_folds: BTreeSet<FoldId>,
    /// How far the attempt is, and how much of it was read.
    pub version: (usize, u32, u64),
    /// The second that is shown, where an attempt still runs.
    pub second: Option<u64>,
}

/// What has to be in the cache before a draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheRequest {
    /// Rows of streams.
    pub rows: Vec<StreamRow>,
    /// Entries of a transcript.
    pub entries: Vec<Seq>,
    /// The document.
    pub document: Option<DocumentRequest>,
    /// Attempts of which is asked what they did in all.
    pub summaries: Vec<AttemptId>,
    /// Attempts to be compared.
    pub comparison: Option<CompareKey>,
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
    pub fn document(&self) -> Option<&LaidOutDocument> {
        self.documents.last().map(|(_, layout)| layout.document())
    }

    /// True when nothing more of the document on screen comes.
    pub fn is_complete(&self) -> bool {
        self.documents.last().is_none_or(|(_, layout)| layout.is_complete())
    }

    /// The layout of the document on screen.
    pub fn layout(&mut self) -> Option<&mut DocumentLayout> {
        self.documents.last_mut().map(|(_, layout)| layout)
    }

    /// True if the document is there; it is then the one on screen.
    pub fn select_document(&mut self, wanted: &DocumentRequest) -> bool {
        let Some(place) = self.documents.iter().position(|(known, _)| known == wanted) else { return false };
        let document = self.documents.remove(place);
        self.documents.push(document);
        true
    }

    /// The attempts that were compared last.
    pub fn comparison(&self) -> Option<&Comparison> {
        self.comparison.as_ref().map(|(_, comparison)| comparison)
    }

    /// True if these were compared.
    pub fn has_comparison(&self, sides: &CompareKey) -> bool {
        self.comparison.as_ref().is_some_and(|(known, _)| known == sides)
    }

    /// Keeps a comparison in place of the last one.
    pub fn put_comparison(&mut self, sides: CompareKey, comparison: Comparison) {
        self.comparison = Some((sides, comparison));
    }

    /// What an attempt did in all, as far as it was read.
    pub fn summary(&self, lane: AttemptId) -> Option<&AttemptSummary> {
        self.summaries.iter().find(|(known, _)| *known == lane).map(|(_, gathered)| gathered)
    }

    /// The same, to be read on.
    pub fn summary_mut(&mut self, lane: AttemptId) -> &mut AttemptSummary {
        let place = self.summaries.iter().position(|(known, _)| *known == lane).unwrap_or_else(|| {
            if self.summaries.len() >= MAX_SUMMARIES {
                self.summaries.remove(0);
            }
            self.summaries.push((lane, AttemptSummary::default()));
            self.summaries.len() - 1
        });
        &mut self.summaries[place].1
    }

    /// Keeps a row.
    pub fn put_row(&mut self, id: RowId, line: RowLine) {
        if self.rows.len() >= MAX_ROWS {
            self.rows.clear();
        }
        self.rows.insert(id, line);
    }

    /// Keeps an entry.
    pub fn put_entry(&mut self, seq: Seq, line: EntryLine) {
        if self.entries.len() >= MAX_ROWS {
            self.entries.clear();
        }
        self.entries.insert(seq.0, line);
    }

    /// Keeps a document, which is then the one on screen.
    pub fn put_document(&mut self, wanted: DocumentRequest, layout: DocumentLayout) {
        if self.documents.len() >= MAX_DOCUMENTS {
            self.documents.remove(0);
        }
        self.documents.push((wanted, layout));
    }
}

/// What the screen is about to show.
pub fn cache_request(model: &ScreenModel, story: &RunView, cache: &Cache) -> CacheRequest {
    let plan = model.layout(story);
    let mut wants = CacheRequest::default();
    if plan.is_too_small() {
        return wants;
    }
    let body = usize::from(plan.body_rows());
    match model.views.last() {
        Some(OverlayView::Transcript(view)) => {
            if let Some(lane) = view.lane(story) {
                let seqs = story.entries(lane).iter().skip(view.list.offset).take(body);
                wants.entries = seqs.map(|seq| Seq(u64::from(*seq))).collect();
            }
        }
        Some(OverlayView::Entry(view)) => {
            let width = plan.body.width.saturating_sub(2);
            wants.document = Some(DocumentRequest { content: DocumentContent::Parts(view.parts.clone()), width });
        }
        Some(OverlayView::Compare(view)) => compare(view, story, cache, plan.body, &mut wants),
        Some(OverlayView::Inspect(view)) => inspect(view, story, cache, plan.body, &mut wants),
        Some(OverlayView::Grid) => {
            for (place, area) in model.grid.panes(plan.body) {
                let Some(slot) = model.grid.panes.get(place) else { continue };
                let Some((_, Some(attempt))) = slot.subject(story) else { continue };
                let height = usize::from(super::layout::stream_list(area, Some(attempt)).0.height);
                wants.rows.extend(story.rows(attempt.id).iter().skip(slot.list.offset).take(height));
            }
        }
        Some(
            OverlayView::Help(_) | OverlayView::Log(_) | OverlayView::FailureGroups(_) | OverlayView::Breakpoints(_),
        ) => {}
        None => {
            if let (Some(_), Some((_, attempt))) = (plan.stream, model.attempt(story)) {
                let rows = story.rows(attempt.id).iter().skip(model.units_view.stream.offset);
                wants.rows.extend(rows.take(plan.stream_rows(Some(attempt))));
            }
            if let Some(pane) = plan.units.filter(|pane| super::view::units::shows_last_action(pane.width)) {
                let rows = usize::from(super::layout::unit_list(pane).height);
                let units = model.visible_lines(story, rows).filter_map(|(_, line)| match line {
                    TableLine::Unit { unit, .. } => story.state.units.get(unit),
                    TableLine::Group(_) => None,
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

fn compare(view: &CompareView, story: &RunView, cache: &Cache, body: ratatui::layout::Rect, wants: &mut CacheRequest) {
    let Some(attempts) = view.attempts(story) else { return };
    wants.summaries = attempts.map(|attempt| attempt.id).to_vec();
    wants.comparison = Some(attempts.map(|attempt| {
        let version = cache.summary(attempt.id).map_or(0, |gathered| gathered.version);
        (attempt.id, story.rows(attempt.id).len(), version)
    }));
    let visible = usize::from(view.areas(body).calls.height);
    for pair in view.pairs.iter().flatten().skip(view.list.offset).take(visible) {
        for (attempt, row) in attempts.into_iter().zip([pair.left, pair.right]) {
            wants.rows.extend(row.and_then(|row| story.rows(attempt.id).get(row)));
        }
    }
}

fn inspect(view: &InspectView, story: &RunView, cache: &Cache, body: ratatui::layout::Rect, wants: &mut CacheRequest) {
    let Some(unit) = story.state.units.iter().position(|unit| unit.key == view.unit) else { return };
    let Some((index, attempt)) = view.attempt(story) else { return };
    let (rows, areas) = (story.rows(attempt.id), view.areas(body));
    if let Some(area) = areas.actions {
        wants.rows.extend(rows.iter().skip(view.actions.offset).take(usize::from(area.height)));
    }
    let mut page = PanelPage {
        unit,
        attempt: index,
        panel: view.panel,
        action: None,
        toggled_folds: view.toggled_folds.clone(),
        version: (0, 0, 0),
        second: None,
    };
    match view.panel {
        Panel::Actions => {
            let Some(row) = rows.get(view.actions.selected) else { return };
            page.action = Some((view.actions.selected, RowId::new(row, story)));
        }
        // What was said to it comes first.
        Panel::Prompt => page.version.0 = story.entries(attempt.id).len().min(super::load::MAX_PROLOGUE_ENTRIES),
        Panel::Isolation | Panel::Stderr | Panel::Verdict => {
            wants.summaries.push(attempt.id);
            let version = cache.summary(attempt.id).map_or(0, |gathered| gathered.version);
            let ends = attempt.open_calls.wrapping_mul(2).wrapping_add(u32::from(attempt.ended_at.is_some()));
            page.version = (rows.len(), ends, version);
            let runs = view.panel == Panel::Verdict && attempt.ended_at.is_none();
            page.second = runs.then_some(story.state.clock.0 / 1000);
        }
    }
    if let Some(area) = areas.detail {
        wants.document = Some(DocumentRequest { content: DocumentContent::Panel(page), width: area.width });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::state::{RowEnd, RunState};

    #[test]
    fn cache_is_bounded_and_ended_row_is_a_new_row() {
        let after = |entries| RunView::new(RunState { entries, ..RunState::default() }, Vec::new(), Vec::new());
        let mut cache = Cache::default();
        for seq in 0..(2 * MAX_ROWS as u64) {
            let row = StreamRow::new(Seq(seq), 0, RowKind::Text, RowEnd::Ok, 0);
            cache.put_row(RowId::new(&row, &after(u64::MAX)), RowLine::default());
        }
        assert!(cache.rows.len() <= MAX_ROWS);
        let mut row = StreamRow::new(Seq(1), 0, RowKind::Tool, RowEnd::Open, 0);
        let open = RowId::new(&row, &after(9));
        row.close(Seq(5), RowEnd::Ok);
        assert_ne!(RowId::new(&row, &after(9)), open);
        assert_eq!(RowId::new(&row, &after(5)), open);
    }
}
