//! Edits strings and numbers of a JSON text in place. All other bytes are kept. Pure; must not know what a secret is.

use std::{borrow::Cow, ops::Range};

use serde::de::IgnoredAny;

/// A replacement of a range of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextEdit {
    pub(super) range: Range<usize>,
    pub(super) replacement: Cow<'static, str>,
}

/// Returns `text` with `edits`, which must be sorted and must not overlap.
pub(super) fn apply(text: &str, edits: &[TextEdit]) -> String {
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for TextEdit {
        range,
        replacement: with,
    } in edits
    {
        out.push_str(&text[done..range.start]);
        out.push_str(with);
        done = range.end;
    }
    out.push_str(&text[done..]);
    out
}

/// An array or object around the current position.
#[derive(Debug)]
pub(super) struct JsonPathFrame<'a> {
    pub(super) is_array: bool,
    /// Offset of its opening bracket in the text, which identifies it.
    pub(super) start: usize,
    /// Of an array: the index of the current element.
    pub(super) index: usize,
    /// Of an object: the key of the current value.
    pub(super) key: Cow<'a, str>,
    /// Of an object: the value of its `name` or `key`, once it was read. Of an array: the previous string.
    pub(super) label: Cow<'a, str>,
}

/// Decides the replacements of the parts of a JSON text.
pub(super) trait JsonVisitor {
    /// Returns the replacement of a key.
    fn key(&mut self, key: &str) -> Option<String>;
    /// Returns the replacement of a string value. The innermost frame is the last one of `path`.
    fn string(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Option<String>;
    /// Returns the string that replaces a number.
    fn number(&mut self, path: &[JsonPathFrame<'_>], digits: &str) -> Option<String>;
}

/// True if `text` is JSON. Unpaired surrogates are allowed.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// True if `text` is a JSON object, array or string.
pub(super) fn is_document(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"']) && is_json(text)
}

/// Returns the edits of `visitor` in `json`, which must be [valid](is_json).
pub(super) fn edits(json: &str, visitor: &mut dyn JsonVisitor) -> Vec<TextEdit> {
    let bytes = json.as_bytes();
    let (mut edits, mut stack, mut is_key, mut at) =
        (Vec::new(), Vec::<JsonPathFrame<'_>>::new(), false, 0);
    while let Some(byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                at = string_end(bytes, at);
                let text = decoded(&json[start..at]);
                let new = match stack.last_mut() {
                    Some(frame) if is_key => {
                        let new = visitor.key(&text);
                        frame.key = text;
                        is_key = false;
                        new
                    }
                    _ => {
                        let new = visitor.string(&stack, &text);
                        if let Some(frame) = stack.last_mut().filter(|frame| is_labelling(frame)) {
                            frame.label = text;
                        }
                        new
                    }
                };
                edits.extend(new.map(|new| TextEdit {
                    range: start..at,
                    replacement: Cow::Owned(quoted(&new)),
                }));
            }
            b'{' | b'[' => {
                is_key = *byte == b'{';
                stack.push(JsonPathFrame {
                    is_array: !is_key,
                    start,
                    index: 0,
                    key: Cow::Borrowed(""),
                    label: Cow::Borrowed(""),
                });
            }
            b'}' | b']' => {
                is_key = false;
                stack.pop();
            }
            b',' => {
                if let Some(frame) = stack.last_mut() {
                    frame.index += 1;
                    is_key = !frame.is_array;
                }
            }
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                at += bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                let new = visitor.number(&stack, &json[start..at]);
                edits.extend(new.map(|new| TextEdit {
                    range: start..at,
                    replacement: Cow::Owned(quoted(&new)),
                }));
            }
            _ => {}
        }
    }
    edits
}

fn is_labelling(frame: &JsonPathFrame<'_>) -> bool {
    frame.is_array || ["name", "key", "Name", "Key", "keyName", "variable"].contains(&&*frame.key)
}

/// Returns the end of the string whose first character is at `from`, after its closing quote.
fn string_end(bytes: &[u8], mut from: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(from..).unwrap_or_default()) {
        if bytes[from + found] == b'"' {
            return from + found + 1;
        }
        from += found + 2;
    }
    bytes.len()
}

/// Formats `text` as a JSON string, with its quotes.
pub(super) fn quoted(text: &str) -> String {
    // Serialising a string cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}

/// Decodes a JSON string in its quotes. One with an unpaired surrogate remains as it is.
fn decoded(quoted: &str) -> Cow<'_, str> {
    let raw = &quoted[1..quoted.len() - 1];
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    serde_json::from_str(quoted).map_or(Cow::Borrowed(raw), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Replaces every string that holds an `x`, and every `7`.
    #[derive(Debug, Default)]
    struct Crosses(Vec<String>);

    impl JsonVisitor for Crosses {
        fn key(&mut self, key: &str) -> Option<String> {
            key.contains('x').then(|| "X".to_owned())
        }

        fn string(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Option<String> {
            self.0.extend(
                path.last()
                    .map(|frame| format!("{}={}:{text}", frame.key, frame.label)),
            );
            text.contains('x').then(|| "X".to_owned())
        }

        fn number(&mut self, _: &[JsonPathFrame<'_>], digits: &str) -> Option<String> {
            (digits == "7").then(|| "N".to_owned())
        }
    }

    #[test]
    fn edits_of_strings_leave_the_rest_as_it_is() {
        let json = r#" {"a" : ["x", 1.0e5,7 ,true],"x":{"name":"n","value":"\u0078\ud83d\ude00"} , "b":"\ud800\"\\" } "#;
        let mut crosses = Crosses::default();
        let edits = edits(json, &mut crosses);
        assert_eq!(
            apply(json, &edits),
            r#" {"a" : ["X", 1.0e5,"N" ,true],"X":{"name":"n","value":"X"} , "b":"\ud800\"\\" } "#
        );
        assert_eq!(
            crosses.0,
            ["=:x", "name=:n", "value=n:x😀", r#"b=:\ud800\"\\"#]
        );
    }

    #[test]
    fn json_is_recognised_by_its_syntax() {
        for (text, expected) in [
            ("{}", true),
            (" [1]", true),
            (r#""a\ud800""#, true),
            ("{", false),
            ("1", false),
            ("{}{}", false),
        ] {
            assert_eq!(is_document(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn decoding_agrees_with_serde(text in "\\PC{0,20}|[a-z\"\\\\\u{1}-\u{1f}]{0,20}") {
            let json = quoted(&text);
            prop_assert_eq!(decoded(&json), text);
        }

        #[test]
        fn edited_json_stays_json(
            keys in prop::collection::vec("[xyz\"\\\\]{1,3}", 1..5),
            value in "[xyz\"\\\\\n]{0,5}",
            number in any::<f64>(),
        ) {
            let object: serde_json::Map<String, Value> =
                keys.into_iter().map(|key| (key, serde_json::json!([value, {"k": value}, number]))).collect();
            let json = Value::Object(object).to_string();
            let edits = edits(&json, &mut Crosses::default());
            prop_assert!(is_json(&apply(&json, &edits)));
        }
    }
}
