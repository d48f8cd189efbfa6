//! Throttles a run by the limits of the service, as KTX's governor does: fewer concurrent units while a limit is near,
//! none while a limit is spent, until it resets.
//!
//! A state machine over observations. It returns wait times as data and takes the jitter as an input. It must not
//! depend on clocks, units or timers.

use std::collections::BTreeSet;

use super::limits::{LimitObservation, LimitStatus};
use crate::tape::Millis;

/// Name of the limit that applies when the service rejects single requests. The service reports no end of it: it ends
/// when an attempt succeeds.
pub const REQUEST_RATE_LIMIT: &str = "request rate";

/// Maximum number of stored usage windows. The service has a handful.
const MAX_WINDOWS: usize = 16;

/// Reset times that differ by no more than this are the same reset, in milliseconds.
const SAME_RESET_MS: u64 = 1_000;

/// How a run reacts to limits (`ingest.rateLimit`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottlePolicy {
    /// Whether limits throttle the run. If false, a unit that hits a limit fails.
    pub enabled: bool,
    /// Utilization of a usage window from which fewer units run, 0 to 1.
    pub threshold: f64,
    /// Maximum number of units that run at that utilization; at least 1.
    pub concurrency_under_pressure: u32,
    /// Longest wait, in milliseconds. The run does not wait for a later reset.
    pub max_wait_ms: Option<u64>,
    /// Number of attempts of a unit that may end at a limit, including the first, before the run stops.
    pub max_limit_attempts: u32,
    /// First wait when the service reports no reset time, in milliseconds.
    pub base_delay_ms: u64,
    /// Longest such wait before jitter, in milliseconds.
    pub max_delay_ms: u64,
    /// Seed of the jitter of such waits; `None` for no jitter.
    pub jitter: Option<u64>,
}

impl Default for ThrottlePolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: 0.8,
            concurrency_under_pressure: 1,
            max_wait_ms: None,
            max_limit_attempts: 6,
            base_delay_ms: 1_000,
            max_delay_ms: 60_000,
            jitter: None,
        }
    }
}

impl ThrottlePolicy {
    /// The wait before attempt `pauses + 1` when the service reports no reset time: base, 2 · base, 4 · base, …,
    /// capped.
    pub(crate) fn backoff_ms(&self, pauses: u32) -> u64 {
        let grown = self
            .base_delay_ms
            .saturating_mul(1_u64.checked_shl(pauses).unwrap_or(u64::MAX));
        grown.min(self.max_delay_ms)
    }
}

/// Throttles a run while a limit is near and pauses it while a limit is spent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Governor {
    policy: ThrottlePolicy,
    /// Limits that are near.
    pressured_limits: BTreeSet<String>,
    pause: Option<LimitPause>,
    /// Pauses since the last success; determines the backoff.
    consecutive_pauses: u32,
    /// Number of jitter values drawn.
    jitter_draws: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LimitPause {
    wait_ms: u64,
    /// End of the pause on the run's clock, if the service reported it.
    until: Option<Millis>,
}

/// What an observation changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ThrottleChange {
    Unchanged,
    /// At most this many units run concurrently from now on.
    Throttled(u32),
    Restored,
    /// Nothing starts until the wait is over. Replaces an earlier wait.
    Paused {
        /// Duration of the wait from now, in milliseconds.
        wait_ms: u64,
        /// End of the wait on the run's clock, if the service reported one.
        until: Option<Millis>,
    },
    /// The reset is later than the longest wait.
    ResetTooLate,
}

impl Governor {
    pub(crate) fn new(pacing: ThrottlePolicy) -> Self {
        let slots_under_pressure = pacing.concurrency_under_pressure.max(1);
        Self {
            policy: ThrottlePolicy {
                concurrency_under_pressure: slots_under_pressure,
                ..pacing
            },
            ..Self::default()
        }
    }

    pub(crate) fn observe(&mut self, seen: &LimitObservation) -> ThrottleChange {
        if !self.policy.enabled {
            return ThrottleChange::Unchanged;
        }
        if seen.status == LimitStatus::Rejected {
            return self.pause_until_reset(seen.resets_in_ms, seen.at);
        }
        let near = seen.status == LimitStatus::Warning
            || seen
                .utilization
                .is_some_and(|share| share >= self.policy.threshold);
        if near {
            self.add_pressure(&seen.name)
        } else {
            self.remove_pressure(&seen.name)
        }
    }

    /// Records an attempt that ended at a limit. If no observation caused a pause, this starts one.
    pub(crate) fn record_limit_hit(&mut self) -> ThrottleChange {
        if self.is_paused() || !self.policy.enabled {
            ThrottleChange::Unchanged
        } else {
            self.pause_with_backoff()
        }
    }

    /// Ends the pause, if there is one, and clears the limits that are near.
    pub(crate) fn end_pause(&mut self) {
        if self.pause.take().is_some() {
            self.pressured_limits.clear();
        }
    }

    /// Records an attempt that got through, which resets the backoff.
    pub(crate) fn record_success(&mut self) -> ThrottleChange {
        self.consecutive_pauses = 0;
        self.remove_pressure(REQUEST_RATE_LIMIT)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Duration of the pause when it began, in milliseconds.
    pub(crate) fn wait_ms(&self) -> u64 {
        self.pause.map_or(0, |pause| pause.wait_ms)
    }

    /// Number of `slots` that may be used.
    pub(crate) fn concurrency(&self, slots: u32) -> u32 {
        if self.pressured_limits.is_empty() {
            slots
        } else {
            slots.min(self.policy.concurrency_under_pressure)
        }
    }

    fn add_pressure(&mut self, name: &str) -> ThrottleChange {
        let first = self.pressured_limits.is_empty();
        if self.pressured_limits.len() < MAX_WINDOWS {
            self.pressured_limits.insert(name.to_owned());
        }
        if first {
            ThrottleChange::Throttled(self.policy.concurrency_under_pressure)
        } else {
            ThrottleChange::Unchanged
        }
    }

    fn remove_pressure(&mut self, name: &str) -> ThrottleChange {
        let last = self.pressured_limits.remove(name) && self.pressured_limits.is_empty();
        if last {
            ThrottleChange::Restored
        } else {
            ThrottleChange::Unchanged
        }
    }

    fn pause_until_reset(&mut self, resets_in_ms: Option<u64>, at: Millis) -> ThrottleChange {
        let Some(wait) = resets_in_ms else {
            return if self.is_paused() {
                ThrottleChange::Unchanged
            } else {
                self.pause_with_backoff()
            };
        };
        // The reset may have passed on our clock while the service still rejects attempts. The growing minimum wait
        // prevents a hot loop.
        let wait_ms = wait.max(self.policy.backoff_ms(self.consecutive_pauses));
        if self
            .policy
            .max_wait_ms
            .is_some_and(|longest| wait > longest)
        {
            return ThrottleChange::ResetTooLate;
        }
        if wait_ms > wait && self.is_paused() {
            // The next attempt shows whether the service agrees.
            return ThrottleChange::Unchanged;
        }
        let until = Millis(at.0.saturating_add(wait_ms));
        let later = match self.pause {
            // The service may report the same reset twice, and the clock is read at different moments.
            Some(LimitPause {
                until: Some(current),
                ..
            }) => until.since(current).0 > SAME_RESET_MS,
            Some(LimitPause { until: None, .. }) | None => true,
        };
        if later {
            self.pause(wait_ms, Some(until))
        } else {
            ThrottleChange::Unchanged
        }
    }

    fn pause_with_backoff(&mut self) -> ThrottleChange {
        let wait = self.with_jitter(self.policy.backoff_ms(self.consecutive_pauses));
        self.pause(
            self.policy
                .max_wait_ms
                .map_or(wait, |longest| wait.min(longest)),
            None,
        )
    }

    fn pause(&mut self, wait_ms: u64, until: Option<Millis>) -> ThrottleChange {
        if self.pause.is_none() {
            self.consecutive_pauses = self.consecutive_pauses.saturating_add(1);
        }
        self.pause = Some(LimitPause { wait_ms, until });
        ThrottleChange::Paused { wait_ms, until }
    }

    /// Returns 75 % to 125 % of `wait`, so that programs that were rejected at the same time do not retry at the same
    /// time.
    fn with_jitter(&mut self, wait: u64) -> u64 {
        let Some(seed) = self.policy.jitter else {
            return wait;
        };
        self.jitter_draws = self.jitter_draws.wrapping_add(1);
        let quarter = wait / 4;
        wait - quarter + splitmix64(seed.wrapping_add(self.jitter_draws)) % (2 * quarter + 1)
    }
}

/// SplitMix64: similar inputs give unrelated outputs.
fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
