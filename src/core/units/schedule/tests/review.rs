//! Runs whose integrated result waits for a review.

use super::{
    settle::{failed_integration, integrated, retry, schedule},
    *,
};

const WAITS: ScheduleEvent = ScheduleEvent::ReviewRequested { waits: true };
const SAVED: ScheduleEvent = ScheduleEvent::Saved { ok: true };

/// Two units whose patches are integrated and wait for a review.
fn reviewing(reviews: ReviewMode) -> Schedule {
    let mut schedule = schedule(
        2,
        ScheduleSettings {
            reviews,
            ..settings(2)
        },
    );
    let both = [(0, 1, true), (1, 1, true)];
    let units = [
        attempt_ended(0, 1, succeeded_verdict()),
        attempt_ended(1, 1, succeeded_verdict()),
    ];
    feed(
        &mut schedule,
        [ScheduleEvent::RunStarted].into_iter().chain(units),
    );
    assert_eq!(feed(&mut schedule, [integrated(&both)]), "REVIEW");
    schedule
}

fn finished(sent_back: &[usize]) -> ScheduleEvent {
    let amendment = |n: &usize| {
        (
            key(*n),
            Amendment {
                feedback: Some("again".into()),
                ..Amendment::default()
            },
        )
    };
    ScheduleEvent::ReviewFinished {
        sent_back: sent_back.iter().map(amendment).collect(),
    }
}

#[test]
fn result_is_saved_only_after_its_review() {
    let mut schedule = reviewing(ReviewMode::Wait);
    let trace = feed(
        &mut schedule,
        [
            SAVED,
            WAITS,
            WAITS,
            ScheduleEvent::Projected { is_unsaved: false },
            finished(&[]),
            SAVED,
        ],
    );
    insta::assert_snapshot!(trace, @r"




    SAVE without []
    END done succeeded=2 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn review_without_a_person_ends_with_its_decisions() {
    let mut schedule = reviewing(ReviewMode::Wait);
    let hours = Millis(8 * 3_600_000);
    let expired = |wait| ScheduleEvent::PersonWaitExpired(wait, hours);
    let trace = feed(
        &mut schedule,
        [
            WAITS,
            expired(PersonWait::Decision),
            expired(PersonWait::Review),
        ],
    );
    assert_eq!(schedule.person_wait(), None);
    insta::assert_snapshot!(trace, @r#"


    note: message "the changes waited for a review for 8h 00m without a screen: the run ends, and `ingestdeck review` continues with all decisions; `review_idle_timeout` in [ingest] sets the limit" | END waiting_approval succeeded=2 failed=0 stopped=0 not_run=0 unsaved=2
    "#);
}

#[test]
fn units_sent_back_run_again_before_the_next_review() {
    let mut schedule = reviewing(ReviewMode::Wait);
    let trace = feed(
        &mut schedule,
        [
            WAITS,
            finished(&[1]),
            attempt_ended(1, 2, succeeded_verdict()),
            integrated(&[(0, 1, true), (1, 2, true)]),
            WAITS,
            finished(&[]),
            SAVED,
        ],
    );
    insta::assert_snapshot!(trace, @r"

    note u1/1: retry-requested 2 (feedback: again) | start u1/2 (feedback: again)
    INTEGRATE u0/1 u1/2
    REVIEW

    SAVE without []
    END done succeeded=2 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn retry_during_a_review_integrates_everything_again() {
    let mut schedule = reviewing(ReviewMode::Wait);
    // The request of the review is still being recorded.
    let trace = feed(
        &mut schedule,
        [
            retry(0),
            WAITS,
            finished(&[]),
            attempt_ended(0, 2, failed_verdict()),
        ],
    );
    insta::assert_snapshot!(trace, @r"
    note u0/1: retry-requested 2
    start u0/2

    INTEGRATE u1/1
    ");
}

#[test]
fn review_can_end_before_its_request_is_confirmed() {
    let mut schedule = reviewing(ReviewMode::Wait);
    assert_eq!(
        feed(&mut schedule, [finished(&[]), WAITS]),
        "SAVE without []\n"
    );
    let mut schedule = reviewing(ReviewMode::Wait);
    let trace = feed(&mut schedule, [finished(&[0]), WAITS]);
    assert!(
        trace.contains("start u0/2") && !schedule.is_finished(),
        "{trace}"
    );
}

#[test]
fn nothing_to_review_is_saved_immediately() {
    let mut schedule = reviewing(ReviewMode::Wait);
    let trace = feed(
        &mut schedule,
        [ScheduleEvent::ReviewRequested { waits: false }],
    );
    assert_eq!(trace, "SAVE without []");
}

#[test]
fn run_without_reviewer_ends_and_keeps_its_patches() {
    let mut schedule = reviewing(ReviewMode::End);
    let trace = feed(&mut schedule, [WAITS]);
    assert!(
        trace.contains("waiting_approval") && schedule.is_finished(),
        "{trace}"
    );
    let trace = feed(
        &mut schedule,
        [ScheduleEvent::Requested(RunCommand::RetryUnsuccessful)],
    );
    assert!(trace.contains("INTEGRATE u0/1 u1/1"), "{trace}");
}

#[test]
fn stopped_review_ends_the_run() {
    for stop in [
        ScheduleEvent::Requested(RunCommand::StopAll),
        ScheduleEvent::Requested(RunCommand::Drain),
        ScheduleEvent::Requested(RunCommand::KillAll),
    ] {
        let mut schedule = reviewing(ReviewMode::Wait);
        let trace = feed(&mut schedule, [stop, WAITS]);
        assert!(
            trace.contains("waiting_approval") && schedule.is_finished(),
            "{trace}"
        );
    }
}

#[test]
fn failed_save_returns_to_the_review() {
    let mut schedule = reviewing(ReviewMode::Wait);
    let trace = feed(
        &mut schedule,
        [
            WAITS,
            finished(&[]),
            ScheduleEvent::ReviewReopened,
            finished(&[]),
        ],
    );
    assert_eq!(trace.matches("SAVE").count(), 2, "{trace}");
    // The branch moved: nothing is left of the integration.
    let trace = feed(&mut schedule, [ScheduleEvent::Saved { ok: false }]);
    assert_eq!(trace, "INTEGRATE u0/1 u1/1");
    // An integration that fails is not tried again.
    let trace = feed(
        &mut schedule,
        [failed_integration(&[]), ScheduleEvent::Saved { ok: false }],
    );
    assert!(trace.contains("END") && schedule.is_finished(), "{trace}");
}

#[test]
fn review_opens_again_if_no_unit_may_start() {
    let settings = ScheduleSettings {
        reviews: ReviewMode::Wait,
        budget_usd: Some(1.0),
        ..settings(2)
    };
    let mut schedule = schedule(1, settings);
    let spent = ScheduleEvent::CostUpdated { usd: 1.5 };
    feed(
        &mut schedule,
        [
            ScheduleEvent::RunStarted,
            attempt_ended(0, 1, succeeded_verdict()),
            spent,
        ],
    );
    feed(&mut schedule, [integrated(&[(0, 1, true)]), WAITS]);
    let trace = feed(&mut schedule, [finished(&[0])]);
    assert!(trace.ends_with("REVIEW"), "{trace}");
}
