//! `scan`: reads the tables of a database and writes them to the files that KTX and the tools of units read.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::json;

use super::{
    args::{GlobalArgs, ScanArgs, Ui},
    exit::{self, CliError, Exit, ExitError},
    output, playback_output, project,
};
use ingestdeck_core::{
    diagnostic::to_lines,
    tape::Millis,
    text::{self, pluralize},
};
use ingestdeck_ingest::{
    CatalogProgress,
    lock::ProjectLockError,
    scan::{DatabaseScan, ScanChanges, ScanError},
};

/// Digits of a commit id that are shown.
const SHOWN_DIGITS: usize = 8;

/// Scans the connection of `args` and prints what changed.
///
/// # Errors
/// If the connection cannot be scanned, or the files cannot be written.
pub(crate) fn scan(global: &GlobalArgs, args: &ScanArgs) -> Result<Exit, CliError> {
    let ui = if args.json { Ui::Json } else { global.ui };
    let project = project::open(global)?;
    let started = Instant::now();
    let mut scan = DatabaseScan::prepare(&project, &args.connection)?;
    let mut line = ProgressLine::new(ui);
    let tables = scan.read(&mut |progress| line.show(progress));
    line.clear();
    let result = scan.write(&tables?, Timestamp::now())?;
    exit::print_warnings(&result.warnings);
    let printed = match ui {
        Ui::Json => write_json(&args.connection, &result, started.elapsed()),
        Ui::None => Ok(()),
        Ui::Auto | Ui::Tui | Ui::Lines => write_text(&args.connection, &result, started.elapsed()),
    };
    printed.map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// How far the reading is, on one line of a terminal.
struct ProgressLine {
    /// When the line was last drawn; `None` if it is not shown.
    drawn: Option<Instant>,
    is_shown: bool,
}

impl ProgressLine {
    /// Time between two changes of the line.
    const INTERVAL: Duration = Duration::from_millis(100);

    fn new(ui: Ui) -> Self {
        Self {
            drawn: None,
            is_shown: !matches!(ui, Ui::Json | Ui::None),
        }
    }

    fn show(&mut self, CatalogProgress { tables, columns }: CatalogProgress) {
        let is_due = self
            .drawn
            .is_none_or(|drawn| drawn.elapsed() >= Self::INTERVAL);
        if self.is_shown && is_due {
            self.drawn = Some(Instant::now());
            let (tables, columns) = (pluralize(tables, "table"), pluralize(columns, "column"));
            output::show_progress(&format!("reading: {tables}, {columns}"));
        }
    }

    fn clear(&mut self) {
        if self.drawn.take().is_some() {
            output::show_progress("");
        }
    }
}

fn write_json(connection: &str, result: &ScanChanges, took: Duration) -> io::Result<()> {
    let (commit, branch) = result.commit.clone().unzip();
    let object = json!({
        "v": 1, "connection": connection, "tables": result.tables, "columns": result.columns,
        "added": result.added, "changed": result.changed, "removed": result.removed,
        "folder": result.folder, "filesWritten": result.files_written, "filesDeleted": result.files_deleted,
        "commit": commit, "branch": branch.flatten(), "warnings": to_lines(&result.warnings),
        "durationMs": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    });
    writeln!(output::stdout_for(Ui::Json), "{object}")
}

fn write_text(connection: &str, result: &ScanChanges, took: Duration) -> io::Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "scanned {connection} in {}: {}, {}",
        text::latency(Millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))),
        pluralize(result.tables, "table"),
        pluralize(result.columns, "column")
    )?;
    let lists = [
        ("added", &result.added),
        ("changed", &result.changed),
        ("removed", &result.removed),
    ];
    for (what, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        writeln!(out, "  {what} {}: {}", names.len(), text::list_some(names))?;
    }
    let deleted = match result.files_deleted {
        0 => String::new(),
        count => format!(", {count} deleted"),
    };
    let unchanged = match lists.iter().all(|(_, names)| names.is_empty()) {
        true => "; no table has changed",
        false => "",
    };
    writeln!(
        out,
        "{} written{deleted} in semantic-layer/{connection}/_schema and {}{unchanged}",
        pluralize(result.files_written, "file"),
        result.folder
    )?;
    if let Some((commit, branch)) = &result.commit {
        let commit = commit.get(..SHOWN_DIGITS).unwrap_or(commit);
        let branch = branch.as_ref().map_or_else(
            || "the detached HEAD".to_owned(),
            |branch| format!("branch {branch}"),
        );
        writeln!(out, "commit {commit} on {branch}")?;
    }
    Ok(())
}

impl ExitError for ScanError {
    fn exit(&self) -> Exit {
        match self {
            Self::NoSuchConnection { .. } => Exit::NotFound,
            Self::NotScannable { .. }
            | Self::InvalidFile { .. }
            | Self::Lock(ProjectLockError::Held { .. })
            | Self::Repository(_) => Exit::Usage,
            Self::NotAllowed { .. } | Self::Database { .. } | Self::NoTables { .. } => Exit::Setup,
            _ => Exit::Internal,
        }
    }
}
