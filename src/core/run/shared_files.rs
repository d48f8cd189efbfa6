//! Files that several units of a run wrote, and how the versions were combined. Pure.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use super::state::{RunState, UnitState};
use crate::tape::{
    UnitKey,
    note::{PatchResult, SharedWrite},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    /// Path relative to the project.
    pub path: String,
    pub units: Vec<UnitKey>,
    /// True if git merged different texts; false if all units wrote the same text.
    pub was_merged: bool,
}

impl fmt::Display for SharedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units: Vec<&str> = self.units.iter().map(UnitKey::as_str).collect();
        write!(
            f,
            "{}: written by {}; {}",
            self.path,
            units.join(", "),
            self.resolution()
        )
    }
}

impl SharedFile {
    /// The resolution as the end of a sentence.
    pub fn resolution(&self) -> &'static str {
        if self.was_merged {
            "git merged their versions, so review the result"
        } else {
            "their versions are identical"
        }
    }
}

/// Returns the shared files, sorted by path. A rejected patch shares no files: its conflict has its own verdict.
pub fn find_shared_files(state: &RunState) -> Vec<SharedFile> {
    let mut files: BTreeMap<&str, SharedFile> = BTreeMap::new();
    let mut seen: HashSet<(&str, &UnitKey)> = HashSet::new();
    for (unit, shared) in state.units.iter().flat_map(|unit| {
        shared_by_unit(state, unit)
            .iter()
            .map(move |shared| (unit, shared))
    }) {
        let new = || SharedFile {
            path: shared.path.clone(),
            units: Vec::new(),
            was_merged: false,
        };
        let file = files.entry(&shared.path).or_insert_with(new);
        file.was_merged |= shared.was_merged;
        for writer in shared.earlier_writers.iter().chain([&unit.key]) {
            if seen.insert((&shared.path, writer)) {
                file.units.push(writer.clone());
            }
        }
    }
    files.into_values().collect()
}

fn shared_by_unit<'a>(state: &'a RunState, unit: &'a UnitState) -> &'a [SharedWrite] {
    match unit.latest() {
        Some(attempt)
            if attempt
                .delivery
                .integration
                .is_some_and(PatchResult::keeps_success) =>
        {
            &attempt.delivery.shared_writes
        }
        Some(_) => &[],
        None => state
            .publication
            .prior_patches
            .get(&unit.key)
            .map_or(&[], |taken| &taken.shared_writes),
    }
}
