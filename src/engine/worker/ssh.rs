//! Workers over SSH: the user's `ssh` starts `ingestdeck worker --stdio` on another machine and carries the messages.
//!
//! A worker whose connection ends is started again while the run lasts. The module must not know the messages.

use std::{fmt, process::Stdio, str::FromStr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::{
    connection::{self, ConnectionEnd, WorkerConnection},
    host::WorkerHost,
    names::plain_name,
    protocol::{Delivery, EngineMessage, LEASE_DURATION, WorkerJoin, WorkerMessage},
    stdio,
};
use ingestdeck_core::{diagnostic::Problem, tape::note::Severity};
use ingestdeck_os::program_path;

/// Capacity of the queues of messages.
const QUEUE_CAPACITY: usize = 64;
/// Wait before the second connection; doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a worker must be connected so that its next loss is not a repeated failure, after which the pauses grow.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Exit codes of `ssh` for a failed connection, and of a shell for a program that is not there.
const SSH_FAILED: i32 = 255;
const PROGRAM_MISSING: i32 = 127;
/// How long `ssh` may take to end after its pipes are closed.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);

/// What `ssh` prints about a first connection that no later one can mend.
const FATAL_COMPLAINTS: [&str; 4] = [
    "Permission denied",
    "Host key verification failed",
    "Name or service not known",
    "nodename nor servname provided",
];

/// Where `ssh` connects to: `ssh://[user@]host[:port][?slots=N][&program=PATH][&claude=PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshWorker {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    slots: Option<u32>,
    /// The program on the other machine.
    program: String,
    /// Claude Code there, unless the worker finds it.
    claude: Option<String>,
}

impl FromStr for SshWorker {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let invalid = |why: &str| {
            Problem::new(format!("invalid worker `{text}`: {why}"))
                .with_help("write ssh://[user@]host[:port], as in ssh://build-2?slots=4; options are slots=N, program=PATH and claude=PATH")
        };
        let rest = text
            .strip_prefix("ssh://")
            .ok_or_else(|| invalid("it does not begin with ssh://"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let place = place.strip_suffix('/').unwrap_or(place);
        let (user, place) = match place.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, place),
        };
        // An IPv6 address is in brackets.
        let (host, port) = match place
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((host, "")) => (host, None),
            Some((host, port)) => (
                host,
                Some(
                    port.strip_prefix(':')
                        .ok_or_else(|| invalid("the port is wrong"))?,
                ),
            ),
            None => place
                .split_once(':')
                .map_or((place, None), |(host, port)| (host, Some(port))),
        };
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with('-')
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-:%".contains(c))
        };
        if !is_name(host) {
            return Err(invalid("the host is wrong"));
        }
        if user.is_some_and(|user| !is_name(user) || user.contains(':')) {
            return Err(invalid("the user is wrong; a password is not supported"));
        }
        let port = port
            .map(|port| port.parse().map_err(|_| invalid("the port is wrong")))
            .transpose()?;
        let (mut slots, mut program, mut claude) = (None, "ingestdeck".to_owned(), None);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("slots", count)) => {
                    let count = count.parse().ok().filter(|count| *count > 0);
                    slots = Some(count.ok_or_else(|| invalid("slots is not a number above 0"))?);
                }
                Some(("program", path)) if is_path(path) => path.clone_into(&mut program),
                Some(("claude", path)) if is_path(path) => claude = Some(path.to_owned()),
                Some((name @ ("program" | "claude"), _)) => {
                    return Err(invalid(&format!("{name} is not a plain path")));
                }
                _ => return Err(invalid("it knows only slots, program and claude")),
            }
        }
        Ok(Self {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
            slots,
            program,
            claude,
        })
    }
}

/// True for a path that a shell passes on unchanged.
fn is_path(path: &str) -> bool {
    // The shell replaces a leading `~`.
    let path = path.strip_prefix("~/").unwrap_or(path);
    !path.is_empty()
        && !path.starts_with('-')
        && path
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-+/".contains(c))
}

impl fmt::Display for SshWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ssh://")?;
        self.user.iter().try_for_each(|user| write!(f, "{user}@"))?;
        f.write_str(&self.host)?;
        self.port.iter().try_for_each(|port| write!(f, ":{port}"))
    }
}

impl SshWorker {
    /// The arguments of `ssh`.
    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = [
            "-T",
            "-o",
            "BatchMode=yes",
            "-o",
            "ServerAliveInterval=10",
            "-o",
            "ServerAliveCountMax=3",
        ]
        .map(str::to_owned)
        .into();
        if let Some(port) = self.port {
            arguments.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(user) = &self.user {
            arguments.extend(["-l".to_owned(), user.clone()]);
        }
        arguments.extend(["--".to_owned(), self.host.clone(), self.program.clone()]);
        arguments.extend(["worker".to_owned(), "--stdio".to_owned()]);
        if let Some(slots) = self.slots {
            arguments.extend(["--slots".to_owned(), slots.to_string()]);
        }
        if let Some(claude) = &self.claude {
            arguments.extend(["--claude-bin".to_owned(), claude.clone()]);
        }
        arguments
    }

    /// Starts the worker, and starts it again whenever its connection ends, while the run lasts. Gives up if the first
    /// connection is refused for a reason that remains, or if the worker is banned.
    pub(crate) async fn keep_connected(self, host: Arc<WorkerHost>) {
        let (mut has_ever_joined, mut pause) = (false, FIRST_PAUSE);
        // Each reason is reported once.
        let mut last_reason = None;
        while !host.pool.has_ended() {
            let began = tokio::time::Instant::now();
            let (end, has_joined) = self.connect(&host).await;
            has_ever_joined |= has_joined;
            let is_given_up = match &end {
                ConnectionEnd::Refused(_) => {
                    !has_ever_joined || host.pool.is_banned(&plain_name(&self.host))
                }
                ConnectionEnd::Lost(reason) => {
                    !has_ever_joined && FATAL_COMPLAINTS.iter().any(|fatal| reason.contains(fatal))
                }
                ConnectionEnd::Left(_) => false,
            };
            let (ConnectionEnd::Left(reason)
            | ConnectionEnd::Lost(reason)
            | ConnectionEnd::Refused(reason)) = end;
            if is_given_up {
                host.pool
                    .warn(Severity::Error, format!("{self}: {reason}; it is given up"));
                break;
            }
            // The pool has recorded why a worker that had joined was lost.
            if !has_joined && last_reason.as_ref() != Some(&reason) {
                host.pool.warn(
                    Severity::Warning,
                    format!("{self}: {reason}; it is tried again while the run lasts"),
                );
                last_reason = Some(reason);
            }
            if has_joined && began.elapsed() >= STABLE_AFTER {
                (pause, last_reason) = (FIRST_PAUSE, None);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = host.pool.ended() => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        host.pool.remove_transport();
    }

    /// One connection. The second part is whether the worker joined.
    async fn connect(&self, host: &WorkerHost) -> (ConnectionEnd, bool) {
        let (process, incoming, outgoing, reading) = match self.start() {
            Ok(started) => started,
            Err(end) => return (end, false),
        };
        let (name, reading) = (Some(self.host.clone()), Some(reading));
        let connection = WorkerConnection {
            name,
            incoming,
            outgoing,
            patience: LEASE_DURATION,
            is_online: None,
            reading,
            returns: true,
        };
        let (end, has_joined) = host.serve(connection).await;
        (process.explain(self, end, has_joined).await, has_joined)
    }

    /// Connects once, and returns the description that the worker gives of itself.
    ///
    /// # Errors
    /// If it cannot be started or may not work for a run of this program.
    pub async fn probe(&self) -> Result<WorkerJoin, Problem> {
        let (process, mut incoming, outgoing, reading) =
            self.start().map_err(ConnectionEnd::into_problem)?;
        let admitted = connection::read_join(&mut incoming).await;
        // It ends with its connection, too.
        let _ = outgoing.send(EngineMessage::End).await;
        drop((incoming, outgoing));
        match admitted {
            Ok(join) => Ok(join),
            Err(end) => {
                let end = end.with_reason(Some(reading)).await;
                Err(process.explain(self, end, false).await.into_problem())
            }
        }
    }

    /// Starts `ssh` with pipes.
    fn start(&self) -> Result<StartedSsh, ConnectionEnd> {
        let Some(ssh) = program_path::find("ssh") else {
            return Err(ConnectionEnd::Refused(
                "ssh is not on the PATH: install an SSH client".to_owned(),
            ));
        };
        let mut command = Command::new(ssh);
        command
            .args(self.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.kill_on_drop(true).spawn();
        let mut child =
            child.map_err(|error| ConnectionEnd::Lost(format!("cannot start ssh: {error}")))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(ConnectionEnd::Lost(
                "ssh was started without pipes".to_owned(),
            ));
        };
        let (to_host, incoming) = mpsc::channel(QUEUE_CAPACITY);
        let (outgoing, mut to_worker) = mpsc::channel(QUEUE_CAPACITY);
        let reading = tokio::spawn(async move { stdio::read_messages(stdout, &to_host).await });
        let writing =
            tokio::spawn(async move { stdio::write_messages(stdin, &mut to_worker).await });
        let complaint = tokio::spawn(complaint(stderr));
        Ok((
            SshProcess {
                child,
                writing,
                complaint,
            },
            incoming,
            outgoing,
            reading,
        ))
    }
}

/// A started `ssh`, the queues of its messages, and the task that reads them.
type StartedSsh = (
    SshProcess,
    mpsc::Receiver<Delivery<WorkerMessage>>,
    mpsc::Sender<EngineMessage>,
    JoinHandle<stdio::MessagesEnd>,
);

/// A running `ssh`, killed on drop.
struct SshProcess {
    child: Child,
    writing: JoinHandle<std::io::Result<()>>,
    /// What it prints to its stderr.
    complaint: JoinHandle<String>,
}

impl SshProcess {
    /// Waits for its end, which explains the `end` of the connection.
    async fn explain(
        mut self,
        worker: &SshWorker,
        end: ConnectionEnd,
        has_joined: bool,
    ) -> ConnectionEnd {
        // It ends when the queue of messages is closed.
        let _ = timeout(EXIT_PATIENCE, self.writing).await;
        let exit = timeout(EXIT_PATIENCE, self.child.wait()).await;
        let code = exit.ok().and_then(Result::ok).and_then(|exit| exit.code());
        let ConnectionEnd::Lost(reason) = end else {
            return end;
        };
        if code.is_none() {
            return ConnectionEnd::Lost(reason);
        }
        let complaint = timeout(EXIT_PATIENCE, self.complaint)
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default();
        let complaint = complaint.replace("--claude-bin", "?claude=PATH in the URL of the worker");
        match code {
            Some(PROGRAM_MISSING) => {
                let program = &worker.program;
                let why = "is not installed there, or not on the PATH of its shell";
                ConnectionEnd::Refused(format!(
                    "{program} {why}: install it, or name it with ?program=PATH"
                ))
            }
            Some(SSH_FAILED) if !complaint.is_empty() => {
                ConnectionEnd::Lost(format!("cannot connect: {complaint}"))
            }
            _ if !has_joined && !complaint.is_empty() => {
                ConnectionEnd::Lost(format!("it did not start: {complaint}"))
            }
            _ => ConnectionEnd::Lost(reason),
        }
    }
}

/// The error that ingestdeck prints to `stderr`, else the last line that is not empty.
async fn complaint(stderr: impl tokio::io::AsyncRead + Unpin) -> String {
    const MOST_CHARS: usize = 300;
    let mut lines = BufReader::new(stderr).lines();
    let (mut last, mut error) = (String::new(), None::<String>);
    while let Ok(Some(line)) = lines.next_line().await {
        let line: String = line
            .trim()
            .chars()
            .filter(|c| !c.is_control())
            .take(MOST_CHARS)
            .collect();
        if let Some(text) = line.strip_prefix("error: ") {
            error.get_or_insert_with(|| text.to_owned());
        } else if let (Some(error), Some(help)) = (&mut error, line.strip_prefix("help: ")) {
            error.push_str("; ");
            error.push_str(help);
        }
        if !line.is_empty() {
            last = line;
        }
    }
    error.unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_address_has_user_port_and_slots() {
        let worker: SshWorker = "ssh://ann@build-2:2222?slots=4".parse().unwrap();
        assert_eq!(worker.to_string(), "ssh://ann@build-2:2222");
        let arguments = worker.arguments().join(" ");
        assert!(
            arguments.ends_with("-p 2222 -l ann -- build-2 ingestdeck worker --stdio --slots 4"),
            "{arguments}"
        );
        let plain: SshWorker =
            "ssh://[fe80::1]/?program=/opt/bin/ingestdeck&claude=~/.local/bin/claude"
                .parse()
                .unwrap();
        let arguments = plain.arguments().join(" ");
        assert!(
            arguments.ends_with(
                "-- fe80::1 /opt/bin/ingestdeck worker --stdio --claude-bin ~/.local/bin/claude"
            ),
            "{arguments}"
        );
    }

    #[test]
    fn address_that_could_be_an_option_or_a_command_is_refused() {
        for text in [
            "build-2",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://a b",
            "ssh://ann:secret@host",
            "ssh://-l@host",
            "ssh://host:port",
            "ssh://host?slots=0",
            "ssh://host?slots=many",
            "ssh://host?cores=2",
            "ssh://host?program=$(id)",
            "ssh://host?claude=-x",
            "ssh://host?claude=~ann/claude;id",
            "ssh://host;id",
        ] {
            let error = text.parse::<SshWorker>().unwrap_err();
            assert!(
                error.to_string().starts_with("invalid worker"),
                "{text}: {error}"
            );
        }
    }
}
