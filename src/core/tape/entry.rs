//! One line of a tape: stamp and body. The order of keys is fixed, so that a reader finds the body without parsing it.
//! Bodies of `claude` are stored verbatim; this module does not interpret them.

use std::{borrow::Cow, io::Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Millis, Seq};

/// One entry of a tape, borrowed from its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeEntry<'a> {
    pub seq: Seq,
    /// When it was recorded.
    pub at: Millis,
    /// The attempt that it belongs to; `None` for the run itself.
    pub attempt: Option<(Cow<'a, str>, u32)>,
    pub body: EntryBody<'a>,
}

/// The body of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryBody<'a> {
    /// A stdout line that is JSON, verbatim, without its newline.
    Stdout(&'a [u8]),
    /// The exact bytes of a stdout line that is not JSON.
    StdoutRaw(Cow<'a, [u8]>),
    /// JSON that this program wrote to the agent's stdin.
    Stdin(&'a [u8]),
    /// A stderr line, as text.
    Stderr(Cow<'a, str>),
    /// A decision of this program, as JSON; see [`super::Note::parse`].
    Note(&'a [u8]),
}

/// A line that is not an entry: torn by a crash, or written by another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a tape entry")]
pub struct MalformedEntry;

impl<'a> TapeEntry<'a> {
    /// Parses one line without its newline. The fast path reads only the stamp; lines whose keys were reordered by
    /// another tool are parsed in full.
    pub fn parse(line: &'a [u8]) -> Result<Self, MalformedEntry> {
        parse_fast(line).map_or_else(|| parse_unordered(line), Ok)
    }

    /// Parses the head of a longer line: its stamp, the beginning of its body, and the offset of the body. Returns
    /// `None` if the body does not begin in the head.
    pub fn parse_head(head: &'a [u8]) -> Option<(Self, usize)> {
        let (stamp, rest) = parse_stamp(head)?;
        let body = |prefix: &[u8]| rest.strip_prefix(prefix).filter(|body| !body.is_empty());
        let (found, body) = if let Some(json) = body(b",\"out\":") {
            (json, EntryBody::Stdout(json))
        } else if let Some(json) = body(b",\"in\":") {
            (json, EntryBody::Stdin(json))
        } else if let Some(json) = body(b",\"note\":") {
            (json, EntryBody::Note(json))
        } else if let Some(text) = body(b",\"err\":\"") {
            (
                text,
                EntryBody::Stderr(Cow::Owned(decode_truncated_string(text))),
            )
        } else {
            let text = body(b",\"raw\":\"")?;
            (
                text,
                EntryBody::StdoutRaw(Cow::Owned(decode_truncated_string(text).into_bytes())),
            )
        };
        Some((Self { body, ..stamp }, head.len() - found.len()))
    }

    /// Appends the entry and a newline to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        // Writing to a `Vec` cannot fail.
        let _ = write!(out, "{{\"seq\":{},\"at\":{}", self.seq.0, self.at.0);
        if let Some((unit, attempt)) = &self.attempt {
            out.extend_from_slice(b",\"unit\":");
            push_json_string(out, unit);
            let _ = write!(out, ",\"try\":{attempt}");
        }
        match &self.body {
            EntryBody::Stdout(json) => push_field(out, "out", json),
            EntryBody::Stdin(json) => push_field(out, "in", json),
            EntryBody::Note(json) => push_field(out, "note", json),
            EntryBody::Stderr(text) => {
                out.extend_from_slice(b",\"err\":");
                push_json_string(out, text);
            }
            EntryBody::StdoutRaw(bytes) => {
                out.extend_from_slice(b",\"raw\":");
                push_json_string(out, &String::from_utf8_lossy(bytes));
                if std::str::from_utf8(bytes).is_err() {
                    let _ = write!(out, ",\"b64\":\"{}\"", BASE64.encode(bytes));
                }
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The beginning of a line with a fragment of a message.
const STREAM_EVENT_PREFIX: &[u8] = br#"{"type":"stream_event""#;

impl EntryBody<'_> {
    /// The bytes of the body.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Stdout(bytes) | Self::Stdin(bytes) | Self::Note(bytes) => bytes,
            Self::StdoutRaw(bytes) => bytes,
            Self::Stderr(text) => text.as_bytes(),
        }
    }

    /// True for a fragment of a message that is still being written. The complete message follows.
    pub fn is_stream_event(&self) -> bool {
        matches!(self, Self::Stdout(json) if json.starts_with(STREAM_EVENT_PREFIX))
    }
}

/// Chooses the body for a stdout line; `is_json` states that the line is valid JSON in UTF-8. The line is stored
/// verbatim if it can be part of a JSON line, else as text.
pub fn stdout_body(line: &[u8], is_json: bool) -> EntryBody<'_> {
    // A bare carriage return or newline inside the line would split the entry.
    if is_json && memchr::memchr2(b'\n', b'\r', line).is_none() {
        EntryBody::Stdout(line.trim_ascii())
    } else {
        EntryBody::StdoutRaw(Cow::Borrowed(line))
    }
}

fn push_json_string(out: &mut Vec<u8>, text: &str) {
    // Serialising a string cannot fail.
    let _ = serde_json::to_writer(out, text);
}

fn push_field(out: &mut Vec<u8>, key: &str, json: &[u8]) {
    let _ = write!(out, ",\"{key}\":");
    out.extend_from_slice(json);
}

fn parse_fast(line: &[u8]) -> Option<TapeEntry<'_>> {
    let (stamp, rest) = parse_stamp(line)?;
    let json = |prefix: &[u8]| {
        rest.strip_prefix(prefix)?
            .strip_suffix(b"}")
            .filter(|body| !body.is_empty())
    };
    let body = if let Some(json) = json(b",\"out\":") {
        EntryBody::Stdout(json)
    } else if let Some(json) = json(b",\"in\":") {
        EntryBody::Stdin(json)
    } else if let Some(json) = json(b",\"note\":") {
        EntryBody::Note(json)
    } else {
        return None;
    };
    Some(TapeEntry { body, ..stamp })
}

/// The stamp of a line, without the body, and the rest of the line.
fn parse_stamp(line: &[u8]) -> Option<(TapeEntry<'_>, &[u8])> {
    let mut rest = line.strip_prefix(b"{\"seq\":")?;
    let seq = take_number(&mut rest)?;
    rest = rest.strip_prefix(b",\"at\":")?;
    let at = take_number(&mut rest)?;
    let mut attempt = None;
    if let Some(after) = rest.strip_prefix(b",\"unit\":\"") {
        let end = memchr::memchr2(b'"', b'\\', after)?;
        if after[end] == b'\\' {
            return None;
        }
        let unit = std::str::from_utf8(&after[..end]).ok()?;
        rest = after[end + 1..].strip_prefix(b",\"try\":")?;
        attempt = Some((
            Cow::Borrowed(unit),
            u32::try_from(take_number(&mut rest)?).ok()?,
        ));
    }
    Some((
        TapeEntry {
            seq: Seq(seq),
            at: Millis(at),
            attempt,
            body: EntryBody::Stdout(b""),
        },
        rest,
    ))
}

/// Decodes the beginning of a JSON string that was cut anywhere.
fn decode_truncated_string(cut: &[u8]) -> String {
    /// Length of the longest escape, a surrogate pair.
    const ESCAPE: usize = 12;
    let whole = match std::str::from_utf8(cut) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&cut[..error.valid_up_to()]).unwrap_or_default(),
    };
    // An escape at the end may be cut.
    let last = whole.len().saturating_sub(ESCAPE);
    let end = memchr::memchr(b'\\', &whole.as_bytes()[last..]).map_or(whole.len(), |at| last + at);
    let even = whole.as_bytes()[..end]
        .iter()
        .rev()
        .take_while(|byte| **byte == b'\\')
        .count()
        % 2;
    let text = &whole[..end - even];
    serde_json::from_str(&format!("\"{text}\"")).unwrap_or_else(|_| text.to_owned())
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let number = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    *rest = &rest[end..];
    Some(number)
}

#[derive(Deserialize)]
struct UnorderedEntry<'a> {
    seq: u64,
    at: u64,
    #[serde(borrow)]
    unit: Option<Cow<'a, str>>,
    #[serde(rename = "try")]
    attempt: Option<u32>,
    #[serde(borrow)]
    out: Option<&'a RawValue>,
    #[serde(borrow, rename = "in")]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    note: Option<&'a RawValue>,
    raw: Option<String>,
    b64: Option<String>,
    err: Option<String>,
}

fn parse_unordered(line: &[u8]) -> Result<TapeEntry<'_>, MalformedEntry> {
    let loose: UnorderedEntry<'_> = serde_json::from_slice(line).map_err(|_| MalformedEntry)?;
    let body = if let Some(raw) = loose.out {
        EntryBody::Stdout(raw.get().as_bytes())
    } else if let Some(raw) = loose.input {
        EntryBody::Stdin(raw.get().as_bytes())
    } else if let Some(raw) = loose.note {
        EntryBody::Note(raw.get().as_bytes())
    } else if let Some(text) = loose.err {
        EntryBody::Stderr(Cow::Owned(text))
    } else if let Some(text) = loose.raw {
        let bytes = loose.b64.and_then(|coded| BASE64.decode(coded).ok());
        EntryBody::StdoutRaw(Cow::Owned(bytes.unwrap_or_else(|| text.into_bytes())))
    } else {
        return Err(MalformedEntry);
    };
    Ok(TapeEntry {
        seq: Seq(loose.seq),
        at: Millis(loose.at),
        attempt: loose.unit.map(|unit| (unit, loose.attempt.unwrap_or(1))),
        body,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body_of(line: &[u8]) -> EntryBody<'_> {
        stdout_body(line, serde_json::from_slice::<&RawValue>(line).is_ok())
    }

    fn written(entry: &TapeEntry<'_>) -> Vec<u8> {
        let mut line = Vec::new();
        entry.write(&mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        line
    }

    #[test]
    fn entry_is_written_stamp_first_with_verbatim_body() {
        let entry = TapeEntry {
            seq: Seq(17),
            at: Millis(183_402),
            attempt: Some(("dbt-all".into(), 1)),
            body: EntryBody::Stdout(br#"{"type":"result",  "odd":"\ud800"}"#),
        };
        let line = written(&entry);
        assert_eq!(
            String::from_utf8_lossy(&line),
            r#"{"seq":17,"at":183402,"unit":"dbt-all","try":1,"out":{"type":"result",  "odd":"\ud800"}}"#
        );
        assert_eq!(TapeEntry::parse(&line), Ok(entry));
    }

    #[test]
    fn entry_with_reordered_keys_is_parsed() {
        let line = br#"{"out":{"a":1},"unit":"u","at":2,"try":3,"seq":1}"#;
        let entry = TapeEntry::parse(line).unwrap();
        assert_eq!(entry.body, EntryBody::Stdout(br#"{"a":1}"#));
        assert_eq!(entry.attempt, Some(("u".into(), 3)));
    }

    #[test]
    fn truncated_entry_is_malformed() {
        let whole = br#"{"seq":1,"at":2,"unit":"u","try":1,"err":"x"}"#;
        for end in 0..whole.len() {
            assert_eq!(
                TapeEntry::parse(&whole[..end]),
                Err(MalformedEntry),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn entry_head_has_the_stamp_and_the_start_of_the_body() {
        let attempt = || Some(("u".into(), 3));
        let out = TapeEntry {
            seq: Seq(1),
            at: Millis(2),
            attempt: attempt(),
            body: EntryBody::Stdout(br#"{"type":"user"}"#),
        };
        let line = written(&out);
        let (head, before) = TapeEntry::parse_head(&line[..line.len() - 9]).unwrap();
        assert_eq!(
            head,
            TapeEntry {
                body: EntryBody::Stdout(br#"{"type""#),
                ..out
            }
        );
        assert_eq!(&line[before..line.len() - 1], br#"{"type":"user"}"#);

        let text = "a\nb\\c\u{1f600}d\u{1}".repeat(2);
        for body in [
            EntryBody::Stderr(text.as_str().into()),
            EntryBody::StdoutRaw(text.as_bytes().into()),
        ] {
            let line = written(&TapeEntry {
                seq: Seq(1),
                at: Millis(2),
                attempt: attempt(),
                body,
            });
            for end in 43..line.len() - 1 {
                let (head, _) = TapeEntry::parse_head(&line[..end]).unwrap();
                let head = head.body.bytes();
                assert!(
                    text.as_bytes()
                        .starts_with(head.strip_suffix(b"\"").unwrap_or(head)),
                    "cut at {end}"
                );
            }
        }
        assert_eq!(
            TapeEntry::parse_head(br#"{"seq":1,"at":2,"unit":"u","#),
            None
        );
    }

    #[test]
    fn stdout_that_is_not_one_line_of_json_is_recorded_as_raw() {
        assert!(matches!(body_of(b"{\"a\":1}"), EntryBody::Stdout(_)));
        for line in [
            &b"not json"[..],
            b"{\"a\":1",
            b"{\"a\":\r1}",
            b"\xff\xfe",
            b"",
        ] {
            assert!(matches!(body_of(line), EntryBody::StdoutRaw(_)), "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn stdout_line_round_trips_byte_for_byte(
            line in prop::collection::vec(any::<u8>(), 0..60),
            unit in ".{0,12}",
            attempt in 1..9_u32,
        ) {
            let body = body_of(&line);
            let entry = TapeEntry { seq: Seq(1), at: Millis(2), attempt: Some((unit.into(), attempt)), body };
            let text = written(&entry);
            prop_assert!(memchr::memchr(b'\n', &text).is_none());
            prop_assert_eq!(TapeEntry::parse(&text), Ok(entry));
        }

        #[test]
        fn parsing_never_panics(line in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = TapeEntry::parse(&line);
        }
    }

    #[test]
    fn fuzzed_entries_never_panic() {
        let tape = include_str!("../../../tests/fixtures/tapes/demo.jsonl");
        let corpus: Vec<Vec<u8>> = tape.lines().map(|line| line.as_bytes().to_vec()).collect();
        ingestdeck_test_support::fuzz::fuzz("tape", &corpus, |line| {
            let head = TapeEntry::parse_head(line);
            if let Ok(entry) = TapeEntry::parse(line) {
                assert!(head.is_none_or(|(head, _)| (head.seq, head.at) == (entry.seq, entry.at)));
                if let EntryBody::Note(note) = entry.body {
                    drop(crate::tape::Note::parse(note));
                }
            }
            drop(crate::tape::Header::parse(line));
        });
    }
}
