//! Runs one attempt at a unit and performs the effects that `attempt_machine` decides on.
//!
//! Owns the process, its pipes, the tool server and the private directory of the attempt. Every line is recorded before
//! it is evaluated. The module must not judge the attempt: it returns facts.

use std::{borrow::Cow, collections::HashMap, ffi::OsString, fmt::Debug, io, path::PathBuf, sync::Arc};

use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable, Aborted, BoxFuture},
    stream::FuturesUnordered,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    decode::{self, AgentLine},
    run::{
        attempt_reducer::AttemptReducer,
        entry_source::{RecordError, Recorder},
    },
    tape::{
        Note, UnitKey,
        entry::EntryBody,
        note::{Amendment, AttemptStarted, ContentDigests, Severity},
    },
    units::{
        Toolset,
        verdict::{AttemptFacts, TimeLimit},
    },
};

use self::{
    deadlines::Deadlines,
    frame_queue::ControlFrameQueue,
    read_coalescer::ReadCoalescer,
    recorder::AttemptRecorder,
    start::{AttemptStartError, StartedProcess, start_process},
};
pub(crate) use super::attempt_machine::StopCommand;
pub(crate) use super::control::{ApprovalDecision, ApprovalRequest};
use super::{
    attempt_machine::{AttemptEffect, AttemptMachine, AttemptTimer, ContinuedSession},
    claude::isolation::AllowedTools,
    control::ControlFrame,
    line_reader::LineReader,
    mcp::{self, ServerEvent, ToolServer},
    pausable_pipe::PausablePipe,
    process::{Child, ProcessExit, ProcessTimeouts, StreamLimits},
    stderr_limit::StderrLimit,
};
pub(crate) use deadlines::AttemptTimeouts;
pub(crate) use read_coalescer::start_tick_clock;

pub(super) mod deadlines;
mod frame_queue;
mod read_coalescer;
mod recorder;
mod start;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentProgram {
    pub exe: PathBuf,
    /// Arguments before those of the protocol.
    pub prefix: Vec<OsString>,
    /// A script plays the model: `exe` is this program itself.
    pub scripted: bool,
}

/// Everything that an attempt needs.
#[derive(Clone, Debug)]
pub(crate) struct UnitLaunch {
    pub program: AgentProgram,
    pub cwd: PathBuf,
    pub unit: UnitKey,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// System prompt that replaces the agent's own.
    pub system_prompt: String,
    pub prompt: String,
    /// Id of a new session (a UUID), unless one is continued.
    pub new_session: String,
    /// Model; by default the agent's.
    pub model: Option<String>,
    /// Maximum number of API round trips.
    pub step_budget: u32,
    /// Cost limit, in US dollars.
    pub max_budget_usd: Option<f64>,
    pub partial_messages: bool,
    /// Additional variables that the agent inherits, by name or as `PREFIX_*`.
    pub pass_env: Vec<String>,
    /// Limits on its duration and on its silence.
    pub timeouts: AttemptTimeouts,
    /// Memory limits for its lines and our replies.
    pub limits: StreamLimits,
    pub tools: Arc<dyn Toolset>,
    pub recorder: Arc<dyn Recorder>,
    /// Sees each recorded line.
    pub observer: Option<Arc<dyn LineObserver>>,
    /// Decides about each call.
    pub gate: Arc<dyn ApprovalGate>,
    /// Changes to the plan that a person requested, for the tape. Prompt, model and budget above include them already;
    /// its session is continued.
    pub amendment: Option<Amendment>,
    /// Cost of the earlier attempts of the continued session, in US dollars; `None` if that is unknown.
    pub paid_usd: Option<f64>,
    /// Digests of the unit's inputs, for the tape.
    pub content: Option<ContentDigests>,
}

impl UnitLaunch {
    /// Session to continue, instead of a new one.
    pub(crate) fn resume(&self) -> Option<&str> {
        self.amendment.as_ref()?.resume.as_deref()
    }
}

/// Decides about every tool call before it runs. The call waits for the decision; the future is dropped when the agent
/// no longer waits for it.
pub(crate) trait ApprovalGate: Send + Sync + Debug {
    fn decide(&self, call: ApprovalRequest) -> BoxFuture<'_, ApprovalDecision>;
}

/// Sees every line of an agent after it is recorded and counted.
pub(crate) trait LineObserver: Send + Sync + Debug {
    /// `state` is the accounting of the attempt after the line.
    fn observe(&self, attempt: (&UnitKey, u32), line: &AgentLine<'_>, state: &AttemptReducer);
}

/// Runs one attempt to its end and returns its facts. The agent's environment is derived from our own.
///
/// `ready` fires when start-up is over; it is dropped unused if the attempt ends before. The recorder gets everything
/// that is read, written or decided, except the verdict. Returns within seconds of a [`StopCommand`], even if the
/// process, a tool or the gate is stuck. Dropping the future kills the process group.
pub(crate) async fn run_unit(
    launch: UnitLaunch,
    commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> AttemptFacts {
    run_unit_with_env(std::env::vars_os().collect(), ProcessTimeouts::default(), launch, commands, ready).await
}

/// Like [`run_unit`], with the given environment and timeouts.
pub(crate) async fn run_unit_with_env(
    environment: Vec<(OsString, OsString)>,
    timeouts: ProcessTimeouts,
    launch: UnitLaunch,
    commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> AttemptFacts {
    let mut facts = AttemptFacts {
        prompt_chars: launch.system_prompt.chars().count() + launch.prompt.chars().count(),
        ..AttemptFacts::default()
    };
    let mut tape = AttemptRecorder::new(Arc::clone(&launch.recorder), launch.unit.clone(), launch.attempt);
    let mut started = AttemptStarted {
        cwd: launch.cwd.to_string_lossy().into_owned(),
        model: launch.model.clone(),
        step_budget: launch.step_budget,
        system_prompt: launch.system_prompt.clone(),
        prompt: launch.prompt.clone(),
        scripted: launch.program.scripted,
        amendment: launch.amendment.clone(),
        content: launch.content.clone(),
        ..AttemptStarted::default()
    };
    let begun = start_process(&launch, environment, facts.prompt_chars, &mut started).await;
    if let Err(error) = tape.note(&Note::AttemptStarted(Box::new(started))) {
        facts.interruption.record_error = Some(error.to_string());
        return facts;
    }
    match begun {
        Ok(begun) => drive_attempt(begun, &launch, facts, tape, timeouts, commands, ready).await,
        Err(AttemptStartError::PromptTooLarge) => facts,
        Err(AttemptStartError::Start(why)) => {
            (facts.process.start_error, facts.process.start_fault) = (Some(why.message), why.fault);
            facts
        }
    }
}

type ApprovalFuture = Abortable<BoxFuture<'static, (String, ApprovalDecision)>>;

/// The resources that the effects of the machine act on.
struct AttemptRunner {
    tape: AttemptRecorder,
    child: Child,
    frame_queue: Option<ControlFrameQueue>,
    server: ToolServer,
    gate: Arc<dyn ApprovalGate>,
    approvals: FuturesUnordered<ApprovalFuture>,
    approval_handles: HashMap<String, AbortHandle>,
    timer: Option<(Instant, AttemptTimer)>,
    timeouts: ProcessTimeouts,
    limits: StreamLimits,
    stderr: StderrLimit,
    ready: Option<oneshot::Sender<()>>,
    is_done: bool,
}

enum AttemptEvent {
    StdoutReady(io::Result<()>),
    StderrReady(io::Result<()>),
    Server(Option<ServerEvent>),
    Decided(Result<(String, ApprovalDecision), Aborted>),
    Command(Option<StopCommand>),
    Exited(ProcessExit),
    TimerFired(AttemptTimer),
    TimedOut(TimeLimit),
}

async fn drive_attempt(
    begun: StartedProcess,
    launch: &UnitLaunch,
    mut facts: AttemptFacts,
    tape: AttemptRecorder,
    timeouts: ProcessTimeouts,
    mut commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> AttemptFacts {
    let StartedProcess { mut child, tool_ids, private_dir: private } = begun;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        facts.process.start_error = Some("the process has no pipes".into());
        return facts;
    };
    let stdout = match PausablePipe::from_stdout(stdout) {
        Ok(pipe) => pipe,
        Err(error) => {
            facts.process.start_error = Some(format!("cannot read its output: {error}"));
            return facts;
        }
    };
    let limits = launch.limits;
    let mut stdout = LineReader::with_limit(stdout, limits.line);
    let mut stderr = LineReader::with_limit(stderr, limits.stderr_line);
    let (to_child, writer) = ControlFrameQueue::start(stdin, limits.unread_stdin);
    let with_tools = !tool_ids.is_empty();
    let allowed = AllowedTools::new(tool_ids, with_tools.then_some(mcp::SERVER_NAME));
    let resume = launch.resume().map(|id| ContinuedSession { id: id.to_owned(), paid_usd: launch.paid_usd });
    let (prompt, max_turns) = (launch.prompt.clone(), launch.step_budget);
    let mut machine = AttemptMachine::new(facts, allowed, with_tools, prompt, resume, max_turns, timeouts);
    let mut shell = AttemptRunner {
        tape,
        child,
        frame_queue: Some(to_child),
        server: ToolServer::start(Arc::clone(&launch.tools)),
        gate: Arc::clone(&launch.gate),
        approvals: FuturesUnordered::new(),
        approval_handles: HashMap::new(),
        timer: None,
        timeouts,
        limits,
        stderr: StderrLimit::new(limits.stderr),
        ready: Some(ready),
        is_done: false,
    };
    let (mut commanded, mut served, mut running, mut speaking) = (true, true, true, true);
    let mut coalescer = ReadCoalescer::default();
    let mut deadlines = Deadlines::new(launch.timeouts, Instant::now());
    let effects = machine.start();
    shell.apply_effects(&mut machine, effects);

    while !shell.is_done && (running || speaking || !stderr.is_finished()) {
        let (alarm, timeout) = (shell.timer, deadlines.next_deadline());
        let event = tokio::select! {
            filled = coalescer.wait_then(stdout.fill()), if speaking => AttemptEvent::StdoutReady(filled),
            filled = stderr.fill(), if !stderr.is_finished() => AttemptEvent::StderrReady(filled),
            server_event = shell.server.next_event(), if served => AttemptEvent::Server(server_event),
            Some(decided) = shell.approvals.next() => AttemptEvent::Decided(decided),
            command = commands.recv(), if commanded => AttemptEvent::Command(command),
            ended = shell.child.wait(), if running => AttemptEvent::Exited(ended),
            alarm = wait_for_timer(alarm), if alarm.is_some() => AttemptEvent::TimerFired(alarm),
            limit = wait_for_timer(timeout), if timeout.is_some() => AttemptEvent::TimedOut(limit),
        };
        coalescer = coalescer.cancel_pause();
        if matches!(event, AttemptEvent::StdoutReady(_) | AttemptEvent::StderrReady(_)) {
            deadlines.record_output(Instant::now());
        }
        let effects = match event {
            AttemptEvent::StdoutReady(filled) => {
                log_read_error(filled, "stdout");
                let batch = stdout.take_lines();
                match shell.tape.record(batch.bodies()) {
                    Ok(()) if batch.is_piece() => {
                        let effects = machine.handle_oversized_line(limits.line);
                        shell.apply_effects(&mut machine, effects);
                    }
                    Ok(()) => {
                        let lines: Vec<_> = batch.lines().map(decode::decode_line).collect();
                        coalescer = coalescer.observe(lines.iter().map(|line| &line.body), batch.size());
                        for line in &lines {
                            let effects = machine.handle_line(line);
                            if let (Some(observer), Some(state)) = (&launch.observer, machine.reducer()) {
                                observer.observe((&launch.unit, launch.attempt), line, state);
                            }
                            shell.apply_effects(&mut machine, effects);
                        }
                    }
                    Err(error) => {
                        let effects = machine.handle_record_error(error.to_string());
                        shell.apply_effects(&mut machine, effects);
                    }
                }
                if coalescer.is_paused() {
                    stdout.source().pause();
                }
                speaking = !stdout.is_finished();
                if speaking { Vec::new() } else { machine.handle_stdout_closed() }
            }
            AttemptEvent::StderrReady(filled) => {
                log_read_error(filled, "stderr");
                let mut lines: Vec<Cow<'_, str>> = stderr.take_lines().lines().map(String::from_utf8_lossy).collect();
                lines.iter().for_each(|line| machine.handle_stderr_line(line));
                let had_dropped = shell.stderr.has_dropped();
                lines.retain(|line| shell.stderr.admits(line.len()));
                let recorded = shell.tape.record(lines.into_iter().map(EntryBody::Stderr));
                let dropped = shell.stderr.limit_reached_note(had_dropped);
                let recorded = recorded.and_then(|()| dropped.map_or(Ok(()), |note| shell.tape.note(&note)));
                recorded.map_or_else(|error| machine.handle_record_error(error.to_string()), |()| Vec::new())
            }
            AttemptEvent::Server(server_event) => {
                served = server_event.is_some();
                machine.handle_server_event(server_event)
            }
            AttemptEvent::Decided(Ok((request_id, decision))) => {
                shell.approval_handles.remove(&request_id);
                machine.handle_decision(&request_id, decision)
            }
            AttemptEvent::Decided(Err(Aborted)) => Vec::new(),
            AttemptEvent::Command(Some(command)) => machine.handle_stop_command(command),
            AttemptEvent::Command(None) => {
                commanded = false;
                Vec::new()
            }
            AttemptEvent::Exited(ended) => {
                running = false;
                machine.handle_exit(ended)
            }
            AttemptEvent::TimerFired(alarm) => {
                shell.timer = None;
                machine.handle_timer(alarm)
            }
            AttemptEvent::TimedOut(limit) => {
                deadlines.clear();
                machine.handle_time_limit(limit)
            }
        };
        shell.apply_effects(&mut machine, effects);
        deadlines.update(Instant::now(), machine.waits_for());
    }
    drop(writer);
    shell.shut_down().await;
    drop(private);
    machine.into_facts()
}

impl AttemptRunner {
    fn apply_effects(&mut self, machine: &mut AttemptMachine, effects: Vec<AttemptEffect>) {
        for effect in effects {
            let done = match effect {
                AttemptEffect::WriteFrame(frame) => self.write_frame(machine, frame),
                AttemptEffect::RecordNote(note) => self.tape.note(&note),
                other => {
                    self.apply_effect(machine, other);
                    Ok(())
                }
            };
            if let Err(error) = done {
                let effects = machine.handle_record_error(error.to_string());
                self.apply_effects(machine, effects);
            }
        }
    }

    fn write_frame(&mut self, machine: &mut AttemptMachine, frame: ControlFrame) -> Result<(), RecordError> {
        let Some(to_child) = &self.frame_queue else { return Ok(()) };
        if to_child.has_capacity_for(&frame) {
            self.tape.record(std::iter::once(EntryBody::Stdin(&frame.0)))?;
            to_child.send(frame);
        } else {
            let effects = machine.handle_unread_input(self.limits.unread_stdin);
            self.apply_effects(machine, effects);
        }
        Ok(())
    }

    fn apply_effect(&mut self, machine: &mut AttemptMachine, effect: AttemptEffect) {
        match effect {
            AttemptEffect::WriteFrame(_) | AttemptEffect::RecordNote(_) => {}
            AttemptEffect::CloseStdin => self.frame_queue = None,
            AttemptEffect::ForwardToServer(message) => {
                if let Err(Some(answer)) = self.server.send_message(message) {
                    let effects = machine.handle_server_event(Some(ServerEvent::Message(answer)));
                    self.apply_effects(machine, effects);
                }
            }
            AttemptEffect::RequestApproval(request_id, call) => self.request_approval(request_id, call),
            AttemptEffect::CancelApproval(request_id) => {
                if let Some(hold) = self.approval_handles.remove(&request_id) {
                    hold.abort();
                }
            }
            AttemptEffect::SignalGroup(signal) => self.child.signal(signal),
            AttemptEffect::StartupFinished => {
                if let Some(ready) = self.ready.take() {
                    // The receiver is optional.
                    let _ = ready.send(());
                }
            }
            AttemptEffect::SetTimer(alarm) => {
                self.timer = Some((Instant::now() + alarm.duration(&self.timeouts), alarm));
            }
            AttemptEffect::StopWaiting => self.is_done = true,
        }
    }

    fn request_approval(&mut self, request_id: String, call: ApprovalRequest) {
        let (handle, registration) = AbortHandle::new_pair();
        self.approval_handles.insert(request_id.clone(), handle);
        let gate = Arc::clone(&self.gate);
        let decided: BoxFuture<'static, _> = Box::pin(async move { (request_id, gate.decide(call).await) });
        self.approvals.push(Abortable::new(decided, registration));
    }

    /// Ends the tool server: tools must not write after the end of the attempt.
    async fn shut_down(self) {
        let Self { mut tape, child, server, timeouts, stderr, .. } = self;
        drop(child);
        if let Some(note) = stderr.summary_note() {
            // A broken tape may have ended the attempt.
            let _ = tape.note(&note);
        }
        if !server.drain(timeouts.pipe_drain).await {
            let text = "a tool call was still running when the attempt ended, and was abandoned".to_owned();
            // A broken tape may have ended the attempt.
            let _ = tape.note(&Note::Message { level: Severity::Warning, text });
        }
    }
}

async fn wait_for_timer<A>(alarm: Option<(Instant, A)>) -> A {
    match alarm {
        Some((at, alarm)) => {
            tokio::time::sleep_until(at).await;
            alarm
        }
        None => std::future::pending().await,
    }
}

fn log_read_error(filled: io::Result<()>, pipe: &str) {
    if let Err(error) = filled {
        tracing::warn!(%error, pipe, "the pipe broke");
    }
}
