//! Plain sessions, by Takopi's contract: one prompt, one `claude -p`, one stream on the tape.
//!
//! Owns the process of a session, its lock, and the rule that a resumed session keeps its id. It must not judge the
//! session: it returns facts.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use tokio::{
    io::AsyncWriteExt as _,
    sync::{mpsc, oneshot},
};

use super::{
    claude::command_line::argv_to_strings,
    facts_collector::AttemptFactsCollector,
    process::{self, Child, ProcessTimeouts, SpawnRequest, StreamLimits},
    session_lock::{SessionLock, SessionLockError, SessionLocks},
    start_error::StartError,
    unit::{AgentProgram, LineObserver, StopCommand},
};
use crate::{
    config::MismatchPolicy,
    diagnostic::Diagnostic,
    run::entry_source::{NewEntry, RecordError, Recorder},
    tape::{
        EntryBody, Note, UnitKey,
        note::{Amendment, AttemptOutcome, AttemptStarted, Severity, StopMode, StopReason, Verdict, VerdictCause},
    },
    units::{
        failure_tally::{FailureRule, FailureTally},
        retry::RetryMode,
        verdict::{AgentStartFault, AttemptFacts, IsolationStatus, WorkFacts, judge_attempt, session_remedy},
    },
};

use self::{driver::SessionDriver, monitor::SessionMonitor};

mod driver;
pub(crate) mod launch_args;
mod monitor;
pub(crate) mod resume;

pub(crate) use launch_args::{ClaudeSessionArgs, InvalidPrompt, PromptDelivery};
pub(crate) use resume::resume_line;

/// Everything that a session needs.
#[derive(Clone, Debug)]
pub(crate) struct SessionLaunch {
    pub program: AgentProgram,
    pub cwd: PathBuf,
    /// Name of the session on the tape.
    pub unit: UnitKey,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Prompt. Resume lines in it are removed; the last one selects the session unless `args` does.
    pub prompt: String,
    pub args: ClaudeSessionArgs,
    /// Keep `ANTHROPIC_API_KEY` in the environment.
    pub use_api_billing: bool,
    /// How to handle a resumed session that reports another id.
    pub mismatch: MismatchPolicy,
    /// Locks of the sessions.
    pub locks: SessionLocks,
    /// Memory limits for its lines.
    pub limits: StreamLimits,
    pub recorder: Arc<dyn Recorder>,
    /// Sees each recorded line.
    pub observer: Option<Arc<dyn LineObserver>>,
    /// Cost of the earlier attempts of the continued session, in US dollars; `None` if that is unknown.
    pub paid_usd: Option<f64>,
    /// Changes that a person requested, for the tape. The fields above include them already.
    pub amendment: Option<Amendment>,
}

/// Facts about a finished session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SessionEnd {
    /// Id for continuing the session; see [`resume_line`].
    pub session: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// Message of an id mismatch, if that ended the session.
    pub mismatch: Option<String>,
    /// Tools may have run, so the prompt must not be sent again.
    pub tools_ran: bool,
    /// Facts for the verdict, without failed tool calls: they do not fail a plain session.
    pub facts: AttemptFacts,
}

impl SessionEnd {
    /// How the session ended. An id mismatch takes precedence.
    pub(crate) fn verdict(&self, unit: &UnitKey) -> Verdict {
        if let Some(reason) = &self.mismatch {
            return Verdict {
                outcome: AttemptOutcome::Failed,
                stop: StopReason::Error,
                cause: VerdictCause::LoopError,
                reason: reason.clone(),
                remedy: Some("set session_mismatch = \"warn\" in [claude] to continue with the new session".into()),
            };
        }
        let verdict = judge_attempt(unit, &self.facts, FailureRule::default());
        Verdict { remedy: session_remedy(&verdict.cause, verdict.remedy), ..verdict }
    }

    /// The session that can be continued; `None` if Claude Code does not know it.
    pub(crate) fn resumable(&self) -> Option<&str> {
        self.session.as_deref().filter(|_| !self.facts.is_unknown_session())
    }

    /// How an automatic retry may proceed: the effects of tools on the working directory remain.
    pub(crate) fn retry_mode(&self) -> RetryMode {
        match self.resumable() {
            _ if !self.tools_ran => RetryMode::FromStart,
            Some(session) => RetryMode::ResumeSession(session.to_owned()),
            None => RetryMode::Never,
        }
    }
}

/// Runs a session to its end. The environment is derived from our own.
///
/// Every line is on the tape before it is evaluated. Waits for a session that is in use. `ready` fires when the process
/// runs; it is dropped unused if no process starts. Dropping the future kills the process group.
pub(crate) async fn run_session(
    launch: SessionLaunch,
    commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> SessionEnd {
    run_session_with_env(std::env::vars_os().collect(), ProcessTimeouts::default(), launch, commands, ready).await
}

/// Like [`run_session`], with the given environment and timeouts.
pub(crate) async fn run_session_with_env(
    environment: Vec<(OsString, OsString)>,
    timeouts: ProcessTimeouts,
    mut launch: SessionLaunch,
    mut commands: mpsc::Receiver<StopCommand>,
    ready: oneshot::Sender<()>,
) -> SessionEnd {
    let (prompt, named) = resume::split_prompt(&launch.prompt);
    launch.args.resume = launch.args.resume.or_else(|| named.map(str::to_owned));
    launch.args.fork &= launch.args.resume.is_some();
    let tape =
        SessionRecorder { recorder: Arc::clone(&launch.recorder), unit: launch.unit.clone(), attempt: launch.attempt };
    let resumed = launch.args.resume.clone().filter(|_| !launch.args.fork);
    let mut end = SessionEnd {
        session: resumed.clone(),
        forked_from: launch.args.resume.clone().filter(|_| launch.args.fork),
        mismatch: None,
        tools_ran: false,
        // The limit on prompts only applies to units.
        facts: AttemptFacts::default(),
    };

    // A resumed session is locked before the process starts; a new one as soon as its id is known.
    let mut lock = None;
    if let Some(session) = &resumed {
        tokio::select! {
            taken = acquire_lock(&launch.locks, session, &tape) => match taken {
                Ok(taken) => lock = Some(taken),
                Err(error) => {
                    end.facts.process.start_error = Some(error.to_line());
                    return end;
                }
            },
            Some(_) = commands.recv() => {
                end.facts.interruption.stopped = Some(StopMode::Stop);
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
        tolerates_mismatch: resumed.is_some() && launch.mismatch == MismatchPolicy::Warn,
        ..AttemptStarted::default()
    };
    let begun = start_process(&launch, environment, &prompt, &mut started).await;
    if let Err(error) = tape.note(&Note::AttemptStarted(Box::new(started))) {
        end.facts.interruption.record_error = Some(error.to_string());
        return end;
    }
    match begun {
        Err(why) => {
            end.facts.process.start_error = Some(why.message);
            end.facts.process.start_fault = why.fault;
        }
        Ok(child) => {
            // The receiver is optional.
            let _ = ready.send(());
            let is_resumed = resumed.is_some();
            let watch = SessionMonitor::new(resumed, launch.mismatch, launch.args.permission_mode());
            let mut stats = AttemptFactsCollector::new(end.facts).with_turn_limit(launch.args.max_turns);
            if is_resumed {
                stats.resume_session(launch.paid_usd);
            }
            let talk = SessionDriver::new(tape, child, watch, stats, timeouts, launch.limits, (launch.locks, lock))
                .observed_by(launch.observer);
            let (watch, facts) = talk.run(commands).await;
            end.session = watch.session().map(str::to_owned);
            end.mismatch = watch.mismatch().map(str::to_owned);
            end.tools_ran = watch.tools_ran();
            let isolation =
                watch.breach().map_or(facts.isolation, |breach| IsolationStatus::Breached(breach.to_owned()));
            // Failed calls do not fail a plain session; they only count for units.
            end.facts =
                AttemptFacts { isolation, work: WorkFacts { tally: FailureTally::default(), ..facts.work }, ..facts };
        }
    }
    end
}

async fn acquire_lock(
    locks: &SessionLocks,
    session: &str,
    tape: &SessionRecorder,
) -> Result<SessionLock, SessionLockError> {
    let report_wait = |holder: Option<u32>| {
        let by = holder.map_or_else(String::new, |pid| format!(" by process {pid}"));
        let text = format!("session {session} is in use{by}; waiting for it");
        // An error of the tape is detected at the next note.
        let _ = tape.note(&Note::Message { level: Severity::Info, text });
    };
    locks.lock(session, report_wait).await
}

/// Starts the process and sends the prompt. Sets the fields of `started` as it proceeds.
async fn start_process(
    launch: &SessionLaunch,
    environment: Vec<(OsString, OsString)>,
    prompt: &str,
    started: &mut AttemptStarted,
) -> Result<Child, StartError> {
    let unsent = |error: InvalidPrompt| StartError { fault: AgentStartFault::Other, message: error.to_line() };
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
        // In a separate task, because a program that does not read its stdin must not block reading its output. If it
        // exits before it has read everything, its exit reports that.
        tokio::spawn(async move {
            let _ = stdin.write_all(&line).await;
        });
    }
    Ok(child)
}

/// The tape of this session.
#[derive(Debug)]
struct SessionRecorder {
    recorder: Arc<dyn Recorder>,
    unit: UnitKey,
    attempt: u32,
}

impl SessionRecorder {
    fn record<'a>(&'a self, bodies: impl Iterator<Item = EntryBody<'a>>) -> Result<(), RecordError> {
        let attempt = Some((&self.unit, self.attempt));
        let items: Vec<NewEntry<'a>> = bodies.map(|body| NewEntry { attempt, body }).collect();
        if items.is_empty() { Ok(()) } else { self.recorder.record(&items) }
    }

    fn attempt(&self) -> (&UnitKey, u32) {
        (&self.unit, self.attempt)
    }

    fn note(&self, note: &Note) -> Result<(), RecordError> {
        self.record(std::iter::once(EntryBody::Note(&note.to_json())))
    }
}
