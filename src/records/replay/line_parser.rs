//! Parses one line of any format as far as an entry requires: time, attempt, body. It never fails.

use std::{borrow::Cow, ops::Range};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{detect::InputFormat, line_time};
use ingestdeck_core::{
    decode::{self, AgentLine},
    run::entry_source::{EntryRef, EntryScope},
    tape::{EntryBody, Millis, Seq, TapeEntry},
};

/// The parsed parts of a line.
#[derive(Debug)]
pub(super) struct ParsedLine<'a> {
    /// Time in the line, if there is one.
    pub(super) at: Option<Millis>,
    /// The attempt that a line of a tape belongs to.
    attempt: Option<(Cow<'a, str>, u32)>,
    /// It is not a line of a tape: the session id in it determines the attempt.
    is_by_session: bool,
    body: EntryBody<'a>,
    is_well_formed: bool,
    /// The decoded line of a capture, which contains the time.
    line: Option<AgentLine<'a>>,
}

/// How the lines of one file are parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineParser {
    pub(super) format: InputFormat,
    /// Time 0 in milliseconds since 1970, for formats with wall-clock times; `None` if the file has no times.
    pub(super) epoch: Option<i64>,
    /// False for a tape of an agent that this program does not know.
    pub(super) is_decodable: bool,
    /// True for a session file with the lines of its sub-agents in between.
    pub(super) nests_sidechains: bool,
}

impl LineParser {
    pub(super) fn parse<'a>(&self, line: &'a [u8]) -> ParsedLine<'a> {
        match self.format {
            InputFormat::Tape => self.as_agent_line(tape(line)),
            InputFormat::TwoWay => two_way(line),
            InputFormat::Capture
            | InputFormat::SessionFile
            | InputFormat::KtxTranscript
            | InputFormat::MemoryFlow
            | InputFormat::JsonLines
            | InputFormat::Document
            | InputFormat::Empty => {
                let body = stdout(line);
                let mut line = decode::decode_line(line.trim_ascii());
                if self.nests_sidechains && line.is_sidechain && line.parent_tool_use_id.is_none() {
                    // The file does not name the call that started the sub-agent.
                    line.parent_tool_use_id =
                        line.agent_id.clone().or(Some(Cow::Borrowed("sidechain")));
                }
                let at =
                    self.since_epoch(|| line_time::parse_timestamp(line.timestamp.as_deref()?));
                ParsedLine {
                    line: Some(line),
                    ..ParsedLine::by_session(at, body)
                }
            }
        }
    }

    /// Parses a line of `length` bytes of which only the beginning and the end are available. Also returns the size of
    /// its body. `None` if this requires the whole line.
    pub(super) fn parse_head<'a>(
        &self,
        head: &'a [u8],
        tail: &[u8],
        length: u64,
    ) -> Option<(ParsedLine<'a>, u64)> {
        let blank = (tail.len() - tail.trim_ascii_end().len()) as u64;
        if blank == tail.len() as u64 {
            return None;
        }
        match self.format {
            InputFormat::Tape => {
                let (entry, before) = TapeEntry::parse_head(head)?;
                let size = length.checked_sub(blank + before as u64 + 1)?;
                Some((self.as_agent_line(entry.into()), size))
            }
            InputFormat::Capture | InputFormat::SessionFile | InputFormat::JsonLines => {
                let body = stdout(head);
                let size = length
                    .checked_sub(blank + (head.len() - head.trim_ascii_start().len()) as u64)?;
                let at = self.since_epoch(|| line_time::timestamp_of_ends(head, tail));
                Some((ParsedLine::by_session(at, body), size))
            }
            InputFormat::TwoWay
            | InputFormat::Document
            | InputFormat::KtxTranscript
            | InputFormat::MemoryFlow
            | InputFormat::Empty => None,
        }
    }

    /// Where a line of `length` bytes contains its content, of which only the beginning and the end are available.
    /// `None` if the content is encoded, or if this requires the whole line.
    pub(super) fn long_content(&self, head: &[u8], tail: &[u8], length: u64) -> Option<Range<u64>> {
        let (_, size) = self
            .parse_head(head, tail, length)
            .filter(|(parsed, _)| !parsed.is_encoded())?;
        let blank = (tail.len() - tail.trim_ascii_end().len()) as u64;
        // On a tape, the brace that closes the entry follows.
        let end = length.checked_sub(blank + u64::from(self.format == InputFormat::Tape))?;
        Some(end.checked_sub(size)?..end)
    }

    /// The time of a line with the wall-clock time `own`, in milliseconds since 1970.
    fn since_epoch(&self, own: impl FnOnce() -> Option<i64>) -> Option<Millis> {
        let at = self
            .epoch
            .and_then(|epoch| Some(own()?.saturating_sub(epoch)))?;
        Some(Millis(u64::try_from(at).unwrap_or(0)))
    }

    /// Keeps the lines of an unknown agent from being decoded as those of Claude Code.
    fn as_agent_line<'a>(&self, parsed: ParsedLine<'a>) -> ParsedLine<'a> {
        match parsed.body {
            EntryBody::Stdout(bytes) if !self.is_decodable => ParsedLine {
                line: Some(decode::opaque_line(bytes)),
                ..parsed
            },
            _ => parsed,
        }
    }

    /// True if entries have their own times.
    pub(super) fn has_times(&self) -> bool {
        matches!(self.format, InputFormat::Tape | InputFormat::TwoWay) || self.epoch.is_some()
    }
}

impl<'a> From<TapeEntry<'a>> for ParsedLine<'a> {
    fn from(entry: TapeEntry<'a>) -> Self {
        Self {
            at: Some(entry.at),
            attempt: entry.attempt,
            is_by_session: false,
            body: entry.body,
            is_well_formed: true,
            line: None,
        }
    }
}

impl<'a> ParsedLine<'a> {
    fn by_session(at: Option<Millis>, body: EntryBody<'a>) -> Self {
        Self {
            at,
            attempt: None,
            is_by_session: true,
            body,
            is_well_formed: true,
            line: None,
        }
    }

    /// Decodes the stdout line if it is not decoded yet, so that the fold does not have to.
    pub(super) fn decode(&mut self) {
        if let (None, EntryBody::Stdout(bytes), true) =
            (&self.line, &self.body, self.is_well_formed)
        {
            self.line = Some(decode::decode_line(bytes));
        }
    }

    /// The content of the entry.
    pub(super) fn content(&self) -> &[u8] {
        self.body.bytes()
    }

    /// True if the content is not a part of the line's bytes.
    pub(super) fn is_encoded(&self) -> bool {
        matches!(
            self.body,
            EntryBody::StdoutRaw(Cow::Owned(_)) | EntryBody::Stderr(Cow::Owned(_))
        )
    }

    /// Passes it to `sink` as entry `seq` at time `at`.
    pub(super) fn emit(&self, seq: Seq, at: Millis, sink: &mut dyn FnMut(EntryRef<'_>)) {
        let scope = match &self.attempt {
            Some((unit, number)) => EntryScope::Attempt(unit, *number),
            None if self.is_by_session => EntryScope::BySession,
            None => EntryScope::Run,
        };
        sink(EntryRef {
            seq,
            at,
            scope,
            body: self.body.clone(),
            is_well_formed: self.is_well_formed,
            decoded: self.line.as_ref(),
        });
    }
}

/// Any body that may be JSON counts as a line, because the decoder accepts all bytes; other bodies are text.
fn stdout(line: &[u8]) -> EntryBody<'_> {
    let line = line.trim_ascii();
    if line.starts_with(b"{") {
        EntryBody::Stdout(line)
    } else {
        EntryBody::StdoutRaw(Cow::Borrowed(line))
    }
}

fn tape(line: &[u8]) -> ParsedLine<'_> {
    match TapeEntry::parse(line.trim_ascii()) {
        Ok(entry) => entry.into(),
        Err(_) => ParsedLine {
            at: None,
            attempt: None,
            is_by_session: false,
            body: EntryBody::StdoutRaw(Cow::Borrowed(line)),
            is_well_formed: false,
            line: None,
        },
    }
}

fn two_way(line: &[u8]) -> ParsedLine<'_> {
    #[derive(Deserialize)]
    struct ControlLogFrame<'a> {
        t: Option<f64>,
        #[serde(borrow)]
        dir: Cow<'a, str>,
        #[serde(borrow)]
        msg: &'a RawValue,
    }
    let Ok(frame) = serde_json::from_slice::<ControlLogFrame<'_>>(line) else {
        return ParsedLine::by_session(None, stdout(line));
    };
    let message = frame.msg.get().as_bytes();
    let body = match frame.dir.as_ref() {
        "->" | "in" => EntryBody::Stdin(message),
        "err" | "stderr" => EntryBody::Stderr(String::from_utf8_lossy(message)),
        _ => stdout(message),
    };
    // Float to integer casts saturate: a time before the start is 0.
    let at = frame
        .t
        .filter(|seconds| seconds.is_finite())
        .map(|seconds| Millis((seconds * 1000.0).round() as u64));
    ParsedLine::by_session(at, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::decode::LineKind;

    fn reading(format: InputFormat) -> LineParser {
        LineParser {
            format,
            epoch: None,
            is_decodable: true,
            nests_sidechains: false,
        }
    }

    #[test]
    fn both_notations_of_a_direction_are_read() {
        let body = |line: &'static str| reading(InputFormat::TwoWay).parse(line.as_bytes()).body;
        assert_eq!(
            body(r#"{"t":1,"dir":"->","msg":{"a":1}}"#),
            EntryBody::Stdin(br#"{"a":1}"#)
        );
        assert_eq!(
            body(r#"{"t":1,"dir":"in","msg":{}}"#),
            EntryBody::Stdin(b"{}")
        );
        assert_eq!(
            body(r#"{"t":1,"dir":"<-","msg":{}}"#),
            EntryBody::Stdout(b"{}")
        );
        assert_eq!(
            body(r#"{"dir":"out","msg":"no json"}"#),
            EntryBody::StdoutRaw(Cow::Borrowed(b"\"no json\""))
        );
        assert_eq!(body(r#"{"other":1}"#), EntryBody::Stdout(br#"{"other":1}"#));
    }

    #[test]
    fn hostile_times_saturate() {
        let at = |t: &str| {
            reading(InputFormat::TwoWay)
                .parse(format!(r#"{{"t":{t},"dir":"in","msg":0}}"#).as_bytes())
                .at
        };
        assert_eq!(at("0.0226"), Some(Millis(23)));
        assert_eq!(at("-5"), Some(Millis(0)));
        assert_eq!(at("1e300"), Some(Millis(u64::MAX)));
        assert_eq!(at("null"), None);
    }

    #[test]
    fn lines_of_an_unknown_agent_are_not_decoded() {
        let line =
            br#"{"seq":1,"at":2,"unit":"a","try":1,"out":{"type":"result","is_error":true}}"#;
        for (is_decodable, kind) in [(true, LineKind::Result), (false, LineKind::Other)] {
            let mut parsed = LineParser {
                is_decodable,
                ..reading(InputFormat::Tape)
            }
            .parse(line);
            parsed.decode();
            assert_eq!(
                parsed.body,
                EntryBody::Stdout(br#"{"type":"result","is_error":true}"#),
                "nothing is lost"
            );
            assert_eq!(parsed.line.unwrap().body.kind(), kind);
        }
    }

    #[test]
    fn sidechains_are_nested_in_the_session() {
        let line = br#"{"type":"user","sessionId":"s","isSidechain":true,"agentId":"a","message":{"content":"x"}}"#;
        let session = reading(InputFormat::SessionFile);
        let parent = |parser: LineParser| {
            parser
                .parse(line)
                .line
                .unwrap()
                .parent_tool_use_id
                .map(Cow::into_owned)
        };
        assert_eq!(
            parent(LineParser {
                nests_sidechains: true,
                ..session
            }),
            Some("a".to_owned())
        );
        assert_eq!(parent(session), None);
    }

    #[test]
    fn a_torn_entry_keeps_its_bytes() {
        let parsed = reading(InputFormat::Tape).parse(br#"{"seq":1,"at"#);
        assert_eq!(
            (parsed.is_well_formed, parsed.body),
            (
                false,
                EntryBody::StdoutRaw(Cow::Borrowed(br#"{"seq":1,"at"#))
            )
        );
    }
}
