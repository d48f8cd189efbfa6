//! What a transcript is, judged by its first bytes. Pure; the file name is not even a parameter.

use memchr::memmem;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{ktx, times};
use crate::{
    decode::{self, Kind},
    tape::{Header, HeaderError},
};

/// What `replay` can open, for the sentence that refuses everything else.
const ACCEPTED: &str = "replay opens tapes, stream-json captures, Claude Code session files and KTX's records";

/// What the entries of a file look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own tape.
    Tape,
    /// Stdout of `claude --output-format stream-json`.
    Capture,
    /// A file of `~/.claude/projects`.
    SessionFile,
    /// Both directions of the control protocol, `{"t":…,"dir":…,"msg":…}` per line.
    TwoWay,
    /// KTX's tool transcript, one call per line.
    KtxTranscript,
    /// KTX's memory-flow replay, in its wrapper or bare.
    MemoryFlow,
    /// Some other JSON, one value per line, of a stream that may still become a transcript.
    JsonLines,
    /// One line of a transcript, written over several lines; read as a single entry.
    Document,
    /// No bytes at all.
    Empty,
}

impl Format {
    /// True for records that are rewritten as a tape when they are opened.
    pub(super) fn is_rewritten(self) -> bool {
        matches!(self, Self::KtxTranscript | Self::MemoryFlow)
    }

    /// Its name for people.
    pub fn words(self) -> &'static str {
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

/// What the first bytes tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Detected {
    /// The format.
    pub format: Format,
    /// Header of a tape.
    pub header: Option<Header>,
    /// Offset of the first entry: after a tape's header, or after a byte order mark.
    pub first_entry: u64,
    /// First `timestamp` of a capture or session file, in milliseconds since 1970.
    pub first_time: Option<i64>,
}

/// Readable, but not a transcript.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A tape that this program cannot read.
    #[error("{0}")]
    Tape(String),
    /// Compressed; the name of the tool that unpacks it.
    #[error("it is compressed and cannot be read directly; unpack it with `{0} FILE | ingestdeck replay -`")]
    Compressed(&'static str),
    /// Not text.
    #[error("it is a binary file; {ACCEPTED}")]
    Binary,
    /// More of it than is read at once.
    #[error("it is a {what} of more than {most} MB, which is more than is read of one")]
    TooLarge {
        /// Its format.
        what: &'static str,
        /// The limit, in megabytes.
        most: u64,
    },
    /// JSON, but not a transcript.
    #[error("it is JSON, but no line of it belongs to a transcript; {ACCEPTED}")]
    NoTranscript,
    /// A list of messages.
    #[error("it is one JSON list; turn it into lines with `jq -c '.[]' FILE | ingestdeck replay -`")]
    List,
    /// Text, but not JSON.
    #[error("it holds no line of JSON, its first line is {0:?}; {ACCEPTED}")]
    NoJson(String),
}

/// How much of a file is known when it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    Whole,
    /// The file goes on.
    Head,
    /// Nobody knows yet what follows: be patient.
    Growing,
}

/// Judges a file by its head. Of a partial head only complete lines count.
pub fn detect(head: &[u8], extent: Extent) -> Result<Detected, Refusal> {
    if let Some(tool) = compression(head) {
        return Err(Refusal::Compressed(tool));
    }
    let mark = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let text = &head[mark..];
    let found = |format| {
        let timed = matches!(format, Format::Capture | Format::SessionFile);
        let first_time = if timed { whole_lines(text, extent).find_map(times::own) } else { None };
        Ok(Detected { format, header: None, first_entry: mark as u64, first_time })
    };
    if text.trim_ascii().is_empty() {
        return match extent {
            Extent::Whole => found(Format::Empty),
            Extent::Head | Extent::Growing => found(Format::Capture),
        };
    }
    if let Some(tape) = tape(text, mark) {
        return tape;
    }
    if extent == Extent::Whole && may_be_document(text) && serde_json::from_slice::<&RawValue>(text).is_ok() {
        return match decode::line(text).body.kind() {
            _ if ktx::is_replay(text) => found(Format::MemoryFlow),
            Kind::Other | Kind::Malformed => Err(no_transcript(text)),
            _ => found(Format::Document),
        };
    }
    let shapes = whole_lines(text, extent).filter_map(|line| shape(line, true));
    if let Some((format, _)) = shapes.reduce(|best, next| if next.1 > best.1 { next } else { best }) {
        return match (format, extent) {
            (Format::JsonLines, Extent::Whole | Extent::Head) => Err(no_transcript(text)),
            _ => found(format),
        };
    }
    if looks_binary(text) {
        return Err(Refusal::Binary);
    }
    // Not one complete line of JSON: a line longer than the head, or text.
    let first = first_line(text);
    match shape(first, false) {
        Some((format, _)) => found(format),
        None if extent == Extent::Growing => found(Format::Capture),
        None => Err(Refusal::NoJson(String::from_utf8_lossy(first).chars().take(60).collect())),
    }
}

/// The refusal of JSON that is nothing else.
fn no_transcript(text: &[u8]) -> Refusal {
    if text.trim_ascii_start().starts_with(b"[") { Refusal::List } else { Refusal::NoTranscript }
}

/// True when the head may be the beginning of one JSON value over several lines.
pub(super) fn may_be_document(head: &[u8]) -> bool {
    let first = first_line(head);
    matches!(first.first(), Some(b'{' | b'['))
        && serde_json::from_slice::<IgnoredAny>(first).is_err_and(|error| error.is_eof())
}

fn compression(head: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 4] =
        [(super::unpack::MAGIC, "zstdcat"), (b"\x1f\x8b", "zcat"), (b"BZh", "bzcat"), (b"\xfd7zXZ\x00", "xzcat")];
    MAGICS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, tool)| *tool)
}

fn tape(text: &[u8], mark: usize) -> Option<Result<Detected, Refusal>> {
    let line = first_line(text);
    let refused = |error: HeaderError| Some(Err(Refusal::Tape(error.to_string())));
    match Header::parse(line) {
        Ok(header) => {
            let start = text.len() - text.trim_ascii_start().len();
            let end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |length| start + length + 1);
            let first_entry = (mark + end) as u64;
            Some(Ok(Detected { format: Format::Tape, header: Some(header), first_entry, first_time: None }))
        }
        Err(HeaderError::NotATape) if line.starts_with(b"{\"tape\":") => {
            refused(HeaderError::Damaged("its first line is cut off".into()))
        }
        Err(HeaderError::NotATape) => None,
        Err(error) => refused(error),
    }
}

fn first_line(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty()).unwrap_or_default()
}

fn whole_lines(text: &[u8], extent: Extent) -> impl Iterator<Item = &[u8]> {
    let end = match extent {
        Extent::Whole => text.len(),
        Extent::Head | Extent::Growing => memchr::memrchr(b'\n', text).map_or(0, |end| end + 1),
    };
    text[..end].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// What one line looks like, and how sure that is.
fn shape(line: &[u8], complete: bool) -> Option<(Format, Sure)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Keys {
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
            .then_some((Format::JsonLines, Sure::AnyValue));
    }
    let Ok(keys) = serde_json::from_slice::<Keys>(line) else {
        return if complete { None } else { Some(guess(line)) };
    };
    Some(match keys {
        Keys { dir: Some(_), msg: Some(_), t: Some(_), .. } => (Format::TwoWay, Sure::Named),
        Keys { ts: Some(_), wu_key: Some(_), tool_name: Some(_), .. } => (Format::KtxTranscript, Sure::Named),
        Keys { stream_session: Some(_), .. } => (Format::Capture, Sure::Named),
        Keys { session_id: Some(_), .. } => (Format::SessionFile, Sure::Named),
        Keys { r#type: Some(_), .. } => (Format::Capture, Sure::Typed),
        _ if ktx::is_replay(line) => (Format::MemoryFlow, Sure::Named),
        _ => (Format::JsonLines, Sure::AnyValue),
    })
}

/// How much a line says about its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sure {
    AnyValue,
    Typed,
    Named,
}

/// For a first line that is longer than the head.
fn guess(line: &[u8]) -> (Format, Sure) {
    let has = |key: &[u8]| memmem::find(line, key).is_some();
    if has(b"\"sessionId\":") && !has(b"\"session_id\":") {
        (Format::SessionFile, Sure::Named)
    } else if has(b"\"type\":") {
        (Format::Capture, Sure::Typed)
    } else {
        (Format::JsonLines, Sure::AnyValue)
    }
}

/// Text may hold a stray NUL or a broken character; a binary file is full of them.
fn looks_binary(text: &[u8]) -> bool {
    let sample = &text[..text.len().min(8192)];
    let controls = sample.iter().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
    let broken = String::from_utf8_lossy(sample).chars().filter(|char| *char == char::REPLACEMENT_CHARACTER).count();
    (controls + broken) * 20 > sample.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(text: &str) -> Format {
        detect(text.as_bytes(), Extent::Whole).unwrap().format
    }

    #[test]
    fn content_decides() {
        let cases = [
            ("{\"type\":\"system\",\"session_id\":\"s\"}\n", Format::Capture),
            ("{\"session_id\":null,\"type\":\"x\"}\n{\"type\":\"user\"}\n", Format::Capture),
            ("{\"type\":\"control_request\",\"request_id\":\"r\"}\n", Format::Capture),
            ("{\"type\":\"summary\"}\n{\"parentUuid\":null,\"sessionId\":\"s\"}\n", Format::SessionFile),
            ("{\"t\": 0.1, \"dir\": \"->\", \"msg\": {}}\n", Format::TwoWay),
            ("npm warn something\n{\"type\":\"system\",\"session_id\":\"s\"}\n", Format::Capture),
            ("{\"a\":1}\n{\"type\":\"user\"}\n", Format::Capture),
            ("{\n \"type\": \"result\"\n}\n", Format::Document),
            ("{\"ts\":\"t\",\"wuKey\":\"u\",\"toolName\":\"x\",\"input\":{}}\n", Format::KtxTranscript),
            ("{\"memoryFlowReplaySchemaVersion\":1,\"replay\":{}}\n", Format::MemoryFlow),
            ("{\n\"runId\":\"r\",\n\"events\":[],\"plannedWorkUnits\":[]}\n", Format::MemoryFlow),
            ("\u{feff}{\"type\":\"system\",\"session_id\":\"s\"}\n", Format::Capture),
            ("", Format::Empty),
            ("\n \n", Format::Empty),
        ];
        for (text, expected) in cases {
            assert_eq!(format(text), expected, "{text}");
        }
    }

    #[test]
    fn a_tape_begins_after_its_header() {
        let header = r#"{"tape":1,"program":"p","run":"00000000-0000-0000-0000-000000000007","started_at":"2026-01-01T00:00:00Z"}"#;
        let detected = detect(format!("{header}\n{{\"seq\":0").as_bytes(), Extent::Head).unwrap();
        assert_eq!((detected.format, detected.first_entry), (Format::Tape, header.len() as u64 + 1));
        let alone = detect(header.as_bytes(), Extent::Whole).unwrap();
        assert_eq!(alone.first_entry, header.len() as u64);
        for end in 9..header.len() {
            let torn = detect(&header.as_bytes()[..end], Extent::Whole).unwrap_err();
            assert!(matches!(torn, Refusal::Tape(_)), "cut at {end}: {torn}");
        }
    }

    #[test]
    fn the_refusal_says_what_it_is() {
        let refused = |bytes: &[u8]| detect(bytes, Extent::Whole).unwrap_err();
        assert_eq!(
            refused(b"{\"tape\":2}\n").to_string(),
            "tape format 2 is newer than this program reads (1); use a newer ingestdeck"
        );
        assert_eq!(refused(b"\x28\xb5\x2f\xfd\x00"), Refusal::Compressed("zstdcat"));
        assert_eq!(refused(b"\x7fELF\x02\x01\x01\x00\x00\x00\xff\xfe\xfd"), Refusal::Binary);
        assert_eq!(refused(b"# Title\n\ntext\n"), Refusal::NoJson("# Title".into()));
        for json in
            ["{\"a\":1}\n", "{\"a\":1}\n[2]\n", "{\n \"model\": \"m\"\n}\n", "42", "{\n \"type\": \"object\"\n}"]
        {
            assert_eq!(refused(json.as_bytes()), Refusal::NoTranscript, "{json}");
        }
        assert_eq!(refused(b"[{\"type\":\"user\"}]\n"), Refusal::List);
        assert_eq!(detect(b"{\"a\":1}\n{\"b", Extent::Head).unwrap_err(), Refusal::NoTranscript);
    }

    #[test]
    fn what_still_grows_is_given_time() {
        assert_eq!(detect(b"warming up\n", Extent::Growing).unwrap().format, Format::Capture);
        assert_eq!(detect(b"{\"a\":1}\n", Extent::Growing).unwrap().format, Format::JsonLines);
        assert_eq!(detect(b"", Extent::Growing).unwrap().format, Format::Capture);
        assert_eq!(detect(b"\x00\x01\x02\x03", Extent::Growing).unwrap_err(), Refusal::Binary);
    }

    #[test]
    fn a_first_line_longer_than_the_head_is_guessed() {
        let head = format!("{{\"type\":\"user\",\"sessionId\":\"s\",\"pad\":\"{}", "x".repeat(1000));
        assert_eq!(detect(head.as_bytes(), Extent::Head).unwrap().format, Format::SessionFile);
    }

    #[test]
    fn a_stray_nul_does_not_make_a_capture_binary() {
        assert_eq!(format("{\"type\":\"system\",\"session_id\":\"s\"}\n\0\0\0\0\0\0\0\0\n"), Format::Capture);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            for extent in [Extent::Whole, Extent::Head, Extent::Growing] {
                let _ = detect(&bytes, extent);
            }
        }
    }
}
