//! Workers over SSH: the user's `ssh` starts `ingestdeck worker --session` on another machine, and forwards a port there to
//! the NATS server of this run.
//!
//! A session that ends is started again while the run lasts. Its worker lives on, finds the server through the next one,
//! and misses nothing. The module must not know the messages.

#![expect(
    clippy::disallowed_methods,
    reason = "the program that the user installs"
)]

use std::{ffi::OsString, fmt, io, path::Path, str::FromStr, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

use super::{
    connection::{self, ConnectionEnd},
    host::WorkerHost,
    names::plain_name,
    protocol::WorkerJoin,
};
use ingestdeck_agent::process::{self, Child, SpawnRequest};
use ingestdeck_core::{diagnostic::Problem, tape::note::Severity};
use ingestdeck_os::program_path;

/// Wait before the second session; doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How long a session must last so that its end is not a repeated failure, after which the pauses grow.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Exit codes of `ssh` for a failed connection, of a shell for a program that is not there, and of a worker that an engine
/// refuses, or of another version that does not know its arguments.
const SSH_FAILED: i32 = 255;
const PROGRAM_MISSING: i32 = 127;
const REFUSED: i32 = 2;
/// What a program prints about arguments that it does not know.
const UNKNOWN_ARGUMENT: &str = "unexpected argument";
/// How long `ssh` may take to end after its stdin is closed.
const EXIT_PATIENCE: Duration = Duration::from_secs(4);
/// How long a worker may take to describe itself.
const DESCRIPTION_TIMEOUT: Duration = Duration::from_secs(45);
/// Longest description of a worker.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 10;
/// Longest line of its complaints that is read.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Where programs of users are, which the `PATH` of a session often lacks.
const USUAL_PLACES: &str = "$HOME/.local/bin:$HOME/.cargo/bin:/usr/local/bin";

/// What `ssh` prints about a first connection that no later one can mend.
const FATAL_COMPLAINTS: [&str; 4] = [
    "Permission denied",
    "Host key verification failed",
    "Name or service not known",
    "nodename nor servname provided",
];
/// What `ssh` prints if the other machine does not open the port.
const NO_FORWARDING: &str = "remote port forwarding failed";

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

/// The way from another machine to the NATS server of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForwardedPort {
    /// Port on the other machine.
    pub remote: u16,
    /// Port of the server on this machine.
    pub local: u16,
}

/// What a session of a worker needs.
#[derive(Clone)]
pub(super) struct SessionTerms {
    /// Its name at the server.
    pub name: String,
    pub pool: String,
    /// The seed of its login.
    pub seed: String,
    /// Port of the server on this machine.
    pub port: u16,
    /// A number for ports on the other machine that differs between servers and workers.
    pub port_seed: u64,
}

impl SshWorker {
    /// The machine, as the user names it.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The arguments of `ssh` for a command of the other machine's shell.
    fn arguments(&self, forwarded: Option<&ForwardedPort>, command: String) -> Vec<OsString> {
        // A shared connection would keep the port after the session.
        let options = [
            "BatchMode=yes",
            "ControlMaster=no",
            "ControlPath=none",
            "ExitOnForwardFailure=yes",
            "ServerAliveInterval=10",
            // The connection survives a network that is away for less than 90 s.
            "ServerAliveCountMax=9",
        ];
        let mut arguments = vec!["-T".to_owned()];
        for option in options {
            arguments.extend(["-o".to_owned(), option.to_owned()]);
        }
        if let Some(ForwardedPort { remote, local }) = forwarded {
            let forward = format!("127.0.0.1:{remote}:127.0.0.1:{local}");
            arguments.extend(["-R".to_owned(), forward]);
        }
        if let Some(port) = self.port {
            arguments.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(user) = &self.user {
            arguments.extend(["-l".to_owned(), user.clone()]);
        }
        arguments.extend(["--".to_owned(), self.host.clone(), command]);
        arguments.into_iter().map(OsString::from).collect()
    }

    /// The command that starts the program on the other machine with `more` arguments, which a shell does not change.
    fn program_command(&self, more: &str) -> String {
        let mut command = format!(
            "sh -c 'PATH=\"$PATH:{USUAL_PLACES}\"; exec {} worker {more}",
            self.program
        );
        if let Some(slots) = self.slots {
            command.push_str(&format!(" --slots {slots}"));
        }
        if let Some(claude) = &self.claude {
            command.push_str(&format!(" --claude-bin {claude}"));
        }
        command + "'"
    }

    /// Keeps a session of the worker while the run lasts. Gives up if the first connection is refused for a reason that
    /// remains, or if the worker is banned.
    pub(super) async fn keep_connected(self, host: Arc<WorkerHost>, terms: SessionTerms) {
        let mut pause = FIRST_PAUSE;
        // The number of the port: another one is tried if that is not free.
        let mut tried_ports = 0;
        // Each reason is reported once.
        let mut last_reason = None;
        let machine = plain_name(&self.host);
        while !host.pool.has_ended() {
            let began = tokio::time::Instant::now();
            let end = self.hold_session(&host, &terms, tried_ports).await;
            let (has_joined, has_ever_joined) = host.pool.presence(&terms.name);
            let remains = match &end {
                ConnectionEnd::Refused(_) => true,
                ConnectionEnd::Lost(reason) => {
                    FATAL_COMPLAINTS.iter().any(|fatal| reason.contains(fatal))
                }
                ConnectionEnd::Left(_) => false,
            };
            let is_given_up = remains && !has_ever_joined || host.pool.is_banned(&machine);
            let (ConnectionEnd::Left(reason)
            | ConnectionEnd::Lost(reason)
            | ConnectionEnd::Refused(reason)) = end;
            if host.pool.has_ended() {
                return;
            }
            if is_given_up {
                host.pool
                    .warn(Severity::Error, format!("{self}: {reason}; it is given up"));
                break;
            }
            // A worker that has joined looks for the server at this port, which a stale session may hold for a while.
            if reason.contains(NO_FORWARDING) && !has_ever_joined {
                tried_ports += 1;
            }
            // The pool records why a worker that had joined is lost.
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

    /// One session, until it or the run ends.
    async fn hold_session(
        &self,
        host: &WorkerHost,
        terms: &SessionTerms,
        tried_ports: u64,
    ) -> ConnectionEnd {
        let SessionTerms {
            name, pool, seed, ..
        } = terms;
        let forwarded = terms.forwarded_port(tried_ports);
        let port = forwarded.remote;
        let command = self.program_command(&format!(
            "--session --nats nats://127.0.0.1:{port} --pool={pool} --name={name}"
        ));
        let started = self.start(self.arguments(Some(&forwarded), command)).await;
        let mut session = match started {
            Ok(session) => session,
            Err(end) => return end,
        };
        // A session that ends at the beginning has another reason.
        let _ = session.send(format!("{seed}\n").as_bytes()).await;
        tokio::select! {
            code = session.wait() => session.explain(self, code).await,
            () = host.pool.ended() => {
                // The worker ends with its stdin, once it has heard of the end of the run.
                session.close_stdin();
                let _ = timeout(EXIT_PATIENCE, session.wait()).await;
                ConnectionEnd::Left("the run is over".to_owned())
            }
        }
    }

    /// Connects once, and returns the description that the worker gives of itself.
    ///
    /// # Errors
    /// If it cannot be started or may not work for a run of this program.
    pub async fn probe(&self) -> Result<WorkerJoin, Problem> {
        // The port is opened and not used.
        let forwarded = ForwardedPort {
            remote: port_of(u64::from(std::process::id())),
            local: 9,
        };
        let command = self.program_command("--describe");
        let output = self.output(Some(&forwarded), command, None).await;
        let output = output.map_err(ConnectionEnd::into_problem)?;
        let join: WorkerJoin = serde_json::from_str(output.trim()).map_err(|_| {
            let start: String = output.chars().take(200).collect();
            Problem::new(format!("it sent `{}`", start.trim().escape_debug()))
                .with_help("its shell must print nothing when it is not interactive")
        })?;
        match connection::refusal(&join) {
            None => Ok(join),
            Some(reason) => Err(Problem::new(reason)),
        }
    }

    /// Copies this program to `~/.local/bin` of the other machine, and returns its description there.
    ///
    /// # Errors
    /// If it cannot be copied, or does not run there.
    pub async fn install(&self, program: &Path) -> Result<(Self, WorkerJoin), Problem> {
        let read = tokio::fs::read(program).await;
        let content = read
            .map_err(|error| Problem::new(format!("cannot read {}: {error}", program.display())))?;
        let machine = self
            .output(None, "uname -sm".to_owned(), None)
            .await
            .map_err(ConnectionEnd::into_problem)?;
        let own = nix::sys::utsname::uname().map_err(|error| Problem::new(error.to_string()))?;
        let own = format!(
            "{} {}",
            own.sysname().to_string_lossy(),
            own.machine().to_string_lossy()
        );
        if machine.trim() != own {
            let there: String = machine.trim().chars().take(80).collect();
            return Err(Problem::new(format!(
                "this program is for {own}, and the machine is {}",
                there.escape_debug()
            ))
            .with_help("install a package for it there"));
        }
        // An interrupted copy is never started.
        let copy = "sh -c 'umask 022; cd && mkdir -p .local/bin && cat > .local/bin/.ingestdeck-new \
                    && chmod 755 .local/bin/.ingestdeck-new && mv .local/bin/.ingestdeck-new .local/bin/ingestdeck'";
        let copied = self.output(None, copy.to_owned(), Some(content)).await;
        copied.map_err(ConnectionEnd::into_problem)?;
        let installed = Self {
            program: "~/.local/bin/ingestdeck".to_owned(),
            ..self.clone()
        };
        let join = installed.probe().await?;
        Ok((installed, join))
    }

    /// What a command prints on the other machine, if it succeeds.
    async fn output(
        &self,
        forwarded: Option<&ForwardedPort>,
        command: String,
        input: Option<Vec<u8>>,
    ) -> Result<String, ConnectionEnd> {
        let mut session = self.start(self.arguments(forwarded, command)).await?;
        let stdout = session.child.stdout.take();
        let reading = async {
            let mut output = Vec::new();
            if let Some(stdout) = stdout {
                let mut bounded = stdout.take(MAX_DESCRIPTION_BYTES);
                bounded.read_to_end(&mut output).await?;
            }
            io::Result::Ok(output)
        };
        let has_input = input.is_some();
        let writing = async {
            if let Some(input) = input {
                // A command that fails explains it itself.
                let _ = session.send(&input).await;
            }
            session.close_stdin();
            session.wait().await
        };
        let both = async { tokio::join!(reading, writing) };
        let (output, code) = match has_input {
            // The time depends on the network.
            true => both.await,
            false => timeout(DESCRIPTION_TIMEOUT, both)
                .await
                .map_err(|_| ConnectionEnd::Lost("it did not answer in time".to_owned()))?,
        };
        if code != Some(0) {
            return Err(session.explain(self, code).await);
        }
        let output = output.map_err(|error| ConnectionEnd::Lost(error.to_string()))?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Starts `ssh` with pipes.
    async fn start(&self, args: Vec<OsString>) -> Result<SshSession, ConnectionEnd> {
        let Some(exe) = program_path::find("ssh") else {
            return Err(ConnectionEnd::Refused(
                "ssh is not on the PATH: install an SSH client".to_owned(),
            ));
        };
        let request = SpawnRequest {
            exe,
            args,
            cwd: std::env::current_dir().unwrap_or_else(|_| "/".into()),
            env: std::env::vars_os().collect(),
            stdin: true,
        };
        let started = process::spawn(request).await;
        let mut child =
            started.map_err(|error| ConnectionEnd::Lost(format!("cannot start ssh: {error}")))?;
        let complaint = child.stderr.take().map(|of| tokio::spawn(complaint(of)));
        Ok(SshSession { child, complaint })
    }
}

impl SessionTerms {
    /// The port for the worker. The next session of it uses the same one, where its worker looks for the server.
    fn forwarded_port(&self, tried: u64) -> ForwardedPort {
        ForwardedPort {
            remote: port_of(self.port_seed.wrapping_add(tried)),
            local: self.port,
        }
    }
}

/// A port that is rarely in use, from any number.
pub(super) fn port_of(number: u64) -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u64 = 12_000;
    // Numbers that follow each other get ports that are far apart.
    let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
    FIRST + u16::try_from(number % COUNT).unwrap_or_default()
}

/// A running `ssh`, ended on drop.
struct SshSession {
    child: Child,
    /// What it prints to its stderr.
    complaint: Option<JoinHandle<String>>,
}

impl SshSession {
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.child.stdin {
            Some(stdin) => {
                stdin.write_all(bytes).await?;
                stdin.flush().await
            }
            None => Ok(()),
        }
    }

    fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end. Returns the exit code.
    async fn wait(&mut self) -> Option<i32> {
        self.child.wait().await.code
    }

    /// Why the session ended, from its exit code.
    async fn explain(mut self, worker: &SshWorker, code: Option<i32>) -> ConnectionEnd {
        let complaint = match self.complaint.take() {
            Some(reading) => timeout(EXIT_PATIENCE, reading).await.ok(),
            None => None,
        };
        let complaint = complaint.and_then(Result::ok).unwrap_or_default();
        let complaint = complaint.replace("--claude-bin", "?claude=PATH in the URL of the worker");
        let program = &worker.program;
        match code {
            Some(PROGRAM_MISSING) => ConnectionEnd::Refused(format!(
                "{program} is not installed there, or not on the PATH of its shell: `ingestdeck worker install {worker}` \
                 installs it, and ?program=PATH names it"
            )),
            Some(REFUSED) if !complaint.is_empty() && !complaint.contains(UNKNOWN_ARGUMENT) => {
                ConnectionEnd::Refused(complaint)
            }
            Some(REFUSED) => ConnectionEnd::Refused(format!(
                "{program} is another version there: `ingestdeck worker install {worker}` installs the same version there"
            )),
            Some(SSH_FAILED) if complaint.contains(NO_FORWARDING) => ConnectionEnd::Lost(format!(
                "{NO_FORWARDING}: its sshd must permit it (AllowTcpForwarding), and an earlier session may hold the port for some minutes"
            )),
            Some(SSH_FAILED) if !complaint.is_empty() => {
                ConnectionEnd::Lost(format!("cannot connect: {complaint}"))
            }
            Some(0) => ConnectionEnd::Left("it ended".to_owned()),
            _ if !complaint.is_empty() => {
                ConnectionEnd::Lost(format!("it did not start: {complaint}"))
            }
            _ => ConnectionEnd::Lost("its session ended".to_owned()),
        }
    }
}

/// The error that ingestdeck prints to `stderr`, else the last line that is not empty.
pub(super) async fn complaint(stderr: impl AsyncRead + Unpin) -> String {
    const MOST_CHARS: usize = 300;
    let codec = AnyDelimiterCodec::new_with_max_length(b"\n".into(), vec![], MAX_LINE_BYTES);
    let mut lines = FramedRead::new(stderr, codec);
    let (mut last, mut error) = (String::new(), None::<String>);
    while let Some(line) = lines.next().await {
        let line = match line {
            Ok(line) => line,
            Err(AnyDelimiterCodecError::MaxChunkLengthExceeded) => continue,
            Err(AnyDelimiterCodecError::Io(_)) => break,
        };
        let line: String = String::from_utf8_lossy(&line)
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
        // What a worker reports while it works does not explain its end.
        if !line.is_empty() && !line.starts_with("ingestdeck: ") {
            last = line;
        }
    }
    error.unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn worker_address_has_user_port_and_slots() {
        let worker: SshWorker = "ssh://ann@build-2:2222?slots=4".parse().unwrap();
        assert_eq!(worker.to_string(), "ssh://ann@build-2:2222");
        let joined = |worker: &SshWorker| {
            let forwarded = ForwardedPort {
                remote: 20_001,
                local: 4222,
            };
            let command = worker.program_command("--describe");
            worker
                .arguments(Some(&forwarded), command)
                .join(OsStr::new(" "))
                .into_string()
                .unwrap()
        };
        let arguments = joined(&worker);
        assert!(
            arguments.contains(
                " -R 127.0.0.1:20001:127.0.0.1:4222 -p 2222 -l ann -- build-2 sh -c 'PATH="
            ) && arguments.ends_with("; exec ingestdeck worker --describe --slots 4'"),
            "{arguments}"
        );
        let plain: SshWorker =
            "ssh://[fe80::1]/?program=/opt/bin/ingestdeck&claude=~/.local/bin/claude"
                .parse()
                .unwrap();
        let arguments = joined(&plain);
        assert!(
            arguments.contains(" -- fe80::1 sh -c 'PATH=")
                && arguments.ends_with(
                    "; exec /opt/bin/ingestdeck worker --describe --claude-bin ~/.local/bin/claude'"
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
