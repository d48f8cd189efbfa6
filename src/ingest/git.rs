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

use self::programs::ConfiguredPrograms;
pub use self::{
    commit::{CommitId, InvalidCommitId},
    programs::{DisabledProgram, ProgramKind},
};
use crate::{group_guard, program_path};

/// The first release that reads `GIT_CONFIG_COUNT`, by which the programs of a configuration are disabled.
const MIN_VERSION: (u32, u32) = (2, 31);

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
const TERMINATE_GRACE: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes of stderr that an error tells.
const MAX_STDERR_BYTES: usize = 400;

/// Settings that hold whatever the user's or the repository's configuration says. Nothing may run, ask, sign, clean up
/// behind our back or change bytes on their way.
const FORCED_SETTINGS: &[&str] = &[
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
const SPARSE_SETTINGS: &[&str] = &["core.sparseCheckout=true", "core.sparseCheckoutCone=false"];

/// Variables of the environment that choose programs, beside those that begin with `GIT_`.
const PROGRAM_VARIABLES: &[&str] = &["EDITOR", "VISUAL", "PAGER", "SSH_ASKPASS", "LESS", "LV", "PREFIX", "LANGUAGE"];

/// Who commits.
const COMMITTER_NAME: &str = "ktx Local";
pub(super) const COMMITTER_EMAIL: &str = "local@ktx.local";

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
    #[error("git {}.{} or newer is needed, this is {found}; update git", MIN_VERSION.0, MIN_VERSION.1)]
    TooOld {
        /// Its version, escaped.
        found: String,
    },
    /// It does not start, or breaks off.
    #[error("git {subcommand} cannot run: {cause}")]
    Io {
        /// Its subcommand.
        subcommand: String,
        #[source]
        cause: io::Error,
    },
    /// It said no.
    #[error("git {subcommand} failed{}", stderr_suffix(stderr))]
    Failed {
        /// Its subcommand.
        subcommand: String,
        /// The end of what it said.
        stderr: String,
    },
    /// It took too long and was ended.
    #[error("git {subcommand} did not end within {} s; look for what holds up the disk, then try again", limit.as_secs())]
    TimedOut {
        /// Its subcommand.
        subcommand: String,
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
        "git {subcommand} printed more than {} MiB; remove very large or very many files from the repository",
        limit >> 20
    )]
    OutputTooLarge {
        /// Its subcommand.
        subcommand: String,
        /// Bytes that it may print.
        limit: u64,
    },
    /// The configuration is too large.
    #[error(
        "the git configuration has more than {} MiB; remove what is not needed from `.git/config` and from the files \
         that it includes", limit >> 20
    )]
    ConfigTooLarge {
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
    #[error("git {subcommand} named no commit: {cause}")]
    NotACommitId {
        /// Its subcommand.
        subcommand: String,
        cause: InvalidCommitId,
    },
}

fn stderr_suffix(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}

/// What a call answered.
#[derive(Debug)]
pub(crate) struct GitOutput {
    /// True for exit code 0.
    pub(crate) success: bool,
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
    configured_programs: Arc<ConfiguredPrograms>,
    /// What holds in this directory beside [`FORCED_SETTINGS`].
    extra_settings: &'static [&'static str],
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
    static VERSION: OnceLock<String> = OnceLock::new();
    let said = match VERSION.get() {
        Some(said) => said,
        None => {
            let said = Git::open_unchecked(Path::new("/"), LIMITS)?.run_for_line(&["--version"])?;
            VERSION.get_or_init(|| said)
        }
    };
    check_version(said).map(|()| said.as_str())
}

/// Accepts what does not look like a version: a distribution may choose the text.
fn check_version(said: &str) -> Result<(), GitError> {
    let found = said.strip_prefix("git version ").and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    let mut numbers = found.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < MIN_VERSION => {
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
        let git = Self {
            program,
            configured_programs: Arc::new(ConfiguredPrograms::probe()),
            ..Self::open_unchecked(dir, limits)?
        };
        let listed = git.run(programs::LIST_CONFIG_ARGS).map_err(|error| match error {
            GitError::TimedOut { limit, .. } => GitError::ConfigTimedOut { limit },
            GitError::OutputTooLarge { limit, .. } => GitError::ConfigTooLarge { limit },
            error => error,
        })?;
        let programs = ConfiguredPrograms::parse(&listed).map_err(|error| match error {
            programs::DisableError::TooManyPrograms => GitError::TooManyPrograms,
            programs::DisableError::OverridesIgnored => GitError::OverridesIgnored { program: program.to_path_buf() },
        })?;
        Ok(Self { configured_programs: Arc::new(programs), limits: LIMITS, ..git })
    }

    fn open_unchecked(dir: &Path, limits: CallLimits) -> Result<Self, GitError> {
        Ok(Self {
            program: program()?,
            dir: dir.to_path_buf(),
            configured_programs: Arc::default(),
            extra_settings: &[],
            limits,
        })
    }

    /// git in `dir`, which is the top of a working tree that holds only what its list of patterns names.
    pub(crate) fn open_sparse(dir: &Path) -> Result<Self, GitError> {
        Ok(Self { extra_settings: SPARSE_SETTINGS, ..Self::open(dir)? })
    }

    /// Programs that the repository configures and that are not run, sorted.
    pub(crate) fn disabled_programs(&self) -> impl Iterator<Item = &DisabledProgram> {
        self.configured_programs.repository_programs.iter()
    }

    /// Whether git would start hooks of `.git/hooks` if hooks were not disabled.
    pub(crate) fn has_own_hooks(&self) -> bool {
        !self.configured_programs.replaces_hooks
    }

    /// The commit that a call names, which has to succeed.
    pub(crate) fn run_for_commit(&self, args: &[&str]) -> Result<CommitId, GitError> {
        CommitId::parse(&self.run_for_line(args)?)
            .map_err(|cause| GitError::NotACommitId { subcommand: what(args), cause })
    }

    /// Stdout of a call that has to succeed.
    pub(crate) fn run(&self, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.run_with_input(args, &[])
    }

    /// The first line of stdout of a call that has to succeed.
    pub(crate) fn run_for_line(&self, args: &[&str]) -> Result<String, GitError> {
        let stdout = self.run(args)?;
        Ok(String::from_utf8_lossy(&stdout).lines().next().unwrap_or_default().to_owned())
    }

    /// Stdout of a call that reads `input` and has to succeed.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        let answer = self.try_run_with_input(args, input)?;
        if answer.success {
            return Ok(answer.stdout);
        }
        Err(GitError::Failed { subcommand: what(args), stderr: answer.stderr })
    }

    /// A call that may say no.
    pub(crate) fn try_run(&self, args: &[&str]) -> Result<GitOutput, GitError> {
        self.try_run_with_input(args, &[])
    }

    /// A call that reads `input` and may say no.
    pub(crate) fn try_run_with_input(&self, args: &[&str], input: &[u8]) -> Result<GitOutput, GitError> {
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

    fn answer(&self, args: &[&str], input: &[u8]) -> Result<GitOutput, GitError> {
        let failed = |cause| GitError::Io { subcommand: what(args), cause };
        let mut child = self.command(args, !input.is_empty()).spawn().map_err(failed)?;
        let _guarded = GitProcessGroup::new(&child);
        let (stdout, stderr) = match pump(&mut child, input, self.limits).map_err(failed)? {
            PumpOutcome::Complete { stdout, stderr } => (stdout, stderr),
            unfinished => {
                end(&mut child);
                let (what, CallLimits { time, output }) = (what(args), self.limits);
                return Err(match unfinished {
                    PumpOutcome::TooLarge => GitError::OutputTooLarge { subcommand: what, limit: output },
                    _ => GitError::TimedOut { subcommand: what, limit: time },
                });
            }
        };
        let status = child.wait().map_err(failed)?;
        Ok(GitOutput { success: status.success(), code: status.code(), stdout, stderr: stderr_tail(&stderr) })
    }

    fn command(&self, args: &[&str], has_input: bool) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(self.program);
        command
            .arg("--no-pager")
            .args(FORCED_SETTINGS.iter().chain(self.extra_settings).flat_map(|setting| ["-c", setting]))
            .args(args);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GIT_") || text.starts_with("LC_") || PROGRAM_VARIABLES.contains(&text.as_ref()) {
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
            .env("GIT_AUTHOR_NAME", COMMITTER_NAME)
            .env("GIT_AUTHOR_EMAIL", COMMITTER_EMAIL)
            .env("GIT_COMMITTER_NAME", COMMITTER_NAME)
            .env("GIT_COMMITTER_EMAIL", COMMITTER_EMAIL);
        // A repository above is not this project's.
        if let Some(parent) = self.dir.parent() {
            command.env("GIT_CEILING_DIRECTORIES", parent);
        }
        // The command line cannot name keys that hold a `=`.
        let overrides = &self.configured_programs.overrides;
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
struct GitProcessGroup(Option<Pid>);

impl GitProcessGroup {
    fn new(child: &Child) -> Self {
        let leader = i32::try_from(child.id()).ok().map(Pid::from_raw);
        leader.into_iter().for_each(group_guard::watch_git);
        Self(leader)
    }
}

impl Drop for GitProcessGroup {
    fn drop(&mut self) {
        self.0.into_iter().for_each(group_guard::unwatch);
    }
}

/// What became of both outputs of a call.
enum PumpOutcome {
    Complete {
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    },
    /// One of them is longer than it may be.
    TooLarge,
    TimedOut,
}

/// Writes `input` and reads both outputs to their ends, within `limits`.
fn pump(child: &mut Child, input: &[u8], limits: CallLimits) -> io::Result<PumpOutcome> {
    let deadline = Instant::now() + limits.time;
    let (stdout, stderr, stdin) = (child.stdout.take(), child.stderr.take(), child.stdin.take());
    let (out, outs) = mpsc::channel();
    let (err, errs) = mpsc::channel();
    // The threads end with the pipes: at the latest when the process group is killed.
    thread::Builder::new().spawn(move || drop(out.send(read_to_limit(stdout, limits.output))))?;
    thread::Builder::new().spawn(move || drop(err.send(read_to_limit(stderr, limits.output))))?;
    if let Some(mut stdin) = stdin {
        let input = input.to_vec();
        // Whoever does not read to the end says why on stderr.
        thread::Builder::new().spawn(move || drop(stdin.write_all(&input)))?;
    }
    let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    let Ok(stdout) = outs.recv_timeout(left(deadline)) else { return Ok(PumpOutcome::TimedOut) };
    let Some(stdout) = stdout? else { return Ok(PumpOutcome::TooLarge) };
    let Ok(stderr) = errs.recv_timeout(left(deadline)) else { return Ok(PumpOutcome::TimedOut) };
    let Some(stderr) = stderr? else { return Ok(PumpOutcome::TooLarge) };
    Ok(PumpOutcome::Complete { stdout, stderr })
}

/// The bytes of `pipe`; `None` if there are more than `limit`.
fn read_to_limit(pipe: Option<impl Read>, limit: u64) -> io::Result<Option<Vec<u8>>> {
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
    let deadline = Instant::now() + TERMINATE_GRACE;
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(POLL_INTERVAL);
    }
    signal(Signal::SIGKILL);
    let _ = child.wait();
}

/// The subcommand, for messages.
fn what(args: &[&str]) -> String {
    args.iter().take_while(|arg| !arg.starts_with('-')).take(2).copied().collect::<Vec<_>>().join(" ")
}

/// The end of what was said, on one line.
fn stderr_tail(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ");
    let from = text.char_indices().rev().nth(MAX_STDERR_BYTES).map_or(0, |(at, _)| at);
    text[from..].escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"")
}

#[cfg(test)]
pub(crate) mod tests;
