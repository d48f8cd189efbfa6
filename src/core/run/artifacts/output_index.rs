//! The records of an attempt by path, so that each path is looked up once. Pure.
//!
//! A tape is untrusted: the numbers of paths and of records for each path are bounded.

use std::collections::{HashMap, HashSet};

use super::{artifact_path, source_slug};
use crate::tape::note::{
    AttemptOutput,
    attempt_output::{
        ArtifactChange, ArtifactTarget, MAX_UNSOURCED, MemoryAction, RecordedWrite,
        UnsourcedIdentifier,
    },
    verification::{ArtifactVerification, MAX_CHECKED},
};

/// Most paths of an attempt.
const MAX_PATHS: usize = 10_000;
/// Most changes and most writes of one path.
const MAX_RECORDS_PER_PATH: usize = 1_000;

/// How the path of an artifact names an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PathMatch {
    /// It is the usual path of the action.
    Exact,
    /// The path without its extension.
    Stem,
    /// The path of a source whose name is not plain, without its hash.
    Slug,
}

/// Changes of artifacts by path. Finds the same as [`is_action_of`](super::is_action_of).
#[derive(Debug, Default)]
pub(super) struct ActionIndex<'a> {
    actions: &'a [MemoryAction],
    by_path: HashMap<(PathMatch, String), Vec<usize>>,
}

impl<'a> ActionIndex<'a> {
    pub(super) fn new(actions: &'a [MemoryAction]) -> Self {
        let mut index = Self {
            actions,
            by_path: HashMap::new(),
        };
        for (place, action) in actions.iter().enumerate() {
            let connection = action.target_connection_id.as_deref();
            let mut add = |kind, path| {
                let places = index.by_path.entry((kind, path)).or_default();
                if places.len() < MAX_RECORDS_PER_PATH {
                    places.push(place);
                }
            };
            add(
                PathMatch::Exact,
                artifact_path(action.target, connection, &action.key),
            );
            if let (ArtifactTarget::SemanticLayer, Some(connection)) = (action.target, connection) {
                add(
                    PathMatch::Stem,
                    format!("semantic-layer/{connection}/{}", action.key),
                );
                add(
                    PathMatch::Slug,
                    format!("semantic-layer/{connection}/{}", source_slug(&action.key)),
                );
            }
        }
        index
    }

    /// Positions of the changes of the artifact at `path`, in order.
    pub(super) fn places(&self, path: &str) -> Vec<usize> {
        let stem = path.rsplit_once('.').map(|(stem, _)| stem);
        let slug = stem
            .and_then(|stem| stem.rsplit_once('-'))
            .filter(|(_, hash)| hash.len() == 8)
            .map(|(slug, _)| slug);
        let keys = [
            (PathMatch::Exact, Some(path)),
            (PathMatch::Stem, stem),
            (PathMatch::Slug, slug),
        ];
        let keys = keys
            .into_iter()
            .filter_map(|(kind, path)| Some((kind, path?.to_owned())));
        let mut places: Vec<usize> = keys
            .filter_map(|key| self.by_path.get(&key))
            .flatten()
            .copied()
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The changes of the artifact at `path`, in order.
    pub(super) fn of(&self, path: &str) -> Vec<&'a MemoryAction> {
        self.places(path)
            .into_iter()
            .map(|place| &self.actions[place])
            .collect()
    }
}

/// What an output records, by path.
#[derive(Debug, Default)]
pub(super) struct OutputIndex<'a> {
    pub(super) actions: ActionIndex<'a>,
    writes: HashMap<&'a str, Vec<&'a RecordedWrite>>,
    unsourced: HashMap<&'a str, Vec<&'a UnsourcedIdentifier>>,
    verification: HashMap<&'a str, &'a ArtifactVerification>,
}

impl<'a> OutputIndex<'a> {
    pub(super) fn new(output: &'a AttemptOutput) -> Self {
        let mut index = Self {
            actions: ActionIndex::new(&output.actions),
            ..Self::default()
        };
        for write in &output.writes {
            let writes = index.writes.entry(&write.path).or_default();
            if writes.len() < MAX_RECORDS_PER_PATH {
                writes.push(write);
            }
        }
        for identifier in output.unsourced.iter().flatten().take(MAX_UNSOURCED) {
            index
                .unsourced
                .entry(&identifier.path)
                .or_default()
                .push(identifier);
        }
        let record = output.verification.iter();
        let compared = record.flat_map(|record| record.artifacts.iter().take(MAX_CHECKED));
        index
            .verification
            .extend(compared.map(|artifact| (artifact.path.as_str(), artifact)));
        index
    }

    /// The writes of `path`, in order.
    pub(super) fn writes(&self, path: &str) -> &[&'a RecordedWrite] {
        self.writes.get(path).map(Vec::as_slice).unwrap_or_default()
    }

    /// The unsourced identifiers in `path`, in order.
    pub(super) fn unsourced(&self, path: &str) -> &[&'a UnsourcedIdentifier] {
        self.unsourced
            .get(path)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// What answers prove about `path`.
    pub(super) fn verification(&self, path: &str) -> Option<&'a ArtifactVerification> {
        self.verification.get(path).copied()
    }

    /// The paths that the changes name, sorted: those of their writes, or else the usual ones.
    pub(super) fn action_paths(&self, output: &AttemptOutput) -> Vec<String> {
        let mut named: Vec<Option<String>> = vec![None; output.actions.len()];
        for path in distinct(output.writes.iter().map(|write| write.path.as_str())) {
            for place in self.actions.places(path) {
                named[place].get_or_insert_with(|| path.to_owned());
            }
        }
        let usual = |action: &MemoryAction| {
            artifact_path(
                action.target,
                action.target_connection_id.as_deref(),
                &action.key,
            )
        };
        let paths = output.actions.iter().zip(named);
        let mut paths: Vec<String> = paths
            .map(|(action, path)| path.unwrap_or_else(|| usual(action)))
            .collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}

/// The first [`MAX_PATHS`] paths, each once.
pub(super) fn distinct<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    paths
        .into_iter()
        .filter(|path| seen.insert(*path))
        .take(MAX_PATHS)
        .collect()
}

/// The combined change. The outer value is `None` if a change is not recorded, and the inner one if nothing remains.
pub(super) fn net_change(
    changes: impl IntoIterator<Item = Option<ArtifactChange>>,
) -> Option<Option<ArtifactChange>> {
    changes
        .into_iter()
        .try_fold(None::<ArtifactChange>, |net, change| {
            let change = change?;
            Some(net.map_or(Some(change), |net| net.merged_with(change)))
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::run::artifacts::is_action_of;

    proptest! {
        #[test]
        fn index_finds_what_the_comparison_finds(
            actions in prop::collection::vec((any::<bool>(), "[aB ./-]{0,5}", prop::option::of("a|wh|a-b")), 0..6),
            path in "(wiki/global/|semantic-layer/)(a|wh|a-b|\\?)?/?[aBb_./-]{0,5}(-0123abcd)?(\\.yaml|\\.md|\\.yml)?"
        ) {
            let action = |(is_wiki, key, connection): (bool, String, Option<String>)| MemoryAction {
                target: if is_wiki { ArtifactTarget::Wiki } else { ArtifactTarget::SemanticLayer },
                change: ArtifactChange::Created,
                key,
                detail: String::new(),
                target_connection_id: connection,
                raw_paths: None,
            };
            let actions: Vec<MemoryAction> = actions.into_iter().map(action).collect();
            let compared: Vec<&MemoryAction> = actions.iter().filter(|action| is_action_of(action, &path)).collect();
            prop_assert_eq!(ActionIndex::new(&actions).of(&path), compared);
        }
    }

    #[test]
    fn changes_that_cancel_out_leave_nothing() {
        use ArtifactChange::{Created, Removed};
        assert_eq!(net_change([Some(Created), Some(Removed)]), Some(None));
        assert_eq!(
            net_change([Some(Created), Some(Removed), Some(Created)]),
            Some(Some(Created))
        );
        assert_eq!(
            (net_change([Some(Created), None]), net_change([])),
            (None, Some(None))
        );
    }
}
