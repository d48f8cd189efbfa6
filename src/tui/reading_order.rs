//! The rows of a session in the order in which they are read: the rows of a sub-agent follow the call that started it.
//! Where that call is unknown, they follow the action that was the last one when the sub-agent began.
//!
//! Pure. Sub-agents are separate units in a session file, and rows with a depth in a capture; here both are parts.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use ingestdeck_core::run::state::{AttemptId, RunState, RunView, StreamRow, UnitState};

/// All rows of a session. A *place* is the position of a row among them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadingOrder {
    parts: Vec<ReadingPart>,
}

/// Rows of one attempt that are shown together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadingPart {
    pub attempt_id: AttemptId,
    pub rows: PartRows,
    /// Place of the first row.
    pub start: usize,
    /// True for rows of a sub-agent.
    pub is_sub_agent: bool,
}

/// Indexes of the rows of a part in their attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartRows {
    Adjacent(Range<usize>),
    /// In ascending order, with rows of other parts between them.
    Scattered(Vec<usize>),
}

impl PartRows {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Adjacent(rows) => rows.len(),
            Self::Scattered(rows) => rows.len(),
        }
    }

    /// The row with this number in the part.
    fn row(&self, number: usize) -> Option<usize> {
        match self {
            Self::Adjacent(rows) => (number < rows.len()).then_some(rows.start + number),
            Self::Scattered(rows) => rows.get(number).copied(),
        }
    }

    /// The number of a row in the part.
    fn number(&self, row: usize) -> Option<usize> {
        match self {
            Self::Adjacent(rows) => rows.contains(&row).then(|| row - rows.start),
            Self::Scattered(rows) => rows.binary_search(&row).ok(),
        }
    }
}

/// What follows a row of the session.
#[derive(Debug)]
enum SubAgentPart {
    /// All rows of another attempt.
    Attempt(AttemptId),
    /// Rows of the same attempt, by the row of their call.
    Rows(Vec<usize>),
}

impl ReadingPart {
    /// The place after the last row.
    pub(crate) fn end(&self) -> usize {
        self.start + self.rows.len()
    }
}

/// A row, whatever its place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowAddress {
    pub attempt_id: AttemptId,
    /// Index of the row in the attempt.
    pub row: usize,
}

/// Index of the only unit that is not a sub-agent; `None` if there are several, or none.
pub(crate) fn single_session(state: &RunState) -> Option<usize> {
    let is_own = |unit: &UnitState| {
        let mut attempts = unit.attempts.iter();
        unit.attempts.is_empty() || attempts.any(|attempt| !attempt.setup.is_cost_included())
    };
    let mut own = state.units.iter().enumerate();
    let (unit, _) = own.find(|(_, unit)| is_own(unit))?;
    own.all(|(_, unit)| !is_own(unit)).then_some(unit)
}

impl ReadingOrder {
    /// The rows of the unit with this index, and of its sub-agents.
    pub(crate) fn new(run_view: &RunView, unit: usize) -> Self {
        let units = &run_view.state.units;
        let mut agents: Vec<(u64, AttemptId)> = units
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != unit)
            .flat_map(|(_, agent)| &agent.attempts)
            .filter(|attempt| attempt.setup.is_cost_included())
            .filter_map(|attempt| Some((begin(run_view.rows(attempt.id))?, attempt.id)))
            .collect();
        agents.sort_by_key(|(first, _)| *first);
        let own = units.get(unit).map_or(&[][..], |unit| &unit.attempts);
        let mut called: HashMap<AttemptId, Vec<(usize, AttemptId)>> = HashMap::new();
        let call_of = |agent| {
            let entries = run_view.state.entries;
            let (attempt, row) = run_view.sub_agents.call_of_attempt(agent, entries)?;
            own.iter()
                .any(|own| own.id == attempt)
                .then_some((attempt, row))
        };
        agents.retain(|(_, agent)| match call_of(*agent) {
            Some((attempt, row)) => {
                called.entry(attempt).or_default().push((row, *agent));
                false
            }
            None => true,
        });
        let mut order = Self::default();
        let mut agents = agents.into_iter().peekable();
        for (index, attempt) in own.iter().enumerate() {
            let rows = run_view.rows(attempt.id);
            let following = own.get(index + 1);
            let until = following.and_then(|next| begin(run_view.rows(next.id)));
            let agents_of_calls = called.remove(&attempt.id).unwrap_or_default();
            let mut sub_agents = sub_agents_of_calls(run_view, rows, agents_of_calls);
            while let Some((first, agent)) =
                agents.next_if(|(first, _)| until.is_none_or(|until| *first < until))
            {
                let at = rows.partition_point(|row| row.first().0 < first);
                let parts = sub_agents.entry(at).or_default();
                parts.push(SubAgentPart::Attempt(agent));
            }
            let mut from = 0;
            for (at, parts) in sub_agents {
                order.push_rows(attempt.id, run_view, from..at);
                from = at;
                for part in parts {
                    match part {
                        SubAgentPart::Attempt(agent) => {
                            let rows = PartRows::Adjacent(0..run_view.rows(agent).len());
                            order.push(agent, rows, true);
                        }
                        SubAgentPart::Rows(rows) => {
                            order.push(attempt.id, PartRows::Scattered(rows), true);
                        }
                    }
                }
            }
            order.push_rows(attempt.id, run_view, from..rows.len());
        }
        order
    }

    /// Appends rows that follow no call, divided where a sub-agent begins or ends.
    fn push_rows(&mut self, attempt_id: AttemptId, run_view: &RunView, range: Range<usize>) {
        let mut from = range.start;
        let rows = run_view.rows(attempt_id);
        let rows = rows.get(range).unwrap_or_default();
        let kind = |row: &StreamRow| {
            (
                row.depth > 0,
                run_view.sub_agents.call_of_row(row).is_some(),
            )
        };
        for part in rows.chunk_by(|one, next| kind(one) == kind(next)) {
            let (is_sub_agent, follows_call) = part.first().map_or((false, false), kind);
            if !follows_call {
                let rows = PartRows::Adjacent(from..from + part.len());
                self.push(attempt_id, rows, is_sub_agent);
            }
            from += part.len();
        }
    }

    fn push(&mut self, attempt_id: AttemptId, rows: PartRows, is_sub_agent: bool) {
        if rows.len() > 0 {
            let start = self.len();
            self.parts.push(ReadingPart {
                attempt_id,
                rows,
                start,
                is_sub_agent,
            });
        }
    }

    /// Number of rows in all parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.last().map_or(0, ReadingPart::end)
    }

    /// The place of the row that began last.
    pub(crate) fn newest(&self, run_view: &RunView) -> Option<usize> {
        let last_began = |part: &&ReadingPart| {
            let rows = run_view.rows(part.attempt_id);
            let last = part.rows.len().checked_sub(1)?;
            rows.get(part.rows.row(last)?).map(StreamRow::first)
        };
        let part = self.parts.iter().max_by_key(last_began)?;
        part.end().checked_sub(1)
    }

    /// The part that contains a place.
    pub(crate) fn part(&self, place: usize) -> Option<&ReadingPart> {
        let after = self.parts.partition_point(|part| part.start <= place);
        let part = self.parts.get(after.checked_sub(1)?)?;
        (place < part.end()).then_some(part)
    }

    /// The row at a place.
    pub(crate) fn address(&self, place: usize) -> Option<RowAddress> {
        let part = self.part(place)?;
        Some(RowAddress {
            attempt_id: part.attempt_id,
            row: part.rows.row(place - part.start)?,
        })
    }

    /// The place of a row.
    pub(crate) fn place(&self, address: RowAddress) -> Option<usize> {
        self.parts.iter().find_map(|part| {
            let is_own = part.attempt_id == address.attempt_id;
            let number = is_own.then(|| part.rows.number(address.row))??;
            Some(part.start + number)
        })
    }
}

/// The sub-agents whose calls are known, by the index of the row before which they are shown. Those of a sub-agent follow
/// the call that started that one.
fn sub_agents_of_calls(
    run_view: &RunView,
    rows: &[StreamRow],
    agents: Vec<(usize, AttemptId)>,
) -> BTreeMap<usize, Vec<SubAgentPart>> {
    // By the row of the session and by the call that started them.
    let mut found: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    let mut row_of_session: HashMap<usize, usize> = HashMap::new();
    for (index, row) in rows.iter().enumerate() {
        if let Some(call) = run_view.sub_agents.call_of_row(row) {
            let own = row_of_session.get(&call).copied().unwrap_or(call);
            row_of_session.insert(index, own);
            found.entry((own, call)).or_default().push(index);
        }
    }
    let mut parts: BTreeMap<usize, Vec<SubAgentPart>> = BTreeMap::new();
    for ((own, _), rows) in found {
        let following = parts.entry(own + 1).or_default();
        following.push(SubAgentPart::Rows(rows));
    }
    for (call, agent) in agents {
        let own = row_of_session.get(&call).copied().unwrap_or(call);
        let following = parts.entry(own + 1).or_default();
        following.push(SubAgentPart::Attempt(agent));
    }
    parts
}

/// The entry with which the first row begins.
fn begin(rows: &[StreamRow]) -> Option<u64> {
    rows.first().map(|row| row.first().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::{
        run::state::{
            AttemptRows, AttemptSetup, AttemptState, CostReport, HoldMode, RowKind, RowOutcome,
            UnitStatus,
        },
        tape::Seq,
    };

    /// A session with the rows of its attempt and of two sub-agents, by their entries and depths.
    fn session(rows: [&[(u64, u8)]; 3]) -> RunView {
        let mut run_view = RunView::default();
        run_view.state.entries = 100;
        for (id, rows) in (0..).zip(rows) {
            let row = |(first, depth): &(u64, u8)| {
                StreamRow::new(Seq(*first), 0, RowKind::Text, RowOutcome::Ok, *depth)
            };
            run_view.attempts.push(AttemptRows {
                rows: rows.iter().map(row).collect(),
                entries: Vec::new(),
            });
            let setup = AttemptSetup {
                cost_report: match id {
                    0 => CostReport::Own,
                    _ => CostReport::Session,
                },
                ..AttemptSetup::default()
            };
            let attempt = AttemptState {
                id: AttemptId(id),
                setup,
                ..AttemptState::default()
            };
            run_view.state.units.push(UnitState {
                key: format!("unit {id}").as_str().into(),
                planned: None,
                status: UnitStatus::Succeeded,
                attempts: vec![attempt],
                retry_at: None,
                hold_mode: HoldMode::Off,
            });
        }
        run_view
    }

    /// The entries of all rows in order, negative for those of a sub-agent.
    fn entries(run_view: &RunView) -> Vec<i64> {
        let order = ReadingOrder::new(run_view, 0);
        let entry = |place| {
            let address = order.address(place).unwrap();
            assert_eq!(order.place(address), Some(place));
            let entry = run_view.rows(address.attempt_id)[address.row].first().0 as i64;
            let sign = if order.part(place).unwrap().is_sub_agent {
                -1
            } else {
                1
            };
            sign * entry
        };
        (0..order.len()).map(entry).collect()
    }

    #[test]
    fn sub_agent_follows_the_action_before_its_begin() {
        let mut run_view = session([
            &[(1, 0), (2, 0), (9, 0), (12, 0)],
            &[(4, 0), (10, 0)],
            &[(3, 0), (5, 0)],
        ]);
        assert_eq!(entries(&run_view), [1, 2, -3, -5, -4, -10, 9, 12]);
        assert_eq!(single_session(&run_view.state), Some(0));
        // At an earlier moment, later rows are absent.
        run_view.state.entries = 5;
        assert_eq!(entries(&run_view), [1, 2, -3, -4]);
        assert_eq!(ReadingOrder::new(&run_view, 0).newest(&run_view), Some(3));
        let other = session([&[], &[], &[]]).state.units.remove(0);
        run_view.state.units.push(other);
        assert_eq!(single_session(&run_view.state), None);
        assert_eq!(single_session(&RunState::default()), None);
    }

    #[test]
    fn rows_with_a_depth_are_a_sub_agent() {
        let run_view = session([&[(1, 0), (2, 1), (3, 1), (4, 0), (5, 1)], &[], &[]]);
        assert_eq!(entries(&run_view), [1, -2, -3, 4, -5]);
        let order = ReadingOrder::new(&run_view, 0);
        assert_eq!(order.part(2).map(|part| part.start), Some(1));
        assert_eq!(order.part(5), None);
    }
}
