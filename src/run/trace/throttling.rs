//! How limits paced the run, as KTX's governor tells it: how many units may run at once, and what is waited for.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{TraceEvent, TraceLevel};
use crate::tape::{
    Header, Millis,
    note::{Note, RunPlanned},
};

const PHASE: &str = "rate_limit";

const PROVIDER: &str = "claude-subscription";

/// What holds at the moment.
#[derive(Debug, Default)]
pub(super) struct LimitTracker {
    /// Units that may run at once, as far as people say.
    concurrency: u32,
    /// And as far as a limit that is near allows.
    throttled_to: Option<u32>,
    /// The limit that is waited for, and until when if that is known.
    wait: Option<(String, Option<Millis>)>,
}

impl LimitTracker {
    /// The pace of a run that begins.
    pub(super) fn new(planned: &RunPlanned) -> Self {
        Self { concurrency: planned.concurrency, ..Self::default() }
    }

    /// The events of a note; none if it is about something else.
    pub(super) fn events_for(&mut self, at: Millis, note: &Note, header: &Header) -> Vec<TraceEvent<'static>> {
        match note {
            Note::LimitPaused { until, limit, wait_ms } => {
                let until = until.or_else(|| wait_ms.map(|wait| Millis(at.0.saturating_add(wait))));
                self.wait = Some((limit.clone(), until));
                vec![TraceEvent::new(TraceLevel::Info, PHASE, "wait_started", wait(at, limit, until, header))]
            }
            Note::LimitLifted => {
                let data = self.wait.take().map(|(limit, until)| wait(at, &limit, until, header));
                let finished = TraceEvent::new(TraceLevel::Info, PHASE, "wait_finished", data.unwrap_or_default());
                // The windows start afresh with it.
                let restored = self.adjust(|pace| pace.throttled_to = None, "the wait for a limit is over");
                [finished].into_iter().chain(restored).collect()
            }
            Note::Throttled { slots, limit } => {
                self.adjust(|pace| pace.throttled_to = *slots, limit).into_iter().collect()
            }
            Note::ConcurrencyChanged { slots } => {
                self.adjust(|pace| pace.concurrency = *slots, "asked for").into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn effective_concurrency(&self) -> u32 {
        self.throttled_to.map_or(self.concurrency, |throttle| throttle.min(self.concurrency))
    }

    fn adjust(&mut self, change: impl FnOnce(&mut Self), reason: &str) -> Option<TraceEvent<'static>> {
        let from = self.effective_concurrency();
        change(self);
        let to = self.effective_concurrency();
        let data = json!({"from": from, "to": to, "reason": reason});
        (from != to).then(|| TraceEvent::new(TraceLevel::Debug, PHASE, "concurrency_adjusted", data))
    }
}

fn wait(at: Millis, limit: &str, until: Option<Millis>, header: &Header) -> Value {
    json!({
        "provider": PROVIDER, "rateLimitType": limit,
        "resumeAtMs": until.and_then(|until| until.to_timestamp(header.started_at)).map(Timestamp::as_millisecond),
        "remainingMs": until.map(|until| until.since(at).0),
    })
}
