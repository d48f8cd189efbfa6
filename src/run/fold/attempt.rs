//! The fold of one attempt's lines: counts, rows, and the translator's events passed on.

mod rows;

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use self::rows::Told;
use super::{
    fates::Fates,
    silence::OpenRequests,
    usage::{larger, tokens},
};
use crate::{
    actions::{
        Ended, Translator,
        label::{self, short_name},
    },
    decode::{
        Block, Body as Said, Chat, Line, ResultLine, Usage,
        line::{Delta, System},
    },
    run::{
        Arrived,
        chronicle::Mark,
        fold::Emitted,
        spent,
        state::{Attempt, LaneId, Limit, Row, RowEnd, RowKind, Story, Tokens, Unit, UnitStatus, push_compact},
    },
    tape::{
        Millis, Seq, UnitKey,
        note::{Cause, Outcome, StopReason, Verdict},
    },
    units::{
        tally::FailureRule,
        verdict::{self, Facts, ResultFacts},
    },
};

/// Text of the model that is kept while it is being written.
const LIVE_TEXT: usize = 2048;

/// Messages whose id and usage are remembered; a stream interleaves a few at most.
const RECENT_MESSAGES: usize = 16;

/// Malformed lines of a record that get rows of their own; more are counted only. They can be as short as a byte, so that a
/// row would cost many times what they do.
pub(super) const MALFORMED_ROWS: u64 = 10_000;

/// Attempts before one that are searched for what its session has cost already.
const SEARCHED_ATTEMPTS: usize = 256;

/// What must be remembered of one attempt between entries.
#[derive(Clone, Debug)]
pub(super) struct LaneFold {
    pub(super) key: UnitKey,
    pub(super) number: u32,
    /// Entries of the lane that were folded.
    pub(super) entries: usize,
    /// No session id was seen yet, and no plan named the unit.
    pub(super) nameless: bool,
    unit: usize,
    attempt: usize,
    lane: LaneId,
    rows: usize,
    translator: Translator,
    /// Calls without a result, by id.
    open: HashMap<Box<str>, OpenCall>,
    /// What the agent waits for on our side.
    pub(super) requests: OpenRequests,
    fates: Fates,
    /// The session told that it fails: that it then ends so is no second failure.
    failing: bool,
    /// The last result tells that turns or money are spent.
    spent: bool,
    /// Recent API messages with the highest usage seen of each.
    messages: Vec<(Box<str>, Tokens)>,
    /// Tokens of messages that are no longer remembered.
    settled: Tokens,
    api_error: ApiError,
    /// What the session had cost before this attempt went on with it.
    cost_before: f64,
}

/// A call without a result.
#[derive(Clone, Debug)]
struct OpenCall {
    row: usize,
    tool: Box<str>,
}

/// What the last failed API call said, for the verdict of a capture.
#[derive(Clone, Debug, Default)]
struct ApiError {
    class: Option<String>,
    api_error: Option<String>,
    status: Option<u64>,
    resets_at: Option<i64>,
    text: Option<String>,
}

impl LaneFold {
    pub(super) fn new(key: UnitKey, number: u32, unit: usize, attempt: usize, lane: LaneId) -> Self {
        Self {
            key,
            number,
            entries: 0,
            nameless: false,
            unit,
            attempt,
            lane,
            rows: 0,
            translator: Translator::new(None, None),
            open: HashMap::new(),
            requests: OpenRequests::default(),
            fates: Fates::default(),
            failing: false,
            spent: false,
            messages: Vec::new(),
            settled: Tokens::default(),
            api_error: ApiError::default(),
            cost_before: 0.0,
        }
    }

    /// The attempt goes on with a session that earlier attempts have paid for. Their bill comes again with its own.
    pub(super) fn resumes(&mut self, story: &mut Story, session: Option<&str>) {
        let attempts = self.unit(story).attempts.iter().take(self.attempt).rev().take(SEARCHED_ATTEMPTS);
        let earlier = attempts.filter(|attempt| attempt.number < self.number);
        let paid = earlier.filter(|attempt| session.is_some() && attempt.session.as_deref() == session);
        self.cost_before = paid.filter_map(|attempt| attempt.cost_usd).sum();
    }

    pub(super) fn unit<'s>(&self, story: &'s mut Story) -> &'s mut Unit {
        &mut story.state.units[self.unit]
    }

    pub(super) fn attempt<'s>(&self, story: &'s mut Story) -> &'s mut Attempt {
        &mut story.state.units[self.unit].attempts[self.attempt]
    }

    /// Takes the name of the session that turned up.
    pub(super) fn adopt(&mut self, story: &mut Story, key: UnitKey) {
        self.unit(story).key = key.clone();
        self.key = key;
    }

    /// A capture's unit runs from its first line. True the first time.
    pub(super) fn announce(&self, story: &mut Story) -> bool {
        let unit = self.unit(story);
        let first = unit.status == UnitStatus::Queued;
        if first {
            unit.status = UnitStatus::Running;
        }
        first
    }

    /// Tells the status of the unit.
    pub(super) fn tell(&self, at: Millis, status: UnitStatus, reason: Option<&str>, emit: &mut dyn FnMut(Emitted<'_>)) {
        emit(Emitted::Unit { at, unit: &self.key, attempt: self.number, status, reason });
    }

    /// Folds one stdout line.
    pub(super) fn line(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        line: &Line<'_>,
        bytes: &[u8],
        by_session: bool,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        let seq = arrived.seq;
        let depth = u8::from(line.parent_tool_use_id.is_some());
        match &line.body {
            Said::Init(init) => {
                if !init.version.as_deref().is_some_and(spent::bills_again) {
                    self.cost_before = 0.0;
                }
                let attempt = self.attempt(story);
                attempt.model = init.model.as_deref().map(Arc::from);
                if attempt.session.is_none() {
                    attempt.session = line.session_id.as_deref().map(Arc::from);
                    self.push_row(story, Row::new(seq, 0, RowKind::Started, RowEnd::Ok, 0));
                }
            }
            Said::Assistant(chat) => self.assistant(story, seq, chat, depth),
            Said::User(chat) => self.user(story, seq, chat, depth),
            Said::StreamEvent(Delta::Text(text)) if depth == 0 => {
                let live = &mut self.attempt(story).live_text;
                live.push_str(text);
                keep_tail(live);
            }
            Said::StreamEvent(Delta::Thinking(text)) if depth == 0 => {
                let live = &mut self.attempt(story).live_thinking;
                live.push_str(text);
                keep_tail(live);
            }
            Said::StreamEvent(_) | Said::ToolProgress { .. } | Said::Control { .. } => {}
            Said::RateLimit(limit) => {
                if limit.status == "rejected" {
                    self.api_error.resets_at = limit.resets_at;
                }
                if limit.status != "allowed" {
                    story.touch.marks.add(Mark::Limit);
                }
                story.state.limit = Some(Limit {
                    name: limit.limit.as_deref().unwrap_or("usage").to_owned(),
                    status: limit.status.to_string(),
                    utilization: limit.utilization,
                    resets_at: limit.resets_at,
                });
                self.push_row(story, Row::new(seq, 0, RowKind::Notice, RowEnd::Ok, depth));
            }
            Said::System(system) => self.system(story, seq, system, depth),
            Said::Result(result) => self.result(story, result),
            Said::Other(_) => story.state.lost.unknown += 1,
            Said::Malformed => {
                story.state.lost.malformed += 1;
                if story.state.lost.malformed <= MALFORMED_ROWS {
                    self.push_row(story, Row::new(seq, 0, RowKind::Warning, RowEnd::Failed, depth));
                }
            }
        }
        if self.attempt(story).session.is_none() {
            self.attempt(story).session = line.session_id.as_deref().map(Arc::from);
        }
        self.translate(story, arrived, line, bytes, emit);
        if by_session && self.translator.is_complete() && self.attempt(story).verdict.is_none() {
            self.judge(story, line, arrived.at, emit);
        }
    }

    /// The stream is over: whatever the translator still owes is emitted, and open rows are closed.
    pub(super) fn end(&mut self, story: &mut Story, seq: Seq, ended: &Ended, emit: &mut dyn FnMut(Emitted<'_>)) {
        let (at, key, number) = (story.state.now, self.key.clone(), self.number);
        // A result that another turn might have followed completes only now.
        let mut told = Told { spent: self.spent, ..Told::default() };
        let fates = &self.fates;
        self.translator.end(ended, &mut |event| {
            told.note(&event);
            let aside = fates.aside(&event);
            emit(Emitted::Event { entry: seq, at, unit: &key, attempt: number, event, aside });
        });
        self.settle(story, seq, told);
    }

    /// Brings the unit's status in line with whether a call waits for a person.
    pub(super) fn settle_hold(
        &self,
        story: &mut Story,
        at: Millis,
        reason: Option<&str>,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        let waits = !self.attempt(story).held.is_empty();
        let unit = self.unit(story);
        let status = match unit.status {
            UnitStatus::Running | UnitStatus::Silent if waits => UnitStatus::Held,
            UnitStatus::Held if !waits => UnitStatus::Running,
            _ => return,
        };
        unit.status = status;
        self.tell(at, status, reason, emit);
    }

    /// Counts a failed call once, whoever reports it.
    pub(super) fn count_failure(&mut self, story: &mut Story, id: Option<&str>) {
        if id.is_none_or(|id| self.fates.fails(id)) {
            self.attempt(story).failures += 1;
        }
    }

    /// A person refused a call: it counts as denied, and what the agent says of it is no failure.
    pub(super) fn refused(&mut self, story: &mut Story, id: &str) {
        self.count_denial(story, id);
        if self.fates.fails(id) {
            self.attempt(story).refused += 1;
        }
    }

    /// A tool did not carry out a call.
    pub(super) fn declined(&mut self, story: &mut Story, id: Option<&str>) {
        if id.is_none_or(|id| self.fates.declines(id)) {
            self.attempt(story).declined += 1;
        }
    }

    /// We end the attempt: calls without a result will have none of their own.
    pub(super) fn cut_short(&mut self) {
        self.fates.cut_short();
    }

    /// Keeps the first failure in words.
    pub(super) fn tell_failure<'a>(&self, story: &mut Story, tool: Option<&str>, error: impl FnOnce() -> Cow<'a, str>) {
        const KEPT: usize = 300;
        let attempt = self.attempt(story);
        if attempt.first_failure.is_none() {
            let error = error();
            let line = error.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no error text");
            let tool = tool.map(|tool| format!("{}: ", short_name(tool))).unwrap_or_default();
            attempt.first_failure = Some(tool.chars().chain(line.chars()).take(KEPT).collect::<String>().into());
        }
    }

    fn assistant(&mut self, story: &mut Story, seq: Seq, chat: &Chat<'_>, depth: u8) {
        if depth == 0 {
            self.attempt(story).forget_live();
            if chat.model.as_deref() != Some("<synthetic>") {
                self.message(story, chat);
            }
        }
        if chat.error.is_some() || chat.api_error.is_some() {
            let text = chat.blocks.iter().find_map(|block| match block {
                Block::Text(text) => Some(text.read().into_owned()),
                _ => None,
            });
            self.api_error.class = chat.error.as_deref().map(str::to_owned);
            self.api_error.api_error = chat.api_error.as_deref().map(str::to_owned);
            self.api_error.status = chat.api_error_status;
            self.api_error.text = text;
        }
        if depth == 0 {
            let said = |block: &Block<'_>| matches!(block, Block::Text(text) if !text.is_blank());
            self.failing = chat.error.is_some() && chat.blocks.iter().any(said);
        }
        for (index, block) in chat.blocks.iter().enumerate() {
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            match block {
                Block::Text(text) if !text.is_blank() => {
                    let end = if chat.error.is_some() { RowEnd::Failed } else { RowEnd::Ok };
                    self.push_row(story, Row::new(seq, index, RowKind::Text, end, depth));
                }
                Block::Thinking(text) if !text.is_blank() => {
                    self.push_row(story, Row::new(seq, index, RowKind::Thinking, RowEnd::Ok, depth));
                }
                Block::ToolUse(call) => {
                    let row = self.push_row(story, Row::new(seq, index, RowKind::Tool, RowEnd::Open, depth));
                    self.open.insert(call.id.as_ref().into(), OpenCall { row, tool: call.name.as_ref().into() });
                    let open = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
                    let attempt = self.attempt(story);
                    attempt.calls += 1;
                    attempt.open_calls = open;
                }
                Block::Text(_) | Block::Thinking(_) | Block::ToolResult(_) | Block::Image(_) | Block::Unknown(_) => {}
            }
        }
    }

    fn user(&mut self, story: &mut Story, seq: Seq, chat: &Chat<'_>, depth: u8) {
        for block in &chat.blocks {
            let Block::ToolResult(result) = block else { continue };
            let id = result.tool_use_id.as_ref();
            let end = self.fates.of_result(id, chat.refused.contains(&result.tool_use_id), result.is_error);
            if end == RowEnd::Denied {
                self.count_denial(story, id);
            }
            if matches!(end, RowEnd::Failed | RowEnd::Denied) {
                self.count_failure(story, Some(id));
            }
            let call = self.open.remove(id);
            if matches!(end, RowEnd::Failed | RowEnd::Denied) {
                self.tell_failure(story, call.as_ref().map(|call| &*call.tool), || why(result.text()));
            }
            match call {
                Some(call) => self.close_row(story, call.row, seq, end),
                None => {
                    // A result without its call still has to be seen.
                    self.push_row(story, Row::new(seq, 0, RowKind::Tool, end, depth));
                }
            }
            self.attempt(story).open_calls = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        }
    }

    fn system(&mut self, story: &mut Story, seq: Seq, system: &System<'_>, depth: u8) {
        match system {
            System::PermissionDenied { tool_use_id, .. } => self.tell_denial(story, seq, tool_use_id, depth),
            System::ApiRetry { .. }
            | System::Compacted { .. }
            | System::ModelFallback { .. }
            | System::Notice { .. } => {
                if matches!(system, System::ApiRetry { .. }) {
                    story.touch.marks.add(Mark::Retry);
                }
                self.push_row(story, Row::new(seq, 0, RowKind::Notice, RowEnd::Ok, depth));
            }
            System::WritesLost { .. } | System::AuthStatus { error: Some(_) } | System::ConversationReset { .. } => {
                self.push_row(story, Row::new(seq, 0, RowKind::Warning, RowEnd::Ok, depth));
            }
            System::Unknown(_) => story.state.lost.unknown += 1,
            System::Task { .. } | System::AuthStatus { error: None } | System::Other(_) => {}
        }
    }

    /// Counts turns and live tokens by distinct message id.
    fn message(&mut self, story: &mut Story, chat: &Chat<'_>) {
        let usage = chat.usage.map(tokens).unwrap_or_default();
        let known =
            chat.message_id.as_deref().and_then(|id| self.messages.iter_mut().find(|(known, _)| is_same(known, id)));
        match known {
            Some((_, seen)) => *seen = larger(*seen, usage),
            None => {
                self.attempt(story).turns += 1;
                if self.messages.len() == RECENT_MESSAGES {
                    let (_, gone) = self.messages.remove(0);
                    self.settled = self.settled.plus(gone);
                }
                // A message without an id is one turn a line, so it must not match a later one.
                push_compact(&mut self.messages, (chat.message_id.as_deref().unwrap_or("").into(), usage));
                if chat.message_id.is_none() {
                    let (_, gone) = self.messages.pop().unwrap_or_default();
                    self.settled = self.settled.plus(gone);
                }
            }
        }
        let total = self.messages.iter().fold(self.settled, |total, (_, usage)| total.plus(*usage));
        self.attempt(story).tokens = total;
    }

    fn result(&mut self, story: &mut Story, result: &ResultLine<'_>) {
        let totals = result.usage.map(|usage| tokens(Usage::of(usage)));
        let before = self.cost_before;
        let attempt = self.attempt(story);
        attempt.forget_live();
        let cost = result.total_cost_usd.filter(|cost| cost.is_finite()).map(|cost| (cost - before).max(0.0));
        let known = attempt.cost_usd;
        if cost.is_some() {
            attempt.cost_usd = cost;
        }
        // A result after an API failure says zero although tokens were spent.
        if let Some(totals) = totals.filter(|totals| *totals != Tokens::default()) {
            attempt.tokens = totals;
        }
        if let Some(cost) = cost {
            story.state.spent_usd += cost - known.unwrap_or_default();
        }
    }

    fn translate(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        line: &Line<'_>,
        bytes: &[u8],
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        let (entry, at, key, attempt) = (arrived.seq, arrived.at, &self.key, self.number);
        let mut told = match &line.body {
            Said::Result(result) => {
                self.spent = verdict::stop_reason(&facts_of(result)) == StopReason::Budget;
                Told { again: self.has_said(result), spent: self.spent, ..Told::default() }
            }
            _ => Told::default(),
        };
        let fates = &self.fates;
        self.translator.push(line, bytes, &mut |event| {
            told.note(&event);
            let aside = fates.aside(&event);
            emit(Emitted::Event { entry, at, unit: key, attempt, event, aside });
        });
        self.settle(story, arrived.seq, told);
    }

    /// The verdict of a captured session: its result decides, as there are no notes.
    fn judge(&self, story: &mut Story, line: &Line<'_>, at: Millis, emit: &mut dyn FnMut(Emitted<'_>)) {
        let result = match &line.body {
            Said::Result(result) => Some(facts_of(result)),
            _ => None,
        };
        let facts = Facts {
            result,
            error_class: self.api_error.class.clone(),
            api_error: self.api_error.api_error.clone(),
            api_status: self.api_error.status,
            last_text: self.api_error.text.clone(),
            limit_resets_at: self.api_error.resets_at,
            ..Facts::default()
        };
        let verdict = verdict::decide(&self.key, &facts, FailureRule::Strict);
        let status = status_of(&verdict);
        let reason = verdict.reason.clone();
        let attempt = self.attempt(story);
        attempt.ended_at = Some(at);
        attempt.verdict = Some(verdict);
        self.unit(story).status = status;
        if status == UnitStatus::Budget {
            story.touch.marks.add(Mark::Limit);
        }
        self.tell(at, status, Some(&reason), emit);
    }

    fn count_denial(&mut self, story: &mut Story, id: &str) {
        if self.fates.denies(id) {
            self.attempt(story).denials += 1;
        }
    }
}

/// The status that a verdict leaves a unit in.
pub(super) fn status_of(verdict: &Verdict) -> UnitStatus {
    match (verdict.outcome, &verdict.stop, &verdict.cause) {
        (Outcome::Succeeded, StopReason::Budget, _) | (Outcome::Succeeded, _, Cause::Budget) => UnitStatus::Budget,
        (Outcome::Succeeded, ..) => UnitStatus::Succeeded,
        (Outcome::Failed, ..) => UnitStatus::Failed,
        (Outcome::Stopped, ..) => UnitStatus::Stopped,
    }
}

fn facts_of(result: &ResultLine<'_>) -> ResultFacts {
    let owned = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
    ResultFacts {
        subtype: owned(&result.subtype),
        is_error: result.is_error,
        terminal_reason: owned(&result.terminal_reason),
        stop_reason: owned(&result.stop_reason),
        text: owned(&result.result),
        errors: owned(&result.error).or_else(|| (!result.errors.is_empty()).then(|| result.errors.join("; "))),
        api_status: result.api_error_status,
    }
}

/// An error without what is wrapped around it.
fn why(text: Cow<'_, str>) -> Cow<'_, str> {
    match label::reason(&text) {
        reason if *reason == *text => text,
        reason => Cow::Owned(reason.into_owned()),
    }
}

/// Ids of one kind are of one length and begin alike, so most differ at once when compared from the end.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().rev().eq(b.bytes().rev())
}

fn keep_tail(text: &mut String) {
    if text.len() > LIVE_TEXT {
        let mut cut = text.len() - LIVE_TEXT;
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        text.drain(..cut);
    }
}
