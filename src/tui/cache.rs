//! Cached content of the screen: rows and documents, read and cut to the size that is shown. Views read bodies only
//! from here.
//!
//! The cache is bounded: rows that are not on screen may be dropped, because they can be read again. [`super::load`]
//! fills it.

use std::collections::{BTreeSet, HashMap};

use super::{
    document::{DocumentLayout, JsonNodeId, LaidOutDocument},
    load::{
        attempt_summary::AttemptSummary,
        compare::{CompareKey, Comparison},
    },
    model::{CompareView, EntryPart, InspectPanel, InspectView, OverlayView, ScreenModel, TableLine},
    theme::StyleRole,
};
use crate::{
    run::state::{AttemptId, RowKind, RunView, StreamRow},
    tape::{Millis, Seq},
};

/// Largest number of cached rows, and of cached entries.
const MAX_ROWS: usize = 4096;
/// Number of cached documents, so that going back needs no new layout.
const MAX_DOCUMENTS: usize = 4;
/// Number of cached attempt summaries.
const MAX_SUMMARIES: usize = 8;

/// Cached content that views show.
#[derive(Debug, Default)]
pub(crate) struct ScreenCache {
    rows: HashMap<RowId, RowLine>,
    entries: HashMap<u64, EntryLine>,
    /// The most recently shown document is last.
    documents: Vec<(DocumentRequest, DocumentLayout)>,
    summaries: Vec<(AttemptId, AttemptSummary)>,
    comparison: Option<(CompareKey, Comparison)>,
}

/// Key of a row. It changes with the text: a row that was open gets another text once it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowId {
    /// First entry of the row.
    pub first: Seq,
    /// Index of the block in that entry.
    pub block: u8,
    /// Kind of the row. Where a recording breaks off, one entry can have its own row and also be the end of the
    /// session.
    pub kind: RowKind,
    /// Last entry of the row, once it has ended.
    pub last: Option<Seq>,
    /// Entry with the arguments with which the user replaced those of the call.
    pub edited: Option<Seq>,
}

impl RowId {
    /// The key of a row at the moment that `run_view` shows.
    pub(crate) fn new(row: &StreamRow, run_view: &RunView) -> Self {
        let first = row.first();
        let (last, edited) = (row.last(run_view.state.entries), run_view.edited_arguments_entry(first, row.block));
        Self { first, block: row.block, kind: row.kind, last, edited }
    }
}

/// The text of one row of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowLine {
    /// Content of the row; not yet escaped for drawing.
    pub label: String,
    /// Outcome of the row; not yet escaped for drawing.
    pub outcome: String,
    /// Time of the first entry.
    pub at: Millis,
    /// Time of the last entry.
    pub ended: Option<Millis>,
}

/// The text of one entry of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryLine {
    pub at: Millis,
    /// Stream of the entry: `out`, `in`, `err`, `raw` or `note`.
    pub stream: &'static str,
    /// Kind of the line.
    pub kind: String,
    /// Role in which the kind is drawn.
    pub role: StyleRole,
    /// Beginning of the line; not yet escaped for drawing.
    pub text: String,
    pub size: u64,
}

/// Key of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentRequest {
    pub content: DocumentContent,
    /// Width of the layout in columns.
    pub width: u16,
}

/// Content of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DocumentContent {
    /// Parts of entries, one below the other.
    Parts(Vec<EntryPart>),
    /// A panel of the inspector.
    InspectPanel(PanelPage),
}

/// Key of a panel. It changes whenever the text of the panel may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PanelPage {
    /// Index of the unit.
    pub unit: usize,
    /// Index of the attempt.
    pub attempt: usize,
    pub panel: InspectPanel,
    /// The selected action: its index and its key.
    pub action: Option<(usize, RowId)>,
    /// Folds that the user opened or closed.
    pub toggled_folds: BTreeSet<JsonNodeId>,
    /// Progress of the attempt and of reading it.
    pub version: (usize, u32, u64),
    /// The second that is shown while the attempt runs.
    pub second: Option<u64>,
}

/// Content that must be cached before the next frame is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CacheRequest {
    /// Rows of action streams.
    pub rows: Vec<StreamRow>,
    /// Entries of a transcript.
    pub entries: Vec<Seq>,
    /// The document on screen, if there is one.
    pub document: Option<DocumentRequest>,
    /// Attempts whose summary is shown.
    pub summaries: Vec<AttemptId>,
    /// Attempts whose comparison is shown.
    pub comparison: Option<CompareKey>,
}

impl ScreenCache {
    pub(crate) fn row(&self, id: RowId) -> Option<&RowLine> {
        self.rows.get(&id)
    }

    pub(crate) fn entry(&self, seq: Seq) -> Option<&EntryLine> {
        self.entries.get(&seq.0)
    }

    /// The document on screen.
    pub(crate) fn document(&self) -> Option<&LaidOutDocument> {
        self.documents.last().map(|(_, layout)| layout.document())
    }

    /// True when the layout of the document on screen is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.documents.last().is_none_or(|(_, layout)| layout.is_complete())
    }

    /// The layout of the document on screen.
    pub(crate) fn layout(&mut self) -> Option<&mut DocumentLayout> {
        self.documents.last_mut().map(|(_, layout)| layout)
    }

    /// Makes a cached document the one on screen. False if it is not cached.
    pub(crate) fn select_document(&mut self, wanted: &DocumentRequest) -> bool {
        let Some(place) = self.documents.iter().position(|(known, _)| known == wanted) else { return false };
        let document = self.documents.remove(place);
        self.documents.push(document);
        true
    }

    pub(crate) fn comparison(&self) -> Option<&Comparison> {
        self.comparison.as_ref().map(|(_, comparison)| comparison)
    }

    /// True if the cached comparison is the one of `sides`.
    pub(crate) fn has_comparison(&self, sides: &CompareKey) -> bool {
        self.comparison.as_ref().is_some_and(|(known, _)| known == sides)
    }

    /// Replaces the cached comparison.
    pub(crate) fn put_comparison(&mut self, sides: CompareKey, comparison: Comparison) {
        self.comparison = Some((sides, comparison));
    }

    /// The summary of an attempt, as far as it was read.
    pub(crate) fn summary(&self, attempt_id: AttemptId) -> Option<&AttemptSummary> {
        self.summaries.iter().find(|(known, _)| *known == attempt_id).map(|(_, gathered)| gathered)
    }

    /// The summary of an attempt, to read more of it.
    pub(crate) fn summary_mut(&mut self, attempt_id: AttemptId) -> &mut AttemptSummary {
        let place = self.summaries.iter().position(|(known, _)| *known == attempt_id).unwrap_or_else(|| {
            if self.summaries.len() >= MAX_SUMMARIES {
                self.summaries.remove(0);
            }
            self.summaries.push((attempt_id, AttemptSummary::default()));
            self.summaries.len() - 1
        });
        &mut self.summaries[place].1
    }

    pub(crate) fn put_row(&mut self, id: RowId, line: RowLine) {
        if self.rows.len() >= MAX_ROWS {
            self.rows.clear();
        }
        self.rows.insert(id, line);
    }

    pub(crate) fn put_entry(&mut self, seq: Seq, line: EntryLine) {
        if self.entries.len() >= MAX_ROWS {
            self.entries.clear();
        }
        self.entries.insert(seq.0, line);
    }

    /// Caches a document and makes it the one on screen.
    pub(crate) fn put_document(&mut self, wanted: DocumentRequest, layout: DocumentLayout) {
        if self.documents.len() >= MAX_DOCUMENTS {
            self.documents.remove(0);
        }
        self.documents.push((wanted, layout));
    }
}

/// Content that the next frame shows.
pub(crate) fn cache_request(model: &ScreenModel, run_view: &RunView, cache: &ScreenCache) -> CacheRequest {
    let plan = model.layout(run_view);
    let mut wants = CacheRequest::default();
    if plan.is_too_small() {
        return wants;
    }
    let body = usize::from(plan.body_rows());
    match model.views.last() {
        Some(OverlayView::Transcript(view)) => {
            if let Some(attempt_id) = view.attempt_id(run_view) {
                let seqs = run_view.entries(attempt_id).iter().skip(view.list.offset).take(body);
                wants.entries = seqs.map(|seq| Seq(u64::from(*seq))).collect();
            }
        }
        Some(OverlayView::Entry(view)) => {
            let width = plan.body.width.saturating_sub(2);
            wants.document = Some(DocumentRequest { content: DocumentContent::Parts(view.parts.clone()), width });
        }
        Some(OverlayView::Compare(view)) => compare(view, run_view, cache, plan.body, &mut wants),
        Some(OverlayView::Inspect(view)) => inspect(view, run_view, cache, plan.body, &mut wants),
        Some(OverlayView::Grid) => {
            for (place, area) in model.grid.panes(plan.body) {
                let Some(slot) = model.grid.panes.get(place) else { continue };
                let Some((_, Some(attempt))) = slot.subject(run_view) else { continue };
                let height = usize::from(super::layout::stream_list(area, Some(attempt)).0.height);
                wants.rows.extend(run_view.rows(attempt.id).iter().skip(slot.list.offset).take(height));
            }
        }
        Some(
            OverlayView::Help(_) | OverlayView::Log(_) | OverlayView::FailureGroups(_) | OverlayView::Breakpoints(_),
        ) => {}
        None => {
            if let (Some(_), Some((_, attempt))) = (plan.stream, model.attempt(run_view)) {
                let rows = run_view.rows(attempt.id).iter().skip(model.units_view.stream.offset);
                wants.rows.extend(rows.take(plan.stream_rows(Some(attempt))));
            }
            if let Some(pane) = plan.units.filter(|pane| super::view::units::shows_last_action(pane.width)) {
                let rows = usize::from(super::layout::unit_list(pane).height);
                let units = model.visible_lines(run_view, rows).filter_map(|(_, line)| match line {
                    TableLine::Unit { unit, .. } => run_view.state.units.get(unit),
                    TableLine::Group(_) => None,
                });
                let last = units
                    .filter_map(|unit| unit.latest())
                    .filter_map(|attempt| super::view::units::last_action(run_view, attempt));
                wants.rows.extend(last);
            }
        }
    }
    wants
}

fn compare(
    view: &CompareView,
    run_view: &RunView,
    cache: &ScreenCache,
    body: ratatui::layout::Rect,
    wants: &mut CacheRequest,
) {
    let Some(attempts) = view.attempts(run_view) else { return };
    wants.summaries = attempts.map(|attempt| attempt.id).to_vec();
    wants.comparison = Some(attempts.map(|attempt| {
        let version = cache.summary(attempt.id).map_or(0, |gathered| gathered.version);
        (attempt.id, run_view.rows(attempt.id).len(), version)
    }));
    let visible = usize::from(view.areas(body).calls.height);
    for pair in view.pairs.iter().flatten().skip(view.list.offset).take(visible) {
        for (attempt, row) in attempts.into_iter().zip([pair.left, pair.right]) {
            wants.rows.extend(row.and_then(|row| run_view.rows(attempt.id).get(row)));
        }
    }
}

fn inspect(
    view: &InspectView,
    run_view: &RunView,
    cache: &ScreenCache,
    body: ratatui::layout::Rect,
    wants: &mut CacheRequest,
) {
    let Some(unit) = run_view.state.units.iter().position(|unit| unit.key == view.unit) else { return };
    let Some((index, attempt)) = view.attempt(run_view) else { return };
    let (rows, areas) = (run_view.rows(attempt.id), view.areas(body));
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
        InspectPanel::Actions => {
            let Some(row) = rows.get(view.actions.selected) else { return };
            page.action = Some((view.actions.selected, RowId::new(row, run_view)));
        }
        // The prompts are among the first entries.
        InspectPanel::Prompt => {
            page.version.0 = run_view.entries(attempt.id).len().min(super::load::MAX_PROLOGUE_ENTRIES)
        }
        InspectPanel::Isolation | InspectPanel::Stderr | InspectPanel::Verdict => {
            wants.summaries.push(attempt.id);
            let version = cache.summary(attempt.id).map_or(0, |gathered| gathered.version);
            let ends = attempt.counts.open_calls.wrapping_mul(2).wrapping_add(u32::from(attempt.ended_at.is_some()));
            page.version = (rows.len(), ends, version);
            let runs = view.panel == InspectPanel::Verdict && attempt.ended_at.is_none();
            page.second = runs.then_some(run_view.state.clock.0 / 1000);
        }
    }
    if let Some(area) = areas.detail {
        wants.document = Some(DocumentRequest { content: DocumentContent::InspectPanel(page), width: area.width });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        run::state::{AttemptRows, AttemptState, HoldMode, RowOutcome, RunState, UnitState, UnitStatus},
        tui::{KeyOverrides, Keymap},
    };

    #[test]
    fn cache_is_bounded_and_ended_row_is_a_new_row() {
        let after = |entries| RunView { state: RunState { entries, ..RunState::default() }, ..RunView::default() };
        let mut cache = ScreenCache::default();
        for seq in 0..(2 * MAX_ROWS as u64) {
            let row = StreamRow::new(Seq(seq), 0, RowKind::Text, RowOutcome::Ok, 0);
            cache.put_row(RowId::new(&row, &after(u64::MAX)), RowLine::default());
        }
        assert!(cache.rows.len() <= MAX_ROWS);
        let mut row = StreamRow::new(Seq(1), 0, RowKind::Tool, RowOutcome::Open, 0);
        let open = RowId::new(&row, &after(9));
        row.close(Seq(5), RowOutcome::Ok);
        assert_ne!(RowId::new(&row, &after(9)), open);
        assert_eq!(RowId::new(&row, &after(5)), open);
    }

    #[test]
    fn only_visible_rows_are_requested() {
        let rows = 1_000_000_u64;
        let row = |seq| StreamRow::new(Seq(seq), 0, RowKind::Text, RowOutcome::Ok, 0);
        let attempt = AttemptState { number: 1, id: AttemptId(0), ..AttemptState::default() };
        let unit = UnitState {
            key: "big".into(),
            planned: None,
            status: UnitStatus::Running,
            attempts: vec![attempt],
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        let run_view = RunView {
            state: RunState { units: vec![unit], entries: rows, ..RunState::default() },
            attempts: vec![AttemptRows { rows: (0..rows).map(row).collect(), entries: Vec::new() }],
            ..RunView::default()
        };
        let mut model = ScreenModel::new(Keymap::new(&KeyOverrides::new()).unwrap(), false);
        model.size = (200, 60);
        model.refresh(&run_view);
        let requested = cache_request(&model, &run_view, &ScreenCache::default()).rows.len();
        assert!((40..120).contains(&requested), "{requested} rows");
    }
}
