//! Limits: the turns of one attempt, and the usage windows that the service reports.
//!
//! The [`governor`](super::governor) decides how a run reacts to usage windows. The module must not depend on a clock.

use crate::tape::Millis;

/// The warning of an attempt that has just begun its turn number `turn` of at most `max`: once, at four fifths.
pub fn turn_limit_warning(turn: u32, max: u32) -> Option<String> {
    // floor(0.8 · max), without floats.
    let is_due = turn != max && u64::from(turn) == u64::from(max) * 4 / 5;
    is_due.then(|| format!("Approaching turn limit: {turn}/{max}"))
}

/// State of a usage window, as the service reported it.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitObservation {
    /// When the report was received.
    pub at: Millis,
    /// Name of the window (`five_hour`, …).
    pub name: String,
    pub status: LimitStatus,
    /// 0 to 1, if reported.
    pub utilization: Option<f64>,
    /// Time until the window resets, if reported.
    pub resets_in_ms: Option<u64>,
}

/// Short name of a usage window that the service reports by an identifier.
pub fn window_name(id: &str) -> String {
    match id {
        "five_hour" => "5h".to_owned(),
        "seven_day" => "7d".to_owned(),
        id => id.replace('_', " "),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitStatus {
    Allowed,
    Warning,
    Rejected,
}

impl LimitStatus {
    /// Parses the service's status. Returns `None` for a status that a later release adds.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "allowed" => Some(Self::Allowed),
            "allowed_warning" => Some(Self::Warning),
            "rejected" => Some(Self::Rejected),
            _ => None,
        }
    }
}

/// Time from `now_ms` until `resets_at` (Unix seconds), both on the wall clock, in milliseconds; zero if it has passed.
pub fn resets_in_ms(resets_at: i64, now_ms: i64) -> u64 {
    u64::try_from(resets_at.saturating_mul(1_000).saturating_sub(now_ms)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_warn_once_at_four_fifths() {
        let warnings = |max| {
            (1..=60)
                .filter_map(|turn| turn_limit_warning(turn, max))
                .collect::<Vec<_>>()
        };
        assert_eq!(warnings(50), ["Approaching turn limit: 40/50"]);
        assert_eq!(warnings(3), ["Approaching turn limit: 2/3"]);
        assert_eq!((warnings(1), warnings(0)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn unknown_limit_status_is_none() {
        assert_eq!(
            LimitStatus::parse("allowed_warning"),
            Some(LimitStatus::Warning)
        );
        assert_eq!(LimitStatus::parse("perhaps"), None);
    }

    #[test]
    fn waits_until_a_reset_do_not_overflow() {
        assert_eq!(resets_in_ms(10, 4_000), 6_000);
        assert_eq!(resets_in_ms(10, 40_000), 0);
        assert_eq!(resets_in_ms(i64::MIN, i64::MAX), 0);
        assert!(resets_in_ms(i64::MAX, 0) > 0);
    }
}
