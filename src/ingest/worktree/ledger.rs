//! The ledger of worktrees: records the worktrees of runs, and removes them.
//!
//! An entry is written before its worktree is created and deleted after it is removed. The ledger is in the
//! repository's own directory and bound to it, so that entries from a clone or an archive are ignored. In addition, a
//! directory is only removed if git lists it as a worktree of this repository at that path, and a branch only if a run
//! made every commit since its base.

#![expect(clippy::disallowed_methods, reason = "compares paths that git prints")]

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
use ingestdeck_core::diagnostic::Diagnostic;
use ingestdeck_os::scoped_dir::{FileKind, PRIVATE_MODE, ScopedDir, TEMP_PREFIX};

/// One file for each worktree, relative to the git directory.
const LEDGER_DIR: &str = "ingestdeck/worktrees";
/// git's own directory of worktrees, relative to the git directory.
pub(super) const GIT_WORKTREES_DIR: &str = "worktrees";

/// Prefix of every job id.
const JOB_PREFIX: &str = "local-";
/// Largest entry, and largest path file of git, in bytes.
const MAX_ENTRY_BYTES: u64 = 64 * 1024;

/// Content of an entry. The name of the worktree is the name of its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorktreeEntry {
    branch: String,
    base: CommitId,
}

/// Result of removing leftovers of earlier runs.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// Number of worktrees that were removed.
    pub removed_worktrees: usize,
    /// Leftovers that were kept, with instructions for removing them.
    pub skipped: Vec<SkippedLeftover>,
}

/// A leftover that was not removed.
#[derive(Debug)]
pub enum SkippedLeftover {
    /// An entry of the ledger that is not trusted.
    Entry {
        /// Relative to the project.
        path: String,
        reason: UntrustedRecord,
        /// The beginning of a git command for the repository, also below.
        git: &'static str,
    },
    /// The directory of the worktree `name` is not registered in git for this repository at this path, for example
    /// because the repository was moved.
    Directory { name: String, git: &'static str },
    /// A branch with commits that no run made.
    Branch { branch: String, git: &'static str },
    /// Removing failed; the next run tries again.
    Failed {
        /// Relative to the project.
        path: String,
        why: String,
    },
}

impl fmt::Display for SkippedLeftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry {
                path,
                reason: why,
                git,
            } => {
                write!(f, "`{}` is ignored: {why}; ", path.escape_debug())?;
                // Do not put names into commands unless they have the format of a run's worktree.
                match path.rsplit('/').next().filter(|name| is_run_worktree(name)) {
                    Some(name) => write!(
                        f,
                        "if you do not need what it names, run `{git} worktree remove --force {}` and `{git} branch -D \
                         {}`, then delete it",
                        worktree_dir(name),
                        worktree_branch(name)
                    ),
                    None => f.write_str("delete it"),
                }
            }
            // Only created for names in the format of a run's worktree.
            Self::Directory { name, git } => write!(
                f,
                "`{}` and branch `{1}` are not removed: git knows no worktree in that place, so the project was moved or \
                 it is not a run's; if you do not need them, delete the directory, then run `{git} worktree prune` and \
                 `{git} branch -D {1}`",
                worktree_dir(name),
                worktree_branch(name)
            ),
            Self::Branch { branch, git } => write!(
                f,
                "branch `{branch}` is not removed: it has commits that no run made; delete it with `{git} branch -D \
                 {branch}` if you do not need them"
            ),
            Self::Failed { path, why } => {
                write!(f, "`{}` cannot be removed: {why}", path.escape_debug())
            }
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

fn entry_path(repository: &Repository, name: &str) -> String {
    repository.git_path(&format!("{LEDGER_DIR}/{name}"))
}

/// Records the worktree `name`, which will start from `base`.
pub(super) fn record_worktree(
    repository: &Repository,
    project: &ScopedDir,
    name: &str,
    base: &CommitId,
) -> io::Result<()> {
    let entry = WorktreeEntry {
        branch: worktree_branch(name),
        base: base.clone(),
    };
    project.write(
        &entry_path(repository, name),
        &local_record::encode(project, entry)?,
        PRIVATE_MODE,
        0o600,
    )
}

/// The name that git uses for the worktree `name`; `None` if git lists no worktree of this repository at that path.
pub(super) fn git_registration(
    repository: &Repository,
    project: &ScopedDir,
    name: &str,
) -> io::Result<Option<String>> {
    let Some(known) = project.dir_if_exists(&repository.git_path(GIT_WORKTREES_DIR))? else {
        return Ok(None);
    };
    let relative = format!("{}/.git", worktree_dir(name));
    let absolute = repository.root().canonicalize()?.join(&relative);
    let is_here = |id: &str| {
        let place = known
            .read(&format!("{id}/gitdir"), MAX_ENTRY_BYTES)
            .unwrap_or_default();
        let place = place.trim_ascii_end();
        place == absolute.as_os_str().as_encoded_bytes()
            || place == format!("../../../{relative}").as_bytes()
    };
    // git derives its name from that of the directory, unless that name is in use.
    let likely = format!("session-{name}");
    if is_here(&likely) {
        return Ok(Some(likely));
    }
    let ids = known
        .entries()?
        .into_iter()
        .filter_map(|(id, _)| id.into_string().ok());
    Ok(ids.into_iter().find(|id| is_here(id)))
}

/// Removes the worktrees of killed runs in `repository`. No other run may be active.
///
/// # Errors
/// When the ledger cannot be read. Leftovers that cannot be removed are reported, not errors.
pub fn remove_leftovers(repository: &Repository) -> Result<SweepReport, WorktreeError> {
    let (ledger_dir, git) = (repository.git_path(LEDGER_DIR), repository.git_command());
    let failed = |cause| WorktreeError::Ledger {
        path: ledger_dir.clone(),
        cause,
    };
    let project = ScopedDir::open(repository.root()).map_err(failed)?;
    let mut swept = SweepReport::default();
    let Some(ledger) = project.dir_if_exists(&ledger_dir).map_err(failed)? else {
        return Ok(swept);
    };
    let mut entries = ledger.entries().map_err(failed)?;
    entries.sort_unstable();
    for (name, kind) in entries {
        let name = name.to_string_lossy();
        if kind == FileKind::File && name.starts_with(TEMP_PREFIX) {
            // The entry was not completed, so its worktree was never created.
            ledger.remove(&name).map_err(failed)?;
            continue;
        }
        let path = entry_path(repository, &name);
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
                    Ok(Some(skipped)) => swept.skipped.push(skipped),
                    Err(error) => {
                        swept.skipped.push(SkippedLeftover::Failed {
                            path: worktree_dir(&name),
                            why: error.to_line(),
                        });
                    }
                }
            }
            Ok(_) => swept.skipped.push(SkippedLeftover::Entry {
                path,
                reason: UntrustedRecord::UnknownVersion,
                git,
            }),
            Err(why) => swept.skipped.push(SkippedLeftover::Entry {
                path,
                reason: why,
                git,
            }),
        }
    }
    Ok(swept)
}

/// Whether `name` has the format of a name given by [`super::Worktrees`].
fn is_run_worktree(name: &str) -> bool {
    name.strip_prefix(JOB_PREFIX)
        .is_some_and(|rest| !rest.is_empty())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.contains("..")
}

/// Deletes the entry of the worktree `name`, but not the worktree.
pub(super) fn delete_entry(
    repository: &Repository,
    project: &ScopedDir,
    name: &str,
) -> io::Result<()> {
    project.remove(&entry_path(repository, name)).map(drop)
}

/// Removes the worktree `name` of another process, which started from `base`, its branch and its entry. Returns what
/// was not removed and why; the ledger no longer lists it afterwards.
pub(super) fn remove_leftover(
    repository: &Repository,
    name: &str,
    base: &CommitId,
) -> Result<Option<SkippedLeftover>, WorktreeError> {
    remove_worktree(repository, name, || {
        remove_leftover_branch(repository, name, base)
    })
}

/// Like [`remove_leftover`], for a worktree of this process, whose branch is known to be its own.
pub(super) fn remove_own(
    repository: &Repository,
    name: &str,
) -> Result<Option<SkippedLeftover>, WorktreeError> {
    let reference = format!("refs/heads/{}", worktree_branch(name));
    remove_worktree(repository, name, || {
        repository
            .git
            .run(&[
                "update-ref",
                "--no-deref",
                "-d",
                "--end-of-options",
                &reference,
            ])
            .map(|_| None)
    })
}

fn remove_worktree(
    repository: &Repository,
    name: &str,
    remove_branch: impl FnOnce() -> Result<Option<SkippedLeftover>, GitError>,
) -> Result<Option<SkippedLeftover>, WorktreeError> {
    let failed = |cause| WorktreeError::Io {
        path: repository.root().join(worktree_dir(name)),
        cause,
    };
    let project = ScopedDir::open(repository.root()).map_err(failed)?;
    let skipped = match remove_directory(repository, &project, name)? {
        None => remove_branch()?,
        skipped => skipped,
    };
    delete_entry(repository, &project, name).map_err(failed)?;
    Ok(skipped)
}

fn remove_directory(
    repository: &Repository,
    project: &ScopedDir,
    name: &str,
) -> Result<Option<SkippedLeftover>, WorktreeError> {
    let path = worktree_dir(name);
    let failed = |cause| WorktreeError::Io {
        path: repository.root().join(&path),
        cause,
    };
    let is_registered = git_registration(repository, project, name)
        .map_err(failed)?
        .is_some();
    let is_removable = match project.kind(&path).map_err(failed)? {
        None => true,
        Some(FileKind::Directory) if is_registered => true,
        // The run was killed before git registered the worktree.
        Some(FileKind::Directory) => project
            .dir(&path, None)
            .and_then(|dir| dir.entries())
            .map_err(failed)?
            .is_empty(),
        Some(_) => false,
    };
    if !is_removable {
        return Ok(Some(SkippedLeftover::Directory {
            name: name.to_owned(),
            git: repository.git_command(),
        }));
    }
    let remove = ["worktree", "remove", "--force", "--force", "--", &path];
    if is_registered && repository.git.try_run(&remove)?.success {
        return Ok(None);
    }
    // Partially created or removed: git prunes its registration once the directory is missing.
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
    let tip = git.try_run(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &reference,
    ])?;
    if !tip.success {
        return Ok(None);
    }
    let Ok(tip) = CommitId::parse(String::from_utf8_lossy(&tip.stdout).trim_end()) else {
        return Ok(Some(SkippedLeftover::Branch {
            branch,
            git: repository.git_command(),
        }));
    };
    let range = format!("{base}..{tip}");
    let committers = git.try_run(&[
        "log",
        "-z",
        "--format=<%ce>",
        "--end-of-options",
        &range,
        "--",
    ])?;
    let ours = format!("<{}>", git::COMMITTER_EMAIL);
    let mut emails = committers
        .stdout
        .split(|byte| *byte == 0)
        .filter(|email| !email.is_empty());
    if !committers.success || !emails.all(|email| email == ours.as_bytes()) {
        return Ok(Some(SkippedLeftover::Branch {
            branch,
            git: repository.git_command(),
        }));
    }
    // `branch -D` would also delete the configuration of the branch, but there is none.
    git.run(&[
        "update-ref",
        "--no-deref",
        "-d",
        "--end-of-options",
        &reference,
        tip.as_str(),
    ])?;
    Ok(None)
}

#[cfg(test)]
mod tests;
