//! Runs whose attempts leave patches.

use std::collections::BTreeMap;

use super::{
    oracle::{input_for, moves},
    *,
};

pub(super) fn schedule(units: usize, settings: Settings) -> Schedule {
    Schedule::new(keys(units), Settings { integrates: true, ..settings })
}

pub(super) fn taken(results: &[(usize, u32, bool)]) -> Input {
    let one = |(n, attempt, ok): &(usize, u32, bool)| Taken {
        unit: key(*n),
        attempt: *attempt,
        verdict: (!ok).then(|| verdict(Outcome::Failed, Cause::Conflict)),
        changed: true,
    };
    together(results.iter().map(one).collect())
}

pub(super) fn together(results: Vec<Taken>) -> Input {
    Input::Integrated(Together { results, ok: true })
}

/// Putting together broke off after these.
pub(super) fn broken_off(results: &[(usize, u32, bool)]) -> Input {
    let Input::Integrated(Together { results, .. }) = taken(results) else { unreachable!() };
    Input::Integrated(Together { results, ok: false })
}

pub(super) fn retry(n: usize) -> Input {
    Input::RetryRequested { unit: key(n), amendment: None }
}

#[test]
fn patches_are_put_together_once_everything_has_settled() {
    let mut schedule = schedule(3, settings(3));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(2, 1, ok()),
            ended(1, 1, bad()),
            Input::Saved { ok: true },
            ended(0, 1, ok()),
            taken(&[(0, 1, true), (2, 1, false)]),
            taken(&[(0, 1, false)]),
            Input::Saved { ok: true },
            Input::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1 | start u2/1



    INTEGRATE u0/1 u2/1
    SAVE without [u1 u2]

    END partial succeeded=1 failed=2 stopped=0 not_run=0
    ");
}

#[test]
fn a_retry_after_the_end_makes_a_round_of_its_own() {
    let mut schedule = schedule(2, settings(2));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, ok()),
            ended(1, 1, ok()),
            taken(&[(0, 1, true), (1, 1, false)]),
            Input::Saved { ok: true },
            Input::RetryFailed,
            ended(1, 2, ok()),
            taken(&[(1, 2, true)]),
            Input::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1

    INTEGRATE u0/1 u1/1
    SAVE without [u1]
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    note u1/1: retry-requested 2 | start u1/2
    INTEGRATE u1/2
    SAVE without []
    END done succeeded=2 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn what_is_asked_for_while_patches_are_put_together_waits() {
    let mut schedule = schedule(2, settings(2));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, ok()),
            ended(1, 1, bad()),
            retry(1),
            taken(&[(0, 1, true)]),
            Input::Saved { ok: true },
            ended(1, 2, ok()),
            taken(&[(1, 2, true)]),
            Input::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1

    INTEGRATE u0/1
    note u1/1: retry-requested 2
    SAVE without [u1]
    start u1/2
    INTEGRATE u1/2
    SAVE without []
    END done succeeded=2 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn saving_again_needs_no_money() {
    let mut schedule = schedule(2, Settings { budget_usd: Some(0.5), ..settings(1) });
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            Input::Spent { usd: 0.6 },
            ended(0, 1, ok()),
            taken(&[(0, 1, true)]),
            Input::Saved { ok: false },
            Input::RetryFailed,
            taken(&[(0, 1, true)]),
            Input::Saved { ok: true },
        ],
    );
    assert!(told.contains("resume the run with a budget of its own\" | INTEGRATE u0/1\nSAVE"), "{told}");
    assert!(told.ends_with("END limit succeeded=1 failed=0 stopped=0 not_run=1"), "{told}");
}

#[test]
fn what_could_not_be_saved_is_tried_again_when_somebody_asks() {
    let mut schedule = schedule(1, settings(1));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, ok()),
            taken(&[(0, 1, true)]),
            Input::Saved { ok: false },
            Input::RetryFailed,
            taken(&[(0, 1, true)]),
            Input::Saved { ok: true },
            Input::RetryFailed,
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    INTEGRATE u0/1
    SAVE without []
    END error succeeded=1 failed=0 stopped=0 not_run=0 unsaved=1
    INTEGRATE u0/1
    SAVE without []
    END done succeeded=1 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn a_stop_saves_what_there_is_and_a_kill_does_not() {
    let stopped = || verdict(Outcome::Stopped, Cause::Cancelled);
    let mut stop = schedule(3, settings(2));
    let told = play(
        &mut stop,
        [
            Input::Begin,
            ended(0, 1, ok()),
            Input::StopAll,
            ended(1, 1, stopped()),
            ended(2, 1, stopped()),
            taken(&[(0, 1, true)]),
            Input::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1
    start u2/1
    note: stop-requested stop | stop u1/1 | stop u2/1

    INTEGRATE u0/1
    SAVE without [u1 u2]
    END stopped succeeded=1 failed=0 stopped=2 not_run=0
    "#);
    let mut kill = schedule(2, settings(2));
    let told = play(&mut kill, [Input::Begin, ended(0, 1, ok()), Input::KillAll, ended(1, 1, stopped())]);
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1

    note: stop-requested kill | kill u1/1
    note: said "1 patch is kept and not put on the branch: the run was killed" | END stopped succeeded=1 failed=0 stopped=1 not_run=0 unsaved=1
    "#);
}

#[test]
fn an_aborted_run_keeps_its_patches_for_the_retry_that_completes_it() {
    let mut schedule = schedule(2, Settings { failure_mode: FailureMode::Abort, ..settings(1) });
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, ok()),
            ended(1, 1, bad()),
            retry(1),
            ended(1, 2, ok()),
            taken(&[(0, 1, true), (1, 2, true)]),
            Input::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1
    start u1/1
    note: said "u1 failed, and the failure mode is abort: the run stops" | note: said "1 patch is kept and not put on the branch: a unit failed, and the failure mode is abort" | END error succeeded=1 failed=1 stopped=0 not_run=0 unsaved=1
    note u1/1: retry-requested 2 | start u1/2
    INTEGRATE u0/1 u1/2
    SAVE without []
    END done succeeded=2 failed=0 stopped=0 not_run=0
    "#);
}

/// A unit that is stopped before its attempt starts has that as its last word.
pub(super) fn stopped_in_the_queue(orders: &[Order], last: &mut BTreeMap<UnitKey, (u32, Outcome)>) {
    if let [Order::Note { lane: Some((unit, attempt)), note: Note::StopRequested { .. } }, rest @ ..] = orders
        && !rest.iter().any(|order| matches!(order, Order::Stop { .. }))
    {
        last.insert(unit.clone(), (*attempt, Outcome::Stopped));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens: only successes are put together, in plan order and each in one saved round at most; nothing
    /// runs meanwhile; and the run says what is not saved.
    #[test]
    fn every_success_is_saved_once(
        count in 0..6usize, slots in 1..4u32, steps in moves(), fates in prop::collection::vec(0..8u8, 1..40),
    ) {
        let mut schedule = schedule(count, settings(slots));
        let mut fates = fates.into_iter().cycle();
        let mut last: BTreeMap<UnitKey, (u32, Outcome)> = BTreeMap::new();
        let mut saved: BTreeMap<UnitKey, u32> = BTreeMap::new();
        let (mut round, mut taken_now) = (None, Vec::new());
        let mut steps = steps.iter();
        let mut input = Some(Input::Begin);
        while let Some(now) = input.take() {
            if let Input::Ended { unit, attempt, verdict, .. } = &now
                && schedule.in_flight().any(|flying| flying == (unit, *attempt)) {
                last.insert(unit.clone(), (*attempt, verdict.outcome));
            }
            let mut next = None;
            let orders = schedule.handle(now);
            stopped_in_the_queue(&orders, &mut last);
            for order in orders {
                match order {
                    Order::Integrate { units } => {
                        prop_assert!(!units.is_empty() && schedule.in_flight().next().is_none());
                        prop_assert!(units.is_sorted());
                        for (unit, attempt) in &units {
                            prop_assert_eq!(last.get(unit), Some(&(*attempt, Outcome::Succeeded)));
                            prop_assert_ne!(saved.get(unit), Some(attempt), "saved twice");
                        }
                        round = Some(units);
                    }
                    Order::Save { failed } => {
                        prop_assert!(failed.iter().all(|unit| last[unit].1 != Outcome::Succeeded));
                        let ok = fates.next() != Some(0);
                        if ok {
                            saved.extend(taken_now.drain(..));
                        }
                        next = Some(Input::Saved { ok });
                    }
                    Order::Start { unit, .. } => {
                        prop_assert!(round.is_none(), "{unit} starts while patches are put together");
                    }
                    Order::End(ended) => {
                        // Somebody killed it while patches were put together.
                        round = None;
                        let unsaved = last.iter().filter(|(unit, (attempt, outcome))| {
                            *outcome == Outcome::Succeeded && saved.get(*unit) != Some(attempt)
                        });
                        prop_assert_eq!(ended.unsaved as usize, unsaved.count());
                    }
                    Order::Project | Order::Stop { .. } | Order::SetTimer { .. } | Order::Note { .. } => {}
                }
            }
            if matches!(next, Some(Input::Saved { .. })) {
                round = None;
            } else if let Some(units) = &round {
                // People go on asking meanwhile.
                if let Some(asked) = steps.next().and_then(|step| input_for(&schedule, step)) {
                    stopped_in_the_queue(&schedule.handle(asked), &mut last);
                }
                taken_now.clear();
                let result = |(unit, attempt): &(UnitKey, u32)| {
                    let ok = fates.next() != Some(1);
                    if ok { taken_now.push((unit.clone(), *attempt)) } else { last.insert(unit.clone(), (*attempt, Outcome::Failed)); }
                    Taken { unit: unit.clone(), attempt: *attempt, verdict: (!ok).then(bad), changed: *attempt > 0 }
                };
                next = Some(together(units.iter().map(result).collect()));
            }
            input = next.or_else(|| steps.find_map(|step| input_for(&schedule, step)));
        }
    }
}
