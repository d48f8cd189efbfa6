//! Patches that are integrated while units run.

use super::{
    oracle::{any_steps, to_event},
    settle::{integrated, retry, schedule},
    *,
};

fn ahead(count: usize, slots: u32) -> Schedule {
    let settings = ScheduleSettings {
        integrates_ahead: true,
        ..settings(slots)
    };
    schedule(count, settings)
}

#[test]
fn patches_of_the_first_units_are_announced() {
    let mut schedule = ahead(5, 3);
    let trace = feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(1, 1, succeeded_verdict()),
            attempt_ended(0, 1, failed_verdict()),
            attempt_ended(2, 1, succeeded_verdict()),
            // The plan has it before the others, so they are taken back.
            retry(0),
            attempt_ended(3, 1, succeeded_verdict()),
            attempt_ended(0, 2, succeeded_verdict()),
            retry(2),
            attempt_ended(2, 2, succeeded_verdict()),
            attempt_ended(4, 1, succeeded_verdict()),
            integrated(&[(0, 2, true)]),
            ScheduleEvent::Saved { ok: true },
        ],
    );
    assert_eq!(
        trace,
        "start u0/1 | start u1/1 | start u2/1\n\
         start u3/1\n\
         start u4/1 | AHEAD of 0: u1/1\n\
         AHEAD of 1: u2/1\n\
         note u0/1: retry-requested 2 | start u0/2\n\
         \n\
         AHEAD of 0: u0/2 u1/1 u2/1 u3/1\n\
         note u2/1: retry-requested 2 | start u2/2\n\
         AHEAD of 2: u2/2 u3/1\n\
         INTEGRATE u0/2 u1/1 u2/2 u3/1 u4/1\n\
         SAVE without []\n\
         END partial succeeded=5 failed=0 stopped=0 not_run=0 unsaved=4"
    );
}

#[test]
fn nothing_is_announced_after_an_abort() {
    let settings = ScheduleSettings {
        failure_mode: FailureMode::Abort,
        integrates_ahead: true,
        ..settings(3)
    };
    let mut schedule = schedule(3, settings);
    schedule.handle(ScheduleEvent::RunStarted);
    let trace = feed(
        &mut schedule,
        [
            attempt_ended(2, 1, failed_verdict()),
            attempt_ended(0, 1, succeeded_verdict()),
        ],
    );
    assert!(!trace.contains("AHEAD"), "{trace}");
}

/// The unsaved successes before the first unit that may still write.
fn settled_first(schedule: &Schedule) -> Vec<(UnitKey, u32)> {
    let units = schedule.table.units().iter().enumerate();
    units
        .take_while(|(_, unit)| unit.phase == UnitPhase::Settled)
        .filter(|(at, _)| schedule.table.is_unsaved(*at))
        .map(|(_, unit)| (unit.key.clone(), unit.attempts))
        .collect()
}

proptest! {
    /// For any sequence of events, what is announced are the patches that come first, and nothing else changes.
    #[test]
    fn announcements_follow_the_plan(
        count in 0..6usize, slots in 1..4u32, abort: bool, steps in any_steps(),
    ) {
        let failure_mode = if abort { FailureMode::Abort } else { FailureMode::Continue };
        let at_end = ScheduleSettings { failure_mode, ..settings(slots) };
        let mut plain = schedule(count, at_end);
        let mut schedule = schedule(count, ScheduleSettings { integrates_ahead: true, ..at_end });
        let mut announced = Vec::new();
        let mut inputs: Vec<ScheduleEvent> = vec![ScheduleEvent::RunStarted];
        let mut steps = steps.iter();
        while let Some(input) = inputs.pop().or_else(|| {
            steps.find_map(|step| to_event(&schedule, step))
        }) {
            let wanted = plain.handle(input.clone());
            let mut effects = schedule.handle(input);
            effects.retain(|effect| match effect {
                ScheduleEffect::IntegrateAhead { kept, units } => {
                    assert!(*kept <= announced.len() && !units.is_empty());
                    announced.truncate(*kept);
                    announced.extend(units.iter().cloned());
                    false
                }
                ScheduleEffect::Integrate { units } => {
                    let results = units.iter().map(|(unit, attempt)| IntegratedUnit {
                        unit: unit.clone(),
                        attempt: *attempt,
                        verdict: None,
                        has_changes: true,
                    });
                    let report = IntegrationReport { results: results.collect(), ok: true };
                    inputs.push(ScheduleEvent::Integrated(report));
                    announced.clear();
                    true
                }
                ScheduleEffect::Save { .. } => {
                    inputs.push(ScheduleEvent::Saved { ok: true });
                    true
                }
                _ => true,
            });
            prop_assert_eq!(effects, wanted);
            if schedule.stage == RunStage::Running && schedule.patches_kept_reason().is_none() {
                let first = settled_first(&schedule);
                // Patches after a unit that runs again are taken back with the next announcement.
                prop_assert!(announced.starts_with(&first), "{:?} {:?}", announced, first);
                prop_assert!(announced.len() == first.len() || schedule.table.units().iter().any(|unit| unit.attempts > 1 || unit.phase != UnitPhase::Settled));
            }
        }
    }
}
