//! Runs a plan until its exit code: creates the tape, drives the schedule with its agents, and shows the run.

use std::{
    collections::HashSet,
    num::NonZero,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    args::{GlobalArgs, Ui},
    exit::{CliError, Exit},
    output,
    prepare::PreparedProject,
    replay, resume, runs, screen, show,
    show::EventSink,
    signals::{self, ShutdownState, SignalListener},
    summary::{self, NextSteps, Summary},
};
use crate::{
    claude::{private_dir, process},
    config::Config,
    diagnostic::Diagnostic,
    engine::{
        approval::ApprovalQueue,
        driver::{DriverError, Executor, ScheduleDriver},
        execute::{AgentBackend, AttemptExecutor, AttemptOptions, ReconcileOptions},
        fail_fast_recorder::FailFastRecorder,
        run_meter::RunMeter,
        trace::TraceTask,
    },
    group_guard,
    ingest::{
        self,
        attempt::KtxJob,
        plan::{IngestPlan, UnplannedConnection},
        project::{Project, RateLimitSettings},
        reconcile::RECONCILE,
        staging,
        worktree::Worktrees,
    },
    program_path,
    replay::{FileSource, file::FollowHandle},
    run::{NewEntry, Recorder, Timeline, entry_source::RecordError},
    store::{RunStore, TapeWriter},
    tape::{
        EntryBody, FORMAT_VERSION, Header, Note, RunId, UnitKey,
        note::{ContinuedRun, RunEnded, RunPlanned, Severity},
    },
    text::pluralize,
    tui,
    units::{
        governor::ThrottlePolicy,
        retry::RetryPolicy,
        schedule::{FailureMode, Schedule, ScheduleEvent, ScheduleSettings},
    },
};

/// Capacity of the queue of events from the user, from signals and from the service.
const INPUT_QUEUE_CAPACITY: usize = 256;

/// How long the runtime waits for tasks that cannot be stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// What to run, and how.
#[derive(Debug)]
pub(crate) struct Launch {
    pub project: Project,
    /// The planned units of the project.
    pub planned: IngestPlan,
    /// The prior run that this run continues.
    pub continues: Option<ContinuedRun>,
    /// The program that plays the model.
    pub agent: AgentBackend,
    /// The options of all attempts.
    pub terms: AttemptOptions,
    /// Number of units that run at the same time.
    pub concurrency: u32,
    pub config: Config,
    /// What happens to the record after the run.
    pub record_location: TapeLocation,
    /// Units that are held from the beginning.
    pub initially_held: Vec<UnitKey>,
    /// The repository and its locks.
    pub prepared: PreparedProject,
    /// The reconcile step, if it is wanted.
    pub reconcile: Option<ReconcileOptions>,
    /// Sentences that are shown when the run starts.
    pub notices: Vec<String>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub exit: Exit,
    pub summary: Summary,
}

impl Launch {
    fn failure_mode(&self) -> FailureMode {
        FailureMode::parse(self.project.settings.work_units.failure_mode.as_str()).unwrap_or_default()
    }

    fn schedule(&self) -> Schedule {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let settings = ScheduleSettings {
            failure_mode: self.failure_mode(),
            retry: retry_policy(&self.config),
            integrates_patches: true,
            budget_usd: self.terms.run_budget_usd,
            throttle_policy: throttle_policy(&self.project.settings.rate_limit),
            ..ScheduleSettings::new(self.concurrency, u32::try_from(cores).unwrap_or(u32::MAX))
        };
        let schedule =
            Schedule::new(self.planned.units.iter().map(|unit| unit.planned.unit.clone()).collect(), settings)
                .with_reused(resume::reused_units(self.continues.as_ref()))
                .with_prior_patches(resume::pending_patches(self.continues.as_ref()).map(|(unit, _)| unit));
        match &self.reconcile {
            Some(pass) => schedule.with_reconcile_step(RECONCILE.into(), pass.is_due()),
            None => schedule,
        }
    }

    fn plan_notes(&self, job: &KtxJob) -> Vec<Note> {
        let plan = Note::RunPlanned(Box::new(RunPlanned {
            job: job.id.clone(),
            units: self.planned.units.iter().map(|unit| unit.planned.clone()).collect(),
            skipped: self.planned.skipped.iter().map(UnplannedConnection::to_note).collect(),
            concurrency: self.concurrency,
            step_budget: self.terms.step_budget,
            failure_mode: self.failure_mode().as_str().to_owned(),
            tool_failures: self.terms.rule.as_str().to_owned(),
            model: self.terms.model.clone(),
            scripted: self.agent.is_scripted(),
            run_budget_usd: self.terms.run_budget_usd,
            instructions: self.project.instructions.overrides.iter().map(ToString::to_string).collect(),
            continues: self.continues.clone(),
            silence_after_ms: u64::try_from(self.terms.silence_after.as_millis()).ok(),
            selection: Some(self.planned.selection.clone()),
        }));
        let read = self.planned.sources.iter().map(|source| Note::SourceRead(Box::new(source.to_note())));
        // The record must mention files that were left out.
        let left_out = self.planned.warnings.iter();
        let left_out = left_out.map(|text| Note::Message { level: Severity::Warning, text: text.clone() });
        std::iter::once(plan).chain(read).chain(left_out).collect()
    }
}

/// The jitter must differ between runs; only its seed varies.
fn throttle_policy(limits: &RateLimitSettings) -> ThrottlePolicy {
    let seed = || Timestamp::now().as_nanosecond().unsigned_abs() as u64;
    ThrottlePolicy {
        enabled: limits.enabled,
        threshold: limits.throttle_threshold,
        concurrency_under_pressure: limits.min_concurrency_under_pressure,
        max_wait_ms: limits.max_wait_ms.map(u64::from),
        max_limit_attempts: limits.retry.max_attempts,
        base_delay_ms: limits.retry.base_delay_ms.into(),
        max_delay_ms: limits.retry.max_delay_ms.into(),
        jitter: limits.retry.jitter.then(seed),
    }
}

/// Runs the plan.
///
/// # Errors
/// If the run cannot be recorded or shown. Running attempts have been ended by then.
pub(crate) fn launch(global: &GlobalArgs, mut launch: Launch) -> Result<RunResult, CliError> {
    let stage = RunSetup {
        global,
        config: &launch.config,
        runs: RunStore::new(&launch.project.root),
        project_name: launch.project.root.file_name().map(|name| name.to_string_lossy().into_owned()),
        scripted: launch.agent.is_scripted(),
        record_location: launch.record_location.clone(),
        initially_held: Some(launch.initially_held.clone()),
        notices: std::mem::take(&mut launch.notices),
    };
    let now = Timestamp::now();
    let job = KtxJob::new(now);
    let _staged =
        staging::stage_raw_files(&launch.project.root, &job, &mut launch.planned).map_err(CliError::internal)?;
    let reused: HashSet<&UnitKey> = resume::reused_units(launch.continues.as_ref()).collect();
    let projections = launch.planned.pending_projections(|unit| reused.contains(unit));
    let schedule = launch.schedule().projecting(!projections.is_empty());
    let plan = launch.plan_notes(&job);
    let project = Arc::new(launch.project);
    // The lock is held until the run is over.
    let PreparedProject { lock: _lock, repository, head } = launch.prepared;
    let diff = launch.planned.diff_counts().to_string();
    let (agent, terms, continues) = (launch.agent, launch.terms, launch.continues);
    let reconcile = launch.reconcile;
    let locks = runs::session_locks(&stage.runs, stage.scripted);
    stage.run_schedule(now, schedule, &plan, |recorder, holds| {
        let worktrees = Worktrees::new(repository, &job.id, &head.commit);
        let units = &launch.planned.units;
        let attempts = AttemptExecutor::new(project, units, diff, job, worktrees, agent, terms, recorder, holds, locks);
        attempts
            .with_prior_patches(resume::pending_patches(continues.as_ref()))
            .with_reconcile_step(reconcile)
            .with_projections(projections)
    })
}

/// The automatic retries of the settings.
pub(crate) fn retry_policy(config: &Config) -> RetryPolicy {
    let retry = &config.retry;
    RetryPolicy {
        max_retries: *retry.max_retries,
        initial_delay_ms: *retry.initial_delay_ms,
        factor: *retry.factor,
        max_delay_ms: *retry.max_delay_ms,
    }
}

/// Makes child processes end with this process, even if it is killed.
pub(crate) fn guard_children() {
    let guarded = std::env::current_exe().and_then(|exe| group_guard::start(&exe));
    if let Err(error) = guarded {
        tracing::warn!(%error, "child processes of agents and git will not be ended if this process is killed");
    }
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
    /// It is deleted with its directory.
    Temporary,
}

/// Where and how a run is recorded and shown, regardless of its attempts.
#[derive(Debug)]
pub(crate) struct RunSetup<'a> {
    pub global: &'a GlobalArgs,
    pub config: &'a Config,
    /// The store for the record.
    pub runs: RunStore,
    /// Project name for display.
    pub project_name: Option<String>,
    /// Whether a script plays the model.
    pub scripted: bool,
    /// What happens to the record after the run.
    pub record_location: TapeLocation,
    /// Units that are held from the beginning; `None` if calls cannot be held.
    pub initially_held: Option<Vec<UnitKey>>,
    /// Sentences that are shown when the screen starts.
    pub notices: Vec<String>,
}

impl RunSetup<'_> {
    /// Runs `schedule` with the executor that `make` builds from the recorder and the approval queue.
    ///
    /// # Errors
    /// If the run cannot be recorded or shown. Running attempts have been ended by then.
    pub(crate) fn run_schedule<E: Executor>(
        &self,
        now: Timestamp,
        schedule: Schedule,
        plan: &[Note],
        make: impl FnOnce(Arc<dyn Recorder>, Arc<ApprovalQueue>) -> E,
    ) -> Result<RunResult, CliError> {
        private_dir::remove_abandoned_dirs();
        guard_children();
        // One worker thread in addition to the caller: two would wake each other for every line, which costs more than
        // it gains.
        let runtime = screen::runtime(1)?;
        let result = runtime.block_on(self.run(now, schedule, plan, make));
        // No child process may outlive this process, whatever failed. A tool that never returns would block the runtime
        // forever.
        process::kill_all();
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        result
    }

    /// The newest run; the id of the new run must be later.
    fn newest_run(&self, now: Timestamp) -> Option<RunId> {
        const DAY_MS: u64 = 86_400_000;
        let latest = u64::try_from(now.as_millisecond()).unwrap_or_default().saturating_add(DAY_MS);
        let project = self.runs.root().ancestors().nth(2);
        let is_ours = |id: RunId| project.is_some_and(|project| ingest::is_run_marked(project, id));
        // Without a list of runs, `latest` has no meaning.
        self.runs.newest(latest, is_ours).ok()?
    }

    async fn run<E: Executor>(
        &self,
        now: Timestamp,
        schedule: Schedule,
        plan: &[Note],
        make: impl FnOnce(Arc<dyn Recorder>, Arc<ApprovalQueue>) -> E,
    ) -> Result<RunResult, CliError> {
        let ui = show::resolve_ui(self.global.ui);
        let options = if ui == Ui::Tui {
            let options = super::settings::screen_options(self.global, self.config)?;
            Some(tui::Options {
                can_hold: self.initially_held.is_some(),
                startup_messages: self.notices.clone(),
                ..options
            })
        } else {
            None
        };
        let new = self
            .runs
            .create_after(self.newest_run(now), |run| Header {
                tape: FORMAT_VERSION,
                program: concat!("ingestdeck ", env!("CARGO_PKG_VERSION")).into(),
                run,
                started_at: now,
                project: self.project_name.clone(),
                scripted: self.scripted,
            })
            .map_err(CliError::internal)?;
        let id = new.id;
        if let Some(project) = self.runs.root().ancestors().nth(2)
            && let Err(error) = ingest::mark_run(project, id)
        {
            tracing::warn!(%error, "the record is not marked as written by this installation; later plans will warn about it");
        }
        let (tape, lock) = new.into_parts();
        let tape = Arc::new(tape);
        plan.iter().try_for_each(|plan| record_note(&tape, plan)).map_err(CliError::internal)?;
        let (source, finish) = FileSource::follow(tape.path()).map_err(|error| replay::open_error(&error))?;
        let timeline = Timeline::new(Box::new(replay::for_ui(source, ui)));

        let tracing = self.start_trace(&tape);
        let (inputs, received) = mpsc::channel(INPUT_QUEUE_CAPACITY);
        let fuse = Arc::new(FailFastRecorder::new(Arc::clone(&tape) as _));
        let recorder: Arc<dyn Recorder> = Arc::clone(&fuse) as _;
        let meter = Arc::new(RunMeter::new(inputs.downgrade()));
        let holds = Arc::new(ApprovalQueue::new(Arc::clone(&recorder), meter));
        self.initially_held.iter().flatten().for_each(|unit| holds.hold(unit));
        let executor = Arc::new(make(Arc::clone(&recorder), Arc::clone(&holds)));
        let drive =
            ScheduleDriver::new(schedule, executor, recorder).run(received, options.is_some(), fuse.first_error());
        let will =
            if self.initially_held.is_some() { ShutdownState::default() } else { ShutdownState::without_drain() };
        let view = LiveTimeline { timeline, changed: tape.subscribe(), finish, shutdown: will };
        let outcome = match options {
            Some(options) => run_on_screen(options, view, drive, inputs, holds).await,
            None => run_plain(self.global, ui, view, drive, inputs).await,
        };
        let outcome = outcome.map_err(|failure| self.with_record_hint(failure, tape.path()));
        if let Ok(outcome) = &outcome
            && matches!(ui, Ui::Tui | Ui::Lines)
        {
            self.print_next_steps(&outcome.summary, tape.path(), &id.short().to_string());
        }
        if let Ok(RunResult { exit: Exit::Limit, .. }) = outcome
            && matches!(ui, Ui::Json | Ui::None)
            && matches!(self.record_location, TapeLocation::InProject { .. })
        {
            // These formats do not show the text, so print it to stderr.
            let flag = self.global.project_dir.as_deref();
            show::print_stderr(&format!(
                "ingestdeck: stopped by a limit; `{}` resumes the run",
                summary::resume_command(flag, &id.short())
            ));
        }
        if let Some(tracing) = tracing
            && let Err(error) = tracing.finish().await
        {
            tracing::warn!(%error, "the trace is not complete");
        }
        drop(lock);
        runs::try_update_index(&self.runs);
        outcome
    }
}

impl RunSetup<'_> {
    /// Starts KTX's trace of a project's run. Nothing depends on it.
    fn start_trace(&self, tape: &TapeWriter) -> Option<TraceTask> {
        let project = self.runs.root().parent().and_then(Path::parent)?;
        let traced = TraceTask::follow(tape.path(), project, tape.subscribe());
        traced.inspect_err(|error| tracing::warn!(%error, "the run is not traced")).ok()
    }

    /// Adds to an error of the output that the run continued and where it is recorded.
    fn with_record_hint(&self, failure: CliError, tape: &Path) -> CliError {
        match (failure.exit, &self.record_location) {
            (Exit::Signal(show::SIGPIPE), TapeLocation::InProject { .. } | TapeLocation::PathOnly) => {
                failure.with_help(format!("open the record of the run, which continued: {}", tape.display()))
            }
            _ => failure,
        }
    }

    /// Prints advice. The exit code must not depend on whether it can be printed.
    fn print_next_steps(&self, summary: &Summary, tape: &Path, run: &str) {
        let next = match &self.record_location {
            TapeLocation::Temporary => NextSteps::Temporary,
            TapeLocation::PathOnly => NextSteps::Replay(tape),
            TapeLocation::InProject { flag } => {
                NextSteps::Project { tape, flag: flag.as_deref(), run, retry: !self.scripted }
            }
        };
        let _ = output::stdout().write_linked(&summary.next_steps(next), tape);
    }
}

struct LiveTimeline {
    timeline: Timeline,
    changed: watch::Receiver<u64>,
    finish: FollowHandle,
    /// The shutdown state at the start.
    shutdown: ShutdownState,
}

type DriverResult = Result<RunEnded, DriverError>;

/// Runs the schedule and the screen concurrently. Leaving the screen ends the run.
async fn run_on_screen(
    options: tui::Options,
    view: LiveTimeline,
    drive: impl Future<Output = DriverResult> + Send + 'static,
    inputs: mpsc::Sender<ScheduleEvent>,
    holds: Arc<ApprovalQueue>,
) -> Result<RunResult, CliError> {
    let LiveTimeline { timeline, changed, finish, .. } = view;
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
    let shown = tokio::spawn(screen::show_live(options, timeline, inputs.clone(), holds, changed, broken)).await;
    let left = shown.map_err(CliError::internal).flatten();
    // If the screen failed, agents must not continue without the user noticing.
    let (last, will) = match &left {
        Ok(left) if left.reason == tui::ExitReason::Quit => {
            (ScheduleEvent::StopAllRequested, ShutdownState::stopping())
        }
        _ => (ScheduleEvent::KillAllRequested, ShutdownState::killing()),
    };
    // The screen handled signals until now; from here on, this listener does.
    let signals = SignalListener::listen()?;
    report_stopping(&left);
    let ending = async {
        // The receiver is gone once the run is over.
        let _ = inputs.send(last).await;
        drop(inputs);
        driving.await
    };
    // The run is over and accepts no more events.
    let (ended, heard) = signals.wait_for(will, ending, async |_| process::kill_all()).await?;
    let (ended, finish) = ended.map_err(CliError::internal)?;
    finish.finish();
    let left = left?;
    let (summary, _) = screen::print_summary(left.timeline)?;
    ended.map_err(CliError::internal)?;
    let exit = |again| screen::exit_after(&left.reason, summary.exit_after_interrupt(left.interrupted || again));
    Ok(RunResult { exit: signals::exit_for_signal(heard, exit), summary })
}

/// Shows the user who quit the screen while units run what the program waits for.
fn report_stopping(left: &Result<tui::TuiExit, CliError>) {
    let Ok(left) = left else { return };
    let units = left.timeline.latest_state().units.iter();
    let running = units.filter(|unit| unit.status.is_in_flight()).count();
    if running > 0 && left.reason == tui::ExitReason::Quit {
        show::print_stderr(&format!("stopping {}; Ctrl-C kills running units", pluralize(running, "unit")));
    }
}

/// Runs the schedule with lines, JSON or no output.
async fn run_plain(
    global: &GlobalArgs,
    ui: Ui,
    view: LiveTimeline,
    drive: impl Future<Output = DriverResult> + Send + 'static,
    inputs: mpsc::Sender<ScheduleEvent>,
) -> Result<RunResult, CliError> {
    let LiveTimeline { mut timeline, changed, finish, shutdown: will } = view;
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
    let mut sink = EventSink::new(ui, global, &origin);
    // In a separate task: waking the waiting thread for each line costs more.
    let showing = tokio::spawn(async move {
        let shown = show::follow(&mut timeline, &mut sink, changed, is_complete).await;
        (timeline, sink, shown)
    });
    // The run continues without a reader, because its record matters.
    let ending = async { (showing.await, driving.await) };
    // The receiver is gone once the run is over.
    let order = async |input| drop(inputs.send(input).await);
    let ((shown, ended), heard) = signals.wait_for(will, ending, order).await?;
    let (mut timeline, sink, shown) = shown.map_err(CliError::internal)?;
    let ended = ended.map_err(CliError::internal)?;
    timeline.seek(u64::MAX).map_err(CliError::internal)?;
    let state = &timeline.view().state;
    let summary = Summary::from_state(state);
    shown?;
    sink.finish(&origin, state, false)?;
    ended.map_err(CliError::internal)?;
    Ok(RunResult {
        exit: signals::exit_for_signal(heard, |interrupted| summary.exit_after_interrupt(interrupted)),
        summary,
    })
}

fn record_note(recorder: &TapeWriter, note: &Note) -> Result<(), RecordError> {
    let json = note.to_json();
    recorder.record(&[NewEntry { attempt: None, body: EntryBody::Note(&json) }])
}

/// Finds the agent of a run.
///
/// # Errors
/// If there is no such program.
pub(crate) fn find_claude(global: &GlobalArgs) -> Result<std::path::PathBuf, CliError> {
    const INSTALL: &str = "install it with `npm install -g @anthropic-ai/claude-code` and run `claude` once to sign in, or name it with --claude-bin";
    if let Some(given) = &global.claude_bin {
        // A bare name would be searched in the PATH, and a relative path would be resolved in the agent's directory.
        let given = std::path::absolute(given).map_err(CliError::internal)?;
        let given_is = given.display();
        return match (program_path::is_program(&given), given.symlink_metadata().is_ok()) {
            (true, _) => Ok(given),
            (false, true) => {
                Err(CliError::new(Exit::Setup, format!("{given_is} cannot be executed")).with_help(INSTALL))
            }
            (false, false) => {
                Err(CliError::new(Exit::Setup, format!("there is no program {given_is}")).with_help(INSTALL))
            }
        };
    }
    program_path::find("claude").ok_or_else(|| {
        let skipped = program_path::skipped_note();
        CliError::new(Exit::Setup, "claude is not on the PATH").with_help(format!("{INSTALL}{skipped}"))
    })
}
