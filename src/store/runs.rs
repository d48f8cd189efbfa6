//! Run directories: where a run's tape lives, which run a few letters mean, and whether a run is still alive.
//!
//! Owns names, permissions and locks below `.ktx/ingestdeck`. It must not know what a tape says beyond its end.

use std::{
    fs::{DirBuilder, File, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileExt as _},
    path::{Path, PathBuf},
};

use super::{
    db::{Db, DbError},
    tape_file::TapeWriter,
};
use crate::{
    run::entry_source::RecordError,
    scoped_dir::{self, FileKind, STATE_DIR, ScopedDir},
    tape::{EntryBody, Header, Note, RunId, TapeEntry},
};

/// Name of a tape in the directory of its run.
const TAPE_FILE: &str = "tape.jsonl";
/// Name of the index.
const DATABASE_FILE: &str = "db.sqlite";
/// Most bytes of a lock file that are read.
const MAX_LOCK_BYTES: u64 = 20;

/// Bytes at the end of a tape among which its last note is looked for.
const TAIL_BYTES: u64 = 256 << 10;

/// Candidates that an error names at most.
const MAX_CANDIDATES: usize = 6;

/// The runs of one project.
#[derive(Clone, Debug)]
pub struct RunStore {
    /// The project, without symbolic links in its path where it exists.
    project: PathBuf,
    root: PathBuf,
}

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRun {
    /// Identity.
    pub id: RunId,
    /// Its tape.
    pub tape: PathBuf,
}

/// Whether a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// Its process lives.
    Running,
    /// It ended in order.
    Finished,
    /// Its tape breaks off and nobody writes to it any more.
    Interrupted,
}

impl RunStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A run that begins: its tape, and the lock that says that it lives. Dropping it gives the lock back.
#[derive(Debug)]
pub struct NewRun {
    /// Identity.
    pub id: RunId,
    /// The run's directory.
    pub directory: PathBuf,
    /// The one writer of its tape.
    pub tape: TapeWriter,
    lock: RunLock,
}

impl NewRun {
    /// Takes the writer and the lock apart, for an owner that shares the writer. Keep the lock as long as the run.
    pub fn into_parts(self) -> (TapeWriter, RunLock) {
        (self.tape, self.lock)
    }
}

/// Says that a run lives, for as long as this value does.
#[derive(Debug)]
pub struct RunLock {
    locks: ScopedDir,
    name: String,
    _file: File,
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // A lock file that remains is harmless: the kernel's lock on it is gone.
        let _ = self.locks.remove(&self.name);
    }
}

/// Runs cannot be found, made or told apart.
#[derive(Debug, thiserror::Error)]
pub enum RunStoreError {
    /// No run has that name.
    #[error("no run matches {0:?}; `ingestdeck runs list` shows the recorded runs")]
    NotFound(String),
    /// `latest`, but nothing was ever run.
    #[error("no run is recorded in this project yet; start one with `ingestdeck run`")]
    Empty,
    /// Several runs have that name.
    #[error("{given:?} matches {count} runs: {candidates}; give more of the id")]
    Ambiguous {
        /// As the user wrote it.
        given: String,
        /// How many.
        count: usize,
        /// Some of them.
        candidates: String,
    },
    /// The system says no.
    #[error("cannot use {path}: {cause}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// The tape cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl RunStore {
    /// The runs of the project in `directory`.
    pub fn new(directory: &Path) -> Self {
        let project = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
        Self { root: project.join(STATE_DIR), project }
    }

    /// The directory that everything is in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the index is.
    pub fn database(&self) -> PathBuf {
        self.root.join(DATABASE_FILE)
    }

    /// Opens or creates the index. One that is damaged is replaced by an empty one; the caller sees that runs are missing
    /// from it and adds them.
    ///
    /// # Errors
    /// When its place is a link, a pipe or a directory, when it belongs to another program, or SQLite refuses.
    pub fn open_database(&self) -> Result<Db, DbError> {
        self.prepare_database().map_err(|cause| DbError::failed(&self.database(), &cause))?;
        Db::open(&self.database())
    }

    /// Creates the index anew, whatever was there.
    ///
    /// # Errors
    /// As [`open_database`](Self::open_database).
    pub fn recreate_database(&self) -> Result<Db, DbError> {
        if let Err(error @ DbError::Foreign { .. }) = self.open_database() {
            return Err(error);
        }
        let remove = || {
            let state = scoped_dir::state_dir(&self.project)?;
            ["", "-wal", "-shm"]
                .iter()
                .try_for_each(|suffix| state.remove(&format!("{DATABASE_FILE}{suffix}")).map(drop))
        };
        remove().map_err(|cause| DbError::failed(&self.database(), &cause))?;
        self.open_database()
    }

    /// SQLite opens its files by their paths: makes sure that those are regular files of this project.
    fn prepare_database(&self) -> io::Result<()> {
        let state = scoped_dir::state_dir(&self.project)?;
        for suffix in ["-wal", "-shm"] {
            match state.kind(&format!("{DATABASE_FILE}{suffix}"))? {
                None | Some(FileKind::File) => {}
                Some(_) => {
                    let why = format!("`{DATABASE_FILE}{suffix}` is not a regular file; remove it");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                }
            }
        }
        state.open_or_create(DATABASE_FILE).map(drop)
    }

    /// The directory that everything is in, if it exists.
    fn open_state_dir(&self) -> io::Result<Option<ScopedDir>> {
        match ScopedDir::open(&self.project) {
            Ok(project) => project.dir_if_exists(STATE_DIR),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`state`](Self::open_state_dir), with the subdirectory `name`.
    pub(super) fn state_subdir(&self, name: &str) -> io::Result<Option<ScopedDir>> {
        self.open_state_dir()?.map_or(Ok(None), |state| state.dir_if_exists(name))
    }

    /// Starts a run: a new id, its directory (0700), its lock, its tape (0600) with the header that `header` makes.
    pub fn create(&self, header: impl FnOnce(RunId) -> Header) -> Result<NewRun, RunStoreError> {
        self.create_after(None, header)
    }

    /// As [`create`](Self::create), with an id that is later than `newest`, even if the clock was set back since.
    pub fn create_after(
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
        // The user's own state directory may not exist yet; a project does.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.project).map_err(failed(&self.project))?;
        let state = scoped_dir::state_dir(&self.project).map_err(failed(&self.root))?;
        let run = state.dir(&format!("runs/{id}"), Some(scoped_dir::PRIVATE_MODE)).map_err(failed(&directory))?;
        let lock = self.lock(&state, id)?;
        let path = directory.join(TAPE_FILE);
        let file = run.create_new(TAPE_FILE).map_err(failed(&path))?;
        let tape = TapeWriter::start(file, &path, &header(id))?;
        run.sync().map_err(failed(&directory))?;
        Ok(NewRun { id, directory, tape, lock })
    }

    /// Whether [`create`](Self::create) can make the directory of a run, with its error. Changes nothing.
    pub fn check_create(&self) -> Result<(), RunStoreError> {
        let path = self.root.join("runs");
        let checked = ScopedDir::open(&self.project)
            .and_then(|project| project.check_open_or_create(&format!("{STATE_DIR}/runs/new/{TAPE_FILE}")));
        checked.map_err(|cause| RunStoreError::Io { path, cause })
    }

    /// Every recorded run, newest first: the directories named after a run that hold a tape. Links are not runs.
    pub fn list(&self) -> Result<Vec<RecordedRun>, RunStoreError> {
        let path = self.root.join("runs");
        let failed = |cause| RunStoreError::Io { path: path.clone(), cause };
        let Some(runs) = self.state_subdir("runs").map_err(failed)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (name, kind) in runs.entries().map_err(failed)? {
            let Some(name) = name.to_str().filter(|_| kind == FileKind::Directory) else { continue };
            let Some(id) = RunId::parse(name) else { continue };
            if runs.kind(&format!("{name}/{TAPE_FILE}")).map_err(failed)? == Some(FileKind::File) {
                found.push(RecordedRun { id, tape: path.join(name).join(TAPE_FILE) });
            }
        }
        found.sort_by_key(|run| std::cmp::Reverse(run.id));
        Ok(found)
    }

    /// The newest run whose id is not later than `latest_ms` or that `is_ours`. A record that came with the project may have
    /// any id, and one from far in the future must not drag the ids of later runs along.
    ///
    /// # Errors
    /// When the runs cannot be listed.
    pub fn newest(&self, latest_ms: u64, is_ours: impl Fn(RunId) -> bool) -> Result<Option<RunId>, RunStoreError> {
        let mut ids = self.list()?.into_iter().map(|run| run.id);
        Ok(ids.find(|id| id.started_at_ms() <= latest_ms || is_ours(*id)))
    }

    /// The run that `text` means: `latest`, an id, the beginning of one, or of the six digits that screens show.
    pub fn resolve(&self, text: &str) -> Result<RecordedRun, RunStoreError> {
        let mut runs = self.list()?;
        if text == "latest" {
            return if runs.is_empty() { Err(RunStoreError::Empty) } else { Ok(runs.swap_remove(0)) };
        }
        let sought = text.to_ascii_lowercase().replace('-', "");
        let full = |run: &RecordedRun| run.id.0.simple().to_string();
        let mut exact: Vec<&RecordedRun> =
            runs.iter().filter(|run| full(run) == sought || run.id.short() == sought).collect();
        if exact.is_empty() && !sought.is_empty() {
            let begins = |run: &&RecordedRun| full(run).starts_with(&sought) || run.id.short().starts_with(&sought);
            exact = runs.iter().filter(begins).collect();
        }
        match exact.as_slice() {
            [] => Err(RunStoreError::NotFound(text.to_owned())),
            [run] => Ok((*run).clone()),
            several => {
                let named: Vec<String> = several.iter().take(MAX_CANDIDATES).map(|run| run.id.to_string()).collect();
                let rest = if several.len() > MAX_CANDIDATES { ", …" } else { "" };
                let candidates = named.join(", ") + rest;
                Err(RunStoreError::Ambiguous { given: text.to_owned(), count: several.len(), candidates })
            }
        }
    }

    /// Whether `run` is over.
    pub fn status(&self, run: &RecordedRun) -> Result<RunStatus, RunStoreError> {
        if self.is_alive(run.id)? {
            return Ok(RunStatus::Running);
        }
        let ended = self.open_tape(run).and_then(|tape| has_ended(&tape));
        let ended = ended.map_err(|cause| RunStoreError::Io { path: run.tape.clone(), cause })?;
        Ok(if ended { RunStatus::Finished } else { RunStatus::Interrupted })
    }

    fn directory(&self, id: RunId) -> PathBuf {
        self.root.join("runs").join(id.to_string())
    }

    fn lock_path(&self, id: RunId) -> PathBuf {
        self.root.join("locks").join(id.to_string())
    }

    fn lock(&self, state: &ScopedDir, id: RunId) -> Result<RunLock, RunStoreError> {
        let name = id.to_string();
        let failed = |cause| RunStoreError::Io { path: self.lock_path(id), cause };
        let locks = state.dir("locks", Some(scoped_dir::PRIVATE_MODE)).map_err(failed)?;
        let mut file = locks.create_new(&name).map_err(failed)?;
        file.lock().map_err(failed)?;
        // For the message of whoever finds it locked; the lock holds without it.
        let _ = write!(file, "{}", std::process::id());
        Ok(RunLock { locks, name, _file: file })
    }

    fn open_lock(&self, run: RunId) -> io::Result<Option<File>> {
        let Some(locks) = self.state_subdir("locks")? else { return Ok(None) };
        match locks.open_file(&run.to_string()) {
            Ok((file, _)) => Ok(Some(file)),
            // An entry that is not a lock file must not keep a run from being listed or removed.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The tape of `run`, open for reading, without following links.
    ///
    /// # Errors
    /// When it is gone, or not a regular file any more.
    pub fn open_tape(&self, run: &RecordedRun) -> io::Result<File> {
        let runs = self.state_subdir("runs")?.ok_or(io::ErrorKind::NotFound)?;
        Ok(runs.open_file(&format!("{}/{TAPE_FILE}", run.id))?.0)
    }

    /// The process that `run` lives in, if it says so.
    pub fn lock_holder_pid(&self, run: RunId) -> Option<u32> {
        let mut text = String::new();
        self.open_lock(run).ok()??.take(MAX_LOCK_BYTES).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }

    /// True while the process lives that writes the tape of `run`. The lock dies with its process, however that ends.
    /// Asking takes a shared lock, so that two who ask do not take each other for the owner.
    pub fn is_alive(&self, id: RunId) -> Result<bool, RunStoreError> {
        let failed = |cause| RunStoreError::Io { path: self.lock_path(id), cause };
        let Some(file) = self.open_lock(id).map_err(failed)? else { return Ok(false) };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }
}

/// True if a `run_ended` note stands among the last entries, and nothing began after it: a run that has ended may be
/// opened again by a retry.
fn has_ended(file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(length - start).unwrap_or(0)];
    file.read_exact_at(&mut tail, start)?;
    let mut lines = tail.rsplit(|byte| *byte == b'\n');
    Ok(lines.find_map(run_end_after).unwrap_or(false))
}

/// Whether the run is over after this line of its tape. `None` for lines that do not tell.
fn run_end_after(line: &[u8]) -> Option<bool> {
    let Ok(TapeEntry { body: EntryBody::Note(note), .. }) = TapeEntry::parse(line) else { return None };
    match Note::parse(note) {
        Note::RunEnded(_) => Some(true),
        Note::RetryRequested { .. } | Note::AttemptStarted(_) => Some(false),
        _ => None,
    }
}
