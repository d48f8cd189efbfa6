//! The review of an integration: what it changed, and a commit of the accepted part.

use std::collections::BTreeMap;

use super::{CommitId, IntegrationError, PatchIntegrator};
use crate::{
    committed_changes::{self, CommittedChanges, CommittedRun, LeftOutFiles},
    workspace,
};
use ingestdeck_core::{
    run::review::{FileResolution, ReviewState},
    tape::{
        UnitKey,
        note::{ReviewRequested, ReviewedFile, attempt_output::ArtifactChange},
    },
};
use ingestdeck_os::scoped_dir::PRIVATE_MODE;

/// Bytes of all diffs in a request: a longer line of a tape would be shortened when it is read.
const MAX_DIFF_BYTES: usize = 1 << 20;

/// Leaves out the longest diffs, so that the request fits on a line of a tape.
fn omit_long_diffs(files: &mut [ReviewedFile]) {
    let mut total: usize = files.iter().map(|file| file.diff.len()).sum();
    while total > MAX_DIFF_BYTES {
        let Some(longest) = files.iter_mut().max_by_key(|file| file.diff.len()) else {
            return;
        };
        total -= longest.diff.len();
        let hash = workspace::hash_bytes(longest.diff.as_bytes());
        longest.omitted = Some(hash.iter().map(|byte| format!("{byte:02x}")).collect());
        longest.diff.clear();
    }
}

/// The state of an integration before its review is applied.
#[derive(Debug)]
pub struct ReviewedHead {
    head: CommitId,
    base: CommitId,
    writers_by_path: BTreeMap<String, Vec<UnitKey>>,
}

impl PatchIntegrator {
    /// Lets the review begin with what the commits of `run` changed. Returns the files of these commits that are left
    /// out, because they have changed since or their commits are gone.
    pub fn add_committed(&mut self, run: &CommittedRun) -> Result<LeftOutFiles, IntegrationError> {
        self.committed = CommittedChanges::find(&self.worktree()?.git, &self.base, run)?;
        Ok(std::mem::take(&mut self.committed.left_out))
    }

    /// What the accepted patches changed, and the commits that are reviewed.
    pub fn review_request(&self) -> Result<ReviewRequested, IntegrationError> {
        let Some(worktree) = self.worktree.get() else {
            return Ok(ReviewRequested {
                base: self.base.to_string(),
                ..ReviewRequested::default()
            });
        };
        let patch = worktree.committed_patch(&self.base)?;
        let mut files = committed_changes::parse_files(&patch, &self.writers_by_path);
        files.retain(|file| self.committed.before(&file.path).is_none());
        for file in &mut files {
            let original = self.originals.get(&file.path).and_then(Option::as_deref);
            file.before = original.map(ReviewedFile::digest);
        }
        files.extend(self.committed.reviewed_files(&worktree.git, "HEAD")?);
        files.sort_by(|one, other| one.path.cmp(&other.path));
        for file in &mut files {
            for unit in self.writers_by_path.get(&file.path).into_iter().flatten() {
                if !file.units.contains(unit) {
                    file.units.push(unit.clone());
                }
            }
        }
        omit_long_diffs(&mut files);
        Ok(ReviewRequested {
            base: self.base.to_string(),
            files,
            ..ReviewRequested::default()
        })
    }

    /// Reduces the integration to the accepted changes, and returns the state before.
    ///
    /// # Errors
    /// If the accepted part is not valid. Nothing is changed then.
    pub fn apply_review(&mut self, review: &ReviewState) -> Result<ReviewedHead, IntegrationError> {
        let before = ReviewedHead {
            head: self.head()?,
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
        let folder = self
            .worktree()?
            .open_dir()
            .map_err(|cause| self.io_error(cause))?;
        let invalid = |finding| IntegrationError::InvalidReview {
            findings: vec![finding],
        };
        let (mut changed, mut restored) = (Vec::new(), BTreeMap::<CommitId, Vec<&str>>::new());
        let mut originals = self.originals.clone();
        for (file, decisions) in review.by_path() {
            let path = file.path.as_str();
            let text = match file.change {
                ArtifactChange::Created => Some(String::new()),
                ArtifactChange::Updated | ArtifactChange::Removed => self.text_before(path)?,
            };
            // A file that is not UTF-8 can only be taken as a whole.
            let resolved = decisions
                .resolve(file, text.as_deref())
                .map_err(|problem| invalid(problem.to_string()))?;
            if self.committed.before(path).is_some() {
                // Its changes are a part of the branch, so the review changes the branch.
                let current = folder
                    .read_if_exists(path, workspace::MAX_FILE_BYTES)
                    .map_err(|cause| self.io_error(cause))?;
                originals.entry(path.to_owned()).or_insert(current);
            }
            match resolved {
                FileResolution::AsWritten => continue,
                FileResolution::AsBefore if file.change == ArtifactChange::Created => {
                    folder.remove(path).map(drop)
                }
                FileResolution::AsBefore => {
                    restored
                        .entry(self.commit_before(path).clone())
                        .or_default()
                        .push(path);
                    Ok(())
                }
                FileResolution::Text(text) => {
                    folder.write(path, text.as_bytes(), PRIVATE_MODE, 0o600)
                }
            }
            .map_err(|cause| self.io_error(cause))?;
            if decisions.is_dropped() {
                self.writers_by_path.remove(path);
            }
            changed.push(path);
        }
        for (commit, paths) in &restored {
            // git restores the mode and the bytes, whatever the attributes of the file are.
            let checkout = [
                "--literal-pathspecs",
                "checkout",
                "--quiet",
                commit.as_str(),
                "--",
            ];
            self.worktree()?.git.run(&[&checkout[..], paths].concat())?;
        }
        if changed.is_empty() {
            return Ok(());
        }
        self.worktree()?.stage(&changed)?;
        let findings = self.findings(originals, &self.connections)?;
        if !findings.is_empty() {
            return Err(IntegrationError::InvalidReview { findings });
        }
        self.worktree()?
            .commit_staged("ingest: reviewed WorkUnits")?;
        Ok(())
    }

    /// The commit with the state of a file before what is reviewed.
    fn commit_before(&self, path: &str) -> &CommitId {
        self.committed.before(path).unwrap_or(&self.base)
    }

    /// The text of a file before what is reviewed; `None` if it is not UTF-8.
    fn text_before(&self, path: &str) -> Result<Option<String>, IntegrationError> {
        let object = format!("{}:{path}", self.commit_before(path));
        let blob = self
            .worktree()?
            .git
            .run(&["cat-file", "blob", "--end-of-options", &object])?;
        Ok(String::from_utf8(blob).ok())
    }

    /// Restores the integration to the state before its review was applied.
    ///
    /// # Errors
    /// If the branch has moved since, so that the integration is based on another commit.
    pub fn undo_review(&mut self, before: ReviewedHead) -> Result<(), IntegrationError> {
        if self.base != before.base {
            return Err(IntegrationError::BranchMovedRepeatedly);
        }
        self.reset()?;
        self.tracked_paths = None;
        self.restart_from(&before.head)?;
        self.writers_by_path = before.writers_by_path;
        Ok(())
    }
}
