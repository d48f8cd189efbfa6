//! Moving through time: playing, going to moments and to goals, and reading ahead of what is shown. All in slices, so
//! that keys never wait.

use super::{App, Dirty, Millis, Msg, Pace, Player, Progress, Step};
use crate::{
    run::{Mark, Moment, state::RunState, timeline::Advance},
    tape::Seq,
    tui::{
        breakpoint::{Condition, Goal, Hit, Watch, turns},
        view::clock,
    },
};

/// Bytes folded at once where the next entry may be the last one: what is read beyond it is read in vain.
const SHORT: usize = 64 * 1024;
/// Bytes read ahead at once between two entries that are played.
const BETWEEN: usize = 256 * 1024;

impl App {
    pub(super) fn set_pace(&mut self, pace: Pace) {
        let plays = |pace| matches!(pace, Pace::Scaled(_) | Pace::Full);
        let begins = plays(pace) && !plays(self.pace);
        (self.pace, self.model.pace) = (pace, pace);
        self.end_walk();
        if begins && self.model.at_end {
            self.seek(Moment::Entries(0));
        }
        self.start_player();
        if pace == Pace::Follow {
            self.progress = Progress::More;
        }
    }

    /// Starts the clock of what is played at the moment that is shown.
    fn start_player(&mut self) {
        let now = self.timeline.story().state.now;
        (self.player, self.next) = match self.model.pace {
            Pace::Scaled(speed) => (Some(Player::new(self.moment.now, now, speed)), Some(now)),
            Pace::Follow | Pace::Hold | Pace::Full => (None, None),
        };
    }

    pub(super) fn step(&mut self, step: &Step) {
        let entries = self.timeline.story().state.entries;
        match *step {
            Step::Entry { forward: true } => {
                let mut watch = self.watch(Goal::Nothing);
                watch.upto = Some(Moment::Entries(entries + 1));
                self.start_walk(watch);
            }
            Step::Entry { forward: false } => self.go(Moment::Entries(entries.saturating_sub(1))),
            Step::Turn { unit, forward: true } => {
                let before = self.timeline.story().state.units.get(unit).map_or(0, turns);
                let watch = self.watch(Goal::Turn(unit, before));
                self.start_walk(watch);
            }
            Step::Turn { unit, forward: false } => {
                let turns = self.timeline.story().state.units.get(unit).map_or(0, turns);
                self.turn_back(unit, turns, entries);
            }
            Step::Action { unit, forward: true } => {
                let watch = self.watch(Goal::Row(unit));
                self.start_walk(watch);
            }
            Step::Action { unit, forward: false } => self.action_back(unit),
            Step::Failure { forward: true } => self.next_failure(),
            Step::Failure { forward: false } => {
                let before = Seq(entries.saturating_sub(1));
                match self.timeline.chronicle().bad_before(before) {
                    Some(found) => self.go_to_failure(found),
                    None => self.model.say("no failure before this"),
                }
            }
            Step::End => {
                self.seek(Moment::Entries(self.timeline.known()));
                self.progress = Progress::More;
            }
        }
    }

    /// To where a turn of a unit began, by its number: from the last moment that is kept before it, forward. If that is
    /// `here`, to where the turn before it began.
    fn turn_back(&mut self, unit: usize, turn: u64, here: u64) {
        if turn == 0 {
            return self.go(Moment::Entries(0));
        }
        let is_early = |state: &RunState| state.units.get(unit).map_or(0, turns) < turn;
        if let Err(error) = self.timeline.fall_back(is_early) {
            return self.moved(Err(error.to_string()));
        }
        // Breakpoints are for going on, and this goes back.
        let watch = Watch::new(Goal::TurnBack { unit, turn, here }, &[], self.timeline.story());
        self.start_walk(watch);
    }

    /// To the row of the unit before the last one.
    fn action_back(&mut self, unit: usize) {
        let story = self.timeline.story();
        let Some(unit) = story.state.units.get(unit) else { return };
        let before = unit.attempts.iter().filter_map(|attempt| {
            let rows = story.rows(attempt.lane);
            let end = rows.partition_point(|row| row.first().0 + 1 < story.state.entries);
            Some((rows.get(end.checked_sub(1)?)?.first(), attempt.lane))
        });
        let Some((seq, lane)) = before.max_by_key(|(seq, _)| *seq) else {
            let text = format!("no action of {} before this", unit.key);
            self.model.say(text);
            return;
        };
        self.seek(Moment::Entries(seq.0 + 1));
        self.input(Msg::Stopped(Hit { seq, lane: Some(lane), breakpoint: None, what: String::new() }));
    }

    fn next_failure(&mut self) {
        let here = Seq(self.timeline.story().state.entries);
        let watched = self.model.breakpoints.iter().any(|breakpoint| breakpoint.on);
        match self.timeline.chronicle().bad_from(here) {
            // What is known already need not be looked for, unless there is something to stop at on the way.
            Some(found) if !watched => self.go_to_failure(found),
            _ => self.until(Condition::Failure),
        }
    }

    fn go_to_failure(&mut self, (seq, lane, mark): (Seq, crate::run::state::LaneId, Mark)) {
        self.seek(Moment::Entries(seq.0 + 1));
        let what = mark.words().0.to_owned();
        self.input(Msg::Stopped(Hit { seq, lane: Some(lane), breakpoint: None, what }));
    }

    /// Goes on until something happens.
    pub(super) fn until(&mut self, condition: Condition) {
        let watch = self.watch(Goal::Condition(condition));
        self.start_walk(watch);
    }

    fn watch(&self, goal: Goal) -> Watch {
        Watch::new(goal, &self.model.breakpoints, self.timeline.story())
    }

    /// Shows a moment: at once if it was read already, else as soon as reading gets there.
    pub(super) fn go(&mut self, moment: Moment) {
        if self.timeline.reaches(moment) {
            self.seek(moment);
            if self.is_beyond(moment) {
                let watch = self.watch(Goal::Moment(moment));
                self.nothing_more(&watch);
            }
        } else {
            let watch = self.watch(Goal::Moment(moment));
            self.start_walk(watch);
        }
    }

    /// True for a moment after all there is, silence up to now included.
    fn is_beyond(&self, moment: Moment) -> bool {
        match moment {
            Moment::Entries(entries) => entries > self.timeline.known(),
            Moment::Time(at) => at > self.present(),
        }
    }

    fn seek(&mut self, moment: Moment) {
        let moved = self.timeline.seek_moment(moment).map_err(|error| error.to_string());
        self.moved(moved);
    }

    /// Shows the moment that somebody points at, if one waits to be shown.
    pub(super) fn settle_scrub(&mut self) {
        if let Some(moment) = self.scrub.take() {
            self.go(moment);
        }
    }

    fn moved(&mut self, moved: Result<(), String>) {
        if let Err(error) = moved {
            self.model.say(error);
        }
        self.start_player();
        self.facts();
        self.limiter.mark(Dirty::Now);
    }

    fn start_walk(&mut self, watch: Watch) {
        self.walk = Some(watch);
        self.walk(SHORT);
        if let Some(watch) = &self.walk {
            self.model.extent.going = Some(match watch.goal() {
                Goal::Condition(condition) => format!("until {condition}"),
                Goal::Moment(Moment::Time(at)) => format!("to {}", clock(*at)),
                Goal::Moment(Moment::Entries(entries)) => format!("to entry {entries}"),
                Goal::Nothing | Goal::Row(_) | Goal::Turn(..) => "on".to_owned(),
                Goal::TurnBack { .. } => "back".to_owned(),
            });
        }
    }

    fn end_walk(&mut self) {
        self.walk = None;
        self.model.extent.going = None;
    }

    /// A slice of the way to a goal.
    pub(super) fn walk(&mut self, bytes: usize) {
        let Some(mut watch) = self.walk.take() else { return };
        let advance = self.timeline.advance_guided(bytes, &mut watch).map_err(|error| error.to_string());
        match (advance, watch.hit.take()) {
            (Ok(Advance::More), None) => {
                self.walk = Some(watch);
                self.facts();
                self.limiter.mark(Dirty::Soon);
            }
            (Ok(_), Some(hit)) => match *watch.goal() {
                Goal::TurnBack { unit, turn, here } if self.timeline.story().state.entries >= here => {
                    self.end_walk();
                    self.turn_back(unit, turn - 1, here);
                }
                _ => self.stop(hit),
            },
            (Ok(advance), None) => {
                self.end_walk();
                self.moved(Ok(()));
                if let Advance::Waiting | Advance::End = advance {
                    self.progress = if advance == Advance::End { Progress::End } else { Progress::Waiting };
                    self.facts();
                    self.nothing_more(&watch);
                }
            }
            (Err(error), _) => {
                self.end_walk();
                self.moved(Err(error));
            }
        }
    }

    /// The goal was not reached although there is nothing more.
    fn nothing_more(&mut self, watch: &Watch) {
        let end = if self.model.live { "until now" } else { "until the end" };
        let text = match watch.goal() {
            Goal::Condition(condition) => format!("no {condition} {end}"),
            Goal::Row(_) => format!("no further action {end}"),
            Goal::Moment(moment) if !self.is_beyond(*moment) => return,
            Goal::Moment(_) if self.model.live => "that moment has not come yet".to_owned(),
            Goal::Moment(_) => format!("this is the end: {}", clock(self.model.extent.last)),
            Goal::Nothing | Goal::Turn(..) | Goal::TurnBack { .. } => return,
        };
        self.model.say(text);
    }

    /// Time stops by itself.
    fn stop(&mut self, hit: Hit) {
        self.set_pace(Pace::Hold);
        self.moved(Ok(()));
        self.input(Msg::Stopped(hit));
    }

    pub(super) fn is_next_due(&self) -> bool {
        self.player.zip(self.next).is_some_and(|(player, next)| next <= player.time(self.moment.now))
    }

    /// A slice of what is played: up to the time that it is, or as far as it goes.
    pub(super) fn play(&mut self) {
        let mut watch = self.watch(Goal::Nothing);
        let bytes = match self.player {
            Some(player) => {
                watch.upto = Some(Moment::Time(player.time(self.moment.now)));
                SHORT
            }
            None => self.slice,
        };
        let advance = self.timeline.advance_guided(bytes, &mut watch);
        if let Some(hit) = watch.hit.take() {
            self.stop(hit);
            return;
        }
        match advance {
            Ok(Advance::Stopped(next)) => self.next = next,
            Ok(Advance::More) => self.next = Some(self.timeline.story().state.now),
            Ok(advance @ (Advance::Waiting | Advance::End)) => {
                let ended = advance == Advance::End;
                // A run that goes on is followed as it comes.
                self.set_pace(if ended && !self.model.live { Pace::Hold } else { Pace::Follow });
                self.progress = if ended { Progress::End } else { Progress::Waiting };
            }
            Err(error) => {
                self.set_pace(Pace::Hold);
                self.model.say(error.to_string());
            }
        }
        self.facts();
        self.limiter.mark(Dirty::Soon);
    }

    /// A slice of what lies ahead of the moment that is shown.
    pub(super) fn scout(&mut self) {
        let bytes = if self.player.is_some() { self.slice.min(BETWEEN) } else { self.slice };
        match self.timeline.scout(bytes) {
            Ok(progress) => self.progress = progress,
            Err(error) => {
                self.progress = Progress::End;
                self.shown.broken = Some(error.to_string());
            }
        }
        self.facts();
        self.limiter.mark(Dirty::Soon);
    }

    /// The time of the run in the present, whatever is shown: by the wall clock while it runs.
    pub(super) fn present(&self) -> Millis {
        let last = self.timeline.chronicle().last();
        if !self.runs() {
            return last;
        }
        let passed = self
            .shown
            .origin
            .started_at
            .and_then(|start| u64::try_from(self.moment.wall.duration_since(start).as_millis()).ok().map(Millis));
        let passed = passed.unwrap_or_else(|| {
            let since = self.moment.now.saturating_sub(self.changed).as_millis();
            Millis(last.0.saturating_add(u64::try_from(since).unwrap_or_default()))
        });
        passed.max(last)
    }
}
