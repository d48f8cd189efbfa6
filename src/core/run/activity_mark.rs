//! Kinds of events that users look for in a long run. Must not know where they are shown.

/// A kind of event that users look for in a long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivityMark {
    Failure,
    Denial,
    /// A usage limit was near or reached, or a budget was exhausted.
    Limit,
    /// An attempt or an API request was retried.
    Retry,
    /// A wait for a person began: of a call for an approval, or of the run for a decision or a review.
    Hold,
}

impl ActivityMark {
    /// All marks, the most important one first.
    pub const ALL: [Self; 5] = [
        Self::Failure,
        Self::Denial,
        Self::Limit,
        Self::Retry,
        Self::Hold,
    ];

    /// Its text in the singular and in the plural.
    pub fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::Failure => ("failure", "failures"),
            Self::Denial => ("denial", "denials"),
            Self::Limit => ("limit", "limits"),
            Self::Retry => ("retry", "retries"),
            Self::Hold => ("wait for you", "waits for you"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityMarks(u8);

impl ActivityMarks {
    pub(crate) fn add(&mut self, mark: ActivityMark) {
        self.0 |= 1 << mark as u8;
    }

    pub(crate) fn has(self, mark: ActivityMark) -> bool {
        self.0 & (1 << mark as u8) != 0
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the most important mark in the set.
    pub fn most_important(self) -> Option<ActivityMark> {
        ActivityMark::ALL.into_iter().find(|mark| self.has(*mark))
    }
}
