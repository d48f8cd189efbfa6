//! The messages between an engine and its workers, as JSON.
//!
//! Transports deliver the messages of a connection once and in order, but for heartbeats. A worker with another version of
//! the program is refused, so the messages have no other versions. Credentials are in none of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::shipment::digest;
use crate::local_attempt::AttemptTask;
use ingestdeck_agent::attempt::{
    ApprovalDecision, ApprovalRequest,
    time_limits::{AttemptTimeouts, TimeLimitSettings},
};
use ingestdeck_core::{
    run::RunOptions,
    tape::{
        RunId, UnitKey,
        note::{AttemptEnded, StopMode},
    },
    units::failure_tally::FailureRule,
};
use ingestdeck_ingest::{attempt::WrittenPatch, git::CommitId, job::IngestJob};

/// Version of the messages.
pub const PROTOCOL_VERSION: u32 = 5;
/// The interval of the signs of life of each side.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Silence of an engine after which a worker without attempts leaves its run.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(30);
/// Most bytes of one message as JSON: the longest line of an agent, written as text, and more.
pub(crate) const MAX_MESSAGE_BYTES: usize = 160 << 20;
/// Most bytes of a file in one message.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// An attempt, and the right to work on it: a lease that is granted again has a larger fence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct AttemptLease {
    pub unit: UnitKey,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Different for each lease of a run.
    pub fence: u64,
}

/// A message of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EngineMessage {
    Welcome(Box<RunTerms>),
    /// The engine does not use the worker, which ends.
    Refused {
        reason: String,
    },
    Attempt {
        lease: AttemptLease,
        part: EnginePart,
    },
    /// The lease is not valid, so the attempt has no use.
    Revoked {
        lease: AttemptLease,
    },
    /// The engine has everything of the attempt.
    Over {
        lease: AttemptLease,
    },
    Heartbeat,
    /// The run has ended.
    End,
}

/// A message of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerMessage {
    Join(Box<WorkerJoin>),
    /// The answer to [`EngineMessage::Welcome`]: the worker waits for attempts.
    Ready {
        /// Ids of the connections whose databases it can read.
        connections: Vec<String>,
    },
    Attempt {
        lease: AttemptLease,
        part: WorkerPart,
    },
    Heartbeat(WorkerLoad),
    /// The worker accepts nothing more. Its running attempts finish first.
    Leave {
        reason: String,
    },
    /// The worker has ended; nothing runs there.
    Gone,
}

/// How busy a worker is, from the side of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerLoad {
    /// Slots that the attempts of other runs hold.
    pub others: u32,
    /// Runs that it serves.
    pub runs: u32,
}

/// A message that has arrived.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Delivery<M> {
    pub message: M,
    /// Dropped once the message is handled.
    #[serde(skip)]
    pub handled: Option<oneshot::Sender<()>>,
    /// The slot for the attempt that the message starts, if the transport took one.
    #[serde(skip)]
    pub slot: Option<OwnedSemaphorePermit>,
}

impl<M> From<M> for Delivery<M> {
    fn from(message: M) -> Self {
        Self {
            message,
            handled: None,
            slot: None,
        }
    }
}

/// The description that a worker gives of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerJoin {
    /// [`PROTOCOL_VERSION`] of the worker.
    pub protocol: u32,
    /// Version of the program.
    pub program: String,
    /// Release of the agent's program.
    pub agent_release: String,
    /// What its machine calls itself.
    pub host: String,
    /// Number of attempts that it runs concurrently.
    pub slots: u32,
    /// Whose usage limits apply: the login of the agent's program.
    pub account: String,
    /// The clock of the machine, in milliseconds since 1970.
    pub clock_ms: i64,
}

/// What the attempts of a run have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunTerms {
    pub run: RunId,
    /// The name that the run gives to the worker.
    pub worker: String,
    pub job: IngestJob,
    pub connections: Vec<ShippedConnection>,
    /// The options of the run, without the variables and paths of the engine's machine.
    pub options: RunOptions,
    pub limits: ShippedLimits,
}

impl RunTerms {
    /// The terms of a run, without the name of a worker. The limits are set when a worker joins.
    pub(crate) fn new(
        (run, job): (RunId, IngestJob),
        connections: Vec<ShippedConnection>,
        mut options: RunOptions,
    ) -> Self {
        let limits = ShippedLimits {
            step_budget: 0,
            rule: FailureRule::default(),
            timeouts: TimeLimitSettings::from_config(&options.ingest).effective(true, false),
        };
        options.pass_env.clear();
        options.ingest.allow_paths.value.clear();
        options.ingest.allow_git.value.clear();
        Self {
            run,
            worker: String::new(),
            job,
            connections,
            options,
            limits,
        }
    }
}

/// Limits of attempts, which may change while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShippedLimits {
    pub step_budget: u32,
    pub rule: FailureRule,
    pub timeouts: AttemptTimeouts,
}

/// A connection, without its credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShippedConnection {
    pub id: String,
    pub driver: Option<String>,
    /// The absolute path of its database, if that is a file that statements can read.
    pub database: Option<PathBuf>,
}

/// A file of the run, by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShippedFile {
    /// Relative to the directory of the run on the worker.
    pub path: String,
    /// SHA-256 in hexadecimal digits.
    pub digest: String,
    pub bytes: u64,
}

/// The state that an attempt starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShippedBase {
    /// A commit without parents that contains `wiki/` and `semantic-layer/` only.
    pub commit: CommitId,
    /// The digest of the pack with its objects.
    pub pack: String,
}

/// What an attempt needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttemptShipment {
    pub task: AttemptTask,
    pub base: ShippedBase,
    /// Raw files and instructions.
    pub files: Vec<ShippedFile>,
    /// The directory on the worker for each directory of raw files on the engine's machine.
    pub source_dirs: BTreeMap<PathBuf, String>,
}

impl AttemptShipment {
    /// The digests of everything that the attempt reads.
    pub(super) fn digests(&self) -> impl Iterator<Item = &String> {
        let files = self.files.iter().map(|file| &file.digest);
        files.chain([&self.base.pack])
    }

    /// The same for two attempts whose results can replace each other.
    pub(super) fn content_digest(&self) -> String {
        let Self {
            task, base, files, ..
        } = self;
        let planned = &task.work_unit.planned;
        // Directories differ between runs.
        let files: BTreeSet<&String> = files.iter().map(|file| &file.digest).collect();
        let content = (
            (&base.commit, files, &task.model),
            (&planned.raw_files, &planned.dependency_paths, &planned.text),
        );
        let content = serde_json::to_vec(&content).unwrap_or_default();
        digest(&content)
    }
}

/// What the engine sends about an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EnginePart {
    /// The first part: run the attempt.
    Start(Box<AttemptShipment>),
    /// The engine of another run continues with the attempt: what waits for a decision is sent again.
    Adopted,
    /// The decision about call number `call`.
    Decision {
        call: u64,
        decision: ApprovalDecision,
    },
    Stop(StopMode),
    Message {
        text: String,
    },
    Limits(ShippedLimits),
    /// Whether calls pass while the engine is away. At first they do not.
    Unattended {
        passes_calls: bool,
    },
}

/// What the worker sends about an attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerPart {
    /// The attempt has a slot and begins.
    Taken,
    /// Entries for the tape, as in its format; their numbers and times have no meaning.
    Entries {
        /// Number of lines of the attempt before these entries. Notes are not lines.
        lines_before: u64,
        entries: Vec<Box<RawValue>>,
    },
    /// The agent has started up.
    Ready,
    /// A call waits for a decision.
    Call { call: u64, request: ApprovalRequest },
    /// The agent no longer waits for the decision.
    CallCancelled { call: u64 },
    /// A piece of a file of the result, in order.
    ResultPiece {
        file: ResultFile,
        /// Its bytes in Base64.
        data: String,
    },
    /// It is always the last part.
    Ended(Box<AttemptResult>),
    /// The worker has no such attempt, or no longer.
    Unknown,
}

impl WorkerPart {
    /// The size of what comes from the agent.
    pub(super) fn content_bytes(&self) -> usize {
        match self {
            Self::Entries { entries, .. } => entries.iter().map(|entry| entry.get().len()).sum(),
            Self::ResultPiece { data, .. } => data.len(),
            _ => 0,
        }
    }
}

/// A file of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultFile {
    Patch,
    Transcript,
}

/// How an attempt ended. Its files precede it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttemptResult {
    pub ended: AttemptEnded,
    /// The base, the path and the changed paths of the patch.
    pub patch: Option<WrittenPatch>,
    pub warning: Option<String>,
}
