//! One run of a bench: a clone, this program as a child process in it, and what remains of both.
//!
//! The child is in a separate process group and receives the signals that this process passes on. If this process is
//! killed, the guard ends the child, and a later command removes the clone.

use std::{
    cell::{Cell as StateCell, RefCell},
    collections::BTreeSet,
    fs::File,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    BenchArgs, BenchError, PromptFile,
    result::{BenchDir, Cell, FinishedRun},
    scores::BenchRun,
};
use ingestdeck_agent::private_dir::{BENCH_PREFIX, PrivateDir};
use ingestdeck_core::{
    control::{CommandOrigin, RunCommand},
    diagnostic::Problem,
    exit::Exit,
    run::{RunReport, outcome::RunOutcome, quality, report::UnitReport},
    tape::note::attempt_output::ArtifactChange,
};
use ingestdeck_engine::control_socket::ControlClient;
use ingestdeck_ingest::{instructions::PROMPTS_DIR, project_snapshot::ProjectSnapshot};
use ingestdeck_os::{
    group_guard,
    scoped_dir::{PRIVATE_MODE, STATE_DIR, ScopedDir},
};
use ingestdeck_records::{replay::FileSource, store::RunStore};
use ingestdeck_report as report;

/// The prompt that a bench replaces, relative to [`PROMPTS_DIR`].
const PROMPT_FILE: &str = "work_unit.md";
/// Setting that would make runs wait for a review.
const REVIEW_VARIABLE: &str = "INGESTDECK_INGEST_REVIEW";
/// Largest artifact whose lines are compared, in bytes.
const MAX_ARTIFACT_BYTES: u64 = 4 << 20;

/// A clone in a temporary directory, which is deleted with this value unless it is kept.
#[derive(Debug)]
pub struct CloneDir {
    project: PathBuf,
    _temporary: Option<PrivateDir>,
}

impl CloneDir {
    /// Clones the project, without the runs that the commit may have.
    pub fn create(snapshot: &ProjectSnapshot, is_kept: bool) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| {
            BenchError::failed("cannot create a directory for a clone", error)
        };
        let (temporary, directory) = match is_kept {
            true => (
                None,
                tempfile::Builder::new()
                    .prefix("ingestdeck-kept-")
                    .tempdir()
                    .map_err(failed)?
                    .keep(),
            ),
            false => {
                let temporary = PrivateDir::new(BENCH_PREFIX).map_err(failed)?;
                let directory = temporary.path().to_path_buf();
                (Some(temporary), directory)
            }
        };
        // The marker of the directory must not be a part of the project.
        let project = directory.join(snapshot.name());
        ScopedDir::open(&directory)
            .and_then(|dir| dir.dir(snapshot.name(), Some(PRIVATE_MODE)))
            .map_err(failed)?;
        snapshot.clone_into(&project)?;
        ScopedDir::open(&project)
            .and_then(|dir| dir.remove_dir_all(STATE_DIR))
            .map_err(failed)?;
        Ok(Self {
            project,
            _temporary: temporary,
        })
    }

    pub fn path(&self) -> &Path {
        &self.project
    }
}

/// Passes requests of the user on to the child that runs.
#[derive(Debug, Default)]
pub struct ChildControl {
    child: RefCell<Option<RunningChild>>,
    is_stopping: StateCell<bool>,
}

/// A child and the clone that it works in.
#[derive(Clone, Debug)]
struct RunningChild {
    pid: Pid,
    clone: PathBuf,
}

impl ChildControl {
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Handles a request to drain, stop or kill.
    pub async fn handle(&self, command: RunCommand) {
        self.is_stopping.set(true);
        let Some(child) = self.child.borrow().clone() else {
            return;
        };
        let signal = match command {
            RunCommand::KillAll => Signal::SIGTERM,
            // Two signals of the same kind may arrive as one.
            RunCommand::StopAll if child.stop().await => return,
            _ => Signal::SIGINT,
        };
        // A child that has ended needs no signal.
        let _ = kill(child.pid, signal);
    }
}

impl RunningChild {
    /// Sends the request to stop to the engine of the run. False if it cannot be reached.
    async fn stop(&self) -> bool {
        let runs = RunStore::new(&self.clone).list().unwrap_or_default();
        let Some(run) = runs.first() else {
            return false;
        };
        let origin = CommandOrigin {
            client: Some("bench".to_owned()),
            reason: None,
        };
        match ControlClient::connect(run.id, origin).await {
            Ok(mut client) => client.execute(RunCommand::StopAll).await.is_ok(),
            Err(_) => false,
        }
    }
}

/// What one run of a bench may cost, in US dollars.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchRunBudget {
    /// No attempt starts after the run has spent this.
    run: f64,
    /// Claude Code ends an attempt after this.
    attempt: f64,
}

impl BenchRunBudget {
    /// At most `left` for a run in which at most `slots` units are active.
    pub(crate) fn new(left: f64, slots: usize) -> Self {
        let slots = u32::try_from(slots.max(1)).unwrap_or(u32::MAX);
        Self {
            run: left,
            attempt: left / f64::from(slots),
        }
    }

    /// True if the cost of an attempt reached its budget, so the attempt may have done less than it would have.
    fn has_cut(self, report: &RunReport) -> bool {
        let mut attempts = report.units.iter().flat_map(|unit| &unit.attempts);
        attempts.any(|attempt| {
            attempt
                .state
                .counts
                .cost_usd
                .is_some_and(|cost| cost >= self.attempt)
        })
    }
}

/// What the tape of a run shows.
#[derive(Debug)]
struct TapedRun {
    finished: FinishedRun,
    /// True if the cost limit of the bench cut an attempt short.
    is_cut: bool,
    /// How a person can fix the first unit that failed, if known.
    remedy: Option<String>,
}

/// A run whose process has ended.
#[derive(Debug)]
pub(crate) struct EndedRun {
    /// `None` if it recorded nothing.
    pub finished: Option<FinishedRun>,
    pub cause: RunEnd,
}

/// Why a run ended.
#[derive(Debug)]
pub(crate) enum RunEnd {
    /// It came to its end, with or without success.
    Finished,
    Limit,
    /// A person stopped it.
    Interrupted,
    /// No further run would be better.
    Failed(BenchError),
}

/// Starts the runs of a bench.
#[derive(Debug)]
pub struct CellRunner<'a> {
    /// The settings file that the user names.
    pub config: Option<&'a Path>,
    pub args: &'a BenchArgs,
    pub snapshot: Arc<ProjectSnapshot>,
    /// The file with the rules of the project, which may not be committed.
    /// A file that every clone gets, and its content.
    pub rules: Option<(String, Vec<u8>)>,
    pub claude: &'a Path,
    pub dir: &'a BenchDir,
}

impl CellRunner<'_> {
    /// Runs a cell once. `None` if the user stopped the bench before.
    pub(crate) async fn run(
        &self,
        (index, repeat): (usize, u32),
        cell: &Cell,
        prompt: Option<&PromptFile>,
        budget: Option<BenchRunBudget>,
        control: &ChildControl,
    ) -> Result<Option<EndedRun>, BenchError> {
        let (snapshot, is_kept) = (Arc::clone(&self.snapshot), self.args.keep);
        // Signals are handled meanwhile.
        let created =
            tokio::task::spawn_blocking(move || CloneDir::create(&snapshot, is_kept)).await;
        let clone = created.map_err(std::io::Error::other)??;
        if control.is_stopping() {
            return Ok(None);
        }
        let project = ScopedDir::open(clone.path()).map_err(|error| clone_failed(&error))?;
        let prompt = prompt.map(|prompt| (format!("{PROMPTS_DIR}/{PROMPT_FILE}"), &prompt.text));
        let rules = self
            .rules
            .as_ref()
            .map(|(file, rules)| (file.clone(), rules));
        for (path, text) in prompt.into_iter().chain(rules) {
            project
                .write(&path, text, PRIVATE_MODE, 0o600)
                .map_err(|error| clone_failed(&error))?;
        }
        let name = format!("{}-{repeat}", index + 1);
        let (log_name, log) = self.dir.create_log(&name)?;
        let status = self
            .run_child(clone.path(), cell, budget, log, control)
            .await?;
        let exit = exit_of(status);
        let recorded = self.read_run((index, repeat), &name, &clone, exit, budget)?;
        let is_cut = recorded.as_ref().is_some_and(|run| run.is_cut);
        let cause = match exit {
            Some(Exit::Ok | Exit::UnitFailed) if !is_cut => RunEnd::Finished,
            Some(Exit::Ok | Exit::UnitFailed | Exit::Limit) => RunEnd::Limit,
            _ if control.is_stopping() => RunEnd::Interrupted,
            // Another client stopped it. A process that a signal killed has no exit code.
            Some(Exit::Signal(_)) if status.code().is_some() => RunEnd::Interrupted,
            _ => {
                let log = self.dir.read_log(&log_name).unwrap_or_default();
                let message = format!(
                    "run {repeat} of cell {} ({}) failed",
                    index + 1,
                    cell.name()
                );
                let kept = is_kept.then(|| format!(" (kept in {})", clone.path().display()));
                let error = failure(
                    (message, kept.unwrap_or_default()),
                    status,
                    &log,
                    recorded.as_ref(),
                );
                RunEnd::Failed(error)
            }
        };
        self.dir.remove_empty_log(&log_name);
        Ok(Some(EndedRun {
            finished: recorded.map(|run| run.finished),
            cause,
        }))
    }

    /// Copies the tape of a run and scores it; `None` without a tape.
    fn read_run(
        &self,
        place: (usize, u32),
        name: &str,
        clone: &CloneDir,
        exit: Option<Exit>,
        budget: Option<BenchRunBudget>,
    ) -> Result<Option<TapedRun>, BenchError> {
        let store = RunStore::new(clone.path());
        let Some(recorded) = store.list()?.into_iter().next() else {
            return Ok(None);
        };
        let recorded_tape = store
            .open_tape(&recorded)
            .map_err(|error| clone_failed(&error))?;
        let tape = self.dir.copy_tape(name, &recorded_tape)?;
        let source = FileSource::open(&tape)?.with_shortened_lines();
        let report = report::fold_report(source, false, None)?;
        let project = ScopedDir::open(clone.path()).map_err(|error| clone_failed(&error))?;
        let (paths, lines) = read_artifacts(&project, &report);
        let mut run = BenchRun::new(place, &report, paths, lines);
        let is_cut = budget.is_some_and(|budget| budget.has_cut(&report));
        run.is_complete &= matches!(exit, Some(Exit::Ok | Exit::UnitFailed)) && !is_cut;
        let kept = self.args.keep.then(|| clone.path().to_path_buf());
        let reason = if run.is_complete {
            None
        } else {
            Some(incomplete_reason(&report, is_cut))
        };
        let (id, tape, exit) = (
            recorded.id,
            format!("{name}.jsonl"),
            exit.unwrap_or(Exit::Internal),
        );
        let remedy = failed_unit(&report).and_then(|unit| unit.remedy.clone());
        Ok(Some(TapedRun {
            finished: FinishedRun {
                run,
                id,
                tape,
                exit,
                reason,
                clone: kept,
            },
            is_cut,
            remedy,
        }))
    }

    /// Runs this program in the clone, and waits for its end.
    async fn run_child(
        &self,
        clone: &Path,
        cell: &Cell,
        budget: Option<BenchRunBudget>,
        log: File,
        control: &ChildControl,
    ) -> Result<ExitStatus, BenchError> {
        let failed = |error: std::io::Error| BenchError::failed("cannot start a run", error);
        let exe = std::env::current_exe().map_err(failed)?;
        // Without a guard, a child that outlives this process ends its run by itself.
        if let Err(error) = group_guard::start(&exe) {
            tracing::warn!(%error, "cannot start the group guard");
        }
        let mut command = tokio::process::Command::new(exe);
        command
            .args(["run", "--full", "--ui", "none", "--project-dir"])
            .arg(clone);
        command.arg("--claude-bin").arg(self.claude);
        if let Some(config) = self.config {
            command
                .arg("--config")
                .arg(std::path::absolute(config).map_err(failed)?);
        }
        for unit in &self.args.units {
            command.arg(format!("--only={unit}"));
        }
        command.args(cell.model.iter().map(|model| format!("--model={model}")));
        if let Some(BenchRunBudget { run, attempt }) = budget {
            command.args([
                format!("--max-run-budget-usd={run}"),
                format!("--max-budget-usd={attempt}"),
            ]);
        }
        command
            .env(REVIEW_VARIABLE, "false")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command.process_group(0).kill_on_drop(true);
        group_guard::set_parent_death_signal(command.as_std_mut(), Signal::SIGTERM);
        let mut child = command.spawn().map_err(failed)?;
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .map(Pid::from_raw);
        pid.into_iter().for_each(group_guard::watch_command);
        *control.child.borrow_mut() = pid.map(|pid| RunningChild {
            pid,
            clone: clone.to_path_buf(),
        });
        let status = child.wait().await;
        *control.child.borrow_mut() = None;
        pid.into_iter().for_each(group_guard::unwatch);
        status.map_err(failed)
    }
}

fn clone_failed(error: &std::io::Error) -> BenchError {
    BenchError::failed("cannot use a clone of the project", error)
}

fn exit_of(status: ExitStatus) -> Option<Exit> {
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .and_then(Exit::from_code);
    code.or_else(|| {
        status
            .signal()
            .and_then(|signal| u8::try_from(signal).ok())
            .map(Exit::Signal)
    })
}

/// The text of the last error in a log, and its help.
fn last_error(log: &str) -> (Option<String>, Option<String>) {
    let mut found = (None, None);
    for line in log.lines() {
        if let Some(error) = line.strip_prefix("error: ") {
            found = (Some(error.to_owned()), None);
        } else if let (Some(_), Some(help)) = (&found.0, line.strip_prefix("help: ")) {
            found.1 = Some(help.to_owned());
        }
    }
    found
}

/// The error of a run that ended with `status`, which `log` or else its tape explains.
fn failure(
    (message, place): (String, String),
    status: ExitStatus,
    log: &str,
    recorded: Option<&TapedRun>,
) -> BenchError {
    let exit = exit_of(status).unwrap_or(Exit::Internal);
    let (exit, cause, help) = match (status.code(), status.signal()) {
        (None, Some(signal)) => {
            let name = Signal::try_from(signal)
                .map_or_else(|_| format!("signal {signal}"), |it| it.to_string());
            let help = "see whether memory is short, which makes the system kill processes";
            (
                Exit::Internal,
                Some(format!("{name} ended its process")),
                Some(help.to_owned()),
            )
        }
        _ => match last_error(log) {
            (None, _) => recorded.map_or((exit, None, None), |run| {
                (exit, run.finished.reason.clone(), run.remedy.clone())
            }),
            (cause, help) => (exit, cause, help),
        },
    };
    let cause = cause.unwrap_or_else(|| format!("it ended with {status}"));
    let problem = Problem::new(format!("{message}: {cause}{place}"));
    BenchError::new(
        exit,
        match help {
            Some(help) => problem.with_help(help),
            None => problem,
        },
    )
}

/// The first unit that has no success, although it ran.
fn failed_unit(report: &RunReport) -> Option<&UnitReport> {
    report
        .units
        .iter()
        .find(|unit| !unit.is_successful() && unit.reason.is_some())
}

/// Why a run does not count.
fn incomplete_reason(report: &RunReport, is_cut: bool) -> String {
    if is_cut {
        return "an attempt reached its part of the cost limit".to_owned();
    }
    let saving = report
        .publication
        .save_error
        .as_deref()
        .map(|error| format!("not saved: {error}"));
    let ended_by_agent = matches!(
        report.outcome,
        RunOutcome::AgentUnusable | RunOutcome::Limit
    );
    let of_unit = || {
        failed_unit(report)
            .filter(|_| ended_by_agent)
            .and_then(|unit| unit.reason.clone())
    };
    let last = || {
        report
            .log
            .messages
            .last()
            .map(|(_, message)| message.clone())
    };
    saving
        .or_else(of_unit)
        .or_else(last)
        .unwrap_or_else(|| format!("its outcome is {}", report.outcome.as_str()))
}

/// Paths and lines of the artifacts that a run changed, as the clone has them.
fn read_artifacts(
    project: &ScopedDir,
    report: &RunReport,
) -> (BTreeSet<String>, BTreeSet<(String, String)>) {
    let (mut paths, mut lines) = (BTreeSet::new(), BTreeSet::new());
    for artifact in report
        .artifacts
        .list
        .iter()
        .filter(|artifact| quality::is_accepted(report, artifact))
    {
        paths.insert(artifact.path.clone());
        if artifact.change == Some(ArtifactChange::Removed) {
            continue;
        }
        // What is not in the clone was not saved.
        let Ok(text) = project.read(&artifact.path, MAX_ARTIFACT_BYTES) else {
            continue;
        };
        let text = String::from_utf8_lossy(&text);
        let written = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.extend(written.map(|line| (artifact.path.clone(), line.to_owned())));
    }
    (paths, lines)
}
