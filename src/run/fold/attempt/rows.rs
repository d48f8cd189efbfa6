//! The rows of an attempt: what gets one, what is told by one that is there already, and what is marked as a failure.
//!
//! One thing that happened has one row and one mark, however many lines tell of it.

use std::collections::HashMap;

use super::{AttemptFold, OpenCall};
use crate::{
    actions::{ActionKind, ActionPhase, AgentEvent, event::ActionDetail},
    decode::ResultLine,
    run::state::{RowEnd, RowKind, RunView, StreamRow, push_compact},
    tape::{
        Seq,
        note::{AttemptOutcome, StopReason},
    },
    units::verdict,
};

impl AttemptFold {
    /// A stderr line is shown, not judged: the CLI also warns there.
    pub(in crate::run::fold) fn stderr(&mut self, story: &mut RunView, seq: Seq) {
        self.push_row(story, StreamRow::new(seq, 0, RowKind::Warning, RowEnd::Ok, 0));
    }

    /// A row for the verdict.
    pub(in crate::run::fold) fn verdict_row(&mut self, story: &mut RunView, seq: Seq, outcome: AttemptOutcome) {
        let end = match outcome {
            AttemptOutcome::Succeeded => RowEnd::Ok,
            AttemptOutcome::Failed => RowEnd::Failed,
            AttemptOutcome::Stopped => RowEnd::Aborted,
        };
        self.push_end_row(story, StreamRow::new(seq, 0, RowKind::Note, end, 0));
    }

    /// A row for a breach of the isolation, by which the attempt will fail.
    pub(in crate::run::fold) fn breach_row(&mut self, story: &mut RunView, seq: Seq) {
        self.push_end_row(story, StreamRow::new(seq, 0, RowKind::Note, RowEnd::Failed, 0));
    }

    /// True while a call has a row that waits for its end.
    pub(in crate::run::fold) fn is_open(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.open_calls.contains_key(id))
    }

    /// A person replaced the arguments of a call. The agent sends its hook request after the call itself.
    pub(in crate::run::fold) fn edited(&self, story: &mut RunView, id: &str, note: Seq) {
        let Some(row) = self.open_calls.get(id).and_then(|call| story.attempts[self.id.0 as usize].rows.get(call.row))
        else {
            return;
        };
        if let (Ok(first), Ok(note)) = (u32::try_from(row.first().0), u32::try_from(note.0)) {
            story.argument_edits.insert((first, row.block), note);
        }
    }

    /// A row for a note of ours.
    pub(in crate::run::fold) fn note_row(&mut self, story: &mut RunView, seq: Seq, end: RowEnd) {
        self.push_row(story, StreamRow::new(seq, 0, RowKind::Note, end, 0));
    }

    /// A second row for the note that began the attempt: what it does otherwise than planned.
    pub(in crate::run::fold) fn amendment_row(&mut self, story: &mut RunView, seq: Seq) {
        self.push_row(story, StreamRow::new(seq, 1, RowKind::Note, RowEnd::Ok, 0));
    }

    /// Brings rows and counts in line with what the translator decided.
    pub(super) fn apply_translation(&mut self, story: &mut RunView, seq: Seq, told: TranslationSummary) {
        for id in &told.denied {
            self.record_denial(story, seq, id, 0);
        }
        if let Some(ok) = told.completed {
            self.close_calls(story, seq, |_| true);
            let attempt = self.attempt(story);
            attempt.completed = Some(ok);
            attempt.clear_live_text();
            if !told.has_row {
                let end = if ok { RowEnd::Ok } else { self.call_outcomes.session_end() };
                self.push_end_row(story, StreamRow::new(seq, 0, RowKind::Completed, end, 0));
            }
        }
    }

    /// Closes calls that will have no result.
    fn close_calls(&mut self, story: &mut RunView, seq: Seq, is_over: impl Fn(&OpenCall) -> bool) {
        let (closed, open) = std::mem::take(&mut self.open_calls).into_iter().partition(|(_, call)| is_over(call));
        self.open_calls = open;
        let closed: HashMap<Box<str>, OpenCall> = closed;
        for (id, call) in closed {
            self.close_row(story, call.row, seq, self.call_outcomes.open_call_end(&id));
        }
        self.attempt(story).open_calls = u32::try_from(self.open_calls.len()).unwrap_or(u32::MAX);
    }

    /// A row for a result, by which a turn ends.
    pub(super) fn push_result_row(&mut self, story: &mut RunView, seq: Seq, again: bool) {
        self.close_calls(story, seq, |call| !call.nested);
        let Some(result) = self.signals.result() else { return };
        let end = match (verdict::stop_reason(result), result.failed) {
            (StopReason::Natural, _) | (StopReason::Budget, false) => RowEnd::Ok,
            (StopReason::Error, true) => self.call_outcomes.session_end(),
            // A spent budget is a limit that was met, and no failure.
            (StopReason::Budget, true) | (StopReason::Error, false) => RowEnd::Aborted,
        };
        let marked = again && end == RowEnd::Failed && self.failure_announced;
        let block = u8::from(again) + u8::from(marked);
        self.push_end_row(story, StreamRow::new(seq, block, RowKind::Completed, end, 0));
    }

    /// A call was denied. It is told by the call's own row; one without gets a row for the denial, once.
    pub(super) fn record_denial(&mut self, story: &mut RunView, seq: Seq, id: &str, depth: u8) {
        let told = self.open_calls.contains_key(id) || self.call_outcomes.is_denied(id);
        self.count_denial(story, id);
        self.count_failure(story, Some(id));
        if !told {
            self.push_row(story, StreamRow::new(seq, 0, RowKind::Denial, RowEnd::Denied, depth));
        }
    }

    /// True when a result says no more than the model's last text did.
    pub(super) fn repeats_last_text(&self, result: &ResultLine<'_>) -> bool {
        let text = result.result.as_deref().unwrap_or_default().trim();
        result.error.is_none()
            && result.errors.is_empty()
            && (text.is_empty() || text == self.translator.last_text().trim())
    }

    /// A row for how the session or the attempt ends. A failure that was told before is not marked again.
    fn push_end_row(&mut self, story: &mut RunView, row: StreamRow) {
        let failed = row.end(u64::MAX) == RowEnd::Failed;
        if failed && self.failure_announced {
            self.add_row(story, row);
        } else {
            self.push_row(story, row);
        }
        self.failure_announced |= failed;
    }

    pub(super) fn push_row(&mut self, story: &mut RunView, row: StreamRow) -> usize {
        story.last_change.add_row_end(row.end(u64::MAX));
        self.add_row(story, row)
    }

    fn add_row(&mut self, story: &mut RunView, row: StreamRow) -> usize {
        story.last_change.row_began = true;
        let rows = &mut story.attempts[self.id.0 as usize].rows;
        let index = self.rows;
        if index == rows.len() {
            push_compact(rows, row);
        }
        self.rows += 1;
        index
    }

    pub(super) fn close_row(&self, story: &mut RunView, row: usize, seq: Seq, end: RowEnd) {
        story.last_change.add_row_end(end);
        if let Some(row) = story.attempts[self.id.0 as usize].rows.get_mut(row) {
            row.close(seq, end);
        }
    }
}

/// What the fold takes from the translator's events.
#[derive(Default)]
pub(super) struct TranslationSummary {
    pub(super) denied: Vec<Box<str>>,
    pub(super) completed: Option<bool>,
    /// The result that it completes with has a row.
    pub(super) has_row: bool,
}

impl TranslationSummary {
    pub(super) fn observe(&mut self, event: &AgentEvent<'_>) {
        match event {
            AgentEvent::Action(action)
                if action.action.kind == ActionKind::Warning && action.phase == ActionPhase::Completed =>
            {
                if let ActionDetail::Denial { tool_use_id: Some(id), .. } = &action.action.detail {
                    self.denied.push(id.as_ref().into());
                }
            }
            AgentEvent::Completed(completed) => self.completed = Some(completed.ok),
            AgentEvent::Started(_) | AgentEvent::Action(_) => {}
        }
    }
}
