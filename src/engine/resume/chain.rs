//! A run and the runs that it continues: their units, and what they left in no commit.

use std::collections::BTreeSet;

use super::{ResumeError, RunPlan, fold_finished, planned_units};
use crate::{WarningSink, continued_runs::ContinuedRuns, prepare::TargetBranch, warn_all};
use ingestdeck_core::{
    diagnostic::Problem,
    run::{
        RunState, artifacts::run_artifacts, prior_run::PriorRunView, review::ReviewState,
        saved_commits::saved_commits,
    },
    tape::{
        RunId, UnitKey,
        note::{PlannedUnit, SourceRead, SourcesProjected},
    },
    units::reuse::PriorUnit,
};
use ingestdeck_ingest::{
    self as ingest,
    committed_changes::{CommittedRun, RunCommit},
    plan::{IngestPlan, SourcePlan},
    project::Project,
};
use ingestdeck_records::store::{RecordedRun, RunStore};

/// A run and the chain of runs that it continues, newest first.
#[derive(Debug)]
pub(super) struct ResumeChain {
    last: (RunId, RunState),
    before: Vec<(RunId, RunState)>,
}

impl ResumeChain {
    pub(super) fn load(
        runs: &RunStore,
        last: (RecordedRun, RunState),
    ) -> Result<Self, ResumeError> {
        const MOST: usize = 64;
        let continued = |state: &RunState| {
            state
                .planned
                .as_ref()?
                .continues
                .as_ref()
                .map(|continues| continues.run)
        };
        let recorded = runs.list()?;
        let (found, state) = last;
        let mut next = continued(&state);
        let mut chain = Self {
            last: (found.id, state),
            before: Vec::new(),
        };
        while chain.before.len() < MOST {
            let Some(found) = next.and_then(|run| recorded.iter().find(|found| found.id == run))
            else {
                break;
            };
            let state = fold_finished(runs, found)?;
            next = continued(&state);
            chain.before.push((found.id, state));
        }
        Ok(chain)
    }

    pub(super) fn id(&self) -> RunId {
        self.last.0
    }

    pub(super) fn state(&self) -> &RunState {
        &self.last.1
    }

    /// The runs with their final states, newest first.
    pub(super) fn runs(&self) -> impl Iterator<Item = (RunId, &RunState)> {
        let all = std::iter::once(&self.last).chain(&self.before);
        all.map(|(run, state)| (*run, state))
    }

    pub(super) fn oldest(&self) -> RunId {
        self.before.last().unwrap_or(&self.last).0
    }

    /// The states of all runs, newest first.
    pub(super) fn states(&self) -> impl Iterator<Item = &RunState> {
        std::iter::once(&self.last)
            .chain(&self.before)
            .map(|(_, state)| state)
    }

    /// The units of all runs, those of the newest run first.
    pub(super) fn units(&self) -> impl Iterator<Item = &PlannedUnit> {
        let all = std::iter::once(&self.last).chain(&self.before);
        all.flat_map(|(_, state)| planned_units(state))
            .filter_map(|unit| unit.planned.as_deref())
    }

    /// The runs from `run` on, newest first; empty if it is not in the chain.
    pub(super) fn since(&self, run: RunId) -> Vec<&RunState> {
        let all: Vec<_> = std::iter::once(&self.last).chain(&self.before).collect();
        let count = all
            .iter()
            .position(|(id, _)| *id == run)
            .map_or(0, |at| at + 1);
        all.into_iter()
            .take(count)
            .map(|(_, state)| state)
            .collect()
    }

    /// The state of `unit` in the last run that planned it.
    pub(super) fn prior_unit(&self, unit: &str) -> Option<PriorUnit<'_>> {
        let mut all = std::iter::once(&self.last).chain(&self.before);
        all.find_map(|(run, state)| {
            let unit = planned_units(state).find(|planned| planned.key.as_str() == unit)?;
            Some(PriorRunView::new(state, *run).prior_unit(unit))
        })
    }

    /// The decisions about changes that are in no commit. Those of a record from elsewhere do not count.
    fn decisions(&self, project: &Project) -> Option<ReviewState> {
        let review = self.state().publication.unsaved_review()?;
        ingest::is_run_marked(&project.root, self.id()).then(|| review.clone())
    }

    /// Sources that the run projected and that are in no commit. Patches of a record from elsewhere do not count.
    fn unsaved_projections(
        &self,
        project: &Project,
        continued: &ContinuedRuns,
    ) -> Vec<SourcesProjected> {
        let is_own = ingest::is_run_marked(&project.root, self.id())
            && !continued.has_finished_sources(self.id());
        let unsaved = self
            .state()
            .inputs
            .projected
            .iter()
            .filter(|projected| is_own && projected.is_unsaved());
        unsaved
            .map(|projected| SourcesProjected::clone(projected))
            .collect()
    }

    /// True if the raw files that the sources or pages were derived from are as they were. Texts of the command line have
    /// no files.
    fn is_current(&self, projected: &SourcesProjected, planned: &IngestPlan) -> bool {
        if projected.is_about_texts() {
            return true;
        }
        let prior = self
            .state()
            .inputs
            .sources
            .iter()
            .find(|prior| projected.is_of(Some(&prior.connection)));
        let now = planned
            .sources
            .iter()
            .find(|now| projected.is_of(Some(&now.connection)));
        let (Some(prior), Some(now)) = (prior, now.map(SourcePlan::to_note)) else {
            return false;
        };
        let hash = |source: &SourceRead, path: &String| {
            source
                .files
                .iter()
                .find(|file| file.path == *path)
                .map(|file| file.sha256.clone())
        };
        let mut paths = projected
            .actions
            .iter()
            .flat_map(|action| action.raw_paths.iter().flatten());
        paths.all(|path| {
            hash(&now, path)
                .is_some_and(|hash_now| hash(prior, path).is_none_or(|prior| prior == hash_now))
        })
    }

    /// The branch that the run commits to, if it is not the current one. A record from elsewhere cannot choose it.
    fn branch(&self, project: &Project) -> Option<TargetBranch> {
        let name = self.state().publication.target_branch.as_deref()?;
        let mut saves = self
            .states()
            .flat_map(|state| state.publication.saves.iter().rev());
        let last = saves.find(|saved| saved.branch.as_deref() == Some(name));
        let branch = TargetBranch {
            name: name.to_owned(),
            commit: last.and_then(|saved| saved.commit.clone()),
        };
        ingest::is_run_marked(&project.root, self.id()).then_some(branch)
    }

    /// The run whose commits are reviewed: the one whose review this run began and did not finish, or else this run
    /// itself if its review `is_requested`. Commits that a record from elsewhere names do not count.
    ///
    /// # Errors
    /// If the record of the run is gone.
    pub(crate) fn committed_run(
        &self,
        project: &Project,
        is_requested: bool,
    ) -> Result<Option<CommittedRun>, ResumeError> {
        let publication = &self.state().publication;
        let of = match (publication.unsaved_review(), publication.committed_run) {
            (Some(_), Some(run)) => run,
            (Some(_), None) => return Ok(None),
            (None, _) if is_requested => self.id(),
            (None, _) => return Ok(None),
        };
        let Some((run, state)) = std::iter::once(&self.last)
            .chain(&self.before)
            .find(|(run, _)| *run == of)
        else {
            let problem = format!(
                "the record of run {}, whose commits run {} reviews, is gone",
                of.short(),
                self.id().short()
            );
            return Err(ResumeError::NotResumable(
                Problem::new(problem)
                    .with_help("take its changes back by hand, or with `git revert`"),
            ));
        };
        let are_own = ingest::is_run_marked(&project.root, self.id())
            && ingest::is_run_marked(&project.root, *run);
        Ok(committed_run(*run, state).filter(|_| are_own))
    }

    /// Adds to a plan what the run has decided and not saved.
    pub(super) fn add_unsaved(
        &self,
        project: &Project,
        continued: &ContinuedRuns,
        plan: &mut RunPlan,
        warn: WarningSink<'_>,
    ) {
        plan.review = self.decisions(project);
        plan.branch = self.branch(project);
        let (current, old): (Vec<_>, Vec<_>) = self
            .unsaved_projections(project, continued)
            .into_iter()
            .partition(|it| self.is_current(it, &plan.planned));
        plan.projected = current;
        let sentence = |projected: SourcesProjected| {
            let connection = projected.connection?;
            let what = projected.cause.noun();
            Some(format!(
                "{connection}: {what} of the prior run are left out, because their files changed"
            ))
        };
        warn_all(
            warn,
            &old.into_iter().filter_map(sentence).collect::<Vec<_>>(),
        );
        plan.is_reviewed = self.state().publication.is_reviewed;
    }
}

/// What the commits of a run changed; `None` without any.
pub fn committed_run(run: RunId, state: &RunState) -> Option<CommittedRun> {
    let commits = saved_commits(&state.inputs, &state.publication).into_iter();
    let commits: Vec<RunCommit> = commits
        .map(|commit| RunCommit {
            id: commit.id,
            paths: commit.paths,
        })
        .collect();
    let counting = run_artifacts(state)
        .into_iter()
        .filter(|artifact| artifact.state.counts());
    let writers = counting.map(|artifact| {
        let units: BTreeSet<UnitKey> = artifact
            .effective_writers()
            .map(|writer| writer.unit.clone())
            .collect();
        (artifact.path, units.into_iter().collect())
    });
    let writers = writers.collect();
    (!commits.is_empty()).then_some(CommittedRun {
        run,
        commits,
        writers,
    })
}
