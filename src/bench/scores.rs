//! Scores of a bench: the runs of each cell, a model and a prompt, as means with intervals, and rules that they must
//! meet. Pure.
//!
//! It must not know how runs are started. `statistics` has the formulas, and `gate` the rules.

mod gate;
mod statistics;

use std::collections::BTreeSet;

pub use self::gate::GateRule;
use ingestdeck_core::{
    run::{
        outcome::RunOutcome,
        quality::{QualityFigure, RunQuality, format_share},
        report::{RunReport, UnitReport},
        state::UnitStatus,
    },
    tape::Millis,
    text,
};

/// Reciprocal of the precision of numbers in texts, comparisons and JSON.
const SCALE: f64 = 1e6;

/// A figure without the rounding errors of its computation.
pub fn rounded(value: f64) -> f64 {
    (value * SCALE).round() / SCALE
}

/// One figure of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchFigure {
    /// Share of the units that succeeded.
    Success,
    /// Share of the runs whose reconcile step left nothing.
    Reconciled,
    /// Mean similarity of the paths of the artifacts of two repeats.
    PathAgreement,
    /// Mean similarity of the lines of the artifacts of two repeats.
    Agreement,
    /// Wall time of a run.
    Seconds,
    Quality(QualityFigure),
}

impl BenchFigure {
    /// All figures, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Self> {
        let before = [Self::Success, Self::Reconciled];
        let after = [Self::Seconds, Self::Agreement, Self::PathAgreement];
        before
            .into_iter()
            .chain(QualityFigure::ALL.map(Self::Quality))
            .chain(after)
    }

    /// Its key in JSON and in rules.
    pub fn key(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Reconciled => "reconciled",
            Self::PathAgreement => "path_agreement",
            Self::Agreement => "agreement",
            Self::Seconds => "seconds",
            Self::Quality(figure) => figure.key(),
        }
    }

    /// The figure with this key. The suffix `_usd` of costs may be left out.
    pub(crate) fn parse(key: &str) -> Option<Self> {
        Self::all()
            .find(|figure| figure.key() == key || figure.key().strip_suffix("_usd") == Some(key))
    }

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Success => "succeeded units",
            Self::Reconciled => "reconciled runs",
            Self::PathAgreement => "agreement of paths",
            Self::Agreement => "agreement of lines",
            Self::Seconds => "time",
            Self::Quality(figure) => figure.label(),
        }
    }

    /// Formats a value; `?` if it is unknown.
    pub(crate) fn format(self, value: Option<f64>) -> String {
        match (self, value) {
            (Self::Quality(figure), value) => figure.format(value),
            (_, None) => "?".to_owned(),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "times are not negative"
            )]
            (Self::Seconds, Some(seconds)) => text::seconds(Millis((seconds * 1000.0) as u64)),
            (_, Some(share)) => format_share(share),
        }
    }

    /// True if a larger value is better, false if a smaller one is; `None` if neither is, or if it depends on the
    /// machine.
    fn prefers_more(self) -> Option<bool> {
        match self {
            Self::Success
            | Self::Reconciled
            | Self::PathAgreement
            | Self::Agreement
            | Self::Quality(QualityFigure::Coverage) => Some(true),
            Self::Quality(
                QualityFigure::Unsourced
                | QualityFigure::Dangling
                | QualityFigure::Replaced
                | QualityFigure::Cost
                | QualityFigure::CostPerArtifact,
            ) => Some(false),
            Self::Seconds | Self::Quality(_) => None,
        }
    }

    /// The largest possible value.
    fn maximum(self) -> f64 {
        match self {
            Self::Seconds => f64::INFINITY,
            Self::Quality(figure) if figure != QualityFigure::Coverage => f64::INFINITY,
            _ => 1.0,
        }
    }
}

/// One run of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRun {
    /// Index of the cell.
    pub cell: usize,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// False for a run that was cut short, or whose changes were not saved. It does not count.
    pub is_complete: bool,
    /// True if its reconcile step succeeded, or was not needed.
    pub is_reconciled: bool,
    pub succeeded_units: usize,
    pub units: usize,
    pub quality: RunQuality,
    pub duration: Millis,
    /// Paths of the pages and sources that it changed.
    pub paths: BTreeSet<String>,
    /// Their lines without blanks at both ends, each with its path; no empty lines.
    pub lines: BTreeSet<(String, String)>,
}

impl BenchRun {
    /// The figures of a run. `lines` are those of the committed artifacts.
    pub fn new(
        (cell, repeat): (usize, u32),
        report: &RunReport,
        paths: BTreeSet<String>,
        lines: BTreeSet<(String, String)>,
    ) -> Self {
        let step = report.reconcile_unit();
        let units = || {
            report
                .units
                .iter()
                .filter(|unit| Some(&unit.key) != step.map(|step| &step.key))
        };
        Self {
            cell,
            repeat,
            is_complete: is_complete(report),
            is_reconciled: report.publication.unreconciled.is_empty()
                && step.is_none_or(UnitReport::is_successful),
            succeeded_units: units()
                .filter(|unit| UnitReport::is_successful(unit))
                .count(),
            units: units().count(),
            quality: RunQuality::new(report),
            duration: report.duration,
            paths,
            lines,
        }
    }

    /// A figure of the run alone; `None` if it is unknown, or compares runs.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and times are far below 2^52"
    )]
    pub fn value(&self, figure: BenchFigure) -> Option<f64> {
        match figure {
            BenchFigure::Success => {
                (self.units > 0).then(|| self.succeeded_units as f64 / self.units as f64)
            }
            BenchFigure::Reconciled => Some(f64::from(u8::from(self.is_reconciled))),
            BenchFigure::PathAgreement | BenchFigure::Agreement => None,
            BenchFigure::Seconds => Some(self.duration.0 as f64 / 1000.0),
            BenchFigure::Quality(figure) => self.quality.value(figure),
        }
    }
}

/// True if the run came to its end: every unit succeeded or failed, and what succeeded is in the project.
fn is_complete(report: &RunReport) -> bool {
    let has_result = |unit: &UnitReport| unit.is_successful() || unit.status == UnitStatus::Failed;
    matches!(
        report.outcome,
        RunOutcome::Done | RunOutcome::Partial | RunOutcome::Error
    ) && report.publication.save_error.is_none()
        && !report.units.is_empty()
        && report
            .units
            .iter()
            .all(|unit| has_result(unit) && !unit.is_unsaved)
}

/// A figure of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub figure: BenchFigure,
    /// `None` if it is unknown in a run.
    pub mean: Option<f64>,
    /// Interval that contains the true mean with a confidence of 95 %; `None` if it is unknown.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// The mean and the interval for people.
    pub fn text(&self) -> String {
        let mean = self.figure.format(self.mean);
        match self.interval {
            Some((low, high)) => {
                format!(
                    "{mean} ({}–{})",
                    self.figure.format(Some(low)),
                    self.figure.format(Some(high))
                )
            }
            None => mean,
        }
    }
}

/// The score of a cell over its complete runs, one estimate per figure.
pub fn score<'a>(runs: impl Iterator<Item = &'a BenchRun>) -> Vec<Estimate> {
    let runs: Vec<&BenchRun> = runs.filter(|run| run.is_complete).collect();
    BenchFigure::all()
        .map(|figure| estimate(figure, &runs))
        .collect()
}

fn estimate(figure: BenchFigure, runs: &[&BenchRun]) -> Estimate {
    let (mean, interval) = match figure {
        BenchFigure::Success | BenchFigure::Reconciled => {
            let (part, all) = match figure {
                BenchFigure::Success => (
                    runs.iter().map(|run| run.succeeded_units).sum::<usize>(),
                    runs.iter().map(|run| run.units).sum::<usize>(),
                ),
                _ => (
                    runs.iter().filter(|run| run.is_reconciled).count(),
                    runs.len(),
                ),
            };
            let interval = if runs.len() > 1 {
                statistics::wilson_interval(part, all)
            } else {
                None
            };
            (statistics::share(part, all), interval)
        }
        BenchFigure::PathAgreement => (
            statistics::pairwise_agreement(runs.iter().map(|run| &run.paths)),
            None,
        ),
        BenchFigure::Agreement => (
            statistics::pairwise_agreement(runs.iter().map(|run| &run.lines)),
            None,
        ),
        BenchFigure::Seconds | BenchFigure::Quality(_) => {
            let values: Option<Vec<f64>> = runs.iter().map(|run| run.value(figure)).collect();
            let values = values.unwrap_or_default();
            let bounded = |(low, high): (f64, f64)| (low.max(0.0), high.min(figure.maximum()));
            (
                statistics::mean(&values),
                statistics::mean_interval(&values).map(bounded),
            )
        }
    };
    Estimate {
        figure,
        mean,
        interval,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(repeat: u32, succeeded_units: usize, lines: &[&str]) -> BenchRun {
        BenchRun {
            cell: 0,
            repeat,
            is_complete: true,
            is_reconciled: true,
            succeeded_units,
            units: 4,
            quality: RunQuality::default(),
            duration: Millis(u64::from(repeat) * 1000),
            paths: ["a".to_owned()].into(),
            lines: lines
                .iter()
                .map(|line| ("a".to_owned(), (*line).to_owned()))
                .collect(),
        }
    }

    fn texts(runs: &[BenchRun]) -> Vec<String> {
        let known = score(runs.iter())
            .into_iter()
            .filter(|estimate| estimate.mean.is_some());
        known
            .map(|estimate| format!("{} {}", estimate.figure.key(), estimate.text()))
            .collect()
    }

    #[test]
    fn score_has_means_intervals_and_agreement() {
        let runs = [
            run(1, 4, &["x", "y"]),
            run(2, 3, &["x", "z"]),
            run(3, 4, &["x", "y"]),
        ];
        assert_eq!(
            texts(&runs),
            [
                "success 92% (65%–99%)",
                "reconciled 100% (44%–100%)",
                "seconds 2.0s (0.0s–4.4s)",
                "agreement 56%",
                "path_agreement 100%"
            ]
        );
    }

    #[test]
    fn one_repeat_has_no_interval_or_agreement() {
        let one = ["success 50%", "reconciled 100%", "seconds 1.0s"];
        assert_eq!(texts(&[run(1, 2, &["x"])]), one);
        let cut = BenchRun {
            is_complete: false,
            ..run(2, 0, &[])
        };
        assert_eq!(texts(&[run(1, 2, &["x"]), cut]), one);
        assert_eq!(texts(&[]), [""; 0]);
    }

    #[test]
    fn figures_are_found_by_their_keys() {
        for figure in BenchFigure::all() {
            assert_eq!(BenchFigure::parse(figure.key()), Some(figure));
        }
        assert_eq!(
            BenchFigure::parse("cost"),
            Some(BenchFigure::Quality(QualityFigure::Cost))
        );
        assert_eq!(BenchFigure::parse("speed"), None);
    }
}
