//! The commit of a scan: its files on top of the branch, without touching anything else.

use super::{PlannedFiles, ScanError};
use crate::{
    branch_update::{self, BranchUpdateError},
    git::{COMMITTER_EMAIL, CommitId, GitError},
    repository::{self, Repository, RepositoryError},
};

/// A reference that exists while a commit is built.
const DRAFT_REF: &str = "refs/ingestdeck/scan";
/// Attempts while other programs commit.
const MAX_TRIES: u32 = 5;

/// Whether git ignores the raw files of the scan.
pub(super) fn is_ignored(
    repository: &Repository,
    planned: &PlannedFiles,
) -> Result<bool, GitError> {
    let Some((path, _)) = &planned.last else {
        return Ok(false);
    };
    let asked = repository
        .git
        .try_run(&["check-ignore", "--quiet", "--", path])?;
    Ok(asked.success)
}

/// Commits `files` (`None` deletes one), and brings them into the project: all of them or none. Returns the commit and its
/// branch.
pub(super) fn commit(
    repository: &Repository,
    files: &[(&str, Option<&[u8]>)],
    message: &str,
) -> Result<(String, Option<String>), ScanError> {
    let paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
    let listed: Vec<u8> = paths
        .iter()
        .flat_map(|path| [path.as_bytes(), b"\0"].concat())
        .collect();
    if let Some(converted) = repository::first_converted(&repository.git, &listed)? {
        return Err(RepositoryError::ConvertedFile(converted).into());
    }
    for _ in 0..MAX_TRIES {
        let head = repository.check_ready(&[], true)?.commit;
        let commit = build(repository, &head, files, message)?;
        let subject = message.lines().next().unwrap_or_default();
        match branch_update::update_branch(repository, &head, &commit, subject) {
            Ok(()) => return Ok((commit.to_string(), repository.branch()?)),
            Err(BranchUpdateError::BranchMoved) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ScanError::BranchMovedRepeatedly)
}

/// A commit of `files` on top of `head`, which no branch contains.
fn build(
    repository: &Repository,
    head: &CommitId,
    files: &[(&str, Option<&[u8]>)],
    message: &str,
) -> Result<CommitId, GitError> {
    let git = &repository.git;
    let mut stream = format!(
        "commit {DRAFT_REF}\ncommitter draft <{COMMITTER_EMAIL}> 0 +0000\ndata 0\nfrom {head}\n"
    )
    .into_bytes();
    for (path, bytes) in files {
        match bytes {
            Some(bytes) => {
                let header = format!("M 100644 inline {}\ndata {}\n", quoted(path), bytes.len());
                stream.extend([header.as_bytes(), bytes, b"\n"].concat());
            }
            None => stream.extend(format!("D {}\n", quoted(path)).as_bytes()),
        }
    }
    stream.extend(b"done\n");
    git.run_with_input(
        &[
            "fast-import",
            "--quiet",
            "--force",
            "--done",
            "--date-format=raw",
        ],
        &stream,
    )?;
    let tree = git.run_for_line(&["rev-parse", "--verify", &format!("{DRAFT_REF}^{{tree}}")])?;
    git.run(&["update-ref", "-d", DRAFT_REF])?;
    let commit = [
        "commit-tree",
        "-p",
        head.as_str(),
        "-F",
        "-",
        "--end-of-options",
        &tree,
    ];
    git.run_for_commit_with_input(&commit, message.as_bytes())
}

/// A path for `fast-import`, which ends an unquoted one at a line break.
fn quoted(path: &str) -> String {
    let mut quoted = String::from("\"");
    for c in path.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\{:03o}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_one_line_of_the_stream() {
        assert_eq!(quoted("a/b c.yaml"), "\"a/b c.yaml\"");
        assert_eq!(quoted("a\nD wiki"), "\"a\\012D wiki\"");
        assert_eq!(quoted("\"\\é"), "\"\\\"\\\\é\"");
    }
}
