//! Limits: the turns of one attempt, and the usage windows that the service reports.
//!
//! The [`governor`](super::governor) decides how a run reacts to usage windows. The module must not depend on a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tape::Millis;

/// Longest silence of an attempt that no person watches, if nothing else is set.
pub(crate) const UNATTENDED_SILENCE: Duration = Duration::from_secs(10 * 60);
/// Longest duration of an attempt that no person watches, if nothing else is set.
pub(crate) const UNATTENDED_ATTEMPT: Duration = Duration::from_secs(2 * 60 * 60);
/// Longest wait for a person while no screen is attached, if nothing else is set.
pub(crate) const UNATTENDED_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest wait for a review while no screen is attached, if nothing else is set.
pub(crate) const REVIEW_IDLE_TIMEOUT: Duration = Duration::from_secs(8 * 60 * 60);

/// A time limit as a person set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TimeLimitSetting {
    /// Not set: a default applies where no person can intervene.
    #[default]
    Unset,
    Unlimited,
    After(Duration),
}

impl TimeLimitSetting {
    /// The effective limit, with `default` for one that is not set.
    pub(crate) fn or(self, default: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Unset => default,
            Self::Unlimited => None,
            Self::After(limit) => Some(limit),
        }
    }
}

impl From<Option<Duration>> for TimeLimitSetting {
    fn from(limit: Option<Duration>) -> Self {
        limit.map_or(Self::Unlimited, Self::After)
    }
}

/// The time limits of the attempts of a run, as a person set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TimeLimitSettings {
    /// Longest time without output of the agent.
    pub silence: TimeLimitSetting,
    /// Longest duration of an attempt.
    pub attempt: TimeLimitSetting,
    /// Longest wait for a decision of a person.
    pub approval: TimeLimitSetting,
}

impl TimeLimitSettings {
    /// No limits at all.
    pub(crate) const UNLIMITED: Self = Self {
        silence: TimeLimitSetting::Unlimited,
        attempt: TimeLimitSetting::Unlimited,
        approval: TimeLimitSetting::Unlimited,
    };

    /// The limits that apply to an attempt. What is set always applies; the defaults apply where no person can
    /// intervene: without an attached screen, and on a worker.
    pub(crate) fn effective(&self, is_remote: bool, has_screen: bool) -> AttemptTimeouts {
        let is_alone = is_remote || !has_screen;
        AttemptTimeouts {
            silence: self.silence.or(is_alone.then_some(UNATTENDED_SILENCE)),
            total: self.attempt.or(is_alone.then_some(UNATTENDED_ATTEMPT)),
            approval: self.approval.or((!has_screen).then_some(UNATTENDED_WAIT)),
        }
    }
}

impl From<AttemptTimeouts> for TimeLimitSettings {
    fn from(limits: AttemptTimeouts) -> Self {
        Self { silence: limits.silence.into(), attempt: limits.total.into(), approval: limits.approval.into() }
    }
}

/// Effective time limits of an attempt; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttemptTimeouts {
    /// Longest time without output of the agent.
    pub silence: Option<Duration>,
    /// Longest time since the start of the process.
    pub total: Option<Duration>,
    /// Longest wait for a decision of a person.
    #[serde(default)]
    pub approval: Option<Duration>,
}

/// The warning of an attempt that has just begun its turn number `turn` of at most `max`: once, at four fifths.
pub(crate) fn turn_limit_warning(turn: u32, max: u32) -> Option<String> {
    // floor(0.8 · max), without floats.
    let is_due = turn != max && u64::from(turn) == u64::from(max) * 4 / 5;
    is_due.then(|| format!("Approaching turn limit: {turn}/{max}"))
}

/// State of a usage window, as the service reported it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LimitObservation {
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
pub(crate) enum LimitStatus {
    Allowed,
    Warning,
    Rejected,
}

impl LimitStatus {
    /// Parses the service's status. Returns `None` for a status that a later release adds.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "allowed" => Some(Self::Allowed),
            "allowed_warning" => Some(Self::Warning),
            "rejected" => Some(Self::Rejected),
            _ => None,
        }
    }
}

/// Time from `now_ms` until `resets_at` (Unix seconds), both on the wall clock, in milliseconds; zero if it has passed.
pub(crate) fn resets_in_ms(resets_at: i64, now_ms: i64) -> u64 {
    u64::try_from(resets_at.saturating_mul(1_000).saturating_sub(now_ms)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_warn_once_at_four_fifths() {
        let warnings = |max| (1..=60).filter_map(|turn| turn_limit_warning(turn, max)).collect::<Vec<_>>();
        assert_eq!(warnings(50), ["Approaching turn limit: 40/50"]);
        assert_eq!(warnings(3), ["Approaching turn limit: 2/3"]);
        assert_eq!((warnings(1), warnings(0)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn default_time_limits_apply_where_no_person_can_intervene() {
        let limits = |is_remote, has_screen| TimeLimitSettings::default().effective(is_remote, has_screen);
        let (silence, total, approval) = (Some(UNATTENDED_SILENCE), Some(UNATTENDED_ATTEMPT), Some(UNATTENDED_WAIT));
        assert_eq!(limits(false, true), AttemptTimeouts::default());
        assert_eq!(limits(false, false), AttemptTimeouts { silence, total, approval });
        assert_eq!(limits(true, false), AttemptTimeouts { silence, total, approval });
        assert_eq!(limits(true, true), AttemptTimeouts { silence, total, approval: None });
    }

    #[test]
    fn set_time_limits_apply_with_and_without_a_screen() {
        let after = |seconds| TimeLimitSetting::After(Duration::from_secs(seconds));
        let set = TimeLimitSettings { silence: after(5), attempt: TimeLimitSetting::Unlimited, approval: after(7) };
        for (is_remote, has_screen) in [(false, true), (false, false), (true, true), (true, false)] {
            let limits = set.effective(is_remote, has_screen);
            assert_eq!((limits.silence, limits.total), (Some(Duration::from_secs(5)), None));
            assert_eq!(limits.approval, Some(Duration::from_secs(7)));
            assert_eq!(TimeLimitSettings::from(limits).effective(true, false), limits);
        }
        assert_eq!(TimeLimitSettings::UNLIMITED.effective(true, false), AttemptTimeouts::default());
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
