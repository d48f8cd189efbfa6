//! Builds the index rows for the artifacts of a run, by raw file.

use std::collections::BTreeMap;

use ingestdeck_core::{
    run::{
        artifacts::{accepted_projections, action_at, action_raw_files, is_action_of},
        review::ReviewState,
        state::RunState,
    },
    tape::note::attempt_output::{ArtifactChange, MemoryAction},
};

/// An artifact that a unit wrote from a raw file, or one that was removed or restored, whatever it was written from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactIndexRow {
    /// Connection of the unit; empty for a removal or restoration.
    pub connection: String,
    /// Raw file, relative to the source; empty for a removal or restoration.
    pub path: String,
    /// Kind of artifact: `wiki` or `sl`.
    pub target: String,
    /// Connection of a semantic-layer source; empty for a wiki page.
    pub target_connection: String,
    /// Page key or source name.
    pub key: String,
    /// `created`, `updated` or `removed`; `updated` for a restoration.
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
    let rejected: Vec<String> = state
        .publication
        .rejected_paths()
        .map(str::to_owned)
        .collect();
    for unit in &state.units {
        let Some(work) = state.work(unit).filter(|_| !state.is_unsaved(unit)) else {
            continue;
        };
        for action in &work.actions {
            if rejected.iter().any(|path| is_action_of(action, path)) {
                continue;
            }
            let files = action_raw_files(unit, action).into_iter();
            rows.extend(
                files.map(|(connection, path)| ArtifactIndexRow::new(connection, path, action)),
            );
            last.insert(
                (
                    action.target.as_str(),
                    &action.target_connection_id,
                    &action.key,
                ),
                action,
            );
        }
    }
    for projected in accepted_projections(state) {
        let is_written = !projected.is_unsaved() && projected.reason.is_none();
        for action in projected.actions.iter().filter(|_| is_written) {
            let connection = projected.connection_of(action).unwrap_or_default();
            let files = action.raw_paths.iter().flatten();
            rows.extend(files.map(|path| ArtifactIndexRow::new(connection, path, action)));
        }
    }
    let removed = last
        .into_values()
        .filter(|action| action.change == ArtifactChange::Removed);
    rows.extend(removed.map(|action| ArtifactIndexRow::new("", "", action)));
    rows.extend(undone_changes(state));
    rows
}

/// What a review of commits undid: created artifacts are removed, and removed ones are restored.
fn undone_changes(state: &RunState) -> Vec<ArtifactIndexRow> {
    let publication = &state.publication;
    let review = publication
        .review
        .as_deref()
        .filter(|review| review.is_saved && publication.committed_run.is_some());
    let work = state
        .units
        .iter()
        .filter_map(|unit| state.committed_work(unit).or_else(|| state.work(unit)));
    let recorded: Vec<&MemoryAction> = work.flat_map(|work| &work.actions).collect();
    let undone = review
        .into_iter()
        .flat_map(ReviewState::by_path)
        .filter_map(|(file, decided)| {
            let change = match file.change {
                ArtifactChange::Created if decided.is_dropped() => ArtifactChange::Removed,
                ArtifactChange::Removed if decided.is_removal_undone() => ArtifactChange::Updated,
                _ => return None,
            };
            // The name of a source may differ from that of its file.
            let action = recorded
                .iter()
                .find(|action| is_action_of(action, &file.path))
                .map(|action| (*action).clone());
            Some(MemoryAction {
                change,
                ..action.or_else(|| action_at(&file.path))?
            })
        });
    undone
        .map(|action| ArtifactIndexRow::new("", "", &action))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ingestdeck_core::{
        run::state::{PriorPatchIntegration, UnitState, UnitStatus},
        tape::{
            RunId,
            note::{
                AttemptOutput, ContinuedRun, PatchResult, PlannedUnit, PriorUnitSummary,
                ReusedSuccess, ReviewRequested, ReviewedFile, RunPlanned,
                attempt_output::ArtifactTarget,
            },
        },
    };

    fn created(target: ArtifactTarget, key: &str) -> MemoryAction {
        MemoryAction {
            target,
            change: ArtifactChange::Created,
            key: key.into(),
            detail: String::new(),
            target_connection_id: (target == ArtifactTarget::SemanticLayer).then(|| "c".into()),
            raw_paths: None,
        }
    }

    /// A run with a unit that did `action` in a prior run, which left its `patch`.
    fn continued(action: MemoryAction, patch: Option<&str>) -> RunState {
        let output = AttemptOutput {
            actions: vec![action],
            ..AttemptOutput::default()
        };
        let reused = Some(ReusedSuccess {
            attempt: 1,
            is_budget_exhausted: false,
            content: Default::default(),
            pending_patch: patch.map(str::to_owned),
            output,
        });
        let run = RunId(uuid::Uuid::from_u128(1));
        let units = BTreeMap::from([(
            "juice".into(),
            PriorUnitSummary {
                run,
                attempts: 1,
                cost_usd: None,
                reused,
            },
        )]);
        let continues = Some(ContinuedRun {
            run,
            outcome: None,
            cost_usd: None,
            units,
            unreconciled: BTreeMap::new(),
        });
        let planned = PlannedUnit {
            raw_files: vec!["juice.md".into()],
            ..PlannedUnit::default()
        };
        RunState {
            planned: Some(Arc::new(RunPlanned {
                continues,
                ..RunPlanned::default()
            })),
            units: vec![UnitState {
                key: "juice".into(),
                planned: Some(Arc::new(planned)),
                status: UnitStatus::Reused,
                attempts: Vec::new(),
                retry_at: None,
                hold_mode: Default::default(),
            }],
            ..RunState::default()
        }
    }

    #[test]
    fn prior_patch_is_attributed_to_the_run_that_saves_it() {
        let rows = |patch: Option<&str>, is_saved| {
            let mut state = continued(created(ArtifactTarget::Wiki, "terms"), patch);
            let integration = PriorPatchIntegration {
                result: PatchResult::Accepted,
                verdict: None,
                is_saved,
                shared_writes: Arc::default(),
            };
            state
                .publication
                .prior_patches
                .insert("juice".into(), integration);
            artifact_rows(&state)
        };
        let found = rows(Some("0001.patch"), true);
        assert_eq!(
            (found.len(), found[0].path.as_str(), found[0].key.as_str()),
            (1, "juice.md", "terms")
        );
        assert_eq!(
            rows(Some("0001.patch"), false),
            [],
            "unsaved artifacts are not indexed"
        );
        assert_eq!(
            rows(None, true),
            [],
            "without a pending patch, the prior run has the artifacts"
        );
    }

    #[test]
    fn review_of_commits_undoes_changes_once_it_is_saved() {
        let file = |path: &str, change| ReviewedFile {
            path: path.into(),
            change,
            units: vec!["juice".into()],
            diff: "@@ -1 +1 @@\n-a\n+b\n".into(),
            before: None,
            omitted: None,
        };
        let files = vec![
            file("wiki/global/new.md", ArtifactChange::Created),
            file("wiki/global/old.md", ArtifactChange::Removed),
            file("wiki/global/changed.md", ArtifactChange::Updated),
            file(
                "semantic-layer/c/orders_2024-0a1b2c3d.yaml",
                ArtifactChange::Created,
            ),
        ];
        let mut state = continued(created(ArtifactTarget::SemanticLayer, "Orders-2024"), None);
        state.publication.committed_run = Some(RunId(uuid::Uuid::from_u128(1)));
        let mut review = ReviewState::new(
            ReviewRequested {
                files,
                ..ReviewRequested::default()
            }
            .into(),
            None,
        );
        let mut rows = |is_saved| {
            (review.is_waiting, review.is_saved) = (false, is_saved);
            state.publication.review = Some(review.clone().into());
            let rows = artifact_rows(&state).into_iter();
            rows.map(|row| [row.path, row.key, row.change])
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(false), [[""; 3]; 0]);
        assert_eq!(
            rows(true),
            [
                ["", "new", "removed"],
                ["", "old", "updated"],
                ["", "Orders-2024", "removed"]
            ]
        );
    }
}
