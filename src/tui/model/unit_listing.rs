//! The units that the table lists: filter, order, groups and folds.
//!
//! Updated only when the run view, the settings or the selection change; a frame looks up the lines that it shows. A
//! *rank* counts listed units, also folded ones; a *line* counts drawn lines, including headings and progress bars.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde::{Deserialize, Serialize};

use super::{RunTotals, UnitFilter};
use ingestdeck_core::{
    run::{
        failure_groups::{EXAMPLE, FailureGroup, failure_groups},
        spending::{CostFigure, UnitSpending},
        state::{RECONCILE_KEY, RunState, UnitNeed, UnitState, UnitStatus},
    },
    text,
};

/// Number of units up to which the table has no headings: all of them fit on a screen.
const MAX_UNITS_WITHOUT_HEADINGS: usize = 8;
/// Number of queued units that are listed while their group is folded.
const FOLDED_NEXT_UNITS: usize = 3;
/// Number of failed units up to which they are listed without their causes.
const MAX_FAILURES_WITHOUT_CAUSES: usize = 6;
/// Number of running units that are listed in a table that is too long for its pane.
const FOLDED_RUNNING_UNITS: usize = 4;

/// Columns from which a name may be an outlier, and the share of names that may be.
const LONG_NAME_COLUMNS: usize = 32;
const OUTLIER_SHARE: usize = 8;

/// Filter, order and groups of the table of units.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitListing {
    pub filter: StatusFilter,
    /// Names and conditions that a listed unit fulfils.
    pub text: UnitFilter,
    pub sort: UnitSort,
    /// True for the reverse order.
    pub is_reversed: bool,
    pub grouping: Grouping,
    /// Groups that the user folded or unfolded, contrary to their default.
    toggled: HashSet<GroupKey>,
    /// Indexes of the listed units in their order, also those in folded groups.
    order: Vec<usize>,
    /// Rank of each unit; `usize::MAX` for units that are not listed.
    ranks: Vec<usize>,
    /// Groups with a heading, in their order.
    groups: Vec<UnitGroup>,
    /// Progress of each connection, in the order of the plan.
    connections: Vec<ConnectionProgress>,
    causes: FailureCauses,
    /// Headings, units and progress bars, from the top.
    lines: Vec<Line>,
    /// Line of each unit; `usize::MAX` for units that are not drawn.
    unit_lines: Vec<usize>,
    line_state: LineState,
    names: NameWidths,
}

/// The widths of the names of units.
#[derive(Clone, Debug, Default)]
struct NameWidths {
    /// Number of units whose names were measured.
    measured: usize,
    /// Numbers of names, by their width in columns.
    counts: BTreeMap<usize, usize>,
}

/// An arrangement of the table that can be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TableSettings {
    filter: StatusFilter,
    sort: UnitSort,
    is_reversed: bool,
    grouping: Grouping,
    /// Groups that the user folded or unfolded, in no order.
    toggled: HashSet<GroupKey>,
    /// Names and conditions that a listed unit fulfils; only of a saved view.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) text: String,
    /// Arrangements that commands show by name; only of a project.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) views: BTreeMap<String, Self>,
}

impl TableSettings {
    /// The arrangement as a project keeps it: with its saved views, without the typed text.
    pub(crate) fn of_project(self, views: BTreeMap<String, Self>) -> Self {
        Self {
            text: String::new(),
            views,
            ..self
        }
    }
}

/// How the table is divided into groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Grouping {
    /// Units that need a person, running units, the next ones, and those that are done.
    #[default]
    Need,
    /// The units of each connection.
    Connection,
    /// A list without groups, in the order of the plan.
    Flat,
}

impl Grouping {
    /// The next grouping, for a key that cycles through them.
    pub(crate) fn cycle(self) -> Self {
        match self {
            Self::Need => Self::Connection,
            Self::Connection => Self::Flat,
            Self::Flat => Self::Need,
        }
    }
}

/// Filter of the table by the status of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StatusFilter {
    #[default]
    All,
    /// Units that need a person.
    NeedsYou,
    /// Units that are not done.
    NotDone,
    /// Running and waiting units.
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
            Self::All => Self::NeedsYou,
            Self::NeedsYou => Self::NotDone,
            Self::NotDone => Self::Running,
            Self::Running => Self::Queued,
            Self::Queued => Self::Done,
            Self::Done => Self::All,
        }
    }

    /// The text of the filter on screen.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::NeedsYou => UnitNeed::Person.label(),
            Self::NotDone => "not done",
            Self::Running => UnitNeed::Running.label(),
            Self::Queued => UnitNeed::Next.label(),
            Self::Done => UnitNeed::Done.label(),
        }
    }

    /// True when a unit of that status is listed.
    pub(crate) fn passes(self, status: UnitStatus) -> bool {
        match self {
            Self::All => true,
            Self::NeedsYou => status.need() == UnitNeed::Person,
            Self::NotDone => status.need() != UnitNeed::Done,
            // A held or silent unit runs, too.
            Self::Running => status.is_in_flight() || status == UnitStatus::Waiting,
            Self::Queued => status.need() == UnitNeed::Next,
            Self::Done => status.need() == UnitNeed::Done,
        }
    }
}

/// Order of the listed units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnitSort {
    /// By need, then in the order of the plan.
    #[default]
    Plan,
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
            Self::Plan => Self::Cost,
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
            Self::Cost => {
                attempt.and_then(|_| UnitSpending::new(unit, state.last_entry_at).shown.usd)
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "milliseconds of a run are far below 2^52"
            )]
            Self::Age => attempt.map(|attempt| {
                let end = attempt.ended_at.unwrap_or(state.last_entry_at);
                end.since(attempt.started_at).0 as f64
            }),
            Self::Failures => attempt
                .map(|attempt| f64::from(attempt.counts.failures.max(attempt.counts.denials))),
        }
    }
}

/// What the units of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GroupKey {
    Need(UnitNeed),
    /// Name of the connection; empty for units without one.
    Connection(String),
    /// What failed units have in common; within those that need a person.
    Cause(String),
}

impl GroupKey {
    /// False for causes, which belong to one run, and for the units that need a person: the next run must show them.
    fn can_be_kept(&self) -> bool {
        !matches!(self, Self::Cause(_) | Self::Need(UnitNeed::Person))
    }
}

/// A group of units with its heading.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnitGroup {
    pub key: GroupKey,
    /// Rank of its first unit.
    rank: usize,
    pub units: usize,
    /// Number of units that its fold hides.
    pub hidden: usize,
    /// Number of causes that divide it.
    pub causes: usize,
    /// Why its units failed; empty unless it is a cause.
    pub reason: String,
    pub counts: UnitCounts,
}

/// What the lines of the table depend on.
#[derive(Clone, Copy, Debug, Default)]
struct LineState {
    /// The unit that the lines keep visible although its group is folded, and the rows of the pane; `None` before the lines
    /// are known.
    made_for: Option<(Option<usize>, usize)>,
    /// True if not all lines have room in the pane.
    is_short: bool,
    /// True to list all running units also then.
    shows_all_running: bool,
}

/// The failed units by cause, as of the last change of them.
#[derive(Clone, Debug, Default)]
struct FailureCauses {
    /// Failed units, and a hash of why each failed.
    failed: Vec<(usize, u64)>,
    /// Groups of failed units, the largest first; none if there are few.
    groups: Vec<FailureGroup>,
    /// Number of the group of each unit, from 1 on.
    numbers: HashMap<usize, usize>,
}

impl FailureCauses {
    /// Units that run, such as held and silent ones, are not failed.
    fn refresh(&mut self, state: &RunState) {
        let failed: Vec<_> = state
            .units
            .iter()
            .enumerate()
            .filter(|(_, unit)| has_failed(unit.status))
            .map(|(index, unit)| (index, hash_of_failure(state, unit)))
            .collect();
        if failed == self.failed {
            return;
        }
        self.failed = failed;
        self.numbers.clear();
        self.groups = match self.failed.len() {
            0..=MAX_FAILURES_WITHOUT_CAUSES => Vec::new(),
            _ => failure_groups(state),
        };
        for group in &mut self.groups {
            let failed = |unit: &usize| {
                state
                    .units
                    .get(*unit)
                    .is_some_and(|unit| has_failed(unit.status))
            };
            group.units.retain(failed);
        }
        self.groups.retain(|group| !group.units.is_empty());
        self.groups.sort_by_key(|group| Reverse(group.units.len()));
        for (number, group) in (1..).zip(&self.groups) {
            self.numbers
                .extend(group.units.iter().map(|unit| (*unit, number)));
        }
    }

    /// The number of the cause of a unit; 0 if it has none.
    fn number(&self, unit: usize) -> usize {
        self.numbers.get(&unit).copied().unwrap_or_default()
    }

    /// The cause with a number, if it has several units.
    fn shared(&self, number: usize) -> Option<&FailureGroup> {
        let group = self.groups.get(number.checked_sub(1)?)?;
        (group.units.len() > 1).then_some(group)
    }
}

fn hash_of_failure(state: &RunState, unit: &UnitState) -> u64 {
    let mut hasher = DefaultHasher::new();
    let cause = state.verdict(unit).map(|verdict| verdict.cause.label());
    (unit.status.as_str(), cause, state.failure_reason(unit)).hash(&mut hasher);
    hasher.finish()
}

fn has_failed(status: UnitStatus) -> bool {
    status.need() == UnitNeed::Person && !status.is_in_flight()
}

impl UnitGroup {
    fn new(key: GroupKey, rank: usize) -> Self {
        Self {
            key,
            rank,
            units: 0,
            hidden: 0,
            causes: 0,
            reason: String::new(),
            counts: UnitCounts::default(),
        }
    }

    fn add(&mut self, unit: &UnitState, state: &RunState) {
        self.units += 1;
        self.counts.add(unit, state);
    }

    fn is_cause(&self) -> bool {
        matches!(self.key, GroupKey::Cause(_))
    }

    /// Rank of its first unit.
    pub(crate) fn first_rank(&self) -> usize {
        self.rank
    }
}

/// The units of a connection, listed or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConnectionProgress {
    /// Empty for units without a connection.
    pub name: String,
    pub units: usize,
    pub counts: UnitCounts,
}

/// Statuses and costs of several units.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UnitCounts {
    /// Units by status, in the order of [`RunTotals::ORDER`].
    pub statuses: [usize; RunTotals::ORDER.len()],
    /// Cost of the attempts whose cost is known or estimated.
    pub cost: CostFigure,
}

impl UnitCounts {
    fn add(&mut self, unit: &UnitState, state: &RunState) {
        if let Some(place) = RunTotals::ORDER
            .iter()
            .position(|known| *known == unit.status)
        {
            self.statuses[place] += 1;
        }
        let cost = UnitSpending::new(unit, state.last_entry_at).shown;
        if let Some(usd) = cost.usd.filter(|_| !unit.attempts.is_empty()) {
            self.cost.usd = Some(self.cost.usd.unwrap_or_default() + usd);
            self.cost.is_estimate |= cost.is_estimate;
        }
    }

    /// Number of units that need nothing more.
    pub(crate) fn finished(&self) -> usize {
        let statuses = RunTotals::ORDER.iter().zip(self.statuses);
        statuses
            .filter(|(status, _)| status.is_finished() && **status != UnitStatus::NotStarted)
            .map(|(_, n)| n)
            .sum()
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TableLine<'a> {
    Group(&'a UnitGroup),
    /// Index of a unit in the state.
    Unit(usize),
    Connection(&'a ConnectionProgress),
}

/// A line by the index of what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Group(usize),
    Unit(usize),
    Connection(usize),
}

impl UnitListing {
    /// True when some units are hidden by a filter.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filter != StatusFilter::All || !self.text.is_empty()
    }

    /// What the filters leave, as ` failed "refund" only`; empty without a filter.
    pub(crate) fn filter_words(&self) -> String {
        if !self.is_filtered() {
            return String::new();
        }
        let state = match self.filter {
            StatusFilter::All => String::new(),
            filter => format!(" {}", filter.label()),
        };
        let text = match self.text.as_str() {
            "" => String::new(),
            text => format!(" \"{}\"", text::printable(text, 20)),
        };
        format!("{state}{text} only")
    }

    /// True when units are ordered by need: an explicit order replaces it.
    pub(crate) fn is_by_need(&self) -> bool {
        self.grouping == Grouping::Need && self.sort == UnitSort::Plan && !self.is_reversed
    }

    /// Updates order and groups from `state`.
    pub(crate) fn refresh(&mut self, state: &RunState) {
        self.measure(state);
        if self.is_by_need() {
            self.causes.refresh(state);
        }
        let names = connections(state);
        let entries = self.sorted(state, &names);
        self.ranks = vec![usize::MAX; state.units.len()];
        for (rank, entry) in entries.iter().enumerate() {
            self.ranks[entry.unit] = rank;
        }
        self.group(state, &entries, &names);
        self.order = entries.into_iter().map(|entry| entry.unit).collect();
        self.connections = progress(state, &names);
        self.line_state.made_for = None;
    }

    /// The listed units in their order.
    fn sorted(&self, state: &RunState, names: &[(usize, &str)]) -> Vec<SortEntry> {
        let by_need = self.is_by_need();
        let passing = state
            .units
            .iter()
            .enumerate()
            .filter(|(_, unit)| self.passes(state, unit));
        let mut entries: Vec<SortEntry> = passing
            .map(|(index, unit)| SortEntry {
                group: match self.grouping {
                    Grouping::Connection => names.get(index).map_or(0, |(group, _)| *group),
                    _ if by_need => unit.status.need() as usize,
                    Grouping::Need | Grouping::Flat => 0,
                },
                cause: if by_need {
                    self.causes.number(index)
                } else {
                    0
                },
                urgency: if by_need { unit.status.urgency() } else { 0 },
                weight: self.sort.weight(unit, state),
                unit: index,
            })
            .collect();
        entries.sort_by(|a, b| self.order(state, a, b));
        entries
    }

    /// Divides sorted units into groups with headings.
    fn group(&mut self, state: &RunState, entries: &[SortEntry], names: &[(usize, &str)]) {
        self.groups.clear();
        let has_headings = match self.grouping {
            Grouping::Connection => true,
            Grouping::Need => {
                let several = entries
                    .first()
                    .zip(entries.last())
                    .is_some_and(|(a, b)| a.group != b.group);
                let has_causes = || {
                    let mut entries = entries.iter();
                    entries.any(|entry| self.causes.shared(entry.cause).is_some())
                };
                self.is_by_need()
                    && state.units.len() > MAX_UNITS_WITHOUT_HEADINGS
                    && (several || has_causes())
            }
            Grouping::Flat => false,
        };
        if !has_headings {
            return;
        }
        for (rank, entry) in entries.iter().enumerate() {
            let unit = &state.units[entry.unit];
            let before = rank.checked_sub(1).map(|rank| &entries[rank]);
            if before.is_none_or(|before| before.group != entry.group) {
                let key = match self.grouping {
                    Grouping::Connection => GroupKey::Connection(
                        names
                            .get(entry.unit)
                            .map_or("", |(_, name)| *name)
                            .to_owned(),
                    ),
                    Grouping::Need | Grouping::Flat => GroupKey::Need(unit.status.need()),
                };
                self.groups.push(UnitGroup::new(key, rank));
            }
            let cause = self.causes.shared(entry.cause);
            let is_first = before.is_none_or(|before| before.cause != entry.cause);
            if let Some(cause) = cause.filter(|_| is_first) {
                let key = format!("{}: {}", cause.cause, cause.pattern);
                let mut group = UnitGroup::new(GroupKey::Cause(key), rank);
                let reason = cause.reason.strip_prefix(EXAMPLE);
                group.reason = reason.unwrap_or(&cause.reason).to_owned();
                self.groups.push(group);
            }
            if let Some(group) = self.groups.last_mut().filter(|_| cause.is_some()) {
                group.add(unit, state);
            }
            if let Some(group) = self.groups.iter_mut().rfind(|group| !group.is_cause()) {
                group.causes += usize::from(cause.is_some() && is_first);
                group.add(unit, state);
            }
        }
    }

    /// Updates the lines for a pane of `rows`. `selected` stays visible when its group is folded. If not all lines have room,
    /// less is shown of the units that run and of the next ones.
    pub(crate) fn fold(&mut self, selected: Option<usize>, rows: usize) {
        if self.line_state.made_for == Some((selected, rows)) {
            return;
        }
        self.arrange_lines(selected, false);
        self.line_state.is_short = self.lines.len() > rows;
        if self.line_state.is_short {
            self.arrange_lines(selected, true);
        }
        self.line_state.made_for = Some((selected, rows));
    }

    fn arrange_lines(&mut self, selected: Option<usize>, is_short: bool) {
        self.lines.clear();
        self.unit_lines = vec![usize::MAX; self.ranks.len()];
        if self.groups.is_empty() {
            self.push_units(0, self.order.len(), self.order.len(), selected);
        }
        for index in 0..self.groups.len() {
            if !self.groups[index].is_cause() {
                self.push_group(index, selected, is_short);
            }
        }
    }

    /// Adds the lines of a group, with the causes that divide it.
    fn push_group(&mut self, index: usize, selected: Option<usize>, is_short: bool) {
        let UnitGroup {
            rank,
            units,
            causes,
            ..
        } = self.groups[index];
        let shown = self.shown_units(&self.groups[index], is_short);
        self.lines.push(Line::Group(index));
        if causes == 0 || shown == 0 {
            let drawn = self.push_units(rank, units, shown, selected);
            self.groups[index].hidden = units - drawn;
        } else {
            let mut next = rank;
            for cause in index + 1..=index + causes {
                let (from, members) = (self.groups[cause].rank, self.groups[cause].units);
                let shown = self.shown_units(&self.groups[cause], is_short);
                self.push_units(next, from - next, usize::MAX, selected);
                self.lines.push(Line::Group(cause));
                let drawn = self.push_units(from, members, shown, selected);
                self.groups[cause].hidden = members - drawn;
                next = from + members;
            }
            self.push_units(next, rank + units - next, usize::MAX, selected);
            self.groups[index].hidden = 0;
        }
        let is_done = self.groups[index].key == GroupKey::Need(UnitNeed::Done);
        if is_done && shown < units && self.connections.len() > 1 {
            self.lines
                .extend((0..self.connections.len()).map(Line::Connection));
        }
    }

    /// Adds the first `shown` units of a group, and the selected one. Returns their number.
    fn push_units(
        &mut self,
        rank: usize,
        units: usize,
        shown: usize,
        selected: Option<usize>,
    ) -> usize {
        let before = self.lines.len();
        for (place, unit) in self.order[rank..rank + units].iter().enumerate() {
            if place < shown || Some(*unit) == selected {
                self.unit_lines[*unit] = self.lines.len();
                self.lines.push(Line::Unit(*unit));
            }
        }
        self.lines.len() - before
    }

    /// Number of units that a group shows. A filter shows all that pass.
    fn shown_units(&self, group: &UnitGroup, is_short: bool) -> usize {
        if self.is_filtered() {
            return group.units;
        }
        match (&group.key, self.toggled.contains(&group.key)) {
            (GroupKey::Need(UnitNeed::Running), false)
                if is_short && !self.line_state.shows_all_running =>
            {
                group.units.min(FOLDED_RUNNING_UNITS)
            }
            (GroupKey::Need(UnitNeed::Next), false) if !is_short => {
                group.units.min(FOLDED_NEXT_UNITS)
            }
            (key, _) if self.is_folded(key) => 0,
            _ => group.units,
        }
    }

    fn is_folded(&self, key: &GroupKey) -> bool {
        let by_default = matches!(
            key,
            GroupKey::Need(UnitNeed::Next | UnitNeed::Done) | GroupKey::Cause(_)
        );
        by_default != self.toggled.contains(key)
    }

    /// Folds or unfolds a group; `None` changes it. Returns false if it is as wanted already, or if a filter unfolds all.
    pub(crate) fn set_folded(&mut self, key: &GroupKey, folded: Option<bool>) -> bool {
        if self.is_filtered() {
            return false;
        }
        if *key == GroupKey::Need(UnitNeed::Running) {
            let is_partial = self.line_state.is_short
                && !self.line_state.shows_all_running
                && !self.is_folded(key);
            if is_partial && folded != Some(true) {
                (self.line_state.shows_all_running, self.line_state.made_for) = (true, None);
                return true;
            }
            self.line_state.shows_all_running = folded == Some(false);
        }
        if folded == Some(self.is_folded(key)) {
            return false;
        }
        if !self.toggled.remove(key) {
            self.toggled.insert(key.clone());
        }
        self.line_state.made_for = None;
        true
    }

    /// The arrangement of the table, without saved views.
    pub(crate) fn settings(&self) -> TableSettings {
        TableSettings {
            text: self.text.to_string(),
            views: BTreeMap::new(),
            filter: self.filter,
            sort: self.sort,
            is_reversed: self.is_reversed,
            grouping: self.grouping,
            toggled: self
                .toggled
                .iter()
                .filter(|key| key.can_be_kept())
                .cloned()
                .collect(),
        }
    }

    /// Restores an arrangement of the table.
    pub(crate) fn arrange(&mut self, settings: TableSettings) {
        let TableSettings {
            filter,
            sort,
            is_reversed,
            grouping,
            toggled,
            text,
            views: _,
        } = settings;
        (self.filter, self.sort, self.is_reversed, self.grouping) =
            (filter, sort, is_reversed, grouping);
        self.text = text.into();
        (self.toggled, self.line_state.made_for) = (toggled, None);
    }

    /// The innermost group of a unit, if it has a heading.
    pub(crate) fn group_of(&self, unit: usize) -> Option<&UnitGroup> {
        let rank = self.rank(unit)?;
        let is_of = |group: &&UnitGroup| {
            (group.rank..group.rank + group.units).contains(&rank)
                && self.heading_line(&group.key).is_some()
        };
        self.groups.iter().rfind(is_of)
    }

    /// The cause whose heading is the first line of the units that need a person.
    pub(crate) fn first_cause(&self) -> Option<&UnitGroup> {
        let place = self.groups.iter().position(UnitGroup::is_cause)?;
        let (above, cause) = (&self.groups[place.checked_sub(1)?], &self.groups[place]);
        let is_first = above.rank == cause.rank && self.shown_units(above, false) > 0;
        is_first.then_some(cause)
    }

    /// The group with a key, if it has a heading now.
    pub(crate) fn find_group(&self, key: &GroupKey) -> Option<&UnitGroup> {
        self.groups.iter().find(|group| group.key == *key)
    }

    /// Indexes of the units of a group, in their order.
    pub(crate) fn units_of(&self, group: &UnitGroup) -> &[usize] {
        self.order
            .get(group.rank..group.rank + group.units)
            .unwrap_or_default()
    }

    /// Measures the names of new units. Widths are kept when the user seeks back, so that panes keep their places.
    fn measure(&mut self, state: &RunState) {
        let names = &mut self.names;
        if names.measured <= 1 {
            // The first unit of a capture may still change its name.
            *names = NameWidths::default();
        }
        for unit in state.units.get(names.measured..).unwrap_or_default() {
            *names.counts.entry(text::width(&unit.key)).or_default() += 1;
        }
        names.measured = names.measured.max(state.units.len());
    }

    /// Width of the longest unit name, in columns. A few names that are much longer than the others do not count.
    pub(crate) fn longest(&self) -> usize {
        let mut outliers = self.names.measured / OUTLIER_SHARE;
        let mut widths = self.names.counts.iter().rev();
        let longest = widths.find(|(width, names)| {
            let is_outlier = **width > LONG_NAME_COLUMNS && **names <= outliers;
            outliers = outliers.saturating_sub(**names);
            !is_outlier
        });
        longest.map_or(0, |(width, _)| *width)
    }

    fn passes(&self, state: &RunState, unit: &UnitState) -> bool {
        self.filter.passes(unit.status) && (self.text.is_empty() || self.text.passes(state, unit))
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
            if self.is_reversed {
                order.reverse()
            } else {
                order
            }
        };
        let group = a.group.cmp(&b.group).then(a.cause.cmp(&b.cause));
        let group = group.then(a.urgency.cmp(&b.urgency));
        group.then_with(by_sort).then(a.unit.cmp(&b.unit))
    }

    /// Number of listed units, also folded ones.
    pub(crate) fn listed_count(&self) -> usize {
        self.order.len()
    }

    /// The unit of a rank.
    pub(crate) fn unit(&self, rank: usize) -> Option<usize> {
        self.order.get(rank).copied()
    }

    /// The rank of a unit, if it is listed.
    pub(crate) fn rank(&self, unit: usize) -> Option<usize> {
        self.ranks
            .get(unit)
            .copied()
            .filter(|rank| *rank != usize::MAX)
    }

    pub(crate) fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// The line of a unit, if it is drawn.
    pub(crate) fn line_of(&self, unit: usize) -> Option<usize> {
        self.unit_lines
            .get(unit)
            .copied()
            .filter(|line| *line != usize::MAX)
    }

    /// The line of the heading of a group.
    pub(crate) fn heading_line(&self, key: &GroupKey) -> Option<usize> {
        let index = self.groups.iter().position(|group| group.key == *key)?;
        self.lines
            .iter()
            .position(|line| *line == Line::Group(index))
    }

    /// What a line shows.
    pub(crate) fn at(&self, line: usize) -> Option<TableLine<'_>> {
        Some(match *self.lines.get(line)? {
            Line::Group(index) => TableLine::Group(self.groups.get(index)?),
            Line::Unit(unit) => TableLine::Unit(unit),
            Line::Connection(index) => TableLine::Connection(self.connections.get(index)?),
        })
    }
}

/// Sort key of a unit.
#[derive(Clone, Copy, Debug)]
struct SortEntry {
    group: usize,
    cause: usize,
    urgency: u8,
    weight: Option<f64>,
    unit: usize,
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

/// The progress of each connection. The reconcile step belongs to none.
fn progress(state: &RunState, names: &[(usize, &str)]) -> Vec<ConnectionProgress> {
    let mut connections: Vec<ConnectionProgress> = Vec::new();
    for (unit, (number, name)) in state.units.iter().zip(names) {
        if *number == connections.len() {
            let counts = UnitCounts::default();
            connections.push(ConnectionProgress {
                name: (*name).to_owned(),
                units: 0,
                counts,
            });
        }
        if *unit.key != *RECONCILE_KEY {
            connections[*number].units += 1;
            connections[*number].counts.add(unit, state);
        }
    }
    connections.retain(|connection| connection.units > 0);
    connections
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use ingestdeck_core::{
        run::state::{AttemptCounts, AttemptState, HoldMode},
        tape::{Millis, note::PlannedUnit},
    };

    fn unit(key: &str, connection: &str, status: UnitStatus, cost: Option<f64>) -> UnitState {
        let planned = PlannedUnit {
            unit: key.into(),
            connection: connection.into(),
            ..PlannedUnit::default()
        };
        let attempt = AttemptState {
            ended_at: Some(Millis(5)),
            counts: AttemptCounts {
                cost_usd: cost,
                ..AttemptCounts::default()
            },
            ..AttemptState::default()
        };
        let attempts = if status == UnitStatus::Queued {
            Vec::new()
        } else {
            vec![attempt]
        };
        let planned = Some(Arc::new(planned));
        UnitState {
            key: key.into(),
            planned,
            status,
            attempts,
            retry_at: None,
            hold_mode: HoldMode::Off,
        }
    }

    fn state() -> RunState {
        let units = vec![
            unit("pear", "docs", UnitStatus::Succeeded, Some(0.2)),
            unit("apple", "dbt", UnitStatus::Failed, None),
            unit("fig", "docs", UnitStatus::Queued, None),
            unit("date", "dbt", UnitStatus::Running, Some(0.5)),
        ];
        RunState {
            units,
            ..RunState::default()
        }
    }

    /// Twenty units of two connections, of which most are done.
    fn long_state() -> RunState {
        let status = |index| match index {
            3 => UnitStatus::Failed,
            7 => UnitStatus::Held,
            8 | 9 => UnitStatus::Running,
            15.. => UnitStatus::Queued,
            _ => UnitStatus::Succeeded,
        };
        let connection = |index| if index < 10 { "dbt" } else { "docs" };
        let units = (0..20)
            .map(|index| unit(&format!("u{index}"), connection(index), status(index), None))
            .collect();
        RunState {
            units,
            ..RunState::default()
        }
    }

    fn drawn(listing: &mut UnitListing, state: &RunState, selected: Option<usize>) -> Vec<String> {
        listing.refresh(state);
        listing.fold(selected, usize::MAX);
        let lines = (0..listing.line_count()).filter_map(|line| listing.at(line));
        lines
            .map(|line| match line {
                TableLine::Group(UnitGroup {
                    key: GroupKey::Need(need),
                    units,
                    hidden,
                    ..
                }) => {
                    format!("{} {units}-{hidden}", need.label())
                }
                TableLine::Group(UnitGroup {
                    key: GroupKey::Cause(cause),
                    units,
                    hidden,
                    ..
                }) => format!("{cause} {units}-{hidden}"),
                TableLine::Group(UnitGroup {
                    key: GroupKey::Connection(name),
                    units,
                    ..
                }) => format!("{name} {units}"),
                TableLine::Connection(progress) => {
                    format!(
                        "{} {}/{}",
                        progress.name,
                        progress.counts.finished(),
                        progress.units
                    )
                }
                TableLine::Unit(unit) => state.units[unit].key.to_string(),
            })
            .collect()
    }

    #[test]
    fn unknown_costs_sort_last_in_both_orders() {
        let mut listing = UnitListing {
            sort: UnitSort::Cost,
            ..UnitListing::default()
        };
        assert_eq!(
            drawn(&mut listing, &state(), None),
            ["date", "pear", "apple", "fig"]
        );
        listing.is_reversed = true;
        assert_eq!(
            drawn(&mut listing, &state(), None),
            ["pear", "date", "apple", "fig"]
        );
    }

    #[test]
    fn few_units_are_ordered_by_need_without_headings() {
        let mut listing = UnitListing::default();
        assert_eq!(
            drawn(&mut listing, &state(), None),
            ["apple", "date", "fig", "pear"]
        );
        listing.grouping = Grouping::Flat;
        assert_eq!(
            drawn(&mut listing, &state(), None),
            ["pear", "apple", "fig", "date"]
        );
    }

    #[test]
    fn done_units_fold_into_the_progress_of_their_connections() {
        let mut listing = UnitListing::default();
        let state = long_state();
        let folded = [
            "needs you 2-0",
            "u7",
            "u3",
            "running 2-0",
            "u8",
            "u9",
            "next 5-2",
            "u15",
            "u16",
            "u17",
            "done 11-11",
            "dbt 7/10",
            "docs 5/10",
        ];
        assert_eq!(drawn(&mut listing, &state, None), folded);
        // The selected unit stays visible in a folded group.
        let lines = drawn(&mut listing, &state, Some(4));
        assert_eq!(lines[10..12], ["done 11-10", "u4"]);
        assert_eq!(listing.line_of(4), Some(11));
        assert_eq!((listing.line_of(5), listing.rank(5)), (None, Some(13)));
        assert!(listing.set_folded(&GroupKey::Need(UnitNeed::Done), None));
        let lines = drawn(&mut listing, &state, None);
        assert_eq!((lines.len(), lines[10].as_str()), (22, "done 11-0"));
        // Nothing that passes a filter is hidden.
        listing.set_folded(&GroupKey::Need(UnitNeed::Done), Some(true));
        listing.filter = StatusFilter::NotDone;
        assert!(
            !drawn(&mut listing, &state, None)
                .iter()
                .any(|line| line.starts_with("done"))
        );
        listing.filter = StatusFilter::Done;
        assert_eq!(drawn(&mut listing, &state, None).len(), 11);
    }

    /// Failed units with the errors of their first failed calls, and one held unit.
    fn failed_state(errors: &[&str]) -> RunState {
        let failed = errors.iter().enumerate().map(|(index, error)| {
            let mut unit = unit(&format!("f{index}"), "dbt", UnitStatus::Failed, None);
            unit.attempts[0].deciding_failure = Some((*error).into());
            unit
        });
        let others = [
            unit("held", "dbt", UnitStatus::Held, None),
            unit("runs", "docs", UnitStatus::Running, None),
        ];
        let units = failed.chain(others).collect();
        RunState {
            units,
            ..RunState::default()
        }
    }

    #[test]
    fn many_failures_are_shown_by_cause() {
        let (key, field) = ("a key has no slash", "no such field");
        let state = failed_state(&[key, field, key, "alone", key, field, key]);
        let mut listing = UnitListing::default();
        let folded = [
            "needs you 8-0",
            "held",
            "failed: a key has no slash 4-4",
            "failed: no such field 2-2",
            "f3",
            "running 1-0",
            "runs",
        ];
        assert_eq!(drawn(&mut listing, &state, None), folded);
        let group = listing.group_of(4).unwrap().clone();
        assert_eq!(
            (group.units, group.reason.as_str(), listing.units_of(&group)),
            (4, key, &[0, 2, 4, 6][..])
        );
        assert!(listing.set_folded(&group.key, Some(false)));
        let unfolded = drawn(&mut listing, &state, None);
        assert_eq!(
            unfolded[2..8],
            [
                "failed: a key has no slash 4-0",
                "f0",
                "f2",
                "f4",
                "f6",
                "failed: no such field 2-2"
            ]
        );
        assert!(
            !listing.settings().toggled.contains(&group.key),
            "causes are those of one run"
        );
        // Another reason of the same attempt changes its cause.
        let mut later = state.clone();
        later.units[0].attempts[0].deciding_failure = Some(field.into());
        let lines = drawn(&mut listing, &later, None);
        assert!(
            lines.contains(&"failed: no such field 3-3".to_owned()),
            "{lines:?}"
        );
        // Below a folded heading, no cause is selected.
        listing.set_folded(&GroupKey::Need(UnitNeed::Person), Some(true));
        drawn(&mut listing, &later, Some(2));
        let group = listing.group_of(2).unwrap();
        assert_eq!(group.key, GroupKey::Need(UnitNeed::Person));
        let few = failed_state(&[key; MAX_FAILURES_WITHOUT_CAUSES]);
        assert_eq!(drawn(&mut UnitListing::default(), &few, None).len(), 8);
    }

    #[test]
    fn short_pane_shows_less_of_running_and_next_units() {
        let mut listing = UnitListing::default();
        let mut state = long_state();
        for unit in &mut state.units[8..14] {
            unit.status = UnitStatus::Running;
        }
        listing.refresh(&state);
        listing.fold(None, usize::MAX);
        let all = listing.line_count();
        listing.fold(None, all - 1);
        assert_eq!(all - listing.line_count(), 2 + FOLDED_NEXT_UNITS);
        let running = GroupKey::Need(UnitNeed::Running);
        let mut hidden = vec![listing.find_group(&running).unwrap().hidden];
        for _ in 0..3 {
            assert!(listing.set_folded(&running, None));
            listing.fold(None, all - 1);
            hidden.push(listing.find_group(&running).unwrap().hidden);
        }
        assert_eq!(hidden, [2, 0, 6, 2], "some, all, none, some");
    }

    #[test]
    fn groups_respect_the_filter() {
        let grouping = Grouping::Connection;
        let mut listing = UnitListing {
            sort: UnitSort::Key,
            grouping,
            ..UnitListing::default()
        };
        assert_eq!(
            drawn(&mut listing, &state(), None),
            ["docs 2", "fig", "pear", "dbt 2", "apple", "date"]
        );
        listing.text = "DBT".into();
        assert!(drawn(&mut listing, &state(), None).is_empty());
        listing.text = "dbt".into();
        assert_eq!(
            drawn(&mut listing, &state(), None),
            ["dbt 2", "apple", "date"]
        );
        listing.filter = StatusFilter::NeedsYou;
        assert_eq!(drawn(&mut listing, &state(), None), ["dbt 1", "apple"]);
    }

    proptest! {
        #[test]
        fn ranks_lines_and_units_agree(
            kinds in prop::collection::vec((0..4_u8, 0..12_usize, prop::option::of(0.0..9.0_f64)), 0..60),
            sort in prop::sample::select(vec![UnitSort::Plan, UnitSort::Cost, UnitSort::Age, UnitSort::Failures, UnitSort::Key]),
            filter in prop::sample::select(vec![StatusFilter::All, StatusFilter::NeedsYou, StatusFilter::NotDone, StatusFilter::Running, StatusFilter::Queued, StatusFilter::Done]),
            is_reversed in any::<bool>(),
            grouping in prop::sample::select(vec![Grouping::Need, Grouping::Connection, Grouping::Flat]),
            toggled in prop::collection::vec(prop::sample::select(vec![UnitNeed::Person, UnitNeed::Running, UnitNeed::Next, UnitNeed::Done]), 0..4),
            selected in prop::option::of(0..60_usize),
            rows in 0..40_usize,
        ) {
            let units = kinds.iter().enumerate().map(|(index, (connection, status, cost))| {
                unit(&format!("u{}", index * 7 % 13), &format!("c{connection}"), RunTotals::ORDER[*status], *cost)
            });
            let state = RunState { units: units.collect(), ..RunState::default() };
            let mut listing = UnitListing { filter, sort, is_reversed, grouping, ..UnitListing::default() };
            for need in toggled {
                listing.set_folded(&GroupKey::Need(need), None);
            }
            listing.refresh(&state);
            listing.fold(selected, rows);
            let passing = state.units.iter().filter(|unit| filter.passes(unit.status)).count();
            prop_assert_eq!(listing.listed_count(), passing);
            for rank in 0..passing {
                prop_assert_eq!(listing.unit(rank).and_then(|unit| listing.rank(unit)), Some(rank));
            }
            let (mut drawn, mut hidden) = (0, 0);
            for line in 0..listing.line_count() {
                match listing.at(line) {
                    Some(TableLine::Unit(unit)) => {
                        prop_assert_eq!(listing.line_of(unit), Some(line));
                        drawn += 1;
                    }
                    Some(TableLine::Group(group)) => {
                        prop_assert_eq!(listing.heading_line(&group.key), Some(line));
                        prop_assert_eq!(group.counts.statuses.iter().sum::<usize>(), group.units);
                        let is_of = |unit: &usize| listing.group_of(*unit).is_some_and(|of| of == group || group.causes > 0);
                        prop_assert!(listing.units_of(group).iter().all(is_of));
                        hidden += group.hidden;
                    }
                    Some(TableLine::Connection(progress)) => {
                        prop_assert!(progress.counts.finished() <= progress.units);
                    }
                    None => prop_assert!(false, "line {} is empty", line),
                }
            }
            prop_assert_eq!(drawn + hidden, passing);
            if let Some(selected) = selected.filter(|unit| listing.rank(*unit).is_some()) {
                prop_assert!(listing.line_of(selected).is_some(), "the selected unit is always drawn");
            }
        }
    }
}
