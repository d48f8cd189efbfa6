//! Times on a tape: milliseconds since the run started, and their wall-clock form. Reads no clock.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Milliseconds since the run started.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Time that passed since `earlier`; zero if `earlier` is later (clocks of tool results may run backwards).
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The wall-clock time of this moment in a run that started at `start`.
    pub fn to_timestamp(self, start: Timestamp) -> Option<Timestamp> {
        let span = jiff::SignedDuration::from_millis(i64::try_from(self.0).ok()?);
        start.checked_add(span).ok()
    }
}

/// `3s`, `1m 01s`, `1h 01m`: durations for people, always short.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let text = if hours > 0 {
            format!("{hours}h {minutes:02}m")
        } else if minutes > 0 {
            format!("{minutes}m {rest:02}s")
        } else {
            format!("{seconds}s")
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millis_display_is_a_short_duration() {
        let shown = |ms| Millis(ms).to_string();
        assert_eq!(
            [shown(3_400), shown(61_000), shown(3_660_000)],
            ["3s", "1m 01s", "1h 01m"]
        );
    }
}
