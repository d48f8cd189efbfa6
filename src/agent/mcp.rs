//! The tools of an attempt as an MCP server over frames instead of a pipe; and the same server on a separate transport
//! for any other client ([`serve`]).
//!
//! rmcp implements the server; for an attempt its transport is a pair of channels. Messages of the agent go in with
//! [`ToolServer::send_message`], replies come out of [`ToolServer::next_event`]. The module must not depend on frames
//! or request ids of the two-way protocol.

use std::{borrow::Cow, collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientJsonRpcMessage, ContentBlock, Implementation,
        ListToolsResult, MetaObject, PaginatedRequestParams, ServerCapabilities, ServerConfig, ServerJsonRpcMessage,
        Tool, ToolAnnotations,
    },
    service::{RequestContext, ServerInitializeError},
    transport::{IntoTransport, Transport},
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinHandle,
};

use super::caught_panics;
use crate::units::{
    ToolCall, ToolReply, ToolSpec, Toolset,
    call_effect::{self, CallEffect},
    failure_tally::MCP_TOOL_PREFIX,
};

pub(crate) const SERVER_NAME: &str = "ktx";
/// Metadata key of the call's id in the stream.
const TOOL_USE_ID_META_KEY: &str = "claudecode/toolUseId";
/// Replies up to this many characters stay in the conversation instead of being replaced by a file that the model
/// cannot open.
const MAX_INLINE_RESULT_CHARS: u32 = 500_000;

/// Full ids of the tools, as the agent and the model use them.
pub(crate) fn tool_ids(specs: &[ToolSpec]) -> Vec<String> {
    specs.iter().map(|spec| format!("{MCP_TOOL_PREFIX}{}", spec.name)).collect()
}

/// A tool that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidTool {
    /// The agent would ignore the server.
    #[error("tool {0} cannot be offered: its input schema must have the type object")]
    InvalidSchema(String),
    /// The service rejects such names.
    #[error("tool {0:?} cannot be offered: a name has 1 to 64 letters, digits, - or _")]
    InvalidName(String),
    /// One of the two would never be called.
    #[error("tool {0} cannot be offered twice")]
    DuplicateName(String),
}

/// Checks tools for problems that the agent or the service would only report later.
pub(crate) fn validate_tools(specs: &[ToolSpec]) -> Result<(), InvalidTool> {
    let mut seen = BTreeSet::new();
    for spec in specs {
        let name = spec.name;
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if !plain || name.is_empty() || MCP_TOOL_PREFIX.len() + name.len() > 64 {
            return Err(InvalidTool::InvalidName(name.to_owned()));
        }
        if spec.input_schema.get("type") != Some(&Value::from("object")) {
            return Err(InvalidTool::InvalidSchema(name.to_owned()));
        }
        if !seen.insert(name) {
            return Err(InvalidTool::DuplicateName(name.to_owned()));
        }
    }
    Ok(())
}

/// Output of the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ServerEvent {
    /// A JSON-RPC message for the agent.
    Message(Value),
    /// A call is finished. Sent before its message.
    CallFinished {
        tool: String,
        /// Id of the call in the stream, if the agent provided it.
        tool_use_id: Option<String>,
        /// Effect of the call on earlier failures.
        effect: CallEffect,
        /// Error text, if the call failed.
        failure: Option<String>,
        /// Reply of the tool to a call that it declined, if this is not a failure.
        declined: Option<String>,
    },
}

#[derive(Debug)]
pub(crate) struct ToolServer {
    incoming: UnboundedSender<ClientJsonRpcMessage>,
    outgoing: UnboundedReceiver<ServerEvent>,
    /// Every running call holds a sender of this channel.
    in_flight: mpsc::Receiver<Infallible>,
    task: JoinHandle<()>,
}

impl ToolServer {
    /// Starts a server for `tools` on the current runtime. Call [`validate_tools`] first.
    pub(crate) fn start(tools: Arc<dyn Toolset>) -> Self {
        let (incoming, inbox) = mpsc::unbounded_channel();
        let (outbox, outgoing) = mpsc::unbounded_channel();
        let (busy, calls) = mpsc::channel(1);
        let handler =
            ToolServerHandler { tools, observer: Some(CallObserver { events: outbox.clone(), in_flight: busy }) };
        let task = tokio::spawn(async move {
            match rmcp::serve_server(handler, ChannelTransport { inbox, outbox }).await {
                Ok(running) => match running.waiting().await {
                    Ok(reason) => tracing::debug!(?reason, "tool server ended"),
                    Err(error) => tracing::warn!(%error, "tool server died"),
                },
                Err(error) => tracing::warn!(%error, "tool server was not opened properly"),
            }
        });
        Self { incoming, outgoing, in_flight: calls, task }
    }

    /// Passes a message of the agent to the server. For an invalid message, the error has the reply to send, if it
    /// needs one.
    pub(crate) fn send_message(&self, message: Value) -> Result<(), Option<Value>> {
        let id = message.get("id").cloned();
        let refusal = |code: i32, why: String| {
            id.map(|id| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}))
        };
        match serde_json::from_value(message) {
            Ok(message) => self.incoming.send(message).map_err(|_| refusal(-32603, "the tool server has ended".into())),
            Err(error) => Err(refusal(-32600, format!("not a request that this server understands: {error}"))),
        }
    }

    /// The next output; `None` once the server has ended. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> Option<ServerEvent> {
        self.outgoing.recv().await
    }

    /// Waits until no call is running, for at most `timeout`. Returns false if one still is: it cannot be stopped,
    /// only abandoned.
    pub(crate) async fn drain(self, timeout: Duration) -> bool {
        let Self { incoming, in_flight: mut calls, outgoing: _outgoing, task } = self;
        drop(incoming);
        task.abort();
        tokio::time::timeout(timeout, calls.recv()).await.is_ok()
    }
}

struct ChannelTransport {
    inbox: UnboundedReceiver<ClientJsonRpcMessage>,
    outbox: UnboundedSender<ServerEvent>,
}

impl Transport<RoleServer> for ChannelTransport {
    type Error = serde_json::Error;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let sent = serde_json::to_value(item).map(|message| {
            // The receiver is gone: the attempt is over.
            let _ = self.outbox.send(ServerEvent::Message(message));
        });
        std::future::ready(sent)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.inbox.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inbox.close();
        Ok(())
    }
}

/// Why a client could not be served.
#[derive(Debug, thiserror::Error)]
#[error("the client violated the MCP protocol: {0}")]
pub(crate) struct ServeError(String);

/// Serves `tools` on `transport` until the client disconnects; running calls then have some seconds to finish. Call
/// [`validate_tools`] first.
pub(crate) async fn serve<T, E, A>(tools: Arc<dyn Toolset>, transport: T) -> Result<(), ServeError>
where
    T: IntoTransport<RoleServer, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let running = match rmcp::serve_server(ToolServerHandler { tools, observer: None }, transport).await {
        Ok(running) => running,
        // The client disconnected before it sent anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServeError(error.to_string())),
    };
    running.waiting().await.map(drop).map_err(|error| ServeError(error.to_string()))
}

#[derive(Debug)]
struct ToolServerHandler {
    tools: Arc<dyn Toolset>,
    observer: Option<CallObserver>,
}

/// Observer of the calls, in addition to the client.
#[derive(Clone, Debug)]
struct CallObserver {
    events: UnboundedSender<ServerEvent>,
    in_flight: mpsc::Sender<Infallible>,
}

impl ServerHandler for ToolServerHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new(SERVER_NAME, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.specs().into_iter().map(to_mcp_tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let meta = request.meta.as_ref().unwrap_or(&context.meta);
        let tool_use_id = meta.0.0.get(TOOL_USE_ID_META_KEY).and_then(Value::as_str).map(str::to_owned);
        let call = ToolCall {
            name: request.name.into_owned(),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
            tool_use_id,
        };
        let (tool, tool_use_id) = (call.name.clone(), call.tool_use_id.clone());
        let (tools, busy) = (Arc::clone(&self.tools), self.observer.as_ref().map(|watch| watch.in_flight.clone()));
        let (reply, effect) = caught_panics::spawn_blocking_caught(move || {
            let reply = tools.call(&call);
            drop(busy);
            let effect = call_effect::call_effect(&call, &reply);
            (reply, effect)
        })
        .await
        .unwrap_or_else(|_| {
            let text = format!("{tool} broke down; this is a defect of ingestdeck, not of the call");
            (ToolReply::error(text), CallEffect::ToolCrashed)
        });
        let reply_text = |is_meant: bool| is_meant.then(|| reply.markdown.clone());
        let (failure, declined) = (reply_text(reply.is_error), reply_text(reply.declined && !reply.is_error));
        if let Some(watch) = &self.observer {
            // The receiver is gone: the attempt is over.
            let _ = watch.events.send(ServerEvent::CallFinished { tool, tool_use_id, effect, failure, declined });
        }
        let content = vec![ContentBlock::text(reply.markdown)];
        let result = if reply.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
        Ok(result.into())
    }
}

fn to_mcp_tool(spec: ToolSpec) -> Tool {
    let mut meta = MetaObject::new();
    meta.0.insert("anthropic/maxResultSizeChars".to_owned(), MAX_INLINE_RESULT_CHARS.into());
    Tool::new_with_raw(spec.name, Some(Cow::Owned(spec.description)), Arc::new(spec.input_schema))
        .with_annotations(ToolAnnotations::new().read_only(spec.read_only))
        .with_meta(meta)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use super::*;

    /// `echo` returns its arguments, `fail` fails, `stick` waits until it is released, `break` panics.
    #[derive(Debug, Default)]
    pub(crate) struct FakeTools {
        pub(crate) calls: Mutex<Vec<ToolCall>>,
        pub(crate) latch: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
    }

    impl Toolset for FakeTools {
        fn specs(&self) -> Vec<ToolSpec> {
            [("echo", true), ("fail", false), ("stick", false), ("break", false)]
                .map(|(name, read_only)| spec(name, read_only))
                .into()
        }

        fn call(&self, call: &ToolCall) -> ToolReply {
            self.calls.lock().unwrap().push(call.clone());
            match call.name.as_str() {
                "echo" => ToolReply {
                    markdown: call.arguments.to_string(),
                    structured: Some(json!({"private": true})),
                    ..ToolReply::default()
                },
                "stick" => {
                    let latch = self.latch.lock().unwrap().take();
                    assert!(latch.unwrap().recv().is_err(), "the other end is dropped");
                    ToolReply::text("let go")
                }
                "break" => panic!("on purpose"),
                other => ToolReply::error(format!("{other} failed")),
            }
        }
    }

    pub(crate) fn spec(name: &'static str, read_only: bool) -> ToolSpec {
        let Value::Object(input_schema) = json!({"type": "object", "properties": {}}) else { unreachable!() };
        ToolSpec { name, description: format!("the tool {name}"), input_schema, read_only }
    }

    async fn message(server: &mut ToolServer) -> Value {
        loop {
            match server.next_event().await.unwrap() {
                ServerEvent::Message(message) => return message,
                ServerEvent::CallFinished { .. } => {}
            }
        }
    }

    async fn start_initialized(tools: Arc<FakeTools>) -> ToolServer {
        let mut server = ToolServer::start(tools);
        let hello = json!({"method": "initialize", "jsonrpc": "2.0", "id": 0, "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "2"}}});
        server.send_message(hello).unwrap();
        let answer = message(&mut server).await;
        assert_eq!(answer["id"], 0);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        assert_eq!(answer["result"]["serverInfo"]["name"], "ktx");
        assert!(answer["result"]["capabilities"]["tools"].is_object());
        server.send_message(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        server
    }

    fn call(id: u64, name: &str, arguments: Value) -> Value {
        json!({"method": "tools/call", "jsonrpc": "2.0", "id": id, "params": {
            "name": name, "arguments": arguments,
            "_meta": {"claudecode/toolUseId": format!("t{id}"), "progressToken": id}}})
    }

    #[tokio::test]
    async fn tools_are_listed_with_their_hints() {
        let mut server = start_initialized(Arc::default()).await;
        server.send_message(json!({"method": "tools/list", "jsonrpc": "2.0", "id": 1})).unwrap();
        let answer = message(&mut server).await;
        assert_eq!(
            answer["result"]["tools"][0],
            json!({
                "name": "echo",
                "description": "the tool echo",
                "inputSchema": {"type": "object", "properties": {}},
                "annotations": {"readOnlyHint": true},
                "_meta": {"anthropic/maxResultSizeChars": 500_000},
            })
        );
        assert_eq!(answer["result"]["tools"].as_array().map(Vec::len), Some(4));
    }

    #[tokio::test]
    async fn only_the_text_of_a_reply_reaches_the_model() {
        let toys = Arc::<FakeTools>::default();
        let mut server = start_initialized(Arc::clone(&toys)).await;
        server.send_message(call(7, "echo", json!({"a": "\u{fffd}"}))).unwrap();
        let called = server.next_event().await.unwrap();
        assert_eq!(
            called,
            ServerEvent::CallFinished {
                tool: "echo".into(),
                tool_use_id: Some("t7".into()),
                effect: CallEffect::Neutral,
                failure: None,
                declined: None,
            }
        );
        let answer = message(&mut server).await;
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"]["content"], json!([{"type": "text", "text": "{\"a\":\"\u{fffd}\"}"}]));
        assert!(!answer.to_string().contains("private"));
        assert_eq!(toys.calls.lock().unwrap()[0].tool_use_id.as_deref(), Some("t7"));
    }

    #[tokio::test]
    async fn failures_and_panics_become_error_results() {
        let mut server = start_initialized(Arc::default()).await;
        for (name, text) in [("fail", "fail failed"), ("break", "break broke down"), ("unknown", "unknown failed")] {
            server.send_message(call(1, name, json!({}))).unwrap();
            let Some(ServerEvent::CallFinished { failure: Some(failure), .. }) = server.next_event().await else {
                panic!("{name}")
            };
            assert!(failure.starts_with(text), "{failure}");
            assert_eq!(message(&mut server).await["result"]["isError"], true);
        }
    }

    #[tokio::test]
    async fn malformed_messages_are_refused_without_ending_the_server() {
        let mut server = start_initialized(Arc::default()).await;
        assert_eq!(server.send_message(json!({"jsonrpc": "2.0"})), Err(None));
        let Err(Some(refusal)) = server.send_message(json!({"id": "x", "method": 5})) else { panic!("not refused") };
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!("x"), &json!(-32600)));
        server.send_message(json!({"method": "nonsense/ask", "jsonrpc": "2.0", "id": 3})).unwrap();
        assert_eq!(message(&mut server).await["error"]["code"], -32601);
        server.send_message(call(4, "echo", json!({}))).unwrap();
        assert_eq!(message(&mut server).await["id"], 4);
    }

    #[tokio::test]
    async fn drain_gives_up_on_a_stuck_call() {
        let (held, latch) = std::sync::mpsc::channel();
        let toys = Arc::new(FakeTools { latch: Mutex::new(Some(latch)), ..FakeTools::default() });
        let mut server = start_initialized(Arc::clone(&toys)).await;
        server.send_message(call(1, "echo", json!({}))).unwrap();
        message(&mut server).await;
        server.send_message(call(2, "stick", json!({}))).unwrap();
        while toys.calls.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(!server.drain(Duration::from_millis(20)).await);
        drop(held);
        let idle = start_initialized(toys).await;
        assert!(idle.drain(Duration::from_secs(10)).await);
    }

    #[test]
    fn unfit_tools_are_refused() {
        let fit = spec("echo", true);
        assert_eq!(validate_tools(&[fit.clone(), spec("fail", false)]), Ok(()));
        assert_eq!(validate_tools(&[fit.clone(), fit.clone()]), Err(InvalidTool::DuplicateName("echo".into())));
        assert_eq!(validate_tools(&[spec("has space", true)]), Err(InvalidTool::InvalidName("has space".into())));
        let mut list = fit;
        list.input_schema.insert("type".into(), "array".into());
        assert_eq!(validate_tools(&[list]), Err(InvalidTool::InvalidSchema("echo".into())));
    }
}
