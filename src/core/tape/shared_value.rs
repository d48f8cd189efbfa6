//! Long values that each attempt of a run repeats: the list of the tools and the system prompt.
//!
//! A tape contains each distinct one once. Later entries refer to the entry that contains it, as
//! `{"same_as":14,"sha256":"…"}` in place of the value. A reader replaces the reference if the value has the digest.

use std::{collections::HashMap, ops::Range};

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{EntryBody, Seq, TapeEntry};

/// Shorter values, in bytes, are repeated.
const MIN_BYTES: usize = 512;

/// The beginning of a reference.
const REFERENCE: &str = r#"{"same_as":"#;

/// Where a value can be shared: the beginning of the body, and the text before the value.
const NOTE: (&str, &str) = (r#"{"kind":"attempt_started""#, r#","system_prompt":"#);
const TOOL_LIST: (&str, &str) = (r#"{"type":"control_response""#, r#""result":{"tools":"#);

/// In place of a value that an earlier entry contains.
#[derive(Deserialize)]
struct Reference<'a> {
    same_as: u64,
    sha256: &'a str,
}

/// The values that a tape contains so far, by digest.
#[derive(Debug, Default)]
pub struct SharedValues(HashMap<String, Seq>);

impl SharedValues {
    /// The body to write as entry `seq`, if a value in it is replaced by a reference.
    pub fn shorten(&mut self, seq: Seq, body: &EntryBody<'_>) -> Option<Vec<u8>> {
        let span = value_span(body)?;
        let value = &body.bytes()[span.clone()];
        if value.len() < MIN_BYTES {
            return None;
        }
        let digest = digest(value);
        match self.0.get(&digest) {
            Some(first) => {
                let reference = format!(r#"{REFERENCE}{},"sha256":"{digest}"}}"#, first.0);
                Some(splice(body.bytes(), span, reference.as_bytes()))
            }
            None => {
                self.0.insert(digest, seq);
                None
            }
        }
    }
}

/// The values of the lines of a tape that have been read in order.
#[derive(Debug, Default)]
pub struct EarlierValues(HashMap<Seq, Vec<u8>>);

impl EarlierValues {
    /// The line with the value that an earlier line contains, without a newline; `None` if it is complete.
    pub fn complete(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let entry = TapeEntry::parse(line).ok()?;
        if let Some(first) = reference(&entry.body) {
            let json = resolve(&entry.body, self.0.get(&first)?)?;
            let body = with_json(&entry.body, &json);
            let mut complete = Vec::new();
            TapeEntry {
                body,
                ..entry.clone()
            }
            .write(&mut complete);
            complete.pop();
            return Some(complete);
        }
        if value_span(&entry.body).is_some_and(|span| span.len() >= MIN_BYTES) {
            self.0.insert(entry.seq, entry.body.bytes().to_vec());
        }
        None
    }
}

/// The entry that contains a value of this body; `None` if the body is complete.
pub(crate) fn reference(body: &EntryBody<'_>) -> Option<Seq> {
    reference_span(body).map(|(_, reference)| Seq(reference.same_as))
}

/// The complete body, with the value that the body `earlier` contains. `None` if it does not contain it.
pub(crate) fn resolve(body: &EntryBody<'_>, earlier: &[u8]) -> Option<Vec<u8>> {
    let (span, reference) = reference_span(body)?;
    let value = &earlier[value_span(&with_json(body, earlier))?];
    (digest(value) == reference.sha256).then(|| splice(body.bytes(), span, value))
}

/// A body of the same kind, which must be one that can share a value.
pub fn with_json<'a>(body: &EntryBody<'_>, json: &'a [u8]) -> EntryBody<'a> {
    match body {
        EntryBody::Note(_) => EntryBody::Note(json),
        _ => EntryBody::Stdin(json),
    }
}

fn reference_span<'a>(body: &'a EntryBody<'_>) -> Option<(Range<usize>, Reference<'a>)> {
    let span = value_span(body)?;
    let value = &body.bytes()[span.clone()];
    value.starts_with(REFERENCE.as_bytes()).then_some(())?;
    Some((span, serde_json::from_slice(value).ok()?))
}

/// Where the value that can be shared is in the body.
fn value_span(body: &EntryBody<'_>) -> Option<Range<usize>> {
    let (json, (beginning, key)) = match body {
        EntryBody::Note(json) => (*json, NOTE),
        EntryBody::Stdin(json) => (*json, TOOL_LIST),
        EntryBody::Stdout(_) | EntryBody::StdoutRaw(_) | EntryBody::Stderr(_) => return None,
    };
    json.starts_with(beginning.as_bytes()).then_some(())?;
    // A text of a model cannot contain the key: its quotes are escaped.
    let start = memchr::memmem::find(json, key.as_bytes())? + key.len();
    let value = serde_json::Deserializer::from_slice(&json[start..])
        .into_iter::<&RawValue>()
        .next()?
        .ok()?;
    Some(start..start + value.get().len())
}

fn splice(body: &[u8], span: Range<usize>, value: &[u8]) -> Vec<u8> {
    [&body[..span.start], value, &body[span.end..]].concat()
}

fn digest(value: &[u8]) -> String {
    Sha256::digest(value)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Millis;

    fn tool_list(id: u32, description: &str) -> Vec<u8> {
        let tools = format!(r#"[{{"name":"wiki_write","description":"{description}"}}]"#);
        format!(
            r#"{{"type":"control_response","response":{{"request_id":"r{id}","response":{{"mcp_response":{{"id":{id},"result":{{"tools":{tools}}}}}}}}}}}"#
        )
        .into_bytes()
    }

    fn started(pid: u32, prompt: &str) -> Vec<u8> {
        format!(r#"{{"kind":"attempt_started","argv":[],"system_prompt":{prompt:?},"prompt":"p","pid":{pid}}}"#)
            .into_bytes()
    }

    #[test]
    fn repeated_values_are_written_once_and_resolved() {
        let long = "a \\\"quoted\\\" text ".repeat(60);
        let mut values = SharedValues::default();
        let bodies: Vec<Vec<u8>> = (0..3)
            .flat_map(|n| [started(n, &long), tool_list(n, &long)])
            .collect();
        fn entry(at: usize, bytes: &[u8]) -> EntryBody<'_> {
            if at.is_multiple_of(2) {
                EntryBody::Note(bytes)
            } else {
                EntryBody::Stdin(bytes)
            }
        }
        for (at, bytes) in bodies.iter().enumerate() {
            let body = entry(at, bytes);
            let short = values.shorten(Seq(at as u64), &body);
            assert_eq!(short.is_some(), at > 1, "{at}");
            let Some(short) = short else { continue };
            assert!(short.len() < 300, "{}", String::from_utf8_lossy(&short));
            let short = entry(at, &short);
            let first = reference(&short).unwrap();
            assert_eq!(first, Seq((at % 2) as u64));
            assert_eq!(resolve(&short, &bodies[at % 2]).as_deref(), Some(&**bytes));
            // Another value, or none, is not taken for it.
            for other in [started(9, "other"), tool_list(9, "other"), b"{}".to_vec()] {
                assert_eq!(resolve(&short, &other), None);
            }
        }
    }

    #[test]
    fn lines_of_a_tape_are_completed() {
        let long = "text ".repeat(200);
        let mut values = SharedValues::default();
        let mut known = EarlierValues::default();
        for at in 0..3 {
            let body = started(u32::try_from(at).unwrap(), &long);
            let line = |json: &[u8]| {
                let mut line = Vec::new();
                let attempt = Some(("docs".into(), 1));
                TapeEntry {
                    seq: Seq(at),
                    at: Millis(7),
                    attempt,
                    body: EntryBody::Note(json),
                }
                .write(&mut line);
                line.pop();
                line
            };
            let short = values.shorten(Seq(at), &EntryBody::Note(&body));
            let written = line(short.as_deref().unwrap_or(&body));
            assert_eq!(known.complete(&written), short.map(|_| line(&body)));
        }
        let lost = br#"{"seq":9,"at":1,"unit":"u","try":1,"note":{"kind":"attempt_started","system_prompt":{"same_as":8,"sha256":"00"}}}"#;
        assert_eq!(known.complete(lost), None);
        assert_eq!(known.complete(b"torn"), None);
    }

    #[test]
    fn short_and_foreign_values_are_left_alone() {
        let mut values = SharedValues::default();
        let long = "x".repeat(600);
        let call = format!(
            r#"{{"type":"control_response","response":{{"text":"\"result\":{{\"tools\":[{long}]"}}}}"#
        );
        let broken = format!(r#"{{"kind":"attempt_started","system_prompt":"{long}"#);
        for _ in 0..2 {
            for body in [
                EntryBody::Note(&started(1, "short")),
                EntryBody::Stdin(&tool_list(1, "short")),
                EntryBody::Stdout(&tool_list(1, &long)),
                EntryBody::Stdin(call.as_bytes()),
                EntryBody::Note(broken.as_bytes()),
            ] {
                assert_eq!(values.shorten(Seq(0), &body), None);
                assert_eq!(reference(&body), None);
            }
        }
    }
}
