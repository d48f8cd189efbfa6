//! The git repository of a project: whether a run may commit to it, and the current commit of its branch.
//!
//! A run uses the project's own repository, or a [`private`] one if neither the project nor a parent directory has one.
//! This module must not know units.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory of the project, and those above it"
)]

mod converted_files;
pub mod private;
mod target_branch;
mod unsafe_entries;

use ingestdeck_core::{diagnostic::Diagnostic, run::commit_trailers::NOTES_REF};
use ingestdeck_os::scoped_dir::{self, FileKind, FileLock, ScopedDir};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

pub(super) use self::converted_files::first_converted;
pub use self::converted_files::{ConvertedFile, PATH_PLACEHOLDER};
pub(super) use self::target_branch::{BranchUse, TargetBranchError};
use self::unsafe_entries::UnsafeEntry;
use super::{
    git::{self, CommitId, DisabledProgram, Git, GitError, ProgramKind},
    line_budget::first_names,
    local_record::UntrustedRecord,
};

/// Files and directories of a repository that exist during an unfinished operation.
const OPERATION_MARKERS: &[(&str, &str)] = &[
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
];

/// Directory of the user's repository, relative to the project.
const USER_GIT_DIR: &str = ".git";

/// Lock of the run that uses the repository, relative to its git directory. It is not in the
/// working tree, so that `git clean` keeps it.
const LOCK_FILE: &str = "ingestdeck/lock";
/// Journal of a branch update, relative to the git directory.
pub(super) const UPDATE_JOURNAL_FILE: &str = "ingestdeck/branch-update.json";

/// Directories below `.ktx` that must not be committed.
const STATE_DIRS: &[&str] = &[
    ".ktx/ingestdeck",
    WORKTREES_DIR,
    PATCHES_DIR,
    ".ktx/ingest-transcripts",
    ".ktx/ingest-traces",
];

/// Directory of the worktrees, relative to the project.
pub(super) const WORKTREES_DIR: &str = ".ktx/worktrees";
/// Directory of the patches, relative to the project.
pub const PATCHES_DIR: &str = ".ktx/ingest-patches";

/// Most paths that a message lists.
const MAX_LISTED: usize = 3;

/// The repository cannot be used by a run.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// The project is inside a larger repository.
    #[error(
        "{} is inside the git repository {top}, and a run commits only to a repository of the project's own",
        project.display(), top = top.display()
    )]
    EnclosingRepository {
        project: PathBuf,
        /// Top directory of the larger repository.
        top: PathBuf,
    },
    /// `.git` is a file.
    #[error(
        "{} is a linked worktree or a submodule, and a run commits only to a repository of the project's own",
        project.display()
    )]
    LinkedWorktree { project: PathBuf },
    /// The configuration redirects the repository to other directories.
    #[error("the git repository of {} has its files elsewhere", project.display())]
    ExternalFiles { project: PathBuf },
    /// A symbolic link in a place where git would follow it.
    #[error("`{}` is a symbolic link, and git would follow it", path.escape_debug())]
    SymbolicLink {
        /// Relative to the project.
        path: String,
    },
    /// HEAD is a symbolic link, as created by `core.preferSymlinkRefs`.
    #[error("`.git/HEAD` is a symbolic link")]
    SymlinkedHead,
    /// A named pipe or device on which git would block.
    #[error("`{}` is not a regular file, and git would wait for it", path.escape_debug())]
    NamedPipe {
        /// Relative to the project.
        path: String,
    },
    /// Another run holds the lock.
    #[error("another run uses the git repository of {}", project.display())]
    InUse { project: PathBuf },
    /// The repository has no commit.
    #[error("the git repository of {} has no commit yet", project.display())]
    Unborn { project: PathBuf },
    /// A merge, rebase or similar operation is not finished.
    #[error("{operation} is not finished in {}", project.display())]
    OperationInProgress {
        project: PathBuf,
        operation: &'static str,
    },
    /// The directories that units write to contain uncommitted changes.
    #[error("{} not committed", join_paths(paths))]
    Dirty {
        /// Relative to the project.
        paths: Vec<String>,
    },
    /// A file that a run writes has a git filter or another encoding than UTF-8.
    #[error(transparent)]
    ConvertedFile(ConvertedFile),
    /// The private repository was not created here, and an update of the project through it was interrupted.
    #[error("`{}` is not trusted: {reason}", private::DIR)]
    UntrustedPrivate { reason: UntrustedRecord },
    /// The files of a project without git cannot be recorded.
    #[error("cannot record the state of wiki/ and semantic-layer/: {cause}")]
    Recording { cause: GitError },
    #[error(transparent)]
    TargetBranch(#[from] TargetBranchError),
    /// A git call failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A system call failed.
    #[error("cannot use the git repository of {}: {cause}", project.display())]
    Io { project: PathBuf, cause: io::Error },
}

impl Diagnostic for RepositoryError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::EnclosingRepository { top, .. } => format!(
                "make one with `git init && git add -A && git commit -m start` in the project ({} keeps tracking its \
                 files), or move the project out of it",
                top.display()
            ),
            Self::LinkedWorktree { project } => format!(
                "run in the main working tree, or in a clone: `git clone {} DIR`, run in DIR, then `git pull DIR` here",
                shell_word(project)
            ),
            Self::ExternalFiles { .. } => {
                "unset core.worktree and core.bare in it, and delete `.git/commondir`".into()
            }
            Self::SymbolicLink { .. } => "replace it with what it points to, then try again".into(),
            Self::SymlinkedHead => {
                "run `git config core.preferSymlinkRefs false` and `git symbolic-ref HEAD \
                                    \"$(git symbolic-ref HEAD)\"`, then try again"
                    .into()
            }
            Self::NamedPipe { .. } => "remove it, then try again".into(),
            Self::InUse { .. } => "wait for it or stop it, then try again".into(),
            Self::Unborn { .. } => "make the first one with `git add -A && git commit`".into(),
            Self::OperationInProgress { .. } => "finish or abort it, then try again".into(),
            Self::Dirty { paths } => {
                let them = if paths.len() == 1 { "it" } else { "them" };
                format!("commit or stash {them}, then try again")
            }
            Self::ConvertedFile(file) => return file.help(),
            Self::UntrustedPrivate { .. } => {
                format!(
                    "check wiki/ and semantic-layer/ for missing or half written files, then delete `{}`",
                    private::DIR
                )
            }
            Self::Recording { cause } => {
                let help = format!(
                    "solve what git reports; if the repository is damaged, delete `{}`",
                    private::DIR
                );
                return cause.help().or(Some(format!("{help}, then try again")));
            }
            Self::TargetBranch(error) => return error.help(),
            Self::Git(error) => return error.help(),
            Self::Io { cause, .. } => return scoped_dir::remedy(cause).map(str::to_owned),
        })
    }
}

/// Quotes a path for use in a shell command.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    shlex::try_quote(&path)
        .map(|word| word.into_owned())
        .unwrap_or(path)
}

fn join_paths(paths: &[String]) -> String {
    let shown: Vec<String> = paths
        .iter()
        .map(|path| path.escape_debug().to_string())
        .collect();
    let verb = if paths.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", first_names(&shown, MAX_LISTED))
}

/// The commit and branch that HEAD points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchHead {
    pub commit: CommitId,
    /// Name of the branch; `None` if the HEAD is detached.
    pub branch: Option<String>,
}

/// The repository of a project. git runs in the top directory of the project.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
    /// Relative to the project.
    git_dir: &'static str,
    pub(super) git: Git,
    /// The branch that commits go to, if it is not the current one. Copies share it.
    target: Arc<Mutex<Option<String>>>,
}

impl Repository {
    /// Attaches a note about its attempts to a commit of a run.
    pub(super) fn write_note(&self, commit: &CommitId, note: &str) -> Result<(), GitError> {
        let args = [
            "notes",
            "--ref",
            NOTES_REF,
            "add",
            "--force",
            "--file",
            "-",
            commit.as_str(),
        ];
        self.git.run_with_input(&args, note.as_bytes()).map(drop)
    }

    /// Opens the repository of the project at `root`. `None` if neither the project nor a parent directory has one.
    pub fn find(root: &Path) -> Result<Option<Self>, RepositoryError> {
        let project = || root.to_path_buf();
        let failed = |cause| RepositoryError::Io {
            project: project(),
            cause,
        };
        let top = ScopedDir::open(root).map_err(failed)?;
        match top.kind(".git").map_err(failed)? {
            Some(FileKind::Directory) => {}
            Some(_) => return Err(RepositoryError::LinkedWorktree { project: project() }),
            None => {
                return match enclosing_repository(root) {
                    Some(top) => Err(RepositoryError::EnclosingRepository {
                        project: project(),
                        top,
                    }),
                    None => Ok(None),
                };
            }
        }
        Self::open_checked(root, &top, USER_GIT_DIR).map(Some)
    }

    /// Checks whether a run could open the private repository of the project at `root`. Changes nothing.
    pub fn check_private(root: &Path) -> Result<(), RepositoryError> {
        git::version()?;
        let top = ScopedDir::open(root).map_err(|cause| RepositoryError::Io {
            project: root.to_path_buf(),
            cause,
        })?;
        match private::refusal(&top) {
            Some(reason) => Err(RepositoryError::UntrustedPrivate { reason }),
            None => Ok(()),
        }
    }

    /// Opens the private repository of this installation at `root`, if there is one. Changes nothing.
    pub(super) fn find_private(root: &Path) -> Result<Option<Self>, RepositoryError> {
        let top = ScopedDir::open(root).map_err(|cause| RepositoryError::Io {
            project: root.to_path_buf(),
            cause,
        })?;
        private::is_own(&top)
            .then(|| Self::open_checked(root, &top, private::DIR))
            .transpose()
    }

    /// True if this installation's private repository in `root` has the journal of an interrupted update.
    pub fn has_private_journal(root: &Path) -> bool {
        ScopedDir::open(root).is_ok_and(|top| private::has_own_journal(&top))
    }

    /// Opens the private repository of the project at `root`, created if it is missing. True if it replaces one that
    /// this installation did not create. The project must be locked.
    pub fn open_private(root: &Path) -> Result<(Self, bool), RepositoryError> {
        let failed = |cause| RepositoryError::Io {
            project: root.to_path_buf(),
            cause,
        };
        Self::check_private(root)?;
        let top = ScopedDir::open(root).map_err(failed)?;
        let is_replaced = private::create_or_replace(&top).map_err(failed)?;
        Ok((Self::open_checked(root, &top, private::DIR)?, is_replaced))
    }

    /// Opens the repository in `git_dir` of the project `top` at `root`, unless git could be led out of it.
    fn open_checked(
        root: &Path,
        top: &ScopedDir,
        git_dir: &'static str,
    ) -> Result<Self, RepositoryError> {
        let project = || root.to_path_buf();
        let failed = |cause| RepositoryError::Io {
            project: project(),
            cause,
        };
        match unsafe_entries::find_unsafe_entry(top, git_dir).map_err(failed)? {
            None => {}
            Some(UnsafeEntry::SymbolicLink { path }) if path == ".git/HEAD" => {
                return Err(RepositoryError::SymlinkedHead);
            }
            Some(UnsafeEntry::SymbolicLink { path }) => {
                return Err(RepositoryError::SymbolicLink { path });
            }
            Some(UnsafeEntry::NamedPipe { path }) => {
                return Err(RepositoryError::NamedPipe { path });
            }
        }
        let git = open_git(root, git_dir)?;
        let places = git.try_run(&["rev-parse", "--show-toplevel", "--git-common-dir"])?;
        if !places.success && !places.stderr.contains("work tree") {
            return Err(GitError::Failed {
                subcommand: "rev-parse".into(),
                stderr: places.stderr,
            }
            .into());
        }
        let is_root = |top: &[u8]| {
            let (top, root) = (
                Path::new(OsStr::from_bytes(top)).canonicalize(),
                root.canonicalize(),
            );
            top.and_then(|top| root.map(|root| top == root))
                .unwrap_or(false)
        };
        match places
            .stdout
            .strip_suffix(format!("\n{git_dir}\n").as_bytes())
        {
            Some(top) if places.success && is_root(top) => Ok(Self {
                root: project(),
                git_dir,
                git,
                target: Arc::default(),
            }),
            _ => Err(RepositoryError::ExternalFiles { project: project() }),
        }
    }

    /// Whether it is the [`private`] repository of a project without git.
    pub fn is_private(&self) -> bool {
        self.git_dir == private::DIR
    }

    /// Path of `name` in the git directory, relative to the project.
    pub(super) fn git_path(&self, name: &str) -> String {
        format!("{}/{name}", self.git_dir)
    }

    /// The beginning of a command line that calls git in this repository.
    pub(super) fn git_command(&self) -> &'static str {
        if self.is_private() {
            private::GIT_COMMAND
        } else {
            "git"
        }
    }

    /// Locks the repository against other runs until the lock is dropped.
    pub fn lock(&self) -> Result<FileLock, RepositoryError> {
        let project = || self.root.clone();
        let lock =
            ScopedDir::open(&self.root).and_then(|root| root.try_lock(&self.git_path(LOCK_FILE)));
        let lock = lock.map_err(|cause| RepositoryError::Io {
            project: project(),
            cause,
        })?;
        lock.ok_or_else(|| RepositoryError::InUse { project: project() })
    }

    /// Checks whether [`lock`](Self::lock) can open its file. Changes nothing.
    pub fn check_lock(&self) -> Result<(), RepositoryError> {
        let checked = ScopedDir::open(&self.root)
            .and_then(|root| root.check_open_or_create(&self.git_path(LOCK_FILE)));
        checked.map_err(|cause| RepositoryError::Io {
            project: self.root.clone(),
            cause,
        })
    }

    /// Programs that the repository configures and that calls disable, sorted.
    pub fn disabled_programs(&self) -> BTreeSet<DisabledProgram> {
        let hooks = ScopedDir::open(&self.root)
            .and_then(|root| root.dir(&self.git_path("hooks"), None)?.entries());
        let hooks = hooks
            .unwrap_or_default()
            .into_iter()
            .map(|(name, _)| name)
            .filter(|_| self.git.has_own_hooks());
        let hooks = hooks.filter(|name| !name.as_bytes().ends_with(b".sample"));
        let hooks = hooks.map(|name| DisabledProgram::new(ProgramKind::Hook, name.as_bytes()));
        hooks.chain(self.git.disabled_programs().cloned()).collect()
    }

    /// Top directory of the project.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reopens the repository with its current configuration, parts of which may apply to some branches only.
    pub(super) fn reopen(&self) -> Result<Self, GitError> {
        Ok(Self {
            git: open_git(&self.root, self.git_dir)?,
            ..self.clone()
        })
    }

    /// Checks that a run may write to the repository, and returns its head. `new` are files that the run may add; a
    /// [`PATH_PLACEHOLDER`] in them replaces a name that is not known yet. With `allow_dirty`, uncommitted files are
    /// accepted here; those that are in the way block the commit.
    pub fn check_ready(
        &self,
        new: &[String],
        allow_dirty: bool,
    ) -> Result<BranchHead, RepositoryError> {
        if self.is_private() {
            return Ok(BranchHead {
                commit: self.current_state()?,
                branch: None,
            });
        }
        let failed = |cause| RepositoryError::Io {
            project: self.root.clone(),
            cause,
        };
        let root = ScopedDir::open(&self.root).map_err(failed)?;
        for (name, what) in OPERATION_MARKERS {
            if root.kind(&self.git_path(name)).map_err(failed)?.is_some() {
                return Err(RepositoryError::OperationInProgress {
                    project: self.root.clone(),
                    operation: what,
                });
            }
        }
        if let Some(converted) = converted_files::first_converted_of_run(&self.git, new)? {
            return Err(RepositoryError::ConvertedFile(converted));
        }
        let status = self.git.run(&[
            "status",
            "--porcelain=v2",
            "--branch",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            // A submodule has its own configuration, which git would apply. Settings cannot override it reliably.
            "--ignore-submodules=all",
            "--",
            "wiki",
            "semantic-layer",
        ])?;
        let (head, mut paths) = parse_status(&String::from_utf8_lossy(&status));
        let head = head.ok_or_else(|| RepositoryError::Unborn {
            project: self.root.clone(),
        })?;
        if paths
            .iter()
            .any(|path| !converted_files::is_writable_by_run(path))
        {
            // Without its filter, git reports a touched file as changed. A run does not modify such files.
            let listed: Vec<u8> = paths
                .iter()
                .flat_map(|path| [path.as_bytes(), b"\0"].concat())
                .collect();
            let converted = converted_files::list_converted(&self.git, &listed)?;
            let is_filtered = |path: &String| {
                converted.iter().any(
                    |file| matches!(file, ConvertedFile::Filtered { path: of, .. } if of == path),
                )
            };
            paths.retain(|path| converted_files::is_writable_by_run(path) || !is_filtered(path));
        }
        if let Some(target) = self.target_branch() {
            // Neither files nor index change.
            return Ok(BranchHead {
                commit: self.current_state()?,
                branch: Some(target),
            });
        }
        if paths.is_empty() || allow_dirty {
            Ok(head)
        } else {
            Err(RepositoryError::Dirty { paths })
        }
    }

    /// Fails if files below `dirs` of the project's own repository are in no commit.
    pub(super) fn check_committed(&self, dirs: &[&str]) -> Result<(), RepositoryError> {
        let status = [
            "--literal-pathspecs",
            "status",
            "--porcelain=v2",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=all",
            "--",
        ];
        let status = self.git.run(&[&status[..], dirs].concat())?;
        match parse_status(&String::from_utf8_lossy(&status)).1 {
            paths if paths.is_empty() => Ok(()),
            paths => Err(RepositoryError::Dirty { paths }),
        }
    }

    /// The commit that HEAD points to.
    pub(super) fn head(&self) -> Result<CommitId, GitError> {
        self.git
            .run_for_commit(&["rev-parse", "--verify", "--end-of-options", "HEAD"])
    }

    /// The commit that further work builds on: the head of the branch that commits go to. In a private repository, changes of the user's
    /// files are committed first.
    pub(super) fn current_state(&self) -> Result<CommitId, RepositoryError> {
        if !self.is_private() {
            return Ok(self.target_tip()?.map_or_else(|| self.head(), Ok)?);
        }
        let failed = |cause| RepositoryError::Io {
            project: self.root.clone(),
            cause,
        };
        let files = private::list_files(&self.root).map_err(failed)?;
        let index = ScopedDir::open(&self.root).and_then(|root| root.kind(&self.git_path("index")));
        let has_index = index.map_err(failed)?.is_some();
        private::record_state(&self.git, &files, has_index)
            .map_err(|cause| RepositoryError::Recording { cause })
    }

    /// Packs the objects of a private repository if there are many. The user does this for other repositories.
    pub fn collect_garbage(&self) {
        if self.is_private()
            && let Err(error) = private::collect_garbage(&self.git, private::MAX_LOOSE_OBJECTS)
        {
            tracing::warn!(%error, "cannot pack the private repository");
        }
    }

    /// The branch that commits go to; `None` if HEAD is detached, and in a private repository, whose branch the user does
    /// not know.
    pub(super) fn branch(&self) -> Result<Option<String>, GitError> {
        if self.is_private() {
            return Ok(None);
        }
        if let Some(target) = self.target_branch() {
            return Ok(Some(target));
        }
        let answer = self
            .git
            .try_run(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
        Ok(answer.success.then(|| {
            String::from_utf8_lossy(&answer.stdout)
                .trim_end()
                .to_owned()
        }))
    }

    /// Creates the state directories below `.ktx`. Each contains its own `.gitignore`, so the project's `.gitignore`
    /// stays unchanged.
    pub fn ignore_state_dirs(&self) -> io::Result<()> {
        STATE_DIRS.iter().try_for_each(|folder| {
            scoped_dir::create_ignored_dir(&self.root, &self.root.join(folder))
        })
    }
}

/// Opens git for the repository in `git_dir` of the project at `root`.
fn open_git(root: &Path, git_dir: &str) -> Result<Git, GitError> {
    if git_dir == private::DIR {
        Git::open_at(root, private::GIT_LOCATION)
    } else {
        Git::open(root)
    }
}

/// The nearest directory above `root` that is the top of a repository.
fn enclosing_repository(root: &Path) -> Option<PathBuf> {
    let is_top = |dir: &&Path| {
        ScopedDir::open(dir).is_ok_and(|dir| match dir.kind(".git") {
            Ok(Some(FileKind::File)) => true,
            Ok(Some(FileKind::Directory)) => dir.kind(".git/HEAD").is_ok_and(|head| head.is_some()),
            _ => false,
        })
    };
    let root = root.canonicalize().ok()?;
    root.ancestors().skip(1).find(is_top).map(Path::to_path_buf)
}

/// Parses head and changed paths from porcelain version 2 with NUL separators.
fn parse_status(status: &str) -> (Option<BranchHead>, Vec<String>) {
    let (mut commit, mut branch, mut paths) = (None, None, Vec::new());
    for entry in status.split('\0') {
        if let Some(oid) = entry.strip_prefix("# branch.oid ") {
            commit = CommitId::parse(oid).ok();
        } else if let Some(name) = entry.strip_prefix("# branch.head ") {
            branch = (name != "(detached)").then(|| name.to_owned());
        } else {
            // The path is the last field; the number of fields before it depends on the kind of the entry.
            let fields = match entry.as_bytes().first() {
                Some(b'1') => 9,
                Some(b'u') => 11,
                Some(b'?') => 2,
                _ => continue,
            };
            paths.extend(entry.splitn(fields, ' ').nth(fields - 1).map(str::to_owned));
        }
    }
    (commit.map(|commit| BranchHead { commit, branch }), paths)
}
