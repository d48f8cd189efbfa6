//! What a call that writes changed: the text before and after it, as far as the record knows both.
//!
//! The text before is what the attempt itself read or wrote last; nothing is read from the disk, which is of today.

use serde_json::Value;

use super::{bytes, parts::result_of, read};
use crate::{
    actions::label,
    decode::{self, Block, Raw, ToolUse},
    run::{
        Timeline,
        state::{LaneId, RowEnd, RowKind},
    },
    tui::{
        document::{Piece, change},
        theme::Role,
    },
};

/// Rows before a call among which the text before it is looked for.
const BACK: usize = 2000;
/// Bytes that are read for it at most.
const READ: usize = 8 * 1024 * 1024;

/// What a call writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// Path or key.
    pub(super) to: String,
    effect: Effect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// The whole text.
    Whole(String),
    /// Places of it: the text before and after.
    Places(Vec<(String, String)>),
    /// It is gone.
    Removed,
}

/// What a call writes, if it is one of the calls that are known to write.
pub(super) fn of(call: &ToolUse<'_>) -> Option<Write> {
    let input = call.input?;
    let text = |key: &str| input.get(key).and_then(Raw::as_str).map(|text| text.into_owned());
    let pairs = |list: Raw<'_>, old: &'static str, new: &'static str| {
        let pair = |item: Raw<'_>| {
            let [old, new] = item.pick([old, new]);
            Some((old?.as_str()?.into_owned(), new?.as_str()?.into_owned()))
        };
        list.items().into_iter().filter_map(pair).collect::<Vec<_>>()
    };
    let deletes = input.get("delete").is_some_and(|delete| delete.0 == "true");
    let path = || text("file_path").or_else(|| text("path")).or_else(|| text("notebook_path"));
    let (to, effect) = match label::short_name(&call.name).to_ascii_lowercase().as_str() {
        "wiki_write" => {
            let effect = match (text("content"), input.get("replacements")) {
                (Some(content), _) => Effect::Whole(content),
                (None, Some(places)) => Effect::Places(pairs(places, "oldText", "newText")),
                (None, None) => return None,
            };
            (text("key"), effect)
        }
        "wiki_remove" => (text("key"), Effect::Removed),
        "sl_write_source" if deletes => (source(input), Effect::Removed),
        "sl_write_source" => (source(input), Effect::Whole(yaml(input.get("source")?))),
        "sl_edit_source" if deletes => (source(input), Effect::Removed),
        "sl_edit_source" => (source(input), Effect::Places(pairs(input.get("yaml_edits")?, "oldText", "newText"))),
        "write" => (path(), Effect::Whole(text("content")?)),
        "edit" => (path(), Effect::Places(vec![(text("old_string")?, text("new_string")?)])),
        "multiedit" => (path(), Effect::Places(pairs(input.get("edits")?, "old_string", "new_string"))),
        "notebookedit" => (path(), Effect::Whole(text("new_source")?)),
        _ => return None,
    };
    Some(Write { to: to?, effect })
}

/// `connection/source`, or the source alone if its connection is not said.
fn source(input: Raw<'_>) -> Option<String> {
    let [connection, name] = input.pick(["connectionId", "sourceName"]);
    let name = name?.as_str()?;
    Some(connection.and_then(Raw::as_str).map_or_else(|| name.to_string(), |connection| format!("{connection}/{name}")))
}

/// A definition as the file has it.
fn yaml(definition: Raw<'_>) -> String {
    let options = serde_saphyr::ser_options! { compact_list_indent: false, folded_wrap_chars: 1_000_000 };
    serde_saphyr::to_string_with_options(&definition.value(), options).unwrap_or_else(|_| definition.0.to_owned())
}

/// How the arguments of a person differ from those of the model, one argument after the other.
pub(super) fn arguments(model: &str, person: &str) -> Vec<Piece> {
    let parsed = [model, person].map(|json| serde_json::from_str::<Value>(json).unwrap_or_default());
    let [Value::Object(old), Value::Object(new)] = &parsed else { return change::pieces(model, person) };
    let text = |value: Option<&Value>| match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => serde_json::to_string_pretty(other).unwrap_or_default(),
    };
    let mut pieces = Vec::new();
    for key in new.keys().chain(old.keys().filter(|key| !new.contains_key(*key))) {
        let values = [old.get(key), new.get(key)];
        if values[0] == values[1] {
            continue;
        }
        let how = match values {
            [None, _] => " (added)",
            [_, None] => " (removed)",
            _ => "",
        };
        pieces.push(Piece::line(Role::Strong, format!("{key}{how}")));
        pieces.extend(change::pieces(&text(values[0]), &text(values[1])));
    }
    if pieces.is_empty() {
        pieces.push(Piece::line(Role::Dim, "nothing differs"));
    }
    pieces
}

/// What a call changed, laid out. `original` is the text before it, where the result says so.
pub(super) fn pieces(
    timeline: &mut Timeline,
    lane: LaneId,
    row: usize,
    write: &Write,
    end: RowEnd,
    original: Option<String>,
) -> Vec<Piece> {
    let title = match end {
        RowEnd::Ok => "changed",
        RowEnd::Open => "is to change",
        RowEnd::Failed | RowEnd::Denied | RowEnd::Declined | RowEnd::Cut => {
            "would have changed; the call did not go through"
        }
    };
    let mut facts = vec![(Role::Text, write.to.clone())];
    let mut pieces = Vec::new();
    match &write.effect {
        Effect::Places(places) => {
            for (index, (old, new)) in places.iter().enumerate() {
                if index > 0 {
                    pieces.push(Piece::line(Role::Dim, "  …"));
                }
                pieces.extend(change::pieces(old, new));
            }
        }
        Effect::Whole(_) | Effect::Removed => {
            let before = original.or_else(|| before(timeline, lane, row, &write.to));
            let after = if let Effect::Whole(text) = &write.effect { text.as_str() } else { "" };
            match &before {
                Some(before) => {
                    let (added, removed) = change::count(before, after);
                    facts.push((Role::Succeeded, format!("+{added}")));
                    facts.push((Role::Failed, format!("-{removed}")));
                }
                None => facts.push((Role::Dim, "what was there before is not on this record".to_owned())),
            }
            pieces.extend(change::pieces(before.as_deref().unwrap_or_default(), after));
        }
    }
    pieces.insert(0, Piece::titled("change", title.to_owned(), facts, None));
    pieces
}

/// The text that `to` had before a row: what the attempt read or wrote of it last.
fn before(timeline: &mut Timeline, lane: LaneId, row: usize, to: &str) -> Option<String> {
    let entries = timeline.story().state.entries;
    let rows = timeline.story().rows(lane);
    let earlier: Vec<_> = rows[row.saturating_sub(BACK)..row.min(rows.len())]
        .iter()
        .filter(|row| row.kind == RowKind::Tool && row.end(entries) == RowEnd::Ok)
        .map(|row| (row.first(), row.block, row.last(entries)))
        .collect();
    // A source stands in the arguments without its connection.
    let needle = memchr::memmem::Finder::new(to.rsplit('/').next().unwrap_or(to));
    let (mut text, mut spent) = (None, 0);
    for (first, block, last) in earlier {
        if spent > READ {
            return None;
        }
        let edited = super::edited(timeline, first, block);
        let told = read(timeline, first, |arrived| {
            let raw = bytes(&arrived.body);
            spent += raw.len();
            needle.find(edited.as_ref().map_or(raw, |edited| edited.as_bytes()))?;
            let line = decode::line(raw);
            let Some(Block::ToolUse(call)) = super::blocks(&line).get(usize::from(block)) else { return None };
            let call = &super::ran(call, edited.as_deref());
            Some(match of(call) {
                Some(write) if write.to == to => Told::Wrote(write.effect),
                Some(_) => return None,
                None if reads(call, to) => Told::Reads(call.id.clone().into_owned()),
                None => return None,
            })
        });
        match told.ok().flatten() {
            None => {}
            Some(Told::Wrote(Effect::Whole(whole))) => text = Some(whole),
            Some(Told::Wrote(Effect::Removed)) => text = Some(String::new()),
            Some(Told::Wrote(Effect::Places(places))) => {
                text = text.map(|text: String| {
                    places.iter().fold(text, |text, (old, new)| text.replacen(old.as_str(), new, 1))
                });
            }
            Some(Told::Reads(id)) => {
                let found = last.and_then(|last| {
                    read(timeline, last, |arrived| {
                        let raw = bytes(&arrived.body);
                        spent += raw.len();
                        let line = decode::line(raw);
                        result_of(&line, Some(&id)).map(|result| body(&result.text()).to_owned())
                    })
                    .ok()
                    .flatten()
                });
                text = found.or(text);
            }
        }
    }
    text
}

enum Told {
    Wrote(Effect),
    Reads(String),
}

/// True for a call that answers with the whole text of `to`.
fn reads(call: &ToolUse<'_>, to: &str) -> bool {
    let Some(input) = call.input else { return false };
    match label::short_name(&call.name) {
        "wiki_read" => input.get("key").and_then(Raw::as_str).as_deref() == Some(to),
        // From a later line on it is not the whole text.
        "sl_read_source" => input.get("startLine").is_none() && source(input).as_deref() == Some(to),
        _ => false,
    }
}

/// A page without its front matter, a definition without what is said around it.
fn body(answer: &str) -> &str {
    let page = answer.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    let definition = || answer.split_once("\n```yaml\n")?.1.rsplit_once("```").map(|(yaml, _)| yaml);
    match page {
        Some((_, body)) => body.trim_start_matches('\n'),
        None if answer.starts_with("## Source: ") => definition().unwrap_or(answer),
        None => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, input: &str) -> Option<Write> {
        of(&ToolUse { id: "t".into(), name: name.into(), input: Some(Raw(input)) })
    }

    #[test]
    fn the_calls_that_write_are_known() {
        let whole = |to: &str, text: &str| Some(Write { to: to.into(), effect: Effect::Whole(text.into()) });
        assert_eq!(write("mcp__ktx__wiki_write", r#"{"key":"arr","content":"x"}"#), whole("arr", "x"));
        assert_eq!(write("Write", r#"{"file_path":"/a","content":"y"}"#), whole("/a", "y"));
        let places = Effect::Places(vec![("a".into(), "b".into())]);
        let edit = r#"{"file_path":"/a","old_string":"a","new_string":"b"}"#;
        assert_eq!(write("Edit", edit), Some(Write { to: "/a".into(), effect: places.clone() }));
        let replace = r#"{"key":"arr","summary":"s","replacements":[{"oldText":"a","newText":"b"},{"bad":1}]}"#;
        assert_eq!(write("mcp__ktx__wiki_write", replace), Some(Write { to: "arr".into(), effect: places }));
        let source = r#"{"connectionId":"wh","sourceName":"arr","source":{"name":"arr","grain":["day"]}}"#;
        let made = write("mcp__ktx__sl_write_source", source).unwrap();
        assert_eq!(made.to, "wh/arr");
        assert!(matches!(made.effect, Effect::Whole(text) if text.contains("name: arr")));
        let gone = r#"{"connectionId":"wh","sourceName":"arr","delete":true}"#;
        assert_eq!(write("mcp__ktx__sl_edit_source", gone).unwrap().effect, Effect::Removed);
        let places = Effect::Places(vec![("a".into(), "b".into())]);
        let edit = r#"{"sourceName":"s","yaml_edits":[{"oldText":"a","newText":"b"}]}"#;
        assert_eq!(write("mcp__ktx__sl_edit_source", edit), Some(Write { to: "s".into(), effect: places }));
        for name in ["mcp__ktx__sl_write_source", "mcp__ktx__sl_edit_source"] {
            let gone = Some(Write { to: "s".into(), effect: Effect::Removed });
            assert_eq!(write(name, r#"{"sourceName":"s","delete":true}"#), gone);
            assert_eq!(write(name, r#"{"sourceName":"s"}"#), None);
        }
        for (name, input) in [("Read", r#"{"file_path":"/a"}"#), ("Write", "[]"), ("Edit", r#"{"file_path":"/a"}"#)] {
            assert_eq!(write(name, input), None, "{name}");
        }
    }

    #[test]
    fn a_page_is_compared_without_its_front_matter() {
        assert_eq!(body("---\nsummary: s\n---\n\n# A\n\nb\n"), "# A\n\nb\n");
        assert_eq!(body("no front"), "no front");
        assert_eq!(body("## Source: arr\n\n```yaml\nname: arr\n```\n\n[a note]"), "name: arr\n");
    }
}
