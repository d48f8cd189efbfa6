//! A worker: joins a run, receives what attempts need, runs them, and sends their entries and results.
//!
//! It stops its agents when the engine is silent for [`LEASE_DURATION`], since the engine has given their units to others
//! by then. It must not know how it is connected.

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::FutureExt as _;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

use super::{
    delivery::{Inbox, PartArrival},
    protocol::{
        AttemptLease, AttemptResult, AttemptShipment, EngineMessage, EnginePart, HEARTBEAT_INTERVAL, LEASE_DURATION,
        ResultFile, RunTerms, ShippedLimits, WorkerJoin, WorkerMessage, WorkerPart,
    },
    stdio,
    uplink::{Uplink, lock},
    workspace::{WorkerDir, WorkerMachine},
};
use crate::{
    agent::{Agent, attempt::AgentOptions, session_lock::SessionLocks},
    engine::{
        attempt_limits::{AttemptLimits, LimitValues},
        attempt_order::{AttemptOrder, preparation_failed},
        local_attempt::{AttemptSinks, FinishedAttempt, LocalAttempts},
    },
    ingest::{project::Project, transcript},
    scoped_dir::ScopedDir,
};

/// How long to wait for files before they are asked for again.
const FILE_PATIENCE: Duration = Duration::from_secs(15);
/// How often to look for parts that are not confirmed.
const RESEND_CHECK: Duration = Duration::from_secs(1);
/// Capacity of the queue of messages of the engine.
const QUEUE_CAPACITY: usize = 64;
/// How long the last messages may take.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Capacity of the queue of requests to an attempt.
const ORDER_QUEUE_CAPACITY: usize = 16;
/// Largest patch of an attempt.
const MAX_PATCH_BYTES: u64 = 256 << 20;
/// Largest transcript of an attempt.
const MAX_TRANSCRIPT_BYTES: u64 = 64 << 20;

/// What a worker runs attempts with.
#[derive(Clone, Debug)]
pub(crate) struct WorkerSetup {
    pub join: WorkerJoin,
    pub agent: Arc<dyn Agent>,
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
pub(crate) enum ServiceEnd {
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
pub(crate) enum LeaveRequest {
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
    mut connection: EngineLink,
    mut leave: watch::Receiver<LeaveRequest>,
) -> ServiceEnd {
    let mut join = setup.join.clone();
    join.clock_ms = jiff::Timestamp::now().as_millisecond();
    let (began, patience) = (Instant::now(), connection.resend_after.unwrap_or(LEASE_DURATION));
    let mut is_due = true;
    let terms = loop {
        if std::mem::take(&mut is_due) && connection.outgoing.send(WorkerMessage::Join(Box::new(join.clone()))).is_err()
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
    match WorkerService::new(setup, *terms, &connection) {
        Ok(service) => service.run(connection, leave).await,
        Err(error) => ServiceEnd::Failed(format!("cannot create a directory for the worker: {error}")),
    }
}

/// Serves an engine on stdin and stdout.
pub(crate) async fn serve_stdio(setup: WorkerSetup, leave: watch::Receiver<LeaveRequest>) -> ServiceEnd {
    let (to_service, incoming) = mpsc::channel(QUEUE_CAPACITY);
    let (outgoing, mut to_engine) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move { stdio::read_messages(tokio::io::stdin(), &to_service).await });
    let writing = tokio::spawn(async move { stdio::write_messages(tokio::io::stdout(), &mut to_engine).await });
    let end = serve(setup, EngineLink { incoming, outgoing, resend_after: None }, leave).await;
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

/// A worker that has joined a run.
struct WorkerService {
    shared: Arc<WorkerShared>,
    attempts: HashMap<AttemptLease, WorkerAttempt>,
    /// Attempts that are over. A late repetition of their start has no effect.
    over: HashSet<AttemptLease>,
    running: JoinSet<AttemptLease>,
    /// Files whose pieces are arriving.
    arriving: HashMap<String, Vec<u8>>,
}

/// What all attempts of a worker share.
struct WorkerShared {
    setup: WorkerSetup,
    terms: RunTerms,
    dir: Mutex<WorkerDir>,
    limits: Arc<AttemptLimits>,
    outgoing: mpsc::UnboundedSender<WorkerMessage>,
    keeps_unconfirmed: bool,
    /// Set with the first attempt, since the project needs the shipped instructions.
    attempts: Mutex<Option<Arc<LocalAttempts>>>,
    /// Counts files that have arrived.
    arrivals: watch::Sender<u64>,
    /// When files were asked for, or the last piece of them arrived.
    requested: Mutex<HashMap<String, Instant>>,
    /// Why files with these digests cannot arrive.
    missing: Mutex<HashMap<String, String>>,
}

/// An attempt from the side of the connection.
struct WorkerAttempt {
    inbox: Inbox,
    uplink: Arc<Uplink>,
    orders: mpsc::Sender<AttemptOrder>,
    task: tokio::task::AbortHandle,
    is_running: bool,
}

impl WorkerService {
    fn new(setup: WorkerSetup, terms: RunTerms, connection: &EngineLink) -> std::io::Result<Self> {
        let ShippedLimits { step_budget, rule, timeouts } = terms.limits;
        let shared = WorkerShared {
            dir: Mutex::new(WorkerDir::new(&terms.job.id)?),
            limits: Arc::new(AttemptLimits::new(step_budget, rule, timeouts)),
            outgoing: connection.outgoing.clone(),
            keeps_unconfirmed: connection.resend_after.is_some(),
            attempts: Mutex::default(),
            arrivals: watch::channel(0).0,
            requested: Mutex::default(),
            missing: Mutex::default(),
            setup,
            terms,
        };
        let (attempts, over, running, arriving) = Default::default();
        Ok(Self { shared: Arc::new(shared), attempts, over, running, arriving })
    }

    async fn run(mut self, mut connection: EngineLink, mut leave: watch::Receiver<LeaveRequest>) -> ServiceEnd {
        self.send_ready();
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut resend = tokio::time::interval(RESEND_CHECK);
        resend.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let (mut is_leaving, mut can_ask) = (false, true);
        let end = loop {
            let is_idle = self.running.is_empty() && self.attempts.values().all(|of| of.uplink.is_confirmed());
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
                _ = heartbeat.tick() => self.shared.send(WorkerMessage::Heartbeat),
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
                            self.shared.send(WorkerMessage::Leave { reason: "it was asked to end".to_owned() });
                        }
                        LeaveRequest::Abort => break ServiceEnd::Done,
                    }
                }
            }
        };
        // Dropping an attempt kills its process group.
        self.running.shutdown().await;
        // The engine repeats what is not done without waiting for the lease.
        self.shared.send(WorkerMessage::Gone);
        end
    }

    fn handle(&mut self, message: EngineMessage) {
        match message {
            EngineMessage::Attempt { lease, number, part } => self.handle_part(lease, number, part),
            EngineMessage::Received { lease, count } => {
                if let Some(attempt) = self.attempts.get(&lease) {
                    attempt.uplink.confirm(count);
                    if !attempt.is_running && attempt.uplink.is_confirmed() {
                        self.forget(lease);
                    }
                }
            }
            EngineMessage::FilePiece { digest, offset, data, is_last } => {
                self.receive_piece(digest, offset, &data, is_last);
            }
            EngineMessage::FileMissing { digest, reason } => {
                lock(&self.shared.missing).insert(digest, reason);
                self.shared.mark_arrival();
            }
            EngineMessage::Revoked { lease } => {
                if let Some(attempt) = self.attempts.get(&lease) {
                    attempt.task.abort();
                }
                self.forget(lease);
            }
            // The answer to it was lost.
            EngineMessage::Welcome(_) => self.send_ready(),
            EngineMessage::Heartbeat | EngineMessage::Refused { .. } | EngineMessage::End => {}
        }
    }

    fn send_ready(&self) {
        let root = self.shared.dir().project_dir();
        let connections = self.shared.setup.machine.reachable(&root, &self.shared.terms.connections);
        self.shared.send(WorkerMessage::Ready { connections });
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
                EnginePart::Message { text } => drop(attempt.orders.try_send(AttemptOrder::Message(text))),
                EnginePart::Limits(ShippedLimits { step_budget, rule, timeouts }) => {
                    self.shared.limits.set(LimitValues { step_budget, rule }, timeouts);
                }
                EnginePart::Start(_) => {}
            }
        }
        let count = self.attempts.get(&lease).map(|attempt| attempt.inbox.received());
        if let Some(count) = count {
            self.shared.send(WorkerMessage::Received { lease, count });
        }
    }

    fn start(&mut self, lease: AttemptLease, shipment: AttemptShipment) {
        let uplink = Arc::new(Uplink::new(lease.clone(), self.shared.outgoing.clone(), self.shared.keeps_unconfirmed));
        let (orders, received) = mpsc::channel(ORDER_QUEUE_CAPACITY);
        let mut inbox = Inbox::default();
        inbox.take(0);
        let (shared, to_engine, running) = (Arc::clone(&self.shared), Arc::clone(&uplink), lease.clone());
        let task = self.running.spawn(async move {
            let attempt = AssertUnwindSafe(shared.run_attempt(shipment, &to_engine, received));
            let result = attempt
                .catch_unwind()
                .await
                .unwrap_or_else(|_| shared.failed("internal error of ingestdeck; its log has more with --debug"));
            to_engine.send(WorkerPart::Ended(Box::new(result)));
            running
        });
        self.attempts.insert(lease, WorkerAttempt { inbox, uplink, orders, task, is_running: true });
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

    fn forget(&mut self, lease: AttemptLease) {
        self.attempts.remove(&lease);
        self.over.insert(lease);
    }

    fn receive_piece(&mut self, digest: String, offset: u64, data: &str, is_last: bool) {
        let content = self.arriving.entry(digest.clone()).or_default();
        if offset == 0 {
            content.clear();
        }
        // Pieces that are lost or repeated make the digest wrong, or the file is asked for again.
        let Ok(data) = BASE64_STANDARD.decode(data) else { return };
        if content.len() as u64 != offset {
            return;
        }
        content.extend(data);
        lock(&self.shared.requested).insert(digest.clone(), Instant::now());
        if is_last {
            let content = self.arriving.remove(&digest).unwrap_or_default();
            lock(&self.shared.requested).remove(&digest);
            if !self.shared.dir().receive(&digest, content) {
                lock(&self.shared.missing).insert(digest, "its content changed on the way".to_owned());
            }
            self.shared.mark_arrival();
        }
    }
}

impl WorkerShared {
    /// Runs an attempt from its files to its result.
    async fn run_attempt(
        self: &Arc<Self>,
        shipment: AttemptShipment,
        uplink: &Arc<Uplink>,
        orders: mpsc::Receiver<AttemptOrder>,
    ) -> AttemptResult {
        match self.try_run_attempt(shipment, uplink, orders).await {
            Ok(result) => result,
            Err(reason) => self.failed(&reason),
        }
    }

    /// The result of an attempt that could not run.
    fn failed(&self, reason: &str) -> AttemptResult {
        let why = format!("worker {}: {reason}", self.terms.worker);
        let FinishedAttempt { ended, patch, warning } = FinishedAttempt::without_agent(preparation_failed(why));
        AttemptResult { ended, patch, warning }
    }

    async fn try_run_attempt(
        self: &Arc<Self>,
        shipment: AttemptShipment,
        uplink: &Arc<Uplink>,
        orders: mpsc::Receiver<AttemptOrder>,
    ) -> Result<AttemptResult, String> {
        let mut shipment = shipment;
        let worktrees = loop {
            self.await_files(&shipment).await?;
            let placing = Arc::clone(self);
            let (placed, worktrees) = tokio::task::spawn_blocking(move || {
                let worktrees = placing.dir().place(&shipment);
                (shipment, worktrees)
            })
            .await
            .map_err(|error| error.to_string())?;
            shipment = placed;
            // Another attempt may have used what had arrived.
            if let Some(worktrees) = worktrees? {
                break worktrees;
            }
        };
        let AttemptShipment { mut task, source_dirs, .. } = shipment;
        self.dir().localize(&mut task, &source_dirs);
        let attempts = self.local_attempts()?;
        let root = self.dir().project_dir();
        let path = transcript::transcript_path(&self.terms.job.id, &task.unit);
        let before = transcript_bytes(&root, &path).len();
        let (ready, is_ready) = oneshot::channel();
        let reporting = tokio::spawn({
            let uplink = Arc::clone(uplink);
            async move {
                if is_ready.await.is_ok() {
                    uplink.send(WorkerPart::Ready);
                }
            }
        });
        let sinks = AttemptSinks { recorder: Arc::clone(uplink) as _, observer: None, gate: Arc::clone(uplink) as _ };
        let FinishedAttempt { ended, patch, warning } =
            attempts.run(&task, &worktrees, sinks, (Vec::new(), orders), ready).await;
        reporting.abort();
        let transcript = transcript_bytes(&root, &path);
        uplink.send_file(ResultFile::Transcript, transcript.get(before..).unwrap_or_default());
        if let Some(path) = patch.as_ref().and_then(|patch| patch.path.as_ref()) {
            let read = ScopedDir::open(&root).and_then(|root| root.read(path, MAX_PATCH_BYTES));
            uplink.send_file(ResultFile::Patch, &read.map_err(|error| format!("cannot read its patch: {error}"))?);
        }
        Ok(AttemptResult { ended, patch, warning })
    }

    /// Waits until all files of an attempt have arrived.
    async fn await_files(&self, shipment: &AttemptShipment) -> Result<(), String> {
        let mut arrivals = self.arrivals.subscribe();
        loop {
            arrivals.borrow_and_update();
            let digests = self.dir().missing(shipment);
            if digests.is_empty() {
                return Ok(());
            }
            if let Some(reason) = digests.iter().find_map(|digest| lock(&self.missing).remove(digest)) {
                return Err(format!("a file of the unit is not available: {reason}"));
            }
            let due = self.due_requests(digests);
            if !due.is_empty() {
                self.send(WorkerMessage::WantFiles { digests: due });
            }
            // Either something arrives, or it is time to look for what was lost.
            let _ = tokio::time::timeout(FILE_PATIENCE, arrivals.changed()).await;
        }
    }

    /// Those of `digests` that were not requested, or of which nothing has arrived for a while.
    fn due_requests(&self, digests: Vec<String>) -> Vec<String> {
        let mut requested = lock(&self.requested);
        let now = Instant::now();
        let is_due = |digest: &String| requested.get(digest).is_none_or(|at| now.duration_since(*at) >= FILE_PATIENCE);
        let due: Vec<String> = digests.into_iter().filter(is_due).collect();
        requested.extend(due.iter().map(|digest| (digest.clone(), now)));
        due
    }

    fn local_attempts(&self) -> Result<Arc<LocalAttempts>, String> {
        let mut attempts = lock(&self.attempts);
        if let Some(attempts) = &*attempts {
            return Ok(Arc::clone(attempts));
        }
        let project: Project = self.dir().project(&self.terms.connections, &self.setup.machine)?;
        let new = LocalAttempts::new(
            (Arc::new(project), self.terms.job.clone()),
            Arc::clone(&self.setup.agent),
            // The machine decides which variables its agents get.
            (AgentOptions { pass_env: self.setup.pass_env.clone(), ..self.terms.agent.clone() }, self.terms.unsourced),
            Arc::clone(&self.limits),
            self.setup.locks.clone(),
        );
        Ok(Arc::clone(attempts.insert(Arc::new(new.on_worker(&self.terms.worker)))))
    }

    fn dir(&self) -> MutexGuard<'_, WorkerDir> {
        lock(&self.dir)
    }

    fn send(&self, message: WorkerMessage) {
        // The end of the connection is noticed where messages are received.
        let _ = self.outgoing.send(message);
    }

    fn mark_arrival(&self) {
        self.arrivals.send_modify(|count| *count = count.wrapping_add(1));
    }
}

fn transcript_bytes(root: &std::path::Path, path: &str) -> Vec<u8> {
    let read = ScopedDir::open(root).and_then(|root| root.read_if_exists(path, MAX_TRANSCRIPT_BYTES));
    read.ok().flatten().unwrap_or_default()
}
