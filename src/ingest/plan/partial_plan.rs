//! Reducing a plan to a part of it, and keeping the rest for the next plan. Pure.
//!
//! Later plans compare files. A file of two units must not count as processed when only one of them ran.

use std::collections::{BTreeSet, HashSet};

use super::{
    DiffCounts, IngestPlan, PlanError, PlannedUnit, Project, SourceDiff, SourcePlan, UnitSelection,
    UnitSelector, WorkUnit, check_connections_exist, known_names,
};

/// The changes of the sources of a plan, which commits count.
#[derive(Clone, Debug, Default)]
pub struct PlannedDiff {
    /// Of all planned units.
    pub counts: DiffCounts,
    /// The new files by connection and path.
    added: HashSet<(String, String)>,
    modified: HashSet<(String, String)>,
}

impl PlannedDiff {
    /// The changes that a commit with these units alone contains. The deleted files are in the first commit of a run.
    pub fn of_units<'a>(
        &self,
        units: impl Iterator<Item = &'a PlannedUnit>,
        is_first: bool,
    ) -> DiffCounts {
        let of_unit = |unit: &'a PlannedUnit| {
            unit.raw_files
                .iter()
                .map(|path| (unit.connection.clone(), path.clone()))
        };
        let files: HashSet<(String, String)> = units.flat_map(of_unit).collect();
        let count =
            |changed: &HashSet<(String, String)>| changed.intersection(&files).count() as u64;
        DiffCounts {
            added: count(&self.added),
            modified: count(&self.modified),
            deleted: if is_first { self.counts.deleted } else { 0 },
            unchanged: self.counts.unchanged,
        }
    }
}

impl IngestPlan {
    /// The changes of all sources, for commits.
    pub fn planned_diff(&self) -> PlannedDiff {
        let files = |list: fn(&SourceDiff) -> &Vec<String>| {
            let of_source = |source: &SourcePlan| {
                let connection = source.connection.clone();
                list(&source.diff)
                    .clone()
                    .into_iter()
                    .map(move |path| (connection.clone(), path))
            };
            self.sources.iter().flat_map(of_source).collect()
        };
        PlannedDiff {
            counts: self.diff_counts(),
            added: files(|diff| &diff.added),
            modified: files(|diff| &diff.modified),
        }
    }

    /// Number of files by kind of change, in all sources, limited to the files of planned units.
    pub(crate) fn diff_counts(&self) -> DiffCounts {
        self.sources
            .iter()
            .map(|source| self.planned_diff_counts(source))
            .fold(DiffCounts::default(), |sum, of| DiffCounts {
                added: sum.added + of.added,
                modified: sum.modified + of.modified,
                deleted: sum.deleted + of.deleted,
                unchanged: sum.unchanged + of.unchanged,
            })
    }

    fn planned_diff_counts(&self, source: &SourcePlan) -> DiffCounts {
        let counts = source.diff_counts();
        if !source.is_partial {
            return counts;
        }
        let is_its = |unit: &&WorkUnit| unit.planned.connection == source.connection;
        let own: BTreeSet<&String> = self
            .units
            .iter()
            .filter(is_its)
            .flat_map(|unit| &unit.planned.raw_files)
            .collect();
        let shared = |list: &[String]| list.iter().filter(|path| own.contains(path)).count() as u64;
        DiffCounts {
            added: shared(&source.diff.added),
            modified: shared(&source.diff.modified),
            ..counts
        }
    }

    /// Keeps only the units that `selection` includes as well. The other units remain pending for the next plan.
    ///
    /// # Errors
    /// Fails when the selection names something that does not exist, or no unit of this plan.
    pub fn narrow(
        &mut self,
        project: &Project,
        selection: &UnitSelection,
    ) -> Result<Vec<WorkUnit>, PlanError> {
        check_connections_exist(project, &selection.connections)?;
        let wanted = UnitSelector::from_selection(selection)?;
        let names = &selection.connections;
        let is_wanted = |unit: &WorkUnit| {
            let connection = &unit.planned.connection;
            wanted.selects((unit.planned.ktx_key().as_str(), unit.planned.unit.as_str()))
                && (names.is_empty() || names.contains(connection))
        };
        let (kept, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.units)
            .into_iter()
            .partition(is_wanted);
        if kept.is_empty() && !selection.only.is_empty() {
            let units = known_names(rest.iter().map(|unit| unit.planned.unit.as_str()));
            return Err(PlanError::NoSuchUnit {
                patterns: selection.only.join(", "),
                units,
            });
        }
        self.units = kept;
        let leaves_documents = !selection.only.is_empty();
        for source in &mut self.sources {
            let is_wanted = names.is_empty() || names.contains(&source.connection);
            if (leaves_documents || !is_wanted) && !source.projection.documents.is_empty() {
                let documents = std::mem::take(&mut source.projection.documents);
                let paths: Vec<String> = documents.into_iter().map(|it| it.path).collect();
                let diff = std::mem::take(&mut source.diff);
                source.exclude_files(&diff, &paths);
                source.diff = diff;
            }
        }
        Ok(rest)
    }

    /// Records that the planned `unit` is not part of the run. Unless it is `done`, the next plan includes it.
    pub fn exclude_unit(&mut self, unit: &WorkUnit, done: bool) {
        let planned = &unit.planned;
        let is_its = |source: &&mut SourcePlan| {
            source.connection == planned.connection && source.adapter == planned.adapter
        };
        if let Some(source) = self.sources.iter_mut().find(is_its) {
            source.is_partial = true;
            if done {
                return;
            }
            let diff = std::mem::take(&mut source.diff);
            source.exclude_files(&diff, &planned.raw_files);
            source.diff = diff;
        }
    }
}

impl SourcePlan {
    /// Leaves out a unit that would run: its changed raw files remain pending.
    pub(super) fn exclude_files(&mut self, diff: &SourceDiff, raw_files: &[String]) {
        (self.is_complete, self.is_partial) = (false, true);
        self.pending_files.extend(
            raw_files
                .iter()
                .filter(|path| diff.is_changed(path))
                .cloned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_counts_the_files_of_its_units() {
        let file = |connection: &str, path: &str| (connection.to_owned(), path.to_owned());
        let diff = PlannedDiff {
            counts: DiffCounts {
                added: 2,
                modified: 2,
                deleted: 3,
                unchanged: 4,
            },
            added: [file("notes", "a.md"), file("notes", "shared.md")].into(),
            modified: [file("notes", "b.md"), file("other", "a.md")].into(),
        };
        let unit = |connection: &str, files: &[&str]| PlannedUnit {
            connection: connection.into(),
            raw_files: files.iter().map(|file| (*file).to_owned()).collect(),
            ..PlannedUnit::default()
        };
        let units = [
            unit("notes", &["a.md", "shared.md", "same.md"]),
            unit("notes", &["b.md", "shared.md"]),
        ];
        let counts =
            |units: &[PlannedUnit], is_first| diff.of_units(units.iter(), is_first).to_string();
        assert_eq!(
            counts(&units[..1], true),
            "+2/~0/-3/=4",
            "a file of another connection has the same path"
        );
        assert_eq!(
            counts(&units, false),
            "+2/~1/-0/=4",
            "a shared file counts once"
        );
        assert_eq!(counts(&[], false), "+0/~0/-0/=4");
    }
}
