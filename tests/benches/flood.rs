//! 64 children at full speed: recorded, decoded and folded, against only reading the same pipes. In process.
//!
//! Both sides read with the same number of tasks on the same runtime, so they differ only in the processing.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use ingestdeck_agent::line_reader::{LineReader, MAX_LINE_BYTES};
use ingestdeck_core::{
    run::{
        PollStatus, Timeline,
        entry_source::{NewEntry, Recorder as _},
    },
    tape::{FORMAT_VERSION, Header, UnitKey},
};
use ingestdeck_records::{replay::FileSource, store::RunStore};
use tokio::{io::AsyncReadExt as _, process::Command, runtime::Runtime};

use crate::{
    capture::BenchCapture,
    harness::{BenchReport, BenchResult, FigureGoal, PairedSamples, Threshold, pairs, role_exit},
};

const ROLE: &str = "emit";
const CHILDREN: u32 = 64;
/// Bytes that each child writes.
const BYTES: usize = 4 << 20;
const PAIRS: usize = 5;

pub(crate) fn measure(report: &mut BenchReport, capture: &BenchCapture) -> BenchResult<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let path = capture.path.to_str().ok_or("the path is not UTF-8")?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let measured = pairs(
        PAIRS,
        || seconds_to_record(&runtime, path, folder.path()),
        || seconds_to_drain(&runtime, path),
    )?;
    let bar = FigureGoal {
        required: Threshold::AtLeast(0.35),
        goal: Threshold::AtLeast(0.60),
    };
    let measured = PairedSamples {
        ratio: measured.ratio.inverse(),
        ..measured
    };
    report.ratio(
        "64 children taped, decoded, folded: speed / bare drain",
        &measured,
        bar,
    );
    Ok(())
}

fn command(path: &str, child: u32) -> BenchResult<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([ROLE, path, &child.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Seconds for reading all output of all children and discarding it.
fn seconds_to_drain(runtime: &Runtime, path: &str) -> BenchResult<f64> {
    let start = Instant::now();
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for child in 0..CHILDREN {
            let mut process = command(path, child)?.spawn()?;
            let mut pipe = process.stdout.take().ok_or("no pipe")?;
            tasks.spawn(async move {
                let (mut buffer, mut total) = (vec![0; 64 << 10], 0);
                loop {
                    match pipe.read(&mut buffer).await? {
                        0 => break,
                        count => total += count,
                    }
                }
                process.wait().await?;
                std::io::Result::Ok(total)
            });
        }
        let mut total = 0;
        while let Some(task) = tasks.join_next().await {
            total += task??;
        }
        BenchResult::Ok(total)
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds for reading all output, writing every line to a tape, and folding the tape.
fn seconds_to_record(runtime: &Runtime, path: &str, folder: &std::path::Path) -> BenchResult<f64> {
    let start = Instant::now();
    let run = RunStore::new(folder).create(None, |run| Header {
        tape: FORMAT_VERSION,
        program: "bench".into(),
        run,
        started_at: jiff::Timestamp::UNIX_EPOCH,
        project: None,
        scripted: true,
        agent: None,
    })?;
    let (tape, _lock) = run.into_parts();
    let tape = Arc::new(tape);
    let directory = tape
        .path()
        .parent()
        .map(std::path::Path::to_owned)
        .ok_or("a tape without a directory")?;
    let (source, finish) = FileSource::follow(tape.path())?;
    let mut grown = tape.subscribe();
    let recorded = Arc::new(AtomicU64::new(0));
    let handle = runtime.handle().clone();
    let folding = std::thread::spawn(move || {
        let mut timeline = Timeline::new(Box::new(source));
        loop {
            match timeline
                .advance(1 << 20, &mut |_| {})
                .map_err(|error| error.to_string())?
            {
                PollStatus::More => {}
                // An error means that the writer was dropped, which happens after it wrote the end.
                PollStatus::Waiting => drop(handle.block_on(grown.changed())),
                PollStatus::End => return Ok::<u64, String>(timeline.known_entries()),
            }
        }
    });
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for child in 0..CHILDREN {
            let mut process = command(path, child)?.spawn()?;
            let mut lines =
                LineReader::with_limit(process.stdout.take().ok_or("no pipe")?, MAX_LINE_BYTES);
            let (tape, recorded) = (Arc::clone(&tape), Arc::clone(&recorded));
            tasks.spawn(async move {
                let unit = UnitKey::new(format!("unit-{child}"));
                while !lines.is_finished() {
                    lines.fill().await?;
                    let items: Vec<NewEntry<'_>> = lines
                        .take_lines()
                        .bodies()
                        .map(|body| NewEntry {
                            attempt: Some((&unit, 1)),
                            body,
                        })
                        .collect();
                    tape.record(&items).map_err(std::io::Error::other)?;
                    recorded.fetch_add(items.len() as u64, Ordering::Relaxed);
                }
                process.wait().await.map(drop)
            });
        }
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        BenchResult::Ok(())
    })?;
    finish.finish();
    drop(tape);
    let folded = folding.join().map_err(|_| "the fold failed")??;
    let seconds = start.elapsed().as_secs_f64();
    let recorded = recorded.load(Ordering::Relaxed);
    std::fs::remove_dir_all(directory)?;
    if folded != recorded {
        return Err(format!("{recorded} lines were recorded and {folded} folded").into());
    }
    Ok(seconds)
}

/// The child process: writes its part of the capture, one line per write, as the CLI does.
pub(crate) fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let [path, child] = arguments else {
        return None;
    };
    if role != ROLE {
        return None;
    }
    let child: u64 = child.parse().ok()?;
    Some(role_exit(emit(path, child)))
}

fn emit(path: &str, child: u64) -> BenchResult<()> {
    use std::io::{Seek as _, SeekFrom};
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut part = vec![0; BYTES.min(usize::try_from(length)?)];
    let room = length - part.len() as u64;
    file.seek(SeekFrom::Start(room * child / u64::from(CHILDREN)))?;
    file.read_exact(&mut part)?;
    // Start and end at line boundaries.
    let from = if room * child == 0 {
        0
    } else {
        memchr::memchr(b'\n', &part).map_or(0, |at| at + 1)
    };
    let to = memchr::memrchr(b'\n', &part).map_or(part.len(), |at| at + 1);
    let mut out = File::from(std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned()?);
    for line in part[from..to].split_inclusive(|byte| *byte == b'\n') {
        out.write_all(line)?;
    }
    Ok(())
}
