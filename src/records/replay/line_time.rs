//! The time of a captured line, for lines that are not decoded. It depends on neither files nor a clock.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use ingestdeck_core::decode::line_fields::{field_before_end, line_fields};

/// Returns the line's own `timestamp` in milliseconds since 1970. A line that is cut off has it if it comes before the
/// cut.
pub(super) fn line_timestamp(line: &[u8]) -> Option<i64> {
    parse_timestamp(&line_fields(line).timestamp?)
}

/// Like [`line_timestamp`], from the first and the last bytes of a line.
pub(super) fn timestamp_of_ends(head: &[u8], tail: &[u8]) -> Option<i64> {
    field_before_end(tail, "timestamp")
        .and_then(|text| parse_timestamp(&text))
        .or_else(|| line_timestamp(head))
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
        let stamp = r#""timestamp": "1970-01-01T00:00:01.5Z""#;
        let own = |line: &str| line_timestamp(line.as_bytes());
        assert_eq!(
            own(&format!(r#"{{"type":"user","uuid":"u",{stamp}}}"#)),
            Some(1500)
        );
        assert_eq!(own(&format!(r#"{{{stamp},"message":"cut o"#)), Some(1500));
        assert_eq!(own(&format!(r#"{{"uuid":"u","input":{{{stamp}}}}}"#)), None);
        assert_eq!(own(r#"{"uuid":"u","timestamp":"yesterday"}"#), None);
        assert_eq!(own(r#"{"uuid":"u","timestamp":""#), None);
        let long = format!(r#"{{"message":"{}",{stamp},"z":[{{}}]}}"#, "x".repeat(9000));
        let ends = |line: &str| {
            timestamp_of_ends(
                &line.as_bytes()[..1000],
                &line.as_bytes()[line.len() - 100..],
            )
        };
        assert_eq!(ends(&long), Some(1500));
        let long = format!(r#"{{{stamp},"message":"{}"}}"#, "x".repeat(9000));
        assert_eq!(ends(&long), Some(1500));
        let long = format!(r#"{{"message":"{}","z":[{{{stamp}}}]}}"#, "x".repeat(9000));
        assert_eq!(ends(&long), None);
    }
}
