//! Which rows and entries of an attempt belong together.

use crate::{model::is_problem_end, search_match::nearest};
use ingestdeck_core::{
    run::state::{AttemptId, RunView, StreamRow},
    tape::Seq,
};

/// The row that an entry began or ended, or the row before it.
pub(crate) fn row_at(rows: &[StreamRow], seq: Seq, entries: u64) -> Option<usize> {
    /// Number of rows before an entry in which the row that it ended is searched.
    const BACK: usize = 4096;
    let after = rows.partition_point(|row| row.first() <= seq);
    let near = &rows[after.saturating_sub(BACK)..after];
    let from = after - near.len();
    let begun = near.iter().rposition(|row| row.first() == seq);
    let ended = || near.iter().rposition(|row| row.last(entries) == Some(seq));
    begun
        .or_else(ended)
        .map(|index| from + index)
        .or(after.checked_sub(1))
}

/// The entry at the other end of the call that an entry begins or ends.
pub(crate) fn other_end(run_view: &RunView, attempt_id: AttemptId, entry: usize) -> Option<usize> {
    let (rows, entries, now) = (
        run_view.rows(attempt_id),
        run_view.entries(attempt_id),
        run_view.state.entries,
    );
    let seq = Seq(u64::from(*entries.get(entry)?));
    let row = rows.get(row_at(rows, seq, now)?)?;
    let last = row.last(now).filter(|last| *last != row.first())?;
    let other = if seq == row.first() {
        last
    } else if seq == last {
        row.first()
    } else {
        return None;
    };
    entries.binary_search(&u32::try_from(other.0).ok()?).ok()
}

/// The nearest entry that ends a row with a problem.
pub(crate) fn problem_entry(
    run_view: &RunView,
    attempt_id: AttemptId,
    from: usize,
    forward: bool,
) -> Option<usize> {
    let (rows, entries) = (run_view.rows(attempt_id), run_view.entries(attempt_id));
    let mut bad: Vec<u64> = rows
        .iter()
        .filter(|row| is_problem_end(row.end(run_view.state.entries)))
        .filter_map(|row| row.last(run_view.state.entries))
        .map(|seq| seq.0)
        .collect();
    bad.sort_unstable();
    nearest(entries.len(), from, forward, |row| {
        bad.binary_search(&u64::from(entries[row])).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::run::state::{RowKind, RowOutcome};

    #[test]
    fn an_entry_belongs_to_the_row_that_it_begins_or_ends() {
        let row = |first: u64, last: u64| {
            let mut row = StreamRow::new(Seq(first), 0, RowKind::Tool, RowOutcome::Open, 0);
            row.close(Seq(last), RowOutcome::Ok);
            row
        };
        let rows = [row(2, 9), row(4, 6), row(8, 11)];
        for (seq, expected) in [
            (2, Some(0)),
            (9, Some(0)),
            (6, Some(1)),
            (5, Some(1)),
            (12, Some(2)),
            (1, None),
        ] {
            assert_eq!(row_at(&rows, Seq(seq), 99), expected, "{seq}");
        }
        assert_eq!(
            row_at(&rows, Seq(9), 9),
            Some(2),
            "a future entry ends no row"
        );
    }
}
