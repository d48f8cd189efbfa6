//! What can keep a run from starting: another ingest of the project, and what runs have cost today.

use std::{path::Path, time::Duration};

use jiff::{Timestamp, tz::TimeZone};

use super::{
    args::{GlobalArgs, RunArgs},
    audit,
    exit::{CliError, Exit},
    playback_output, runs,
};
use ingestdeck_core::{
    config::time_limit::TimeLimitSetting,
    tape::Millis,
    text::{dollars, dollars_of_sum},
};
use ingestdeck_engine::prepare::ProjectPreparationError;
use ingestdeck_ingest::lock;
use ingestdeck_records::store::db::{IndexFilter, IndexView};

/// Waits until no other process ingests the project at `root`, if `--lock-timeout` permits it.
///
/// # Errors
/// If the other process still does after that time, or the project cannot be locked.
pub(super) fn wait_for_lock(root: &Path, args: &RunArgs) -> Result<(), CliError> {
    let limit = match args.lock_timeout {
        None | Some(TimeLimitSetting::Unset) => return Ok(()),
        Some(TimeLimitSetting::Unlimited) => Duration::MAX,
        Some(TimeLimitSetting::After(limit)) => limit,
    };
    let waiting = &|held: &lock::ProjectLockError| {
        playback_output::print_stderr(&format!("ingestdeck: {held}; waits for its end"));
    };
    let waited = |error| {
        let is_held = matches!(error, lock::ProjectLockError::Held { .. });
        let error = CliError::from(ProjectPreparationError::from(error));
        match u64::try_from(limit.as_millis()) {
            Ok(limit) if is_held => error.with_cause(format!("waited {}", Millis(limit))),
            _ => error,
        }
    };
    lock::wait(root, limit, waiting).map(drop).map_err(waited)
}

/// What `--max-day-budget-usd` leaves for this run: the budget without the costs of the attempts that began today, in
/// UTC. Attempts whose cost is unknown do not count. `None` without the option.
///
/// # Errors
/// If nothing is left, or the index cannot be used.
pub(super) fn rest_of_day(
    global: &GlobalArgs,
    budget: Option<f64>,
) -> Result<Option<f64>, CliError> {
    let Some(budget) = budget else {
        return Ok(None);
    };
    let midnight = Timestamp::now()
        .to_zoned(TimeZone::UTC)
        .start_of_day()
        .map_err(|error| CliError::failed(error.to_string()))?;
    let filter = IndexFilter {
        by: "day".to_owned(),
        since_ms: Some(midnight.timestamp().as_millisecond()),
        ..IndexFilter::default()
    };
    // The last row is the total.
    let (mut spent, mut is_partial) = (0.0, false);
    if let Some(db) = audit::open_index(&runs::resolve_store(global)?)? {
        db.rows(IndexView::Costs, &filter, &mut |row| {
            let number = |column: &str| row.get(column).and_then(serde_json::Value::as_f64);
            spent = number("cost_usd").unwrap_or_default();
            is_partial = number("unknown_attempts").is_some_and(|unknown| unknown > 0.0);
            true
        })?;
    }
    if spent < budget {
        return Ok(Some(budget - spent));
    }
    Err(CliError::new(
        Exit::Limit,
        format!(
            "the budget of the day, {}, is used up: today's attempts cost {}",
            dollars(Some(budget)),
            dollars_of_sum(Some(spent), is_partial)
        ),
    )
    .with_help("run again after midnight UTC, or raise --max-day-budget-usd"))
}
