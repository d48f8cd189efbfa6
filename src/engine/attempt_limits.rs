//! The limits of attempts that clients change during a run.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    agent::attempt::AttemptTimeouts, config::schema::ToolFailures, control::RunLimit, tape::note::LimitChanged,
    units::failure_tally::FailureRule,
};

/// The limits that attempts read when they start or end; time limits also reach running attempts.
#[derive(Debug)]
pub(crate) struct AttemptLimits {
    values: Mutex<LimitValues>,
    timeouts: watch::Sender<AttemptTimeouts>,
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
    pub(super) fn new(step_budget: u32, rule: FailureRule, timeouts: AttemptTimeouts) -> Self {
        Self { values: Mutex::new(LimitValues { step_budget, rule }), timeouts: watch::Sender::new(timeouts) }
    }

    pub(super) fn current(&self) -> LimitValues {
        *self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the time limits, now and whenever they change.
    pub(super) fn timeouts(&self) -> watch::Receiver<AttemptTimeouts> {
        self.timeouts.subscribe()
    }

    /// Replaces the limits of attempts.
    pub(super) fn set(&self, values: LimitValues, timeouts: AttemptTimeouts) {
        *self.values.lock().unwrap_or_else(PoisonError::into_inner) = values;
        self.timeouts.send_if_modified(|old| std::mem::replace(old, timeouts) != timeouts);
    }

    /// Changes a limit of attempts. Returns `None` if the value is the same, or if the schedule owns the limit.
    pub(super) fn change(&self, limit: &RunLimit) -> Option<LimitChanged> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let (old, new) = match limit {
            RunLimit::Turns(turns) => (json!(std::mem::replace(&mut values.step_budget, *turns)), json!(turns)),
            RunLimit::ToolFailures(failures) => {
                let rule = rule_of(*failures);
                (json!(std::mem::replace(&mut values.rule, rule).as_str()), json!(rule.as_str()))
            }
            RunLimit::SilenceTimeout(silence) => {
                let silence = silence.map(|limit| Duration::from_millis(limit.0));
                let old = self.timeouts.borrow().silence;
                self.timeouts.send_modify(|timeouts| timeouts.silence = silence);
                (millis(old), millis(silence))
            }
            RunLimit::Concurrency(_) | RunLimit::RunBudget(_) | RunLimit::Retries(_) => return None,
        };
        (old != new).then(|| LimitChanged { limit: limit.name().to_owned(), old, new })
    }
}

/// The rule that a setting names.
pub(crate) fn rule_of(failures: ToolFailures) -> FailureRule {
    match failures {
        ToolFailures::Strict => FailureRule::Strict,
        ToolFailures::Recoverable => FailureRule::Recoverable,
    }
}

fn millis(time: Option<Duration>) -> Value {
    time.map_or(Value::Null, |time| json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Millis;

    #[test]
    fn changes_report_the_old_and_the_new_value() {
        let limits = AttemptLimits::new(20, FailureRule::Strict, AttemptTimeouts::default());
        let timeouts = limits.timeouts();
        let changed = |limit| limits.change(&limit).map(|changed| (changed.old, changed.new));
        assert_eq!(changed(RunLimit::Turns(40)), Some((json!(20), json!(40))));
        assert_eq!(changed(RunLimit::Turns(40)), None, "it is the same");
        assert_eq!(
            changed(RunLimit::ToolFailures(ToolFailures::Recoverable)),
            Some((json!("strict"), json!("recoverable")))
        );
        assert_eq!(changed(RunLimit::SilenceTimeout(Some(Millis(5_000)))), Some((Value::Null, json!(5_000))));
        assert_eq!(changed(RunLimit::Retries(1)), None, "the schedule owns it");
        assert_eq!(limits.current(), LimitValues { step_budget: 40, rule: FailureRule::Recoverable });
        assert!(timeouts.has_changed().unwrap());
        assert_eq!(timeouts.borrow().silence, Some(Duration::from_secs(5)));
    }
}
