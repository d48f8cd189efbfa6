//! What is done while no key waits: folding, indexing, playing, searching and reading on, one slice at a time.

use std::time::Duration;

use super::{App, Dirty, Msg, Pace, Progress};

/// Bytes of a slice of folding: small enough that a key never waits long.
const SLICES: (usize, usize) = (64 * 1024, 4 * 1024 * 1024);
/// How long a slice may take.
const SLICE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(3));

impl App {
    /// True when there is work that needs no event.
    pub fn is_busy(&self) -> bool {
        if self.scrub.is_some() || self.search.is_some() || self.walk.is_some() || !self.indexed || self.unread {
            return true;
        }
        match self.model.pace {
            Pace::Follow | Pace::Hold => self.progress == Progress::More,
            Pace::Scaled(_) => self.is_next_due() || self.progress == Progress::More,
            Pace::Full => true,
        }
    }

    /// One slice of work.
    pub fn work(&mut self) {
        if self.scrub.is_some() {
            self.settle_scrub();
            return;
        }
        if let Some(search) = &mut self.search {
            if let Some(place) = search.slice(&mut self.timeline, &self.cache) {
                self.search = None;
                self.input(Msg::Found(place));
            }
            return;
        }
        if self.unread {
            self.read_on();
            return;
        }
        let begun = std::time::Instant::now();
        match self.model.pace {
            _ if self.walk.is_some() => self.walk(self.slice),
            Pace::Scaled(_) if self.is_next_due() => self.play(),
            _ if !self.indexed => self.index(),
            Pace::Follow => self.fold(self.slice),
            Pace::Full => self.play(),
            Pace::Scaled(_) | Pace::Hold => self.scout(),
        }
        let took = begun.elapsed();
        if took < SLICE.0 {
            self.slice = (self.slice * 2).min(SLICES.1);
        } else if took > SLICE.1 {
            self.slice = (self.slice / 2).max(SLICES.0);
        }
    }

    /// Finds where entries begin, many times faster than they are folded: how much there is, is soon told.
    fn index(&mut self) {
        match self.timeline.look_ahead(self.slice) {
            Ok(Progress::More) => {}
            Ok(Progress::Waiting | Progress::End) => self.indexed = true,
            Err(error) => {
                self.indexed = true;
                self.model.say(error.to_string());
            }
        }
        self.facts();
        self.limiter.mark(Dirty::Soon);
    }

    pub(super) fn fold(&mut self, bytes: usize) {
        let before = self.timeline.story().state.entries;
        match self.timeline.advance(bytes, &mut |_| {}) {
            Ok(progress) => self.progress = progress,
            Err(error) => {
                self.progress = Progress::End;
                self.shown.broken = Some(error.to_string());
            }
        }
        if self.timeline.story().state.entries != before || self.progress != Progress::More {
            self.changed = self.moment.now;
            self.facts();
            self.limiter.mark(Dirty::Soon);
        }
    }
}
