//! Putting a commit on the branch that a project stands at, files and all: wholly or not at all, also when the machine
//! dies in between.
//!
//! A journal stands from before the first file changes until after the branch has moved. The branch decides: whoever
//! finds the journal brings the files that it is about, and their index, to the commit that the branch is at. It must
//! not know what is committed.

use crate::scoped_dir::{PRIVATE, ScopedDir};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    git::{Answer, GitError},
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
    let repository = &repository.renewed()?;
    let changes = changes(repository, &journal)?;
    // What is refused here has not begun: a crash must never find edits of a person beside a journal.
    look(repository, &journal, &changes)?;
    let before = hashes(repository, &changes)?;
    write(repository.root(), &journal)?;
    let undone = match bring(repository, &journal) {
        Ok(()) => match point(repository, &journal, subject) {
            Ok(()) => return forget(repository.root()),
            Err(error) => (error, settle(repository, changes, &Undo::Everything(before))),
        },
        Err(error) => (error, settle(repository, changes, &Undo::Files(before))),
    };
    let (error, settled) = undone;
    match settled.and_then(|_| forget(repository.root())) {
        Ok(()) => Err(error),
        Err(undo) => Err(LandError::Stuck { cause: error.to_string(), undo: undo.to_string() }),
    }
}

/// Whether files and index could be brought to the commit `new`. Changes none of them.
fn look(repository: &Repository, Journal { old, new, .. }: &Journal, changes: &[Change]) -> Result<(), LandError> {
    let git = &repository.git;
    // Files that were touched but not changed must not look changed. That some are changed is for the next step to say.
    patiently(|| git.ask(&["update-index", "-q", "--refresh"]))?;
    // A page that somebody deleted would be written anew without a word.
    let deleted = git.run(&["ls-files", "--deleted", "-z"])?;
    let deleted = String::from_utf8_lossy(&deleted);
    let rewritten = |path: &&str| changes.iter().any(|change| change.path == **path && change.ours[1].is_some());
    if let Some(path) = deleted.split('\0').find(rewritten) {
        return Err(LandError::InTheWay { why: format!("{} is deleted", path.escape_debug()) });
    }
    moved(&patiently(|| git.ask(&["read-tree", "-n", "-m", "-u", old, new]))?)
}

/// Brings files and index to the commit `new`. Where it fails, the index is as it was.
fn bring(repository: &Repository, Journal { old, new, .. }: &Journal) -> Result<(), LandError> {
    moved(&patiently(|| repository.git.ask(&["read-tree", "-m", "-u", old, new]))?)
}

fn moved(answer: &Answer) -> Result<(), LandError> {
    let why = || answer.stderr.clone();
    match answer.ok {
        true => Ok(()),
        false if is_refusal(&answer.stderr) => Err(LandError::InTheWay { why: why() }),
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
fn point(repository: &Repository, Journal { old, new, .. }: &Journal, subject: &str) -> Result<(), LandError> {
    let put = repository.git.ask(&["update-ref", "-m", subject, "HEAD", new, old])?;
    match put.ok {
        true => Ok(()),
        false if repository.head()? != *old => Err(LandError::Moved),
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
pub fn recover(repository: &Repository) -> Result<Settled, LandError> {
    let root = repository.root();
    let failed = |cause| LandError::Io { path: root.join(JOURNAL), cause };
    let bytes = ScopedDir::open(root).and_then(|root| root.read_if_there(JOURNAL, LARGEST)).map_err(failed)?;
    let Some(bytes) = bytes else { return Ok(Settled::default()) };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
    let changes = changes(repository, &journal)?;
    let settled = Settled { kept: settle(repository, changes, &Undo::Unknown)?, to: Some(repository.head()?) };
    forget(root)?;
    Ok(settled)
}

fn write(root: &Path, journal: &Journal) -> Result<(), LandError> {
    let failed = |cause| LandError::Io { path: root.join(JOURNAL), cause };
    let bytes = serde_json::to_vec(journal).map_err(|error| failed(error.into()))?;
    ScopedDir::open(root).and_then(|root| root.write(JOURNAL, &bytes, PRIVATE, 0o600)).map_err(failed)
}

fn forget(root: &Path) -> Result<(), LandError> {
    let failed = |cause| LandError::Io { path: root.join(JOURNAL), cause };
    ScopedDir::open(root).and_then(|root| root.remove(JOURNAL)).map(drop).map_err(failed)
}

/// A file that differs between the two commits of a journal.
struct Change {
    path: String,
    /// Its blob where the branch is.
    target: Option<String>,
    /// Its blobs in the two commits.
    ours: [Option<String>; 2],
}

/// What is known of a landing that failed.
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
fn changes(repository: &Repository, journal: &Journal) -> Result<Vec<Change>, LandError> {
    let raw = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", &journal.old, &journal.new];
    Ok(read_changes(&String::from_utf8_lossy(&repository.git.run(&raw)?)))
}

/// Brings index and files of `changes` to where the branch is: one of the two commits, or wherever somebody took it.
/// Paths that somebody changed since, or that the landing never touched, stay.
fn settle(repository: &Repository, mut changes: Vec<Change>, undo: &Undo) -> Result<Vec<String>, LandError> {
    let git = &repository.git;
    let hashes = hashes(repository, &changes)?;
    let is_untouched = |change: &Change| undo.is_untouched(&change.path, hashes.get(change.path.as_str()));
    if matches!(undo, Undo::Files(_)) {
        changes.retain(|change| !is_untouched(change));
    }
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
    let failed = |cause| LandError::Io { path: repository.root().to_path_buf(), cause };
    let folder = ScopedDir::open(repository.root()).map_err(failed)?;
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

/// The blobs that the files of `changes` would be, as far as they are there.
fn hashes(repository: &Repository, changes: &[Change]) -> Result<BTreeMap<String, String>, LandError> {
    // Names with line ends cannot be listed; ours never have any.
    let listed = |change: &&Change| is_there(repository.root(), &change.path) && !change.path.contains('\n');
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
fn is_torn(repository: &Repository, change: &Change) -> Result<bool, LandError> {
    let Ok(folder) = ScopedDir::open(repository.root()) else { return Ok(false) };
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

    /// What a person did to the project while a run was on its way, and that is not committed.
    fn edit(root: &Path, edit: &str) {
        match edit {
            "the end is cut off" => write(root, "wiki/global/a.md", "a o"),
            "emptied" => write(root, "wiki/global/a.md", ""),
            "deleted" => fs::remove_file(root.join("wiki/global/a.md")).unwrap(),
            "another page is written" => write(root, "wiki/global/deep/c.md", "c"),
            "a page that goes is changed" => write(root, "wiki/global/b.md", "b"),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_commit_that_a_person_is_in_the_way_of_changes_nothing() {
        let edits =
            ["the end is cut off", "emptied", "deleted", "another page is written", "a page that goes is changed"];
        for (what, is_staged) in edits.iter().flat_map(|what| [(*what, false), (*what, true)]) {
            let (_dir, repository, old, new) = stage();
            edit(repository.root(), what);
            if is_staged {
                repository.git.run(&["add", "--all"]).unwrap();
            }
            let status = || repository.git.run(&["status", "--porcelain=v2", "--untracked-files=all"]).unwrap();
            let (files_before, status_before) = (files(repository.root()), status());
            let error = land(&repository, &old, &new, "new").unwrap_err();
            assert!(matches!(error, LandError::InTheWay { .. }), "{what}, staged: {is_staged}: {error}");
            assert_eq!(files(repository.root()), files_before, "{what}, staged: {is_staged}");
            assert_eq!(status(), status_before, "{what}, staged: {is_staged}");
            assert_eq!(repository.head().unwrap(), old);
            assert_eq!(recover(&repository).unwrap(), Settled::default(), "nothing is left to be settled");
        }
    }

    #[test]
    fn a_branch_that_cannot_be_written_is_none_that_moved() {
        let (_dir, repository, old, new) = stage();
        let before = files(repository.root());
        let lock = format!(".git/refs/heads/{}.lock", repository.branch().unwrap().unwrap());
        write(repository.root(), &lock, "");
        let error = land(&repository, &old, &new, "new").unwrap_err();
        assert!(
            matches!(&error, LandError::Git(GitError::Failed { stderr, .. }) if stderr.contains(".lock")),
            "{error}"
        );
        assert_whole(&repository, &old, &before);
    }

    #[test]
    fn an_index_that_stays_locked_is_no_file_in_the_way() {
        let lock =
            "fatal: Unable to create '/p/.git/index.lock': File exists.; Another git process seems to be running";
        assert!(!is_refusal(lock));
        assert!(!is_refusal("error: unable to write file wiki/global/a.md: No space left on device"));
        assert!(is_refusal("error: Entry 'wiki/global/a.md' not uptodate. Cannot merge."));
    }

    #[test]
    fn files_that_a_full_disk_left_half_written_are_put_back_and_the_others_stay() {
        let (_dir, repository, old, new) = stage();
        let root = repository.root();
        // Another page is edited by hand, and what is left of it could be a file that git did not finish.
        write(root, "wiki/global/b.md", "");
        let changes = changes(&repository, &Journal { version: 1, old: old.clone(), new }).unwrap();
        let before = hashes(&repository, &changes).unwrap();
        write(root, "wiki/global/a.md", "a new a");
        write(root, "wiki/global/deep/c.md", "");
        assert_eq!(settle(&repository, changes, &Undo::Files(before)).unwrap(), [""; 0]);
        assert_eq!(files(root), [Some("a old\n".into()), Some(String::new()), None]);
        assert_eq!(repository.head().unwrap(), old);
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
