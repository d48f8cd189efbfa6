//! What the index holds of the artifacts of a run: what its units wrote, by the raw files that it rests on.

use crate::run::state::{RunState, UnitStatus};

/// An artifact that a unit wrote from a raw file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactRow {
    /// Connection of the unit.
    pub connection: String,
    /// Raw file, relative to the source.
    pub path: String,
    /// `wiki` or `sl`.
    pub target: String,
    /// Connection of a source; empty for a page.
    pub target_connection: String,
    /// Page key or source name.
    pub key: String,
    /// `created`, `updated` or `removed`.
    pub change: String,
}

/// The artifacts of a run that reached the project. An action that names no raw files rests on all of its unit's.
pub(super) fn rows(state: &RunState) -> Vec<ArtifactRow> {
    let mut rows = Vec::new();
    for unit in &state.units {
        let is_good = matches!(unit.status, UnitStatus::Succeeded | UnitStatus::Budget) && !state.is_unsaved(unit);
        let work = unit.latest().and_then(|attempt| attempt.work.as_ref()).filter(|_| is_good);
        let (Some(work), Some(planned)) = (work, &unit.planned) else { continue };
        for action in &work.actions {
            let named = action.raw_paths.as_ref().filter(|paths| !paths.is_empty());
            rows.extend(named.unwrap_or(&planned.raw_files).iter().map(|path| ArtifactRow {
                connection: planned.connection.clone(),
                path: path.clone(),
                target: action.target.word().to_owned(),
                target_connection: action.target_connection_id.clone().unwrap_or_default(),
                key: action.key.clone(),
                change: action.change.word().to_owned(),
            }));
        }
    }
    rows
}
