//! Coverage of the sources: which raw files have a page or source that rests on them, which have none, and which changed
//! without it. Pure.
//!
//! It must not know where the results of prior runs come from, nor how coverage is shown.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    artifacts::{RawFileName, RunArtifact},
    state::RunState,
};
use crate::{tape::note::attempt_output::ArtifactChange, text::pluralize};

/// What runs before this one recorded about a raw file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorFileResult {
    /// SHA-256 of the file when its units last succeeded.
    pub sha256: Option<String>,
    /// Paths of the artifacts that rested on it, relative to the project.
    pub artifacts: Vec<String>,
}

/// Results of prior runs by raw file and adapter.
pub type PriorFileResults = BTreeMap<(RawFileName, String), PriorFileResult>;

/// How a raw file differs from the file that prior runs processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawFileChange {
    New,
    Changed,
    Unchanged,
    Deleted,
}

impl RawFileChange {
    /// Its word on screens and in JSON.
    pub fn label(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
        }
    }
}

/// Whether artifacts rest on a raw file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverageState {
    Covered,
    /// The file changed or was deleted, and the artifacts that rest on it did not change in the run.
    Stale,
    /// No artifact rests on the file.
    Uncovered,
}

impl CoverageState {
    /// Its word on screens and in JSON.
    pub fn label(self) -> &'static str {
        match self {
            Self::Covered => "covered",
            Self::Stale => "stale",
            Self::Uncovered => "uncovered",
        }
    }
}

/// A raw file with the artifacts that rest on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoveredFile {
    /// Relative to the source.
    pub path: String,
    /// `None` if the tape and prior runs do not show it.
    pub change: Option<RawFileChange>,
    pub state: CoverageState,
    /// Paths of the artifacts, relative to the project and sorted.
    pub artifacts: Vec<String>,
}

/// The raw files of a connection, sorted by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCoverage {
    pub connection: String,
    pub adapter: String,
    pub files: Vec<CoveredFile>,
    /// Number of further files, which are unchanged and not on the tape of the run.
    pub unlisted: u64,
}

impl SourceCoverage {
    /// Counts of its raw files, as one line.
    pub fn summary(&self) -> String {
        let [covered, stale, uncovered] = [
            CoverageState::Covered,
            CoverageState::Stale,
            CoverageState::Uncovered,
        ]
        .map(|state| self.count(state));
        let more = match self.unlisted {
            0 => String::new(),
            count => format!("; {count} unchanged files are not on the tape"),
        };
        let count = pluralize(self.files.len(), "raw file");
        format!(
            "{count} ({}), {covered} covered, {stale} stale, {uncovered} uncovered{more}",
            self.adapter
        )
    }

    /// Number of existing raw files that are covered, and of all existing ones; `None` if some are not listed.
    pub(crate) fn share(&self) -> Option<(usize, usize)> {
        let existing = self
            .files
            .iter()
            .filter(|file| file.change != Some(RawFileChange::Deleted));
        let covered = existing
            .clone()
            .filter(|file| file.state == CoverageState::Covered)
            .count();
        (self.unlisted == 0).then(|| (covered, existing.count()))
    }

    /// Number of files in a state.
    fn count(&self, state: CoverageState) -> usize {
        self.files.iter().filter(|file| file.state == state).count()
    }
}

/// The coverage of the sources that a run read, by connection and adapter. Without results of `prior` runs, it contains
/// only the files on the tape: new and changed ones, and those of the units.
pub(crate) fn coverage(
    state: &RunState,
    artifacts: &[RunArtifact],
    prior: Option<&PriorFileResults>,
) -> Vec<SourceCoverage> {
    let mut found: BTreeMap<(&str, &str), SourceFiles<'_>> = BTreeMap::new();
    for read in &state.inputs.sources {
        let source = found.entry((&read.connection, &read.adapter)).or_default();
        source.unchanged = read.diff.unchanged;
        source.current.extend(
            read.files
                .iter()
                .map(|file| (file.path.as_str(), Some(file.sha256.as_str()))),
        );
        source
            .deleted
            .extend(read.deleted.iter().map(String::as_str));
    }
    for planned in state.units.iter().filter_map(|unit| unit.planned.as_ref()) {
        if !planned.connection.is_empty() && !planned.raw_files.is_empty() {
            let source = found
                .entry((&planned.connection, &planned.adapter))
                .or_default();
            for path in &planned.raw_files {
                source.current.entry(path).or_insert(None);
            }
        }
    }
    let changes = ArtifactChanges::new(artifacts);
    let of_source = |((connection, adapter), mut source): ((&str, &str), SourceFiles<'_>)| {
        for ((file, of_adapter), result) in prior.into_iter().flatten() {
            if file.connection == connection && of_adapter == adapter && result.sha256.is_some() {
                source
                    .current
                    .entry(&file.path)
                    .or_insert(result.sha256.as_deref());
            }
        }
        source
            .current
            .retain(|path, _| !source.deleted.contains(path));
        let paths: BTreeSet<&str> = source
            .current
            .keys()
            .copied()
            .chain(source.deleted.iter().copied())
            .collect();
        let file = |path: &str| {
            let name = RawFileName {
                connection: connection.to_owned(),
                path: path.to_owned(),
            };
            let before = prior.and_then(|prior| prior.get(&(name.clone(), adapter.to_owned())));
            let processed = before.and_then(|before| before.sha256.as_deref());
            let change = match (
                source.deleted.contains(path),
                source.current.get(path).copied().flatten(),
                processed,
            ) {
                (true, ..) => Some(RawFileChange::Deleted),
                (false, Some(now), Some(then)) if now == then => Some(RawFileChange::Unchanged),
                (false, Some(_), Some(_)) => Some(RawFileChange::Changed),
                (false, _, None) if prior.is_some() => Some(RawFileChange::New),
                (false, ..) => None,
            };
            covered_file(path, change, before, changes.of(&name), &changes)
        };
        let files: Vec<CoveredFile> = paths.into_iter().map(file).collect();
        let listed = files
            .iter()
            .filter(|file| file.change == Some(RawFileChange::Unchanged))
            .count() as u64;
        // Files of units may be unchanged; only prior runs show which ones.
        let unlisted = if prior.is_some() {
            source.unchanged.saturating_sub(listed)
        } else {
            source.unchanged
        };
        SourceCoverage {
            connection: connection.to_owned(),
            adapter: adapter.to_owned(),
            files,
            unlisted,
        }
    };
    found.into_iter().map(of_source).collect()
}

#[derive(Default)]
struct SourceFiles<'a> {
    /// Existing files with their SHA-256, if it is recorded.
    current: BTreeMap<&'a str, Option<&'a str>>,
    deleted: BTreeSet<&'a str>,
    unchanged: u64,
}

/// The artifacts of the run whose changes count.
struct ArtifactChanges<'a> {
    by_raw_file: BTreeMap<&'a RawFileName, BTreeSet<&'a str>>,
    changed: BTreeSet<&'a str>,
    removed: BTreeSet<&'a str>,
}

impl<'a> ArtifactChanges<'a> {
    fn new(artifacts: &'a [RunArtifact]) -> Self {
        let (mut by_raw_file, mut changed, mut removed): (BTreeMap<_, BTreeSet<_>>, _, _) =
            Default::default();
        for artifact in artifacts.iter().filter(|artifact| artifact.state.counts()) {
            let set: &mut BTreeSet<&str> = match artifact.change {
                Some(ArtifactChange::Removed) => &mut removed,
                _ => {
                    for file in &artifact.raw_files {
                        by_raw_file
                            .entry(file)
                            .or_default()
                            .insert(artifact.path.as_str());
                    }
                    &mut changed
                }
            };
            set.insert(&artifact.path);
        }
        Self {
            by_raw_file,
            changed,
            removed,
        }
    }

    fn of(&self, file: &RawFileName) -> impl Iterator<Item = &'a str> {
        self.by_raw_file.get(file).into_iter().flatten().copied()
    }
}

fn covered_file<'a>(
    path: &str,
    change: Option<RawFileChange>,
    before: Option<&'a PriorFileResult>,
    now: impl Iterator<Item = &'a str>,
    changes: &ArtifactChanges<'a>,
) -> CoveredFile {
    let mut artifacts: BTreeSet<&str> = now.collect();
    let is_rewritten = !artifacts.is_empty();
    let prior = before
        .into_iter()
        .flat_map(|before| &before.artifacts)
        .map(String::as_str);
    artifacts.extend(prior.filter(|path| !changes.removed.contains(path)));
    let is_touched = is_rewritten || artifacts.iter().any(|path| changes.changed.contains(path));
    let state = match change {
        _ if artifacts.is_empty() => CoverageState::Uncovered,
        Some(RawFileChange::Changed | RawFileChange::Deleted) if !is_touched => {
            CoverageState::Stale
        }
        _ => CoverageState::Covered,
    };
    CoveredFile {
        path: path.to_owned(),
        change,
        state,
        artifacts: artifacts.into_iter().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        run::artifacts::ArtifactStatus,
        tape::note::{DiffCounts, FileRead, SourceRead},
    };

    fn read(files: &[(&str, &str)], deleted: &[&str], unchanged: u64) -> RunState {
        let files = files.iter().map(|(path, sha256)| FileRead {
            path: (*path).into(),
            sha256: (*sha256).into(),
            ..FileRead::default()
        });
        let source = SourceRead {
            connection: "notes".into(),
            adapter: "docs".into(),
            diff: DiffCounts {
                unchanged,
                ..DiffCounts::default()
            },
            files: files.collect(),
            deleted: deleted.iter().map(|path| (*path).to_owned()).collect(),
            ..SourceRead::default()
        };
        let mut state = RunState::default();
        state.inputs.sources.push(Arc::new(source));
        state
    }

    fn file(path: &str) -> RawFileName {
        RawFileName {
            connection: "notes".into(),
            path: path.into(),
        }
    }

    fn artifact(
        path: &str,
        raw_file: &str,
        change: ArtifactChange,
        state: ArtifactStatus,
    ) -> RunArtifact {
        RunArtifact {
            path: path.into(),
            target: None,
            change: Some(change),
            state,
            writers: Vec::new(),
            raw_files: vec![file(raw_file)],
            review: None,
            shared: None,
            commit: None,
        }
    }

    #[test]
    fn each_raw_file_has_its_coverage() {
        use ArtifactChange::{Removed, Updated};
        let state = read(
            &[
                ("new.md", "1"),
                ("changed.md", "2"),
                ("stale.md", "3"),
                ("same.md", "4"),
                ("failed.md", "5"),
            ],
            &["gone.md"],
            3,
        );
        let artifacts = [
            artifact("a", "new.md", Updated, ArtifactStatus::Saved),
            artifact("b", "changed.md", Updated, ArtifactStatus::Pending),
            artifact("c", "failed.md", Updated, ArtifactStatus::Discarded),
            artifact("e", "same.md", Removed, ArtifactStatus::Saved),
        ];
        let prior = |path: &str, sha256: &str, artifacts: &[&str]| {
            let artifacts = artifacts.iter().map(|path| (*path).to_owned()).collect();
            (
                (file(path), "docs".to_owned()),
                PriorFileResult {
                    sha256: Some(sha256.into()),
                    artifacts,
                },
            )
        };
        let prior: PriorFileResults = [
            prior("changed.md", "1", &["b"]),
            prior("stale.md", "1", &["d"]),
            prior("same.md", "4", &["e"]),
            prior("gone.md", "4", &["f"]),
            prior("unread.md", "7", &["g"]),
            (
                (file("new.md"), "dbt".to_owned()),
                PriorFileResult {
                    sha256: Some("0".into()),
                    artifacts: Vec::new(),
                },
            ),
        ]
        .into();
        let [covered] = &coverage(&state, &artifacts, Some(&prior))[..] else {
            panic!("one source")
        };
        let lines: Vec<String> = covered
            .files
            .iter()
            .map(|file| {
                let change = file.change.map_or("?", RawFileChange::label);
                format!(
                    "{} {change} {} {}",
                    file.path,
                    file.state.label(),
                    file.artifacts.join(",")
                )
            })
            .collect();
        assert_eq!(
            lines,
            [
                "changed.md changed covered b",
                "failed.md new uncovered ",
                "gone.md deleted stale f",
                "new.md new covered a",
                "same.md unchanged uncovered ",
                "stale.md changed stale d",
                "unread.md unchanged covered g",
            ]
        );
        assert_eq!(
            (covered.unlisted, covered.count(CoverageState::Stale)),
            (1, 2)
        );
        let [alone] = &coverage(&state, &artifacts, None)[..] else {
            panic!("one source")
        };
        assert_eq!((alone.files.len(), alone.unlisted), (6, 3));
        assert!(
            alone
                .files
                .iter()
                .all(|file| file.path == "gone.md" || file.change.is_none())
        );
    }
}
