//! Traces throttling with the events of KTX's governor: the concurrency, and the waits for limits.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{TraceEvent, TraceLevel};
use crate::tape::{
    Header, Millis,
    note::{Note, RunPlanned},
};

const PHASE: &str = "rate_limit";

const PROVIDER: &str = "claude-subscription";

/// The limits that apply at the moment.
#[derive(Debug, Default)]
pub(super) struct LimitTracker {
    /// Configured concurrency, before throttling.
    concurrency: u32,
    /// Concurrency while a limit is near.
    throttled_to: Option<u32>,
    /// Name of the limit that the run waits for, and the end of the wait if known.
    wait: Option<(String, Option<Millis>)>,
}

impl LimitTracker {
    pub(super) fn new(planned: &RunPlanned) -> Self {
        Self {
            concurrency: planned.concurrency,
            ..Self::default()
        }
    }

    /// Returns the events of a note, none if the note does not concern limits.
    pub(super) fn events_for(
        &mut self,
        at: Millis,
        note: &Note,
        header: &Header,
    ) -> Vec<TraceEvent<'static>> {
        match note {
            Note::LimitPaused {
                until,
                limit,
                wait_ms,
            } => {
                let until = until.or_else(|| wait_ms.map(|wait| Millis(at.0.saturating_add(wait))));
                self.wait = Some((limit.clone(), until));
                vec![TraceEvent::new(
                    TraceLevel::Info,
                    PHASE,
                    "wait_started",
                    wait(at, limit, until, header),
                )]
            }
            Note::LimitLifted => {
                let data = self
                    .wait
                    .take()
                    .map(|(limit, until)| wait(at, &limit, until, header));
                let finished = TraceEvent::new(
                    TraceLevel::Info,
                    PHASE,
                    "wait_finished",
                    data.unwrap_or_default(),
                );
                // Throttling ends with the wait.
                let restored = self.adjust(
                    |limits| limits.throttled_to = None,
                    "the wait for a limit is over",
                );
                [finished].into_iter().chain(restored).collect()
            }
            Note::Throttled { slots, limit } => self
                .adjust(|limits| limits.throttled_to = *slots, limit)
                .into_iter()
                .collect(),
            Note::ConcurrencyChanged { slots, .. } => self
                .adjust(|limits| limits.concurrency = *slots, "asked for")
                .into_iter()
                .collect(),
            _ => Vec::new(),
        }
    }

    fn effective_concurrency(&self) -> u32 {
        self.throttled_to
            .map_or(self.concurrency, |throttle| throttle.min(self.concurrency))
    }

    fn adjust(
        &mut self,
        change: impl FnOnce(&mut Self),
        reason: &str,
    ) -> Option<TraceEvent<'static>> {
        let from = self.effective_concurrency();
        change(self);
        let to = self.effective_concurrency();
        let data = json!({"from": from, "to": to, "reason": reason});
        (from != to)
            .then(|| TraceEvent::new(TraceLevel::Debug, PHASE, "concurrency_adjusted", data))
    }
}

fn wait(at: Millis, limit: &str, until: Option<Millis>, header: &Header) -> Value {
    json!({
        "provider": PROVIDER, "rateLimitType": limit,
        "resumeAtMs": until.and_then(|until| until.to_timestamp(header.started_at)).map(Timestamp::as_millisecond),
        "remainingMs": until.map(|until| until.since(at).0),
    })
}
