//! The one reader of a run's own tape while it grows, for everything that is derived from it outside of the client.
//!
//! It passes each entry to KTX's trace (`trace`), and the effects and the state of one fold to the spans
//! (`span_exporter`) and the notifications (`notifier`). Reading happens where it may block. A sink that fails or
//! panics affects neither the run nor the other sinks.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::JoinHandle, time::sleep};

use super::{
    attached_clients::AttachedClients, notifier::NotificationSink, span_exporter::SpanSink,
    trace::TraceSink,
};
use ingestdeck_agent::caught_panics;
use ingestdeck_core::{
    run::{EntryRef, EntrySource as _, EntrySourceError, PollStatus, Timeline},
    tape::{Header, Millis},
};
use ingestdeck_records::replay::{FileSource, OpenError, file::FollowHandle};

/// Bytes that are read at a time.
const SLICE: usize = 256 << 10;
/// How long entries are collected before they are read.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The same if only KTX's trace is written, which needs no low latency.
const TRACE_INTERVAL: Duration = Duration::from_secs(4);
/// How often silence is checked while units run.
const SILENCE_POLL: Duration = Duration::from_secs(5);

/// What is derived from a growing tape.
#[derive(Default)]
pub(super) struct TapeSinks {
    pub trace: Option<TraceSink>,
    pub spans: Option<SpanSink>,
    pub notifier: Option<NotificationSink>,
}

/// Follows the tape of a run.
pub(super) struct TapeFollower {
    finish: FollowHandle,
    finished: watch::Sender<bool>,
    task: JoinHandle<Option<TapeSinks>>,
}

impl TapeFollower {
    /// Starts to follow the tape at `path`, of which `growth` reports the length, with the sinks that `make` creates for
    /// its header. Needs a runtime.
    ///
    /// # Errors
    /// If the tape cannot be opened.
    pub(super) fn start(
        path: &Path,
        growth: watch::Receiver<u64>,
        clients: &AttachedClients,
        make: impl FnOnce(&Header) -> TapeSinks,
    ) -> Result<Self, OpenError> {
        let (source, finish) = FileSource::follow(path)?;
        let sinks = source.info().header.as_ref().map(make).unwrap_or_default();
        let source = match &sinks.spans {
            Some(spans) if spans.has_content() => source,
            _ => source.with_shortened_lines(),
        };
        let needs_fold = sinks.spans.is_some() || sinks.notifier.is_some();
        let reading = TapeReading {
            reader: match needs_fold {
                true => TapeReader::Folded(Box::new(Timeline::new_forward_only(Box::new(source)))),
                false => TapeReader::Entries(Box::new(source)),
            },
            sinks,
            began: Instant::now(),
            is_unreadable: false,
        };
        let finished = watch::Sender::new(false);
        let task = tokio::spawn(follow(
            reading,
            growth,
            finished.subscribe(),
            clients.subscribe(),
        ));
        Ok(Self {
            finish,
            finished,
            task,
        })
    }

    /// Passes the rest of the tape on, which must be complete. The sinks have to be finished.
    pub(super) async fn finish(self) -> TapeSinks {
        self.finish.finish();
        self.finished.send_replace(true);
        self.task.await.ok().flatten().unwrap_or_default()
    }
}

async fn follow(
    mut reading: TapeReading,
    mut growth: watch::Receiver<u64>,
    mut finished: watch::Receiver<bool>,
    mut attached: watch::Receiver<usize>,
) -> Option<TapeSinks> {
    let mut is_last = false;
    loop {
        is_last |= *finished.borrow_and_update();
        let read = caught_panics::spawn_blocking_caught(move || {
            reading.read(is_last);
            reading
        });
        reading = read
            .await
            .inspect_err(|error| tracing::warn!(%error, "the tape is not followed any longer"))
            .ok()?;
        if is_last {
            return Some(reading.sinks);
        }
        let notifies = reading.sinks.notifier.is_some();
        let interval = match reading.reader {
            TapeReader::Folded(_) => READ_INTERVAL,
            TapeReader::Entries(_) => TRACE_INTERVAL,
        };
        tokio::select! {
            _ = finished.changed() => {}
            changed = growth.changed() => match changed {
                // Entries are collected, but the end of the run does not wait for more of them.
                Ok(()) => tokio::select! {
                    _ = finished.changed() => {}
                    () = sleep(interval) => {}
                },
                // The writer is gone, so the tape is complete.
                Err(_) => is_last = true,
            },
            // The last screen may have disappeared.
            _ = attached.changed(), if notifies => {}
            () = sleep(SILENCE_POLL), if notifies && reading.has_running_unit() => {}
        }
    }
}

/// Where entries come from. A fold is computed only if a sink needs it.
enum TapeReader {
    Entries(Box<FileSource>),
    Folded(Box<Timeline>),
}

struct TapeReading {
    reader: TapeReader,
    sinks: TapeSinks,
    /// Start of the run's clock.
    began: Instant,
    /// True after a read failed: the rest of the tape is not passed on.
    is_unreadable: bool,
}

/// Passes something to a sink, if there is one. A sink that panics is dropped.
fn feed<S>(sink: &mut Option<S>, pass: impl FnOnce(&mut S)) {
    if let Some(fed) = sink
        && catch_unwind(AssertUnwindSafe(|| pass(fed))).is_err()
    {
        tracing::warn!("a sink of the tape panicked; it gets nothing more");
        *sink = None;
    }
}

impl TapeReading {
    fn has_running_unit(&self) -> bool {
        match &self.reader {
            TapeReader::Entries(_) => false,
            TapeReader::Folded(timeline) => {
                let mut units = timeline.view().state.units.iter();
                units.any(|unit| unit.status.is_in_flight())
            }
        }
    }

    /// Passes what is new on the tape to the sinks, and with `is_last` its end.
    fn read(&mut self, is_last: bool) {
        while !self.is_unreadable {
            match self.read_slice() {
                Ok(PollStatus::More) => {}
                Ok(PollStatus::Waiting | PollStatus::End) => break,
                Err(error) => {
                    tracing::warn!(%error, "the tape is not followed any longer");
                    self.is_unreadable = true;
                }
            }
        }
        let TapeReader::Folded(timeline) = &mut self.reader else {
            return;
        };
        let now = Millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        if self.sinks.notifier.is_some() {
            timeline.advance_clock(now, now, &mut |_| {});
        }
        let state = &timeline.view().state;
        feed(&mut self.sinks.notifier, |notifier| {
            notifier.look(state, now)
        });
        feed(&mut self.sinks.spans, |spans| spans.look(state, is_last));
    }

    fn read_slice(&mut self) -> Result<PollStatus, EntrySourceError> {
        let TapeSinks { trace, spans, .. } = &mut self.sinks;
        let mut on_entry = |entry: &EntryRef<'_>| {
            feed(trace, |trace| trace.add(entry));
        };
        let read = match &mut self.reader {
            TapeReader::Entries(source) => source.poll(SLICE, &mut |entry| on_entry(&entry)),
            TapeReader::Folded(timeline) => {
                timeline.advance_observed(SLICE, &mut on_entry, &mut |emitted| {
                    feed(spans, |spans| spans.observe(&emitted));
                })
            }
        };
        feed(trace, TraceSink::write);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sink_that_panics_is_dropped_alone() {
        let fed = caught_panics::spawn_blocking_caught(|| {
            let (mut good, mut bad) = (Some(0), Some(0));
            for _ in 0..2 {
                feed(&mut bad, |_| panic!("on purpose"));
                feed(&mut good, |count| *count += 1);
            }
            (good, bad)
        });
        assert_eq!(fed.await.unwrap(), (Some(2), None));
    }
}
