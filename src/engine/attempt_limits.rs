//! The limits of attempts that clients change during a run, and the time limits that depend on who watches it.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use ingestdeck_agent::attempt::time_limits::{AttemptTimeouts, TimeLimitSettings};
use ingestdeck_core::{config::FailureRule, control::RunLimit, tape::note::LimitChanged};

/// The limits that attempts read when they start or end; time limits also reach running attempts.
#[derive(Debug)]
pub(crate) struct AttemptLimits {
    state: Mutex<CurrentLimits>,
    /// Time limits of attempts on this machine.
    local: watch::Sender<AttemptTimeouts>,
    /// Time limits of attempts on workers.
    remote: watch::Sender<AttemptTimeouts>,
}

#[derive(Clone, Copy, Debug)]
struct CurrentLimits {
    values: LimitValues,
    timeouts: TimeLimitSettings,
    /// A screen is attached to the run.
    has_screen: bool,
}

/// Limits at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitValues {
    /// Maximum number of turns of an attempt.
    pub step_budget: u32,
    /// The rule by which failed calls fail a unit.
    pub rule: FailureRule,
}

impl AttemptLimits {
    /// Limits of a run without a screen.
    pub(super) fn new(step_budget: u32, rule: FailureRule, timeouts: TimeLimitSettings) -> Self {
        let values = LimitValues { step_budget, rule };
        Self {
            state: Mutex::new(CurrentLimits {
                values,
                timeouts,
                has_screen: false,
            }),
            local: watch::Sender::new(timeouts.effective(false, false)),
            remote: watch::Sender::new(timeouts.effective(true, false)),
        }
    }

    pub(super) fn current(&self) -> LimitValues {
        self.state().values
    }

    /// Reports the time limits of attempts on this machine, now and whenever they change.
    pub(super) fn timeouts(&self) -> watch::Receiver<AttemptTimeouts> {
        self.local.subscribe()
    }

    /// Reports the time limits of attempts on workers, now and whenever they change.
    pub(super) fn remote_timeouts(&self) -> watch::Receiver<AttemptTimeouts> {
        self.remote.subscribe()
    }

    /// How long the run waits for a decision of a person.
    pub(super) fn approval_timeout(&self, has_screen: bool) -> Option<Duration> {
        self.state().timeouts.effective(false, has_screen).approval
    }

    /// Applies or lifts the defaults for runs without a screen.
    pub(super) fn set_has_screen(&self, has_screen: bool) {
        self.update(|state| state.has_screen = has_screen);
    }

    /// Replaces the limits of attempts.
    pub(super) fn set(&self, values: LimitValues, timeouts: TimeLimitSettings) {
        self.update(|state| (state.values, state.timeouts) = (values, timeouts));
    }

    /// Changes a limit of attempts. Returns `None` if the value is the same, or if the schedule owns the limit.
    pub(super) fn change(&self, limit: &RunLimit) -> Option<LimitChanged> {
        let before = *self.state();
        let (old, new) = match limit {
            RunLimit::Turns(turns) => (json!(before.values.step_budget), json!(turns)),
            RunLimit::ToolFailures(failures) => {
                (json!(before.values.rule.as_str()), json!(failures.as_str()))
            }
            RunLimit::SilenceTimeout(silence) => {
                let silence = silence.map(|limit| Duration::from_millis(limit.0));
                (millis(self.local.borrow().silence), millis(silence))
            }
            RunLimit::Concurrency(_) | RunLimit::RunBudget(_) | RunLimit::Retries(_) => {
                return None;
            }
        };
        self.update(|state| match limit {
            RunLimit::Turns(turns) => state.values.step_budget = *turns,
            RunLimit::ToolFailures(failures) => state.values.rule = *failures,
            RunLimit::SilenceTimeout(silence) => {
                state.timeouts.silence = silence.map(|limit| Duration::from_millis(limit.0)).into();
            }
            RunLimit::Concurrency(_) | RunLimit::RunBudget(_) | RunLimit::Retries(_) => {}
        });
        // A limit may become one that was set although its value is the same.
        let is_changed = old != new || before.timeouts != self.state().timeouts;
        is_changed.then(|| LimitChanged {
            limit: limit.name().to_owned(),
            old,
            new,
        })
    }

    fn update(&self, change: impl FnOnce(&mut CurrentLimits)) {
        let mut state = self.state();
        change(&mut state);
        for (sender, is_remote) in [(&self.local, false), (&self.remote, true)] {
            let timeouts = state.timeouts.effective(is_remote, state.has_screen);
            sender.send_if_modified(|old| std::mem::replace(old, timeouts) != timeouts);
        }
    }

    fn state(&self) -> MutexGuard<'_, CurrentLimits> {
        self.state.lock()
    }
}

fn millis(time: Option<Duration>) -> Value {
    time.map_or(Value::Null, |time| {
        json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    })
}

/// No time limits at all.
#[cfg(test)]
pub(crate) const UNLIMITED_TIME: TimeLimitSettings = {
    use ingestdeck_core::config::time_limit::TimeLimitSetting::Unlimited;
    TimeLimitSettings {
        silence: Unlimited,
        attempt: Unlimited,
        approval: Unlimited,
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_agent::attempt::time_limits::UNATTENDED_SILENCE;
    use ingestdeck_core::tape::Millis;

    #[test]
    fn changes_report_the_old_and_the_new_value() {
        let limits = AttemptLimits::new(20, FailureRule::Strict, UNLIMITED_TIME);
        let timeouts = limits.timeouts();
        let changed = |limit| {
            limits
                .change(&limit)
                .map(|changed| (changed.old, changed.new))
        };
        assert_eq!(changed(RunLimit::Turns(40)), Some((json!(20), json!(40))));
        assert_eq!(changed(RunLimit::Turns(40)), None, "it is the same");
        assert_eq!(
            changed(RunLimit::ToolFailures(FailureRule::Recoverable)),
            Some((json!("strict"), json!("recoverable")))
        );
        assert_eq!(
            changed(RunLimit::SilenceTimeout(Some(Millis(5_000)))),
            Some((Value::Null, json!(5_000)))
        );
        assert_eq!(changed(RunLimit::Retries(1)), None, "the schedule owns it");
        assert_eq!(
            limits.current(),
            LimitValues {
                step_budget: 40,
                rule: FailureRule::Recoverable
            }
        );
        assert!(timeouts.has_changed().unwrap());
        assert_eq!(timeouts.borrow().silence, Some(Duration::from_secs(5)));
    }

    #[test]
    fn defaults_end_when_a_screen_attaches_except_on_workers() {
        let limits = AttemptLimits::new(20, FailureRule::Strict, TimeLimitSettings::default());
        let silence = || {
            (
                limits.timeouts().borrow().silence,
                limits.remote_timeouts().borrow().silence,
            )
        };
        let default = Some(UNATTENDED_SILENCE);
        assert_eq!(silence(), (default, default));
        limits.set_has_screen(true);
        assert_eq!(silence(), (None, default));
        assert_eq!(limits.approval_timeout(true), None);
        // What a person sets applies from then on, also after the screen is gone.
        let changed = limits
            .change(&RunLimit::SilenceTimeout(None))
            .expect("it was the default before");
        assert_eq!((changed.old, changed.new), (Value::Null, Value::Null));
        limits.set_has_screen(false);
        assert_eq!(silence(), (None, None));
    }
}
