//! A recorder that also observes the lines. It passes usage limits to the schedule immediately, because the attempt
//! that reports one may continue for an hour, and it warns once when an attempt approaches its turn limit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use jiff::Timestamp;
use memchr::memmem;
use tokio::sync::mpsc;

use super::cost_meter::CostMeter;
use crate::{
    decode,
    run::{NewEntry, Recorder, entry_source::RecordError},
    tape::{EntryBody, Millis, Note, UnitKey, note::Severity},
    units::{
        governor::REQUEST_RATE_LIMIT,
        limits::{LimitObservation, LimitStatus, TurnEvent, TurnLimiter, resets_in_ms},
        schedule::ScheduleEvent,
    },
};

/// Bytes at the beginning of a model line that contain its type.
const TYPE_HEAD_BYTES: usize = 128;

/// The beginning of the note about the start of an attempt.
const ATTEMPT_STARTED_PREFIX: &[u8] = br#"{"kind":"attempt_started""#;

/// The beginning of most lines while a model streams. None of them matters here.
const STREAM_EVENT_PREFIX: &[u8] = br#"{"type":"stream_event","#;

/// Records first and then sends events.
#[derive(Debug)]
pub struct ObservingRecorder {
    inner: Arc<dyn Recorder>,
    inputs: mpsc::WeakSender<ScheduleEvent>,
    began: Instant,
    turn_limiters: Mutex<HashMap<(UnitKey, u32), TurnLimiter>>,
    meter: Arc<CostMeter>,
}

impl ObservingRecorder {
    /// Observes the lines that are written to `inner`. The weak sender does not keep a run open: only the user
    /// interface does.
    pub fn new(inner: Arc<dyn Recorder>, heard: mpsc::WeakSender<ScheduleEvent>, meter: Arc<CostMeter>) -> Self {
        Self { inner, inputs: heard, began: Instant::now(), turn_limiters: Mutex::default(), meter }
    }

    /// Reads the turn limit of an attempt, which a person may have changed.
    fn observe_attempt_start(&self, lane: (&UnitKey, u32), note: &[u8]) {
        if !note.starts_with(ATTEMPT_STARTED_PREFIX) {
            return;
        }
        if let Note::AttemptStarted(started) = Note::parse(note) {
            let limiter = TurnLimiter::new(started.step_budget);
            self.limiters().insert((lane.0.clone(), lane.1), limiter);
            self.meter.start_attempt(lane, started.resumed_session().map(|resumed| resumed.session));
        }
    }

    fn limiters(&self) -> MutexGuard<'_, HashMap<(UnitKey, u32), TurnLimiter>> {
        self.turn_limiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The warning that this line of the model causes.
    fn turn_limit_warning(&self, lane: (&UnitKey, u32), line: &[u8]) -> Option<Note> {
        // Two searches of the head avoid decoding nearly every line.
        let head = line.get(..line.len().min(TYPE_HEAD_BYTES))?;
        memmem::find(head, b"\"assistant\"")?;
        let line = decode::decode_line(line);
        let decode::LineBody::Assistant(chat) = &line.body else { return None };
        if line.parent_tool_use_id.is_some() || chat.model.as_deref() == Some("<synthetic>") {
            return None;
        }
        match self.limiters().get_mut(&(lane.0.clone(), lane.1))?.record_message(chat.message_id.as_deref())? {
            event @ TurnEvent::Approaching { .. } => {
                Some(Note::Message { level: Severity::Warning, text: event.to_string() })
            }
            // The agent reports this in its result.
            TurnEvent::Reached { .. } => None,
        }
    }

    fn limit_observation(&self, line: &[u8]) -> Option<LimitObservation> {
        // Most lines are long and irrelevant: the searches are much cheaper than decoding.
        if memmem::find(line, b"\"rate_limit_event\"").is_none() && memmem::find(line, b"\"api_retry\"").is_none() {
            return None;
        }
        let at = Millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        match decode::decode_line(line).body {
            decode::LineBody::RateLimit(limit) => Some(LimitObservation {
                at,
                name: limit.limit.as_deref().unwrap_or("usage").to_owned(),
                status: LimitStatus::parse(&limit.status)?,
                utilization: limit.utilization,
                resets_in_ms: limit.resets_at.map(|at| resets_in_ms(at, Timestamp::now().as_millisecond())),
            }),
            decode::LineBody::System(decode::line::SystemLine::ApiRetry { status, error, .. }) => {
                let crowded =
                    matches!(status, Some(429 | 529)) || matches!(error.as_deref(), Some("rate_limit" | "overloaded"));
                crowded.then(|| LimitObservation {
                    at,
                    name: REQUEST_RATE_LIMIT.to_owned(),
                    status: LimitStatus::Warning,
                    utilization: None,
                    resets_in_ms: None,
                })
            }
            _ => None,
        }
    }
}

impl Recorder for ObservingRecorder {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        self.inner.record(items)?;
        for item in items {
            if let (EntryBody::Note(note), Some(lane)) = (&item.body, item.attempt) {
                self.observe_attempt_start(lane, note);
            }
            let EntryBody::Out(line) = item.body else { continue };
            if line.starts_with(STREAM_EVENT_PREFIX) {
                continue;
            }
            if let Some(observed) = self.limit_observation(line)
                && let Some(heard) = self.inputs.upgrade()
            {
                // If the queue is full, the next line repeats the observation.
                if heard.try_send(ScheduleEvent::LimitObserved(observed)).is_err() {
                    tracing::warn!("a usage window was not passed on");
                }
            }
            if let Some(lane) = item.attempt
                && let Some(usd) = self.meter.observe_line(lane, line)
                && let Some(heard) = self.inputs.upgrade()
                && heard.try_send(ScheduleEvent::CostUpdated { usd }).is_err()
            {
                tracing::warn!("the cost of the run was not passed on");
            }
            if let Some(lane) = item.attempt
                && let Some(note) = self.turn_limit_warning(lane, line)
            {
                let json = note.to_json();
                self.inner.record(&[NewEntry { attempt: Some(lane), body: EntryBody::Note(&json) }])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::note::AttemptStarted;

    #[derive(Debug, Default)]
    struct NoteCollector(Mutex<Vec<Note>>);

    impl Recorder for NoteCollector {
        fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
            let notes = items.iter().filter_map(|item| match item.body {
                EntryBody::Note(json) => Some(Note::parse(json)),
                _ => None,
            });
            self.0.lock().unwrap().extend(notes);
            Ok(())
        }
    }

    #[test]
    fn turn_limit_warning_is_recorded_once_at_four_fifths() {
        let kept = Arc::new(NoteCollector::default());
        let (inputs, _received) = mpsc::channel(1);
        let tap = ObservingRecorder::new(Arc::clone(&kept) as _, inputs.downgrade(), Arc::default());
        let unit = UnitKey::from("u");
        let started = Note::AttemptStarted(Box::new(AttemptStarted { step_budget: 5, ..AttemptStarted::default() }));
        tap.record(&[NewEntry { attempt: Some((&unit, 1)), body: EntryBody::Note(&started.to_json()) }]).unwrap();
        for turn in [1, 1, 2, 3, 4, 4, 5] {
            let line = format!(r#"{{"type":"assistant","message":{{"id":"m{turn}","content":[]}}}}"#);
            tap.record(&[NewEntry { attempt: Some((&unit, 1)), body: EntryBody::Out(line.as_bytes()) }]).unwrap();
        }
        let expected = Note::Message { level: Severity::Warning, text: "Approaching turn limit: 4/5".into() };
        assert_eq!(*kept.0.lock().unwrap(), [started, expected]);
    }

    #[test]
    fn run_cost_is_sent_to_the_schedule() {
        let (inputs, mut received) = mpsc::channel(4);
        let tap = ObservingRecorder::new(Arc::new(NoteCollector::default()), inputs.downgrade(), Arc::default());
        let (unit, other) = (UnitKey::from("u"), UnitKey::from("v"));
        let started = Note::AttemptStarted(Box::default()).to_json();
        for unit in [&unit, &other] {
            tap.record(&[NewEntry { attempt: Some((unit, 1)), body: EntryBody::Note(&started) }]).unwrap();
            let line = br#"{"type":"result","subtype":"success","total_cost_usd":0.25}"#;
            tap.record(&[NewEntry { attempt: Some((unit, 1)), body: EntryBody::Out(line) }]).unwrap();
        }
        let heard: Vec<_> = std::iter::from_fn(|| received.try_recv().ok()).collect();
        assert_eq!(heard, [ScheduleEvent::CostUpdated { usd: 0.25 }, ScheduleEvent::CostUpdated { usd: 0.5 }]);
    }

    #[test]
    fn rate_limit_event_is_sent_to_the_schedule() {
        let (inputs, mut received) = mpsc::channel(1);
        let tap = ObservingRecorder::new(Arc::new(NoteCollector::default()), inputs.downgrade(), Arc::default());
        let line =
            br#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","rateLimitType":"five_hour"}}"#;
        tap.record(&[NewEntry { attempt: None, body: EntryBody::Out(line) }]).unwrap();
        let Ok(ScheduleEvent::LimitObserved(observed)) = received.try_recv() else { panic!("nothing was heard") };
        assert_eq!((observed.name.as_str(), observed.status), ("five_hour", LimitStatus::Rejected));
    }

    #[test]
    fn rejected_request_throttles_but_connection_error_does_not() {
        let (inputs, mut received) = mpsc::channel(4);
        let tap = ObservingRecorder::new(Arc::new(NoteCollector::default()), inputs.downgrade(), Arc::default());
        for (status, error) in [("429", "rate_limit"), ("null", "unknown"), ("401", "authentication_failed")] {
            let line = format!(
                r#"{{"type":"system","subtype":"api_retry","attempt":1,"max_retries":3,"retry_delay_ms":500,"error_status":{status},"error":"{error}"}}"#
            );
            tap.record(&[NewEntry { attempt: None, body: EntryBody::Out(line.as_bytes()) }]).unwrap();
        }
        let Ok(ScheduleEvent::LimitObserved(observed)) = received.try_recv() else { panic!("nothing was heard") };
        assert_eq!((observed.name.as_str(), observed.status), (REQUEST_RATE_LIMIT, LimitStatus::Warning));
        assert!(received.try_recv().is_err());
    }
}
