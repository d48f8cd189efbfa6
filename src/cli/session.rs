//! `session`: one plain Claude Code session, recorded and shown like a unit.

#![expect(
    clippy::disallowed_methods,
    reason = "the user's directory for worktrees, and whether a directory is a repository"
)]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use uuid::Uuid;

use super::{
    args::{GlobalArgs, SessionArgs, SessionProfile, Ui},
    doctor,
    exit::{CliError, Exit},
    launch::{self, LiveClient, TapeLocation},
    otel, output, playback_output, policy, runs, settings,
};
use ingestdeck_agent::{
    claude::version::FIRST_PROMPT_SNAPSHOT,
    session::{ClaudeSessionArgs, launch_args, resume_line},
};
use ingestdeck_core::{
    config::Config,
    units::{call_policy::CallPolicy, failure_tally::MCP_TOOL_PREFIX},
};
use ingestdeck_engine::session_run::{self, ConversationRequest, SessionRequest};
use ingestdeck_ingest::{
    git::{Git, GitError},
    standard_tools::{StandardTools, is_standard_tool},
};
use ingestdeck_os::user_dirs::UserDirs;

/// Runs a session.
///
/// # Errors
/// If the prompt cannot be sent, there is no `claude`, or the session cannot be recorded.
pub(crate) fn session(global: &GlobalArgs, args: &SessionArgs) -> Result<Exit, CliError> {
    let config = settings::load(global)?;
    let prompt = args.prompt.join(" ");
    launch_args::choose_delivery(&prompt)
        .map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    let mut flags = session_args(&config, args);
    let runs = runs::resolve_store(global)?;
    let exe = launch::find_claude(global)?;
    let environment =
        launch_args::session_environment(std::env::vars_os(), *config.claude.use_api_billing);
    let release = doctor::check_release(&exe, environment)?;
    flags.has_prompt_snapshot = release.is_some_and(|release| release >= FIRST_PROMPT_SNAPSHOT);
    let mut cwd = std::env::current_dir().map_err(CliError::internal)?;
    let policy = policy::call_policy(&config, &cwd)?;
    let is_conversation =
        playback_output::resolve_ui(global.ui) == Ui::Tui || args.profile == SessionProfile::Agent;
    let has_rules = !policy.deny.is_empty() || !policy.hold.is_empty();
    if !is_conversation && has_rules {
        return Err(
            CliError::usage("the rules of [policy] cannot be applied to this session")
                .with_help("run it on a terminal, or with `--profile agent`"),
        );
    }
    if args.worktree {
        cwd = new_worktree(&cwd)?;
        let place = cwd.display();
        playback_output::print_stderr(&format!(
            "ingestdeck: working in {place}; remove it with `git worktree remove {place}`"
        ));
    }
    let client = LiveClient::new(global, &config, TapeLocation::PathOnly, true)?;
    let ui = playback_output::resolve_ui(global.ui);
    let (is_interactive, trace) = (client.is_interactive(), otel::trace_options(&config)?);
    let conversation = is_conversation
        .then(|| conversation(&config, args.profile, &cwd, policy))
        .transpose()?;
    let request = SessionRequest {
        exe,
        cwd,
        prompt,
        args: flags,
        runs,
        is_interactive,
        trace,
        conversation,
    };
    let (outcome, resumable) =
        session_run::run(request, &config, async |run| client.attend(run).await)?;
    let outcome = outcome?;
    if let Some(session) = &resumable
        && !matches!(ui, Ui::Json | Ui::None)
    {
        let written = writeln!(output::stdout(), "{}", resume_line(session));
        // A closed terminal cannot show the resume line; the exit code names the signal.
        if !matches!(outcome.exit, Exit::Signal(_)) {
            written.map_err(|error| playback_output::stdout_failed(&error))?;
        }
    }
    Ok(outcome.summary.session_exit(outcome.exit))
}

fn session_args(config: &Config, args: &SessionArgs) -> ClaudeSessionArgs {
    let of_profile = match args.profile {
        SessionProfile::Claude => ClaudeSessionArgs {
            model: config.claude.model.value.clone(),
            allowed_tools: config.claude.allowed_tools.value.clone(),
            bypass_permissions: *config.claude.dangerously_skip_permissions,
            ..ClaudeSessionArgs::default()
        },
        SessionProfile::Agent => ClaudeSessionArgs {
            model: config.agent.model.value.clone(),
            allowed_tools: config
                .agent
                .allowed_tools
                .iter()
                .map(|name| tool_id(name))
                .collect(),
            offered_tools: Some(builtin_tools(&config.agent.allowed_tools)),
            max_turns: Some(*config.agent.max_turns),
            system_prompt: config.agent.system_prompt.value.clone(),
            ..ClaudeSessionArgs::default()
        },
    };
    ClaudeSessionArgs {
        resume: args.resume.clone(),
        fork: args.fork_session,
        model: args.model.clone().or(of_profile.model),
        ..of_profile
    }
}

/// Creates a worktree of the repository around `dir` on a new branch, and returns its directory.
/// It is kept after the session.
fn new_worktree(dir: &Path) -> Result<PathBuf, CliError> {
    let no_repository =
        || CliError::usage("--worktree needs a git repository around the current directory");
    let top = dir
        .ancestors()
        .find(|dir| dir.join(".git").exists())
        .ok_or_else(no_repository)?;
    let failed = |error: GitError| CliError::from_error(Exit::Usage, &error);
    let parent = UserDirs::from_environment().worktrees().ok_or_else(|| {
        CliError::usage("--worktree needs a home directory").with_help("set HOME")
    })?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&parent)
        .map_err(CliError::internal)?;
    let id = Uuid::new_v4().simple().to_string();
    let id = id.get(..8).unwrap_or(&id);
    let name = top.file_name().map_or_else(
        || "session".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let path = parent.join(format!("{name}-{id}"));
    let (branch, place) = (
        format!("ingestdeck/session-{id}"),
        path.to_string_lossy().into_owned(),
    );
    let git = Git::open(top).map_err(failed)?;
    git.run(&[
        "worktree", "add", "--quiet", "-b", &branch, "--", &place, "HEAD",
    ])
    .map_err(failed)?;
    Ok(path)
}

/// The id of a tool in a list of the settings: the standard tools are ours.
fn tool_id(name: &str) -> String {
    if is_standard_tool(name) {
        format!("{MCP_TOOL_PREFIX}{name}")
    } else {
        name.to_owned()
    }
}

/// The names of Claude Code's own tools in a list such as `Bash(git *), read_file`.
fn builtin_tools(names: &[String]) -> Vec<String> {
    let builtin = names.iter().filter(|name| !is_standard_tool(name));
    builtin
        .map(|name| name.split('(').next().unwrap_or(name).to_owned())
        .collect()
}

/// The tools and rules of a session in `cwd`.
fn conversation(
    config: &Config,
    profile: SessionProfile,
    cwd: &Path,
    policy: CallPolicy,
) -> Result<ConversationRequest, CliError> {
    let is_agent = profile == SessionProfile::Agent;
    let names = if is_agent {
        config.agent.allowed_tools.value.as_slice()
    } else {
        &[]
    };
    let tools = StandardTools::new(cwd, names).map_err(|error| {
        CliError::usage("cannot use the current directory")
            .with_cause(error)
            .with_help("change to an existing directory")
    })?;
    let policy = CallPolicy {
        allowed_tools: is_agent.then(|| names.to_vec()),
        hold_dangerous: true,
        ..policy
    };
    Ok(ConversationRequest {
        tools: Arc::new(tools),
        policy,
    })
}
