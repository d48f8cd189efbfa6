//! One run of a bench: a clone, this program as a child process in it, and what remains of both.
//!
//! The child is in a separate process group and receives the signals that this process passes on. If this process is
//! killed, the guard ends the child, and a later command removes the clone.

use std::{
    cell::{Cell as StateCell, RefCell},
    collections::BTreeSet,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    PromptFile,
    result::{BenchDir, Cell, FinishedRun},
};
use crate::{
    agent::private_dir::{BENCH_PREFIX, PrivateDir},
    cli::{
        args::{BenchArgs, GlobalArgs},
        exit::{CliError, Exit},
    },
    control::{CommandOrigin, RunCommand},
    engine::control_socket::ControlClient,
    group_guard,
    ingest::{instructions::PROMPTS_DIR, project_snapshot::ProjectSnapshot},
    replay::FileSource,
    report,
    run::{RunReport, bench::BenchRun, quality},
    scoped_dir::{PRIVATE_MODE, STATE_DIR, ScopedDir},
    store::RunStore,
    tape::note::attempt_output::ArtifactChange,
};

/// The prompt that a bench replaces, relative to [`PROMPTS_DIR`].
const PROMPT_FILE: &str = "work_unit.md";
/// Setting that would make runs wait for a review.
const REVIEW_VARIABLE: &str = "INGESTDECK_INGEST_REVIEW";
/// Largest artifact whose lines are compared, in bytes.
const MAX_ARTIFACT_BYTES: u64 = 4 << 20;
/// Largest part of a log that is searched for the error of a run, in bytes.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// A clone in a temporary directory, which is deleted with this value unless it is kept.
#[derive(Debug)]
pub(super) struct CloneDir {
    project: PathBuf,
    _temporary: Option<PrivateDir>,
}

impl CloneDir {
    /// Clones the project, without the runs that the commit may have.
    pub(super) fn create(snapshot: &ProjectSnapshot, is_kept: bool) -> Result<Self, CliError> {
        let failed =
            |error: std::io::Error| CliError::failed("cannot create a directory for a clone").with_cause(error);
        let (temporary, directory) = match is_kept {
            true => (None, tempfile::Builder::new().prefix("ingestdeck-kept-").tempdir().map_err(failed)?.keep()),
            false => {
                let temporary = PrivateDir::new(BENCH_PREFIX).map_err(failed)?;
                let directory = temporary.path().to_path_buf();
                (Some(temporary), directory)
            }
        };
        // The marker of the directory must not be a part of the project.
        let project = directory.join(snapshot.name());
        ScopedDir::open(&directory).and_then(|dir| dir.dir(snapshot.name(), Some(PRIVATE_MODE))).map_err(failed)?;
        snapshot.clone_into(&project).map_err(CliError::internal)?;
        ScopedDir::open(&project).and_then(|dir| dir.remove_dir_all(STATE_DIR)).map_err(failed)?;
        Ok(Self { project, _temporary: temporary })
    }

    pub(super) fn path(&self) -> &Path {
        &self.project
    }
}

/// Passes requests of the user on to the child that runs.
#[derive(Debug, Default)]
pub(super) struct ChildControl {
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
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Handles a request to drain, stop or kill.
    pub(super) async fn handle(&self, command: RunCommand) {
        self.is_stopping.set(true);
        let Some(child) = self.child.borrow().clone() else { return };
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
        let Some(run) = runs.first() else { return false };
        let origin = CommandOrigin { client: Some("bench".to_owned()), reason: None };
        match ControlClient::connect(run.id, origin).await {
            Ok(mut client) => client.execute(RunCommand::StopAll).await.is_ok(),
            Err(_) => false,
        }
    }
}

/// Starts the runs of a bench.
#[derive(Debug)]
pub(super) struct CellRunner<'a> {
    pub(super) global: &'a GlobalArgs,
    pub(super) args: &'a BenchArgs,
    pub(super) snapshot: &'a ProjectSnapshot,
    pub(super) claude: &'a Path,
    pub(super) dir: &'a BenchDir,
}

impl CellRunner<'_> {
    /// Runs a cell once, with at most `budget` US dollars.
    pub(super) async fn run(
        &self,
        (index, repeat): (usize, u32),
        cell: &Cell,
        prompt: Option<&PromptFile>,
        budget: Option<f64>,
        control: &ChildControl,
    ) -> Result<FinishedRun, CliError> {
        let clone = CloneDir::create(self.snapshot, self.args.keep)?;
        let project = ScopedDir::open(clone.path()).map_err(|error| clone_failed(&error))?;
        if let Some(prompt) = prompt {
            let path = format!("{PROMPTS_DIR}/{PROMPT_FILE}");
            project.write(&path, &prompt.text, PRIVATE_MODE, 0o600).map_err(|error| clone_failed(&error))?;
        }
        let name = format!("{}-{repeat}", index + 1);
        let (log_name, log) = self.dir.create_log(&name)?;
        let status = self.run_child(clone.path(), cell, budget, log, control).await?;
        let exit = exit_of(status);
        let recorded = RunStore::new(clone.path()).list()?.into_iter().next();
        let kept = self.args.keep.then(|| clone.path().to_path_buf());
        let Some(recorded) =
            recorded.filter(|_| matches!(exit, Some(Exit::Ok | Exit::UnitFailed | Exit::Limit | Exit::Signal(_))))
        else {
            let reason = self.dir.read_log(&log_name).unwrap_or_default();
            let error = CliError::new(
                exit.unwrap_or(Exit::Internal),
                format!("run {repeat} of cell {} ({}) failed", index + 1, cell.name()),
            );
            return Err(error.with_cause(last_error(&reason).unwrap_or_else(|| format!("it ended with {status}"))));
        };
        let exit = exit.unwrap_or(Exit::Internal);
        self.dir.remove_empty_log(&log_name);
        let tape = self.dir.copy_tape(
            &name,
            &RunStore::new(clone.path()).open_tape(&recorded).map_err(|error| clone_failed(&error))?,
        )?;
        let source = FileSource::open(&tape)?.with_shortened_lines();
        let report = report::fold_report(source, false, None)?;
        let (paths, lines) = read_artifacts(&project, &report);
        let is_complete = matches!(exit, Exit::Ok | Exit::UnitFailed);
        let run = BenchRun::new((index, repeat), is_complete, &report, paths, lines);
        Ok(FinishedRun { run, id: recorded.id, tape: format!("{name}.jsonl"), exit, clone: kept })
    }

    /// Runs this program in the clone, and waits for its end.
    async fn run_child(
        &self,
        clone: &Path,
        cell: &Cell,
        budget: Option<f64>,
        log: File,
        control: &ChildControl,
    ) -> Result<ExitStatus, CliError> {
        let failed = |error: std::io::Error| CliError::failed("cannot start a run").with_cause(error);
        let exe = std::env::current_exe().map_err(failed)?;
        // Without a guard, a child that outlives this process ends its run by itself.
        if let Err(error) = group_guard::start(&exe) {
            tracing::warn!(%error, "cannot start the group guard");
        }
        let mut command = tokio::process::Command::new(exe);
        command.args(["run", "--full", "--ui", "none", "--project-dir"]).arg(clone);
        command.arg("--claude-bin").arg(self.claude);
        if let Some(config) = &self.global.config {
            command.arg("--config").arg(std::path::absolute(config).map_err(failed)?);
        }
        for unit in &self.args.units {
            command.arg(format!("--only={unit}"));
        }
        command.args(cell.model.iter().map(|model| format!("--model={model}")));
        command.args(budget.map(|budget| format!("--max-run-budget-usd={budget}")));
        command.env(REVIEW_VARIABLE, "false").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.process_group(0).kill_on_drop(true);
        group_guard::set_parent_death_signal(command.as_std_mut(), Signal::SIGTERM);
        let mut child = command.spawn().map_err(failed)?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        pid.into_iter().for_each(group_guard::watch_command);
        *control.child.borrow_mut() = pid.map(|pid| RunningChild { pid, clone: clone.to_path_buf() });
        let status = child.wait().await;
        *control.child.borrow_mut() = None;
        pid.into_iter().for_each(group_guard::unwatch);
        status.map_err(failed)
    }
}

fn clone_failed(error: &std::io::Error) -> CliError {
    CliError::failed("cannot use a clone of the project").with_cause(error)
}

fn exit_of(status: ExitStatus) -> Option<Exit> {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).and_then(Exit::from_code);
    code.or_else(|| status.signal().and_then(|signal| u8::try_from(signal).ok()).map(Exit::Signal))
}

/// The text of the last error in a log.
fn last_error(log: &str) -> Option<String> {
    let mut lines = log.lines().rev();
    lines.find_map(|line| line.strip_prefix("error: ")).map(str::to_owned)
}

/// Paths and lines of the artifacts that a run changed, as the clone has them.
fn read_artifacts(project: &ScopedDir, report: &RunReport) -> (BTreeSet<String>, BTreeSet<(String, String)>) {
    let (mut paths, mut lines) = (BTreeSet::new(), BTreeSet::new());
    for artifact in report.artifacts.list.iter().filter(|artifact| quality::is_accepted(artifact)) {
        paths.insert(artifact.path.clone());
        if artifact.change == Some(ArtifactChange::Removed) {
            continue;
        }
        // What is not in the clone was not saved.
        let Ok(text) = project.read(&artifact.path, MAX_ARTIFACT_BYTES) else { continue };
        let text = String::from_utf8_lossy(&text);
        let written = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.extend(written.map(|line| (artifact.path.clone(), line.to_owned())));
    }
    (paths, lines)
}

/// The beginning of a log as text.
pub(super) fn read_bounded(file: File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
