//! Prepares the repository of a run: the project's own or a private one. Recovers from interrupted runs and refuses
//! repositories that must not be committed to.

use std::{collections::BTreeSet, io, path::Path};

use super::{WarningSink, guard_children, warn_all};
use ingestdeck_core::{diagnostic::Diagnostic, text::pluralize};
use ingestdeck_ingest::{
    branch_update::{self, BranchUpdateError},
    lock::{self, ProjectLock, ProjectLockError},
    plan::IngestPlan,
    project::Project,
    repository::{BranchHead, PATH_PLACEHOLDER, Repository, RepositoryError, private},
    worktree::{self, WorktreeError},
};
use ingestdeck_os::scoped_dir::FileLock;
use ingestdeck_records::store::{RunStore, runs::RunStoreError};

/// The sentence about a project without a repository.
pub const NO_REPOSITORY: &str = "no git repository: the changes of a run go through a private one and reach the project together";

/// The sentence about a repository where a run crashed during the branch update.
const UNFINISHED_BRANCH_UPDATE: &str = "git repository: an earlier run was killed during its branch update; the next \
    `ingestdeck run` recovers from that before it starts";

/// The sentence about a project without a repository where a run crashed while it updated the files.
const UNFINISHED_PRIVATE_UPDATE: &str = "no git repository: an earlier run was killed while it updated the project; the \
    next `ingestdeck run` recovers from that before it starts";

/// Maximum number of programs that a sentence names.
const MAX_NAMED: usize = 8;

/// Describes in one sentence how the project stores the results of the units of `planned`.
///
/// # Errors
/// If it is a repository that must not be committed to.
pub fn describe_repository(
    project: &Project,
    planned: Option<&IngestPlan>,
) -> Result<String, RepositoryError> {
    inspect_repository(project, planned).0
}

/// As [`describe_repository`], with the unused programs of the repository's configuration.
pub fn inspect_repository(
    project: &Project,
    planned: Option<&IngestPlan>,
) -> (Result<String, RepositoryError>, Option<String>) {
    match Repository::find(&project.root) {
        Ok(Some(repository)) => (
            repository_state(&repository, &files_to_add(project, planned)),
            disabled_programs_message(&repository),
        ),
        Ok(None) => {
            let is_unfinished = Repository::has_private_journal(&project.root);
            let text = if is_unfinished {
                UNFINISHED_PRIVATE_UPDATE
            } else {
                NO_REPOSITORY
            };
            (
                Repository::check_private(&project.root).map(|()| text.to_owned()),
                None,
            )
        }
        Err(error) => (Err(error), None),
    }
}

/// Files that a run of `planned` may add to the repository.
fn files_to_add(project: &Project, planned: Option<&IngestPlan>) -> Vec<String> {
    let page = format!("wiki/global/{PATH_PLACEHOLDER}.md");
    let sources = project
        .settings
        .connections
        .iter()
        .map(|of| format!("semantic-layer/{}/{PATH_PLACEHOLDER}.yaml", of.id));
    let units = planned.map_or(&[][..], |planned| &planned.units);
    // Units may share files.
    let raw: BTreeSet<String> = units
        .iter()
        .flat_map(|unit| unit.raw_copies(PATH_PLACEHOLDER))
        .map(|(_, copy)| copy)
        .collect();
    [page].into_iter().chain(sources).chain(raw).collect()
}

fn repository_state(repository: &Repository, new: &[String]) -> Result<String, RepositoryError> {
    let head = match repository.check_ready(new, false) {
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
    let branch = head.branch.map_or_else(
        || "the detached HEAD".to_owned(),
        |branch| format!("branch {branch}"),
    );
    Ok(format!(
        "git repository: the changes of a run become one commit on {branch}"
    ))
}

fn disabled_programs_message(repository: &Repository) -> Option<String> {
    let programs = repository.disabled_programs();
    let named: Vec<String> = programs
        .iter()
        .take(MAX_NAMED)
        .map(ToString::to_string)
        .collect();
    let more = match programs.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    (!programs.is_empty())
        .then(|| format!("programs of the git repository that a run does not start: {named}{more}"))
}

/// Why a project cannot be prepared for a run.
#[derive(Debug, thiserror::Error)]
pub enum ProjectPreparationError {
    #[error(transparent)]
    Lock(#[from] ProjectLockError),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error(transparent)]
    Store(#[from] RunStoreError),
    #[error("cannot write below .ktx: {0}")]
    StateDirs(io::Error),
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
            Self::StateDirs(_) => None,
            Self::BranchUpdate(error) => error.help(),
            Self::Worktrees(error) => error.help(),
        }
    }
}

/// A branch for the commits of a run, instead of the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetBranch {
    pub name: String,
    /// The last commit of the continued run on it, which it must still contain.
    pub commit: Option<String>,
}

/// A project that is locked for a run and recovered from interrupted runs.
#[derive(Debug)]
pub struct PreparedProject {
    /// Held until the run is over, because another run would delete its worktrees.
    pub lock: ProjectRunLocks,
    /// The repository that the run commits to.
    pub repository: Repository,
    /// The commit that the run starts from.
    pub head: BranchHead,
}

/// The locks that exclude other runs.
#[derive(Debug)]
pub struct ProjectRunLocks {
    _project: ProjectLock,
    _repository: FileLock,
}

impl PreparedProject {
    /// Prepares a run of `planned`, which commits to the project's own repository if there is one: to its current branch
    /// or to `branch`. `allow_dirty` is as in [`Repository::check_ready`].
    ///
    /// # Errors
    /// If another process runs units of the project, the repository must not be committed to, or recovery fails.
    pub fn new(
        project: &Project,
        planned: &IngestPlan,
        branch: Option<&TargetBranch>,
        allow_dirty: bool,
        warn: WarningSink<'_>,
    ) -> Result<Self, ProjectPreparationError> {
        guard_children();
        let lock = lock::acquire(&project.root)?;
        let repository = match Repository::find(&project.root)? {
            Some(repository) => {
                recover_private_update(&project.root, warn)?;
                repository
            }
            None => open_private(&project.root, warn)?,
        };
        if let Some(TargetBranch { name, commit }) = branch {
            repository.set_target_branch(name, commit.as_deref())?;
        }
        Self::with_repository(project, planned, lock, (repository, allow_dirty), warn)
    }

    /// Prepares a run that uses a private repository, even if a parent directory is a repository.
    ///
    /// # Errors
    /// If another process runs units of the project, or the private repository cannot be created, read or recovered.
    pub fn with_private_repository(
        project: &Project,
        planned: &IngestPlan,
        warn: WarningSink<'_>,
    ) -> Result<Self, ProjectPreparationError> {
        guard_children();
        let lock = lock::acquire(&project.root)?;
        let repository = open_private(&project.root, warn)?;
        Self::with_repository(project, planned, lock, (repository, false), warn)
    }

    fn with_repository(
        project: &Project,
        planned: &IngestPlan,
        lock: ProjectLock,
        (repository, allow_dirty): (Repository, bool),
        warn: WarningSink<'_>,
    ) -> Result<Self, ProjectPreparationError> {
        let lock = ProjectRunLocks {
            _project: lock,
            _repository: repository.lock()?,
        };
        // Symbolic links among these paths are refused before anything is changed or deleted.
        repository
            .ignore_state_dirs()
            .map_err(ProjectPreparationError::StateDirs)?;
        recover_branch_update(&repository, warn)?;
        remove_stale_worktrees(&repository, warn)?;
        let head = repository.check_ready(&files_to_add(project, Some(planned)), allow_dirty)?;
        repository.collect_garbage();
        Ok(Self {
            lock,
            repository,
            head,
        })
    }
}

fn open_private(root: &Path, warn: WarningSink<'_>) -> Result<Repository, RepositoryError> {
    let (repository, is_replaced) = Repository::open_private(root)?;
    if is_replaced {
        let text = format!(
            "`{}` was not created here, so it was replaced by an empty repository",
            private::DIR
        );
        warn_all(warn, &[text]);
    }
    Ok(repository)
}

/// Checks whether a run could lock the project at `root` and record itself. Changes nothing.
///
/// # Errors
/// If a directory or a file that a run writes is not writable.
pub fn check_writable(root: &Path) -> Result<(), ProjectPreparationError> {
    lock::check_lock_file(root)?;
    RunStore::new(root).check_create()?;
    match Repository::find(root) {
        Ok(Some(repository)) => Ok(repository.check_lock()?),
        // An unusable repository is reported by a separate check.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Recovers from an update of the project that was interrupted before the project became a git repository.
fn recover_private_update(
    root: &Path,
    warn: WarningSink<'_>,
) -> Result<(), ProjectPreparationError> {
    if Repository::has_private_journal(root) {
        recover_branch_update(&Repository::open_private(root)?.0, warn)?;
    }
    Ok(())
}

fn recover_branch_update(
    repository: &Repository,
    warn: WarningSink<'_>,
) -> Result<(), BranchUpdateError> {
    let settled = branch_update::recover(repository)?;
    warn_all(warn, &branch_recovery_messages(&settled));
    Ok(())
}

fn remove_stale_worktrees(
    repository: &Repository,
    warn: WarningSink<'_>,
) -> Result<(), ProjectPreparationError> {
    let swept =
        worktree::remove_leftovers(repository).map_err(ProjectPreparationError::Worktrees)?;
    let mut sentences: Vec<String> = swept.skipped.iter().map(ToString::to_string).collect();
    if swept.removed_worktrees > 0 {
        let what = pluralize(swept.removed_worktrees, "worktree");
        sentences.insert(
            0,
            format!("an earlier run was killed; removed {what} that it had left"),
        );
    }
    warn_all(warn, &sentences);
    Ok(())
}

/// Joins paths for a sentence.
fn join_paths(paths: &[String]) -> String {
    paths
        .iter()
        .map(|path| path.escape_debug().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

fn branch_recovery_messages(settled: &branch_update::RecoveredUpdate) -> Vec<String> {
    let Some(commit) = &settled.commit else {
        return Vec::new();
    };
    let short = commit.as_str().get(..8).unwrap_or_default();
    let mut sentences = vec![format!(
        "an earlier run was killed during its branch update; the project is now at commit {short}"
    )];
    if !settled.kept_paths.is_empty() {
        sentences.push(format!(
            "changed since then and therefore kept: {}",
            join_paths(&settled.kept_paths)
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_ingest::test_projects::{died_half_way, died_half_way_without_git};

    #[test]
    fn unfinished_update_without_git_is_reported_and_recovered() {
        let (_dir, repository) = died_half_way_without_git();
        let root = repository.root();
        std::fs::write(root.join("ktx.yaml"), "connections: {}\n").unwrap();
        let project = Project::open(root).unwrap();
        assert_eq!(
            describe_repository(&project, None).unwrap(),
            UNFINISHED_PRIVATE_UPDATE
        );
        // The project becomes a git repository before the next run.
        let mut init = std::process::Command::new("git");
        assert!(
            init.args(["init", "--quiet"])
                .current_dir(root)
                .status()
                .unwrap()
                .success()
        );
        let page = root.join("wiki/global/a.md");
        assert_eq!(
            std::fs::read_to_string(&page).unwrap(),
            "a new and longer\n"
        );
        recover_private_update(root, &|_| {}).unwrap();
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "a old\n");
        assert!(!Repository::has_private_journal(root));
    }

    #[test]
    fn files_of_unfinished_branch_update_need_no_commit() {
        let (_dir, repository) = died_half_way();
        assert_eq!(
            repository_state(&repository, &[]).unwrap(),
            UNFINISHED_BRANCH_UPDATE
        );
        std::fs::write(repository.root().join("wiki/global/mine.md"), "by hand").unwrap();
        let error = repository_state(&repository, &[]).unwrap_err().to_string();
        assert!(
            error.starts_with("wiki/global/mine.md is not committed"),
            "{error}"
        );
    }
}
