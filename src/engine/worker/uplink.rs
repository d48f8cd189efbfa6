//! What one attempt of a worker sends to its engine: entries, questions about calls, and its result.
//!
//! It must not know what runs the attempt.

use std::{collections::HashMap, fmt};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::{
    protocol::{AttemptLease, CHUNK_BYTES, ResultFile, WorkerMessage, WorkerPart},
    remote_attempt::MAX_ENTRY_BYTES,
};
use ingestdeck_agent::attempt::{ApprovalDecision, ApprovalGate, ApprovalRequest};
use ingestdeck_core::{
    run::{NewEntry, Recorder, entry_source::RecordError},
    tape::{EntryBody, Millis, Seq, TapeEntry},
};

/// What one attempt sends to the engine: its entries, and questions about its calls.
pub(super) struct Uplink {
    lease: AttemptLease,
    outgoing: mpsc::UnboundedSender<WorkerMessage>,
    state: Mutex<UplinkState>,
}

#[derive(Default)]
struct UplinkState {
    /// Bytes of all entries of the attempt.
    total_bytes: usize,
    /// Number of lines of the attempt. Notes are not lines.
    lines: u64,
    next_call: u64,
    calls: HashMap<u64, (ApprovalRequest, oneshot::Sender<ApprovalDecision>)>,
    /// The engine is not heard.
    is_alone: bool,
    /// Calls pass while the engine is away.
    passes_calls: bool,
}

impl UplinkState {
    /// True if a call passes without the engine.
    fn passes(&self, request: &ApprovalRequest) -> bool {
        self.is_alone && self.passes_calls && !request.asks_permission
    }

    /// Lets the waiting calls pass that need no decision.
    fn release(&mut self) {
        let released: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, (request, _))| self.passes(request))
            .map(|(call, _)| *call)
            .collect();
        for call in released {
            if let Some((_, reply)) = self.calls.remove(&call) {
                // A closed channel means that the agent no longer waits.
                let _ = reply.send(ApprovalDecision::Allow);
            }
        }
    }
}

impl fmt::Debug for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uplink")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Uplink {
    pub(super) fn new(lease: AttemptLease, outgoing: mpsc::UnboundedSender<WorkerMessage>) -> Self {
        Self {
            lease,
            outgoing,
            state: Mutex::default(),
        }
    }

    pub(super) fn send(&self, part: WorkerPart) {
        // A closed connection ends the worker.
        let _ = self.outgoing.send(WorkerMessage::Attempt {
            lease: self.lease.clone(),
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

    /// Whether the engine is heard.
    pub(super) fn set_alone(&self, is_alone: bool) {
        let mut state = lock(&self.state);
        state.is_alone = is_alone;
        state.release();
    }

    /// Whether calls pass while the engine is away.
    pub(super) fn set_passing(&self, passes_calls: bool) {
        let mut state = lock(&self.state);
        state.passes_calls = passes_calls;
        state.release();
    }

    /// Asks again about the calls that wait.
    pub(super) fn repeat_calls(&self) {
        for (call, (request, _)) in &lock(&self.state).calls {
            let (call, request) = (*call, request.clone());
            self.send(WorkerPart::Call { call, request });
        }
    }

    pub(super) fn decide(&self, call: u64, decision: ApprovalDecision) {
        if let Some((_, reply)) = lock(&self.state).calls.remove(&call) {
            // A closed channel means that the agent no longer waits.
            let _ = reply.send(decision);
        }
    }
}

impl Recorder for Uplink {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        let mut entries = Vec::with_capacity(items.len());
        let (mut size, mut lines) = (0, 0);
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
            lines += u64::from(!matches!(item.body, EntryBody::Note(_)));
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
        let lines_before = state.lines;
        state.lines += lines;
        // Sent under the lock, so that entries leave in order.
        self.send(WorkerPart::Entries {
            lines_before,
            entries,
        });
        Ok(())
    }
}

impl ApprovalGate for Uplink {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, ApprovalDecision> {
        let (reply, decided) = oneshot::channel();
        let call = {
            let mut state = lock(&self.state);
            if state.passes(&request) {
                return Box::pin(std::future::ready(ApprovalDecision::Allow));
            }
            state.next_call += 1;
            let call = state.next_call;
            state.calls.insert(call, (request.clone(), reply));
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
