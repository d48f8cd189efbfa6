//! Forecasts the remaining work of a run from the units that have finished. Pure.

use std::collections::HashMap;

use super::{
    spending::UnitSpending,
    state::RECONCILE_KEY,
    state::{RunState, UnitState, UnitStatus},
};
use crate::{
    tape::{Millis, UnitKey, note::AttemptOutcome},
    units::forecast::{
        FinishedUnit, Forecast, MIN_SAMPLES, QuantileEstimate, RemainingUnit, forecast,
    },
};

/// The forecast for the remaining units at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunForecast {
    pub at: Millis,
    /// The forecast; its times are relative to `at`.
    pub forecast: Forecast,
    /// Adapters in order of appearance.
    pub adapters: Vec<AdapterForecast>,
    /// Number of units that may run concurrently, after throttling.
    pub concurrency: u32,
    /// True while a person pauses the run: the forecast is that of the moment at which the pause began.
    pub is_paused: bool,
    /// True if a reconcile step may follow. The forecast does not include it, because its cost cannot be estimated.
    pub reconcile_follows: bool,
}

/// Counts of the units of one adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterForecast {
    /// Name of the adapter, empty if unknown.
    pub name: String,
    /// Finished units that the forecast is based on.
    pub finished: usize,
    pub remaining: usize,
    /// Key of the first remaining unit.
    pub first: Option<UnitKey>,
}

impl AdapterForecast {
    /// True if too few units have finished to forecast the remaining ones.
    pub fn is_unknown(&self) -> bool {
        self.remaining > 0 && self.finished < MIN_SAMPLES
    }
}

impl RunForecast {
    /// Forecasts all remaining units of `state`, at the time `now`.
    pub fn for_remaining(state: &RunState, now: Millis) -> Self {
        let paused_since = state.limits.paused_since;
        let now = paused_since.map_or(now, |since| since.min(now));
        let is_left = |unit: &&UnitState| !unit.status.is_finished();
        let mut rest: Vec<&UnitState> = state.units.iter().filter(is_left).collect();
        // Order: running units, then units that were tried before, then the rest in plan order.
        rest.sort_by_key(|unit| match unit.status {
            status if status.is_in_flight() => 0,
            UnitStatus::Waiting => 1,
            _ => 2,
        });
        let mut outlook = Self::compute(state, &rest, now);
        outlook.is_paused = paused_since.is_some();
        // No unit makes progress while the run waits for a limit.
        if let (Some(time), Some(until)) = (
            &mut outlook.forecast.time,
            state.limits.pause.as_ref().and_then(|pause| pause.until),
        ) {
            let wait = until.since(now).0;
            *time = QuantileEstimate {
                p50: Millis(time.p50.0 + wait),
                p90: Millis(time.p90.0 + wait),
            };
        }
        outlook
    }

    /// Forecasts another attempt of these units.
    pub fn for_retry(state: &RunState, units: &[usize]) -> Self {
        let units: Vec<&UnitState> = units
            .iter()
            .filter_map(|unit| state.units.get(*unit))
            .collect();
        Self::compute(state, &units, state.last_entry_at)
    }

    fn compute(state: &RunState, rest: &[&UnitState], now: Millis) -> Self {
        let mut kinds = AdapterForecasts::default();
        let mut finished: Vec<Vec<FinishedUnit>> = Vec::new();
        for unit in &state.units {
            let kind = kinds.index_of(unit);
            finished.resize_with(kinds.all.len(), Vec::new);
            if let (Some(samples), Some(finished_sample)) =
                (finished.get_mut(kind), finished_sample(unit, now))
            {
                samples.push(finished_sample);
                kinds.all[kind].finished += 1;
            }
        }
        let left: Vec<RemainingUnit> = rest
            .iter()
            .map(|unit| {
                let kind = kinds.index_of(unit);
                kinds.all[kind].remaining += 1;
                kinds.all[kind]
                    .first
                    .get_or_insert_with(|| unit.key.clone());
                let runs = unit.status.is_in_flight();
                let started = unit
                    .latest()
                    .filter(|_| runs)
                    .map(|attempt| attempt.started_at);
                RemainingUnit {
                    kind,
                    running: started.map(|started| now.since(started)),
                }
            })
            .collect();
        let slots = state.planned.as_ref().map_or(1, |plan| plan.concurrency);
        let slots = state
            .limits
            .throttling
            .as_ref()
            .map_or(slots, |throttled| throttled.concurrency.min(slots))
            .max(1);
        let at_once = usize::try_from(slots).unwrap_or(usize::MAX);
        let forecast = forecast(&finished, &left, at_once);
        let reconcile_follows = reconcile_follows(state);
        Self {
            at: now,
            forecast,
            adapters: kinds.all,
            concurrency: slots,
            is_paused: false,
            reconcile_follows,
        }
    }

    /// Time from `now`, or from the end of a pause, until the last unit ends.
    pub fn remaining_time(&self, now: Millis) -> Option<QuantileEstimate<Millis>> {
        let passed = if self.is_paused {
            Millis(0)
        } else {
            now.since(self.at)
        };
        self.forecast.time.map(|time| QuantileEstimate {
            p50: time.p50.since(passed),
            p90: time.p90.since(passed),
        })
    }
}

/// A run whose attempts leave patches may end with a reconcile step.
fn reconcile_follows(state: &RunState) -> bool {
    let leaves_patch = |unit: &UnitState| {
        unit.attempts
            .iter()
            .any(|attempt| attempt.delivery.patch.is_some())
    };
    state.units.iter().any(leaves_patch)
        && !state
            .units
            .iter()
            .any(|unit| unit.key.as_str() == RECONCILE_KEY)
}

/// Returns the sample of a unit that ended by itself. A stopped or interrupted unit is not representative of others.
fn finished_sample(unit: &UnitState, now: Millis) -> Option<FinishedUnit> {
    let ended = matches!(
        unit.status,
        UnitStatus::Succeeded | UnitStatus::BudgetExhausted | UnitStatus::Failed
    );
    let stopped = unit.attempts.iter().any(|attempt| {
        attempt
            .verdict
            .as_ref()
            .is_some_and(|verdict| verdict.outcome == AttemptOutcome::Stopped)
    });
    if !ended || stopped || unit.attempts.is_empty() {
        return None;
    }
    let spent = UnitSpending::new(unit, now);
    Some(FinishedUnit {
        cost: spent.complete_cost(),
        active_time: spent.active_time,
    })
}

/// Samples and remaining units by adapter.
#[derive(Default)]
struct AdapterForecasts<'a> {
    all: Vec<AdapterForecast>,
    index_by_name: HashMap<&'a str, usize>,
}

impl<'a> AdapterForecasts<'a> {
    fn index_of(&mut self, unit: &'a UnitState) -> usize {
        let name = match &unit.planned {
            Some(planned) => planned.adapter.as_str(),
            None => "",
        };
        let all = &mut self.all;
        *self.index_by_name.entry(name).or_insert_with(|| {
            all.push(AdapterForecast {
                name: name.to_owned(),
                finished: 0,
                remaining: 0,
                first: None,
            });
            all.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        run::state::{AttemptCounts, AttemptId, AttemptState, HoldMode, RunPause, Throttling},
        tape::note::{PlannedUnit, RunPlanned},
    };

    fn unit(index: u32, adapter: &str, status: UnitStatus, seconds: u64) -> UnitState {
        let planned = PlannedUnit {
            adapter: adapter.into(),
            ..PlannedUnit::default()
        };
        let over = status.is_finished();
        let attempt = AttemptState {
            id: AttemptId(index),
            ended_at: over.then_some(Millis(seconds * 1000)),
            counts: AttemptCounts {
                cost_usd: over.then_some(0.5),
                ..AttemptCounts::default()
            },
            ..AttemptState::default()
        };
        let attempts = if status == UnitStatus::Queued {
            Vec::new()
        } else {
            vec![attempt]
        };
        let key = format!("u{index}").as_str().into();
        UnitState {
            key,
            planned: Some(Arc::new(planned)),
            status,
            attempts,
            retry_at: None,
            hold_mode: HoldMode::Off,
        }
    }

    fn state(units: Vec<UnitState>) -> RunState {
        let planned = Some(Arc::new(RunPlanned {
            concurrency: 2,
            ..RunPlanned::default()
        }));
        RunState {
            units,
            planned,
            last_entry_at: Millis(10_000),
            ..RunState::default()
        }
    }

    #[test]
    fn remaining_units_are_forecast_by_adapter() {
        let mut units: Vec<_> = (0..3)
            .map(|index| unit(index, "dbt", UnitStatus::Succeeded, 20))
            .collect();
        units.extend((3..5).map(|index| unit(index, "docs", UnitStatus::Failed, 1)));
        units.push(unit(5, "dbt", UnitStatus::Running, 0));
        units.push(unit(6, "dbt", UnitStatus::Queued, 0));
        let mut state = state(units);
        let outlook = RunForecast::for_remaining(&state, Millis(10_000));
        assert_eq!(
            outlook.adapters[0],
            AdapterForecast {
                name: "dbt".into(),
                finished: 3,
                remaining: 2,
                first: Some("u5".into())
            }
        );
        assert_eq!(
            outlook.adapters[1],
            AdapterForecast {
                name: "docs".into(),
                finished: 2,
                remaining: 0,
                first: None
            }
        );
        assert_eq!(
            outlook.forecast.cost,
            Some(QuantileEstimate { p50: 1.0, p90: 1.0 })
        );
        assert_eq!(
            outlook.remaining_time(Millis(10_000)).map(|time| time.p90),
            Some(Millis(20_000))
        );
        assert_eq!(
            outlook.remaining_time(Millis(14_000)).map(|time| time.p90),
            Some(Millis(16_000))
        );
        state.limits.pause = Some(RunPause {
            until: Some(Millis(40_000)),
            reason: "5h".into(),
        });
        let paused = RunForecast::for_remaining(&state, Millis(10_000));
        assert_eq!(
            paused.forecast.time.map(|time| time.p50),
            Some(Millis(50_000))
        );
        // Throttling limits the concurrency to one for both adapters.
        state.limits.throttling = Some(Throttling {
            concurrency: 1,
            reason: "5h".into(),
        });
        let throttled = RunForecast::for_remaining(&state, Millis(10_000));
        assert_eq!((throttled.concurrency, outlook.concurrency), (1, 2));
        assert!(
            throttled.forecast.time.map(|time| time.p50)
                > paused.forecast.time.map(|time| time.p50)
        );
        // Too few units of the other adapter have finished.
        assert_eq!(RunForecast::for_retry(&state, &[3, 4]).forecast.cost, None);
        assert_eq!(
            RunForecast::for_retry(&state, &[0, 99]).forecast.cost,
            Some(QuantileEstimate { p50: 0.5, p90: 0.5 })
        );
    }

    #[test]
    fn reconcile_step_is_not_in_the_forecast() {
        let mut state = state(vec![
            unit(0, "dbt", UnitStatus::Succeeded, 20),
            unit(1, "dbt", UnitStatus::Queued, 0),
        ]);
        let follows =
            |state: &RunState| RunForecast::for_remaining(state, Millis(0)).reconcile_follows;
        assert!(!follows(&state));
        state.units[0].attempts[0].delivery.patch = Some(Arc::default());
        assert!(follows(&state));
        state.units.push(UnitState {
            key: RECONCILE_KEY.into(),
            planned: None,
            ..unit(2, "", UnitStatus::Running, 0)
        });
        assert!(!follows(&state), "it is there");
    }

    #[test]
    fn finished_run_has_an_empty_forecast() {
        let state = state(vec![unit(0, "dbt", UnitStatus::Succeeded, 20)]);
        assert_eq!(
            RunForecast::for_remaining(&state, Millis(0)).forecast,
            Forecast::default()
        );
    }
}
