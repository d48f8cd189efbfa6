//! Bounds of the whole run, as far as they are known: its length, and its counts in the present.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::RunTotals;
use ingestdeck_core::tape::Millis;

/// Bounds of a run, independent of the moment that is shown.
#[derive(Clone, Debug)]
pub struct TimelineBounds {
    /// Time of the last entry that was read.
    pub last_at: Millis,
    /// Number of entries that were read or found.
    pub known_entries: u64,
    /// False when the tape has no timestamps. The axis then counts entries.
    pub has_times: bool,
    /// Wall-clock time of the start, if known.
    pub started_at: Option<Timestamp>,
    /// Time zone for wall-clock times.
    pub zone: TimeZone,
    /// Counts at the last moment that was read.
    pub present_totals: RunTotals,
    /// True while the run waits for a review.
    pub is_review_open: bool,
    /// Present time of the run; follows the wall clock while the run is live.
    pub now: Millis,
    /// The share of the run that is read, in percent, while it is read for the first time.
    pub percent_read: Option<u64>,
    /// True while only the beginning of a session is shown, and what its entries mean is not certain yet.
    pub is_provisional: bool,
    /// Description of the moment that the shell is seeking to.
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
            present_totals: RunTotals::default(),
            is_review_open: false,
            now: Millis(0),
            percent_read: None,
            is_provisional: false,
            seeking_to: None,
        }
    }
}

/// Day and time of the wall clock at a run time, to the minute, as `Sun 22 Nov 10:00`.
pub(crate) fn short_date_time(start: Timestamp, at: Millis, zone: &TimeZone) -> Option<String> {
    let zoned = at.to_timestamp(start)?.to_zoned(zone.clone());
    Some(zoned.strftime("%a %-d %b %H:%M").to_string())
}

/// Wall clock time at a run time.
pub fn wall_clock(start: Timestamp, at: Millis, zone: &TimeZone) -> Option<String> {
    let passed = SignedDuration::from_millis(i64::try_from(at.0).ok()?);
    let zoned = start.checked_add(passed).ok()?.to_zoned(zone.clone());
    Some(zoned.strftime("%H:%M:%S").to_string())
}
