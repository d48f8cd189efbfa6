//! State of the page of the last minutes: the time that it covers, and its rows.
//!
//! The run view has positions instead of times, so the shell determines the first entry of the time after each input and
//! before each frame.

use crate::model::{ScrollList, StatusFilter, UnitListing};
use ingestdeck_core::{
    run::state::{AttemptState, RowOutcome, RunView, StateVersion, StreamRow, UnitState},
    tape::{Millis, Seq},
};

/// Most rows of the page, the newest ones.
const MAX_ROWS: usize = 2000;
/// Number of rows of an attempt, before the time that is shown, among which those that ended in it are searched.
const MAX_EARLIER_ROWS: usize = 4096;
/// The time that is shown at first, live and in a record.
const USUAL_TIMES: (Millis, Millis) = (Millis(60_000), Millis(300_000));
/// The times between which keys choose, in seconds.
const TIMES: [u64; 11] = [10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18_000, 36_000];

/// What happened in the time before the moment that is shown.
#[derive(Clone, Debug)]
pub(crate) struct RecentPage {
    pub(super) list: ScrollList,
    /// How much time before the moment that is shown.
    pub(crate) time: Millis,
    /// The first entry of that time, as the shell last determined it.
    pub(crate) since: Seq,
    /// In the order of their first entries.
    pub(super) rows: Vec<RecentRow>,
    /// Number of earlier rows in that time that are not in `rows`.
    pub(super) left_out: usize,
    made_from: Option<MadeFrom>,
}

/// What the rows were made from.
type MadeFrom = (StateVersion, Seq, StatusFilter, String);

/// A row of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecentRow {
    Action(ActionPlace),
    /// Index of a message of the run that belongs to no unit.
    Message(usize),
}

/// An action by its indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActionPlace {
    /// Index of the unit in the state.
    pub unit: usize,
    /// Index in the attempts of the unit.
    pub attempt: usize,
    /// Index in the rows of the attempt.
    pub row: usize,
}

impl RecentRow {
    pub(super) fn action(&self) -> Option<&ActionPlace> {
        match self {
            Self::Action(place) => Some(place),
            Self::Message(_) => None,
        }
    }
}

impl ActionPlace {
    pub(super) fn find<'a>(
        &self,
        run_view: &'a RunView,
    ) -> Option<(&'a UnitState, &'a AttemptState, &'a StreamRow)> {
        let unit = run_view.state.units.get(self.unit)?;
        let attempt = unit.attempts.get(self.attempt)?;
        Some((unit, attempt, run_view.rows(attempt.id).get(self.row)?))
    }
}

/// The newest rows, by their first entries and blocks.
#[derive(Default)]
struct NewestRows {
    rows: Vec<(RowKey, RecentRow)>,
    /// Rows before this one are not kept.
    earliest: RowKey,
    /// Number of rows, also of those that are not kept.
    all: usize,
}

/// First entry and block of a row.
type RowKey = (u64, u8);

impl NewestRows {
    fn push(&mut self, key: RowKey, row: RecentRow) {
        self.all += 1;
        if key >= self.earliest {
            self.rows.push((key, row));
        }
        if self.rows.len() >= 2 * MAX_ROWS {
            self.drop_earlier();
        }
    }

    fn drop_earlier(&mut self) {
        let excess = self.rows.len().saturating_sub(MAX_ROWS);
        if excess > 0 {
            let rows = &mut self.rows;
            let (_, earliest, _) = rows.select_nth_unstable_by_key(excess, |(key, _)| *key);
            self.earliest = earliest.0;
            self.rows.drain(..excess);
        }
    }

    fn into_sorted(mut self) -> (Vec<RecentRow>, usize) {
        self.drop_earlier();
        self.rows.sort_unstable_by_key(|(key, _)| *key);
        let left_out = self.all - self.rows.len();
        (
            self.rows.into_iter().map(|(_, row)| row).collect(),
            left_out,
        )
    }
}

impl RecentPage {
    pub(super) fn new(time: Millis) -> Self {
        Self {
            list: ScrollList::following(),
            time,
            since: Seq(u64::MAX),
            rows: Vec::new(),
            left_out: 0,
            made_from: None,
        }
    }

    pub(super) fn usual_time(is_live: bool) -> Millis {
        match is_live {
            true => USUAL_TIMES.0,
            false => USUAL_TIMES.1,
        }
    }

    pub(super) fn selected(&self) -> Option<&RecentRow> {
        self.rows.get(self.list.selected)
    }

    /// Chooses the next longer or shorter time.
    pub(super) fn change_time(&mut self, longer: bool) {
        let mut times = TIMES.into_iter().map(|seconds| Millis(seconds * 1000));
        let next = match longer {
            true => times.find(|time| *time > self.time),
            false => times.rfind(|time| *time < self.time),
        };
        self.time = next.unwrap_or(self.time);
    }

    /// Lists the rows again if the run, the time or the filter has changed. A selected row stays where it is.
    pub(super) fn update(&mut self, run_view: &RunView, listing: &UnitListing) {
        let seen = (
            run_view.state.version(),
            self.since,
            listing.filter,
            listing.text.to_string(),
        );
        if self.made_from.as_ref() == Some(&seen) {
            return;
        }
        self.made_from = Some(seen);
        let (before, selected) = (self.list.selected, self.selected().copied());
        (self.rows, self.left_out) = self.newest_rows(run_view, listing).into_sorted();
        let now = selected.and_then(|selected| self.rows.iter().position(|row| *row == selected));
        if let Some(now) = now.filter(|_| !self.list.follow) {
            self.list.selected = now;
            let top = self.list.offset + now;
            self.list.offset = top.saturating_sub(before);
        }
    }

    fn newest_rows(&self, run_view: &RunView, listing: &UnitListing) -> NewestRows {
        let mut found = NewestRows::default();
        let units = run_view.state.units.iter().enumerate();
        for (unit, state) in units.filter(|(unit, _)| listing.rank(*unit).is_some()) {
            for (attempt, state) in state.attempts.iter().enumerate() {
                let last = run_view.entries(state.id).last();
                let has_recent = last.is_some_and(|last| u64::from(*last) >= self.since.0);
                if has_recent || state.ended_at.is_none() {
                    self.add_actions(run_view, (unit, attempt, state), &mut found);
                }
            }
        }
        if listing.is_filtered() {
            return found;
        }
        let messages = run_view.messages();
        let first = messages.partition_point(|message| message.seq < self.since);
        for (index, message) in messages.iter().enumerate().skip(first) {
            // Those of units are rows of their attempts.
            if message.unit.is_none() {
                found.push((message.seq.0, 0), RecentRow::Message(index));
            }
        }
        found
    }

    /// Adds the actions of an attempt that began in the time, ended in it, or are still open.
    fn add_actions(
        &self,
        run_view: &RunView,
        (unit, attempt, state): (usize, usize, &AttemptState),
        found: &mut NewestRows,
    ) {
        let (rows, entries) = (run_view.rows(state.id), run_view.state.entries);
        let first = rows.partition_point(|row| row.first() < self.since);
        let from = first.saturating_sub(MAX_EARLIER_ROWS);
        let is_recent = |row: &StreamRow| match row.last(entries) {
            Some(last) => last >= self.since,
            None => row.end(entries) == RowOutcome::Open,
        };
        for (row, stream_row) in rows.iter().enumerate().skip(from) {
            if row >= first || is_recent(stream_row) {
                let place = ActionPlace { unit, attempt, row };
                let key = (stream_row.first().0, stream_row.block);
                found.push(key, RecentRow::Action(place));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_choose_the_next_longer_or_shorter_time() {
        let mut page = RecentPage::new(Millis(90_000));
        let mut press = |longer| {
            page.change_time(longer);
            page.time.0 / 1000
        };
        assert_eq!(
            [true, true, false, false].map(&mut press),
            [120, 300, 120, 60]
        );
        assert_eq!([true; 20].map(&mut press)[19], 36_000);
        assert_eq!([false; 20].map(&mut press)[19], 10);
    }

    #[test]
    fn only_the_newest_rows_are_kept_in_order() {
        let mut found = NewestRows::default();
        let rows = 5 * MAX_ROWS as u64;
        // In an order that is not that of time.
        for seq in (0..rows).map(|index| index * 7919 % rows) {
            let index = usize::try_from(seq).unwrap();
            found.push((seq, 0), RecentRow::Message(index));
            assert!(found.rows.len() <= 2 * MAX_ROWS);
        }
        let (kept, left_out) = found.into_sorted();
        let expected: Vec<RecentRow> = (4 * MAX_ROWS..5 * MAX_ROWS)
            .map(RecentRow::Message)
            .collect();
        assert!(kept == expected && left_out == 4 * MAX_ROWS);
    }
}
