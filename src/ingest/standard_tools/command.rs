//! `bash`: one command line in a process group, with a time limit.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{MAX_REPLY_CHARS, SessionDir};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::{group_guard, program_path};

/// How often a command is polled after it has closed its outputs.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Longest time that a command may run, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 600_000;

const fn default_timeout() -> u64 {
    120_000
}

/// The arguments of `bash`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RunCommandLine {
    /// Command line for bash
    command: String,
    /// Working directory, inside the session's
    cwd: Option<String>,
    /// Time limit in milliseconds
    #[serde(default = "default_timeout")]
    timeout: u64,
}

/// Process groups of the commands that run.
#[derive(Debug, Default)]
pub(super) struct RunningCommands(Mutex<Vec<Pid>>);

impl RunningCommands {
    pub(super) fn kill_all(&self) {
        for group in self.groups().drain(..) {
            // The group may be gone already.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }

    #[cfg(test)]
    pub(super) fn groups_are_empty(&self) -> bool {
        self.groups().is_empty()
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.0.lock()
    }
}

/// A command in its process group, which ends with this value.
struct CommandGroup<'a> {
    child: Child,
    group: Pid,
    running: &'a RunningCommands,
}

impl<'a> CommandGroup<'a> {
    fn start(mut command: Command, running: &'a RunningCommands) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        group_guard::watch_command(group);
        running.groups().push(group);
        Ok(Self {
            child,
            group,
            running,
        })
    }
}

impl Drop for CommandGroup<'_> {
    fn drop(&mut self) {
        // Background processes of the command would outlive the call.
        let _ = killpg(self.group, Signal::SIGKILL);
        let _ = self.child.wait();
        self.running.groups().retain(|group| *group != self.group);
        group_guard::unwatch(self.group);
    }
}

pub(super) fn run(dir: &SessionDir, input: &RunCommandLine) -> Result<String, Problem> {
    let relative = dir.relative(input.cwd.as_deref().unwrap_or("."))?;
    if !relative.is_empty() {
        dir.open()?
            .dir(&relative, None)
            .map_err(|error| format!("cannot use the directory `{relative}`: {error}"))?;
    }
    let cwd = dir.path.join(relative);
    let shell = program_path::find("bash")
        .or_else(|| program_path::find("sh"))
        .ok_or_else(|| Problem::new("there is no shell"))?;
    let limit = Duration::from_millis(input.timeout.clamp(1, MAX_TIMEOUT_MS));
    let mut command = Command::new(shell);
    command.arg("-c").arg(&input.command).current_dir(cwd);
    command
        .env_remove("ANTHROPIC_API_KEY")
        .env("PATH", program_path::search_path());
    group_guard::set_parent_death_signal(&mut command, Signal::SIGKILL);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let timed_out = || {
        Problem::new(format!(
            "Command failed: it did not end within {} ms",
            limit.as_millis()
        ))
    };
    let failed = |error: io::Error| Problem::new(format!("Command failed: {error}"));
    let deadline = Instant::now() + limit;
    let mut running = CommandGroup::start(command, &dir.commands).map_err(failed)?;
    let (sender, outputs) = mpsc::channel();
    // The threads end when the pipes close: at the latest when the process group is killed.
    let stdout = running.child.stdout.take();
    let stderr = running.child.stderr.take();
    let out = sender.clone();
    thread::Builder::new()
        .spawn(move || out.send((true, read_output(stdout))))
        .map_err(failed)?;
    thread::Builder::new()
        .spawn(move || sender.send((false, read_output(stderr))))
        .map_err(failed)?;
    let (mut stdout, mut stderr) = (String::new(), String::new());
    for _ in 0..2 {
        let left = deadline.saturating_duration_since(Instant::now());
        match outputs.recv_timeout(left) {
            Ok((true, text)) => stdout = text,
            Ok((false, text)) => stderr = text,
            Err(_) => return Err(timed_out()),
        }
    }
    let status = loop {
        match running.child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if Instant::now() >= deadline => return Err(timed_out()),
            None => thread::sleep(POLL_INTERVAL),
        }
    };
    let text = [stdout.trim_end(), stderr.trim_end()]
        .into_iter()
        .filter(|text| !text.is_empty());
    let text = text.collect::<Vec<_>>().join("\n");
    match status.success() {
        true if text.is_empty() => Ok("(no output)".to_owned()),
        true => Ok(text),
        false => Err(format!("Command failed: {status}\n{text}").into()),
    }
}

/// Reads an output to its end, and keeps its beginning.
fn read_output(pipe: Option<impl Read>) -> String {
    let Some(mut pipe) = pipe else {
        return String::new();
    };
    let mut kept = Vec::new();
    let _ = pipe
        .by_ref()
        .take(4 * MAX_REPLY_CHARS as u64)
        .read_to_end(&mut kept);
    // A command that writes more must not wait for a reader.
    let _ = io::copy(&mut pipe, &mut io::sink());
    String::from_utf8_lossy(&kept).into_owned()
}
