//! A body laid out for reading: JSON indented and coloured, strings as the text they hold, everything wrapped.
//!
//! Works on a prefix as well as on a whole value, so that a huge line costs no more than its head. Owns no bytes:
//! what it shows is safe text, cut to the width.

use super::{text, theme::Role};

/// Deepest indent that is shown.
const DEEPEST: usize = 24;

/// Lines that are ready to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Lines of (role, safe text).
    pub lines: Vec<Vec<(Role, String)>>,
}

impl Document {
    /// The text of a line.
    pub fn text(&self, line: usize) -> String {
        self.lines.get(line).into_iter().flatten().map(|(_, text)| text.as_str()).collect()
    }
}

/// Lays out parts one below the other.
#[derive(Debug)]
pub struct Writer {
    document: Document,
    line: Vec<(Role, String)>,
    used: usize,
    indent: usize,
    width: usize,
}

impl Writer {
    /// A writer for so many columns.
    pub fn new(width: u16) -> Self {
        let width = usize::from(width).max(4);
        Self { document: Document::default(), line: Vec::new(), used: 0, indent: 0, width }
    }

    /// The document.
    pub fn finish(mut self) -> Document {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.document
    }

    /// A line of its own.
    pub fn line(&mut self, role: Role, text: &str) {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.indent = 0;
        self.put(role, text);
        self.end_line();
    }

    /// Plain text, line by line.
    pub fn plain(&mut self, text: &str) {
        for line in text.lines() {
            self.line(Role::Text, line);
        }
    }

    /// JSON, or the beginning of it.
    pub fn json(&mut self, json: &str) {
        let mut stack: Vec<bool> = Vec::new();
        let mut key = false;
        let mut rest = json.trim_start();
        while let Some(first) = rest.as_bytes().first() {
            match first {
                b'{' | b'[' => {
                    let object = *first == b'{';
                    let close = if object { '}' } else { ']' };
                    let after = rest[1..].trim_start();
                    if after.starts_with(close) {
                        self.put(Role::Dim, if object { "{}" } else { "[]" });
                        rest = after[1..].trim_start();
                        continue;
                    }
                    self.put(Role::Dim, &rest[..1]);
                    stack.push(object);
                    key = object;
                    self.new_line(stack.len());
                    rest = after;
                }
                b'}' | b']' => {
                    stack.pop();
                    self.new_line(stack.len());
                    self.put(Role::Dim, &rest[..1]);
                    rest = rest[1..].trim_start();
                }
                b',' => {
                    self.put(Role::Dim, ",");
                    self.new_line(stack.len());
                    key = stack.last().copied().unwrap_or_default();
                    rest = rest[1..].trim_start();
                }
                b':' => {
                    self.put(Role::Dim, ": ");
                    key = false;
                    rest = rest[1..].trim_start();
                }
                b'"' => {
                    let end = string_end(rest);
                    self.string(&rest[..end], if key { Role::JsonKey } else { Role::JsonText }, stack.len());
                    rest = rest[end..].trim_start();
                }
                _ => {
                    let end = rest.find([',', '}', ']', ':', '"', '{', '[', '\n']).unwrap_or(rest.len()).max(1);
                    let end = (end..=rest.len()).find(|end| rest.is_char_boundary(*end)).unwrap_or(rest.len());
                    self.put(Role::JsonValue, rest[..end].trim_end());
                    rest = rest[end..].trim_start();
                }
            }
        }
        if !self.line.is_empty() {
            self.end_line();
        }
        self.indent = 0;
    }

    /// A string: its text, with real line breaks. What cannot be unescaped is shown as it is written.
    fn string(&mut self, written: &str, role: Role, depth: usize) {
        let whole = serde_json::from_str::<String>(written);
        let text = whole.as_deref().unwrap_or_else(|_| written.trim_matches('"'));
        self.put(role, "\"");
        let several = text.contains('\n') && role == Role::JsonText;
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                if several {
                    self.new_line(depth + 1);
                } else {
                    self.put(role, "\\n");
                }
            }
            self.put(role, line.strip_suffix('\r').unwrap_or(line));
        }
        self.put(role, "\"");
    }

    fn new_line(&mut self, depth: usize) {
        self.end_line();
        self.indent = (depth.min(DEEPEST) * 2).min(self.width / 2);
    }

    fn end_line(&mut self) {
        self.document.lines.push(std::mem::take(&mut self.line));
        self.used = 0;
    }

    fn put(&mut self, role: Role, text: &str) {
        for piece in text::pieces(text) {
            let wide = text::cells(&piece).min(self.width);
            if self.used > 0 && self.used + wide > self.width {
                self.end_line();
            }
            if self.used == 0 {
                self.used = self.indent.min(self.width - wide);
                self.line.push((role, " ".repeat(self.used)));
            }
            match self.line.last_mut() {
                Some((last, line)) if *last == role => line.push_str(&piece),
                _ => self.line.push((role, piece.into_owned())),
            }
            self.used += wide;
        }
    }
}

/// Index after the closing quote, or the end of a string that is cut off.
fn string_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    fn shown(json: &str, width: u16) -> String {
        let mut writer = Writer::new(width);
        writer.json(json);
        let document = writer.finish();
        (0..document.lines.len()).map(|line| document.text(line) + "\n").collect()
    }

    #[test]
    fn json_is_indented_and_strings_are_read() {
        let json = r#"{"a":1,"text":"one\n\"two\"","empty":{},"list":[true,null,[]],"big":12345678901234567890}"#;
        insta::assert_snapshot!(shown(json, 40));
    }

    #[test]
    fn the_beginning_of_a_value_is_enough() {
        insta::assert_snapshot!(shown(r#"{"type":"user","content":[{"text":"cut of"#, 40));
    }

    #[test]
    fn hostile_strings_are_shown_and_not_obeyed() {
        let json = r#"{"\u001b[2J":"\u202ebidi","lone":"\ud800","tab":"a\tb"}"#;
        insta::assert_snapshot!(shown(json, 60));
    }

    proptest! {
        #[test]
        fn any_text_is_laid_out_within_the_width(text in any::<String>(), width in 1..60_u16) {
            let mut writer = Writer::new(width);
            writer.json(&text);
            writer.plain(&text);
            let document = writer.finish();
            for line in 0..document.lines.len() {
                prop_assert!(document.text(line).width() <= usize::from(width.max(10)));
            }
        }

        #[test]
        fn every_value_ends(depth in 0..200_usize) {
            let deep = "[".repeat(depth) + &"]".repeat(depth);
            let lines = shown(&deep, 20);
            prop_assert!(lines.lines().all(|line| line.width() <= 20));
        }
    }
}
