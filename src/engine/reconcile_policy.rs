//! The backlog of a plan for the reconcile step, and the messages about it. Must not run anything.

use super::{execute::ReconcileOptions, resume::RunPlan};
use ingestdeck_core::{tape::note::FilesEvicted, text::pluralize};
use ingestdeck_ingest::{plan::SourcePlan, reconcile::staged_path};

/// Whether a run has a reconcile step, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcilePolicy {
    /// The run has a reconcile step.
    Enabled,
    /// It is disabled by a flag or setting.
    Disabled,
}

impl ReconcilePolicy {
    pub fn new(wanted: bool) -> Self {
        if wanted {
            Self::Enabled
        } else {
            Self::Disabled
        }
    }

    /// The backlog of the reconcile step.
    pub fn options(self, taken: &RunPlan) -> Option<ReconcileOptions> {
        (self == Self::Enabled).then(|| {
            let unreconciled = taken
                .continues
                .as_ref()
                .map(|continues| continues.unreconciled.clone());
            let sources = &taken.planned.sources;
            let artifacts_by_deleted_file = |source: &SourcePlan| {
                let named = |path: &String| staged_path(&source.connection, path);
                source
                    .eviction_candidates
                    .iter()
                    .map(|(path, found)| (named(path), found.clone()))
                    .collect::<Vec<_>>()
            };
            ReconcileOptions {
                evictions: sources.iter().filter_map(evicted_files).collect(),
                artifacts_by_deleted_file: sources
                    .iter()
                    .flat_map(artifacts_by_deleted_file)
                    .collect(),
                unreconciled: unreconciled.unwrap_or_default(),
            }
        })
    }

    /// True if the backlog justifies a run without any unit. If not `everything` was selected, deleted files do not.
    pub fn justifies_a_run(self, taken: &RunPlan, everything: bool) -> bool {
        self.options(taken)
            .is_some_and(|pass| !pass.unreconciled.is_empty() || (everything && pass.is_due()))
    }

    /// One sentence per kind of backlog; none without backlog.
    pub fn messages(self, taken: &RunPlan) -> Vec<String> {
        let gone = taken
            .planned
            .sources
            .iter()
            .map(|source| source.diff.deleted.len())
            .sum();
        let unseen = taken
            .continues
            .as_ref()
            .map_or(0, |continues| continues.unreconciled.len());
        let mut sentences = Vec::new();
        if gone > 0 {
            let gone = format!("{} gone", count_with_verb(gone, "file"));
            sentences.push(match self {
                Self::Enabled => format!("{gone}: the reconcile step reviews the artifacts that came from there"),
                Self::Disabled => {
                    format!("{gone}: the artifacts that came from there are kept until a run has a reconcile step")
                }
            });
        }
        if unseen > 0 && self == Self::Enabled {
            sentences.push(format!(
                "{} saved without a reconcile step: this run reviews them",
                if unseen == 1 {
                    "1 patch was".to_owned()
                } else {
                    format!("{unseen} patches were")
                }
            ));
        }
        sentences
    }
}

fn count_with_verb(count: usize, noun: &str) -> String {
    format!(
        "{} {}",
        pluralize(count, noun),
        if count == 1 { "is" } else { "are" }
    )
}

fn evicted_files(source: &SourcePlan) -> Option<FilesEvicted> {
    let paths = source.diff.deleted.clone();
    let (connection, adapter) = (source.connection.clone(), source.adapter.clone());
    (!paths.is_empty()).then_some(FilesEvicted {
        connection,
        adapter,
        paths,
    })
}
