//! Summarizes a run as the prior run of another one: the state of each unit, and the results that it reused itself.
//! Pure.

use std::collections::{BTreeMap, HashMap};

use super::{
    spending::{run_cost, sum_costs},
    state::{AttemptState, RunState, UnitState, UnitStatus},
};
use crate::{
    tape::{
        RunId, UnitKey,
        note::{ContinuedRun, PriorUnitSummary},
    },
    units::reuse::{self, BudgetExhaustion, PriorOutcome, PriorUnit},
};

/// Interprets `state` for a run that continues it.
#[derive(Clone, Copy, Debug)]
pub struct PriorRunView<'a> {
    state: &'a RunState,
    run: RunId,
}

impl<'a> PriorRunView<'a> {
    /// Creates the view of `state`, which belongs to the run `run`.
    pub fn new(state: &'a RunState, run: RunId) -> Self {
        Self { state, run }
    }

    /// Returns the facts about the run as a whole; `reused` has no units yet.
    pub fn continues(&self) -> ContinuedRun {
        let outcome = self
            .state
            .ended
            .as_ref()
            .map(|ended| ended.outcome.as_str().to_owned());
        ContinuedRun {
            run: self.run,
            outcome,
            cost_usd: run_cost(self.state),
            units: Default::default(),
            unreconciled: self.unreconciled_patches(),
        }
    }

    /// Patches that were saved without a reconcile step.
    fn unreconciled_patches(&self) -> BTreeMap<UnitKey, String> {
        if self.state.publication.unreconciled.is_empty() {
            return BTreeMap::new();
        }
        let units: HashMap<&UnitKey, &UnitState> = self
            .state
            .units
            .iter()
            .map(|unit| (&unit.key, unit))
            .collect();
        let before = self
            .state
            .planned
            .as_ref()
            .and_then(|planned| planned.continues.as_ref());
        let patch = |key: &UnitKey| {
            let saved = units
                .get(key)?
                .attempts
                .iter()
                .rfind(|attempt| attempt.delivery.is_saved);
            let own = || saved?.delivery.patch.as_ref()?.path.clone();
            let taken_over = || {
                before?
                    .units
                    .get(key)?
                    .reused
                    .as_ref()?
                    .pending_patch
                    .clone()
            };
            own()
                .or_else(taken_over)
                .or_else(|| before?.unreconciled.get(key).cloned())
        };
        let keys = self.state.publication.unreconciled.iter();
        keys.filter_map(|key| Some((key.clone(), patch(key)?)))
            .collect()
    }

    /// Summarizes what this run and those before it did for `unit`. `reused` is empty. `None` if the unit was never
    /// tried.
    pub fn prior_unit_summary(&self, unit: &UnitState) -> Option<PriorUnitSummary> {
        let before = self.prior_success(unit);
        let attempts = u32::try_from(unit.attempts.len()).unwrap_or(u32::MAX);
        let cost_usd = sum_costs(
            unit.attempts
                .iter()
                .filter_map(|attempt| attempt.counts.cost_usd),
        );
        match (attempts, before) {
            (0, before) => before.map(|before| PriorUnitSummary {
                reused: None,
                ..before.clone()
            }),
            (_, before) => Some(reuse::merge_prior(
                before,
                PriorUnitSummary {
                    run: self.run,
                    attempts,
                    cost_usd,
                    reused: None,
                },
            )),
        }
    }

    /// Returns the state of `unit` for planning. A unit that this run reused keeps the result of the run that produced
    /// it.
    pub fn prior_unit<'b>(&self, unit: &'b UnitState) -> PriorUnit<'b>
    where
        'a: 'b,
    {
        let taken = self
            .prior_success(unit)
            .and_then(|earlier| Some((earlier.run, earlier.reused.as_ref()?)));
        if let (UnitStatus::Reused, Some((run, reused))) = (unit.status, taken) {
            // Older programs also reused units whose turn budget was exhausted.
            let standing = if reused.is_budget_exhausted {
                PriorOutcome::OutOfBudget(BudgetExhaustion::default())
            } else {
                PriorOutcome::Succeeded
            };
            let is_saved = self
                .state
                .publication
                .prior_patches
                .get(&unit.key)
                .is_some_and(|taken| taken.is_saved);
            return PriorUnit {
                run,
                outcome: standing,
                attempt: reused.attempt,
                content: Some(&reused.content),
                patch: reused.pending_patch.as_deref().filter(|_| !is_saved),
                work: Some(&reused.output),
            };
        }
        let latest = unit.latest();
        let reason = self
            .state
            .verdict(unit)
            .map(|verdict| verdict.reason.as_str());
        let standing = match (unit.status, reason) {
            (UnitStatus::Succeeded, _) => PriorOutcome::Succeeded,
            (UnitStatus::BudgetExhausted, _) => PriorOutcome::OutOfBudget(
                latest
                    .map(AttemptState::budget_exhaustion)
                    .unwrap_or_default(),
            ),
            (UnitStatus::Failed, reason) => {
                PriorOutcome::Failed(reason.unwrap_or("no reason is on record"))
            }
            // It was waiting for a retry that never started.
            (UnitStatus::Waiting | UnitStatus::Interrupted, Some(reason)) => {
                PriorOutcome::Failed(reason)
            }
            (UnitStatus::Stopped, _) => PriorOutcome::Stopped,
            (
                UnitStatus::Running
                | UnitStatus::Silent
                | UnitStatus::Held
                | UnitStatus::Interrupted,
                _,
            ) => PriorOutcome::Interrupted,
            (
                UnitStatus::Queued
                | UnitStatus::NotStarted
                | UnitStatus::Waiting
                | UnitStatus::Reused,
                _,
            ) => PriorOutcome::Pending,
        };
        let content = latest.and_then(|attempt| attempt.setup.content.as_deref());
        // Changes that never reached the branch are in the patch.
        let unsaved = latest
            .filter(|attempt| attempt.delivery.is_unsaved())
            .and_then(|attempt| attempt.delivery.patch.as_ref());
        let patch = unsaved.and_then(|patch| patch.path.as_deref());
        let work = latest.and_then(|attempt| attempt.delivery.output.as_deref());
        PriorUnit {
            run: self.run,
            outcome: standing,
            attempt: latest.map_or(0, |attempt| attempt.number),
            content,
            patch,
            work,
        }
    }

    fn prior_success(&self, unit: &UnitState) -> Option<&'a PriorUnitSummary> {
        self.state.prior_unit_summary(&unit.key)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use crate::{
        run::state::{AttemptCounts, AttemptSetup, AttemptState, PriorPatchIntegration},
        tape::note::{
            AttemptOutcome, AttemptOutput, ContentDigests, PatchResult, PatchWritten,
            ReusedSuccess, RunPlanned, StopReason, Verdict, VerdictCause,
        },
        units::reuse::{ReuseDecision, decide_reuse},
    };

    fn id(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    fn content() -> ContentDigests {
        ContentDigests {
            combined: "k".into(),
            ..ContentDigests::default()
        }
    }

    fn unit(key: &str, status: UnitStatus, costs: &[Option<f64>]) -> UnitState {
        let attempt = |(at, cost): (usize, &Option<f64>)| AttemptState {
            number: u32::try_from(at).unwrap() + 1,
            verdict: Some(Verdict {
                outcome: AttemptOutcome::Failed,
                stop: StopReason::Error,
                cause: VerdictCause::Transient,
                reason: "busy".into(),
                remedy: None,
            }),
            counts: AttemptCounts {
                cost_usd: *cost,
                ..AttemptCounts::default()
            },
            setup: AttemptSetup {
                content: Some(Arc::new(content())),
                ..AttemptSetup::default()
            },
            ..AttemptState::default()
        };
        let attempts = costs.iter().enumerate().map(attempt).collect();
        UnitState {
            key: key.into(),
            planned: None,
            status,
            attempts,
            retry_at: None,
            hold_mode: Default::default(),
        }
    }

    /// Run 2, which reused `old` from run 1, where `again` had failed twice and cost half a dollar.
    fn state() -> RunState {
        let reused = ReusedSuccess {
            attempt: 3,
            is_budget_exhausted: false,
            content: content(),
            pending_patch: None,
            output: AttemptOutput::default(),
        };
        let earlier = |reused| PriorUnitSummary {
            run: id(1),
            attempts: 2,
            cost_usd: Some(0.5),
            reused,
        };
        let units = BTreeMap::from([
            ("old".into(), earlier(Some(reused))),
            ("again".into(), earlier(None)),
        ]);
        let continues = ContinuedRun {
            run: id(1),
            outcome: None,
            cost_usd: None,
            units,
            unreconciled: BTreeMap::new(),
        };
        let planned = RunPlanned {
            continues: Some(continues),
            ..RunPlanned::default()
        };
        RunState {
            planned: Some(Arc::new(planned)),
            units: vec![
                unit("old", UnitStatus::Reused, &[]),
                unit("again", UnitStatus::Succeeded, &[None, Some(0.25)]),
                unit("new", UnitStatus::Queued, &[]),
                unit("waits", UnitStatus::Waiting, &[Some(1.0)]),
            ],
            ..RunState::default()
        }
    }

    #[test]
    fn reused_unit_refers_to_the_run_that_did_it() {
        let state = state();
        let before = PriorRunView::new(&state, id(2));
        assert_eq!(
            before.continues().cost_usd,
            Some(1.25),
            "the cost of run 1 is not part of run 2"
        );
        let past: Vec<_> = state
            .units
            .iter()
            .map(|unit| before.prior_unit(unit))
            .collect();
        assert_eq!((past[0].run, past[0].attempt), (id(1), 3));
        assert_eq!((past[1].run, past[1].attempt), (id(2), 2));
        assert_eq!(
            (past[2].outcome, past[3].outcome),
            (PriorOutcome::Pending, PriorOutcome::Failed("busy"))
        );
        assert!(past[..2].iter().all(|past| matches!(
            decide_reuse(past, Some(&content())),
            ReuseDecision::Reuse(_)
        )));
        assert!(
            past[2..]
                .iter()
                .all(|past| matches!(decide_reuse(past, Some(&content())), ReuseDecision::Run(_)))
        );
    }

    #[test]
    fn patch_is_carried_over_until_it_is_saved() {
        let mut state = state();
        let patch = |run: &str| Some(format!(".ktx/ingest-patches/{run}/0001.patch"));
        let written = PatchWritten {
            path: patch("2"),
            ..PatchWritten::default()
        };
        state.units[1].attempts[1].delivery.patch = Some(Arc::new(written));
        let mut planned = state.planned.as_deref().unwrap().clone();
        let earlier = planned
            .continues
            .as_mut()
            .unwrap()
            .units
            .get_mut("old")
            .unwrap();
        earlier.reused.as_mut().unwrap().pending_patch = patch("1");
        state.planned = Some(Arc::new(planned));
        let patches = |state: &RunState| {
            let before = PriorRunView::new(state, id(2));
            let patch = |unit: &UnitState| before.prior_unit(unit).patch.map(str::to_owned);
            (patch(&state.units[0]), patch(&state.units[1]))
        };
        assert_eq!(patches(&state), (patch("1"), patch("2")));
        let taken = PriorPatchIntegration {
            result: PatchResult::Accepted,
            verdict: None,
            is_saved: true,
            shared_writes: Arc::default(),
        };
        state
            .publication
            .prior_patches
            .insert("old".into(), taken.clone());
        state.units[1].attempts[1].delivery.is_saved = true;
        assert_eq!(patches(&state), (None, None));
        // The patch was rejected, so the unit must run again.
        let verdict = Verdict {
            outcome: AttemptOutcome::Failed,
            stop: StopReason::Natural,
            cause: VerdictCause::Conflict,
            reason: "conflict".into(),
            remedy: None,
        };
        let lost = PriorPatchIntegration {
            result: PatchResult::TextualConflict,
            verdict: Some(Arc::new(verdict)),
            is_saved: false,
            shared_writes: Arc::default(),
        };
        state.publication.prior_patches.insert("old".into(), lost);
        state.units[0].status = UnitStatus::Failed;
        assert_eq!(
            PriorRunView::new(&state, id(2))
                .prior_unit(&state.units[0])
                .outcome,
            PriorOutcome::Failed("conflict")
        );
    }

    #[test]
    fn attempts_and_costs_of_all_earlier_runs_add_up() {
        let state = state();
        let before = PriorRunView::new(&state, id(2));
        let sums = state
            .units
            .iter()
            .map(|unit| before.prior_unit_summary(unit));
        let sums: Vec<_> = sums
            .map(|sum| sum.map(|sum| (sum.run, sum.attempts, sum.cost_usd, sum.reused)))
            .collect();
        assert_eq!(sums[0], Some((id(1), 2, Some(0.5), None)));
        assert_eq!(sums[1], Some((id(2), 4, Some(0.75), None)));
        assert_eq!(sums[2], None, "it was never tried");
        assert_eq!(sums[3], Some((id(2), 1, Some(1.0), None)));
    }
}
