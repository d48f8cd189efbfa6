//! The subjects, streams and buckets of a pool of workers on a NATS server with JetStream.
//!
//! Names and permissions are built from them, see the guide on workers. The module must not know what the messages mean.

use std::{fmt, str::FromStr, time::Duration};

use async_nats::jetstream::{self, consumer, kv, object_store, stream};
use base64::{Engine as _, prelude::BASE64_URL_SAFE};
use futures_util::StreamExt as _;
use tokio::time::timeout;
use uuid::Uuid;

use crate::worker::{
    prior_attempts::LeaseRecord, protocol::AttemptLease, shipped_attempts::MAX_SHIPPED_BYTES,
};
use ingestdeck_core::{diagnostic::Problem, tape::RunId};

/// How long orders and requests that no worker takes stay on the server.
const ORDER_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long entries, leases and files that no run collects stay on the server.
const RESULT_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Most bytes of entries that no run has collected. Workers wait when they are reached.
const MAX_ENTRY_STREAM_BYTES: i64 = 2 << 30;
/// Most bytes of orders and requests.
const MAX_ORDER_STREAM_BYTES: i64 = 512 << 20;
/// How long a message may be unconfirmed before it is delivered again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Messages that a receiver has not confirmed are not limited: those of one worker would stop those of the others.
const MAX_ACK_PENDING: i64 = -1;
/// Wait before the server is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long one request to the server may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest name of a pool or a worker.
const MAX_NAME_CHARS: usize = 40;

/// The name of a pool, or of a worker in it: letters, digits, `-` and `_`, 40 characters at most.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubjectName(String);

impl SubjectName {
    /// A name that no other process has.
    pub fn random() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SubjectName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SubjectName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let is_valid = (1..=MAX_NAME_CHARS).contains(&text.len())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if is_valid {
            return Ok(Self(text.to_owned()));
        }
        let text: String = text.chars().take(MAX_NAME_CHARS).collect();
        Err(
            Problem::new(format!("invalid name `{}`", text.escape_debug())).with_help(format!(
                "use letters, digits, - and _, {MAX_NAME_CHARS} characters at most"
            )),
        )
    }
}

/// One connection between a run and a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkId {
    pub worker: String,
    pub run: String,
    /// Different for each connection of the worker.
    pub link: String,
}

impl LinkId {
    /// The link of a subject that ends with its three parts.
    pub(super) fn of_subject(subject: &str) -> Option<Self> {
        let mut parts = subject.rsplit('.').map(str::to_owned);
        let (link, run, worker) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { worker, run, link })
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, run, link } = self;
        write!(f, "{worker}.{run}.{link}")
    }
}

/// The names of a pool on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolNames(pub SubjectName);

impl PoolNames {
    /// Where runs announce themselves.
    pub(super) fn runs(&self) -> String {
        format!("ingestdeck.{}.runs", self.0)
    }

    /// Starts of attempts, for one connection.
    pub(super) fn order(&self, link: &LinkId) -> String {
        format!("ingestdeck.{}.order.{link}", self.0)
    }

    /// Everything else from an engine to a worker.
    pub(super) fn down(&self, link: &LinkId) -> String {
        format!("ingestdeck.{}.down.{link}", self.0)
    }

    /// Everything from a worker to an engine, but for heartbeats.
    pub(super) fn up(&self, link: &LinkId) -> String {
        format!("ingestdeck.{}.up.{link}", self.0)
    }

    /// Heartbeats of a worker.
    pub(super) fn hello(&self, link: &LinkId) -> String {
        format!("ingestdeck.{}.hello.{link}", self.0)
    }

    /// The heartbeats of a worker.
    pub(super) fn hellos_of(&self, worker: &str) -> String {
        format!("ingestdeck.{}.hello.{worker}.>", self.0)
    }

    /// The heartbeats of all workers.
    pub(super) fn hellos(&self) -> String {
        format!("ingestdeck.{}.hello.>", self.0)
    }

    /// What all workers of a run store.
    pub(super) fn ups(&self, run: &RunId) -> String {
        format!("ingestdeck.{}.up.*.{run}.*", self.0)
    }

    pub(super) fn order_stream(&self) -> String {
        format!("ingestdeck_{}_orders", self.0)
    }

    pub(super) fn entry_stream(&self) -> String {
        format!("ingestdeck_{}_entries", self.0)
    }

    pub(super) fn lease_bucket(&self) -> String {
        format!("ingestdeck_{}_leases", self.0)
    }

    pub(super) fn file_bucket(&self) -> String {
        format!("ingestdeck_{}_files", self.0)
    }

    /// The consumer of the orders for a worker.
    pub(super) fn order_consumer(worker: &str) -> String {
        format!("order_{worker}")
    }

    /// The consumer of the other messages for a worker.
    pub(super) fn down_consumer(worker: &str) -> String {
        format!("down_{worker}")
    }

    /// The consumer of what the workers of a run store.
    pub(super) fn run_consumer(run: &RunId) -> String {
        format!("run_{run}")
    }
}

/// The streams and buckets of a pool, which an engine creates.
#[derive(Clone)]
pub(super) struct PoolStreams {
    pub jetstream: jetstream::Context,
    pub names: PoolNames,
    pub orders: stream::Stream,
    pub entries: stream::Stream,
    pub leases: kv::Store,
    pub files: object_store::ObjectStore,
}

impl PoolStreams {
    /// Creates what does not exist.
    ///
    /// # Errors
    /// If the server has no JetStream, or does not let this client create it.
    pub(super) async fn open(
        jetstream: jetstream::Context,
        names: PoolNames,
    ) -> Result<Self, Problem> {
        let failed = |what: &str, error: &dyn fmt::Display| {
            Problem::new(format!("cannot use {what} of the NATS server: {error}"))
                .with_help("start the server with JetStream, as in `nats-server -js`, and use the key of an engine")
        };
        let work_queue = |name: String, subjects: Vec<String>, max_age, max_bytes| stream::Config {
            name,
            subjects,
            retention: stream::RetentionPolicy::WorkQueue,
            discard: stream::DiscardPolicy::New,
            max_age,
            max_bytes,
            // Messages have no ids: no client can suppress those of another.
            duplicate_window: Duration::from_millis(100),
            ..stream::Config::default()
        };
        let pool = &names.0;
        let orders = work_queue(
            names.order_stream(),
            ["order", "down"]
                .map(|kind| format!("ingestdeck.{pool}.{kind}.>"))
                .into(),
            ORDER_AGE,
            MAX_ORDER_STREAM_BYTES,
        );
        let orders = jetstream.get_or_create_stream(orders).await;
        let orders = orders.map_err(|error| failed("the stream of orders", &error))?;
        let entries = work_queue(
            names.entry_stream(),
            vec![format!("ingestdeck.{pool}.up.>")],
            RESULT_AGE,
            MAX_ENTRY_STREAM_BYTES,
        );
        let entries = jetstream.get_or_create_stream(entries).await;
        let entries = entries.map_err(|error| failed("the stream of entries", &error))?;
        let leases = kv::Config {
            bucket: names.lease_bucket(),
            history: 1,
            max_age: RESULT_AGE,
            ..kv::Config::default()
        };
        let leases = match jetstream.get_key_value(names.lease_bucket()).await {
            Ok(leases) => leases,
            Err(_) => jetstream
                .create_key_value(leases)
                .await
                .map_err(|error| failed("the bucket of leases", &error))?,
        };
        let files = object_store::Config {
            bucket: names.file_bucket(),
            max_age: RESULT_AGE,
            ..object_store::Config::default()
        };
        let files = match jetstream.get_object_store(names.file_bucket()).await {
            Ok(files) => files,
            Err(_) => jetstream
                .create_object_store(files)
                .await
                .map_err(|error| failed("the bucket of files", &error))?,
        };
        Ok(Self {
            jetstream,
            names,
            orders,
            entries,
            leases,
            files,
        })
    }

    /// Creates the consumers of a worker, from which it pulls orders and requests.
    pub(super) async fn add_worker(&self, worker: &str) -> Result<(), stream::ConsumerError> {
        let pool = &self.names.0;
        let kinds = [
            ("order", PoolNames::order_consumer(worker)),
            ("down", PoolNames::down_consumer(worker)),
        ];
        for (kind, name) in kinds {
            let filter = format!("ingestdeck.{pool}.{kind}.{worker}.>");
            self.orders
                .create_consumer(pull_config(name, filter))
                .await?;
        }
        Ok(())
    }

    /// A new consumer of everything that the workers of a run have stored and no engine has confirmed.
    pub(super) async fn run_consumer(
        &self,
        run: &RunId,
    ) -> Result<consumer::PullConsumer, stream::ConsumerError> {
        let name = PoolNames::run_consumer(run);
        // The one of an earlier connection delivers what it has delivered only after a while.
        let _ = self.entries.delete_consumer(&name).await;
        self.entries
            .create_consumer(pull_config(name, self.names.ups(run)))
            .await
    }

    /// The leases that a run granted and that are not over.
    ///
    /// # Errors
    /// If the bucket cannot be read.
    pub(super) async fn lease_records(&self, run: &str) -> Result<Vec<LeaseRecord>, Problem> {
        let failed =
            |error: &dyn fmt::Display| Problem::new(format!("cannot read its leases: {error}"));
        let mut keys = self.leases.keys().await.map_err(|error| failed(&error))?;
        let mut records = Vec::new();
        while let Some(key) = keys.next().await {
            let key = key.map_err(|error| failed(&error))?;
            if !key
                .strip_prefix(run)
                .is_some_and(|rest| rest.starts_with('.'))
            {
                continue;
            }
            let value = self.leases.get(key).await;
            let record = value
                .map_err(|error| failed(&error))?
                .and_then(|value| serde_json::from_slice(&value).ok());
            records.extend(record);
        }
        Ok(records)
    }

    /// Records that `run` granted a lease, however long the server is away: what is not recorded is lost with its engine.
    pub(super) async fn keep_lease(&self, run: &str, record: &LeaseRecord) {
        let key = lease_key(run, &record.link, &record.lease);
        let Ok(value) = serde_json::to_vec(record) else {
            return;
        };
        loop {
            let keeping = self.leases.put(key.clone(), value.clone().into());
            if matches!(timeout(REQUEST_TIMEOUT, keeping).await, Ok(Ok(_))) {
                return;
            }
            tracing::debug!(?record, "a lease is not recorded yet");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Ends a record of a lease that `run` wrote.
    pub(super) async fn drop_record(&self, run: &str, record: &LeaseRecord) {
        let link = LinkId {
            worker: record.worker.clone(),
            run: record.run.to_string(),
            link: record.link.clone(),
        };
        self.drop_lease(run, &link, &record.lease).await;
    }

    /// Ends the record of a lease.
    pub(super) async fn drop_lease(&self, run: &str, link: &LinkId, lease: &AttemptLease) {
        let key = lease_key(run, &link.link, lease);
        let dropping = timeout(REQUEST_TIMEOUT, self.leases.purge(key));
        if !matches!(dropping.await, Ok(Ok(()))) {
            tracing::debug!(?lease, "the record of a lease stays until it expires");
        }
    }

    /// Stores a file by its digest, if it is not there or will expire while it is needed.
    ///
    /// # Errors
    /// A text if the server does not store it.
    pub(super) async fn store_file(&self, digest: &str, content: &[u8]) -> Result<(), String> {
        let known = timeout(REQUEST_TIMEOUT, self.files.info(digest)).await;
        let is_young = |info: &object_store::ObjectInfo| {
            let now = jiff::Timestamp::now().as_second();
            let age = info
                .modified
                .map(|at| now.saturating_sub(at.unix_timestamp()));
            age.and_then(|age| u64::try_from(age).ok())
                .is_some_and(|age| age < RESULT_AGE.as_secs() / 2)
        };
        if matches!(&known, Ok(Ok(info)) if info.size == content.len() && is_young(info)) {
            return Ok(());
        }
        let mut content = content;
        let stored = self.files.put(digest, &mut content).await;
        stored.map(drop).map_err(|error| error.to_string())
    }
}

/// Reads a file of the bucket without a consumer, which the key of a worker cannot create.
///
/// # Errors
/// A text if it is not there, or the server does not answer.
pub(super) async fn read_file(
    jetstream: &jetstream::Context,
    names: &PoolNames,
    digest: &str,
) -> Result<Vec<u8>, String> {
    let bucket = names.file_bucket();
    let stream = jetstream
        .get_stream_no_info(format!("OBJ_{bucket}"))
        .await
        .map_err(|error| error.to_string())?;
    let text = |error: &dyn fmt::Display| format!("cannot read {digest}: {error}");
    let name = BASE64_URL_SAFE.encode(digest);
    let info = stream
        .direct_get_last_for_subject(format!("$O.{bucket}.M.{name}"))
        .await
        .map_err(|error| text(&error))?;
    let info: object_store::ObjectInfo =
        serde_json::from_slice(&info.payload).map_err(|error| text(&error))?;
    if info.size > MAX_SHIPPED_BYTES {
        return Err(text(&"it is too large"));
    }
    let chunks = format!("$O.{bucket}.C.{}", info.nuid);
    let mut content = Vec::with_capacity(info.size);
    let mut next = 1;
    for _ in 0..info.chunks {
        let chunk = stream
            .direct_get_next_for_subject(chunks.clone(), Some(next))
            .await
            .map_err(|error| text(&error))?;
        next = chunk.sequence + 1;
        content.extend_from_slice(&chunk.payload);
        if content.len() > MAX_SHIPPED_BYTES {
            return Err(text(&"it is too large"));
        }
    }
    Ok(content)
}

fn lease_key(run: &str, link: &str, lease: &AttemptLease) -> String {
    format!("{run}.{link}-{}", lease.fence)
}

fn pull_config(name: String, filter_subject: String) -> consumer::pull::Config {
    consumer::pull::Config {
        durable_name: Some(name),
        filter_subject,
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_ack_pending: MAX_ACK_PENDING,
        inactive_threshold: ORDER_AGE,
        ..consumer::pull::Config::default()
    }
}
