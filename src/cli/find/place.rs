//! Where a text is in the JSON of an entry: in a call, a result or an answer, and what is around it.

use serde_json::Value;

use ingestdeck_core::run::entry_search::TextMatcher;

/// Characters around a found text.
const CONTEXT_CHARS: usize = 60;
/// Largest nesting of JSON that is looked into.
const MAX_DEPTH: usize = 64;

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
    pub(super) fn find(value: &Value, text: &TextMatcher, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        match value {
            Value::String(content) => text.is_in(content.as_bytes()).then(|| Self {
                text: snippet(content, text),
                ..Self::default()
            }),
            Value::Array(values) => values
                .iter()
                .find_map(|value| Self::find(value, text, depth + 1)),
            Value::Object(fields) => {
                let mut found = fields
                    .values()
                    .find_map(|value| Self::find(value, text, depth + 1))?;
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
pub(super) fn snippet(content: &str, text: &TextMatcher) -> String {
    let at = text.find_from(content.as_bytes(), 0).unwrap_or(0);
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
        TextPlace::find(&value, &TextMatcher::new(text).unwrap(), 0).unwrap()
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
    fn snippet_is_one_line_around_the_text() {
        let content = format!("{}\nneedle\n{}", "a ".repeat(100), "ä ".repeat(200));
        let shown = snippet(&content, &TextMatcher::new("needle").unwrap());
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
