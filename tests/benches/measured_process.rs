//! Runs a program from start to exit and reports its duration and its memory.
//!
//! The benchmark starts itself as an intermediate process, so that the program is its only child: the peak memory that
//! the system reports for all children is then that of the program.

use std::{
    fs::File,
    io::Read as _,
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Instant,
};

use nix::{
    pty::{Winsize, openpty},
    sys::resource::{UsageWho, getrusage},
};

use crate::harness::BenchResult;

const ROLE: &str = "probe";

/// Destination of the program's output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeOutput {
    /// Discards the output in `/dev/null`.
    Null,
    /// A terminal of 200×60 whose output is read as fast as it is written.
    Terminal,
}

/// Measurements of one run of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredRun {
    /// Seconds from start to exit.
    pub(crate) seconds: f64,
    /// Peak resident memory in KiB.
    pub(crate) peak_kib: f64,
}

/// Runs `program`. Fails for an exit code other than 0.
pub(crate) fn run(
    program: &str,
    arguments: &[&str],
    output: ProbeOutput,
) -> BenchResult<MeasuredRun> {
    let kind = if output == ProbeOutput::Terminal {
        "terminal"
    } else {
        "null"
    };
    let output = Command::new(std::env::current_exe()?)
        .args([ROLE, kind, program])
        .args(arguments)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match figures.as_slice() {
        [seconds, peak_kib] if output.status.success() => Ok(MeasuredRun {
            seconds: *seconds,
            peak_kib: *peak_kib,
        }),
        _ => Err(format!(
            "{program} {}: {text}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        )
        .into()),
    }
}

/// True if a program of that name can be started.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Path of the program under test.
pub(crate) fn ingestdeck() -> &'static str {
    env!("CARGO_BIN_EXE_ingestdeck")
}

/// Converts a path to an argument.
pub(crate) fn argument(path: &Path) -> BenchResult<&str> {
    path.to_str().ok_or_else(|| "the path is not UTF-8".into())
}

/// The intermediate process started by [`run`].
pub(crate) fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let [kind, program, rest @ ..] = arguments else {
        return None;
    };
    if role != ROLE {
        return None;
    }
    Some(match measure(kind == "terminal", program, rest) {
        Ok(run) => {
            println!("{} {}", run.seconds, run.peak_kib);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn measure(terminal: bool, program: &str, arguments: &[String]) -> BenchResult<MeasuredRun> {
    let mut command = Command::new(program);
    command.args(arguments).stderr(Stdio::inherit());
    let mut drain = None;
    if terminal {
        let size = Winsize {
            ws_row: 60,
            ws_col: 200,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None)?;
        let slave = File::from(pty.slave);
        command
            .env("TERM", "xterm-256color")
            .stdin(slave.try_clone()?)
            .stderr(slave.try_clone()?)
            .stdout(slave);
        let mut master = File::from(pty.master);
        drain = Some(thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            // Linux reports the closing of the other side as an error.
            while master.read(&mut buffer).is_ok_and(|count| count > 0) {}
        }));
    } else {
        command.stdin(Stdio::null()).stdout(Stdio::null());
    }
    let start = Instant::now();
    let mut child = command.spawn()?;
    let status = child.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    drop(command);
    if let Some(drain) = drain {
        drain
            .join()
            .map_err(|_| "the reader of the terminal failed")?;
    }
    if !status.success() {
        return Err(format!("ended with {status}").into());
    }
    Ok(MeasuredRun {
        seconds,
        peak_kib: getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss() as f64,
    })
}
