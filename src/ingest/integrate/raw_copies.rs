//! Raw files that are copied into the commit of a run. This module must not know which artifacts were made from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{IntegrationError, PatchIntegrator, REGULAR_FILE_MODE, split};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Most failed git calls before the remaining raw files are skipped without identifying the rejected ones.
const MAX_STAGE_FAILURES: u32 = 200;

/// A raw file that is copied into the commit with the artifacts made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawCopy {
    /// Absolute path of the file.
    pub source: PathBuf,
    /// The directory of its connection.
    pub source_root: PathBuf,
    /// Path of the copy, relative to the project.
    pub destination: String,
}

impl PatchIntegrator {
    /// Adds `raw` to the accepted changes, and returns the destinations that git does not accept, and those of files that
    /// the project makes git ignore, such as logins. The bytes are stored unchanged, regardless of git attributes.
    pub(super) fn stage_raw_copies(
        &self,
        raw: &[RawCopy],
    ) -> Result<Vec<String>, IntegrationError> {
        // Paths are passed to git one per line.
        let root = self.worktrees.repository.root();
        let can_be_named = |copy: &&RawCopy| {
            let names_one =
                !copy.source.to_string_lossy().contains('\n') && !copy.destination.contains('\n');
            names_one && is_file(root, &copy.source)
        };
        let raw: Vec<&RawCopy> = raw.iter().filter(can_be_named).collect();
        let ignored = self.ignored_files(&raw)?;
        let (ignored, raw): (Vec<&RawCopy>, Vec<&RawCopy>) = raw
            .into_iter()
            .partition(|copy| ignored.contains(&copy.source));
        self.stage_in_halves(&raw, &mut MAX_STAGE_FAILURES.clone());
        let mut omitted = self.unstaged_raw_copies(&raw)?;
        omitted.extend(ignored.into_iter().map(|copy| copy.destination.clone()));
        Ok(omitted)
    }

    /// Files that git ignores in the project, unless it ignores the whole directory of their connection, which is then a
    /// copy of another repository. Rules of submodules do not count.
    fn ignored_files<'a>(
        &self,
        raw: &[&'a RawCopy],
    ) -> Result<BTreeSet<&'a PathBuf>, IntegrationError> {
        let repository = &self.worktrees.repository;
        let root = repository.root();
        let listing = [
            "ls-files",
            "--others",
            "--ignored",
            "--exclude-standard",
            "--directory",
            "-z",
        ];
        // A name that ends in `/` is a directory with nothing else.
        let listed: BTreeSet<PathBuf> = split(&repository.git.run(&listing)?)
            .iter()
            .map(|path| root.join(path))
            .collect();
        let mut ignored_roots: BTreeMap<&Path, bool> = BTreeMap::new();
        let mut ignored = BTreeSet::new();
        for copy in raw
            .iter()
            .filter(|copy| copy.source.ancestors().any(|path| listed.contains(path)))
        {
            let is_ignored_root = match ignored_roots.get(&*copy.source_root) {
                Some(known) => *known,
                None => {
                    let relative = copy
                        .source_root
                        .strip_prefix(root)
                        .ok()
                        .and_then(Path::to_str);
                    let asked = relative.filter(|path| !path.is_empty());
                    let answer = asked
                        .map(|path| repository.git.try_run(&["check-ignore", "-q", "--", path]));
                    let is_ignored = answer.transpose()?.is_some_and(|answer| answer.success);
                    ignored_roots.insert(&copy.source_root, is_ignored);
                    is_ignored
                }
            };
            if !is_ignored_root {
                ignored.insert(&copy.source);
            }
        }
        Ok(ignored)
    }

    /// Destinations that are not in the index, because git silently skips some names.
    fn unstaged_raw_copies(&self, raw: &[&RawCopy]) -> Result<Vec<String>, IntegrationError> {
        const MAX_PATHS_PER_CALL: usize = 500;
        let git = &self.worktree()?.git;
        let staged = split(&git.run(&[
            "diff-index",
            "--cached",
            "--name-only",
            "--no-renames",
            "-z",
            "--end-of-options",
            "HEAD",
        ])?);
        let staged: BTreeSet<String> = staged.into_iter().collect();
        let mut missing: Vec<&str> = raw
            .iter()
            .map(|copy| copy.destination.as_str())
            .filter(|to| !staged.contains(*to))
            .collect();
        // Files that are unchanged in the branch do not appear as staged either.
        let mut there = BTreeSet::new();
        for some in missing.chunks(MAX_PATHS_PER_CALL) {
            let found =
                git.run(&[&["--literal-pathspecs", "ls-files", "-z", "--"], some].concat())?;
            there.extend(split(&found));
        }
        missing.retain(|to| !there.contains(*to));
        Ok(missing.into_iter().map(str::to_owned).collect())
    }

    /// Stages by halves, because one file that git rejects blocks all others of the same call. Stops after `calls`
    /// failures.
    fn stage_in_halves(&self, raw: &[&RawCopy], calls: &mut u32) {
        if raw.is_empty() {
            return;
        }
        let Err(error) = self.try_stage(raw) else {
            return;
        };
        *calls = calls.saturating_sub(1);
        if raw.len() == 1 || *calls == 0 {
            tracing::warn!(%error, "raw files are not part of the commit");
            return;
        }
        let (first, second) = raw.split_at(raw.len() / 2);
        self.stage_in_halves(first, calls);
        self.stage_in_halves(second, calls);
    }

    fn try_stage(&self, raw: &[&RawCopy]) -> Result<(), IntegrationError> {
        let git = &self.worktree()?.git;
        let from: String = raw
            .iter()
            .map(|copy| format!("{}\n", copy.source.display()))
            .collect();
        let hashes = git.run_with_input(
            &["hash-object", "-w", "--no-filters", "--stdin-paths"],
            from.as_bytes(),
        )?;
        let hashes = String::from_utf8_lossy(&hashes);
        let entries = hashes
            .lines()
            .zip(raw)
            .map(|(hash, copy)| format!("{REGULAR_FILE_MODE} {hash}\t{}\n", copy.destination));
        git.run_with_input(
            &["update-index", "--add", "--index-info"],
            entries.collect::<String>().as_bytes(),
        )?;
        Ok(())
    }
}

/// Whether `path` is a regular file, reached without links of the project `root`.
fn is_file(root: &Path, path: &Path) -> bool {
    let (dir, name) = match (path.strip_prefix(root), path.parent(), path.file_name()) {
        (Ok(below), ..) => (root, below),
        (Err(_), Some(parent), Some(name)) => (parent, Path::new(name)),
        _ => return false,
    };
    // Names that are not UTF-8 are rejected by git with a message.
    let kind = ScopedDir::open(dir).and_then(|dir| {
        name.to_str()
            .map_or(Ok(Some(FileKind::File)), |name| dir.kind(name))
    });
    kind.is_ok_and(|kind| kind == Some(FileKind::File))
}
