//! Shows a session of Claude Code while its process runs. It only reads: the process is not affected.

use std::{path::Path, time::Duration};

use tokio::sync::{oneshot, watch};

use super::{
    args::{GlobalArgs, Ui},
    exit::{CliError, Exit},
    playback_output::{self, EventSink},
    screen,
};
use ingestdeck_core::run::{PollStatus, Timeline};
use ingestdeck_records::replay::{FileSource, SessionFollower, SessionProcess};
use ingestdeck_tui::{self as tui, LiveHandle};

/// Bytes that are folded before output is flushed.
const SLICE: usize = 1 << 20;
/// Poll interval of the session: its process sends no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// Number of successive looks without its process after which a session is over: the file about the process may be read
/// while it is being rewritten.
const MISSES_OF_ENDED_PROCESS: u32 = 2;
/// Number of looks at the session between two looks at its process.
const POLLS_PER_LIVENESS_CHECK: u32 = 7;

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
        let Some(process) = process.filter(|_| what != "-") else {
            return Ok(None);
        };
        let followed = FileSource::follow_session(path)?;
        Ok(followed.map(|(source, follower)| Self {
            source,
            follower,
            process,
        }))
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
    options: impl FnOnce(&mut tui::Options),
) -> Result<Exit, CliError> {
    let RunningSession {
        source,
        follower,
        process,
    } = session;
    let timeline = Timeline::new(Box::new(playback_output::for_ui(source, Ui::Tui)));
    let ((grown, changed), (gone, broken)) = (watch::channel(0), oneshot::channel::<String>());
    let polling = async move {
        // The sender ends with this task, so the screen knows that the session will not grow any further.
        let _gone = gone;
        let mut misses = 0;
        for polls in 1_u32.. {
            tokio::time::sleep(POLL_INTERVAL).await;
            let length = follower.written();
            grown.send_if_modified(|known| std::mem::replace(known, length) != length);
            if polls.is_multiple_of(POLLS_PER_LIVENESS_CHECK) {
                misses = if process.is_alive() { 0 } else { misses + 1 };
            }
            if misses >= MISSES_OF_ENDED_PROCESS {
                follower.finish();
                // The follower adds the last lines before the source ends.
                tokio::time::sleep(POLL_INTERVAL * 3).await;
                grown.send_modify(|known| *known = follower.written());
                return;
            }
        }
    };
    screen::show_session(
        global,
        what,
        timeline,
        LiveHandle::watching(changed, broken),
        polling,
        options,
    )
}

/// Prints a running session until its process ends.
///
/// # Errors
/// If the session cannot be read or the output cannot be written.
pub(super) fn print(
    global: &GlobalArgs,
    ui: Ui,
    session: RunningSession,
) -> Result<Exit, CliError> {
    let RunningSession {
        source,
        follower,
        process,
    } = session;
    let mut timeline = Timeline::new_forward_only(Box::new(playback_output::for_ui(source, ui)));
    let origin = timeline.source().info().clone();
    let mut sink = EventSink::new(ui, global, &origin);
    let mut misses = 0;
    loop {
        match timeline.advance(SLICE, &mut |emitted| sink.write_event(&emitted))? {
            _ if sink.is_closed() => break,
            PollStatus::More => {}
            PollStatus::End => break,
            PollStatus::Waiting => {
                sink.flush();
                misses = if process.is_alive() { 0 } else { misses + 1 };
                if misses >= MISSES_OF_ENDED_PROCESS {
                    follower.finish();
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
    sink.finish(&origin, &timeline.view().state, false)?;
    Ok(Exit::Ok)
}
