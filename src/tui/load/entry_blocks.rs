//! Entries, calls and results as blocks of a document. The text is not escaped; the layout makes it safe.

use std::sync::Arc;

use super::{MAX_SHOWN_BYTES, blocks, bytes, head, read_head, row_text, stream};
use crate::{
    document::{
        DocumentBlock, JsonFormatter,
        query::{answer_blocks, query_blocks},
    },
    entry_part::{EntryPart, PROMPT, PartContent},
    theme::StyleRole,
};
use ingestdeck_core::{
    actions::sql_query::SqlQuery,
    decode::{self, LineBody, MessageBlock, RawJson, ToolResult, line::SessionFileLine},
    run::{EntryRef, Timeline},
    tape::{EntryBody, Note, Seq},
    text::{self, clock},
};

/// Longest result that is checked for being JSON.
pub(crate) const MAX_JSON_BYTES: usize = 8 * 1024 * 1024;

/// Parts of entries, one below the other.
pub(super) fn entry_blocks(timeline: &mut Timeline, parts: &[EntryPart]) -> Vec<DocumentBlock> {
    let mut pieces = Vec::new();
    let mut call: Option<(String, String)> = None;
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            pieces.push(DocumentBlock::BlankLine);
        }
        let read = read_head(timeline, part.seq, MAX_SHOWN_BYTES, |arrived, size| {
            let raw = bytes(&arrived.body);
            let at = format!("+{}", clock(arrived.at));
            let heading = |what: &str| {
                let facts = vec![
                    (StyleRole::Dim, what.to_owned()),
                    (StyleRole::Dim, at.clone()),
                ];
                DocumentBlock::titled(part.title, part.title.to_owned(), facts, None)
            };
            match part.content {
                PartContent::Line => self::line(part.seq, arrived, size, (usize::MAX, usize::MAX)),
                PartContent::Block(_) | PartContent::Result if size > MAX_SHOWN_BYTES as u64 => {
                    vec![heading(&text::size(size)), too_large()]
                }
                PartContent::Block(block) => {
                    if let EntryBody::Note(json) = &arrived.body {
                        return match Note::parse(json) {
                            Note::AttemptStarted(started) => {
                                vec![
                                    heading("user"),
                                    DocumentBlock::text(StyleRole::Text, &*started.prompt),
                                ]
                            }
                            _ => vec![heading("not a block")],
                        };
                    }
                    let line = decode::decode_line(raw);
                    let queued = queued_text(&line);
                    let found = queued
                        .as_ref()
                        .or_else(|| blocks(&line).get(usize::from(block)));
                    if let Some(MessageBlock::ToolUse(tool)) = found {
                        call = Some((tool.id.to_string(), tool.name.to_string()));
                    }
                    self::block(
                        found,
                        if part.title == PROMPT {
                            "user"
                        } else {
                            "assistant"
                        },
                        &heading,
                    )
                }
                PartContent::Result => {
                    let line = decode::decode_line(raw);
                    let (id, tool) = call.as_ref().map(|(id, tool)| (id, tool)).unzip();
                    match result_of(&line, id.map(String::as_str)) {
                        Some(result) => {
                            let mut pieces = vec![heading(&row_text::result_size(result))];
                            let tool = tool.map_or("", String::as_str);
                            pieces.extend(content(tool, result));
                            pieces
                        }
                        None => vec![heading("end of the run")],
                    }
                }
            }
        });
        pieces.extend(read.unwrap_or_else(|error| {
            vec![DocumentBlock::line(StyleRole::Failed, error.to_string())]
        }));
    }
    pieces
}

/// A notice instead of content that takes too long to lay out.
pub(super) fn too_large() -> DocumentBlock {
    DocumentBlock::line(
        StyleRole::Warning,
        "too large to be laid out; the line below shows its beginning",
    )
}

/// An entry of `size` bytes as recorded, or its beginning. JSON values of at least the depth and length `fold` are
/// folded.
pub(super) fn line(
    seq: Seq,
    arrived: &EntryRef<'_>,
    size: u64,
    fold: (usize, usize),
) -> Vec<DocumentBlock> {
    let raw = bytes(&arrived.body);
    let facts = vec![
        (StyleRole::Dim, stream(&arrived.body).to_owned()),
        (StyleRole::Dim, format!("+{}", clock(arrived.at))),
        (StyleRole::Dim, text::size(size)),
    ];
    let shown: Arc<str> = head(raw, MAX_SHOWN_BYTES).into();
    let more = size.saturating_sub(MAX_SHOWN_BYTES as u64);
    let mut pieces = vec![DocumentBlock::titled(
        "line",
        format!("line {seq}"),
        facts,
        Some(Arc::clone(&shown)),
    )];
    pieces.push(match arrived.body {
        EntryBody::Stdout(_) | EntryBody::Stdin(_) | EntryBody::Note(_) => {
            DocumentBlock::Json(JsonFormatter::folded(shown, fold.0, fold.1))
        }
        EntryBody::StdoutRaw(_) | EntryBody::Stderr(_) => {
            DocumentBlock::text(StyleRole::Text, shown)
        }
    });
    if more > 0 {
        let more = text::size(more);
        pieces.push(DocumentBlock::line(
            StyleRole::Warning,
            format!("… {more} more of this line are not shown"),
        ));
    }
    pieces
}

/// The content of a block.
fn block(
    block: Option<&MessageBlock<'_>>,
    author: &str,
    heading: &dyn Fn(&str) -> DocumentBlock,
) -> Vec<DocumentBlock> {
    match block {
        Some(MessageBlock::ToolUse(call)) => {
            let input = call.input.map_or("{}", |input| input.0).into();
            let mut pieces = vec![heading(&call.name)];
            pieces.extend(arguments(&call.name, input, (usize::MAX, usize::MAX)));
            pieces
        }
        Some(MessageBlock::Text(text) | MessageBlock::Thinking(text)) => {
            vec![
                heading(author),
                DocumentBlock::text(StyleRole::Text, &*text.text()),
            ]
        }
        Some(other) => {
            vec![
                heading("block"),
                DocumentBlock::text(StyleRole::Text, row_text::block(other, MAX_SHOWN_BYTES)),
            ]
        }
        None => vec![heading("not a block")],
    }
}

/// The arguments of a call: a query as SQL, others as JSON whose values of at least the depth and length `fold` are
/// folded.
pub(super) fn arguments(tool: &str, input: Arc<str>, fold: (usize, usize)) -> Vec<DocumentBlock> {
    match SqlQuery::parse(tool, &input) {
        Some(query) => query_blocks(&query, usize::MAX),
        None => {
            let json = JsonFormatter::folded(input, fold.0, fold.1);
            vec![DocumentBlock::Json(json)]
        }
    }
}

/// The text of a message that arrived during a turn.
fn queued_text<'a>(line: &'a decode::AgentLine<'_>) -> Option<MessageBlock<'a>> {
    match &line.body {
        LineBody::SessionFile(SessionFileLine::QueuedText(_, text)) => {
            Some(MessageBlock::Text(text.borrowed()))
        }
        _ => None,
    }
}

/// The result of a call in a line.
pub(super) fn result_of<'a, 'b>(
    line: &'b decode::AgentLine<'a>,
    call: Option<&str>,
) -> Option<&'b ToolResult<'a>> {
    blocks(line).iter().find_map(|block| match block {
        MessageBlock::ToolResult(result) if call.is_none_or(|call| result.tool_use_id == call) => {
            Some(result)
        }
        _ => None,
    })
}

/// The content of a result of `tool`: rows of a query as a table, JSON laid out, text unchanged, pictures by name.
pub(super) fn content(tool: &str, result: &ToolResult<'_>) -> Vec<DocumentBlock> {
    let Some(content) = result.content else {
        return vec![DocumentBlock::line(StyleRole::Dim, "empty")];
    };
    let parts = content.items();
    if !parts.iter().any(|part| media(*part).is_some()) {
        let text = result.text();
        let is_query = SqlQuery::is_query_tool(tool);
        let table = is_query.then(|| answer_blocks(&text)).flatten();
        return table.unwrap_or_else(|| text_or_json(&text));
    }
    let mut pieces = Vec::new();
    for part in parts {
        match media(part) {
            Some(media) => pieces.push(DocumentBlock::line(StyleRole::Focus, media)),
            None => {
                let text = part.get("text").and_then(RawJson::as_str);
                pieces.extend(text_or_json(text.as_deref().unwrap_or(part.0)));
            }
        }
    }
    pieces
}

/// Text, laid out as JSON if it is JSON.
pub(super) fn text_or_json(text: &str) -> Vec<DocumentBlock> {
    /// Depth and length in bytes above which values are folded.
    const FOLD: (usize, usize) = (2, 4096);
    if text.is_empty() {
        return vec![DocumentBlock::line(StyleRole::Dim, "empty")];
    }
    let is_json = text.len() <= MAX_JSON_BYTES
        && matches!(text.trim_start().as_bytes().first(), Some(b'{' | b'['))
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    vec![if is_json {
        DocumentBlock::Json(JsonFormatter::folded(text, FOLD.0, FOLD.1))
    } else {
        DocumentBlock::text(StyleRole::Text, text)
    }]
}

/// `picture: image/png, 12.3 KB`, if the part is a media object.
fn media(part: RawJson<'_>) -> Option<String> {
    let [kind, source, data, mime] = part.pick(["type", "source", "data", "mimeType"]);
    let kind = kind?.as_str()?;
    if !matches!(&*kind, "image" | "document" | "audio") {
        return None;
    }
    let inner = source
        .unwrap_or(RawJson("{}"))
        .pick(["media_type", "data", "url"]);
    let media = inner[0]
        .or(mime)
        .and_then(RawJson::as_str)
        .unwrap_or("unknown type".into());
    // Four Base64 characters encode three bytes.
    let size = inner[1].or(data).and_then(RawJson::as_str).map(|data| {
        let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
        text::size((data.len() / 4 * 3).saturating_sub(padding) as u64)
    });
    let place = inner[2]
        .and_then(RawJson::as_str)
        .map(|url| format!(", {url}"))
        .unwrap_or_default();
    let size = size.map(|size| format!(", {size}")).unwrap_or_default();
    let name = if kind == "image" { "picture" } else { &kind };
    Some(format!("{name}: {media}{size}{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_named_with_type_and_size() {
        let png = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGVsbG8="}}"#;
        assert_eq!(
            media(RawJson(png)).as_deref(),
            Some("picture: image/png, 5 B")
        );
        assert_eq!(
            media(RawJson(
                r#"{"type":"image","mimeType":"image/gif","data":"aGVs"}"#
            ))
            .as_deref(),
            Some("picture: image/gif, 3 B")
        );
        assert_eq!(
            media(RawJson(r#"{"type":"image"}"#)).as_deref(),
            Some("picture: unknown type")
        );
        assert_eq!(media(RawJson(r#"{"type":"text","text":"x"}"#)), None);
        assert_eq!(media(RawJson("[1]")), None);
    }
}
