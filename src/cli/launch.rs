//! Shows a live run of the engine on the screen or in lines, and determines its exit code.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{
    args::{GlobalArgs, Ui},
    bookmarks, engine_process,
    exit::{self, CliError, Exit, SIGPIPE},
    last_demo, output, playback_output,
    playback_output::EventSink,
    project, pull_request,
    review_rules::{self, ReviewRules},
    screen, settings,
    signals::{self, ShutdownState, SignalListener},
    summary::{NextSteps, RunSummary},
};
use ingestdeck_agent::process;
use ingestdeck_core::{
    config::Config,
    control::{CommandOrigin, RunCommand},
    diagnostic::Diagnostic,
    run::Timeline,
    text::{commands, pluralize},
};
use ingestdeck_engine::launch::{self, Launch, LiveRun};
use ingestdeck_ingest::repository::Repository;
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui as tui;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub exit: Exit,
    pub summary: RunSummary,
}

/// What happens to the record after the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TapeLocation {
    /// Commands of the project can find it by its run id.
    InProject {
        /// Value of `--project-dir` for commands, if it is needed.
        flag: Option<PathBuf>,
    },
    /// It can be found by its path only.
    PathOnly,
    /// It is that of a demo: it is kept until the next one, or deleted with its directory.
    Demo,
}

/// The client of a live run.
pub(crate) struct LiveClient<'a> {
    global: &'a GlobalArgs,
    ui: Ui,
    /// The options of the screen, if the run is shown there.
    screen: Option<tui::Options>,
    /// What happens to the record after the run.
    record_location: TapeLocation,
    /// Sentences for the screen when it opens.
    notices: Vec<String>,
    /// Whether a script plays the model.
    scripted: bool,
    /// The run is one session, so there is no queue of units.
    is_session: bool,
    /// How the changes are decided without a screen.
    rules: Option<Arc<ReviewRules>>,
    /// The repository that the run commits to.
    repository: Option<Repository>,
}

/// Runs the plan and shows it. `notices` are sentences that are shown when the screen starts.
///
/// # Errors
/// If the run cannot be recorded or shown. Running attempts have been ended by then.
pub(crate) fn launch(
    global: &GlobalArgs,
    config: &Config,
    launch: Launch,
    record_location: TapeLocation,
    notices: Vec<String>,
    rules: Option<Arc<ReviewRules>>,
) -> Result<RunResult, CliError> {
    let mut client = LiveClient::new(global, config, record_location, false)?;
    client.scripted = launch.agent.is_scripted();
    client
        .screen
        .iter_mut()
        .for_each(|options| options.startup_messages.clone_from(&notices));
    client.notices = notices;
    client.rules = rules;
    client.repository = Some(launch.prepared.repository.clone());
    if global.is_engine {
        engine_process::begin_run();
    }
    launch::launch(launch, client.is_interactive(), async |run| {
        client.attend(run).await
    })?
}

impl<'a> LiveClient<'a> {
    /// # Errors
    /// If the settings of the screen are invalid.
    pub(crate) fn new(
        global: &'a GlobalArgs,
        config: &Config,
        record_location: TapeLocation,
        is_session: bool,
    ) -> Result<Self, CliError> {
        let ui = playback_output::resolve_ui(global.ui);
        let screen = (ui == Ui::Tui)
            .then(|| settings::screen_options(global, config))
            .transpose()?;
        let is_in_project = matches!(record_location, TapeLocation::InProject { .. });
        let project = project::resolve_directory(global)
            .ok()
            .filter(|_| is_in_project);
        let screen = screen.map(|options| tui::Options {
            is_session,
            project,
            ..options
        });
        Ok(Self {
            global,
            ui,
            screen,
            record_location,
            notices: Vec::new(),
            scripted: false,
            is_session,
            rules: None,
            repository: None,
        })
    }

    /// True if the client sends commands after the last unit.
    pub(crate) fn is_interactive(&self) -> bool {
        self.screen.is_some() || self.global.is_engine
    }

    /// Shows `run` until its end, then prints advice.
    ///
    /// # Errors
    /// If the run cannot be shown, or if it failed as a whole.
    pub(crate) async fn attend(mut self, run: LiveRun) -> Result<RunResult, CliError> {
        let (id, tape) = (run.id.short(), run.tape.clone());
        let outcome = match self.screen.take() {
            _ if self.global.is_engine => {
                let outcome = self.run_as_engine(run).await;
                self.write_pull_request(&tape);
                return outcome;
            }
            Some(options) => run_on_screen(options, run).await,
            None => self.run_plain(run).await,
        };
        self.write_pull_request(&tape);
        let outcome = outcome.map_err(|failure| self.with_record_hint(failure, &tape))?;
        if matches!(self.ui, Ui::Tui | Ui::Lines) {
            print_next_steps(
                &self.record_location,
                self.scripted,
                &outcome.summary,
                &tape,
                &id,
            );
        } else if outcome.exit == Exit::Limit
            && matches!(self.record_location, TapeLocation::InProject { .. })
        {
            // These formats do not show the text, so print it to stderr.
            let command = commands::resume_command(self.global.project_dir.as_deref(), &id);
            playback_output::print_stderr(&format!(
                "ingestdeck: stopped by a limit; `{command}` resumes the run"
            ));
        }
        Ok(outcome)
    }

    /// Writes the text of a pull request next to the tape, if the run commits to a branch for one.
    fn write_pull_request(&self, tape: &Path) {
        let has_branch = self
            .repository
            .as_ref()
            .is_some_and(|repository| repository.target_branch().is_some());
        if has_branch && let Err(error) = pull_request::write_body(self.global, tape) {
            exit::print_warning(&error);
        }
    }

    /// Runs for clients in other processes. The tape contains the result.
    async fn run_as_engine(&self, run: LiveRun) -> Result<RunResult, CliError> {
        let confirmed = engine_process::hand_over(&run, &self.notices)?;
        let LiveRun {
            tape,
            finish,
            drive,
            controller,
            attached,
            clients,
            ..
        } = run;
        let signals = SignalListener::listen()?;
        let driving = tokio::spawn(async move {
            let ended = drive.await;
            finish.finish();
            ended
        });
        let ending = async {
            if !confirmed.await {
                let reason = "the client that started the run is gone".to_owned();
                let origin = CommandOrigin {
                    client: Some("engine".to_owned()),
                    reason: Some(reason),
                };
                // A run that is over refuses commands.
                controller.execute(RunCommand::StopAll, origin).await;
            }
            drop(attached);
            driving.await
        };
        let order = async |command| {
            // A person who ends this process does not wait for screens.
            clients.release();
            controller.execute(command, signal_origin()).await;
        };
        let (ended, signal) = signals
            .wait_for(self.shutdown_state(), ending, order)
            .await?;
        ended.map_err(CliError::task)?.map_err(CliError::internal)?;
        engine_process::remove_empty_log(&tape);
        Ok(RunResult {
            exit: signal.unwrap_or(Exit::Ok),
            summary: RunSummary::default(),
        })
    }

    /// Shows the run in lines, as JSON or not at all.
    async fn run_plain(&self, run: LiveRun) -> Result<RunResult, CliError> {
        let LiveRun {
            source,
            changed,
            finish,
            drive,
            controller,
            tape,
            ..
        } = run;
        let mut timeline = Timeline::new(Box::new(playback_output::for_ui(source, self.ui)));
        let signals = SignalListener::listen()?;
        let (complete, is_complete) = oneshot::channel();
        let driving = tokio::spawn(async move {
            let ended = drive.await;
            finish.finish();
            // The receiver is gone if stdout was closed before.
            let _ = complete.send(());
            ended
        });
        let origin = timeline.source().info().clone();
        let mut sink = EventSink::new(self.ui, self.global, &origin);
        let deciding = self.rules.clone().map(|rules| {
            let (changed, controller) = (changed.clone(), controller.clone());
            tokio::spawn(async move {
                let decided = async {
                    let (source, _finish) = FileSource::follow(&tape)?;
                    review_rules::decide_by_rules(source, changed, controller.clone(), &rules).await
                };
                let decided = decided.await;
                if decided.is_err() {
                    controller
                        .execute(RunCommand::StopAll, signal_origin())
                        .await;
                }
                decided
            })
        });
        // In a separate task: waking the waiting thread for each line costs more.
        let showing = tokio::spawn(async move {
            let shown =
                playback_output::follow(&mut timeline, &mut sink, changed, is_complete).await;
            (timeline, sink, shown)
        });
        // The run continues without a reader, because its record matters.
        let ending = async {
            let decided = match deciding {
                Some(deciding) => deciding.await.map_err(CliError::task).flatten(),
                None => Ok(()),
            };
            (showing.await, driving.await, decided)
        };
        // A run that is over refuses commands.
        let order = async |command| drop(controller.execute(command, signal_origin()).await);
        let ((shown, ended, decided), signal) = signals
            .wait_for(self.shutdown_state(), ending, order)
            .await?;
        let (mut timeline, sink, shown) = shown.map_err(CliError::task)?;
        let ended = ended.map_err(CliError::task)?;
        timeline.seek(u64::MAX).map_err(CliError::internal)?;
        let state = &timeline.view().state;
        let summary = RunSummary::from_state(state);
        shown?;
        sink.finish(&origin, state, false)?;
        ended.map_err(CliError::internal)?;
        decided?;
        Ok(RunResult {
            exit: signals::exit_for_signal(signal, |interrupted| {
                summary.exit_after_interrupt(interrupted)
            }),
            summary,
        })
    }

    fn shutdown_state(&self) -> ShutdownState {
        if self.is_session {
            ShutdownState::without_drain()
        } else {
            ShutdownState::default()
        }
    }

    /// Adds to an error of the output that the run continued and where it is recorded.
    fn with_record_hint(&self, failure: CliError, tape: &Path) -> CliError {
        match (failure.exit, &self.record_location) {
            (Exit::Signal(SIGPIPE), TapeLocation::InProject { .. } | TapeLocation::PathOnly) => {
                failure.with_help(format!(
                    "open the record of the run, which continued: {}",
                    tape.display()
                ))
            }
            _ => failure,
        }
    }
}

/// The sender of commands that signals to this process request.
fn signal_origin() -> CommandOrigin {
    CommandOrigin {
        client: Some("signal".to_owned()),
        reason: None,
    }
}

/// Prints advice after a run. The exit code must not depend on whether it can be printed.
pub(super) fn print_next_steps(
    location: &TapeLocation,
    is_scripted: bool,
    summary: &RunSummary,
    tape: &Path,
    run: &str,
) {
    let kept = last_demo::kept_project(tape);
    let next = match location {
        TapeLocation::Demo => kept
            .as_deref()
            .map_or(NextSteps::Temporary, NextSteps::Demo),
        TapeLocation::PathOnly => NextSteps::Replay(tape),
        TapeLocation::InProject { flag } => NextSteps::Project {
            tape,
            flag: flag.as_deref(),
            run,
            retry: !is_scripted,
        },
    };
    let _ = output::stdout().write_linked(&summary.next_steps(next), tape);
}

/// Runs the schedule and the screen concurrently. Leaving the screen ends the run.
async fn run_on_screen(mut options: tui::Options, run: LiveRun) -> Result<RunResult, CliError> {
    let LiveRun {
        id,
        store,
        source,
        changed,
        finish,
        drive,
        controller,
        attached,
        ..
    } = run;
    bookmarks::attach_to_run(&mut options, &store, id);
    let is_ascii = options.theme.is_ascii();
    let timeline = Timeline::new(Box::new(playback_output::for_ui(source, Ui::Tui)));
    let (tell, broken) = oneshot::channel();
    let driving = tokio::spawn(async move {
        let ended = drive.await;
        if let Err(error) = &ended {
            // The tape is complete. The screen may have ended already.
            finish.finish();
            let _ = tell.send(error.to_line());
        }
        (ended, finish)
    });
    // In a separate task: waking the waiting thread for each frame costs more.
    let shown = tokio::spawn(screen::show_live(
        options,
        timeline,
        controller.clone(),
        changed,
        broken,
    ))
    .await;
    let left = shown.map_err(CliError::task).flatten();
    // If the screen failed, agents must not continue without the user noticing.
    let (last, shutdown) = match &left {
        Ok(left) if left.reason == tui::ExitReason::Quit => {
            (RunCommand::StopAll, ShutdownState::stopping())
        }
        _ => (RunCommand::KillAll, ShutdownState::killing()),
    };
    // The screen handled signals until now; from here on, this listener does.
    let signals = SignalListener::listen()?;
    left.iter().for_each(report_stopping);
    let ending = async {
        // A run that is over refuses commands.
        controller.execute(last, screen::origin()).await;
        drop((controller, attached));
        driving.await
    };
    // The run is over and accepts no more events.
    let kill = async |_| drop(tokio::task::spawn_blocking(process::kill_all).await);
    let (ended, signal) = signals.wait_for(shutdown, ending, kill).await?;
    let (ended, finish) = ended.map_err(CliError::task)?;
    finish.finish();
    let left = left?;
    let (summary, _) = screen::print_summary(is_ascii, left.timeline)?;
    ended.map_err(CliError::internal)?;
    let exit = |again| {
        screen::exit_after(
            &left.reason,
            summary.exit_after_interrupt(left.interrupted || again),
        )
    };
    Ok(RunResult {
        exit: signals::exit_for_signal(signal, exit),
        summary,
    })
}

/// Shows the user who quit the screen while units run what the program waits for.
pub(super) fn report_stopping(left: &tui::TuiExit) {
    let units = left.timeline.latest_state().units.iter();
    let running = units.filter(|unit| unit.status.is_in_flight()).count();
    if running > 0 && left.reason == tui::ExitReason::Quit {
        playback_output::print_stderr(&format!(
            "stopping {}; Ctrl-C kills running units",
            pluralize(running, "unit")
        ));
    }
}

/// Finds the agent of a run.
///
/// # Errors
/// If there is no such program.
pub(crate) fn find_claude(global: &GlobalArgs) -> Result<PathBuf, CliError> {
    // A bare name would be searched in the PATH, and a relative path would be resolved in the agent's directory.
    let given = global
        .claude_bin
        .as_ref()
        .map(std::path::absolute)
        .transpose()
        .map_err(CliError::internal)?;
    launch::find_claude(given.as_deref())
        .map_err(|problem| CliError::from_error(Exit::Setup, &problem))
}
