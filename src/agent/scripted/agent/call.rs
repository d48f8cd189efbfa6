//! One tool call of the scripted agent, from its name to its result line: hooks, permission, server.

use std::io;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use crate::scripted::{
    agent::ScriptedAgent,
    host::{HookDecision, HostReply, HostTool},
    output::{PermissionDecision, tool_error_line, tool_result_line},
    script::ScriptedCall,
};

/// A call of the model.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) id: String,
    /// Name as the model writes it.
    pub(super) name: String,
    /// Arguments as the stream shows them.
    pub(super) input: Value,
    /// The call may run concurrently with others.
    pub(super) read_only: bool,
    invalid_arguments: Option<String>,
    tool: Option<HostTool>,
    denied: bool,
}

#[derive(Debug)]
pub(super) struct ScriptedCallOutcome {
    pub(super) id: String,
    /// The `user` line with its result.
    pub(super) line: Value,
    /// Length of the result, in characters.
    pub(super) char_count: usize,
    /// Line to write before the result.
    pub(super) preceding_line: Option<Value>,
    pub(super) denial: Option<Value>,
}

impl PendingCall {
    /// Arguments as the model wrote them.
    pub(super) fn raw_arguments(&self) -> String {
        self.invalid_arguments
            .clone()
            .unwrap_or_else(|| self.input.to_string())
    }

    /// `tool_use_meta`, for tools of a server.
    pub(super) fn meta(&self) -> Option<Value> {
        let tool = self.tool.as_ref()?;
        let meta = json!({"id": self.id, "display_name": display_name(&tool.name),
            "server_display_name": tool.server, "tool_name": tool.name});
        Some(json!([meta]))
    }

    fn failed_outcome(&self, text: &str, decision: PermissionDecision) -> ScriptedCallOutcome {
        let denial = decision.is_denial().then(
            || json!({"tool_name": self.name, "tool_use_id": self.id, "tool_input": self.input}),
        );
        let notice = (decision == PermissionDecision::DeniedByMode).then(|| {
            json!({"type": "system", "subtype": "permission_denied", "tool_name": self.name, "tool_use_id": self.id,
                "decision_reason_type": "mode", "message": text})
        });
        let line = tool_error_line(&self.id, text, decision);
        ScriptedCallOutcome {
            id: self.id.clone(),
            line,
            char_count: text.chars().count(),
            preceding_line: notice,
            denial,
        }
    }
}

fn display_name(tool: &str) -> String {
    let words = tool.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_uppercase().chain(letters).collect()
        })
    });
    words.collect::<Vec<String>>().join(" ")
}

impl ScriptedAgent {
    /// Prepares a call from a step: finds its tool and assigns an id.
    pub(super) fn prepare_call(&self, call: &ScriptedCall, denied: bool) -> PendingCall {
        let tools = self
            .host
            .as_ref()
            .map(|host| host.tools())
            .unwrap_or_default();
        let tool = tools
            .into_iter()
            .find(|tool| tool.name == call.tool || tool.id() == call.tool);
        let input = match &call.raw_arguments {
            Some(text) => json!({"__unparsedToolInput": {"raw": text, "len": text.len()}}),
            None => Value::Object(call.arguments.clone()),
        };
        PendingCall {
            id: format!("toolu_{}", Uuid::new_v4().simple()),
            name: tool
                .as_ref()
                .map_or_else(|| call.tool.clone(), HostTool::id),
            input,
            read_only: tool.as_ref().is_some_and(|tool| tool.read_only),
            invalid_arguments: call.raw_arguments.clone(),
            tool,
            denied,
        }
    }

    /// Runs a call, or writes why it does not run.
    pub(super) async fn execute_call(&self, call: PendingCall) -> io::Result<ScriptedCallOutcome> {
        if let Some(text) = &call.invalid_arguments {
            let text = format!(
                "<tool_use_error>InputValidationError: {} was called with input that could not be parsed as JSON.\n\
                 You sent (first {len} of {len} bytes): {text}</tool_use_error>",
                call.name,
                len = text.len(),
            );
            return Ok(call.failed_outcome(&text, PermissionDecision::NotDecided));
        }
        if call.tool.is_none() && !call.denied {
            let text = format!(
                "<tool_use_error>Error: No such tool available: {}</tool_use_error>",
                call.name
            );
            return Ok(call.failed_outcome(&text, PermissionDecision::NotDecided));
        }
        // Hooks are not asked about a tool that does not exist.
        let Some(host) = self.host.as_ref().filter(|_| call.tool.is_some()) else {
            return Ok(call.failed_outcome(
                &denied_by_mode_message(&call.name),
                PermissionDecision::DeniedByMode,
            ));
        };
        let (edited, allowed) = match host
            .run_hooks(
                "PreToolUse",
                self.hook_input("PreToolUse", &call, &call.input),
            )
            .await?
        {
            HookDecision::Proceed { input, allowed } => (input, allowed),
            HookDecision::Deny(reason) => {
                let text = format!("PreToolUse:{} hook error: {reason}", call.name);
                return Ok(call.failed_outcome(&text, PermissionDecision::DeniedByHook));
            }
            HookDecision::TimedOut => {
                let text = "PreToolUse hook did not respond before its timeout. The tool call was not executed.";
                return Ok(call.failed_outcome(text, PermissionDecision::DeniedByHook));
            }
        };
        if call.denied || !(allowed || self.is_tool_allowed(&call.name)) {
            return Ok(call.failed_outcome(
                &denied_by_mode_message(&call.name),
                PermissionDecision::DeniedByMode,
            ));
        }
        let input = edited.unwrap_or_else(|| call.input.clone());
        self.call_tool(call, input).await
    }

    async fn call_tool(&self, call: PendingCall, input: Value) -> io::Result<ScriptedCallOutcome> {
        let (Some(host), Some(tool)) = (&self.host, &call.tool) else {
            return Ok(call.failed_outcome("no server", PermissionDecision::ServerLost));
        };
        let started = Instant::now();
        let params = json!({"name": tool.name, "arguments": input,
            "_meta": {"claudecode/toolUseId": call.id, "progressToken": call.id}});
        let reply = host.call_server(&tool.server, "tools/call", params).await?;
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let error = match &reply {
            Ok(result) if result["isError"] == true => Some(join_text_blocks(&result["content"])),
            Ok(_) => None,
            Err(HostReply::Disconnected) => {
                let text = "The tool call was interrupted before a result was received. It may or may not have \
                    completed on the server — verify before assuming it succeeded, and retry if needed.";
                return Ok(call.failed_outcome(text, PermissionDecision::ServerLost));
            }
            Err(HostReply::Error(text)) => Some(text.clone()),
            Err(HostReply::Success(_)) => Some("error".to_owned()),
        };
        if let Some(text) = error {
            let mut hook = self.hook_input("PostToolUseFailure", &call, &input);
            hook["error"] = text.clone().into();
            hook["is_interrupt"] = false.into();
            hook["duration_ms"] = took.into();
            host.run_hooks("PostToolUseFailure", hook).await?;
            return Ok(call.failed_outcome(&text, PermissionDecision::Allowed));
        }
        let (content, whole) = split_result(&call.name, reply.unwrap_or_default());
        let mut hook = self.hook_input("PostToolUse", &call, &input);
        hook["tool_response"] = whole.clone();
        hook["duration_ms"] = took.into();
        host.run_hooks("PostToolUse", hook).await?;
        let letters = join_text_blocks(&content).chars().count();
        let line = tool_result_line(&call.id, content, whole);
        Ok(ScriptedCallOutcome {
            id: call.id,
            line,
            char_count: letters,
            preceding_line: None,
            denial: None,
        })
    }

    /// In the mode `dontAsk`, only listed tools may run.
    fn is_tool_allowed(&self, name: &str) -> bool {
        let listed = |rule: &String| {
            rule == name
                || rule
                    .strip_suffix('*')
                    .is_some_and(|start| name.starts_with(start))
                || name
                    .strip_prefix(rule.as_str())
                    .is_some_and(|rest| rest.starts_with("__"))
        };
        self.run.permission_mode.as_deref() != Some("dontAsk")
            || self.run.allowed_tools.iter().any(listed)
    }

    fn hook_input(&self, event: &str, call: &PendingCall, input: &Value) -> Value {
        let mut hook: Map<String, Value> = Map::new();
        let mode = self.run.permission_mode.as_deref().unwrap_or("default");
        let cwd = std::env::current_dir().unwrap_or_default();
        for (key, value) in [
            ("session_id", self.output.session_id().into()),
            ("cwd", cwd.to_string_lossy().into()),
            ("permission_mode", mode.into()),
            ("hook_event_name", event.into()),
            ("tool_name", call.name.clone().into()),
            ("tool_input", input.clone()),
            ("tool_use_id", call.id.clone().into()),
        ] {
            hook.insert(key.into(), value);
        }
        if let Some(tool) = &call.tool {
            hook.insert(
                "mcp_server".into(),
                json!({"name": tool.server, "source": "sdk"}),
            );
        }
        hook.into()
    }
}

fn denied_by_mode_message(name: &str) -> String {
    format!(
        "Permission to use {name} has been denied because Claude Code is running in don't ask mode."
    )
}

/// Joins text blocks by newlines; returns a string unchanged.
fn join_text_blocks(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<&str> = blocks
                .iter()
                .filter_map(|block| block["text"].as_str())
                .collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// Splits a successful result into the text for the model and the additional data.
fn split_result(name: &str, result: Value) -> (Value, Value) {
    let content = result["content"].clone();
    if let Some(structured) = result
        .get("structuredContent")
        .filter(|value| !value.is_null())
    {
        let text = structured.to_string();
        return (
            text.into(),
            json!({"content": content, "structuredContent": structured}),
        );
    }
    match content.as_array() {
        Some(blocks) if !blocks.is_empty() => (content.clone(), content),
        _ => (
            format!("({name} completed with no output)").into(),
            json!([]),
        ),
    }
}
