//! A private home and working directory for the program, children with a deadline, and checks of the contract that
//! every JSON stream keeps.

use std::{
    collections::HashMap,
    fs,
    io::{PipeReader, Read},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

/// Longest lifetime of a child. Debug builds on a busy machine are slow.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A temporary directory with a home directory in it.
#[derive(Debug)]
pub(crate) struct TestDir {
    root: TempDir,
}

/// How a child ended, and its complete output.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    /// Errors and warnings have one line each: a `help:` line is joined with `; ` to its message.
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// The only error on its stderr, as `message; help`. Expects exit code `code` and an empty stdout.
    pub(crate) fn expect_refusal(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let (warnings, error) = match self.stderr.strip_prefix("error: ") {
            Some(error) => ("", error),
            None => self
                .stderr
                .split_once("\nerror: ")
                .unwrap_or_else(|| panic!("{self:?}")),
        };
        // A list of problems follows its error.
        let mut ends = error.match_indices('\n').map(|(at, _)| at);
        let end = ends.find(|at| !error[at + 1..].starts_with("  "));
        let (error, others) = error.split_at(end.unwrap_or(error.len()));
        let is_warning = |line: &str| line.is_empty() || line.starts_with("warning: ");
        assert!(
            warnings.lines().chain(others.lines()).all(is_warning),
            "one error: {self:?}"
        );
        error
    }

    /// As [`expect_refusal`](Self::expect_refusal), but the command also informs about its progress.
    pub(crate) fn expect_refusal_after_messages(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        let mut errors = self
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix("error: "));
        let error = errors.next().unwrap_or_else(|| panic!("{self:?}"));
        assert_eq!(errors.next(), None, "one error: {self:?}");
        error
    }

    /// Its stdout. Expects success.
    pub(crate) fn expect_success(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.stdout
    }
}

impl TestDir {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["home", "tmp", "work", "bin", "runtime"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        fs::DirBuilder::new()
            .mode(0o700)
            .create(root.path().join("runtime/ingestdeck"))
            .unwrap();
        Self { root }
    }

    /// A path below the working directory of the program.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("work").join(name)
    }

    /// The program's directory for temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.root.path().join("tmp")
    }

    /// The directory for the control sockets of runs.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.root.path().join("runtime/ingestdeck")
    }

    /// Writes a file below the working directory.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Creates an executable shell script.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.root.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A logged-in `claude` of the newest release that runs `otherwise` when it has to work.
    pub(crate) fn claude(&self, otherwise: &str) -> PathBuf {
        let body = format!(
            r#"case "$1" in
--version) echo "2.1.330 (Claude Code)"; exit 0;;
auth) echo '{{"loggedIn":true,"authMethod":"api_key"}}'; exit 0;;
esac
{otherwise}"#
        );
        self.script("claude-stub", &body)
    }

    /// A `claude` that plays `script`.
    pub(crate) fn scripted_claude(&self, script: &str) -> PathBuf {
        let script = self.write("script.toml", script);
        let exe = crate::support::program();
        self.claude(&format!(
            "exec '{exe}' scripted-agent --script '{}' -- \"$@\"",
            script.display()
        ))
    }

    /// A project with one unit per Markdown file.
    pub(crate) fn notes(&self, names: &[&str]) {
        self.write(
            "ktx.yaml",
            "connections:\n  notes:\n    driver: docs\n    source_dir: notes\nllm:\n  provider:\n    backend: claude-code\n",
        );
        for name in names {
            self.write(&format!("notes/{name}.md"), format!("# {name}\n"));
        }
    }

    /// The program with an empty environment, except for the PATH of the shell's own programs.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(crate::support::program());
        let root = self.root.path();
        command
            .args(args)
            .env_clear()
            .current_dir(root.join("work"))
            .stdin(Stdio::null());
        command
            .env("HOME", root.join("home"))
            .env("TMPDIR", root.join("tmp"))
            .env("PATH", "/usr/bin:/bin");
        command.env("XDG_RUNTIME_DIR", root.join("runtime"));
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        self.ran(self.command(args))
    }

    /// Runs `command` to its end.
    pub(crate) fn ran(&self, command: Command) -> CommandOutput {
        self.start(command).end()
    }

    pub(crate) fn start(&self, command: Command) -> RunningCommand {
        let (stdout, writer) = std::io::pipe().unwrap();
        RunningCommand::start(command, writer.into(), Some(stdout))
    }

    /// Starts `command` with the given stdout.
    pub(crate) fn start_into(&self, command: Command, stdout: Stdio) -> RunningCommand {
        RunningCommand::start(command, stdout, None)
    }

    /// Command lines of all processes that name this directory, except the process `except`.
    #[cfg(target_os = "linux")]
    pub(crate) fn processes(&self, except: u32) -> Vec<String> {
        let root = self.root.path().to_str().unwrap();
        let pids = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        pids.filter(|pid| pid.parse::<u32>().is_ok_and(|pid| pid != except))
            .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).ok())
            .filter(|words| words.contains(root))
            .collect()
    }

    /// Waits until no process names this directory.
    #[cfg(target_os = "linux")]
    pub(crate) fn wait_until_no_process_left(&self) {
        let deadline = Instant::now() + DEADLINE;
        while !self.processes(0).is_empty() {
            assert!(
                Instant::now() < deadline,
                "still there: {:?}",
                self.processes(0)
            );
            crate::support::pause_before_check();
        }
    }
}

/// Output of a child.
#[derive(Debug)]
enum OutputEvent {
    Output(&'static str, Vec<u8>),
    Closed(&'static str),
    Ended(ExitStatus),
}

/// A running child. Dropping it kills the child.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    pid: u32,
    events: mpsc::Receiver<OutputEvent>,
    open: Vec<&'static str>,
    status: Option<ExitStatus>,
    output: HashMap<&'static str, Vec<u8>>,
    deadline: Instant,
}

impl RunningCommand {
    fn start(mut command: Command, into: Stdio, stdout: Option<PipeReader>) -> Self {
        let mut child = command.stdout(into).stderr(Stdio::piped()).spawn().unwrap();
        // The command keeps this process's end of the pipe open.
        drop(command);
        let (tell, news) = mpsc::channel();
        let stderr = child.stderr.take().unwrap();
        let mut open = vec!["stderr"];
        spawn_output_reader("stderr", stderr, tell.clone());
        if let Some(stdout) = stdout {
            spawn_output_reader("stdout", stdout, tell.clone());
            open.push("stdout");
        }
        let pid = child.id();
        thread::spawn(move || tell.send(OutputEvent::Ended(child.wait().unwrap())));
        Self {
            pid,
            events: news,
            open,
            status: None,
            output: HashMap::new(),
            deadline: Instant::now() + DEADLINE,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.pid
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid).unwrap());
        kill(pid, signal).unwrap();
    }

    /// Kills the child unless it has ended.
    pub(crate) fn kill(&self) {
        if self.status.is_none() {
            let killed = kill(
                Pid::from_raw(i32::try_from(self.pid).unwrap()),
                Signal::SIGKILL,
            );
            assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
        }
    }

    /// Waits until the child has printed `text` to `stdout` or `stderr`.
    pub(crate) fn wait_for(&mut self, stream: &str, text: &str) {
        while !self.output_text(stream).contains(text) {
            // A process can end before all of its output is received.
            assert!(
                self.status.is_none() || !self.open.is_empty(),
                "ended before {text}: {self:?}"
            );
            self.receive_event();
        }
    }

    /// Waits until the child has exited and all of its outputs are closed.
    pub(crate) fn end(mut self) -> CommandOutput {
        loop {
            match self.status {
                Some(status) if self.open.is_empty() => {
                    return CommandOutput {
                        code: status.code(),
                        stdout: self.output_text("stdout"),
                        stderr: self.output_text("stderr").replace("\nhelp: ", "; "),
                    };
                }
                _ => self.receive_event(),
            }
        }
    }

    fn receive_event(&mut self) {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(OutputEvent::Output(stream, bytes)) => {
                self.output.entry(stream).or_default().extend(bytes)
            }
            Ok(OutputEvent::Closed(stream)) => self.open.retain(|open| *open != stream),
            Ok(OutputEvent::Ended(status)) => self.status = Some(status),
            Err(_) => panic!(
                "hangs: {}{}",
                self.output_text("stdout"),
                self.output_text("stderr")
            ),
        }
    }

    fn output_text(&self, stream: &str) -> String {
        // A character that was cut in the middle is completed by the next chunk.
        String::from_utf8_lossy(self.output.get(stream).map_or(&[], Vec::as_slice)).into_owned()
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn_output_reader(
    name: &'static str,
    mut stream: impl Read + Send + 'static,
    tell: mpsc::Sender<OutputEvent>,
) {
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        // The receiver is gone if the test failed.
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let _ = tell.send(OutputEvent::Output(name, buffer[..count].to_vec()));
        }
        let _ = tell.send(OutputEvent::Closed(name));
    });
}

/// The lines of a JSON stream, checked against its contract.
pub(crate) fn parse_json_events(stream: &str) -> Vec<Value> {
    let lines: Vec<Value> = stream
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let (last, _) = lines.split_last().expect("at least a summary");
    let (mut times, mut completed) = (
        HashMap::<String, u64>::new(),
        HashMap::<String, usize>::new(),
    );
    for (seq, line) in lines.iter().enumerate() {
        assert_eq!(
            (&line["v"], &line["seq"]),
            (&1.into(), &seq.into()),
            "{line}"
        );
        assert!(
            line.get("run").is_some_and(|run| *run == last["run"]),
            "one run: {line}"
        );
        let event = &line["event"];
        let lane = line
            .get("unit")
            .map(|unit| format!("{unit}#{}", line["try"]));
        assert_eq!(lane.is_some(), line.get("try").is_some(), "{line}");
        let at = line["at"].as_u64().expect("a time");
        let before = times
            .insert(lane.clone().unwrap_or_default(), at)
            .unwrap_or_default();
        // The lines of a bare capture have the times of their writer, which are not always in order.
        assert!(
            before <= at || line["run"].is_null(),
            "time goes back: {line}"
        );
        let kind = event["type"].as_str().expect("a type");
        match (kind, lane) {
            ("run", None) => assert!(event["state"].is_string(), "{line}"),
            ("unit", Some(_)) => assert!(event["state"].is_string(), "{line}"),
            ("task", Some(_)) => assert!(
                event["task"].is_string() && event["phase"].is_string(),
                "{line}"
            ),
            ("message", Some(_)) => assert!(
                event["level"].is_string() && event["text"].is_string(),
                "{line}"
            ),
            ("started" | "action" | "completed", Some(lane)) => {
                assert_eq!(event["engine"], "claude", "{line}");
                let count = completed.entry(lane).or_default();
                assert_eq!(*count, 0, "after its completed: {line}");
                *count += usize::from(kind == "completed");
            }
            _ => panic!("out of place: {line}"),
        }
    }
    assert!(
        completed.values().all(|count| *count == 1),
        "not completed exactly once: {completed:?}"
    );
    assert_eq!(
        (&last["event"]["type"], &last["event"]["state"]),
        (&"run".into(), &"summary".into()),
        "{last}"
    );
    lines
}

/// The only tape of a project.
pub(crate) fn tape(project: &Path) -> PathBuf {
    let mut runs = fs::read_dir(project.join(".ktx/ingestdeck/runs")).unwrap();
    let run = runs.next().expect("a run").unwrap().path();
    assert!(runs.next().is_none(), "one run");
    run.join("tape.jsonl")
}
