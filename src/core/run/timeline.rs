//! Folds a source up to a cursor that moves forward and back.
//!
//! Seeking back restores the nearest checkpoint and folds forward from it; nothing is undone. Checkpoints contain
//! counts only; rows are kept and shown up to the cursor.

use std::ops::Range;

use super::{
    EntryRef, EntrySource, EntrySourceError, Fold, PollStatus, SinkEvent,
    activity_index::ActivityIndex,
    entry_search::{EntryBatch, TextMatcher},
    state::{RunState, RunView},
};
use crate::tape::{Millis, Seq, shared_value};

/// Initial number of bytes between checkpoints. It is doubled whenever there are more than [`MAX_CHECKPOINTS`].
const INITIAL_CHECKPOINT_SPACING: u64 = 4 << 20;

/// Limits the checkpoints of a long tape to a few MiB.
const MAX_CHECKPOINTS: usize = 48;

/// Maximum size of a unit or an attempt in a checkpoint, in bytes.
const PART_BYTES: u64 = 1 << 10;

/// Number of bytes that are folded per step while seeking.
const SEEK_SLICE: usize = 256 << 10;

/// A source and its run view at the cursor.
pub struct Timeline {
    source: Box<dyn EntrySource>,
    fold: Fold,
    view: RunView,
    activity: ActivityIndex,
    known_entries: u64,
    ended: bool,
    finished: bool,
    /// The source is a prefix of a longer tape, so open rows at its end are not closed.
    is_open_ended: bool,
    checkpoints: Vec<FoldCheckpoint>,
    spacing: u64,
    /// The latest moment that was read, where reading continues. Set while the cursor is before it.
    frontier: Option<Box<LatestFold>>,
    source_position: SourcePosition,
}

/// The position of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourcePosition {
    Cursor,
    LatestFold,
    Elsewhere,
}

struct FoldCheckpoint {
    state: RunState,
    fold: Fold,
    position: u64,
}

/// The latest moment that was folded, while an earlier one is shown.
struct LatestFold {
    state: RunState,
    fold: Fold,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// After this number of entries.
    Entries(u64),
    /// After all entries up to this time.
    Time(Millis),
}

impl SeekTarget {
    /// True if the whole of `state` happened up to the moment.
    fn includes_state(self, state: &RunState) -> bool {
        match self {
            Self::Entries(entries) => state.entries <= entries,
            Self::Time(at) => state.entries == 0 || state.last_entry_at <= at,
        }
    }

    /// True if the entry happened up to the moment.
    pub(crate) fn includes_entry(self, entry: &EntryRef<'_>) -> bool {
        match self {
            Self::Entries(entries) => entry.seq.0 < entries,
            Self::Time(at) => entry.at <= at,
        }
    }
}

/// Inspects entries while they are folded and decides where to stop.
pub trait StopCondition {
    /// True to stop before this entry, which is then not folded.
    fn stops_before(&mut self, _entry: &EntryRef<'_>) -> bool {
        false
    }

    /// Receives each effect of a folded entry.
    fn observe(&mut self, _emitted: &SinkEvent<'_>) {}

    /// True to stop after the entry that was just folded into `view`.
    fn stops_after(&mut self, _entry: &EntryRef<'_>, _view: &RunView) -> bool {
        false
    }
}

/// The result of [`Timeline::advance_until`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvanceStatus {
    /// The byte limit was reached; more can be read immediately.
    More,
    /// The condition stopped it, with the time of the entry that must not be folded, if there is one.
    Stopped(Option<Millis>),
    /// No more entries now; the source may grow.
    Waiting,
    End,
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline")
            .field("entries", &self.view.state.entries)
            .finish_non_exhaustive()
    }
}

impl Timeline {
    /// Creates a timeline with the cursor at the beginning of `source`.
    pub fn new(source: Box<dyn EntrySource>) -> Self {
        let fold = Fold::new(source.info().fallback_unit.clone());
        let start = FoldCheckpoint {
            state: RunState::default(),
            fold: fold.clone(),
            position: 0,
        };
        Self {
            source,
            fold,
            view: RunView::default(),
            activity: ActivityIndex::default(),
            known_entries: 0,
            ended: false,
            finished: false,
            is_open_ended: false,
            checkpoints: vec![start],
            spacing: INITIAL_CHECKPOINT_SPACING,
            frontier: None,
            source_position: SourcePosition::Cursor,
        }
    }

    /// Creates a timeline that is usually only played forward. It keeps no checkpoints, so seeking back folds from the
    /// beginning.
    pub fn new_forward_only(source: Box<dyn EntrySource>) -> Self {
        Self {
            spacing: u64::MAX,
            ..Self::new(source)
        }
    }

    /// Sets whether the run continues after the end of the source; then open rows at the end stay open.
    #[must_use]
    pub fn with_open_end(mut self, is_active: bool) -> Self {
        self.is_open_ended = is_active;
        self
    }

    /// True if the run continues after the end of the source.
    pub fn is_open_ended(&self) -> bool {
        self.is_open_ended
    }

    /// The run view at the cursor.
    pub fn view(&self) -> &RunView {
        &self.view
    }

    /// The activity index of everything that has been read.
    pub fn activity(&self) -> &ActivityIndex {
        &self.activity
    }

    /// The state at the latest moment that has been read. It differs from that of the cursor while the cursor is in the
    /// past.
    pub fn latest_state(&self) -> &RunState {
        self.frontier
            .as_ref()
            .map_or(&self.view.state, |frontier| &frontier.state)
    }

    /// Replaces provisional entries by those of the whole source once it is known, and folds up to the moment that was
    /// shown. Returns the view before and the new numbers of its entries; `None` if nothing has changed.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn settle(&mut self) -> Result<Option<(RunView, Vec<Seq>)>, EntrySourceError> {
        let Some(numbers) = self.source.settle() else {
            return Ok(None);
        };
        let before = std::mem::take(&mut self.view);
        self.fold = Fold::new(self.source.info().fallback_unit.clone());
        self.activity = ActivityIndex::default();
        (self.known_entries, self.frontier) = (0, None);
        (self.ended, self.finished) = (false, false);
        self.source_position = SourcePosition::Cursor;
        self.checkpoints.truncate(1);
        let last = before.state.entries.checked_sub(1);
        let last = last.and_then(|last| numbers.get(usize::try_from(last).ok()?));
        self.seek(last.map_or(0, |last| last.0 + 1))?;
        Ok(Some((before, numbers)))
    }

    /// True while the meaning of the entries is not certain yet. See [`EntrySource::settle`].
    pub fn is_provisional(&self) -> bool {
        self.source.is_provisional()
    }

    pub fn source(&self) -> &dyn EntrySource {
        self.source.as_ref()
    }

    /// Number of entries that are known so far, on both sides of the cursor.
    pub fn known_entries(&self) -> u64 {
        self.known_entries
    }

    /// Counts the entries in about `max_bytes` more of the source, ahead of the fold. See [`EntrySource::scan_ahead`].
    pub fn scan_ahead(&mut self, max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        self.source.scan_ahead(max_bytes)
    }

    /// True if the whole source has been read, wherever the cursor is.
    pub fn is_fully_read(&self) -> bool {
        self.ended
    }

    /// True if everything up to `moment` has been read, so that seeking to it is fast.
    pub fn has_read(&self, moment: SeekTarget) -> bool {
        self.ended
            || match moment {
                SeekTarget::Entries(entries) => entries <= self.known_entries,
                SeekTarget::Time(at) => at < self.activity.end_time(),
            }
    }

    /// Folds about `max_bytes` more of the source. At its end, open rows are closed.
    pub fn advance(
        &mut self,
        max_bytes: usize,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        self.advance_observed(max_bytes, &mut |_| {}, emit)
    }

    /// Like [`advance`](Self::advance), and passes each entry to `observe` before it is folded.
    pub fn advance_observed(
        &mut self,
        max_bytes: usize,
        observe: &mut dyn FnMut(&EntryRef<'_>),
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        if self.finished {
            return Ok(PollStatus::End);
        }
        self.rewind_to_cursor()?;
        let (fold, view, activity) = (&mut self.fold, &mut self.view, &mut self.activity);
        let progress = self.source.poll(max_bytes, &mut |entry: EntryRef<'_>| {
            observe(&entry);
            fold.apply(view, &entry, emit);
            activity.record(entry.seq, view.state.last_entry_at, view.last_change);
        });
        self.after_advance();
        let progress = progress?;
        if progress == PollStatus::End {
            self.ended = true;
            self.finish(emit);
        } else {
            self.save_checkpoint();
        }
        Ok(progress)
    }

    /// Like [`advance`](Self::advance), until `condition` stops it.
    pub fn advance_until(
        &mut self,
        max_bytes: usize,
        condition: &mut dyn StopCondition,
    ) -> Result<AdvanceStatus, EntrySourceError> {
        if self.finished {
            return Ok(AdvanceStatus::End);
        }
        self.rewind_to_cursor()?;
        let (fold, view, activity) = (&mut self.fold, &mut self.view, &mut self.activity);
        let (mut stopped, mut overshot) = (None, false);
        let progress = self.source.poll(max_bytes, &mut |entry: EntryRef<'_>| {
            if stopped.is_some() {
                overshot = true;
            } else if condition.stops_before(&entry) {
                (stopped, overshot) = (Some(Some(entry.at)), true);
            } else {
                fold.apply(view, &entry, &mut |emitted| condition.observe(&emitted));
                activity.record(entry.seq, view.state.last_entry_at, view.last_change);
                if condition.stops_after(&entry, view) {
                    stopped = Some(None);
                }
            }
        });
        self.after_advance();
        let progress = progress?;
        if overshot {
            self.source_position = SourcePosition::Elsewhere;
            return Ok(AdvanceStatus::Stopped(stopped.flatten()));
        }
        match progress {
            PollStatus::End => {
                self.ended = true;
                self.finish(&mut |_| {});
            }
            PollStatus::More | PollStatus::Waiting => self.save_checkpoint(),
        }
        Ok(match (stopped, progress) {
            (Some(next), _) => AdvanceStatus::Stopped(next),
            (None, PollStatus::More) => AdvanceStatus::More,
            (None, PollStatus::Waiting) => AdvanceStatus::Waiting,
            (None, PollStatus::End) => AdvanceStatus::End,
        })
    }

    /// Advances the clock while no entry arrives, or moves it back: to `shown` at the cursor, and to `present` at the
    /// latest moment that has been read. Returns true if a unit changed.
    pub fn advance_clock(
        &mut self,
        shown: Millis,
        present: Millis,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) -> bool {
        let mut changed = self.fold.advance_clock(&mut self.view, shown, emit);
        if self.frontier.is_some() {
            self.swap_with_frontier();
            changed |= self
                .fold
                .advance_clock(&mut self.view, present, &mut |_| {});
            self.swap_with_frontier();
        }
        changed
    }

    /// Returns the earliest time at which another unit becomes silent, unless an entry arrives.
    pub fn next_silence_at(&self) -> Option<Millis> {
        self.fold.next_silence_at()
    }

    /// Reads about `max_bytes` beyond the known entries without moving the cursor, so that the activity index is
    /// complete and any moment is found quickly while an early one is shown.
    pub fn prefetch(&mut self, max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        if self.ended {
            return Ok(PollStatus::End);
        }
        if self.frontier.is_none() && self.view.state.entries < self.known_entries {
            // Moving back to the cursor stores the frontier.
            let here = self.view.state.entries;
            self.seek(self.known_entries)?;
            self.seek(here)?;
        }
        if self.frontier.is_none() {
            let frontier = LatestFold {
                state: self.view.state.clone(),
                fold: self.fold.clone(),
            };
            self.frontier = Some(Box::new(frontier));
        }
        if self.source_position != SourcePosition::LatestFold {
            self.source.rewind(Seq(self.known_entries))?;
            self.source_position = SourcePosition::LatestFold;
        }
        let touch = self.view.last_change;
        self.swap_with_frontier();
        let (fold, view, activity) = (&mut self.fold, &mut self.view, &mut self.activity);
        let progress = self.source.poll(max_bytes, &mut |entry: EntryRef<'_>| {
            fold.apply(view, &entry, &mut |_| {});
            activity.record(entry.seq, view.state.last_entry_at, view.last_change);
        });
        self.known_entries = self.known_entries.max(self.view.state.entries);
        self.save_checkpoint();
        self.swap_with_frontier();
        self.view.last_change = touch;
        if matches!(progress, Ok(PollStatus::End)) {
            self.ended = true;
        }
        progress
    }

    /// Swaps the moment at the cursor with the frontier. Both share the rows.
    fn swap_with_frontier(&mut self) {
        if let Some(frontier) = &mut self.frontier {
            std::mem::swap(&mut self.view.state, &mut frontier.state);
            std::mem::swap(&mut self.fold, &mut frontier.fold);
        }
    }

    /// Moves the source back to the cursor.
    fn rewind_to_cursor(&mut self) -> Result<(), EntrySourceError> {
        if self.source_position != SourcePosition::Cursor {
            self.source.rewind(Seq(self.view.state.entries))?;
            self.source_position = SourcePosition::Cursor;
        }
        Ok(())
    }

    /// Updates checkpoints and activity after the cursor has moved forward.
    fn after_advance(&mut self) {
        self.known_entries = self.known_entries.max(self.view.state.entries);
        if self.view.state.entries >= self.known_entries {
            self.frontier = None;
        }
    }

    /// Moves the cursor so that exactly `entries` entries are folded, or all entries if there are fewer.
    pub fn seek(&mut self, entries: u64) -> Result<(), EntrySourceError> {
        self.seek_to(SeekTarget::Entries(entries))
    }

    /// Moves the cursor to `moment`, or to the end of the source if it is earlier.
    pub fn seek_to(&mut self, moment: SeekTarget) -> Result<(), EntrySourceError> {
        let current = self.view.state.entries;
        let nearest = self
            .checkpoints
            .iter()
            .rposition(|checkpoint| moment.includes_state(&checkpoint.state))
            .unwrap_or(0);
        let checkpoint = &self.checkpoints[nearest];
        if !moment.includes_state(&self.view.state)
            || (moment == SeekTarget::Entries(current)
                && self.finished
                && current < self.known_entries)
            || checkpoint.state.entries > current
        {
            let state = std::mem::replace(&mut self.view.state, checkpoint.state.clone());
            let fold = std::mem::replace(&mut self.fold, checkpoint.fold.clone());
            if state.entries == self.known_entries {
                self.frontier = Some(Box::new(LatestFold { state, fold }));
            }
            self.finished = false;
            self.source_position = SourcePosition::Elsewhere;
        }
        let mut last = None;
        while moment != SeekTarget::Entries(self.view.state.entries) {
            self.rewind_to_cursor()?;
            let (fold, view, activity) = (&mut self.fold, &mut self.view, &mut self.activity);
            let mut overshot = false;
            let progress = self.source.poll(SEEK_SLICE, &mut |entry: EntryRef<'_>| {
                overshot |= !moment.includes_entry(&entry);
                if !overshot {
                    fold.apply(view, &entry, &mut |_| {});
                    activity.record(entry.seq, view.state.last_entry_at, view.last_change);
                }
            });
            self.after_advance();
            let progress = progress?;
            last = Some(progress);
            if overshot {
                self.source_position = SourcePosition::Elsewhere;
                last = None;
                break;
            }
            self.save_checkpoint();
            if progress != PollStatus::More {
                break;
            }
        }
        if last == Some(PollStatus::End)
            || (self.ended && self.view.state.entries == self.known_entries)
        {
            self.ended = true;
            self.finish(&mut |_| {});
        }
        Ok(())
    }

    /// Moves the cursor back to the latest checkpoint for which `is_early` returns true. It folds nothing; the caller
    /// advances from there in slices.
    pub fn seek_to_checkpoint(
        &mut self,
        is_early: impl Fn(&RunState) -> bool,
    ) -> Result<(), EntrySourceError> {
        let here = self.view.state.entries;
        let early = |kept: &FoldCheckpoint| kept.state.entries <= here && is_early(&kept.state);
        let to = self
            .checkpoints
            .iter()
            .rev()
            .find(|kept| early(kept))
            .map_or(0, |kept| kept.state.entries);
        self.seek(to)
    }

    /// Reads one entry again. A value that an earlier entry contains is filled in.
    pub fn read(
        &mut self,
        seq: Seq,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<bool, EntrySourceError> {
        let mut earlier = None;
        let found = self.source.read(
            seq,
            &mut |entry| match shared_value::reference(&entry.body) {
                Some(first) if first < seq => earlier = Some(first),
                _ => sink(entry),
            },
        )?;
        let Some(earlier) = earlier else {
            return Ok(found);
        };
        let mut contains = None;
        if self
            .source
            .read(earlier, &mut |entry| {
                contains = Some(entry.body.bytes().to_vec())
            })
            .is_err()
        {
            // The entry itself can be read.
            contains = None;
        }
        self.source.read(seq, &mut |entry| match contains
            .as_ref()
            .and_then(|earlier| shared_value::resolve(&entry.body, earlier))
        {
            Some(json) => {
                let body = shared_value::with_json(&entry.body, &json);
                sink(EntryRef {
                    body,
                    ..entry.clone()
                });
            }
            None => sink(entry),
        })
    }

    /// Reads the beginning of one entry again. See [`EntrySource::read_head`].
    pub fn read_head(
        &mut self,
        seq: Seq,
        most: usize,
        sink: &mut dyn FnMut(EntryRef<'_>, u64),
    ) -> Result<bool, EntrySourceError> {
        let mut is_incomplete = false;
        let found = self.source.read_head(seq, most, &mut |entry, size| {
            // A body that is cut is not a reference.
            match shared_value::reference(&entry.body).is_some_and(|first| first < seq) {
                true => is_incomplete = true,
                false => sink(entry, size),
            }
        })?;
        match is_incomplete {
            true => self.read(seq, &mut |entry| {
                let size = entry.body.bytes().len() as u64;
                sink(entry, size);
            }),
            false => Ok(found),
        }
    }

    /// The first entry at or after a time, among those that were read; their number if all are earlier. It reads the
    /// times of a few entries.
    pub fn first_entry_at(&mut self, at: Millis) -> Result<Seq, EntrySourceError> {
        let Range { mut start, mut end } = self.activity.entries_around(at);
        while start < end {
            let (middle, mut is_earlier) = (start.midpoint(end), false);
            self.source.read_head(Seq(middle), 0, &mut |entry, _| {
                is_earlier = entry.at < at;
            })?;
            (start, end) = match is_earlier {
                true => (middle + 1, end),
                false => (start, middle),
            };
        }
        Ok(Seq(start))
    }

    /// Searches the content of the next entries of `batch`. See [`EntrySource::search`].
    pub fn search(
        &mut self,
        text: &TextMatcher,
        batch: &mut EntryBatch,
        max_bytes: usize,
    ) -> Result<usize, EntrySourceError> {
        self.source.search(text, batch, max_bytes)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(SinkEvent<'_>)) {
        if !self.finished {
            self.finished = true;
            if !self.is_open_ended {
                self.fold.finish(&mut self.view, emit);
            }
        }
    }

    fn save_checkpoint(&mut self) {
        let position = self.source.position().0;
        let Some(last) = self.checkpoints.last() else {
            return;
        };
        let parts = self.view.state.units.len() + self.view.attempts.len();
        // Checkpoints must not use more memory than the source has bytes.
        let spacing = self.spacing.max(PART_BYTES.saturating_mul(parts as u64));
        if position < last.position.saturating_add(spacing)
            || self.view.state.entries <= last.state.entries
        {
            return;
        }
        self.checkpoints.push(FoldCheckpoint {
            state: self.view.state.clone(),
            fold: self.fold.clone(),
            position,
        });
        if self.checkpoints.len() > MAX_CHECKPOINTS {
            self.spacing *= 2;
            let mut index = 0;
            self.checkpoints.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }
}

#[cfg(test)]
mod tests;
