//! State of the page of failure groups: its lines, and the selection that survives updates of a running run.

use crate::model::ScrollList;
use ingestdeck_core::{
    run::{
        failure_groups::{EXAMPLE, FailureGroup, failure_groups},
        state::{RunView, StateVersion, UnitState},
    },
    text::{self, pluralize},
};

/// Maximum number of lines of a reason.
const MAX_REASON_LINES: usize = 6;
/// Maximum length of a reason; the inspector has the complete text.
const MAX_REASON_CHARS: usize = 600;
/// Columns before a reason below its heading.
const REASON_INDENT: usize = 2;

/// The page of failure groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureGroupsPage {
    pub list: ScrollList,
    /// Groups, those with the most units first.
    pub groups: Vec<FailureGroup>,
    /// Lines of the page.
    pub lines: Vec<FailureGroupLine>,
    /// The reasons that are longer than the room in their headings, wrapped, by group.
    reasons: Vec<Vec<String>>,
    /// Version of the run view that `groups` and `lines` were made from, and the width of the lines.
    made_from: Option<(StateVersion, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureGroupLine {
    /// The cause of the group with this index.
    Group(usize),
    /// A line of the reason of a group, if it is too long for the heading.
    Reason {
        group: usize,
        /// Index of the line.
        line: usize,
    },
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
            Self::Group(group)
            | Self::Remedy(group)
            | Self::Reason { group, .. }
            | Self::Unit { group, .. } => group,
        }
    }
}

impl FailureGroupsPage {
    /// Rows above the failures, in a body of this height.
    pub(crate) fn header_rows(height: u16) -> u16 {
        if height >= 10 { 3 } else { 1 }
    }

    /// The group of the selected line.
    pub(crate) fn group(&self) -> Option<&FailureGroup> {
        self.groups.get(self.lines.get(self.list.selected)?.group())
    }

    /// The unit of the selected line; for any other line, the first unit of its group.
    pub(crate) fn selected_unit(&self) -> Option<usize> {
        match self.lines.get(self.list.selected)? {
            FailureGroupLine::Unit { unit, .. } => Some(*unit),
            FailureGroupLine::Group(group)
            | FailureGroupLine::Remedy(group)
            | FailureGroupLine::Reason { group, .. } => {
                self.groups.get(*group)?.units.first().copied()
            }
        }
    }

    /// True when `has` accepts a text of the line.
    pub(crate) fn line_has(
        &self,
        line: usize,
        units: &[UnitState],
        has: impl Fn(&str) -> bool,
    ) -> bool {
        match self.lines.get(line) {
            Some(FailureGroupLine::Group(group)) => self
                .groups
                .get(*group)
                .is_some_and(|group| has(&group.cause) || has(&group.example)),
            Some(FailureGroupLine::Reason { group, line }) => {
                self.reason_line(*group, *line).is_some_and(has)
            }
            Some(FailureGroupLine::Remedy(group)) => self
                .groups
                .get(*group)
                .and_then(|group| group.remedy.as_deref())
                .is_some_and(has),
            Some(FailureGroupLine::Unit { unit, .. }) => {
                units.get(*unit).is_some_and(|unit| has(&unit.key))
            }
            None => false,
        }
    }

    /// A line of a wrapped reason.
    pub(crate) fn reason_line(&self, group: usize, line: usize) -> Option<&str> {
        self.reasons.get(group)?.get(line).map(String::as_str)
    }

    /// The reason of a group, if it has room in its heading.
    pub(crate) fn heading_reason(&self, group: usize) -> Option<String> {
        let is_in_heading = self.reasons.get(group).is_some_and(Vec::is_empty);
        is_in_heading.then(|| text::one_row(reason(&self.groups[group]), MAX_REASON_CHARS))
    }

    /// The part of a unit's reason that the heading of its group does not show; empty if it shows all of it.
    pub(crate) fn own_reason(&self, group: usize, reason: &str, cut: &str) -> String {
        /// Minimum characters that are worth leaving out.
        const LEAST: usize = 12;
        let Some(group) = self.groups.get(group).filter(|group| group.units.len() > 1) else {
            return String::new();
        };
        let heading = text::one_row(self::reason(group), MAX_REASON_CHARS);
        let heading = heading.strip_prefix(EXAMPLE).unwrap_or(&heading);
        let (known, rest) = (heading.trim_end_matches('…'), reason);
        let is_shown = reason == heading
            || (heading.len() > known.len() && known.starts_with(rest.trim_end_matches('…')));
        if is_shown {
            return String::new();
        }
        let same = heading
            .chars()
            .zip(reason.chars())
            .take_while(|(one, other)| one == other)
            .count();
        // A word is shown as a whole.
        let start: String = reason.chars().take(same).collect();
        match start.rfind(' ') {
            Some(end) if end >= LEAST => format!("{cut}{}", &reason[end..]),
            _ => reason.to_owned(),
        }
    }

    /// Updates the page when the run view or the width has changed. The selection stays on the same line.
    pub(super) fn update(&mut self, run_view: &RunView, width: usize, height: usize) {
        let made_from = Some((run_view.state.version(), width));
        if self.made_from != made_from {
            let is_resized = self.made_from.is_none_or(|(_, before)| before != width);
            self.made_from = made_from;
            let groups = failure_groups(&run_view.state);
            if is_resized || groups != self.groups {
                self.replace(groups, width);
            }
        }
        self.list.clamp(self.lines.len(), height);
    }

    fn replace(&mut self, groups: Vec<FailureGroup>, width: usize) {
        let selected = self.lines.get(self.list.selected).copied();
        let pattern = self
            .group()
            .map(|failures| (failures.cause.clone(), failures.pattern.clone()));
        self.lines.clear();
        self.reasons = groups
            .iter()
            .map(|group| wrapped_reason(group, width))
            .collect();
        for (group, failures) in groups.iter().enumerate() {
            self.lines.push(FailureGroupLine::Group(group));
            let reason = 0..self.reasons[group].len();
            self.lines
                .extend(reason.map(|line| FailureGroupLine::Reason { group, line }));
            if failures.remedy.is_some() {
                self.lines.push(FailureGroupLine::Remedy(group));
            }
            self.lines.extend(
                failures
                    .units
                    .iter()
                    .map(|unit| FailureGroupLine::Unit { group, unit: *unit }),
            );
        }
        self.groups = groups;
        let same_group = |group: usize| {
            let known = self.groups.get(group).zip(pattern.as_ref());
            known.is_some_and(|(now, (cause, pattern))| {
                now.cause == *cause && now.pattern == *pattern
            })
        };
        let found = selected.and_then(|selected| {
            self.lines.iter().position(|line| match (line, selected) {
                    (
                        FailureGroupLine::Unit { unit, .. },
                        FailureGroupLine::Unit { unit: known, .. },
                    ) => *unit == known,
                    (FailureGroupLine::Group(group), FailureGroupLine::Group(_))
                    | (FailureGroupLine::Remedy(group), FailureGroupLine::Remedy(_))
                    | (
                        FailureGroupLine::Reason { group, line: 0 },
                        FailureGroupLine::Reason { .. },
                    ) => same_group(*group),
                    _ => false,
                })
        });
        if let Some(found) = found {
            self.list.selected = found;
        }
    }
}

/// The error that the heading of a group shows.
fn reason(group: &FailureGroup) -> &str {
    &group.reason
}

/// The heading of a group without its reason.
pub(crate) fn group_heading(group: &FailureGroup, dot: &str) -> String {
    format!(
        "{} {dot} {}  ",
        group.cause,
        pluralize(group.units.len(), "unit")
    )
}

/// The lines of a reason that is too long for its heading; no lines otherwise.
fn wrapped_reason(group: &FailureGroup, width: usize) -> Vec<String> {
    let reason = text::one_row(reason(group), MAX_REASON_CHARS);
    let room = width.saturating_sub(REASON_INDENT + text::width(&group_heading(group, "-")));
    if text::width(&reason) <= room {
        return Vec::new();
    }
    let mut lines = text::wrap(&reason, width.saturating_sub(2 * REASON_INDENT).max(1));
    lines.truncate(MAX_REASON_LINES);
    lines
}
