//! Limits: the turns of one attempt, and the usage windows that the service reports.
//!
//! The [`governor`](super::governor) decides how a run reacts to usage windows. The module must not depend on a clock.

use std::collections::HashSet;

use crate::tape::Millis;

/// Counts the turns of an attempt: distinct ids of top-level messages of the model.
#[derive(Clone, Debug)]
pub struct TurnLimiter {
    max: u32,
    turns: u32,
    seen: HashSet<Box<str>>,
}

/// What a turn led to. Each value is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEvent {
    /// Four fifths of the turns are spent.
    Approaching {
        turn: u32,
        max: u32,
    },
    Reached {
        turn: u32,
    },
}

impl std::fmt::Display for TurnEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Approaching { turn, max } => write!(f, "Approaching turn limit: {turn}/{max}"),
            Self::Reached { turn } => write!(f, "Turn limit reached ({turn})"),
        }
    }
}

impl TurnLimiter {
    /// A limiter that allows `max` turns.
    pub fn new(max: u32) -> Self {
        Self { max, turns: 0, seen: HashSet::new() }
    }

    /// Records an assistant line of the main loop. Lines with the same id are one turn; a line without an id is a
    /// separate turn.
    pub fn record_message(&mut self, message_id: Option<&str>) -> Option<TurnEvent> {
        if let Some(id) = message_id
            && !self.seen.insert(id.into())
        {
            return None;
        }
        self.turns = self.turns.saturating_add(1);
        // floor(0.8 · max), without floats.
        let careful = u64::from(self.max) * 4 / 5;
        if self.turns == self.max {
            Some(TurnEvent::Reached { turn: self.turns })
        } else if u64::from(self.turns) == careful {
            Some(TurnEvent::Approaching { turn: self.turns, max: self.max })
        } else {
            None
        }
    }

    pub fn turns(&self) -> u32 {
        self.turns
    }

    pub fn remaining(&self) -> u32 {
        self.max.saturating_sub(self.turns)
    }
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

    fn warnings(max: u32, ids: impl Iterator<Item = Option<String>>) -> Vec<String> {
        let mut limiter = TurnLimiter::new(max);
        ids.filter_map(|id| limiter.record_message(id.as_deref())).map(|event| event.to_string()).collect()
    }

    #[test]
    fn turns_warn_once_at_four_fifths() {
        let thrice = (0..60).flat_map(|n| std::iter::repeat_n(Some(format!("m{n}")), 3));
        assert_eq!(warnings(50, thrice), ["Approaching turn limit: 40/50", "Turn limit reached (50)"]);
        assert_eq!(
            warnings(3, std::iter::repeat_n(None, 5)),
            ["Approaching turn limit: 2/3", "Turn limit reached (3)"]
        );
        assert_eq!(warnings(1, std::iter::repeat_n(None, 3)), ["Turn limit reached (1)"]);
        assert_eq!(warnings(0, std::iter::repeat_n(None, 3)), [] as [&str; 0]);
    }

    #[test]
    fn turns_left_never_go_below_zero() {
        let mut limiter = TurnLimiter::new(1);
        limiter.record_message(None);
        limiter.record_message(None);
        assert_eq!((limiter.turns(), limiter.remaining()), (2, 0));
    }

    #[test]
    fn unknown_limit_status_is_none() {
        assert_eq!(LimitStatus::parse("allowed_warning"), Some(LimitStatus::Warning));
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
