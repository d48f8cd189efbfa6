//! The connection to one worker, from the side of the engine: who may join, what it is sent, and when it is lost.
//!
//! It must not know how messages travel.

use std::{collections::HashMap, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, timeout},
};

use super::{
    host::WorkerHost,
    names::plain_name,
    pool::AttemptPart,
    protocol::{
        AttemptLease, Delivery, EngineMessage, HEARTBEAT_INTERVAL, LEASE_DURATION,
        PROTOCOL_VERSION, RunTerms, WorkerJoin, WorkerMessage,
    },
    remote_attempt::{MAX_ENTRY_BYTES, MAX_RESULT_BYTES, shipped_limits},
};
use ingestdeck_agent::claude::{
    availability::SCRIPTED_RELEASE,
    version::{ClaudeVersion, ReleaseSupport},
};
use ingestdeck_core::diagnostic::Problem;

/// Version of this program, which a worker must have, too.
pub const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long the last message to a worker may take.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How often to look for a worker that is silent.
const LEASE_CHECK: Duration = Duration::from_secs(1);
/// A check that is late by this much means that this process, or its machine, was asleep.
const SLEEP_THRESHOLD: Duration = Duration::from_secs(5);
/// How long a worker may take to join.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(45);
/// Most bytes of entries and results of one attempt, which travel in Base64.
const MAX_ATTEMPT_BYTES: usize = MAX_ENTRY_BYTES + 2 * MAX_RESULT_BYTES;
/// Most workers of a run, present or about to join.
const MAX_WORKERS: usize = 256;
/// Most slots of one worker.
const MAX_SLOTS: u32 = 256;

/// A connection to a worker.
#[derive(Debug)]
pub(crate) struct WorkerConnection {
    /// The name that the user gave it; `None` for the name of its machine.
    pub name: Option<String>,
    /// Its login at the server of the run, if it came over SSH.
    pub login: Option<String>,
    pub incoming: mpsc::Receiver<Delivery<WorkerMessage>>,
    pub outgoing: mpsc::Sender<EngineMessage>,
    /// Silence after which the worker counts as lost.
    pub patience: Duration,
    /// Whether this machine reaches the server between the sides, if there is one: silence without it has no meaning.
    pub is_online: Option<watch::Receiver<bool>>,
    /// The transport connects again when the worker is lost.
    pub returns: bool,
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
        let admitted = timeout(ADMISSION_TIMEOUT, self.admit(&mut connection)).await;
        let silent = || {
            Err(ConnectionEnd::Lost(
                "it did not get ready in time".to_owned(),
            ))
        };
        let (machine, join, connections) = match admitted.unwrap_or_else(|_| silent()) {
            Ok(admitted) => admitted,
            Err(end) => {
                if let ConnectionEnd::Refused(reason) = &end {
                    let refused = EngineMessage::Refused {
                        reason: reason.clone(),
                    };
                    // Its end of the connection may be closed already.
                    let _ = timeout(END_PATIENCE, connection.outgoing.send(refused)).await;
                }
                return (end, false);
            }
        };
        let name = self
            .pool
            .add_worker(machine, join, connections, &connection);
        (self.serve_joined(&name, connection).await, true)
    }

    /// Serves a worker of the pool until it leaves or is lost.
    pub(super) async fn serve_joined(
        &self,
        name: &str,
        connection: WorkerConnection,
    ) -> ConnectionEnd {
        let outgoing = connection.outgoing.clone();
        let end = self.exchange(name, connection).await;
        let (ConnectionEnd::Left(reason)
        | ConnectionEnd::Lost(reason)
        | ConnectionEnd::Refused(reason)) = &end;
        self.pool
            .remove_worker(name, reason, matches!(end, ConnectionEnd::Lost(_)));
        // A worker that does not receive it ends with its connection.
        let _ = timeout(END_PATIENCE, outgoing.send(EngineMessage::End)).await;
        end
    }

    /// Lets a worker join. Returns its machine, its description, and the connections that it can read.
    async fn admit(
        &self,
        connection: &mut WorkerConnection,
    ) -> Result<(String, WorkerJoin, Vec<String>), ConnectionEnd> {
        let mut join = read_join(&mut connection.incoming).await?;
        let machine = plain_name(connection.name.as_deref().unwrap_or(&join.host));
        let is_named = connection.name.is_some();
        self.check_ban(&machine, is_named)?;
        let name = self.pool.reserve_name(&machine, MAX_WORKERS);
        join.host = name.ok_or_else(|| {
            ConnectionEnd::Refused(format!(
                "the run has {MAX_WORKERS} workers, which is the limit; start fewer"
            ))
        })?;
        // A worker of the machine may be banned meanwhile.
        let ready = self
            .welcome(&join, connection)
            .await
            .and_then(|ready| self.check_ban(&machine, is_named).map(|()| ready));
        if ready.is_err() {
            self.pool.release_name(&join.host);
        }
        ready.map(|connections| (machine, join, connections))
    }

    /// Refuses the workers of a banned machine that the user named.
    fn check_ban(&self, machine: &str, is_named: bool) -> Result<(), ConnectionEnd> {
        let refused = || {
            ConnectionEnd::Refused(format!(
                "a worker of {machine} sent something invalid before"
            ))
        };
        if is_named && self.pool.is_banned(machine) {
            Err(refused())
        } else {
            Ok(())
        }
    }

    /// Sends the terms of the run, and waits for the answer.
    async fn welcome(
        &self,
        join: &WorkerJoin,
        WorkerConnection {
            incoming, outgoing, ..
        }: &mut WorkerConnection,
    ) -> Result<Vec<String>, ConnectionEnd> {
        let limits = shipped_limits(&self.limits);
        let terms = Box::new(RunTerms {
            worker: join.host.clone(),
            limits,
            ..self.terms.clone()
        });
        let lost = || ConnectionEnd::Lost("it did not get ready".to_owned());
        let sent = outgoing.send(EngineMessage::Welcome(terms)).await;
        sent.map_err(|_| lost())?;
        loop {
            if let WorkerMessage::Ready { connections } =
                next_message(incoming, "was ready").await?
            {
                return Ok(connections);
            }
        }
    }

    /// Exchanges messages with a worker that has joined, until it leaves or is lost.
    pub(super) async fn exchange(&self, name: &str, connection: WorkerConnection) -> ConnectionEnd {
        let WorkerConnection {
            mut incoming,
            outgoing,
            patience,
            is_online,
            ..
        } = connection;
        let mut tick = tokio::time::interval(LEASE_CHECK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut next_heartbeat) = (Instant::now(), Instant::now());
        let mut last_tick = Instant::now();
        let mut leaving: Option<String> = None;
        let mut held: HashMap<AttemptLease, usize> = HashMap::new();
        loop {
            tokio::select! {
                delivery = incoming.recv() => {
                    heard = Instant::now();
                    let Some(Delivery { message, handled, .. }) = delivery else {
                        let lost = ConnectionEnd::Lost("the connection was closed".to_owned());
                        return leaving.map_or(lost, ConnectionEnd::Left);
                    };
                    match message {
                        WorkerMessage::Gone => {
                            return ConnectionEnd::Left(leaving.unwrap_or_else(|| "it ended".to_owned()));
                        }
                        WorkerMessage::Attempt { lease, part } => {
                            let Some(attempt) = self.pool.attempt(name, &lease) else {
                                send(&outgoing, EngineMessage::Revoked { lease });
                                continue;
                            };
                            // What waits for an attempt that no unit has claimed is in memory.
                            let held = held.entry(lease.clone()).or_default();
                            if attempt.capacity() == attempt.max_capacity() {
                                *held = 0;
                            }
                            *held += part.content_bytes();
                            if *held > MAX_ATTEMPT_BYTES {
                                self.pool.ban(name, "it sent too much for one attempt");
                                continue;
                            }
                            // A worker that sends more than the engine can record waits. An attempt that is over takes
                            // nothing.
                            let _ = attempt.send(AttemptPart { part, handled }).await;
                        }
                        WorkerMessage::Leave { reason } => {
                            self.pool.drain(name, &reason);
                            leaving = Some(reason);
                        }
                        WorkerMessage::Heartbeat(load) => self.pool.set_load(name, load),
                        WorkerMessage::Join(_) | WorkerMessage::Ready { .. } => {}
                    }
                }
                _ = tick.tick() => {
                    let now = Instant::now();
                    let is_offline = is_online.as_ref().is_some_and(|is_online| !*is_online.borrow());
                    if is_offline || now.duration_since(last_tick) >= LEASE_CHECK + SLEEP_THRESHOLD {
                        heard = now;
                    }
                    last_tick = now;
                    self.pool.set_away(name, is_offline || heard.elapsed() > 2 * HEARTBEAT_INTERVAL);
                    if now >= next_heartbeat {
                        next_heartbeat = now + HEARTBEAT_INTERVAL;
                        send(&outgoing, EngineMessage::Heartbeat);
                    }
                    if heard.elapsed() >= patience {
                        return ConnectionEnd::Lost(format!("it has been silent for {} s", patience.as_secs()));
                    }
                    if self.pool.is_collected(name) {
                        return ConnectionEnd::Left("its attempts were collected".to_owned());
                    }
                }
                () = self.pool.ended() => {
                    return ConnectionEnd::Left("the run is over".to_owned());
                }
            }
        }
    }
}

/// The description that a worker gives of itself, if it may work for a run of this program.
async fn read_join(
    incoming: &mut mpsc::Receiver<Delivery<WorkerMessage>>,
) -> Result<WorkerJoin, ConnectionEnd> {
    loop {
        if let WorkerMessage::Join(join) = next_message(incoming, "joined").await? {
            return refusal(&join).map_or(Ok(*join), |reason| Err(ConnectionEnd::Refused(reason)));
        }
    }
}

/// The next message of a worker that has not `joined` yet.
async fn next_message(
    incoming: &mut mpsc::Receiver<Delivery<WorkerMessage>>,
    joined: &str,
) -> Result<WorkerMessage, ConnectionEnd> {
    match timeout(LEASE_DURATION, incoming.recv()).await {
        Ok(Some(delivery)) => Ok(delivery.message),
        Ok(None) => Err(ConnectionEnd::Lost(format!(
            "the connection was closed before it {joined}"
        ))),
        Err(_) => Err(ConnectionEnd::Lost(format!(
            "it was silent before it {joined}"
        ))),
    }
}

/// Sends a message that may be lost.
fn send(outgoing: &mpsc::Sender<EngineMessage>, message: EngineMessage) {
    if outgoing.try_send(message).is_err() {
        tracing::debug!("a message to a worker was dropped");
    }
}

/// Why a worker may not work for this run.
pub(super) fn refusal(join: &WorkerJoin) -> Option<String> {
    let WorkerJoin {
        protocol,
        program,
        agent_release,
        host,
        slots,
        ..
    } = join;
    if *protocol != PROTOCOL_VERSION || program != PROGRAM_VERSION {
        return Some(format!(
            "worker {host} runs ingestdeck {program} and this is {PROGRAM_VERSION}: install the same version there"
        ));
    }
    if !(1..=MAX_SLOTS).contains(slots) {
        return Some(format!(
            "worker {host} offers {slots} slots: start it with 1 to {MAX_SLOTS}"
        ));
    }
    let release: Option<ClaudeVersion> = ClaudeVersion::parse(agent_release);
    let is_unsafe = agent_release != SCRIPTED_RELEASE
        && release.is_none_or(|release| release.support() == ReleaseSupport::Unsupported);
    is_unsafe.then(|| {
        format!(
            "worker {host} has claude {agent_release}, which is not safe for units: update it there"
        )
    })
}
