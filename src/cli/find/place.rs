//! Where a text is in the JSON of an entry: in a call, a result or an answer, and what is around it.

use serde_json::Value;

use ingestdeck_core::run::entry_search::TextMatcher;
use ingestdeck_records::store::text_index::is_in_word;

/// Characters around a found text.
const CONTEXT_CHARS: usize = 60;
/// Largest nesting of JSON that is looked into.
const MAX_DEPTH: usize = 64;

/// A text that is looked for.
#[derive(Debug)]
pub(super) struct SoughtText {
    matcher: TextMatcher,
    text: String,
    /// True if it may be the beginning of a word.
    is_beginning: bool,
}

impl SoughtText {
    /// # Errors
    /// If the text is too long.
    pub(super) fn new(text: &str, is_beginning: bool) -> Result<Self, String> {
        let matcher = TextMatcher::new(text).map_err(|error| error.to_string())?;
        Ok(Self {
            matcher,
            text: text.to_owned(),
            is_beginning,
        })
    }

    /// True if it is in the bytes of an entry.
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        self.matcher.is_in(bytes)
    }

    /// Its first occurrence in `content`, at words or anywhere.
    fn find(&self, content: &str, at_words: bool) -> Option<usize> {
        let mut from = 0;
        loop {
            let at = self.matcher.find_from(content.as_bytes(), from)?;
            if !at_words || self.is_at_words(content, at) {
                return Some(at);
            }
            from = at + 1;
        }
    }

    fn is_at_words(&self, content: &str, at: usize) -> bool {
        let (Some(before), Some(after)) = (content.get(..at), content.get(at + self.text.len()..))
        else {
            return false;
        };
        let joins = |one: Option<char>, other: Option<char>| {
            one.is_some_and(is_in_word) && other.is_some_and(is_in_word)
        };
        !joins(before.chars().next_back(), self.text.chars().next())
            && (self.is_beginning || !joins(self.text.chars().next_back(), after.chars().next()))
    }
}

/// Where a text is in the JSON of an entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TextPlace {
    /// The `type` of the innermost object around it that has one.
    pub kind: Option<String>,
    pub tool: Option<String>,
    /// The id of the call of a result.
    pub call: Option<String>,
    pub has_failed: bool,
    pub text: String,
}

impl TextPlace {
    /// The first string in which the text is at words, or else anywhere.
    pub(super) fn find(value: &Value, text: &SoughtText) -> Option<Self> {
        Self::find_below(value, text, true, 0).or_else(|| Self::find_below(value, text, false, 0))
    }

    fn find_below(value: &Value, text: &SoughtText, at_words: bool, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        match value {
            Value::String(content) => text.find(content, at_words).map(|at| Self {
                text: around(content, at),
                ..Self::default()
            }),
            Value::Array(values) => values
                .iter()
                .find_map(|value| Self::find_below(value, text, at_words, depth + 1)),
            Value::Object(fields) => {
                let mut found = fields
                    .values()
                    .find_map(|value| Self::find_below(value, text, at_words, depth + 1))?;
                let field =
                    |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
                match field("type").as_deref() {
                    Some("tool_use") => {
                        found.kind = field("type");
                        found.tool = field("name");
                    }
                    Some("tool_result") => {
                        found.kind = field("type");
                        found.call = field("tool_use_id");
                        found.has_failed = fields.get("is_error") == Some(&Value::Bool(true));
                    }
                    Some(_) if found.kind.is_none() => found.kind = field("type"),
                    _ => {}
                }
                Some(found)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }
}

/// The first occurrence in `content` on one line, with what is around it.
pub(super) fn snippet(content: &str, text: &SoughtText) -> String {
    let at = text
        .find(content, true)
        .or_else(|| text.find(content, false));
    around(content, at.unwrap_or(0))
}

/// What is around a place in `content`, on one line.
fn around(content: &str, at: usize) -> String {
    let is_start = |at: &usize| content.is_char_boundary(*at);
    let at = (0..=at).rev().find(is_start).unwrap_or(0);
    let (before, after) = content.split_at(at);
    let start = before
        .char_indices()
        .rev()
        .nth(CONTEXT_CHARS)
        .map_or(0, |(start, _)| start);
    let end = after
        .char_indices()
        .nth(2 * CONTEXT_CHARS)
        .map_or(content.len(), |(end, _)| at + end);
    let words = content
        .get(start..end)
        .unwrap_or_default()
        .split_whitespace();
    let text = words.collect::<Vec<_>>().join(" ");
    let (cut_start, cut_end) = (start > 0, end < content.len());
    format!(
        "{}{text}{}",
        if cut_start { "…" } else { "" },
        if cut_end { "…" } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(json: &str, text: &str) -> TextPlace {
        let value: Value = serde_json::from_str(json).unwrap();
        TextPlace::find(&value, &SoughtText::new(text, false).unwrap()).unwrap()
    }

    #[test]
    fn text_is_placed_in_the_block_that_has_it() {
        let call = place(
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"Hello"},{"type":"tool_use","id":"t","name":"read","input":{"path":"orders.md"}}]}}"#,
            "orders",
        );
        assert_eq!(
            (
                call.kind.as_deref(),
                call.tool.as_deref(),
                call.text.as_str()
            ),
            (Some("tool_use"), Some("read"), "orders.md")
        );
        let result = place(
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":[{"type":"text","text":"no Orders"}]}]}}"#,
            "orders",
        );
        assert_eq!(
            (
                result.kind.as_deref(),
                result.call.as_deref(),
                result.has_failed
            ),
            (Some("tool_result"), Some("t"), true)
        );
    }

    #[test]
    fn place_at_words_comes_first() {
        let json = r#"{"name":"mcp__ktx__read","input":{"q":"taxes, x and tax"}}"#;
        assert_eq!(place(json, "x").text, "taxes, x and tax");
        let sought = |text, is_beginning| SoughtText::new(text, is_beginning).unwrap();
        assert_eq!(sought("tax", false).find("taxes, tax", true), Some(7));
        assert_eq!(sought("tax", true).find("syntax taxes, tax", true), Some(7));
        assert_eq!(sought("ax,", false).find("tax,", true), None);
        assert_eq!(sought("売上", false).find("日次売上の", true), Some(6));
        assert_eq!(place(json, "ktx").text, "mcp__ktx__read");
    }

    #[test]
    fn snippet_is_one_line_around_the_text() {
        let content = format!("{}\nneedle\n{}", "a ".repeat(100), "ä ".repeat(200));
        let shown = snippet(&content, &SoughtText::new("needle", false).unwrap());
        assert!(
            shown.starts_with('…') && shown.ends_with('…') && !shown.contains('\n'),
            "{shown}"
        );
        assert!(
            shown.contains("needle") && shown.chars().count() < 200,
            "{shown}"
        );
    }
}
