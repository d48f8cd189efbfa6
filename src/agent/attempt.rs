//! Runs one attempt of a unit or a session, and performs the effects that its [`machine`] decides on.
//!
//! Owns the process, its pipes and the tool server of the attempt. Every line is recorded before it is evaluated, and
//! decoded once. The module must not judge the attempt: it returns facts. `unit` and `session` start the processes.

use std::{borrow::Cow, collections::HashMap, fmt, io, path::PathBuf, sync::Arc};

use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable, Aborted, BoxFuture},
    stream::FuturesUnordered,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use ingestdeck_core::{
    decode::{self, AgentLine},
    diagnostic::Diagnostic as _,
    run::{
        attempt_reducer::AttemptReducer,
        entry_source::{RecordError, Recorder},
    },
    tape::{
        Note, UnitKey,
        entry::EntryBody,
        note::{Amendment, AttemptStarted, Severity},
    },
    units::{Toolset, verdict::TimeLimit},
};

use self::{
    deadlines::Deadlines,
    frame_queue::ControlFrameQueue,
    machine::{AttemptEffect, AttemptMachine, AttemptTimer},
    pausable_pipe::PausablePipe,
    read_coalescer::ReadCoalescer,
    recorder::AttemptRecorder,
    stderr_limit::StderrLimit,
    time_limits::AttemptTimeouts,
};
pub use self::{machine::AttemptCommand, read_coalescer::start_tick_clock};
use super::control::ControlFrame;
pub use super::control::{ApprovalDecision, ApprovalRequest};
use super::{
    Agent,
    line_reader::{LineBatch, LineReader},
    mcp::{ServerEvent, ToolServer},
    process::{Child, ProcessExit, ProcessTimeouts, StreamLimits},
    session_lock::{SessionLock, SessionLockError, SessionLocks},
};

mod deadlines;
mod frame_queue;
pub(super) mod machine;
mod pausable_pipe;
mod read_coalescer;
pub(super) mod recorder;
pub(super) mod session_monitor;
mod stderr_limit;
pub mod time_limits;
mod work_log;

/// What the attempts of units and of sessions have in common.
#[derive(Clone, Debug)]
pub struct AttemptContext {
    pub agent: Arc<Agent>,
    /// Name of the unit, or of the session on the tape.
    pub unit: UnitKey,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    pub cwd: PathBuf,
    /// Memory limits for its lines and our replies.
    pub limits: StreamLimits,
    pub recorder: Arc<dyn Recorder>,
    /// Sees each recorded line.
    pub observer: Option<Arc<dyn LineObserver>>,
    /// Changes that a person requested, for the tape. The other options of the attempt include them already.
    pub amendment: Option<Amendment>,
    /// Cost of the earlier attempts of the continued session, in US dollars; `None` if that is unknown.
    pub paid_usd: Option<f64>,
    /// The worker that runs the attempt; `None` for the engine's own machine.
    pub worker: Option<String>,
    /// `TRACEPARENT` of the agent: its span in the trace of the run, if there is one.
    pub traceparent: Option<String>,
}

impl AttemptContext {
    pub(super) fn tape(&self) -> AttemptRecorder {
        AttemptRecorder::new(Arc::clone(&self.recorder), self.unit.clone(), self.attempt)
    }

    /// The note about the start, as far as it does not depend on the process.
    pub(super) fn start_note(&self) -> AttemptStarted {
        AttemptStarted {
            cwd: self.cwd.to_string_lossy().into_owned(),
            scripted: self.agent.is_scripted(),
            amendment: self.amendment.clone(),
            worker: self.worker.clone(),
            ..AttemptStarted::default()
        }
    }
}

/// Decides about every tool call before it runs. The call waits for the decision; the future is dropped when the agent
/// no longer waits for it.
pub trait ApprovalGate: Send + Sync + fmt::Debug {
    fn decide(&self, call: ApprovalRequest) -> BoxFuture<'_, ApprovalDecision>;

    /// True while every call passes that does not ask for permission.
    fn passes_calls(&self) -> bool {
        false
    }
}

/// Sees every line of an agent after it is recorded and counted.
pub trait LineObserver: Send + Sync + fmt::Debug {
    /// `state` is the accounting of the attempt after the line.
    fn observe(&self, attempt: (&UnitKey, u32), line: &AgentLine<'_>, state: &AttemptReducer);
}

type ApprovalFuture = Abortable<BoxFuture<'static, (String, ApprovalDecision)>>;

/// A started process, and the resources that the effects of its machine act on.
pub(super) struct AttemptRunner {
    tape: AttemptRecorder,
    child: Child,
    machine: AttemptMachine,
    /// `None` once its stdin is closed.
    frame_queue: Option<ControlFrameQueue>,
    tools: Option<UnitTools>,
    session_lock: Option<SessionLocking>,
    deadlines: Deadlines,
    /// Changes of the time limits, while they can still take effect.
    time_limits: Option<watch::Receiver<AttemptTimeouts>>,
    timer: Option<(Instant, AttemptTimer)>,
    timeouts: ProcessTimeouts,
    limits: StreamLimits,
    stderr: StderrLimit,
    ready: Option<oneshot::Sender<()>>,
    is_done: bool,
}

/// The tools of a unit, and the calls that wait for a decision.
struct UnitTools {
    tools: Arc<dyn Toolset>,
    server: ToolServer,
    gate: Arc<dyn ApprovalGate>,
    approvals: FuturesUnordered<ApprovalFuture>,
    approval_handles: HashMap<String, AbortHandle>,
}

/// The lock of a session, which may change its id.
pub(super) struct SessionLocking {
    pub(super) locks: SessionLocks,
    pub(super) held: Option<SessionLock>,
    /// Waits for the lock that replaces the held one.
    pub(super) pending: Option<BoxFuture<'static, Result<SessionLock, SessionLockError>>>,
}

enum AttemptEvent {
    StdoutReady(io::Result<()>),
    StderrReady(io::Result<()>),
    Server(Option<ServerEvent>),
    Decided(Result<(String, ApprovalDecision), Aborted>),
    Locked(Result<SessionLock, SessionLockError>),
    Command(Option<AttemptCommand>),
    Exited(ProcessExit),
    TimerFired(AttemptTimer),
    TimedOut(TimeLimit),
    TimeLimitsChanged(AttemptTimeouts),
}

impl AttemptRunner {
    pub(super) fn new(
        context: &AttemptContext,
        tape: AttemptRecorder,
        child: Child,
        machine: AttemptMachine,
        timeouts: ProcessTimeouts,
    ) -> Self {
        Self {
            tape,
            child,
            machine,
            frame_queue: None,
            tools: None,
            session_lock: None,
            deadlines: Deadlines::new(AttemptTimeouts::default(), Instant::now()),
            time_limits: None,
            timer: None,
            timeouts,
            limits: context.limits,
            stderr: StderrLimit::new(context.limits.stderr),
            ready: None,
            is_done: false,
        }
    }

    /// Offers the tools of a unit, whose calls ask `gate` first.
    pub(super) fn with_tools(self, tools: Arc<dyn Toolset>, gate: Arc<dyn ApprovalGate>) -> Self {
        let server = ToolServer::start(Arc::clone(&tools));
        let (approvals, approval_handles) = Default::default();
        Self {
            tools: Some(UnitTools {
                tools,
                server,
                gate,
                approvals,
                approval_handles,
            }),
            ..self
        }
    }

    /// Ends the attempt at time limits, which may change while it runs.
    pub(super) fn with_timeouts(self, mut limits: watch::Receiver<AttemptTimeouts>) -> Self {
        let initial = *limits.borrow_and_update();
        Self {
            deadlines: Deadlines::new(initial, Instant::now()),
            time_limits: Some(limits),
            ..self
        }
    }

    /// Locks the session under the id that the agent reports.
    pub(super) fn with_session_lock(self, locking: SessionLocking) -> Self {
        Self {
            session_lock: Some(locking),
            ..self
        }
    }

    /// Handles the output of the process until it has ended, and returns the machine with its facts.
    ///
    /// `ready` fires when start-up is over; it is dropped unused if the attempt ends before.
    pub(super) async fn run(
        mut self,
        context: &AttemptContext,
        mut commands: mpsc::Receiver<AttemptCommand>,
        ready: oneshot::Sender<()>,
    ) -> AttemptMachine {
        let (Some(stdout), Some(stderr)) = (self.child.stdout.take(), self.child.stderr.take())
        else {
            self.machine
                .fail_start("the process has no pipes".to_owned());
            return self.machine;
        };
        let stdout = match PausablePipe::from_stdout(stdout) {
            Ok(pipe) => pipe,
            Err(error) => {
                self.machine
                    .fail_start(format!("cannot read its output: {error}"));
                return self.machine;
            }
        };
        let mut stdout = LineReader::with_limit(stdout, self.limits.line);
        let mut stderr = LineReader::with_limit(stderr, self.limits.stderr_line);
        let stdin = self
            .child
            .stdin
            .take()
            .map(|stdin| ControlFrameQueue::start(stdin, self.limits.unread_stdin));
        let (to_child, writer) = stdin.unzip();
        (self.frame_queue, self.ready) = (to_child, Some(ready));
        let (mut commanded, mut served, mut running, mut speaking) = (true, true, true, true);
        let mut coalescer = ReadCoalescer::default();
        let effects = self.machine.start();
        self.apply_effects(effects);

        while !self.is_done && (running || speaking || !stderr.is_finished()) {
            let (alarm, timeout) = (self.timer, self.deadlines.next_deadline());
            let event = tokio::select! {
                filled = coalescer.wait_then(stdout.fill()), if speaking => AttemptEvent::StdoutReady(filled),
                filled = stderr.fill(), if !stderr.is_finished() => AttemptEvent::StderrReady(filled),
                event = next_tool_event(&mut self.tools, served) => event,
                locked = next_lock(&mut self.session_lock), if running => AttemptEvent::Locked(locked),
                command = commands.recv(), if commanded => AttemptEvent::Command(command),
                ended = self.child.wait(), if running => AttemptEvent::Exited(ended),
                alarm = wait_for_timer(alarm), if alarm.is_some() => AttemptEvent::TimerFired(alarm),
                limit = wait_for_timer(timeout), if timeout.is_some() => AttemptEvent::TimedOut(limit),
                Some(limits) = changed_time_limits(&mut self.time_limits) => AttemptEvent::TimeLimitsChanged(limits),
            };
            coalescer = coalescer.cancel_pause();
            if matches!(
                event,
                AttemptEvent::StdoutReady(_) | AttemptEvent::StderrReady(_)
            ) {
                self.deadlines.record_output(Instant::now());
            }
            let effects = match event {
                AttemptEvent::StdoutReady(filled) => {
                    log_read_error(filled, "stdout");
                    coalescer = self.handle_stdout(context, stdout.take_lines(), coalescer);
                    if coalescer.is_paused() {
                        stdout.source().pause();
                    }
                    speaking = !stdout.is_finished();
                    if speaking {
                        Vec::new()
                    } else {
                        self.machine.handle_stdout_closed()
                    }
                }
                AttemptEvent::StderrReady(filled) => {
                    log_read_error(filled, "stderr");
                    self.handle_stderr(stderr.take_lines())
                }
                AttemptEvent::Server(server_event) => {
                    served = server_event.is_some();
                    self.machine.handle_server_event(server_event)
                }
                AttemptEvent::Decided(Ok((request_id, decision))) => {
                    if let Some(tools) = &mut self.tools {
                        tools.approval_handles.remove(&request_id);
                    }
                    self.machine.handle_decision(&request_id, decision)
                }
                AttemptEvent::Decided(Err(Aborted)) => Vec::new(),
                AttemptEvent::Locked(Ok(lock)) => {
                    if let Some(locking) = &mut self.session_lock {
                        locking.held = Some(lock);
                    }
                    Vec::new()
                }
                AttemptEvent::Locked(Err(error)) => self.machine.handle_lock_error(error.to_line()),
                AttemptEvent::Command(Some(command)) => self.machine.handle_command(command),
                AttemptEvent::Command(None) => {
                    commanded = false;
                    Vec::new()
                }
                AttemptEvent::Exited(ended) => {
                    running = false;
                    self.machine.handle_exit(ended)
                }
                AttemptEvent::TimerFired(alarm) => {
                    self.timer = None;
                    self.machine.handle_timer(alarm)
                }
                AttemptEvent::TimeLimitsChanged(limits) => {
                    self.deadlines.set_timeouts(limits, Instant::now());
                    Vec::new()
                }
                AttemptEvent::TimedOut(limit) => {
                    self.deadlines.clear();
                    self.time_limits = None;
                    self.machine.handle_time_limit(limit)
                }
            };
            self.apply_effects(effects);
            self.deadlines
                .update(Instant::now(), self.machine.waits_for());
        }
        drop(writer);
        commands.close();
        while let Ok(command) = commands.try_recv() {
            if let AttemptCommand::Message(text) = command {
                let effects = self.machine.handle_command(AttemptCommand::Message(text));
                self.apply_effects(effects);
            }
        }
        self.shut_down().await
    }

    /// Records, decodes and evaluates lines of stdout. Returns the state of the coalescer after them.
    fn handle_stdout(
        &mut self,
        context: &AttemptContext,
        batch: LineBatch<'_>,
        coalescer: ReadCoalescer,
    ) -> ReadCoalescer {
        if let Err(error) = self.tape.record(batch.bodies()) {
            let effects = self.machine.handle_record_error(error.to_string());
            self.apply_effects(effects);
            return coalescer;
        }
        if batch.is_piece() {
            let effects = self.machine.handle_oversized_line(self.limits.line);
            self.apply_effects(effects);
            return coalescer;
        }
        let lines: Vec<_> = batch.lines().map(decode::decode_line).collect();
        for line in &lines {
            let effects = self.machine.handle_line(line);
            if let (Some(observer), Some(state)) = (&context.observer, self.machine.reducer()) {
                observer.observe((&context.unit, context.attempt), line, state);
            }
            self.apply_effects(effects);
        }
        coalescer.observe(lines.iter().map(|line| &line.body), batch.size())
    }

    fn handle_stderr(&mut self, batch: LineBatch<'_>) -> Vec<AttemptEffect> {
        let mut lines: Vec<Cow<'_, str>> = batch.lines().map(String::from_utf8_lossy).collect();
        lines
            .iter()
            .for_each(|line| self.machine.handle_stderr_line(line));
        let had_dropped = self.stderr.has_dropped();
        lines.retain(|line| self.stderr.admits(line.len()));
        let recorded = self.tape.record(lines.into_iter().map(EntryBody::Stderr));
        let dropped = self.stderr.limit_reached_note(had_dropped);
        let recorded = recorded.and_then(|()| dropped.map_or(Ok(()), |note| self.tape.note(&note)));
        recorded.map_or_else(
            |error| self.machine.handle_record_error(error.to_string()),
            |()| Vec::new(),
        )
    }

    fn apply_effects(&mut self, effects: Vec<AttemptEffect>) {
        for effect in effects {
            if let Err(error) = self.apply_effect(effect) {
                let effects = self.machine.handle_record_error(error.to_string());
                self.apply_effects(effects);
            }
        }
    }

    fn apply_effect(&mut self, effect: AttemptEffect) -> Result<(), RecordError> {
        match effect {
            AttemptEffect::WriteFrame(frame) => return self.write_frame(frame),
            AttemptEffect::RecordNote(note) => return self.tape.note(&note),
            AttemptEffect::SendPrompt(frame) => {
                if let Some(to_child) = &self.frame_queue {
                    to_child.send(frame);
                }
            }
            AttemptEffect::CloseStdin => self.frame_queue = None,
            AttemptEffect::ForwardToServer(message) => {
                let sent = self
                    .tools
                    .as_ref()
                    .map(|tools| tools.server.send_message(message));
                if let Some(Err(Some(answer))) = sent {
                    let effects = self
                        .machine
                        .handle_server_event(Some(ServerEvent::Message(answer)));
                    self.apply_effects(effects);
                }
            }
            AttemptEffect::RequestApproval(request_id, call) => {
                if let Some(tools) = &mut self.tools {
                    tools.request_approval(request_id, call);
                }
            }
            AttemptEffect::CancelApproval(request_id) => {
                let held = self
                    .tools
                    .as_mut()
                    .and_then(|tools| tools.approval_handles.remove(&request_id));
                held.iter().for_each(AbortHandle::abort);
            }
            AttemptEffect::LockSession(session) => {
                if let Some(locking) = &mut self.session_lock {
                    let locks = locking.locks.clone();
                    locking.pending =
                        Some(Box::pin(async move { locks.lock(&session, |_| ()).await }));
                }
            }
            AttemptEffect::SignalGroup(signal) => self.child.signal(signal),
            AttemptEffect::StartupFinished => {
                // The receiver is optional.
                let _ = self.ready.take().map(|ready| ready.send(()));
            }
            AttemptEffect::AskToolsBeforeStop(request_id) => {
                let question = self
                    .tools
                    .as_ref()
                    .and_then(|tools| tools.tools.question_before_stop());
                let effects = self.machine.handle_stop_question(&request_id, question);
                self.apply_effects(effects);
            }
            AttemptEffect::SetTimer(alarm) => {
                self.timer = Some((Instant::now() + alarm.duration(&self.timeouts), alarm));
            }
            AttemptEffect::StopWaiting => self.is_done = true,
        }
        Ok(())
    }

    fn write_frame(&mut self, frame: ControlFrame) -> Result<(), RecordError> {
        let Some(to_child) = &self.frame_queue else {
            return Ok(());
        };
        if to_child.has_capacity_for(&frame) {
            self.tape
                .record(std::iter::once(EntryBody::Stdin(&frame.0)))?;
            to_child.send(frame);
        } else {
            let effects = self.machine.handle_unread_input(self.limits.unread_stdin);
            self.apply_effects(effects);
        }
        Ok(())
    }

    /// Ends the tool server: tools must not write after the end of the attempt.
    async fn shut_down(self) -> AttemptMachine {
        let Self {
            mut tape,
            child,
            mut machine,
            tools,
            timeouts,
            stderr,
            ..
        } = self;
        drop(child);
        let mut record = |note: &Note| {
            if let Err(error) = tape.note(note) {
                // The process has ended, so the effects have no target.
                let _ = machine.handle_record_error(error.to_string());
            }
        };
        stderr.summary_note().iter().for_each(&mut record);
        if let Some(UnitTools { tools, server, .. }) = tools {
            tools.stop();
            if !server.drain(timeouts.pipe_drain).await {
                let text =
                    "a tool call was still running when the attempt ended, and was abandoned"
                        .to_owned();
                record(&Note::Message {
                    level: Severity::Warning,
                    text,
                });
            }
        }
        machine
    }
}

impl UnitTools {
    fn request_approval(&mut self, request_id: String, call: ApprovalRequest) {
        let (handle, registration) = AbortHandle::new_pair();
        self.approval_handles.insert(request_id.clone(), handle);
        let gate = Arc::clone(&self.gate);
        let decided: BoxFuture<'static, _> =
            Box::pin(async move { (request_id, gate.decide(call).await) });
        self.approvals.push(Abortable::new(decided, registration));
    }
}

/// The next event of the tool server, unless it has ended, or the next decision. Cancel-safe.
async fn next_tool_event(tools: &mut Option<UnitTools>, is_serving: bool) -> AttemptEvent {
    let Some(UnitTools {
        server, approvals, ..
    }) = tools
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        event = server.next_event(), if is_serving => AttemptEvent::Server(event),
        Some(decided) = approvals.next() => AttemptEvent::Decided(decided),
        else => std::future::pending().await,
    }
}

/// Waits for the lock of the running session. Cancel-safe.
async fn next_lock(locking: &mut Option<SessionLocking>) -> Result<SessionLock, SessionLockError> {
    match locking {
        Some(SessionLocking {
            pending: Some(pending),
            ..
        }) => {
            let locked = pending.await;
            locking
                .iter_mut()
                .for_each(|locking| locking.pending = None);
            locked
        }
        _ => std::future::pending().await,
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

/// The next time limits; `None` if they no longer change.
async fn changed_time_limits(
    limits: &mut Option<watch::Receiver<AttemptTimeouts>>,
) -> Option<AttemptTimeouts> {
    let receiver = limits.as_mut()?;
    if receiver.changed().await.is_err() {
        *limits = None;
        return None;
    }
    Some(*receiver.borrow())
}

fn log_read_error(filled: io::Result<()>, pipe: &str) {
    if let Err(error) = filled {
        tracing::warn!(%error, pipe, "the pipe broke");
    }
}
