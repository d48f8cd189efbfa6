//! The ids of a run in KTX's directories.

use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};

/// The ids of a run in KTX's directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngestJob {
    /// Job id: name of the transcript directory.
    pub id: String,
    /// Sync id: `YYYY-MM-DD-HHMMSS-<job id>`, in UTC.
    pub sync_id: String,
}

impl IngestJob {
    /// Creates the job of a run that starts at `now`.
    pub fn new(now: Timestamp) -> Self {
        let id = format!("local-{}", base36(now.as_millisecond().unsigned_abs()));
        let date = now.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H%M%S");
        Self {
            sync_id: format!("{date}-{id}"),
            id,
        }
    }
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit((number % 36) as u32, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_by_their_time() {
        let job = IngestJob::new("2026-03-17T15:30:01.5Z".parse().unwrap());
        assert_eq!(job.id, "local-mmurqopo");
        assert_eq!(job.sync_id, "2026-03-17-153001-local-mmurqopo");
        assert_eq!(
            (base36(0), base36(35), base36(36)),
            ("0".into(), "z".into(), "10".into())
        );
    }
}
