//! The units that the table lists: filter, order and groups.
//!
//! Updated only when the run view changes; a frame looks up the rows that it shows. A *row* counts units; a *line*
//! counts drawn lines, including the headings of groups.

use std::{cmp::Ordering, collections::HashMap};

use super::{RunTotals, is_problem};
use crate::{
    run::{
        spending::UnitSpending,
        state::{RunState, UnitState, UnitStatus},
    },
    text,
    tui::search_match::matches,
};

/// Filter, order and groups of the table of units.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitListing {
    pub filter: StatusFilter,
    /// Text that a listed unit contains.
    pub text: String,
    pub sort: UnitSort,
    /// True for the reverse order.
    pub is_reversed: bool,
    /// True when the units of each connection have a heading.
    pub is_grouped: bool,
    /// Indexes of the listed units in their order; `None` when every unit is listed in plan order.
    units: Option<Vec<usize>>,
    /// Row of each unit; `usize::MAX` for units that are not listed.
    rows: Vec<usize>,
    /// Headings, in their order.
    groups: Vec<UnitGroup>,
    /// Number of units whose names were measured, and the width of the longest name in columns.
    measured: (usize, usize),
}

/// Filter of the table by the status of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StatusFilter {
    #[default]
    All,
    /// Units that are not done and do not proceed, and silent ones.
    Problems,
    /// Running, held and waiting units.
    Running,
    /// Units that have not started.
    Queued,
    /// Units that are done.
    Done,
}

impl StatusFilter {
    /// The next filter, for a key that cycles through them.
    pub(crate) fn cycle(self) -> Self {
        match self {
            Self::All => Self::Problems,
            Self::Problems => Self::Running,
            Self::Running => Self::Queued,
            Self::Queued => Self::Done,
            Self::Done => Self::All,
        }
    }

    /// The text of the filter on screen.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Problems => "problems",
            Self::Running => "running",
            Self::Queued => "queued",
            Self::Done => "done",
        }
    }

    /// True when a unit of that status is listed.
    pub(crate) fn passes(self, status: UnitStatus) -> bool {
        match self {
            Self::All => true,
            Self::Problems => is_problem(status),
            Self::Running => status.is_in_flight() || status == UnitStatus::Waiting,
            Self::Queued => matches!(status, UnitStatus::Queued | UnitStatus::NotStarted),
            Self::Done => {
                matches!(status, UnitStatus::Succeeded | UnitStatus::Reused)
            }
        }
    }
}

/// Order of the listed units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnitSort {
    /// The order of the plan.
    #[default]
    Plan,
    /// Units that need attention first.
    State,
    /// The highest cost first.
    Cost,
    /// The longest active time first.
    Age,
    /// The most failed calls first.
    Failures,
    Key,
}

impl UnitSort {
    /// The next order, for a key that cycles through them.
    pub(crate) fn cycle(self) -> Self {
        match self {
            Self::Plan => Self::State,
            Self::State => Self::Cost,
            Self::Cost => Self::Age,
            Self::Age => Self::Failures,
            Self::Failures => Self::Key,
            Self::Key => Self::Plan,
        }
    }

    /// The text of the order on screen.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::State => "state",
            Self::Cost => "cost",
            Self::Age => "time",
            Self::Failures => "failures",
            Self::Key => "key",
        }
    }

    /// The value that units are sorted by, largest first; `None` when it is not known for a unit.
    fn weight(self, unit: &UnitState, state: &RunState) -> Option<f64> {
        let attempt = unit.latest();
        match self {
            Self::Plan | Self::Key => None,
            Self::State => RunTotals::ORDER.iter().rev().position(|known| *known == unit.status).map(ascending),
            Self::Cost => attempt.and_then(|_| UnitSpending::new(unit, state.last_entry_at).cost),
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of a run are far below 2^52")]
            Self::Age => attempt.map(|_| UnitSpending::new(unit, state.last_entry_at).active_time.0 as f64),
            Self::Failures => attempt.map(|_| failures(unit)),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a handful of states")]
fn ascending(place: usize) -> f64 {
    place as f64
}

fn failures(unit: &UnitState) -> f64 {
    unit.attempts.iter().map(|attempt| f64::from(attempt.counts.failures.max(attempt.counts.denials))).sum()
}

/// The heading of the units of one connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnitGroup {
    /// Name of the connection; empty for units without one.
    pub name: String,
    /// Row of its first unit.
    pub row: usize,
    pub units: usize,
    /// Units by status, in the order of [`RunTotals::ORDER`].
    pub statuses: [usize; RunTotals::ORDER.len()],
    /// Cost in dollars of the attempts that report one.
    pub cost: Option<f64>,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TableLine<'a> {
    Group(&'a UnitGroup),
    Unit {
        row: usize,
        /// Its index in the state.
        unit: usize,
    },
}

impl UnitListing {
    /// True when some units are hidden.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filter != StatusFilter::All || !self.text.is_empty()
    }

    /// True when the table lists every unit in plan order.
    fn is_plain(&self) -> bool {
        !self.is_filtered() && self.sort == UnitSort::Plan && !self.is_reversed && !self.is_grouped
    }

    /// Updates the listing from `state`.
    pub(crate) fn refresh(&mut self, state: &RunState) {
        self.measure(state);
        self.groups.clear();
        self.rows.clear();
        if self.is_plain() {
            self.units = None;
            return;
        }
        let names = if self.is_grouped { connections(state) } else { Vec::new() };
        let passing = state.units.iter().enumerate().filter(|(_, unit)| self.passes(unit));
        let mut entries: Vec<SortEntry> = passing
            .map(|(index, unit)| SortEntry {
                group: names.get(index).map_or(0, |(group, _)| *group),
                weight: self.sort.weight(unit, state),
                unit: index,
            })
            .collect();
        entries.sort_by(|a, b| self.order(state, a, b));
        self.rows = vec![usize::MAX; state.units.len()];
        for (row, entry) in entries.iter().enumerate() {
            self.rows[entry.unit] = row;
            if self.is_grouped {
                let unit = &state.units[entry.unit];
                if row == 0 || entries[row - 1].group != entry.group {
                    let name = names.get(entry.unit).map_or("", |(_, name)| *name).to_owned();
                    self.groups.push(UnitGroup {
                        name,
                        row,
                        units: 0,
                        statuses: [0; RunTotals::ORDER.len()],
                        cost: None,
                    });
                }
                if let Some(group) = self.groups.last_mut() {
                    group.count(unit, state);
                }
            }
        }
        self.units = Some(entries.into_iter().map(|entry| entry.unit).collect());
    }

    /// Measures the names of new units. Widths are kept when the user seeks back, so that panes keep their places.
    fn measure(&mut self, state: &RunState) {
        let (measured, longest) = self.measured;
        // The first unit of a capture may still change its name.
        let new = state.units.get(if measured <= 1 { 0 } else { measured }..).unwrap_or_default();
        let new = new.iter().map(|unit| text::width(&unit.key)).max().unwrap_or_default();
        self.measured = (measured.max(state.units.len()), longest.max(new));
    }

    /// Width of the longest unit name, in columns.
    pub(crate) fn longest(&self) -> usize {
        self.measured.1
    }

    fn passes(&self, unit: &UnitState) -> bool {
        let planned = unit.planned.as_deref();
        let texts = [
            Some(unit.key.as_str()),
            planned.and_then(|planned| planned.label.as_deref()),
            planned.map(|planned| planned.connection.as_str()),
            planned.map(|planned| planned.adapter.as_str()),
        ];
        self.filter.passes(unit.status)
            && (self.text.is_empty() || texts.into_iter().flatten().any(|text| matches(text, &self.text)))
    }

    fn order(&self, state: &RunState, a: &SortEntry, b: &SortEntry) -> Ordering {
        let by_sort = || {
            let order = match (self.sort, a.weight, b.weight) {
                (UnitSort::Plan, ..) => a.unit.cmp(&b.unit),
                (UnitSort::Key, ..) => state.units[a.unit].key.cmp(&state.units[b.unit].key),
                (_, Some(a), Some(b)) => b.total_cmp(&a),
                // Unknown values are last in both directions.
                (_, a, b) => return b.is_some().cmp(&a.is_some()),
            };
            if self.is_reversed { order.reverse() } else { order }
        };
        a.group.cmp(&b.group).then_with(by_sort).then(a.unit.cmp(&b.unit))
    }

    /// Number of rows when there are `units` units.
    pub(crate) fn len(&self, units: usize) -> usize {
        self.units.as_ref().map_or(units, Vec::len)
    }

    /// The unit of a row.
    pub(crate) fn unit(&self, row: usize) -> Option<usize> {
        self.units.as_ref().map_or(Some(row), |units| units.get(row).copied())
    }

    /// The row of a unit, if it is listed.
    pub(crate) fn row(&self, unit: usize) -> Option<usize> {
        match &self.units {
            None => Some(unit),
            Some(_) => self.rows.get(unit).copied().filter(|row| *row != usize::MAX),
        }
    }

    /// Number of lines when there are `units` units.
    pub(crate) fn lines(&self, units: usize) -> usize {
        self.len(units) + self.groups.len()
    }

    /// The line of a row.
    pub(crate) fn line_of(&self, row: usize) -> usize {
        row + self.groups.partition_point(|group| group.row <= row)
    }

    /// True when the line above that of `row` is a heading.
    pub(crate) fn starts_group(&self, row: usize) -> bool {
        self.groups.binary_search_by_key(&row, |group| group.row).is_ok()
    }

    /// The heading or unit on a line.
    pub(crate) fn at(&self, line: usize) -> Option<TableLine<'_>> {
        // The line of the heading of group `i` is its row plus the number of headings before it.
        let (mut low, mut high) = (0, self.groups.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.groups[middle].row + middle <= line { low = middle + 1 } else { high = middle }
        }
        if let Some(group) = low.checked_sub(1).and_then(|last| self.groups.get(last))
            && group.row + low - 1 == line
        {
            return Some(TableLine::Group(group));
        }
        let row = line - low;
        self.unit(row).map(|unit| TableLine::Unit { row, unit })
    }
}

/// Sort key of a unit.
#[derive(Clone, Copy, Debug)]
struct SortEntry {
    group: usize,
    weight: Option<f64>,
    unit: usize,
}

impl UnitGroup {
    fn count(&mut self, unit: &UnitState, state: &RunState) {
        self.units += 1;
        if let Some(place) = RunTotals::ORDER.iter().position(|known| *known == unit.status) {
            self.statuses[place] += 1;
        }
        if let Some(cost) = UnitSpending::new(unit, state.last_entry_at).cost {
            self.cost = Some(self.cost.unwrap_or_default() + cost);
        }
    }
}

/// For each unit, the number and the name of its connection, numbered in the order of appearance.
fn connections(state: &RunState) -> Vec<(usize, &str)> {
    let mut known = HashMap::new();
    let names = state.units.iter().map(|unit| match &unit.planned {
        Some(planned) => planned.connection.as_str(),
        None => "",
    });
    names
        .map(|name| {
            let next = known.len();
            (*known.entry(name).or_insert(next), name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        run::state::{AttemptCounts, AttemptState, HoldMode},
        tape::{Millis, note::PlannedUnit},
    };

    fn unit(key: &str, connection: &str, status: UnitStatus, cost: Option<f64>) -> UnitState {
        let planned = PlannedUnit { unit: key.into(), connection: connection.into(), ..PlannedUnit::default() };
        let attempt = AttemptState {
            ended_at: Some(Millis(5)),
            counts: AttemptCounts { cost_usd: cost, ..AttemptCounts::default() },
            ..AttemptState::default()
        };
        let attempts = if status == UnitStatus::Queued { Vec::new() } else { vec![attempt] };
        let planned = Some(Arc::new(planned));
        UnitState { key: key.into(), planned, status, attempts, retry_at: None, hold_mode: HoldMode::Off }
    }

    fn state() -> RunState {
        let units = vec![
            unit("pear", "docs", UnitStatus::Succeeded, Some(0.2)),
            unit("apple", "dbt", UnitStatus::Failed, None),
            unit("fig", "docs", UnitStatus::Queued, None),
            unit("date", "dbt", UnitStatus::Running, Some(0.5)),
        ];
        RunState { units, ..RunState::default() }
    }

    fn listed(listing: &mut UnitListing, state: &RunState) -> Vec<String> {
        listing.refresh(state);
        let lines = (0..listing.lines(state.units.len())).filter_map(|line| listing.at(line));
        lines
            .map(|line| match line {
                TableLine::Group(group) => format!("{} {}", group.name, group.units),
                TableLine::Unit { unit, .. } => {
                    state.units.get(unit).map(|unit| unit.key.to_string()).unwrap_or_default()
                }
            })
            .collect()
    }

    #[test]
    fn unknown_costs_sort_last_in_both_orders() {
        let mut listing = UnitListing { sort: UnitSort::Cost, ..UnitListing::default() };
        assert_eq!(listed(&mut listing, &state()), ["date", "pear", "apple", "fig"]);
        listing.is_reversed = true;
        assert_eq!(listed(&mut listing, &state()), ["pear", "date", "apple", "fig"]);
    }

    #[test]
    fn state_order_puts_problems_first() {
        let mut listing = UnitListing { sort: UnitSort::State, ..UnitListing::default() };
        assert_eq!(listed(&mut listing, &state()), ["apple", "date", "pear", "fig"]);
    }

    #[test]
    fn groups_respect_the_filter() {
        let mut listing = UnitListing { sort: UnitSort::Key, is_grouped: true, ..UnitListing::default() };
        assert_eq!(listed(&mut listing, &state()), ["docs 2", "fig", "pear", "dbt 2", "apple", "date"]);
        listing.text = "DBT".into();
        assert!(listed(&mut listing, &state()).is_empty());
        listing.text = "dbt".into();
        assert_eq!(listed(&mut listing, &state()), ["dbt 2", "apple", "date"]);
        listing.filter = StatusFilter::Problems;
        assert_eq!(listed(&mut listing, &state()), ["dbt 1", "apple"]);
    }

    proptest! {
        #[test]
        fn rows_lines_and_units_agree(
            kinds in prop::collection::vec((0..4_u8, 0..9_usize, prop::option::of(0.0..9.0_f64)), 0..60),
            sort in prop::sample::select(vec![UnitSort::Plan, UnitSort::State, UnitSort::Cost, UnitSort::Age, UnitSort::Failures, UnitSort::Key]),
            filter in prop::sample::select(vec![StatusFilter::All, StatusFilter::Problems, StatusFilter::Running, StatusFilter::Queued, StatusFilter::Done]),
            reverse in any::<bool>(),
            grouped in any::<bool>(),
        ) {
            let units = kinds.iter().enumerate().map(|(index, (connection, status, cost))| {
                unit(&format!("u{}", index * 7 % 13), &format!("c{connection}"), RunTotals::ORDER[*status], *cost)
            });
            let state = RunState { units: units.collect(), ..RunState::default() };
            let mut listing = UnitListing { filter, sort, is_reversed: reverse, is_grouped: grouped, ..UnitListing::default() };
            listing.refresh(&state);
            let all = state.units.len();
            let passing = state.units.iter().filter(|unit| filter.passes(unit.status)).count();
            prop_assert_eq!(listing.len(all), passing);
            let mut rows = 0;
            for line in 0..listing.lines(all) {
                match listing.at(line) {
                    Some(TableLine::Unit { row, unit }) => {
                        prop_assert_eq!(row, rows);
                        prop_assert_eq!(listing.unit(row), Some(unit));
                        prop_assert_eq!(listing.row(unit), Some(row));
                        prop_assert_eq!(listing.line_of(row), line);
                        rows += 1;
                    }
                    Some(TableLine::Group(group)) => {
                        prop_assert_eq!(group.row, rows);
                        prop_assert!(listing.starts_group(rows));
                        prop_assert_eq!(group.statuses.iter().sum::<usize>(), group.units);
                    }
                    None => prop_assert!(false, "line {} is empty", line),
                }
            }
            prop_assert_eq!(rows, passing);
        }
    }
}
