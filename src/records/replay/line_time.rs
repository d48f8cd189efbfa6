//! Finds the time of a captured line without parsing the line. It depends on neither files nor a clock.

use std::{ops::Range, sync::LazyLock};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use memchr::memmem::Finder;

static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"timestamp\":\""));

/// Keys next to a line's own `timestamp` that do not occur next to one inside a tool's input or result.
static SIBLING_KEYS: LazyLock<[Finder<'static>; 5]> = LazyLock::new(|| {
    [
        &b"\"uuid\":"[..],
        b"\"session_id\":",
        b"\"sessionId\":",
        b"\"tool_use_result\":",
        b"\"toolUseResult\":",
    ]
    .map(Finder::new)
});

/// Maximum distance of a sibling key. Ids and times are short.
const MAX_SIBLING_DISTANCE: usize = 96;

/// Size of the windows with the time in nearly every line: near an end, or in the middle, between a tool's result and
/// its copy.
const WINDOW: usize = 512;

/// Returns the line's own `timestamp` in milliseconds since 1970, for lines that are not decoded.
pub(super) fn line_timestamp(line: &[u8]) -> Option<i64> {
    if line.len() > 8 * WINDOW {
        let middle = line.len() / 2;
        let windows = [
            0..WINDOW,
            middle - WINDOW..middle + WINDOW,
            line.len() - WINDOW..line.len(),
        ];
        if let Some(time) = windows
            .into_iter()
            .find_map(|window| timestamp_in(line, window))
        {
            return Some(time);
        }
    }
    timestamp_in(line, 0..line.len())
}

/// Returns the first time whose key starts in `window`.
fn timestamp_in(line: &[u8], window: Range<usize>) -> Option<i64> {
    let start = window.start;
    KEY.find_iter(&line[window]).find_map(|found| {
        let key = start + found;
        let text = &line[key + KEY.needle().len()..];
        let text = &text[..memchr::memchr(b'"', &text[..text.len().min(40)])?];
        let around = &line[key.saturating_sub(MAX_SIBLING_DISTANCE)
            ..line.len().min(key + text.len() + MAX_SIBLING_DISTANCE)];
        SIBLING_KEYS
            .iter()
            .any(|sibling| sibling.find(around).is_some())
            .then_some(())?;
        parse_timestamp(std::str::from_utf8(text).ok()?)
    })
}

/// Parses a time to milliseconds since 1970.
pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    parse_common_form(text.as_bytes())
        .or_else(|| text.parse().ok())
        .map(Timestamp::as_millisecond)
}

/// Parses `2026-01-31T23:59:59.250Z`, the usual form. Every line has one, and the general parser is slower.
fn parse_common_form(text: &[u8]) -> Option<Timestamp> {
    let [
        y0,
        y1,
        y2,
        y3,
        b'-',
        m0,
        m1,
        b'-',
        d0,
        d1,
        b'T',
        h0,
        h1,
        b':',
        n0,
        n1,
        b':',
        s0,
        s1,
        b'.',
        f0,
        f1,
        f2,
        b'Z',
    ] = text
    else {
        return None;
    };
    let number = |digits: &[&u8]| {
        digits.iter().try_fold(0_i16, |sum, digit| {
            digit
                .is_ascii_digit()
                .then(|| sum * 10 + i16::from(**digit - b'0'))
        })
    };
    let small = |tens, ones| number(&[tens, ones]).and_then(|number| i8::try_from(number).ok());
    let (year, nanoseconds) = (
        number(&[y0, y1, y2, y3])?,
        i32::from(number(&[f0, f1, f2])?) * 1_000_000,
    );
    let (month, day) = (small(m0, m1)?, small(d0, d1)?);
    let (hour, minute, second) = (small(h0, h1)?, small(n0, n1)?, small(s0, s1)?);
    let time = DateTime::new(year, month, day, hour, minute, second, nanoseconds).ok()?;
    TimeZone::UTC.to_timestamp(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_form_parses_like_any_other() {
        for text in [
            "2026-01-31T23:59:59.250Z",
            "1970-01-01T00:00:00.000Z",
            "2024-02-29T12:30:00.999Z",
            "2023-02-29T12:30:00.999Z",
            "2026-13-01T00:00:00.000Z",
            "2026-01-01T24:00:00.000Z",
            "2026-01-01T00:00:60.000Z",
            "2026-01-01T0x:00:00.000Z",
            "2026-01-01T00:00:00.25Z",
            "2026-01-01T00:00:00+01:00",
            "",
        ] {
            let parsed = text.parse().ok().map(Timestamp::as_millisecond);
            assert_eq!(parse_timestamp(text), parsed, "{text}");
        }
    }

    #[test]
    fn only_the_time_of_the_line_itself_counts() {
        let stamp = r#""timestamp":"1970-01-01T00:00:01.5Z""#;
        let own_of = |line: String| line_timestamp(line.as_bytes());
        assert_eq!(
            own_of(format!(r#"{{"type":"user","uuid":"u",{stamp}}}"#)),
            Some(1500)
        );
        assert_eq!(
            own_of(format!(r#"{{{stamp},"sessionId":"s"}}"#)),
            Some(1500)
        );
        let pad = "x".repeat(200);
        let inside = format!(r#"{{"input":{{{stamp}}},"pad":"{pad}","uuid":"u"}}"#);
        assert_eq!(own_of(inside), None);
        let both = format!(
            r#"{{"input":{{"timestamp":"1970-01-01T00:00:09Z"}},"pad":"{pad}",{stamp},"tool_use_result":"{pad}"}}"#
        );
        assert_eq!(own_of(both), Some(1500));
        for (before, after) in [
            (0, 9000),
            (9000, 0),
            (5000, 5000),
            (2000, 7000),
            (7000, 2000),
        ] {
            let (before, after) = ("x".repeat(before), "y".repeat(after));
            let line = format!(
                r#"{{"message":"{before}","uuid":"u",{stamp},"tool_use_result":"{after}"}}"#
            );
            assert_eq!(
                own_of(line),
                Some(1500),
                "{} before, {} after",
                before.len(),
                after.len()
            );
        }
        assert_eq!(
            own_of(r#"{"uuid":"u","timestamp":"yesterday"}"#.into()),
            None
        );
        assert_eq!(own_of(r#"{"uuid":"u","timestamp":""#.into()), None);
    }
}
