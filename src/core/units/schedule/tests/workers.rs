//! Slots of workers, and attempts that are repeated on another one.

use super::*;

fn elsewhere(n: usize, attempt: u32) -> ScheduleEvent {
    let verdict = verdict(AttemptOutcome::Failed, VerdictCause::WorkerLost);
    ScheduleEvent::AttemptEnded {
        unit: key(n),
        attempt,
        verdict,
        repeat: RetryMode::Elsewhere,
    }
}

#[test]
fn slots_of_workers_add_to_those_of_the_machine() {
    let workers = ScheduleSettings {
        worker_slots: Some(0),
        ..settings(0)
    };
    let mut schedule = Schedule::new(keys(4), workers);
    let slots = |slots| ScheduleEvent::WorkerSlotsChanged { slots, lack: None };
    insta::assert_snapshot!(feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            slots(2),
            ScheduleEvent::Requested(RunCommand::AdjustConcurrency { by: 1 }),
            slots(0),
            attempt_ended(0, 1, succeeded_verdict()),
            slots(1),
        ],
    ));
}

#[test]
fn units_that_build_on_each_other_run_one_by_one() {
    let workers = ScheduleSettings {
        worker_slots: Some(0),
        saves_between_units: true,
        ..settings(0)
    };
    let mut schedule = Schedule::new(keys(3), workers);
    schedule.handle(ScheduleEvent::RunStarted);
    assert_eq!(
        schedule.concurrency(),
        0,
        "nothing waits for a worker that may never join"
    );
    schedule.handle(ScheduleEvent::WorkerSlotsChanged {
        slots: 8,
        lack: None,
    });
    assert_eq!(schedule.concurrency(), 1);
}

#[test]
fn failed_save_does_not_let_texts_run_concurrently() {
    let workers = ScheduleSettings {
        worker_slots: Some(0),
        saves_between_units: true,
        integrates_patches: true,
        ..settings(0)
    };
    let mut schedule = Schedule::new(keys(3), workers);
    schedule.handle(ScheduleEvent::RunStarted);
    schedule.handle(ScheduleEvent::WorkerSlotsChanged {
        slots: 8,
        lack: None,
    });
    schedule.handle(attempt_ended(0, 1, succeeded_verdict()));
    schedule.handle(ScheduleEvent::Integrated(IntegrationReport {
        ok: true,
        ..IntegrationReport::default()
    }));
    schedule.handle(ScheduleEvent::Saved { ok: false });
    assert_eq!(schedule.concurrency(), 1);
}

/// A run of three units that uses workers only, with its start.
fn remote_run() -> Schedule {
    let workers = ScheduleSettings {
        worker_slots: Some(0),
        worker_wait_ms: 7_200_000,
        ..settings(0)
    };
    Schedule::new(keys(3), workers)
}

fn slots(slots: u32) -> ScheduleEvent {
    ScheduleEvent::WorkerSlotsChanged { slots, lack: None }
}

#[test]
fn run_without_workers_waits_and_fails_no_unit() {
    let mut schedule = remote_run();
    insta::assert_snapshot!(feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            slots(2),
            // The first timer is stale.
            ScheduleEvent::TimerFired(TimerId(0)),
            slots(0),
            elsewhere(0, 1),
            elsewhere(1, 1),
            ScheduleEvent::TimerFired(TimerId(1)),
            slots(2),
            ScheduleEvent::TimerFired(TimerId(2)),
            attempt_ended(0, 2, succeeded_verdict()),
            attempt_ended(1, 2, succeeded_verdict()),
            attempt_ended(2, 1, succeeded_verdict()),
        ],
    ));
}

#[test]
fn wait_for_workers_ends_like_a_limit() {
    let mut schedule = remote_run();
    insta::assert_snapshot!(feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            ScheduleEvent::TimerFired(TimerId(0)),
            ScheduleEvent::TimerFired(TimerId(1)),
            // A person tries again.
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            ScheduleEvent::TimerFired(TimerId(2)),
            slots(3),
        ],
    ));
}

/// The worker leaves after the start of an attempt that has no place yet.
#[test]
fn attempt_without_a_place_does_not_wait_for_ever() {
    let mut schedule = remote_run();
    let stopped = verdict(AttemptOutcome::Stopped, VerdictCause::Cancelled);
    let stopped = ScheduleEvent::AttemptEnded {
        unit: key(0),
        attempt: 1,
        verdict: stopped,
        repeat: RetryMode::FromStart,
    };
    insta::assert_snapshot!(feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            slots(1),
            slots(0),
            ScheduleEvent::TimerFired(TimerId(1)),
            ScheduleEvent::TimerFired(TimerId(2)),
            stopped,
        ],
    ));
}

#[test]
fn run_that_no_worker_can_serve_ends_at_once() {
    let mut schedule = remote_run();
    schedule.handle(ScheduleEvent::RunStarted);
    let lack = ScheduleEvent::WorkerSlotsChanged {
        slots: 0,
        lack: Some("no worker is left".to_owned()),
    };
    insta::assert_snapshot!(feed(&mut schedule, [lack]));
}

#[test]
fn lost_attempt_is_repeated_and_costs_no_retry() {
    let retry = RetryPolicy {
        max_retries: 0,
        ..RetryPolicy::default()
    };
    let mut schedule = Schedule::new(
        keys(1),
        ScheduleSettings {
            retry,
            ..settings(1)
        },
    );
    insta::assert_snapshot!(feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            elsewhere(0, 1),
            elsewhere(0, 2),
            attempt_ended(0, 3, succeeded_verdict())
        ],
    ));
}

#[test]
fn unit_that_loses_every_worker_fails() {
    let mut schedule = Schedule::new(keys(1), settings(1));
    schedule.handle(ScheduleEvent::RunStarted);
    for attempt in 1..=10 {
        assert!(!schedule.is_finished(), "attempt {attempt}");
        schedule.handle(elsewhere(0, attempt));
    }
    assert!(schedule.is_finished());
}

#[test]
fn stopped_unit_is_not_repeated_elsewhere() {
    let mut schedule = Schedule::new(keys(1), settings(1));
    schedule.handle(ScheduleEvent::RunStarted);
    schedule.handle(ScheduleEvent::Requested(RunCommand::Stop { unit: key(0) }));
    schedule.handle(elsewhere(0, 1));
    assert!(schedule.is_finished());
}
