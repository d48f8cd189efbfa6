//! Patches of the units, put together: in plan order, each judged by itself, in a worktree of the run's own.
//!
//! A patch that does not fit costs its unit only. What all of them make together becomes one commit on the project's
//! branch. It must not know how the patches came about.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    beneath::{self, Folder},
    check,
    git::GitError,
    landing::{self, LandError},
    workspace::{LARGEST, Originals, Workspace},
    worktree::{Worktree, WorktreeError, Worktrees},
};
use crate::tape::UnitKey;

/// The one mode that a file of a patch may have.
const PLAIN: &str = "100644";

/// Folders that a patch may change.
const SEMANTIC_LAYER: &str = "semantic-layer/";
const WIKI: &str = "wiki/";

/// How often git may refuse raw files before they are left out without looking at each.
const REFUSALS: u32 = 200;

/// How often a branch that moves is followed.
const FOLLOWED: usize = 5;

/// What a unit wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Whose.
    pub unit: UnitKey,
    /// The patch file; `None` if the unit wrote nothing.
    pub file: Option<PathBuf>,
    /// Whether it may change the semantic layer.
    pub semantic_layer: bool,
}

/// What became of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Integrated {
    /// It is in.
    Accepted {
        /// Its commit in the run's worktree.
        commit: String,
        /// Project-relative paths, sorted.
        paths: Vec<String>,
    },
    /// It changes nothing.
    Noop,
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
    Policy {
        /// What, as the end of a sentence about the patch.
        why: String,
    },
}

/// The integration cannot go on. What was written is in the patches.
#[derive(Debug, thiserror::Error)]
pub enum IntegrateError {
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
    /// The result cannot be put on the branch.
    #[error(transparent)]
    Land(#[from] LandError),
    /// The branch moved, and what it is now does not go with what the units wrote.
    #[error(
        "the branch moved while the units ran, and what they wrote does not fit any more ({why}); retry them, they will \
         see the new state"
    )]
    Moved {
        /// What does not fit.
        why: String,
    },
    /// The branch does not stand still.
    #[error("the branch moves faster than it can be followed; stop what commits to it, then try again")]
    Restless,
}

/// A raw file that stands beside what was made of it, in the same commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawCopy {
    /// The file, absolute.
    pub from: PathBuf,
    /// Its place, relative to the project.
    pub to: String,
}

/// What was put on the branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The commit; `None` if there was nothing to save.
    pub commit: Option<String>,
    /// The branch; `None` when it is detached.
    pub branch: Option<String>,
    /// Changed paths, sorted.
    pub paths: Vec<String>,
    /// Places of raw files that git does not take: they are not in the commit.
    pub refused: Vec<String>,
}

/// The patches of a run, as far as they are put together.
#[derive(Debug)]
pub struct Integration {
    worktree: Worktree,
    /// The commit that it builds on.
    onto: String,
    /// Who changed what.
    writers: BTreeMap<String, Vec<UnitKey>>,
}

impl Integration {
    /// Begins on top of the project's branch as it is now.
    pub fn begin(trees: &Arc<Worktrees>) -> Result<Self, IntegrateError> {
        let onto = trees.repository.head()?;
        let worktree = trees.open(None, &onto)?;
        Ok(Self { worktree, onto, writers: BTreeMap::new() })
    }

    /// The commit that it builds on.
    pub fn onto(&self) -> &str {
        &self.onto
    }

    /// The commit that holds everything taken so far.
    pub fn head(&self) -> Result<String, IntegrateError> {
        Ok(self.worktree.git.line(&["rev-parse", "HEAD"])?)
    }

    /// Takes `patches` in their order, and tells what became of each as soon as it is known.
    pub fn integrate(
        &mut self,
        patches: &[Patch],
        mut tell: impl FnMut(&Patch, &Integrated),
    ) -> Result<(), IntegrateError> {
        for patch in patches {
            let integrated = self.accept(patch)?;
            tell(patch, &integrated);
        }
        Ok(())
    }

    /// Takes one patch, or leaves everything as it was.
    fn accept(&mut self, patch: &Patch) -> Result<Integrated, IntegrateError> {
        let Some(file) = &patch.file else { return Ok(Integrated::Noop) };
        let size = file.metadata().map_err(|cause| IntegrateError::Io { path: file.clone(), cause })?.len();
        if size == 0 {
            return Ok(Integrated::Noop);
        }
        let paths = match self.touched(file, patch.semantic_layer)? {
            Ok(paths) => paths,
            Err(why) => return Ok(Integrated::Policy { why }),
        };
        let originals = self.originals(&paths)?;
        match self.apply(file, patch.semantic_layer, originals)? {
            Applied::Clean(changed) if changed.is_empty() => Ok(Integrated::Noop),
            Applied::Clean(changed) => {
                self.worktree.commit_staged(&format!("ingest: accept WorkUnit {}", patch.unit))?;
                for path in &changed {
                    self.writers.entry(path.clone()).or_default().push(patch.unit.clone());
                }
                let commit = self.worktree.git.line(&["rev-parse", "HEAD"])?;
                Ok(Integrated::Accepted { commit, paths: changed })
            }
            refused => {
                self.reset()?;
                Ok(match refused {
                    Applied::Conflict(contested) => {
                        let contested = if contested.is_empty() { paths } else { contested };
                        let others = self.others(&contested);
                        Integrated::TextualConflict { paths: contested, others }
                    }
                    Applied::Broken(findings) => Integrated::SemanticConflict { findings, others: self.others(&paths) },
                    Applied::Forbidden(why) => Integrated::Policy { why },
                    Applied::Clean(_) => Integrated::Noop,
                })
            }
        }
    }

    /// The paths of a patch, or why it may not be applied.
    fn touched(&self, file: &Path, semantic_layer: bool) -> Result<Result<Vec<String>, String>, GitError> {
        let file = file.to_string_lossy();
        let answer = self.worktree.git.ask(&["apply", "--numstat", "-z", "--", &file])?;
        if !answer.ok {
            return Ok(Err(format!("cannot be read ({})", answer.stderr)));
        }
        let text = String::from_utf8_lossy(&answer.stdout);
        let mut paths = Vec::new();
        for entry in text.split('\0').filter(|entry| !entry.is_empty()) {
            let mut fields = entry.splitn(3, '\t');
            let (added, path) = (fields.next(), fields.nth(1).unwrap_or_default());
            if let Some(why) = forbidden(path, semantic_layer) {
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

    /// What these files hold.
    fn originals(&self, paths: &[String]) -> Result<Originals, IntegrateError> {
        let dir = self.worktree.dir();
        let folder = Folder::open(dir).map_err(|cause| IntegrateError::Io { path: dir.to_path_buf(), cause })?;
        let read = |path: &String| match folder.read_if_there(path, LARGEST) {
            Ok(bytes) => Ok((path.clone(), bytes)),
            Err(cause) => Err(IntegrateError::Io { path: dir.join(path), cause }),
        };
        paths.iter().map(read).collect()
    }

    fn apply(&self, file: &Path, semantic_layer: bool, originals: Originals) -> Result<Applied, IntegrateError> {
        let git = &self.worktree.git;
        let name = file.to_string_lossy();
        let answer = git.ask(&["apply", "--3way", "--index", "--whitespace=nowarn", "--", &name])?;
        if !answer.ok {
            let unmerged = git.run(&["diff", "--name-only", "--diff-filter=U", "--no-ext-diff", "-z"])?;
            return Ok(Applied::Conflict(split(&unmerged)));
        }
        let staged = git.run(&["diff-index", "--cached", "--raw", "--no-renames", "-z", "HEAD"])?;
        let changed = match staged_paths(&String::from_utf8_lossy(&staged), semantic_layer) {
            Ok(changed) => changed,
            Err(why) => return Ok(Applied::Forbidden(why)),
        };
        if let Some(path) = self.binary(&changed)? {
            return Ok(Applied::Forbidden(format!("puts a binary file at {}", path.escape_debug())));
        }
        let findings = self.findings(originals)?;
        Ok(if findings.is_empty() { Applied::Clean(changed) } else { Applied::Broken(findings) })
    }

    /// The first of `paths` that holds what no text does.
    fn binary<'a>(&self, paths: &'a [String]) -> Result<Option<&'a str>, IntegrateError> {
        let now = self.originals(paths)?;
        let is_binary = |path: &&String| matches!(now.get(*path), Some(Some(bytes)) if bytes.contains(&0));
        Ok(paths.iter().find(is_binary).map(String::as_str))
    }

    /// What does not hold once the files of `originals` are what they are now.
    fn findings(&self, originals: Originals) -> Result<Vec<String>, IntegrateError> {
        let dir = self.worktree.dir();
        let result = Workspace::changed(dir, originals);
        let checked = check::check(&result.map_err(|cause| IntegrateError::Io { path: dir.to_path_buf(), cause })?);
        let dangling =
            checked.dangling.into_iter().map(|link| format!("wiki references target missing page(s): {link}"));
        Ok(dangling.chain(checked.invalid).collect())
    }

    fn others(&self, paths: &[String]) -> Vec<UnitKey> {
        let writers: BTreeSet<&UnitKey> = paths.iter().filter_map(|path| self.writers.get(path)).flatten().collect();
        writers.into_iter().cloned().collect()
    }

    fn reset(&self) -> Result<(), GitError> {
        self.worktree.git.run(&["reset", "--quiet", "--hard", "HEAD"])?;
        self.worktree.git.run(&["clean", "--quiet", "--force", "-d", "-x"])?;
        Ok(())
    }

    /// Puts everything accepted on the project's branch as one commit: there it is wholly or not at all. A branch that
    /// moved meanwhile is followed, if everything still fits. Attempts that follow start from there. Where anything
    /// changed, `raw` goes with it.
    pub fn save(&mut self, message: &str, raw: &[RawCopy]) -> Result<Saved, IntegrateError> {
        let trees = Arc::clone(self.worktree.trees());
        let repository = &trees.repository;
        for _ in 0..FOLLOWED {
            let head = repository.head()?;
            if head != self.onto {
                self.follow(&head)?;
            }
            let git = &self.worktree.git;
            let changed = git.run(&["diff-tree", "-r", "-z", "--name-only", "--no-renames", &self.onto, "HEAD"])?;
            if changed.is_empty() {
                trees.rebase(&self.onto);
                let branch = repository.branch()?;
                return Ok(Saved { commit: None, branch, paths: Vec::new(), refused: Vec::new() });
            }
            let refused = self.stage(raw)?;
            let tree = git.line(&["write-tree"])?;
            let commit = git.line(&["commit-tree", &tree, "-p", &self.onto, "-m", message])?;
            let subject = message.lines().next().unwrap_or_default();
            match landing::land(repository, &self.onto, &commit, subject) {
                Ok(()) => {
                    trees.rebase(&commit);
                    let branch = repository.branch()?;
                    return Ok(Saved { commit: Some(commit), branch, paths: split(&changed), refused });
                }
                Err(LandError::Moved) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(IntegrateError::Restless)
    }

    /// Adds `raw` to what is accepted, and returns the places of what git does not take. Bytes are taken as they are,
    /// whatever attributes say.
    fn stage(&self, raw: &[RawCopy]) -> Result<Vec<String>, GitError> {
        // Paths go to git one a line.
        let can_be_named = |copy: &&RawCopy| {
            copy.from.is_file() && !copy.from.to_string_lossy().contains('\n') && !copy.to.contains('\n')
        };
        let raw: Vec<&RawCopy> = raw.iter().filter(can_be_named).collect();
        self.stage_all(&raw, &mut REFUSALS.clone());
        self.unstaged(&raw)
    }

    /// Places of those that are not in the index. Some names git leaves out without a word.
    fn unstaged(&self, raw: &[&RawCopy]) -> Result<Vec<String>, GitError> {
        const MOST: usize = 500;
        let git = &self.worktree.git;
        let staged = split(&git.run(&["diff-index", "--cached", "--name-only", "--no-renames", "-z", "HEAD"])?);
        let staged: BTreeSet<String> = staged.into_iter().collect();
        let mut missing: Vec<&str> =
            raw.iter().map(|copy| copy.to.as_str()).filter(|to| !staged.contains(*to)).collect();
        // What the branch holds already is not staged either.
        let mut there = BTreeSet::new();
        for some in missing.chunks(MOST) {
            let found = git.run(&[&["--literal-pathspecs", "ls-files", "-z", "--"], some].concat())?;
            there.extend(split(&found));
        }
        missing.retain(|to| !there.contains(*to));
        Ok(missing.into_iter().map(str::to_owned).collect())
    }

    /// One file that git stops at keeps out all others, so they are staged by halves then, until `calls` have failed.
    fn stage_all(&self, raw: &[&RawCopy], calls: &mut u32) {
        if raw.is_empty() {
            return;
        }
        let Err(error) = self.try_to_stage(raw) else { return };
        *calls = calls.saturating_sub(1);
        if raw.len() == 1 || *calls == 0 {
            tracing::warn!(%error, "raw files are not part of the commit");
            return;
        }
        let (first, second) = raw.split_at(raw.len() / 2);
        self.stage_all(first, calls);
        self.stage_all(second, calls);
    }

    fn try_to_stage(&self, raw: &[&RawCopy]) -> Result<(), GitError> {
        let git = &self.worktree.git;
        let from: String = raw.iter().map(|copy| format!("{}\n", copy.from.display())).collect();
        let hashes = git.feed(&["hash-object", "-w", "--no-filters", "--stdin-paths"], from.as_bytes())?;
        let hashes = String::from_utf8_lossy(&hashes);
        let entries = hashes.lines().zip(raw).map(|(hash, copy)| format!("{PLAIN} {hash}\t{}\n", copy.to));
        git.feed(&["update-index", "--add", "--index-info"], entries.collect::<String>().as_bytes())?;
        Ok(())
    }

    /// Builds everything accepted so far anew on `head`.
    fn follow(&mut self, head: &str) -> Result<(), IntegrateError> {
        let patch = self.worktree.patch(&self.onto)?;
        self.worktree.git.run(&["reset", "--quiet", "--hard", head])?;
        head.clone_into(&mut self.onto);
        if patch.is_empty() {
            return Ok(());
        }
        let file = tempfile::NamedTempFile::new_in(self.worktree.trees().repository.root().join(".ktx/ingestdeck"));
        let dir = self.worktree.dir();
        let failed = |cause| IntegrateError::Io { path: dir.to_path_buf(), cause };
        let file = file.map_err(failed)?;
        std::fs::write(file.path(), &patch).map_err(failed)?;
        let paths = match self.touched(file.path(), true)? {
            Ok(paths) => paths,
            Err(why) => return Err(IntegrateError::Moved { why }),
        };
        let originals = self.originals(&paths)?;
        match self.apply(file.path(), true, originals)? {
            Applied::Clean(_) => Ok(self.worktree.commit_staged("ingest: accepted WorkUnits")?),
            Applied::Conflict(paths) => Err(IntegrateError::Moved { why: paths.join(", ") }),
            Applied::Broken(why) => Err(IntegrateError::Moved { why: why.join("; ") }),
            Applied::Forbidden(why) => Err(IntegrateError::Moved { why }),
        }
    }
}

/// What became of the worktree.
enum Applied {
    /// These paths changed, and everything holds.
    Clean(Vec<String>),
    /// These paths could not be merged.
    Conflict(Vec<String>),
    /// The result does not hold.
    Broken(Vec<String>),
    /// It is something that may not be.
    Forbidden(String),
}

fn split(names: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(names).split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Why a patch may not touch `path`.
fn forbidden(path: &str, semantic_layer: bool) -> Option<String> {
    let shown = path.escape_debug();
    if beneath::check(path).is_err() || !(path.starts_with(WIKI) || path.starts_with(SEMANTIC_LAYER)) {
        return Some(format!("changes {shown}, which is not below wiki/ or semantic-layer/"));
    }
    if !semantic_layer && path.starts_with(SEMANTIC_LAYER) {
        return Some(format!("changes {shown}, and this unit may not change the semantic layer"));
    }
    None
}

/// The changed paths of `diff-index --raw -z`, or why one of them may not be.
fn staged_paths(raw: &str, semantic_layer: bool) -> Result<Vec<String>, String> {
    let mut fields = raw.split('\0');
    let mut paths = Vec::new();
    while let (Some(meta), Some(path)) = (fields.next().filter(|meta| !meta.is_empty()), fields.next()) {
        let mode = meta.split(' ').nth(1).unwrap_or_default();
        let is_gone = meta.ends_with('D');
        if let Some(why) = forbidden(path, semantic_layer) {
            return Err(why);
        }
        if !is_gone && mode != PLAIN {
            return Err(format!("gives {} the mode {mode}; only {PLAIN} may be", path.escape_debug()));
        }
        paths.push(path.to_owned());
    }
    Ok(paths)
}

#[cfg(test)]
mod tests;
