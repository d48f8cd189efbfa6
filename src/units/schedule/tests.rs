//! The schedule by example, and against an oracle that keeps plain lists and looks at all of them every time.

use proptest::prelude::*;

use super::*;
use crate::{
    tape::{Millis, note::StopReason},
    units::limits::LimitStatus,
};

mod limits;
mod oracle;
mod pass;
mod repeat;
mod settle;

fn keys(count: usize) -> Vec<UnitKey> {
    (0..count).map(key).collect()
}

fn key(n: usize) -> UnitKey {
    UnitKey::new(format!("u{n}"))
}

pub(super) fn verdict(outcome: Outcome, cause: Cause) -> Verdict {
    Verdict { outcome, stop: StopReason::Error, cause, reason: "x".into(), remedy: None }
}

fn ok() -> Verdict {
    verdict(Outcome::Succeeded, Cause::Completed)
}

fn bad() -> Verdict {
    verdict(Outcome::Failed, Cause::ToolFailures)
}

fn busy() -> Verdict {
    verdict(Outcome::Failed, Cause::Transient)
}

fn crowded() -> Verdict {
    verdict(Outcome::Failed, Cause::OpenFiles)
}

fn missing() -> Verdict {
    verdict(Outcome::Failed, Cause::ProgramMissing)
}

fn limited() -> Verdict {
    verdict(Outcome::Failed, Cause::UsageLimit { resets_at: None })
}

fn ended(n: usize, attempt: u32, verdict: Verdict) -> Input {
    Input::Ended { unit: key(n), attempt, verdict, repeat: Repeat::Afresh }
}

fn ready(n: usize, attempt: u32) -> Input {
    Input::Ready { unit: key(n), attempt }
}

fn rejected(at: u64, resets_in_ms: Option<u64>) -> Input {
    let name = "five_hour".into();
    Input::LimitObserved(Observed {
        at: Millis(at),
        name,
        status: LimitStatus::Rejected,
        utilization: None,
        resets_in_ms,
    })
}

/// Orders as short words, for tables.
fn words(orders: &[Order]) -> String {
    let word = |order: &Order| match order {
        Order::Start { unit, attempt, amendment: None } => format!("start {unit}/{attempt}"),
        Order::Start { unit, attempt, amendment: Some(amendment) } => format!("start {unit}/{attempt} ({amendment})"),
        Order::Stop { unit, attempt, how } => format!("{how:?} {unit}/{attempt}").to_lowercase(),
        Order::Integrate { units } => {
            let units: Vec<String> = units.iter().map(|(unit, attempt)| format!("{unit}/{attempt}")).collect();
            format!("INTEGRATE {}", units.join(" "))
        }
        Order::Project => "PROJECT".into(),
        Order::Save { failed } => format!("SAVE without [{}]", failed.join(" ")),
        Order::SetTimer { id, after_ms } => format!("timer {} {after_ms}ms", id.0),
        Order::Note { lane, note } => {
            let lane = lane.as_ref().map(|(unit, attempt)| format!(" {unit}/{attempt}")).unwrap_or_default();
            let kind = match note {
                Note::RetryScheduled { next, delay_ms, .. } => format!("retry-scheduled {next} {delay_ms}ms"),
                Note::RetryRequested { next, amendment } => match amendment {
                    Some(amendment) => format!("retry-requested {next} ({amendment})"),
                    None => format!("retry-requested {next}"),
                },
                Note::StopRequested { how } => format!("stop-requested {how:?}").to_lowercase(),
                Note::LimitPaused { until, limit, .. } => {
                    format!("paused {limit} {:?}", until.map(|until| until.0))
                }
                Note::Throttled { slots, limit } => format!("throttled {slots:?} {limit}"),
                Note::LimitLifted => "lifted".into(),
                Note::ConcurrencyChanged { slots } => format!("slots {slots}"),
                Note::Said { text, .. } => format!("said {text:?}"),
                other => format!("{other:?}"),
            };
            format!("note{lane}: {kind}")
        }
        Order::End(end) => {
            let unsaved = if end.unsaved > 0 { format!(" unsaved={}", end.unsaved) } else { String::new() };
            format!(
                "END {} succeeded={} failed={} stopped={} not_run={}{unsaved}",
                end.outcome, end.succeeded, end.failed, end.stopped, end.not_run
            )
        }
    };
    orders.iter().map(word).collect::<Vec<_>>().join(" | ")
}

/// Feeds inputs and gives back one line of orders for each.
fn play(schedule: &mut Schedule, inputs: impl IntoIterator<Item = Input>) -> String {
    inputs.into_iter().map(|input| words(&schedule.handle(input))).collect::<Vec<_>>().join("\n")
}

fn settings(slots: u32) -> Settings {
    Settings::new(slots, 8)
}

fn waiting_at_most(wait_ms: u64) -> Settings {
    Settings { pacing: Pacing { max_wait_ms: Some(wait_ms), ..Pacing::default() }, ..settings(2) }
}

#[test]
fn units_start_once_the_sources_are_projected() {
    let mut schedule = Schedule::new(keys(2), settings(1)).projecting(true);
    let told = play(&mut schedule, [Input::Begin, Input::Begin, Input::Projected, Input::Projected, ended(0, 1, ok())]);
    assert_eq!(told, "PROJECT\n\nstart u0/1\n\nstart u1/1");
    let mut schedule = Schedule::new(keys(2), settings(1)).projecting(false);
    assert_eq!(play(&mut schedule, [Input::Begin, Input::Projected]), "start u0/1\n");
}

#[test]
fn stop_while_sources_are_projected_starts_no_unit() {
    for (input, how) in [(Input::Drain, "drain"), (Input::StopAll, "stop"), (Input::KillAll, "kill")] {
        let mut schedule = Schedule::new(keys(2), settings(2)).projecting(true);
        let told = play(&mut schedule, [Input::Begin, input, Input::Projected]);
        let end = "END stopped succeeded=0 failed=0 stopped=0 not_run=2";
        assert_eq!(told, format!("PROJECT\nnote: stop-requested {how}\n{end}"));
    }
    // A person may still retry what did not run.
    let mut schedule = Schedule::new(keys(1), settings(1)).projecting(true);
    play(&mut schedule, [Input::Begin, Input::StopAll, Input::Projected]);
    assert!(play(&mut schedule, [Input::RetryFailed]).ends_with("start u0/1"), "the sources are there already");
}

#[test]
fn units_start_in_plan_order_within_the_slots() {
    let mut schedule = Schedule::new(keys(4), settings(2));
    let told = play(
        &mut schedule,
        [Input::Begin, ended(1, 1, ok()), ended(0, 1, bad()), ended(2, 1, ok()), ended(3, 1, ok()), ended(3, 1, ok())],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1
    start u2/1
    start u3/1

    END partial succeeded=3 failed=1 stopped=0 not_run=0
    ");
    assert!(schedule.is_over());
}

#[test]
fn a_budget_that_is_spent_starts_nothing_more_and_lets_what_runs_end() {
    let budget = Settings { budget_usd: Some(0.5), ..settings(2) };
    let spent = |usd| Input::Spent { usd };
    let mut schedule = Schedule::new(keys(5), budget);
    let retry = Input::RetryRequested { unit: key(0), amendment: None };
    let inputs = [
        Input::Begin,
        spent(0.3),
        ended(0, 1, bad()),
        // The second unit runs, the third has just begun.
        spent(0.5),
        ended(1, 1, busy()),
        ended(2, 1, ok()),
        retry,
        Input::RetryFailed,
    ];
    insta::assert_snapshot!(play(&mut schedule, inputs));
    // What needs no more money is done, however dear it was.
    let mut schedule = Schedule::new(keys(1), budget);
    let told = play(&mut schedule, [Input::Begin, spent(9.0), ended(0, 1, ok())]);
    assert!(told.ends_with("END done succeeded=1 failed=0 stopped=0 not_run=0"), "{told}");
}

#[test]
fn what_an_earlier_run_did_runs_only_when_a_person_asks() {
    let mut schedule = Schedule::new(keys(3), settings(2)).reusing([&key(0), &key(2), &key(9)]);
    let told = play(&mut schedule, [Input::Begin, Input::RetryFailed, ended(1, 1, bad())]);
    insta::assert_snapshot!(told, @r"
    start u1/1

    END partial succeeded=0 failed=1 stopped=0 not_run=0
    ");
    let retry = Input::RetryRequested { unit: key(2), amendment: None };
    let orders: Vec<Order> = [retry, ended(2, 1, ok())].into_iter().flat_map(|input| schedule.handle(input)).collect();
    assert!(words(&orders).contains("start u2/1"), "attempts are counted from 1 here");
    let Some(Order::End(end)) = orders.last() else { panic!("{orders:?}") };
    assert_eq!((end.succeeded, end.failed, end.reused, end.not_run), (1, 1, 1, 0));

    let mut done = Schedule::new(keys(1), settings(1)).reusing([&key(0)]);
    let told = play(&mut done, [Input::Begin]);
    assert_eq!(told, "END done succeeded=0 failed=0 stopped=0 not_run=0");
}

#[test]
fn starts_are_staggered() {
    let mut schedule = Schedule::new(keys(4), Settings::new(3, 1));
    let told = play(
        &mut schedule,
        [Input::Begin, ready(0, 1), ended(1, 1, ok()), ready(2, 2), ready(2, 1), ended(0, 1, ok())],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    start u1/1
    start u2/1

    start u3/1
    ");
}

#[test]
fn what_passes_by_itself_is_retried_until_the_policy_is_spent() {
    let retry = RetryPolicy { max_retries: 2, ..RetryPolicy::default() };
    let mut schedule = Schedule::new(keys(2), Settings { retry, ..settings(1) });
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, busy()),
            Input::TimerFired(TimerId(7)),
            Input::TimerFired(TimerId(0)),
            Input::TimerFired(TimerId(0)),
            ended(1, 1, ok()),
            ended(0, 2, busy()),
            Input::TimerFired(TimerId(1)),
            ended(0, 3, busy()),
            Input::RetryRequested { unit: key(0), amendment: None },
            ended(0, 4, busy()),
            Input::RetryRequested { unit: key(0), amendment: None },
            Input::TimerFired(TimerId(2)),
            ended(0, 5, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms | start u1/1



    start u0/2
    note u0/2: retry-scheduled 3 2000ms | timer 1 2000ms
    start u0/3
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    note u0/3: retry-requested 4 | start u0/4
    note u0/4: retry-scheduled 5 1000ms | timer 2 1000ms
    note u0/4: retry-requested 5 | start u0/5

    END done succeeded=2 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn abort_stops_the_rest() {
    let mut schedule = Schedule::new(keys(4), Settings { failure_mode: FailureMode::Abort, ..settings(3) });
    let stopped = || verdict(Outcome::Stopped, Cause::Cancelled);
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, busy()),
            ended(3, 1, ok()),
            ended(1, 1, bad()),
            Input::RetryFailed,
            Input::TimerFired(TimerId(0)),
            ended(2, 1, stopped()),
            Input::RetryRequested { unit: key(1), amendment: None },
            ended(1, 2, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1 | start u2/1
    note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms | start u3/1

    note: said "u1 failed, and the failure mode is abort: the run stops" | stop u2/1
    note: said "the run is ending: retry once it has ended"

    END error succeeded=1 failed=2 stopped=1 not_run=0
    note u1/1: retry-requested 2 | start u1/2
    END partial succeeded=2 failed=1 stopped=1 not_run=0
    "#);
}

#[test]
fn people_stop_units_and_runs_more_and_more_firmly() {
    let mut schedule = Schedule::new(keys(5), settings(3));
    let stop = |n| Input::StopRequested { unit: key(n) };
    let stopped = || verdict(Outcome::Stopped, Cause::Cancelled);
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            stop(0),
            stop(0),
            stop(0),
            stop(4),
            Input::RetryRequested { unit: key(0), amendment: None },
            Input::Drain,
            Input::RetryRequested { unit: key(4), amendment: None },
            Input::StopAll,
            Input::KillAll,
            ended(0, 1, stopped()),
            ended(1, 1, busy()),
            ended(2, 1, ok()),
            Input::Drain,
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1 | start u2/1
    note u0/1: stop-requested stop | stop u0/1
    note u0/1: stop-requested kill | kill u0/1

    note u4/0: stop-requested stop
    note: said "u0 still runs: stop it before you retry it"
    note: stop-requested drain
    note: said "the run is ending: retry once it has ended"
    note: stop-requested stop | stop u1/1 | stop u2/1
    note: stop-requested kill | kill u1/1 | kill u2/1


    END stopped succeeded=1 failed=1 stopped=2 not_run=1
    "#);
}

#[test]
fn retry_of_all_includes_what_was_stopped_or_ran_out_of_turns() {
    let spent = Verdict { stop: StopReason::Budget, ..verdict(Outcome::Succeeded, Cause::Budget) };
    let mut schedule = Schedule::new(keys(3), settings(3));
    let inputs = [
        Input::Begin,
        ended(0, 1, ok()),
        ended(1, 1, spent),
        ended(2, 1, verdict(Outcome::Stopped, Cause::Cancelled)),
        Input::RetryFailed,
    ];
    let told = play(&mut schedule, inputs);
    let last = told.trim_end().lines().last().unwrap_or_default();
    assert!(last.contains("start u1/2") && last.contains("start u2/2") && !last.contains("u0"), "{told}");
}

#[test]
fn a_person_may_open_a_finished_run_again() {
    let mut schedule = Schedule::new(keys(3), settings(2));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, bad()),
            ended(1, 1, bad()),
            ended(2, 1, ok()),
            Input::RetryFailed,
            ended(1, 2, ok()),
            ended(0, 2, ok()),
            Input::RetryRequested { unit: key(2), amendment: None },
            ended(2, 2, bad()),
            Input::RetryRequested { unit: "nobody".into(), amendment: None },
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1
    start u2/1

    END partial succeeded=1 failed=2 stopped=0 not_run=0
    note u0/1: retry-requested 2 | note u1/1: retry-requested 2 | start u0/2 | start u1/2

    END done succeeded=3 failed=0 stopped=0 not_run=0
    note u2/1: retry-requested 2 | start u2/2
    END partial succeeded=2 failed=1 stopped=0 not_run=0
    ");
}

#[test]
fn what_a_person_wants_otherwise_stays_until_they_say_so() {
    let retry = |amendment| Input::RetryRequested { unit: key(0), amendment };
    let amendment = Amendment {
        feedback: Some("use the glossary".into()),
        model: Some("opus".into()),
        step_budget: Some(60),
        resume: Some("session".into()),
    };
    let mut schedule = Schedule::new(keys(1), settings(1));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, bad()),
            retry(Some(amendment)),
            ended(0, 2, busy()),
            Input::TimerFired(TimerId(0)),
            ended(0, 3, bad()),
            retry(None),
            ended(0, 4, bad()),
            retry(Some(Amendment::default())),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    END error succeeded=0 failed=1 stopped=0 not_run=0
    note u0/1: retry-requested 2 (same session, model opus, 60 turns, feedback: use the glossary) | start u0/2 (same session, model opus, 60 turns, feedback: use the glossary)
    note u0/2: retry-scheduled 3 1000ms | timer 0 1000ms
    start u0/3 (same session, model opus, 60 turns, feedback: use the glossary)
    END error succeeded=0 failed=1 stopped=0 not_run=0
    note u0/3: retry-requested 4 (model opus, 60 turns, feedback: use the glossary) | start u0/4 (model opus, 60 turns, feedback: use the glossary)
    END error succeeded=0 failed=1 stopped=0 not_run=0
    note u0/4: retry-requested 5 | start u0/5
    ");
}

#[test]
fn a_unit_that_waits_for_its_turn_can_still_be_told_otherwise() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    let amendment = Some(Amendment { step_budget: Some(60), ..Amendment::default() });
    let retry = |amendment| Input::RetryRequested { unit: key(1), amendment };
    let told = play(&mut schedule, [Input::Begin, retry(None), retry(amendment), ended(0, 1, ok())]);
    insta::assert_snapshot!(told, @r"
    start u0/1

    note u1/0: retry-requested 1 (60 turns)
    start u1/1 (60 turns)
    ");
}

#[test]
fn slots_change_while_running() {
    let mut schedule = Schedule::new(keys(4), settings(1));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            Input::SlotsChanged { by: 2 },
            Input::SlotsChanged { by: -9 },
            ended(0, 1, ok()),
            ended(1, 1, ok()),
            ended(2, 1, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    note: slots 3 | start u1/1 | start u2/1
    note: slots 1


    start u3/1
    ");
}

#[test]
fn slots_stay_within_their_bounds() {
    let slots = |from: u32, by: i32| {
        let mut schedule = Schedule::new(keys(1), settings(from));
        play(&mut schedule, [Input::SlotsChanged { by }])
    };
    assert_eq!(slots(63, 5), "note: slots 64");
    assert_eq!(slots(64, 1), "");
    assert_eq!(slots(1, -1), "");
    assert_eq!(slots(100, 1), "", "never fewer by asking for more");
    assert_eq!(slots(100, -1), "note: slots 99");
    assert_eq!(slots(2, i32::MIN), "note: slots 1");
}

#[test]
fn nothing_to_do_is_done_and_a_run_stopped_before_it_begins_runs_nothing() {
    assert_eq!(
        play(&mut Schedule::new(vec![], settings(1)), [Input::Begin]),
        "END done succeeded=0 failed=0 stopped=0 not_run=0"
    );
    let told = play(&mut Schedule::new(keys(2), settings(1)), [Input::StopAll, Input::Begin]);
    assert_eq!(told, "note: stop-requested stop\nEND stopped succeeded=0 failed=0 stopped=0 not_run=2");
    let twice = [keys(2), keys(2)].concat();
    let told = play(&mut Schedule::new(twice, settings(9)), [Input::Begin]);
    assert_eq!(told, "start u0/1 | start u1/1");
}
