//! Automatic retries of attempts whose tools have run.

use super::*;

fn session_ended(attempt: u32, verdict: Verdict, repeat: RetryMode) -> ScheduleEvent {
    ScheduleEvent::AttemptEnded {
        unit: key(0),
        attempt,
        verdict,
        repeat,
    }
}

fn resume() -> RetryMode {
    RetryMode::ResumeSession("5e55".into())
}

/// Attempts that these events start, with their changes to the plan.
fn starts(
    schedule: &mut Schedule,
    inputs: impl IntoIterator<Item = ScheduleEvent>,
) -> Vec<(u32, Option<Amendment>)> {
    let effects = inputs.into_iter().flat_map(|input| schedule.handle(input));
    let start = |order| match order {
        ScheduleEffect::StartAttempt {
            attempt, amendment, ..
        } => Some((attempt, amendment.as_deref().cloned())),
        _ => None,
    };
    effects.filter_map(start).collect()
}

fn continued() -> Option<Amendment> {
    Some(Amendment {
        resume: Some("5e55".into()),
        ..Amendment::default()
    })
}

fn schedule(max_retries: u32) -> Schedule {
    let retry = RetryPolicy {
        max_retries,
        ..RetryPolicy::default()
    };
    Schedule::new(
        keys(1),
        ScheduleSettings {
            retry,
            is_session: true,
            ..ScheduleSettings::new(1, 1)
        },
    )
}

/// Units continue a session only if their last attempt was cut in it.
#[test]
fn unit_that_failed_in_its_session_begins_from_the_start() {
    let mut schedule = Schedule::new(keys(1), ScheduleSettings::new(1, 1));
    let started = starts(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            session_ended(1, transient_verdict(), resume()),
            ScheduleEvent::TimerFired(TimerId(0)),
            session_ended(2, transient_verdict(), RetryMode::FromStart),
            ScheduleEvent::TimerFired(TimerId(1)),
            session_ended(3, usage_limit_verdict(), resume()),
            ScheduleEvent::TimerFired(TimerId(2)),
            session_ended(4, usage_limit_verdict(), RetryMode::Elsewhere),
        ],
    );
    assert_eq!(
        started,
        [
            (1, None),
            (2, continued()),
            (3, None),
            (4, continued()),
            (5, None)
        ]
    );
}

#[test]
fn first_attempt_continues_a_session_of_a_prior_run() {
    let unit = key(0);
    let schedule = Schedule::new(keys(2), ScheduleSettings::new(2, 2));
    let mut schedule = schedule
        .with_feedback("shorter")
        .with_sessions([(&unit, "5e55")]);
    let started = starts(&mut schedule, [ScheduleEvent::RunStarted]);
    let feedback = started[1].1.as_ref().unwrap().feedback.as_deref();
    assert_eq!(
        (&started[0], feedback),
        (&(1, continued()), Some("shorter"))
    );
}

#[test]
fn retry_continues_the_session_whose_tools_have_run() {
    let mut schedule = schedule(3);
    let started = starts(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            session_ended(1, transient_verdict(), RetryMode::FromStart),
            ScheduleEvent::TimerFired(TimerId(0)),
            session_ended(2, transient_verdict(), resume()),
            ScheduleEvent::TimerFired(TimerId(1)),
            // No tool ran in this attempt, but tools ran in the attempt before.
            session_ended(3, transient_verdict(), RetryMode::FromStart),
            ScheduleEvent::TimerFired(TimerId(2)),
            session_ended(4, transient_verdict(), resume()),
        ],
    );
    assert_eq!(
        started,
        [(1, None), (2, None), (3, continued()), (4, continued())]
    );
    assert!(schedule.is_finished(), "three retries");
    let asked = [ScheduleEvent::Requested(RunCommand::Retry {
        unit: key(0),
        amendment: None,
    })];
    assert_eq!(
        starts(&mut schedule, asked),
        [(5, None)],
        "a person may begin again"
    );
}

#[test]
fn continued_session_keeps_model_and_turns_without_the_feedback() {
    let mut schedule = schedule(1);
    let asked = Amendment {
        message: None,
        feedback: Some("Again.".into()),
        model: Some("opus".into()),
        step_budget: Some(7),
        resume: Some("old".into()),
    };
    let inputs = [
        ScheduleEvent::RunStarted,
        session_ended(1, failed_verdict(), RetryMode::Never),
        ScheduleEvent::Requested(RunCommand::Retry {
            unit: key(0),
            amendment: Some(asked.clone()),
        }),
        session_ended(2, transient_verdict(), resume()),
        ScheduleEvent::TimerFired(TimerId(0)),
    ];
    let expected = Amendment {
        feedback: None,
        resume: Some("5e55".into()),
        ..asked.clone()
    };
    assert_eq!(
        starts(&mut schedule, inputs),
        [(1, None), (2, Some(asked)), (3, Some(expected))]
    );
}

#[test]
fn session_without_an_id_is_not_retried_once_tools_have_run() {
    for verdict in [transient_verdict(), usage_limit_verdict()] {
        let mut schedule = schedule(3);
        let inputs = [
            ScheduleEvent::RunStarted,
            session_ended(1, verdict, RetryMode::Never),
        ];
        let effects: Vec<ScheduleEffect> = inputs
            .into_iter()
            .flat_map(|input| schedule.handle(input))
            .collect();
        let message = effects.iter().find_map(|order| match order {
            ScheduleEffect::RecordNote {
                note:
                    Note::Message {
                        level: Severity::Warning,
                        text,
                    },
                ..
            } => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(
            message,
            Some("u0 is not retried: its tools have run, and its session id is unknown")
        );
        assert!(
            matches!(effects.last(), Some(ScheduleEffect::EndRun(attempt_ended)) if attempt_ended.failed == 1),
            "{effects:?}"
        );
    }
}

#[test]
fn usage_limit_costs_no_retry_and_continues_the_session() {
    let mut schedule = schedule(0);
    let inputs = [
        ScheduleEvent::RunStarted,
        rejected(0, Some(9_000)),
        session_ended(1, usage_limit_verdict(), resume()),
        ScheduleEvent::TimerFired(TimerId(0)),
        session_ended(2, transient_verdict(), resume()),
    ];
    assert_eq!(starts(&mut schedule, inputs), [(1, None), (2, continued())]);
    assert!(schedule.is_finished(), "no retries are configured");
}

#[test]
fn lost_session_costs_no_retry() {
    let mut schedule = Schedule::new(keys(1), ScheduleSettings::new(1, 1));
    let gone = || verdict(AttemptOutcome::Failed, VerdictCause::LoopError);
    let inputs = [
        ScheduleEvent::RunStarted,
        session_ended(1, gone(), RetryMode::LostSession),
        session_ended(2, gone(), RetryMode::FromStart),
    ];
    assert_eq!(starts(&mut schedule, inputs), [(1, None), (2, None)]);
    assert!(schedule.is_finished(), "the error of a model is final");
}

fn next_turn(message: &str) -> Option<Amendment> {
    Some(Amendment {
        message: Some(message.into()),
        ..Amendment::default()
    })
}

#[test]
fn full_context_continues_in_a_new_session() {
    let mut schedule = schedule(1);
    let full = || verdict(AttemptOutcome::Failed, VerdictCause::ContextOverflow);
    let again = || RetryMode::NewSession("You continue.".into());
    let inputs = [
        ScheduleEvent::RunStarted,
        session_ended(1, full(), again()),
        ScheduleEvent::TimerFired(TimerId(0)),
        session_ended(2, full(), again()),
    ];
    assert_eq!(
        starts(&mut schedule, inputs),
        [(1, None), (2, next_turn("You continue."))]
    );
    assert!(schedule.is_finished(), "one retry");
}

#[test]
fn message_to_an_idle_session_starts_its_next_turn() {
    let settings = ScheduleSettings {
        is_session: true,
        ..ScheduleSettings::new(1, 1)
    };
    let mut schedule = Schedule::new(keys(1), settings);
    let message = |text: &str| {
        ScheduleEvent::Requested(RunCommand::Say {
            unit: key(0),
            text: text.into(),
        })
    };
    let inputs = [
        ScheduleEvent::RunStarted,
        message("while it runs"),
        session_ended(1, succeeded_verdict(), RetryMode::FromStart),
        message("next"),
        // A retry of the turn continues the session, which has the message.
        session_ended(2, transient_verdict(), resume()),
        ScheduleEvent::TimerFired(TimerId(0)),
    ];
    assert_eq!(
        starts(&mut schedule, inputs),
        [(1, None), (2, next_turn("next")), (3, continued())]
    );
}

#[test]
fn messages_wait_for_the_attempt_that_starts() {
    let settings = ScheduleSettings {
        is_session: true,
        ..ScheduleSettings::new(1, 1)
    };
    let mut schedule = Schedule::new(keys(1), settings);
    let message = |text: &str| {
        ScheduleEvent::Requested(RunCommand::Say {
            unit: key(0),
            text: text.into(),
        })
    };
    let full = verdict(AttemptOutcome::Failed, VerdictCause::ContextOverflow);
    let inputs = [
        ScheduleEvent::RunStarted,
        session_ended(1, full, RetryMode::NewSession("You continue.".into())),
        message("first"),
        message("second"),
        ScheduleEvent::TimerFired(TimerId(0)),
    ];
    let effects: Vec<ScheduleEffect> = inputs
        .into_iter()
        .flat_map(|input| schedule.handle(input))
        .collect();
    let [.., start, first, second] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    assert!(
        matches!(start, ScheduleEffect::StartAttempt { attempt: 2, .. }),
        "{start:?}"
    );
    for (effect, expected) in [(first, "first"), (second, "second")] {
        assert!(
            matches!(effect, ScheduleEffect::MessageAttempt { attempt: 2, text, .. } if text == expected),
            "{effect:?}"
        );
    }
}

#[test]
fn unit_out_of_turns_waits_for_a_decision() {
    let settings = ScheduleSettings {
        waits_at_turn_limit: true,
        ..ScheduleSettings::new(1, 1)
    };
    let mut schedule = Schedule::new(keys(1), settings);
    let out_of_turns = || Verdict {
        stop: StopReason::Budget,
        ..succeeded_verdict()
    };
    let notes = |effects: Vec<ScheduleEffect>| -> Vec<&'static str> {
        let name = |effect: &ScheduleEffect| match effect {
            ScheduleEffect::RecordNote {
                note: Note::DecisionAwaited { .. },
                ..
            } => "awaited",
            ScheduleEffect::RecordNote {
                note: Note::ResultAccepted,
                ..
            } => "accepted",
            ScheduleEffect::RecordNote { .. } => "note",
            ScheduleEffect::StartAttempt { .. } => "start",
            ScheduleEffect::EndRun(_) => "end",
            _ => "other",
        };
        effects.iter().map(name).collect()
    };
    schedule.handle(ScheduleEvent::RunStarted);
    assert_eq!(
        notes(schedule.handle(session_ended(1, out_of_turns(), RetryMode::FromStart))),
        ["awaited"]
    );
    assert!(!schedule.is_finished());
    let retry = ScheduleEvent::Requested(RunCommand::Retry {
        unit: key(0),
        amendment: None,
    });
    assert!(notes(schedule.handle(retry)).contains(&"start"));
    assert_eq!(
        notes(schedule.handle(session_ended(2, out_of_turns(), RetryMode::FromStart))),
        ["awaited"]
    );
    let accept = || ScheduleEvent::Requested(RunCommand::Accept { unit: key(0) });
    assert_eq!(notes(schedule.handle(accept())), ["accepted", "end"]);
    assert_eq!(
        notes(schedule.handle(accept())),
        ["note"],
        "it waits no longer"
    );
}

#[test]
fn run_that_ends_before_a_decision_about_a_unit_is_not_done() {
    let settings = ScheduleSettings {
        waits_at_turn_limit: true,
        ..ScheduleSettings::new(1, 1)
    };
    let mut schedule = Schedule::new(keys(1), settings);
    let out_of_turns = Verdict {
        stop: StopReason::Budget,
        ..succeeded_verdict()
    };
    let expired = ScheduleEvent::PersonWaitExpired(PersonWait::Decision, Millis(7_200_000));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            session_ended(1, out_of_turns, RetryMode::FromStart),
            expired,
        ],
    );
    assert!(trace.contains("END limit "), "{trace}");
}
