//! The processes of an agent, and their end: SIGTERM, a grace period, SIGKILL.
//!
//! The members of an agent are its process group and, on Linux, the processes that left the group (`setsid`, double
//! fork): those that carry its mark in their environment and those that were seen as descendants of a member. A process
//! that clears its environment and detaches from its parents before the agent ends is not found. On other systems only
//! the group is known.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

use super::process_table::{ProcScanner, ProcessTable, StartTime};

/// Time from SIGTERM to SIGKILL.
const SIGTERM_GRACE: Duration = Duration::from_secs(2);
/// How long SIGKILL is repeated. Processes that remain after that cannot be killed.
const SIGKILL_RETRY_TIME: Duration = Duration::from_millis(700);
/// A process can be missing from one table while it forks, so this number of consecutive tables must be empty.
pub(super) const EMPTY_SCANS: u8 = 3;
/// Minimum time between two empty tables that count.
pub(super) const MIN_CONFIRM_INTERVAL: Duration = Duration::from_millis(20);

/// The progress of the end of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminationProgress {
    /// Processes run, or may run.
    Running,
    /// No process was found, which must be confirmed.
    Unconfirmed,
    /// No process is left, or the remaining ones cannot be killed.
    Over,
}

/// The processes of one agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentProcesses {
    leader: Pid,
    mark: String,
    /// Older processes do not belong to the agent.
    started: StartTime,
    /// Processes that belong to the agent. Their parents may have ended.
    seen: BTreeMap<Pid, StartTime>,
    /// Members that received SIGTERM individually.
    terminated: BTreeSet<Pid>,
    /// When SIGKILL is due.
    deadline: Option<Instant>,
    /// The group is gone, so its id may belong to another group.
    group_is_gone: bool,
    /// Number of consecutive empty tables that count, and the time of the last one.
    empty_scans: (u8, Option<Instant>),
}

impl AgentProcesses {
    /// Creates the members of an agent that leads the group `leader` and was started with `mark`.
    pub(crate) fn new(leader: Pid, mark: String) -> Self {
        Self::with_start(leader, mark, ProcScanner::new().start_time(leader))
    }

    fn with_start(leader: Pid, mark: String, started: StartTime) -> Self {
        Self {
            leader,
            mark,
            started,
            seen: BTreeMap::new(),
            terminated: BTreeSet::new(),
            deadline: None,
            group_is_gone: false,
            empty_scans: (0, None),
        }
    }

    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    pub(super) fn started(&self) -> StartTime {
        self.started
    }

    /// Sends `signal` to the group; SIGKILL also to the members outside. Records the members that existed before it.
    pub(super) fn signal(&mut self, signal: Signal, table: Option<&ProcessTable>, now: Instant) {
        let alive = self.alive(table);
        match signal {
            Signal::SIGKILL => {
                self.deadline = Some(now);
                self.kill(&alive);
            }
            Signal::SIGTERM => {
                self.deadline.get_or_insert(now + SIGTERM_GRACE);
                self.terminate_group();
            }
            _ => self.signal_group(signal),
        }
    }

    /// Sends `signal` to the group, if it exists.
    pub(super) fn signal_group(&self, signal: Signal) {
        if !self.group_is_gone {
            // The group may be gone already.
            let _ = killpg(self.leader, signal);
        }
    }

    /// Performs the next step of the end.
    pub(super) fn advance_end(
        &mut self,
        table: Option<&ProcessTable>,
        now: Instant,
    ) -> TerminationProgress {
        let alive = self.alive(table);
        let deadline = *self.deadline.get_or_insert(now + SIGTERM_GRACE);
        let is_undecided = table.is_some_and(|table| table.is_undecided(self.started));
        if alive.is_empty() && !is_undecided {
            return self.confirm(table, now);
        }
        self.empty_scans = (0, None);
        if now >= deadline {
            self.kill(&alive);
        } else if !self.group_is_gone && !self.terminated.contains(&self.leader) {
            self.terminate_group();
        } else if !alive.contains(&self.leader) {
            // The leader had time to end them itself.
            for pid in alive {
                if self.terminated.insert(pid) {
                    signal_process(pid, Signal::SIGTERM);
                }
            }
        }
        if now > deadline + SIGKILL_RETRY_TIME {
            TerminationProgress::Over
        } else {
            TerminationProgress::Running
        }
    }

    /// Counts an empty table. Without a table, the kernel has answered for the whole group.
    fn confirm(&mut self, table: Option<&ProcessTable>, now: Instant) -> TerminationProgress {
        let (count, last) = &mut self.empty_scans;
        if last.is_none_or(|last| now >= last + MIN_CONFIRM_INTERVAL) {
            *count += 1;
            *last = Some(now);
        }
        if table.is_none() || *count >= EMPTY_SCANS {
            TerminationProgress::Over
        } else {
            TerminationProgress::Unconfirmed
        }
    }

    fn kill(&self, alive: &BTreeSet<Pid>) {
        self.signal_group(Signal::SIGKILL);
        alive
            .iter()
            .for_each(|pid| signal_process(*pid, Signal::SIGKILL));
    }

    fn terminate_group(&mut self) {
        self.terminated.insert(self.leader);
        self.signal_group(Signal::SIGTERM);
    }

    /// Running members, without zombies. Without a table, the leader represents the group.
    fn alive(&mut self, table: Option<&ProcessTable>) -> BTreeSet<Pid> {
        // The kernel does not reuse the id of a group until its last process, including zombies, is gone.
        let reused = table.and_then(|table| table.find(self.leader));
        let reused =
            reused.is_some_and(|process| self.started != 0 && process.started != self.started);
        let exists = killpg(self.leader, None);
        self.group_is_gone |= reused || exists == Err(Errno::ESRCH);
        let Some(table) = table else {
            let is_there = exists.is_ok() && !self.group_is_gone;
            return is_there.then_some(self.leader).into_iter().collect();
        };
        let group = if self.group_is_gone {
            &[]
        } else {
            table.group(self.leader)
        };
        let seen = self
            .seen
            .iter()
            .filter(|(pid, started)| table.is_running(**pid, **started));
        let mut open: Vec<Pid> = seen
            .map(|(pid, _)| *pid)
            .chain(group.iter().copied())
            .collect();
        open.extend(table.marked(&self.mark));
        let mut alive = BTreeSet::new();
        while let Some(pid) = open.pop() {
            let started = table
                .find(pid)
                .map(|process| process.started)
                .filter(|started| *started >= self.started);
            let Some(started) = started else { continue };
            if alive.insert(pid) {
                self.seen.insert(pid, started);
                open.extend(table.children(pid));
            }
        }
        alive
    }
}

/// Pauses between two tables: short at first, then longer while processes end slowly.
#[derive(Debug)]
pub(super) struct ScanBackoff(Duration);

impl ScanBackoff {
    const SHORTEST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(50);

    pub(super) fn new() -> Self {
        Self(Self::SHORTEST)
    }

    /// Returns the next pause. `is_any_running` is true if any agent is [`TerminationProgress::Running`].
    pub(super) fn next(&mut self, is_any_running: bool) -> Duration {
        if !is_any_running {
            return MIN_CONFIRM_INTERVAL;
        }
        let next = self.0;
        self.0 = (next * 2).min(Self::LONGEST);
        next
    }
}

/// Ends all agents at the same time. Returns when none is left, within three seconds.
pub(crate) fn end_agents(all: Vec<AgentProcesses>) {
    let mut scanner = ProcScanner::new();
    end_agents_with(
        all,
        |since| (scanner.scan(since), Instant::now()),
        thread::sleep,
    );
}

/// Ends all agents, with tables and times from `scan` and a `pause` between two tables.
fn end_agents_with(
    mut all: Vec<AgentProcesses>,
    mut scan: impl FnMut(StartTime) -> (Option<ProcessTable>, Instant),
    mut pause: impl FnMut(Duration),
) {
    let mut pauses = ScanBackoff::new();
    while let Some(since) = all.iter().map(AgentProcesses::started).min() {
        let (table, now) = scan(since);
        let mut is_any_running = false;
        all.retain_mut(|members| {
            let progress = members.advance_end(table.as_ref(), now);
            is_any_running |= progress == TerminationProgress::Running;
            progress != TerminationProgress::Over
        });
        if !all.is_empty() {
            pause(pauses.next(is_any_running));
        }
    }
}

fn signal_process(pid: Pid, signal: Signal) {
    // The process may be gone already.
    let _ = kill(pid, signal);
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        io::{BufRead as _, BufReader},
        os::{fd::AsFd as _, unix::process::CommandExt as _},
        process::{Child, ChildStdout, Command, Stdio},
    };

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::{
        super::{AGENT_MARK_VAR, process_table::fake::FakeProc},
        *,
    };

    /// A shell in a separate group that runs `script`, and the process ids that it prints, one per line.
    fn agent(script: &str, lines: usize) -> (Child, AgentProcesses, Vec<Pid>) {
        let (child, members, output) = agent_with_output(script);
        let printed = BufReader::new(output).lines().take(lines);
        let pids = printed
            .map(|line| Pid::from_raw(line.unwrap().trim().parse().unwrap()))
            .collect();
        (child, members, pids)
    }

    fn agent_with_output(script: &str) -> (Child, AgentProcesses, ChildStdout) {
        let mark = uuid::Uuid::new_v4().to_string();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", script])
            .env(AGENT_MARK_VAR, &mark)
            .process_group(0)
            .stdout(Stdio::piped())
            .stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let members = AgentProcesses::new(Pid::from_raw(i32::try_from(child.id()).unwrap()), mark);
        let output = child.stdout.take().unwrap();
        (child, members, output)
    }

    fn table() -> ProcessTable {
        ProcScanner::new().scan(0).unwrap()
    }

    fn running(pids: &[Pid]) -> Vec<Pid> {
        let table = table();
        let is_running = |pid: Pid| {
            table
                .find(pid)
                .is_some_and(|process| table.is_running(pid, process.started))
        };
        pids.iter()
            .copied()
            .filter(|pid| is_running(*pid))
            .collect()
    }

    /// Above all possible ids (below 4,194,304), so that no process gets a signal.
    const UNUSED_PID: i32 = 5_000_000;

    /// An agent in a [`FakeProc`], whose group is gone.
    fn fake_agent(leader: i32, mark: &str) -> AgentProcesses {
        AgentProcesses::with_start(Pid::from_raw(leader), mark.to_owned(), 1000)
    }

    const DETACHED_SHELL: &str =
        "setsid sh -c 'trap \"\" HUP INT; echo $$; while :; do sleep 1; done' &";

    #[test]
    fn detached_processes_end_with_a_running_leader() {
        let (mut child, members, pids) = agent(&format!("{DETACHED_SHELL} wait"), 1);
        assert_eq!(running(&pids), pids);
        end_agents(vec![members]);
        assert!(running(&pids).is_empty() && child.try_wait().unwrap().is_some());
    }

    #[test]
    fn daemon_is_found_by_its_mark_after_the_leader() {
        let (mut child, members, pids) =
            agent("(setsid sh -c 'echo $$; sleep 600' & ) ; exit 0", 1);
        child.wait().unwrap();
        assert_eq!(running(&pids), pids);
        end_agents(vec![members]);
        assert!(running(&pids).is_empty());
    }

    #[test]
    fn child_without_the_mark_is_found_below_the_leader() {
        let (mut child, members, pids) =
            agent("env -i setsid sh -c 'echo $$; sleep 600; :' & wait", 1);
        end_agents(vec![members]);
        assert!(running(&pids).is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn sigkill_follows_where_sigterm_is_ignored() {
        let stubborn = "trap '' TERM; echo $$; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done'";
        let (mut child, members, pids) = agent(stubborn, 2);
        end_agents(vec![members]);
        assert!(running(&pids).is_empty());
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
    }

    #[test]
    fn zombie_leader_counts_as_gone() {
        let (mut child, mut members, _) = agent("exit 0", 0);
        drop(child.stdin.take());
        while !running(&[members.leader]).is_empty() {
            ingestdeck_test_support::pause_before_check();
        }
        assert_eq!(
            members.advance_end(Some(&table()), Instant::now()),
            TerminationProgress::Unconfirmed
        );
        assert!(!members.group_is_gone, "a zombie keeps the id");
        child.wait().unwrap();
    }

    #[test]
    fn foreign_processes_are_not_signalled() {
        let (mut child, mut members, _) = agent("read line", 0);
        let (mut other, others, _) = agent("read line", 0);
        assert_eq!(members.alive(Some(&table())), [members.leader].into());
        end_agents(vec![members]);
        child.wait().unwrap();
        assert!(other.try_wait().unwrap().is_none());
        end_agents(vec![others]);
        other.wait().unwrap();
    }

    #[test]
    fn daemons_that_execute_programs_during_the_end_do_not_survive() {
        for _ in 0..10 {
            let script = "(setsid env env env sh -c 'exec sleep 7777' &)";
            let mut agents: Vec<_> = (0..10).map(|_| agent_with_output(script)).collect();
            for (child, ..) in &mut agents {
                child.wait().unwrap();
            }
            end_agents(
                agents
                    .iter()
                    .map(|(_, members, _)| members.clone())
                    .collect(),
            );
            for (.., output) in agents {
                // The daemon holds the other end of the pipe.
                let mut polled = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
                assert_eq!(
                    poll(&mut polled, PollTimeout::ZERO),
                    Ok(1),
                    "a daemon survived"
                );
            }
        }
    }

    #[test]
    fn end_needs_three_empty_tables_in_a_row() {
        let proc = FakeProc::new();
        let mut scanner = proc.scanner();
        let mut members = fake_agent(UNUSED_PID, "a");
        let begin = Instant::now();
        let mut advance = |milliseconds| {
            members.advance_end(
                scanner.scan(0).as_ref(),
                begin + Duration::from_millis(milliseconds),
            )
        };
        assert_eq!(
            [0, 10, 20, 39].map(&mut advance),
            [TerminationProgress::Unconfirmed; 4]
        );
        proc.set(UNUSED_PID + 1, 9, 9, &format!("{AGENT_MARK_VAR}=a\0"));
        assert_eq!(advance(40), TerminationProgress::Running);
        proc.remove(UNUSED_PID + 1);
        assert_eq!(
            [60, 80, 99].map(&mut advance),
            [TerminationProgress::Unconfirmed; 3]
        );
        assert_eq!(advance(100), TerminationProgress::Over);
    }

    #[test]
    fn process_with_an_empty_environment_is_looked_at_again() {
        let proc = FakeProc::new();
        let mut scanner = proc.scanner();
        let mut members = fake_agent(UNUSED_PID, "a");
        proc.set(UNUSED_PID + 1, 9, 9, "");
        let now = Instant::now();
        assert_eq!(
            members.advance_end(scanner.scan(0).as_ref(), now),
            TerminationProgress::Running
        );
        proc.set(UNUSED_PID + 1, 9, 9, &format!("{AGENT_MARK_VAR}=a\0"));
        let table = scanner.scan(0);
        assert_eq!(
            members.alive(table.as_ref()),
            [Pid::from_raw(UNUSED_PID + 1)].into()
        );
    }

    #[test]
    fn all_agents_share_one_table_per_step() {
        let proc = FakeProc::new();
        let mut scanner = proc.scanner();
        let leaders = UNUSED_PID..UNUSED_PID + 100;
        leaders.clone().for_each(|pid| {
            proc.set(
                pid + 1000,
                pid,
                pid + 1000,
                &format!("{AGENT_MARK_VAR}={pid}\0"),
            )
        });
        let all = leaders
            .clone()
            .map(|pid| fake_agent(pid, &pid.to_string()))
            .collect();
        let (scans, now) = (Cell::new(0), Cell::new(Instant::now()));
        let scan = |since| {
            scans.set(scans.get() + 1);
            (scanner.scan(since), now.get())
        };
        let pause = |pause| {
            now.set(now.get() + pause);
            if scans.get() == 2 {
                leaders.clone().for_each(|pid| proc.remove(pid + 1000));
            }
        };
        end_agents_with(all, scan, pause);
        assert_eq!(scans.get(), 2 + u32::from(EMPTY_SCANS));
    }

    #[test]
    fn slow_scan_does_not_prevent_sigkill() {
        let (mut child, members, _) = agent("trap '' TERM; echo $$; while :; do sleep 1; done", 1);
        let mut scanner = ProcScanner::new();
        let mut now = Instant::now();
        let scan = |since| {
            now += SIGTERM_GRACE + SIGKILL_RETRY_TIME + Duration::from_secs(1);
            (scanner.scan(since), now)
        };
        end_agents_with(vec![members], scan, |_| {});
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
    }

    #[test]
    fn group_that_is_gone_gets_no_signals() {
        let (mut child, mut members, _) = agent("exit 0", 0);
        child.wait().unwrap();
        members.advance_end(Some(&table()), Instant::now());
        assert!(members.group_is_gone);
        // Another process gets the id of the group.
        let (mut other, others, _) = agent("read line", 0);
        members.leader = others.leader;
        assert!(members.alive(Some(&table())).is_empty());
        members.signal(Signal::SIGKILL, Some(&table()), Instant::now());
        assert!(other.try_wait().unwrap().is_none());
        end_agents(vec![others]);
        other.wait().unwrap();
    }

    #[test]
    fn group_with_a_younger_leader_gets_no_signals() {
        let (mut other, others, _) = agent("read line", 0);
        let mut members =
            AgentProcesses::with_start(others.leader, "a".to_owned(), others.started - 1);
        members.signal(Signal::SIGKILL, Some(&table()), Instant::now());
        assert!(members.group_is_gone && other.try_wait().unwrap().is_none());
        end_agents(vec![others]);
        other.wait().unwrap();
    }

    #[test]
    fn group_is_signalled_without_a_process_table() {
        let (mut child, mut members, _) = agent("read line", 0);
        assert_eq!(
            members.advance_end(None, Instant::now()),
            TerminationProgress::Running
        );
        child.wait().unwrap();
        assert_eq!(
            members.advance_end(None, Instant::now()),
            TerminationProgress::Over
        );
        assert!(members.group_is_gone);
    }
}
