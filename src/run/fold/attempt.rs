//! The fold of one attempt's lines: counts, rows, and the events of the translator.

mod failed_calls;
mod rows;

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use self::rows::TranslationSummary;
use super::{
    call_outcomes::CallOutcomes,
    silence::OpenRequests,
    token_math::{max_per_field, tokens},
};
use crate::{
    actions::{AgentEvent, LineRole, SessionIdentity, StreamEnd, Translator, TurnTracker, label},
    decode::{
        AgentLine, ChatLine, LineBody, MessageBlock, ResultLine, Usage,
        line::{StreamDelta, SystemLine},
    },
    run::{
        EntryRef,
        activity_index::ActivityMark,
        attempt_signals::AttemptSignals,
        fold::{FoldEvent, OutcomeDetail},
        spending::{AttemptCost, session_cost},
        state::{
            AttemptId, AttemptState, RowEnd, RowKind, RunView, StreamRow, TokenCounts, UnitState, UnitStatus,
            UsageWindow, push_compact,
        },
    },
    tape::{
        Millis, Seq, UnitKey,
        note::{AttemptOutcome, AttemptStarted, Cause, StopReason, Verdict},
    },
    units::{
        failure_tally::FailureRule,
        verdict::{self, AttemptFacts},
    },
};

/// Bytes of the model's text that are kept while it is being written.
const MAX_LIVE_TEXT_BYTES: usize = 2048;

/// Number of messages whose id and usage are kept; a stream interleaves only a few.
const MAX_RECENT_MESSAGES: usize = 16;

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
    attempt: usize,
    id: AttemptId,
    rows: usize,
    translator: Translator,
    /// Calls without a result, by id.
    open_calls: HashMap<Box<str>, OpenCall>,
    /// Requests of the agent that wait for an answer from `ingestdeck`.
    pub(super) open_requests: OpenRequests,
    call_outcomes: CallOutcomes,
    /// The session has announced its failure, so its failed end is not counted as a second failure.
    failure_announced: bool,
    signals: AttemptSignals,
    /// Entry and time of the end of the last turn, in a capture.
    turn_ended: Option<Box<(Seq, Millis)>>,
    /// Recent API messages with the highest usage seen for each.
    messages: Vec<(Box<str>, TokenCounts)>,
    /// Tokens of messages that are no longer in `messages`.
    evicted_tokens: TokenCounts,
    cost: AttemptCost,
}

#[derive(Clone, Debug)]
struct OpenCall {
    row: usize,
    tool: Box<str>,
    /// The call is made by a sub-agent and may outlive the turn.
    nested: bool,
}

impl AttemptFold {
    pub(super) fn new(
        key: UnitKey,
        number: u32,
        turns: TurnTracker,
        unit: usize,
        attempt: usize,
        attempt_id: AttemptId,
    ) -> Self {
        Self {
            translator: Translator::new(turns.clone()),
            signals: AttemptSignals::new(turns),
            turn_ended: None,
            key,
            number,
            entries: 0,
            is_unidentified: false,
            unit,
            attempt,
            id: attempt_id,
            rows: 0,
            open_calls: HashMap::new(),
            open_requests: OpenRequests::default(),
            call_outcomes: CallOutcomes::default(),
            failure_announced: false,
            messages: Vec::new(),
            evicted_tokens: TokenCounts::default(),
            cost: AttemptCost::default(),
        }
    }

    /// A new process begins the attempt.
    pub(super) fn begin(&mut self, view: &mut RunView, started: &AttemptStarted) {
        let Some(resumed) = started.resumed_session() else { return };
        self.resume(view, resumed.session);
        if !resumed.is_fork {
            self.translator.set_identity(SessionIdentity::resuming(resumed.session, started.tolerates_mismatch));
        }
    }

    /// The attempt continues a session that earlier attempts may have paid for.
    pub(super) fn resume(&mut self, view: &mut RunView, session: &str) {
        let attempts = self.unit(view).attempts.iter().take(self.attempt).rev().take(MAX_SEARCHED_ATTEMPTS);
        let earlier = attempts.filter(|attempt| attempt.number < self.number);
        let same = earlier.filter(|attempt| attempt.session.as_deref() == Some(session));
        self.cost.resume(session_cost(same.map(|attempt| attempt.cost_usd)));
    }

    pub(super) fn unit<'s>(&self, view: &'s mut RunView) -> &'s mut UnitState {
        &mut view.state.units[self.unit]
    }

    pub(super) fn attempt<'s>(&self, view: &'s mut RunView) -> &'s mut AttemptState {
        &mut view.state.units[self.unit].attempts[self.attempt]
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
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        emit(FoldEvent::Unit { at, unit: &self.key, attempt: self.number, status, reason });
    }

    pub(super) fn line(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        line: &AgentLine<'_>,
        bytes: &[u8],
        by_session: bool,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let seq = entry.seq;
        let depth = u8::from(line.parent_tool_use_id.is_some());
        let is_over = self.translator.is_complete() || self.translator.is_mismatch(line);
        let part = if is_over { LineRole::Trailing } else { self.signals.push(line) };
        match &line.body {
            LineBody::Init(_)
            | LineBody::Assistant(_)
            | LineBody::User(_)
            | LineBody::StreamEvent(_)
            | LineBody::Result(_)
                if part == LineRole::Trailing => {}
            LineBody::Init(init) => {
                self.begin_turn(view);
                self.cost.release(init.version.as_deref());
                let attempt = self.attempt(view);
                attempt.model = init.model.as_deref().map(Arc::from);
                if attempt.session.is_none() {
                    self.push_row(view, StreamRow::new(seq, 0, RowKind::Started, RowEnd::Ok, 0));
                }
            }
            LineBody::Assistant(chat) => self.assistant(view, seq, chat, depth),
            LineBody::User(chat) => self.user(view, seq, chat, depth),
            LineBody::StreamEvent(StreamDelta::Text(text)) if depth == 0 => {
                let live = &mut self.attempt(view).live_text;
                live.push_str(text);
                truncate_to_tail(live);
            }
            LineBody::StreamEvent(StreamDelta::Thinking(text)) if depth == 0 => {
                let live = &mut self.attempt(view).live_thinking;
                live.push_str(text);
                truncate_to_tail(live);
            }
            LineBody::StreamEvent(_) | LineBody::ToolProgress { .. } | LineBody::Control { .. } => {}
            LineBody::RateLimit(limit) => {
                if limit.status != "allowed" {
                    view.last_change.marks.add(ActivityMark::Limit);
                }
                view.state.usage_window = Some(UsageWindow {
                    name: limit.limit.as_deref().unwrap_or("usage").to_owned(),
                    status: limit.status.to_string(),
                    utilization: limit.utilization,
                    resets_at: limit.resets_at,
                });
                self.push_row(view, StreamRow::new(seq, 0, RowKind::Notice, RowEnd::Ok, depth));
            }
            LineBody::System(system) => self.system(view, seq, system, depth),
            LineBody::Result(result) => self.result(view, result),
            LineBody::Other(_) => view.state.loss_counts.unknown += 1,
            LineBody::Malformed => {
                view.state.loss_counts.malformed += 1;
                if view.state.loss_counts.malformed <= MAX_MALFORMED_ROWS {
                    self.push_row(view, StreamRow::new(seq, 0, RowKind::Warning, RowEnd::Failed, depth));
                }
            }
        }
        self.translate(view, entry, (line, part), bytes, emit);
        if let (LineRole::InTurn, Some((_, at))) = (part, self.turn_ended.as_deref_mut()) {
            // Work in the background continues between turns, and nothing is emitted after the end.
            *at = entry.at.max(*at);
        }
        if self.attempt(view).session.is_none() {
            // A session that must not answer is not the session that is continued.
            let done = self.translator.is_complete();
            let session = if done { self.translator.session() } else { self.translator.observed_session() };
            self.attempt(view).session = session.map(Arc::from);
        }
        if by_session && part == LineRole::Result && !self.translator.is_complete() {
            self.end_turn(view, entry);
        }
    }

    /// Handles the end of the stream: emits the pending events of the translator and closes open rows.
    pub(super) fn end(&mut self, view: &mut RunView, seq: Seq, ended: &StreamEnd, emit: &mut dyn FnMut(FoldEvent<'_>)) {
        let (seq, at) = self.turn_ended.as_deref().copied().unwrap_or((seq, view.state.last_entry_at));
        let (key, number) = (self.key.clone(), self.number);
        let has_row = self.signals.result().is_some() && !self.signals.turns().is_in_turn();
        let mut summary = TranslationSummary { has_row, ..TranslationSummary::default() };
        let (call_outcomes, reported) = (&self.call_outcomes, &self.signals);
        self.translator.finish(ended, &mut |event| {
            summary.observe(&event);
            let aside = call_outcomes.detail_for(&event).or_else(|| end_detail(reported, &event));
            emit(FoldEvent::Event { entry: seq, at, unit: &key, attempt: number, event, aside });
        });
        self.apply_translation(view, seq, summary);
    }

    /// True for a capture whose last turn is over, while another turn may still follow.
    pub(super) fn is_between_turns(&self) -> bool {
        self.turn_ended.is_some() && !self.translator.is_complete()
    }

    /// True if an event of the attempt has already reported this message.
    pub(super) fn has_warned(&self, text: &str) -> bool {
        self.translator.mismatch() == Some(text)
    }

    /// True if no later line belongs to the attempt.
    pub(super) fn is_complete(&self) -> bool {
        self.translator.is_complete()
    }

    /// True if the attempt has a result, and no other turn is running or expected.
    pub(super) fn has_last_result(&self) -> bool {
        self.signals.turns().is_complete()
    }

    /// Concludes a capture: no other turn follows the last one.
    pub(super) fn conclude_capture(&mut self, view: &mut RunView, emit: &mut dyn FnMut(FoldEvent<'_>)) {
        let Some((seq, at)) = self.turn_ended.as_deref().copied() else { return };
        self.end(view, seq, &StreamEnd::default(), emit);
        let Some(verdict) = self.attempt(view).verdict.clone() else { return };
        self.emit_status(at, status_for_verdict(&verdict), Some(&verdict.reason), emit);
    }

    /// Updates the unit's status according to whether a call waits for a person.
    pub(super) fn sync_hold_status(
        &self,
        view: &mut RunView,
        at: Millis,
        reason: Option<&str>,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let waits = !self.attempt(view).held_calls.is_empty();
        let unit = self.unit(view);
        let status = match unit.status {
            UnitStatus::Running | UnitStatus::Silent if waits => UnitStatus::Held,
            UnitStatus::Held if !waits => UnitStatus::Running,
            _ => return,
        };
        unit.status = status;
        self.emit_status(at, status, reason, emit);
    }

    fn assistant(&mut self, view: &mut RunView, seq: Seq, chat: &ChatLine<'_>, depth: u8) {
        if depth == 0 {
            self.attempt(view).clear_live_text();
            if chat.model.as_deref() != Some("<synthetic>") {
                self.message(view, chat);
            }
        }
        if depth == 0 {
            let has_text = |block: &MessageBlock<'_>| matches!(block, MessageBlock::Text(text) if !text.is_blank());
            self.failure_announced = chat.error.is_some() && chat.blocks.iter().any(has_text);
        }
        for (index, block) in chat.blocks.iter().enumerate() {
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            match block {
                MessageBlock::Text(text) if !text.is_blank() => {
                    let end = if chat.error.is_some() { RowEnd::Failed } else { RowEnd::Ok };
                    self.push_row(view, StreamRow::new(seq, index, RowKind::Text, end, depth));
                }
                MessageBlock::Thinking(text) if !text.is_blank() => {
                    self.push_row(view, StreamRow::new(seq, index, RowKind::Thinking, RowEnd::Ok, depth));
                }
                MessageBlock::ToolUse(call) => {
                    let row = self.push_row(view, StreamRow::new(seq, index, RowKind::Tool, RowEnd::Open, depth));
                    self.open_calls.insert(
                        call.id.as_ref().into(),
                        OpenCall { row, tool: call.name.as_ref().into(), nested: depth > 0 },
                    );
                    let open = u32::try_from(self.open_calls.len()).unwrap_or(u32::MAX);
                    let attempt = self.attempt(view);
                    attempt.calls += 1;
                    attempt.open_calls = open;
                }
                MessageBlock::Text(_)
                | MessageBlock::Thinking(_)
                | MessageBlock::ToolResult(_)
                | MessageBlock::Image(_)
                | MessageBlock::Unknown(_) => {}
            }
        }
    }

    fn user(&mut self, view: &mut RunView, seq: Seq, chat: &ChatLine<'_>, depth: u8) {
        for block in &chat.blocks {
            let MessageBlock::ToolResult(result) = block else { continue };
            let id = result.tool_use_id.as_ref();
            let end = self.call_outcomes.result_end(id, chat.refused.contains(&result.tool_use_id), result.is_error);
            if end == RowEnd::Denied {
                self.count_denial(view, id);
            }
            if matches!(end, RowEnd::Failed | RowEnd::Denied) {
                self.count_failure(view, Some(id));
            }
            let call = self.open_calls.remove(id);
            if matches!(end, RowEnd::Failed | RowEnd::Denied) {
                self.record_first_failure(view, call.as_ref().map(|call| &*call.tool), || {
                    unwrapped_error(result.text())
                });
            }
            match call {
                Some(call) => self.close_row(view, call.row, seq, end),
                None => {
                    // A result without its call gets a row, too.
                    self.push_row(view, StreamRow::new(seq, 0, RowKind::Tool, end, depth));
                }
            }
            self.attempt(view).open_calls = u32::try_from(self.open_calls.len()).unwrap_or(u32::MAX);
        }
    }

    fn system(&mut self, view: &mut RunView, seq: Seq, system: &SystemLine<'_>, depth: u8) {
        match system {
            SystemLine::PermissionDenied { tool_use_id, .. } => self.record_denial(view, seq, tool_use_id, depth),
            SystemLine::ApiRetry { .. }
            | SystemLine::Compacted { .. }
            | SystemLine::ModelFallback { .. }
            | SystemLine::Notice { .. } => {
                if matches!(system, SystemLine::ApiRetry { .. }) {
                    view.last_change.marks.add(ActivityMark::Retry);
                }
                self.push_row(view, StreamRow::new(seq, 0, RowKind::Notice, RowEnd::Ok, depth));
            }
            SystemLine::WritesLost { .. }
            | SystemLine::AuthStatus { error: Some(_) }
            | SystemLine::ConversationReset { .. } => {
                self.push_row(view, StreamRow::new(seq, 0, RowKind::Warning, RowEnd::Ok, depth));
            }
            SystemLine::Unknown(_) => view.state.loss_counts.unknown += 1,
            SystemLine::Status { .. }
            | SystemLine::Task { .. }
            | SystemLine::AuthStatus { error: None }
            | SystemLine::Other(_) => {}
        }
    }

    /// Counts turns and live tokens by distinct message id.
    fn message(&mut self, view: &mut RunView, chat: &ChatLine<'_>) {
        let usage = chat.usage.map(tokens).unwrap_or_default();
        let known =
            chat.message_id.as_deref().and_then(|id| self.messages.iter_mut().find(|(known, _)| ids_equal(known, id)));
        match known {
            Some((_, seen)) => *seen = max_per_field(*seen, usage),
            None => {
                self.attempt(view).turns += 1;
                if self.messages.len() == MAX_RECENT_MESSAGES {
                    let (_, gone) = self.messages.remove(0);
                    self.evicted_tokens = self.evicted_tokens.plus(gone);
                }
                // Each line without a message id counts as a turn, so it must not match a later one.
                push_compact(&mut self.messages, (chat.message_id.as_deref().unwrap_or("").into(), usage));
                if chat.message_id.is_none() {
                    let (_, gone) = self.messages.pop().unwrap_or_default();
                    self.evicted_tokens = self.evicted_tokens.plus(gone);
                }
            }
        }
        let total = self.messages.iter().fold(self.evicted_tokens, |total, (_, usage)| total.plus(*usage));
        self.attempt(view).tokens = total;
    }

    fn result(&mut self, view: &mut RunView, result: &ResultLine<'_>) {
        let totals = result.usage.map(|usage| tokens(Usage::from_raw(usage)));
        self.cost.result(result);
        let cost = self.cost.cost();
        let attempt = self.attempt(view);
        attempt.clear_live_text();
        let known = std::mem::replace(&mut attempt.cost_usd, cost);
        // A result after an API failure reports zero although tokens were used.
        if let Some(totals) = totals.filter(|totals| *totals != TokenCounts::default()) {
            attempt.tokens = totals;
        }
        view.state.spent_usd += cost.unwrap_or_default() - known.unwrap_or_default();
    }

    fn translate(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        (line, part): (&AgentLine<'_>, LineRole),
        bytes: &[u8],
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let (seq, at, key, attempt) = (entry.seq, entry.at, &self.key, self.number);
        let mut summary = TranslationSummary { has_row: part == LineRole::Result, ..TranslationSummary::default() };
        let again = matches!(&line.body, LineBody::Result(result) if self.repeats_last_text(result));
        let (call_outcomes, reported) = (&self.call_outcomes, &self.signals);
        let is_result = part == LineRole::Result;
        self.translator.push(line, bytes, &mut |event| {
            summary.observe(&event);
            let aside = call_outcomes.detail_for(&event).or_else(|| end_detail(reported, &event).filter(|_| is_result));
            emit(FoldEvent::Event { entry: seq, at, unit: key, attempt, event, aside });
        });
        self.apply_translation(view, entry.seq, summary);
        if part == LineRole::Result {
            self.push_result_row(view, entry.seq, again);
        }
    }

    /// A turn of a capture is over. A capture has no notes, so the turn's result decides until another turn begins.
    fn end_turn(&mut self, view: &mut RunView, entry: &EntryRef<'_>) {
        let facts = self.signals.fill_facts(AttemptFacts::default(), &self.translator.last_text());
        let verdict = verdict::judge_attempt(&self.key, &facts, FailureRule::Strict);
        let status = status_for_verdict(&verdict);
        let attempt = self.attempt(view);
        attempt.ended_at = Some(entry.at);
        attempt.completed = facts.result.map(|result| !result.failed);
        attempt.verdict = Some(verdict);
        self.unit(view).status = status;
        self.turn_ended = Some(Box::new((entry.seq, entry.at)));
        if status == UnitStatus::BudgetExhausted {
            view.last_change.marks.add(ActivityMark::Limit);
        }
    }

    /// Another turn begins, so the result of the previous turn is no longer decisive.
    fn begin_turn(&mut self, view: &mut RunView) {
        if self.turn_ended.take().is_some() {
            let attempt = self.attempt(view);
            (attempt.ended_at, attempt.completed, attempt.verdict) = (None, None, None);
            self.unit(view).status = UnitStatus::Running;
        }
    }

    fn count_denial(&mut self, view: &mut RunView, id: &str) {
        if self.call_outcomes.mark_denied(id) {
            self.attempt(view).denials += 1;
        }
    }
}

/// Returns the status of a unit after this verdict.
pub(super) fn status_for_verdict(verdict: &Verdict) -> UnitStatus {
    match (verdict.outcome, &verdict.stop, &verdict.cause) {
        (AttemptOutcome::Succeeded, StopReason::Budget, _) | (AttemptOutcome::Succeeded, _, Cause::Budget) => {
            UnitStatus::BudgetExhausted
        }
        (AttemptOutcome::Succeeded, ..) => UnitStatus::Succeeded,
        (AttemptOutcome::Failed, ..) => UnitStatus::Failed,
        (AttemptOutcome::Stopped, ..) => UnitStatus::Stopped,
    }
}

/// Returns the detail of the attempt's result where `ok` alone would be misleading.
fn end_detail(reported: &AttemptSignals, event: &AgentEvent<'_>) -> Option<OutcomeDetail> {
    let AgentEvent::Completed(completed) = event else { return None };
    let result = reported.result().filter(|result| result.failed != completed.ok)?;
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

/// Compares from the end: ids of one kind have the same length and prefix, so most differ in the last bytes.
fn ids_equal(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().rev().eq(b.bytes().rev())
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
