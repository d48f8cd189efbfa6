//! Keeps the words of all runs up to date: fills their database, and deletes what is deleted.

use std::{fs::File, time::Instant};

use super::{
    db::DbError,
    index_refresh::{OpenTape, RefreshError},
    runs::RunStore,
    text_index::TextIndex,
};
use ingestdeck_core::{diagnostic::Diagnostic as _, tape::RunId};

/// Name of the database of the words.
const TEXT_DATABASE_FILE: &str = "text.sqlite";

/// Result of a refresh of the words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextRefreshReport {
    /// Number of runs whose words were read.
    pub indexed: usize,
    /// Runs for which no time was left.
    pub waiting: usize,
    /// Runs that cannot be read, each with the error message.
    pub unreadable: Vec<(RunId, String)>,
}

impl RunStore {
    /// Reads the words of all runs whose tape changed its length, newest first, until `deadline`, and deletes those of
    /// runs that no longer exist.
    pub fn refresh_texts(
        &self,
        texts: &mut TextIndex,
        open: &OpenTape<'_>,
        deadline: Instant,
    ) -> Result<TextRefreshReport, RefreshError> {
        let mut found = self.list()?;
        found.sort_by_key(|run| std::cmp::Reverse(run.id.to_string()));
        let ids: Vec<RunId> = found.iter().map(|run| run.id).collect();
        texts.retain(&ids)?;
        let known = texts.tape_lengths()?;
        let mut done = TextRefreshReport::default();
        for run in &found {
            let tape: Result<(File, u64), String> = self
                .open_tape(run)
                .map_err(|error| error.to_string())
                .and_then(|tape| {
                    let metadata = tape.metadata().map_err(|error| error.to_string())?;
                    Ok((tape, metadata.len()))
                });
            let length = tape.as_ref().ok().map(|(_, length)| *length);
            if length.is_some() && known.get(&run.id.to_string()).copied() == length {
                continue;
            }
            if Instant::now() >= deadline {
                done.waiting += 1;
                continue;
            }
            let stored = tape.and_then(|(tape, length)| {
                let mut source = open(&run.tape, tape).map_err(|problem| problem.to_line())?;
                texts.put(run.id, length, source.as_mut())
            });
            match stored {
                Ok(()) => done.indexed += 1,
                Err(cause) => done.unreadable.push((run.id, cause)),
            }
        }
        Ok(done)
    }

    /// Opens or creates the database of the words on the tapes. A damaged one is replaced by an empty one.
    ///
    /// # Errors
    /// As for [`open_database`](Self::open_database).
    pub fn open_text_index(&self) -> Result<TextIndex, DbError> {
        let path = self.database().with_file_name(TEXT_DATABASE_FILE);
        self.prepare_database(TEXT_DATABASE_FILE)
            .map_err(|cause| DbError::failed(&path, &cause))?;
        TextIndex::open(&path)
    }

    /// Deletes the words of `run`, if there is a database of words.
    pub(super) fn remove_words(&self, run: RunId) -> Result<(), DbError> {
        let path = self.database().with_file_name(TEXT_DATABASE_FILE);
        let kind = self
            .open_state_dir()
            .and_then(|state| state.map_or(Ok(None), |state| state.kind(TEXT_DATABASE_FILE)));
        match kind.map_err(|cause| DbError::failed(&path, &cause))? {
            None => Ok(()),
            Some(_) => self.open_text_index()?.remove(run),
        }
    }
}
