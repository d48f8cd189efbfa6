//! The fold of the notes about patches: written, integrated, saved.

use std::sync::Arc;

use super::{Fold, RunEvent, SinkEvent};
use crate::{
    control,
    run::{
        EntryRef, EntryScope,
        activity_mark::ActivityMark,
        review::{ReviewState, is_bound},
        state::{PriorPatchIntegration, Publication, RowOutcome, RunView, UnitStatus},
    },
    tape::UnitKey,
    tape::note::{
        IntegrationAdvanced, IntegrationStarted, PatchIntegrated, PatchResult, PatchWritten,
        ReviewDecided, ReviewRequested, RunSaved, SaveFailed, Severity, SlRefsRepaired,
    },
};

impl Fold {
    pub(super) fn patch_written(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        written: &PatchWritten,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
            return;
        };
        self.enter(view, attempt_id, entry);
        let fold = self.attempt_fold(attempt_id);
        fold.attempt(view).delivery.patch = Some(Arc::new(written.clone()));
        fold.note_row(view, entry.seq, RowOutcome::Ok);
    }

    pub(super) fn integrating(
        view: &mut RunView,
        entry: &EntryRef<'_>,
        integrating: &IntegrationStarted,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        (
            view.state.publication.is_integrating,
            view.state.publication.save_error,
            view.state.ended,
        ) = (true, None, None);
        view.state.publication.ahead = IntegrationAdvanced::default();
        Self::close_review(view);
        emit(SinkEvent::Run {
            at: entry.at,
            change: RunEvent::Integrating(integrating.units.len()),
        });
    }

    pub(super) fn patch_integrated(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        if let EntryScope::Attempt(unit, 0) = entry.scope {
            return self.prior_patch_integrated(view, entry, unit, integrated, emit);
        }
        let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
            return;
        };
        self.enter(view, attempt_id, entry);
        let fold = self.attempt_fold(attempt_id);
        let attempt = fold.attempt(view);
        attempt.delivery.integration = Some(integrated.result);
        attempt.delivery.shared_writes = integrated.shared.as_slice().into();
        let verdict = integrated.verdict.as_ref();
        if let Some(verdict) = verdict {
            attempt.verdict = Some(verdict.clone());
            let (number, unit) = (attempt.number, fold.unit(view));
            // A person may have requested another attempt already; then that one counts.
            let is_newest = unit.latest().is_some_and(|latest| latest.number == number);
            if is_newest && unit.status.is_finished() {
                unit.status = UnitStatus::Failed;
            }
        }
        fold.note_row(
            view,
            entry.seq,
            if verdict.is_some() {
                RowOutcome::Failed
            } else {
                RowOutcome::Ok
            },
        );
        if let Some(verdict) = verdict {
            view.last_change.add_row_end(RowOutcome::Failed);
            self.report_message(view, entry, Severity::Error, verdict.reason.clone());
        }
        let EntryScope::Attempt(unit, attempt) = entry.scope else {
            return;
        };
        self.emit_patch_result(view, entry, (unit, attempt), integrated, emit);
    }

    /// Handles a patch of a unit that has no attempt in this run: a prior run left the patch.
    fn prior_patch_integrated(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        key: &str,
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let index = self.unit_index(view, &key.into());
        let reason = integrated
            .verdict
            .as_ref()
            .map(|verdict| verdict.reason.as_str());
        if let Some(reason) = reason {
            view.state.units[index].status = UnitStatus::Failed;
            view.last_change.add_row_end(RowOutcome::Failed);
            self.report_message(view, entry, Severity::Error, reason.to_owned());
        }
        let verdict = integrated.verdict.clone().map(Arc::new);
        let shared = integrated.shared.as_slice().into();
        let taken = PriorPatchIntegration {
            result: integrated.result,
            verdict,
            is_saved: false,
            shared_writes: shared,
        };
        view.state
            .publication
            .prior_patches
            .insert(view.state.units[index].key.clone(), taken);
        self.emit_patch_result(view, entry, (key, 0), integrated, emit);
    }

    /// Emits the result of a patch and the files that it shares with others.
    fn emit_patch_result(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        (unit, attempt): (&str, u32),
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        for shared in &integrated.shared {
            // A text that git merged needs a review; identical texts do not.
            let level = if shared.was_merged {
                Severity::Warning
            } else {
                Severity::Info
            };
            self.report_message(view, entry, level, shared.to_string());
        }
        let (at, result, shared) = (entry.at, integrated.result, integrated.shared.as_slice());
        let reason = integrated
            .verdict
            .as_ref()
            .map(|verdict| verdict.reason.as_str());
        emit(SinkEvent::Patch {
            at,
            unit,
            attempt,
            result,
            reason,
            shared,
        });
    }

    pub(super) fn review_requested(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        request: &Arc<ReviewRequested>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let publication = &mut view.state.publication;
        publication.is_integrating = false;
        let review = ReviewState::new(Arc::clone(request), publication.review.as_deref());
        publication.review = Some(Arc::new(review.clone()));
        view.last_change.marks.add(ActivityMark::Hold);
        self.report_message(view, entry, Severity::Warning, request.to_string());
        emit(SinkEvent::Run {
            at: entry.at,
            change: RunEvent::ReviewRequested(&review),
        });
    }

    /// The decisions that follow belong to this command.
    pub(super) fn review_command_received(view: &mut RunView, command: &str) {
        let Publication {
            review: Some(review),
            review_commands,
            ..
        } = &mut view.state.publication
        else {
            return;
        };
        match command {
            control::REVIEW_COMMAND => Arc::make_mut(review).begin_act(),
            control::UNDO_REVIEW_COMMAND => Arc::make_mut(review).begin_undo(),
            _ => return,
        }
        *review_commands += 1;
    }

    pub(super) fn review_decided(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        decided: &ReviewDecided,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let review = view.state.publication.review.as_mut();
        let is_known = review.is_some_and(|review| Arc::make_mut(review).decide(decided));
        let level = if is_known {
            Severity::Info
        } else {
            Severity::Warning
        };
        let text = decided.to_string();
        self.report_message(view, entry, level, text.clone());
        emit(SinkEvent::Run {
            at: entry.at,
            change: RunEvent::Message { level, text: &text },
        });
    }

    /// The changes no longer wait. The decisions are kept for the next review.
    pub(super) fn close_review(view: &mut RunView) {
        if let Some(review) = view
            .state
            .publication
            .review
            .as_mut()
            .filter(|review| review.is_waiting)
        {
            Arc::make_mut(review).is_waiting = false;
        }
    }

    pub(super) fn saved(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        saved: &RunSaved,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        Self::close_review(view);
        let review = view.state.publication.review.as_deref();
        let left = review
            .map(|review| review.units_bound_to(&saved.blocked))
            .unwrap_or_default();
        view.state.publication.blocked = saved.blocked.as_slice().into();
        for blocked in &saved.blocked {
            let text = format!(
                "left out of the commit: {} {}",
                blocked.path, blocked.reason
            );
            self.report_message(view, entry, Severity::Warning, text);
        }
        view.state.publication.save_error = None;
        view.state.publication.is_integrating = false;
        view.state.publication.unreconciled = saved.unreconciled.as_slice().into();
        let is_left = |unit: &UnitKey| left.contains(unit);
        let settled = view
            .state
            .units
            .iter_mut()
            .filter(|unit| !is_left(&unit.key));
        for attempt in settled.filter_map(|unit| unit.attempts.last_mut()) {
            attempt.delivery.is_saved |= attempt
                .delivery
                .integration
                .is_some_and(PatchResult::keeps_success);
            if let (Some(PatchResult::Accepted), Some(patch)) =
                (attempt.delivery.integration, &attempt.delivery.patch)
            {
                attempt.delivery.published.clone_from(&patch.paths);
                if let Some(review) = &view.state.publication.review {
                    let is_dropped =
                        |path: &str| review.file(path).is_some_and(|(_, file)| file.is_dropped());
                    attempt.delivery.published.retain(|path| !is_dropped(path));
                }
            }
        }
        for (_, taken) in view
            .state
            .publication
            .prior_patches
            .iter_mut()
            .filter(|(unit, _)| !is_left(unit))
        {
            taken.is_saved |= taken.result.keeps_success();
        }
        let publication = &mut view.state.publication;
        if let Some(review) = &mut publication.review {
            let review = Arc::make_mut(review);
            let rejected = Arc::make_mut(&mut publication.rejected);
            for (file, decided) in review.by_path().filter(|(file, _)| !is_bound(file, &left)) {
                match decided.is_dropped() {
                    true => rejected.insert(file.path.clone()),
                    false => rejected.remove(&file.path),
                };
            }
            review.is_saved = saved.blocked.is_empty();
            if !review.is_saved {
                // The others are on the branch.
                *review = std::mem::take(review).without_files(|file| !is_bound(file, &left));
            }
        }
        for projected in view
            .state
            .inputs
            .projected
            .iter_mut()
            .filter(|projected| projected.is_unsaved())
        {
            let projected = Arc::make_mut(projected);
            projected.commit.clone_from(&saved.commit);
            // Without a commit, a review rejected them.
            projected.patch = projected.patch.take().filter(|_| saved.commit.is_some());
        }
        if let Some(commit) = saved.short_commit() {
            // An integration that changed nothing does not hide the commit of the one before.
            let kept = Arc::new(saved.clone());
            view.state.publication.saves.push(Arc::clone(&kept));
            view.state.publication.saved = Some(kept);
            let branch = saved
                .branch
                .as_deref()
                .map(|branch| format!(" on {branch}"))
                .unwrap_or_default();
            self.report_message(
                view,
                entry,
                Severity::Info,
                format!("commit {commit}{branch}"),
            );
        }
        emit(SinkEvent::Run {
            at: entry.at,
            change: RunEvent::Saved(saved),
        });
    }

    pub(super) fn sl_refs_repaired(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        repaired: &SlRefsRepaired,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let (at, level) = (entry.at, Severity::Warning);
        for repair in &repaired.repairs {
            let text = repair.to_string();
            self.report_message(view, entry, level, text.clone());
            match entry.scope {
                EntryScope::Attempt(unit, attempt) => emit(SinkEvent::Message {
                    at,
                    unit,
                    attempt,
                    level,
                    text: &text,
                }),
                EntryScope::Run | EntryScope::BySession => {
                    emit(SinkEvent::Run {
                        at,
                        change: RunEvent::Message { level, text: &text },
                    });
                }
            }
            view.state
                .publication
                .sl_ref_repairs
                .push(Arc::new(repair.clone()));
        }
    }

    /// The integrated branch was discarded and only the patches remain. A later integration reports again which ones it
    /// accepts.
    pub(super) fn discard_integration(view: &mut RunView) {
        let attempts = view
            .state
            .units
            .iter_mut()
            .filter_map(|unit| unit.attempts.last_mut());
        for attempt in attempts.filter(|attempt| !attempt.delivery.is_saved) {
            attempt.delivery.integration = attempt
                .delivery
                .integration
                .filter(|result| !result.keeps_success());
        }
        view.state
            .publication
            .prior_patches
            .retain(|_, taken| taken.is_saved || !taken.result.keeps_success());
    }

    pub(super) fn save_failed(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        failed: &SaveFailed,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        view.state.publication.is_integrating = false;
        if !failed.review_open {
            Self::discard_integration(view);
        }
        view.state.publication.save_error = Some(failed.reason.as_str().into());
        view.state.publication.blocked = failed.blocked.as_slice().into();
        view.last_change.add_row_end(RowOutcome::Failed);
        self.report_message(view, entry, Severity::Error, failed.reason.clone());
        emit(SinkEvent::Run {
            at: entry.at,
            change: RunEvent::SaveFailed(&failed.reason),
        });
    }
}
