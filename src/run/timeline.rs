//! A source, folded up to a cursor that moves both ways.
//!
//! Going back restores the nearest checkpoint and folds forward again: there is no undo anywhere. Checkpoints hold
//! counts only; rows stay where they are and are seen up to the cursor.

use super::{
    EntryRef, EntrySource, EntrySourceError, Fold, FoldEvent, PollStatus,
    activity_index::ActivityIndex,
    state::{RunState, RunView},
};
use crate::tape::{Millis, Seq};

/// Bytes between the first checkpoints. Doubled whenever there are more than [`MAX_CHECKPOINTS`].
const INITIAL_CHECKPOINT_SPACING: u64 = 4 << 20;

/// Keeps a long tape's checkpoints within a few MiB.
const MAX_CHECKPOINTS: usize = 48;

/// What a unit or an attempt takes in a checkpoint at most, in bytes.
const PART_BYTES: u64 = 1 << 10;

/// Bytes folded at a time while seeking.
const SEEK_SLICE: usize = 256 << 10;

/// A source and the story it tells up to the cursor.
pub struct Timeline {
    source: Box<dyn EntrySource>,
    fold: Fold,
    view: RunView,
    activity: ActivityIndex,
    known_entries: u64,
    ended: bool,
    finished: bool,
    /// The record goes on after the end of the source, so nothing that is open there is closed.
    is_open_ended: bool,
    checkpoints: Vec<Checkpoint>,
    spacing: u64,
    /// The last moment that was read, where reading goes on, while the cursor stands before it.
    frontier: Option<Box<Frontier>>,
    source_position: SourcePosition,
}

/// Where the source stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourcePosition {
    Cursor,
    Frontier,
    Elsewhere,
}

struct Checkpoint {
    state: RunState,
    fold: Fold,
    position: u64,
}

/// The last moment that was folded, while an earlier one is shown.
struct Frontier {
    state: RunState,
    fold: Fold,
}

/// A moment of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// After so many entries.
    Entries(u64),
    /// After everything that happened up to a time.
    Time(Millis),
}

impl SeekTarget {
    /// True if all of `state` happened up to the moment.
    fn includes_state(self, state: &RunState) -> bool {
        match self {
            Self::Entries(entries) => state.entries <= entries,
            Self::Time(at) => state.entries == 0 || state.last_entry_at <= at,
        }
    }

    /// True if the entry happened up to the moment.
    pub fn includes_entry(self, arrived: &EntryRef<'_>) -> bool {
        match self {
            Self::Entries(entries) => arrived.seq.0 < entries,
            Self::Time(at) => arrived.at <= at,
        }
    }
}

/// Looks at entries while they are folded, and says where to stop.
pub trait StopCondition {
    /// True for an entry that is not to be folded any more.
    fn stops_before(&mut self, _arrived: &EntryRef<'_>) -> bool {
        false
    }

    /// What an entry led to.
    fn observe(&mut self, _emitted: &FoldEvent<'_>) {}

    /// True if time stops behind the entry that has just been folded into `story`.
    fn stops_after(&mut self, _arrived: &EntryRef<'_>, _story: &RunView) -> bool {
        false
    }
}

/// How far a guided advance went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvanceStatus {
    /// As far as it may at once.
    More,
    /// The guide stopped it; the time of the entry that it must not fold, if there is one.
    Stopped(Option<Millis>),
    /// There is nothing more now.
    Waiting,
    /// There will be nothing more.
    End,
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline").field("entries", &self.view.state.entries).finish_non_exhaustive()
    }
}

impl Timeline {
    /// A timeline at the beginning of `source`.
    pub fn new(source: Box<dyn EntrySource>) -> Self {
        let fold = Fold::new(source.info().fallback_unit.clone());
        let start = Checkpoint { state: RunState::default(), fold: fold.clone(), position: 0 };
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

    /// For a source that is only played forward: keeps no checkpoints, so that going back folds from the beginning.
    pub fn new_forward_only(source: Box<dyn EntrySource>) -> Self {
        Self { spacing: u64::MAX, ..Self::new(source) }
    }

    /// For the record of a run that goes on: what is open at its end stays open.
    #[must_use]
    pub fn with_open_end(mut self, goes_on: bool) -> Self {
        self.is_open_ended = goes_on;
        self
    }

    /// True if the record goes on after the end of the source.
    pub fn is_open_ended(&self) -> bool {
        self.is_open_ended
    }

    /// The story at the cursor.
    pub fn view(&self) -> &RunView {
        &self.view
    }

    /// What happened when, as far as it has been read.
    pub fn activity(&self) -> &ActivityIndex {
        &self.activity
    }

    /// The state at the last moment that has been read: that of the cursor, unless it stands in the past.
    pub fn latest_state(&self) -> &RunState {
        self.frontier.as_ref().map_or(&self.view.state, |frontier| &frontier.state)
    }

    /// The source.
    pub fn source(&self) -> &dyn EntrySource {
        self.source.as_ref()
    }

    /// Entries that have been read so far, at or after the cursor.
    pub fn known_entries(&self) -> u64 {
        self.known_entries
    }

    /// Counts the entries in about `max_bytes` more of the source, ahead of the fold. See [`EntrySource::scan_ahead`].
    pub fn scan_ahead(&mut self, max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        self.source.scan_ahead(max_bytes)
    }

    /// True when all of the source has been read, wherever the cursor stands.
    pub fn is_fully_read(&self) -> bool {
        self.ended
    }

    /// True when the source has ended and the cursor stands at its end.
    pub fn is_at_end(&self) -> bool {
        self.finished
    }

    /// True when everything up to `moment` has been read, so that seeking it takes a moment only.
    pub fn has_read(&self, moment: SeekTarget) -> bool {
        self.ended
            || match moment {
                SeekTarget::Entries(entries) => entries <= self.known_entries,
                SeekTarget::Time(at) => at < self.activity.end_time(),
            }
    }

    /// Folds about `max_bytes` more of the source. At its end, what is still open is closed.
    pub fn advance(
        &mut self,
        max_bytes: usize,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        if self.finished {
            return Ok(PollStatus::End);
        }
        self.rewind_to_cursor()?;
        let (fold, story, chronicle) = (&mut self.fold, &mut self.view, &mut self.activity);
        let progress = self.source.poll(max_bytes, &mut |arrived: EntryRef<'_>| {
            fold.apply(story, &arrived, emit);
            chronicle.record(arrived.seq, story.state.last_entry_at, story.last_change);
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

    /// As [`advance`](Self::advance), as far as `guide` lets it.
    pub fn advance_until(
        &mut self,
        max_bytes: usize,
        guide: &mut dyn StopCondition,
    ) -> Result<AdvanceStatus, EntrySourceError> {
        if self.finished {
            return Ok(AdvanceStatus::End);
        }
        self.rewind_to_cursor()?;
        let (fold, story, chronicle) = (&mut self.fold, &mut self.view, &mut self.activity);
        let (mut stopped, mut overshot) = (None, false);
        let progress = self.source.poll(max_bytes, &mut |arrived: EntryRef<'_>| {
            if stopped.is_some() {
                overshot = true;
            } else if guide.stops_before(&arrived) {
                (stopped, overshot) = (Some(Some(arrived.at)), true);
            } else {
                fold.apply(story, &arrived, &mut |emitted| guide.observe(&emitted));
                chronicle.record(arrived.seq, story.state.last_entry_at, story.last_change);
                if guide.stops_after(&arrived, story) {
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

    /// Lets time pass while no entry comes, or goes back in such a time: to `shown` where the cursor stands, and to
    /// `present` at the last moment that has been read. True if that changed a unit.
    pub fn advance_clock(&mut self, shown: Millis, present: Millis, emit: &mut dyn FnMut(FoldEvent<'_>)) -> bool {
        let mut changed = self.fold.advance_clock(&mut self.view, shown, emit);
        if self.frontier.is_some() {
            self.swap_with_frontier();
            changed |= self.fold.advance_clock(&mut self.view, present, &mut |_| {});
            self.swap_with_frontier();
        }
        changed
    }

    /// When the next unit becomes silent at the earliest, unless an entry comes.
    pub fn next_silence_at(&self) -> Option<Millis> {
        self.fold.next_silence_at()
    }

    /// Reads about `max_bytes` beyond what is known, and leaves the cursor where it stands: what happened when is soon
    /// told, and any moment soon found, while an early one is shown.
    pub fn prefetch(&mut self, max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        if self.ended {
            return Ok(PollStatus::End);
        }
        if self.frontier.is_none() && self.view.state.entries < self.known_entries {
            // Going back from there leaves the frontier behind.
            let here = self.view.state.entries;
            self.seek(self.known_entries)?;
            self.seek(here)?;
        }
        if self.frontier.is_none() {
            let frontier = Frontier { state: self.view.state.clone(), fold: self.fold.clone() };
            self.frontier = Some(Box::new(frontier));
        }
        if self.source_position != SourcePosition::Frontier {
            self.source.rewind(Seq(self.known_entries))?;
            self.source_position = SourcePosition::Frontier;
        }
        let touch = self.view.last_change;
        self.swap_with_frontier();
        let (fold, story, chronicle) = (&mut self.fold, &mut self.view, &mut self.activity);
        let progress = self.source.poll(max_bytes, &mut |arrived: EntryRef<'_>| {
            fold.apply(story, &arrived, &mut |_| {});
            chronicle.record(arrived.seq, story.state.last_entry_at, story.last_change);
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

    /// Exchanges the moment of the cursor for that of the frontier, and back. Rows are shared by both.
    fn swap_with_frontier(&mut self) {
        if let Some(frontier) = &mut self.frontier {
            std::mem::swap(&mut self.view.state, &mut frontier.state);
            std::mem::swap(&mut self.fold, &mut frontier.fold);
        }
    }

    /// Brings the source back to the cursor.
    fn rewind_to_cursor(&mut self) -> Result<(), EntrySourceError> {
        if self.source_position != SourcePosition::Cursor {
            self.source.rewind(Seq(self.view.state.entries))?;
            self.source_position = SourcePosition::Cursor;
        }
        Ok(())
    }

    /// The cursor has moved on.
    fn after_advance(&mut self) {
        self.known_entries = self.known_entries.max(self.view.state.entries);
        if self.view.state.entries >= self.known_entries {
            self.frontier = None;
        }
    }

    /// Moves the cursor so that exactly `entries` entries are folded, or as many as there are.
    pub fn seek(&mut self, entries: u64) -> Result<(), EntrySourceError> {
        self.seek_to(SeekTarget::Entries(entries))
    }

    /// Moves the cursor to `moment`, or as far as there is anything.
    pub fn seek_to(&mut self, moment: SeekTarget) -> Result<(), EntrySourceError> {
        let current = self.view.state.entries;
        let nearest =
            self.checkpoints.iter().rposition(|checkpoint| moment.includes_state(&checkpoint.state)).unwrap_or(0);
        let checkpoint = &self.checkpoints[nearest];
        if !moment.includes_state(&self.view.state)
            || (moment == SeekTarget::Entries(current) && self.finished && current < self.known_entries)
            || checkpoint.state.entries > current
        {
            let state = std::mem::replace(&mut self.view.state, checkpoint.state.clone());
            let fold = std::mem::replace(&mut self.fold, checkpoint.fold.clone());
            if state.entries == self.known_entries {
                self.frontier = Some(Box::new(Frontier { state, fold }));
            }
            self.finished = false;
            self.source_position = SourcePosition::Elsewhere;
        }
        let mut last = None;
        while moment != SeekTarget::Entries(self.view.state.entries) {
            self.rewind_to_cursor()?;
            let (fold, story, chronicle) = (&mut self.fold, &mut self.view, &mut self.activity);
            let mut overshot = false;
            let progress = self.source.poll(SEEK_SLICE, &mut |arrived: EntryRef<'_>| {
                overshot |= !moment.includes_entry(&arrived);
                if !overshot {
                    fold.apply(story, &arrived, &mut |_| {});
                    chronicle.record(arrived.seq, story.state.last_entry_at, story.last_change);
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
        if last == Some(PollStatus::End) || (self.ended && self.view.state.entries == self.known_entries) {
            self.ended = true;
            self.finish(&mut |_| {});
        }
        Ok(())
    }

    /// Moves the cursor back to the last moment that is kept at which `is_early` holds: from there on, later ones are found
    /// by going forward, a slice at a time. Folds nothing.
    pub fn seek_to_checkpoint(&mut self, is_early: impl Fn(&RunState) -> bool) -> Result<(), EntrySourceError> {
        let here = self.view.state.entries;
        let early = |kept: &Checkpoint| kept.state.entries <= here && is_early(&kept.state);
        let to = self.checkpoints.iter().rev().find(|kept| early(kept)).map_or(0, |kept| kept.state.entries);
        self.seek(to)
    }

    /// Reads one entry again.
    pub fn read(&mut self, seq: Seq, sink: &mut dyn FnMut(EntryRef<'_>)) -> Result<bool, EntrySourceError> {
        self.source.read(seq, sink)
    }

    /// Reads the beginning of one entry again. See [`EntrySource::read_head`].
    pub fn read_head(
        &mut self,
        seq: Seq,
        most: usize,
        sink: &mut dyn FnMut(EntryRef<'_>, u64),
    ) -> Result<bool, EntrySourceError> {
        self.source.read_head(seq, most, sink)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(FoldEvent<'_>)) {
        if !self.finished {
            self.finished = true;
            if !self.is_open_ended {
                self.fold.finish(&mut self.view, emit);
            }
        }
    }

    fn save_checkpoint(&mut self) {
        let position = self.source.position().0;
        let Some(last) = self.checkpoints.last() else { return };
        let parts = self.view.state.units.len() + self.view.attempts.len();
        // Checkpoints never take more memory than the record has bytes.
        let spacing = self.spacing.max(PART_BYTES.saturating_mul(parts as u64));
        if position < last.position.saturating_add(spacing) || self.view.state.entries <= last.state.entries {
            return;
        }
        self.checkpoints.push(Checkpoint { state: self.view.state.clone(), fold: self.fold.clone(), position });
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
