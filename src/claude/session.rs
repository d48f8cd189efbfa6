//! Plain sessions, by Takopi's contract: one prompt, one `claude -p`, one stream on the tape.
//!
//! Owns the process of a session, its lock, and the rule that a resumed session keeps its id. It must not judge how the
//! session went: it returns facts.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use tokio::{
    io::AsyncWriteExt as _,
    sync::{mpsc, oneshot},
};

use super::{
    argv::argv_to_strings,
    process::{self, Child, ProcessTimeouts, SpawnRequest, StreamLimits},
    session_lock::{LockError, SessionLock, SessionLocks},
    start_error::StartError,
    unit::{AgentProgram, StopCommand},
};
use crate::{
    config::MismatchPolicy,
    run::entry_source::{NewEntry, RecordError, Recorder},
    tape::{
        EntryBody, Note, UnitKey,
        note::{Amendment, AttemptOutcome, AttemptStarted, Cause, Severity, StopMode, StopReason, Verdict},
    },
    units::{
        failure_tally::{FailureRule, FailureTally},
        retry::RetryMode,
        verdict::{AttemptFacts, IsolationStatus, StartFault, judge_attempt, session_remedy},
    },
};

use self::{driver::SessionDriver, monitor::SessionMonitor};

mod driver;
pub mod launch_args;
mod monitor;
pub mod resume;

pub use launch_args::{ClaudeSessionArgs, InvalidPrompt, PromptDelivery};
pub use resume::resume_line;

/// Everything that a session needs.
#[derive(Clone, Debug)]
pub struct SessionLaunch {
    /// The agent.
    pub program: AgentProgram,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Name of its lane on the tape.
    pub unit: UnitKey,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Prompt. Resume lines in it are taken out; the last one counts unless `args` names a session.
    pub prompt: String,
    /// Flags.
    pub args: ClaudeSessionArgs,
    /// Leave `ANTHROPIC_API_KEY` in the environment.
    pub use_api_billing: bool,
    /// What a resumed session with another id is.
    pub mismatch: MismatchPolicy,
    /// Where sessions are locked.
    pub locks: SessionLocks,
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
    /// Tools may have run, so its prompt must not be sent again.
    pub tools_ran: bool,
    /// What a verdict needs. Failed tool calls are left out: in a plain session they are the model's own business.
    pub facts: AttemptFacts,
}

impl SessionEnd {
    /// How the session ended. A mismatch of ids comes before everything else.
    pub fn verdict(&self, unit: &UnitKey) -> Verdict {
        if let Some(reason) = &self.mismatch {
            return Verdict {
                outcome: AttemptOutcome::Failed,
                stop: StopReason::Error,
                cause: Cause::LoopError,
                reason: reason.clone(),
                remedy: Some("set session_mismatch = \"warn\" in [claude] to go on with the new session".into()),
            };
        }
        let verdict = judge_attempt(unit, &self.facts, FailureRule::default());
        Verdict { remedy: session_remedy(&verdict.cause, verdict.remedy), ..verdict }
    }

    /// The session that can be continued. Claude Code answers to an unknown id that there is none.
    pub fn resumable(&self) -> Option<&str> {
        self.session.as_deref().filter(|_| !self.facts.is_unknown_session())
    }

    /// How an automatic retry may go about it: whatever the tools did in the working directory remains.
    pub fn retry_mode(&self) -> RetryMode {
        match self.resumable() {
            _ if !self.tools_ran => RetryMode::FromStart,
            Some(session) => RetryMode::ResumeSession(session.to_owned()),
            None => RetryMode::Never,
        }
    }
}

/// Runs a session to its end. The environment is derived from our own.
///
/// Whatever arrives is on the tape before anything looks at it. A session that somebody else uses is waited for.
/// `ready` fires when the process runs; it is dropped unused if there is none. Dropping the future kills the process
/// group.
pub async fn run_session(
    launch: SessionLaunch,
    commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> SessionEnd {
    run_session_with_env(std::env::vars_os().collect(), ProcessTimeouts::default(), launch, commands, ready).await
}

/// As [`run_session`], with the environment and the patience given.
pub async fn run_session_with_env(
    environment: Vec<(OsString, OsString)>,
    patience: ProcessTimeouts,
    mut launch: SessionLaunch,
    mut commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> SessionEnd {
    let (prompt, named) = resume::split_prompt(&launch.prompt);
    launch.args.resume = launch.args.resume.or_else(|| named.map(str::to_owned));
    launch.args.fork &= launch.args.resume.is_some();
    let tape =
        SessionRecorder { recorder: Arc::clone(&launch.recorder), unit: launch.unit.clone(), attempt: launch.attempt };
    let goes_on = launch.args.resume.clone().filter(|_| !launch.args.fork);
    let mut end = SessionEnd {
        session: goes_on.clone(),
        forked_from: launch.args.resume.clone().filter(|_| launch.args.fork),
        mismatch: None,
        tools_ran: false,
        // The limit on prompts is one of units; a session may be told anything.
        facts: AttemptFacts::default(),
    };

    // A resumed session is ours before the process starts; a new one as soon as its id is known.
    let mut lock = None;
    if let Some(session) = &goes_on {
        tokio::select! {
            taken = acquire_lock(&launch.locks, session, &tape) => match taken {
                Ok(taken) => lock = Some(taken),
                Err(error) => {
                    end.facts.start_error = Some(error.to_string());
                    return end;
                }
            },
            Some(_) = commands.recv() => {
                end.facts.stopped = Some(StopMode::Stop);
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
        tolerates_mismatch: goes_on.is_some() && launch.mismatch == MismatchPolicy::Warn,
        ..AttemptStarted::default()
    };
    let begun = start_process(&launch, environment, &prompt, &mut started).await;
    if let Err(error) = tape.note(&Note::AttemptStarted(Box::new(started))) {
        end.facts.record_error = Some(error.to_string());
        return end;
    }
    match begun {
        Err(why) => {
            end.facts.start_error = Some(why.message);
            end.facts.start_fault = why.fault;
        }
        Ok(child) => {
            // Nobody may be interested.
            let _ = ready.send(());
            let watch = SessionMonitor::new(goes_on, launch.mismatch, launch.args.permission_mode());
            let talk = SessionDriver::new(tape, child, watch, end.facts, patience, launch.limits, (launch.locks, lock));
            let (watch, facts) = talk.run(commands).await;
            end.session = watch.session().map(str::to_owned);
            end.mismatch = watch.mismatch().map(str::to_owned);
            end.tools_ran = watch.tools_ran();
            let isolation =
                watch.breach().map_or(facts.isolation, |breach| IsolationStatus::Breached(breach.to_owned()));
            // A failed call is the model's own business here; only a unit is judged by it.
            end.facts = AttemptFacts { tally: FailureTally::default(), isolation, ..facts };
        }
    }
    end
}

async fn acquire_lock(locks: &SessionLocks, session: &str, tape: &SessionRecorder) -> Result<SessionLock, LockError> {
    let told = |holder: Option<u32>| {
        let by = holder.map_or_else(String::new, |pid| format!(" by process {pid}"));
        let text = format!("session {session} is in use{by}; waiting for it");
        // A tape that cannot be written shows at the next note, which counts.
        let _ = tape.note(&Note::Message { level: Severity::Info, text });
    };
    locks.lock(session, told).await
}

/// Starts the process and hands it the prompt. Fills in `started` as far as it comes.
async fn start_process(
    launch: &SessionLaunch,
    environment: Vec<(OsString, OsString)>,
    prompt: &str,
    started: &mut AttemptStarted,
) -> Result<Child, StartError> {
    let unsent = |error: InvalidPrompt| StartError { fault: StartFault::Other, message: error.to_string() };
    let delivery = launch_args::choose_delivery(prompt).map_err(unsent)?;
    let mut args = launch.program.prefix.clone();
    args.extend(launch_args::session_argv(&launch.args, prompt, delivery));
    let exe = &launch.program.exe;
    started.argv = argv_to_strings(std::iter::once(exe.as_os_str()).chain(args.iter().map(OsString::as_os_str)));
    let environment = launch_args::session_environment(environment, launch.use_api_billing);
    started.env_inherited = environment.inherited();
    started.env_stripped = environment.stripped;
    started.env_passed = environment.passed;
    let stdin = delivery == PromptDelivery::Stdin;
    let order = SpawnRequest { exe: exe.clone(), args, cwd: launch.cwd.clone(), env: environment.vars, stdin };
    let spawned = process::spawn(order).await;
    let mut child = spawned.map_err(|error| StartError::from_io_error(exe, &launch.cwd, &error))?;
    started.pid = Some(child.pid());
    if let Some(mut stdin) = child.stdin.take() {
        let line = launch_args::user_message_line(prompt);
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
struct SessionRecorder {
    recorder: Arc<dyn Recorder>,
    unit: UnitKey,
    attempt: u32,
}

impl SessionRecorder {
    fn record<'a>(&'a self, bodies: impl Iterator<Item = EntryBody<'a>>) -> Result<(), RecordError> {
        let lane = Some((&self.unit, self.attempt));
        let items: Vec<NewEntry<'a>> = bodies.map(|body| NewEntry { attempt: lane, body }).collect();
        if items.is_empty() { Ok(()) } else { self.recorder.record(&items) }
    }

    fn note(&self, note: &Note) -> Result<(), RecordError> {
        self.record(std::iter::once(EntryBody::Note(&note.to_json())))
    }
}
