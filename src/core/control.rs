//! The commands of clients to the engine that owns a run, and its replies: serialisable values and nothing else.
//!
//! The screen sends them within the process; other clients send the same values as lines of JSON over the control socket
//! of the run. The module must not know how the engine carries a command out. See `ingestdeck_engine::controller` for the
//! effects and `ingestdeck_engine::control_socket` for the transport.

mod break_condition;
mod review_order;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::{
    break_condition::{BreakCondition, NamePattern},
    review_order::{MAX_EDITED_BYTES, ReviewOrder, ReviewVerdict},
};
pub use crate::config::schema::{DisconnectAction, FailureRule};
use crate::tape::{Millis, UnitKey, note::Amendment};

/// A command of a client to the engine.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum RunCommand {
    /// Start a new attempt at a unit.
    Retry {
        unit: UnitKey,
        /// Changes to the plan; `None` repeats the inputs of the last attempt.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "strict_amendment"
        )]
        amendment: Option<Amendment>,
    },
    /// Start new attempts at all failed units; if there are none, at the units that have not run; if there are none
    /// either, save again.
    RetryUnsuccessful,
    /// Start new attempts at these units.
    RetryUnits {
        units: Vec<UnitKey>,
        /// Changes to the plan, the same for each unit; `None` repeats the inputs of their last attempts.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "strict_amendment"
        )]
        amendment: Option<Amendment>,
    },
    /// Stop the attempt at a unit. A second request while it still runs kills it.
    Stop { unit: UnitKey },
    /// Start no new attempts and let running ones finish.
    Drain,
    /// Resume without waiting for the usage limit to reset.
    LiftLimit,
    /// Raise or lower the concurrency. The change is relative, so that two requests in a row add up.
    AdjustConcurrency {
        /// Change of the concurrency; negative to lower it.
        by: i32,
    },
    /// Start no new attempts, and hold running units at their next tool call.
    Pause,
    /// End a pause: the calls that wait because of it are allowed.
    Resume,
    /// Change a limit of the run.
    Set { limit: RunLimit },
    /// Start a worker over SSH, too.
    AddWorker {
        /// Its URL, as for `run --worker`: `ssh://[user@]host[:port]`.
        url: String,
    },
    /// Start nothing more on a worker; its running attempts finish.
    DrainWorker { worker: String },
    /// Start units on a worker again that was drained.
    UndrainWorker { worker: String },
    /// Start nothing more on a worker, and repeat its running attempts elsewhere.
    StopWorker { worker: String },
    /// Interrupt all agents, with time to finish their output.
    StopAll,
    /// Kill all agents immediately.
    KillAll,
    /// Hold a unit: its tool calls wait for approval, starting with the next one.
    Hold { unit: UnitKey },
    /// Release a held unit: waiting and later tool calls are allowed.
    Release { unit: UnitKey },
    /// Let a unit run until one of its calls meets a condition; that call is held.
    RunUntil {
        unit: UnitKey,
        /// Id of the call that is currently held, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<Arc<str>>,
        /// Conditions, of which any one suffices.
        conditions: Vec<BreakCondition>,
    },
    /// Hold a unit at every Nth call; the calls between pass.
    Leash {
        unit: UnitKey,
        /// Number of calls until the unit waits, which counts again after each decision.
        calls: u32,
    },
    /// Use the result of a unit that has used its turns, although the run waits for a decision about it.
    Accept { unit: UnitKey },
    /// Decide about changes of the run, which waits for a review.
    Review { decisions: Vec<ReviewOrder> },
    /// Withdraw the decisions of the last command that made some: the changes have the decisions of before.
    UndoReview {
        /// Number of commands with decisions that the client knows of. If there are others, the command is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<u32>,
    },
    /// End the review: units that were sent back work again; if there are none, the accepted changes become a commit.
    FinishReview {
        /// Commit to this branch, which may not be checked out, instead of the one that the run commits to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
        /// Leave out changes that files of the user block; they wait for another end of the review.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        leave_blocked: bool,
    },
    /// Send a message to the agent of a running unit. It arrives with the result of the current or next call.
    Say { unit: UnitKey, text: String },
    /// Send a request to the agent of a session whose turn runs. Its reply is a message on the tape.
    Request {
        unit: UnitKey,
        request: AgentRequest,
    },
    /// Decide about one held call.
    Decide {
        unit: UnitKey,
        /// Id of the call; `None` for the call that has waited longest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<Arc<str>>,
        decision: UserDecision,
    },
}

/// How the engine answered a command: it carries it out, or refused it.
pub type CommandOutcome = Result<(), RefusalReason>;

/// Names of the commands that decide about changes, and withdraw decisions, as the tape has them.
pub(crate) const REVIEW_COMMAND: &str = "review";
pub(crate) const UNDO_REVIEW_COMMAND: &str = "undo_review";

/// A limit of a run that can be changed while it is active, with its new value.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunLimit {
    /// Number of units that run at the same time.
    Concurrency(u32),
    /// Maximum cost of the run in US dollars; `None` for no limit.
    RunBudget(Option<f64>),
    /// Maximum number of turns of attempts that start later.
    Turns(u32),
    /// Maximum number of automatic retries of a unit.
    Retries(u32),
    /// The rule by which failed calls fail a unit, for attempts that end later.
    ToolFailures(FailureRule),
    /// Longest time without output of an agent, in milliseconds; `None` for no limit.
    SilenceTimeout(Option<Millis>),
}

/// Range of the concurrency that a person can set during a run.
pub const CONCURRENCY_RANGE: std::ops::RangeInclusive<u32> = 1..=64;
/// Maximum number of automatic retries.
const MAX_RETRIES: u32 = 100;
/// Shortest time limit on silence: agents may need this long for an ordinary answer.
const MIN_SILENCE: Millis = Millis(1_000);

impl RunLimit {
    /// The name of the limit in its JSON form.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Concurrency(_) => "concurrency",
            Self::RunBudget(_) => "run_budget",
            Self::Turns(_) => "turns",
            Self::Retries(_) => "retries",
            Self::ToolFailures(_) => "tool_failures",
            Self::SilenceTimeout(_) => "silence_timeout",
        }
    }

    fn problem(&self) -> Option<String> {
        let is_valid = match self {
            Self::Concurrency(slots) => CONCURRENCY_RANGE.contains(slots),
            Self::RunBudget(budget) => {
                budget.is_none_or(|budget| budget.is_finite() && budget > 0.0)
            }
            Self::Turns(turns) => (1..=MAX_TURNS).contains(turns),
            Self::Retries(retries) => *retries <= MAX_RETRIES,
            Self::ToolFailures(_) => true,
            Self::SilenceTimeout(limit) => limit.is_none_or(|limit| limit >= MIN_SILENCE),
        };
        let expected = match self {
            Self::Concurrency(_) => format!(
                "{} to {}",
                CONCURRENCY_RANGE.start(),
                CONCURRENCY_RANGE.end()
            ),
            Self::RunBudget(_) => "an amount above 0".to_owned(),
            Self::Turns(_) => format!("1 to {MAX_TURNS}"),
            Self::Retries(_) => format!("0 to {MAX_RETRIES}"),
            Self::ToolFailures(_) => "strict or recoverable".to_owned(),
            Self::SilenceTimeout(_) => "1 s or more".to_owned(),
        };
        (!is_valid).then(|| {
            format!(
                "invalid {}; expected {expected}",
                self.name().replace('_', " ")
            )
        })
    }
}

/// Maximum length of feedback for the model, in characters.
pub const MAX_FEEDBACK_CHARS: usize = 20_000;
/// Maximum length of a branch name, in bytes.
pub(crate) const MAX_BRANCH_BYTES: usize = 200;
/// Maximum length of a model name, in characters.
pub const MAX_MODEL_CHARS: usize = 120;
/// Maximum number of turns of an attempt.
pub const MAX_TURNS: u32 = 10_000;

/// On a tape, unknown keys of a newer version are ignored; in a command, they are mistakes.
fn strict_amendment<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Amendment>, D::Error> {
    const KEYS: [&str; 4] = ["feedback", "model", "step_budget", "resume"];
    let Some(fields) = Option::<Map<String, Value>>::deserialize(from)? else {
        return Ok(None);
    };
    match fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
        Some(unknown) => Err(serde::de::Error::unknown_field(unknown, &KEYS)),
        None => serde_json::from_value(Value::Object(fields))
            .map(Some)
            .map_err(serde::de::Error::custom),
    }
}

impl RunCommand {
    /// What is wrong with the values of the command, whatever the state of the run is.
    pub fn problem(&self) -> Option<String> {
        let problem = match self {
            Self::Retry {
                amendment:
                    Some(Amendment {
                        feedback,
                        model,
                        step_budget,
                        ..
                    }),
                ..
            } => {
                let is_long = feedback
                    .as_ref()
                    .is_some_and(|text| text.chars().count() > MAX_FEEDBACK_CHARS);
                let is_name = |model: &String| {
                    !model.is_empty()
                        && model.chars().count() <= MAX_MODEL_CHARS
                        && !model.contains(char::is_whitespace)
                };
                if is_long {
                    format!("feedback too long; the limit is {MAX_FEEDBACK_CHARS} characters")
                } else if !model.as_ref().is_none_or(is_name) {
                    "invalid model name; expected a name without spaces, such as opus".to_owned()
                } else if !step_budget.is_none_or(|turns| (1..=MAX_TURNS).contains(&turns)) {
                    format!("invalid turn budget; expected 1 to {MAX_TURNS}")
                } else {
                    return None;
                }
            }
            Self::Set { limit } => return limit.problem(),
            Self::Request { request, .. } => return request.problem(),
            Self::Say { text, .. } if text.trim().is_empty() => "the message is empty".to_owned(),
            Self::Say { text, .. } if text.chars().count() > MAX_FEEDBACK_CHARS => {
                format!("message too long; the limit is {MAX_FEEDBACK_CHARS} characters")
            }
            Self::Leash { calls: 0, .. } => {
                "invalid number of calls; expected 1 or more".to_owned()
            }
            Self::Review { decisions } if decisions.is_empty() => {
                "no decision; name at least one change".to_owned()
            }
            Self::Review { decisions } => return decisions.iter().find_map(ReviewOrder::problem),
            Self::FinishReview {
                branch: Some(branch),
                ..
            } if branch.trim().is_empty() => "no branch name".to_owned(),
            Self::FinishReview {
                branch: Some(branch),
                ..
            } if branch.len() > MAX_BRANCH_BYTES => {
                format!("branch name too long; the limit is {MAX_BRANCH_BYTES} bytes")
            }
            Self::RunUntil { conditions, .. } if conditions.is_empty() => {
                "no condition; name at least one".to_owned()
            }
            Self::RunUntil { conditions, .. }
                if conditions
                    .iter()
                    .any(|it| matches!(it, BreakCondition::Silence(_))) =>
            {
                "a tool call cannot wait for a silence; expected failure, tool, path or cost"
                    .to_owned()
            }
            Self::Decide {
                decision: UserDecision::Answer(answer),
                ..
            } if answer.is_empty() => "no answer; answer at least one question".to_owned(),
            Self::Decide {
                decision: UserDecision::Deny(reason),
                ..
            } if reason.trim().is_empty() => {
                "no reason; the model receives it instead of a result".to_owned()
            }
            _ => return None,
        };
        Some(problem)
    }

    /// The name of the command in its JSON form.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::RetryUnsuccessful => "retry_unsuccessful",
            Self::RetryUnits { .. } => "retry_units",
            Self::Stop { .. } => "stop",
            Self::Drain => "drain",
            Self::LiftLimit => "lift_limit",
            Self::AdjustConcurrency { .. } => "adjust_concurrency",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Set { .. } => "set",
            Self::AddWorker { .. } => "add_worker",
            Self::DrainWorker { .. } => "drain_worker",
            Self::UndrainWorker { .. } => "undrain_worker",
            Self::StopWorker { .. } => "stop_worker",
            Self::StopAll => "stop_all",
            Self::KillAll => "kill_all",
            Self::Hold { .. } => "hold",
            Self::Release { .. } => "release",
            Self::RunUntil { .. } => "run_until",
            Self::Leash { .. } => "leash",
            Self::Accept { .. } => "accept",
            Self::Review { .. } => REVIEW_COMMAND,
            Self::UndoReview { .. } => UNDO_REVIEW_COMMAND,
            Self::FinishReview { .. } => "finish_review",
            Self::Say { .. } => "say",
            Self::Request { .. } => "request",
            Self::Decide { .. } => "decide",
        }
    }

    /// True if the command needs units: a plain session has no limits, and its calls do not ask for approval.
    pub fn needs_units(&self) -> bool {
        match self {
            Self::Hold { .. } | Self::Release { .. } | Self::RunUntil { .. } => true,
            Self::Leash { .. } | Self::Accept { .. } | Self::Say { .. } | Self::Decide { .. } => {
                true
            }
            Self::Request { .. } => true,
            Self::Pause | Self::Resume | Self::Set { .. } => true,
            Self::Review { .. } | Self::UndoReview { .. } | Self::FinishReview { .. } => true,
            Self::Retry { .. }
            | Self::RetryUnsuccessful
            | Self::RetryUnits { .. }
            | Self::Stop { .. } => false,
            Self::AddWorker { .. }
            | Self::DrainWorker { .. }
            | Self::UndrainWorker { .. }
            | Self::StopWorker { .. } => true,
            Self::Drain
            | Self::LiftLimit
            | Self::AdjustConcurrency { .. }
            | Self::StopAll
            | Self::KillAll => false,
        }
    }

    /// The units that the command names.
    pub fn units(&self) -> &[UnitKey] {
        match self {
            Self::Retry { unit, .. }
            | Self::Stop { unit }
            | Self::Hold { unit }
            | Self::Release { unit }
            | Self::RunUntil { unit, .. }
            | Self::Leash { unit, .. }
            | Self::Accept { unit }
            | Self::Say { unit, .. }
            | Self::Request { unit, .. }
            | Self::Decide { unit, .. } => std::slice::from_ref(unit),
            Self::RetryUnits { units, .. } => units,
            Self::RetryUnsuccessful
            | Self::Drain
            | Self::LiftLimit
            | Self::AdjustConcurrency { .. }
            | Self::Pause
            | Self::Resume
            | Self::Set { .. }
            | Self::Review { .. }
            | Self::UndoReview { .. }
            | Self::FinishReview { .. }
            | Self::AddWorker { .. }
            | Self::DrainWorker { .. }
            | Self::UndrainWorker { .. }
            | Self::StopWorker { .. }
            | Self::StopAll
            | Self::KillAll => &[],
        }
    }
}

/// What a person asks the agent of a session to change or to report.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRequest {
    /// Use another model, for this turn and later ones.
    Model(String),
    /// Use another permission mode, for this turn and later ones.
    PermissionMode(String),
    /// Report how full the context is.
    Context,
    /// Report the usage windows of the account.
    Usage,
    /// Stop a background task.
    StopTask(String),
}

impl AgentRequest {
    /// What the request is about, for messages.
    pub fn subject(&self) -> &'static str {
        match self {
            Self::Model(_) => "the model",
            Self::PermissionMode(_) => "the permission mode",
            Self::Context => "the context",
            Self::Usage => "the usage",
            Self::StopTask(_) => "the task",
        }
    }

    fn problem(&self) -> Option<String> {
        let value = match self {
            Self::Model(value) | Self::PermissionMode(value) | Self::StopTask(value) => value,
            Self::Context | Self::Usage => return None,
        };
        let is_name = !value.is_empty()
            && value.chars().count() <= MAX_MODEL_CHARS
            && !value.contains(|char: char| char.is_whitespace() || char.is_control());
        (!is_name).then(|| {
            let subject = self.subject();
            format!("invalid value for {subject}; expected a name without spaces")
        })
    }
}

/// A person's decision about a waiting call.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserDecision {
    /// The call may be made; the unit stays held.
    Allow,
    /// The call may be made with these arguments instead of the model's.
    Edit(Map<String, Value>),
    /// The call asks for input, and continues with this answer: text by question, or values by field.
    Answer(Map<String, Value>),
    /// The call asks for input of a tool server, and a person gives none without refusing.
    Cancel,
    /// The call may not be made; the model receives this reason.
    Deny(String),
}

/// Version of the protocol on the control socket.
pub const CONTROL_VERSION: u32 = 1;

/// Maximum length of a request, in bytes. Edited arguments and feedback are the largest content.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Maximum length of the name of a client, in characters.
const MAX_CLIENT_CHARS: usize = 60;
/// Maximum length of the reason for a command, in characters.
const MAX_REASON_CHARS: usize = 2_000;

/// A line from a client on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RequestFields", into = "RequestFields")]
pub struct ClientRequest {
    /// Number that the client chose; the reply repeats it.
    pub id: u64,
    pub body: RequestBody,
    pub origin: CommandOrigin,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestBody {
    /// A change of the run.
    Command(RunCommand),
    /// Keep the run open for commands while the connection exists, and report when its tape grows.
    Attach(AttachRequest),
    /// End the attachment, so that the end of the connection means nothing.
    Detach,
}

/// Who sends a command, and why. The tape records both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOrigin {
    /// Name of the program or view that sends it, such as `screen` or `ctl`.
    pub client: Option<String>,
    pub reason: Option<String>,
}

/// Options of an attached client.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachRequest {
    pub on_disconnect: DisconnectAction,
}

/// The fields of a request on the wire. Exactly one of `command`, `attach` and `detach` is present.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFields {
    version: u32,
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<RunCommand>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attach: Option<AttachRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detach: Option<DetachRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// An empty object, with room for options.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DetachRequest {}

impl TryFrom<RequestFields> for ClientRequest {
    type Error = String;

    fn try_from(fields: RequestFields) -> Result<Self, String> {
        let too_long = |text: &Option<String>, limit| {
            text.as_ref()
                .is_some_and(|text| text.chars().count() > limit)
        };
        if too_long(&fields.client, MAX_CLIENT_CHARS) || too_long(&fields.reason, MAX_REASON_CHARS)
        {
            return Err(format!(
                "client or reason too long; the limits are {MAX_CLIENT_CHARS} and {MAX_REASON_CHARS} characters"
            ));
        }
        let body = match (fields.command, fields.attach, fields.detach) {
            (Some(command), None, None) => RequestBody::Command(command),
            (None, Some(attach), None) => RequestBody::Attach(attach),
            (None, None, Some(_)) => RequestBody::Detach,
            _ => return Err("expected exactly one of command, attach and detach".to_owned()),
        };
        let origin = CommandOrigin {
            client: fields.client,
            reason: fields.reason,
        };
        Ok(Self {
            id: fields.id,
            body,
            origin,
        })
    }
}

impl From<ClientRequest> for RequestFields {
    fn from(ClientRequest { id, body, origin }: ClientRequest) -> Self {
        let fields = Self {
            version: CONTROL_VERSION,
            id,
            client: origin.client,
            reason: origin.reason,
            ..Self::default()
        };
        match body {
            RequestBody::Command(command) => Self {
                command: Some(command),
                ..fields
            },
            RequestBody::Attach(attach) => Self {
                attach: Some(attach),
                ..fields
            },
            RequestBody::Detach => Self {
                detach: Some(DetachRequest {}),
                ..fields
            },
        }
    }
}

/// A line to a client on the control socket.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EngineLine {
    // Most lines are events, and the variants are tried in this order.
    /// Sent to attached clients only.
    Event(EngineEvent),
    Reply(EngineReply),
}

/// The reply to one request.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReply {
    pub version: u32,
    /// Number of the request; `None` if the line is not a request.
    pub id: Option<u64>,
    #[serde(flatten)]
    pub reply: CommandReply,
}

/// An occurrence that attached clients are informed about.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EngineEvent {
    /// The tape has grown.
    Grown,
    /// The tape cannot be written, so running units were ended.
    RecordingFailed { message: String },
}

/// The engine's reply to a request.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum CommandReply {
    /// The engine has the command. Its effect, or the reason why it has none, follows on the tape.
    Accepted,
    /// The client is attached.
    Attached {
        /// Number of attached clients, including this one.
        clients: usize,
    },
    /// The client is detached.
    Detached {
        /// Number of clients that remain attached.
        clients: usize,
    },
    /// The command had no effect.
    Refused { reason: RefusalReason },
    /// The line is not a request that this program understands.
    Invalid {
        /// What is wrong, and what is supported.
        message: String,
    },
}

/// Why a command had no effect.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RefusalReason {
    #[error("the run has no unit `{unit}`")]
    UnknownUnit { unit: UnitKey },
    #[error("the run has no worker `{}`", .worker.escape_debug())]
    UnknownWorker { worker: String },
    /// It was decided meanwhile, or its attempt ended.
    #[error("{unit}: the call no longer waits for a decision")]
    CallNotWaiting { unit: UnitKey },
    #[error("a plain session has no limits to change, and its calls cannot be held")]
    CannotHold,
    #[error("the run does not wait for a review")]
    NotInReview,
    #[error("the review has no such change: {}", .path.escape_debug())]
    UnknownChange { path: String },
    /// Not every change has a decision.
    #[error("{open} changes have no decision yet, such as {}", .path.escape_debug())]
    ReviewIncomplete {
        open: usize,
        /// The first file with such a change.
        path: String,
    },
    #[error("{problem}")]
    InvalidArgument { problem: String },
    #[error("the run has ended and accepts no commands")]
    RunEnded,
    /// Of the kind that the request needs: attached clients, or requests that are carried out.
    #[error("{limit} other clients use the run, which is the limit")]
    TooManyClients { limit: usize },
}

/// Parses a line of a client.
///
/// # Errors
/// The reply to a line that is not a request of this version.
pub fn parse_request(line: &str) -> Result<ClientRequest, EngineReply> {
    #[derive(Deserialize)]
    struct RequestHead {
        version: u32,
        id: Option<u64>,
    }
    let invalid = |id, message| EngineReply {
        version: CONTROL_VERSION,
        id,
        reply: CommandReply::Invalid { message },
    };
    let head: RequestHead = serde_json::from_str(line).map_err(|error| {
        invalid(
            None,
            format!(
                "invalid request: {error}; expected a JSON object with version, id and command"
            ),
        )
    })?;
    if head.version != CONTROL_VERSION {
        let message = format!(
            "unsupported protocol version {}; supported: {CONTROL_VERSION}",
            head.version
        );
        return Err(invalid(head.id, message));
    }
    serde_json::from_str(line)
        .map_err(|error| invalid(head.id, format!("invalid request: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unit() -> UnitKey {
        "dbt-all".into()
    }

    fn set(limit: RunLimit) -> RunCommand {
        RunCommand::Set { limit }
    }

    fn orders() -> Vec<ReviewOrder> {
        let order = |hunk: Option<&str>, verdict| {
            let hunk = hunk.map(str::to_owned);
            ReviewOrder {
                path: "a.md".into(),
                hunk,
                verdict,
                reason: None,
            }
        };
        vec![
            ReviewOrder {
                reason: Some("stale".into()),
                ..order(None, ReviewVerdict::Reject)
            },
            order(None, ReviewVerdict::Accept),
            order(Some("0123456789"), ReviewVerdict::Reject),
            order(None, ReviewVerdict::SendBack("shorter".into())),
            order(None, ReviewVerdict::Edit("# A\n".into())),
            order(None, ReviewVerdict::Reopen),
        ]
    }

    /// The JSON form of every command.
    fn commands() -> Vec<(RunCommand, Value)> {
        let call = || Some("toolu_1".into());
        let decide = |decision| RunCommand::Decide {
            unit: unit(),
            call: call(),
            decision,
        };
        let input = Map::from_iter([("path".to_owned(), json!("a.md"))]);
        let answer = Map::from_iter([("Which?".to_owned(), json!("Table"))]);
        let amendment = Amendment {
            feedback: Some("shorter".into()),
            ..Amendment::default()
        };
        let conditions = vec![
            BreakCondition::Failure,
            BreakCondition::Tool(NamePattern::new("wiki_*").unwrap()),
            BreakCondition::Path(NamePattern::new("*.yml").unwrap()),
            BreakCondition::Cost(0.5),
            BreakCondition::Silence(Millis(30_000)),
        ];
        vec![
            (
                RunCommand::Retry {
                    unit: unit(),
                    amendment: None,
                },
                json!({"command": "retry", "unit": "dbt-all"}),
            ),
            (
                RunCommand::Retry {
                    unit: unit(),
                    amendment: Some(amendment),
                },
                json!({"command": "retry", "unit": "dbt-all", "amendment": {"feedback": "shorter"}}),
            ),
            (
                RunCommand::RetryUnsuccessful,
                json!({"command": "retry_unsuccessful"}),
            ),
            (
                RunCommand::RetryUnits {
                    units: vec![unit()],
                    amendment: None,
                },
                json!({"command": "retry_units", "units": ["dbt-all"]}),
            ),
            (
                RunCommand::Stop { unit: unit() },
                json!({"command": "stop", "unit": "dbt-all"}),
            ),
            (RunCommand::Drain, json!({"command": "drain"})),
            (RunCommand::LiftLimit, json!({"command": "lift_limit"})),
            (
                RunCommand::AdjustConcurrency { by: -1 },
                json!({"command": "adjust_concurrency", "by": -1}),
            ),
            (RunCommand::Pause, json!({"command": "pause"})),
            (RunCommand::Resume, json!({"command": "resume"})),
            (
                set(RunLimit::Concurrency(4)),
                json!({"command": "set", "limit": {"concurrency": 4}}),
            ),
            (
                set(RunLimit::RunBudget(Some(2.5))),
                json!({"command": "set", "limit": {"run_budget": 2.5}}),
            ),
            (
                set(RunLimit::RunBudget(None)),
                json!({"command": "set", "limit": {"run_budget": null}}),
            ),
            (
                set(RunLimit::Turns(40)),
                json!({"command": "set", "limit": {"turns": 40}}),
            ),
            (
                set(RunLimit::Retries(0)),
                json!({"command": "set", "limit": {"retries": 0}}),
            ),
            (
                set(RunLimit::ToolFailures(FailureRule::Recoverable)),
                json!({"command": "set", "limit": {"tool_failures": "recoverable"}}),
            ),
            (
                set(RunLimit::SilenceTimeout(Some(Millis(90_000)))),
                json!({"command": "set", "limit": {"silence_timeout": 90_000}}),
            ),
            (RunCommand::StopAll, json!({"command": "stop_all"})),
            (RunCommand::KillAll, json!({"command": "kill_all"})),
            (
                RunCommand::Hold { unit: unit() },
                json!({"command": "hold", "unit": "dbt-all"}),
            ),
            (
                RunCommand::Release { unit: unit() },
                json!({"command": "release", "unit": "dbt-all"}),
            ),
            (
                RunCommand::RunUntil {
                    unit: unit(),
                    call: call(),
                    conditions,
                },
                json!({"command": "run_until", "unit": "dbt-all", "call": "toolu_1", "conditions": [
                    {"condition": "failure"},
                    {"condition": "tool", "value": "wiki_*"},
                    {"condition": "path", "value": "*.yml"},
                    {"condition": "cost", "value": 0.5},
                    {"condition": "silence", "value": 30_000},
                ]}),
            ),
            (
                RunCommand::Accept { unit: unit() },
                json!({"command": "accept", "unit": "dbt-all"}),
            ),
            (
                RunCommand::Review {
                    decisions: orders(),
                },
                json!({"command": "review", "decisions": [
                    {"path": "a.md", "verdict": "reject", "reason": "stale"},
                    {"path": "a.md", "verdict": "accept"},
                    {"path": "a.md", "hunk": "0123456789", "verdict": "reject"},
                    {"path": "a.md", "verdict": {"send_back": "shorter"}},
                    {"path": "a.md", "verdict": {"edit": "# A\n"}},
                    {"path": "a.md", "verdict": "reopen"},
                ]}),
            ),
            (
                RunCommand::UndoReview { known: None },
                json!({"command": "undo_review"}),
            ),
            (
                RunCommand::UndoReview { known: Some(2) },
                json!({"command": "undo_review", "known": 2}),
            ),
            (
                RunCommand::FinishReview {
                    branch: None,
                    leave_blocked: false,
                },
                json!({"command": "finish_review"}),
            ),
            (
                RunCommand::FinishReview {
                    branch: None,
                    leave_blocked: true,
                },
                json!({"command": "finish_review", "leave_blocked": true}),
            ),
            (
                RunCommand::FinishReview {
                    branch: Some("ingest/docs".into()),
                    leave_blocked: false,
                },
                json!({"command": "finish_review", "branch": "ingest/docs"}),
            ),
            (
                RunCommand::Leash {
                    unit: unit(),
                    calls: 5,
                },
                json!({"command": "leash", "unit": "dbt-all", "calls": 5}),
            ),
            (
                RunCommand::Say {
                    unit: unit(),
                    text: "use euros".into(),
                },
                json!({"command": "say", "unit": "dbt-all", "text": "use euros"}),
            ),
            (
                RunCommand::Request {
                    unit: unit(),
                    request: AgentRequest::Model("opus".into()),
                },
                json!({"command": "request", "unit": "dbt-all", "request": {"model": "opus"}}),
            ),
            (
                RunCommand::Request {
                    unit: unit(),
                    request: AgentRequest::Context,
                },
                json!({"command": "request", "unit": "dbt-all", "request": "context"}),
            ),
            (
                decide(UserDecision::Allow),
                json!({"command": "decide", "unit": "dbt-all", "call": "toolu_1", "decision": "allow"}),
            ),
            (
                decide(UserDecision::Edit(input)),
                json!({"command": "decide", "unit": "dbt-all", "call": "toolu_1", "decision": {"edit": {"path": "a.md"}}}),
            ),
            (
                decide(UserDecision::Answer(answer)),
                json!({"command": "decide", "unit": "dbt-all", "call": "toolu_1", "decision": {"answer": {"Which?": "Table"}}}),
            ),
            (
                decide(UserDecision::Cancel),
                json!({"command": "decide", "unit": "dbt-all", "call": "toolu_1", "decision": "cancel"}),
            ),
            (
                decide(UserDecision::Deny("no".into())),
                json!({"command": "decide", "unit": "dbt-all", "call": "toolu_1", "decision": {"deny": "no"}}),
            ),
        ]
    }

    #[test]
    fn commands_have_a_stable_json_form() {
        for (command, json) in commands() {
            assert_eq!(serde_json::to_value(&command).unwrap(), json);
            assert_eq!(json["command"], command.name());
            assert_eq!(serde_json::from_value::<RunCommand>(json).unwrap(), command);
        }
    }

    #[test]
    fn unusable_commands_are_errors() {
        let unusable = [
            json!({"command": "reboot"}),
            json!({"command": "stop"}),
            json!({"command": "stop", "unit": "a", "force": true}),
            json!({"command": "retry", "unit": "a", "amendment": {"feedbak": "x"}}),
            json!({"command": "adjust_concurrency", "by": 1_u64 << 40}),
            json!({"command": "run_until", "unit": "a", "conditions": [{"condition": "tool", "value": "[a"}]}),
            json!({"command": "run_until", "unit": "a", "conditions": [{"condition": "cost", "value": -1}]}),
            json!([1]),
        ];
        for json in unusable {
            assert!(
                serde_json::from_value::<RunCommand>(json.clone()).is_err(),
                "{json}"
            );
        }
    }

    #[test]
    fn commands_with_unusable_values_have_a_problem() {
        let retry = |amendment| RunCommand::Retry {
            unit: unit(),
            amendment: Some(amendment),
        };
        let turns = |turns| {
            retry(Amendment {
                step_budget: Some(turns),
                ..Amendment::default()
            })
        };
        let model = |model: &str| {
            retry(Amendment {
                model: Some(model.into()),
                ..Amendment::default()
            })
        };
        let deny = |why: &str| RunCommand::Decide {
            unit: unit(),
            call: None,
            decision: UserDecision::Deny(why.into()),
        };
        let until = |conditions| RunCommand::RunUntil {
            unit: unit(),
            call: None,
            conditions,
        };
        let feedback = "x".repeat(MAX_FEEDBACK_CHARS + 1);
        let review = |hunk: Option<&str>, verdict| {
            let order = ReviewOrder {
                path: "a.md".into(),
                hunk: hunk.map(str::to_owned),
                verdict,
                reason: None,
            };
            RunCommand::Review {
                decisions: vec![order],
            }
        };
        for bad in [
            turns(0),
            turns(MAX_TURNS + 1),
            model(""),
            model("a b"),
            retry(Amendment {
                feedback: Some(feedback),
                ..Amendment::default()
            }),
            RunCommand::Leash {
                unit: unit(),
                calls: 0,
            },
            RunCommand::Say {
                unit: unit(),
                text: " ".into(),
            },
            set(RunLimit::Concurrency(0)),
            set(RunLimit::Concurrency(65)),
            set(RunLimit::RunBudget(Some(0.0))),
            set(RunLimit::Turns(0)),
            set(RunLimit::Retries(101)),
            set(RunLimit::SilenceTimeout(Some(Millis(999)))),
            deny(" "),
            until(Vec::new()),
            until(vec![
                BreakCondition::Failure,
                BreakCondition::Silence(Millis(1)),
            ]),
            review(None, ReviewVerdict::SendBack(" ".into())),
            review(
                None,
                ReviewVerdict::SendBack("x".repeat(MAX_FEEDBACK_CHARS + 1)),
            ),
            review(None, ReviewVerdict::Edit("x".repeat(1 << 20))),
            review(None, ReviewVerdict::Edit("\0".into())),
            review(Some("0123456789"), ReviewVerdict::Edit("a".into())),
            RunCommand::Review {
                decisions: Vec::new(),
            },
        ] {
            assert!(bad.problem().is_some(), "{bad:?}");
        }
        for good in [
            set(RunLimit::Concurrency(64)),
            set(RunLimit::RunBudget(None)),
            set(RunLimit::SilenceTimeout(None)),
            turns(1),
            turns(MAX_TURNS),
            model("opus"),
            deny("no"),
            until(vec![BreakCondition::Failure]),
            RunCommand::Review {
                decisions: orders(),
            },
        ] {
            assert_eq!(good.problem(), None, "{good:?}");
        }
    }

    #[test]
    fn unusable_requests_get_a_reply_that_names_what_is_supported() {
        let message = |line: &str| {
            let reply = parse_request(line).unwrap_err();
            let CommandReply::Invalid { message } = reply.reply else {
                panic!("{reply:?}")
            };
            (reply.id, message)
        };
        assert_eq!(message("nonsense").0, None);
        let (id, text) = message(r#"{"version":2,"id":7,"command":{"command":"new"}}"#);
        assert_eq!(
            (id, text.as_str()),
            (Some(7), "unsupported protocol version 2; supported: 1")
        );
        let (id, text) = message(r#"{"version":1,"id":8,"command":{"command":"reboot"}}"#);
        assert!(
            id == Some(8) && text.contains("`reboot`") && text.contains("`kill_all`"),
            "{text}"
        );
        assert!(
            message(r#"{"version":1,"id":9,"command":{"command":"drain"},"sudo":true}"#)
                .1
                .contains("sudo")
        );
        assert!(message(r#"{"version":1,"id":9}"#).1.contains("exactly one"));
        assert!(
            message(r#"{"version":1,"id":9,"command":{"command":"drain"},"detach":{}}"#)
                .1
                .contains("exactly one")
        );
        let long = format!(
            r#"{{"version":1,"id":9,"detach":{{}},"client":"{}"}}"#,
            "x".repeat(61)
        );
        assert!(message(&long).1.contains("too long"));
    }

    #[test]
    fn published_schemas_are_current() {
        let schemas = json!({
            "request": schemars::schema_for!(RequestFields),
            "line": schemars::schema_for!(EngineLine),
        });
        let text = format!("{schemas:#}\n");
        let path = concat!(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../.."),
            "/assets/control.schema.json"
        );
        if std::env::var_os("INGESTDECK_WRITE_FORMATS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            text,
            "INGESTDECK_WRITE_FORMATS=1 updates the file"
        );
    }

    #[test]
    fn requests_have_a_stable_json_form() {
        let origin = CommandOrigin {
            client: Some("ctl".into()),
            reason: Some("too slow".into()),
        };
        let attach = AttachRequest {
            on_disconnect: DisconnectAction::Stop,
        };
        for (body, origin, json) in [
            (
                RequestBody::Command(RunCommand::Drain),
                origin,
                json!({"version": 1, "id": 4, "command": {"command": "drain"}, "client": "ctl", "reason": "too slow"}),
            ),
            (
                RequestBody::Attach(attach),
                CommandOrigin::default(),
                json!({"version": 1, "id": 4, "attach": {"on_disconnect": "stop"}}),
            ),
            (
                RequestBody::Detach,
                CommandOrigin::default(),
                json!({"version": 1, "id": 4, "detach": {}}),
            ),
        ] {
            let request = ClientRequest {
                id: 4,
                body,
                origin,
            };
            assert_eq!(serde_json::to_value(&request).unwrap(), json);
            assert_eq!(parse_request(&json.to_string()).unwrap(), request);
        }
    }

    #[test]
    fn replies_have_a_stable_json_form() {
        let refused = CommandReply::Refused {
            reason: RefusalReason::CallNotWaiting { unit: unit() },
        };
        let json =
            json!({"reply": "refused", "reason": {"kind": "call_not_waiting", "unit": "dbt-all"}});
        assert_eq!(serde_json::to_value(&refused).unwrap(), json);
        assert_eq!(
            serde_json::to_value(CommandReply::Accepted).unwrap(),
            json!({"reply": "accepted"})
        );
        let reply = EngineReply {
            version: 1,
            id: Some(3),
            reply: refused,
        };
        let json = json!({"version": 1, "id": 3, "reply": "refused", "reason": {"kind": "call_not_waiting", "unit": "dbt-all"}});
        assert_eq!(serde_json::to_value(&reply).unwrap(), json);
        assert_eq!(
            serde_json::from_value::<EngineLine>(json).unwrap(),
            EngineLine::Reply(reply)
        );
        let event = EngineEvent::RecordingFailed {
            message: "disk full".into(),
        };
        let json = json!({"event": "recording_failed", "message": "disk full"});
        assert_eq!(serde_json::to_value(&event).unwrap(), json);
        assert_eq!(
            serde_json::from_value::<EngineLine>(json).unwrap(),
            EngineLine::Event(event)
        );
    }
}
