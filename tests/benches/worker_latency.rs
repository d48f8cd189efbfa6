//! Time from the output of an agent on a worker to the screen of its engine, against the same agent on this machine.
//!
//! A program between the agent and its reader notes when each line leaves, so the figure includes the pipe and the
//! reading, the worker, its transport, the engine, its tape, the screen and the terminal.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::{self, File},
    io::{BufRead as _, Write as _},
    path::Path,
    process::{Command, ExitCode},
    time::SystemTime,
};

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, role_exit},
    measured_process::{argument, ingestdeck, is_installed},
    project,
    screen::TerminalScreen,
};

const ROLE: &str = "stamp";
/// Number of texts, and the milliseconds before each.
const TEXTS: usize = 200;
const PAUSE_MS: u32 = 110;

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let name = "agent on a worker to the screen, p99, ms";
    if !is_installed("nats-server") {
        report.note_missing_program("nats-server", name);
        return Ok(());
    }
    let (local, remote) = (milliseconds(false)?, milliseconds(true)?);
    let bar = FigureGoal {
        required: Threshold::AtMost(50.0),
        goal: Threshold::AtMost(25.0),
    };
    report.figure(name, &Sample::new(vec![remote.quantile(0.99)]), bar);
    report.note(&format!(
        "on a worker: {remote}; on this machine: {local}, p99 {:.1}",
        local.quantile(0.99)
    ));
    Ok(())
}

/// Milliseconds between the moments when each text leaves the agent and appears on the screen.
fn milliseconds(on_worker: bool) -> BenchResult<Sample> {
    let (folder, programs) = (tempfile::tempdir()?, tempfile::tempdir()?);
    project::of_documents(folder.path(), 1)?;
    let stamps = programs.path().join("stamps");
    let speaker = project::agent(programs.path(), &script())?;
    let agent = programs.path().join("stamped-agent");
    let stamp = format!(
        "'{}' {ROLE} '{}'",
        std::env::current_exe()?.display(),
        stamps.display()
    );
    project::program(&agent, &format!("'{speaker}' \"$@\" | {stamp}"))?;
    let agent = argument(&agent)?;
    let mut command = Command::new(ingestdeck());
    command.args([
        "run",
        "--no-reconcile",
        "--ui",
        "tui",
        "--project-dir",
        argument(folder.path())?,
    ]);
    if on_worker {
        let (path, worker) = project::local_worker(programs.path(), agent)?;
        let url = format!("ssh://worker?program={}", worker.display());
        command
            .env("PATH", path)
            .args(["--concurrency", "0", "--worker", &url]);
    } else {
        command.args(["--claude-bin", agent]);
    }
    let screen = TerminalScreen::start(&mut command)?;
    // Each text is on the screen for a while, so none is missed.
    let mut seen = Vec::with_capacity(TEXTS);
    for number in 0..TEXTS {
        screen.until(|text| text.contains(&mark(number)))?;
        seen.push(now()?);
    }
    let left = left_at(&stamps)?;
    let of = |number: usize| left.get(&mark(number)).ok_or("a text was not stamped");
    let times: Result<Vec<f64>, _> = (0..TEXTS)
        .map(|number| Ok::<f64, &str>(seen[number] - of(number)?))
        .collect();
    Ok(Sample::new(times?))
}

/// A message for each text, with a pause before it.
fn script() -> String {
    let mut script = "[[part]]\nsteps = [\n".to_owned();
    for number in 0..TEXTS {
        let content = format!(r#"{{"type":"text","text":"{}"}}"#, mark(number));
        let message =
            format!(r#"{{"id":"msg_{number}","role":"assistant","content":[{content}]}}"#);
        let line = format!(r#"{{"type":"assistant","message":{message}}}"#);
        let _ = writeln!(
            script,
            "  {{ wait = {PAUSE_MS} }},\n  {{ line = '{line}' }},"
        );
    }
    script + "  { say = \"Done.\" },\n]\n"
}

fn mark(number: usize) -> String {
    format!("mark-{number:04}")
}

/// When each mark left the agent.
fn left_at(stamps: &Path) -> BenchResult<HashMap<String, f64>> {
    let mut left = HashMap::new();
    for line in fs::read_to_string(stamps)?.lines() {
        let (mark, at) = line.split_once(' ').ok_or("a stamp without a time")?;
        left.insert(mark.to_owned(), at.parse()?);
    }
    Ok(left)
}

/// The time in milliseconds since 1970.
fn now() -> BenchResult<f64> {
    Ok(SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_secs_f64()
        * 1000.0)
}

/// Copies stdin to stdout, and notes when lines with a mark leave.
pub(crate) fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let [stamps] = arguments else { return None };
    if role != ROLE {
        return None;
    }
    Some(role_exit(stamp(stamps)))
}

fn stamp(stamps: &str) -> BenchResult<()> {
    let mut stamps = File::options().create(true).append(true).open(stamps)?;
    let mut out = File::from(std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned()?);
    for line in std::io::stdin().lock().split(b'\n') {
        let mut line = line?;
        line.push(b'\n');
        if let Some(at) = memchr::memmem::find(&line, b"mark-") {
            let mark = std::str::from_utf8(&line[at..at + mark(0).len()])?;
            writeln!(stamps, "{mark} {}", now()?)?;
        }
        out.write_all(&line)?;
    }
    Ok(())
}
