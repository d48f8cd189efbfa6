//! The state machine of one attempt, without I/O: events go in, [`AttemptEffect`]s come out.
//!
//! Its phases are: initialize, verify the isolation, work, finished. Timers are effects, too. The module must not
//! depend on processes, pipes or clocks; the runner performs the effects.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::session_monitor::SessionMonitor;
use crate::{
    claude::isolation::{self, IsolationProof},
    control::{
        ApprovalDecision, ApprovalRequest, ControlEffect, ControlFrame, ControlProtocol,
        ControlRequest, prompt_frame, user_message_frame,
    },
    facts_collector::AttemptFactsCollector,
    mcp::ServerEvent,
    process::{EscalationStep, ProcessExit, ProcessTimeouts},
};
use ingestdeck_core::{
    actions::{SessionCheck, SessionIdentity, input_form::ELICITATION},
    control::AgentRequest,
    decode::{AgentLine, LineBody},
    diagnostic::Problem,
    run::attempt_reducer::AttemptReducer,
    tape::{
        Note,
        note::{Severity, StopMode},
    },
    units::verdict::{AttemptFacts, IsolationStatus, TimeLimit},
};

mod ending;
mod messages;
mod requests;
mod session_lines;
mod verification;

/// Shells and agents that handle a signal exit with this code plus its number.
const SIGNAL_EXIT_CODE: i32 = 128;

/// Maximum length of a tool reply in a note, in characters.
const MAX_DECLINED_CHARS: usize = 300;

/// A request to a running attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptCommand {
    /// End it, with time to report its state.
    Interrupt,
    Kill,
    /// A message of a person to the agent.
    Message(String),
    /// A request of a person to the agent of a session.
    Request(AgentRequest),
}

/// What an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    Agent,
    /// One of our tools runs, or a tool of a session, which has its own time limit.
    Tool,
    /// A person decides about a call.
    Approval,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttemptEffect {
    WriteFrame(ControlFrame),
    /// Write a prompt that is on the tape already.
    SendPrompt(ControlFrame),
    /// Close its stdin: no more work follows.
    CloseStdin,
    /// Pass a message to the tool server.
    ForwardToServer(Value),
    /// Ask the approval gate about a call.
    RequestApproval(String, ApprovalRequest),
    /// The agent no longer waits for the decision.
    CancelApproval(String),
    /// Lock the session with this id instead of the locked one.
    LockSession(String),
    SignalGroup(Signal),
    RecordNote(Note),
    StartupFinished,
    /// Ask the tools whether the agent may end its turn, and pass their question to
    /// [`AttemptMachine::handle_stop_question`] with this request id.
    AskToolsBeforeStop(String),
    /// Set this timer. It replaces the previous one.
    SetTimer(AttemptTimer),
    /// Stop waiting for the process.
    StopWaiting,
}

/// Purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptTimer {
    /// The agent did not start the conversation, or the requested turn.
    Startup,
    /// The agent did not report its settings, at the start or later.
    Settings,
    /// The time for a normal exit is over.
    Exit,
    /// The last escalation step had no effect.
    Escalation,
    /// The time for the pipes of the dead process to close is over.
    Drain,
}

impl AttemptTimer {
    /// How long to wait.
    pub(super) fn duration(self, timeouts: &ProcessTimeouts) -> Duration {
        match self {
            Self::Startup => timeouts.startup,
            Self::Settings => timeouts.reply,
            Self::Exit => timeouts.exit,
            Self::Escalation => timeouts.escalation_step,
            Self::Drain => timeouts.pipe_drain,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptPhase {
    /// Waiting for the reply to the first request.
    Initializing,
    /// Waiting for the report of the settings; the prompt was not sent yet.
    VerifyingIsolation,
    Working,
    /// There is a result, or none will follow.
    Finished,
}

/// The session that an attempt continues.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContinuedSession {
    pub(crate) id: String,
    /// Cost of its earlier attempts in US dollars; `None` if that is unknown.
    pub(crate) paid_usd: Option<f64>,
}

/// What the agent of a unit has to do.
#[derive(Debug)]
pub(crate) struct UnitTask {
    /// The tools that it may use.
    pub(crate) proof: IsolationProof,
    pub(crate) prompt: String,
    pub(crate) max_turns: u32,
    /// The session that it continues.
    pub(crate) resume: Option<ContinuedSession>,
}

#[derive(Debug)]
pub(crate) struct AttemptMachine {
    stats: AttemptFactsCollector,
    control: ControlProtocol,
    proof: IsolationProof,
    settings_sources: Option<Vec<String>>,
    prompt: String,
    identity: SessionIdentity,
    /// Messages of a person that wait for the next call. While a call is open, Claude Code adds them to the running turn;
    /// otherwise they could become a turn after the result.
    outbox: Vec<String>,
    /// Calls that wait for a decision: request id, tool, call id.
    pending_approvals: Vec<(String, String, Option<String>)>,
    phase: AttemptPhase,
    /// The agent has announced a turn.
    has_announced_turn: bool,
    timeouts: ProcessTimeouts,
    /// The firmest escalation step so far.
    escalation: Option<EscalationStep>,
    /// The process has exited.
    has_exited: bool,
    /// Set for a session, which has no isolation.
    session: Option<SessionMonitor>,
    /// The agent speaks the two-way protocol. Without it, it gets one prompt and is ended by signals.
    is_two_way: bool,
}

impl AttemptMachine {
    /// An attempt at a unit. `facts` are those from before the start.
    pub(crate) fn for_unit(facts: AttemptFacts, task: UnitTask, timeouts: ProcessTimeouts) -> Self {
        let facts = AttemptFacts {
            isolation: IsolationStatus::Unverified,
            ..facts
        };
        let UnitTask {
            proof,
            prompt,
            max_turns,
            resume,
        } = task;
        let mut stats = AttemptFactsCollector::new(facts).with_turn_limit(Some(max_turns));
        if let Some(resumed) = &resume {
            stats.resume_session(resumed.paid_usd);
        }
        let identity = resume
            .map(|resumed| SessionIdentity::resuming(&resumed.id, false))
            .unwrap_or_default();
        let phase = AttemptPhase::Initializing;
        Self {
            proof,
            prompt,
            identity,
            phase,
            ..Self::new(stats, timeouts)
        }
    }

    /// A plain session, which gets its prompt on stdin unless that is empty.
    pub(crate) fn for_session(
        stats: AttemptFactsCollector,
        session: SessionMonitor,
        prompt: String,
        timeouts: ProcessTimeouts,
    ) -> Self {
        Self {
            prompt,
            session: Some(session),
            is_two_way: false,
            ..Self::new(stats, timeouts)
        }
    }

    /// One turn of a session whose calls a person can hold, and whose requests for permission a person answers. With
    /// `tools`, our tool server is announced.
    pub(crate) fn for_conversation(
        stats: AttemptFactsCollector,
        session: SessionMonitor,
        prompt: String,
        tools: Vec<String>,
        timeouts: ProcessTimeouts,
    ) -> Self {
        let control = ControlProtocol::with_permission_requests();
        let proof = IsolationProof::new(tools);
        let phase = AttemptPhase::Initializing;
        Self {
            prompt,
            proof,
            control,
            phase,
            session: Some(session),
            ..Self::new(stats, timeouts)
        }
    }

    fn new(stats: AttemptFactsCollector, timeouts: ProcessTimeouts) -> Self {
        Self {
            stats,
            control: ControlProtocol::default(),
            proof: IsolationProof::default(),
            settings_sources: None,
            prompt: String::new(),
            identity: SessionIdentity::default(),
            outbox: Vec::new(),
            pending_approvals: Vec::new(),
            phase: AttemptPhase::Working,
            has_announced_turn: false,
            timeouts,
            escalation: None,
            has_exited: false,
            session: None,
            is_two_way: true,
        }
    }

    /// The accounting of the lines so far; `None` if another session answered, whose lines do not count.
    pub(super) fn reducer(&self) -> Option<&AttemptReducer> {
        let is_other = self
            .session
            .as_ref()
            .is_some_and(|session| session.mismatch().is_some());
        (!is_other && self.stats.facts.interruption.session_mismatch.is_none())
            .then(|| self.stats.reducer())
    }

    pub(crate) fn into_facts(self) -> AttemptFacts {
        self.stats.into_facts()
    }

    /// The state of a plain session.
    pub(crate) fn session(&self) -> Option<&SessionMonitor> {
        self.session.as_ref()
    }

    /// The process cannot be used.
    pub(super) fn fail_start(&mut self, error: String) {
        self.stats.facts.process.start_error = Some(error);
    }

    pub(super) fn start(&mut self) -> Vec<AttemptEffect> {
        let set_timer = AttemptEffect::SetTimer(AttemptTimer::Startup);
        self.stats.facts.process.is_mute = true;
        if !self.is_two_way {
            let prompt = std::mem::take(&mut self.prompt);
            let prompt = (!prompt.is_empty())
                .then(|| AttemptEffect::SendPrompt(user_message_frame(&prompt)));
            let rest = [
                AttemptEffect::CloseStdin,
                AttemptEffect::StartupFinished,
                set_timer,
            ];
            return prompt.into_iter().chain(rest).collect();
        }
        let ask = self.control.start_request(ControlRequest::Initialize {
            tools: self.proof.has_tools(),
            asks_to_stop: self.session.is_none(),
        });
        vec![AttemptEffect::WriteFrame(ask), set_timer]
    }

    /// Handles a line of stdout.
    pub(super) fn handle_line(&mut self, line: &AgentLine<'_>) -> Vec<AttemptEffect> {
        self.stats.facts.process.is_mute &= matches!(line.body, LineBody::Malformed);
        if self.session.is_some() {
            return self.handle_session_line(line);
        }
        if !self.stats.is_complete()
            && let SessionCheck::Mismatch(sentence) = self.identity.push(line)
        {
            // The session that the person continued is not there.
            self.stats.facts.interruption.session_mismatch = Some(sentence);
            return self.escalate_to(EscalationStep::Interrupt);
        }
        let mut steps = Vec::new();
        if self.stats.facts.interruption.session_mismatch.is_none() {
            steps.extend(self.stats.push_line(line).map(AttemptEffect::RecordNote));
        }
        let ran = self.proof.line_breach(&line.body);
        steps.extend(
            ran.map(|sentence| self.record_breach(sentence))
                .unwrap_or_default(),
        );
        steps.extend(self.handle_line_body(line));
        steps
    }

    fn handle_line_body(&mut self, line: &AgentLine<'_>) -> Vec<AttemptEffect> {
        match &line.body {
            LineBody::Control {
                kind,
                request_id,
                payload,
                ..
            } => {
                let body = payload.map_or(Value::Null, |payload| payload.value());
                let effects = self.control.handle_frame(kind, request_id, body);
                effects
                    .into_iter()
                    .flat_map(|effect| self.apply_control_effect(effect))
                    .collect()
            }
            LineBody::Init(init) => self.handle_init(init),
            // The isolation of the last turn is not verified yet. The pending request has its timer, and its reply
            // continues from here.
            LineBody::Result(_) if self.is_awaiting_settings() => {
                self.phase = AttemptPhase::Finished;
                Vec::new()
            }
            LineBody::Result(_) => self.finish(),
            _ => Vec::new(),
        }
    }

    /// Handles a line longer than `limit` bytes, of which a piece is on the tape.
    pub(super) fn handle_oversized_line(&mut self, limit: usize) -> Vec<AttemptEffect> {
        if self
            .stats
            .facts
            .interruption
            .oversized_line
            .replace(limit)
            .is_some()
        {
            return Vec::new();
        }
        let text = format!("a line of stdout exceeds {limit} bytes; it is recorded in pieces");
        let mut steps = vec![error_note(text)];
        steps.extend(self.escalate_to(EscalationStep::Interrupt));
        steps
    }

    /// Handles a time limit. An attempt that is ending anyway is not affected.
    pub(super) fn handle_time_limit(&mut self, limit: TimeLimit) -> Vec<AttemptEffect> {
        if self.phase == AttemptPhase::Finished || self.escalation.is_some() {
            return Vec::new();
        }
        self.stats.facts.interruption.timed_out = Some(limit);
        self.escalate_to(EscalationStep::Interrupt)
    }

    /// What the attempt waits for on our side.
    pub(super) fn waits_for(&self) -> WaitReason {
        let is_in_call = self.session.is_some() && self.stats.reducer().calls().open_count() > 0;
        match (
            self.pending_approvals.is_empty(),
            self.control.has_pending_agent_requests() || is_in_call,
        ) {
            (false, _) => WaitReason::Approval,
            (true, true) => WaitReason::Tool,
            (true, false) => WaitReason::Agent,
        }
    }

    /// Handles an agent with more than `limit` unread bytes on its stdin: it would not read an interrupt either.
    pub(super) fn handle_unread_input(&mut self, limit: usize) -> Vec<AttemptEffect> {
        self.stats
            .facts
            .interruption
            .unread_stdin
            .get_or_insert(limit);
        self.escalate_to(EscalationStep::Terminate)
    }

    pub(super) fn handle_stderr_line(&mut self, line: &str) {
        self.stats.push_stderr_line(line);
    }

    /// Handles the end of stdout: no result can follow.
    pub(super) fn handle_stdout_closed(&mut self) -> Vec<AttemptEffect> {
        let mut steps = self.fail_missing_settings();
        steps.extend(self.finish());
        steps
    }

    /// Handles an event or the end of the tool server.
    pub(super) fn handle_server_event(&mut self, event: Option<ServerEvent>) -> Vec<AttemptEffect> {
        match event {
            Some(ServerEvent::Message(message)) => self
                .control
                .handle_server_message(message)
                .map(AttemptEffect::WriteFrame)
                .into_iter()
                .collect(),
            Some(ServerEvent::CallFinished {
                tool,
                tool_use_id,
                effect,
                failure,
                declined,
            }) => {
                let is_new = self.stats.record_tool_reply(
                    &tool,
                    tool_use_id.as_deref(),
                    &effect,
                    failure.as_deref(),
                );
                let failed = failure.filter(|_| is_new);
                let note = match (failed, declined) {
                    (Some(message), _) => Some(Note::ToolFailed {
                        tool,
                        tool_use_id,
                        message,
                    }),
                    (None, Some(message)) => Some(Note::ToolDeclined {
                        tool,
                        tool_use_id,
                        message: truncate_declined_message(message),
                    }),
                    (None, None) => None,
                };
                note.map(AttemptEffect::RecordNote).into_iter().collect()
            }
            None => self
                .control
                .handle_server_exit()
                .into_iter()
                .map(AttemptEffect::WriteFrame)
                .collect(),
        }
    }

    /// Handles a decision of the approval gate.
    pub(super) fn handle_decision(
        &mut self,
        request_id: &str,
        decision: ApprovalDecision,
    ) -> Vec<AttemptEffect> {
        let held = self
            .pending_approvals
            .iter()
            .position(|(held, ..)| held == request_id)
            .map(|at| self.pending_approvals.swap_remove(at));
        // Recorded before the agent reads the decision, because it then reports the call as failed.
        match (held, &decision) {
            // A tool server that gets no input is not a failed call.
            (Some((_, tool, _)), _) if tool == ELICITATION => {}
            (Some((_, tool, id)), ApprovalDecision::Deny(reason)) => {
                self.stats.record_refusal(&tool, id.as_deref(), reason);
            }
            (Some((_, _, id)), ApprovalDecision::DenyByPolicy(_)) => {
                self.stats.record_denial(id.as_deref())
            }
            _ => {}
        }
        self.control
            .resolve_approval(request_id, decision)
            .map(AttemptEffect::WriteFrame)
            .into_iter()
            .collect()
    }

    /// Handles a request. After the result, a stop request only speeds up the exit; the result stays valid.
    pub(super) fn handle_command(&mut self, command: AttemptCommand) -> Vec<AttemptEffect> {
        let (how, step) = match command {
            AttemptCommand::Message(text) => return self.handle_message(text),
            AttemptCommand::Request(request) => return self.handle_request(request),
            AttemptCommand::Interrupt => (StopMode::Stop, EscalationStep::Interrupt),
            // SIGKILL follows; before that, the agent can end its child processes.
            AttemptCommand::Kill => (StopMode::Kill, EscalationStep::Terminate),
        };
        let is_finished = self.session.as_ref().map_or(
            self.phase == AttemptPhase::Finished,
            SessionMonitor::is_complete,
        );
        if is_finished && self.stats.facts.interruption.stopped.is_none() {
            return self.escalate_to(step.max(EscalationStep::Terminate));
        }
        self.stats.facts.interruption.stopped = Some(how);
        self.escalate_to(step)
    }

    /// Handles a tape that cannot be written: ends the attempt, because nothing more could be recorded.
    pub(super) fn handle_record_error(&mut self, error: String) -> Vec<AttemptEffect> {
        self.stats
            .facts
            .interruption
            .record_error
            .get_or_insert(error);
        self.escalate_to(EscalationStep::Terminate)
    }

    pub(super) fn handle_timer(&mut self, alarm: AttemptTimer) -> Vec<AttemptEffect> {
        match alarm {
            AttemptTimer::Startup if self.has_begun() || self.phase == AttemptPhase::Finished => {
                Vec::new()
            }
            AttemptTimer::Startup => self.handle_startup_timeout(),
            AttemptTimer::Settings
                if self.phase == AttemptPhase::VerifyingIsolation
                    || self.is_awaiting_settings() =>
            {
                self.handle_settings(None)
            }
            AttemptTimer::Settings => Vec::new(),
            AttemptTimer::Exit if self.phase != AttemptPhase::Finished => Vec::new(),
            AttemptTimer::Exit => self.escalate_to(EscalationStep::Terminate),
            AttemptTimer::Escalation => self.escalate_to(
                self.escalation
                    .map_or(EscalationStep::Interrupt, EscalationStep::next_step),
            ),
            AttemptTimer::Drain => {
                let mut steps = self.fail_missing_settings();
                steps.push(AttemptEffect::StopWaiting);
                steps
            }
        }
    }

    /// Handles the exit of the process. Its pipes may still contain data.
    pub(super) fn handle_exit(&mut self, ended: ProcessExit) -> Vec<AttemptEffect> {
        self.stats.facts.process.exit_code = ended.code;
        self.stats.facts.process.signal = ended.signal;
        // A process may exit by itself while a signal is on its way to it.
        let ended_by_signal =
            ended.signal.is_some() || ended.code.is_some_and(|code| code > SIGNAL_EXIT_CODE);
        self.stats.facts.process.terminated_by_us =
            ended_by_signal && self.escalation >= Some(EscalationStep::Terminate);
        self.phase = AttemptPhase::Finished;
        self.has_exited = true;
        vec![AttemptEffect::SetTimer(AttemptTimer::Drain)]
    }

    fn apply_control_effect(&mut self, effect: ControlEffect) -> Vec<AttemptEffect> {
        match effect {
            ControlEffect::Write(frame) => vec![AttemptEffect::WriteFrame(frame)],
            ControlEffect::ForwardToServer(message) => {
                match self.refusal_reason(is_tool_call(&message)) {
                    Some(why) => {
                        let error = json!({"code": -32600, "message": why});
                        let refusal =
                            json!({"jsonrpc": "2.0", "id": message.get("id"), "error": error});
                        self.handle_server_event(Some(ServerEvent::Message(refusal)))
                    }
                    None => vec![AttemptEffect::ForwardToServer(message)],
                }
            }
            ControlEffect::ApprovalNeeded {
                request_id: id,
                tool_id,
                permission_mode,
                mut call,
            } => {
                if let Some(why) = self.refusal_reason(true) {
                    return self
                        .handle_decision(&id, ApprovalDecision::DenyByPolicy(why.to_owned()));
                }
                let breach = || self.proof.call_breach(&tool_id, permission_mode.as_deref());
                if let Some(sentence) = self.session.is_none().then(breach).flatten() {
                    let mut steps =
                        self.handle_decision(&id, ApprovalDecision::DenyByPolicy(sentence.clone()));
                    steps.extend(self.record_breach(sentence));
                    return steps;
                }
                call.earlier_failures = self.stats.facts.work.tally.calls().len();
                self.pending_approvals.push((
                    id.clone(),
                    call.tool.clone(),
                    call.tool_use_id.clone(),
                ));
                let mut steps = if self.escalation.is_none() {
                    self.send_messages()
                } else {
                    Vec::new()
                };
                steps.push(AttemptEffect::RequestApproval(id, call));
                steps
            }
            ControlEffect::Declined(text) => vec![warning_note(&text)],
            ControlEffect::ApprovalCancelled(id) => {
                self.pending_approvals.retain(|(held, ..)| *held != id);
                vec![AttemptEffect::CancelApproval(id)]
            }
            ControlEffect::StopRequested { request_id } if self.may_be_asked() => {
                vec![AttemptEffect::AskToolsBeforeStop(request_id)]
            }
            ControlEffect::StopRequested { request_id } => {
                self.handle_stop_question(&request_id, None)
            }
            ControlEffect::ToolFailed {
                tool,
                tool_use_id,
                message,
            } => {
                self.stats
                    .record_failure(&tool, tool_use_id.as_deref(), &message);
                Vec::new()
            }
            ControlEffect::ReplyReceived(ask, answer) => self.handle_reply(ask, answer),
        }
    }

    /// Why a request of the agent is refused. Before its isolation is verified, it may connect but not call tools.
    fn refusal_reason(&self, is_call: bool) -> Option<&'static str> {
        if is_call && self.session.is_none() && self.stats.is_complete() {
            return Some("no call is accepted after the result");
        }
        match self.stats.facts.isolation {
            IsolationStatus::Breached(_) => Some("the attempt is being stopped"),
            IsolationStatus::Unverified if is_call => {
                Some("no call is accepted before the agent has announced its tools")
            }
            IsolationStatus::NotRequired
            | IsolationStatus::Unverified
            | IsolationStatus::Verified => None,
        }
    }

    fn handle_reply(
        &mut self,
        ask: ControlRequest,
        answer: Result<Value, Problem>,
    ) -> Vec<AttemptEffect> {
        match (ask, answer) {
            // A running escalation has its own timer, and there is only one timer.
            (ControlRequest::Initialize { .. }, Ok(_))
                if self.phase == AttemptPhase::Initializing && self.escalation.is_none() =>
            {
                if self.session.is_some() {
                    let mut steps = vec![AttemptEffect::StartupFinished];
                    steps.extend(self.send_prompt());
                    return steps;
                }
                self.phase = AttemptPhase::VerifyingIsolation;
                vec![
                    AttemptEffect::WriteFrame(self.control.start_request(ControlRequest::Settings)),
                    AttemptEffect::SetTimer(AttemptTimer::Settings),
                ]
            }
            (ControlRequest::Initialize { .. }, Err(error)) => {
                self.stats.facts.process.start_error =
                    Some(format!("claude refused to open the conversation: {error}"));
                self.escalate_to(EscalationStep::Interrupt)
            }
            (ControlRequest::Settings, answer) => {
                let mut steps = self
                    .handle_settings(answer.ok().as_ref().and_then(isolation::settings_sources));
                if self.phase == AttemptPhase::Finished && self.escalation.is_none() {
                    steps.extend(self.finish());
                }
                steps
            }
            (ControlRequest::OfPerson(request), answer) => self.handle_answer(request, answer),
            (ControlRequest::Initialize { .. } | ControlRequest::Interrupt, _) => Vec::new(),
        }
    }

    fn send_prompt(&mut self) -> Vec<AttemptEffect> {
        if self.escalation.is_some() {
            return Vec::new();
        }
        self.phase = AttemptPhase::Working;
        vec![
            AttemptEffect::WriteFrame(prompt_frame(&self.prompt)),
            AttemptEffect::SetTimer(AttemptTimer::Startup),
        ]
    }

    fn handle_startup_timeout(&mut self) -> Vec<AttemptEffect> {
        let what = if self.phase == AttemptPhase::Working {
            "begin to work"
        } else {
            "open the conversation"
        };
        let seconds = self.timeouts.startup.as_secs();
        self.stats.facts.process.start_error =
            Some(format!("claude did not {what} within {seconds} s"));
        self.escalate_to(if self.is_two_way {
            EscalationStep::Interrupt
        } else {
            EscalationStep::Terminate
        })
    }

    /// True once the agent has announced a turn.
    fn has_begun(&self) -> bool {
        self.session
            .as_ref()
            .map_or(self.has_announced_turn, SessionMonitor::has_begun)
    }
}

fn warning_note(text: &str) -> AttemptEffect {
    AttemptEffect::RecordNote(Note::Message {
        level: Severity::Warning,
        text: text.to_owned(),
    })
}

fn error_note(text: String) -> AttemptEffect {
    AttemptEffect::RecordNote(Note::Message {
        level: Severity::Error,
        text,
    })
}

/// True for a message that runs a tool.
fn is_tool_call(message: &Value) -> bool {
    message.get("method").and_then(Value::as_str) == Some("tools/call")
}

/// Truncates a tool reply; the stream has all of it.
fn truncate_declined_message(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_DECLINED_CHARS) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests;
