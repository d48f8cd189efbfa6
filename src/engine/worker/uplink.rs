//! What one attempt of a worker sends to its engine: entries, questions about calls, and its result.
//!
//! It must not know what runs the attempt.

use std::{collections::HashMap, fmt, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    delivery::Outbox,
    protocol::{AttemptLease, CHUNK_BYTES, ResultFile, WorkerMessage, WorkerPart},
    remote_attempt::MAX_ENTRY_BYTES,
};
use ingestdeck_agent::attempt::{ApprovalDecision, ApprovalGate, ApprovalRequest};
use ingestdeck_core::{
    run::{NewEntry, Recorder, entry_source::RecordError},
    tape::{Millis, Seq, TapeEntry},
};

/// Most bytes of entries that the engine has not confirmed.
const MAX_UNCONFIRMED_BYTES: usize = 512 << 20;

/// What one attempt sends to the engine: its entries, and questions about its calls.
pub(super) struct Uplink {
    lease: AttemptLease,
    outgoing: mpsc::UnboundedSender<WorkerMessage>,
    keeps_unconfirmed: bool,
    state: Mutex<UplinkState>,
}

#[derive(Default)]
struct UplinkState {
    outbox: Outbox<WorkerPart>,
    /// When a part was confirmed, or the first unconfirmed one was sent.
    progress: Option<Instant>,
    /// Bytes of the entries in the outbox, at most.
    bytes: usize,
    /// Bytes of all entries of the attempt.
    total_bytes: usize,
    next_call: u64,
    calls: HashMap<u64, oneshot::Sender<ApprovalDecision>>,
}

impl fmt::Debug for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uplink")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Uplink {
    /// `keeps_unconfirmed` if the transport may lose messages.
    pub(super) fn new(
        lease: AttemptLease,
        outgoing: mpsc::UnboundedSender<WorkerMessage>,
        keeps_unconfirmed: bool,
    ) -> Self {
        Self {
            lease,
            outgoing,
            keeps_unconfirmed,
            state: Mutex::default(),
        }
    }

    pub(super) fn send(&self, part: WorkerPart) {
        let mut state = lock(&self.state);
        if state.outbox.is_confirmed() {
            state.progress = Some(Instant::now());
        }
        let number = state.outbox.push(part.clone());
        if !self.keeps_unconfirmed && !matches!(part, WorkerPart::Ended(_)) {
            state.outbox.confirm(number + 1);
        }
        // Sent under the lock, so that parts leave in order. A closed connection ends the worker.
        let _ = self.outgoing.send(WorkerMessage::Attempt {
            lease: self.lease.clone(),
            number,
            part,
        });
    }

    pub(super) fn send_file(&self, file: ResultFile, content: &[u8]) {
        for piece in content.chunks(CHUNK_BYTES) {
            self.send(WorkerPart::ResultPiece {
                file,
                data: BASE64_STANDARD.encode(piece),
            });
        }
    }

    pub(super) fn confirm(&self, count: u64) {
        let mut state = lock(&self.state);
        state.outbox.confirm(count);
        state.progress = Some(Instant::now());
        if state.outbox.is_confirmed() {
            state.bytes = 0;
        }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        lock(&self.state).outbox.is_confirmed()
    }

    /// Sends everything unconfirmed again if nothing was confirmed for this long.
    pub(super) fn resend_after(&self, patience: Duration) {
        let mut state = lock(&self.state);
        if state.outbox.is_confirmed() || state.progress.is_some_and(|at| at.elapsed() < patience) {
            return;
        }
        state.progress = Some(Instant::now());
        for (number, part) in state.outbox.unconfirmed() {
            let (lease, part) = (self.lease.clone(), part.clone());
            let _ = self.outgoing.send(WorkerMessage::Attempt {
                lease,
                number,
                part,
            });
        }
    }

    pub(super) fn decide(&self, call: u64, decision: ApprovalDecision) {
        if let Some(reply) = lock(&self.state).calls.remove(&call) {
            // A closed channel means that the agent no longer waits.
            let _ = reply.send(decision);
        }
    }
}

impl Recorder for Uplink {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        let mut entries = Vec::with_capacity(items.len());
        let mut size = 0;
        for item in items {
            let mut line = Vec::new();
            let attempt = Some((self.lease.unit.as_str().into(), self.lease.attempt));
            TapeEntry {
                seq: Seq(0),
                at: Millis(0),
                attempt,
                body: item.body.clone(),
            }
            .write(&mut line);
            size += line.len();
            let entry = String::from_utf8(line).map_err(std::io::Error::other);
            let entry =
                entry.and_then(|line| RawValue::from_string(line).map_err(std::io::Error::other));
            entries.push(
                entry.map_err(|error| RecordError::new("the entries of the worker", &error))?,
            );
        }
        let mut state = lock(&self.state);
        state.total_bytes += size;
        if state.total_bytes > MAX_ENTRY_BYTES {
            let text = format!(
                "the attempt produced more than {} MiB",
                MAX_ENTRY_BYTES >> 20
            );
            return Err(RecordError::new(
                "the entries of the worker",
                &std::io::Error::other(text),
            ));
        }
        if self.keeps_unconfirmed {
            state.bytes += size;
            if state.bytes > MAX_UNCONFIRMED_BYTES {
                let error = std::io::Error::other("the engine confirms nothing");
                return Err(RecordError::new("the entries of the worker", &error));
            }
        }
        drop(state);
        self.send(WorkerPart::Entries(entries));
        Ok(())
    }
}

impl ApprovalGate for Uplink {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, ApprovalDecision> {
        let (reply, decided) = oneshot::channel();
        let call = {
            let mut state = lock(&self.state);
            state.next_call += 1;
            let call = state.next_call;
            state.calls.insert(call, reply);
            call
        };
        self.send(WorkerPart::Call { call, request });
        let cancelling = CallGuard { uplink: self, call };
        Box::pin(async move {
            let _cancelling = cancelling;
            // The sender is dropped only with the attempt.
            decided.await.unwrap_or(ApprovalDecision::DenyByPolicy(
                "the worker is ending".to_owned(),
            ))
        })
    }
}

/// Informs the engine that a call no longer waits, if it is dropped before the decision.
struct CallGuard<'u> {
    uplink: &'u Uplink,
    call: u64,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if lock(&self.uplink.state).calls.remove(&self.call).is_some() {
            self.uplink
                .send(WorkerPart::CallCancelled { call: self.call });
        }
    }
}

/// The value stays valid if a thread panics while it holds the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
