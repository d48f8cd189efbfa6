//! A recorder that also listens: usage limits reach the schedule as soon as the service speaks of them, because the
//! attempt that hears of one may run on for an hour; and an attempt that nears its turn limit is warned about once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use jiff::Timestamp;
use memchr::memmem;
use tokio::sync::mpsc;

use super::meter::Meter;
use crate::{
    decode,
    run::{Item, Recorder, source::RecordError},
    tape::{Body, Millis, Note, UnitKey, note::Level},
    units::{
        governor::REQUESTS,
        limits::{LimitStatus, Observed, TurnEvent, TurnLimiter, resets_in_ms},
        schedule::Input,
    },
};

/// Bytes of a line in which its type stands, when it is a line of the model.
const HEAD: usize = 128;

/// How the note about the start of an attempt begins.
const ATTEMPT_STARTED: &[u8] = br#"{"kind":"attempt_started""#;

/// How nearly every line begins while a model speaks. None of them says anything that matters here.
const PIECE: &[u8] = br#"{"type":"stream_event","#;

/// Records, then tells.
#[derive(Debug)]
pub struct Tap {
    inner: Arc<dyn Recorder>,
    heard: mpsc::WeakSender<Input>,
    began: Instant,
    turns: Mutex<HashMap<(UnitKey, u32), TurnLimiter>>,
    meter: Arc<Meter>,
}

impl Tap {
    /// Listens to what goes to `inner`. Hearing does not keep a run open: only people do.
    pub fn new(inner: Arc<dyn Recorder>, heard: mpsc::WeakSender<Input>, meter: Arc<Meter>) -> Self {
        Self { inner, heard, began: Instant::now(), turns: Mutex::default(), meter }
    }

    /// Learns how many turns an attempt has, which a person may have changed.
    fn begins(&self, lane: (&UnitKey, u32), note: &[u8]) {
        if !note.starts_with(ATTEMPT_STARTED) {
            return;
        }
        if let Note::AttemptStarted(started) = Note::parse(note) {
            let limiter = TurnLimiter::new(started.step_budget);
            self.limiters().insert((lane.0.clone(), lane.1), limiter);
            self.meter.begins(lane, started.resumed().map(|resumed| resumed.session));
        }
    }

    fn limiters(&self) -> MutexGuard<'_, HashMap<(UnitKey, u32), TurnLimiter>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The warning that this line of the model makes due.
    fn approaching(&self, lane: (&UnitKey, u32), line: &[u8]) -> Option<Note> {
        // Two searches of the head spare nearly every line the decoder.
        let head = line.get(..line.len().min(HEAD))?;
        memmem::find(head, b"\"assistant\"")?;
        let line = decode::line(line);
        let decode::Body::Assistant(chat) = &line.body else { return None };
        if line.parent_tool_use_id.is_some() || chat.model.as_deref() == Some("<synthetic>") {
            return None;
        }
        match self.limiters().get_mut(&(lane.0.clone(), lane.1))?.saw(chat.message_id.as_deref())? {
            event @ TurnEvent::Approaching { .. } => {
                Some(Note::Said { level: Level::Warning, text: event.to_string() })
            }
            // The agent says so itself, in its result.
            TurnEvent::Reached { .. } => None,
        }
    }

    fn observed(&self, line: &[u8]) -> Option<Observed> {
        // Most lines are long and none of these: the searches are far cheaper than the decoder.
        if memmem::find(line, b"\"rate_limit_event\"").is_none() && memmem::find(line, b"\"api_retry\"").is_none() {
            return None;
        }
        let at = Millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        match decode::line(line).body {
            decode::Body::RateLimit(limit) => Some(Observed {
                at,
                name: limit.limit.as_deref().unwrap_or("usage").to_owned(),
                status: LimitStatus::parse(&limit.status)?,
                utilization: limit.utilization,
                resets_in_ms: limit.resets_at.map(|at| resets_in_ms(at, Timestamp::now().as_millisecond())),
            }),
            decode::Body::System(decode::line::System::ApiRetry { status, error, .. }) => {
                let crowded =
                    matches!(status, Some(429 | 529)) || matches!(error.as_deref(), Some("rate_limit" | "overloaded"));
                crowded.then(|| Observed {
                    at,
                    name: REQUESTS.to_owned(),
                    status: LimitStatus::Warning,
                    utilization: None,
                    resets_in_ms: None,
                })
            }
            _ => None,
        }
    }
}

impl Recorder for Tap {
    fn record(&self, items: &[Item<'_>]) -> Result<(), RecordError> {
        self.inner.record(items)?;
        for item in items {
            if let (Body::Note(note), Some(lane)) = (&item.body, item.lane) {
                self.begins(lane, note);
            }
            let Body::Out(line) = item.body else { continue };
            if line.starts_with(PIECE) {
                continue;
            }
            if let Some(observed) = self.observed(line)
                && let Some(heard) = self.heard.upgrade()
            {
                // A full queue means that the schedule has plenty to think about already; the next line says it again.
                if heard.try_send(Input::LimitObserved(observed)).is_err() {
                    tracing::warn!("a usage window was not passed on");
                }
            }
            if let Some(lane) = item.lane
                && let Some(usd) = self.meter.line(lane, line)
                && let Some(heard) = self.heard.upgrade()
                && heard.try_send(Input::Spent { usd }).is_err()
            {
                tracing::warn!("what the run has cost was not passed on");
            }
            if let Some(lane) = item.lane
                && let Some(note) = self.approaching(lane, line)
            {
                let json = note.to_json();
                self.inner.record(&[Item { lane: Some(lane), body: Body::Note(&json) }])?;
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
    struct Kept(Mutex<Vec<Note>>);

    impl Recorder for Kept {
        fn record(&self, items: &[Item<'_>]) -> Result<(), RecordError> {
            let notes = items.iter().filter_map(|item| match item.body {
                Body::Note(json) => Some(Note::parse(json)),
                _ => None,
            });
            self.0.lock().unwrap().extend(notes);
            Ok(())
        }
    }

    #[test]
    fn four_fifths_of_the_turns_are_warned_about_once() {
        let kept = Arc::new(Kept::default());
        let (inputs, _received) = mpsc::channel(1);
        let tap = Tap::new(Arc::clone(&kept) as _, inputs.downgrade(), Arc::default());
        let unit = UnitKey::from("u");
        let started = Note::AttemptStarted(Box::new(AttemptStarted { step_budget: 5, ..AttemptStarted::default() }));
        tap.record(&[Item { lane: Some((&unit, 1)), body: Body::Note(&started.to_json()) }]).unwrap();
        for turn in [1, 1, 2, 3, 4, 4, 5] {
            let line = format!(r#"{{"type":"assistant","message":{{"id":"m{turn}","content":[]}}}}"#);
            tap.record(&[Item { lane: Some((&unit, 1)), body: Body::Out(line.as_bytes()) }]).unwrap();
        }
        let expected = Note::Said { level: Level::Warning, text: "Approaching turn limit: 4/5".into() };
        assert_eq!(*kept.0.lock().unwrap(), [started, expected]);
    }

    #[test]
    fn what_the_run_has_cost_reaches_the_schedule() {
        let (inputs, mut received) = mpsc::channel(4);
        let tap = Tap::new(Arc::new(Kept::default()), inputs.downgrade(), Arc::default());
        let (unit, other) = (UnitKey::from("u"), UnitKey::from("v"));
        let started = Note::AttemptStarted(Box::default()).to_json();
        for unit in [&unit, &other] {
            tap.record(&[Item { lane: Some((unit, 1)), body: Body::Note(&started) }]).unwrap();
            let line = br#"{"type":"result","subtype":"success","total_cost_usd":0.25}"#;
            tap.record(&[Item { lane: Some((unit, 1)), body: Body::Out(line) }]).unwrap();
        }
        let heard: Vec<_> = std::iter::from_fn(|| received.try_recv().ok()).collect();
        assert_eq!(heard, [Input::Spent { usd: 0.25 }, Input::Spent { usd: 0.5 }]);
    }

    #[test]
    fn a_usage_window_reaches_the_schedule() {
        let (inputs, mut received) = mpsc::channel(1);
        let tap = Tap::new(Arc::new(Kept::default()), inputs.downgrade(), Arc::default());
        let line =
            br#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","rateLimitType":"five_hour"}}"#;
        tap.record(&[Item { lane: None, body: Body::Out(line) }]).unwrap();
        let Ok(Input::LimitObserved(observed)) = received.try_recv() else { panic!("nothing was heard") };
        assert_eq!((observed.name.as_str(), observed.status), ("five_hour", LimitStatus::Rejected));
    }

    #[test]
    fn requests_that_are_turned_away_press_and_a_broken_connection_does_not() {
        let (inputs, mut received) = mpsc::channel(4);
        let tap = Tap::new(Arc::new(Kept::default()), inputs.downgrade(), Arc::default());
        for (status, error) in [("429", "rate_limit"), ("null", "unknown"), ("401", "authentication_failed")] {
            let line = format!(
                r#"{{"type":"system","subtype":"api_retry","attempt":1,"max_retries":3,"retry_delay_ms":500,"error_status":{status},"error":"{error}"}}"#
            );
            tap.record(&[Item { lane: None, body: Body::Out(line.as_bytes()) }]).unwrap();
        }
        let Ok(Input::LimitObserved(observed)) = received.try_recv() else { panic!("nothing was heard") };
        assert_eq!((observed.name.as_str(), observed.status), (REQUESTS, LimitStatus::Warning));
        assert!(received.try_recv().is_err());
    }
}
