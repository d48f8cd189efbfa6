//! Content blocks of a message. One unknown block never costs its siblings.

use std::borrow::Cow;

use super::Raw;

/// One content block.
#[derive(Clone, Debug, PartialEq)]
pub enum Block<'a> {
    /// Text of the model or the user.
    Text(Cow<'a, str>),
    /// Thinking of the model; may be empty when it was withheld.
    Thinking(Cow<'a, str>),
    /// A call.
    ToolUse(ToolUse<'a>),
    /// Its result.
    ToolResult(ToolResult<'a>),
    /// An image, with its media type if it says so.
    Image(Option<Cow<'a, str>>),
    /// Any other block, by its type.
    Unknown(Cow<'a, str>),
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse<'a> {
    /// Id, or empty if the block has none.
    pub id: Cow<'a, str>,
    /// Tool name as the model wrote it.
    pub name: Cow<'a, str>,
    /// Arguments; `None` when absent or null.
    pub input: Option<Raw<'a>>,
}

/// A tool result.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult<'a> {
    /// Id of the call.
    pub tool_use_id: Cow<'a, str>,
    /// Content as it came: string, array, object; `None` when absent or null.
    pub content: Option<Raw<'a>>,
    /// `is_error`, when it is a boolean.
    pub is_error: Option<bool>,
}
