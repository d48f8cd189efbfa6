//! Runs whose attempts write patches.

use std::collections::BTreeMap;

use super::{
    oracle::{any_steps, to_event},
    *,
};

pub(super) fn schedule(units: usize, settings: ScheduleSettings) -> Schedule {
    Schedule::new(
        keys(units),
        ScheduleSettings {
            integrates_patches: true,
            ..settings
        },
    )
}

pub(super) fn integrated(results: &[(usize, u32, bool)]) -> ScheduleEvent {
    let one = |(n, attempt, ok): &(usize, u32, bool)| IntegratedUnit {
        unit: key(*n),
        attempt: *attempt,
        verdict: (!ok).then(|| verdict(AttemptOutcome::Failed, VerdictCause::Conflict)),
        has_changes: true,
    };
    integration_report(results.iter().map(one).collect())
}

pub(super) fn integration_report(results: Vec<IntegratedUnit>) -> ScheduleEvent {
    ScheduleEvent::Integrated(IntegrationReport { results, ok: true })
}

/// The integration failed after these results.
pub(super) fn failed_integration(results: &[(usize, u32, bool)]) -> ScheduleEvent {
    let ScheduleEvent::Integrated(IntegrationReport { results, .. }) = integrated(results) else {
        unreachable!()
    };
    ScheduleEvent::Integrated(IntegrationReport { results, ok: false })
}

pub(super) fn retry(n: usize) -> ScheduleEvent {
    ScheduleEvent::Requested(RunCommand::Retry {
        unit: key(n),
        amendment: None,
    })
}

#[test]
fn patches_are_integrated_once_all_units_settle() {
    let mut schedule = schedule(3, settings(3));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(2, 1, succeeded_verdict()),
            attempt_ended(1, 1, failed_verdict()),
            ScheduleEvent::Saved { ok: true },
            attempt_ended(0, 1, succeeded_verdict()),
            integrated(&[(0, 1, true), (2, 1, false)]),
            integrated(&[(0, 1, false)]),
            ScheduleEvent::Saved { ok: true },
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1 | start u2/1



    INTEGRATE u0/1 u2/1
    SAVE without [u1 u2]

    END partial succeeded=1 failed=2 stopped=0 not_run=0
    ");
}

#[test]
fn retry_after_the_end_is_integrated_separately() {
    let mut schedule = schedule(2, settings(2));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 1, succeeded_verdict()),
            integrated(&[(0, 1, true), (1, 1, false)]),
            ScheduleEvent::Saved { ok: true },
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            attempt_ended(1, 2, succeeded_verdict()),
            integrated(&[(1, 2, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1

    INTEGRATE u0/1 u1/1
    SAVE without [u1]
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    note u1/1: retry-requested 2 | start u1/2
    INTEGRATE u1/2
    SAVE without []
    END done succeeded=2 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn requests_during_integration_wait() {
    let mut schedule = schedule(2, settings(2));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 1, failed_verdict()),
            retry(1),
            integrated(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: true },
            attempt_ended(1, 2, succeeded_verdict()),
            integrated(&[(1, 2, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1 | start u1/1

    INTEGRATE u0/1
    note u1/1: retry-requested 2
    SAVE without [u1]
    start u1/2
    INTEGRATE u1/2
    SAVE without []
    END done succeeded=2 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn saving_again_ignores_the_budget() {
    let mut schedule = schedule(
        2,
        ScheduleSettings {
            budget_usd: Some(0.5),
            ..settings(1)
        },
    );
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            ScheduleEvent::CostUpdated { usd: 0.6 },
            attempt_ended(0, 1, succeeded_verdict()),
            integrated(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: false },
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            integrated(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    assert!(
        trace.contains("resume the run with a new budget\" | INTEGRATE u0/1\nSAVE"),
        "{trace}"
    );
    assert!(
        trace.ends_with("END limit succeeded=1 failed=0 stopped=0 not_run=1"),
        "{trace}"
    );
}

#[test]
fn failed_save_is_retried_on_request() {
    let mut schedule = schedule(1, settings(1));
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            integrated(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: false },
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
            integrated(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: true },
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    start u0/1
    INTEGRATE u0/1
    SAVE without []
    END error succeeded=1 failed=0 stopped=0 not_run=0 unsaved=1
    INTEGRATE u0/1
    SAVE without []
    END done succeeded=1 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn stop_saves_results_and_kill_does_not() {
    let stopped = || verdict(AttemptOutcome::Stopped, VerdictCause::Cancelled);
    let mut stop = schedule(3, settings(2));
    let trace = feed(
        &mut stop,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            ScheduleEvent::Requested(RunCommand::StopAll),
            attempt_ended(1, 1, stopped()),
            attempt_ended(2, 1, stopped()),
            integrated(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1
    start u2/1
    note: stop-requested stop | stop u1/1 | stop u2/1

    INTEGRATE u0/1
    SAVE without [u1 u2]
    END stopped succeeded=1 failed=0 stopped=2 not_run=0
    "#);
    let mut kill = schedule(2, settings(2));
    let trace = feed(
        &mut kill,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            ScheduleEvent::Requested(RunCommand::KillAll),
            attempt_ended(1, 1, stopped()),
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1 | start u1/1

    note: stop-requested kill | kill u1/1
    note: message "1 patch is kept and not put on the branch: the run was killed" | END stopped succeeded=1 failed=0 stopped=1 not_run=0 unsaved=1
    "#);
}

#[test]
fn aborted_run_keeps_patches_for_a_later_retry() {
    let mut schedule = schedule(
        2,
        ScheduleSettings {
            failure_mode: FailureMode::Abort,
            ..settings(1)
        },
    );
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 1, failed_verdict()),
            retry(1),
            attempt_ended(1, 2, succeeded_verdict()),
            integrated(&[(0, 1, true), (1, 2, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace, @r#"
    start u0/1
    start u1/1
    note: message "u1 failed, and the failure mode is abort: the run stops" | note: message "1 patch is kept and not put on the branch: a unit failed, and the failure mode is abort" | END error succeeded=1 failed=1 stopped=0 not_run=0 unsaved=1
    note u1/1: retry-requested 2 | start u1/2
    INTEGRATE u0/1 u1/2
    SAVE without []
    END done succeeded=2 failed=0 stopped=0 not_run=0
    "#);
}

/// A unit that is stopped before its attempt starts has this as its last outcome.
pub(super) fn record_queued_stops(
    effects: &[ScheduleEffect],
    last: &mut BTreeMap<UnitKey, (u32, AttemptOutcome)>,
) {
    if let [
        ScheduleEffect::RecordNote {
            attempt: Some((unit, attempt)),
            note: Note::StopRequested { .. },
        },
        rest @ ..,
    ] = effects
        && !rest
            .iter()
            .any(|order| matches!(order, ScheduleEffect::StopAttempt { .. }))
    {
        last.insert(unit.clone(), (*attempt, AttemptOutcome::Stopped));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For any sequence of events: only successes are integrated, in plan order and each in at most one saved
    /// integration; nothing runs meanwhile; and the run reports what is not saved.
    #[test]
    fn every_success_is_saved_once(
        count in 0..6usize, slots in 1..4u32, steps in any_steps(), fates in prop::collection::vec(0..8u8, 1..40),
    ) {
        let mut schedule = schedule(count, settings(slots));
        let mut fates = fates.into_iter().cycle();
        let mut last: BTreeMap<UnitKey, (u32, AttemptOutcome)> = BTreeMap::new();
        let mut saved: BTreeMap<UnitKey, u32> = BTreeMap::new();
        let (mut round, mut taken_now) = (None, Vec::new());
        let mut steps = steps.iter();
        let mut input = Some(ScheduleEvent::RunStarted);
        while let Some(now) = input.take() {
            if let ScheduleEvent::AttemptEnded { unit, attempt, verdict, .. } = &now
                && schedule.in_flight().any(|flying| flying == (unit, *attempt)) {
                last.insert(unit.clone(), (*attempt, verdict.outcome));
            }
            let mut next = None;
            let effects = schedule.handle(now);
            record_queued_stops(&effects, &mut last);
            for order in effects {
                match order {
                    ScheduleEffect::Integrate { units } => {
                        prop_assert!(!units.is_empty() && schedule.in_flight().next().is_none());
                        prop_assert!(units.is_sorted());
                        for (unit, attempt) in &units {
                            prop_assert_eq!(last.get(unit), Some(&(*attempt, AttemptOutcome::Succeeded)));
                            prop_assert_ne!(saved.get(unit), Some(attempt), "saved twice");
                        }
                        round = Some(units);
                    }
                    ScheduleEffect::Save { failed } => {
                        prop_assert!(failed.iter().all(|unit| last[unit].1 != AttemptOutcome::Succeeded));
                        let ok = fates.next() != Some(0);
                        if ok {
                            saved.extend(taken_now.drain(..));
                        }
                        next = Some(ScheduleEvent::Saved { ok });
                    }
                    ScheduleEffect::StartAttempt { unit, .. } => {
                        prop_assert!(round.is_none(), "{unit} starts while patches are put together");
                    }
                    ScheduleEffect::EndRun(ended) => {
                        // A person killed the run while patches were integrated.
                        round = None;
                        let unsaved = last.iter().filter(|(unit, (attempt, outcome))| {
                            *outcome == AttemptOutcome::Succeeded && saved.get(*unit) != Some(attempt)
                        });
                        prop_assert_eq!(ended.unsaved as usize, unsaved.count());
                    }
                    ScheduleEffect::Project | ScheduleEffect::IntegrateAhead { .. } | ScheduleEffect::RequestReview | ScheduleEffect::StopAttempt { .. } | ScheduleEffect::SetTimer { .. } | ScheduleEffect::RecordNote { .. } | ScheduleEffect::MessageAttempt { .. } | ScheduleEffect::RequestAttempt { .. } => {}
                }
            }
            if matches!(next, Some(ScheduleEvent::Saved { .. })) {
                round = None;
            } else if let Some(units) = &round {
                // Further requests arrive meanwhile.
                if let Some(asked) = steps.next().and_then(|step| to_event(&schedule, step)) {
                    record_queued_stops(&schedule.handle(asked), &mut last);
                }
                taken_now.clear();
                let result = |(unit, attempt): &(UnitKey, u32)| {
                    let ok = fates.next() != Some(1);
                    if ok { taken_now.push((unit.clone(), *attempt)) } else { last.insert(unit.clone(), (*attempt, AttemptOutcome::Failed)); }
                    IntegratedUnit { unit: unit.clone(), attempt: *attempt, verdict: (!ok).then(failed_verdict), has_changes: *attempt > 0 }
                };
                next = Some(integration_report(units.iter().map(result).collect()));
            }
            input = next.or_else(|| steps.find_map(|step| to_event(&schedule, step)));
        }
    }
}

fn saving_between_units(units: usize, slots: u32) -> Schedule {
    schedule(
        units,
        ScheduleSettings {
            saves_between_units: true,
            ..settings(slots)
        },
    )
}

#[test]
fn units_wait_until_earlier_ones_are_saved() {
    let mut schedule = saving_between_units(4, 2);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            attempt_ended(1, 1, failed_verdict()),
            integrated(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: true },
            attempt_ended(2, 1, failed_verdict()),
            attempt_ended(3, 1, succeeded_verdict()),
            integrated(&[(3, 1, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace);
}

#[test]
fn failed_save_between_units_is_repeated_at_the_end() {
    let mut schedule = saving_between_units(2, 1);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            failed_integration(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: false },
            attempt_ended(1, 1, succeeded_verdict()),
            integrated(&[(0, 1, true), (1, 1, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace);
}

#[test]
fn stopped_run_saves_the_finished_units() {
    let mut schedule = saving_between_units(3, 1);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            ScheduleEvent::Requested(RunCommand::StopAll),
            integrated(&[(0, 1, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    insta::assert_snapshot!(trace);
}
