//! Builds the index rows for the files that a run read, each with the result of the units that ingest it.

use std::collections::{BTreeMap, HashMap, HashSet};

use ingestdeck_core::{
    run::state::{RunState, UnitState, UnitStatus},
    tape::{
        RunId,
        note::{SourceRead, attempt_output::UnreadFile},
    },
};

use serde::{Deserialize, Serialize};

/// A file that a run read, or found deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIndexRow {
    pub connection: String,
    pub adapter: String,
    /// Path relative to the source.
    pub path: String,
    /// SHA-256; `None` for a deleted file.
    pub sha256: Option<String>,
    /// Size in bytes; `None` for a deleted file.
    pub bytes: Option<u64>,
    pub state: FileState,
    /// Results of the units that ingest it, by KTX's key. Units that did not finish are left out.
    pub units: BTreeMap<String, UnitFileResult>,
    /// The part that units with a saved success left unread, by KTX's key.
    pub unread: BTreeMap<String, UnreadFile>,
    /// Names that it defines; `None` if they are not recorded.
    pub defines: Option<Vec<String>>,
}

/// Result of one unit for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitFileResult {
    /// The unit succeeded with this content, and its result is saved. It rests on files of this run.
    Succeeded(RunId),
    /// The unit failed, spent its turn budget or was stopped.
    Failed,
}

/// Result of a run for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileState {
    /// All units of the file succeeded.
    Processed,
    /// A unit of the file failed, spent its turn budget or was stopped.
    Failed,
    /// Some unit of the file did not finish or was skipped, or the file has no unit.
    Unfinished,
    /// The file was deleted, and the eviction was completed.
    Evicted,
    /// The file was deleted, and the eviction is due.
    Missing,
}

impl FileState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Failed => "failed",
            Self::Unfinished => "open",
            Self::Evicted => "gone",
            Self::Missing => "missing",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = [
            Self::Processed,
            Self::Failed,
            Self::Unfinished,
            Self::Evicted,
            Self::Missing,
        ];
        all.into_iter().find(|state| state.as_str() == text)
    }
}

/// The files of a run. Later rows replace earlier rows of the same file.
pub(crate) fn file_rows(run: RunId, state: &RunState) -> Vec<FileIndexRow> {
    let mut rows = Vec::new();
    for source in &state.inputs.sources {
        let units: Vec<&UnitState> = state
            .units
            .iter()
            .filter(|unit| belongs_to(unit, source))
            .collect();
        let is_reviewed_only = is_reviewed_only(state);
        let mut owners: HashMap<&str, FileState> = HashMap::new();
        let mut results: HashMap<&str, BTreeMap<String, UnitFileResult>> = HashMap::new();
        let mut unread: HashMap<&str, BTreeMap<String, UnreadFile>> = HashMap::new();
        let left: HashSet<&str> = source
            .left_for_later_runs
            .iter()
            .map(String::as_str)
            .collect();
        for unit in units.iter().filter(|unit| !is_reviewed_only(unit)) {
            let Some(planned) = unit.planned.as_deref() else {
                continue;
            };
            for path in &planned.raw_files {
                let owner = owners.entry(path).or_insert(FileState::Processed);
                *owner = worst_of(*owner, unit_file_state(state, unit));
                // A reused result may rest on an earlier content of a file that is left for later runs.
                let is_older = unit.status == UnitStatus::Reused && left.contains(path.as_str());
                let result = match (unit_file_state(state, unit), read_in(run, state, unit)) {
                    (FileState::Processed, Some(read_in)) if !is_older => {
                        UnitFileResult::Succeeded(read_in)
                    }
                    (FileState::Failed, _) => UnitFileResult::Failed,
                    _ => continue,
                };
                let key = planned.ktx_key().as_str();
                results
                    .entry(path)
                    .or_default()
                    .insert(key.to_owned(), result);
                let left = state
                    .work(unit)
                    .and_then(|work| work.unread.iter().find(|file| file.path == *path));
                if let (UnitFileResult::Succeeded(_), Some(file)) = (result, left) {
                    unread
                        .entry(path)
                        .or_default()
                        .insert(key.to_owned(), file.clone());
                }
            }
        }
        // As in KTX, a file without a unit counts as processed if all units of the source succeeded.
        let all = units
            .iter()
            .map(|unit| unit_file_state(state, unit))
            .reduce(worst_of);
        let loose = match all {
            Some(FileState::Processed) if source.is_complete => FileState::Processed,
            _ => FileState::Unfinished,
        };
        let documents = document_states(state, source);
        let mut open = left;
        // A review that sent their units back left these files to the next run before the units worked again.
        let is_again = |unit: &&&UnitState| {
            let was_reused = state
                .prior_unit_summary(&unit.key)
                .is_some_and(|prior| prior.reused.is_some());
            was_reused && unit.status == UnitStatus::Succeeded && !state.is_unsaved(unit)
        };
        for path in units
            .iter()
            .filter(is_again)
            .flat_map(|unit| &unit.planned)
            .flat_map(|planned| &planned.raw_files)
        {
            open.remove(path.as_str());
        }
        // A review of commits only processes the files of units that worked again.
        let is_processed =
            |path: &str| state.publication.committed_run.is_none() || owners.contains_key(path);
        let files = source.files.iter().filter(|file| is_processed(&file.path));
        rows.extend(files.map(|file| {
            FileIndexRow {
                connection: source.connection.clone(),
                adapter: source.adapter.clone(),
                path: file.path.clone(),
                sha256: Some(file.sha256.clone()),
                bytes: Some(file.bytes),
                state: match owners
                    .get(file.path.as_str())
                    .or_else(|| documents.get(file.path.as_str()))
                {
                    Some(owner) if open.contains(file.path.as_str()) => {
                        worst_of(*owner, FileState::Unfinished)
                    }
                    owner => owner.copied().unwrap_or(loose),
                },
                units: results.remove(file.path.as_str()).unwrap_or_default(),
                unread: unread.remove(file.path.as_str()).unwrap_or_default(),
                defines: file.defines.clone(),
            }
        }));
        rows.extend(
            source
                .deleted
                .iter()
                .map(|path| deleted_row(source, path.clone(), FileState::Missing)),
        );
    }
    for evicted in &state.inputs.evicted {
        let (connection, adapter) = (&evicted.connection, &evicted.adapter);
        let source = SourceRead {
            connection: connection.clone(),
            adapter: adapter.clone(),
            ..SourceRead::default()
        };
        rows.extend(
            evicted
                .paths
                .iter()
                .map(|path| deleted_row(&source, path.clone(), FileState::Evicted)),
        );
    }
    rows
}

/// The files of `source` that a run keeps verbatim. A page that a review rejected is decided about. A continued run may
/// have several notes about a file, one of them with a patch that is not saved.
fn document_states<'a>(state: &'a RunState, source: &SourceRead) -> HashMap<&'a str, FileState> {
    let notes = state.inputs.projected.iter();
    let own = notes.filter(|note| note.is_of(Some(&source.connection)) && note.reason.is_none());
    let mut states: HashMap<&str, FileState> = HashMap::new();
    for note in own {
        for document in &note.documents {
            let is_kept = document.refused.is_none() && !note.is_unsaved();
            let found = match is_kept {
                true => FileState::Processed,
                false => FileState::Unfinished,
            };
            let combined = states.entry(&document.path).or_insert(found);
            *combined = worst_of(*combined, found);
        }
    }
    states
}

fn deleted_row(source: &SourceRead, path: String, state: FileState) -> FileIndexRow {
    FileIndexRow {
        connection: source.connection.clone(),
        adapter: source.adapter.clone(),
        path,
        sha256: None,
        bytes: None,
        state,
        units: BTreeMap::new(),
        unread: BTreeMap::new(),
        defines: None,
    }
}

/// The run whose files the saved result of a unit rests on: this one, or the one that a reused result is from. `None`
/// without a saved result.
pub(crate) fn read_in(run: RunId, state: &RunState, unit: &UnitState) -> Option<RunId> {
    match unit.status {
        _ if state.is_unsaved(unit) => None,
        UnitStatus::Succeeded => Some(run),
        // A record from elsewhere may name any run.
        UnitStatus::Reused => state
            .prior_unit_summary(&unit.key)
            .map(|prior| prior.run.min(run)),
        _ => None,
    }
}

/// Whether a unit is in a run only because its commits are reviewed: its files may have changed since it worked.
pub(super) fn is_reviewed_only(state: &RunState) -> impl Fn(&UnitState) -> bool + '_ {
    let has_patch = |unit: &UnitState| {
        let reused = state
            .prior_unit_summary(&unit.key)
            .and_then(|prior| prior.reused.as_ref());
        reused.is_some_and(|reused| reused.pending_patch.is_some())
    };
    let is_review = state.publication.committed_run.is_some();
    move |unit| is_review && unit.status == UnitStatus::Reused && !has_patch(unit)
}

fn belongs_to(unit: &UnitState, source: &SourceRead) -> bool {
    unit.planned.as_ref().is_some_and(|planned| {
        planned.connection == source.connection && planned.adapter == source.adapter
    })
}

fn unit_file_state(state: &RunState, unit: &UnitState) -> FileState {
    match unit.status {
        // The next plan must not rely on a success that was never saved.
        status if !status.is_retryable() && state.is_unsaved(unit) => FileState::Unfinished,
        // The unit must run again, even if a prior run succeeded.
        UnitStatus::Failed | UnitStatus::BudgetExhausted | UnitStatus::Stopped => FileState::Failed,
        UnitStatus::Succeeded | UnitStatus::Reused => FileState::Processed,
        UnitStatus::Queued
        | UnitStatus::NotStarted
        | UnitStatus::Running
        | UnitStatus::Silent
        | UnitStatus::Held
        | UnitStatus::Waiting
        | UnitStatus::Interrupted => FileState::Unfinished,
    }
}

fn worst_of(a: FileState, b: FileState) -> FileState {
    match (a, b) {
        (FileState::Failed, _) | (_, FileState::Failed) => FileState::Failed,
        (FileState::Unfinished, _) | (_, FileState::Unfinished) => FileState::Unfinished,
        _ => FileState::Processed,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ingestdeck_core::tape::note::{FileRead, KeptDocument, ProjectionCause, SourcesProjected};

    /// A note of a run that keeps `a.md` verbatim.
    fn kept(patch: Option<&str>, commit: Option<&str>) -> Arc<SourcesProjected> {
        let document = KeptDocument {
            path: "a.md".into(),
            page: "a".into(),
            refused: None,
        };
        Arc::new(SourcesProjected {
            connection: Some("notes".into()),
            cause: ProjectionCause::Verbatim,
            patch: patch.map(str::to_owned),
            commit: commit.map(str::to_owned),
            documents: vec![document],
            ..SourcesProjected::default()
        })
    }

    #[test]
    fn document_with_an_unsaved_patch_is_not_processed() {
        let state_with = |projected: Vec<Arc<SourcesProjected>>| {
            let mut state = RunState::default();
            state.inputs.sources = vec![Arc::new(SourceRead {
                connection: "notes".into(),
                files: vec![FileRead {
                    path: "a.md".into(),
                    ..FileRead::default()
                }],
                ..SourceRead::default()
            })];
            state.inputs.projected = projected;
            let run = RunId(uuid::Uuid::from_u128(1));
            let rows = file_rows(run, &state);
            rows.iter().map(|row| row.state).collect::<Vec<_>>()
        };
        // The resumed run finds the page of the patch, so its own note has none.
        let resumed = state_with(vec![kept(Some("p.patch"), None), kept(None, None)]);
        assert_eq!(resumed, [FileState::Unfinished]);
        let saved = state_with(vec![kept(Some("p.patch"), Some("c1")), kept(None, None)]);
        assert_eq!(saved, [FileState::Processed]);
    }
}
