//! `report`: a run as a file for people, CI systems and KTX.
//!
//! Chooses the record and the output file. [`ingestdeck_core::run::report`] folds the content, and [`ingestdeck_report`] writes it.

use std::io::Write as _;

use super::{
    args::{GlobalArgs, ReportArgs, Ui},
    exit::{CliError, Exit},
    export::{self, out_file},
    output, playback_output, prior_files, project, replay, runs,
    summary::RunSummary,
};
use ingestdeck_core::{
    run::{EntrySource as _, RunOutcome, RunReport, trace::trace_path},
    text::pluralize,
};
use ingestdeck_engine::continued_runs::ContinuedRuns;
use ingestdeck_os::scoped_dir::ScopedDir;
use ingestdeck_report::{self as report, ReportContext, ReportFormat};

/// Writes the report.
///
/// # Errors
/// If the run does not exist or cannot be read, or if the file cannot be written.
pub(crate) fn report(global: &GlobalArgs, args: &ReportArgs) -> Result<Exit, CliError> {
    let record = open_run(global, &args.run)?;
    let (mut gathered, exit) = (record.report, record.exit);
    if let Some(connection) = &args.connection {
        gathered = filter_connection(gathered, connection)?;
    }
    let format = args.format.unwrap_or(if global.ui == Ui::Json {
        ReportFormat::Json
    } else {
        ReportFormat::Md
    });
    let traced = gathered.job().is_some_and(|job| {
        let project = project::resolve_directory(global).ok();
        let project = project.and_then(|project| ScopedDir::open(&project).ok());
        project.is_some_and(|project| project.is_file(&trace_path(job)))
    });
    let project = project::resolve_directory(global).ok();
    let context = ReportContext {
        is_traced: traced,
        exit: Some(exit),
        tape: record.tape,
    };
    let (text, masked) = report::render_masked(&gathered, format, &context, project.as_deref());
    if masked > 0 {
        playback_output::print_stderr(&format!(
            "ingestdeck: {} of known kinds masked; other secrets may remain, so review it before you share it",
            pluralize(masked, "value")
        ));
    }
    match out_file::target_path(args.out.as_deref()) {
        Some(path) => {
            let written = out_file::create(path, project.as_deref())
                .and_then(|mut out| out.write_all(text.as_bytes()));
            written.map_err(|error| export::cannot_write(path, &error))?;
        }
        None => {
            let kind = if matches!(format, ReportFormat::Json | ReportFormat::Run) {
                Ui::Json
            } else {
                Ui::Lines
            };
            let mut out = output::stdout_for(kind);
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| playback_output::stdout_failed(&error))?;
        }
    }
    Ok(Exit::Ok)
}

/// Folds the record that `what` names, up to its current end.
///
/// # Errors
/// If the record does not exist or cannot be read.
pub(crate) fn gather_report(global: &GlobalArgs, what: &str) -> Result<RunReport, CliError> {
    open_run(global, what).map(|run| run.report)
}

/// A run with what its report does not contain.
struct ReportedRun {
    report: RunReport,
    /// Its exit code, once it has ended.
    exit: Exit,
    /// Path of its tape; `None` for a record that is not a run of the project.
    tape: Option<String>,
}

fn open_run(global: &GlobalArgs, what: &str) -> Result<ReportedRun, CliError> {
    let (source, live) = replay::open_record(global, what)?;
    let prior = prior_files::prior_results(global, source.info());
    let origin = source.info().clone();
    let (mut report, state) = report::fold_run(source, live, prior)?;
    let mut summary = RunSummary::from_state(&state);
    let recorded = runs::find_recorded(global, what, &origin)?;
    if report.outcome == RunOutcome::WaitingApproval
        && let Some((runs, run)) = &recorded
        && let Some(by) = ContinuedRuns::read(runs)?.reviewed_by(run.id)
    {
        report.outcome = RunOutcome::Reviewed(by);
        summary = summary.with_settled_review();
    }
    Ok(ReportedRun {
        report,
        exit: summary.exit(),
        tape: recorded.map(|(_, run)| run.tape.display().to_string()),
    })
}

/// The part of the report about one connection.
fn filter_connection(report: RunReport, connection: &str) -> Result<RunReport, CliError> {
    report.into_connection(connection).map_err(|known| {
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        CliError::not_found(format!("the run has no connection {connection:?}"))
            .with_help(format!("name one of its connections: {known}"))
    })
}
