//! The reconcile step: when it runs, how its outcome affects the run, and how the budget limits it.

use std::collections::BTreeMap;

use super::{
    oracle::{any_steps, to_event},
    settle::{
        failed_integration, integrated, integration_report, record_queued_stops, retry, schedule,
    },
    *,
};

/// A run of two units with the reconcile step `u9`. With `due`, it runs whatever the units write.
fn schedule_with_reconcile(due: bool) -> Schedule {
    schedule_with_settings(due, settings(2))
}

fn schedule_with_settings(due: bool, settings: ScheduleSettings) -> Schedule {
    schedule(2, settings).with_reconcile_step(key(9), due)
}

/// Both units have succeeded and written something.
fn units_succeeded() -> Vec<ScheduleEvent> {
    vec![
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, succeeded_verdict()),
        attempt_ended(1, 1, succeeded_verdict()),
        integrated(&[(0, 1, true), (1, 1, true)]),
    ]
}

/// Effects of the last of `inputs`.
fn last(schedule: &mut Schedule, inputs: impl IntoIterator<Item = ScheduleEvent>) -> String {
    feed(schedule, inputs)
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn reconcile_step_runs_after_integration() {
    let units = [
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, succeeded_verdict()),
        attempt_ended(1, 1, succeeded_verdict()),
        integrated(&[(0, 1, true), (1, 1, false)]),
    ];
    let good = [
        attempt_ended(9, 1, succeeded_verdict()),
        integrated(&[(9, 1, true)]),
        ScheduleEvent::Saved { ok: true },
    ];
    let trace = feed(
        &mut schedule_with_reconcile(false),
        units.clone().into_iter().chain(good),
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1

    INTEGRATE u0/1 u1/1
    start u9/1
    INTEGRATE u9/1
    SAVE without [u1]
    END partial succeeded=2 failed=1 stopped=0 not_run=0
    ");
    // Its failure loses only its own changes, and a person may request it again.
    let mut schedule = schedule_with_reconcile(false);
    let bad = [
        attempt_ended(9, 1, failed_verdict()),
        ScheduleEvent::Saved { ok: true },
        retry(9),
        integration_report(vec![]),
        attempt_ended(9, 2, succeeded_verdict()),
    ];
    let again = [
        integrated(&[(9, 2, true)]),
        ScheduleEvent::Saved { ok: true },
    ];
    let trace = feed(
        &mut schedule,
        units.clone().into_iter().chain(bad).chain(again),
    );
    insta::assert_snapshot!(trace, @r"
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
    // A requested attempt of a unit waits for the end of the step, and the step runs once more.
    let mut schedule = schedule_with_reconcile(false);
    let asked = [
        retry(1),
        attempt_ended(9, 1, succeeded_verdict()),
        integrated(&[(9, 1, true)]),
        ScheduleEvent::Saved { ok: true },
        attempt_ended(1, 2, succeeded_verdict()),
    ];
    let trace = feed(
        &mut schedule,
        units
            .into_iter()
            .chain(asked)
            .chain([integrated(&[(1, 2, true)])]),
    );
    insta::assert_snapshot!(trace, @r"
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
fn reconcile_step_is_skipped_without_changes() {
    let nothing = IntegratedUnit {
        unit: key(0),
        attempt: 1,
        verdict: None,
        has_changes: false,
    };
    let idle = || {
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 1, failed_verdict()),
        ]
    };
    let integrated = integration_report(vec![nothing.clone()]);
    let trace = feed(
        &mut schedule_with_reconcile(false),
        idle()
            .into_iter()
            .chain([integrated.clone(), ScheduleEvent::Saved { ok: true }]),
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1

    INTEGRATE u0/1
    note: message "not reconciled: no unit wrote anything, and no raw file was deleted" | SAVE without [u1]
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    "#);
    let trace = feed(
        &mut schedule_with_reconcile(true),
        idle().into_iter().chain([integrated]),
    );
    assert!(
        trace.ends_with("start u9/1"),
        "a deleted raw file is a reason to run: {trace}"
    );
}

#[test]
fn due_reconcile_step_runs_without_units() {
    let mut empty_schedule = Schedule::new(
        Vec::new(),
        ScheduleSettings {
            integrates_patches: true,
            ..settings(1)
        },
    )
    .with_reconcile_step(key(9), true);
    let trace = feed(
        &mut empty_schedule,
        [
            ScheduleEvent::RunStarted,
            integration_report(vec![]),
            attempt_ended(9, 1, succeeded_verdict()),
            integrated(&[(9, 1, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace, @r"
    INTEGRATE 
    start u9/1
    INTEGRATE u9/1
    SAVE without []
    END done succeeded=1 failed=0 stopped=0 not_run=0
    ");
    // The step runs whatever the outcomes of the units are, unless a person ends the run.
    let failed = [
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, failed_verdict()),
        attempt_ended(1, 1, failed_verdict()),
    ];
    assert_eq!(
        last(&mut schedule_with_reconcile(true), failed),
        "INTEGRATE "
    );
    assert!(
        last(
            &mut schedule_with_settings(true, settings(1)),
            [
                ScheduleEvent::RunStarted,
                ScheduleEvent::Requested(RunCommand::Drain),
                attempt_ended(0, 1, failed_verdict())
            ]
        )
        .contains("END")
    );
    // Without integration there is no reconcile step.
    let mut without_patches = Schedule::new(keys(1), settings(1)).with_reconcile_step(key(9), true);
    assert!(
        last(
            &mut without_patches,
            [
                ScheduleEvent::RunStarted,
                attempt_ended(0, 1, succeeded_verdict())
            ]
        )
        .starts_with("END done")
    );
}

#[test]
fn stop_during_reconcile_saves_and_kill_keeps_patches() {
    let stopped = verdict(AttemptOutcome::Stopped, VerdictCause::Cancelled);
    let trace = last(
        &mut schedule_with_reconcile(false),
        units_succeeded().into_iter().chain([
            ScheduleEvent::Requested(RunCommand::StopAll),
            attempt_ended(9, 1, stopped.clone()),
        ]),
    );
    assert_eq!(trace, "SAVE without []");
    let trace = last(
        &mut schedule_with_reconcile(false),
        units_succeeded().into_iter().chain([
            ScheduleEvent::Requested(RunCommand::KillAll),
            attempt_ended(9, 1, stopped),
        ]),
    );
    assert!(
        trace.contains("2 patches are kept and not put on the branch: the run was killed"),
        "{trace}"
    );
    // A limit that the reconcile step hits is handled like any other.
    let waits = [
        attempt_ended(9, 1, transient_verdict()),
        ScheduleEvent::TimerFired(TimerId(0)),
    ];
    assert_eq!(
        last(
            &mut schedule_with_reconcile(false),
            units_succeeded().into_iter().chain(waits)
        ),
        "start u9/2"
    );
}

#[test]
fn kill_during_integration_keeps_patches() {
    let both = || integrated(&[(0, 1, true), (1, 1, true)]);
    let killed = [
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, succeeded_verdict()),
        attempt_ended(1, 1, succeeded_verdict()),
        ScheduleEvent::Requested(RunCommand::KillAll),
        both(),
    ];
    let mut schedule = schedule_with_reconcile(false);
    insta::assert_snapshot!(last(&mut schedule, killed), @r#"note: message "2 patches are kept and not put on the branch: the run was killed" | END error succeeded=2 failed=0 stopped=0 not_run=0 unsaved=2"#);
    assert!(
        last(
            &mut schedule,
            [
                ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
                both()
            ]
        )
        .contains("start u9/1"),
        "until a person requests them"
    );
    let pass = [
        attempt_ended(9, 1, succeeded_verdict()),
        ScheduleEvent::Requested(RunCommand::KillAll),
        integrated(&[(9, 1, true)]),
    ];
    let trace = last(&mut schedule, pass);
    assert!(
        trace.contains("3 patches are kept") && trace.contains("unsaved=3"),
        "{trace}"
    );
}

/// The integration failed, for example because the disk is full or a patch is missing: there is nothing to review or
/// save.
#[test]
fn failed_integration_is_not_reconciled_or_saved() {
    for due in [false, true] {
        let mut schedule = schedule_with_reconcile(due);
        let units = [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 1, succeeded_verdict()),
        ];
        let trace = last(
            &mut schedule,
            units
                .into_iter()
                .chain([failed_integration(&[(0, 1, true)])]),
        );
        assert_eq!(trace, "SAVE without []", "saving reports the reason");
        let trace = last(&mut schedule, [ScheduleEvent::Saved { ok: false }]);
        assert!(
            trace.starts_with("END error succeeded=2 failed=0") && trace.ends_with("unsaved=2"),
            "{trace}"
        );
        let again = [
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            integrated(&[(0, 1, true), (1, 1, true)]),
            attempt_ended(9, 1, failed_verdict()),
        ];
        assert_eq!(last(&mut schedule, again), "SAVE without []");
        assert!(!last(&mut schedule, [ScheduleEvent::Saved { ok: true }]).contains("unsaved"));
    }
    // Reporting a save anyway does not change the result.
    let units = [
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, succeeded_verdict()),
        attempt_ended(1, 1, succeeded_verdict()),
    ];
    let saved = [
        failed_integration(&[(0, 1, true)]),
        ScheduleEvent::Saved { ok: true },
    ];
    assert!(
        last(
            &mut schedule_with_reconcile(false),
            units.into_iter().chain(saved)
        )
        .ends_with("unsaved=1")
    );
    // The same holds for the patch of the reconcile step.
    let mut schedule = schedule_with_reconcile(false);
    let pass = [
        attempt_ended(9, 1, succeeded_verdict()),
        failed_integration(&[]),
        ScheduleEvent::Saved { ok: false },
    ];
    assert!(last(&mut schedule, units_succeeded().into_iter().chain(pass)).ends_with("unsaved=3"));
    assert_eq!(
        last(
            &mut schedule,
            [ScheduleEvent::Requested(RunCommand::RetryUnsuccessful)]
        ),
        "INTEGRATE u0/1 u1/1 u9/1"
    );
}

#[test]
fn requested_reconcile_step_waits_for_units() {
    let mut schedule = schedule_with_reconcile(false);
    let first = [
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, succeeded_verdict()),
        attempt_ended(1, 1, failed_verdict()),
        integrated(&[(0, 1, true)]),
        attempt_ended(9, 1, failed_verdict()),
    ];
    feed(
        &mut schedule,
        first.into_iter().chain([ScheduleEvent::Saved { ok: true }]),
    );
    let again = [
        ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
        ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
        attempt_ended(1, 2, failed_verdict()),
        integration_report(vec![]),
        attempt_ended(9, 2, succeeded_verdict()),
        integrated(&[(9, 2, true)]),
        ScheduleEvent::Saved { ok: true },
    ];
    insta::assert_snapshot!(feed(&mut schedule, again), @r"
    note u1/1: retry-requested 2 | note u9/1: retry-requested 2 | start u1/2

    INTEGRATE 
    start u9/2
    INTEGRATE u9/2
    SAVE without [u1]
    END partial succeeded=2 failed=1 stopped=0 not_run=0
    ");
    // When it is the only unit, it can be cancelled before it starts.
    let asked = [
        retry(1),
        retry(9),
        ScheduleEvent::Requested(RunCommand::Stop { unit: key(9) }),
        attempt_ended(1, 3, failed_verdict()),
    ];
    insta::assert_snapshot!(feed(&mut schedule, asked), @r"
    note u1/2: retry-requested 3 | start u1/3
    note u9/2: retry-requested 3
    note u9/2: stop-requested stop
    END partial succeeded=1 failed=1 stopped=1 not_run=0
    ");
    // A request during the integration of its patch leads to a separate integration.
    let mut schedule = schedule_with_reconcile(false);
    feed(
        &mut schedule,
        units_succeeded().into_iter().chain([
            attempt_ended(9, 1, succeeded_verdict()),
            retry(9),
            integrated(&[(9, 1, true)]),
        ]),
    );
    assert_eq!(
        last(&mut schedule, [ScheduleEvent::Saved { ok: true }]),
        "INTEGRATE "
    );
    assert_eq!(
        last(&mut schedule, [integration_report(vec![])]),
        "start u9/2"
    );
}

#[test]
fn stale_reconcile_patch_is_not_applied_to_new_patches() {
    let mut schedule = schedule_with_reconcile(false);
    let unsaved = [
        attempt_ended(9, 1, succeeded_verdict()),
        integrated(&[(9, 1, true)]),
        ScheduleEvent::Saved { ok: false },
    ];
    feed(&mut schedule, units_succeeded().into_iter().chain(unsaved));
    let again = [
        retry(0),
        attempt_ended(0, 2, succeeded_verdict()),
        integrated(&[(0, 2, true), (1, 1, true)]),
    ];
    insta::assert_snapshot!(feed(&mut schedule, again), @r"
    note u0/1: retry-requested 2 | start u0/2
    INTEGRATE u0/2 u1/1
    start u9/2
    ");
    // If it is cancelled before it starts, it has not succeeded.
    let mut schedule = schedule_with_reconcile(false);
    let saved = [
        attempt_ended(9, 1, succeeded_verdict()),
        integrated(&[(9, 1, true)]),
        ScheduleEvent::Saved { ok: true },
    ];
    feed(&mut schedule, units_succeeded().into_iter().chain(saved));
    let limit = [
        retry(0),
        rejected(0, Some(60_000)),
        attempt_ended(0, 2, succeeded_verdict()),
        integrated(&[(0, 2, true)]),
    ];
    feed(&mut schedule, limit);
    assert!(
        last(&mut schedule, [ScheduleEvent::Requested(RunCommand::Drain)])
            .ends_with("SAVE without []")
    );
}

#[test]
fn failed_reconcile_step_does_not_fail_the_run() {
    let abort = ScheduleSettings {
        failure_mode: FailureMode::Abort,
        ..settings(2)
    };
    let fails = |cause: VerdictCause| {
        [
            attempt_ended(9, 1, verdict(AttemptOutcome::Failed, cause)),
            ScheduleEvent::Saved { ok: true },
        ]
    };
    let trace = feed(
        &mut schedule_with_settings(false, abort),
        units_succeeded()
            .into_iter()
            .chain(fails(VerdictCause::ToolFailures)),
    );
    assert!(
        trace.ends_with("SAVE without []\nEND partial succeeded=2 failed=1 stopped=0 not_run=0"),
        "{trace}"
    );
    // The reconcile step may use another model.
    let trace = last(
        &mut schedule_with_reconcile(false),
        units_succeeded()
            .into_iter()
            .chain(fails(VerdictCause::Model)),
    );
    assert_eq!(
        trace,
        "END partial succeeded=2 failed=1 stopped=0 not_run=0"
    );
    let trace = last(
        &mut schedule_with_reconcile(false),
        units_succeeded()
            .into_iter()
            .chain(fails(VerdictCause::Auth)),
    );
    assert!(
        trace.starts_with("END unusable"),
        "the login affects every unit: {trace}"
    );
}

#[test]
fn run_ended_before_reconcile_is_incomplete() {
    let mut schedule = schedule_with_settings(false, settings(1));
    let drained = [
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, succeeded_verdict()),
        ScheduleEvent::Requested(RunCommand::Drain),
        attempt_ended(1, 1, succeeded_verdict()),
    ];
    let trace = feed(
        &mut schedule,
        drained
            .into_iter()
            .chain([integrated(&[(0, 1, true), (1, 1, true)])]),
    );
    assert!(
        trace.ends_with("note: message \"not reconciled: the run is ending\" | SAVE without []"),
        "{trace}"
    );
    let trace = last(&mut schedule, [ScheduleEvent::Saved { ok: true }]);
    assert_eq!(
        trace,
        "END stopped succeeded=2 failed=0 stopped=0 not_run=1"
    );
    // It is the only unit that can be retried.
    insta::assert_snapshot!(feed(&mut schedule, [ScheduleEvent::Requested(RunCommand::RetryUnsuccessful), integration_report(vec![])]), @r"
    note u9/0: retry-requested 1 | INTEGRATE 
    start u9/1
    ");
}

#[test]
fn spent_budget_skips_the_reconcile_step() {
    let budget = ScheduleSettings {
        budget_usd: Some(0.5),
        ..settings(2)
    };
    let spent = || ScheduleEvent::CostUpdated { usd: 0.61 };
    let mut schedule = schedule_with_settings(false, budget);
    let units = [
        ScheduleEvent::RunStarted,
        attempt_ended(0, 1, succeeded_verdict()),
        spent(),
        attempt_ended(1, 1, succeeded_verdict()),
        integrated(&[(0, 1, true), (1, 1, true)]),
    ];
    let trace = feed(
        &mut schedule,
        units.into_iter().chain([
            ScheduleEvent::Saved { ok: true },
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
        ]),
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1


    INTEGRATE u0/1 u1/1
    note: message "not reconciled: the run's budget of $0.50 is spent ($0.61): nothing more starts; the run can be resumed" | SAVE without []
    END limit succeeded=2 failed=0 stopped=0 not_run=1
    note: message "the run's budget of $0.50 is spent ($0.61): nothing more starts; resume the run with a new budget"
    "#);
    // The budget also prevents a retry of the step.
    let mut schedule = schedule_with_settings(false, budget);
    let tries = [
        attempt_ended(9, 1, transient_verdict()),
        spent(),
        ScheduleEvent::TimerFired(TimerId(0)),
        ScheduleEvent::Saved { ok: true },
    ];
    insta::assert_snapshot!(feed(&mut schedule, units_succeeded().into_iter().chain(tries)), @r#"
    start u0/1 | start u1/1

    INTEGRATE u0/1 u1/1
    start u9/1
    note u9/1: retry-scheduled 2 1000ms | timer 0 1000ms

    note: message "not reconciled: the run's budget of $0.50 is spent ($0.61): nothing more starts; the run can be resumed" | SAVE without []
    END limit succeeded=2 failed=1 stopped=0 not_run=0
    "#);
    // The budget also prevents a step that reviews only results of a prior run.
    let mut schedule = schedule_with_settings(true, budget);
    let trace = last(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, failed_verdict()),
            spent(),
            attempt_ended(1, 1, failed_verdict()),
        ],
    );
    assert!(
        trace.starts_with(
            "note: message \"not reconciled: the run's budget of $0.50 is spent ($0.61)"
        ),
        "{trace}"
    );
    assert!(
        trace.ends_with("END limit succeeded=0 failed=2 stopped=0 not_run=1"),
        "{trace}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For any sequence of events, including requests for the reconcile step: units start outside of integrations, and
    /// the step starts only inside a successful one and never in a run that is ending; nothing counts as saved that was
    /// not integrated and saved; and automatic integrations end.
    #[test]
    fn reconcile_step_stays_within_its_integration(
        count in 0..5usize, slots in 1..4u32, due in any::<bool>(), steps in any_steps(),
        fates in prop::collection::vec(0..8u8, 1..40),
    ) {
        let mut schedule = schedule(count, settings(slots)).with_reconcile_step(key(9), due);
        let mut fates = fates.into_iter().cycle();
        let mut last: BTreeMap<UnitKey, (u32, AttemptOutcome)> = BTreeMap::new();
        let (mut saved, mut held) = (BTreeMap::new(), Vec::new());
        let (mut steps, mut replies) = (steps.iter(), 0);
        let mut input = Some(ScheduleEvent::RunStarted);
        while let Some(now) = input.take() {
            if let ScheduleEvent::AttemptEnded { unit, attempt, verdict, .. } = &now
                && schedule.in_flight().any(|flying| flying == (unit, *attempt)) {
                last.insert(unit.clone(), (*attempt, verdict.outcome));
            }
            let is_begun = |stage: RunStage| matches!(stage, RunStage::Integrating | RunStage::Reconciling | RunStage::Saving);
            let effects = schedule.handle(now);
            record_queued_stops(&effects, &mut last);
            for order in effects {
                match order {
                    ScheduleEffect::Integrate { units } => {
                        if !matches!(&units[..], [(unit, _)] if *unit == key(9)) {
                            held.clear();
                        }
                        let broken = fates.next() == Some(0);
                        let mut results = Vec::new();
                        for (unit, attempt) in units {
                            let ok = fates.next() != Some(1);
                            if ok { held.push((unit.clone(), attempt)) } else { last.insert(unit.clone(), (attempt, AttemptOutcome::Failed)); }
                            results.push(IntegratedUnit { unit, attempt, verdict: (!ok).then(failed_verdict), has_changes: fates.next() != Some(2) });
                        }
                        input = Some(ScheduleEvent::Integrated(IntegrationReport { results, ok: !broken }));
                        if broken {
                            held.clear();
                        }
                    }
                    ScheduleEffect::Save { .. } => {
                        let ok = fates.next() != Some(3) && !held.is_empty();
                        if ok {
                            saved.extend(held.drain(..));
                        }
                        input = Some(ScheduleEvent::Saved { ok });
                    }
                    ScheduleEffect::StartAttempt { unit, .. } => {
                        let wanted = if unit == key(9) { RunStage::Reconciling } else { RunStage::Running };
                        prop_assert_eq!(schedule.stage, wanted, "{} starts", unit);
                        prop_assert!(schedule.halt.is_none());
                    }
                    ScheduleEffect::EndRun(ended) => {
                        prop_assert!(!is_begun(schedule.stage));
                        held.clear();
                        let open = last.iter().filter(|(unit, (attempt, outcome))| {
                            **unit != key(9) && *outcome == AttemptOutcome::Succeeded && saved.get(*unit) != Some(attempt)
                        });
                        let open = open.count();
                        prop_assert!((open..=open + 1).contains(&(ended.unsaved as usize)), "{open}: {ended:?}");
                    }
                    ScheduleEffect::Project | ScheduleEffect::IntegrateAhead { .. } | ScheduleEffect::RequestReview | ScheduleEffect::StopAttempt { .. } | ScheduleEffect::SetTimer { .. } | ScheduleEffect::RecordNote { .. } | ScheduleEffect::MessageAttempt { .. } | ScheduleEffect::RequestAttempt { .. } => {}
                }
            }
            if input.is_some() {
                replies += 1;
                prop_assert!(replies < 1_000, "rounds without end");
            } else {
                input = steps.find_map(|step| to_event(&schedule, step));
            }
        }
    }
}
