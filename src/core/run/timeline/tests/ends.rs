//! The status of units after the run has ended, or where its tape ends without the end of the run.

use super::*;
use crate::{
    run::OutcomeDetail,
    tape::note::{ContinuedRun, PriorUnitSummary, ReusedSuccess, RunEnded, StopMode},
};

fn plan(units: &[&str]) -> RecordedEntry {
    let unit = |unit: &&str| PlannedUnit {
        unit: (*unit).into(),
        ..PlannedUnit::default()
    };
    let earlier = |unit: &str| {
        let reused = ReusedSuccess {
            attempt: 1,
            is_budget_exhausted: false,
            content: Default::default(),
            pending_patch: None,
            output: Default::default(),
        };
        let run = crate::tape::RunId(uuid::Uuid::from_u128(1));
        (
            UnitKey::from(unit),
            PriorUnitSummary {
                run,
                attempts: 1,
                cost_usd: None,
                reused: Some(reused),
            },
        )
    };
    let reused: Vec<&str> = units
        .iter()
        .copied()
        .filter(|unit| unit.starts_with("old"))
        .collect();
    let continues = (!reused.is_empty()).then(|| ContinuedRun {
        run: crate::tape::RunId(uuid::Uuid::from_u128(1)),
        outcome: None,
        cost_usd: None,
        units: reused.into_iter().map(earlier).collect(),
        unreconciled: Default::default(),
    });
    let units = units.iter().map(unit).collect();
    note(
        None,
        &Note::RunPlanned(Box::new(RunPlanned {
            units,
            continues,
            ..RunPlanned::default()
        })),
    )
}

fn started(unit: &str, number: u32) -> RecordedEntry {
    note(Some((unit, number)), &Note::AttemptStarted(Box::default()))
}

fn over(unit: &str, number: u32, outcome: AttemptOutcome) -> RecordedEntry {
    note(Some((unit, number)), &ended(outcome))
}

fn waits(unit: &str, next: u32) -> RecordedEntry {
    let cause = VerdictCause::UsageLimit { resets_at: None };
    note(
        Some((unit, next - 1)),
        &Note::RetryScheduled {
            next,
            delay_ms: 5_000,
            cause,
        },
    )
}

fn asked(unit: &str, next: u32) -> RecordedEntry {
    note(
        Some((unit, next - 1)),
        &Note::RetryRequested {
            next,
            amendment: None,
        },
    )
}

fn stopped(unit: &str, number: u32) -> RecordedEntry {
    note(
        Some((unit, number)),
        &Note::StopRequested {
            how: StopMode::Stop,
        },
    )
}

fn run_stopped(how: StopMode) -> RecordedEntry {
    note(None, &Note::StopRequested { how })
}

fn run_ended() -> RecordedEntry {
    note(
        None,
        &Note::RunEnded(RunEnded {
            outcome: "limit".into(),
            ..RunEnded::default()
        }),
    )
}

type UnitStatuses = Vec<(String, UnitStatus, Option<Millis>)>;

fn unit_statuses(timeline: &Timeline) -> UnitStatuses {
    timeline
        .view()
        .state
        .units
        .iter()
        .map(|unit| (unit.key.to_string(), unit.status, unit.retry_at))
        .collect()
}

/// Returns the statuses while the tape may still grow.
fn statuses_while_running(mut entries: Vec<RecordedEntry>) -> UnitStatuses {
    let length = entries.len() as u64;
    entries.push(note(None, &Note::LimitLifted));
    let mut timeline = timeline(entries, 1, false);
    timeline.seek(length).unwrap();
    unit_statuses(&timeline)
}

/// Returns the statuses at the end of a tape, after checking them against the emitted statuses.
fn statuses_at_end(entries: Vec<RecordedEntry>) -> UnitStatuses {
    let mut timeline = timeline(entries, 3, false);
    let mut last_emitted = std::collections::HashMap::new();
    let mut emit = |emitted: SinkEvent<'_>| {
        if let SinkEvent::Unit { unit, status, .. } = emitted {
            last_emitted.insert(unit.to_owned(), status);
        }
    };
    while timeline.advance(1, &mut emit).unwrap() == PollStatus::More {}
    let statuses = unit_statuses(&timeline);
    assert!(
        statuses
            .iter()
            .all(|(unit, status, _)| last_emitted.get(unit) == Some(status)),
        "{statuses:?} is not {last_emitted:?}"
    );
    statuses
}

fn final_statuses(units: &[(&str, UnitStatus)]) -> UnitStatuses {
    units
        .iter()
        .map(|(unit, status)| ((*unit).to_owned(), *status, None))
        .collect()
}

#[test]
fn stop_request_stops_units_that_have_not_started() {
    let run = vec![
        plan(&["queued", "waits", "starts", "runs", "again"]),
        started("waits", 1),
        over("waits", 1, AttemptOutcome::Failed),
        waits("waits", 2),
        started("again", 1),
        over("again", 1, AttemptOutcome::Failed),
        asked("again", 2),
        started("runs", 1),
        stopped("queued", 0),
        stopped("waits", 1),
        stopped("again", 1),
        // Its first attempt is being prepared; the tape records its result later.
        stopped("starts", 1),
        stopped("runs", 1),
        note(None, &Note::LimitLifted),
    ];
    use UnitStatus::{Queued, Running, Stopped};
    let expected = [
        ("queued", Stopped),
        ("waits", Stopped),
        ("starts", Queued),
        ("runs", Running),
        ("again", Stopped),
    ];
    assert_eq!(statuses_while_running(run), final_statuses(&expected));
}

#[test]
fn ended_run_leaves_no_unit_waiting() {
    let run = || {
        vec![
            plan(&["good", "waits", "again", "untried", "old"]),
            started("good", 1),
            over("good", 1, AttemptOutcome::Succeeded),
            started("waits", 1),
            over("waits", 1, AttemptOutcome::Failed),
            waits("waits", 2),
            started("again", 1),
            over("again", 1, AttemptOutcome::Failed),
            asked("again", 2),
            asked("good", 2),
            note(
                Some(("old", 0)),
                &Note::RetryRequested {
                    next: 1,
                    amendment: None,
                },
            ),
            run_ended(),
        ]
    };
    use UnitStatus::{Failed, NotStarted, Queued, Reused, Succeeded};
    let expected = [
        ("good", Succeeded),
        ("waits", Failed),
        ("again", Failed),
        ("untried", NotStarted),
        ("old", Reused),
    ];
    assert_eq!(statuses_while_running(run()), final_statuses(&expected));
    assert_eq!(statuses_at_end(run()), final_statuses(&expected));
    // A request for another attempt does not start the units that were not requested.
    let more = [run(), vec![asked("waits", 2)]].concat();
    let expected = [
        ("good", Succeeded),
        ("waits", Queued),
        ("again", Failed),
        ("untried", NotStarted),
        ("old", Reused),
    ];
    assert_eq!(statuses_while_running(more), final_statuses(&expected));
}

#[test]
fn truncated_tape_leaves_no_unit_waiting() {
    let run = vec![
        plan(&["waits", "queued"]),
        started("waits", 1),
        over("waits", 1, AttemptOutcome::Failed),
        waits("waits", 2),
    ];
    assert_eq!(
        statuses_at_end(run),
        final_statuses(&[
            ("waits", UnitStatus::Interrupted),
            ("queued", UnitStatus::NotStarted)
        ])
    );
}

#[test]
fn step_that_never_began_is_a_unit_without_a_turn() {
    let planned = |job: &str| {
        note(
            None,
            &Note::RunPlanned(Box::new(RunPlanned {
                job: job.into(),
                ..RunPlanned::default()
            })),
        )
    };
    let ended = |not_run| {
        note(
            None,
            &Note::RunEnded(RunEnded {
                not_run,
                ..RunEnded::default()
            }),
        )
    };
    let untried = final_statuses(&[("reconcile", UnitStatus::NotStarted)]);
    assert_eq!(
        statuses_while_running(vec![planned("job"), ended(1)]),
        untried
    );
    assert_eq!(statuses_at_end(vec![planned("job"), ended(1)]), untried);
    assert_eq!(
        statuses_at_end(vec![planned("job")]),
        untried,
        "the tape ends before the run"
    );
    assert_eq!(
        statuses_while_running(vec![planned("job")]),
        final_statuses(&[]),
        "it may still begin"
    );
    assert_eq!(
        statuses_at_end(vec![planned("job"), ended(0)]),
        final_statuses(&[]),
        "it is done"
    );
    assert_eq!(
        statuses_at_end(vec![planned("")]),
        final_statuses(&[]),
        "a tape of another program"
    );
    let begun = vec![
        planned("job"),
        ended(1),
        asked("reconcile", 1),
        started("reconcile", 1),
    ];
    assert_eq!(
        statuses_while_running(begun),
        final_statuses(&[("reconcile", UnitStatus::Running)])
    );
}

/// Covers a declined call, a failed one, a successful one, and two that were cut short by a stop. One of the latter has
/// a result, which the agent derives from the interrupt.
#[test]
fn call_events_carry_the_outcome_detail() {
    let declined = |id: &str| Note::ToolDeclined {
        tool: "read_raw_file".into(),
        tool_use_id: Some(id.into()),
        message: "no".into(),
    };
    let entries = vec![
        out("a", 1, INIT),
        out("a", 1, &call("t1")),
        note(Some(("a", 1)), &declined("t1")),
        note(Some(("a", 1)), &declined("t1")),
        out("a", 1, &answer("t1", false)),
        out("a", 1, &call("t2")),
        out("a", 1, &answer("t2", true)),
        out("a", 1, &call("t3")),
        out("a", 1, &answer("t3", false)),
        out("a", 1, &call("t4")),
        out("a", 1, &call("t5")),
        stopped("a", 1),
        out("a", 1, &answer("t4", true)),
        over("a", 1, AttemptOutcome::Stopped),
        // The tape ends while the attempt runs.
        started("b", 1),
        out("b", 1, INIT),
        out("b", 1, &call("t6")),
    ];
    let mut timeline = timeline(entries, 3, false);
    let (mut outcomes, mut builder) = (Vec::new(), crate::run::report::ReportBuilder::default());
    let mut emit = |emitted: SinkEvent<'_>| {
        builder.observe(&emitted);
        if let SinkEvent::Agent {
            event: crate::actions::AgentEvent::Action(event),
            outcome_detail,
            ..
        } = &emitted
            && event.phase == crate::actions::ActionPhase::Completed
        {
            outcomes.push((event.action.id.to_string(), event.ok, *outcome_detail));
        }
    };
    while timeline.advance(1, &mut emit).unwrap() == PollStatus::More {}
    let (cut, declined) = (Some(OutcomeDetail::Aborted), Some(OutcomeDetail::Declined));
    let expected = [
        ("t1", Some(true), declined),
        ("t2", Some(false), None),
        ("t3", Some(true), None),
        ("t4", Some(false), cut),
        ("t5", Some(false), cut),
    ];
    let outcomes: Vec<_> = outcomes
        .iter()
        .map(|(id, ok, outcome_detail)| (id.as_str(), *ok, *outcome_detail))
        .collect();
    assert_eq!(outcomes[..5], expected, "`ok` comes from the result");
    let view = timeline.view();
    let attempt = &view.state.units[0].attempts[0];
    assert_eq!(
        (
            attempt.counts.declined,
            attempt.counts.failures,
            attempt.counts.calls
        ),
        (1, 1, 5)
    );
    let rows = view
        .rows(attempt.id)
        .iter()
        .filter(|row| row.kind == RowKind::Tool);
    let ends: Vec<RowOutcome> = rows.map(|row| row.end(view.state.entries)).collect();
    assert_eq!(
        ends,
        [
            RowOutcome::Declined,
            RowOutcome::Failed,
            RowOutcome::Ok,
            RowOutcome::Aborted,
            RowOutcome::Aborted
        ]
    );
    let report = builder.finish(timeline.source().info(), timeline.view(), false);
    let made = |at: usize| {
        report.units[at].attempts[0]
            .tools
            .values()
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        made(0),
        [crate::run::report::ToolCallCounts {
            total: 5,
            failed: 1,
            declined: 1,
            aborted: 2
        }]
    );
    assert_eq!(
        made(1),
        [crate::run::report::ToolCallCounts {
            total: 1,
            failed: 0,
            declined: 0,
            aborted: 1
        }]
    );
    assert_eq!(report.units[0].attempts[0].failed_calls.len(), 1);
}

#[test]
fn stop_all_aborts_running_units_and_drain_does_not() {
    for (how, end) in [
        (StopMode::Drain, RowOutcome::Failed),
        (StopMode::Stop, RowOutcome::Aborted),
        (StopMode::Kill, RowOutcome::Aborted),
    ] {
        let entries = vec![
            started("a", 1),
            out("a", 1, INIT),
            out("a", 1, &call("t1")),
            run_stopped(how),
            out("a", 1, &answer("t1", true)),
            over("a", 1, AttemptOutcome::Stopped),
        ];
        let timeline = played(timeline(entries, 2, false));
        let view = timeline.view();
        let mut rows = view.rows(view.state.units[0].attempts[0].id).iter();
        assert_eq!(
            rows.find(|row| row.kind == RowKind::Tool)
                .unwrap()
                .end(view.state.entries),
            end,
            "{how:?}"
        );
    }
}
