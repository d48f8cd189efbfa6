//! A worker: joins a run, receives what attempts need, runs them, and sends their entries and results.
//!
//! It stops its agents when the engine is silent for longer than the connection allows. It must not know how it is
//! connected.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

use super::{
    protocol::{
        AttemptLease, AttemptResult, AttemptShipment, Delivery, EngineMessage, EnginePart,
        HEARTBEAT_INTERVAL, LEASE_DURATION, RunTerms, ShippedLimits, WorkerJoin, WorkerLoad,
        WorkerMessage, WorkerPart,
    },
    shipped_attempts::{ShippedAttempts, ShippedFiles},
    uplink::Uplink,
    workspace::WorkerMachine,
};
use crate::{
    attempt_order::{AttemptOrder, preparation_failed},
    local_attempt::FinishedAttempt,
};
use ingestdeck_agent::{Agent, session_lock::SessionLocks};
use ingestdeck_core::text::pluralize;

/// How often to look for a change of what other runs use.
const LOAD_CHECK: Duration = Duration::from_secs(1);
/// Silence of the engine after which agents do without it.
const ALONE_AFTER: Duration = Duration::from_secs(15);
/// Most parts for attempts that have not started.
const MAX_EARLY_PARTS: usize = 1_000;
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
    pub slots: Arc<WorkerSlots>,
}

/// The slots of a worker, which its runs share.
#[derive(Debug)]
pub struct WorkerSlots {
    pub(super) free: Arc<Semaphore>,
    count: u32,
    /// Number of runs that are served.
    pub(super) runs: AtomicU32,
    /// Slots that are taken for the next order.
    pub(super) offered: AtomicU32,
}

impl WorkerSlots {
    pub fn new(count: u32) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(count as usize)),
            count,
            runs: AtomicU32::new(0),
            offered: AtomicU32::new(0),
        })
    }

    /// What a run must know about the others, if its own attempts hold `own` slots.
    fn load(&self, own: usize) -> WorkerLoad {
        let idle = self.free.available_permits() + self.offered.load(Ordering::Relaxed) as usize;
        let busy = (self.count as usize).saturating_sub(idle);
        WorkerLoad {
            others: u32::try_from(busy.saturating_sub(own)).unwrap_or(u32::MAX),
            runs: self.runs.load(Ordering::Relaxed),
        }
    }
}

/// A connection to an engine.
#[derive(Debug)]
pub(crate) struct EngineLink {
    pub incoming: mpsc::Receiver<Delivery<EngineMessage>>,
    pub outgoing: mpsc::UnboundedSender<WorkerMessage>,
    /// Silence after which the engine counts as lost. Without anything to do, [`LEASE_DURATION`] suffices.
    pub patience: Duration,
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
pub(super) async fn serve(
    setup: WorkerSetup,
    files: Arc<dyn ShippedFiles>,
    connection: EngineLink,
    leave: watch::Receiver<LeaveRequest>,
) -> ServiceEnd {
    let (join, slots) = (setup.join.clone(), Arc::clone(&setup.slots));
    serve_with(
        |terms| ShippedAttempts::new(setup, terms, files).map(Arc::new),
        (join, slots),
        connection,
        leave,
    )
    .await
}

/// Serves one engine with attempts that `backend` runs.
pub(super) async fn serve_with<B: WorkerBackend>(
    backend: impl FnOnce(RunTerms) -> io::Result<Arc<B>>,
    (mut join, slots): (WorkerJoin, Arc<WorkerSlots>),
    mut connection: EngineLink,
    mut leave: watch::Receiver<LeaveRequest>,
) -> ServiceEnd {
    join.clock_ms = jiff::Timestamp::now().as_millisecond();
    let closed = || ServiceEnd::EngineLost("the connection was closed".to_owned());
    let until = Instant::now() + LEASE_DURATION;
    if connection
        .outgoing
        .send(WorkerMessage::Join(Box::new(join)))
        .is_err()
    {
        return closed();
    }
    let terms = loop {
        let answer = tokio::select! {
            answer = tokio::time::timeout_at(until, connection.incoming.recv()) => answer,
            // Nothing runs yet.
            _ = leave.wait_for(|leave| *leave != LeaveRequest::Stay) => return ServiceEnd::Done,
        };
        match answer.map(|delivery| delivery.map(|delivery| delivery.message)) {
            Ok(Some(EngineMessage::Welcome(terms))) => break terms,
            Ok(Some(EngineMessage::Refused { reason })) => return ServiceEnd::Refused(reason),
            Ok(Some(EngineMessage::End)) => return ServiceEnd::Done,
            Ok(Some(_)) => {}
            Ok(None) => return closed(),
            Err(_) => return ServiceEnd::EngineLost("the engine does not answer".to_owned()),
        }
    };
    match backend(*terms) {
        Ok(backend) => {
            WorkerService::new(backend, slots, &connection)
                .run(connection, leave)
                .await
        }
        Err(error) => {
            ServiceEnd::Failed(format!("cannot create a directory for the worker: {error}"))
        }
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
    slots: Arc<WorkerSlots>,
    outgoing: mpsc::UnboundedSender<WorkerMessage>,
    attempts: HashMap<AttemptLease, WorkerAttempt>,
    /// Parts for attempts whose start has not arrived: a start may wait for a slot.
    early: Vec<(AttemptLease, EnginePart)>,
    /// Attempts that are over. Their start has no effect.
    over: HashSet<AttemptLease>,
    running: JoinSet<AttemptLease>,
    /// The engine is not heard.
    is_alone: bool,
}

/// An attempt from the side of the connection.
struct WorkerAttempt {
    uplink: Arc<Uplink>,
    orders: mpsc::Sender<AttemptOrder>,
    task: tokio::task::AbortHandle,
}

impl<B: WorkerBackend> WorkerService<B> {
    fn new(backend: Arc<B>, slots: Arc<WorkerSlots>, connection: &EngineLink) -> Self {
        let outgoing = connection.outgoing.clone();
        let (attempts, early, over, running) = Default::default();
        Self {
            backend,
            slots,
            outgoing,
            attempts,
            early,
            over,
            running,
            is_alone: false,
        }
    }

    async fn run(
        mut self,
        mut connection: EngineLink,
        mut leave: watch::Receiver<LeaveRequest>,
    ) -> ServiceEnd {
        let connections = self.backend.connections();
        self.send(WorkerMessage::Ready { connections });
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(LOAD_CHECK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known_load = WorkerLoad::default();
        let mut heard = Instant::now();
        let (mut is_leaving, mut can_ask) = (false, true);
        let end = loop {
            if is_leaving && self.running.is_empty() {
                break ServiceEnd::Done;
            }
            let patience = match self.running.is_empty() {
                true => LEASE_DURATION.min(connection.patience),
                false => connection.patience,
            };
            tokio::select! {
                delivery = connection.incoming.recv() => match delivery.map(|delivery| (delivery.message, delivery.slot)) {
                    Some((EngineMessage::End, _)) => break ServiceEnd::Done,
                    Some((EngineMessage::Refused { reason }, _)) => break ServiceEnd::Refused(reason),
                    Some((message, slot)) => {
                        heard = Instant::now();
                        self.handle(message, slot);
                    }
                    None => break ServiceEnd::EngineLost("the connection was closed".to_owned()),
                },
                _ = heartbeat.tick() => self.send(WorkerMessage::Heartbeat(known_load)),
                () = tokio::time::sleep_until(heard + patience) => {
                    let silence = patience.as_secs();
                    break ServiceEnd::EngineLost(format!("the engine has been silent for {silence} s"));
                }
                Some(ended) = self.running.join_next() => {
                    // A task that was aborted is forgotten already.
                    if let Ok(lease) = ended {
                        self.forget(lease);
                    }
                }
                _ = look.tick() => {
                    let is_alone = heard.elapsed() >= ALONE_AFTER;
                    if std::mem::replace(&mut self.is_alone, is_alone) != is_alone {
                        self.attempts.values().for_each(|of| of.uplink.set_alone(is_alone));
                    }
                    let load = self.slots.load(self.running.len());
                    if std::mem::replace(&mut known_load, load) != load {
                        self.send(WorkerMessage::Heartbeat(load));
                    }
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

    fn handle(&mut self, message: EngineMessage, slot: Option<OwnedSemaphorePermit>) {
        match message {
            EngineMessage::Attempt { lease, part } => self.handle_part(lease, part, slot),
            // The agent of an attempt that is over for the engine has nothing to do.
            EngineMessage::Revoked { lease } | EngineMessage::Over { lease } => self.revoke(lease),
            EngineMessage::Heartbeat
            | EngineMessage::Welcome(_)
            | EngineMessage::Refused { .. }
            | EngineMessage::End => {}
        }
    }

    fn send(&self, message: WorkerMessage) {
        // The end of the connection is noticed where messages are received.
        let _ = self.outgoing.send(message);
    }

    fn handle_part(
        &mut self,
        lease: AttemptLease,
        part: EnginePart,
        slot: Option<OwnedSemaphorePermit>,
    ) {
        if let EnginePart::Start(shipment) = part {
            if !self.attempts.contains_key(&lease) && !self.over.contains(&lease) {
                self.start(lease.clone(), *shipment, slot);
                let parts = std::mem::take(&mut self.early);
                for (of, part) in parts {
                    match of == lease {
                        true => self.pass_on(&lease, part),
                        false => self.early.push((of, part)),
                    }
                }
            }
        } else if self.attempts.contains_key(&lease) {
            self.pass_on(&lease, part);
        } else if part == EnginePart::Adopted {
            let part = WorkerPart::Unknown;
            self.send(WorkerMessage::Attempt { lease, part });
        } else if !self.over.contains(&lease) && self.early.len() < MAX_EARLY_PARTS {
            self.early.push((lease, part));
        }
    }

    /// Passes a part on to a running attempt.
    fn pass_on(&self, lease: &AttemptLease, part: EnginePart) {
        let Some(attempt) = self.attempts.get(lease) else {
            return;
        };
        match part {
            EnginePart::Decision { call, decision } => attempt.uplink.decide(call, decision),
            // Stop requests come last, and an attempt that does not take orders is over.
            EnginePart::Stop(how) => drop(attempt.orders.try_send(AttemptOrder::Stop(how))),
            EnginePart::Message { text } => {
                drop(attempt.orders.try_send(AttemptOrder::Message(text)));
            }
            EnginePart::Limits(limits) => self.backend.set_limits(limits),
            EnginePart::Adopted => attempt.uplink.repeat_calls(),
            EnginePart::Unattended { passes_calls } => attempt.uplink.set_passing(passes_calls),
            EnginePart::Start(_) => {}
        }
    }

    fn start(
        &mut self,
        lease: AttemptLease,
        shipment: AttemptShipment,
        slot: Option<OwnedSemaphorePermit>,
    ) {
        let uplink = Arc::new(Uplink::new(lease.clone(), self.outgoing.clone()));
        uplink.set_alone(self.is_alone);
        let (orders, received) = mpsc::channel(ORDER_QUEUE_CAPACITY);
        let attempt = Arc::clone(&self.backend).run(shipment, Arc::clone(&uplink), received);
        let (to_engine, running) = (Arc::clone(&uplink), lease.clone());
        // The engine may learn of the end of an attempt before its slot is free. It never orders more than that.
        let slot_count = self.slots.count as usize;
        let is_refused = slot.is_none() && self.attempts.len() >= 2 * slot_count;
        let free = Arc::clone(&self.slots.free);
        let task = self.running.spawn(async move {
            let result = match is_refused {
                false => {
                    let _slot = match slot {
                        Some(slot) => Some(slot),
                        // The semaphore is never closed.
                        None => free.acquire_owned().await.ok(),
                    };
                    to_engine.send(WorkerPart::Taken);
                    attempt.await
                }
                true => refused_start(slot_count),
            };
            to_engine.send(WorkerPart::Ended(Box::new(result)));
            running
        });
        self.attempts.insert(
            lease,
            WorkerAttempt {
                uplink,
                orders,
                task,
            },
        );
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
        self.early.retain(|(of, _)| *of != lease);
        self.over.insert(lease);
    }
}
