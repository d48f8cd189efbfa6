//! Writes recorded runs for people, CI systems and KTX: reports, comparisons and exports without secrets.
//!
//! Everything is text that the caller prints or stores. It must not know the screen, the command line or the engine.
//! [`crate::run::report`] folds the content; [`redact`] masks secrets.

mod diff;
mod escape;
pub(crate) mod export;
mod html;
mod junit;
mod labels;
mod markdown;
pub(crate) mod redact;
mod sections;
mod snapshot;

use std::time::Duration;

use clap::ValueEnum;

pub(crate) use self::diff::{render_json, render_text};
use crate::run::{
    EntrySource, EntrySourceError, PollStatus, RunReport, Timeline, coverage::PriorFileResults, report::ReportBuilder,
};

/// Bytes that are folded at a time.
const SLICE: usize = 1 << 20;

/// Poll interval for a source that does not report its growth.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Markdown for a pull request.
    Md,
    /// KTX's report, one object per connection and line.
    Json,
    /// JUnit XML for CI; failed units are failed tests.
    Junit,
    /// One page without external resources.
    Html,
}

/// Renders the report in a format; `traced` if KTX's trace of the run exists. Pure.
pub(crate) fn render(report: &RunReport, format: ReportFormat, traced: bool) -> String {
    match format {
        ReportFormat::Md => markdown::render(report),
        ReportFormat::Junit => junit::render(report),
        ReportFormat::Html => html::render(report),
        ReportFormat::Json => {
            snapshot::snapshots(report, traced).iter().map(|snapshot| format!("{snapshot}\n")).collect()
        }
    }
}

/// Folds a source up to its current end. `prior` are the results of prior runs, if they are known.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn fold_report(
    source: impl EntrySource + 'static,
    live: bool,
    prior: Option<PriorFileResults>,
) -> Result<RunReport, EntrySourceError> {
    let mut timeline = Timeline::new_forward_only(Box::new(source));
    let mut gathering = ReportBuilder::default().with_prior_results(prior);
    // A live run without new entries ends the loop; a pipe may only be slow.
    loop {
        match timeline.advance(SLICE, &mut |emitted| gathering.observe(&emitted))? {
            PollStatus::More => {}
            PollStatus::Waiting if !live => std::thread::sleep(POLL_INTERVAL),
            PollStatus::Waiting | PollStatus::End => break,
        }
    }
    Ok(gathering.finish(timeline.source().info(), timeline.view(), live))
}

#[cfg(test)]
mod tests;
