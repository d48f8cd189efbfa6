//! `session`: one plain Claude Code session, recorded and shown like a unit.

use std::io::Write as _;

use super::{
    args::{GlobalArgs, SessionArgs, SessionProfile, Ui},
    doctor,
    exit::{CliError, Exit},
    launch::{self, LiveClient, TapeLocation},
    otel, output, playback_output, runs, settings,
};
use crate::{
    agent::session::{ClaudeSessionArgs, launch_args, resume_line},
    config::Config,
    engine::session_run::{self, SessionRequest},
};

/// Runs a session.
///
/// # Errors
/// If the prompt cannot be sent, there is no `claude`, or the session cannot be recorded.
pub(crate) fn session(global: &GlobalArgs, args: &SessionArgs) -> Result<Exit, CliError> {
    let config = settings::load(global)?;
    let prompt = args.prompt.join(" ");
    launch_args::choose_delivery(&prompt).map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    let flags = session_args(&config, args);
    let runs = runs::resolve_store(global)?;
    let exe = launch::find_claude(global)?;
    doctor::check_release(&exe, launch_args::session_environment(std::env::vars_os(), *config.claude.use_api_billing))?;
    let cwd = std::env::current_dir().map_err(CliError::internal)?;
    // Calls of a plain session do not wait for approval.
    let client = LiveClient::new(global, &config, TapeLocation::PathOnly, false)?;
    let ui = playback_output::resolve_ui(global.ui);
    let (is_interactive, trace) = (client.is_interactive(), otel::trace_options(&config)?);
    let request = SessionRequest { exe, cwd, prompt, args: flags, runs, is_interactive, trace };
    let (outcome, resumable) = session_run::run(request, &config, async |run| client.attend(run).await)?;
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
    Ok(outcome.exit)
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
            model: Some(config.agent.model.value.clone()),
            allowed_tools: config.agent.allowed_tools.value.clone(),
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
