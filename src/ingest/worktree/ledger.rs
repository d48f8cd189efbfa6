//! The ledger of worktrees: those that runs made, and how they are removed again.
//!
//! An entry is written before its worktree is made and removed after it. It is in the repository's own directory and
//! bound to it, so that what a clone or an archive brings removes nothing. Even then a directory is only removed if git
//! knows it as a worktree of this repository in that place, and a branch only if every commit since its base is one of a
//! run's.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

use super::{
    super::{
        git::{self, CommitId, GitError},
        local_record::{self, UntrustedRecord},
        repository::{Repository, WORKTREES_DIR},
    },
    WorktreeError,
};
use crate::scoped_dir::{FileKind, PRIVATE_MODE, ScopedDir, TEMP_PREFIX};

/// One file for each worktree, relative to the project.
const LEDGER_DIR: &str = ".git/ingestdeck/worktrees";
/// Where git keeps what it knows of worktrees.
const GIT_WORKTREES_DIR: &str = ".git/worktrees";

/// How the name of every job begins.
const JOB_PREFIX: &str = "local-";
/// Largest entry, and largest file of git's that names a path, in bytes.
const MAX_ENTRY_BYTES: u64 = 64 * 1024;

/// What an entry says. The name of its file says the rest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorktreeEntry {
    branch: String,
    base: CommitId,
}

/// What was found of earlier runs.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// Worktrees that were removed.
    pub removed_worktrees: usize,
    /// What was not touched, with a way to get rid of it.
    pub skipped: Vec<SkippedLeftover>,
}

/// Something that was not removed.
#[derive(Debug)]
pub enum SkippedLeftover {
    /// An entry of the ledger that no run of this repository wrote.
    Entry {
        /// Relative to the project.
        path: String,
        /// Why it is not followed.
        reason: UntrustedRecord,
    },
    /// The directory of the worktree `name`, which git does not know as one of this repository in this place: the
    /// repository was moved, for instance.
    Directory { name: String },
    /// A branch with commits of somebody else.
    Branch { branch: String },
    /// It could not be removed; the next run tries again.
    Failed {
        /// Relative to the project.
        path: String,
        why: String,
    },
}

impl fmt::Display for SkippedLeftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { path, reason: why } => {
                write!(f, "`{}` removes nothing: {why}; ", path.escape_debug())?;
                // Names that no run gives are not repeated in commands.
                match path
                    .strip_prefix(LEDGER_DIR)
                    .and_then(|name| name.strip_prefix('/'))
                    .filter(|name| is_run_worktree(name))
                {
                    Some(name) => write!(
                        f,
                        "if you do not need what it names, run `git worktree remove --force {}` and `git branch -D {}`, \
                         then delete it",
                        worktree_dir(name),
                        worktree_branch(name)
                    ),
                    None => f.write_str("delete it"),
                }
            }
            // Only for names that runs give.
            Self::Directory { name } => write!(
                f,
                "`{}` and branch `{1}` are not removed: git knows no worktree in that place, so the project was moved or \
                 it is not a run's; if you do not need them, delete the directory, then run `git worktree prune` and `git \
                 branch -D {1}`",
                worktree_dir(name),
                worktree_branch(name)
            ),
            Self::Branch { branch } => write!(
                f,
                "branch `{branch}` is not removed: it has commits that no run made; delete it with `git branch -D \
                 {branch}` if you do not need them"
            ),
            Self::Failed { path, why } => write!(f, "`{}` cannot be removed: {why}", path.escape_debug()),
        }
    }
}

/// The directory of the worktree `name`, relative to the project.
pub(super) fn worktree_dir(name: &str) -> String {
    format!("{WORKTREES_DIR}/session-{name}")
}

/// The branch of the worktree `name`.
pub(super) fn worktree_branch(name: &str) -> String {
    format!("session/{name}")
}

fn entry_path(name: &str) -> String {
    format!("{LEDGER_DIR}/{name}")
}

/// Enters the worktree `name`, which is about to start from `base`.
pub(super) fn record_worktree(project: &ScopedDir, name: &str, base: &CommitId) -> io::Result<()> {
    let entry = WorktreeEntry { branch: worktree_branch(name), base: base.clone() };
    project.write(&entry_path(name), &local_record::encode(project, entry)?, PRIVATE_MODE, 0o600)
}

/// The name by which git knows the worktree `name`, if it knows a worktree of this repository in that place.
pub(super) fn git_registration(repository: &Repository, project: &ScopedDir, name: &str) -> io::Result<Option<String>> {
    let Some(known) = project.dir_if_exists(GIT_WORKTREES_DIR)? else { return Ok(None) };
    let relative = format!("{}/.git", worktree_dir(name));
    let absolute = repository.root().canonicalize()?.join(&relative);
    let is_here = |id: &str| {
        let place = known.read(&format!("{id}/gitdir"), MAX_ENTRY_BYTES).unwrap_or_default();
        let place = place.trim_ascii_end();
        place == absolute.as_os_str().as_encoded_bytes() || place == format!("../../../{relative}").as_bytes()
    };
    // git derives its name from that of the directory, unless it is taken.
    let likely = format!("session-{name}");
    if is_here(&likely) {
        return Ok(Some(likely));
    }
    let ids = known.entries()?.into_iter().filter_map(|(id, _)| id.into_string().ok());
    Ok(ids.into_iter().find(|id| is_here(id)))
}

/// Clears away the worktrees that a killed run left in `repository`. Nobody else may be at work.
///
/// # Errors
/// When the ledger cannot be read. What cannot be removed is no error.
pub fn remove_leftovers(repository: &Repository) -> Result<SweepReport, WorktreeError> {
    let failed = |cause| WorktreeError::Ledger { path: LEDGER_DIR, cause };
    let project = ScopedDir::open(repository.root()).map_err(failed)?;
    let mut swept = SweepReport::default();
    let Some(ledger) = project.dir_if_exists(LEDGER_DIR).map_err(failed)? else { return Ok(swept) };
    let mut entries = ledger.entries().map_err(failed)?;
    entries.sort_unstable();
    for (name, kind) in entries {
        let name = name.to_string_lossy();
        if kind == FileKind::File && name.starts_with(TEMP_PREFIX) {
            // Never finished, so its worktree was never made.
            ledger.remove(&name).map_err(failed)?;
            continue;
        }
        let path = entry_path(&name);
        let entry = if kind == FileKind::File && is_run_worktree(&name) {
            let bytes = ledger.read(&name, MAX_ENTRY_BYTES).map_err(failed)?;
            local_record::decode::<WorktreeEntry>(&project, &bytes)
        } else {
            Err(UntrustedRecord::UnknownVersion)
        };
        match entry {
            Ok(entry) if entry.branch == worktree_branch(&name) => {
                match remove_leftover(repository, &name, &entry.base) {
                    Ok(None) => swept.removed_worktrees += 1,
                    Ok(Some(left)) => swept.skipped.push(left),
                    Err(error) => {
                        swept
                            .skipped
                            .push(SkippedLeftover::Failed { path: worktree_dir(&name), why: error.to_string() });
                    }
                }
            }
            Ok(_) => swept.skipped.push(SkippedLeftover::Entry { path, reason: UntrustedRecord::UnknownVersion }),
            Err(why) => swept.skipped.push(SkippedLeftover::Entry { path, reason: why }),
        }
    }
    Ok(swept)
}

/// Whether `name` is one that [`super::Worktrees`] gives.
fn is_run_worktree(name: &str) -> bool {
    name.strip_prefix(JOB_PREFIX).is_some_and(|rest| !rest.is_empty())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.contains("..")
}

/// Deletes the entry of the worktree `name`, and nothing else.
pub(super) fn delete_entry(project: &ScopedDir, name: &str) -> io::Result<()> {
    project.remove(&entry_path(name)).map(drop)
}

/// Removes the worktree `name`, which started from `base`, its branch and its entry, after another process. What is not
/// removed and why, if there is such a thing: from then on it belongs to the user.
pub(super) fn remove_leftover(
    repository: &Repository,
    name: &str,
    base: &CommitId,
) -> Result<Option<SkippedLeftover>, WorktreeError> {
    remove_worktree(repository, name, || remove_leftover_branch(repository, name, base))
}

/// As [`remove_leftover`], for a worktree that this process made: its branch is known to be of this run.
pub(super) fn remove_own(repository: &Repository, name: &str) -> Result<Option<SkippedLeftover>, WorktreeError> {
    let reference = format!("refs/heads/{}", worktree_branch(name));
    remove_worktree(repository, name, || {
        repository.git.run(&["update-ref", "--no-deref", "-d", "--end-of-options", &reference]).map(|_| None)
    })
}

fn remove_worktree(
    repository: &Repository,
    name: &str,
    remove_branch: impl FnOnce() -> Result<Option<SkippedLeftover>, GitError>,
) -> Result<Option<SkippedLeftover>, WorktreeError> {
    let failed = |cause| WorktreeError::Io { path: repository.root().join(worktree_dir(name)), cause };
    let project = ScopedDir::open(repository.root()).map_err(failed)?;
    let left = match remove_directory(repository, &project, name)? {
        None => remove_branch()?,
        left => left,
    };
    delete_entry(&project, name).map_err(failed)?;
    Ok(left)
}

fn remove_directory(
    repository: &Repository,
    project: &ScopedDir,
    name: &str,
) -> Result<Option<SkippedLeftover>, WorktreeError> {
    let path = worktree_dir(name);
    let failed = |cause| WorktreeError::Io { path: repository.root().join(&path), cause };
    let is_registered = git_registration(repository, project, name).map_err(failed)?.is_some();
    let is_removable = match project.kind(&path).map_err(failed)? {
        None => true,
        Some(FileKind::Directory) if is_registered => true,
        // Its maker was killed before git knew it.
        Some(FileKind::Directory) => project.dir(&path, None).and_then(|dir| dir.entries()).map_err(failed)?.is_empty(),
        Some(_) => false,
    };
    if !is_removable {
        return Ok(Some(SkippedLeftover::Directory { name: name.to_owned() }));
    }
    let remove = ["worktree", "remove", "--force", "--force", "--", &path];
    if is_registered && repository.git.try_run(&remove)?.success {
        return Ok(None);
    }
    // Half made, or half removed: git forgets it once there is nothing any more.
    project.remove_dir_all(&path).map_err(failed)?;
    if is_registered {
        repository.git.run(&remove)?;
    }
    Ok(None)
}

fn remove_leftover_branch(
    repository: &Repository,
    name: &str,
    base: &CommitId,
) -> Result<Option<SkippedLeftover>, GitError> {
    let (git, branch) = (&repository.git, worktree_branch(name));
    let reference = format!("refs/heads/{branch}");
    let tip = git.try_run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &reference])?;
    if !tip.success {
        return Ok(None);
    }
    let Ok(tip) = CommitId::parse(String::from_utf8_lossy(&tip.stdout).trim_end()) else {
        return Ok(Some(SkippedLeftover::Branch { branch }));
    };
    let range = format!("{base}..{tip}");
    let committers = git.try_run(&["log", "-z", "--format=<%ce>", "--end-of-options", &range, "--"])?;
    let ours = format!("<{}>", git::COMMITTER_EMAIL);
    let mut emails = committers.stdout.split(|byte| *byte == 0).filter(|email| !email.is_empty());
    if !committers.success || !emails.all(|email| email == ours.as_bytes()) {
        return Ok(Some(SkippedLeftover::Branch { branch }));
    }
    // `branch -D` would forget what was configured for it as well; nothing ever is.
    git.run(&["update-ref", "--no-deref", "-d", "--end-of-options", &reference, tip.as_str()])?;
    Ok(None)
}

#[cfg(test)]
mod tests;
