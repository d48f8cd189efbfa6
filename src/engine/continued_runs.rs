//! Which runs continue which, and which reviews later runs finished.

use std::{collections::HashSet, path::Path};

use super::recorded_tapes;
use ingestdeck_core::{
    run::continuation::{RunContinuation, SettledResult, SettledResults},
    tape::{PROJECTION_KEY, RECONCILE_KEY, RunId, UnitKey, VERBATIM_KEY},
};
use ingestdeck_ingest as ingest;
use ingestdeck_records::store::{
    Db, RunStore,
    db::{DbError, IndexedContinuation, SupersededResult},
    runs::RunStoreError,
};

/// The runs of a project that continue others, or that others can continue.
#[derive(Debug, Default)]
pub struct ContinuedRuns {
    /// In the order from the newest to the oldest.
    runs: Vec<IndexedContinuation>,
    settled: SettledResults,
    /// Runs that this installation recorded.
    marked: HashSet<RunId>,
}

impl ContinuedRuns {
    /// Reads the updated index, or all tapes if it cannot be used.
    ///
    /// # Errors
    /// If the runs cannot be listed.
    pub fn read(runs: &RunStore) -> Result<Self, RunStoreError> {
        if runs.list()?.is_empty() {
            return Ok(Self::default());
        }
        let indexed = recorded_tapes::open_updated_index(runs).ok();
        if let Some(found) = indexed.and_then(|(db, _)| Self::from_index(&db, runs.project()).ok())
        {
            return Ok(found);
        }
        let folded = runs.list()?.into_iter().filter_map(|found| {
            // An unreadable record proves nothing.
            let state = recorded_tapes::fold(runs, &found).ok()?;
            let continuation = RunContinuation::from_state(found.id, &state);
            let has_unsaved_review = state.publication.unsaved_review().is_some();
            Some(IndexedContinuation {
                run: found.id,
                has_unsaved_review,
                continuation,
            })
        });
        Ok(Self::new(runs.project(), folded.collect()))
    }

    /// Reads the index of the project at `root`. Only the index knows which results later runs replaced without
    /// continuing the run that made them.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn from_index(db: &Db, root: &Path) -> Result<Self, DbError> {
        let mut continued = Self::new(root, db.continuations()?);
        for SupersededResult { run, unit, by } in db.superseded_results()? {
            // A record from elsewhere settles nothing of this installation.
            if ingest::is_run_marked(root, by) || !ingest::is_run_marked(root, run) {
                let producer = continued
                    .get(run)
                    .and_then(|known| known.continuation.pending_producer(&unit));
                producer
                    .into_iter()
                    .for_each(|of| continued.settled.add_superseded(of, unit.clone(), by));
                continued.settled.add_superseded(run, unit, by);
            }
        }
        Ok(continued)
    }

    fn new(root: &Path, runs: Vec<IndexedContinuation>) -> Self {
        let marked: HashSet<RunId> = runs
            .iter()
            .map(|known| known.run)
            .filter(|run| ingest::is_run_marked(root, *run))
            .collect();
        let mut settled = SettledResults::default();
        for IndexedContinuation {
            run, continuation, ..
        } in &runs
        {
            // A record from elsewhere settles nothing of this installation.
            settled.add(*run, continuation, |prior| {
                marked.contains(run) || !marked.contains(&prior)
            });
        }
        Self {
            runs,
            settled,
            marked,
        }
    }

    fn get(&self, run: RunId) -> Option<&IndexedContinuation> {
        let at = self
            .runs
            .binary_search_by(|known| run.cmp(&known.run))
            .ok()?;
        self.runs.get(at)
    }

    /// The run that `run` continues.
    pub fn continued_run(&self, run: RunId) -> Option<RunId> {
        self.get(run)?.continuation.continues
    }

    /// The later run that finished the review of `run`; `None` if changes of it still wait, or if it had no review.
    pub fn reviewed_by(&self, run: RunId) -> Option<RunId> {
        let known = self.get(run).filter(|known| known.has_unsaved_review)?;
        self.settled.settled_by(run, &known.continuation)
    }

    /// True if changes of `run` wait for a review, and no later run finished it.
    pub fn has_open_review(&self, run: RunId) -> bool {
        self.get(run).is_some_and(|known| known.has_unsaved_review)
            && self.reviewed_by(run).is_none()
    }

    /// The newest later run with an open review in which changes of `run` wait, too.
    pub fn open_successor(&self, run: RunId) -> Option<RunId> {
        let of_run = &self.get(run)?.continuation;
        let mut later = self.runs.iter().take_while(|known| known.run > run);
        let is_open = |known: &&IndexedContinuation| {
            let may_continue = self.marked.contains(&known.run) || !self.marked.contains(&run);
            let shares_others = || {
                of_run.has_other_changes
                    && known.continuation.has_other_changes
                    && self.chain(known.run).any(|it| it == run)
            };
            may_continue
                && (known.continuation.shares_pending(of_run) || shares_others())
                && self.has_open_review(known.run)
        };
        later.find(is_open).map(|known| known.run)
    }

    /// The first run with an open review among `run` and those that it continues.
    pub(crate) fn open_review_of(&self, run: RunId) -> Option<RunId> {
        self.chain(run).find(|run| self.has_open_review(*run))
    }

    /// True if a run that `later` neither is nor continues continues `run`.
    pub(super) fn is_continued_besides(&self, run: RunId, later: RunId) -> bool {
        let mut others = self.runs.iter().filter(|known| known.run != later);
        others.any(|known| {
            known.continuation.continues == Some(run) && !self.continues(later, known.run)
        })
    }

    /// True if `later` continues `run`, directly or by runs between them.
    pub(super) fn continues(&self, later: RunId, run: RunId) -> bool {
        self.chain(later).any(|it| it == run)
    }

    /// `run`, and the runs that it continues.
    fn chain(&self, run: RunId) -> impl Iterator<Item = RunId> {
        let mut seen = HashSet::new();
        std::iter::successors(Some(run), |run| self.continued_run(*run))
            .take_while(move |run| seen.insert(*run))
    }

    /// The units of `run` whose changes wait no longer.
    pub fn settled_units(&self, run: RunId) -> HashSet<UnitKey> {
        let Some(known) = self.get(run) else {
            return HashSet::new();
        };
        let mut units: HashSet<UnitKey> = self
            .settled
            .settled(run, &known.continuation)
            .into_keys()
            .cloned()
            .collect();
        if self.has_finished_sources(run) {
            units.extend([PROJECTION_KEY, VERBATIM_KEY].map(UnitKey::from));
        }
        units
    }

    /// True if a later run left out a result of `run` for which another run may still ask.
    pub fn has_left_out(&self, run: RunId) -> bool {
        let settled = self
            .get(run)
            .map(|known| self.settled.settled(run, &known.continuation))
            .unwrap_or_default();
        settled.into_values().any(|result| !result.is_saved)
    }

    /// True if a later run saved or rejected the sources that `run` derived. It takes over all that are up to date.
    pub(crate) fn has_finished_sources(&self, run: RunId) -> bool {
        self.settled.finished_by(run).is_some()
    }

    /// How a later run settled the result of `unit` that waits in `run`, and that `producer` made.
    pub(crate) fn settled_result(
        &self,
        run: RunId,
        unit: &UnitKey,
        producer: RunId,
    ) -> Option<SettledResult> {
        let step = || {
            self.settled
                .settled(run, &self.get(run)?.continuation)
                .get(unit)
                .copied()
        };
        match unit.as_str() {
            RECONCILE_KEY => self.settled.result(producer, unit).or_else(step),
            _ => self.settled.result(producer, unit),
        }
    }
}
