//! A worker: joins a run, receives what attempts need, runs them, and sends their entries and results.
//!
//! It stops its agents when the engine is silent for [`LEASE_DURATION`], since the engine has given their units to others
//! by then. It must not know how it is connected.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

use super::{
    delivery::{Inbox, PartArrival},
    protocol::{
        AttemptLease, AttemptResult, AttemptShipment, EngineMessage, EnginePart,
        HEARTBEAT_INTERVAL, LEASE_DURATION, RunTerms, ShippedLimits, WorkerJoin, WorkerMessage,
        WorkerPart,
    },
    shipped_attempts::ShippedAttempts,
    stdio,
    uplink::Uplink,
    workspace::WorkerMachine,
};
use crate::{
    attempt_order::{AttemptOrder, preparation_failed},
    local_attempt::FinishedAttempt,
};
use ingestdeck_agent::{Agent, session_lock::SessionLocks};
use ingestdeck_core::text::pluralize;

/// How often to look for parts that are not confirmed.
const RESEND_CHECK: Duration = Duration::from_secs(1);
/// Capacity of the queue of messages of the engine.
const QUEUE_CAPACITY: usize = 64;
/// How long the last messages may take.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Capacity of the queue of requests to an attempt.
const ORDER_QUEUE_CAPACITY: usize = 16;

/// What a worker runs attempts with.
#[derive(Clone, Debug)]
pub struct WorkerSetup {
    pub join: WorkerJoin,
    pub agent: Arc<Agent>,
    pub machine: WorkerMachine,
    pub locks: SessionLocks,
    /// Variables that agents inherit although they would be withheld by default.
    pub pass_env: Vec<String>,
}

/// A connection to an engine.
#[derive(Debug)]
pub(crate) struct EngineLink {
    pub incoming: mpsc::Receiver<EngineMessage>,
    pub outgoing: mpsc::UnboundedSender<WorkerMessage>,
    /// How long to wait for a confirmation; `None` if the transport loses nothing.
    pub resend_after: Option<Duration>,
}

/// Why a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEnd {
    /// The run has ended, or the worker was asked to leave.
    Done,
    /// The engine does not use it.
    Refused(String),
    /// The engine is gone or silent. Agents were stopped.
    EngineLost(String),
    /// It cannot work at all.
    Failed(String),
}

/// Whether a person asked a worker to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaveRequest {
    #[default]
    Stay,
    /// Running attempts may finish.
    Finish,
    /// Running attempts end, too.
    Abort,
}

/// Serves one engine until the run ends, `leave` asks to end, or the engine is lost.
pub(crate) async fn serve(
    setup: WorkerSetup,
    connection: EngineLink,
    leave: watch::Receiver<LeaveRequest>,
) -> ServiceEnd {
    let join = setup.join.clone();
    serve_with(
        |terms, link| ShippedAttempts::new(setup, terms, link).map(Arc::new),
        join,
        connection,
        leave,
    )
    .await
}

/// Serves one engine with attempts that `backend` runs.
pub(super) async fn serve_with<B: WorkerBackend>(
    backend: impl FnOnce(RunTerms, &EngineLink) -> io::Result<Arc<B>>,
    mut join: WorkerJoin,
    mut connection: EngineLink,
    mut leave: watch::Receiver<LeaveRequest>,
) -> ServiceEnd {
    join.clock_ms = jiff::Timestamp::now().as_millisecond();
    let (began, patience) = (
        Instant::now(),
        connection.resend_after.unwrap_or(LEASE_DURATION),
    );
    let mut is_due = true;
    let terms = loop {
        if std::mem::take(&mut is_due)
            && connection
                .outgoing
                .send(WorkerMessage::Join(Box::new(join.clone())))
                .is_err()
        {
            return ServiceEnd::EngineLost("the connection was closed".to_owned());
        }
        let answer = tokio::select! {
            answer = tokio::time::timeout(patience, connection.incoming.recv()) => answer,
            // Nothing runs yet.
            _ = leave.wait_for(|leave| *leave != LeaveRequest::Stay) => return ServiceEnd::Done,
        };
        match answer {
            Ok(Some(EngineMessage::Welcome(terms))) => break terms,
            Ok(Some(EngineMessage::Refused { reason })) => return ServiceEnd::Refused(reason),
            Ok(Some(EngineMessage::End)) => return ServiceEnd::Done,
            Ok(Some(_)) => {}
            Ok(None) => return ServiceEnd::EngineLost("the connection was closed".to_owned()),
            Err(_) if began.elapsed() < LEASE_DURATION => is_due = true,
            Err(_) => return ServiceEnd::EngineLost("the engine does not answer".to_owned()),
        }
    };
    match backend(*terms, &connection) {
        Ok(backend) => {
            WorkerService::new(backend, join.slots, &connection)
                .run(connection, leave)
                .await
        }
        Err(error) => {
            ServiceEnd::Failed(format!("cannot create a directory for the worker: {error}"))
        }
    }
}

/// Serves an engine on stdin and stdout.
pub async fn serve_stdio(setup: WorkerSetup, leave: watch::Receiver<LeaveRequest>) -> ServiceEnd {
    let (to_service, incoming) = mpsc::channel(QUEUE_CAPACITY);
    let (outgoing, mut to_engine) = mpsc::unbounded_channel();
    let reading =
        tokio::spawn(async move { stdio::read_messages(tokio::io::stdin(), &to_service).await });
    let writing =
        tokio::spawn(
            async move { stdio::write_messages(tokio::io::stdout(), &mut to_engine).await },
        );
    let end = serve(
        setup,
        EngineLink {
            incoming,
            outgoing,
            resend_after: None,
        },
        leave,
    )
    .await;
    // The last messages are written; nothing comes after them.
    let written = tokio::time::timeout(LAST_WRITE_TIMEOUT, writing).await;
    if let Ok(Ok(Err(error))) = written {
        tracing::debug!(%error, "cannot write to the engine");
    }
    match end {
        ServiceEnd::EngineLost(_) if reading.is_finished() => match reading.await {
            Ok(end) => ServiceEnd::EngineLost(end.to_string()),
            Err(error) => ServiceEnd::EngineLost(error.to_string()),
        },
        end => end,
    }
}

/// The result of a start that exceeds the slots of the worker.
fn refused_start(slots: usize) -> AttemptResult {
    let reason = format!(
        "the worker offers {} and is given more attempts",
        pluralize(slots, "slot")
    );
    let FinishedAttempt {
        ended,
        patch,
        warning,
        ..
    } = FinishedAttempt::without_agent(preparation_failed(reason));
    AttemptResult {
        ended,
        patch,
        warning,
    }
}

/// What a worker does apart from exchanging messages: it keeps files and runs attempts.
pub(super) trait WorkerBackend: Send + Sync + 'static {
    /// Ids of the connections whose databases it can read.
    fn connections(&self) -> Vec<String>;

    /// Takes a piece of a file; `data` is Base64.
    fn receive_piece(&self, digest: String, offset: u64, data: &str, is_last: bool);

    /// The engine cannot provide a file.
    fn mark_missing(&self, digest: String, reason: String);

    fn set_limits(&self, limits: ShippedLimits);

    /// Runs an attempt from its files to its result. Dropping the future ends the agent.
    fn run(
        self: Arc<Self>,
        shipment: AttemptShipment,
        uplink: Arc<Uplink>,
        orders: mpsc::Receiver<AttemptOrder>,
    ) -> BoxFuture<'static, AttemptResult>;
}

/// A worker that has joined a run.
struct WorkerService<B> {
    backend: Arc<B>,
    /// The slots that the worker offered, held by running attempts.
    slots: Arc<Semaphore>,
    slot_count: usize,
    outgoing: mpsc::UnboundedSender<WorkerMessage>,
    keeps_unconfirmed: bool,
    attempts: HashMap<AttemptLease, WorkerAttempt>,
    /// Attempts that are over. A late repetition of their start has no effect.
    over: HashSet<AttemptLease>,
    running: JoinSet<AttemptLease>,
}

/// An attempt from the side of the connection.
struct WorkerAttempt {
    inbox: Inbox,
    uplink: Arc<Uplink>,
    orders: mpsc::Sender<AttemptOrder>,
    task: tokio::task::AbortHandle,
    is_running: bool,
}

impl<B: WorkerBackend> WorkerService<B> {
    fn new(backend: Arc<B>, slots: u32, connection: &EngineLink) -> Self {
        let (outgoing, keeps_unconfirmed) = (
            connection.outgoing.clone(),
            connection.resend_after.is_some(),
        );
        let (attempts, over, running) = Default::default();
        let slot_count = slots as usize;
        let slots = Arc::new(Semaphore::new(slot_count));
        Self {
            backend,
            slots,
            slot_count,
            outgoing,
            keeps_unconfirmed,
            attempts,
            over,
            running,
        }
    }

    async fn run(
        mut self,
        mut connection: EngineLink,
        mut leave: watch::Receiver<LeaveRequest>,
    ) -> ServiceEnd {
        self.send_ready();
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut resend = tokio::time::interval(RESEND_CHECK);
        resend.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let (mut is_leaving, mut can_ask) = (false, true);
        let end = loop {
            let is_idle = self.running.is_empty()
                && self.attempts.values().all(|of| of.uplink.is_confirmed());
            if is_leaving && is_idle {
                break ServiceEnd::Done;
            }
            tokio::select! {
                message = connection.incoming.recv() => match message {
                    Some(EngineMessage::End) => break ServiceEnd::Done,
                    Some(EngineMessage::Refused { reason }) => break ServiceEnd::Refused(reason),
                    Some(message) => {
                        heard = Instant::now();
                        self.handle(message);
                    }
                    None => break ServiceEnd::EngineLost("the connection was closed".to_owned()),
                },
                _ = heartbeat.tick() => self.send(WorkerMessage::Heartbeat),
                () = tokio::time::sleep_until(heard + LEASE_DURATION) => {
                    let silence = LEASE_DURATION.as_secs();
                    break ServiceEnd::EngineLost(format!("the engine has been silent for {silence} s"));
                }
                Some(ended) = self.running.join_next() => self.finish(ended),
                _ = resend.tick(), if connection.resend_after.is_some() => {
                    let patience = connection.resend_after.unwrap_or_default();
                    self.attempts.values().for_each(|of| of.uplink.resend_after(patience));
                }
                asked = leave.changed(), if can_ask => {
                    // Without a sender, no request can follow.
                    can_ask = asked.is_ok();
                    match *leave.borrow_and_update() {
                        LeaveRequest::Stay => {}
                        LeaveRequest::Finish => {
                            is_leaving = true;
                            self.send(WorkerMessage::Leave { reason: "it was asked to end".to_owned() });
                        }
                        LeaveRequest::Abort => break ServiceEnd::Done,
                    }
                }
            }
        };
        // Dropping an attempt kills its process group.
        self.running.shutdown().await;
        // The engine repeats what is not done without waiting for the lease.
        self.send(WorkerMessage::Gone);
        end
    }

    fn handle(&mut self, message: EngineMessage) {
        match message {
            EngineMessage::Attempt {
                lease,
                number,
                part,
            } => self.handle_part(lease, number, part),
            EngineMessage::Received { lease, count } => {
                if let Some(attempt) = self.attempts.get(&lease) {
                    attempt.uplink.confirm(count);
                    if !attempt.is_running && attempt.uplink.is_confirmed() {
                        self.forget(lease);
                    }
                }
            }
            EngineMessage::FilePiece {
                digest,
                offset,
                data,
                is_last,
            } => {
                self.backend.receive_piece(digest, offset, &data, is_last);
            }
            EngineMessage::FileMissing { digest, reason } => {
                self.backend.mark_missing(digest, reason);
            }
            EngineMessage::Revoked { lease } => self.revoke(lease),
            EngineMessage::Heartbeat(valid) => {
                let over = self.attempts.keys().filter(|lease| !valid.contains(lease));
                for lease in over.cloned().collect::<Vec<_>>() {
                    self.revoke(lease);
                }
            }
            // The answer to it was lost.
            EngineMessage::Welcome(_) => self.send_ready(),
            EngineMessage::Refused { .. } | EngineMessage::End => {}
        }
    }

    fn send_ready(&self) {
        self.send(WorkerMessage::Ready {
            connections: self.backend.connections(),
        });
    }

    fn send(&self, message: WorkerMessage) {
        // The end of the connection is noticed where messages are received.
        let _ = self.outgoing.send(message);
    }

    fn handle_part(&mut self, lease: AttemptLease, number: u64, part: EnginePart) {
        if let EnginePart::Start(shipment) = part {
            if !self.attempts.contains_key(&lease) && !self.over.contains(&lease) {
                self.start(lease.clone(), *shipment);
            }
        } else if let Some(attempt) = self.attempts.get_mut(&lease)
            && attempt.inbox.take(number) == PartArrival::Next
        {
            match part {
                EnginePart::Decision { call, decision } => attempt.uplink.decide(call, decision),
                // Stop requests come last, and an attempt that does not take orders is over.
                EnginePart::Stop(how) => drop(attempt.orders.try_send(AttemptOrder::Stop(how))),
                EnginePart::Message { text } => {
                    drop(attempt.orders.try_send(AttemptOrder::Message(text)))
                }
                EnginePart::Limits(limits) => self.backend.set_limits(limits),
                EnginePart::Start(_) => {}
            }
        }
        let count = self
            .attempts
            .get(&lease)
            .map(|attempt| attempt.inbox.received());
        if let Some(count) = count {
            self.send(WorkerMessage::Received { lease, count });
        }
    }

    fn start(&mut self, lease: AttemptLease, shipment: AttemptShipment) {
        let uplink = Arc::new(Uplink::new(
            lease.clone(),
            self.outgoing.clone(),
            self.keeps_unconfirmed,
        ));
        let (orders, received) = mpsc::channel(ORDER_QUEUE_CAPACITY);
        let mut inbox = Inbox::default();
        inbox.take(0);
        let attempt = Arc::clone(&self.backend).run(shipment, Arc::clone(&uplink), received);
        let (to_engine, running) = (Arc::clone(&uplink), lease.clone());
        // The engine may learn of the end of an attempt before its slot is free. It never orders more than that.
        let ordered = self
            .attempts
            .values()
            .filter(|attempt| attempt.is_running)
            .count();
        let (slots, slot_count) = (Arc::clone(&self.slots), self.slot_count);
        let task = self.running.spawn(async move {
            let result = match ordered < 2 * slot_count {
                true => {
                    // The semaphore is never closed.
                    let _slot = slots.acquire_owned().await;
                    attempt.await
                }
                false => refused_start(slot_count),
            };
            to_engine.send(WorkerPart::Ended(Box::new(result)));
            running
        });
        self.attempts.insert(
            lease,
            WorkerAttempt {
                inbox,
                uplink,
                orders,
                task,
                is_running: true,
            },
        );
    }

    fn finish(&mut self, ended: Result<AttemptLease, tokio::task::JoinError>) {
        // A task that was aborted no longer has an attempt.
        let Ok(lease) = ended else { return };
        if let Some(attempt) = self.attempts.get_mut(&lease) {
            attempt.is_running = false;
            if attempt.uplink.is_confirmed() {
                self.forget(lease);
            }
        }
    }

    /// Ends an attempt that has no use.
    fn revoke(&mut self, lease: AttemptLease) {
        if let Some(attempt) = self.attempts.get(&lease) {
            attempt.task.abort();
        }
        self.forget(lease);
    }

    fn forget(&mut self, lease: AttemptLease) {
        self.attempts.remove(&lease);
        self.over.insert(lease);
    }
}
