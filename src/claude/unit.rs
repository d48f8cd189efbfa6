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
    run::source::{RecordError, Recorder},
    tape::{
        Note, UnitKey,
        entry::Body,
        note::{Amendment, AttemptStarted, Content, Level},
    },
    units::{
        Toolset,
        verdict::{Facts, TimedOut},
    },
};

use self::{
    deadline::Deadlines,
    frames::FrameQueue,
    lull::Lull,
    start::{Begun, NotBegun, begin},
    tape::Tape,
};
pub use super::control::{Decision, HeldCall};
use super::{
    control::Frame,
    course::{Alarm, Course, Step},
    isolation::Allowed,
    mcp::{self, FromServer, Server},
    pipe::Pipe,
    process::{Child, Ended, Patience, StreamLimits},
    reader::LineReader,
    stderr_limit::StderrLimit,
};
pub use deadline::AttemptTimeouts;
pub use lull::first_beat;

pub(super) mod deadline;
mod frames;
mod lull;
mod start;
mod tape;

/// The agent's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
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
    pub program: Program,
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
    pub gate: Arc<dyn Gate>,
    /// What a person wanted otherwise than planned, for the tape. Prompt, model and budget above have it already; its
    /// session is gone on with.
    pub amendment: Option<Amendment>,
    /// What the unit is made of, for the record.
    pub content: Option<Content>,
}

impl UnitLaunch {
    /// Session to go on with, instead of a new one.
    pub fn resume(&self) -> Option<&str> {
        self.amendment.as_ref()?.resume.as_deref()
    }
}

/// What may be asked of a running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// End it, giving it time to say so.
    Interrupt,
    /// End it now.
    Kill,
}

/// Decides over every tool call before it is made. The call waits for as long as the decision takes; the future is
/// dropped when the agent no longer waits for it.
pub trait Gate: Send + Sync + Debug {
    /// What to do with `call`.
    fn decide(&self, call: HeldCall) -> BoxFuture<'_, Decision>;
}

/// Lets every call pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl Gate for OpenGate {
    fn decide(&self, _call: HeldCall) -> BoxFuture<'_, Decision> {
        Box::pin(std::future::ready(Decision::Allow))
    }
}

/// Runs one attempt to its end and returns what is known of it. The agent's environment is derived from our own.
///
/// `ready` fires when start-up is over; it is dropped unused when the attempt ends before. Everything that arrives, is
/// written or is decided here goes to the recorder, except the verdict. Returns within seconds of a [`Command`], even
/// if the process, a tool or the gate is stuck. Dropping the future kills the process group.
pub async fn run_unit(launch: UnitLaunch, commands: mpsc::Receiver<Command>, ready: oneshot::Sender<()>) -> Facts {
    run_unit_from(std::env::vars_os().collect(), Patience::default(), launch, commands, ready).await
}

/// As [`run_unit`], with the environment and the patience given.
pub async fn run_unit_from(
    environment: Vec<(OsString, OsString)>,
    patience: Patience,
    launch: UnitLaunch,
    commands: mpsc::Receiver<Command>,
    ready: oneshot::Sender<()>,
) -> Facts {
    let mut facts = Facts {
        prompt_chars: launch.system_prompt.chars().count() + launch.prompt.chars().count(),
        ..Facts::default()
    };
    let mut tape = Tape::new(Arc::clone(&launch.recorder), launch.unit.clone(), launch.attempt);
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
    let begun = begin(&launch, environment, facts.prompt_chars, &mut started).await;
    if let Err(error) = tape.note(&Note::AttemptStarted(Box::new(started))) {
        facts.record_error = Some(error.to_string());
        return facts;
    }
    match begun {
        Ok(begun) => conduct(begun, &launch, facts, tape, patience, commands, ready).await,
        Err(NotBegun::TooLarge) => facts,
        Err(NotBegun::Failed(why)) => Facts { spawn_error: Some(why.sentence), start_fault: why.fault, ..facts },
    }
}

type Hold = Abortable<BoxFuture<'static, (String, Decision)>>;

/// What the machine's steps act upon.
struct Shell {
    tape: Tape,
    child: Child,
    to_child: Option<FrameQueue>,
    server: Server,
    gate: Arc<dyn Gate>,
    holds: FuturesUnordered<Hold>,
    waiting: HashMap<String, AbortHandle>,
    alarm: Option<(Instant, Alarm)>,
    patience: Patience,
    limits: StreamLimits,
    stderr: StderrLimit,
    ready: Option<oneshot::Sender<()>>,
    left: bool,
}

enum Event {
    Out(io::Result<()>),
    Err(io::Result<()>),
    Server(Option<FromServer>),
    Decided(Result<(String, Decision), Aborted>),
    Command(Option<Command>),
    Exited(Ended),
    Alarm(Alarm),
    TimedOut(TimedOut),
}

async fn conduct(
    begun: Begun,
    launch: &UnitLaunch,
    facts: Facts,
    tape: Tape,
    patience: Patience,
    mut commands: mpsc::Receiver<Command>,
    ready: oneshot::Sender<()>,
) -> Facts {
    let Begun { mut child, tool_ids, private } = begun;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Facts { spawn_error: Some("the process has no pipes".into()), ..facts };
    };
    let stdout = match Pipe::of(stdout) {
        Ok(pipe) => pipe,
        Err(error) => return Facts { spawn_error: Some(format!("cannot read what it says: {error}")), ..facts },
    };
    let limits = launch.limits;
    let mut stdout = LineReader::with_limit(stdout, limits.line);
    let mut stderr = LineReader::with_limit(stderr, limits.stderr_line);
    let (to_child, writer) = FrameQueue::start(stdin, limits.unread);
    let with_tools = !tool_ids.is_empty();
    let allowed = Allowed::new(tool_ids, with_tools.then_some(mcp::SERVER));
    let resume = launch.resume().map(str::to_owned);
    let mut course = Course::new(facts, allowed, with_tools, launch.prompt.clone(), resume, patience);
    let mut shell = Shell {
        tape,
        child,
        to_child: Some(to_child),
        server: Server::start(Arc::clone(&launch.tools)),
        gate: Arc::clone(&launch.gate),
        holds: FuturesUnordered::new(),
        waiting: HashMap::new(),
        alarm: None,
        patience,
        limits,
        stderr: StderrLimit::new(limits.stderr),
        ready: Some(ready),
        left: false,
    };
    let (mut commanded, mut served, mut running, mut speaking) = (true, true, true, true);
    let mut lull = Lull::default();
    let mut deadlines = Deadlines::new(launch.timeouts, Instant::now());
    let steps = course.open();
    shell.carry_out(&mut course, steps);

    while !shell.left && (running || speaking || !stderr.is_over()) {
        let (alarm, timeout) = (shell.alarm, deadlines.next());
        let event = tokio::select! {
            filled = lull.then(stdout.fill()), if speaking => Event::Out(filled),
            filled = stderr.fill(), if !stderr.is_over() => Event::Err(filled),
            said = shell.server.next(), if served => Event::Server(said),
            Some(decided) = shell.holds.next() => Event::Decided(decided),
            command = commands.recv(), if commanded => Event::Command(command),
            ended = shell.child.wait(), if running => Event::Exited(ended),
            alarm = ring(alarm), if alarm.is_some() => Event::Alarm(alarm),
            limit = ring(timeout), if timeout.is_some() => Event::TimedOut(limit),
        };
        lull = lull.over();
        if matches!(event, Event::Out(_) | Event::Err(_)) {
            deadlines.record_output(Instant::now());
        }
        let steps = match event {
            Event::Out(filled) => {
                note_broken(filled, "stdout");
                let batch = stdout.take();
                match shell.tape.record(batch.bodies()) {
                    Ok(()) if batch.is_piece() => {
                        let steps = course.oversized(limits.line);
                        shell.carry_out(&mut course, steps);
                    }
                    Ok(()) => {
                        let lines: Vec<_> = batch.lines().map(decode::line).collect();
                        lull = lull.after(lines.iter().map(|line| &line.body), batch.size());
                        for line in &lines {
                            let steps = course.line(line);
                            shell.carry_out(&mut course, steps);
                        }
                    }
                    Err(error) => {
                        let steps = course.unrecorded(error.to_string());
                        shell.carry_out(&mut course, steps);
                    }
                }
                if lull.is_on() {
                    stdout.source().leave_alone();
                }
                speaking = !stdout.is_over();
                if speaking { Vec::new() } else { course.silent() }
            }
            Event::Err(filled) => {
                note_broken(filled, "stderr");
                let mut lines: Vec<Cow<'_, str>> = stderr.take().lines().map(String::from_utf8_lossy).collect();
                lines.iter().for_each(|line| course.stderr(line));
                let had_dropped = shell.stderr.has_dropped();
                lines.retain(|line| shell.stderr.admits(line.len()));
                let recorded = shell.tape.record(lines.into_iter().map(Body::Err));
                let dropped = shell.stderr.begins(had_dropped);
                let recorded = recorded.and_then(|()| dropped.map_or(Ok(()), |note| shell.tape.note(&note)));
                recorded.map_or_else(|error| course.unrecorded(error.to_string()), |()| Vec::new())
            }
            Event::Server(said) => {
                served = said.is_some();
                course.server(said)
            }
            Event::Decided(Ok((request_id, decision))) => {
                shell.waiting.remove(&request_id);
                course.decided(&request_id, decision)
            }
            Event::Decided(Err(Aborted)) => Vec::new(),
            Event::Command(Some(command)) => course.command(command),
            Event::Command(None) => {
                commanded = false;
                Vec::new()
            }
            Event::Exited(ended) => {
                running = false;
                course.exited(ended)
            }
            Event::Alarm(alarm) => {
                shell.alarm = None;
                course.alarm(alarm)
            }
            Event::TimedOut(limit) => {
                deadlines.clear();
                course.timed_out(limit)
            }
        };
        shell.carry_out(&mut course, steps);
        deadlines.settle(Instant::now(), course.waits_for());
    }
    drop(writer);
    shell.end().await;
    drop(private);
    course.into_facts()
}

impl Shell {
    fn carry_out(&mut self, course: &mut Course, steps: Vec<Step>) {
        for step in steps {
            let done = match step {
                Step::Write(frame) => self.write(course, frame),
                Step::Record(note) => self.tape.note(&note),
                other => {
                    self.act(course, other);
                    Ok(())
                }
            };
            if let Err(error) = done {
                let steps = course.unrecorded(error.to_string());
                self.carry_out(course, steps);
            }
        }
    }

    fn write(&mut self, course: &mut Course, frame: Frame) -> Result<(), RecordError> {
        let Some(to_child) = &self.to_child else { return Ok(()) };
        if to_child.has_room(&frame) {
            self.tape.record(std::iter::once(Body::In(&frame.0)))?;
            to_child.send(frame);
        } else {
            let steps = course.unread(self.limits.unread);
            self.carry_out(course, steps);
        }
        Ok(())
    }

    fn act(&mut self, course: &mut Course, step: Step) {
        match step {
            Step::Write(_) | Step::Record(_) => {}
            Step::Close => self.to_child = None,
            Step::Serve(message) => {
                if let Err(Some(answer)) = self.server.feed(message) {
                    let steps = course.server(Some(FromServer::Message(answer)));
                    self.carry_out(course, steps);
                }
            }
            Step::Hold(request_id, call) => self.hold(request_id, call),
            Step::Release(request_id) => {
                if let Some(hold) = self.waiting.remove(&request_id) {
                    hold.abort();
                }
            }
            Step::Signal(signal) => self.child.signal(signal),
            Step::Started => {
                if let Some(ready) = self.ready.take() {
                    // Nobody may be interested.
                    let _ = ready.send(());
                }
            }
            Step::Wake(alarm) => {
                self.alarm = Some((Instant::now() + alarm.after(&self.patience), alarm));
            }
            Step::Leave => self.left = true,
        }
    }

    fn hold(&mut self, request_id: String, call: HeldCall) {
        let (handle, registration) = AbortHandle::new_pair();
        self.waiting.insert(request_id.clone(), handle);
        let gate = Arc::clone(&self.gate);
        let decided: BoxFuture<'static, _> = Box::pin(async move { (request_id, gate.decide(call).await) });
        self.holds.push(Abortable::new(decided, registration));
    }

    /// Tools of an attempt that is over must not go on writing behind its back.
    async fn end(self) {
        let Self { mut tape, child, server, patience, stderr, .. } = self;
        drop(child);
        if let Some(note) = stderr.ends() {
            // The tape may be what ended it.
            let _ = tape.note(&note);
        }
        if !server.settle(patience.drain).await {
            let text = "a tool call was still running when the attempt ended, and was left behind".to_owned();
            // The tape may be what ended it.
            let _ = tape.note(&Note::Said { level: Level::Warning, text });
        }
    }
}

async fn ring<A>(alarm: Option<(Instant, A)>) -> A {
    match alarm {
        Some((at, alarm)) => {
            tokio::time::sleep_until(at).await;
            alarm
        }
        None => std::future::pending().await,
    }
}

fn note_broken(filled: io::Result<()>, pipe: &str) {
    if let Err(error) = filled {
        tracing::warn!(%error, pipe, "the pipe broke");
    }
}
