//! Automatic retries of attempts whose tools have run.

use super::*;

fn session_ended(attempt: u32, verdict: Verdict, repeat: Repeat) -> Input {
    Input::Ended { unit: key(0), attempt, verdict, repeat }
}

fn resume() -> Repeat {
    Repeat::Resume("5e55".into())
}

/// Attempts that these inputs start, with what is otherwise than planned.
fn starts(schedule: &mut Schedule, inputs: impl IntoIterator<Item = Input>) -> Vec<(u32, Option<Amendment>)> {
    let orders = inputs.into_iter().flat_map(|input| schedule.handle(input));
    let start = |order| match order {
        Order::Start { attempt, amendment, .. } => Some((attempt, amendment.as_deref().cloned())),
        _ => None,
    };
    orders.filter_map(start).collect()
}

fn continued() -> Option<Amendment> {
    Some(Amendment { resume: Some("5e55".into()), ..Amendment::default() })
}

fn schedule(max_retries: u32) -> Schedule {
    let retry = RetryPolicy { max_retries, ..RetryPolicy::default() };
    Schedule::new(keys(1), Settings { retry, ..Settings::new(1, 1) })
}

#[test]
fn retry_continues_the_session_whose_tools_have_run() {
    let mut schedule = schedule(3);
    let started = starts(
        &mut schedule,
        [
            Input::Begin,
            session_ended(1, busy(), Repeat::Afresh),
            Input::TimerFired(TimerId(0)),
            session_ended(2, busy(), resume()),
            Input::TimerFired(TimerId(1)),
            // No tool ran in this attempt, but those of the attempt before did.
            session_ended(3, busy(), Repeat::Afresh),
            Input::TimerFired(TimerId(2)),
            session_ended(4, busy(), resume()),
        ],
    );
    assert_eq!(started, [(1, None), (2, None), (3, continued()), (4, continued())]);
    assert!(schedule.is_over(), "three retries");
    let asked = [Input::RetryRequested { unit: key(0), amendment: None }];
    assert_eq!(starts(&mut schedule, asked), [(5, None)], "a person may begin again");
}

#[test]
fn continued_session_keeps_model_and_turns_without_the_feedback() {
    let mut schedule = schedule(1);
    let asked = Amendment {
        feedback: Some("Again.".into()),
        model: Some("opus".into()),
        step_budget: Some(7),
        resume: Some("old".into()),
    };
    let inputs = [
        Input::Begin,
        session_ended(1, bad(), Repeat::Never),
        Input::RetryRequested { unit: key(0), amendment: Some(asked.clone()) },
        session_ended(2, busy(), resume()),
        Input::TimerFired(TimerId(0)),
    ];
    let expected = Amendment { feedback: None, resume: Some("5e55".into()), ..asked.clone() };
    assert_eq!(starts(&mut schedule, inputs), [(1, None), (2, Some(asked)), (3, Some(expected))]);
}

#[test]
fn session_without_an_id_is_not_retried_once_tools_have_run() {
    for verdict in [busy(), limited()] {
        let mut schedule = schedule(3);
        let inputs = [Input::Begin, session_ended(1, verdict, Repeat::Never)];
        let orders: Vec<Order> = inputs.into_iter().flat_map(|input| schedule.handle(input)).collect();
        let said = orders.iter().find_map(|order| match order {
            Order::Note { note: Note::Said { level: Level::Warning, text }, .. } => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(said, Some("u0 is not retried: its tools have run, and its session id is unknown"));
        assert!(matches!(orders.last(), Some(Order::End(ended)) if ended.failed == 1), "{orders:?}");
    }
}

#[test]
fn usage_limit_costs_no_retry_and_continues_the_session() {
    let mut schedule = schedule(0);
    let inputs = [
        Input::Begin,
        rejected(0, Some(9_000)),
        session_ended(1, limited(), resume()),
        Input::TimerFired(TimerId(0)),
        session_ended(2, busy(), resume()),
    ];
    assert_eq!(starts(&mut schedule, inputs), [(1, None), (2, continued())]);
    assert!(schedule.is_over(), "no retries are configured");
}
