//! Paired measurements, ratios and goals. Must not know what is measured.

use std::{
    error::Error,
    fmt,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Any error of a measurement.
pub(crate) type BenchResult<T> = Result<T, Box<dyn Error>>;

/// A limit on a figure.
#[derive(Clone, Copy)]
pub(crate) enum Threshold {
    AtMost(f64),
    AtLeast(f64),
}

impl Threshold {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

/// The required and the desired limit of a figure.
#[derive(Clone, Copy)]
pub(crate) struct FigureGoal {
    pub(crate) required: Threshold,
    pub(crate) goal: Threshold,
}

/// A sample of one figure.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value below which `share` of the sample lies.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0
            .get((last as f64 * share).round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// The sample of 1/x, which converts times to speeds.
    pub(crate) fn inverse(&self) -> Self {
        Self::new(self.0.iter().map(|value| 1.0 / value).collect())
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.quantile(0.0), self.quantile(1.0));
        write!(
            f,
            "{} [{}..{}], n={}",
            short(self.median()),
            short(low),
            short(high),
            self.0.len()
        )
    }
}

/// Samples of two things that were measured alternately.
pub(crate) struct PairedSamples {
    pub(crate) ours: Sample,
    pub(crate) theirs: Sample,
    /// `ours` divided by `theirs`, for each pair.
    pub(crate) ratio: Sample,
}

/// Measures `ours` and `theirs` alternately, after one warm-up round. Both return seconds.
pub(crate) fn pairs(
    count: usize,
    mut ours: impl FnMut() -> BenchResult<f64>,
    mut theirs: impl FnMut() -> BenchResult<f64>,
) -> BenchResult<PairedSamples> {
    ours()?;
    theirs()?;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for _ in 0..count {
        left.push(ours()?);
        right.push(theirs()?);
    }
    let ratio = left
        .iter()
        .zip(&right)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    Ok(PairedSamples {
        ours: Sample::new(left),
        theirs: Sample::new(right),
        ratio: Sample::new(ratio),
    })
}

/// The exit code of a process that plays a role.
pub(crate) fn role_exit(played: BenchResult<()>) -> ExitCode {
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Seconds that `work` takes.
pub(crate) fn timed<T>(work: impl FnOnce() -> BenchResult<T>) -> BenchResult<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Collects results and prints each immediately.
pub(crate) struct BenchReport {
    wanted: Vec<String>,
    missed: Vec<String>,
    absent: Vec<String>,
}

impl BenchReport {
    pub(crate) fn new(wanted: Vec<String>) -> Self {
        Self {
            wanted,
            missed: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// Runs a topic if it was selected.
    pub(crate) fn topic(&mut self, name: &str, work: impl FnOnce(&mut Self) -> BenchResult<()>) {
        if !self.wanted.is_empty()
            && !self
                .wanted
                .iter()
                .any(|wanted| name.contains(wanted.as_str()))
        {
            return;
        }
        println!("\n{name}");
        if let Err(error) = work(self) {
            println!("  FAILED {error}");
            self.missed.push(format!("{name}: {error}"));
        }
    }

    /// Reports a figure and its goal.
    pub(crate) fn figure(&mut self, name: &str, sample: &Sample, bar: FigureGoal) {
        let value = sample.median();
        let word = if !bar.required.is_met(value) {
            self.missed
                .push(format!("{name}: {} (hard {})", short(value), bar.required));
            "MISSED"
        } else if bar.goal.is_met(value) {
            "aim met"
        } else {
            "hard met"
        };
        println!(
            "  {name:<52} {sample:<38} hard {:<9} aim {:<9} {word}",
            bar.required.to_string(),
            bar.goal.to_string()
        );
    }

    /// Reports a ratio and its goal, and the underlying times.
    pub(crate) fn ratio(&mut self, name: &str, pairs: &PairedSamples, bar: FigureGoal) {
        self.figure(name, &pairs.ratio, bar);
        self.note(&format!(
            "ours {}, theirs {}",
            time(pairs.ours.median()),
            time(pairs.theirs.median())
        ));
    }

    /// Prints a comment on the preceding figure.
    pub(crate) fn note(&mut self, text: &str) {
        println!("    {text}");
    }

    /// Records that a figure is missing because `program` is not installed.
    pub(crate) fn note_missing_program(&mut self, program: &str, figure: &str) {
        println!("  {figure:<52} NOT MEASURED: {program} is not installed");
        self.absent.push(format!("{figure}: no {program}"));
    }

    /// Prints the summary and returns the exit code.
    pub(crate) fn end(self) -> ExitCode {
        println!();
        for absent in &self.absent {
            println!("not measured: {absent}");
        }
        for missed in &self.missed {
            println!("missed: {missed}");
        }
        if self.missed.is_empty() {
            println!("every hard bar that was measured holds");
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Formats a duration for display.
pub(crate) fn time(seconds: f64) -> String {
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    format!("{duration:.1?}")
}

fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
