//! What is left of a run will cost and take: judged by how finished units of the same kind went.
//!
//! Units are drawn again from those that finished, many times over, and laid into the slots that there are. The same
//! facts always give the same forecast. Nothing is claimed of units of a kind of which fewer than three have finished, and
//! nothing of when a unit ends that runs longer than nine of ten like it: it is overdue.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::tape::Millis;

/// Finished units of a kind that it takes to say something.
pub const ENOUGH: usize = 3;
/// The newest finished units of a kind that count.
const NEWEST: usize = 64;
/// How often the rest of the run is played.
const ROUNDS: usize = 200;
/// Units that are played one by one. Of more, several are drawn as one, which makes the spread a little too wide.
const PLAYED: usize = 256;

/// A finished unit, all of its attempts together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    /// Dollars, if all of it is known.
    pub cost: Option<f64>,
    /// Time in which it occupied a slot.
    pub worked: Millis,
}

/// A unit that is still to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which list of finished units it is like.
    pub kind: usize,
    /// How long it runs by now; `None` if it has not begun.
    pub running: Option<Millis>,
}

/// In half of all cases no more than `likely`, in nine of ten no more than `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range<T> {
    /// P50.
    pub likely: T,
    /// P90.
    pub high: T,
}

/// What is left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Units that are left.
    pub units: usize,
    /// Those of them whose cost is forecast.
    pub priced: usize,
    /// What those will cost, in dollars; `None` where there is none.
    pub cost: Option<Range<f64>>,
    /// Units whose end is forecast.
    pub timed: usize,
    /// When the last of those ends, from now; `None` where there is none.
    pub time: Option<Range<Millis>>,
    /// Units that run longer than nine of ten like them took.
    pub overdue: usize,
}

impl Forecast {
    /// True when nothing of the cost is left out.
    pub fn is_cost_whole(&self) -> bool {
        self.priced == self.units
    }

    /// True when nothing of the time is left out but what is overdue.
    pub fn is_time_whole(&self) -> bool {
        self.timed + self.overdue == self.units
    }
}

/// Forecasts `left`, in the order in which it runs, on so many `slots`. `finished` are lists by kind, oldest first.
pub fn forecast(finished: &[Vec<Finished>], left: &[Left], slots: usize) -> Forecast {
    let costs: Vec<Vec<f64>> = finished.iter().map(|kind| newest(kind.iter().filter_map(known_cost))).collect();
    let times: Vec<Vec<f64>> =
        finished.iter().map(|kind| newest(kind.iter().map(|unit| seconds(unit.worked)))).collect();
    let known = |samples: &[Vec<f64>]| -> Vec<Left> {
        let enough = |unit: &&Left| samples.get(unit.kind).is_some_and(|samples| samples.len() >= ENOUGH);
        left.iter().filter(enough).copied().collect()
    };
    let priced = known(&costs);
    let late: Vec<f64> = times.iter().map(|times| ninth_of_ten(times)).collect();
    let is_late = |unit: &Left| {
        let late = late.get(unit.kind).copied().unwrap_or_default();
        unit.running.is_some_and(|running| seconds(running) >= late)
    };
    let (overdue, timed): (Vec<Left>, Vec<Left>) = known(&times).into_iter().partition(is_late);
    let cost = |bags: &[Vec<f64>], dice: &mut Dice| blocks(&priced).map(|block| block.draw(bags, dice)).sum();
    let cost = (!priced.is_empty()).then(|| range(&costs, cost));
    // What is overdue holds its slot for as long as it does.
    let slots = slots.saturating_sub(overdue.len());
    let time = (!timed.is_empty()).then(|| range(&times, |bags, dice| makespan(bags, dice, &times, &timed, slots)));
    Forecast {
        units: left.len(),
        priced: priced.len(),
        cost,
        timed: timed.len(),
        time: time.map(|time| Range { likely: millis(time.likely), high: millis(time.high) }),
        overdue: overdue.len(),
    }
}

fn ninth_of_ten(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * 9).div_ceil(10).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

fn known_cost(unit: &Finished) -> Option<f64> {
    unit.cost.filter(|cost| cost.is_finite() && *cost >= 0.0)
}

fn newest(all: impl DoubleEndedIterator<Item = f64>) -> Vec<f64> {
    all.rev().take(NEWEST).collect()
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a run are far below 2^52")]
fn seconds(time: Millis) -> f64 {
    time.0 as f64 / 1000.0
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is never negative")]
fn millis(seconds: f64) -> Millis {
    Millis((seconds * 1000.0).round() as u64)
}

/// Plays the rest of the run again and again, and looks at the middle and at the ninth of ten.
fn range(samples: &[Vec<f64>], play: impl Fn(&[Vec<f64>], &mut Dice) -> f64) -> Range<f64> {
    let mut dice = Dice(0x1234_5678);
    let mut bags = samples.to_vec();
    let mut results: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            // A few finished units are no good picture of all: how far off they may be belongs to the spread.
            for (bag, samples) in bags.iter_mut().zip(samples) {
                bag.iter_mut().for_each(|draw| *draw = dice.pick(samples));
            }
            play(&bags, &mut dice)
        })
        .collect();
    results.sort_by(f64::total_cmp);
    let at = |place: usize| results.get(place).copied().unwrap_or_default();
    Range { likely: at(ROUNDS / 2), high: at(ROUNDS * 9 / 10) }
}

/// Some units that are drawn as one.
struct Block {
    kind: usize,
    units: f64,
    running: f64,
    is_running: bool,
}

impl Block {
    fn draw(&self, bags: &[Vec<f64>], dice: &mut Dice) -> f64 {
        bags.get(self.kind).map_or(0.0, |bag| dice.pick(bag)) * self.units
    }

    /// What is left of a unit that runs: it takes as long as one of those that took longer than it has run.
    fn rest(&self, samples: &[Vec<f64>], dice: &mut Dice) -> f64 {
        let samples = samples.get(self.kind).map(Vec::as_slice).unwrap_or_default();
        let longer: Vec<f64> = samples.iter().copied().filter(|took| *took > self.running).collect();
        (dice.pick(&longer) - self.running).max(0.0)
    }
}

fn blocks(left: &[Left]) -> impl Iterator<Item = Block> {
    // Those that run come first, and are few.
    let running = left.iter().take_while(|unit| unit.running.is_some()).count().min(PLAYED);
    let (running, rest) = left.split_at(running);
    let size = rest.len().div_ceil(PLAYED).max(1);
    running.chunks(1).chain(rest.chunks(size)).filter_map(|chunk| {
        let first = chunk.first()?;
        #[expect(clippy::cast_precision_loss, reason = "units of a run are far fewer than 2^52")]
        let units = chunk.len() as f64;
        let running = first.running.map(seconds).unwrap_or_default();
        Some(Block { kind: first.kind, units, running, is_running: first.running.is_some() })
    })
}

/// Seconds until the last unit ends.
fn makespan(bags: &[Vec<f64>], dice: &mut Dice, samples: &[Vec<f64>], left: &[Left], slots: usize) -> f64 {
    // Times of slots in milliseconds: they are compared, and floats are not.
    let mut free: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut last = 0;
    for block in blocks(left) {
        let took = if block.is_running { block.rest(samples, dice) } else { block.draw(bags, dice) };
        let from =
            if block.is_running || free.len() < slots.max(1) { 0 } else { free.pop().map_or(0, |Reverse(at)| at) };
        let end = millis(took).0.saturating_add(from);
        last = last.max(end);
        free.push(Reverse(end));
    }
    seconds(Millis(last))
}

/// SplitMix64: the same draws every time.
struct Dice(u64);

impl Dice {
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

    fn finished(cost: f64, seconds: u64) -> Finished {
        Finished { cost: Some(cost), worked: Millis(seconds * 1000) }
    }

    fn queued(kind: usize, count: usize) -> Vec<Left> {
        vec![Left { kind, running: None }; count]
    }

    #[test]
    fn two_finished_units_say_nothing_and_three_do() {
        let mut like = vec![finished(0.5, 60); 2];
        let two = forecast(&[like.clone()], &queued(0, 4), 2);
        assert_eq!(two, Forecast { units: 4, ..Forecast::default() });
        like.push(finished(0.5, 60));
        let three = forecast(&[like], &queued(0, 4), 2);
        assert_eq!(three.cost, Some(Range { likely: 2.0, high: 2.0 }));
        assert_eq!(three.time, Some(Range { likely: Millis(120_000), high: Millis(120_000) }));
    }

    #[test]
    fn kind_that_is_not_known_is_left_out() {
        let left = [queued(0, 7), queued(1, 1)].concat();
        let forecast = forecast(&[vec![finished(1.0, 1); 5], vec![finished(1.0, 1); 2]], &left, 1);
        assert_eq!((forecast.cost, forecast.priced), (Some(Range { likely: 7.0, high: 7.0 }), 7));
        assert_eq!((forecast.time.map(|time| time.high), forecast.timed), (Some(Millis(7000)), 7));
        assert!(!forecast.is_cost_whole() && !forecast.is_time_whole());
    }

    #[test]
    fn unit_beyond_nine_of_ten_is_overdue() {
        let like: Vec<Finished> = (1..=20).map(|seconds| finished(0.1, seconds * 10)).collect();
        let running = |seconds: u64| Left { kind: 0, running: Some(Millis(seconds * 1000)) };
        let late = forecast(std::slice::from_ref(&like), &[running(181), running(400)], 2);
        assert_eq!((late.time, late.overdue, late.timed), (None, 2, 0));
        assert!(late.cost.is_some() && late.is_time_whole());
        let other = forecast(std::slice::from_ref(&like), &[running(400), running(175)], 2);
        assert_eq!((other.overdue, other.timed), (1, 1));
        let rest = other.time.map(|time| time.likely.0 / 1000).unwrap_or_default();
        assert!((5..=25).contains(&rest), "{rest} s until 180 to 200 s");
    }

    #[test]
    fn costs_that_were_not_told_do_not_hide_the_time() {
        let like = vec![Finished { cost: None, worked: Millis(5000) }; 3];
        let forecast = forecast(&[like], &queued(0, 1), 1);
        assert_eq!((forecast.cost, forecast.time.map(|time| time.high)), (None, Some(Millis(5000))));
    }

    #[test]
    fn what_runs_needs_only_its_rest_and_blocks_its_slot() {
        let like = vec![finished(1.0, 60); 3];
        let running = |seconds: u64| Left { kind: 0, running: Some(Millis(seconds * 1000)) };
        let end = |left: &[Left]| forecast(std::slice::from_ref(&like), left, 2).time.map(|time| time.likely.0 / 1000);
        assert_eq!(end(&[running(50)]), Some(10));
        assert_eq!(end(&[running(50), running(20), Left { kind: 0, running: None }]), Some(70));
    }

    #[test]
    fn the_spread_shrinks_as_more_units_have_finished() {
        let mixed = |times: usize| [finished(0.1, 10), finished(0.2, 20), finished(0.9, 90)].repeat(times);
        let width = |times: usize| {
            forecast(&[mixed(times)], &queued(0, 40), 4).cost.map(|cost| cost.high / cost.likely).unwrap_or_default()
        };
        assert!(width(1) > width(20), "{} {}", width(1), width(20));
        // The mean is 0.4, so that 40 units cost about 16.
        let cost = forecast(&[mixed(20)], &queued(0, 40), 4).cost.map(|cost| cost.likely).unwrap_or_default();
        assert!((14.0..18.0).contains(&cost), "{cost}");
    }

    proptest! {
        #[test]
        fn a_forecast_is_in_order_and_the_same_twice(
            samples in prop::collection::vec((prop::option::of(any::<f64>()), 0..9_000_000_u64), 0..90),
            left in prop::collection::vec((0..3_usize, prop::option::of(0..9_000_000_u64)), 0..600),
            slots in 0..70_usize,
        ) {
            let finished: Vec<Finished> =
                samples.iter().map(|(cost, worked)| Finished { cost: *cost, worked: Millis(*worked) }).collect();
            let kinds = [finished.clone(), finished];
            let left: Vec<Left> =
                left.iter().map(|(kind, running)| Left { kind: *kind, running: running.map(Millis) }).collect();
            let first = forecast(&kinds, &left, slots);
            prop_assert_eq!(first, forecast(&kinds, &left, slots));
            prop_assert_eq!(first.units, left.len());
            if let Some(cost) = first.cost {
                prop_assert!(cost.likely >= 0.0 && cost.likely <= cost.high);
            }
            if let Some(time) = first.time {
                prop_assert!(time.likely <= time.high);
            }
            if left.iter().all(|unit| unit.kind == 2) || samples.len() < ENOUGH {
                prop_assert_eq!((first.cost, first.time), (None, None));
            }
            prop_assert!(first.priced <= first.units && first.timed + first.overdue <= first.units);
        }
    }
}
