//! The agent's side of the two-way protocol: sends requests to the host (tools, hooks), answers its requests, and
//! passes on its prompts. The module must not depend on scripts.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use regex_lite::Regex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    output::{MODEL, OutputLines, VERSION},
    script::IgnoredEvent,
};

/// Control of the running turn by the host or by signals, and the events that the turn ignores.
#[derive(Debug, Default)]
pub(super) struct TurnControl {
    turn_token: Mutex<CancellationToken>,
    ignored: Mutex<Vec<IgnoredEvent>>,
    /// The process ends after this turn.
    pub(super) exit_after_turn: CancellationToken,
    /// The process ends immediately, because stdin was not JSON.
    pub(super) exit_now: CancellationToken,
}

impl TurnControl {
    /// Starts a turn. An interrupt cancels the returned token.
    pub(super) fn start_turn(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.turn_token.lock() = token.clone();
        token
    }

    /// Interrupts the running turn, if any.
    pub(super) fn interrupt(&self) {
        self.turn_token.lock().cancel();
    }

    /// Ignores these events from now on.
    pub(super) fn ignore(&self, what: &[IgnoredEvent]) {
        self.ignored.lock().extend_from_slice(what);
    }

    pub(super) fn ignores(&self, what: IgnoredEvent) -> bool {
        self.ignored.lock().contains(&what)
    }
}

/// A tool of a connected server.
#[derive(Clone, Debug)]
pub(super) struct HostTool {
    pub(super) server: String,
    /// Name on the server.
    pub(super) name: String,
    pub(super) read_only: bool,
}

impl HostTool {
    /// Name that the model uses.
    pub(super) fn id(&self) -> String {
        format!("mcp__{}__{}", self.server, self.name)
    }
}

/// Reply of the host to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HostReply {
    Success(Value),
    /// The host refused; its message.
    Error(String),
    Disconnected,
}

/// Decision of a hook about a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HookDecision {
    /// No objection. Contains new arguments, if any, and whether the hook explicitly allowed the call.
    Proceed { input: Option<Value>, allowed: bool },
    /// `deny`, or `block` of the end of a turn, with its reason.
    Deny(String),
    /// No reply within the hook's timeout.
    TimedOut,
}

#[derive(Debug, Default)]
struct PeerState {
    /// `None` once stdin is closed.
    pending: Option<HashMap<String, oneshot::Sender<HostReply>>>,
    servers: Vec<(String, bool)>,
    tools: Vec<HostTool>,
    hooks: Value,
}

/// The connection to the host over stdin and stdout.
#[derive(Debug)]
pub(super) struct HostConnection {
    output: Arc<OutputLines>,
    turn_control: Arc<TurnControl>,
    peer: Mutex<PeerState>,
    rpc_id: AtomicU64,
    handshake: Arc<tokio::sync::Mutex<()>>,
}

impl HostConnection {
    /// A connection before the first message of the host.
    pub(super) fn new(lines: Arc<OutputLines>, turn_control: Arc<TurnControl>) -> Self {
        let peer = Mutex::new(PeerState {
            pending: Some(HashMap::new()),
            ..PeerState::default()
        });
        Self {
            output: lines,
            turn_control,
            peer,
            rpc_id: AtomicU64::new(0),
            handshake: Arc::default(),
        }
    }

    /// Tools of all servers, sorted by id.
    pub(super) fn tools(&self) -> Vec<HostTool> {
        self.peer.lock().tools.clone()
    }

    /// `mcp_servers` of the init line.
    pub(super) fn servers(&self) -> Value {
        let status = |connected| if connected { "connected" } else { "failed" };
        let peer = self.peer.lock();
        let servers = peer.servers.iter();
        servers
            .map(|(name, up)| json!({"name": name, "status": status(*up), "source": "sdk"}))
            .collect()
    }

    /// Marks the host as gone: no replies will follow.
    pub(super) fn close(&self) {
        self.peer.lock().pending = None;
    }

    /// Waits for the end of a handshake that has started.
    pub(super) async fn wait_for_handshake(&self) {
        let _handshake = self.handshake.lock().await;
    }

    /// Reads stdin to its end. `prompts` receives the user messages; replies and requests are handled here.
    // Unbounded, so that queued prompts never block the reply that a running call waits for.
    pub(super) async fn listen(
        self: Arc<Self>,
        stdin: impl AsyncRead + Send + Unpin,
        prompts: mpsc::UnboundedSender<String>,
    ) -> io::Result<()> {
        let mut stdin = BufReader::new(stdin);
        let mut line = Vec::new();
        loop {
            line.clear();
            if stdin.read_until(b'\n', &mut line).await? == 0 {
                self.close();
                return Ok(());
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                let text = String::from_utf8_lossy(line.trim_ascii()).into_owned();
                self.output
                    .write_stderr(&format!("Error parsing streaming input line: {text}"))
                    .await?;
                self.turn_control.exit_now.cancel();
                return Ok(());
            };
            match message["type"].as_str() {
                Some("control_response") => self.resolve_reply(&message["response"]),
                Some("control_request") => self.clone().handle_request(message).await?,
                Some("user") => {
                    // Fails only if the agent has already ended.
                    let _ = prompts.send(content_text(&message["message"]["content"]));
                }
                _ => {}
            }
        }
    }

    fn resolve_reply(&self, response: &Value) {
        let id = response["request_id"].as_str().unwrap_or_default();
        let waiting = self
            .peer
            .lock()
            .pending
            .as_mut()
            .and_then(|pending| pending.remove(id));
        let answer = if response["subtype"] == "success" {
            HostReply::Success(response["response"].clone())
        } else {
            HostReply::Error(
                response["error"]
                    .as_str()
                    .unwrap_or("the host refused")
                    .to_owned(),
            )
        };
        if let Some(waiting) = waiting {
            // The call may have been interrupted in the meantime.
            let _ = waiting.send(answer);
        }
    }

    async fn handle_request(self: Arc<Self>, message: Value) -> io::Result<()> {
        let id = message["request_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let request = &message["request"];
        let done =
            |payload: Value| json!({"subtype": "success", "request_id": id, "response": payload});
        let refused = |text: String, code: &str| json!({"subtype": "error", "request_id": id, "error": text, "error_code": code});
        let subtype = request["subtype"].as_str().unwrap_or_default();
        let response = match subtype {
            "initialize" => match self.handshake.clone().try_lock_owned() {
                Ok(guard) => {
                    // In a separate task, because the handshake needs replies that this reader receives.
                    let request = request.clone();
                    tokio::spawn(async move {
                        // A broken pipe ends the agent at its next line.
                        let _ = self.initialize(&request, &id).await;
                        drop(guard);
                    });
                    return Ok(());
                }
                Err(_) => refused("already initializing".into(), "invalid_state"),
            },
            "interrupt" if self.turn_control.ignores(IgnoredEvent::Interrupt) => return Ok(()),
            "interrupt" => {
                self.reply(done(json!({"still_queued": []}))).await?;
                self.turn_control.interrupt();
                return Ok(());
            }
            "get_settings" => {
                done(json!({"effective": {}, "sources": [], "applied": {"model": MODEL}}))
            }
            "mcp_status" => done(json!({"mcpServers": self.mcp_status()})),
            "get_binary_version" => done(json!({"version": VERSION})),
            "get_session_cost" => {
                done(json!({"text": "Played from a script; no tokens were bought."}))
            }
            "set_model" => done(json!({"model": MODEL})),
            "set_permission_mode" => done(json!({"mode": request["mode"]})),
            other => refused(
                format!("Unsupported control request subtype: {other}"),
                "unsupported_request",
            ),
        };
        self.reply(response).await
    }

    async fn reply(&self, response: Value) -> io::Result<()> {
        self.output
            .write_json(&json!({"type": "control_response", "response": response}))
            .await
    }

    fn mcp_status(&self) -> Value {
        let peer = self.peer.lock();
        let server = |(name, up): &(String, bool)| {
            let tools = peer.tools.iter().filter(|tool| tool.server == *name);
            let tools: Vec<Value> = tools.map(|tool| json!({"name": tool.name})).collect();
            let status = if *up { "connected" } else { "failed" };
            json!({"name": name, "status": status, "transport": "sdk", "source": "sdk", "tools": tools})
        };
        peer.servers.iter().map(server).collect()
    }

    /// Connects to the host's servers, then confirms.
    async fn initialize(&self, request: &Value, id: &str) -> io::Result<()> {
        self.peer.lock().hooks = request["hooks"].clone();
        let servers = request["sdkMcpServers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let mut connected = Vec::new();
        for name in servers {
            let hello = json!({
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "claude-code", "title": "Scripted agent", "version": VERSION},
            });
            let up = self.call_server(name, "initialize", hello).await?.is_ok();
            connected.push((name.to_owned(), up));
        }
        let account = json!({"tokenSource": "none", "apiKeySource": "none", "apiProvider": MODEL});
        let model = json!({"value": MODEL, "resolvedModel": MODEL, "displayName": "Scripted"});
        let payload = json!({
            "commands": [], "agents": [], "output_style": "default", "available_output_styles": ["default"],
            "models": [model], "account": account, "hooks_applied": true, "pid": std::process::id(),
            "claude_code_version": VERSION,
        });
        self.reply(json!({"subtype": "success", "request_id": id, "response": payload}))
            .await?;
        let mut tools = Vec::new();
        for (name, _) in connected.iter().filter(|(_, up)| *up) {
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            self.send_request(
                json!({"subtype": "mcp_message", "server_name": name, "message": initialized}),
            )
            .await?;
            let Ok(list) = self.call_server(name, "tools/list", Value::Null).await? else {
                continue;
            };
            for tool in list["tools"].as_array().into_iter().flatten() {
                tools.push(HostTool {
                    server: name.clone(),
                    name: tool["name"].as_str().unwrap_or_default().to_owned(),
                    read_only: tool["annotations"]["readOnlyHint"] == true,
                });
            }
        }
        tools.sort_by_key(HostTool::id);
        let mut peer = self.peer.lock();
        peer.servers = connected;
        peer.tools = tools;
        Ok(())
    }

    /// Sends one JSON-RPC request to a server. The error comes from the server or the host.
    pub(super) async fn call_server(
        &self,
        server: &str,
        method: &str,
        params: Value,
    ) -> io::Result<Result<Value, HostReply>> {
        let id = self.rpc_id.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        let withdrawn = CancelOnDrop {
            host: self,
            server,
            id,
            armed: method == "tools/call",
        };
        let answer = self
            .send_request(
                json!({"subtype": "mcp_message", "server_name": server, "message": message}),
            )
            .await?;
        withdrawn.disarm();
        Ok(match answer {
            HostReply::Success(payload) => match payload["mcp_response"].get("error") {
                Some(error) => Err(HostReply::Error(
                    error["message"].as_str().unwrap_or("error").to_owned(),
                )),
                None => Ok(payload["mcp_response"]["result"].clone()),
            },
            other => Err(other),
        })
    }

    /// Sends one control request to the host.
    pub(super) async fn send_request(&self, request: Value) -> io::Result<HostReply> {
        let id = Uuid::new_v4().to_string();
        let (sender, receiver) = oneshot::channel();
        match self.peer.lock().pending.as_mut() {
            Some(pending) => pending.insert(id.clone(), sender),
            None => return Ok(HostReply::Disconnected),
        };
        self.output
            .write_json(&json!({"type": "control_request", "request_id": id, "request": request}))
            .await?;
        Ok(receiver.await.unwrap_or(HostReply::Disconnected))
    }

    /// Runs every hook of `event` that matches the tool; the first objection counts.
    pub(super) async fn run_hooks(&self, event: &str, input: Value) -> io::Result<HookDecision> {
        let (mut edited, mut allowed) = (None, false);
        let groups = self.peer.lock().hooks[event]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let tool = input["tool_name"].as_str().unwrap_or_default();
        for group in groups.iter().filter(|group| hook_matches(group, tool)) {
            for callback in group["hookCallbackIds"].as_array().into_iter().flatten() {
                let mut request =
                    json!({"subtype": "hook_callback", "callback_id": callback, "input": input});
                request["tool_use_id"] = input["tool_use_id"].clone();
                let limit = Duration::from_secs(group["timeout"].as_u64().unwrap_or(600));
                let Ok(answer) = tokio::time::timeout(limit, self.send_request(request)).await
                else {
                    return Ok(HookDecision::TimedOut);
                };
                let HostReply::Success(payload) = answer? else {
                    continue;
                };
                if payload["decision"] == "block" {
                    return Ok(HookDecision::Deny(
                        payload["reason"].as_str().unwrap_or_default().to_owned(),
                    ));
                }
                let decision = &payload["hookSpecificOutput"];
                match decision["permissionDecision"].as_str() {
                    Some("deny") => {
                        let reason = decision["permissionDecisionReason"]
                            .as_str()
                            .unwrap_or("denied")
                            .to_owned();
                        return Ok(HookDecision::Deny(reason));
                    }
                    Some("allow") => allowed = true,
                    _ => {}
                }
                if let Some(input) = decision
                    .get("updatedInput")
                    .filter(|input| input.is_object())
                {
                    edited = Some(input.clone());
                }
            }
        }
        Ok(HookDecision::Proceed {
            input: edited,
            allowed,
        })
    }
}

/// Notifies the server on drop that the result of a call is no longer needed.
struct CancelOnDrop<'a> {
    host: &'a HostConnection,
    server: &'a str,
    id: u64,
    armed: bool,
}

impl CancelOnDrop<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            let params = json!({"requestId": self.id, "reason": "AbortError: interrupted"});
            let message =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            let request =
                json!({"subtype": "mcp_message", "server_name": self.server, "message": message});
            let frame = json!({"type": "control_request", "request_id": Uuid::new_v4().to_string(), "request": request});
            let lines = Arc::clone(&self.host.output);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                // The reply is not needed, and a broken pipe is detected at the next line.
                runtime.spawn(async move { lines.write_json(&frame).await });
            }
        }
    }
}

fn hook_matches(group: &Value, tool: &str) -> bool {
    match group["matcher"].as_str() {
        None | Some("" | "*") => true,
        Some(pattern) => {
            Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|regex| regex.is_match(tool))
        }
    }
}

/// The text of a user message: a string, or blocks of text.
fn content_text(content: &Value) -> String {
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
