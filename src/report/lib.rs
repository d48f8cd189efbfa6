//! Writes recorded runs for people, CI systems and KTX: reports, comparisons and exports without secrets.
//!
//! Everything is text that the caller prints or stores. It must not know the screen, the command line or the engine.
//! [`ingestdeck_core::run::report`] folds the content; [`redact`] masks secrets.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests prepare files")
)]

mod diff;
mod escape;
pub mod export;
mod github;
mod html;
mod junit;
mod labels;
mod markdown;
pub mod redact;
mod sections;
mod snapshot;

use std::{path::Path, time::Duration};

use clap::ValueEnum;

pub use self::diff::{MAX_NAME_WIDTH, render_json, render_text};
use self::redact::Redactor;
use ingestdeck_core::run::{
    EntrySource, EntrySourceError, PollStatus, RunReport, Timeline, coverage::PriorFileResults,
    report::ReportBuilder,
};

/// Bytes that are folded at a time.
const SLICE: usize = 1 << 20;

/// Poll interval for a source that does not report its growth.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Markdown for a pull request.
    Md,
    /// KTX's report, one object per connection and line.
    Json,
    /// JUnit XML for CI; failed units are failed tests.
    Junit,
    /// One page without external resources.
    Html,
    /// Annotations of GitHub Actions.
    Github,
}

/// Renders the report in a format, without secrets of known kinds and those of the settings of `project`. Also returns
/// the number of masked places, with those that are cut off afterwards. `traced` if KTX's trace of the run exists.
pub fn render_masked(
    report: &RunReport,
    format: ReportFormat,
    traced: bool,
    project: Option<&Path>,
) -> (String, usize) {
    let mut redactor = Redactor::for_process(project);
    let mut text = render(report, format, traced, &mut redactor.consecutive_texts());
    // Next to each other, two texts may reveal what neither does alone.
    if format != ReportFormat::Json {
        text = redactor.text(&text).into_owned();
    }
    (text, redactor.masked)
}

/// Renders the report in a format; `mask` returns a text without its secrets.
fn render(
    report: &RunReport,
    format: ReportFormat,
    traced: bool,
    mask: &mut dyn FnMut(&str) -> String,
) -> String {
    match format {
        ReportFormat::Md => escape::finish(&markdown::render(report), mask),
        ReportFormat::Junit => escape::finish(&junit::render(report), mask),
        ReportFormat::Html => escape::finish(&html::render(report), mask),
        ReportFormat::Github => escape::finish(&github::render(report), mask),
        ReportFormat::Json => snapshot::snapshots(report, traced)
            .iter()
            .map(|snapshot| format!("{}\n", mask(&snapshot.to_string())))
            .collect(),
    }
}

/// Folds a source up to its current end. `prior` are the results of prior runs, if they are known.
///
/// # Errors
/// If it cannot be read.
pub fn fold_report(
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
