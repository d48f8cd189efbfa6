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
            before: None,
            omitted: None,
        });
        let mut files: Vec<ReviewedFile> = files.collect();
        for file in &mut files {
            let original = self.originals.get(&file.path).and_then(Option::as_deref);
            file.before = original.map(ReviewedFile::digest);
        }
        omit_long_diffs(&mut files);
        Ok(ReviewRequested { base: self.base.to_string(), files, ..ReviewRequested::default() })
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
        let invalid = |finding| IntegrationError::InvalidReview { findings: vec![finding] };
        let (mut changed, mut restored) = (Vec::new(), Vec::new());
        for (file, decisions) in review.by_path() {
            let path = file.path.as_str();
            let text = match file.change {
                ArtifactChange::Created => Some(String::new()),
                ArtifactChange::Updated | ArtifactChange::Removed => self.text_at_base(path)?,
            };
            // A file that is not UTF-8 can only be taken as a whole.
            let resolved = decisions.resolve(file, text.as_deref()).map_err(invalid)?;
            match resolved {
                FileResolution::AsWritten => continue,
                FileResolution::AsBefore if file.change == ArtifactChange::Created => folder.remove(path).map(drop),
                FileResolution::AsBefore => {
                    restored.push(path);
                    Ok(())
                }
                FileResolution::Text(text) => folder.write(path, text.as_bytes(), PRIVATE_MODE, 0o600),
            }
            .map_err(|cause| self.io_error(cause))?;
            if decisions.is_dropped() {
                self.writers_by_path.remove(path);
            }
            changed.push(path);
        }
        if !restored.is_empty() {
            // git restores the mode and the bytes, whatever the attributes of the file are.
            let checkout = ["--literal-pathspecs", "checkout", "--quiet", self.base.as_str(), "--"];
            self.worktree.git.run(&[&checkout[..], &restored].concat())?;
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

    /// The text of a file before the integration; `None` if it is not UTF-8.
    fn text_at_base(&self, path: &str) -> Result<Option<String>, IntegrationError> {
        let object = format!("{}:{path}", self.base);
        let blob = self.worktree.git.run(&["cat-file", "blob", "--end-of-options", &object])?;
        Ok(String::from_utf8(blob).ok())
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
