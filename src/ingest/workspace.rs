//! What one attempt writes, kept apart from the project until it is published.
//!
//! Where a worktree is to be had, the attempt reads and writes that, and every write is a commit. Else reads fall
//! through to the project, and writes land in a directory of the attempt's own. Only `wiki/` and `semantic-layer/`
//! can be written, and no symbolic link is followed on the way. It must not know what the files mean.

use crate::scoped_dir::{self, FileLock, PRIVATE_MODE, ScopedDir};
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest as _, Sha256};

use super::{
    git::{CommitId, GitError},
    worktree::Worktree,
};

mod persistent;
pub(crate) mod publish;

pub use publish::{PublishError, RecoveredPublication, recover_publication};

/// Largest file that is read or written, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Directory of the attempt that mirrors the project.
const TREE_DIR: &str = "tree";

/// Folders of the project that an attempt may change.
const WRITABLE_DIRS: [&str; 2] = ["wiki/", "semantic-layer/"];

/// SHA-256 of a file; `None` where there is none.
pub(crate) type FileHash = Option<[u8; 32]>;

/// The files of one attempt over those of the project. Calls may come from several threads.
#[derive(Debug)]
pub(crate) struct Workspace {
    project: PathBuf,
    lifetime: Lifetime,
    state: Mutex<WorkspaceState>,
}

/// Where files are written, and what becomes of them.
#[derive(Debug)]
enum Lifetime {
    /// In a directory that is removed with the attempt. Relative to the project.
    Temporary(String),
    /// In a directory that is kept, and locked meanwhile.
    Persistent { tree: ScopedDir, _lock: FileLock },
    /// In a worktree, which is removed with the attempt. It stands for the project as well.
    Worktree {
        worktree: Worktree,
        /// The commit that it started from.
        base: CommitId,
    },
    /// Nowhere.
    ReadOnly,
}

#[derive(Debug, Default)]
struct WorkspaceState {
    /// Set once the attempt is over; late writes are refused.
    is_closed: bool,
    changes: BTreeMap<String, WorkspaceChange>,
    /// What the project held when the attempt last looked.
    seen_hashes: BTreeMap<String, FileHash>,
    /// What changed files of a worktree held before.
    originals: Originals,
}

/// What files held, by path; nothing for those that were not there.
pub(crate) type Originals = BTreeMap<String, Option<Vec<u8>>>;

/// One changed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceChange {
    /// What the project held when the attempt first changed it.
    pub(crate) base_hash: FileHash,
    /// What the attempt left; `None` if it removed the file.
    pub(crate) new_hash: FileHash,
}

/// What an attempt changed in its worktree.
#[derive(Debug)]
pub(crate) struct WorktreePatch {
    /// The commit that it began from.
    pub(crate) base: String,
    /// As `git apply` reads it; empty if nothing changed.
    pub(crate) patch: Vec<u8>,
    /// Changed paths, sorted.
    pub(crate) paths: Vec<String>,
}

/// What is left of a file whose changes were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevertOutcome {
    /// The project's version.
    Restored,
    /// Nothing: the project has none.
    Removed,
}

/// A write that did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Not below a writable folder.
    #[error("`{0}` may not be written; only files below wiki/ and semantic-layer/ may")]
    ForbiddenPath(String),
    /// It would be no text.
    #[error("`{0}` would hold a NUL character, which makes it a binary file; write it without")]
    Binary(String),
    /// Nobody could read it any more.
    #[error("`{path}` would have {bytes} bytes, and at most {MAX_FILE_BYTES} may be; split it, or say less")]
    TooLarge {
        /// Relative path.
        path: String,
        /// How large it would be.
        bytes: usize,
    },
    /// Somebody else changed it after the attempt read it.
    #[error("`{0}` is new or changed in the project since you last read it; read it, then write what holds of both")]
    ChangedSinceRead(String),
    /// The attempt is over.
    #[error("the attempt is over; nothing can be written any more")]
    Closed,
    /// Nobody said where to write.
    #[error("nothing can be written here: these tools were started without a workspace")]
    ReadOnly,
    /// The system refuses.
    #[error("cannot write `{path}`: {cause}")]
    Io {
        /// Relative path.
        path: String,
        /// Why.
        cause: io::Error,
    },
}

impl Workspace {
    /// Makes an empty workspace in `dir`, which lies below `project` and must not exist yet.
    pub(crate) fn create(project: &Path, dir: &Path) -> io::Result<Self> {
        let below = dir.strip_prefix(project).ok().and_then(Path::to_str);
        let below = below.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it is not below the project"))?;
        let root = ScopedDir::open(project)?;
        if root.kind(below)?.is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists already", dir.display())));
        }
        root.dir(&format!("{below}/{TREE_DIR}"), Some(PRIVATE_MODE))?;
        let lifetime = Lifetime::Temporary(below.to_owned());
        Ok(Self { project: project.to_path_buf(), lifetime, state: Mutex::default() })
    }

    /// Opens or makes a workspace in `dir` that stays when it is closed, with what is written there already. It may not
    /// be the project itself, nor a part of what it would mirror.
    pub(crate) fn open_persistent(project: &Path, dir: &Path) -> io::Result<Self> {
        let (tree, lock, changes) = persistent::open(project, dir)?;
        let state = Mutex::new(WorkspaceState { changes, ..WorkspaceState::default() });
        Ok(Self { project: project.to_path_buf(), lifetime: Lifetime::Persistent { tree, _lock: lock }, state })
    }

    /// A worktree that starts from the commit `base`.
    pub(crate) fn from_worktree(worktree: Worktree, base: CommitId) -> Self {
        let project = worktree.dir().to_path_buf();
        Self { project, lifetime: Lifetime::Worktree { worktree, base }, state: Mutex::default() }
    }

    /// A look at the tree in `dir`, in which the files of `originals` are changed and held that before.
    pub(crate) fn with_originals(dir: &Path, originals: Originals) -> io::Result<Self> {
        let (tree, mut changes) = (ScopedDir::open(dir)?, BTreeMap::new());
        for (path, before) in &originals {
            let change =
                WorkspaceChange { base_hash: before.as_deref().map(hash_bytes), new_hash: hash_file(&tree, path)? };
            if change.base_hash != change.new_hash {
                changes.insert(path.clone(), change);
            }
        }
        let state = Mutex::new(WorkspaceState { changes, originals, ..WorkspaceState::default() });
        Ok(Self { project: dir.to_path_buf(), lifetime: Lifetime::ReadOnly, state })
    }

    /// A look at `project` that writes nothing.
    pub(crate) fn read_only(project: &Path) -> Self {
        Self { project: project.to_path_buf(), lifetime: Lifetime::ReadOnly, state: Mutex::default() }
    }

    /// Opens the project, or the worktree that stands for it.
    fn open_project(&self) -> io::Result<ScopedDir> {
        match &self.lifetime {
            Lifetime::Worktree { worktree, .. } => worktree.open_dir(),
            Lifetime::Temporary(_) | Lifetime::Persistent { .. } | Lifetime::ReadOnly => ScopedDir::open(&self.project),
        }
    }

    /// Opens the directory that mirrors the project, as far as something was written.
    fn open_tree(&self) -> io::Result<ScopedDir> {
        match &self.lifetime {
            Lifetime::Temporary(dir) => ScopedDir::open(&self.project)?.dir(&format!("{dir}/{TREE_DIR}"), None),
            Lifetime::Persistent { tree, .. } => tree.dir("", None),
            Lifetime::Worktree { .. } | Lifetime::ReadOnly => self.open_project(),
        }
    }

    fn state(&self) -> MutexGuard<'_, WorkspaceState> {
        // A panic of another call leaves maps that are still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file as the attempt sees it: its own version, else the project's. From now on the attempt knows it.
    pub(crate) fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state();
        let bytes = self.read_current(&state, path)?;
        if !state.changes.contains_key(path) {
            state.seen_hashes.insert(path.to_owned(), bytes.as_deref().map(hash_bytes));
        }
        Ok(bytes)
    }

    /// As [`read`](Self::read), for a look that does not show the attempt what is in the file.
    pub(crate) fn peek(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.read_current(&self.state(), path)
    }

    fn read_current(&self, state: &WorkspaceState, path: &str) -> io::Result<Option<Vec<u8>>> {
        match state.changes.get(path) {
            Some(WorkspaceChange { new_hash: None, .. }) => Ok(None),
            Some(_) => self.open_tree()?.read_if_exists(path, MAX_FILE_BYTES),
            None => self.open_project()?.read_if_exists(path, MAX_FILE_BYTES),
        }
    }

    /// Writes `path` for this attempt.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.write_then(path, bytes, |tree, before| self.commit(tree, path, "Write", before))
    }

    /// Writes `path` for this attempt, which is no part of its patch before [`commit_staged`](Self::commit_staged): one
    /// commit for many files is much faster than one each.
    pub(crate) fn stage(&self, path: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.write_then(path, bytes, |_, _| Ok(()))
    }

    /// Commits everything staged, where attempts have a worktree.
    pub(crate) fn commit_staged(&self, message: &str) -> Result<(), GitError> {
        let Lifetime::Worktree { worktree, .. } = &self.lifetime else { return Ok(()) };
        let changes = self.changes();
        if changes.is_empty() {
            return Ok(());
        }
        worktree.stage(&changes.keys().map(String::as_str).collect::<Vec<_>>())?;
        worktree.commit_staged(message)
    }

    fn write_then(
        &self,
        path: &str,
        bytes: &[u8],
        then: impl FnOnce(&ScopedDir, Option<Vec<u8>>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut state = self.state();
        let base = self.base(&mut state, path)?;
        if bytes.contains(&0) {
            return Err(WriteError::Binary(path.to_owned()));
        }
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(WriteError::TooLarge { path: path.to_owned(), bytes: bytes.len() });
        }
        let tree = self.open_tree().map_err(|cause| io_error(path, cause))?;
        let before = self.read_current(&state, path).map_err(|cause| io_error(path, cause))?;
        tree.write(path, bytes, PRIVATE_MODE, 0o600).map_err(|cause| io_error(path, cause))?;
        then(&tree, before)?;
        let was_removed = state
            .changes
            .insert(path.to_owned(), WorkspaceChange { base_hash: base, new_hash: Some(hash_bytes(bytes)) })
            .is_some_and(|change| change.new_hash.is_none());
        if was_removed { self.record_removals(&state, path) } else { Ok(()) }
    }

    /// Removes `path` for this attempt. False if there was no such file.
    pub(crate) fn remove(&self, path: &str) -> Result<bool, WriteError> {
        let mut state = self.state();
        let base = self.base(&mut state, path)?;
        let is_there = state.changes.get(path).map_or(base.is_some(), |change| change.new_hash.is_some());
        let tree = self.open_tree().map_err(|cause| io_error(path, cause))?;
        let before = self.read_current(&state, path).map_err(|cause| io_error(path, cause))?;
        tree.remove(path).map_err(|cause| io_error(path, cause))?;
        if is_there {
            self.commit(&tree, path, "Remove", before)?;
        }
        match base {
            // Made and removed by the same attempt: nothing happened.
            None => state.changes.remove(path),
            Some(_) => state.changes.insert(path.to_owned(), WorkspaceChange { base_hash: base, new_hash: None }),
        };
        self.record_removals(&state, path)?;
        Ok(is_there)
    }

    /// Checks that `path` may be changed, and tells what the project holds there.
    fn base(&self, state: &mut WorkspaceState, path: &str) -> Result<FileHash, WriteError> {
        if matches!(self.lifetime, Lifetime::ReadOnly) {
            return Err(WriteError::ReadOnly);
        }
        if state.is_closed {
            return Err(WriteError::Closed);
        }
        if scoped_dir::validate_relative_path(path).is_err() || !is_writable(path) {
            return Err(WriteError::ForbiddenPath(path.to_owned()));
        }
        if let Some(change) = state.changes.get(path) {
            return Ok(change.base_hash);
        }
        let bytes = self.open_project().and_then(|project| project.read_if_exists(path, MAX_FILE_BYTES));
        let bytes = bytes.map_err(|cause| io_error(path, cause))?;
        let held = bytes.as_deref().map(hash_bytes);
        // What it never read it takes to be absent: nothing is overwritten unseen.
        if state.seen_hashes.get(path).copied().flatten() != held {
            return Err(WriteError::ChangedSinceRead(path.to_owned()));
        }
        if matches!(self.lifetime, Lifetime::Worktree { .. }) {
            state.originals.insert(path.to_owned(), bytes);
        }
        Ok(held)
    }

    /// Commits a change of `path`, or takes it back.
    fn commit(&self, tree: &ScopedDir, path: &str, verb: &str, before: Option<Vec<u8>>) -> Result<(), WriteError> {
        let Lifetime::Worktree { worktree, .. } = &self.lifetime else { return Ok(()) };
        let Err(error) = worktree.commit(path, &format!("{verb} {path}")) else { return Ok(()) };
        let undone = match before {
            Some(bytes) => tree.write(path, &bytes, PRIVATE_MODE, 0o600),
            None => tree.remove(path).map(drop),
        };
        let cause = match undone {
            Ok(()) => io::Error::other(error.to_string()),
            Err(undo) => io::Error::other(format!("{error}, and it could not be put back: {undo}")),
        };
        Err(io_error(path, cause))
    }

    /// What `path` holds in the attempt and in the project, as far as it is there.
    pub(crate) fn versions(&self, path: &str) -> io::Result<Vec<Vec<u8>>> {
        Ok(self.peek(path)?.into_iter().chain(self.original(path)?).collect())
    }

    /// What `path` held before the attempt changed it.
    pub(crate) fn original(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match self.state().originals.get(path) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.open_project()?.read_if_exists(path, MAX_FILE_BYTES),
        }
    }

    /// Forgets what the attempt did to `path`.
    pub(crate) fn revert(&self, path: &str) -> Result<RevertOutcome, WriteError> {
        let mut state = self.state();
        let base = self.base(&mut state, path)?;
        let tree = self.open_tree().map_err(|cause| io_error(path, cause))?;
        let before = self.read_current(&state, path).map_err(|cause| io_error(path, cause))?;
        match state.originals.get(path) {
            Some(Some(bytes)) => tree.write(path, bytes, PRIVATE_MODE, 0o600),
            Some(None) | None => tree.remove(path).map(drop),
        }
        .map_err(|cause| io_error(path, cause))?;
        if state.changes.contains_key(path) {
            self.commit(&tree, path, "Roll back", before)?;
        }
        state.changes.remove(path);
        self.record_removals(&state, path)?;
        Ok(if base.is_some() { RevertOutcome::Restored } else { RevertOutcome::Removed })
    }

    /// Names of the files in the folder `folder` that end with `suffix`, as the attempt sees them, sorted.
    pub(crate) fn names(&self, folder: &str, suffix: &str) -> io::Result<Vec<String>> {
        let state = self.state();
        let changed = |name: &String| state.changes.get(&format!("{folder}/{name}"));
        let mut names = list_names(&self.open_project()?, folder)?;
        names.retain(|name| changed(name).is_none_or(|change| change.new_hash.is_some()));
        for (path, change) in &state.changes {
            if let Some(name) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'))
                && change.new_hash.is_some()
                && !name.contains('/')
            {
                names.push(name.to_owned());
            }
        }
        names.retain(|name| name.ends_with(suffix) && !name.starts_with('.'));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Every changed file, sorted by path.
    pub(crate) fn changes(&self) -> BTreeMap<String, WorkspaceChange> {
        self.state().changes.clone()
    }

    /// Moves the changes into the project, whole or not at all, and removes the workspace. Sorted project-relative
    /// paths. The workspace takes no writes from here on, whatever happens.
    pub(crate) fn publish(&self) -> Result<Vec<String>, PublishError> {
        let changes = {
            let mut state = self.state();
            state.is_closed = true;
            state.changes.clone()
        };
        let tree = self.open_tree().map_err(|cause| PublishError::Io { path: self.project.clone(), cause })?;
        publish::publish_changes(&self.project, &tree, &changes)?;
        self.discard();
        Ok(changes.into_keys().collect())
    }

    /// Closes the worktree, and tells what the attempt changed in it. `None` where there is no worktree.
    pub(crate) fn into_patch(&self) -> Result<Option<WorktreePatch>, GitError> {
        let Lifetime::Worktree { worktree, base } = &self.lifetime else { return Ok(None) };
        let mut state = self.state();
        state.is_closed = true;
        let paths = state.changes.iter().filter(|(_, change)| change.base_hash != change.new_hash);
        let paths: Vec<String> = paths.map(|(path, _)| path.clone()).collect();
        let patch = if paths.is_empty() { Vec::new() } else { worktree.patch(base)? };
        Ok(Some(WorktreePatch { base: base.to_string(), patch, paths }))
    }

    /// Closes the workspace, and removes it with what is in it unless it is to stay.
    pub(crate) fn discard(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let dir = match &self.lifetime {
            Lifetime::Temporary(dir) => dir,
            Lifetime::Worktree { worktree, .. } => return worktree.remove(),
            Lifetime::Persistent { .. } | Lifetime::ReadOnly => return,
        };
        state.changes.clear();
        if let Err(error) = ScopedDir::open(&self.project).and_then(|project| project.remove_dir_all(dir)) {
            tracing::warn!(dir, %error, "cannot remove the workspace of an attempt");
        }
    }

    /// Keeps on record what was removed, where that has to outlast us.
    fn record_removals(&self, state: &WorkspaceState, path: &str) -> Result<(), WriteError> {
        match &self.lifetime {
            Lifetime::Persistent { tree, .. } => {
                persistent::write_removals(tree, &state.changes).map_err(|cause| io_error(path, cause))
            }
            Lifetime::Temporary(_) | Lifetime::Worktree { .. } | Lifetime::ReadOnly => Ok(()),
        }
    }
}

/// An attempt that nobody published leaves nothing behind.
impl Drop for Workspace {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Hexadecimal form of a print; `-` for none.
pub(crate) struct HexHash(pub(crate) FileHash);

impl fmt::Display for HexHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("-"),
            Some(print) => print.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

pub(crate) fn hash_bytes(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Print of the file `path` below `root`.
fn hash_file(root: &ScopedDir, path: &str) -> io::Result<FileHash> {
    Ok(root.read_if_exists(path, MAX_FILE_BYTES)?.as_deref().map(hash_bytes))
}

fn is_writable(path: &str) -> bool {
    WRITABLE_DIRS.iter().any(|folder| path.starts_with(folder))
}

fn io_error(path: &str, cause: io::Error) -> WriteError {
    WriteError::Io { path: path.to_owned(), cause }
}

/// Names in `folder`; none if it does not exist. Names that are not UTF-8 are not ours.
fn list_names(project: &ScopedDir, folder: &str) -> io::Result<Vec<String>> {
    let Some(folder) = project.dir_if_exists(folder)? else { return Ok(Vec::new()) };
    Ok(folder.entries()?.into_iter().filter_map(|(name, _)| name.into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    struct WorkspaceFixture {
        dir: tempfile::TempDir,
    }

    impl WorkspaceFixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("project/wiki/global")).unwrap();
            fs::write(dir.path().join("project/wiki/global/old.md"), "old").unwrap();
            Self { dir }
        }

        fn project(&self) -> PathBuf {
            self.dir.path().join("project")
        }

        fn work(&self, name: &str) -> PathBuf {
            self.project().join(".ktx/ingestdeck/work").join(name)
        }

        fn open(&self, name: &str) -> Workspace {
            Workspace::create(&self.project(), &self.work(name)).unwrap()
        }
    }

    #[test]
    fn writes_stay_in_the_workspace_until_published() {
        let bench = WorkspaceFixture::new();
        let space = bench.open("a");
        space.write("wiki/global/new.md", b"new").unwrap();
        assert_eq!(space.read("wiki/global/new.md").unwrap().unwrap(), b"new");
        assert_eq!(space.read("wiki/global/old.md").unwrap().unwrap(), b"old");
        assert!(space.remove("wiki/global/old.md").unwrap());
        assert_eq!(space.read("wiki/global/old.md").unwrap(), None);
        assert_eq!(space.peek("wiki/global/new.md").unwrap().unwrap(), b"new");
        assert_eq!(space.names("wiki/global", ".md").unwrap(), ["new.md"]);
        assert!(!bench.project().join("wiki/global/new.md").exists());
        assert_eq!(space.publish().unwrap(), ["wiki/global/new.md", "wiki/global/old.md"]);
        assert_eq!(fs::read(bench.project().join("wiki/global/new.md")).unwrap(), b"new");
        assert!(!bench.project().join("wiki/global/old.md").exists());
        assert!(!bench.work("a").exists());
        assert!(matches!(space.write("wiki/global/late.md", b"x"), Err(WriteError::Closed)));
    }

    #[test]
    fn a_dropped_attempt_leaves_nothing() {
        let bench = WorkspaceFixture::new();
        bench.open("a").write("wiki/global/new.md", b"new").unwrap();
        assert!(!bench.work("a").exists());
        assert_eq!(fs::read_dir(bench.project().join("wiki/global")).unwrap().count(), 1);
    }

    #[test]
    fn created_and_removed_file_is_not_a_change() {
        let bench = WorkspaceFixture::new();
        let space = bench.open("a");
        space.write("wiki/global/new.md", b"new").unwrap();
        assert!(space.remove("wiki/global/new.md").unwrap());
        assert!(!space.remove("wiki/global/new.md").unwrap());
        assert!(space.changes().is_empty());
    }

    #[test]
    fn writes_outside_writable_dirs_are_rejected() {
        let bench = WorkspaceFixture::new();
        let space = bench.open("a");
        for path in
            ["ktx.yaml", ".ktx/x", "wiki", "wiki/../ktx.yaml", "/etc/passwd", "wiki//x", "", "semantic-layer/./x"]
        {
            assert!(matches!(space.write(path, b"x"), Err(WriteError::ForbiddenPath(_))), "{path}");
        }
    }

    #[test]
    fn links_created_later_are_not_followed() {
        let bench = WorkspaceFixture::new();
        let outside = tempfile::tempdir().unwrap();
        let space = bench.open("a");
        symlink(outside.path(), bench.work("a").join("tree/wiki")).unwrap();
        assert!(space.write("wiki/global/x.md", b"x").is_err());
        fs::remove_file(bench.work("a").join("tree/wiki")).unwrap();
        space.write("wiki/global/x.md", b"x").unwrap();
        // The project's folder becomes a link between the write and the publication.
        fs::rename(bench.project().join("wiki"), bench.project().join("moved")).unwrap();
        symlink(outside.path(), bench.project().join("wiki")).unwrap();
        assert!(space.publish().is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn file_changed_since_it_was_read_is_not_overwritten() {
        let bench = WorkspaceFixture::new();
        let space = bench.open("a");
        space.peek("wiki/global/old.md").unwrap();
        assert!(matches!(space.write("wiki/global/old.md", b"unseen"), Err(WriteError::ChangedSinceRead(_))));
        space.read("wiki/global/old.md").unwrap();
        fs::write(bench.project().join("wiki/global/old.md"), "theirs").unwrap();
        assert!(matches!(space.write("wiki/global/old.md", b"mine"), Err(WriteError::ChangedSinceRead(_))));
        space.read("wiki/global/old.md").unwrap();
        space.write("wiki/global/old.md", b"merged").unwrap();
        fs::write(bench.project().join("wiki/global/old.md"), "theirs again").unwrap();
        let error = space.publish().unwrap_err();
        assert!(matches!(&error, PublishError::Conflict { paths } if paths == &["wiki/global/old.md"]), "{error}");
        assert_eq!(fs::read(bench.project().join("wiki/global/old.md")).unwrap(), b"theirs again");
    }

    #[test]
    fn existing_directory_is_not_reused() {
        let bench = WorkspaceFixture::new();
        let _first = bench.open("a");
        assert!(Workspace::create(&bench.project(), &bench.work("a")).is_err());
    }
}
