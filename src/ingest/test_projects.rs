//! Projects for tests, also for those of other crates (feature `test-projects`): with and without git, and with a branch
//! update that was interrupted.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test that cannot continue should report the line"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use crate::{
    branch_update::{self, BranchUpdateJournal},
    git::{CommitId, Git},
    local_record,
    repository::Repository,
};

/// Keeps the program from creating files in the user's home, for the rest of this process.
pub fn ignore_home() {
    local_record::IGNORES_HOME.store(true, Ordering::Relaxed);
}

/// Starts the guard of this process, without which each git call begins with a copy of the process.
pub(crate) fn start_group_guard() {
    ignore_home();
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("ingestdeck");
    // Without the program, the calls only take longer.
    let _ = ingestdeck_os::group_guard::start(&program);
}

/// A project that is a repository with one commit of `files`.
pub(crate) fn project(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    start_group_guard();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("project");
    write(&root, "ktx.yaml", "connections: {}\n");
    for (path, text) in files {
        write(&root, path, text);
    }
    let git = Git::open(&root).unwrap();
    git.run(&["init", "--quiet", "--initial-branch=main"])
        .unwrap();
    git.run(&["add", "--all"]).unwrap();
    git.run(&["commit", "--quiet", "-m", "first"]).unwrap();
    (dir, root)
}

/// Writes a file and its parent directories.
pub(crate) fn write(root: &Path, path: &str, text: &str) {
    fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
    fs::write(root.join(path), text).unwrap();
}

/// The pages of a project before an update.
const PAGES: [(&str, &str); 2] = [("wiki/global/a.md", "a old\n"), ("wiki/global/b.md", "b\n")];

/// A project with git.
pub(crate) fn with_git() -> (tempfile::TempDir, Repository) {
    let (dir, root) = project(&PAGES);
    (dir, Repository::find(&root).unwrap().unwrap())
}

/// A project without git.
pub(crate) fn without_git() -> (tempfile::TempDir, Repository) {
    start_group_guard();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    PAGES
        .iter()
        .for_each(|(path, text)| write(&root, path, text));
    let (repository, _) = Repository::open_private(&root).unwrap();
    repository.current_state().unwrap();
    (dir, repository)
}

/// A project with two commits: the current one and the target. The target changes the first page, deletes the second
/// and adds a third.
pub(crate) fn stage_in(
    kind: fn() -> (tempfile::TempDir, Repository),
) -> (tempfile::TempDir, Repository, CommitId, CommitId) {
    let (dir, repository) = kind();
    repository.ignore_state_dirs().unwrap();
    let (git, root) = (&repository.git, repository.root().to_path_buf());
    let old = repository.head().unwrap();
    write(&root, "wiki/global/a.md", "a new and longer\n");
    fs::remove_file(root.join("wiki/global/b.md")).unwrap();
    write(&root, "wiki/global/deep/c.md", "c\n");
    git.run(&["add", "--all", "--", "wiki"]).unwrap();
    let tree = git.run_for_line(&["write-tree"]).unwrap();
    let new = git
        .run_for_commit(&["commit-tree", &tree, "-p", old.as_str(), "-m", "new"])
        .unwrap();
    git.run(&["reset", "--quiet", "--hard", old.as_str()])
        .unwrap();
    (dir, repository, old, new)
}

/// A project whose process died after updating the files and before moving the branch.
pub fn died_half_way() -> (tempfile::TempDir, Repository) {
    died_half_way_in(with_git)
}

/// As [`died_half_way`], in a project without git.
pub fn died_half_way_without_git() -> (tempfile::TempDir, Repository) {
    died_half_way_in(without_git)
}

pub(crate) fn died_half_way_in(
    kind: fn() -> (tempfile::TempDir, Repository),
) -> (tempfile::TempDir, Repository) {
    let (dir, repository, old, new) = stage_in(kind);
    write_journal(
        &repository,
        &BranchUpdateJournal {
            old: old.clone(),
            new: new.clone(),
        },
    );
    repository
        .git
        .run(&["read-tree", "-m", "-u", old.as_str(), new.as_str()])
        .unwrap();
    (dir, repository)
}

/// Writes the journal of an update that has begun.
pub(crate) fn write_journal(repository: &Repository, journal: &BranchUpdateJournal) {
    branch_update::write(repository, journal).unwrap();
}
