//! How much there is of the run that is shown, as far as it is known: its length, and how it stands in the present.

use jiff::{Timestamp, tz::TimeZone};

use super::Totals;
use crate::tape::Millis;

/// The whole of a run, whichever moment of it is shown.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Time of the last entry that was read.
    pub last: Millis,
    /// Entries that were read or found.
    pub known: u64,
    /// False when the record has no times of its own: entries are then the axis.
    pub has_times: bool,
    /// Wall-clock time of the beginning, if known.
    pub started_at: Option<Timestamp>,
    /// Where the wall hangs.
    pub zone: TimeZone,
    /// Counts at the last moment that was read.
    pub present: Totals,
    /// Time of the run in the present: by the wall clock while it goes on.
    pub now: Millis,
    /// Where the shell is going, in words.
    pub going: Option<String>,
}

impl Default for Extent {
    fn default() -> Self {
        Self {
            last: Millis(0),
            known: 0,
            has_times: true,
            started_at: None,
            zone: TimeZone::UTC,
            present: Totals::default(),
            now: Millis(0),
            going: None,
        }
    }
}
