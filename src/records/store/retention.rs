//! Decides which runs can be deleted, and deletes them: the newest runs are kept, and so are runs needed for
//! incremental planning. A run is deleted completely or not at all. The module must not know why the user wants to free
//! space.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use super::{
    db::{Db, DbError},
    runs::{RecordedRun, RunStatus, RunStore, RunStoreError},
};
use ingestdeck_core::{diagnostic::Diagnostic, run::continuation::runs_continuing, tape::RunId};
use ingestdeck_os::scoped_dir::{FileKind, PRIVATE_MODE, ScopedDir};

/// Prefix of the directory name of a run that is being removed.
const REMOVAL_PREFIX: &str = ".leaving-";
/// Maximum directory depth included in the size of a run.
const MAX_DEPTH: usize = 8;

/// Rules for keeping runs.
#[derive(Clone, Copy, Debug)]
pub struct RetentionPolicy {
    /// Number of newest runs to keep.
    pub keep_newest: usize,
    /// Runs started at or after this time (Unix milliseconds) are kept; `None` to ignore the age.
    pub older_than_ms: Option<u64>,
}

/// Whether a run is deleted or why it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionDecision {
    Delete,
    /// It is one of the newest, or recent enough.
    KeepRecent,
    /// Its process is alive.
    KeepRunning,
    /// Incremental planning needs its records of a file, unit or artifact.
    KeepNeeded,
    /// Its changes wait for a review.
    KeepInReview,
    /// Its tape cannot be read, so the index does not contain it.
    KeepUnreadable,
}

impl RunStore {
    /// Decides for each run, newest first. The index must be up to date. `is_in_review` is true for runs with changes
    /// that wait for a review.
    pub fn plan_retention(
        &self,
        db: &Db,
        wanted: RetentionPolicy,
        is_in_review: impl Fn(RunId) -> bool,
    ) -> Result<Vec<(RecordedRun, RetentionDecision)>, PruneError> {
        let mut needed = db.required_runs()?;
        let continuations = db.continuations()?;
        let oldest_first = continuations
            .iter()
            .rev()
            .map(|known| (known.run, &known.continuation));
        needed.extend(runs_continuing(oldest_first, |run| {
            needed.contains(&run) || is_in_review(run)
        }));
        let known: BTreeSet<RunId> = db.list()?.iter().map(|listed| listed.id).collect();
        let fate = |(index, run): (usize, RecordedRun)| {
            let is_young = wanted
                .older_than_ms
                .is_some_and(|before| started_ms(run.id).is_none_or(|began| began >= before));
            let fate = if index < wanted.keep_newest || is_young {
                RetentionDecision::KeepRecent
            } else if self.status(&run)? == RunStatus::Running {
                RetentionDecision::KeepRunning
            } else if !known.contains(&run.id) {
                RetentionDecision::KeepUnreadable
            } else if is_in_review(run.id) {
                RetentionDecision::KeepInReview
            } else if needed.contains(&run.id) {
                RetentionDecision::KeepNeeded
            } else {
                RetentionDecision::Delete
            };
            Ok((run, fate))
        };
        self.list()?.into_iter().enumerate().map(fate).collect()
    }

    /// Removes the directory of `run` permanently, and its words.
    pub fn remove(&self, run: &RecordedRun) -> Result<(), PruneError> {
        let leaving = format!("{REMOVAL_PREFIX}{}", run.id);
        let remove = || {
            let runs = self.state_subdir("runs")?.ok_or(io::ErrorKind::NotFound)?;
            // After the rename, no listing finds a partially removed run.
            runs.rename(&run.id.to_string(), &runs, &leaving, PRIVATE_MODE)?;
            runs.remove_dir_all(&leaving).map(drop)
        };
        remove().map_err(|cause| io_error(&self.root().join("runs").join(&leaving), cause))?;
        Ok(self.remove_words(run.id)?)
    }

    /// Size in bytes of the directory of `run`.
    pub fn size(&self, run: &RecordedRun) -> u64 {
        let dir = self
            .state_subdir("runs")
            .ok()
            .flatten()
            .and_then(|runs| runs.dir(&run.id.to_string(), None).ok());
        dir.map_or(0, |dir| dir_size(&dir, MAX_DEPTH))
    }

    /// Completes removals that were interrupted.
    pub fn finish_removals(&self) -> Result<(), PruneError> {
        let place = self.root().join("runs");
        let failed = |cause| io_error(&place, cause);
        let Some(runs) = self.state_subdir("runs").map_err(failed)? else {
            return Ok(());
        };
        for (name, _) in runs.entries().map_err(failed)? {
            let is_ours = |name: &&str| {
                name.strip_prefix(REMOVAL_PREFIX)
                    .is_some_and(|id| RunId::parse(id).is_some())
            };
            if let Some(name) = name.to_str().filter(is_ours) {
                runs.remove_dir_all(name)
                    .map_err(|cause| io_error(&place.join(name), cause))?;
            }
        }
        Ok(())
    }
}

/// Why runs cannot be evaluated or removed.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    #[error(transparent)]
    Runs(#[from] RunStoreError),
    #[error(transparent)]
    Db(#[from] DbError),
    /// A file system operation failed.
    #[error("cannot remove {path}: {cause}")]
    Io {
        /// Path to be removed.
        path: PathBuf,
        cause: io::Error,
    },
}

impl Diagnostic for PruneError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Runs(error) => return error.help(),
            Self::Db(error) => return error.help(),
            Self::Io { .. } => "correct its permissions, then prune again".into(),
        })
    }
}

fn io_error(path: &Path, cause: io::Error) -> PruneError {
    PruneError::Io {
        path: path.to_owned(),
        cause,
    }
}

/// Start of a run in Unix milliseconds, taken from its id.
fn started_ms(run: RunId) -> Option<u64> {
    let (seconds, nanos) = run.0.get_timestamp()?.to_unix();
    Some(
        seconds
            .saturating_mul(1000)
            .saturating_add(u64::from(nanos / 1_000_000)),
    )
}

/// Total size of the regular files below `dir`, up to `depth` directory levels.
fn dir_size(dir: &ScopedDir, depth: usize) -> u64 {
    let entries = dir.entries().unwrap_or_default();
    let sizes = entries.iter().filter_map(|(name, kind)| {
        let name = name.to_str()?;
        match kind {
            FileKind::File => dir.open_entry(name).ok().map(|(_, size)| size),
            FileKind::Directory if depth > 0 => dir
                .dir(name, None)
                .ok()
                .map(|inner| dir_size(&inner, depth - 1)),
            FileKind::Directory | FileKind::Symlink | FileKind::Socket | FileKind::Special => None,
        }
    });
    sizes.sum()
}
