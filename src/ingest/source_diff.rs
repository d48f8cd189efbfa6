//! Changes of a source since its units last succeeded, and the reason why a unit runs. Pure.
//!
//! [`baseline`](super::baseline) has what earlier runs processed. Files of failed units are not settled there, so these
//! units run again.

use std::collections::BTreeMap;

use ingestdeck_core::tape::note::{DiffCounts, attempt_output::UnreadFile};

use super::{
    baseline::{LastUnitOutcome, PriorFileRecord},
    line_budget::first_names,
    source::SourceTree,
    untrusted_text::visible_path,
};

/// Differences between a source and its baseline. Paths are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceDiff {
    /// Files that no unit has processed successfully yet.
    pub added: Vec<String>,
    /// Files whose content changed since their unit last succeeded, or whose unit failed since.
    pub modified: Vec<String>,
    /// Files that were processed and no longer exist.
    pub deleted: Vec<String>,
    /// Files with the content of the baseline.
    pub unchanged: Vec<String>,
    /// Number of files for people, see [`Self::count_shown`].
    pub shown: DiffCounts,
}

impl SourceDiff {
    /// Compares `tree`, of which every file has a fingerprint, with the baseline of its source. `is_settled` decides
    /// whether all units of a file succeeded with its content.
    pub(crate) fn from_tree(
        tree: &SourceTree,
        prior: Option<&BTreeMap<String, PriorFileRecord>>,
        is_settled: impl Fn(&str) -> bool,
    ) -> Self {
        let mut diff = Self::default();
        for file in &tree.files {
            let known = || {
                prior
                    .and_then(|prior| prior.get(&file.path))
                    .is_some_and(PriorFileRecord::is_processed)
            };
            let list = match is_settled(&file.path) {
                true => &mut diff.unchanged,
                false if known() => &mut diff.modified,
                false => &mut diff.added,
            };
            list.push(file.path.clone());
        }
        let gone = prior.into_iter().flatten().filter(|(path, known)| {
            known.is_processed() && tree.get(path).is_none() && !tree.may_contain(path)
        });
        diff.deleted = gone.map(|(path, _)| path.clone()).collect();
        diff
    }

    /// Counts for people: files that no unit reads do not count, and a file whose units are tried again counts as changed
    /// only if no run `is_seen` to have had its content.
    pub(super) fn count_shown(
        &self,
        is_read: impl Fn(&str) -> bool,
        is_seen: impl Fn(&str) -> bool,
    ) -> DiffCounts {
        let count = |paths: &[String]| {
            let (seen, new): (Vec<&String>, Vec<&String>) = paths
                .iter()
                .filter(|path| is_read(path))
                .partition(|path| is_seen(path));
            (new.len() as u64, seen.len() as u64)
        };
        let ((added, tried), (modified, tried_again)) = (count(&self.added), count(&self.modified));
        let settled = self.unchanged.iter().filter(|path| is_read(path)).count() as u64;
        DiffCounts {
            added,
            modified,
            deleted: self.deleted.len() as u64,
            unchanged: settled + tried + tried_again,
        }
    }

    /// True for a file that is new or changed.
    pub(super) fn is_changed(&self, path: &str) -> bool {
        [&self.added, &self.modified]
            .into_iter()
            .any(|list| contains_path(list, path))
    }

    /// Files that are new or changed.
    pub(crate) fn changed_paths(&self) -> impl Iterator<Item = &str> {
        self.added.iter().chain(&self.modified).map(String::as_str)
    }

    /// True for a file that no unit has processed yet.
    fn is_added(&self, path: &str) -> bool {
        contains_path(&self.added, path)
    }
}

fn contains_path(list: &[String], path: &str) -> bool {
    list.binary_search_by(|known| known.as_str().cmp(path))
        .is_ok()
}

/// Why a unit runs although nothing of it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForceReason {
    /// The user named the unit.
    ByName,
    /// The user requested a full run.
    FullRun,
}

/// The changes, and the unread files, because of which a unit runs. Paths are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitChanges {
    /// Its raw files that are not settled.
    pub own: Vec<String>,
    /// Changed, new or deleted files that its own files refer to.
    pub referred: Vec<String>,
    /// A unit that ended without a success is tried again: `own` has the content that a run saw last.
    pub is_repeated: bool,
    /// They are all changes, because not all references of its files can be read.
    pub is_uncertain: bool,
    /// Other changed files around it, if they were asked for.
    pub around: Vec<String>,
    /// Its settled raw files that it left unread, if they were asked for.
    pub unread: Vec<UnreadFile>,
}

impl UnitChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.unread.is_empty() && self.around_it().next().is_none()
    }

    /// True if the unit has a reason to run although none of its raw files changed.
    pub(crate) fn has_settled_files_only(&self) -> bool {
        self.own.is_empty() && !self.is_empty()
    }

    /// Its raw files that are a reason to run it.
    pub(super) fn due_files(&self) -> impl Iterator<Item = &str> {
        self.own
            .iter()
            .map(String::as_str)
            .chain(self.unread.iter().map(|file| file.path.as_str()))
    }

    /// The changes outside its raw files.
    pub(crate) fn around_it(&self) -> impl Iterator<Item = &String> {
        self.referred.iter().chain(&self.around)
    }
}

/// The reason why a unit with `files` raw files runs.
pub(super) fn run_reason(
    files: usize,
    changes: &UnitChanges,
    diff: &SourceDiff,
    standing: Option<&LastUnitOutcome>,
    forced: Option<ForceReason>,
) -> String {
    let added = changes
        .own
        .iter()
        .filter(|path| diff.is_added(path))
        .count();
    let modified = changes.own.len() - added;
    let own = || {
        let parts = [
            (modified, "modified"),
            (added, "added"),
            (changes.unread.len(), "left unread"),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        parts
            .map(|(count, word)| format!("{} {word}", count_files(count)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let is_unread_only = changes.own.is_empty()
        && changes.around_it().next().is_none()
        && !changes.unread.is_empty();
    match (standing, forced) {
        _ if is_unread_only && forced != Some(ForceReason::FullRun) => own(),
        (Some(LastUnitOutcome::Incomplete(why)), _) => why.clone(),
        (Some(LastUnitOutcome::Failed), _) => "failed last time".into(),
        (Some(LastUnitOutcome::Unsaved), _) => "what it wrote last time was not saved".into(),
        (Some(LastUnitOutcome::Unfinished), _) => "not finished last time".into(),
        (None, _) if added == files => "new".into(),
        _ if !changes.own.is_empty() => own(),
        _ if !changes.referred.is_empty() => refers_to(&changes.referred, changes.is_uncertain),
        (_, Some(ForceReason::ByName)) => "unchanged, asked for by name".into(),
        (_, Some(ForceReason::FullRun)) => "unchanged, everything was asked for".into(),
        _ => match changes.around.len() {
            0 => "unchanged".into(),
            count => format!("{} around it changed", count_files(count)),
        },
    }
}

fn refers_to(paths: &[String], is_uncertain: bool) -> String {
    const MAX_NAMED: usize = 3;
    let named = first_names(
        &paths
            .iter()
            .map(|path| visible_path(path))
            .collect::<Vec<_>>(),
        MAX_NAMED,
    );
    let refers = if is_uncertain { "may refer" } else { "refers" };
    match paths.len() {
        1 => format!("{refers} to a change: {named}"),
        count => format!("{refers} to {count} changes: {named}"),
    }
}

fn count_files(count: usize) -> String {
    if count == 1 {
        "1 file".into()
    } else {
        format!("{count} files")
    }
}
