//! What is left of the run, judged again only when something happened that may change it.

use super::StatusTotals;
use crate::{
    run::{RunState, run_forecast::RunForecast},
    tape::Millis,
};

/// Milliseconds after which time alone is reason enough: what runs longer than expected ends later than expected.
const REFRESH_INTERVAL_MS: u64 = 1000;

/// What is left.
#[derive(Clone, Debug, Default)]
pub(super) struct ForecastView {
    /// As it was judged last.
    pub(super) forecast: RunForecast,
    seen: Option<ForecastInputs>,
}

/// What a judgement goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ForecastInputs {
    statuses: [usize; StatusTotals::ORDER.len()],
    attempts: usize,
    concurrency: u32,
    pause: bool,
    refresh_tick: u64,
}

impl ForecastView {
    /// Judges again if need be; `time` is that of the run.
    pub(super) fn refresh(&mut self, state: &RunState, totals: &StatusTotals, time: Millis) {
        let now = time.max(state.last_entry_at);
        let seen = ForecastInputs {
            statuses: totals.statuses,
            attempts: totals.attempts,
            concurrency: state.planned.as_ref().map_or(0, |plan| plan.concurrency),
            pause: state.pause.is_some(),
            refresh_tick: now.0 / REFRESH_INTERVAL_MS,
        };
        if self.seen != Some(seen) {
            self.seen = Some(seen);
            self.forecast = RunForecast::for_remaining(state, now);
        }
    }
}
