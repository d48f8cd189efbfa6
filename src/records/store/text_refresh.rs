//! Keeps the words of all runs up to date: fills their database, and deletes what is deleted.

use std::{fs::File, io, path::PathBuf};

use super::{
    db::DbError,
    index_refresh::{OpenTape, RefreshError},
    runs::RunStore,
    text_exclusions::TextExclusions,
    text_index::{PutTextError, TextIndex},
    text_record::TextRecord,
};
use ingestdeck_core::{diagnostic::Diagnostic as _, tape::RunId};
use ingestdeck_os::scoped_dir::ScopedDir;

/// Name of the database of the words.
const TEXT_DATABASE_FILE: &str = "text.sqlite";

/// A session file whose content has not been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPlace {
    pub path: PathBuf,
    /// When it was written last, in milliseconds since 1970.
    pub modified_ms: u64,
}

impl SessionPlace {
    /// Opens the file. Links are refused.
    ///
    /// # Errors
    /// If it no longer exists or cannot be read.
    pub fn open(&self) -> io::Result<File> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let folder = self.path.parent().ok_or_else(invalid)?;
        let name = self.path.file_name().and_then(|name| name.to_str());
        let (file, _) = ScopedDir::open(folder)?.open_entry(name.ok_or_else(invalid)?)?;
        Ok(file)
    }
}

/// What the database of the words contains.
#[derive(Clone, Debug)]
pub struct TextScope {
    pub exclusions: TextExclusions,
    /// Maximum size of the database in bytes. The words of the oldest records are deleted first.
    pub max_bytes: u64,
    /// The session files of the project.
    pub sessions: Vec<SessionPlace>,
}

/// Result of a refresh of the words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextRefreshReport {
    /// Number of records whose words were read.
    pub indexed: usize,
    /// Records for which no time was left.
    pub waiting: usize,
    /// Records that cannot be read, each with the error message.
    pub unreadable: Vec<(TextRecord, String)>,
    /// Records that are excluded.
    pub excluded: usize,
}

/// A record that may have words.
struct RecordPlace<'a> {
    record: TextRecord,
    began_ms: u64,
    open: Box<dyn Fn() -> io::Result<File> + 'a>,
}

impl RunStore {
    /// Reads the words of all records that changed their length, newest first, and deletes those of records that no longer
    /// exist or are excluded. `proceed` receives how many of how many were read, and ends the refresh with false.
    pub fn refresh_texts(
        &self,
        texts: &mut TextIndex,
        scope: &TextScope,
        open: &OpenTape<'_>,
        proceed: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<TextRefreshReport, RefreshError> {
        let runs = self.list()?;
        let mut places: Vec<RecordPlace<'_>> = runs
            .iter()
            .map(|run| RecordPlace {
                record: TextRecord::Run(run.id),
                began_ms: run.id.started_at_ms(),
                open: Box::new(|| self.open_tape(run)),
            })
            .collect();
        places.extend(scope.sessions.iter().map(|session| RecordPlace {
            record: TextRecord::Session(session.path.clone()),
            began_ms: session.modified_ms,
            open: Box::new(|| session.open()),
        }));
        let mut done = TextRefreshReport::default();
        let all = places.len();
        places.retain(|place| !scope.exclusions.excludes(&place.record));
        done.excluded = all - places.len();
        places.sort_by_key(|place| std::cmp::Reverse(place.began_ms));
        texts.set_exclusions(&scope.exclusions.unit_patterns())?;
        texts.retain(&places.iter().map(|place| &place.record).collect())?;
        // The limit may have been lowered.
        texts.drop_oldest(scope.max_bytes)?;
        let known = texts.known()?;
        let mut changed = Vec::new();
        for place in places {
            let file = (place.open)().and_then(|file| Ok((file.metadata()?.len(), file)));
            let known = TextIndex::known_record(&known, &place.record);
            let is_known = match (&file, known) {
                // A larger limit may have room for it.
                (Ok((length, _)), Some(known)) if known.dropped_at.is_some() => {
                    known.dropped_at >= Some(scope.max_bytes) && known.bytes == *length
                }
                (Ok((length, _)), Some(known)) => known.bytes == *length,
                _ => false,
            };
            if !is_known {
                // Many records are open only one by one.
                let length = file.map(|(length, _)| length);
                changed.push((place, length));
            }
        }
        let all = all - done.excluded;
        let known = all - changed.len();
        let mut is_full = false;
        for (read, (place, length)) in changed.into_iter().enumerate() {
            if !proceed(known + read, all) {
                done.waiting = all - known - read;
                break;
            }
            let stored = match (length, is_full) {
                (Err(error), _) => Err(PutTextError::Source(error.to_string())),
                (Ok(length), true) => texts
                    .put_dropped(&place.record, (place.began_ms, length), scope.max_bytes)
                    .map_err(PutTextError::Db),
                (Ok(length), false) => self.put_texts(texts, scope, open, &place, length),
            };
            match stored {
                Ok(()) if is_full => {}
                Ok(()) => {
                    done.indexed += 1;
                    texts.drop_oldest(scope.max_bytes)?;
                    let known = texts.known()?;
                    // All that follow are older.
                    is_full = TextIndex::known_record(&known, &place.record)
                        .is_some_and(|known| known.dropped_at.is_some());
                }
                // Another process reads the same records.
                Err(PutTextError::Db(DbError::Busy(_))) => done.waiting += 1,
                Err(PutTextError::Db(error)) => return Err(error.into()),
                Err(PutTextError::Source(cause)) => done.unreadable.push((place.record, cause)),
            }
        }
        Ok(done)
    }

    fn put_texts(
        &self,
        texts: &mut TextIndex,
        scope: &TextScope,
        open: &OpenTape<'_>,
        place: &RecordPlace<'_>,
        length: u64,
    ) -> Result<(), PutTextError> {
        let file = (place.open)().map_err(|error| PutTextError::Source(error.to_string()))?;
        let path = match &place.record {
            TextRecord::Run(id) => self.recorded_run(*id).tape,
            TextRecord::Session(path) => path.clone(),
        };
        let mut source =
            open(&path, file).map_err(|problem| PutTextError::Source(problem.to_line()))?;
        texts.put(
            &place.record,
            (place.began_ms, length),
            &scope.exclusions,
            source.as_mut(),
        )
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
            Some(_) => self.open_text_index()?.remove(&TextRecord::Run(run)),
        }
    }
}
