//! Brings the index up to date with the tapes, reading only tapes that have changed.

use std::{fs, path::Path};

use super::{
    db::{Db, DbError},
    rows::RunRows,
    runs::{Found, Runs, RunsError},
};
use crate::{run::Source, tape::RunId};

/// Runs that are written in one commit.
const RUNS_A_COMMIT: usize = 16;

/// Opens a tape as a source, or says in a sentence why it cannot. Reading tapes is not this layer's business.
pub type OpenTape<'a> = dyn Fn(&Path) -> Result<Box<dyn Source>, String> + 'a;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Runs whose rows were made again.
    pub indexed: usize,
    /// Runs that cannot be read, each with its sentence.
    pub unreadable: Vec<(RunId, String)>,
}

/// The index could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// The runs cannot be listed.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// The index cannot be written.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Runs {
    /// Indexes every run whose tape is longer than it was, and forgets runs that are gone. One bad tape does not keep the others out.
    pub fn refresh(&self, db: &mut Db, open: &OpenTape<'_>) -> Result<Refreshed, RefreshError> {
        let found = self.list()?;
        let known: Vec<(RunId, u64)> = db.list()?.iter().map(|listed| (listed.id, listed.tape_bytes)).collect();
        let ids: Vec<RunId> = found.iter().map(|run| run.id).collect();
        if known.iter().any(|(id, _)| !ids.contains(id)) {
            db.retain(&ids)?;
        }
        let is_stale = |run: &&Found| {
            let length = fs::metadata(&run.tape).map_or(0, |metadata| metadata.len());
            !known.contains(&(run.id, length))
        };
        let stale: Vec<&Found> = found.iter().filter(is_stale).collect();
        let mut done = Refreshed::default();
        for group in stale.chunks(RUNS_A_COMMIT) {
            let mut rows = Vec::with_capacity(group.len());
            for run in group {
                match open(&run.tape).and_then(|tape| RunRows::gather(tape).map_err(|error| error.to_string())) {
                    Ok(of_run) => rows.push(of_run),
                    Err(cause) => done.unreadable.push((run.id, cause)),
                }
            }
            db.put(&rows)?;
            done.indexed += rows.len();
        }
        Ok(done)
    }
}
