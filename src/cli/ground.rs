//! Where a run writes: over the project, or on worktrees of its repository. Settles what an earlier run left half done,
//! and refuses what nobody should commit to.

use std::path::Path;

use super::{exit::Failure, project, summary::counted};
use crate::ingest::{
    landing,
    lock::{self, ProjectLock, ProjectLockError},
    repository::{Head, Repository, RepositoryError},
    workspace, worktree,
};

/// What is said of a project without a repository.
pub const NO_HISTORY: &str =
    "no git repository: what a unit writes goes into the project as soon as the unit has succeeded";

/// How the project at `root` keeps what units write, in one sentence.
///
/// # Errors
/// When it is a repository that must not be committed to.
pub fn sentence(root: &Path) -> Result<String, RepositoryError> {
    let Some(repository) = Repository::find(root)? else { return Ok(NO_HISTORY.to_owned()) };
    let head = repository.ready()?;
    let branch = head.branch.map_or_else(|| "the detached HEAD".to_owned(), |branch| format!("branch {branch}"));
    Ok(format!("git repository: what the units of a run write becomes one commit on {branch}"))
}

/// True for a project that is a repository: only there what units write is put together, and looked at by the pass.
pub fn has_history(root: &Path) -> bool {
    matches!(Repository::find(root), Ok(Some(_)))
}

/// A project that is ours for a run, with everything settled that an earlier run left half done.
#[derive(Debug)]
pub struct Prepared {
    /// Held until the run is over: another run would clear away what this one works on.
    pub lock: ProjectLock,
    /// The repository that the run commits to, and where its branch stands; `None` without one.
    pub branch: Option<(Repository, Head)>,
}

impl Prepared {
    /// A run in the project at `root`, which commits if the project is a repository.
    ///
    /// # Errors
    /// When somebody else ingests it, when it must not be committed to, or when something cannot be settled.
    pub fn new(root: &Path) -> Result<Self, Failure> {
        let overlay = Self::overlay(root)?;
        Ok(Self { branch: repository(root)?, ..overlay })
    }

    /// A run that writes into the project itself, whether or not it is a repository.
    ///
    /// # Errors
    /// When somebody else ingests it, or when something cannot be settled.
    pub fn overlay(root: &Path) -> Result<Self, Failure> {
        let lock = lock::take(root).map_err(|error| match error {
            ProjectLockError::Taken { .. } => Failure::usage(error.to_string()),
            ProjectLockError::Io { .. } => Failure::internal(error.to_string()),
        })?;
        let recovered = workspace::recover(root)
            .map_err(|error| Failure::internal(format!("cannot undo what a crash left half done: {error}")))?;
        project::warn(&told(&recovered));
        Ok(Self { lock, branch: None })
    }
}

/// The repository of the project at `root`, ready for a run, and where its branch stands. `None` without one.
fn repository(root: &Path) -> Result<Option<(Repository, Head)>, Failure> {
    let refused = |error: RepositoryError| Failure::usage(error.to_string());
    let Some(repository) = Repository::find(root).map_err(refused)? else { return Ok(None) };
    let settled = landing::recover(&repository)
        .map_err(|error| Failure::internal(format!("cannot settle what a crash left half done: {error}")))?;
    project::warn(&settled_words(&settled));
    let swept = worktree::sweep(&repository)
        .map_err(|error| Failure::internal(format!("cannot clear away the worktrees of an earlier run: {error}")))?;
    if swept > 0 {
        let what = counted(swept, "worktree");
        project::warn(&[format!("an earlier run was killed; cleared away {what} that it had left")]);
    }
    let head = repository.ready().map_err(refused)?;
    repository.hide_ours().map_err(|error| Failure::internal(format!("cannot write below .ktx: {error}")))?;
    Ok(Some((repository, head)))
}

fn settled_words(settled: &landing::Settled) -> Vec<String> {
    let Some(commit) = &settled.to else { return Vec::new() };
    let short = commit.get(..8).unwrap_or(commit);
    let mut sentences =
        vec![format!("an earlier run died while it put its commit on the branch; the project is at {short}, whole")];
    if !settled.kept.is_empty() {
        sentences.push(format!("changed since then, so left as they are: {}", settled.kept.join(", ")));
    }
    sentences
}

fn told(recovered: &workspace::Recovered) -> Vec<String> {
    let mut sentences = Vec::new();
    if !recovered.restored.is_empty() {
        let paths = recovered.restored.join(", ");
        sentences.push(format!("an earlier run died while it published; put back as they were: {paths}"));
    }
    if !recovered.kept.is_empty() {
        let paths = recovered.kept.join(", ");
        sentences.push(format!("changed since an earlier run died while it published, so left as they are: {paths}"));
    }
    sentences
}
