//! Session files of Claude Code for `replay` and `watch`: lists those of a directory, and follows one that is being
//! written.

use std::{io::Write as _, path::Path, time::SystemTime};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::{
    args::{GlobalArgs, Ui},
    exit::{CliError, Exit},
    output, playback_output,
    playback_output::EventSink,
    replay, screen,
    watch::TAPE_POLL_INTERVAL,
};
use crate::{
    replay::{FileSource, OpenError, SessionFile, SessionFollower, SessionProcess, claude_sessions},
    run::{PollStatus, Timeline},
    text::{self, dollars, pluralize},
    tui::LiveHandle,
};

/// Maximum number of sessions in a list.
pub(super) const MAX_LISTED: usize = 1000;
/// Maximum width of a title in a list, in columns.
const MAX_TITLE_WIDTH: usize = 100;
/// Bytes that are folded before output is flushed.
const SLICE: usize = 1 << 20;
/// Number of looks at the file between two looks at the process.
const POLLS_PER_LIVENESS_CHECK: u32 = 7;

/// The sessions in a directory, newest first.
///
/// # Errors
/// If it cannot be read or contains no session file.
pub(super) fn list_directory(directory: &Path) -> Result<claude_sessions::SessionList, CliError> {
    let name = directory.display().to_string();
    let found = claude_sessions::sessions_in(directory, MAX_LISTED);
    let found = found.map_err(|error| CliError::failed(format!("cannot read {name}")).with_cause(&error))?;
    found.ok_or_else(|| {
        let error = OpenError::Directory { name };
        CliError::from_error(Exit::NotFound, &error)
    })
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
        playback_output::print_stderr(&format!("ingestdeck: {omitted} of {} left out", directory.display()));
    }
    Ok(Exit::Ok)
}

fn modified_at(file: &SessionFile) -> Option<Timestamp> {
    let seconds = file.modified.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

fn session_id(file: &SessionFile) -> String {
    file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn to_json(file: &SessionFile) -> serde_json::Value {
    json!({
        "session": session_id(file),
        "path": file.path.to_string_lossy(),
        "title": file.title,
        "modified_at": modified_at(file).map(|at| at.to_string()),
        "cost_usd": file.cost_usd,
        "bytes": file.bytes,
        "running": file.is_running,
    })
}

fn to_line(file: &SessionFile) -> String {
    let at = modified_at(file).map_or_else(|| "?".to_owned(), |at| at.to_string());
    let state = if file.is_running { "  running" } else { "" };
    format!(
        "{at:<20}  {:>8}  {}{state}  {}",
        dollars(file.cost_usd),
        text::printable(&session_id(file), 36),
        title(file, MAX_TITLE_WIDTH)
    )
}

/// The title of a session on one row.
pub(super) fn title(file: &SessionFile, most: usize) -> String {
    match &file.title {
        Some(title) => text::printable(&text::one_row(title, most), most).into_owned(),
        None => "no prompt found".to_owned(),
    }
}

/// A session whose process runs now, opened so that it can be followed.
#[derive(Debug)]
pub(super) struct RunningSession {
    pub(super) source: FileSource,
    follower: SessionFollower,
    process: SessionProcess,
}

impl RunningSession {
    /// Opens the session file that the user named; `None` unless it is one and its process runs.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn open(what: &str) -> Result<Option<Self>, CliError> {
        let path = Path::new(what);
        let process = SessionProcess::of_file(path).filter(SessionProcess::is_alive);
        let Some(process) = process.filter(|_| what != "-") else { return Ok(None) };
        let followed = FileSource::follow_session(path)?;
        Ok(followed.map(|(source, follower)| Self { source, follower, process }))
    }
}

/// Shows a running session on the screen until the user leaves.
///
/// # Errors
/// If the terminal cannot be used.
pub(super) fn show(
    global: &GlobalArgs,
    what: &str,
    session: RunningSession,
    options: impl FnOnce(&mut crate::tui::Options),
) -> Result<Exit, CliError> {
    let RunningSession { source, follower, process } = session;
    let timeline = Timeline::new(Box::new(replay::for_ui(source, Ui::Tui)));
    let ((grown, changed), (gone, broken)) = (watch::channel(0), oneshot::channel::<String>());
    let polling = async move {
        // The sender ends with this task, so the screen knows that the session will not grow any further.
        let _gone = gone;
        for polls in 1_u32.. {
            tokio::time::sleep(TAPE_POLL_INTERVAL).await;
            let length = follower.written();
            grown.send_if_modified(|known| std::mem::replace(known, length) != length);
            if polls.is_multiple_of(POLLS_PER_LIVENESS_CHECK) && !process.is_alive() {
                follower.finish();
                // The follower adds the last lines before the source ends.
                tokio::time::sleep(TAPE_POLL_INTERVAL * 3).await;
                grown.send_modify(|known| *known = follower.written());
                return;
            }
        }
    };
    screen::show_session(global, what, timeline, LiveHandle::watching(changed, broken), polling, options)
}

/// Prints a running session until its process ends.
///
/// # Errors
/// If the session cannot be read or the output cannot be written.
pub(super) fn print(global: &GlobalArgs, ui: Ui, session: RunningSession) -> Result<Exit, CliError> {
    let RunningSession { source, follower, process } = session;
    let mut timeline = Timeline::new_forward_only(Box::new(replay::for_ui(source, ui)));
    let origin = timeline.source().info().clone();
    let mut sink = EventSink::new(ui, global, &origin);
    loop {
        match timeline.advance(SLICE, &mut |emitted| sink.write_event(&emitted))? {
            _ if sink.is_closed() => break,
            PollStatus::More => {}
            PollStatus::End => break,
            PollStatus::Waiting => {
                sink.flush();
                if !process.is_alive() {
                    follower.finish();
                }
                std::thread::sleep(TAPE_POLL_INTERVAL);
            }
        }
    }
    sink.finish(&origin, &timeline.view().state, false)?;
    Ok(Exit::Ok)
}
