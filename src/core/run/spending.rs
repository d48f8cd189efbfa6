//! The cost and time of an attempt, of a unit over all its attempts, and of a run. Pure.

use std::fmt;

use super::state::{AttemptState, CostReport, RunState, UnitState};
use crate::{decode::ResultLine, tape::Millis, text::dollars};

/// Cost and active time of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnitSpending {
    /// US dollars of the attempts that reported a cost; `None` if none did.
    pub cost: Option<f64>,
    /// True if some attempt did not report its cost.
    pub partial: bool,
    /// The cost to show.
    pub shown: CostFigure,
    /// Time in which an attempt ran.
    pub active_time: Millis,
}

impl UnitSpending {
    /// Sums the attempts of `unit` until `now`.
    pub fn new(unit: &UnitState, now: Millis) -> Self {
        let mut spent = Self {
            shown: CostFigure::of(unit.attempts.iter()),
            ..Self::default()
        };
        for attempt in &unit.attempts {
            match attempt.counts.cost_usd {
                Some(cost) => spent.cost = sum_costs(spent.cost.into_iter().chain([cost])),
                None if attempt.setup.is_cost_included() => {}
                None => spent.partial = true,
            }
            spent.active_time.0 = spent
                .active_time
                .0
                .saturating_add(attempt_duration(unit, attempt, now).0);
        }
        spent
    }

    /// The cost, if it is known for all attempts.
    pub(crate) fn complete_cost(&self) -> Option<f64> {
        self.cost.filter(|_| !self.partial)
    }
}

/// A cost to show: as far as it is reported, else an estimate from the prices of the tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostFigure {
    /// US dollars; `None` if the cost is unknown.
    pub usd: Option<f64>,
    /// True if a part of it is an estimate.
    pub is_estimate: bool,
    /// True if the cost of some attempt is unknown.
    pub is_partial: bool,
}

impl CostFigure {
    /// The cost of these attempts together; unknown without attempts.
    pub fn of<'a>(attempts: impl Iterator<Item = &'a AttemptState> + Clone) -> Self {
        // The cost that a session reports includes the sub-agents before it, its estimate does not.
        let covers_sub_agents = attempts
            .clone()
            .any(|attempt| attempt.counts.cost_usd.is_some() && !attempt.setup.is_cost_included());
        let mut sum = Self::default();
        for attempt in attempts {
            let (counts, setup) = (&attempt.counts, &attempt.setup);
            match counts.estimated_usd.or(counts.cost_usd) {
                None => sum.is_partial |= !setup.is_cost_included(),
                Some(_)
                    if setup.cost_report == CostReport::ReportedSession
                        && covers_sub_agents
                        && counts.cost_usd.is_none() => {}
                Some(cost) => {
                    sum.usd = sum_costs(sum.usd.into_iter().chain([cost]));
                    sum.is_estimate |= counts.estimated_usd.is_some();
                }
            }
        }
        sum
    }

    /// The cost of one attempt.
    pub fn of_attempt(attempt: &AttemptState) -> Self {
        Self::of(std::iter::once(attempt))
    }

    /// The estimate, if there is one.
    pub fn estimate(&self) -> Option<f64> {
        self.usd.filter(|_| self.is_estimate)
    }

    /// For example `$0.42`, `~$0.42` for an estimate, or `$?`, without a mark for a sum in which costs are missing.
    pub fn dollars(&self) -> String {
        let mark = if self.estimate().is_some() { "~" } else { "" };
        format!("{mark}{}", dollars(self.usd))
    }
}

/// For example `≥ ~$0.42`: as [`CostFigure::dollars`], marked if costs are missing.
impl fmt::Display for CostFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.usd.is_some() && self.is_partial {
            f.write_str("≥ ")?;
        }
        f.write_str(&self.dollars())
    }
}

impl RunState {
    /// The cost of all attempts; zero without attempts.
    pub fn cost_figure(&self) -> CostFigure {
        let mut attempts = self.units.iter().flat_map(|unit| &unit.attempts).peekable();
        let usd = attempts.peek().is_none().then_some(0.0);
        let sum = CostFigure::of(attempts);
        CostFigure {
            usd: sum.usd.or(usd),
            ..sum
        }
    }

    /// Duration of the run until `end`, as text. Time in which it had ended until a retry reopened it is not a part of it.
    pub fn duration_text(&self, end: Millis) -> String {
        let duration = end.since(self.time_ended);
        match self.time_ended {
            Millis(0..1000) => duration.to_string(),
            ended => format!("{duration}, not counting {ended} before a retry"),
        }
    }
}

/// The cost of all attempts of a run in US dollars: zero if there were none, `None` if none reported a cost.
pub fn run_cost(state: &RunState) -> Option<f64> {
    let mut attempts = state
        .units
        .iter()
        .flat_map(|unit| &unit.attempts)
        .peekable();
    match attempts.peek() {
        Some(_) => sum_costs(attempts.filter_map(|attempt| attempt.counts.cost_usd)),
        None => Some(0.0),
    }
}

/// The sum of `costs` in US dollars; `None` without any.
pub fn sum_costs(costs: impl IntoIterator<Item = f64>) -> Option<f64> {
    costs
        .into_iter()
        .reduce(|sum, cost| sum + cost)
        .map(round_cost)
}

/// Rounds US dollars to the digits that agents report, because sums of binary fractions have more.
pub(crate) fn round_cost(cost: f64) -> f64 {
    (cost * 1e9).round() / 1e9 + 0.0
}

/// Duration of an attempt of `unit` until `now`.
pub fn attempt_duration(unit: &UnitState, attempt: &AttemptState, now: Millis) -> Millis {
    attempt_end(unit, attempt, now).since(attempt.started_at)
}

/// End of an attempt of `unit`; `now` while it runs. An interrupted attempt ran until its last entry.
pub(crate) fn attempt_end(unit: &UnitState, attempt: &AttemptState, now: Millis) -> Millis {
    let broke_off =
        unit.status.is_finished() || unit.latest().is_some_and(|latest| latest.id != attempt.id);
    attempt
        .ended_at
        .unwrap_or(if broke_off { attempt.last_at } else { now })
}

/// The cost of one attempt, computed from its results.
///
/// Newer releases report the cost of each turn. Others report only a total: that of the process, and from 2.1.277 on
/// that of the resumed session as well. In this case the prior cost of the session is subtracted; if the prior cost is
/// unknown, the cost of the attempt is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AttemptCost {
    /// The attempt resumes a session.
    is_resumed: bool,
    /// Cost of that session before the attempt, as far as this run knows it.
    prior_cost: Option<f64>,
    /// True if the totals of the agent's release include the prior cost; `None` while the release is unknown.
    total_includes_prior: Option<bool>,
    /// Sum over the turns that reported their cost; in a session file, its last total.
    turns: Option<f64>,
    /// Sum of the totals of earlier processes.
    finished_total: f64,
    /// The last total that the process reported.
    total: Option<f64>,
}

impl AttemptCost {
    /// The attempt resumes a session that cost `paid` before; `None` if its cost is unknown.
    pub(crate) fn resume(&mut self, paid: Option<f64>) {
        (self.is_resumed, self.prior_cost) = (true, paid);
    }

    /// Handles the release that the agent reports.
    pub(crate) fn set_release(&mut self, version: Option<&str>) {
        self.total_includes_prior = version
            .and_then(total_includes_prior)
            .or(self.total_includes_prior);
    }

    /// Adds a result. Returns true if its totals are those of another process and start at zero.
    pub(crate) fn add_result(&mut self, result: &ResultLine<'_>) -> bool {
        if let Some(cost) = result.cost_since_last_result.filter(|cost| *cost >= 0.0) {
            self.turns = Some(self.turns.unwrap_or_default() + cost);
        }
        let total = result
            .total_cost_usd
            .filter(|cost| cost.is_finite() && *cost >= 0.0);
        let is_new_process = self
            .total
            .zip(total)
            .is_some_and(|(last, total)| last > total);
        let Some(total) = total else { return false };
        if let Some(last) = self.total.filter(|_| is_new_process) {
            // The total decreased, so another process reports a total that starts at zero.
            self.finished_total += last - self.total_offset().unwrap_or_default();
            self.is_resumed = false;
        }
        self.total = Some(total);
        is_new_process
    }

    /// Handles the total cost in a session file, which includes earlier processes and sub-agents. A total without any
    /// known price is unknown.
    pub(crate) fn set_session_total(&mut self, total: Option<f64>, is_incomplete: bool) {
        let is_known =
            |total: &f64| total.is_finite() && (*total > 0.0 || *total == 0.0 && !is_incomplete);
        self.turns = total.filter(is_known).or(self.turns);
    }

    /// The cost of the attempt so far; `None` if it is unknown.
    pub(crate) fn cost(&self) -> Option<f64> {
        let of_totals =
            || Some(self.finished_total + (self.total? - self.total_offset()?).max(0.0));
        self.turns.or_else(of_totals)
    }

    /// True if the totals contain nothing that was spent before the attempt.
    pub(crate) fn has_own_totals(&self) -> bool {
        !self.is_resumed || self.total_includes_prior == Some(false)
    }

    /// The part of a process's total that was spent before the attempt.
    fn total_offset(&self) -> Option<f64> {
        match self.total_includes_prior {
            _ if !self.is_resumed => Some(0.0),
            Some(false) => Some(0.0),
            Some(true) | None => self.prior_cost,
        }
    }
}

/// Sums the costs of the attempts in a session. `None` without attempts, or if the cost of one is unknown.
pub fn session_cost(costs: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    costs
        .into_iter()
        .try_fold(None, |sum, cost| {
            Some(Some(sum.unwrap_or_default() + cost?))
        })
        .flatten()
}

/// Whether the total of a resumed session includes its prior cost; `None` if the version has an unknown format.
fn total_includes_prior(version: &str) -> Option<bool> {
    const SINCE: [u32; 3] = [2, 1, 277];
    let number = version.split_whitespace().next().unwrap_or_default();
    let parts: Vec<u32> = number
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    (parts.len() == SINCE.len()).then(|| parts[..] >= SINCE[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::state::{AttemptCounts, AttemptId, HoldMode, UnitStatus};

    fn attempt(index: u32, started: u64, ended: Option<u64>, cost: Option<f64>) -> AttemptState {
        AttemptState {
            id: AttemptId(index),
            started_at: Millis(started),
            last_at: Millis(started + 5),
            ended_at: ended.map(Millis),
            counts: AttemptCounts {
                cost_usd: cost,
                ..AttemptCounts::default()
            },
            ..AttemptState::default()
        }
    }

    #[test]
    fn run_without_attempts_costs_nothing() {
        let mut unit = UnitState {
            key: "u".into(),
            planned: None,
            status: UnitStatus::Reused,
            attempts: Vec::new(),
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        let cost = |unit: &UnitState| {
            run_cost(&RunState {
                units: vec![unit.clone()],
                ..RunState::default()
            })
        };
        assert_eq!(cost(&unit), Some(0.0));
        unit.attempts = vec![attempt(0, 0, Some(5), None)];
        assert_eq!(cost(&unit), None);
        unit.attempts
            .extend([0.1, 0.2].map(|dollars| attempt(0, 0, Some(5), Some(dollars))));
        assert_eq!(
            cost(&unit),
            Some(0.3),
            "without the digits of a binary fraction"
        );
    }

    #[test]
    fn cost_of_a_sub_agent_is_not_missing() {
        let mut unit = UnitState {
            key: "u".into(),
            planned: None,
            status: UnitStatus::Succeeded,
            attempts: vec![attempt(0, 0, Some(5), None)],
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        assert!(UnitSpending::new(&unit, Millis(9)).partial);
        unit.attempts[0].setup.cost_report = CostReport::Session;
        let spending = UnitSpending::new(&unit, Millis(9));
        assert_eq!((spending.cost, spending.partial), (None, false));
    }

    #[test]
    fn estimates_of_sub_agents_count_without_a_reported_total() {
        let attempt = |cost: Option<f64>, estimate: Option<f64>, is_included: bool| {
            let mut attempt = attempt(0, 0, Some(5), cost);
            attempt.counts.estimated_usd = estimate;
            if is_included {
                attempt.setup.cost_report = CostReport::Session;
            }
            attempt
        };
        let text = |attempts: &[AttemptState]| CostFigure::of(attempts.iter()).to_string();
        let sub_agent = attempt(None, Some(0.25), true);
        assert_eq!(text(&[]), "$?");
        assert_eq!(text(&[attempt(None, None, false)]), "$?");
        assert_eq!(text(&[attempt(Some(1.0), None, false)]), "$1.00");
        assert_eq!(text(&[attempt(Some(1.0), Some(1.5), false)]), "~$1.50");
        assert_eq!(
            text(&[attempt(None, Some(1.5), false), attempt(None, None, false)]),
            "≥ ~$1.50"
        );
        let total = attempt(Some(1.0), None, false);
        assert_eq!(text(&[total.clone(), sub_agent.clone()]), "~$1.25");
        let mut covered = sub_agent.clone();
        covered.setup.cost_report = CostReport::ReportedSession;
        assert_eq!(text(&[total, covered.clone()]), "$1.00");
        assert_eq!(text(&[covered]), "~$0.25");
        assert_eq!(
            text(&[attempt(None, Some(1.0), false), sub_agent]),
            "~$1.25"
        );
    }

    #[test]
    fn last_known_total_of_a_session_file_counts() {
        let mut cost = AttemptCost::default();
        let mut after = |total, is_incomplete| {
            cost.set_session_total(total, is_incomplete);
            cost.cost()
        };
        assert_eq!(after(None, false), None);
        assert_eq!(after(Some(0.0), true), None);
        assert_eq!(after(Some(0.0), false), Some(0.0));
        assert_eq!(after(Some(0.25), true), Some(0.25));
        for unusable in [None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0)] {
            assert_eq!(after(unusable, false), Some(0.25), "{unusable:?}");
        }
        assert_eq!(after(Some(0.125), false), Some(0.125));
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
        unit.attempts = vec![
            attempt(0, 0, Some(100), Some(0.5)),
            attempt(1, 200, None, None),
        ];
        let spent = UnitSpending::new(&unit, Millis(260));
        assert_eq!(
            (spent.cost, spent.partial, spent.active_time),
            (Some(0.5), true, Millis(160))
        );
        assert_eq!(spent.complete_cost(), None);
        unit.status = UnitStatus::Interrupted;
        assert_eq!(
            UnitSpending::new(&unit, Millis(9999)).active_time,
            Millis(105)
        );
    }

    fn cost(
        resumed: Option<Option<f64>>,
        version: &str,
        results: &[(f64, Option<f64>)],
    ) -> Option<f64> {
        let mut cost = AttemptCost::default();
        if let Some(paid) = resumed {
            cost.resume(paid);
        }
        cost.set_release(Some(version));
        for (total, since) in results {
            let (total_cost_usd, cost_since_last_result) = (Some(*total), *since);
            cost.add_result(&ResultLine {
                total_cost_usd,
                cost_since_last_result,
                ..ResultLine::default()
            });
        }
        cost.cost()
    }

    #[test]
    fn resumed_session_is_billed_for_its_own_turns_only() {
        // The release reports the cost of each turn.
        assert_eq!(cost(Some(None), "2.1.330", &[(3.0, Some(1.0))]), Some(1.0));
        assert_eq!(
            cost(
                Some(Some(9.0)),
                "2.1.330",
                &[(3.0, Some(1.0)), (3.5, Some(0.5))]
            ),
            Some(1.5)
        );
        assert_eq!(
            cost(None, "2.1.330", &[(3.0, Some(3.0)), (3.0, Some(0.0))]),
            Some(3.0)
        );
        // The total includes the prior cost.
        assert_eq!(cost(Some(Some(2.0)), "2.1.300", &[(3.0, None)]), Some(1.0));
        assert_eq!(cost(Some(None), "2.1.300", &[(3.0, None)]), None);
        // The total is that of the process.
        assert_eq!(cost(Some(None), "2.1.223", &[(1.0, None)]), Some(1.0));
        assert_eq!(
            cost(None, "2.1.300", &[(1.0, None), (1.5, None)]),
            Some(1.5)
        );
        // A capture of two processes.
        assert_eq!(
            cost(None, "2.1.223", &[(1.0, None), (0.5, None)]),
            Some(1.5)
        );
    }

    #[test]
    fn resumed_total_of_unknown_release_is_not_used() {
        let total = ResultLine {
            total_cost_usd: Some(3.0),
            ..ResultLine::default()
        };
        let cost = |paid, versions: &[Option<&str>]| {
            let mut cost = AttemptCost::default();
            cost.resume(paid);
            versions
                .iter()
                .for_each(|version| cost.set_release(*version));
            cost.add_result(&total);
            cost.cost()
        };
        assert_eq!(cost(None, &[None]), None);
        assert_eq!(cost(Some(2.0), &[None]), Some(1.0));
        assert_eq!(cost(None, &[Some("next")]), None);
        assert_eq!(
            cost(None, &[Some("2.1.223"), None]),
            Some(3.0),
            "a later turn of the same process"
        );
    }

    #[test]
    fn session_cost_needs_the_cost_of_every_attempt() {
        assert_eq!(session_cost([]), None);
        assert_eq!(session_cost([Some(1.0), Some(0.5)]), Some(1.5));
        assert_eq!(session_cost([Some(1.0), None]), None);
    }
}
