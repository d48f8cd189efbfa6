//! `--failed-from`: selects the units that need another attempt in a record of another machine, such as an artifact of a
//! CI system. The record is not continued: its patches and sessions may not exist here.

use std::borrow::Cow;

use ingestdeck_core::{diagnostic::Problem, text::pluralize};
use ingestdeck_ingest::plan::IngestPlan;

use super::{
    args::{GlobalArgs, SelectArgs},
    exit::{self, CliError},
    playback_output, report,
};

/// Maximum number of units that a warning names.
const MAX_NAMED: usize = 6;

/// The selection with the units of the record that is named, if one is; `None`, after a message, if no unit of it needs
/// another attempt.
///
/// # Errors
/// If the record does not exist or cannot be read.
pub(crate) fn resolve<'a>(
    global: &GlobalArgs,
    select: &'a SelectArgs,
) -> Result<Option<Cow<'a, SelectArgs>>, CliError> {
    let Some(record) = &select.resume.failed_from else {
        return Ok(Some(Cow::Borrowed(select)));
    };
    let report = report::gather_report(global, record)?;
    let left = report.units.iter().filter(|unit| {
        let is_lost = unit.is_successful() && unit.is_unsaved;
        unit.status.needs_retry() || is_lost
    });
    let only: Vec<String> = left.map(|unit| globset::escape(&unit.key)).collect();
    if only.is_empty() {
        let what = match report.units.len() {
            0 => "has no units".to_owned(),
            units => format!("needs no other attempt of its {}", pluralize(units, "unit")),
        };
        playback_output::print_stderr(&format!("ingestdeck: the run in {record:?} {what}"));
        return Ok(None);
    }
    Ok(Some(Cow::Owned(SelectArgs {
        only,
        ..select.clone()
    })))
}

/// Warns about units of the record that the project no longer has.
pub(crate) fn warn_missing(select: &SelectArgs, planned: &IngestPlan) {
    let Some(record) = &select.resume.failed_from else {
        return;
    };
    let is_planned = |wanted: &&String| {
        let mut units = planned.units.iter().map(|unit| &unit.planned);
        units.any(|unit| {
            let ktx_key = unit.ktx_key.as_ref();
            [Some(&unit.unit), ktx_key]
                .into_iter()
                .flatten()
                .any(|key| globset::escape(key) == **wanted)
        })
    };
    let missing: Vec<&String> = select.only.iter().filter(|key| !is_planned(key)).collect();
    if missing.is_empty() {
        return;
    }
    let named: Vec<&str> = missing
        .iter()
        .take(MAX_NAMED)
        .map(|key| key.as_str())
        .collect();
    let more = match missing.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    exit::print_warning(&Problem::new(format!(
        "{} of the run in {record:?} missing in the plan of this project: {}{more}",
        pluralize(missing.len(), "unit"),
        named.join(", ")
    )));
}
