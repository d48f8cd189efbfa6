//! The time limits of attempts and of waits for a person: what is set, and the defaults where no person can intervene.
//! The module must not depend on a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use ingestdeck_core::config::{IngestSettings, time_limit::TimeLimitSetting};

/// How long an agent waits for a tool (`MCP_TOOL_TIMEOUT`).
pub const LONGEST_TOOL_WAIT: Duration = Duration::from_secs(10 * 60);
/// Longest silence of an attempt that no person watches, if nothing else is set.
pub const UNATTENDED_SILENCE: Duration = Duration::from_secs(10 * 60);
/// Longest duration of an attempt that no person watches, if nothing else is set.
pub const UNATTENDED_ATTEMPT: Duration = Duration::from_secs(2 * 60 * 60);
/// Longest wait for a person while no screen is attached, if nothing else is set.
pub const UNATTENDED_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest wait for a review while no screen is attached, if nothing else is set.
pub const REVIEW_IDLE_TIMEOUT: Duration = Duration::from_secs(8 * 60 * 60);

/// The time limits of the attempts of a run, as a person set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeLimitSettings {
    /// Longest time without output of the agent.
    pub silence: TimeLimitSetting,
    /// Longest duration of an attempt.
    pub attempt: TimeLimitSetting,
    /// Longest wait for a decision of a person.
    pub approval: TimeLimitSetting,
}

impl TimeLimitSettings {
    /// No limits at all.
    #[cfg(test)]
    pub(crate) const UNLIMITED: Self = Self {
        silence: TimeLimitSetting::Unlimited,
        attempt: TimeLimitSetting::Unlimited,
        approval: TimeLimitSetting::Unlimited,
    };

    /// The limits in the settings.
    pub fn from_config(ingest: &IngestSettings) -> Self {
        Self {
            silence: *ingest.silence_timeout,
            attempt: *ingest.unit_timeout,
            approval: *ingest.approval_timeout,
        }
    }

    /// The limits that apply to an attempt. What is set always applies; the defaults apply where no person can
    /// intervene: without an attached screen, and on a worker.
    pub fn effective(&self, is_remote: bool, has_screen: bool) -> AttemptTimeouts {
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
        Self {
            silence: limits.silence.into(),
            attempt: limits.total.into(),
            approval: limits.approval.into(),
        }
    }
}

/// Effective time limits of an attempt; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptTimeouts {
    /// Longest time without output of the agent.
    pub silence: Option<Duration>,
    /// Longest time since the start of the process.
    pub total: Option<Duration>,
    /// Longest wait for a decision of a person.
    #[serde(default)]
    pub approval: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_time_limits_apply_where_no_person_can_intervene() {
        let limits =
            |is_remote, has_screen| TimeLimitSettings::default().effective(is_remote, has_screen);
        let (silence, total, approval) = (
            Some(UNATTENDED_SILENCE),
            Some(UNATTENDED_ATTEMPT),
            Some(UNATTENDED_WAIT),
        );
        assert_eq!(limits(false, true), AttemptTimeouts::default());
        assert_eq!(
            limits(false, false),
            AttemptTimeouts {
                silence,
                total,
                approval
            }
        );
        assert_eq!(
            limits(true, false),
            AttemptTimeouts {
                silence,
                total,
                approval
            }
        );
        assert_eq!(
            limits(true, true),
            AttemptTimeouts {
                silence,
                total,
                approval: None
            }
        );
    }

    #[test]
    fn set_time_limits_apply_with_and_without_a_screen() {
        let after = |seconds| TimeLimitSetting::After(Duration::from_secs(seconds));
        let set = TimeLimitSettings {
            silence: after(5),
            attempt: TimeLimitSetting::Unlimited,
            approval: after(7),
        };
        for (is_remote, has_screen) in [(false, true), (false, false), (true, true), (true, false)]
        {
            let limits = set.effective(is_remote, has_screen);
            assert_eq!(
                (limits.silence, limits.total),
                (Some(Duration::from_secs(5)), None)
            );
            assert_eq!(limits.approval, Some(Duration::from_secs(7)));
            assert_eq!(
                TimeLimitSettings::from(limits).effective(true, false),
                limits
            );
        }
        assert_eq!(
            TimeLimitSettings::UNLIMITED.effective(true, false),
            AttemptTimeouts::default()
        );
    }
}
