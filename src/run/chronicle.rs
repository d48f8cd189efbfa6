//! What happened when, in few bytes however long the run is: how much was said in each stretch of time, and where the
//! failures, denials, limits and retries are.
//!
//! Grows with the entries that are folded for the first time; going back changes nothing. It must not know what is
//! shown.

use super::state::{LaneId, Touch};
use crate::tape::{Millis, Seq};

/// Stretches at most. When time runs beyond them, two become one.
const STRETCHES: usize = 2048;

/// Length of the first stretches.
const FINEST: u64 = 16;

/// Something that people look for in a long record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// A call, a session or a unit failed.
    Failure,
    /// A call was refused.
    Denial,
    /// A usage limit was near or reached, or a budget was spent.
    Limit,
    /// An attempt or a request was tried again.
    Retry,
}

impl Mark {
    /// Every mark, the most important first.
    pub const ALL: [Self; 4] = [Self::Failure, Self::Denial, Self::Limit, Self::Retry];

    /// Its word, for one and for several.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Failure => ("failure", "failures"),
            Self::Denial => ("denial", "denials"),
            Self::Limit => ("limit", "limits"),
            Self::Retry => ("retry", "retries"),
        }
    }
}

/// A set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u8);

impl Marks {
    /// Adds one.
    pub fn add(&mut self, mark: Mark) {
        self.0 |= 1 << mark as u8;
    }

    /// True if it is one of them.
    pub fn has(self, mark: Mark) -> bool {
        self.0 & (1 << mark as u8) != 0
    }

    /// The most important one.
    pub fn first(self) -> Option<Mark> {
        Mark::ALL.into_iter().find(|mark| self.has(*mark))
    }
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Entries in it.
    pub entries: u32,
    /// What happened in it.
    pub marks: Marks,
}

impl Stretch {
    fn add(&mut self, other: Self) {
        self.entries = self.entries.saturating_add(other.entries);
        self.marks.0 |= other.marks.0;
    }
}

/// What happened when.
#[derive(Clone, Debug)]
pub struct Chronicle {
    stretches: Vec<Stretch>,
    /// Milliseconds of a stretch.
    length: u64,
    entries: u64,
    last: Millis,
    counts: [u64; 4],
    /// Failures and denials: their entries and attempts.
    bad: Vec<(u32, LaneId, Mark)>,
}

impl Default for Chronicle {
    fn default() -> Self {
        Self { stretches: Vec::new(), length: FINEST, entries: 0, last: Millis(0), counts: [0; 4], bad: Vec::new() }
    }
}

impl Chronicle {
    /// Takes note of an entry, unless it was seen before.
    pub fn note(&mut self, seq: Seq, now: Millis, touch: Touch) {
        if seq.0 < self.entries {
            return;
        }
        self.entries = seq.0 + 1;
        self.last = self.last.max(now);
        let place = self.place(self.last);
        if place >= self.stretches.len() {
            self.stretches.resize(place + 1, Stretch::default());
        }
        self.stretches[place].add(Stretch { entries: 1, marks: touch.marks });
        if touch.marks != Marks::default() {
            for mark in Mark::ALL {
                self.counts[mark as usize] += u64::from(touch.marks.has(mark));
            }
            if let Some(mark @ (Mark::Failure | Mark::Denial)) = touch.marks.first() {
                let seq = u32::try_from(seq.0).unwrap_or(u32::MAX);
                self.bad.push((seq, touch.lane.unwrap_or_default(), mark));
            }
        }
    }

    /// The stretch of a time, after stretches were joined until there is one.
    fn place(&mut self, at: Millis) -> usize {
        loop {
            match usize::try_from(at.0 / self.length) {
                Ok(place) if place < STRETCHES => return place,
                _ => {
                    self.length = self.length.saturating_mul(2);
                    for place in 0..self.stretches.len().div_ceil(2) {
                        let mut joined = self.stretches[place * 2];
                        joined.add(self.stretches.get(place * 2 + 1).copied().unwrap_or_default());
                        self.stretches[place] = joined;
                    }
                    self.stretches.truncate(self.stretches.len().div_ceil(2));
                }
            }
        }
    }

    /// Time of the last entry.
    pub fn last(&self) -> Millis {
        self.last
    }

    /// How many entries were marked so.
    pub fn count(&self, mark: Mark) -> u64 {
        self.counts[mark as usize]
    }

    /// The time from 0 to `last`, cut into so many cells. Costs the cells and a fixed number of stretches.
    pub fn cells(&self, cells: usize) -> Vec<Stretch> {
        let mut out = vec![Stretch::default(); cells];
        for (place, stretch) in self.stretches.iter().enumerate().filter(|(_, stretch)| stretch.entries > 0) {
            // Its end, so that the last entry is in the last cell.
            let end = (place as u64).saturating_mul(self.length).saturating_add(self.length - 1);
            let at = Millis(end.min(self.last.0));
            if let Some(cell) = out.get_mut(self.cell_of(at, cells)) {
                cell.add(*stretch);
            }
        }
        out
    }

    /// The cell of a time; of times beyond the last one, the last cell.
    pub fn cell_of(&self, at: Millis, cells: usize) -> usize {
        let last = cells.saturating_sub(1) as u64;
        let place = u128::from(at.0) * u128::from(last) / u128::from(self.last.0.max(1));
        usize::try_from(place.min(u128::from(last))).unwrap_or_default()
    }

    /// The time that a cell begins with.
    pub fn time_of(&self, cell: usize, cells: usize) -> Millis {
        let last = cells.saturating_sub(1).max(1) as u128;
        let time = (cell as u128 * u128::from(self.last.0)).div_ceil(last);
        Millis(u64::try_from(time).unwrap_or(u64::MAX).min(self.last.0))
    }

    /// The first failure or denial at or behind the entry `seq`.
    pub fn bad_from(&self, seq: Seq) -> Option<(Seq, LaneId, Mark)> {
        let place = self.bad.partition_point(|(bad, ..)| u64::from(*bad) < seq.0);
        self.bad.get(place).map(|(seq, lane, mark)| (Seq(u64::from(*seq)), *lane, *mark))
    }

    /// The last failure or denial before the entry `seq`.
    pub fn bad_before(&self, seq: Seq) -> Option<(Seq, LaneId, Mark)> {
        let place = self.bad.partition_point(|(bad, ..)| u64::from(*bad) < seq.0);
        let (seq, lane, mark) = self.bad.get(place.checked_sub(1)?)?;
        Some((Seq(u64::from(*seq)), *lane, *mark))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn touch(mark: Option<Mark>) -> Touch {
        let mut touch = Touch { lane: Some(LaneId(3)), ..Touch::default() };
        if let Some(mark) = mark {
            touch.marks.add(mark);
        }
        touch
    }

    #[test]
    fn failures_are_found_both_ways() {
        let mut chronicle = Chronicle::default();
        for seq in 0..10 {
            let mark = match seq {
                2 => Some(Mark::Failure),
                4 => Some(Mark::Retry),
                7 => Some(Mark::Denial),
                _ => None,
            };
            chronicle.note(Seq(seq), Millis(seq * 1000), touch(mark));
        }
        let found = |found: Option<(Seq, LaneId, Mark)>| found.map(|(seq, ..)| seq.0);
        assert_eq!(found(chronicle.bad_from(Seq(0))), Some(2));
        assert_eq!(found(chronicle.bad_from(Seq(2))), Some(2));
        assert_eq!(found(chronicle.bad_from(Seq(3))), Some(7));
        assert_eq!(found(chronicle.bad_from(Seq(8))), None);
        assert_eq!(found(chronicle.bad_before(Seq(7))), Some(2));
        assert_eq!(found(chronicle.bad_before(Seq(2))), None);
        assert_eq!(chronicle.bad_from(Seq(0)), Some((Seq(2), LaneId(3), Mark::Failure)));
        assert_eq!(Mark::ALL.map(|mark| chronicle.count(mark)), [1, 1, 0, 1]);
    }

    #[test]
    fn what_was_seen_before_does_not_count_again() {
        let mut chronicle = Chronicle::default();
        for seq in [0, 1, 2, 0, 1, 2, 3] {
            chronicle.note(Seq(seq), Millis(seq), touch(Some(Mark::Limit)));
        }
        assert_eq!(chronicle.count(Mark::Limit), 4);
        assert_eq!(chronicle.cells(1)[0].entries, 4);
    }

    #[test]
    fn a_long_run_takes_no_more_room_and_loses_no_mark() {
        let mut chronicle = Chronicle::default();
        for seq in 0..100_000_u64 {
            let mark = (seq % 10_000 == 5_000).then_some(Mark::Failure);
            chronicle.note(Seq(seq), Millis(seq * 12_345), touch(mark));
        }
        chronicle.note(Seq(100_000), Millis(u64::MAX), touch(Some(Mark::Retry)));
        assert!(chronicle.stretches.len() <= STRETCHES);
        assert_eq!(chronicle.cells(80).iter().map(|cell| cell.entries).sum::<u32>(), 100_001);
        assert_eq!(chronicle.count(Mark::Failure), 10);
        assert_eq!(chronicle.cells(80)[79].marks.first(), Some(Mark::Retry));
    }

    proptest! {
        #[test]
        fn every_entry_is_in_the_cell_of_its_time(times in prop::collection::vec(0..1_000_000_u64, 1..60), cells in 1..200_usize) {
            let mut chronicle = Chronicle::default();
            let mut times = times;
            times.sort_unstable();
            for (seq, at) in times.iter().enumerate() {
                chronicle.note(Seq(seq as u64), Millis(*at), touch(None));
            }
            let shown = chronicle.cells(cells);
            prop_assert_eq!(shown.len(), cells);
            prop_assert_eq!(shown.iter().map(|cell| cell.entries as usize).sum::<usize>(), times.len());
        }

        #[test]
        fn a_cell_begins_with_a_time_that_lies_in_it(last in 0..u64::MAX, cells in 1..300_usize, cell in 0..300_usize) {
            let mut chronicle = Chronicle::default();
            chronicle.note(Seq(0), Millis(last), touch(None));
            let cell = cell.min(cells - 1);
            let time = chronicle.time_of(cell, cells);
            prop_assert!(time.0 <= last);
            prop_assert!(last < cells as u64 || chronicle.cell_of(time, cells) == cell);
        }
    }
}
