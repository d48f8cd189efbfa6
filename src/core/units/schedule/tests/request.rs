//! Limits that a person changes, and pauses.

use super::*;
use crate::control::RunLimit;

#[test]
fn paused_run_starts_nothing_until_it_resumes() {
    let mut schedule = Schedule::new(keys(3), settings(2));
    let events = [
        ScheduleEvent::RunStarted,
        ScheduleEvent::Requested(RunCommand::Pause),
        ScheduleEvent::Requested(RunCommand::Pause),
        attempt_ended(0, 1, succeeded_verdict()),
        attempt_ended(1, 1, succeeded_verdict()),
        ScheduleEvent::Requested(RunCommand::Resume),
        attempt_ended(2, 1, succeeded_verdict()),
    ];
    insta::assert_snapshot!(feed(&mut schedule, events));
}

#[test]
fn drain_of_a_paused_run_starts_no_unit() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    let events = [
        ScheduleEvent::RunStarted,
        ScheduleEvent::Requested(RunCommand::Pause),
        attempt_ended(0, 1, succeeded_verdict()),
        ScheduleEvent::Requested(RunCommand::Drain),
    ];
    let trace = feed(&mut schedule, events);
    assert!(
        !trace.contains("start u1") && trace.contains("END"),
        "{trace}"
    );
}

#[test]
fn messages_reach_running_units_only() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    let message = |n| {
        ScheduleEvent::Requested(RunCommand::Say {
            unit: key(n),
            text: "use euros".into(),
        })
    };
    insta::assert_snapshot!(feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            message(0),
            message(1),
            message(7)
        ]
    ));
}

#[test]
fn changed_limits_apply_immediately() {
    let budget = ScheduleSettings {
        budget_usd: Some(1.0),
        ..settings(1)
    };
    let mut schedule = Schedule::new(keys(4), budget);
    let events = [
        ScheduleEvent::RunStarted,
        ScheduleEvent::Requested(RunCommand::Set {
            limit: RunLimit::Concurrency(2),
        }),
        ScheduleEvent::Requested(RunCommand::Set {
            limit: RunLimit::RunBudget(Some(3.0)),
        }),
        ScheduleEvent::Requested(RunCommand::Set {
            limit: RunLimit::RunBudget(Some(3.0)),
        }),
        ScheduleEvent::CostUpdated { usd: 2.0 },
        attempt_ended(0, 1, succeeded_verdict()),
        ScheduleEvent::Requested(RunCommand::Set {
            limit: RunLimit::Retries(0),
        }),
        attempt_ended(1, 1, verdict(AttemptOutcome::Failed, VerdictCause::Network)),
        ScheduleEvent::Requested(RunCommand::Set {
            limit: RunLimit::RunBudget(None),
        }),
        ScheduleEvent::Requested(RunCommand::Set {
            limit: RunLimit::Turns(3),
        }),
    ];
    insta::assert_snapshot!(feed(&mut schedule, events));
}

#[test]
fn pause_counts_as_a_wait_from_its_request() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    feed(
        &mut schedule,
        [ScheduleEvent::RunStarted, attempt_ready(0, 1)],
    );
    assert_eq!(schedule.person_wait(), None);
    feed(&mut schedule, [ScheduleEvent::Requested(RunCommand::Pause)]);
    assert_eq!(
        schedule.person_wait(),
        Some(PersonWait::Decision),
        "although an attempt runs"
    );
    let expired = ScheduleEvent::PersonWaitExpired(PersonWait::Decision, Millis(7_200_000));
    let trace = feed(
        &mut schedule,
        [expired, attempt_ended(0, 1, succeeded_verdict())],
    );
    assert!(
        trace.ends_with("END limit succeeded=1 failed=0 stopped=0 not_run=1"),
        "{trace}"
    );
}
