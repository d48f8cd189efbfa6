//! Units of a prior run that runs which do not continue it have settled since. The module must not start anything.

use std::collections::HashSet;

use super::{ResumeChain, ResumeError};
use crate::{
    engine::{continued_runs::ContinuedRuns, prior_results::ProjectHistory},
    ingest::{
        plan::{IngestPlan, UnitSelection, plan_against},
        project::Project,
    },
    tape::UnitKey,
};

/// Removes from `planned`, and returns, the units that a run later than `chain` saved with the files as they are now:
/// neither does their work wait, nor may their older patches be applied.
///
/// # Errors
/// If the records or the raw files cannot be read.
pub(super) fn drop_settled_units(
    project: &Project,
    chain: &ResumeChain,
    history: &ProjectHistory,
    runs_so_far: &ContinuedRuns,
    planned: &mut IngestPlan,
) -> Result<HashSet<UnitKey>, ResumeError> {
    let now = history.past(None)?.baseline;
    let is_later = |connection: &str, unit: &str| {
        let success = now.last_own_success(connection, unit);
        success.is_some_and(|run| run > chain.id() && !runs_so_far.continues(run, chain.id()))
    };
    let candidates = planned.units.iter().map(|unit| &unit.planned);
    let mut settled: HashSet<UnitKey> = candidates
        .filter(|unit| is_later(&unit.connection, unit.ktx_key().as_str()))
        .map(|unit| unit.unit.clone())
        .collect();
    if settled.is_empty() {
        return Ok(settled);
    }
    let mut due = plan_against(project, &UnitSelection::default(), &now)?;
    due.reuse_unit_keys(chain.units());
    due.units.iter().for_each(|unit| _ = settled.remove(&unit.planned.unit));
    let (done, left) =
        std::mem::take(&mut planned.units).into_iter().partition(|unit| settled.contains(&unit.planned.unit));
    planned.units = left;
    let done: Vec<_> = done;
    done.iter().for_each(|unit| planned.exclude_unit(unit, true));
    Ok(settled)
}
