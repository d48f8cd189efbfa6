//! `runs export --fixture`: an attempt at one unit as a directory that `run --rehearse` plays on any machine.
//!
//! The directory has the files of the commit that the run began from, with the settings of today, the part of the tape about the
//! unit, and what is expected of it. Secrets are masked everywhere. A fixture is untrusted when it is read: it is bounded,
//! and its files are copied to a private directory.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    super::{
        args::{ExportArgs, GlobalArgs},
        exit::CliError,
        policy, project, runs,
    },
    for_each_redacted_line,
};
use crate::cli::output;
use ingestdeck_agent::private_dir::{BENCH_PREFIX, PrivateDir};
use ingestdeck_core::{
    diagnostic::Diagnostic,
    run::{RunState, state::UnitState},
    tape::{Header, RunId, UnitKey},
    text::{pluralize, printable},
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_ingest::project_snapshot::{self, ProjectSnapshot};
use ingestdeck_os::scoped_dir::{FileKind, PRIVATE_MODE, ScopedDir};
use ingestdeck_report::redact::Redactor;

/// The file that describes a fixture, its tape, and the directory of the files of the project.
const DESCRIPTION: &str = "fixture.json";
const TAPE: &str = "tape.jsonl";
const PROJECT: &str = "project";
/// The file of the settings of a project.
const PROJECT_FILE: &str = "ktx.yaml";
/// Names at the top of a project that a run does not read.
const LEFT_OUT: [&str; 2] = [".ktx", "raw-sources"];
/// Left out everywhere: what is in a fixture must not become the repository of its copy.
const REPOSITORY: &str = ".git";
/// Largest file, most bytes and most files of a fixture.
const MAX_FILE: u64 = 4 << 20;
const MAX_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 10_000;
const MAX_TAPE: u64 = 256 << 20;
/// Longest path in a fixture, in directories.
const MAX_DEPTH: usize = 32;
/// Most units that an error names, and the columns of each.
const MAX_NAMED: usize = 6;
const MAX_NAME: usize = 80;

/// What a fixture is about.
#[derive(Debug, Serialize, Deserialize)]
struct FixtureDescription {
    /// Version of the fixture: 1.
    fixture: u64,
    run: RunId,
    unit: UnitKey,
    /// Number of the attempt whose answers are played.
    attempt: u32,
    /// Outcome, cause and reason of its verdict; null without one.
    expected: Value,
}

/// Writes the fixture of a unit, and returns a sentence about it.
///
/// # Errors
/// If there is not exactly one such unit, or if its run, the project or the directory cannot be used.
pub(super) fn export(
    global: &GlobalArgs,
    args: &ExportArgs,
    directory: &Path,
    redactor: &mut Redactor,
) -> Result<String, CliError> {
    let store = runs::resolve_store(global)?;
    let found = store.resolve(&args.run)?;
    let state = recorded_tapes::fold(&store, &found)?;
    let unit = chosen_unit(&state, args.unit.as_deref())?;
    let project = project::resolve_directory(global)?;
    let mut patches = state.units.iter().flat_map(|unit| &unit.attempts);
    let base = patches.find_map(|attempt| attempt.delivery.patch.as_deref());
    let failed = |error: io::Error| cannot_write(directory, &error);
    let snapshot = ProjectSnapshot::at(&project, base.map(|patch| patch.base.as_str()))
        .map_err(unusable_project)?;
    let clone = PrivateDir::new(BENCH_PREFIX).map_err(failed)?;
    snapshot
        .clone_into(clone.path())
        .map_err(unusable_project)?;
    let out = create(directory)?;
    let mut copy = FileCopy::new(out.dir(PROJECT, Some(PRIVATE_MODE)).map_err(failed)?);
    let mut mask = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes);
        redactor.text(&text).into_owned().into_bytes()
    };
    let from = ScopedDir::open(clone.path()).map_err(failed)?;
    copy.all(&from, "", &mut mask).map_err(failed)?;
    let today = ScopedDir::open(&project).map_err(failed)?;
    for file in [PROJECT_FILE, policy::PROJECT_FILE] {
        if let Some(bytes) = today.read_if_exists(file, MAX_FILE).map_err(failed)? {
            copy.file(file, &mask(bytes)).map_err(failed)?;
        }
    }
    let mut tape = Vec::new();
    for_each_redacted_line(global, &args.run, redactor, &mut |line| {
        if let Some(line) = line_about(line, &unit.key) {
            tape.extend_from_slice(&output::escape_hidden(line.to_string().as_bytes()));
            tape.push(b'\n');
        }
        Ok(())
    })?;
    let attempt = unit.latest();
    let verdict = attempt.and_then(|attempt| attempt.verdict.as_ref());
    let reason = |text: &str, redactor: &mut Redactor| redactor.text(text).into_owned();
    let expected = verdict.map(|verdict| {
        json!({
            "outcome": verdict.outcome, "cause": verdict.cause.label(), "reason": reason(&verdict.reason, redactor),
        })
    });
    let description = FixtureDescription {
        fixture: 1,
        run: found.id,
        unit: unit.key.clone(),
        attempt: attempt.map_or(0, |attempt| attempt.number),
        expected: expected.unwrap_or_default(),
    };
    let description = format!("{:#}\n", json!(description));
    out.write(TAPE, &tape, PRIVATE_MODE, 0o600)
        .map_err(failed)?;
    // Last, so that an incomplete directory does not count as a fixture.
    out.write(DESCRIPTION, description.as_bytes(), PRIVATE_MODE, 0o600)
        .map_err(failed)?;
    Ok(format!(
        "{}: unit {} with {}; `ingestdeck run --rehearse {0}` plays it",
        directory.display(),
        named(unit),
        pluralize(copy.files, "file"),
    ))
}

fn named(unit: &UnitState) -> String {
    printable(unit.key.as_str(), MAX_NAME).into_owned()
}

/// The unit with this key, or the only one that needs another attempt.
fn chosen_unit<'a>(state: &'a RunState, key: Option<&str>) -> Result<&'a UnitState, CliError> {
    if let Some(key) = key {
        return state
            .units
            .iter()
            .find(|unit| unit.key.as_str() == key && !unit.attempts.is_empty())
            .ok_or_else(|| {
                CliError::not_found(format!("the run has no attempt at a unit {key:?}"))
                    .with_help("`ingestdeck report` lists its units")
            });
    }
    let is_failed = |unit: &&UnitState| {
        unit.status.is_retryable() && !unit.attempts.is_empty() && unit.planned.is_some()
    };
    let failed: Vec<&UnitState> = state.units.iter().filter(is_failed).collect();
    match failed.as_slice() {
        [unit] => Ok(unit),
        [] => {
            Err(CliError::not_found("no unit of the run failed")
                .with_help("name a unit with --unit"))
        }
        several => {
            let names: Vec<String> = several.iter().take(MAX_NAMED).map(|it| named(it)).collect();
            let more = match several.len().saturating_sub(MAX_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Err(CliError::usage(format!(
                "{} of the run failed: {}{more}",
                pluralize(several.len(), "unit"),
                names.join(", ")
            ))
            .with_help("choose one with --unit"))
        }
    }
}

/// A line of the tape for the fixture; `None` if it is not about the unit.
fn line_about(line: &[u8], unit: &UnitKey) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(line).ok()?;
    if Header::parse(line).is_ok() {
        return Some(value);
    }
    let kind = value["note"]["kind"].as_str().map(str::to_owned);
    match (value["unit"].as_str(), kind.as_deref()) {
        // Commits of the recorded repository do not exist elsewhere.
        (_, Some("patch_written" | "patch_integrated")) => None,
        (Some(key), _) => (key == unit.as_str()).then_some(value),
        (None, Some("run_planned")) => {
            let note = value["note"].as_object_mut()?;
            note.remove("continues");
            note.get_mut("units")?
                .as_array_mut()?
                .retain(|planned| planned["unit"] == unit.as_str());
            Some(value)
        }
        (None, _) => None,
    }
}

/// Creates the directory, which may exist if it is empty.
#[expect(
    clippy::disallowed_methods,
    reason = "the directory that --fixture names"
)]
fn create(directory: &Path) -> Result<ScopedDir, CliError> {
    let failed = |error: io::Error| cannot_write(directory, &error);
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => done.map_err(failed)?,
    }
    let out = ScopedDir::open(directory).map_err(failed)?;
    if !out.entries().map_err(failed)?.is_empty() {
        let message = format!("{} is not empty", directory.display());
        return Err(CliError::usage(message).with_help("name a new directory with --fixture"));
    }
    Ok(out)
}

fn cannot_write(directory: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {error}", directory.display()))
        .with_help("name another directory with --fixture")
}

fn unusable_project(error: impl Diagnostic) -> CliError {
    CliError::internal(error).context("cannot use the files of the project")
}

/// Files that are copied to a directory, within limits.
struct FileCopy {
    to: ScopedDir,
    bytes: u64,
    files: usize,
}

impl FileCopy {
    fn new(to: ScopedDir) -> Self {
        let (bytes, files) = (0, 0);
        Self { to, bytes, files }
    }

    /// Copies the files below `path`. Links and other special files are left out.
    fn all(
        &mut self,
        from: &ScopedDir,
        path: &str,
        change: &mut dyn FnMut(Vec<u8>) -> Vec<u8>,
    ) -> io::Result<()> {
        if path.split('/').count() > MAX_DEPTH {
            return Err(io::Error::other("its directories are too deep"));
        }
        let here = match path {
            "" => from.entries()?,
            path => from.dir(path, None)?.entries()?,
        };
        for (name, kind) in here {
            let Some(name) = name.to_str() else { continue };
            let is_left_out = |other: &&str| path.is_empty() && name.eq_ignore_ascii_case(other);
            if name.eq_ignore_ascii_case(REPOSITORY) || LEFT_OUT.iter().any(is_left_out) {
                continue;
            }
            let name = match path {
                "" => name.to_owned(),
                path => format!("{path}/{name}"),
            };
            match kind {
                FileKind::Directory => self.all(from, &name, change)?,
                FileKind::File => {
                    let bytes = change(from.read(&name, MAX_FILE)?);
                    self.file(&name, &bytes)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.files += 1;
        if self.bytes > MAX_BYTES || self.files > MAX_FILES {
            return Err(io::Error::other("the files of the project are too large"));
        }
        self.to.write_unsynced(path, bytes, PRIVATE_MODE, 0o600)
    }
}

/// A project in a private directory that has the files and the record of a fixture.
#[derive(Debug)]
pub(in crate::cli) struct OpenedFixture {
    pub project: PathBuf,
    _dir: PrivateDir,
}

impl OpenedFixture {
    /// Opens the fixture at `path`; `None` if there is none.
    ///
    /// # Errors
    /// If it is damaged, or cannot be copied.
    pub(in crate::cli) fn open(path: &Path) -> Result<Option<Self>, CliError> {
        let Ok(from) = ScopedDir::open(path) else {
            return Ok(None);
        };
        if !from.is_file(DESCRIPTION) {
            return Ok(None);
        }
        let failed = |error: io::Error| {
            CliError::failed(format!(
                "cannot use the fixture {}: {error}",
                path.display()
            ))
        };
        let description = from.read(DESCRIPTION, MAX_FILE).map_err(failed)?;
        let description: FixtureDescription = serde_json::from_slice(&description)
            .map_err(|error| failed(io::Error::other(format!("{DESCRIPTION}: {error}"))))?;
        if description.fixture != 1 {
            let why = format!("version {} is unknown", description.fixture);
            return Err(failed(io::Error::other(why)).with_help("use a newer ingestdeck"));
        }
        let dir = PrivateDir::new(BENCH_PREFIX).map_err(failed)?;
        let whole = ScopedDir::open(dir.path()).map_err(failed)?;
        let mut copy = FileCopy::new(whole.dir(PROJECT, Some(PRIVATE_MODE)).map_err(failed)?);
        let files = from.dir(PROJECT, None).map_err(failed)?;
        copy.all(&files, "", &mut |bytes| bytes).map_err(failed)?;
        project_snapshot::commit_directory(&dir.path().join(PROJECT)).map_err(unusable_project)?;
        let tape = from.read(TAPE, MAX_TAPE).map_err(failed)?;
        let place = format!(".ktx/ingestdeck/runs/{}/{TAPE}", description.run);
        copy.to
            .write(&place, &tape, PRIVATE_MODE, 0o600)
            .map_err(failed)?;
        Ok(Some(Self {
            project: dir.path().join(PROJECT),
            _dir: dir,
        }))
    }
}
