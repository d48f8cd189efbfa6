//! `why`: who wrote a line of a file, for people and for programs.
//!
//! Finds the file that the user means, and prints the answer of [`ingestdeck_engine::provenance`].

#![expect(
    clippy::disallowed_methods,
    reason = "which file of the project an argument names"
)]

use std::{
    io::Write as _,
    path::{Component, Path, PathBuf},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    args::{GlobalArgs, Ui, WhyArgs},
    exit::{CliError, Exit, ExitError},
    output, playback_output, project, runs,
};
use ingestdeck_core::{
    run::provenance::{ProvenanceCall, ReadAccess},
    tape::note::ReviewDecided,
    text::{commands::project_dir_flag, pluralize, printable},
};
use ingestdeck_engine::provenance::{
    self, FileCommit, FileProvenance, LineGroup, LineOrigin, NamedAttempt, ProvenanceError,
    RecordedWriter, RunLineOrigin, WritingCall,
};
use ingestdeck_report::redact::Redactor;

/// Columns of a text of an agent or of a commit.
const MAX_TEXT_WIDTH: usize = 160;
/// Digits of a commit in a sentence.
const COMMIT_DIGITS: usize = 8;

impl ExitError for ProvenanceError {
    fn exit(&self) -> Exit {
        match self {
            Self::FileNotFound { .. } | Self::NoSuchLine { .. } => Exit::NotFound,
            Self::NotAFile { .. }
            | Self::FileTooLarge { .. }
            | Self::Binary { .. }
            | Self::NoRepository => Exit::Usage,
            Self::Repository(_) => Exit::Usage,
            Self::Git(_) | Self::Io { .. } => Exit::Internal,
        }
    }
}

/// Prints the origin of the lines that `args` names.
///
/// # Errors
/// If the place is invalid, the file or the line does not exist, or git fails.
pub(super) fn why(global: &GlobalArgs, args: &WhyArgs) -> Result<Exit, CliError> {
    let store = runs::resolve_store(global)?;
    let root = project::resolve_directory(global)?;
    let root = root.canonicalize().unwrap_or(root);
    let (path, lines) = resolve_place(global, &root, &args.place)?;
    let file = provenance::explain_lines(&root, &store, &path, lines)?;
    let mut redactor = Redactor::for_process(Some(&root));
    let mut mask = |text: &str| redactor.text(text).into_owned();
    let mut out = output::stdout_for(global.ui);
    let mut print = |text: &str| {
        out.write_all(text.as_bytes())
            .map_err(|error| playback_output::stdout_failed(&error))
    };
    for group in &file.groups {
        match global.ui {
            Ui::Json => print(&format!("{}\n", to_json(global, &file, group, &mut mask)))?,
            Ui::None => {}
            Ui::Auto | Ui::Tui | Ui::Lines => print(&to_text(global, &file, group, &mut mask))?,
        }
    }
    if file.groups.is_empty() && !matches!(global.ui, Ui::Json | Ui::None) {
        print(&format!(
            "{} is empty\n",
            printable(&file.path, MAX_TEXT_WIDTH)
        ))?;
    }
    out.flush()
        .map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// The path of the file in the project, and its lines: `FILE`, `FILE:LINE` or `FILE:LINE-LINE`. A file whose name ends in
/// such a suffix is meant as a whole.
fn resolve_place(
    global: &GlobalArgs,
    root: &Path,
    place: &str,
) -> Result<(String, Option<(usize, usize)>), CliError> {
    let is_file = |path: &str| root.join(path).is_file();
    if let Some(whole) = project_path(global, root, place).filter(|path| is_file(path)) {
        return Ok((whole, None));
    }
    let (file, lines) = match place.rsplit_once(':') {
        Some((file, lines)) if lines.starts_with(|first: char| first.is_ascii_digit()) => {
            (file, Some(lines))
        }
        _ => (place, None),
    };
    let lines = lines.map(parse_lines).transpose()?;
    let path = project_path(global, root, file).ok_or_else(|| {
        CliError::usage(format!(
            "`{file}` is not in the project `{}`",
            root.display()
        ))
        .with_help("name a file of the project, or another project with --project-dir")
    })?;
    Ok((path, lines))
}

/// Parses `LINE` or `LINE-LINE`.
fn parse_lines(text: &str) -> Result<(usize, usize), CliError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let parsed = first.parse().ok().zip(last.parse().ok());
    parsed.filter(|(first, last)| *first >= 1 && first <= last).ok_or_else(|| {
        CliError::usage(format!(
            "invalid lines `{text}`; expected a line from 1 on, such as 12, or a range, such as 12-20"
        ))
    })
}

/// The path of `file` in the project: relative to the current directory, or else to the project.
fn project_path(global: &GlobalArgs, root: &Path, file: &str) -> Option<String> {
    let below_cwd = std::env::current_dir()
        .ok()
        .map(|cwd| normalized(&cwd.canonicalize().unwrap_or(cwd).join(file)));
    let below_root = normalized(&root.join(file));
    let candidates = [
        below_cwd.filter(|_| global.project_dir.is_none() || !below_root.exists()),
        Some(below_root),
    ];
    let mut inside = candidates
        .iter()
        .flatten()
        .filter_map(|path| path.strip_prefix(root).ok());
    let existing = inside.clone().find(|path| root.join(path).exists());
    let path = existing.or_else(|| inside.next())?.to_str()?;
    (!path.is_empty()).then(|| path.to_owned())
}

/// The path without `.` and `..`. Links are not followed.
fn normalized(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

fn replay_command(global: &GlobalArgs, attempt: &NamedAttempt, call: &WritingCall) -> String {
    let flag = project_dir_flag(global.project_dir.as_deref());
    format!(
        "ingestdeck replay {}{flag} --entry {}",
        attempt.run, call.call.entry
    )
}

type Mask<'a> = &'a mut dyn FnMut(&str) -> String;

fn to_json(global: &GlobalArgs, file: &FileProvenance, group: &LineGroup, mask: Mask<'_>) -> Value {
    let run = match &group.origin {
        LineOrigin::Run(run) => Some(run),
        LineOrigin::Uncommitted { .. } | LineOrigin::Commit(_) => None,
    };
    let writer = run.map(|run| &run.writer);
    let (attempt, call) = match writer {
        Some(RecordedWriter::Attempt { attempt, call }) => (Some(attempt), call.as_deref()),
        Some(
            RecordedWriter::OneOf { .. }
            | RecordedWriter::Reviewer
            | RecordedWriter::Document { .. }
            | RecordedWriter::Run,
        )
        | None => (None, None),
    };
    let candidates = match writer {
        Some(RecordedWriter::OneOf { attempts, .. }) => attempts.as_slice(),
        _ => &[],
    };
    let named = |attempt: &NamedAttempt| json!({"run": attempt.run, "unit": attempt.unit, "attempt": attempt.attempt});
    let mut line = json!({
        "v": 1,
        "file": file.path,
        "first_line": group.first,
        "last_line": group.last,
        "origin": match (&group.origin, writer) {
            (LineOrigin::Uncommitted { .. }, _) => "uncommitted",
            (LineOrigin::Commit(_), _) => "commit",
            (LineOrigin::Run(_), Some(RecordedWriter::Attempt { .. })) => "attempt",
            (LineOrigin::Run(_), Some(RecordedWriter::OneOf { .. })) => "unknown_attempt",
            (LineOrigin::Run(_), Some(RecordedWriter::Reviewer)) => "reviewer",
            (LineOrigin::Run(_), Some(RecordedWriter::Document { .. })) => "verbatim",
            (LineOrigin::Run(_), _) => "run",
        },
        "commit": commit_of(&group.origin).map(|commit| json!({
            "id": commit.id,
            "author": mask(&commit.record.author),
            "at": commit.record.at.map(|at| at.to_string()),
            "subject": mask(&commit.record.subject),
            "path": commit.path,
        })),
        "run": run.map(|run| run.run),
        "attempt": attempt.map(named),
        "candidates": candidates.iter().map(named).collect::<Vec<_>>(),
        "call": call.map(|call| call_json(call, mask)),
        "review": run.map(|run| run.review.iter().map(|decided| json!({
            "decision": decided.decision, "hunk": decided.hunk, "feedback": decided.feedback.as_deref().map(&mut *mask),
        })).collect::<Vec<_>>()),
        "missing": missing_of(&group.origin).collect::<Vec<_>>(),
        "replay": attempt.zip(call).map(|(attempt, call)| replay_command(global, attempt, call)),
    });
    if let Some(RecordedWriter::Document { connection, path }) = writer {
        line["document"] = json!({"connection": connection, "path": path});
    }
    line
}

fn call_json(written: &WritingCall, mask: Mask<'_>) -> Value {
    let WritingCall {
        call,
        at,
        reads,
        more_reads,
    } = written;
    let mut read_json = |read: &ProvenanceCall| {
        let access = read.read.as_ref()?;
        Some(json!({
            "kind": access.kind,
            "target": mask(&access.target),
            "first_line": access.lines.map(|(first, _)| first),
            "last_line": access.lines.and_then(|(_, last)| last),
            "tool": read.tool,
            "entry": read.entry,
        }))
    };
    json!({
        "tool": call.tool,
        "id": call.id,
        "turn": call.turn,
        "entry": call.entry,
        "at": at.map(|at| format!("{at:.3}")),
        "edited_by_person": call.is_edited,
        "raw_paths": call.raw_paths,
        "reads": reads.iter().filter_map(&mut read_json).collect::<Vec<_>>(),
        "more_reads": more_reads,
    })
}

fn commit_of(origin: &LineOrigin) -> Option<&FileCommit> {
    match origin {
        LineOrigin::Uncommitted { .. } => None,
        LineOrigin::Commit(commit) => Some(commit),
        LineOrigin::Run(run) => Some(&run.commit),
    }
}

/// What is missing in the record and in the repository.
fn missing_of(origin: &LineOrigin) -> impl Iterator<Item = &str> {
    let of_record = match origin {
        LineOrigin::Run(run) => run.missing.as_slice(),
        LineOrigin::Uncommitted { .. } | LineOrigin::Commit(_) => &[],
    };
    of_record
        .iter()
        .map(String::as_str)
        .chain(commit_of(origin).and_then(FileCommit::missing))
}

/// The rows about a group of lines, each with a label.
struct AnswerRows(String);

impl AnswerRows {
    fn push(&mut self, label: &str, text: &str) {
        self.0.push_str(format!("  {label:<10}{text}").trim_end());
        self.0.push('\n');
    }

    /// Rows of which only the first has the label.
    fn push_all(&mut self, label: &str, texts: impl IntoIterator<Item = String>) {
        for (place, text) in texts.into_iter().enumerate() {
            self.push(if place == 0 { label } else { "" }, &text);
        }
    }
}

fn shown(text: &str) -> String {
    printable(text, MAX_TEXT_WIDTH).into_owned()
}

fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(
        || "at an unknown time".to_owned(),
        |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

fn to_text(
    global: &GlobalArgs,
    file: &FileProvenance,
    group: &LineGroup,
    mask: Mask<'_>,
) -> String {
    let lines = if group.first == group.last {
        String::new()
    } else {
        format!("-{}", group.last)
    };
    let mut rows = AnswerRows(format!("{}:{}{lines}\n", shown(&file.path), group.first));
    match &group.origin {
        LineOrigin::Uncommitted { has_commit: true } => {
            rows.push("changed", "after the last commit, not by a run")
        }
        LineOrigin::Uncommitted { has_commit: false } => {
            rows.push("changed", "the file is not in the last commit")
        }
        LineOrigin::Commit(commit) => {
            rows.push("commit", &commit_text(commit, mask));
            rows.push("", "no run made this commit");
            rows.push_all("missing", missing_of(&group.origin).map(shown));
        }
        LineOrigin::Run(run) => {
            push_run(run, &mut rows, mask);
            rows.push_all("missing", missing_of(&group.origin).map(shown));
            if let RecordedWriter::Attempt {
                attempt,
                call: Some(call),
            } = &run.writer
            {
                rows.push("replay", &replay_command(global, attempt, call));
            }
        }
    }
    rows.0
}

fn commit_text(commit: &FileCommit, mask: Mask<'_>) -> String {
    let id = commit.id.as_str();
    let id = id.get(..COMMIT_DIGITS).unwrap_or(id);
    let (author, subject) = (mask(&commit.record.author), mask(&commit.record.subject));
    format!(
        "{id}  {}, {}: {}",
        shown(&author),
        time(commit.record.at),
        shown(&subject)
    )
}

fn push_run(origin: &RunLineOrigin, rows: &mut AnswerRows, mask: Mask<'_>) {
    let attempt_text = |attempt: &NamedAttempt| {
        let of_run = if attempt.run == origin.run {
            String::new()
        } else {
            format!(" of run {}", attempt.run)
        };
        format!(
            "{}, attempt {}{of_run}",
            shown(&attempt.unit),
            attempt.attempt
        )
    };
    match &origin.writer {
        RecordedWriter::Attempt { attempt, call } => {
            rows.push("unit", &attempt_text(attempt));
            if let Some(WritingCall { call, at, .. }) = call.as_deref() {
                let edited = if call.is_edited { ", with arguments that a person edited" } else { "" };
                let (tool, at) = (shown(&call.tool), time(*at));
                rows.push("call", &format!("{tool} in turn {}, entry {}, {at}{edited}", call.turn, call.entry));
            }
        }
        RecordedWriter::OneOf { attempts, more } => {
            let more = match (attempts.len(), *more) {
                (_, 0) => None,
                (0, all) => Some(pluralize(all, "attempt")),
                (_, more) => Some(format!("and {}", pluralize(more, "more attempt"))),
            };
            rows.push_all("one of", attempts.iter().map(attempt_text).chain(more));
        }
        RecordedWriter::Reviewer => {
            rows.push("reviewer", "no attempt wrote it: a reviewer edited the file, or took a change back")
        }
        RecordedWriter::Document { connection, path } => {
            let document = match connection {
                Some(connection) => format!("{} of connection {connection}", shown(path)),
                None => shown(path),
            };
            rows.push(
                "verbatim",
                &format!("no attempt wrote it: the page is the document {document}"),
            );
        }
        RecordedWriter::Run => rows.push(
            "run",
            "no attempt wrote it: the run merged, repaired, projected or copied it, or the commit was amended",
        ),
    }
    if let RecordedWriter::Attempt {
        call: Some(written),
        ..
    } = &origin.writer
    {
        let WritingCall {
            call,
            reads,
            more_reads,
            ..
        } = written.as_ref();
        rows.push_all("based on", call.raw_paths.iter().map(|path| shown(path)));
        let more = (*more_reads > 0)
            .then(|| format!("and {} before", pluralize(*more_reads, "more read")));
        let reads = reads
            .iter()
            .filter_map(|read| read.read.as_ref())
            .map(|read| read_text(read, mask));
        rows.push_all("had read", reads.chain(more).collect::<Vec<_>>());
    }
    let decided = |decided: &ReviewDecided| {
        let part = if decided.hunk.is_some() {
            "a part was "
        } else {
            ""
        };
        let feedback = decided
            .feedback
            .as_deref()
            .map(|text| format!(": {}", shown(&mask(text))))
            .unwrap_or_default();
        format!("{part}{}{feedback}", decided.decision.as_str())
    };
    rows.push_all(
        "review",
        origin.review.iter().map(decided).collect::<Vec<_>>(),
    );
    rows.push("run", &origin.run.to_string());
    rows.push("commit", &commit_text(&origin.commit, mask));
}

fn read_text(read: &ReadAccess, mask: Mask<'_>) -> String {
    let lines = match read.lines {
        None => String::new(),
        Some((first, Some(last))) => format!(", lines {first}-{last}"),
        Some((first, None)) => format!(", from line {first}"),
    };
    format!(
        "{} {}{lines}",
        read.kind.label(),
        shown(&mask(&read.target))
    )
}
