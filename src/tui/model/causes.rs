//! The page of failures by cause: its lines, and how they stay in place while the run goes on.

use super::list::List;
use crate::run::{
    causes::{Failures, causes},
    state::{StateMoment, Story, Unit},
};

/// Failures by cause.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    /// The selected line.
    pub list: List,
    /// Failures, those of most units first.
    pub heaps: Vec<Failures>,
    /// What stands on each line.
    pub lines: Vec<CauseLine>,
    /// The moment of all that.
    moment: Option<StateMoment>,
}

/// A line of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseLine {
    /// A cause, by its place among the failures.
    Cause(usize),
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

impl CauseLine {
    /// The cause that it belongs to.
    pub fn heap(self) -> usize {
        match self {
            Self::Cause(heap) | Self::Remedy(heap) | Self::Unit { heap, .. } => heap,
        }
    }
}

impl Causes {
    /// The failures of the selected line.
    pub fn failures(&self) -> Option<&Failures> {
        self.heaps.get(self.lines.get(self.list.selected)?.heap())
    }

    /// The unit of the selected line; of a cause, its first one.
    pub fn unit(&self) -> Option<usize> {
        match self.lines.get(self.list.selected)? {
            CauseLine::Unit { unit, .. } => Some(*unit),
            CauseLine::Cause(heap) | CauseLine::Remedy(heap) => self.heaps.get(*heap)?.units.first().copied(),
        }
    }

    /// True when a line contains what `has` looks for.
    pub fn line_has(&self, line: usize, units: &[Unit], has: impl Fn(&str) -> bool) -> bool {
        match self.lines.get(line) {
            Some(CauseLine::Cause(heap)) => {
                self.heaps.get(*heap).is_some_and(|heap| has(&heap.cause) || has(&heap.example))
            }
            Some(CauseLine::Remedy(heap)) => {
                self.heaps.get(*heap).and_then(|heap| heap.remedy.as_deref()).is_some_and(has)
            }
            Some(CauseLine::Unit { unit, .. }) => units.get(*unit).is_some_and(|unit| has(&unit.key)),
            None => false,
        }
    }

    /// Brings the page up to date when the story moved. What was selected stays selected.
    pub fn settle(&mut self, story: &Story, height: usize) {
        let moment = story.state.moment();
        if self.moment != Some(moment) {
            self.moment = Some(moment);
            let heaps = causes(&story.state);
            if heaps != self.heaps {
                self.replace(heaps);
            }
        }
        self.list.settle(self.lines.len(), height);
    }

    fn replace(&mut self, heaps: Vec<Failures>) {
        let selected = self.lines.get(self.list.selected).copied();
        let pattern = self.failures().map(|failures| (failures.cause.clone(), failures.pattern.clone()));
        self.lines.clear();
        for (heap, failures) in heaps.iter().enumerate() {
            self.lines.push(CauseLine::Cause(heap));
            if failures.remedy.is_some() {
                self.lines.push(CauseLine::Remedy(heap));
            }
            self.lines.extend(failures.units.iter().map(|unit| CauseLine::Unit { heap, unit: *unit }));
        }
        self.heaps = heaps;
        let same_heap = |heap: usize| {
            let known = self.heaps.get(heap).zip(pattern.as_ref());
            known.is_some_and(|(now, (cause, pattern))| now.cause == *cause && now.pattern == *pattern)
        };
        let found = selected.and_then(|selected| {
            self.lines.iter().position(|line| match (line, selected) {
                (CauseLine::Unit { unit, .. }, CauseLine::Unit { unit: known, .. }) => *unit == known,
                (CauseLine::Cause(heap), CauseLine::Cause(_)) | (CauseLine::Remedy(heap), CauseLine::Remedy(_)) => {
                    same_heap(*heap)
                }
                _ => false,
            })
        });
        if let Some(found) = found {
            self.list.selected = found;
        }
    }
}
