//! Frames of the two-way protocol: what we ask, what we are asked, who still waits for whom.
//!
//! A state machine without I/O: frames go in, [`Effect`]s come out, and somebody else carries them out. It must not
//! know processes, tapes or tools.

use std::{borrow::Cow, collections::HashMap};

use serde::Deserialize;
use serde_json::{Value, json};

use super::mcp;
use crate::units::tally::bare_name;

/// Seconds that the agent waits for us at a hook. Without it a hold would end after ten minutes.
const HOOK_TIMEOUT_SECONDS: u32 = 86_400;

/// Requests of the agent that may wait for us at a time. A message of the model makes some dozens of calls at most.
const OPEN_REQUESTS: usize = 256;
/// Answer to requests beyond the bound.
const TOO_MANY: &str = "too many calls are open; wait for their results";

const PRE_TOOL_USE: &str = "pre_tool_use";
const POST_TOOL_USE: &str = "post_tool_use";
const POST_TOOL_USE_FAILURE: &str = "post_tool_use_failure";

/// One line to the agent: JSON without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(pub Vec<u8>);

impl From<Value> for Frame {
    fn from(value: Value) -> Self {
        Self(value.to_string().into_bytes())
    }
}

/// The message that starts the work. The agent takes a text that begins with a slash as a command of its own and never
/// shows it to the model; a newline in front prevents that.
pub fn user_message(prompt: &str) -> Frame {
    let content = if prompt.starts_with('/') { Cow::Owned(format!("\n{prompt}")) } else { Cow::Borrowed(prompt) };
    json!({
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": null,
        "session_id": "",
    })
    .into()
}

/// What we may ask the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Open the conversation.
    Initialize {
        /// Announce our tool server.
        tools: bool,
    },
    /// End the running turn.
    Interrupt,
    /// Which settings it has read.
    Settings,
    /// What its tool servers are.
    McpStatus,
}

impl Ask {
    fn request(self) -> Value {
        match self {
            Self::Initialize { tools } => {
                let hook = |id: &str| json!([{"hookCallbackIds": [id], "timeout": HOOK_TIMEOUT_SECONDS}]);
                let servers: &[&str] = if tools { &[mcp::SERVER] } else { &[] };
                json!({
                    "subtype": "initialize",
                    "hooks": {
                        "PreToolUse": hook(PRE_TOOL_USE),
                        "PostToolUse": hook(POST_TOOL_USE),
                        "PostToolUseFailure": hook(POST_TOOL_USE_FAILURE),
                    },
                    "sdkMcpServers": servers,
                })
            }
            Self::Interrupt => json!({"subtype": "interrupt"}),
            Self::Settings => json!({"subtype": "get_settings"}),
            Self::McpStatus => json!({"subtype": "mcp_status"}),
        }
    }
}

/// A call that the agent holds until we decide.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldCall {
    /// Tool without its server prefix.
    pub tool: String,
    /// Id of the call.
    pub tool_use_id: Option<String>,
    /// Its arguments.
    pub input: Value,
    /// Calls of the attempt that had failed before it was made.
    pub failures: usize,
}

/// What to do with a held call.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Let it go on.
    Allow,
    /// Let it go on with other arguments.
    AllowEdited(Value),
    /// A person refuses it; the model reads the reason.
    Deny(String),
    /// It cannot be made, whatever a person thinks; the model reads why.
    Refuse(String),
}

/// What a frame leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write this.
    Write(Frame),
    /// Give this message to the tool server.
    ToServer(Value),
    /// Somebody must decide over a call, and [`Control::decide`] with this request id.
    Held {
        /// Id of the request.
        request_id: String,
        /// Tool with its server prefix.
        tool_id: String,
        /// The permission mode that the agent is in, if it says so.
        permission_mode: Option<String>,
        call: HeldCall,
    },
    /// The agent no longer waits for an answer to this request.
    Withdrawn(String),
    /// The agent says that a call failed.
    ToolFailed {
        /// Tool without its server prefix.
        tool: String,
        /// Id of the call.
        tool_use_id: Option<String>,
        /// Error text.
        message: String,
    },
    /// It answered our question: the body of the answer, or its error text.
    Answered(Ask, Result<Value, String>),
}

/// The conversation's open ends.
#[derive(Debug, Default)]
pub struct Control {
    asked: u64,
    /// Our questions without an answer, by request id.
    questions: HashMap<String, Ask>,
    /// Requests of the agent to the tool server: JSON-RPC id → request ids, oldest first.
    calls: HashMap<String, Vec<String>>,
    /// Requests of the agent that wait for a decision.
    held: Vec<String>,
}

#[derive(Deserialize)]
struct Reply {
    subtype: Option<String>,
    request_id: Option<String>,
    #[serde(default)]
    response: Value,
    #[serde(default)]
    error: Value,
}

impl Control {
    /// Asks the agent something.
    pub fn ask(&mut self, ask: Ask) -> Frame {
        self.asked += 1;
        let id = format!("deck-{}", self.asked);
        let frame = json!({"type": "control_request", "request_id": id, "request": ask.request()});
        self.questions.insert(id, ask);
        frame.into()
    }

    /// True while a question of this kind is open.
    pub fn is_open(&self, ask: Ask) -> bool {
        self.questions.values().any(|open| *open == ask)
    }

    /// True while the agent waits for a decision or for a tool of ours.
    pub fn has_open_requests(&self) -> bool {
        !self.calls.is_empty() || !self.held.is_empty()
    }

    /// Takes in a frame of the agent. `kind` is its type, `body` its `request` or `response`.
    pub fn frame(&mut self, kind: &str, request_id: &str, body: Value) -> Vec<Effect> {
        match kind {
            "control_request" => self.request(request_id, body),
            "control_response" => self.reply(body).into_iter().collect(),
            "control_cancel_request" => self.withdraw(request_id).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Wraps a message of the tool server. `None` if the agent waits for no such message.
    pub fn from_server(&mut self, message: Value) -> Option<Frame> {
        let key = message.get("id")?.to_string();
        let waiting = self.calls.get_mut(&key)?;
        let request_id = waiting.remove(0);
        if waiting.is_empty() {
            self.calls.remove(&key);
        }
        Some(success(&request_id, json!({"mcp_response": message})))
    }

    /// The tool server is gone: whoever waits for it is told.
    pub fn server_ended(&mut self) -> Vec<Frame> {
        let open = std::mem::take(&mut self.calls);
        let ids = open.into_values().flatten();
        ids.map(|request_id| failure(&request_id, "the tool server has ended")).collect()
    }

    /// Answers a held call. `None` if the agent no longer waits.
    pub fn decide(&mut self, request_id: &str, decision: Decision) -> Option<Frame> {
        let at = self.held.iter().position(|held| held == request_id)?;
        self.held.swap_remove(at);
        let output = match decision {
            Decision::Allow => return Some(success(request_id, json!({}))),
            Decision::AllowEdited(input) => json!({
                "hookEventName": "PreToolUse",
                "permissionDecision": "allow",
                "updatedInput": input,
            }),
            Decision::Deny(reason) | Decision::Refuse(reason) => json!({
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }),
        };
        Some(success(request_id, json!({"hookSpecificOutput": output})))
    }

    fn request(&mut self, request_id: &str, mut body: Value) -> Vec<Effect> {
        let effect = match body.get("subtype").and_then(Value::as_str) {
            Some("mcp_message") => return self.tool_message(request_id, body),
            Some("hook_callback") => return self.hook(request_id, &mut body),
            Some("can_use_tool") => success(
                request_id,
                json!({"behavior": "deny", "message": "only the tools of this work unit may be used"}),
            ),
            other => failure(request_id, &format!("ingestdeck does not support {}", other.unwrap_or("this request"))),
        };
        vec![Effect::Write(effect)]
    }

    fn tool_message(&mut self, request_id: &str, mut body: Value) -> Vec<Effect> {
        if body.get("server_name").and_then(Value::as_str) != Some(mcp::SERVER) {
            return vec![Effect::Write(failure(request_id, "there is no such tool server"))];
        }
        let message = body.get_mut("message").map(Value::take).unwrap_or_default();
        if let Some(id) = message.get("id") {
            if self.calls.values().map(Vec::len).sum::<usize>() >= OPEN_REQUESTS {
                return vec![Effect::Write(failure(request_id, TOO_MANY))];
            }
            self.calls.entry(id.to_string()).or_default().push(request_id.to_owned());
            return vec![Effect::ToServer(message)];
        }
        // A notification has no answer, but its frame wants one.
        let empty = json!({"mcp_response": {"jsonrpc": "2.0", "result": {}}});
        let mut effects = vec![Effect::Write(success(request_id, empty))];
        effects.extend(self.abandoned_call(&message));
        effects.push(Effect::ToServer(message));
        effects
    }

    /// The tool server gives no answer to a call that was cancelled, so we do.
    fn abandoned_call(&mut self, message: &Value) -> Vec<Effect> {
        let cancelled = message.get("method").and_then(Value::as_str) == Some("notifications/cancelled");
        let id = message.pointer("/params/requestId").filter(|_| cancelled).map(Value::to_string);
        let waiting = id.and_then(|id| self.calls.remove(&id)).unwrap_or_default();
        waiting.iter().map(|request_id| Effect::Write(failure(request_id, "the call was cancelled"))).collect()
    }

    fn hook(&mut self, request_id: &str, body: &mut Value) -> Vec<Effect> {
        let callback = body.get("callback_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let tool_id = text("/input/tool_name").unwrap_or_default();
        let tool = bare_name(&tool_id).to_owned();
        let tool_use_id = text("/input/tool_use_id").or_else(|| text("/tool_use_id"));
        let go_on = Effect::Write(success(request_id, json!({})));
        match callback.as_str() {
            PRE_TOOL_USE => {
                let permission_mode = text("/input/permission_mode");
                let input = body.pointer_mut("/input/tool_input").map(Value::take).unwrap_or_default();
                self.held.push(request_id.to_owned());
                if self.held.len() > OPEN_REQUESTS {
                    let refusal = self.decide(request_id, Decision::Refuse(TOO_MANY.to_owned()));
                    return refusal.map(Effect::Write).into_iter().collect();
                }
                let call = HeldCall { tool, tool_use_id, input, failures: 0 };
                vec![Effect::Held { request_id: request_id.to_owned(), tool_id, permission_mode, call }]
            }
            POST_TOOL_USE_FAILURE => {
                let message = text("/input/error").unwrap_or_default();
                vec![go_on, Effect::ToolFailed { tool, tool_use_id, message }]
            }
            _ => vec![go_on],
        }
    }

    fn reply(&mut self, body: Value) -> Option<Effect> {
        let reply: Reply = serde_json::from_value(body).ok()?;
        let ask = self.questions.remove(&reply.request_id?)?;
        let failed = reply.subtype.as_deref() == Some("error");
        let error = match reply.error {
            Value::String(text) => text,
            other => other.to_string(),
        };
        Some(Effect::Answered(ask, if failed { Err(error) } else { Ok(reply.response) }))
    }

    fn withdraw(&mut self, request_id: &str) -> Option<Effect> {
        self.calls.retain(|_, waiting| {
            waiting.retain(|other| other != request_id);
            !waiting.is_empty()
        });
        let at = self.held.iter().position(|held| held == request_id)?;
        self.held.swap_remove(at);
        Some(Effect::Withdrawn(request_id.to_owned()))
    }
}

fn success(request_id: &str, response: Value) -> Frame {
    json!({"type": "control_response", "response": {"subtype": "success", "request_id": request_id, "response": response}})
        .into()
}

fn failure(request_id: &str, error: &str) -> Frame {
    json!({"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}})
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(frame: &Frame) -> Value {
        assert!(!frame.0.contains(&b'\n'));
        serde_json::from_slice(&frame.0).unwrap()
    }

    fn written(effects: &[Effect]) -> Vec<Value> {
        let frames = effects.iter().filter_map(|effect| match effect {
            Effect::Write(frame) => Some(frame),
            _ => None,
        });
        frames.map(|frame| json_of(frame)["response"].clone()).collect()
    }

    fn request(control: &mut Control, id: &str, request: Value) -> Vec<Effect> {
        control.frame("control_request", id, request)
    }

    fn mcp_message(message: &Value) -> Value {
        json!({"subtype": "mcp_message", "server_name": "ktx", "message": message})
    }

    fn pre_tool_use(tool: &str, input: &Value) -> Value {
        json!({"subtype": "hook_callback", "callback_id": PRE_TOOL_USE, "tool_use_id": "t1", "input": {
            "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": "t1"}})
    }

    #[test]
    fn the_opening_frame() {
        let mut control = Control::default();
        let frame = control.ask(Ask::Initialize { tools: true });
        let hook = |id: &str| json!([{"hookCallbackIds": [id], "timeout": 86_400}]);
        assert_eq!(
            json_of(&frame),
            json!({"type": "control_request", "request_id": "deck-1", "request": {
                "subtype": "initialize",
                "hooks": {
                    "PreToolUse": hook("pre_tool_use"),
                    "PostToolUse": hook("post_tool_use"),
                    "PostToolUseFailure": hook("post_tool_use_failure"),
                },
                "sdkMcpServers": ["ktx"],
            }})
        );
        let without = json_of(&control.ask(Ask::Initialize { tools: false }));
        assert_eq!(without["request"]["sdkMcpServers"], json!([]));
    }

    #[test]
    fn requests_beyond_the_bound_are_refused() {
        let mut control = Control::default();
        let call = |id: usize| mcp_message(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"}));
        for id in 0..OPEN_REQUESTS {
            assert!(matches!(request(&mut control, &format!("c{id}"), call(id))[..], [Effect::ToServer(_)]));
            let held = request(&mut control, &format!("h{id}"), pre_tool_use("mcp__ktx__a", &json!({})));
            assert!(matches!(held[..], [Effect::Held { .. }]));
        }
        let refused = request(&mut control, "c", call(OPEN_REQUESTS));
        assert_eq!(written(&refused)[0]["error"], TOO_MANY);
        let refused = request(&mut control, "h", pre_tool_use("mcp__ktx__a", &json!({})));
        assert_eq!(written(&refused)[0]["response"]["hookSpecificOutput"]["permissionDecisionReason"], TOO_MANY);
        control.from_server(json!({"jsonrpc": "2.0", "id": 0, "result": {}})).unwrap();
        assert!(matches!(request(&mut control, "c", call(OPEN_REQUESTS))[..], [Effect::ToServer(_)]));
    }

    #[test]
    fn an_answer_finds_its_question_once() {
        let mut control = Control::default();
        control.ask(Ask::Settings);
        control.ask(Ask::Interrupt);
        let answer = json!({"subtype": "success", "request_id": "deck-1", "response": {"sources": []}});
        assert_eq!(
            control.frame("control_response", "", answer.clone()),
            [Effect::Answered(Ask::Settings, Ok(json!({"sources": []})))]
        );
        assert!(!control.is_open(Ask::Settings) && control.is_open(Ask::Interrupt));
        assert_eq!(control.frame("control_response", "", answer), []);
        // Old releases answer an interrupt without a body.
        let bare = json!({"subtype": "success", "request_id": "deck-2"});
        assert_eq!(control.frame("control_response", "", bare), [Effect::Answered(Ask::Interrupt, Ok(Value::Null))]);
    }

    #[test]
    fn a_refused_question_carries_its_reason() {
        let mut control = Control::default();
        control.ask(Ask::McpStatus);
        let refusal = json!({"subtype": "error", "request_id": "deck-1", "error": "unsupported"});
        assert_eq!(
            control.frame("control_response", "", refusal),
            [Effect::Answered(Ask::McpStatus, Err("unsupported".into()))]
        );
    }

    #[test]
    fn a_call_goes_to_the_server_and_its_answer_back() {
        let mut control = Control::default();
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo"}});
        assert_eq!(request(&mut control, "r1", mcp_message(&call)), [Effect::ToServer(call)]);
        let message = json!({"jsonrpc": "2.0", "id": 2, "result": {}});
        let frame = control.from_server(message.clone()).unwrap();
        assert_eq!(
            json_of(&frame)["response"],
            json!({"subtype": "success", "request_id": "r1", "response": {"mcp_response": message}})
        );
        assert_eq!(control.from_server(message), None);
    }

    #[test]
    fn ids_of_different_types_are_different_calls() {
        let mut control = Control::default();
        for (request_id, id) in [("number", json!(1)), ("text", json!("1"))] {
            request(&mut control, request_id, mcp_message(&json!({"id": id, "method": "ping"})));
        }
        let frame = control.from_server(json!({"id": "1", "result": {}})).unwrap();
        assert_eq!(json_of(&frame)["response"]["request_id"], "text");
    }

    #[test]
    fn a_notification_gets_an_empty_answer_at_once() {
        let mut control = Control::default();
        let message = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let effects = request(&mut control, "r1", mcp_message(&message));
        assert_eq!(
            written(&effects),
            [
                json!({"subtype": "success", "request_id": "r1", "response": {"mcp_response": {"jsonrpc": "2.0", "result": {}}}})
            ]
        );
        assert!(effects.contains(&Effect::ToServer(message)));
    }

    #[test]
    fn a_cancelled_call_is_answered() {
        let mut control = Control::default();
        request(&mut control, "call", mcp_message(&json!({"id": 5, "method": "tools/call"})));
        let cancel = json!({"method": "notifications/cancelled", "params": {"requestId": 5}});
        let answers = written(&request(&mut control, "cancel", mcp_message(&cancel)));
        assert_eq!(answers[1]["request_id"], "call");
        assert_eq!(answers[1]["subtype"], "error");
        assert_eq!(control.from_server(json!({"id": 5, "result": {}})), None);
    }

    #[test]
    fn when_the_server_ends_everybody_is_told() {
        let mut control = Control::default();
        request(&mut control, "a", mcp_message(&json!({"id": 5, "method": "tools/call"})));
        assert_eq!(control.server_ended().len(), 1);
        assert_eq!(control.server_ended(), []);
    }

    #[test]
    fn a_held_call_waits_for_its_decision() {
        let mut control = Control::default();
        let input = json!({"path": "a"});
        let effects = request(&mut control, "r1", pre_tool_use("mcp__ktx__wiki_read", &input));
        let call = HeldCall { tool: "wiki_read".into(), tool_use_id: Some("t1".into()), input, failures: 0 };
        let (request_id, tool_id, permission_mode) = ("r1".into(), "mcp__ktx__wiki_read".into(), None);
        assert_eq!(effects, [Effect::Held { request_id, tool_id, permission_mode, call }]);
        let frame = control.decide("r1", Decision::Allow).unwrap();
        assert_eq!(json_of(&frame)["response"]["response"], json!({}));
        assert_eq!(control.decide("r1", Decision::Allow), None, "decided twice");
    }

    #[test]
    fn decisions_are_written_as_hook_output() {
        let mut control = Control::default();
        let mut output = |decision| {
            request(&mut control, "r", pre_tool_use("mcp__ktx__wiki_read", &json!({})));
            json_of(&control.decide("r", decision).unwrap())["response"]["response"]["hookSpecificOutput"].clone()
        };
        assert_eq!(
            output(Decision::AllowEdited(json!({"path": "b"}))),
            json!({"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"path": "b"}})
        );
        assert_eq!(
            output(Decision::Deny("not now".into())),
            json!({"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "not now"})
        );
    }

    #[test]
    fn a_withdrawn_request_gets_no_answer() {
        let mut control = Control::default();
        request(&mut control, "hold", pre_tool_use("Bash", &json!({})));
        request(&mut control, "call", mcp_message(&json!({"id": 1, "method": "tools/call"})));
        assert_eq!(control.frame("control_cancel_request", "hold", Value::Null), [Effect::Withdrawn("hold".into())]);
        assert_eq!(control.frame("control_cancel_request", "call", Value::Null), []);
        assert_eq!(control.decide("hold", Decision::Allow), None);
        assert_eq!(control.from_server(json!({"id": 1, "result": {}})), None);
    }

    #[test]
    fn a_failed_call_is_reported_and_the_hook_released() {
        let mut control = Control::default();
        let body = json!({"subtype": "hook_callback", "callback_id": POST_TOOL_USE_FAILURE, "tool_use_id": "t9",
            "input": {"tool_name": "mcp__ktx__wiki_write", "error": "no such page"}});
        let effects = request(&mut control, "r1", body);
        assert_eq!(written(&effects)[0]["response"], json!({}));
        assert_eq!(
            effects[1],
            Effect::ToolFailed {
                tool: "wiki_write".into(),
                tool_use_id: Some("t9".into()),
                message: "no such page".into(),
            }
        );
    }

    #[test]
    fn every_request_is_answered_whatever_it_is() {
        let mut control = Control::default();
        let permission =
            request(&mut control, "r0", json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}));
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
        let unknown_hook = request(&mut control, "r2", json!({"subtype": "hook_callback", "callback_id": "x"}));
        assert_eq!(written(&unknown_hook)[0]["response"], json!({}));
        assert_eq!(control.frame("keep_alive", "", Value::Null), []);
        assert_eq!(control.frame("control_response", "", json!("odd")), []);
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
        let corpus: Vec<Vec<u8>> = bodies.iter().map(|body| body.to_string().into_bytes()).collect();
        crate::fuzz::fuzz("control frames", &corpus, |bytes| {
            let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return };
            let mut control = Control::default();
            control.ask(Ask::Initialize { tools: true });
            let effects = request(&mut control, "r1", body.clone());
            assert!(!effects.is_empty(), "an agent would wait for ever for an answer to {body}");
            for kind in ["control_response", "control_cancel_request", "unknown"] {
                let _ = control.frame(kind, "r1", body.clone());
            }
            control.server_ended();
        });
    }
}
