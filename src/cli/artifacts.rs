//! `artifacts`: the pages and sources of a run, their changes, and the coverage of the raw files.
//!
//! [`ingestdeck_core::run::artifacts`] and [`ingestdeck_core::run::coverage`] derive what is printed. This module reads patch files.

use std::{
    collections::HashMap,
    io::{self, Write as _},
    ops::Range,
};

use serde_json::{Value, json};

use super::{
    args::{ArtifactsArgs, GlobalArgs, TableFormat, Ui},
    exit::{CliError, Exit},
    output, playback_output, project, report,
    table::TableWriter,
};
use ingestdeck_core::{
    control::NamePattern,
    run::{
        RunReport,
        artifacts::{ArtifactWriter, LineCounts, RawFileName, RunArtifact, patch_sections},
        coverage::{CoveredFile, RawFileChange, SourceCoverage},
        shared_files::SharedFile,
        verification::VerifiedNames,
    },
    tape::note::attempt_output::ArtifactChange,
    text::pluralize,
};
use ingestdeck_ingest::repository::PATCHES_DIR;
use ingestdeck_os::scoped_dir::ScopedDir;
use ingestdeck_report::redact::Redactor;

/// Version of the JSON lines.
const VERSION: u64 = 1;
/// Most bytes of all patch files that are read.
const MAX_PATCH_BYTES: u64 = 256 << 20;
/// Maximum number of raw files and writers that a row of the table names.
const MAX_NAMED: usize = 3;
/// Maximum number of unsourced identifiers that are listed for people.
const MAX_FLAGS: usize = 50;

/// Prints the artifacts that `args` selects.
///
/// # Errors
/// If a pattern is invalid, or the run does not exist or cannot be read.
pub(super) fn artifacts(global: &GlobalArgs, args: &ArtifactsArgs) -> Result<Exit, CliError> {
    let (unit, path) = (
        pattern(args.unit.as_deref())?,
        pattern(args.path.as_deref())?,
    );
    let mut report = report::gather_report(global, &args.run)?;
    let is_wanted = |artifact: &RunArtifact| {
        let of_unit = |unit: &NamePattern| {
            artifact
                .writers
                .iter()
                .any(|writer| unit.matches(&writer.unit))
        };
        unit.as_ref().is_none_or(of_unit)
            && path
                .as_ref()
                .is_none_or(|path| path.matches(&artifact.path))
    };
    report.artifacts.list.retain(is_wanted);
    if global.ui == Ui::Json {
        return print_json(global, args, &report);
    }
    if args.coverage {
        print_coverage(global, &report)
    } else {
        print_table(global, args, &report)
    }
}

fn pattern(text: Option<&str>) -> Result<Option<NamePattern>, CliError> {
    let parse = |text: &str| {
        NamePattern::new(text)
            .map_err(|why| CliError::usage(format!("invalid pattern `{text}`: {why}")))
    };
    text.map(parse).transpose()
}

/// Patch files of the project, each read once.
struct PatchReader {
    project: Option<ScopedDir>,
    read: HashMap<String, io::Result<PatchFile>>,
    /// Bytes that may still be read.
    budget: u64,
}

/// A patch, and its part about each file.
struct PatchFile {
    text: String,
    sections: HashMap<String, Range<usize>>,
}

impl PatchReader {
    fn new(global: &GlobalArgs) -> Self {
        let project = project::resolve_directory(global)
            .ok()
            .and_then(|project| ScopedDir::open(&project).ok());
        Self {
            project,
            read: HashMap::new(),
            budget: MAX_PATCH_BYTES,
        }
    }

    /// The hunks of a writer's change of `path`, or why they are not available.
    fn hunks(&mut self, writer: &ArtifactWriter, path: &str) -> Result<&str, String> {
        let Some(file) = &writer.patch else {
            return Err(format!("{} has no patch", attempt_name(writer)));
        };
        if !self.read.contains_key(file) {
            let patch = self.read_patch(file);
            self.read.insert(file.clone(), patch);
        }
        match &self.read[file] {
            Err(error) => Err(format!("the patch {file} cannot be read: {error}")),
            Ok(patch) => match patch.sections.get(path) {
                Some(section) => Ok(&patch.text[section.clone()]),
                None => Err(format!("the patch {file} does not change it")),
            },
        }
    }

    /// Reads a patch. Its path comes from a tape, so it must be in the directory of patches.
    fn read_patch(&mut self, file: &str) -> io::Result<PatchFile> {
        let is_patch = file
            .strip_prefix(PATCHES_DIR)
            .is_some_and(|rest| rest.starts_with('/'));
        if !is_patch {
            return Err(io::Error::other(format!("it is not in {PATCHES_DIR}")));
        }
        let project = self.project.as_ref();
        let project =
            project.ok_or_else(|| io::Error::other("the project directory cannot be opened"))?;
        let text = String::from_utf8_lossy(&project.read(file, self.budget)?).into_owned();
        self.budget = self.budget.saturating_sub(text.len() as u64);
        let sections = patch_sections(&text)
            .into_iter()
            .map(|(path, section)| (path.to_owned(), section))
            .collect();
        Ok(PatchFile { text, sections })
    }
}

/// `unit#attempt`; the number is left out for a prior run and for the projection.
fn attempt_name(writer: &ArtifactWriter) -> String {
    match writer.attempt {
        0 => writer.unit.to_string(),
        number => format!("{}#{number}", writer.unit),
    }
}

fn print_json(
    global: &GlobalArgs,
    args: &ArtifactsArgs,
    report: &RunReport,
) -> Result<Exit, CliError> {
    let mut patches = PatchReader::new(global);
    let mut redactor = Redactor::for_process(project::resolve_directory(global).ok().as_deref());
    let mut out = output::stdout_for(Ui::Json);
    // Each object is masked separately, so that a block of secret lines cannot hide the next object.
    let mut push = |value: Value| {
        let line = format!("{}\n", redactor.text(&value.to_string()));
        out.write_all(line.as_bytes())
            .map_err(|error| playback_output::stdout_failed(&error))
    };
    if args.coverage {
        for source in &report.artifacts.coverage {
            source
                .files
                .iter()
                .try_for_each(|file| push(raw_file_json(source, file)))?;
        }
    } else {
        for artifact in &report.artifacts.list {
            let mut value = artifact_json(artifact);
            if args.diff {
                let diffs = artifact.effective_writers().map(|writer| {
                    let hunks = patches.hunks(writer, &artifact.path);
                    let (diff, error) = (hunks.as_ref().ok(), hunks.as_ref().err());
                    json!({"unit": writer.unit, "attempt": writer.attempt, "hunks": diff, "error": error})
                });
                value["diffs"] = diffs.collect();
            }
            push(value)?;
        }
    }
    out.flush()
        .map(|()| Exit::Ok)
        .map_err(|error| playback_output::stdout_failed(&error))
}

fn artifact_json(artifact: &RunArtifact) -> Value {
    let lines = |lines: Option<LineCounts>| {
        lines.map(|lines| json!({"added": lines.added, "removed": lines.removed}))
    };
    let writer = |writer: &ArtifactWriter| {
        json!({
            "unit": writer.unit, "attempt": writer.attempt, "state": writer.state.label(), "reason": writer.reason,
            "change": writer.change, "calls": writer.calls, "lines": lines(writer.lines),
            "unsourced": writer.unsourced.iter()
                .map(|flag| json!({"line": flag.line, "name": flag.name, "declared": flag.declared})).collect::<Vec<_>>(),
            "patch": writer.patch,
        })
    };
    let raw_file = |file: &RawFileName| json!({"connection": file.connection, "path": file.path});
    let shared = |shared: &SharedFile| json!({"units": shared.units, "merged": shared.was_merged});
    let mut value = json!({
        "v": VERSION, "type": "artifact", "path": artifact.path, "kind": artifact.target, "change": artifact.change,
        "state": artifact.state.label(), "commit": artifact.commit, "calls": artifact.calls(),
        "lines": lines(artifact.lines()), "unsourced": artifact.unsourced().count(),
        "raw_files": artifact.raw_files.iter().map(raw_file).collect::<Vec<_>>(),
        "review": artifact.review, "shared": artifact.shared.as_ref().map(shared),
        "writers": artifact.writers.iter().map(writer).collect::<Vec<_>>(),
    });
    let names = artifact.verification();
    if !names.is_empty() {
        value["verification"] = verification_json(&names);
    }
    value
}

/// The tables and columns of an artifact by what answers prove about them.
pub(super) fn verification_json(names: &VerifiedNames) -> Value {
    let contradicted = names.contradicted.iter();
    let contradicted = contradicted.map(|(name, found)| json!({"name": name, "found": found}));
    json!({
        "verified": names.verified, "unverified": names.unverified,
        "contradicted": contradicted.collect::<Vec<_>>(),
    })
}

fn raw_file_json(source: &SourceCoverage, file: &CoveredFile) -> Value {
    json!({
        "v": VERSION, "type": "raw_file", "connection": source.connection, "adapter": source.adapter,
        "path": file.path, "change": file.change.map(RawFileChange::label), "state": file.state.label(),
        "artifacts": file.artifacts,
    })
}

/// The first names of a list, and the number of the others.
fn some(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    let named: Vec<String> = names.take(MAX_NAMED).collect();
    if more > 0 {
        format!("{} +{more}", named.join(", "))
    } else {
        named.join(", ")
    }
}

fn print_table(
    global: &GlobalArgs,
    args: &ArtifactsArgs,
    report: &RunReport,
) -> Result<Exit, CliError> {
    let directory = project::resolve_directory(global).ok();
    let columns = [
        "change",
        "path",
        "state",
        "lines",
        "calls",
        "unsourced",
        "units",
        "raw files",
    ]
    .map(str::to_owned);
    let redactor = Redactor::for_process(directory.as_deref());
    let mut table = TableWriter::new(TableFormat::Text, columns.to_vec(), None, redactor);
    for artifact in &report.artifacts.list {
        let lines = artifact
            .lines()
            .map(|lines| format!("+{} -{}", lines.added, lines.removed));
        let unsourced = artifact.unsourced().count();
        let cells = [
            artifact
                .change
                .map_or("?", ArtifactChange::as_str)
                .to_owned(),
            artifact.path.clone(),
            artifact.state.label().to_owned(),
            lines.unwrap_or_else(|| "?".into()),
            artifact
                .calls()
                .map_or_else(|| "?".into(), |calls| calls.to_string()),
            if unsourced > 0 {
                format!("▲ {unsourced}")
            } else {
                String::new()
            },
            some(artifact.writers.iter().map(attempt_name)),
            some(artifact.raw_files.iter().map(|file| file.path.clone())),
        ];
        table.push(cells.map(Value::from).to_vec());
    }
    let mut redactor = Redactor::for_process(directory.as_deref());
    let mut note: String = notes(report)
        .iter()
        .map(|line| redactor.text(line).into_owned())
        .collect();
    if args.diff {
        push_diffs(global, report, &mut redactor, &mut note);
    }
    table.finish(&note)?;
    Ok(Exit::Ok)
}

/// The texts below the table: totals, findings, and verified and unsourced identifiers.
fn notes(report: &RunReport) -> Vec<String> {
    let list = &report.artifacts.list;
    let mut texts = vec![match list.len() {
        0 => "no artifact matches\n".to_owned(),
        count => format!("{}\n", pluralize(count, "artifact")),
    }];
    for artifact in list {
        for (unit, attempt, reason) in artifact.findings() {
            texts.push(format!("✗ {}: {unit}#{attempt}: {reason}\n", artifact.path));
        }
        if let Some(shared) = artifact.shared.as_ref().filter(|shared| shared.was_merged) {
            texts.push(format!("▲ {shared}\n"));
        }
    }
    for artifact in list {
        let names = artifact.verification();
        if !names.is_empty() {
            let mark = if names.contradicted.is_empty() {
                "·"
            } else {
                "▲"
            };
            texts.push(format!("{mark} {}: {}\n", artifact.path, names.sentence()));
        }
    }
    let findings: Vec<String> = list
        .iter()
        .flat_map(RunArtifact::unsourced)
        .map(|flag| flag.finding())
        .collect();
    texts.extend(
        findings
            .iter()
            .take(MAX_FLAGS)
            .map(|finding| format!("▲ {finding}\n")),
    );
    let more = findings.len().saturating_sub(MAX_FLAGS);
    if more > 0 {
        texts.push(format!(
            "▲ {} more; `--ui json` lists all\n",
            pluralize(more, "unsourced identifier")
        ));
    }
    texts
}

/// The changes of every artifact, as the patches of the run have them.
fn push_diffs(global: &GlobalArgs, report: &RunReport, redactor: &mut Redactor, text: &mut String) {
    let mut patches = PatchReader::new(global);
    for artifact in &report.artifacts.list {
        for writer in artifact.effective_writers() {
            let head = format!(
                "\n{} ({}, {})\n",
                artifact.path,
                attempt_name(writer),
                writer.state.label()
            );
            text.push_str(&redactor.text(&head));
            match patches.hunks(writer, &artifact.path) {
                Ok(hunks) => text.push_str(&redactor.text(hunks)),
                Err(why) => text.push_str(&redactor.text(&format!("  {why}\n"))),
            }
        }
    }
}

fn print_coverage(global: &GlobalArgs, report: &RunReport) -> Result<Exit, CliError> {
    let columns = ["source", "raw file", "change", "state", "artifacts"]
        .map(str::to_owned)
        .to_vec();
    let directory = project::resolve_directory(global).ok();
    let redactor = Redactor::for_process(directory.as_deref());
    let mut table = TableWriter::new(TableFormat::Text, columns, None, redactor);
    let (mut redactor, mut note) = (Redactor::for_process(directory.as_deref()), String::new());
    for source in &report.artifacts.coverage {
        for file in &source.files {
            let cells = [
                source.connection.clone(),
                file.path.clone(),
                file.change.map_or("?", RawFileChange::label).to_owned(),
                file.state.label().to_owned(),
                some(file.artifacts.iter().cloned()),
            ];
            table.push(cells.map(Value::from).to_vec());
        }
        note.push_str(&redactor.text(&format!("{}: {}\n", source.connection, source.summary())));
    }
    if report.artifacts.coverage.is_empty() {
        note.push_str("the run read no raw files\n");
    }
    table.finish(&note)?;
    Ok(Exit::Ok)
}
