//! A run, from its plan to its exit code: the tape, the schedule, the agents, and whatever shows them.

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
    args::{Global, Ui},
    drive::{BrokenOff, Drive, Executor},
    execute::{Agent, Attempts, Ground, PassTerms, Terms},
    exit::{Exit, Failure},
    fuse::Fuse,
    gate::Holds,
    ground::Prepared,
    meter::Meter,
    output, replay, resume, runs, screen, show,
    show::Plain,
    signals::{self, Signals, Will},
    summary::{self, Next, Summary},
    tap::Tap,
    trace::Tracing,
};
use crate::{
    claude::{private_dir, process},
    config::Config,
    group_guard,
    ingest::{
        self,
        attempt::Job,
        plan::Planned,
        project::{Project, RateLimit},
        reconcile::RECONCILE,
        stage,
        worktree::Worktrees,
    },
    program_path,
    replay::{FileSource, file::Finish},
    run::{Item, Recorder, Timeline, source::RecordError},
    store::{Runs, TapeWriter, retention},
    tape::{
        Body, FORMAT, Header, Note, RunId, UnitKey,
        note::{Continues, Level, RunEnded, RunPlanned},
    },
    tui,
    units::{
        governor::Pacing,
        retry::RetryPolicy,
        schedule::{FailureMode, Input, Schedule, Settings},
    },
};

/// Inputs of a person, of signals and of the service that may wait for the schedule.
const INPUTS: usize = 256;

/// How long the runtime waits for what cannot be stopped.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What is to be run, and how.
#[derive(Debug)]
pub struct Launch {
    /// The project.
    pub project: Project,
    /// Its units.
    pub planned: Planned,
    /// The earlier run that it goes on with.
    pub continues: Option<Continues>,
    /// Who plays the model.
    pub agent: Agent,
    /// What holds for every attempt.
    pub terms: Terms,
    /// Units at once.
    pub slots: u32,
    /// Settings in force.
    pub config: Config,
    /// What becomes of the record.
    pub fate: Fate,
    /// Units that are held from the beginning.
    pub held: Vec<UnitKey>,
    /// Where it writes.
    pub ground: Prepared,
    /// The pass over what the units wrote, where one is wanted and the ground can have one.
    pub reconcile: Option<PassTerms>,
    /// Sentences for whoever begins to look.
    pub told: Vec<String>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code.
    pub exit: Exit,
    /// Totals.
    pub summary: Summary,
}

impl Launch {
    fn failure_mode(&self) -> FailureMode {
        FailureMode::parse(self.project.settings.work_units.failure_mode.as_str()).unwrap_or_default()
    }

    fn schedule(&self, integrates: bool) -> Schedule {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let settings = Settings {
            failure_mode: self.failure_mode(),
            retry: retry_policy(&self.config),
            integrates,
            budget_usd: self.terms.run_budget_usd,
            pacing: pacing(&self.project.settings.rate_limit),
            ..Settings::new(self.slots, u32::try_from(cores).unwrap_or(u32::MAX))
        };
        let schedule =
            Schedule::new(self.planned.units.iter().map(|unit| unit.planned.unit.clone()).collect(), settings)
                .reusing(resume::reused(self.continues.as_ref()))
                .with_patches_of(resume::patches(self.continues.as_ref()).map(|(unit, _)| unit));
        match self.reconcile.as_ref().filter(|_| integrates) {
            Some(pass) => schedule.reconciling(RECONCILE.into(), pass.is_due()),
            None => schedule,
        }
    }

    fn plan_notes(&self, job: &Job) -> Vec<Note> {
        let plan = Note::RunPlanned(Box::new(RunPlanned {
            job: job.id.clone(),
            units: self.planned.units.iter().map(|unit| unit.planned.clone()).collect(),
            skipped: self.planned.skipped.clone(),
            concurrency: self.slots,
            step_budget: self.terms.step_budget,
            failure_mode: self.failure_mode().word().to_owned(),
            tool_failures: self.terms.rule.word().to_owned(),
            model: self.terms.model.clone(),
            scripted: self.agent.is_scripted(),
            run_budget_usd: self.terms.run_budget_usd,
            instructions: self.project.instructions.overrides.iter().map(ToString::to_string).collect(),
            continues: self.continues.clone(),
            silence_after_ms: u64::try_from(self.terms.silence_after.as_millis()).ok(),
            selection: Some(self.planned.selection.clone()),
        }));
        let read = self.planned.sources.iter().map(|source| Note::SourceRead(Box::new(source.note())));
        // Who reads the record later has to know of files that were left out.
        let left_out = self.planned.warnings.iter();
        let left_out = left_out.map(|text| Note::Said { level: Level::Warning, text: text.clone() });
        std::iter::once(plan).chain(read).chain(left_out).collect()
    }
}

/// The jitter differs from run to run; its seed is all that does.
fn pacing(limits: &RateLimit) -> Pacing {
    let seed = || Timestamp::now().as_nanosecond().unsigned_abs() as u64;
    Pacing {
        enabled: limits.enabled,
        threshold: limits.throttle_threshold,
        slots_under_pressure: limits.min_concurrency_under_pressure,
        max_wait_ms: limits.max_wait_ms.map(u64::from),
        max_attempts: limits.retry.max_attempts,
        base_delay_ms: limits.retry.base_delay_ms.into(),
        max_delay_ms: limits.retry.max_delay_ms.into(),
        jitter: limits.retry.jitter.then(seed),
    }
}

/// Runs it.
///
/// # Errors
/// When the run cannot be recorded or shown. What runs has been ended by then.
pub fn launch(global: &Global, mut launch: Launch) -> Result<Outcome, Failure> {
    let stage = Stage {
        global,
        config: &launch.config,
        runs: Runs::of_project(&launch.project.root),
        name: launch.project.root.file_name().map(|name| name.to_string_lossy().into_owned()),
        scripted: launch.agent.is_scripted(),
        fate: launch.fate.clone(),
        held: Some(launch.held.clone()),
        told: std::mem::take(&mut launch.told),
    };
    let now = Timestamp::now();
    let job = Job::at(now);
    let _staged = stage::stage(&launch.project.root, &job, &mut launch.planned).map_err(Failure::internal)?;
    let reused: HashSet<&UnitKey> = resume::reused(launch.continues.as_ref()).collect();
    let projections = launch.planned.due_projections(|unit| reused.contains(unit));
    let schedule = launch.schedule(launch.ground.branch.is_some()).projecting(!projections.is_empty());
    let plan = launch.plan_notes(&job);
    let project = Arc::new(launch.project);
    // The lock is held until the run is over.
    let Prepared { lock: _lock, branch } = launch.ground;
    let diff = launch.planned.diff().to_string();
    let (agent, terms, continues) = (launch.agent, launch.terms, launch.continues);
    let reconcile = launch.reconcile;
    let locks = runs::locks(&stage.runs, stage.scripted);
    stage.perform(now, schedule, &plan, |recorder, holds, directory| {
        let ground = match branch {
            Some((repository, head)) => Ground::Worktrees(Worktrees::new(repository, &job.id, &head.commit)),
            None => Ground::Overlay(directory.join(retention::WORK)),
        };
        let units = &launch.planned.units;
        let attempts = Attempts::new(project, units, diff, job, ground, agent, terms, recorder, holds, locks);
        attempts.taking_over(resume::patches(continues.as_ref())).reconciling(reconcile).projecting(projections)
    })
}

/// Automatic retries, as the settings want them.
pub fn retry_policy(config: &Config) -> RetryPolicy {
    let retry = &config.retry;
    RetryPolicy {
        max_retries: *retry.max_retries,
        initial_delay_ms: *retry.initial_delay_ms,
        factor: *retry.factor,
        max_delay_ms: *retry.max_delay_ms,
    }
}

/// From now on child processes end with this one, also when it is killed.
pub fn guard_children() {
    let guarded = std::env::current_exe().and_then(|exe| group_guard::start(&exe));
    if let Err(error) = guarded {
        tracing::warn!(%error, "what agents and git have started is not ended if this process is killed");
    }
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Commands of the project find it.
    Project {
        /// Value of `--project-dir` that leads there, unless the way is known.
        flag: Option<PathBuf>,
    },
    /// Only its path finds it.
    Path,
    /// It goes with its directory.
    Gone,
}

/// Where and how a run is recorded and shown, whatever its attempts are.
#[derive(Debug)]
pub struct Stage<'a> {
    /// Flags.
    pub global: &'a Global,
    /// Settings in force.
    pub config: &'a Config,
    /// Where its record goes.
    pub runs: Runs,
    /// Name for people.
    pub name: Option<String>,
    /// A script plays the model.
    pub scripted: bool,
    /// What becomes of the record.
    pub fate: Fate,
    /// Units that are held from the beginning; `None` where calls cannot be held.
    pub held: Option<Vec<UnitKey>>,
    /// Sentences for whoever begins to look at the screen.
    pub told: Vec<String>,
}

impl Stage<'_> {
    /// Runs `schedule` with the executor that `make` builds around the recorder, the holds and the run's directory.
    ///
    /// # Errors
    /// When the run cannot be recorded or shown. What runs has been ended by then.
    pub fn perform<E: Executor>(
        &self,
        now: Timestamp,
        schedule: Schedule,
        plan: &[Note],
        make: impl FnOnce(Arc<dyn Recorder>, Arc<Holds>, &Path) -> E,
    ) -> Result<Outcome, Failure> {
        private_dir::sweep();
        guard_children();
        // One beside the caller's: two would wake each other up for every line, which costs more than it brings.
        let runtime = screen::runtime(1)?;
        let result = runtime.block_on(self.run(now, schedule, plan, make));
        // Nobody may outlive us, whatever went wrong. A tool that never returns would hold the runtime for ever.
        process::kill_all();
        runtime.shutdown_timeout(LAST_WORDS);
        result
    }

    /// The newest run that the new one has to come after.
    fn newest_run(&self, now: Timestamp) -> Option<RunId> {
        const DAY_MS: u64 = 86_400_000;
        let latest = u64::try_from(now.as_millisecond()).unwrap_or_default().saturating_add(DAY_MS);
        let project = self.runs.root().ancestors().nth(2);
        let is_ours = |id: RunId| project.is_some_and(|project| ingest::is_run_marked(project, id));
        // Without a list, `latest` means nothing either.
        self.runs.newest(latest, is_ours).ok()?
    }

    async fn run<E: Executor>(
        &self,
        now: Timestamp,
        schedule: Schedule,
        plan: &[Note],
        make: impl FnOnce(Arc<dyn Recorder>, Arc<Holds>, &Path) -> E,
    ) -> Result<Outcome, Failure> {
        let ui = show::resolve(self.global.ui);
        let options = if ui == Ui::Tui {
            let options = super::settings::screen(self.global, self.config)?;
            Some(tui::Options { can_hold: self.held.is_some(), told: self.told.clone(), ..options })
        } else {
            None
        };
        let new = self
            .runs
            .create_after(self.newest_run(now), |run| Header {
                tape: FORMAT,
                program: concat!("ingestdeck ", env!("CARGO_PKG_VERSION")).into(),
                run,
                started_at: now,
                project: self.name.clone(),
                scripted: self.scripted,
            })
            .map_err(Failure::internal)?;
        let (id, directory) = (new.id, new.directory.clone());
        if let Some(project) = self.runs.root().ancestors().nth(2)
            && let Err(error) = ingest::mark_run(project, id)
        {
            tracing::warn!(%error, "the record is not marked as written here; later plans will say so");
        }
        let (tape, lock) = new.into_parts();
        let tape = Arc::new(tape);
        plan.iter().try_for_each(|plan| note(&tape, plan)).map_err(Failure::internal)?;
        let (source, finish) = FileSource::follow(tape.path()).map_err(|error| replay::failure(&error))?;
        let timeline = Timeline::new(Box::new(replay::for_ui(source, ui)));

        let tracing = self.trace(&tape);
        let (inputs, received) = mpsc::channel(INPUTS);
        let fuse = Arc::new(Fuse::new(Arc::clone(&tape) as _));
        let recorder: Arc<dyn Recorder> = Arc::clone(&fuse) as _;
        let meter = Arc::new(Meter::default());
        let tap = Arc::new(Tap::new(Arc::clone(&recorder), inputs.downgrade(), Arc::clone(&meter)));
        let holds = Arc::new(Holds::new(Arc::clone(&recorder), meter));
        self.held.iter().flatten().for_each(|unit| holds.hold(unit));
        let executor = Arc::new(make(tap, Arc::clone(&holds), &directory));
        let drive = Drive::new(schedule, executor, recorder).run(received, options.is_some(), fuse.blown());
        let will = if self.held.is_some() { Will::default() } else { Will::at_work() };
        let view = View { timeline, changed: tape.subscribe(), finish, will };
        let outcome = match options {
            Some(options) => on_screen(options, view, drive, inputs, holds).await,
            None => plainly(self.global, ui, view, drive, inputs).await,
        };
        let outcome = outcome.map_err(|failure| self.recorded_all_the_same(failure, tape.path()));
        if let Ok(outcome) = &outcome
            && matches!(ui, Ui::Tui | Ui::Lines)
        {
            self.say_next(&outcome.summary, tape.path(), &id.short().to_string());
        }
        if let Ok(Outcome { exit: Exit::Limit, .. }) = outcome
            && matches!(ui, Ui::Json | Ui::None)
            && matches!(self.fate, Fate::Project { .. })
        {
            // Whoever reads no text is told as well, where it does not disturb.
            let flag = self.global.project_dir.as_deref();
            show::tell(&format!("ingestdeck: stopped by a limit; `{}` goes on", summary::resume(flag, &id.short())));
        }
        if let Some(tracing) = tracing
            && let Err(error) = tracing.finish().await
        {
            tracing::warn!(%error, "the trace is not complete");
        }
        // Empty unless something could not be cleared away, which then is worth keeping.
        let _ = std::fs::remove_dir(directory.join(retention::WORK));
        drop(lock);
        runs::index_quietly(&self.runs);
        outcome
    }
}

impl Stage<'_> {
    /// KTX's trace beside the record of a project's run. Nothing depends on it.
    fn trace(&self, tape: &TapeWriter) -> Option<Tracing> {
        let project = self.runs.root().parent().and_then(Path::parent)?;
        let traced = Tracing::follow(tape.path(), project, tape.subscribe());
        traced.inspect_err(|error| tracing::warn!(%error, "the run is not traced")).ok()
    }

    /// Whoever stopped reading must know that the run did not stop.
    fn recorded_all_the_same(&self, failure: Failure, tape: &Path) -> Failure {
        match (failure.exit, &self.fate) {
            (Exit::Signal(show::BROKEN_PIPE), Fate::Project { .. } | Fate::Path) => Failure {
                message: format!("{}; the run went on, and is recorded in {}", failure.message, tape.display()),
                ..failure
            },
            _ => failure,
        }
    }

    /// Advice, not a result: how the run ended must not depend on whether anybody takes it.
    fn say_next(&self, summary: &Summary, tape: &Path, run: &str) {
        let next = match &self.fate {
            Fate::Gone => Next::Gone,
            Fate::Path => Next::Replay(tape),
            Fate::Project { flag } => Next::Project { tape, flag: flag.as_deref(), run, retry: !self.scripted },
        };
        let _ = output::stdout().write_linked(&summary.next_steps(next), tape);
    }
}

struct View {
    timeline: Timeline,
    changed: watch::Receiver<u64>,
    finish: Finish,
    /// What is wanted of it from the beginning.
    will: Will,
}

type Ended = Result<RunEnded, BrokenOff>;

/// The run and the screen side by side. Leaving the screen ends the run.
async fn on_screen(
    options: tui::Options,
    view: View,
    drive: impl Future<Output = Ended> + Send + 'static,
    inputs: mpsc::Sender<Input>,
    holds: Arc<Holds>,
) -> Result<Outcome, Failure> {
    let View { timeline, changed, finish, .. } = view;
    let (tell, broken) = oneshot::channel();
    let driving = tokio::spawn(async move {
        let ended = drive.await;
        if let Err(error) = &ended {
            // What is on the tape is all there will be. The screen may be gone, and knows then.
            finish.finish();
            let _ = tell.send(error.to_string());
        }
        (ended, finish)
    });
    // Beside the agents and not in the thread that waits for all this: waking that one for each frame costs more.
    let shown = tokio::spawn(screen::live(options, timeline, inputs.clone(), holds, changed, broken)).await;
    let left = shown.map_err(Failure::internal).flatten();
    // A screen that broke must not leave agents running behind nobody's back.
    let (last, will) = match &left {
        Ok(left) if left.how == tui::Left::Quit => (Input::StopAll, Will::stopped()),
        _ => (Input::KillAll, Will::killed()),
    };
    // The screen listened until now, and nobody does after it.
    let signals = Signals::listen()?;
    say_goodbye(&left);
    let ending = async {
        // Nobody listens once the run is over.
        let _ = inputs.send(last).await;
        drop(inputs);
        driving.await
    };
    // The run takes no orders any more.
    let (ended, heard) = signals.until(will, ending, async |_| process::kill_all()).await?;
    let (ended, finish) = ended.map_err(Failure::internal)?;
    finish.finish();
    let left = left?;
    let (summary, _) = screen::leave_summary(left.timeline)?;
    ended.map_err(Failure::internal)?;
    let exit = |again| screen::after(&left.how, summary.exit_after(left.interrupted || again));
    Ok(Outcome { exit: signals::exit_of(heard, exit), summary })
}

/// Whoever leaves while units run would otherwise wait for nothing in sight.
fn say_goodbye(left: &Result<tui::Exit, Failure>) {
    let Ok(left) = left else { return };
    let units = left.timeline.present().units.iter();
    let running = units.filter(|unit| unit.status.is_in_flight()).count();
    if running > 0 && left.how == tui::Left::Quit {
        show::tell(&format!("stopping {}; Ctrl-C kills what runs", summary::counted(running, "unit")));
    }
}

/// The run, with lines, JSON or nothing about it.
async fn plainly(
    global: &Global,
    ui: Ui,
    view: View,
    drive: impl Future<Output = Ended> + Send + 'static,
    inputs: mpsc::Sender<Input>,
) -> Result<Outcome, Failure> {
    let View { mut timeline, changed, finish, will } = view;
    let signals = Signals::listen()?;
    let (complete, is_complete) = oneshot::channel();
    let driving = tokio::spawn(async move {
        let ended = drive.await;
        finish.finish();
        // Nobody listens when stdout was closed before.
        let _ = complete.send(());
        ended
    });
    let origin = timeline.source().origin().clone();
    let mut sink = Plain::new(ui, global, &origin);
    // Beside the agents and not in the thread that waits for all this: waking that one for each line costs more.
    let showing = tokio::spawn(async move {
        let shown = show::follow(&mut timeline, &mut sink, changed, is_complete).await;
        (timeline, sink, shown)
    });
    // Nobody may be reading any more, but the run goes on: its record is what counts.
    let ending = async { (showing.await, driving.await) };
    // Nobody listens any more once the run is over.
    let order = async |input| drop(inputs.send(input).await);
    let ((shown, ended), heard) = signals.until(will, ending, order).await?;
    let (mut timeline, sink, shown) = shown.map_err(Failure::internal)?;
    let ended = ended.map_err(Failure::internal)?;
    timeline.seek(u64::MAX).map_err(Failure::internal)?;
    let state = &timeline.story().state;
    let summary = Summary::of(state);
    shown?;
    sink.end(&origin, state, false)?;
    ended.map_err(Failure::internal)?;
    Ok(Outcome { exit: signals::exit_of(heard, |interrupted| summary.exit_after(interrupted)), summary })
}

fn note(recorder: &TapeWriter, note: &Note) -> Result<(), RecordError> {
    let json = note.to_json();
    recorder.record(&[Item { lane: None, body: Body::Note(&json) }])
}

/// The step that finds the agent of a run.
///
/// # Errors
/// When there is no such program.
pub fn find_claude(global: &Global) -> Result<std::path::PathBuf, Failure> {
    const INSTALL: &str = "install it with `npm install -g @anthropic-ai/claude-code` and run `claude` once to sign in, or name it with --claude-bin";
    if let Some(given) = &global.claude_bin {
        // A bare name would be looked up in the PATH, and a relative path where the agent works.
        let given = std::path::absolute(given).map_err(Failure::internal)?;
        let given_is = given.display();
        return match (program_path::is_program(&given), given.symlink_metadata().is_ok()) {
            (true, _) => Ok(given),
            (false, true) => Err(Failure::new(Exit::Setup, format!("{given_is} cannot be executed; {INSTALL}"))),
            (false, false) => Err(Failure::new(Exit::Setup, format!("there is no program {given_is}; {INSTALL}"))),
        };
    }
    program_path::find("claude").ok_or_else(|| {
        let skipped = program_path::skipped_note();
        Failure::new(Exit::Setup, format!("claude is not on the PATH; {INSTALL}{skipped}"))
    })
}
