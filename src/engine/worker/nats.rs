//! Workers over NATS: engines announce their runs, and workers that hear it join.
//!
//! Only plain messages are used, which a server neither stores nor repeats: both sides keep what is not confirmed, see
//! [`delivery`](super::delivery), so there is nothing on the server to clean up. A message that exceeds the limit of the
//! server is sent in fragments. The module must not know what the messages mean.

#![expect(
    clippy::disallowed_methods,
    reason = "the credentials and certificates that the user names"
)]

use std::{
    collections::{HashMap, HashSet},
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Subscriber};
use futures_util::{FutureExt as _, StreamExt as _};
// Its version selects the Unicode data of host names for the client.
use idna_adapter as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::MissedTickBehavior,
};
use uuid::Uuid;

use super::{
    connection::{ConnectionEnd, PROGRAM_VERSION, WorkerConnection},
    host::WorkerHost,
    protocol::{EngineMessage, MAX_MESSAGE_BYTES, PROTOCOL_VERSION, WorkerMessage},
    service::{self, EngineLink, LeaveRequest, ServiceEnd, WorkerSetup},
};
use ingestdeck_core::{
    diagnostic::Problem,
    tape::{RunId, note::Severity},
    text,
};

/// The subject of announcements, and the first word of all others.
const ANNOUNCEMENTS: &str = "ingestdeck.runs";
/// How often an engine announces its run.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(3);
/// How long a run may be without workers before the user is warned.
const JOIN_PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait for a confirmation before messages are sent again.
const RESEND_AFTER: Duration = Duration::from_secs(3);
/// How long a connection to the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait before the server is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(2);
/// How long the last messages may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Capacity of the queues of messages.
const QUEUE_CAPACITY: usize = 256;
/// Bytes before the content of a fragment: id of the message, number of the fragment, number of fragments.
const FRAGMENT_HEAD: usize = 16;
/// Smallest limit of a server that can be used.
const MIN_PAYLOAD: usize = 4 << 10;

/// A NATS server and the login for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsServer {
    pub address: NatsAddress,
    /// A credentials file, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// A file with an nkey seed.
    pub nkey: Option<PathBuf>,
    /// Certificates of authorities that sign the certificate of the server.
    pub root_certificates: Option<PathBuf>,
    /// A server that requires no login may be used.
    pub allows_open: bool,
}

/// The address of a NATS server: `nats://[user:password@]host[:port]`, with a token in place of the user, or `tls://` for an encrypted connection.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsAddress(async_nats::ServerAddr);

impl FromStr for NatsAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let invalid = |why: String| {
            Problem::new(format!("invalid NATS server: {why}")).with_help(
                "write nats://host[:port], or tls://host[:port] for an encrypted connection",
            )
        };
        if !["nats://", "tls://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        {
            return Err(invalid(
                "it does not begin with nats:// or tls://".to_owned(),
            ));
        }
        let address: async_nats::ServerAddr = text
            .parse()
            .map_err(|error: io::Error| invalid(error.to_string()))?;
        if address.host().is_empty() {
            return Err(invalid("it names no host".to_owned()));
        }
        Ok(Self(address))
    }
}

/// Written without the password.
impl fmt::Display for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}:{}",
            self.0.scheme(),
            self.0.host(),
            self.0.port()
        )
    }
}

impl fmt::Debug for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What workers must know about a run before they join it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Announcement {
    run: RunId,
    protocol: u32,
    program: String,
}

impl NatsServer {
    /// Connects to the server, and checks its limits. Takes 10 s at most.
    ///
    /// # Errors
    /// If a file of the login cannot be read, the server cannot be reached, it refuses the login or requires none, or the
    /// limits are too small. Each names the remedy.
    pub async fn connect(&self) -> Result<Client, Problem> {
        let mut options = ConnectOptions::new()
            .connection_timeout(CONNECT_TIMEOUT)
            .name("ingestdeck");
        let unreadable = |what: &str, path: &Path, error: &dyn fmt::Display| {
            Problem::new(format!(
                "cannot read the {what} {}: {error}",
                path.display()
            ))
        };
        if let Some(path) = &self.credentials {
            let loaded = options.credentials_file(path).await;
            options = loaded.map_err(|error| unreadable("credentials file", path, &error))?;
        }
        if let Some(path) = &self.nkey {
            let seed = tokio::fs::read_to_string(path).await;
            options = options.nkey(
                seed.map_err(|error| unreadable("nkey file", path, &error))?
                    .trim()
                    .to_owned(),
            );
        }
        if let Some(path) = &self.root_certificates {
            if let Err(error) = tokio::fs::metadata(path).await {
                return Err(unreadable("certificates", path, &error));
            }
            options = options.add_root_certificates(path.clone());
        }
        let server = &self.address;
        // The client does not take the login from the address.
        let (user, password) = (
            server.0.username().map(text::percent_decoded),
            server.0.password().map(text::percent_decoded),
        );
        options = match (user, password) {
            (Some(user), Some(password)) => options.user_and_password(user, password),
            (Some(token), None) => options.token(token),
            (None, _) => options,
        };
        let client = options.connect(server.0.clone()).await.map_err(|error| {
            let help = match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    "check --nats-creds, --nats-nkey, or the user in the URL"
                }
                ConnectErrorKind::Tls => "check --nats-ca and the host name of the certificate",
                _ => "start it, or check the host and the port",
            };
            Problem::new(format!("cannot connect to {server}: {error}")).with_help(help)
        })?;
        let payload = client.max_payload();
        if payload < MIN_PAYLOAD {
            let text = format!("{server} accepts messages of {payload} bytes at most");
            return Err(Problem::new(text)
                .with_help(format!("raise max_payload of the server to {MIN_PAYLOAD}")));
        }
        // A server may let clients without a login in as one of its users.
        let has_login =
            self.credentials.is_some() || self.nkey.is_some() || server.0.username().is_some();
        if !(self.allows_open || client.server_info().auth_required && has_login) {
            let text = format!(
                "{server} requires no login: each of its clients can act as an engine or a worker"
            );
            let help = "set up a login, for example `nats-server --user NAME --pass PASSWORD`, and name it with \
                 --nats-creds, --nats-nkey or INGESTDECK_NATS_URL; --insecure uses the server as it is";
            return Err(Problem::new(text).with_help(help));
        }
        Ok(client)
    }

    /// True if an argument of this process, which other users of the machine can list, contains the login.
    pub fn exposes_login(&self) -> bool {
        let is_address =
            |argument: &str| argument.contains("nats://") || argument.contains("tls://");
        self.address.0.username().is_some()
            && std::env::args_os().any(|argument| {
                let argument = argument.to_string_lossy();
                is_address(&argument) && argument.contains('@')
            })
    }

    /// Announces the run of `host` and serves every worker that joins, while the run lasts.
    pub(crate) async fn keep_listening(self, host: Arc<WorkerHost>) {
        let mut is_first = true;
        let client = loop {
            match self.connect().await {
                Ok(client) => break client,
                Err(problem) => {
                    if std::mem::take(&mut is_first) {
                        host.pool.warn(
                            Severity::Warning,
                            ingestdeck_core::diagnostic::Diagnostic::to_line(&problem),
                        );
                    }
                    tokio::select! {
                        () = tokio::time::sleep(RECONNECT_PAUSE) => {}
                        () = host.pool.ended() => return,
                    }
                }
            }
        };
        let run = host.terms.run;
        let Ok(from_workers) = client.subscribe(format!("ingestdeck.{run}.up.*")).await else {
            host.pool.warn(
                Severity::Error,
                format!("{} does not let this run listen to workers", self.address),
            );
            return host.pool.remove_transport();
        };
        let (workers, refusals, served) = Default::default();
        let listener = EngineListener {
            client,
            server: self.address,
            host,
            workers,
            refusals,
            served,
        };
        listener.listen(from_workers).await;
    }
}

/// Listens to the workers of one run.
struct EngineListener {
    client: Client,
    server: NatsAddress,
    host: Arc<WorkerHost>,
    /// The workers, by their ids: where their messages go.
    workers: HashMap<String, ConnectedWorker>,
    /// Reasons that the user knows.
    refusals: HashSet<String>,
    served: JoinSet<(String, ConnectionEnd)>,
}

struct ConnectedWorker {
    messages: mpsc::Sender<WorkerMessage>,
    fragments: FragmentBuffer,
}

impl EngineListener {
    async fn listen(mut self, mut from_workers: Subscriber) {
        let announcement = Announcement {
            run: self.host.terms.run,
            protocol: PROTOCOL_VERSION,
            program: PROGRAM_VERSION.to_owned(),
        };
        let announcement = serde_json::to_vec(&announcement).unwrap_or_default();
        let mut announce = tokio::time::interval(ANNOUNCE_INTERVAL);
        announce.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (remind_at, mut is_reminded) = (tokio::time::Instant::now() + JOIN_PATIENCE, false);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(remind_at), if !is_reminded => {
                    is_reminded = true;
                    if self.workers.is_empty() {
                        let address = &self.server;
                        let text = format!("no worker has joined at {address}; `ingestdeck worker --nats {address}` starts one");
                        self.host.pool.warn(Severity::Warning, text);
                    }
                }
                _ = announce.tick() => {
                    // The next announcement follows soon.
                    let _ = self.client.publish(ANNOUNCEMENTS, announcement.clone().into()).await;
                }
                message = from_workers.next() => match message {
                    Some(message) => {
                        let id = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
                        self.receive(id, &message.payload).await;
                    }
                    // The client was closed for good.
                    None => return self.host.pool.remove_transport(),
                },
                () = self.host.pool.ended() => {
                    // The connection of each worker reports it.
                    while self.served.join_next().await.is_some() {}
                    return;
                }
                Some(ended) = self.served.join_next() => {
                    if let Ok((id, end)) = ended {
                        self.workers.remove(&id);
                        if let ConnectionEnd::Refused(reason) = end
                            && self.refusals.insert(reason.clone())
                        {
                            self.host.pool.warn(Severity::Warning, reason);
                        }
                    }
                }
            }
        }
    }

    async fn receive(&mut self, id: String, payload: &[u8]) {
        if !self.workers.contains_key(&id) {
            let mut fragments = FragmentBuffer::default();
            let subject = format!("ingestdeck.{}.down.{id}", self.host.terms.run);
            let join = match fragments.add(payload) {
                Some(join @ WorkerMessage::Join(_)) => join,
                // Its connection is over, as another client may have ended it: the worker joins again.
                Some(WorkerMessage::Heartbeat) => {
                    let end = serde_json::to_vec(&EngineMessage::End).unwrap_or_default();
                    for fragment in fragments_of(&end, 0, self.client.max_payload()) {
                        // The next heartbeat does it again.
                        let _ = self.client.publish(subject.clone(), fragment.into()).await;
                    }
                    return;
                }
                _ => return,
            };
            let (messages, incoming) = mpsc::channel(QUEUE_CAPACITY);
            let (outgoing, to_worker) = mpsc::channel(QUEUE_CAPACITY);
            let (client, host) = (self.client.clone(), Arc::clone(&self.host));
            let worker = id.clone();
            self.served.spawn(async move {
                let connection = WorkerConnection {
                    name: None,
                    incoming,
                    outgoing,
                    resend_after: Some(RESEND_AFTER),
                    reading: None,
                    returns: false,
                };
                let sending = tokio::spawn(publish_messages(client, subject, to_worker));
                let (end, _) = host.serve(connection).await;
                // The queue is closed, so this ends after the last message.
                let _ = sending.await;
                (worker, end)
            });
            // The queue is empty.
            let _ = messages.try_send(join);
            self.workers.insert(
                id,
                ConnectedWorker {
                    messages,
                    fragments,
                },
            );
            return;
        }
        if let Some(worker) = self.workers.get_mut(&id)
            && let Some(message) = worker.fragments.add(payload)
            && worker.messages.try_send(message).is_err()
        {
            // It is sent again, since it is not confirmed.
            tracing::debug!(id, "a message of a worker was dropped");
        }
    }
}

/// Joins the runs that are announced, one after the other, until `leave` asks to end.
///
/// # Errors
/// If the worker cannot work at all.
pub async fn serve_runs(
    setup: &WorkerSetup,
    client: &Client,
    mut leave: watch::Receiver<LeaveRequest>,
    tell: &dyn Fn(&str),
) -> Result<(), Problem> {
    let listening = client.subscribe(ANNOUNCEMENTS).await;
    let mut announcements = listening.map_err(|error| {
        Problem::new(format!(
            "the NATS server does not let this worker listen: {error}"
        ))
    })?;
    // Runs that this worker does not join again.
    let mut over: HashSet<RunId> = HashSet::new();
    let mut has_refused = false;
    loop {
        let announcement = tokio::select! {
            message = announcements.next() => match message {
                Some(message) => serde_json::from_slice::<Announcement>(&message.payload).ok(),
                None => return Err(Problem::new("the connection to the NATS server was closed")),
            },
            _ = leave.wait_for(|leave| *leave != LeaveRequest::Stay) => return Ok(()),
        };
        let Some(Announcement {
            run,
            protocol,
            program,
        }) = announcement
        else {
            continue;
        };
        if over.contains(&run) {
            continue;
        }
        if protocol != PROTOCOL_VERSION || program != PROGRAM_VERSION {
            if !std::mem::replace(&mut has_refused, true) {
                tell(&format!(
                    "a run of ingestdeck {program} is not served, because this is {PROGRAM_VERSION}"
                ));
            }
            continue;
        }
        tell(&format!("joining run {}", run.short()));
        let end = serve_run(setup, client, run, leave.clone()).await?;
        match &end {
            ServiceEnd::Done => tell(&format!("run {} is over", run.short())),
            ServiceEnd::Refused(reason) => tell(&format!(
                "run {} does not use this worker: {reason}",
                run.short()
            )),
            ServiceEnd::EngineLost(reason) => {
                tell(&format!("run {} was lost: {reason}", run.short()))
            }
            ServiceEnd::Failed(reason) => return Err(Problem::new(reason.clone())),
        }
        // A run that is over is not announced any longer; another client may have ended the connection.
        if matches!(end, ServiceEnd::Refused(_)) {
            over.insert(run);
        }
        // What was announced meanwhile may be over.
        while let Some(Some(_)) = announcements.next().now_or_never() {}
    }
}

async fn serve_run(
    setup: &WorkerSetup,
    client: &Client,
    run: RunId,
    leave: watch::Receiver<LeaveRequest>,
) -> Result<ServiceEnd, Problem> {
    // Each connection has a new id, so that the engine never takes it for an earlier one.
    let id = Uuid::new_v4().simple();
    let listening = client
        .subscribe(format!("ingestdeck.{run}.down.{id}"))
        .await;
    let mut from_engine = listening.map_err(|error| {
        Problem::new(format!(
            "the NATS server does not let this worker listen: {error}"
        ))
    })?;
    let (messages, incoming) = mpsc::channel(QUEUE_CAPACITY);
    let (outgoing, to_engine) = mpsc::unbounded_channel();
    let sending = tokio::spawn(publish_messages(
        client.clone(),
        format!("ingestdeck.{run}.up.{id}"),
        to_engine,
    ));
    let receiving = tokio::spawn(async move {
        let mut fragments = FragmentBuffer::default();
        while let Some(message) = from_engine.next().await {
            if let Some(message) = fragments.add::<EngineMessage>(&message.payload)
                && messages.send(message).await.is_err()
            {
                return;
            }
        }
    });
    let connection = EngineLink {
        incoming,
        outgoing,
        resend_after: Some(RESEND_AFTER),
    };
    let end = service::serve(setup.clone(), connection, leave).await;
    receiving.abort();
    // The queue is closed, so this ends after the last message.
    let _ = sending.await;
    Ok(end)
}

/// Publishes messages until there are no more.
async fn publish_messages<M: Serialize>(
    client: Client,
    subject: String,
    mut messages: impl super::stdio::MessageQueue<M>,
) {
    let mut next_id = 0_u64;
    while let Some(message) = messages.recv().await {
        let Ok(message) = serde_json::to_vec(&message) else {
            continue;
        };
        for fragment in fragments_of(&message, next_id, client.max_payload()) {
            // What is lost is sent again.
            if let Err(error) = client.publish(subject.clone(), fragment.into()).await {
                tracing::debug!(%error, "a message was not published");
            }
        }
        next_id += 1;
    }
    // A client buffers. Without a connection, the last message is lost, which the other side notices later.
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, client.flush()).await;
}

/// Splits a message into parts that fit into `limit` bytes.
fn fragments_of(message: &[u8], id: u64, limit: usize) -> impl Iterator<Item = Vec<u8>> {
    let room = limit.saturating_sub(FRAGMENT_HEAD).max(1);
    let count = u32::try_from(message.len().div_ceil(room)).unwrap_or(u32::MAX);
    (0_u32..)
        .zip(message.chunks(room))
        .map(move |(number, content)| {
            let mut fragment = Vec::with_capacity(FRAGMENT_HEAD + content.len());
            fragment.extend(id.to_be_bytes());
            fragment.extend(number.to_be_bytes());
            fragment.extend(count.to_be_bytes());
            fragment.extend(content);
            fragment
        })
}

/// Joins fragments of one sender. A message of which a fragment is lost is dropped.
#[derive(Debug, Default)]
struct FragmentBuffer {
    id: u64,
    next: u32,
    content: Vec<u8>,
}

impl FragmentBuffer {
    /// Adds a fragment. Returns the message that it completes.
    fn add<M: DeserializeOwned>(&mut self, fragment: &[u8]) -> Option<M> {
        let (id, rest) = fragment.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (count, content) = rest.split_first_chunk()?;
        let (id, number) = (u64::from_be_bytes(*id), u32::from_be_bytes(*number));
        if number == 0 {
            (self.id, self.next) = (id, 0);
            self.content.clear();
        }
        if id != self.id
            || number != self.next
            || self.content.len() + content.len() > MAX_MESSAGE_BYTES
        {
            return None;
        }
        self.next += 1;
        self.content.extend_from_slice(content);
        if self.next < u32::from_be_bytes(*count) {
            return None;
        }
        let message = serde_json::from_slice(&self.content);
        message
            .inspect_err(|error| tracing::warn!(%error, "a message from NATS is not understood"))
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_hide_passwords() {
        let address: NatsAddress = "nats://ann:secret@nats.example:4333".parse().unwrap();
        assert_eq!(
            format!("{address} {address:?}"),
            "nats://nats.example:4333 nats://nats.example:4333"
        );
        for text in [
            "nats.example",
            "http://nats.example",
            "nats://",
            "nats://host:port",
        ] {
            assert!(text.parse::<NatsAddress>().is_err(), "{text}");
        }
    }

    proptest! {
        /// Complete messages arrive unchanged; one with a lost fragment is dropped and spoils no other.
        #[test]
        fn fragments_of_a_message_are_joined(
            texts in prop::collection::vec("[a-z]{0,60}", 1..6), limit in 20..64_usize, lost in any::<prop::sample::Index>(),
        ) {
            let mut all: Vec<(usize, Vec<u8>)> = Vec::new();
            for (at, text) in texts.iter().enumerate() {
                let message = serde_json::to_vec(text).unwrap();
                all.extend(fragments_of(&message, at as u64, limit).map(|fragment| (at, fragment)));
            }
            prop_assert!(all.iter().all(|(_, fragment)| fragment.len() <= limit));
            let (missing, _) = all.remove(lost.index(all.len()));
            let mut buffer = FragmentBuffer::default();
            let joined: Vec<String> = all.iter().filter_map(|(_, fragment)| buffer.add(fragment)).collect();
            let expected: Vec<&String> = texts.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, text)| text).collect();
            prop_assert_eq!(joined.iter().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn garbage_is_no_message(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(FragmentBuffer::default().add::<WorkerMessage>(&bytes).is_none());
        }
    }
}
