//! Exports the spans of a run to an OpenTelemetry collector while the run is active.
//!
//! The task follows the tape as a replay does. A slow, absent or hostile collector never delays or fails the run: spans
//! that cannot be sent in time are dropped, and one message of the run reports it.

use std::{io, path::Path, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    process::Child,
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::http_post;
use ingestdeck_core::{
    run::{EntrySource as _, PollStatus, Recorder, Timeline, otlp, otlp::SpanBuilder},
    tape::{Note, note::Severity},
};
use ingestdeck_records::replay::{FileSource, OpenError, file::FollowHandle};

/// Bytes that are folded before other tasks get a turn.
const SLICE: usize = 256 << 10;
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
    /// `TRACEPARENT` of the environment: the span that starts the run.
    pub parent: Option<String>,
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

/// The task that exports.
#[derive(Debug)]
pub(super) struct SpanExportTask {
    finish: FollowHandle,
    finished: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl SpanExportTask {
    /// Starts to follow the tape at `path`, of which `growth` reports the length.
    ///
    /// # Errors
    /// If the tape cannot be opened.
    pub(super) fn start(
        (path, growth): (&Path, watch::Receiver<u64>),
        recorder: Arc<dyn Recorder>,
        target: SpanTarget,
    ) -> Result<Option<Self>, OpenError> {
        let (source, finish) = FileSource::follow(path)?;
        let Some(header) = source.info().header.clone() else {
            return Ok(None);
        };
        let source: Box<dyn ingestdeck_core::run::EntrySource> = if target.has_content {
            Box::new(source)
        } else {
            Box::new(source.with_shortened_lines())
        };
        let timeline = Timeline::new_forward_only(source);
        let builder = SpanBuilder::new(header, target.has_content);
        let finished = watch::Sender::new(false);
        let exporter = SpanExporter {
            timeline,
            builder,
            recorder,
            target,
            pending: Vec::new(),
            has_failed: false,
        };
        let task = tokio::spawn(exporter.run(growth, finished.subscribe()));
        Ok(Some(Self {
            finish,
            finished,
            task,
        }))
    }

    /// Sends the last spans, without waiting long for the collector.
    pub(super) async fn finish(self) {
        self.finish.finish();
        self.finished.send_replace(true);
        let mut task = self.task;
        if timeout(FINISH_TIMEOUT, &mut task).await.is_err() {
            // It must not write to the tape after this. Requests that were started continue.
            task.abort();
            tracing::warn!("the collector has not accepted the last spans in time");
        }
    }
}

struct SpanExporter {
    timeline: Timeline,
    builder: SpanBuilder,
    recorder: Arc<dyn Recorder>,
    target: SpanTarget,
    /// Spans that were not sent yet, oldest first.
    pending: Vec<Value>,
    /// A request has failed, and the user was informed.
    has_failed: bool,
}

impl SpanExporter {
    async fn run(mut self, mut growth: watch::Receiver<u64>, mut finished: watch::Receiver<bool>) {
        let mut is_accepting = true;
        loop {
            // The tape is complete before this is set.
            let is_finished = *finished.borrow_and_update();
            self.look().await;
            if is_finished {
                break;
            }
            // A full request is sent without a pause.
            if !is_accepting || batch_length(&self.pending) == self.pending.len() {
                tokio::select! {
                    changed = finished.changed() => if changed.is_err() { return } else { continue },
                    () = sleep(SEND_INTERVAL) => {}
                }
            }
            if self.pending.is_empty() {
                tokio::select! {
                    changed = finished.changed() => if changed.is_err() { return },
                    changed = growth.changed() => if changed.is_err() { break },
                }
                continue;
            }
            let batch: Vec<Value> = self.pending.drain(..batch_length(&self.pending)).collect();
            match self.target.start(&batch).await {
                Ok(child) => tokio::select! {
                    sent = http_post::wait_for_post(child) => {
                        is_accepting = sent.is_ok();
                        self.report(sent);
                    }
                    // The end of the run does not wait for a slow collector. The request continues.
                    changed = finished.changed() => if changed.is_err() { return },
                },
                Err(error) => {
                    is_accepting = false;
                    self.report(Err(error));
                }
            }
        }
        self.send_last().await;
    }

    /// Reads the tape, and adds what is new.
    async fn look(&mut self) {
        loop {
            let builder = &mut self.builder;
            match self
                .timeline
                .advance(SLICE, &mut |emitted| builder.observe(&emitted))
            {
                Ok(PollStatus::More) => tokio::task::yield_now().await,
                Ok(PollStatus::Waiting | PollStatus::End) => break,
                Err(error) => {
                    tracing::warn!(%error, "the tape cannot be read for spans");
                    break;
                }
            }
        }
        self.builder.add_ended_attempts(&self.timeline.view().state);
        self.pending.extend(self.builder.take());
        if self.pending.len() > MAX_PENDING {
            let dropped = self.pending.len() - MAX_PENDING;
            self.pending.drain(..dropped);
            self.report(Err(io::Error::other(format!(
                "{dropped} spans were dropped, because the collector is too slow"
            ))));
        }
    }

    /// Starts all remaining requests. They continue when this process ends.
    async fn send_last(&mut self) {
        self.builder.finish(&self.timeline.view().state);
        let mut last = std::mem::take(&mut self.pending);
        last.extend(self.builder.take());
        // Calls have no parent in the collector without the spans of the run and its attempts.
        last.sort_by_key(otlp::is_call);
        let mut children = Vec::new();
        let mut unsent = last.len();
        for batch in batches(&last).take(MAX_LAST_REQUESTS) {
            unsent -= batch.len();
            match self.target.start(batch).await {
                Ok(child) => children.push(child),
                Err(error) => self.report(Err(error)),
            }
        }
        if unsent > 0 {
            self.report(Err(io::Error::other(format!(
                "{unsent} spans were dropped at the end of the run"
            ))));
        }
        for child in children {
            if let Err(error) = http_post::wait_for_post(child).await {
                tracing::warn!(%error, "spans were not sent");
            }
        }
    }

    /// Records the first failure, so that the user learns of a wrong setting.
    fn report(&mut self, sent: io::Result<()>) {
        let Err(error) = sent else { return };
        let text = format!("spans were not sent to the collector: {error}");
        tracing::warn!(text);
        if !std::mem::replace(&mut self.has_failed, true) {
            // A tape that cannot be written ends the run anyway.
            let _ = self.recorder.record_note(
                None,
                &Note::Message {
                    level: Severity::Warning,
                    text,
                },
            );
        }
    }
}
