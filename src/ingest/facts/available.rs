//! What the tables of a connection can be checked against, in the words of `plan`, `doctor` and the prompt.

use std::time::Duration;

use jiff::{Timestamp, civil::Date, tz::TimeZone};

use ingestdeck_core::diagnostic::Problem;

/// What the tables and columns of a connection can be checked against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableFacts {
    pub scan: Option<StoredScanDate>,
    pub has_dbt_catalog: bool,
    pub has_dbt_manifest: bool,
    /// SQL dialect of live queries; `None` if the database cannot be queried.
    pub dialect: Option<&'static str>,
    /// Why the database cannot be queried, if a person can change that.
    pub refusal: Option<Problem>,
}

impl AvailableFacts {
    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.parts().is_empty()
    }

    fn parts(&self) -> Vec<String> {
        let scan = self.scan.map(|scan| match scan.day() {
            Some(day) => format!("a scan of {day}"),
            None => "a scan".to_owned(),
        });
        let of_dbt = |is_there: bool, what: &str| is_there.then(|| format!("the {what} of dbt"));
        let queries = self
            .dialect
            .map(|dialect| format!("queries in {dialect} SQL"));
        let parts = [
            scan,
            of_dbt(self.has_dbt_catalog, "catalogue"),
            of_dbt(self.has_dbt_manifest, "manifest"),
            queries,
        ];
        parts.into_iter().flatten().collect()
    }

    /// The sentence about it in a prompt. It has dates instead of ages, so that a prompt is the same on another day.
    pub(crate) fn prompt_line(&self) -> String {
        let parts = self.parts();
        match parts.is_empty() {
            true => "Nothing can be checked against this database: its tables and columns are unverified unless a raw file \
                     contains them."
                .to_owned(),
            false => format!("Its tables and columns can be checked against {}.", parts.join(", ")),
        }
    }

    /// The problem that there is nothing to check `connection` against.
    pub fn unchecked_problem(&self, connection: &str) -> Option<Problem> {
        self.is_empty().then(|| {
            Problem::new(format!(
                "nothing can be checked against `{connection}`: it has no scan, no catalogue of dbt, and no connection that may be \
                 used"
            ))
            .with_help(format!(
                "run `ingestdeck scan {connection}`, or `dbt docs generate`, or allow the connection in `warehouse.allow` of your \
                 settings (`ingestdeck doctor` prints the entry)"
            ))
        })
    }
}

/// When a stored scan read the database; `None` if its files do not contain that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredScanDate(pub Option<Timestamp>);

impl StoredScanDate {
    /// The day in UTC.
    fn day(self) -> Option<Date> {
        Some(self.0?.to_zoned(TimeZone::UTC).date())
    }

    /// The time from the scan to `now`; zero for a scan of the future.
    pub fn age(self, now: Timestamp) -> Option<Duration> {
        Some(Duration::try_from(now.duration_since(self.0?)).unwrap_or_default())
    }

    /// The problem with the scan of `connection` if it is older than `max_age`, or of an unknown age.
    pub fn outdated_problem(
        self,
        connection: &str,
        max_age: Duration,
        now: Timestamp,
    ) -> Option<Problem> {
        let when = match self.age(now) {
            Some(age) if age <= max_age => return None,
            Some(_) => format!("from {}", self.day()?),
            None => "of an unknown date".to_owned(),
        };
        let text = format!(
            "the scan of {connection} is {when}, so a table that it lacks may exist (warehouse.max_scan_age)"
        );
        Some(Problem::new(text).with_help(format!("run `ingestdeck scan {connection}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_states_dates_and_what_cannot_be_checked() {
        let scanned = AvailableFacts {
            scan: Some(StoredScanDate("2026-03-01T15:30:00Z".parse().ok())),
            has_dbt_catalog: true,
            dialect: Some("PostgreSQL"),
            ..AvailableFacts::default()
        };
        assert_eq!(
            scanned.prompt_line(),
            "Its tables and columns can be checked against a scan of 2026-03-01, the catalogue of dbt, queries in PostgreSQL SQL."
        );
        assert_eq!(
            AvailableFacts::default().prompt_line(),
            "Nothing can be checked against this database: its tables and columns are unverified unless a raw file contains them."
        );
    }

    #[test]
    fn only_a_young_scan_is_no_problem() {
        let now: Timestamp = "2026-03-10T00:00:00Z".parse().unwrap();
        let problem = |scan: Option<&str>| {
            let scan = StoredScanDate(scan.map(|date| date.parse().unwrap()));
            let week = Duration::from_secs(7 * 24 * 60 * 60);
            scan.outdated_problem("wh", week, now)
                .map(|problem| problem.to_string())
        };
        assert_eq!(problem(Some("2026-03-03T00:00:00Z")), None);
        assert_eq!(problem(Some("2026-03-12T00:00:00Z")), None);
        assert_eq!(
            problem(Some("2026-03-02T23:59:59Z")).unwrap(),
            "the scan of wh is from 2026-03-02, so a table that it lacks may exist (warehouse.max_scan_age)"
        );
        assert!(problem(None).unwrap().contains("of an unknown date"));
    }
}
