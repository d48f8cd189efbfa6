//! Paces a run by the limits of the service, as KTX's governor does: fewer units at once while a limit is near, none
//! until it resets while one is spent.
//!
//! A state machine over what was heard. Waits are given as data and the jitter is an input: it must not know what time
//! it is, which units there are, or who waits.

use std::collections::BTreeSet;

use super::limits::{LimitObservation, LimitStatus};
use crate::tape::Millis;

/// Name of the pressure that an agent feels when the service turns single requests away. Nobody takes it back: it goes
/// when an attempt gets through.
pub const REQUEST_RATE_LIMIT: &str = "request rate";

/// Most names of usage windows that are kept; there are a handful.
const MAX_WINDOWS: usize = 16;

/// Resets this close to each other are one.
const SAME_RESET_MS: u64 = 1_000;

/// `ingest.rateLimit`: how limits are met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottlePolicy {
    /// Whether limits pace the run at all. If not, a unit that meets one fails.
    pub enabled: bool,
    /// Share of a usage window from which on fewer units run.
    pub threshold: f64,
    /// Units that may run then; at least 1.
    pub concurrency_under_pressure: u32,
    /// Longest wait. A reset that comes later is not waited for.
    pub max_wait_ms: Option<u64>,
    /// Tries of a unit that end at a limit, the first included, until the run is given up.
    pub max_limit_attempts: u32,
    /// First wait when the service names no reset.
    pub base_delay_ms: u64,
    /// Longest such wait, before the jitter.
    pub max_delay_ms: u64,
    /// Where the jitter of such waits begins; `None` for none.
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
    /// The wait before try number `pauses + 1` when nobody says how long: base, 2 · base, 4 · base, … capped.
    pub fn backoff_ms(&self, pauses: u32) -> u64 {
        let grown = self.base_delay_ms.saturating_mul(1_u64.checked_shl(pauses).unwrap_or(u64::MAX));
        grown.min(self.max_delay_ms)
    }
}

/// Slows a run down while a limit is near, and holds it while one is spent.
#[derive(Clone, Debug, Default)]
pub struct Governor {
    policy: ThrottlePolicy,
    /// Limits that are near.
    pressured_limits: BTreeSet<String>,
    pause: Option<LimitPause>,
    /// Pauses since something got through: how far waits have grown.
    consecutive_pauses: u32,
    /// Jitters drawn so far.
    jitter_draws: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LimitPause {
    wait_ms: u64,
    /// End on the run's clock, if the service named it.
    until: Option<Millis>,
}

/// What an observation changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThrottleChange {
    /// Nothing.
    Unchanged,
    /// This many units at a time from now on.
    Throttled(u32),
    /// Full speed again.
    Restored,
    /// Nothing starts until the wait is over. Replaces an earlier wait.
    Paused {
        /// The wait from now.
        wait_ms: u64,
        /// Its end on the run's clock, if the service named one.
        until: Option<Millis>,
    },
    /// The reset comes later than anybody wants to wait.
    ResetTooLate,
}

impl Governor {
    /// A governor that keeps to `pacing`.
    pub fn new(pacing: ThrottlePolicy) -> Self {
        let slots_under_pressure = pacing.concurrency_under_pressure.max(1);
        Self {
            policy: ThrottlePolicy { concurrency_under_pressure: slots_under_pressure, ..pacing },
            ..Self::default()
        }
    }

    /// Takes an observation.
    pub fn observe(&mut self, seen: &LimitObservation) -> ThrottleChange {
        if !self.policy.enabled {
            return ThrottleChange::Unchanged;
        }
        if seen.status == LimitStatus::Rejected {
            return self.pause_until_reset(seen.resets_in_ms, seen.at);
        }
        let near =
            seen.status == LimitStatus::Warning || seen.utilization.is_some_and(|share| share >= self.policy.threshold);
        if near { self.add_pressure(&seen.name) } else { self.remove_pressure(&seen.name) }
    }

    /// An attempt ended at a limit. If nothing was heard of it, that is a wait of its own.
    pub fn record_limit_hit(&mut self) -> ThrottleChange {
        if self.is_paused() || !self.policy.enabled { ThrottleChange::Unchanged } else { self.pause_with_backoff() }
    }

    /// The wait is over, if there was one. The windows start afresh with it.
    pub fn end_pause(&mut self) {
        if self.pause.take().is_some() {
            self.pressured_limits.clear();
        }
    }

    /// An attempt got through: the next pause is a first one again.
    pub fn record_success(&mut self) -> ThrottleChange {
        self.consecutive_pauses = 0;
        self.remove_pressure(REQUEST_RATE_LIMIT)
    }

    /// True while nothing may start.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// The pause, as it was when it began.
    pub fn wait_ms(&self) -> u64 {
        self.pause.map_or(0, |pause| pause.wait_ms)
    }

    /// Slots out of `slots` that may be used.
    pub fn concurrency(&self, slots: u32) -> u32 {
        if self.pressured_limits.is_empty() { slots } else { slots.min(self.policy.concurrency_under_pressure) }
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
        if last { ThrottleChange::Restored } else { ThrottleChange::Unchanged }
    }

    fn pause_until_reset(&mut self, resets_in_ms: Option<u64>, at: Millis) -> ThrottleChange {
        let Some(wait) = resets_in_ms else {
            return if self.is_paused() { ThrottleChange::Unchanged } else { self.pause_with_backoff() };
        };
        // The reset may already have passed on our clock, and the next attempt may be rejected again: the least wait
        // grows, so that this never becomes a hot loop.
        let wait_ms = wait.max(self.policy.backoff_ms(self.consecutive_pauses));
        if self.policy.max_wait_ms.is_some_and(|longest| wait > longest) {
            return ThrottleChange::ResetTooLate;
        }
        let until = Millis(at.0.saturating_add(wait_ms));
        let later = match self.pause {
            // The same reset may be told twice, and clocks are read at different moments.
            Some(LimitPause { until: Some(current), .. }) => until.since(current).0 > SAME_RESET_MS,
            Some(LimitPause { until: None, .. }) | None => true,
        };
        if later { self.pause(wait_ms, Some(until)) } else { ThrottleChange::Unchanged }
    }

    fn pause_with_backoff(&mut self) -> ThrottleChange {
        let wait = self.with_jitter(self.policy.backoff_ms(self.consecutive_pauses));
        self.pause(self.policy.max_wait_ms.map_or(wait, |longest| wait.min(longest)), None)
    }

    fn pause(&mut self, wait_ms: u64, until: Option<Millis>) -> ThrottleChange {
        if self.pause.is_none() {
            self.consecutive_pauses = self.consecutive_pauses.saturating_add(1);
        }
        self.pause = Some(LimitPause { wait_ms, until });
        ThrottleChange::Paused { wait_ms, until }
    }

    /// Between three and five quarters of `wait`, so that programs that were turned away together do not come back
    /// together.
    fn with_jitter(&mut self, wait: u64) -> u64 {
        let Some(seed) = self.policy.jitter else { return wait };
        self.jitter_draws = self.jitter_draws.wrapping_add(1);
        let quarter = wait / 4;
        wait - quarter + splitmix64(seed.wrapping_add(self.jitter_draws)) % (2 * quarter + 1)
    }
}

/// SplitMix64: neighbours become strangers.
fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
