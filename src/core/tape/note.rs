//! Notes: the facts and decisions of this program on a tape. Plain data; policy lives in `units`.
//!
//! A kind that this program does not know is kept as [`Note::Unknown`], so that a newer tape of the same major version
//! can be replayed.

pub mod attempt_output;
mod continued_work;
mod prior_run;
mod resumed_session;
mod review;
mod run_end_outcome;
mod source;
mod verdict_cause;
pub mod verification;
mod worker;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    attempt_output::AttemptOutput,
    continued_work::ContinuedWork,
    prior_run::{ContentDigests, ContinuedRun, PriorUnitSummary, ReusedSuccess},
    review::{ReviewDecided, ReviewDecision, ReviewRequested, ReviewedFile},
    run_end_outcome::RunEndOutcome,
    source::{
        DiffCounts, FetchedRepository, FileRead, FilesEvicted, KeptDocument, ProjectionCause,
        SourceRead, SourcesProjected, UnitSelection,
    },
    verdict_cause::VerdictCause,
    worker::{PoolRun, PoolUse, WorkerDrained, WorkerJoined, WorkerLeft},
};
use super::{Millis, UnitKey};

pub(crate) mod integration;

pub use integration::{
    BlockedFile, IntegrationAdvanced, IntegrationStarted, PatchIntegrated, PatchResult,
    PatchWritten, RunSaved, SaveFailed, SharedWrite, SlRefRepair, SlRefsRepaired,
};

/// A decision or fact of this program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Note {
    /// The plan of the run. First note of every run.
    RunPlanned(Box<RunPlanned>),
    /// The files that the run read for one connection.
    SourceRead(Box<SourceRead>),
    /// Decisions about the artifacts of deleted files were made.
    #[serde(rename = "evicted")]
    FilesEvicted(Box<FilesEvicted>),
    /// Sources that follow from files without an agent were written before any unit ran, or could not be written.
    #[serde(rename = "projected")]
    SourcesProjected(Box<SourcesProjected>),
    /// The attempt that starts continues the session and the changes of earlier ones.
    #[serde(rename = "continued")]
    WorkContinued(ContinuedWork),
    /// An agent process was started.
    AttemptStarted(Box<AttemptStarted>),
    /// The agent reported its tools and settings, and they were compared with the permitted ones.
    IsolationChecked(IsolationChecked),
    /// An attempt ended, with its verdict.
    AttemptEnded(Box<AttemptEnded>),
    /// A new attempt will start automatically.
    RetryScheduled {
        /// Number of the attempt that will start.
        next: u32,
        /// Delay before it, in milliseconds.
        delay_ms: u64,
        /// Why the previous attempt failed.
        cause: VerdictCause,
    },
    /// A client sent a command. Its effect is in the notes that follow.
    #[serde(rename = "command")]
    CommandReceived(Box<CommandReceived>),
    /// A person requested a new attempt.
    RetryRequested {
        /// Number of the attempt that will start.
        next: u32,
        /// Differences from the plan.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        amendment: Option<Amendment>,
    },
    /// A person requested to stop this unit or, without a unit on the entry, the run.
    StopRequested { how: StopMode },
    /// A person requested to hold this unit at its next tool call.
    HoldRequested,
    /// A person released this unit from being held.
    HoldReleased,
    /// A person let this unit run until its next tool call that meets a condition; that call waits.
    RunUntil {
        /// The condition as a person types it: `tool wiki_*`. Several conditions are separated by `, `.
        condition: String,
    },
    /// A message of a person was sent to the agent.
    MessageSent { text: String },
    /// A tool call of a held unit waits for a person.
    CallHeld {
        /// Tool without its server prefix.
        tool: String,
        /// Id of the call, if known.
        tool_use_id: Option<String>,
        /// Arguments as the model wrote them.
        input: Value,
        /// The condition that it met, if the unit was running until one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reached: Option<String>,
        /// A rule or a request for permission holds it, whatever the unit runs until.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        needs_decision: bool,
    },
    /// A tool call no longer waits.
    CallDecided {
        /// Id of the call, if known.
        tool_use_id: Option<String>,
        decision: CallDecision,
        /// The arguments that it is made with, if they were edited, or the answer to its questions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        /// The reason for the model, if the call was denied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The rule of the policy that decided instead of a person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// The run waits for a usage or rate limit.
    LimitPaused {
        /// When the limit resets, if the service reported it.
        until: Option<Millis>,
        /// Name of the limit, as the service reports it.
        limit: String,
        /// Duration of the wait after the note, in milliseconds. Absent on tapes of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// The wait for a limit is over.
    LimitLifted,
    /// Concurrency was reduced because a limit is near, or restored.
    Throttled {
        /// Concurrency from now on; `None` if it is restored.
        slots: Option<u32>,
        /// Name of the limit, as the service reports it.
        limit: String,
    },
    /// A person changed the concurrency of the run.
    ConcurrencyChanged {
        /// Concurrency from now on.
        slots: u32,
        /// Concurrency before. Absent on tapes of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        old: Option<u32>,
    },
    /// A person changed another limit of the run.
    LimitChanged(LimitChanged),
    /// A person paused the run: nothing starts, and tool calls wait.
    #[serde(rename = "paused")]
    RunPaused,
    /// The run waits for a decision about units that have used their turns.
    DecisionAwaited { units: Vec<UnitKey> },
    /// A person accepts the result of a unit that has used its turns.
    ResultAccepted,
    /// A person ended the pause.
    #[serde(rename = "resumed")]
    RunResumed,
    /// The result of a successful attempt was published to the project. Only earlier versions wrote this note, in
    /// projects without git.
    Published {
        /// Changed paths, relative to the project and sorted.
        paths: Vec<String>,
    },
    /// The result of a successful attempt is in a patch.
    PatchWritten(PatchWritten),
    /// Patches of the first units were integrated while others run.
    IntegrationAdvanced(IntegrationAdvanced),
    /// Integration of the patches of the run began.
    #[serde(rename = "integrating")]
    IntegrationStarted(IntegrationStarted),
    /// The patch of an attempt was integrated or rejected.
    PatchIntegrated(Box<PatchIntegrated>),
    /// The integrated changes wait for a review.
    ReviewRequested(Arc<ReviewRequested>),
    /// A person decided about a change.
    ReviewDecided(Box<ReviewDecided>),
    /// A person ended the review.
    ReviewFinished {
        /// Units that make their changes again; if there are none, the accepted changes are saved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sent_back: Vec<UnitKey>,
    },
    /// Later commits of the run go to this branch.
    BranchSelected {
        /// Its name; `None` for the current branch.
        branch: Option<String>,
    },
    /// Nothing of the run is saved before a review.
    ReviewPlanned,
    /// The review is also about the commits of this run, which it may take back.
    CommittedReviewPlanned { run: super::RunId },
    /// All integrated patches are on the project's branch.
    #[serde(rename = "saved")]
    RunSaved(RunSaved),
    /// A worker joined the run.
    WorkerJoined(WorkerJoined),
    /// A worker left the run or was lost.
    WorkerLeft(WorkerLeft),
    /// Nothing more starts on a worker.
    WorkerDrained(WorkerDrained),
    /// What other runs of the pool do changed.
    PoolUse(PoolUse),
    /// The run waits for workers: no unit can run anywhere.
    WorkersAwaited {
        /// When the run ends without workers, in milliseconds after the note.
        wait_ms: u64,
    },
    /// The wait for workers is over.
    WorkerWaitEnded,
    /// References of pages to deleted sources were removed.
    SlRefsRepaired(SlRefsRepaired),
    /// The integrated patches could not be put on the branch.
    SaveFailed(SaveFailed),
    /// A tool call failed on this side. Counted once per `tool_use_id`.
    ToolFailed {
        /// Tool without its server prefix.
        tool: String,
        /// Id of the call, if known.
        tool_use_id: Option<String>,
        message: String,
    },
    /// A tool answered a call with a refusal in plain text, which does not count as a failure.
    ToolDeclined {
        /// Tool without its server prefix.
        tool: String,
        /// Id of the call, if known.
        tool_use_id: Option<String>,
        /// The beginning of the answer.
        message: String,
    },
    /// The next lines of a session file are shown in the transcript and not counted: they repeat earlier ones, or a person
    /// took them back.
    LinesSetAside { lines: u32 },
    /// A message for the log.
    #[serde(rename = "said")]
    Message {
        level: Severity,
        /// One sentence for people.
        text: String,
    },
    /// Last note of a run that ended regularly.
    RunEnded(RunEnded),
    /// A kind of a later version.
    #[serde(skip)]
    Unknown {
        /// Its kind, or `?`.
        kind: String,
    },
}

impl Note {
    /// Parses the body of a note entry. Never fails: an unknown kind becomes [`Note::Unknown`].
    pub fn parse(json: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct KindProbe {
            kind: Option<String>,
        }
        serde_json::from_slice(json).unwrap_or_else(|_| Self::Unknown {
            kind: serde_json::from_slice::<KindProbe>(json)
                .ok()
                .and_then(|probe| probe.kind)
                .unwrap_or_else(|| "?".into()),
        })
    }

    /// The JSON of the note, on one line.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| br#"{"kind":"unknown"}"#.to_vec())
    }
}

/// A change of a limit of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitChanged {
    /// Name of the limit in the control protocol.
    pub limit: String,
    /// Value before; `null` for no limit.
    pub old: Value,
    /// Value from now on; `null` for no limit.
    pub new: Value,
}

/// A command of a client, without its content, and who sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandReceived {
    /// Name of the command in the control protocol.
    pub command: String,
    /// The units that it names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitKey>,
    /// Name that the client chose for itself, such as `screen` or `ctl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Login name of the user, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CommandReceived {
    /// Who sent it, such as `root (ctl)`.
    pub fn sender(&self) -> Option<String> {
        match (self.user.as_deref(), self.client.as_deref()) {
            (Some(user), Some(client)) => Some(format!("{user} ({client})")),
            (user, client) => user.or(client).map(str::to_owned),
        }
    }
}

/// The plan of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunPlanned {
    /// Job id, which KTX uses as the name of transcript folders.
    pub job: String,
    /// The units in plan order.
    pub units: Vec<PlannedUnit>,
    /// Connections that were left out, each with its reason.
    pub skipped: Vec<SkippedConnection>,
    /// Number of units that may run at the same time.
    pub concurrency: u32,
    /// Step budget of an attempt.
    pub step_budget: u32,
    /// Either `continue` or `abort`.
    pub failure_mode: String,
    /// Either `strict` or `recoverable`.
    pub tool_failures: String,
    /// Requested model, if any.
    pub model: Option<String>,
    /// True if a scripted agent plays the model.
    pub scripted: bool,
    /// Cost limit of all attempts together, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_budget_usd: Option<f64>,
    /// The project's own prompts, skills and pins, one phrase each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
    /// The run that this one continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<ContinuedRun>,
    /// Milliseconds without output after which an attempt is silent. `None` on tapes of older versions: 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_after_ms: Option<u64>,
    /// The selection of the units. A run that continues this one uses the same. `None` on tapes of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<UnitSelection>,
    #[serde(flatten)]
    pub starter: RunStarter,
}

/// Who or what started a run. Plain keys of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunStarter {
    /// `TRACEPARENT` of the process that started the run: the span that the run belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Login name of the user. `None` if it is unknown, and on tapes of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Address of the job of a CI system. `None` outside of one, and on tapes of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_url: Option<String>,
}

impl RunPlanned {
    /// True if it has units of a project: of a source, or texts that the user gave to the run.
    pub fn has_project_units(&self) -> bool {
        self.units
            .iter()
            .any(|unit| !unit.connection.is_empty() || unit.text.is_some())
    }
}

/// One unit of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedUnit {
    /// Key, unique in the run.
    pub unit: UnitKey,
    /// KTX's key, unique in the connection; `None` if it equals `unit`.
    #[serde(rename = "unitKey", skip_serializing_if = "Option::is_none")]
    pub ktx_key: Option<UnitKey>,
    /// Connection of its raw files.
    pub connection: String,
    /// Adapter that created the unit.
    pub adapter: String,
    /// Name for people, if it differs from the key.
    pub label: Option<String>,
    /// Raw files, relative to the source.
    #[serde(rename = "rawFiles")]
    pub raw_files: Vec<String>,
    /// Files that it may read in addition to its raw files.
    #[serde(rename = "dependencyPaths")]
    pub dependency_paths: Vec<String>,
    /// Why the unit runs.
    pub why: String,
    /// Size of its raw files, in bytes. `None` on tapes of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why it may not write sources of the semantic layer, in KTX's word; `None` if it may.
    #[serde(rename = "slDisallowedReason", skip_serializing_if = "Option::is_none")]
    pub sl_disallowed: Option<String>,
    /// Number of other files that it knows by name. `None` on tapes of older versions.
    #[serde(rename = "peerFileCount", skip_serializing_if = "Option::is_none")]
    pub peer_files: Option<u64>,
    /// The text that the unit captures; `None` for a unit of a source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl PlannedUnit {
    /// KTX's key of the unit, unique in its connection.
    pub fn ktx_key(&self) -> &UnitKey {
        self.ktx_key.as_ref().unwrap_or(&self.unit)
    }
}

impl Default for PlannedUnit {
    fn default() -> Self {
        Self {
            unit: UnitKey::from("?"),
            ktx_key: None,
            connection: String::new(),
            adapter: String::new(),
            label: None,
            raw_files: Vec::new(),
            dependency_paths: Vec::new(),
            why: String::new(),
            bytes: None,
            sl_disallowed: None,
            peer_files: None,
            text: None,
        }
    }
}

/// A connection without units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedConnection {
    pub connection: String,
    /// The reason in one sentence.
    pub why: String,
    /// True for a fault that a person should fix.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fault: bool,
}

/// Reads a text; a reference to an earlier entry is read as its JSON.
fn deserialize_shared_text<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SharedText {
        Text(String),
        Reference(serde_json::Value),
    }
    Ok(match SharedText::deserialize(deserializer)? {
        SharedText::Text(text) => text,
        SharedText::Reference(reference) => reference.to_string(),
    })
}

/// How an agent process was started: everything that is needed to judge its isolation, and to start it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptStarted {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Working directory of the process.
    pub cwd: String,
    /// Names (never values) of variables that were set or changed for the process.
    pub env_set: Vec<String>,
    /// Names of variables that were withheld.
    pub env_stripped: Vec<String>,
    /// Names that a setting passed although the deny list would withhold them.
    pub env_passed: Vec<String>,
    /// Names of the other variables, which were inherited unchanged. Empty on tapes of older versions.
    pub env_inherited: Vec<String>,
    /// Requested model, if any.
    pub model: Option<String>,
    /// Maximum number of turns.
    pub step_budget: u32,
    /// System prompt that was sent, or a reference to the entry that contains it, see [`super::shared_value`].
    #[serde(deserialize_with = "deserialize_shared_text")]
    pub system_prompt: String,
    /// Prompt that was sent.
    pub prompt: String,
    /// Tools that the agent may call.
    pub tools: Vec<String>,
    /// Process id; `None` if no process was spawned.
    pub pid: Option<u32>,
    /// True if a scripted agent plays the model.
    pub scripted: bool,
    /// Differences from the plan: requests of a person, or the session that an automatic retry continues. Model, budget
    /// and prompt above include them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amendment: Option<Amendment>,
    /// A resumed session may answer with another id. Absent on tapes of older versions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tolerates_mismatch: bool,
    /// Digests of the unit's content. `None` on tapes of older versions, and if the content could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentDigests>,
    /// The worker that runs the attempt; `None` for the engine's own machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Changes of an attempt that a person requested.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amendment {
    /// Feedback for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// Model, instead of the planned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Turns, instead of the planned ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_budget: Option<u32>,
    /// Session to continue, instead of a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// Next message of a person in a session, which replaces the prompt. Clients send it with `say`.
    #[cfg_attr(test, schemars(skip))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl AttemptStarted {
    /// True for a turn of a session, which keeps the system prompt of Claude Code or of the settings.
    pub(crate) fn is_session(&self) -> bool {
        self.system_prompt.is_empty()
    }
}

impl Amendment {
    /// True if it is the next message of a session and nothing else.
    pub(crate) fn is_only_message(&self) -> bool {
        let Self {
            feedback,
            model,
            step_budget,
            message,
            ..
        } = self;
        message.is_some() && feedback.is_none() && model.is_none() && step_budget.is_none()
    }

    /// True if the attempt is as planned.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One sentence without its end: `same session, model opus, 60 turns, feedback: …`.
impl fmt::Display for Amendment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.resume.as_ref().map(|_| "same session".to_owned()),
            self.model.as_ref().map(|model| format!("model {model}")),
            self.step_budget.map(|turns| format!("{turns} turns")),
            self.feedback
                .as_ref()
                .map(|feedback| format!("feedback: {feedback}")),
            self.message
                .as_ref()
                .map(|message| format!("message: {message}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// The isolation proof of one `system/init` line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IsolationChecked {
    /// `None` if the isolation holds, else the sentence about the breach.
    pub breach: Option<String>,
    /// Settings sources that the agent reports; `None` if it cannot report them.
    pub settings_sources: Option<Vec<String>>,
}

/// End of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// How the attempt ended, and why.
    pub verdict: Verdict,
    /// Number of failed tool calls, each counted once.
    #[serde(default)]
    pub tool_failures: u32,
    /// The first of them that the verdict counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_call: Option<CountedFailure>,
    /// Exit code of the process.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Signal that ended the process.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Last lines of stderr.
    #[serde(default)]
    pub stderr_tail: Vec<String>,
    /// Files that the attempt wrote, relative to the project.
    #[serde(default)]
    pub wrote: Vec<String>,
    /// Changes of the attempt, and the location of its transcript.
    #[serde(default, skip_serializing_if = "AttemptOutput::is_empty")]
    pub work: AttemptOutput,
    /// Members that a later version adds.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, Value>,
}

/// A tool call that failed and was not made good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedFailure {
    /// Tool without its server prefix.
    pub tool: String,
    /// Error text, cut to 4 KiB.
    pub message: String,
}

/// How an attempt ended, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The result of the attempt.
    pub outcome: AttemptOutcome,
    /// KTX's stop reason of the agent loop.
    pub stop: StopReason,
    /// What determined the result.
    pub cause: VerdictCause,
    /// One sentence; the exact text of KTX if it has one.
    pub reason: String,
    /// The remedy for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// The changes of the attempt count.
    Succeeded,
    /// The changes of the attempt do not count.
    Failed,
    /// A person ended the attempt; it neither succeeded nor failed.
    Stopped,
}

/// Why the agent loop stopped, in KTX's three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The turn or cost budget was spent.
    Budget,
    Natural,
    Error,
}

/// The result of a tool call that waited for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallDecision {
    /// The call may be made; the unit stays held.
    Allowed,
    /// The call may be made with other arguments.
    Edited,
    /// The call asked for input, and continues with an answer.
    Answered,
    /// The call asked for input of a tool server, and got none.
    Cancelled,
    /// The call may not be made.
    Denied,
    /// The call and the following ones may be made.
    Released,
    /// The attempt ended or the agent gave up the call, so no decision is needed.
    Withdrawn,
}

/// How urgently a person asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopMode {
    /// Start no new units; running ones may finish.
    Drain,
    /// Interrupt running units, with time for their last results.
    Stop,
    /// Kill running units immediately.
    Kill,
}

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Debug,
    Info,
    /// Something that a person should check.
    Warning,
    Error,
}

/// End of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEnded {
    pub outcome: RunEndOutcome,
    /// Units whose last attempt succeeded.
    pub succeeded: u32,
    /// Units whose changes count although their last attempt ran out of budget; not counted as succeeded.
    pub budget: u32,
    pub failed: u32,
    /// Units that a person stopped.
    pub stopped: u32,
    /// Units that never ran.
    pub not_run: u32,
    /// Units whose changes count but are not on the project's branch.
    #[serde(skip_serializing_if = "is_zero")]
    pub unsaved: u32,
    /// Units that were reused from a prior run.
    pub reused: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_are_kept_by_name() {
        let note = Note::parse(br#"{"kind":"from_the_future","x":1}"#);
        assert_eq!(
            note,
            Note::Unknown {
                kind: "from_the_future".into()
            }
        );
        assert_eq!(Note::parse(b"[]"), Note::Unknown { kind: "?".into() });
    }

    #[test]
    fn verdict_round_trips() {
        let note = Note::AttemptEnded(Box::new(AttemptEnded {
            verdict: Verdict {
                outcome: AttemptOutcome::Failed,
                stop: StopReason::Error,
                cause: VerdictCause::UsageLimit {
                    resets_at: Some(1_700_000_000),
                },
                reason: "usage limit reached".into(),
                remedy: None,
            },
            tool_failures: 2,
            failed_call: None,
            exit_code: Some(1),
            signal: None,
            stderr_tail: vec!["x".into()],
            wrote: vec![],
            work: AttemptOutput {
                fatal_failures: Some(1),
                ..AttemptOutput::default()
            },
            extra: serde_json::Map::default(),
        }));
        assert_eq!(Note::parse(&note.to_json()), note);
    }

    #[test]
    fn retry_without_amendment_keeps_the_old_json() {
        let note = Note::RetryRequested {
            next: 2,
            amendment: None,
        };
        assert_eq!(note.to_json(), br#"{"kind":"retry_requested","next":2}"#);
        assert_eq!(Note::parse(&note.to_json()), note);
        let amendment = Amendment {
            step_budget: Some(60),
            resume: Some("s".into()),
            ..Amendment::default()
        };
        assert_eq!(amendment.to_string(), "same session, 60 turns");
        let note = Note::RetryRequested {
            next: 2,
            amendment: Some(amendment),
        };
        assert_eq!(Note::parse(&note.to_json()), note);
    }

    #[test]
    fn unknown_cause_is_kept_as_other() {
        assert_eq!(
            serde_json::from_str::<VerdictCause>(r#""eaten""#).unwrap(),
            VerdictCause::Other("eaten".into())
        );
    }
}
