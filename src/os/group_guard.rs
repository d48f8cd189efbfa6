//! A process that outlives this one briefly: it ends the processes of agents and of git when this process is gone.
//!
//! A parent-death signal reaches an agent, but not its child processes. Agents are ended as `members` describes. git
//! gets only SIGTERM, so that it removes its lock files, which would block the next run. The guard holds the read end
//! of a pipe; the kernel closes the write end however this process ends, also by SIGKILL. The guard must not know what
//! the processes do.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{ChildStdin, Command, ExitCode, Stdio},
    thread,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use parking_lot::{Mutex, MutexGuard};

pub use agents::{AgentGuard, end_all_agents};
pub use commands::CommandGuard;
use members::{AgentProcesses, end_agents};

mod agents;
mod commands;
mod members;
mod process_table;

/// Environment variable that marks the processes of an agent. Its value is unique to the agent.
pub const AGENT_MARK_VAR: &str = "INGESTDECK_AGENT";

/// Environment variable that marks a command of this program, which may itself run below an agent.
const COMMAND_MARK_VAR: &str = "INGESTDECK_COMMAND";

/// The hidden subcommand that runs the guard.
pub const GROUP_GUARD: &str = "group-guard";

/// Starts the guard of this process, unless it has one. `exe` is this program.
///
/// # Errors
/// If it cannot be started. Agents are then ended by this process only, without the processes that they started.
pub fn start(exe: &Path) -> io::Result<()> {
    let mut guard = guard();
    if guard.is_none() {
        let mut command = Command::new(exe);
        clear_environment(&mut command)
            .arg(GROUP_GUARD)
            .current_dir("/");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Ctrl-C is sent to the foreground group, and the guard must end last.
        *guard = command.process_group(0).spawn()?.stdin;
    }
    Ok(())
}

/// Clears the environment of a helper process, except for one variable: a process with an empty environment looks like
/// one that is about to execute a program, and the end of every agent would wait for it.
pub fn clear_environment(command: &mut Command) -> &mut Command {
    command.env_clear().env(AGENT_MARK_VAR, "")
}

/// True while this process has a guard, as far as it knows.
pub fn is_running() -> bool {
    guard().is_some()
}

/// Makes the kernel send `signal` to the child of `command` when the thread that started it ends. Works from before the
/// child's program starts, so also if this process is killed before the guard hears of the child. Only on Linux.
pub fn set_parent_death_signal(command: &mut Command, signal: Signal) {
    #[cfg(target_os = "linux")]
    {
        let parent = nix::unistd::getpid();
        let before_exec = move || {
            nix::sys::prctl::set_pdeathsig(signal)?;
            // The parent may have died before the signal was armed.
            if nix::unistd::getppid() == parent {
                Ok(())
            } else {
                Err(io::ErrorKind::NotConnected.into())
            }
        };
        #[expect(
            unsafe_code,
            reason = "only prctl and getppid run between fork and exec; both are async-signal-safe"
        )]
        // SAFETY: as above; the closure neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(before_exec);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (command, signal);
}

/// Makes the guard watch the processes of an agent.
fn watch_agent(agent: &AgentProcesses) {
    send_line(&format!("+{} {}\n", agent.leader(), agent.mark()));
}

/// Makes the guard watch the group of a command that ends with this thread: one of a session, or a run of a bench.
pub fn watch_command(leader: Pid) {
    send_line(&format!("~{leader}\n"));
}

/// Stops watching a group that is gone; another process may reuse its id.
pub fn unwatch(leader: Pid) {
    send_line(&format!("-{leader}\n"));
}

fn send_line(line: &str) {
    let mut guard = guard();
    if let Some(pipe) = guard.as_mut()
        && let Err(error) = pipe.write_all(line.as_bytes())
    {
        tracing::warn!(%error, "the group guard is gone");
        *guard = None;
    }
}

/// The write end of the pipe. Each line is written in one call, so a panic leaves no partial line.
fn guard() -> MutexGuard<'static, Option<ChildStdin>> {
    static GUARD: Mutex<Option<ChildStdin>> = Mutex::new(None);
    GUARD.lock()
}

/// The kinds of groups that the guard watches.
#[derive(Clone, Debug)]
enum WatchedGroup {
    Agent(AgentProcesses),
    /// Git, or a command of a session.
    Command,
}

/// Runs the guard: reads groups from stdin and, at its end, ends the remaining groups.
pub fn run() -> ExitCode {
    let mut agents = Vec::new();
    let remaining = RemainingProcesses::read(io::stdin().lock());
    for (leader, watched) in remaining.groups {
        match watched {
            WatchedGroup::Agent(members) => agents.push(members),
            // The group may be gone already.
            WatchedGroup::Command => drop(killpg(leader, Signal::SIGTERM)),
        }
    }
    // Neither waits for the other: both take time.
    thread::scope(|scope| {
        if !remaining.announced.is_empty() {
            scope.spawn(|| commands::terminate_marked(&remaining.announced));
        }
        end_agents(agents);
    });
    ExitCode::SUCCESS
}

/// What was watched and not withdrawn when the lines ended.
#[derive(Debug, Default)]
struct RemainingProcesses {
    groups: BTreeMap<Pid, WatchedGroup>,
    /// Marks of commands that were about to start.
    announced: BTreeSet<String>,
}

impl RemainingProcesses {
    fn read(from: impl BufRead) -> Self {
        let mut remaining = Self::default();
        from.lines()
            .map_while(Result::ok)
            .for_each(|line| remaining.apply(&line));
        remaining
    }

    fn apply(&mut self, line: &str) {
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return;
        };
        let (id, mark) = rest.split_once(' ').unwrap_or((rest, ""));
        // Ids 0 and 1 would signal the own group or all processes.
        let leader = id.parse().ok().filter(|id| *id > 1).map(Pid::from_raw);
        match (kind, leader) {
            ("?", _) => {
                self.announced.insert(rest.to_owned());
            }
            ("!", _) => {
                self.announced.remove(rest);
            }
            ("+", Some(leader)) => {
                self.groups.insert(
                    leader,
                    WatchedGroup::Agent(AgentProcesses::new(leader, mark.to_owned())),
                );
            }
            ("~", Some(leader)) => {
                self.groups.insert(leader, WatchedGroup::Command);
            }
            ("-", Some(leader)) => {
                self.groups.remove(&leader);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn helper_environment_is_not_empty() {
        let mut command = Command::new("cat");
        let mut helper = clear_environment(&mut command)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut scanner = process_table::ProcScanner::new();
        let pid = Pid::from_raw(i32::try_from(helper.id()).unwrap());
        let started = scanner.start_time(pid);
        let environment = format!("/proc/{}/environ", helper.id());
        while std::fs::read(&environment).unwrap() != b"INGESTDECK_AGENT=\0" {
            ingestdeck_test_support::pause_before_check();
        }
        assert!(scanner.scan(started).unwrap().marked("").contains(&pid));
        drop(helper.stdin.take());
        helper.wait().unwrap();
    }

    #[test]
    fn only_unreleased_groups_remain() {
        let text = "+10 a\n+11 b\n-10\n-12\n+0 c\n+1 d\n+-5 e\n+x f\n\nnonsense\n+13 g\n~14\n~15\n-15\n?h\n?i\n!h\n!j";
        let remaining = RemainingProcesses::read(text.as_bytes());
        assert_eq!(remaining.announced, BTreeSet::from(["i".to_owned()]));
        let found: Vec<_> = remaining
            .groups
            .iter()
            .map(|(leader, watched)| match watched {
                WatchedGroup::Agent(members) => (leader.as_raw(), Some(members.mark())),
                WatchedGroup::Command => (leader.as_raw(), None),
            })
            .collect();
        assert_eq!(found, [(11, Some("b")), (13, Some("g")), (14, None)]);
    }
}
