//! Notes: the facts of ours that a tape keeps beside what arrived. Plain data; policy lives in `units`.
//!
//! A kind that this program does not know is kept as [`Note::Unknown`], so that a newer tape of the same major
//! version still replays.

pub mod attempt_output;
mod prior_run;
mod resumed_session;
mod source;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    attempt_output::AttemptOutput,
    prior_run::{ContentDigests, ContinuedRun, PriorUnitSummary, ReusedSuccess},
    resumed_session::ResumedSession,
    source::{DiffCounts, FileRead, FilesEvicted, Selection, SourceRead, SourcesProjected},
};
use super::{Millis, UnitKey};

pub mod integration;

pub use integration::{
    IntegrationStarted, PatchIntegrated, PatchResult, PatchWritten, RunSaved, SaveFailed, SharedWrite, SlRefRepair,
    SlRefsRepaired,
};

/// A decision or fact of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Note {
    /// What the run set out to do. First note of every run.
    RunPlanned(Box<RunPlanned>),
    /// What the run read of one connection.
    SourceRead(Box<SourceRead>),
    /// What came of files that are gone was decided.
    #[serde(rename = "evicted")]
    FilesEvicted(Box<FilesEvicted>),
    /// Sources that follow from files alone were written before any unit ran, or could not be.
    #[serde(rename = "projected")]
    SourcesProjected(Box<SourcesProjected>),
    /// An agent process was started.
    AttemptStarted(Box<AttemptStarted>),
    /// The agent said what it offers, and we compared it with what it may.
    IsolationChecked(IsolationChecked),
    /// An attempt is over, with its verdict.
    AttemptEnded(Box<AttemptEnded>),
    /// A new attempt will start by itself.
    RetryScheduled {
        /// Attempt that will start.
        next: u32,
        /// Wait before it, in milliseconds.
        delay_ms: u64,
        /// Why the last one failed.
        cause: Cause,
    },
    /// A person asked for a new attempt.
    RetryRequested {
        /// Attempt that will start.
        next: u32,
        /// What it does otherwise than planned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        amendment: Option<Amendment>,
    },
    /// A person asked to stop this unit, or with no unit on the entry, the run.
    StopRequested {
        /// How firmly.
        how: StopMode,
    },
    /// A person asked to hold this unit at its next tool call.
    HoldRequested,
    /// A person no longer holds this unit.
    HoldReleased,
    /// A person lets this unit run until its next tool call that meets a condition; that one waits.
    RunUntil {
        /// What it runs to, as a person types it: `tool wiki_*`. Several are parted by `, `.
        condition: String,
    },
    /// A tool call of a held unit waits for a person.
    CallHeld {
        /// Tool without its server prefix.
        tool: String,
        /// Id of the call, where known.
        tool_use_id: Option<String>,
        /// Its arguments, as the model wrote them.
        input: Value,
        /// The condition that it met, if the unit ran until one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reached: Option<String>,
    },
    /// A tool call waits no longer.
    CallDecided {
        /// Id of the call, where known.
        tool_use_id: Option<String>,
        /// What became of it.
        decision: CallDecision,
        /// The arguments that it goes on with, if they were edited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        /// What the model reads, if it was denied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The run waits for a usage or rate limit.
    LimitPaused {
        /// When it resets, if the service said so.
        until: Option<Millis>,
        /// What it is, in the service's words.
        limit: String,
        /// How long, in milliseconds from the note on. Absent on tapes of older programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// The wait for a limit is over.
    LimitLifted,
    /// A limit is near, so fewer units run at once; or it is no longer.
    Throttled {
        /// Slots from now on; `None` when all are back.
        slots: Option<u32>,
        /// What it is, in the service's words.
        limit: String,
    },
    /// Slots were changed while running.
    ConcurrencyChanged {
        /// Slots from now on.
        slots: u32,
    },
    /// What a successful attempt wrote is now in the project.
    Published {
        /// Project-relative paths, sorted.
        paths: Vec<String>,
    },
    /// What a successful attempt wrote is in a patch.
    PatchWritten(PatchWritten),
    /// The patches of the run are being put together.
    #[serde(rename = "integrating")]
    IntegrationStarted(IntegrationStarted),
    /// What became of the patch of an attempt.
    PatchIntegrated(Box<PatchIntegrated>),
    /// Everything that was taken is on the project's branch.
    #[serde(rename = "saved")]
    RunSaved(RunSaved),
    /// Pages that spoke of sources that are gone do so no longer.
    SlRefsRepaired(SlRefsRepaired),
    /// What was taken could not be put on the branch.
    SaveFailed(SaveFailed),
    /// A tool call failed, as our own side saw it. Counted once per `tool_use_id`.
    ToolFailed {
        /// Tool without its server prefix.
        tool: String,
        /// Id of the call, where known.
        tool_use_id: Option<String>,
        /// Error text.
        message: String,
    },
    /// A tool of ours did not do what a call asked for, and said so in a plain answer, which is no failure.
    ToolDeclined {
        /// Tool without its server prefix.
        tool: String,
        /// Id of the call, where known.
        tool_use_id: Option<String>,
        /// The beginning of what it said.
        message: String,
    },
    /// Something worth a line of the log.
    #[serde(rename = "said")]
    Message {
        /// Severity.
        level: Severity,
        /// One sentence.
        text: String,
    },
    /// Last note of a run that ended in order.
    RunEnded(RunEnded),
    /// A kind from a later program.
    #[serde(skip)]
    Unknown {
        /// Its kind, or `?`.
        kind: String,
    },
}

impl Note {
    /// Reads the body of a note entry. Never fails: what it does not know is [`Note::Unknown`].
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

/// The plan of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunPlanned {
    /// Job id, as KTX names transcript folders.
    pub job: String,
    /// The units in plan order.
    pub units: Vec<PlannedUnit>,
    /// Connections that were left out, each with its reason.
    pub skipped: Vec<SkippedConnection>,
    /// Units that may run at once.
    pub concurrency: u32,
    /// Step budget of an attempt.
    pub step_budget: u32,
    /// `continue` or `abort`.
    pub failure_mode: String,
    /// `strict` or `recoverable`.
    pub tool_failures: String,
    /// Model asked for, if any.
    pub model: Option<String>,
    /// True when a scripted agent plays the model.
    pub scripted: bool,
    /// What all attempts together may cost, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_budget_usd: Option<f64>,
    /// Prompts, skills and pins that the project brought itself, one phrase each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
    /// The run that this one continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<ContinuedRun>,
    /// Milliseconds without output after which an attempt is silent. `None` on tapes of older programs: 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_after_ms: Option<u64>,
    /// What the units were chosen by: whoever goes on with the run chooses by the same. `None` on tapes of older programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
}

/// One unit of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedUnit {
    /// Key, unique in the run.
    pub unit: UnitKey,
    /// KTX's key, unique in the connection; `None` where `unit` is that key.
    #[serde(rename = "unitKey", skip_serializing_if = "Option::is_none")]
    pub ktx_key: Option<UnitKey>,
    /// Connection it comes from.
    pub connection: String,
    /// Adapter that cut it.
    pub adapter: String,
    /// Name for people, where it differs from the key.
    pub label: Option<String>,
    /// Files it is made of, relative to the source.
    #[serde(rename = "rawFiles")]
    pub raw_files: Vec<String>,
    /// Files it may read beside its own.
    #[serde(rename = "dependencyPaths")]
    pub dependency_paths: Vec<String>,
    /// Why it runs.
    pub why: String,
    /// Size of its raw files, in bytes. `None` on tapes of older programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why it may not write sources of the semantic layer, in KTX's word; `None` where it may.
    #[serde(rename = "slDisallowedReason", skip_serializing_if = "Option::is_none")]
    pub sl_disallowed: Option<String>,
    /// Files beside its own that it knows by name. `None` on tapes of older programs.
    #[serde(rename = "peerFileCount", skip_serializing_if = "Option::is_none")]
    pub peer_files: Option<u64>,
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
        }
    }
}

/// A connection that gives no units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedConnection {
    /// Connection id.
    pub connection: String,
    /// One sentence.
    pub why: String,
    /// Something is wrong with it, that somebody should mend.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fault: bool,
}

/// How an agent process was started: everything needed to judge its isolation, and to start it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptStarted {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: String,
    /// Names (never values) of variables that were set or changed for it.
    pub env_set: Vec<String>,
    /// Names of variables that were withheld.
    pub env_stripped: Vec<String>,
    /// Names that a setting passed although the deny list would withhold them.
    pub env_passed: Vec<String>,
    /// Names of the other variables that it got as they were. Empty on tapes of older programs.
    pub env_inherited: Vec<String>,
    /// Model asked for.
    pub model: Option<String>,
    /// Step budget.
    pub step_budget: u32,
    /// System prompt that was sent.
    pub system_prompt: String,
    /// Prompt that was sent.
    pub prompt: String,
    /// Tools that it may call.
    pub tools: Vec<String>,
    /// Process id; `None` if none was spawned.
    pub pid: Option<u32>,
    /// True when a scripted agent plays the model.
    pub scripted: bool,
    /// What is otherwise than planned: what a person asked for, or the session that an automatic retry continues. Model, budget and
    /// prompt above have it already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amendment: Option<Amendment>,
    /// A resumed session may answer with another id. Absent on tapes of older programs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tolerates_mismatch: bool,
    /// What the unit is made of. `None` on tapes of older programs, and where it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentDigests>,
}

/// What a person wants of an attempt beyond the plan, or otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amendment {
    /// Words for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// Model, instead of the planned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Turns, instead of the planned ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_budget: Option<u32>,
    /// Session to go on with, instead of a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

impl Amendment {
    /// True when everything is as planned.
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
            self.feedback.as_ref().map(|feedback| format!("feedback: {feedback}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// The isolation proof of one `system/init` line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IsolationChecked {
    /// `None` when it holds, else the sentence of the breach.
    pub breach: Option<String>,
    /// Settings sources that the agent reports; `None` when it could not say.
    pub settings_sources: Option<Vec<String>>,
}

/// End of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// How it ended, and why.
    pub verdict: Verdict,
    /// Tool calls that failed, each once.
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
    /// What the attempt wrote, relative to the project.
    #[serde(default)]
    pub wrote: Vec<String>,
    /// What it did, and where that is on file.
    #[serde(default, skip_serializing_if = "AttemptOutput::is_empty")]
    pub work: AttemptOutput,
    /// Anything a later program adds.
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
    /// The one word that counts.
    pub outcome: AttemptOutcome,
    /// KTX's stop reason of the agent loop.
    pub stop: StopReason,
    /// What decided.
    pub cause: Cause,
    /// One sentence; the exact texts of KTX where it has one.
    pub reason: String,
    /// What a person can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Its writes count.
    Succeeded,
    /// Its writes do not count.
    Failed,
    /// A person ended it; neither success nor failure.
    Stopped,
}

/// Why the agent loop stopped, in KTX's three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Turn or cost budget spent.
    Budget,
    /// The model was done.
    Natural,
    /// Anything else.
    Error,
}

/// What decided a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The model was done.
    Completed,
    /// Turn or cost budget spent; not a failure.
    Budget,
    /// System and user prompt exceed the limit; nothing was spawned.
    PromptTooLarge,
    /// The agent offered more or less than the curated set.
    Isolation,
    /// Somebody stopped it.
    Cancelled,
    /// The model's context is full.
    ContextOverflow,
    /// A usage limit of the subscription, until the given time (unix seconds).
    UsageLimit {
        /// Reset time, if the service said so.
        resets_at: Option<i64>,
    },
    /// Too many requests in a short time: the run waits, and tries again.
    RateLimited,
    /// Overload or a server error: worth a retry.
    Transient,
    /// Connection refused, dropped or timed out.
    Network,
    /// The agent wrote nothing for longer than `--silence-timeout`.
    SilenceTimeout,
    /// The attempt took longer than `--unit-timeout`.
    UnitTimeout,
    /// Not logged in, or the key is bad.
    Auth,
    /// No credit.
    Credit,
    /// The model does not exist or may not be used.
    Model,
    /// The agent died without a result.
    Crashed,
    /// Tool calls failed.
    ToolFailures,
    /// A wiki page refers to a page that does not exist.
    DanglingReferences,
    /// What it wrote does not hold.
    Validation,
    /// What it wrote does not go with what other units wrote.
    Conflict,
    /// It wrote what it may not.
    Policy,
    /// The agent wrote a line that exceeds the limit.
    OversizedLine,
    /// The agent loop failed otherwise.
    LoopError,
    /// The process has no file descriptors left: the unit waits for another one to end.
    OpenFiles,
    /// The agent's program is missing or cannot be executed, as while it is being updated.
    ProgramMissing,
    /// The program itself could not go on (disk, permissions).
    Internal,
    /// From a later program.
    #[serde(untagged)]
    Other(String),
}

impl Cause {
    /// Its words, on screens.
    pub fn label(&self) -> &str {
        match self {
            Self::Completed => "completed",
            Self::Budget => "budget",
            Self::PromptTooLarge => "prompt too large",
            Self::Isolation => "isolation",
            Self::Cancelled => "cancelled",
            Self::ContextOverflow => "context overflow",
            Self::UsageLimit { .. } => "usage limit",
            Self::RateLimited => "rate limit",
            Self::Transient => "service busy",
            Self::Network => "network",
            Self::SilenceTimeout => "silence timeout",
            Self::UnitTimeout => "unit timeout",
            Self::Auth => "login",
            Self::Credit => "credit",
            Self::Model => "model",
            Self::Crashed => "crashed",
            Self::ToolFailures => "tool failures",
            Self::DanglingReferences => "dangling references",
            Self::Validation => "validation",
            Self::Conflict => "conflict",
            Self::Policy => "patch policy",
            Self::OversizedLine => "oversized line",
            Self::LoopError => "agent loop",
            Self::OpenFiles => "open files",
            Self::ProgramMissing => "program missing",
            Self::Internal => "internal",
            Self::Other(other) => other,
        }
    }
}

/// What became of a tool call that waited for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallDecision {
    /// It may be made; the next one waits again.
    Allowed,
    /// It may be made with other arguments.
    Edited,
    /// It may not be made.
    Denied,
    /// It may be made, and so may those that follow.
    Released,
    /// Nobody waits for the decision any more: the attempt ended, or the agent gave up the call.
    Withdrawn,
}

/// How firmly somebody asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopMode {
    /// Start nothing new, let what runs end.
    Drain,
    /// Interrupt what runs, giving it time to say so.
    Stop,
    /// End it now.
    Kill,
}

/// Severity of a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For the curious.
    Debug,
    /// Normal.
    Info,
    /// Look at it.
    Warning,
    /// It went wrong.
    Error,
}

/// End of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEnded {
    /// `done`, `partial`, `error`, `limit`, `stopped`, or `unusable` where nothing but Claude Code itself (login, credit,
    /// model, network) was in the way.
    pub outcome: String,
    /// Units whose last attempt succeeded.
    pub succeeded: u32,
    /// Units whose writes count although their last attempt ran out of budget; not counted as succeeded.
    pub budget: u32,
    /// Failed units.
    pub failed: u32,
    /// Units stopped by a person.
    pub stopped: u32,
    /// Units that never ran.
    pub not_run: u32,
    /// Units whose writes count but are not on the project's branch.
    #[serde(skip_serializing_if = "is_zero")]
    pub unsaved: u32,
    /// Units that were not run because an earlier run did.
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
        assert_eq!(note, Note::Unknown { kind: "from_the_future".into() });
        assert_eq!(Note::parse(b"[]"), Note::Unknown { kind: "?".into() });
    }

    #[test]
    fn verdict_round_trips() {
        let note = Note::AttemptEnded(Box::new(AttemptEnded {
            verdict: Verdict {
                outcome: AttemptOutcome::Failed,
                stop: StopReason::Error,
                cause: Cause::UsageLimit { resets_at: Some(1_700_000_000) },
                reason: "usage limit reached".into(),
                remedy: None,
            },
            tool_failures: 2,
            failed_call: None,
            exit_code: Some(1),
            signal: None,
            stderr_tail: vec!["x".into()],
            wrote: vec![],
            work: AttemptOutput { fatal_failures: Some(1), ..AttemptOutput::default() },
            extra: serde_json::Map::default(),
        }));
        assert_eq!(Note::parse(&note.to_json()), note);
    }

    #[test]
    fn retry_without_amendment_keeps_the_old_json() {
        let note = Note::RetryRequested { next: 2, amendment: None };
        assert_eq!(note.to_json(), br#"{"kind":"retry_requested","next":2}"#);
        assert_eq!(Note::parse(&note.to_json()), note);
        let amendment = Amendment { step_budget: Some(60), resume: Some("s".into()), ..Amendment::default() };
        assert_eq!(amendment.to_string(), "same session, 60 turns");
        let note = Note::RetryRequested { next: 2, amendment: Some(amendment) };
        assert_eq!(Note::parse(&note.to_json()), note);
    }

    #[test]
    fn unknown_cause_is_kept_as_other() {
        assert_eq!(serde_json::from_str::<Cause>(r#""eaten""#).unwrap(), Cause::Other("eaten".into()));
    }
}
