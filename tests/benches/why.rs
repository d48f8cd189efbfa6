//! Explaining the lines of a page in a project with many recorded runs, against `git blame` of the same page.

use std::{fs, path::Path, process::Command};

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, PairedSamples, Threshold, pairs},
    measured_process::{ProbeOutput, argument, ingestdeck, is_installed, run},
    project,
};
use ingestdeck_core::tape::RunId;
use ingestdeck_records::store::RunStore;

/// Recorded runs of the project.
const RUNS: u128 = 1_000;
/// Lines of the page.
const LINES: usize = 200;
const PAIRS: usize = 15;
const PAGE: &str = "wiki/global/page.md";

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let name = "why, 200 lines, 1,000 recorded runs / git blame of the page";
    if !is_installed("git") {
        report.note_missing_program("git", name);
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("project");
    fs::create_dir(&place)?;
    project::of_documents(&place, 1)?;
    let git = |args: &[&str]| -> BenchResult<()> {
        let identity = [
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@example.com",
        ];
        let done = Command::new("git")
            .args(identity)
            .args(args)
            .current_dir(&place)
            .status()?;
        if done.success() {
            Ok(())
        } else {
            Err(format!("git {args:?} failed").into())
        }
    };
    git(&["init", "--quiet"])?;
    git(&["add", "--all"])?;
    git(&["commit", "--quiet", "-m", "start"])?;
    let text: String = (0..LINES).map(|line| format!("Line {line}.\\n")).collect();
    let call = |tool: &str, with: &str| {
        format!("  {{ call = {{ tool = \"{tool}\", with = {{ {with} }} }} }},\n")
    };
    let calls = [
        call("record_verification_ledger", "summary = \"Read it.\""),
        call(
            "wiki_write",
            &format!("key = \"page\", summary = \"A page\", content = \"{text}\""),
        ),
    ];
    let script = format!(
        "[[part]]\nsteps = [\n{}  {{ say = \"Done.\" }},\n]\n",
        calls.concat()
    );
    let agent = project::agent(folder.path(), &script)?;
    let place = argument(&place)?;
    let words = [
        "run",
        "--ui",
        "none",
        "--no-reconcile",
        "--project-dir",
        place,
        "--claude-bin",
        &agent,
    ];
    if !Command::new(ingestdeck()).args(words).status()?.success() {
        return Err("the run failed".into());
    }
    copy_record(Path::new(place))?;
    let bar = FigureGoal {
        required: Threshold::AtMost(25.0),
        goal: Threshold::AtMost(10.0),
    };
    report.ratio(name, &measure_page(place)?, bar);
    Ok(())
}

/// Records the run again under other ids, so that there are [`RUNS`].
fn copy_record(project: &Path) -> BenchResult<()> {
    let known = RunStore::new(project).list()?.pop().ok_or("no record")?;
    let tape = fs::read_to_string(&known.tape)?;
    let runs = known
        .tape
        .ancestors()
        .nth(2)
        .ok_or("no directory of runs")?;
    for number in 1..RUNS {
        let id = RunId(uuid::Uuid::from_u128(known.id.0.as_u128() + number)).to_string();
        fs::create_dir(runs.join(&id))?;
        fs::write(
            runs.join(&id).join("tape.jsonl"),
            tape.replacen(&known.id.to_string(), &id, 1),
        )?;
    }
    Ok(())
}

fn measure_page(project: &str) -> BenchResult<PairedSamples> {
    let why = ["why", PAGE, "--project-dir", project];
    let blame = ["-C", project, "blame", "--porcelain", PAGE];
    pairs(
        PAIRS,
        || Ok(run(ingestdeck(), &why, ProbeOutput::Null)?.seconds),
        || Ok(run("git", &blame, ProbeOutput::Null)?.seconds),
    )
}
