//! The rows of an attempt: which lines get a row, which ones update an existing row, and which rows are marked as
//! failures.
//!
//! One event has one row and one mark, however many lines report it.

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
    /// Adds a row for a stderr line, never a failure: the CLI also writes warnings there.
    pub(in crate::run::fold) fn stderr(&mut self, view: &mut RunView, seq: Seq) {
        self.push_row(view, StreamRow::new(seq, 0, RowKind::Warning, RowEnd::Ok, 0));
    }

    pub(in crate::run::fold) fn verdict_row(&mut self, view: &mut RunView, seq: Seq, outcome: AttemptOutcome) {
        let end = match outcome {
            AttemptOutcome::Succeeded => RowEnd::Ok,
            AttemptOutcome::Failed => RowEnd::Failed,
            AttemptOutcome::Stopped => RowEnd::Aborted,
        };
        self.push_end_row(view, StreamRow::new(seq, 0, RowKind::Note, end, 0));
    }

    /// Adds a row for a breach of the isolation, which will make the attempt fail.
    pub(in crate::run::fold) fn breach_row(&mut self, view: &mut RunView, seq: Seq) {
        self.push_end_row(view, StreamRow::new(seq, 0, RowKind::Note, RowEnd::Failed, 0));
    }

    /// True while a call has a row without an end.
    pub(in crate::run::fold) fn is_open(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.open_calls.contains_key(id))
    }

    /// A person replaced the arguments of a call. The agent sends its hook request after the call itself.
    pub(in crate::run::fold) fn edited(&self, view: &mut RunView, id: &str, note: Seq) {
        let Some(row) = self.open_calls.get(id).and_then(|call| view.attempts[self.id.0 as usize].rows.get(call.row))
        else {
            return;
        };
        if let (Ok(first), Ok(note)) = (u32::try_from(row.first().0), u32::try_from(note.0)) {
            view.argument_edits.insert((first, row.block), note);
        }
    }

    /// Adds a row for a note.
    pub(in crate::run::fold) fn note_row(&mut self, view: &mut RunView, seq: Seq, end: RowEnd) {
        self.push_row(view, StreamRow::new(seq, 0, RowKind::Note, end, 0));
    }

    /// Adds a second row for the `attempt_started` note, which shows how the attempt differs from the plan.
    pub(in crate::run::fold) fn amendment_row(&mut self, view: &mut RunView, seq: Seq) {
        self.push_row(view, StreamRow::new(seq, 1, RowKind::Note, RowEnd::Ok, 0));
    }

    /// Updates rows and counts from the translator's events.
    pub(super) fn apply_translation(&mut self, view: &mut RunView, seq: Seq, summary: TranslationSummary) {
        for id in &summary.denied {
            self.record_denial(view, seq, id, 0);
        }
        if let Some(ok) = summary.completed {
            self.close_calls(view, seq, |_| true);
            let attempt = self.attempt(view);
            attempt.completed = Some(ok);
            attempt.clear_live_text();
            if !summary.has_row {
                let end = if ok { RowEnd::Ok } else { self.call_outcomes.session_end() };
                self.push_end_row(view, StreamRow::new(seq, 0, RowKind::Completed, end, 0));
            }
        }
    }

    /// Closes calls that get no result.
    fn close_calls(&mut self, view: &mut RunView, seq: Seq, is_over: impl Fn(&OpenCall) -> bool) {
        let (closed, open) = std::mem::take(&mut self.open_calls).into_iter().partition(|(_, call)| is_over(call));
        self.open_calls = open;
        let closed: HashMap<Box<str>, OpenCall> = closed;
        for (id, call) in closed {
            self.close_row(view, call.row, seq, self.call_outcomes.open_call_end(&id));
        }
        self.attempt(view).open_calls = u32::try_from(self.open_calls.len()).unwrap_or(u32::MAX);
    }

    /// Adds a row for a result, which ends a turn.
    pub(super) fn push_result_row(&mut self, view: &mut RunView, seq: Seq, again: bool) {
        self.close_calls(view, seq, |call| !call.nested);
        let Some(result) = self.signals.result() else { return };
        let end = match (verdict::stop_reason(result), result.failed) {
            (StopReason::Natural, _) | (StopReason::Budget, false) => RowEnd::Ok,
            (StopReason::Error, true) => self.call_outcomes.session_end(),
            // An exhausted budget is a limit and not a failure.
            (StopReason::Budget, true) | (StopReason::Error, false) => RowEnd::Aborted,
        };
        let marked = again && end == RowEnd::Failed && self.failure_announced;
        let block = u8::from(again) + u8::from(marked);
        self.push_end_row(view, StreamRow::new(seq, block, RowKind::Completed, end, 0));
    }

    /// A call was denied. The row of the call shows it; a call without a row gets one row for the denial.
    pub(super) fn record_denial(&mut self, view: &mut RunView, seq: Seq, id: &str, depth: u8) {
        let is_reported = self.open_calls.contains_key(id) || self.call_outcomes.is_denied(id);
        self.count_denial(view, id);
        self.count_failure(view, Some(id));
        if !is_reported {
            self.push_row(view, StreamRow::new(seq, 0, RowKind::Denial, RowEnd::Denied, depth));
        }
    }

    /// True if a result contains only the model's last text.
    pub(super) fn repeats_last_text(&self, result: &ResultLine<'_>) -> bool {
        let text = result.result.as_deref().unwrap_or_default().trim();
        result.error.is_none()
            && result.errors.is_empty()
            && (text.is_empty() || text == self.translator.last_text().trim())
    }

    /// Adds a row for the end of the session or the attempt. A failure that was already reported is not marked again.
    fn push_end_row(&mut self, view: &mut RunView, row: StreamRow) {
        let failed = row.end(u64::MAX) == RowEnd::Failed;
        if failed && self.failure_announced {
            self.add_row(view, row);
        } else {
            self.push_row(view, row);
        }
        self.failure_announced |= failed;
    }

    pub(super) fn push_row(&mut self, view: &mut RunView, row: StreamRow) -> usize {
        view.last_change.add_row_end(row.end(u64::MAX));
        self.add_row(view, row)
    }

    fn add_row(&mut self, view: &mut RunView, row: StreamRow) -> usize {
        view.last_change.row_began = true;
        let rows = &mut view.attempts[self.id.0 as usize].rows;
        let index = self.rows;
        if index == rows.len() {
            push_compact(rows, row);
        }
        self.rows += 1;
        index
    }

    pub(super) fn close_row(&self, view: &mut RunView, row: usize, seq: Seq, end: RowEnd) {
        view.last_change.add_row_end(end);
        if let Some(row) = view.attempts[self.id.0 as usize].rows.get_mut(row) {
            row.close(seq, end);
        }
    }
}

/// The translator's events as the fold uses them.
#[derive(Default)]
pub(super) struct TranslationSummary {
    pub(super) denied: Vec<Box<str>>,
    pub(super) completed: Option<bool>,
    /// The result of the `completed` event already has a row.
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
