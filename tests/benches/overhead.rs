//! Processor time of the program itself, and of the engine behind its screen, while an agent produces output, from start to exit, with lines and on a
//! terminal, against `tee` and `jq` that record and parse the same stream at the same speed.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use ingestdeck_core::{
    run::entry_source::{EntrySource as _, PollStatus},
    tape::EntryBody,
};
use ingestdeck_records::{replay::FileSource, store::RunStore};
use nix::{
    sys::wait::{Id, WaitPidFlag, waitid},
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, Threshold, pairs, role_exit},
    measured_process::{argument, ingestdeck, is_installed},
    project,
    screen::TerminalScreen,
};

/// Characters per delta, milliseconds between two deltas, and their number.
const DELTA: usize = 20;
const PACE_MS: u32 = 30;
const DELTAS: usize = 270;
const PAIRS: usize = 3;

/// How long after its last unit an engine has nothing left to do.
const IDLE_AFTER: Duration = Duration::from_secs(5);

const ROLE: &str = "speak";

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let with_lines = FigureGoal {
        required: Threshold::AtMost(1.0),
        goal: Threshold::AtMost(0.6),
    };
    let on_terminal = FigureGoal {
        required: Threshold::AtMost(2.0),
        goal: Threshold::AtMost(1.2),
    };
    for (view, bar) in [("lines", with_lines), ("screen", on_terminal)] {
        let name = format!("own CPU of a streaming attempt, {view} / tee and jq");
        if !is_installed("jq") || !is_installed("tee") {
            report.note_missing_program("tee or jq", &name);
            continue;
        }
        let folder = tempfile::tempdir()?;
        let stream = folder.path().join("stream");
        let measured = pairs(
            PAIRS,
            || our_cpu_seconds(view == "screen", &stream),
            || baseline_cpu_seconds(&stream, folder.path()),
        )?;
        report.ratio(&name, &measured, bar);
    }
    Ok(())
}

/// Seconds of processor time of a run with one unit. Writes the lines of its agent, with their times, to `stream`.
fn our_cpu_seconds(on_terminal: bool, stream: &Path) -> BenchResult<f64> {
    let folder = tempfile::tempdir()?;
    let (place, home) = (folder.path().join("project"), folder.path().join("home"));
    fs::create_dir_all(&home)?;
    fs::create_dir(&place)?;
    project::of_documents(&place, 1)?;
    let speech: String = "The quick brown fox "
        .chars()
        .cycle()
        .take(DELTA * DELTAS)
        .collect();
    let script = format!(
        "[pace]\nchunk_chars = {DELTA}\nchunk_ms = {PACE_MS}\n[[part]]\nsteps = [{{ say = \"{speech}\" }}]\n"
    );
    let agent = project::agent(folder.path(), &script)?;
    let mut command = Command::new(ingestdeck());
    command.args([
        "run",
        "--project-dir",
        argument(&place)?,
        "--claude-bin",
        &agent,
    ]);
    command.env("HOME", &home).env("XDG_CONFIG_HOME", &home);
    let seconds = if on_terminal {
        let mut screen = TerminalScreen::start(command.args(["--ui", "tui"]))?;
        screen.until(|text| text.contains("✓ done"))?;
        // The trace follows the tape after a delay. Then the engine is idle, and its exit costs next to nothing.
        std::thread::park_timeout(IDLE_AFTER);
        let engine = engine_time(&place)?;
        screen.press(b"q")?;
        engine + processor_time(screen.child())?
    } else {
        command
            .args(["--ui", "lines"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        processor_time(&mut command.spawn()?)?
    };
    let runs = RunStore::new(&place);
    let tape = runs.list()?.pop().ok_or("no record")?.tape;
    write_stream(&tape, stream)?;
    Ok(seconds)
}

/// Writes the lines of the agent, each after the time in milliseconds at which the agent wrote it. The tape has the times
/// at which the lines were read, and several deltas of a text are read together.
fn write_stream(tape: &Path, stream: &Path) -> BenchResult<()> {
    let mut source = FileSource::open(tape)?;
    let (mut lines, mut at, mut last_delta): (Vec<u8>, u64, Option<u64>) = (Vec::new(), 0, None);
    loop {
        let progress = source.poll(1 << 20, &mut |arrived| {
            if let EntryBody::Stdout(line) = arrived.body {
                let is_delta = memchr::memmem::find(line, b"\"text_delta\"").is_some();
                let paced = last_delta
                    .filter(|_| is_delta)
                    .map(|last| last + u64::from(PACE_MS));
                at = at.max(paced.unwrap_or(arrived.at.0));
                last_delta = is_delta.then_some(at);
                lines.extend_from_slice(format!("{at} ").as_bytes());
                lines.extend_from_slice(line);
                lines.push(b'\n');
            }
        })?;
        if progress != PollStatus::More {
            return Ok(fs::write(stream, lines)?);
        }
    }
}

/// Seconds of processor time of `tee` and `jq` over the same stream.
fn baseline_cpu_seconds(stream: &Path, folder: &Path) -> BenchResult<f64> {
    let mut speaker = Command::new(std::env::current_exe()?)
        .args([ROLE, argument(stream)?])
        .stdout(Stdio::piped())
        .spawn()?;
    let heard = speaker.stdout.take().ok_or("no pipe")?;
    let tape: PathBuf = folder.join("tape");
    let mut tee = Command::new("tee")
        .arg(tape)
        .stdin(heard)
        .stdout(Stdio::piped())
        .spawn()?;
    let copied = tee.stdout.take().ok_or("no pipe")?;
    let mut jq = Command::new("jq")
        .args(["--unbuffered", "-c", ".type"])
        .stdin(copied)
        .stdout(Stdio::null())
        .spawn()?;
    let seconds = processor_time(&mut tee)? + processor_time(&mut jq)?;
    if !speaker.wait()?.success() {
        return Err("the speaker failed".into());
    }
    Ok(seconds)
}

/// Seconds of processor time of the process that runs the units of the project so far, without its children.
fn engine_time(project: &Path) -> BenchResult<f64> {
    let holder = fs::read_to_string(project.join(".ktx/ingestdeck/ingest.lock"))?;
    let pid = Pid::from_raw(holder.trim().parse()?);
    Ok(Duration::from(clock_gettime(clock_getcpuclockid(pid)?)?).as_secs_f64())
}

/// Waits for the end of a process and returns its seconds of processor time, without its children.
fn processor_time(child: &mut Child) -> BenchResult<f64> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    // The process has ended, but its clock can still be read.
    waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
    let seconds = Duration::from(clock_gettime(clock_getcpuclockid(pid)?)?).as_secs_f64();
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("ended with {status}").into());
    }
    Ok(seconds)
}

/// Plays a stream: writes each line at its time, one line per write, as an agent does.
pub(crate) fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let [stream] = arguments else { return None };
    if role != ROLE {
        return None;
    }
    Some(role_exit(replay_stream(stream)))
}

fn replay_stream(stream: &str) -> BenchResult<()> {
    let mut out = File::from(std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned()?);
    let mut first = None;
    let start = Instant::now();
    for line in BufReader::new(File::open(stream)?).split(b'\n') {
        let mut line = line?;
        line.push(b'\n');
        let blank = memchr::memchr(b' ', &line).ok_or("a line without a time")?;
        let at: u64 = std::str::from_utf8(&line[..blank])?.parse()?;
        let due = Duration::from_millis(at - *first.get_or_insert(at));
        std::thread::park_timeout(due.saturating_sub(start.elapsed()));
        out.write_all(&line[blank + 1..])?;
    }
    Ok(())
}
