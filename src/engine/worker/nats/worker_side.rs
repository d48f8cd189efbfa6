//! The end of a worker: joins the runs of its pool, pulls orders while it has free slots, and stores what attempts send.
//!
//! It creates nothing on the server: its key lets it pull from the consumers that engines create for it, read files, and
//! publish on its own subjects.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_nats::{
    Client, SubscribeError,
    jetstream::{self, consumer::PullConsumer},
};
use futures_util::{StreamExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use uuid::Uuid;

use super::{
    Announcement, Hello, SubjectName,
    carrier::{Inlet, Outlet, PieceArrival},
    pool_streams::{self, LinkId, PoolNames},
};
use crate::worker::{
    connection::PROGRAM_VERSION,
    protocol::{Delivery, EngineMessage, PROTOCOL_VERSION, WorkerLoad, WorkerMessage},
    service::{self, EngineLink, LeaveRequest, ServiceEnd, WorkerSetup, WorkerSlots},
    shipped_attempts::ShippedFiles,
};
use ingestdeck_core::{diagnostic::Problem, tape::RunId};

/// Wait before the server is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long one request for an order waits on the server.
const PULL_WAIT: Duration = Duration::from_secs(20);
/// How long one request to the server may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the results of a worker that ends may take to be stored.
const LAST_RESULTS: Duration = Duration::from_secs(60);
/// How long another process with the same name may take to answer.
const NAMESAKE_PATIENCE: Duration = Duration::from_millis(500);
/// How often a file is looked for: an engine may be about to store it.
const FILE_TRIES: u32 = 10;
/// Capacity of the queues of messages.
const QUEUE_CAPACITY: usize = 256;

/// Where the messages for each connection go.
type Links = Arc<Mutex<HashMap<LinkId, mpsc::Sender<Delivery<EngineMessage>>>>>;

/// A worker of a pool.
#[derive(Clone, Debug)]
pub struct PoolMember {
    pub setup: WorkerSetup,
    /// The name by which the server knows it.
    pub name: SubjectName,
    pub pool: SubjectName,
    /// How long its agents work without their engine.
    pub grace: Duration,
    /// The session that started it, if it ends with one.
    pub session: Option<WorkerSession>,
}

/// The session of `ssh` that started a worker. True once it has ended: the worker then ends, unless it serves a run.
pub type WorkerSession = watch::Receiver<bool>;

/// Why a worker serves no runs.
#[derive(Debug)]
pub enum PoolServiceError {
    /// The run of its session does not use it.
    Refused(Problem),
    Failed(Problem),
}

impl From<Problem> for PoolServiceError {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

/// Joins the runs that are announced, until `leave` asks to end.
///
/// # Errors
/// If the worker cannot work at all, or the run of its session does not use it.
pub async fn serve_runs(
    member: &PoolMember,
    client: &Client,
    leave: watch::Receiver<LeaveRequest>,
    tell: &dyn Fn(&str),
) -> Result<(), PoolServiceError> {
    let server = WorkerServer {
        client: client.clone(),
        jetstream: jetstream::new(client.clone()),
        names: PoolNames(member.pool.clone()),
        links: Links::default(),
        since: jiff::Timestamp::now().as_millisecond(),
    };
    let refused = |error: SubscribeError| {
        Problem::new(format!(
            "the NATS server does not let this worker listen: {error}"
        ))
    };
    let listening = client.subscribe(server.names.runs()).await;
    let mut announcements = listening.map_err(refused)?;
    let own = server.names.hellos_of(member.name.as_str());
    let mut namesakes = client.subscribe(own).await.map_err(refused)?;
    let link = LinkId {
        worker: member.name.to_string(),
        run: "none".to_owned(),
        link: "none".to_owned(),
    };
    // An earlier process with this name answers.
    let (hello, load) = (server.names.hello(&link), WorkerLoad::default());
    let greeting = Hello {
        load,
        since: server.since,
    };
    let greeting = serde_json::to_vec(&greeting).unwrap_or_default();
    let greet = async || {
        // Another one follows with the heartbeats.
        let _ = client.publish(hello.clone(), greeting.clone().into()).await;
    };
    greet().await;
    let until = Instant::now() + NAMESAKE_PATIENCE;
    while let Ok(Some(message)) = timeout_at(until, namesakes.next()).await {
        check_namesake(&message.payload, &server, &member.name)?;
    }
    let mut pulling = JoinSet::new();
    pulling.spawn(pull_requests(server.clone(), member.name.to_string()));
    let ordering = pulling.spawn(pull_orders(
        server.clone(),
        member.name.to_string(),
        Arc::clone(&member.setup.slots),
    ));
    let mut served: JoinSet<(RunId, ServiceEnd)> = JoinSet::new();
    let mut active: HashMap<RunId, mpsc::Sender<Delivery<EngineMessage>>> = HashMap::new();
    // Runs that this worker does not join again.
    let mut over: HashSet<RunId> = HashSet::new();
    let (mut has_refused, mut is_leaving) = (false, false);
    let mut leaving = leave.clone();
    let mut session = member.session.clone();
    loop {
        let has_ended = session.as_ref().is_some_and(|session| *session.borrow());
        if (is_leaving || has_ended) && served.is_empty() {
            return Ok(());
        }
        tokio::select! {
            () = session_end(&mut session), if !has_ended => {}
            message = announcements.next() => {
                let Some(message) = message else {
                    let problem = Problem::new("the connection to the NATS server was closed");
                    return Err(problem.into());
                };
                let Ok(announced) = serde_json::from_slice::<Announcement>(&message.payload) else {
                    continue;
                };
                let Announcement { run, protocol, program, joins, .. } = announced;
                if let Some(messages) = active.get(&run) {
                    // The next announcement follows soon.
                    let _ = messages.try_send(EngineMessage::Heartbeat.into());
                } else if !joins || is_leaving || over.contains(&run) {
                    continue;
                } else if protocol != PROTOCOL_VERSION || program != PROGRAM_VERSION {
                    if session.is_some() {
                        let text = format!("it is ingestdeck {PROGRAM_VERSION}, and the run needs {program}");
                        let problem = Problem::new(text).with_help("install the same version there");
                        return Err(PoolServiceError::Refused(problem));
                    }
                    if !std::mem::replace(&mut has_refused, true) {
                        tell(&format!(
                            "a run of ingestdeck {program} is not served, because this is {PROGRAM_VERSION}"
                        ));
                    }
                } else {
                    tell(&format!("joining run {}", run.short()));
                    let link = LinkId {
                        worker: member.name.to_string(),
                        run: run.to_string(),
                        // Each connection has a new id, so that an engine never takes it for an earlier one.
                        link: Uuid::new_v4().simple().to_string(),
                    };
                    let (messages, incoming) = mpsc::channel(QUEUE_CAPACITY);
                    server.links.lock().insert(link.clone(), messages.clone());
                    active.insert(run, messages);
                    member.setup.slots.runs.fetch_add(1, Ordering::Relaxed);
                    let serving = server.clone().serve(
                        (member.setup.clone(), member.grace),
                        link,
                        incoming,
                        leave.clone(),
                    );
                    served.spawn(async move { (run, serving.await) });
                }
            }
            Some(message) = namesakes.next() => {
                if check_namesake(&message.payload, &server, &member.name)? {
                    greet().await;
                }
            }
            Some(ended) = served.join_next() => {
                let ended = ended.map_err(|error| Problem::new(error.to_string()));
                let (run, end) = ended?;
                active.remove(&run);
                member.setup.slots.runs.fetch_sub(1, Ordering::Relaxed);
                match &end {
                    ServiceEnd::Done => tell(&format!("run {} is over", run.short())),
                    ServiceEnd::Refused(reason) => tell(&format!(
                        "run {} does not use this worker: {reason}",
                        run.short()
                    )),
                    ServiceEnd::EngineLost(reason) => {
                        tell(&format!("run {} was lost: {reason}", run.short()));
                    }
                    ServiceEnd::Failed(reason) => return Err(Problem::new(reason.clone()).into()),
                }
                // A run that is over is not announced any longer.
                if let ServiceEnd::Refused(reason) = end {
                    if session.is_some() {
                        return Err(PoolServiceError::Refused(Problem::new(reason)));
                    }
                    over.insert(run);
                }
            }
            asked = leaving.wait_for(|leave| *leave != LeaveRequest::Stay), if !is_leaving => {
                is_leaving = asked.is_ok();
                // Orders that arrive later belong to other workers. Running attempts still hear their engines.
                ordering.abort();
                member.setup.slots.offered.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Waits for the end of the session that started the worker.
async fn session_end(session: &mut Option<WorkerSession>) {
    match session {
        // Without a sender, it has ended.
        Some(session) => drop(session.wait_for(|has_ended| *has_ended).await),
        None => std::future::pending().await,
    }
}

/// Compares this process with one of the same name, of which the later one gives way. Returns true if that is the other.
fn check_namesake(
    hello: &[u8],
    server: &WorkerServer,
    name: &SubjectName,
) -> Result<bool, Problem> {
    let other = serde_json::from_slice::<Hello>(hello).map(|hello| hello.since);
    let since = other.unwrap_or(server.since);
    if since < server.since {
        let text = format!("another worker with the name {name} serves the pool");
        return Err(Problem::new(text).with_help("give each worker another name and key"));
    }
    Ok(since > server.since)
}

/// What the connections of a worker share.
#[derive(Clone)]
struct WorkerServer {
    client: Client,
    jetstream: jetstream::Context,
    names: PoolNames,
    links: Links,
    /// When this process began, in milliseconds since 1970.
    since: i64,
}

impl WorkerServer {
    /// Serves one run until it ends.
    async fn serve(
        self,
        (setup, patience): (WorkerSetup, Duration),
        link: LinkId,
        incoming: mpsc::Receiver<Delivery<EngineMessage>>,
        leave: watch::Receiver<LeaveRequest>,
    ) -> ServiceEnd {
        let (outgoing, to_engine) = mpsc::unbounded_channel();
        let mut aborting = leave.clone();
        let mut storing = tokio::spawn(self.clone().store_messages(link.clone(), to_engine));
        let connection = EngineLink {
            incoming,
            outgoing,
            patience,
        };
        let end = service::serve(setup, Arc::new(self.clone()), connection, leave).await;
        self.links.lock().remove(&link);
        // The queue is closed, so this ends after the last message.
        if *aborting.borrow() == LeaveRequest::Finish {
            // What was paid is stored, however long the server is away, unless a second signal asks to end.
            tokio::select! {
                _ = &mut storing => return end,
                _ = aborting.wait_for(|leave| *leave == LeaveRequest::Abort) => {}
            }
        }
        if timeout(LAST_RESULTS, storing).await.is_err() {
            tracing::warn!("the last messages to an engine are not stored");
        }
        end
    }

    /// Stores messages until there are no more.
    async fn store_messages(
        self,
        link: LinkId,
        mut messages: mpsc::UnboundedReceiver<WorkerMessage>,
    ) {
        let mut up = Outlet::new(self.jetstream.clone(), self.names.up(&link));
        // Heartbeats do not wait for a server that stores nothing.
        let (stored, mut to_store) = mpsc::unbounded_channel::<Vec<u8>>();
        let storing = tokio::spawn(async move {
            while let Some(message) = to_store.recv().await {
                up.store(&message).await;
            }
        });
        let hello = self.names.hello(&link);
        while let Some(message) = messages.recv().await {
            match &message {
                WorkerMessage::Heartbeat(load) => {
                    let (load, since) = (*load, self.since);
                    let load = serde_json::to_vec(&Hello { load, since }).unwrap_or_default();
                    // The next heartbeat follows soon.
                    let _ = self.client.publish(hello.clone(), load.into()).await;
                }
                _ => {
                    if let Ok(bytes) = serde_json::to_vec(&message) {
                        // The task ends with this queue.
                        let _ = stored.send(bytes);
                    }
                }
            }
        }
        drop(stored);
        if let Err(error) = storing.await {
            tracing::error!(%error, "the messages to an engine are not stored");
        }
    }
}

impl ShippedFiles for WorkerServer {
    fn read<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        Box::pin(async move {
            let mut read = Err(String::new());
            for _ in 0..FILE_TRIES {
                read = pool_streams::read_file(&self.jetstream, &self.names, digest).await;
                if read.is_ok() {
                    break;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            read
        })
    }
}

/// A consumer of this worker, once an engine has created it.
async fn consumer(server: &WorkerServer, name: &str) -> PullConsumer {
    loop {
        let stream = server.names.order_stream();
        let looking = server.jetstream.get_consumer_from_stream(name, stream);
        if let Ok(Ok(consumer)) = timeout(REQUEST_TIMEOUT, looking).await {
            return consumer;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Receives everything but orders, for all connections.
async fn pull_requests(server: WorkerServer, worker: String) {
    let mut inlets: HashMap<LinkId, Inlet<()>> = HashMap::new();
    loop {
        let consumer = consumer(&server, &PoolNames::down_consumer(&worker)).await;
        let messages = consumer
            .stream()
            .heartbeat(PULL_WAIT / 4)
            .expires(PULL_WAIT);
        let Ok(mut messages) = messages.messages().await else {
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        };
        while let Some(Ok(message)) = messages.next().await {
            receive(&server, &mut inlets, &message, &mut None).await;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Receives orders, each with a slot.
async fn pull_orders(server: WorkerServer, worker: String, slots: Arc<WorkerSlots>) {
    let mut inlets: HashMap<LinkId, Inlet<()>> = HashMap::new();
    loop {
        let consumer = consumer(&server, &PoolNames::order_consumer(&worker)).await;
        loop {
            // The semaphore is never closed.
            let mut slot = Arc::clone(&slots.free).acquire_owned().await.ok();
            slots.offered.store(1, Ordering::Relaxed);
            // An order may travel in several pieces.
            while slot.is_some() {
                let batch = consumer
                    .fetch()
                    .max_messages(1)
                    .expires(PULL_WAIT)
                    .messages();
                // Without an order, the slot is offered again.
                let waiting = timeout(PULL_WAIT + REQUEST_TIMEOUT, async {
                    batch.await.ok()?.next().await?.ok()
                });
                match waiting.await {
                    Ok(Some(message)) => receive(&server, &mut inlets, &message, &mut slot).await,
                    Ok(None) | Err(_) => break,
                }
            }
            slots.offered.store(0, Ordering::Relaxed);
            if slot.is_some() {
                drop(slot);
                // Stays here, unless the consumer is gone.
                if consumer.get_info().await.is_err() {
                    break;
                }
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Passes a message of an engine on to its connection. What no connection of this process has a use for is dropped.
async fn receive(
    server: &WorkerServer,
    inlets: &mut HashMap<LinkId, Inlet<()>>,
    message: &jetstream::Message,
    slot: &mut Option<OwnedSemaphorePermit>,
) {
    let link = LinkId::of_subject(&message.subject);
    let known = link.and_then(|link| {
        let messages = server.links.lock().get(&link).cloned();
        Some((link, messages?))
    });
    if let Some((link, messages)) = known {
        inlets.retain(|of, _| server.links.lock().contains_key(of));
        let inlet = inlets.entry(link).or_insert_with(Inlet::with_successors);
        match inlet.add(&message.payload, ()) {
            PieceArrival::Complete { message, .. } => {
                let delivery = Delivery {
                    message,
                    handled: None,
                    slot: slot.take(),
                };
                // A connection that is over needs nothing.
                let _ = messages.send(delivery).await;
            }
            // It is delivered again later.
            PieceArrival::Early => return,
            PieceArrival::Partial | PieceArrival::Repeated(..) | PieceArrival::Garbage(()) => {}
        }
    }
    if let Err(error) = message.ack().await {
        tracing::debug!(error, "a message is not confirmed");
    }
}
