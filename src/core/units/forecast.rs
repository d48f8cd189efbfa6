//! Forecasts the remaining cost and time of a run from finished units of the same kind.
//!
//! A simulation draws the remaining units from the finished ones many times and assigns them to the slots. The same
//! input always gives the same forecast. Kinds with fewer than three finished units are not forecast. A unit that has
//! run longer than 90 % of the finished units of its kind is overdue: its end is not forecast.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::tape::Millis;

/// Minimum number of finished units of a kind for a forecast.
pub(crate) const MIN_SAMPLES: usize = 3;
/// Maximum number of finished units of a kind that are used; the newest ones.
const MAX_SAMPLES: usize = 64;
/// Number of times that the rest of the run is simulated.
const SIMULATION_ROUNDS: usize = 200;
/// Maximum number of simulated units. If there are more, several are drawn as one batch, which makes the spread
/// slightly too wide.
const MAX_SIMULATED_UNITS: usize = 256;

/// A finished unit, with all of its attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedUnit {
    /// Cost in US dollars, if all of it is known.
    pub cost: Option<f64>,
    /// Time in which the unit occupied a slot.
    pub active_time: Millis,
}

/// A unit that is not finished yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingUnit {
    /// Index of the list of finished units of the same kind.
    pub kind: usize,
    /// How long the unit has been running; `None` if it has not started.
    pub running: Option<Millis>,
}

/// Median (`likely`) and 90th percentile (`high`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantileEstimate<T> {
    pub p50: T,
    pub p90: T,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Number of remaining units.
    pub units: usize,
    /// Remaining units whose cost is forecast.
    pub units_with_cost: usize,
    /// Cost of those units, in US dollars; `None` without a forecast.
    pub cost: Option<QuantileEstimate<f64>>,
    /// Remaining units whose end is forecast.
    pub units_with_time: usize,
    /// Time until the last of those units ends; `None` without a forecast.
    pub time: Option<QuantileEstimate<Millis>>,
    /// Units that have run longer than 90 % of the finished units of their kind.
    pub overdue_units: usize,
}

impl Forecast {
    /// True if the forecast covers the cost of all remaining units.
    pub fn covers_all_costs(&self) -> bool {
        self.units_with_cost == self.units
    }

    /// True if the forecast covers the end of all remaining units except overdue ones.
    pub fn covers_all_times(&self) -> bool {
        self.units_with_time + self.overdue_units == self.units
    }
}

/// Forecasts the units `left`, in the order in which they run, on `slots` slots. `finished` has one list per kind,
/// oldest unit first.
pub fn forecast(finished: &[Vec<FinishedUnit>], left: &[RemainingUnit], slots: usize) -> Forecast {
    let costs: Vec<Vec<f64>> = finished
        .iter()
        .map(|kind| newest_samples(kind.iter().filter_map(known_cost)))
        .collect();
    let times: Vec<Vec<f64>> = finished
        .iter()
        .map(|kind| newest_samples(kind.iter().map(|unit| seconds(unit.active_time))))
        .collect();
    let known = |samples: &[Vec<f64>]| -> Vec<RemainingUnit> {
        let enough = |unit: &&RemainingUnit| {
            samples
                .get(unit.kind)
                .is_some_and(|samples| samples.len() >= MIN_SAMPLES)
        };
        left.iter().filter(enough).copied().collect()
    };
    let priced = known(&costs);
    let late: Vec<f64> = times.iter().map(|times| p90(times)).collect();
    let is_late = |unit: &RemainingUnit| {
        let late = late.get(unit.kind).copied().unwrap_or_default();
        unit.running.is_some_and(|running| seconds(running) >= late)
    };
    let (overdue, timed): (Vec<RemainingUnit>, Vec<RemainingUnit>) =
        known(&times).into_iter().partition(is_late);
    let cost = |bags: &[Vec<f64>], dice: &mut SampleRng| {
        batch_units(&priced)
            .map(|block| block.sample_total(bags, dice))
            .sum()
    };
    let cost = (!priced.is_empty()).then(|| estimate(&costs, cost));
    // An overdue unit occupies its slot until it ends, which is not forecast.
    let slots = slots.saturating_sub(overdue.len());
    let time = (!timed.is_empty()).then(|| {
        estimate(&times, |bags, dice| {
            makespan(bags, dice, &times, &timed, slots)
        })
    });
    Forecast {
        units: left.len(),
        units_with_cost: priced.len(),
        cost,
        units_with_time: timed.len(),
        time: time.map(|time| QuantileEstimate {
            p50: millis(time.p50),
            p90: millis(time.p90),
        }),
        overdue_units: overdue.len(),
    }
}

fn p90(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * 9).div_ceil(10).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

fn known_cost(unit: &FinishedUnit) -> Option<f64> {
    unit.cost.filter(|cost| cost.is_finite() && *cost >= 0.0)
}

fn newest_samples(all: impl DoubleEndedIterator<Item = f64>) -> Vec<f64> {
    all.rev().take(MAX_SAMPLES).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a run are far below 2^52"
)]
fn seconds(time: Millis) -> f64 {
    time.0 as f64 / 1000.0
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and is never negative"
)]
fn millis(seconds: f64) -> Millis {
    Millis((seconds * 1000.0).round() as u64)
}

/// Simulates the rest of the run repeatedly and returns the median and the 90th percentile.
fn estimate(
    samples: &[Vec<f64>],
    play: impl Fn(&[Vec<f64>], &mut SampleRng) -> f64,
) -> QuantileEstimate<f64> {
    let mut dice = SampleRng(0x1234_5678);
    let mut bags = samples.to_vec();
    let mut results: Vec<f64> = (0..SIMULATION_ROUNDS)
        .map(|_| {
            // A few finished units do not represent all units well. Resampling them adds this uncertainty to the
            // spread.
            for (bag, samples) in bags.iter_mut().zip(samples) {
                bag.iter_mut().for_each(|draw| *draw = dice.pick(samples));
            }
            play(&bags, &mut dice)
        })
        .collect();
    results.sort_by(f64::total_cmp);
    let at = |place: usize| results.get(place).copied().unwrap_or_default();
    QuantileEstimate {
        p50: at(SIMULATION_ROUNDS / 2),
        p90: at(SIMULATION_ROUNDS * 9 / 10),
    }
}

/// Units that are drawn as one.
struct ForecastUnitBatch {
    kind: usize,
    units: f64,
    running_seconds: f64,
    is_running: bool,
}

impl ForecastUnitBatch {
    fn sample_total(&self, bags: &[Vec<f64>], dice: &mut SampleRng) -> f64 {
        bags.get(self.kind).map_or(0.0, |bag| dice.pick(bag)) * self.units
    }

    /// Remaining time of a running unit: drawn from the finished units that took longer than it has run.
    fn sample_remaining_time(&self, samples: &[Vec<f64>], dice: &mut SampleRng) -> f64 {
        let samples = samples
            .get(self.kind)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let longer: Vec<f64> = samples
            .iter()
            .copied()
            .filter(|took| *took > self.running_seconds)
            .collect();
        (dice.pick(&longer) - self.running_seconds).max(0.0)
    }
}

fn batch_units(left: &[RemainingUnit]) -> impl Iterator<Item = ForecastUnitBatch> {
    // Running units come first, and are few.
    let running = left
        .iter()
        .take_while(|unit| unit.running.is_some())
        .count()
        .min(MAX_SIMULATED_UNITS);
    let (running, rest) = left.split_at(running);
    let size = rest.len().div_ceil(MAX_SIMULATED_UNITS).max(1);
    running
        .chunks(1)
        .chain(rest.chunks(size))
        .filter_map(|chunk| {
            let first = chunk.first()?;
            #[expect(
                clippy::cast_precision_loss,
                reason = "units of a run are far fewer than 2^52"
            )]
            let units = chunk.len() as f64;
            let running_seconds = first.running.map(seconds).unwrap_or_default();
            Some(ForecastUnitBatch {
                kind: first.kind,
                units,
                running_seconds,
                is_running: first.running.is_some(),
            })
        })
}

/// Time until the last unit ends, in seconds.
fn makespan(
    bags: &[Vec<f64>],
    dice: &mut SampleRng,
    samples: &[Vec<f64>],
    left: &[RemainingUnit],
    slots: usize,
) -> f64 {
    // Slot times are in milliseconds, because floats have no total order.
    let mut free: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut last = 0;
    for block in batch_units(left) {
        let took = if block.is_running {
            block.sample_remaining_time(samples, dice)
        } else {
            block.sample_total(bags, dice)
        };
        let from = if block.is_running || free.len() < slots.max(1) {
            0
        } else {
            free.pop().map_or(0, |Reverse(at)| at)
        };
        let end = millis(took).0.saturating_add(from);
        last = last.max(end);
        free.push(Reverse(end));
    }
    seconds(Millis(last))
}

/// SplitMix64 generator: deterministic draws.
struct SampleRng(u64);

impl SampleRng {
    fn pick(&mut self, from: &[f64]) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let place = usize::try_from(bits >> 32).unwrap_or_default() % from.len().max(1);
        from.get(place).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn finished(cost: f64, seconds: u64) -> FinishedUnit {
        FinishedUnit {
            cost: Some(cost),
            active_time: Millis(seconds * 1000),
        }
    }

    fn queued(kind: usize, count: usize) -> Vec<RemainingUnit> {
        vec![
            RemainingUnit {
                kind,
                running: None
            };
            count
        ]
    }

    #[test]
    fn forecast_needs_three_finished_units() {
        let mut like = vec![finished(0.5, 60); 2];
        let two = forecast(&[like.clone()], &queued(0, 4), 2);
        assert_eq!(
            two,
            Forecast {
                units: 4,
                ..Forecast::default()
            }
        );
        like.push(finished(0.5, 60));
        let three = forecast(&[like], &queued(0, 4), 2);
        assert_eq!(three.cost, Some(QuantileEstimate { p50: 2.0, p90: 2.0 }));
        assert_eq!(
            three.time,
            Some(QuantileEstimate {
                p50: Millis(120_000),
                p90: Millis(120_000)
            })
        );
    }

    #[test]
    fn unknown_kind_is_left_out() {
        let left = [queued(0, 7), queued(1, 1)].concat();
        let forecast = forecast(
            &[vec![finished(1.0, 1); 5], vec![finished(1.0, 1); 2]],
            &left,
            1,
        );
        assert_eq!(
            (forecast.cost, forecast.units_with_cost),
            (Some(QuantileEstimate { p50: 7.0, p90: 7.0 }), 7)
        );
        assert_eq!(
            (forecast.time.map(|time| time.p90), forecast.units_with_time),
            (Some(Millis(7000)), 7)
        );
        assert!(!forecast.covers_all_costs() && !forecast.covers_all_times());
    }

    #[test]
    fn unit_beyond_p90_is_overdue() {
        let like: Vec<FinishedUnit> = (1..=20)
            .map(|seconds| finished(0.1, seconds * 10))
            .collect();
        let running = |seconds: u64| RemainingUnit {
            kind: 0,
            running: Some(Millis(seconds * 1000)),
        };
        let late = forecast(
            std::slice::from_ref(&like),
            &[running(181), running(400)],
            2,
        );
        assert_eq!(
            (late.time, late.overdue_units, late.units_with_time),
            (None, 2, 0)
        );
        assert!(late.cost.is_some() && late.covers_all_times());
        let other = forecast(
            std::slice::from_ref(&like),
            &[running(400), running(175)],
            2,
        );
        assert_eq!((other.overdue_units, other.units_with_time), (1, 1));
        let rest = other.time.map(|time| time.p50.0 / 1000).unwrap_or_default();
        assert!((5..=25).contains(&rest), "{rest} s until 180 to 200 s");
    }

    #[test]
    fn missing_costs_do_not_hide_the_time_forecast() {
        let like = vec![
            FinishedUnit {
                cost: None,
                active_time: Millis(5000)
            };
            3
        ];
        let forecast = forecast(&[like], &queued(0, 1), 1);
        assert_eq!(
            (forecast.cost, forecast.time.map(|time| time.p90)),
            (None, Some(Millis(5000)))
        );
    }

    #[test]
    fn running_unit_needs_only_its_remaining_time() {
        let like = vec![finished(1.0, 60); 3];
        let running = |seconds: u64| RemainingUnit {
            kind: 0,
            running: Some(Millis(seconds * 1000)),
        };
        let end = |left: &[RemainingUnit]| {
            forecast(std::slice::from_ref(&like), left, 2)
                .time
                .map(|time| time.p50.0 / 1000)
        };
        assert_eq!(end(&[running(50)]), Some(10));
        assert_eq!(
            end(&[
                running(50),
                running(20),
                RemainingUnit {
                    kind: 0,
                    running: None
                }
            ]),
            Some(70)
        );
    }

    #[test]
    fn the_spread_shrinks_as_more_units_have_finished() {
        let mixed =
            |times: usize| [finished(0.1, 10), finished(0.2, 20), finished(0.9, 90)].repeat(times);
        let width = |times: usize| {
            forecast(&[mixed(times)], &queued(0, 40), 4)
                .cost
                .map(|cost| cost.p90 / cost.p50)
                .unwrap_or_default()
        };
        assert!(width(1) > width(20), "{} {}", width(1), width(20));
        // The mean is 0.4, so 40 units cost about 16.
        let cost = forecast(&[mixed(20)], &queued(0, 40), 4)
            .cost
            .map(|cost| cost.p50)
            .unwrap_or_default();
        assert!((14.0..18.0).contains(&cost), "{cost}");
    }

    proptest! {
        #[test]
        fn a_forecast_is_in_order_and_the_same_twice(
            samples in prop::collection::vec((prop::option::of(any::<f64>()), 0..9_000_000_u64), 0..90),
            left in prop::collection::vec((0..3_usize, prop::option::of(0..9_000_000_u64)), 0..600),
            slots in 0..70_usize,
        ) {
            let finished: Vec<FinishedUnit> =
                samples.iter().map(|(cost, worked)| FinishedUnit { cost: *cost, active_time: Millis(*worked) }).collect();
            let kinds = [finished.clone(), finished];
            let left: Vec<RemainingUnit> =
                left.iter().map(|(kind, running)| RemainingUnit { kind: *kind, running: running.map(Millis) }).collect();
            let first = forecast(&kinds, &left, slots);
            prop_assert_eq!(first, forecast(&kinds, &left, slots));
            prop_assert_eq!(first.units, left.len());
            if let Some(cost) = first.cost {
                prop_assert!(cost.p50 >= 0.0 && cost.p50 <= cost.p90);
            }
            if let Some(time) = first.time {
                prop_assert!(time.p50 <= time.p90);
            }
            if left.iter().all(|unit| unit.kind == 2) || samples.len() < MIN_SAMPLES {
                prop_assert_eq!((first.cost, first.time), (None, None));
            }
            prop_assert!(first.units_with_cost <= first.units && first.units_with_time + first.overdue_units <= first.units);
        }
    }
}
