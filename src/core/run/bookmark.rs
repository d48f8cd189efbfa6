//! Bookmarks: moments of a run that a person marked, and the lines of the file that keeps them.
//!
//! Pure: a [`BookmarkStore`] does the I/O. A bookmark never changes the tape that it refers to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::Problem,
    tape::{Millis, Seq, UnitKey},
};

/// Maximum number of bookmarks of a record.
pub const MAX_BOOKMARKS: usize = 500;
/// Maximum bytes of a line in the file.
const MAX_LINE_BYTES: usize = 4096;

/// A moment of a run: after this entry, with one unit selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookmark {
    /// The last entry that the moment shows.
    pub entry: Seq,
    /// Time of that entry.
    pub at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitKey>,
    /// Number of the attempt at the unit.
    #[serde(default, rename = "try", skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Bookmark {
    /// True if both mark the same moment of the same unit, whatever their notes are.
    pub fn is_same_moment(&self, other: &Self) -> bool {
        (self.entry, &self.unit) == (other.entry, &other.unit)
    }
}

/// A change of the bookmarks of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BookmarkChange {
    /// Adds a bookmark, or replaces the one at the same moment.
    Set(Bookmark),
    Remove(Bookmark),
}

impl BookmarkChange {
    /// Applies the change to `bookmarks`, which are in the order of their entries.
    pub fn apply(&self, bookmarks: &mut Vec<Bookmark>) {
        let (Self::Set(changed) | Self::Remove(changed)) = self;
        bookmarks.retain(|known| !known.is_same_moment(changed));
        if let Self::Set(bookmark) = self {
            let place = bookmarks.partition_point(|known| known.entry <= bookmark.entry);
            bookmarks.insert(place, bookmark.clone());
            bookmarks.truncate(MAX_BOOKMARKS);
        }
    }
}

/// Keeps the bookmarks of one record.
pub trait BookmarkStore: fmt::Debug + Send + Sync {
    /// Makes a change permanent before it returns.
    ///
    /// # Errors
    /// If it cannot be written. The change is then lost with the session.
    fn change(&self, change: &BookmarkChange) -> Result<(), Problem>;
}

/// Reads the lines of a file, and counts those that are not bookmarks.
pub fn parse(bytes: &[u8]) -> (Vec<Bookmark>, usize) {
    let (mut bookmarks, mut invalid) = (Vec::new(), 0);
    for line in bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
    {
        let parsed = (line.len() <= MAX_LINE_BYTES)
            .then(|| serde_json::from_slice(line).ok())
            .flatten();
        match parsed {
            Some(bookmark) if bookmarks.len() < MAX_BOOKMARKS => {
                BookmarkChange::Set(bookmark).apply(&mut bookmarks)
            }
            _ => invalid += 1,
        }
    }
    (bookmarks, invalid)
}

/// The file with these bookmarks, one per line.
pub fn to_lines(bookmarks: &[Bookmark]) -> String {
    bookmarks
        .iter()
        .filter_map(|bookmark| serde_json::to_string(bookmark).ok())
        .map(|line| line + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bookmark(entry: u64, unit: Option<&str>, note: &str) -> Bookmark {
        let unit = unit.map(UnitKey::from);
        Bookmark {
            entry: Seq(entry),
            at: Millis(entry * 10),
            attempt: unit.is_some().then_some(2),
            unit,
            note: note.into(),
        }
    }

    #[test]
    fn bookmark_at_the_same_moment_is_replaced() {
        let mut list = Vec::new();
        for (entry, unit, note) in [
            (7, Some("a"), "one"),
            (3, None, ""),
            (7, Some("a"), "two"),
            (7, Some("b"), ""),
        ] {
            BookmarkChange::Set(bookmark(entry, unit, note)).apply(&mut list);
        }
        let entries: Vec<_> = list
            .iter()
            .map(|known| (known.entry.0, known.note.as_str()))
            .collect();
        assert_eq!(entries, [(3, ""), (7, "two"), (7, "")]);
        BookmarkChange::Remove(bookmark(7, Some("a"), "another note")).apply(&mut list);
        assert_eq!(list.len(), 2);
    }

    #[test]
    fn invalid_lines_are_counted_and_skipped() {
        let long = format!(
            "{{\"entry\":1,\"at\":1,\"note\":\"{}\"}}",
            "x".repeat(MAX_LINE_BYTES)
        );
        let file = format!(
            "{{\"entry\":5,\"at\":50,\"unit\":\"a\",\"try\":1,\"note\":\"n\",\"later\":true}}\n\n[]\n\u{0}\n{{\"entry\":-1}}\n{long}\n{{\"entry\":2,\"at\":20}}"
        );
        let (list, invalid) = parse(file.as_bytes());
        assert_eq!(
            list.iter().map(|known| known.entry.0).collect::<Vec<_>>(),
            [2, 5]
        );
        assert_eq!(invalid, 4);
        let many: String = (0..MAX_BOOKMARKS + 3)
            .map(|entry| format!("{{\"entry\":{entry},\"at\":0}}\n"))
            .collect();
        let (list, invalid) = parse(many.as_bytes());
        assert_eq!((list.len(), invalid), (MAX_BOOKMARKS, 3));
    }

    proptest! {
        #[test]
        fn file_round_trips(entries in prop::collection::btree_map(any::<u64>(), (any::<Option<String>>(), ".{0,60}"), 0..8)) {
            let list: Vec<_> = entries.iter().map(|(entry, (unit, note))| Bookmark {
                entry: Seq(*entry),
                at: Millis(*entry),
                unit: unit.as_deref().map(UnitKey::from),
                attempt: None,
                note: note.clone(),
            }).collect();
            prop_assert_eq!(parse(to_lines(&list).as_bytes()), (list, 0));
        }

        #[test]
        fn any_file_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
