//! The contract's JSON, written directly to a buffer.
//!
//! Serialising with serde would check every raw value again, and whole captures are written. This module must not decide
//! which values an event contains.

use std::io::Write;

use super::event::{
    ActionDetail, ActionEvent, ActionKind, ActionPhase, AgentEvent, CompletedEvent, ENGINE,
    JsonText, ResultDetail, StartedEvent, ToolDetail,
};
use crate::decode::{
    LazyText, RawJson,
    byte_masks::{BLOCK, ByteMasks},
};

impl AgentEvent<'_> {
    /// Appends the event as one JSON object, without a newline.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        write_object(out, |to| match self {
            Self::Started(started) => started.write_fields(to),
            Self::Action(action) => action.write_fields(to),
            Self::Completed(completed) => completed.write_fields(to),
        });
    }
}

impl StartedEvent<'_> {
    fn write_fields(&self, to: &mut FieldWriter<'_>) {
        to.quoted("type", "started");
        to.quoted("engine", ENGINE);
        to.resume(&self.resume);
        to.text("title", &self.title);
        let Some(meta) = &self.meta else { return };
        to.object("meta", |to| {
            to.optional_text("cwd", meta.cwd.as_deref());
            to.optional_raw("tools", meta.tools);
            to.optional_text("permissionMode", meta.permission_mode.as_deref());
            to.optional_text("output_style", meta.output_style.as_deref());
            to.optional_text("apiKeySource", meta.api_key_source.as_deref());
            to.optional_raw("mcp_servers", meta.mcp_servers);
        });
    }
}

impl ActionEvent<'_> {
    fn write_fields(&self, to: &mut FieldWriter<'_>) {
        let action = &self.action;
        to.quoted("type", "action");
        to.quoted("engine", ENGINE);
        to.object("action", |to| {
            to.text("id", &action.id);
            to.quoted("kind", action.kind.as_str());
            to.text("title", &action.title);
            to.object("detail", |to| action.detail.write_fields(to));
        });
        to.quoted("phase", self.phase.as_str());
        if let Some(ok) = self.ok {
            to.boolean("ok", ok);
        }
        to.optional_text("message", self.message.as_deref());
        if action.kind == ActionKind::Warning {
            to.quoted("level", "warning");
        }
    }
}

impl ActionDetail<'_> {
    fn write_fields(&self, to: &mut FieldWriter<'_>) {
        match self {
            Self::Empty => {}
            Self::Tool(tool) => tool.write_fields(to),
            Self::Thinking {
                text,
                parent_tool_use_id,
            } => {
                to.prose("text", text);
                to.optional_text("parent_tool_use_id", parent_tool_use_id.as_deref());
            }
            Self::Denial {
                tool_name,
                tool_use_id,
                tool_input,
            } => {
                to.optional_text("tool_name", tool_name.as_deref());
                to.optional_text("tool_use_id", tool_use_id.as_deref());
                to.optional_raw("tool_input", tool_input.as_ref().map(JsonText::raw));
            }
            Self::Prompt(text) => to.text("prompt", text),
            Self::MalformedLine(line) => to.text("line", line),
        }
    }
}

impl ToolDetail<'_> {
    fn write_fields(&self, to: &mut FieldWriter<'_>) {
        let input = self.tool_input.as_ref().map(JsonText::raw);
        to.optional_text("tool_name", self.tool_name.as_deref());
        to.optional_raw("tool_input", input);
        to.optional_text("name", self.tool_name.as_deref());
        to.optional_raw("input", input);
        to.optional_text("message_id", self.message_id.as_deref());
        to.optional_text("parent_tool_use_id", self.parent_tool_use_id.as_deref());
        if let Some((path, kind)) = &self.changes {
            to.key("changes");
            to.out.push(b'[');
            write_object(to.out, |to| {
                to.text("path", path);
                to.text("kind", kind);
            });
            to.out.push(b']');
        }
        if let Some(seconds) = self.elapsed_seconds {
            to.number("elapsed_seconds", seconds);
        }
        if let Some(result) = &self.result {
            result.write_fields(to);
        }
    }
}

impl ResultDetail<'_> {
    fn write_fields(&self, to: &mut FieldWriter<'_>) {
        to.text("tool_use_id", &self.tool_use_id);
        to.optional_raw("content", self.content);
        to.count("result_len", self.result_len);
        to.boolean("truncated", self.truncated);
        to.boolean("is_error", self.is_error);
    }
}

impl CompletedEvent<'_> {
    fn write_fields(&self, to: &mut FieldWriter<'_>) {
        to.quoted("type", "completed");
        to.quoted("engine", ENGINE);
        to.boolean("ok", self.ok);
        to.text("answer", &self.answer);
        if let Some(resume) = &self.resume {
            to.resume(resume);
        }
        to.optional_text("error", self.error.as_deref());
        to.optional_raw("usage", self.usage.as_ref().map(JsonText::raw));
    }
}

impl ActionKind {
    /// Its text in the contract's JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Tool => "tool",
            Self::FileChange => "file_change",
            Self::WebSearch => "web_search",
            Self::Subagent => "subagent",
            Self::Note => "note",
            Self::Warning => "warning",
        }
    }
}

impl ActionPhase {
    /// Its text in the contract's JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Updated => "updated",
            Self::Completed => "completed",
        }
    }
}

/// Writes the fields of one object.
struct FieldWriter<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

fn write_object(out: &mut Vec<u8>, fields: impl FnOnce(&mut FieldWriter<'_>)) {
    out.push(b'{');
    fields(&mut FieldWriter { out, first: true });
    out.push(b'}');
}

impl FieldWriter<'_> {
    #[inline]
    fn key(&mut self, key: &'static str) {
        self.out
            .extend_from_slice(if self.first { b"\"" } else { b",\"" });
        self.first = false;
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn text(&mut self, key: &'static str, value: &str) {
        self.key(key);
        write_text(value, self.out);
    }

    fn optional_text(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    fn prose(&mut self, key: &'static str, value: &LazyText<'_>) {
        match value.canonical_escaped() {
            None => self.text(key, &value.text()),
            Some(written) => self.quoted(key, written),
        }
    }

    /// Writes a text that is already escaped, or in which nothing needs to be escaped.
    fn quoted(&mut self, key: &'static str, escaped: &str) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(escaped.as_bytes());
        self.out.push(b'"');
    }

    fn boolean(&mut self, key: &'static str, value: bool) {
        self.key(key);
        self.out
            .extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn count(&mut self, key: &'static str, value: usize) {
        self.key(key);
        self.out
            .extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn number(&mut self, key: &'static str, value: f64) {
        self.key(key);
        let _ = serde_json::to_writer(&mut *self.out, &value);
    }

    fn optional_raw(&mut self, key: &'static str, value: Option<RawJson<'_>>) {
        if let Some(value) = value {
            self.key(key);
            self.out.extend_from_slice(value.0.as_bytes());
        }
    }

    fn object(&mut self, key: &'static str, fields: impl FnOnce(&mut FieldWriter<'_>)) {
        self.key(key);
        write_object(self.out, fields);
    }

    /// Writes the session with which the run can be continued.
    fn resume(&mut self, session: &str) {
        self.object("resume", |to| {
            to.quoted("engine", ENGINE);
            to.text("value", session);
        });
    }
}

/// Appends a JSON string. Only the escapes that JSON requires are used.
fn write_text(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Most texts are short. Checking all of their bytes is faster than stopping early.
    if bytes.len() < BLOCK
        && !bytes
            .iter()
            .fold(false, |any, byte| any | is_special(*byte))
    {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut done = 0;
    for block in (0..bytes.len()).step_by(BLOCK) {
        let bits = ByteMasks::from_bytes_at(bytes, block);
        let mut special = bits.quotes | bits.backslashes | bits.controls;
        while special != 0 {
            let at = block + special.trailing_zeros() as usize;
            out.extend_from_slice(&bytes[done..at]);
            match ESCAPE_LETTERS[usize::from(bytes[at])] {
                0 => write_escape(bytes[at], out),
                letter => out.extend_from_slice(&[b'\\', letter]),
            }
            done = at + 1;
            special &= special - 1;
        }
    }
    out.extend_from_slice(&bytes[done..]);
    out.push(b'"');
}

/// The letter of the short escape of a byte; zero if there is none.
const ESCAPE_LETTERS: [u8; 256] = {
    let (bytes, letters, mut table, mut index) = (b"\"\\\n\r\t\x08\x0C", b"\"\\nrtbf", [0; 256], 0);
    while index < bytes.len() {
        table[bytes[index] as usize] = letters[index];
        index += 1;
    }
    table
};

/// Writes the escape of one special byte.
#[cold]
fn write_escape(byte: u8, out: &mut Vec<u8>) {
    // Writing into a Vec cannot fail.
    let _ = write!(out, "\\u{byte:04x}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_are_written_as_serde_json_writes_them(text in r#"([a-z "\\\x00-\x1f\x7f]|\PC){0,200}"#) {
            let mut out = Vec::new();
            write_text(&text, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&text).unwrap());
        }
    }
}
