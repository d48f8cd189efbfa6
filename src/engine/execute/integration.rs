//! The patches of a run: their collection, integration, and the commit that contains them. What is integrated and saved
//! when is decided in `units::schedule`.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    super::{driver::SaveOutcome, review::RunReview},
    ahead::AheadIntegration,
    ingest_run::IngestRun,
    reconcile_step::ReconcileBacklog,
};
use ingestdeck_agent::caught_panics;
use ingestdeck_core::{
    diagnostic::Diagnostic,
    run::{
        Recorder,
        commit_trailers::{CommitMessage, NOTES_REF},
        review::ReviewState,
        state::RECONCILE_KEY,
    },
    tape::{
        Note, UnitKey,
        note::{
            self, AttemptOutput, BlockedFile, DiffCounts, IntegrationStarted, PatchIntegrated,
            ReviewRequested, SaveFailed, Severity, SlRefsRepaired, StopReason, VerdictCause,
        },
    },
    text::{list_some, pluralize},
    units::{
        schedule::{IntegratedUnit, IntegrationReport},
        verdict,
    },
};
use ingestdeck_ingest::{
    committed_changes,
    git::CommitId,
    integrate::{
        IntegrationError, PatchIntegrator, PatchOutcome, RawCopy, SavedIntegration, UnitPatch,
    },
    reconcile::StageIndex,
};

/// Owns the patches of a run: which wait, which are integrated, saved, or saved without a review. All changes of that
/// state go through its methods.
#[derive(Debug)]
pub(super) struct Integration {
    run: Arc<IngestRun>,
    recorder: Arc<dyn Recorder>,
    /// Locked while patches are integrated or saved.
    state: Mutex<IntegrationState>,
    /// Units whose last attempt is saved in the project. Apart from the state, so that attempts need not wait for it.
    saved: Mutex<HashSet<UnitKey>>,
    /// The decisions about the integrated changes.
    review: Arc<RunReview>,
    /// Patches that are integrated while units run.
    ahead: Arc<AheadIntegration>,
}

/// Waiting patches, and the state of their integration.
#[derive(Debug, Default)]
struct IntegrationState {
    /// The newest patch of each unit: its attempt, and its file unless the patch is empty.
    patches: HashMap<UnitKey, (u32, Option<PathBuf>)>,
    /// Set between integration and saving.
    integrator: Option<PatchIntegrator>,
    /// The commit that contains the integrated patches.
    head: Option<CommitId>,
    /// What became of the patches since the integration began, in its order.
    results: Vec<IntegratedUnit>,
    /// Why there is nothing to save.
    error: Option<String>,
    /// Other work that the reconcile step must still review.
    backlog: ReconcileBacklog,
}

impl Integration {
    pub(super) fn new(
        run: Arc<IngestRun>,
        recorder: Arc<dyn Recorder>,
        review: Arc<RunReview>,
    ) -> Self {
        let backlog = ReconcileBacklog::new(run.reconcile.as_ref());
        let state = Mutex::new(IntegrationState {
            backlog,
            ..IntegrationState::default()
        });
        review.set_repository(run.worktrees.repository().clone());
        let new = Self {
            ahead: AheadIntegration::new(Arc::clone(&run), Arc::clone(&recorder)),
            run,
            recorder,
            state,
            saved: Mutex::default(),
            review,
        };
        for (unit, path) in new.run.reconcile.iter().flat_map(|pass| &pass.unreconciled) {
            new.add_prior_patch(unit, path);
        }
        new
    }

    pub(super) fn review(&self) -> &RunReview {
        &self.review
    }

    /// Adds a patch of a prior run; `path` is relative to the project.
    pub(super) fn add_prior_patch(&self, unit: &UnitKey, path: &str) {
        // Attempt 0 marks a prior run, as the attempts of this run count from 1.
        self.add_patch(unit, 0, Some(self.run.project.root.join(path)));
    }

    /// Adds the patch of an attempt.
    pub(super) fn add_patch(&self, unit: &UnitKey, attempt: u32, file: Option<PathBuf>) {
        self.state().patches.insert(unit.clone(), (attempt, file));
    }

    /// Records a successful attempt at the reconcile step.
    pub(super) fn record_reconciled(&self, stop: StopReason, work: &AttemptOutput) {
        if let Some(pass) = &self.run.reconcile {
            self.state()
                .backlog
                .record_success(stop, work, &pass.artifacts_by_deleted_file);
        }
    }

    /// True if the last attempt at `unit` is saved in the project.
    pub(super) fn is_saved(&self, unit: &UnitKey) -> bool {
        self.saved().contains(unit)
    }

    /// A later attempt at `unit` has ended.
    pub(super) fn mark_unsaved(&self, unit: &UnitKey) {
        self.saved().remove(unit);
    }

    /// What the reconcile step reviews, and the commit that contains it.
    pub(super) fn reconcile_stage(&self) -> (StageIndex, Option<CommitId>) {
        let state = self.state();
        let patch = |unit: &UnitKey| state.patches.get(unit)?.1.clone();
        (
            state.backlog.stage_index(&self.run, &state.results, &patch),
            state.head.clone(),
        )
    }

    /// Begins to integrate the patches of these attempts, after the first `kept` of those before.
    pub(super) fn integrate_ahead(&self, kept: usize, units: &[(UnitKey, u32)]) {
        let patches = self.unit_patches(&self.state(), units);
        self.ahead.extend(kept, patches);
    }

    /// Ends work in the background, and removes what it made.
    pub(super) async fn close(&self) {
        self.ahead.close().await;
    }

    /// The patches of these attempts.
    fn unit_patches(&self, state: &IntegrationState, units: &[(UnitKey, u32)]) -> Vec<UnitPatch> {
        let patch = |(unit, attempt): &(UnitKey, u32)| {
            let newest = state.patches.get(unit).filter(|(of, _)| of == attempt);
            self.run
                .unit_patch(unit, newest.and_then(|(_, file)| file.clone()))
        };
        units.iter().map(patch).collect()
    }

    /// Integrates the patches of these attempts in this order, and records the result of each.
    pub(super) async fn integrate(
        self: Arc<Self>,
        units: Vec<(UnitKey, u32)>,
    ) -> IntegrationReport {
        let integration = Arc::clone(&self);
        let work = caught_panics::spawn_blocking_caught(move || {
            let mut state = integration.state();
            let mut results = Vec::new();
            if !(is_reconcile_step(&units) && state.error.is_some()) {
                let done = integration.integrate_units(&mut state, &units, &mut results);
                state.error = done.err().map(|error| error.to_line());
                state.results.extend(results.iter().cloned());
            }
            IntegrationReport {
                results,
                ok: state.error.is_none(),
            }
        });
        work.await.unwrap_or_else(|error| {
            self.state().error = Some(error.to_string());
            IntegrationReport::default()
        })
    }

    /// Records what the integrated patches changed, for a review. Returns false if they changed nothing, or if that cannot
    /// be determined; saving reports the reason.
    pub(super) async fn request_review(self: Arc<Self>) -> bool {
        let integration = Arc::clone(&self);
        let work = caught_panics::spawn_blocking_caught(move || {
            let state = self.state();
            let request = state
                .integrator
                .as_ref()
                .map(PatchIntegrator::review_request);
            let evicted = state.backlog.settled_evictions().to_vec();
            drop(state);
            let request = request
                .map(|request| request.map(|request| ReviewRequested { evicted, ..request }));
            match request {
                Some(Ok(request)) if request.files.is_empty() => Ok(false),
                Some(Ok(request)) => self
                    .review
                    .request(request)
                    .map(|()| true)
                    .map_err(|error| error.to_line()),
                Some(Err(error)) => Err(error.to_line()),
                None => Ok(false),
            }
        });
        work.await
            .unwrap_or_else(|error| Err(error.to_string()))
            .unwrap_or_else(|error| {
                // Without a review nothing may be saved.
                let mut state = integration.state();
                (state.error, state.integrator) = (Some(error), None);
                false
            })
    }

    /// Puts the integrated patches on the project's branch, as far as a review accepted them, and records the result.
    pub(super) async fn save(self: Arc<Self>, failed: Vec<UnitKey>) -> SaveOutcome {
        let integration = Arc::clone(&self);
        let work = caught_panics::spawn_blocking_caught(move || integration.save_blocking(&failed));
        let saved = work.await.unwrap_or_else(|error| {
            tracing::error!(%error, "saving broke off");
            Err(save_failure(error.to_string(), &[]))
        });
        match saved {
            Ok((taken, left)) => {
                self.saved().extend(taken);
                if left.is_empty() {
                    SaveOutcome::Saved
                } else {
                    SaveOutcome::Partly(left)
                }
            }
            Err(failure) => {
                let review_open =
                    self.state().integrator.is_some() && self.review.current().is_some();
                let failure = SaveFailed {
                    review_open,
                    ..failure
                };
                record_note(self.recorder.as_ref(), None, &Note::SaveFailed(failure));
                match review_open && self.review.reopen().unwrap_or(false) {
                    true => SaveOutcome::ReviewOpen,
                    false => SaveOutcome::Failed,
                }
            }
        }
    }

    /// Puts the changes of `integrator` on the branch, as far as a review accepted them. If that fails, the integrator is
    /// still there unless the branch moved.
    fn save_accepted(
        &self,
        integrator: &mut Option<PatchIntegrator>,
        (failed, diff): (&[UnitKey], DiffCounts),
        (raw, contributors): (&[RawCopy], &[(UnitKey, u32)]),
        review: Option<ReviewState>,
    ) -> Result<(SavedIntegration, CommitMessage), IntegrationError> {
        let Some(open) = integrator else {
            return Err(IntegrationError::BranchMovedRepeatedly);
        };
        let before = review
            .as_ref()
            .map(|review| open.apply_review(review))
            .transpose()?;
        let contributors: Vec<_> = contributors
            .iter()
            .filter(|(unit, _)| open.has_writer(unit))
            .cloned()
            .collect();
        let message = self
            .run
            .commit_message((failed, diff), open.changed_paths(), &contributors);
        let saved = open.save(&message, raw);
        if saved.is_err() && before.is_none_or(|before| open.undo_review(before).is_err()) {
            *integrator = None;
        }
        Ok((saved?, message))
    }

    /// Returns the saved units and those of which a file is left out, or why nothing was saved and the files that block it.
    fn save_blocking(
        &self,
        failed: &[UnitKey],
    ) -> Result<(Vec<UnitKey>, Vec<UnitKey>), SaveFailed> {
        let note = |note: Note| record_note(self.recorder.as_ref(), None, &note);
        let warn = |text: String| {
            note(Note::Message {
                level: Severity::Warning,
                text,
            })
        };
        let mut state = self.state();
        if let Some(reason) = state.error.take() {
            state.integrator = None;
            return Err(save_failure(reason, &[]));
        }
        if state.integrator.is_none() {
            return Err(save_failure("no patches were integrated".to_owned(), &[]));
        }
        let accepting = state.results.iter().filter(|of| of.verdict.is_none());
        let integrated: Vec<UnitKey> = accepting.map(|of| of.unit.clone()).collect();
        let raw = self.run.raw_copies(&integrated);
        let changing = state.results.iter().filter(|of| of.has_changes);
        let contributors: Vec<(UnitKey, u32)> =
            changing.map(|of| (of.unit.clone(), of.attempt)).collect();
        let (mut blocked, mut left) = (Vec::new(), Vec::<UnitKey>::new());
        // A commit counts only its own files if the run has others.
        let is_first = self.saved().is_empty();
        let diff = if is_first {
            self.run.diff.counts
        } else {
            self.run.diff_of(&integrated, false)
        };
        let files = (raw.as_slice(), contributors.as_slice());
        let mut saved = self.save_accepted(
            &mut state.integrator,
            (failed, diff),
            files,
            self.review.current(),
        );
        // What the commits of a run contain already cannot be left out of them.
        if let Err(error) = &saved
            && state.integrator.is_some()
            && self.run.committed.is_none()
            && let Some((rest, bound)) = self.review.without_blocked(error.blocked_files())
        {
            let first = error.to_line();
            blocked = error.blocked_files().to_vec();
            let kept: Vec<UnitKey>;
            (left, kept) = integrated
                .iter()
                .cloned()
                .partition(|unit| bound.contains(unit));
            let raw = self.run.raw_copies(&kept);
            let diff = self.run.diff_of(&kept, is_first);
            saved = self.save_accepted(
                &mut state.integrator,
                (failed, diff),
                (&raw, &contributors),
                Some(rest),
            );
            if let Err(second) = &saved
                && state.integrator.is_some()
            {
                return Err(save_failure(
                    format!("{first}; without these files: {}", second.to_line()),
                    &blocked,
                ));
            }
        }
        if let Err(error) = &saved
            && state.integrator.is_some()
        {
            return Err(save_failure(error.to_line(), error.blocked_files()));
        }
        (state.integrator, state.head, state.results) = Default::default();
        let (saved, message) =
            saved.map_err(|error| save_failure(error.to_line(), error.blocked_files()))?;
        if let Some(error) = &saved.note_error {
            warn(format!(
                "the attempts of the commit are not in {NOTES_REF}: {error}"
            ));
        }
        let is_reconcile = |unit: &UnitKey| unit.as_str() == RECONCILE_KEY;
        let accepted = contributors
            .into_iter()
            .map(|(unit, _)| unit)
            .filter(|unit| !is_reconcile(unit));
        let [taken, accepted] = [integrated, accepted.collect()].map(|mut units: Vec<UnitKey>| {
            units.retain(|unit| !left.contains(unit));
            units
        });
        if !saved.skipped_raw_files.is_empty() {
            let count = pluralize(saved.skipped_raw_files.len(), "raw file");
            let folder = format!("/{}/", self.run.job.sync_id);
            let name = |place: &String| {
                place
                    .split_once(&folder)
                    .map_or(place.clone(), |(_, name)| name.to_owned())
            };
            let names: Vec<String> = saved.skipped_raw_files.iter().map(name).collect();
            warn(format!(
                "the commit omits {count} that git ignores or rejects: {}",
                list_some(&names)
            ));
        }
        let passed = taken.iter().any(is_reconcile);
        let settled = match &self.run.reconcile {
            Some(_) => state.backlog.mark_saved(accepted, passed),
            // The reconcile step of a prior run, whose changes this run saves after their review.
            None => self
                .review
                .current()
                .map(|review| review.request.evicted.clone())
                .unwrap_or_default(),
        };
        note(Note::RunSaved(note::RunSaved {
            subject: message.subject().to_owned(),
            commit: saved.commit,
            branch: saved.branch,
            paths: saved.paths,
            unreconciled: state.backlog.unreconciled_units(),
            blocked,
        }));
        if !saved.sl_ref_repairs.is_empty() {
            note(Note::SlRefsRepaired(SlRefsRepaired {
                repairs: saved.sl_ref_repairs,
            }));
        }
        settled
            .into_iter()
            .for_each(|evicted| note(Note::FilesEvicted(Box::new(evicted))));
        if passed {
            let remarks = [
                undecided_message(&state.backlog.take_undecided()),
                state.backlog.take_flagged(),
            ];
            remarks.into_iter().flatten().for_each(warn);
        }
        Ok((taken, left))
    }

    /// Adds the patch that the reconcile step of a prior run left, which belongs on top of the others.
    fn with_prior_reconcile<'a>(
        &self,
        state: &IntegrationState,
        units: &'a [(UnitKey, u32)],
    ) -> Cow<'a, [(UnitKey, u32)]> {
        let key = UnitKey::from(RECONCILE_KEY);
        let is_left = self.run.reconcile.is_none()
            && state
                .patches
                .get(&key)
                .is_some_and(|(attempt, _)| *attempt == 0);
        if !is_left {
            return Cow::Borrowed(units);
        }
        Cow::Owned(units.iter().cloned().chain([(key, 0)]).collect())
    }

    /// Lets the review begin with the commits that it is about.
    fn add_committed(&self, integrator: &mut PatchIntegrator) -> Result<(), IntegrationError> {
        let Some(committed) = &self.run.committed else {
            return Ok(());
        };
        let left_out = integrator.add_committed(committed)?;
        for text in committed_changes::left_out_messages(&left_out) {
            record_note(
                self.recorder.as_ref(),
                None,
                &Note::Message {
                    level: Severity::Warning,
                    text,
                },
            );
        }
        Ok(())
    }

    fn integrate_units(
        &self,
        state: &mut IntegrationState,
        units: &[(UnitKey, u32)],
        results: &mut Vec<IntegratedUnit>,
    ) -> Result<(), IntegrationError> {
        let recorder = self.recorder.as_ref();
        let ahead = self.ahead.take();
        // The patch of the reconcile step is applied on top of the integration that it reviewed.
        let (mut integrator, is_on_top) = match state.integrator.take() {
            Some(begun) if is_reconcile_step(units) => (begun, true),
            _ => {
                self.review.begin_integration();
                (state.head, state.results) = Default::default();
                let begun = match ahead {
                    Some(ahead) if ahead.is_current()? => {
                        ahead.with_known_tables(&self.run.project)
                    }
                    outdated => {
                        drop(outdated);
                        let mut begun = self.run.open_integrator()?;
                        self.add_committed(&mut begun)?;
                        begun
                    }
                };
                (begun, false)
            }
        };
        let units = &*self.with_prior_reconcile(state, units);
        let keys = units.iter().map(|(unit, _)| unit.clone()).collect();
        let started = IntegrationStarted {
            onto: integrator.base().to_string(),
            units: keys,
        };
        record_note(recorder, None, &Note::IntegrationStarted(started));
        let patches = self.unit_patches(state, units);
        let mut attempts = units.iter();
        let tell = |patch: &UnitPatch, integrated: &PatchOutcome| {
            let attempt = attempts.next().map_or(0, |(_, attempt)| *attempt);
            let mut note = integration_note(integrated);
            if patch.unit.as_str() == RECONCILE_KEY {
                // The reconcile step edits the work of other units on purpose.
                note.shared.clear();
            }
            results.push(IntegratedUnit {
                unit: patch.unit.clone(),
                attempt,
                verdict: note.verdict.clone(),
                has_changes: note.result == note::PatchResult::Accepted,
            });
            record_note(
                recorder,
                Some((&patch.unit, attempt)),
                &Note::PatchIntegrated(Box::new(note)),
            );
        };
        match is_on_top {
            true => integrator.integrate_all(&patches, tell)?,
            false => integrator.integrate_exactly(&patches, tell)?,
        }
        state.head = Some(integrator.head()?);
        state.integrator = Some(integrator);
        Ok(())
    }

    /// If a thread panicked while it held the lock, the next integration replaces the state.
    fn state(&self) -> MutexGuard<'_, IntegrationState> {
        self.state.lock()
    }

    /// The set stays valid if a thread panics while it holds the lock.
    fn saved(&self) -> MutexGuard<'_, HashSet<UnitKey>> {
        self.saved.lock()
    }
}

fn is_reconcile_step(units: &[(UnitKey, u32)]) -> bool {
    matches!(units, [(unit, _)] if unit.as_str() == RECONCILE_KEY)
}

/// The note about an integrated patch.
fn integration_note(integrated: &PatchOutcome) -> PatchIntegrated {
    use note::PatchResult;
    let (result, cause, reason) = match integrated {
        PatchOutcome::Accepted {
            commit,
            paths,
            shared_writes: shared,
        } => {
            let (commit, paths, shared) = (Some(commit.clone()), paths.clone(), shared.clone());
            return PatchIntegrated {
                result: PatchResult::Accepted,
                commit,
                paths,
                shared,
                verdict: None,
            };
        }
        PatchOutcome::Noop {
            shared_writes: shared,
        } => {
            return PatchIntegrated {
                shared: shared.clone(),
                ..PatchIntegrated::default()
            };
        }
        PatchOutcome::TextualConflict { paths, others } => {
            let with = if others.is_empty() {
                " with the current state of the branch".to_owned()
            } else {
                with_units(others)
            };
            let reason = format!("textual conflict in {}{with}", list_some(paths));
            (PatchResult::TextualConflict, VerdictCause::Conflict, reason)
        }
        PatchOutcome::SemanticConflict { findings, others } => {
            let reason = format!(
                "its changes are no longer valid{}: {}",
                with_units(others),
                list_some(findings)
            );
            (
                PatchResult::SemanticConflict,
                VerdictCause::Conflict,
                reason,
            )
        }
        PatchOutcome::PolicyViolation { reason: why } => (
            PatchResult::ForbiddenPaths,
            VerdictCause::Policy,
            format!("its patch {why}"),
        ),
        PatchOutcome::Unreadable { reason: why } => (
            PatchResult::PatchUnreadable,
            VerdictCause::Internal,
            format!("its patch {why}"),
        ),
    };
    let paths = match integrated {
        PatchOutcome::TextualConflict { paths, .. } => paths.clone(),
        _ => Vec::new(),
    };
    let verdict = Some(verdict::integration_failure(cause, reason));
    PatchIntegrated {
        result,
        paths,
        verdict,
        ..PatchIntegrated::default()
    }
}

/// The warning about deleted files that the reconcile step left open.
fn undecided_message(paths: &[String]) -> Option<String> {
    let files = pluralize(paths.len(), "gone file");
    (!paths.is_empty()).then(|| {
        format!(
            "reconcile left {files} open, without a decision on each page and source ({}); the next run asks again",
            list_some(paths)
        )
    })
}

/// Whether the review is open again is known later.
fn save_failure(reason: String, blocked: &[BlockedFile]) -> SaveFailed {
    SaveFailed {
        reason,
        blocked: blocked.to_vec(),
        review_open: false,
    }
}

fn with_units(others: &[UnitKey]) -> String {
    if others.is_empty() {
        String::new()
    } else {
        format!(" with {}", list_some(others))
    }
}

/// A failed write ends the run independently.
pub(super) fn record_note(recorder: &dyn Recorder, attempt: Option<(&UnitKey, u32)>, note: &Note) {
    if let Err(error) = recorder.record_note(attempt, note) {
        tracing::error!(%error, "a note is lost");
    }
}
