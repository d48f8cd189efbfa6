//! The event contract, serialised exactly as Takopi's shapes. Values are borrowed from the line where possible.
//!
//! The JSON is described in `event_json`. This module must not depend on how events are created.

use std::{borrow::Cow, sync::Arc};

use crate::decode::{LazyText, RawJson};

/// The value of `engine`, always the same.
pub(crate) const ENGINE: &str = "claude";

#[derive(Clone, Debug, PartialEq)]
pub enum AgentEvent<'a> {
    /// The session is known.
    Started(StartedEvent<'a>),
    /// The agent did something.
    Action(Box<ActionEvent<'a>>),
    /// The run of the agent is over. There is exactly one, always the last event.
    Completed(Box<CompletedEvent<'a>>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct StartedEvent<'a> {
    pub resume: Cow<'a, str>,
    /// Resolved model, else the configured one, else `claude`.
    pub title: Cow<'a, str>,
    /// Non-null values of `init`: cwd, tools, permissionMode, output_style, apiKeySource, mcp_servers.
    pub meta: Option<Box<StartedMeta<'a>>>,
}

/// Values of `init` in the `started` event; absent values are omitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartedMeta<'a> {
    pub cwd: Option<Cow<'a, str>>,
    /// Raw value of `tools`.
    pub tools: Option<RawJson<'a>>,
    pub permission_mode: Option<Cow<'a, str>>,
    pub output_style: Option<Cow<'a, str>>,
    /// `apiKeySource`: the source of the API key.
    pub api_key_source: Option<Cow<'a, str>>,
    /// Raw value of `mcp_servers`.
    pub mcp_servers: Option<RawJson<'a>>,
}

/// An `action` event with its phase.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionEvent<'a> {
    pub action: AgentAction<'a>,
    pub phase: ActionPhase,
    /// Success of a completed action.
    pub ok: Option<bool>,
    /// A message for people.
    pub message: Option<Cow<'a, str>>,
}

/// An action. Later events with the same id replace earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentAction<'a> {
    /// Stable and unique in its attempt.
    pub id: Cow<'a, str>,
    pub kind: ActionKind,
    /// One line for people. It is not escaped, so the caller must escape it for display.
    pub title: Cow<'a, str>,
    /// Further values with the contract's keys.
    pub detail: ActionDetail<'a>,
}

/// Detail of an action, by its origin. Serialises as one flat object.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionDetail<'a> {
    /// No details; serialises as `{}`.
    Empty,
    /// A call, with its result once there is one.
    Tool(Box<ToolDetail<'a>>),
    Thinking {
        text: LazyText<'a>,
        /// Set for thinking of a sub-agent.
        parent_tool_use_id: Option<Cow<'a, str>>,
    },
    Denial {
        tool_name: Option<Cow<'a, str>>,
        tool_use_id: Option<Cow<'a, str>>,
        tool_input: Option<JsonText<'a>>,
    },
    /// What a person wrote, cut to 64 KiB.
    Prompt(Cow<'a, str>),
    /// A line that is not JSON, cut to 1 KiB.
    MalformedLine(Cow<'a, str>),
}

/// A JSON value of this line, or one that was kept from an earlier line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonText<'a> {
    Line(RawJson<'a>),
    Shared(Arc<str>),
}

impl JsonText<'_> {
    pub fn raw(&self) -> RawJson<'_> {
        match self {
            Self::Line(raw) => *raw,
            Self::Shared(text) => RawJson(text),
        }
    }
}

impl<'a> From<RawJson<'a>> for JsonText<'a> {
    fn from(raw: RawJson<'a>) -> Self {
        Self::Line(raw)
    }
}

/// Detail of a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolDetail<'a> {
    /// Field `tool_name` (alias `name`).
    pub tool_name: Option<Cow<'a, str>>,
    /// `tool_input` (alias `input`). Later events of a call repeat it while it is at most 64 KiB.
    pub tool_input: Option<JsonText<'a>>,
    /// `message_id` of the call.
    pub message_id: Option<Cow<'a, str>>,
    pub parent_tool_use_id: Option<Cow<'a, str>>,
    /// `changes: [{path, kind}]` of a file change.
    pub changes: Option<(Cow<'a, str>, &'static str)>,
    /// `elapsed_seconds`, set while it runs.
    pub elapsed_seconds: Option<f64>,
    pub result: Option<ResultDetail<'a>>,
}

/// The fields that a result adds to its call.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultDetail<'a> {
    pub tool_use_id: Cow<'a, str>,
    /// Raw value of `content`, up to 64 KiB.
    pub content: Option<RawJson<'a>>,
    /// `result_len`: length of the content in bytes, as compact JSON.
    pub result_len: usize,
    /// `truncated`: the content was longer and is omitted.
    pub truncated: bool,
    pub is_error: bool,
}

/// Action kinds with Takopi's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionKind {
    Command,
    Tool,
    /// A file was written.
    FileChange,
    /// The web was searched.
    WebSearch,
    Subagent,
    /// A message or a thought.
    Note,
    Warning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionPhase {
    Started,
    Updated,
    Completed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CompletedEvent<'a> {
    /// Exactly `!is_error`, whatever else the result contains.
    pub ok: bool,
    /// Final text, else the last text of the model.
    pub answer: Cow<'a, str>,
    /// Session id, if any was seen.
    pub resume: Option<Cow<'a, str>>,
    /// Set only if `ok` is false.
    pub error: Option<Cow<'a, str>>,
    /// Raw value of `result.usage`.
    pub usage: Option<JsonText<'a>>,
}
