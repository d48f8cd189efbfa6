//! Content blocks of a message. One unknown block never costs its siblings.

use std::borrow::Cow;

use super::{LazyText, RawJson};

/// One content block.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageBlock<'a> {
    /// Text of the model or the user.
    Text(LazyText<'a>),
    /// Thinking of the model; may be empty when it was withheld.
    Thinking(LazyText<'a>),
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
    pub input: Option<RawJson<'a>>,
}

/// A tool result.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult<'a> {
    /// Id of the call.
    pub tool_use_id: Cow<'a, str>,
    /// Content as it came: string, array, object; `None` when absent or null.
    pub content: Option<RawJson<'a>>,
    /// `is_error`, when it is a boolean.
    pub is_error: Option<bool>,
}

impl ToolResult<'_> {
    /// The content as people read it, see [`content_text`].
    pub fn text(&self) -> Cow<'_, str> {
        self.content.map(content_text).unwrap_or_default()
    }
}

/// The content of a result as text: a string as it is, the texts of an array joined by newlines with other blocks as
/// `[image]` or whatever their type is, anything else as its JSON.
pub fn content_text(content: RawJson<'_>) -> Cow<'_, str> {
    if let Some(text) = content.as_str() {
        return text;
    }
    if !content.0.starts_with('[') {
        return Cow::Borrowed(content.0);
    }
    let mut parts: Vec<_> = content.items().into_iter().map(item_text).collect();
    match parts.len() {
        1 => parts.pop().unwrap_or_default(),
        _ => Cow::Owned(parts.join("\n")),
    }
}

fn item_text(part: RawJson<'_>) -> Cow<'_, str> {
    if let Some(text) = part.as_str() {
        return text;
    }
    let [kind, text] = part.pick(["type", "text"]);
    match (text.and_then(RawJson::as_str), kind.and_then(RawJson::as_str)) {
        (Some(text), _) => text,
        (None, Some(kind)) => Cow::Owned(format!("[{kind}]")),
        (None, None) => Cow::Borrowed(part.0),
    }
}
