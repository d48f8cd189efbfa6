//! `read_raw_file` and `read_raw_span`: read the raw files and dependencies of the unit, and no other file.

use ingestdeck_os::scoped_dir::ScopedDir;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{AgentTool, MAX_ANSWER_CHARS, ToolContext, not_found_reply, pagination};
use crate::{
    source::{NamedText, find_adapter},
    spelling::did_you_mean,
    untrusted_text::{excerpt, one_line},
};
use ingestdeck_core::units::ToolReply;

/// Largest file that is read whole, in bytes.
const MAX_WHOLE_BYTES: u64 = 120_000;
/// Part of an answer for notes about its page, in characters.
const MAX_NOTES_CHARS: usize = 1_200;
/// Largest file that is searched, in bytes.
const MAX_SEARCHED_BYTES: u64 = 4 * 1024 * 1024;
/// Largest file that spans are read from, in bytes.
const MAX_SPAN_FILE_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ReadRawFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFileInput {
    /// Path exactly as listed in rawFiles or dependencyPaths.
    path: String,
}

impl AgentTool for ReadRawFile {
    const NAME: &'static str = "read_raw_file";
    const DESCRIPTION: &'static str = "Read one file of this work unit. Only paths listed under rawFiles and \
        dependencyPaths can be read. If the file does not fit into one answer, the answer ends with the call that \
        continues it. Files above 120000 bytes are refused; read them with read_raw_span.";
    const READ_ONLY: bool = true;
    type Input = RawFileInput;

    /// The reconcile step sees the files of all units, so it reads only spans.
    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_none()
    }

    fn run(context: &ToolContext, RawFileInput { path }: RawFileInput) -> ToolReply {
        match text(context, &path, MAX_WHOLE_BYTES) {
            Ok(text) => {
                let lines: Vec<&str> = text.lines().collect();
                line_span(context, &path, &lines, 1, lines.len())
            }
            Err(RawReadError::TooLarge(bytes)) => not_found_reply(format_args!(
                "`{}` has {bytes} bytes, more than the limit of {MAX_WHOLE_BYTES}; read it in parts with read_raw_span",
                excerpt(&path)
            )),
            Err(RawReadError::Other(why)) => not_found_reply(why),
        }
    }
}

#[derive(Debug)]
pub(super) struct ReadRawSpan;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawSpanInput {
    /// Path exactly as listed in rawFiles or dependencyPaths; in the reconcile step, as stage_list lists it.
    path: String,
    /// Number of the first line, counted from 1.
    #[schemars(range(min = 1, max = 100_000_000))]
    start_line: u32,
    /// Number of the last line, which is included.
    #[schemars(range(min = 1, max = 100_000_000))]
    end_line: u32,
}

impl AgentTool for ReadRawSpan {
    const NAME: &'static str = "read_raw_span";
    const DESCRIPTION: &'static str = "Read a range of lines of one file of this work unit. Lines are counted from 1; \
        the first and the last line are included. If the range does not fit into one answer, the answer ends with the \
        call that continues it.";
    const READ_ONLY: bool = true;
    type Input = RawSpanInput;

    fn run(
        context: &ToolContext,
        RawSpanInput {
            path,
            start_line,
            end_line,
        }: RawSpanInput,
    ) -> ToolReply {
        if end_line < start_line {
            return not_found_reply(format_args!(
                "endLine {end_line} is before startLine {start_line}; give an endLine of at least startLine"
            ));
        }
        let text = match text(context, &path, MAX_SPAN_FILE_BYTES) {
            Ok(text) => text,
            Err(RawReadError::TooLarge(bytes)) => {
                return not_found_reply(format_args!(
                    "`{}` has {bytes} bytes, and files above {MAX_SPAN_FILE_BYTES} cannot be read; continue without it",
                    excerpt(&path)
                ));
            }
            Err(RawReadError::Other(why)) => return not_found_reply(why),
        };
        let lines: Vec<&str> = text.lines().collect();
        let (start, end) = (start_line as usize, (end_line as usize).min(lines.len()));
        line_span(context, &path, &lines, start, end)
    }
}

/// The text of a file that the unit may read; `None` if it is too large to search.
pub(super) fn searchable_text(context: &ToolContext, path: &str) -> Option<String> {
    text(context, path, MAX_SEARCHED_BYTES).ok()
}

enum RawReadError {
    TooLarge(u64),
    Other(String),
}

/// The files that the unit may read, relative to its source.
fn readable_paths(context: &ToolContext) -> Vec<&str> {
    let planned = &context.unit.planned;
    let paths = planned.raw_files.iter().chain(&planned.dependency_paths);
    paths.map(String::as_str).collect()
}

/// The text of `path`, if the unit may read it.
fn text(context: &ToolContext, path: &str, limit: u64) -> Result<String, RawReadError> {
    let readable = readable_paths(context);
    if !readable.contains(&path) {
        let hint = did_you_mean(path, &readable);
        let listed = if context.stage_index().is_some() {
            "stage_list lists"
        } else {
            "rawFiles or dependencyPaths lists"
        };
        return Err(RawReadError::Other(format!(
            "`{}` is not available to this work unit; use a path that {listed}{hint}",
            excerpt(path)
        )));
    }
    let other = |error: std::io::Error| {
        RawReadError::Other(format!("`{}` cannot be read: {error}", excerpt(path)))
    };
    let (root, relative) = context.resolve_raw_path(path);
    let folder = ScopedDir::open(root).map_err(other)?;
    let (_, size) = folder.open_file(relative).map_err(other)?;
    if size > limit {
        return Err(RawReadError::TooLarge(size));
    }
    let bytes = folder.read(relative, limit).map_err(other)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The texts that `page` of the file at `path` names by calls, as far as they fit into one answer.
fn named_texts(context: &ToolContext, path: &str, page: &str) -> String {
    let Some(adapter) = find_adapter(&context.unit.planned.adapter) else {
        return String::new();
    };
    let readable = readable_paths(context);
    let read = |path: &str| searchable_text(context, path);
    let texts = adapter.named_texts(path, page, &readable, &read);
    let mut room = (MAX_ANSWER_CHARS - MAX_NOTES_CHARS).saturating_sub(page.chars().count());
    let (mut shown, mut left) = (String::new(), 0);
    for NamedText { heading, text } in texts {
        let entry = format!("\n[{}]\n{text}\n", one_line(&heading));
        let size = entry.chars().count();
        if size <= room {
            room -= size;
            shown.push_str(&entry);
        } else {
            left += 1;
        }
    }
    if left > 0 {
        let texts = match left {
            1 => "1 more text that these lines name does".to_owned(),
            left => format!("{left} more texts that these lines name do"),
        };
        shown.push_str(&format!("\n[{texts} not fit; read the Markdown files]\n"));
    }
    shown
}

/// Lines `start` to `end` (from 1, inclusive) that fit into one answer, with a note about the rest.
fn line_span(
    context: &ToolContext,
    path: &str,
    lines: &[&str],
    start: usize,
    end: usize,
) -> ToolReply {
    let page = pagination::paginate(lines, start, end);
    context
        .records()
        .reads
        .record(path, lines, start, page.last_line);
    let texts = named_texts(context, path, &page.text);
    let next = |next| json!({"path": path, "startLine": next, "endLine": end});
    let mut markdown = page.text.clone();
    if let Some(note) = page.continuation_note(start, end, lines.len(), "read_raw_span", next) {
        markdown.push_str(&format!("\n[{note}]\n"));
    }
    markdown.push_str(&texts);
    ToolReply {
        markdown,
        structured: Some(
            json!({"path": path, "startLine": start, "endLine": page.last_line, "totalLines": lines.len()}),
        ),
        ..ToolReply::default()
    }
}
