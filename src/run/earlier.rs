//! A run as the past of another one: how each of its units stood, and what it had taken over itself. Pure.

use super::state::{RunState, Unit, UnitStatus};
use crate::{
    tape::{
        RunId,
        note::{Continues, Earlier},
    },
    units::reuse::{self, Past, Standing},
};

/// Tells what `state` means for a run that goes on with it.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    state: &'a RunState,
    run: RunId,
}

impl<'a> Before<'a> {
    /// The past that is `state`, of run `run`.
    pub fn new(state: &'a RunState, run: RunId) -> Self {
        Self { state, run }
    }

    /// What is said of the run as a whole; nothing of its units yet.
    pub fn continues(&self) -> Continues {
        let costs = self.state.units.iter().flat_map(|unit| &unit.attempts).filter_map(|attempt| attempt.cost_usd);
        let outcome = self.state.ended.as_ref().map(|ended| ended.outcome.clone());
        Continues { run: self.run, outcome, cost_usd: costs.reduce(|sum, cost| sum + cost), units: Default::default() }
    }

    /// What this run and those before it did about `unit`. Nothing is reused yet. `None` if it was never tried.
    pub fn earlier(&self, unit: &Unit) -> Option<Earlier> {
        let before = self.taken_over(unit);
        let attempts = u32::try_from(unit.attempts.len()).unwrap_or(u32::MAX);
        let costs = unit.attempts.iter().filter_map(|attempt| attempt.cost_usd);
        let cost_usd = costs.reduce(|sum, cost| sum + cost);
        match (attempts, before) {
            (0, before) => before.map(|before| Earlier { reused: None, ..before.clone() }),
            (_, before) => Some(reuse::add(before, Earlier { run: self.run, attempts, cost_usd, reused: None })),
        }
    }

    /// How `unit` stood, to be judged. What this run had taken over stands as it did where it was done.
    pub fn past<'b>(&self, unit: &'b Unit) -> Past<'b>
    where
        'a: 'b,
    {
        let taken = self.taken_over(unit).and_then(|earlier| Some((earlier.run, earlier.reused.as_ref()?)));
        if let (UnitStatus::Reused, Some((run, reused))) = (unit.status, taken) {
            let standing = Standing::Succeeded { budget: reused.budget };
            return Past { run, standing, attempt: reused.attempt, content: Some(&reused.content) };
        }
        let latest = unit.latest();
        let reason = latest.and_then(|attempt| attempt.verdict.as_ref()).map(|verdict| verdict.reason.as_str());
        let standing = match (unit.status, reason) {
            (UnitStatus::Succeeded, _) => Standing::Succeeded { budget: false },
            (UnitStatus::Budget, _) => Standing::Succeeded { budget: true },
            (UnitStatus::Failed, reason) => Standing::Failed(reason.unwrap_or("no reason is on record")),
            // It was to be tried again, which never came.
            (UnitStatus::Waiting, Some(reason)) => Standing::Failed(reason),
            (UnitStatus::Stopped, _) => Standing::Stopped,
            (UnitStatus::Running | UnitStatus::Held | UnitStatus::Interrupted, _) => Standing::Interrupted,
            (UnitStatus::Queued | UnitStatus::Waiting | UnitStatus::Reused, _) => Standing::Waiting,
        };
        let content = latest.and_then(|attempt| attempt.content.as_deref());
        Past { run: self.run, standing, attempt: latest.map_or(0, |attempt| attempt.number), content }
    }

    fn taken_over(&self, unit: &Unit) -> Option<&'a Earlier> {
        self.state.earlier(&unit.key)
    }
}
