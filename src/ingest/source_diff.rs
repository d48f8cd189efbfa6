//! Changes of a source since its units last succeeded, and the reason why a unit runs. Pure.
//!
//! The baseline contains what earlier runs processed. Files of failed units are not in it, so these units run again.
//! This module must not know where the baseline is stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::source::{Fingerprint, SourceTree, UnitChunk};
use crate::tape::RunId;

/// What earlier runs processed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Baseline {
    sources: HashMap<(String, String), BTreeMap<String, PriorFileRecord>>,
    units: HashMap<(String, String), LastUnitOutcome>,
    /// The run in which a unit last succeeded, and whether this installation recorded it.
    successes: HashMap<(String, String), (RunId, bool)>,
    /// Content, in these runs, of files that are unprocessed or failed now, by connection, adapter and path.
    reads: HashMap<(String, String, String), Vec<(RunId, Fingerprint)>>,
}

/// What earlier runs recorded about a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PriorFileRecord {
    /// Content when a unit that contains the file last succeeded; `None` if none did, or if the file was deleted since.
    pub processed: Option<Fingerprint>,
    /// A unit that contains the file failed after that.
    pub failed: bool,
    /// Which installation wrote the record.
    pub origin: RecordOrigin,
}

/// Which installation wrote a record of an earlier run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecordOrigin {
    #[default]
    Own,
    /// Another installation of this program.
    Foreign,
    /// KTX, in its database, by a run that completed at this time, in milliseconds since 1970.
    Ktx { completed_ms: u64 },
}

/// Outcome of a unit in the last run that planned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastUnitOutcome {
    Succeeded,
    Failed,
    /// The unit succeeded, but its result never reached the project.
    Unsaved,
    /// The unit ran out of turns or was stopped; contains the reason as a sentence.
    Incomplete(String),
    /// The unit was planned, and neither succeeded nor failed.
    Unfinished,
}

impl Baseline {
    pub(crate) fn add_file(&mut self, connection: &str, adapter: &str, path: String, prior: PriorFileRecord) {
        self.sources.entry((connection.into(), adapter.into())).or_default().insert(path, prior);
    }

    /// Adds the last outcome of a unit, by KTX's key.
    pub(crate) fn add_unit(&mut self, connection: String, unit: String, standing: LastUnitOutcome) {
        self.units.insert((connection, unit), standing);
    }

    /// Adds the run in which a unit, by connection and KTX's key, last succeeded; `is_own` if this installation
    /// recorded it.
    pub(crate) fn add_success(&mut self, unit: (String, String), run: RunId, is_own: bool) {
        self.successes.insert(unit, (run, is_own));
    }

    /// Adds the content that a file, by connection, adapter and path, had in a run.
    pub(crate) fn add_read(&mut self, file: (String, String, String), run: RunId, held: Option<Fingerprint>) {
        self.reads.entry(file).or_default().extend(held.map(|held| (run, held)));
    }

    /// True if the file had the content `now` in the run in which the unit last succeeded.
    pub(super) fn has_read(
        &self,
        (connection, adapter, unit): (&str, &str, &str),
        path: &str,
        now: Fingerprint,
    ) -> bool {
        let Some((success, _)) = self.successes.get(&(connection.to_owned(), unit.to_owned())) else { return false };
        let reads = self.reads.get(&(connection.to_owned(), adapter.to_owned(), path.to_owned()));
        reads.into_iter().flatten().any(|(run, held)| run == success && *held == now)
    }

    /// True if the unit last succeeded in a run of this installation that started after the time `ms`.
    pub(super) fn succeeded_after(&self, connection: &str, unit: &str, ms: u64) -> bool {
        let success = self.successes.get(&(connection.to_owned(), unit.to_owned()));
        success.is_some_and(|(run, is_own)| *is_own && run.started_at_ms() > ms)
    }

    /// Files of a source; `None` if no run has read it.
    pub(super) fn source_files(&self, connection: &str, adapter: &str) -> Option<&BTreeMap<String, PriorFileRecord>> {
        self.sources.get(&(connection.to_owned(), adapter.to_owned()))
    }

    /// Which installation recorded that a unit succeeded with the file; `None` if none did.
    pub(super) fn origin(&self, connection: &str, adapter: &str, path: &str) -> Option<RecordOrigin> {
        let known = self.source_files(connection, adapter)?.get(path)?;
        known.processed.map(|_| known.origin)
    }

    /// True if a unit succeeded with the file, unless the file was deleted since and the deletion was processed.
    pub(crate) fn is_processed(&self, connection: &str, adapter: &str, path: &str) -> bool {
        let known = self.source_files(connection, adapter).and_then(|source| source.get(path));
        known.is_some_and(|prior| prior.processed.is_some())
    }

    /// Like [`is_processed`](Self::is_processed), for any adapter.
    pub(crate) fn is_processed_by_any_adapter(&self, connection: &str, path: &str) -> bool {
        let mut sources = self.sources.iter().filter(|((of, _), _)| of == connection);
        sources.any(|(_, files)| files.get(path).is_some_and(|prior| prior.processed.is_some()))
    }

    pub(super) fn unit_outcome(&self, connection: &str, unit: &str) -> Option<&LastUnitOutcome> {
        self.units.get(&(connection.to_owned(), unit.to_owned()))
    }
}

/// State of a file compared with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaselineStatus {
    /// No unit that contains the file has succeeded yet.
    Added,
    /// The content changed, or a unit that contains the file failed since.
    Modified,
    /// The content is the same.
    Unchanged,
}

/// Differences between a source and its baseline. Paths are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceDiff {
    /// Files that no unit has processed successfully yet.
    pub added: Vec<String>,
    /// Files whose content changed since their unit last succeeded, or whose unit failed since.
    pub modified: Vec<String>,
    /// Files that were processed and no longer exist.
    pub deleted: Vec<String>,
    /// Files with the content of the baseline.
    pub unchanged: Vec<String>,
}

impl SourceDiff {
    /// Compares `tree`, of which every file has a fingerprint, with the baseline of its source.
    pub(crate) fn from_tree(tree: &SourceTree, prior: Option<&BTreeMap<String, PriorFileRecord>>) -> Self {
        let mut diff = Self::default();
        for file in &tree.files {
            let known = prior.and_then(|prior| prior.get(&file.path));
            let list = match compare_file(file.fingerprint, known) {
                BaselineStatus::Added => &mut diff.added,
                BaselineStatus::Modified => &mut diff.modified,
                BaselineStatus::Unchanged => &mut diff.unchanged,
            };
            list.push(file.path.clone());
        }
        let gone = prior
            .into_iter()
            .flatten()
            .filter(|(path, known)| known.processed.is_some() && tree.get(path).is_none() && !tree.may_contain(path));
        diff.deleted = gone.map(|(path, _)| path.clone()).collect();
        diff
    }

    /// True for a file that is new or changed.
    pub(super) fn is_changed(&self, path: &str) -> bool {
        [&self.added, &self.modified].into_iter().any(|list| contains_path(list, path))
    }

    /// Files that are new or changed.
    pub(crate) fn changed_paths(&self) -> BTreeSet<&str> {
        self.added.iter().chain(&self.modified).map(String::as_str).collect()
    }
}

fn contains_path(list: &[String], path: &str) -> bool {
    list.binary_search_by(|known| known.as_str().cmp(path)).is_ok()
}

fn compare_file(now: Option<Fingerprint>, known: Option<&PriorFileRecord>) -> BaselineStatus {
    match known {
        Some(PriorFileRecord { processed: Some(_), failed: true, .. }) => BaselineStatus::Modified,
        Some(PriorFileRecord { processed: Some(was), failed: false, .. }) if now == Some(*was) => {
            BaselineStatus::Unchanged
        }
        Some(PriorFileRecord { processed: Some(_), .. }) => BaselineStatus::Modified,
        Some(PriorFileRecord { processed: None, .. }) | None => BaselineStatus::Added,
    }
}

/// Why a unit runs although nothing of it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForceReason {
    /// The user named the unit.
    ByName,
    /// The user requested a full run.
    FullRun,
}

/// The reason why `unit` runs. `unit` must not be narrowed to its changed files yet.
///
/// Ignores files around the unit that it `has_read` with their current content.
pub(super) fn run_reason(
    unit: &UnitChunk,
    diff: &SourceDiff,
    standing: Option<&LastUnitOutcome>,
    forced: Option<ForceReason>,
    has_read: impl Fn(&str) -> bool,
) -> String {
    let within = |list: &[String]| unit.raw_files.iter().filter(|path| contains_path(list, path)).count();
    let (modified, added) = (within(&diff.modified), within(&diff.added));
    // Computed on demand: a unit may name hundreds of other files, and most units run because of files they contain.
    let around = || touched_around(unit, diff).filter(|path| !has_read(path)).count();
    let changes = || {
        let parts = [(modified, "modified"), (added, "added")].into_iter().filter(|(count, _)| *count > 0);
        parts.map(|(count, word)| format!("{} {word}", files(count))).collect::<Vec<_>>().join(", ")
    };
    match (standing, forced) {
        (Some(LastUnitOutcome::Incomplete(why)), _) => why.clone(),
        (Some(LastUnitOutcome::Failed), _) => "failed last time".into(),
        (Some(LastUnitOutcome::Unsaved), _) => "what it wrote last time was not saved".into(),
        (Some(LastUnitOutcome::Unfinished), _) => "not finished last time".into(),
        (None, _) if added == unit.raw_files.len() => "new".into(),
        _ if added + modified > 0 => changes(),
        (_, Some(ForceReason::ByName)) => "unchanged, asked for by name".into(),
        (_, Some(ForceReason::FullRun)) => "unchanged, everything was asked for".into(),
        _ => match around() {
            0 => "unchanged".into(),
            count => format!("{} around it changed", files(count)),
        },
    }
}

/// New or changed files around `unit`, and files around it whose own unit failed.
fn touched_around<'a>(unit: &'a UnitChunk, diff: &'a SourceDiff) -> impl Iterator<Item = &'a str> {
    let dependencies = unit.dependency_paths.iter().map(String::as_str);
    let neighbours = dependencies.chain(unit.peer_file_index.iter().map(|path| &**path));
    neighbours.filter(|path| diff.is_changed(path))
}

/// True if only files around `unit` changed and it `has_read` all of them with their current content. KTX runs such a
/// unit again, because it counts the files of a failed unit as changed; the unit would read the same content again.
pub(super) fn is_up_to_date(
    unit: &UnitChunk,
    diff: &SourceDiff,
    standing: Option<&LastUnitOutcome>,
    has_read: impl Fn(&str) -> bool,
) -> bool {
    let is_own = unit.raw_files.iter().any(|path| diff.is_changed(path));
    let mut around = touched_around(unit, diff).peekable();
    standing == Some(&LastUnitOutcome::Succeeded) && !is_own && around.peek().is_some() && around.all(has_read)
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".into() } else { format!("{count} files") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ingest::source::tree_of;

    fn prior(text: &str) -> PriorFileRecord {
        PriorFileRecord { processed: Some(Fingerprint::from_bytes(text.as_bytes())), ..PriorFileRecord::default() }
    }

    #[test]
    fn files_are_grouped_by_baseline_status() {
        let (_dir, mut tree) = tree_of(&[("new", "1"), ("same", "2"), ("other", "3"), ("failed", "4"), ("back", "5")]);
        tree.unreadable_paths.push("locked".into());
        let known = BTreeMap::from([
            ("same".to_owned(), prior("2")),
            ("other".to_owned(), prior("was")),
            ("failed".to_owned(), PriorFileRecord { failed: true, ..prior("4") }),
            ("back".to_owned(), PriorFileRecord::default()),
            ("gone".to_owned(), prior("6")),
            ("gone-before".to_owned(), PriorFileRecord::default()),
            ("locked/inside".to_owned(), prior("7")),
        ]);
        let diff = SourceDiff::from_tree(&tree, Some(&known));
        assert_eq!(diff.added, ["back", "new"]);
        assert_eq!(diff.modified, ["failed", "other"]);
        assert_eq!(diff.deleted, ["gone"], "an unreadable file is not deleted");
        assert_eq!(diff.unchanged, ["same"]);
        assert_eq!(SourceDiff::from_tree(&tree, None).added.len(), 5);
    }

    #[test]
    fn run_reason_names_the_changes() {
        let unit = |files: &[&str]| UnitChunk {
            raw_files: files.iter().map(|path| (*path).to_owned()).collect(),
            dependency_paths: vec!["d".into()],
            ..UnitChunk::default()
        };
        let list = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        let diff = SourceDiff { added: list(&["a", "d"]), modified: list(&["m", "n"]), ..SourceDiff::default() };
        let reason = |files: &[&str], standing, forced| run_reason(&unit(files), &diff, standing, forced, |_| false);
        let done = Some(&LastUnitOutcome::Succeeded);
        let spent = LastUnitOutcome::Incomplete("ran out of turns (20/20) in run a1b2c3".into());
        let all = [
            reason(&["a"], None, None),
            reason(&["a", "m", "u"], done, None),
            reason(&["m", "n"], done, Some(ForceReason::ByName)),
            reason(&["a"], Some(&LastUnitOutcome::Failed), None),
            reason(&["a"], Some(&spent), None),
            reason(&["a"], Some(&LastUnitOutcome::Unfinished), Some(ForceReason::FullRun)),
            reason(&["u"], done, Some(ForceReason::ByName)),
            reason(&["u"], done, Some(ForceReason::FullRun)),
            reason(&["u"], done, None),
        ];
        insta::assert_snapshot!(all.join("\n"), @r"
        new
        1 file modified, 1 file added
        2 files modified
        failed last time
        ran out of turns (20/20) in run a1b2c3
        not finished last time
        unchanged, asked for by name
        unchanged, everything was asked for
        1 file around it changed
        ");
    }

    proptest! {
        #[test]
        fn every_file_is_in_one_list(
            now in prop::collection::btree_map("[a-f]", "[xy]", 0..6),
            was in prop::collection::btree_map("[a-f]", (prop::option::of("[xy]"), any::<bool>()), 0..6),
        ) {
            let files: Vec<(&str, &str)> = now.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let (_dir, tree) = tree_of(&files);
            let known: BTreeMap<String, PriorFileRecord> = was
                .into_iter()
                .map(|(path, (text, failed))| {
                    let processed = text.map(|text| Fingerprint::from_bytes(text.as_bytes()));
                    (path, PriorFileRecord { processed, failed, ..PriorFileRecord::default() })
                })
                .collect();
            let diff = SourceDiff::from_tree(&tree, Some(&known));
            let mut all = [diff.added.clone(), diff.modified.clone(), diff.unchanged.clone()].concat();
            all.sort();
            prop_assert_eq!(all, now.keys().cloned().collect::<Vec<_>>());
            prop_assert!(diff.deleted.iter().all(|path| !now.contains_key(path)));
            prop_assert!(diff.unchanged.iter().all(|path| !known[path].failed));
        }
    }
}
