//! Starts the attempts of units: the private directory, command line and environment of a process, and the failures
//! before its first output. The attempt itself is run by `agent::attempt`.

#![expect(
    clippy::disallowed_methods,
    reason = "writes into a private temporary directory"
)]

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::Arc,
};

use tokio::sync::{mpsc, oneshot, watch};

use ingestdeck_core::{
    run::RunOptions,
    tape::{
        Note,
        note::{AttemptStarted, ContentDigests},
    },
    units::{
        Toolset,
        verdict::{AgentStartFault, AttemptFacts, MAX_PROMPT_CHARS},
    },
};
use ingestdeck_os::scoped_dir::is_out_of_files;

use super::{
    attempt::{
        ApprovalGate, AttemptCommand, AttemptContext, AttemptRunner,
        machine::{AttemptMachine, ContinuedSession, UnitTask},
        time_limits::AttemptTimeouts,
    },
    claude::{
        agent_env,
        command_line::{self, SessionChoice, UnitArgs},
        isolation::IsolationProof,
    },
    mcp,
    private_dir::{self, PrivateDir},
    process::{self, Child, ProcessTimeouts, SpawnRequest},
    start_error::StartError,
};

/// Everything that an attempt at a unit needs.
#[derive(Clone, Debug)]
pub struct UnitLaunch {
    pub context: AttemptContext,
    pub options: Arc<RunOptions>,
    /// The time limits of the attempt, which may change while it runs.
    pub timeouts: watch::Receiver<AttemptTimeouts>,
    /// System prompt that replaces the agent's own.
    pub system_prompt: String,
    pub prompt: String,
    /// Id of a new session (a UUID), unless one is continued.
    pub new_session: String,
    /// Model; by default the agent's.
    pub model: Option<String>,
    /// Maximum number of API round trips.
    pub step_budget: u32,
    pub tools: Arc<dyn Toolset>,
    /// Decides about each call.
    pub gate: Arc<dyn ApprovalGate>,
    /// Digests of the unit's inputs, for the tape.
    pub content: Option<ContentDigests>,
}

impl UnitLaunch {
    /// Session to continue, instead of a new one.
    fn resume(&self) -> Option<&str> {
        self.context.amendment.as_ref()?.resume.as_deref()
    }
}

/// Runs one attempt to its end and returns its facts. The agent's environment is derived from our own.
///
/// `ready` fires when start-up is over; it is dropped unused if the attempt ends before. The recorder gets everything
/// that is read, written or decided, except the verdict. Returns within seconds of a [`AttemptCommand`], even if the
/// process, a tool or the gate is stuck. Dropping the future kills the process group.
pub async fn run_unit(
    launch: UnitLaunch,
    commands: mpsc::Receiver<AttemptCommand>,
    ready: oneshot::Sender<()>,
) -> AttemptFacts {
    run_unit_with_env(
        std::env::vars_os().collect(),
        ProcessTimeouts::default(),
        launch,
        commands,
        ready,
    )
    .await
}

/// Like [`run_unit`], with the given environment and timeouts.
pub async fn run_unit_with_env(
    environment: Vec<(OsString, OsString)>,
    timeouts: ProcessTimeouts,
    launch: UnitLaunch,
    commands: mpsc::Receiver<AttemptCommand>,
    ready: oneshot::Sender<()>,
) -> AttemptFacts {
    let mut facts = AttemptFacts {
        prompt_chars: launch.system_prompt.chars().count() + launch.prompt.chars().count(),
        ..AttemptFacts::default()
    };
    let mut tape = launch.context.tape();
    let mut started = AttemptStarted {
        model: launch.model.clone(),
        step_budget: launch.step_budget,
        system_prompt: launch.system_prompt.clone(),
        prompt: launch.prompt.clone(),
        content: launch.content.clone(),
        ..launch.context.start_note()
    };
    let begun = start_process(&launch, environment, facts.prompt_chars, &mut started).await;
    if let Err(error) = tape.note(&Note::AttemptStarted(Box::new(started))) {
        facts.interruption.record_error = Some(error.to_string());
        return facts;
    }
    match begun {
        Ok(StartedProcess {
            child,
            tool_ids,
            private_dir,
        }) => {
            let task = UnitTask {
                proof: IsolationProof::new(tool_ids),
                prompt: launch.prompt.clone(),
                max_turns: launch.step_budget,
                resume: launch.resume().map(|id| ContinuedSession {
                    id: id.to_owned(),
                    paid_usd: launch.context.paid_usd,
                }),
            };
            let machine = AttemptMachine::for_unit(facts, task, timeouts);
            let runner = AttemptRunner::new(&launch.context, tape, child, machine, timeouts)
                .with_tools(Arc::clone(&launch.tools), Arc::clone(&launch.gate))
                .with_timeouts(launch.timeouts);
            let machine = runner.run(&launch.context, commands, ready).await;
            drop(private_dir);
            machine.into_facts()
        }
        Err(AttemptStartError::PromptTooLarge) => facts,
        Err(AttemptStartError::Start(why)) => {
            (facts.process.start_error, facts.process.start_fault) = (Some(why.message), why.fault);
            facts
        }
    }
}

/// A process that runs and has not written anything yet.
struct StartedProcess {
    child: Child,
    /// Full ids of its tools.
    tool_ids: Vec<String>,
    /// Deleted when the attempt is over.
    private_dir: PrivateDir,
}

/// Why the process did not start.
enum AttemptStartError {
    /// The prompt exceeds the limit; the facts have its length.
    PromptTooLarge,
    Start(StartError),
}

impl AttemptStartError {
    fn other(why: impl ToString) -> Self {
        Self::Start(StartError {
            fault: AgentStartFault::Other,
            message: why.to_string(),
        })
    }

    fn from_io_error(error: &io::Error, why: String) -> Self {
        let fault = if is_out_of_files(error) {
            AgentStartFault::OpenFiles
        } else {
            AgentStartFault::Other
        };
        Self::Start(StartError {
            fault,
            message: why,
        })
    }
}

/// Starts the process, and sets the fields of `started` as it proceeds.
async fn start_process(
    launch: &UnitLaunch,
    environment: Vec<(OsString, OsString)>,
    prompt_chars: usize,
    started: &mut AttemptStarted,
) -> Result<StartedProcess, AttemptStartError> {
    let specs = launch.tools.specs();
    let tool_ids = mcp::tool_ids(&specs);
    started.tools.clone_from(&tool_ids);
    if prompt_chars > MAX_PROMPT_CHARS {
        return Err(AttemptStartError::PromptTooLarge);
    }
    mcp::validate_tools(&specs).map_err(AttemptStartError::other)?;
    let private = PrivateDir::new(private_dir::ATTEMPT_PREFIX).map_err(|error| {
        AttemptStartError::from_io_error(
            &error,
            format!("cannot create a private directory for temporary files: {error}"),
        )
    })?;
    let system_prompt = private.path().join("system.md");
    write_private(&system_prompt, &launch.system_prompt).map_err(|error| {
        AttemptStartError::from_io_error(
            &error,
            format!("cannot write {}: {error}", system_prompt.display()),
        )
    })?;

    let AttemptContext {
        agent,
        unit,
        attempt,
        cwd,
        ..
    } = &launch.context;
    let program = agent.program(unit, *attempt);
    let args = program.with_args(agent.unit_args(&UnitArgs {
        tool_ids: &tool_ids,
        system_prompt: &system_prompt,
        model: launch.model.as_deref(),
        max_turns: launch.step_budget,
        max_budget_usd: launch.options.max_budget_usd,
        partial_messages: *launch.options.ingest.partial_messages,
        session: launch.resume().map_or(
            SessionChoice::New(&launch.new_session),
            SessionChoice::Resume,
        ),
    }));
    let words =
        std::iter::once(program.exe.as_os_str()).chain(args.iter().map(OsString::as_os_str));
    started.argv = command_line::argv_to_strings(words);
    let mut environment =
        agent_env::unit_environment(environment, &launch.options.pass_env, private.path());
    environment.set_traceparent(launch.context.traceparent.as_deref());
    started.env_inherited = environment.inherited();
    started.env_set = environment.set;
    started.env_stripped = environment.stripped;
    started.env_passed = environment.passed;

    let order = SpawnRequest {
        exe: program.exe.clone(),
        args,
        cwd: cwd.clone(),
        env: environment.vars,
        stdin: true,
    };
    let not_started =
        |error| AttemptStartError::Start(StartError::from_io_error(&program.exe, cwd, &error));
    let child = process::spawn(order).await.map_err(not_started)?;
    started.pid = Some(child.pid());
    Ok(StartedProcess {
        child,
        tool_ids,
        private_dir: private,
    })
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}
