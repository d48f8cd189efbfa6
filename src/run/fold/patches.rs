//! The fold of what became of patches: written, put together, saved.

use std::sync::Arc;

use super::{Emitted, Fold, RunChange};
use crate::{
    run::{
        Arrived, Lane as Address,
        state::{RowEnd, Story, TakenOver, UnitStatus},
    },
    tape::note::{Integrating, Integration, Level, PatchIntegrated, PatchWritten, SaveFailed, Saved, SlRefsRepaired},
};

impl Fold {
    pub(super) fn patch_written(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        written: &PatchWritten,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        let Some(lane) = self.address(story, arrived, None, emit) else { return };
        self.enter(story, lane, arrived);
        let fold = self.lane(lane);
        fold.attempt(story).patch = Some(Arc::new(written.clone()));
        fold.note_row(story, arrived.seq, RowEnd::Ok);
    }

    pub(super) fn integrating(
        story: &mut Story,
        arrived: &Arrived<'_>,
        integrating: &Integrating,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        (story.state.integrating, story.state.unsaved, story.state.ended) = (true, None, None);
        emit(Emitted::Run { at: arrived.at, change: RunChange::Integrating(integrating.units.len()) });
    }

    pub(super) fn patch_integrated(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        if let Address::Attempt(unit, 0) = arrived.lane {
            return self.patch_taken_over(story, arrived, unit, integrated, emit);
        }
        let Some(lane) = self.address(story, arrived, None, emit) else { return };
        self.enter(story, lane, arrived);
        let fold = self.lane(lane);
        let attempt = fold.attempt(story);
        attempt.integration = Some(integrated.result);
        attempt.shared = integrated.shared.as_slice().into();
        let verdict = integrated.verdict.as_ref();
        if let Some(verdict) = verdict {
            attempt.verdict = Some(verdict.clone());
            let (number, unit) = (attempt.number, fold.unit(story));
            // Somebody may have asked for another attempt already; that one counts then.
            let is_newest = unit.latest().is_some_and(|latest| latest.number == number);
            if is_newest && unit.status.is_over() {
                unit.status = UnitStatus::Failed;
            }
        }
        fold.note_row(story, arrived.seq, if verdict.is_some() { RowEnd::Failed } else { RowEnd::Ok });
        if let Some(verdict) = verdict {
            story.touch.row(RowEnd::Failed);
            self.remark(story, arrived, Level::Error, verdict.reason.clone());
        }
        let Address::Attempt(unit, attempt) = arrived.lane else { return };
        self.told(story, arrived, (unit, attempt), integrated, emit);
    }

    /// The patch is of a unit that has no attempt here: an earlier run left it.
    fn patch_taken_over(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        key: &str,
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        let index = self.unit_index(story, &key.into());
        let reason = integrated.verdict.as_ref().map(|verdict| verdict.reason.as_str());
        if let Some(reason) = reason {
            story.state.units[index].status = UnitStatus::Failed;
            story.touch.row(RowEnd::Failed);
            self.remark(story, arrived, Level::Error, reason.to_owned());
        }
        let verdict = integrated.verdict.clone().map(Arc::new);
        let shared = integrated.shared.as_slice().into();
        let taken = TakenOver { result: integrated.result, verdict, saved: false, shared };
        story.state.taken_over.insert(story.state.units[index].key.clone(), taken);
        self.told(story, arrived, (key, 0), integrated, emit);
    }

    /// Tells what became of a patch, and what it has in common with others.
    fn told(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        (unit, attempt): (&str, u32),
        integrated: &PatchIntegrated,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        for shared in &integrated.shared {
            // Nobody has read what git put together; who came to the same text needs no second look.
            let level = if shared.merged { Level::Warning } else { Level::Info };
            self.remark(story, arrived, level, shared.to_string());
        }
        let (at, result, shared) = (arrived.at, integrated.result, integrated.shared.as_slice());
        let reason = integrated.verdict.as_ref().map(|verdict| verdict.reason.as_str());
        emit(Emitted::Patch { at, unit, attempt, result, reason, shared });
    }

    pub(super) fn saved(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        saved: &Saved,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        story.state.integrating = false;
        story.state.unreconciled = saved.unreconciled.as_slice().into();
        for attempt in story.state.units.iter_mut().filter_map(|unit| unit.attempts.last_mut()) {
            attempt.saved |= attempt.integration.is_some_and(Integration::is_taken);
            if let (Some(Integration::Accepted), Some(patch)) = (attempt.integration, &attempt.patch) {
                attempt.published.clone_from(&patch.paths);
            }
        }
        for taken in story.state.taken_over.values_mut() {
            taken.saved |= taken.result.is_taken();
        }
        if let Some(commit) = saved.short() {
            // A round that changed nothing does not hide the commit of the one before.
            story.state.saved = Some(Arc::new(saved.clone()));
            let branch = saved.branch.as_deref().map(|branch| format!(" on {branch}")).unwrap_or_default();
            self.remark(story, arrived, Level::Info, format!("commit {commit}{branch}"));
        }
        emit(Emitted::Run { at: arrived.at, change: RunChange::Saved(saved) });
    }

    pub(super) fn sl_refs_repaired(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        repaired: &SlRefsRepaired,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        let (at, level) = (arrived.at, Level::Warning);
        for repair in &repaired.repairs {
            let text = repair.to_string();
            self.remark(story, arrived, level, text.clone());
            match arrived.lane {
                Address::Attempt(unit, attempt) => emit(Emitted::Message { at, unit, attempt, level, text: &text }),
                Address::Run | Address::BySession => {
                    emit(Emitted::Run { at, change: RunChange::Said { level, text: &text } });
                }
            }
            story.state.sl_ref_repairs.push(Arc::new(repair.clone()));
        }
    }

    /// What was put together is gone; there are only the patches. A later round says anew what it takes.
    pub(super) fn taken_apart(story: &mut Story) {
        let attempts = story.state.units.iter_mut().filter_map(|unit| unit.attempts.last_mut());
        for attempt in attempts.filter(|attempt| !attempt.saved) {
            attempt.integration = attempt.integration.filter(|result| !result.is_taken());
        }
        story.state.taken_over.retain(|_, taken| taken.saved || !taken.result.is_taken());
    }

    pub(super) fn save_failed(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        failed: &SaveFailed,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        story.state.integrating = false;
        Self::taken_apart(story);
        story.state.unsaved = Some(failed.reason.as_str().into());
        story.touch.row(RowEnd::Failed);
        self.remark(story, arrived, Level::Error, failed.reason.clone());
        emit(Emitted::Run { at: arrived.at, change: RunChange::SaveFailed(&failed.reason) });
    }
}
