//! The connection to one worker, from the side of the engine: who may join, what it is sent, and when it is lost.
//!
//! It must not know how messages travel.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, timeout},
};

use super::{
    host::WorkerHost,
    pool::AttemptMessage,
    protocol::{
        CHUNK_BYTES, EngineMessage, HEARTBEAT_INTERVAL, LEASE_DURATION, PROTOCOL_VERSION, RunTerms, WorkerJoin,
        WorkerMessage,
    },
    remote_attempt::shipped_limits,
    shipment::ShipmentStore,
};
use crate::agent::claude::{
    availability::SCRIPTED_RELEASE,
    version::{ClaudeVersion, ReleaseSupport},
};
use crate::diagnostic::Problem;

/// Version of this program, which a worker must have, too.
pub(crate) const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long the last message to a worker may take.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Most slots of one worker.
const MAX_SLOTS: u32 = 256;

/// A connection to a worker.
#[derive(Debug)]
pub(crate) struct WorkerConnection {
    /// The name that the user gave it; `None` for the name of its machine.
    pub name: Option<String>,
    pub incoming: mpsc::Receiver<WorkerMessage>,
    pub outgoing: mpsc::Sender<EngineMessage>,
    /// How long to wait for a confirmation; `None` if the transport loses nothing.
    pub resend_after: Option<Duration>,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The worker left on its own.
    Left(String),
    Lost(String),
    /// It may not work for this run. Reads as a sentence, with the remedy.
    Refused(String),
}

impl ConnectionEnd {
    /// What a person should know about a worker that did not join.
    pub(super) fn into_problem(self) -> Problem {
        let (Self::Left(reason) | Self::Lost(reason) | Self::Refused(reason)) = self;
        Problem::new(reason)
    }
}

impl WorkerHost {
    /// Serves a worker until it leaves or is lost. The second part is whether it joined the run.
    pub(crate) async fn serve(&self, mut connection: WorkerConnection) -> (ConnectionEnd, bool) {
        let (join, connections) = match self.admit(&mut connection).await {
            Ok(admitted) => admitted,
            Err(end) => return (end, false),
        };
        let name = self.pool.add_worker(join, connections, connection.outgoing.clone(), connection.resend_after);
        let end = self.exchange(&name, connection).await;
        let (ConnectionEnd::Left(reason) | ConnectionEnd::Lost(reason) | ConnectionEnd::Refused(reason)) = &end;
        self.pool.remove_worker(&name, reason, matches!(end, ConnectionEnd::Lost(_)));
        (end, true)
    }

    /// Lets a worker join. Returns its description, and the connections that it can read.
    async fn admit(&self, connection: &mut WorkerConnection) -> Result<(WorkerJoin, Vec<String>), ConnectionEnd> {
        let WorkerConnection { name, incoming, outgoing, .. } = connection;
        let mut join = match read_join(incoming).await {
            Ok(join) => join,
            Err(end) => {
                if let ConnectionEnd::Refused(reason) = &end {
                    // Its end of the connection may be closed already.
                    let _ = outgoing.send(EngineMessage::Refused { reason: reason.clone() }).await;
                }
                return Err(end);
            }
        };
        join.host = self.pool.reserve_name(name.as_deref().unwrap_or(&join.host));
        let ready = self.welcome(&join, connection).await;
        if ready.is_err() {
            self.pool.release_name(&join.host);
        }
        ready.map(|connections| (join, connections))
    }

    /// Sends the terms of the run, again if they are lost, and waits for the answer.
    async fn welcome(
        &self,
        join: &WorkerJoin,
        WorkerConnection { incoming, outgoing, resend_after, .. }: &mut WorkerConnection,
    ) -> Result<Vec<String>, ConnectionEnd> {
        let limits = shipped_limits(&self.limits);
        let terms = Box::new(RunTerms { worker: join.host.clone(), limits, ..self.terms.clone() });
        let until = Instant::now() + LEASE_DURATION;
        while Instant::now() < until {
            if outgoing.send(EngineMessage::Welcome(terms.clone())).await.is_err() {
                break;
            }
            let answer = async {
                loop {
                    if let WorkerMessage::Ready { connections } = next_message(incoming, "was ready").await? {
                        return Ok(connections);
                    }
                }
            };
            if let Ok(answer) = timeout(resend_after.unwrap_or(LEASE_DURATION), answer).await {
                return answer;
            }
        }
        Err(ConnectionEnd::Lost("it did not get ready".to_owned()))
    }

    async fn exchange(&self, name: &str, connection: WorkerConnection) -> ConnectionEnd {
        let WorkerConnection { mut incoming, outgoing, .. } = connection;
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut leaving: Option<String> = None;
        // Files are sent apart from the messages, which must not wait for them.
        let mut sending = JoinSet::new();
        loop {
            tokio::select! {
                message = incoming.recv() => {
                    heard = Instant::now();
                    match message {
                        None => {
                            return match leaving {
                                Some(reason) => ConnectionEnd::Left(reason),
                                None => ConnectionEnd::Lost("the connection was closed".to_owned()),
                            };
                        }
                        Some(WorkerMessage::Attempt { lease, number, part }) => {
                            if !self.pool.deliver(name, &lease, AttemptMessage::Part { number, part }) {
                                send(&outgoing, EngineMessage::Revoked { lease });
                            }
                        }
                        Some(WorkerMessage::Received { lease, count }) => {
                            self.pool.deliver(name, &lease, AttemptMessage::Received(count));
                        }
                        Some(WorkerMessage::WantFiles { digests }) => {
                            sending.spawn(send_files(Arc::clone(&self.store), digests, outgoing.clone()));
                        }
                        Some(WorkerMessage::Leave { reason }) => {
                            self.pool.drain(name);
                            leaving = Some(reason);
                        }
                        Some(WorkerMessage::Heartbeat | WorkerMessage::Join(_) | WorkerMessage::Ready { .. }) => {}
                    }
                }
                _ = heartbeat.tick() => send(&outgoing, EngineMessage::Heartbeat),
                Some(_) = sending.join_next() => {}
                () = self.pool.ended() => {
                    // A worker that does not receive it ends with its connection.
                    let _ = timeout(END_PATIENCE, outgoing.send(EngineMessage::End)).await;
                    return ConnectionEnd::Left("the run is over".to_owned());
                }
                () = tokio::time::sleep_until(heard + LEASE_DURATION) => {
                    return ConnectionEnd::Lost(format!("it has been silent for {} s", LEASE_DURATION.as_secs()));
                }
            }
        }
    }
}

/// The description that a worker gives of itself, if it may work for a run of this program.
pub(super) async fn read_join(incoming: &mut mpsc::Receiver<WorkerMessage>) -> Result<WorkerJoin, ConnectionEnd> {
    loop {
        if let WorkerMessage::Join(join) = next_message(incoming, "joined").await? {
            return refusal(&join).map_or(Ok(*join), |reason| Err(ConnectionEnd::Refused(reason)));
        }
    }
}

/// The next message of a worker that has not `joined` yet.
async fn next_message(
    incoming: &mut mpsc::Receiver<WorkerMessage>,
    joined: &str,
) -> Result<WorkerMessage, ConnectionEnd> {
    match timeout(LEASE_DURATION, incoming.recv()).await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(ConnectionEnd::Lost(format!("the connection was closed before it {joined}"))),
        Err(_) => Err(ConnectionEnd::Lost(format!("it was silent before it {joined}"))),
    }
}

/// Sends a message that may be lost.
fn send(outgoing: &mpsc::Sender<EngineMessage>, message: EngineMessage) {
    if outgoing.try_send(message).is_err() {
        tracing::debug!("a message to a worker was dropped");
    }
}

/// Why a worker may not work for this run.
fn refusal(join: &WorkerJoin) -> Option<String> {
    let WorkerJoin { protocol, program, agent_release, host, slots, .. } = join;
    if *protocol != PROTOCOL_VERSION || program != PROGRAM_VERSION {
        return Some(format!(
            "worker {host} runs ingestdeck {program} and this is {PROGRAM_VERSION}: install the same version there"
        ));
    }
    if !(1..=MAX_SLOTS).contains(slots) {
        return Some(format!("worker {host} offers {slots} slots: start it with 1 to {MAX_SLOTS}"));
    }
    let release: Option<ClaudeVersion> = ClaudeVersion::parse(agent_release);
    let is_unsafe = agent_release != SCRIPTED_RELEASE
        && release.is_none_or(|release| release.support() == ReleaseSupport::Unsupported);
    is_unsafe.then(|| format!("worker {host} has claude {agent_release}, which is not safe for units: update it there"))
}

/// Sends the content of files, in pieces.
async fn send_files(store: Arc<ShipmentStore>, digests: Vec<String>, outgoing: mpsc::Sender<EngineMessage>) {
    for digest in digests {
        let (reading, wanted) = (Arc::clone(&store), digest.clone());
        let read = tokio::task::spawn_blocking(move || reading.read(&wanted)).await;
        let content = match read.map_err(std::io::Error::other).flatten() {
            Ok(content) => content,
            Err(error) => {
                let message = EngineMessage::FileMissing { digest, reason: error.to_string() };
                if outgoing.send(message).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let pieces = content.len().div_ceil(CHUNK_BYTES).max(1);
        for piece in 0..pieces {
            let start = piece * CHUNK_BYTES;
            let bytes = content.get(start..content.len().min(start + CHUNK_BYTES)).unwrap_or_default();
            let message = EngineMessage::FilePiece {
                digest: digest.clone(),
                offset: start as u64,
                data: BASE64_STANDARD.encode(bytes),
                is_last: piece + 1 == pieces,
            };
            if outgoing.send(message).await.is_err() {
                return;
            }
        }
    }
}
