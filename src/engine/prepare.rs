//! Prepares where a run writes: the project directly, or worktrees of its repository. Recovers from interrupted runs
//! and refuses repositories that must not be committed to.

use std::{collections::BTreeSet, io, path::Path};

use super::{WarningSink, guard_children, warn_all};
use crate::{
    diagnostic::Diagnostic,
    ingest::{
        self,
        branch_update::{self, BranchUpdateError},
        git::GitError,
        lock::{self, ProjectLock, ProjectLockError},
        plan::IngestPlan,
        project::Project,
        repository::{BranchHead, PATH_PLACEHOLDER, Repository, RepositoryError},
        workspace::{self, PublishError, publish},
        worktree::{self, WorktreeError},
    },
    scoped_dir::{FileLock, ScopedDir},
    store::{RunStore, runs::RunStoreError},
    text::pluralize,
};

/// The sentence about a project without a repository.
pub(crate) const NO_REPOSITORY: &str =
    "no git repository: the changes of a unit are published to the project when it succeeds";

/// The sentence about a repository where a run crashed during the branch update.
const UNFINISHED_BRANCH_UPDATE: &str = "git repository: an earlier run was killed during its branch update; the next \
    `ingestdeck run` recovers from that before it starts";

/// Maximum number of programs that a sentence names.
const MAX_NAMED: usize = 8;

/// Describes in one sentence how the project stores the results of the units of `planned`.
///
/// # Errors
/// If it is a repository that must not be committed to.
pub(crate) fn describe_repository(project: &Project, planned: Option<&IngestPlan>) -> Result<String, RepositoryError> {
    inspect_repository(project, planned).0
}

/// As [`describe_repository`], with the unused programs of the repository's configuration.
pub(crate) fn inspect_repository(
    project: &Project,
    planned: Option<&IngestPlan>,
) -> (Result<String, RepositoryError>, Option<String>) {
    match Repository::find(&project.root) {
        Ok(Some(repository)) => {
            (repository_state(&repository, &files_to_add(project, planned)), disabled_programs_message(&repository))
        }
        Ok(None) => (Ok(NO_REPOSITORY.to_owned()), None),
        Err(error) => (Err(error), None),
    }
}

/// Files that a run of `planned` may add to the repository.
fn files_to_add(project: &Project, planned: Option<&IngestPlan>) -> Vec<String> {
    let page = format!("wiki/global/{PATH_PLACEHOLDER}.md");
    let sources =
        project.settings.connections.iter().map(|of| format!("semantic-layer/{}/{PATH_PLACEHOLDER}.yaml", of.id));
    let units = planned.map_or(&[][..], |planned| &planned.units);
    // Units may share files.
    let raw: BTreeSet<String> =
        units.iter().flat_map(|unit| unit.raw_copies(PATH_PLACEHOLDER)).map(|(_, copy)| copy).collect();
    [page].into_iter().chain(sources).chain(raw).collect()
}

fn repository_state(repository: &Repository, new: &[String]) -> Result<String, RepositoryError> {
    let head = match repository.check_ready(new) {
        Err(RepositoryError::Dirty { mut paths }) => {
            let unsettled = branch_update::unrecovered_paths(repository);
            paths.retain(|path| !unsettled.contains(path));
            return if paths.is_empty() {
                Ok(UNFINISHED_BRANCH_UPDATE.to_owned())
            } else {
                Err(RepositoryError::Dirty { paths })
            };
        }
        ready => ready?,
    };
    let branch = head.branch.map_or_else(|| "the detached HEAD".to_owned(), |branch| format!("branch {branch}"));
    Ok(format!("git repository: the changes of a run become one commit on {branch}"))
}

fn disabled_programs_message(repository: &Repository) -> Option<String> {
    let programs = repository.disabled_programs();
    let named: Vec<String> = programs.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = match programs.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    (!programs.is_empty()).then(|| format!("programs of the git repository that a run does not start: {named}{more}"))
}

/// Why a project cannot be prepared for a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectPreparationError {
    #[error(transparent)]
    Lock(#[from] ProjectLockError),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error(transparent)]
    Store(#[from] RunStoreError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot write below .ktx: {0}")]
    StateDirs(io::Error),
    #[error("cannot undo an interrupted publication: {0}")]
    Publication(#[from] PublishError),
    #[error("cannot recover an interrupted branch update: {0}")]
    BranchUpdate(#[from] BranchUpdateError),
    #[error("cannot remove the worktrees of an earlier run: {0}")]
    Worktrees(WorktreeError),
}

impl Diagnostic for ProjectPreparationError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Lock(error) => error.help(),
            Self::Repository(error) => error.help(),
            Self::Store(error) => error.help(),
            Self::Git(error) => error.help(),
            Self::StateDirs(_) => None,
            Self::Publication(error) => error.help(),
            Self::BranchUpdate(error) => error.help(),
            Self::Worktrees(error) => error.help(),
        }
    }
}

/// A project that is locked for a run and recovered from interrupted runs.
#[derive(Debug)]
pub(crate) struct PreparedProject {
    /// Held until the run is over, because another run would delete its work directories.
    pub lock: ProjectRunLocks,
    /// The repository that the run commits to, with the head of its branch; `None` without one.
    pub branch: Option<(Repository, BranchHead)>,
}

/// The locks that exclude other runs.
#[derive(Debug)]
pub(crate) struct ProjectRunLocks {
    _project: ProjectLock,
    _repository: Option<FileLock>,
}

impl PreparedProject {
    /// Prepares a run of `planned`, which commits if the project is a repository.
    ///
    /// # Errors
    /// If another process runs units of the project, the repository must not be committed to, or recovery fails.
    pub(crate) fn new(
        project: &Project,
        planned: &IngestPlan,
        warn: WarningSink<'_>,
    ) -> Result<Self, ProjectPreparationError> {
        let root = &project.root;
        guard_children();
        let lock = lock::acquire(root)?;
        remove_stale_work_dirs(root, warn);
        let Some(repository) = Repository::find(root)? else {
            recover_publication(root, warn)?;
            return Ok(Self { lock: ProjectRunLocks { _project: lock, _repository: None }, branch: None });
        };
        let lock = ProjectRunLocks { _project: lock, _repository: Some(repository.lock()?) };
        // Symbolic links among these paths are refused before anything is changed or deleted.
        repository.ignore_state_dirs().map_err(ProjectPreparationError::StateDirs)?;
        refuse_tracked_journal(&repository)?;
        recover_publication(root, warn)?;
        recover_branch_update(&repository, warn)?;
        remove_stale_worktrees(&repository, warn)?;
        let head = repository.check_ready(&files_to_add(project, Some(planned)))?;
        Ok(Self { lock, branch: Some((repository, head)) })
    }

    /// Prepares a run that writes to the project directly, whether or not it is a repository.
    ///
    /// # Errors
    /// If another process runs units of the project, or recovery fails.
    pub(crate) fn with_overlay(root: &Path, warn: WarningSink<'_>) -> Result<Self, ProjectPreparationError> {
        guard_children();
        let lock = ProjectRunLocks { _project: lock::acquire(root)?, _repository: None };
        remove_stale_work_dirs(root, warn);
        recover_publication(root, warn)?;
        Ok(Self { lock, branch: None })
    }
}

/// Checks whether a run could lock the project at `root` and record itself. Changes nothing.
///
/// # Errors
/// If a directory or a file that a run writes is not writable.
pub(crate) fn check_writable(root: &Path) -> Result<(), ProjectPreparationError> {
    lock::check_lock_file(root)?;
    RunStore::new(root).check_create()?;
    match Repository::find(root) {
        Ok(Some(repository)) => Ok(repository.check_lock()?),
        // An unusable repository is reported by a separate check.
        Ok(None) | Err(_) => Ok(()),
    }
}

fn recover_publication(root: &Path, warn: WarningSink<'_>) -> Result<(), PublishError> {
    let recovered = workspace::recover_publication(root)?;
    warn_all(warn, &publication_recovery_messages(&recovered));
    Ok(())
}

fn refuse_tracked_journal(repository: &Repository) -> Result<(), ProjectPreparationError> {
    let there = ScopedDir::open(repository.root()).and_then(|root| root.kind(publish::JOURNAL_FILE));
    if !there.is_ok_and(|kind| kind.is_none()) && repository.tracks(publish::JOURNAL_FILE)? {
        return Err(PublishError::journal_tracked_by_git().into());
    }
    Ok(())
}

fn recover_branch_update(repository: &Repository, warn: WarningSink<'_>) -> Result<(), BranchUpdateError> {
    let settled = branch_update::recover(repository)?;
    warn_all(warn, &branch_recovery_messages(&settled));
    Ok(())
}

/// Removes the work directories of killed runs, but only of runs that this installation recorded.
fn remove_stale_work_dirs(root: &Path, warn: WarningSink<'_>) {
    let runs = RunStore::new(root);
    let found = runs.list().unwrap_or_default().into_iter().filter(|found| ingest::is_run_marked(root, found.id));
    let mut removed = 0;
    let mut sentences = Vec::new();
    for run in found {
        match runs.remove_work_dir(&run) {
            Ok(was_there) => removed += usize::from(was_there),
            Err(error) => sentences.push(error.to_line()),
        }
    }
    if removed > 0 {
        let what = pluralize(removed, "work directory");
        sentences.insert(0, format!("an earlier run was killed; removed {what} that it had left"));
    }
    warn_all(warn, &sentences);
}

fn remove_stale_worktrees(repository: &Repository, warn: WarningSink<'_>) -> Result<(), ProjectPreparationError> {
    let swept = worktree::remove_leftovers(repository).map_err(ProjectPreparationError::Worktrees)?;
    let mut sentences: Vec<String> = swept.skipped.iter().map(ToString::to_string).collect();
    if swept.removed_worktrees > 0 {
        let what = pluralize(swept.removed_worktrees, "worktree");
        sentences.insert(0, format!("an earlier run was killed; removed {what} that it had left"));
    }
    warn_all(warn, &sentences);
    Ok(())
}

/// Joins paths for a sentence.
fn join_paths(paths: &[String]) -> String {
    paths.iter().map(|path| path.escape_debug().to_string()).collect::<Vec<_>>().join(", ")
}

fn branch_recovery_messages(settled: &branch_update::RecoveredUpdate) -> Vec<String> {
    let Some(commit) = &settled.commit else { return Vec::new() };
    let short = commit.as_str().get(..8).unwrap_or_default();
    let mut sentences =
        vec![format!("an earlier run was killed during its branch update; the project is now at commit {short}")];
    if !settled.kept_paths.is_empty() {
        sentences.push(format!("changed since then and therefore kept: {}", join_paths(&settled.kept_paths)));
    }
    sentences
}

fn publication_recovery_messages(recovered: &workspace::RecoveredPublication) -> Vec<String> {
    let mut sentences = Vec::new();
    if !recovered.restored_paths.is_empty() {
        let paths = join_paths(&recovered.restored_paths);
        sentences.push(format!("an earlier run was killed while it published changes; restored: {paths}"));
    }
    if !recovered.kept_paths.is_empty() {
        let paths = join_paths(&recovered.kept_paths);
        sentences.push(format!(
            "changed since an earlier run was killed while it published changes, and therefore kept: {paths}"
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::branch_update::tests::died_half_way;

    #[test]
    fn files_of_unfinished_branch_update_need_no_commit() {
        let (_dir, repository) = died_half_way();
        assert_eq!(repository_state(&repository, &[]).unwrap(), UNFINISHED_BRANCH_UPDATE);
        std::fs::write(repository.root().join("wiki/global/mine.md"), "by hand").unwrap();
        let error = repository_state(&repository, &[]).unwrap_err().to_string();
        assert!(error.starts_with("wiki/global/mine.md is not committed"), "{error}");
    }
}
