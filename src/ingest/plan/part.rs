//! A part of a plan: what is left of it, and what calls for the rest the next time. Pure.
//!
//! Files are what later plans go by. One that two units are made of must not count as done when only one of them ran.

use std::sync::Arc;

use super::{DiffSet, PlanError, Planned, Project, Selection, SourcePlan, Wanted, WorkUnit, exist, listed};

impl Planned {
    /// Leaves only what `selection` asks for as well; the rest stays called for.
    ///
    /// # Errors
    /// When it names something that does not exist, or nothing of this plan.
    pub fn narrow(&mut self, project: &Project, selection: &Selection) -> Result<Vec<WorkUnit>, PlanError> {
        exist(project, &selection.connections)?;
        let wanted = Wanted::of(selection)?;
        let names = &selection.connections;
        let is_wanted = |unit: &WorkUnit| {
            let connection = &unit.planned.connection;
            wanted.takes(unit.planned.unit.as_str()) && (names.is_empty() || names.contains(connection))
        };
        let (kept, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.units).into_iter().partition(is_wanted);
        if kept.is_empty() && !selection.only.is_empty() {
            let units = listed(rest.iter().map(|unit| unit.planned.unit.as_str()));
            return Err(PlanError::NoSuchUnit { patterns: selection.only.join(", "), units });
        }
        self.units = kept;
        Ok(rest)
    }

    /// Notes that `unit`, which was planned, is no part of the run although nothing is done about it.
    pub fn leave_out(&mut self, unit: &WorkUnit) {
        let planned = &unit.planned;
        let is_its =
            |source: &&mut SourcePlan| source.connection == planned.connection && source.adapter == planned.adapter;
        if let Some(source) = self.sources.iter_mut().find(is_its) {
            let diff = std::mem::take(&mut source.diff);
            source.leave_out(&diff, &planned.raw_files, &planned.dependency_paths, &unit.peer_file_index);
            source.diff = diff;
        }
    }
}

impl SourcePlan {
    /// Leaves out a unit that `diff` calls for: the files that do so stay open. Those that it is made of are all that
    /// it is to be told; where none of them changed, one beside them is what it is called for by.
    pub(super) fn leave_out(
        &mut self,
        diff: &DiffSet,
        raw_files: &[String],
        dependency_paths: &[String],
        peers: &[Arc<str>],
    ) {
        self.complete = false;
        let touched = |path: &&str| diff.is_touched(path);
        let mut open: Vec<&str> = raw_files.iter().map(String::as_str).filter(touched).collect();
        if open.is_empty() {
            let beside = dependency_paths.iter().map(String::as_str).chain(peers.iter().map(|path| &**path));
            open.extend(beside.filter(touched));
        }
        self.open.extend(open.into_iter().map(str::to_owned));
    }
}
