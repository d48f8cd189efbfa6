//! `report`: a run as a file for people, CI systems and KTX.
//!
//! Owns which record is meant and where the report goes. [`crate::run::report`] folds its content, and the
//! pure functions below write it.

use std::io::Write as _;

use super::{
    args::{Format, Global, ReportArgs, Ui},
    exit::{Exit, Failure},
    export::{self, out_file},
    output, project, replay, runs, show,
    summary::counted,
    trace,
};
use crate::{
    replay::FileSource,
    run::{Progress, Report, Timeline, report::Gathering},
    scoped_dir::ScopedDir,
};

mod escape;
mod html;
mod junit;
mod markdown;
mod snapshot;
mod words;

pub(super) use snapshot::provenance;

/// Bytes folded at a time.
const SLICE: usize = 1 << 20;

/// Writes the report.
///
/// # Errors
/// When there is no such run, it cannot be read, or the file cannot be written.
pub fn report(global: &Global, args: &ReportArgs) -> Result<Exit, Failure> {
    let mut report = gather(global, &args.run)?;
    if let Some(connection) = &args.connection {
        report = only(report, connection)?;
    }
    let format = args.format.unwrap_or(if global.ui == Ui::Json { Format::Json } else { Format::Md });
    let traced = report.job().is_some_and(|job| {
        let project = project::directory(global).ok();
        let project = project.and_then(|project| ScopedDir::open(&project).ok());
        project.is_some_and(|project| project.is_file(&trace::path(job)))
    });
    let project = project::directory(global).ok();
    let (text, masked) = export::masked(&write(&report, format, traced), project.as_deref());
    if masked > 0 {
        show::tell(&format!(
            "ingestdeck: {} of known kinds masked; other secrets may be left, so look it over before you share it",
            counted(masked, "value")
        ));
    }
    match out_file::named(args.out.as_deref()) {
        Some(path) => {
            let written = out_file::create(path, project.as_deref()).and_then(|mut out| out.write_all(text.as_bytes()));
            written.map_err(|error| export::cannot_write(path, &error))?;
        }
        None => {
            let kind = if format == Format::Json { Ui::Json } else { Ui::Lines };
            let mut out = output::stdout_for(kind);
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| show::stdout_failed(&error))?;
        }
    }
    Ok(Exit::Ok)
}

/// The report in a format; `traced` if KTX's trace of the run is there. Pure.
pub fn write(report: &Report, format: Format, traced: bool) -> String {
    match format {
        Format::Md => markdown::write(report),
        Format::Junit => junit::write(report),
        Format::Html => html::write(report),
        Format::Json => snapshot::snapshots(report, traced).iter().map(|snapshot| format!("{snapshot}\n")).collect(),
    }
}

/// Folds the record that `what` means, as far as it goes.
///
/// # Errors
/// When there is no such record, or it cannot be read.
pub fn gather(global: &Global, what: &str) -> Result<Report, Failure> {
    let (source, live) = open(global, what)?;
    fold(source, live)
}

/// Folds a source as far as it goes.
///
/// # Errors
/// When it cannot be read.
pub fn fold(source: FileSource, live: bool) -> Result<Report, Failure> {
    let mut timeline = Timeline::forward(Box::new(source));
    let mut gathering = Gathering::default();
    // A live run has nothing more just now; a pipe may only be slow.
    loop {
        match timeline.advance(SLICE, &mut |emitted| gathering.take(&emitted)).map_err(Failure::internal)? {
            Progress::More => {}
            Progress::Waiting if !live => std::thread::sleep(show::LOOK_AGAIN),
            Progress::Waiting | Progress::End => break,
        }
    }
    Ok(gathering.report(timeline.source().origin(), timeline.story(), live))
}

/// The record, and whether its run is still active: its end is then not the end of the run.
///
/// # Errors
/// When there is no such record, or it cannot be read.
pub fn open(global: &Global, what: &str) -> Result<(FileSource, bool), Failure> {
    // What a report shows of a string is a small part of the longest one.
    let source = replay::open(global, what)?.shortened();
    let Some(found) = runs::running(global, what, &source)? else { return Ok((source, false)) };
    let (source, _) = runs::follow(&runs::place(global)?, &found)?;
    Ok((source.shortened(), true))
}

/// The part of the report that is about one connection.
fn only(report: Report, connection: &str) -> Result<Report, Failure> {
    report.of_connection(connection).map_err(|known| {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Failure::not_found(format!("the run has no connection {connection:?}; its connections are: {known}"))
    })
}

#[cfg(test)]
mod tests;
