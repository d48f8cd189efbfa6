//! Activity per time bucket in bounded memory: number of entries, and positions of failures, denials, limits and
//! retries.
//!
//! It grows only with entries that are folded for the first time; seeking back changes nothing. It must not depend on
//! how it is displayed.

use std::ops::Range;

use super::{
    activity_mark::{ActivityMark, ActivityMarks},
    state::{AttemptId, LastEntryEffects},
};
use crate::tape::{Millis, Seq};

/// Maximum number of buckets. When the time exceeds them, adjacent buckets are merged in pairs.
const MAX_BUCKETS: usize = 2048;

/// Initial length of a bucket in milliseconds.
const MIN_BUCKET_MS: u64 = 16;

/// The activity in one time interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityBucket {
    /// Number of entries in the interval.
    pub entries: u32,
    pub marks: ActivityMarks,
    /// Number of entries with marks.
    pub marked: u32,
}

impl ActivityBucket {
    fn add(&mut self, other: Self) {
        self.entries = self.entries.saturating_add(other.entries);
        self.marks = self.marks.union(other.marks);
        self.marked = self.marked.saturating_add(other.marked);
    }
}

/// Buckets from time 0 to the last entry, and the positions of all problems.
#[derive(Clone, Debug)]
pub struct ActivityIndex {
    buckets: Vec<ActivityBucket>,
    /// Length of a bucket in milliseconds.
    bucket_ms: u64,
    entries: u64,
    last: Millis,
    counts: [u64; ActivityMark::ALL.len()],
    /// Failures and denials with their entry numbers and attempts.
    problems: Vec<(u32, AttemptId, ActivityMark)>,
}

impl Default for ActivityIndex {
    fn default() -> Self {
        Self {
            buckets: Vec::new(),
            bucket_ms: MIN_BUCKET_MS,
            entries: 0,
            last: Millis(0),
            counts: [0; ActivityMark::ALL.len()],
            problems: Vec::new(),
        }
    }
}

impl ActivityIndex {
    /// Records an entry, unless it was recorded before.
    pub(crate) fn record(&mut self, seq: Seq, now: Millis, touch: LastEntryEffects) {
        if seq.0 < self.entries {
            return;
        }
        self.entries = seq.0 + 1;
        self.last = self.last.max(now);
        let place = self.bucket_at(self.last);
        if place >= self.buckets.len() {
            self.buckets.resize(place + 1, ActivityBucket::default());
        }
        self.buckets[place].add(ActivityBucket {
            entries: 1,
            marks: touch.marks,
            marked: u32::from(touch.marks != ActivityMarks::default()),
        });
        if touch.marks != ActivityMarks::default() {
            for mark in ActivityMark::ALL {
                self.counts[mark as usize] += u64::from(touch.marks.has(mark));
            }
            if let Some(mark @ (ActivityMark::Failure | ActivityMark::Denial)) =
                touch.marks.most_important()
            {
                let seq = u32::try_from(seq.0).unwrap_or(u32::MAX);
                self.problems
                    .push((seq, touch.attempt.unwrap_or_default(), mark));
            }
        }
    }

    /// Returns the bucket index for a time, after merging buckets until their number is within the limit.
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

    pub fn end_time(&self) -> Millis {
        self.last
    }

    /// Returns the number of entries with this mark.
    pub fn count(&self, mark: ActivityMark) -> u64 {
        self.counts[mark as usize]
    }

    /// Distributes the time from 0 to the last entry over `cells` cells. The cost depends on `cells` and
    /// the maximum number of buckets only.
    pub fn resample(&self, cells: usize) -> Vec<ActivityBucket> {
        let mut out = vec![ActivityBucket::default(); cells];
        for (place, bucket) in self
            .buckets
            .iter()
            .enumerate()
            .filter(|(_, bucket)| bucket.entries > 0)
        {
            // The end of the bucket decides, so that the last entry is in the last cell.
            let end = (place as u64)
                .saturating_mul(self.bucket_ms)
                .saturating_add(self.bucket_ms - 1);
            let at = Millis(end.min(self.last.0));
            if let Some(cell) = out.get_mut(self.cell_at(at, cells)) {
                cell.add(*bucket);
            }
        }
        out
    }

    /// Returns the cell that contains a time; the last cell for times after the end.
    pub fn cell_at(&self, at: Millis, cells: usize) -> usize {
        let last = cells.saturating_sub(1) as u64;
        let place = u128::from(at.0) * u128::from(last) / u128::from(self.last.0.max(1));
        usize::try_from(place.min(u128::from(last))).unwrap_or_default()
    }

    /// Returns the last time in a cell.
    pub fn cell_end(&self, cell: usize, cells: usize) -> Millis {
        let last = cells.saturating_sub(1).max(1) as u128;
        let next = ((cell as u128 + 1) * u128::from(self.last.0.max(1))).div_ceil(last);
        Millis(
            u64::try_from(next)
                .unwrap_or(u64::MAX)
                .saturating_sub(1)
                .min(self.last.0),
        )
    }

    /// Numbers of the entries around a time: earlier entries are before it, and later ones after it. The cost depends on
    /// the maximum number of buckets only.
    pub(crate) fn entries_around(&self, at: Millis) -> Range<u64> {
        let place = usize::try_from(at.0 / self.bucket_ms).unwrap_or(usize::MAX);
        let count = |buckets: &[ActivityBucket]| {
            let entries = buckets.iter().map(|bucket| u64::from(bucket.entries));
            entries.sum::<u64>()
        };
        let (before, rest) = self.buckets.split_at(place.min(self.buckets.len()));
        let first = count(before);
        first..first + count(&rest[..rest.len().min(1)])
    }

    /// Returns the first failure or denial at or after the entry `seq`.
    pub fn first_problem_from(&self, seq: Seq) -> Option<(Seq, AttemptId, ActivityMark)> {
        let place = self
            .problems
            .partition_point(|(bad, ..)| u64::from(*bad) < seq.0);
        self.problems
            .get(place)
            .map(|(seq, attempt_id, mark)| (Seq(u64::from(*seq)), *attempt_id, *mark))
    }

    /// Returns the last failure or denial before the entry `seq`.
    pub fn last_problem_before(&self, seq: Seq) -> Option<(Seq, AttemptId, ActivityMark)> {
        let place = self
            .problems
            .partition_point(|(bad, ..)| u64::from(*bad) < seq.0);
        let (seq, attempt_id, mark) = self.problems.get(place.checked_sub(1)?)?;
        Some((Seq(u64::from(*seq)), *attempt_id, *mark))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn touch(mark: Option<ActivityMark>) -> LastEntryEffects {
        let mut touch = LastEntryEffects {
            attempt: Some(AttemptId(3)),
            ..LastEntryEffects::default()
        };
        if let Some(mark) = mark {
            touch.marks.add(mark);
        }
        touch
    }

    #[test]
    fn failures_are_found_both_ways() {
        let mut activity = ActivityIndex::default();
        for seq in 0..10 {
            let mark = match seq {
                2 => Some(ActivityMark::Failure),
                4 => Some(ActivityMark::Retry),
                7 => Some(ActivityMark::Denial),
                _ => None,
            };
            activity.record(Seq(seq), Millis(seq * 1000), touch(mark));
        }
        let found = |found: Option<(Seq, AttemptId, ActivityMark)>| found.map(|(seq, ..)| seq.0);
        assert_eq!(found(activity.first_problem_from(Seq(0))), Some(2));
        assert_eq!(found(activity.first_problem_from(Seq(2))), Some(2));
        assert_eq!(found(activity.first_problem_from(Seq(3))), Some(7));
        assert_eq!(found(activity.first_problem_from(Seq(8))), None);
        assert_eq!(found(activity.last_problem_before(Seq(7))), Some(2));
        assert_eq!(found(activity.last_problem_before(Seq(2))), None);
        assert_eq!(
            activity.first_problem_from(Seq(0)),
            Some((Seq(2), AttemptId(3), ActivityMark::Failure))
        );
        assert_eq!(
            ActivityMark::ALL.map(|mark| activity.count(mark)),
            [1, 1, 0, 1, 0]
        );
    }

    #[test]
    fn already_recorded_entry_is_not_counted_again() {
        let mut activity = ActivityIndex::default();
        for seq in [0, 1, 2, 0, 1, 2, 3] {
            activity.record(Seq(seq), Millis(seq), touch(Some(ActivityMark::Limit)));
        }
        assert_eq!(activity.count(ActivityMark::Limit), 4);
        assert_eq!(activity.resample(1)[0].entries, 4);
    }

    #[test]
    fn long_run_keeps_all_marks_in_constant_space() {
        let mut activity = ActivityIndex::default();
        for seq in 0..100_000_u64 {
            let mark = (seq % 10_000 == 5_000).then_some(ActivityMark::Failure);
            activity.record(Seq(seq), Millis(seq * 12_345), touch(mark));
        }
        activity.record(
            Seq(100_000),
            Millis(u64::MAX),
            touch(Some(ActivityMark::Retry)),
        );
        assert!(activity.buckets.len() <= MAX_BUCKETS);
        assert_eq!(
            activity
                .resample(80)
                .iter()
                .map(|cell| cell.entries)
                .sum::<u32>(),
            100_001
        );
        assert_eq!(activity.count(ActivityMark::Failure), 10);
        assert_eq!(
            activity.resample(80)[79].marks.most_important(),
            Some(ActivityMark::Retry)
        );
    }

    proptest! {
        #[test]
        fn every_entry_is_in_the_cell_of_its_time(times in prop::collection::vec(0..1_000_000_u64, 1..60), cells in 1..200_usize) {
            let mut activity = ActivityIndex::default();
            let mut times = times;
            times.sort_unstable();
            for (seq, at) in times.iter().enumerate() {
                activity.record(Seq(seq as u64), Millis(*at), touch(None));
            }
            let shown = activity.resample(cells);
            prop_assert_eq!(shown.len(), cells);
            prop_assert_eq!(shown.iter().map(|cell| cell.entries as usize).sum::<usize>(), times.len());
        }

        #[test]
        fn entries_around_a_time_contain_the_first_one_from_it(times in prop::collection::vec(0..1_000_000_u64, 1..60), at in 0..1_100_000_u64) {
            let mut activity = ActivityIndex::default();
            let mut times = times;
            times.sort_unstable();
            for (seq, at) in times.iter().enumerate() {
                activity.record(Seq(seq as u64), Millis(*at), touch(None));
            }
            let around = activity.entries_around(Millis(at));
            let first = times.partition_point(|time| *time < at) as u64;
            prop_assert!(around.start <= first && first <= around.end, "{first} in {around:?}");
        }
    }
}
