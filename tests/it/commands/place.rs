//! A private home and working directory for the program, children that cannot outstay their deadline, and the contract
//! that every JSON stream keeps. Asserts nothing else.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// No child may take longer, whatever goes wrong. Debug builds on a busy machine are slow.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How often something is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// A directory of its own, with a home in it.
#[derive(Debug)]
pub(crate) struct Place {
    root: TempDir,
}

/// How a child ended, and everything it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Its stderr, which must be one sentence, after it ended with `code` and printed nothing.
    pub(crate) fn refused(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let errors: Vec<&str> = self.stderr.lines().filter(|line| !line.contains("warning: ")).collect();
        assert_eq!(errors.len(), 1, "one sentence: {self:?}");
        assert!(errors[0].starts_with("ingestdeck: "), "{self:?}");
        errors[0].trim_start_matches("ingestdeck: ")
    }

    /// Its stdout, after it succeeded.
    pub(crate) fn done(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.stdout
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["home", "tmp", "work", "bin"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        Self { root }
    }

    /// A path below the directory that the program is started in.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("work").join(name)
    }

    /// Writes a file there.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A shell script that can be executed.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.root.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A `claude` of the newest release that is logged in and does `otherwise` when it is asked to work.
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

    /// A `claude` that is played by `script`.
    pub(crate) fn player(&self, script: &str) -> PathBuf {
        let script = self.write("script.toml", script);
        let exe = env!("CARGO_BIN_EXE_ingestdeck");
        self.claude(&format!("exec '{exe}' scripted-agent --script '{}' -- \"$@\"", script.display()))
    }

    /// A project of one Markdown file a unit.
    pub(crate) fn notes(&self, names: &[&str]) {
        self.write(
            "ktx.yaml",
            "connections:\n  notes:\n    driver: docs\n    source_dir: notes\nllm:\n  provider:\n    backend: claude-code\n",
        );
        for name in names {
            self.write(&format!("notes/{name}.md"), format!("# {name}\n"));
        }
    }

    /// The program, with nothing of the developer's environment but the way to the shell's own programs.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestdeck"));
        let root = self.root.path();
        command.args(args).env_clear().current_dir(root.join("work")).stdin(Stdio::null());
        command.env("HOME", root.join("home")).env("TMPDIR", root.join("tmp")).env("PATH", "/usr/bin:/bin");
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.ran(self.command(args))
    }

    /// Runs `command` to its end.
    pub(crate) fn ran(&self, command: Command) -> Ran {
        self.start(command).end()
    }

    /// Starts `command`, what it prints going to files.
    pub(crate) fn start(&self, command: Command) -> Running {
        let outputs = self.outputs();
        let stdout = File::create(outputs.path().join("stdout")).unwrap();
        Self::spawn(command, stdout.into(), outputs)
    }

    /// Starts `command` with a stdout of the caller's.
    pub(crate) fn start_into(&self, command: Command, stdout: Stdio) -> Running {
        Self::spawn(command, stdout, self.outputs())
    }

    /// A directory for what a child prints, with both files in it.
    fn outputs(&self) -> TempDir {
        let outputs = tempfile::tempdir_in(self.root.path()).unwrap();
        for name in ["stdout", "stderr"] {
            File::create(outputs.path().join(name)).unwrap();
        }
        outputs
    }

    fn spawn(mut command: Command, stdout: Stdio, outputs: TempDir) -> Running {
        let stderr = File::create(outputs.path().join("stderr")).unwrap();
        let child = command.stdout(stdout).stderr(stderr).spawn().unwrap();
        Running { child, outputs, deadline: Instant::now() + DEADLINE }
    }

    /// Command lines of all processes that name this place, without `except`.
    #[cfg(target_os = "linux")]
    pub(crate) fn processes(&self, except: u32) -> Vec<String> {
        let root = self.root.path().to_str().unwrap();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        pids.filter(|pid| pid.parse::<u32>().is_ok_and(|pid| pid != except))
            .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).ok())
            .filter(|words| words.contains(root))
            .collect()
    }

    /// Waits until no process names this place.
    #[cfg(target_os = "linux")]
    pub(crate) fn wait_until_nobody_is_left(&self) {
        let deadline = Instant::now() + DEADLINE;
        while !self.processes(0).is_empty() {
            assert!(Instant::now() < deadline, "still there: {:?}", self.processes(0));
            thread::sleep(LOOK);
        }
    }
}

/// A child on its way. It dies with this value.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    outputs: TempDir,
    deadline: Instant,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits until it has printed `text` to `stdout` or `stderr`.
    pub(crate) fn wait_for(&mut self, stream: &str, text: &str) {
        while !self.said(stream).contains(text) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended ({ended:?}) before {text}: {}{}", self.said("stdout"), self.said("stderr"));
            self.pause();
        }
    }

    pub(crate) fn end(mut self) -> Ran {
        let status = self.status();
        Ran { code: status.code(), stdout: self.said("stdout"), stderr: self.said("stderr") }
    }

    fn status(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            self.pause();
        }
    }

    fn said(&self, stream: &str) -> String {
        String::from_utf8(fs::read(self.outputs.path().join(stream)).unwrap()).expect("output is text")
    }

    fn pause(&self) {
        assert!(Instant::now() < self.deadline, "hangs: {}{}", self.said("stdout"), self.said("stderr"));
        thread::sleep(LOOK);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already, in a test that passes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a JSON stream, held to the contract.
pub(crate) fn contract(stream: &str) -> Vec<Value> {
    let lines: Vec<Value> = stream.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let (last, _) = lines.split_last().expect("a summary at least");
    let (mut times, mut completed) = (HashMap::<String, u64>::new(), HashMap::<String, usize>::new());
    for (seq, line) in lines.iter().enumerate() {
        assert_eq!((&line["v"], &line["seq"]), (&1.into(), &seq.into()), "{line}");
        assert!(line.get("run").is_some_and(|run| *run == last["run"]), "one run: {line}");
        let event = &line["event"];
        let lane = line.get("unit").map(|unit| format!("{unit}#{}", line["try"]));
        assert_eq!(lane.is_some(), line.get("try").is_some(), "{line}");
        let at = line["at"].as_u64().expect("a time");
        let before = times.insert(lane.clone().unwrap_or_default(), at).unwrap_or_default();
        // The lines of a bare capture carry their writer's own times, which are not always in order.
        assert!(before <= at || line["run"].is_null(), "time goes back: {line}");
        let kind = event["type"].as_str().expect("a type");
        match (kind, lane) {
            ("run", None) => assert!(event["state"].is_string(), "{line}"),
            ("unit", Some(_)) => assert!(event["state"].is_string(), "{line}"),
            ("started" | "action" | "completed", Some(lane)) => {
                assert_eq!(event["engine"], "claude", "{line}");
                let count = completed.entry(lane).or_default();
                assert_eq!(*count, 0, "after its completed: {line}");
                *count += usize::from(kind == "completed");
            }
            _ => panic!("out of place: {line}"),
        }
    }
    assert!(completed.values().all(|count| *count == 1), "not completed once: {completed:?}");
    assert_eq!((&last["event"]["type"], &last["event"]["state"]), (&"run".into(), &"summary".into()), "{last}");
    lines
}

/// The only tape of a project.
pub(crate) fn tape(project: &Path) -> PathBuf {
    let mut runs = fs::read_dir(project.join(".ktx/ingestdeck/runs")).unwrap();
    let run = runs.next().expect("a run").unwrap().path();
    assert!(runs.next().is_none(), "one run");
    run.join("tape.jsonl")
}
