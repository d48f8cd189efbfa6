//! Slots of workers, and attempts that are repeated on another one.

use super::*;

fn elsewhere(n: usize, attempt: u32) -> ScheduleEvent {
    let verdict = verdict(AttemptOutcome::Failed, VerdictCause::WorkerLost);
    ScheduleEvent::AttemptEnded { unit: key(n), attempt, verdict, repeat: RetryMode::Elsewhere }
}

#[test]
fn slots_of_workers_add_to_those_of_the_machine() {
    let workers = ScheduleSettings { worker_slots: Some(0), ..settings(0) };
    let mut schedule = Schedule::new(keys(4), workers);
    let slots = |slots| ScheduleEvent::WorkerSlotsChanged { slots };
    insta::assert_snapshot!(feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            slots(2),
            ScheduleEvent::ConcurrencyChanged { by: 1 },
            slots(0),
            attempt_ended(0, 1, succeeded_verdict()),
            slots(1),
        ],
    ));
}

#[test]
fn units_that_build_on_each_other_run_one_by_one() {
    let workers = ScheduleSettings { worker_slots: Some(0), saves_between_units: true, ..settings(0) };
    let mut schedule = Schedule::new(keys(3), workers);
    schedule.handle(ScheduleEvent::RunStarted);
    assert_eq!(schedule.concurrency(), 0, "nothing waits for a worker that may never join");
    schedule.handle(ScheduleEvent::WorkerSlotsChanged { slots: 8 });
    assert_eq!(schedule.concurrency(), 1);
}

#[test]
fn failed_save_does_not_let_texts_run_concurrently() {
    let workers =
        ScheduleSettings { worker_slots: Some(0), saves_between_units: true, integrates_patches: true, ..settings(0) };
    let mut schedule = Schedule::new(keys(3), workers);
    schedule.handle(ScheduleEvent::RunStarted);
    schedule.handle(ScheduleEvent::WorkerSlotsChanged { slots: 8 });
    schedule.handle(attempt_ended(0, 1, succeeded_verdict()));
    schedule.handle(ScheduleEvent::Integrated(IntegrationReport { ok: true, ..IntegrationReport::default() }));
    schedule.handle(ScheduleEvent::Saved { ok: false });
    assert_eq!(schedule.concurrency(), 1);
}

#[test]
fn lost_attempt_is_repeated_and_costs_no_retry() {
    let retry = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
    let mut schedule = Schedule::new(keys(1), ScheduleSettings { retry, ..settings(1) });
    insta::assert_snapshot!(feed(
        &mut schedule,
        [ScheduleEvent::RunStarted, elsewhere(0, 1), elsewhere(0, 2), attempt_ended(0, 3, succeeded_verdict())],
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
    schedule.handle(ScheduleEvent::StopRequested { unit: key(0) });
    schedule.handle(elsewhere(0, 1));
    assert!(schedule.is_finished());
}
