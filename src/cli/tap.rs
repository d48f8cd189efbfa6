//! A recorder that also listens: usage limits reach the schedule as soon as the service speaks of them, because the
//! attempt that hears of one may run on for an hour.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use memchr::memmem;
use tokio::sync::mpsc;

use crate::{
    decode,
    run::{Item, Recorder, source::RecordError},
    tape::{Body, Millis},
    units::{
        limits::{LimitStatus, Observed, resets_in_ms},
        schedule::Input,
    },
};

/// Records, then tells.
#[derive(Debug)]
pub struct Tap {
    inner: Arc<dyn Recorder>,
    heard: mpsc::WeakSender<Input>,
    began: Instant,
}

impl Tap {
    /// Listens to what goes to `inner`. Hearing does not keep a run open: only people do.
    pub fn new(inner: Arc<dyn Recorder>, heard: mpsc::WeakSender<Input>) -> Self {
        Self { inner, heard, began: Instant::now() }
    }

    fn observed(&self, line: &[u8]) -> Option<Observed> {
        // Most lines are long and none of these: the search is far cheaper than the decoder.
        memmem::find(line, b"\"rate_limit_event\"")?;
        let decode::Body::RateLimit(limit) = decode::line(line).body else { return None };
        Some(Observed {
            at: Millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)),
            name: limit.limit.as_deref().unwrap_or("usage").to_owned(),
            status: LimitStatus::parse(&limit.status)?,
            utilization: limit.utilization,
            resets_in_ms: limit.resets_at.map(|at| resets_in_ms(at, Timestamp::now().as_millisecond())),
        })
    }
}

impl Recorder for Tap {
    fn record(&self, items: &[Item<'_>]) -> Result<(), RecordError> {
        self.inner.record(items)?;
        for item in items {
            if let Body::Out(line) = item.body
                && let Some(observed) = self.observed(line)
                && let Some(heard) = self.heard.upgrade()
            {
                // A full queue means that the schedule has plenty to think about already.
                let _ = heard.try_send(Input::LimitObserved(observed));
            }
        }
        Ok(())
    }
}
