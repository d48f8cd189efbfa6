//! Plans a run that continues a prior run: `--resume-run` and `--failed`.
//!
//! Compares the record of the prior run with the current plan. Must not start anything.

mod chain;
mod cut_units;
mod deleted_files;
mod review;
mod settled_units;
mod texts;
mod unreconciled;

use std::collections::{HashMap, HashSet};

use self::{
    chain::ResumeChain,
    cut_units::CutUnits,
    settled_units::{LaterSaves, drop_saved_patches},
};
pub use self::{chain::committed_run, review::plan_review, texts::plan_new_texts};
use super::{
    WarningSink,
    cut_sessions::CutSession,
    prepare::TargetBranch,
    prior_results::ProjectHistory,
    recorded_tapes::{self, OpenTapeError},
    unsaved_run::UnsavedRun,
    warn_all,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    run::{RunState, prior_run::PriorRunView, review::ReviewState, state::UnitState},
    tape::{
        RunId, UnitKey,
        note::{ContinuedRun, SourcesProjected},
    },
    text::pluralize,
    units::reuse::{PriorOutcome, PriorUnit, ReuseDecision, decide_reuse},
};
use ingestdeck_ingest::{
    committed_changes::CommittedRun,
    content_digest,
    plan::{IngestPlan, PlanError, UnitSelection, plan, plan_against, plan_texts},
    project::Project,
    work_unit::WorkUnit,
};
use ingestdeck_os::scoped_dir::ScopedDir;
use ingestdeck_records::store::{
    RecordedRun, RunStatus, RunStore, db::PriorEfforts, index_refresh::RefreshError,
    runs::RunStoreError,
};

/// Maximum number of units that a sentence names.
const MAX_NAMED: usize = 6;

/// A plan, with the results that it reuses.
#[derive(Debug)]
pub struct RunPlan {
    /// The units of the run, including reused ones.
    pub planned: IngestPlan,
    /// The run that is continued.
    pub continues: Option<ContinuedRun>,
    /// Efforts of units in prior runs, oldest first.
    pub efforts: PriorEfforts,
    /// An unsaved run that this plan does not continue.
    pub unsaved_run: Option<UnsavedRun>,
    /// Why no unit is planned, if the prior run is the reason.
    pub empty_reason: Option<String>,
    /// True if KTX's database is locked, so that files that only KTX ingested count as new.
    pub is_ktx_locked: bool,
    /// The decisions so far, if the plan continues a review.
    pub review: Option<ReviewState>,
    /// The branch that the continued run commits to, if it is not the current one.
    pub branch: Option<TargetBranch>,
    /// True if nothing of the continued run is saved before a review.
    pub is_reviewed: bool,
    /// Sources that the continued run projected and that are in no commit.
    pub projected: Vec<SourcesProjected>,
    /// The run whose commits are reviewed, if they are.
    pub committed: Option<CommittedRun>,
    /// Units that continue in the sessions of prior runs.
    pub sessions: Vec<(UnitKey, CutSession)>,
}

impl RunPlan {
    /// Units that are reused from a prior run.
    pub fn reused_units(&self) -> impl Iterator<Item = &UnitKey> {
        reused_units(self.continues.as_ref())
    }

    /// Continues the units that prior runs left in sessions which still exist, and adds that to their reasons.
    fn continue_sessions(&mut self, cut: &CutUnits<'_>) {
        let reused: HashSet<UnitKey> = self.reused_units().cloned().collect();
        for unit in &mut self.planned.units {
            let key = &unit.planned.unit;
            if let Some(session) = cut.find(unit).filter(|_| !reused.contains(key)) {
                self.sessions.push((key.clone(), session));
                unit.planned.why.push_str("; continues in its session");
            }
        }
    }

    /// Units that this run must execute.
    pub fn units_to_run(&self) -> impl Iterator<Item = &WorkUnit> {
        let reused: HashSet<&UnitKey> = self.reused_units().collect();
        self.planned
            .units
            .iter()
            .filter(move |unit| !reused.contains(&unit.planned.unit))
    }

    /// True if no unit has to run and no patch has to be integrated. The reconcile step may still have work.
    pub fn is_done(&self) -> bool {
        self.reused_units().count() == self.planned.units.len()
            && pending_patches(self.continues.as_ref()).next().is_none()
            && self.projected.is_empty()
            && self.committed.is_none()
            && !self.planned.has_documents()
    }
}

/// Units that are reused from the continued run.
pub(crate) fn reused_units(continues: Option<&ContinuedRun>) -> impl Iterator<Item = &UnitKey> {
    let units = continues.into_iter().flat_map(|continues| &continues.units);
    units
        .filter(|(_, earlier)| earlier.reused.is_some())
        .map(|(unit, _)| unit)
}

/// Patches of these units that are not on the branch yet, relative to the project.
pub(crate) fn pending_patches(
    continues: Option<&ContinuedRun>,
) -> impl Iterator<Item = (&UnitKey, &str)> {
    let units = continues.into_iter().flat_map(|continues| &continues.units);
    units.filter_map(|(unit, earlier)| {
        Some((unit, earlier.reused.as_ref()?.pending_patch.as_deref()?))
    })
}

/// The units that a command selects, and the model of their attempts.
#[derive(Clone, Debug)]
pub struct PlanRequest<'a> {
    pub selection: UnitSelection,
    /// The run to continue, by its name, and how.
    pub continued: Option<(ContinueMode, &'a str)>,
    pub model: Option<&'a str>,
    /// Units that were cut from outside continue in their sessions.
    pub continues_sessions: bool,
}

/// Which units of a prior run a new run executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinueMode {
    /// All without a reusable result.
    Unfinished,
    /// Those that failed, ran out of turns or were stopped.
    Failed,
}

/// Why a run cannot be planned or continued.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Store(#[from] RunStoreError),
    #[error(transparent)]
    Index(#[from] RefreshError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Tape(#[from] OpenTapeError),
    /// `latest` was requested, but there is no run of units.
    #[error("no run that can be resumed is recorded in this project")]
    NoRun,
    /// The record cannot be continued.
    #[error(transparent)]
    NotResumable(Problem),
    /// Another process writes the record.
    #[error("run {} is still running{holder}", .run.short())]
    Running { run: RunId, holder: String },
    /// The plan no longer has any of its units.
    #[error("no unit of run {} is left in the plan", .0.short())]
    NoUnitsLeft(RunId),
    #[error("none of the units that failed in run {} is left in the plan: {units}", .run.short())]
    FailedUnitsGone { run: RunId, units: String },
    /// A later run has taken over everything.
    #[error("run {} continued run {} and saved its remaining units", .later.short(), .run.short())]
    Continued { run: RunId, later: RunId },
    /// The value of `--failed` was parsed as a connection.
    #[error("ktx.yaml has no connection `{0}`")]
    RunAsConnection(String),
}

impl Diagnostic for ResumeError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Store(error) => return error.help(),
            Self::Index(error) => return error.help(),
            Self::Plan(error) => return error.help(),
            Self::Tape(error) => return error.help(),
            Self::NotResumable(problem) => return problem.help(),
            Self::NoRun => "start one with `ingestdeck run`".into(),
            Self::Running { run, .. } => {
                format!(
                    "watch it with `ingestdeck watch {}`, or end it first",
                    run.short()
                )
            }
            Self::NoUnitsLeft(_) => "show the plan with `ingestdeck plan`".into(),
            Self::FailedUnitsGone { .. } => return None,
            Self::Continued { later, .. } => {
                format!("resume the later run with `--resume-run {}`", later.short())
            }
            Self::RunAsConnection(name) => format!("to name the run, write `--failed={name}`"),
        })
    }
}

/// Plans the units of `request`. Warnings are passed to `warn` immediately.
///
/// # Errors
/// If the selection names something that does not exist, cannot be ingested, or is still running.
pub fn plan_run(
    project: &Project,
    request: PlanRequest<'_>,
    warn: WarningSink<'_>,
) -> Result<RunPlan, ResumeError> {
    let runs = RunStore::new(&project.root);
    let PlanRequest {
        selection: asked,
        continued,
        model,
        continues_sessions,
    } = request;
    let Some((mode, what)) = continued else {
        let history = open_history(project, warn)?;
        let past = history.past(None)?;
        let mut planned = plan_against(project, &asked, &past.baseline)?;
        past.annotate(&mut planned);
        unreconciled::drop_decided_artifacts(&runs, &mut planned)?;
        let left = still_planned(project, past.unsaved_run)?;
        // One sentence about a review is enough.
        if planned.units.is_empty() && !left.as_ref().is_some_and(UnsavedRun::waits_for_review) {
            warn_all(warn, review::waiting_sentence(&history)?.as_slice());
        }
        return Ok(RunPlan {
            planned,
            continues: None,
            efforts: past.efforts,
            unsaved_run: left,
            empty_reason: None,
            is_ktx_locked: history.is_ktx_locked,
            review: None,
            branch: None,
            is_reviewed: false,
            projected: Vec::new(),
            committed: None,
            sessions: Vec::new(),
        });
    };
    let is_failed = mode == ContinueMode::Failed;
    let chain = ResumeChain::load(&runs, find_resumable(&runs, what)?)?;
    // Units must be chosen and split as in the prior run, otherwise they cannot be compared.
    let history = open_history(project, warn)?;
    let past = history.past(Some(chain.oldest()))?;
    let then = chain
        .state()
        .planned
        .as_ref()
        .and_then(|plan| plan.selection.clone());
    let then = then.unwrap_or_else(|| asked.clone());
    let (full, neighbours) = (then.full || asked.full, then.neighbours || asked.neighbours);
    let selection = UnitSelection {
        full,
        neighbours,
        unread: then.unread || asked.unread,
        ..then
    };
    let planned = match texts::find_recorded(chain.state()).map_err(ResumeError::NotResumable)? {
        Some((selection, texts)) => plan_texts(project, &selection, texts),
        None => plan_against(project, &selection, &past.baseline),
    };
    let mut planned = planned.map_err(|error| match error {
        PlanError::NoSuchUnit { .. } => ResumeError::NoUnitsLeft(chain.id()),
        error => error.into(),
    })?;
    planned.reuse_unit_keys(chain.units());
    // The records are older than the runs that are continued, whose units may have read these files.
    planned
        .sources
        .iter_mut()
        .for_each(|source| source.unread.clear());
    unreconciled::drop_settled_evictions(&history, &mut planned)?;
    let runs_so_far = history.continued_runs()?;
    let others = planned
        .narrow(project, &asked)
        .map_err(|error| match error {
            // `--failed RUN` looks like `--resume-run RUN`, but its value needs an equals sign.
            PlanError::NoSuchConnection(name, _) if is_failed && runs.resolve(&name).is_ok() => {
                ResumeError::RunAsConnection(name)
            }
            error => error.into(),
        })?;
    let since = match asked.full {
        true => LaterSaves::default(),
        false => settled_units::drop_settled_units(
            project,
            &chain,
            &history,
            &runs_so_far,
            &mut planned,
        )?,
    };
    past.annotate(&mut planned);
    unreconciled::drop_decided_artifacts(&runs, &mut planned)?;
    let basis = ResumeBasis {
        project,
        chain: &chain,
        model,
        since: &since,
        warn,
    };
    let mut taken = match mode {
        ContinueMode::Unfinished => basis.resume(planned, others)?,
        ContinueMode::Failed => basis.retry_failed(planned, others)?,
    };
    unreconciled::drop_reconciled_patches(&runs, &mut taken)?;
    drop_saved_patches(&runs, &runs_so_far, chain.id(), &mut taken)?;
    chain.add_unsaved(project, &runs_so_far, &mut taken, warn);
    taken.committed = chain.committed_run(project, false)?;
    if continues_sessions {
        taken.continue_sessions(&CutUnits::new(project, &chain, &runs_so_far, model));
    }
    let left = still_planned(project, past.unsaved_run.filter(|_| is_failed))?;
    Ok(RunPlan {
        efforts: past.efforts,
        unsaved_run: left,
        is_ktx_locked: history.is_ktx_locked,
        ..taken
    })
}

/// The records of prior runs, with a warning about unreadable ones.
fn open_history(project: &Project, warn: WarningSink<'_>) -> Result<ProjectHistory, RefreshError> {
    let history = ProjectHistory::open(project)?;
    warn_all(warn, &history.warnings);
    Ok(history)
}

/// Keeps the unsaved units that the project still has. This needs a full plan: a partial or incremental plan does not
/// list all units.
fn still_planned(
    project: &Project,
    left: Option<UnsavedRun>,
) -> Result<Option<UnsavedRun>, PlanError> {
    let Some(left) = left else { return Ok(None) };
    let whole = match plan(project, &UnitSelection::default()) {
        // Texts need no connection.
        Err(PlanError::NoConnections(_)) => return Ok(None),
        whole => whole?,
    };
    Ok(left.still_planned(&whole.units))
}

/// The inputs for the comparison of a plan.
#[derive(Clone, Copy)]
struct ResumeBasis<'a> {
    project: &'a Project,
    chain: &'a ResumeChain,
    model: Option<&'a str>,
    since: &'a LaterSaves,
    warn: WarningSink<'a>,
}

impl<'a> ResumeBasis<'a> {
    fn before(&self) -> PriorRunView<'a> {
        PriorRunView::new(self.chain.state(), self.chain.id())
    }

    /// The units of the prior run that later runs have not settled.
    fn open_units(&self) -> impl Iterator<Item = &'a UnitState> {
        planned_units(self.chain.state()).filter(|unit| !self.since.settled.contains(&unit.key))
    }

    /// Why nothing is left of the prior run; `None` if something is, or if it had nothing.
    fn settled_message(&self, units: &[WorkUnit]) -> Option<String> {
        let settled = &self.since.settled;
        let (count, run) = (pluralize(settled.len(), "unit"), self.chain.id().short());
        (units.is_empty() && !settled.is_empty()).then(|| {
            format!("later runs have saved what run {run} left ({count}): there is nothing to run")
        })
    }

    /// Decides whether a unit with this prior result is reused.
    fn reuse_decision(&self, unit: &WorkUnit, past: &PriorUnit<'_>) -> ReuseDecision {
        let now = match past.outcome {
            PriorOutcome::Succeeded => {
                content_digest::digest_unit(self.project, unit, self.model).ok()
            }
            _ => None,
        };
        decide_reuse(past, now.as_ref())
    }

    /// Removes excluded units from `plan_run`, except reused ones, and returns the rest.
    fn exclude_units(&self, planned: &mut IngestPlan, units: Vec<WorkUnit>) -> Vec<WorkUnit> {
        let is_reused = |unit: &WorkUnit| {
            let Some(past) = self.chain.prior_unit(unit.planned.unit.as_str()) else {
                return false;
            };
            matches!(self.reuse_decision(unit, &past), ReuseDecision::Reuse(reused) if reused.pending_patch.is_none())
        };
        let (done, left): (Vec<_>, Vec<_>) = units.into_iter().partition(is_reused);
        done.iter()
            .for_each(|unit| planned.exclude_unit(unit, true));
        left.iter()
            .for_each(|unit| planned.exclude_unit(unit, false));
        left
    }

    /// The units of a prior run: successful ones as reused, the others to run.
    fn resume(
        &self,
        mut planned: IngestPlan,
        others: Vec<WorkUnit>,
    ) -> Result<RunPlan, ResumeError> {
        let before = self.before();
        let mut continues = before.continues();
        let known: HashMap<&str, &UnitState> = self
            .open_units()
            .map(|unit| (unit.key.as_str(), unit))
            .collect();
        let (units, new): (Vec<_>, Vec<_>) = std::mem::take(&mut planned.units)
            .into_iter()
            .partition(|unit| known.contains_key(unit.planned.unit.as_str()));
        // A run that handled only deleted files has no units.
        if units.is_empty() && !known.is_empty() {
            return Err(ResumeError::NoUnitsLeft(continues.run));
        }
        planned.units = units;
        let mut gone_since = Vec::new();
        let root = ScopedDir::open(&self.project.root);
        for unit in &mut planned.units {
            let Some(then) = known.get(unit.planned.unit.as_str()) else {
                continue;
            };
            let past = before.prior_unit(then);
            let mut earlier = before.prior_unit_summary(then);
            let is_gone = |patch: &String| !root.as_ref().is_ok_and(|root| root.is_file(patch));
            unit.planned.why = match self.reuse_decision(unit, &past) {
                ReuseDecision::Run(why) => why,
                ReuseDecision::Reuse(_) if self.since.replaced.contains(&then.key) => {
                    "a later run saved it with other files".to_owned()
                }
                ReuseDecision::Reuse(reused)
                    if reused.pending_patch.as_ref().is_some_and(is_gone) =>
                {
                    format!(
                        "succeeded in run {}, but its patch is gone",
                        past.run.short()
                    )
                }
                ReuseDecision::Reuse(reused) => {
                    if let Some(earlier) = &mut earlier {
                        (earlier.run, earlier.reused) = (past.run, Some(*reused));
                    }
                    let reason = format!(
                        "succeeded in run {} with the same content",
                        past.run.short()
                    );
                    // The files of another branch are not in the project.
                    let is_on_branch = self.chain.state().publication.target_branch.is_some();
                    let since = if is_on_branch {
                        Vec::new()
                    } else {
                        self.chain.since(past.run)
                    };
                    match deleted_files::message(&deleted_files::deleted_since(
                        &self.project.root,
                        &since,
                        &then.key,
                        past.attempt,
                    )) {
                        None => reason,
                        Some(gone) => {
                            gone_since.push(format!("{} ({gone})", unit.planned.unit));
                            format!("{reason}, but {gone}")
                        }
                    }
                }
            };
            continues
                .units
                .extend(earlier.map(|earlier| (unit.planned.unit.clone(), earlier)));
        }
        self.exclude_units(&mut planned, others);
        let new = self.exclude_units(&mut planned, new);
        unreconciled::retain_existing(self.project, &mut continues);
        warn_excluded_units(self.warn, &continues, &known, &planned.units, &new);
        deleted_files::warn_deleted_files(self.warn, &gone_since);
        Ok(RunPlan {
            empty_reason: self.settled_message(&planned.units),
            planned,
            continues: Some(continues),
            efforts: Default::default(),
            unsaved_run: None,
            is_ktx_locked: false,
            review: None,
            branch: None,
            is_reviewed: false,
            projected: Vec::new(),
            committed: None,
            sessions: Vec::new(),
        })
    }

    /// The units of a prior run that failed, ran out of turns or were stopped.
    fn retry_failed(
        &self,
        mut planned: IngestPlan,
        others: Vec<WorkUnit>,
    ) -> Result<RunPlan, ResumeError> {
        let before = self.before();
        let mut continues = before.continues();
        let known: HashMap<&str, &UnitState> = self
            .open_units()
            .filter(|unit| is_unsuccessful(&before.prior_unit(unit)))
            .map(|unit| (unit.key.as_str(), unit))
            .collect();
        let (units, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut planned.units)
            .into_iter()
            .partition(|unit| known.contains_key(unit.planned.unit.as_str()));
        if units.is_empty() && !known.is_empty() {
            let mut names: Vec<&str> = known.keys().copied().collect();
            names.sort_unstable();
            return Err(ResumeError::FailedUnitsGone {
                run: continues.run,
                units: join_names(&names),
            });
        }
        let nothing = units.is_empty().then(|| {
            let had_failed = planned_units(self.chain.state()).any(|unit| {
                self.since.settled.contains(&unit.key) && is_unsuccessful(&before.prior_unit(unit))
            });
            let settled = self.settled_message(&units).filter(|_| had_failed);
            settled.unwrap_or_else(|| no_failures_message(continues.run, self.chain.state()))
        });
        planned.units = units;
        for unit in &mut planned.units {
            let Some(then) = known.get(unit.planned.unit.as_str()) else {
                continue;
            };
            if let ReuseDecision::Run(why) = decide_reuse(&before.prior_unit(then), None) {
                unit.planned.why = why;
            }
            continues.units.extend(
                before
                    .prior_unit_summary(then)
                    .map(|earlier| (unit.planned.unit.clone(), earlier)),
            );
        }
        self.exclude_units(&mut planned, others.into_iter().chain(rest).collect());
        unreconciled::retain_for_failed(self.project, &mut continues, self.chain.state());
        warn_excluded_units(self.warn, &continues, &known, &planned.units, &[]);
        Ok(RunPlan {
            planned,
            continues: Some(continues),
            efforts: Default::default(),
            unsaved_run: None,
            empty_reason: nothing,
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

fn is_unsuccessful(past: &PriorUnit<'_>) -> bool {
    matches!(
        past.outcome,
        PriorOutcome::Failed(_) | PriorOutcome::OutOfBudget(_) | PriorOutcome::Stopped
    )
}

/// A run without failures may still have unfinished or unsaved units.
fn no_failures_message(run: RunId, state: &RunState) -> String {
    let run = run.short();
    let unsaved = planned_units(state)
        .filter(|unit| state.is_unsaved(unit))
        .count();
    let open = planned_units(state)
        .filter(|unit| unit.status.needs_retry())
        .count();
    let are = |count: usize| if count == 1 { "is" } else { "are" };
    let what = match (open, unsaved) {
        (0, 0) => return format!("no unit failed in run {run}: there is nothing to run"),
        (open, 0) => format!("{} of it {} not done", pluralize(open, "unit"), are(open)),
        (0, unsaved) => format!(
            "{} of it {} not saved",
            pluralize(unsaved, "unit"),
            are(unsaved)
        ),
        (open, unsaved) => {
            format!(
                "{} of it {} not done, {unsaved} {} not saved",
                pluralize(open, "unit"),
                are(open),
                are(unsaved)
            )
        }
    };
    format!("no unit failed in run {run}, but {what}; `--resume-run {run}` resumes it")
}

/// Units that were planned, without those that only appear in the record.
fn planned_units(state: &RunState) -> impl Iterator<Item = &UnitState> {
    state.units.iter().filter(|unit| unit.planned.is_some())
}

/// Warns about units that are not part of the run.
fn warn_excluded_units(
    warn: WarningSink<'_>,
    continues: &ContinuedRun,
    known: &HashMap<&str, &UnitState>,
    units: &[WorkUnit],
    new: &[WorkUnit],
) {
    let run = continues.run.short();
    let mut gone: Vec<&str> = known
        .keys()
        .copied()
        .filter(|key| !units.iter().any(|unit| unit.planned.unit.as_str() == *key))
        .collect();
    gone.sort_unstable();
    let mut sentences = Vec::new();
    if !gone.is_empty() {
        let what = pluralize(gone.len(), "unit");
        sentences.push(format!(
            "{what} of run {run} left out because the plan does not contain them: {}",
            join_names(&gone)
        ));
    }
    if !new.is_empty() {
        let names: Vec<&str> = new.iter().map(|unit| unit.planned.unit.as_str()).collect();
        let what = pluralize(new.len(), "unit");
        sentences.push(format!(
            "{what} left out because run {run} does not contain them: {}",
            join_names(&names)
        ));
    }
    warn_all(warn, &sentences);
}

fn join_names(names: &[&str]) -> String {
    let more = if names.len() > MAX_NAMED { ", …" } else { "" };
    names
        .iter()
        .take(MAX_NAMED)
        .copied()
        .collect::<Vec<_>>()
        .join(", ")
        + more
}

/// The run of units that `what` names, and its final state.
fn find_resumable(runs: &RunStore, what: &str) -> Result<(RecordedRun, RunState), ResumeError> {
    if what != "latest" {
        let found = runs.resolve(what)?;
        let state = fold_finished(runs, &found)?;
        return match not_resumable_reason(&state) {
            None => Ok((found, state)),
            Some(why) => Err(ResumeError::NotResumable(
                why.prefixed(format_args!("run {} ", found.id.short())),
            )),
        };
    }
    // Plain sessions are recorded in the same store, and one of them may be running.
    for found in runs.list()? {
        let over = ensure_finished(runs, &found);
        let state = recorded_tapes::fold(runs, &found)?;
        if not_resumable_reason(&state).is_none() {
            return over.map(|()| (found, state));
        }
    }
    Err(ResumeError::NoRun)
}

/// Why a run cannot be resumed, as the end of a sentence about it.
pub fn not_resumable_reason(state: &RunState) -> Option<Problem> {
    match &state.planned {
        Some(plan) if plan.scripted => Some(
            Problem::new("was played by a script, so it cannot be resumed or reviewed")
                .with_help("start another with `ingestdeck demo`, or `ingestdeck demo --review`"),
        ),
        Some(plan) if plan.has_project_units() => None,
        Some(_) if !state.inputs.sources.is_empty() => None,
        _ => Some(
            Problem::new("is not a run of work units")
                .with_help("list the recorded runs with `ingestdeck runs list`"),
        ),
    }
}

/// The final state of a finished run.
fn fold_finished(runs: &RunStore, found: &RecordedRun) -> Result<RunState, ResumeError> {
    ensure_finished(runs, found)?;
    Ok(recorded_tapes::fold(runs, found)?)
}

fn ensure_finished(runs: &RunStore, found: &RecordedRun) -> Result<(), ResumeError> {
    if runs.status(found)? != RunStatus::Running {
        return Ok(());
    }
    let holder = runs
        .lock_holder_pid(found.id)
        .map(|pid| format!(" in process {pid}"))
        .unwrap_or_default();
    Err(ResumeError::Running {
        run: found.id,
        holder,
    })
}
