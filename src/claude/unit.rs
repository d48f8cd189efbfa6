//! One attempt at a unit, from the first byte to the last: the shell that carries out what `course`
//! decides.
//!
//! Owns the process, its pipes, the tool server and the private directory of the attempt. Whatever arrives is recorded
//! before anything looks at it. It must not judge the attempt: it returns facts.

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
    decode,
    run::entry_source::{RecordError, Recorder},
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
    frame_queue::FrameQueue,
    read_coalescer::ReadCoalescer,
    recorder::AttemptRecorder,
    start::{BeginError, StartedProcess, start_process},
};
pub use super::control::{ApprovalDecision, ApprovalRequest};
use super::{
    attempt_machine::{AttemptEffect, AttemptMachine, AttemptTimer},
    control::ControlFrame,
    isolation::AllowedTools,
    line_reader::LineReader,
    mcp::{self, ServerEvent, ToolServer},
    pausable_pipe::PausablePipe,
    process::{Child, ProcessExit, ProcessTimeouts, StreamLimits},
    stderr_limit::StderrLimit,
};
pub use deadlines::AttemptTimeouts;
pub use read_coalescer::start_tick_clock;

pub(super) mod deadlines;
mod frame_queue;
mod read_coalescer;
mod recorder;
mod start;

/// The agent's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProgram {
    /// Executable.
    pub exe: PathBuf,
    /// Arguments before those of the protocol.
    pub prefix: Vec<OsString>,
    /// A script plays the model: `exe` is this program itself.
    pub scripted: bool,
}

/// Everything that an attempt needs.
#[derive(Clone, Debug)]
pub struct UnitLaunch {
    /// The agent.
    pub program: AgentProgram,
    /// Its working directory.
    pub cwd: PathBuf,
    /// The unit.
    pub unit: UnitKey,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// System prompt; replaces the agent's own.
    pub system_prompt: String,
    /// Prompt.
    pub prompt: String,
    /// Id of its session unless one is gone on with: a UUID.
    pub new_session: String,
    /// Model, or the agent's default.
    pub model: Option<String>,
    /// API round trips allowed.
    pub step_budget: u32,
    /// Spending allowed, in dollars.
    pub max_budget_usd: Option<f64>,
    /// Stream partial messages.
    pub partial_messages: bool,
    /// Variables that reach the agent beside those that it always gets, by name or as `PREFIX_*`.
    pub pass_env: Vec<String>,
    /// How long it may take, and how long it may write nothing.
    pub timeouts: AttemptTimeouts,
    /// How much of its lines and of our answers is kept in memory.
    pub limits: StreamLimits,
    /// What it may call.
    pub tools: Arc<dyn Toolset>,
    /// The tape.
    pub recorder: Arc<dyn Recorder>,
    /// Who decides over each call.
    pub gate: Arc<dyn ApprovalGate>,
    /// What a person wanted otherwise than planned, for the tape. Prompt, model and budget above have it already; its
    /// session is gone on with.
    pub amendment: Option<Amendment>,
    /// What the unit is made of, for the record.
    pub content: Option<ContentDigests>,
}

impl UnitLaunch {
    /// Session to go on with, instead of a new one.
    pub fn resume(&self) -> Option<&str> {
        self.amendment.as_ref()?.resume.as_deref()
    }
}

/// What may be asked of a running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCommand {
    /// End it, giving it time to say so.
    Interrupt,
    /// End it now.
    Kill,
}

/// Decides over every tool call before it is made. The call waits for as long as the decision takes; the future is
/// dropped when the agent no longer waits for it.
pub trait ApprovalGate: Send + Sync + Debug {
    /// What to do with `call`.
    fn decide(&self, call: ApprovalRequest) -> BoxFuture<'_, ApprovalDecision>;
}

/// Lets every call pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAllGate;

impl ApprovalGate for AllowAllGate {
    fn decide(&self, _call: ApprovalRequest) -> BoxFuture<'_, ApprovalDecision> {
        Box::pin(std::future::ready(ApprovalDecision::Allow))
    }
}

/// Runs one attempt to its end and returns what is known of it. The agent's environment is derived from our own.
///
/// `ready` fires when start-up is over; it is dropped unused when the attempt ends before. Everything that arrives, is
/// written or is decided here goes to the recorder, except the verdict. Returns within seconds of a [`StopCommand`], even
/// if the process, a tool or the gate is stuck. Dropping the future kills the process group.
pub async fn run_unit(
    launch: UnitLaunch,
    commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> AttemptFacts {
    run_unit_with_env(std::env::vars_os().collect(), ProcessTimeouts::default(), launch, commands, ready).await
}

/// As [`run_unit`], with the environment and the patience given.
pub async fn run_unit_with_env(
    environment: Vec<(OsString, OsString)>,
    patience: ProcessTimeouts,
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
        facts.record_error = Some(error.to_string());
        return facts;
    }
    match begun {
        Ok(begun) => drive_attempt(begun, &launch, facts, tape, patience, commands, ready).await,
        Err(BeginError::PromptTooLarge) => facts,
        Err(BeginError::Start(why)) => AttemptFacts { start_error: Some(why.message), start_fault: why.fault, ..facts },
    }
}

type ApprovalFuture = Abortable<BoxFuture<'static, (String, ApprovalDecision)>>;

/// What the machine's steps act upon.
struct AttemptRunner {
    tape: AttemptRecorder,
    child: Child,
    frame_queue: Option<FrameQueue>,
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
    facts: AttemptFacts,
    tape: AttemptRecorder,
    patience: ProcessTimeouts,
    mut commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> AttemptFacts {
    let StartedProcess { mut child, tool_ids, private_dir: private } = begun;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return AttemptFacts { start_error: Some("the process has no pipes".into()), ..facts };
    };
    let stdout = match PausablePipe::from_stdout(stdout) {
        Ok(pipe) => pipe,
        Err(error) => return AttemptFacts { start_error: Some(format!("cannot read what it says: {error}")), ..facts },
    };
    let limits = launch.limits;
    let mut stdout = LineReader::with_limit(stdout, limits.line);
    let mut stderr = LineReader::with_limit(stderr, limits.stderr_line);
    let (to_child, writer) = FrameQueue::start(stdin, limits.unread_stdin);
    let with_tools = !tool_ids.is_empty();
    let allowed = AllowedTools::new(tool_ids, with_tools.then_some(mcp::SERVER_NAME));
    let resume = launch.resume().map(str::to_owned);
    let mut course = AttemptMachine::new(facts, allowed, with_tools, launch.prompt.clone(), resume, patience);
    let mut shell = AttemptRunner {
        tape,
        child,
        frame_queue: Some(to_child),
        server: ToolServer::start(Arc::clone(&launch.tools)),
        gate: Arc::clone(&launch.gate),
        approvals: FuturesUnordered::new(),
        approval_handles: HashMap::new(),
        timer: None,
        timeouts: patience,
        limits,
        stderr: StderrLimit::new(limits.stderr),
        ready: Some(ready),
        is_done: false,
    };
    let (mut commanded, mut served, mut running, mut speaking) = (true, true, true, true);
    let mut lull = ReadCoalescer::default();
    let mut deadlines = Deadlines::new(launch.timeouts, Instant::now());
    let steps = course.start();
    shell.apply_effects(&mut course, steps);

    while !shell.is_done && (running || speaking || !stderr.is_finished()) {
        let (alarm, timeout) = (shell.timer, deadlines.next_deadline());
        let event = tokio::select! {
            filled = lull.wait_then(stdout.fill()), if speaking => AttemptEvent::StdoutReady(filled),
            filled = stderr.fill(), if !stderr.is_finished() => AttemptEvent::StderrReady(filled),
            said = shell.server.next_event(), if served => AttemptEvent::Server(said),
            Some(decided) = shell.approvals.next() => AttemptEvent::Decided(decided),
            command = commands.recv(), if commanded => AttemptEvent::Command(command),
            ended = shell.child.wait(), if running => AttemptEvent::Exited(ended),
            alarm = wait_for_timer(alarm), if alarm.is_some() => AttemptEvent::TimerFired(alarm),
            limit = wait_for_timer(timeout), if timeout.is_some() => AttemptEvent::TimedOut(limit),
        };
        lull = lull.cancel_pause();
        if matches!(event, AttemptEvent::StdoutReady(_) | AttemptEvent::StderrReady(_)) {
            deadlines.record_output(Instant::now());
        }
        let steps = match event {
            AttemptEvent::StdoutReady(filled) => {
                log_read_error(filled, "stdout");
                let batch = stdout.take_lines();
                match shell.tape.record(batch.bodies()) {
                    Ok(()) if batch.is_piece() => {
                        let steps = course.handle_oversized_line(limits.line);
                        shell.apply_effects(&mut course, steps);
                    }
                    Ok(()) => {
                        let lines: Vec<_> = batch.lines().map(decode::decode_line).collect();
                        lull = lull.observe(lines.iter().map(|line| &line.body), batch.size());
                        for line in &lines {
                            let steps = course.handle_line(line);
                            shell.apply_effects(&mut course, steps);
                        }
                    }
                    Err(error) => {
                        let steps = course.handle_record_error(error.to_string());
                        shell.apply_effects(&mut course, steps);
                    }
                }
                if lull.is_paused() {
                    stdout.source().pause();
                }
                speaking = !stdout.is_finished();
                if speaking { Vec::new() } else { course.handle_stdout_closed() }
            }
            AttemptEvent::StderrReady(filled) => {
                log_read_error(filled, "stderr");
                let mut lines: Vec<Cow<'_, str>> = stderr.take_lines().lines().map(String::from_utf8_lossy).collect();
                lines.iter().for_each(|line| course.handle_stderr_line(line));
                let had_dropped = shell.stderr.has_dropped();
                lines.retain(|line| shell.stderr.admits(line.len()));
                let recorded = shell.tape.record(lines.into_iter().map(EntryBody::Err));
                let dropped = shell.stderr.limit_reached_note(had_dropped);
                let recorded = recorded.and_then(|()| dropped.map_or(Ok(()), |note| shell.tape.note(&note)));
                recorded.map_or_else(|error| course.handle_record_error(error.to_string()), |()| Vec::new())
            }
            AttemptEvent::Server(said) => {
                served = said.is_some();
                course.handle_server_event(said)
            }
            AttemptEvent::Decided(Ok((request_id, decision))) => {
                shell.approval_handles.remove(&request_id);
                course.handle_decision(&request_id, decision)
            }
            AttemptEvent::Decided(Err(Aborted)) => Vec::new(),
            AttemptEvent::Command(Some(command)) => course.handle_stop_command(command),
            AttemptEvent::Command(None) => {
                commanded = false;
                Vec::new()
            }
            AttemptEvent::Exited(ended) => {
                running = false;
                course.handle_exit(ended)
            }
            AttemptEvent::TimerFired(alarm) => {
                shell.timer = None;
                course.handle_timer(alarm)
            }
            AttemptEvent::TimedOut(limit) => {
                deadlines.clear();
                course.handle_time_limit(limit)
            }
        };
        shell.apply_effects(&mut course, steps);
        deadlines.update(Instant::now(), course.waits_for());
    }
    drop(writer);
    shell.shut_down().await;
    drop(private);
    course.into_facts()
}

impl AttemptRunner {
    fn apply_effects(&mut self, course: &mut AttemptMachine, steps: Vec<AttemptEffect>) {
        for step in steps {
            let done = match step {
                AttemptEffect::WriteFrame(frame) => self.write_frame(course, frame),
                AttemptEffect::RecordNote(note) => self.tape.note(&note),
                other => {
                    self.apply_effect(course, other);
                    Ok(())
                }
            };
            if let Err(error) = done {
                let steps = course.handle_record_error(error.to_string());
                self.apply_effects(course, steps);
            }
        }
    }

    fn write_frame(&mut self, course: &mut AttemptMachine, frame: ControlFrame) -> Result<(), RecordError> {
        let Some(to_child) = &self.frame_queue else { return Ok(()) };
        if to_child.has_capacity_for(&frame) {
            self.tape.record(std::iter::once(EntryBody::In(&frame.0)))?;
            to_child.send(frame);
        } else {
            let steps = course.handle_unread_input(self.limits.unread_stdin);
            self.apply_effects(course, steps);
        }
        Ok(())
    }

    fn apply_effect(&mut self, course: &mut AttemptMachine, step: AttemptEffect) {
        match step {
            AttemptEffect::WriteFrame(_) | AttemptEffect::RecordNote(_) => {}
            AttemptEffect::CloseStdin => self.frame_queue = None,
            AttemptEffect::ForwardToServer(message) => {
                if let Err(Some(answer)) = self.server.send_message(message) {
                    let steps = course.handle_server_event(Some(ServerEvent::Message(answer)));
                    self.apply_effects(course, steps);
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
                    // Nobody may be interested.
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

    /// Tools of an attempt that is over must not go on writing behind its back.
    async fn shut_down(self) {
        let Self { mut tape, child, server, timeouts: patience, stderr, .. } = self;
        drop(child);
        if let Some(note) = stderr.summary_note() {
            // The tape may be what ended it.
            let _ = tape.note(&note);
        }
        if !server.drain(patience.pipe_drain).await {
            let text = "a tool call was still running when the attempt ended, and was left behind".to_owned();
            // The tape may be what ended it.
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
