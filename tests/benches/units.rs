//! Runs of many units: the time that a unit takes beyond its agent's own, and the memory of a long queue.
//!
//! The agent is a script that waits as a model would, so that its own time is known beforehand.

use std::{fmt::Write as _, path::Path, process::Command};

use crate::{
    harness::{Bar, Limit, Outcome, Report, Sample},
    probe::{self, Output, argument, ingestdeck},
    project,
};

/// Units whose overhead is measured, and how many run at once.
const UNITS: u32 = 50;
const SLOTS: u32 = 4;
/// What an agent waits before each of its messages, in milliseconds.
const MESSAGE: u32 = 1250;
/// Its messages: three calls and the answer.
const MESSAGES: u32 = 4;
/// Units of a long queue.
const MANY: u32 = 1000;

pub(crate) fn measure(report: &mut Report) -> Outcome<()> {
    overhead(report, "without a repository", false)?;
    if probe::is_installed("git") {
        overhead(report, "in git worktrees", true)?;
    } else {
        report.absent("git", "overhead of a unit in git worktrees");
    }
    queue(report)
}

fn overhead(report: &mut Report, place: &str, repository: bool) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    project::of_documents(folder.path(), UNITS)?;
    if repository {
        commit(folder.path())?;
    }
    let beside = tempfile::tempdir()?;
    let agent = project::agent(beside.path(), &script())?;
    let ran = run(folder.path(), &agent, SLOTS)?;
    let own = f64::from(MESSAGES * MESSAGE) / 1000.0;
    let rounds = f64::from(UNITS.div_ceil(SLOTS));
    let beyond = (ran.seconds / rounds - own) * 1000.0;
    let bar = Bar { hard: Limit::AtMost(150.0), aim: Limit::AtMost(75.0) };
    report.figure(&format!("a unit beyond its agent's time, ms, {place}"), &Sample::new(vec![beyond]), bar);
    let share = (1.0 - rounds * own / ran.seconds) * 100.0;
    let bar = Bar { hard: Limit::AtMost(3.0), aim: Limit::AtMost(1.5) };
    report.figure(&format!("the same of the whole time, %, {place}"), &Sample::new(vec![share]), bar);
    report.note(&format!("{UNITS} units of {own:.1} s, {SLOTS} at once, start to exit in {:.1} s", ran.seconds));
    Ok(())
}

fn queue(report: &mut Report) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    project::of_documents(folder.path(), MANY)?;
    let agent = project::agent(folder.path(), "[[part]]\nsteps = [{ say = \"Nothing to write.\" }]\n")?;
    let ran = run(folder.path(), &agent, 8)?;
    let bar = Bar { hard: Limit::AtMost(64.0), aim: Limit::AtMost(32.0) };
    report.figure(&format!("peak MiB, {MANY} units planned and run"), &Sample::new(vec![ran.peak_kib / 1024.0]), bar);
    report.note(&format!("{:.1} s", ran.seconds));
    Ok(())
}

fn run(project: &Path, agent: &str, slots: u32) -> Outcome<probe::Run> {
    let slots = slots.to_string();
    let project = argument(project)?;
    let words = [
        "run",
        "--full",
        "--project-dir",
        project,
        "--claude-bin",
        agent,
        "--concurrency",
        &slots,
        "--no-reconcile",
        "--ui",
        "none",
    ];
    probe::run(ingestdeck(), &words, Output::Null)
}

/// Every unit reads its file, notes what it verified, and writes a page.
fn script() -> String {
    let mut script = format!("[pace]\nmessage_ms = {MESSAGE}\nchunk_ms = 0\n");
    for number in 0..UNITS {
        let (unit, file) = (project::unit(number), project::raw_file(number));
        let _ = write!(
            script,
            r##"
[[part]]
unit = "{unit}"
steps = [
  {{ call = {{ tool = "read_raw_file", with = {{ path = "{file}" }} }} }},
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it.", verifiedIdentifiers = [], unverifiedIdentifiers = [] }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "page-{number}", summary = "A page", content = "# Page", rawPaths = ["{file}"] }} }} }},
  {{ say = "Done." }},
]
"##
        );
    }
    script
}

/// Makes `project` a repository with everything in it committed.
fn commit(project: &Path) -> Outcome<()> {
    for words in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "A project"],
    ] {
        if !Command::new("git").arg("-C").arg(project).args(words).status()?.success() {
            return Err(format!("git {} failed", words.join(" ")).into());
        }
    }
    Ok(())
}
