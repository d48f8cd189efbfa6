//! `read_raw_file` and `read_raw_span`: the raw files and dependencies of the unit, and no other file.

use crate::scoped_dir::ScopedDir;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Tool, miss, page};
use crate::{
    ingest::{project::nearest, schema::shown},
    units::ToolReply,
};

/// Largest file that is read whole, in bytes.
const WHOLE: u64 = 120_000;
/// Largest file that is searched, in bytes.
const SEARCHED: u64 = 4 * 1024 * 1024;
/// Largest file that spans are read from, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ReadRawFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileInput {
    /// Path exactly as it stands in rawFiles or dependencyPaths.
    path: String,
}

impl Tool for ReadRawFile {
    const NAME: &'static str = "read_raw_file";
    const ABOUT: &'static str = "Read one file of this work unit. Only paths listed under rawFiles and dependencyPaths \
        can be read. Files above 120000 bytes are refused: read those with read_raw_span.";
    const READ_ONLY: bool = true;
    type Input = FileInput;

    /// Whoever looks at all files at once looks at parts of them.
    fn offered(bench: &Bench) -> bool {
        bench.stage().is_none()
    }

    fn run(bench: &Bench, FileInput { path }: FileInput) -> ToolReply {
        match text(bench, &path, WHOLE) {
            Ok(text) => {
                let lines: Vec<&str> = text.lines().collect();
                span(&path, &lines, 1, lines.len())
            }
            Err(Refused::TooLarge(bytes)) => miss(format_args!(
                "`{}` has {bytes} bytes and is too large to read at once (limit {WHOLE}); read it in parts with read_raw_span",
                shown(&path)
            )),
            Err(Refused::Other(why)) => miss(why),
        }
    }
}

#[derive(Debug)]
pub(super) struct ReadRawSpan;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SpanInput {
    /// Path exactly as it stands in rawFiles or dependencyPaths.
    path: String,
    /// First line, counted from 1.
    #[schemars(range(min = 1, max = 100_000_000))]
    start_line: u32,
    /// Last line, included.
    #[schemars(range(min = 1, max = 100_000_000))]
    end_line: u32,
}

impl Tool for ReadRawSpan {
    const NAME: &'static str = "read_raw_span";
    const ABOUT: &'static str = "Read a range of lines of one file of this work unit, first and last line included, \
        counted from 1.";
    const READ_ONLY: bool = true;
    type Input = SpanInput;

    fn run(bench: &Bench, SpanInput { path, start_line, end_line }: SpanInput) -> ToolReply {
        if end_line < start_line {
            return miss(format_args!("endLine {end_line} is before startLine {start_line}"));
        }
        let text = match text(bench, &path, LARGEST) {
            Ok(text) => text,
            Err(Refused::TooLarge(bytes)) => {
                return miss(format_args!("`{}` has {bytes} bytes, at most {LARGEST} can be read", shown(&path)));
            }
            Err(Refused::Other(why)) => return miss(why),
        };
        let lines: Vec<&str> = text.lines().collect();
        let (start, end) = (start_line as usize, (end_line as usize).min(lines.len()));
        span(&path, &lines, start, end)
    }
}

/// The text of a file that the unit may read, unless it is too large to look through.
pub(super) fn whole(bench: &Bench, path: &str) -> Option<String> {
    text(bench, path, SEARCHED).ok()
}

enum Refused {
    TooLarge(u64),
    Other(String),
}

/// The text of `path`, if the unit may read it.
fn text(bench: &Bench, path: &str, limit: u64) -> Result<String, Refused> {
    let planned = &bench.unit.planned;
    let readable: Vec<&str> = planned.raw_files.iter().chain(&planned.dependency_paths).map(String::as_str).collect();
    if !readable.contains(&path) {
        let hint = nearest(path, &readable).map_or_else(String::new, |path| format!("; did you mean `{path}`?"));
        return Err(Refused::Other(format!(
            "`{}` is not available to this work unit; only its rawFiles and dependencyPaths are{hint}",
            shown(path)
        )));
    }
    let other = |error: std::io::Error| Refused::Other(format!("`{}` cannot be read: {error}", shown(path)));
    let (root, relative) = bench.place(path);
    let folder = ScopedDir::open(root).map_err(other)?;
    let (_, size) = folder.open_file(relative).map_err(other)?;
    if size > limit {
        return Err(Refused::TooLarge(size));
    }
    let bytes = folder.read(relative, limit).map_err(other)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Lines `start` to `end` (from 1, included), as many as fit into one answer, and how to get the rest.
fn span(path: &str, lines: &[&str], start: usize, end: usize) -> ToolReply {
    let page = page::of(lines, start, end);
    let next = |next| json!({"path": path, "startLine": next, "endLine": end});
    let mut markdown = page.text.clone();
    if let Some(note) = page.note(start, end, lines.len(), "read_raw_span", next) {
        markdown.push_str(&format!("\n[{note}]\n"));
    }
    ToolReply {
        markdown,
        structured: Some(json!({"path": path, "startLine": start, "endLine": page.last, "totalLines": lines.len()})),
        ..ToolReply::default()
    }
}
