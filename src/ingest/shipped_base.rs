//! The state that attempts start from, as one pack of git objects: for workers, which have no copy of the project.
//!
//! A pack contains one commit without parents, with the directories that attempts read and write. git checks the digest
//! of every object, so a pack that was changed on the way does not unpack. This module must not know workers.

use std::{io, path::Path};

use super::{
    git::{CommitId, Git, GitError, shallow_copy},
    repository::{Repository, RepositoryError},
};
use ingestdeck_core::diagnostic::Diagnostic;
use ingestdeck_os::scoped_dir::{self, ScopedDir};

/// Directories that attempts read and write.
const DIRECTORIES: [&str; 2] = ["wiki", "semantic-layer"];

/// The state cannot be packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ShippedBaseError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error("cannot create a repository for workers: {0}")]
    Io(#[from] io::Error),
    /// The pack does not contain the commit.
    #[error("the pack does not contain commit {}", .0.as_str())]
    MissingCommit(CommitId),
}

impl Diagnostic for ShippedBaseError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Git(error) => error.help(),
            Self::Repository(error) => error.help(),
            Self::Io(error) => scoped_dir::remedy(error).map(str::to_owned),
            Self::MissingCommit(_) => None,
        }
    }
}

/// Packs the directories of `commit`. Returns the packed commit, which has other parents and therefore another id.
pub fn pack(repository: &Repository, commit: &CommitId) -> Result<(CommitId, Vec<u8>), GitError> {
    let git = &repository.git;
    let tree = git.run(
        &[
            &["ls-tree", "-z", "--end-of-options", commit.as_str(), "--"][..],
            &DIRECTORIES,
        ]
        .concat(),
    )?;
    let tree = git.run_with_input(&["mktree", "-z"], &tree)?;
    let tree = String::from_utf8_lossy(&tree).trim_end().to_owned();
    // The same for the same files, on any machine and at any time.
    let packed = format!(
        "tree {tree}\nauthor ingestdeck <ingestdeck> 0 +0000\ncommitter ingestdeck <ingestdeck> 0 +0000\n\nbase\n"
    );
    let packed = git.run_for_commit_with_input(
        &["hash-object", "-t", "commit", "-w", "--stdin"],
        packed.as_bytes(),
    )?;
    let objects = git.run(&[
        "rev-list",
        "--objects",
        "--no-walk",
        "--end-of-options",
        packed.as_str(),
    ])?;
    let pack = git.run_with_input(&["pack-objects", "--quiet", "--stdout"], &objects)?;
    Ok((packed, pack))
}

/// Adds `pack` to the repository of the project at `root`, which is created with the first one.
pub fn unpack(root: &Path, pack: &[u8], commit: &CommitId) -> Result<Repository, ShippedBaseError> {
    let directory = ScopedDir::open(root)?;
    if directory.kind(".git/HEAD")?.is_none() {
        shallow_copy::create_repository(&directory, Some(commit))?;
    }
    let git = Git::open(root)?;
    git.run_with_input(&["unpack-objects", "-q", "--strict"], pack)?;
    let name = format!("{}^{{commit}}", commit.as_str());
    if !git.try_run(&["cat-file", "-e", &name])?.success {
        return Err(ShippedBaseError::MissingCommit(commit.clone()));
    }
    // Keeps the objects. Worktrees have other branches.
    git.run(&[
        "update-ref",
        &format!("refs/bases/{}", commit.as_str()),
        commit.as_str(),
    ])?;
    let found = Repository::find(root)?;
    found.ok_or_else(|| {
        io::Error::other("git does not find the repository that was just created").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_projects::{project, write};

    #[test]
    fn pack_has_the_directories_of_attempts_only() {
        let (_dir, root) = project(&[
            ("wiki/global/a.md", "a\n"),
            ("secret.txt", "s\n"),
            ("ktx.yaml", "connections: {}\n"),
        ]);
        let repository = Repository::find(&root).unwrap().unwrap();
        let head = repository
            .git
            .run_for_commit(&["rev-parse", "HEAD"])
            .unwrap();
        let (packed, bytes) = pack(&repository, &head).unwrap();
        let place = tempfile::tempdir().unwrap();
        let unpacked = unpack(place.path(), &bytes, &packed).unwrap();
        let files = unpacked
            .git
            .run(&["ls-tree", "-r", "--name-only", packed.as_str()])
            .unwrap();
        assert_eq!(String::from_utf8(files).unwrap(), "wiki/global/a.md\n");
        // A later state adds to the same repository.
        write(&root, "wiki/global/b.md", "b\n");
        for args in [&["add", "-A"][..], &["commit", "--quiet", "-m", "second"]] {
            repository.git.run(args).unwrap();
        }
        let head = repository
            .git
            .run_for_commit(&["rev-parse", "HEAD"])
            .unwrap();
        let (second, bytes) = pack(&repository, &head).unwrap();
        unpack(place.path(), &bytes, &second).unwrap();
        unpacked
            .git
            .run(&["cat-file", "-e", packed.as_str()])
            .unwrap();
    }

    #[test]
    fn state_without_artifacts_is_an_empty_tree() {
        let (_dir, root) = project(&[("ktx.yaml", "connections: {}\n")]);
        let repository = Repository::find(&root).unwrap().unwrap();
        let head = repository
            .git
            .run_for_commit(&["rev-parse", "HEAD"])
            .unwrap();
        let (packed, bytes) = pack(&repository, &head).unwrap();
        let place = tempfile::tempdir().unwrap();
        unpack(place.path(), &bytes, &packed).unwrap();
    }

    #[test]
    fn damaged_or_foreign_pack_is_refused() {
        let (_dir, root) = project(&[("wiki/global/a.md", "a\n")]);
        let repository = Repository::find(&root).unwrap().unwrap();
        let head = repository
            .git
            .run_for_commit(&["rev-parse", "HEAD"])
            .unwrap();
        let (packed, mut bytes) = pack(&repository, &head).unwrap();
        let place = tempfile::tempdir().unwrap();
        assert!(matches!(
            unpack(place.path(), &bytes, &head),
            Err(ShippedBaseError::MissingCommit(_))
        ));
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        let place = tempfile::tempdir().unwrap();
        assert!(matches!(
            unpack(place.path(), &bytes, &packed),
            Err(ShippedBaseError::Git(_))
        ));
        bytes.truncate(middle);
        assert!(matches!(
            unpack(place.path(), &bytes, &packed),
            Err(ShippedBaseError::Git(_))
        ));
    }
}
