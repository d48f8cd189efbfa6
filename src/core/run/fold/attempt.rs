//! The fold of one attempt's lines: counts, rows, and the events of the translator.

mod accounting;
mod rows;
mod session_file;
mod tasks;

use std::{borrow::Cow, num::NonZeroU32, sync::Arc};

use super::silence::OpenControlRequests;
use crate::{
    actions::{
        ActionPhase, AgentEvent, CallMap, EventTranslator, LineRole, MessageEnd, SessionIdentity,
        StreamEnd, TurnTracker, event::ActionDetail, is_interrupt_marker, label,
        system_notice::system_notice,
    },
    decode::{
        AgentLine, ChatLine, LineBody, MessageBlock,
        line::{StreamDelta, SystemLine},
    },
    run::{
        EntryRef,
        activity_mark::ActivityMark,
        attempt_reducer::{AttemptReducer, CallChange, CallLedger, CallOutcome, ReducedLine},
        fold::{OutcomeDetail, SinkEvent},
        spending::session_cost,
        state::{
            AgentTask, AttemptId, AttemptState, RowKind, RowOutcome, RunView, StreamRow, UnitState,
            UnitStatus, UsageWindow,
        },
    },
    tape::{
        Millis, Seq, UnitKey,
        note::{AttemptOutcome, AttemptStarted, Severity, StopReason, Verdict, VerdictCause},
    },
    text::one_row,
    units::{
        failure_tally::FailureRule,
        verdict::{self, AttemptFacts},
    },
};

/// Bytes of the model's text that are kept while it is being written.
const MAX_LIVE_TEXT_BYTES: usize = 2048;

/// Maximum number of malformed lines that get rows; more are only counted. A malformed line may be one byte long, so
/// its row would take much more memory than the line.
pub(super) const MAX_MALFORMED_ROWS: u64 = 10_000;

/// Number of earlier attempts that are searched for the prior cost of a session.
const MAX_SEARCHED_ATTEMPTS: usize = 256;

/// State of one attempt that is kept between entries.
#[derive(Clone, Debug)]
pub(super) struct AttemptFold {
    pub(super) key: UnitKey,
    pub(super) number: u32,
    /// Number of folded entries of the attempt.
    pub(super) entries: usize,
    /// No session id has appeared yet, and no plan named the unit.
    pub(super) is_unidentified: bool,
    unit: usize,
    /// Its index in the unit.
    attempt: u32,
    id: AttemptId,
    rows: usize,
    reducer: AttemptReducer,
    translator: EventTranslator,
    /// What the row of the start covers so far.
    start_row: StartRow,
    /// Rows of calls without a result, by id.
    call_rows: CallMap<Box<str>, usize>,
    /// Requests of the agent that wait for an answer from `ingestdeck`.
    pub(super) open_requests: OpenControlRequests,
    /// The session has announced its failure, so its failed end is not counted as a second failure.
    failure_announced: bool,
    pub(super) transcript: TranscriptFold,
}

/// State of a record without notes: a capture or a session file.
#[derive(Clone, Debug)]
pub(super) struct TranscriptFold {
    /// Entry and time of the end of the last turn.
    turn_ended: Option<Box<(Seq, Millis)>>,
    /// How the last message of the model ends, in a session file.
    last_end: MessageEnd,
    /// Number of the next lines that do not count.
    pub(super) lines_set_aside: u32,
}

/// What the row of the start of an attempt covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartRow {
    /// There is no such row.
    Missing,
    /// Only the `attempt_started` note.
    Note,
    /// The note and the announcement of the session.
    Announced,
    /// The proof of the isolation, too.
    Complete,
}

impl AttemptFold {
    pub(super) fn new(
        key: UnitKey,
        number: u32,
        turns: TurnTracker,
        unit: usize,
        attempt: u32,
        attempt_id: AttemptId,
    ) -> Self {
        Self {
            reducer: AttemptReducer::new(turns),
            translator: EventTranslator::default(),
            transcript: TranscriptFold {
                turn_ended: None,
                last_end: MessageEnd::Continues,
                lines_set_aside: 0,
            },
            key,
            number,
            entries: 0,
            is_unidentified: false,
            unit,
            attempt,
            id: attempt_id,
            rows: 0,
            start_row: StartRow::Missing,
            call_rows: CallMap::default(),
            open_requests: OpenControlRequests::default(),
            failure_announced: false,
        }
    }

    /// A new process begins the attempt.
    pub(super) fn begin(&mut self, view: &mut RunView, started: &AttemptStarted) {
        let Some(resumed) = started.resumed_session() else {
            return;
        };
        self.resume(view, resumed.session);
        if !resumed.is_fork {
            self.translator.set_identity(SessionIdentity::resuming(
                resumed.session,
                started.tolerates_mismatch,
            ));
        }
    }

    /// The attempt continues a session that earlier attempts may have paid for.
    pub(super) fn resume(&mut self, view: &mut RunView, session: &str) {
        if let Some(continued) = self.attempt(view).setup.continued() {
            let paid = continued.cost_usd;
            return self.reducer.resume_session(paid);
        }
        let attempts = self
            .unit(view)
            .attempts
            .iter()
            .take(self.attempt as usize)
            .rev()
            .take(MAX_SEARCHED_ATTEMPTS);
        let earlier = attempts.filter(|attempt| attempt.number < self.number);
        let same = earlier.filter(|attempt| attempt.setup.session.as_deref() == Some(session));
        // An attempt that continued a session of a prior run began with the cost there.
        let prior = |attempt: &AttemptState| {
            let continued = attempt.setup.continued();
            continued
                .filter(|work| work.run.is_some())
                .map(|work| work.cost_usd)
        };
        let costs =
            same.flat_map(|attempt| std::iter::once(attempt.counts.cost_usd).chain(prior(attempt)));
        let paid = session_cost(costs);
        self.reducer.resume_session(paid);
    }

    pub(super) fn unit<'s>(&self, view: &'s mut RunView) -> &'s mut UnitState {
        &mut view.state.units[self.unit]
    }

    pub(super) fn attempt<'s>(&self, view: &'s mut RunView) -> &'s mut AttemptState {
        &mut view.state.units[self.unit].attempts[self.attempt as usize]
    }

    /// Replaces the provisional key by the session id.
    pub(super) fn adopt_session_key(&mut self, view: &mut RunView, key: UnitKey) {
        self.unit(view).key = key.clone();
        self.key = key;
    }

    /// Marks the unit of a capture as running from its first line. Returns true the first time.
    pub(super) fn mark_running(&self, view: &mut RunView) -> bool {
        let unit = self.unit(view);
        let first = unit.status == UnitStatus::Queued;
        if first {
            unit.status = UnitStatus::Running;
        }
        first
    }

    /// Emits the status of the unit.
    pub(super) fn emit_status(
        &self,
        at: Millis,
        status: UnitStatus,
        reason: Option<&str>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        emit(SinkEvent::Unit {
            at,
            unit: &self.key,
            attempt: self.number,
            status,
            reason,
            cause: None,
        });
    }

    pub(super) fn line(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        line: &AgentLine<'_>,
        bytes: &[u8],
        by_session: bool,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let seq = entry.seq;
        let depth = u8::from(line.parent_tool_use_id.is_some());
        let is_mismatch = self.translator.is_mismatch(line);
        let is_over = self.translator.is_complete() || is_mismatch;
        let none = || ReducedLine {
            role: LineRole::Trailing,
            calls: Vec::new(),
        };
        let ReducedLine { role, calls } = if is_over {
            none()
        } else {
            self.reducer.push(line)
        };
        self.copy_counts(view);
        if role != LineRole::Trailing {
            let turns = self.reducer.turn_count();
            emit(SinkEvent::Line {
                at: entry.at,
                unit: &self.key,
                attempt: self.number,
                line,
                turns,
            });
        }
        if let Some(call) = line.parent_tool_use_id.as_deref() {
            self.link_to_call(view, seq, call);
        }
        match &line.body {
            LineBody::Init(_)
            | LineBody::Assistant(_)
            | LineBody::User(_)
            | LineBody::StreamEvent(_)
            | LineBody::Result(_)
                if role == LineRole::Trailing => {}
            LineBody::Init(init) => {
                self.begin_turn(view);
                let attempt = self.attempt(view);
                attempt.setup.model = init.model.as_deref().map(Arc::from);
                if let Some(release) = init.version.as_deref() {
                    attempt.setup.release = Some(Arc::from(release));
                }
                if attempt.setup.session.is_none() {
                    self.announcement_row(view, seq, init);
                }
            }
            LineBody::Assistant(chat) => {
                self.model_wrote(view, entry.at);
                self.assistant(view, seq, chat, depth);
            }
            LineBody::User(_) => {
                self.detach_tasks(view, entry, &calls, emit);
                self.link_agents(view, seq, &calls, bytes);
                self.apply_calls(view, seq, &calls, depth);
            }
            LineBody::StreamEvent(StreamDelta::Text(text)) if depth == 0 => {
                self.model_wrote(view, entry.at);
                let live = &mut self.attempt(view).live.text;
                live.push_str(text);
                truncate_to_tail(live);
            }
            LineBody::StreamEvent(StreamDelta::Thinking(text)) if depth == 0 => {
                self.model_wrote(view, entry.at);
                let live = &mut self.attempt(view).live.thinking;
                live.push_str(text);
                truncate_to_tail(live);
            }
            LineBody::StreamEvent(_) | LineBody::ToolProgress { .. } | LineBody::Control { .. } => {
            }
            LineBody::RateLimit(limit) => {
                if limit.status != "allowed" {
                    view.last_change.marks.add(ActivityMark::Limit);
                }
                let worker = self.attempt(view).setup.worker;
                let account = worker.and_then(|worker| view.state.workers.account(worker));
                view.state.limits.usage_window = Some(UsageWindow {
                    account,
                    name: limit.limit.as_deref().unwrap_or("usage").to_owned(),
                    status: limit.status.to_string(),
                    utilization: limit.utilization,
                    resets_at: limit.resets_at,
                });
                self.push_row(
                    view,
                    StreamRow::new(seq, 0, RowKind::Notice, RowOutcome::Ok, depth),
                );
            }
            LineBody::System(system) => {
                self.apply_calls(view, seq, &calls, depth);
                self.system(view, entry, system, depth, emit);
            }
            LineBody::Result(_) => {
                let models = self.reducer.model_spending();
                let spent_budget = self.reducer.result_facts().and_then(verdict::spent_budget);
                let attempt = self.attempt(view);
                attempt.setup.spent_budget = spent_budget;
                attempt.setup.model_usage = (!models.is_empty()).then(|| Arc::new(models));
                attempt.clear_live_text();
            }
            LineBody::SessionFile(_) => {}
            LineBody::Other(_) => view.state.loss_counts.unknown += 1,
            LineBody::Malformed => {
                view.state.loss_counts.malformed += 1;
                if view.state.loss_counts.malformed <= MAX_MALFORMED_ROWS {
                    self.push_row(
                        view,
                        StreamRow::new(seq, 0, RowKind::Warning, RowOutcome::Failed, depth),
                    );
                }
            }
        }
        if let LineBody::User(chat) = &line.body
            && role != LineRole::Trailing
            && let Some(text) = interrupt_text(chat)
        {
            self.emit_message(entry.at, Severity::Info, &text, emit);
        }
        if line.is_session_file && !is_over {
            self.session_file_line(view, entry, line, depth);
        }
        // The translator reports the session that must not answer.
        let translated = if is_mismatch { LineRole::InTurn } else { role };
        self.translate(view, entry, (line, translated), &calls, bytes, emit);
        if let (LineRole::InTurn, Some((_, at))) = (role, self.transcript.turn_ended.as_deref_mut())
        {
            // Work in the background continues between turns, and nothing is emitted after the end.
            *at = entry.at.max(*at);
        }
        let known = self.attempt(view).setup.session.as_deref();
        let id = line.session_id.as_deref().filter(|_| line.is_session_file);
        if known.is_none() || id.is_some_and(|id| known != Some(id)) {
            // A session that must not answer is not the session that is continued.
            let done = self.translator.is_complete();
            let session = if done {
                self.translator.session()
            } else {
                self.translator.observed_session()
            };
            self.attempt(view).setup.session = session.map(Arc::from);
        }
        if by_session && role == LineRole::Result && !self.translator.is_complete() {
            self.end_turn(view, entry);
        }
    }

    /// Handles the end of the stream: emits the pending events of the translator and closes open rows.
    pub(super) fn end(
        &mut self,
        view: &mut RunView,
        seq: Seq,
        ended: &StreamEnd,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let (seq, at) = self
            .transcript
            .turn_ended
            .as_deref()
            .copied()
            .unwrap_or((seq, view.state.last_entry_at));
        let (key, number) = (self.key.clone(), self.number);
        let tasks = self.attempt(view).live.tasks.clone();
        let reducer = &self.reducer;
        let has_row = reducer.result_facts().is_some() && !reducer.stream().turns().is_in_turn();
        let mut completed = None;
        self.translator
            .finish(ended, reducer.stream(), &mut |event| {
                completed = completion(&event).or(completed);
                let outcome_detail =
                    call_detail(reducer.calls(), &event).or_else(|| end_detail(reducer, &event));
                if completed.is_some() {
                    tasks::emit_abandoned(tasks.as_deref(), (at, &key, number), emit);
                }
                emit(SinkEvent::Agent {
                    entry: seq,
                    at,
                    unit: &key,
                    attempt: number,
                    event,
                    outcome_detail,
                });
            });
        if let Some(ok) = completed {
            self.complete(view, seq, ok, has_row);
        }
    }

    /// True for a capture whose last turn is over, while another turn may still follow.
    pub(super) fn is_between_turns(&self) -> bool {
        self.transcript.turn_ended.is_some() && !self.translator.is_complete()
    }

    /// True if an event of the attempt has already reported this message.
    pub(super) fn has_warned(&self, text: &str) -> bool {
        self.translator.mismatch() == Some(text)
    }

    /// True if no later line belongs to the attempt.
    pub(super) fn is_complete(&self) -> bool {
        self.translator.is_complete()
    }

    /// True for a session file in which nothing was asked.
    pub(super) fn has_no_turn(&self) -> bool {
        self.translator.has_no_turn()
    }

    /// True if the attempt has a result, and no other turn is running or expected.
    pub(super) fn has_last_result(&self) -> bool {
        self.reducer.stream().turns().is_complete()
    }

    /// Concludes a capture: no other turn follows the last one.
    pub(super) fn conclude_capture(
        &mut self,
        view: &mut RunView,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let Some((seq, at)) = self.transcript.turn_ended.as_deref().copied() else {
            return;
        };
        self.end(view, seq, &StreamEnd::default(), emit);
        let Some(verdict) = self.attempt(view).verdict.clone() else {
            return;
        };
        self.emit_status(
            at,
            status_for_verdict(&verdict),
            Some(&verdict.reason),
            emit,
        );
    }

    /// Updates the unit's status according to whether a call waits for a person.
    pub(super) fn sync_hold_status(
        &self,
        view: &mut RunView,
        at: Millis,
        reason: Option<&str>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let waits = !self.attempt(view).held_calls.is_empty();
        let unit = self.unit(view);
        let status = match unit.status {
            UnitStatus::Running | UnitStatus::Silent if waits => UnitStatus::Held,
            // A decision that follows the end of the attempt does not make the unit run again.
            UnitStatus::Held if !waits && !self.is_complete() => UnitStatus::Running,
            _ => return,
        };
        unit.status = status;
        self.emit_status(at, status, reason, emit);
    }

    fn model_wrote(&self, view: &mut RunView, at: Millis) {
        let attempt = self.attempt(view);
        let passed = u32::try_from(at.since(attempt.started_at).0).unwrap_or(u32::MAX);
        attempt
            .setup
            .first_output_ms
            .get_or_insert(NonZeroU32::MIN.saturating_add(passed.saturating_sub(1)));
    }

    fn assistant(&mut self, view: &mut RunView, seq: Seq, chat: &ChatLine<'_>, depth: u8) {
        if depth == 0 {
            self.attempt(view).clear_live_text();
            let has_text = |block: &MessageBlock<'_>| matches!(block, MessageBlock::Text(text) if !text.is_blank());
            self.failure_announced = chat.error.is_some() && chat.blocks.iter().any(has_text);
        }
        for (index, block) in chat.blocks.iter().enumerate() {
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            match block {
                MessageBlock::Text(text) if !text.is_blank() => {
                    let end = if chat.error.is_some() {
                        RowOutcome::Failed
                    } else {
                        RowOutcome::Ok
                    };
                    self.push_row(view, StreamRow::new(seq, index, RowKind::Text, end, depth));
                }
                MessageBlock::Thinking(text) if !text.is_blank() => {
                    self.push_row(
                        view,
                        StreamRow::new(seq, index, RowKind::Thinking, RowOutcome::Ok, depth),
                    );
                }
                MessageBlock::ToolUse(call) => {
                    let row = self.push_row(
                        view,
                        StreamRow::new(seq, index, RowKind::Tool, RowOutcome::Open, depth),
                    );
                    self.call_rows.insert(call.id.as_ref().into(), row);
                }
                MessageBlock::Text(_)
                | MessageBlock::Thinking(_)
                | MessageBlock::ToolResult(_)
                | MessageBlock::Image(_)
                | MessageBlock::Unknown(_) => {}
            }
        }
    }

    fn system(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        system: &SystemLine<'_>,
        depth: u8,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let (kind, level) = match system {
            SystemLine::ApiRetry { .. }
            | SystemLine::Compacted { .. }
            | SystemLine::ModelFallback { .. }
            | SystemLine::Notice { .. } => (RowKind::Notice, Severity::Info),
            SystemLine::WritesLost { .. }
            | SystemLine::AuthStatus { error: Some(_) }
            | SystemLine::ConversationReset { .. } => (RowKind::Warning, Severity::Warning),
            SystemLine::Unknown(_) => {
                view.state.loss_counts.unknown += 1;
                return;
            }
            SystemLine::Task(task) => return self.task(view, entry, task, emit),
            SystemLine::PermissionDenied { .. }
            | SystemLine::Status { .. }
            | SystemLine::AuthStatus { error: None }
            | SystemLine::Other(_) => return,
        };
        if matches!(system, SystemLine::ApiRetry { .. }) {
            view.last_change.marks.add(ActivityMark::Retry);
        }
        self.push_row(
            view,
            StreamRow::new(entry.seq, 0, kind, RowOutcome::Ok, depth),
        );
        if let Some(text) = system_notice(system).filter(|text| !text.is_empty()) {
            self.emit_message(entry.at, level, &text, emit);
        }
    }

    /// Reports a text to sinks of events. The screen has a row for it.
    fn emit_message(
        &self,
        at: Millis,
        level: Severity,
        text: &str,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        if !self.translator.is_complete() && !self.is_unidentified {
            emit(SinkEvent::Message {
                at,
                unit: &self.key,
                attempt: self.number,
                level,
                text,
            });
        }
    }

    fn translate(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        (line, role): (&AgentLine<'_>, LineRole),
        calls: &[CallChange<'_>],
        bytes: &[u8],
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let (seq, at, key, attempt) = (entry.seq, entry.at, &self.key, self.number);
        let is_result = role == LineRole::Result;
        let again =
            matches!(&line.body, LineBody::Result(result) if self.repeats_last_text(result));
        let tasks = self.attempt(view).live.tasks.clone();
        let (reducer, mut completed) = (&self.reducer, None);
        self.translator
            .push((line, role), bytes, reducer.stream(), &mut |event| {
                completed = completion(&event).or(completed);
                let end = || end_detail(reducer, &event).filter(|_| is_result);
                let outcome_detail = call_detail(reducer.calls(), &event)
                    .or_else(|| background_detail(tasks.as_deref(), &event))
                    .or_else(end);
                if completed.is_some() {
                    tasks::emit_abandoned(tasks.as_deref(), (at, key, attempt), emit);
                }
                emit(SinkEvent::Agent {
                    entry: seq,
                    at,
                    unit: key,
                    attempt,
                    event,
                    outcome_detail,
                });
            });
        if is_result {
            self.apply_calls(view, seq, calls, 0);
        }
        if let Some(ok) = completed {
            self.complete(view, seq, ok, is_result);
        }
        if is_result {
            self.push_result_row(view, seq, again);
        }
    }

    /// A turn of a capture is over. A capture has no notes, so the turn's result decides until another turn begins.
    fn end_turn(&mut self, view: &mut RunView, entry: &EntryRef<'_>) {
        let facts = AttemptFacts {
            reported: self.reducer.reported_facts(),
            ..AttemptFacts::default()
        };
        let verdict = verdict::judge_attempt(&self.key, &facts, FailureRule::Strict);
        let status = status_for_verdict(&verdict);
        let attempt = self.attempt(view);
        attempt.ended_at = Some(entry.at);
        attempt.reported_ok = facts.reported.result.map(|result| !result.failed);
        attempt.verdict = Some(verdict);
        self.unit(view).status = status;
        self.transcript.turn_ended = Some(Box::new((entry.seq, entry.at)));
        if status == UnitStatus::BudgetExhausted {
            view.last_change.marks.add(ActivityMark::Limit);
        }
    }

    /// Another turn begins, so the result of the previous turn is no longer decisive.
    fn begin_turn(&mut self, view: &mut RunView) {
        if self.transcript.turn_ended.take().is_some() {
            let attempt = self.attempt(view);
            (attempt.ended_at, attempt.reported_ok, attempt.verdict) = (None, None, None);
            self.unit(view).status = UnitStatus::Running;
        }
    }
}

/// Returns the status of a unit after this verdict.
pub(super) fn status_for_verdict(verdict: &Verdict) -> UnitStatus {
    match (verdict.outcome, &verdict.stop, &verdict.cause) {
        (AttemptOutcome::Succeeded, StopReason::Budget, _)
        | (AttemptOutcome::Succeeded, _, VerdictCause::Budget) => UnitStatus::BudgetExhausted,
        (AttemptOutcome::Succeeded, ..) => UnitStatus::Succeeded,
        (AttemptOutcome::Failed, ..) => UnitStatus::Failed,
        (AttemptOutcome::Stopped, ..) => UnitStatus::Stopped,
    }
}

/// Returns the status of a unit after an attempt of a run. An agent that refused to start has not tried the unit.
pub(super) fn status_after_attempt(verdict: &Verdict) -> UnitStatus {
    match status_for_verdict(verdict) {
        UnitStatus::Failed if verdict.cause == VerdictCause::StartFailed => UnitStatus::NotStarted,
        status => status,
    }
}

/// Returns the detail of the attempt's result where `ok` alone would be misleading.
fn end_detail(reducer: &AttemptReducer, event: &AgentEvent<'_>) -> Option<OutcomeDetail> {
    let AgentEvent::Completed(completed) = event else {
        return None;
    };
    let result = reducer
        .result_facts()
        .filter(|result| result.failed != completed.ok)?;
    match (verdict::stop_reason(result), completed.ok) {
        (StopReason::Budget, false) => Some(OutcomeDetail::BudgetExhausted),
        (StopReason::Error, true) => Some(OutcomeDetail::Aborted),
        _ => None,
    }
}

/// Removes the wrapper around an error message.
fn unwrapped_error(text: Cow<'_, str>) -> Cow<'_, str> {
    match label::tool_error_reason(&text) {
        reason if *reason == *text => text,
        reason => Cow::Owned(reason.into_owned()),
    }
}

/// Returns the detail of a finished call that its event lacks.
fn call_detail(calls: &CallLedger, event: &AgentEvent<'_>) -> Option<OutcomeDetail> {
    let AgentEvent::Action(action) = event else {
        return None;
    };
    if action.phase != ActionPhase::Completed {
        return None;
    }
    match &action.action.detail {
        ActionDetail::Tool(_) if action.ok == Some(false) => calls
            .was_aborted(&action.action.id)
            .then_some(OutcomeDetail::Aborted),
        ActionDetail::Tool(_) => calls
            .is_declined(&action.action.id)
            .then_some(OutcomeDetail::Declined),
        // The agent reports a call that our interrupt ended as denied.
        ActionDetail::Denial {
            tool_use_id: Some(id),
            ..
        } => calls.was_aborted(id).then_some(OutcomeDetail::Aborted),
        _ => None,
    }
}

/// Returns the detail of a call with a result whose task runs in the background.
fn background_detail(
    tasks: Option<&Vec<AgentTask>>,
    event: &AgentEvent<'_>,
) -> Option<OutcomeDetail> {
    let AgentEvent::Action(action) = event else {
        return None;
    };
    let is_of_call = |task: &AgentTask| {
        task.call.as_deref() == Some(&*action.action.id) && task.is_in_background()
    };
    (action.ok == Some(true)
        && matches!(action.action.detail, ActionDetail::Tool(_))
        && tasks?.iter().any(is_of_call))
    .then_some(OutcomeDetail::Background)
}

/// The text with which Claude Code records that a person interrupted the agent.
fn interrupt_text(chat: &ChatLine<'_>) -> Option<String> {
    chat.blocks.iter().find_map(|block| match block {
        MessageBlock::Text(text) if is_interrupt_marker(&text.prefix(64).0) => {
            let text = text.text();
            let text = text.trim().trim_start_matches('[').trim_end_matches(']');
            Some(one_row(text, 80))
        }
        _ => None,
    })
}

/// Whether the attempt succeeded, if the event is its end.
fn completion(event: &AgentEvent<'_>) -> Option<bool> {
    match event {
        AgentEvent::Completed(completed) => Some(completed.ok),
        AgentEvent::Started(_) | AgentEvent::Action(_) => None,
    }
}

fn truncate_to_tail(text: &mut String) {
    if text.len() > MAX_LIVE_TEXT_BYTES {
        let mut cut = text.len() - MAX_LIVE_TEXT_BYTES;
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        text.drain(..cut);
    }
}
