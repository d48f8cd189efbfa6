//! The screen as a client of a run: `attach`, and the commands that start a run and show it.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{self, JoinHandle},
    time::timeout,
};

use super::{
    args::{AttachArgs, GlobalArgs, MeasuredStep, Ui},
    background_sessions, bookmarks, ctl,
    engine_process::{self, EngineProcess, EngineStart, LaunchRecord},
    exit::{CliError, Exit},
    last_demo,
    launch::{RunResult, TapeLocation, print_next_steps, report_stopping},
    output, playback_output, project, runs, screen, settings,
    signals::{self, ShutdownState, SignalListener},
    summary::RunSummary,
    table_memory,
    watch::WRITER_GONE,
};
use ingestdeck_core::{
    config::Config,
    control::{AttachRequest, DisconnectAction, RunCommand},
    run::{Timeline, state::UnitStatus},
    tape::RunId,
    text::commands,
};
use ingestdeck_engine::{
    control_socket::{
        AttachedClient, AttachmentEnd, ControlClient, ControlClientError, EngineReports, LeaveMode,
        LeaveSignal,
    },
    launch::runtime,
    recorded_tapes,
};
use ingestdeck_ingest::text_input::TextInputs;
use ingestdeck_records::{
    replay::{FileSource, file::FollowHandle},
    store::{RecordedRun, RunStatus, RunStore, runs::is_complete},
};
use ingestdeck_tui::{self as tui, EngineChannel, ExitReason, LiveHandle, TuiExit};

/// How long the engine may take to confirm that a client has detached.
const DETACH_TIMEOUT: Duration = Duration::from_secs(3);

/// How long to wait before another attempt to reach the engine.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// Capacity of the queue of commands from the user.
const COMMAND_QUEUE_CAPACITY: usize = 4096;

/// True if the command shows its run on the screen, so that its engine is another process.
pub(crate) fn is_on_screen(global: &GlobalArgs) -> bool {
    !global.is_engine && playback_output::resolve_ui(global.ui) == Ui::Tui
}

/// Attaches to an active run.
///
/// # Errors
/// If there is no such run, or its engine accepts no clients.
pub(crate) fn attach(global: &GlobalArgs, args: &AttachArgs) -> Result<Exit, CliError> {
    if playback_output::resolve_ui(global.ui) != Ui::Tui {
        return Err(CliError::usage("attaching needs the screen")
            .with_help("use a terminal, or follow the run with `ingestdeck watch --ui lines`"));
    }
    let runs = runs::resolve_store(global)?;
    let run = match &args.run {
        Some(name) => match runs.resolve(name) {
            Err(error) => {
                let in_claude = background_sessions::run_claude(global, "attach", name);
                return in_claude.unwrap_or_else(|| Err(error.into()));
            }
            Ok(run) => run,
        },
        None => ctl::find_active_run(&runs, "its id")?,
    };
    attach_to(global, run, args.until)
}

/// Attaches to this run.
///
/// # Errors
/// If it is not active, or its engine accepts no clients.
pub(super) fn attach_to(
    global: &GlobalArgs,
    run: RecordedRun,
    until: Option<MeasuredStep>,
) -> Result<Exit, CliError> {
    let runs = runs::resolve_store(global)?;
    if runs.status(&run)? != RunStatus::Running {
        let name = match last_demo::is_named(&run.tape) {
            true => last_demo::NAME.to_owned(),
            false => run.id.short().to_string(),
        };
        let failure = CliError::not_found(format!("run {} is not active", run.id.short()));
        let help = format!("open its record with `ingestdeck replay {name}`");
        return Err(failure.with_help(help));
    }
    let (source, finish) = recorded_tapes::follow(&runs, &run)?;
    let location = TapeLocation::InProject {
        flag: global.project_dir.clone(),
    };
    let config = settings::load(global)?;
    let action = *config.ui.on_disconnect;
    let client = ScreenClient {
        global,
        config: &config,
        run: run.id,
        tape: run.tape,
        location,
        action,
        notices: Vec::new(),
        until,
    };
    Ok(client.show((source, finish), None)?.exit)
}

/// Starts the run of this command in an engine with its `texts`, and shows it on the screen.
/// `always` replaces the setting `ui.on_disconnect`.
///
/// # Errors
/// If the run cannot be started or shown.
pub(crate) fn start_on_screen(
    global: &GlobalArgs,
    texts: Option<&TextInputs>,
    location: TapeLocation,
    always: Option<DisconnectAction>,
) -> Result<RunResult, CliError> {
    // The engine prints the warnings.
    let config = settings::load_quietly(global)?;
    let action = always.unwrap_or(*config.ui.on_disconnect);
    let engine = match engine_process::start(global, texts)? {
        EngineStart::Launched(engine) => *engine,
        EngineStart::Ended(exit) => {
            return Ok(RunResult {
                exit,
                summary: RunSummary::default(),
            });
        }
    };
    let LaunchRecord {
        run, tape, notices, ..
    } = engine.record.clone();
    let run = RunId::parse(&run)
        .ok_or_else(|| CliError::failed("the engine of the run sent no run id"))?;
    let followed = FileSource::follow(&tape)?;
    ScreenClient {
        global,
        config: &config,
        run,
        tape,
        location,
        action,
        notices,
        until: None,
    }
    .show(followed, Some(engine))
}

/// Starts the run of this command in an engine with its `texts`, and prints where it is.
///
/// # Errors
/// If the run cannot be started.
pub(crate) fn start_detached(
    global: &GlobalArgs,
    texts: Option<&TextInputs>,
) -> Result<Exit, CliError> {
    use std::io::Write as _;
    let mut engine = match engine_process::start(global, texts)? {
        EngineStart::Launched(engine) => *engine,
        EngineStart::Ended(exit) => return Ok(exit),
    };
    engine.confirm();
    let LaunchRecord {
        run,
        pid,
        socket,
        tape,
        log,
        notices,
    } = &engine.record;
    let mut out = output::stdout_for(global.ui);
    let written = match global.ui {
        Ui::None => Ok(()),
        Ui::Json => {
            let record = serde_json::json!({
                "type": "launched", "run": run, "pid": pid, "socket": socket, "tape": tape, "log": log,
            });
            writeln!(out, "{record}")
        }
        Ui::Auto | Ui::Tui | Ui::Lines => {
            notices
                .iter()
                .for_each(|notice| playback_output::print_stderr(&format!("ingestdeck: {notice}")));
            let short = RunId::parse(run).map_or_else(|| run.clone(), |run| run.short());
            writeln!(
                out,
                "{}",
                commands::background_run(global.project_dir.as_deref(), &short, *pid)
            )
        }
    };
    written.map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// A screen that shows a run of another process.
struct ScreenClient<'a> {
    global: &'a GlobalArgs,
    config: &'a Config,
    run: RunId,
    tape: PathBuf,
    location: TapeLocation,
    action: DisconnectAction,
    /// Sentences that are shown when the screen opens.
    notices: Vec<String>,
    /// When a measured screen closes.
    until: Option<MeasuredStep>,
}

/// The task that exchanges lines with the engine.
struct EngineExchange {
    commands: mpsc::Sender<RunCommand>,
    /// Counts the reports of growth of the tape.
    grown: watch::Receiver<u64>,
    leave: oneshot::Sender<LeaveMode>,
    task: JoinHandle<AttachmentEnd>,
}

impl ScreenClient<'_> {
    /// Shows the run until the user leaves, then prints a summary and advice.
    fn show(
        self,
        (source, finish): (FileSource, FollowHandle),
        engine: Option<EngineProcess>,
    ) -> Result<RunResult, CliError> {
        let runtime = runtime(1)?;
        let result = runtime.block_on(self.show_until_left(source, finish, engine));
        // The reader of a closed terminal may block forever.
        runtime.shutdown_background();
        result
    }

    async fn show_until_left(
        self,
        source: FileSource,
        finish: FollowHandle,
        mut engine: Option<EngineProcess>,
    ) -> Result<RunResult, CliError> {
        let options = settings::screen_options(self.global, self.config)?;
        let project = project::resolve_directory(self.global).ok();
        let project = project.filter(|_| matches!(self.location, TapeLocation::InProject { .. }));
        let mut options = tui::Options {
            project,
            startup_messages: self.notices.clone(),
            ..options
        };
        options.exit_when = self.until.map(screen::exit_condition);
        let is_ascii = options.theme.is_ascii();
        bookmarks::attach_to_tape(&mut options, self.run, &self.tape);
        let connection = EngineConnection {
            run: self.run,
            request: AttachRequest {
                on_disconnect: self.action,
            },
            store: RunStore::new(project_of(&self.tape)),
        };
        let client = connection.open().await.map_err(ctl::connection_error)?;
        if let Some(engine) = &mut engine {
            engine.confirm();
        }
        let (exchange, live) = start_exchange(client, connection, self.tape.clone(), finish);
        let timeline = Timeline::new(Box::new(playback_output::for_ui(source, Ui::Tui)));
        // In a separate task: waking the waiting thread for each frame costs more.
        let shown = tokio::spawn(table_memory::run(timeline, Some(live), options)).await;
        let left = shown
            .map_err(CliError::task)
            .and_then(|left| left.map_err(|error| screen::terminal_error(&error)));
        match left {
            Ok(left) => self.leave(left, exchange, engine, is_ascii).await,
            Err(error) => {
                // Without a detach, the engine applies `ui.on_disconnect`.
                exchange.task.abort();
                if self.action == DisconnectAction::Continue {
                    self.report_detached();
                }
                Err(error)
            }
        }
    }

    /// Leaves the run as the user chose, and prints how it ended or how to reach it.
    async fn leave(
        self,
        mut left: TuiExit,
        exchange: EngineExchange,
        engine: Option<EngineProcess>,
        is_ascii: bool,
    ) -> Result<RunResult, CliError> {
        let EngineExchange {
            commands,
            grown,
            leave,
            mut task,
        } = exchange;
        let ended = |exit| RunResult {
            exit,
            summary: RunSummary::default(),
        };
        match left.reason {
            ExitReason::Signal(_) | ExitReason::Closed => {
                task.abort();
                return Ok(ended(screen::exit_after(&left.reason, Exit::Ok)));
            }
            ExitReason::Detached | ExitReason::ConditionMet => {
                let _ = leave.send(LeaveMode::RunContinues);
                // An engine that does not reply must not keep the screen, whose signals are no longer handled.
                if timeout(DETACH_TIMEOUT, &mut task).await.is_err() {
                    task.abort();
                }
                if left.reason == ExitReason::Detached {
                    self.report_detached();
                }
                return Ok(ended(Exit::Ok));
            }
            ExitReason::Quit | ExitReason::Chosen(_) => {}
        }
        let state = left.timeline.latest_state();
        let has_work = state.open_review().is_some()
            || state
                .units
                .iter()
                .any(|unit| unit.status.is_in_flight() || unit.status == UnitStatus::Queued);
        let shutdown = if has_work {
            ShutdownState::stopping()
        } else {
            ShutdownState::default()
        };
        let signals = SignalListener::listen()?;
        report_stopping(&left);
        let stop = commands.clone();
        let timeline = &mut left.timeline;
        let ending = async {
            if has_work {
                // The engine has ended if the command cannot be sent.
                let _ = stop.send(RunCommand::StopAll).await;
                // Other screens keep the engine open after the end of the run.
                wait_for_run_end(timeline, grown).await;
            }
            drop(stop);
            let _ = leave.send(LeaveMode::AwaitEnd);
            let end = (&mut task).await;
            if let (Ok(AttachmentEnd::Closed | AttachmentEnd::Aborted(_)), Some(mut engine)) =
                (&end, engine)
            {
                // Its locks and temporary files are gone when it has ended.
                let _ = task::spawn_blocking(move || engine.wait()).await;
            }
            end
        };
        let order = async |command| drop(commands.send(command).await);
        let (end, signal) = signals.wait_for(shutdown, ending, order).await?;
        let end = end.map_err(CliError::task)?;
        if matches!(end, AttachmentEnd::Detached { .. })
            && left.timeline.latest_state().ended.is_none()
        {
            // Other screens keep the run open.
            self.report_detached();
            return Ok(ended(if has_work { Exit::UnitFailed } else { Exit::Ok }));
        }
        let (reason, interrupted) = (left.reason, left.interrupted);
        let (summary, timeline) = screen::print_summary(is_ascii, left.timeline)?;
        if let AttachmentEnd::Aborted(reason) = end {
            return Err(CliError::failed(reason));
        }
        let is_scripted = timeline
            .source()
            .info()
            .header
            .as_ref()
            .is_some_and(|header| header.scripted);
        print_next_steps(
            &self.location,
            is_scripted,
            &summary,
            &self.tape,
            &self.run.short(),
        );
        let exit =
            |again| screen::exit_after(&reason, summary.exit_after_interrupt(interrupted || again));
        Ok(RunResult {
            exit: signals::exit_for_signal(signal, exit),
            summary,
        })
    }

    fn report_detached(&self) {
        let flag = match &self.location {
            TapeLocation::InProject { flag } => flag.as_deref(),
            TapeLocation::PathOnly | TapeLocation::Demo => Some(project_of(&self.tape)),
        };
        let line = match last_demo::is_named(&self.tape) {
            true => commands::detached_run(None, last_demo::NAME),
            false => commands::detached_run(flag, &self.run.short()),
        };
        playback_output::print_stderr(&line);
    }
}

/// Reads the growing tape until it contains the end of the run, cannot be read, or the engine has ended.
async fn wait_for_run_end(timeline: &mut Timeline, mut grown: watch::Receiver<u64>) {
    while timeline.seek(u64::MAX).is_ok() && timeline.latest_state().ended.is_none() {
        if grown.changed().await.is_err() {
            return;
        }
    }
}

/// The project of the run with this tape, which is in `.ktx/ingestdeck/runs/ID` below it.
fn project_of(tape: &Path) -> &Path {
    tape.ancestors().nth(5).unwrap_or(tape)
}

/// How the engine of a run is reached.
struct EngineConnection {
    run: RunId,
    request: AttachRequest,
    store: RunStore,
}

impl EngineConnection {
    async fn open(&self) -> Result<AttachedClient, ControlClientError> {
        let client = ControlClient::connect(self.run, screen::origin()).await?;
        Ok(client.attach(self.request).await?.0)
    }

    /// Connects again, since a stopped screen may have been disconnected. Returns `None` once the engine has ended.
    async fn reopen(&self) -> Option<AttachedClient> {
        // A lock that cannot be read does not prove that the engine has ended.
        while self.store.is_alive(self.run).unwrap_or(true) {
            if let Ok(client) = self.open().await {
                return Some(client);
            }
            tokio::time::sleep(RECONNECT_INTERVAL).await;
        }
        None
    }
}

/// Starts the exchange with the engine. Its reports reach the screen through the returned handle.
fn start_exchange(
    mut client: AttachedClient,
    connection: EngineConnection,
    tape: PathBuf,
    finish: FollowHandle,
) -> (EngineExchange, LiveHandle) {
    let (commands, mut received) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
    let (answer, outcomes) = mpsc::unbounded_channel();
    let (grown, changed) = watch::channel(0);
    let following = grown.subscribe();
    let (report_failure, failed) = oneshot::channel();
    let (leave, left) = oneshot::channel();
    let mut left = LeaveSignal::new(left);
    let leave_action = Some(connection.request.on_disconnect);
    let mut reports = EngineReports {
        grown,
        outcomes: answer,
        failed: Some(report_failure),
        unanswered: VecDeque::new(),
    };
    let task = tokio::spawn(async move {
        let end = loop {
            match client.run(&mut received, &mut left, &mut reports).await {
                Ok(AttachmentEnd::Closed) => {}
                Ok(end) => break end,
                Err(error) => tracing::warn!(%error, "the connection to the engine broke"),
            }
            match connection.reopen().await {
                Some(again) => client = again,
                None => break AttachmentEnd::Closed,
            }
        };
        finish.finish();
        if let (AttachmentEnd::Closed, Some(failed)) = (&end, reports.failed.take())
            && is_complete(&tape).is_ok_and(|is_complete| !is_complete)
        {
            // The screen may be gone.
            let _ = failed.send(WRITER_GONE.to_owned());
        }
        end
    });
    let engine = EngineChannel {
        commands: commands.clone(),
        outcomes,
        leave_action,
    };
    (
        EngineExchange {
            commands,
            grown: following,
            leave,
            task,
        },
        LiveHandle {
            engine: Some(engine),
            changed,
            failed: Some(failed),
        },
    )
}
