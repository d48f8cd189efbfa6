//! The fold of what became of patches: written, put together, saved.

use std::sync::Arc;

use super::{Fold, FoldEvent, RunChange};
use crate::{
    run::{
        EntryRef, EntryScope as Address,
        state::{PriorPatch, RowEnd, RunView, UnitStatus},
    },
    tape::note::{
        IntegrationStarted, PatchIntegrated, PatchResult, PatchWritten, RunSaved, SaveFailed, Severity, SlRefsRepaired,
    },
};

impl Fold {
    pub(super) fn patch_written(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        written: &PatchWritten,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
        self.enter(story, lane, arrived);
        let fold = self.attempt_fold(lane);
        fold.attempt(story).patch = Some(Arc::new(written.clone()));
        fold.note_row(story, arrived.seq, RowEnd::Ok);
    }

    pub(super) fn integrating(
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        integrating: &IntegrationStarted,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        (story.state.is_integrating, story.state.save_error, story.state.ended) = (true, None, None);
        emit(FoldEvent::Run { at: arrived.at, change: RunChange::Integrating(integrating.units.len()) });
    }

    pub(super) fn patch_integrated(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        if let Address::Attempt(unit, 0) = arrived.scope {
            return self.prior_patch_integrated(story, arrived, unit, integrated, emit);
        }
        let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
        self.enter(story, lane, arrived);
        let fold = self.attempt_fold(lane);
        let attempt = fold.attempt(story);
        attempt.integration = Some(integrated.result);
        attempt.shared = integrated.shared.as_slice().into();
        let verdict = integrated.verdict.as_ref();
        if let Some(verdict) = verdict {
            attempt.verdict = Some(verdict.clone());
            let (number, unit) = (attempt.number, fold.unit(story));
            // Somebody may have asked for another attempt already; that one counts then.
            let is_newest = unit.latest().is_some_and(|latest| latest.number == number);
            if is_newest && unit.status.is_finished() {
                unit.status = UnitStatus::Failed;
            }
        }
        fold.note_row(story, arrived.seq, if verdict.is_some() { RowEnd::Failed } else { RowEnd::Ok });
        if let Some(verdict) = verdict {
            story.last_change.add_row_end(RowEnd::Failed);
            self.report_message(story, arrived, Severity::Error, verdict.reason.clone());
        }
        let Address::Attempt(unit, attempt) = arrived.scope else { return };
        self.emit_patch_result(story, arrived, (unit, attempt), integrated, emit);
    }

    /// The patch is of a unit that has no attempt here: an earlier run left it.
    fn prior_patch_integrated(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        key: &str,
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let index = self.unit_index(story, &key.into());
        let reason = integrated.verdict.as_ref().map(|verdict| verdict.reason.as_str());
        if let Some(reason) = reason {
            story.state.units[index].status = UnitStatus::Failed;
            story.last_change.add_row_end(RowEnd::Failed);
            self.report_message(story, arrived, Severity::Error, reason.to_owned());
        }
        let verdict = integrated.verdict.clone().map(Arc::new);
        let shared = integrated.shared.as_slice().into();
        let taken = PriorPatch { result: integrated.result, verdict, saved: false, shared };
        story.state.prior_patches.insert(story.state.units[index].key.clone(), taken);
        self.emit_patch_result(story, arrived, (key, 0), integrated, emit);
    }

    /// Tells what became of a patch, and what it has in common with others.
    fn emit_patch_result(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        (unit, attempt): (&str, u32),
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        for shared in &integrated.shared {
            // Nobody has read what git put together; who came to the same text needs no second look.
            let level = if shared.merged { Severity::Warning } else { Severity::Info };
            self.report_message(story, arrived, level, shared.to_string());
        }
        let (at, result, shared) = (arrived.at, integrated.result, integrated.shared.as_slice());
        let reason = integrated.verdict.as_ref().map(|verdict| verdict.reason.as_str());
        emit(FoldEvent::Patch { at, unit, attempt, result, reason, shared });
    }

    pub(super) fn saved(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        saved: &RunSaved,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        story.state.is_integrating = false;
        story.state.unreconciled = saved.unreconciled.as_slice().into();
        for attempt in story.state.units.iter_mut().filter_map(|unit| unit.attempts.last_mut()) {
            attempt.saved |= attempt.integration.is_some_and(PatchResult::keeps_success);
            if let (Some(PatchResult::Accepted), Some(patch)) = (attempt.integration, &attempt.patch) {
                attempt.published.clone_from(&patch.paths);
            }
        }
        for taken in story.state.prior_patches.values_mut() {
            taken.saved |= taken.result.keeps_success();
        }
        if let Some(commit) = saved.short_commit() {
            // A round that changed nothing does not hide the commit of the one before.
            story.state.saved = Some(Arc::new(saved.clone()));
            let branch = saved.branch.as_deref().map(|branch| format!(" on {branch}")).unwrap_or_default();
            self.report_message(story, arrived, Severity::Info, format!("commit {commit}{branch}"));
        }
        emit(FoldEvent::Run { at: arrived.at, change: RunChange::Saved(saved) });
    }

    pub(super) fn sl_refs_repaired(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        repaired: &SlRefsRepaired,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let (at, level) = (arrived.at, Severity::Warning);
        for repair in &repaired.repairs {
            let text = repair.to_string();
            self.report_message(story, arrived, level, text.clone());
            match arrived.scope {
                Address::Attempt(unit, attempt) => emit(FoldEvent::Message { at, unit, attempt, level, text: &text }),
                Address::Run | Address::BySession => {
                    emit(FoldEvent::Run { at, change: RunChange::Message { level, text: &text } });
                }
            }
            story.state.sl_ref_repairs.push(Arc::new(repair.clone()));
        }
    }

    /// What was put together is gone; there are only the patches. A later round says anew what it takes.
    pub(super) fn discard_integration(story: &mut RunView) {
        let attempts = story.state.units.iter_mut().filter_map(|unit| unit.attempts.last_mut());
        for attempt in attempts.filter(|attempt| !attempt.saved) {
            attempt.integration = attempt.integration.filter(|result| !result.keeps_success());
        }
        story.state.prior_patches.retain(|_, taken| taken.saved || !taken.result.keeps_success());
    }

    pub(super) fn save_failed(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        failed: &SaveFailed,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        story.state.is_integrating = false;
        Self::discard_integration(story);
        story.state.save_error = Some(failed.reason.as_str().into());
        story.last_change.add_row_end(RowEnd::Failed);
        self.report_message(story, arrived, Severity::Error, failed.reason.clone());
        emit(FoldEvent::Run { at: arrived.at, change: RunChange::SaveFailed(&failed.reason) });
    }
}
