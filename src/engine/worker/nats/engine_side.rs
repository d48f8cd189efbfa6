//! The end of an engine: announces its run, serves the workers that join, and continues attempts of an earlier run.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_nats::{
    Client,
    connection::State,
    jetstream::{self, message::Acker},
};
use futures_util::{StreamExt as _, stream::FuturesOrdered};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, timeout},
};

use super::{
    Announcement, Hello, NatsServer,
    carrier::{Inlet, Outlet, PieceArrival},
    other_runs::{OtherRuns, owner_of},
    pool_streams::{LinkId, PoolNames, PoolStreams},
};
use crate::worker::{
    connection::{ConnectionEnd, PROGRAM_VERSION, WorkerConnection},
    host::WorkerHost,
    names::plain_name,
    own_server::OwnServer,
    prior_attempts::{self, AdoptedAttempt, LeaseRecord, SharedPrior},
    protocol::{
        AttemptLease, AttemptShipment, Delivery, EngineMessage, EnginePart, PROTOCOL_VERSION,
        WorkerMessage,
    },
};
use ingestdeck_agent::caught_panics;
use ingestdeck_core::{
    diagnostic::{Diagnostic as _, Problem},
    tape::{
        RunId,
        note::{PoolRun, Severity},
    },
    text::pluralize,
};

/// How often an engine announces its run.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(3);
/// How long a run may be without workers before the user is warned.
const JOIN_PATIENCE: Duration = Duration::from_secs(20);
/// Wait before the server is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(2);
/// How long a worker may be silent: longer than most interruptions of a network.
const WORKER_PATIENCE: Duration = Duration::from_secs(60);
/// The same for a worker over SSH: until its session has ended and another one has brought it back.
const SESSION_PATIENCE: Duration = Duration::from_secs(180);
/// How long one request to the server may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the attempts of an earlier run may be looked for, before they run again.
const ADOPTION_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server of the run may take to start.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// How often the state of the connection is looked at.
const CONNECTION_CHECK: Duration = Duration::from_secs(1);
/// How long the last messages to the workers may take.
const LAST_MESSAGES: Duration = Duration::from_secs(3);
/// Capacity of the queues of messages.
const QUEUE_CAPACITY: usize = 256;
/// Most connections that are over and known.
const MAX_ENDED_LINKS: usize = 10_000;
/// After how many seconds a stored file is looked for again: `worker gc` may have taken this run for one that is over,
/// while this machine was asleep.
const FILE_RECHECK_S: i64 = 30 * 60;
/// Most messages of the server that are fetched together.
const FETCH_MESSAGES: usize = 100;

impl NatsServer {
    /// Announces the run of `host` and serves every worker that joins, while the run lasts. `own` is the server of the run,
    /// if it is this one.
    pub(in crate::worker) async fn keep_listening(
        self,
        host: Arc<WorkerHost>,
        mut prior: Option<SharedPrior>,
        own: Option<Arc<OwnServer>>,
    ) {
        let (mut known, began) = (None, Instant::now());
        let (client, streams) = loop {
            let problem = match self.open_pool().await {
                Ok(opened) => break opened,
                Err(problem) => problem.to_line(),
            };
            // The server of the run may be about to start.
            let is_late = own.is_none() || began.elapsed() >= START_PATIENCE;
            if is_late && known.as_ref() != Some(&problem) {
                host.pool.warn(Severity::Warning, problem.clone());
                known = Some(problem);
            }
            // Without a server, the units of the earlier run begin again on this machine.
            if began.elapsed() >= ADOPTION_TIMEOUT
                && !host.pool.is_remote_only()
                && prior.take().is_some()
            {
                host.pool.end_adoption();
            }
            tokio::select! {
                () = tokio::time::sleep(RECONNECT_PAUSE) => {}
                () = host.pool.ended() => return,
            }
        };
        let listener = EngineListener::new(client, streams, (self, own), host);
        listener.listen(prior).await;
    }

    /// True if attempts of a run may still run, or their results wait. Also if that cannot be known.
    pub(in crate::worker) async fn has_leases(&self) -> bool {
        let Ok((_, streams)) = self.open_pool().await else {
            return true;
        };
        let looking = async {
            match streams.leases.keys().await {
                Ok(mut keys) => keys.next().await.is_some(),
                Err(_) => true,
            }
        };
        timeout(REQUEST_TIMEOUT, looking).await.unwrap_or(true)
    }

    async fn open_pool(&self) -> Result<(Client, PoolStreams), Problem> {
        let client = self.connect().await?;
        let jetstream = jetstream::new(client.clone());
        let opening = PoolStreams::open(jetstream, PoolNames(self.pool.clone()));
        let late = || Err(Problem::new("the NATS server does not answer"));
        let streams = timeout(REQUEST_TIMEOUT, opening).await;
        Ok((client, streams.unwrap_or_else(|_| late())?))
    }
}

/// A piece that a worker stored.
struct StoredPiece {
    link: LinkId,
    content: Vec<u8>,
    confirmation: Acker,
}

/// Listens to the workers of one run.
struct EngineListener {
    client: Client,
    streams: Arc<PoolStreams>,
    server: NatsServer,
    /// The server of the run, if it is this one.
    own: Option<Arc<OwnServer>>,
    host: Arc<WorkerHost>,
    owner: PoolRun,
    /// Where the messages of workers go.
    links: HashMap<LinkId, ConnectedWorker>,
    /// Connections that are over.
    over: HashSet<LinkId>,
    /// Reasons that the user knows.
    refusals: HashSet<String>,
    served: JoinSet<(LinkId, ConnectionEnd)>,
    /// This run, and the earlier ones whose attempts it continues.
    runs: HashSet<RunId>,
    /// Reads what the workers of these runs store.
    readers: JoinSet<()>,
    pieces: (mpsc::Sender<StoredPiece>, mpsc::Receiver<StoredPiece>),
    is_online: watch::Sender<bool>,
    stored_files: StoredFiles,
}

/// Digests of the files that are on the server, and when that was seen last, in seconds since 1970.
type StoredFiles = Arc<Mutex<HashMap<String, i64>>>;

struct ConnectedWorker {
    pieces: mpsc::Sender<StoredPiece>,
    messages: mpsc::Sender<Delivery<WorkerMessage>>,
}

impl EngineListener {
    fn new(
        client: Client,
        streams: PoolStreams,
        (server, own): (NatsServer, Option<Arc<OwnServer>>),
        host: Arc<WorkerHost>,
    ) -> Self {
        let (links, over, refusals, served, runs, readers, stored_files) = Default::default();
        Self {
            client,
            streams: Arc::new(streams),
            server,
            own,
            owner: owner_of(&host.project.root),
            host,
            links,
            over,
            refusals,
            served,
            runs,
            readers,
            pieces: mpsc::channel(QUEUE_CAPACITY),
            is_online: watch::channel(true).0,
            stored_files,
        }
    }

    async fn listen(mut self, prior: Option<SharedPrior>) {
        let run = self.host.terms.run;
        let hellos = self.client.subscribe(self.streams.names.hellos()).await;
        let announced = self.client.subscribe(self.streams.names.runs()).await;
        let (Ok(mut hellos), Ok(mut announced)) = (hellos, announced) else {
            let address = &self.server.address;
            self.host.pool.warn(
                Severity::Error,
                format!("{address} does not let this run listen to workers"),
            );
            if prior.is_some() {
                self.host.pool.end_adoption();
            }
            return self.give_up();
        };
        self.read_run(run);
        if let Some(prior) = prior {
            if let Err(problem) = self.adopt(prior).await {
                let text = format!("attempts of the earlier run cannot be continued: {problem}");
                self.host.pool.warn(Severity::Warning, text);
            }
            self.host.pool.end_adoption();
        }
        let mut others = OtherRuns::default();
        let mut announce = tokio::time::interval(ANNOUNCE_INTERVAL);
        announce.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut check = tokio::time::interval(CONNECTION_CHECK);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Over SSH, each session reports what it lacks.
        let (remind_at, mut is_reminded) = (Instant::now() + JOIN_PATIENCE, self.own.is_some());
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(remind_at), if !is_reminded => {
                    is_reminded = true;
                    if self.links.is_empty() {
                        let address = &self.server.address;
                        let text = format!("no worker has joined at {address}; `ingestdeck worker --nats {address}` starts one");
                        self.host.pool.warn(Severity::Warning, text);
                    }
                }
                _ = announce.tick() => self.announce(&run).await,
                _ = check.tick() => {
                    let is_online = self.client.connection_state() == State::Connected;
                    self.is_online.send_if_modified(|known| std::mem::replace(known, is_online) != is_online);
                    if let Some(pool) = others.change(self.host.pool.slots_of_others()) {
                        self.host.pool.record_use(pool);
                    }
                }
                hello = hellos.next() => match hello {
                    Some(hello) => self.hear(&hello.subject, &hello.payload),
                    // The client was closed for good.
                    None => return self.give_up(),
                },
                Some(message) = announced.next() => others.hear(&message.payload, &self.runs),
                Some(piece) = self.pieces.1.recv() => self.receive(piece).await,
                () = self.host.pool.ended() => break,
                Some(ended) = self.served.join_next() => {
                    if let Ok((link, end)) = ended {
                        self.end_link(link, end);
                    }
                }
            }
        }
        // The connection of each worker reports the end of the run.
        let ending = async { while self.served.join_next().await.is_some() {} };
        if timeout(LAST_MESSAGES, ending).await.is_err() {
            tracing::debug!("some workers are not informed of the end of the run");
        }
        // A client buffers.
        let _ = timeout(LAST_MESSAGES, self.client.flush()).await;
    }

    /// No worker can join at the server any longer.
    fn give_up(&self) {
        // Each session over SSH counts for itself.
        if self.own.is_none() {
            self.host.pool.remove_transport();
        }
    }

    async fn announce(&self, own: &RunId) {
        for run in &self.runs {
            let announcement = Announcement {
                run: *run,
                protocol: PROTOCOL_VERSION,
                program: PROGRAM_VERSION.to_owned(),
                joins: run == own,
                owner: self.owner.clone(),
            };
            let announcement = serde_json::to_vec(&announcement).unwrap_or_default();
            // The next announcement follows soon.
            let subject = self.streams.names.runs();
            let _ = self.client.publish(subject, announcement.into()).await;
        }
    }

    /// Takes the heartbeat of a worker.
    fn hear(&self, subject: &str, payload: &[u8]) {
        let worker = LinkId::of_subject(subject).and_then(|link| self.links.get(&link));
        let load = serde_json::from_slice::<Hello>(payload).ok();
        if let Some((worker, Hello { load, .. })) = worker.zip(load) {
            // The next heartbeat follows soon.
            let _ = worker
                .messages
                .try_send(WorkerMessage::Heartbeat(load).into());
        }
    }

    /// Reads what the workers of a run store, while this run lasts.
    fn read_run(&mut self, run: RunId) {
        if self.runs.insert(run) {
            let reading = read_run(Arc::clone(&self.streams), run, self.pieces.0.clone());
            self.readers.spawn(reading);
        }
    }

    async fn receive(&mut self, piece: StoredPiece) {
        let link = piece.link.clone();
        if self.over.contains(&link) || link.run != self.host.terms.run.to_string() {
            if let Some(worker) = self.links.get(&link) {
                let _ = worker.pieces.send(piece).await;
            } else {
                // No attempt has a use for it.
                confirm(piece.confirmation).await;
            }
            return;
        }
        if !self.links.contains_key(&link) {
            // A connection begins with a description, which is small. A server may be made to answer here, too.
            let first = Inlet::new().add::<WorkerMessage>(&piece.content, ());
            let joins = matches!(
                &first,
                PieceArrival::Complete {
                    message: WorkerMessage::Join(_),
                    ..
                }
            );
            if !joins {
                return confirm(piece.confirmation).await;
            }
            // A worker that was started again has lost its attempts.
            let is_earlier = |of: &LinkId| of.worker == link.worker && of.run == link.run;
            let earlier = self
                .links
                .extract_if(|of, _| is_earlier(of))
                .map(|(of, _)| of);
            self.over.extend(earlier);
            // Without them, late messages have no receiver either.
            if self.over.len() > MAX_ENDED_LINKS {
                self.over.clear();
            }
            // Its consumers must exist before it is welcome.
            let adding = timeout(REQUEST_TIMEOUT, self.streams.add_worker(&link.worker)).await;
            if let Ok(Err(error)) = adding {
                let text = format!(
                    "cannot create the consumers of worker {}: {error}",
                    link.worker
                );
                if self.refusals.insert(text.clone()) {
                    self.host.pool.warn(Severity::Warning, text);
                }
            }
            let host = Arc::clone(&self.host);
            self.connect(link.clone(), Inlet::new(), move |connection| async move {
                host.serve(connection).await.0
            });
        }
        if let Some(worker) = self.links.get(&link) {
            // A worker that sends more than the engine can record waits.
            let _ = worker.pieces.send(piece).await;
        }
    }

    /// Starts to serve a worker.
    fn connect<F>(
        &mut self,
        link: LinkId,
        inlet: Inlet<Acker>,
        serve: impl FnOnce(WorkerConnection) -> F + Send + 'static,
    ) -> mpsc::Sender<EngineMessage>
    where
        F: Future<Output = ConnectionEnd> + Send,
    {
        let (messages, incoming) = mpsc::channel(QUEUE_CAPACITY);
        let (outgoing, to_worker) = mpsc::channel(QUEUE_CAPACITY);
        let (pieces, arriving) = mpsc::channel(QUEUE_CAPACITY);
        let connection = WorkerConnection {
            name: self
                .own
                .as_ref()
                .and_then(|own| own.machine_of(&link.worker)),
            login: self.own.as_ref().map(|_| link.worker.clone()),
            incoming,
            outgoing: outgoing.clone(),
            patience: match self.own {
                Some(_) => SESSION_PATIENCE,
                None => WORKER_PATIENCE,
            },
            is_online: Some(self.is_online.subscribe()),
            returns: self.own.is_some(),
        };
        let publisher = WorkerPublisher {
            streams: Arc::clone(&self.streams),
            host: Arc::clone(&self.host),
            link: link.clone(),
            stored_files: Arc::clone(&self.stored_files),
        };
        let (id, to_host) = (link.clone(), messages.clone());
        self.served.spawn(async move {
            let sending = tokio::spawn(publisher.run(to_worker));
            let receiving = tokio::spawn(join_pieces(arriving, inlet, to_host));
            let end = serve(connection).await;
            receiving.abort();
            // The queue is closed, so this ends after the last message; a server that is away gets none.
            let _ = timeout(LAST_MESSAGES, sending).await;
            (id, end)
        });
        self.links
            .insert(link, ConnectedWorker { pieces, messages });
        outgoing
    }

    fn end_link(&mut self, link: LinkId, end: ConnectionEnd) {
        self.links.remove(&link);
        self.over.insert(link);
        if let ConnectionEnd::Refused(reason) = end
            && self.refusals.insert(reason.clone())
        {
            self.host.pool.warn(Severity::Warning, reason);
        }
    }

    /// Continues the attempts of an earlier run that still run on workers, or whose results wait on the server.
    async fn adopt(&mut self, prior: SharedPrior) -> Result<(), Problem> {
        let run = prior.run.to_string();
        let reading = timeout(ADOPTION_TIMEOUT, self.streams.lease_records(&run)).await;
        let records = reading.map_err(|_| Problem::new("the NATS server does not answer"))??;
        if records.is_empty() {
            return Ok(());
        }
        let known = records.clone();
        let tape = Arc::clone(&prior);
        let reading = caught_panics::spawn_blocking_caught(move || {
            prior_attempts::unfinished(&tape, records)
        });
        let unfinished = reading
            .await
            .map_err(|error| Problem::new(error.to_string()))?;
        let unfinished = unfinished
            .map_err(|error| Problem::new(format!("cannot read the tape of run {run}: {error}")))?;
        // What is over, or does not run again, leaves no record.
        for record in known {
            let is_adopted = prior.units.contains(&record.lease.unit)
                && unfinished
                    .iter()
                    .any(|(of, _)| (&of.link, &of.lease) == (&record.link, &record.lease));
            if !is_adopted {
                self.streams.drop_record(&run, &record).await;
            }
        }
        let mut links: HashMap<LinkId, Vec<(LeaseRecord, AdoptedAttempt)>> = HashMap::new();
        for (record, adopted) in unfinished {
            let link = LinkId {
                worker: record.worker.clone(),
                run: record.run.to_string(),
                link: record.link.clone(),
            };
            let attempts = links.entry(link).or_default();
            // A connection without attempts ends, and so do its agents.
            if prior.units.contains(&record.lease.unit) {
                attempts.push((record, adopted));
            }
        }
        let count: usize = links.values().map(Vec::len).sum();
        for (link, attempts) in links {
            self.adopt_link(&run, link, attempts).await;
        }
        if count > 0 {
            let text = format!(
                "{} of the earlier run {} on workers",
                pluralize(count, "attempt"),
                if count == 1 { "continues" } else { "continue" }
            );
            self.host.pool.warn(Severity::Info, text);
        }
        Ok(())
    }

    async fn adopt_link(
        &mut self,
        prior: &str,
        link: LinkId,
        attempts: Vec<(LeaseRecord, AdoptedAttempt)>,
    ) {
        let own = self.own.as_ref();
        let name = own.and_then(|own| own.machine_of(&link.worker));
        let name = plain_name(name.as_ref().unwrap_or(&link.worker));
        let host = Arc::clone(&self.host);
        let (named, is_named) = oneshot::channel::<String>();
        let outgoing = self.connect(
            link.clone(),
            Inlet::resumed(),
            move |connection| async move {
                match is_named.await {
                    Ok(name) => host.serve_joined(&name, connection).await,
                    Err(_) => ConnectionEnd::Left("it has no attempts".to_owned()),
                }
            },
        );
        let own = self.host.terms.run.to_string();
        let mut leases: Vec<(AttemptLease, AdoptedAttempt)> = Vec::with_capacity(attempts.len());
        for (record, adopted) in attempts {
            self.read_run(record.run);
            // The next run finds the attempt under this one, where it is the first for its unit.
            let record = LeaseRecord {
                attempt: 1,
                ..record
            };
            self.streams.keep_lease(&own, &record).await;
            if prior != link.run {
                self.streams.drop_lease(prior, &link, &record.lease).await;
            }
            leases.push((record.lease, adopted));
        }
        let name = self.host.pool.add_adopted(&name, leases, &outgoing);
        // The connection waits for it.
        let _ = named.send(name);
    }
}

/// Reads what the workers of a run store, and gets it again after each interruption.
async fn read_run(streams: Arc<PoolStreams>, run: RunId, pieces: mpsc::Sender<StoredPiece>) {
    loop {
        match timeout(REQUEST_TIMEOUT, streams.run_consumer(&run)).await {
            Ok(Ok(consumer)) => {
                let messages = consumer
                    .stream()
                    .max_messages_per_batch(FETCH_MESSAGES)
                    .heartbeat(ANNOUNCE_INTERVAL)
                    .messages()
                    .await;
                let mut messages = match messages {
                    Ok(messages) => messages,
                    Err(error) => {
                        tracing::debug!(%error, "cannot read what workers store");
                        tokio::time::sleep(RECONNECT_PAUSE).await;
                        continue;
                    }
                };
                while let Some(message) = messages.next().await {
                    let message = match message {
                        Ok(message) => message,
                        Err(error) => {
                            tracing::debug!(%error, "reading what workers store is interrupted");
                            break;
                        }
                    };
                    let (message, confirmation) = message.split();
                    let Some(link) = LinkId::of_subject(&message.subject) else {
                        continue;
                    };
                    let content = message.payload.to_vec();
                    let piece = StoredPiece {
                        link,
                        content,
                        confirmation,
                    };
                    if pieces.send(piece).await.is_err() {
                        return;
                    }
                }
            }
            Ok(Err(error)) => tracing::debug!(%error, "cannot create the consumer of a run"),
            Err(_) => {}
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Joins the pieces of a worker to messages, and confirms them once they are handled.
async fn join_pieces(
    mut pieces: mpsc::Receiver<StoredPiece>,
    mut inlet: Inlet<Acker>,
    messages: mpsc::Sender<Delivery<WorkerMessage>>,
) {
    // Confirmed in order: a run that continues this one finds no gap.
    let mut handling = FuturesOrdered::new();
    let mut in_work = HashSet::new();
    loop {
        tokio::select! {
            piece = pieces.recv() => {
                let Some(StoredPiece { content, confirmation, .. }) = piece else {
                    return;
                };
                match inlet.add(&content, confirmation) {
                    PieceArrival::Complete { number, message, confirmations } => {
                        let (handled, is_handled) = oneshot::channel::<()>();
                        in_work.insert(number);
                        handling.push_back(async move {
                            // It is dropped, whatever became of the message.
                            let _ = is_handled.await;
                            (number, confirmations)
                        });
                        let delivery = Delivery {
                            message,
                            handled: Some(handled),
                            slot: None,
                        };
                        if messages.send(delivery).await.is_err() {
                            return;
                        }
                    }
                    PieceArrival::Repeated(number, confirmation) if !in_work.contains(&number) => {
                        confirm(confirmation).await;
                    }
                    PieceArrival::Garbage(confirmation) => confirm(confirmation).await,
                    PieceArrival::Repeated(..) | PieceArrival::Partial | PieceArrival::Early => {}
                }
            }
            Some((number, confirmations)) = handling.next() => {
                in_work.remove(&number);
                for confirmation in confirmations {
                    confirm(confirmation).await;
                }
            }
        }
    }
}

async fn confirm(confirmation: Acker) {
    if let Err(error) = confirmation.ack().await {
        // It is delivered again, and confirmed then.
        tracing::debug!(error, "a message is not confirmed");
    }
}

/// Stores messages for one worker.
struct WorkerPublisher {
    streams: Arc<PoolStreams>,
    host: Arc<WorkerHost>,
    link: LinkId,
    stored_files: StoredFiles,
}

impl WorkerPublisher {
    async fn run(self, mut messages: mpsc::Receiver<EngineMessage>) {
        let (jetstream, names) = (&self.streams.jetstream, &self.streams.names);
        let mut orders = Outlet::new(jetstream.clone(), names.order(&self.link));
        let mut down = Outlet::new(jetstream.clone(), names.down(&self.link));
        let own = self.host.terms.run.to_string();
        while let Some(message) = messages.recv().await {
            let Ok(bytes) = serde_json::to_vec(&message) else {
                continue;
            };
            match message {
                // The announcements of the run are its heartbeats.
                EngineMessage::Heartbeat => {}
                EngineMessage::Attempt {
                    lease,
                    part: EnginePart::Start(shipment),
                } => {
                    self.store_files(&shipment).await;
                    let record = self.record(lease, &shipment);
                    self.streams.keep_lease(&own, &record).await;
                    orders.store(&bytes).await;
                }
                EngineMessage::Over { lease } => {
                    self.streams.drop_lease(&own, &self.link, &lease).await;
                    if self.link.run != own {
                        // The run that granted it has nothing left to continue there.
                        let first = &self.link.run;
                        self.streams.drop_lease(first, &self.link, &lease).await;
                    }
                    down.store(&bytes).await;
                }
                _ => down.store(&bytes).await,
            }
        }
    }

    fn record(&self, lease: AttemptLease, shipment: &AttemptShipment) -> LeaseRecord {
        LeaseRecord {
            worker: self.link.worker.clone(),
            link: self.link.link.clone(),
            run: self.host.terms.run,
            account: self.host.pool.account_of(&lease),
            attempt: lease.attempt,
            recorded: None,
            lease,
            session: shipment.task.session.clone(),
            content: shipment.content_digest(),
        }
    }

    /// Stores the files that an attempt needs and that are not on the server. The worker reports those that are missing.
    async fn store_files(&self, shipment: &AttemptShipment) {
        for digest in shipment.digests() {
            let now = jiff::Timestamp::now().as_second();
            let seen = self.stored_files.lock().get(digest).copied();
            if seen.is_some_and(|at| now.saturating_sub(at) < FILE_RECHECK_S) {
                continue;
            }
            let (store, wanted) = (Arc::clone(&self.host.store), digest.clone());
            let read = tokio::task::spawn_blocking(move || store.read(&wanted)).await;
            let content = match read.map_err(std::io::Error::other).flatten() {
                Ok(content) => content,
                Err(error) => {
                    tracing::warn!(%error, digest, "a file is not stored for workers");
                    continue;
                }
            };
            loop {
                match self.streams.store_file(digest, &content).await {
                    Ok(()) => break,
                    Err(error) => tracing::debug!(error, digest, "a file is not stored yet"),
                }
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
            self.stored_files.lock().insert(digest.clone(), now);
        }
    }
}
