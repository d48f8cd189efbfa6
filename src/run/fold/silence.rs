//! Which attempts are silent: their agent has written nothing for a while although it does not wait for us.
//!
//! No entry tells it. It follows from the times of entries and the moment that is shown, so that a replay shows it when
//! the live screen did. An agent waits for us while a request of its own is open: a decision, or a call of our tools. After its
//! last result it has nothing more to write.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Fold, FoldEvent};
use crate::{
    decode::{self, AgentLine, LineBody},
    run::{
        EntryRef,
        state::{AttemptId, LogMessage, RunState, RunView, UnitStatus},
    },
    tape::{Millis, Seq, note::Severity},
};

/// Silence that counts, where the tape does not say, and at least.
pub const DEFAULT_SILENCE_AFTER: Millis = Millis(60_000);
pub(super) const MIN_SILENCE_AFTER: Millis = Millis(1_000);

/// Requests of an agent that are remembered; those beyond are refused anyway.
const OPEN_REQUESTS: usize = 1024;

/// What the fold must remember of silence.
#[derive(Clone, Debug)]
pub(super) struct SilenceTracker {
    pub(super) after: Millis,
    /// When attempts that run are to be looked at, each once.
    due: BinaryHeap<Reverse<(Millis, u32)>>,
    /// Attempts that are silent.
    silent_attempts: Vec<AttemptId>,
}

impl Default for SilenceTracker {
    fn default() -> Self {
        Self { after: DEFAULT_SILENCE_AFTER, due: BinaryHeap::new(), silent_attempts: Vec::new() }
    }
}

/// Requests of an agent that wait for an answer of ours. Most attempts have none, so that it takes little memory.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a record may have a hundred thousand attempts, and a vector takes three times as much"
)]
pub(super) struct OpenRequests(Option<Box<Vec<Box<str>>>>);

impl OpenRequests {
    /// Takes in a line of the agent.
    pub(super) fn observe_output(&mut self, line: &AgentLine<'_>) {
        let LineBody::Control { kind, request_id, .. } = &line.body else { return };
        match kind.as_ref() {
            "control_request" => {
                let open = self.0.get_or_insert_default();
                if open.len() < OPEN_REQUESTS {
                    open.push(request_id.as_ref().into());
                }
            }
            "control_cancel_request" => _ = self.close(request_id),
            _ => {}
        }
    }

    /// Takes in what was written to the agent. True if it answers a request.
    pub(super) fn observe_input(&mut self, written: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let line = decode::decode_line(written);
        let LineBody::Control { kind, request_id, .. } = &line.body else { return false };
        kind == "control_response" && self.close(request_id)
    }

    fn close(&mut self, request_id: &str) -> bool {
        let Some(open) = &mut self.0 else { return false };
        let before = open.len();
        open.retain(|id| **id != *request_id);
        let is_closed = open.len() < before;
        if open.is_empty() {
            self.0 = None;
        }
        is_closed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Fold {
    /// Lets time pass until `now`, or back to it, while no entry comes. True if a unit became silent, or is not yet.
    pub fn advance_clock(&mut self, story: &mut RunView, now: Millis, emit: &mut dyn FnMut(FoldEvent<'_>)) -> bool {
        let now = now.max(story.state.last_entry_at);
        let before = story.state.silent;
        if now < story.state.clock {
            self.undo_silence_after(story, now);
        }
        story.state.clock = now;
        while let Some(Reverse((due, lane))) = self.silence_tracker.due.peek().copied()
            && due <= now
        {
            self.silence_tracker.due.pop();
            self.check_silence(story, AttemptId(lane), (due, now), emit);
        }
        story.state.silent != before
    }

    /// When the next unit becomes silent at the earliest, unless an entry comes.
    pub fn next_silence_at(&self) -> Option<Millis> {
        self.silence_tracker.due.peek().map(|Reverse((due, _))| *due)
    }

    /// An attempt began.
    pub(super) fn start_silence_watch(&mut self, lane: AttemptId, at: Millis) {
        self.silence_tracker.due.push(Reverse((later(at, self.silence_tracker.after), lane.0)));
    }

    /// Looks whether an attempt became silent at `due`; if it did not, when to look again.
    fn check_silence(
        &mut self,
        story: &mut RunView,
        lane: AttemptId,
        (due, now): (Millis, Millis),
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let after = self.silence_tracker.after;
        let fold = &self.attempts[lane.0 as usize];
        let attempt = fold.attempt(story);
        if attempt.verdict.is_some() || attempt.ended_at.is_some() {
            return;
        }
        let next = attempt.silent_since.map_or_else(|| later(now, after), |since| later(since, after));
        if next > due {
            self.silence_tracker.due.push(Reverse((next, lane.0)));
            return;
        }
        let unit = fold.unit(story);
        if unit.status != UnitStatus::Running || unit.latest().is_none_or(|latest| latest.id != lane) {
            return;
        }
        unit.status = UnitStatus::Silent;
        let text = format!("no output for {after}");
        fold.emit_status(due, UnitStatus::Silent, Some(&text), emit);
        let unit = Some(fold.key.clone());
        self.silence_tracker.silent_attempts.push(lane);
        count(&mut story.state, self.silence_tracker.silent_attempts.len());
        let seq = Seq(story.state.entries.saturating_sub(1));
        self.push_message(
            story,
            LogMessage { seq, at: due, level: Severity::Warning, unit, text: format!("silent: {text}") },
        );
    }

    /// Undoes what became silent after `now`, all of it since the last entry.
    fn undo_silence_after(&mut self, story: &mut RunView, now: Millis) {
        let after = self.silence_tracker.after;
        let mut undone = Vec::new();
        let lanes = &self.attempts;
        self.silence_tracker.silent_attempts.retain(|lane| {
            let fold = &lanes[lane.0 as usize];
            let since = fold.attempt(story).silent_since.unwrap_or_default();
            let stays = later(since, after) <= now;
            if !stays {
                let status = &mut fold.unit(story).status;
                if *status == UnitStatus::Silent {
                    *status = UnitStatus::Running;
                }
                undone.push(Reverse((later(since, after), lane.0)));
            }
            stays
        });
        if self.message_count == story.messages.len() {
            story.messages.truncate(self.message_count - undone.len().min(self.message_count));
        }
        self.message_count -= undone.len().min(self.message_count);
        self.silence_tracker.due.extend(undone);
        count(&mut story.state, self.silence_tracker.silent_attempts.len());
    }

    /// The agent of an attempt wrote something, and waits for us or not.
    pub(super) fn record_output(
        &mut self,
        story: &mut RunView,
        lane: AttemptId,
        arrived: &EntryRef<'_>,
        line: Option<&AgentLine<'_>>,
    ) {
        let fold = self.attempt_fold(lane);
        if let Some(line) = line {
            fold.open_requests.observe_output(line);
        }
        let is_turn = fold.open_requests.is_empty() && !fold.has_last_result();
        let attempt = fold.attempt(story);
        if attempt.start_note.is_some() {
            attempt.silent_since = is_turn.then_some(arrived.at);
        }
    }

    /// Something was written to the agent. Only an answer to its request gives it a reason to write.
    pub(super) fn record_input(&mut self, story: &mut RunView, lane: AttemptId, at: Millis, written: &[u8]) {
        let fold = self.attempt_fold(lane);
        if fold.open_requests.observe_input(written) && fold.open_requests.is_empty() && !fold.has_last_result() {
            fold.attempt(story).silent_since = Some(at);
        }
    }

    /// The agent of an attempt writes again.
    pub(super) fn break_silence(
        &mut self,
        story: &mut RunView,
        lane: AttemptId,
        arrived: &EntryRef<'_>,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let Some(silence) = self.clear_silence(story, lane, arrived.at) else { return };
        let text = format!("output again after {silence}");
        let fold = &self.attempts[lane.0 as usize];
        let unit = fold.unit(story);
        if unit.status == UnitStatus::Silent {
            unit.status = UnitStatus::Running;
            fold.emit_status(arrived.at, UnitStatus::Running, Some(&text), emit);
        }
        self.start_silence_watch(lane, arrived.at);
        self.report_message(story, arrived, Severity::Info, text);
    }

    /// An attempt ends.
    pub(super) fn end_silence(&mut self, story: &mut RunView, lane: AttemptId, arrived: &EntryRef<'_>) {
        if let Some(silence) = self.clear_silence(story, lane, arrived.at) {
            self.report_message(story, arrived, Severity::Info, format!("ended after {silence} of silence"));
        }
    }

    /// How long the attempt has been silent, if it is.
    fn clear_silence(&mut self, story: &mut RunView, lane: AttemptId, at: Millis) -> Option<Millis> {
        let place = self.silence_tracker.silent_attempts.iter().position(|silent| *silent == lane)?;
        self.silence_tracker.silent_attempts.swap_remove(place);
        count(&mut story.state, self.silence_tracker.silent_attempts.len());
        let attempt = self.attempts[lane.0 as usize].attempt(story);
        Some(at.since(attempt.silent_since.unwrap_or(at)))
    }
}

fn count(state: &mut RunState, silent: usize) {
    state.silent = u32::try_from(silent).unwrap_or(u32::MAX);
}

fn later(at: Millis, by: Millis) -> Millis {
    Millis(at.0.saturating_add(by.0))
}
