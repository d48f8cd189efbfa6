//! What prior runs of a project did with its raw files, from the index, for reports and the coverage of the sources.

use super::{args::GlobalArgs, playback_output, runs};
use ingestdeck_core::{
    run::{
        SourceInfo,
        artifacts::{RawFileName, artifact_path},
        coverage::{PriorFileResult, PriorFileResults},
    },
    tape::note::attempt_output::{ArtifactChange, ArtifactTarget},
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_records::store::db::processed_sha256;

/// What runs before the run of a record did with the raw files; `None` if it is not a run of the project, or if its
/// index cannot be used.
pub(super) fn prior_results(global: &GlobalArgs, origin: &SourceInfo) -> Option<PriorFileResults> {
    let run = origin.header.as_ref()?.run;
    let store = runs::resolve_store(global).ok()?;
    store
        .list()
        .ok()?
        .iter()
        .find(|recorded| recorded.id == run)?;
    let read = || {
        let (db, _) = recorded_tapes::open_updated_index(&store).ok()?;
        Some((
            db.file_records(Some(run)).ok()?,
            db.prior_artifacts(Some(run)).ok()?,
        ))
    };
    let Some((files, artifacts)) = read() else {
        playback_output::print_stderr(
            "warning: the index cannot be read, so prior runs are not considered",
        );
        return None;
    };
    let mut results: PriorFileResults = files
        .into_iter()
        .map(|((connection, adapter, path), file)| {
            let result = PriorFileResult {
                sha256: processed_sha256(&file).cloned(),
                artifacts: Vec::new(),
            };
            ((RawFileName { connection, path }, adapter), result)
        })
        .collect();
    for ((connection, path), history) in artifacts {
        let existing = history
            .into_iter()
            .filter(|artifact| artifact.row.change != ArtifactChange::Removed.as_str());
        let paths = existing.map(|artifact| {
            let row = artifact.row;
            let is_wiki = row.target == ArtifactTarget::Wiki.as_str();
            let target = if is_wiki {
                ArtifactTarget::Wiki
            } else {
                ArtifactTarget::SemanticLayer
            };
            artifact_path(target, Some(&row.target_connection), &row.key)
        });
        let paths: Vec<String> = paths.collect();
        // The index does not name the adapter of an artifact.
        let name = RawFileName { connection, path };
        let results = results.range_mut((name.clone(), String::new())..);
        for (_, result) in results.take_while(|((file, _), _)| *file == name) {
            result.artifacts.extend_from_slice(&paths);
        }
    }
    Some(results)
}
