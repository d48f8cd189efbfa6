//! Starts the process of an attempt: its inputs, and the failures before its first output.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::{
    scoped_dir::is_out_of_files,
    tape::note::AttemptStarted,
    units::verdict::{AgentStartFault, MAX_PROMPT_CHARS},
};

use super::{
    super::{
        claude::{
            agent_env,
            command_line::{self, SessionChoice, UnitArgs},
        },
        mcp,
        private_dir::{self, PrivateDir},
        process::{self, Child, SpawnRequest},
        start_error::StartError,
    },
    UnitLaunch,
};

/// A process that runs and has not written anything yet.
pub(super) struct StartedProcess {
    pub(super) child: Child,
    /// Full ids of its tools.
    pub(super) tool_ids: Vec<String>,
    /// Deleted when the attempt is over.
    pub(super) private_dir: PrivateDir,
}

/// Why the process did not start.
pub(super) enum AttemptStartError {
    /// The prompt exceeds the limit; the facts have its length.
    PromptTooLarge,
    Start(StartError),
}

impl AttemptStartError {
    fn other(why: impl ToString) -> Self {
        Self::Start(StartError { fault: AgentStartFault::Other, message: why.to_string() })
    }

    fn from_io_error(error: &io::Error, why: String) -> Self {
        let fault = if is_out_of_files(error) { AgentStartFault::OpenFiles } else { AgentStartFault::Other };
        Self::Start(StartError { fault, message: why })
    }
}

/// Starts the process, and sets the fields of `started` as it proceeds.
pub(super) async fn start_process(
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
        AttemptStartError::from_io_error(&error, format!("cannot write {}: {error}", system_prompt.display()))
    })?;

    let mut args = launch.program.prefix.clone();
    args.extend(command_line::unit_argv(&UnitArgs {
        tool_ids: &tool_ids,
        system_prompt: &system_prompt,
        model: launch.model.as_deref(),
        max_turns: launch.step_budget,
        max_budget_usd: launch.max_budget_usd,
        partial_messages: launch.partial_messages,
        session: launch.resume().map_or(SessionChoice::New(&launch.new_session), SessionChoice::Resume),
    }));
    let exe = launch.program.exe.as_os_str();
    started.argv = command_line::argv_to_strings(std::iter::once(exe).chain(args.iter().map(OsString::as_os_str)));
    let environment = agent_env::unit_environment(environment, &launch.pass_env, private.path());
    started.env_inherited = environment.inherited();
    started.env_set = environment.set;
    started.env_stripped = environment.stripped;
    started.env_passed = environment.passed;

    let order = SpawnRequest {
        exe: launch.program.exe.clone(),
        args,
        cwd: launch.cwd.clone(),
        env: environment.vars,
        stdin: true,
    };
    let not_started =
        |error| AttemptStartError::Start(StartError::from_io_error(&launch.program.exe, &launch.cwd, &error));
    let child = process::spawn(order).await.map_err(not_started)?;
    started.pid = Some(child.pid());
    Ok(StartedProcess { child, tool_ids, private_dir: private })
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
