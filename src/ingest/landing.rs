//! Putting a commit on the branch that a project stands at, files and all: wholly or not at all, also when the machine
//! dies in between.
//!
//! A journal stands from before the first file changes until after the branch has moved. The branch decides: whoever
//! finds the journal brings files and index to the commit that the branch is at. It must not know what is committed.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    beneath::{Folder, PRIVATE},
    git::GitError,
    repository::Repository,
};

/// Below the project.
const JOURNAL: &str = ".ktx/ingestdeck/landing.json";

/// Largest journal, and largest file that is looked at, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// How often, and how long in between, an index that another program uses is tried again.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// A commit did not get onto the branch. The project is as it was, unless the sentence says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum LandError {
    /// Somebody else moved the branch.
    #[error("the branch moved")]
    Moved,
    /// A file in the way.
    #[error("files in the project are in the way ({why}); commit or stash them, then try again")]
    InTheWay {
        /// git's words.
        why: String,
    },
    /// git says no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The system refuses.
    #[error("cannot write {}: {cause}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It failed half-way and so did putting things back.
    #[error("it failed half-way ({cause}) and could not be undone ({undo}); the next run will do that")]
    Stuck {
        /// Why it failed.
        cause: String,
        /// Why it could not be undone.
        undo: String,
    },
}

/// A landing that was found half done and settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The commit that files and index were brought to, where there was something to settle.
    pub to: Option<String>,
    /// Paths that somebody changed since, and that were left as they are.
    pub kept: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    version: u32,
    old: String,
    new: String,
}

/// Brings the project from the commit `old`, at which its branch must be, to `new`.
pub(super) fn land(repository: &Repository, old: &str, new: &str, subject: &str) -> Result<(), LandError> {
    let journal = Journal { version: 1, old: old.to_owned(), new: new.to_owned() };
    write(repository.root(), &journal)?;
    match advance(repository, &journal, subject) {
        Ok(()) => forget(repository.root()),
        Err(error) => match settle(repository, &journal, old).and_then(|_| forget(repository.root())) {
            Ok(()) => Err(error),
            Err(undo) => Err(LandError::Stuck { cause: error.to_string(), undo: undo.to_string() }),
        },
    }
}

fn advance(repository: &Repository, Journal { old, new, .. }: &Journal, subject: &str) -> Result<(), LandError> {
    let git = &repository.git;
    // Files that were touched but not changed must not look changed. That some are changed is for the next step to say.
    patiently(|| git.ask(&["update-index", "-q", "--refresh"]))?;
    let moved = patiently(|| git.ask(&["read-tree", "-m", "-u", old, new]))?;
    if !moved.ok {
        return Err(LandError::InTheWay { why: moved.stderr });
    }
    let put = git.ask(&["update-ref", "-m", subject, "HEAD", new, old])?;
    if put.ok { Ok(()) } else { Err(LandError::Moved) }
}

/// Repeats a call while another program holds the index.
fn patiently(call: impl Fn() -> Result<super::git::Answer, GitError>) -> Result<super::git::Answer, GitError> {
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
pub fn recover(repository: &Repository) -> Result<Settled, LandError> {
    let root = repository.root();
    let failed = |cause| LandError::Io { path: root.join(JOURNAL), cause };
    let bytes = Folder::open(root).and_then(|root| root.read_if_there(JOURNAL, LARGEST)).map_err(failed)?;
    let Some(bytes) = bytes else { return Ok(Settled::default()) };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
    let head = repository.head()?;
    // Somebody has moved on from there: what is left of it is theirs to see, as a change that is not committed.
    let settled = if head == journal.old || head == journal.new {
        Settled { kept: settle(repository, &journal, &head)?, to: Some(head) }
    } else {
        Settled::default()
    };
    forget(root)?;
    Ok(settled)
}

fn write(root: &Path, journal: &Journal) -> Result<(), LandError> {
    let failed = |cause| LandError::Io { path: root.join(JOURNAL), cause };
    let bytes = serde_json::to_vec(journal).map_err(|error| failed(error.into()))?;
    Folder::open(root).and_then(|root| root.write(JOURNAL, &bytes, PRIVATE, 0o600)).map_err(failed)
}

fn forget(root: &Path) -> Result<(), LandError> {
    let failed = |cause| LandError::Io { path: root.join(JOURNAL), cause };
    Folder::open(root).and_then(|root| root.remove(JOURNAL)).map(drop).map_err(failed)
}

/// A file of the two commits of a journal: its blob in the one to be at, and in the other one.
struct Change {
    path: String,
    target: Option<String>,
    other: Option<String>,
}

/// Brings index and files to `target`, one of the two commits of the journal. Paths that somebody changed since stay.
fn settle(repository: &Repository, journal: &Journal, target: &str) -> Result<Vec<String>, LandError> {
    let git = &repository.git;
    let other = if target == journal.old { &journal.new } else { &journal.old };
    let raw = git.run(&["diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", other, target])?;
    let changes = read_changes(&String::from_utf8_lossy(&raw));
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let paths: Vec<u8> = changes.iter().flat_map(|change| [change.path.as_bytes(), b"\0"].concat()).collect();
    let reset = ["--literal-pathspecs", "reset", "--quiet", target, "--pathspec-from-file=-", "--pathspec-file-nul"];
    git.feed(&reset, &paths)?;
    let there: Vec<&Change> = changes.iter().filter(|change| is_there(repository.root(), &change.path)).collect();
    let hashes = hashes(repository, &there)?;
    let (mut kept, mut restore, mut remove) = (Vec::new(), Vec::new(), Vec::new());
    for change in &changes {
        let held = hashes.get(change.path.as_str());
        if held == change.target.as_ref() {
            continue;
        }
        if held.is_some() && held != change.other.as_ref() && !is_torn(repository, change)? {
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
    let failed = |cause| LandError::Io { path: repository.root().to_path_buf(), cause };
    let folder = Folder::open(repository.root()).map_err(failed)?;
    for path in remove {
        folder.remove(path).map_err(failed)?;
    }
    Ok(kept)
}

fn is_there(root: &Path, path: &str) -> bool {
    root.join(path).symlink_metadata().is_ok_and(|meta| meta.is_file())
}

/// The blobs that the files of `changes` would be.
fn hashes(repository: &Repository, changes: &[&Change]) -> Result<BTreeMap<String, String>, LandError> {
    if changes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut hashes = BTreeMap::new();
    // Names with line ends cannot be listed; ours never have any.
    let listed: Vec<&&Change> = changes.iter().filter(|change| !change.path.contains('\n')).collect();
    let input: String = listed.iter().map(|change| format!("{}\n", change.path)).collect();
    let output = repository.git.feed(&["hash-object", "--stdin-paths"], input.as_bytes())?;
    for (change, hash) in listed.iter().zip(String::from_utf8_lossy(&output).lines()) {
        hashes.insert(change.path.clone(), hash.to_owned());
    }
    Ok(hashes)
}

/// True when the file is the beginning of one of its two versions: its writer died.
fn is_torn(repository: &Repository, change: &Change) -> Result<bool, LandError> {
    let Ok(folder) = Folder::open(repository.root()) else { return Ok(false) };
    let Ok(held) = folder.read(&change.path, LARGEST) else { return Ok(false) };
    for blob in [&change.target, &change.other].into_iter().flatten() {
        if repository.git.run(&["cat-file", "blob", blob])?.starts_with(&held) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Entries of `diff-tree --raw -z other target`.
fn read_changes(raw: &str) -> Vec<Change> {
    let mut fields = raw.split('\0');
    let mut changes = Vec::new();
    while let (Some(meta), Some(path)) = (fields.next().filter(|meta| !meta.is_empty()), fields.next()) {
        let mut meta = meta.split(' ').skip(2);
        let mut blob = || meta.next().filter(|hash| hash.contains(|c| c != '0')).map(str::to_owned);
        let (other, target) = (blob(), blob());
        changes.push(Change { path: path.to_owned(), target, other });
    }
    changes
}
