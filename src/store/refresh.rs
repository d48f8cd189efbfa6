//! Brings the index up to date with the tapes, reading only tapes that have changed.

use std::{fs::File, path::Path};

use super::{
    db::{Db, DbError},
    rows::RunRows,
    runs::{RunStore, RunStoreError},
};
use crate::{run::EntrySource, tape::RunId};

/// Runs that are written in one commit, and calls after which fewer are.
const COMMIT_LIMITS: (usize, usize) = (16, 20_000);

/// Opens a tape as a source, or says in a sentence why it cannot. Reading tapes is not this layer's business.
pub type OpenTape<'a> = dyn Fn(&Path, File) -> Result<Box<dyn EntrySource>, String> + 'a;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefreshReport {
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
    Runs(#[from] RunStoreError),
    /// The index cannot be written.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl RunStore {
    /// Indexes every run whose tape has another length than it had, and forgets runs that are gone. One bad tape does
    /// not keep the others out.
    pub fn refresh(&self, db: &mut Db, open: &OpenTape<'_>) -> Result<RefreshReport, RefreshError> {
        let found = self.list()?;
        let known: Vec<(RunId, u64)> = db.list()?.iter().map(|listed| (listed.id, listed.tape_bytes)).collect();
        let ids: Vec<RunId> = found.iter().map(|run| run.id).collect();
        if known.iter().any(|(id, _)| !ids.contains(id)) {
            db.retain(&ids)?;
        }
        let mut done = RefreshReport::default();
        let (mut rows, mut calls): (Vec<RunRows>, usize) = (Vec::new(), 0);
        for run in &found {
            let tape = self.open_tape(run);
            // Measured before it is read: what is written meanwhile is found the next time.
            let length = tape.as_ref().ok().and_then(|tape| tape.metadata().ok()).map_or(0, |metadata| metadata.len());
            if known.contains(&(run.id, length)) {
                continue;
            }
            let gathered = |tape| RunRows::from_source(tape, length).map_err(|error| error.to_string());
            match tape.map_err(|error| error.to_string()).and_then(|tape| open(&run.tape, tape)).and_then(gathered) {
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
