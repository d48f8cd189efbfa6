//! What an attempt costs, and what a unit took so far over all of its attempts. Pure.

use super::state::{AttemptState, UnitState};
use crate::{decode::ResultLine, tape::Millis};

/// What a unit took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnitSpending {
    /// Dollars of the attempts that said so; `None` when none did.
    pub cost: Option<f64>,
    /// True when some attempt did not say what it cost.
    pub partial: bool,
    /// Time in which an attempt ran.
    pub active_time: Millis,
}

impl UnitSpending {
    /// What `unit` took until `now`.
    pub fn new(unit: &UnitState, now: Millis) -> Self {
        let mut spent = Self::default();
        for attempt in &unit.attempts {
            match attempt.cost_usd {
                Some(cost) => spent.cost = Some(spent.cost.unwrap_or_default() + cost),
                None => spent.partial = true,
            }
            spent.active_time.0 = spent.active_time.0.saturating_add(attempt_duration(unit, attempt, now).0);
        }
        spent
    }

    /// Its cost, if all of it is known.
    pub fn complete_cost(&self) -> Option<f64> {
        self.cost.filter(|_| !self.partial)
    }
}

/// How long an attempt of `unit` ran until `now`. An attempt that broke off ran until its last entry.
pub fn attempt_duration(unit: &UnitState, attempt: &AttemptState, now: Millis) -> Millis {
    let broke_off = unit.status.is_finished() || unit.latest().is_some_and(|latest| latest.id != attempt.id);
    let end = attempt.ended_at.unwrap_or(if broke_off { attempt.last_at } else { now });
    end.since(attempt.started_at)
}

/// What one attempt costs, read off its results.
///
/// Newer releases say what each turn cost. Others only give a total: of the process, and from 2.1.277 on of the session
/// that it continues, too. There, what was paid before is taken off; where that is not known, nor is the cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptCost {
    /// The attempt continues a session.
    is_resumed: bool,
    /// What that session had cost before, as far as this run knows.
    prior_cost: Option<f64>,
    /// The totals of the agent's release begin with that; `None` while the release is unknown.
    total_includes_prior: Option<bool>,
    /// Turns that said what they cost.
    turns: Option<f64>,
    /// Totals of processes before the one that reports now.
    finished_total: f64,
    /// The last total.
    total: Option<f64>,
}

impl AttemptCost {
    /// The attempt continues a session for which `session_cost` was spent before; `None` where that is not known.
    pub fn resume(&mut self, paid: Option<f64>) {
        (self.is_resumed, self.prior_cost) = (true, paid);
    }

    /// The agent says which release it is.
    pub fn release(&mut self, version: Option<&str>) {
        self.total_includes_prior = version.and_then(total_includes_prior).or(self.total_includes_prior);
    }

    /// A result came.
    pub fn result(&mut self, result: &ResultLine<'_>) {
        if let Some(cost) = result.cost_since_last_result.filter(|cost| *cost >= 0.0) {
            self.turns = Some(self.turns.unwrap_or_default() + cost);
        }
        let Some(total) = result.total_cost_usd.filter(|cost| cost.is_finite() && *cost >= 0.0) else { return };
        if let Some(last) = self.total.filter(|last| *last > total) {
            // Another process reports, whose total begins afresh.
            self.finished_total += last - self.total_offset().unwrap_or_default();
            self.is_resumed = false;
        }
        self.total = Some(total);
    }

    /// What the attempt has cost so far; `None` where that is not known.
    pub fn cost(&self) -> Option<f64> {
        let of_totals = || Some(self.finished_total + (self.total? - self.total_offset()?).max(0.0));
        self.turns.or_else(of_totals)
    }

    /// What the totals begin with.
    fn total_offset(&self) -> Option<f64> {
        match self.total_includes_prior {
            _ if !self.is_resumed => Some(0.0),
            Some(false) => Some(0.0),
            Some(true) | None => self.prior_cost,
        }
    }
}

/// What was paid for a session by attempts that worked in it. `None` if there are none, or one does not say.
pub fn session_cost(costs: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    costs.into_iter().try_fold(None, |sum, cost| Some(Some(sum.unwrap_or_default() + cost?))).flatten()
}

/// Whether the total of a resumed session begins with what it had cost before; `None` for a version of another form.
fn total_includes_prior(version: &str) -> Option<bool> {
    const SINCE: [u32; 3] = [2, 1, 277];
    let number = version.split_whitespace().next().unwrap_or_default();
    let parts: Vec<u32> = number.split('.').map_while(|part| part.parse().ok()).collect();
    (parts.len() == SINCE.len()).then(|| parts[..] >= SINCE[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::state::{AttemptId, HoldMode, UnitStatus};

    fn attempt(lane: u32, started: u64, ended: Option<u64>, cost: Option<f64>) -> AttemptState {
        AttemptState {
            id: AttemptId(lane),
            started_at: Millis(started),
            last_at: Millis(started + 5),
            ended_at: ended.map(Millis),
            cost_usd: cost,
            ..AttemptState::default()
        }
    }

    #[test]
    fn spending_sums_attempts_and_flags_unknown_costs() {
        let mut unit = UnitState {
            key: "u".into(),
            planned: None,
            status: UnitStatus::Running,
            attempts: Vec::new(),
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        assert_eq!(UnitSpending::new(&unit, Millis(9)), UnitSpending::default());
        unit.attempts = vec![attempt(0, 0, Some(100), Some(0.5)), attempt(1, 200, None, None)];
        let spent = UnitSpending::new(&unit, Millis(260));
        assert_eq!((spent.cost, spent.partial, spent.active_time), (Some(0.5), true, Millis(160)));
        assert_eq!(spent.complete_cost(), None);
        unit.status = UnitStatus::Interrupted;
        assert_eq!(UnitSpending::new(&unit, Millis(9999)).active_time, Millis(105));
    }

    fn bill(resumed: Option<Option<f64>>, version: &str, results: &[(f64, Option<f64>)]) -> Option<f64> {
        let mut bill = AttemptCost::default();
        if let Some(paid) = resumed {
            bill.resume(paid);
        }
        bill.release(Some(version));
        for (total, since) in results {
            let (total_cost_usd, cost_since_last_result) = (Some(*total), *since);
            bill.result(&ResultLine { total_cost_usd, cost_since_last_result, ..ResultLine::default() });
        }
        bill.cost()
    }

    #[test]
    fn resumed_session_is_billed_for_its_own_turns_only() {
        // Told by the release.
        assert_eq!(bill(Some(None), "2.1.330", &[(3.0, Some(1.0))]), Some(1.0));
        assert_eq!(bill(Some(Some(9.0)), "2.1.330", &[(3.0, Some(1.0)), (3.5, Some(0.5))]), Some(1.5));
        assert_eq!(bill(None, "2.1.330", &[(3.0, Some(3.0)), (3.0, Some(0.0))]), Some(3.0));
        // The total has it all.
        assert_eq!(bill(Some(Some(2.0)), "2.1.300", &[(3.0, None)]), Some(1.0));
        assert_eq!(bill(Some(None), "2.1.300", &[(3.0, None)]), None);
        // The total is that of the process.
        assert_eq!(bill(Some(None), "2.1.223", &[(1.0, None)]), Some(1.0));
        assert_eq!(bill(None, "2.1.300", &[(1.0, None), (1.5, None)]), Some(1.5));
        // Two processes in one record.
        assert_eq!(bill(None, "2.1.223", &[(1.0, None), (0.5, None)]), Some(1.5));
    }

    #[test]
    fn resumed_total_of_unknown_release_is_not_used() {
        let total = ResultLine { total_cost_usd: Some(3.0), ..ResultLine::default() };
        let cost = |paid, versions: &[Option<&str>]| {
            let mut bill = AttemptCost::default();
            bill.resume(paid);
            versions.iter().for_each(|version| bill.release(*version));
            bill.result(&total);
            bill.cost()
        };
        assert_eq!(cost(None, &[None]), None);
        assert_eq!(cost(Some(2.0), &[None]), Some(1.0));
        assert_eq!(cost(None, &[Some("next")]), None);
        assert_eq!(cost(None, &[Some("2.1.223"), None]), Some(3.0), "a later turn of the same process");
    }

    #[test]
    fn session_cost_needs_the_cost_of_every_attempt() {
        assert_eq!(session_cost([]), None);
        assert_eq!(session_cost([Some(1.0), Some(0.5)]), Some(1.5));
        assert_eq!(session_cost([Some(1.0), None]), None);
    }
}
