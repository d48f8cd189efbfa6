//! The git repository of a project: whether it is ours to commit to, and where its branch stands.
//!
//! It must not know units. Without a repository a project is written to directly.

mod filtered_files;
mod unsafe_entries;

use crate::scoped_dir::{self, FileKind, FileLock, ScopedDir};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

pub(super) use self::filtered_files::first_filtered;
pub use self::filtered_files::{FilteredFile, PATH_PLACEHOLDER};
use self::unsafe_entries::UnsafeEntry;
use super::git::{CommitId, DisabledProgram, Git, GitError, ProgramKind};

/// Files and folders of a repository that stand for an operation somebody has not finished.
const OPERATION_MARKERS: &[(&str, &str)] = &[
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
];

/// Held by the one run that uses the repository. Unlike the lock of the project it survives `git clean`.
const LOCK_FILE: &str = ".git/ingestdeck/lock";

/// Folders of `.ktx` that hold what a repository is not to keep.
const STATE_DIRS: &[&str] =
    &[".ktx/ingestdeck", WORKTREES_DIR, PATCHES_DIR, ".ktx/ingest-transcripts", ".ktx/ingest-traces"];

/// Where worktrees lie.
pub(super) const WORKTREES_DIR: &str = ".ktx/worktrees";
/// Where patches lie.
pub(super) const PATCHES_DIR: &str = ".ktx/ingest-patches";

/// Most paths that a sentence names.
const MAX_LISTED: usize = 3;

/// A repository that units cannot be committed to. The sentence has the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// It belongs to something larger.
    #[error(
        "{} lies inside the git repository {top}, and a run commits only to a repository of the project's own; make one \
         with `git init && git add -A && git commit -m start` in the project ({top} keeps tracking its files), or move \
         the project out of it", project.display(), top = top.display()
    )]
    EnclosingRepository {
        project: PathBuf,
        /// The repository above.
        top: PathBuf,
    },
    /// `.git` is a file.
    #[error(
        "{} is a linked worktree or a submodule, and a run commits only to a repository of the project's own; run in the \
         main working tree, or in a clone: `git clone {} DIR`, run in DIR, then `git pull DIR` here",
        project.display(), shell_word(project)
    )]
    LinkedWorktree { project: PathBuf },
    /// Its configuration leads elsewhere.
    #[error(
        "the git repository of {} has its files elsewhere; unset core.worktree and core.bare in it, and delete \
         `.git/commondir`", project.display()
    )]
    ExternalFiles { project: PathBuf },
    /// git would follow it.
    #[error(
        "`{}` is a symbolic link, and git would follow it; replace it with what it points to, then try again",
        path.escape_debug()
    )]
    SymbolicLink {
        /// Relative to the project.
        path: String,
    },
    /// As `core.preferSymlinkRefs` makes it.
    #[error(
        "`.git/HEAD` is a symbolic link; run `git config core.preferSymlinkRefs false` and `git symbolic-ref HEAD \
         \"$(git symbolic-ref HEAD)\"`, then try again"
    )]
    SymlinkedHead,
    /// git would wait for it for ever.
    #[error("`{}` is not a regular file, and git would wait for it; remove it, then try again", path.escape_debug())]
    NamedPipe {
        /// Relative to the project.
        path: String,
    },
    /// Another run uses it.
    #[error("another run uses the git repository of {}; wait for it or stop it, then try again", project.display())]
    InUse { project: PathBuf },
    /// It has no commit.
    #[error(
        "the git repository of {} has no commit yet; make the first one with `git add -A && git commit`",
        project.display()
    )]
    Unborn { project: PathBuf },
    /// Somebody is in the middle of something.
    #[error("{operation} is not finished in {}; finish or abort it, then try again", project.display())]
    OperationInProgress {
        project: PathBuf,
        /// What.
        operation: &'static str,
    },
    /// The places that units write to hold changes that no commit has.
    #[error(
        "{} not committed; commit or stash {}, then try again",
        join_paths(paths), if paths.len() == 1 { "it" } else { "them" }
    )]
    Dirty {
        /// Project-relative paths.
        paths: Vec<String>,
    },
    /// A file that a run writes goes through a filter. A run starts none, so it would commit the file's bytes where, for
    /// instance, a pointer of Git LFS belongs.
    #[error("{0}")]
    FilteredFile(FilteredFile),
    /// git itself.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The system refuses.
    #[error("cannot use the git repository of {}: {cause}{}", project.display(), scoped_dir::remedy(cause))]
    Io {
        project: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// A path as a word of a command line.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    shlex::try_quote(&path).map(|word| word.into_owned()).unwrap_or(path)
}

fn join_paths(paths: &[String]) -> String {
    let shown: Vec<String> = paths.iter().take(MAX_LISTED).map(|path| path.escape_debug().to_string()).collect();
    let more = match paths.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let verb = if paths.len() == 1 { "is" } else { "are" };
    format!("{}{more} {verb}", shown.join(", "))
}

/// Where a branch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchHead {
    /// Commit.
    pub commit: CommitId,
    /// Its branch; `None` when it is detached.
    pub branch: Option<String>,
}

/// The repository of a project, and git in its top directory.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
    pub(super) git: Git,
}

impl Repository {
    /// The repository of the project at `root`. `None` where there is none, neither its own nor one above.
    pub fn find(root: &Path) -> Result<Option<Self>, RepositoryError> {
        let project = || root.to_path_buf();
        let failed = |cause| RepositoryError::Io { project: project(), cause };
        let top = ScopedDir::open(root).map_err(failed)?;
        match top.kind(".git").map_err(failed)? {
            Some(FileKind::Directory) => {}
            Some(_) => return Err(RepositoryError::LinkedWorktree { project: project() }),
            None => {
                return match enclosing_repository(root) {
                    Some(top) => Err(RepositoryError::EnclosingRepository { project: project(), top }),
                    None => Ok(None),
                };
            }
        }
        match unsafe_entries::find_unsafe_entry(&top).map_err(failed)? {
            None => {}
            Some(UnsafeEntry::SymbolicLink { path }) if path == ".git/HEAD" => {
                return Err(RepositoryError::SymlinkedHead);
            }
            Some(UnsafeEntry::SymbolicLink { path }) => return Err(RepositoryError::SymbolicLink { path }),
            Some(UnsafeEntry::NamedPipe { path }) => return Err(RepositoryError::NamedPipe { path }),
        }
        let git = Git::open(root)?;
        let places = git.try_run(&["rev-parse", "--show-toplevel", "--git-common-dir"])?;
        if !places.success && !places.stderr.contains("work tree") {
            return Err(GitError::Failed { subcommand: "rev-parse".into(), stderr: places.stderr }.into());
        }
        let is_root = |top: &[u8]| {
            let (top, root) = (Path::new(OsStr::from_bytes(top)).canonicalize(), root.canonicalize());
            top.and_then(|top| root.map(|root| top == root)).unwrap_or(false)
        };
        match places.stdout.strip_suffix(b"\n.git\n") {
            Some(top) if places.success && is_root(top) => Ok(Some(Self { root: project(), git })),
            _ => Err(RepositoryError::ExternalFiles { project: project() }),
        }
    }

    /// Whether the project at `root` has a repository of its own, usable or not.
    pub fn exists_at(root: &Path) -> bool {
        ScopedDir::open(root).and_then(|root| root.kind(".git")).is_ok_and(|kind| kind == Some(FileKind::Directory))
    }

    /// Keeps other runs from using the repository until the lock is dropped.
    pub(crate) fn lock(&self) -> Result<FileLock, RepositoryError> {
        let project = || self.root.clone();
        let lock = ScopedDir::open(&self.root).and_then(|root| root.try_lock(LOCK_FILE));
        let lock = lock.map_err(|cause| RepositoryError::Io { project: project(), cause })?;
        lock.ok_or_else(|| RepositoryError::InUse { project: project() })
    }

    /// Whether [`lock`](Self::lock) can open its file, with its error. Changes nothing.
    pub(crate) fn check_lock(&self) -> Result<(), RepositoryError> {
        let checked = ScopedDir::open(&self.root).and_then(|root| root.check_open_or_create(LOCK_FILE));
        checked.map_err(|cause| RepositoryError::Io { project: self.root.clone(), cause })
    }

    /// Whether git tracks the file `path`, relative to the project.
    pub fn tracks(&self, path: &str) -> Result<bool, GitError> {
        Ok(self.git.try_run(&["--literal-pathspecs", "ls-files", "--error-unmatch", "--", path])?.success)
    }

    /// Programs that the repository would have git run, and that are not run, sorted.
    pub fn disabled_programs(&self) -> BTreeSet<DisabledProgram> {
        let hooks = ScopedDir::open(&self.root).and_then(|root| root.dir(".git/hooks", None)?.entries());
        let hooks = hooks.unwrap_or_default().into_iter().map(|(name, _)| name).filter(|_| self.git.has_own_hooks());
        let hooks = hooks.filter(|name| !name.as_bytes().ends_with(b".sample"));
        let hooks = hooks.map(|name| DisabledProgram::new(ProgramKind::Hook, name.as_bytes()));
        hooks.chain(self.git.disabled_programs().cloned()).collect()
    }

    /// The project's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The same repository with its configuration as it is now: it may hold for some branches alone.
    pub(super) fn reopen(&self) -> Result<Self, GitError> {
        Ok(Self { root: self.root.clone(), git: Git::open(&self.root)? })
    }

    /// Where the branch stands, once nothing speaks against writing to it. `new` are files that the run may add; a
    /// [`PATH_PLACEHOLDER`] in them stands for what is not known yet.
    pub fn check_ready(&self, new: &[String]) -> Result<BranchHead, RepositoryError> {
        let failed = |cause| RepositoryError::Io { project: self.root.clone(), cause };
        let root = ScopedDir::open(&self.root).map_err(failed)?;
        for (name, what) in OPERATION_MARKERS {
            if root.kind(&format!(".git/{name}")).map_err(failed)?.is_some() {
                return Err(RepositoryError::OperationInProgress { project: self.root.clone(), operation: what });
            }
        }
        if let Some(filtered) = filtered_files::first_filtered_of_run(&self.git, new)? {
            return Err(RepositoryError::FilteredFile(filtered));
        }
        let status = self.git.run(&[
            "status",
            "--porcelain=v2",
            "--branch",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            // A submodule has a configuration of its own, which git would obey. No setting can be relied upon here.
            "--ignore-submodules=all",
            "--",
            "wiki",
            "semantic-layer",
        ])?;
        let (head, mut paths) = parse_status(&String::from_utf8_lossy(&status));
        let head = head.ok_or_else(|| RepositoryError::Unborn { project: self.root.clone() })?;
        if paths.iter().any(|path| !filtered_files::is_writable_by_run(path)) {
            // Without its filter, git takes a file that was touched for changed. A run leaves it as it is.
            let listed: Vec<u8> = paths.iter().flat_map(|path| [path.as_bytes(), b"\0"].concat()).collect();
            let filtered = filtered_files::list_filtered(&self.git, &listed)?;
            paths.retain(|path| {
                filtered_files::is_writable_by_run(path) || filtered.iter().all(|filtered| filtered.path != *path)
            });
        }
        if paths.is_empty() { Ok(head) } else { Err(RepositoryError::Dirty { paths }) }
    }

    /// The commit that the project stands at.
    pub(super) fn head(&self) -> Result<CommitId, GitError> {
        self.git.run_for_commit(&["rev-parse", "--verify", "--end-of-options", "HEAD"])
    }

    /// The branch that the project stands at; `None` when it is detached.
    pub(super) fn branch(&self) -> Result<Option<String>, GitError> {
        let answer = self.git.try_run(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
        Ok(answer.success.then(|| String::from_utf8_lossy(&answer.stdout).trim_end().to_owned()))
    }

    /// Makes our folders below `.ktx`, each of which tells git by itself that it is not to be kept: the project's own
    /// `.gitignore` is left as it is.
    pub fn ignore_state_dirs(&self) -> io::Result<()> {
        STATE_DIRS.iter().try_for_each(|folder| scoped_dir::create_ignored_dir(&self.root, &self.root.join(folder)))
    }
}

/// The directory above `root` that is the top of a repository.
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

/// Head and changed paths from porcelain version 2 with NULs.
fn parse_status(status: &str) -> (Option<BranchHead>, Vec<String>) {
    let (mut commit, mut branch, mut paths) = (None, None, Vec::new());
    for entry in status.split('\0') {
        if let Some(oid) = entry.strip_prefix("# branch.oid ") {
            commit = CommitId::parse(oid).ok();
        } else if let Some(name) = entry.strip_prefix("# branch.head ") {
            branch = (name != "(detached)").then(|| name.to_owned());
        } else {
            // The path is the last field; how many come before it depends on the kind of the entry.
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
