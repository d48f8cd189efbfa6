//! Worktrees of a run: one per attempt, starting from a common base, each on its own branch, and removed with the
//! attempt.
//!
//! Only `wiki/` and `semantic-layer/` are checked out. The `ledger` contains every worktree from before it is created
//! until after it is removed, so that the next run can delete those of a killed run. This module must not know what is
//! written.

mod ledger;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::{Mutex, MutexGuard};

pub use self::ledger::remove_leftovers;
use super::{
    git::{CommitId, Git, GitError},
    repository::{Repository, WORKTREES_DIR},
    slug,
};
use ingestdeck_core::{diagnostic::Diagnostic, tape::UnitKey};
use ingestdeck_os::scoped_dir::{PRIVATE_MODE, SHARED_MODE, ScopedDir};

/// Paths that are checked out.
const SPARSE_PATTERNS: &[u8] = b"/wiki/\n/semantic-layer/\n";

/// Longest readable part of a name, in characters.
const MAX_READABLE_CHARS: usize = 80;

/// A worktree cannot be created or removed.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// A git call failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A system call failed.
    #[error("cannot make or remove the worktree {}: {cause}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The ledger cannot be read.
    #[error("cannot read `{path}`: {cause}")]
    Ledger {
        /// Relative to the project.
        path: String,
        cause: io::Error,
    },
}

impl Diagnostic for WorktreeError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Git(error) => error.help(),
            Self::Io { .. } | Self::Ledger { .. } => None,
        }
    }
}

/// Creates the worktrees of one run.
#[derive(Debug)]
pub struct Worktrees {
    pub(super) repository: Repository,
    job: String,
    /// The commit that attempts start from.
    base: Mutex<CommitId>,
    /// Serializes `worktree add` and `remove`, because git locks shared files without waiting.
    git_lock: Arc<Mutex<()>>,
    /// Patches that attempts start from although no branch contains them; each is part of the next commit.
    base_patches: Arc<Mutex<Vec<BasePatch>>>,
}

/// A patch of the run itself that attempts start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePatch {
    /// Name of the writer of its changes.
    pub unit: UnitKey,
    /// The absolute path of its file.
    pub file: PathBuf,
    /// Ids of the connections whose sources pages may refer to, sorted.
    pub targets: Vec<String>,
}

impl Worktrees {
    /// Creates the worktrees of `job`, based on `base`.
    pub fn new(repository: Repository, job: &str, base: &CommitId) -> Arc<Self> {
        let (base, turn) = (Mutex::new(base.clone()), Arc::default());
        Arc::new(Self {
            repository,
            job: safe_name(job),
            base,
            git_lock: turn,
            base_patches: Arc::default(),
        })
    }

    /// The repository that they belong to.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The same worktrees, based on `commit`.
    pub fn with_base(&self, commit: &CommitId) -> Arc<Self> {
        let (base, turn) = (Mutex::new(commit.clone()), Arc::clone(&self.git_lock));
        let (repository, job) = (self.repository.clone(), self.job.clone());
        Arc::new(Self {
            repository,
            job,
            base,
            git_lock: turn,
            base_patches: Arc::clone(&self.base_patches),
        })
    }

    /// Patches that attempts start from and that the next commit contains, in order.
    pub fn base_patches(&self) -> Vec<BasePatch> {
        self.base_patches.lock().clone()
    }

    /// Adds a patch that attempts start from.
    pub fn add_base_patch(&self, patch: BasePatch) {
        self.base_patches.lock().push(patch);
    }

    /// The commit that attempts start from.
    pub fn base(&self) -> CommitId {
        self.base.lock().clone()
    }

    /// Changes the commit that later attempts start from.
    pub(super) fn set_base(&self, commit: &CommitId) {
        self.base.lock().clone_from(commit);
    }

    /// Forgets the patches: they no longer fit the branch.
    pub fn drop_base_patches(&self) {
        self.base_patches.lock().clear();
    }

    /// Attempts start from `commit`, which contains all patches.
    pub(super) fn set_saved_base(&self, commit: &CommitId) {
        self.drop_base_patches();
        self.set_base(commit);
    }

    fn lock_git(&self) -> MutexGuard<'_, ()> {
        self.git_lock.lock()
    }

    /// Creates a worktree at `commit` named after `unit`; without a unit, that of the run itself.
    pub(super) fn open(
        self: &Arc<Self>,
        unit: Option<&str>,
        commit: &CommitId,
    ) -> Result<Worktree, WorktreeError> {
        let root = self.repository.root();
        let unit = unit
            .map(|unit| format!("-{}", safe_name(unit)))
            .unwrap_or_default();
        let first = format!("{}{unit}", self.job);
        let failed = |cause| WorktreeError::Io {
            path: root.join(ledger::worktree_dir(&first)),
            cause,
        };
        let project = ScopedDir::open(root).map_err(failed)?;
        project
            .dir(WORKTREES_DIR, Some(PRIVATE_MODE))
            .map_err(failed)?;
        let turn = self.lock_git();
        let name = if self.add(&project, &first, commit)? {
            first
        } else {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let next = format!("{first}-{}", now.as_millis());
            if !self.add(&project, &next, commit)? {
                return Err(failed(io::ErrorKind::AlreadyExists.into()));
            }
            next
        };
        let dir = root.join(ledger::worktree_dir(&name));
        let git = self.repository.git.clone();
        let (trees, gone) = (Arc::clone(self), AtomicBool::new(false));
        let mut worktree = Worktree {
            worktrees: trees,
            name,
            dir,
            git,
            is_removed: gone,
        };
        let filled = worktree.checkout_files(&project);
        // A worktree that could not be filled is removed on drop, which acquires this lock again.
        drop(turn);
        filled.map(|()| worktree)
    }

    /// Records the worktree `name` in the ledger and adds it, without files. False if its directory or its branch
    /// already exists.
    fn add(
        &self,
        project: &ScopedDir,
        name: &str,
        commit: &CommitId,
    ) -> Result<bool, WorktreeError> {
        // Use a relative path, because a path that is not UTF-8 would be changed.
        let (directory, branch) = (ledger::worktree_dir(name), ledger::worktree_branch(name));
        let failed = |cause| WorktreeError::Io {
            path: self.repository.root().join(&directory),
            cause,
        };
        if project.kind(&directory).map_err(failed)?.is_some() {
            return Ok(false);
        }
        ledger::record_worktree(&self.repository, project, name, commit).map_err(failed)?;
        let add = [
            "worktree",
            "add",
            "--quiet",
            "--no-checkout",
            "-b",
            &branch,
            "--",
            &directory,
            commit.as_str(),
        ];
        let answer = self.repository.git.try_run(&add);
        match answer {
            Ok(answer) if answer.success => return Ok(true),
            // Older releases begin the message with a capital letter.
            Ok(answer)
                if answer
                    .stderr
                    .contains(&format!("branch named '{branch}' already exists")) =>
            {
                ledger::delete_entry(&self.repository, project, name).map_err(failed)?;
                return Ok(false);
            }
            _ => {}
        }
        // It is unknown whether git created the branch, so this checks its commits. The ledger keeps what cannot be
        // removed.
        if let Err(error) = ledger::remove_leftover(&self.repository, name, commit) {
            tracing::warn!(%error, "cannot remove a worktree that was not finished");
        }
        Err(GitError::Failed {
            subcommand: "worktree add".into(),
            stderr: answer?.stderr,
        }
        .into())
    }
}

/// A worktree, removed on drop.
#[derive(Debug)]
pub(crate) struct Worktree {
    worktrees: Arc<Worktrees>,
    name: String,
    dir: PathBuf,
    pub(super) git: Git,
    is_removed: AtomicBool,
}

impl Worktree {
    fn checkout_files(&mut self, project: &ScopedDir) -> Result<(), WorktreeError> {
        // Parts of the configuration may apply to this directory or branch only. Nothing is checked out yet.
        self.git = Git::open_sparse(&self.dir)?;
        self.write_sparse_patterns(project)
            .map_err(|cause| WorktreeError::Io {
                path: self.dir.clone(),
                cause,
            })?;
        self.git
            .run(&["read-tree", "-m", "-u", "--end-of-options", "HEAD"])?;
        Ok(())
    }

    /// Writes the list of paths to check out.
    fn write_sparse_patterns(&self, project: &ScopedDir) -> io::Result<()> {
        const LIST: &str = "sparse-checkout";
        let repository = &self.worktrees.repository;
        let known = ledger::git_registration(repository, project, &self.name)?;
        let known = known.ok_or_else(|| io::Error::other("git does not list it"))?;
        let info = repository.git_path(&format!("{}/{known}/info", ledger::GIT_WORKTREES_DIR));
        let info = project.dir(&info, Some(SHARED_MODE))?;
        match info.create_entry(LIST, SPARSE_PATTERNS, 0o666) {
            // git copies the list of the main working tree if there is one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                info.write(LIST, SPARSE_PATTERNS, SHARED_MODE, 0o666)
            }
            done => done,
        }
    }

    pub(super) fn open_dir(&self) -> io::Result<ScopedDir> {
        ScopedDir::open(self.worktrees.repository.root())?
            .dir(&ledger::worktree_dir(&self.name), None)
    }

    /// Discards all changes and restarts from `commit`.
    pub(super) fn restart_from(&mut self, commit: &CommitId) -> Result<(), WorktreeError> {
        let failed = |cause| WorktreeError::Io {
            path: self.dir.clone(),
            cause,
        };
        let project = ScopedDir::open(self.worktrees.repository.root()).map_err(failed)?;
        ledger::record_worktree(&self.worktrees.repository, &project, &self.name, commit)
            .map_err(failed)?;
        // Releases before 2.43 do not accept `--end-of-options` here.
        self.git
            .run(&["reset", "--quiet", "--hard", commit.as_str(), "--"])?;
        Ok(())
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stages `paths`, including removed and ignored ones.
    pub(super) fn stage(&self, paths: &[&str]) -> Result<(), GitError> {
        const MOST: usize = 500;
        for some in paths.chunks(MOST) {
            self.git.run(
                &[
                    &["--literal-pathspecs", "add", "--all", "--force", "--"][..],
                    some,
                ]
                .concat(),
            )?;
        }
        Ok(())
    }

    /// Commits the staged changes, and returns the commit.
    pub(super) fn commit_staged(&self, message: &str) -> Result<CommitId, GitError> {
        // `git commit` looks for every object of a directory that changes, which takes longer with each new page.
        let tree = self.git.run_for_line(&["write-tree", "--missing-ok"])?;
        let commit = [
            "commit-tree",
            "-p",
            "HEAD",
            "-F",
            "-",
            "--end-of-options",
            &tree,
        ];
        let commit = self
            .git
            .run_for_commit_with_input(&commit, message.as_bytes())?;
        self.git
            .run(&["update-ref", "--end-of-options", "HEAD", commit.as_str()])?;
        Ok(commit)
    }

    /// The commit that its branch points to.
    pub(super) fn head(&self) -> Result<CommitId, GitError> {
        self.git
            .run_for_commit(&["rev-parse", "--verify", "--end-of-options", "HEAD"])
    }

    /// All changes between `base` and the last commit, as a patch that any git release can apply.
    pub(super) fn committed_patch(&self, base: &CommitId) -> Result<Vec<u8>, GitError> {
        self.patch(&["--end-of-options", &format!("{base}..HEAD")])
    }

    /// All changes between `base` and the staged files, as a patch that any git release can apply.
    pub(super) fn staged_patch(&self, base: &CommitId) -> Result<Vec<u8>, GitError> {
        self.patch(&["--cached", "--end-of-options", base.as_str()])
    }

    fn patch(&self, range: &[&str]) -> Result<Vec<u8>, GitError> {
        diff(&self.git, range, &[])
    }

    /// Removes the worktree and its branch. The ledger keeps what cannot be removed, for the next start.
    pub(super) fn remove(&self) {
        if self.is_removed.swap(true, Ordering::SeqCst) {
            return;
        }
        let _turn = self.worktrees.lock_git();
        match ledger::remove_own(&self.worktrees.repository, &self.name) {
            Ok(None) => {}
            Ok(Some(left)) => tracing::warn!("{left}"),
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "cannot remove the worktree of an attempt")
            }
        }
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The changes in `range`, of all files or only those in `folders`, as a patch that any git release can apply.
pub(super) fn diff(git: &Git, range: &[&str], folders: &[&str]) -> Result<Vec<u8>, GitError> {
    const OPTIONS: &[&str] = &[
        "diff",
        // Pages are always text, regardless of attributes: content with a NUL is refused on write.
        "--text",
        "--binary",
        "--no-renames",
        "--full-index",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--ignore-submodules=all",
        "--unified=3",
        "--src-prefix=a/",
        "--dst-prefix=b/",
    ];
    git.run(&[OPTIONS, range, &["--"], folders].concat())
}

/// Converts `key` to a name for a path and a branch: readable where possible, and unique for each key.
pub(super) fn safe_name(key: &str) -> String {
    let name: String = key
        .chars()
        .take(MAX_READABLE_CHARS)
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    if name == key && !name.starts_with('-') {
        name
    } else {
        format!("{name}.{}", slug::short_hash(key, 12))
    }
}
