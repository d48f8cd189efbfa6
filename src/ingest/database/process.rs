//! One child process for one read: request on its stdin, answer on its stdout, killed at its time limit.
//!
//! Every return path kills the process group and reaps the child. If this program exits first, the child sees its stdin
//! close and exits ([`super::worker`]). This module must not interpret requests and answers.

use std::{
    ffi::OsString,
    io::{self, BufRead as _, BufReader, Read, Write},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError},
    },
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use parking_lot::{Mutex, MutexGuard};

use super::{QueryError, worker::MAX_REPLY_BYTES};
use ingestdeck_os::group_guard::clear_environment;

/// Longest wait for a killed process. One that hangs in the kernel is reaped later.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest answer of a process that answers several requests, in bytes.
const MAX_LINE_BYTES: u64 = 128 << 20;
/// Longest wait for the end of a statement that was cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// How a worker process is started.
#[derive(Clone, Debug)]
pub(super) struct WorkerCommand {
    program: PathBuf,
    args: Vec<OsString>,
}

impl WorkerCommand {
    pub(super) fn new(program: PathBuf, args: Vec<OsString>) -> Self {
        Self { program, args }
    }

    /// The same program with another first argument.
    pub(super) fn with_subcommand(&self, subcommand: &str) -> Self {
        Self::new(self.program.clone(), vec![subcommand.into()])
    }

    /// Starts a process that answers several requests, with these variables.
    pub(super) fn start_with(
        &self,
        variables: &[(String, OsString)],
    ) -> Result<LineProcess, QueryError> {
        let started = WorkerProcess::start(self, variables).and_then(LineProcess::new);
        started.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> QueryError {
        let program = self.program.display();
        QueryError::WorkerFailed(format!(
            "cannot start: `{program}`: {error}; if ingestdeck was updated, start it again"
        ))
    }

    /// Sends `request` to a new process and returns its answer line. The process has ended when this returns.
    pub(super) fn exchange(
        &self,
        request: Vec<u8>,
        time_limit: Duration,
    ) -> Result<Vec<u8>, QueryError> {
        let mut process = WorkerProcess::start(self, &[]).map_err(|error| self.failed(&error))?;
        let group = Arc::clone(&process.group);
        let (finished, exchanged) = mpsc::channel();
        // A thread, because writing to the child and reading from it have no timeout.
        let thread = thread::Builder::new()
            .name("sql-worker".into())
            .spawn(move || {
                let reply = process.converse(&request);
                let status = process.end();
                // The receiver is gone after the time limit.
                let _ = finished.send((reply, status));
            });
        thread.map_err(|error| {
            QueryError::WorkerFailed(format!("cannot start: no thread for it: {error}"))
        })?;
        let exchanged = exchanged.recv_timeout(time_limit).or_else(|_| {
            group.kill();
            exchanged.recv_timeout(REAP_TIMEOUT)
        });
        match exchanged {
            Err(_) => Err(QueryError::TimedOut(0)),
            Ok((Ok(reply), _)) if reply.ends_with(b"\n") => Ok(reply),
            Ok((Ok(reply), _)) if reply.len() as u64 > MAX_REPLY_BYTES => {
                Err(QueryError::AnswerTooLarge(MAX_REPLY_BYTES))
            }
            Ok((_, status)) => Err(group.failure(status)),
        }
    }
}

/// A running worker. Dropping it kills and reaps it.
#[derive(Debug)]
struct WorkerProcess {
    child: Child,
    group: Arc<WorkerGroup>,
}

impl WorkerProcess {
    fn start(command: &WorkerCommand, variables: &[(String, OsString)]) -> io::Result<Self> {
        let child = clear_environment(&mut Command::new(&command.program))
            .arg0("ingestdeck")
            .args(&command.args)
            // SQLite's `localtime` modifier reads `TZ`.
            .envs(std::env::var_os("TZ").map(|zone| ("TZ", zone)))
            .envs(variables.iter().cloned())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let leader = i32::try_from(child.id()).map_err(io::Error::other)?;
        Ok(Self {
            child,
            group: Arc::new(WorkerGroup::new(Pid::from_raw(leader))),
        })
    }

    fn converse(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let pipes = self.child.stdin.as_mut().zip(self.child.stdout.as_mut());
        let (stdin, stdout) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        converse(stdin, stdout, request)
    }

    /// Kills the process if it is still running, and reaps it.
    fn end(&mut self) -> io::Result<ExitStatus> {
        self.group.kill_remaining();
        self.child.wait()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // The first error was reported; a second one cannot be handled.
        let _ = self.end();
    }
}

/// A process that answers each line with a line. It ends when its stdin closes.
#[derive(Debug)]
pub(super) struct LineProcess {
    process: WorkerProcess,
    stdin: Option<ChildStdin>,
    replies: Receiver<LineReply>,
    stop: Sender<LineReply>,
}

/// What a caller of a [`LineProcess`] waits for.
#[derive(Debug)]
pub(super) enum LineReply {
    /// A line with its end; without it, the last one.
    Line(io::Result<Vec<u8>>),
    /// The caller shall not wait longer.
    Stopped,
}

impl LineProcess {
    fn new(mut process: WorkerProcess) -> io::Result<Self> {
        let stdin = process.child.stdin.take();
        let stdout = process.child.stdout.take();
        let stdout = stdout.ok_or(io::ErrorKind::BrokenPipe)?;
        let (stop, replies) = mpsc::channel();
        let sender = stop.clone();
        // A thread, because reading from the child has no timeout.
        let read = move || {
            let mut stdout = BufReader::new(stdout);
            loop {
                let mut line = Vec::new();
                let mut limited = stdout.by_ref().take(MAX_LINE_BYTES + 1);
                let read = limited.read_until(b'\n', &mut line).map(|_| line);
                let is_last = !read.as_ref().is_ok_and(|line| line.ends_with(b"\n"));
                if sender.send(LineReply::Line(read)).is_err() || is_last {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("warehouse-worker".into())
            .spawn(read)?;
        Ok(Self {
            process,
            stdin,
            replies,
            stop,
        })
    }

    /// Sends a line that has no answer.
    pub(super) fn send(&mut self, line: &[u8]) -> Result<(), QueryError> {
        let stdin = self.stdin.as_mut();
        let sent = stdin
            .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
            .and_then(|stdin| {
                stdin.write_all(line)?;
                stdin.write_all(b"\n")?;
                stdin.flush()
            });
        sent.map_err(|error| QueryError::WorkerFailed(format!("cannot be asked: {error}")))
    }

    /// The next line of the process, without its end. After an error the process must be dropped.
    pub(super) fn receive(&mut self, time_limit: Duration) -> Result<Vec<u8>, QueryError> {
        match self.replies.recv_timeout(time_limit) {
            Ok(LineReply::Line(Ok(line))) if line.ends_with(b"\n") => Ok(line),
            Ok(LineReply::Line(Ok(line))) if line.len() as u64 > MAX_LINE_BYTES => {
                Err(QueryError::AnswerTooLarge(MAX_LINE_BYTES))
            }
            Ok(LineReply::Stopped) => {
                self.cancel();
                Err(QueryError::Stopped)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.cancel();
                Err(QueryError::TimedOut(0))
            }
            Ok(LineReply::Line(_)) | Err(RecvTimeoutError::Disconnected) => {
                let status = self.process.end();
                Err(self.process.group.failure(status))
            }
        }
    }

    /// What makes [`Self::receive`] return early.
    pub(super) fn stop(&self) -> Sender<LineReply> {
        self.stop.clone()
    }

    /// Lets the process cancel what it does, which it does when its stdin closes.
    fn cancel(&mut self) {
        self.stdin = None;
        let _ = self.replies.recv_timeout(CANCEL_TIMEOUT);
    }

    /// False if the process has ended, or has written something without a request.
    pub(super) fn is_waiting(&self) -> bool {
        self.stdin.is_some() && matches!(self.replies.try_recv(), Err(TryRecvError::Empty))
    }
}

/// Writes one request and reads one line. `stdin` stays open until then, because a worker exits when it closes.
fn converse(stdin: &mut impl Write, stdout: &mut impl Read, request: &[u8]) -> io::Result<Vec<u8>> {
    // A worker that cannot set its own limits answers without reading the request.
    let _ = stdin
        .write_all(request)
        .and_then(|()| stdin.write_all(b"\n"))
        .and_then(|()| stdin.flush());
    let mut reply = Vec::new();
    BufReader::new(stdout.take(MAX_REPLY_BYTES + 1)).read_until(b'\n', &mut reply)?;
    Ok(reply)
}

/// Process group of a worker, valid until the worker is reaped. After that the id may belong to other processes.
#[derive(Debug)]
pub(super) struct WorkerGroup(Mutex<WorkerGroupState>);

#[derive(Debug)]
struct WorkerGroupState {
    leader: Option<Pid>,
    was_killed: bool,
}

impl WorkerGroup {
    fn new(leader: Pid) -> Self {
        Self(Mutex::new(WorkerGroupState {
            leader: Some(leader),
            was_killed: false,
        }))
    }

    fn state(&self) -> MutexGuard<'_, WorkerGroupState> {
        self.0.lock()
    }

    /// Kills the group because of its time limit.
    fn kill(&self) {
        let mut state = self.state();
        if let Some(leader) = state.leader {
            state.was_killed = killpg(leader, Signal::SIGKILL).is_ok();
        }
    }

    /// Kills the remaining processes of the group before the worker is reaped.
    fn kill_remaining(&self) {
        if let Some(leader) = self.state().leader.take() {
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }

    /// The error for a worker that ended with `status` without an answer.
    fn failure(&self, status: io::Result<ExitStatus>) -> QueryError {
        match status {
            _ if self.state().was_killed => QueryError::TimedOut(0),
            Ok(status) if status.signal() == Some(Signal::SIGXCPU as i32) => {
                QueryError::TimedOut(0)
            }
            Ok(status) => QueryError::WorkerFailed(format!(
                "ended without an answer ({status}); send the statement again"
            )),
            Err(error) => QueryError::WorkerFailed(format!("cannot be waited for: {error}")),
        }
    }
}

/// Like [`WorkerCommand::exchange`], with the worker on a thread of this process: without its limits, never killed.
#[cfg(test)]
pub(super) fn exchange_in_process(request: &[u8]) -> Result<Vec<u8>, QueryError> {
    let failed = |error: io::Error| QueryError::WorkerFailed(error.to_string());
    let (input, mut stdin) = io::pipe().map_err(failed)?;
    let (mut stdout, mut output) = io::pipe().map_err(failed)?;
    let worker = thread::spawn(move || {
        let request = super::worker::read_request(BufReader::new(input));
        output.write_all(&super::worker::reply(request))
    });
    let reply = converse(&mut stdin, &mut stdout, request).map_err(failed)?;
    worker
        .join()
        .map_err(|_| QueryError::WorkerFailed("panicked".into()))?
        .map_err(failed)?;
    Ok(reply)
}

#[cfg(test)]
mod tests;
