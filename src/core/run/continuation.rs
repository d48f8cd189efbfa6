//! How runs continue each other: which results of a run later runs saved, replaced or left out. Pure.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::state::{RECONCILE_KEY, RunState, UnitState, UnitStatus};
use crate::tape::{RunId, UnitKey, note::PriorUnitSummary};

/// What one run did with the results of prior runs, and which of its results are in no commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunContinuation {
    /// The run that it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<RunId>,
    /// The results of prior runs that it was planned with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    results: Vec<ContinuedResult>,
    /// Its results that are in no commit, and those that it took over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending: Vec<UnitResult>,
    /// True if changes wait that are the result of no unit: derived sources, or commits under review.
    pub has_other_changes: bool,
    /// True if its review is finished and saved, or an earlier one with all sources.
    is_review_saved: bool,
    /// True if its own reconcile step is saved.
    is_step_saved: bool,
}

/// The result of a unit, named by the run that produced it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct UnitResult {
    run: RunId,
    unit: UnitKey,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ContinuedResult {
    #[serde(flatten)]
    result: UnitResult,
    status: ContinuedStatus,
}

/// What a run did with the result of a prior run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ContinuedStatus {
    /// It is saved, or a new result of the unit is.
    Saved,
    /// The run saved others without it: its unit is gone, its patch did not fit, or a reviewer sent it back.
    LeftOut,
    /// A reviewer sent it back, and its unit worked again. It waits until the new result is saved.
    SentBack,
    /// It waits as before, or until a new result of the unit is saved.
    Open,
}

impl RunContinuation {
    /// Derives what `run` did from its final state.
    pub fn from_state(run: RunId, state: &RunState) -> Self {
        let continues = state
            .planned
            .as_ref()
            .and_then(|planned| planned.continues.as_ref());
        let units: HashMap<&UnitKey, &UnitState> =
            state.units.iter().map(|unit| (&unit.key, unit)).collect();
        let mut results: Vec<ContinuedResult> = Vec::new();
        for (key, prior) in continues.into_iter().flat_map(|continues| &continues.units) {
            let status = continued_status(state, key, prior, units.get(key).copied());
            let result = UnitResult {
                run: prior.run,
                unit: key.clone(),
            };
            results.extend(status.map(|status| ContinuedResult { result, status }));
        }
        let publication = &state.publication;
        let finished = publication
            .unsaved_review()
            .filter(|review| review.is_finished);
        let sent_back = finished
            .map(|review| review.units_sent_back(|_| false))
            .unwrap_or_default();
        let is_pending = |unit: &&UnitState| {
            let works = !unit.status.is_finished() || unit.status == UnitStatus::Interrupted;
            state.is_unsaved(unit) || works && sent_back.iter().any(|(sent, _)| *sent == unit.key)
        };
        let pending = state.units.iter().filter(is_pending).map(|unit| {
            let prior = state
                .prior_unit_summary(&unit.key)
                .filter(|_| unit.attempts.is_empty());
            UnitResult {
                run: prior.map_or(run, |prior| prior.run),
                unit: unit.key.clone(),
            }
        });
        let has_sources = state
            .inputs
            .projected
            .iter()
            .any(|projected| projected.is_unsaved());
        Self {
            continues: continues.map(|continues| continues.run),
            results,
            pending: pending.collect(),
            has_other_changes: has_sources
                || publication.committed_run.is_some() && publication.unsaved_review().is_some(),
            is_review_saved: publication
                .review
                .as_ref()
                .is_some_and(|review| review.is_saved)
                || !publication.saves.is_empty() && !has_sources,
            is_step_saved: units
                .get(&UnitKey::from(RECONCILE_KEY))
                .is_some_and(|unit| is_saved(unit)),
        }
    }

    /// True if results of the earlier run `prior` wait in this run, too, or new ones that a reviewer asked for.
    pub fn shares_pending(&self, prior: &Self) -> bool {
        let pending: HashSet<&UnitResult> = prior.pending.iter().collect();
        let again = self
            .results
            .iter()
            .filter(|continued| continued.status == ContinuedStatus::SentBack);
        self.pending
            .iter()
            .chain(again.map(|continued| &continued.result))
            .any(|result| pending.contains(result))
    }

    /// The run that produced the result of `unit` that waits in this run.
    pub fn pending_producer(&self, unit: &UnitKey) -> Option<RunId> {
        self.pending
            .iter()
            .find(|pending| pending.unit == *unit)
            .map(|pending| pending.run)
    }

    /// True if it continues no run, and no run can continue it.
    pub fn is_empty(&self) -> bool {
        self.continues.is_none() && self.pending.is_empty() && !self.has_other_changes
    }
}

/// What the run did with the result `prior` of the unit `key`; `None` if that was on the branch before.
fn continued_status(
    state: &RunState,
    key: &UnitKey,
    prior: &PriorUnitSummary,
    unit: Option<&UnitState>,
) -> Option<ContinuedStatus> {
    let is_taken = prior.reused.is_some();
    let publication = &state.publication;
    let has_saved = !publication.saves.is_empty()
        || publication
            .review
            .as_ref()
            .is_some_and(|review| review.is_saved);
    let left_out = || {
        if has_saved {
            ContinuedStatus::LeftOut
        } else {
            ContinuedStatus::Open
        }
    };
    if prior
        .reused
        .as_ref()
        .is_some_and(|reused| reused.pending_patch.is_none())
    {
        return None;
    }
    Some(match (unit, publication.prior_patches.get(key)) {
        (Some(unit), _) if !unit.attempts.is_empty() => match unit.status {
            _ if is_saved(unit) => ContinuedStatus::Saved,
            UnitStatus::Failed | UnitStatus::Stopped if is_taken => left_out(),
            _ if is_taken => ContinuedStatus::SentBack,
            _ => ContinuedStatus::Open,
        },
        (_, Some(patch)) if patch.is_saved => ContinuedStatus::Saved,
        (_, Some(patch)) if !patch.result.keeps_success() => left_out(),
        (None, _) if is_taken && key.as_str() != RECONCILE_KEY => left_out(),
        _ => ContinuedStatus::Open,
    })
}

/// True if the last attempt of `unit` succeeded, and its changes, if any, are on the branch.
fn is_saved(unit: &UnitState) -> bool {
    matches!(
        unit.status,
        UnitStatus::Succeeded | UnitStatus::BudgetExhausted
    ) && unit
        .latest()
        .is_some_and(|attempt| attempt.delivery.is_saved)
}

/// The run that settled a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledResult {
    pub by: RunId,
    /// True if it is saved, or a newer result of its unit is.
    pub is_saved: bool,
}

/// The results that later runs settled. Runs are added from the newest to the oldest.
#[derive(Debug, Default)]
pub struct SettledResults {
    results: HashMap<UnitResult, SettledResult>,
    /// Runs whose reviews later runs finished.
    finished: HashMap<RunId, RunId>,
    /// Runs of which a later run saved a new reconcile step.
    steps: HashMap<RunId, RunId>,
    /// Results that runs replaced which do not continue theirs.
    superseded: HashSet<UnitResult>,
}

impl SettledResults {
    /// Adds what `run` did with the results of the runs that it `may_settle`.
    pub fn add(
        &mut self,
        run: RunId,
        continuation: &RunContinuation,
        may_settle: impl Fn(RunId) -> bool,
    ) {
        for continued in continuation
            .results
            .iter()
            .filter(|continued| may_settle(continued.result.run))
        {
            let own = UnitResult {
                run,
                unit: continued.result.unit.clone(),
            };
            let settled = match continued.status {
                ContinuedStatus::Saved => Some(SettledResult {
                    by: run,
                    is_saved: true,
                }),
                ContinuedStatus::LeftOut => Some(SettledResult {
                    by: run,
                    is_saved: false,
                }),
                ContinuedStatus::SentBack | ContinuedStatus::Open => None,
            };
            // A later run may have saved the new result.
            let Some(settled) = self.results.get(&own).copied().or(settled) else {
                continue;
            };
            let known = self
                .results
                .entry(continued.result.clone())
                .or_insert(settled);
            if settled.is_saved && !known.is_saved {
                *known = settled;
            }
        }
        let Some(before) = continuation.continues.filter(|before| may_settle(*before)) else {
            return;
        };
        let finished = if continuation.is_review_saved {
            Some(run)
        } else {
            self.finished_by(run)
        };
        if let Some(by) = finished {
            self.finished.entry(before).or_insert(by);
        }
        let step = match self.result(run, &RECONCILE_KEY.into()) {
            _ if continuation.is_step_saved => Some(run),
            Some(step) if step.is_saved => Some(step.by),
            _ => self.steps.get(&run).copied(),
        };
        if let Some(by) = step {
            self.steps.entry(before).or_insert(by);
        }
    }

    /// Adds that the later run `by` saved another result of `unit` than the one that `run` produced.
    pub fn add_superseded(&mut self, run: RunId, unit: UnitKey, by: RunId) {
        let settled = SettledResult { by, is_saved: true };
        let result = UnitResult { run, unit };
        self.superseded.insert(result.clone());
        let known = self.results.entry(result).or_insert(settled);
        if !known.is_saved {
            *known = settled;
        }
    }

    /// How a later run settled the result of `unit` that `run` produced.
    pub fn result(&self, run: RunId, unit: &UnitKey) -> Option<SettledResult> {
        self.results
            .get(&UnitResult {
                run,
                unit: unit.clone(),
            })
            .copied()
    }

    /// The later run that finished the review of `run` or of what it left.
    pub fn finished_by(&self, run: RunId) -> Option<RunId> {
        self.finished.get(&run).copied()
    }

    /// The later run that settled the last of everything that `run` left in no commit; `None` if something still waits.
    pub fn settled_by(&self, run: RunId, continuation: &RunContinuation) -> Option<RunId> {
        let finished = self.finished_by(run);
        let settled = self.settled(run, continuation);
        if settled.len() < continuation.pending.len() {
            return None;
        }
        match settled.into_values().map(|settled| settled.by).max() {
            Some(last) if !continuation.has_other_changes => Some(last),
            last => finished.map(|finished| last.map_or(finished, |last| last.max(finished))),
        }
    }

    /// How later runs settled the pending results of `run`, by unit.
    pub fn settled<'a>(
        &self,
        run: RunId,
        continuation: &'a RunContinuation,
    ) -> HashMap<&'a UnitKey, SettledResult> {
        let pending = continuation.pending.iter();
        let mut settled: HashMap<&UnitKey, SettledResult> = pending
            .filter_map(|pending| Some((&pending.unit, *self.results.get(pending)?)))
            .collect();
        // A step that reviewed nothing but results which are replaced has no subject left.
        let (steps, others): (Vec<_>, Vec<_>) = continuation
            .pending
            .iter()
            .partition(|pending| pending.unit.as_str() == RECONCILE_KEY);
        if let Some(by) = settled.values().map(|settled| settled.by).max()
            && others
                .iter()
                .all(|pending| self.superseded.contains(*pending))
        {
            settled.extend(
                steps
                    .into_iter()
                    .map(|step| (&step.unit, SettledResult { by, is_saved: true })),
            );
        }
        // A new reconcile step replaces the one that reviewed the same results, not one that reviewed others.
        let mut open = continuation
            .pending
            .iter()
            .filter(|pending| !settled.contains_key(&pending.unit));
        if let (Some(step), None, Some(by)) = (open.next(), open.next(), self.steps.get(&run))
            && step.unit.as_str() == RECONCILE_KEY
            && !settled.is_empty()
            && settled.values().all(|settled| settled.by == *by)
        {
            settled.insert(
                &step.unit,
                SettledResult {
                    by: *by,
                    is_saved: true,
                },
            );
        }
        settled
    }
}

/// The runs that continue what the runs `kept` left for a review: without them, settled results would wait again. `runs`
/// are all runs, from the oldest to the newest.
pub fn runs_continuing<'a>(
    runs: impl Iterator<Item = (RunId, &'a RunContinuation)>,
    is_kept: impl Fn(RunId) -> bool,
) -> Vec<RunId> {
    let (mut found, mut chain) = (Vec::new(), HashSet::new());
    let mut pending: HashSet<UnitResult> = HashSet::new();
    for (run, continuation) in runs {
        let continued: Vec<UnitResult> = continuation
            .results
            .iter()
            .map(|it| &it.result)
            .filter(|it| pending.contains(*it))
            .cloned()
            .collect();
        if !continued.is_empty()
            || continuation
                .continues
                .is_some_and(|before| chain.contains(&before))
        {
            found.push(run);
            chain.insert(run);
            // The result of the unit in this run may be the one that is saved.
            pending.extend(
                continued
                    .into_iter()
                    .map(|result| UnitResult { run, ..result }),
            );
        } else if is_kept(run)
            && (!continuation.pending.is_empty() || continuation.has_other_changes)
        {
            chain.insert(run);
        }
        if chain.contains(&run) {
            pending.extend(continuation.pending.iter().cloned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use crate::{
        run::{
            review::ReviewState,
            state::{AttemptDelivery, AttemptState, PriorPatchIntegration},
        },
        tape::note::{
            AttemptOutput, ContinuedRun, PatchResult, PatchWritten, ReusedSuccess, RunPlanned,
        },
    };

    fn id(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    fn result(run: u128, unit: &str) -> UnitResult {
        UnitResult {
            run: id(run),
            unit: unit.into(),
        }
    }

    /// A run that waits with these results.
    fn waiting(results: &[(u128, &str)]) -> RunContinuation {
        let pending = results
            .iter()
            .map(|(run, unit)| result(*run, unit))
            .collect();
        RunContinuation {
            pending,
            ..RunContinuation::default()
        }
    }

    /// A run that continues the run `before`, and whose review is saved.
    fn continuing(before: u128, results: &[(u128, &str, ContinuedStatus)]) -> RunContinuation {
        let results = results.iter().map(|(run, unit, status)| ContinuedResult {
            result: result(*run, unit),
            status: *status,
        });
        RunContinuation {
            continues: Some(id(before)),
            results: results.collect(),
            is_review_saved: true,
            ..RunContinuation::default()
        }
    }

    /// The results that these runs settled, from the newest to the oldest.
    fn settled(runs: &[(u128, &RunContinuation)]) -> SettledResults {
        let mut settled = SettledResults::default();
        runs.iter()
            .for_each(|(run, continuation)| settled.add(id(*run), continuation, |_| true));
        settled
    }

    #[test]
    fn review_waits_until_later_runs_settled_each_result() {
        use ContinuedStatus::{LeftOut, Open, Saved};
        let first = waiting(&[(1, "a"), (1, "b")]);
        let by = |runs: &[(u128, &RunContinuation)]| settled(runs).settled_by(id(1), &first);
        let only_a = continuing(1, &[(1, "a", Saved)]);
        assert_eq!(by(&[]), None);
        assert_eq!(by(&[(2, &only_a)]), None, "nothing is known about `b`");
        assert_eq!(
            by(&[(3, &continuing(1, &[(1, "b", LeftOut)])), (2, &only_a)]),
            Some(id(3))
        );
        assert_eq!(
            by(&[(3, &continuing(1, &[(1, "b", Open)])), (2, &only_a)]),
            None
        );
        let elsewhere = continuing(1, &[(1, "a", Saved), (9, "b", Saved)]);
        assert_eq!(by(&[(2, &elsewhere)]), None, "`b` of another run");
    }

    #[test]
    fn result_is_replaced_once_the_new_one_is_saved() {
        use ContinuedStatus::{LeftOut, Open, Saved};
        // Run 2 makes the result of `a` again, and run 3 saves it or leaves it out.
        let again = RunContinuation {
            is_review_saved: false,
            ..continuing(1, &[(1, "a", Open)])
        };
        let of_first = |status| {
            let later = continuing(2, &[(2, "a", status)]);
            settled(&[(3, &later), (2, &again)]).result(id(1), &"a".into())
        };
        assert_eq!(
            of_first(Saved),
            Some(SettledResult {
                by: id(3),
                is_saved: true
            })
        );
        assert_eq!(
            of_first(LeftOut),
            Some(SettledResult {
                by: id(3),
                is_saved: false
            })
        );
        assert_eq!(of_first(Open), None);
        let (left, saved) = (
            continuing(1, &[(1, "a", LeftOut)]),
            continuing(1, &[(1, "a", Saved)]),
        );
        let both = settled(&[(3, &left), (2, &saved)]).result(id(1), &"a".into());
        assert_eq!(
            both,
            Some(SettledResult {
                by: id(2),
                is_saved: true
            }),
            "a saved patch is not applied again"
        );
    }

    #[test]
    fn sources_and_commits_are_settled_with_the_review() {
        let sources = RunContinuation {
            has_other_changes: true,
            ..waiting(&[(1, "a")])
        };
        let saved = continuing(1, &[(1, "a", ContinuedStatus::Saved)]);
        let cut_off = RunContinuation {
            is_review_saved: false,
            ..saved.clone()
        };
        let by = |run: u128, of: &RunContinuation, later: &RunContinuation| {
            settled(&[(3, later), (2, &continuing(1, &[]))]).settled_by(id(run), of)
        };
        assert_eq!(settled(&[(2, &cut_off)]).settled_by(id(1), &sources), None);
        assert_eq!(
            settled(&[(2, &saved)]).settled_by(id(1), &sources),
            Some(id(2))
        );
        // A review of commits leaves no results. Run 3 continues run 2, which continues run 1.
        assert_eq!(by(1, &waiting(&[]), &continuing(2, &[])), Some(id(2)));
        assert_eq!(
            settled(&[(2, &cut_off)]).settled_by(id(1), &waiting(&[])),
            None
        );
    }

    #[test]
    fn runs_that_continue_a_waiting_run_are_kept_with_it() {
        use ContinuedStatus::{Open, Saved};
        let (first, other) = (waiting(&[(1, "a")]), waiting(&[(2, "b")]));
        // Run 3 makes `a` again, and run 5 saves it; run 4 saves `b`.
        let (again, of_other, last) = (
            continuing(1, &[(1, "a", Open)]),
            continuing(2, &[(2, "b", Saved)]),
            continuing(9, &[(3, "a", Saved)]),
        );
        let all = [
            (1, &first),
            (2, &other),
            (3, &again),
            (4, &of_other),
            (5, &last),
        ];
        let found = |kept: u128| {
            runs_continuing(all.into_iter().map(|(run, it)| (id(run), it)), |run| {
                run == id(kept)
            })
        };
        assert_eq!((found(1), found(2)), (vec![id(3), id(5)], vec![id(4)]));
        assert_eq!(
            (found(3), found(8)),
            (vec![], vec![]),
            "a run without results that wait"
        );
    }

    #[test]
    fn record_from_elsewhere_settles_nothing_of_this_installation() {
        let first = waiting(&[(1, "a")]);
        let mut settled = SettledResults::default();
        settled.add(
            id(2),
            &continuing(1, &[(1, "a", ContinuedStatus::Saved)]),
            |run| run != id(1),
        );
        assert_eq!(
            (
                settled.settled_by(id(1), &first),
                settled.result(id(1), &"a".into())
            ),
            (None, None)
        );
    }

    /// Run 2, which continues run 1 with the unit `a`: `reused` is its patch there.
    fn state(reused: Option<&str>, unit: Option<UnitState>) -> RunState {
        let reused = reused.map(|patch| ReusedSuccess {
            attempt: 1,
            is_budget_exhausted: false,
            content: Default::default(),
            pending_patch: Some(patch.to_owned()),
            output: AttemptOutput::default(),
        });
        let prior = PriorUnitSummary {
            run: id(1),
            attempts: 1,
            cost_usd: None,
            reused,
        };
        let units = BTreeMap::from([("a".into(), prior)]);
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
            units: unit.into_iter().collect(),
            ..RunState::default()
        }
    }

    fn unit(status: UnitStatus, attempt: Option<AttemptState>) -> Option<UnitState> {
        let attempts = attempt.into_iter().collect();
        Some(UnitState {
            key: "a".into(),
            planned: None,
            status,
            attempts,
            retry_at: None,
            hold_mode: Default::default(),
        })
    }

    /// An attempt with this patch, which is saved or not.
    fn attempt_with(patch: Option<&str>, is_saved: bool) -> Option<AttemptState> {
        let written = PatchWritten {
            path: patch.map(str::to_owned),
            ..PatchWritten::default()
        };
        let delivery = AttemptDelivery {
            patch: Some(Arc::new(written)),
            is_saved,
            ..AttemptDelivery::default()
        };
        Some(AttemptState {
            delivery,
            ..AttemptState::default()
        })
    }

    fn attempt(is_saved: bool) -> Option<AttemptState> {
        attempt_with(Some("2.patch"), is_saved)
    }

    /// The state after changes were saved.
    fn after_save(mut state: RunState) -> RunState {
        let review = ReviewState {
            is_saved: true,
            ..ReviewState::default()
        };
        state.publication.review = Some(review.into());
        state
    }

    #[test]
    fn status_of_a_result_follows_from_its_unit() {
        use ContinuedStatus::{LeftOut, Open, Saved, SentBack};
        let found = |state: &RunState| {
            let of_run = RunContinuation::from_state(id(2), state);
            let of_unit = of_run
                .results
                .iter()
                .find(|continued| continued.result == result(1, "a"));
            (of_unit.map(|continued| continued.status), of_run.pending)
        };
        let patch = Some("1.patch");
        assert_eq!(
            found(&state(patch, None)),
            (Some(Open), vec![]),
            "nothing is saved without it yet"
        );
        assert_eq!(
            found(&after_save(state(patch, None))).0,
            Some(LeftOut),
            "it is no longer in the plan"
        );
        let reused = |integration: Option<(PatchResult, bool)>| {
            let mut state = state(patch, unit(UnitStatus::Reused, None));
            if let Some((result, is_saved)) = integration {
                let shared_writes = Arc::default();
                let taken = PriorPatchIntegration {
                    result,
                    verdict: None,
                    is_saved,
                    shared_writes,
                };
                state.publication.prior_patches.insert("a".into(), taken);
            }
            (found(&state), found(&after_save(state)).0)
        };
        let waiting = || (Some(Open), vec![result(1, "a")]);
        assert_eq!(reused(None).0, waiting());
        assert_eq!(reused(Some((PatchResult::Accepted, false))).0, waiting());
        assert_eq!(
            reused(Some((PatchResult::Accepted, true))).0,
            (Some(Saved), vec![])
        );
        let (before, after) = reused(Some((PatchResult::TextualConflict, false)));
        assert_eq!((before.0, after), (Some(Open), Some(LeftOut)));
        for (taken, status, attempt, expected) in [
            (None, UnitStatus::Succeeded, attempt(true), Saved),
            (None, UnitStatus::Succeeded, attempt(false), Open),
            (None, UnitStatus::Failed, attempt(false), Open),
            (patch, UnitStatus::Succeeded, attempt(true), Saved),
            (None, UnitStatus::Succeeded, attempt_with(None, false), Open),
            (None, UnitStatus::Succeeded, attempt_with(None, true), Saved),
            (patch, UnitStatus::Failed, attempt(false), Open),
            (patch, UnitStatus::Interrupted, attempt(false), SentBack),
            (patch, UnitStatus::Succeeded, attempt(false), SentBack),
        ] {
            assert_eq!(
                found(&state(taken, unit(status, attempt))).0,
                Some(expected),
                "{status:?} {taken:?}"
            );
        }
        let failed = after_save(state(patch, unit(UnitStatus::Failed, attempt(false))));
        assert_eq!(
            found(&failed).0,
            Some(LeftOut),
            "a reviewer sent it back, and the others are saved"
        );
    }

    #[test]
    fn new_reconcile_step_replaces_one_about_the_same_results() {
        let first = waiting(&[(1, "a"), (1, RECONCILE_KEY)]);
        let step = |results: &[(u128, &str, ContinuedStatus)]| {
            let later = RunContinuation {
                is_step_saved: true,
                ..continuing(1, results)
            };
            settled(&[(2, &later)])
                .settled(id(1), &first)
                .into_keys()
                .cloned()
                .collect::<HashSet<UnitKey>>()
        };
        assert_eq!(step(&[]), HashSet::new(), "it did not see `a`");
        let both = HashSet::from(["a".into(), RECONCILE_KEY.into()]);
        assert_eq!(step(&[(1, "a", ContinuedStatus::Saved)]), both);
        // Run 3 makes a step without `a`.
        let other = RunContinuation {
            is_step_saved: true,
            ..continuing(1, &[])
        };
        let saved = continuing(1, &[(1, "a", ContinuedStatus::Saved)]);
        let found = settled(&[(3, &other), (2, &saved)]).settled_by(id(1), &first);
        assert_eq!(found, None, "the step that saw `a` waits");
        // Run 2 waits, and run 3 saves what it made.
        let waits = RunContinuation {
            is_review_saved: false,
            ..continuing(1, &[(1, "a", ContinuedStatus::Open)])
        };
        let saves = [
            (1, "a", ContinuedStatus::Saved),
            (2, RECONCILE_KEY, ContinuedStatus::Saved),
        ];
        assert_eq!(
            settled(&[(3, &continuing(2, &saves)), (2, &waits)]).settled_by(id(1), &first),
            Some(id(3))
        );
        let without = continuing(1, &[(1, "a", ContinuedStatus::Saved)]);
        assert_eq!(
            settled(&[(2, &without)]).settled_by(id(1), &first),
            None,
            "the step waits"
        );
        let is_step_saved = |status, attempt| {
            let mut state = state(None, unit(status, attempt));
            state.units[0].key = RECONCILE_KEY.into();
            RunContinuation::from_state(id(2), &state).is_step_saved
        };
        assert!(is_step_saved(UnitStatus::Succeeded, attempt(true)));
        assert!(
            !is_step_saved(UnitStatus::Succeeded, attempt(false))
                && !is_step_saved(UnitStatus::Queued, None)
        );
    }

    #[test]
    fn results_that_another_run_replaced_wait_no_longer() {
        let first = waiting(&[(1, "a"), (1, "b"), (1, RECONCILE_KEY)]);
        let mut settled = SettledResults::default();
        settled.add_superseded(id(1), "a".into(), id(3));
        assert_eq!(
            settled.settled_by(id(1), &first),
            None,
            "`b` waits, and the step that reviewed it"
        );
        assert_eq!(settled.settled(id(1), &first).len(), 1);
        settled.add_superseded(id(1), "b".into(), id(4));
        assert_eq!(settled.settled_by(id(1), &first), Some(id(4)));
        assert_eq!(
            (
                first.pending_producer(&"b".into()),
                first.pending_producer(&"c".into())
            ),
            (Some(id(1)), None)
        );
        let only_step = waiting(&[(1, RECONCILE_KEY)]);
        assert_eq!(
            SettledResults::default().settled_by(id(1), &only_step),
            None
        );
    }

    #[test]
    fn only_runs_with_the_same_results_share_a_review() {
        let (first, other) = (waiting(&[(1, "a"), (1, "b")]), waiting(&[(1, "b")]));
        assert!(first.shares_pending(&other) && other.shares_pending(&first));
        assert!(
            !first.shares_pending(&waiting(&[(2, "a")])) && !first.shares_pending(&waiting(&[]))
        );
        let sent_back = continuing(1, &[(1, "a", ContinuedStatus::SentBack)]);
        let made_again = continuing(1, &[(1, "a", ContinuedStatus::Open)]);
        assert!(sent_back.shares_pending(&first) && !made_again.shares_pending(&first));
    }
}
