//! Which records may go, and their removal: the newest stay, and so does every run on which rests what is known of the
//! sources. A run goes wholly or not at all. It must not know why somebody wants room.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use super::{
    db::{Db, DbError},
    runs::{RecordedRun, RunStatus, RunStore, RunStoreError},
};
use crate::{
    scoped_dir::{FileKind, PRIVATE_MODE, ScopedDir},
    tape::RunId,
};

/// Beginning of the name of a record that is being removed.
const REMOVAL_PREFIX: &str = ".leaving-";
/// Name of the directory of a run in which its attempts write, in a project without a repository.
pub const WORK_DIR: &str = "work";
/// Directory levels below a run that count towards its size.
const MAX_DEPTH: usize = 8;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RetentionPolicy {
    /// So many of the newest stay.
    pub keep_newest: usize,
    /// Runs that began at this time or later stay, in milliseconds since 1970; `None` if their age does not matter.
    pub older_than_ms: Option<u64>,
}

/// Why a run stays, or that it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionDecision {
    /// It may go.
    Delete,
    /// It is one of the newest, or young enough.
    KeepRecent,
    /// Its process lives.
    KeepRunning,
    /// What is known of a file, a unit or a page rests on it.
    KeepNeeded,
    /// The index knows nothing of it: its tape cannot be read.
    KeepUnreadable,
}

impl RunStore {
    /// What becomes of every run, newest first. The index must be up to date.
    pub fn plan_retention(
        &self,
        db: &Db,
        wanted: RetentionPolicy,
    ) -> Result<Vec<(RecordedRun, RetentionDecision)>, PruneError> {
        let needed = db.required_runs()?;
        let known: BTreeSet<RunId> = db.list()?.iter().map(|listed| listed.id).collect();
        let fate = |(index, run): (usize, RecordedRun)| {
            let is_young =
                wanted.older_than_ms.is_some_and(|before| started_ms(run.id).is_none_or(|began| began >= before));
            let fate = if index < wanted.keep_newest || is_young {
                RetentionDecision::KeepRecent
            } else if self.status(&run)? == RunStatus::Running {
                RetentionDecision::KeepRunning
            } else if !known.contains(&run.id) {
                RetentionDecision::KeepUnreadable
            } else if needed.contains(&run.id) {
                RetentionDecision::KeepNeeded
            } else {
                RetentionDecision::Delete
            };
            Ok((run, fate))
        };
        self.list()?.into_iter().enumerate().map(fate).collect()
    }

    /// Removes the record of `run`, at once and for ever.
    pub fn remove(&self, run: &RecordedRun) -> Result<(), PruneError> {
        let leaving = format!("{REMOVAL_PREFIX}{}", run.id);
        let remove = || {
            let runs = self.state_subdir("runs")?.ok_or(io::ErrorKind::NotFound)?;
            // From here on no listing finds a part of it.
            runs.rename(&run.id.to_string(), &runs, &leaving, PRIVATE_MODE)?;
            runs.remove_dir_all(&leaving).map(drop)
        };
        remove().map_err(|cause| io_error(&self.root().join("runs").join(&leaving), cause))
    }

    /// Removes the directory in which the attempts of `run` wrote, unless its process lives. True if there was one that
    /// held something.
    pub fn remove_work_dir(&self, run: &RecordedRun) -> Result<bool, PruneError> {
        let remove = || {
            let Some(runs) = self.state_subdir("runs")? else { return Ok(false) };
            let Some(dir) = runs.dir_if_exists(&run.id.to_string())? else { return Ok(false) };
            let Some(work) = dir.dir_if_exists(WORK_DIR)? else { return Ok(false) };
            let is_empty = work.entries()?.is_empty();
            dir.remove_dir_all(WORK_DIR).map(|_| !is_empty)
        };
        if self.is_alive(run.id)? {
            return Ok(false);
        }
        remove().map_err(|cause| io_error(&self.root().join("runs").join(run.id.to_string()).join(WORK_DIR), cause))
    }

    /// Bytes that the record of `run` takes.
    pub fn size(&self, run: &RecordedRun) -> u64 {
        let dir = self.state_subdir("runs").ok().flatten().and_then(|runs| runs.dir(&run.id.to_string(), None).ok());
        dir.map_or(0, |dir| dir_size(&dir, MAX_DEPTH))
    }

    /// Ends removals that were cut off.
    pub fn finish_removals(&self) -> Result<(), PruneError> {
        let place = self.root().join("runs");
        let failed = |cause| io_error(&place, cause);
        let Some(runs) = self.state_subdir("runs").map_err(failed)? else { return Ok(()) };
        for (name, _) in runs.entries().map_err(failed)? {
            let is_ours = |name: &&str| name.strip_prefix(REMOVAL_PREFIX).is_some_and(|id| RunId::parse(id).is_some());
            if let Some(name) = name.to_str().filter(is_ours) {
                runs.remove_dir_all(name).map_err(|cause| io_error(&place.join(name), cause))?;
            }
        }
        Ok(())
    }
}

/// Records cannot be judged or removed.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The runs cannot be listed.
    #[error(transparent)]
    Runs(#[from] RunStoreError),
    /// The index cannot be asked.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The system says no.
    #[error("cannot remove {path}: {cause}; mend its permissions, then prune again")]
    Io {
        /// What should go.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
}

fn io_error(path: &Path, cause: io::Error) -> PruneError {
    PruneError::Io { path: path.to_owned(), cause }
}

/// When a run began, in milliseconds since 1970: its id says it.
fn started_ms(run: RunId) -> Option<u64> {
    let (seconds, nanos) = run.0.get_timestamp()?.to_unix();
    Some(seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000)))
}

/// Bytes of the regular files below `dir`, at most `depth` directories deep.
fn dir_size(dir: &ScopedDir, depth: usize) -> u64 {
    let entries = dir.entries().unwrap_or_default();
    let sizes = entries.iter().filter_map(|(name, kind)| {
        let name = name.to_str()?;
        match kind {
            FileKind::File => dir.open_entry(name).ok().map(|(_, size)| size),
            FileKind::Directory if depth > 0 => dir.dir(name, None).ok().map(|inner| dir_size(&inner, depth - 1)),
            FileKind::Directory | FileKind::Symlink | FileKind::Socket | FileKind::Special => None,
        }
    });
    sizes.sum()
}
