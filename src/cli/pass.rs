//! What a plan leaves for the pass after the units, and what is said of that. It must not run anything.

use super::{args::SelectArgs, execute::PassTerms, resume::Taken, summary::counted};
use crate::{
    ingest::{plan::SourcePlan, reconcile::staged_path},
    tape::note::Evicted,
};

/// Whether a run has a pass, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It has.
    Wanted,
    /// Somebody wants none.
    LeftOut,
    /// The project has no repository.
    NoHistory,
}

impl Pass {
    /// What becomes of a pass that is `wanted`, or not, in a project that is a repository, or not.
    pub fn of(wanted: bool, has_history: bool) -> Self {
        match (has_history, wanted) {
            (true, true) => Self::Wanted,
            (true, false) => Self::LeftOut,
            (false, _) => Self::NoHistory,
        }
    }

    /// What it has to look at besides what the units write; no model is chosen yet.
    pub fn terms(self, taken: &Taken) -> Option<PassTerms> {
        (self == Self::Wanted).then(|| {
            let unreconciled = taken.continues.as_ref().map(|continues| continues.unreconciled.clone());
            let sources = &taken.planned.sources;
            let resting = |source: &SourcePlan| {
                let named = |path: &String| staged_path(&source.connection, path);
                source.resting.iter().map(|(path, found)| (named(path), found.clone())).collect::<Vec<_>>()
            };
            PassTerms {
                model: None,
                evictions: sources.iter().filter_map(evicted).collect(),
                resting: sources.iter().flat_map(resting).collect(),
                unreconciled: unreconciled.unwrap_or_default(),
            }
        })
    }

    /// True where that is worth a run without any unit. Whoever asks for certain units asks for no more.
    pub fn is_enough(self, taken: &Taken, select: &SelectArgs) -> bool {
        let everything = select.only.is_empty() && select.past.failed.is_none();
        self.terms(taken).is_some_and(|pass| !pass.unreconciled.is_empty() || (everything && pass.is_due()))
    }

    /// A sentence on that for each reason; none where there is nothing beyond what the units write.
    pub fn sentences(self, taken: &Taken) -> Vec<String> {
        let gone = taken.planned.sources.iter().map(|source| source.diff.deleted.len()).sum();
        let unseen = taken.continues.as_ref().map_or(0, |continues| continues.unreconciled.len());
        let mut sentences = Vec::new();
        if gone > 0 {
            let gone = format!("{} gone", are(gone, "file"));
            sentences.push(match self {
                Self::Wanted => format!("{gone}: the pass after the units looks after what was made of that"),
                Self::LeftOut => format!("{gone}: what was made of that stays until a run has its pass again"),
                Self::NoHistory => {
                    format!(
                        "{gone}: what was made of that stays, for only a git project has a pass that looks after it"
                    )
                }
            });
        }
        if unseen > 0 && self == Self::Wanted {
            sentences.push(format!(
                "{} saved without a pass: it looks at that now",
                if unseen == 1 { "1 patch was".to_owned() } else { format!("{unseen} patches were") }
            ));
        }
        sentences
    }
}

fn are(count: usize, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "is" } else { "are" })
}

fn evicted(source: &SourcePlan) -> Option<Evicted> {
    let paths = source.diff.deleted.clone();
    let (connection, adapter) = (source.connection.clone(), source.adapter.clone());
    (!paths.is_empty()).then_some(Evicted { connection, adapter, paths })
}
