//! Worktrees of a run: one per attempt, at a common base, on a branch of its own, and gone when the attempt is.
//!
//! Only `wiki/` and `semantic-layer/` are checked out. The `ledger` has every worktree from before it is made until
//! after it is gone, so that the next run can clear away what a killed one left. This module must not know what is
//! written.

mod ledger;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

pub use self::ledger::{LeftAlone, Swept, sweep};
use super::{
    git::{CommitId, Git, GitError},
    repository::{Repository, WORKTREES},
    source::slug,
};
use crate::scoped_dir::{PRIVATE, SHARED, ScopedDir};

/// What is checked out.
const SPARSE: &[u8] = b"/wiki/\n/semantic-layer/\n";

/// Longest readable part of a name, in characters.
const READABLE: usize = 80;

/// A worktree cannot be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// git says no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The system refuses.
    #[error("cannot make or remove the worktree {}: {cause}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The list of worktrees cannot be read.
    #[error("cannot read `{path}`: {cause}")]
    Ledger {
        /// Relative to the project.
        path: &'static str,
        cause: io::Error,
    },
}

/// Makes the worktrees of one run.
#[derive(Debug)]
pub struct Worktrees {
    pub(super) repository: Repository,
    job: String,
    /// What attempts start from.
    base: Mutex<CommitId>,
    /// git locks what `worktree add` and `remove` share, and does not wait.
    turn: Arc<Mutex<()>>,
}

impl Worktrees {
    /// Worktrees of `job`, at `base`.
    pub fn new(repository: Repository, job: &str, base: &CommitId) -> Arc<Self> {
        let (base, turn) = (Mutex::new(base.clone()), Arc::default());
        Arc::new(Self { repository, job: safe_name(job), base, turn })
    }

    /// Those of the same run that start from `commit`.
    pub fn at(&self, commit: &CommitId) -> Arc<Self> {
        let (base, turn) = (Mutex::new(commit.clone()), Arc::clone(&self.turn));
        Arc::new(Self { repository: self.repository.clone(), job: self.job.clone(), base, turn })
    }

    /// The commit that attempts start from.
    pub fn base(&self) -> CommitId {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the attempts that follow start from `commit`.
    pub(super) fn rebase(&self, commit: &CommitId) {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).clone_from(commit);
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worktree at `commit` named after `unit`; that of the run itself without one.
    pub(super) fn open(self: &Arc<Self>, unit: Option<&str>, commit: &CommitId) -> Result<Worktree, WorktreeError> {
        let root = self.repository.root();
        let unit = unit.map(|unit| format!("-{}", safe_name(unit))).unwrap_or_default();
        let first = format!("{}{unit}", self.job);
        let failed = |cause| WorktreeError::Io { path: root.join(ledger::directory(&first)), cause };
        let project = ScopedDir::open(root).map_err(failed)?;
        project.dir(WORKTREES, Some(PRIVATE)).map_err(failed)?;
        let turn = self.turn();
        let name = if self.add(&project, &first, commit)? {
            first
        } else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let next = format!("{first}-{}", now.as_millis());
            if !self.add(&project, &next, commit)? {
                return Err(failed(io::ErrorKind::AlreadyExists.into()));
            }
            next
        };
        let dir = root.join(ledger::directory(&name));
        let git = self.repository.git.clone();
        let (trees, gone) = (Arc::clone(self), AtomicBool::new(false));
        let mut worktree = Worktree { trees, name, dir, git, gone };
        let filled = worktree.fill(&project);
        // One that could not be filled is removed right here, which needs a turn of its own.
        drop(turn);
        filled.map(|()| worktree)
    }

    /// Enters the worktree `name` and adds it, without files. False if its directory or its branch is somebody else's.
    fn add(&self, project: &ScopedDir, name: &str, commit: &CommitId) -> Result<bool, WorktreeError> {
        // Relative to the project: a path that is not UTF-8 would become another one.
        let (directory, branch) = (ledger::directory(name), ledger::branch(name));
        let failed = |cause| WorktreeError::Io { path: self.repository.root().join(&directory), cause };
        if project.kind(&directory).map_err(failed)?.is_some() {
            return Ok(false);
        }
        ledger::record(project, name, commit).map_err(failed)?;
        let add = ["worktree", "add", "--quiet", "--no-checkout", "-b", &branch, "--", &directory, commit.as_str()];
        let answer = self.repository.git.ask(&add);
        match answer {
            Ok(answer) if answer.ok => return Ok(true),
            // Older releases begin it with a capital letter.
            Ok(answer) if answer.stderr.contains(&format!("branch named '{branch}' already exists")) => {
                ledger::forget(project, name).map_err(failed)?;
                return Ok(false);
            }
            _ => {}
        }
        // Whether it made the branch is not known, so this looks at its commits. What stays is in the ledger.
        if let Err(error) = ledger::clear_leftover(&self.repository, name, commit) {
            tracing::warn!(%error, "cannot remove a worktree that was not finished");
        }
        Err(GitError::Failed { what: "worktree add".into(), stderr: answer?.stderr }.into())
    }
}

/// A worktree that is ours until it is dropped.
#[derive(Debug)]
pub(crate) struct Worktree {
    trees: Arc<Worktrees>,
    name: String,
    dir: PathBuf,
    pub(super) git: Git,
    gone: AtomicBool,
}

impl Worktree {
    fn fill(&mut self, project: &ScopedDir) -> Result<(), WorktreeError> {
        // A configuration may hold for this directory or this branch alone. Nothing is checked out yet.
        self.git = Git::within(&self.dir)?;
        self.choose_files(project).map_err(|cause| WorktreeError::Io { path: self.dir.clone(), cause })?;
        self.git.run(&["read-tree", "-m", "-u", "--end-of-options", "HEAD"])?;
        Ok(())
    }

    /// Writes what is to be checked out.
    fn choose_files(&self, project: &ScopedDir) -> io::Result<()> {
        const LIST: &str = "sparse-checkout";
        let known = ledger::registration(&self.trees.repository, project, &self.name)?;
        let known = known.ok_or_else(|| io::Error::other("git does not list it"))?;
        let info = project.dir(&format!(".git/worktrees/{known}/info"), Some(SHARED))?;
        match info.create_here(LIST, SPARSE, 0o666) {
            // git copies the list of the main working tree, if that has one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => info.write(LIST, SPARSE, SHARED, 0o666),
            done => done,
        }
    }

    pub(super) fn open(&self) -> io::Result<ScopedDir> {
        ScopedDir::open(self.trees.repository.root())?.dir(&ledger::directory(&self.name), None)
    }

    /// Gives up what it has and starts anew from `commit`.
    pub(super) fn restart_from(&mut self, commit: &CommitId) -> Result<(), WorktreeError> {
        let failed = |cause| WorktreeError::Io { path: self.dir.clone(), cause };
        let project = ScopedDir::open(self.trees.repository.root()).map_err(failed)?;
        ledger::record(&project, &self.name, commit).map_err(failed)?;
        // Releases before 2.43 know no `--end-of-options` here.
        self.git.run(&["reset", "--quiet", "--hard", commit.as_str(), "--"])?;
        Ok(())
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn trees(&self) -> &Arc<Worktrees> {
        &self.trees
    }

    /// Commits what became of `path`.
    pub(super) fn commit(&self, path: &str, message: &str) -> Result<(), GitError> {
        self.stage(&[path])?;
        self.commit_staged(message)
    }

    /// Stages `paths`, also those that are gone or that git is to ignore.
    pub(super) fn stage(&self, paths: &[&str]) -> Result<(), GitError> {
        const MOST: usize = 500;
        for some in paths.chunks(MOST) {
            self.git.run(&[&["--literal-pathspecs", "add", "--all", "--force", "--"][..], some].concat())?;
        }
        Ok(())
    }

    /// Commits what is staged.
    pub(super) fn commit_staged(&self, message: &str) -> Result<(), GitError> {
        self.git.run(&["commit", "--quiet", "--no-verify", "--allow-empty", "--cleanup=verbatim", "-m", message])?;
        Ok(())
    }

    /// Everything between `base` and its last commit, as a patch that any git can apply.
    pub(super) fn patch(&self, base: &CommitId) -> Result<Vec<u8>, GitError> {
        self.git.run(&[
            "diff",
            // Pages are text, whatever attributes say: what holds a NUL is refused when it is written.
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
            "--end-of-options",
            &format!("{base}..HEAD"),
            "--",
        ])
    }

    /// Removes it and its branch. Whatever stays behind is in the ledger, for the next start.
    pub(super) fn remove(&self) {
        if self.gone.swap(true, Ordering::SeqCst) {
            return;
        }
        let _turn = self.trees.turn();
        match ledger::clear_own(&self.trees.repository, &self.name) {
            Ok(None) => {}
            Ok(Some(left)) => tracing::warn!("{left}"),
            Err(error) => tracing::warn!(dir = %self.dir.display(), %error, "cannot remove the worktree of an attempt"),
        }
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// `key` as one name of a path and of a branch: readable where it can be, and different for different keys.
pub(super) fn safe_name(key: &str) -> String {
    let name: String = key
        .chars()
        .take(READABLE)
        .map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' })
        .collect();
    if name == key && !name.starts_with('-') { name } else { format!("{name}.{}", slug::hash(key, 12)) }
}
