//! New repositories with the objects of one commit, without its history.
//!
//! A copy starts no program that the configuration of the original names, and changes nothing in it.

use std::io;

use super::{CommitId, Git, GitError};
use ingestdeck_os::scoped_dir::{PRIVATE_MODE, ScopedDir};

/// The branch that a new repository is on.
pub(crate) const BRANCH: &str = "main";
/// Directory of its objects.
const PACK_DIR: &str = ".git/objects/pack";
/// Length of a SHA-1 commit id.
const SHA1_HEX_LENGTH: usize = 40;

/// Copies the objects of `commit`, without its history, into the repository in `directory`.
pub(crate) fn copy_objects(
    original: &Git,
    commit: &CommitId,
    directory: &str,
) -> Result<(), GitError> {
    let list = [
        "rev-list",
        "--objects",
        "--no-walk",
        "--end-of-options",
        commit.as_str(),
    ];
    let objects = original.run(&list)?;
    let pack = format!("{directory}/{PACK_DIR}/pack");
    original.run_with_input(&["pack-objects", "--quiet", &pack], &objects)?;
    Ok(())
}

/// Creates a repository without commits in `directory`, with the object format of `commit`; SHA-1 without one.
pub(crate) fn create_repository(
    directory: &ScopedDir,
    commit: Option<&CommitId>,
) -> io::Result<()> {
    let is_sha1 = commit.is_none_or(|commit| commit.as_str().len() == SHA1_HEX_LENGTH);
    let (version, extensions) = if is_sha1 {
        (0, "")
    } else {
        (1, "[extensions]\n\tobjectFormat = sha256\n")
    };
    let config =
        format!("[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n{extensions}");
    for name in [".git/refs/heads", PACK_DIR] {
        directory.dir(name, Some(PRIVATE_MODE))?;
    }
    directory.write(".git/config", config.as_bytes(), PRIVATE_MODE, 0o600)?;
    directory.write(
        ".git/HEAD",
        format!("ref: refs/heads/{BRANCH}\n").as_bytes(),
        PRIVATE_MODE,
        0o600,
    )
}
