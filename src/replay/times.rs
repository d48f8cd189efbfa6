//! The time of a captured line, found without parsing the line. Knows no files and no clock.

use std::{ops::Range, sync::LazyLock};

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

/// Where the time stands in nearly every line: near an end, or in the middle, between a tool's result and its copy.
const WINDOW: usize = 512;

/// The line's own `timestamp` in milliseconds since 1970, in lines that nobody decodes.
pub(super) fn own(line: &[u8]) -> Option<i64> {
    if line.len() > 8 * WINDOW {
        let middle = line.len() / 2;
        let windows = [0..WINDOW, middle - WINDOW..middle + WINDOW, line.len() - WINDOW..line.len()];
        if let Some(time) = windows.into_iter().find_map(|window| within(line, window)) {
            return Some(time);
        }
    }
    within(line, 0..line.len())
}

/// The first time whose key starts in `window`.
fn within(line: &[u8], window: Range<usize>) -> Option<i64> {
    let start = window.start;
    KEY.find_iter(&line[window]).find_map(|found| {
        let key = start + found;
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
        for (before, after) in [(0, 9000), (9000, 0), (5000, 5000), (2000, 7000), (7000, 2000)] {
            let (before, after) = ("x".repeat(before), "y".repeat(after));
            let line = format!(r#"{{"message":"{before}","uuid":"u",{stamp},"tool_use_result":"{after}"}}"#);
            assert_eq!(own_of(line), Some(1500), "{} before, {} after", before.len(), after.len());
        }
        assert_eq!(own_of(r#"{"uuid":"u","timestamp":"yesterday"}"#.into()), None);
        assert_eq!(own_of(r#"{"uuid":"u","timestamp":""#.into()), None);
    }
}
