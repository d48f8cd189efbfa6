//! A source, folded up to a cursor that moves both ways.
//!
//! Going back restores the nearest checkpoint and folds forward again: there is no undo anywhere. Checkpoints hold
//! counts only; rows stay where they are and are seen up to the cursor.

use super::{Arrived, Emitted, Fold, Progress, Source, SourceError, state::Story};
use crate::{run::RunState, tape::Seq};

/// Bytes between the first checkpoints. Doubled whenever there are more than [`MOST_CHECKPOINTS`].
const FIRST_SPACING: u64 = 4 << 20;

/// Keeps a long tape's checkpoints within a few MiB.
const MOST_CHECKPOINTS: usize = 48;

/// Bytes folded at a time while seeking.
const SEEK_SLICE: usize = 256 << 10;

/// A source and the story it tells up to the cursor.
pub struct Timeline {
    source: Box<dyn Source>,
    fold: Fold,
    story: Story,
    known: u64,
    ended: bool,
    finished: bool,
    checkpoints: Vec<Checkpoint>,
    spacing: u64,
}

struct Checkpoint {
    state: RunState,
    fold: Fold,
    position: u64,
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
            known: 0,
            ended: false,
            finished: false,
            checkpoints: vec![start],
            spacing: FIRST_SPACING,
        }
    }

    /// For a source that is only played forward: keeps no checkpoints, so that going back folds from the beginning.
    pub fn forward(source: Box<dyn Source>) -> Self {
        Self { spacing: u64::MAX, ..Self::new(source) }
    }

    /// The story at the cursor.
    pub fn story(&self) -> &Story {
        &self.story
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

    /// True when the source has ended and the cursor stands at its end.
    pub fn at_end(&self) -> bool {
        self.finished
    }

    /// Folds about `max_bytes` more of the source. At its end, what is still open is closed.
    pub fn advance(&mut self, max_bytes: usize, emit: &mut dyn FnMut(Emitted<'_>)) -> Result<Progress, SourceError> {
        if self.finished {
            return Ok(Progress::End);
        }
        let (fold, story) = (&mut self.fold, &mut self.story);
        let progress = self.source.poll(max_bytes, &mut |arrived: Arrived<'_>| fold.apply(story, &arrived, emit))?;
        self.known = self.known.max(self.story.state.entries);
        if progress == Progress::End {
            self.ended = true;
            self.finish(emit);
        } else {
            self.keep_checkpoint();
        }
        Ok(progress)
    }

    /// Moves the cursor so that exactly `entries` entries are folded, or as many as there are.
    pub fn seek(&mut self, entries: u64) -> Result<(), SourceError> {
        let current = self.story.state.entries;
        let nearest = self.checkpoints.iter().rposition(|checkpoint| checkpoint.state.entries <= entries).unwrap_or(0);
        let checkpoint = &self.checkpoints[nearest];
        if entries < current
            || (entries == current && self.finished && entries < self.known)
            || checkpoint.state.entries > current
        {
            self.story.state = checkpoint.state.clone();
            self.fold = checkpoint.fold.clone();
            self.finished = false;
            self.source.rewind(Seq(self.story.state.entries))?;
        }
        let mut last = None;
        while self.story.state.entries < entries {
            let (fold, story) = (&mut self.fold, &mut self.story);
            let mut overshot = false;
            let progress = self.source.poll(SEEK_SLICE, &mut |arrived: Arrived<'_>| {
                if arrived.seq.0 < entries {
                    fold.apply(story, &arrived, &mut |_| {});
                } else {
                    overshot = true;
                }
            })?;
            self.known = self.known.max(self.story.state.entries);
            last = Some(progress);
            if overshot {
                self.source.rewind(Seq(entries))?;
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

    /// Reads one entry again.
    pub fn read(&mut self, seq: Seq, sink: &mut dyn FnMut(Arrived<'_>)) -> Result<bool, SourceError> {
        self.source.read(seq, sink)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Emitted<'_>)) {
        if !self.finished {
            self.finished = true;
            self.fold.finish(&mut self.story, emit);
        }
    }

    fn keep_checkpoint(&mut self) {
        let position = self.source.position().0;
        let Some(last) = self.checkpoints.last() else { return };
        if position < last.position.saturating_add(self.spacing) || self.story.state.entries <= last.state.entries {
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
