//! Bookmarks of rows, entries and of the moment that is shown.

use ingestdeck_core::{
    run::{
        bookmark::Bookmark,
        state::{AttemptId, RunView, UnitState},
    },
    tape::{Millis, Seq},
};

/// A bookmark of an entry. Its time is read when it is saved.
fn at(entry: Seq, unit: Option<(&UnitState, Option<u32>)>) -> Bookmark {
    Bookmark {
        entry,
        at: Millis(0),
        unit: unit.map(|(unit, _)| unit.key.clone()),
        attempt: unit.and_then(|(_, attempt)| attempt),
        note: String::new(),
    }
}

fn owner(run_view: &RunView, id: AttemptId) -> Option<(&UnitState, Option<u32>)> {
    run_view.state.units.iter().find_map(|unit| {
        let attempt = unit.attempts.iter().find(|attempt| attempt.id == id)?;
        Some((unit, Some(attempt.number)))
    })
}

/// Of a row; a call is marked with its result.
pub(crate) fn of_row(run_view: &RunView, id: AttemptId, row: usize) -> Option<Bookmark> {
    let row = run_view.rows(id).get(row)?;
    let entry = row.last(run_view.state.entries).unwrap_or(row.first());
    Some(at(entry, owner(run_view, id)))
}

/// Of an entry, by its index in the attempt.
pub(crate) fn of_entry(run_view: &RunView, id: AttemptId, entry: usize) -> Option<Bookmark> {
    let entry = run_view.entries(id).get(entry)?;
    Some(at(Seq(u64::from(*entry)), owner(run_view, id)))
}

/// Of the moment that is shown, and the newest attempt at a unit; `None` if nothing is recorded.
pub(crate) fn of_now(run_view: &RunView, unit: Option<&UnitState>) -> Option<Bookmark> {
    let unit = unit.map(|unit| (unit, unit.latest().map(|attempt| attempt.number)));
    Some(at(Seq(run_view.state.entries.checked_sub(1)?), unit))
}
