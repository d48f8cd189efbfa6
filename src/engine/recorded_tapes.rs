//! Opens the tapes of recorded runs, and keeps the index over them up to date. Must not interpret entries.

use std::{fs::File, path::Path};

use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    run::{EntrySource, EntrySourceError, PollStatus, RunState, Timeline},
};
use ingestdeck_records::{
    replay::{FileSource, OpenError, file::FollowHandle},
    store::{
        Db, RecordedRun, RefreshReport, RunStore,
        index_refresh::RefreshError,
        text_index::TextIndex,
        text_refresh::{TextRefreshReport, TextScope},
    },
};

/// Bytes of a tape that are folded at a time.
const SLICE: usize = 4 << 20;

/// Why the tape of a recorded run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenTapeError {
    /// The file cannot be opened.
    #[error("cannot read {path}: {cause}")]
    Io { path: String, cause: std::io::Error },
    /// Its content cannot be read as a tape.
    #[error(transparent)]
    Content(#[from] OpenError),
    #[error(transparent)]
    Source(#[from] EntrySourceError),
}

impl Diagnostic for OpenTapeError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Content(error) => error.help(),
            Self::Io { .. } | Self::Source(_) => None,
        }
    }
}

/// Opens the tape of `found` without following links, even if its path changes meanwhile.
///
/// # Errors
/// If the tape cannot be opened.
pub fn open_file(runs: &RunStore, found: &RecordedRun) -> Result<File, OpenTapeError> {
    runs.open_tape(found).map_err(|cause| OpenTapeError::Io {
        path: found.tape.display().to_string(),
        cause,
    })
}

/// The current record of `found`, opened without following links.
///
/// # Errors
/// If the tape cannot be opened or read.
pub fn open_source(runs: &RunStore, found: &RecordedRun) -> Result<FileSource, OpenTapeError> {
    Ok(FileSource::from_file(&found.tape, open_file(runs, found)?)?)
}

/// The tape of a run that is still being written, and the handle that ends it.
///
/// # Errors
/// If the tape cannot be opened or read.
pub fn follow(
    runs: &RunStore,
    found: &RecordedRun,
) -> Result<(FileSource, FollowHandle), OpenTapeError> {
    Ok(FileSource::follow_file(
        &found.tape,
        open_file(runs, found)?,
    )?)
}

/// The recorded state of a run.
///
/// # Errors
/// If the tape cannot be opened or read.
pub fn fold(runs: &RunStore, found: &RecordedRun) -> Result<RunState, OpenTapeError> {
    let source = open_source(runs, found)?.with_shortened_lines();
    let mut timeline = Timeline::new_forward_only(Box::new(source));
    while timeline.advance(SLICE, &mut |_| {})? == PollStatus::More {}
    Ok(timeline.view().state.clone())
}

/// Updates the index. A failure is only logged, because the index can be rebuilt at any time.
pub fn try_update_index(runs: &RunStore) {
    if let Err(error) = open_updated_index(runs) {
        tracing::warn!(%error, "the index is out of date; `ingestdeck runs reindex` rebuilds it");
    }
}

/// Opens the updated index, and returns one sentence per unreadable run.
///
/// # Errors
/// If the index cannot be used.
pub fn open_updated_index(runs: &RunStore) -> Result<(Db, Vec<String>), RefreshError> {
    let mut db = runs.open_database()?;
    let left_out = unreadable_messages(&refresh(runs, &mut db)?);
    Ok((db, left_out))
}

/// Indexes the runs whose tapes changed.
///
/// # Errors
/// If the index cannot be used.
pub fn refresh(runs: &RunStore, db: &mut Db) -> Result<RefreshReport, RefreshError> {
    runs.refresh(db, &open_tape)
}

/// Reads the words of the records that changed. `proceed` receives how many of how many were read, and ends it with false.
///
/// # Errors
/// If the index of words cannot be used.
pub fn refresh_texts(
    runs: &RunStore,
    texts: &mut TextIndex,
    scope: &TextScope,
    proceed: &mut dyn FnMut(usize, usize) -> bool,
) -> Result<TextRefreshReport, RefreshError> {
    let open = |path: &Path, file: File| {
        FileSource::from_file(path, file)
            .map(|source| Box::new(source) as Box<dyn EntrySource>)
            .map_err(|error| Problem::from_error(&error))
    };
    runs.refresh_texts(texts, scope, &open, proceed)
}

/// One sentence per unreadable run.
pub fn unreadable_messages(refreshed: &RefreshReport) -> Vec<String> {
    refreshed
        .unreadable
        .iter()
        .map(|(run, cause)| format!("run {} is left out: {cause}", run.short()))
        .collect()
}

fn open_tape(path: &Path, file: File) -> Result<Box<dyn EntrySource>, Problem> {
    FileSource::from_file(path, file)
        .map(|source| Box::new(source.with_shortened_lines()) as Box<dyn EntrySource>)
        .map_err(|error| Problem::from_error(&error))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use ingestdeck_core::tape::RunId;

    #[test]
    fn tape_replaced_by_a_link_is_refused() {
        let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tape = include_bytes!("../../tests/fixtures/tapes/demo.jsonl");
        let id = RunId(uuid::Uuid::from_u128(7));
        let dir = project
            .path()
            .join(".ktx/ingestdeck/runs")
            .join(id.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("tape.jsonl"), tape).unwrap();
        fs::write(outside.path().join("tape.jsonl"), tape).unwrap();
        let runs = RunStore::new(project.path());
        let found = runs.resolve("latest").unwrap();
        let is_open = || open_source(&runs, &found).is_ok() && follow(&runs, &found).is_ok();
        let is_refused = || open_source(&runs, &found).is_err() && follow(&runs, &found).is_err();
        assert!(is_open());
        fs::remove_file(dir.join("tape.jsonl")).unwrap();
        symlink(outside.path().join("tape.jsonl"), dir.join("tape.jsonl")).unwrap();
        assert!(is_refused(), "the tape");
        fs::remove_dir_all(&dir).unwrap();
        symlink(outside.path(), &dir).unwrap();
        assert!(is_refused(), "its directory");
    }
}
