//! Updates the branch of a project to a commit, including files and index: completely or not at all, even across a
//! crash.
//!
//! A journal exists from before the first file changes until after the branch has moved. It is in the directory of the
//! repository: a clone does not copy that of a project's own repository, and a private one is used only with the mark of
//! this installation. The branch decides: the next run restores the files listed in the journal, and their index entries,
//! to the commit that the branch points to. This module must not know what is committed.

use ingestdeck_core::{diagnostic::Diagnostic, tape::note::BlockedFile};
use ingestdeck_os::scoped_dir::{self, FileKind, PRIVATE_MODE, ScopedDir};
use std::{
    collections::{BTreeMap, BTreeSet},
    io, thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    git::{CommitId, GitError, GitOutput},
    local_record::{self, RejectedJournal, UntrustedRecord},
    repository::{BranchUse, Repository, TargetBranchError, UPDATE_JOURNAL_FILE},
};

/// Advice for a journal that is rejected, in a project with git and in one without.
const JOURNAL_REMEDY: &str = "check `git status` and restore damaged files with `git restore`";
const PRIVATE_JOURNAL_REMEDY: &str = "check the files in wiki/ and semantic-layer/";

/// Directories that a commit of a run may change.
const COMMITTED_DIRS: [&str; 3] = ["wiki/", "semantic-layer/", "raw-sources/"];

/// Number of files that a message about blocking files names.
const MAX_NAMED_FILES: usize = 3;
/// Largest journal in bytes.
const MAX_JOURNAL_BYTES: u64 = 64 * 1024;
/// Largest file that is compared, in bytes.
const MAX_COMPARED_BYTES: u64 = 64 * 1024 * 1024;

/// Attempts to get an index that another program has locked, and the delay between them.
const INDEX_LOCK_TRIES: u32 = 40;
const INDEX_LOCK_DELAY: Duration = Duration::from_millis(50);

/// The branch was not updated. The project is unchanged unless the message states otherwise.
#[derive(Debug, thiserror::Error)]
pub enum BranchUpdateError {
    /// Another process moved the branch.
    #[error("the branch moved")]
    BranchMoved,
    /// Files in the working tree would be overwritten.
    #[error("files in the project block the update ({reason})")]
    WouldOverwrite {
        reason: String,
        /// What the user can do about the files.
        remedy: &'static str,
        /// The files; empty if git does not name them.
        files: Vec<BlockedFile>,
    },
    /// The commit changes a file that a run never writes.
    #[error("the commit changes `{}`, which a run never writes", path.escape_debug())]
    ForbiddenPath {
        /// Relative to the project.
        path: String,
    },
    /// A journal exists that cannot be trusted.
    #[error(transparent)]
    RejectedJournal(#[from] RejectedJournal),
    #[error(transparent)]
    TargetBranch(#[from] TargetBranchError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot write `{path}`: {cause}")]
    Io {
        /// Relative to the project.
        path: String,
        cause: io::Error,
    },
    /// The update failed half-way and the rollback failed too.
    #[error("the update failed ({cause}) and could not be rolled back ({rollback_error})")]
    RollbackFailed {
        cause: String,
        /// Why the rollback failed.
        rollback_error: String,
    },
}

impl Diagnostic for BranchUpdateError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::WouldOverwrite { remedy, .. } => format!("{remedy}, then try again"),
            Self::RejectedJournal(rejected) => return rejected.help(),
            Self::TargetBranch(error) => return error.help(),
            Self::Git(error) => return error.help(),
            Self::RollbackFailed { .. } => "the next run will roll it back".into(),
            Self::BranchMoved | Self::ForbiddenPath { .. } | Self::Io { .. } => return None,
        })
    }
}

/// Result of recovering an interrupted update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredUpdate {
    /// The commit that files and index were restored to; `None` if there was nothing to recover.
    pub commit: Option<CommitId>,
    /// Paths that changed since the update and were therefore kept.
    pub kept_paths: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchUpdateJournal {
    pub old: CommitId,
    pub new: CommitId,
}

/// Updates the project from the commit `old`, which its branch must point to, to `new`. If the repository has a target
/// branch, only that branch moves.
pub(super) fn update_branch(
    repository: &Repository,
    old: &CommitId,
    new: &CommitId,
    subject: &str,
) -> Result<(), BranchUpdateError> {
    let journal = BranchUpdateJournal {
        old: old.clone(),
        new: new.clone(),
    };
    let repository = &repository.reopen()?;
    let changes = changes(repository, &journal)?;
    let target = repository.target_branch();
    // A branch that was checked out meanwhile is updated with its files.
    let used = target
        .as_deref()
        .map(|target| repository.branch_use(target))
        .transpose()?;
    if let (Some(target), Some(used)) = (target, used.filter(|used| *used != BranchUse::Current)) {
        used.check(&target)?;
        return match repository.move_target_branch(&target, (old, new), subject)? {
            true => Ok(()),
            false => Err(BranchUpdateError::BranchMoved),
        };
    }
    // Check before the journal is written: a crash must not leave a journal while the user's edits are uncommitted.
    check_update(repository, &journal, &changes)?;
    let before = hashes(repository, &changes)?;
    write(repository, &journal)?;
    let undone = match checkout_commit(repository, &journal) {
        Ok(()) => match move_branch(repository, &journal, subject) {
            Ok(()) => return delete_journal(repository),
            Err(error) => (
                error,
                restore_to_head(repository, changes, &UpdateUndoScope::FilesAndIndex(before)),
            ),
        },
        Err(error) => (
            error,
            restore_to_head(repository, changes, &UpdateUndoScope::FilesOnly(before)),
        ),
    };
    let (error, settled) = undone;
    match settled.and_then(|_| delete_journal(repository)) {
        Ok(()) => Err(error),
        Err(undo) => Err(BranchUpdateError::RollbackFailed {
            cause: error.to_string(),
            rollback_error: undo.to_string(),
        }),
    }
}

/// Checks whether files and index can be updated to the commit `new`. Changes neither of them.
fn check_update(
    repository: &Repository,
    BranchUpdateJournal { old, new, .. }: &BranchUpdateJournal,
    changes: &[CommitChange],
) -> Result<(), BranchUpdateError> {
    let git = &repository.git;
    // Refresh the index so that touched but unchanged files do not count as changed. The next step reports changed
    // files.
    retry_while_index_locked(|| git.try_run(&["update-index", "-q", "--refresh"]))?;
    // Without this check, a page that the user deleted would be restored silently.
    let names = |args: &[&str]| -> Result<BTreeSet<String>, GitError> {
        let listed = git.run(args)?;
        Ok(String::from_utf8_lossy(&listed)
            .split('\0')
            .map(str::to_owned)
            .collect())
    };
    let deleted = names(&["ls-files", "--deleted", "-z"])?;
    // git would apply the configuration of a submodule, which may name programs.
    let submodules = "--ignore-submodules=all";
    let changed = names(&["diff-files", "--name-only", submodules, "-z"])?;
    let staged = names(&[
        "diff-index",
        "--cached",
        "--name-only",
        "--no-renames",
        submodules,
        "-z",
        "--end-of-options",
        old.as_str(),
    ])?;
    let project = open_project(repository)?;
    // git replaces untracked files without a word if it ignores them.
    let present = hashes(repository, changes)?;
    let blocked_reason =
        |change: &CommitChange| match (&change.commit_blobs, present.get(change.path.as_str())) {
            ([_, Some(_)], None) if is_occupied(&project, &change.path) => {
                Some("is not a regular file here")
            }
            ([_, Some(_)], _) if deleted.contains(&change.path) => Some("is deleted"),
            ([None, Some(new)], Some(present)) if present != new => {
                Some("exists, but is not in the last commit")
            }
            ([_, new], present) if new.as_ref() == present => None,
            _ if changed.contains(&change.path) => Some("has changes that are in no commit"),
            _ if staged.contains(&change.path) => Some("has staged changes"),
            _ => None,
        };
    let blocked = |change: &CommitChange| {
        Some(BlockedFile {
            path: change.path.clone(),
            reason: blocked_reason(change)?.to_owned(),
        })
    };
    let files: Vec<BlockedFile> = changes.iter().filter_map(blocked).collect();
    if !files.is_empty() {
        return Err(would_overwrite(repository, name_blocked(&files), files));
    }
    check_read_tree(
        repository,
        &retry_while_index_locked(|| {
            git.try_run(&[
                "read-tree",
                "-n",
                "-m",
                "-u",
                "--end-of-options",
                old.as_str(),
                new.as_str(),
            ])
        })?,
    )
}

/// Updates files and index to the commit `new`. On failure, the index is unchanged.
fn checkout_commit(
    repository: &Repository,
    BranchUpdateJournal { old, new, .. }: &BranchUpdateJournal,
) -> Result<(), BranchUpdateError> {
    check_read_tree(
        repository,
        &retry_while_index_locked(|| {
            repository.git.try_run(&[
                "read-tree",
                "-m",
                "-u",
                "--end-of-options",
                old.as_str(),
                new.as_str(),
            ])
        })?,
    )
}

fn check_read_tree(repository: &Repository, answer: &GitOutput) -> Result<(), BranchUpdateError> {
    let why = || answer.stderr.clone();
    match answer.success {
        true => Ok(()),
        false if is_overwrite_refusal(&answer.stderr) => {
            Err(would_overwrite(repository, why(), Vec::new()))
        }
        false => Err(GitError::Failed {
            subcommand: "read-tree".into(),
            stderr: why(),
        }
        .into()),
    }
}

fn would_overwrite(
    repository: &Repository,
    reason: String,
    files: Vec<BlockedFile>,
) -> BranchUpdateError {
    let remedy = if repository.is_private() {
        "move them away"
    } else {
        "commit or stash them"
    };
    BranchUpdateError::WouldOverwrite {
        reason,
        remedy,
        files,
    }
}

/// The first of the files that block an update, and the number of the others.
fn name_blocked(files: &[BlockedFile]) -> String {
    let named = |file: &BlockedFile| format!("{} {}", file.path.escape_debug(), file.reason);
    let mut parts: Vec<String> = files.iter().take(MAX_NAMED_FILES).map(named).collect();
    if files.len() > MAX_NAMED_FILES {
        parts.push(format!("and {} more", files.len() - MAX_NAMED_FILES));
    }
    parts.join("; ")
}

/// True if git refused because it would overwrite or remove files.
fn is_overwrite_refusal(stderr: &str) -> bool {
    [
        "not uptodate",
        "would be overwritten",
        "would be removed",
        "would lose",
    ]
    .iter()
    .any(|words| stderr.contains(words))
}

/// Moves the branch to the commit `new`.
fn move_branch(
    repository: &Repository,
    BranchUpdateJournal { old, new, .. }: &BranchUpdateJournal,
    subject: &str,
) -> Result<(), BranchUpdateError> {
    let args = [
        "update-ref",
        "-m",
        subject,
        "--end-of-options",
        "HEAD",
        new.as_str(),
        old.as_str(),
    ];
    let put = repository.git.try_run(&args)?;
    match put.success {
        true => Ok(()),
        false if repository.head()? != *old => Err(BranchUpdateError::BranchMoved),
        false => Err(GitError::Failed {
            subcommand: "update-ref".into(),
            stderr: put.stderr,
        }
        .into()),
    }
}

/// Retries a call while another program locks the index.
fn retry_while_index_locked(
    call: impl Fn() -> Result<GitOutput, GitError>,
) -> Result<GitOutput, GitError> {
    for _ in 1..INDEX_LOCK_TRIES {
        let answer = call()?;
        if answer.success || !answer.stderr.contains("index.lock") {
            return Ok(answer);
        }
        thread::sleep(INDEX_LOCK_DELAY);
    }
    call()
}

/// Recovers from an interrupted update. Call it when a run starts; it is harmless at any other time.
///
/// # Errors
/// Among others, when there is a journal that this version did not write in this project. Nothing is changed then.
pub fn recover(repository: &Repository) -> Result<RecoveredUpdate, BranchUpdateError> {
    let Some(changes) = interrupted_changes(repository)? else {
        return Ok(RecoveredUpdate::default());
    };
    let settled = RecoveredUpdate {
        kept_paths: restore_to_head(repository, changes, &UpdateUndoScope::Unknown)?,
        commit: Some(repository.head()?),
    };
    delete_journal(repository)?;
    Ok(settled)
}

/// Paths, relative to the project, that an interrupted update may have left inconsistent and that [`recover`] would
/// restore; empty if it would refuse to. Changes nothing.
pub fn unrecovered_paths(repository: &Repository) -> Vec<String> {
    let changes = interrupted_changes(repository)
        .ok()
        .flatten()
        .unwrap_or_default();
    changes.into_iter().map(|change| change.path).collect()
}

/// Files listed in the journal of an interrupted update; `None` without a journal.
fn interrupted_changes(
    repository: &Repository,
) -> Result<Option<Vec<CommitChange>>, BranchUpdateError> {
    let project = open_project(repository)?;
    let path = repository.git_path(UPDATE_JOURNAL_FILE);
    let remedy = if repository.is_private() {
        PRIVATE_JOURNAL_REMEDY
    } else {
        JOURNAL_REMEDY
    };
    let refused = |why| RejectedJournal {
        path: path.clone(),
        reason: why,
        remedy,
    };
    let bytes = project
        .read_if_exists(&path, MAX_JOURNAL_BYTES)
        .map_err(io_error(&path))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let journal: BranchUpdateJournal = local_record::decode(&project, &bytes).map_err(refused)?;
    let changes = changes(repository, &journal).map_err(|error| match error {
        BranchUpdateError::ForbiddenPath { path } => {
            refused(UntrustedRecord::ForbiddenPath(path)).into()
        }
        BranchUpdateError::Git(GitError::Failed { stderr, .. }) => {
            refused(UntrustedRecord::MissingCommits(stderr)).into()
        }
        error => error,
    })?;
    Ok(Some(changes))
}

fn open_project(repository: &Repository) -> Result<ScopedDir, BranchUpdateError> {
    ScopedDir::open(repository.root()).map_err(io_error("."))
}

fn io_error(path: &str) -> impl Fn(io::Error) -> BranchUpdateError {
    move |cause| BranchUpdateError::Io {
        path: path.to_owned(),
        cause,
    }
}

pub fn write(
    repository: &Repository,
    journal: &BranchUpdateJournal,
) -> Result<(), BranchUpdateError> {
    let project = open_project(repository)?;
    let path = repository.git_path(UPDATE_JOURNAL_FILE);
    let bytes = local_record::encode(&project, journal).map_err(io_error(&path))?;
    project
        .write(&path, &bytes, PRIVATE_MODE, 0o600)
        .map_err(io_error(&path))
}

fn delete_journal(repository: &Repository) -> Result<(), BranchUpdateError> {
    let path = repository.git_path(UPDATE_JOURNAL_FILE);
    open_project(repository)?
        .remove(&path)
        .map(drop)
        .map_err(io_error(&path))
}

/// A file that differs between the two commits of a journal.
struct CommitChange {
    path: String,
    /// Blob of the file in the commit that the branch points to.
    head_blob: Option<String>,
    /// Blobs of the file in the two commits of the journal.
    commit_blobs: [Option<String>; 2],
}

/// Which files a failed update may have left changed.
enum UpdateUndoScope {
    /// Nothing is known because the process died.
    Unknown,
    /// The index is unchanged, and so is every file that still has this blob; `None` for a missing file.
    FilesOnly(BTreeMap<String, String>),
    /// Index and files are at the new commit, except files that still have this blob.
    FilesAndIndex(BTreeMap<String, String>),
}

impl UpdateUndoScope {
    /// Whether the file at `path`, whose current blob is `held`, was not changed by the update.
    fn is_untouched(&self, path: &str, held: Option<&String>) -> bool {
        match self {
            Self::Unknown => false,
            Self::FilesOnly(before) | Self::FilesAndIndex(before) => before.get(path) == held,
        }
    }
}

/// Files that differ between the two commits of a journal.
fn changes(
    repository: &Repository,
    BranchUpdateJournal { old, new }: &BranchUpdateJournal,
) -> Result<Vec<CommitChange>, BranchUpdateError> {
    let raw = [
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--no-renames",
        "--full-index",
        "--end-of-options",
    ];
    let raw = repository
        .git
        .run(&[&raw[..], &[old.as_str(), new.as_str()]].concat())?;
    let changes = parse_raw_diff(&String::from_utf8_lossy(&raw));
    match changes
        .iter()
        .find(|change| !may_be_committed(&change.path))
    {
        Some(change) => Err(BranchUpdateError::ForbiddenPath {
            path: change.path.clone(),
        }),
        None => Ok(changes),
    }
}

fn may_be_committed(path: &str) -> bool {
    scoped_dir::validate_relative_path(path).is_ok()
        && COMMITTED_DIRS
            .iter()
            .any(|directory| path.starts_with(directory))
}

/// Restores index and files of `changes` to the commit that the branch points to, which may be neither of the two
/// commits. Keeps paths that changed since the update or that the update never touched.
fn restore_to_head(
    repository: &Repository,
    mut changes: Vec<CommitChange>,
    undo: &UpdateUndoScope,
) -> Result<Vec<String>, BranchUpdateError> {
    let git = &repository.git;
    let hashes = hashes(repository, &changes)?;
    let is_untouched =
        |change: &CommitChange| undo.is_untouched(&change.path, hashes.get(change.path.as_str()));
    if matches!(undo, UpdateUndoScope::FilesOnly(_)) {
        changes.retain(|change| !is_untouched(change));
    }
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let head = git.run(&[
        "ls-tree",
        "-r",
        "-z",
        "--full-tree",
        "--end-of-options",
        "HEAD",
    ])?;
    let head = String::from_utf8_lossy(&head);
    let blobs: BTreeMap<&str, &str> = head.split('\0').filter_map(parse_tree_entry).collect();
    for change in &mut changes {
        change.head_blob = blobs
            .get(change.path.as_str())
            .map(|blob| (*blob).to_owned());
    }
    let paths: Vec<u8> = changes
        .iter()
        .flat_map(|change| [change.path.as_bytes(), b"\0"].concat())
        .collect();
    let reset = [
        "--literal-pathspecs",
        "reset",
        "--quiet",
        "HEAD",
        "--pathspec-from-file=-",
        "--pathspec-file-nul",
    ];
    git.run_with_input(&reset, &paths)?;
    let (mut kept, mut restore, mut remove) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes.iter().filter(|change| !is_untouched(change)) {
        let held = hashes.get(change.path.as_str()).cloned();
        if held == change.head_blob {
            continue;
        }
        if held.is_some()
            && !change.commit_blobs.contains(&held)
            && !is_partially_written(repository, change)?
        {
            kept.push(change.path.clone());
        } else if change.head_blob.is_some() {
            restore.extend([change.path.as_bytes(), b"\0"].concat());
        } else {
            remove.push(&change.path);
        }
    }
    if !restore.is_empty() {
        git.run_with_input(
            &[
                "checkout-index",
                "--force",
                "--quiet",
                "-u",
                "-z",
                "--stdin",
            ],
            &restore,
        )?;
    }
    let project = open_project(repository)?;
    for path in remove {
        project.remove(path).map_err(io_error(path))?;
    }
    Ok(kept)
}

/// Parses path and blob of an entry of `ls-tree -z`.
fn parse_tree_entry(entry: &str) -> Option<(&str, &str)> {
    let (meta, path) = entry.split_once('\t')?;
    Some((path, meta.split(' ').nth(2)?))
}

/// Blob ids of the existing files of `changes`.
fn hashes(
    repository: &Repository,
    changes: &[CommitChange],
) -> Result<BTreeMap<String, String>, BranchUpdateError> {
    let project = open_project(repository)?;
    let is_file = |path: &str| {
        project
            .kind(path)
            .is_ok_and(|kind| kind == Some(FileKind::File))
    };
    // The input format has no way to quote line breaks; names written by a run never contain any.
    let listed = |change: &&CommitChange| is_file(&change.path) && !change.path.contains('\n');
    let there: Vec<&CommitChange> = changes.iter().filter(listed).collect();
    if there.is_empty() {
        return Ok(BTreeMap::new());
    }
    let input: String = there
        .iter()
        .map(|change| format!("{}\n", change.path))
        .collect();
    let output = repository
        .git
        .run_with_input(&["hash-object", "--stdin-paths"], input.as_bytes())?;
    let hashes = String::from_utf8_lossy(&output);
    Ok(there
        .iter()
        .zip(hashes.lines())
        .map(|(change, hash)| (change.path.clone(), hash.to_owned()))
        .collect())
}

/// True if something else than a file is where the file would be written, or above it.
fn is_occupied(project: &ScopedDir, path: &str) -> bool {
    let kind = project.kind(path);
    kind.map_or_else(
        |error| error.kind() == io::ErrorKind::NotADirectory,
        |kind| kind.is_some_and(|kind| kind != FileKind::File),
    )
}

/// True if the file is a prefix of one of its two versions: its writer died.
fn is_partially_written(
    repository: &Repository,
    change: &CommitChange,
) -> Result<bool, BranchUpdateError> {
    let Ok(held) = open_project(repository)?.read(&change.path, MAX_COMPARED_BYTES) else {
        return Ok(false);
    };
    for blob in change.commit_blobs.iter().flatten() {
        if repository
            .git
            .run(&["cat-file", "blob", "--end-of-options", blob])?
            .starts_with(&held)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Parses entries of `diff-tree --raw -z old new`.
fn parse_raw_diff(raw: &str) -> Vec<CommitChange> {
    let mut fields = raw.split('\0');
    let mut changes = Vec::new();
    while let (Some(meta), Some(path)) =
        (fields.next().filter(|meta| !meta.is_empty()), fields.next())
    {
        let mut meta = meta.split(' ').skip(2);
        let mut blob = || {
            meta.next()
                .filter(|hash| hash.contains(|c| c != '0'))
                .map(str::to_owned)
        };
        let ours = [blob(), blob()];
        changes.push(CommitChange {
            path: path.to_owned(),
            head_blob: None,
            commit_blobs: ours,
        });
    }
    changes
}

#[cfg(test)]
pub(crate) mod tests;
