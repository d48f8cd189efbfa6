//! `--since` and `--until`: a moment as a date, as a time, or as a time ago.

use std::time::SystemTime;

use jiff::{Span, Timestamp, civil, tz::TimeZone};

use super::{args::PeriodArgs, exit::CliError};

impl PeriodArgs {
    /// The first moment and the first one after the period, in milliseconds since 1970.
    ///
    /// # Errors
    /// If a time cannot be parsed, or the period ends before it begins.
    pub(super) fn resolve(&self) -> Result<(Option<i64>, Option<i64>), CliError> {
        let now = Timestamp::now();
        let moment = |flag: &str, given: &Option<String>| {
            let parse =
                |given: &String| parse_moment(given, now).ok_or_else(|| invalid(flag, given));
            given.as_ref().map(parse).transpose()
        };
        let (since, until) = (
            moment("--since", &self.since)?,
            moment("--until", &self.until)?,
        );
        if since
            .zip(until)
            .is_some_and(|(since, until)| since >= until)
        {
            return Err(CliError::usage("--until is not later than --since")
                .with_help("exchange the two times"));
        }
        Ok((since, until))
    }
}

fn invalid(flag: &str, given: &str) -> CliError {
    CliError::usage(format!("invalid {flag} `{given}`"))
        .with_help("write a date (2026-01-31), a time (2026-01-31T12:00Z) or a time ago (12h, 7d)")
}

/// Times without a zone are in UTC, as everywhere on tapes.
pub(super) fn parse_moment(given: &str, now: Timestamp) -> Option<i64> {
    let given = given.trim();
    let in_utc = |date: civil::DateTime| {
        date.to_zoned(TimeZone::UTC)
            .ok()
            .map(|zoned| zoned.timestamp())
    };
    let ago = || {
        let span: Span = given.parse().ok()?;
        (!span.is_negative())
            .then(|| now.to_zoned(TimeZone::UTC).checked_sub(span).ok())
            .flatten()
    };
    let moment = given
        .parse::<Timestamp>()
        .ok()
        .or_else(|| given.parse::<civil::DateTime>().ok().and_then(in_utc))
        .or_else(|| {
            given
                .parse::<civil::Date>()
                .ok()
                .and_then(|date| in_utc(date.to_datetime(civil::Time::midnight())))
        })
        .or_else(|| ago().map(|zoned| zoned.timestamp()))?;
    Some(moment.as_millisecond())
}

/// Time since `then` in its largest unit; a moment in the future counts as now.
pub(super) fn age(now: Timestamp, then: SystemTime) -> String {
    let since = SystemTime::from(now)
        .duration_since(then)
        .unwrap_or_default()
        .as_secs();
    match since {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{}m ago", since / 60),
        3600..86_400 => format!("{}h ago", since / 3600),
        _ => format!("{}d ago", since / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_times_or_ago() {
        let now: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
        let shown = |given: &str| {
            parse_moment(given, now).map(|at| Timestamp::from_millisecond(at).unwrap().to_string())
        };
        for (given, expected) in [
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            ("2026-01-31T12:00Z", "2026-01-31T12:00:00Z"),
            ("2026-01-31T12:00:05+01:00", "2026-01-31T11:00:05Z"),
            ("2026-01-31T12:00", "2026-01-31T12:00:00Z"),
            ("12h", "2026-01-31T12:00:00Z"),
            ("7d", "2026-01-25T00:00:00Z"),
            ("2 weeks", "2026-01-18T00:00:00Z"),
        ] {
            assert_eq!(shown(given).as_deref(), Some(expected), "{given}");
        }
        for given in [
            "",
            "yesterday",
            "-7d",
            "2026-13-01",
            "99999999y",
            "2026-02-30",
            "\u{1b}[2J",
        ] {
            assert_eq!(shown(given), None, "{given}");
        }
    }

    #[test]
    fn reversed_period_is_refused() {
        let period = |since: &str, until: &str| PeriodArgs {
            since: Some(since.into()),
            until: Some(until.into()),
        };
        assert!(period("2026-01-02", "2026-01-01").resolve().is_err());
        assert!(period("2026-01-01", "2026-01-01").resolve().is_err());
        assert!(period("2026-01-01", "2026-01-02").resolve().is_ok());
        assert!(
            period("x", "2026-01-02")
                .resolve()
                .unwrap_err()
                .to_string()
                .contains("invalid --since `x`")
        );
    }

    #[test]
    fn age_is_given_in_its_largest_unit() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ages = [0, 59, 60, 3599, 3600, 90_000, -5].map(|ago: i64| {
            age(
                now,
                SystemTime::UNIX_EPOCH
                    + std::time::Duration::from_secs((1_000_000 - ago).unsigned_abs()),
            )
        });
        assert_eq!(
            ages,
            [
                "just now", "just now", "1m ago", "59m ago", "1h ago", "1d ago", "just now"
            ]
        );
    }
}
