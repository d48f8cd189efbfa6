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
mod run_document;
mod sections;
mod snapshot;

use std::{path::Path, time::Duration};

use clap::ValueEnum;

pub use self::diff::{MAX_NAME_WIDTH, render_json, render_text};
use self::redact::Redactor;
use ingestdeck_core::{
    exit::Exit,
    run::{
        EntrySource, EntrySourceError, PollStatus, RunReport, RunState, Timeline,
        coverage::PriorFileResults, report::ReportBuilder,
    },
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
    /// One JSON document about the whole run, for dashboards.
    Run,
    /// JUnit XML for CI; failed units are failed tests.
    Junit,
    /// One page without external resources.
    Html,
    /// Annotations of GitHub Actions.
    Github,
}

/// Facts about a run that its report does not contain.
#[derive(Clone, Debug, Default)]
pub struct ReportContext {
    /// True if KTX's trace of the run exists.
    pub is_traced: bool,
    /// The exit code of the run, as far as its record determines it.
    pub exit: Option<Exit>,
    /// Path of its tape.
    pub tape: Option<String>,
}

/// Renders the report in a format, without secrets of known kinds and those of the settings of `project`. Also returns
/// the number of masked places, with those that are cut off afterwards.
pub fn render_masked(
    report: &RunReport,
    format: ReportFormat,
    context: &ReportContext,
    project: Option<&Path>,
) -> (String, usize) {
    let mut redactor = Redactor::for_process(project);
    let mut text = render(report, format, context, &mut redactor.consecutive_texts());
    // Next to each other, two texts may reveal what neither does alone.
    if !matches!(format, ReportFormat::Json | ReportFormat::Run) {
        text = redactor.text(&text).into_owned();
    }
    (text, redactor.masked)
}

/// Renders the report in a format; `mask` returns a text without its secrets.
fn render(
    report: &RunReport,
    format: ReportFormat,
    context: &ReportContext,
    mask: &mut dyn FnMut(&str) -> String,
) -> String {
    match format {
        ReportFormat::Md => escape::finish(&markdown::render(report), mask),
        ReportFormat::Junit => escape::finish(&junit::render(report), mask),
        ReportFormat::Html => escape::finish(&html::render(report), mask),
        ReportFormat::Github => escape::finish(&github::render(report), mask),
        ReportFormat::Json => snapshot::snapshots(report, context.is_traced)
            .iter()
            .map(|snapshot| format!("{}\n", mask(&snapshot.to_string())))
            .collect(),
        ReportFormat::Run => {
            let document = run_document::document(report, context);
            format!("{}\n", mask(&document.to_string()))
        }
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
    fold_run(source, live, prior).map(|(report, _)| report)
}

/// Like [`fold_report`], and returns the state at the end, too.
///
/// # Errors
/// If it cannot be read.
pub fn fold_run(
    source: impl EntrySource + 'static,
    live: bool,
    prior: Option<PriorFileResults>,
) -> Result<(RunReport, RunState), EntrySourceError> {
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
    let report = gathering.finish(timeline.source().info(), timeline.view(), live);
    Ok((report, timeline.view().state.clone()))
}

#[cfg(test)]
mod tests;
