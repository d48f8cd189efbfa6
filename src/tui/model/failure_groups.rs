//! State of the page of failure groups: its lines, and the selection that survives updates of a running run.

use super::scroll_list::ScrollList;
use crate::run::{
    failure_groups::{FailureGroup, failure_groups},
    state::{RunView, StateVersion, UnitState},
};

/// The page of failure groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureGroupsView {
    pub list: ScrollList,
    /// Groups, those with the most units first.
    pub groups: Vec<FailureGroup>,
    /// Lines of the page.
    pub lines: Vec<FailureGroupLine>,
    /// Version of the run view that `groups` and `lines` were made from.
    version: Option<StateVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureGroupLine {
    /// The cause of the group with this index.
    Group(usize),
    /// The remedy for the group with this index.
    Remedy(usize),
    /// A unit of a group.
    Unit {
        /// Index of the group.
        group: usize,
        /// Index of the unit in the state.
        unit: usize,
    },
}

impl FailureGroupLine {
    /// Index of the group that the line belongs to.
    pub(crate) fn group(self) -> usize {
        match self {
            Self::Group(group) | Self::Remedy(group) | Self::Unit { group, .. } => group,
        }
    }
}

impl FailureGroupsView {
    /// Rows above the failures, in a body of this height.
    pub(crate) fn header_rows(height: u16) -> u16 {
        if height >= 10 { 3 } else { 1 }
    }

    /// The group of the selected line.
    pub(crate) fn group(&self) -> Option<&FailureGroup> {
        self.groups.get(self.lines.get(self.list.selected)?.group())
    }

    /// The unit of the selected line; for any other line, the first unit of its group.
    pub(crate) fn unit(&self) -> Option<usize> {
        match self.lines.get(self.list.selected)? {
            FailureGroupLine::Unit { unit, .. } => Some(*unit),
            FailureGroupLine::Group(group) | FailureGroupLine::Remedy(group) => {
                self.groups.get(*group)?.units.first().copied()
            }
        }
    }

    /// True when `has` accepts a text of the line.
    pub(crate) fn line_has(&self, line: usize, units: &[UnitState], has: impl Fn(&str) -> bool) -> bool {
        match self.lines.get(line) {
            Some(FailureGroupLine::Group(group)) => {
                self.groups.get(*group).is_some_and(|group| has(&group.cause) || has(&group.example))
            }
            Some(FailureGroupLine::Remedy(group)) => {
                self.groups.get(*group).and_then(|group| group.remedy.as_deref()).is_some_and(has)
            }
            Some(FailureGroupLine::Unit { unit, .. }) => units.get(*unit).is_some_and(|unit| has(&unit.key)),
            None => false,
        }
    }

    /// Updates the page when the run view has changed. The selection stays on the same line.
    pub(crate) fn refresh(&mut self, run_view: &RunView, height: usize) {
        let moment = run_view.state.version();
        if self.version != Some(moment) {
            self.version = Some(moment);
            let groups = failure_groups(&run_view.state);
            if groups != self.groups {
                self.replace(groups);
            }
        }
        self.list.clamp(self.lines.len(), height);
    }

    fn replace(&mut self, groups: Vec<FailureGroup>) {
        let selected = self.lines.get(self.list.selected).copied();
        let pattern = self.group().map(|failures| (failures.cause.clone(), failures.pattern.clone()));
        self.lines.clear();
        for (group, failures) in groups.iter().enumerate() {
            self.lines.push(FailureGroupLine::Group(group));
            if failures.remedy.is_some() {
                self.lines.push(FailureGroupLine::Remedy(group));
            }
            self.lines.extend(failures.units.iter().map(|unit| FailureGroupLine::Unit { group, unit: *unit }));
        }
        self.groups = groups;
        let same_group = |group: usize| {
            let known = self.groups.get(group).zip(pattern.as_ref());
            known.is_some_and(|(now, (cause, pattern))| now.cause == *cause && now.pattern == *pattern)
        };
        let found = selected.and_then(|selected| {
            self.lines.iter().position(|line| match (line, selected) {
                (FailureGroupLine::Unit { unit, .. }, FailureGroupLine::Unit { unit: known, .. }) => *unit == known,
                (FailureGroupLine::Group(group), FailureGroupLine::Group(_))
                | (FailureGroupLine::Remedy(group), FailureGroupLine::Remedy(_)) => same_group(*group),
                _ => false,
            })
        });
        if let Some(found) = found {
            self.list.selected = found;
        }
    }
}
