//! Run directories: where a run's tape lives, which run a few letters mean, and whether a run is still alive.
//!
//! Owns names, permissions and locks below `.ktx/ingestdeck`. It must not know what a tape says beyond its end.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::tape_file::TapeWriter;
use crate::{
    run::source::RecordError,
    tape::{Body, Entry, Header, Note, RunId},
};

/// Bytes at the end of a tape among which its last note is looked for.
const TAIL: u64 = 256 << 10;

/// Candidates that an error names at most.
const MOST_NAMED: usize = 6;

/// The runs of one project.
#[derive(Clone, Debug)]
pub struct Runs {
    root: PathBuf,
}

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Identity.
    pub id: RunId,
    /// Its tape.
    pub tape: PathBuf,
}

/// Whether a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its process lives.
    Running,
    /// It ended in order.
    Finished,
    /// Its tape breaks off and nobody writes to it any more.
    Interrupted,
}

impl Standing {
    /// The word for it.
    pub fn word(self) -> &'static str {
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
    path: PathBuf,
    _file: File,
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // A lock file that stays behind is only litter: nobody holds it any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// Runs cannot be found, made or told apart.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
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

impl Runs {
    /// The runs of the project in `directory`.
    pub fn of_project(directory: &Path) -> Self {
        Self { root: directory.join(".ktx/ingestdeck") }
    }

    /// The directory that everything is in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the index is.
    pub fn database(&self) -> PathBuf {
        self.root.join("db.sqlite")
    }

    /// Starts a run: a new id, its directory (0700), its lock, its tape (0600) with the header that `header` makes.
    pub fn create(&self, header: impl FnOnce(RunId) -> Header) -> Result<NewRun, RunsError> {
        let id = RunId(uuid::Uuid::now_v7());
        let directory = self.directory(id);
        make_private(&self.root)?;
        self.keep_out_of_git()?;
        make_private(&directory)?;
        let lock = self.lock(id)?;
        let tape = TapeWriter::create(&directory.join("tape.jsonl"), &header(id))?;
        Ok(NewRun { id, directory, tape, lock })
    }

    /// Every recorded run, newest first. A directory without a tape is none.
    pub fn list(&self) -> Result<Vec<Found>, RunsError> {
        let folder = self.root.join("runs");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(RunsError::Io { path: folder, cause }),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|cause| RunsError::Io { path: folder.clone(), cause })?;
            let id = entry.file_name().to_str().and_then(RunId::parse);
            let tape = entry.path().join("tape.jsonl");
            if let Some(id) = id.filter(|_| tape.is_file()) {
                found.push(Found { id, tape });
            }
        }
        found.sort_by_key(|run| std::cmp::Reverse(run.id));
        Ok(found)
    }

    /// The run that `text` means: `latest`, an id, the beginning of one, or of the six digits that screens show.
    pub fn resolve(&self, text: &str) -> Result<Found, RunsError> {
        let mut runs = self.list()?;
        if text == "latest" {
            return if runs.is_empty() { Err(RunsError::Empty) } else { Ok(runs.swap_remove(0)) };
        }
        let sought = text.to_ascii_lowercase().replace('-', "");
        let full = |run: &Found| run.id.0.simple().to_string();
        let mut exact: Vec<&Found> =
            runs.iter().filter(|run| full(run) == sought || run.id.short() == sought).collect();
        if exact.is_empty() && !sought.is_empty() {
            let begins = |run: &&Found| full(run).starts_with(&sought) || run.id.short().starts_with(&sought);
            exact = runs.iter().filter(begins).collect();
        }
        match exact.as_slice() {
            [] => Err(RunsError::NotFound(text.to_owned())),
            [run] => Ok((*run).clone()),
            several => {
                let named: Vec<String> = several.iter().take(MOST_NAMED).map(|run| run.id.to_string()).collect();
                let rest = if several.len() > MOST_NAMED { ", …" } else { "" };
                let candidates = named.join(", ") + rest;
                Err(RunsError::Ambiguous { given: text.to_owned(), count: several.len(), candidates })
            }
        }
    }

    /// Whether `run` is over.
    pub fn standing(&self, run: &Found) -> Result<Standing, RunsError> {
        if self.is_alive(run.id)? {
            return Ok(Standing::Running);
        }
        let ended = ends_in_order(&run.tape).map_err(|cause| RunsError::Io { path: run.tape.clone(), cause })?;
        Ok(if ended { Standing::Finished } else { Standing::Interrupted })
    }

    fn directory(&self, id: RunId) -> PathBuf {
        self.root.join("runs").join(id.to_string())
    }

    fn lock_path(&self, id: RunId) -> PathBuf {
        self.root.join("locks").join(id.to_string())
    }

    fn lock(&self, id: RunId) -> Result<RunLock, RunsError> {
        let path = self.lock_path(id);
        make_private(&self.root.join("locks"))?;
        let failed = |cause| RunsError::Io { path: path.clone(), cause };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        // For the message of whoever finds it locked; the lock holds without it.
        let _ = io::Write::write_all(&mut &file, std::process::id().to_string().as_bytes());
        Ok(RunLock { path, _file: file })
    }

    /// The process that `run` lives in, if it says so.
    pub fn holder(&self, run: RunId) -> Option<u32> {
        fs::read_to_string(self.lock_path(run)).ok()?.trim().parse().ok()
    }

    /// True while the process lives that writes the tape of `run`. The lock dies with its process, however that ends.
    /// Asking takes a shared lock, so that two who ask do not take each other for the owner.
    pub fn is_alive(&self, id: RunId) -> Result<bool, RunsError> {
        let path = self.lock_path(id);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(cause) => return Err(RunsError::Io { path, cause }),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(cause)) => Err(RunsError::Io { path, cause }),
        }
    }

    /// Transcripts hold secrets; nobody commits them by accident.
    fn keep_out_of_git(&self) -> Result<(), RunsError> {
        let path = self.root.join(".gitignore");
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => io::Write::write_all(&mut file, b"*\n").map_err(|cause| RunsError::Io { path, cause }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(cause) => Err(RunsError::Io { path, cause }),
        }
    }
}

fn make_private(directory: &Path) -> Result<(), RunsError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|cause| RunsError::Io { path: directory.to_owned(), cause })
}

/// True if a `run_ended` note stands among the last entries, and nothing began after it: a run that has ended may be
/// opened again by a retry.
fn ends_in_order(tape: &Path) -> io::Result<bool> {
    let file = File::open(tape)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(TAIL);
    let mut tail = vec![0; usize::try_from(length - start).unwrap_or(0)];
    file.read_exact_at(&mut tail, start)?;
    let mut lines = tail.rsplit(|byte| *byte == b'\n');
    Ok(lines.find_map(says_ended).unwrap_or(false))
}

/// Whether the run is over after this line of its tape. `None` for lines that do not tell.
fn says_ended(line: &[u8]) -> Option<bool> {
    let Ok(Entry { body: Body::Note(note), .. }) = Entry::parse(line) else { return None };
    match Note::parse(note) {
        Note::RunEnded(_) => Some(true),
        Note::RetryRequested { .. } | Note::AttemptStarted(_) => Some(false),
        _ => None,
    }
}
