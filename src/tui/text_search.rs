//! Searches for text in content that must be read first. Works in slices, so that keys are never delayed.

use std::collections::{HashSet, VecDeque};

use super::{
    cache::ScreenCache,
    effect::{SearchRequest, SearchScope},
    load::{self, EntryReadError},
    model::{MAX_MATCHES, PaneMatches, around_match},
    reading_order::ReadingOrder,
    search_match::{FoundRow, MatchPlace, matches, nearest},
};
use ingestdeck_core::{
    run::{
        EntrySourceError, Timeline,
        entry_search::{EntryBatch, TextMatcher},
        state::{AttemptId, UnitState},
    },
    tape::Seq,
};

/// Maximum bytes and places searched per slice.
const SLICE: (usize, usize) = (4 << 20, 16 << 10);
/// What the reading of a matching row counts for in a slice, in bytes, apart from its size.
const ROW_COST: usize = 32 << 10;
/// Characters of a matching line that are kept.
const MAX_LINE_CHARS: usize = 240;
/// Number of places in the first batch, and in the largest. Places of a batch are read in the order of the source, so
/// small batches find frequent texts sooner, and large ones find rare texts sooner.
const PLACES: (usize, usize) = (16, 1024);

/// A row of an attempt: its unit, its index there, and its id. Of a long line, the part around the text is kept.
fn found_row(
    (unit, attempt, attempt_id): (usize, usize, AttemptId),
    row: usize,
    (place, line): (MatchPlace, String),
    query: &str,
) -> FoundRow {
    let line = around_match(&line, query, MAX_LINE_CHARS / 2);
    FoundRow {
        unit,
        attempt,
        attempt_id,
        row,
        place,
        line: line.chars().take(MAX_LINE_CHARS).collect(),
    }
}

/// A search in progress. After the first match it continues, to count the matches.
#[derive(Debug)]
pub struct TextSearch {
    request: SearchRequest,
    matcher: TextMatcher,
    /// Number of places that were searched, and of all.
    done: (usize, usize),
    batch: PlaceBatch,
    /// Number of places in the next batch.
    next_places: usize,
    /// The matching places, in the order in which they were found.
    found: Vec<usize>,
    /// The rows of a session; `None` until they are searched.
    session: Option<ReadingOrder>,
}

/// Places that are searched in one go, in the direction of the search, with their entries.
#[derive(Debug, Default)]
struct PlaceBatch {
    places: Vec<(usize, PlaceEntries)>,
    entries: EntryBatch,
}

impl PlaceBatch {
    /// The places with an entry that matches.
    fn matches(&self) -> impl Iterator<Item = usize> {
        let is_match = |entries: &PlaceEntries| {
            entries
                .iter()
                .flatten()
                .any(|seq| self.entries.is_match(*seq))
        };
        self.places
            .iter()
            .filter(move |(_, entries)| is_match(entries))
            .map(|(place, _)| *place)
    }
}

/// The entries of a row, or a single entry.
type PlaceEntries = [Option<Seq>; 3];

/// The state of a search after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchProgress {
    Searching,
    /// The first match; the search continues.
    Found(usize),
    /// All matches are known, or so many that counting ended.
    Complete,
}

impl TextSearch {
    /// Starts next to `request.from`.
    ///
    /// # Errors
    /// If the query is too long.
    pub fn new(request: SearchRequest) -> Result<Self, regex::Error> {
        let matcher = TextMatcher::new(&request.query)?;
        Ok(Self {
            request,
            matcher,
            done: (0, 0),
            batch: PlaceBatch::default(),
            next_places: PLACES.0,
            found: Vec::new(),
            session: None,
        })
    }

    pub(crate) fn request(&self) -> &SearchRequest {
        &self.request
    }

    /// True once the first match is found.
    pub(crate) fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// The matches that are known.
    pub(crate) fn into_matches(self) -> PaneMatches {
        let SearchRequest { from, forward, .. } = self.request;
        let (done, len) = self.done;
        let is_complete = done >= len;
        // The places were searched from the one after `from` to the end, and then from the start.
        let after = len - from.min(len.saturating_sub(1)) - usize::from(len > 0);
        let searched = if is_complete || !forward {
            len * usize::from(is_complete)
        } else {
            done.saturating_sub(after)
        };
        let mut places = self.found;
        places.sort_unstable();
        places.truncate(MAX_MATCHES);
        PaneMatches {
            places,
            searched,
            is_complete,
        }
    }

    /// Searches the next slice, of a few megabytes at most, so that keys are not delayed.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn slice(
        &mut self,
        timeline: &mut Timeline,
        cache: &ScreenCache,
    ) -> Result<SearchProgress, EntrySourceError> {
        let is_first = self.found.is_empty();
        let SearchRequest {
            query,
            scope,
            from,
            forward,
        } = &self.request;
        if *scope == SearchScope::Document {
            let document = cache.document().filter(|_| is_first);
            let Some(document) = document else {
                return Ok(SearchProgress::Complete);
            };
            let all = PaneMatches::collect(document.lines.len(), |line| {
                matches(&document.text(line), query)
            });
            let first = nearest(document.lines.len(), *from, *forward, |line| {
                match all.is_complete {
                    true => all.contains(line),
                    false => matches(&document.text(line), query),
                }
            });
            // A document that is not laid out completely may contain more.
            let is_complete = all.is_complete && cache.is_complete();
            self.done = (all.searched, all.searched + usize::from(!is_complete));
            (self.request.from, self.request.forward) = (usize::MAX, true);
            self.found = all.places;
            return Ok(first.map_or(SearchProgress::Complete, SearchProgress::Found));
        }
        let (mut bytes, mut places) = (0, 0);
        while bytes < SLICE.0 && places < SLICE.1 {
            if self.batch.places.is_empty()
                && (self.found.len() > MAX_MATCHES || !self.start_batch(timeline))
            {
                return Ok(SearchProgress::Complete);
            }
            bytes += timeline.search(&self.matcher, &mut self.batch.entries, SLICE.0 - bytes)?;
            if self.batch.entries.is_complete() {
                let batch = std::mem::take(&mut self.batch);
                places += batch.places.len();
                self.done.0 += batch.places.len();
                self.found.extend(batch.matches());
                if let Some(first) = self.found.first().filter(|_| is_first) {
                    return Ok(SearchProgress::Found(*first));
                }
            }
        }
        Ok(SearchProgress::Searching)
    }

    /// Takes the next places. False if all were searched.
    fn start_batch(&mut self, timeline: &Timeline) -> bool {
        let view = timeline.view();
        let (rows, entries) = match self.request.scope {
            SearchScope::Rows(attempt_id) => (view.rows(attempt_id), &[][..]),
            SearchScope::Entries(attempt_id) => (&[][..], view.entries(attempt_id)),
            SearchScope::Session(_) | SearchScope::Page(_) | SearchScope::Document => {
                (&[][..], &[][..])
            }
        };
        if let (SearchScope::Session(first), None) = (self.request.scope, &self.session) {
            let is_it = |unit: &UnitState| unit.attempts.first().is_some_and(|it| it.id == first);
            let unit = view.state.units.iter().position(is_it);
            self.session = unit.map(|unit| ReadingOrder::new(view, unit));
        }
        let session = self.session.as_ref();
        let row_of = |place| match session {
            Some(session) => {
                let address = session.address(place)?;
                view.rows(address.attempt_id).get(address.row)
            }
            None => rows.get(place),
        };
        let len = rows
            .len()
            .max(entries.len())
            .max(session.map_or(0, ReadingOrder::len));
        // Rows that are added meanwhile are not searched: the order of the others would change.
        let len = if self.done.1 == 0 {
            len
        } else {
            len.min(self.done.1)
        };
        self.done.1 = len;
        let from = self.request.from.min(len.saturating_sub(1));
        let end = len.min(self.done.0 + self.next_places);
        let places = (self.done.0..end).map(|done| {
            let place = if self.request.forward {
                (from + done + 1) % len
            } else {
                (from + len - done - 1) % len
            };
            let seqs = match row_of(place) {
                Some(row) => view.row_entries(row),
                None => [
                    entries.get(place).map(|seq| Seq(u64::from(*seq))),
                    None,
                    None,
                ],
            };
            (place, seqs)
        });
        let places: Vec<_> = places.collect();
        let entries = EntryBatch::new(
            places
                .iter()
                .flat_map(|(_, seqs)| seqs)
                .flatten()
                .copied()
                .collect(),
        );
        self.batch = PlaceBatch { places, entries };
        self.next_places = (self.next_places * 2).min(PLACES.1);
        !self.batch.places.is_empty()
    }
}

/// A search of the actions of all attempts in progress.
#[derive(Debug)]
pub(crate) struct RunSearch {
    query: String,
    matcher: TextMatcher,
    /// The attempts that are not searched yet, the next one last: its unit, its index there, and its id.
    attempts: Vec<(usize, usize, AttemptId)>,
    /// Number of all attempts.
    all: usize,
    /// Number of rows of the current attempt that were searched.
    rows: usize,
    batch: PlaceBatch,
    /// Rows of the current attempt with a matching entry, and those entries. The next row is first.
    candidates: VecDeque<(usize, Vec<Seq>)>,
    /// Matching entries of rows that do not show the text themselves.
    unexplained: VecDeque<(usize, Seq)>,
    /// Matching entries of the current attempt whose text a row shows.
    explained: HashSet<Seq>,
}

impl RunSearch {
    /// Starts with the first unit.
    ///
    /// # Errors
    /// If the query is too long.
    pub(crate) fn new(query: &str, timeline: &Timeline) -> Result<Self, regex::Error> {
        let matcher = TextMatcher::new(query)?;
        let units = timeline.view().state.units.iter().enumerate();
        let mut attempts: Vec<_> = units
            .flat_map(|(unit, known)| {
                known
                    .attempts
                    .iter()
                    .enumerate()
                    .map(move |(index, it)| (unit, index, it.id))
            })
            .collect();
        attempts.reverse();
        let all = attempts.len();
        Ok(Self {
            query: query.to_owned(),
            matcher,
            attempts,
            all,
            rows: 0,
            batch: PlaceBatch::default(),
            candidates: VecDeque::new(),
            unexplained: VecDeque::new(),
            explained: HashSet::new(),
        })
    }

    /// Number of attempts that were searched, and of all.
    pub(crate) fn searched(&self) -> (usize, usize) {
        (self.all - self.attempts.len(), self.all)
    }

    /// Searches the next slice, of a few megabytes at most. Returns the matching rows, by attempt.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(crate) fn slice(
        &mut self,
        timeline: &mut Timeline,
    ) -> Result<Vec<FoundRow>, EntryReadError> {
        let (mut bytes, mut places, mut found) = (0, 0, Vec::new());
        while bytes < SLICE.0 && places < SLICE.1 {
            let Some(attempt) = self.attempts.last().copied() else {
                break;
            };
            let (.., attempt_id) = attempt;
            if let Some((row, seqs)) = self.candidates.pop_front() {
                let Some(shown) = timeline.view().rows(attempt_id).get(row).copied() else {
                    continue;
                };
                bytes += ROW_COST;
                match load::row_match(timeline, &shown, &self.query, &mut bytes)? {
                    Some(shown) => {
                        self.explained.extend(seqs);
                        found.push(found_row(attempt, row, shown, &self.query));
                    }
                    None => self
                        .unexplained
                        .extend(seqs.into_iter().map(|seq| (row, seq))),
                }
                continue;
            }
            if !self.batch.places.is_empty() || self.start_batch(timeline, attempt_id) {
                bytes +=
                    timeline.search(&self.matcher, &mut self.batch.entries, SLICE.0 - bytes)?;
                if self.batch.entries.is_complete() {
                    let batch = std::mem::take(&mut self.batch);
                    places += batch.places.len();
                    self.rows += batch.places.len();
                    let entries = &batch.entries;
                    let matching = |seqs: &PlaceEntries| -> Vec<Seq> {
                        let seqs = seqs.iter().flatten().copied();
                        seqs.filter(|seq| entries.is_match(*seq)).collect()
                    };
                    let rows = batch.places.iter();
                    let rows = rows.map(|(row, seqs)| (*row, matching(seqs)));
                    self.candidates
                        .extend(rows.filter(|(_, seqs)| !seqs.is_empty()));
                }
                continue;
            }
            // Several rows may have a common entry, of which one shows the text.
            if let Some((row, seq)) = self.unexplained.pop_front() {
                if self.explained.insert(seq) {
                    bytes += ROW_COST;
                    let hidden = load::entry_match(timeline, seq, &self.query, &mut bytes)?;
                    found.push(found_row(attempt, row, hidden, &self.query));
                }
                continue;
            }
            self.attempts.pop();
            self.explained.clear();
            (self.rows, places) = (0, places + 1);
        }
        Ok(found)
    }

    /// Starts with the next rows of an attempt. False if all were searched.
    fn start_batch(&mut self, timeline: &Timeline, attempt_id: AttemptId) -> bool {
        let view = timeline.view();
        let rows = view
            .rows(attempt_id)
            .iter()
            .enumerate()
            .skip(self.rows)
            .take(PLACES.1);
        let places: Vec<(usize, PlaceEntries)> = rows
            .map(|(place, row)| (place, view.row_entries(row)))
            .collect();
        let entries = EntryBatch::new(
            places
                .iter()
                .flat_map(|(_, seqs)| seqs)
                .flatten()
                .copied()
                .collect(),
        );
        self.batch = PlaceBatch { places, entries };
        !self.batch.places.is_empty()
    }
}
