//! What a unit's agent may call: a backend-neutral tool, and the set of them. The ingest layer provides, the
//! Claude backend consumes; neither knows the other.

use std::fmt;

use serde_json::{Map, Value};

/// Description of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Name without server prefix.
    pub name: &'static str,
    /// What the model is told.
    pub description: String,
    /// JSON schema, always of type object.
    pub input_schema: Map<String, Value>,
    /// Calls may run side by side.
    pub read_only: bool,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Tool name without server prefix.
    pub name: String,
    /// Arguments as they came; not validated by anyone yet.
    pub arguments: Value,
    /// Id of the call in the stream, where the CLI passes it on.
    pub tool_use_id: Option<String>,
}

/// What a tool answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolReply {
    /// What the model reads.
    pub markdown: String,
    /// What goes to the transcript beside it; never to the model.
    pub structured: Option<Value>,
    /// The call failed and counts as a failure.
    pub is_error: bool,
    /// The tool understood the call and did not do what it asks for. The model reads a plain text, people a warning.
    pub declined: bool,
}

impl ToolReply {
    /// A failed call, in words that the model can correct itself from.
    pub fn error(text: impl Into<String>) -> Self {
        Self { markdown: text.into(), is_error: true, ..Self::default() }
    }

    /// A call that was not carried out, and is no failure.
    pub fn declined(text: impl Into<String>) -> Self {
        Self { markdown: text.into(), declined: true, ..Self::default() }
    }

    /// A plain answer.
    pub fn text(text: impl Into<String>) -> Self {
        Self { markdown: text.into(), ..Self::default() }
    }
}

/// The tools of one attempt. Calls may come from several threads at once.
pub trait Toolset: Send + Sync + fmt::Debug {
    /// Every tool on offer.
    fn specs(&self) -> Vec<ToolSpec>;

    /// Carries out one call. Unknown names and bad arguments are answers with `is_error`, never panics. Blocks.
    fn call(&self, call: &ToolCall) -> ToolReply;
}
