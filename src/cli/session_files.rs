//! Lists the session files of Claude Code and the other records in a directory. [`super::session_watch`] shows one that is being written.

use std::{io::Write as _, path::Path, time::SystemTime};

use jiff::Timestamp;
use serde_json::json;

use super::{
    args::{GlobalArgs, Ui},
    exit::{CliError, Exit},
    output, playback_output,
};
use ingestdeck_core::{
    run::{RunOutcome, Timeline, spending::run_cost, state::UnitStatus},
    tape::Header,
    text::{self, commands::shell_quote, dollars, pluralize},
};
use ingestdeck_records::replay::{
    FileSource, OpenError, SessionFile,
    claude_sessions::{self, LeftOutFile},
};

/// Maximum number of sessions in a list.
pub(super) const MAX_LISTED: usize = 1000;
/// Maximum number of left out files that are printed.
const MAX_LEFT_OUT: usize = 100;
/// Maximum number of directories that are named if only these have records.
const MAX_NAMED_FOLDERS: usize = 5;
/// Maximum size of the tapes of a list that are read, together.
const MAX_TAPE_BYTES: u64 = 32 << 20;
/// Maximum width of a title in a list, in columns.
const MAX_TITLE_WIDTH: usize = 100;

/// The records in a directory, newest first.
///
/// # Errors
/// If it cannot be read or contains no record.
pub(super) fn list_directory(directory: &Path) -> Result<claude_sessions::SessionList, CliError> {
    let name = directory.display().to_string();
    let found = claude_sessions::records_in(directory, MAX_LISTED);
    let mut found = found
        .map_err(|error| CliError::failed(format!("cannot read {name}")).with_cause(&error))?;
    if !found.files.is_empty() {
        read_tapes(&mut found.files);
        return Ok(found);
    }
    let refusal = CliError::from(OpenError::WithoutRecord { name });
    let folders: Vec<String> = found
        .folders
        .iter()
        .take(MAX_NAMED_FOLDERS)
        .map(|folder| {
            let path = shell_quote(&folder.to_string_lossy());
            format!("`ingestdeck replay {path}`")
        })
        .collect();
    let more = match found.folders.len().saturating_sub(MAX_NAMED_FOLDERS) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Err(match folders.is_empty() {
        true => refusal,
        false => refusal.with_help(format!(
            "records are in its directories: {}{more}",
            folders.join(", ")
        )),
    })
}

/// Adds to tapes how their runs ended and what they cost. Those that exceed the limit together are left as they are.
fn read_tapes(files: &mut [SessionFile]) {
    let mut left = MAX_TAPE_BYTES;
    for file in files.iter_mut().filter(|file| file.is_tape()) {
        let Some(rest) = left.checked_sub(file.bytes) else {
            continue;
        };
        left = rest;
        let Ok(source) = FileSource::open(&file.path) else {
            continue;
        };
        let mut timeline = Timeline::new_forward_only(Box::new(source));
        // The error is shown when the tape is opened.
        if timeline.seek(u64::MAX).is_ok() {
            add_run(file, &timeline);
        }
    }
}

fn add_run(file: &mut SessionFile, timeline: &Timeline) {
    let state = &timeline.view().state;
    let failed = state.units.iter();
    let failed = failed.filter(|unit| unit.status == UnitStatus::Failed);
    let failed = failed.count();
    let outcome = match RunOutcome::from_state(state, false) {
        // The run may be active.
        RunOutcome::Interrupted => "no end recorded",
        outcome => outcome.text(),
    };
    let mut title = match &timeline.source().info().header {
        Some(Header { run, project, .. }) => {
            let project = project.as_deref().unwrap_or("ingest");
            format!("{project} run {}: {outcome}", run.short())
        }
        None => outcome.to_owned(),
    };
    title.push_str(&format!(", {}", pluralize(state.units.len(), "unit")));
    if failed > 0 {
        title.push_str(&format!(", {failed} failed"));
    }
    (file.title, file.cost_usd, file.has_failed) = (Some(title), run_cost(state), failed > 0);
}

/// Prints the records in a directory, and on stderr what is left out.
///
/// # Errors
/// If it contains no record, or stdout cannot be written.
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
        let omitted = pluralize(list.omitted, "older record");
        playback_output::print_stderr(&format!(
            "ingestdeck: {omitted} of {} left out",
            directory.display()
        ));
    }
    if !list.left_out.is_empty() {
        let count = list.left_out.len();
        playback_output::print_stderr(&format!("ingestdeck: {count} left out:"));
        for file in list.left_out.iter().take(MAX_LEFT_OUT) {
            playback_output::print_stderr(&format!("  {}", left_out(file)));
        }
        if let Some(more) = list.left_out.len().checked_sub(MAX_LEFT_OUT + 1) {
            playback_output::print_stderr(&format!("  and {} more", more + 1));
        }
    }
    Ok(Exit::Ok)
}

/// A file that is left out, with the reason, on one row.
pub(super) fn left_out(file: &LeftOutFile) -> String {
    let name = file.path.file_name().unwrap_or(file.path.as_os_str());
    let name = text::printable(&name.to_string_lossy(), MAX_TITLE_WIDTH).into_owned();
    format!("{name}: {}", text::one_row(&file.reason, MAX_TITLE_WIDTH))
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
        "format": file.format,
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
    if file.has_failed {
        session["failed"] = json!(true);
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
    let failed = if file.has_failed { "✗ " } else { "" };
    format!(
        "{at:<20}  {:>8}  {}{state}  {failed}{}",
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
    let title = file
        .title
        .as_ref()
        .map(|title| text::printable(&text::one_row(title, most), most).into_owned());
    if file.is_session() {
        return fork + title.as_deref().unwrap_or("no prompt found");
    }
    match title {
        Some(title) => format!("{title} ({})", file.format),
        None => file.format.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use ingestdeck_core::diagnostic::Diagnostic as _;

    #[test]
    fn tapes_are_listed_with_outcome_units_and_cost() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("runs");
        fs::create_dir(&folder).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        for (from, to) in [
            ("tapes/demo.jsonl", "demo.jsonl"),
            ("captures/api_401.jsonl", "failed.jsonl"),
        ] {
            fs::copy(fixtures.join(from), folder.join(to)).unwrap();
        }
        let list = list_directory(&folder).unwrap();
        let is_tape = |file: &&SessionFile| file.is_tape();
        let tape = list.files.iter().find(is_tape).unwrap();
        let line = to_line(tape);
        assert!(
            line.ends_with("  lantern run 9e05f5: done, 8 units (tape)"),
            "{line}"
        );
        let capture = list.files.iter().find(|file| !is_tape(file)).unwrap();
        assert!(to_line(capture).contains("  failed  ✗ "));
        assert!(tape.cost_usd.is_some());
        let refusal = list_directory(directory.path()).unwrap_err().to_line();
        assert!(
            refusal.contains("records are in its directories: `ingestdeck replay ")
                && refusal.contains("runs`"),
            "{refusal}"
        );
    }
}
