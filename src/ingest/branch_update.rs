//! Updating the branch of a project to a commit, files and index included: wholly or not at all, also when the machine
//! dies in between.
//!
//! A journal exists from before the first file changes until after the branch has moved. It is in the repository's own
//! directory, which no clone brings along. The branch decides: the next run brings the files that the journal is about,
//! and their index, to the commit that the branch is at. This module must not know what is committed.

use crate::scoped_dir::{self, FileKind, PRIVATE, ScopedDir};
use std::{collections::BTreeMap, io, thread, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    git::{Answer, CommitId, GitError},
    machine_record::{self, ForeignRecord, RefusedJournal},
    repository::Repository,
};

/// Relative to the project.
const JOURNAL: &str = ".git/ingestdeck/branch-update.json";
/// What to do about a journal that is not followed.
const REMEDY: &str = "look at `git status` and put back with `git restore` what is not as it should be";

/// What a commit of a run may hold.
const COMMITTED: [&str; 3] = ["wiki/", "semantic-layer/", "raw-sources/"];

/// Largest journal in bytes.
const LARGEST_JOURNAL: u64 = 64 * 1024;
/// Largest file that is compared, in bytes.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;

/// How often, and how long in between, an index that another program uses is tried again.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// A commit did not get onto the branch. The project is as it was, unless the sentence says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum BranchUpdateError {
    /// Somebody else moved the branch.
    #[error("the branch moved")]
    Moved,
    /// A file in the way.
    #[error("files in the project are in the way ({why}); commit or stash them, then try again")]
    InTheWay { why: String },
    /// The commit changes what a run never writes.
    #[error("the commit changes `{}`, which a run never writes", path.escape_debug())]
    Forbidden {
        /// Relative to the project.
        path: String,
    },
    /// There is a journal that is not followed.
    #[error(transparent)]
    Refused(#[from] RefusedJournal),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot write `{path}`: {cause}")]
    Io {
        /// Relative to the project.
        path: String,
        cause: io::Error,
    },
    /// It failed half-way and so did putting things back.
    #[error("it failed half-way ({cause}) and could not be undone ({undo}); the next run will do that")]
    Stuck {
        cause: String,
        /// Why it could not be undone.
        undo: String,
    },
}

/// An update that was found half done and settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The commit that files and index were brought to, where there was something to settle.
    pub to: Option<CommitId>,
    /// Paths that somebody changed since, and that were left as they are.
    pub kept: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Journal {
    old: CommitId,
    new: CommitId,
}

/// Brings the project from the commit `old`, at which its branch must be, to `new`.
pub(super) fn update(
    repository: &Repository,
    old: &CommitId,
    new: &CommitId,
    subject: &str,
) -> Result<(), BranchUpdateError> {
    let journal = Journal { old: old.clone(), new: new.clone() };
    let repository = &repository.renewed()?;
    let changes = changes(repository, &journal)?;
    // What is refused here has not begun: a crash must never find edits of a person beside a journal.
    look(repository, &journal, &changes)?;
    let before = hashes(repository, &changes)?;
    write(repository, &journal)?;
    let undone = match bring(repository, &journal) {
        Ok(()) => match point(repository, &journal, subject) {
            Ok(()) => return forget(repository),
            Err(error) => (error, settle(repository, changes, &Undo::Everything(before))),
        },
        Err(error) => (error, settle(repository, changes, &Undo::Files(before))),
    };
    let (error, settled) = undone;
    match settled.and_then(|_| forget(repository)) {
        Ok(()) => Err(error),
        Err(undo) => Err(BranchUpdateError::Stuck { cause: error.to_string(), undo: undo.to_string() }),
    }
}

/// Whether files and index could be brought to the commit `new`. Changes none of them.
fn look(
    repository: &Repository,
    Journal { old, new, .. }: &Journal,
    changes: &[Change],
) -> Result<(), BranchUpdateError> {
    let git = &repository.git;
    // Files that were touched but not changed must not look changed. That some are changed is for the next step to say.
    patiently(|| git.ask(&["update-index", "-q", "--refresh"]))?;
    // A page that somebody deleted would be written anew without a word.
    let deleted = git.run(&["ls-files", "--deleted", "-z"])?;
    let deleted = String::from_utf8_lossy(&deleted);
    let rewritten = |path: &&str| changes.iter().any(|change| change.path == **path && change.ours[1].is_some());
    if let Some(path) = deleted.split('\0').find(rewritten) {
        return Err(BranchUpdateError::InTheWay { why: format!("{} is deleted", path.escape_debug()) });
    }
    moved(&patiently(|| git.ask(&["read-tree", "-n", "-m", "-u", "--end-of-options", old.as_str(), new.as_str()]))?)
}

/// Brings files and index to the commit `new`. Where it fails, the index is as it was.
fn bring(repository: &Repository, Journal { old, new, .. }: &Journal) -> Result<(), BranchUpdateError> {
    moved(&patiently(|| {
        repository.git.ask(&["read-tree", "-m", "-u", "--end-of-options", old.as_str(), new.as_str()])
    })?)
}

fn moved(answer: &Answer) -> Result<(), BranchUpdateError> {
    let why = || answer.stderr.clone();
    match answer.ok {
        true => Ok(()),
        false if is_refusal(&answer.stderr) => Err(BranchUpdateError::InTheWay { why: why() }),
        false => Err(GitError::Failed { what: "read-tree".into(), stderr: why() }.into()),
    }
}

/// True for git's words about files that it would have to overwrite or remove.
fn is_refusal(stderr: &str) -> bool {
    ["not uptodate", "would be overwritten", "would be removed", "would lose"]
        .iter()
        .any(|words| stderr.contains(words))
}

/// Lets the branch point to the commit `new`.
fn point(repository: &Repository, Journal { old, new, .. }: &Journal, subject: &str) -> Result<(), BranchUpdateError> {
    let args = ["update-ref", "-m", subject, "--end-of-options", "HEAD", new.as_str(), old.as_str()];
    let put = repository.git.ask(&args)?;
    match put.ok {
        true => Ok(()),
        false if repository.head()? != *old => Err(BranchUpdateError::Moved),
        false => Err(GitError::Failed { what: "update-ref".into(), stderr: put.stderr }.into()),
    }
}

/// Repeats a call while another program holds the index.
fn patiently(call: impl Fn() -> Result<Answer, GitError>) -> Result<Answer, GitError> {
    for _ in 1..TRIES {
        let answer = call()?;
        if answer.ok || !answer.stderr.contains("index.lock") {
            return Ok(answer);
        }
        thread::sleep(PAUSE);
    }
    call()
}

/// Settles what a crash left half done. To be called when a run starts; harmless at any time.
///
/// # Errors
/// When there is a journal that this version did not write here, among others. Nothing is changed then.
pub fn recover(repository: &Repository) -> Result<Settled, BranchUpdateError> {
    let Some(changes) = half_done(repository)? else { return Ok(Settled::default()) };
    let settled = Settled { kept: settle(repository, changes, &Undo::Unknown)?, to: Some(repository.head()?) };
    forget(repository)?;
    Ok(settled)
}

/// Paths, relative to the project, that a crash may have left between two commits and that [`recover`] settles; none where
/// it would refuse to. Changes nothing.
pub fn unsettled_paths(repository: &Repository) -> Vec<String> {
    let changes = half_done(repository).ok().flatten().unwrap_or_default();
    changes.into_iter().map(|change| change.path).collect()
}

/// What the journal of an update that was cut off is about; `None` without one.
fn half_done(repository: &Repository) -> Result<Option<Vec<Change>>, BranchUpdateError> {
    let project = open(repository)?;
    let refused = |why| RefusedJournal { path: JOURNAL, why, remedy: REMEDY };
    let bytes = project.read_if_there(JOURNAL, LARGEST_JOURNAL).map_err(io_error(JOURNAL))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let journal: Journal = machine_record::decode(&project, &bytes).map_err(refused)?;
    let changes = changes(repository, &journal).map_err(|error| match error {
        BranchUpdateError::Forbidden { path } => refused(ForeignRecord::Forbidden(path)).into(),
        BranchUpdateError::Git(GitError::Failed { stderr, .. }) => refused(ForeignRecord::Commits(stderr)).into(),
        error => error,
    })?;
    Ok(Some(changes))
}

fn open(repository: &Repository) -> Result<ScopedDir, BranchUpdateError> {
    ScopedDir::open(repository.root()).map_err(io_error("."))
}

fn io_error(path: &str) -> impl Fn(io::Error) -> BranchUpdateError {
    move |cause| BranchUpdateError::Io { path: path.to_owned(), cause }
}

fn write(repository: &Repository, journal: &Journal) -> Result<(), BranchUpdateError> {
    let project = open(repository)?;
    let bytes = machine_record::encode(&project, journal).map_err(io_error(JOURNAL))?;
    project.write(JOURNAL, &bytes, PRIVATE, 0o600).map_err(io_error(JOURNAL))
}

fn forget(repository: &Repository) -> Result<(), BranchUpdateError> {
    open(repository)?.remove(JOURNAL).map(drop).map_err(io_error(JOURNAL))
}

/// A file that differs between the two commits of a journal.
struct Change {
    path: String,
    /// Its blob where the branch is.
    target: Option<String>,
    /// Its blobs in the two commits.
    ours: [Option<String>; 2],
}

/// What is known of an update that failed.
enum Undo {
    /// Nothing: its program died.
    Unknown,
    /// The index is as it was. So is every file that has the blob it had; `None` for one that is not there.
    Files(BTreeMap<String, String>),
    /// Index and files are at the new commit, but for files that have the blob they had.
    Everything(BTreeMap<String, String>),
}

impl Undo {
    /// Whether the file at `path`, the blob of which is `held`, is as it was before.
    fn is_untouched(&self, path: &str, held: Option<&String>) -> bool {
        match self {
            Self::Unknown => false,
            Self::Files(before) | Self::Everything(before) => before.get(path) == held,
        }
    }
}

/// What differs between the two commits of a journal.
fn changes(repository: &Repository, Journal { old, new }: &Journal) -> Result<Vec<Change>, BranchUpdateError> {
    let raw = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", "--end-of-options"];
    let raw = repository.git.run(&[&raw[..], &[old.as_str(), new.as_str()]].concat())?;
    let changes = read_changes(&String::from_utf8_lossy(&raw));
    match changes.iter().find(|change| !is_committed(&change.path)) {
        Some(change) => Err(BranchUpdateError::Forbidden { path: change.path.clone() }),
        None => Ok(changes),
    }
}

fn is_committed(path: &str) -> bool {
    scoped_dir::check(path).is_ok() && COMMITTED.iter().any(|directory| path.starts_with(directory))
}

/// Brings index and files of `changes` to where the branch is: one of the two commits, or wherever somebody took it.
/// Paths that somebody changed since, or that the update never touched, stay.
fn settle(repository: &Repository, mut changes: Vec<Change>, undo: &Undo) -> Result<Vec<String>, BranchUpdateError> {
    let git = &repository.git;
    let hashes = hashes(repository, &changes)?;
    let is_untouched = |change: &Change| undo.is_untouched(&change.path, hashes.get(change.path.as_str()));
    if matches!(undo, Undo::Files(_)) {
        changes.retain(|change| !is_untouched(change));
    }
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let head = git.run(&["ls-tree", "-r", "-z", "--full-tree", "--end-of-options", "HEAD"])?;
    let head = String::from_utf8_lossy(&head);
    let blobs: BTreeMap<&str, &str> = head.split('\0').filter_map(blob).collect();
    for change in &mut changes {
        change.target = blobs.get(change.path.as_str()).map(|blob| (*blob).to_owned());
    }
    let paths: Vec<u8> = changes.iter().flat_map(|change| [change.path.as_bytes(), b"\0"].concat()).collect();
    let reset = ["--literal-pathspecs", "reset", "--quiet", "HEAD", "--pathspec-from-file=-", "--pathspec-file-nul"];
    git.feed(&reset, &paths)?;
    let (mut kept, mut restore, mut remove) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes.iter().filter(|change| !is_untouched(change)) {
        let held = hashes.get(change.path.as_str()).cloned();
        if held == change.target {
            continue;
        }
        if held.is_some() && !change.ours.contains(&held) && !is_torn(repository, change)? {
            kept.push(change.path.clone());
        } else if change.target.is_some() {
            restore.extend([change.path.as_bytes(), b"\0"].concat());
        } else {
            remove.push(&change.path);
        }
    }
    if !restore.is_empty() {
        git.feed(&["checkout-index", "--force", "--quiet", "-u", "-z", "--stdin"], &restore)?;
    }
    let project = open(repository)?;
    for path in remove {
        project.remove(path).map_err(io_error(path))?;
    }
    Ok(kept)
}

/// Path and blob of an entry of `ls-tree -z`.
fn blob(entry: &str) -> Option<(&str, &str)> {
    let (meta, path) = entry.split_once('\t')?;
    Some((path, meta.split(' ').nth(2)?))
}

/// The blobs that the files of `changes` would be, as far as they are there.
fn hashes(repository: &Repository, changes: &[Change]) -> Result<BTreeMap<String, String>, BranchUpdateError> {
    let project = open(repository)?;
    let is_file = |path: &str| project.kind(path).is_ok_and(|kind| kind == Some(FileKind::File));
    // Names with line ends cannot be listed; ours never have any.
    let listed = |change: &&Change| is_file(&change.path) && !change.path.contains('\n');
    let there: Vec<&Change> = changes.iter().filter(listed).collect();
    if there.is_empty() {
        return Ok(BTreeMap::new());
    }
    let input: String = there.iter().map(|change| format!("{}\n", change.path)).collect();
    let output = repository.git.feed(&["hash-object", "--stdin-paths"], input.as_bytes())?;
    let hashes = String::from_utf8_lossy(&output);
    Ok(there.iter().zip(hashes.lines()).map(|(change, hash)| (change.path.clone(), hash.to_owned())).collect())
}

/// True when the file is the beginning of one of its two versions: its writer died.
fn is_torn(repository: &Repository, change: &Change) -> Result<bool, BranchUpdateError> {
    let Ok(held) = open(repository)?.read(&change.path, LARGEST_FILE) else { return Ok(false) };
    for blob in change.ours.iter().flatten() {
        if repository.git.run(&["cat-file", "blob", "--end-of-options", blob])?.starts_with(&held) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Entries of `diff-tree --raw -z old new`.
fn read_changes(raw: &str) -> Vec<Change> {
    let mut fields = raw.split('\0');
    let mut changes = Vec::new();
    while let (Some(meta), Some(path)) = (fields.next().filter(|meta| !meta.is_empty()), fields.next()) {
        let mut meta = meta.split(' ').skip(2);
        let mut blob = || meta.next().filter(|hash| hash.contains(|c| c != '0')).map(str::to_owned);
        let ours = [blob(), blob()];
        changes.push(Change { path: path.to_owned(), target: None, ours });
    }
    changes
}

#[cfg(test)]
pub(crate) mod tests;
