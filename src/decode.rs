//! Bytes of the agent's streams → typed lines. Total: what it cannot read is a variant, never an error.
//!
//! Owns the shapes of stream-json since 1.0.128, of Claude Code's session files, and of the two-way frames.
//! Pure: no tokio, no files, no clock. It must not know what anybody does with a line.

pub mod block;
pub mod line;
pub mod prose;
pub mod raw;

pub(crate) mod bits;
mod chat;
mod read;
mod scan;
mod system;
mod text;

pub use block::{Block, ToolResult, ToolUse, content_text};
pub use line::{Body, Chat, Kind, Line, ResultLine, Usage};
pub use prose::Prose;
pub use raw::Raw;
pub use read::{is_json, kind, line};

#[cfg(test)]
mod tests;
