//! Worktrees of a run: one per attempt, at a common base, on a branch of its own, and gone when the attempt is.
//!
//! Only `wiki/` and `semantic-layer/` are checked out. Every worktree stands in a ledger from before it is made until
//! after it is gone, so that whoever starts next can clear away what a killed run left. It must not know what is written.

use crate::scoped_dir::{self, ScopedDir};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    git::{Git, GitError},
    repository::{Repository, WORKTREES},
    source::slug,
};

/// Names of the worktrees that stand, one file each.
const LEDGER: &str = ".ktx/ingestdeck/worktrees";

/// What is checked out.
const SPARSE: &str = "/wiki/\n/semantic-layer/\n";

/// Longest readable part of a name, in characters.
const READABLE: usize = 80;

/// A worktree cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// git says no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The system refuses.
    #[error("cannot make the worktree {}: {cause}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// Makes the worktrees of one run.
#[derive(Debug)]
pub struct Worktrees {
    pub(super) repository: Repository,
    job: String,
    /// What attempts start from.
    base: Mutex<String>,
    /// git locks what `worktree add` and `remove` share, and does not wait.
    turn: Arc<Mutex<()>>,
}

impl Worktrees {
    /// Worktrees of `job`, at `base`.
    pub fn new(repository: Repository, job: &str, base: &str) -> Arc<Self> {
        let (base, turn) = (Mutex::new(base.to_owned()), Arc::default());
        Arc::new(Self { repository, job: safe_name(job), base, turn })
    }

    /// Those of the same run that start from `commit`.
    pub fn at(&self, commit: &str) -> Arc<Self> {
        let (base, turn) = (Mutex::new(commit.to_owned()), Arc::clone(&self.turn));
        Arc::new(Self { repository: self.repository.clone(), job: self.job.clone(), base, turn })
    }

    /// The commit that attempts start from.
    pub fn base(&self) -> String {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the attempts that follow start from `commit`.
    pub(super) fn rebase(&self, commit: &str) {
        commit.clone_into(&mut self.base.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worktree at `commit` named after `unit`; that of the run itself without one.
    pub(super) fn open(self: &Arc<Self>, unit: Option<&str>, commit: &str) -> Result<Worktree, WorktreeError> {
        let root = self.repository.root();
        let unit = unit.map(|unit| format!("-{}", safe_name(unit))).unwrap_or_default();
        let mut name = format!("{}{unit}", self.job);
        let failed = |path: PathBuf| move |cause| WorktreeError::Io { path, cause };
        let place = |name: &str| root.join(WORKTREES).join(format!("session-{name}"));
        scoped_dir::make_private(root, &root.join(WORKTREES)).map_err(failed(place(&name)))?;
        scoped_dir::make_private(root, &root.join(LEDGER)).map_err(failed(place(&name)))?;
        let turn = self.turn();
        let is_taken = |name: &str| {
            place(name).symlink_metadata().is_ok() || root.join(".git/refs/heads/session").join(name).exists()
        };
        if is_taken(&name) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            name = format!("{name}-{}", now.as_millis());
        }
        let (dir, branch) = (place(&name), format!("session/{name}"));
        ScopedDir::open(&root.join(LEDGER))
            .and_then(|ledger| ledger.write(&name, b"", scoped_dir::PRIVATE, 0o600))
            .map_err(failed(dir.clone()))?;
        let git = self.repository.git.clone();
        let mut worktree = Worktree { trees: Arc::clone(self), name, dir, git, gone: AtomicBool::new(false) };
        let filled = worktree.fill(&branch, commit);
        // One that could not be filled is removed right here, which needs a turn of its own.
        drop(turn);
        filled.map(|()| worktree)
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
    fn fill(&mut self, branch: &str, commit: &str) -> Result<(), WorktreeError> {
        let dir = self.dir.to_string_lossy();
        let args = ["worktree", "add", "--quiet", "--no-checkout", "-b", branch, "--", &dir, commit];
        self.trees.repository.git.run(&args)?;
        // A configuration may hold for this directory or this branch alone. Nothing is checked out yet.
        self.git = Git::within(&self.dir)?;
        let cannot = |cause| WorktreeError::Io { path: self.dir.clone(), cause };
        // `<dir>/.git` names the worktree's own place in the repository.
        let link = fs::read_to_string(self.dir.join(".git")).map_err(cannot)?;
        let own = Path::new(link.trim_start_matches("gitdir:").trim());
        fs::create_dir_all(own.join("info")).map_err(cannot)?;
        fs::write(own.join("info/sparse-checkout"), SPARSE).map_err(cannot)?;
        self.git.run(&["read-tree", "-m", "-u", "HEAD"])?;
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
        self.git.run(&["add", "--all", "--force", "--", path])?;
        self.commit_staged(message)
    }

    /// Commits what is staged.
    pub(super) fn commit_staged(&self, message: &str) -> Result<(), GitError> {
        self.git.run(&["commit", "--quiet", "--no-verify", "--allow-empty", "--cleanup=verbatim", "-m", message])?;
        Ok(())
    }

    /// Everything between `base` and its last commit, as a patch that any git can apply.
    pub(super) fn patch(&self, base: &str) -> Result<Vec<u8>, GitError> {
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
            "--unified=3",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            &format!("{base}..HEAD"),
        ])
    }

    /// Removes it and its branch. Whatever stays behind is in the ledger, for the next start.
    pub(super) fn remove(&self) {
        if self.gone.swap(true, Ordering::SeqCst) {
            return;
        }
        let _turn = self.trees.turn();
        if let Err(error) = clear(&self.trees.repository, &self.name) {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot remove the worktree of an attempt");
        }
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Clears away the worktrees that a killed run left in `repository`; how many there were. Nobody else may be at work.
pub fn sweep(repository: &Repository) -> Result<usize, WorktreeError> {
    let ledger = repository.root().join(LEDGER);
    let entries = match fs::read_dir(&ledger) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other.map_err(|cause| WorktreeError::Io { path: ledger.clone(), cause })?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // A draft of a name that was never finished stands for nothing.
    let (drafts, names): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with('.'));
    for draft in drafts {
        let _ = fs::remove_file(ledger.join(draft));
    }
    for name in &names {
        clear(repository, name)?;
    }
    Ok(names.len())
}

fn clear(repository: &Repository, name: &str) -> Result<(), WorktreeError> {
    let root = repository.root();
    let dir = root.join(WORKTREES).join(format!("session-{name}"));
    let branch = format!("session/{name}");
    let path = dir.to_string_lossy();
    let failed = |cause| WorktreeError::Io { path: dir.clone(), cause };
    let removed = repository.git.ask(&["worktree", "remove", "--force", "--force", "--", &path])?;
    if !removed.ok {
        // Half made: what is there goes, and git forgets what it knows of it.
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        repository.git.run(&["worktree", "prune", "--expire=now"])?;
    }
    let reference = format!("refs/heads/{branch}");
    let deleted = repository.git.ask(&["update-ref", "--no-deref", "-d", &reference])?;
    if !deleted.ok && repository.git.ask(&["show-ref", "--verify", "--quiet", &reference])?.ok {
        return Err(GitError::Failed { what: "update-ref".into(), stderr: deleted.stderr }.into());
    }
    // `branch -D` would forget what was configured for it as well; nothing ever is.
    ScopedDir::open(&root.join(LEDGER)).and_then(|ledger| ledger.remove(name)).map_err(failed)?;
    Ok(())
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
