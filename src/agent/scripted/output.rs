//! Lines of the scripted agent: their formats, and the two output streams. The module must not depend on the script or
//! the protocol.

use std::{io, sync::OnceLock};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::{mpsc, oneshot},
};
use uuid::Uuid;

use super::script::MessageTokens;

/// Placeholder for the model's name.
pub(super) const MODEL: &str = "scripted";
/// Placeholder for the version.
pub(super) const VERSION: &str = "0.0.0 (scripted)";

/// Bytes to write, and the sender for the result.
type OutputWriteJob = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// Stdout and stderr, each with a writer task. A cancelled call therefore leaves no partial line, and concurrent calls
/// never wait for a lock that a sleeping call holds.
#[derive(Debug)]
pub(super) struct OutputLines {
    out: mpsc::UnboundedSender<OutputWriteJob>,
    err: mpsc::UnboundedSender<OutputWriteJob>,
    session: OnceLock<String>,
}

impl OutputLines {
    /// Writes to these streams until it is dropped.
    pub(super) fn new(
        out: impl AsyncWrite + Send + Unpin + 'static,
        err: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self {
            out: spawn_writer(out),
            err: spawn_writer(err),
            session: OnceLock::new(),
        }
    }

    /// The session id: `wanted` on the first call, then always the same.
    pub(super) fn session_or_init(&self, wanted: impl FnOnce() -> String) -> &str {
        self.session.get_or_init(wanted)
    }

    /// The session id; empty before the first turn.
    pub(super) fn session_id(&self) -> &str {
        self.session.get().map_or("", String::as_str)
    }

    /// Writes a JSON value as one line.
    pub(super) async fn write_json(&self, value: &Value) -> io::Result<()> {
        self.write_bytes(format!("{value}\n").as_bytes()).await
    }

    /// Writes a JSON object with the session id and a new `uuid`, which all lines except control frames have.
    pub(super) async fn write_stamped(&self, mut value: Value) -> io::Result<()> {
        value["session_id"] = self.session_id().into();
        value["uuid"] = Uuid::new_v4().to_string().into();
        self.write_json(&value).await
    }

    /// Writes an `assistant` or `user` line: stamped, with its time.
    pub(super) async fn write_chat(&self, mut value: Value) -> io::Result<()> {
        value["parent_tool_use_id"] = Value::Null;
        value["timestamp"] = Timestamp::now().to_string().into();
        self.write_stamped(value).await
    }

    pub(super) async fn write_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        enqueue(&self.out, bytes.to_vec()).await
    }

    /// Writes a line to stderr.
    pub(super) async fn write_stderr(&self, text: &str) -> io::Result<()> {
        enqueue(&self.err, format!("{text}\n").into_bytes()).await
    }
}

/// Starts the task that writes to `sink`. The channel is unbounded, because every sender waits until its line is
/// written.
fn spawn_writer(
    mut sink: impl AsyncWrite + Send + Unpin + 'static,
) -> mpsc::UnboundedSender<OutputWriteJob> {
    let (sender, mut jobs) = mpsc::unbounded_channel::<OutputWriteJob>();
    tokio::spawn(async move {
        while let Some((bytes, done)) = jobs.recv().await {
            let written = match sink.write_all(&bytes).await {
                Ok(()) => sink.flush().await,
                error => error,
            };
            // The sender may have stopped waiting.
            let _ = done.send(written);
        }
    });
    sender
}

async fn enqueue(to: &mpsc::UnboundedSender<OutputWriteJob>, bytes: Vec<u8>) -> io::Result<()> {
    let (done, written) = oneshot::channel();
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    to.send((bytes, done)).map_err(|_| gone())?;
    written.await.map_err(|_| gone())?
}

/// Usage in the format of a message.
pub(super) fn usage_json(tokens: MessageTokens) -> Value {
    json!({
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output,
    })
}

/// An `assistant` line with one block.
pub(super) fn assistant_line(message_id: &str, block: Value, tokens: MessageTokens) -> Value {
    json!({"type": "assistant", "message": {
        "id": message_id, "type": "message", "role": "assistant", "model": MODEL, "content": [block],
        "stop_reason": null, "stop_sequence": null, "usage": usage_json(tokens),
    }})
}

/// The `assistant` line that reports an API failure.
pub(super) fn api_error_message_line(text: &str) -> Value {
    json!({"type": "assistant", "message": {
        "id": Uuid::new_v4().to_string(), "type": "message", "role": "assistant", "model": "<synthetic>",
        "content": [{"type": "text", "text": text}], "stop_reason": "stop_sequence", "stop_sequence": "",
        "usage": usage_json(MessageTokens::default()),
    }, "is_api_error_message": true})
}

/// A user message that the program writes itself.
pub(super) fn user_text_line(text: &str) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}})
}

/// How the permission to run a call was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermissionDecision {
    Allowed,
    DeniedByMode,
    /// Refused by a hook.
    DeniedByHook,
    /// Interrupted while it waited or ran.
    Interrupted,
    ServerLost,
    /// Not requested, because the call is invalid.
    NotDecided,
}

impl PermissionDecision {
    fn meta(self, id: &str) -> Option<Value> {
        let decided = |kind: Option<&str>, decision: Value| {
            let mut meta = json!({"id": id});
            if let Some(kind) = kind {
                meta["non_execution_kind"] = kind.into();
            }
            meta["permission_decision"] = decision;
            Some(meta)
        };
        let accept = json!({"decision": "accept", "source": "config", "reason_type": "rule"});
        match self {
            Self::Allowed => decided(None, accept),
            Self::ServerLost => decided(Some("interrupted"), accept),
            Self::Interrupted => decided(Some("user-rejected"), accept),
            Self::DeniedByMode => {
                let reject =
                    json!({"decision": "reject", "source": "config", "reason_type": "mode"});
                decided(Some("permission-rule"), reject)
            }
            Self::DeniedByHook => {
                let reject = json!({"decision": "reject", "source": "hook", "reason_type": "hook"});
                decided(Some("permission-rule"), reject)
            }
            Self::NotDecided => None,
        }
    }

    /// True if the call was refused and belongs to `permission_denials`.
    pub(super) fn is_denial(self) -> bool {
        matches!(self, Self::DeniedByMode | Self::DeniedByHook)
    }
}

/// A failed result: its content is a string.
pub(super) fn tool_error_line(id: &str, text: &str, decision: PermissionDecision) -> Value {
    let bare = text
        .trim_start_matches("<tool_use_error>")
        .trim_end_matches("</tool_use_error>");
    let bare = bare.trim_start_matches("Error: ");
    let mut line = json!({"type": "user", "message": {"role": "user", "content": [
        {"type": "tool_result", "content": text, "is_error": true, "tool_use_id": id},
    ]}, "tool_use_result": format!("Error: {bare}")});
    if let Some(meta) = decision.meta(id) {
        line["tool_result_meta"] = json!([meta]);
    }
    line
}

/// A successful result: its content comes from the server.
pub(super) fn tool_result_line(id: &str, content: Value, result: Value) -> Value {
    let mut line = json!({"type": "user", "message": {"role": "user", "content": [
        {"tool_use_id": id, "type": "tool_result", "content": content},
    ]}, "tool_use_result": result});
    line["tool_result_meta"] = json!([PermissionDecision::Allowed.meta(id)]);
    line
}
