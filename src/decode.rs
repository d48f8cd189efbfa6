//! Decodes the bytes of the agent's streams to typed lines. Total: a line that cannot be read is a variant, never an
//! error.
//!
//! Owns the shapes of stream-json since 1.0.128, of Claude Code's session files, and of the two-way frames. Pure: no
//! tokio, no files, no clock. It must not depend on how lines are used.

pub mod lazy_text;
pub mod line;
pub mod message_block;
pub mod raw_json;

pub(crate) mod byte_masks;
mod chat;
mod json_scanner;
mod read;
mod system;
mod text;

pub use lazy_text::LazyText;
pub use line::{AgentLine, ChatLine, LineBody, LineKind, ResultLine, Usage};
pub use message_block::{MessageBlock, ToolResult, ToolUse, content_text};
pub use raw_json::RawJson;
pub use read::{decode_line, guess_kind, is_json};

#[cfg(test)]
mod tests;
