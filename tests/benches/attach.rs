//! Attaching a screen to an active run with a long record, against replaying the same tape.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, PairedSamples, Threshold, pairs},
    measured_process::{ProbeOutput, argument, ingestdeck, run},
    project,
};
use ingestdeck_records::store::RunStore;

/// Entries of the tape.
const ENTRIES: usize = 100_000;
/// Characters per delta; each delta is an entry.
const DELTA: usize = 20;
const PAIRS: usize = 9;
/// How long the run may take to record its entries.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("project");
    fs::create_dir(&place)?;
    project::of_documents(&place, 1)?;
    let speech: String = "The quick brown fox "
        .chars()
        .cycle()
        .take(DELTA * (ENTRIES + ENTRIES / 20))
        .collect();
    let script = format!(
        "[pace]\nchunk_chars = {DELTA}\nchunk_ms = 0\n[[part]]\nsteps = [{{ say = \"{speech}\" }}, \"hang\"]\n"
    );
    let agent = project::agent(folder.path(), &script)?;
    let place_argument = argument(&place)?;
    let started = Command::new(ingestdeck())
        .args([
            "run",
            "--detach",
            "--ui",
            "none",
            "--project-dir",
            place_argument,
            "--claude-bin",
            &agent,
        ])
        .status()?;
    if !started.success() {
        return Err("the run could not be started".into());
    }
    let measured = measure_run(place_argument, &RunStore::new(&place));
    let stop = ["ctl", "--project-dir", place_argument, "stop-all", "--kill"];
    Command::new(ingestdeck()).args(stop).status()?;
    let bar = FigureGoal {
        required: Threshold::AtMost(1.5),
        goal: Threshold::AtMost(1.1),
    };
    report.ratio(
        "attach to 100,000 entries, first complete screen / replay of the tape",
        &measured?,
        bar,
    );
    Ok(())
}

fn measure_run(project: &str, runs: &RunStore) -> BenchResult<PairedSamples> {
    let tape = runs.list()?.pop().ok_or("no record")?.tape;
    let begun = Instant::now();
    while BufReader::new(File::open(&tape)?).lines().count() < ENTRIES {
        if begun.elapsed() > PATIENCE {
            return Err("the run does not record its entries".into());
        }
        std::thread::park_timeout(Duration::from_millis(200));
    }
    let replay = ["replay", argument(&tape)?, "--ui", "tui", "--until", "end"];
    let attach = [
        "attach",
        "--project-dir",
        project,
        "--ui",
        "tui",
        "--until",
        "end",
    ];
    pairs(
        PAIRS,
        || Ok(run(ingestdeck(), &attach, ProbeOutput::Terminal)?.seconds),
        || Ok(run(ingestdeck(), &replay, ProbeOutput::Terminal)?.seconds),
    )
}
