//! Observes the decoded lines of all running attempts: the cost of the run, and the usage limits, which the schedule
//! must know immediately because the attempt that reports one may continue for an hour.
//!
//! Counts nothing itself: the costs are those of the attempts' [reducers](ingestdeck_core::run::attempt_reducer).

use std::{collections::HashMap, time::Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;

use ingestdeck_agent::attempt::LineObserver;
use ingestdeck_core::{
    decode::{
        AgentLine, LineBody,
        line::{RateLimitEvent, ReportedWindow, SystemLine},
    },
    run::{attempt_reducer::AttemptReducer, spending},
    tape::{Millis, UnitKey},
    units::{
        governor::REQUEST_RATE_LIMIT,
        limits::{LimitObservation, LimitStatus, resets_in_ms},
        schedule::ScheduleEvent,
    },
};

/// The costs of a run's attempts, and the connection to its schedule.
#[derive(Debug)]
pub(crate) struct RunMeter {
    /// Weak: it does not keep a run open, only the user interface does.
    schedule: mpsc::WeakSender<ScheduleEvent>,
    began: Instant,
    attempts: Mutex<HashMap<UnitKey, Vec<MeteredAttempt>>>,
}

/// The cost of an attempt in US dollars; `None` before its first result.
#[derive(Debug)]
struct MeteredAttempt {
    number: u32,
    session: Option<String>,
    cost: Option<f64>,
}

impl RunMeter {
    /// Sends observations to `schedule`.
    pub(crate) fn new(schedule: mpsc::WeakSender<ScheduleEvent>) -> Self {
        Self {
            schedule,
            began: Instant::now(),
            attempts: Mutex::default(),
        }
    }

    /// The queue that observations are sent to.
    pub(crate) fn schedule(&self) -> mpsc::WeakSender<ScheduleEvent> {
        self.schedule.clone()
    }

    /// What the attempts of a unit have paid for a session so far, in US dollars; `None` if that is unknown.
    pub(crate) fn session_cost(&self, unit: &UnitKey, session: &str) -> Option<f64> {
        let all = self.attempts();
        let of_session = |attempt: &&MeteredAttempt| attempt.session.as_deref() == Some(session);
        spending::session_cost(
            all.get(unit)?
                .iter()
                .filter(of_session)
                .map(|attempt| attempt.cost),
        )
    }

    /// The known cost of the run so far, in US dollars.
    pub(crate) fn total_usd(&self) -> f64 {
        sum(&self.attempts())
    }

    /// Stores the cost of an attempt. Returns the cost of the run if that changed it.
    fn record_cost(
        &self,
        (unit, number): (&UnitKey, u32),
        session: Option<&str>,
        cost: Option<f64>,
    ) -> Option<f64> {
        let mut all = self.attempts();
        let attempts = all.entry(unit.clone()).or_default();
        let index = attempts
            .iter()
            .position(|attempt| attempt.number == number)
            .unwrap_or(attempts.len());
        if index == attempts.len() {
            attempts.push(MeteredAttempt {
                number,
                session: None,
                cost: None,
            });
        }
        let attempt = &mut attempts[index];
        attempt.session = attempt
            .session
            .take()
            .or_else(|| session.map(str::to_owned));
        let has_changed = std::mem::replace(&mut attempt.cost, cost) != cost;
        has_changed.then(|| sum(&all))
    }

    /// The usage windows that a report names besides the one that it is about. A spent one that the service still
    /// allows is near its limit, but not a reason to wait.
    fn window_observations(&self, limit: &RateLimitEvent<'_>) -> Vec<LimitObservation> {
        let at = Millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let others = limit
            .windows
            .iter()
            .filter(|window| limit.limit.as_deref() != Some(window.name.as_ref()));
        let observation = |window: &ReportedWindow<'_>| {
            let status = window
                .status
                .as_deref()
                .and_then(LimitStatus::parse)
                .unwrap_or(LimitStatus::Allowed);
            LimitObservation {
                at,
                name: window.name.clone().into_owned(),
                status: if status == LimitStatus::Rejected {
                    LimitStatus::Warning
                } else {
                    status
                },
                utilization: window.utilization,
                resets_in_ms: window
                    .resets_at
                    .map(|at| resets_in_ms(at, Timestamp::now().as_millisecond())),
            }
        };
        others.map(observation).collect()
    }

    fn limit_observation(&self, body: &LineBody<'_>) -> Option<LimitObservation> {
        let at = || Millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        match body {
            LineBody::RateLimit(limit) => Some(LimitObservation {
                at: at(),
                name: limit.limit.as_deref().unwrap_or("usage").to_owned(),
                status: LimitStatus::parse(&limit.status)?,
                utilization: limit.utilization,
                resets_in_ms: limit
                    .resets_at
                    .map(|at| resets_in_ms(at, Timestamp::now().as_millisecond())),
            }),
            LineBody::System(SystemLine::ApiRetry { status, error, .. }) => {
                let is_overloaded = matches!(status, Some(429 | 529))
                    || matches!(error.as_deref(), Some("rate_limit" | "overloaded"));
                is_overloaded.then(|| LimitObservation {
                    at: at(),
                    name: REQUEST_RATE_LIMIT.to_owned(),
                    status: LimitStatus::Warning,
                    utilization: None,
                    resets_in_ms: None,
                })
            }
            _ => None,
        }
    }

    /// Observes a line of an attempt on `worker`, or on this machine.
    pub(crate) fn observe_on(
        &self,
        worker: Option<&str>,
        attempt: (&UnitKey, u32),
        line: &AgentLine<'_>,
        state: &AttemptReducer,
    ) {
        if let Some(limit) = self.limit_observation(&line.body) {
            self.send(ScheduleEvent::LimitObserved(limit));
        }
        if let LineBody::RateLimit(limit) = &line.body {
            self.window_observations(limit)
                .into_iter()
                .map(ScheduleEvent::LimitObserved)
                .for_each(|it| self.send(it));
        }
        // Each turn of an attempt begins with another `init` of the same process.
        if let LineBody::Init(init) = &line.body
            && let Some(release) = init.version.as_ref().filter(|_| state.turn_count() == 0)
        {
            let (release, worker) = (release.clone().into_owned(), worker.map(str::to_owned));
            self.send(ScheduleEvent::ReleaseSeen { release, worker });
        }
        if matches!(line.body, LineBody::Init(_) | LineBody::Result(_))
            && let Some(usd) =
                self.record_cost(attempt, line.session_id.as_deref(), state.cost_usd())
        {
            self.send(ScheduleEvent::CostUpdated { usd });
        }
    }

    fn send(&self, event: ScheduleEvent) {
        // The queue is full only while the schedule is blocked. A limit is reported again, and a cost with the next
        // result.
        if let Some(schedule) = self.schedule.upgrade()
            && schedule.try_send(event).is_err()
        {
            tracing::warn!("an observation was not sent to the schedule");
        }
    }

    /// The map stays valid if a thread panics while it holds the lock.
    fn attempts(&self) -> MutexGuard<'_, HashMap<UnitKey, Vec<MeteredAttempt>>> {
        self.attempts.lock()
    }
}

impl LineObserver for RunMeter {
    fn observe(&self, attempt: (&UnitKey, u32), line: &AgentLine<'_>, state: &AttemptReducer) {
        self.observe_on(None, attempt, line, state);
    }
}

fn sum(attempts: &HashMap<UnitKey, Vec<MeteredAttempt>>) -> f64 {
    attempts
        .values()
        .flatten()
        .filter_map(|attempt| attempt.cost)
        .sum()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use ingestdeck_core::{actions::TurnTracker, decode};

    /// An attempt that is observed by a meter.
    struct ObservedAttempt<'m> {
        meter: &'m RunMeter,
        key: (UnitKey, u32),
        reducer: AttemptReducer,
    }

    impl<'m> ObservedAttempt<'m> {
        fn new(meter: &'m RunMeter, unit: &str, number: u32, resumed: Option<&str>) -> Self {
            let key = (UnitKey::from(unit), number);
            let mut reducer = AttemptReducer::new(TurnTracker::for_one_prompt());
            if let Some(session) = resumed {
                reducer.resume_session(meter.session_cost(&key.0, session));
            }
            Self {
                meter,
                key,
                reducer,
            }
        }

        fn push(&mut self, line: &str) -> f64 {
            let line = decode::decode_line(line.as_bytes());
            self.reducer.push(&line);
            self.meter
                .observe((&self.key.0, self.key.1), &line, &self.reducer);
            self.meter.total_usd()
        }
    }

    fn init(session: &str, version: &str) -> String {
        json!({"type": "system", "subtype": "init", "session_id": session, "claude_code_version": version}).to_string()
    }

    fn result(cost: &Value) -> String {
        json!({"type": "result", "subtype": "success", "total_cost_usd": cost}).to_string()
    }

    fn meter() -> (
        RunMeter,
        mpsc::Sender<ScheduleEvent>,
        mpsc::Receiver<ScheduleEvent>,
    ) {
        let (schedule, received) = mpsc::channel(8);
        (RunMeter::new(schedule.downgrade()), schedule, received)
    }

    /// The next event, apart from releases.
    fn next_of(received: &mut mpsc::Receiver<ScheduleEvent>) -> Option<ScheduleEvent> {
        std::iter::from_fn(|| received.try_recv().ok())
            .find(|event| !matches!(event, ScheduleEvent::ReleaseSeen { .. }))
    }

    #[test]
    fn meter_adds_up_the_costs_of_results() {
        let (meter, _schedule, mut received) = meter();
        let mut a = ObservedAttempt::new(&meter, "a", 1, None);
        let mut b = ObservedAttempt::new(&meter, "b", 1, None);
        a.push(&init("s", "2.1.330"));
        a.push(&json!({"type": "assistant", "message": {"content": []}}).to_string());
        assert_eq!(next_of(&mut received), None);
        for (attempt, cost, total) in [(&mut a, json!(0.5), 0.5), (&mut b, json!(0.25), 0.75)] {
            attempt.push(&init("t", "2.1.330"));
            assert_eq!(attempt.push(&result(&cost)), total);
            assert_eq!(
                next_of(&mut received),
                Some(ScheduleEvent::CostUpdated { usd: total })
            );
        }
        // An attempt that ends without a cost changes nothing.
        let mut c = ObservedAttempt::new(&meter, "c", 1, None);
        assert_eq!(c.push(&result(&json!(null))), 0.75);
        assert_eq!(next_of(&mut received), None);
    }

    #[test]
    fn resumed_session_is_not_counted_twice() {
        for (version, expected) in [("2.1.330", 0.75), ("2.1.223", 1.25)] {
            let (meter, _schedule, _received) = meter();
            let mut first = ObservedAttempt::new(&meter, "a", 1, None);
            first.push(&init("s", version));
            first.push(&result(&json!(0.5)));
            let mut second = ObservedAttempt::new(&meter, "a", 2, Some("s"));
            second.push(&init("s", version));
            assert_eq!(second.push(&result(&json!(0.75))), expected, "{version}");
        }
    }

    #[test]
    fn rate_limit_event_is_sent_to_the_schedule() {
        let (meter, _schedule, mut received) = meter();
        ObservedAttempt::new(&meter, "a", 1, None)
            .push(r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","rateLimitType":"five_hour"}}"#);
        let Ok(ScheduleEvent::LimitObserved(observed)) = received.try_recv() else {
            panic!("nothing was sent")
        };
        assert_eq!(
            (observed.name.as_str(), observed.status),
            ("five_hour", LimitStatus::Rejected)
        );
    }

    #[test]
    fn every_usage_window_is_sent_to_the_schedule() {
        let (meter, _schedule, mut received) = meter();
        ObservedAttempt::new(&meter, "a", 1, None).push(
            r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","rateLimitType":"five_hour","utilization":0.3,
            "unifiedWindows":{"five_hour":{"utilization":0.3,"status":"allowed"},"seven_day":{"utilization":0.95,"status":"allowed"},
            "seven_day_opus":{"utilization":1,"status":"rejected"},"odd":3}}}"#,
        );
        let seen: Vec<_> = std::iter::from_fn(|| received.try_recv().ok())
            .filter_map(|event| match event {
                ScheduleEvent::LimitObserved(seen) => {
                    Some((seen.name, seen.status, seen.utilization))
                }
                _ => None,
            })
            .collect();
        let window = |name: &str, status, used| (name.to_owned(), status, Some(used));
        assert_eq!(
            seen,
            [
                window("five_hour", LimitStatus::Allowed, 0.3),
                window("seven_day", LimitStatus::Allowed, 0.95),
                window("seven_day_opus", LimitStatus::Warning, 1.0),
            ]
        );
    }

    #[test]
    fn rejected_request_throttles_but_connection_error_does_not() {
        let (meter, _schedule, mut received) = meter();
        let mut attempt = ObservedAttempt::new(&meter, "a", 1, None);
        for (status, error) in [
            ("429", "rate_limit"),
            ("null", "unknown"),
            ("401", "authentication_failed"),
        ] {
            attempt.push(&format!(
                r#"{{"type":"system","subtype":"api_retry","attempt":1,"max_retries":3,"retry_delay_ms":500,"error_status":{status},"error":"{error}"}}"#
            ));
        }
        let Ok(ScheduleEvent::LimitObserved(observed)) = received.try_recv() else {
            panic!("nothing was sent")
        };
        assert_eq!(
            (observed.name.as_str(), observed.status),
            (REQUEST_RATE_LIMIT, LimitStatus::Warning)
        );
        assert!(received.try_recv().is_err());
    }
}
