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
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientJsonRpcMessage,
        ContentBlock, Implementation, ListToolsResult, MetaObject, PaginatedRequestParams,
        ServerCapabilities, ServerConfig, ServerJsonRpcMessage, Tool, ToolAnnotations,
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
use ingestdeck_core::units::{
    ToolCall, ToolReply, ToolSpec, Toolset,
    call_effect::{self, CallEffect},
    failure_tally::MCP_TOOL_PREFIX,
};

pub const SERVER_NAME: &str = "ktx";
/// Metadata key of the call's id in the stream.
const TOOL_USE_ID_META_KEY: &str = "claudecode/toolUseId";
/// Replies up to this many characters stay in the conversation instead of being replaced by a file that the model
/// cannot open.
const MAX_INLINE_RESULT_CHARS: u32 = 500_000;

/// Full ids of the tools, as the agent and the model use them.
pub fn tool_ids(specs: &[ToolSpec]) -> Vec<String> {
    specs
        .iter()
        .map(|spec| format!("{MCP_TOOL_PREFIX}{}", spec.name))
        .collect()
}

/// A tool that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTool {
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
pub fn validate_tools(specs: &[ToolSpec]) -> Result<(), InvalidTool> {
    let mut seen = BTreeSet::new();
    for spec in specs {
        let name = spec.name;
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
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
        let handler = ToolServerHandler {
            tools,
            observer: Some(CallObserver {
                events: outbox.clone(),
                in_flight: busy,
            }),
        };
        let task = tokio::spawn(async move {
            match rmcp::serve_server(handler, ChannelTransport { inbox, outbox }).await {
                Ok(running) => match running.waiting().await {
                    Ok(reason) => tracing::debug!(?reason, "tool server ended"),
                    Err(error) => tracing::warn!(%error, "tool server died"),
                },
                Err(error) => tracing::warn!(%error, "tool server was not opened properly"),
            }
        });
        Self {
            incoming,
            outgoing,
            in_flight: calls,
            task,
        }
    }

    /// Passes a message of the agent to the server. For an invalid message, the error has the reply to send, if it
    /// needs one.
    pub(crate) fn send_message(&self, message: Value) -> Result<(), Option<Value>> {
        let id = message.get("id").cloned();
        let refusal = |code: i32, why: String| {
            id.map(
                |id| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}),
            )
        };
        match serde_json::from_value(message) {
            Ok(message) => self
                .incoming
                .send(message)
                .map_err(|_| refusal(-32603, "the tool server has ended".into())),
            Err(error) => Err(refusal(
                -32600,
                format!("not a request that this server understands: {error}"),
            )),
        }
    }

    /// The next output; `None` once the server has ended. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> Option<ServerEvent> {
        self.outgoing.recv().await
    }

    /// Waits until no call is running, for at most `timeout`. Returns false if one still is: it cannot be stopped,
    /// only abandoned.
    pub(crate) async fn drain(self, timeout: Duration) -> bool {
        let Self {
            incoming,
            in_flight: mut calls,
            outgoing: _outgoing,
            task,
        } = self;
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

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
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
pub struct ServeError(String);

/// Serves `tools` on `transport` until the client disconnects; running calls then have some seconds to finish. Call
/// [`validate_tools`] first.
pub async fn serve<T, E, A>(tools: Arc<dyn Toolset>, transport: T) -> Result<(), ServeError>
where
    T: IntoTransport<RoleServer, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let running = match rmcp::serve_server(
        ToolServerHandler {
            tools,
            observer: None,
        },
        transport,
    )
    .await
    {
        Ok(running) => running,
        // The client disconnected before it sent anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServeError(error.to_string())),
    };
    running
        .waiting()
        .await
        .map(drop)
        .map_err(|error| ServeError(error.to_string()))
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
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new(SERVER_NAME, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            self.tools.specs().into_iter().map(to_mcp_tool).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let meta = request.meta.as_ref().unwrap_or(&context.meta);
        let tool_use_id = meta
            .0
            .0
            .get(TOOL_USE_ID_META_KEY)
            .and_then(Value::as_str)
            .map(str::to_owned);
        let call = ToolCall {
            name: request.name.into_owned(),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
            tool_use_id,
        };
        let (tool, tool_use_id) = (call.name.clone(), call.tool_use_id.clone());
        let (tools, busy) = (
            Arc::clone(&self.tools),
            self.observer.as_ref().map(|watch| watch.in_flight.clone()),
        );
        let (reply, effect) = caught_panics::spawn_blocking_caught(move || {
            let reply = tools.call(&call);
            drop(busy);
            let effect = call_effect::call_effect(&call, &reply);
            (reply, effect)
        })
        .await
        .unwrap_or_else(|_| {
            let text =
                format!("{tool} broke down; this is a defect of ingestdeck, not of the call");
            (ToolReply::error(text), CallEffect::ToolCrashed)
        });
        let reply_text = |is_meant: bool| is_meant.then(|| reply.markdown.clone());
        let (failure, declined) = (
            reply_text(reply.is_error),
            reply_text(reply.declined && !reply.is_error),
        );
        if let Some(watch) = &self.observer {
            // The receiver is gone: the attempt is over.
            let _ = watch.events.send(ServerEvent::CallFinished {
                tool,
                tool_use_id,
                effect,
                failure,
                declined,
            });
        }
        let content = vec![ContentBlock::text(reply.markdown)];
        let result = if reply.is_error {
            CallToolResult::error(content)
        } else {
            CallToolResult::success(content)
        };
        Ok(result.into())
    }
}

fn to_mcp_tool(spec: ToolSpec) -> Tool {
    let mut meta = MetaObject::new();
    meta.0.insert(
        "anthropic/maxResultSizeChars".to_owned(),
        MAX_INLINE_RESULT_CHARS.into(),
    );
    Tool::new_with_raw(
        spec.name,
        Some(Cow::Owned(spec.description)),
        spec.input_schema,
    )
    .with_annotations(ToolAnnotations::new().read_only(spec.read_only))
    .with_meta(meta)
}

#[cfg(test)]
pub(crate) mod tests;
