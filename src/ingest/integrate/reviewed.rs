//! The review of an integration: what it changed, and a commit of the accepted part.

use std::collections::BTreeMap;

use super::{IntegrationError, PatchIntegrator};
use crate::{
    ingest::{
        reconcile::{self, ChangeKind},
        workspace,
    },
    run::review::{FileResolution, ReviewState},
    scoped_dir::PRIVATE_MODE,
    tape::{
        UnitKey,
        note::{ReviewRequested, ReviewedFile, attempt_output::ArtifactChange},
    },
};

/// Bytes of all diffs in a request: a longer line of a tape would be shortened when it is read.
const MAX_DIFF_BYTES: usize = 1 << 20;

/// Leaves out the longest diffs, so that the request fits on a line of a tape.
fn omit_long_diffs(files: &mut [ReviewedFile]) {
    let mut total: usize = files.iter().map(|file| file.diff.len()).sum();
    while total > MAX_DIFF_BYTES {
        let Some(longest) = files.iter_mut().max_by_key(|file| file.diff.len()) else { return };
        total -= longest.diff.len();
        let hash = workspace::hash_bytes(longest.diff.as_bytes());
        longest.omitted = Some(hash.iter().map(|byte| format!("{byte:02x}")).collect());
        longest.diff.clear();
    }
}

/// The state of an integration before its review is applied.
#[derive(Debug)]
pub(crate) struct ReviewedHead {
    head: super::CommitId,
    base: super::CommitId,
    writers_by_path: BTreeMap<String, Vec<UnitKey>>,
}

impl PatchIntegrator {
    /// What the accepted patches changed.
    pub(crate) fn review_request(&self) -> Result<ReviewRequested, IntegrationError> {
        let patch = self.worktree.committed_patch(&self.base)?;
        let files = reconcile::parse_patch(&String::from_utf8_lossy(&patch)).into_iter().map(|change| ReviewedFile {
            units: self.writers_by_path.get(&change.path).cloned().unwrap_or_default(),
            path: change.path,
            change: match change.kind {
                ChangeKind::Created => ArtifactChange::Created,
                ChangeKind::Updated => ArtifactChange::Updated,
                ChangeKind::Removed => ArtifactChange::Removed,
            },
            diff: change.diff,
            omitted: None,
        });
        let mut files: Vec<ReviewedFile> = files.collect();
        omit_long_diffs(&mut files);
        Ok(ReviewRequested { base: self.base.to_string(), files, decided: Vec::new() })
    }

    /// Reduces the integration to the accepted changes, and returns the state before.
    ///
    /// # Errors
    /// If the accepted part is not valid. Nothing is changed then.
    pub(crate) fn apply_review(&mut self, review: &ReviewState) -> Result<ReviewedHead, IntegrationError> {
        let before = ReviewedHead {
            head: self.worktree.head()?,
            base: self.base.clone(),
            writers_by_path: self.writers_by_path.clone(),
        };
        match self.try_apply_review(review) {
            Ok(()) => Ok(before),
            Err(error) => {
                self.undo_review(before)?;
                Err(error)
            }
        }
    }

    fn try_apply_review(&mut self, review: &ReviewState) -> Result<(), IntegrationError> {
        let folder = self.worktree.open_dir().map_err(|cause| self.io_error(cause))?;
        let mut changed = Vec::new();
        for (file, decisions) in review.by_path() {
            let original = self.originals.get(&file.path).cloned().flatten();
            let text = original.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let resolved = decisions.resolve(file, &text);
            let resolved = resolved.map_err(|finding| IntegrationError::InvalidReview { findings: vec![finding] })?;
            let content = match &resolved {
                FileResolution::AsWritten => continue,
                FileResolution::AsBefore => original,
                FileResolution::Text(text) => Some(text.as_bytes().to_vec()),
            };
            match content {
                Some(bytes) => folder.write(&file.path, &bytes, PRIVATE_MODE, 0o600),
                None => folder.remove(&file.path).map(drop),
            }
            .map_err(|cause| self.io_error(cause))?;
            if resolved == FileResolution::AsBefore {
                self.writers_by_path.remove(&file.path);
            }
            changed.push(file.path.as_str());
        }
        if changed.is_empty() {
            return Ok(());
        }
        self.worktree.stage(&changed)?;
        let findings = self.findings(self.originals.clone(), &self.connections)?;
        if !findings.is_empty() {
            return Err(IntegrationError::InvalidReview { findings });
        }
        self.worktree.commit_staged("ingest: reviewed WorkUnits")?;
        Ok(())
    }

    /// Restores the integration to the state before its review was applied.
    ///
    /// # Errors
    /// If the branch has moved since, so that the integration is based on another commit.
    pub(crate) fn undo_review(&mut self, before: ReviewedHead) -> Result<(), IntegrationError> {
        if self.base != before.base {
            return Err(IntegrationError::BranchMovedRepeatedly);
        }
        self.reset()?;
        self.worktree.restart_from(&before.head)?;
        self.writers_by_path = before.writers_by_path;
        Ok(())
    }
}
