//! The pass after the units: when it runs, what its fate means, and what it may cost.

use std::collections::BTreeMap;

use super::{
    oracle::{input_for, moves},
    settle::{broken_off, retry, schedule, stopped_in_the_queue, taken, together},
    *,
};

/// A run of two units with a pass, `u9`, over what they wrote; something is `due` for it whatever they do.
fn passing(due: bool) -> Schedule {
    with(due, settings(2))
}

fn with(due: bool, settings: Settings) -> Schedule {
    schedule(2, settings).reconciling(key(9), due)
}

/// Both units have succeeded and written something.
fn written() -> Vec<Input> {
    vec![Input::Begin, ended(0, 1, ok()), ended(1, 1, ok()), taken(&[(0, 1, true), (1, 1, true)])]
}

/// What the last of `inputs` leads to.
fn last(schedule: &mut Schedule, inputs: impl IntoIterator<Item = Input>) -> String {
    play(schedule, inputs).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn one_more_unit_looks_at_what_was_put_together() {
    let units = [Input::Begin, ended(0, 1, ok()), ended(1, 1, ok()), taken(&[(0, 1, true), (1, 1, false)])];
    let good = [ended(9, 1, ok()), taken(&[(9, 1, true)]), Input::Saved { ok: true }];
    let told = play(&mut passing(false), units.clone().into_iter().chain(good));
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1

    INTEGRATE u0/1 u1/1
    start u9/1
    INTEGRATE u9/1
    SAVE without [u1]
    END partial succeeded=2 failed=1 stopped=0 not_run=0
    ");
    // Its failure costs its own changes only, and a person may ask for it again.
    let mut schedule = passing(false);
    let bad = [ended(9, 1, bad()), Input::Saved { ok: true }, retry(9), together(vec![]), ended(9, 2, ok())];
    let again = [taken(&[(9, 2, true)]), Input::Saved { ok: true }];
    let told = play(&mut schedule, units.clone().into_iter().chain(bad).chain(again));
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1

    INTEGRATE u0/1 u1/1
    start u9/1
    SAVE without [u1]
    END partial succeeded=1 failed=2 stopped=0 not_run=0
    note u9/1: retry-requested 2 | INTEGRATE 
    start u9/2
    INTEGRATE u9/2
    SAVE without [u1]
    END partial succeeded=2 failed=1 stopped=0 not_run=0
    ");
    // Whoever asks for another try of a unit waits for the end of it, and the whole is looked at once more.
    let mut schedule = passing(false);
    let asked = [retry(1), ended(9, 1, ok()), taken(&[(9, 1, true)]), Input::Saved { ok: true }, ended(1, 2, ok())];
    let told = play(&mut schedule, units.into_iter().chain(asked).chain([taken(&[(1, 2, true)])]));
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1

    INTEGRATE u0/1 u1/1
    start u9/1
    note u1/1: retry-requested 2
    INTEGRATE u9/1
    SAVE without [u1]
    start u1/2
    INTEGRATE u1/2
    start u9/2
    ");
}

#[test]
fn the_pass_is_left_out_where_there_is_nothing_for_it() {
    let nothing = Taken { unit: key(0), attempt: 1, verdict: None, changed: false };
    let idle = || [Input::Begin, ended(0, 1, ok()), ended(1, 1, bad())];
    let integrated = together(vec![nothing.clone()]);
    let told = play(&mut passing(false), idle().into_iter().chain([integrated.clone(), Input::Saved { ok: true }]));
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1

    INTEGRATE u0/1
    note: said "not reconciled: nothing was written, and no raw file is gone" | SAVE without [u1]
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    "#);
    let told = play(&mut passing(true), idle().into_iter().chain([integrated]));
    assert!(told.ends_with("start u9/1"), "a raw file that is gone is reason enough: {told}");
}

#[test]
fn a_pass_that_is_due_runs_without_any_unit() {
    let mut nobody = Schedule::new(Vec::new(), Settings { integrates: true, ..settings(1) }).reconciling(key(9), true);
    let told = play(
        &mut nobody,
        [Input::Begin, together(vec![]), ended(9, 1, ok()), taken(&[(9, 1, true)]), Input::Saved { ok: true }],
    );
    insta::assert_snapshot!(told, @r"
    INTEGRATE 
    start u9/1
    INTEGRATE u9/1
    SAVE without []
    END done succeeded=1 failed=0 stopped=0 not_run=0
    ");
    // Whatever becomes of the units, as long as nobody wants the run to end.
    let failed = [Input::Begin, ended(0, 1, bad()), ended(1, 1, bad())];
    assert_eq!(last(&mut passing(true), failed), "INTEGRATE ");
    assert!(last(&mut with(true, settings(1)), [Input::Begin, Input::Drain, ended(0, 1, bad())]).contains("END"));
    // Where nothing is put together there is no pass.
    let mut overlay = Schedule::new(keys(1), settings(1)).reconciling(key(9), true);
    assert!(last(&mut overlay, [Input::Begin, ended(0, 1, ok())]).starts_with("END done"));
}

#[test]
fn stopping_during_the_pass_saves_what_the_units_wrote_and_killing_keeps_it_in_patches() {
    let stopped = verdict(Outcome::Stopped, Cause::Cancelled);
    let told = last(&mut passing(false), written().into_iter().chain([Input::StopAll, ended(9, 1, stopped.clone())]));
    assert_eq!(told, "SAVE without []");
    let told = last(&mut passing(false), written().into_iter().chain([Input::KillAll, ended(9, 1, stopped)]));
    assert!(told.contains("2 patches are kept and not put on the branch: the run was killed"), "{told}");
    // A limit in the pass is waited for like any other.
    let waits = [ended(9, 1, busy()), Input::TimerFired(TimerId(0))];
    assert_eq!(last(&mut passing(false), written().into_iter().chain(waits)), "start u9/2");
}

#[test]
fn a_kill_while_patches_are_put_together_keeps_them() {
    let both = || taken(&[(0, 1, true), (1, 1, true)]);
    let killed = [Input::Begin, ended(0, 1, ok()), ended(1, 1, ok()), Input::KillAll, both()];
    let mut schedule = passing(false);
    insta::assert_snapshot!(last(&mut schedule, killed), @r#"note: said "2 patches are kept and not put on the branch: the run was killed" | END error succeeded=2 failed=0 stopped=0 not_run=0 unsaved=2"#);
    assert!(last(&mut schedule, [Input::RetryFailed, both()]).contains("start u9/1"), "until somebody wants them");
    let pass = [ended(9, 1, ok()), Input::KillAll, taken(&[(9, 1, true)])];
    let told = last(&mut schedule, pass);
    assert!(told.contains("3 patches are kept") && told.contains("unsaved=3"), "{told}");
}

/// The disk is full, a patch is gone: nothing of the round is there to be looked at or saved.
#[test]
fn what_breaks_off_is_not_looked_at_and_stays_unsaved() {
    for due in [false, true] {
        let mut schedule = passing(due);
        let units = [Input::Begin, ended(0, 1, ok()), ended(1, 1, ok())];
        let told = last(&mut schedule, units.into_iter().chain([broken_off(&[(0, 1, true)])]));
        assert_eq!(told, "SAVE without []", "which says why");
        let told = last(&mut schedule, [Input::Saved { ok: false }]);
        assert!(told.starts_with("END error succeeded=2 failed=0") && told.ends_with("unsaved=2"), "{told}");
        let again = [Input::RetryFailed, taken(&[(0, 1, true), (1, 1, true)]), ended(9, 1, bad())];
        assert_eq!(last(&mut schedule, again), "SAVE without []");
        assert!(!last(&mut schedule, [Input::Saved { ok: true }]).contains("unsaved"));
    }
    // Not even a shell that saves all the same makes more of it than there was.
    let units = [Input::Begin, ended(0, 1, ok()), ended(1, 1, ok())];
    let saved = [broken_off(&[(0, 1, true)]), Input::Saved { ok: true }];
    assert!(last(&mut passing(false), units.into_iter().chain(saved)).ends_with("unsaved=1"));
    // The patch of the pass likewise.
    let mut schedule = passing(false);
    let pass = [ended(9, 1, ok()), broken_off(&[]), Input::Saved { ok: false }];
    assert!(last(&mut schedule, written().into_iter().chain(pass)).ends_with("unsaved=3"));
    assert_eq!(last(&mut schedule, [Input::RetryFailed]), "INTEGRATE u0/1 u1/1 u9/1");
}

#[test]
fn a_pass_that_is_asked_for_again_waits_for_the_units() {
    let mut schedule = passing(false);
    let first = [Input::Begin, ended(0, 1, ok()), ended(1, 1, bad()), taken(&[(0, 1, true)]), ended(9, 1, bad())];
    play(&mut schedule, first.into_iter().chain([Input::Saved { ok: true }]));
    let again = [
        Input::RetryFailed,
        Input::RetryFailed,
        ended(1, 2, bad()),
        together(vec![]),
        ended(9, 2, ok()),
        taken(&[(9, 2, true)]),
        Input::Saved { ok: true },
    ];
    insta::assert_snapshot!(play(&mut schedule, again), @r"
    note u1/1: retry-requested 2 | note u9/1: retry-requested 2 | start u1/2

    INTEGRATE 
    start u9/2
    INTEGRATE u9/2
    SAVE without [u1]
    END partial succeeded=2 failed=1 stopped=0 not_run=0
    ");
    // Alone, it can be called back before it starts.
    let asked = [retry(1), retry(9), Input::StopRequested { unit: key(9) }, ended(1, 3, bad())];
    insta::assert_snapshot!(play(&mut schedule, asked), @r"
    note u1/2: retry-requested 3 | start u1/3
    note u9/2: retry-requested 3
    note u9/2: stop-requested stop
    END partial succeeded=1 failed=1 stopped=1 not_run=0
    ");
    // While the patch of the one before is put together, the next one is a round of its own.
    let mut schedule = passing(false);
    play(&mut schedule, written().into_iter().chain([ended(9, 1, ok()), retry(9), taken(&[(9, 1, true)])]));
    assert_eq!(last(&mut schedule, [Input::Saved { ok: true }]), "INTEGRATE ");
    assert_eq!(last(&mut schedule, [together(vec![])]), "start u9/2");
}

#[test]
fn what_the_pass_made_of_other_patches_is_not_put_on_new_ones() {
    let mut schedule = passing(false);
    let unsaved = [ended(9, 1, ok()), taken(&[(9, 1, true)]), Input::Saved { ok: false }];
    play(&mut schedule, written().into_iter().chain(unsaved));
    let again = [retry(0), ended(0, 2, ok()), taken(&[(0, 2, true), (1, 1, true)])];
    insta::assert_snapshot!(play(&mut schedule, again), @r"
    note u0/1: retry-requested 2 | start u0/2
    INTEGRATE u0/2 u1/1
    start u9/2
    ");
    // Withdrawn before it starts, it has not succeeded.
    let mut schedule = passing(false);
    let saved = [ended(9, 1, ok()), taken(&[(9, 1, true)]), Input::Saved { ok: true }];
    play(&mut schedule, written().into_iter().chain(saved));
    let limit = [retry(0), rejected(0, Some(60_000)), ended(0, 2, ok()), taken(&[(0, 2, true)])];
    play(&mut schedule, limit);
    assert!(last(&mut schedule, [Input::Drain]).ends_with("SAVE without []"));
}

#[test]
fn a_pass_that_fails_is_no_failure_of_the_run() {
    let abort = Settings { failure_mode: FailureMode::Abort, ..settings(2) };
    let fails = |cause: Cause| [ended(9, 1, verdict(Outcome::Failed, cause)), Input::Saved { ok: true }];
    let told = play(&mut with(false, abort), written().into_iter().chain(fails(Cause::ToolFailures)));
    assert!(told.ends_with("SAVE without []\nEND partial succeeded=2 failed=1 stopped=0 not_run=0"), "{told}");
    // Its model is its own.
    let told = last(&mut passing(false), written().into_iter().chain(fails(Cause::Model)));
    assert_eq!(told, "END partial succeeded=2 failed=1 stopped=0 not_run=0");
    let told = last(&mut passing(false), written().into_iter().chain(fails(Cause::Auth)));
    assert!(told.starts_with("END unusable"), "the login is everybody's: {told}");
}

#[test]
fn a_run_that_ends_before_its_pass_is_not_done() {
    let mut schedule = with(false, settings(1));
    let drained = [Input::Begin, ended(0, 1, ok()), Input::Drain, ended(1, 1, ok())];
    let told = play(&mut schedule, drained.into_iter().chain([taken(&[(0, 1, true), (1, 1, true)])]));
    assert!(told.ends_with("note: said \"not reconciled: the run is ending\" | SAVE without []"), "{told}");
    let told = last(&mut schedule, [Input::Saved { ok: true }]);
    assert_eq!(told, "END stopped succeeded=2 failed=0 stopped=0 not_run=1");
    // It is what there is to try again.
    insta::assert_snapshot!(play(&mut schedule, [Input::RetryFailed, together(vec![])]), @r"
    note u9/0: retry-requested 1 | INTEGRATE 
    start u9/1
    ");
}

#[test]
fn a_budget_that_is_spent_has_no_room_for_the_pass() {
    let budget = Settings { budget_usd: Some(0.5), ..settings(2) };
    let spent = || Input::Spent { usd: 0.61 };
    let mut schedule = with(false, budget);
    let units = [Input::Begin, ended(0, 1, ok()), spent(), ended(1, 1, ok()), taken(&[(0, 1, true), (1, 1, true)])];
    let told = play(&mut schedule, units.into_iter().chain([Input::Saved { ok: true }, Input::RetryFailed]));
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1


    INTEGRATE u0/1 u1/1
    note: said "not reconciled: the run's budget of $0.50 is spent ($0.61): nothing more starts; the run can be resumed" | SAVE without []
    END limit succeeded=2 failed=0 stopped=0 not_run=1
    note: said "the run's budget of $0.50 is spent ($0.61): nothing more starts; resume the run with a budget of its own"
    "#);
    // Nor for another try of it.
    let mut schedule = with(false, budget);
    let tries = [ended(9, 1, busy()), spent(), Input::TimerFired(TimerId(0)), Input::Saved { ok: true }];
    insta::assert_snapshot!(play(&mut schedule, written().into_iter().chain(tries)), @r#"
    start u0/1 | start u1/1

    INTEGRATE u0/1 u1/1
    start u9/1
    note u9/1: retry-scheduled 2 1000ms | timer 0 1000ms

    note: said "not reconciled: the run's budget of $0.50 is spent ($0.61): nothing more starts; the run can be resumed" | SAVE without []
    END limit succeeded=2 failed=1 stopped=0 not_run=0
    "#);
    // Nor for one that has nothing but what was there before.
    let mut schedule = with(true, budget);
    let told = last(&mut schedule, [Input::Begin, ended(0, 1, bad()), spent(), ended(1, 1, bad())]);
    assert!(told.starts_with("note: said \"not reconciled: the run's budget of $0.50 is spent ($0.61)"), "{told}");
    assert!(told.ends_with("END limit succeeded=0 failed=2 stopped=0 not_run=1"), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens, to the pass too: units start outside of rounds and the pass inside of one that holds, never on a
    /// run that ends; nothing counts as saved that was not put together and saved; and no round leads to the next one by
    /// itself for ever.
    #[test]
    fn the_pass_keeps_to_its_round(
        count in 0..5usize, slots in 1..4u32, due in any::<bool>(), steps in moves(),
        fates in prop::collection::vec(0..8u8, 1..40),
    ) {
        let mut schedule = schedule(count, settings(slots)).reconciling(key(9), due);
        let mut fates = fates.into_iter().cycle();
        let mut last: BTreeMap<UnitKey, (u32, Outcome)> = BTreeMap::new();
        let (mut saved, mut held) = (BTreeMap::new(), Vec::new());
        let (mut steps, mut replies) = (steps.iter(), 0);
        let mut input = Some(Input::Begin);
        while let Some(now) = input.take() {
            if let Input::Ended { unit, attempt, verdict, .. } = &now
                && schedule.in_flight().any(|flying| flying == (unit, *attempt)) {
                last.insert(unit.clone(), (*attempt, verdict.outcome));
            }
            let is_begun = |stage: Stage| matches!(stage, Stage::Integrating | Stage::Reconciling | Stage::Saving);
            let orders = schedule.handle(now);
            stopped_in_the_queue(&orders, &mut last);
            for order in orders {
                match order {
                    Order::Integrate { units } => {
                        if !matches!(&units[..], [(unit, _)] if *unit == key(9)) {
                            held.clear();
                        }
                        let broken = fates.next() == Some(0);
                        let mut results = Vec::new();
                        for (unit, attempt) in units {
                            let ok = fates.next() != Some(1);
                            if ok { held.push((unit.clone(), attempt)) } else { last.insert(unit.clone(), (attempt, Outcome::Failed)); }
                            results.push(Taken { unit, attempt, verdict: (!ok).then(bad), changed: fates.next() != Some(2) });
                        }
                        input = Some(Input::Integrated(Together { results, ok: !broken }));
                        if broken {
                            held.clear();
                        }
                    }
                    Order::Save { .. } => {
                        let ok = fates.next() != Some(3) && !held.is_empty();
                        if ok {
                            saved.extend(held.drain(..));
                        }
                        input = Some(Input::Saved { ok });
                    }
                    Order::Start { unit, .. } => {
                        let wanted = if unit == key(9) { Stage::Reconciling } else { Stage::Open };
                        prop_assert_eq!(schedule.stage, wanted, "{} starts", unit);
                        prop_assert!(schedule.halt.is_none());
                    }
                    Order::End(ended) => {
                        prop_assert!(!is_begun(schedule.stage));
                        held.clear();
                        let open = last.iter().filter(|(unit, (attempt, outcome))| {
                            **unit != key(9) && *outcome == Outcome::Succeeded && saved.get(*unit) != Some(attempt)
                        });
                        let open = open.count();
                        prop_assert!((open..=open + 1).contains(&(ended.unsaved as usize)), "{open}: {ended:?}");
                    }
                    Order::Project | Order::Stop { .. } | Order::SetTimer { .. } | Order::Note { .. } => {}
                }
            }
            if input.is_some() {
                replies += 1;
                prop_assert!(replies < 1_000, "rounds without end");
            } else {
                input = steps.find_map(|step| input_for(&schedule, step));
            }
        }
    }
}
