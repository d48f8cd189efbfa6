//! Units of a prior run that runs which do not continue it have settled since. The module must not start anything.

use std::collections::HashSet;

use super::{ResumeChain, ResumeError};
use crate::{
    engine::{continued_runs::ContinuedRuns, prior_results::ProjectHistory},
    ingest::{
        plan::{IngestPlan, UnitSelection, plan_against},
        project::Project,
        work_unit::WorkUnit,
    },
    tape::UnitKey,
    units::reuse::PriorOutcome,
};

/// What runs that do not continue a prior run did with its units since.
#[derive(Debug, Default)]
pub(super) struct LaterSaves {
    /// Units that they saved with the files as they are now. They are not in the plan.
    pub(super) settled: HashSet<UnitKey>,
    /// Units that they saved with other files: the project has that result, so no earlier one may be reused.
    pub(super) replaced: HashSet<UnitKey>,
}

/// Removes from `planned` the units that a run later than the one that attempted them in `chain` saved with the files as
/// they are now: neither does their work wait, nor may their older patches be applied.
///
/// # Errors
/// If the records or the raw files cannot be read.
pub(super) fn drop_settled_units(
    project: &Project,
    chain: &ResumeChain,
    history: &ProjectHistory,
    runs_so_far: &ContinuedRuns,
    planned: &mut IngestPlan,
) -> Result<LaterSaves, ResumeError> {
    let now = history.past(None)?.baseline;
    let is_saved_since = |unit: &&WorkUnit| {
        let attempted_in = chain.prior_unit(unit.planned.unit.as_str()).map_or(chain.id(), |past| past.run);
        let success = now.last_own_success(&unit.planned.connection, unit.planned.ktx_key().as_str());
        let is_later = |run| run > attempted_in && !runs_so_far.continues(run, attempted_in);
        !unit.is_text() && success.is_some_and(is_later)
    };
    let key = |unit: &WorkUnit| unit.planned.unit.clone();
    let mut replaced: HashSet<UnitKey> = planned.units.iter().filter(is_saved_since).map(key).collect();
    if replaced.is_empty() {
        return Ok(LaterSaves::default());
    }
    let mut due = plan_against(project, &UnitSelection::default(), &now)?;
    due.reuse_unit_keys(chain.units());
    let due: HashSet<UnitKey> = due.units.iter().map(key).collect();
    let is_on_branch = |key: &UnitKey| {
        let past = chain.prior_unit(key);
        past.is_some_and(|past| past.outcome == PriorOutcome::Succeeded && past.patch.is_none())
    };
    let settled: HashSet<UnitKey> =
        replaced.iter().filter(|key| !due.contains(*key) && !is_on_branch(key)).cloned().collect();
    replaced.retain(|key| due.contains(key));
    let (done, left): (Vec<_>, Vec<_>) =
        std::mem::take(&mut planned.units).into_iter().partition(|unit| settled.contains(&unit.planned.unit));
    planned.units = left;
    done.iter().for_each(|unit| planned.exclude_unit(unit, true));
    Ok(LaterSaves { settled, replaced })
}
