//! Starting the process of an attempt: what it is given, and what can go wrong before it says a word.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::{
    scoped_dir::is_out_of_files,
    tape::note::AttemptStarted,
    units::verdict::{PROMPT_LIMIT, StartFault},
};

use super::{
    super::{
        argv::{self, Session, UnitArgs},
        env, mcp,
        not_started::NotStarted,
        private_dir::{self, PrivateDir},
        process::{self, Child, Order},
    },
    UnitLaunch,
};

/// A process that runs and has not said anything yet.
pub(super) struct Begun {
    pub(super) child: Child,
    /// Full ids of its tools.
    pub(super) tool_ids: Vec<String>,
    /// Deleted when the attempt is over.
    pub(super) private: PrivateDir,
}

/// Why there is none.
pub(super) enum NotBegun {
    /// The prompt is beyond the limit; the facts say so by themselves.
    TooLarge,
    /// For one reason or another.
    Failed(NotStarted),
}

impl NotBegun {
    fn failed(why: impl ToString) -> Self {
        Self::Failed(NotStarted { fault: StartFault::Other, sentence: why.to_string() })
    }

    fn by(error: &io::Error, why: String) -> Self {
        let fault = if is_out_of_files(error) { StartFault::OpenFiles } else { StartFault::Other };
        Self::Failed(NotStarted { fault, sentence: why })
    }
}

/// Starts the process, and fills in `started` as far as it comes.
pub(super) async fn begin(
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
    let private = PrivateDir::new(private_dir::ATTEMPT)
        .map_err(|error| NotBegun::by(&error, format!("no private directory for temporary files: {error}")))?;
    let system_prompt = private.path().join("system.md");
    write_private(&system_prompt, &launch.system_prompt)
        .map_err(|error| NotBegun::by(&error, format!("cannot write {}: {error}", system_prompt.display())))?;

    let mut args = launch.program.prefix.clone();
    args.extend(argv::unit(&UnitArgs {
        tool_ids: &tool_ids,
        system_prompt: &system_prompt,
        model: launch.model.as_deref(),
        max_turns: launch.step_budget,
        max_budget_usd: launch.max_budget_usd,
        partial_messages: launch.partial_messages,
        session: launch.resume().map_or(Session::New(&launch.new_session), Session::Resume),
    }));
    let exe = launch.program.exe.as_os_str();
    started.argv = argv::shown(std::iter::once(exe).chain(args.iter().map(OsString::as_os_str)));
    let environment = env::unit(environment, &launch.pass_env, private.path());
    started.env_inherited = environment.inherited();
    started.env_set = environment.set;
    started.env_stripped = environment.stripped;
    started.env_passed = environment.passed;

    let order =
        Order { exe: launch.program.exe.clone(), args, cwd: launch.cwd.clone(), env: environment.vars, stdin: true };
    let not_started = |error| NotBegun::Failed(NotStarted::explain(&launch.program.exe, &launch.cwd, &error));
    let child = process::spawn(order).await.map_err(not_started)?;
    started.pid = Some(child.pid());
    Ok(Begun { child, tool_ids, private })
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
