//! The page of failures by cause: its lines, and how they stay in place while the run goes on.

use super::scroll_list::ScrollList;
use crate::run::{
    failure_groups::{FailureGroup, failure_groups},
    state::{RunView, StateVersion, UnitState},
};

/// Failures by cause.
#[derive(Clone, Debug, Default)]
pub struct FailureGroupsView {
    /// The selected line.
    pub list: ScrollList,
    /// Failures, those of most units first.
    pub groups: Vec<FailureGroup>,
    /// What stands on each line.
    pub lines: Vec<FailureGroupLine>,
    /// The moment of all that.
    version: Option<StateVersion>,
}

/// A line of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureGroupLine {
    /// A cause, by its place among the failures.
    Group(usize),
    /// What can be done about it.
    Remedy(usize),
    /// A unit that failed for it.
    Unit {
        /// The cause.
        heap: usize,
        /// The unit, by index.
        unit: usize,
    },
}

impl FailureGroupLine {
    /// The cause that it belongs to.
    pub fn group(self) -> usize {
        match self {
            Self::Group(heap) | Self::Remedy(heap) | Self::Unit { heap, .. } => heap,
        }
    }
}

impl FailureGroupsView {
    /// The failures of the selected line.
    pub fn group(&self) -> Option<&FailureGroup> {
        self.groups.get(self.lines.get(self.list.selected)?.group())
    }

    /// The unit of the selected line; of a cause, its first one.
    pub fn unit(&self) -> Option<usize> {
        match self.lines.get(self.list.selected)? {
            FailureGroupLine::Unit { unit, .. } => Some(*unit),
            FailureGroupLine::Group(heap) | FailureGroupLine::Remedy(heap) => {
                self.groups.get(*heap)?.units.first().copied()
            }
        }
    }

    /// True when a line contains what `has` looks for.
    pub fn line_has(&self, line: usize, units: &[UnitState], has: impl Fn(&str) -> bool) -> bool {
        match self.lines.get(line) {
            Some(FailureGroupLine::Group(heap)) => {
                self.groups.get(*heap).is_some_and(|heap| has(&heap.cause) || has(&heap.example))
            }
            Some(FailureGroupLine::Remedy(heap)) => {
                self.groups.get(*heap).and_then(|heap| heap.remedy.as_deref()).is_some_and(has)
            }
            Some(FailureGroupLine::Unit { unit, .. }) => units.get(*unit).is_some_and(|unit| has(&unit.key)),
            None => false,
        }
    }

    /// Brings the page up to date when the story moved. What was selected stays selected.
    pub fn refresh(&mut self, story: &RunView, height: usize) {
        let moment = story.state.version();
        if self.version != Some(moment) {
            self.version = Some(moment);
            let heaps = failure_groups(&story.state);
            if heaps != self.groups {
                self.replace(heaps);
            }
        }
        self.list.clamp(self.lines.len(), height);
    }

    fn replace(&mut self, heaps: Vec<FailureGroup>) {
        let selected = self.lines.get(self.list.selected).copied();
        let pattern = self.group().map(|failures| (failures.cause.clone(), failures.pattern.clone()));
        self.lines.clear();
        for (heap, failures) in heaps.iter().enumerate() {
            self.lines.push(FailureGroupLine::Group(heap));
            if failures.remedy.is_some() {
                self.lines.push(FailureGroupLine::Remedy(heap));
            }
            self.lines.extend(failures.units.iter().map(|unit| FailureGroupLine::Unit { heap, unit: *unit }));
        }
        self.groups = heaps;
        let same_heap = |heap: usize| {
            let known = self.groups.get(heap).zip(pattern.as_ref());
            known.is_some_and(|(now, (cause, pattern))| now.cause == *cause && now.pattern == *pattern)
        };
        let found = selected.and_then(|selected| {
            self.lines.iter().position(|line| match (line, selected) {
                (FailureGroupLine::Unit { unit, .. }, FailureGroupLine::Unit { unit: known, .. }) => *unit == known,
                (FailureGroupLine::Group(heap), FailureGroupLine::Group(_))
                | (FailureGroupLine::Remedy(heap), FailureGroupLine::Remedy(_)) => same_heap(*heap),
                _ => false,
            })
        });
        if let Some(found) = found {
            self.list.selected = found;
        }
    }
}
