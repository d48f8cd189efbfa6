//! Movement through time: playing, seeking to moments and goals, and prefetch. All work is done in slices, so that keys
//! are never delayed.

use super::{App, Millis, Playback, Player, PollStatus, RedrawPriority, ScreenMessage, TimeStep};
use crate::{pages::inspect::InspectPage, stream_rows::row_at};
use ingestdeck_core::{
    control::BreakCondition,
    run::breakpoint::{SeekGoal, StopWatcher, TimeStop, turns},
    run::{
        ActivityMark, SeekTarget,
        state::{AttemptId, RowOutcome, RunState, StreamRow, UnitState},
        timeline::AdvanceStatus,
    },
    tape::Seq,
    text::clock,
};

/// Maximum bytes folded per slice near a goal, since bytes beyond the goal are read in vain.
const FINE_SLICE_BYTES: usize = 64 * 1024;
/// Longest time without entries that playback keeps, in milliseconds of the run.
const MAX_IDLE_MS: u64 = 2000;
/// Maximum bytes prefetched between two played entries.
const BETWEEN: usize = 256 * 1024;

impl App {
    pub(super) fn set_playback(&mut self, playback: Playback) {
        let plays = |playback| matches!(playback, Playback::Speed(_) | Playback::Unthrottled);
        let begins = plays(playback) && !plays(self.playing.playback);
        (self.playing.playback, self.model.playhead.playback) = (playback, playback);
        self.end_goal_seek();
        if begins {
            self.model.playhead.skipped = Millis(0);
        }
        if begins && self.model.playhead.at_end {
            self.seek(SeekTarget::Entries(0));
        }
        self.start_player();
        if playback == Playback::Follow {
            self.reading.progress = PollStatus::More;
        }
    }

    /// Starts the player's clock at the moment that is shown.
    pub(super) fn start_player(&mut self) {
        let now = self.timeline.view().state.last_entry_at;
        (self.playing.player, self.playing.next) = match self.model.playhead.playback {
            Playback::Speed(speed) => (Some(Player::new(self.clock.now, now, speed)), Some(now)),
            Playback::Follow | Playback::Paused | Playback::Unthrottled => (None, None),
        };
    }

    pub(super) fn step(&mut self, step: &TimeStep) {
        let entries = self.timeline.view().state.entries;
        match *step {
            TimeStep::Entry { forward: true } => {
                let mut watch = self.watch(SeekGoal::Nothing);
                watch.upto = Some(SeekTarget::Entries(entries + 1));
                self.start_goal_seek(watch);
            }
            TimeStep::Entry { forward: false } => {
                self.seek_when_read(SeekTarget::Entries(entries.saturating_sub(1)))
            }
            TimeStep::Turn {
                unit,
                forward: true,
            } => {
                let before = self.timeline.view().state.units.get(unit).map_or(0, turns);
                let watch = self.watch(SeekGoal::Turn(unit, before));
                self.start_goal_seek(watch);
            }
            TimeStep::Turn {
                unit,
                forward: false,
            } => {
                let turns = self.timeline.view().state.units.get(unit).map_or(0, turns);
                self.seek_back_to_turn(unit, turns, entries);
            }
            TimeStep::Action {
                unit,
                forward: true,
            } => {
                let watch = self.watch(SeekGoal::Row(unit));
                self.start_goal_seek(watch);
            }
            TimeStep::Action {
                unit,
                forward: false,
            } => self.seek_back_to_action(unit),
            TimeStep::Failure { forward: true } => self.next_failure(),
            TimeStep::Failure { forward: false } => {
                let before = Seq(entries.saturating_sub(1));
                match self.timeline.activity().last_problem_before(before) {
                    Some(found) => self.go_to_failure(found),
                    None => self.model.toasts.show("no failure before this"),
                }
            }
            TimeStep::End if self.timeline.is_provisional() => {
                self.seek_when_read(SeekTarget::Entries(u64::MAX));
            }
            TimeStep::End => {
                self.seek(SeekTarget::Entries(self.timeline.known_entries()));
                self.reading.progress = PollStatus::More;
            }
        }
    }

    /// Seeks back to the start of a turn of a unit, by its number: forward from the last checkpoint before it. If that
    /// moment is `here`, seeks to the start of the turn before it.
    fn seek_back_to_turn(&mut self, unit: usize, turn: u64, here: u64) {
        if turn == 0 {
            return self.seek_when_read(SeekTarget::Entries(0));
        }
        let is_early = |state: &RunState| state.units.get(unit).map_or(0, turns) < turn;
        if let Err(error) = self.timeline.seek_to_checkpoint(is_early) {
            return self.seek_finished(Err(error.to_string()));
        }
        // Breakpoints apply only to forward movement.
        let watch = StopWatcher::new(
            SeekGoal::TurnBack { unit, turn, here },
            &[],
            self.timeline.view(),
        );
        self.start_goal_seek(watch);
    }

    /// Seeks to the row before the last row of the unit.
    fn seek_back_to_action(&mut self, unit: usize) {
        let run_view = self.timeline.view();
        let Some(unit) = run_view.state.units.get(unit) else {
            return;
        };
        let before = unit.attempts.iter().filter_map(|attempt| {
            let rows = run_view.rows(attempt.id);
            let end = rows.partition_point(|row| row.first().0 + 1 < run_view.state.entries);
            Some((rows.get(end.checked_sub(1)?)?.first(), attempt.id))
        });
        let Some((seq, attempt_id)) = before.max_by_key(|(seq, _)| *seq) else {
            let text = format!("no action of {} before this", unit.key);
            self.model.toasts.show(text);
            return;
        };
        self.seek(SeekTarget::Entries(seq.0 + 1));
        self.input(ScreenMessage::TimeStopped(TimeStop {
            seq,
            attempt: Some(attempt_id),
            breakpoint: None,
            description: String::new(),
        }));
    }

    fn next_failure(&mut self) {
        let here = Seq(self.timeline.view().state.entries);
        let watched = self
            .model
            .playhead
            .breakpoints
            .iter()
            .any(|breakpoint| breakpoint.is_enabled);
        match self.timeline.activity().first_problem_from(here) {
            // A known failure needs no search, unless breakpoints must be checked on the way.
            Some(found) if !watched => self.go_to_failure(found),
            _ => self.run_until(BreakCondition::Failure),
        }
    }

    fn go_to_failure(
        &mut self,
        (seq, attempt_id, mark): (Seq, ingestdeck_core::run::state::AttemptId, ActivityMark),
    ) {
        self.seek(SeekTarget::Entries(seq.0 + 1));
        let what = mark.labels().0.to_owned();
        self.input(ScreenMessage::TimeStopped(TimeStop {
            seq,
            attempt: Some(attempt_id),
            breakpoint: None,
            description: what,
        }));
    }

    /// Advances time to an entry and selects its attempt.
    pub(super) fn seek_to_entry(&mut self, entry: Seq) {
        let watch = self.watch(SeekGoal::Entry(entry));
        self.start_goal_seek(watch);
    }

    /// Advances time until the condition is met.
    pub(super) fn run_until(&mut self, condition: BreakCondition) {
        let watch = self.watch(SeekGoal::BreakCondition(condition));
        self.start_goal_seek(watch);
    }

    pub(super) fn watch(&self, goal: SeekGoal) -> StopWatcher {
        StopWatcher::new(goal, &self.model.playhead.breakpoints, self.timeline.view())
    }

    /// Shows a moment: immediately if it has been read, otherwise when reading reaches it.
    pub(super) fn seek_when_read(&mut self, moment: SeekTarget) {
        if self.timeline.has_read(moment) {
            self.seek(moment);
            if self.is_beyond(moment) {
                let watch = self.watch(SeekGoal::Moment(moment));
                self.goal_not_reached(&watch);
            }
        } else {
            let watch = self.watch(SeekGoal::Moment(moment));
            self.start_goal_seek(watch);
        }
    }

    /// True if the moment is later than the present, including silence up to now.
    fn is_beyond(&self, moment: SeekTarget) -> bool {
        match moment {
            SeekTarget::Entries(entries) => entries > self.timeline.known_entries(),
            SeekTarget::Time(at) => at > self.present(),
        }
    }

    fn seek(&mut self, moment: SeekTarget) {
        let moved = self
            .timeline
            .seek_to(moment)
            .map_err(|error| error.to_string());
        self.seek_finished(moved);
    }

    /// Shows the pending moment under the pointer, if there is one.
    pub(super) fn apply_scrub(&mut self) {
        if let Some(moment) = self.playing.pending_scrub.take() {
            self.seek_when_read(moment);
        }
    }

    fn seek_finished(&mut self, moved: Result<(), String>) {
        if let Err(error) = moved {
            self.model.toasts.show(error);
        }
        self.start_player();
        self.refresh_facts();
        self.frames.limiter.mark(RedrawPriority::Now);
    }

    pub(super) fn start_goal_seek(&mut self, watch: StopWatcher) {
        self.playing.goal_watch = Some(watch);
        self.goal_seek_slice(FINE_SLICE_BYTES);
        if let Some(watch) = &self.playing.goal_watch {
            self.model.playhead.bounds.seeking_to = Some(match watch.goal() {
                SeekGoal::BreakCondition(condition) => format!("until {condition}"),
                SeekGoal::Moment(SeekTarget::Time(at)) => format!("to {}", clock(*at)),
                SeekGoal::Moment(SeekTarget::Entries(u64::MAX)) => "to the end".to_owned(),
                SeekGoal::Moment(SeekTarget::Entries(entries)) => format!("to entry {entries}"),
                SeekGoal::Entry(entry) => format!("to entry {entry}"),
                SeekGoal::Nothing | SeekGoal::Row(_) | SeekGoal::Turn(..) => "on".to_owned(),
                SeekGoal::RowEnd(..) => "to the end of the call".to_owned(),
                SeekGoal::TurnBack { .. } => "back".to_owned(),
            });
        }
    }

    fn end_goal_seek(&mut self) {
        self.playing.goal_watch = None;
        self.model.playhead.bounds.seeking_to = None;
    }

    /// Processes one slice on the way to a goal.
    pub(super) fn goal_seek_slice(&mut self, bytes: usize) {
        let Some(mut watch) = self.playing.goal_watch.take() else {
            return;
        };
        let advance = self
            .timeline
            .advance_until(bytes, &mut watch)
            .map_err(|error| error.to_string());
        match (advance, watch.hit.take()) {
            (Ok(AdvanceStatus::More), None) => {
                self.playing.goal_watch = Some(watch);
                self.refresh_facts();
                self.frames.limiter.mark(RedrawPriority::Soon);
            }
            (Ok(_), Some(hit)) => match *watch.goal() {
                SeekGoal::TurnBack { unit, turn, here }
                    if self.timeline.view().state.entries >= here =>
                {
                    self.end_goal_seek();
                    self.seek_back_to_turn(unit, turn - 1, here);
                }
                SeekGoal::Entry(_) => self.open_entry(hit),
                SeekGoal::RowEnd(attempt_id, row) if self.is_cut(attempt_id, row) => {
                    self.end_goal_seek();
                    self.seek_to_row(attempt_id, row);
                }
                _ => self.stop(hit),
            },
            (Ok(AdvanceStatus::Waiting), None) if self.timeline.is_provisional() => {
                self.playing.goal_watch = Some(watch);
                self.reading.progress = PollStatus::Waiting;
                self.refresh_facts();
            }
            (Ok(advance), None) => {
                self.end_goal_seek();
                self.seek_finished(Ok(()));
                if let AdvanceStatus::Waiting | AdvanceStatus::End = advance {
                    self.reading.progress = if advance == AdvanceStatus::End {
                        PollStatus::End
                    } else {
                        PollStatus::Waiting
                    };
                    self.refresh_facts();
                    self.goal_not_reached(&watch);
                }
            }
            (Err(error), _) => {
                self.end_goal_seek();
                self.seek_finished(Err(error));
            }
        }
    }

    /// True for a call whose attempt or record ended before its result.
    fn is_cut(&self, attempt_id: AttemptId, row: usize) -> bool {
        let run_view = self.timeline.view();
        let row = run_view.rows(attempt_id).get(row);
        row.is_some_and(|row| row.end(run_view.state.entries) == RowOutcome::Aborted)
    }

    /// Shows the moment after the beginning of an action, which was named and never ended.
    fn seek_to_row(&mut self, attempt_id: AttemptId, row: usize) {
        let row = self.timeline.view().rows(attempt_id).get(row);
        if let Some(first) = row.map(StreamRow::first) {
            self.seek_when_read(SeekTarget::Entries(first.0 + 1));
        }
    }

    /// Handles the end of the tape before the goal was reached.
    fn goal_not_reached(&mut self, watch: &StopWatcher) {
        let end = if self.model.connection.is_live {
            "until now"
        } else {
            "until the end"
        };
        let text = match watch.goal() {
            SeekGoal::BreakCondition(condition) => format!("no {condition} {end}"),
            SeekGoal::Row(_) => format!("no further action {end}"),
            SeekGoal::Entry(entry) => format!("no entry {entry} {end}"),
            SeekGoal::Moment(moment) if !self.is_beyond(*moment) => return,
            SeekGoal::Moment(_) if self.model.connection.is_live => {
                "that moment is in the future".to_owned()
            }
            SeekGoal::Moment(_) => format!(
                "this is the end: {}",
                clock(self.model.playhead.bounds.last_at)
            ),
            SeekGoal::RowEnd(attempt_id, row) => {
                return self.seek_to_row(*attempt_id, *row);
            }
            SeekGoal::Nothing | SeekGoal::Turn(..) | SeekGoal::TurnBack { .. } => return,
        };
        self.model.toasts.show(text);
    }

    /// Stops time at a goal or breakpoint.
    fn stop(&mut self, hit: TimeStop) {
        self.set_playback(Playback::Paused);
        self.seek_finished(Ok(()));
        self.input(ScreenMessage::TimeStopped(hit));
    }

    /// Stops after the entry that the user named, and inspects its action. A call is shown at its end, with its result.
    fn open_entry(&mut self, hit: TimeStop) {
        let (attempt_id, seq) = (hit.attempt, hit.seq);
        self.stop(hit);
        // The page of a session shows the action itself.
        if !self.model.is_bottom() {
            return;
        }
        let run_view = self.timeline.view();
        let entries = run_view.state.entries;
        let mut units = run_view.state.units.iter();
        let attempt = attempt_id.and_then(|attempt_id| {
            let index = |unit: &UnitState| {
                let mut attempts = unit.attempts.iter();
                attempts.position(|attempt| attempt.id == attempt_id)
            };
            let (unit, index) = units.find_map(|unit| Some((unit, index(unit)?)))?;
            Some((attempt_id, unit.key.clone(), index))
        });
        let Some((attempt_id, unit, index)) = attempt else {
            return;
        };
        let rows = run_view.rows(attempt_id);
        let Some(row) = row_at(rows, seq, entries) else {
            return;
        };
        let is_open = rows[row].last(entries).is_none();
        self.model.open(InspectPage::new(unit, index, Some(row)));
        if is_open {
            let watch = self.watch(SeekGoal::RowEnd(attempt_id, row));
            self.start_goal_seek(watch);
        }
    }

    pub(super) fn is_next_due(&self) -> bool {
        self.playing
            .player
            .zip(self.playing.next)
            .is_some_and(|(player, next)| next <= player.time(self.clock.now))
    }

    /// Plays one slice: up to the current run time, or as far as the tape goes.
    pub(super) fn play(&mut self) {
        let mut watch = self.watch(SeekGoal::Nothing);
        let bytes = match self.playing.player {
            Some(player) => {
                watch.upto = Some(SeekTarget::Time(player.time(self.clock.now)));
                FINE_SLICE_BYTES
            }
            None => self.reading.slice,
        };
        let advance = self.timeline.advance_until(bytes, &mut watch);
        if let Some(hit) = watch.hit.take() {
            self.stop(hit);
            return;
        }
        let is_complete = matches!(advance, Ok(AdvanceStatus::End));
        match advance {
            Ok(AdvanceStatus::Stopped(next)) => {
                self.playing.next = next;
                self.skip_idle();
            }
            Ok(AdvanceStatus::More) => {
                self.playing.next = Some(self.timeline.view().state.last_entry_at)
            }
            Ok(AdvanceStatus::Waiting) if self.timeline.is_provisional() => {
                (self.playing.next, self.reading.progress) = (None, PollStatus::Waiting);
            }
            Ok(advance @ (AdvanceStatus::Waiting | AdvanceStatus::End)) => {
                let ended = advance == AdvanceStatus::End;
                // A live run is followed after its last entry.
                self.set_playback(if ended && !self.model.connection.is_live {
                    Playback::Paused
                } else {
                    Playback::Follow
                });
                self.reading.progress = if ended {
                    PollStatus::End
                } else {
                    PollStatus::Waiting
                };
            }
            Err(error) => {
                self.set_playback(Playback::Paused);
                self.model.toasts.show(error.to_string());
            }
        }
        self.refresh_facts();
        self.mark_progress(is_complete);
    }

    /// Shortens the time until the next entry, unless the user wants it in full.
    pub(super) fn skip_idle(&mut self) {
        let (Playback::Speed(speed), Some(player), Some(next)) = (
            self.playing.playback,
            self.playing.player,
            self.playing.next,
        ) else {
            return;
        };
        let now = player
            .time(self.clock.now)
            .max(self.timeline.view().state.last_entry_at);
        let skipped = next.since(now).0.saturating_sub(MAX_IDLE_MS);
        if self.model.playhead.skips_idle && skipped > 0 {
            // Another speed plays the same stretch again.
            if self.playing.skipped_to.replace(next) != Some(next) {
                self.model.playhead.skipped.0 += skipped;
            }
            self.playing.player = Some(Player::new(self.clock.now, Millis(now.0 + skipped), speed));
        }
    }

    /// Prefetches one slice after the moment that is shown.
    pub(super) fn prefetch_slice(&mut self) {
        let bytes = if self.playing.player.is_some() {
            self.reading.slice.min(BETWEEN)
        } else {
            self.reading.slice
        };
        match self.timeline.prefetch(bytes) {
            Ok(progress) => self.reading.progress = progress,
            Err(error) => {
                self.reading.progress = PollStatus::End;
                self.shown.read_error = Some(error.to_string());
            }
        }
        self.refresh_facts();
        self.mark_progress(self.reading.progress == PollStatus::End);
    }

    /// Run time of the present, whatever moment is shown; by the wall clock while the run lives.
    pub(super) fn present(&self) -> Millis {
        let last = self.timeline.activity().end_time();
        if !self.is_clock_running() {
            return last;
        }
        let passed = self.shown.origin.started_at.and_then(|start| {
            u64::try_from(self.clock.wall.duration_since(start).as_millis())
                .ok()
                .map(Millis)
        });
        let passed = passed.unwrap_or_else(|| {
            let since = self.clock.now.saturating_sub(self.changed).as_millis();
            Millis(
                last.0
                    .saturating_add(u64::try_from(since).unwrap_or_default()),
            )
        });
        passed.max(last)
    }
}
