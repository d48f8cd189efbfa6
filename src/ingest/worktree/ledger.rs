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
        machine_record::{self, ForeignRecord},
        repository::{Repository, WORKTREES},
    },
    WorktreeError,
};
use crate::scoped_dir::{DRAFT, FileKind, PRIVATE, ScopedDir};

/// One file for each worktree, relative to the project.
const LEDGER: &str = ".git/ingestdeck/worktrees";
/// Where git keeps what it knows of worktrees.
const REGISTRATIONS: &str = ".git/worktrees";

/// How the name of every job begins.
const JOB: &str = "local-";
/// Largest entry, and largest file of git's that names a path, in bytes.
const LARGEST: u64 = 64 * 1024;

/// What an entry says. The name of its file says the rest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    branch: String,
    base: CommitId,
}

/// What was found of earlier runs.
#[derive(Debug, Default)]
pub struct Swept {
    /// Worktrees that were removed.
    pub removed: usize,
    /// What was not touched, with a way to get rid of it.
    pub left_alone: Vec<LeftAlone>,
}

/// Something that was not removed.
#[derive(Debug)]
pub enum LeftAlone {
    /// An entry of the ledger that no run of this repository wrote.
    Entry {
        /// Relative to the project.
        path: String,
        /// Why it is not followed.
        why: ForeignRecord,
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

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { path, why } => {
                write!(f, "`{}` removes nothing: {why}; ", path.escape_debug())?;
                // Names that no run gives are not repeated in commands.
                match path
                    .strip_prefix(LEDGER)
                    .and_then(|name| name.strip_prefix('/'))
                    .filter(|name| is_made_here(name))
                {
                    Some(name) => write!(
                        f,
                        "if you do not need what it names, run `git worktree remove --force {}` and `git branch -D {}`, \
                         then delete it",
                        directory(name),
                        branch(name)
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
                directory(name),
                branch(name)
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
pub(super) fn directory(name: &str) -> String {
    format!("{WORKTREES}/session-{name}")
}

/// The branch of the worktree `name`.
pub(super) fn branch(name: &str) -> String {
    format!("session/{name}")
}

fn entry_path(name: &str) -> String {
    format!("{LEDGER}/{name}")
}

/// Enters the worktree `name`, which is about to start from `base`.
pub(super) fn record(project: &ScopedDir, name: &str, base: &CommitId) -> io::Result<()> {
    let entry = Entry { branch: branch(name), base: base.clone() };
    project.write(&entry_path(name), &machine_record::encode(project, entry)?, PRIVATE, 0o600)
}

/// The name by which git knows the worktree `name`, if it knows a worktree of this repository in that place.
pub(super) fn registration(repository: &Repository, project: &ScopedDir, name: &str) -> io::Result<Option<String>> {
    let Some(known) = project.dir_if_there(REGISTRATIONS)? else { return Ok(None) };
    let relative = format!("{}/.git", directory(name));
    let absolute = repository.root().canonicalize()?.join(&relative);
    let is_here = |id: &str| {
        let place = known.read(&format!("{id}/gitdir"), LARGEST).unwrap_or_default();
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
pub fn sweep(repository: &Repository) -> Result<Swept, WorktreeError> {
    let failed = |cause| WorktreeError::Ledger { path: LEDGER, cause };
    let project = ScopedDir::open(repository.root()).map_err(failed)?;
    let mut swept = Swept::default();
    let Some(ledger) = project.dir_if_there(LEDGER).map_err(failed)? else { return Ok(swept) };
    let mut entries = ledger.entries().map_err(failed)?;
    entries.sort_unstable();
    for (name, kind) in entries {
        let name = name.to_string_lossy();
        if kind == FileKind::File && name.starts_with(DRAFT) {
            // Never finished, so its worktree was never made.
            ledger.remove(&name).map_err(failed)?;
            continue;
        }
        let path = entry_path(&name);
        let entry = if kind == FileKind::File && is_made_here(&name) {
            let bytes = ledger.read(&name, LARGEST).map_err(failed)?;
            machine_record::decode::<Entry>(&project, &bytes)
        } else {
            Err(ForeignRecord::Unknown)
        };
        match entry {
            Ok(entry) if entry.branch == branch(&name) => match clear_leftover(repository, &name, &entry.base) {
                Ok(None) => swept.removed += 1,
                Ok(Some(left)) => swept.left_alone.push(left),
                Err(error) => {
                    swept.left_alone.push(LeftAlone::Failed { path: directory(&name), why: error.to_string() });
                }
            },
            Ok(_) => swept.left_alone.push(LeftAlone::Entry { path, why: ForeignRecord::Unknown }),
            Err(why) => swept.left_alone.push(LeftAlone::Entry { path, why }),
        }
    }
    Ok(swept)
}

/// Whether `name` is one that [`super::Worktrees`] gives.
fn is_made_here(name: &str) -> bool {
    name.strip_prefix(JOB).is_some_and(|rest| !rest.is_empty())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.contains("..")
}

/// Deletes the entry of the worktree `name`, and nothing else.
pub(super) fn forget(project: &ScopedDir, name: &str) -> io::Result<()> {
    project.remove(&entry_path(name)).map(drop)
}

/// Removes the worktree `name`, which started from `base`, its branch and its entry, after another process. What is not
/// removed and why, if there is such a thing: from then on it belongs to the user.
pub(super) fn clear_leftover(
    repository: &Repository,
    name: &str,
    base: &CommitId,
) -> Result<Option<LeftAlone>, WorktreeError> {
    clear(repository, name, || remove_leftover_branch(repository, name, base))
}

/// As [`clear_leftover`], for a worktree that this process made: its branch is known to be of this run.
pub(super) fn clear_own(repository: &Repository, name: &str) -> Result<Option<LeftAlone>, WorktreeError> {
    let reference = format!("refs/heads/{}", branch(name));
    clear(repository, name, || {
        repository.git.run(&["update-ref", "--no-deref", "-d", "--end-of-options", &reference]).map(|_| None)
    })
}

fn clear(
    repository: &Repository,
    name: &str,
    remove_branch: impl FnOnce() -> Result<Option<LeftAlone>, GitError>,
) -> Result<Option<LeftAlone>, WorktreeError> {
    let failed = |cause| WorktreeError::Io { path: repository.root().join(directory(name)), cause };
    let project = ScopedDir::open(repository.root()).map_err(failed)?;
    let left = match remove_directory(repository, &project, name)? {
        None => remove_branch()?,
        left => left,
    };
    forget(&project, name).map_err(failed)?;
    Ok(left)
}

fn remove_directory(
    repository: &Repository,
    project: &ScopedDir,
    name: &str,
) -> Result<Option<LeftAlone>, WorktreeError> {
    let path = directory(name);
    let failed = |cause| WorktreeError::Io { path: repository.root().join(&path), cause };
    let is_registered = registration(repository, project, name).map_err(failed)?.is_some();
    let is_removable = match project.kind(&path).map_err(failed)? {
        None => true,
        Some(FileKind::Directory) if is_registered => true,
        // Its maker was killed before git knew it.
        Some(FileKind::Directory) => project.dir(&path, None).and_then(|dir| dir.entries()).map_err(failed)?.is_empty(),
        Some(_) => false,
    };
    if !is_removable {
        return Ok(Some(LeftAlone::Directory { name: name.to_owned() }));
    }
    let remove = ["worktree", "remove", "--force", "--force", "--", &path];
    if is_registered && repository.git.ask(&remove)?.ok {
        return Ok(None);
    }
    // Half made, or half removed: git forgets it once there is nothing any more.
    project.remove_dir_all(&path).map_err(failed)?;
    if is_registered {
        repository.git.run(&remove)?;
    }
    Ok(None)
}

fn remove_leftover_branch(repository: &Repository, name: &str, base: &CommitId) -> Result<Option<LeftAlone>, GitError> {
    let (git, branch) = (&repository.git, branch(name));
    let reference = format!("refs/heads/{branch}");
    let tip = git.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &reference])?;
    if !tip.ok {
        return Ok(None);
    }
    let Ok(tip) = CommitId::parse(String::from_utf8_lossy(&tip.stdout).trim_end()) else {
        return Ok(Some(LeftAlone::Branch { branch }));
    };
    let range = format!("{base}..{tip}");
    let committers = git.ask(&["log", "-z", "--format=<%ce>", "--end-of-options", &range, "--"])?;
    let ours = format!("<{}>", git::EMAIL);
    let mut emails = committers.stdout.split(|byte| *byte == 0).filter(|email| !email.is_empty());
    if !committers.ok || !emails.all(|email| email == ours.as_bytes()) {
        return Ok(Some(LeftAlone::Branch { branch }));
    }
    // `branch -D` would forget what was configured for it as well; nothing ever is.
    git.run(&["update-ref", "--no-deref", "-d", "--end-of-options", &reference, tip.as_str()])?;
    Ok(None)
}

#[cfg(test)]
mod tests;
