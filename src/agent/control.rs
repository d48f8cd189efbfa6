//! Frames of the two-way protocol: our requests, the agent's requests, and which of them are open.
//!
//! A state machine without I/O: frames go in, [`ControlEffect`]s come out, and the caller performs them. It must not
//! depend on processes, tapes or tools.

use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::HashMap};

use serde_json::{Value, json};

use super::mcp;
use ingestdeck_core::{
    actions::input_form::{ELICITATION, InputForm},
    control::AgentRequest,
    diagnostic::{Diagnostic as _, Problem},
    text,
    units::failure_tally::bare_name,
};

/// Hook timeout of the agent, in seconds. Without it, a hold would end after ten minutes.
const HOOK_TIMEOUT_SECONDS: u32 = 86_400;

/// Maximum number of open requests of the agent. A message of the model makes some dozens of calls at most.
const MAX_OPEN_REQUESTS: usize = 256;
/// Reply to requests above this maximum.
const TOO_MANY_REQUESTS_MESSAGE: &str = "too many calls are open; wait for their results";

const PRE_TOOL_USE: &str = "pre_tool_use";
const POST_TOOL_USE: &str = "post_tool_use";
const POST_TOOL_USE_FAILURE: &str = "post_tool_use_failure";
const STOP: &str = "stop";

/// One line to the agent: JSON without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlFrame(pub Vec<u8>);

impl From<Value> for ControlFrame {
    fn from(value: Value) -> Self {
        Self(value.to_string().into_bytes())
    }
}

/// The message that starts the work. The agent would run a text that begins with a slash as a command and not send it
/// to the model; a leading newline prevents that.
pub(crate) fn prompt_frame(prompt: &str) -> ControlFrame {
    let content = if prompt.starts_with('/') {
        Cow::Owned(format!("\n{prompt}"))
    } else {
        Cow::Borrowed(prompt)
    };
    user_message_frame(&content)
}

/// A message of the user, unchanged.
pub(crate) fn user_message_frame(content: &str) -> ControlFrame {
    json!({
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": null,
        "session_id": "",
    })
    .into()
}

/// A request to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ControlRequest {
    Initialize {
        /// Announce our tool server.
        tools: bool,
        /// Ask us before a turn ends.
        asks_to_stop: bool,
    },
    /// End the running turn.
    Interrupt,
    /// Which settings it has read.
    Settings,
    /// A request of a person.
    OfPerson(AgentRequest),
}

impl ControlRequest {
    fn to_json(&self) -> Value {
        match self {
            Self::Initialize {
                tools,
                asks_to_stop,
            } => {
                let hook =
                    |id: &str| json!([{"hookCallbackIds": [id], "timeout": HOOK_TIMEOUT_SECONDS}]);
                let servers: &[&str] = if *tools { &[mcp::SERVER_NAME] } else { &[] };
                let mut hooks = json!({
                    "PreToolUse": hook(PRE_TOOL_USE),
                    "PostToolUse": hook(POST_TOOL_USE),
                    "PostToolUseFailure": hook(POST_TOOL_USE_FAILURE),
                });
                if *asks_to_stop {
                    hooks["Stop"] = hook(STOP);
                }
                json!({
                    "subtype": "initialize",
                    "hooks": hooks,
                    "sdkMcpServers": servers,
                    // Otherwise a resumed session sends the system prompt of its first request instead of the current one.
                    // Releases that record none ignore the field.
                    "systemPromptSnapshot": false,
                })
            }
            Self::Interrupt => json!({"subtype": "interrupt"}),
            Self::Settings => json!({"subtype": "get_settings"}),
            Self::OfPerson(AgentRequest::Model(model)) => {
                json!({"subtype": "set_model", "model": model})
            }
            Self::OfPerson(AgentRequest::PermissionMode(mode)) => {
                json!({"subtype": "set_permission_mode", "mode": mode})
            }
            // Without `summary`, every category is counted by the API.
            Self::OfPerson(AgentRequest::Context) => {
                json!({"subtype": "get_context_usage", "detail": "summary"})
            }
            // Otherwise every transcript of the last seven days is read.
            Self::OfPerson(AgentRequest::Usage) => {
                json!({"subtype": "get_usage", "skip_behaviors": true})
            }
            Self::OfPerson(AgentRequest::StopTask(task)) => {
                json!({"subtype": "stop_task", "task_id": task})
            }
        }
    }
}

/// A call that the agent holds until we decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Tool name without the server prefix.
    pub tool: String,
    pub tool_use_id: Option<String>,
    pub input: Value,
    /// Number of calls of the attempt that failed before this one.
    pub earlier_failures: usize,
    /// The agent asks for a permission, so the call must not pass without a decision.
    pub asks_permission: bool,
}

/// Decision about a held call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ApprovalDecision {
    /// There is no decision: the agent applies its own rules.
    Pass,
    /// A person or a rule allows the call; the agent asks no further question.
    Allow,
    /// Allow the call with other arguments.
    AllowEdited(Value),
    /// A person gives a tool server no input and does not refuse it.
    Cancel,
    /// A person refuses the call; the model reads the reason.
    Deny(String),
    /// A rule denies the call, or it is not possible, regardless of a person's decision; the model reads why.
    DenyByPolicy(String),
}

/// Effect of a frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ControlEffect {
    Write(ControlFrame),
    /// Pass this message to the tool server.
    ForwardToServer(Value),
    /// A call needs a decision: call [`ControlProtocol::resolve_approval`] with this request id.
    ApprovalNeeded {
        request_id: String,
        /// Tool name with the server prefix.
        tool_id: String,
        /// Permission mode of the agent, if it reports it.
        permission_mode: Option<String>,
        call: ApprovalRequest,
    },
    /// A request for input was declined, because a person cannot be asked: which, and why.
    Declined(String),
    /// The agent no longer waits for a reply to this request.
    ApprovalCancelled(String),
    /// The agent is about to end its turn: answer with [`ControlProtocol::answer_stop`].
    StopRequested {
        request_id: String,
    },
    /// The agent reports that a call failed.
    ToolFailed {
        /// Tool name without the server prefix.
        tool: String,
        tool_use_id: Option<String>,
        message: String,
    },
    /// The agent replied to our request: the body of the reply, or its error text.
    ReplyReceived(ControlRequest, Result<Value, Problem>),
}

/// State of the conversation: the open requests of both sides.
#[derive(Debug, Default)]
pub(crate) struct ControlProtocol {
    request_count: u64,
    /// Our unanswered requests, by request id.
    pending_requests: HashMap<String, ControlRequest>,
    /// Requests of the agent to the tool server: JSON-RPC id → request ids, oldest first.
    pending_tool_calls: HashMap<String, Vec<String>>,
    /// Requests of the agent that wait for a decision.
    pending_approvals: Vec<PendingDecision>,
    /// A person answers requests for permission. Without one, they are denied.
    answers_permissions: bool,
    /// The agent was asked to continue instead of ending its turn.
    has_asked: bool,
}

/// A request of the agent that waits for a decision.
#[derive(Debug)]
struct PendingDecision {
    request_id: String,
    kind: PendingKind,
}

/// Which answer the agent expects.
#[derive(Debug)]
enum PendingKind {
    Hook,
    /// A request for permission, with the arguments of the call.
    Permission(Value),
    /// A request of a tool server for input.
    Elicitation,
}

#[derive(Deserialize)]
struct ControlReply {
    subtype: Option<String>,
    request_id: Option<String>,
    #[serde(default)]
    response: Value,
    #[serde(default)]
    error: Value,
    #[serde(default)]
    error_code: Value,
}

impl ControlProtocol {
    /// Passes requests for permission to a person.
    pub(crate) fn with_permission_requests() -> Self {
        Self {
            answers_permissions: true,
            ..Self::default()
        }
    }

    pub(crate) fn start_request(&mut self, ask: ControlRequest) -> ControlFrame {
        self.request_count += 1;
        let id = format!("deck-{}", self.request_count);
        let frame = json!({"type": "control_request", "request_id": id, "request": ask.to_json()});
        self.pending_requests.insert(id, ask);
        frame.into()
    }

    /// True while a request of this kind is open.
    pub(crate) fn is_request_pending(&self, ask: &ControlRequest) -> bool {
        self.pending_requests.values().any(|open| open == ask)
    }

    /// True while the agent waits for a decision or for one of our tools.
    pub(crate) fn has_pending_agent_requests(&self) -> bool {
        !self.pending_tool_calls.is_empty() || !self.pending_approvals.is_empty()
    }

    /// Handles a frame of the agent. `kind` is its type, `body` its `request` or `response`.
    pub(crate) fn handle_frame(
        &mut self,
        kind: &str,
        request_id: &str,
        body: Value,
    ) -> Vec<ControlEffect> {
        match kind {
            "control_request" => self.handle_request(request_id, body),
            "control_response" => self.handle_reply(body).into_iter().collect(),
            "control_cancel_request" => self.cancel_approval(request_id).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Wraps a message of the tool server. Returns `None` if the agent does not wait for it.
    pub(crate) fn handle_server_message(&mut self, message: Value) -> Option<ControlFrame> {
        let key = message.get("id")?.to_string();
        let waiting = self.pending_tool_calls.get_mut(&key)?;
        let request_id = waiting.remove(0);
        if waiting.is_empty() {
            self.pending_tool_calls.remove(&key);
        }
        Some(success_frame(&request_id, json!({"mcp_response": message})))
    }

    /// Handles the end of the tool server: sends errors to its open requests.
    pub(crate) fn handle_server_exit(&mut self) -> Vec<ControlFrame> {
        let open = std::mem::take(&mut self.pending_tool_calls);
        let ids = open.into_values().flatten();
        ids.map(|request_id| error_frame(&request_id, "the tool server has ended"))
            .collect()
    }

    /// Answers a held call. Returns `None` if the agent no longer waits.
    pub(crate) fn resolve_approval(
        &mut self,
        request_id: &str,
        decision: ApprovalDecision,
    ) -> Option<ControlFrame> {
        let at = self
            .pending_approvals
            .iter()
            .position(|held| held.request_id == request_id)?;
        let pending = self.pending_approvals.swap_remove(at);
        let answer = match pending.kind {
            PendingKind::Hook => hook_answer(decision),
            PendingKind::Permission(input) => permission_answer(input, decision),
            PendingKind::Elicitation => elicitation_answer(decision),
        };
        Some(success_frame(request_id, answer))
    }

    /// True once the agent was asked to continue instead of ending its turn.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked
    }

    /// Lets the agent end its turn, or makes it continue with `question`.
    pub(crate) fn answer_stop(&mut self, request_id: &str, question: Option<&str>) -> ControlFrame {
        self.has_asked |= question.is_some();
        let answer = question.map_or_else(
            || json!({}),
            |text| json!({"decision": "block", "reason": text}),
        );
        success_frame(request_id, answer)
    }

    fn handle_request(&mut self, request_id: &str, mut body: Value) -> Vec<ControlEffect> {
        let effect = match body.get("subtype").and_then(Value::as_str) {
            Some("mcp_message") => return self.handle_tool_message(request_id, body),
            Some("hook_callback") => return self.handle_hook(request_id, &mut body),
            Some("can_use_tool") if self.answers_permissions => {
                return self.handle_permission_request(request_id, &mut body);
            }
            Some(ELICITATION) if self.answers_permissions => {
                return self.handle_elicitation(request_id, body);
            }
            Some("can_use_tool") => success_frame(
                request_id,
                json!({"behavior": "deny", "message": "only the tools of this work unit may be used"}),
            ),
            other => error_frame(
                request_id,
                &format!(
                    "ingestdeck does not support {}",
                    other.unwrap_or("this request")
                ),
            ),
        };
        vec![ControlEffect::Write(effect)]
    }

    fn handle_tool_message(&mut self, request_id: &str, mut body: Value) -> Vec<ControlEffect> {
        if body.get("server_name").and_then(Value::as_str) != Some(mcp::SERVER_NAME) {
            return vec![ControlEffect::Write(error_frame(
                request_id,
                "there is no such tool server",
            ))];
        }
        let message = body.get_mut("message").map(Value::take).unwrap_or_default();
        if let Some(id) = message.get("id") {
            if self
                .pending_tool_calls
                .values()
                .map(Vec::len)
                .sum::<usize>()
                >= MAX_OPEN_REQUESTS
            {
                return vec![ControlEffect::Write(error_frame(
                    request_id,
                    TOO_MANY_REQUESTS_MESSAGE,
                ))];
            }
            self.pending_tool_calls
                .entry(id.to_string())
                .or_default()
                .push(request_id.to_owned());
            return vec![ControlEffect::ForwardToServer(message)];
        }
        // A notification has no reply, but its frame needs one.
        let empty = json!({"mcp_response": {"jsonrpc": "2.0", "result": {}}});
        let mut effects = vec![ControlEffect::Write(success_frame(request_id, empty))];
        effects.extend(self.answer_cancelled_call(&message));
        effects.push(ControlEffect::ForwardToServer(message));
        effects
    }

    /// The tool server does not reply to a cancelled call, so we do.
    fn answer_cancelled_call(&mut self, message: &Value) -> Vec<ControlEffect> {
        let cancelled =
            message.get("method").and_then(Value::as_str) == Some("notifications/cancelled");
        let id = message
            .pointer("/params/requestId")
            .filter(|_| cancelled)
            .map(Value::to_string);
        let waiting = id
            .and_then(|id| self.pending_tool_calls.remove(&id))
            .unwrap_or_default();
        waiting
            .iter()
            .map(|request_id| {
                ControlEffect::Write(error_frame(request_id, "the call was cancelled"))
            })
            .collect()
    }

    fn handle_hook(&mut self, request_id: &str, body: &mut Value) -> Vec<ControlEffect> {
        let callback = body
            .get("callback_id")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let text = |pointer: &str| {
            body.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let tool_id = text("/input/tool_name").unwrap_or_default();
        let tool = bare_name(&tool_id).to_owned();
        let tool_use_id = text("/input/tool_use_id").or_else(|| text("/tool_use_id"));
        let should_continue = ControlEffect::Write(success_frame(request_id, json!({})));
        match callback.as_str() {
            PRE_TOOL_USE => {
                let permission_mode = text("/input/permission_mode");
                let input = body
                    .pointer_mut("/input/tool_input")
                    .map(Value::take)
                    .unwrap_or_default();
                let call = ApprovalRequest {
                    tool,
                    tool_use_id,
                    input,
                    earlier_failures: 0,
                    asks_permission: false,
                };
                vec![self.request_approval(request_id, tool_id, permission_mode, call)]
            }
            POST_TOOL_USE_FAILURE => {
                let message = text("/input/error").unwrap_or_default();
                vec![
                    should_continue,
                    ControlEffect::ToolFailed {
                        tool,
                        tool_use_id,
                        message,
                    },
                ]
            }
            STOP => vec![ControlEffect::StopRequested {
                request_id: request_id.to_owned(),
            }],
            _ => vec![should_continue],
        }
    }

    fn handle_permission_request(
        &mut self,
        request_id: &str,
        body: &mut Value,
    ) -> Vec<ControlEffect> {
        let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
        let (tool_id, tool_use_id) = (text("tool_name").unwrap_or_default(), text("tool_use_id"));
        let input = body.get_mut("input").map(Value::take).unwrap_or_default();
        let tool = bare_name(&tool_id).to_owned();
        let call = ApprovalRequest {
            tool,
            tool_use_id,
            input,
            earlier_failures: 0,
            asks_permission: true,
        };
        vec![self.request_approval(request_id, tool_id, None, call)]
    }

    /// Asks a person for the input that a tool server requests, or declines a request of unknown shape.
    fn handle_elicitation(&mut self, request_id: &str, body: Value) -> Vec<ControlEffect> {
        if let Err(problem) = InputForm::of_elicitation(&body) {
            let server = body.get("mcp_server_name").and_then(Value::as_str);
            let server = text::printable(server.unwrap_or("?"), 80).into_owned();
            let problem = problem.to_line();
            let decline = success_frame(request_id, json!({"action": "decline"}));
            return vec![
                ControlEffect::Write(decline),
                ControlEffect::Declined(format!(
                    "declined a request of the tool server `{server}` for input: {problem}"
                )),
            ];
        }
        let call = ApprovalRequest {
            tool: ELICITATION.to_owned(),
            tool_use_id: Some(request_id.to_owned()),
            input: body,
            earlier_failures: 0,
            asks_permission: true,
        };
        vec![self.request_approval(request_id, ELICITATION.to_owned(), None, call)]
    }

    fn request_approval(
        &mut self,
        request_id: &str,
        tool_id: String,
        permission_mode: Option<String>,
        call: ApprovalRequest,
    ) -> ControlEffect {
        let kind = match (call.asks_permission, call.tool.as_str()) {
            (true, ELICITATION) => PendingKind::Elicitation,
            (true, _) => PendingKind::Permission(call.input.clone()),
            (false, _) => PendingKind::Hook,
        };
        self.pending_approvals.push(PendingDecision {
            request_id: request_id.to_owned(),
            kind,
        });
        if self.pending_approvals.len() > MAX_OPEN_REQUESTS
            && let refusal = ApprovalDecision::DenyByPolicy(TOO_MANY_REQUESTS_MESSAGE.to_owned())
            && let Some(frame) = self.resolve_approval(request_id, refusal)
        {
            return ControlEffect::Write(frame);
        }
        ControlEffect::ApprovalNeeded {
            request_id: request_id.to_owned(),
            tool_id,
            permission_mode,
            call,
        }
    }

    fn handle_reply(&mut self, body: Value) -> Option<ControlEffect> {
        let reply: ControlReply = serde_json::from_value(body).ok()?;
        let ask = self.pending_requests.remove(&reply.request_id?)?;
        let failed = reply.subtype.as_deref() == Some("error");
        let error = match reply.error {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let error = match reply.error_code.as_str() {
            Some(code) => format!("{error} ({code})"),
            None => error,
        };
        Some(ControlEffect::ReplyReceived(
            ask,
            if failed {
                Err(error.into())
            } else {
                Ok(reply.response)
            },
        ))
    }

    fn cancel_approval(&mut self, request_id: &str) -> Option<ControlEffect> {
        self.pending_tool_calls.retain(|_, waiting| {
            waiting.retain(|other| other != request_id);
            !waiting.is_empty()
        });
        let at = self
            .pending_approvals
            .iter()
            .position(|held| held.request_id == request_id)?;
        self.pending_approvals.swap_remove(at);
        Some(ControlEffect::ApprovalCancelled(request_id.to_owned()))
    }
}

/// What the model reads about a call whose request for input was cancelled.
const NO_ANSWER: &str = "The user gave no answer.";

fn hook_answer(decision: ApprovalDecision) -> Value {
    let output = match decision {
        ApprovalDecision::Pass => return json!({}),
        ApprovalDecision::Allow => {
            json!({"hookEventName": "PreToolUse", "permissionDecision": "allow"})
        }
        ApprovalDecision::AllowEdited(input) => json!({
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": input,
        }),
        ApprovalDecision::Cancel => json!({
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": NO_ANSWER,
        }),
        ApprovalDecision::Deny(reason) | ApprovalDecision::DenyByPolicy(reason) => json!({
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }),
    };
    json!({"hookSpecificOutput": output})
}

fn permission_answer(input: Value, decision: ApprovalDecision) -> Value {
    match decision {
        ApprovalDecision::Pass | ApprovalDecision::Allow => {
            json!({"behavior": "allow", "updatedInput": input})
        }
        ApprovalDecision::AllowEdited(edited) => {
            json!({"behavior": "allow", "updatedInput": edited})
        }
        ApprovalDecision::Cancel => json!({"behavior": "deny", "message": NO_ANSWER}),
        ApprovalDecision::Deny(reason) | ApprovalDecision::DenyByPolicy(reason) => {
            json!({"behavior": "deny", "message": reason})
        }
    }
}

/// A tool server reads no reason for a refusal.
fn elicitation_answer(decision: ApprovalDecision) -> Value {
    match decision {
        ApprovalDecision::AllowEdited(content) => json!({"action": "accept", "content": content}),
        ApprovalDecision::Deny(_) | ApprovalDecision::DenyByPolicy(_) => {
            json!({"action": "decline"})
        }
        ApprovalDecision::Pass | ApprovalDecision::Allow | ApprovalDecision::Cancel => {
            json!({"action": "cancel"})
        }
    }
}

fn success_frame(request_id: &str, response: Value) -> ControlFrame {
    json!({"type": "control_response", "response": {"subtype": "success", "request_id": request_id, "response": response}})
        .into()
}

fn error_frame(request_id: &str, error: &str) -> ControlFrame {
    json!({"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}})
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(frame: &ControlFrame) -> Value {
        assert!(!frame.0.contains(&b'\n'));
        serde_json::from_slice(&frame.0).unwrap()
    }

    fn written(effects: &[ControlEffect]) -> Vec<Value> {
        let frames = effects.iter().filter_map(|effect| match effect {
            ControlEffect::Write(frame) => Some(frame),
            _ => None,
        });
        frames
            .map(|frame| json_of(frame)["response"].clone())
            .collect()
    }

    fn request(control: &mut ControlProtocol, id: &str, request: Value) -> Vec<ControlEffect> {
        control.handle_frame("control_request", id, request)
    }

    fn mcp_message(message: &Value) -> Value {
        json!({"subtype": "mcp_message", "server_name": "ktx", "message": message})
    }

    fn pre_tool_use(tool: &str, input: &Value) -> Value {
        json!({"subtype": "hook_callback", "callback_id": PRE_TOOL_USE, "tool_use_id": "t1", "input": {
            "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": "t1"}})
    }

    #[test]
    fn initialize_frame_matches_protocol() {
        let mut control = ControlProtocol::default();
        let frame = control.start_request(ControlRequest::Initialize {
            tools: true,
            asks_to_stop: true,
        });
        let hook = |id: &str| json!([{"hookCallbackIds": [id], "timeout": 86_400}]);
        assert_eq!(
            json_of(&frame),
            json!({"type": "control_request", "request_id": "deck-1", "request": {
                "subtype": "initialize",
                "hooks": {
                    "PreToolUse": hook("pre_tool_use"),
                    "PostToolUse": hook("post_tool_use"),
                    "PostToolUseFailure": hook("post_tool_use_failure"),
                    "Stop": hook("stop"),
                },
                "sdkMcpServers": ["ktx"],
                "systemPromptSnapshot": false,
            }})
        );
        let without = json_of(&control.start_request(ControlRequest::Initialize {
            tools: false,
            asks_to_stop: false,
        }));
        assert_eq!(without["request"]["sdkMcpServers"], json!([]));
    }

    #[test]
    fn requests_over_the_limit_are_refused() {
        let mut control = ControlProtocol::default();
        let call =
            |id: usize| mcp_message(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"}));
        for id in 0..MAX_OPEN_REQUESTS {
            assert!(matches!(
                request(&mut control, &format!("c{id}"), call(id))[..],
                [ControlEffect::ForwardToServer(_)]
            ));
            let held = request(
                &mut control,
                &format!("h{id}"),
                pre_tool_use("mcp__ktx__a", &json!({})),
            );
            assert!(matches!(held[..], [ControlEffect::ApprovalNeeded { .. }]));
        }
        let refused = request(&mut control, "c", call(MAX_OPEN_REQUESTS));
        assert_eq!(written(&refused)[0]["error"], TOO_MANY_REQUESTS_MESSAGE);
        let refused = request(&mut control, "h", pre_tool_use("mcp__ktx__a", &json!({})));
        assert_eq!(
            written(&refused)[0]["response"]["hookSpecificOutput"]["permissionDecisionReason"],
            TOO_MANY_REQUESTS_MESSAGE
        );
        control
            .handle_server_message(json!({"jsonrpc": "2.0", "id": 0, "result": {}}))
            .unwrap();
        assert!(matches!(
            request(&mut control, "c", call(MAX_OPEN_REQUESTS))[..],
            [ControlEffect::ForwardToServer(_)]
        ));
    }

    #[test]
    fn reply_resolves_its_request_once() {
        let mut control = ControlProtocol::default();
        control.start_request(ControlRequest::Settings);
        control.start_request(ControlRequest::Interrupt);
        let answer =
            json!({"subtype": "success", "request_id": "deck-1", "response": {"sources": []}});
        assert_eq!(
            control.handle_frame("control_response", "", answer.clone()),
            [ControlEffect::ReplyReceived(
                ControlRequest::Settings,
                Ok(json!({"sources": []}))
            )]
        );
        assert!(
            !control.is_request_pending(&ControlRequest::Settings)
                && control.is_request_pending(&ControlRequest::Interrupt)
        );
        assert_eq!(control.handle_frame("control_response", "", answer), []);
        // Old releases answer an interrupt without a body.
        let bare = json!({"subtype": "success", "request_id": "deck-2"});
        assert_eq!(
            control.handle_frame("control_response", "", bare),
            [ControlEffect::ReplyReceived(
                ControlRequest::Interrupt,
                Ok(Value::Null)
            )]
        );
    }

    #[test]
    fn error_reply_carries_its_message() {
        let mut control = ControlProtocol::default();
        control.start_request(ControlRequest::Settings);
        let refusal = json!({"subtype": "error", "request_id": "deck-1", "error": "unsupported"});
        assert_eq!(
            control.handle_frame("control_response", "", refusal),
            [ControlEffect::ReplyReceived(
                ControlRequest::Settings,
                Err(Problem::new("unsupported"))
            )]
        );
    }

    #[test]
    fn tool_call_is_forwarded_and_its_reply_returned() {
        let mut control = ControlProtocol::default();
        let call =
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo"}});
        assert_eq!(
            request(&mut control, "r1", mcp_message(&call)),
            [ControlEffect::ForwardToServer(call)]
        );
        let message = json!({"jsonrpc": "2.0", "id": 2, "result": {}});
        let frame = control.handle_server_message(message.clone()).unwrap();
        assert_eq!(
            json_of(&frame)["response"],
            json!({"subtype": "success", "request_id": "r1", "response": {"mcp_response": message}})
        );
        assert_eq!(control.handle_server_message(message), None);
    }

    #[test]
    fn ids_of_different_types_are_different_calls() {
        let mut control = ControlProtocol::default();
        for (request_id, id) in [("number", json!(1)), ("text", json!("1"))] {
            request(
                &mut control,
                request_id,
                mcp_message(&json!({"id": id, "method": "ping"})),
            );
        }
        let frame = control
            .handle_server_message(json!({"id": "1", "result": {}}))
            .unwrap();
        assert_eq!(json_of(&frame)["response"]["request_id"], "text");
    }

    #[test]
    fn notification_is_acknowledged_immediately() {
        let mut control = ControlProtocol::default();
        let message = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let effects = request(&mut control, "r1", mcp_message(&message));
        assert_eq!(
            written(&effects),
            [
                json!({"subtype": "success", "request_id": "r1", "response": {"mcp_response": {"jsonrpc": "2.0", "result": {}}}})
            ]
        );
        assert!(effects.contains(&ControlEffect::ForwardToServer(message)));
    }

    #[test]
    fn cancelled_call_gets_an_error_reply() {
        let mut control = ControlProtocol::default();
        request(
            &mut control,
            "call",
            mcp_message(&json!({"id": 5, "method": "tools/call"})),
        );
        let cancel = json!({"method": "notifications/cancelled", "params": {"requestId": 5}});
        let answers = written(&request(&mut control, "cancel", mcp_message(&cancel)));
        assert_eq!(answers[1]["request_id"], "call");
        assert_eq!(answers[1]["subtype"], "error");
        assert_eq!(
            control.handle_server_message(json!({"id": 5, "result": {}})),
            None
        );
    }

    #[test]
    fn server_exit_fails_all_pending_calls() {
        let mut control = ControlProtocol::default();
        request(
            &mut control,
            "a",
            mcp_message(&json!({"id": 5, "method": "tools/call"})),
        );
        assert_eq!(control.handle_server_exit().len(), 1);
        assert_eq!(control.handle_server_exit(), []);
    }

    #[test]
    fn held_call_is_answered_after_its_decision() {
        let mut control = ControlProtocol::default();
        let input = json!({"path": "a"});
        let effects = request(
            &mut control,
            "r1",
            pre_tool_use("mcp__ktx__wiki_read", &input),
        );
        let call = ApprovalRequest {
            tool: "wiki_read".into(),
            tool_use_id: Some("t1".into()),
            input,
            earlier_failures: 0,
            asks_permission: false,
        };
        let (request_id, tool_id, permission_mode) =
            ("r1".into(), "mcp__ktx__wiki_read".into(), None);
        assert_eq!(
            effects,
            [ControlEffect::ApprovalNeeded {
                request_id,
                tool_id,
                permission_mode,
                call
            }]
        );
        let frame = control
            .resolve_approval("r1", ApprovalDecision::Pass)
            .unwrap();
        assert_eq!(json_of(&frame)["response"]["response"], json!({}));
        assert_eq!(
            control.resolve_approval("r1", ApprovalDecision::Allow),
            None,
            "decided twice"
        );
    }

    #[test]
    fn decisions_are_written_as_hook_output() {
        let mut control = ControlProtocol::default();
        let mut output = |decision| {
            request(
                &mut control,
                "r",
                pre_tool_use("mcp__ktx__wiki_read", &json!({})),
            );
            json_of(&control.resolve_approval("r", decision).unwrap())["response"]["response"]["hookSpecificOutput"]
                .clone()
        };
        let allowed = json!({"hookEventName": "PreToolUse", "permissionDecision": "allow"});
        assert_eq!(output(ApprovalDecision::Allow), allowed);
        assert_eq!(
            output(ApprovalDecision::AllowEdited(json!({"path": "b"}))),
            json!({"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"path": "b"}})
        );
        assert_eq!(
            output(ApprovalDecision::Deny("not now".into())),
            json!({"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "not now"})
        );
    }

    #[test]
    fn permission_request_is_answered_with_a_behavior() {
        let mut control = ControlProtocol::with_permission_requests();
        let body = json!({"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1", "input": {"command": "ls"}});
        let mut answer = |decision| {
            let effects = request(&mut control, "r", body.clone());
            let [ControlEffect::ApprovalNeeded { call, .. }] = effects.as_slice() else {
                panic!("{effects:?}")
            };
            assert!(
                call.asks_permission
                    && call.tool == "Bash"
                    && call.input == json!({"command": "ls"})
            );
            json_of(&control.resolve_approval("r", decision).unwrap())["response"]["response"]
                .clone()
        };
        assert_eq!(
            answer(ApprovalDecision::Allow),
            json!({"behavior": "allow", "updatedInput": {"command": "ls"}})
        );
        let edited = json!({"command": "pwd"});
        assert_eq!(
            answer(ApprovalDecision::AllowEdited(edited.clone())),
            json!({"behavior": "allow", "updatedInput": edited})
        );
        assert_eq!(
            answer(ApprovalDecision::Deny("no".into())),
            json!({"behavior": "deny", "message": "no"})
        );
        let effects = request(&mut ControlProtocol::default(), "r", body);
        assert_eq!(
            written(&effects)[0]["response"]["behavior"],
            "deny",
            "without a person"
        );
    }

    #[test]
    fn input_for_a_server_is_answered_with_an_action() {
        let mut control = ControlProtocol::with_permission_requests();
        let schema = json!({"type": "object", "properties": {"seat": {"type": "string"}}});
        let body = json!({"subtype": "elicitation", "mcp_server_name": "booking", "message": "Seat?", "requested_schema": schema});
        let mut answer = |decision| {
            let effects = request(&mut control, "e1", body.clone());
            let [ControlEffect::ApprovalNeeded { call, .. }] = effects.as_slice() else {
                panic!("{effects:?}")
            };
            assert!(call.tool == ELICITATION && call.tool_use_id.as_deref() == Some("e1"));
            json_of(&control.resolve_approval("e1", decision).unwrap())["response"]["response"]
                .clone()
        };
        let content = json!({"seat": "1a"});
        assert_eq!(
            answer(ApprovalDecision::AllowEdited(content.clone())),
            json!({"action": "accept", "content": content})
        );
        let decline = json!({"action": "decline"});
        assert_eq!(answer(ApprovalDecision::Deny("no".into())), decline);
        let cancel = json!({"action": "cancel"});
        assert_eq!(answer(ApprovalDecision::Cancel), cancel);
        assert_eq!(answer(ApprovalDecision::Pass), cancel);
        let url = json!({"subtype": "elicitation", "mcp_server_name": "a\u{1b}[2J", "mode": "url", "url": "https://x"});
        let effects = request(&mut control, "e2", url);
        assert_eq!(written(&effects)[0]["response"], decline);
        assert_eq!(
            effects[1],
            ControlEffect::Declined(
                "declined a request of the tool server `a\\e[2J` for input: it asks to open https://x".into()
            )
        );
    }

    #[test]
    fn cancelled_request_gets_no_reply() {
        let mut control = ControlProtocol::default();
        request(&mut control, "hold", pre_tool_use("Bash", &json!({})));
        request(
            &mut control,
            "call",
            mcp_message(&json!({"id": 1, "method": "tools/call"})),
        );
        assert_eq!(
            control.handle_frame("control_cancel_request", "hold", Value::Null),
            [ControlEffect::ApprovalCancelled("hold".into())]
        );
        assert_eq!(
            control.handle_frame("control_cancel_request", "call", Value::Null),
            []
        );
        assert_eq!(
            control.resolve_approval("hold", ApprovalDecision::Allow),
            None
        );
        assert_eq!(
            control.handle_server_message(json!({"id": 1, "result": {}})),
            None
        );
    }

    #[test]
    fn a_failed_call_is_reported_and_the_hook_released() {
        let mut control = ControlProtocol::default();
        let body = json!({"subtype": "hook_callback", "callback_id": POST_TOOL_USE_FAILURE, "tool_use_id": "t9",
            "input": {"tool_name": "mcp__ktx__wiki_write", "error": "no such page"}});
        let effects = request(&mut control, "r1", body);
        assert_eq!(written(&effects)[0]["response"], json!({}));
        assert_eq!(
            effects[1],
            ControlEffect::ToolFailed {
                tool: "wiki_write".into(),
                tool_use_id: Some("t9".into()),
                message: "no such page".into(),
            }
        );
    }

    #[test]
    fn unknown_requests_are_answered() {
        let mut control = ControlProtocol::default();
        let permission = request(
            &mut control,
            "r0",
            json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}),
        );
        assert_eq!(written(&permission)[0]["response"]["behavior"], "deny");
        for odd in [
            json!({"subtype": "elicitation"}),
            json!({}),
            json!(null),
            json!([1]),
            json!({"subtype": "mcp_message", "server_name": "other", "message": {"id": 1}}),
            json!({"subtype": "mcp_message"}),
        ] {
            let effects = request(&mut control, "r1", odd.clone());
            assert_eq!(written(&effects)[0]["subtype"], "error", "{odd}");
        }
        let unknown_hook = request(
            &mut control,
            "r2",
            json!({"subtype": "hook_callback", "callback_id": "x"}),
        );
        assert_eq!(written(&unknown_hook)[0]["response"], json!({}));
        assert_eq!(control.handle_frame("keep_alive", "", Value::Null), []);
        assert_eq!(
            control.handle_frame("control_response", "", json!("odd")),
            []
        );
    }

    #[test]
    fn fuzzed_frames_are_answered() {
        let bodies = [
            pre_tool_use("mcp__ktx__wiki_write", &json!({"key": "a", "content": "b"})),
            mcp_message(
                &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {}}}),
            ),
            mcp_message(&json!({"method": "notifications/initialized"})),
            json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}),
            json!({"subtype": "hook_callback", "callback_id": POST_TOOL_USE_FAILURE, "input": {"tool_name": "t", "error": "e"}}),
            json!({"subtype": "success", "request_id": "deck-1", "response": {}}),
        ];
        let corpus: Vec<Vec<u8>> = bodies
            .iter()
            .map(|body| body.to_string().into_bytes())
            .collect();
        ingestdeck_test_support::fuzz::fuzz("control frames", &corpus, |bytes| {
            let Ok(body) = serde_json::from_slice::<Value>(bytes) else {
                return;
            };
            let mut control = ControlProtocol::default();
            control.start_request(ControlRequest::Initialize {
                tools: true,
                asks_to_stop: false,
            });
            let effects = request(&mut control, "r1", body.clone());
            assert!(
                !effects.is_empty(),
                "an agent would wait for ever for an answer to {body}"
            );
            for kind in ["control_response", "control_cancel_request", "unknown"] {
                let _ = control.handle_frame(kind, "r1", body.clone());
            }
            control.handle_server_exit();
        });
    }
}
