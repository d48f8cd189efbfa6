//! `watch`: shows a run of another process while it runs. It only reads: the other process is not affected.

#![expect(
    clippy::disallowed_methods,
    reason = "the length of a tape that was resolved"
)]

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use tokio::sync::{oneshot, watch};

use super::{
    args::{GlobalArgs, Ui, WatchArgs},
    background_sessions, bookmarks,
    exit::{CliError, Exit},
    output, playback_output,
    playback_output::EventSink,
    runs, screen,
    session_watch::{self, RunningSession},
    settings,
    summary::{NextSteps, RunSummary},
    table_memory,
};
use ingestdeck_core::run::{PollStatus, RunState, Timeline};
use ingestdeck_engine::{launch::runtime, recorded_tapes, resume};
use ingestdeck_records::{
    replay::file::FollowHandle,
    store::{RecordedRun, RunStatus, RunStore},
};
use ingestdeck_tui::LiveHandle;

/// Bytes that are folded before other tasks get a turn.
const SLICE: usize = 1 << 20;

/// Poll interval of the tape: the writing process sends no notification.
pub(super) const TAPE_POLL_INTERVAL: Duration = Duration::from_millis(150);

/// How often the program checks whether the process is alive.
const LIVENESS_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The message about a record without an end whose writer is gone.
pub(super) const WRITER_GONE: &str =
    "writer gone: the process of this run has ended, and its record breaks off here";

/// Follows a run until it ends.
///
/// # Errors
/// If the run does not exist, or its tape cannot be read.
pub(crate) fn watch(global: &GlobalArgs, args: &WatchArgs) -> Result<Exit, CliError> {
    let path = Path::new(&args.run);
    // A file in an untrusted project must not hide a run, such as one named `latest`.
    let looks_like_a_path = args.run.contains(['/', '.']);
    if looks_like_a_path && path.is_file() {
        return watch_session(global, path, &args.run);
    }
    let resolved = runs::resolve_store(global).and_then(|runs| {
        let found = runs.resolve(&args.run)?;
        Ok((runs, found))
    });
    if let Err(error) = &resolved
        && error.exit == Exit::NotFound
        && let Some((file, _)) = background_sessions::find_active(&args.run)
    {
        return watch_session(global, &file, &file.to_string_lossy());
    }
    let (runs, found) = match resolved {
        Err(error) if error.exit == Exit::NotFound && path.is_file() => {
            return watch_session(global, path, &args.run);
        }
        Err(error) if error.exit == Exit::NotFound && looks_like_a_path => {
            return Err(error.prefixed(&format!("there is no file {}, and ", args.run)));
        }
        resolved => resolved?,
    };
    let (source, finish) = recorded_tapes::follow(&runs, &found)?;
    let writer = WatchedRun::new(runs, found);
    let ui = playback_output::resolve_ui(global.ui);
    let source = playback_output::for_ui(source, ui);
    match ui {
        Ui::Tui => watch_on_screen(global, &writer, Timeline::new(Box::new(source)), finish),
        ui => watch_plain(
            global,
            ui,
            &writer,
            Timeline::new_forward_only(Box::new(source)),
            &finish,
        ),
    }
}

/// Follows a session of Claude Code until its process ends.
fn watch_session(global: &GlobalArgs, path: &Path, what: &str) -> Result<Exit, CliError> {
    let Some(session) = RunningSession::open(what)? else {
        let shown = path.display();
        let why =
            "it is not a session file of a running Claude Code process, or is too large to follow";
        return Err(
            CliError::usage(format!("cannot watch {shown}: {why}")).with_help(format!(
                "`ingestdeck replay {shown}` shows what it contains"
            )),
        );
    };
    match playback_output::resolve_ui(global.ui) {
        Ui::Tui => session_watch::show(global, what, session, |_| {}),
        ui => session_watch::print(global, ui, session),
    }
}

/// The run that another process writes.
#[derive(Clone, Debug)]
pub(super) struct WatchedRun {
    runs: RunStore,
    found: RecordedRun,
}

impl WatchedRun {
    pub(super) fn new(runs: RunStore, found: RecordedRun) -> Self {
        Self { runs, found }
    }

    /// An unreadable lock counts as alive, because it does not prove that the process ended.
    pub(super) fn is_alive(&self) -> bool {
        self.runs.is_alive(self.found.id).unwrap_or(true)
    }

    fn was_interrupted(&self) -> bool {
        self.runs
            .status(&self.found)
            .is_ok_and(|standing| standing == RunStatus::Interrupted)
    }

    /// Wakes `grown` whenever the tape has grown. Returns once the writer is gone.
    async fn poll_tape(
        self,
        finish: FollowHandle,
        grown: watch::Sender<u64>,
        gone: oneshot::Sender<String>,
    ) {
        let mut asked = Instant::now();
        loop {
            tokio::time::sleep(TAPE_POLL_INTERVAL).await;
            let length = fs::metadata(&self.found.tape).map_or(0, |metadata| metadata.len());
            grown.send_if_modified(|known| std::mem::replace(known, length) != length);
            if asked.elapsed() < LIVENESS_POLL_INTERVAL {
                continue;
            }
            asked = Instant::now();
            if !self.is_alive() {
                finish.finish();
                if self.was_interrupted() {
                    // The receiver is gone if the user left the screen.
                    let _ = gone.send(WRITER_GONE.to_owned());
                }
                return;
            }
        }
    }
}

fn watch_on_screen(
    global: &GlobalArgs,
    writer: &WatchedRun,
    timeline: Timeline,
    finish: FollowHandle,
) -> Result<Exit, CliError> {
    let config = settings::load(global)?;
    let mut options = settings::screen_options(global, &config)?;
    bookmarks::attach_to_run(&mut options, &writer.runs, writer.found.id);
    let is_ascii = options.theme.is_ascii();
    let runtime = runtime(1)?;
    let left = runtime.block_on(async {
        let ((grown, changed), (gone, broken)) = (watch::channel(0), oneshot::channel());
        tokio::spawn(writer.clone().poll_tape(finish, grown, gone));
        table_memory::run(
            timeline,
            Some(LiveHandle::watching(changed, broken)),
            options,
        )
        .await
    });
    // The reader of a closed terminal may block forever.
    runtime.shutdown_background();
    let left = left.map_err(|error| screen::terminal_error(&error))?;
    let (summary, timeline) = screen::print_summary(is_ascii, left.timeline)?;
    // Leaving an active run prints nothing about it.
    let is_active = timeline.view().state.ended.is_none() && writer.is_alive();
    Ok(screen::exit_after(
        &left.reason,
        if is_active { Exit::Ok } else { summary.exit() },
    ))
}

fn watch_plain(
    global: &GlobalArgs,
    ui: Ui,
    writer: &WatchedRun,
    mut timeline: Timeline,
    finish: &FollowHandle,
) -> Result<Exit, CliError> {
    let origin = timeline.source().info().clone();
    let mut sink = EventSink::new(ui, global, &origin);
    loop {
        let progress = timeline.advance(SLICE, &mut |emitted| sink.write_event(&emitted))?;
        match progress {
            _ if sink.is_closed() => break,
            PollStatus::More => {}
            PollStatus::End => break,
            PollStatus::Waiting => {
                playback_output::emit_silence(&mut timeline, &mut sink);
                sink.flush();
                // An ended run may be continued on its screen, but a watcher does not wait for that.
                if timeline.view().state.ended.is_some() || !writer.is_alive() {
                    finish.finish();
                } else {
                    std::thread::sleep(TAPE_POLL_INTERVAL);
                }
            }
        }
    }
    let state = &timeline.view().state;
    let summary = RunSummary::from_state(state);
    sink.finish(&origin, state, false)?;
    if state.ended.is_none() {
        playback_output::print_stderr(&format!(
            "ingestdeck: run {}: {WRITER_GONE}",
            writer.found.id.short()
        ));
    }
    if ui == Ui::Lines {
        print_next_steps(global, writer, state, &summary);
    }
    Ok(summary.exit())
}

/// Prints advice. The exit code must not depend on whether it can be printed.
fn print_next_steps(
    global: &GlobalArgs,
    writer: &WatchedRun,
    state: &RunState,
    summary: &RunSummary,
) {
    let next = NextSteps::Project {
        tape: &writer.found.tape,
        flag: global.project_dir.as_deref(),
        run: &writer.found.id.short(),
        retry: resume::not_resumable_reason(state).is_none(),
    };
    let _ = output::stdout().write_linked(&summary.next_steps(next), &writer.found.tape);
}
