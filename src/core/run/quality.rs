//! The quality of a run as figures: what it changed, what its checks found, and what that cost. Pure.
//!
//! A figure that the tape does not show is unknown, never 0. It must not know how figures are shown side by side.

use super::{
    artifacts::{ArtifactStatus, ArtifactWriter, LineCounts, RunArtifact},
    report::{RunReport, UnitReport},
};
use crate::{
    tape::note::{
        AttemptOutcome, AttemptOutput, PatchResult,
        attempt_output::{ArtifactChange, MAX_DANGLING},
    },
    text::{dollars, pluralize},
};

/// One figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QualityFigure {
    Created,
    Updated,
    Removed,
    Coverage,
    Unsourced,
    Dangling,
    Churn,
    Replaced,
    Cost,
    CostPerArtifact,
}

impl QualityFigure {
    /// All figures, in the order in which they are shown.
    pub const ALL: [Self; 10] = [
        Self::Created,
        Self::Updated,
        Self::Removed,
        Self::Coverage,
        Self::Unsourced,
        Self::Dangling,
        Self::Churn,
        Self::Replaced,
        Self::Cost,
        Self::CostPerArtifact,
    ];

    /// Its key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Removed => "removed",
            Self::Coverage => "coverage",
            Self::Unsourced => "unsourced",
            Self::Dangling => "dangling",
            Self::Churn => "churn",
            Self::Replaced => "replaced",
            Self::Cost => "cost_usd",
            Self::CostPerArtifact => "cost_per_artifact_usd",
        }
    }

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Created | Self::Updated | Self::Removed | Self::Coverage | Self::Churn => {
                self.key()
            }
            Self::Unsourced => "unsourced identifiers",
            Self::Dangling => "dangling references",
            Self::Replaced => "replaced lines",
            Self::Cost => "cost",
            Self::CostPerArtifact => "cost per artifact",
        }
    }

    /// Formats a value; `?` if it is unknown.
    pub fn format(self, value: Option<f64>) -> String {
        match (self, value) {
            (Self::Cost | Self::CostPerArtifact, value) => dollars(value),
            (_, None) => "?".to_owned(),
            (Self::Coverage, Some(share)) => format_share(share),
            (_, Some(count)) if count.fract() == 0.0 => format!("{count:.0}"),
            (_, Some(count)) => format!("{count:.1}"),
        }
    }
}

/// Formats a share: `75%`. A share below 1 is never shown as 100%, and one above 0 never as 0%.
pub fn format_share(share: f64) -> String {
    let percent = share * 100.0;
    let rounded = if percent > 99.0 {
        percent.floor()
    } else {
        percent.round()
    };
    if percent > 0.0 && percent < 1.0 {
        "<1%".to_owned()
    } else {
        format!("{rounded}%")
    }
}

/// The figures of a run. `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunQuality {
    /// Numbers of pages and sources that the run created, updated and removed.
    changes: Option<[usize; 3]>,
    /// Number of pages and sources that attempts of this run wrote and whose changes count.
    written: usize,
    /// Number of raw files that are covered, and of all raw files.
    coverage: Option<(usize, usize)>,
    /// Number of identifiers in the artifacts that no agent received.
    unsourced: Option<usize>,
    /// Number of references that did not resolve at the end of an attempt.
    dangling: Option<usize>,
    /// Lines that attempts added to artifacts whose changes count, and lines of existing text that they removed.
    lines: Option<LineCounts>,
    /// Lines that successful attempts added and that are not part of the result.
    replaced: Option<u64>,
    /// US dollars, over all attempts of the run.
    cost: Option<f64>,
}

impl RunQuality {
    /// Derives the figures of a run, or of the part that a report is limited to.
    pub fn new(report: &RunReport) -> Self {
        let accepted: Vec<&RunArtifact> = report
            .artifacts
            .list
            .iter()
            .filter(|it| is_accepted(report, it))
            .collect();
        let all = || {
            report
                .artifacts
                .list
                .iter()
                .filter(|artifact| artifact.target.is_some())
        };
        let writers = || {
            all()
                .flat_map(|artifact| &artifact.writers)
                .filter(|it| !it.unit.is_without_attempt())
        };
        let (kept, dropped): (Vec<&ArtifactWriter>, Vec<&ArtifactWriter>) =
            writers().partition(|it| counts(report, it.state));
        let is_of_run = |artifact: &&&RunArtifact| {
            artifact
                .effective_writers()
                .any(|writer| writer.attempt > 0 && writer.state.counts())
        };
        let changes = count_changes(&accepted);
        Self {
            changes,
            written: accepted.iter().filter(is_of_run).count(),
            // A tape without changes does not show the raw files that they rest on, either.
            coverage: coverage(report)
                .filter(|_| changes.is_some() && report.publication.save_error.is_none()),
            unsourced: is_checked(report, |output| output.unsourced.is_some()).then(|| {
                accepted
                    .iter()
                    .map(|artifact| artifact.unsourced().count())
                    .sum()
            }),
            dangling: is_checked(report, |output| output.dangling.is_some())
                .then(|| dangling(report)),
            lines: kept.iter().map(|writer| writer.lines).sum(),
            replaced: dropped
                .iter()
                .filter(|writer| writer.state != ArtifactStatus::Discarded)
                .map(|writer| Some(writer.lines?.added))
                .sum(),
            cost: report
                .totals
                .cost
                .filter(|_| !report.totals.is_cost_partial),
        }
    }

    /// A figure as a number; `None` if it is unknown.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn value(&self, figure: QualityFigure) -> Option<f64> {
        let change = |index: usize| Some(self.changes?[index] as f64);
        match figure {
            QualityFigure::Created => change(0),
            QualityFigure::Updated => change(1),
            QualityFigure::Removed => change(2),
            QualityFigure::Coverage => self
                .coverage
                .map(|(covered, all)| covered as f64 / all as f64),
            QualityFigure::Unsourced => Some(self.unsourced? as f64),
            QualityFigure::Dangling => Some(self.dangling? as f64),
            QualityFigure::Churn => self
                .lines
                .map(|lines| lines.added.saturating_add(lines.removed) as f64),
            QualityFigure::Replaced => Some(self.replaced? as f64),
            QualityFigure::Cost => self.cost,
            QualityFigure::CostPerArtifact => self
                .cost
                .filter(|_| self.written > 0)
                .map(|cost| cost / self.written as f64),
        }
    }

    /// A figure for people, with the numbers that it is derived from.
    pub fn text(&self, figure: QualityFigure) -> String {
        let value = figure.format(self.value(figure));
        match figure {
            QualityFigure::Coverage => match self.coverage {
                Some((covered, all)) => {
                    format!("{value} ({covered} of {})", pluralize(all, "raw file"))
                }
                None => value,
            },
            QualityFigure::Churn => match self.lines {
                Some(lines) => format!("{value} lines (+{} -{})", lines.added, lines.removed),
                None => value,
            },
            QualityFigure::CostPerArtifact if self.written > 0 => {
                format!("{value} ({})", pluralize(self.written, "artifact"))
            }
            _ => value,
        }
    }
}

/// True if the run changed the page or source and the change counts.
pub fn is_accepted(report: &RunReport, artifact: &RunArtifact) -> bool {
    let is_unchanged = artifact.state == ArtifactStatus::Integration(PatchResult::Noop);
    artifact.target.is_some() && counts(report, artifact.state) && !is_unchanged
}

/// True for changes that are part of the result: after a commit that failed, only those of earlier commits.
fn counts(report: &RunReport, state: ArtifactStatus) -> bool {
    state.counts() && (report.publication.save_error.is_none() || state == ArtifactStatus::Saved)
}

fn count_changes(accepted: &[&RunArtifact]) -> Option<[usize; 3]> {
    let mut counts = [0; 3];
    for artifact in accepted {
        let index = match artifact.change? {
            ArtifactChange::Created => 0,
            ArtifactChange::Updated => 1,
            ArtifactChange::Removed => 2,
        };
        counts[index] += 1;
    }
    Some(counts)
}

/// Covered and all raw files; `None` without raw files, or if some are not listed.
fn coverage(report: &RunReport) -> Option<(usize, usize)> {
    let mut shares = report
        .artifacts
        .coverage
        .iter()
        .map(|source| source.share());
    let sum = shares.try_fold((0, 0), |(covered, all), share| {
        share.map(|(more, of)| (covered + more, all + of))
    });
    sum.filter(|(_, all)| *all > 0)
}

/// True if the output of every successful attempt has a record of the check. A failed attempt may have ended before.
fn is_checked(report: &RunReport, has_record: impl Fn(&AttemptOutput) -> bool) -> bool {
    let mut attempts = report.units.iter().flat_map(|unit| &unit.attempts);
    let attempts_are_checked = attempts.all(|attempt| match &attempt.state.verdict {
        Some(verdict) if verdict.outcome == AttemptOutcome::Succeeded => {
            attempt.output().is_some_and(&has_record)
        }
        Some(_) => true,
        None => false,
    });
    let prior = report
        .units
        .iter()
        .filter_map(|unit| unit.prior_work.as_deref());
    attempts_are_checked && prior.into_iter().all(has_record)
}

/// References that did not resolve, over all attempts and the prior work that this run saves.
fn dangling(report: &RunReport) -> usize {
    let outputs = |unit: &UnitReport| {
        let attempts = unit.attempts.iter().filter_map(|attempt| attempt.output());
        let prior = unit.prior_work.as_deref();
        attempts
            .chain(prior)
            .flat_map(|output| &output.dangling)
            .map(|found| found.len().min(MAX_DANGLING))
            .sum::<usize>()
    };
    report.units.iter().map(outputs).sum()
}
