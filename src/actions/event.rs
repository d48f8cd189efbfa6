//! The event contract, serialised exactly as Takopi's shapes. Borrowed from the line where possible.
//!
//! How it becomes JSON is described once, in `json`. It must not know how events come about.

use std::{borrow::Cow, sync::Arc};

use crate::decode::{LazyText, RawJson};

/// The only engine.
pub const ENGINE: &str = "claude";

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentEvent<'a> {
    /// The session is known.
    Started(StartedEvent<'a>),
    /// Something the agent did.
    Action(Box<ActionEvent<'a>>),
    /// The run of the agent is over. Exactly one, always last.
    Completed(Box<CompletedEvent<'a>>),
}

/// `started`.
#[derive(Clone, Debug, PartialEq)]
pub struct StartedEvent<'a> {
    /// Session id.
    pub resume: Cow<'a, str>,
    /// Model, or the configured one, or `claude`.
    pub title: Cow<'a, str>,
    /// Facts of `init` that are not null: cwd, tools, permissionMode, output_style, apiKeySource, mcp_servers.
    pub meta: Option<Box<StartedMeta<'a>>>,
}

/// Meta of `started`: facts of `init`, left out where it does not say them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartedMeta<'a> {
    /// Working directory.
    pub cwd: Option<Cow<'a, str>>,
    /// Tools, as they came.
    pub tools: Option<RawJson<'a>>,
    /// `permissionMode`.
    pub permission_mode: Option<Cow<'a, str>>,
    /// `output_style`.
    pub output_style: Option<Cow<'a, str>>,
    /// `apiKeySource`: where the key came from.
    pub api_key_source: Option<Cow<'a, str>>,
    /// Servers, as they came.
    pub mcp_servers: Option<RawJson<'a>>,
}

/// `action` with its phase.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionEvent<'a> {
    /// What.
    pub action: AgentAction<'a>,
    /// Where it stands.
    pub phase: ActionPhase,
    /// Success of a completed action.
    pub ok: Option<bool>,
    /// A word to people.
    pub message: Option<Cow<'a, str>>,
    /// Severity.
    pub level: Option<EventLevel>,
}

/// An action. Later events with the same id replace earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentAction<'a> {
    /// Stable and unique in its attempt.
    pub id: Cow<'a, str>,
    /// Kind.
    pub kind: ActionKind,
    /// One line for people; raw, so whoever draws it must escape it.
    pub title: Cow<'a, str>,
    /// The rest, in the contract's keys.
    pub detail: ActionDetail<'a>,
}

/// Detail of an action, by what it came from. Serialises as one flat object.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionDetail<'a> {
    /// Nothing to add: `{}`.
    Empty,
    /// A call, and its result once there is one.
    Tool(Box<ToolDetail<'a>>),
    /// Thinking in full.
    Thinking {
        /// Text.
        text: LazyText<'a>,
        /// Of a sub-agent.
        parent_tool_use_id: Option<Cow<'a, str>>,
    },
    /// A denial.
    Denial {
        /// Tool.
        tool_name: Option<Cow<'a, str>>,
        /// Call.
        tool_use_id: Option<Cow<'a, str>>,
        /// Arguments.
        tool_input: Option<JsonRef<'a>>,
    },
    /// A line that is not JSON, cut to 1 KiB.
    MalformedLine(Cow<'a, str>),
}

/// A JSON value of this line, or one that was remembered from an earlier line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonRef<'a> {
    /// Of this line.
    Line(RawJson<'a>),
    /// Of an earlier one.
    Shared(Arc<str>),
}

impl JsonRef<'_> {
    /// Its text.
    pub fn raw(&self) -> RawJson<'_> {
        match self {
            Self::Line(raw) => *raw,
            Self::Shared(text) => RawJson(text),
        }
    }
}

impl<'a> From<RawJson<'a>> for JsonRef<'a> {
    fn from(raw: RawJson<'a>) -> Self {
        Self::Line(raw)
    }
}

/// Detail of a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolDetail<'a> {
    /// `tool_name` (alias `name`).
    pub tool_name: Option<Cow<'a, str>>,
    /// `tool_input` (alias `input`). Later events of a call repeat it while it is at most 64 KiB.
    pub tool_input: Option<JsonRef<'a>>,
    /// `message_id` of the call.
    pub message_id: Option<Cow<'a, str>>,
    /// `parent_tool_use_id`.
    pub parent_tool_use_id: Option<Cow<'a, str>>,
    /// `changes: [{path, kind}]` of a file change.
    pub changes: Option<(Cow<'a, str>, &'static str)>,
    /// `elapsed_seconds`, set while it runs.
    pub elapsed_seconds: Option<f64>,
    /// Set on results.
    pub result: Option<ResultDetail<'a>>,
}

/// What a result adds.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultDetail<'a> {
    /// `tool_use_id`.
    pub tool_use_id: Cow<'a, str>,
    /// `content`, raw, while it is at most 64 KiB.
    pub content: Option<RawJson<'a>>,
    /// `result_len`: length of the raw content in bytes.
    pub result_len: usize,
    /// `truncated`: content was longer and is left out.
    pub truncated: bool,
    /// `is_error`.
    pub is_error: bool,
}

/// Kinds, in Takopi's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionKind {
    /// Shell.
    Command,
    /// Any tool.
    Tool,
    /// A file was written.
    FileChange,
    /// The web was searched.
    WebSearch,
    /// A sub-agent.
    Subagent,
    /// A remark or a thought.
    Note,
    /// A turn.
    Turn,
    /// Something to look at.
    Warning,
    /// Numbers.
    Telemetry,
}

/// Where an action stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionPhase {
    /// It runs.
    Started,
    /// It says something.
    Updated,
    /// It is over.
    Completed,
}

/// Severity, in Takopi's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventLevel {
    /// For the curious.
    Debug,
    /// Normal.
    Info,
    /// Look at it.
    Warning,
    /// It went wrong.
    Error,
}

/// `completed`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletedEvent<'a> {
    /// `!is_error`, to the letter.
    pub ok: bool,
    /// Final text, else the last text of the model.
    pub answer: Cow<'a, str>,
    /// Session id, if any was seen.
    pub resume: Option<Cow<'a, str>>,
    /// Set only when not ok.
    pub error: Option<Cow<'a, str>>,
    /// `result.usage`, untouched.
    pub usage: Option<JsonRef<'a>>,
}
