//! Converts a KTX tool transcript, which has one line per call. Each line becomes the call and its result, in the order
//! of their times.

use std::{collections::HashSet, fs::File, io};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::TapeBuilder;
use crate::replay::{
    file_lines::{EntrySplit, FileLines, NextLine, read_range},
    line_time,
};
use ingestdeck_core::tape::{EntryBody, Millis, Note, note::Severity};

/// Writes whose `success: false` KTX counts as failures.
const COUNTED_WRITES: [&str; 3] = ["wiki_write", "wiki_remove", "sl_write_source"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallTiming {
    ts: String,
    wu_key: String,
    #[serde(default)]
    duration_ms: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TranscriptCall<'a> {
    wu_key: String,
    attempt: Option<u32>,
    tool_call_id: Option<String>,
    tool_name: String,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    output: Option<CallOutput>,
    error: Option<CallError>,
}

#[derive(Deserialize)]
struct CallOutput {
    #[serde(default)]
    markdown: Option<String>,
    #[serde(default)]
    structured: Option<Value>,
}

#[derive(Deserialize)]
struct CallError {
    message: Option<String>,
}

/// The position of a line, and the time of its call's start or end.
struct CallBoundary {
    at: i64,
    offset: u64,
    length: usize,
    line: u64,
    is_end: bool,
}

/// Converts the transcript. Other lines are kept as unknown lines.
pub(super) fn rewrite(
    file: &File,
    length: u64,
    tape: &mut TapeBuilder,
) -> io::Result<Option<Timestamp>> {
    let (mut moments, has_times) = call_moments(file, length)?;
    // Concurrent calls are written when they end, so they are sorted by their start times.
    moments.sort_by_key(|moment| (moment.at, moment.line, moment.is_end));
    let first = moments.first().map_or(0, |moment| moment.at);
    let mut begun = HashSet::new();
    let mut last = Millis(0);
    for (step, moment) in moments.iter().enumerate() {
        let bytes = read_range(file, moment.offset, moment.length)?;
        let at = if has_times {
            moment.at - first
        } else {
            i64::try_from(step).unwrap_or(0) * 100
        };
        let at = Millis(u64::try_from(at).unwrap_or(0));
        match serde_json::from_slice::<TranscriptCall<'_>>(&bytes) {
            Ok(call) => {
                let attempt_key = (call.wu_key.as_str(), call.attempt.unwrap_or(1).max(1));
                let id = call
                    .tool_call_id
                    .clone()
                    .unwrap_or_else(|| format!("ktx-{}", moment.line));
                if begun.insert((call.wu_key.clone(), attempt_key.1)) {
                    tape.note(at, Some(attempt_key), &Note::AttemptStarted(Box::default()))?;
                }
                let line = if moment.is_end {
                    result(&call, &id)
                } else {
                    started(&call, &id)
                };
                tape.entry(
                    at,
                    Some(attempt_key),
                    EntryBody::Stdout(line.to_string().as_bytes()),
                )?;
                last = at;
            }
            Err(_) if moment.is_end => {}
            Err(_) => tape.entry(at, None, EntryBody::StdoutRaw(bytes.into()))?,
        }
    }
    let text =
        "a KTX transcript contains only tool calls; the outcome of its units is unknown".to_owned();
    tape.message(last, None, Severity::Info, text)?;
    let began = has_times
        .then(|| Timestamp::from_millisecond(first).ok())
        .flatten();
    Ok(began)
}

/// Returns the starts and ends of all calls, and whether their times are known.
fn call_moments(file: &File, length: u64) -> io::Result<(Vec<CallBoundary>, bool)> {
    let mut lines = FileLines::new(file.try_clone()?.into(), EntrySplit::Lines, 0);
    let mut moments = Vec::new();
    let mut has_times = false;
    let mut last = 0;
    let mut number = 0;
    while let NextLine::Line(offset, bytes) = lines.next(length, true)? {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let stamp = serde_json::from_slice::<CallTiming>(bytes)
            .ok()
            .filter(|stamp| !stamp.wu_key.is_empty());
        let at = stamp
            .as_ref()
            .and_then(|stamp| line_time::parse_timestamp(&stamp.ts));
        has_times |= at.is_some();
        let at = at.unwrap_or(last);
        last = at;
        // Float to integer casts saturate; the limit is about one year.
        let took = stamp
            .map_or(0.0, |stamp| stamp.duration_ms)
            .clamp(0.0, 3.2e10) as i64;
        let length = bytes.len();
        moments.push(CallBoundary {
            at,
            offset,
            length,
            line: number,
            is_end: false,
        });
        moments.push(CallBoundary {
            at: at.saturating_add(took),
            offset,
            length,
            line: number,
            is_end: true,
        });
        number += 1;
    }
    Ok((moments, has_times))
}

/// Builds the line of the call. Its model is `<synthetic>` because the transcript contains no other lines of the model,
/// and such lines count no turns.
fn started(call: &TranscriptCall<'_>, id: &str) -> Value {
    let input = call.input.map_or(Value::Null, |input| {
        serde_json::from_str(input.get()).unwrap_or_default()
    });
    json!({"type": "assistant", "message": {"role": "assistant", "model": "<synthetic>", "content": [
        {"type": "tool_use", "id": id, "name": call.tool_name, "input": input},
    ]}})
}

fn result(call: &TranscriptCall<'_>, id: &str) -> Value {
    let structured = call
        .output
        .as_ref()
        .and_then(|output| output.structured.as_ref());
    let declined = structured.is_some_and(|structured| structured["success"] == false);
    let failed =
        call.error.is_some() || (declined && COUNTED_WRITES.contains(&call.tool_name.as_str()));
    let error = call
        .error
        .as_ref()
        .map(|error| error.message.as_deref().unwrap_or("no error text"));
    let markdown = call
        .output
        .as_ref()
        .and_then(|output| output.markdown.as_deref());
    let mut line = json!({"type": "user", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": id, "is_error": failed, "content": error.or(markdown).unwrap_or_default()},
    ]}});
    if let Some(structured) = structured {
        line["tool_use_result"] = structured.clone();
    }
    line
}
