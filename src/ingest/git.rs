//! Calls git as a subprocess, with a clean environment, without programs of the repository's configuration, and with
//! limits on time and output.
//!
//! It must not know what a project is. The caller chooses the directory and the arguments.

mod commit;
pub(crate) mod network;
mod programs;
pub(crate) mod shallow_copy;

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, ErrorKind, Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

pub use self::{
    commit::{CommitId, InvalidCommitId},
    programs::{DisabledProgram, ProgramKind},
};
use self::{network::NetworkAccess, programs::ConfiguredPrograms};
use ingestdeck_core::diagnostic::Diagnostic;
use ingestdeck_os::{
    group_guard::{self, CommandGuard},
    program_path,
};

/// The first release that reads `GIT_CONFIG_COUNT`, which disables the programs of a configuration.
const MIN_VERSION: (u32, u32) = (2, 31);

/// Limits of one call.
#[derive(Clone, Copy, Debug)]
struct GitCallLimits {
    time: Duration,
    /// Most bytes on stdout, and on stderr.
    output: u64,
}

const LIMITS: GitCallLimits = GitCallLimits {
    time: Duration::from_secs(120),
    output: 256 << 20,
};

/// Limits for reading the version, and the configuration, which is the first call in every directory.
const CONFIG_LIMITS: GitCallLimits = GitCallLimits {
    time: Duration::from_secs(10),
    output: 4 << 20,
};

/// Time that git has to remove its lock files after a timeout, before it is killed.
const TERMINATE_GRACE: Duration = Duration::from_secs(2);
/// How often the process is polled during that time.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Most bytes of stderr that an error contains.
const MAX_STDERR_BYTES: usize = 400;

/// Settings that override the configuration of the user and of the repository. They prevent programs, prompts, signing,
/// background maintenance and conversions of file contents.
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
    "diff.suppressBlankEmpty=false",
    "core.preferSymlinkRefs=false",
    "core.commentChar=#",
    "core.abbrev=no",
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

/// Settings of a sparse worktree. Its index is short-lived, so it has no checksum: that takes longer with each file.
const SPARSE_SETTINGS: &[&str] = &[
    "core.sparseCheckout=true",
    "core.sparseCheckoutCone=false",
    "index.skipHash=true",
    // Without a checksum, a split index does not find its other part.
    "core.splitIndex=false",
];

/// Environment variables that choose programs, in addition to those that begin with `GIT_`.
const PROGRAM_VARIABLES: &[&str] = &[
    "EDITOR",
    "VISUAL",
    "PAGER",
    "SSH_ASKPASS",
    "LESS",
    "LV",
    "PREFIX",
    "LANGUAGE",
];

const COMMITTER_NAME: &str = "ktx Local";
pub(super) const COMMITTER_EMAIL: &str = "local@ktx.local";

/// A git call failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// git is not installed.
    #[error("git is not on the PATH, and every run needs it")]
    Missing,
    /// git is too old for this program.
    #[error("git {}.{} or newer is needed, this is {found}", MIN_VERSION.0, MIN_VERSION.1)]
    TooOld {
        /// Version of the installed git, escaped.
        found: String,
    },
    /// git cannot be started, or its pipes fail.
    #[error("git {subcommand} cannot run: {cause}")]
    Io {
        subcommand: String,
        #[source]
        cause: io::Error,
    },
    /// git exited with an error.
    #[error("git {subcommand} failed{}", stderr_suffix(stderr))]
    Failed {
        subcommand: String,
        /// The end of stderr, on one line.
        stderr: String,
    },
    /// The call exceeded its time limit and was ended.
    #[error("git {subcommand} did not end within {} s", limit.as_secs())]
    TimedOut { subcommand: String, limit: Duration },
    /// git did not print its version within the time limit.
    #[error("git --version did not answer within {} s", limit.as_secs())]
    VersionTimedOut { limit: Duration },
    /// Reading the configuration exceeded its time limit.
    #[error("git did not read its configuration within {} s", limit.as_secs())]
    ConfigTimedOut { limit: Duration },
    /// The output exceeded its limit and the call was ended.
    #[error("git {subcommand} printed more than {} MiB", limit >> 20)]
    OutputTooLarge {
        subcommand: String,
        /// Most bytes of output.
        limit: u64,
    },
    /// The configuration is too large.
    #[error("the git configuration has more than {} MiB", limit >> 20)]
    ConfigTooLarge {
        /// Most bytes of the configuration.
        limit: u64,
    },
    /// git ignores the environment variables that disable programs.
    #[error(
        "git ignores settings in its environment (GIT_CONFIG_COUNT), so programs of the repository could not be \
         disabled"
    )]
    OverridesIgnored {
        /// Path of the installed git.
        program: PathBuf,
    },
    /// The configuration names more programs than can be disabled.
    #[error("the git configuration names too many filters, drivers and hooks to disable them all")]
    TooManyPrograms,
    /// git reads the file before an option can disable it, and its error quotes a line of the file.
    #[error(
        "git blame failed: the file of the setting `blame.ignoreRevsFile` is not a list of commits"
    )]
    InvalidIgnoreRevsFile,
    /// The output is not a commit id.
    #[error("git {subcommand} printed no valid commit id: {cause}")]
    NotACommitId {
        subcommand: String,
        cause: InvalidCommitId,
    },
}

impl Diagnostic for GitError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Missing => format!("install git{}", program_path::skipped_note()),
            Self::TooOld { .. } => "update git".into(),
            Self::VersionTimedOut { .. } => {
                let program = program().map_or_else(|_| "git".into(), |program| program.display().to_string());
                format!("check the git that is first on the PATH: {program}")
            }
            Self::TimedOut { .. } => "check for a slow or blocked disk, then try again".into(),
            Self::ConfigTimedOut { .. } => {
                let place = "in `.git/config` and in your own configuration";
                format!("look for an `include.path` that names a pipe or a file on an unreachable disk, {place}")
            }
            Self::OutputTooLarge { .. } => "remove very large or very many files from the repository".into(),
            Self::ConfigTooLarge { .. } => {
                "remove what is not needed from `.git/config` and from the files that it includes".into()
            }
            Self::OverridesIgnored { program } => format!(
                "put git itself first on the PATH instead of a wrapper that changes its environment: {}",
                program.display()
            ),
            Self::Failed { subcommand, stderr } if subcommand == "blame" && stderr.contains("object name list") => {
                "create that file, or correct `blame.ignoreRevsFile` in your git configuration".into()
            }
            Self::InvalidIgnoreRevsFile => {
                "correct or unset it: `git config --show-origin --get-all blame.ignoreRevsFile` names the file".into()
            }
            Self::TooManyPrograms => "remove those that are not needed from `.git/config`".into(),
            Self::Io { .. } | Self::Failed { .. } | Self::NotACommitId { .. } => return None,
        })
    }
}

fn stderr_suffix(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!(": {stderr}")
    }
}

/// Result of a call that ran to its end.
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
pub struct Git {
    program: &'static Path,
    dir: PathBuf,
    /// Arguments that name the repository; empty if git finds it in `dir`.
    location: &'static [&'static str],
    /// Programs of the configuration, which every call disables.
    configured_programs: Arc<ConfiguredPrograms>,
    /// Settings of this directory in addition to [`FORCED_SETTINGS`].
    extra_settings: &'static [&'static str],
    /// `None`: calls do not use the network.
    network: Option<Arc<NetworkAccess>>,
    limits: GitCallLimits,
}

/// Path of the installed git, looked up once.
fn program() -> Result<&'static Path, GitError> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| program_path::find("git"))
        .as_deref()
        .ok_or(GitError::Missing)
}

/// Version text of the installed git, queried once.
///
/// # Errors
/// When git is missing or too old.
pub fn version() -> Result<&'static str, GitError> {
    static VERSION: OnceLock<String> = OnceLock::new();
    let text = match VERSION.get() {
        Some(text) => text,
        None => {
            let text =
                Git::open_unchecked(Path::new("/"), CONFIG_LIMITS)?.run_for_line(&["--version"]);
            let text = text.map_err(|error| match error {
                GitError::TimedOut { limit, .. } => GitError::VersionTimedOut { limit },
                error => error,
            })?;
            VERSION.get_or_init(|| text)
        }
    };
    check_version(text).map(|()| text.as_str())
}

/// Accepts a text without a version number, because distributions may change it.
fn check_version(text: &str) -> Result<(), GitError> {
    let found = text
        .strip_prefix("git version ")
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_default();
    let mut numbers = found.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < MIN_VERSION => Err(GitError::TooOld {
            found: found.escape_debug().to_string(),
        }),
        _ => Ok(()),
    }
}

impl Git {
    /// Opens git in `dir`, the top of a working tree. Reads which programs the configuration names, so that calls can
    /// disable them.
    pub fn open(dir: &Path) -> Result<Self, GitError> {
        Self::open_at(dir, &[])
    }

    /// As [`open`](Self::open), with the arguments that name the repository, which git does not search for then.
    pub(super) fn open_at(dir: &Path, location: &'static [&'static str]) -> Result<Self, GitError> {
        version()?;
        Self::open_with(program()?, dir, location, CONFIG_LIMITS)
    }

    fn open_with(
        program: &'static Path,
        dir: &Path,
        location: &'static [&'static str],
        limits: GitCallLimits,
    ) -> Result<Self, GitError> {
        let git = Self {
            program,
            location,
            configured_programs: Arc::new(ConfiguredPrograms::probe()),
            ..Self::open_unchecked(dir, limits)?
        };
        let listed = git
            .run(programs::LIST_CONFIG_ARGS)
            .map_err(|error| match error {
                GitError::TimedOut { limit, .. } => GitError::ConfigTimedOut { limit },
                GitError::OutputTooLarge { limit, .. } => GitError::ConfigTooLarge { limit },
                error => error,
            })?;
        let programs = ConfiguredPrograms::parse(&listed).map_err(|error| match error {
            programs::DisableError::TooManyPrograms => GitError::TooManyPrograms,
            programs::DisableError::OverridesIgnored => GitError::OverridesIgnored {
                program: program.to_path_buf(),
            },
        })?;
        Ok(Self {
            configured_programs: Arc::new(programs),
            limits: LIMITS,
            ..git
        })
    }

    fn open_unchecked(dir: &Path, limits: GitCallLimits) -> Result<Self, GitError> {
        Ok(Self {
            program: program()?,
            dir: dir.to_path_buf(),
            location: &[],
            configured_programs: Arc::default(),
            extra_settings: &[],
            network: None,
            limits,
        })
    }

    /// Lets calls use the network as `access` allows.
    pub(crate) fn with_network(self, access: NetworkAccess) -> Self {
        Self {
            extra_settings: network::SETTINGS,
            limits: access.limits,
            network: Some(Arc::new(access)),
            ..self
        }
    }

    /// Replaces the time limit of each call.
    pub(crate) fn with_time_limit(self, time: Duration) -> Self {
        Self {
            limits: GitCallLimits {
                time,
                ..self.limits
            },
            ..self
        }
    }

    /// Opens git in `dir`, the top of a sparse working tree.
    pub(crate) fn open_sparse(dir: &Path) -> Result<Self, GitError> {
        Ok(Self {
            extra_settings: SPARSE_SETTINGS,
            ..Self::open(dir)?
        })
    }

    /// Programs that the repository configures and that calls disable, sorted.
    pub(crate) fn disabled_programs(&self) -> impl Iterator<Item = &DisabledProgram> {
        self.configured_programs.repository_programs.iter()
    }

    /// Whether git would run the hooks of `.git/hooks` if hooks were not disabled.
    pub(crate) fn has_own_hooks(&self) -> bool {
        !self.configured_programs.replaces_hooks
    }

    /// The commit id that a call prints. Fails unless the call succeeds.
    pub(crate) fn run_for_commit(&self, args: &[&str]) -> Result<CommitId, GitError> {
        CommitId::parse(&self.run_for_line(args)?).map_err(|cause| GitError::NotACommitId {
            subcommand: what(args),
            cause,
        })
    }

    /// As [`run_for_commit`](Self::run_for_commit), for a call that reads `input`.
    pub(crate) fn run_for_commit_with_input(
        &self,
        args: &[&str],
        input: &[u8],
    ) -> Result<CommitId, GitError> {
        let stdout = self.run_with_input(args, input)?;
        CommitId::parse(String::from_utf8_lossy(&stdout).trim_end()).map_err(|cause| {
            GitError::NotACommitId {
                subcommand: what(args),
                cause,
            }
        })
    }

    /// Stdout of a call. Fails unless the call succeeds.
    pub fn run(&self, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.run_with_input(args, &[])
    }

    /// The first line of stdout of a call. Fails unless the call succeeds.
    pub(crate) fn run_for_line(&self, args: &[&str]) -> Result<String, GitError> {
        let stdout = self.run(args)?;
        Ok(String::from_utf8_lossy(&stdout)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned())
    }

    /// Stdout of a call that reads `input`. Fails unless the call succeeds.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        let answer = self.try_run_with_input(args, input)?;
        if answer.success {
            return Ok(answer.stdout);
        }
        Err(GitError::Failed {
            subcommand: what(args),
            stderr: answer.stderr,
        })
    }

    /// Result of a call that may exit with an error.
    pub(crate) fn try_run(&self, args: &[&str]) -> Result<GitOutput, GitError> {
        self.try_run_with_input(args, &[])
    }

    /// Result of a call that reads `input` and may exit with an error.
    pub(crate) fn try_run_with_input(
        &self,
        args: &[&str],
        input: &[u8],
    ) -> Result<GitOutput, GitError> {
        let started = Instant::now();
        let answer = self.answer(args, input);
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Log only the subcommand: messages, paths and branches may be confidential.
        match &answer {
            Ok(answer) => {
                tracing::debug!(command = what(args), ms, code = answer.code, "git ended")
            }
            Err(error) => tracing::debug!(command = what(args), ms, %error, "git failed"),
        }
        answer
    }

    fn answer(&self, args: &[&str], input: &[u8]) -> Result<GitOutput, GitError> {
        let failed = |cause| GitError::Io {
            subcommand: what(args),
            cause,
        };
        let mut command = self.command(args, !input.is_empty());
        let mut guard = CommandGuard::announce(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        guard.started(child.id());
        // The outputs stay open until the end of the process, which may print while it ends.
        let mut outputs = [
            OutputPipe::new(child.stdout.take()),
            OutputPipe::new(child.stderr.take()),
        ];
        let pumped = pump(child.stdin.take(), &mut outputs, input, self.limits);
        match pumped.inspect_err(|_| end(&mut child)).map_err(failed)? {
            PipeReadOutcome::Complete => {}
            unfinished => {
                end(&mut child);
                let (what, GitCallLimits { time, output }) = (what(args), self.limits);
                return Err(match unfinished {
                    PipeReadOutcome::TooLarge => GitError::OutputTooLarge {
                        subcommand: what,
                        limit: output,
                    },
                    _ => GitError::TimedOut {
                        subcommand: what,
                        limit: time,
                    },
                });
            }
        }
        let status = child.wait().map_err(failed)?;
        let [stdout, stderr] = outputs.map(|output| output.bytes);
        Ok(GitOutput {
            success: status.success(),
            code: status.code(),
            stdout,
            stderr: stderr_tail(&stderr),
        })
    }

    fn command(&self, args: &[&str], has_input: bool) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(self.program);
        command
            .arg("--no-pager")
            .args(
                FORCED_SETTINGS
                    .iter()
                    .chain(self.extra_settings)
                    .flat_map(|setting| ["-c", setting]),
            )
            .args(self.location)
            .args(args);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GIT_")
                || text.starts_with("LC_")
                || PROGRAM_VARIABLES.contains(&text.as_ref())
            {
                command.env_remove(&name);
            }
        }
        command
            // Messages must be in English, because this module parses some of them.
            .env("LC_ALL", "C.UTF-8")
            .env("PATH", program_path::search_path())
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_EDITOR", "false")
            // Without these, a partial clone would fetch missing objects with programs that its configuration names.
            // Releases before 2.44 ignore the first of the two.
            .env("GIT_NO_LAZY_FETCH", "1")
            .env(
                "GIT_ALLOW_PROTOCOL",
                self.network.as_ref().map_or("none", |_| network::PROTOCOLS),
            )
            // Objects are read as they are, whatever the repository puts in their place.
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_GRAFT_FILE", "/dev/null/grafts")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", COMMITTER_NAME)
            .env("GIT_AUTHOR_EMAIL", COMMITTER_EMAIL)
            .env("GIT_COMMITTER_NAME", COMMITTER_NAME)
            .env("GIT_COMMITTER_EMAIL", COMMITTER_EMAIL);
        // Do not use a repository of a parent directory. git reads a list that `:` separates, so a path with a `:` is not
        // covered: calls that use the network name their repository.
        if let Some(parent) = self.dir.parent() {
            command.env("GIT_CEILING_DIRECTORIES", parent);
        }
        // The command line cannot express keys that contain a `=`.
        let mut count = 0;
        let mut set = |key: &OsStr, value: &OsStr| {
            command
                .env(format!("GIT_CONFIG_KEY_{count}"), key)
                .env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        };
        for (key, value) in &self.configured_programs.overrides {
            set(key, value);
        }
        if let Some(network) = &self.network {
            for (key, value) in &network.settings {
                set(key.as_ref(), value.as_ref());
            }
            network.prepare(&mut command);
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        let stdin = if has_input {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        command
            .current_dir(&self.dir)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C on the terminal must not interrupt git, which has to finish what it started.
        command.process_group(0);
        // With a guard, a plain command starts without a copy of this process, which is several times faster. SIGTERM,
        // because git then removes its lock files.
        if !group_guard::is_running() {
            group_guard::set_parent_death_signal(&mut command, Signal::SIGTERM);
        }
        command
    }
}

/// How reading the outputs of a call ended.
enum PipeReadOutcome {
    Complete,
    /// One of the outputs exceeds its limit.
    TooLarge,
    TimedOut,
}

/// Writes `input` to `stdin` and reads both outputs to their ends, within `limits`.
fn pump(
    mut stdin: Option<ChildStdin>,
    outputs: &mut [OutputPipe; 2],
    input: &[u8],
    limits: GitCallLimits,
) -> io::Result<PipeReadOutcome> {
    let deadline = Instant::now() + limits.time;
    if let Some(pipe) = &stdin {
        // Only this end of the pipe: git must not read it in this mode.
        fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    let mut unwritten = input;
    while outputs.iter().any(|output| output.pipe.is_some()) {
        let mut pipes: Vec<PollFd<'_>> = outputs
            .iter()
            .filter_map(|output| {
                Some(PollFd::new(
                    output.pipe.as_ref()?.as_fd(),
                    PollFlags::POLLIN,
                ))
            })
            .chain(
                stdin
                    .iter()
                    .map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)),
            )
            .collect();
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(
            &mut pipes,
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(0) if Instant::now() >= deadline => return Ok(PipeReadOutcome::TimedOut),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready: Vec<bool> = pipes
            .iter()
            .map(|pipe| pipe.any().unwrap_or_default())
            .collect();
        let mut is_ready = is_ready.into_iter();
        for output in outputs.iter_mut() {
            if output.pipe.is_some()
                && is_ready.next() == Some(true)
                && !output.read(limits.output)?
            {
                return Ok(PipeReadOutcome::TooLarge);
            }
        }
        if let Some(pipe) = &mut stdin
            && is_ready.next() == Some(true)
        {
            match pipe.write(unwritten) {
                Ok(written) => unwritten = unwritten.get(written..).unwrap_or_default(),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // A process that stops reading reports the reason on stderr.
                Err(_) => unwritten = &[],
            }
            if unwritten.is_empty() {
                stdin = None;
            }
        }
    }
    Ok(PipeReadOutcome::Complete)
}

/// What a call prints on one of its outputs.
struct OutputPipe {
    /// `None` at the end of the output.
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl OutputPipe {
    fn new(pipe: Option<impl Into<OwnedFd>>) -> Self {
        Self {
            pipe: pipe.map(|pipe| File::from(pipe.into())),
            bytes: Vec::new(),
        }
    }

    /// Reads what has arrived. Returns false if there are more than `limit` bytes.
    fn read(&mut self, limit: u64) -> io::Result<bool> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(true);
        };
        let mut chunk = [0; 1 << 14];
        match pipe.read(&mut chunk) {
            Ok(0) => self.pipe = None,
            Ok(length) => self
                .bytes
                .extend_from_slice(chunk.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(self.bytes.len() as u64 <= limit)
    }
}

/// Terminates the process group of `child`, so that git removes its lock files, and kills it after [`TERMINATE_GRACE`].
fn end(child: &mut Child) {
    // The child leads its own process group. Signals to a group that has ended are harmless.
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
    args.iter()
        .take_while(|arg| !arg.starts_with('-'))
        .take(2)
        .copied()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The end of stderr, on one line.
fn stderr_tail(stderr: &[u8]) -> String {
    let mut text = String::new();
    for line in String::from_utf8_lossy(stderr)
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        // A line such as `To add an exception, call:` continues on the next one.
        text.push_str(match text.as_str() {
            "" => "",
            before if before.ends_with(':') => " ",
            _ => "; ",
        });
        text.push_str(line);
    }
    let from = text
        .char_indices()
        .rev()
        .nth(MAX_STDERR_BYTES)
        .map_or(0, |(at, _)| at);
    text[from..]
        .escape_debug()
        .to_string()
        .replace("\\'", "'")
        .replace("\\\"", "\"")
}

#[cfg(test)]
pub(crate) mod tests;
