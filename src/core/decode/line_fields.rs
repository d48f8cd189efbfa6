//! Reads the fields that connect the lines of a transcript, from a whole line or from one of its ends. The spelling of
//! the JSON does not matter. It must not know the meaning of bodies.

use std::borrow::Cow;

use super::json_scanner::{JsonScanner, ScanResult};

/// The fields of a line that connect it to other lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineFields<'a> {
    /// True for the header of a tape, whose first field is `tape`.
    pub is_tape_header: bool,
    /// The first `type`, which counts if there are several.
    pub kind: Option<Cow<'a, str>>,
    pub subtype: Option<Cow<'a, str>>,
    pub timestamp: Option<Cow<'a, str>>,
    pub uuid: Option<Cow<'a, str>>,
    /// `parentUuid`: the line that it follows.
    pub parent: Option<Cow<'a, str>>,
    /// `logicalParentUuid`: the line before a compaction, which has no other parent.
    pub logical_parent: Option<Cow<'a, str>>,
    /// True for a line of a sub-agent; `None` if the line does not state it.
    pub is_sidechain: Option<bool>,
    /// True if it has `session_id`.
    pub is_stream: bool,
    /// True if it has `sessionId`.
    pub is_session_file: bool,
    /// The value of `sessionId`.
    pub session: Option<Cow<'a, str>>,
}

/// Reads the fields of a line. A line that is cut off or damaged has those before the damage.
pub fn line_fields(line: &[u8]) -> LineFields<'_> {
    let mut fields = LineFields::default();
    let (mut scan, mut is_first) = (JsonScanner::new(line), true);
    // The fields before an error count.
    let _ = scan.object(|scan, key| {
        fields.is_tape_header |= std::mem::take(&mut is_first) && key == b"tape";
        read_field(&mut fields, scan, key)
    });
    fields
}

fn read_field<'a>(
    fields: &mut LineFields<'a>,
    scan: &mut JsonScanner<'a>,
    key: &[u8],
) -> ScanResult<()> {
    match key {
        b"session_id" => fields.is_stream = true,
        b"sessionId" => fields.is_session_file = true,
        _ => {}
    }
    match key {
        b"type" if fields.kind.is_none() => fields.kind = scan.non_empty_text()?,
        b"sessionId" => fields.session = scan.non_empty_text()?,
        b"subtype" => fields.subtype = scan.non_empty_text()?,
        b"timestamp" => fields.timestamp = scan.non_empty_text()?,
        b"uuid" => fields.uuid = scan.non_empty_text()?,
        b"parentUuid" => fields.parent = scan.non_empty_text()?,
        b"logicalParentUuid" => fields.logical_parent = scan.non_empty_text()?,
        b"isSidechain" => fields.is_sidechain = scan.boolean()?,
        _ => scan.skip()?,
    }
    Ok(())
}

/// Length in bytes of the JSON value with which the text begins; `None` if there is no whole value. The content of
/// strings is not checked.
pub fn value_length(text: &[u8]) -> Option<usize> {
    JsonScanner::new(text).skipped_length()
}

/// Reads the text of the last field `name` of an object, from the end of its JSON. `None` if the field begins before
/// `tail`, is not a string, or is part of another field.
pub fn field_before_end<'a>(tail: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let (mut at, mut depth, mut is_key) = (tail.len(), 0_usize, false);
    let mut value: Option<&[u8]> = None;
    while at > 0 {
        at -= 1;
        match tail[at] {
            b'}' | b']' => depth += 1,
            b'{' | b'[' => {
                depth = depth.checked_sub(1).filter(|depth| *depth > 0)?;
                (value, is_key) = (None, false);
            }
            b':' => is_key = true,
            b',' => (value, is_key) = (None, false),
            b'"' => {
                let start = string_start(tail, at)?;
                let quoted = &tail[start..=at];
                at = start;
                if depth != 1 {
                    continue;
                }
                if !std::mem::take(&mut is_key) {
                    value = Some(quoted);
                } else if text_of(quoted).as_deref() == Some(name) {
                    return text_of(value?);
                } else {
                    value = None;
                }
            }
            _ => {}
        }
    }
    None
}

/// Where the string begins whose closing quote is at `end`.
fn string_start(text: &[u8], end: usize) -> Option<usize> {
    let mut before = end;
    loop {
        let quote = memchr::memrchr(b'"', &text[..before])?;
        let backslashes = text[..quote]
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\')
            .count();
        if backslashes % 2 == 0 {
            // The backslashes may begin before the text.
            return (backslashes < quote || quote == 0).then_some(quote);
        }
        before = quote;
    }
}

fn text_of(quoted: &[u8]) -> Option<Cow<'_, str>> {
    JsonScanner::new(quoted).text().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_every_spelling() {
        let expected = LineFields {
            is_tape_header: false,
            kind: Some("user".into()),
            subtype: None,
            timestamp: Some("t".into()),
            uuid: None,
            parent: Some("p".into()),
            logical_parent: None,
            is_sidechain: Some(true),
            is_stream: false,
            is_session_file: true,
            session: Some("s".into()),
        };
        for line in [
            r#"{"type":"user","isSidechain":true,"parentUuid":"p","timestamp":"t","sessionId":"s"}"#,
            "{ \"type\" :\t\"user\", \"isSidechain\" : true,\r\n \"parentUuid\":\"p\", \"timestamp\": \"t\", \"sessionId\" : \"s\" }",
            r#"{"\u0074ype":"user","x":{"isSidechain":false},"isSidechain":true,"parentUuid":"p","timestamp":"t","sessionId":"s","cut":"#,
        ] {
            assert_eq!(line_fields(line.as_bytes()), expected, "{line}");
        }
        assert_eq!(line_fields(b"[1]"), LineFields::default());
    }

    #[test]
    fn last_field_is_read_from_the_end() {
        let time = |tail: &str| field_before_end(tail.as_bytes(), "timestamp").map(Cow::into_owned);
        let found = Some("t\"x".to_owned());
        for tail in [
            r#"ut":{"a":"b"},"timestamp":"t\"x"}"#,
            r#"cut \" off","timestamp" : "t\"x" , "more": {"timestamp":"no","y":[1,{"z":"\\"}]}, "b":null} "#,
            r#"","\u0074imestamp":"t\"x","uuid":"a:b,{"}"#,
        ] {
            assert_eq!(time(tail), found, "{tail}");
        }
        for tail in [
            r#"{"input":{"timestamp":"t"}}"#,
            r#""timestamp":7}"#,
            r#"timestamp":"t"}"#,
            r#""x":"\"timestamp\":\"t\""}"#,
            "",
        ] {
            assert_eq!(time(tail), None, "{tail}");
        }
    }

    #[test]
    fn length_of_the_first_value_is_found() {
        for (text, length) in [
            ("{\"a\":[1]}{\"b\":2}", Some(9)),
            ("  7 ", Some(3)),
            ("{\"a\":", None),
            ("", None),
        ] {
            assert_eq!(value_length(text.as_bytes()), length, "{text}");
        }
    }
}
