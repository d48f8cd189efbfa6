//! Tables of observations, and invariants over any sequence of observations.

use proptest::prelude::*;

use super::*;
use LimitStatus::{Allowed, Rejected, Warning};

fn observation(
    name: &str,
    status: LimitStatus,
    utilization: Option<f64>,
    resets_in_ms: Option<u64>,
) -> LimitObservation {
    LimitObservation {
        at: Millis(5_000),
        name: name.into(),
        status,
        utilization,
        resets_in_ms,
    }
}

fn paused(wait_ms: u64) -> ThrottleChange {
    ThrottleChange::Paused {
        wait_ms,
        until: Some(Millis(5_000 + wait_ms)),
    }
}

fn backoff_pause(wait_ms: u64) -> ThrottleChange {
    ThrottleChange::Paused {
        wait_ms,
        until: None,
    }
}

#[test]
fn pressure_throttles_until_all_windows_recover() {
    let mut governor = Governor::default();
    assert_eq!(
        governor.observe(&observation("five_hour", Allowed, Some(0.79), None)),
        ThrottleChange::Unchanged
    );
    assert_eq!(
        governor.observe(&observation("five_hour", Allowed, Some(0.8), None)),
        ThrottleChange::Throttled(1)
    );
    assert_eq!(governor.concurrency(4), 1);
    assert_eq!(
        governor.observe(&observation("seven_day", Warning, None, None)),
        ThrottleChange::Unchanged
    );
    assert_eq!(
        governor.observe(&observation("five_hour", Allowed, Some(0.1), None)),
        ThrottleChange::Unchanged
    );
    assert_eq!(
        governor.observe(&observation("seven_day", Allowed, Some(f64::NAN), None)),
        ThrottleChange::Restored
    );
    assert_eq!(governor.concurrency(4), 4);
}

#[test]
fn project_settings_set_threshold_and_concurrency() {
    let pacing = ThrottlePolicy {
        threshold: 0.5,
        concurrency_under_pressure: 2,
        ..ThrottlePolicy::default()
    };
    let mut governor = Governor::new(pacing);
    assert_eq!(
        governor.observe(&observation("five_hour", Allowed, Some(0.5), None)),
        ThrottleChange::Throttled(2)
    );
    assert_eq!((governor.concurrency(6), governor.concurrency(1)), (2, 1));
    let mut none = Governor::new(ThrottlePolicy {
        concurrency_under_pressure: 0,
        ..pacing
    });
    assert_eq!(
        none.observe(&observation("five_hour", Warning, None, None)),
        ThrottleChange::Throttled(1),
        "a run never starves"
    );
}

#[test]
fn rejected_requests_throttle_until_one_succeeds() {
    let mut governor = Governor::default();
    assert_eq!(
        governor.observe(&observation(REQUEST_RATE_LIMIT, Warning, None, None)),
        ThrottleChange::Throttled(1)
    );
    assert_eq!(
        governor.observe(&observation("five_hour", Allowed, None, None)),
        ThrottleChange::Unchanged
    );
    assert_eq!(governor.record_success(), ThrottleChange::Restored);
    assert_eq!(governor.record_success(), ThrottleChange::Unchanged);
}

#[test]
fn spent_window_pauses_until_its_latest_reset() {
    let mut governor = Governor::default();
    assert_eq!(
        governor.observe(&observation("five_hour", Rejected, None, Some(90_000))),
        paused(90_000)
    );
    assert_eq!(
        governor.observe(&observation("five_hour", Rejected, None, Some(80_000))),
        ThrottleChange::Unchanged
    );
    assert_eq!(
        governor.observe(&observation("five_hour", Rejected, None, None)),
        ThrottleChange::Unchanged
    );
    assert_eq!(
        governor.observe(&observation("seven_day", Rejected, None, Some(95_000))),
        paused(95_000)
    );
    assert_eq!(governor.record_limit_hit(), ThrottleChange::Unchanged);
    assert_eq!(governor.wait_ms(), 95_000);
    governor.end_pause();
    assert!(!governor.is_paused());
}

#[test]
fn limit_without_reset_backs_off_until_a_success() {
    let mut governor = Governor::default();
    let mut hit = || {
        let change = governor.record_limit_hit();
        governor.end_pause();
        change
    };
    let waits: Vec<ThrottleChange> = (0..8).map(|_| hit()).collect();
    assert_eq!(
        waits,
        [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000].map(backoff_pause)
    );
    governor.record_success();
    assert_eq!(
        governor.observe(&observation("five_hour", Rejected, None, None)),
        backoff_pause(1_000)
    );
    assert_eq!(
        governor.observe(&observation("five_hour", Rejected, None, Some(70_000))),
        paused(70_000),
        "now it is known"
    );
}

#[test]
fn reset_in_the_past_still_waits() {
    let mut governor = Governor::default();
    let mut waits = || {
        let change = governor.observe(&observation("x", Rejected, None, Some(0)));
        governor.end_pause();
        change
    };
    assert_eq!(
        [waits(), waits(), waits()],
        [1_000, 2_000, 4_000].map(paused)
    );
    let again = observation("x", Rejected, None, Some(0));
    assert_eq!(governor.observe(&again), paused(8_000));
    assert_eq!(
        governor.observe(&again),
        ThrottleChange::Unchanged,
        "an agent that reports the same reset does not prolong the pause"
    );
}

#[test]
fn reset_beyond_max_wait_ends_the_run() {
    let mut governor = Governor::new(ThrottlePolicy {
        max_wait_ms: Some(1_500),
        ..ThrottlePolicy::default()
    });
    assert_eq!(
        governor.observe(&observation("five_hour", Rejected, None, Some(1_501))),
        ThrottleChange::ResetTooLate
    );
    assert!(!governor.is_paused());
    assert_eq!(
        governor.observe(&observation("five_hour", Rejected, None, Some(1_500))),
        paused(1_500)
    );
    governor.end_pause();
    assert_eq!(
        governor.record_limit_hit(),
        backoff_pause(1_500),
        "a wait without a reset time is capped"
    );
}

#[test]
fn hostile_names_are_bounded() {
    let mut governor = Governor::default();
    for n in 0..1_000 {
        governor.observe(&observation(&n.to_string(), Warning, None, None));
    }
    assert_eq!(governor.pressured_limits.len(), MAX_WINDOWS);
}

#[derive(Clone, Debug)]
enum GovernorInput {
    Seen(u8, LimitStatus, Option<f64>, Option<u64>),
    Hit,
    Passed,
    Lift,
}

fn any_inputs() -> impl Strategy<Value = Vec<GovernorInput>> {
    let status = prop_oneof![Just(Allowed), Just(Warning), Just(Rejected)];
    let one = prop_oneof![
        6 => (0..20u8, status, prop::option::of(0.0..1.2f64), prop::option::of(any::<u64>()))
            .prop_map(|(name, status, share, resets)| GovernorInput::Seen(name, status, share, resets)),
        1 => Just(GovernorInput::Hit),
        1 => Just(GovernorInput::Passed),
        1 => Just(GovernorInput::Lift),
    ];
    prop::collection::vec(one, 0..60)
}

fn apply(governor: &mut Governor, heard: &GovernorInput) -> ThrottleChange {
    match heard {
        GovernorInput::Seen(name, status, share, resets) => {
            governor.observe(&observation(&name.to_string(), *status, *share, *resets))
        }
        GovernorInput::Hit => governor.record_limit_hit(),
        GovernorInput::Passed => governor.record_success(),
        GovernorInput::Lift => {
            governor.end_pause();
            ThrottleChange::Unchanged
        }
    }
}

fn any_policy() -> impl Strategy<Value = ThrottlePolicy> {
    (
        0.0..=1.0f64,
        0..4u32,
        prop::option::of(any::<u64>()),
        0..10_000u64,
        0..100_000u64,
        prop::option::of(any::<u64>()),
    )
        .prop_map(
            |(threshold, slots, max_wait_ms, base_delay_ms, max_delay_ms, jitter)| ThrottlePolicy {
                enabled: true,
                threshold,
                concurrency_under_pressure: slots,
                max_wait_ms,
                max_limit_attempts: 6,
                base_delay_ms,
                max_delay_ms,
                jitter,
            },
        )
}

proptest! {
    /// Outside a pause, at least one unit may run and never more than requested, and every reported change is correct.
    #[test]
    fn governor_never_starves_and_reports_every_change(pacing in any_policy(), heard in any_inputs(), slots in 1..9u32) {
        let mut governor = Governor::new(pacing);
        for heard in &heard {
            let before = (governor.concurrency(u32::MAX), governor.is_paused());
            let change = apply(&mut governor, heard);
            let after = (governor.concurrency(u32::MAX), governor.is_paused());
            prop_assert!((1..=slots).contains(&governor.concurrency(slots)));
            match change {
                ThrottleChange::Throttled(left) => prop_assert_eq!((before.0, after.0), (u32::MAX, left)),
                ThrottleChange::Restored => prop_assert!(before.0 < u32::MAX && after.0 == u32::MAX),
                ThrottleChange::Paused { wait_ms, until } => {
                    prop_assert!(after.1);
                    prop_assert_eq!(governor.wait_ms(), wait_ms);
                    prop_assert!(until.is_some() || pacing.max_wait_ms.is_none_or(|longest| wait_ms <= longest));
                }
                ThrottleChange::Unchanged | ThrottleChange::ResetTooLate => prop_assert!(after.1 <= before.1),
            }
        }
    }

    /// The same observations and the same seed give the same waits; a wait differs from its backoff by at most a
    /// quarter.
    #[test]
    fn jitter_is_bounded_and_repeats(pacing in any_policy(), pauses in 1..20u32) {
        let pacing = ThrottlePolicy { max_wait_ms: None, ..pacing };
        let mut twins = [Governor::new(pacing), Governor::new(pacing)];
        for pause in 0..pauses {
            let changes = twins.each_mut().map(|governor| {
                let change = governor.record_limit_hit();
                governor.end_pause();
                change
            });
            prop_assert_eq!(&changes[0], &changes[1]);
            let ThrottleChange::Paused { wait_ms, .. } = changes[0] else { panic!("{changes:?}") };
            let wanted = pacing.backoff_ms(pause);
            prop_assert!(wait_ms.abs_diff(wanted) <= wanted / 4, "{wait_ms} for {wanted}");
            prop_assert!(pacing.jitter.is_some() || wait_ms == wanted);
        }
    }

    /// Only the last observation of each window decides the concurrency.
    #[test]
    fn recovered_limits_leave_no_pressure(heard in any_inputs()) {
        let mut governor = Governor::default();
        heard.iter().for_each(|heard| _ = apply(&mut governor, heard));
        for name in 0..20u8 {
            governor.observe(&observation(&name.to_string(), Allowed, Some(0.0), None));
        }
        prop_assert_eq!(governor.concurrency(7), 7);
    }

    /// A disabled governor changes nothing.
    #[test]
    fn disabled_governor_changes_nothing(pacing in any_policy(), heard in any_inputs()) {
        let mut governor = Governor::new(ThrottlePolicy { enabled: false, ..pacing });
        for heard in &heard {
            prop_assert_eq!(apply(&mut governor, heard), ThrottleChange::Unchanged);
            prop_assert!(!governor.is_paused() && governor.concurrency(9) == 9);
        }
    }
}
