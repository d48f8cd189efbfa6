//! Plans a run that continues the review of a prior run: its unsaved patches are integrated again, and nothing is
//! attempted.

use std::collections::HashSet;

use super::{
    ResumeBasis, ResumeChain, ResumeError, RunPlan, drop_saved_patches, find_resumable, join_names,
    open_history, planned_units, settled_units::LaterSaves, texts,
};
use crate::{WarningSink, prepare::TargetBranch, prior_results::ProjectHistory, warn_all};
use ingestdeck_core::{
    diagnostic::Problem,
    run::state::RECONCILE_KEY,
    tape::{
        RunId, UnitKey,
        note::{ContinuedRun, PriorUnitSummary, ReusedSuccess},
    },
    text::pluralize,
    units::reuse::{PriorOutcome, PriorUnit},
};
use ingestdeck_ingest::{
    committed_changes::CommittedRun,
    content_digest,
    plan::{IngestPlan, UnitSelection, plan_against},
    project::Project,
    repository::Repository,
    work_unit::WorkUnit,
};
use ingestdeck_records::store::{RunStore, index_refresh::RefreshError};

/// Plans the review of the run that `what` names.
///
/// # Errors
/// If the run does not exist or is active, or if its project cannot be planned.
pub fn plan_review(
    project: &Project,
    what: &str,
    warn: WarningSink<'_>,
) -> Result<RunPlan, ResumeError> {
    let runs = RunStore::new(&project.root);
    let chain = ResumeChain::load(&runs, find_resumable(&runs, what)?)?;
    texts::find_recorded(chain.state()).map_err(ResumeError::NotResumable)?;
    let history = open_history(project, warn)?;
    let past = history.past(Some(chain.oldest()))?;
    let selection = chain
        .state()
        .planned
        .as_ref()
        .and_then(|plan| plan.selection.clone())
        .unwrap_or_default();
    let changed = UnitSelection {
        full: false,
        ..selection.clone()
    };
    let due = plan_against(project, &changed, &past.baseline)?.units;
    // A later run may have processed other content, or failed.
    let outdated = plan_against(project, &changed, &history.past(None)?.baseline)?.units;
    let selection = UnitSelection {
        full: true,
        ..selection
    };
    let mut planned = plan_against(project, &selection, &past.baseline)?;
    planned.reuse_unit_keys(chain.units());
    let committed = chain.committed_run(project, true)?;
    // Decisions are about the changes of the prior run, whatever later runs saved.
    let since = LaterSaves::default();
    let basis = ResumeBasis {
        project,
        chain: &chain,
        model: None,
        since: &since,
        warn,
    };
    let mut taken = basis.review(planned, (&due, &outdated), committed.as_ref())?;
    let runs_so_far = history.continued_runs()?;
    drop_saved_patches(&runs, &runs_so_far, chain.id(), &mut taken)?;
    chain.add_unsaved(project, &runs_so_far, &mut taken, warn);
    if let Some(committed) = &committed {
        let is_continued = chain.state().publication.unsaved_review().is_some();
        taken.branch = review_branch(project, committed, taken.branch, is_continued)?;
    }
    taken.committed = committed;
    Ok(RunPlan {
        is_ktx_locked: history.is_ktx_locked,
        ..taken
    })
}

/// The branch for a review of commits that went to `branch`: the current one if it contains them, or if `branch` is gone and the
/// review is not `is_continued`.
fn review_branch(
    project: &Project,
    committed: &CommittedRun,
    branch: Option<TargetBranch>,
    is_continued: bool,
) -> Result<Option<TargetBranch>, ResumeError> {
    let unusable = |problem| ResumeError::NotResumable(problem);
    let repository = Repository::find_for_reading(&project.root);
    let repository = repository.map_err(|error| unusable(Problem::from_error(&error)))?;
    let name = branch.as_ref().map(|branch| branch.name.as_str());
    let Some(repository) = repository else {
        return Ok(None);
    };
    let failed = |error| unusable(Problem::from_error(&error));
    let found = repository.review_branch(committed, name).map_err(failed)?;
    if let (Some(name), None) = (name, &found)
        && is_continued
        && !repository.has_commits(committed).map_err(failed)?
    {
        // On another branch, the changes that wait would not apply, and the decisions would be lost.
        let problem = Problem::new(format!(
            "the branch {name}, which the review is about, is gone"
        ));
        return Err(unusable(
            problem.with_help("create it again, or merge the commits of the run"),
        ));
    }
    let name = found;
    // Another branch may be named: a review of commits has none on it yet.
    Ok(name.map(|name| TargetBranch { name, commit: None }))
}

/// The sentence about the newest run if its changes wait for a review. Sources that it derived belong to no unit, so the
/// plan of units does not show them.
pub(super) fn waiting_sentence(history: &ProjectHistory) -> Result<Option<String>, RefreshError> {
    let id = history.newest_open_review()?.as_ref().map(RunId::short);
    Ok(id.map(|id| {
        format!("the changes of run {id} wait for a review; decide with `ingestdeck review {id}`")
    }))
}

impl ResumeBasis<'_> {
    /// The units of the prior run whose patches are in no commit, or all that succeeded if its commits are reviewed. A run
    /// before the prior one would have attempted the units `due`, and a run now attempts those that are `outdated`.
    fn review(
        &self,
        mut planned: IngestPlan,
        (due, outdated): (&[WorkUnit], &[WorkUnit]),
        committed: Option<&CommittedRun>,
    ) -> Result<RunPlan, ResumeError> {
        let before = self.before();
        let mut continues = before.continues();
        let state = self.chain.state();
        let prior = state
            .planned
            .as_ref()
            .and_then(|planned| planned.continues.as_ref());
        for unit in state
            .units
            .iter()
            .filter(|unit| unit.planned.is_some() || unit.key.as_str() == RECONCILE_KEY)
        {
            let past = before.prior_unit(unit);
            // A review that was cut off leaves the patch of a run before it.
            let left = || {
                let is_saved = state
                    .publication
                    .prior_patches
                    .get(&unit.key)
                    .is_some_and(|patch| patch.is_saved);
                let earlier = prior?.units.get(&unit.key)?;
                let reused = earlier.reused.as_ref()?;
                let is_left =
                    !is_saved && unit.attempts.is_empty() && reused.pending_patch.is_some();
                is_left.then(|| (reused.clone(), earlier.run))
            };
            // The reconcile step has no unit that could be sent back.
            let saved = || success(&past).filter(|_| committed.is_some() && unit.planned.is_some());
            let own = |reused| (reused, past.run);
            let found = pending_success(&past)
                .map(own)
                .or_else(left)
                .or_else(|| saved().map(own));
            let Some((reused, run)) = found else { continue };
            let summary = before.prior_unit_summary(unit);
            let summary = summary.unwrap_or(PriorUnitSummary {
                run,
                attempts: 0,
                cost_usd: None,
                reused: None,
            });
            let summary = PriorUnitSummary {
                run,
                reused: Some(reused),
                ..summary
            };
            continues.units.insert(unit.key.clone(), summary);
        }
        let known = planned_units(state).count();
        let units = std::mem::take(&mut planned.units).into_iter();
        let (units, others) =
            units.partition(|unit| continues.units.contains_key(&unit.planned.unit));
        planned.units = units;
        let key = |unit: &WorkUnit| {
            let planned = &unit.planned;
            (
                planned.connection.clone(),
                planned.adapter.clone(),
                planned.ktx_key().as_str().to_owned(),
            )
        };
        let [due, outdated] =
            [due, outdated].map(|units| units.iter().map(key).collect::<HashSet<_>>());
        let (outdated, others): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|unit| outdated.contains(&key(unit)));
        let (due, done): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|unit| due.contains(&key(unit)));
        outdated
            .iter()
            .for_each(|unit| planned.exclude_unit(unit, false));
        self.exclude_units(&mut planned, due);
        done.iter()
            .for_each(|unit| planned.exclude_unit(unit, true));
        if committed.is_none() {
            self.warn_gone_units(&continues, &planned);
            self.leave_changed_files(&mut planned);
        }
        for unit in &mut planned.units {
            unit.planned.why = match committed {
                Some(of) => format!("the commits of run {} are reviewed", of.run.short()),
                None => format!(
                    "its changes in run {} wait for a review",
                    continues.run.short()
                ),
            };
        }
        let has_projections = state
            .inputs
            .projected
            .iter()
            .any(|projected| projected.is_unsaved());
        if planned.units.is_empty() && known > 0 && !has_projections && committed.is_none() {
            return Err(ResumeError::NoUnitsLeft(continues.run));
        }
        Ok(RunPlan {
            planned,
            continues: Some(continues),
            efforts: Default::default(),
            unsaved_run: None,
            empty_reason: None,
            is_ktx_locked: false,
            review: None,
            branch: None,
            is_reviewed: false,
            projected: Vec::new(),
            committed: None,
            sessions: Vec::new(),
        })
    }
}

impl ResumeBasis<'_> {
    /// Names units whose changes cannot be reviewed, because the plan no longer contains them.
    fn warn_gone_units(&self, continues: &ContinuedRun, planned: &IngestPlan) {
        let there: HashSet<&UnitKey> = planned
            .units
            .iter()
            .map(|unit| &unit.planned.unit)
            .collect();
        let is_gone = |unit: &&UnitKey| unit.as_str() != RECONCILE_KEY && !there.contains(*unit);
        let gone: Vec<&str> = continues
            .units
            .keys()
            .filter(is_gone)
            .map(UnitKey::as_str)
            .collect();
        if !gone.is_empty() {
            let (what, names) = (pluralize(gone.len(), "unit"), join_names(&gone));
            let run = continues.run.short();
            warn_all(
                self.warn,
                &[format!(
                    "{what} of run {run} left out because the plan does not contain them: {names}"
                )],
            );
        }
    }

    /// Leaves raw files that changed after their units worked to the next run: the changes under review do not rest on
    /// them.
    fn leave_changed_files(&self, planned: &mut IngestPlan) {
        let is_changed = |unit: &&WorkUnit| {
            let past = self.chain.prior_unit(unit.planned.unit.as_str());
            let then = past.and_then(|past| past.content.map(|content| content.raw_files.clone()));
            let now = content_digest::digest_unit(self.project, unit, self.model).ok();
            then.zip(now)
                .is_some_and(|(then, now)| then != now.raw_files)
        };
        let changed: Vec<WorkUnit> = planned.units.iter().filter(is_changed).cloned().collect();
        for unit in &changed {
            planned.exclude_unit(unit, false);
        }
        let names: Vec<&str> = changed
            .iter()
            .map(|unit| unit.planned.unit.as_str())
            .collect();
        if !names.is_empty() {
            let text = format!(
                "raw files changed after the run, and are left to the next one: {}",
                join_names(&names)
            );
            warn_all(self.warn, &[text]);
        }
    }
}

/// The success of a unit whose patch is in no commit.
fn pending_success(past: &PriorUnit<'_>) -> Option<ReusedSuccess> {
    let patch = past.patch?.to_owned();
    Some(ReusedSuccess {
        pending_patch: Some(patch),
        ..success(past)?
    })
}

/// The success of a unit whose changes are in a commit.
fn success(past: &PriorUnit<'_>) -> Option<ReusedSuccess> {
    let is_success = matches!(
        past.outcome,
        PriorOutcome::Succeeded | PriorOutcome::OutOfBudget(_)
    );
    is_success.then(|| ReusedSuccess {
        attempt: past.attempt,
        is_budget_exhausted: matches!(past.outcome, PriorOutcome::OutOfBudget(_)),
        content: past.content.cloned().unwrap_or_default(),
        pending_patch: None,
        output: past.work.cloned().unwrap_or_default(),
    })
}
