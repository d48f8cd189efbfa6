//! One tool call of the scripted agent, from its name to its result line: hooks, permission, server.

use std::io;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    actor::Actor,
    host::{Answer, Ruling, Tool},
    script::Call,
    wire::{Decision, tool_error, tool_ok},
};

/// A call that the model has written.
#[derive(Debug)]
pub(super) struct Ready {
    /// Id of the call.
    pub(super) id: String,
    /// Name as the model writes it.
    pub(super) name: String,
    /// Arguments as the stream shows them.
    pub(super) input: Value,
    /// May run beside others.
    pub(super) read_only: bool,
    garbled: Option<String>,
    tool: Option<Tool>,
    denied: bool,
}

/// A call that is over.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Id of the call.
    pub(super) id: String,
    /// The `user` line with its result.
    pub(super) line: Value,
    /// Length of the result.
    pub(super) letters: usize,
    /// Line that comes before it.
    pub(super) notice: Option<Value>,
    /// Entry of `permission_denials`.
    pub(super) denial: Option<Value>,
}

impl Ready {
    /// Arguments as the model wrote them.
    pub(super) fn arguments_text(&self) -> String {
        self.garbled.clone().unwrap_or_else(|| self.input.to_string())
    }

    /// `tool_use_meta`, for tools of a server.
    pub(super) fn meta(&self) -> Option<Value> {
        let tool = self.tool.as_ref()?;
        let meta = json!({"id": self.id, "display_name": display_name(&tool.name),
            "server_display_name": tool.server, "tool_name": tool.name});
        Some(json!([meta]))
    }

    fn failed(&self, text: &str, decision: Decision) -> Outcome {
        let denial = decision
            .is_denial()
            .then(|| json!({"tool_name": self.name, "tool_use_id": self.id, "tool_input": self.input}));
        let notice = (decision == Decision::Mode).then(|| {
            json!({"type": "system", "subtype": "permission_denied", "tool_name": self.name, "tool_use_id": self.id,
                "decision_reason_type": "mode", "message": text})
        });
        let line = tool_error(&self.id, text, decision);
        Outcome { id: self.id.clone(), line, letters: text.chars().count(), notice, denial }
    }
}

fn display_name(tool: &str) -> String {
    let words = tool.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    });
    words.collect::<Vec<String>>().join(" ")
}

impl Actor {
    /// Makes a call out of a step: finds its tool, gives it an id.
    pub(super) fn prepare(&self, call: &Call, denied: bool) -> Ready {
        let tools = self.host.as_ref().map(|host| host.tools()).unwrap_or_default();
        let tool = tools.into_iter().find(|tool| tool.name == call.tool || tool.id() == call.tool);
        let input = match &call.garbled {
            Some(text) => json!({"__unparsedToolInput": {"raw": text, "len": text.len()}}),
            None => Value::Object(call.with.clone()),
        };
        Ready {
            id: format!("toolu_{}", Uuid::new_v4().simple()),
            name: tool.as_ref().map_or_else(|| call.tool.clone(), Tool::id),
            input,
            read_only: tool.as_ref().is_some_and(|tool| tool.read_only),
            garbled: call.garbled.clone(),
            tool,
            denied,
        }
    }

    /// Runs a call, or tells why it does not run.
    pub(super) async fn carry_out(&self, call: Ready) -> io::Result<Outcome> {
        if let Some(text) = &call.garbled {
            let text = format!(
                "<tool_use_error>InputValidationError: {} was called with input that could not be parsed as JSON.\n\
                 You sent (first {len} of {len} bytes): {text}</tool_use_error>",
                call.name,
                len = text.len(),
            );
            return Ok(call.failed(&text, Decision::None));
        }
        if call.tool.is_none() && !call.denied {
            let text = format!("<tool_use_error>Error: No such tool available: {}</tool_use_error>", call.name);
            return Ok(call.failed(&text, Decision::None));
        }
        // No hook is asked about a tool that is not there.
        let Some(host) = self.host.as_ref().filter(|_| call.tool.is_some()) else {
            return Ok(call.failed(&denied_by_mode(&call.name), Decision::Mode));
        };
        let (edited, allowed) =
            match host.hooks("PreToolUse", self.hook_input("PreToolUse", &call, &call.input)).await? {
                Ruling::Go { input, allowed } => (input, allowed),
                Ruling::Deny(reason) => {
                    let text = format!("PreToolUse:{} hook error: {reason}", call.name);
                    return Ok(call.failed(&text, Decision::Hook));
                }
                Ruling::TimedOut => {
                    let text = "PreToolUse hook did not respond before its timeout. The tool call was not executed.";
                    return Ok(call.failed(text, Decision::Hook));
                }
            };
        if call.denied || !(allowed || self.allows(&call.name)) {
            return Ok(call.failed(&denied_by_mode(&call.name), Decision::Mode));
        }
        let input = edited.unwrap_or_else(|| call.input.clone());
        self.use_tool(call, input).await
    }

    async fn use_tool(&self, call: Ready, input: Value) -> io::Result<Outcome> {
        let (Some(host), Some(tool)) = (&self.host, &call.tool) else {
            return Ok(call.failed("no server", Decision::Lost));
        };
        let started = Instant::now();
        let params = json!({"name": tool.name, "arguments": input,
            "_meta": {"claudecode/toolUseId": call.id, "progressToken": call.id}});
        let reply = host.rpc(&tool.server, "tools/call", params).await?;
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let error = match &reply {
            Ok(result) if result["isError"] == true => Some(joined(&result["content"])),
            Ok(_) => None,
            Err(Answer::Gone) => {
                let text = "The tool call was interrupted before a result was received. It may or may not have \
                    completed on the server — verify before assuming it succeeded, and retry if needed.";
                return Ok(call.failed(text, Decision::Lost));
            }
            Err(Answer::No(text)) => Some(text.clone()),
            Err(Answer::Yes(_)) => Some("error".to_owned()),
        };
        if let Some(text) = error {
            let mut hook = self.hook_input("PostToolUseFailure", &call, &input);
            hook["error"] = text.clone().into();
            hook["is_interrupt"] = false.into();
            hook["duration_ms"] = took.into();
            host.hooks("PostToolUseFailure", hook).await?;
            return Ok(call.failed(&text, Decision::Allowed));
        }
        let (content, whole) = shaped(&call.name, reply.unwrap_or_default());
        let mut hook = self.hook_input("PostToolUse", &call, &input);
        hook["tool_response"] = whole.clone();
        hook["duration_ms"] = took.into();
        host.hooks("PostToolUse", hook).await?;
        let letters = joined(&content).chars().count();
        let line = tool_ok(&call.id, content, whole);
        Ok(Outcome { id: call.id, line, letters, notice: None, denial: None })
    }

    /// In mode `dontAsk` only what is listed may run.
    fn allows(&self, name: &str) -> bool {
        let listed = |rule: &String| {
            rule == name
                || rule.strip_suffix('*').is_some_and(|start| name.starts_with(start))
                || name.strip_prefix(rule.as_str()).is_some_and(|rest| rest.starts_with("__"))
        };
        self.run.permission_mode.as_deref() != Some("dontAsk") || self.run.allowed_tools.iter().any(listed)
    }

    fn hook_input(&self, event: &str, call: &Ready, input: &Value) -> Value {
        let mut hook: Map<String, Value> = Map::new();
        let mode = self.run.permission_mode.as_deref().unwrap_or("default");
        let cwd = std::env::current_dir().unwrap_or_default();
        for (key, value) in [
            ("session_id", self.wire.session_id().into()),
            ("cwd", json!(cwd)),
            ("permission_mode", mode.into()),
            ("hook_event_name", event.into()),
            ("tool_name", call.name.clone().into()),
            ("tool_input", input.clone()),
            ("tool_use_id", call.id.clone().into()),
        ] {
            hook.insert(key.into(), value);
        }
        if let Some(tool) = &call.tool {
            hook.insert("mcp_server".into(), json!({"name": tool.server, "source": "sdk"}));
        }
        hook.into()
    }
}

fn denied_by_mode(name: &str) -> String {
    format!("Permission to use {name} has been denied because Claude Code is running in don't ask mode.")
}

/// Text blocks joined by newlines; a string as it is.
fn joined(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// What the model reads of a good result, and what stands beside it.
fn shaped(name: &str, result: Value) -> (Value, Value) {
    let content = result["content"].clone();
    if let Some(structured) = result.get("structuredContent").filter(|value| !value.is_null()) {
        let text = structured.to_string();
        return (text.into(), json!({"content": content, "structuredContent": structured}));
    }
    match content.as_array() {
        Some(blocks) if !blocks.is_empty() => (content.clone(), content),
        _ => (format!("({name} completed with no output)").into(), json!([])),
    }
}
