//! Decodes `system` lines by their subtype.

use std::borrow::Cow;

use super::{
    LineBody,
    json_scanner::{JsonScanner, ScanResult},
    line::{InitLine, SystemLine, TaskLine},
    line_head::LineHead,
    user_text::without_styles,
};

/// The fields of all subtypes. The subtype may come last, so all fields are read before it is evaluated.
#[derive(Debug, Default)]
struct SystemFields<'a> {
    subtype: Option<Cow<'a, str>>,
    init: InitLine<'a>,
    tool_name: Option<Cow<'a, str>>,
    tool_use_id: Option<Cow<'a, str>>,
    message: Option<Cow<'a, str>>,
    attempt: Option<u64>,
    max_retries: Option<u64>,
    delay_ms: Option<f64>,
    error_status: Option<u64>,
    error: Option<Cow<'a, str>>,
    trigger: Option<Cow<'a, str>>,
    pre_tokens: Option<u64>,
    from: Option<Cow<'a, str>>,
    to: Option<Cow<'a, str>>,
    task: TaskLine<'a>,
    content: Option<Cow<'a, str>>,
    level: Option<Cow<'a, str>>,
    error_code: Option<Cow<'a, str>>,
    lost: Vec<Cow<'a, str>>,
}

/// Subtypes that are not shown: bookkeeping, or copies of other lines. Sorted for binary search.
const IGNORED_SUBTYPES: &[&str] = &[
    "agents_killed",
    "away_summary",
    "background_tasks_changed",
    "bridge_state",
    "bridge_status",
    "checkpoint_done",
    "cloud_session_delta",
    "cloud_session_status",
    "code_change_published",
    "commands_changed",
    "control_request_progress",
    "dev_intent",
    "elicitation_complete",
    "feedback_draft_queued",
    "file_attachments_missing",
    "file_snapshot",
    "files_persisted",
    "hook_progress",
    "hook_response",
    "hook_started",
    "inherited_asks_settled",
    "instruction_size_warning",
    "late_allow_not_run",
    "local_command",
    "local_command_output",
    "memory_recall",
    "memory_saved",
    "mirror_error",
    "model_consent_fallback",
    "peer_message_hold",
    "per_turn_effort_changed",
    "permission_check_status",
    "permission_retry",
    "plugin_install",
    "post_turn_summary",
    "rewind_stand_in",
    "scheduled_task_fire",
    "session_metadata",
    "session_state_changed",
    "session_title_changed",
    "shell_cwd",
    "stop_hook_summary",
    "task_list_statuses",
    "task_summary",
    "thinking",
    "thinking_tokens",
    "turn_duration",
    "turn_handoff_available",
    "turn_preempted",
    "turn_starting",
    "upgrade_relay_marker",
    "vcs_state_changed",
    "worker_shutting_down",
];

/// Reads `auth_status`, which has its own line type.
pub(super) fn auth_status<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
) -> ScanResult<SystemLine<'a>> {
    let mut error = None;
    scan.object(|scan, key| {
        if key == b"error" {
            scan.non_empty_text().map(|word| error = word)
        } else {
            head.read_field(scan, key)
        }
    })?;
    Ok(SystemLine::AuthStatus { error })
}

/// Reads `conversation_reset`, which has its own line type.
pub(super) fn conversation_reset<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
) -> ScanResult<SystemLine<'a>> {
    let mut session = None;
    scan.object(|scan, key| {
        if key == b"new_conversation_id" {
            scan.non_empty_text().map(|word| session = word)
        } else {
            head.read_field(scan, key)
        }
    })?;
    Ok(SystemLine::ConversationReset { session })
}

pub(super) fn read<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
) -> ScanResult<LineBody<'a>> {
    let mut fields = SystemFields::default();
    scan.object(|scan, key| {
        if fields.read_field(scan, key)? {
            Ok(())
        } else {
            head.read_field(scan, key)
        }
    })?;
    Ok(fields.into_body())
}

impl<'a> SystemFields<'a> {
    /// Reads a field. Returns false and consumes nothing if no subtype has this field.
    fn read_field(&mut self, scan: &mut JsonScanner<'a>, key: &[u8]) -> ScanResult<bool> {
        let (init, task) = (&mut self.init, &mut self.task);
        match key {
            // Like the type, the first subtype decides.
            b"subtype" if self.subtype.is_none() => self.subtype = scan.text()?,
            b"cwd" => init.cwd = scan.non_empty_text()?,
            b"model" => init.model = scan.non_empty_text()?,
            b"tools" => {
                let mut copy = scan.clone();
                init.tools_raw = scan.raw()?;
                names(&mut copy, &mut init.tools)?;
            }
            b"mcp_servers" => {
                let mut copy = scan.clone();
                init.mcp_servers_raw = scan.raw()?;
                pairs(&mut copy, b"status", &mut init.mcp_servers)?;
            }
            b"permissionMode" => init.permission_mode = scan.non_empty_text()?,
            b"apiKeySource" => init.api_key_source = scan.non_empty_text()?,
            b"output_style" => init.output_style = scan.non_empty_text()?,
            b"memory_paths" => init.memory_paths = scan.raw()?,
            b"claude_code_version" => init.version = scan.non_empty_text()?,
            b"plugins" => pairs(scan, b"path", &mut init.plugins)?,
            b"agents" => names(scan, &mut init.agents)?,
            b"skills" => names(scan, &mut init.skills)?,
            b"slash_commands" => names(scan, &mut init.slash_commands)?,
            b"tool_name" => self.tool_name = scan.non_empty_text()?,
            b"tool_use_id" => self.tool_use_id = scan.non_empty_text()?,
            b"message" => self.message = scan.non_empty_text()?,
            b"attempt" | b"retryAttempt" => self.attempt = scan.count()?,
            b"max_retries" | b"maxRetries" => self.max_retries = scan.count()?,
            b"retry_delay_ms" | b"retryInMs" => self.delay_ms = scan.float()?,
            b"error_status" => self.error_status = scan.count()?,
            b"error" => self.error(scan)?,
            b"compact_metadata" | b"compactMetadata" => self.compaction(scan)?,
            b"original_model" | b"originalModel" => self.from = scan.non_empty_text()?,
            b"fallback_model" | b"fallbackModel" => self.to = scan.non_empty_text()?,
            b"task_id" => task.task_id = scan.non_empty_text()?,
            b"is_backgrounded" => task.backgrounded = scan.boolean()?,
            b"status" => task.status = scan.non_empty_text()?,
            b"patch" => self.patch(scan)?,
            b"summary" => task.summary = scan.non_empty_text()?,
            b"description" => task.description = scan.non_empty_text()?,
            b"task_type" => task.task_type = scan.non_empty_text()?,
            b"workflow_name" => task.workflow_name = scan.non_empty_text()?,
            b"ambient" => task.ambient = scan.boolean()?.unwrap_or_default(),
            b"workflow_progress" => task.progress = scan.raw()?,
            b"usage" => {
                let usage = scan.raw()?.and_then(|usage| usage.get("total_tokens"));
                task.tokens = usage.and_then(|tokens| tokens.0.trim().parse().ok());
            }
            b"content" | b"text" => self.content = scan.non_empty_text()?,
            b"level" | b"priority" => self.level = scan.non_empty_text()?,
            b"error_code" => self.error_code = scan.non_empty_text()?,
            b"lost" => names(scan, &mut self.lost)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads a string, or in session files an object with the status and a readable text.
    fn error(&mut self, scan: &mut JsonScanner<'a>) -> ScanResult<()> {
        if scan.peek()? != b'{' {
            self.error = scan.non_empty_text()?;
            return Ok(());
        }
        let (mut formatted, mut message) = (None, None);
        scan.object(|scan, key| {
            match key {
                b"status" => self.error_status = scan.count()?,
                b"formatted" => formatted = scan.non_empty_text()?,
                b"message" => message = scan.non_empty_text()?,
                _ => scan.skip()?,
            }
            Ok(())
        })?;
        self.error = formatted.or(message);
        Ok(())
    }

    fn compaction(&mut self, scan: &mut JsonScanner<'a>) -> ScanResult<()> {
        scan.object(|scan, key| {
            match key {
                b"trigger" => self.trigger = scan.non_empty_text()?,
                b"pre_tokens" | b"preTokens" => self.pre_tokens = scan.count()?,
                _ => scan.skip()?,
            }
            Ok(())
        })
        .map(drop)
    }

    /// Reads the changes of `task_updated`.
    fn patch(&mut self, scan: &mut JsonScanner<'a>) -> ScanResult<()> {
        scan.object(|scan, key| {
            match key {
                b"status" => self.task.status = scan.non_empty_text()?,
                b"is_backgrounded" => self.task.backgrounded = scan.boolean()?,
                b"error" => self.task.summary = scan.non_empty_text()?,
                _ => scan.skip()?,
            }
            Ok(())
        })
        .map(drop)
    }

    fn into_body(self) -> LineBody<'a> {
        let subtype = self.subtype.unwrap_or_default();
        LineBody::System(match &*subtype {
            "init" => return LineBody::Init(Box::new(self.init)),
            "permission_denied" => SystemLine::PermissionDenied {
                tool_name: self.tool_name.unwrap_or_default(),
                tool_use_id: self.tool_use_id.unwrap_or_default(),
                message: self.message,
            },
            "api_retry" | "api_error" => SystemLine::ApiRetry {
                attempt: self.attempt,
                max_retries: self.max_retries,
                delay_ms: self.delay_ms,
                status: self.error_status,
                error: self.error,
            },
            "status" => SystemLine::Status {
                permission_mode: self.init.permission_mode,
            },
            "compact_boundary" => SystemLine::Compacted {
                trigger: self.trigger,
                pre_tokens: self.pre_tokens,
            },
            "model_fallback" | "model_refusal_fallback" => SystemLine::ModelFallback {
                from: self.from,
                to: self.to,
                refused: subtype != "model_fallback",
            },
            "session_writes_lost" => SystemLine::WritesLost {
                code: self.error_code,
                lost: self.lost,
            },
            "task_started" | "task_progress" | "task_updated" | "task_notification" => {
                SystemLine::Task(Box::new(TaskLine {
                    subtype,
                    tool_use_id: self.tool_use_id,
                    ..self.task
                }))
            }
            // A notice about a key of the agent's own screen, such as the one about a hook that asks to continue.
            "notification"
                if self
                    .content
                    .as_ref()
                    .is_some_and(|text| text.ends_with("ctrl+o to see")) =>
            {
                SystemLine::Other(subtype)
            }
            "informational" | "notification" => SystemLine::Notice {
                text: self.content.unwrap_or_default(),
                level: self.level,
            },
            // Early releases wrote notices without a subtype.
            "" if self.content.is_some() => SystemLine::Notice {
                text: match self.content.unwrap_or_default() {
                    Cow::Borrowed(text) => without_styles(text),
                    Cow::Owned(text) => Cow::Owned(without_styles(&text).into_owned()),
                },
                level: self.level,
            },
            "model_refusal_no_fallback" => SystemLine::Notice {
                text: self
                    .content
                    .unwrap_or(Cow::Borrowed("the model refused to answer")),
                level: self.level,
            },
            // Panes and notices of the agent's own screen.
            known if known.starts_with("ui_") || IGNORED_SUBTYPES.binary_search(&known).is_ok() => {
                SystemLine::Other(subtype)
            }
            _ => SystemLine::Unknown(subtype),
        })
    }
}

/// Reads an array of strings and skips other elements.
fn names<'a>(scan: &mut JsonScanner<'a>, names: &mut Vec<Cow<'a, str>>) -> ScanResult<()> {
    names.clear();
    scan.array(|scan| {
        names.extend(scan.text()?);
        Ok(())
    })
}

/// Reads an array of objects: the name and one more field of each. Objects without a name are skipped.
fn pairs<'a>(
    scan: &mut JsonScanner<'a>,
    second: &[u8],
    pairs: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>,
) -> ScanResult<()> {
    pairs.clear();
    scan.array(|scan| {
        let (mut name, mut value) = (None, Cow::default());
        scan.object(|scan, key| {
            if key == b"name" {
                name = scan.text()?;
            } else if key == second {
                value = scan.text()?.unwrap_or_default();
            } else {
                scan.skip()?;
            }
            Ok(())
        })?;
        pairs.extend(name.map(|name| (name, value)));
        Ok(())
    })
}
