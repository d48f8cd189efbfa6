//! Units of a prior run that runs which do not continue it have settled since. The module must not start anything.

use std::collections::{HashMap, HashSet};

use super::{ResumeChain, ResumeError, RunPlan, pending_patches, planned_units};
use crate::{continued_runs::ContinuedRuns, prior_results::ProjectHistory, recorded_tapes};
use ingestdeck_core::{
    tape::{RunId, UnitKey, note::AttemptOutput},
    units::reuse::PriorOutcome,
};
use ingestdeck_ingest::{
    plan::{IngestPlan, UnitSelection, plan_against},
    project::Project,
    work_unit::WorkUnit,
};
use ingestdeck_records::store::RunStore;

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
        let attempted_in = chain
            .prior_unit(unit.planned.unit.as_str())
            .map_or(chain.id(), |past| past.run);
        let success =
            now.last_own_success(&unit.planned.connection, unit.planned.ktx_key().as_str());
        let is_later = |run| run > attempted_in && !runs_so_far.continues(run, attempted_in);
        !unit.is_text() && success.is_some_and(is_later)
    };
    let key = |unit: &WorkUnit| unit.planned.unit.clone();
    let mut replaced: HashSet<UnitKey> = planned
        .units
        .iter()
        .filter(is_saved_since)
        .map(key)
        .collect();
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
    let settled: HashSet<UnitKey> = replaced
        .iter()
        .filter(|key| !due.contains(*key) && !is_on_branch(key))
        .cloned()
        .collect();
    replaced.retain(|key| due.contains(key));
    let (done, left): (Vec<_>, Vec<_>) = std::mem::take(&mut planned.units)
        .into_iter()
        .partition(|unit| settled.contains(&unit.planned.unit));
    planned.units = left;
    done.iter()
        .for_each(|unit| planned.exclude_unit(unit, true));
    Ok(LaterSaves { settled, replaced })
}

/// Removes patches that a later run integrated, or whose units worked again in one: applying them again would restore
/// content that was reverted since.
///
/// # Errors
/// If later runs took over everything that `run` left.
pub(super) fn drop_saved_patches(
    runs: &RunStore,
    continued: &ContinuedRuns,
    run: RunId,
    taken: &mut RunPlan,
) -> Result<(), ResumeError> {
    let Some(continues) = &taken.continues else {
        return Ok(());
    };
    let pending: HashSet<UnitKey> = pending_patches(Some(continues))
        .map(|(unit, _)| unit.clone())
        .collect();
    let saved_by: HashMap<UnitKey, RunId> = pending
        .iter()
        .filter_map(|unit| {
            let result = continued.settled_result(run, unit, continues.units.get(unit)?.run);
            Some((unit.clone(), result.filter(|result| result.is_saved)?.by))
        })
        .collect();
    let Some(&later) = saved_by.values().max() else {
        return Ok(());
    };
    if saved_by.len() == pending.len()
        && takes_on_rest(runs, taken, saved_by.values().copied().collect())?
    {
        return Err(ResumeError::Continued { run, later });
    }
    // The project has another result of these units, which may rest on other files.
    let is_replaced = |unit: &UnitKey| {
        saved_by
            .get(unit)
            .is_some_and(|by| !continued.continues(*by, run))
    };
    let (replaced, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut taken.planned.units)
        .into_iter()
        .partition(|unit| is_replaced(&unit.planned.unit));
    taken.planned.units = kept;
    replaced
        .iter()
        .for_each(|unit| taken.planned.exclude_unit(unit, false));
    if let Some(continues) = &mut taken.continues {
        continues.units.retain(|unit, _| !is_replaced(unit));
    }
    let units = taken
        .continues
        .iter_mut()
        .flat_map(|continues| &mut continues.units);
    for (_, earlier) in units.filter(|(unit, _)| saved_by.contains_key(*unit)) {
        if let Some(reused) = &mut earlier.reused {
            // The same state as for every unit that is on the branch.
            (reused.pending_patch, reused.output) = (None, AttemptOutput::default());
        }
    }
    Ok(())
}

/// True if the runs `later` planned all units that would run.
fn takes_on_rest(
    runs: &RunStore,
    taken: &RunPlan,
    later: HashSet<RunId>,
) -> Result<bool, ResumeError> {
    let mut open: HashSet<&UnitKey> = taken
        .units_to_run()
        .map(|unit| &unit.planned.unit)
        .collect();
    for found in runs
        .list()?
        .into_iter()
        .filter(|found| later.contains(&found.id))
    {
        // An unreadable record proves nothing.
        let Ok(state) = recorded_tapes::fold(runs, &found) else {
            continue;
        };
        planned_units(&state).for_each(|unit| {
            open.remove(&unit.key);
        });
    }
    Ok(open.is_empty())
}
