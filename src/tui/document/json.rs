//! JSON layout for reading: one field per line, strings as plain text, large values folded.
//!
//! Any input is accepted: invalid and truncated values are shown as written. It must not depend on the source of a
//! text.

use std::{collections::BTreeSet, sync::Arc};

use super::{CHUNK, JsonNodeId, LayoutWriter, StyleRole, char_boundary};

/// JSON that is being laid out.
#[derive(Clone, Debug)]
pub(crate) struct JsonFormatter {
    json: Arc<str>,
    /// Number of this text in its document; `None` until its layout begins.
    pub(super) part: Option<u32>,
    /// Depth and length in bytes above which values are folded by default.
    fold: (usize, usize),
    at: usize,
    stack: Vec<bool>,
    key: bool,
    /// The string that is being laid out, and the offset of its rest.
    string: Option<(String, usize)>,
}

impl JsonFormatter {
    /// A formatter that folds no values.
    pub(crate) fn unfolded(json: impl Into<Arc<str>>) -> Self {
        Self::folded(json, usize::MAX, usize::MAX)
    }

    /// A formatter that folds values at least `depth` deep that are longer than `long` bytes.
    pub(crate) fn folded(json: impl Into<Arc<str>>, depth: usize, long: usize) -> Self {
        let json: Arc<str> = json.into();
        let at = json.len() - json.trim_start().len();
        Self {
            json,
            part: None,
            fold: (depth, long),
            at,
            stack: Vec::new(),
            key: false,
            string: None,
        }
    }

    /// Lays out a little more. False when the text is complete.
    pub(super) fn step(
        &mut self,
        writer: &mut LayoutWriter,
        turned: &BTreeSet<JsonNodeId>,
    ) -> bool {
        let until = writer.cost.saturating_add(CHUNK);
        while writer.cost < until {
            if self.string.is_some() {
                self.more_of_string(writer);
            } else if !self.token(writer, turned) {
                if !writer.line.is_empty() {
                    writer.end_line();
                }
                writer.indent = 0;
                return false;
            }
        }
        true
    }

    fn skip_white(&mut self) {
        let rest = &self.json[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn token(&mut self, writer: &mut LayoutWriter, turned: &BTreeSet<JsonNodeId>) -> bool {
        let json = Arc::clone(&self.json);
        let rest = &json[self.at..];
        let Some(first) = rest.as_bytes().first() else {
            return false;
        };
        // Every token costs at least 1, so that a step always ends.
        writer.cost += 1;
        match first {
            b'{' | b'[' => self.open(writer, rest, turned),
            b'}' | b']' => {
                self.stack.pop();
                writer.new_line(self.stack.len());
                writer.put(StyleRole::Dim, &rest[..1]);
                self.at += 1;
                self.skip_white();
            }
            b',' => {
                writer.put(StyleRole::Dim, ",");
                writer.new_line(self.stack.len());
                self.key = self.stack.last().copied().unwrap_or_default();
                self.at += 1;
                self.skip_white();
            }
            b':' => {
                writer.put(StyleRole::Dim, ": ");
                self.key = false;
                self.at += 1;
                self.skip_white();
            }
            b'"' => {
                let end = string_end(rest.as_bytes());
                let written = &rest[..end];
                let read = serde_json::from_str::<String>(written);
                self.string = Some((
                    read.unwrap_or_else(|_| written.trim_matches('"').to_owned()),
                    0,
                ));
                self.at += end;
                self.skip_white();
                writer.put(self.role(), "\"");
            }
            _ => {
                let end = rest
                    .find([',', '}', ']', ':', '"', '{', '[', '\n'])
                    .unwrap_or(rest.len())
                    .max(1);
                let end = (end..=rest.len())
                    .find(|end| rest.is_char_boundary(*end))
                    .unwrap_or(rest.len());
                writer.put(StyleRole::JsonValue, rest[..end].trim_end());
                self.at += end;
                self.skip_white();
            }
        }
        true
    }

    fn open(&mut self, writer: &mut LayoutWriter, rest: &str, turned: &BTreeSet<JsonNodeId>) {
        let object = rest.starts_with('{');
        let close = if object { '}' } else { ']' };
        let after = rest[1..].trim_start();
        if after.starts_with(close) {
            writer.put(StyleRole::Dim, if object { "{}" } else { "[]" });
            self.at += rest.len() - after.len() + 1;
            self.skip_white();
            return;
        }
        let depth = self.stack.len();
        if depth > 0 && self.fold.0 != usize::MAX {
            let id = JsonNodeId {
                part: self.part.unwrap_or_default(),
                at: u32::try_from(self.at).unwrap_or(u32::MAX),
            };
            // Only folded values are scanned to their end, so that every byte is scanned once.
            let long = || extent(&rest.as_bytes()[..rest.len().min(self.fold.1)]).is_none();
            let by_itself = depth >= self.fold.0 && rest.len() > self.fold.1 && long();
            writer
                .document
                .folds
                .insert(writer.document.lines.len(), id);
            if by_itself != turned.contains(&id) {
                let extent = extent(rest.as_bytes()).unwrap_or(ValueExtent {
                    len: rest.len(),
                    members: None,
                });
                writer.cost += extent.len / 16;
                let [first, last] = if object { ["{", "}"] } else { ["[", "]"] };
                writer.put(StyleRole::Dim, first);
                writer.put(StyleRole::Paused, &extent.summary(object));
                writer.put(StyleRole::Dim, last);
                self.at += extent.len;
                self.skip_white();
                return;
            }
        }
        writer.put(StyleRole::Dim, &rest[..1]);
        self.stack.push(object);
        self.key = object;
        writer.new_line(self.stack.len());
        self.at += rest.len() - after.len();
    }

    fn role(&self) -> StyleRole {
        if self.key {
            StyleRole::JsonKey
        } else {
            StyleRole::JsonText
        }
    }

    /// Writes the text of a string, with real line breaks in values.
    fn more_of_string(&mut self, writer: &mut LayoutWriter) {
        let (role, depth) = (self.role(), self.stack.len());
        let Some((text, at)) = &mut self.string else {
            return;
        };
        let rest = &text[*at..];
        let end = memchr::memchr(b'\n', rest.as_bytes());
        let line = end.map_or(rest, |end| &rest[..end]);
        if line.len() > CHUNK {
            let end = char_boundary(line, CHUNK);
            writer.put(role, &line[..end]);
            *at += end;
            return;
        }
        writer.put(role, line.strip_suffix('\r').unwrap_or(line));
        match end {
            Some(end) => {
                *at += end + 1;
                if role == StyleRole::JsonText {
                    writer.new_line(depth + 1);
                } else {
                    writer.put(role, "\\n");
                }
            }
            None => {
                self.string = None;
                writer.put(role, "\"");
            }
        }
    }
}

/// Length of a value and number of its members.
struct ValueExtent {
    len: usize,
    /// `None` when the value is truncated.
    members: Option<usize>,
}

impl ValueExtent {
    fn summary(&self, object: bool) -> String {
        let what = match (object, self.members) {
            (true, Some(1)) => "field",
            (true, _) => "fields",
            (false, Some(1)) => "item",
            (false, _) => "items",
        };
        let members = self
            .members
            .map_or_else(|| "?".to_owned(), |members| members.to_string());
        format!(
            " … {members} {what}, {} ",
            ingestdeck_core::text::size(self.len as u64)
        )
    }
}

/// The extent of the object or array at the beginning of `bytes`, if its end is included.
fn extent(bytes: &[u8]) -> Option<ValueExtent> {
    let (mut depth, mut members, mut at) = (0_usize, 1, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at += string_end(&bytes[at..]);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(ValueExtent {
                        len: at + 1,
                        members: Some(members),
                    });
                }
            }
            b',' if depth == 1 => members += 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// Index after the closing quote, or the end of a truncated string.
fn string_end(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}
