//! The review of a run: the decisions of clients about the integrated changes, and what they leave in the commit.
//!
//! Every decision is on the tape before it takes effect. When the run waits, and what follows, is decided in
//! `units::schedule`.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use ingestdeck_core::{
    control::{RefusalReason, ReviewOrder},
    diagnostic::Diagnostic as _,
    run::{
        Recorder,
        entry_source::RecordError,
        review::{ReviewState, is_bound},
    },
    tape::{
        Note, RECONCILE_KEY, UnitKey,
        note::{
            Amendment, BlockedFile, ReviewDecided, ReviewDecision, ReviewRequested, ReviewedFile,
        },
    },
};
use ingestdeck_ingest::repository::Repository;

/// Bytes of edited texts in a request: a longer line of a tape would be shortened when it is read.
const MAX_DECIDED_BYTES: usize = 1 << 20;

/// The review of one run. Clients and the integration share it.
#[derive(Debug)]
pub(crate) struct RunReview {
    recorder: Arc<dyn Recorder>,
    inner: Mutex<InnerReview>,
}

#[derive(Debug, Default)]
struct InnerReview {
    /// The last review, with its decisions.
    state: Option<ReviewState>,
    /// The session of the last attempt at each unit.
    sessions: HashMap<UnitKey, String>,
    /// Units that worked since the end of the last review.
    worked: HashSet<UnitKey>,
    /// Decisions of a prior run about the same changes.
    prior: Option<ReviewState>,
    /// The last review is about the changes that are integrated now.
    is_current: bool,
    /// Files of the user that block the commit are left out of it; they wait for another review.
    leaves_blocked: bool,
    /// The repository that the run commits to.
    repository: Option<Repository>,
    /// The units that can work again; `None` if they are not known.
    units: Option<HashSet<UnitKey>>,
}

impl RunReview {
    /// A review that begins with the decisions of a `prior` run about equal changes.
    pub(crate) fn new(recorder: Arc<dyn Recorder>, prior: Option<ReviewState>) -> Self {
        Self {
            recorder,
            inner: Mutex::new(InnerReview {
                prior,
                ..InnerReview::default()
            }),
        }
    }

    /// Unchanged by a panic, since all changes of the state are single assignments.
    fn inner(&self) -> MutexGuard<'_, InnerReview> {
        self.inner.lock()
    }

    /// Records the session of an attempt, in which its agent can be asked for changes.
    pub(crate) fn record_session(&self, unit: &UnitKey, session: &str) {
        let mut inner = self.inner();
        inner.sessions.insert(unit.clone(), session.to_owned());
        inner.worked.insert(unit.clone());
    }

    /// Begins a review of the changes in `request`.
    ///
    /// # Errors
    /// If it cannot be recorded.
    pub(crate) fn request(&self, request: ReviewRequested) -> Result<(), RecordError> {
        let (mut request, mut long) = (Arc::new(request), Vec::new());
        let mut inner = self.inner();
        if let Some(prior) = inner.prior.take() {
            // The tape of this run does not have them. In the same note, a program that is killed loses none.
            let mut bytes = 0;
            let fits = |decided: &ReviewDecided| {
                bytes += decided.text.as_ref().map_or(0, String::len);
                bytes <= MAX_DECIDED_BYTES
            };
            (Arc::make_mut(&mut request).decided, long) =
                ReviewState::new(Arc::clone(&request), Some(&prior))
                    .decisions()
                    .into_iter()
                    .partition(fits);
            // Only the prior run had the reconcile step.
            Arc::make_mut(&mut request)
                .evicted
                .extend(prior.request.evicted.iter().cloned());
        } else if let Some(state) = inner.state.as_ref().filter(|state| state.is_finished) {
            // Units that could not start did not make the changes again that were sent back.
            let has_worked = |path: &str| {
                let file = state.file(path).map(|(file, _)| file);
                file.is_some_and(|file| file.units.iter().any(|unit| inner.worked.contains(unit)))
            };
            let mut sent_back = state.decisions();
            sent_back.retain(|it| it.decision == ReviewDecision::SentBack && !has_worked(&it.path));
            Arc::make_mut(&mut request).decided = sent_back;
        }
        self.recorder
            .record_note(None, &Note::ReviewRequested(Arc::clone(&request)))?;
        let mut state = ReviewState::new(request, inner.state.as_ref());
        for decided in long {
            state.decide(&decided);
            self.recorder
                .record_note(None, &Note::ReviewDecided(Box::new(decided)))?;
        }
        (inner.state, inner.is_current) = (Some(state), true);
        Ok(())
    }

    /// Refuses further decisions: the run ends, or units work again.
    pub(crate) fn close(&self) {
        if let Some(state) = &mut self.inner().state {
            state.is_waiting = false;
        }
    }

    /// The changes are integrated again, so the decisions wait for the next review.
    pub(crate) fn begin_integration(&self) {
        self.close();
        self.inner().is_current = false;
    }

    /// Waits again for the end of the review, because its result could not be saved. Returns false if there is none.
    pub(crate) fn reopen(&self) -> Result<bool, RecordError> {
        let inner = self.inner();
        let state = inner.state.as_ref().filter(|_| inner.is_current);
        let request = state.map(|state| Arc::clone(&state.request));
        drop(inner);
        let again = |request| ReviewRequested {
            decided: Vec::new(),
            ..Arc::unwrap_or_clone(request)
        };
        let Some(request) = request else {
            return Ok(false);
        };
        self.request(again(request)).map(|()| true)
    }

    /// Records and applies decisions: all of them, or none if one is refused.
    pub(crate) fn decide(&self, orders: Vec<ReviewOrder>) -> Result<(), RefusalReason> {
        let mut inner = self.inner();
        let inner = &mut *inner;
        let state = inner
            .state
            .as_mut()
            .filter(|state| state.is_waiting)
            .ok_or(RefusalReason::NotInReview)?;
        let mut decided = state.clone();
        decided.begin_act();
        let notes: Vec<ReviewDecided> =
            orders.into_iter().map(ReviewOrder::into_decision).collect();
        let units = inner.units.as_ref();
        let only_reconciled = notes.iter().find(|note| {
            let file = decided.file(&note.path).map(|(file, _)| file);
            let has_no_unit = |unit: &UnitKey| {
                let is_planned = units.is_none_or(|units| units.contains(unit));
                !is_planned || unit.as_str() == RECONCILE_KEY || unit.is_without_attempt()
            };
            let is_reconciled = |file: &ReviewedFile| file.units.iter().all(has_no_unit);
            note.decision == ReviewDecision::SentBack && file.is_some_and(is_reconciled)
        });
        if let Some(note) = only_reconciled {
            let path = note.path.escape_debug();
            let problem =
                format!("no unit of the plan changed {path}; accept, reject or edit it instead");
            return Err(RefusalReason::InvalidArgument { problem });
        }
        if let Some(unknown) = notes.iter().find(|note| !decided.decide(note)) {
            return Err(RefusalReason::UnknownChange {
                path: unknown.path.clone(),
            });
        }
        for note in notes {
            self.recorder
                .record_note(None, &Note::ReviewDecided(Box::new(note)))
                .map_err(|error| not_recorded(&error))?;
        }
        *state = decided;
        Ok(())
    }

    /// Checks that the last decisions can be withdrawn; `known` is the number of commands with decisions that
    /// the client has seen.
    pub(crate) fn check_undo(&self, known: Option<u32>) -> Result<(), RefusalReason> {
        let inner = self.inner();
        let state = inner
            .state
            .as_ref()
            .filter(|state| state.is_waiting)
            .ok_or(RefusalReason::NotInReview)?;
        let problem = match state.act_count() {
            0 => "no decision to undo",
            acts if known.is_some_and(|known| usize::try_from(known) != Ok(acts)) => {
                "the decisions have changed meanwhile; look at them, then undo again"
            }
            _ => return Ok(()),
        };
        Err(RefusalReason::InvalidArgument {
            problem: problem.to_owned(),
        })
    }

    /// Records and withdraws the decisions of the last command that made some.
    pub(crate) fn undo(&self) -> Result<(), RefusalReason> {
        let mut inner = self.inner();
        let state = inner
            .state
            .as_mut()
            .filter(|state| state.is_waiting)
            .ok_or(RefusalReason::NotInReview)?;
        let notes = state.undo_decisions();
        let mut before = state.clone();
        before.begin_undo();
        for note in notes {
            before.decide(&note);
            self.recorder
                .record_note(None, &Note::ReviewDecided(Box::new(note)))
                .map_err(|error| not_recorded(&error))?;
        }
        *state = before;
        Ok(())
    }

    /// Checks that the review can end.
    pub(crate) fn check_finished(&self) -> Result<(), RefusalReason> {
        let inner = self.inner();
        let state = inner
            .state
            .as_ref()
            .filter(|state| state.is_waiting)
            .ok_or(RefusalReason::NotInReview)?;
        let open = state.counts().open;
        let first = state.by_path().find(|(_, file)| {
            file.hunks
                .iter()
                .any(|hunk| hunk.decision == ReviewDecision::Open)
        });
        match first {
            Some((file, _)) => Err(RefusalReason::ReviewIncomplete {
                open,
                path: file.path.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The next commit leaves out what files of the user block, or not.
    pub(crate) fn set_leaves_blocked(&self, leaves_blocked: bool) {
        self.inner().leaves_blocked = leaves_blocked;
    }

    /// The review of the changes that are integrated now without those that are bound to the files `blocked`, and the
    /// units that made these. `None` if the end of the review does not allow it, or nothing else can be committed.
    pub(crate) fn without_blocked(
        &self,
        blocked: &[BlockedFile],
    ) -> Option<(ReviewState, HashSet<UnitKey>)> {
        let mut rest = self.current().filter(|_| self.inner().leaves_blocked)?;
        if blocked.is_empty() || rest.count_without(blocked) == 0 {
            return None;
        }
        let left = rest.units_bound_to(blocked);
        for file in Arc::clone(&rest.request)
            .files
            .iter()
            .filter(|file| is_bound(file, &left))
        {
            rest.decide(&ReviewDecided {
                path: file.path.clone(),
                decision: ReviewDecision::Rejected,
                ..ReviewDecided::default()
            });
        }
        Some((rest, left))
    }

    /// Only these units can work again.
    pub(crate) fn set_units(&self, units: HashSet<UnitKey>) {
        self.inner().units = Some(units);
    }

    /// Lets the run commit to `repository`.
    pub(crate) fn set_repository(&self, repository: Repository) {
        self.inner().repository = Some(repository);
    }

    /// Commits go to `branch` from now on. Calls git.
    ///
    /// # Errors
    /// If the branch is unusable, or the run has commits on another one.
    pub(crate) fn select_branch(&self, branch: &str) -> Result<(), RefusalReason> {
        let Some(repository) = self.inner().repository.clone() else {
            return Err(RefusalReason::NotInReview);
        };
        let invalid = |problem| RefusalReason::InvalidArgument { problem };
        if let Some(known) = repository.target_branch().filter(|known| known != branch)
            && repository
                .has_target_commits()
                .map_err(|error| invalid(error.to_line()))?
        {
            return Err(invalid(format!(
                "the run has commits on branch {known} already"
            )));
        }
        repository
            .set_target_branch(branch, None)
            .map_err(|error| invalid(error.to_line()))
    }

    /// Ends the review; `is_branch_named` if its end named a branch. Returns the units that make their changes again, each in the session of its last attempt.
    ///
    /// # Errors
    /// If it cannot be recorded.
    pub(crate) fn finish(
        &self,
        is_branch_named: bool,
    ) -> Result<Vec<(UnitKey, Amendment)>, RefusalReason> {
        let mut inner = self.inner();
        let InnerReview {
            state: Some(state),
            sessions,
            worked,
            repository,
            ..
        } = &mut *inner
        else {
            return Ok(Vec::new());
        };
        let units = state.units_sent_back(|unit| !sessions.contains_key(unit));
        let sent_back = units.iter().map(|(unit, _)| unit.clone()).collect();
        let branch = repository.as_ref().and_then(Repository::target_branch);
        let named = is_branch_named.then_some(Note::BranchSelected { branch });
        for note in named
            .into_iter()
            .chain([Note::ReviewFinished { sent_back }])
        {
            self.recorder
                .record_note(None, &note)
                .map_err(|error| not_recorded(&error))?;
        }
        (state.is_waiting, state.is_finished) = (false, true);
        worked.clear();
        let amendment = |unit: &UnitKey, feedback: String| Amendment {
            feedback: Some(feedback),
            resume: sessions.get(unit).cloned(),
            ..Amendment::default()
        };
        Ok(units
            .into_iter()
            .map(|(unit, text)| (unit.clone(), amendment(&unit, text)))
            .collect())
    }

    /// What the reviewer did not accept of the earlier changes of a unit.
    pub(crate) fn remarks(&self, unit: &UnitKey) -> Option<String> {
        let inner = self.inner();
        if let Some(state) = &inner.state {
            return state.remarks(unit);
        }
        // The run resumes one that ended while the unit worked again, with what it was asked for.
        let prior = inner.prior.as_ref()?;
        let asked = prior
            .units_sent_back(|_| true)
            .into_iter()
            .find(|(sent, _)| sent == unit);
        let parts: Vec<String> = asked
            .map(|(_, feedback)| feedback)
            .into_iter()
            .chain(prior.remarks(unit))
            .collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    /// The decisions about the changes that are integrated now, if there was a review of them.
    pub(crate) fn current(&self) -> Option<ReviewState> {
        let inner = self.inner();
        inner.state.clone().filter(|_| inner.is_current)
    }
}

fn not_recorded(error: &RecordError) -> RefusalReason {
    RefusalReason::InvalidArgument {
        problem: format!("the tape cannot be written: {error}"),
    }
}
