//! Cached content of the screen: rows and documents, read and cut to the size that is shown. Views read bodies only
//! from here.
//!
//! The cache is bounded: rows that are not on screen may be dropped, because they can be read again. [`super::load`]
//! fills it.

use std::collections::{BTreeSet, HashMap};

use jiff::tz::TimeZone;

use super::{
    attempt_summary::AttemptSummary,
    comparison::{CompareKey, Comparison, align::CallPair},
    document::{DocumentLayout, JsonNodeId, LaidOutDocument},
    entry_part::EntryPart,
    inspect_panel::InspectPanel,
    theme::StyleRole,
};
use ingestdeck_core::{
    run::{
        artifacts::RunArtifact,
        state::{AttemptId, RowKind, RunView, StreamRow},
    },
    tape::{Millis, Seq},
};

/// Largest number of cached rows, and of cached entries.
const MAX_ROWS: usize = 4096;
/// Largest number of cached texts of the reading page, and of their lines.
const MAX_READING: (usize, usize) = (2048, 50_000);
/// Number of cached documents, so that going back needs no new layout.
const MAX_DOCUMENTS: usize = 4;
/// Number of entries at the start of an attempt among which its prompts and its announcement are searched.
pub(crate) const MAX_PROLOGUE_ENTRIES: usize = 256;
/// Number of cached attempt summaries.
const MAX_SUMMARIES: usize = 8;

/// Cached content that views show.
#[derive(Debug, Default)]
pub struct ScreenCache {
    zone: Option<TimeZone>,
    rows: HashMap<RowId, RowLine>,
    entries: HashMap<u64, EntryLine>,
    reading: HashMap<ReadingKey, ReadingLines>,
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
    /// Last entry of the row, once it has ended, or the result of a call whose task runs in the background.
    pub last: Option<Seq>,
    /// Entry with the arguments with which the user replaced those of the call.
    pub edited: Option<Seq>,
}

impl RowId {
    /// The key of a row at the moment that `run_view` shows.
    pub(crate) fn new(row: &StreamRow, run_view: &RunView) -> Self {
        let first = row.first();
        let covered = run_view.row_entries(row).into_iter().flatten().last();
        let last = row.last(run_view.state.entries).and(covered);
        let last = last.or_else(|| run_view.background_result(row));
        let edited = run_view.edited_arguments_entry(first, row.block);
        Self {
            first,
            block: row.block,
            kind: row.kind,
            last,
            edited,
        }
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
    /// How long a call waited for a person.
    pub waited: Millis,
}

impl RowLine {
    /// How long an ended row took, without the time of a person.
    pub(crate) fn took(&self) -> Option<Millis> {
        Some(Millis(
            self.ended?.since(self.at).0.saturating_sub(self.waited.0),
        ))
    }
}

/// Key of the text of a row on the reading page. It changes with the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReadingKey {
    pub attempt_id: AttemptId,
    /// Index of the row in the attempt.
    pub index: usize,
    pub row: RowId,
    pub is_sub_agent: bool,
    /// True to show the whole text.
    pub is_unfolded: bool,
    /// Lines for which a folded text has room; 0 for the usual number.
    pub room: u16,
    /// Width of the layout in columns.
    pub width: u16,
}

/// Lines of (role, safe text).
pub(crate) type ReadingLines = Vec<Vec<(StyleRole, String)>>;

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
    /// An artifact, with everything that its document is made from.
    Artifact(Box<RunArtifact>),
    /// A panel of the inspector.
    InspectPanel(PanelPage),
    /// What differs between two calls of a comparison, and between the prompts of its attempts.
    Difference(CompareKey, Option<CallPair>),
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
    /// Rows of the reading page.
    pub reading: Vec<ReadingKey>,
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
    pub(crate) fn new(zone: TimeZone) -> Self {
        Self {
            zone: Some(zone),
            ..Self::default()
        }
    }

    /// Time zone of wall clock times in documents.
    pub(crate) fn zone(&self) -> TimeZone {
        self.zone.clone().unwrap_or(TimeZone::UTC)
    }

    pub(crate) fn row(&self, id: RowId) -> Option<&RowLine> {
        self.rows.get(&id)
    }

    pub(crate) fn entry(&self, seq: Seq) -> Option<&EntryLine> {
        self.entries.get(&seq.0)
    }

    /// The text of a row on the reading page.
    pub(crate) fn reading(&self, key: &ReadingKey) -> Option<&ReadingLines> {
        self.reading.get(key)
    }

    /// Drops texts of the reading page that `wanted` does not list, if there are too many.
    pub(crate) fn limit_reading(&mut self, wanted: &[ReadingKey]) {
        let lines: usize = self.reading.values().map(Vec::len).sum();
        if self.reading.len() > MAX_READING.0 || lines > MAX_READING.1 {
            self.reading.retain(|key, _| wanted.contains(key));
        }
    }

    pub(crate) fn put_reading(&mut self, key: ReadingKey, lines: ReadingLines) {
        self.reading.insert(key, lines);
    }

    /// The document on screen.
    pub(crate) fn document(&self) -> Option<&LaidOutDocument> {
        self.documents.last().map(|(_, layout)| layout.document())
    }

    /// The document on screen, if one was requested.
    pub(crate) fn requested_document(&self, wants: &CacheRequest) -> Option<&LaidOutDocument> {
        self.document().filter(|_| wants.document.is_some())
    }

    /// True when the layout of the document on screen is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.documents
            .last()
            .is_none_or(|(_, layout)| layout.is_complete())
    }

    /// The layout of the document on screen.
    pub(crate) fn layout(&mut self) -> Option<&mut DocumentLayout> {
        self.documents.last_mut().map(|(_, layout)| layout)
    }

    /// Makes a cached document the one on screen. False if it is not cached.
    pub(crate) fn select_document(&mut self, wanted: &DocumentRequest) -> bool {
        let Some(place) = self.documents.iter().position(|(known, _)| known == wanted) else {
            return false;
        };
        let document = self.documents.remove(place);
        self.documents.push(document);
        true
    }

    pub(crate) fn comparison(&self) -> Option<&Comparison> {
        self.comparison.as_ref().map(|(_, comparison)| comparison)
    }

    /// True if the cached comparison is the one of `sides`.
    pub(crate) fn has_comparison(&self, sides: &CompareKey) -> bool {
        self.comparison
            .as_ref()
            .is_some_and(|(known, _)| known == sides)
    }

    /// Replaces the cached comparison.
    pub(crate) fn put_comparison(&mut self, sides: CompareKey, comparison: Comparison) {
        self.comparison = Some((sides, comparison));
    }

    /// The summary of an attempt, as far as it was read.
    pub(crate) fn summary(&self, attempt_id: AttemptId) -> Option<&AttemptSummary> {
        self.summaries
            .iter()
            .find(|(known, _)| *known == attempt_id)
            .map(|(_, gathered)| gathered)
    }

    /// Version of the summary of an attempt; 0 if it is not cached.
    pub(crate) fn summary_version(&self, attempt_id: AttemptId) -> u64 {
        self.summary(attempt_id)
            .map_or(0, |summary| summary.version)
    }

    /// The summary of an attempt, to read more of it.
    pub(crate) fn summary_mut(&mut self, attempt_id: AttemptId) -> &mut AttemptSummary {
        let place = self
            .summaries
            .iter()
            .position(|(known, _)| *known == attempt_id)
            .unwrap_or_else(|| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::run::state::{RowOutcome, RunState};

    #[test]
    fn cache_is_bounded_and_ended_row_is_a_new_row() {
        let after = |entries| RunView {
            state: RunState {
                entries,
                ..RunState::default()
            },
            ..RunView::default()
        };
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
}
