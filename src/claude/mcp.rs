//! The tools of an attempt as an MCP server, spoken to through frames rather than a pipe of its own; and the same
//! server on a transport of its own, for any other client ([`serve`]).
//!
//! rmcp is the server; for an attempt its transport is a pair of channels. Messages of the agent go in with
//! [`Server::feed`], answers come out of [`Server::next`]. It must not know frames or request ids of the two-way
//! protocol.

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

use super::contained;
use crate::units::{
    ToolCall, ToolReply, ToolSpec, Toolset,
    effect::{self, Effect},
    tally::SERVER_PREFIX,
};

/// Name of the server.
pub const SERVER: &str = "ktx";
/// Where the agent says which call of the stream it is.
const CALL_ID: &str = "claudecode/toolUseId";
/// Answers up to this many characters stay in the conversation instead of being swapped for a file that the model
/// cannot open.
const MAX_ANSWER_CHARS: u32 = 500_000;

/// Full ids of the tools, as the agent and the model name them.
pub fn tool_ids(specs: &[ToolSpec]) -> Vec<String> {
    specs.iter().map(|spec| format!("{SERVER_PREFIX}{}", spec.name)).collect()
}

/// A tool that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitTool {
    /// The agent would drop the server.
    #[error("tool {0} cannot be offered: its input schema must have the type object")]
    Schema(String),
    /// The service refuses such names.
    #[error("tool {0:?} cannot be offered: a name has 1 to 64 letters, digits, - or _")]
    Name(String),
    /// One of them would never be called.
    #[error("tool {0} cannot be offered twice")]
    Twice(String),
}

/// Checks what the agent and the service would only fail on later.
pub fn check(specs: &[ToolSpec]) -> Result<(), UnfitTool> {
    let mut seen = BTreeSet::new();
    for spec in specs {
        let name = spec.name;
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if !plain || name.is_empty() || SERVER_PREFIX.len() + name.len() > 64 {
            return Err(UnfitTool::Name(name.to_owned()));
        }
        if spec.input_schema.get("type") != Some(&Value::from("object")) {
            return Err(UnfitTool::Schema(name.to_owned()));
        }
        if !seen.insert(name) {
            return Err(UnfitTool::Twice(name.to_owned()));
        }
    }
    Ok(())
}

/// What the server has to say.
#[derive(Clone, Debug, PartialEq)]
pub enum FromServer {
    /// A JSON-RPC message for the agent.
    Message(Value),
    /// A call is done. Comes before its message.
    Called {
        /// Tool without prefix.
        tool: String,
        /// Id of the call in the stream, where the agent passed it on.
        tool_use_id: Option<String>,
        /// What it means for the failures before it.
        effect: Effect,
        /// Error text, if it failed.
        failure: Option<String>,
        /// What the tool said to a call that it did not carry out, where that is no failure.
        declined: Option<String>,
    },
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    incoming: UnboundedSender<ClientJsonRpcMessage>,
    outgoing: UnboundedReceiver<FromServer>,
    /// Every call in progress holds a sender of this channel.
    calls: mpsc::Receiver<Infallible>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server over `tools` on the current runtime. Call [`check`] first.
    pub fn start(tools: Arc<dyn Toolset>) -> Self {
        let (incoming, inbox) = mpsc::unbounded_channel();
        let (outbox, outgoing) = mpsc::unbounded_channel();
        let (busy, calls) = mpsc::channel(1);
        let handler = Handler { tools, watch: Some(Watch { outbox: outbox.clone(), busy }) };
        let task = tokio::spawn(async move {
            match rmcp::serve_server(handler, Channels { inbox, outbox }).await {
                Ok(running) => match running.waiting().await {
                    Ok(reason) => tracing::debug!(?reason, "tool server ended"),
                    Err(error) => tracing::warn!(%error, "tool server died"),
                },
                Err(error) => tracing::warn!(%error, "tool server was not opened properly"),
            }
        });
        Self { incoming, outgoing, calls, task }
    }

    /// Hands over a message of the agent. A message that is not one comes back as the answer to give, if it wants one.
    pub fn feed(&self, message: Value) -> Result<(), Option<Value>> {
        let id = message.get("id").cloned();
        let refusal = |code: i32, why: String| {
            id.map(|id| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}))
        };
        match serde_json::from_value(message) {
            Ok(message) => self.incoming.send(message).map_err(|_| refusal(-32603, "the tool server has ended".into())),
            Err(error) => Err(refusal(-32600, format!("not a request that this server understands: {error}"))),
        }
    }

    /// The next thing it says; `None` once it has ended. May be dropped and called again.
    pub async fn next(&mut self) -> Option<FromServer> {
        self.outgoing.recv().await
    }

    /// Waits until no call is in progress, but not longer than `patience`. False if one still is: it cannot be
    /// stopped, only left behind.
    pub async fn settle(self, patience: Duration) -> bool {
        let Self { incoming, mut calls, outgoing: _outgoing, task } = self;
        drop(incoming);
        task.abort();
        tokio::time::timeout(patience, calls.recv()).await.is_ok()
    }
}

struct Channels {
    inbox: UnboundedReceiver<ClientJsonRpcMessage>,
    outbox: UnboundedSender<FromServer>,
}

impl Transport<RoleServer> for Channels {
    type Error = serde_json::Error;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let sent = serde_json::to_value(item).map(|message| {
            // Nobody listens any more: the attempt is over.
            let _ = self.outbox.send(FromServer::Message(message));
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

/// Why a client was not served.
#[derive(Debug, thiserror::Error)]
#[error("the client does not speak MCP as it should: {0}")]
pub struct ServeError(String);

/// Serves `tools` on `transport` until the client leaves; calls that are in progress then have some seconds to answer.
/// Call [`check`] first.
pub async fn serve<T, E, A>(tools: Arc<dyn Toolset>, transport: T) -> Result<(), ServeError>
where
    T: IntoTransport<RoleServer, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let running = match rmcp::serve_server(Handler { tools, watch: None }, transport).await {
        Ok(running) => running,
        // It left before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServeError(error.to_string())),
    };
    running.waiting().await.map(drop).map_err(|error| ServeError(error.to_string()))
}

#[derive(Debug)]
struct Handler {
    tools: Arc<dyn Toolset>,
    watch: Option<Watch>,
}

/// Who is told of calls beside the client.
#[derive(Clone, Debug)]
struct Watch {
    outbox: UnboundedSender<FromServer>,
    busy: mpsc::Sender<Infallible>,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new(SERVER, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.specs().into_iter().map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let meta = request.meta.as_ref().unwrap_or(&context.meta);
        let tool_use_id = meta.0.0.get(CALL_ID).and_then(Value::as_str).map(str::to_owned);
        let call = ToolCall {
            name: request.name.into_owned(),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
            tool_use_id,
        };
        let (tool, tool_use_id) = (call.name.clone(), call.tool_use_id.clone());
        let (tools, busy) = (Arc::clone(&self.tools), self.watch.as_ref().map(|watch| watch.busy.clone()));
        let (reply, effect) = contained::blocking(move || {
            let reply = tools.call(&call);
            drop(busy);
            let effect = effect::of(&call, &reply);
            (reply, effect)
        })
        .await
        .unwrap_or_else(|_| {
            let text = format!("{tool} broke down; this is a defect of ingestdeck, not of the call");
            (ToolReply::error(text), Effect::Broken)
        });
        let said = |is_meant: bool| is_meant.then(|| reply.markdown.clone());
        let (failure, declined) = (said(reply.is_error), said(reply.declined && !reply.is_error));
        if let Some(watch) = &self.watch {
            // Nobody listens any more: the attempt is over.
            let _ = watch.outbox.send(FromServer::Called { tool, tool_use_id, effect, failure, declined });
        }
        let content = vec![ContentBlock::text(reply.markdown)];
        let result = if reply.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
        Ok(result.into())
    }
}

fn tool(spec: ToolSpec) -> Tool {
    let mut meta = MetaObject::new();
    meta.0.insert("anthropic/maxResultSizeChars".to_owned(), MAX_ANSWER_CHARS.into());
    Tool::new_with_raw(spec.name, Some(Cow::Owned(spec.description)), Arc::new(spec.input_schema))
        .with_annotations(ToolAnnotations::new().read_only(spec.read_only))
        .with_meta(meta)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use super::*;

    /// `echo` answers with its arguments, `fail` fails, `stick` waits until it is let go, `break` panics.
    #[derive(Debug, Default)]
    pub(crate) struct Toys {
        pub(crate) calls: Mutex<Vec<ToolCall>>,
        pub(crate) latch: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
    }

    impl Toolset for Toys {
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

    async fn message(server: &mut Server) -> Value {
        loop {
            match server.next().await.unwrap() {
                FromServer::Message(message) => return message,
                FromServer::Called { .. } => {}
            }
        }
    }

    async fn opened(tools: Arc<Toys>) -> Server {
        let mut server = Server::start(tools);
        let hello = json!({"method": "initialize", "jsonrpc": "2.0", "id": 0, "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "2"}}});
        server.feed(hello).unwrap();
        let answer = message(&mut server).await;
        assert_eq!(answer["id"], 0);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        assert_eq!(answer["result"]["serverInfo"]["name"], "ktx");
        assert!(answer["result"]["capabilities"]["tools"].is_object());
        server.feed(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        server
    }

    fn call(id: u64, name: &str, arguments: Value) -> Value {
        json!({"method": "tools/call", "jsonrpc": "2.0", "id": id, "params": {
            "name": name, "arguments": arguments,
            "_meta": {"claudecode/toolUseId": format!("t{id}"), "progressToken": id}}})
    }

    #[tokio::test]
    async fn tools_are_listed_with_their_hints() {
        let mut server = opened(Arc::default()).await;
        server.feed(json!({"method": "tools/list", "jsonrpc": "2.0", "id": 1})).unwrap();
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
    async fn a_call_reaches_the_tool_and_only_its_text_the_model() {
        let toys = Arc::<Toys>::default();
        let mut server = opened(Arc::clone(&toys)).await;
        server.feed(call(7, "echo", json!({"a": "\u{fffd}"}))).unwrap();
        let called = server.next().await.unwrap();
        assert_eq!(
            called,
            FromServer::Called {
                tool: "echo".into(),
                tool_use_id: Some("t7".into()),
                effect: Effect::Plain,
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
    async fn failures_and_panics_are_answers() {
        let mut server = opened(Arc::default()).await;
        for (name, text) in [("fail", "fail failed"), ("break", "break broke down"), ("unknown", "unknown failed")] {
            server.feed(call(1, name, json!({}))).unwrap();
            let Some(FromServer::Called { failure: Some(failure), .. }) = server.next().await else { panic!("{name}") };
            assert!(failure.starts_with(text), "{failure}");
            assert_eq!(message(&mut server).await["result"]["isError"], true);
        }
    }

    #[tokio::test]
    async fn nonsense_is_refused_without_ending_the_server() {
        let mut server = opened(Arc::default()).await;
        assert_eq!(server.feed(json!({"jsonrpc": "2.0"})), Err(None));
        let Err(Some(refusal)) = server.feed(json!({"id": "x", "method": 5})) else { panic!("not refused") };
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!("x"), &json!(-32600)));
        server.feed(json!({"method": "nonsense/ask", "jsonrpc": "2.0", "id": 3})).unwrap();
        assert_eq!(message(&mut server).await["error"]["code"], -32601);
        server.feed(call(4, "echo", json!({}))).unwrap();
        assert_eq!(message(&mut server).await["id"], 4);
    }

    #[tokio::test]
    async fn a_stuck_call_is_left_behind() {
        let (held, latch) = std::sync::mpsc::channel();
        let toys = Arc::new(Toys { latch: Mutex::new(Some(latch)), ..Toys::default() });
        let mut server = opened(Arc::clone(&toys)).await;
        server.feed(call(1, "echo", json!({}))).unwrap();
        message(&mut server).await;
        server.feed(call(2, "stick", json!({}))).unwrap();
        while toys.calls.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(!server.settle(Duration::from_millis(20)).await);
        drop(held);
        let idle = opened(toys).await;
        assert!(idle.settle(Duration::from_secs(10)).await);
    }

    #[test]
    fn unfit_tools_are_refused() {
        let fit = spec("echo", true);
        assert_eq!(check(&[fit.clone(), spec("fail", false)]), Ok(()));
        assert_eq!(check(&[fit.clone(), fit.clone()]), Err(UnfitTool::Twice("echo".into())));
        assert_eq!(check(&[spec("has space", true)]), Err(UnfitTool::Name("has space".into())));
        let mut list = fit;
        list.input_schema.insert("type".into(), "array".into());
        assert_eq!(check(&[list]), Err(UnfitTool::Schema("echo".into())));
    }
}
