//! Entries, calls and results as pieces of a document. Raw text: whoever lays it out makes it safe.

use std::sync::Arc;

use super::{SHOWN, blocks, bytes, head, read_head, stream, words};
use crate::{
    actions::label,
    decode::{self, Block, Raw, ToolResult},
    run::{Arrived, Timeline},
    tape::{Body, Seq},
    tui::{
        document::{Piece, Pretty},
        model::{Of, Part},
        text,
        theme::Role,
        view::clock,
    },
};

/// Longest result of which is looked whether it is JSON.
const PARSED: usize = 8 * 1024 * 1024;

/// Parts of entries, one below the other.
pub(super) fn pieces(timeline: &mut Timeline, parts: &[Part]) -> Vec<Piece> {
    let (mut pieces, mut call) = (Vec::new(), None);
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            pieces.push(Piece::Gap);
        }
        let read = read_head(timeline, part.seq, SHOWN, |arrived, size| {
            let raw = bytes(&arrived.body);
            let at = format!("+{}", clock(arrived.at));
            let heading = |what: &str| {
                let facts = vec![(Role::Dim, what.to_owned()), (Role::Dim, at.clone())];
                Piece::titled(part.title, part.title.to_owned(), facts, None)
            };
            match part.of {
                Of::Line => self::line(part.seq, arrived, size, (usize::MAX, usize::MAX)),
                Of::Block(_) | Of::Result if size > SHOWN as u64 => vec![heading(&text::size(size)), too_large()],
                Of::Block(block) => {
                    let line = decode::line(raw);
                    let found = blocks(&line).get(usize::from(block));
                    if let Some(Block::ToolUse(tool)) = found {
                        call = Some(tool.id.clone().into_owned());
                    }
                    self::block(found, &heading)
                }
                Of::Result => {
                    let line = decode::line(raw);
                    match result_of(&line, call.as_deref()) {
                        Some(result) => {
                            let mut pieces = vec![heading(&words::fact(result))];
                            pieces.extend(content(result));
                            pieces
                        }
                        None => vec![heading("end of the run")],
                    }
                }
            }
        });
        pieces.extend(read.unwrap_or_else(|error| vec![Piece::line(Role::Failed, error)]));
    }
    pieces
}

/// In place of what would take too long.
pub(super) fn too_large() -> Piece {
    Piece::line(Role::Warning, "too large to be laid out; the line below shows its beginning")
}

/// An entry of so many bytes as it came, or its beginning; JSON values of at least that depth and length are folded.
pub(super) fn line(seq: Seq, arrived: &Arrived<'_>, size: u64, fold: (usize, usize)) -> Vec<Piece> {
    let raw = bytes(&arrived.body);
    let facts = vec![
        (Role::Dim, stream(&arrived.body).to_owned()),
        (Role::Dim, format!("+{}", clock(arrived.at))),
        (Role::Dim, text::size(size)),
    ];
    let shown: Arc<str> = head(raw, SHOWN).into();
    let more = size.saturating_sub(SHOWN as u64);
    let mut pieces = vec![Piece::titled("line", format!("line {seq}"), facts, Some(Arc::clone(&shown)))];
    pieces.push(match arrived.body {
        Body::Out(_) | Body::In(_) | Body::Note(_) => Piece::Json(Pretty::folded(shown, fold.0, fold.1)),
        Body::Raw(_) | Body::Err(_) => Piece::text(Role::Text, shown),
    });
    if more > 0 {
        let more = text::size(more);
        pieces.push(Piece::line(Role::Warning, format!("… {more} more of this line are not shown")));
    }
    pieces
}

/// What a block says.
fn block(block: Option<&Block<'_>>, heading: &dyn Fn(&str) -> Piece) -> Vec<Piece> {
    match block {
        Some(Block::ToolUse(call)) => {
            vec![heading(&call.name), Piece::Json(Pretty::unfolded(call.input.map_or("{}", |input| input.0)))]
        }
        Some(Block::Text(text) | Block::Thinking(text)) => {
            vec![heading("assistant"), Piece::text(Role::Text, &*text.read())]
        }
        Some(other) => vec![heading("block"), Piece::text(Role::Text, words::block(other, SHOWN))],
        None => vec![heading("not a block")],
    }
}

/// The result of `call` in a line.
pub(super) fn result_of<'a, 'b>(line: &'b decode::Line<'a>, call: Option<&str>) -> Option<&'b ToolResult<'a>> {
    blocks(line).iter().find_map(|block| match block {
        Block::ToolResult(result) if call.is_none_or(|call| result.tool_use_id == call) => Some(result),
        _ => None,
    })
}

/// A result as people read it: JSON laid out, text as it is, pictures by name.
pub(super) fn content(result: &ToolResult<'_>) -> Vec<Piece> {
    let Some(content) = result.content else { return vec![Piece::line(Role::Dim, "empty")] };
    let parts = content.items();
    if !parts.iter().any(|part| media(*part).is_some()) {
        return readable(&result.text());
    }
    let mut pieces = Vec::new();
    for part in parts {
        match media(part) {
            Some(media) => pieces.push(Piece::line(Role::Focus, media)),
            None => {
                let text = part.get("text").and_then(Raw::as_str);
                pieces.extend(readable(text.as_deref().unwrap_or(part.0)));
            }
        }
    }
    pieces
}

/// Text, laid out as JSON if it is JSON.
pub(super) fn readable(text: &str) -> Vec<Piece> {
    /// Below this depth, values longer than this are folded.
    const FOLD: (usize, usize) = (2, 4096);
    if text.is_empty() {
        return vec![Piece::line(Role::Dim, "empty")];
    }
    let is_json = text.len() <= PARSED
        && matches!(text.trim_start().as_bytes().first(), Some(b'{' | b'['))
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    vec![if is_json { Piece::Json(Pretty::folded(text, FOLD.0, FOLD.1)) } else { Piece::text(Role::Text, text) }]
}

/// `picture: image/png, 12.3 KB`, for a part that is one.
fn media(part: Raw<'_>) -> Option<String> {
    let [kind, source, data, mime] = part.pick(["type", "source", "data", "mimeType"]);
    let kind = kind?.as_str()?;
    if !matches!(&*kind, "image" | "document" | "audio") {
        return None;
    }
    let inner = source.unwrap_or(Raw("{}")).pick(["media_type", "data", "url"]);
    let media = inner[0].or(mime).and_then(Raw::as_str).unwrap_or("type not said".into());
    // Four characters of Base64 hold three bytes.
    let size = inner[1].or(data).and_then(Raw::as_str).map(|data| {
        let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
        label::size((data.len() / 4 * 3).saturating_sub(padding))
    });
    let place = inner[2].and_then(Raw::as_str).map(|url| format!(", {url}")).unwrap_or_default();
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
        assert_eq!(media(Raw(png)).as_deref(), Some("picture: image/png, 5 B"));
        assert_eq!(
            media(Raw(r#"{"type":"image","mimeType":"image/gif","data":"aGVs"}"#)).as_deref(),
            Some("picture: image/gif, 3 B")
        );
        assert_eq!(media(Raw(r#"{"type":"image"}"#)).as_deref(), Some("picture: type not said"));
        assert_eq!(media(Raw(r#"{"type":"text","text":"x"}"#)), None);
        assert_eq!(media(Raw("[1]")), None);
    }
}
