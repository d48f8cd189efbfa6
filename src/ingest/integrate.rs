//! Integrates the patches of the units: in plan order, each checked separately, in a worktree of the run.
//!
//! A patch that does not apply fails only its own unit. The accepted patches become one commit on the project's branch.
//! This module must not know how the patches were produced.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    branch_update::{self, BranchUpdateError},
    committed_changes::CommittedChanges,
    connection_scope::ConnectionScope,
    facts::FactFileStamps,
    git::CommitId,
    project::Project,
    repository::{self, PATCHES_DIR},
    sl_ref_repair,
    workspace::{MAX_FILE_BYTES, Originals, Workspace},
    workspace_check,
    worktree::{BasePatch, Worktree, WorktreeError, Worktrees},
};
use ingestdeck_core::{
    diagnostic::Diagnostic,
    run::commit_trailers::CommitMessage,
    tape::{
        UnitKey,
        note::{SharedWrite, SlRefRepair},
    },
};
use ingestdeck_os::scoped_dir::{PRIVATE_MODE, ScopedDir};

mod ahead;
mod error;
mod path_rules;
mod raw_copies;
mod reviewed;
mod tracked_paths;

use ahead::{AppliedChange, AppliedPatch};
pub use error::IntegrationError;
use path_rules::PatchContent;
pub use raw_copies::RawCopy;
use tracked_paths::TrackedPaths;

/// The only file mode that a patch may set.
const REGULAR_FILE_MODE: &str = "100644";

const SEMANTIC_LAYER_DIR: &str = "semantic-layer/";
const WIKI_DIR: &str = "wiki/";

/// Largest patch in bytes.
const MAX_PATCH_BYTES: u64 = 256 * 1024 * 1024;

/// Most attempts to save when the branch keeps moving.
const MAX_SAVE_TRIES: usize = 5;

/// The patch of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPatch {
    pub unit: UnitKey,
    /// The patch file; `None` if the unit wrote nothing.
    pub file: Option<PathBuf>,
    /// Ids of the connections whose sources it may write; empty if it may not change the semantic layer.
    pub source_connections: Vec<String>,
    /// Ids of the connections whose sources its pages may refer to, sorted.
    pub targets: Vec<String>,
}

/// Result of integrating a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchOutcome {
    /// The patch was applied and committed.
    Accepted {
        /// Its commit in the run's worktree.
        commit: String,
        /// Relative to the project, sorted.
        paths: Vec<String>,
        /// Changed paths that other units had changed before.
        shared_writes: Vec<SharedWrite>,
    },
    /// The patch changes nothing because earlier patches made the same changes.
    Noop {
        /// Paths that other units had changed before.
        shared_writes: Vec<SharedWrite>,
    },
    /// Other units changed the same lines.
    TextualConflict {
        /// The paths that could not be merged.
        paths: Vec<String>,
        /// Units of this run that changed these paths.
        others: Vec<UnitKey>,
    },
    /// The patch applies, but the result is invalid.
    SemanticConflict {
        /// One sentence for each problem.
        findings: Vec<String>,
        /// The units that changed the same files.
        others: Vec<UnitKey>,
    },
    /// The patch changes something that is not permitted.
    PolicyViolation {
        /// The forbidden change, as the end of a sentence about the patch.
        reason: String,
    },
    /// The patch file is missing or cannot be read.
    Unreadable {
        /// The cause, as the end of a sentence about the patch.
        reason: String,
    },
}

impl fmt::Display for PatchOutcome {
    /// The reason for a patch that is not accepted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted { .. } | Self::Noop { .. } => f.write_str("the patch was accepted"),
            Self::TextualConflict { paths, .. } => {
                write!(f, "{} changed meanwhile", paths.join(", "))
            }
            Self::SemanticConflict { findings, .. } => f.write_str(&findings.join("; ")),
            Self::PolicyViolation { reason } | Self::Unreadable { reason } => {
                write!(f, "the patch {reason}")
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedIntegration {
    /// Id of the commit; `None` if there was nothing to save.
    pub commit: Option<String>,
    /// Name of the branch; `None` if the HEAD is detached.
    pub branch: Option<String>,
    pub paths: Vec<String>,
    /// Destinations of raw files that git does not accept and that are not in the commit.
    pub skipped_raw_files: Vec<String>,
    /// Changes to `sl_refs` of pages that referred to removed sources.
    pub sl_ref_repairs: Vec<SlRefRepair>,
    /// Why the note of the commit was not written.
    pub note_error: Option<String>,
}

/// The integration of a run's patches.
#[derive(Debug)]
pub struct PatchIntegrator {
    worktrees: Arc<Worktrees>,
    /// Created when it is first needed: many runs find nothing to change.
    worktree: OnceCell<Worktree>,
    /// The commit that the integration is based on.
    base: CommitId,
    /// The units that changed each path.
    writers_by_path: BTreeMap<String, Vec<UnitKey>>,
    /// Contents of the changed files before the integration.
    originals: Originals,
    /// All pages and sources of the worktree, once they are needed.
    tracked_paths: Option<TrackedPaths>,
    /// Ids of the connections that the run writes sources for, sorted.
    connections: Vec<String>,
    /// The known tables of the connections.
    scope: ConnectionScope,
    /// The state of the files with facts about them.
    fact_stamps: Vec<FactFileStamps>,
    /// Changes that the branch contains already, and that are reviewed all the same.
    committed: CommittedChanges,
    /// The patches of the run itself that the integration begins with.
    base_patches: Vec<BasePatch>,
    /// The commit with them.
    start: CommitId,
    /// The patches of units so far.
    applied: Vec<AppliedPatch>,
}

impl PatchIntegrator {
    /// Starts from the current commit of the project's branch. `connections` are those that the run writes sources for,
    /// sorted.
    pub fn open(
        trees: &Arc<Worktrees>,
        connections: Vec<String>,
    ) -> Result<Self, IntegrationError> {
        let base = trees.repository.current_state()?;
        let mut new = Self {
            worktrees: Arc::clone(trees),
            worktree: OnceCell::new(),
            start: base.clone(),
            base,
            writers_by_path: BTreeMap::new(),
            originals: Originals::new(),
            tracked_paths: None,
            connections,
            scope: ConnectionScope::default(),
            fact_stamps: Vec::new(),
            committed: CommittedChanges::default(),
            base_patches: trees.base_patches(),
            applied: Vec::new(),
        };
        for BasePatch {
            unit,
            file,
            targets,
        } in new.base_patches.clone()
        {
            let patch = UnitPatch {
                unit,
                file: Some(file),
                source_connections: targets.clone(),
                targets,
            };
            match new.accept(&patch, &mut AppliedChange::default())? {
                PatchOutcome::Accepted { .. } | PatchOutcome::Noop { .. } => {}
                refused => {
                    return Err(IntegrationError::ConflictsWithBranch {
                        conflicts: refused.to_string(),
                    });
                }
            }
        }
        new.start = new.head()?;
        Ok(new)
    }

    /// Lets the sources of later patches be compared with what files of `project` contain about tables. No database is
    /// asked.
    #[must_use]
    pub fn with_known_tables(mut self, project: &Project) -> Self {
        self.scope = ConnectionScope::new(project, None);
        self.fact_stamps = self.scope.fact_stamps();
        self
    }

    /// The worktree with the accepted patches.
    fn worktree(&self) -> Result<&Worktree, WorktreeError> {
        match self.worktree.get() {
            Some(worktree) => Ok(worktree),
            None => {
                let worktree = self.worktrees.open(None, &self.base)?;
                Ok(self.worktree.get_or_init(|| worktree))
            }
        }
    }

    /// Lets the worktree contain `commit` only.
    fn restart_from(&mut self, commit: &CommitId) -> Result<(), WorktreeError> {
        self.worktree
            .get_mut()
            .map_or(Ok(()), |worktree| worktree.restart_from(commit))
    }

    /// The commit that the integration is based on.
    pub fn base(&self) -> &CommitId {
        &self.base
    }

    /// The paths that the accepted patches change, sorted.
    pub fn changed_paths(&self) -> impl Iterator<Item = &String> {
        self.writers_by_path.keys()
    }

    /// True if the integration contains a change of the unit.
    pub fn has_writer(&self, unit: &UnitKey) -> bool {
        self.writers_by_path
            .values()
            .flatten()
            .any(|writer| writer == unit)
    }

    /// The commit with all accepted patches.
    pub fn head(&self) -> Result<CommitId, IntegrationError> {
        Ok(self
            .worktree
            .get()
            .map_or_else(|| Ok(self.base.clone()), Worktree::head)?)
    }

    /// Integrates `patches` in their order, and reports each result as soon as it is known.
    pub fn integrate_all(
        &mut self,
        patches: &[UnitPatch],
        mut tell: impl FnMut(&UnitPatch, &PatchOutcome),
    ) -> Result<(), IntegrationError> {
        for patch in patches {
            let integrated = self.accept(patch, &mut AppliedChange::default())?;
            tell(patch, &integrated);
        }
        Ok(())
    }

    /// Applies one patch and sets what it changed, or leaves everything unchanged.
    fn accept(
        &mut self,
        patch: &UnitPatch,
        change: &mut AppliedChange,
    ) -> Result<PatchOutcome, IntegrationError> {
        let Some(file) = &patch.file else {
            return Ok(PatchOutcome::Noop {
                shared_writes: Vec::new(),
            });
        };
        let bytes = match self.read(file) {
            Ok(bytes) if bytes.is_empty() => {
                return Ok(PatchOutcome::Noop {
                    shared_writes: Vec::new(),
                });
            }
            Ok(bytes) => bytes,
            Err(cause) => {
                return Ok(PatchOutcome::Unreadable {
                    reason: format!("cannot be read: {}: {cause}", file.display()),
                });
            }
        };
        let content = PatchContent::Unit {
            source_connections: &patch.source_connections,
        };
        let paths = match self.patch_paths(&bytes, content)? {
            Ok(paths) => paths,
            Err(why) => return Ok(PatchOutcome::PolicyViolation { reason: why }),
        };
        match self.apply(&bytes, content, &patch.targets, &paths)? {
            ApplyOutcome::Clean(changed, originals) => {
                let shared = self.shared(&paths, &changed);
                for (path, bytes) in originals {
                    self.originals.entry(path).or_insert(bytes);
                }
                for path in &paths {
                    self.writers_by_path
                        .entry(path.clone())
                        .or_default()
                        .push(patch.unit.clone());
                }
                change.written = paths;
                if changed.is_empty() {
                    return Ok(PatchOutcome::Noop {
                        shared_writes: shared,
                    });
                }
                let commit = self
                    .worktree()?
                    .commit_staged(&format!("ingest: accept WorkUnit {}", patch.unit))?;
                change.commit = Some(commit.clone());
                Ok(PatchOutcome::Accepted {
                    commit: commit.to_string(),
                    paths: changed,
                    shared_writes: shared,
                })
            }
            refused => {
                self.reset()?;
                Ok(match refused {
                    ApplyOutcome::Conflict(contested) => {
                        let contested = if contested.is_empty() {
                            paths
                        } else {
                            contested
                        };
                        let others = self.writers_of(&contested);
                        PatchOutcome::TextualConflict {
                            paths: contested,
                            others,
                        }
                    }
                    ApplyOutcome::InvalidResult(findings) => PatchOutcome::SemanticConflict {
                        findings,
                        others: self.writers_of(&paths),
                    },
                    ApplyOutcome::ForbiddenChange(why) => {
                        PatchOutcome::PolicyViolation { reason: why }
                    }
                    ApplyOutcome::Clean(..) => PatchOutcome::Noop {
                        shared_writes: Vec::new(),
                    },
                })
            }
        }
    }

    /// Reads a patch file. Its path comes from a tape, which may come from a clone, so it must be below
    /// [`PATCHES_DIR`].
    fn read(&self, file: &Path) -> io::Result<Vec<u8>> {
        let root = self.worktrees.repository.root();
        let below = file
            .strip_prefix(root.join(PATCHES_DIR))
            .ok()
            .and_then(Path::to_str);
        let below =
            below.ok_or_else(|| io::Error::other(format!("it is not below {PATCHES_DIR}")))?;
        ScopedDir::open(root)?.read(&format!("{PATCHES_DIR}/{below}"), MAX_PATCH_BYTES)
    }

    /// The paths that a patch changes, or why it is not permitted.
    fn patch_paths(
        &self,
        patch: &[u8],
        content: PatchContent<'_>,
    ) -> Result<Result<Vec<String>, String>, IntegrationError> {
        let answer = self
            .worktree()?
            .git
            .try_run_with_input(&["apply", "--numstat", "-z", "-"], patch)?;
        if !answer.success {
            return Ok(Err(format!("cannot be read ({})", answer.stderr)));
        }
        let text = String::from_utf8_lossy(&answer.stdout);
        let mut paths = Vec::new();
        for entry in text.split('\0').filter(|entry| !entry.is_empty()) {
            let mut fields = entry.splitn(3, '\t');
            let (added, path) = (fields.next(), fields.nth(1).unwrap_or_default());
            if let Some(why) = path_rules::forbidden_reason(path, content) {
                return Ok(Err(why));
            }
            if added == Some("-") {
                return Ok(Err(format!(
                    "puts a binary file at {}",
                    path.escape_debug()
                )));
            }
            paths.push(path.to_owned());
        }
        paths.sort_unstable();
        paths.dedup();
        Ok(Ok(paths))
    }

    /// Current contents of these files, or the problems of those that cannot be read.
    fn originals(
        &self,
        paths: &[String],
    ) -> Result<Result<Originals, Vec<String>>, IntegrationError> {
        let folder = self
            .worktree()?
            .open_dir()
            .map_err(|cause| self.io_error(cause))?;
        let (mut originals, mut unfit) = (Originals::new(), Vec::new());
        for path in paths {
            match folder.read_if_exists(path, MAX_FILE_BYTES) {
                Ok(bytes) => drop(originals.insert(path.clone(), bytes)),
                Err(cause) => {
                    unfit.push(format!("{} cannot be read: {cause}", path.escape_debug()))
                }
            }
        }
        Ok(if unfit.is_empty() {
            Ok(originals)
        } else {
            Err(unfit)
        })
    }

    /// Applies `patch`, which changes `paths` and whose pages may refer to the sources of `targets`.
    fn apply(
        &mut self,
        patch: &[u8],
        content: PatchContent<'_>,
        targets: &[String],
        paths: &[String],
    ) -> Result<ApplyOutcome, IntegrationError> {
        let originals = match self.originals(paths)? {
            Ok(originals) => originals,
            Err(unfit) => return Ok(ApplyOutcome::InvalidResult(unfit)),
        };
        let git = &self.worktree()?.git;
        let answer = git.try_run_with_input(
            &["apply", "--3way", "--index", "--whitespace=nowarn", "-"],
            patch,
        )?;
        if !answer.success {
            let unmerged = [
                "diff",
                "--name-only",
                "--diff-filter=U",
                "--no-ext-diff",
                "--ignore-submodules=all",
                "-z",
            ];
            let unmerged = git.run(&unmerged)?;
            return Ok(ApplyOutcome::Conflict(split(&unmerged)));
        }
        let staged = git.run(&[
            "diff-index",
            "--cached",
            "--raw",
            "--no-renames",
            "-z",
            "--end-of-options",
            "HEAD",
        ])?;
        let changed =
            match path_rules::parse_staged_paths(&String::from_utf8_lossy(&staged), content) {
                Ok(changed) => changed,
                Err(why) => return Ok(ApplyOutcome::ForbiddenChange(why.to_string())),
            };
        let now = match self.originals(&changed)? {
            Ok(now) => now,
            Err(unfit) => return Ok(ApplyOutcome::InvalidResult(unfit)),
        };
        let is_binary = |(_, bytes): &(&String, &Option<Vec<u8>>)| {
            bytes.as_ref().is_some_and(|b| b.contains(&0))
        };
        if let Some((path, _)) = now.iter().find(is_binary) {
            return Ok(ApplyOutcome::ForbiddenChange(format!(
                "puts a binary file at {}",
                path.escape_debug()
            )));
        }
        if let PatchContent::Unit { .. } = content
            && let Some(why) = path_rules::forbidden_new_file(&originals, &now)
        {
            return Ok(ApplyOutcome::ForbiddenChange(why));
        }
        if let Some(tracked) = &mut self.tracked_paths {
            tracked.update(&now);
        }
        let is_new = |path: &&String| originals.get(*path).is_some_and(Option::is_none);
        let mut findings = self.case_clashes(&changed.iter().filter(is_new).collect::<Vec<_>>())?;
        findings.extend(self.findings(originals.clone(), targets)?);
        if findings.is_empty() {
            return Ok(ApplyOutcome::Clean(changed, originals));
        }
        if let Some(tracked) = &mut self.tracked_paths {
            let is_changed = |(path, _): &(&String, &Option<Vec<u8>>)| now.contains_key(*path);
            tracked.update(originals.iter().filter(is_changed));
        }
        Ok(ApplyOutcome::InvalidResult(findings))
    }

    /// Problems of the result after the files of `originals` changed.
    fn findings(
        &self,
        originals: Originals,
        targets: &[String],
    ) -> Result<Vec<String>, IntegrationError> {
        let result = Workspace::with_originals(self.worktree()?.dir(), originals)
            .map_err(|cause| self.io_error(cause))?;
        let checked = workspace_check::check_changes(&result, targets, &self.scope);
        let dangling = checked
            .dangling_links
            .into_iter()
            .map(|link| format!("wiki references target missing page(s): {link}"));
        Ok(dangling.chain(checked.invalid).collect())
    }

    /// Removes entries of `sl_refs` that broke through the accepted patches, and stages the repaired pages.
    fn repair(&self) -> Result<Vec<SlRefRepair>, IntegrationError> {
        let failed = |cause| self.io_error(cause);
        let result = Workspace::with_originals(self.worktree()?.dir(), self.originals.clone())
            .map_err(failed)?;
        let repaired = sl_ref_repair::repair_sl_refs(&result, &self.connections).map_err(failed)?;
        let folder = self.worktree()?.open_dir().map_err(failed)?;
        for page in &repaired {
            folder
                .write(&page.path, page.text.as_bytes(), PRIVATE_MODE, 0o600)
                .map_err(failed)?;
        }
        self.worktree()?.stage(
            &repaired
                .iter()
                .map(|page| page.path.as_str())
                .collect::<Vec<_>>(),
        )?;
        Ok(repaired.into_iter().map(|page| page.repair).collect())
    }

    fn io_error(&self, cause: io::Error) -> IntegrationError {
        let dir = self
            .worktree
            .get()
            .map_or(self.worktrees.repository.root(), Worktree::dir);
        IntegrationError::Io {
            path: dir.to_path_buf(),
            cause,
        }
    }

    /// Those of `paths` that other units changed before; `changed` are the paths that this patch really changed.
    fn shared(&self, paths: &[String], changed: &[String]) -> Vec<SharedWrite> {
        let shared = |path: &String| {
            let (path, units) = (path.clone(), self.writers_by_path.get(path)?.clone());
            Some(SharedWrite {
                was_merged: changed.contains(&path),
                path,
                earlier_writers: units,
            })
        };
        paths.iter().filter_map(shared).collect()
    }

    fn writers_of(&self, paths: &[String]) -> Vec<UnitKey> {
        let writers: BTreeSet<&UnitKey> = paths
            .iter()
            .filter_map(|path| self.writers_by_path.get(path))
            .flatten()
            .collect();
        writers.into_iter().cloned().collect()
    }

    fn reset(&self) -> Result<(), IntegrationError> {
        self.worktree()?
            .git
            .run(&["reset", "--quiet", "--hard", "HEAD"])?;
        self.worktree()?
            .git
            .run(&["clean", "--quiet", "--force", "-d", "-x"])?;
        Ok(())
    }

    /// Updates the project's branch with one commit of all accepted patches, completely or not at all. If the branch
    /// moved, rebases onto it, provided that everything still applies. Later attempts start from the result. `raw` is
    /// added to the commit if anything changed and the repository is the project's own.
    ///
    /// The note of the commit follows its branch, so that a crash leaves no note without a commit.
    pub fn save(
        &mut self,
        message: &CommitMessage,
        raw: &[RawCopy],
    ) -> Result<SavedIntegration, IntegrationError> {
        let trees = Arc::clone(&self.worktrees);
        let repository = &trees.repository;
        if self.worktree.get().is_none() {
            self.base = repository.current_state()?;
            trees.set_saved_base(&self.base);
            return Ok(SavedIntegration {
                branch: repository.branch()?,
                ..SavedIntegration::default()
            });
        }
        for tries_left in (0..MAX_SAVE_TRIES).rev() {
            let head = repository.current_state()?;
            if head != self.base {
                self.rebase_onto(&head)?;
            }
            let git = &self.worktree()?.git;
            let names = [
                "diff-tree",
                "-r",
                "-z",
                "--name-only",
                "--no-renames",
                "--end-of-options",
            ];
            let changed = git.run(&[&names[..], &[self.base.as_str(), "HEAD"]].concat())?;
            if changed.is_empty() {
                trees.set_saved_base(&self.base);
                return Ok(SavedIntegration {
                    branch: repository.branch()?,
                    ..SavedIntegration::default()
                });
            }
            let staged = [
                "diff-index",
                "--cached",
                "--name-only",
                "--no-renames",
                "-z",
                "--end-of-options",
            ];
            let staged = || git.run(&[&staged[..], &[self.base.as_str()]].concat());
            let repairs = self.repair()?;
            let changed = if repairs.is_empty() {
                changed
            } else {
                staged()?
            };
            // A private repository contains only what a run needs.
            let refused = if repository.is_private() {
                Vec::new()
            } else {
                self.stage_raw_copies(raw)?
            };
            let staged = staged()?;
            if let Some(converted) = repository::first_converted(&repository.git, &staged)? {
                return Err(IntegrationError::ConvertedFile(converted));
            }
            let tree = git.run_for_line(&["write-tree"])?;
            // Options of `commit-tree` must precede this separator.
            // A message with many units is too long for an argument.
            let commit = [
                "commit-tree",
                "-p",
                self.base.as_str(),
                "-F",
                "-",
                "--end-of-options",
                &tree,
            ];
            let commit = git.run_for_commit_with_input(
                &commit,
                format!("{}\n", message.text.trim_end()).as_bytes(),
            )?;
            match branch_update::update_branch(repository, &self.base, &commit, message.subject()) {
                Ok(()) => {
                    let note = message.note.as_ref();
                    let note_error = note
                        .and_then(|note| repository.write_note(&commit, note).err())
                        .map(|error| error.to_line());
                    trees.set_saved_base(&commit);
                    let branch = repository.branch()?;
                    let (commit, paths) = (Some(commit.to_string()), split(&changed));
                    return Ok(SavedIntegration {
                        commit,
                        branch,
                        paths,
                        skipped_raw_files: refused,
                        sl_ref_repairs: repairs,
                        note_error,
                    });
                }
                Err(BranchUpdateError::BranchMoved) => {}
                // The user changed files after their state was recorded. The next try records it again.
                Err(BranchUpdateError::WouldOverwrite { .. })
                    if repository.is_private() && tries_left > 0 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(IntegrationError::BranchMovedRepeatedly)
    }

    /// Rebuilds everything accepted so far on `head`.
    fn rebase_onto(&mut self, head: &CommitId) -> Result<(), IntegrationError> {
        let patch = self.worktree()?.committed_patch(&self.base)?;
        self.restart_from(head)?;
        head.clone_into(&mut self.base);
        self.originals.clear();
        self.tracked_paths = None;
        if patch.is_empty() {
            return Ok(());
        }
        let paths = match self.patch_paths(&patch, PatchContent::Accepted)? {
            Ok(paths) => paths,
            Err(why) => return Err(IntegrationError::ConflictsWithBranch { conflicts: why }),
        };
        let targets = self.connections.clone();
        match self.apply(&patch, PatchContent::Accepted, &targets, &paths)? {
            ApplyOutcome::Clean(_, originals) => {
                self.originals = originals;
                self.worktree()?
                    .commit_staged("ingest: accepted WorkUnits")?;
                Ok(())
            }
            ApplyOutcome::Conflict(paths) => Err(IntegrationError::ConflictsWithBranch {
                conflicts: paths.join(", "),
            }),
            ApplyOutcome::InvalidResult(why) => Err(IntegrationError::ConflictsWithBranch {
                conflicts: why.join("; "),
            }),
            ApplyOutcome::ForbiddenChange(why) => {
                Err(IntegrationError::ConflictsWithBranch { conflicts: why })
            }
        }
    }
}

/// Result of applying a patch to the worktree.
enum ApplyOutcome {
    /// The changed paths and the previous contents of the patched files. The result is valid.
    Clean(Vec<String>, Originals),
    /// Paths that could not be merged.
    Conflict(Vec<String>),
    /// Problems that make the result invalid.
    InvalidResult(Vec<String>),
    /// Description of a change that is not permitted.
    ForbiddenChange(String),
}

fn split(names: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(names)
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests;
