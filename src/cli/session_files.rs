//! Lists the session files of Claude Code in a directory. [`super::session_watch`] shows one that is being written.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use jiff::Timestamp;
use serde_json::json;

use super::{
    args::{GlobalArgs, Ui},
    exit::{CliError, Exit},
    output, playback_output,
};
use ingestdeck_core::text::{self, dollars, pluralize};
use ingestdeck_records::replay::{OpenError, SessionFile, claude_sessions};

/// Maximum number of sessions in a list.
pub(super) const MAX_LISTED: usize = 1000;
/// Maximum width of a title in a list, in columns.
const MAX_TITLE_WIDTH: usize = 100;

/// The sessions in a directory, newest first.
///
/// # Errors
/// If it cannot be read or contains no session file.
pub(super) fn list_directory(directory: &Path) -> Result<claude_sessions::SessionList, CliError> {
    let name = directory.display().to_string();
    let found = claude_sessions::sessions_in(directory, MAX_LISTED);
    let found = found
        .map_err(|error| CliError::failed(format!("cannot read {name}")).with_cause(&error))?;
    found.ok_or_else(|| OpenError::Directory { name }.into())
}

/// The directory of Claude Code; `None` without a home.
pub(super) fn claude_dir() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".claude"));
    std::env::var_os("CLAUDE_CONFIG_DIR")
        .map(PathBuf::from)
        .or(home)
}

/// Prints the sessions in a directory.
///
/// # Errors
/// If it contains no session file, or stdout cannot be written.
pub(super) fn print_list(global: &GlobalArgs, ui: Ui, directory: &Path) -> Result<Exit, CliError> {
    let list = list_directory(directory)?;
    let mut out = output::stdout_for(global.ui);
    for file in &list.files {
        let printed = match ui {
            Ui::Json => writeln!(out, "{}", to_json(file)),
            Ui::None => Ok(()),
            Ui::Lines | Ui::Auto | Ui::Tui => writeln!(out, "{}", to_line(file)),
        };
        printed.map_err(|error| playback_output::stdout_failed(&error))?;
    }
    if list.omitted > 0 {
        let omitted = pluralize(list.omitted, "older session");
        playback_output::print_stderr(&format!(
            "ingestdeck: {omitted} of {} left out",
            directory.display()
        ));
    }
    Ok(Exit::Ok)
}

fn modified_at(file: &SessionFile) -> Option<Timestamp> {
    let seconds = file
        .modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?
        .as_secs();
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

fn session_id(file: &SessionFile) -> String {
    file.path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn to_json(file: &SessionFile) -> serde_json::Value {
    let mut session = json!({
        "session": session_id(file),
        "path": file.path.to_string_lossy(),
        "title": file.title,
        "modified_at": modified_at(file).map(|at| at.to_string()),
        "cost_usd": file.cost_usd,
        "bytes": file.bytes,
        "running": file.active.is_some(),
    });
    if let Some(active) = &file.active {
        session["state"] = json!(active.status.as_str());
        session["needs"] = json!(active.needs);
        session["background"] = json!(active.background);
    }
    if let Some(parent) = &file.fork_of {
        session["fork_of"] = json!(parent);
    }
    session
}

fn to_line(file: &SessionFile) -> String {
    let at = modified_at(file).map_or_else(|| "?".to_owned(), |at| at.to_string());
    let state = match &file.active {
        Some(active) if active.background.is_some() => {
            format!("  {} (background)", active.status.label())
        }
        Some(active) => format!("  {}", active.status.label()),
        None => String::new(),
    };
    format!(
        "{at:<20}  {:>8}  {}{state}  {}",
        dollars(file.cost_usd),
        text::printable(&session_id(file), 36),
        title(file, MAX_TITLE_WIDTH)
    )
}

/// The title of a session on one row.
pub(super) fn title(file: &SessionFile, most: usize) -> String {
    let fork = match &file.fork_of {
        Some(parent) => format!("fork of {}: ", text::printable(parent, 8)),
        None => String::new(),
    };
    let title = match &file.title {
        Some(title) => text::printable(&text::one_row(title, most), most).into_owned(),
        None => "no prompt found".to_owned(),
    };
    fork + &title
}
