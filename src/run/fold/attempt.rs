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
        Ended, Event, Identity, Part, Translator, Turns,
        label::{self, short_name},
    },
    decode::{
        Block, Body as Said, Chat, Line, ResultLine, Usage,
        line::{Delta, System},
    },
    run::{
        Arrived,
        chronicle::Mark,
        fold::{Aside, Emitted},
        reported::Reported,
        spent::{Bill, paid},
        state::{Attempt, LaneId, Limit, Row, RowEnd, RowKind, Story, Tokens, Unit, UnitStatus, push_compact},
    },
    tape::{
        Millis, Seq, UnitKey,
        note::{AttemptStarted, Cause, Outcome, StopReason, Verdict},
    },
    units::{
        cluster::headline,
        tally::FailureRule,
        verdict::{self, Facts},
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
    reported: Reported,
    /// A capture whose last turn is over: where and when.
    rests: Option<Box<(Seq, Millis)>>,
    /// Recent API messages with the highest usage seen of each.
    messages: Vec<(Box<str>, Tokens)>,
    /// Tokens of messages that are no longer remembered.
    settled: Tokens,
    bill: Bill,
}

/// A call without a result.
#[derive(Clone, Debug)]
struct OpenCall {
    row: usize,
    tool: Box<str>,
    /// It is a sub-agent's, which may outlive the turn.
    nested: bool,
}

impl LaneFold {
    pub(super) fn new(key: UnitKey, number: u32, turns: Turns, unit: usize, attempt: usize, lane: LaneId) -> Self {
        Self {
            translator: Translator::new(turns.clone()),
            reported: Reported::new(turns),
            rests: None,
            key,
            number,
            entries: 0,
            nameless: false,
            unit,
            attempt,
            lane,
            rows: 0,
            open: HashMap::new(),
            requests: OpenRequests::default(),
            fates: Fates::default(),
            failing: false,
            messages: Vec::new(),
            settled: Tokens::default(),
            bill: Bill::default(),
        }
    }

    /// A process of ours begins the attempt.
    pub(super) fn begin(&mut self, story: &mut Story, started: &AttemptStarted) {
        let Some(resumed) = started.resumed() else { return };
        self.resume(story, resumed.session);
        if !resumed.forked {
            self.translator.resume(Identity::resuming(resumed.session, started.tolerates_mismatch));
        }
    }

    /// The attempt continues a session that earlier attempts may have paid for.
    pub(super) fn resume(&mut self, story: &mut Story, session: &str) {
        let attempts = self.unit(story).attempts.iter().take(self.attempt).rev().take(SEARCHED_ATTEMPTS);
        let earlier = attempts.filter(|attempt| attempt.number < self.number);
        let same = earlier.filter(|attempt| attempt.session.as_deref() == Some(session));
        self.bill.resume(paid(same.map(|attempt| attempt.cost_usd)));
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
        let is_over = self.translator.is_complete() || self.translator.is_mismatch(line);
        let part = if is_over { Part::Trailing } else { self.reported.push(line) };
        match &line.body {
            Said::Init(_) | Said::Assistant(_) | Said::User(_) | Said::StreamEvent(_) | Said::Result(_)
                if part == Part::Trailing => {}
            Said::Init(init) => {
                self.wake(story);
                self.bill.release(init.version.as_deref());
                let attempt = self.attempt(story);
                attempt.model = init.model.as_deref().map(Arc::from);
                if attempt.session.is_none() {
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
        self.translate(story, arrived, (line, part), bytes, emit);
        if let (Part::Content, Some((_, at))) = (part, self.rests.as_deref_mut()) {
            // Work in the background goes on between turns, and nothing is told after the end.
            *at = arrived.at.max(*at);
        }
        if self.attempt(story).session.is_none() {
            // A session that must not answer is not the one that is continued.
            let done = self.translator.is_complete();
            let session = if done { self.translator.session() } else { self.translator.seen() };
            self.attempt(story).session = session.map(Arc::from);
        }
        if by_session && part == Part::Result && !self.translator.is_complete() {
            self.rest(story, arrived);
        }
    }

    /// The stream is over: whatever the translator still owes is emitted, and open rows are closed.
    pub(super) fn end(&mut self, story: &mut Story, seq: Seq, ended: &Ended, emit: &mut dyn FnMut(Emitted<'_>)) {
        let (seq, at) = self.rests.as_deref().copied().unwrap_or((seq, story.state.now));
        let (key, number) = (self.key.clone(), self.number);
        let has_row = self.reported.result().is_some() && !self.reported.turns().is_underway();
        let mut told = Told { has_row, ..Told::default() };
        let (fates, reported) = (&self.fates, &self.reported);
        self.translator.end(ended, &mut |event| {
            told.note(&event);
            let aside = fates.aside(&event).or_else(|| aside_of_end(reported, &event));
            emit(Emitted::Event { entry: seq, at, unit: &key, attempt: number, event, aside });
        });
        self.settle(story, seq, told);
    }

    /// True for a capture whose last turn is over, while nothing says that no other one follows.
    pub(super) fn is_at_rest(&self) -> bool {
        self.rests.is_some() && !self.translator.is_complete()
    }

    /// True for a message that an event of the attempt has given already.
    pub(super) fn has_warned(&self, text: &str) -> bool {
        self.translator.mismatch() == Some(text)
    }

    /// True once nothing belongs to the attempt any more.
    pub(super) fn is_complete(&self) -> bool {
        self.translator.is_complete()
    }

    /// It has a result, and no other turn is underway or expected.
    pub(super) fn has_last_result(&self) -> bool {
        self.reported.turns().is_complete()
    }

    /// No other turn follows the last one of a capture.
    pub(super) fn conclude(&mut self, story: &mut Story, emit: &mut dyn FnMut(Emitted<'_>)) {
        let Some((seq, at)) = self.rests.as_deref().copied() else { return };
        self.end(story, seq, &Ended::default(), emit);
        let Some(verdict) = self.attempt(story).verdict.clone() else { return };
        self.tell(at, status_of(&verdict), Some(&verdict.reason), emit);
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
            let line = match headline(&error) {
                line if line.is_empty() => "no error text".into(),
                line => line,
            };
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
                    self.open.insert(
                        call.id.as_ref().into(),
                        OpenCall { row, tool: call.name.as_ref().into(), nested: depth > 0 },
                    );
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
            System::Status { .. } | System::Task { .. } | System::AuthStatus { error: None } | System::Other(_) => {}
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
        self.bill.result(result);
        let cost = self.bill.cost();
        let attempt = self.attempt(story);
        attempt.forget_live();
        let known = std::mem::replace(&mut attempt.cost_usd, cost);
        // A result after an API failure says zero although tokens were spent.
        if let Some(totals) = totals.filter(|totals| *totals != Tokens::default()) {
            attempt.tokens = totals;
        }
        story.state.spent_usd += cost.unwrap_or_default() - known.unwrap_or_default();
    }

    fn translate(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        (line, part): (&Line<'_>, Part),
        bytes: &[u8],
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        let (entry, at, key, attempt) = (arrived.seq, arrived.at, &self.key, self.number);
        let mut told = Told { has_row: part == Part::Result, ..Told::default() };
        let again = matches!(&line.body, Said::Result(result) if self.has_said(result));
        let (fates, reported) = (&self.fates, &self.reported);
        let is_result = part == Part::Result;
        self.translator.push(line, bytes, &mut |event| {
            told.note(&event);
            let aside = fates.aside(&event).or_else(|| aside_of_end(reported, &event).filter(|_| is_result));
            emit(Emitted::Event { entry, at, unit: key, attempt, event, aside });
        });
        self.settle(story, arrived.seq, told);
        if part == Part::Result {
            self.result_row(story, arrived.seq, again);
        }
    }

    /// A turn of a capture is over. Its result decides, as there are no notes, until another turn begins.
    fn rest(&mut self, story: &mut Story, arrived: &Arrived<'_>) {
        let facts = self.reported.complete(Facts::default(), &self.translator.last_text());
        let verdict = verdict::decide(&self.key, &facts, FailureRule::Strict);
        let status = status_of(&verdict);
        let attempt = self.attempt(story);
        attempt.ended_at = Some(arrived.at);
        attempt.completed = facts.result.map(|result| !result.failed);
        attempt.verdict = Some(verdict);
        self.unit(story).status = status;
        self.rests = Some(Box::new((arrived.seq, arrived.at)));
        if status == UnitStatus::Budget {
            story.touch.marks.add(Mark::Limit);
        }
    }

    /// Another turn begins: the result of the last one decides no more.
    fn wake(&mut self, story: &mut Story) {
        if self.rests.take().is_some() {
            let attempt = self.attempt(story);
            (attempt.ended_at, attempt.completed, attempt.verdict) = (None, None, None);
            self.unit(story).status = UnitStatus::Running;
        }
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

/// What the result of an attempt comes to, where its `ok` says something else.
fn aside_of_end(reported: &Reported, event: &Event<'_>) -> Option<Aside> {
    let Event::Completed(completed) = event else { return None };
    let result = reported.result().filter(|result| result.failed != completed.ok)?;
    match (verdict::stop_reason(result), completed.ok) {
        (StopReason::Budget, false) => Some(Aside::Spent),
        (StopReason::Error, true) => Some(Aside::Cut),
        _ => None,
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
