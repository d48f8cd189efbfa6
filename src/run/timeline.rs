//! A source, folded up to a cursor that moves both ways.
//!
//! Going back restores the nearest checkpoint and folds forward again: there is no undo anywhere. Checkpoints hold
//! counts only; rows stay where they are and are seen up to the cursor.

use super::{
    Arrived, Emitted, Fold, Progress, Source, SourceError,
    chronicle::Chronicle,
    state::{RunState, Story},
};
use crate::tape::{Millis, Seq};

/// Bytes between the first checkpoints. Doubled whenever there are more than [`MOST_CHECKPOINTS`].
const FIRST_SPACING: u64 = 4 << 20;

/// Keeps a long tape's checkpoints within a few MiB.
const MOST_CHECKPOINTS: usize = 48;

/// What a unit or an attempt takes in a checkpoint at most, in bytes.
const PART_BYTES: u64 = 1 << 10;

/// Bytes folded at a time while seeking.
const SEEK_SLICE: usize = 256 << 10;

/// A source and the story it tells up to the cursor.
pub struct Timeline {
    source: Box<dyn Source>,
    fold: Fold,
    story: Story,
    chronicle: Chronicle,
    known: u64,
    ended: bool,
    finished: bool,
    /// The record goes on after the end of the source, so nothing that is open there is closed.
    goes_on: bool,
    checkpoints: Vec<Checkpoint>,
    spacing: u64,
    /// The last moment that was read, where reading goes on, while the cursor stands before it.
    frontier: Option<Box<Frontier>>,
    stand: Stand,
}

/// Where the source stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
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
pub enum Moment {
    /// After so many entries.
    Entries(u64),
    /// After everything that happened up to a time.
    Time(Millis),
}

impl Moment {
    /// True if all of `state` happened up to the moment.
    fn holds(self, state: &RunState) -> bool {
        match self {
            Self::Entries(entries) => state.entries <= entries,
            Self::Time(at) => state.entries == 0 || state.now <= at,
        }
    }

    /// True if the entry happened up to the moment.
    pub fn takes(self, arrived: &Arrived<'_>) -> bool {
        match self {
            Self::Entries(entries) => arrived.seq.0 < entries,
            Self::Time(at) => arrived.at <= at,
        }
    }
}

/// Looks at entries while they are folded, and says where to stop.
pub trait Guide {
    /// True for an entry that is not to be folded any more.
    fn is_beyond(&mut self, _arrived: &Arrived<'_>) -> bool {
        false
    }

    /// What an entry led to.
    fn see(&mut self, _emitted: &Emitted<'_>) {}

    /// True if time stops behind the entry that has just been folded into `story`.
    fn stops_behind(&mut self, _arrived: &Arrived<'_>, _story: &Story) -> bool {
        false
    }
}

/// How far a guided advance went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
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
        f.debug_struct("Timeline").field("entries", &self.story.state.entries).finish_non_exhaustive()
    }
}

impl Timeline {
    /// A timeline at the beginning of `source`.
    pub fn new(source: Box<dyn Source>) -> Self {
        let fold = Fold::new(source.origin().fallback_unit.clone());
        let start = Checkpoint { state: RunState::default(), fold: fold.clone(), position: 0 };
        Self {
            source,
            fold,
            story: Story::default(),
            chronicle: Chronicle::default(),
            known: 0,
            ended: false,
            finished: false,
            goes_on: false,
            checkpoints: vec![start],
            spacing: FIRST_SPACING,
            frontier: None,
            stand: Stand::Cursor,
        }
    }

    /// For a source that is only played forward: keeps no checkpoints, so that going back folds from the beginning.
    pub fn forward(source: Box<dyn Source>) -> Self {
        Self { spacing: u64::MAX, ..Self::new(source) }
    }

    /// For the record of a run that goes on: what is open at its end stays open.
    #[must_use]
    pub fn going_on(mut self, goes_on: bool) -> Self {
        self.goes_on = goes_on;
        self
    }

    /// True if the record goes on after the end of the source.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// The story at the cursor.
    pub fn story(&self) -> &Story {
        &self.story
    }

    /// What happened when, as far as it has been read.
    pub fn chronicle(&self) -> &Chronicle {
        &self.chronicle
    }

    /// The state at the last moment that has been read: that of the cursor, unless it stands in the past.
    pub fn present(&self) -> &RunState {
        self.frontier.as_ref().map_or(&self.story.state, |frontier| &frontier.state)
    }

    /// The source.
    pub fn source(&self) -> &dyn Source {
        self.source.as_ref()
    }

    /// Entries that have been read so far, at or after the cursor.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Counts the entries in about `max_bytes` more of the source, ahead of the fold. See [`Source::look_ahead`].
    pub fn look_ahead(&mut self, max_bytes: usize) -> Result<Progress, SourceError> {
        self.source.look_ahead(max_bytes)
    }

    /// True when all of the source has been read, wherever the cursor stands.
    pub fn is_read(&self) -> bool {
        self.ended
    }

    /// True when the source has ended and the cursor stands at its end.
    pub fn at_end(&self) -> bool {
        self.finished
    }

    /// True when everything up to `moment` has been read, so that seeking it takes a moment only.
    pub fn reaches(&self, moment: Moment) -> bool {
        self.ended
            || match moment {
                Moment::Entries(entries) => entries <= self.known,
                Moment::Time(at) => at < self.chronicle.last(),
            }
    }

    /// Folds about `max_bytes` more of the source. At its end, what is still open is closed.
    pub fn advance(&mut self, max_bytes: usize, emit: &mut dyn FnMut(Emitted<'_>)) -> Result<Progress, SourceError> {
        if self.finished {
            return Ok(Progress::End);
        }
        self.come_back()?;
        let (fold, story, chronicle) = (&mut self.fold, &mut self.story, &mut self.chronicle);
        let progress = self.source.poll(max_bytes, &mut |arrived: Arrived<'_>| {
            fold.apply(story, &arrived, emit);
            chronicle.note(arrived.seq, story.state.now, story.touch);
        });
        self.passed();
        let progress = progress?;
        if progress == Progress::End {
            self.ended = true;
            self.finish(emit);
        } else {
            self.keep_checkpoint();
        }
        Ok(progress)
    }

    /// As [`advance`](Self::advance), as far as `guide` lets it.
    pub fn advance_guided(&mut self, max_bytes: usize, guide: &mut dyn Guide) -> Result<Advance, SourceError> {
        if self.finished {
            return Ok(Advance::End);
        }
        self.come_back()?;
        let (fold, story, chronicle) = (&mut self.fold, &mut self.story, &mut self.chronicle);
        let (mut stopped, mut overshot) = (None, false);
        let progress = self.source.poll(max_bytes, &mut |arrived: Arrived<'_>| {
            if stopped.is_some() {
                overshot = true;
            } else if guide.is_beyond(&arrived) {
                (stopped, overshot) = (Some(Some(arrived.at)), true);
            } else {
                fold.apply(story, &arrived, &mut |emitted| guide.see(&emitted));
                chronicle.note(arrived.seq, story.state.now, story.touch);
                if guide.stops_behind(&arrived, story) {
                    stopped = Some(None);
                }
            }
        });
        self.passed();
        let progress = progress?;
        if overshot {
            self.stand = Stand::Elsewhere;
            return Ok(Advance::Stopped(stopped.flatten()));
        }
        match progress {
            Progress::End => {
                self.ended = true;
                self.finish(&mut |_| {});
            }
            Progress::More | Progress::Waiting => self.keep_checkpoint(),
        }
        Ok(match (stopped, progress) {
            (Some(next), _) => Advance::Stopped(next),
            (None, Progress::More) => Advance::More,
            (None, Progress::Waiting) => Advance::Waiting,
            (None, Progress::End) => Advance::End,
        })
    }

    /// Lets time pass while no entry comes, or goes back in such a time: to `shown` where the cursor stands, and to
    /// `present` at the last moment that has been read. True if that changed a unit.
    pub fn pass_time(&mut self, shown: Millis, present: Millis, emit: &mut dyn FnMut(Emitted<'_>)) -> bool {
        let mut changed = self.fold.pass_time(&mut self.story, shown, emit);
        if self.frontier.is_some() {
            self.exchange();
            changed |= self.fold.pass_time(&mut self.story, present, &mut |_| {});
            self.exchange();
        }
        changed
    }

    /// When the next unit becomes silent at the earliest, unless an entry comes.
    pub fn silence_due(&self) -> Option<Millis> {
        self.fold.silence_due()
    }

    /// Reads about `max_bytes` beyond what is known, and leaves the cursor where it stands: what happened when is soon
    /// told, and any moment soon found, while an early one is shown.
    pub fn scout(&mut self, max_bytes: usize) -> Result<Progress, SourceError> {
        if self.ended {
            return Ok(Progress::End);
        }
        if self.frontier.is_none() && self.story.state.entries < self.known {
            // Going back from there leaves the frontier behind.
            let here = self.story.state.entries;
            self.seek(self.known)?;
            self.seek(here)?;
        }
        if self.frontier.is_none() {
            let frontier = Frontier { state: self.story.state.clone(), fold: self.fold.clone() };
            self.frontier = Some(Box::new(frontier));
        }
        if self.stand != Stand::Frontier {
            self.source.rewind(Seq(self.known))?;
            self.stand = Stand::Frontier;
        }
        let touch = self.story.touch;
        self.exchange();
        let (fold, story, chronicle) = (&mut self.fold, &mut self.story, &mut self.chronicle);
        let progress = self.source.poll(max_bytes, &mut |arrived: Arrived<'_>| {
            fold.apply(story, &arrived, &mut |_| {});
            chronicle.note(arrived.seq, story.state.now, story.touch);
        });
        self.known = self.known.max(self.story.state.entries);
        self.keep_checkpoint();
        self.exchange();
        self.story.touch = touch;
        if matches!(progress, Ok(Progress::End)) {
            self.ended = true;
        }
        progress
    }

    /// Exchanges the moment of the cursor for that of the frontier, and back. Rows are shared by both.
    fn exchange(&mut self) {
        if let Some(frontier) = &mut self.frontier {
            std::mem::swap(&mut self.story.state, &mut frontier.state);
            std::mem::swap(&mut self.fold, &mut frontier.fold);
        }
    }

    /// Brings the source back to the cursor.
    fn come_back(&mut self) -> Result<(), SourceError> {
        if self.stand != Stand::Cursor {
            self.source.rewind(Seq(self.story.state.entries))?;
            self.stand = Stand::Cursor;
        }
        Ok(())
    }

    /// The cursor has moved on.
    fn passed(&mut self) {
        self.known = self.known.max(self.story.state.entries);
        if self.story.state.entries >= self.known {
            self.frontier = None;
        }
    }

    /// Moves the cursor so that exactly `entries` entries are folded, or as many as there are.
    pub fn seek(&mut self, entries: u64) -> Result<(), SourceError> {
        self.seek_moment(Moment::Entries(entries))
    }

    /// Moves the cursor to `moment`, or as far as there is anything.
    pub fn seek_moment(&mut self, moment: Moment) -> Result<(), SourceError> {
        let current = self.story.state.entries;
        let nearest = self.checkpoints.iter().rposition(|checkpoint| moment.holds(&checkpoint.state)).unwrap_or(0);
        let checkpoint = &self.checkpoints[nearest];
        if !moment.holds(&self.story.state)
            || (moment == Moment::Entries(current) && self.finished && current < self.known)
            || checkpoint.state.entries > current
        {
            let state = std::mem::replace(&mut self.story.state, checkpoint.state.clone());
            let fold = std::mem::replace(&mut self.fold, checkpoint.fold.clone());
            if state.entries == self.known {
                self.frontier = Some(Box::new(Frontier { state, fold }));
            }
            self.finished = false;
            self.stand = Stand::Elsewhere;
        }
        let mut last = None;
        while moment != Moment::Entries(self.story.state.entries) {
            self.come_back()?;
            let (fold, story, chronicle) = (&mut self.fold, &mut self.story, &mut self.chronicle);
            let mut overshot = false;
            let progress = self.source.poll(SEEK_SLICE, &mut |arrived: Arrived<'_>| {
                overshot |= !moment.takes(&arrived);
                if !overshot {
                    fold.apply(story, &arrived, &mut |_| {});
                    chronicle.note(arrived.seq, story.state.now, story.touch);
                }
            });
            self.passed();
            let progress = progress?;
            last = Some(progress);
            if overshot {
                self.stand = Stand::Elsewhere;
                last = None;
                break;
            }
            self.keep_checkpoint();
            if progress != Progress::More {
                break;
            }
        }
        if last == Some(Progress::End) || (self.ended && self.story.state.entries == self.known) {
            self.ended = true;
            self.finish(&mut |_| {});
        }
        Ok(())
    }

    /// Moves the cursor back to the last moment that is kept at which `is_early` holds: from there on, later ones are found
    /// by going forward, a slice at a time. Folds nothing.
    pub fn fall_back(&mut self, is_early: impl Fn(&RunState) -> bool) -> Result<(), SourceError> {
        let here = self.story.state.entries;
        let early = |kept: &Checkpoint| kept.state.entries <= here && is_early(&kept.state);
        let to = self.checkpoints.iter().rev().find(|kept| early(kept)).map_or(0, |kept| kept.state.entries);
        self.seek(to)
    }

    /// Reads one entry again.
    pub fn read(&mut self, seq: Seq, sink: &mut dyn FnMut(Arrived<'_>)) -> Result<bool, SourceError> {
        self.source.read(seq, sink)
    }

    /// Reads the beginning of one entry again. See [`Source::read_head`].
    pub fn read_head(
        &mut self,
        seq: Seq,
        most: usize,
        sink: &mut dyn FnMut(Arrived<'_>, u64),
    ) -> Result<bool, SourceError> {
        self.source.read_head(seq, most, sink)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Emitted<'_>)) {
        if !self.finished {
            self.finished = true;
            if !self.goes_on {
                self.fold.finish(&mut self.story, emit);
            }
        }
    }

    fn keep_checkpoint(&mut self) {
        let position = self.source.position().0;
        let Some(last) = self.checkpoints.last() else { return };
        let parts = self.story.state.units.len() + self.story.lanes.len();
        // Checkpoints never take more memory than the record has bytes.
        let spacing = self.spacing.max(PART_BYTES.saturating_mul(parts as u64));
        if position < last.position.saturating_add(spacing) || self.story.state.entries <= last.state.entries {
            return;
        }
        self.checkpoints.push(Checkpoint { state: self.story.state.clone(), fold: self.fold.clone(), position });
        if self.checkpoints.len() > MOST_CHECKPOINTS {
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
