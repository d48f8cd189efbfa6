//! Limits, throttling, and conditions under which every unit fails.

use super::*;

#[test]
fn a_usage_limit_pauses_the_run_and_costs_no_retry() {
    let retry = RetryPolicy {
        max_retries: 0,
        ..RetryPolicy::default()
    };
    let mut schedule = Schedule::new(
        keys(3),
        ScheduleSettings {
            retry,
            ..settings(2)
        },
    );
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            rejected(5_000, Some(90_000)),
            attempt_ended(0, 1, usage_limit_verdict()),
            attempt_ended(1, 1, succeeded_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(0, 2, usage_limit_verdict()),
            ScheduleEvent::Requested(RunCommand::LiftLimit),
            ScheduleEvent::TimerFired(TimerId(1)),
            attempt_ended(0, 3, succeeded_verdict()),
            attempt_ended(2, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
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
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            rejected(0, Some(2_000_000)),
            attempt_ended(0, 1, usage_limit_verdict()),
            attempt_ended(1, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1
    note: message "5h limit resets too late to wait for: the run ends and can be resumed"

    END limit succeeded=1 failed=1 stopped=0 not_run=1
    "#);
}

#[test]
fn pressure_reduces_concurrency_to_one() {
    let observed = |status| LimitObservation {
        at: Millis(0),
        name: "five_hour".into(),
        status,
        utilization: None,
        resets_in_ms: None,
    };
    let mut schedule = Schedule::new(keys(4), settings(2));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            ScheduleEvent::LimitObserved(observed(LimitStatus::Warning)),
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 1, succeeded_verdict()),
            ScheduleEvent::LimitObserved(observed(LimitStatus::Allowed)),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1
    note: throttled Some(1) five_hour

    start u2/1
    note: throttled None five_hour | start u3/1
    ");
}

#[test]
fn endless_limit_ends_the_run_without_spending_retries() {
    let pacing = ThrottlePolicy {
        max_limit_attempts: 3,
        ..ThrottlePolicy::default()
    };
    let mut schedule = Schedule::new(
        keys(3),
        ScheduleSettings {
            throttle_policy: pacing,
            ..settings(1)
        },
    );
    let crowded = || verdict(AttemptOutcome::Failed, VerdictCause::RateLimited);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, crowded()),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(0, 2, crowded()),
            ScheduleEvent::TimerFired(TimerId(1)),
            attempt_ended(0, 3, crowded()),
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            attempt_ended(0, 4, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1
    note: paused rate limit None | timer 0 1000ms | note u0/1: retry-scheduled 2 1000ms
    note: lifted | start u0/2
    note: paused rate limit None | timer 1 2000ms | note u0/2: retry-scheduled 3 2000ms
    note: lifted | start u0/3
    note: message "u0 hit the limit 3 times: the run ends and can be resumed" | END limit succeeded=0 failed=1 stopped=0 not_run=2
    note u0/3: retry-requested 4 | note u1/0: retry-requested 1 | note u2/0: retry-requested 1 | start u0/4
    start u1/1
    "#);
}

#[test]
fn limit_without_throttling_is_a_failure() {
    let pacing = ThrottlePolicy {
        enabled: false,
        ..ThrottlePolicy::default()
    };
    let mut schedule = Schedule::new(
        keys(2),
        ScheduleSettings {
            throttle_policy: pacing,
            ..settings(1)
        },
    );
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            rejected(0, Some(9)),
            attempt_ended(0, 1, usage_limit_verdict()),
            attempt_ended(1, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1

    start u1/1
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    ");
}

#[test]
fn run_wide_failure_is_reported_once() {
    let mut schedule = Schedule::new(keys(4), settings(2));
    let out = |cause| verdict(AttemptOutcome::Failed, cause);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, out(VerdictCause::Auth)),
            attempt_ended(1, 1, succeeded_verdict()),
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            attempt_ended(0, 2, succeeded_verdict()),
            attempt_ended(2, 1, out(VerdictCause::Model)),
            attempt_ended(3, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1
    note: message "stopped starting units: login; fix it, then retry"
    END unusable succeeded=1 failed=1 stopped=0 not_run=2
    note u0/1: retry-requested 2 | note u2/0: retry-requested 1 | note u3/0: retry-requested 1 | start u0/2 | start u2/1
    start u3/1
    note: message "stopped starting units: model; fix it, then retry"
    END unusable succeeded=3 failed=1 stopped=0 not_run=0
    "#);
}

#[test]
fn unit_specific_model_or_network_failure_stops_no_other_unit() {
    let retry = RetryPolicy {
        max_retries: 0,
        ..RetryPolicy::default()
    };
    let mut schedule = Schedule::new(
        keys(3),
        ScheduleSettings {
            retry,
            ..settings(1)
        },
    );
    let amendment = Amendment {
        model: Some("opsu".into()),
        ..Amendment::default()
    };
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::Requested(RunCommand::Retry {
                unit: key(0),
                amendment: Some(amendment),
            }),
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, verdict(AttemptOutcome::Failed, VerdictCause::Model)),
            attempt_ended(1, 1, succeeded_verdict()),
            attempt_ended(2, 1, verdict(AttemptOutcome::Failed, VerdictCause::Network)),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    note u0/0: retry-requested 1 (model opsu)
    start u0/1 (model opsu)
    start u1/1
    start u2/1
    END partial succeeded=1 failed=2 stopped=0 not_run=0
    ");
    let mut schedule = Schedule::new(
        keys(2),
        ScheduleSettings {
            retry,
            ..settings(1)
        },
    );
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, verdict(AttemptOutcome::Failed, VerdictCause::Network)),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1
    note: message "stopped starting units: network; fix it, then retry" | END unusable succeeded=0 failed=1 stopped=0 not_run=1
    "#);
}

#[test]
fn open_files_lower_concurrency_and_cost_no_retry() {
    let retry = RetryPolicy {
        max_retries: 0,
        ..RetryPolicy::default()
    };
    let mut schedule = Schedule::new(
        keys(4),
        ScheduleSettings {
            retry,
            ..settings(3)
        },
    );
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(2, 1, open_files_verdict()),
            attempt_ended(1, 1, open_files_verdict()),
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 2, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1 | start u2/1
    note u2/1: retry-scheduled 2 0ms | note: throttled Some(2) the limit of open files
    note u1/1: retry-scheduled 2 0ms | note: throttled Some(1) the limit of open files
    start u1/2
    start u2/2
    ");
}

#[test]
fn missing_program_pauses_starts_until_it_returns() {
    let retry = RetryPolicy {
        max_retries: 0,
        ..RetryPolicy::default()
    };
    let mut schedule = Schedule::new(
        keys(4),
        ScheduleSettings {
            retry,
            ..settings(2)
        },
    );
    let ready = ScheduleEvent::AttemptReady {
        unit: "u1".into(),
        attempt: 3,
    };
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(2, 1, missing_program_verdict()),
            attempt_ended(1, 1, missing_program_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(1, 2, missing_program_verdict()),
            ScheduleEvent::TimerFired(TimerId(1)),
            ready,
            attempt_ended(1, 3, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1
    start u2/1
    note: message "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u2/1: retry-scheduled 2 1000ms | timer 0 1000ms
    note u1/1: retry-scheduled 2 1000ms
    start u1/2
    note u1/2: retry-scheduled 3 2000ms | timer 1 2000ms
    start u1/3
    note: message "the agent's program is back" | start u2/2
    start u3/1
    "#);
}

#[test]
fn refused_start_is_tried_once_more_by_one_unit() {
    let mut schedule = Schedule::new(keys(4), settings(2));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, refused_start_verdict()),
            attempt_ended(1, 1, refused_start_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(0, 2, refused_start_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1
    note: message "the agent refused to start; trying once more in 1 s" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    note u1/1: retry-scheduled 2 1000ms
    start u0/2
    note: message "stopped starting units: x; fix it, then retry" | END unusable succeeded=0 failed=0 stopped=0 not_run=4
    "#);
}

#[test]
fn refused_start_that_ends_within_a_second_costs_no_retry() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    let ready = ScheduleEvent::AttemptReady {
        unit: "u0".into(),
        attempt: 2,
    };
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, refused_start_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            ready,
            attempt_ended(0, 2, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1
    note: message "the agent refused to start; trying once more in 1 s" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    start u0/2
    timer 1 30000ms | note: message "the agent starts again"
    start u1/1
    "#);
}

#[test]
fn each_fault_of_starts_is_retried_once() {
    let refused = |n, attempt| attempt_ended(n, attempt, refused_start_verdict());
    let begin = || {
        let mut schedule = Schedule::new(keys(2), settings(2));
        let events = [
            ScheduleEvent::RunStarted,
            refused(0, 1),
            refused(1, 1),
            ScheduleEvent::TimerFired(TimerId(0)),
        ];
        feed(&mut schedule, events);
        feed(
            &mut schedule,
            [attempt_ready(0, 2), ScheduleEvent::TimerFired(TimerId(1))],
        );
        schedule
    };
    // While the trial works, another unit is refused in a later fault.
    let trace = feed(
        &mut begin(),
        [
            refused(1, 2),
            ScheduleEvent::TimerFired(TimerId(2)),
            refused(1, 3),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    note: message "the agent refused to start; trying once more in 1 s" | note u1/2: retry-scheduled 3 1000ms | timer 2 1000ms
    start u1/3
    note: message "stopped starting units: x; fix it, then retry"
    "#);
    // A trial that takes long to refuse is the same fault, or the run would never end.
    let trace = feed(&mut begin(), [refused(0, 2)]);
    insta::assert_snapshot!(trace, @r#"note: message "stopped starting units: x; fix it, then retry""#);
}

#[test]
fn refusal_after_an_update_is_tried_once_more() {
    let mut schedule = Schedule::new(keys(1), settings(1));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, missing_program_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(0, 2, refused_start_verdict()),
            ScheduleEvent::TimerFired(TimerId(1)),
            attempt_ended(0, 3, refused_start_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1
    note: message "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    start u0/2
    note: message "the agent refused to start; trying once more in 2 s" | note u0/2: retry-scheduled 3 2000ms | timer 1 2000ms
    start u0/3
    note: message "stopped starting units: x; fix it, then retry" | END unusable succeeded=0 failed=0 stopped=0 not_run=1
    "#);
}

#[test]
fn process_that_becomes_ready_and_refuses_is_not_tried_forever() {
    let mut schedule = Schedule::new(keys(1), settings(1));
    let ready = |attempt| ScheduleEvent::AttemptReady {
        unit: "u0".into(),
        attempt,
    };
    let refused = |attempt| attempt_ended(0, attempt, refused_start_verdict());
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            ready(1),
            refused(1),
            ScheduleEvent::TimerFired(TimerId(0)),
            ready(2),
            refused(2),
        ],
    );
    assert!(
        trace.ends_with("END unusable succeeded=0 failed=0 stopped=0 not_run=1"),
        "{trace}"
    );
}

#[test]
fn each_change_of_release_during_a_run_is_reported() {
    let mut schedule = Schedule::new(keys(1), settings(1));
    let seen = |release: &str, worker: Option<&str>| ScheduleEvent::ReleaseSeen {
        release: release.to_owned(),
        worker: worker.map(str::to_owned),
    };
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            seen("2.1.332", None),
            seen("2.1.332", None),
            seen("2.1.330", None),
            seen("2.1.330", None),
            seen("2.1.332", None),
            seen("2.1.330", Some("w")),
            seen("2.1.332", Some("w")),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1


    note: message "claude 2.1.330 runs from now on, instead of 2.1.332"

    note: message "claude 2.1.332 runs from now on, instead of 2.1.330"

    note: message "claude 2.1.332 runs on worker w from now on, instead of 2.1.330"
    "#);
    let many = (0..100).map(|number| seen(&format!("2.1.{number}"), None));
    let trace = feed(&mut schedule, many);
    assert_eq!(trace.matches("from now on").count(), 13, "reports end");
}

#[test]
fn unit_that_waited_too_long_for_a_person_makes_a_limit() {
    let mut schedule = Schedule::new(keys(2), settings(2));
    let waited = verdict(AttemptOutcome::Stopped, VerdictCause::ApprovalTimeout);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, waited),
            attempt_ended(1, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1

    END limit succeeded=1 failed=0 stopped=1 not_run=0
    ");
}

#[test]
fn stopped_program_trial_moves_to_the_next_unit() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    let stop = ScheduleEvent::Requested(RunCommand::Stop { unit: key(0) });
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, missing_program_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            stop,
            attempt_ended(0, 2, missing_program_verdict()),
            attempt_ready(1, 1),
            attempt_ended(1, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1
    note: message "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    start u0/2
    note u0/2: stop-requested stop | stop u0/2
    start u1/1
    note: message "the agent's program is back"
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    "#);
}

#[test]
fn program_is_back_only_once_a_process_started() {
    let mut schedule = Schedule::new(keys(3), settings(2));
    let unprepared = || verdict(AttemptOutcome::Failed, VerdictCause::Internal);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, missing_program_verdict()),
            attempt_ended(1, 1, missing_program_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(0, 2, unprepared()),
            attempt_ready(1, 2),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1
    note: message "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    note u1/1: retry-scheduled 2 1000ms
    start u0/2
    start u1/2
    note: message "the agent's program is back" | start u2/1
    "#);
}

#[test]
fn stale_wait_timer_does_not_shorten_the_next_wait() {
    let mut schedule = Schedule::new(keys(1), settings(1));
    let retry = ScheduleEvent::Requested(RunCommand::Retry {
        unit: key(0),
        amendment: None,
    });
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, missing_program_verdict()),
            ScheduleEvent::Requested(RunCommand::StopAll),
            retry,
            attempt_ended(0, 2, missing_program_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            ScheduleEvent::TimerFired(TimerId(1)),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1
    note: message "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms
    note: stop-requested stop | END error succeeded=0 failed=1 stopped=0 not_run=0
    note u0/1: retry-requested 2 | start u0/2
    note: message "the agent's program is missing; waiting up to 40 s for it, as an update may be in progress" | note u0/2: retry-scheduled 3 1000ms | timer 1 1000ms

    start u0/3
    "#);
}

#[test]
fn program_that_stays_missing_ends_the_run_as_unusable() {
    let mut schedule = Schedule::new(keys(3), settings(1));
    let mut effects = schedule.handle(ScheduleEvent::RunStarted);
    let (mut waited, mut starts) = (0, 0);
    while let Some(order) = effects.pop() {
        match order {
            ScheduleEffect::StartAttempt { unit, attempt, .. } => {
                starts += 1;
                effects.extend(schedule.handle(ScheduleEvent::AttemptEnded {
                    unit,
                    attempt,
                    verdict: missing_program_verdict(),
                    repeat: RetryMode::FromStart,
                }));
            }
            ScheduleEffect::SetTimer { id, after_ms } => {
                waited += after_ms;
                effects.extend(schedule.handle(ScheduleEvent::TimerFired(id)));
            }
            ScheduleEffect::EndRun(end) => {
                assert_eq!(
                    (end.outcome.as_str(), end.failed, end.not_run),
                    ("unusable", 1, 2)
                );
            }
            _ => {}
        }
    }
    assert!(schedule.is_finished());
    assert_eq!((starts, waited), (7, 40_000));
}

#[test]
fn open_files_fail_a_unit_that_started_alone() {
    let mut schedule = Schedule::new(keys(2), settings(2));
    let trace = feed(
        &mut schedule,
        // Both started together, so the second to fail did not start alone.
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, open_files_verdict()),
            attempt_ended(1, 1, open_files_verdict()),
            attempt_ended(0, 2, open_files_verdict()),
            attempt_ended(1, 2, open_files_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1
    note u0/1: retry-scheduled 2 0ms | note: throttled Some(1) the limit of open files
    note u1/1: retry-scheduled 2 0ms | start u0/2
    start u1/2
    END error succeeded=0 failed=2 stopped=0 not_run=0
    ");
}
