//! The course of one attempt, as a state machine without I/O: what happened goes in, [`AttemptEffect`]s come out.
//!
//! Opening, proving the isolation, working, over. Timers are steps too. It must not know processes, pipes or clocks;
//! `unit` carries the steps out.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    actions::{SessionCheck, SessionIdentity},
    decode::{
        AgentLine, LineBody,
        line::{InitLine, SystemLine},
    },
    tape::{
        Note,
        note::{IsolationChecked, Severity, StopMode},
    },
    units::verdict::{AttemptFacts, IsolationStatus, TimeLimit},
};

/// Characters of a tool's answer that a note of ours keeps.
const MAX_DECLINED_CHARS: usize = 300;

use super::{
    attempt_stats::AttemptStats,
    control::{
        ApprovalDecision, ApprovalRequest, ControlEffect, ControlFrame, ControlProtocol, ControlRequest, prompt_frame,
    },
    isolation::{self, AllowedTools, ForeignCalls},
    mcp::ServerEvent,
    process::{EscalationStep, ProcessExit, ProcessTimeouts},
    unit::{StopCommand, deadlines::WaitReason},
};

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttemptEffect {
    /// Write a line to the agent.
    WriteFrame(ControlFrame),
    /// Close its stdin: there will be no more work.
    CloseStdin,
    /// Hand a message to the tool server.
    ForwardToServer(Value),
    /// Ask the gate about a call.
    RequestApproval(String, ApprovalRequest),
    /// The agent no longer waits for the gate.
    CancelApproval(String),
    /// Signal the process group.
    SignalGroup(Signal),
    /// Put a fact of ours on the tape.
    RecordNote(Note),
    /// Start-up is over.
    StartupFinished,
    /// Come back with this alarm, unless another is set before.
    SetTimer(AttemptTimer),
    /// Do not wait for the process any longer.
    StopWaiting,
}

/// Why to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptTimer {
    /// The agent did not begin: the conversation, or the turn that it was asked for.
    StartupTimeout,
    /// The agent did not say which settings it has read, at the start or later.
    SettingsTimeout,
    /// It had time to end by itself.
    ExitTimeout,
    /// The last step of the ladder did not help.
    EscalationTimeout,
    /// The pipes of the dead process had time to close.
    DrainTimeout,
}

impl AttemptTimer {
    /// How long to wait for what it is about.
    pub(super) fn duration(self, patience: &ProcessTimeouts) -> Duration {
        match self {
            Self::StartupTimeout => patience.startup,
            Self::SettingsTimeout => patience.reply,
            Self::ExitTimeout => patience.exit,
            Self::EscalationTimeout => patience.escalation_step,
            Self::DrainTimeout => patience.pipe_drain,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptPhase {
    /// We wait for the answer to our first request.
    Initializing,
    /// We wait to hear which settings were read; nothing was asked of the model yet.
    VerifyingIsolation,
    /// The model works.
    Working,
    /// There is a result, or there will be none.
    Finished,
}

/// Where an attempt stands.
#[derive(Debug)]
pub(super) struct AttemptMachine {
    stats: AttemptStats,
    control: ControlProtocol,
    allowed: AllowedTools,
    foreign_calls: ForeignCalls,
    settings_sources: Option<Vec<String>>,
    prompt: String,
    identity: SessionIdentity,
    has_tools: bool,
    /// Calls that the gate decides over: request id, tool, call id.
    pending_approvals: Vec<(String, String, Option<String>)>,
    phase: AttemptPhase,
    /// It has announced a turn.
    has_announced_turn: bool,
    timeouts: ProcessTimeouts,
    /// The firmest thing done to end it.
    escalation: Option<EscalationStep>,
    /// The process is gone.
    has_exited: bool,
}

impl AttemptMachine {
    /// An attempt that may use what is `allowed` and is given `prompt`, in the session `resume` if there is one.
    pub(super) fn new(
        facts: AttemptFacts,
        allowed: AllowedTools,
        with_tools: bool,
        prompt: String,
        resume: Option<String>,
        patience: ProcessTimeouts,
    ) -> Self {
        Self {
            stats: AttemptStats::new(AttemptFacts { isolation: IsolationStatus::Unverified, ..facts }),
            control: ControlProtocol::default(),
            allowed,
            foreign_calls: ForeignCalls::default(),
            settings_sources: None,
            prompt,
            identity: resume.map(|session| SessionIdentity::resuming(&session, false)).unwrap_or_default(),
            has_tools: with_tools,
            pending_approvals: Vec::new(),
            phase: AttemptPhase::Initializing,
            has_announced_turn: false,
            timeouts: patience,
            escalation: None,
            has_exited: false,
        }
    }

    /// What is known of it.
    pub(super) fn into_facts(self) -> AttemptFacts {
        self.stats.into_facts()
    }

    /// The process runs.
    pub(super) fn start(&mut self) -> Vec<AttemptEffect> {
        let ask = self.control.start_request(ControlRequest::Initialize { tools: self.has_tools });
        vec![AttemptEffect::WriteFrame(ask), AttemptEffect::SetTimer(AttemptTimer::StartupTimeout)]
    }

    /// A line of its stdout.
    pub(super) fn handle_line(&mut self, line: &AgentLine<'_>) -> Vec<AttemptEffect> {
        if !self.stats.is_complete()
            && let SessionCheck::Mismatch(sentence) = self.identity.push(line)
        {
            // Whatever the person answered to is not there.
            self.stats.facts.session_mismatch = Some(sentence);
            return self.escalate_to(EscalationStep::Interrupt);
        }
        if self.stats.facts.session_mismatch.is_none() {
            self.stats.push_line(line);
        }
        let ran = self.foreign_calls.line_breach(&self.allowed, &line.body);
        let mut steps = ran.map(|sentence| self.record_breach(sentence)).unwrap_or_default();
        steps.extend(self.handle_line_body(line));
        steps
    }

    fn handle_line_body(&mut self, line: &AgentLine<'_>) -> Vec<AttemptEffect> {
        match &line.body {
            LineBody::Control { kind, request_id, payload, .. } => {
                let body = payload.map_or(Value::Null, |payload| payload.value());
                let effects = self.control.handle_frame(kind, request_id, body);
                effects.into_iter().flat_map(|effect| self.apply_control_effect(effect)).collect()
            }
            LineBody::Init(init) => self.handle_init(init),
            LineBody::System(SystemLine::Status { permission_mode }) => {
                let sentence = isolation::permission_mode_breach(permission_mode.as_deref());
                sentence.map(|sentence| self.record_breach(sentence)).unwrap_or_default()
            }
            // Its last turn is not proved yet. The question has its alarm, and its answer goes on from here.
            LineBody::Result(_) if self.is_awaiting_settings() => {
                self.phase = AttemptPhase::Finished;
                Vec::new()
            }
            LineBody::Result(_) => self.finish(),
            _ => Vec::new(),
        }
    }

    /// It wrote a line longer than `limit` bytes, and a piece of it is on the tape.
    pub(super) fn handle_oversized_line(&mut self, limit: usize) -> Vec<AttemptEffect> {
        if self.stats.facts.oversized_line.replace(limit).is_some() {
            return Vec::new();
        }
        let text = format!("a line of stdout exceeds {limit} bytes; it is recorded in pieces");
        let mut steps = vec![AttemptEffect::RecordNote(Note::Message { level: Severity::Error, text })];
        steps.extend(self.escalate_to(EscalationStep::Interrupt));
        steps
    }

    /// A time limit ran out. An attempt that is ending anyway is not affected.
    pub(super) fn handle_time_limit(&mut self, limit: TimeLimit) -> Vec<AttemptEffect> {
        if self.phase == AttemptPhase::Finished || self.escalation.is_some() {
            return Vec::new();
        }
        self.stats.facts.timed_out = Some(limit);
        self.escalate_to(EscalationStep::Interrupt)
    }

    /// What the attempt waits for on our side.
    pub(super) fn waits_for(&self) -> WaitReason {
        match (self.pending_approvals.is_empty(), self.control.has_pending_agent_requests()) {
            (false, _) => WaitReason::Approval,
            (true, true) => WaitReason::Tool,
            (true, false) => WaitReason::Agent,
        }
    }

    /// More than `limit` bytes wait for it to read them: it would not read an interrupt either.
    pub(super) fn handle_unread_input(&mut self, limit: usize) -> Vec<AttemptEffect> {
        self.stats.facts.unread_stdin.get_or_insert(limit);
        self.escalate_to(EscalationStep::Terminate)
    }

    /// A line of its stderr.
    pub(super) fn handle_stderr_line(&mut self, line: &str) {
        self.stats.push_stderr_line(line);
    }

    /// It closed its stdout: there will be no result any more.
    pub(super) fn handle_stdout_closed(&mut self) -> Vec<AttemptEffect> {
        let mut steps = self.fail_missing_settings();
        steps.extend(self.finish());
        steps
    }

    /// No answer can come any more: a turn that ended without one is not proved.
    fn fail_missing_settings(&mut self) -> Vec<AttemptEffect> {
        let is_unproved = self.stats.has_result() && self.is_awaiting_settings();
        if is_unproved { self.handle_settings(None) } else { Vec::new() }
    }

    /// The tool server said something, or ended.
    pub(super) fn handle_server_event(&mut self, said: Option<ServerEvent>) -> Vec<AttemptEffect> {
        match said {
            Some(ServerEvent::Message(message)) => {
                self.control.handle_server_message(message).map(AttemptEffect::WriteFrame).into_iter().collect()
            }
            Some(ServerEvent::CallFinished { tool, tool_use_id, effect, failure, declined }) => {
                let tally = &mut self.stats.facts.tally;
                let is_new = tally.record_tool_reply(&tool, tool_use_id.as_deref(), &effect, failure.as_deref());
                let failed = failure.filter(|_| is_new);
                let note = match (failed, declined) {
                    (Some(message), _) => Some(Note::ToolFailed { tool, tool_use_id, message }),
                    (None, Some(message)) => {
                        Some(Note::ToolDeclined { tool, tool_use_id, message: truncate_declined_message(message) })
                    }
                    (None, None) => None,
                };
                note.map(AttemptEffect::RecordNote).into_iter().collect()
            }
            None => self.control.handle_server_exit().into_iter().map(AttemptEffect::WriteFrame).collect(),
        }
    }

    /// The gate decided over a call.
    pub(super) fn handle_decision(&mut self, request_id: &str, decision: ApprovalDecision) -> Vec<AttemptEffect> {
        let held = self
            .pending_approvals
            .iter()
            .position(|(held, ..)| held == request_id)
            .map(|at| self.pending_approvals.swap_remove(at));
        if let (Some((_, tool, id)), ApprovalDecision::Deny(reason)) = (held, &decision) {
            // Before the agent reads it: from then on it reports the call as failed.
            self.stats.facts.tally.record_refusal(&tool, id.as_deref(), reason);
        }
        self.control.resolve_approval(request_id, decision).map(AttemptEffect::WriteFrame).into_iter().collect()
    }

    /// Somebody wants it to end. After its result it only ends faster; the result stands.
    pub(super) fn handle_stop_command(&mut self, command: StopCommand) -> Vec<AttemptEffect> {
        let (how, rung) = match command {
            StopCommand::Interrupt => (StopMode::Stop, EscalationStep::Interrupt),
            // SIGKILL follows; before it the agent ends what it has started.
            StopCommand::Kill => (StopMode::Kill, EscalationStep::Terminate),
        };
        if self.phase == AttemptPhase::Finished && self.stats.facts.stopped.is_none() {
            return self.escalate_to(rung.max(EscalationStep::Terminate));
        }
        self.stats.facts.stopped = Some(how);
        self.escalate_to(rung)
    }

    /// The tape cannot be written: nothing that happens from now on would be kept.
    pub(super) fn handle_record_error(&mut self, error: String) -> Vec<AttemptEffect> {
        self.stats.facts.record_error.get_or_insert(error);
        self.escalate_to(EscalationStep::Terminate)
    }

    /// An alarm went off.
    pub(super) fn handle_timer(&mut self, alarm: AttemptTimer) -> Vec<AttemptEffect> {
        match alarm {
            AttemptTimer::StartupTimeout if self.has_announced_turn || self.phase == AttemptPhase::Finished => {
                Vec::new()
            }
            AttemptTimer::StartupTimeout => self.handle_startup_timeout(),
            AttemptTimer::SettingsTimeout
                if self.phase == AttemptPhase::VerifyingIsolation || self.is_awaiting_settings() =>
            {
                self.handle_settings(None)
            }
            AttemptTimer::SettingsTimeout => Vec::new(),
            AttemptTimer::ExitTimeout => self.escalate_to(EscalationStep::Terminate),
            AttemptTimer::EscalationTimeout => {
                self.escalate_to(self.escalation.map_or(EscalationStep::Interrupt, EscalationStep::next_step))
            }
            AttemptTimer::DrainTimeout => {
                let mut steps = self.fail_missing_settings();
                steps.push(AttemptEffect::StopWaiting);
                steps
            }
        }
    }

    /// The process ended; its pipes may still hold something.
    pub(super) fn handle_exit(&mut self, ended: ProcessExit) -> Vec<AttemptEffect> {
        self.stats.facts.exit_code = ended.code;
        self.stats.facts.signal = ended.signal;
        self.stats.facts.terminated_by_us = self.escalation >= Some(EscalationStep::Terminate);
        self.phase = AttemptPhase::Finished;
        self.has_exited = true;
        vec![AttemptEffect::SetTimer(AttemptTimer::DrainTimeout)]
    }

    fn apply_control_effect(&mut self, effect: ControlEffect) -> Vec<AttemptEffect> {
        match effect {
            ControlEffect::Write(frame) => vec![AttemptEffect::WriteFrame(frame)],
            ControlEffect::ForwardToServer(message) => match self.refusal_reason(is_tool_call(&message)) {
                Some(why) => {
                    let error = json!({"code": -32600, "message": why});
                    let refusal = json!({"jsonrpc": "2.0", "id": message.get("id"), "error": error});
                    self.handle_server_event(Some(ServerEvent::Message(refusal)))
                }
                None => vec![AttemptEffect::ForwardToServer(message)],
            },
            ControlEffect::ApprovalNeeded { request_id: id, tool_id, permission_mode, mut call } => {
                if let Some(why) = self.refusal_reason(true) {
                    return self.handle_decision(&id, ApprovalDecision::DenyByPolicy(why.to_owned()));
                }
                if let Some(sentence) = self.allowed.call_breach(&tool_id, permission_mode.as_deref()) {
                    let mut steps = self.handle_decision(&id, ApprovalDecision::DenyByPolicy(sentence.clone()));
                    steps.extend(self.record_breach(sentence));
                    return steps;
                }
                call.earlier_failures = self.stats.facts.tally.calls().len();
                self.pending_approvals.push((id.clone(), call.tool.clone(), call.tool_use_id.clone()));
                vec![AttemptEffect::RequestApproval(id, call)]
            }
            ControlEffect::ApprovalCancelled(id) => {
                self.pending_approvals.retain(|(held, ..)| *held != id);
                vec![AttemptEffect::CancelApproval(id)]
            }
            ControlEffect::ToolFailed { tool, tool_use_id, message } => {
                self.stats.record_failure(&tool, tool_use_id.as_deref(), &message);
                Vec::new()
            }
            ControlEffect::ReplyReceived(ask, answer) => self.handle_reply(ask, answer),
        }
    }

    /// Why the agent is not served. Before it is proved to be alone it may connect, but not call.
    fn refusal_reason(&self, is_call: bool) -> Option<&'static str> {
        match self.stats.facts.isolation {
            IsolationStatus::Breached(_) => Some("the attempt is being stopped"),
            IsolationStatus::Unverified if is_call => Some("no call is taken before the agent has said what it offers"),
            IsolationStatus::NotRequired | IsolationStatus::Unverified | IsolationStatus::Verified => None,
        }
    }

    fn handle_reply(&mut self, ask: ControlRequest, answer: Result<Value, String>) -> Vec<AttemptEffect> {
        match (ask, answer) {
            // A ladder that is being climbed has its alarm, and there is only one.
            (ControlRequest::Initialize { .. }, Ok(_))
                if self.phase == AttemptPhase::Initializing && self.escalation.is_none() =>
            {
                self.phase = AttemptPhase::VerifyingIsolation;
                vec![
                    AttemptEffect::WriteFrame(self.control.start_request(ControlRequest::Settings)),
                    AttemptEffect::SetTimer(AttemptTimer::SettingsTimeout),
                ]
            }
            (ControlRequest::Initialize { .. }, Err(error)) => {
                self.stats.facts.start_error = Some(format!("claude refused to open the conversation: {error}"));
                self.escalate_to(EscalationStep::Interrupt)
            }
            (ControlRequest::Settings, answer) => {
                let mut steps = self.handle_settings(answer.ok().as_ref().and_then(isolation::settings_sources));
                if self.phase == AttemptPhase::Finished && self.escalation.is_none() {
                    steps.extend(self.finish());
                }
                steps
            }
            (ControlRequest::Initialize { .. } | ControlRequest::Interrupt | ControlRequest::McpStatus, _) => {
                Vec::new()
            }
        }
    }

    /// The agent said which settings it has read, or that it will not say.
    fn handle_settings(&mut self, sources: Option<Vec<String>>) -> Vec<AttemptEffect> {
        if let Some(sentence) = isolation::settings_breach(sources.as_deref()) {
            self.settings_sources = sources;
            return self.record_breach(sentence);
        }
        self.settings_sources = sources;
        self.update_isolation();
        if self.phase == AttemptPhase::VerifyingIsolation && self.escalation.is_none() {
            self.send_prompt()
        } else {
            Vec::new()
        }
    }

    fn send_prompt(&mut self) -> Vec<AttemptEffect> {
        if self.escalation.is_some() {
            return Vec::new();
        }
        self.phase = AttemptPhase::Working;
        vec![
            AttemptEffect::WriteFrame(prompt_frame(&self.prompt)),
            AttemptEffect::SetTimer(AttemptTimer::StartupTimeout),
        ]
    }

    fn handle_startup_timeout(&mut self) -> Vec<AttemptEffect> {
        let what = if self.phase == AttemptPhase::Working { "begin to work" } else { "open the conversation" };
        let seconds = self.timeouts.startup.as_secs();
        self.stats.facts.start_error = Some(format!("claude did not {what} within {seconds} s"));
        self.escalate_to(EscalationStep::Interrupt)
    }

    /// A turn begins, and the agent said what it offers.
    fn handle_init(&mut self, init: &InitLine<'_>) -> Vec<AttemptEffect> {
        if let Some(sentence) = self.allowed.init_breach(init) {
            return self.record_breach(sentence);
        }
        let mut steps = vec![self.isolation_note(None)];
        let is_first = !std::mem::replace(&mut self.has_announced_turn, true);
        self.update_isolation();
        if is_first {
            steps.push(AttemptEffect::StartupFinished);
        } else if !self.control.is_request_pending(ControlRequest::Settings) {
            steps.push(AttemptEffect::WriteFrame(self.control.start_request(ControlRequest::Settings)));
            if self.escalation.is_none() {
                steps.push(AttemptEffect::SetTimer(AttemptTimer::SettingsTimeout));
            }
        }
        steps
    }

    /// A later turn has begun, and it is open which settings were read for it.
    fn is_awaiting_settings(&self) -> bool {
        let is_later = self.has_announced_turn && self.settings_sources.is_some();
        is_later && self.control.is_request_pending(ControlRequest::Settings) && self.escalation.is_none()
    }

    /// Once it has said what it offers and which settings it has read, and nothing was wrong with either.
    fn update_isolation(&mut self) {
        let isolation = &mut self.stats.facts.isolation;
        if *isolation == IsolationStatus::Unverified && self.has_announced_turn && self.settings_sources.is_some() {
            *isolation = IsolationStatus::Verified;
        }
    }

    fn record_breach(&mut self, sentence: String) -> Vec<AttemptEffect> {
        let mut steps = vec![self.isolation_note(Some(sentence.clone()))];
        // The first one stands.
        if self.stats.facts.isolation_breach().is_none() {
            self.stats.facts.isolation = IsolationStatus::Breached(sentence);
        }
        steps.extend(self.escalate_to(EscalationStep::Interrupt));
        steps
    }

    fn isolation_note(&self, breach: Option<String>) -> AttemptEffect {
        AttemptEffect::RecordNote(Note::IsolationChecked(IsolationChecked {
            breach,
            settings_sources: self.settings_sources.clone(),
        }))
    }

    /// There is nothing left to do: the process may end by itself.
    fn finish(&mut self) -> Vec<AttemptEffect> {
        self.phase = AttemptPhase::Finished;
        let mut steps = vec![AttemptEffect::CloseStdin];
        // A ladder that is being climbed has its own, shorter patience.
        if self.escalation.is_none() && !self.has_exited {
            steps.push(AttemptEffect::SetTimer(AttemptTimer::ExitTimeout));
        }
        steps
    }

    /// Takes a step of the ladder, unless it was taken already.
    fn escalate_to(&mut self, rung: EscalationStep) -> Vec<AttemptEffect> {
        if self.has_exited || self.escalation.is_some_and(|taken| taken >= rung) {
            return Vec::new();
        }
        self.escalation = Some(rung);
        self.stats.mark_interrupted();
        let step = match rung {
            EscalationStep::Interrupt if self.phase == AttemptPhase::Working => {
                AttemptEffect::WriteFrame(self.control.start_request(ControlRequest::Interrupt))
            }
            // No turn runs that an interrupt could end.
            EscalationStep::Interrupt => AttemptEffect::CloseStdin,
            EscalationStep::Terminate => AttemptEffect::SignalGroup(Signal::SIGTERM),
            EscalationStep::Kill => AttemptEffect::SignalGroup(Signal::SIGKILL),
            EscalationStep::GiveUp => return vec![AttemptEffect::StopWaiting],
        };
        vec![step, AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)]
    }
}

/// A message that has a tool work.
fn is_tool_call(message: &Value) -> bool {
    message.get("method").and_then(Value::as_str) == Some("tools/call")
}

/// The beginning of a tool's answer; the whole of it is in the stream.
fn truncate_declined_message(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_DECLINED_CHARS) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests;
