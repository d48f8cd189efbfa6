//! One line of a stream: head and body. Every field that some release since 1.0.128 omits is optional.

use std::borrow::Cow;

use super::{LazyText, MessageBlocks, RawJson};

/// The kind of a line in one byte, for an index and for the colours of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LineKind {
    Init,
    /// Any other `system` line.
    System,
    Assistant,
    User,
    StreamEvent,
    ToolProgress,
    RateLimit,
    /// `control_request`, `control_response`, `control_cancel_request`, `command_lifecycle`, `keep_alive`.
    Control,
    Result,
    /// JSON object of an unknown type, or a bookkeeping line of a session file.
    Other,
    /// Not a JSON object with a type.
    Malformed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AgentLine<'a> {
    /// `session_id`, or `sessionId` in session files.
    pub session_id: Option<Cow<'a, str>>,
    /// Set on lines of a sub-agent.
    pub parent_tool_use_id: Option<Cow<'a, str>>,
    /// The unparsed value of `timestamp`.
    pub timestamp: Option<Cow<'a, str>>,
    /// True for a line of a session file, which contains `sessionId`.
    pub is_session_file: bool,
    /// True for a line of a sub-agent in a session file, which has no `parent_tool_use_id`.
    pub is_sidechain: bool,
    /// `agentId` of a sub-agent in a session file.
    pub agent_id: Option<Cow<'a, str>>,
    pub body: LineBody<'a>,
}

/// The content of a line, by its type.
#[derive(Clone, Debug, PartialEq)]
pub enum LineBody<'a> {
    Init(Box<InitLine<'a>>),
    System(SystemLine<'a>),
    /// `assistant` (or the alias `assistant_message`, or a top-level `tool_use`).
    Assistant(ChatLine<'a>),
    /// `user` (or a top-level `tool_result`).
    User(ChatLine<'a>),
    StreamEvent(StreamDelta<'a>),
    ToolProgress {
        /// Id of the call, with the heartbeat suffix removed.
        tool_use_id: Cow<'a, str>,
        /// Seconds since the call began.
        elapsed_seconds: f64,
    },
    RateLimit(RateLimitEvent<'a>),
    /// A frame of the two-way protocol.
    Control {
        /// The type: `control_request`, `control_response`, …
        kind: Cow<'a, str>,
        /// Subtype of the request or response: `initialize`, `mcp_message`, `hook_callback`, `success`, `error`, …
        subtype: Cow<'a, str>,
        request_id: Cow<'a, str>,
        /// The value of `request` or `response`.
        payload: Option<RawJson<'a>>,
    },
    Result(Box<ResultLine<'a>>),
    /// A line that only session files contain.
    SessionFile(SessionFileLine<'a>),
    /// JSON object of an unknown type, with the type.
    Other(Cow<'a, str>),
    /// Not a JSON object with a type.
    Malformed,
}

impl AgentLine<'_> {
    /// Who wrote the text of a `user` line.
    pub fn text_author(&self) -> TextAuthor {
        match &self.body {
            LineBody::User(chat) => chat.author,
            _ => TextAuthor::Sender,
        }
    }
}

impl LineBody<'_> {
    pub fn kind(&self) -> LineKind {
        match self {
            Self::Init(_) => LineKind::Init,
            Self::System(_) => LineKind::System,
            Self::Assistant(_) => LineKind::Assistant,
            Self::User(_) => LineKind::User,
            Self::StreamEvent(_) => LineKind::StreamEvent,
            Self::ToolProgress { .. } => LineKind::ToolProgress,
            Self::RateLimit(_) => LineKind::RateLimit,
            Self::Control { .. } => LineKind::Control,
            Self::Result(_) => LineKind::Result,
            Self::SessionFile(_) | Self::Other(_) => LineKind::Other,
            Self::Malformed => LineKind::Malformed,
        }
    }
}

/// The content of a `system/init` line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitLine<'a> {
    pub cwd: Option<Cow<'a, str>>,
    pub model: Option<Cow<'a, str>>,
    /// Tools that are offered to the model.
    pub tools: Vec<Cow<'a, str>>,
    /// MCP servers as (name, status).
    pub mcp_servers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub permission_mode: Option<Cow<'a, str>>,
    pub api_key_source: Option<Cow<'a, str>>,
    pub output_style: Option<Cow<'a, str>>,
    /// Raw value of `memory_paths`.
    pub memory_paths: Option<RawJson<'a>>,
    pub version: Option<Cow<'a, str>>,
    /// Plugins as (name, path).
    pub plugins: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub agents: Vec<Cow<'a, str>>,
    pub skills: Vec<Cow<'a, str>>,
    pub slash_commands: Vec<Cow<'a, str>>,
    /// Raw value of `tools`.
    pub tools_raw: Option<RawJson<'a>>,
    /// Raw value of `mcp_servers`.
    pub mcp_servers_raw: Option<RawJson<'a>>,
}

/// `system` lines other than `init`.
#[derive(Clone, Debug, PartialEq)]
pub enum SystemLine<'a> {
    /// A call was denied by the permission mode or a rule.
    PermissionDenied {
        tool_name: Cow<'a, str>,
        tool_use_id: Cow<'a, str>,
        /// The denial as the agent describes it.
        message: Option<Cow<'a, str>>,
    },
    /// The CLI retries an API call.
    ApiRetry {
        /// Number of this attempt.
        attempt: Option<u64>,
        /// Maximum number of attempts.
        max_retries: Option<u64>,
        /// Milliseconds before the attempt.
        delay_ms: Option<f64>,
        /// HTTP status; `None` for a network error.
        status: Option<u64>,
        /// Class of the error.
        error: Option<Cow<'a, str>>,
    },
    /// The current activity of the agent, or a change of its permission mode.
    Status {
        /// The new `permissionMode` after a change.
        permission_mode: Option<Cow<'a, str>>,
    },
    /// The context was compacted.
    Compacted {
        trigger: Option<Cow<'a, str>>,
        /// Tokens before the compaction.
        pre_tokens: Option<u64>,
    },
    /// Another model replaces the requested one.
    ModelFallback {
        from: Option<Cow<'a, str>>,
        to: Option<Cow<'a, str>>,
        /// True if the first model refused to answer.
        refused: bool,
    },
    /// The agent could not save everything. The lost lines are also missing when the session is resumed.
    WritesLost {
        /// Error code: `ENOSPC` or `EDQUOT`.
        code: Option<Cow<'a, str>>,
        /// Lost files: `transcript` or `global_config`.
        lost: Vec<Cow<'a, str>>,
    },
    /// `auth_status`: progress of signing in.
    AuthStatus {
        /// The error, if signing in failed.
        error: Option<Cow<'a, str>>,
    },
    /// `conversation_reset`: earlier messages are no longer in the context.
    ConversationReset {
        /// Session id from then on.
        session: Option<Cow<'a, str>>,
    },
    /// A sub-agent or background task.
    Task(Box<TaskLine<'a>>),
    /// A notice for people.
    Notice {
        text: Cow<'a, str>,
        /// The value of `level` or `priority`.
        level: Option<Cow<'a, str>>,
    },
    /// Another known subtype that is not shown.
    Other(Cow<'a, str>),
    /// A subtype that is not known.
    Unknown(Cow<'a, str>),
}

/// A line about a sub-agent, a command in the background or a workflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskLine<'a> {
    /// `task_started`, `task_progress`, `task_updated`, `task_notification`.
    pub subtype: Cow<'a, str>,
    pub task_id: Option<Cow<'a, str>>,
    /// The call that started it.
    pub tool_use_id: Option<Cow<'a, str>>,
    /// `is_backgrounded` of `task_started` or of the patch; older releases and workflows leave it out.
    pub backgrounded: Option<bool>,
    /// `status` of the line or of the patch.
    pub status: Option<Cow<'a, str>>,
    /// What came of it, or its progress in a sentence.
    pub summary: Option<Cow<'a, str>>,
    /// What it does, as the model or the workflow names it.
    pub description: Option<Cow<'a, str>>,
    /// `local_bash`, `local_agent`, `local_workflow`, …
    pub task_type: Option<Cow<'a, str>>,
    pub workflow_name: Option<Cow<'a, str>>,
    /// `usage.total_tokens`: tokens of all its messages so far.
    pub tokens: Option<u64>,
    /// Housekeeping of the agent, which is not shown.
    pub ambient: bool,
    /// Raw value of `workflow_progress`.
    pub progress: Option<RawJson<'a>>,
}

/// A phase or an agent of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowItem<'a> {
    /// True for an agent, false for a phase.
    pub is_agent: bool,
    /// Number among the phases or among the agents.
    pub index: u64,
    /// Title of the phase, or label of the agent.
    pub name: Cow<'a, str>,
    /// The phase of an agent.
    pub phase: Option<Cow<'a, str>>,
    /// State of an agent: `start`, `progress`, `done` or `error`.
    pub state: Option<Cow<'a, str>>,
    pub error: Option<Cow<'a, str>>,
    pub tokens: Option<u64>,
    pub tool_calls: Option<u64>,
}

impl<'a> TaskLine<'a> {
    /// The phases and agents of a workflow, in the order of the line. Other elements are `None`.
    pub fn workflow_items(&self) -> impl Iterator<Item = Option<WorkflowItem<'a>>> {
        let items = self.progress.map(RawJson::items).unwrap_or_default();
        items.into_iter().map(WorkflowItem::parse)
    }
}

impl<'a> WorkflowItem<'a> {
    fn parse(item: RawJson<'a>) -> Option<Self> {
        let [kind, index, title, label, phase, state, error] = item.pick([
            "type",
            "index",
            "title",
            "label",
            "phaseTitle",
            "state",
            "error",
        ]);
        let [tokens, calls] = item.pick(["tokens", "toolCalls"]);
        let text = |value: Option<RawJson<'a>>| value.and_then(RawJson::as_str);
        let number =
            |value: Option<RawJson<'a>>| value.and_then(|value| value.0.trim().parse().ok());
        let (is_agent, name) = match text(kind)?.as_ref() {
            "workflow_agent" => (true, text(label)),
            "workflow_phase" => (false, text(title)),
            _ => return None,
        };
        Some(Self {
            is_agent,
            index: number(index)?,
            name: name.unwrap_or_default(),
            phase: text(phase),
            state: text(state),
            error: text(error),
            tokens: number(tokens),
            tool_calls: number(calls),
        })
    }

    /// Whether an agent succeeded, once it has ended.
    pub fn outcome(&self) -> Option<bool> {
        match self.state.as_deref() {
            Some("done") => Some(true),
            Some("error") => Some(false),
            _ => None,
        }
    }
}

/// The content of an `assistant` or `user` line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatLine<'a> {
    /// `message.id`; several lines share one.
    pub message_id: Option<Cow<'a, str>>,
    /// `requestId`, in session files: the request that the message answers.
    pub request_id: Option<Cow<'a, str>>,
    pub model: Option<Cow<'a, str>>,
    /// Content blocks. A string content becomes one text block.
    pub blocks: MessageBlocks<'a>,
    pub usage: Option<Usage>,
    /// `costUSD`, which early releases wrote into session files.
    pub cost_usd: Option<f64>,
    /// `message.stop_reason`: null in the stream, filled in session files.
    pub stop_reason: Option<Cow<'a, str>>,
    /// `error` next to the message (`authentication_failed`, `rate_limit`, …).
    pub error: Option<Cow<'a, str>>,
    /// `api_error` (`usage_limit_reached`, `connection_failed`, `max_output_tokens`).
    pub api_error: Option<Cow<'a, str>>,
    pub api_error_status: Option<u64>,
    /// Text that the harness injected.
    pub synthetic: bool,
    /// Who wrote the text of a `user` line.
    pub author: TextAuthor,
    /// True if an interrupt cut the message off.
    pub aborted: bool,
    /// Ids of calls that were refused instead of executed (`tool_result_meta` contains `reject` or a non-execution
    /// kind).
    pub refused: Vec<Cow<'a, str>>,
}

/// Who wrote the text of a `user` line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextAuthor {
    /// A person, or the agent that started this one.
    #[default]
    Sender,
    /// The summary of a conversation that was compacted.
    Compaction,
    /// The report of a background task.
    BackgroundTask,
}

/// The content of a line that only session files contain.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionFileLine<'a> {
    /// `cost-state`: the cost of the whole session so far.
    Cost {
        total_usd: Option<f64>,
        /// True if the prices of some models are unknown, so that the total is too low.
        is_incomplete: bool,
        /// `startTime` in milliseconds since 1970. A fork has that of its parent.
        started: Option<u64>,
    },
    /// A title of the session, see [`TitleSource`].
    Title(TitleSource, Cow<'a, str>),
    /// A message that arrived during a turn.
    QueuedText(TextAuthor, LazyText<'a>),
    /// A line that is not shown, with its type.
    Bookkeeping(Cow<'a, str>),
}

/// Where a title of a session comes from, in ascending order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TitleSource {
    /// `summary`: a summary of a part of the conversation.
    Summary,
    /// `ai-title`: written by a model.
    Model,
    /// `custom-title`: chosen by a person.
    Person,
}

impl ChatLine<'_> {
    /// True for a message that the agent wrote without calling the model.
    pub(crate) fn is_synthetic(&self) -> bool {
        self.model.as_deref() == Some(SYNTHETIC_MODEL)
    }
}

/// Model name in messages that the agent wrote without calling the model.
pub(crate) const SYNTHETIC_MODEL: &str = "<synthetic>";

/// The counts of a `usage`. They are parsed immediately because every message of the model has one. Absent counts are
/// 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// Tokens among `cache_write` that are kept for one hour instead of five minutes.
    pub cache_write_1h: u64,
    pub web_searches: u64,
    /// The message is from fast mode (`speed` is `fast`).
    pub is_fast: bool,
    /// Processed in the United States only (`inference_geo` is `us`).
    pub is_us_only: bool,
}

/// `stream_event`: the part that it adds to a message.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamDelta<'a> {
    Text(Cow<'a, str>),
    Thinking(Cow<'a, str>),
    /// `message_delta`: the final counts of a message, which the `assistant` lines before it lack.
    Usage {
        /// `api_message_id`; older releases leave it out.
        message_id: Option<Cow<'a, str>>,
        usage: Usage,
    },
    /// Anything else, with its `event.type`.
    Other(Cow<'a, str>),
}

/// The content of a `rate_limit_event` line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateLimitEvent<'a> {
    /// `allowed`, `allowed_warning` or `rejected`.
    pub status: Cow<'a, str>,
    /// `resetsAt` in Unix seconds (milliseconds are recognised by their size).
    pub resets_at: Option<i64>,
    /// Name of the usage window: `five_hour`, …
    pub limit: Option<Cow<'a, str>>,
    /// From 0 to 1.
    pub utilization: Option<f64>,
    /// `unifiedWindows`: every usage window, also those that the fields above do not describe.
    pub windows: Vec<ReportedWindow<'a>>,
}

/// `invalid_config_file` of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidConfigFile<'a> {
    pub path: Cow<'a, str>,
    /// A backup of it, if there is one.
    pub backup: Option<Cow<'a, str>>,
}

/// One entry of `unifiedWindows`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedWindow<'a> {
    pub name: Cow<'a, str>,
    pub status: Option<Cow<'a, str>>,
    /// Time of the reset in Unix seconds.
    pub resets_at: Option<i64>,
    /// From 0 to 1.
    pub utilization: Option<f64>,
}

/// The content of a `result` line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultLine<'a> {
    /// Subtype: `success`, `error_max_turns`, …
    pub subtype: Option<Cow<'a, str>>,
    /// `is_error`, when it is a boolean.
    pub is_error: Option<bool>,
    pub terminal_reason: Option<Cow<'a, str>>,
    pub stop_reason: Option<Cow<'a, str>>,
    /// The final text of the model.
    pub result: Option<Cow<'a, str>>,
    /// `error`, when it is a string.
    pub error: Option<Cow<'a, str>>,
    /// `errors[]`: strings, or the messages of objects.
    pub errors: Vec<Cow<'a, str>>,
    pub denials: Vec<PermissionDenial<'a>>,
    /// Raw value of `usage`.
    pub usage: Option<RawJson<'a>>,
    /// Raw value of `modelUsage`.
    pub model_usage: Option<RawJson<'a>>,
    /// Raw value of `model_usage_since_last_result`: the part of this turn.
    pub model_usage_since_last_result: Option<RawJson<'a>>,
    /// `total_cost_usd`: total of the process, and in some releases also of the session before it.
    pub total_cost_usd: Option<f64>,
    /// Sum of the costs in `model_usage_since_last_result`, which is the cost of this turn.
    pub cost_since_last_result: Option<f64>,
    pub duration_ms: Option<u64>,
    pub duration_api_ms: Option<u64>,
    /// `num_turns`, which is not the number of API calls.
    pub num_turns: Option<u64>,
    pub api_error_status: Option<u64>,
    /// `startup_failure_reason`: why Claude Code did not start.
    pub startup_failure: Option<Cow<'a, str>>,
    pub invalid_config: Option<InvalidConfigFile<'a>>,
}

impl ResultLine<'_> {
    /// Takopi's rule: `is_error` decides; without it, a subtype that starts with `error` is an error.
    pub fn failed(&self) -> bool {
        self.is_error.unwrap_or_else(|| {
            self.subtype
                .as_deref()
                .is_some_and(|subtype| subtype.starts_with("error"))
        })
    }
}

/// One entry of `permission_denials`.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionDenial<'a> {
    /// Tool name; in the legacy string form, the string.
    pub tool_name: Option<Cow<'a, str>>,
    pub tool_use_id: Option<Cow<'a, str>>,
    pub tool_input: Option<RawJson<'a>>,
}
