//! Patches of the units, put together: in plan order, each judged by itself, in a worktree of the run's own.
//!
//! A patch that does not fit costs its unit only. What all of them make together becomes one commit on the project's
//! branch. It must not know how the patches came about.

use crate::scoped_dir::{self, PRIVATE_MODE, ScopedDir};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    branch_update::{self, BranchUpdateError},
    check,
    git::{CommitId, GitError},
    repository::{self, FilteredFile, PATCHES_DIR},
    sl_ref_repair,
    workspace::{MAX_FILE_BYTES, Originals, Workspace},
    worktree::{Worktree, WorktreeError, Worktrees},
};
use crate::tape::{
    UnitKey,
    note::{SharedWrite, SlRefRepair},
};

mod raw_copies;

/// The one mode that a file of a patch may have.
const REGULAR_FILE_MODE: &str = "100644";

/// Folders that a patch may change.
const SEMANTIC_LAYER_DIR: &str = "semantic-layer/";
const WIKI_DIR: &str = "wiki/";

/// Largest patch in bytes.
const MAX_PATCH_BYTES: u64 = 256 * 1024 * 1024;

/// How often a branch that moves is followed.
const MAX_SAVE_TRIES: usize = 5;

/// What a unit wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPatch {
    /// Whose.
    pub unit: UnitKey,
    /// The patch file; `None` if the unit wrote nothing.
    pub file: Option<PathBuf>,
    /// Whether it may change the semantic layer.
    pub may_change_semantic_layer: bool,
    /// Ids of the connections whose sources its pages may speak of, sorted.
    pub targets: Vec<String>,
}

/// What became of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchOutcome {
    /// It is in.
    Accepted {
        /// Its commit in the run's worktree.
        commit: String,
        /// Project-relative paths, sorted.
        paths: Vec<String>,
        /// What others wrote before.
        shared_writes: Vec<SharedWrite>,
    },
    /// It changes nothing that was not changed so already.
    Noop {
        /// What others wrote before.
        shared_writes: Vec<SharedWrite>,
    },
    /// Others changed the same lines.
    TextualConflict {
        /// Where.
        paths: Vec<String>,
        /// The units that did, as far as they are of this run.
        others: Vec<UnitKey>,
    },
    /// It fits, but the result does not hold.
    SemanticConflict {
        /// One sentence each.
        findings: Vec<String>,
        /// The units that changed the same files.
        others: Vec<UnitKey>,
    },
    /// It changes what it may not.
    PolicyViolation {
        /// What, as the end of a sentence about the patch.
        reason: String,
    },
    /// Its file is gone, or cannot be read.
    Unreadable {
        /// Why, as the end of a sentence about the patch.
        reason: String,
    },
}

/// The integration cannot go on. What was written is in the patches.
#[derive(Debug, thiserror::Error)]
pub enum IntegrationError {
    /// Its worktree cannot be made.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    /// git says no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A file of the result goes through a git filter.
    #[error("{0}; resume the run then: what the units wrote is in their patches")]
    FilteredFile(FilteredFile),
    /// The result cannot be put on the branch.
    #[error(transparent)]
    BranchUpdate(#[from] BranchUpdateError),
    /// The branch moved, and what it is now does not go with what the units wrote.
    #[error(
        "the branch moved meanwhile, and not all that the units wrote fits any more ({conflicts}); resume the run: what still \
         fits is saved then, without running again"
    )]
    ConflictsWithBranch {
        /// What does not fit.
        conflicts: String,
    },
    /// The branch does not stand still.
    #[error("the branch moves faster than it can be followed; stop what commits to it, then try again")]
    BranchMovedRepeatedly,
}

/// A raw file that stands beside what was made of it, in the same commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawCopy {
    /// The file, absolute.
    pub source: PathBuf,
    /// Its place, relative to the project.
    pub destination: String,
}

/// What was put on the branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedIntegration {
    /// The commit; `None` if there was nothing to save.
    pub commit: Option<String>,
    /// The branch; `None` when it is detached.
    pub branch: Option<String>,
    /// Changed paths, sorted.
    pub paths: Vec<String>,
    /// Places of raw files that git does not take: they are not in the commit.
    pub skipped_raw_files: Vec<String>,
    /// What pages lost that spoke of sources that are gone.
    pub sl_ref_repairs: Vec<SlRefRepair>,
}

/// The patches of a run, as far as they are put together.
#[derive(Debug)]
pub struct PatchIntegrator {
    worktree: Worktree,
    /// The commit that it builds on.
    base: CommitId,
    /// Who changed what.
    writers_by_path: BTreeMap<String, Vec<UnitKey>>,
    /// What the changed files held before.
    originals: Originals,
    /// Ids of the connections that the run writes sources for, sorted.
    connections: Vec<String>,
}

impl PatchIntegrator {
    /// Begins on top of the project's branch as it is now. `connections` are those that the run
    /// writes sources for, sorted.
    pub fn open(trees: &Arc<Worktrees>, connections: Vec<String>) -> Result<Self, IntegrationError> {
        let onto = trees.repository.head()?;
        let worktree = trees.open(None, &onto)?;
        Ok(Self { worktree, base: onto, writers_by_path: BTreeMap::new(), originals: Originals::new(), connections })
    }

    /// The commit that it builds on.
    pub fn base(&self) -> &CommitId {
        &self.base
    }

    /// The commit that holds everything taken so far.
    pub fn head(&self) -> Result<CommitId, IntegrationError> {
        Ok(self.worktree.git.run_for_commit(&["rev-parse", "--verify", "--end-of-options", "HEAD"])?)
    }

    /// Takes `patches` in their order, and tells what became of each as soon as it is known.
    pub fn integrate_all(
        &mut self,
        patches: &[UnitPatch],
        mut tell: impl FnMut(&UnitPatch, &PatchOutcome),
    ) -> Result<(), IntegrationError> {
        for patch in patches {
            let integrated = self.accept(patch)?;
            tell(patch, &integrated);
        }
        Ok(())
    }

    /// Takes one patch, or leaves everything as it was.
    fn accept(&mut self, patch: &UnitPatch) -> Result<PatchOutcome, IntegrationError> {
        let Some(file) = &patch.file else { return Ok(PatchOutcome::Noop { shared_writes: Vec::new() }) };
        let bytes = match self.read(file) {
            Ok(bytes) if bytes.is_empty() => return Ok(PatchOutcome::Noop { shared_writes: Vec::new() }),
            Ok(bytes) => bytes,
            Err(cause) => {
                return Ok(PatchOutcome::Unreadable { reason: format!("cannot be read: {}: {cause}", file.display()) });
            }
        };
        let paths = match self.patch_paths(&bytes, patch.may_change_semantic_layer)? {
            Ok(paths) => paths,
            Err(why) => return Ok(PatchOutcome::PolicyViolation { reason: why }),
        };
        match self.apply(&bytes, patch.may_change_semantic_layer, &patch.targets, &paths)? {
            ApplyOutcome::Clean(changed, originals) => {
                let shared = self.shared(&paths, &changed);
                for (path, bytes) in originals {
                    self.originals.entry(path).or_insert(bytes);
                }
                for path in paths {
                    self.writers_by_path.entry(path).or_default().push(patch.unit.clone());
                }
                if changed.is_empty() {
                    return Ok(PatchOutcome::Noop { shared_writes: shared });
                }
                self.worktree.commit_staged(&format!("ingest: accept WorkUnit {}", patch.unit))?;
                let commit = self.head()?.to_string();
                Ok(PatchOutcome::Accepted { commit, paths: changed, shared_writes: shared })
            }
            refused => {
                self.reset()?;
                Ok(match refused {
                    ApplyOutcome::Conflict(contested) => {
                        let contested = if contested.is_empty() { paths } else { contested };
                        let others = self.writers_of(&contested);
                        PatchOutcome::TextualConflict { paths: contested, others }
                    }
                    ApplyOutcome::InvalidResult(findings) => {
                        PatchOutcome::SemanticConflict { findings, others: self.writers_of(&paths) }
                    }
                    ApplyOutcome::ForbiddenChange(why) => PatchOutcome::PolicyViolation { reason: why },
                    ApplyOutcome::Clean(..) => PatchOutcome::Noop { shared_writes: Vec::new() },
                })
            }
        }
    }

    /// What a patch file holds. The record of an earlier run names it, and a clone may bring such a record.
    fn read(&self, file: &Path) -> io::Result<Vec<u8>> {
        let root = self.worktree.worktrees().repository.root();
        let below = file.strip_prefix(root.join(PATCHES_DIR)).ok().and_then(Path::to_str);
        let below = below.ok_or_else(|| io::Error::other(format!("it is not below {PATCHES_DIR}")))?;
        ScopedDir::open(root)?.read(&format!("{PATCHES_DIR}/{below}"), MAX_PATCH_BYTES)
    }

    /// The paths of a patch, or why it may not be applied.
    fn patch_paths(&self, patch: &[u8], semantic_layer: bool) -> Result<Result<Vec<String>, String>, GitError> {
        let answer = self.worktree.git.try_run_with_input(&["apply", "--numstat", "-z", "-"], patch)?;
        if !answer.success {
            return Ok(Err(format!("cannot be read ({})", answer.stderr)));
        }
        let text = String::from_utf8_lossy(&answer.stdout);
        let mut paths = Vec::new();
        for entry in text.split('\0').filter(|entry| !entry.is_empty()) {
            let mut fields = entry.splitn(3, '\t');
            let (added, path) = (fields.next(), fields.nth(1).unwrap_or_default());
            if let Some(why) = forbidden_reason(path, semantic_layer) {
                return Ok(Err(why));
            }
            if added == Some("-") {
                return Ok(Err(format!("puts a binary file at {}", path.escape_debug())));
            }
            paths.push(path.to_owned());
        }
        paths.sort_unstable();
        paths.dedup();
        Ok(Ok(paths))
    }

    /// What these files hold, or which of them nobody can look at.
    fn originals(&self, paths: &[String]) -> Result<Result<Originals, Vec<String>>, IntegrationError> {
        let folder = self.worktree.open_dir().map_err(|cause| self.io_error(cause))?;
        let (mut originals, mut unfit) = (Originals::new(), Vec::new());
        for path in paths {
            match folder.read_if_exists(path, MAX_FILE_BYTES) {
                Ok(bytes) => drop(originals.insert(path.clone(), bytes)),
                Err(cause) => unfit.push(format!("{} cannot be looked at: {cause}", path.escape_debug())),
            }
        }
        Ok(if unfit.is_empty() { Ok(originals) } else { Err(unfit) })
    }

    /// Applies `patch`, which touches `paths`, and whose pages speak of the sources of `targets`.
    fn apply(
        &self,
        patch: &[u8],
        semantic_layer: bool,
        targets: &[String],
        paths: &[String],
    ) -> Result<ApplyOutcome, IntegrationError> {
        let originals = match self.originals(paths)? {
            Ok(originals) => originals,
            Err(unfit) => return Ok(ApplyOutcome::InvalidResult(unfit)),
        };
        let git = &self.worktree.git;
        let answer = git.try_run_with_input(&["apply", "--3way", "--index", "--whitespace=nowarn", "-"], patch)?;
        if !answer.success {
            let unmerged = ["diff", "--name-only", "--diff-filter=U", "--no-ext-diff", "--ignore-submodules=all", "-z"];
            let unmerged = git.run(&unmerged)?;
            return Ok(ApplyOutcome::Conflict(split(&unmerged)));
        }
        let staged = git.run(&["diff-index", "--cached", "--raw", "--no-renames", "-z", "--end-of-options", "HEAD"])?;
        let changed = match parse_staged_paths(&String::from_utf8_lossy(&staged), semantic_layer) {
            Ok(changed) => changed,
            Err(why) => return Ok(ApplyOutcome::ForbiddenChange(why)),
        };
        let now = match self.originals(&changed)? {
            Ok(now) => now,
            Err(unfit) => return Ok(ApplyOutcome::InvalidResult(unfit)),
        };
        let is_binary = |(_, bytes): &(&String, &Option<Vec<u8>>)| bytes.as_ref().is_some_and(|b| b.contains(&0));
        if let Some((path, _)) = now.iter().find(is_binary) {
            return Ok(ApplyOutcome::ForbiddenChange(format!("puts a binary file at {}", path.escape_debug())));
        }
        let is_new = |path: &&String| originals.get(*path).is_some_and(Option::is_none);
        let mut findings = self.case_clashes(changed.iter().filter(is_new))?;
        findings.extend(self.findings(originals.clone(), targets)?);
        Ok(if findings.is_empty() {
            ApplyOutcome::Clean(changed, originals)
        } else {
            ApplyOutcome::InvalidResult(findings)
        })
    }

    /// Which of the new files `created` differ from another file in the case of letters only. Some file systems keep one
    /// of the two, and KTX takes their pages for the same.
    fn case_clashes<'a>(&self, created: impl Iterator<Item = &'a String>) -> Result<Vec<String>, GitError> {
        let created: Vec<&String> = created.collect();
        if created.is_empty() {
            return Ok(Vec::new());
        }
        let all = split(&self.worktree.git.run(&["ls-files", "-z", "--", WIKI_DIR, SEMANTIC_LAYER_DIR])?);
        let mut by_folded: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        all.iter().for_each(|path| by_folded.entry(path.to_lowercase()).or_default().push(path));
        let clash = |path: &&String| {
            let other = by_folded.get(&path.to_lowercase())?.iter().find(|other| *other != path)?;
            let (path, other) = (path.escape_debug(), other.escape_debug());
            Some(format!("{path} differs from {other} only in case; write to {other}, or choose another name"))
        };
        Ok(created.iter().filter_map(clash).collect())
    }

    /// What does not hold once the files of `originals` are what they are now.
    fn findings(&self, originals: Originals, targets: &[String]) -> Result<Vec<String>, IntegrationError> {
        let result = Workspace::with_originals(self.worktree.dir(), originals).map_err(|cause| self.io_error(cause))?;
        let checked = check::check_changes(&result, targets);
        let dangling =
            checked.dangling_links.into_iter().map(|link| format!("wiki references target missing page(s): {link}"));
        Ok(dangling.chain(checked.invalid).collect())
    }

    /// Stages the pages whose `sl_refs` name what the accepted patches took away, without what they name.
    fn repair(&self) -> Result<Vec<SlRefRepair>, IntegrationError> {
        let failed = |cause| self.io_error(cause);
        let result = Workspace::with_originals(self.worktree.dir(), self.originals.clone()).map_err(failed)?;
        let repaired = sl_ref_repair::repair_sl_refs(&result, &self.connections).map_err(failed)?;
        let folder = self.worktree.open_dir().map_err(failed)?;
        for page in &repaired {
            folder.write(&page.path, page.text.as_bytes(), PRIVATE_MODE, 0o600).map_err(failed)?;
        }
        self.worktree.stage(&repaired.iter().map(|page| page.path.as_str()).collect::<Vec<_>>())?;
        Ok(repaired.into_iter().map(|page| page.repair).collect())
    }

    fn io_error(&self, cause: io::Error) -> IntegrationError {
        IntegrationError::Io { path: self.worktree.dir().to_path_buf(), cause }
    }

    /// Those of `paths` that others wrote before, now that `changed` have changed.
    fn shared(&self, paths: &[String], changed: &[String]) -> Vec<SharedWrite> {
        let shared = |path: &String| {
            let (path, units) = (path.clone(), self.writers_by_path.get(path)?.clone());
            Some(SharedWrite { merged: changed.contains(&path), path, units })
        };
        paths.iter().filter_map(shared).collect()
    }

    fn writers_of(&self, paths: &[String]) -> Vec<UnitKey> {
        let writers: BTreeSet<&UnitKey> =
            paths.iter().filter_map(|path| self.writers_by_path.get(path)).flatten().collect();
        writers.into_iter().cloned().collect()
    }

    fn reset(&self) -> Result<(), GitError> {
        self.worktree.git.run(&["reset", "--quiet", "--hard", "HEAD"])?;
        self.worktree.git.run(&["clean", "--quiet", "--force", "-d", "-x"])?;
        Ok(())
    }

    /// Puts everything accepted on the project's branch as one commit: there it is wholly or not at all. A branch that
    /// moved meanwhile is followed, if everything still fits. Attempts that follow start from there. Where anything
    /// changed, `raw_copies` goes with it.
    pub fn save(&mut self, message: &str, raw: &[RawCopy]) -> Result<SavedIntegration, IntegrationError> {
        let trees = Arc::clone(self.worktree.worktrees());
        let repository = &trees.repository;
        for _ in 0..MAX_SAVE_TRIES {
            let head = repository.head()?;
            if head != self.base {
                self.rebase_onto(&head)?;
            }
            let git = &self.worktree.git;
            let names = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--end-of-options"];
            let changed = git.run(&[&names[..], &[self.base.as_str(), "HEAD"]].concat())?;
            if changed.is_empty() {
                trees.set_base(&self.base);
                let branch = repository.branch()?;
                let (paths, refused, repairs) = Default::default();
                return Ok(SavedIntegration {
                    commit: None,
                    branch,
                    paths,
                    skipped_raw_files: refused,
                    sl_ref_repairs: repairs,
                });
            }
            let staged = ["diff-index", "--cached", "--name-only", "--no-renames", "-z", "--end-of-options"];
            let staged = || git.run(&[&staged[..], &[self.base.as_str()]].concat());
            let repairs = self.repair()?;
            let changed = if repairs.is_empty() { changed } else { staged()? };
            let refused = self.stage_raw_copies(raw)?;
            let staged = staged()?;
            if let Some(filtered) = repository::first_filtered(&repository.git, &staged)? {
                return Err(IntegrationError::FilteredFile(filtered));
            }
            let tree = git.run_for_line(&["write-tree"])?;
            // Options of this command have to come first.
            let commit = ["commit-tree", "-p", self.base.as_str(), "-m", message, "--end-of-options", &tree];
            let commit = git.run_for_commit(&commit)?;
            let subject = message.lines().next().unwrap_or_default();
            match branch_update::update_branch(repository, &self.base, &commit, subject) {
                Ok(()) => {
                    trees.set_base(&commit);
                    let branch = repository.branch()?;
                    let (commit, paths) = (Some(commit.to_string()), split(&changed));
                    return Ok(SavedIntegration {
                        commit,
                        branch,
                        paths,
                        skipped_raw_files: refused,
                        sl_ref_repairs: repairs,
                    });
                }
                Err(BranchUpdateError::BranchMoved) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(IntegrationError::BranchMovedRepeatedly)
    }

    /// Builds everything accepted so far anew on `head`.
    fn rebase_onto(&mut self, head: &CommitId) -> Result<(), IntegrationError> {
        let patch = self.worktree.patch(&self.base)?;
        self.worktree.restart_from(head)?;
        head.clone_into(&mut self.base);
        self.originals.clear();
        if patch.is_empty() {
            return Ok(());
        }
        let paths = match self.patch_paths(&patch, true)? {
            Ok(paths) => paths,
            Err(why) => return Err(IntegrationError::ConflictsWithBranch { conflicts: why }),
        };
        match self.apply(&patch, true, &self.connections, &paths)? {
            ApplyOutcome::Clean(_, originals) => {
                self.originals = originals;
                Ok(self.worktree.commit_staged("ingest: accepted WorkUnits")?)
            }
            ApplyOutcome::Conflict(paths) => Err(IntegrationError::ConflictsWithBranch { conflicts: paths.join(", ") }),
            ApplyOutcome::InvalidResult(why) => {
                Err(IntegrationError::ConflictsWithBranch { conflicts: why.join("; ") })
            }
            ApplyOutcome::ForbiddenChange(why) => Err(IntegrationError::ConflictsWithBranch { conflicts: why }),
        }
    }
}

/// What became of the worktree.
enum ApplyOutcome {
    /// These paths changed, and everything holds; what the files of the patch held before.
    Clean(Vec<String>, Originals),
    /// These paths could not be merged.
    Conflict(Vec<String>),
    /// The result does not hold.
    InvalidResult(Vec<String>),
    /// It is something that may not be.
    ForbiddenChange(String),
}

fn split(names: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(names).split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Why a patch may not touch `path`.
fn forbidden_reason(path: &str, semantic_layer: bool) -> Option<String> {
    let shown = path.escape_debug();
    if scoped_dir::validate_relative_path(path).is_err()
        || !(path.starts_with(WIKI_DIR) || path.starts_with(SEMANTIC_LAYER_DIR))
    {
        return Some(format!("changes {shown}, which is not below wiki/ or semantic-layer/"));
    }
    if !semantic_layer && path.starts_with(SEMANTIC_LAYER_DIR) {
        return Some(format!("changes {shown}, and this unit may not change the semantic layer"));
    }
    None
}

/// The changed paths of `diff-index --raw -z`, or why one of them may not be.
fn parse_staged_paths(raw: &str, semantic_layer: bool) -> Result<Vec<String>, String> {
    let mut fields = raw.split('\0');
    let mut paths = Vec::new();
    while let (Some(meta), Some(path)) = (fields.next().filter(|meta| !meta.is_empty()), fields.next()) {
        let mode = meta.split(' ').nth(1).unwrap_or_default();
        let is_gone = meta.ends_with('D');
        if let Some(why) = forbidden_reason(path, semantic_layer) {
            return Err(why);
        }
        if !is_gone && mode != REGULAR_FILE_MODE {
            return Err(format!("gives {} the mode {mode}; only {REGULAR_FILE_MODE} may be", path.escape_debug()));
        }
        paths.push(path.to_owned());
    }
    Ok(paths)
}

#[cfg(test)]
mod tests;
