//! Child processes in separate process groups, and how they end. No child and no descendant outlives this program.
//!
//! Every child has a mark in its environment, which finds processes that leave its group on Linux ([`group_guard`]).
//! Ending a child means SIGTERM to the group, so that the child can end its descendants, and SIGKILL to the remaining
//! processes two seconds later. Dropping a [`Child`] starts this; [`kill_all`] does it for all children and waits, from
//! a panic hook or a signal handler; the guard does it when this program is killed, in which case the kernel sends the
//! first signal on Linux. The module must not depend on the child's output.

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

use super::{caught_panics::with_caught_panics, line_reader::MAX_LINE_BYTES};
use ingestdeck_os::{
    group_guard::{self, AGENT_MARK_VAR, AgentGuard},
    open_file_limit, program_path,
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

#[derive(Clone, Debug)]
pub struct SpawnRequest {
    pub exe: PathBuf,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    /// Connect stdin to a pipe; otherwise stdin is empty.
    pub stdin: bool,
}

/// Timeouts of a process. Tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTimeouts {
    /// Between two escalation steps.
    pub escalation_step: Duration,
    /// For a process to exit by itself once it has nothing to do.
    pub exit: Duration,
    /// For the pipes of a dead process to close.
    pub pipe_drain: Duration,
    /// For the reply to a request.
    pub reply: Duration,
    /// For a started process to open the conversation, and then to begin its prompt. A machine that starts many
    /// processes concurrently is slow.
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

/// Memory limits for the data between us and a process, in bytes. Tests lower them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum length of a stdout line; a longer one ends the attempt.
    pub line: usize,
    /// Maximum length of a stderr line; a longer one is recorded in pieces.
    pub stderr_line: usize,
    /// Maximum size of the recorded stderr; the rest is counted.
    pub stderr: usize,
    /// Maximum size of unread stdin; more ends the attempt.
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

/// Escalation steps that end a process, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EscalationStep {
    /// Ask it to stop: a request in the two-way protocol, SIGINT otherwise.
    Interrupt,
    Terminate,
    Kill,
    /// Give up waiting for the process.
    GiveUp,
}

impl EscalationStep {
    /// The next firmer step.
    pub(crate) fn next_step(self) -> Self {
        match self {
            Self::Interrupt => Self::Terminate,
            Self::Terminate => Self::Kill,
            Self::Kill | Self::GiveUp => Self::GiveUp,
        }
    }

    /// Signal of the step.
    pub(crate) fn signal(self) -> Option<Signal> {
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
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
}

/// A running process, leader of a group. Dropping it ends the group and the descendants that have left it.
#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    guard: AgentGuard,
    pid: u32,
    exit: Option<ProcessExit>,
    /// Resolves once no descendants of the process are found.
    cleanup: Option<oneshot::Receiver<()>>,
    /// Pipe to its stdin, if requested.
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
}

impl Child {
    /// Process id, which is also the id of its group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends `signal` to the whole group, and SIGKILL also to descendants that have left it. A missing group is not an
    /// error.
    ///
    /// Another thread sends SIGTERM and SIGKILL; it first searches for descendants that have left the group.
    pub(crate) fn signal(&self, signal: Signal) {
        self.guard.signal(signal);
    }

    /// Waits for the exit, then ends the remaining descendants. Cancel-safe.
    pub async fn wait(&mut self) -> ProcessExit {
        let ended = match self.exit {
            Some(ended) => ended,
            None => {
                let status = self.process.wait().await;
                let ended = status.map_or_else(
                    |_| ProcessExit::default(),
                    |status| ProcessExit {
                        code: status.code(),
                        signal: status.signal(),
                    },
                );
                self.cleanup = self.guard.begin_end();
                *self.exit.insert(ended)
            }
        };
        if let Some(swept) = &mut self.cleanup {
            // If the thread has ended, its work is done.
            let _ = swept.await;
            self.cleanup = None;
        }
        ended
    }

    /// Performs the escalation steps from `rung` on until the process has ended. Returns `None` if even SIGKILL had no
    /// effect.
    pub(crate) async fn escalate_from(
        &mut self,
        mut step: EscalationStep,
        timeouts: ProcessTimeouts,
    ) -> Option<ProcessExit> {
        while let Some(signal) = step.signal() {
            self.signal(signal);
            if let Ok(ended) = tokio::time::timeout(timeouts.escalation_step, self.wait()).await {
                return Some(ended);
            }
            step = step.next_step();
        }
        None
    }
}

/// Starts a process in a separate group, with pipes for stdout and stderr. Must be called inside a tokio runtime.
///
/// The kernel sends the parent-death signal when the *thread* that started the child ends, so one thread that lives as
/// long as the program starts all children.
pub async fn spawn(order: SpawnRequest) -> io::Result<Child> {
    let (reply, answer) = oneshot::channel();
    let job = SpawnJob {
        request: order,
        runtime: Handle::current(),
        reply,
    };
    spawner_queue()?
        .send(job)
        .map_err(|_| io::Error::other("the thread that starts processes is gone"))?;
    answer
        .await
        .map_err(|_| io::Error::other("the thread that starts processes did not answer"))?
}

/// Ends all remaining children and waits for them, for up to three seconds. Safe to call at any time, from any thread,
/// repeatedly.
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
    std::thread::Builder::new()
        .name("spawner".into())
        .spawn(move || {
            for SpawnJob {
                request: order,
                runtime,
                reply,
            } in orders
            {
                // This panics while the runtime shuts down; the thread must survive, or its children die.
                let started =
                    AssertUnwindSafe(|| with_caught_panics(|| spawn_in_runtime(order, &runtime)));
                let started = catch_unwind(started);
                let started = started
                    .unwrap_or_else(|_| Err(io::Error::other("the runtime is shutting down")));
                // If the caller no longer waits, the child is returned and dropped, which kills it.
                drop(reply.send(started));
            }
        })?;
    // Two first callers may race; the loser's thread ends when its sender is dropped, before it starts anything.
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
        .stdin(if order.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    configure_command(&mut command);
    let mut process = command.spawn()?;
    let pid = process
        .id()
        .ok_or_else(|| io::Error::other("the process ended while it was started"))?;
    let leader = i32::try_from(pid)
        .map(Pid::from_raw)
        .map_err(io::Error::other)?;
    let agent = AgentGuard::register(leader, mark);
    tracing::debug!(pid, exe = %order.exe.display(), args = %argv, "started");
    let (stdin, stdout, stderr) = (
        process.stdin.take(),
        process.stdout.take(),
        process.stderr.take(),
    );
    Ok(Child {
        process,
        guard: agent,
        pid,
        exit: None,
        cleanup: None,
        stdin,
        stdout,
        stderr,
    })
}

/// Formats arguments for a log: flags unchanged, values only of flags without user text.
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
        let flag = if arg.starts_with('-') {
            Some(arg.split('=').next().unwrap_or_default())
        } else {
            None
        };
        words.push(match flag {
            None if is_plain => arg.escape_debug().to_string(),
            Some(flag) if LOGGED_VALUE_FLAGS.contains(&flag) || flag == arg => {
                arg.escape_debug().to_string()
            }
            Some(flag) => format!("{}=…", flag.escape_debug()),
            None => "…".to_owned(),
        });
        is_text = flag == Some("--system-prompt") && flag == Some(&*arg);
        is_plain = flag.is_some_and(|flag| LOGGED_VALUE_FLAGS.contains(&flag));
    }
    words.join(" ")
}

/// Removes entries from `PATH` that are relative to the current directory. Other variables are unchanged.
fn absolute_path_var((name, value): (OsString, OsString)) -> (OsString, OsString) {
    let value = if name == "PATH" {
        program_path::absolute_entries(&value)
    } else {
        value
    };
    (name, value)
}

/// Ends the child with us, if the system supports it, and sets the limit of open files of the user's shell.
fn configure_command(command: &mut Command) {
    let command = command.as_std_mut();
    open_file_limit::restore_limit_in(command);
    // The guard ends processes that ignore SIGTERM.
    let signal = if group_guard::is_running() {
        Signal::SIGTERM
    } else {
        Signal::SIGKILL
    };
    group_guard::set_parent_death_signal(command, signal);
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Instant};

    use super::*;
    use crate::line_reader::LineReader;

    #[test]
    fn logged_arguments_contain_no_user_text() {
        let logged =
            |args: &[&str]| redact_args(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(logged(&["--version"]), "--version");
        assert_eq!(logged(&["auth", "status"]), "auth …");
        let session = [
            "-p",
            "--model",
            "opus",
            "--system-prompt",
            "-- secret",
            "--resume=ab",
            "--agents={}",
            "--",
            "hello",
        ];
        assert_eq!(
            logged(&session),
            "-p --model opus --system-prompt … --resume=ab --agents=… -- …"
        );
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
    const IGNORES_SIGNALS_SCRIPT: &str = "trap '' INT TERM; sh -c 'trap \"\" INT TERM; echo $$; while :; do sleep 1; done' & wait; wait";

    async fn first_line(child: &mut Child) -> String {
        let mut lines = LineReader::with_limit(child.stdout.take().unwrap(), MAX_LINE_BYTES);
        lines.fill().await.unwrap();
        String::from_utf8(lines.take_lines().lines().next().unwrap().to_vec()).unwrap()
    }

    /// True for a running process, false for a zombie.
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
            std::thread::park_timeout(Duration::from_millis(5));
        }
        false
    }

    #[tokio::test]
    async fn stubborn_child_and_its_children_are_killed() {
        let mut child = spawn(shell(IGNORES_SIGNALS_SCRIPT)).await.unwrap();
        let grandchild = first_line(&mut child).await;
        assert!(is_alive(&grandchild));
        let ended = child
            .escalate_from(EscalationStep::Interrupt, SHORT_TIMEOUTS)
            .await
            .unwrap();
        assert_eq!(
            ended,
            ProcessExit {
                code: None,
                signal: Some(9)
            }
        );
        assert!(wait_until_dead(&grandchild));
    }

    #[tokio::test]
    async fn child_that_exits_on_sigterm_is_not_killed() {
        let mut child = spawn(shell(
            "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done",
        ))
        .await
        .unwrap();
        first_line(&mut child).await;
        assert_eq!(
            child
                .escalate_from(EscalationStep::Terminate, ProcessTimeouts::default())
                .await,
            Some(ProcessExit {
                code: Some(7),
                signal: None
            })
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
        let mut child = spawn(shell(
            "sh -c 'trap \"\" HUP; echo $$; while :; do sleep 1; done' & read line; exit 3",
        ))
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
        std::thread::spawn(move || {
            drop(asked.send(runtime.block_on(spawn(shell("read line; echo $line")))))
        })
        .join()
        .unwrap();
        let mut child = answer.await.unwrap().unwrap();
        use tokio::io::AsyncWriteExt as _;
        child
            .stdin
            .take()
            .unwrap()
            .write_all(b"still here\n")
            .await
            .unwrap();
        assert_eq!(first_line(&mut child).await, "still here");
    }

    #[tokio::test]
    async fn spawning_a_missing_program_fails() {
        let order = SpawnRequest {
            exe: ingestdeck_test_support::missing("claude").into(),
            ..shell("")
        };
        assert_eq!(
            spawn(order).await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
