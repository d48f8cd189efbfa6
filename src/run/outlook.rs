//! What is left of a run, and what it will cost and take by what has finished so far. Pure.

use std::collections::HashMap;

use super::{
    report::PASS,
    spent::Spent,
    state::{RunState, Unit, UnitStatus},
};
use crate::{
    tape::{Millis, UnitKey, note::Outcome},
    units::forecast::{ENOUGH, Finished, Forecast, Left, Range, forecast},
};

/// What is left, seen at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlook {
    /// The moment.
    pub at: Millis,
    /// The forecast, its times counted from that moment.
    pub forecast: Forecast,
    /// Kinds of units, in order of appearance.
    pub kinds: Vec<Kind>,
    /// Units that may run at once, also as far as a limit that is near allows.
    pub slots: u32,
    /// True while a pass over what the units write may follow, which the forecast leaves out: nothing is known of it.
    pub pass_follows: bool,
}

/// Units of one adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The adapter, empty where it is not known.
    pub name: String,
    /// Units that are done and that the forecast goes by.
    pub finished: usize,
    /// Units that are left.
    pub left: usize,
    /// The first of them.
    pub first: Option<UnitKey>,
}

impl Kind {
    /// True where too few have finished to forecast those that are left.
    pub fn is_unknown(&self) -> bool {
        self.left > 0 && self.finished < ENOUGH
    }
}

impl Outlook {
    /// The outlook for all that is left of `state`, seen at `now`.
    pub fn of_rest(state: &RunState, now: Millis) -> Self {
        let is_left = |unit: &&Unit| !unit.status.is_over();
        let mut rest: Vec<&Unit> = state.units.iter().filter(is_left).collect();
        // What runs goes on first, then what was tried before, then the rest as planned.
        rest.sort_by_key(|unit| match unit.status {
            status if status.is_in_flight() => 0,
            UnitStatus::Waiting => 1,
            _ => 2,
        });
        let mut outlook = Self::of(state, &rest, now);
        // While the run waits for a limit, nothing goes on.
        if let (Some(time), Some(until)) =
            (&mut outlook.forecast.time, state.paused.as_ref().and_then(|pause| pause.until))
        {
            let wait = until.since(now).0;
            *time = Range { likely: Millis(time.likely.0 + wait), high: Millis(time.high.0 + wait) };
        }
        outlook
    }

    /// The forecast for trying these units again.
    pub fn of_retrying(state: &RunState, units: &[usize]) -> Self {
        let units: Vec<&Unit> = units.iter().filter_map(|unit| state.units.get(*unit)).collect();
        Self::of(state, &units, state.now)
    }

    fn of(state: &RunState, rest: &[&Unit], now: Millis) -> Self {
        let mut kinds = Kinds::default();
        let mut finished: Vec<Vec<Finished>> = Vec::new();
        for unit in &state.units {
            let kind = kinds.of(unit);
            finished.resize_with(kinds.all.len(), Vec::new);
            if let (Some(samples), Some(sample)) = (finished.get_mut(kind), sample(unit, now)) {
                samples.push(sample);
                kinds.all[kind].finished += 1;
            }
        }
        let left: Vec<Left> = rest
            .iter()
            .map(|unit| {
                let kind = kinds.of(unit);
                kinds.all[kind].left += 1;
                kinds.all[kind].first.get_or_insert_with(|| unit.key.clone());
                let runs = unit.status.is_in_flight();
                let started = unit.latest().filter(|_| runs).map(|attempt| attempt.started_at);
                Left { kind, running: started.map(|started| now.since(started)) }
            })
            .collect();
        let slots = state.planned.as_ref().map_or(1, |plan| plan.concurrency);
        let slots = state.throttled.as_ref().map_or(slots, |throttled| throttled.slots.min(slots)).max(1);
        let at_once = usize::try_from(slots).unwrap_or(usize::MAX);
        let forecast = forecast(&finished, &left, at_once);
        Self { at: now, forecast, kinds: kinds.all, slots, pass_follows: pass_follows(state) }
    }

    /// Time until the last unit ends, seen from `now`.
    pub fn time_left(&self, now: Millis) -> Option<Range<Millis>> {
        let passed = now.since(self.at);
        self.forecast.time.map(|time| Range { likely: time.likely.since(passed), high: time.high.since(passed) })
    }
}

/// Where attempts leave patches, one more unit may look at what they come to together.
fn pass_follows(state: &RunState) -> bool {
    let leaves_patch = |unit: &Unit| unit.attempts.iter().any(|attempt| attempt.patch.is_some());
    state.units.iter().any(leaves_patch) && !state.units.iter().any(|unit| unit.key.as_str() == PASS)
}

/// A unit that ended by itself. What a person stopped, or a broken record, says nothing about others.
fn sample(unit: &Unit, now: Millis) -> Option<Finished> {
    let ended = matches!(unit.status, UnitStatus::Succeeded | UnitStatus::Budget | UnitStatus::Failed);
    let stopped = unit
        .attempts
        .iter()
        .any(|attempt| attempt.verdict.as_ref().is_some_and(|verdict| verdict.outcome == Outcome::Stopped));
    if !ended || stopped || unit.attempts.is_empty() {
        return None;
    }
    let spent = Spent::of(unit, now);
    Some(Finished { cost: spent.whole_cost(), worked: spent.worked })
}

/// Kinds by name.
#[derive(Default)]
struct Kinds<'a> {
    all: Vec<Kind>,
    known: HashMap<&'a str, usize>,
}

impl<'a> Kinds<'a> {
    fn of(&mut self, unit: &'a Unit) -> usize {
        let name = match &unit.planned {
            Some(planned) => planned.adapter.as_str(),
            None => "",
        };
        let all = &mut self.all;
        *self.known.entry(name).or_insert_with(|| {
            all.push(Kind { name: name.to_owned(), finished: 0, left: 0, first: None });
            all.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        run::state::{Attempt, Holding, LaneId, Paused, Throttled},
        tape::note::{PlannedUnit, RunPlanned},
    };

    fn unit(lane: u32, adapter: &str, status: UnitStatus, seconds: u64) -> Unit {
        let planned = PlannedUnit { adapter: adapter.into(), ..PlannedUnit::default() };
        let over = status.is_over();
        let attempt = Attempt {
            lane: LaneId(lane),
            ended_at: over.then_some(Millis(seconds * 1000)),
            cost_usd: over.then_some(0.5),
            ..Attempt::default()
        };
        let attempts = if status == UnitStatus::Queued { Vec::new() } else { vec![attempt] };
        let key = format!("u{lane}").as_str().into();
        Unit { key, planned: Some(Arc::new(planned)), status, attempts, retry_at: None, holding: Holding::No }
    }

    fn state(units: Vec<Unit>) -> RunState {
        let planned = Some(Arc::new(RunPlanned { concurrency: 2, ..RunPlanned::default() }));
        RunState { units, planned, now: Millis(10_000), ..RunState::default() }
    }

    #[test]
    fn the_rest_is_judged_by_its_own_kind() {
        let mut units: Vec<_> = (0..3).map(|lane| unit(lane, "dbt", UnitStatus::Succeeded, 20)).collect();
        units.extend((3..5).map(|lane| unit(lane, "docs", UnitStatus::Failed, 1)));
        units.push(unit(5, "dbt", UnitStatus::Running, 0));
        units.push(unit(6, "dbt", UnitStatus::Queued, 0));
        let mut state = state(units);
        let outlook = Outlook::of_rest(&state, Millis(10_000));
        assert_eq!(outlook.kinds[0], Kind { name: "dbt".into(), finished: 3, left: 2, first: Some("u5".into()) });
        assert_eq!(outlook.kinds[1], Kind { name: "docs".into(), finished: 2, left: 0, first: None });
        assert_eq!(outlook.forecast.cost, Some(Range { likely: 1.0, high: 1.0 }));
        assert_eq!(outlook.time_left(Millis(10_000)).map(|time| time.high), Some(Millis(20_000)));
        assert_eq!(outlook.time_left(Millis(14_000)).map(|time| time.high), Some(Millis(16_000)));
        state.paused = Some(Paused { until: Some(Millis(40_000)), limit: "5h".into() });
        let paused = Outlook::of_rest(&state, Millis(10_000));
        assert_eq!(paused.forecast.time.map(|time| time.likely), Some(Millis(50_000)));
        // A limit that is near leaves one slot to both.
        state.throttled = Some(Throttled { slots: 1, limit: "5h".into() });
        let throttled = Outlook::of_rest(&state, Millis(10_000));
        assert_eq!((throttled.slots, outlook.slots), (1, 2));
        assert!(throttled.forecast.time.map(|time| time.likely) > paused.forecast.time.map(|time| time.likely));
        // Of the other kind, too little is known.
        assert_eq!(Outlook::of_retrying(&state, &[3, 4]).forecast.cost, None);
        assert_eq!(Outlook::of_retrying(&state, &[0, 99]).forecast.cost, Some(Range { likely: 0.5, high: 0.5 }));
    }

    #[test]
    fn the_pass_over_patches_is_no_part_of_a_forecast() {
        let mut state = state(vec![unit(0, "dbt", UnitStatus::Succeeded, 20), unit(1, "dbt", UnitStatus::Queued, 0)]);
        let follows = |state: &RunState| Outlook::of_rest(state, Millis(0)).pass_follows;
        assert!(!follows(&state));
        state.units[0].attempts[0].patch = Some(Arc::default());
        assert!(follows(&state));
        state.units.push(Unit { key: PASS.into(), planned: None, ..unit(2, "", UnitStatus::Running, 0) });
        assert!(!follows(&state), "it is there");
    }

    #[test]
    fn nothing_left_is_no_forecast() {
        let state = state(vec![unit(0, "dbt", UnitStatus::Succeeded, 20)]);
        assert_eq!(Outlook::of_rest(&state, Millis(0)).forecast, Forecast::default());
    }
}
