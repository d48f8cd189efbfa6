//! The rows of the starts of attempts, which also cover the entries that normally follow: the announcement of the
//! session and the proof of the isolation.

use std::collections::BTreeMap;

use crate::tape::Seq;

/// The entries that these rows cover, by the first entry of the row. It only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartRows(BTreeMap<u32, [Option<u32>; 2]>);

impl StartRows {
    pub(super) fn cover_announcement(&mut self, first: Seq, entry: Seq) {
        self.cover(first, 0, entry);
    }

    pub(super) fn cover_isolation(&mut self, first: Seq, entry: Seq) {
        self.cover(first, 1, entry);
    }

    fn cover(&mut self, first: Seq, place: usize, entry: Seq) {
        if let (Ok(first), Ok(entry)) = (u32::try_from(first.0), u32::try_from(entry.0)) {
            self.0.entry(first).or_default()[place] = Some(entry);
        }
    }

    /// The announcement and the proof, as far as they are covered at the moment after `entries` entries.
    pub(super) fn covered(&self, first: Seq, entries: u64) -> [Option<Seq>; 2] {
        let found = u32::try_from(first.0)
            .ok()
            .and_then(|first| self.0.get(&first));
        let covered = found.copied().unwrap_or_default();
        covered.map(|entry| {
            entry
                .map(|entry| Seq(u64::from(entry)))
                .filter(|entry| entry.0 < entries)
        })
    }
}
