//! How much there is of the run that is shown, as far as it is known: its length, and how it stands in the present.

use jiff::{Timestamp, tz::TimeZone};

use super::StatusTotals;
use crate::tape::Millis;

/// The whole of a run, whichever moment of it is shown.
#[derive(Clone, Debug)]
pub struct TimelineBounds {
    /// Time of the last entry that was read.
    pub last_at: Millis,
    /// Entries that were read or found.
    pub known_entries: u64,
    /// False when the record has no times of its own: entries are then the axis.
    pub has_times: bool,
    /// Wall-clock time of the beginning, if known.
    pub started_at: Option<Timestamp>,
    /// Where the wall hangs.
    pub zone: TimeZone,
    /// Counts at the last moment that was read.
    pub present_totals: StatusTotals,
    /// Time of the run in the present: by the wall clock while it goes on.
    pub now: Millis,
    /// Where the shell is going, in words.
    pub seeking_to: Option<String>,
}

impl Default for TimelineBounds {
    fn default() -> Self {
        Self {
            last_at: Millis(0),
            known_entries: 0,
            has_times: true,
            started_at: None,
            zone: TimeZone::UTC,
            present_totals: StatusTotals::default(),
            now: Millis(0),
            seeking_to: None,
        }
    }
}
