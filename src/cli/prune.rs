//! `runs prune`: frees disk space without deleting runs that incremental planning needs.

use std::io::Write as _;

use jiff::{Timestamp, tz::TimeZone};
use serde_json::json;

use super::{
    args::{GlobalArgs, PruneArgs, Ui},
    exit::{self, CliError, Exit},
    output, playback_output, runs,
};
use ingestdeck_agent::private_dir;
use ingestdeck_core::{
    diagnostic::Problem,
    text::{self, pluralize},
};
use ingestdeck_engine::{continued_runs::ContinuedRuns, recorded_tapes};
use ingestdeck_records::store::retention::{RetentionDecision, RetentionPolicy};

/// Removes the records that `args` selects, and prints each.
///
/// # Errors
/// If the age is invalid, the index is not up to date, or a record cannot be removed.
pub(super) fn prune(global: &GlobalArgs, args: &PruneArgs) -> Result<Exit, CliError> {
    if !args.dry_run {
        // Temporary directories of processes that were killed.
        private_dir::remove_abandoned_dirs();
    }
    let store = &runs::resolve_store(global)?;
    let before = args
        .older_than
        .map(|age| cutoff_ms(Timestamp::now(), age))
        .transpose()?;
    if store.list()?.is_empty() {
        return if global.ui == Ui::Json {
            Ok(Exit::Ok)
        } else {
            runs::print_no_runs().map(|()| Exit::Ok)
        };
    }
    // The index is required to determine which runs are needed.
    let (db, left_out) = recorded_tapes::open_updated_index(store)?;
    left_out
        .iter()
        .for_each(|sentence| exit::print_warning(&Problem::new(format!("{sentence}; it is kept"))));
    if !args.dry_run {
        store.finish_removals()?;
    }
    let wanted = RetentionPolicy {
        keep_newest: args.keep,
        older_than_ms: before,
    };
    let continued = ContinuedRuns::from_index(&db, store.project())?;
    let decisions = store.plan_retention(&db, wanted, |run| continued.has_open_review(run))?;
    let listed = db.list()?;
    drop(db);
    let mut out = output::stdout_for(global.ui);
    let (mut gone, mut bytes) = (0, 0);
    for (run, _) in decisions
        .iter()
        .filter(|(_, decision)| *decision == RetentionDecision::Delete)
    {
        let size = store.size(run);
        if !args.dry_run {
            store.remove(run)?;
        }
        (gone, bytes) = (gone + 1, bytes + size);
        let printed = if global.ui == Ui::Json {
            writeln!(
                out,
                "{}",
                json!({"v": 1, "run": run.id, "bytes": size, "removed": !args.dry_run})
            )
        } else {
            let began = listed
                .iter()
                .find(|listed| listed.id == run.id)
                .map(|listed| listed.started_at.as_str());
            let began = text::printable(
                began
                    .and_then(|began| began.split('.').next())
                    .unwrap_or("?"),
                20,
            );
            writeln!(
                out,
                "{}  {began:<20}  {:>9}",
                run.id.short(),
                text::size(size)
            )
        };
        printed.map_err(|error| playback_output::stdout_failed(&error))?;
    }
    if !args.dry_run && gone > 0 {
        let (db, _) = recorded_tapes::open_updated_index(store)?;
        // Another command may use the index, and the next prune tries again.
        if let Err(error) = db.shrink() {
            tracing::warn!(%error, "the index keeps its size");
        }
    }
    if global.ui != Ui::Json {
        let verb = if args.dry_run {
            "would remove"
        } else {
            "removed"
        };
        let kept = decisions.len() - gone;
        let said = writeln!(
            out,
            "{verb} {}, {}; {kept} kept",
            pluralize(gone, "run"),
            text::size(bytes)
        );
        said.and_then(|()| out.write_all(kept_reasons(&decisions).as_bytes()))
            .map_err(|error| playback_output::stdout_failed(&error))?;
    }
    Ok(Exit::Ok)
}

/// Why old runs are kept, in a line each.
fn kept_reasons(
    decisions: &[(ingestdeck_records::store::RecordedRun, RetentionDecision)],
) -> String {
    let count = |decision: RetentionDecision| {
        decisions
            .iter()
            .filter(|(_, of_run)| *of_run == decision)
            .count()
    };
    let reasons = [
        (
            RetentionDecision::KeepNeeded,
            "kept: needed for incremental planning",
        ),
        (RetentionDecision::KeepRunning, "kept: still running"),
        (
            RetentionDecision::KeepInReview,
            "kept: waiting for a review",
        ),
        (
            RetentionDecision::KeepUnreadable,
            "kept: the tape cannot be read",
        ),
    ];
    let counted = reasons
        .iter()
        .map(|(decision, why)| (count(*decision), why))
        .filter(|(count, _)| *count > 0);
    counted
        .map(|(count, why)| format!("  {count} {why}\n"))
        .collect()
}

/// The time `age` before `now`, in milliseconds since 1970.
fn cutoff_ms(now: Timestamp, age: jiff::Span) -> Result<u64, CliError> {
    let wrong = || {
        CliError::usage(format!(
            "invalid --older-than `{age:#}`; expected an age such as 30d, 12h or \"2 weeks\""
        ))
    };
    if !age.is_positive() {
        return Err(wrong());
    }
    let then = now
        .to_zoned(TimeZone::UTC)
        .checked_sub(age)
        .map_err(|_| wrong())?;
    Ok(u64::try_from(then.timestamp().as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prune_cutoff_is_now_minus_age() {
        let now: Timestamp = "2026-11-22T10:00:00Z".parse().unwrap();
        let then =
            |age: &str| cutoff_ms(now, age.parse().unwrap()).map_err(|failure| failure.to_string());
        let expected = |time: &str| Ok(time.parse::<Timestamp>().unwrap().as_millisecond() as u64);
        assert_eq!(then("30d"), expected("2026-10-23T10:00:00Z"));
        assert_eq!(then("12h"), expected("2026-11-21T22:00:00Z"));
        assert_eq!(then("2 weeks"), expected("2026-11-08T10:00:00Z"));
        assert!(
            then("-3d")
                .unwrap_err()
                .contains("expected an age such as 30d")
        );
        assert_eq!(then("9000 years"), Ok(0), "an age before 1970 means 1970");
    }
}
