//! Tables of what is heard, and what holds whatever is heard.

use proptest::prelude::*;

use super::*;
use LimitStatus::{Allowed, Rejected, Warning};

fn seen(name: &str, status: LimitStatus, utilization: Option<f64>, resets_in_ms: Option<u64>) -> Observed {
    Observed { at: Millis(5_000), name: name.into(), status, utilization, resets_in_ms }
}

fn paused(wait_ms: u64) -> Change {
    Change::Paused { wait_ms, until: Some(Millis(5_000 + wait_ms)) }
}

fn blind(wait_ms: u64) -> Change {
    Change::Paused { wait_ms, until: None }
}

#[test]
fn pressure_of_any_window_throttles_until_all_are_well() {
    let mut governor = Governor::default();
    assert_eq!(governor.observe(&seen("five_hour", Allowed, Some(0.79), None)), Change::Same);
    assert_eq!(governor.observe(&seen("five_hour", Allowed, Some(0.8), None)), Change::Throttled(1));
    assert_eq!(governor.slots(4), 1);
    assert_eq!(governor.observe(&seen("seven_day", Warning, None, None)), Change::Same);
    assert_eq!(governor.observe(&seen("five_hour", Allowed, Some(0.1), None)), Change::Same);
    assert_eq!(governor.observe(&seen("seven_day", Allowed, Some(f64::NAN), None)), Change::Restored);
    assert_eq!(governor.slots(4), 4);
}

#[test]
fn the_project_says_where_pressure_begins_and_what_it_leaves() {
    let pacing = Pacing { threshold: 0.5, slots_under_pressure: 2, ..Pacing::default() };
    let mut governor = Governor::new(pacing);
    assert_eq!(governor.observe(&seen("five_hour", Allowed, Some(0.5), None)), Change::Throttled(2));
    assert_eq!((governor.slots(6), governor.slots(1)), (2, 1));
    let mut none = Governor::new(Pacing { slots_under_pressure: 0, ..pacing });
    assert_eq!(none.observe(&seen("five_hour", Warning, None, None)), Change::Throttled(1), "a run never starves");
}

#[test]
fn requests_that_were_turned_away_press_until_something_gets_through() {
    let mut governor = Governor::default();
    assert_eq!(governor.observe(&seen(REQUESTS, Warning, None, None)), Change::Throttled(1));
    assert_eq!(governor.observe(&seen("five_hour", Allowed, None, None)), Change::Same);
    assert_eq!(governor.passed(), Change::Restored);
    assert_eq!(governor.passed(), Change::Same);
}

#[test]
fn a_spent_window_pauses_until_its_reset_and_only_a_later_one_prolongs() {
    let mut governor = Governor::default();
    assert_eq!(governor.observe(&seen("five_hour", Rejected, None, Some(90_000))), paused(90_000));
    assert_eq!(governor.observe(&seen("five_hour", Rejected, None, Some(80_000))), Change::Same);
    assert_eq!(governor.observe(&seen("five_hour", Rejected, None, None)), Change::Same);
    assert_eq!(governor.observe(&seen("seven_day", Rejected, None, Some(95_000))), paused(95_000));
    assert_eq!(governor.hit(), Change::Same);
    assert_eq!(governor.wait_ms(), 95_000);
    governor.lift();
    assert!(!governor.is_paused());
}

#[test]
fn a_limit_without_a_reset_waits_longer_each_time_until_something_passes() {
    let mut governor = Governor::default();
    let mut hit = || {
        let change = governor.hit();
        governor.lift();
        change
    };
    let waits: Vec<Change> = (0..8).map(|_| hit()).collect();
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000].map(blind));
    governor.passed();
    assert_eq!(governor.observe(&seen("five_hour", Rejected, None, None)), blind(1_000));
    assert_eq!(governor.observe(&seen("five_hour", Rejected, None, Some(70_000))), paused(70_000), "now it is known");
}

#[test]
fn resets_in_the_past_are_no_hot_loop() {
    let mut governor = Governor::default();
    let mut waits = || {
        let change = governor.observe(&seen("x", Rejected, None, Some(0)));
        governor.lift();
        change
    };
    assert_eq!([waits(), waits(), waits()], [1_000, 2_000, 4_000].map(paused));
}

#[test]
fn nobody_waits_longer_than_they_want() {
    let mut governor = Governor::new(Pacing { max_wait_ms: Some(1_500), ..Pacing::default() });
    assert_eq!(governor.observe(&seen("five_hour", Rejected, None, Some(1_501))), Change::TooLate);
    assert!(!governor.is_paused());
    assert_eq!(governor.observe(&seen("five_hour", Rejected, None, Some(1_500))), paused(1_500));
    governor.lift();
    assert_eq!(governor.hit(), blind(1_500), "a wait that nobody named is cut");
}

#[test]
fn hostile_names_are_bounded() {
    let mut governor = Governor::default();
    for n in 0..1_000 {
        governor.observe(&seen(&n.to_string(), Warning, None, None));
    }
    assert_eq!(governor.pressed.len(), WINDOWS);
}

#[derive(Clone, Debug)]
enum Heard {
    Seen(u8, LimitStatus, Option<f64>, Option<u64>),
    Hit,
    Passed,
    Lift,
}

fn heard() -> impl Strategy<Value = Vec<Heard>> {
    let status = prop_oneof![Just(Allowed), Just(Warning), Just(Rejected)];
    let one = prop_oneof![
        6 => (0..20u8, status, prop::option::of(0.0..1.2f64), prop::option::of(any::<u64>()))
            .prop_map(|(name, status, share, resets)| Heard::Seen(name, status, share, resets)),
        1 => Just(Heard::Hit),
        1 => Just(Heard::Passed),
        1 => Just(Heard::Lift),
    ];
    prop::collection::vec(one, 0..60)
}

fn tell(governor: &mut Governor, heard: &Heard) -> Change {
    match heard {
        Heard::Seen(name, status, share, resets) => {
            governor.observe(&seen(&name.to_string(), *status, *share, *resets))
        }
        Heard::Hit => governor.hit(),
        Heard::Passed => governor.passed(),
        Heard::Lift => {
            governor.lift();
            Change::Same
        }
    }
}

fn pacing() -> impl Strategy<Value = Pacing> {
    (0.0..=1.0f64, 0..4u32, prop::option::of(any::<u64>()), 0..10_000u64, 0..100_000u64, prop::option::of(any::<u64>()))
        .prop_map(|(threshold, slots, max_wait_ms, base_delay_ms, max_delay_ms, jitter)| Pacing {
            enabled: true,
            threshold,
            slots_under_pressure: slots,
            max_wait_ms,
            max_attempts: 6,
            base_delay_ms,
            max_delay_ms,
            jitter,
        })
}

proptest! {
    /// Some unit may always run but in a pause, never more than asked for, and every change is the truth.
    #[test]
    fn it_never_starves_and_never_lies(pacing in pacing(), heard in heard(), slots in 1..9u32) {
        let mut governor = Governor::new(pacing);
        for heard in &heard {
            let before = (governor.slots(u32::MAX), governor.is_paused());
            let change = tell(&mut governor, heard);
            let after = (governor.slots(u32::MAX), governor.is_paused());
            prop_assert!((1..=slots).contains(&governor.slots(slots)));
            match change {
                Change::Throttled(left) => prop_assert_eq!((before.0, after.0), (u32::MAX, left)),
                Change::Restored => prop_assert!(before.0 < u32::MAX && after.0 == u32::MAX),
                Change::Paused { wait_ms, until } => {
                    prop_assert!(after.1);
                    prop_assert_eq!(governor.wait_ms(), wait_ms);
                    prop_assert!(until.is_some() || pacing.max_wait_ms.is_none_or(|longest| wait_ms <= longest));
                }
                Change::Same | Change::TooLate => prop_assert!(after.1 <= before.1),
            }
        }
    }

    /// The same words and the same seed give the same waits; a wait stays within a quarter of its backoff.
    #[test]
    fn jitter_is_bounded_and_repeats(pacing in pacing(), pauses in 1..20u32) {
        let pacing = Pacing { max_wait_ms: None, ..pacing };
        let mut twins = [Governor::new(pacing), Governor::new(pacing)];
        for pause in 0..pauses {
            let changes = twins.each_mut().map(|governor| {
                let change = governor.hit();
                governor.lift();
                change
            });
            prop_assert_eq!(&changes[0], &changes[1]);
            let Change::Paused { wait_ms, .. } = changes[0] else { panic!("{changes:?}") };
            let wanted = pacing.backoff_ms(pause);
            prop_assert!(wait_ms.abs_diff(wanted) <= wanted / 4, "{wait_ms} for {wanted}");
            prop_assert!(pacing.jitter.is_some() || wait_ms == wanted);
        }
    }

    /// What the last word of every window was is all that counts for the speed.
    #[test]
    fn it_forgets_what_is_over(heard in heard()) {
        let mut governor = Governor::default();
        heard.iter().for_each(|heard| _ = tell(&mut governor, heard));
        for name in 0..20u8 {
            governor.observe(&seen(&name.to_string(), Allowed, Some(0.0), None));
        }
        prop_assert_eq!(governor.slots(7), 7);
    }

    /// Switched off, it changes nothing.
    #[test]
    fn switched_off_it_is_not_there(pacing in pacing(), heard in heard()) {
        let mut governor = Governor::new(Pacing { enabled: false, ..pacing });
        for heard in &heard {
            prop_assert_eq!(tell(&mut governor, heard), Change::Same);
            prop_assert!(!governor.is_paused() && governor.slots(9) == 9);
        }
    }
}
