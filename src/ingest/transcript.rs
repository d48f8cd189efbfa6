//! KTX's tool transcripts: one JSON line per call, in `.ktx/ingest-transcripts/<job>/<unit>.jsonl`.
//!
//! Owns the line format and the file. Each failure is written once, even if several components report it. This module
//! must not know the tools.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::slug;
use ingestdeck_core::{
    tape::UnitKey,
    units::{ToolCall, ToolReply},
};
use ingestdeck_os::scoped_dir::{self, ScopedDir};

/// KTX's directory for transcripts, relative to the project.
const TRANSCRIPTS_DIR: &str = ".ktx/ingest-transcripts";

/// The transcript of one attempt. Safe to use from several threads.
#[derive(Debug)]
pub struct ToolTranscript {
    /// Path relative to the project.
    relative_path: String,
    unit: UnitKey,
    attempt: u32,
    state: Mutex<TranscriptState>,
}

#[derive(Debug)]
struct TranscriptState {
    file: File,
    /// `unit:tool:toolCallId` of every failure that was written.
    recorded_failures: BTreeSet<String>,
}

/// The calls of an attempt in the transcript of its unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCalls {
    /// The job of its run.
    pub job: String,
    pub attempt: u32,
}

/// A tool call that failed before it reached the tools.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedCall<'a> {
    /// Tool name without the server prefix.
    pub tool: &'a str,
    /// Id of the call, if known.
    pub tool_use_id: Option<&'a str>,
    /// Arguments, as far as they are known.
    pub input: &'a Value,
    pub message: &'a str,
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
    /// Opens the transcript of an attempt below `project`, appending to those of earlier attempts at the unit.
    pub(crate) fn open(
        project: &Path,
        job: &str,
        unit: &UnitKey,
        attempt: u32,
    ) -> io::Result<Self> {
        scoped_dir::create_ignored_dir(project, &project.join(TRANSCRIPTS_DIR))?;
        let relative_path = transcript_path(job, unit);
        let file = ScopedDir::open(project)?.append_to(&relative_path)?;
        let state = Mutex::new(TranscriptState {
            file,
            recorded_failures: BTreeSet::new(),
        });
        Ok(Self {
            relative_path,
            unit: unit.clone(),
            attempt,
            state,
        })
    }

    /// Path relative to the project.
    pub fn relative_path(&self) -> &str {
        &self.relative_path
    }

    /// Writes a call that reached the tools. A failure has kind `error` unless the tool explained it in `structured`.
    pub(crate) fn record(
        &self,
        call: &ToolCall,
        began: Timestamp,
        took: Duration,
        reply: &ToolReply,
    ) {
        let failed = reply.is_error && reply.structured.is_none();
        let mut state = self.state();
        if failed && !state.is_new(&self.unit, &call.name, call.tool_use_id.as_deref()) {
            return;
        }
        state.append(&TranscriptLine {
            output: (!failed).then_some(TranscriptOutput {
                markdown: &reply.markdown,
                structured: reply.structured.as_ref(),
            }),
            error: failed.then_some(TranscriptFailure {
                message: &reply.markdown,
                name: "ToolError",
            }),
            ..self.line(
                &call.name,
                call.tool_use_id.as_deref(),
                began,
                millis(took),
                &call.arguments,
            )
        });
        if reply.is_error {
            state.is_new(&self.unit, &call.name, call.tool_use_id.as_deref());
        }
    }

    /// Writes a call that was denied, unknown or unreadable, as reported by another component. False if that failure
    /// was written before.
    pub fn record_failure(&self, rejected: &RejectedCall<'_>) -> bool {
        let mut state = self.state();
        if !state.is_new(&self.unit, rejected.tool, rejected.tool_use_id) {
            return false;
        }
        let line = self.line(
            rejected.tool,
            rejected.tool_use_id,
            Timestamp::now(),
            rejected.duration_ms,
            rejected.input,
        );
        state.append(&TranscriptLine {
            error: Some(TranscriptFailure {
                message: rejected.message,
                name: "ToolRejected",
            }),
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
        self.state.lock()
    }
}

impl TranscriptState {
    /// Registers a failure. True if it is new; a failure without an id is always new.
    fn is_new(&mut self, unit: &str, tool: &str, id: Option<&str>) -> bool {
        id.is_none_or(|id| self.recorded_failures.insert(format!("{unit}:{tool}:{id}")))
    }

    /// Writes each line with one call, so that lines of several processes do not mix.
    fn append(&mut self, line: &TranscriptLine<'_>) {
        let written = serde_json::to_vec(line)
            .map_err(io::Error::from)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                self.file.write_all(&bytes)
            });
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write to a tool transcript");
        }
    }
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

/// Path of the transcript of `unit`, relative to the project.
pub fn transcript_path(job: &str, unit: &UnitKey) -> String {
    format!(
        "{TRANSCRIPTS_DIR}/{}/{}.jsonl",
        path_component(job),
        path_component(unit)
    )
}

/// Converts `name` to one component of a path. Keys of bundled adapters are unchanged.
fn path_component(name: &str) -> String {
    const MAX_COMPONENT_BYTES: usize = 200;
    let safe: String = name
        .chars()
        .map(|c| {
            if c.is_control() || matches!(c, '/' | '\\') {
                '_'
            } else {
                c
            }
        })
        .collect();
    if safe == name && safe.len() <= MAX_COMPONENT_BYTES && !matches!(name, "" | "." | "..") {
        return safe;
    }
    // A changed name gets a hash, so that different keys never share a file.
    let short: String = safe
        .trim_start_matches('.')
        .chars()
        .take(MAX_COMPONENT_BYTES / 4)
        .collect();
    format!("{short}-{}", slug::short_hash(name, 8))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call(id: Option<&str>) -> ToolCall {
        ToolCall {
            name: "wiki_read".into(),
            arguments: json!({"key": "a"}),
            tool_use_id: id.map(str::to_owned),
        }
    }

    fn lines(project: &Path, transcript: &ToolTranscript) -> Vec<Value> {
        let text = std::fs::read_to_string(project.join(transcript.relative_path())).unwrap();
        let mut lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
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
        assert_eq!(
            transcript.relative_path(),
            ".ktx/ingest-transcripts/local-x/dbt-all.jsonl"
        );
        let took = Duration::from_millis(7);
        let good = ToolReply {
            structured: Some(json!({"key": "a"})),
            ..ToolReply::text("# A")
        };
        transcript.record(&call(Some("t1")), Timestamp::UNIX_EPOCH, took, &good);
        let refused = ToolReply {
            structured: Some(json!({"success": false})),
            ..ToolReply::error("no ledger")
        };
        transcript.record(&call(Some("t2")), Timestamp::UNIX_EPOCH, took, &refused);
        transcript.record(
            &call(Some("t3")),
            Timestamp::UNIX_EPOCH,
            took,
            &ToolReply::error("bad"),
        );
        transcript.record(
            &call(None),
            Timestamp::UNIX_EPOCH,
            took,
            &ToolReply::text("x"),
        );
        insta::assert_json_snapshot!(lines(dir.path(), &transcript));
        let mode = |path: &Path| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        let path = dir.path().join(transcript.relative_path());
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
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
        transcript.record(
            &call(Some("t1")),
            Timestamp::UNIX_EPOCH,
            Duration::ZERO,
            &ToolReply::error("bad"),
        );
        assert!(
            !transcript.record_failure(&rejected(Some("t1"))),
            "already recorded by the tools"
        );
        assert!(transcript.record_failure(&rejected(Some("t2"))));
        assert!(!transcript.record_failure(&rejected(Some("t2"))));
        transcript.record(
            &call(Some("t2")),
            Timestamp::UNIX_EPOCH,
            Duration::ZERO,
            &ToolReply::error("bad"),
        );
        assert!(transcript.record_failure(&rejected(None)));
        assert!(
            transcript.record_failure(&rejected(None)),
            "without an id nothing is the same"
        );
        // A call that succeeded here but failed on the client's side is a separate failure.
        transcript.record(
            &call(Some("t3")),
            Timestamp::UNIX_EPOCH,
            Duration::ZERO,
            &ToolReply::text("late"),
        );
        assert!(transcript.record_failure(&rejected(Some("t3"))));
        assert_eq!(lines(dir.path(), &transcript).len(), 6);
        assert!(
            lines(dir.path(), &transcript)
                .iter()
                .all(|line| line["attempt"] == 2)
        );
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
