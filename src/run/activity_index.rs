//! What happened when, in few bytes however long the run is: how much was said in each stretch of time, and where the
//! failures, denials, limits and retries are.
//!
//! Grows with the entries that are folded for the first time; going back changes nothing. It must not know what is
//! shown.

use super::state::{AttemptId, LastChange};
use crate::tape::{Millis, Seq};

/// Stretches at most. When time runs beyond them, two become one.
const MAX_BUCKETS: usize = 2048;

/// Length of the first stretches.
const MIN_BUCKET_MS: u64 = 16;

/// Something that people look for in a long record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivityMark {
    /// A call, a session or a unit failed.
    Failure,
    /// A call was refused.
    Denial,
    /// A usage limit was near or reached, or a budget was spent.
    Limit,
    /// An attempt or a request was tried again.
    Retry,
}

impl ActivityMark {
    /// Every mark, the most important first.
    pub const ALL: [Self; 4] = [Self::Failure, Self::Denial, Self::Limit, Self::Retry];

    /// Its word, for one and for several.
    pub fn labels(self) -> (&'static str, &'static str) {
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
pub struct ActivityMarks(u8);

impl ActivityMarks {
    /// Adds one.
    pub fn add(&mut self, mark: ActivityMark) {
        self.0 |= 1 << mark as u8;
    }

    /// True if it is one of them.
    pub fn has(self, mark: ActivityMark) -> bool {
        self.0 & (1 << mark as u8) != 0
    }

    /// The most important one.
    pub fn most_important(self) -> Option<ActivityMark> {
        ActivityMark::ALL.into_iter().find(|mark| self.has(*mark))
    }
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Entries in it.
    pub entries: u32,
    /// What happened in it.
    pub marks: ActivityMarks,
}

impl Bucket {
    fn add(&mut self, other: Self) {
        self.entries = self.entries.saturating_add(other.entries);
        self.marks.0 |= other.marks.0;
    }
}

/// What happened when.
#[derive(Clone, Debug)]
pub struct ActivityIndex {
    buckets: Vec<Bucket>,
    /// Milliseconds of a stretch.
    bucket_ms: u64,
    entries: u64,
    last: Millis,
    counts: [u64; 4],
    /// Failures and denials: their entries and attempts.
    problems: Vec<(u32, AttemptId, ActivityMark)>,
}

impl Default for ActivityIndex {
    fn default() -> Self {
        Self {
            buckets: Vec::new(),
            bucket_ms: MIN_BUCKET_MS,
            entries: 0,
            last: Millis(0),
            counts: [0; 4],
            problems: Vec::new(),
        }
    }
}

impl ActivityIndex {
    /// Takes note of an entry, unless it was seen before.
    pub fn record(&mut self, seq: Seq, now: Millis, touch: LastChange) {
        if seq.0 < self.entries {
            return;
        }
        self.entries = seq.0 + 1;
        self.last = self.last.max(now);
        let place = self.bucket_at(self.last);
        if place >= self.buckets.len() {
            self.buckets.resize(place + 1, Bucket::default());
        }
        self.buckets[place].add(Bucket { entries: 1, marks: touch.marks });
        if touch.marks != ActivityMarks::default() {
            for mark in ActivityMark::ALL {
                self.counts[mark as usize] += u64::from(touch.marks.has(mark));
            }
            if let Some(mark @ (ActivityMark::Failure | ActivityMark::Denial)) = touch.marks.most_important() {
                let seq = u32::try_from(seq.0).unwrap_or(u32::MAX);
                self.problems.push((seq, touch.attempt.unwrap_or_default(), mark));
            }
        }
    }

    /// The stretch of a time, after stretches were joined until there is one.
    fn bucket_at(&mut self, at: Millis) -> usize {
        loop {
            match usize::try_from(at.0 / self.bucket_ms) {
                Ok(place) if place < MAX_BUCKETS => return place,
                _ => {
                    self.bucket_ms = self.bucket_ms.saturating_mul(2);
                    for place in 0..self.buckets.len().div_ceil(2) {
                        let mut joined = self.buckets[place * 2];
                        joined.add(self.buckets.get(place * 2 + 1).copied().unwrap_or_default());
                        self.buckets[place] = joined;
                    }
                    self.buckets.truncate(self.buckets.len().div_ceil(2));
                }
            }
        }
    }

    /// Time of the last entry.
    pub fn end_time(&self) -> Millis {
        self.last
    }

    /// How many entries were marked so.
    pub fn count(&self, mark: ActivityMark) -> u64 {
        self.counts[mark as usize]
    }

    /// The time from 0 to `last`, cut into so many cells. Costs the cells and a fixed number of stretches.
    pub fn resample(&self, cells: usize) -> Vec<Bucket> {
        let mut out = vec![Bucket::default(); cells];
        for (place, stretch) in self.buckets.iter().enumerate().filter(|(_, stretch)| stretch.entries > 0) {
            // Its end, so that the last entry is in the last cell.
            let end = (place as u64).saturating_mul(self.bucket_ms).saturating_add(self.bucket_ms - 1);
            let at = Millis(end.min(self.last.0));
            if let Some(cell) = out.get_mut(self.cell_at(at, cells)) {
                cell.add(*stretch);
            }
        }
        out
    }

    /// The cell of a time; of times beyond the last one, the last cell.
    pub fn cell_at(&self, at: Millis, cells: usize) -> usize {
        let last = cells.saturating_sub(1) as u64;
        let place = u128::from(at.0) * u128::from(last) / u128::from(self.last.0.max(1));
        usize::try_from(place.min(u128::from(last))).unwrap_or_default()
    }

    /// The time that a cell begins with.
    pub fn cell_start(&self, cell: usize, cells: usize) -> Millis {
        let last = cells.saturating_sub(1).max(1) as u128;
        let time = (cell as u128 * u128::from(self.last.0)).div_ceil(last);
        Millis(u64::try_from(time).unwrap_or(u64::MAX).min(self.last.0))
    }

    /// The first failure or denial at or behind the entry `seq`.
    pub fn first_problem_from(&self, seq: Seq) -> Option<(Seq, AttemptId, ActivityMark)> {
        let place = self.problems.partition_point(|(bad, ..)| u64::from(*bad) < seq.0);
        self.problems.get(place).map(|(seq, lane, mark)| (Seq(u64::from(*seq)), *lane, *mark))
    }

    /// The last failure or denial before the entry `seq`.
    pub fn last_problem_before(&self, seq: Seq) -> Option<(Seq, AttemptId, ActivityMark)> {
        let place = self.problems.partition_point(|(bad, ..)| u64::from(*bad) < seq.0);
        let (seq, lane, mark) = self.problems.get(place.checked_sub(1)?)?;
        Some((Seq(u64::from(*seq)), *lane, *mark))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn touch(mark: Option<ActivityMark>) -> LastChange {
        let mut touch = LastChange { attempt: Some(AttemptId(3)), ..LastChange::default() };
        if let Some(mark) = mark {
            touch.marks.add(mark);
        }
        touch
    }

    #[test]
    fn failures_are_found_both_ways() {
        let mut chronicle = ActivityIndex::default();
        for seq in 0..10 {
            let mark = match seq {
                2 => Some(ActivityMark::Failure),
                4 => Some(ActivityMark::Retry),
                7 => Some(ActivityMark::Denial),
                _ => None,
            };
            chronicle.record(Seq(seq), Millis(seq * 1000), touch(mark));
        }
        let found = |found: Option<(Seq, AttemptId, ActivityMark)>| found.map(|(seq, ..)| seq.0);
        assert_eq!(found(chronicle.first_problem_from(Seq(0))), Some(2));
        assert_eq!(found(chronicle.first_problem_from(Seq(2))), Some(2));
        assert_eq!(found(chronicle.first_problem_from(Seq(3))), Some(7));
        assert_eq!(found(chronicle.first_problem_from(Seq(8))), None);
        assert_eq!(found(chronicle.last_problem_before(Seq(7))), Some(2));
        assert_eq!(found(chronicle.last_problem_before(Seq(2))), None);
        assert_eq!(chronicle.first_problem_from(Seq(0)), Some((Seq(2), AttemptId(3), ActivityMark::Failure)));
        assert_eq!(ActivityMark::ALL.map(|mark| chronicle.count(mark)), [1, 1, 0, 1]);
    }

    #[test]
    fn already_recorded_entry_is_not_counted_again() {
        let mut chronicle = ActivityIndex::default();
        for seq in [0, 1, 2, 0, 1, 2, 3] {
            chronicle.record(Seq(seq), Millis(seq), touch(Some(ActivityMark::Limit)));
        }
        assert_eq!(chronicle.count(ActivityMark::Limit), 4);
        assert_eq!(chronicle.resample(1)[0].entries, 4);
    }

    #[test]
    fn long_run_keeps_all_marks_in_constant_space() {
        let mut chronicle = ActivityIndex::default();
        for seq in 0..100_000_u64 {
            let mark = (seq % 10_000 == 5_000).then_some(ActivityMark::Failure);
            chronicle.record(Seq(seq), Millis(seq * 12_345), touch(mark));
        }
        chronicle.record(Seq(100_000), Millis(u64::MAX), touch(Some(ActivityMark::Retry)));
        assert!(chronicle.buckets.len() <= MAX_BUCKETS);
        assert_eq!(chronicle.resample(80).iter().map(|cell| cell.entries).sum::<u32>(), 100_001);
        assert_eq!(chronicle.count(ActivityMark::Failure), 10);
        assert_eq!(chronicle.resample(80)[79].marks.most_important(), Some(ActivityMark::Retry));
    }

    proptest! {
        #[test]
        fn every_entry_is_in_the_cell_of_its_time(times in prop::collection::vec(0..1_000_000_u64, 1..60), cells in 1..200_usize) {
            let mut chronicle = ActivityIndex::default();
            let mut times = times;
            times.sort_unstable();
            for (seq, at) in times.iter().enumerate() {
                chronicle.record(Seq(seq as u64), Millis(*at), touch(None));
            }
            let shown = chronicle.resample(cells);
            prop_assert_eq!(shown.len(), cells);
            prop_assert_eq!(shown.iter().map(|cell| cell.entries as usize).sum::<usize>(), times.len());
        }

        #[test]
        fn cell_start_lies_inside_the_cell(last in 0..u64::MAX, cells in 1..300_usize, cell in 0..300_usize) {
            let mut chronicle = ActivityIndex::default();
            chronicle.record(Seq(0), Millis(last), touch(None));
            let cell = cell.min(cells - 1);
            let time = chronicle.cell_start(cell, cells);
            prop_assert!(time.0 <= last);
            prop_assert!(last < cells as u64 || chronicle.cell_at(time, cells) == cell);
        }
    }
}
