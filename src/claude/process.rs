//! Child processes in groups of their own, and how they end. No child outlives this program, nor what it has started.
//!
//! Every child carries a mark in its environment, by which processes that leave its group are found on Linux
//! ([`group_guard`]). An end is SIGTERM to the group, so that the child ends what it has started, and SIGKILL to whatever is
//! left two seconds later. Dropping a [`Child`] begins that; [`kill_all`] does it for every child and waits, from a panic hook
//! or a signal's path; the guard does it when this program is killed, in which case the kernel sends the first signal
//! on Linux. It must not know what the child says.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::Stdio,
    sync::{OnceLock, mpsc},
    time::Duration,
};

use nix::{sys::signal::Signal, unistd::Pid};
use tokio::{
    process::{ChildStderr, ChildStdin, ChildStdout, Command},
    runtime::Handle,
    sync::oneshot,
};
use uuid::Uuid;

use super::{line_reader::MAX_LINE_BYTES, panic_guard::with_panic_guard};
use crate::{
    file_limit,
    group_guard::{self, AGENT_MARK_VAR, AgentGuard},
    program_path,
};

/// Flags of `claude` and of the scripted agent whose values are written to a log.
const LOGGED_VALUE_FLAGS: &[&str] = &[
    "--allowedTools",
    "--attempt",
    "--disallowedTools",
    "--input-format",
    "--max-budget-usd",
    "--max-turns",
    "--model",
    "--output-format",
    "--permission-mode",
    "--resume",
    "--session-id",
    "--setting-sources",
    "--tools",
    "--unit",
];

/// What to start.
#[derive(Clone, Debug)]
pub struct SpawnRequest {
    /// Program.
    pub exe: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Give it a pipe as stdin; else stdin is empty.
    pub stdin: bool,
}

/// How long we wait before the next step. Times of the design; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTimeouts {
    /// Between the steps of the kill ladder.
    pub escalation_step: Duration,
    /// For a process to end by itself once it has nothing left to do.
    pub exit: Duration,
    /// For the pipes of a dead process to close.
    pub pipe_drain: Duration,
    /// For an answer to a question.
    pub reply: Duration,
    /// For a process that was started to open the conversation, and for one that has its prompt to begin with it. A
    /// machine that is starting many at once takes its time.
    pub startup: Duration,
}

impl Default for ProcessTimeouts {
    fn default() -> Self {
        Self {
            escalation_step: Duration::from_secs(2),
            exit: Duration::from_secs(5),
            pipe_drain: Duration::from_secs(2),
            reply: Duration::from_secs(30),
            startup: Duration::from_secs(120),
        }
    }
}

/// How much of what passes between us and a process is kept in memory, in bytes. Tests lower them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Longest line of its stdout; a longer one ends the attempt.
    pub line: usize,
    /// Longest line of its stderr; a longer one is recorded in pieces.
    pub stderr_line: usize,
    /// What is recorded of its stderr; the rest is counted.
    pub stderr: usize,
    /// What may wait until it reads; more ends the attempt.
    pub unread_stdin: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            line: MAX_LINE_BYTES,
            stderr_line: 8 * 1024 * 1024,
            stderr: 8 * 1024 * 1024,
            unread_stdin: 16 * 1024 * 1024,
        }
    }
}

/// The steps that end a process, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EscalationStep {
    /// Ask it to stop: a request in the two-way protocol, SIGINT otherwise.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// Nothing more can be done; it is left to the kernel.
    GiveUp,
}

impl EscalationStep {
    /// The next firmer step.
    pub fn next_step(self) -> Self {
        match self {
            Self::Interrupt => Self::Terminate,
            Self::Terminate => Self::Kill,
            Self::Kill | Self::GiveUp => Self::GiveUp,
        }
    }

    /// Signal of the step.
    pub fn signal(self) -> Option<Signal> {
        match self {
            Self::Interrupt => Some(Signal::SIGINT),
            Self::Terminate => Some(Signal::SIGTERM),
            Self::Kill => Some(Signal::SIGKILL),
            Self::GiveUp => None,
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessExit {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
}

/// A running process, leader of a group. Dropping it ends the group and what has left it.
#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    guard: AgentGuard,
    pid: u32,
    exit: Option<ProcessExit>,
    /// Resolves once nothing is found that the process has started.
    cleanup: Option<oneshot::Receiver<()>>,
    /// Pipe to its stdin, if asked for.
    pub stdin: Option<ChildStdin>,
    /// Pipe from its stdout.
    pub stdout: Option<ChildStdout>,
    /// Pipe from its stderr.
    pub stderr: Option<ChildStderr>,
}

impl Child {
    /// Process id, which is also the id of its group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends `signal` to the whole group, and SIGKILL also to what has left it. A group that is gone is no error.
    ///
    /// SIGTERM and SIGKILL are sent by another thread, which looks first for what has left the group.
    pub fn signal(&self, signal: Signal) {
        self.guard.signal(signal);
    }

    /// Waits for its end, then ends whatever it has left behind. May be dropped and called again.
    pub async fn wait(&mut self) -> ProcessExit {
        let ended = match self.exit {
            Some(ended) => ended,
            None => {
                let status = self.process.wait().await;
                let ended = status.map_or_else(
                    |_| ProcessExit::default(),
                    |status| ProcessExit { code: status.code(), signal: status.signal() },
                );
                self.cleanup = self.guard.begin_end();
                *self.exit.insert(ended)
            }
        };
        if let Some(swept) = &mut self.cleanup {
            // A thread that is gone has nothing left to do.
            let _ = swept.await;
            self.cleanup = None;
        }
        ended
    }

    /// Climbs the ladder from `rung` until it has ended. `None` if even SIGKILL did not help.
    pub async fn escalate_from(&mut self, mut rung: EscalationStep, patience: ProcessTimeouts) -> Option<ProcessExit> {
        while let Some(signal) = rung.signal() {
            self.signal(signal);
            if let Ok(ended) = tokio::time::timeout(patience.escalation_step, self.wait()).await {
                return Some(ended);
            }
            rung = rung.next_step();
        }
        None
    }
}

/// Starts a process in a group of its own, with pipes for stdout and stderr. Must be called inside a tokio runtime.
///
/// The kernel's parent-death signal fires when the *thread* that started the child ends, so every child is started
/// by one thread that lives as long as the program.
pub async fn spawn(order: SpawnRequest) -> io::Result<Child> {
    let (reply, answer) = oneshot::channel();
    let job = SpawnJob { request: order, runtime: Handle::current(), reply };
    spawner_queue()?.send(job).map_err(|_| io::Error::other("the thread that starts processes is gone"))?;
    answer.await.map_err(|_| io::Error::other("the thread that starts processes gave no answer"))?
}

/// Ends everything that is still there, and waits for it: up to three seconds. Safe to call at any time, from any thread,
/// more than once.
pub fn kill_all() {
    group_guard::end_all_agents();
}

struct SpawnJob {
    request: SpawnRequest,
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

fn spawner_queue() -> io::Result<mpsc::Sender<SpawnJob>> {
    static SPAWNER: OnceLock<mpsc::Sender<SpawnJob>> = OnceLock::new();
    if let Some(jobs) = SPAWNER.get() {
        return Ok(jobs.clone());
    }
    let (jobs, orders) = mpsc::channel::<SpawnJob>();
    std::thread::Builder::new().name("spawner".into()).spawn(move || {
        for SpawnJob { request: order, runtime, reply } in orders {
            // A runtime that shuts down makes this panic; the thread must survive that, or its children die.
            let started = AssertUnwindSafe(|| with_panic_guard(|| spawn_in_runtime(order, &runtime)));
            let started = catch_unwind(started);
            let started = started.unwrap_or_else(|_| Err(io::Error::other("the runtime is shutting down")));
            // If nobody waits any more, the child comes back and is dropped, which kills it.
            drop(reply.send(started));
        }
    })?;
    // Two first callers may race; the loser's thread ends when its sender is dropped, before it started anything.
    Ok(SPAWNER.get_or_init(|| jobs).clone())
}

fn spawn_in_runtime(order: SpawnRequest, runtime: &Handle) -> io::Result<Child> {
    let _inside = runtime.enter();
    let mark = Uuid::new_v4().to_string();
    let argv = redact_args(&order.args);
    let mut command = Command::new(&order.exe);
    command
        .args(&order.args)
        .current_dir(&order.cwd)
        .env_clear()
        .envs(order.env.into_iter().map(absolute_path_var))
        .env(AGENT_MARK_VAR, &mark)
        .stdin(if order.stdin { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    configure_command(&mut command);
    let mut process = command.spawn()?;
    let pid = process.id().ok_or_else(|| io::Error::other("the process ended while it was started"))?;
    let leader = i32::try_from(pid).map(Pid::from_raw).map_err(io::Error::other)?;
    let agent = AgentGuard::register(leader, mark);
    tracing::debug!(pid, exe = %order.exe.display(), args = %argv, "started");
    let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    Ok(Child { process, guard: agent, pid, exit: None, cleanup: None, stdin, stdout, stderr })
}

/// The arguments for a log: flags as they are, values only of flags that hold none of the user's text.
fn redact_args(args: &[OsString]) -> String {
    let mut words: Vec<String> = Vec::new();
    let (mut is_plain, mut is_text) = (true, false);
    for arg in args {
        let arg = arg.to_string_lossy();
        if is_text {
            words.push("…".to_owned());
            is_text = false;
            continue;
        }
        if arg == "--" {
            words.push("-- …".to_owned());
            break;
        }
        let flag = if arg.starts_with('-') { Some(arg.split('=').next().unwrap_or_default()) } else { None };
        words.push(match flag {
            None if is_plain => arg.escape_debug().to_string(),
            Some(flag) if LOGGED_VALUE_FLAGS.contains(&flag) || flag == arg => arg.escape_debug().to_string(),
            Some(flag) => format!("{}=…", flag.escape_debug()),
            None => "…".to_owned(),
        });
        is_text = flag == Some("--system-prompt") && flag == Some(&*arg);
        is_plain = flag.is_some_and(|flag| LOGGED_VALUE_FLAGS.contains(&flag));
    }
    words.join(" ")
}

/// `PATH` without entries that name a place in whatever directory is current. Other variables are as they are.
fn absolute_path_var((name, value): (OsString, OsString)) -> (OsString, OsString) {
    let value = if name == "PATH" { program_path::absolute_entries(&value) } else { value };
    (name, value)
}

/// Lets the child die with us, where the system can, and gives it the limit of open files of the user's shell.
fn configure_command(command: &mut Command) {
    file_limit::restore_in(command.as_std_mut());
    #[cfg(target_os = "linux")]
    set_parent_death_signal(command);
}

#[cfg(target_os = "linux")]
fn set_parent_death_signal(command: &mut Command) {
    let us = nix::unistd::getpid();
    // The guard ends what ignores SIGTERM.
    let last_signal = if group_guard::is_running() { Signal::SIGTERM } else { Signal::SIGKILL };
    let before_exec = move || {
        nix::sys::prctl::set_pdeathsig(last_signal)?;
        // We may have died before the signal was armed.
        if nix::unistd::getppid() == us { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    #[expect(unsafe_code, reason = "only prctl and getppid run between fork and exec; both are async-signal-safe")]
    // SAFETY: as above; the closure neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(before_exec);
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Instant};

    use super::*;
    use crate::claude::line_reader::LineReader;

    #[test]
    fn logged_arguments_contain_no_user_text() {
        let logged = |args: &[&str]| redact_args(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(logged(&["--version"]), "--version");
        assert_eq!(logged(&["auth", "status"]), "auth …");
        let session =
            ["-p", "--model", "opus", "--system-prompt", "-- secret", "--resume=ab", "--agents={}", "--", "hello"];
        assert_eq!(logged(&session), "-p --model opus --system-prompt … --resume=ab --agents=… -- …");
    }

    const SHORT_TIMEOUTS: ProcessTimeouts = ProcessTimeouts {
        escalation_step: Duration::from_millis(100),
        exit: Duration::from_millis(100),
        pipe_drain: Duration::from_millis(500),
        reply: Duration::from_millis(500),
        startup: Duration::from_secs(10),
    };

    fn shell(script: &str) -> SpawnRequest {
        SpawnRequest {
            exe: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            cwd: std::env::temp_dir(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            stdin: true,
        }
    }

    /// A shell that ignores every mild signal, with a child that does the same; prints the child's process id.
    const IGNORES_SIGNALS_SCRIPT: &str =
        "trap '' INT TERM; sh -c 'trap \"\" INT TERM; echo $$; while :; do sleep 1; done' & wait; wait";

    async fn first_line(child: &mut Child) -> String {
        let mut lines = LineReader::new(child.stdout.take().unwrap());
        lines.fill().await.unwrap();
        String::from_utf8(lines.take_lines().lines().next().unwrap().to_vec()).unwrap()
    }

    /// Running, and not a zombie that nobody has collected yet.
    fn is_alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn wait_until_dead(pid: &str) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if !is_alive(pid) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[tokio::test]
    async fn stubborn_child_and_its_children_are_killed() {
        let mut child = spawn(shell(IGNORES_SIGNALS_SCRIPT)).await.unwrap();
        let grandchild = first_line(&mut child).await;
        assert!(is_alive(&grandchild));
        let ended = child.escalate_from(EscalationStep::Interrupt, SHORT_TIMEOUTS).await.unwrap();
        assert_eq!(ended, ProcessExit { code: None, signal: Some(9) });
        assert!(wait_until_dead(&grandchild));
    }

    #[tokio::test]
    async fn child_that_exits_on_sigterm_is_not_killed() {
        let mut child = spawn(shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")).await.unwrap();
        first_line(&mut child).await;
        assert_eq!(
            child.escalate_from(EscalationStep::Terminate, ProcessTimeouts::default()).await,
            Some(ProcessExit { code: Some(7), signal: None })
        );
    }

    #[tokio::test]
    async fn dropping_a_child_ends_its_group() {
        let mut child = spawn(shell(IGNORES_SIGNALS_SCRIPT)).await.unwrap();
        let grandchild = first_line(&mut child).await;
        let leader = child.pid().to_string();
        drop(child);
        assert!(wait_until_dead(&grandchild) && wait_until_dead(&leader));
    }

    #[tokio::test]
    async fn orphans_of_a_dead_child_are_killed() {
        let mut child = spawn(shell("sh -c 'trap \"\" HUP; echo $$; while :; do sleep 1; done' & read line; exit 3"))
            .await
            .unwrap();
        let grandchild = first_line(&mut child).await;
        drop(child.stdin.take());
        assert_eq!(child.wait().await.code, Some(3));
        assert!(wait_until_dead(&grandchild));
    }

    #[tokio::test]
    async fn child_outlives_the_thread_that_spawned_it() {
        let (asked, answer) = oneshot::channel();
        let runtime = Handle::current();
        std::thread::spawn(move || drop(asked.send(runtime.block_on(spawn(shell("read line; echo $line"))))))
            .join()
            .unwrap();
        let mut child = answer.await.unwrap().unwrap();
        use tokio::io::AsyncWriteExt as _;
        child.stdin.take().unwrap().write_all(b"still here\n").await.unwrap();
        assert_eq!(first_line(&mut child).await, "still here");
    }

    #[tokio::test]
    async fn spawning_a_missing_program_fails() {
        let order = SpawnRequest { exe: "/nonexistent/claude".into(), ..shell("") };
        assert_eq!(spawn(order).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
