//! The screen as a client of a run: `attach`, and the commands that start a run and show it.

use std::path::PathBuf;

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use super::{
    args::{AttachArgs, GlobalArgs, Ui},
    ctl,
    engine_process::{self, EngineProcess, EngineStart, LaunchRecord},
    exit::{CliError, Exit},
    launch::{RunResult, TapeLocation, print_next_steps, report_stopping},
    output, playback_output, project, replay, runs, screen, settings,
    signals::{self, ShutdownState, SignalListener},
    summary::RunSummary,
    table_memory,
    watch::WRITER_GONE,
};
use crate::{
    control::{AttachRequest, DisconnectAction, RunCommand},
    engine::{
        control_socket::{AttachedClient, AttachmentEnd, ControlClient, ControlClientError, EngineReports, LeaveMode},
        launch::runtime,
        recorded_tapes,
    },
    replay::{FileSource, file::FollowHandle},
    run::{Timeline, state::UnitStatus},
    store::{RunStatus, runs::is_complete},
    tape::RunId,
    text::commands,
    tui::{self, EngineChannel, ExitReason, LiveHandle, TuiExit},
};

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
        Some(name) => runs.resolve(name)?,
        None => ctl::find_active_run(&runs)?,
    };
    if runs.status(&run)? != RunStatus::Running {
        return Err(CliError::not_found(format!("run {} is not active", run.id.short()))
            .with_help(format!("open its record with `ingestdeck replay {}`", run.id.short())));
    }
    let (source, finish) = recorded_tapes::follow(&runs, &run)?;
    let location = TapeLocation::InProject { flag: global.project_dir.clone() };
    let action = *settings::load(global)?.ui.on_disconnect;
    let client = ScreenClient { global, run: run.id, tape: run.tape, location, action, notices: Vec::new() };
    Ok(client.show((source, finish), None)?.exit)
}

/// Starts the run of this command in an engine, and shows it on the screen.
///
/// # Errors
/// If the run cannot be started or shown.
pub(crate) fn start_on_screen(
    global: &GlobalArgs,
    location: TapeLocation,
    action: DisconnectAction,
) -> Result<RunResult, CliError> {
    // Invalid settings of the screen must not leave a run without one.
    settings::screen_options(global, &settings::load(global)?)?;
    let engine = match engine_process::start(global)? {
        EngineStart::Launched(engine) => *engine,
        EngineStart::Ended(exit) => return Ok(RunResult { exit, summary: RunSummary::default() }),
    };
    let LaunchRecord { run, tape, notices, .. } = engine.record.clone();
    let run = RunId::parse(&run).ok_or_else(|| CliError::failed("the engine of the run sent no run id"))?;
    let followed = FileSource::follow(&tape)?;
    ScreenClient { global, run, tape, location, action, notices }.show(followed, Some(engine))
}

/// Starts the run of this command in an engine, and prints where it is.
///
/// # Errors
/// If the run cannot be started.
pub(crate) fn start_detached(global: &GlobalArgs) -> Result<Exit, CliError> {
    use std::io::Write as _;
    let mut engine = match engine_process::start(global)? {
        EngineStart::Launched(engine) => *engine,
        EngineStart::Ended(exit) => return Ok(exit),
    };
    engine.confirm();
    let LaunchRecord { run, pid, socket, tape, log, notices } = &engine.record;
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
            notices.iter().for_each(|notice| playback_output::print_stderr(&format!("ingestdeck: {notice}")));
            let short = RunId::parse(run).map_or_else(|| run.clone(), |run| run.short());
            writeln!(out, "{}", commands::background_run(global.project_dir.as_deref(), &short, *pid))
        }
    };
    written.map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// A screen that shows a run of another process.
struct ScreenClient<'a> {
    global: &'a GlobalArgs,
    run: RunId,
    tape: PathBuf,
    location: TapeLocation,
    action: DisconnectAction,
    /// Sentences that are shown when the screen opens.
    notices: Vec<String>,
}

/// The task that exchanges lines with the engine.
struct EngineExchange {
    commands: mpsc::Sender<RunCommand>,
    leave: oneshot::Sender<LeaveMode>,
    task: JoinHandle<Result<AttachmentEnd, ControlClientError>>,
}

impl ScreenClient<'_> {
    /// Shows the run until the user leaves, then prints a summary and advice.
    fn show(
        self,
        (source, finish): (FileSource, FollowHandle),
        mut engine: Option<EngineProcess>,
    ) -> Result<RunResult, CliError> {
        let runtime = runtime(1)?;
        let result = runtime.block_on(self.show_until_left(source, finish, &mut engine));
        // The reader of a closed terminal may block forever.
        runtime.shutdown_background();
        result
    }

    async fn show_until_left(
        self,
        source: FileSource,
        finish: FollowHandle,
        engine: &mut Option<EngineProcess>,
    ) -> Result<RunResult, CliError> {
        let config = settings::load(self.global)?;
        let options = settings::screen_options(self.global, &config)?;
        let project = project::resolve_directory(self.global).ok();
        let project = project.filter(|_| matches!(self.location, TapeLocation::InProject { .. }));
        let options = tui::Options { can_hold: true, project, startup_messages: self.notices.clone(), ..options };
        let client = ControlClient::connect(self.run, screen::origin()).await.map_err(ctl::connection_error)?;
        let request = AttachRequest { on_disconnect: self.action };
        let (client, _) = client.attach(request).await.map_err(ctl::connection_error)?;
        if let Some(engine) = engine {
            engine.confirm();
        }
        let (exchange, live) = start_exchange(client, self.tape.clone(), finish, self.action);
        let timeline = Timeline::new(Box::new(replay::for_ui(source, Ui::Tui)));
        // In a separate task: waking the waiting thread for each frame costs more.
        let shown = tokio::spawn(table_memory::run(timeline, Some(live), options)).await;
        let left = shown.map_err(CliError::internal)?.map_err(|error| screen::terminal_error(&error));
        match left {
            Ok(left) => self.leave(left, exchange, engine).await,
            Err(error) => {
                // Without a detach, the engine applies `ui.on_disconnect`.
                exchange.task.abort();
                Err(error)
            }
        }
    }

    /// Leaves the run as the user chose, and prints how it ended or how to reach it.
    async fn leave(
        self,
        left: TuiExit,
        exchange: EngineExchange,
        engine: &mut Option<EngineProcess>,
    ) -> Result<RunResult, CliError> {
        let EngineExchange { commands, leave, task } = exchange;
        let units = &left.timeline.latest_state().units;
        let has_work = units.iter().any(|unit| unit.status.is_in_flight() || unit.status == UnitStatus::Queued);
        match left.reason {
            ExitReason::Signal(_) | ExitReason::Closed => {
                task.abort();
                return Ok(RunResult {
                    exit: screen::exit_after(&left.reason, Exit::Ok),
                    summary: RunSummary::default(),
                });
            }
            ExitReason::Detached => {
                let _ = leave.send(LeaveMode::RunContinues);
                // A connection that broke ends the attachment, too.
                let _ = task.await;
                self.report_detached();
                return Ok(RunResult { exit: Exit::Ok, summary: RunSummary::default() });
            }
            ExitReason::Quit | ExitReason::Chosen(_) | ExitReason::ConditionMet => {}
        }
        let shutdown = if has_work { ShutdownState::stopping() } else { ShutdownState::default() };
        let signals = SignalListener::listen()?;
        report_stopping(&left);
        let stop = commands.clone();
        let ending = async {
            if has_work {
                // The engine has ended if the command cannot be sent.
                let _ = stop.send(RunCommand::StopAll).await;
            }
            drop(stop);
            let _ = leave.send(LeaveMode::AwaitEnd);
            task.await
        };
        let order = async |command| drop(commands.send(command).await);
        let (end, signal) = signals.wait_for(shutdown, ending, order).await?;
        let end = end.map_err(CliError::internal)?;
        match (&end, engine) {
            (Ok(AttachmentEnd::Detached { .. }), _) if left.timeline.latest_state().ended.is_none() => {
                self.report_detached();
                return Ok(RunResult { exit: Exit::Ok, summary: RunSummary::default() });
            }
            (Ok(AttachmentEnd::Detached { .. }), _) => {}
            (Ok(AttachmentEnd::Closed | AttachmentEnd::Aborted(_)), Some(engine)) => {
                tokio::task::block_in_place(|| engine.wait());
            }
            (Ok(AttachmentEnd::Closed | AttachmentEnd::Aborted(_)), None) => {}
            (Err(error), _) => tracing::warn!(%error, "the connection to the engine broke"),
        }
        let (reason, interrupted) = (left.reason, left.interrupted);
        let (summary, timeline) = screen::print_summary(left.timeline)?;
        if let Ok(AttachmentEnd::Aborted(reason)) = end {
            return Err(CliError::failed(reason));
        }
        let is_scripted = timeline.source().info().header.as_ref().is_some_and(|header| header.scripted);
        print_next_steps(&self.location, is_scripted, &summary, &self.tape, &self.run.short());
        let exit = |again| screen::exit_after(&reason, summary.exit_after_interrupt(interrupted || again));
        Ok(RunResult { exit: signals::exit_for_signal(signal, exit), summary })
    }

    fn report_detached(&self) {
        let flag = match &self.location {
            TapeLocation::InProject { flag } => flag.as_deref(),
            TapeLocation::PathOnly | TapeLocation::Temporary => None,
        };
        playback_output::print_stderr(&commands::detached_run(flag, &self.run.short()));
    }
}

/// Starts the exchange with the engine. Its reports reach the screen through the returned handle.
fn start_exchange(
    client: AttachedClient,
    tape: PathBuf,
    finish: FollowHandle,
    action: DisconnectAction,
) -> (EngineExchange, LiveHandle) {
    let (commands, received) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
    let (refuse, refusals) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
    let (grown, changed) = watch::channel(0);
    let (report_failure, failed) = oneshot::channel();
    let (leave, left) = oneshot::channel();
    let mut reports = EngineReports { grown, refusals: refuse, failed: Some(report_failure) };
    let task = tokio::spawn(async move {
        let end = client.run(received, left, &mut reports).await;
        finish.finish();
        if let (Ok(AttachmentEnd::Closed) | Err(_), Some(failed)) = (&end, reports.failed.take())
            && is_complete(&tape).is_ok_and(|is_complete| !is_complete)
        {
            // The screen may be gone.
            let _ = failed.send(WRITER_GONE.to_owned());
        }
        end
    });
    let engine = EngineChannel { commands: commands.clone(), refusals, leave_action: Some(action) };
    (EngineExchange { commands, leave, task }, LiveHandle { engine: Some(engine), changed, failed: Some(failed) })
}
