//! Composes a run: creates its tape, drives its schedule with the agents, and hands it to a client that shows it. Must
//! not print: what people see is the client's part.

#![expect(
    clippy::disallowed_methods,
    reason = "an empty directory of this run; the program of --claude-bin"
)]

mod plan;

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    runtime::{self, Runtime},
    sync::{mpsc, watch},
};

use super::{
    approval::ApprovalQueue,
    attached_clients::{AttachedClients, ClientGuard},
    attempt_limits::AttemptLimits,
    control_socket::{ControlServer, ServedRun},
    controller::RunController,
    cut_sessions::CutSession,
    driver::{DriverError, Executor, PersonTimeouts, ScheduleDriver},
    execute::{AttemptExecutor, IngestRun, ReconcileOptions, RunPlaces},
    fail_fast_recorder::FailFastRecorder,
    guard_children,
    notifier::{NotificationSink, NotificationTargets},
    prepare::PreparedProject,
    resume,
    review::RunReview,
    run_meter::RunMeter,
    span_exporter::{SpanSink, TraceOptions},
    started_run::StartedRun,
    tape_follower::{TapeFollower, TapeSinks},
    trace::TraceSink,
    worker::prior_attempts::PriorTape,
};
use ingestdeck_agent::{
    Agent,
    attempt::{
        self,
        time_limits::{REVIEW_IDLE_TIMEOUT, TimeLimitSettings},
    },
    private_dir, process,
    session_lock::SessionLocks,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    run::{
        NewEntry, Recorder, RunOptions, entry_source::RecordError, otlp::RunTrace,
        review::ReviewState,
    },
    tape::{
        AgentName, EntryBody, FORMAT_VERSION, Header, Note, RunId, UnitKey,
        note::{ContinuedRun, RunEnded, SourcesProjected},
    },
    units::{call_policy::CallPolicy, schedule::Schedule},
};
use ingestdeck_ingest::{
    self as ingest,
    committed_changes::CommittedRun,
    job::IngestJob,
    plan::IngestPlan,
    project::Project,
    staged_copies::{self, StagingError},
    worktree::{BasePatch, Worktrees},
};
use ingestdeck_os::{program_path, user_dirs::UserDirs};
use ingestdeck_records::{
    replay::{FileSource, OpenError, file::FollowHandle},
    store::{RunStore, TapeWriter, runs::RunStoreError},
};

/// Capacity of the queue of events from the user, from signals and from the service.
const INPUT_QUEUE_CAPACITY: usize = 256;

/// How long the runtime waits for tasks that cannot be stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a run cannot be started or recorded.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    #[error(transparent)]
    Staging(#[from] StagingError),
    #[error(transparent)]
    Store(#[from] RunStoreError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Diagnostic for LaunchError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Threads(_) => None,
            Self::Staging(error) => error.help(),
            Self::Store(error) => error.help(),
            Self::Open(error) => error.help(),
        }
    }
}

/// What to run, and how.
#[derive(Debug)]
pub struct Launch {
    pub project: Project,
    /// The planned units of the project.
    pub planned: IngestPlan,
    /// What remains of the prior run that this run continues.
    pub prior: PriorWork,
    /// The program that plays the model.
    pub agent: Arc<Agent>,
    pub options: Arc<RunOptions>,
    /// The machines that units use.
    pub places: RunPlaces,
    /// Which calls wait for a person.
    pub held: HeldCalls,
    /// Where notifications go while no client is attached.
    pub notifications: NotificationTargets,
    /// Where the spans of the run go.
    pub trace: TraceOptions,
    /// The repository and its locks.
    pub prepared: PreparedProject,
    /// The reconcile step, if it is wanted.
    pub reconcile: Option<ReconcileOptions>,
    /// The review before the commit, if it is wanted.
    pub review: Option<ReviewOptions>,
}

/// What remains of a continued run.
#[derive(Debug, Default)]
pub struct PriorWork {
    /// The run; `None` if none is continued.
    pub continues: Option<ContinuedRun>,
    /// Sources that it projected and that are in no commit.
    pub projected: Vec<SourcesProjected>,
    /// The run whose commits are reviewed, if they are.
    pub committed: Option<CommittedRun>,
    /// Units that continue in their sessions.
    pub sessions: Vec<(UnitKey, CutSession)>,
}

/// Options of the review before the commit.
#[derive(Debug, Default)]
pub struct ReviewOptions {
    /// Decisions of a prior run about the same changes.
    pub prior: Option<ReviewState>,
    /// The client decides even if it is not interactive.
    pub is_decided: bool,
}

/// Which tool calls wait for a person.
#[derive(Clone, Debug, Default)]
pub struct HeldCalls {
    /// Units all of whose calls wait, from the beginning.
    pub units: Vec<UnitKey>,
    /// Rules about calls of all units.
    pub policy: CallPolicy,
}

/// Runs the plan, and returns the result of the client. If the client `is_interactive`, the run waits for its commands
/// after the last unit.
///
/// # Errors
/// If the run cannot be recorded. Running attempts have been ended by then.
pub fn launch<T>(
    mut launch: Launch,
    is_interactive: bool,
    client: impl AsyncFnOnce(LiveRun) -> T,
) -> Result<T, LaunchError> {
    let now = Timestamp::now();
    let job = IngestJob::new(now);
    let _staged = staged_copies::stage_raw_files(&launch.project.root, &job, &mut launch.planned)?;
    let reused: HashSet<UnitKey> = resume::reused_units(launch.prior.continues.as_ref())
        .cloned()
        .collect();
    let projections = launch
        .planned
        .pending_projections(|unit| reused.contains(unit));
    let projects = !projections.is_empty() || !launch.prior.projected.is_empty();
    let schedule = launch.schedule(is_interactive, projects);
    let notes = launch.plan_notes(&job);

    let Launch {
        project,
        planned,
        prior,
        agent,
        options,
        places,
        held,
        notifications,
        trace,
        prepared,
        reconcile,
        review,
    } = launch;
    let limits = Arc::new(AttemptLimits::new(
        options.step_budget,
        *options.ingest.tool_failures,
        TimeLimitSettings::from_config(&options.ingest),
    ));
    let is_reviewed = review.is_some();
    let project_name = project.root.file_name();
    let setup = RunSetup {
        runs: RunStore::new(&project.root),
        project_name: project_name.map(|name| name.to_string_lossy().into_owned()),
        agent: agent.name(),
        held,
        is_interactive,
        limits: Arc::clone(&limits),
        is_plain_session: false,
        review_idle_timeout: options
            .ingest
            .review_idle_timeout
            .or(Some(REVIEW_IDLE_TIMEOUT)),
        notifications,
        trace,
        prior_review: review.and_then(|review| review.prior),
    };
    let locks = session_locks(&setup.runs, agent.is_scripted());
    // The lock is held until the run is over.
    let PreparedProject {
        lock: _lock,
        repository,
        head,
    } = prepared;
    let worktrees = Worktrees::new(repository, &job.id, &head.commit);
    prior
        .projected
        .iter()
        .filter_map(|projected| base_patch(&project, projected))
        .for_each(|patch| worktrees.add_base_patch(patch));
    let prior_tape = prior.continues.as_ref().map(|continues| PriorTape {
        run: continues.run,
        runs: setup.runs.clone(),
        units: planned
            .units
            .iter()
            .map(|unit| unit.planned.unit.clone())
            .filter(|unit| !reused.contains(unit))
            .collect(),
    });
    let make = |started: StartedRun| {
        let run = IngestRun {
            id: started.id,
            project: Arc::new(project),
            diff: planned.planned_diff(),
            repositories: planned.repositories(),
            units: IngestRun::index_units(planned.units),
            job,
            worktrees,
            reconcile,
            projections,
            prior_projections: prior
                .projected
                .into_iter()
                .map(|projected| SourcesProjected {
                    connection: projected.connection,
                    cause: projected.cause,
                    ..SourcesProjected::default()
                })
                .collect(),
            is_reviewed,
            prior_attempts: IngestRun::reused_attempts(prior.continues.as_ref()),
            committed: prior.committed,
        };
        AttemptExecutor::new(run, agent, options, limits, locks, started)
            .with_prior_patches(resume::pending_patches(prior.continues.as_ref()))
            .with_sessions(prior.sessions)
            .with_places(places, prior_tape)
    };
    setup.run_schedule(now, schedule, &notes, make, client)
}

/// The patch of a projection that a prior run did not save.
fn base_patch(project: &Project, projected: &SourcesProjected) -> Option<BasePatch> {
    Some(BasePatch {
        unit: projected.writer().into(),
        file: project.root.join(projected.patch.as_ref()?),
        targets: project.target_ids(projected.connection.as_deref()),
    })
}

/// The directory of session locks: sessions belong to the user, whatever project they run in. Locks of scripted
/// sessions are in the project.
pub(crate) fn session_locks(runs: &RunStore, scripted: bool) -> SessionLocks {
    let of_user = UserDirs::from_environment().locks().filter(|_| !scripted);
    // The runs of a project are in `.ktx/ingestdeck` below it.
    let project =
        || SessionLocks::in_project(runs.root().ancestors().nth(2).unwrap_or(runs.root()));
    of_user.map_or_else(project, SessionLocks::new)
}

/// A runtime with this number of worker threads in addition to the caller's thread.
///
/// # Errors
/// If the system provides no threads.
pub fn runtime(workers: usize) -> Result<Runtime, LaunchError> {
    attempt::start_tick_clock();
    runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .map_err(LaunchError::Threads)
}

/// The future that runs a schedule.
type Drive = Pin<Box<dyn Future<Output = Result<RunEnded, DriverError>> + Send>>;

/// A run for its client, which must poll `drive` and must not return before it ends.
#[expect(
    missing_debug_implementations,
    reason = "a future has no representation"
)]
pub struct LiveRun {
    pub id: RunId,
    /// The store of the record.
    pub store: RunStore,
    /// Path of the tape.
    pub tape: PathBuf,
    pub source: FileSource,
    /// Reports that the tape is complete.
    pub finish: FollowHandle,
    /// Reports that the tape has grown.
    pub changed: watch::Receiver<u64>,
    pub drive: Drive,
    /// Access to the run for commands.
    pub controller: RunController,
    /// Keeps the run open after its last unit, until it is dropped. Present if the client is interactive.
    pub attached: Option<ClientGuard>,
    pub clients: AttachedClients,
    /// Path of the control socket, or why there is none.
    pub socket: io::Result<PathBuf>,
}

/// Where a run is recorded, regardless of its attempts.
#[derive(Debug)]
pub(crate) struct RunSetup {
    /// The store for the record.
    pub runs: RunStore,
    /// Project name for display.
    pub project_name: Option<String>,
    pub agent: AgentName,
    /// Which calls wait for a person.
    pub held: HeldCalls,
    /// True if the run waits for commands after its last unit.
    pub is_interactive: bool,
    /// Where notifications go while no client is attached.
    pub notifications: NotificationTargets,
    /// Where the spans of the run go.
    pub trace: TraceOptions,
    pub limits: Arc<AttemptLimits>,
    /// It is a session in one direction: clients cannot change its limits, and its calls do not ask for approval.
    pub is_plain_session: bool,
    /// How long the run waits for its review while no client is attached.
    pub review_idle_timeout: Option<Duration>,
    /// Decisions of a prior run about the changes that this run integrates again.
    pub prior_review: Option<ReviewState>,
}

impl RunSetup {
    /// Runs `schedule` with the executor that `make` builds for the started run, and returns the result of the client.
    ///
    /// # Errors
    /// If the run cannot be recorded. Running attempts have been ended by then.
    pub(crate) fn run_schedule<E: Executor, T>(
        &self,
        now: Timestamp,
        schedule: Schedule,
        plan: &[Note],
        make: impl FnOnce(StartedRun) -> E,
        client: impl AsyncFnOnce(LiveRun) -> T,
    ) -> Result<T, LaunchError> {
        private_dir::remove_abandoned_dirs();
        guard_children();
        // One worker thread in addition to the caller: two would wake each other for every line, which costs more than
        // it gains.
        let runtime = runtime(1)?;
        let result = runtime.block_on(self.run(now, schedule, plan, make, client));
        // No child process may outlive this process, whatever failed. A tool that never returns would block the runtime
        // forever.
        process::kill_all();
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        result
    }

    /// The newest run; the id of the new run must be later.
    fn newest_run(&self, now: Timestamp) -> Option<RunId> {
        const DAY_MS: u64 = 86_400_000;
        let latest = u64::try_from(now.as_millisecond())
            .unwrap_or_default()
            .saturating_add(DAY_MS);
        let project = self.runs.root().ancestors().nth(2);
        let is_ours = |id: RunId| project.is_some_and(|project| ingest::is_run_marked(project, id));
        // Without a list of runs, `latest` has no meaning.
        self.runs.newest(latest, is_ours).ok()?
    }

    async fn run<E: Executor, T>(
        &self,
        now: Timestamp,
        schedule: Schedule,
        plan: &[Note],
        make: impl FnOnce(StartedRun) -> E,
        client: impl AsyncFnOnce(LiveRun) -> T,
    ) -> Result<T, LaunchError> {
        let new = self.runs.create(self.newest_run(now), |run| Header {
            tape: FORMAT_VERSION,
            program: concat!("ingestdeck ", env!("CARGO_PKG_VERSION")).into(),
            run,
            started_at: now,
            project: self.project_name.clone(),
            scripted: self.agent == AgentName::Scripted,
            agent: Some(self.agent.clone()),
        })?;
        let id = new.id;
        if let Some(project) = self.runs.root().ancestors().nth(2)
            && let Err(error) = ingest::mark_run(project, id)
        {
            tracing::warn!(%error, "the record is not marked as written by this installation; later plans will warn about it");
        }
        let (tape, lock) = new.into_parts();
        let tape = Arc::new(tape);
        plan.iter()
            .try_for_each(|plan| record_note(&tape, plan))
            .map_err(RunStoreError::from)?;
        let (source, finish) = FileSource::follow(tape.path())?;

        let (inputs, received) = mpsc::channel(INPUT_QUEUE_CAPACITY);
        let fail_fast_recorder = Arc::new(FailFastRecorder::new(Arc::clone(&tape) as _));
        let recorder: Arc<dyn Recorder> = Arc::clone(&fail_fast_recorder) as _;
        let clients = AttachedClients::new();
        let follower = self.follow_tape(&tape, &recorder, &clients);
        let meter = Arc::new(RunMeter::new(inputs.downgrade()));
        let approvals = ApprovalQueue::new(Arc::clone(&recorder), meter);
        let approvals =
            Arc::new(approvals.with_policy(self.held.policy.clone(), self.is_interactive));
        self.held.units.iter().for_each(|unit| approvals.hold(unit));
        let review = Arc::new(RunReview::new(
            Arc::clone(&recorder),
            self.prior_review.clone(),
        ));
        let started = StartedRun {
            id,
            recorder,
            approvals,
            review,
            trace: self.agent_trace(id),
        };
        let executor = Arc::new(make(started.clone()));
        let units: HashSet<UnitKey> = schedule.unit_keys().cloned().collect();
        started.review.set_units(units.clone());
        let workers = executor.workers();
        let attached = self.is_interactive.then(|| clients.attach());
        self.limits.set_has_screen(clients.count() > 0);
        tokio::spawn(follow_clients(
            Arc::clone(&self.limits),
            clients.subscribe(),
        ));
        let person = PersonTimeouts {
            clients: clients.subscribe(),
            limits: Arc::clone(&self.limits),
            review: self.review_idle_timeout,
        };
        let driver = ScheduleDriver::new(schedule, executor, Arc::clone(&started.recorder))
            .with_person_timeouts(Some(person));
        // Clients that attach to a run of another client do not keep it open.
        let keep_open = if self.is_interactive {
            clients.subscribe()
        } else {
            watch::channel(0).1
        };
        let driving = driver.run(received, keep_open, fail_fast_recorder.first_error());
        let informed = clients.clone();
        let drive = Box::pin(async move {
            let ended = driving.await;
            ended.inspect_err(|error| informed.report_failure(error.to_line()))
        });
        let (changed, path) = (tape.subscribe(), tape.path().to_owned());
        let changeable = (!self.is_plain_session).then(|| Arc::clone(&self.limits));
        let controller = RunController::new(units, changeable, started, workers, inputs);
        let served = ServedRun {
            controller: controller.downgrade(),
            clients: clients.clone(),
            growth: tape.subscribe(),
        };
        let server = ControlServer::start(id, served).await;
        if let Err(error) = &server {
            tracing::warn!(%error, "the run accepts no commands from other processes");
        }
        let (server, socket) = match server {
            Ok(server) => {
                let path = server.path().to_owned();
                (Some(server), Ok(path))
            }
            Err(error) => (None, Err(error)),
        };
        let store = self.runs.clone();
        let live = LiveRun {
            id,
            store,
            tape: path,
            source,
            finish,
            changed,
            drive,
            controller,
            attached,
            clients,
            socket,
        };
        let result = client(live).await;
        if let Some(server) = server {
            server.close().await;
        }
        let mut sinks = TapeSinks::default();
        if let Some(follower) = follower {
            sinks = follower.finish().await;
        }
        // It may add a message to the tape.
        if let Some(spans) = sinks.spans {
            spans.finish().await;
        }
        drop(lock);
        if let Some(notifier) = sinks.notifier {
            notifier.finish().await;
        }
        Ok(result)
    }

    /// Starts everything that is derived from the growing tape. Nothing depends on it.
    fn follow_tape(
        &self,
        tape: &TapeWriter,
        recorder: &Arc<dyn Recorder>,
        clients: &AttachedClients,
    ) -> Option<TapeFollower> {
        let project = self.runs.root().parent().and_then(Path::parent);
        let target = self.trace.target.clone();
        let targets = Some(self.notifications.clone()).filter(|targets| !targets.is_empty());
        let started =
            TapeFollower::start(tape.path(), tape.subscribe(), clients, |header| TapeSinks {
                trace: project.map(|project| TraceSink::new(header, project)),
                spans: target.map(|target| SpanSink::new(header, target, recorder)),
                notifier: targets
                    .map(|targets| NotificationSink::new(header, targets, clients, recorder)),
            });
        started
            .inspect_err(
                |error| tracing::warn!(%error, "there are no trace, spans and notifications"),
            )
            .ok()
    }

    /// The trace that agents continue, if anything records it.
    fn agent_trace(&self, run: RunId) -> Option<RunTrace> {
        let TraceOptions { target, starter } = &self.trace;
        let parent = starter.traceparent.as_deref();
        (target.is_some() || parent.is_some()).then(|| RunTrace::new(run, parent))
    }
}

/// Applies the limits for runs without a screen while no client is attached.
async fn follow_clients(limits: Arc<AttemptLimits>, mut clients: watch::Receiver<usize>) {
    while clients.changed().await.is_ok() {
        limits.set_has_screen(*clients.borrow_and_update() > 0);
    }
}

fn record_note(recorder: &TapeWriter, note: &Note) -> Result<(), RecordError> {
    let json = note.to_json();
    recorder.record(&[NewEntry {
        attempt: None,
        body: EntryBody::Note(&json),
    }])
}

/// Finds the agent of a run: the program at the absolute path `given`, or `claude` on the `PATH` or where its installers
/// put it.
///
/// # Errors
/// If there is no such program.
pub fn find_claude(given: Option<&Path>) -> Result<PathBuf, Problem> {
    const INSTALL: &str = "install it with `npm install -g @anthropic-ai/claude-code` and run `claude` once to sign in, or name it with --claude-bin";
    let Some(given) = given else {
        let missing = || Problem::new("claude is not on the PATH");
        return program_path::find("claude")
            .or_else(program_path::find_installed_claude)
            .ok_or_else(|| {
                missing().with_help(format!("{INSTALL}{}", program_path::skipped_note()))
            });
    };
    let name = given.display();
    match (
        program_path::is_program(given),
        given.symlink_metadata().is_ok(),
    ) {
        (true, _) => Ok(given.to_owned()),
        (false, true) => Err(Problem::new(format!("{name} cannot be executed")).with_help(INSTALL)),
        (false, false) => {
            Err(Problem::new(format!("there is no program {name}")).with_help(INSTALL))
        }
    }
}
