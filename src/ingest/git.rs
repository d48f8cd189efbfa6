//! git, called as a program: told nothing by the environment, led nowhere by a repository's configuration, and bounded
//! in time.
//!
//! It must not know what a project is. Whoever calls it knows the directory and the arguments.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Longest time that one call may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Bytes of stderr that an error tells.
const TAIL: usize = 400;

/// Settings that hold whatever the user's or the repository's configuration says. Nothing may run, ask, sign, clean up
/// behind our back or change bytes on their way.
const SETTINGS: &[&str] = &[
    "commit.gpgsign=false",
    "core.hooksPath=/dev/null",
    "gc.auto=0",
    "gc.autoDetach=false",
    "maintenance.auto=false",
    "maintenance.autoDetach=false",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.quotePath=false",
    "core.commentChar=#",
    "core.askPass=",
    "color.ui=false",
    "commit.status=false",
    "commit.template=",
    "i18n.commitEncoding=UTF-8",
    "submodule.recurse=false",
    "diff.orderFile=/dev/null",
    "diff.ignoreSubmodules=all",
    "advice.detachedHead=false",
    "advice.mergeConflict=false",
];

/// Settings of a working tree that is checked out in part.
const SPARSE: &[&str] = &["core.sparseCheckout=true", "core.sparseCheckoutCone=false"];

/// Variables of the environment that choose programs, beside those that begin with `GIT_`.
const PROGRAMS: &[&str] = &["EDITOR", "VISUAL", "PAGER", "SSH_ASKPASS", "LESS", "LV", "PREFIX", "LANGUAGE"];

/// Who commits.
const NAME: &str = "ktx Local";
const EMAIL: &str = "local@ktx.local";

/// Keys of a configuration that name a program for some files: section, and what it may say.
const DRIVERS: &[(&str, &[&str])] = &[
    ("filter.", &["clean", "smudge", "process", "required"]),
    ("diff.", &["command", "textconv"]),
    ("merge.", &["driver"]),
];

/// git did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is none.
    #[error("git is not on the PATH, and this project is a git repository; install git")]
    Missing,
    /// It does not start, or breaks off.
    #[error("git {what} cannot run: {cause}")]
    Io {
        /// Its subcommand.
        what: String,
        /// Why.
        cause: io::Error,
    },
    /// It said no.
    #[error("git {what} failed{}", said(stderr))]
    Failed {
        /// Its subcommand.
        what: String,
        /// The end of what it said.
        stderr: String,
    },
    /// It took too long and was ended.
    #[error("git {what} did not end within {} s; look for what holds up the disk, then try again", limit.as_secs())]
    TimedOut {
        /// Its subcommand.
        what: String,
        /// How long it had.
        limit: Duration,
    },
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}

/// What a call answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// True for exit code 0.
    pub(crate) ok: bool,
    pub(crate) stdout: Vec<u8>,
    /// The end of stderr on one line.
    pub(crate) stderr: String,
}

/// git in one directory.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    dir: PathBuf,
    /// Keys of drivers that the configuration names, to be answered with nothing.
    drivers: Arc<[String]>,
    /// What holds in this directory beside [`SETTINGS`].
    own: &'static [&'static str],
    limit: Duration,
}

impl Git {
    /// git in `dir`, which is the top of a working tree. Looks up which drivers the configuration names, so that none of
    /// them runs.
    pub(crate) fn open(dir: &Path) -> Result<Self, GitError> {
        let git = Self { dir: dir.to_path_buf(), drivers: Arc::new([]), own: &[], limit: LIMIT };
        let answer = git.ask(&["config", "--null", "--name-only", "--list"])?;
        let names = String::from_utf8_lossy(&answer.stdout);
        let drivers = names.split('\0').filter(|key| is_driver(key)).map(str::to_owned).collect();
        Ok(Self { drivers, ..git })
    }

    /// git in `dir`, which is the top of a working tree that holds only what its list of patterns names.
    pub(crate) fn within(dir: &Path) -> Result<Self, GitError> {
        Ok(Self { own: SPARSE, ..Self::open(dir)? })
    }

    /// Stdout of a call that has to succeed.
    pub(crate) fn run(&self, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.feed(args, &[])
    }

    /// The first line of stdout of a call that has to succeed.
    pub(crate) fn line(&self, args: &[&str]) -> Result<String, GitError> {
        let stdout = self.run(args)?;
        Ok(String::from_utf8_lossy(&stdout).lines().next().unwrap_or_default().to_owned())
    }

    /// Stdout of a call that reads `input` and has to succeed.
    pub(crate) fn feed(&self, args: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        let answer = self.call(args, input)?;
        if answer.ok {
            return Ok(answer.stdout);
        }
        Err(GitError::Failed { what: what(args), stderr: answer.stderr })
    }

    /// A call that may say no.
    pub(crate) fn ask(&self, args: &[&str]) -> Result<Answer, GitError> {
        self.call(args, &[])
    }

    fn call(&self, args: &[&str], input: &[u8]) -> Result<Answer, GitError> {
        let failed = |cause| GitError::Io { what: what(args), cause };
        let mut child = self.command(args, !input.is_empty()).spawn().map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound if self.dir.is_dir() => GitError::Missing,
            _ => failed(cause),
        })?;
        let deadline = Instant::now() + self.limit;
        let piped = pump(&mut child, input, deadline).map_err(failed)?;
        let Some((stdout, stderr)) = piped else {
            end(&mut child);
            return Err(GitError::TimedOut { what: what(args), limit: self.limit });
        };
        let status = child.wait().map_err(failed)?;
        Ok(Answer { ok: status.success(), stdout, stderr: tail(&stderr) })
    }

    fn command(&self, args: &[&str], has_input: bool) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("git");
        command.arg("--no-pager").args(SETTINGS.iter().chain(self.own).flat_map(|setting| ["-c", setting])).args(args);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GIT_") || text.starts_with("LC_") || PROGRAMS.contains(&text.as_ref()) {
                command.env_remove(&name);
            }
        }
        command
            // Messages are read by people and by us.
            .env("LC_ALL", "C.UTF-8")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_EDITOR", "false")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", NAME)
            .env("GIT_AUTHOR_EMAIL", EMAIL)
            .env("GIT_COMMITTER_NAME", NAME)
            .env("GIT_COMMITTER_EMAIL", EMAIL);
        // A repository above is not this project's.
        if let Some(parent) = self.dir.parent() {
            command.env("GIT_CEILING_DIRECTORIES", parent);
        }
        // The command line cannot name keys that hold a `=`.
        for (index, key) in self.drivers.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{index}"), key);
            let value = if key.ends_with(".required") { "false" } else { "" };
            command.env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        command.env("GIT_CONFIG_COUNT", self.drivers.len().to_string());
        let stdin = if has_input { Stdio::piped() } else { Stdio::null() };
        command.current_dir(&self.dir).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C on the terminal is for us: git ends what it began.
        command.process_group(0);
        command
    }
}

/// Writes `input` and reads both outputs to their ends; `None` if that takes too long.
fn pump(child: &mut Child, input: &[u8], deadline: Instant) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (stdout, stderr, stdin) = (child.stdout.take(), child.stderr.take(), child.stdin.take());
    let (out, outs) = mpsc::channel();
    let (err, errs) = mpsc::channel();
    // The threads end with the pipes: at the latest when the process group is killed.
    thread::Builder::new().spawn(move || drop(out.send(all_of(stdout))))?;
    thread::Builder::new().spawn(move || drop(err.send(all_of(stderr))))?;
    if let Some(mut stdin) = stdin {
        let input = input.to_vec();
        // Whoever does not read to the end says why on stderr.
        thread::Builder::new().spawn(move || drop(stdin.write_all(&input)))?;
    }
    let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    let Ok(stdout) = outs.recv_timeout(left(deadline)) else { return Ok(None) };
    let Ok(stderr) = errs.recv_timeout(left(deadline)) else { return Ok(None) };
    Ok(Some((stdout?, stderr?)))
}

fn all_of(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn end(child: &mut Child) {
    use nix::{
        sys::signal::{Signal, killpg},
        unistd::Pid,
    };
    if let Ok(pid) = i32::try_from(child.id()) {
        // It leads a group of its own; gone already is as good.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = child.wait();
}

fn is_driver(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or_default();
    let has_name = key.matches('.').count() >= 2;
    has_name && DRIVERS.iter().any(|(section, names)| key.starts_with(section) && names.contains(&last))
}

/// The subcommand, for messages.
fn what(args: &[&str]) -> String {
    args.iter().take_while(|arg| !arg.starts_with('-')).take(2).copied().collect::<Vec<_>>().join(" ")
}

/// The end of what was said, on one line.
fn tail(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ");
    let from = text.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
    text[from..].escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"")
}

#[cfg(test)]
pub(crate) mod tests;
