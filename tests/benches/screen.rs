//! The active and the idle screen, as a whole program on a terminal: latency from a key to its frame while 64 units
//! stream, and the cost of the screen when nothing changes.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    num::NonZero,
    path::Path,
    process::{Child, Command},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::pty::{Winsize, openpty};

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold},
    measured_process::{argument, ingestdeck},
    project,
};

const ROWS: NonZero<u16> = NonZero::new(60).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(200).unwrap();
const UNITS: u32 = 64;
/// Number of keys that are timed.
const KEYS: usize = 400;
/// Interval between two keys, as of a very fast typist.
const TYPING: Duration = Duration::from_millis(40);
/// Duration of the measurement of the idle screen.
const REST: Duration = Duration::from_secs(5);
/// Startup is complete when nothing was drawn for this long.
const QUIET: Duration = Duration::from_secs(2);
/// Timeout for expected output.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let times = measure_key_latency()?;
    let bar = FigureGoal {
        required: Threshold::AtMost(33.0),
        goal: Threshold::AtMost(16.0),
    };
    report.figure(
        "key to paint with 64 live streams, p99, ms",
        &Sample::new(vec![times.quantile(0.99)]),
        bar,
    );
    report.note(&format!("all of them: {times}"));
    let rest = measure_idle()?;
    report.figure(
        "bytes drawn at rest",
        &Sample::new(vec![rest.bytes]),
        AT_REST,
    );
    let bar = FigureGoal {
        required: Threshold::AtMost(0.2),
        goal: Threshold::AtMost(0.0),
    };
    report.figure(
        "CPU at rest, % of a core",
        &Sample::new(vec![rest.cpu_percent]),
        bar,
    );
    report.note(&format!(
        "wake-ups of all threads in {} s: {}",
        REST.as_secs(),
        rest.wakes
    ));
    Ok(())
}

const AT_REST: FigureGoal = FigureGoal {
    required: Threshold::AtMost(0.0),
    goal: Threshold::AtMost(0.0),
};

/// Milliseconds from each key to the frame with its effect, while 64 units stream text.
fn measure_key_latency() -> BenchResult<Sample> {
    let folder = tempfile::tempdir()?;
    project::of_documents(folder.path(), UNITS)?;
    let agent = project::agent(folder.path(), &script())?;
    let many = UNITS.to_string();
    let arguments = [
        "run",
        "--project-dir",
        argument(folder.path())?,
        "--claude-bin",
        &agent,
        "--concurrency",
        &many,
        "--ui",
        "tui",
    ];
    let mut screen = TerminalScreen::open(&arguments)?;
    screen.until(|text| text.contains("64 running") || text.contains("64▶"))?;
    let mut times = Vec::with_capacity(KEYS);
    for number in 0..KEYS {
        screen.watch_for(TYPING);
        let opens = number % 2 == 0;
        let pressed = Instant::now();
        screen.press(b"?")?;
        screen.until(|text| text.contains("again: all keys") == opens)?;
        times.push(pressed.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(Sample::new(times))
}

/// A script that streams text for minutes.
fn script() -> String {
    let speech = "The quick brown fox jumps over the lazy dog. ".repeat(2000);
    format!(
        "[pace]\nchunk_chars = 12\nchunk_ms = 20\n[[part]]\nsteps = [{{ say = \"{speech}\" }}]\n"
    )
}

/// Cost of a screen that shows the end of a recorded run.
struct IdleCost {
    bytes: f64,
    cpu_percent: f64,
    wakes: u64,
}

fn measure_idle() -> BenchResult<IdleCost> {
    let capture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures/success_tools.jsonl");
    let screen = TerminalScreen::open(&["replay", argument(&capture)?, "--ui", "tui"])?;
    screen.until(|text| text.contains("unit"))?;
    screen.until_quiet_for(QUIET)?;
    let (bytes, cpu, wakes) = (screen.bytes(), screen.cpu()?, screen.wakes()?);
    let watched = Instant::now();
    screen.watch_for(REST);
    Ok(IdleCost {
        bytes: (screen.bytes() - bytes) as f64,
        cpu_percent: (screen.cpu()? - cpu) / watched.elapsed().as_secs_f64() * 100.0,
        wakes: screen.wakes()?.saturating_sub(wakes),
    })
}

/// The program on a terminal of 200×60. Killed on drop.
pub(crate) struct TerminalScreen {
    child: Child,
    master: File,
    shown: Arc<(Mutex<ScreenState>, Condvar)>,
}

struct ScreenState {
    parser: vt100::Parser,
    bytes: u64,
}

impl TerminalScreen {
    fn open(arguments: &[&str]) -> BenchResult<Self> {
        Self::start(Command::new(ingestdeck()).args(arguments))
    }

    /// Starts a program on the terminal.
    pub(crate) fn start(command: &mut Command) -> BenchResult<Self> {
        let size = Winsize {
            ws_row: ROWS.get(),
            ws_col: COLUMNS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None)?;
        let slave = File::from(pty.slave);
        let child = command
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .stdin(slave.try_clone()?)
            .stderr(slave.try_clone()?)
            .stdout(slave)
            .spawn()?;
        let master = File::from(pty.master);
        let seen = ScreenState {
            parser: vt100::Parser::new(ROWS, COLUMNS, 0),
            bytes: 0,
        };
        let shown = Arc::new((Mutex::new(seen), Condvar::new()));
        let (mut reader, shared) = (master.try_clone()?, Arc::clone(&shown));
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let mut seen = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                seen.parser.process(&buffer[..count]);
                seen.bytes += count as u64;
                shared.1.notify_all();
            }
        });
        Ok(Self {
            child,
            master,
            shown,
        })
    }

    pub(crate) fn press(&mut self, keys: &[u8]) -> BenchResult<()> {
        Ok(self.master.write_all(keys)?)
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until the text on the screen matches `wanted`.
    pub(crate) fn until(&self, wanted: impl Fn(&str) -> bool) -> BenchResult<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.shown.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let text = seen.parser.screen().contents();
            if wanted(&text) {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(
                    format!("the expected text did not appear; the screen shows\n{text}").into(),
                );
            }
            (seen, _) = self
                .shown
                .1
                .wait_timeout(seen, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads the output for `span`.
    fn watch_for(&self, span: Duration) {
        let deadline = Instant::now() + span;
        let mut seen = self.shown.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            (seen, _) = self
                .shown
                .1
                .wait_timeout(seen, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until nothing was drawn for `span`.
    fn until_quiet_for(&self, span: Duration) -> BenchResult<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let before = self.bytes();
            self.watch_for(span);
            if self.bytes() == before {
                return Ok(());
            }
        }
        Err("the screen did not become idle".into())
    }

    fn bytes(&self) -> u64 {
        self.shown
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes
    }

    /// Seconds of processor time of its current threads so far.
    fn cpu(&self) -> BenchResult<f64> {
        let nanoseconds = self.of_threads("schedstat", |text| {
            text.split_whitespace().next()?.parse().ok()
        })?;
        Ok(nanoseconds as f64 / 1e9)
    }

    /// Number of voluntary context switches of its threads so far.
    fn wakes(&self) -> BenchResult<u64> {
        self.of_threads("status", |text| {
            let switches = text
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            switches.trim().parse().ok()
        })
    }

    /// Sums the values that `read` finds in a `/proc` file of each thread.
    fn of_threads(&self, file: &str, read: impl Fn(&str) -> Option<u64>) -> BenchResult<u64> {
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            sum += read(&fs::read_to_string(task?.path().join(file))?)
                .ok_or("the file has an unexpected format")?;
        }
        Ok(sum)
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
