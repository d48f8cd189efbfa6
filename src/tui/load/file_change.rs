//! The change that a writing call made: the text before and after it, as far as both are on the tape.
//!
//! The text before is the one that the attempt itself last read or wrote. Files are not read, because they may have
//! changed since the run.

use serde_json::Value;

use super::{bytes, entry_blocks::result_of, read};
use crate::{
    document::{DocumentBlock, text_diff},
    stream_frame::HeldChange,
    theme::StyleRole,
};
use ingestdeck_core::{
    actions::label,
    decode::{self, MessageBlock, RawJson, ToolUse},
    run::{
        Timeline,
        state::{AttemptId, HeldCallState, RowKind, RowOutcome},
    },
};

/// Rows before a call that are searched for the previous text.
const MAX_ROWS_BACK: usize = 2000;
/// Bytes that are read in that search.
const READ: usize = 8 * 1024 * 1024;

/// The target and the effect of a writing call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileWrite {
    /// Path of a file, or key of an artifact.
    pub(super) target: String,
    effect: WriteEffect,
    /// True for the text of a page: the tool writes the frontmatter from other arguments.
    is_page_body: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WriteEffect {
    FullText(String),
    /// Replaced passages: the text before and after.
    Replacements(Vec<(String, String)>),
    /// The target is deleted.
    Removed,
}

impl FileWrite {
    /// True if the text after the call contains this line, as far as the call has it.
    pub(super) fn writes_line(&self, line: &str) -> bool {
        let has = |text: &String| text.lines().any(|written| written.trim() == line.trim());
        match &self.effect {
            WriteEffect::FullText(text) => has(text),
            WriteEffect::Replacements(pairs) => pairs.iter().any(|(_, new)| has(new)),
            WriteEffect::Removed => false,
        }
    }
}

/// Target and effect of a call, if it is a known writing call.
pub(super) fn write_of(call: &ToolUse<'_>) -> Option<FileWrite> {
    let input = call.input?;
    let text = |key: &str| {
        input
            .get(key)
            .and_then(RawJson::as_str)
            .map(|text| text.into_owned())
    };
    let pairs = |list: RawJson<'_>, old: &'static str, new: &'static str| {
        let pair = |item: RawJson<'_>| {
            let [old, new] = item.pick([old, new]);
            Some((old?.as_str()?.into_owned(), new?.as_str()?.into_owned()))
        };
        list.items()
            .into_iter()
            .filter_map(pair)
            .collect::<Vec<_>>()
    };
    let deletes = input.get("delete").is_some_and(|delete| delete.0 == "true");
    let path = || {
        text("file_path")
            .or_else(|| text("path"))
            .or_else(|| text("notebook_path"))
    };
    let name = label::short_name(&call.name).to_ascii_lowercase();
    let (to, effect) = match name.as_str() {
        "wiki_write" => {
            let effect = match (text("content"), input.get("replacements")) {
                (Some(content), _) => WriteEffect::FullText(content),
                (None, Some(places)) => {
                    WriteEffect::Replacements(pairs(places, "oldText", "newText"))
                }
                (None, None) => return None,
            };
            (text("key"), effect)
        }
        "wiki_remove" => (text("key"), WriteEffect::Removed),
        "sl_write_source" if deletes => (source(input), WriteEffect::Removed),
        "sl_write_source" => (
            source(input),
            WriteEffect::FullText(yaml(input.get("source")?)),
        ),
        "sl_edit_source" if deletes => (source(input), WriteEffect::Removed),
        "sl_edit_source" => (
            source(input),
            WriteEffect::Replacements(pairs(input.get("yaml_edits")?, "oldText", "newText")),
        ),
        "write" => (path(), WriteEffect::FullText(text("content")?)),
        "edit" => (
            path(),
            WriteEffect::Replacements(vec![(text("old_string")?, text("new_string")?)]),
        ),
        "multiedit" => (
            path(),
            WriteEffect::Replacements(pairs(input.get("edits")?, "old_string", "new_string")),
        ),
        "notebookedit" => (path(), WriteEffect::FullText(text("new_source")?)),
        _ => return None,
    };
    Some(FileWrite {
        target: to?,
        effect,
        is_page_body: name == "wiki_write",
    })
}

/// `connection/source`, or the source alone if the connection is unknown.
fn source(input: RawJson<'_>) -> Option<String> {
    let [connection, name] = input.pick(["connectionId", "sourceName"]);
    let name = name?.as_str()?;
    Some(connection.and_then(RawJson::as_str).map_or_else(
        || name.to_string(),
        |connection| format!("{connection}/{name}"),
    ))
}

/// A definition in the form of its file.
fn yaml(definition: RawJson<'_>) -> String {
    let options =
        serde_saphyr::ser_options! { compact_list_indent: false, folded_wrap_chars: 1_000_000 };
    serde_saphyr::to_string_with_options(&definition.value(), options)
        .unwrap_or_else(|_| definition.0.to_owned())
}

/// The differences between the arguments of the model and those of the user, by argument.
pub(super) fn arguments(model: &str, person: &str) -> Vec<DocumentBlock> {
    let parsed =
        [model, person].map(|json| serde_json::from_str::<Value>(json).unwrap_or_default());
    let [Value::Object(old), Value::Object(new)] = &parsed else {
        return text_diff::diff_blocks(model, person);
    };
    let text = |value: Option<&Value>| match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => serde_json::to_string_pretty(other).unwrap_or_default(),
    };
    let mut pieces = Vec::new();
    for key in new
        .keys()
        .chain(old.keys().filter(|key| !new.contains_key(*key)))
    {
        let values = [old.get(key), new.get(key)];
        if values[0] == values[1] {
            continue;
        }
        let how = match values {
            [None, _] => " (added)",
            [_, None] => " (removed)",
            _ => "",
        };
        pieces.push(DocumentBlock::line(
            StyleRole::Strong,
            format!("{key}{how}"),
        ));
        pieces.extend(text_diff::diff_blocks(&text(values[0]), &text(values[1])));
    }
    if pieces.is_empty() {
        pieces.push(DocumentBlock::line(StyleRole::Dim, "nothing differs"));
    }
    pieces
}

/// The change of a call, laid out. `original` is the text before it, if the result contains it.
pub(super) fn write_blocks(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    row: usize,
    write: &FileWrite,
    end: RowOutcome,
    original: Option<String>,
) -> Vec<DocumentBlock> {
    let title = match end {
        RowOutcome::Ok => "changed",
        RowOutcome::Open => "is to change",
        RowOutcome::Failed | RowOutcome::Denied | RowOutcome::Declined | RowOutcome::Aborted => {
            "would have changed; the call did not go through"
        }
    };
    let (facts, mut pieces) = change(timeline, attempt_id, row, write, original);
    pieces.insert(
        0,
        DocumentBlock::titled("change", title.to_owned(), facts, None),
    );
    pieces
}

/// The target of a write with the numbers of lines that it adds and removes, and these lines.
fn change(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    row: usize,
    write: &FileWrite,
    original: Option<String>,
) -> (Vec<(StyleRole, String)>, Vec<DocumentBlock>) {
    let mut facts = vec![(StyleRole::Text, write.target.clone())];
    let mut pieces = Vec::new();
    match &write.effect {
        WriteEffect::Replacements(places) => {
            for (index, (old, new)) in places.iter().enumerate() {
                if index > 0 {
                    pieces.push(DocumentBlock::line(StyleRole::Dim, "  …"));
                }
                pieces.extend(text_diff::diff_blocks(old, new));
            }
        }
        WriteEffect::FullText(_) | WriteEffect::Removed => {
            let before = original.or_else(|| text_before(timeline, attempt_id, row, &write.target));
            let after = if let WriteEffect::FullText(text) = &write.effect {
                text.as_str()
            } else {
                ""
            };
            match &before {
                Some(before) => {
                    let (added, removed) = text_diff::count(before, after);
                    facts.push((StyleRole::Succeeded, format!("+{added}")));
                    facts.push((StyleRole::Failed, format!("-{removed}")));
                    if write.is_page_body {
                        facts.push((StyleRole::Dim, "without frontmatter".to_owned()));
                    }
                }
                None => facts.push((StyleRole::Dim, "earlier text unknown".to_owned())),
            }
            pieces.extend(text_diff::diff_blocks(
                before.as_deref().unwrap_or_default(),
                after,
            ));
        }
    }
    (facts, pieces)
}

/// What a call that waits would change: the change as the inspector shows it, and the other arguments. `None` for a call
/// that does not write, or whose arguments this would not show as a whole.
pub(crate) fn pending_change(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    call: &HeldCallState,
) -> Option<HeldChange> {
    let write = write_of(&ToolUse {
        id: "".into(),
        name: (&*call.tool).into(),
        input: Some(RawJson(&call.input)),
    })?;
    let Ok(Value::Object(mut others)) = serde_json::from_str(&call.input) else {
        return None;
    };
    // Only what is shown is left out of the other arguments.
    let shown: &[&str] = match &write.effect {
        WriteEffect::FullText(text) if text.len() > text_diff::MAX_BYTES => return None,
        WriteEffect::FullText(_) if others.contains_key("content") => &["content"],
        WriteEffect::FullText(_) => &["source", "new_source"],
        WriteEffect::Removed => &[],
        WriteEffect::Replacements(pairs) => {
            let lists = [&["replacements"], &["yaml_edits"], &["edits"]];
            let list = lists.into_iter().find(|[name]| others.contains_key(*name));
            let items = list.and_then(|[name]| others.get(*name)?.as_array());
            let is_pair = |item: &Value| item.as_object().is_some_and(|item| item.len() == 2);
            if items.is_some_and(|items| items.len() != pairs.len() || !items.iter().all(is_pair)) {
                return None;
            }
            list.map_or(&["old_string", "new_string"][..], |list| list)
        }
    };
    others.retain(|name, _| !shown.contains(&name.as_str()));
    let rows = timeline.view().rows(attempt_id).len();
    let (facts, mut lines) = change(timeline, attempt_id, rows, &write, None);
    // First, because the end of a long change is cut.
    let others = Value::Object(others).to_string();
    lines.insert(0, DocumentBlock::line(StyleRole::Dim, others));
    Some(HeldChange { facts, lines })
}

/// The text of `to` before a row: the one that the attempt last read or wrote.
pub(super) fn text_before(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    row: usize,
    to: &str,
) -> Option<String> {
    let entries = timeline.view().state.entries;
    let rows = timeline.view().rows(attempt_id);
    let earlier: Vec<_> = rows[row.saturating_sub(MAX_ROWS_BACK)..row.min(rows.len())]
        .iter()
        .filter(|row| row.kind == RowKind::Tool && row.end(entries) == RowOutcome::Ok)
        .map(|row| (row.first(), row.block, row.last(entries)))
        .collect();
    // The arguments name a source without its connection.
    let needle = memchr::memmem::Finder::new(to.rsplit('/').next().unwrap_or(to));
    let (mut text, mut spent) = (None, 0);
    for (first, block, last) in earlier {
        if spent > READ {
            return None;
        }
        let edited = super::edited(timeline, first, block);
        let known = read(timeline, first, |arrived| {
            let raw = bytes(&arrived.body);
            spent += raw.len();
            needle.find(edited.as_ref().map_or(raw, |edited| edited.as_bytes()))?;
            let line = decode::decode_line(raw);
            let Some(MessageBlock::ToolUse(call)) = super::blocks(&line).get(usize::from(block))
            else {
                return None;
            };
            let call = &super::call_as_run(call, edited.as_deref());
            Some(match write_of(call) {
                Some(write) if write.target == to => KnownText::Written(write.effect),
                Some(_) => return None,
                None if reads(call, to) => KnownText::Read(call.id.clone().into_owned()),
                None => return None,
            })
        });
        match known.ok().flatten() {
            None => {}
            Some(KnownText::Written(WriteEffect::FullText(whole))) => text = Some(whole),
            Some(KnownText::Written(WriteEffect::Removed)) => text = Some(String::new()),
            Some(KnownText::Written(WriteEffect::Replacements(places))) => {
                text = text.map(|text: String| {
                    places
                        .iter()
                        .fold(text, |text, (old, new)| text.replacen(old.as_str(), new, 1))
                });
            }
            Some(KnownText::Read(id)) => {
                let found = last.and_then(|last| {
                    read(timeline, last, |arrived| {
                        let raw = bytes(&arrived.body);
                        spent += raw.len();
                        let line = decode::decode_line(raw);
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

enum KnownText {
    Written(WriteEffect),
    Read(String),
}

/// True for a call whose result is the whole text of `to`.
fn reads(call: &ToolUse<'_>, to: &str) -> bool {
    let Some(input) = call.input else {
        return false;
    };
    match label::short_name(&call.name) {
        "wiki_read" => input.get("key").and_then(RawJson::as_str).as_deref() == Some(to),
        // A result that starts at a later line is not the whole text.
        "sl_read_source" => {
            input.get("startLine").is_none() && source(input).as_deref() == Some(to)
        }
        _ => false,
    }
}

/// A page without its front matter, or a definition without the surrounding text.
fn body(answer: &str) -> &str {
    let page = answer
        .strip_prefix("---\n")
        .and_then(|rest| rest.split_once("\n---\n"));
    let definition = || {
        answer
            .split_once("\n```yaml\n")?
            .1
            .rsplit_once("```")
            .map(|(yaml, _)| yaml)
    };
    match page {
        Some((_, body)) => body.trim_start_matches('\n'),
        None if answer.starts_with("## Source: ") => definition().unwrap_or(answer),
        None => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, input: &str) -> Option<FileWrite> {
        write_of(&ToolUse {
            id: "t".into(),
            name: name.into(),
            input: Some(RawJson(input)),
        })
    }

    #[test]
    fn the_calls_that_write_are_known() {
        let whole = |to: &str, text: &str| {
            Some(FileWrite {
                target: to.into(),
                effect: WriteEffect::FullText(text.into()),
                is_page_body: !to.starts_with('/'),
            })
        };
        assert_eq!(
            write("mcp__ktx__wiki_write", r#"{"key":"arr","content":"x"}"#),
            whole("arr", "x")
        );
        assert_eq!(
            write("Write", r#"{"file_path":"/a","content":"y"}"#),
            whole("/a", "y")
        );
        let places = WriteEffect::Replacements(vec![("a".into(), "b".into())]);
        let edit = r#"{"file_path":"/a","old_string":"a","new_string":"b"}"#;
        assert_eq!(
            write("Edit", edit),
            Some(FileWrite {
                target: "/a".into(),
                effect: places.clone(),
                is_page_body: false,
            })
        );
        let replace = r#"{"key":"arr","summary":"s","replacements":[{"oldText":"a","newText":"b"},{"bad":1}]}"#;
        assert_eq!(
            write("mcp__ktx__wiki_write", replace),
            Some(FileWrite {
                target: "arr".into(),
                effect: places,
                is_page_body: true,
            })
        );
        let source =
            r#"{"connectionId":"wh","sourceName":"arr","source":{"name":"arr","grain":["day"]}}"#;
        let made = write("mcp__ktx__sl_write_source", source).unwrap();
        assert_eq!(made.target, "wh/arr");
        assert!(matches!(made.effect, WriteEffect::FullText(text) if text.contains("name: arr")));
        let gone = r#"{"connectionId":"wh","sourceName":"arr","delete":true}"#;
        assert_eq!(
            write("mcp__ktx__sl_edit_source", gone).unwrap().effect,
            WriteEffect::Removed
        );
        let places = WriteEffect::Replacements(vec![("a".into(), "b".into())]);
        let edit = r#"{"sourceName":"s","yaml_edits":[{"oldText":"a","newText":"b"}]}"#;
        assert_eq!(
            write("mcp__ktx__sl_edit_source", edit),
            Some(FileWrite {
                target: "s".into(),
                effect: places,
                is_page_body: false,
            })
        );
        for name in ["mcp__ktx__sl_write_source", "mcp__ktx__sl_edit_source"] {
            let gone = Some(FileWrite {
                target: "s".into(),
                effect: WriteEffect::Removed,
                is_page_body: false,
            });
            assert_eq!(write(name, r#"{"sourceName":"s","delete":true}"#), gone);
            assert_eq!(write(name, r#"{"sourceName":"s"}"#), None);
        }
        for (name, input) in [
            ("Read", r#"{"file_path":"/a"}"#),
            ("Write", "[]"),
            ("Edit", r#"{"file_path":"/a"}"#),
        ] {
            assert_eq!(write(name, input), None, "{name}");
        }
    }

    #[test]
    fn a_page_is_compared_without_its_front_matter() {
        assert_eq!(body("---\nsummary: s\n---\n\n# A\n\nb\n"), "# A\n\nb\n");
        assert_eq!(body("no front"), "no front");
        assert_eq!(
            body("## Source: arr\n\n```yaml\nname: arr\n```\n\n[a note]"),
            "name: arr\n"
        );
    }
}
