//! A backend-neutral tool that a unit's agent may call, and the set of them. The ingest layer provides tools and the
//! Claude backend uses them; neither depends on the other.

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

/// Description of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Name without the server prefix.
    pub name: &'static str,
    /// Description for the model.
    pub description: String,
    /// JSON schema, always of type object.
    pub input_schema: Arc<Map<String, Value>>,
    /// Calls may run concurrently.
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Tool name without the server prefix.
    pub name: String,
    /// Arguments as received, not validated.
    pub arguments: Value,
    /// Id of the call in the stream, if the CLI provides it.
    pub tool_use_id: Option<String>,
}

/// Reply of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolReply {
    /// Text for the model.
    pub markdown: String,
    /// Additional data for the transcript; never sent to the model.
    pub structured: Option<Value>,
    /// The call failed and counts as a failure.
    pub is_error: bool,
    /// The tool understood the call and declined it. The model gets plain text, the screen shows a warning.
    pub declined: bool,
}

impl ToolReply {
    /// A failed call. The text lets the model correct itself.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            markdown: text.into(),
            is_error: true,
            ..Self::default()
        }
    }

    /// A call that was not carried out and is not a failure.
    pub fn declined(text: impl Into<String>) -> Self {
        Self {
            markdown: text.into(),
            declined: true,
            ..Self::default()
        }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self {
            markdown: text.into(),
            ..Self::default()
        }
    }
}

/// The tools of one attempt. Several threads may call it concurrently.
pub trait Toolset: Send + Sync + fmt::Debug {
    /// All tools that are offered to the agent.
    fn specs(&self) -> Vec<ToolSpec>;

    /// Question to an agent that is about to end its work although something of it is left; `None` if nothing is.
    fn question_before_stop(&self) -> Option<String> {
        None
    }

    /// Ends what still runs, because the attempt has ended.
    fn stop(&self) {}

    /// Carries out one call. Unknown names and invalid arguments give a reply with `is_error`. Must not panic. Blocks.
    fn call(&self, call: &ToolCall) -> ToolReply;
}
