//! Exports the spans of a run to an OpenTelemetry collector while the run is active.
//!
//! The sink gets the events of the tape from `tape_follower`, and a task sends the spans. A slow, absent or hostile
//! collector never delays or fails the run: spans that cannot be sent in time are dropped, and one message of the run
//! reports it.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    process::Child,
    sync::{Notify, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{http_post, sink_failures::SinkFailures};
use ingestdeck_core::{
    run::{Recorder, SinkEvent, otlp, otlp::SpanBuilder, state::RunState},
    tape::{Header, note::RunStarter},
};

/// Minimum interval between two requests.
const SEND_INTERVAL: Duration = Duration::from_secs(1);
/// How long the last request may delay the end of the process. It continues afterwards.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a request in bytes, unless a single span is larger.
const MAX_REQUEST_BYTES: usize = 48 << 10;
/// Maximum number of spans that wait to be sent.
const MAX_PENDING: usize = 10_000;
/// Maximum number of requests at the end of a run.
const MAX_LAST_REQUESTS: usize = 32;

/// Where spans are sent.
#[derive(Clone, PartialEq, Eq)]
pub struct SpanTarget {
    /// The address that accepts traces.
    pub url: String,
    /// Names and values, which may be secrets.
    pub headers: Vec<(String, String)>,
    /// Value of `service.name`, the name of this service.
    pub service: String,
    /// Also send arguments and results of tool calls.
    pub has_content: bool,
}

/// Shows no values of headers, and no address, which may contain a password.
impl std::fmt::Debug for SpanTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpanTarget")
            .field("has_content", &self.has_content)
            .finish_non_exhaustive()
    }
}

/// Tracing of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// Where spans are sent, if anywhere.
    pub target: Option<SpanTarget>,
    /// Who or what starts the run; its span is the parent of those of the run.
    pub starter: RunStarter,
}

impl SpanTarget {
    async fn start(&self, spans: &[Value]) -> io::Result<Child> {
        let body = otlp::export_request(&self.service, spans).to_string();
        http_post::start_post(&self.url, &self.headers, &body).await
    }
}

/// Sends all spans in requests of limited size.
///
/// # Errors
/// If a request is not accepted.
pub fn send(target: &SpanTarget, spans: &[Value]) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for batch in batches(spans) {
            http_post::wait_for_post(target.start(batch).await?).await?;
        }
        Ok(())
    })
}

/// The spans in parts of limited size.
pub fn batches(spans: &[Value]) -> impl Iterator<Item = &[Value]> {
    let mut rest = spans;
    std::iter::from_fn(move || {
        let (batch, later) = rest.split_at(batch_length(rest));
        rest = later;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Number of spans in the next request.
fn batch_length(spans: &[Value]) -> usize {
    let mut bytes = 0;
    let fits = |span: &&Value| {
        bytes += span.to_string().len();
        bytes <= MAX_REQUEST_BYTES
    };
    spans
        .iter()
        .take_while(fits)
        .count()
        .max(1)
        .min(spans.len())
}

/// Builds spans, and sends them by a task.
pub(super) struct SpanSink {
    builder: SpanBuilder,
    queue: Arc<SpanQueue>,
    finished: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Spans on their way to the collector.
struct SpanQueue {
    target: SpanTarget,
    /// Spans that were not sent yet, oldest first.
    pending: Mutex<Vec<Value>>,
    added: Notify,
    failures: Arc<SinkFailures>,
}

impl SpanSink {
    /// Sends the spans of the run of `header` to `target`. Needs a runtime.
    pub(super) fn new(header: &Header, target: SpanTarget, recorder: &Arc<dyn Recorder>) -> Self {
        let builder = SpanBuilder::new(header.clone(), target.has_content);
        let queue = Arc::new(SpanQueue {
            target,
            pending: Mutex::default(),
            added: Notify::new(),
            failures: SinkFailures::new(recorder),
        });
        let finished = watch::Sender::new(false);
        let task = tokio::spawn(send_pending(Arc::clone(&queue), finished.subscribe()));
        Self {
            builder,
            queue,
            finished,
            task,
        }
    }

    pub(super) fn has_content(&self) -> bool {
        self.queue.target.has_content
    }

    /// Adds an event of the fold.
    pub(super) fn observe(&mut self, emitted: &SinkEvent<'_>) {
        self.builder.observe(emitted);
    }

    /// Queues the spans that are complete.
    pub(super) fn look(&mut self, state: &RunState, is_end: bool) {
        self.builder.add_ended_attempts(state);
        if is_end {
            self.builder.finish(state);
        }
        let spans = self.builder.take();
        if spans.is_empty() {
            return;
        }
        let mut pending = self.queue.pending.lock();
        pending.extend(spans);
        let dropped = pending.len().saturating_sub(MAX_PENDING);
        pending.drain(..dropped);
        drop(pending);
        if dropped > 0 {
            self.queue.report(&io::Error::other(format!(
                "{dropped} spans were dropped, because the collector is too slow"
            )));
        }
        self.queue.added.notify_one();
    }

    /// Sends the last spans, without waiting long for the collector.
    pub(super) async fn finish(self) {
        self.finished.send_replace(true);
        let sending = self.task.abort_handle();
        let last = async {
            // The request that it sends continues.
            let _ = self.task.await;
            self.queue.send_last().await;
        };
        // Requests that were started continue.
        if timeout(FINISH_TIMEOUT, last).await.is_err() {
            tracing::warn!("the collector has not accepted the last spans in time");
            sending.abort();
        }
        // The tape is closed after this.
        self.queue.failures.close();
    }
}

async fn send_pending(queue: Arc<SpanQueue>, mut finished: watch::Receiver<bool>) {
    loop {
        let (batch, is_full) = {
            let mut pending = queue.pending.lock();
            let length = batch_length(&pending);
            let is_full = length < pending.len();
            (pending.drain(..length).collect::<Vec<_>>(), is_full)
        };
        if batch.is_empty() {
            tokio::select! {
                _ = finished.changed() => return,
                () = queue.added.notified() => continue,
            }
        }
        let sent = match queue.target.start(&batch).await {
            Ok(child) => tokio::select! {
                sent = http_post::wait_for_post(child) => sent,
                // The end of the run does not wait for a slow collector. The request continues.
                _ = finished.changed() => return,
            },
            Err(error) => Err(error),
        };
        // A full request is sent without a pause.
        if sent.is_err() || !is_full {
            let _ = sent.inspect_err(|error| queue.report(error));
            tokio::select! {
                _ = finished.changed() => return,
                () = sleep(SEND_INTERVAL) => {}
            }
        }
    }
}

impl SpanQueue {
    /// Starts all remaining requests. They continue when this process ends.
    async fn send_last(&self) {
        let mut last = std::mem::take(&mut *self.pending.lock());
        // Calls have no parent in the collector without the spans of the run and its attempts.
        last.sort_by_key(otlp::is_call);
        let mut children = Vec::new();
        let mut unsent = last.len();
        for batch in batches(&last).take(MAX_LAST_REQUESTS) {
            unsent -= batch.len();
            match self.target.start(batch).await {
                Ok(child) => children.push(child),
                Err(error) => self.report(&error),
            }
        }
        if unsent > 0 {
            self.report(&io::Error::other(format!(
                "{unsent} spans were dropped at the end of the run"
            )));
        }
        for child in children {
            if let Err(error) = http_post::wait_for_post(child).await {
                tracing::warn!(%error, "spans were not sent");
            }
        }
    }

    fn report(&self, error: &io::Error) {
        let text = format!("spans were not sent to the collector: {error}");
        self.failures.report(text);
    }
}
