//! Where rows and entries of a provisional view are once the whole source is known, so that positions stay on them.

use crate::{
    model::{RunTotals, ScrollList, SharedModel},
    reading_order::RowAddress,
    stream_rows::row_at,
};
use ingestdeck_core::{
    run::state::{AttemptId, RunView, UnitState},
    tape::{Seq, UnitKey},
};

/// The views before and after the whole source became known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedRows<'a> {
    pub before: &'a RunView,
    pub after: &'a RunView,
    /// The new number of each entry.
    pub numbers: &'a [Seq],
}

/// The attempt in a view, with its unit and its index there.
fn attempt_of(view: &RunView, id: AttemptId) -> Option<(&UnitState, usize)> {
    view.state.units.iter().find_map(|unit| {
        let index = unit.attempts.iter().position(|attempt| attempt.id == id)?;
        Some((unit, index))
    })
}

impl MovedRows<'_> {
    /// Where an entry of the view before is: its attempt, and its index there.
    fn find(&self, seq: Seq) -> Option<(AttemptId, usize)> {
        let seq = *self.numbers.get(usize::try_from(seq.0).ok()?)?;
        let number = u32::try_from(seq.0).ok()?;
        let mut ids = (0..).map(AttemptId).take(self.after.attempts.len());
        ids.find_map(|id| {
            let index = self.after.entries(id).binary_search(&number).ok()?;
            Some((id, index))
        })
    }

    /// Where an entry of an attempt is.
    pub(crate) fn entry(&self, id: AttemptId, index: usize) -> Option<(AttemptId, usize)> {
        let seq = *self.before.entries(id).get(index)?;
        self.find(Seq(u64::from(seq)))
    }

    /// Where an attempt is, by its first entry: its unit, its index there, and its id.
    pub(crate) fn attempt(&self, id: AttemptId) -> Option<(UnitKey, usize, AttemptId)> {
        let (id, _) = self.entry(id, 0)?;
        self.named(id)
    }

    /// The unit of an attempt in the view after, and its index there.
    pub(crate) fn named(&self, id: AttemptId) -> Option<(UnitKey, usize, AttemptId)> {
        let (unit, index) = attempt_of(self.after, id)?;
        Some((unit.key.clone(), index, id))
    }

    /// Where a row is, or the nearest one before it if its line does not count.
    pub(crate) fn row(&self, address: RowAddress) -> Option<RowAddress> {
        let RowAddress { attempt_id, row } = address;
        let row = self.before.rows(attempt_id).get(row)?;
        let (attempt_id, index) = self.find(row.first())?;
        let seq = Seq(u64::from(*self.after.entries(attempt_id).get(index)?));
        let rows = self.after.rows(attempt_id);
        let near = row_at(rows, seq, self.after.state.entries)?;
        let begin = rows.partition_point(|other| other.first() < seq);
        let same = rows
            .get(begin..)?
            .iter()
            .take_while(|other| other.first() == seq)
            .position(|other| (other.block, other.kind) == (row.block, row.kind));
        let row = same.map_or(near, |place| begin + place);
        Some(RowAddress { attempt_id, row })
    }

    /// Where a unit is, by its first attempt.
    pub(crate) fn unit(&self, unit: usize) -> Option<usize> {
        let first = self.before.state.units.get(unit)?.attempts.first()?;
        let (key, ..) = self.attempt(first.id)?;
        let mut units = self.after.state.units.iter();
        units.position(|unit| unit.key == key)
    }

    /// Keeps the selection in the table of units and in the stream on their unit and row, and forgets what was counted.
    pub(crate) fn move_selection(&self, model: &mut SharedModel) {
        let unit = |unit: usize| self.unit(unit).unwrap_or(unit);
        let deck = &mut model.units_view;
        deck.unit = unit(deck.unit);
        deck.chosen_unit = unit(deck.chosen_unit);
        deck.last_valid_unit = unit(deck.last_valid_unit);
        deck.marked = deck.marked.iter().copied().map(unit).collect();
        if let Some(attempt_id) = deck.attempt_id.take() {
            let row = deck.stream.selected;
            let found = self.row(RowAddress { attempt_id, row });
            deck.attempt_id = found.map(|found| found.attempt_id);
            if let Some(found) = found {
                Self::select(&mut deck.stream, found.row);
            }
        }
        model.totals = RunTotals::default();
        model.playhead.bounds.present_totals = RunTotals::default();
        model.search.matches = None;
    }

    /// Selects another row of a list, on the same line of the screen.
    pub(crate) fn select(list: &mut ScrollList, row: usize) {
        if !list.follow {
            list.offset = (list.offset + row).saturating_sub(list.selected);
            list.seen = (list.seen + row).saturating_sub(list.selected);
            list.selected = row;
        }
    }
}
