//! The time of a captured line, found without parsing the line. Knows no files and no clock.

use std::sync::LazyLock;

use jiff::Timestamp;
use memchr::memmem::Finder;

static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"timestamp\":\""));

/// Keys that stand next to a line's own `timestamp`, and not next to one inside a tool's input or result.
static SIBLINGS: LazyLock<[Finder<'static>; 5]> = LazyLock::new(|| {
    [&b"\"uuid\":"[..], b"\"session_id\":", b"\"sessionId\":", b"\"tool_use_result\":", b"\"toolUseResult\":"]
        .map(Finder::new)
});

/// How far a sibling may be away. Ids and times are short.
const NEAR: usize = 96;

/// The line's own `timestamp` in milliseconds since 1970, in lines that nobody decodes.
pub(super) fn own(line: &[u8]) -> Option<i64> {
    KEY.find_iter(line).find_map(|key| {
        let text = &line[key + KEY.needle().len()..];
        let text = &text[..memchr::memchr(b'"', &text[..text.len().min(40)])?];
        let around = &line[key.saturating_sub(NEAR)..line.len().min(key + text.len() + NEAR)];
        SIBLINGS.iter().any(|sibling| sibling.find(around).is_some()).then_some(())?;
        read(std::str::from_utf8(text).ok()?)
    })
}

/// A time in milliseconds since 1970.
pub(super) fn read(text: &str) -> Option<i64> {
    text.parse().ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_of_the_line_itself_counts() {
        let stamp = r#""timestamp":"1970-01-01T00:00:01.5Z""#;
        let own_of = |line: String| own(line.as_bytes());
        assert_eq!(own_of(format!(r#"{{"type":"user","uuid":"u",{stamp}}}"#)), Some(1500));
        assert_eq!(own_of(format!(r#"{{{stamp},"sessionId":"s"}}"#)), Some(1500));
        let pad = "x".repeat(200);
        let inside = format!(r#"{{"input":{{{stamp}}},"pad":"{pad}","uuid":"u"}}"#);
        assert_eq!(own_of(inside), None);
        let both = format!(
            r#"{{"input":{{"timestamp":"1970-01-01T00:00:09Z"}},"pad":"{pad}",{stamp},"tool_use_result":"{pad}"}}"#
        );
        assert_eq!(own_of(both), Some(1500));
        assert_eq!(own_of(r#"{"uuid":"u","timestamp":"yesterday"}"#.into()), None);
        assert_eq!(own_of(r#"{"uuid":"u","timestamp":""#.into()), None);
    }
}
