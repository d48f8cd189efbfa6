//! Plain sessions, by Takopi's contract: one prompt, one `claude -p`, one stream on the tape.
//!
//! Owns the process of a session, its lock, and the rule that a resumed session keeps its id. It must not judge how the
//! session went: it returns facts.

use std::{borrow::Cow, ffi::OsString, path::PathBuf, sync::Arc};

use tokio::{
    io::AsyncWriteExt as _,
    process::ChildStdout,
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    argv::shown,
    gather::Gather,
    lock::{LockError, Locks, SessionLock},
    not_started::NotStarted,
    process::{self, Child, Ended, Order, Patience, Rung, StreamLimits},
    reader::LineReader,
    stderr_limit::StderrLimit,
    unit::{Command, Program},
};
use crate::{
    config::Mismatch,
    decode,
    run::source::{Item, RecordError, Recorder},
    tape::{
        Body, Note, UnitKey,
        note::{Amendment, AttemptStarted, Cause, Level, Outcome, StopHow, StopReason, Verdict},
    },
    units::{
        tally::{FailureRule, Tally},
        verdict::{Facts, decide},
    },
};

use self::watch::{Seen, Watch};

pub mod order;
pub mod resume;
mod watch;

pub use order::{Delivery, PromptError, SessionArgs};
pub use resume::resume_line;

/// Everything that a session needs.
#[derive(Clone, Debug)]
pub struct SessionLaunch {
    /// The agent.
    pub program: Program,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Name of its lane on the tape.
    pub unit: UnitKey,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Prompt. Resume lines in it are taken out; the last one counts unless `args` names a session.
    pub prompt: String,
    /// Flags.
    pub args: SessionArgs,
    /// Leave `ANTHROPIC_API_KEY` in the environment.
    pub use_api_billing: bool,
    /// What a resumed session with another id is.
    pub mismatch: Mismatch,
    /// Where sessions are locked.
    pub locks: Locks,
    /// How much of its lines is kept in memory.
    pub limits: StreamLimits,
    /// The tape.
    pub recorder: Arc<dyn Recorder>,
    /// What a person wanted otherwise than asked for at first, for the tape: the fields above have it already.
    pub amendment: Option<Amendment>,
}

/// What is known of a session when it is over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionEnd {
    /// Its id, to go on with; see [`resume_line`].
    pub session: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// The sentence of a mismatch of ids, if that ended it.
    pub mismatch: Option<String>,
    /// What a verdict needs. Failed tool calls are left out: in a plain session they are the model's own business.
    pub facts: Facts,
}

impl SessionEnd {
    /// How the session ended. A mismatch of ids comes before everything else.
    pub fn verdict(&self, unit: &UnitKey) -> Verdict {
        let verdict = decide(unit, &self.facts, FailureRule::default());
        match &self.mismatch {
            Some(reason) => Verdict {
                outcome: Outcome::Failed,
                stop: StopReason::Error,
                cause: Cause::LoopError,
                reason: reason.clone(),
                remedy: Some("set session_mismatch = \"warn\" in [claude] to go on with the new session".into()),
            },
            None => verdict,
        }
    }
}

/// Runs a session to its end. The environment is derived from our own.
///
/// Whatever arrives is on the tape before anything looks at it. A session that somebody else uses is waited for.
/// Dropping the future kills the process group.
pub async fn run_session(launch: SessionLaunch, commands: mpsc::Receiver<Command>) -> SessionEnd {
    run_session_from(std::env::vars_os().collect(), Patience::default(), launch, commands).await
}

/// As [`run_session`], with the environment and the patience given.
pub async fn run_session_from(
    environment: Vec<(OsString, OsString)>,
    patience: Patience,
    mut launch: SessionLaunch,
    mut commands: mpsc::Receiver<Command>,
) -> SessionEnd {
    let (prompt, named) = resume::split(&launch.prompt);
    launch.args.resume = launch.args.resume.or_else(|| named.map(str::to_owned));
    launch.args.fork &= launch.args.resume.is_some();
    let tape = Tape { recorder: Arc::clone(&launch.recorder), unit: launch.unit.clone(), attempt: launch.attempt };
    let goes_on = launch.args.resume.clone().filter(|_| !launch.args.fork);
    let mut end = SessionEnd {
        session: goes_on.clone(),
        forked_from: launch.args.resume.clone().filter(|_| launch.args.fork),
        mismatch: None,
        // The limit on prompts is one of units; a session may be told anything.
        facts: Facts::default(),
    };

    // A resumed session is ours before the process starts; a new one as soon as its id is known.
    let mut lock = None;
    if let Some(session) = &goes_on {
        tokio::select! {
            taken = acquire(&launch.locks, session, &tape) => match taken {
                Ok(taken) => lock = Some(taken),
                Err(error) => {
                    end.facts.spawn_error = Some(error.to_string());
                    return end;
                }
            },
            Some(_) = commands.recv() => {
                end.facts.stopped = Some(StopHow::Stop);
                return end;
            }
        }
    }

    let mut started = AttemptStarted {
        cwd: launch.cwd.to_string_lossy().into_owned(),
        model: launch.args.model.clone(),
        prompt: prompt.clone(),
        tools: launch.args.allowed_tools.clone(),
        step_budget: launch.args.max_turns.unwrap_or_default(),
        scripted: launch.program.scripted,
        amendment: launch.amendment.clone(),
        ..AttemptStarted::default()
    };
    let begun = begin(&launch, environment, &prompt, &mut started).await;
    if let Err(error) = tape.note(&Note::AttemptStarted(Box::new(started))) {
        end.facts.record_error = Some(error.to_string());
        return end;
    }
    match begun {
        Err(why) => end.facts.spawn_error = Some(why),
        Ok(child) => {
            let talk = Talk {
                tape,
                patience,
                limits: launch.limits,
                child,
                watch: Watch::new(goes_on, launch.mismatch),
                gather: Gather::new(end.facts),
                locks: launch.locks,
                lock,
                lockable: true,
                ladder: None,
                linger: None,
                closing: None,
                over: false,
            };
            let Talk { watch, gather, .. } = talk.listen(commands).await;
            end.session = watch.session().map(str::to_owned);
            end.mismatch = watch.mismatch().map(str::to_owned);
            // A failed call is the model's own business here; only a unit is judged by it.
            end.facts = Facts { tally: Tally::default(), ..gather.facts };
        }
    }
    end
}

async fn acquire(locks: &Locks, session: &str, tape: &Tape) -> Result<SessionLock, LockError> {
    let told = |holder: Option<u32>| {
        let by = holder.map_or_else(String::new, |pid| format!(" by process {pid}"));
        let text = format!("session {session} is in use{by}; waiting for it");
        // A tape that cannot be written shows at the next note, which counts.
        let _ = tape.note(&Note::Said { level: Level::Info, text });
    };
    locks.lock(session, told).await
}

/// Starts the process and hands it the prompt. Fills in `started` as far as it comes.
async fn begin(
    launch: &SessionLaunch,
    environment: Vec<(OsString, OsString)>,
    prompt: &str,
    started: &mut AttemptStarted,
) -> Result<Child, String> {
    let delivery = order::delivery(prompt).map_err(|error| error.to_string())?;
    let mut args = launch.program.prefix.clone();
    args.extend(order::argv(&launch.args, prompt, delivery));
    let exe = &launch.program.exe;
    started.argv = shown(std::iter::once(exe.as_os_str()).chain(args.iter().map(OsString::as_os_str)));
    let environment = order::environment(environment, launch.use_api_billing);
    started.env_inherited = environment.inherited();
    started.env_stripped = environment.stripped;
    started.env_passed = environment.passed;
    let stdin = delivery == Delivery::Stdin;
    let order = Order { exe: exe.clone(), args, cwd: launch.cwd.clone(), env: environment.vars, stdin };
    let not_started = |error| NotStarted::explain(exe, &launch.cwd, &error).sentence;
    let mut child = process::spawn(order).await.map_err(not_started)?;
    started.pid = Some(child.pid());
    if let Some(mut stdin) = child.stdin.take() {
        let line = order::user_line(prompt);
        // In a task of its own: a program that does not read must not keep us from reading what it says. If it goes
        // away before it has read everything, its exit tells.
        tokio::spawn(async move {
            let _ = stdin.write_all(&line).await;
        });
    }
    Ok(child)
}

/// The tape, as this session sees it.
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

    fn note(&self, note: &Note) -> Result<(), RecordError> {
        self.record(std::iter::once(Body::Note(&note.to_json())))
    }
}

/// A session whose process runs.
struct Talk {
    tape: Tape,
    patience: Patience,
    limits: StreamLimits,
    child: Child,
    watch: Watch,
    gather: Gather,
    locks: Locks,
    lock: Option<SessionLock>,
    /// False once that has failed: it would fail again.
    lockable: bool,
    /// The step that was taken last, and when the next one is due.
    ladder: Option<(Rung, Instant)>,
    /// When a process that has nothing more to say is ended.
    linger: Option<Instant>,
    /// When nobody waits any longer for the pipes of a process that has ended.
    closing: Option<Instant>,
    /// Nothing more is waited for.
    over: bool,
}

enum Event {
    Out,
    Err,
    Exited(Ended),
    Command(Option<Command>),
    Locked(Result<SessionLock, LockError>),
    Alarm,
}

impl Talk {
    async fn listen(mut self, mut commands: mpsc::Receiver<Command>) -> Self {
        let (Some(stdout), Some(stderr)) = (self.child.stdout.take(), self.child.stderr.take()) else {
            self.gather.facts.spawn_error = Some("the process has no pipes".into());
            return self;
        };
        let mut stdout = LineReader::with_limit(stdout, self.limits.line);
        let mut stderr = LineReader::with_limit(stderr, self.limits.stderr_line);
        let mut recorded_stderr = StderrLimit::new(self.limits.stderr);
        let (mut running, mut commanded) = (true, true);
        while !self.over && (running || !stdout.is_over() || !stderr.is_over()) {
            let alarm = self.alarm();
            let wanted = self.wanted().filter(|_| running).map(str::to_owned);
            let locks = self.locks.clone();
            let event = tokio::select! {
                // An error ends the pipe; what came before it is taken all the same.
                _ = stdout.fill(), if !stdout.is_over() => Event::Out,
                _ = stderr.fill(), if !stderr.is_over() => Event::Err,
                ended = self.child.wait(), if running => Event::Exited(ended),
                command = commands.recv(), if commanded => Event::Command(command),
                locked = locks.lock(wanted.as_deref().unwrap_or_default(), |_| ()), if wanted.is_some() => {
                    Event::Locked(locked)
                }
                () = sleep_until(alarm.unwrap_or_else(Instant::now)), if alarm.is_some() => Event::Alarm,
            };
            match event {
                Event::Out => self.lines(&mut stdout),
                Event::Err => {
                    let mut lines: Vec<Cow<'_, str>> = stderr.take().lines().map(String::from_utf8_lossy).collect();
                    lines.iter().for_each(|line| self.gather.stderr(line));
                    let had_dropped = recorded_stderr.has_dropped();
                    lines.retain(|line| recorded_stderr.admits(line.len()));
                    let recorded = self.tape.record(lines.into_iter().map(Body::Err));
                    let dropped = recorded_stderr.begins(had_dropped);
                    self.keep(recorded.and_then(|()| dropped.map_or(Ok(()), |note| self.tape.note(&note))));
                }
                Event::Exited(ended) => {
                    running = false;
                    self.gather.facts.exit_code = ended.code;
                    self.gather.facts.signal = ended.signal;
                    // Somebody may have inherited its pipes; what is in them by now is read, the rest never comes.
                    self.closing = Some(Instant::now() + self.patience.drain);
                }
                Event::Command(Some(command)) => {
                    let (how, rung) = match command {
                        Command::Interrupt => (StopHow::Stop, Rung::Interrupt),
                        Command::Kill => (StopHow::Kill, Rung::Kill),
                    };
                    if self.watch.is_complete() && self.gather.facts.stopped.is_none() {
                        // After its result it only ends faster; the result stands.
                        self.climb(rung.max(Rung::Terminate));
                    } else {
                        self.gather.facts.stopped = Some(how);
                        self.climb(rung);
                    }
                }
                Event::Command(None) => commanded = false,
                Event::Locked(Ok(lock)) => self.lock = Some(lock),
                Event::Locked(Err(error)) => {
                    self.lockable = false;
                    let said = Note::Said { level: Level::Error, text: error.to_string() };
                    let recorded = self.tape.note(&said);
                    self.keep(recorded);
                    // Without a lock it may be split by another resume, so it does not go on.
                    self.gather.facts.spawn_error = Some(error.to_string());
                    self.climb(Rung::Terminate);
                }
                Event::Alarm if !running => self.over = true,
                Event::Alarm => match self.ladder {
                    Some((rung, _)) => self.climb(rung.next()),
                    None => self.climb(Rung::Terminate),
                },
            }
        }
        if let Some(note) = recorded_stderr.ends() {
            let recorded = self.tape.note(&note);
            self.keep(recorded);
        }
        self
    }

    /// The session that has to be locked: the one that is on, also where it is not the one that was asked for.
    fn wanted(&self) -> Option<&str> {
        let session = self.watch.session().filter(|_| self.lockable)?;
        self.lock.as_ref().is_none_or(|lock| lock.session() != session).then_some(session)
    }

    fn alarm(&self) -> Option<Instant> {
        self.closing.or(self.ladder.map(|(_, due)| due)).or(self.linger)
    }

    /// Takes a step of the kill ladder, unless a firmer one was taken already.
    fn climb(&mut self, rung: Rung) {
        if self.ladder.is_some_and(|(taken, _)| taken >= rung) {
            return;
        }
        match rung.signal() {
            Some(signal) => {
                self.child.signal(signal);
                self.ladder = Some((rung, Instant::now() + self.patience.rung));
            }
            // Not even SIGKILL helped; it is left to the kernel.
            None => self.over = true,
        }
    }

    /// Goes on only while everything gets onto the tape.
    fn keep(&mut self, recorded: Result<(), RecordError>) {
        if let Err(error) = recorded {
            self.gather.facts.record_error.get_or_insert_with(|| error.to_string());
            self.climb(Rung::Terminate);
        }
    }

    fn lines(&mut self, stdout: &mut LineReader<ChildStdout>) {
        let batch = stdout.take();
        if let Err(error) = self.tape.record(batch.bodies()) {
            self.keep(Err(error));
            return;
        }
        if batch.is_piece() {
            self.gather.facts.oversized_line = Some(self.limits.line);
            self.climb(Rung::Interrupt);
            return;
        }
        for line in batch.lines() {
            let line = decode::line(line);
            match self.watch.line(&line) {
                Seen::Nothing => {}
                Seen::Said(level, text) => {
                    let recorded = self.tape.note(&Note::Said { level, text });
                    self.keep(recorded);
                }
                Seen::Mismatch(text) => {
                    let recorded = self.tape.note(&Note::Said { level: Level::Error, text });
                    self.keep(recorded);
                    self.climb(Rung::Terminate);
                }
            }
            if self.watch.mismatch().is_none() {
                self.gather.line(&line.body);
            }
        }
        // It is complete with its result, or has closed its mouth; whoever lingers after that is ended.
        let is_done = self.watch.is_complete() || stdout.is_over();
        self.linger = is_done.then(|| Instant::now() + self.patience.linger);
    }
}
