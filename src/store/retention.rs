//! Which records may go, and their removal: the newest stay, and so does every run on which rests what is known of the
//! sources. A run goes wholly or not at all. It must not know why somebody wants room.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    db::{Db, DbError},
    runs::{Found, Runs, RunsError, Standing},
};
use crate::tape::RunId;

/// Beginning of the name of a record that is being removed.
const LEAVING: &str = ".leaving-";

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// So many of the newest stay.
    pub keep: usize,
    /// Runs that began at this time or later stay, in milliseconds since 1970; `None` if their age does not matter.
    pub before: Option<u64>,
}

/// Why a run stays, or that it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may go.
    Goes,
    /// It is one of the newest, or young enough.
    New,
    /// Its process lives.
    Lives,
    /// What is known of a file, a unit or a page rests on it.
    Needed,
    /// The index knows nothing of it: its tape cannot be read.
    Unread,
}

impl Runs {
    /// What becomes of every run, newest first. The index must be up to date.
    pub fn fates(&self, db: &Db, wanted: Wanted) -> Result<Vec<(Found, Fate)>, PruneError> {
        let needed = db.needed()?;
        let known: BTreeSet<RunId> = db.list()?.iter().map(|listed| listed.id).collect();
        let fate = |(index, run): (usize, Found)| {
            let is_young = wanted.before.is_some_and(|before| began(run.id).is_none_or(|began| began >= before));
            let fate = if index < wanted.keep || is_young {
                Fate::New
            } else if self.standing(&run)? == Standing::Running {
                Fate::Lives
            } else if !known.contains(&run.id) {
                Fate::Unread
            } else if needed.contains(&run.id) {
                Fate::Needed
            } else {
                Fate::Goes
            };
            Ok((run, fate))
        };
        self.list()?.into_iter().enumerate().map(fate).collect()
    }

    /// Removes the record of `run`, at once and for ever.
    pub fn remove(&self, run: &Found) -> Result<(), PruneError> {
        let place = self.root().join("runs");
        let leaving = place.join(format!("{LEAVING}{}", run.id));
        // From here on nobody finds half of it.
        fs::rename(place.join(run.id.to_string()), &leaving).map_err(|cause| at(&leaving, cause))?;
        fs::remove_dir_all(&leaving).map_err(|cause| at(&leaving, cause))
    }

    /// Ends removals that were cut off.
    pub fn sweep(&self) -> Result<(), PruneError> {
        let place = self.root().join("runs");
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(cause) => return Err(at(&place, cause)),
        };
        for entry in entries {
            let entry = entry.map_err(|cause| at(&place, cause))?;
            if entry.file_name().to_string_lossy().starts_with(LEAVING) {
                fs::remove_dir_all(entry.path()).map_err(|cause| at(&entry.path(), cause))?;
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
    Runs(#[from] RunsError),
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

fn at(path: &Path, cause: io::Error) -> PruneError {
    PruneError::Io { path: path.to_owned(), cause }
}

/// When a run began, in milliseconds since 1970: its id says it.
fn began(run: RunId) -> Option<u64> {
    let (seconds, nanos) = run.0.get_timestamp()?.to_unix();
    Some(seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000)))
}

/// Bytes that the record of a run takes.
pub fn size(run: &Found) -> u64 {
    run.tape.parent().map_or(0, size_below)
}

fn size_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
