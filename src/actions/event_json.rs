//! The contract's JSON: one description of every shape, written by two writers.
//!
//! [`AgentEvent::write_json`] is the fast one, for whole captures; the `Serialize` implementation is for everything
//! else. Both use the same [`JsonObject`], and a test verifies that their output is identical. This module must not
//! decide which values an event contains.

use std::{borrow::Cow, io::Write};

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};

use super::event::{
    ActionDetail, ActionEvent, ActionKind, ActionPhase, AgentAction, AgentEvent, CompletedEvent, ENGINE, JsonText,
    ResultDetail, StartedEvent, StartedMeta, ToolDetail,
};
use crate::decode::{
    LazyText, RawJson,
    byte_masks::{BLOCK, ByteMasks},
};

impl AgentEvent<'_> {
    /// Appends the event as one JSON object, without a newline.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        write_object(self, out);
    }
}

impl Serialize for AgentEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SerdeObject(self).serialize(serializer)
    }
}

/// An object that writes its fields one by one.
trait JsonObject {
    fn fields<F: FieldWriter>(&self, to: &mut F);
}

/// Receives the fields of one object.
trait FieldWriter {
    fn text(&mut self, key: &'static str, value: &str);
    fn prose(&mut self, key: &'static str, value: &LazyText<'_>);
    /// Writes a constant text in which nothing needs to be escaped.
    fn ascii(&mut self, key: &'static str, value: &'static str);
    fn boolean(&mut self, key: &'static str, value: bool);
    fn count(&mut self, key: &'static str, value: usize);
    fn number(&mut self, key: &'static str, value: f64);
    fn raw(&mut self, key: &'static str, value: RawJson<'_>);
    fn object(&mut self, key: &'static str, value: &impl JsonObject);
    fn objects(&mut self, key: &'static str, values: &[impl JsonObject]);

    fn optional_text(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    fn optional_raw(&mut self, key: &'static str, value: Option<RawJson<'_>>) {
        if let Some(value) = value {
            self.raw(key, value);
        }
    }
}

impl JsonObject for AgentEvent<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        match self {
            Self::Started(started) => started.fields(to),
            Self::Action(action) => action.fields(to),
            Self::Completed(completed) => completed.fields(to),
        }
    }
}

impl JsonObject for StartedEvent<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        to.ascii("type", "started");
        to.ascii("engine", ENGINE);
        to.object("resume", &ResumeJson(&self.resume));
        to.text("title", &self.title);
        if let Some(meta) = &self.meta {
            to.object("meta", &**meta);
        }
    }
}

struct ResumeJson<'a>(&'a str);

impl JsonObject for ResumeJson<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        to.ascii("engine", ENGINE);
        to.text("value", self.0);
    }
}

impl JsonObject for StartedMeta<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        to.optional_text("cwd", self.cwd.as_deref());
        to.optional_raw("tools", self.tools);
        to.optional_text("permissionMode", self.permission_mode.as_deref());
        to.optional_text("output_style", self.output_style.as_deref());
        to.optional_text("apiKeySource", self.api_key_source.as_deref());
        to.optional_raw("mcp_servers", self.mcp_servers);
    }
}

impl JsonObject for ActionEvent<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        to.ascii("type", "action");
        to.ascii("engine", ENGINE);
        to.object("action", &self.action);
        to.ascii("phase", self.phase.as_str());
        if let Some(ok) = self.ok {
            to.boolean("ok", ok);
        }
        to.optional_text("message", self.message.as_deref());
        if self.action.kind == ActionKind::Warning {
            to.ascii("level", "warning");
        }
    }
}

impl JsonObject for AgentAction<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        to.text("id", &self.id);
        to.ascii("kind", self.kind.as_str());
        to.text("title", &self.title);
        to.object("detail", &self.detail);
    }
}

impl JsonObject for ActionDetail<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        match self {
            Self::Empty => {}
            Self::Tool(tool) => tool.fields(to),
            Self::Thinking { text, parent_tool_use_id } => {
                to.prose("text", text);
                to.optional_text("parent_tool_use_id", parent_tool_use_id.as_deref());
            }
            Self::Denial { tool_name, tool_use_id, tool_input } => {
                to.optional_text("tool_name", tool_name.as_deref());
                to.optional_text("tool_use_id", tool_use_id.as_deref());
                to.optional_raw("tool_input", tool_input.as_ref().map(JsonText::raw));
            }
            Self::MalformedLine(line) => to.text("line", line),
        }
    }
}

impl JsonObject for ToolDetail<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        let input = self.tool_input.as_ref().map(JsonText::raw);
        to.optional_text("tool_name", self.tool_name.as_deref());
        to.optional_raw("tool_input", input);
        to.optional_text("name", self.tool_name.as_deref());
        to.optional_raw("input", input);
        to.optional_text("message_id", self.message_id.as_deref());
        to.optional_text("parent_tool_use_id", self.parent_tool_use_id.as_deref());
        if let Some((path, kind)) = &self.changes {
            to.objects("changes", &[FileChangeJson { path, kind }]);
        }
        if let Some(seconds) = self.elapsed_seconds {
            to.number("elapsed_seconds", seconds);
        }
        if let Some(result) = &self.result {
            result.fields(to);
        }
    }
}

struct FileChangeJson<'a> {
    path: &'a Cow<'a, str>,
    kind: &'static str,
}

impl JsonObject for FileChangeJson<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        to.text("path", self.path);
        to.text("kind", self.kind);
    }
}

impl JsonObject for ResultDetail<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        to.text("tool_use_id", &self.tool_use_id);
        to.optional_raw("content", self.content);
        to.count("result_len", self.result_len);
        to.boolean("truncated", self.truncated);
        to.boolean("is_error", self.is_error);
    }
}

impl JsonObject for CompletedEvent<'_> {
    fn fields<F: FieldWriter>(&self, to: &mut F) {
        to.ascii("type", "completed");
        to.ascii("engine", ENGINE);
        to.boolean("ok", self.ok);
        to.text("answer", &self.answer);
        if let Some(resume) = &self.resume {
            to.object("resume", &ResumeJson(resume));
        }
        to.optional_text("error", self.error.as_deref());
        to.optional_raw("usage", self.usage.as_ref().map(JsonText::raw));
    }
}

impl ActionKind {
    /// Its text in the contract's JSON.
    pub(crate) fn as_str(self) -> &'static str {
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
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Updated => "updated",
            Self::Completed => "completed",
        }
    }
}

/// Writes JSON directly to a buffer.
struct DirectJsonWriter<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

fn write_object(shape: &impl JsonObject, out: &mut Vec<u8>) {
    out.push(b'{');
    shape.fields(&mut DirectJsonWriter { out, first: true });
    out.push(b'}');
}

impl DirectJsonWriter<'_> {
    #[inline]
    fn key(&mut self, key: &'static str) {
        self.out.extend_from_slice(if self.first { b"\"" } else { b",\"" });
        self.first = false;
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }
}

impl FieldWriter for DirectJsonWriter<'_> {
    fn text(&mut self, key: &'static str, value: &str) {
        self.key(key);
        write_text(value, self.out);
    }

    fn prose(&mut self, key: &'static str, value: &LazyText<'_>) {
        match value.canonical_escaped() {
            None => self.text(key, &value.text()),
            Some(written) => {
                self.key(key);
                self.out.push(b'"');
                self.out.extend_from_slice(written.as_bytes());
                self.out.push(b'"');
            }
        }
    }

    fn ascii(&mut self, key: &'static str, value: &'static str) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(b'"');
    }

    fn boolean(&mut self, key: &'static str, value: bool) {
        self.key(key);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn count(&mut self, key: &'static str, value: usize) {
        self.key(key);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn number(&mut self, key: &'static str, value: f64) {
        self.key(key);
        let _ = serde_json::to_writer(&mut *self.out, &value);
    }

    fn raw(&mut self, key: &'static str, value: RawJson<'_>) {
        self.key(key);
        self.out.extend_from_slice(value.0.as_bytes());
    }

    fn object(&mut self, key: &'static str, value: &impl JsonObject) {
        self.key(key);
        write_object(value, self.out);
    }

    fn objects(&mut self, key: &'static str, values: &[impl JsonObject]) {
        self.key(key);
        self.out.push(b'[');
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            write_object(value, self.out);
        }
        self.out.push(b']');
    }
}

/// Appends a JSON string. Only the escapes that JSON requires are used.
fn write_text(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Most texts are short. Checking all of their bytes is faster than stopping early.
    if bytes.len() < BLOCK && !bytes.iter().fold(false, |any, byte| any | is_special(*byte)) {
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

/// Serialises an object with serde.
struct SerdeObject<'s, T>(&'s T);

impl<T: JsonObject> Serialize for SerdeObject<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = SerdeFieldWriter { map: serializer.serialize_map(None)?, result: Ok(()) };
        self.0.fields(&mut fields);
        fields.result?;
        fields.map.end()
    }
}

struct SerdeList<'s, T>(&'s [T]);

impl<T: JsonObject> Serialize for SerdeList<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for item in self.0 {
            list.serialize_element(&SerdeObject(item))?;
        }
        list.end()
    }
}

/// The serde writer. It keeps the first error, because [`FieldWriter`] returns none.
struct SerdeFieldWriter<M: SerializeMap> {
    map: M,
    result: Result<(), M::Error>,
}

impl<M: SerializeMap> SerdeFieldWriter<M> {
    fn entry(&mut self, key: &'static str, value: &impl Serialize) {
        if self.result.is_ok() {
            self.result = self.map.serialize_entry(key, value);
        }
    }
}

impl<M: SerializeMap> FieldWriter for SerdeFieldWriter<M> {
    fn text(&mut self, key: &'static str, value: &str) {
        self.entry(key, &value);
    }

    fn prose(&mut self, key: &'static str, value: &LazyText<'_>) {
        self.entry(key, &value.text());
    }

    fn ascii(&mut self, key: &'static str, value: &'static str) {
        self.entry(key, &value);
    }

    fn boolean(&mut self, key: &'static str, value: bool) {
        self.entry(key, &value);
    }

    fn count(&mut self, key: &'static str, value: usize) {
        self.entry(key, &value);
    }

    fn number(&mut self, key: &'static str, value: f64) {
        self.entry(key, &value);
    }

    fn raw(&mut self, key: &'static str, value: RawJson<'_>) {
        self.entry(key, &value);
    }

    fn object(&mut self, key: &'static str, value: &impl JsonObject) {
        self.entry(key, &SerdeObject(value));
    }

    fn objects(&mut self, key: &'static str, values: &[impl JsonObject]) {
        self.entry(key, &SerdeList(values));
    }
}
