//! The processes of an agent, and their end: SIGTERM, a grace period, SIGKILL.
//!
//! The members of an agent are its process group and, on Linux, the processes that left the group (`setsid`, double
//! fork): those that carry its mark in their environment and those that were seen below a member. A process that clears its
//! environment and detaches from its parents before the agent ends is not found. Elsewhere the group is all there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

/// Environment variable that marks the processes of an agent. Its value is unique to the agent.
pub(crate) const MARK: &str = "INGESTDECK_AGENT";
/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long SIGKILL is repeated. What is still there then cannot be killed.
const PERSISTENCE: Duration = Duration::from_millis(700);
/// Shortest and longest pause between two looks at the process table.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

/// Start time of a process, in the kernel's ticks. With the process id it names a process uniquely.
type StartTime = u64;

/// An agent's processes.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    leader: Pid,
    /// Value of [`MARK`].
    mark: String,
    /// Nothing that is older belongs to the agent.
    started: StartTime,
    /// Processes outside the group that belong to the agent. Their parents may be gone by now.
    seen: BTreeMap<Pid, StartTime>,
    /// Members that got SIGTERM one by one.
    terminated: BTreeSet<Pid>,
    /// When SIGKILL is due.
    deadline: Option<Instant>,
}

impl Members {
    /// The processes of the agent that leads the group `leader` and was started with `mark`.
    pub(crate) fn new(leader: Pid, mark: String) -> Self {
        let started = table::start_time(leader);
        Self { leader, mark, started, seen: BTreeMap::new(), terminated: BTreeSet::new(), deadline: None }
    }

    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Sends `signal` to the group; SIGKILL also to the members outside. Remembers who was there before it.
    pub(crate) fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGKILL => {
                self.deadline = Some(Instant::now());
                self.kill();
            }
            Signal::SIGTERM => {
                self.alive();
                self.deadline.get_or_insert_with(|| Instant::now() + GRACE);
                self.signal_group(signal);
            }
            _ => self.signal_group(signal),
        }
    }

    /// Takes the next step of the end. True once nothing is left, or what is left cannot be killed.
    fn advance(&mut self) -> bool {
        let alive = self.alive();
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + GRACE);
        if alive.is_empty() || Instant::now() > deadline + PERSISTENCE {
            return true;
        }
        if Instant::now() >= deadline {
            self.kill();
        } else if self.terminated.insert(self.leader) {
            self.signal_group(Signal::SIGTERM);
        } else if !alive.contains(&self.leader) {
            // The leader had its chance to end them in its own way.
            for pid in alive {
                if self.terminated.insert(pid) {
                    signal(pid, Signal::SIGTERM);
                }
            }
        }
        false
    }

    fn kill(&mut self) {
        let alive = self.alive();
        self.signal_group(Signal::SIGKILL);
        alive.into_iter().for_each(|pid| signal(pid, Signal::SIGKILL));
    }

    fn signal_group(&mut self, signal: Signal) {
        if signal == Signal::SIGTERM {
            self.terminated.insert(self.leader);
        }
        // It may be gone already.
        let _ = killpg(self.leader, signal);
    }

    /// Members that run now. A zombie does not.
    #[cfg(target_os = "linux")]
    fn alive(&mut self) -> BTreeSet<Pid> {
        let us = nix::unistd::getpid();
        let Some(mut others) = table::processes(self.started) else { return self.group() };
        others.retain(|process| process.pid != us);
        let mut alive = BTreeSet::new();
        loop {
            // A child may come before its parent in the table, so one pass is not enough.
            let known = alive.len();
            others.retain(|process| {
                let is_member = process.group == self.leader
                    || self.seen.get(&process.pid) == Some(&process.started)
                    || alive.contains(&process.parent)
                    || process.has_mark(&self.mark);
                if is_member {
                    self.seen.insert(process.pid, process.started);
                    alive.insert(process.pid);
                }
                !is_member
            });
            if alive.len() == known {
                return alive;
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn alive(&mut self) -> BTreeSet<Pid> {
        self.group()
    }

    /// The leader, which stands for its group where there is no process table.
    fn group(&self) -> BTreeSet<Pid> {
        killpg(self.leader, None).is_ok().then_some(self.leader).into_iter().collect()
    }
}

/// Ends all of them at the same time and returns when none is left: within three seconds.
pub(crate) fn end(mut all: Vec<Members>) {
    let (mut pause, longest) = PAUSES;
    loop {
        all.retain_mut(|members| !members.advance());
        if all.is_empty() {
            return;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
}

fn signal(pid: Pid, signal: Signal) {
    // It may be gone already.
    let _ = kill(pid, signal);
}

#[cfg(not(target_os = "linux"))]
mod table {
    use nix::unistd::Pid;

    pub(super) fn start_time(_: Pid) -> super::StartTime {
        0
    }
}

/// The process table of Linux.
#[cfg(target_os = "linux")]
mod table {
    use std::fs;

    use nix::unistd::Pid;

    use super::{MARK, StartTime};

    /// A process that is no zombie.
    #[derive(Debug, PartialEq)]
    pub(super) struct Process {
        pub(super) pid: Pid,
        pub(super) parent: Pid,
        pub(super) group: Pid,
        pub(super) started: StartTime,
    }

    impl Process {
        /// Its environment at its start, which is empty for processes of other users.
        pub(super) fn has_mark(&self, mark: &str) -> bool {
            let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
            let marked =
                |entry: &[u8]| entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"=").map(|it| it == mark.as_bytes());
            environment.split(|byte| *byte == 0).any(|entry| marked(entry) == Some(true))
        }
    }

    /// Start time of a process; 0 if it is gone.
    pub(super) fn start_time(pid: Pid) -> StartTime {
        process(pid.as_raw()).map_or(0, |process| process.started)
    }

    /// All processes that did not start before `since`. `None` if `/proc` is not there.
    pub(super) fn processes(since: StartTime) -> Option<Vec<Process>> {
        process(nix::unistd::getpid().as_raw())?;
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Some(ids.filter_map(process).filter(|process| process.started >= since).collect())
    }

    fn process(pid: i32) -> Option<Process> {
        parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads a `stat` line: `pid (name) state parent group …`. The name may hold anything, also parentheses.
    fn parse(stat: &str) -> Option<Process> {
        let (head, tail) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let id = |text: &str| text.parse().ok().map(Pid::from_raw);
        if matches!(*fields.first()?, "Z" | "X" | "x") {
            return None;
        }
        Some(Process {
            pid: id(head.split_once(' ')?.0)?,
            parent: id(fields.get(1)?)?,
            group: id(fields.get(2)?)?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn stat_lines_are_read_whatever_the_name() {
            let stat =
                |name: &str, state| format!("10 ({name}) {state} 7 8 8 0 -1 1 1 0 0 0 1 2 3 4 20 0 1 0 999 5 6\n");
            let process =
                Process { pid: Pid::from_raw(10), parent: Pid::from_raw(7), group: Pid::from_raw(8), started: 999 };
            for name in ["sh", "a b) Z 1 (", ") R 1 1", ""] {
                assert_eq!(parse(&stat(name, "S")).as_ref(), Some(&process), "{name}");
            }
            assert_eq!(parse(&stat("sh", "Z")), None);
            for odd in ["", "10", "10 (sh", "10 (sh) S 7", "x (sh) S 7 8"] {
                assert_eq!(parse(odd), None, "{odd}");
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        os::unix::process::CommandExt as _,
        process::{Child, Command, Stdio},
    };

    use super::*;

    /// A shell in a group of its own that runs `script`, and the process ids that it prints, one a line.
    fn agent(script: &str, lines: usize) -> (Child, Members, Vec<Pid>) {
        let mark = uuid::Uuid::new_v4().to_string();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env(MARK, &mark).process_group(0).stdout(Stdio::piped()).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let members = Members::new(Pid::from_raw(i32::try_from(child.id()).unwrap()), mark);
        let printed = BufReader::new(child.stdout.take().unwrap()).lines().take(lines);
        let pids = printed.map(|line| Pid::from_raw(line.unwrap().trim().parse().unwrap())).collect();
        (child, members, pids)
    }

    fn running(pids: &[Pid]) -> Vec<Pid> {
        let all = table::processes(0).unwrap();
        pids.iter().copied().filter(|pid| all.iter().any(|process| process.pid == *pid)).collect()
    }

    const DETACHED: &str = "setsid sh -c 'trap \"\" HUP INT; echo $$; while :; do sleep 1; done' &";

    #[test]
    fn detached_processes_end_with_a_running_leader() {
        let (mut child, members, pids) = agent(&format!("{DETACHED} wait"), 1);
        assert_eq!(running(&pids), pids);
        end(vec![members]);
        assert!(running(&pids).is_empty() && child.try_wait().unwrap().is_some());
    }

    #[test]
    fn daemon_is_found_by_its_mark_after_the_leader() {
        let (mut child, members, pids) = agent("(setsid sh -c 'echo $$; sleep 600' & ) ; exit 0", 1);
        child.wait().unwrap();
        assert_eq!(running(&pids), pids);
        end(vec![members]);
        assert!(running(&pids).is_empty());
    }

    #[test]
    fn child_without_the_mark_is_found_below_the_leader() {
        let (mut child, members, pids) = agent("env -i setsid sh -c 'echo $$; sleep 600; :' & wait", 1);
        end(vec![members]);
        assert!(running(&pids).is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn sigkill_follows_where_sigterm_is_ignored() {
        let stubborn = "trap '' TERM; echo $$; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done'";
        let (mut child, members, pids) = agent(stubborn, 2);
        end(vec![members]);
        assert!(running(&pids).is_empty());
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    #[test]
    fn zombie_leader_counts_as_gone() {
        let (mut child, mut members, _) = agent("exit 0", 0);
        drop(child.stdin.take());
        while table::start_time(members.leader) != 0 {
            thread::yield_now();
        }
        assert!(members.advance(), "nothing is left to wait for");
        child.wait().unwrap();
    }

    #[test]
    fn processes_of_others_are_left_alone() {
        let (mut child, mut members, _) = agent("read line", 0);
        let (mut other, others, _) = agent("read line", 0);
        assert_eq!(members.alive(), [members.leader].into());
        end(vec![members]);
        child.wait().unwrap();
        assert!(other.try_wait().unwrap().is_none());
        end(vec![others]);
        other.wait().unwrap();
    }
}
