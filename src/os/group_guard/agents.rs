//! The agents of this process: a registry, and one thread that signals and ends them.
//!
//! Reading the process table takes milliseconds and ending stubborn processes takes seconds, so callers do not wait for
//! either: the thread reads one table for all agents that are to be signalled or ended. An agent stays registered, here
//! and with the guard, until its end is confirmed. [`super::members`] defines how agents are ended.

use std::{
    io,
    sync::{OnceLock, mpsc},
    thread,
    time::Instant,
};

use nix::{sys::signal::Signal, unistd::Pid};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::{
    members::{self, AgentProcesses, ScanBackoff, TerminationProgress},
    process_table::ProcScanner,
    unwatch, watch_agent,
};

/// The processes of an agent, which are ended when this value is dropped.
#[derive(Debug)]
pub struct AgentGuard {
    /// Mark of its processes, until their end begins.
    mark: Option<String>,
}

impl AgentGuard {
    /// Registers the agent that leads the group `leader` and was started with `mark`.
    pub fn register(leader: Pid, mark: String) -> Self {
        let members = AgentProcesses::new(leader, mark.clone());
        watch_agent(&members);
        registry().push(members);
        Self { mark: Some(mark) }
    }

    /// Sends `signal` to the group, and SIGKILL also to processes that left it. A missing group is ignored.
    pub fn signal(&self, signal: Signal) {
        let Some(members) = self.mark.as_deref().and_then(find_members) else {
            return;
        };
        match signal {
            // Members outside the group must be found before the signal.
            Signal::SIGTERM | Signal::SIGKILL => {
                if !send_job(AgentGuardJob::Signal(members.mark().to_owned(), signal)) {
                    members.signal_group(signal);
                }
            }
            _ => members.signal_group(signal),
        }
    }

    /// Ends the remaining processes. Resolves, also after an error, once none is found. Returns `None` if the end has
    /// begun already.
    pub fn begin_end(&mut self) -> Option<oneshot::Receiver<()>> {
        let mark = self.mark.take()?;
        let (ended, end) = oneshot::channel();
        if !send_job(AgentGuardJob::End(TerminatingAgent {
            mark,
            ended: Some(ended),
        })) {
            tracing::warn!(
                "remaining processes of an agent are ended only together with this program"
            );
        }
        Some(end)
    }
}

impl Drop for AgentGuard {
    fn drop(&mut self) {
        self.begin_end();
    }
}

/// Ends all registered agents and waits up to three seconds for it. Safe to call from any thread.
pub fn end_all_agents() {
    let all = registry().clone();
    let marks: Vec<String> = all
        .iter()
        .map(|members| members.mark().to_owned())
        .collect();
    members::end_agents(all);
    marks.iter().for_each(|mark| remove_members(mark));
}

/// Jobs of the thread.
#[derive(Debug)]
enum AgentGuardJob {
    /// Send a signal to the agent with this mark.
    Signal(String, Signal),
    End(TerminatingAgent),
}

/// An agent whose end has begun.
#[derive(Debug)]
struct TerminatingAgent {
    mark: String,
    /// Resolves the caller's wait.
    ended: Option<oneshot::Sender<()>>,
}

/// Sends a job to the thread. Returns false if there is no thread.
fn send_job(job: AgentGuardJob) -> bool {
    let sent = job_thread().and_then(|jobs| {
        jobs.send(job)
            .map_err(|_| io::Error::other("its thread is gone"))
    });
    if let Err(error) = &sent {
        tracing::warn!(%error, "cannot end an agent");
    }
    sent.is_ok()
}

fn job_thread() -> io::Result<mpsc::Sender<AgentGuardJob>> {
    static JOBS: OnceLock<mpsc::Sender<AgentGuardJob>> = OnceLock::new();
    if let Some(jobs) = JOBS.get() {
        return Ok(jobs.clone());
    }
    let (sender, jobs) = mpsc::channel();
    thread::Builder::new()
        .name("agent-end".into())
        .spawn(move || process_jobs(&jobs))?;
    // Two first callers may race; the loser's thread ends without a job when its sender is dropped.
    Ok(JOBS.get_or_init(|| sender).clone())
}

fn process_jobs(jobs: &mpsc::Receiver<AgentGuardJob>) {
    let mut scanner = ProcScanner::new();
    let mut ending: Vec<TerminatingAgent> = Vec::new();
    let (mut pauses, mut is_any_running) = (ScanBackoff::new(), false);
    loop {
        let first = if ending.is_empty() {
            let Ok(first) = jobs.recv() else { return };
            Some(first)
        } else {
            jobs.recv_timeout(pauses.next(is_any_running)).ok()
        };
        if first.is_some() {
            pauses = ScanBackoff::new();
        }
        let mut signals = Vec::new();
        for job in first.into_iter().chain(jobs.try_iter()) {
            match job {
                AgentGuardJob::Signal(mark, signal) => signals.push((mark, signal)),
                AgentGuardJob::End(agent) => ending.push(agent),
            }
        }

        let marks: Vec<&str> = signals
            .iter()
            .map(|(mark, _)| mark.as_str())
            .chain(ending.iter().map(|agent| agent.mark.as_str()))
            .collect();
        let since = registry()
            .iter()
            .filter(|it| marks.contains(&it.mark()))
            .map(AgentProcesses::started)
            .min();
        let table = since.and_then(|since| scanner.scan(since));
        let now = Instant::now();
        for (mark, signal) in signals {
            update_members(&mark, |members| members.signal(signal, table.as_ref(), now));
        }
        is_any_running = false;
        ending.retain_mut(|agent| {
            let progress = update_members(&agent.mark, |members| {
                members.advance_end(table.as_ref(), now)
            });
            is_any_running |= progress == Some(TerminationProgress::Running);
            if progress == Some(TerminationProgress::Running) {
                return true;
            }
            if let Some(ended) = agent.ended.take() {
                // The receiver is gone if the agent was dropped.
                let _ = ended.send(());
            }
            if progress == Some(TerminationProgress::Over) {
                remove_members(&agent.mark);
            }
            progress == Some(TerminationProgress::Unconfirmed)
        });
    }
}

/// The members of an agent, unless the agent was ended already.
fn find_members(mark: &str) -> Option<AgentProcesses> {
    registry()
        .iter()
        .find(|members| members.mark() == mark)
        .cloned()
}

/// Changes the members of an agent, unless the agent was ended already.
fn update_members<T>(mark: &str, change: impl FnOnce(&mut AgentProcesses) -> T) -> Option<T> {
    let mut members = find_members(mark)?;
    let result = change(&mut members);
    if let Some(known) = registry().iter_mut().find(|known| known.mark() == mark) {
        *known = members;
    }
    Some(result)
}

fn remove_members(mark: &str) {
    let mut registry = registry();
    let Some(index) = registry.iter().position(|members| members.mark() == mark) else {
        return;
    };
    let leader = registry.swap_remove(index).leader();
    // A newer agent may have the same id.
    if registry.iter().all(|members| members.leader() != leader) {
        unwatch(leader);
    }
}

/// The remaining agents. The lock is held for list operations only, and never across a panic.
fn registry() -> MutexGuard<'static, Vec<AgentProcesses>> {
    static REGISTRY: Mutex<Vec<AgentProcesses>> = Mutex::new(Vec::new());
    REGISTRY.lock()
}
