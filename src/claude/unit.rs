//! One attempt at a unit, from the first byte to the last: the shell that carries out what [`course`](super::course)
//! decides.
//!
//! Owns the process, its pipes, the tool server and the private directory of the attempt. Whatever arrives is recorded
//! before anything looks at it. It must not judge the attempt: it returns facts.

use std::{
    borrow::Cow,
    collections::HashMap,
    ffi::OsString,
    fmt::Debug,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable, Aborted, BoxFuture},
    stream::FuturesUnordered,
};
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt as _,
    process::ChildStdin,
    sync::{
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    task::JoinHandle,
    time::Instant,
};

use crate::{
    decode,
    run::source::{Item, RecordError, Recorder},
    tape::{
        Note, UnitKey,
        entry::{Body, stdout_body},
        note::{AttemptStarted, Level},
    },
    units::{
        Toolset,
        verdict::{Facts, PROMPT_LIMIT},
    },
};

pub use super::control::{Decision, HeldCall};
use super::{
    argv::{self, Session, UnitArgs},
    control::Frame,
    course::{Alarm, Course, Step},
    env,
    isolation::Allowed,
    mcp::{self, FromServer, Server},
    process::{self, Child, Ended, Order, Patience},
    reader::LineReader,
};

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
    /// Model, or the agent's default.
    pub model: Option<String>,
    /// API round trips allowed.
    pub step_budget: u32,
    /// Spending allowed, in dollars.
    pub max_budget_usd: Option<f64>,
    /// Stream partial messages.
    pub partial_messages: bool,
    /// Variables that reach the agent although they would be withheld.
    pub pass_env: Vec<String>,
    /// What it may call.
    pub tools: Arc<dyn Toolset>,
    /// The tape.
    pub recorder: Arc<dyn Recorder>,
    /// Who decides over each call.
    pub gate: Arc<dyn Gate>,
    /// Session to go on with, instead of a new one.
    pub resume: Option<String>,
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
    let tape = Tape { recorder: Arc::clone(&launch.recorder), unit: launch.unit.clone(), attempt: launch.attempt };
    let mut started = AttemptStarted {
        cwd: launch.cwd.to_string_lossy().into_owned(),
        model: launch.model.clone(),
        step_budget: launch.step_budget,
        system_prompt: launch.system_prompt.clone(),
        prompt: launch.prompt.clone(),
        scripted: launch.program.scripted,
        ..AttemptStarted::default()
    };
    let begun = begin(&launch, environment, facts.prompt_chars, &mut started).await;
    if let Err(error) = tape.note(Note::AttemptStarted(Box::new(started))) {
        facts.record_error = Some(error.to_string());
        return facts;
    }
    match begun {
        Ok(begun) => conduct(begun, &launch, facts, tape, patience, commands, ready).await,
        Err(NotBegun::TooLarge) => facts,
        Err(NotBegun::Failed(why)) => Facts { spawn_error: Some(why), ..facts },
    }
}

/// A process that runs and has not said anything yet.
struct Begun {
    child: Child,
    tool_ids: Vec<String>,
    /// Deleted when the attempt is over.
    private: TempDir,
}

enum NotBegun {
    /// The prompt is beyond the limit; the facts say so by themselves.
    TooLarge,
    Failed(String),
}

impl NotBegun {
    fn failed(why: impl ToString) -> Self {
        Self::Failed(why.to_string())
    }
}

/// Starts the process, and fills in `started` as far as it comes.
async fn begin(
    launch: &UnitLaunch,
    environment: Vec<(OsString, OsString)>,
    prompt_chars: usize,
    started: &mut AttemptStarted,
) -> Result<Begun, NotBegun> {
    let specs = launch.tools.specs();
    let tool_ids = mcp::tool_ids(&specs);
    started.tools.clone_from(&tool_ids);
    if prompt_chars > PROMPT_LIMIT {
        return Err(NotBegun::TooLarge);
    }
    mcp::check(&specs).map_err(NotBegun::failed)?;
    let private = tempfile::Builder::new()
        .prefix("deck-")
        .tempdir()
        .map_err(|error| NotBegun::Failed(format!("no private directory for temporary files: {error}")))?;
    let system_prompt = private.path().join("system.md");
    write_private(&system_prompt, &launch.system_prompt)
        .map_err(|error| NotBegun::Failed(format!("cannot write {}: {error}", system_prompt.display())))?;

    let new_session = uuid::Uuid::new_v4().to_string();
    let mut args = launch.program.prefix.clone();
    args.extend(argv::unit(&UnitArgs {
        tool_ids: &tool_ids,
        system_prompt: &system_prompt,
        model: launch.model.as_deref(),
        max_turns: launch.step_budget,
        max_budget_usd: launch.max_budget_usd,
        partial_messages: launch.partial_messages,
        session: launch.resume.as_deref().map_or(Session::New(&new_session), Session::Resume),
    }));
    let exe = launch.program.exe.as_os_str();
    started.argv = argv::shown(std::iter::once(exe).chain(args.iter().map(OsString::as_os_str)));
    let environment = env::unit(environment, &launch.pass_env, private.path());
    started.env_set = environment.set;
    started.env_stripped = environment.stripped;
    started.env_passed = environment.passed;

    let order =
        Order { exe: launch.program.exe.clone(), args, cwd: launch.cwd.clone(), env: environment.vars, stdin: true };
    let child = process::spawn(order).await.map_err(|error| NotBegun::Failed(unspawned(launch, &error)))?;
    started.pid = Some(child.pid());
    Ok(Begun { child, tool_ids, private })
}

/// The system says "not found" of a missing program and of a missing directory alike.
fn unspawned(launch: &UnitLaunch, error: &io::Error) -> String {
    if !launch.cwd.is_dir() {
        return format!("the working directory {} does not exist", launch.cwd.display());
    }
    let exe = launch.program.exe.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no program {exe}"),
        io::ErrorKind::ArgumentListTooLong => format!("the environment is too large to start {exe}"),
        _ => format!("{exe}: {error}"),
    }
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// The tape, as one attempt sees it.
#[derive(Debug)]
struct Tape {
    recorder: Arc<dyn Recorder>,
    unit: UnitKey,
    attempt: u32,
}

impl Tape {
    fn record<'a>(&'a self, bodies: impl Iterator<Item = Body<'a>>) -> Result<(), RecordError> {
        let lane = Some((&self.unit, self.attempt));
        let items: Vec<Item<'a>> = bodies.map(|body| Item { lane, body }).collect();
        if items.is_empty() { Ok(()) } else { self.recorder.record(&items) }
    }

    fn note(&self, note: Note) -> Result<(), RecordError> {
        self.record(std::iter::once(Body::Note(&note.to_json())))
    }
}

type Hold = Abortable<BoxFuture<'static, (String, Decision)>>;

/// What the machine's steps act upon.
struct Shell {
    tape: Tape,
    child: Child,
    to_child: Option<UnboundedSender<Frame>>,
    server: Server,
    gate: Arc<dyn Gate>,
    holds: FuturesUnordered<Hold>,
    waiting: HashMap<String, AbortHandle>,
    alarm: Option<(Instant, Alarm)>,
    patience: Patience,
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
    let (mut stdout, mut stderr) = (LineReader::new(stdout), LineReader::new(stderr));
    let (to_child, frames) = mpsc::unbounded_channel();
    let writer = Writer(tokio::spawn(write_frames(stdin, frames)));
    let with_tools = !tool_ids.is_empty();
    let allowed = Allowed::new(tool_ids, with_tools.then_some(mcp::SERVER));
    let mut course = Course::new(facts, allowed, with_tools, launch.prompt.clone());
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
        ready: Some(ready),
        left: false,
    };
    let (mut commanded, mut served, mut running, mut speaking) = (true, true, true, true);
    let steps = course.open();
    shell.carry_out(&mut course, steps);

    while !shell.left && (running || speaking || !stderr.is_over()) {
        let alarm = shell.alarm;
        let event = tokio::select! {
            filled = stdout.fill(), if speaking => Event::Out(filled),
            filled = stderr.fill(), if !stderr.is_over() => Event::Err(filled),
            said = shell.server.next(), if served => Event::Server(said),
            Some(decided) = shell.holds.next() => Event::Decided(decided),
            command = commands.recv(), if commanded => Event::Command(command),
            ended = shell.child.wait(), if running => Event::Exited(ended),
            alarm = ring(alarm), if alarm.is_some() => Event::Alarm(alarm),
        };
        let steps = match event {
            Event::Out(filled) => {
                note_broken(filled, "stdout");
                let batch = stdout.take();
                if let Err(error) = shell.tape.record(batch.lines().map(stdout_body)) {
                    course.unrecorded(error.to_string())
                } else {
                    for line in batch.lines() {
                        let steps = course.line(&decode::line(line));
                        shell.carry_out(&mut course, steps);
                    }
                    speaking = !stdout.is_over();
                    if speaking { Vec::new() } else { course.silent() }
                }
            }
            Event::Err(filled) => {
                note_broken(filled, "stderr");
                let lines: Vec<Cow<'_, str>> = stderr.take().lines().map(String::from_utf8_lossy).collect();
                lines.iter().for_each(|line| course.stderr(line));
                let recorded = shell.tape.record(lines.into_iter().map(Body::Err));
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
        };
        shell.carry_out(&mut course, steps);
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
                Step::Write(frame) => self.write(frame),
                Step::Record(note) => self.tape.note(note),
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

    fn write(&mut self, frame: Frame) -> Result<(), RecordError> {
        let Some(to_child) = &self.to_child else { return Ok(()) };
        self.tape.record(std::iter::once(Body::In(&frame.0)))?;
        // A closed pipe means that the process is dying; its end is on the way.
        let _ = to_child.send(frame);
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
                let after = match alarm {
                    Alarm::Unanswered => self.patience.answer,
                    Alarm::Lingered => self.patience.linger,
                    Alarm::Unmoved => self.patience.rung,
                    Alarm::Drained => self.patience.drain,
                };
                self.alarm = Some((Instant::now() + after, alarm));
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
        let Self { tape, child, server, patience, .. } = self;
        drop(child);
        if !server.settle(patience.drain).await {
            let text = "a tool call was still running when the attempt ended, and was left behind".to_owned();
            // The tape may be what ended it.
            let _ = tape.note(Note::Said { level: Level::Warning, text });
        }
    }
}

/// The task that writes to the agent; a pipe that nobody empties must not outlive the attempt.
struct Writer(JoinHandle<()>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes frames until there are no more, then closes the pipe. Runs beside the reader and has no bound, so that a
/// process that writes before it reads cannot lock both of us.
async fn write_frames(mut stdin: ChildStdin, mut frames: UnboundedReceiver<Frame>) {
    while let Some(Frame(mut line)) = frames.recv().await {
        line.push(b'\n');
        if let Err(error) = stdin.write_all(&line).await {
            tracing::debug!(%error, "the process no longer reads");
            return;
        }
    }
}

async fn ring(alarm: Option<(Instant, Alarm)>) -> Alarm {
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
