//! Detects silent attempts: their agent has written nothing for a while although it does not wait for `ingestdeck`.
//!
//! No entry reports silence. It follows from the times of entries and the displayed moment, so that a replay shows it
//! when the live screen did. An agent waits for `ingestdeck` while one of its requests is open: an approval, or a call
//! of an `ingestdeck` tool. After its last result it has nothing more to write.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Fold, SinkEvent};
use crate::{
    decode::{self, AgentLine, LineBody},
    run::{
        EntryRef,
        state::{AttemptId, LogMessage, RunState, RunView, UnitStatus},
    },
    tape::{Millis, Seq, note::Severity},
};

/// Minimum length of a silence, and its default where the tape does not contain `silence_after`.
pub(crate) const DEFAULT_SILENCE_AFTER: Millis = Millis(60_000);
pub(super) const MIN_SILENCE_AFTER: Millis = Millis(1_000);

/// How much longer than the setting a silence may become normal.
const MAX_PATIENCE: u64 = 3;

/// Maximum number of open requests that are tracked; the attempt machine refuses more.
const OPEN_REQUESTS: usize = 1024;

/// State of the silence detection that is kept between entries.
#[derive(Clone, Debug)]
pub(super) struct SilenceTracker {
    /// The length in the settings of the run.
    after: Millis,
    /// From when on an attempt counts as silent: longer than the setting once agents have written again after silences.
    patience: Millis,
    /// When running attempts must be checked; each attempt is queued once.
    due: BinaryHeap<Reverse<(Millis, u32)>>,
    /// With the time at which each became silent.
    silent_attempts: Vec<(AttemptId, Millis)>,
}

impl Default for SilenceTracker {
    fn default() -> Self {
        Self {
            after: DEFAULT_SILENCE_AFTER,
            patience: DEFAULT_SILENCE_AFTER,
            due: BinaryHeap::new(),
            silent_attempts: Vec::new(),
        }
    }
}

impl SilenceTracker {
    /// Applies the setting of the tape.
    pub(super) fn set_after(&mut self, after: Millis) {
        (self.after, self.patience) = (after, after);
    }

    /// An agent wrote again after a silence: half more than that is normal in this run.
    fn learn(&mut self, silence: Millis) {
        if silence < self.after {
            return;
        }
        let most = self.after.0.saturating_mul(MAX_PATIENCE);
        let normal = silence.0.saturating_add(silence.0 / 2).min(most);
        self.patience = self.patience.max(Millis(normal));
    }
}

/// Requests of an agent that wait for an answer. Boxed because most attempts have none.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a tape may have a hundred thousand attempts, and a vector takes three times as much memory"
)]
pub(super) struct OpenControlRequests(Option<Box<Vec<Box<str>>>>);

impl OpenControlRequests {
    /// Processes a line from the agent.
    pub(super) fn observe_output(&mut self, line: &AgentLine<'_>) {
        let LineBody::Control {
            kind, request_id, ..
        } = &line.body
        else {
            return;
        };
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

    /// Processes input that was written to the agent. Returns true if it answers a request.
    pub(super) fn observe_input(&mut self, written: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let line = decode::decode_line(written);
        let LineBody::Control {
            kind, request_id, ..
        } = &line.body
        else {
            return false;
        };
        kind == "control_response" && self.close(request_id)
    }

    fn close(&mut self, request_id: &str) -> bool {
        let Some(open) = &mut self.0 else {
            return false;
        };
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
    /// Advances the clock to `now`, or moves it back to `now`, while no entry arrives. Returns true if a unit became
    /// silent or stopped being silent.
    pub(crate) fn advance_clock(
        &mut self,
        view: &mut RunView,
        now: Millis,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) -> bool {
        let now = now.max(view.state.last_entry_at);
        let before = view.state.silent;
        if now < view.state.clock {
            self.undo_silence_after(view, now);
        }
        view.state.clock = now;
        while let Some(Reverse((due, attempt_id))) = self.silence_tracker.due.peek().copied()
            && due <= now
        {
            self.silence_tracker.due.pop();
            self.check_silence(view, AttemptId(attempt_id), (due, now), emit);
        }
        view.state.silent != before
    }

    /// Returns the earliest time at which another unit becomes silent, unless an entry arrives.
    pub(crate) fn next_silence_at(&self) -> Option<Millis> {
        self.silence_tracker
            .due
            .peek()
            .map(|Reverse((due, _))| *due)
    }

    pub(super) fn start_silence_watch(&mut self, attempt_id: AttemptId, at: Millis) {
        self.silence_tracker.due.push(Reverse((
            later(at, self.silence_tracker.patience),
            attempt_id.0,
        )));
    }

    /// Checks whether an attempt became silent at `due`; otherwise returns the time of the next check.
    fn check_silence(
        &mut self,
        view: &mut RunView,
        attempt_id: AttemptId,
        (due, now): (Millis, Millis),
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let after = self.silence_tracker.patience;
        let fold = &self.attempts[attempt_id.0 as usize];
        let attempt = fold.attempt(view);
        if attempt.verdict.is_some() || attempt.ended_at.is_some() {
            return;
        }
        let next = attempt
            .silent_since
            .map_or_else(|| later(now, after), |since| later(since, after));
        if next > due {
            self.silence_tracker.due.push(Reverse((next, attempt_id.0)));
            return;
        }
        let unit = fold.unit(view);
        if unit.status != UnitStatus::Running
            || unit.latest().is_none_or(|latest| latest.id != attempt_id)
        {
            return;
        }
        unit.status = UnitStatus::Silent;
        fold.attempt(view).live.is_silent = true;
        let text = format!("no output for {after}");
        fold.emit_status(due, UnitStatus::Silent, Some(&text), emit);
        let unit = Some(fold.key.clone());
        self.silence_tracker.silent_attempts.push((attempt_id, due));
        count(&mut view.state, self.silence_tracker.silent_attempts.len());
        let seq = Seq(view.state.entries.saturating_sub(1));
        self.push_message(
            view,
            LogMessage {
                seq,
                at: due,
                level: Severity::Warning,
                unit,
                text: format!("silent: {text}"),
            },
        );
    }

    /// Reverts silence that began after `now`, all of it since the last entry.
    fn undo_silence_after(&mut self, view: &mut RunView, now: Millis) {
        let mut undone = Vec::new();
        let attempts = &self.attempts;
        self.silence_tracker
            .silent_attempts
            .retain(|(attempt_id, silent_at)| {
                let fold = &attempts[attempt_id.0 as usize];
                let stays = *silent_at <= now;
                if !stays {
                    fold.attempt(view).live.is_silent = false;
                    let status = &mut fold.unit(view).status;
                    if *status == UnitStatus::Silent {
                        *status = UnitStatus::Running;
                    }
                    undone.push(Reverse((*silent_at, attempt_id.0)));
                }
                stays
            });
        if self.message_count == view.messages.len() {
            view.messages
                .truncate(self.message_count - undone.len().min(self.message_count));
        }
        self.message_count -= undone.len().min(self.message_count);
        self.silence_tracker.due.extend(undone);
        count(&mut view.state, self.silence_tracker.silent_attempts.len());
    }

    /// Records that the agent of an attempt wrote something, and whether it now waits for an answer.
    pub(super) fn record_output(
        &mut self,
        view: &mut RunView,
        attempt_id: AttemptId,
        entry: &EntryRef<'_>,
        line: Option<&AgentLine<'_>>,
    ) {
        let fold = self.attempt_fold(attempt_id);
        if let Some(line) = line {
            fold.open_requests.observe_output(line);
        }
        let is_turn = fold.open_requests.is_empty() && !fold.has_last_result();
        let attempt = fold.attempt(view);
        if attempt.setup.start_note.is_some() {
            attempt.silent_since = is_turn.then_some(entry.at);
        }
    }

    /// Records input to the agent. Only an answer to a request gives the agent a reason to write.
    pub(super) fn record_input(
        &mut self,
        view: &mut RunView,
        attempt_id: AttemptId,
        at: Millis,
        written: &[u8],
    ) {
        let fold = self.attempt_fold(attempt_id);
        if fold.open_requests.observe_input(written)
            && fold.open_requests.is_empty()
            && !fold.has_last_result()
        {
            fold.attempt(view).silent_since = Some(at);
        }
    }

    /// Ends the silence of an attempt whose agent writes again.
    pub(super) fn break_silence(
        &mut self,
        view: &mut RunView,
        attempt_id: AttemptId,
        entry: &EntryRef<'_>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let Some(silence) = self.clear_silence(view, attempt_id, entry.at) else {
            return;
        };
        self.silence_tracker.learn(silence);
        let text = format!("output again after {silence}");
        let fold = &self.attempts[attempt_id.0 as usize];
        let unit = fold.unit(view);
        if unit.status == UnitStatus::Silent {
            unit.status = UnitStatus::Running;
            fold.emit_status(entry.at, UnitStatus::Running, Some(&text), emit);
        }
        self.start_silence_watch(attempt_id, entry.at);
        self.report_message(view, entry, Severity::Info, text);
    }

    pub(super) fn end_silence(
        &mut self,
        view: &mut RunView,
        attempt_id: AttemptId,
        entry: &EntryRef<'_>,
    ) {
        if let Some(silence) = self.clear_silence(view, attempt_id, entry.at) {
            self.report_message(
                view,
                entry,
                Severity::Info,
                format!("ended after {silence} of silence"),
            );
        }
    }

    /// Clears the silence of the attempt and returns how long it lasted.
    fn clear_silence(
        &mut self,
        view: &mut RunView,
        attempt_id: AttemptId,
        at: Millis,
    ) -> Option<Millis> {
        let place = self
            .silence_tracker
            .silent_attempts
            .iter()
            .position(|(silent, _)| *silent == attempt_id)?;
        self.silence_tracker.silent_attempts.swap_remove(place);
        count(&mut view.state, self.silence_tracker.silent_attempts.len());
        let attempt = self.attempts[attempt_id.0 as usize].attempt(view);
        attempt.live.is_silent = false;
        Some(at.since(attempt.silent_since.unwrap_or(at)))
    }
}

fn count(state: &mut RunState, silent: usize) {
    state.silent = u32::try_from(silent).unwrap_or(u32::MAX);
}

fn later(at: Millis, by: Millis) -> Millis {
    Millis(at.0.saturating_add(by.0))
}
