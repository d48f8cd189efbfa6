//! What a unit took so far, over all of its attempts. Pure.

use super::state::{Attempt, Unit};
use crate::tape::Millis;

/// What a unit took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Dollars of the attempts that said so; `None` when none did.
    pub cost: Option<f64>,
    /// True when some attempt did not say what it cost.
    pub partial: bool,
    /// Time in which an attempt ran.
    pub worked: Millis,
}

impl Spent {
    /// What `unit` took until `now`.
    pub fn of(unit: &Unit, now: Millis) -> Self {
        let mut spent = Self::default();
        for attempt in &unit.attempts {
            match attempt.cost_usd {
                Some(cost) => spent.cost = Some(spent.cost.unwrap_or_default() + cost),
                None => spent.partial = true,
            }
            spent.worked.0 = spent.worked.0.saturating_add(ran(unit, attempt, now).0);
        }
        spent
    }

    /// Its cost, if all of it is known.
    pub fn whole_cost(&self) -> Option<f64> {
        self.cost.filter(|_| !self.partial)
    }
}

/// How long an attempt of `unit` ran until `now`. An attempt that broke off ran until its last entry.
pub fn ran(unit: &Unit, attempt: &Attempt, now: Millis) -> Millis {
    let broke_off = unit.status.is_over() || unit.latest().is_some_and(|latest| latest.lane != attempt.lane);
    let end = attempt.ended_at.unwrap_or(if broke_off { attempt.last_at } else { now });
    end.since(attempt.started_at)
}

/// True for releases whose total of a resumed session begins with what it had cost before.
pub fn bills_again(version: &str) -> bool {
    const SINCE: [u32; 3] = [2, 1, 277];
    let number = version.split_whitespace().next().unwrap_or_default();
    let parts: Vec<u32> = number.split('.').map_while(|part| part.parse().ok()).collect();
    parts.len() == SINCE.len() && parts[..] >= SINCE[..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::state::{Holding, LaneId, UnitStatus};

    fn attempt(lane: u32, started: u64, ended: Option<u64>, cost: Option<f64>) -> Attempt {
        Attempt {
            lane: LaneId(lane),
            started_at: Millis(started),
            last_at: Millis(started + 5),
            ended_at: ended.map(Millis),
            cost_usd: cost,
            ..Attempt::default()
        }
    }

    #[test]
    fn attempts_add_up_and_what_is_not_known_is_said() {
        let mut unit = Unit {
            key: "u".into(),
            planned: None,
            status: UnitStatus::Running,
            attempts: Vec::new(),
            retry_at: None,
            holding: Holding::No,
        };
        assert_eq!(Spent::of(&unit, Millis(9)), Spent::default());
        unit.attempts = vec![attempt(0, 0, Some(100), Some(0.5)), attempt(1, 200, None, None)];
        let spent = Spent::of(&unit, Millis(260));
        assert_eq!((spent.cost, spent.partial, spent.worked), (Some(0.5), true, Millis(160)));
        assert_eq!(spent.whole_cost(), None);
        unit.status = UnitStatus::Interrupted;
        assert_eq!(Spent::of(&unit, Millis(9999)).worked, Millis(105));
    }
}
