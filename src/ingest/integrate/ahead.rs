//! Integration while units still run: the patches of the first units of the plan are applied before the others exist.
//!
//! The result of a patch depends on the patches before it in the plan and on the state that the integration began with.
//! So what is applied ahead counts as far as it is the beginning of the final list and that state is the same; the rest
//! is taken back and applied again.

use super::{IntegrationError, PatchIntegrator, PatchOutcome, UnitPatch};
use crate::{git::CommitId, workspace::hash_bytes};

/// A patch of a unit, with what became of it.
#[derive(Debug)]
pub(super) struct AppliedPatch {
    patch: UnitPatch,
    outcome: PatchOutcome,
    change: AppliedChange,
    /// Hash of its file; `None` if there is none.
    hash: Option<[u8; 32]>,
}

/// What must be taken back with a patch.
#[derive(Debug, Default)]
pub(super) struct AppliedChange {
    /// The paths that its unit is a writer of.
    pub(super) written: Vec<String>,
    /// Its commit, if it has changed anything.
    pub(super) commit: Option<CommitId>,
}

impl PatchIntegrator {
    /// True if an integration that begins now would begin in the same way: with the same commit, the same patches of the
    /// run itself, and the same facts about tables.
    pub fn is_current(&self) -> Result<bool, IntegrationError> {
        let trees = &self.worktrees;
        Ok(trees.base_patches() == self.base_patches
            && self.scope.fact_stamps() == self.fact_stamps
            && trees.repository.current_state()? == self.base)
    }

    /// Integrates `patches` in their order and nothing else, and reports each result. Patches that are applied already
    /// are not applied again if all before them are the same.
    pub fn integrate_exactly(
        &mut self,
        patches: &[UnitPatch],
        mut tell: impl FnMut(&UnitPatch, &PatchOutcome),
    ) -> Result<(), IntegrationError> {
        let done = self.applied.iter().zip(patches);
        let is_same = |(of, patch): &(&AppliedPatch, &UnitPatch)| {
            of.patch == **patch && of.hash == self.hash_file(patch)
        };
        let kept = done.take_while(is_same).count();
        self.keep_first(kept)?;
        for of in &self.applied {
            tell(&of.patch, &of.outcome);
        }
        for patch in &patches[kept..] {
            self.apply_next(patch)?;
            self.applied
                .iter()
                .last()
                .inspect(|of| tell(patch, &of.outcome));
        }
        Ok(())
    }

    /// Applies the patch of the next unit.
    pub fn apply_next(&mut self, patch: &UnitPatch) -> Result<(), IntegrationError> {
        let hash = self.hash_file(patch);
        let mut change = AppliedChange::default();
        let outcome = self.accept(patch, &mut change)?;
        self.applied.push(AppliedPatch {
            patch: patch.clone(),
            outcome,
            change,
            hash,
        });
        Ok(())
    }

    fn hash_file(&self, patch: &UnitPatch) -> Option<[u8; 32]> {
        let bytes = self.read(patch.file.as_ref()?).ok()?;
        Some(hash_bytes(&bytes))
    }

    /// Takes back the patches of all units but the first `count`.
    pub fn keep_first(&mut self, count: usize) -> Result<(), IntegrationError> {
        let gone = self.applied.split_off(count.min(self.applied.len()));
        for path in gone.iter().rev().flat_map(|of| &of.change.written) {
            let Some(writers) = self.writers_by_path.get_mut(path) else {
                continue;
            };
            writers.pop();
            if writers.is_empty() {
                self.writers_by_path.remove(path);
                self.originals.remove(path);
            }
        }
        if gone.iter().all(|of| of.change.commit.is_none()) {
            return Ok(());
        }
        self.tracked_paths = None;
        let mut commits = self.applied.iter().rev().flat_map(|of| &of.change.commit);
        let head = commits.next().unwrap_or(&self.start).clone();
        Ok(self.restart_from(&head)?)
    }

    /// Number of patches of units that are applied or refused.
    pub fn applied_count(&self) -> usize {
        self.applied.len()
    }

    /// Number of patches of units that were refused.
    pub fn refused_count(&self) -> usize {
        let is_refused = |of: &&AppliedPatch| {
            !matches!(
                of.outcome,
                PatchOutcome::Accepted { .. } | PatchOutcome::Noop { .. }
            )
        };
        self.applied.iter().filter(is_refused).count()
    }
}
