//! The changes of one attempt, kept apart from the project.
//!
//! An attempt reads and writes in a worktree; its patch is created at the end. Tools without an attempt write to a directory
//! that the user named: reads of other files fall through to the project. Only `wiki/` and `semantic-layer/` can be written, and
//! symbolic links on the path are not followed. This module must not know the content of the files.

use ingestdeck_core::{
    tape::note::attempt_output::LineEdit,
    text::{self, LineChange},
};
use ingestdeck_os::scoped_dir::{self, FileLock, PRIVATE_MODE, ScopedDir};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};

use super::{
    git::{CommitId, GitError},
    worktree::Worktree,
};

mod persistent;

/// Largest file that is read or written, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Directories of the project that an attempt may change.
const WRITABLE_DIRS: [&str; 2] = ["wiki/", "semantic-layer/"];

/// SHA-256 of a file; `None` for a missing file.
pub(crate) type FileHash = Option<[u8; 32]>;

/// The files of one attempt, layered over those of the project. Safe to use from several threads.
#[derive(Debug)]
pub(crate) struct Workspace {
    project: PathBuf,
    storage: WorkspaceStorage,
    state: Mutex<WorkspaceState>,
}

/// Location of the changes, and their lifetime.
#[derive(Debug)]
enum WorkspaceStorage {
    /// A directory that the user named, which is kept, and locked while it is in use.
    Persistent { tree: ScopedDir, _lock: FileLock },
    /// A worktree, which is removed with the attempt and takes the place of the project.
    Worktree {
        worktree: Worktree,
        /// The commit that the worktree started from.
        base: CommitId,
    },
    /// No location: writes are refused.
    ReadOnly,
}

#[derive(Debug, Default)]
struct WorkspaceState {
    /// Set when the attempt has ended, so that later writes are refused.
    is_closed: bool,
    changes: BTreeMap<String, WorkspaceChange>,
    /// Hashes of the project's files when the attempt last read them.
    seen_hashes: BTreeMap<String, FileHash>,
    /// Previous contents of changed files in a worktree.
    originals: Originals,
    /// Changes in a worktree that were not taken yet.
    file_edits: Vec<FileEdit>,
}

/// One change of a file in a worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileEdit {
    /// Relative to the project.
    pub(crate) path: String,
    /// Replaced lines; `None` if the project's version was restored.
    pub(crate) edits: Option<Vec<LineEdit>>,
}

/// The lines that differ between two contents of a file.
fn line_edits(old: &[u8], new: &[u8]) -> Vec<LineEdit> {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let [old, new] = [old, new].map(String::from_utf8_lossy);
    let changes = text::line_changes(&text::lines(&old), &text::lines(&new));
    let edit = |LineChange { old, new }: LineChange| LineEdit {
        start: count(old.start),
        removed: count(old.len()),
        added: count(new.len()),
    };
    changes.into_iter().map(edit).collect()
}

impl WorkspaceState {
    /// Records the difference between the content `before` and `after` a change.
    fn note_edit(&mut self, path: &str, before: Option<Vec<u8>>, after: &[u8]) {
        let Some(before) = before else { return };
        let edits = line_edits(&before, after);
        if !edits.is_empty() {
            self.file_edits.push(FileEdit {
                path: path.to_owned(),
                edits: Some(edits),
            });
        }
    }
}

/// Contents of files by path; `None` for missing files.
pub(crate) type Originals = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceChange {
    /// Hash of the project's file when the attempt first changed it.
    pub(crate) base_hash: FileHash,
    /// Hash of the new content; `None` if the attempt removed the file.
    pub(crate) new_hash: FileHash,
}

/// The changes of an attempt in its worktree.
#[derive(Debug)]
pub(crate) struct WorktreePatch {
    /// The commit that the worktree started from.
    pub(crate) base: String,
    /// In the format of `git apply`; empty if nothing changed.
    pub(crate) patch: Vec<u8>,
    pub(crate) paths: Vec<String>,
}

/// State of a file after its changes were reverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevertOutcome {
    /// The file has the project's version.
    Restored,
    /// The file does not exist, because the project has none.
    Removed,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The path is not below a writable directory.
    #[error("`{0}` cannot be written; write only below wiki/ and semantic-layer/")]
    ForbiddenPath(String),
    /// The content would not be text.
    #[error("`{0}` would contain a NUL character and be a binary file; remove the NUL character")]
    Binary(String),
    /// The file would exceed the size limit for reading.
    #[error(
        "`{path}` would have {bytes} bytes, more than the limit of {MAX_FILE_BYTES}; split or shorten it"
    )]
    TooLarge {
        /// Relative to the project.
        path: String,
        /// Size in bytes after the write.
        bytes: usize,
    },
    /// The file changed in the project after the attempt read it.
    #[error(
        "`{0}` was changed after you read it, or was not read; read it, then write what is valid in both versions"
    )]
    ChangedSinceRead(String),
    /// The workspace is closed.
    #[error("the attempt has ended; stop writing")]
    Closed,
    /// The workspace is read-only.
    #[error(
        "these tools were started without a workspace and are read-only; continue without writing"
    )]
    ReadOnly,
    /// A system call failed.
    #[error("cannot write `{path}`: {cause}")]
    Io {
        /// Relative to the project.
        path: String,
        cause: io::Error,
    },
}

impl Workspace {
    /// Opens or creates a workspace in `dir` that is kept when it is closed, including earlier changes in it. It must
    /// be neither the project itself nor one of the mirrored directories.
    pub(crate) fn open_persistent(project: &Path, dir: &Path) -> io::Result<Self> {
        let (tree, lock, changes) = persistent::open(project, dir)?;
        let state = Mutex::new(WorkspaceState {
            changes,
            ..WorkspaceState::default()
        });
        Ok(Self {
            project: project.to_path_buf(),
            storage: WorkspaceStorage::Persistent { tree, _lock: lock },
            state,
        })
    }

    /// Creates a workspace in a worktree that started from the commit `base`.
    pub(crate) fn from_worktree(worktree: Worktree, base: CommitId) -> Self {
        let project = worktree.dir().to_path_buf();
        Self {
            project,
            storage: WorkspaceStorage::Worktree { worktree, base },
            state: Mutex::default(),
        }
    }

    /// Opens the tree in `dir` for reading, treating the files of `originals` as changed from the contents given there.
    pub(crate) fn with_originals(dir: &Path, originals: Originals) -> io::Result<Self> {
        let (tree, mut changes) = (ScopedDir::open(dir)?, BTreeMap::new());
        for (path, before) in &originals {
            let change = WorkspaceChange {
                base_hash: before.as_deref().map(hash_bytes),
                new_hash: hash_file(&tree, path)?,
            };
            if change.base_hash != change.new_hash {
                changes.insert(path.clone(), change);
            }
        }
        let state = Mutex::new(WorkspaceState {
            changes,
            originals,
            ..WorkspaceState::default()
        });
        Ok(Self {
            project: dir.to_path_buf(),
            storage: WorkspaceStorage::ReadOnly,
            state,
        })
    }

    /// Opens `project` for reading.
    pub(crate) fn read_only(project: &Path) -> Self {
        Self {
            project: project.to_path_buf(),
            storage: WorkspaceStorage::ReadOnly,
            state: Mutex::default(),
        }
    }

    /// Opens the project, or the worktree that takes its place.
    fn open_project(&self) -> io::Result<ScopedDir> {
        match &self.storage {
            WorkspaceStorage::Worktree { worktree, .. } => worktree.open_dir(),
            WorkspaceStorage::Persistent { .. } | WorkspaceStorage::ReadOnly => {
                ScopedDir::open(&self.project)
            }
        }
    }

    /// Opens the directory that mirrors the project.
    fn open_tree(&self) -> io::Result<ScopedDir> {
        match &self.storage {
            WorkspaceStorage::Persistent { tree, .. } => tree.dir("", None),
            WorkspaceStorage::Worktree { .. } | WorkspaceStorage::ReadOnly => self.open_project(),
        }
    }

    fn state(&self) -> MutexGuard<'_, WorkspaceState> {
        // After a panic of another call the maps are still consistent.
        self.state.lock()
    }

    /// Reads the attempt's version of the file, or else the project's. Records that the attempt has seen it.
    pub(crate) fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state();
        let bytes = self.read_current(&state, path, MAX_FILE_BYTES)?;
        if !state.changes.contains_key(path) {
            state
                .seen_hashes
                .insert(path.to_owned(), bytes.as_deref().map(hash_bytes));
        }
        Ok(bytes)
    }

    /// Like [`read`](Self::read), but does not record that the attempt has seen the content.
    pub(crate) fn peek(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.peek_up_to(path, MAX_FILE_BYTES)
    }

    /// Like [`peek`](Self::peek), for files that other programs write and that may be larger: up to `limit` bytes.
    pub(crate) fn peek_up_to(&self, path: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        self.read_current(&self.state(), path, limit)
    }

    fn read_current(
        &self,
        state: &WorkspaceState,
        path: &str,
        limit: u64,
    ) -> io::Result<Option<Vec<u8>>> {
        match state.changes.get(path) {
            Some(WorkspaceChange { new_hash: None, .. }) => Ok(None),
            Some(_) => self.open_tree()?.read_if_exists(path, limit),
            None => self.open_project()?.read_if_exists(path, limit),
        }
    }

    /// Writes `path` in the attempt.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let mut state = self.state();
        let base = self.base(&mut state, path)?;
        if bytes.contains(&0) {
            return Err(WriteError::Binary(path.to_owned()));
        }
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(WriteError::TooLarge {
                path: path.to_owned(),
                bytes: bytes.len(),
            });
        }
        let tree = self.open_tree().map_err(|cause| io_error(path, cause))?;
        let before = self.content_before(&state, path)?;
        self.replace(&tree, path, bytes)
            .map_err(|cause| io_error(path, cause))?;
        state.note_edit(path, before, bytes);
        let was_removed = state
            .changes
            .insert(
                path.to_owned(),
                WorkspaceChange {
                    base_hash: base,
                    new_hash: Some(hash_bytes(bytes)),
                },
            )
            .is_some_and(|change| change.new_hash.is_none());
        if was_removed {
            self.record_removals(&state, path)
        } else {
            Ok(())
        }
    }

    /// Removes `path` in the attempt. False if the file does not exist.
    pub(crate) fn remove(&self, path: &str) -> Result<bool, WriteError> {
        let mut state = self.state();
        let base = self.base(&mut state, path)?;
        let exists = state
            .changes
            .get(path)
            .map_or(base.is_some(), |change| change.new_hash.is_some());
        let tree = self.open_tree().map_err(|cause| io_error(path, cause))?;
        let before = self.content_before(&state, path)?;
        tree.remove(path).map_err(|cause| io_error(path, cause))?;
        state.note_edit(path, before, b"");
        match base {
            // The same attempt created and removed the file: there is no change.
            None => state.changes.remove(path),
            Some(_) => state.changes.insert(
                path.to_owned(),
                WorkspaceChange {
                    base_hash: base,
                    new_hash: None,
                },
            ),
        };
        self.record_removals(&state, path)?;
        Ok(exists)
    }

    /// Checks that `path` may be changed, and returns the hash of the project's version.
    fn base(&self, state: &mut WorkspaceState, path: &str) -> Result<FileHash, WriteError> {
        if matches!(self.storage, WorkspaceStorage::ReadOnly) {
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
        let bytes = self
            .open_project()
            .and_then(|project| project.read_if_exists(path, MAX_FILE_BYTES));
        let bytes = bytes.map_err(|cause| io_error(path, cause))?;
        let current = bytes.as_deref().map(hash_bytes);
        // A path that was never read is assumed to be missing, so that no unseen file is overwritten.
        if state.seen_hashes.get(path).copied().flatten() != current {
            return Err(WriteError::ChangedSinceRead(path.to_owned()));
        }
        if matches!(self.storage, WorkspaceStorage::Worktree { .. }) {
            state.originals.insert(path.to_owned(), bytes);
        }
        Ok(current)
    }

    /// Current content of a file of a worktree, before a change of it; `None` for other workspaces.
    fn content_before(
        &self,
        state: &WorkspaceState,
        path: &str,
    ) -> Result<Option<Vec<u8>>, WriteError> {
        if !matches!(self.storage, WorkspaceStorage::Worktree { .. }) {
            return Ok(None);
        }
        let content = self
            .read_current(state, path, MAX_FILE_BYTES)
            .map_err(|cause| io_error(path, cause))?;
        Ok(Some(content.unwrap_or_default()))
    }

    /// Takes the changes of files in a worktree since the last call, in order.
    pub(crate) fn take_file_edits(&self) -> Vec<FileEdit> {
        std::mem::take(&mut self.state().file_edits)
    }

    /// Replaces a file of the attempt. A worktree is removed after a crash, so its files need not be durable.
    fn replace(&self, tree: &ScopedDir, path: &str, bytes: &[u8]) -> io::Result<()> {
        match &self.storage {
            WorkspaceStorage::Worktree { .. } => {
                tree.write_unsynced(path, bytes, PRIVATE_MODE, 0o600)
            }
            WorkspaceStorage::Persistent { .. } | WorkspaceStorage::ReadOnly => {
                tree.write(path, bytes, PRIVATE_MODE, 0o600)
            }
        }
    }

    /// Existing versions of `path`: the attempt's and the project's.
    pub(crate) fn versions(&self, path: &str) -> io::Result<Vec<Vec<u8>>> {
        Ok(self
            .peek(path)?
            .into_iter()
            .chain(self.original(path)?)
            .collect())
    }

    /// Content of `path` before the attempt changed it.
    pub(crate) fn original(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match self.state().originals.get(path) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.open_project()?.read_if_exists(path, MAX_FILE_BYTES),
        }
    }

    /// Undoes the changes of the attempt to `path`.
    pub(crate) fn revert(&self, path: &str) -> Result<RevertOutcome, WriteError> {
        let mut state = self.state();
        let base = self.base(&mut state, path)?;
        let tree = self.open_tree().map_err(|cause| io_error(path, cause))?;
        match state.originals.get(path) {
            Some(Some(bytes)) => self.replace(&tree, path, bytes),
            Some(None) | None => tree.remove(path).map(drop),
        }
        .map_err(|cause| io_error(path, cause))?;
        state.changes.remove(path);
        state.file_edits.push(FileEdit {
            path: path.to_owned(),
            edits: None,
        });
        self.record_removals(&state, path)?;
        Ok(if base.is_some() {
            RevertOutcome::Restored
        } else {
            RevertOutcome::Removed
        })
    }

    /// Names of the files in `folder` that end with `suffix`, as seen by the attempt, sorted.
    pub(crate) fn names(&self, folder: &str, suffix: &str) -> io::Result<Vec<String>> {
        let state = self.state();
        let changed = |name: &String| state.changes.get(&format!("{folder}/{name}"));
        let mut names = list_names(&self.open_project()?, folder)?;
        names.retain(|name| changed(name).is_none_or(|change| change.new_hash.is_some()));
        for (path, change) in &state.changes {
            if let Some(name) = path
                .strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('/'))
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

    /// Closes the worktree and returns its changes. `None` for other workspaces.
    pub(crate) fn create_patch(&self) -> Result<Option<WorktreePatch>, GitError> {
        let WorkspaceStorage::Worktree { worktree, base } = &self.storage else {
            return Ok(None);
        };
        let mut state = self.state();
        state.is_closed = true;
        let paths = state
            .changes
            .iter()
            .filter(|(_, change)| change.base_hash != change.new_hash);
        let paths: Vec<String> = paths.map(|(path, _)| path.clone()).collect();
        let patch = match paths
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            [] => Vec::new(),
            changed => {
                worktree.stage(changed)?;
                worktree.staged_patch(base)?
            }
        };
        Ok(Some(WorktreePatch {
            base: base.to_string(),
            patch,
            paths,
        }))
    }

    /// Closes the workspace, and removes its worktree.
    pub(crate) fn discard(&self) {
        self.state().is_closed = true;
        if let WorkspaceStorage::Worktree { worktree, .. } = &self.storage {
            worktree.remove();
        }
    }

    /// Stores the list of removed files if the workspace is persistent.
    fn record_removals(&self, state: &WorkspaceState, path: &str) -> Result<(), WriteError> {
        match &self.storage {
            WorkspaceStorage::Persistent { tree, .. } => {
                persistent::write_removals(tree, &state.changes)
                    .map_err(|cause| io_error(path, cause))
            }
            WorkspaceStorage::Worktree { .. } | WorkspaceStorage::ReadOnly => Ok(()),
        }
    }
}

/// Removes the worktree of an attempt.
impl Drop for Workspace {
    fn drop(&mut self) {
        self.discard();
    }
}

pub(crate) fn hash_bytes(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Hash of the file `path` below `root`.
fn hash_file(root: &ScopedDir, path: &str) -> io::Result<FileHash> {
    Ok(root
        .read_if_exists(path, MAX_FILE_BYTES)?
        .as_deref()
        .map(hash_bytes))
}

fn is_writable(path: &str) -> bool {
    WRITABLE_DIRS.iter().any(|folder| path.starts_with(folder))
}

fn io_error(path: &str, cause: io::Error) -> WriteError {
    WriteError::Io {
        path: path.to_owned(),
        cause,
    }
}

/// Names in `folder`; empty if it does not exist. Skips names that are not UTF-8, which a run never writes.
fn list_names(project: &ScopedDir, folder: &str) -> io::Result<Vec<String>> {
    let Some(folder) = project.dir_if_exists(folder)? else {
        return Ok(Vec::new());
    };
    Ok(folder
        .entries()?
        .into_iter()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, sync::Arc};

    use super::*;
    use crate::{
        repository::Repository,
        test_projects::{project, write},
        worktree::Worktrees,
    };

    const OLD: &str = "wiki/global/old.md";
    const NEW: &str = "wiki/global/new.md";

    struct WorkspaceFixture {
        _dir: tempfile::TempDir,
        root: PathBuf,
        trees: Arc<Worktrees>,
    }

    impl WorkspaceFixture {
        fn new() -> Self {
            let (dir, root) = project(&[(OLD, "old")]);
            let repository = Repository::find(&root).unwrap().unwrap();
            repository.ignore_state_dirs().unwrap();
            let trees = Worktrees::new(repository.clone(), "local-1", &repository.head().unwrap());
            Self {
                _dir: dir,
                root,
                trees,
            }
        }

        fn open(&self) -> Workspace {
            let base = self.trees.base();
            Workspace::from_worktree(self.trees.open(Some("a"), &base).unwrap(), base)
        }
    }

    #[test]
    fn writes_stay_in_the_workspace() {
        let fixture = WorkspaceFixture::new();
        let space = fixture.open();
        space.write(NEW, b"new").unwrap();
        assert_eq!(space.read(NEW).unwrap().unwrap(), b"new");
        assert_eq!(space.read(OLD).unwrap().unwrap(), b"old");
        assert!(space.remove(OLD).unwrap());
        assert_eq!(
            (space.read(OLD).unwrap(), space.peek(NEW).unwrap().unwrap()),
            (None, b"new".to_vec())
        );
        assert_eq!(space.names("wiki/global", ".md").unwrap(), ["new.md"]);
        assert_eq!(space.create_patch().unwrap().unwrap().paths, [NEW, OLD]);
        assert!(matches!(
            space.write("wiki/global/late.md", b"x"),
            Err(WriteError::Closed)
        ));
        let dir = space.project.clone();
        drop(space);
        assert!(
            !dir.exists() && !fixture.root.join(NEW).exists() && fixture.root.join(OLD).exists()
        );
    }

    #[test]
    fn created_and_removed_file_is_not_a_change() {
        let fixture = WorkspaceFixture::new();
        let space = fixture.open();
        space.write(NEW, b"new").unwrap();
        assert!(space.remove(NEW).unwrap());
        assert!(!space.remove(NEW).unwrap());
        assert!(space.changes().is_empty());
    }

    #[test]
    fn edits_of_a_file_are_counted_by_line() {
        let fixture = WorkspaceFixture::new();
        let space = fixture.open();
        let edits = |edits: &[[u32; 3]]| {
            Some(
                edits
                    .iter()
                    .copied()
                    .map(LineEdit::from)
                    .collect::<Vec<_>>(),
            )
        };
        space.write(NEW, b"a\nb\nc\n").unwrap();
        space.write(NEW, b"a\nx\ny\nc\nd").unwrap();
        space.write(NEW, b"a\nx\ny\nc\nd").unwrap();
        space.remove(NEW).unwrap();
        space.read(OLD).unwrap();
        space.write(OLD, b"").unwrap();
        space.revert(OLD).unwrap();
        let expected = [
            (NEW, edits(&[[0, 0, 3]])),
            (NEW, edits(&[[1, 1, 2], [3, 0, 1]])),
            (NEW, edits(&[[0, 5, 0]])),
            (OLD, edits(&[[0, 1, 0]])),
            (OLD, None),
        ];
        let taken = space.take_file_edits();
        let taken: Vec<_> = taken
            .iter()
            .map(|edit| (edit.path.as_str(), edit.edits.clone()))
            .collect();
        assert_eq!(taken, expected);
        assert_eq!(space.take_file_edits(), []);
    }

    #[test]
    fn writes_outside_writable_dirs_are_rejected() {
        let fixture = WorkspaceFixture::new();
        let space = fixture.open();
        for path in [
            "ktx.yaml",
            ".ktx/x",
            "wiki",
            "wiki/../ktx.yaml",
            "/etc/passwd",
            "wiki//x",
            "",
            "semantic-layer/./x",
        ] {
            assert!(
                matches!(space.write(path, b"x"), Err(WriteError::ForbiddenPath(_))),
                "{path}"
            );
        }
    }

    #[test]
    fn links_created_later_are_not_followed() {
        let fixture = WorkspaceFixture::new();
        let outside = tempfile::tempdir().unwrap();
        let space = fixture.open();
        fs::remove_dir_all(space.project.join("wiki")).unwrap();
        symlink(outside.path(), space.project.join("wiki")).unwrap();
        assert!(space.write("wiki/global/x.md", b"x").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn unseen_file_is_not_overwritten() {
        let fixture = WorkspaceFixture::new();
        let space = fixture.open();
        space.peek(OLD).unwrap();
        assert!(matches!(
            space.write(OLD, b"unseen"),
            Err(WriteError::ChangedSinceRead(_))
        ));
        space.read(OLD).unwrap();
        write(&space.project, OLD, "theirs");
        assert!(matches!(
            space.write(OLD, b"mine"),
            Err(WriteError::ChangedSinceRead(_))
        ));
        space.read(OLD).unwrap();
        space.write(OLD, b"merged").unwrap();
        assert_eq!(space.read(OLD).unwrap().unwrap(), b"merged");
    }
}
