//! Brings the index up to date with the tapes, reading only tapes that have changed.

use std::{collections::HashMap, fs::File, path::Path};

use super::{
    db::{Db, DbError, IndexedRun},
    index_rows::RunIndexRows,
    runs::{RunStore, RunStoreError},
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    run::EntrySource,
    tape::RunId,
};

/// Maximum runs per commit, and number of calls after which a commit ends earlier.
const COMMIT_LIMITS: (usize, usize) = (16, 20_000);

/// Opens a tape as a source. Reading tapes is not the responsibility of this
/// layer.
pub(crate) type OpenTape<'a> = dyn Fn(&Path, File) -> Result<Box<dyn EntrySource>, Problem> + 'a;

/// Result of a refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefreshReport {
    /// Number of runs indexed again.
    pub indexed: usize,
    /// Runs that cannot be read, each with the error message.
    pub unreadable: Vec<(RunId, String)>,
}

/// Why a refresh failed.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error(transparent)]
    Runs(#[from] RunStoreError),
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Diagnostic for RefreshError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Runs(error) => error.help(),
            Self::Db(error) => error.help(),
        }
    }
}

impl RunStore {
    /// Indexes all runs whose tape changed its length, and removes runs that no longer exist. A run with an unreadable
    /// tape is skipped.
    pub fn refresh(&self, db: &mut Db, open: &OpenTape<'_>) -> Result<RefreshReport, RefreshError> {
        let found = self.list()?;
        let known: HashMap<RunId, IndexedRun> = db
            .list()?
            .into_iter()
            .map(|listed| (listed.id, listed))
            .collect();
        let ids: Vec<RunId> = found.iter().map(|run| run.id).collect();
        if known.keys().any(|id| !ids.contains(id)) {
            db.retain(&ids)?;
        }
        let mut done = RefreshReport::default();
        let (mut rows, mut calls): (Vec<RunIndexRows>, usize) = (Vec::new(), 0);
        for run in &found {
            // If it cannot be determined, the tape decides alone.
            let is_alive = || self.is_alive(run.id).unwrap_or(false);
            let tape = self.open_tape(run);
            // Measured before reading: entries written meanwhile are found by the next refresh.
            let length = tape
                .as_ref()
                .ok()
                .and_then(|tape| tape.metadata().ok())
                .map_or(0, |metadata| metadata.len());
            let known = known.get(&run.id);
            if known
                .is_some_and(|known| known.tape_bytes == length && (!known.is_active || is_alive()))
            {
                continue;
            }
            let is_active = is_alive();
            let gathered = |tape| {
                RunIndexRows::from_source(tape, length, is_active)
                    .map_err(|error| error.to_string())
            };
            match tape
                .map_err(|error| error.to_string())
                .and_then(|tape| open(&run.tape, tape).map_err(|problem| problem.to_line()))
                .and_then(gathered)
            {
                Ok(of_run) => {
                    calls += of_run.calls.len();
                    rows.push(of_run);
                }
                Err(cause) => done.unreadable.push((run.id, cause)),
            }
            if rows.len() >= COMMIT_LIMITS.0 || calls >= COMMIT_LIMITS.1 {
                done.indexed += rows.len();
                db.put(&std::mem::take(&mut rows))?;
                calls = 0;
            }
        }
        done.indexed += rows.len();
        db.put(&rows)?;
        Ok(done)
    }
}
