//! Where a run writes: over the project, or on worktrees of its repository. Settles what an earlier run left half done,
//! and refuses what nobody should commit to.

use std::{collections::BTreeSet, path::Path};

use super::{exit::Failure, launch, project, summary::counted};
use crate::{
    ingest::{
        self, branch_update,
        lock::{self, ProjectLock, ProjectLockError},
        plan::Planned,
        project::Project,
        repository::{Head, LATER, Repository, RepositoryError},
        workspace::{self, PublishError, publish},
        worktree,
    },
    scoped_dir::{FileLock, ScopedDir},
    store::Runs,
};

/// What is said of a project without a repository.
pub const NO_HISTORY: &str =
    "no git repository: what a unit writes goes into the project as soon as the unit has succeeded";

/// What is said of a repository where the program of a run died while it updated the branch.
const UNSETTLED: &str = "git repository: an earlier run died while it put its commit on the branch; the next \
    `ingestdeck run` settles that before it starts";

/// Most programs that a sentence names.
const NAMED: usize = 8;

/// How the project keeps what the units of `planned` write, in one sentence.
///
/// # Errors
/// When it is a repository that must not be committed to.
pub fn sentence(project: &Project, planned: Option<&Planned>) -> Result<String, RepositoryError> {
    examine(project, planned).0
}

/// As [`sentence`], and what of the repository's configuration is not used, if anything.
pub fn examine(project: &Project, planned: Option<&Planned>) -> (Result<String, RepositoryError>, Option<String>) {
    match Repository::find(&project.root) {
        Ok(Some(repository)) => (kept(&repository, &may_add(project, planned)), disabled(&repository)),
        Ok(None) => (Ok(NO_HISTORY.to_owned()), None),
        Err(error) => (Err(error), None),
    }
}

/// Files that a run of `planned` may add to the repository.
fn may_add(project: &Project, planned: Option<&Planned>) -> Vec<String> {
    let page = format!("wiki/global/{LATER}.md");
    let sources = project.settings.connections.iter().map(|of| format!("semantic-layer/{}/{LATER}.yaml", of.id));
    let units = planned.map_or(&[][..], |planned| &planned.units);
    // Units may share files.
    let raw: BTreeSet<String> = units.iter().flat_map(|unit| unit.raw_copies(LATER)).map(|(_, copy)| copy).collect();
    [page].into_iter().chain(sources).chain(raw).collect()
}

fn kept(repository: &Repository, new: &[String]) -> Result<String, RepositoryError> {
    let head = match repository.ready(new) {
        Err(RepositoryError::Dirty { mut paths }) => {
            let unsettled = branch_update::unsettled_paths(repository);
            paths.retain(|path| !unsettled.contains(path));
            return if paths.is_empty() { Ok(UNSETTLED.to_owned()) } else { Err(RepositoryError::Dirty { paths }) };
        }
        ready => ready?,
    };
    let branch = head.branch.map_or_else(|| "the detached HEAD".to_owned(), |branch| format!("branch {branch}"));
    Ok(format!("git repository: what the units of a run write becomes one commit on {branch}"))
}

fn disabled(repository: &Repository) -> Option<String> {
    let programs = repository.disabled();
    let named: Vec<String> = programs.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match programs.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    (!programs.is_empty()).then(|| format!("programs of the git repository that a run does not start: {named}{more}"))
}

/// True for a project that is a repository: only there what units write is put together, and looked at by the pass.
pub fn has_history(root: &Path) -> bool {
    Repository::is_at(root)
}

/// A project that is ours for a run, with everything settled that an earlier run left half done.
#[derive(Debug)]
pub struct Prepared {
    /// Held until the run is over: another run would clear away what this one works on.
    pub lock: RunLock,
    /// The repository that the run commits to, and where its branch stands; `None` without one.
    pub branch: Option<(Repository, Head)>,
}

/// What keeps other runs away.
#[derive(Debug)]
pub struct RunLock {
    _project: ProjectLock,
    _repository: Option<FileLock>,
}

impl Prepared {
    /// A run of `planned`, which commits if the project is a repository.
    ///
    /// # Errors
    /// When somebody else ingests it, when it must not be committed to, or when something cannot be settled.
    pub fn new(project: &Project, planned: &Planned) -> Result<Self, Failure> {
        let root = &project.root;
        let refused = |error: RepositoryError| Failure::usage(error.to_string());
        launch::guard_children();
        let lock = take(root)?;
        sweep_work(root);
        let Some(repository) = Repository::find(root).map_err(refused)? else {
            undo_publication(root)?;
            return Ok(Self { lock: RunLock { _project: lock, _repository: None }, branch: None });
        };
        let lock = RunLock { _project: lock, _repository: Some(repository.lock().map_err(refused)?) };
        // Links among them are refused before anything is undone or cleared away.
        repository.hide_ours().map_err(|error| Failure::internal(format!("cannot write below .ktx: {error}")))?;
        refuse_tracked_journal(&repository)?;
        undo_publication(root)?;
        settle_branch(&repository)?;
        sweep(&repository)?;
        let head = repository.ready(&may_add(project, Some(planned))).map_err(refused)?;
        Ok(Self { lock, branch: Some((repository, head)) })
    }

    /// A run that writes into the project itself, whether or not it is a repository.
    ///
    /// # Errors
    /// When somebody else ingests it, or when something cannot be settled.
    pub fn overlay(root: &Path) -> Result<Self, Failure> {
        launch::guard_children();
        let lock = RunLock { _project: take(root)?, _repository: None };
        sweep_work(root);
        undo_publication(root)?;
        Ok(Self { lock, branch: None })
    }
}

/// Whether a run could lock the project at `root` and record itself in it, with the words of its refusal. Changes nothing.
///
/// # Errors
/// When a directory or a file that a run writes cannot be written.
pub fn check_writable(root: &Path) -> Result<(), Failure> {
    lock::check(root).map_err(|error| not_locked(&error))?;
    Runs::of_project(root).check_create().map_err(Failure::internal)?;
    match Repository::find(root) {
        Ok(Some(repository)) => repository.check_lock().map_err(|error| Failure::usage(error.to_string())),
        // A repository that cannot be used is reported for itself.
        Ok(None) | Err(_) => Ok(()),
    }
}

fn take(root: &Path) -> Result<ProjectLock, Failure> {
    lock::take(root).map_err(|error| not_locked(&error))
}

fn not_locked(error: &ProjectLockError) -> Failure {
    match error {
        ProjectLockError::Taken { .. } => Failure::usage(error.to_string()),
        ProjectLockError::Io { .. } => Failure::internal(error.to_string()),
    }
}

fn cannot_undo(error: &PublishError) -> Failure {
    Failure::internal(format!("cannot undo what a crash left half done: {error}"))
}

fn undo_publication(root: &Path) -> Result<(), Failure> {
    let recovered = workspace::recover(root).map_err(|error| cannot_undo(&error))?;
    project::warn(&told(&recovered));
    Ok(())
}

fn refuse_tracked_journal(repository: &Repository) -> Result<(), Failure> {
    let there = ScopedDir::open(repository.root()).and_then(|root| root.kind(publish::JOURNAL));
    if !there.is_ok_and(|kind| kind.is_none()) && repository.tracks(publish::JOURNAL).map_err(Failure::internal)? {
        return Err(cannot_undo(&PublishError::tracked()));
    }
    Ok(())
}

fn settle_branch(repository: &Repository) -> Result<(), Failure> {
    let settled = branch_update::recover(repository)
        .map_err(|error| Failure::internal(format!("cannot settle what a crash left half done: {error}")))?;
    project::warn(&settled_words(&settled));
    Ok(())
}

/// Removes what the attempts of killed runs wrote beside their records: only of runs that this installation recorded.
fn sweep_work(root: &Path) {
    let runs = Runs::of_project(root);
    let found = runs.list().unwrap_or_default().into_iter().filter(|found| ingest::is_run_marked(root, found.id));
    let mut removed = 0;
    let mut sentences = Vec::new();
    for run in found {
        match runs.remove_work(&run) {
            Ok(was_there) => removed += usize::from(was_there),
            Err(error) => sentences.push(error.to_string()),
        }
    }
    if removed > 0 {
        let what = counted(removed, "work directory");
        sentences.insert(0, format!("an earlier run was killed; removed {what} that it had left"));
    }
    project::warn(&sentences);
}

fn sweep(repository: &Repository) -> Result<(), Failure> {
    let swept = worktree::sweep(repository)
        .map_err(|error| Failure::internal(format!("cannot clear away the worktrees of an earlier run: {error}")))?;
    let mut sentences: Vec<String> = swept.left_alone.iter().map(ToString::to_string).collect();
    if swept.removed > 0 {
        let what = counted(swept.removed, "worktree");
        sentences.insert(0, format!("an earlier run was killed; cleared away {what} that it had left"));
    }
    project::warn(&sentences);
    Ok(())
}

/// Paths in a sentence.
fn listed(paths: &[String]) -> String {
    paths.iter().map(|path| path.escape_debug().to_string()).collect::<Vec<_>>().join(", ")
}

fn settled_words(settled: &branch_update::Settled) -> Vec<String> {
    let Some(commit) = &settled.to else { return Vec::new() };
    let short = commit.as_str().get(..8).unwrap_or_default();
    let mut sentences =
        vec![format!("an earlier run died while it put its commit on the branch; the project is at {short}, whole")];
    if !settled.kept.is_empty() {
        sentences.push(format!("changed since then, so left as they are: {}", listed(&settled.kept)));
    }
    sentences
}

fn told(recovered: &workspace::Recovered) -> Vec<String> {
    let mut sentences = Vec::new();
    if !recovered.restored.is_empty() {
        let paths = listed(&recovered.restored);
        sentences.push(format!("an earlier run died while it published; put back as they were: {paths}"));
    }
    if !recovered.kept.is_empty() {
        let paths = listed(&recovered.kept);
        sentences.push(format!("changed since an earlier run died while it published, so left as they are: {paths}"));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::branch_update::tests::died_half_way;

    #[test]
    fn files_of_a_half_done_update_need_no_commit() {
        let (_dir, repository) = died_half_way();
        assert_eq!(kept(&repository, &[]).unwrap(), UNSETTLED);
        std::fs::write(repository.root().join("wiki/global/mine.md"), "by hand").unwrap();
        let error = kept(&repository, &[]).unwrap_err().to_string();
        assert!(error.starts_with("wiki/global/mine.md is not committed"), "{error}");
    }
}
