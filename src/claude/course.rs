//! The course of one attempt, as a state machine without I/O: what happened goes in, [`Step`]s come out.
//!
//! Opening, proving the isolation, working, over. Timers are steps too. It must not know processes, pipes or clocks;
//! `unit` carries the steps out.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    actions::{Identity, Sighting},
    decode::{
        Body, Line,
        line::{Init, System},
    },
    tape::{
        Note,
        note::{IsolationChecked, Level, StopHow},
    },
    units::verdict::{Facts, Isolation, TimedOut},
};

/// Characters of a tool's answer that a note of ours keeps.
const DECLINED: usize = 300;

use super::{
    control::{Ask, Control, Decision, Effect, Frame, HeldCall, user_message},
    gather::Gather,
    isolation::{self, Allowed, ForeignCalls},
    mcp::FromServer,
    process::{Ended, Patience, Rung},
    unit::{Command, deadline::WaitsFor},
};

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Write a line to the agent.
    Write(Frame),
    /// Close its stdin: there will be no more work.
    Close,
    /// Hand a message to the tool server.
    Serve(Value),
    /// Ask the gate about a call.
    Hold(String, HeldCall),
    /// The agent no longer waits for the gate.
    Release(String),
    /// Signal the process group.
    Signal(Signal),
    /// Put a fact of ours on the tape.
    Record(Note),
    /// Start-up is over.
    Started,
    /// Come back with this alarm, unless another is set before.
    Wake(Alarm),
    /// Do not wait for the process any longer.
    Leave,
}

/// Why to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// The agent did not begin: the conversation, or the turn that it was asked for.
    Unopened,
    /// The agent did not say which settings it has read, at the start or later.
    Unanswered,
    /// It had time to end by itself.
    Lingered,
    /// The last step of the ladder did not help.
    Unmoved,
    /// The pipes of the dead process had time to close.
    Drained,
}

impl Alarm {
    /// How long to wait for what it is about.
    pub(super) fn after(self, patience: &Patience) -> Duration {
        match self {
            Self::Unopened => patience.opening,
            Self::Unanswered => patience.answer,
            Self::Lingered => patience.linger,
            Self::Unmoved => patience.rung,
            Self::Drained => patience.drain,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// We wait for the answer to our first request.
    Opening,
    /// We wait to hear which settings were read; nothing was asked of the model yet.
    Proving,
    /// The model works.
    Working,
    /// There is a result, or there will be none.
    Over,
}

/// Where an attempt stands.
#[derive(Debug)]
pub(super) struct Course {
    gather: Gather,
    control: Control,
    allowed: Allowed,
    foreign: ForeignCalls,
    sources: Option<Vec<String>>,
    prompt: String,
    identity: Identity,
    with_tools: bool,
    /// Calls that the gate decides over: request id, tool, call id.
    held: Vec<(String, String, Option<String>)>,
    phase: Phase,
    /// It has announced a turn.
    started: bool,
    patience: Patience,
    /// The firmest thing done to end it.
    ladder: Option<Rung>,
    /// The process is gone.
    exited: bool,
}

impl Course {
    /// An attempt that may use what is `allowed` and is given `prompt`, in the session `resume` if there is one.
    pub(super) fn new(
        facts: Facts,
        allowed: Allowed,
        with_tools: bool,
        prompt: String,
        resume: Option<String>,
        patience: Patience,
    ) -> Self {
        Self {
            gather: Gather::new(Facts { isolation: Isolation::Unproved, ..facts }),
            control: Control::default(),
            allowed,
            foreign: ForeignCalls::default(),
            sources: None,
            prompt,
            identity: resume.map(|session| Identity::resuming(&session, false)).unwrap_or_default(),
            with_tools,
            held: Vec::new(),
            phase: Phase::Opening,
            started: false,
            patience,
            ladder: None,
            exited: false,
        }
    }

    /// What is known of it.
    pub(super) fn into_facts(self) -> Facts {
        self.gather.finish()
    }

    /// The process runs.
    pub(super) fn open(&mut self) -> Vec<Step> {
        let ask = self.control.ask(Ask::Initialize { tools: self.with_tools });
        vec![Step::Write(ask), Step::Wake(Alarm::Unopened)]
    }

    /// A line of its stdout.
    pub(super) fn line(&mut self, line: &Line<'_>) -> Vec<Step> {
        if !self.gather.is_over()
            && let Sighting::Mismatch(sentence) = self.identity.push(line)
        {
            // Whatever the person answered to is not there.
            self.gather.facts.session_mismatch = Some(sentence);
            return self.stop(Rung::Interrupt);
        }
        if self.gather.facts.session_mismatch.is_none() {
            self.gather.line(line);
        }
        let ran = self.foreign.breach(&self.allowed, &line.body);
        let mut steps = ran.map(|sentence| self.breach(sentence)).unwrap_or_default();
        steps.extend(self.reply(line));
        steps
    }

    fn reply(&mut self, line: &Line<'_>) -> Vec<Step> {
        match &line.body {
            Body::Control { kind, request_id, payload, .. } => {
                let body = payload.map_or(Value::Null, |payload| payload.value());
                let effects = self.control.frame(kind, request_id, body);
                effects.into_iter().flat_map(|effect| self.effect(effect)).collect()
            }
            Body::Init(init) => self.announced(init),
            Body::System(System::Status { permission_mode }) => {
                let sentence = isolation::mode_breach(permission_mode.as_deref());
                sentence.map(|sentence| self.breach(sentence)).unwrap_or_default()
            }
            // Its last turn is not proved yet. The question has its alarm, and its answer goes on from here.
            Body::Result(_) if self.awaits_settings() => {
                self.phase = Phase::Over;
                Vec::new()
            }
            Body::Result(_) => self.over(),
            _ => Vec::new(),
        }
    }

    /// It wrote a line longer than `limit` bytes, and a piece of it is on the tape.
    pub(super) fn oversized(&mut self, limit: usize) -> Vec<Step> {
        if self.gather.facts.oversized_line.replace(limit).is_some() {
            return Vec::new();
        }
        let text = format!("a line of stdout exceeds {limit} bytes; it is recorded in pieces");
        let mut steps = vec![Step::Record(Note::Said { level: Level::Error, text })];
        steps.extend(self.stop(Rung::Interrupt));
        steps
    }

    /// A time limit ran out. An attempt that is ending anyway is not affected.
    pub(super) fn timed_out(&mut self, limit: TimedOut) -> Vec<Step> {
        if self.phase == Phase::Over || self.ladder.is_some() {
            return Vec::new();
        }
        self.gather.facts.timed_out = Some(limit);
        self.stop(Rung::Interrupt)
    }

    /// What the attempt waits for on our side.
    pub(super) fn waits_for(&self) -> WaitsFor {
        match (self.held.is_empty(), self.control.has_open_requests()) {
            (false, _) => WaitsFor::Decision,
            (true, true) => WaitsFor::Tool,
            (true, false) => WaitsFor::Agent,
        }
    }

    /// More than `limit` bytes wait for it to read them: it would not read an interrupt either.
    pub(super) fn unread(&mut self, limit: usize) -> Vec<Step> {
        self.gather.facts.unread.get_or_insert(limit);
        self.stop(Rung::Terminate)
    }

    /// A line of its stderr.
    pub(super) fn stderr(&mut self, line: &str) {
        self.gather.stderr(line);
    }

    /// It closed its stdout: there will be no result any more.
    pub(super) fn silent(&mut self) -> Vec<Step> {
        let mut steps = self.unanswered();
        steps.extend(self.over());
        steps
    }

    /// No answer can come any more: a turn that ended without one is not proved.
    fn unanswered(&mut self) -> Vec<Step> {
        let is_unproved = self.gather.has_result() && self.awaits_settings();
        if is_unproved { self.settings(None) } else { Vec::new() }
    }

    /// The tool server said something, or ended.
    pub(super) fn server(&mut self, said: Option<FromServer>) -> Vec<Step> {
        match said {
            Some(FromServer::Message(message)) => {
                self.control.from_server(message).map(Step::Write).into_iter().collect()
            }
            Some(FromServer::Called { tool, tool_use_id, effect, failure, declined }) => {
                let tally = &mut self.gather.facts.tally;
                let is_new = tally.answered(&tool, tool_use_id.as_deref(), &effect, failure.as_deref());
                let failed = failure.filter(|_| is_new);
                let note = match (failed, declined) {
                    (Some(message), _) => Some(Note::ToolFailed { tool, tool_use_id, message }),
                    (None, Some(message)) => Some(Note::ToolDeclined { tool, tool_use_id, message: head(message) }),
                    (None, None) => None,
                };
                note.map(Step::Record).into_iter().collect()
            }
            None => self.control.server_ended().into_iter().map(Step::Write).collect(),
        }
    }

    /// The gate decided over a call.
    pub(super) fn decided(&mut self, request_id: &str, decision: Decision) -> Vec<Step> {
        let held = self.held.iter().position(|(held, ..)| held == request_id).map(|at| self.held.swap_remove(at));
        if let (Some((_, tool, id)), Decision::Deny(reason)) = (held, &decision) {
            // Before the agent reads it: from then on it reports the call as failed.
            self.gather.facts.tally.refused(&tool, id.as_deref(), reason);
        }
        self.control.decide(request_id, decision).map(Step::Write).into_iter().collect()
    }

    /// Somebody wants it to end. After its result it only ends faster; the result stands.
    pub(super) fn command(&mut self, command: Command) -> Vec<Step> {
        let (how, rung) = match command {
            Command::Interrupt => (StopHow::Stop, Rung::Interrupt),
            // SIGKILL follows; before it the agent ends what it has started.
            Command::Kill => (StopHow::Kill, Rung::Terminate),
        };
        if self.phase == Phase::Over && self.gather.facts.stopped.is_none() {
            return self.stop(rung.max(Rung::Terminate));
        }
        self.gather.facts.stopped = Some(how);
        self.stop(rung)
    }

    /// The tape cannot be written: nothing that happens from now on would be kept.
    pub(super) fn unrecorded(&mut self, error: String) -> Vec<Step> {
        self.gather.facts.record_error.get_or_insert(error);
        self.stop(Rung::Terminate)
    }

    /// An alarm went off.
    pub(super) fn alarm(&mut self, alarm: Alarm) -> Vec<Step> {
        match alarm {
            Alarm::Unopened if self.started || self.phase == Phase::Over => Vec::new(),
            Alarm::Unopened => self.unopened(),
            Alarm::Unanswered if self.phase == Phase::Proving || self.awaits_settings() => self.settings(None),
            Alarm::Unanswered => Vec::new(),
            Alarm::Lingered => self.stop(Rung::Terminate),
            Alarm::Unmoved => self.stop(self.ladder.map_or(Rung::Interrupt, Rung::next)),
            Alarm::Drained => {
                let mut steps = self.unanswered();
                steps.push(Step::Leave);
                steps
            }
        }
    }

    /// The process ended; its pipes may still hold something.
    pub(super) fn exited(&mut self, ended: Ended) -> Vec<Step> {
        self.gather.facts.exit_code = ended.code;
        self.gather.facts.signal = ended.signal;
        self.gather.facts.ended_by_us = self.ladder >= Some(Rung::Terminate);
        self.phase = Phase::Over;
        self.exited = true;
        vec![Step::Wake(Alarm::Drained)]
    }

    fn effect(&mut self, effect: Effect) -> Vec<Step> {
        match effect {
            Effect::Write(frame) => vec![Step::Write(frame)],
            Effect::ToServer(message) => match self.objection(is_call(&message)) {
                Some(why) => {
                    let error = json!({"code": -32600, "message": why});
                    let refusal = json!({"jsonrpc": "2.0", "id": message.get("id"), "error": error});
                    self.server(Some(FromServer::Message(refusal)))
                }
                None => vec![Step::Serve(message)],
            },
            Effect::Held { request_id: id, tool_id, permission_mode, mut call } => {
                if let Some(why) = self.objection(true) {
                    return self.decided(&id, Decision::Refuse(why.to_owned()));
                }
                if let Some(sentence) = self.allowed.call_breach(&tool_id, permission_mode.as_deref()) {
                    let mut steps = self.decided(&id, Decision::Refuse(sentence.clone()));
                    steps.extend(self.breach(sentence));
                    return steps;
                }
                call.failures = self.gather.facts.tally.calls().len();
                self.held.push((id.clone(), call.tool.clone(), call.tool_use_id.clone()));
                vec![Step::Hold(id, call)]
            }
            Effect::Withdrawn(id) => {
                self.held.retain(|(held, ..)| *held != id);
                vec![Step::Release(id)]
            }
            Effect::ToolFailed { tool, tool_use_id, message } => {
                self.gather.failed(&tool, tool_use_id.as_deref(), &message);
                Vec::new()
            }
            Effect::Answered(ask, answer) => self.answered(ask, answer),
        }
    }

    /// Why the agent is not served. Before it is proved to be alone it may connect, but not call.
    fn objection(&self, is_call: bool) -> Option<&'static str> {
        match self.gather.facts.isolation {
            Isolation::Breached(_) => Some("the attempt is being stopped"),
            Isolation::Unproved if is_call => Some("no call is taken before the agent has said what it offers"),
            Isolation::NotAsked | Isolation::Unproved | Isolation::Proved => None,
        }
    }

    fn answered(&mut self, ask: Ask, answer: Result<Value, String>) -> Vec<Step> {
        match (ask, answer) {
            // A ladder that is being climbed has its alarm, and there is only one.
            (Ask::Initialize { .. }, Ok(_)) if self.phase == Phase::Opening && self.ladder.is_none() => {
                self.phase = Phase::Proving;
                vec![Step::Write(self.control.ask(Ask::Settings)), Step::Wake(Alarm::Unanswered)]
            }
            (Ask::Initialize { .. }, Err(error)) => {
                self.gather.facts.spawn_error = Some(format!("claude refused to open the conversation: {error}"));
                self.stop(Rung::Interrupt)
            }
            (Ask::Settings, answer) => {
                let mut steps = self.settings(answer.ok().as_ref().and_then(isolation::settings_sources));
                if self.phase == Phase::Over && self.ladder.is_none() {
                    steps.extend(self.over());
                }
                steps
            }
            (Ask::Initialize { .. } | Ask::Interrupt | Ask::McpStatus, _) => Vec::new(),
        }
    }

    /// The agent said which settings it has read, or that it will not say.
    fn settings(&mut self, sources: Option<Vec<String>>) -> Vec<Step> {
        if let Some(sentence) = isolation::settings_breach(sources.as_deref()) {
            self.sources = sources;
            return self.breach(sentence);
        }
        self.sources = sources;
        self.prove();
        if self.phase == Phase::Proving && self.ladder.is_none() { self.work() } else { Vec::new() }
    }

    fn work(&mut self) -> Vec<Step> {
        if self.ladder.is_some() {
            return Vec::new();
        }
        self.phase = Phase::Working;
        vec![Step::Write(user_message(&self.prompt)), Step::Wake(Alarm::Unopened)]
    }

    fn unopened(&mut self) -> Vec<Step> {
        let what = if self.phase == Phase::Working { "begin to work" } else { "open the conversation" };
        let seconds = self.patience.opening.as_secs();
        self.gather.facts.spawn_error = Some(format!("claude did not {what} within {seconds} s"));
        self.stop(Rung::Interrupt)
    }

    /// A turn begins, and the agent said what it offers.
    fn announced(&mut self, init: &Init<'_>) -> Vec<Step> {
        if let Some(sentence) = self.allowed.breach(init) {
            return self.breach(sentence);
        }
        let mut steps = vec![self.checked(None)];
        let is_first = !std::mem::replace(&mut self.started, true);
        self.prove();
        if is_first {
            steps.push(Step::Started);
        } else if !self.control.is_open(Ask::Settings) {
            steps.push(Step::Write(self.control.ask(Ask::Settings)));
            if self.ladder.is_none() {
                steps.push(Step::Wake(Alarm::Unanswered));
            }
        }
        steps
    }

    /// A later turn has begun, and it is open which settings were read for it.
    fn awaits_settings(&self) -> bool {
        let is_later = self.started && self.sources.is_some();
        is_later && self.control.is_open(Ask::Settings) && self.ladder.is_none()
    }

    /// Once it has said what it offers and which settings it has read, and nothing was wrong with either.
    fn prove(&mut self) {
        let isolation = &mut self.gather.facts.isolation;
        if *isolation == Isolation::Unproved && self.started && self.sources.is_some() {
            *isolation = Isolation::Proved;
        }
    }

    fn breach(&mut self, sentence: String) -> Vec<Step> {
        let mut steps = vec![self.checked(Some(sentence.clone()))];
        // The first one stands.
        if self.gather.facts.breach().is_none() {
            self.gather.facts.isolation = Isolation::Breached(sentence);
        }
        steps.extend(self.stop(Rung::Interrupt));
        steps
    }

    fn checked(&self, breach: Option<String>) -> Step {
        Step::Record(Note::IsolationChecked(IsolationChecked { breach, settings_sources: self.sources.clone() }))
    }

    /// There is nothing left to do: the process may end by itself.
    fn over(&mut self) -> Vec<Step> {
        self.phase = Phase::Over;
        let mut steps = vec![Step::Close];
        // A ladder that is being climbed has its own, shorter patience.
        if self.ladder.is_none() && !self.exited {
            steps.push(Step::Wake(Alarm::Lingered));
        }
        steps
    }

    /// Takes a step of the ladder, unless it was taken already.
    fn stop(&mut self, rung: Rung) -> Vec<Step> {
        if self.exited || self.ladder.is_some_and(|taken| taken >= rung) {
            return Vec::new();
        }
        self.ladder = Some(rung);
        self.gather.cut_short();
        let step = match rung {
            Rung::Interrupt if self.phase == Phase::Working => Step::Write(self.control.ask(Ask::Interrupt)),
            // No turn runs that an interrupt could end.
            Rung::Interrupt => Step::Close,
            Rung::Terminate => Step::Signal(Signal::SIGTERM),
            Rung::Kill => Step::Signal(Signal::SIGKILL),
            Rung::GiveUp => return vec![Step::Leave],
        };
        vec![step, Step::Wake(Alarm::Unmoved)]
    }
}

/// A message that has a tool work.
fn is_call(message: &Value) -> bool {
    message.get("method").and_then(Value::as_str) == Some("tools/call")
}

/// The beginning of a tool's answer; the whole of it is in the stream.
fn head(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(DECLINED) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests;
