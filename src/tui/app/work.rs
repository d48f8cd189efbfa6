//! Background work between inputs: folding, indexing, playing, searching and prefetch, one slice at a time.

use std::time::Duration;

use super::{
    App, Playback, PollStatus, RedrawPriority, ScreenCache, ScreenMessage,
    text_search::SearchProgress,
};
use crate::{
    model::SearchState,
    moved_rows::MovedRows,
    pages::find::{self, FindPage},
};
use ingestdeck_core::run::{SeekTarget, breakpoint::SeekGoal, state::RunView};

/// Range of bytes folded per slice: small enough that a key is never delayed noticeably.
const FOLD_SLICE_BYTES: (usize, usize) = (64 * 1024, 4 * 1024 * 1024);
/// Target duration range of a slice.
const SLICE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(3));

impl App {
    /// True while there is work that needs no event.
    pub fn is_busy(&self) -> bool {
        self.reading.search.is_some() || self.has_other_work()
    }

    /// True while there is work apart from the search in a pane.
    fn has_other_work(&self) -> bool {
        if self.playing.pending_scrub.is_some()
            || self.reading.run_search.is_some()
            || self.playing.goal_watch.is_some() && !self.awaits_rest()
            || !self.reading.indexed
            || self.reading.has_unread
        {
            return true;
        }
        match self.model.playhead.playback {
            Playback::Follow | Playback::Paused => self.reading.progress == PollStatus::More,
            Playback::Speed(_) => self.is_next_due() || self.reading.progress == PollStatus::More,
            Playback::Unthrottled => !self.awaits_rest(),
        }
    }

    /// True if nothing more can be read until the rest of a provisional source is known.
    pub(super) fn awaits_rest(&self) -> bool {
        self.reading.progress == PollStatus::Waiting && self.timeline.is_provisional()
    }

    /// Shows the whole source once it is known, if only its beginning was shown. Moment and positions stay.
    pub(super) fn settle(&mut self) {
        if !self.timeline.is_provisional() {
            return;
        }
        let (before, numbers) = match self.timeline.settle() {
            Ok(None) => return,
            Ok(Some(settled)) => settled,
            Err(error) => {
                self.shown.read_error = Some(error.to_string());
                (RunView::default(), Vec::new())
            }
        };
        self.cache = ScreenCache::new(self.cache.zone());
        self.shown.origin = self.timeline.source().info().clone();
        (self.reading.progress, self.reading.indexed) = (PollStatus::More, false);
        self.model.move_positions(&MovedRows {
            before: &before,
            after: self.timeline.view(),
            numbers: &numbers,
        });
        if self.reading.search.take().is_some() {
            self.search_failed("the session has been read as a whole; search again");
        }
        self.reading.run_search = None;
        if let Some(again) = find::search_again(&mut self.model) {
            // A search asks the host for nothing.
            drop(self.perform(again));
        }
        match self.playing.goal_watch.take() {
            Some(before) => {
                let mut watch = self.watch(before.goal().clone());
                // A step by one entry counts the entries that are shown now.
                if matches!(watch.goal(), SeekGoal::Nothing) && before.upto.is_some() {
                    let entries = self.timeline.view().state.entries;
                    watch.upto = Some(SeekTarget::Entries(entries + 1));
                }
                self.start_goal_seek(watch);
            }
            None => self.start_player(),
        }
        self.refresh_facts();
        self.frames.limiter.mark(RedrawPriority::Now);
    }

    /// Performs one slice of work.
    pub fn work(&mut self) {
        self.settle();
        if self.playing.pending_scrub.is_some() {
            self.apply_scrub();
            return;
        }
        self.reading
            .search
            .take_if(|search| !self.model.search.awaits(search.request()));
        if self.is_search_slice() {
            self.search_pane();
            return;
        }
        // A search of the whole run takes every second slice, so that the screen still follows the run.
        if self.reading.run_search.is_some() {
            self.reading.is_search_due ^= true;
            if self.reading.is_search_due {
                self.search_run();
                return;
            }
        }
        if self.reading.has_unread {
            self.read_more();
            return;
        }
        let begun = std::time::Instant::now();
        match self.model.playhead.playback {
            _ if self.playing.goal_watch.is_some() => self.goal_seek_slice(self.reading.slice),
            Playback::Speed(_) if self.is_next_due() => self.play(),
            _ if !self.reading.indexed => self.index(),
            Playback::Follow if self.reading.progress == PollStatus::More => {
                self.fold(self.reading.slice)
            }
            // Only the search of the run has more work.
            Playback::Follow => {}
            Playback::Unthrottled => self.play(),
            Playback::Speed(_) | Playback::Paused => self.prefetch_slice(),
        }
        let took = begun.elapsed();
        if took < SLICE.0 {
            self.reading.slice = (self.reading.slice * 2).min(FOLD_SLICE_BYTES.1);
        } else if took > SLICE.1 {
            self.reading.slice = (self.reading.slice / 2).max(FOLD_SLICE_BYTES.0);
        }
    }

    /// True if the next slice is one of the search in a pane. Counting matches takes only every second slice.
    fn is_search_slice(&mut self) -> bool {
        let Some(search) = &self.reading.search else {
            return false;
        };
        if !search.has_found() || !self.has_other_work() {
            return true;
        }
        if self.reading.run_search.is_some() {
            return false;
        }
        self.reading.is_search_due ^= true;
        self.reading.is_search_due
    }

    fn search_pane(&mut self) {
        let Some(search) = &mut self.reading.search else {
            return;
        };
        match search.slice(&mut self.timeline, &self.cache) {
            Ok(SearchProgress::Searching) => {}
            Ok(SearchProgress::Found(place)) => {
                drop(self.input(ScreenMessage::SearchFinished(Some(place))))
            }
            Ok(SearchProgress::Complete) => {
                let Some(search) = self.reading.search.take() else {
                    return;
                };
                if !search.has_found() {
                    self.input(ScreenMessage::SearchFinished(None));
                }
                self.input(ScreenMessage::MatchesCounted(search.into_matches()));
            }
            Err(error) => self.search_failed(&error.to_string()),
        }
    }

    /// Continues the search of the whole run, while its page is open.
    fn search_run(&mut self) {
        let is_open = self.model.find_mut::<FindPage>().is_some();
        let Some(search) = self.reading.run_search.as_mut().filter(|_| is_open) else {
            self.reading.run_search = None;
            return;
        };
        match search.slice(&mut self.timeline) {
            Ok(rows) => {
                let searched = search.searched();
                if searched.0 >= searched.1 {
                    self.reading.run_search = None;
                }
                self.input(ScreenMessage::FoundInRun { rows, searched });
            }
            Err(error) => {
                self.reading.run_search = None;
                find::search_of_run_failed(&mut self.model, &error.to_string());
            }
        }
    }

    pub(super) fn search_failed(&mut self, error: &str) {
        self.reading.search = None;
        self.model.search = SearchState {
            origin: self.model.search.origin.take(),
            ..SearchState::default()
        };
        self.show_message(error.to_owned());
    }

    /// Finds the positions of entries. This is much faster than folding, so the length is known early.
    fn index(&mut self) {
        match self.timeline.scan_ahead(self.reading.slice) {
            Ok(PollStatus::More) => {}
            Ok(PollStatus::Waiting | PollStatus::End) => self.reading.indexed = true,
            Err(error) => {
                self.reading.indexed = true;
                self.model.toasts.show(error.to_string());
            }
        }
        self.refresh_facts();
        self.mark_progress(self.reading.indexed);
    }

    pub(super) fn fold(&mut self, bytes: usize) {
        let (before, was_at_end) = (self.timeline.view().state.entries, self.shown.at_end);
        match self.timeline.advance(bytes, &mut |_| {}) {
            Ok(progress) => self.reading.progress = progress,
            Err(error) => {
                self.reading.progress = PollStatus::End;
                self.shown.read_error = Some(error.to_string());
            }
        }
        if self.timeline.view().state.entries != before || self.reading.progress != PollStatus::More
        {
            self.changed = self.clock.now;
            self.refresh_facts();
            // What an active run records later is shown at the limited rate.
            self.mark_progress(self.shown.at_end && !was_at_end);
        }
    }

    /// Requests a redraw after a slice of work: immediately if the work is complete.
    pub(super) fn mark_progress(&mut self, is_complete: bool) {
        self.frames.limiter.mark(if is_complete {
            RedrawPriority::Now
        } else {
            RedrawPriority::Soon
        });
    }
}
