//! Limits, pressure, and what every unit would fail of.

use super::*;

#[test]
fn a_usage_limit_pauses_the_run_and_costs_no_retry() {
    let retry = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
    let mut schedule = Schedule::new(keys(3), Settings { retry, ..settings(2) });
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            rejected(5_000, Some(90_000)),
            ended(0, 1, limited()),
            ended(1, 1, ok()),
            Input::TimerFired(TimerId(0)),
            ended(0, 2, limited()),
            Input::LiftLimit,
            Input::TimerFired(TimerId(1)),
            ended(0, 3, ok()),
            ended(2, 1, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1
    note: paused five_hour Some(95000) | timer 0 90000ms
    note u0/1: retry-scheduled 2 90000ms

    note: lifted | start u0/2 | start u2/1
    note: paused usage limit None | timer 1 1000ms | note u0/2: retry-scheduled 3 1000ms
    note: lifted | start u0/3


    END done succeeded=3 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn a_limit_that_resets_too_late_ends_the_run() {
    let mut schedule = Schedule::new(keys(3), waiting_at_most(1_000_000));
    let told =
        play(&mut schedule, [Input::Begin, rejected(0, Some(2_000_000)), ended(0, 1, limited()), ended(1, 1, ok())]);
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1
    note: said "five_hour resets too late to wait for: the run ends and can be resumed"

    END limit succeeded=1 failed=1 stopped=0 not_run=1
    "#);
}

#[test]
fn pressure_leaves_one_slot() {
    let observed =
        |status| Observed { at: Millis(0), name: "five_hour".into(), status, utilization: None, resets_in_ms: None };
    let mut schedule = Schedule::new(keys(4), settings(2));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            Input::LimitObserved(observed(LimitStatus::Warning)),
            ended(0, 1, ok()),
            ended(1, 1, ok()),
            Input::LimitObserved(observed(LimitStatus::Allowed)),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1
    note: throttled Some(1) five_hour

    start u2/1
    note: throttled None five_hour | start u3/1
    ");
}

#[test]
fn a_limit_that_never_seems_to_reset_is_given_up_without_spending_retries() {
    let pacing = Pacing { max_attempts: 3, ..Pacing::default() };
    let mut schedule = Schedule::new(keys(3), Settings { pacing, ..settings(1) });
    let crowded = || verdict(Outcome::Failed, Cause::RateLimited);
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, crowded()),
            Input::TimerFired(TimerId(0)),
            ended(0, 2, crowded()),
            Input::TimerFired(TimerId(1)),
            ended(0, 3, crowded()),
            Input::RetryFailed,
            ended(0, 4, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1
    note: paused rate limit None | timer 0 1000ms | note u0/1: retry-scheduled 2 1000ms
    note: lifted | start u0/2
    note: paused rate limit None | timer 1 2000ms | note u0/2: retry-scheduled 3 2000ms
    note: lifted | start u0/3
    note: said "u0 met the limit 3 times: the run ends and can be resumed" | END limit succeeded=0 failed=1 stopped=0 not_run=2
    note u0/3: retry-requested 4 | note u1/0: retry-requested 1 | note u2/0: retry-requested 1 | start u0/4
    start u1/1
    "#);
}

#[test]
fn without_pacing_a_limit_is_a_failure() {
    let pacing = Pacing { enabled: false, ..Pacing::default() };
    let mut schedule = Schedule::new(keys(2), Settings { pacing, ..settings(1) });
    let told = play(&mut schedule, [Input::Begin, rejected(0, Some(9)), ended(0, 1, limited()), ended(1, 1, ok())]);
    insta::assert_snapshot!(told, @r"
    start u0/1

    start u1/1
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    ");
}

#[test]
fn what_every_unit_would_fail_of_is_told_once() {
    let mut schedule = Schedule::new(keys(4), settings(2));
    let out = |cause| verdict(Outcome::Failed, cause);
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, out(Cause::Auth)),
            ended(1, 1, ok()),
            Input::RetryFailed,
            ended(0, 2, ok()),
            ended(2, 1, out(Cause::Model)),
            ended(3, 1, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1
    note: said "no unit can run (login), so none is started any more: mend it, then retry"
    END unusable succeeded=1 failed=1 stopped=0 not_run=2
    note u0/1: retry-requested 2 | note u2/0: retry-requested 1 | note u3/0: retry-requested 1 | start u0/2 | start u2/1
    start u3/1
    note: said "no unit can run (model), so none is started any more: mend it, then retry"
    END unusable succeeded=3 failed=1 stopped=0 not_run=0
    "#);
}

#[test]
fn a_unit_with_a_model_of_its_own_or_a_network_that_came_and_went_stops_nobody() {
    let retry = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
    let mut schedule = Schedule::new(keys(3), Settings { retry, ..settings(1) });
    let amendment = Amendment { model: Some("opsu".into()), ..Amendment::default() };
    let told = play(
        &mut schedule,
        [
            Input::RetryRequested { unit: key(0), amendment: Some(amendment) },
            Input::Begin,
            ended(0, 1, verdict(Outcome::Failed, Cause::Model)),
            ended(1, 1, ok()),
            ended(2, 1, verdict(Outcome::Failed, Cause::Network)),
        ],
    );
    insta::assert_snapshot!(told, @r"
    note u0/0: retry-requested 1 (model opsu)
    start u0/1 (model opsu)
    start u1/1
    start u2/1
    END partial succeeded=1 failed=2 stopped=0 not_run=0
    ");
    let mut schedule = Schedule::new(keys(2), Settings { retry, ..settings(1) });
    let told = play(&mut schedule, [Input::Begin, ended(0, 1, verdict(Outcome::Failed, Cause::Network))]);
    insta::assert_snapshot!(told, @r#"
    start u0/1
    note: said "no unit can run (network), so none is started any more: mend it, then retry" | END unusable succeeded=0 failed=1 stopped=0 not_run=1
    "#);
}

#[test]
fn open_files_lower_concurrency_and_cost_no_retry() {
    let retry = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
    let mut schedule = Schedule::new(keys(4), Settings { retry, ..settings(3) });
    let told = play(
        &mut schedule,
        [Input::Begin, ended(2, 1, crowded()), ended(1, 1, crowded()), ended(0, 1, ok()), ended(1, 2, ok())],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1 | start u2/1
    note u2/1: retry-scheduled 2 0ms | note: throttled Some(2) the limit of open files
    note u1/1: retry-scheduled 2 0ms | note: throttled Some(1) the limit of open files
    start u1/2
    start u2/2
    ");
}

#[test]
fn missing_program_stops_starts_until_it_is_back() {
    let retry = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
    let mut schedule = Schedule::new(keys(4), Settings { retry, ..settings(2) });
    let ready = Input::Ready { unit: "u1".into(), attempt: 3 };
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, ok()),
            ended(2, 1, missing()),
            ended(1, 1, missing()),
            Input::TimerFired(TimerId(0)),
            ended(1, 2, missing()),
            Input::TimerFired(TimerId(1)),
            ready,
            ended(1, 3, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1
    start u2/1
    note: said "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u2/1: retry-scheduled 2 1000ms | timer 0 1000ms
    note u1/1: retry-scheduled 2 1000ms
    start u1/2
    note u1/2: retry-scheduled 3 2000ms | timer 1 2000ms
    start u1/3
    note: said "the agent's program is back" | start u2/2
    start u3/1
    "#);
}

#[test]
fn stopped_trial_of_a_missing_program_is_made_by_the_next_unit() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    let stop = Input::StopRequested { unit: key(0) };
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, missing()),
            Input::TimerFired(TimerId(0)),
            stop,
            ended(0, 2, missing()),
            ready(1, 1),
            ended(1, 1, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1
    note: said "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    start u0/2
    note u0/2: stop-requested stop | stop u0/2
    start u1/1
    note: said "the agent's program is back"
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    "#);
}

#[test]
fn program_is_back_only_once_a_process_started() {
    let mut schedule = Schedule::new(keys(3), settings(2));
    let unprepared = || verdict(Outcome::Failed, Cause::Internal);
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, missing()),
            ended(1, 1, missing()),
            Input::TimerFired(TimerId(0)),
            ended(0, 2, unprepared()),
            ready(1, 2),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1
    note: said "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    note u1/1: retry-scheduled 2 1000ms
    start u0/2
    start u1/2
    note: said "the agent's program is back" | start u2/1
    "#);
}

#[test]
fn timer_of_a_wait_that_was_given_up_does_not_shorten_the_next_one() {
    let mut schedule = Schedule::new(keys(1), settings(1));
    let retry = Input::RetryRequested { unit: key(0), amendment: None };
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, missing()),
            Input::StopAll,
            retry,
            ended(0, 2, missing()),
            Input::TimerFired(TimerId(0)),
            Input::TimerFired(TimerId(1)),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1
    note: said "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    note: stop-requested stop | END error succeeded=0 failed=1 stopped=0 not_run=0
    note u0/1: retry-requested 2 | start u0/2
    note: said "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/2: retry-scheduled 3 1000ms | timer 1 1000ms

    start u0/3
    "#);
}

#[test]
fn program_that_stays_missing_ends_the_run_as_unusable() {
    let mut schedule = Schedule::new(keys(3), settings(1));
    let mut orders = schedule.handle(Input::Begin);
    let (mut waited, mut starts) = (0, 0);
    while let Some(order) = orders.pop() {
        match order {
            Order::Start { unit, attempt, .. } => {
                starts += 1;
                orders.extend(schedule.handle(Input::Ended {
                    unit,
                    attempt,
                    verdict: missing(),
                    repeat: Repeat::Afresh,
                }));
            }
            Order::SetTimer { id, after_ms } => {
                waited += after_ms;
                orders.extend(schedule.handle(Input::TimerFired(id)));
            }
            Order::End(end) => {
                assert_eq!((end.outcome.as_str(), end.failed, end.not_run), ("unusable", 1, 2));
            }
            _ => {}
        }
    }
    assert!(schedule.is_over());
    assert_eq!((starts, waited), (7, 40_000));
}

#[test]
fn open_files_fail_a_unit_that_started_alone() {
    let mut schedule = Schedule::new(keys(2), settings(2));
    let told = play(
        &mut schedule,
        // Both started together, so the second to fail has not been alone yet.
        [Input::Begin, ended(0, 1, crowded()), ended(1, 1, crowded()), ended(0, 2, crowded()), ended(1, 2, crowded())],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1
    note u0/1: retry-scheduled 2 0ms | note: throttled Some(1) the limit of open files
    note u1/1: retry-scheduled 2 0ms | start u0/2
    start u1/2
    END error succeeded=0 failed=2 stopped=0 not_run=0
    ");
}
