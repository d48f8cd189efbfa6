//! Lanes, waits and the critical path of runs made by hand, and their properties for any run.

use std::{num::NonZeroU32, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    run::state::{AttemptSetup, HoldMode},
    tape::note::{PlannedUnit, RunPlanned},
};

const SECOND: u64 = 1000;

/// A unit with attempts from and to these seconds; the first output of each comes after a second.
fn unit(key: &str, first_id: u32, attempts: &[(u64, u64)]) -> UnitState {
    let attempts: Vec<AttemptState> = (first_id..)
        .zip(attempts)
        .map(|(id, (from, to))| AttemptState {
            id: AttemptId(id),
            started_at: Millis(from * SECOND),
            last_at: Millis(to * SECOND),
            ended_at: Some(Millis(to * SECOND)),
            setup: AttemptSetup {
                first_output_ms: NonZeroU32::new(1000),
                ..AttemptSetup::default()
            },
            ..AttemptState::default()
        })
        .collect();
    UnitState {
        key: key.into(),
        planned: Some(Arc::new(PlannedUnit {
            adapter: "dbt".into(),
            ..PlannedUnit::default()
        })),
        status: if attempts.is_empty() {
            UnitStatus::Queued
        } else {
            UnitStatus::Succeeded
        },
        attempts,
        retry_at: None,
        hold_mode: HoldMode::Off,
    }
}

/// A run of these units until `end`, whose plan was made after a second.
fn run(units: Vec<UnitState>, slots: u32, end: u64, changes: &[(u64, ScheduleChange)]) -> RunView {
    let planned = Some(Arc::new(RunPlanned {
        concurrency: slots,
        ..RunPlanned::default()
    }));
    let changes: Vec<(u64, ScheduleChange)> = [(1, ScheduleChange::Concurrency(slots))]
        .into_iter()
        .chain(changes.iter().copied())
        .collect();
    let schedule_changes = (0..)
        .zip(changes)
        .map(|(seq, (at, change))| RecordedChange {
            seq,
            at: Millis(at * SECOND),
            change,
        })
        .collect();
    let now = Millis(end * SECOND);
    let state = RunState {
        units,
        planned,
        entries: 1000,
        last_entry_at: now,
        clock: now,
        ..RunState::default()
    };
    RunView {
        state,
        schedule_changes,
        ..RunView::default()
    }
}

fn uses(lanes: &SlotLanes, index: usize) -> Vec<(&'static str, u64)> {
    listed(&lanes.attempts[index].uses)
}

fn listed(uses: &TimeUses) -> Vec<(&'static str, u64)> {
    let used = TimeUse::ALL
        .into_iter()
        .filter(|time_use| uses.get(*time_use) > Millis(0));
    used.map(|time_use| (time_use.label(), uses.get(time_use).0 / SECOND))
        .collect()
}

#[test]
fn queued_unit_waits_for_a_free_slot() {
    let units = vec![
        unit("a", 0, &[(2, 10)]),
        unit("b", 1, &[(2, 6)]),
        unit("c", 2, &[(7, 12)]),
    ];
    let lanes = SlotLanes::new(&run(units, 2, 12, &[]));
    assert_eq!(
        (
            lanes.lanes,
            lanes
                .attempts
                .iter()
                .map(|attempt| attempt.lane)
                .collect::<Vec<_>>()
        ),
        (2, vec![0, 1, 1])
    );
    // A slot was free for a second before it started.
    assert_eq!(
        uses(&lanes, 2),
        [("free slot", 4), ("other", 2), ("start-up", 1), ("work", 4)]
    );
    let path: Vec<_> = lanes
        .critical_path
        .iter()
        .map(|step| (step.attempt, listed(&step.uses)))
        .collect();
    assert_eq!(
        path,
        [
            (None, vec![("planning", 1), ("other", 1)]),
            (Some(1), vec![("start-up", 1), ("work", 3)]),
            (None, vec![("other", 1)]),
            (Some(2), vec![("start-up", 1), ("work", 4)]),
        ]
    );
    assert!(!lanes.attempts[0].is_on_critical_path && lanes.attempts[1].is_on_critical_path);
}

#[test]
fn limit_backoff_and_hold_are_separate() {
    let changes = [
        (
            4,
            ScheduleChange::RetryScheduled {
                unit: 0,
                due: Millis(8 * SECOND),
            },
        ),
        (9, ScheduleChange::LimitPaused),
        (15, ScheduleChange::LimitLifted),
        (18, ScheduleChange::CallHeld { attempt: 1 }),
        (19, ScheduleChange::CallHeld { attempt: 1 }),
        (20, ScheduleChange::CallDecided { attempt: 1 }),
        (22, ScheduleChange::CallDecided { attempt: 1 }),
    ];
    let lanes = SlotLanes::new(&run(
        vec![unit("a", 0, &[(1, 4), (16, 30)])],
        2,
        30,
        &changes,
    ));
    assert_eq!(
        uses(&lanes, 1),
        [
            ("limit", 6),
            ("backoff", 4),
            ("other", 2),
            ("start-up", 1),
            ("hold", 4),
            ("work", 9)
        ]
    );
    assert_eq!(
        lanes.attempts[1].holds,
        [(Millis(18 * SECOND), Millis(22 * SECOND))]
    );
    assert_eq!(lanes.pauses, [(Millis(9 * SECOND), Millis(15 * SECOND))]);
    let path: u64 = lanes
        .critical_path
        .iter()
        .map(|step| step.uses.total().0)
        .sum();
    assert_eq!((path, lanes.critical_path.len()), (30 * SECOND, 4));
    assert_eq!(
        lanes
            .attempts
            .iter()
            .map(|attempt| attempt.status)
            .collect::<Vec<_>>(),
        [UnitStatus::Interrupted, UnitStatus::Succeeded]
    );
}

#[test]
fn time_until_a_requested_retry_is_no_slot_wait() {
    let changes = [
        (10, ScheduleChange::RunEnded),
        (50, ScheduleChange::RetryRequested { unit: 0 }),
    ];
    let lanes = SlotLanes::new(&run(
        vec![unit("a", 0, &[(1, 8), (51, 60)])],
        1,
        60,
        &changes,
    ));
    assert_eq!(
        uses(&lanes, 1),
        [("other", 1), ("start-up", 1), ("work", 8)]
    );
    let gap = lanes
        .critical_path
        .iter()
        .find(|step| step.attempt.is_none())
        .map(|step| listed(&step.uses));
    assert_eq!(gap, Some(vec![("planning", 1)]));
    let before = &lanes.critical_path[lanes.critical_path.len() - 2];
    assert_eq!(listed(&before.uses), [("retry request", 42), ("other", 1)]);
}

#[test]
fn capture_without_plan_has_lanes_only() {
    let mut run_view = run(
        vec![unit("a", 0, &[(0, 5)]), unit("b", 1, &[(2, 7)])],
        1,
        7,
        &[],
    );
    (run_view.schedule_changes, run_view.state.planned) = (Vec::new(), None);
    let lanes = SlotLanes::new(&run_view);
    assert_eq!((lanes.lanes, lanes.critical_path.len()), (2, 0));
    assert_eq!(lanes.totals.get(TimeUse::Slot), Millis(0));
}

#[test]
fn open_attempt_ends_at_the_moment_of_the_view() {
    let mut running = unit("a", 0, &[(1, 4)]);
    running.status = UnitStatus::Running;
    (
        running.attempts[0].ended_at,
        running.attempts[0].setup.first_output_ms,
    ) = (None, None);
    let lanes = SlotLanes::new(&run(vec![running], 1, 20, &[]));
    assert_eq!(
        (lanes.attempts[0].to, lanes.end),
        (Millis(20 * SECOND), Millis(20 * SECOND))
    );
    assert_eq!(uses(&lanes, 0), [("start-up", 19)]);
}

fn change() -> impl Strategy<Value = ScheduleChange> {
    prop_oneof![
        (1..6_u32).prop_map(ScheduleChange::Concurrency),
        prop::option::of(1..3_u32).prop_map(ScheduleChange::Throttled),
        Just(ScheduleChange::LimitPaused),
        Just(ScheduleChange::LimitLifted),
        (0..12_u32, 0..200_000_u64).prop_map(|(unit, due)| ScheduleChange::RetryScheduled {
            unit,
            due: Millis(due)
        }),
        (0..12_u32).prop_map(|unit| ScheduleChange::RetryRequested { unit }),
        (0..30_u32).prop_map(|attempt| ScheduleChange::CallHeld { attempt }),
        (0..30_u32).prop_map(|attempt| ScheduleChange::CallDecided { attempt }),
        Just(ScheduleChange::RunEnded),
    ]
}

proptest! {
    #[test]
    fn lanes_hold_every_attempt_and_waits_add_up(
        units in prop::collection::vec(prop::collection::vec((0..150_u64, 0..40_u64), 0..4), 0..12),
        changes in prop::collection::vec((0..200_u64, change()), 0..20),
        slots in 1..6_u32,
    ) {
        let mut next = 0;
        let units: Vec<UnitState> = units.iter().enumerate().map(|(index, attempts)| {
            let attempts: Vec<_> = attempts.iter().map(|(from, took)| (*from, from + took)).collect();
            next += attempts.len() as u32;
            unit(&format!("u{index}"), next - attempts.len() as u32, &attempts)
        }).collect();
        let mut changes = changes;
        changes.sort_by_key(|(at, _)| *at);
        let lanes = SlotLanes::new(&run(units, slots, 200, &changes));
        let attempts = &lanes.attempts;
        // Every attempt is in exactly one lane, and none overlaps another one there.
        let mut ids: Vec<u32> = attempts.iter().map(|attempt| attempt.id.0).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..next).collect::<Vec<_>>());
        for (index, one) in attempts.iter().enumerate() {
            prop_assert!(one.lane < lanes.lanes);
            for other in attempts[..index].iter().filter(|other| other.lane == one.lane) {
                prop_assert!(other.to <= one.from || one.to <= other.from, "{one:?} {other:?}");
            }
        }
        // No more lanes than attempts that ran at the same time.
        let running = |at: Millis| attempts.iter().filter(|other| other.from <= at && at < other.to.max(Millis(other.from.0 + 1))).count();
        let most = attempts.iter().map(|attempt| running(attempt.from)).max().unwrap_or_default();
        prop_assert!(lanes.lanes <= most, "{} lanes, {most} attempts", lanes.lanes);
        // The parts add up, for each attempt and on the critical path.
        for attempt in attempts {
            let part = |is_before| TimeUse::ALL.into_iter()
                .filter(|time_use| time_use.is_before_start() == is_before)
                .map(|time_use| attempt.uses.get(time_use).0).sum::<u64>();
            prop_assert_eq!(part(true), attempt.from.since(attempt.gate.pending_since).0);
            prop_assert_eq!(part(false), attempt.to.since(attempt.from).0);
        }
        let path: u64 = lanes.critical_path.iter().map(|step| step.uses.total().0).sum();
        prop_assert_eq!(path, if attempts.is_empty() { 0 } else { lanes.end.0 });
        prop_assert_eq!(lanes.totals.total().0, attempts.iter().map(|attempt| attempt.uses.total().0).sum::<u64>());
    }
}
