//! Content blocks of a message. An unknown block does not affect the other blocks.

use std::{borrow::Cow, ops::Deref, slice};

use super::{LazyText, RawJson};

#[derive(Clone, Debug, PartialEq)]
pub enum MessageBlock<'a> {
    /// Text of the model or the user.
    Text(LazyText<'a>),
    /// Thinking of the model; empty if it was withheld.
    Thinking(LazyText<'a>),
    ToolUse(ToolUse<'a>),
    ToolResult(ToolResult<'a>),
    /// An image, with its media type if known.
    Image(Option<Cow<'a, str>>),
    /// Any other block, with its type.
    Unknown(Cow<'a, str>),
}

/// The blocks of a message. Nearly every line has one block, which needs no allocation.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageBlocks<'a> {
    One([MessageBlock<'a>; 1]),
    Many(Vec<MessageBlock<'a>>),
}

impl<'a> MessageBlocks<'a> {
    pub(super) fn push(&mut self, block: MessageBlock<'a>) {
        *self = match std::mem::take(self) {
            Self::Many(blocks) if blocks.is_empty() => Self::One([block]),
            Self::One([first]) => Self::Many(vec![first, block]),
            Self::Many(mut blocks) => {
                blocks.push(block);
                Self::Many(blocks)
            }
        };
    }
}

impl Default for MessageBlocks<'_> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<'a> Deref for MessageBlocks<'a> {
    type Target = [MessageBlock<'a>];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::One(block) => block,
            Self::Many(blocks) => blocks,
        }
    }
}

impl<'s, 'a> IntoIterator for &'s MessageBlocks<'a> {
    type Item = &'s MessageBlock<'a>;
    type IntoIter = slice::Iter<'s, MessageBlock<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse<'a> {
    /// Id, or empty if the block has none.
    pub id: Cow<'a, str>,
    /// Tool name as the model wrote it.
    pub name: Cow<'a, str>,
    /// Arguments; `None` when absent or null.
    pub input: Option<RawJson<'a>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult<'a> {
    pub tool_use_id: Cow<'a, str>,
    /// Raw content: string, array or object; `None` when absent or null.
    pub content: Option<RawJson<'a>>,
    /// Length of the content in bytes, as compact JSON.
    pub content_len: usize,
    /// `is_error`, when it is a boolean.
    pub is_error: Option<bool>,
}

impl ToolResult<'_> {
    /// The content as text, see [`content_text`].
    pub fn text(&self) -> Cow<'_, str> {
        self.content.map(content_text).unwrap_or_default()
    }
}

/// Converts the content of a result to text: a string is unchanged, the texts of an array are joined by newlines with
/// other blocks as `[image]` or the name of their type, and anything else is shown as JSON.
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
    match (
        text.and_then(RawJson::as_str),
        kind.and_then(RawJson::as_str),
    ) {
        (Some(text), _) => text,
        (None, Some(kind)) => Cow::Owned(format!("[{kind}]")),
        (None, None) => Cow::Borrowed(part.0),
    }
}
