//! A process that outlives this one by a moment: it ends the process groups of agents and of git when this process is
//! gone.
//!
//! A parent-death signal reaches an agent, but not what the agent has started. Agents are killed. git is asked to end,
//! so that it removes its lock files: they would keep the next run from the repository. The guard holds the other end of a pipe;
//! the kernel closes ours however we end, also by SIGKILL. It must not know what the groups do.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{ChildStdin, Command, ExitCode, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// The hidden subcommand that runs the guard.
pub const GROUP_GUARD: &str = "group-guard";

/// Starts the guard of this process with `exe`, this very program, unless it has one.
///
/// # Errors
/// When it cannot be started; agents are then ended as before, without what they have started.
pub fn start(exe: &Path) -> io::Result<()> {
    let mut guard = guard();
    if guard.is_none() {
        let mut command = Command::new(exe);
        command.arg(GROUP_GUARD).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for the foreground group, and the guard must be the last to go.
        *guard = command.process_group(0).spawn()?.stdin;
    }
    Ok(())
}

/// Starts to watch the group of `leader`, which is ended with `signal`: SIGTERM, or SIGKILL for any other.
pub(crate) fn watch(leader: Pid, signal: Signal) {
    tell(if signal == Signal::SIGTERM { '~' } else { '+' }, leader);
}

/// Stops watching a group that is gone; its id may be used again by others.
pub(crate) fn forget(leader: Pid) {
    tell('-', leader);
}

fn tell(mark: char, leader: Pid) {
    let mut guard = guard();
    if let Some(pipe) = guard.as_mut()
        && let Err(error) = pipe.write_all(format!("{mark}{leader}\n").as_bytes())
    {
        tracing::warn!(%error, "the group guard is gone");
        *guard = None;
    }
}

/// Our end of the pipe. Each line is written whole, so a panic leaves nothing half-done.
fn guard() -> MutexGuard<'static, Option<ChildStdin>> {
    static GUARD: Mutex<Option<ChildStdin>> = Mutex::new(None);
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the guard: reads groups from stdin, and ends those that remain at its end.
pub fn run() -> ExitCode {
    for (leader, signal) in remaining(io::stdin().lock()) {
        // It may be gone already.
        let _ = killpg(leader, signal);
    }
    ExitCode::SUCCESS
}

/// Groups that were announced and not taken back when `from` ended, with the signals that end them.
fn remaining(from: impl BufRead) -> BTreeMap<Pid, Signal> {
    let mut groups = BTreeMap::new();
    for line in from.lines().map_while(Result::ok) {
        let Some((mark, id)) = line.split_at_checked(1) else { continue };
        // Zero and one are our own group and everybody's.
        let Some(leader) = id.parse().ok().filter(|id| *id > 1).map(Pid::from_raw) else { continue };
        match mark {
            "+" => groups.insert(leader, Signal::SIGKILL),
            "~" => groups.insert(leader, Signal::SIGTERM),
            "-" => groups.remove(&leader),
            _ => None,
        };
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_that_were_not_taken_back_remain() {
        let text = "+10\n+11\n-10\n-12\n+0\n+1\n+-5\n+x\n\nnonsense\n+13\n~14\n~15\n-15";
        let expected = [(11, Signal::SIGKILL), (13, Signal::SIGKILL), (14, Signal::SIGTERM)];
        assert_eq!(remaining(text.as_bytes()), expected.map(|(id, signal)| (Pid::from_raw(id), signal)).into());
    }
}
