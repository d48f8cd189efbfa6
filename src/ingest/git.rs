//! git, called as a program: told nothing by the environment, led nowhere by a repository's configuration, and bounded
//! in time.
//!
//! It must not know what a project is. Whoever calls it knows the directory and the arguments.

mod commit;
mod programs;

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use self::programs::Programs;
pub use self::{
    commit::{CommitId, InvalidCommitId},
    programs::{DisabledProgram, ProgramKind},
};
use crate::{group_guard, program_path};

/// The first release that reads `GIT_CONFIG_COUNT`, by which the programs of a configuration are disabled.
const OLDEST: (u32, u32) = (2, 31);

/// How much time and output one call may take.
#[derive(Clone, Copy, Debug)]
struct CallLimits {
    time: Duration,
    /// Bytes on stdout, and on stderr.
    output: u64,
}

const LIMITS: CallLimits = CallLimits { time: Duration::from_secs(120), output: 256 << 20 };

/// Limits of reading the configuration, which is the first call in every directory.
const CONFIG_LIMITS: CallLimits = CallLimits { time: Duration::from_secs(10), output: 4 << 20 };

/// How long a git that took too long may take to remove its lock files.
const GRACE: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

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
    "core.preferSymlinkRefs=false",
    "core.commentChar=#",
    "core.askPass=",
    "color.ui=false",
    "commit.status=false",
    "commit.template=",
    "i18n.commitEncoding=UTF-8",
    "submodule.recurse=false",
    "diff.orderFile=/dev/null",
    "diff.ignoreSubmodules=all",
    "log.showSignature=false",
    "apply.whitespace=nowarn",
    "apply.ignoreWhitespace=no",
    "safe.bareRepository=explicit",
    "worktree.useRelativePaths=false",
    "advice.detachedHead=false",
    "advice.mergeConflict=false",
];

/// Settings of a working tree that is checked out in part.
const SPARSE: &[&str] = &["core.sparseCheckout=true", "core.sparseCheckoutCone=false"];

/// Variables of the environment that choose programs, beside those that begin with `GIT_`.
const PROGRAMS: &[&str] = &["EDITOR", "VISUAL", "PAGER", "SSH_ASKPASS", "LESS", "LV", "PREFIX", "LANGUAGE"];

/// Who commits.
const NAME: &str = "ktx Local";
pub(super) const EMAIL: &str = "local@ktx.local";

/// git did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is none.
    #[error(
        "git is not on the PATH, and this project is a git repository; install git{}",
        program_path::skipped_note()
    )]
    Missing,
    /// It does not know what it is asked.
    #[error("git {}.{} or newer is needed, this is {found}; update git", OLDEST.0, OLDEST.1)]
    TooOld {
        /// Its version, escaped.
        found: String,
    },
    /// It does not start, or breaks off.
    #[error("git {what} cannot run: {cause}")]
    Io {
        /// Its subcommand.
        what: String,
        #[source]
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
    /// The configuration could not be read in time.
    #[error(
        "git did not read its configuration within {} s; look for an `include.path` that names a pipe or a file on an \
         unreachable disk, in `.git/config` and in your own configuration", limit.as_secs()
    )]
    ConfigTimedOut {
        /// How long it had.
        limit: Duration,
    },
    /// It printed too much and was ended.
    #[error(
        "git {what} printed more than {} MiB; remove very large or very many files from the repository",
        limit >> 20
    )]
    TooLong {
        /// Its subcommand.
        what: String,
        /// Bytes that it may print.
        limit: u64,
    },
    /// The configuration is too large.
    #[error(
        "the git configuration has more than {} MiB; remove what is not needed from `.git/config` and from the files \
         that it includes", limit >> 20
    )]
    ConfigTooLong {
        /// Bytes that it may have.
        limit: u64,
    },
    /// It does not get the settings that disable programs.
    #[error(
        "git ignores settings in its environment (GIT_CONFIG_COUNT), so programs of the repository could not be \
         disabled; put git itself first on the PATH instead of a wrapper that changes its environment: {}", program.display()
    )]
    OverridesIgnored {
        /// The git that was found.
        program: PathBuf,
    },
    /// The configuration names more programs than can be disabled.
    #[error(
        "the git configuration names too many filters, drivers and hooks to disable them all; remove those that are \
         not needed from `.git/config`"
    )]
    TooManyPrograms,
    /// It answered with something else than a commit.
    #[error("git {what} named no commit: {cause}")]
    NoCommit {
        /// Its subcommand.
        what: String,
        cause: InvalidCommitId,
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
    /// Exit code; `None` if a signal ended it.
    code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    /// The end of stderr on one line.
    pub(crate) stderr: String,
}

/// git in one directory.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    program: &'static Path,
    dir: PathBuf,
    /// What the configuration names, to be disabled.
    programs: Arc<Programs>,
    /// What holds in this directory beside [`SETTINGS`].
    own: &'static [&'static str],
    limits: CallLimits,
}

/// The git that is installed, found once.
fn program() -> Result<&'static Path, GitError> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| program_path::find("git")).as_deref().ok_or(GitError::Missing)
}

/// What the installed git says of its version, which must be one that can be used. Asked once.
///
/// # Errors
/// When there is none, and when it is too old.
pub fn version() -> Result<&'static str, GitError> {
    static SAID: OnceLock<String> = OnceLock::new();
    let said = match SAID.get() {
        Some(said) => said,
        None => {
            let said = Git::unconfigured(Path::new("/"), LIMITS)?.line(&["--version"])?;
            SAID.get_or_init(|| said)
        }
    };
    check_version(said).map(|()| said.as_str())
}

/// Accepts what does not look like a version: a distribution may choose the text.
fn check_version(said: &str) -> Result<(), GitError> {
    let found = said.strip_prefix("git version ").and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    let mut numbers = found.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST => {
            Err(GitError::TooOld { found: found.escape_debug().to_string() })
        }
        _ => Ok(()),
    }
}

impl Git {
    /// git in `dir`, which is the top of a working tree. Looks up which programs the configuration names, so that none
    /// of them runs.
    pub(crate) fn open(dir: &Path) -> Result<Self, GitError> {
        version()?;
        Self::open_with(program()?, dir, CONFIG_LIMITS)
    }

    fn open_with(program: &'static Path, dir: &Path, limits: CallLimits) -> Result<Self, GitError> {
        let git = Self { program, programs: Arc::new(Programs::probe()), ..Self::unconfigured(dir, limits)? };
        let listed = git.run(programs::LIST).map_err(|error| match error {
            GitError::TimedOut { limit, .. } => GitError::ConfigTimedOut { limit },
            GitError::TooLong { limit, .. } => GitError::ConfigTooLong { limit },
            error => error,
        })?;
        let programs = Programs::parse(&listed).map_err(|error| match error {
            programs::Unusable::TooMany => GitError::TooManyPrograms,
            programs::Unusable::OverridesIgnored => GitError::OverridesIgnored { program: program.to_path_buf() },
        })?;
        Ok(Self { programs: Arc::new(programs), limits: LIMITS, ..git })
    }

    fn unconfigured(dir: &Path, limits: CallLimits) -> Result<Self, GitError> {
        Ok(Self { program: program()?, dir: dir.to_path_buf(), programs: Arc::default(), own: &[], limits })
    }

    /// git in `dir`, which is the top of a working tree that holds only what its list of patterns names.
    pub(crate) fn within(dir: &Path) -> Result<Self, GitError> {
        Ok(Self { own: SPARSE, ..Self::open(dir)? })
    }

    /// Programs that the repository configures and that are not run, sorted.
    pub(crate) fn disabled(&self) -> impl Iterator<Item = &DisabledProgram> {
        self.programs.of_repository.iter()
    }

    /// Whether git would start hooks of `.git/hooks` if hooks were not disabled.
    pub(crate) fn has_own_hooks(&self) -> bool {
        !self.programs.replaces_hooks
    }

    /// The commit that a call names, which has to succeed.
    pub(crate) fn commit(&self, args: &[&str]) -> Result<CommitId, GitError> {
        CommitId::parse(&self.line(args)?).map_err(|cause| GitError::NoCommit { what: what(args), cause })
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

    /// A call that reads `input` and may say no.
    pub(crate) fn call(&self, args: &[&str], input: &[u8]) -> Result<Answer, GitError> {
        let started = Instant::now();
        let answer = self.answer(args, input);
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Only the subcommand: messages, paths and branches are not for a log.
        match &answer {
            Ok(answer) => tracing::debug!(command = what(args), ms, code = answer.code, "git ended"),
            Err(error) => tracing::debug!(command = what(args), ms, %error, "git failed"),
        }
        answer
    }

    fn answer(&self, args: &[&str], input: &[u8]) -> Result<Answer, GitError> {
        let failed = |cause| GitError::Io { what: what(args), cause };
        let mut child = self.command(args, !input.is_empty()).spawn().map_err(failed)?;
        let _guarded = Guarded::new(&child);
        let (stdout, stderr) = match pump(&mut child, input, self.limits).map_err(failed)? {
            Pumped::Whole { stdout, stderr } => (stdout, stderr),
            unfinished => {
                end(&mut child);
                let (what, CallLimits { time, output }) = (what(args), self.limits);
                return Err(match unfinished {
                    Pumped::TooLong => GitError::TooLong { what, limit: output },
                    _ => GitError::TimedOut { what, limit: time },
                });
            }
        };
        let status = child.wait().map_err(failed)?;
        Ok(Answer { ok: status.success(), code: status.code(), stdout, stderr: tail(&stderr) })
    }

    fn command(&self, args: &[&str], has_input: bool) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(self.program);
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
            .env("PATH", program_path::search_path())
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_EDITOR", "false")
            // A partial clone would fetch what it misses, with programs that its configuration names. Releases before
            // 2.44 do not know the first of the two.
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_ALLOW_PROTOCOL", "none")
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
        let overrides = &self.programs.overrides;
        for (index, (key, value)) in overrides.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{index}"), key).env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        command.env("GIT_CONFIG_COUNT", overrides.len().to_string());
        let stdin = if has_input { Stdio::piped() } else { Stdio::null() };
        command.current_dir(&self.dir).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C on the terminal is for us: git ends what it began.
        command.process_group(0);
        command
    }
}

/// The group of a call, which is ended with this program until the value is dropped.
struct Guarded(Option<Pid>);

impl Guarded {
    fn new(child: &Child) -> Self {
        let leader = i32::try_from(child.id()).ok().map(Pid::from_raw);
        leader.into_iter().for_each(group_guard::watch_git);
        Self(leader)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.into_iter().for_each(group_guard::forget);
    }
}

/// What became of both outputs of a call.
enum Pumped {
    Whole {
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    },
    /// One of them is longer than it may be.
    TooLong,
    TooSlow,
}

/// Writes `input` and reads both outputs to their ends, within `limits`.
fn pump(child: &mut Child, input: &[u8], limits: CallLimits) -> io::Result<Pumped> {
    let deadline = Instant::now() + limits.time;
    let (stdout, stderr, stdin) = (child.stdout.take(), child.stderr.take(), child.stdin.take());
    let (out, outs) = mpsc::channel();
    let (err, errs) = mpsc::channel();
    // The threads end with the pipes: at the latest when the process group is killed.
    thread::Builder::new().spawn(move || drop(out.send(all_of(stdout, limits.output))))?;
    thread::Builder::new().spawn(move || drop(err.send(all_of(stderr, limits.output))))?;
    if let Some(mut stdin) = stdin {
        let input = input.to_vec();
        // Whoever does not read to the end says why on stderr.
        thread::Builder::new().spawn(move || drop(stdin.write_all(&input)))?;
    }
    let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    let Ok(stdout) = outs.recv_timeout(left(deadline)) else { return Ok(Pumped::TooSlow) };
    let Some(stdout) = stdout? else { return Ok(Pumped::TooLong) };
    let Ok(stderr) = errs.recv_timeout(left(deadline)) else { return Ok(Pumped::TooSlow) };
    let Some(stderr) = stderr? else { return Ok(Pumped::TooLong) };
    Ok(Pumped::Whole { stdout, stderr })
}

/// The bytes of `pipe`; `None` if there are more than `limit`.
fn all_of(pipe: Option<impl Read>, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(limit + 1).read_to_end(&mut bytes)?;
    }
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// Asks the group of `child` to end, so that git removes its lock files, and kills it if it does not.
fn end(child: &mut Child) {
    // It leads a group of its own; gone already is as good.
    let group = i32::try_from(child.id()).ok().map(Pid::from_raw);
    let signal = |signal| {
        if let Some(group) = group {
            let _ = killpg(group, signal);
        }
    };
    signal(Signal::SIGTERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(PAUSE);
    }
    signal(Signal::SIGKILL);
    let _ = child.wait();
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
