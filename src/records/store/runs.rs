//! Run directories: the location of a tape, the resolution of abbreviated run ids, and whether a run is alive.
//!
//! Owns names, permissions and locks below `.ktx/ingestdeck`. It must not know the content of a tape except for its
//! end.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory of the project itself"
)]

use std::{
    fs::{DirBuilder, File, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileExt as _},
    path::{Path, PathBuf},
};

use super::{
    db::{DATABASE_SIDE_FILES, Db, DbError},
    tape_file::TapeWriter,
};
use ingestdeck_core::{
    diagnostic::Diagnostic,
    run::entry_source::RecordError,
    tape::{EntryBody, Header, Note, RunId, TapeEntry},
};
use ingestdeck_os::scoped_dir::{self, FileKind, STATE_DIR, ScopedDir};

/// File name of the tape in the directory of a run.
const TAPE_FILE: &str = "tape.jsonl";
/// File name of the index.
const DATABASE_FILE: &str = "db.sqlite";

/// Maximum bytes read from a lock file.
const MAX_LOCK_BYTES: u64 = 20;

/// Bytes at the end of a tape in which the last note is searched.
const TAIL_BYTES: u64 = 256 << 10;

/// Maximum number of candidates in an error message.
const MAX_CANDIDATES: usize = 6;

/// The runs of one project.
#[derive(Clone, Debug)]
pub struct RunStore {
    /// Project directory; canonical if it exists.
    project: PathBuf,
    root: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRun {
    pub id: RunId,
    /// Path of the tape.
    pub tape: PathBuf,
}

/// Whether a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// Its process is alive.
    Running,
    /// It ended in order.
    Finished,
    /// The tape has no end, and no process writes to it.
    Interrupted,
}

impl RunStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A new run with its tape and its lock. Dropping it releases the lock.
#[derive(Debug)]
pub struct NewRun {
    pub id: RunId,
    /// The only writer of the tape.
    pub tape: TapeWriter,
    lock: RunLock,
}

impl NewRun {
    /// Separates writer and lock, for an owner that shares the writer. Hold the lock until the run ends.
    pub fn into_parts(self) -> (TapeWriter, RunLock) {
        (self.tape, self.lock)
    }
}

/// Marks a run as alive until it is dropped.
#[derive(Debug)]
pub struct RunLock {
    locks: ScopedDir,
    name: String,
    _file: File,
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // A leftover lock file is harmless: the kernel has released the lock.
        let _ = self.locks.remove_unsynced(&self.name);
    }
}

/// Why runs cannot be found or created.
#[derive(Debug, thiserror::Error)]
pub enum RunStoreError {
    /// No run matches the name.
    #[error("no run matches {0:?}")]
    NotFound(String),
    /// `latest` was requested, but there are no runs.
    #[error("no run is recorded in this project yet")]
    Empty,
    /// Several runs match the name.
    #[error("{given:?} matches {count} runs: {candidates}")]
    Ambiguous {
        /// The name as the user wrote it.
        given: String,
        /// Number of matching runs.
        count: usize,
        /// Some of the matching runs.
        candidates: String,
    },
    /// A file system operation failed.
    #[error("cannot use {path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Diagnostic for RunStoreError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NotFound(_) => "list the recorded runs with `ingestdeck runs list`".into(),
            Self::Empty => "start one with `ingestdeck run`".into(),
            Self::Ambiguous { .. } => "give more of the id".into(),
            Self::Record(error) => return error.help(),
            Self::Io { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                "give your user access to it, or use the program as its owner".into()
            }
            Self::Io { cause, .. } => return scoped_dir::remedy(cause).map(str::to_owned),
        })
    }
}

impl RunStore {
    /// Opens the store of the project in `directory`; creates nothing on disk.
    pub fn new(directory: &Path) -> Self {
        let project = directory
            .canonicalize()
            .unwrap_or_else(|_| directory.to_path_buf());
        Self {
            root: project.join(STATE_DIR),
            project,
        }
    }

    /// Directory of the project.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// Root directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Path of the index.
    pub fn database(&self) -> PathBuf {
        self.root.join(DATABASE_FILE)
    }

    /// Opens or creates the index. A damaged index, or one of an earlier version, is replaced by an empty one; the caller
    /// detects the missing runs and indexes them.
    ///
    /// # Errors
    ///
    /// If its path is a symbolic link, a pipe or a directory, if it belongs to another program, or if SQLite fails.
    pub fn open_database(&self) -> Result<Db, DbError> {
        self.prepare_database(DATABASE_FILE)
            .map_err(|cause| DbError::failed(&self.database(), &cause))?;
        Db::open(&self.database())
    }

    /// Deletes the index and creates a new one.
    ///
    /// # Errors
    ///
    /// As for [`open_database`](Self::open_database).
    pub fn recreate_database(&self) -> Result<Db, DbError> {
        if let Err(error @ DbError::Foreign { .. }) = self.open_database() {
            return Err(error);
        }
        let remove = || {
            let state = scoped_dir::state_dir(&self.project)?;
            [""].iter()
                .chain(&DATABASE_SIDE_FILES)
                .try_for_each(|suffix| state.remove(&format!("{DATABASE_FILE}{suffix}")).map(drop))
        };
        remove().map_err(|cause| DbError::failed(&self.database(), &cause))?;
        self.open_database()
    }

    /// SQLite opens its files by path, so check that they are regular files of this project.
    pub(super) fn prepare_database(&self, file: &str) -> io::Result<()> {
        let state = scoped_dir::state_dir(&self.project)?;
        for suffix in DATABASE_SIDE_FILES {
            match state.kind(&format!("{file}{suffix}"))? {
                None | Some(FileKind::File) => {}
                Some(_) => {
                    let why = format!("`{file}{suffix}` is not a regular file; remove it");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                }
            }
        }
        state.open_or_create(file).map(drop)
    }

    /// Root directory of the store, if it exists.
    pub(super) fn open_state_dir(&self) -> io::Result<Option<ScopedDir>> {
        match ScopedDir::open(&self.project) {
            Ok(project) => project.dir_if_exists(STATE_DIR),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Subdirectory `name` of the [root directory](Self::open_state_dir), if it exists.
    pub(super) fn state_subdir(&self, name: &str) -> io::Result<Option<ScopedDir>> {
        self.open_state_dir()?
            .map_or(Ok(None), |state| state.dir_if_exists(name))
    }

    /// Starts a run: creates an id, its directory (0700), its lock and its tape (0600) with the header from `header`.
    /// The id is later than `newest` even if the clock was set back.
    pub fn create(
        &self,
        newest: Option<RunId>,
        header: impl FnOnce(RunId) -> Header,
    ) -> Result<NewRun, RunStoreError> {
        let now = RunId(uuid::Uuid::now_v7());
        let id = newest.map_or(now, |newest| now.later_than(newest));
        let directory = self.directory(id);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |cause| RunStoreError::Io { path, cause }
        };
        // The user's own state directory may not exist yet; a project always exists.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.project)
            .map_err(failed(&self.project))?;
        let state = scoped_dir::state_dir(&self.project).map_err(failed(&self.root))?;
        let run = state
            .dir(&format!("runs/{id}"), Some(scoped_dir::PRIVATE_MODE))
            .map_err(failed(&directory))?;
        let lock = self.lock(&state, id)?;
        let path = directory.join(TAPE_FILE);
        let file = run.create_new(TAPE_FILE).map_err(failed(&path))?;
        let tape = TapeWriter::start(file, &path, &header(id))?;
        run.sync().map_err(failed(&directory))?;
        Ok(NewRun { id, tape, lock })
    }

    /// Checks whether [`create`](Self::create) could create the directory of a run, without changing anything.
    pub fn check_create(&self) -> Result<(), RunStoreError> {
        let path = self.root.join("runs");
        let checked = ScopedDir::open(&self.project).and_then(|project| {
            project.check_open_or_create(&format!("{STATE_DIR}/runs/new/{TAPE_FILE}"))
        });
        checked.map_err(|cause| RunStoreError::Io { path, cause })
    }

    /// All recorded runs, newest first: directories with a run id as name and a tape in them. Symbolic links are
    /// ignored.
    pub fn list(&self) -> Result<Vec<RecordedRun>, RunStoreError> {
        let path = self.root.join("runs");
        let failed = |cause| RunStoreError::Io {
            path: path.clone(),
            cause,
        };
        let Some(runs) = self.state_subdir("runs").map_err(failed)? else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for (name, kind) in runs.entries().map_err(failed)? {
            let Some(name) = name.to_str().filter(|_| kind == FileKind::Directory) else {
                continue;
            };
            let Some(id) = RunId::parse(name) else {
                continue;
            };
            if runs.kind(&format!("{name}/{TAPE_FILE}")).map_err(failed)? == Some(FileKind::File) {
                found.push(RecordedRun {
                    id,
                    tape: path.join(name).join(TAPE_FILE),
                });
            }
        }
        found.sort_by_key(|run| std::cmp::Reverse(run.id));
        Ok(found)
    }

    /// The newest run whose id is not later than `latest_ms` or for which `is_ours` returns true. A tape that came with
    /// the project may have any id, and an id in the far future must not advance the ids of new runs.
    ///
    /// # Errors
    ///
    /// If the runs cannot be listed.
    pub fn newest(
        &self,
        latest_ms: u64,
        is_ours: impl Fn(RunId) -> bool,
    ) -> Result<Option<RunId>, RunStoreError> {
        let mut ids = self.list()?.into_iter().map(|run| run.id);
        Ok(ids.find(|id| id.started_at_ms() <= latest_ms || is_ours(*id)))
    }

    /// Resolves `text` to a run: `latest`, an id, a prefix of an id, or a prefix of the six digits shown on screens.
    pub fn resolve(&self, text: &str) -> Result<RecordedRun, RunStoreError> {
        let mut runs = self.list()?;
        if text == "latest" {
            return if runs.is_empty() {
                Err(RunStoreError::Empty)
            } else {
                Ok(runs.swap_remove(0))
            };
        }
        let sought = text.to_ascii_lowercase().replace('-', "");
        let full = |run: &RecordedRun| run.id.0.simple().to_string();
        let mut exact: Vec<&RecordedRun> = runs
            .iter()
            .filter(|run| full(run) == sought || run.id.short() == sought)
            .collect();
        if exact.is_empty() && !sought.is_empty() {
            let begins = |run: &&RecordedRun| {
                full(run).starts_with(&sought) || run.id.short().starts_with(&sought)
            };
            exact = runs.iter().filter(begins).collect();
        }
        match exact.as_slice() {
            [] => Err(RunStoreError::NotFound(text.to_owned())),
            [run] => Ok((*run).clone()),
            several => {
                let named: Vec<String> = several
                    .iter()
                    .take(MAX_CANDIDATES)
                    .map(|run| run.id.to_string())
                    .collect();
                let rest = if several.len() > MAX_CANDIDATES {
                    ", …"
                } else {
                    ""
                };
                let candidates = named.join(", ") + rest;
                Err(RunStoreError::Ambiguous {
                    given: text.to_owned(),
                    count: several.len(),
                    candidates,
                })
            }
        }
    }

    /// The place of the run `id`, whether or not it is recorded.
    pub fn recorded_run(&self, id: RunId) -> RecordedRun {
        RecordedRun {
            id,
            tape: self.directory(id).join(TAPE_FILE),
        }
    }

    pub fn status(&self, run: &RecordedRun) -> Result<RunStatus, RunStoreError> {
        if self.is_alive(run.id)? {
            return Ok(RunStatus::Running);
        }
        let ended = self.open_tape(run).and_then(|tape| has_ended(&tape));
        let ended = ended.map_err(|cause| RunStoreError::Io {
            path: run.tape.clone(),
            cause,
        })?;
        Ok(if ended {
            RunStatus::Finished
        } else {
            RunStatus::Interrupted
        })
    }

    fn directory(&self, id: RunId) -> PathBuf {
        self.root.join("runs").join(id.to_string())
    }

    fn lock_path(&self, id: RunId) -> PathBuf {
        self.root.join("locks").join(id.to_string())
    }

    fn lock(&self, state: &ScopedDir, id: RunId) -> Result<RunLock, RunStoreError> {
        let name = id.to_string();
        let failed = |cause| RunStoreError::Io {
            path: self.lock_path(id),
            cause,
        };
        let locks = state
            .dir("locks", Some(scoped_dir::PRIVATE_MODE))
            .map_err(failed)?;
        let mut file = locks.create_new(&name).map_err(failed)?;
        file.lock().map_err(failed)?;
        // For the error message of another process that finds the run locked; the lock is valid without it.
        let _ = write!(file, "{}", std::process::id());
        Ok(RunLock {
            locks,
            name,
            _file: file,
        })
    }

    fn open_lock(&self, run: RunId) -> io::Result<Option<File>> {
        let Some(locks) = self.state_subdir("locks")? else {
            return Ok(None);
        };
        match locks.open_file(&run.to_string()) {
            Ok((file, _)) => Ok(Some(file)),
            // An entry that is not a lock file must not prevent listing or removing a run.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::IsADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the tape of `run` for reading, without following symbolic links.
    ///
    /// # Errors
    ///
    /// If it does not exist or is not a regular file.
    pub fn open_tape(&self, run: &RecordedRun) -> io::Result<File> {
        let runs = self.state_subdir("runs")?.ok_or(io::ErrorKind::NotFound)?;
        Ok(runs.open_file(&format!("{}/{TAPE_FILE}", run.id))?.0)
    }

    /// Process id in the lock file of `run`, if there is one.
    pub fn lock_holder_pid(&self, run: RunId) -> Option<u32> {
        let mut text = String::new();
        self.open_lock(run)
            .ok()??
            .take(MAX_LOCK_BYTES)
            .read_to_string(&mut text)
            .ok()?;
        text.trim().parse().ok()
    }

    /// True while the process that writes the tape of `run` is alive. The kernel releases the lock when the process
    /// ends. The check takes a shared lock, so that concurrent checks do not mistake each other for the owner.
    pub fn is_alive(&self, id: RunId) -> Result<bool, RunStoreError> {
        let failed = |cause| RunStoreError::Io {
            path: self.lock_path(id),
            cause,
        };
        let Some(file) = self.open_lock(id).map_err(failed)? else {
            return Ok(false);
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }
}

/// True if the last run on the tape at `path` has ended in order.
///
/// # Errors
/// If the tape cannot be read.
pub fn is_complete(path: &Path) -> io::Result<bool> {
    let (dir, name) = (
        path.parent().unwrap_or(Path::new("/")),
        path.file_name().unwrap_or_default(),
    );
    has_ended(&ScopedDir::open(dir)?.open_file(&name.to_string_lossy())?.0)
}

/// True if the last entries contain a `run_ended` note and nothing started after it, since a retry may reopen a run
/// that has ended.
fn has_ended(file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(length - start).unwrap_or(0)];
    file.read_exact_at(&mut tail, start)?;
    let mut lines = tail.rsplit(|byte| *byte == b'\n');
    Ok(lines.find_map(run_end_after).unwrap_or(false))
}

/// Whether the run has ended after this line of its tape; `None` for irrelevant lines.
fn run_end_after(line: &[u8]) -> Option<bool> {
    let Ok(TapeEntry {
        body: EntryBody::Note(note),
        ..
    }) = TapeEntry::parse(line)
    else {
        return None;
    };
    match Note::parse(note) {
        Note::RunEnded(_) => Some(true),
        Note::RetryRequested { .. } | Note::AttemptStarted(_) => Some(false),
        _ => None,
    }
}
