//! KTX's tool transcripts: one JSON line per call, in `.ktx/ingest-transcripts/<job>/<unit>.jsonl`.
//!
//! Owns the line's shape and the file. Failures are written once, whoever reports them. It must not know what tools do.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::source::slug;
use crate::{
    scoped_dir::{self, ScopedDir},
    tape::UnitKey,
    units::{ToolCall, ToolReply},
};

/// KTX's place for transcripts, relative to the project.
const TRANSCRIPTS_DIR: &str = ".ktx/ingest-transcripts";

/// The transcript of one attempt. Calls may come from several threads.
#[derive(Debug)]
pub struct ToolTranscript {
    path: PathBuf,
    /// The path below the project.
    relative_path: Option<String>,
    unit: UnitKey,
    attempt: u32,
    state: Mutex<TranscriptState>,
}

#[derive(Debug)]
struct TranscriptState {
    file: File,
    /// `unit:tool:toolCallId` of every failure on file.
    recorded_failures: BTreeSet<String>,
    lost_lines: u64,
}

/// A tool call that failed before it reached us.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedCall<'a> {
    /// Tool without its server prefix.
    pub tool: &'a str,
    /// Id of the call, where known.
    pub tool_use_id: Option<&'a str>,
    /// Its arguments, as far as known.
    pub input: &'a Value,
    /// Why it failed.
    pub message: &'a str,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TranscriptLine<'a> {
    ts: Timestamp,
    wu_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    tool_name: &'a str,
    duration_ms: u64,
    input: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<TranscriptOutput<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<TranscriptFailure<'a>>,
}

#[derive(Serialize)]
struct TranscriptOutput<'a> {
    markdown: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured: Option<&'a Value>,
}

#[derive(Serialize)]
struct TranscriptFailure<'a> {
    message: &'a str,
    name: &'static str,
}

impl ToolTranscript {
    /// Opens the transcript of an attempt below `project`, which appends to those of earlier attempts at the unit.
    pub fn open(project: &Path, job: &str, unit: &UnitKey, attempt: u32) -> io::Result<Self> {
        scoped_dir::create_ignored_dir(project, &project.join(TRANSCRIPTS_DIR))?;
        let name = format!("{TRANSCRIPTS_DIR}/{}/{}.jsonl", path_component(job), path_component(unit));
        let file = ScopedDir::open(project)?.append_to(&name)?;
        let state = Mutex::new(TranscriptState { file, recorded_failures: BTreeSet::new(), lost_lines: 0 });
        let (path, name) = (project.join(&name), Some(name));
        Ok(Self { path, relative_path: name, unit: unit.clone(), attempt, state })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, relative to the project. `None` if its name is no text.
    pub fn relative_path(&self) -> Option<&str> {
        self.relative_path.as_deref()
    }

    /// Lines that could not be written (a full disk, for one).
    pub fn lost_lines(&self) -> u64 {
        self.state().lost_lines
    }

    /// Writes a call that reached us. A failure is an `error` unless the tool itself explained it in `structured`.
    pub(crate) fn record(&self, call: &ToolCall, began: Timestamp, took: Duration, reply: &ToolReply) {
        let failed = reply.is_error && reply.structured.is_none();
        let mut state = self.state();
        if failed && !state.is_new(&self.unit, &call.name, call.tool_use_id.as_deref()) {
            return;
        }
        state.append(&TranscriptLine {
            output: (!failed)
                .then_some(TranscriptOutput { markdown: &reply.markdown, structured: reply.structured.as_ref() }),
            error: failed.then_some(TranscriptFailure { message: &reply.markdown, name: "ToolError" }),
            ..self.line(&call.name, call.tool_use_id.as_deref(), began, millis(took), &call.arguments)
        });
        if reply.is_error {
            state.is_new(&self.unit, &call.name, call.tool_use_id.as_deref());
        }
    }

    /// Writes a call that was denied, unknown or unreadable, as another side reports it. False if that failure is on
    /// file already.
    pub fn record_failure(&self, rejected: &RejectedCall<'_>) -> bool {
        let mut state = self.state();
        if !state.is_new(&self.unit, rejected.tool, rejected.tool_use_id) {
            return false;
        }
        let line =
            self.line(rejected.tool, rejected.tool_use_id, Timestamp::now(), rejected.duration_ms, rejected.input);
        state.append(&TranscriptLine {
            error: Some(TranscriptFailure { message: rejected.message, name: "ToolRejected" }),
            ..line
        });
        true
    }

    fn line<'a>(
        &'a self,
        tool: &'a str,
        id: Option<&'a str>,
        ts: Timestamp,
        duration_ms: u64,
        input: &'a Value,
    ) -> TranscriptLine<'a> {
        TranscriptLine {
            ts,
            wu_key: &self.unit,
            attempt: (self.attempt > 1).then_some(self.attempt),
            tool_call_id: id,
            tool_name: tool,
            duration_ms,
            input,
            output: None,
            error: None,
        }
    }

    fn state(&self) -> MutexGuard<'_, TranscriptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TranscriptState {
    /// Notes a failure. True if it was not noted before; without an id it is always new.
    fn is_new(&mut self, unit: &str, tool: &str, id: Option<&str>) -> bool {
        id.is_none_or(|id| self.recorded_failures.insert(format!("{unit}:{tool}:{id}")))
    }

    /// One line, one write: lines of several processes never mix.
    fn append(&mut self, line: &TranscriptLine<'_>) {
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            self.file.write_all(&bytes)
        });
        if let Err(error) = written {
            self.lost_lines += 1;
            tracing::warn!(%error, "cannot write to a tool transcript");
        }
    }
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

/// `name` as one component of a path. Keys of our own adapters come out as they are.
fn path_component(name: &str) -> String {
    const MAX_COMPONENT_BYTES: usize = 200;
    let safe: String = name.chars().map(|c| if c.is_control() || matches!(c, '/' | '\\') { '_' } else { c }).collect();
    if safe == name && safe.len() <= MAX_COMPONENT_BYTES && !matches!(name, "" | "." | "..") {
        return safe;
    }
    // Whatever was changed gets a hash, so that two keys never share a file.
    let short: String = safe.trim_start_matches('.').chars().take(MAX_COMPONENT_BYTES / 4).collect();
    format!("{short}-{}", slug::short_hash(name, 8))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call(id: Option<&str>) -> ToolCall {
        ToolCall { name: "wiki_read".into(), arguments: json!({"key": "a"}), tool_use_id: id.map(str::to_owned) }
    }

    fn lines(transcript: &ToolTranscript) -> Vec<Value> {
        let text = std::fs::read_to_string(transcript.path()).unwrap();
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for line in &mut lines {
            assert!(line["ts"].as_str().unwrap().ends_with('Z'));
            line["ts"] = json!("T");
        }
        lines
    }

    #[test]
    fn transcript_lines_match_ktx_format() {
        let dir = tempfile::tempdir().unwrap();
        let transcript = ToolTranscript::open(dir.path(), "local-x", &"dbt-all".into(), 1).unwrap();
        assert_eq!(transcript.path(), dir.path().join(".ktx/ingest-transcripts/local-x/dbt-all.jsonl"));
        let took = Duration::from_millis(7);
        let good = ToolReply { structured: Some(json!({"key": "a"})), ..ToolReply::text("# A") };
        transcript.record(&call(Some("t1")), Timestamp::UNIX_EPOCH, took, &good);
        let refused = ToolReply { structured: Some(json!({"success": false})), ..ToolReply::error("no ledger") };
        transcript.record(&call(Some("t2")), Timestamp::UNIX_EPOCH, took, &refused);
        transcript.record(&call(Some("t3")), Timestamp::UNIX_EPOCH, took, &ToolReply::error("bad"));
        transcript.record(&call(None), Timestamp::UNIX_EPOCH, took, &ToolReply::text("x"));
        insta::assert_json_snapshot!(lines(&transcript));
        let mode = |path: &Path| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode(transcript.path()), mode(transcript.path().parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn failure_reported_twice_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let transcript = ToolTranscript::open(dir.path(), "local-x", &"u".into(), 2).unwrap();
        let rejected = |id| RejectedCall {
            tool: "wiki_read",
            tool_use_id: id,
            input: &Value::Null,
            message: "denied",
            duration_ms: 0,
        };
        transcript.record(&call(Some("t1")), Timestamp::UNIX_EPOCH, Duration::ZERO, &ToolReply::error("bad"));
        assert!(!transcript.record_failure(&rejected(Some("t1"))), "our own handler told it");
        assert!(transcript.record_failure(&rejected(Some("t2"))));
        assert!(!transcript.record_failure(&rejected(Some("t2"))));
        transcript.record(&call(Some("t2")), Timestamp::UNIX_EPOCH, Duration::ZERO, &ToolReply::error("bad"));
        assert!(transcript.record_failure(&rejected(None)));
        assert!(transcript.record_failure(&rejected(None)), "without an id nothing is the same");
        // A call that we answered well and the other side then gave up on is a failure of its own.
        transcript.record(&call(Some("t3")), Timestamp::UNIX_EPOCH, Duration::ZERO, &ToolReply::text("late"));
        assert!(transcript.record_failure(&rejected(Some("t3"))));
        assert_eq!(lines(&transcript).len(), 6);
        assert!(lines(&transcript).iter().all(|line| line["attempt"] == 2));
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join(".ktx")).unwrap();
        assert!(ToolTranscript::open(dir.path(), "j", &"u".into(), 1).is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    proptest! {
        #[test]
        fn any_key_is_one_component(a in "\\PC{0,8}|[./\\\\\n]{0,4}|a{250}", b in "\\PC{0,8}|[./\\\\\n]{0,4}|a{251}") {
            for name in [path_component(&a), path_component(&b)] {
                prop_assert!(scoped_dir::validate_relative_path(&name).is_ok() && !name.contains('/') && name.len() <= 240, "{}", name);
            }
            prop_assert_eq!(path_component(&a) == path_component(&b), a == b);
        }
    }
}
