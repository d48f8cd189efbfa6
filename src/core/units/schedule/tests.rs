//! Examples of the schedule, and a comparison with an oracle that keeps plain lists and scans all of them every time.

use proptest::prelude::*;

use super::*;
use crate::{
    tape::{
        Millis,
        note::{StopReason, VerdictCause},
    },
    units::limits::LimitStatus,
};

mod ahead;
mod automatic_retry;
mod limits;
mod oracle;
mod reconcile;
mod request;
mod review;
mod settle;
mod workers;

impl Schedule {
    /// Running attempts, with their units.
    fn in_flight(&self) -> impl Iterator<Item = (&UnitKey, u32)> {
        self.table
            .units()
            .iter()
            .filter(|unit| unit.is_in_flight())
            .map(|unit| (&unit.key, unit.attempts))
    }
}

fn keys(count: usize) -> Vec<UnitKey> {
    (0..count).map(key).collect()
}

fn key(n: usize) -> UnitKey {
    UnitKey::new(format!("u{n}"))
}

pub(super) fn verdict(outcome: AttemptOutcome, cause: VerdictCause) -> Verdict {
    Verdict {
        outcome,
        stop: StopReason::Error,
        cause,
        reason: "x".into(),
        remedy: None,
    }
}

fn succeeded_verdict() -> Verdict {
    verdict(AttemptOutcome::Succeeded, VerdictCause::Completed)
}

fn failed_verdict() -> Verdict {
    verdict(AttemptOutcome::Failed, VerdictCause::ToolFailures)
}

fn transient_verdict() -> Verdict {
    verdict(AttemptOutcome::Failed, VerdictCause::Transient)
}

fn open_files_verdict() -> Verdict {
    verdict(AttemptOutcome::Failed, VerdictCause::OpenFiles)
}

fn missing_program_verdict() -> Verdict {
    verdict(AttemptOutcome::Failed, VerdictCause::ProgramMissing)
}

fn refused_start_verdict() -> Verdict {
    verdict(AttemptOutcome::Failed, VerdictCause::StartFailed)
}

fn usage_limit_verdict() -> Verdict {
    verdict(
        AttemptOutcome::Failed,
        VerdictCause::UsageLimit { resets_at: None },
    )
}

fn attempt_ended(n: usize, attempt: u32, verdict: Verdict) -> ScheduleEvent {
    ScheduleEvent::AttemptEnded {
        unit: key(n),
        attempt,
        verdict,
        repeat: RetryMode::FromStart,
    }
}

fn attempt_ready(n: usize, attempt: u32) -> ScheduleEvent {
    ScheduleEvent::AttemptReady {
        unit: key(n),
        attempt,
    }
}

fn rejected(at: u64, resets_in_ms: Option<u64>) -> ScheduleEvent {
    let name = "five_hour".into();
    ScheduleEvent::LimitObserved(LimitObservation {
        at: Millis(at),
        name,
        status: LimitStatus::Rejected,
        utilization: None,
        resets_in_ms,
    })
}

/// Formats effects as short words, for tables.
fn format_effects(effects: &[ScheduleEffect]) -> String {
    let word = |order: &ScheduleEffect| match order {
        ScheduleEffect::StartAttempt {
            unit,
            attempt,
            amendment: None,
        } => format!("start {unit}/{attempt}"),
        ScheduleEffect::StartAttempt {
            unit,
            attempt,
            amendment: Some(amendment),
        } => {
            format!("start {unit}/{attempt} ({amendment})")
        }
        ScheduleEffect::StopAttempt { unit, attempt, how } => {
            format!("{how:?} {unit}/{attempt}").to_lowercase()
        }
        ScheduleEffect::MessageAttempt {
            unit,
            attempt,
            text,
        } => format!("message {unit}/{attempt} {text:?}"),
        ScheduleEffect::RequestAttempt {
            unit,
            attempt,
            request,
        } => format!("request {unit}/{attempt} {request:?}"),
        ScheduleEffect::Integrate { units } => {
            let units: Vec<String> = units
                .iter()
                .map(|(unit, attempt)| format!("{unit}/{attempt}"))
                .collect();
            format!("INTEGRATE {}", units.join(" "))
        }
        ScheduleEffect::IntegrateAhead { kept, units } => {
            let units = units
                .iter()
                .map(|(unit, attempt)| format!(" {unit}/{attempt}"));
            format!("AHEAD of {kept}:{}", units.collect::<String>())
        }
        ScheduleEffect::Project => "PROJECT".into(),
        ScheduleEffect::RequestReview => "REVIEW".into(),
        ScheduleEffect::Save { failed } => format!("SAVE without [{}]", failed.join(" ")),
        ScheduleEffect::SetTimer { id, after_ms } => format!("timer {} {after_ms}ms", id.0),
        ScheduleEffect::RecordNote { attempt, note } => {
            let attempt = attempt
                .as_ref()
                .map(|(unit, attempt)| format!(" {unit}/{attempt}"))
                .unwrap_or_default();
            let kind = match note {
                Note::RetryScheduled { next, delay_ms, .. } => {
                    format!("retry-scheduled {next} {delay_ms}ms")
                }
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
                Note::ConcurrencyChanged { slots, .. } => format!("slots {slots}"),
                Note::Message { text, .. } => format!("message {text:?}"),
                other => format!("{other:?}"),
            };
            format!("note{attempt}: {kind}")
        }
        ScheduleEffect::EndRun(end) => {
            let unsaved = if end.unsaved > 0 {
                format!(" unsaved={}", end.unsaved)
            } else {
                String::new()
            };
            format!(
                "END {} succeeded={} failed={} stopped={} not_run={}{unsaved}",
                end.outcome.as_str(),
                end.succeeded,
                end.failed,
                end.stopped,
                end.not_run
            )
        }
    };
    effects.iter().map(word).collect::<Vec<_>>().join(" | ")
}

/// Feeds events and returns one line of effects for each.
fn feed(schedule: &mut Schedule, inputs: impl IntoIterator<Item = ScheduleEvent>) -> String {
    inputs
        .into_iter()
        .map(|input| format_effects(&schedule.handle(input)))
        .collect::<Vec<_>>()
        .join("\n")
}

fn settings(slots: u32) -> ScheduleSettings {
    ScheduleSettings::new(slots, 8)
}

fn waiting_at_most(wait_ms: u64) -> ScheduleSettings {
    ScheduleSettings {
        throttle_policy: ThrottlePolicy {
            max_wait_ms: Some(wait_ms),
            ..ThrottlePolicy::default()
        },
        ..settings(2)
    }
}

#[test]
fn units_start_once_the_sources_are_projected() {
    let mut schedule = Schedule::new(keys(2), settings(1)).projecting(true);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            ScheduleEvent::RunStarted,
            ScheduleEvent::Projected { is_unsaved: false },
            ScheduleEvent::Projected { is_unsaved: false },
            attempt_ended(0, 1, succeeded_verdict()),
        ],
    );
    assert_eq!(trace, "PROJECT\n\nstart u0/1\n\nstart u1/1");
    let mut schedule = Schedule::new(keys(2), settings(1)).projecting(false);
    assert_eq!(
        feed(
            &mut schedule,
            [
                ScheduleEvent::RunStarted,
                ScheduleEvent::Projected { is_unsaved: false }
            ]
        ),
        "start u0/1\n"
    );
}

#[test]
fn stop_while_sources_are_projected_starts_no_unit() {
    for (input, how) in [
        (ScheduleEvent::Requested(RunCommand::Drain), "drain"),
        (ScheduleEvent::Requested(RunCommand::StopAll), "stop"),
        (ScheduleEvent::Requested(RunCommand::KillAll), "kill"),
    ] {
        let mut schedule = Schedule::new(keys(2), settings(2)).projecting(true);
        let trace = feed(
            &mut schedule,
            [
                ScheduleEvent::RunStarted,
                input,
                ScheduleEvent::Projected { is_unsaved: false },
            ],
        );
        let end = "END stopped succeeded=0 failed=0 stopped=0 not_run=2";
        assert_eq!(trace, format!("PROJECT\nnote: stop-requested {how}\n{end}"));
    }
    // A person may still retry units that did not run.
    let mut schedule = Schedule::new(keys(1), settings(1)).projecting(true);
    feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            ScheduleEvent::Requested(RunCommand::StopAll),
            ScheduleEvent::Projected { is_unsaved: false },
        ],
    );
    assert!(
        feed(
            &mut schedule,
            [ScheduleEvent::Requested(RunCommand::RetryUnsuccessful)]
        )
        .ends_with("start u0/1"),
        "the sources are there already"
    );
}

#[test]
fn units_start_in_plan_order_within_the_slots() {
    let mut schedule = Schedule::new(keys(4), settings(2));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(1, 1, succeeded_verdict()),
            attempt_ended(0, 1, failed_verdict()),
            attempt_ended(2, 1, succeeded_verdict()),
            attempt_ended(3, 1, succeeded_verdict()),
            attempt_ended(3, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1
    start u2/1
    start u3/1

    END partial succeeded=3 failed=1 stopped=0 not_run=0
    ");
    assert!(schedule.is_finished());
}

#[test]
fn spent_budget_starts_nothing_and_lets_running_units_end() {
    let budget = ScheduleSettings {
        budget_usd: Some(0.5),
        ..settings(2)
    };
    let spent = |usd| ScheduleEvent::CostUpdated { usd };
    let mut schedule = Schedule::new(keys(5), budget);
    let retry = ScheduleEvent::Requested(RunCommand::Retry {
        unit: key(0),
        amendment: None,
    });
    let inputs = [
        ScheduleEvent::RunStarted,
        spent(0.3),
        attempt_ended(0, 1, failed_verdict()),
        // The second unit runs, the third has just started.
        spent(0.5),
        attempt_ended(1, 1, transient_verdict()),
        attempt_ended(2, 1, succeeded_verdict()),
        retry,
        ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
    ];
    insta::assert_snapshot!(feed(&mut schedule, inputs));
    // Work that needs no more money is done, whatever the run has cost.
    let mut schedule = Schedule::new(keys(1), budget);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            spent(9.0),
            attempt_ended(0, 1, succeeded_verdict()),
        ],
    );
    assert!(
        trace.ends_with("END done succeeded=1 failed=0 stopped=0 not_run=0"),
        "{trace}"
    );
}

#[test]
fn reused_units_run_only_on_request() {
    let mut schedule = Schedule::new(keys(3), settings(2)).with_reused([&key(0), &key(2), &key(9)]);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            attempt_ended(1, 1, failed_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u1/1

    END partial succeeded=0 failed=1 stopped=0 not_run=0
    ");
    let retry = ScheduleEvent::Requested(RunCommand::Retry {
        unit: key(2),
        amendment: None,
    });
    let effects: Vec<ScheduleEffect> = [retry, attempt_ended(2, 1, succeeded_verdict())]
        .into_iter()
        .flat_map(|input| schedule.handle(input))
        .collect();
    assert!(
        format_effects(&effects).contains("start u2/1"),
        "attempts are counted from 1 here"
    );
    let Some(ScheduleEffect::EndRun(end)) = effects.last() else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (end.succeeded, end.failed, end.reused, end.not_run),
        (1, 1, 1, 0)
    );

    let mut done = Schedule::new(keys(1), settings(1)).with_reused([&key(0)]);
    let trace = feed(&mut done, [ScheduleEvent::RunStarted]);
    assert_eq!(trace, "END done succeeded=0 failed=0 stopped=0 not_run=0");
}

#[test]
fn starts_are_staggered() {
    let mut schedule = Schedule::new(keys(4), ScheduleSettings::new(3, 1));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ready(0, 1),
            attempt_ended(1, 1, succeeded_verdict()),
            attempt_ready(2, 2),
            attempt_ready(2, 1),
            attempt_ended(0, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1
    start u1/1
    start u2/1

    start u3/1
    ");
}

#[test]
fn transient_failures_are_retried_up_to_the_policy() {
    let retry = RetryPolicy {
        max_retries: 2,
        ..RetryPolicy::default()
    };
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
            attempt_ended(0, 1, transient_verdict()),
            ScheduleEvent::TimerFired(TimerId(7)),
            ScheduleEvent::TimerFired(TimerId(0)),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(1, 1, succeeded_verdict()),
            attempt_ended(0, 2, transient_verdict()),
            ScheduleEvent::TimerFired(TimerId(1)),
            attempt_ended(0, 3, transient_verdict()),
            ScheduleEvent::Requested(RunCommand::Retry {
                unit: key(0),
                amendment: None,
            }),
            attempt_ended(0, 4, transient_verdict()),
            ScheduleEvent::Requested(RunCommand::Retry {
                unit: key(0),
                amendment: None,
            }),
            ScheduleEvent::TimerFired(TimerId(2)),
            attempt_ended(0, 5, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
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
fn abort_mode_stops_remaining_units() {
    let mut schedule = Schedule::new(
        keys(4),
        ScheduleSettings {
            failure_mode: FailureMode::Abort,
            ..settings(3)
        },
    );
    let stopped = || verdict(AttemptOutcome::Stopped, VerdictCause::Cancelled);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, transient_verdict()),
            attempt_ended(3, 1, succeeded_verdict()),
            attempt_ended(1, 1, failed_verdict()),
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(2, 1, stopped()),
            ScheduleEvent::Requested(RunCommand::Retry {
                unit: key(1),
                amendment: None,
            }),
            attempt_ended(1, 2, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1 | start u2/1
    note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms | start u3/1

    note: message "u1 failed, and the failure mode is abort: the run stops" | stop u2/1
    note: message "the run is ending: retry once it has ended"

    END error succeeded=1 failed=2 stopped=1 not_run=0
    note u1/1: retry-requested 2 | start u1/2
    END partial succeeded=2 failed=1 stopped=1 not_run=0
    "#);
}

#[test]
fn repeated_stop_requests_escalate() {
    let mut schedule = Schedule::new(keys(5), settings(3));
    let stop = |n| ScheduleEvent::Requested(RunCommand::Stop { unit: key(n) });
    let stopped = || verdict(AttemptOutcome::Stopped, VerdictCause::Cancelled);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            stop(0),
            stop(0),
            stop(0),
            stop(4),
            ScheduleEvent::Requested(RunCommand::Retry {
                unit: key(0),
                amendment: None,
            }),
            ScheduleEvent::Requested(RunCommand::Drain),
            ScheduleEvent::Requested(RunCommand::Retry {
                unit: key(4),
                amendment: None,
            }),
            ScheduleEvent::Requested(RunCommand::StopAll),
            ScheduleEvent::Requested(RunCommand::KillAll),
            attempt_ended(0, 1, stopped()),
            attempt_ended(1, 1, transient_verdict()),
            attempt_ended(2, 1, succeeded_verdict()),
            ScheduleEvent::Requested(RunCommand::Drain),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1 | start u2/1
    note u0/1: stop-requested stop | stop u0/1
    note u0/1: stop-requested kill | kill u0/1

    note u4/0: stop-requested stop
    note: message "u0 still runs: stop it before you retry it"
    note: stop-requested drain
    note: message "the run is ending: retry once it has ended"
    note: stop-requested stop | stop u1/1 | stop u2/1
    note: stop-requested kill | kill u1/1 | kill u2/1


    END stopped succeeded=1 failed=1 stopped=2 not_run=1
    "#);
}

#[test]
fn retry_failed_includes_stopped_and_out_of_turns() {
    let spent = Verdict {
        stop: StopReason::Budget,
        ..verdict(AttemptOutcome::Succeeded, VerdictCause::Budget)
    };
    let mut schedule = Schedule::new(keys(3), settings(3));
    let inputs = [
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, succeeded_verdict()),
        attempt_ended(1, 1, spent),
        attempt_ended(
            2,
            1,
            verdict(AttemptOutcome::Stopped, VerdictCause::Cancelled),
        ),
        ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
    ];
    let trace = feed(&mut schedule, inputs);
    let last = trace.trim_end().lines().last().unwrap_or_default();
    assert!(
        last.contains("start u1/2") && last.contains("start u2/2") && !last.contains("u0"),
        "{trace}"
    );
}

#[test]
fn retry_request_reopens_a_finished_run() {
    let mut schedule = Schedule::new(keys(3), settings(2));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, failed_verdict()),
            attempt_ended(1, 1, failed_verdict()),
            attempt_ended(2, 1, succeeded_verdict()),
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            attempt_ended(1, 2, succeeded_verdict()),
            attempt_ended(0, 2, succeeded_verdict()),
            ScheduleEvent::Requested(RunCommand::Retry {
                unit: key(2),
                amendment: None,
            }),
            attempt_ended(2, 2, failed_verdict()),
            ScheduleEvent::Requested(RunCommand::Retry {
                unit: "unknown".into(),
                amendment: None,
            }),
        ],
    );
    insta::assert_snapshot!(trace, @r"
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
fn amendment_applies_until_it_is_replaced() {
    let retry = |amendment| {
        ScheduleEvent::Requested(RunCommand::Retry {
            unit: key(0),
            amendment,
        })
    };
    let amendment = Amendment {
        message: None,
        feedback: Some("use the glossary".into()),
        model: Some("opus".into()),
        step_budget: Some(60),
        resume: Some("session".into()),
    };
    let mut schedule = Schedule::new(keys(1), settings(1));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, failed_verdict()),
            retry(Some(amendment)),
            attempt_ended(0, 2, transient_verdict()),
            ScheduleEvent::TimerFired(TimerId(0)),
            attempt_ended(0, 3, failed_verdict()),
            retry(None),
            attempt_ended(0, 4, failed_verdict()),
            retry(Some(Amendment::default())),
        ],
    );
    insta::assert_snapshot!(trace, @r"
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
fn queued_unit_can_be_amended() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    let amendment = Some(Amendment {
        step_budget: Some(60),
        ..Amendment::default()
    });
    let retry = |amendment| {
        ScheduleEvent::Requested(RunCommand::Retry {
            unit: key(1),
            amendment,
        })
    };
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            retry(None),
            retry(amendment),
            attempt_ended(0, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1
    note: message "u1 is queued: it runs without a retry"
    note u1/0: retry-requested 1 (60 turns)
    start u1/1 (60 turns)
    "#);
}

#[test]
fn slots_change_while_running() {
    let mut schedule = Schedule::new(keys(4), settings(1));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            ScheduleEvent::Requested(RunCommand::AdjustConcurrency { by: 2 }),
            ScheduleEvent::Requested(RunCommand::AdjustConcurrency { by: -9 }),
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 1, succeeded_verdict()),
            attempt_ended(2, 1, succeeded_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1
    note: slots 3 | start u1/1 | start u2/1
    note: slots 1


    start u3/1
    ");
}

#[test]
fn concurrency_is_clamped_to_its_range() {
    let slots = |from: u32, by: i32| {
        let mut schedule = Schedule::new(keys(1), settings(from));
        feed(
            &mut schedule,
            [ScheduleEvent::Requested(RunCommand::AdjustConcurrency {
                by,
            })],
        )
    };
    assert_eq!(slots(63, 5), "note: slots 64");
    assert_eq!(slots(64, 1), "");
    assert_eq!(slots(1, -1), "");
    assert_eq!(slots(100, 1), "", "never fewer by asking for more");
    assert_eq!(slots(100, -1), "note: slots 99");
    assert_eq!(slots(2, i32::MIN), "note: slots 1");
}

#[test]
fn empty_run_ends_and_stopped_run_starts_nothing() {
    assert_eq!(
        feed(
            &mut Schedule::new(vec![], settings(1)),
            [ScheduleEvent::RunStarted]
        ),
        "END done succeeded=0 failed=0 stopped=0 not_run=0"
    );
    let trace = feed(
        &mut Schedule::new(keys(2), settings(1)),
        [
            ScheduleEvent::Requested(RunCommand::StopAll),
            ScheduleEvent::RunStarted,
        ],
    );
    assert_eq!(
        trace,
        "note: stop-requested stop\nEND stopped succeeded=0 failed=0 stopped=0 not_run=2"
    );
    let twice = [keys(2), keys(2)].concat();
    let trace = feed(
        &mut Schedule::new(twice, settings(9)),
        [ScheduleEvent::RunStarted],
    );
    assert_eq!(trace, "start u0/1 | start u1/1");
}
