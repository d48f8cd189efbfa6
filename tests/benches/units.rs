//! Runs of many units: the time per unit in addition to its agent's time, against a shell script with the same git
//! commands, and the memory for a long queue.
//!
//! The agent is a script with fixed delays, so that its time is known in advance.

use std::{fmt::Write as _, path::Path, process::Command};

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, pairs},
    measured_process::{self, ProbeOutput, argument, ingestdeck},
    project,
};

/// Number of units whose overhead is measured, and how many run concurrently.
const UNITS: u32 = 50;
const SLOTS: u32 = 4;
/// Delay before each of an agent's four messages, in milliseconds, and the seconds of all of them.
const MESSAGE: u32 = 500;
const AGENT_SECONDS: f64 = 2.0;
const PAIRS: usize = 3;
/// Number of units of a long queue.
const MANY: u32 = 1000;

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let name = "a unit in its worktree, beyond its agent / shell script";
    if ["git", "xargs", "flock"]
        .into_iter()
        .all(measured_process::is_installed)
    {
        let measured = pairs(
            PAIRS,
            || our_seconds().map(beyond_agents),
            || baseline_seconds().map(beyond_agents),
        )?;
        let bar = FigureGoal {
            required: Threshold::AtMost(1.5),
            goal: Threshold::AtMost(1.1),
        };
        report.ratio(name, &measured, bar);
        report.note(&format!(
            "{UNITS} units, {SLOTS} concurrently, each {AGENT_SECONDS:.1} s of its agent"
        ));
    } else {
        report.note_missing_program("git, xargs or flock", name);
    }
    workers(report)?;
    queue(report)
}

/// The time of a run on workers with one slot each, against the time with the same number of slots of this machine.
fn workers(report: &mut BenchReport) -> BenchResult<()> {
    let name =
        format!("{UNITS} units on {SLOTS} workers / on {SLOTS} slots of this machine, wall time");
    if !measured_process::is_installed("nats-server") {
        report.note_missing_program("nats-server", &name);
        return Ok(());
    }
    let local = our_seconds()?;
    let folder = tempfile::tempdir()?;
    repository(folder.path())?;
    let programs = tempfile::tempdir()?;
    let agent = project::agent(programs.path(), &script())?;
    let (path, worker) = project::local_worker(programs.path(), &agent)?;
    let path = format!("PATH={path}");
    let mut words = vec![path, ingestdeck().to_owned()];
    words.extend(words_of_run(argument(folder.path())?, &agent, 0));
    for number in 1..=SLOTS {
        words.extend([
            "--worker".to_owned(),
            format!("ssh://worker-{number}?program={}", worker.display()),
        ]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let remote = measured_process::run("env", &words, ProbeOutput::Null)?.seconds;
    let bar = FigureGoal {
        required: Threshold::AtMost(1.15),
        goal: Threshold::AtMost(1.05),
    };
    report.figure(&name, &Sample::new(vec![remote / local]), bar);
    report.note(&format!("workers {remote:.2} s, this machine {local:.2} s"));
    Ok(())
}

/// Overhead per unit in seconds, for a run that took `seconds`.
fn beyond_agents(seconds: f64) -> f64 {
    seconds / f64::from(UNITS.div_ceil(SLOTS)) - AGENT_SECONDS
}

/// Seconds of a run of the program.
fn our_seconds() -> BenchResult<f64> {
    let folder = tempfile::tempdir()?;
    repository(folder.path())?;
    let agent_dir = tempfile::tempdir()?;
    let agent = project::agent(agent_dir.path(), &script())?;
    Ok(run(folder.path(), &agent, SLOTS)?.seconds)
}

/// Seconds of a shell script that does the same with git: a worktree for each unit, a commit of its page, a patch, its
/// integration in a worktree of the run, and the branch update at the end. As in the program, worktrees are added and
/// removed one at a time: git fails now and then when two processes do it together.
fn baseline_seconds() -> BenchResult<f64> {
    let folder = tempfile::tempdir()?;
    repository(folder.path())?;
    let script = format!(
        r##"set -e
cd "$1"
export GIT_AUTHOR_NAME=bench GIT_AUTHOR_EMAIL=bench@localhost GIT_COMMITTER_NAME=bench GIT_COMMITTER_EMAIL=bench@localhost
mkdir -p .git/patches
base=$(git rev-parse HEAD)
export base
unit='
  tree=.ktx/worktrees/$0
  flock .git/bench.lock git worktree add --quiet --no-checkout -b session/$0 -- $tree $base
  git -C $tree read-tree -m -u HEAD
  sleep {AGENT_SECONDS}
  mkdir -p $tree/wiki/global
  echo "# Page" > $tree/wiki/global/page-$0.md
  git -C $tree add --all --force -- wiki/global/page-$0.md
  git -C $tree commit --quiet --no-verify -m "Write page-$0"
  git -C $tree diff --binary --full-index $base..HEAD > .git/patches/$0
  flock .git/bench.lock git worktree remove --force $tree
  git update-ref -d refs/heads/session/$0
'
seq {UNITS} | xargs -P {SLOTS} -n 1 sh -ec "$unit"
git worktree add --quiet -b session/all -- .ktx/worktrees/all $base
for patch in .git/patches/*; do
  git -C .ktx/worktrees/all apply --3way --index "$PWD/$patch" 2>/dev/null
  git -C .ktx/worktrees/all commit --quiet --no-verify -m "Accept $patch"
done
git merge --quiet --ff-only session/all
git worktree remove --force .ktx/worktrees/all
git update-ref -d refs/heads/session/all
[ "$(ls wiki/global | wc -l)" -eq {UNITS} ]
"##
    );
    Ok(measured_process::run(
        "sh",
        &["-c", &script, "sh", argument(folder.path())?],
        ProbeOutput::Null,
    )?
    .seconds)
}

/// Makes `folder` a repository with a project that has one document for each unit.
fn repository(folder: &Path) -> BenchResult<()> {
    project::of_documents(folder, UNITS)?;
    commit(folder)
}

fn queue(report: &mut BenchReport) -> BenchResult<()> {
    let folder = tempfile::tempdir()?;
    project::of_documents(folder.path(), MANY)?;
    let agent = project::agent(
        folder.path(),
        "[[part]]\nsteps = [{ say = \"Nothing to write.\" }]\n",
    )?;
    let ran = run(folder.path(), &agent, 8)?;
    let bar = FigureGoal {
        required: Threshold::AtMost(64.0),
        goal: Threshold::AtMost(32.0),
    };
    report.figure(
        &format!("peak MiB, {MANY} units planned and run"),
        &Sample::new(vec![ran.peak_kib / 1024.0]),
        bar,
    );
    report.note(&format!("{:.1} s", ran.seconds));
    Ok(())
}

fn run(project: &Path, agent: &str, slots: u32) -> BenchResult<measured_process::MeasuredRun> {
    let words = words_of_run(argument(project)?, agent, slots);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    measured_process::run(ingestdeck(), &words, ProbeOutput::Null)
}

fn words_of_run(project: &str, agent: &str, slots: u32) -> Vec<String> {
    let slots = slots.to_string();
    let options = [
        "--project-dir",
        project,
        "--claude-bin",
        agent,
        "--concurrency",
        &slots,
    ];
    ["run", "--full", "--no-reconcile", "--ui", "none"]
        .into_iter()
        .chain(options)
        .map(str::to_owned)
        .collect()
}

/// Every unit reads its file, records its verification, and writes a page.
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

/// Makes `project` a repository with one commit of all files.
fn commit(project: &Path) -> BenchResult<()> {
    for words in [
        &["init", "-q"][..],
        &["add", "-A"],
        &[
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@localhost",
            "commit",
            "-q",
            "-m",
            "A project",
        ],
    ] {
        if !Command::new("git")
            .arg("-C")
            .arg(project)
            .args(words)
            .status()?
            .success()
        {
            return Err(format!("git {} failed", words.join(" ")).into());
        }
    }
    Ok(())
}
