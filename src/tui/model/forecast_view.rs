//! The forecast of the remaining work, recomputed only when its inputs change.

use super::RunTotals;
use ingestdeck_core::{
    run::{RunState, run_forecast::RunForecast},
    tape::Millis,
};

/// Milliseconds after which elapsed time alone causes a new forecast: a unit that runs longer than expected moves the
/// end.
const REFRESH_INTERVAL_MS: u64 = 1000;

#[derive(Clone, Debug, Default)]
pub(super) struct ForecastView {
    pub(super) forecast: RunForecast,
    seen: Option<ForecastInputs>,
}

/// What a forecast was computed from; it is computed again if any of it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ForecastInputs {
    statuses: [usize; RunTotals::ORDER.len()],
    attempts: usize,
    concurrency: u32,
    pause: bool,
    is_paused: bool,
    refresh_tick: u64,
}

impl ForecastView {
    /// Updates the forecast if its inputs changed; `time` is the time of the run.
    pub(super) fn refresh(&mut self, state: &RunState, totals: &RunTotals, time: Millis) {
        let now = time.max(state.last_entry_at);
        let seen = ForecastInputs {
            statuses: totals.statuses,
            attempts: totals.attempts,
            concurrency: state.planned.as_ref().map_or(0, |plan| plan.concurrency),
            pause: state.limits.pause.is_some(),
            is_paused: state.limits.is_paused,
            refresh_tick: now.0 / REFRESH_INTERVAL_MS,
        };
        if self.seen != Some(seen) {
            self.seen = Some(seen);
            self.forecast = RunForecast::for_remaining(state, now);
        }
    }
}
