//! Builds the index rows for the artifacts of a run, by raw file.

use std::collections::BTreeMap;

use crate::{
    run::{
        artifacts::{accepted_projections, action_at, action_raw_files, is_action_of},
        state::RunState,
    },
    tape::note::attempt_output::{ArtifactChange, MemoryAction},
};

/// An artifact that a unit wrote from a raw file, or one that is removed, whatever it was written from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArtifactIndexRow {
    /// Connection of the unit; empty for the removal.
    pub connection: String,
    /// Raw file, relative to the source; empty for the removal.
    pub path: String,
    /// Kind of artifact: `wiki` or `sl`.
    pub target: String,
    /// Connection of a semantic-layer source; empty for a wiki page.
    pub target_connection: String,
    /// Page key or source name.
    pub key: String,
    /// `created`, `updated` or `removed`.
    pub change: String,
}

impl ArtifactIndexRow {
    fn new(connection: &str, path: &str, action: &MemoryAction) -> Self {
        Self {
            connection: connection.to_owned(),
            path: path.to_owned(),
            target: action.target.as_str().to_owned(),
            target_connection: action.target_connection_id.clone().unwrap_or_default(),
            key: action.key.clone(),
            change: action.change.as_str().to_owned(),
        }
    }
}

/// The artifacts of a run that reached the project, and those that it removed.
pub(super) fn artifact_rows(state: &RunState) -> Vec<ArtifactIndexRow> {
    let mut rows = Vec::new();
    // The last change of each artifact, in the order of the units.
    let mut last = BTreeMap::new();
    let rejected: Vec<String> = state.publication.rejected_paths().map(str::to_owned).collect();
    for unit in &state.units {
        let Some(work) = state.work(unit).filter(|_| !state.is_unsaved(unit)) else { continue };
        for action in &work.actions {
            if rejected.iter().any(|path| is_action_of(action, path)) {
                continue;
            }
            let files = action_raw_files(unit, action).into_iter();
            rows.extend(files.map(|(connection, path)| ArtifactIndexRow::new(connection, path, action)));
            last.insert((action.target.as_str(), &action.target_connection_id, &action.key), action);
        }
    }
    for projected in accepted_projections(state) {
        let is_written = !projected.is_unsaved() && projected.reason.is_none();
        for action in projected.actions.iter().filter(|_| is_written) {
            let connection = action.target_connection_id.as_deref().unwrap_or_default();
            let files = action.raw_paths.iter().flatten();
            rows.extend(files.map(|path| ArtifactIndexRow::new(connection, path, action)));
        }
    }
    let removed = last.into_values().filter(|action| action.change == ArtifactChange::Removed);
    rows.extend(removed.map(|action| ArtifactIndexRow::new("", "", action)));
    // A review of commits takes back what it rejects.
    let review = state.publication.review.as_deref().filter(|_| state.publication.committed_run.is_some());
    let files = review.iter().flat_map(|review| &review.request.files);
    let created = files.filter(|file| file.change == ArtifactChange::Created && rejected.contains(&file.path));
    rows.extend(
        created
            .filter_map(|file| action_at(&file.path))
            .map(|action| ArtifactIndexRow::new("", "", &MemoryAction { change: ArtifactChange::Removed, ..action })),
    );
    rows
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        run::state::{PriorPatchIntegration, UnitState, UnitStatus},
        tape::{
            RunId,
            note::{
                AttemptOutput, ContinuedRun, PatchResult, PlannedUnit, PriorUnitSummary, ReusedSuccess, RunPlanned,
                attempt_output::ArtifactTarget,
            },
        },
    };

    #[test]
    fn prior_patch_is_attributed_to_the_run_that_saves_it() {
        let action = MemoryAction {
            target: ArtifactTarget::Wiki,
            change: ArtifactChange::Created,
            key: "terms".into(),
            detail: String::new(),
            target_connection_id: None,
            raw_paths: None,
        };
        let state = |patch: Option<&str>, saved| {
            let work = AttemptOutput { actions: vec![action.clone()], ..AttemptOutput::default() };
            let patch = patch.map(str::to_owned);
            let reused = Some(ReusedSuccess {
                attempt: 1,
                is_budget_exhausted: false,
                content: Default::default(),
                pending_patch: patch,
                output: work,
            });
            let run = RunId(uuid::Uuid::from_u128(1));
            let units =
                BTreeMap::from([("juice".into(), PriorUnitSummary { run, attempts: 1, cost_usd: None, reused })]);
            let continues =
                Some(ContinuedRun { run, outcome: None, cost_usd: None, units, unreconciled: BTreeMap::new() });
            let planned = PlannedUnit { raw_files: vec!["juice.md".into()], ..PlannedUnit::default() };
            let mut state = RunState {
                planned: Some(Arc::new(RunPlanned { continues, ..RunPlanned::default() })),
                units: vec![UnitState {
                    key: "juice".into(),
                    planned: Some(Arc::new(planned)),
                    status: UnitStatus::Reused,
                    attempts: Vec::new(),
                    retry_at: None,
                    hold_mode: Default::default(),
                }],
                ..RunState::default()
            };
            state.publication.prior_patches.insert(
                "juice".into(),
                PriorPatchIntegration {
                    result: PatchResult::Accepted,
                    verdict: None,
                    is_saved: saved,
                    shared_writes: Arc::default(),
                },
            );
            artifact_rows(&state)
        };
        let found = state(Some("0001.patch"), true);
        assert_eq!((found.len(), found[0].path.as_str(), found[0].key.as_str()), (1, "juice.md", "terms"));
        assert_eq!(state(Some("0001.patch"), false), [], "unsaved artifacts are not indexed");
        assert_eq!(state(None, true), [], "without a pending patch, the prior run has the artifacts");
    }
}
