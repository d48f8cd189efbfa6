//! The directory of a bench: its tapes, its logs and the file with its results. It must not know how runs are started.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    BenchError,
    scores::{self, BenchFigure, BenchRun, Estimate},
};
use ingestdeck_core::{diagnostic::Problem, exit::Exit, tape::RunId};
use ingestdeck_ingest::git::CommitId;
use ingestdeck_os::scoped_dir::{self, PRIVATE_MODE, STATE_DIR, ScopedDir};

/// Largest part of a log that is searched for the error of a run, in bytes.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Directory of all benches, relative to the state directory of the project.
const BENCHES_DIR: &str = "bench";

pub const RESULT_FILE: &str = "result.json";
/// Version of the file and of the JSON lines.
pub const VERSION: u64 = 1;

/// A model and a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// `None` for the model of the project.
    pub model: Option<String>,
    /// Name of the prompt file; `None` for the prompt of the project.
    pub prompt: Option<String>,
    /// Index of the prompt in the plan.
    pub prompt_index: usize,
}

impl Cell {
    /// Its name for people.
    pub fn name(&self) -> String {
        let model = self.model.as_deref().unwrap_or("default model");
        match &self.prompt {
            Some(prompt) => format!("{model}, {prompt}"),
            None => model.to_owned(),
        }
    }

    pub fn to_json(&self, index: usize) -> Value {
        json!({"cell": index + 1, "model": self.model, "prompt": self.prompt})
    }
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    pub run: BenchRun,
    pub id: RunId,
    /// Name of its tape in the directory of the bench.
    pub tape: String,
    pub exit: Exit,
    /// Why it is not complete, if a reason is known.
    pub reason: Option<String>,
    /// Its clone, if clones are kept.
    pub clone: Option<PathBuf>,
}

impl FinishedRun {
    pub fn to_json(&self) -> Value {
        let run = &self.run;
        let mut value = json!({
            "cell": run.cell + 1, "repeat": run.repeat, "run": self.id.to_string(), "tape": self.tape,
            "exit": self.exit.code(), "complete": run.is_complete, "units": run.units,
            "succeeded": run.succeeded_units,
        });
        let figures = BenchFigure::all()
            .filter(|it| !matches!(it, BenchFigure::Agreement | BenchFigure::PathAgreement));
        value["figures"] = figures
            .map(|figure| {
                (
                    figure.key().to_owned(),
                    json!(run.value(figure).map(scores::rounded)),
                )
            })
            .collect();
        value["artifacts"] = json!(run.paths);
        if let Some(reason) = &self.reason {
            value["reason"] = json!(reason);
        }
        if let Some(clone) = &self.clone {
            value["clone"] = json!(clone.to_string_lossy());
        }
        value
    }
}

/// Whether a cell met a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateOutcome {
    pub rule: String,
    /// Index of the cell.
    pub cell: usize,
    pub is_met: bool,
    /// The figure of the cell.
    pub found: String,
}

impl GateOutcome {
    pub fn to_json(&self) -> Value {
        json!({"rule": self.rule, "cell": self.cell + 1, "met": self.is_met, "found": self.found})
    }
}

/// How far a bench came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchOutcome {
    Running,
    Complete,
    Limit,
    Interrupted,
    Failed,
}

impl BenchOutcome {
    /// Its word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Limit => "limit",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// Everything that a bench found.
#[derive(Clone, Debug)]
pub struct BenchResult {
    pub id: RunId,
    pub commit: String,
    started_at: Timestamp,
    pub units: Vec<String>,
    pub cells: Vec<Cell>,
    /// Number of runs of each cell.
    pub repeat: u32,
    pub runs: Vec<FinishedRun>,
    pub gates: Vec<GateOutcome>,
    pub outcome: BenchOutcome,
    /// What ended the bench, if it failed.
    pub error: Option<String>,
}

impl BenchResult {
    pub fn new(
        dir: &BenchDir,
        commit: &CommitId,
        units: Vec<String>,
        cells: Vec<Cell>,
        repeat: u32,
    ) -> Self {
        Self {
            id: dir.id,
            commit: commit.to_string(),
            started_at: Timestamp::now(),
            units,
            cells,
            repeat,
            runs: Vec::new(),
            gates: Vec::new(),
            outcome: BenchOutcome::Running,
            error: None,
        }
    }

    /// The runs of the cell at `index`.
    pub fn runs_of(&self, index: usize) -> impl Iterator<Item = &BenchRun> {
        self.runs
            .iter()
            .map(|finished| &finished.run)
            .filter(move |run| run.cell == index)
    }

    /// The cell at `index` with its score.
    pub fn cell_json(&self, index: usize) -> Value {
        let mut value = self.cells[index].to_json(index);
        let complete = self.runs_of(index).filter(|run| run.is_complete).count();
        let estimate = |estimate: Estimate| {
            let (low, high) = estimate.interval.unzip();
            let [mean, low, high] =
                [estimate.mean, low, high].map(|value| value.map(scores::rounded));
            (
                estimate.figure.key().to_owned(),
                json!({"mean": mean, "low": low, "high": high}),
            )
        };
        value["runs"] = json!(complete);
        value["score"] = scores::score(self.runs_of(index))
            .into_iter()
            .map(estimate)
            .collect();
        value
    }

    fn to_json(&self) -> Value {
        let mut value = json!({
            "v": VERSION, "bench": self.id.to_string(), "program": concat!("ingestdeck ", env!("CARGO_PKG_VERSION")),
            "started_at": self.started_at.to_string(), "commit": self.commit, "outcome": self.outcome.as_str(),
            "units": self.units, "repeat": self.repeat,
            "cells": (0..self.cells.len()).map(|index| self.cell_json(index)).collect::<Vec<_>>(),
            "runs": self.runs.iter().map(FinishedRun::to_json).collect::<Vec<_>>(),
            "gates": self.gates.iter().map(GateOutcome::to_json).collect::<Vec<_>>(),
        });
        if let Some(error) = &self.error {
            value["error"] = json!(error);
        }
        value
    }
}

/// The directory of one bench, in the state directory of the project.
#[derive(Debug)]
pub struct BenchDir {
    id: RunId,
    dir: ScopedDir,
    /// Absolute path, for messages and for reading tapes.
    pub path: PathBuf,
}

impl BenchDir {
    /// Creates the directory of a new bench.
    pub fn create(project: &Path) -> Result<Self, BenchError> {
        let id = RunId(uuid::Uuid::now_v7());
        let name = format!("{BENCHES_DIR}/{id}");
        let path = project.join(STATE_DIR).join(&name);
        let dir =
            scoped_dir::state_dir(project).and_then(|state| state.dir(&name, Some(PRIVATE_MODE)));
        let dir = dir.map_err(|error| write_failure(&path, &error))?;
        Ok(Self { id, dir, path })
    }

    /// Path of a file, relative to the project.
    pub fn relative_path(&self, file: &str) -> String {
        format!("{STATE_DIR}/{BENCHES_DIR}/{}/{file}", self.id)
    }

    /// Creates the log of the run `name`, and returns its name.
    pub(crate) fn create_log(&self, name: &str) -> Result<(String, File), BenchError> {
        let log = format!("{name}.log");
        let file = self
            .dir
            .create_new(&log)
            .map_err(|error| write_failure(&self.path.join(&log), &error))?;
        Ok((log, file))
    }

    pub(crate) fn read_log(&self, log: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        let (file, _) = self.dir.open_file(log)?;
        file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Removes a log that nothing was written to.
    pub(crate) fn remove_empty_log(&self, log: &str) {
        if self.dir.open_file(log).is_ok_and(|(_, length)| length == 0) {
            // An empty log does no harm.
            let _ = self.dir.remove(log);
        }
    }

    /// Copies the tape of the run `name`, and returns the path of the copy.
    pub(crate) fn copy_tape(&self, name: &str, mut tape: &File) -> Result<PathBuf, BenchError> {
        let file = format!("{name}.jsonl");
        let path = self.path.join(&file);
        let copy = || -> io::Result<()> {
            let mut to = self.dir.create_new(&file)?;
            io::copy(&mut tape, &mut to)?;
            to.flush()
        };
        let mut copy = copy;
        copy().map_err(|error| write_failure(&path, &error))?;
        Ok(path)
    }

    /// Writes the result so far.
    pub fn write_result(&self, result: &BenchResult) -> Result<(), BenchError> {
        let text = format!("{:#}\n", result.to_json());
        let written = self
            .dir
            .write(RESULT_FILE, text.as_bytes(), PRIVATE_MODE, 0o600);
        written.map_err(|error| write_failure(&self.path.join(RESULT_FILE), &error))
    }
}

fn write_failure(path: &Path, error: &io::Error) -> BenchError {
    let problem = Problem::new(format!("cannot write {}: {error}", path.display()));
    BenchError::new(
        Exit::Internal,
        match scoped_dir::remedy(error) {
            Some(remedy) => problem.with_help(remedy),
            None => problem,
        },
    )
}
