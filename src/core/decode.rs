//! Decodes the bytes of the agent's streams to typed lines. Total: a line that cannot be read is a variant, never an
//! error.
//!
//! Owns the shapes of stream-json since 1.0.128, of Claude Code's session files, and of the two-way frames. Pure: no
//! tokio, no files, no clock. It must not depend on how lines are used.

pub(crate) mod lazy_text;
pub mod line;
pub mod line_fields;
pub(crate) mod message_block;
mod raw_json;
pub mod user_text;

pub(crate) mod byte_masks;
mod chat_line;
mod json_scanner;
mod line_decoder;
mod line_head;
mod session_file_line;
mod system_line;
mod text;

pub use json_scanner::RawJson;
pub use lazy_text::LazyText;
pub use line::{AgentLine, ChatLine, LineBody, LineKind, ResultLine, Usage};
pub use line_decoder::{decode_line, guess_kind, is_json, opaque_line};
pub use message_block::{MessageBlock, MessageBlocks, ToolResult, ToolUse, content_text};

#[cfg(test)]
mod tests;
