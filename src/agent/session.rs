//! Plain sessions, by Takopi's contract: one prompt, one `claude -p`, one stream on the tape.
//!
//! Starts the process of a session, and locks a session that is resumed. It must not judge the session: it returns facts.
//! `agent::attempt` runs it.

use std::{ffi::OsString, sync::Arc};

use tokio::sync::{mpsc, oneshot, watch};

use super::{
    attempt::{
        ApprovalGate, AttemptCommand, AttemptContext, AttemptRunner, SessionLocking,
        machine::AttemptMachine, recorder::AttemptRecorder, session_monitor::SessionMonitor,
        time_limits::AttemptTimeouts,
    },
    claude::command_line::argv_to_strings,
    facts_collector::AttemptFactsCollector,
    mcp,
    process::{self, Child, ProcessTimeouts, SpawnRequest},
    session_lock::{SessionLock, SessionLockError, SessionLocks},
    start_error::StartError,
};
use ingestdeck_core::{
    config::MismatchPolicy,
    diagnostic::Diagnostic,
    tape::{
        Note, UnitKey,
        note::{
            AttemptOutcome, AttemptStarted, Severity, StopMode, StopReason, Verdict, VerdictCause,
        },
    },
    units::{
        Toolset,
        failure_tally::{FailureRule, FailureTally},
        retry::RetryMode,
        verdict::{
            AgentStartFault, AttemptFacts, IsolationStatus, WorkFacts, judge_attempt,
            session_remedy,
        },
    },
};

pub mod launch_args;
pub(crate) mod resume;

pub use super::attempt::session_monitor::SessionChanges;
pub use launch_args::{ClaudeSessionArgs, InvalidPrompt, PromptDelivery};
pub use resume::resume_line;

/// Everything that a session needs.
#[derive(Clone, Debug)]
pub struct SessionLaunch {
    pub context: AttemptContext,
    /// Prompt. Resume lines in it are removed; the last one selects the session unless `args` does.
    pub prompt: String,
    pub args: ClaudeSessionArgs,
    /// Keep `ANTHROPIC_API_KEY` in the environment.
    pub use_api_billing: bool,
    /// How to handle a resumed session that reports another id.
    pub mismatch: MismatchPolicy,
    /// Locks of the sessions.
    pub locks: SessionLocks,
    /// Time limits of each turn, which may change while it runs.
    pub time_limits: watch::Receiver<AttemptTimeouts>,
    /// Speak the two-way protocol. Without it, the prompt is all that the agent gets.
    pub conversation: Option<Conversation>,
}

/// What the agent of a session asks for in the two-way protocol.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Decides about each call.
    pub gate: Arc<dyn ApprovalGate>,
    /// The standard tools that the session asks for; may be empty.
    pub tools: Arc<dyn Toolset>,
    /// A person answers requests for permission. Without one, Claude Code denies such calls.
    pub asks_permission: bool,
}

/// Facts about a finished session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionEnd {
    /// Id for continuing the session; see [`resume_line`].
    pub session: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// Message of an id mismatch, if that ended the session.
    pub mismatch: Option<String>,
    /// Tools may have run, so the prompt must not be sent again.
    pub tools_ran: bool,
    /// Messages of a person that the agent did not receive.
    pub undelivered: Vec<String>,
    /// The first message for a new session that continues the work; empty if the process did not start.
    pub continuation: String,
    /// What a person changed during the turn.
    pub changes: SessionChanges,
    /// Facts for the verdict, without failed tool calls: they do not fail a plain session.
    pub facts: AttemptFacts,
}

impl SessionEnd {
    /// How the session ended. An id mismatch takes precedence.
    pub fn verdict(&self, unit: &UnitKey) -> Verdict {
        if let Some(reason) = &self.mismatch {
            return Verdict {
                outcome: AttemptOutcome::Failed,
                stop: StopReason::Error,
                cause: VerdictCause::LoopError,
                reason: reason.clone(),
                remedy: Some(
                    "set session_mismatch = \"warn\" in [claude] to continue with the new session"
                        .into(),
                ),
            };
        }
        let verdict = judge_attempt(unit, &self.facts, FailureRule::default());
        Verdict {
            remedy: session_remedy(&verdict.cause, verdict.remedy),
            ..verdict
        }
    }

    /// The session that can be continued; `None` if Claude Code does not know it.
    pub fn resumable(&self) -> Option<&str> {
        self.session
            .as_deref()
            .filter(|_| !self.facts.is_unknown_session())
    }

    /// How an automatic retry may proceed: the effects of tools on the working directory remain.
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
/// Every line is on the tape before it is evaluated. Waits for a session that is in use. `ready` fires when the process
/// runs; it is dropped unused if no process starts. Dropping the future kills the process group.
pub async fn run_session(
    launch: SessionLaunch,
    commands: mpsc::Receiver<AttemptCommand>,
    ready: oneshot::Sender<()>,
) -> SessionEnd {
    run_session_with_env(
        std::env::vars_os().collect(),
        ProcessTimeouts::default(),
        launch,
        commands,
        ready,
    )
    .await
}

/// Like [`run_session`], with the given environment and timeouts.
pub async fn run_session_with_env(
    environment: Vec<(OsString, OsString)>,
    timeouts: ProcessTimeouts,
    mut launch: SessionLaunch,
    mut commands: mpsc::Receiver<AttemptCommand>,
    ready: oneshot::Sender<()>,
) -> SessionEnd {
    let (mut prompt, mut named) = resume::split_prompt(&launch.prompt);
    if launch
        .context
        .amendment
        .as_ref()
        .is_some_and(|amendment| amendment.message.is_some())
    {
        // A message may quote such a line, and a model may have written it.
        (prompt, named) = (launch.prompt.clone(), None);
    }
    launch.args.resume = launch.args.resume.or_else(|| named.map(str::to_owned));
    launch.args.fork &= launch.args.resume.is_some();
    let mut tape = launch.context.tape();
    let resumed = launch.args.resume.clone().filter(|_| !launch.args.fork);
    let mut end = SessionEnd {
        session: resumed.clone(),
        forked_from: launch.args.resume.clone().filter(|_| launch.args.fork),
        mismatch: None,
        tools_ran: false,
        undelivered: Vec::new(),
        continuation: String::new(),
        changes: SessionChanges::default(),
        // The limit on prompts only applies to units.
        facts: AttemptFacts::default(),
    };

    // A resumed session is locked before the process starts; a new one as soon as its id is known.
    let mut lock = None;
    if let Some(session) = &resumed {
        tokio::select! {
            taken = acquire_lock(&launch.locks, session, &mut tape) => match taken {
                Ok(taken) => lock = Some(taken),
                Err(error) => {
                    end.facts.process.start_error = Some(error.to_line());
                    return end;
                }
            },
            Some(_) = stop_request(&mut commands, &mut end.undelivered) => {
                end.facts.interruption.stopped = Some(StopMode::Stop);
                return end;
            }
        }
    }

    let mut started = AttemptStarted {
        model: launch.args.model.clone(),
        prompt: prompt.clone(),
        tools: launch.args.allowed_tools.clone(),
        step_budget: launch.args.max_turns.unwrap_or_default(),
        tolerates_mismatch: resumed.is_some() && launch.mismatch == MismatchPolicy::Warn,
        ..launch.context.start_note()
    };
    let begun = start_process(&launch, environment, &prompt, &mut started).await;
    if let Err(error) = tape.note(&Note::AttemptStarted(Box::new(started))) {
        end.facts.interruption.record_error = Some(error.to_string());
        return end;
    }
    let task = prompt.clone();
    match begun {
        Err(why) => {
            end.facts.process.start_error = Some(why.message);
            end.facts.process.start_fault = why.fault;
        }
        Ok((child, delivery)) => {
            let is_resumed = resumed.is_some();
            let monitor =
                SessionMonitor::new(resumed, launch.mismatch, launch.args.permission_mode());
            let mut stats =
                AttemptFactsCollector::new(end.facts).with_turn_limit(launch.args.max_turns);
            if is_resumed {
                stats.resume_session(launch.context.paid_usd);
            }
            let locking = SessionLocking {
                locks: launch.locks,
                held: lock,
                pending: None,
            };
            let runner = |machine| {
                AttemptRunner::new(&launch.context, tape, child, machine, timeouts)
                    .with_session_lock(locking)
                    .with_timeouts(launch.time_limits)
            };
            let runner = if let Some(Conversation { gate, tools, .. }) = launch.conversation {
                let ids = mcp::tool_ids(&tools.specs());
                runner(AttemptMachine::for_conversation(
                    stats, monitor, prompt, ids, timeouts,
                ))
                .with_tools(tools, gate)
            } else {
                let to_stdin = if delivery == PromptDelivery::Stdin {
                    prompt
                } else {
                    String::new()
                };
                runner(AttemptMachine::for_session(
                    stats, monitor, to_stdin, timeouts,
                ))
            };
            let mut machine = runner.run(&launch.context, commands, ready).await;
            end.undelivered = machine.take_undelivered();
            let monitor = machine.session();
            end.continuation = monitor
                .map(|monitor| monitor.work().continuation_prompt(&task))
                .unwrap_or_default();
            end.changes = monitor
                .map(|monitor| monitor.changes().clone())
                .unwrap_or_default();
            end.session = monitor.and_then(SessionMonitor::session).map(str::to_owned);
            end.mismatch = monitor
                .and_then(SessionMonitor::mismatch)
                .map(str::to_owned);
            end.tools_ran = monitor.is_some_and(SessionMonitor::tools_ran);
            let breach = monitor.and_then(SessionMonitor::breach).map(str::to_owned);
            let facts = machine.into_facts();
            let isolation = breach.map_or(facts.isolation, IsolationStatus::Breached);
            // Failed calls do not fail a plain session; they only count for units.
            end.facts = AttemptFacts {
                isolation,
                work: WorkFacts {
                    tally: FailureTally::default(),
                    ..facts.work
                },
                ..facts
            };
        }
    }
    end
}

/// Waits for a request to end the session. Messages wait for its next turn.
async fn stop_request(
    commands: &mut mpsc::Receiver<AttemptCommand>,
    messages: &mut Vec<String>,
) -> Option<AttemptCommand> {
    loop {
        match commands.recv().await? {
            AttemptCommand::Message(text) => messages.push(text),
            // The agent does not run yet.
            AttemptCommand::Request(_) => {}
            stop => return Some(stop),
        }
    }
}

async fn acquire_lock(
    locks: &SessionLocks,
    session: &str,
    tape: &mut AttemptRecorder,
) -> Result<SessionLock, SessionLockError> {
    let report_wait = |holder: Option<u32>| {
        let by = holder.map_or_else(String::new, |pid| format!(" by process {pid}"));
        let text = format!("session {session} is in use{by}; waiting for it");
        // An error of the tape is detected at the next note.
        let _ = tape.note(&Note::Message {
            level: Severity::Info,
            text,
        });
    };
    locks.lock(session, report_wait).await
}

/// Starts the process. Sets the fields of `started` as it proceeds.
async fn start_process(
    launch: &SessionLaunch,
    environment: Vec<(OsString, OsString)>,
    prompt: &str,
    started: &mut AttemptStarted,
) -> Result<(Child, PromptDelivery), StartError> {
    let unsent = |error: InvalidPrompt| StartError {
        fault: AgentStartFault::Other,
        message: error.to_line(),
    };
    let mut delivery = launch_args::choose_delivery(prompt).map_err(unsent)?;
    if let Some(Conversation {
        asks_permission, ..
    }) = &launch.conversation
    {
        delivery = PromptDelivery::Conversation {
            asks_permission: *asks_permission,
        };
    }
    let AttemptContext {
        agent,
        unit,
        attempt,
        cwd,
        ..
    } = &launch.context;
    let program = agent.program(unit, *attempt);
    let args = program.with_args(launch_args::session_argv(&launch.args, prompt, delivery));
    let exe = &program.exe;
    started.argv = argv_to_strings(
        std::iter::once(exe.as_os_str()).chain(args.iter().map(OsString::as_os_str)),
    );
    let mut environment = launch_args::session_environment(environment, launch.use_api_billing);
    if launch.args.offered_tools.is_some() {
        environment.disable_tool_search();
    }
    environment.set_traceparent(launch.context.traceparent.as_deref());
    started.env_inherited = environment.inherited();
    started.env_set = environment.set;
    started.env_stripped = environment.stripped;
    started.env_passed = environment.passed;
    let stdin = delivery != PromptDelivery::Argument;
    let order = SpawnRequest {
        exe: exe.clone(),
        args,
        cwd: cwd.clone(),
        env: environment.vars,
        stdin,
    };
    let spawned = process::spawn(order).await;
    let child = spawned.map_err(|error| StartError::from_io_error(exe, cwd, &error))?;
    started.pid = Some(child.pid());
    Ok((child, delivery))
}
