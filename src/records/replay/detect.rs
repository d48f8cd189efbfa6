//! Detects the format of a transcript from its first bytes. Pure; the file name is not a parameter.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{foreign_agent, line_time};
use ingestdeck_core::{
    decode::{self, LineKind, line_fields::line_fields},
    diagnostic::Diagnostic,
    tape::{Header, HeaderError},
};

/// The formats that `replay` opens, for the error about other files.
const ACCEPTED_INPUTS: &str =
    "name a tape, a stream-json capture, a Claude Code session file or a record of KTX";

/// The format of a file's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFormat {
    /// A tape of `ingestdeck`.
    Tape,
    /// Stdout of `claude --output-format stream-json`.
    Capture,
    /// A file of `~/.claude/projects`.
    SessionFile,
    /// Both directions of the control protocol, `{"t":…,"dir":…,"msg":…}` per line.
    TwoWay,
    /// KTX's tool transcript, one call per line.
    KtxTranscript,
    /// KTX's memory-flow replay, with or without its wrapper.
    MemoryFlow,
    /// Other JSON, one value per line, of a stream that may still become a transcript.
    JsonLines,
    /// One line of a transcript, written over several lines; read as a single entry.
    Document,
    Empty,
}

impl InputFormat {
    /// True for formats that are converted to a tape when they are opened.
    pub(super) fn is_rewritten(self) -> bool {
        matches!(self, Self::KtxTranscript | Self::MemoryFlow)
    }

    /// Its name for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Tape => "tape",
            Self::Capture => "stream-json capture",
            Self::SessionFile => "session file",
            Self::TwoWay => "two-way transcript",
            Self::KtxTranscript => "KTX tool transcript",
            Self::MemoryFlow => "KTX memory-flow replay",
            Self::JsonLines => "JSON lines",
            Self::Document => "JSON document",
            Self::Empty => "empty file",
        }
    }
}

/// The result of detecting a format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DetectedInput {
    pub format: InputFormat,
    /// The header, if the file is a tape.
    pub header: Option<Header>,
    /// Offset of the first entry: after a tape's header, or after a byte order mark.
    pub first_entry: u64,
    /// First `timestamp` of a capture or session file, in milliseconds since 1970.
    pub first_time: Option<i64>,
    /// Id of the first session of a capture or session file.
    pub session: Option<String>,
}

/// Readable, but not a transcript.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedInput {
    /// A tape that this version cannot read.
    #[error(transparent)]
    Tape(HeaderError),
    /// A compressed file, with the name of the tool that unpacks it.
    #[error("it is compressed and cannot be read directly")]
    Compressed(&'static str),
    /// A file that contains no text.
    #[error("it is a binary file")]
    Binary,
    /// A document beyond the size that is read as a whole.
    #[error("the {what} is larger than the limit of {most} MB")]
    TooLarge {
        /// Name of its format.
        what: &'static str,
        /// The limit in MB.
        most: u64,
    },
    /// JSON, but not a transcript.
    #[error("it is JSON, but none of its lines belongs to a transcript")]
    NotATranscript,
    /// A list of messages.
    #[error("it is a single JSON list")]
    MessageList,
    /// A transcript of an agent that is not supported, with its name.
    #[error("it looks like a transcript of {0}, which is not supported")]
    ForeignTranscript(&'static str),
    /// Text, but not JSON.
    #[error("it contains no line of JSON, and its first line is {0:?}")]
    NotJson(String),
}

impl Diagnostic for UnsupportedInput {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Tape(error) => return error.help(),
            Self::Compressed(tool) => format!("unpack it with `{tool} FILE | ingestdeck replay -`"),
            Self::Binary | Self::NotATranscript | Self::ForeignTranscript(_) | Self::NotJson(_) => {
                ACCEPTED_INPUTS.into()
            }
            Self::MessageList => {
                "convert it to lines with `jq -c '.[]' FILE | ingestdeck replay -`".into()
            }
            Self::TooLarge { .. } => return None,
        })
    }
}

/// The format of a file, for a list. `head` is its beginning, or all of it.
///
/// # Errors
/// Why it cannot be replayed.
pub(super) fn format_of(head: &[u8], is_whole: bool) -> Result<InputFormat, String> {
    let extent = match is_whole {
        true => DetectionExtent::Whole,
        false => DetectionExtent::Head,
    };
    match detect(head, extent) {
        Ok(detected) if detected.format == InputFormat::Empty => Err("it is empty".to_owned()),
        // Only a stream may still become a transcript.
        Ok(detected) if detected.format == InputFormat::JsonLines => {
            Err(UnsupportedInput::NotATranscript.to_string())
        }
        Ok(detected) => Ok(detected.format),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// True if a file contains, or may contain, the lines of an agent in a form that can be repaired.
pub(super) fn may_be_repaired(detected: &Result<DetectedInput, UnsupportedInput>) -> bool {
    match detected {
        Ok(detected) => matches!(
            detected.format,
            InputFormat::Capture | InputFormat::SessionFile
        ),
        Err(refusal) => matches!(
            refusal,
            UnsupportedInput::Binary
                | UnsupportedInput::NotATranscript
                | UnsupportedInput::MessageList
                | UnsupportedInput::NotJson(_)
        ),
    }
}

/// The part of the file that is available for detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetectionExtent {
    Whole,
    /// The beginning of a longer file.
    Head,
    /// The beginning of a stream that may still grow, so detection may have to wait.
    Growing,
}

/// Detects the format of a file from its head. Only complete lines of a partial head count.
pub(crate) fn detect(
    head: &[u8],
    extent: DetectionExtent,
) -> Result<DetectedInput, UnsupportedInput> {
    if let Some(tool) = compression(head) {
        return Err(UnsupportedInput::Compressed(tool));
    }
    let mark = if head.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let text = &head[mark..];
    let found = |format| {
        let timed = matches!(format, InputFormat::Capture | InputFormat::SessionFile);
        let lines = || complete_lines(text, extent).filter(|_| timed);
        Ok(DetectedInput {
            format,
            header: None,
            first_entry: mark as u64,
            first_time: lines().find_map(line_time::line_timestamp),
            session: lines().find_map(session_of_line),
        })
    };
    if text.trim_ascii().is_empty() {
        return match extent {
            DetectionExtent::Whole => found(InputFormat::Empty),
            DetectionExtent::Head | DetectionExtent::Growing => found(InputFormat::Capture),
        };
    }
    if let Some(tape) = tape(text, mark) {
        return tape;
    }
    if extent == DetectionExtent::Whole
        && may_be_document(text)
        && serde_json::from_slice::<&RawValue>(text).is_ok()
    {
        return match decode::decode_line(text).body.kind() {
            _ if is_memory_flow(text) => found(InputFormat::MemoryFlow),
            LineKind::Other | LineKind::Malformed => Err(not_a_transcript(text)),
            _ => found(InputFormat::Document),
        };
    }
    if let Some(agent) = foreign_agent::foreign_agent(complete_lines(text, extent)) {
        return Err(UnsupportedInput::ForeignTranscript(agent));
    }
    let shapes = complete_lines(text, extent).filter_map(|line| classify_line(line, true));
    if let Some((format, _)) = shapes.reduce(|best, next| if next.1 > best.1 { next } else { best })
    {
        return match (format, extent) {
            (InputFormat::JsonLines, DetectionExtent::Whole | DetectionExtent::Head) => {
                Err(not_a_transcript(text))
            }
            _ => found(format),
        };
    }
    if looks_binary(text) {
        return Err(UnsupportedInput::Binary);
    }
    // The head contains no complete line of JSON: it is a line longer than the head, or text.
    let first = first_line(text);
    match classify_line(first, false) {
        Some((format, _)) => found(format),
        None if extent == DetectionExtent::Growing => found(InputFormat::Capture),
        None => Err(UnsupportedInput::NotJson(
            String::from_utf8_lossy(first).chars().take(60).collect(),
        )),
    }
}

/// True for a JSON object that is a memory-flow replay of KTX: its wrapper or its content.
fn is_memory_flow(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct MemoryFlowKeys {
        memory_flow_replay_schema_version: Option<IgnoredAny>,
        replay: Option<IgnoredAny>,
        run_id: Option<IgnoredAny>,
        events: Option<IgnoredAny>,
        planned_work_units: Option<IgnoredAny>,
    }
    let Ok(keys) = serde_json::from_slice::<MemoryFlowKeys>(json) else {
        return false;
    };
    let wrapped = keys.memory_flow_replay_schema_version.is_some() && keys.replay.is_some();
    wrapped || (keys.run_id.is_some() && keys.events.is_some() && keys.planned_work_units.is_some())
}

/// The error for JSON in an unsupported format.
fn not_a_transcript(text: &[u8]) -> UnsupportedInput {
    if text.trim_ascii_start().starts_with(b"[") {
        UnsupportedInput::MessageList
    } else {
        UnsupportedInput::NotATranscript
    }
}

/// True if the head may be the beginning of one JSON value over several lines.
pub(super) fn may_be_document(head: &[u8]) -> bool {
    let first = first_line(head);
    matches!(first.first(), Some(b'{' | b'['))
        && serde_json::from_slice::<IgnoredAny>(first).is_err_and(|error| error.is_eof())
}

/// True if a complete line of the beginning of a stream is JSON.
pub(super) fn has_json_line(head: &[u8]) -> bool {
    complete_lines(head, DetectionExtent::Growing).any(|line| classify_line(line, true).is_some())
}

fn session_of_line(line: &[u8]) -> Option<String> {
    let id = decode::decode_line(line).session_id?;
    (!id.is_empty()).then(|| id.into_owned())
}

fn compression(head: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 4] = [
        (super::zstd_reader::ZSTD_MAGIC, "zstdcat"),
        (b"\x1f\x8b", "zcat"),
        (b"BZh", "bzcat"),
        (b"\xfd7zXZ\x00", "xzcat"),
    ];
    MAGICS
        .iter()
        .find(|(magic, _)| head.starts_with(magic))
        .map(|(_, tool)| *tool)
}

fn tape(text: &[u8], mark: usize) -> Option<Result<DetectedInput, UnsupportedInput>> {
    let line = first_line(text);
    let refused = |error: HeaderError| Some(Err(UnsupportedInput::Tape(error)));
    match Header::parse(line) {
        Ok(header) => {
            let start = text.len() - text.trim_ascii_start().len();
            let end = memchr::memchr(b'\n', &text[start..])
                .map_or(text.len(), |length| start + length + 1);
            let first_entry = (mark + end) as u64;
            Some(Ok(DetectedInput {
                format: InputFormat::Tape,
                header: Some(header),
                first_entry,
                first_time: None,
                session: None,
            }))
        }
        Err(HeaderError::NotATape) if line_fields(line).is_tape_header => {
            refused(HeaderError::Damaged("its first line is cut off".into()))
        }
        Err(HeaderError::NotATape) => None,
        Err(error) => refused(error),
    }
}

fn first_line(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
}

fn complete_lines(text: &[u8], extent: DetectionExtent) -> impl Iterator<Item = &[u8]> {
    let end = match extent {
        DetectionExtent::Whole => text.len(),
        DetectionExtent::Head | DetectionExtent::Growing => {
            memchr::memrchr(b'\n', text).map_or(0, |end| end + 1)
        }
    };
    text[..end]
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
}

/// Detects the format of one line, with the confidence of the result.
fn classify_line(line: &[u8], complete: bool) -> Option<(InputFormat, Confidence)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct FirstLineKeys {
        #[serde(rename = "session_id")]
        stream_session: Option<IgnoredAny>,
        session_id: Option<IgnoredAny>,
        t: Option<IgnoredAny>,
        dir: Option<IgnoredAny>,
        msg: Option<IgnoredAny>,
        r#type: Option<IgnoredAny>,
        ts: Option<IgnoredAny>,
        wu_key: Option<IgnoredAny>,
        tool_name: Option<IgnoredAny>,
    }
    if !line.starts_with(b"{") {
        return (complete && serde_json::from_slice::<IgnoredAny>(line).is_ok())
            .then_some((InputFormat::JsonLines, Confidence::Weak));
    }
    let Ok(keys) = serde_json::from_slice::<FirstLineKeys>(line) else {
        return if complete {
            None
        } else {
            Some(classify_truncated_line(line))
        };
    };
    Some(match keys {
        FirstLineKeys {
            dir: Some(_),
            msg: Some(_),
            t: Some(_),
            ..
        } => (InputFormat::TwoWay, Confidence::Certain),
        FirstLineKeys {
            ts: Some(_),
            wu_key: Some(_),
            tool_name: Some(_),
            ..
        } => (InputFormat::KtxTranscript, Confidence::Certain),
        FirstLineKeys {
            stream_session: Some(_),
            r#type: Some(_),
            ..
        } => (InputFormat::Capture, Confidence::Certain),
        FirstLineKeys {
            session_id: Some(_),
            r#type: Some(_),
            ..
        } => (InputFormat::SessionFile, Confidence::Certain),
        FirstLineKeys {
            r#type: Some(_), ..
        } => (InputFormat::Capture, Confidence::Likely),
        _ if is_memory_flow(line) => (InputFormat::MemoryFlow, Confidence::Certain),
        _ => (InputFormat::JsonLines, Confidence::Weak),
    })
}

/// How reliably a line determines the format of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Confidence {
    Weak,
    Likely,
    Certain,
}

/// Detects the format of a first line that is longer than the head.
fn classify_truncated_line(line: &[u8]) -> (InputFormat, Confidence) {
    let fields = line_fields(line);
    if fields.is_session_file && !fields.is_stream {
        (InputFormat::SessionFile, Confidence::Certain)
    } else if fields.kind.is_some() {
        (InputFormat::Capture, Confidence::Likely)
    } else {
        (InputFormat::JsonLines, Confidence::Weak)
    }
}

/// Text may contain a stray NUL or an invalid character; a binary file contains many.
fn looks_binary(text: &[u8]) -> bool {
    let sample = &text[..text.len().min(8192)];
    let controls = sample
        .iter()
        .filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace())
        .count();
    let broken = String::from_utf8_lossy(sample)
        .chars()
        .filter(|char| *char == char::REPLACEMENT_CHARACTER)
        .count();
    (controls + broken) * 20 > sample.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(text: &str) -> InputFormat {
        detect(text.as_bytes(), DetectionExtent::Whole)
            .unwrap()
            .format
    }

    #[test]
    fn format_is_detected_from_content() {
        let cases = [
            (
                "{\"type\":\"system\",\"session_id\":\"s\"}\n",
                InputFormat::Capture,
            ),
            (
                "{\"session_id\":null,\"type\":\"x\"}\n{\"type\":\"user\"}\n",
                InputFormat::Capture,
            ),
            (
                "{\"type\":\"control_request\",\"request_id\":\"r\"}\n",
                InputFormat::Capture,
            ),
            (
                "{\"type\":\"summary\"}\n{\"type\":\"user\",\"sessionId\":\"s\"}\n",
                InputFormat::SessionFile,
            ),
            (
                "{\"t\": 0.1, \"dir\": \"->\", \"msg\": {}}\n",
                InputFormat::TwoWay,
            ),
            (
                "npm warn something\n{\"type\":\"system\",\"session_id\":\"s\"}\n",
                InputFormat::Capture,
            ),
            ("{\"a\":1}\n{\"type\":\"user\"}\n", InputFormat::Capture),
            ("{\n \"type\": \"result\"\n}\n", InputFormat::Document),
            (
                "{\"ts\":\"t\",\"wuKey\":\"u\",\"toolName\":\"x\",\"input\":{}}\n",
                InputFormat::KtxTranscript,
            ),
            (
                "{\"memoryFlowReplaySchemaVersion\":1,\"replay\":{}}\n",
                InputFormat::MemoryFlow,
            ),
            (
                "{\n\"runId\":\"r\",\n\"events\":[],\"plannedWorkUnits\":[]}\n",
                InputFormat::MemoryFlow,
            ),
            (
                "\u{feff}{\"type\":\"system\",\"session_id\":\"s\"}\n",
                InputFormat::Capture,
            ),
            ("", InputFormat::Empty),
            ("\n \n", InputFormat::Empty),
        ];
        for (text, expected) in cases {
            assert_eq!(format(text), expected, "{text}");
        }
    }

    #[test]
    fn a_tape_begins_after_its_header() {
        let header = r#"{"tape":1,"program":"p","run":"00000000-0000-0000-0000-000000000007","started_at":"2026-01-01T00:00:00Z"}"#;
        let detected = detect(
            format!("{header}\n{{\"seq\":0").as_bytes(),
            DetectionExtent::Head,
        )
        .unwrap();
        assert_eq!(
            (detected.format, detected.first_entry),
            (InputFormat::Tape, header.len() as u64 + 1)
        );
        let alone = detect(header.as_bytes(), DetectionExtent::Whole).unwrap();
        assert_eq!(alone.first_entry, header.len() as u64);
        for end in 9..header.len() {
            let torn = detect(&header.as_bytes()[..end], DetectionExtent::Whole).unwrap_err();
            assert!(
                matches!(torn, UnsupportedInput::Tape(_)),
                "cut at {end}: {torn}"
            );
        }
    }

    #[test]
    fn unsupported_input_is_named() {
        let refused = |bytes: &[u8]| detect(bytes, DetectionExtent::Whole).unwrap_err();
        assert_eq!(
            refused(b"{\"tape\":2}\n").to_line(),
            "tape format 2 is newer than this program reads (1); use a newer ingestdeck"
        );
        assert_eq!(
            refused(b"\x28\xb5\x2f\xfd\x00"),
            UnsupportedInput::Compressed("zstdcat")
        );
        assert_eq!(
            refused(b"\x7fELF\x02\x01\x01\x00\x00\x00\xff\xfe\xfd"),
            UnsupportedInput::Binary
        );
        assert_eq!(
            refused(b"# Title\n\ntext\n"),
            UnsupportedInput::NotJson("# Title".into())
        );
        for json in [
            "{\"a\":1}\n",
            "{\"a\":1}\n[2]\n",
            "{\n \"model\": \"m\"\n}\n",
            "{\"session_id\":\"s\",\"model\":{\"id\":\"m\"}}\n",
            "{\"sessionId\":\"s\",\"costUSD\":0.5}\n",
            "42",
            "{\n \"type\": \"object\"\n}",
        ] {
            assert_eq!(
                refused(json.as_bytes()),
                UnsupportedInput::NotATranscript,
                "{json}"
            );
        }
        assert_eq!(
            refused(b"[{\"type\":\"user\"}]\n"),
            UnsupportedInput::MessageList
        );
        assert_eq!(
            detect(b"{\"a\":1}\n{\"b", DetectionExtent::Head).unwrap_err(),
            UnsupportedInput::NotATranscript
        );
    }

    #[test]
    fn growing_input_is_not_rejected_early() {
        assert_eq!(
            detect(b"warming up\n", DetectionExtent::Growing)
                .unwrap()
                .format,
            InputFormat::Capture
        );
        assert_eq!(
            detect(b"{\"a\":1}\n", DetectionExtent::Growing)
                .unwrap()
                .format,
            InputFormat::JsonLines
        );
        assert_eq!(
            detect(b"", DetectionExtent::Growing).unwrap().format,
            InputFormat::Capture
        );
        assert_eq!(
            detect(b"\x00\x01\x02\x03", DetectionExtent::Growing).unwrap_err(),
            UnsupportedInput::Binary
        );
    }

    #[test]
    fn a_first_line_longer_than_the_head_is_guessed() {
        let head = format!(
            "{{\"type\":\"user\",\"sessionId\":\"s\",\"pad\":\"{}",
            "x".repeat(1000)
        );
        assert_eq!(
            detect(head.as_bytes(), DetectionExtent::Head)
                .unwrap()
                .format,
            InputFormat::SessionFile
        );
    }

    #[test]
    fn a_stray_nul_does_not_make_a_capture_binary() {
        assert_eq!(
            format("{\"type\":\"system\",\"session_id\":\"s\"}\n\0\0\0\0\0\0\0\0\n"),
            InputFormat::Capture
        );
    }

    proptest::proptest! {
        #[test]
        fn detect_accepts_any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            for extent in [DetectionExtent::Whole, DetectionExtent::Head, DetectionExtent::Growing] {
                let _ = detect(&bytes, extent);
            }
        }
    }
}
