//! The background sessions of Claude Code (`claude --bg`): finding one by its id, and the commands of Claude Code for it.

use std::{path::PathBuf, process::Command};

use super::{
    args::GlobalArgs,
    exit::{CliError, Exit},
    launch::find_claude,
};
use ingestdeck_os::user_dirs;
use ingestdeck_records::replay::{ActiveSession, claude_sessions};

/// The file of a running session with this id, or with this id of a background session.
pub(super) fn find_active(id: &str) -> Option<(PathBuf, ActiveSession)> {
    claude_sessions::find_active(&user_dirs::claude_dir()?, id)
}

/// Runs `claude VERB ID` in this terminal for a background session; `None` if no running one has this id.
///
/// # Errors
/// If Claude Code cannot be started or reports a failure.
pub(super) fn run_claude(
    global: &GlobalArgs,
    verb: &str,
    id: &str,
) -> Option<Result<Exit, CliError>> {
    let (_, session) = find_active(id)?;
    let id = session.background?;
    let run = || {
        let claude = find_claude(global)?;
        let failed = || CliError::failed(format!("`claude {verb} {id}` failed"));
        let status = Command::new(claude).args([verb, &id]).status();
        match status {
            Ok(status) if status.success() => Ok(Exit::Ok),
            // Claude Code has printed why.
            Ok(_) => Err(failed()),
            Err(error) => Err(failed().with_cause(&error)),
        }
    };
    Some(run())
}
