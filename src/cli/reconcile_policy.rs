//! What a plan leaves for the pass after the units, and what is said of that. It must not run anything.

use super::{args::SelectArgs, execute::ReconcileOptions, resume::RunPlan, summary::pluralize};
use crate::{
    ingest::{plan::SourcePlan, reconcile::staged_path},
    tape::note::FilesEvicted,
};

/// Whether a run has a pass, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcilePolicy {
    /// It has.
    Enabled,
    /// Somebody wants none.
    Disabled,
    /// The project has no repository.
    NoRepository,
}

impl ReconcilePolicy {
    /// What becomes of a pass that is `wanted`, or not, in a project that is a repository, or not.
    pub fn new(wanted: bool, has_history: bool) -> Self {
        match (has_history, wanted) {
            (true, true) => Self::Enabled,
            (true, false) => Self::Disabled,
            (false, _) => Self::NoRepository,
        }
    }

    /// What it has to look at besides what the units write; no model is chosen yet.
    pub fn options(self, taken: &RunPlan) -> Option<ReconcileOptions> {
        (self == Self::Enabled).then(|| {
            let unreconciled = taken.continues.as_ref().map(|continues| continues.unreconciled.clone());
            let sources = &taken.planned.sources;
            let resting = |source: &SourcePlan| {
                let named = |path: &String| staged_path(&source.connection, path);
                source.eviction_candidates.iter().map(|(path, found)| (named(path), found.clone())).collect::<Vec<_>>()
            };
            ReconcileOptions {
                model: None,
                evictions: sources.iter().filter_map(evicted_files).collect(),
                resting: sources.iter().flat_map(resting).collect(),
                unreconciled: unreconciled.unwrap_or_default(),
            }
        })
    }

    /// True where that is worth a run without any unit. Whoever asks for certain units asks for no more.
    pub fn justifies_a_run(self, taken: &RunPlan, select: &SelectArgs) -> bool {
        let everything = select.only.is_empty() && select.resume.failed.is_none();
        self.options(taken).is_some_and(|pass| !pass.unreconciled.is_empty() || (everything && pass.is_due()))
    }

    /// A sentence on that for each reason; none where there is nothing beyond what the units write.
    pub fn messages(self, taken: &RunPlan) -> Vec<String> {
        let gone = taken.planned.sources.iter().map(|source| source.diff.deleted.len()).sum();
        let unseen = taken.continues.as_ref().map_or(0, |continues| continues.unreconciled.len());
        let mut sentences = Vec::new();
        if gone > 0 {
            let gone = format!("{} gone", count_with_verb(gone, "file"));
            sentences.push(match self {
                Self::Enabled => format!("{gone}: the pass after the units looks after what was made of that"),
                Self::Disabled => format!("{gone}: what was made of that stays until a run has its pass again"),
                Self::NoRepository => {
                    format!(
                        "{gone}: what was made of that stays, for only a git project has a pass that looks after it"
                    )
                }
            });
        }
        if unseen > 0 && self == Self::Enabled {
            sentences.push(format!(
                "{} saved without a pass: it looks at that now",
                if unseen == 1 { "1 patch was".to_owned() } else { format!("{unseen} patches were") }
            ));
        }
        sentences
    }
}

fn count_with_verb(count: usize, noun: &str) -> String {
    format!("{} {}", pluralize(count, noun), if count == 1 { "is" } else { "are" })
}

fn evicted_files(source: &SourcePlan) -> Option<FilesEvicted> {
    let paths = source.diff.deleted.clone();
    let (connection, adapter) = (source.connection.clone(), source.adapter.clone());
    (!paths.is_empty()).then_some(FilesEvicted { connection, adapter, paths })
}
