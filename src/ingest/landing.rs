//! Putting a commit on the branch that a project stands at, files and all: wholly or not at all, also when the machine
//! dies in between.
//!
//! A journal stands from before the first file changes until after the branch has moved. The branch decides: whoever
//! finds the journal brings the files that it is about, and their index, to the commit that the branch is at. It must not know what is committed.

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
        Err(error) => match settle(repository, &journal).and_then(|_| forget(repository.root())) {
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
    let settled = Settled { kept: settle(repository, &journal)?, to: Some(repository.head()?) };
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

/// A file that differs between the two commits of a journal.
struct Change {
    path: String,
    /// Its blob where the branch is.
    target: Option<String>,
    /// Its blobs in the two commits.
    ours: [Option<String>; 2],
}

/// Brings index and files of what differs between the two commits of the journal to where the branch is: one of the
/// two, or wherever somebody took it. Paths that somebody changed since stay.
fn settle(repository: &Repository, journal: &Journal) -> Result<Vec<String>, LandError> {
    let git = &repository.git;
    let raw = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", &journal.old, &journal.new];
    let mut changes = read_changes(&String::from_utf8_lossy(&git.run(&raw)?));
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let head = git.run(&["ls-tree", "-r", "-z", "--full-tree", "HEAD"])?;
    let head = String::from_utf8_lossy(&head);
    let blobs: BTreeMap<&str, &str> = head.split('\0').filter_map(blob).collect();
    for change in &mut changes {
        change.target = blobs.get(change.path.as_str()).map(|blob| (*blob).to_owned());
    }
    let paths: Vec<u8> = changes.iter().flat_map(|change| [change.path.as_bytes(), b"\0"].concat()).collect();
    let reset = ["--literal-pathspecs", "reset", "--quiet", "HEAD", "--pathspec-from-file=-", "--pathspec-file-nul"];
    git.feed(&reset, &paths)?;
    let there: Vec<&Change> = changes.iter().filter(|change| is_there(repository.root(), &change.path)).collect();
    let hashes = hashes(repository, &there)?;
    let (mut kept, mut restore, mut remove) = (Vec::new(), Vec::new(), Vec::new());
    for change in &changes {
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
    let failed = |cause| LandError::Io { path: repository.root().to_path_buf(), cause };
    let folder = Folder::open(repository.root()).map_err(failed)?;
    for path in remove {
        folder.remove(path).map_err(failed)?;
    }
    Ok(kept)
}

/// Path and blob of an entry of `ls-tree -z`.
fn blob(entry: &str) -> Option<(&str, &str)> {
    let (meta, path) = entry.split_once('\t')?;
    Some((path, meta.split(' ').nth(2)?))
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
    for blob in change.ours.iter().flatten() {
        if repository.git.run(&["cat-file", "blob", blob])?.starts_with(&held) {
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
mod tests {
    use std::fs;

    use super::*;
    use crate::ingest::git::tests::{project, write};

    /// A project and two commits of it: where it is, and where it is to go. The first page changes, the second goes, a
    /// third one comes.
    fn stage() -> (tempfile::TempDir, Repository, String, String) {
        let (dir, root) = project(&[("wiki/global/a.md", "a old\n"), ("wiki/global/b.md", "b\n")]);
        let repository = Repository::find(&root).unwrap().unwrap();
        repository.hide_ours().unwrap();
        let git = &repository.git;
        let old = repository.head().unwrap();
        write(&root, "wiki/global/a.md", "a new and longer\n");
        fs::remove_file(root.join("wiki/global/b.md")).unwrap();
        write(&root, "wiki/global/deep/c.md", "c\n");
        git.run(&["add", "--all"]).unwrap();
        let tree = git.line(&["write-tree"]).unwrap();
        let new = git.line(&["commit-tree", &tree, "-p", &old, "-m", "new"]).unwrap();
        git.run(&["reset", "--quiet", "--hard", &old]).unwrap();
        (dir, repository, old, new)
    }

    fn files(root: &Path) -> Vec<Option<String>> {
        ["a.md", "b.md", "deep/c.md"].map(|name| fs::read_to_string(root.join("wiki/global").join(name)).ok()).into()
    }

    /// What a project at `commit` must look like: all of it, and nothing for git to remark on.
    fn assert_whole(repository: &Repository, commit: &str, files_there: &[Option<String>]) {
        assert_eq!(repository.head().unwrap(), commit);
        assert_eq!(repository.git.line(&["status", "--porcelain"]).unwrap(), "");
        assert_eq!(files(repository.root()), files_there);
        assert_eq!(recover(repository).unwrap(), Settled::default(), "once is enough");
    }

    #[test]
    fn whoever_dies_at_any_step_leaves_the_old_state_or_the_new_one() {
        let torn = |root: &Path| write(root, "wiki/global/a.md", "a n");
        let missing = |root: &Path| fs::remove_file(root.join("wiki/global/a.md")).unwrap();
        // The journal; the files and the index; the branch.
        for steps_done in 1..=3 {
            for damage in [None, Some(&torn as &dyn Fn(&Path)), Some(&missing)] {
                let (_dir, repository, old, new) = stage();
                let (before, git) = (files(repository.root()), &repository.git);
                let journal = Journal { version: 1, old: old.clone(), new: new.clone() };
                write_journal(&repository, &journal);
                let mut end = (&old, before);
                if steps_done >= 2 {
                    git.run(&["read-tree", "-m", "-u", &old, &new]).unwrap();
                }
                if steps_done >= 3 {
                    git.run(&["update-ref", "HEAD", &new, &old]).unwrap();
                    end = (&new, files(repository.root()));
                }
                if let Some(damage) = damage {
                    damage(repository.root());
                }
                let settled = recover(&repository).unwrap();
                assert_eq!(settled, Settled { to: Some(end.0.clone()), kept: Vec::new() }, "{steps_done}");
                assert_whole(&repository, end.0, &end.1);
            }
        }
    }

    fn write_journal(repository: &Repository, journal: &Journal) {
        super::write(repository.root(), journal).unwrap();
    }

    #[test]
    fn what_somebody_wrote_since_stays() {
        let (_dir, repository, old, new) = stage();
        write_journal(&repository, &Journal { version: 1, old: old.clone(), new: new.clone() });
        repository.git.run(&["read-tree", "-m", "-u", &old, &new]).unwrap();
        write(repository.root(), "wiki/global/a.md", "by hand");
        assert_eq!(recover(&repository).unwrap(), Settled { to: Some(old), kept: vec!["wiki/global/a.md".into()] });
        assert_eq!(files(repository.root()), [Some("by hand".into()), Some("b\n".into()), None]);
    }

    #[test]
    fn a_branch_that_somebody_moved_is_theirs() {
        let (_dir, repository, old, new) = stage();
        land(&repository, &old, &new, "new").unwrap();
        let after = files(repository.root());
        assert_whole(&repository, &new, &after);
        assert!(matches!(land(&repository, &old, &new, "new"), Err(LandError::Moved | LandError::InTheWay { .. })));
        assert_whole(&repository, &new, &after);
        // Killed, and then somebody committed before anybody could settle it.
        write_journal(&repository, &Journal { version: 1, old, new });
        repository.git.run(&["commit", "--quiet", "--allow-empty", "-m", "by hand"]).unwrap();
        let head = repository.head().unwrap();
        assert_eq!(recover(&repository).unwrap(), Settled { to: Some(head.clone()), kept: Vec::new() });
        assert_whole(&repository, &head, &after);
    }

    #[test]
    fn an_index_that_another_program_holds_is_waited_for() {
        let (_dir, repository, old, new) = stage();
        let lock = repository.root().join(".git/index.lock");
        fs::write(&lock, "").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| fs::remove_file(&lock).unwrap());
            land(&repository, &old, &new, "new").unwrap();
        });
        assert_eq!(repository.head().unwrap(), new);
    }
}
