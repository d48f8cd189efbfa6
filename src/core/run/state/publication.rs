//! How the changes of a run reach the project's branch, and what a review left of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use crate::{
    run::review::ReviewState,
    tape::{
        RunId, UnitKey,
        note::{
            BlockedFile, IntegrationAdvanced, PatchResult, RunSaved, SharedWrite, SlRefRepair,
            Verdict,
        },
    },
};

/// How the changes of a run reach the project's branch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publication {
    /// True while patches are being integrated and saved on the branch.
    pub is_integrating: bool,
    /// What is integrated while units run.
    pub ahead: IntegrationAdvanced,
    /// The last review of the integrated changes, if there was one.
    pub review: Option<Arc<ReviewState>>,
    /// Number of commands that decided about changes, or withdrew decisions.
    pub review_commands: u32,
    /// The last changes that were saved on the project's branch.
    pub saved: Option<Arc<RunSaved>>,
    /// Everything that was saved on the project's branch, oldest first.
    pub saves: Vec<Arc<RunSaved>>,
    /// Why the last integrated changes are not on the branch.
    pub save_error: Option<Arc<str>>,
    /// Files that the saved reviews rejected completely, except those in the last review.
    pub rejected: Arc<BTreeSet<String>>,
    /// Files of the user that block the commit of changes with the same paths.
    pub blocked: Arc<[BlockedFile]>,
    /// Units whose changes are on the branch although no reconcile step has reviewed them.
    pub unreconciled: Arc<[UnitKey]>,
    /// References to removed sources that were deleted from pages.
    pub sl_ref_repairs: Vec<Arc<SlRefRepair>>,
    /// Results of patches that a prior run left.
    pub prior_patches: BTreeMap<UnitKey, PriorPatchIntegration>,
    /// True if nothing of the run is saved before a review.
    pub is_reviewed: bool,
    /// The run whose commits are reviewed, if they are.
    pub committed_run: Option<RunId>,
    /// The branch that the commits go to, if it is not the current one.
    pub target_branch: Option<Arc<str>>,
}

/// The patch of a unit that succeeded in a prior run.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorPatchIntegration {
    pub result: PatchResult,
    /// The verdict of the unit after its patch was rejected.
    pub verdict: Option<Arc<Verdict>>,
    /// True if it is on the branch.
    pub is_saved: bool,
    /// Files of the patch that units integrated before it also wrote.
    pub shared_writes: Arc<[SharedWrite]>,
}

impl super::RunState {
    /// The review whose decisions the run accepts: one that waits at the end of a run continues in another.
    pub fn open_review(&self) -> Option<&ReviewState> {
        let review = self.publication.open_review();
        review.filter(|_| self.ended.is_none())
    }

    /// True if units work again although a review waited, so that it continues when they have ended.
    pub fn is_review_interrupted(&self) -> bool {
        let works = |unit: &super::UnitState| {
            unit.status.is_in_flight() || unit.status == super::UnitStatus::Queued
        };
        let review = self.publication.unsaved_review();
        self.ended.is_none()
            && review.is_some_and(|review| !review.is_waiting)
            && self.units.iter().any(works)
    }
}

impl Publication {
    /// Number of files that can be committed without those that are blocked; 0 if none is blocked.
    pub fn count_without_blocked(&self) -> usize {
        // What the commits of a run contain cannot be left out of them.
        let review = self
            .review
            .as_deref()
            .filter(|_| !self.blocked.is_empty() && self.committed_run.is_none());
        review.map_or(0, |review| review.count_without(&self.blocked))
    }

    /// True if files of the user block the commit, and the changes wait with their decisions until these are away.
    pub fn is_review_blocked(&self) -> bool {
        self.save_error.is_some() && !self.blocked.is_empty() && self.unsaved_review().is_some()
    }

    /// Why the commit of the file is blocked.
    pub fn blocked_reason(&self, path: &str) -> Option<&str> {
        self.blocked
            .iter()
            .find(|blocked| blocked.path == path)
            .map(|blocked| blocked.reason.as_str())
    }

    /// The review that waits for decisions, also after the end of the run.
    pub fn open_review(&self) -> Option<&ReviewState> {
        self.review.as_deref().filter(|review| review.is_waiting)
    }

    /// The last review, if its changes are in no commit: it waits, or was cut off.
    pub fn unsaved_review(&self) -> Option<&ReviewState> {
        self.review.as_deref().filter(|review| !review.is_saved)
    }

    /// Files whose changes a finished review rejected completely.
    pub fn rejected_paths(&self) -> impl Iterator<Item = &str> {
        let review = self.review.as_deref();
        let known: HashSet<&str> = review
            .into_iter()
            .flat_map(|review| &review.request.files)
            .map(|file| &*file.path)
            .collect();
        let earlier = self
            .rejected
            .iter()
            .map(String::as_str)
            .filter(move |path| !known.contains(path));
        let files = review
            .filter(|review| !review.is_waiting)
            .into_iter()
            .flat_map(ReviewState::by_path);
        files
            .filter(|(_, decided)| decided.is_dropped())
            .map(|(file, _)| file.path.as_str())
            .chain(earlier)
    }
}
