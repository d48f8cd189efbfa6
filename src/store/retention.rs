//! Which records may go, and their removal: the newest stay, and so does every run on which rests what is known of the
//! sources. A run goes wholly or not at all. It must not know why somebody wants room.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use super::{
    db::{Db, DbError},
    runs::{Found, Runs, RunsError, Standing},
};
use crate::{
    scoped_dir::{FileKind, PRIVATE, ScopedDir},
    tape::RunId,
};

/// Beginning of the name of a record that is being removed.
const LEAVING: &str = ".leaving-";
/// Name of the directory of a run in which its attempts write, in a project without a repository.
pub const WORK: &str = "work";
/// Directory levels below a run that count towards its size.
const DEEPEST: usize = 8;

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
        let leaving = format!("{LEAVING}{}", run.id);
        let remove = || {
            let runs = self.state_subdir("runs")?.ok_or(io::ErrorKind::NotFound)?;
            // From here on no listing finds a part of it.
            runs.rename(&run.id.to_string(), &runs, &leaving, PRIVATE)?;
            runs.remove_dir_all(&leaving).map(drop)
        };
        remove().map_err(|cause| at(&self.root().join("runs").join(&leaving), cause))
    }

    /// Removes the directory in which the attempts of `run` wrote, unless its process lives. True if there was one that
    /// held something.
    pub fn remove_work(&self, run: &Found) -> Result<bool, PruneError> {
        let remove = || {
            let Some(runs) = self.state_subdir("runs")? else { return Ok(false) };
            let Some(dir) = runs.dir_if_there(&run.id.to_string())? else { return Ok(false) };
            let Some(work) = dir.dir_if_there(WORK)? else { return Ok(false) };
            let is_empty = work.entries()?.is_empty();
            dir.remove_dir_all(WORK).map(|_| !is_empty)
        };
        if self.is_alive(run.id)? {
            return Ok(false);
        }
        remove().map_err(|cause| at(&self.root().join("runs").join(run.id.to_string()).join(WORK), cause))
    }

    /// Bytes that the record of `run` takes.
    pub fn size(&self, run: &Found) -> u64 {
        let dir = self.state_subdir("runs").ok().flatten().and_then(|runs| runs.dir(&run.id.to_string(), None).ok());
        dir.map_or(0, |dir| size_of(&dir, DEEPEST))
    }

    /// Ends removals that were cut off.
    pub fn sweep(&self) -> Result<(), PruneError> {
        let place = self.root().join("runs");
        let failed = |cause| at(&place, cause);
        let Some(runs) = self.state_subdir("runs").map_err(failed)? else { return Ok(()) };
        for (name, _) in runs.entries().map_err(failed)? {
            let is_ours = |name: &&str| name.strip_prefix(LEAVING).is_some_and(|id| RunId::parse(id).is_some());
            if let Some(name) = name.to_str().filter(is_ours) {
                runs.remove_dir_all(name).map_err(|cause| at(&place.join(name), cause))?;
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

/// Bytes of the regular files below `dir`, at most `depth` directories deep.
fn size_of(dir: &ScopedDir, depth: usize) -> u64 {
    let entries = dir.entries().unwrap_or_default();
    let sizes = entries.iter().filter_map(|(name, kind)| {
        let name = name.to_str()?;
        match kind {
            FileKind::File => dir.open_here(name).ok().map(|(_, size)| size),
            FileKind::Directory if depth > 0 => dir.dir(name, None).ok().map(|inner| size_of(&inner, depth - 1)),
            FileKind::Directory | FileKind::Link | FileKind::Socket | FileKind::Special => None,
        }
    });
    sizes.sum()
}
