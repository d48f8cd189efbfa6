//! The rows of an attempt: which lines get a row, which ones update an existing row, and which rows are marked as
//! failures.
//!
//! One event has one row and one mark, however many lines report it.

use super::{AttemptFold, CallChange, CallOutcome, StartRow, unwrapped_error};
use crate::{
    decode::{ResultLine, line::InitLine},
    run::state::{RowKind, RowOutcome, RunView, StreamRow, push_compact},
    tape::{
        Millis, Seq,
        note::{AttemptOutcome, StopReason},
    },
    units::verdict,
};

impl AttemptFold {
    /// Adds a row for a stderr line, never a failure: the CLI also writes warnings there.
    pub(in crate::run::fold) fn stderr(&mut self, view: &mut RunView, seq: Seq) {
        self.push_row(
            view,
            StreamRow::new(seq, 0, RowKind::Warning, RowOutcome::Ok, 0),
        );
    }

    pub(in crate::run::fold) fn verdict_row(
        &mut self,
        view: &mut RunView,
        seq: Seq,
        outcome: AttemptOutcome,
    ) {
        let end = match outcome {
            AttemptOutcome::Succeeded => RowOutcome::Ok,
            AttemptOutcome::Failed => RowOutcome::Failed,
            AttemptOutcome::Stopped => RowOutcome::Aborted,
        };
        self.push_end_row(view, StreamRow::new(seq, 0, RowKind::Note, end, 0));
    }

    /// Adds a row for the start of an attempt.
    pub(in crate::run::fold) fn start_row(&mut self, view: &mut RunView, seq: Seq) {
        self.start_row = StartRow::Note;
        self.note_row(view, seq, RowOutcome::Ok);
    }

    /// The agent announced its session. The row of the start covers that, unless a server is missing.
    pub(super) fn announcement_row(&mut self, view: &mut RunView, seq: Seq, init: &InitLine<'_>) {
        let has_all_servers = init
            .mcp_servers
            .iter()
            .all(|(_, status)| status == "connected");
        let start = self.attempt(view).setup.start_note;
        let kind = match (self.start_row, start) {
            (StartRow::Note, Some(start)) if has_all_servers => {
                self.start_row = StartRow::Announced;
                return view.start_rows.cover_announcement(start, seq);
            }
            (StartRow::Missing, _) => RowKind::Started,
            _ if has_all_servers => RowKind::Started,
            _ => RowKind::Warning,
        };
        self.push_row(view, StreamRow::new(seq, 0, kind, RowOutcome::Ok, 0));
    }

    /// The isolation is proven. The row of the start covers that.
    pub(in crate::run::fold) fn isolation_row(&mut self, view: &mut RunView, seq: Seq) {
        match (self.start_row, self.attempt(view).setup.start_note) {
            (StartRow::Announced, Some(start)) => {
                self.start_row = StartRow::Complete;
                view.start_rows.cover_isolation(start, seq);
            }
            _ => self.note_row(view, seq, RowOutcome::Ok),
        }
    }

    /// Adds a row for a breach of the isolation, which will make the attempt fail.
    pub(in crate::run::fold) fn breach_row(&mut self, view: &mut RunView, seq: Seq) {
        self.push_end_row(
            view,
            StreamRow::new(seq, 0, RowKind::Note, RowOutcome::Failed, 0),
        );
    }

    /// True while a call has a row without an end.
    pub(in crate::run::fold) fn is_open(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.call_rows.contains_key(id))
    }

    /// A person replaced the arguments of a call. The agent sends its hook request after the call itself.
    pub(in crate::run::fold) fn edited(&self, view: &mut RunView, id: &str, note: Seq) {
        if let (Some(call), Ok(note)) = (self.open_call(view, id), u32::try_from(note.0)) {
            view.argument_edits.insert(call, note);
        }
    }

    /// A call no longer waits; `waited` is the time until the decision of a person.
    pub(in crate::run::fold) fn decided(
        &self,
        view: &mut RunView,
        id: &str,
        note: Seq,
        waited: Option<Millis>,
    ) {
        if let (Some(call), Ok(note)) = (self.open_call(view, id), u32::try_from(note.0)) {
            view.decided_calls.insert(call, (note, waited));
        }
    }

    /// Entry and block of a call without an end.
    fn open_call(&self, view: &RunView, id: &str) -> Option<(u32, u8)> {
        let row = self.call_rows.get(id)?;
        let row = view.attempts[self.id.0 as usize].rows.get(*row)?;
        Some((u32::try_from(row.first().0).ok()?, row.block))
    }

    /// Adds a row for a note.
    pub(in crate::run::fold) fn note_row(&mut self, view: &mut RunView, seq: Seq, end: RowOutcome) {
        self.push_row(view, StreamRow::new(seq, 0, RowKind::Note, end, 0));
    }

    /// Counts a message that the agent received, and adds its row.
    pub(in crate::run::fold) fn message_row(&mut self, view: &mut RunView, seq: Seq) {
        self.attempt(view).counts.messages_sent += 1;
        self.note_row(view, seq, RowOutcome::Ok);
    }

    /// Adds a second row for the `attempt_started` note, which shows how the attempt differs from the plan.
    pub(in crate::run::fold) fn amendment_row(&mut self, view: &mut RunView, seq: Seq) {
        self.push_row(
            view,
            StreamRow::new(seq, 1, RowKind::Note, RowOutcome::Ok, 0),
        );
    }

    /// What a person wrote to begin a turn of a session.
    pub(in crate::run::fold) fn prompt_row(&mut self, view: &mut RunView, seq: Seq) {
        self.push_row(
            view,
            StreamRow::new(seq, 2, RowKind::Prompt, RowOutcome::Ok, 0),
        );
    }

    /// The attempt is complete: closes its open calls and adds a row for the end, unless its result `has_row`.
    pub(super) fn complete(&mut self, view: &mut RunView, seq: Seq, ok: bool, has_row: bool) {
        for (id, end) in self.reducer.close_calls() {
            self.cut_call(view, seq, &id, end);
        }
        self.abandon_tasks(view, seq);
        self.copy_counts(view);
        let attempt = self.attempt(view);
        attempt.reported_ok = Some(ok);
        attempt.clear_live_text();
        if !has_row {
            let end = if ok {
                RowOutcome::Ok
            } else {
                self.reducer.calls().cut_end().into()
            };
            self.push_end_row(view, StreamRow::new(seq, 0, RowKind::Completed, end, 0));
        }
    }

    /// Updates rows from the changes of calls.
    pub(super) fn apply_calls(
        &mut self,
        view: &mut RunView,
        seq: Seq,
        changes: &[CallChange<'_>],
        depth: u8,
    ) {
        for change in changes {
            match change {
                CallChange::Ended { result, tool, end } => {
                    if matches!(end, CallOutcome::Failed | CallOutcome::Denied) {
                        self.record_failure_error(view, tool.as_deref(), || {
                            unwrapped_error(result.text())
                        });
                    }
                    match self.call_rows.remove(result.tool_use_id.as_ref()) {
                        Some(row) => {
                            self.close_row_of_call(view, (row, seq), &result.tool_use_id, *end);
                        }
                        None => {
                            // A result without its call gets a row, too.
                            self.push_row(
                                view,
                                StreamRow::new(seq, 0, RowKind::Tool, (*end).into(), depth),
                            );
                        }
                    }
                }
                CallChange::Denied { is_known, .. } => {
                    // The row of the call shows it; a call without a row gets one row for the denial.
                    if !is_known {
                        self.push_row(
                            view,
                            StreamRow::new(seq, 0, RowKind::Denial, RowOutcome::Denied, depth),
                        );
                    }
                }
                CallChange::Cut { id, end } => self.cut_call(view, seq, id, *end),
            }
        }
    }

    /// Closes the row of a call that gets no result.
    fn cut_call(&mut self, view: &mut RunView, seq: Seq, id: &str, end: CallOutcome) {
        if let Some(row) = self.call_rows.remove(id) {
            self.close_row(view, row, seq, end.into());
        }
    }

    /// Adds a row for a result, which ends a turn.
    pub(super) fn push_result_row(&mut self, view: &mut RunView, seq: Seq, again: bool) {
        let Some(result) = self.reducer.result_facts() else {
            return;
        };
        let end = match (verdict::stop_reason(result), result.failed) {
            (StopReason::Natural, _) | (StopReason::Budget, false) => RowOutcome::Ok,
            (StopReason::Error, true) => self.reducer.calls().cut_end().into(),
            // An exhausted budget is a limit and not a failure.
            (StopReason::Budget, true) | (StopReason::Error, false) => RowOutcome::Aborted,
        };
        let marked = again && end == RowOutcome::Failed && self.failure_announced;
        let block = u8::from(again) + u8::from(marked);
        self.push_end_row(view, StreamRow::new(seq, block, RowKind::Completed, end, 0));
    }

    /// True if a result contains only the model's last text.
    pub(super) fn repeats_last_text(&self, result: &ResultLine<'_>) -> bool {
        let text = result.result.as_deref().unwrap_or_default().trim();
        result.error.is_none()
            && result.errors.is_empty()
            && (text.is_empty() || text == self.reducer.stream().last_text().trim())
    }

    /// Adds a row for the end of the session or the attempt. A failure that was already reported is not marked again.
    fn push_end_row(&mut self, view: &mut RunView, row: StreamRow) {
        let failed = row.end(u64::MAX) == RowOutcome::Failed;
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

    pub(super) fn close_row(&self, view: &mut RunView, row: usize, seq: Seq, end: RowOutcome) {
        view.last_change.add_row_end(end);
        if let Some(row) = view.attempts[self.id.0 as usize].rows.get_mut(row) {
            row.close(seq, end);
        }
    }
}

impl From<CallOutcome> for RowOutcome {
    fn from(end: CallOutcome) -> Self {
        match end {
            CallOutcome::Ok => Self::Ok,
            CallOutcome::Failed => Self::Failed,
            CallOutcome::Denied => Self::Denied,
            CallOutcome::Declined => Self::Declined,
            CallOutcome::Aborted => Self::Aborted,
        }
    }
}
