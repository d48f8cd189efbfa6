//! One line of a stream: head and body. Every field is optional where any release since 1.0.128 leaves it out.

use std::borrow::Cow;

use super::{MessageBlock, RawJson};

/// What a line is, in one byte: enough for an index and for colouring a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LineKind {
    /// `system/init`.
    Init,
    /// Any other `system` line.
    System,
    /// `assistant`.
    Assistant,
    /// `user`.
    User,
    /// `stream_event`.
    StreamEvent,
    /// `tool_progress`.
    ToolProgress,
    /// `rate_limit_event`.
    RateLimit,
    /// `control_request`, `control_response`, `control_cancel_request`, `command_lifecycle`, `keep_alive`.
    Control,
    /// `result`.
    Result,
    /// JSON object of a type that we do not know, or a bookkeeping line of a session file.
    Other,
    /// Not a JSON object with a type.
    Malformed,
}

/// One decoded line.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentLine<'a> {
    /// `session_id`, or `sessionId` in session files.
    pub session_id: Option<Cow<'a, str>>,
    /// Set on lines of a sub-agent.
    pub parent_tool_use_id: Option<Cow<'a, str>>,
    /// `timestamp`, as written.
    pub timestamp: Option<Cow<'a, str>>,
    /// True for a line of a session file, which says `sessionId`.
    pub is_session_file: bool,
    /// The rest.
    pub body: LineBody<'a>,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum LineBody<'a> {
    /// `system/init`.
    Init(Box<InitLine<'a>>),
    /// Another `system` line.
    System(SystemLine<'a>),
    /// `assistant` (or the alias `assistant_message`, or a top-level `tool_use`).
    Assistant(ChatLine<'a>),
    /// `user` (or a top-level `tool_result`).
    User(ChatLine<'a>),
    /// `stream_event`.
    StreamEvent(StreamDelta<'a>),
    /// `tool_progress`.
    ToolProgress {
        /// Id of the call, with the heartbeat suffix removed.
        tool_use_id: Cow<'a, str>,
        /// Seconds that it runs.
        elapsed_seconds: f64,
    },
    /// `rate_limit_event`.
    RateLimit(RateLimitEvent<'a>),
    /// A frame of the two-way protocol. Subtype of the request, or of the response.
    Control {
        /// `control_request`, `control_response`, …
        kind: Cow<'a, str>,
        /// `initialize`, `mcp_message`, `hook_callback`, `success`, `error`, …
        subtype: Cow<'a, str>,
        /// Its id.
        request_id: Cow<'a, str>,
        /// `request` or `response`.
        payload: Option<RawJson<'a>>,
    },
    /// `result`.
    Result(Box<ResultLine<'a>>),
    /// JSON object of an unknown type; the type.
    Other(Cow<'a, str>),
    /// Not a JSON object with a type.
    Malformed,
}

impl LineBody<'_> {
    /// Its kind.
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
            Self::Other(_) => LineKind::Other,
            Self::Malformed => LineKind::Malformed,
        }
    }
}

/// `system/init`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitLine<'a> {
    /// Working directory.
    pub cwd: Option<Cow<'a, str>>,
    /// Resolved model id.
    pub model: Option<Cow<'a, str>>,
    /// Tools that the model may see.
    pub tools: Vec<Cow<'a, str>>,
    /// MCP servers as (name, status).
    pub mcp_servers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// `permissionMode`.
    pub permission_mode: Option<Cow<'a, str>>,
    /// `apiKeySource`.
    pub api_key_source: Option<Cow<'a, str>>,
    /// `output_style`.
    pub output_style: Option<Cow<'a, str>>,
    /// `memory_paths` as it came.
    pub memory_paths: Option<RawJson<'a>>,
    /// `claude_code_version`.
    pub version: Option<Cow<'a, str>>,
    /// Plugins as (name, path).
    pub plugins: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Names.
    pub agents: Vec<Cow<'a, str>>,
    /// Names.
    pub skills: Vec<Cow<'a, str>>,
    /// Names.
    pub slash_commands: Vec<Cow<'a, str>>,
    /// `tools` as it came.
    pub tools_raw: Option<RawJson<'a>>,
    /// `mcp_servers` as it came.
    pub mcp_servers_raw: Option<RawJson<'a>>,
}

/// `system` lines other than `init`.
#[derive(Clone, Debug, PartialEq)]
pub enum SystemLine<'a> {
    /// A call was denied by mode or rule.
    PermissionDenied {
        /// Tool.
        tool_name: Cow<'a, str>,
        /// Id of the call.
        tool_use_id: Cow<'a, str>,
        /// Its text.
        message: Option<Cow<'a, str>>,
    },
    /// The CLI tries an API call again.
    ApiRetry {
        /// Number of this try.
        attempt: Option<u64>,
        /// Most tries.
        max_retries: Option<u64>,
        /// Wait before it.
        delay_ms: Option<f64>,
        /// HTTP status, `None` for the network.
        status: Option<u64>,
        /// Class of the error.
        error: Option<Cow<'a, str>>,
    },
    /// What the agent does now, or that its permission mode changed.
    Status {
        /// `permissionMode`, after a change.
        permission_mode: Option<Cow<'a, str>>,
    },
    /// The context was compacted.
    Compacted {
        /// `auto` or `manual`.
        trigger: Option<Cow<'a, str>>,
        /// Tokens before it.
        pre_tokens: Option<u64>,
    },
    /// Another model took over.
    ModelFallback {
        /// From.
        from: Option<Cow<'a, str>>,
        /// To.
        to: Option<Cow<'a, str>>,
        /// The first one refused to answer.
        refused: bool,
    },
    /// The agent could not save everything. What a session is missing is missing when it is resumed, too.
    WritesLost {
        /// `ENOSPC`, `EDQUOT`.
        code: Option<Cow<'a, str>>,
        /// `transcript`, `global_config`.
        lost: Vec<Cow<'a, str>>,
    },
    /// `auth_status`: how signing in goes.
    AuthStatus {
        /// Why it failed, if it did.
        error: Option<Cow<'a, str>>,
    },
    /// `conversation_reset`: what was said before is gone from the context.
    ConversationReset {
        /// Session from then on.
        session: Option<Cow<'a, str>>,
    },
    /// A sub-agent or background task.
    Task {
        /// `task_started`, `task_progress`, `task_updated`, `task_notification`.
        subtype: Cow<'a, str>,
        /// Its id.
        task_id: Option<Cow<'a, str>>,
        /// The call that started it.
        tool_use_id: Option<Cow<'a, str>>,
        /// `is_backgrounded` of `task_started`; older releases leave it out.
        backgrounded: Option<bool>,
        /// Status or summary, whichever is there.
        status: Option<Cow<'a, str>>,
    },
    /// A notice for people.
    Notice {
        /// Text.
        text: Cow<'a, str>,
        /// `level` or `priority`.
        level: Option<Cow<'a, str>>,
    },
    /// Another known subtype, of which nothing is shown.
    Other(Cow<'a, str>),
    /// A subtype that we do not know.
    Unknown(Cow<'a, str>),
}

/// `assistant` and `user` lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatLine<'a> {
    /// `message.id`; several lines share one.
    pub message_id: Option<Cow<'a, str>>,
    /// `message.model`.
    pub model: Option<Cow<'a, str>>,
    /// Blocks. A string content is one text block.
    pub blocks: Vec<MessageBlock<'a>>,
    /// `message.usage`.
    pub usage: Option<Usage>,
    /// `message.stop_reason`: null in the stream, filled in session files.
    pub stop_reason: Option<Cow<'a, str>>,
    /// `error` beside the message (`authentication_failed`, `rate_limit`, …).
    pub error: Option<Cow<'a, str>>,
    /// `api_error` (`usage_limit_reached`, `connection_failed`, `max_output_tokens`).
    pub api_error: Option<Cow<'a, str>>,
    /// `api_error_status`.
    pub api_error_status: Option<u64>,
    /// Text that the harness injected.
    pub synthetic: bool,
    /// Cut off by an interrupt.
    pub aborted: bool,
    /// Ids of calls that were refused rather than run (`tool_result_meta` says reject or a non-execution kind).
    pub refused: Vec<Cow<'a, str>>,
}

/// The counts of a `usage`. Every message of the model has one, so they are read at once. Absent counts are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `input_tokens`.
    pub input: u64,
    /// `output_tokens`.
    pub output: u64,
    /// `cache_read_input_tokens`.
    pub cache_read: u64,
    /// `cache_creation_input_tokens`.
    pub cache_write: u64,
}

/// `stream_event`: what a partial message adds.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamDelta<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Thinking.
    Thinking(Cow<'a, str>),
    /// Anything else, by `event.type`.
    Other(Cow<'a, str>),
}

/// `rate_limit_event`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateLimitEvent<'a> {
    /// `allowed`, `allowed_warning`, `rejected`.
    pub status: Cow<'a, str>,
    /// `resetsAt` in unix seconds (milliseconds are recognised by their size).
    pub resets_at: Option<i64>,
    /// `five_hour`, …
    pub limit: Option<Cow<'a, str>>,
    /// 0 to 1.
    pub utilization: Option<f64>,
}

/// `result`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultLine<'a> {
    /// `success`, `error_max_turns`, …
    pub subtype: Option<Cow<'a, str>>,
    /// `is_error`, when it is a boolean.
    pub is_error: Option<bool>,
    /// `terminal_reason`.
    pub terminal_reason: Option<Cow<'a, str>>,
    /// `stop_reason`.
    pub stop_reason: Option<Cow<'a, str>>,
    /// Final text.
    pub result: Option<Cow<'a, str>>,
    /// `error`, when it is a string.
    pub error: Option<Cow<'a, str>>,
    /// `errors[]`: strings, or the message of objects.
    pub errors: Vec<Cow<'a, str>>,
    /// `permission_denials[]`.
    pub denials: Vec<PermissionDenial<'a>>,
    /// `usage`, untouched.
    pub usage: Option<RawJson<'a>>,
    /// `modelUsage`, untouched.
    pub model_usage: Option<RawJson<'a>>,
    /// `total_cost_usd`: of the process, and in some releases of the session before it.
    pub total_cost_usd: Option<f64>,
    /// Costs in `model_usage_since_last_result`, added up: what this turn alone cost.
    pub cost_since_last_result: Option<f64>,
    /// `duration_ms`.
    pub duration_ms: Option<u64>,
    /// `duration_api_ms`.
    pub duration_api_ms: Option<u64>,
    /// `num_turns`. Not the number of API calls.
    pub num_turns: Option<u64>,
    /// `api_error_status`.
    pub api_error_status: Option<u64>,
}

impl ResultLine<'_> {
    /// Takopi's rule: `is_error` decides; without it, a subtype that starts with `error` is an error.
    pub fn failed(&self) -> bool {
        self.is_error.unwrap_or_else(|| self.subtype.as_deref().is_some_and(|subtype| subtype.starts_with("error")))
    }
}

/// One entry of `permission_denials`.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionDenial<'a> {
    /// Tool; for the legacy string form, the string.
    pub tool_name: Option<Cow<'a, str>>,
    /// Id of the call.
    pub tool_use_id: Option<Cow<'a, str>>,
    /// Its arguments.
    pub tool_input: Option<RawJson<'a>>,
}
