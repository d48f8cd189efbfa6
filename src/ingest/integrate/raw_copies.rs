//! Raw files that go into the commit beside what was made of them. It must not know what that is.

use std::{collections::BTreeSet, path::Path};

use super::{PatchIntegrator, REGULAR_FILE_MODE, RawCopy, split};
use crate::{
    ingest::git::GitError,
    scoped_dir::{FileKind, ScopedDir},
};

/// How often git may refuse raw files before they are left out without looking at each.
const MAX_STAGE_FAILURES: u32 = 200;

impl PatchIntegrator {
    /// Adds `raw` to what is accepted, and returns the places of what git does not take. Bytes are taken as they are,
    /// whatever attributes say.
    pub(super) fn stage_raw_copies(&self, raw: &[RawCopy]) -> Result<Vec<String>, GitError> {
        // Paths go to git one a line.
        let root = self.worktree.worktrees().repository.root();
        let can_be_named = |copy: &&RawCopy| {
            let names_one = !copy.source.to_string_lossy().contains('\n') && !copy.destination.contains('\n');
            names_one && is_file(root, &copy.source)
        };
        let raw: Vec<&RawCopy> = raw.iter().filter(can_be_named).collect();
        self.stage_in_halves(&raw, &mut MAX_STAGE_FAILURES.clone());
        self.unstaged_raw_copies(&raw)
    }

    /// Places of those that are not in the index. Some names git leaves out without a word.
    fn unstaged_raw_copies(&self, raw: &[&RawCopy]) -> Result<Vec<String>, GitError> {
        const MAX_PATHS_PER_CALL: usize = 500;
        let git = &self.worktree.git;
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
        let mut missing: Vec<&str> =
            raw.iter().map(|copy| copy.destination.as_str()).filter(|to| !staged.contains(*to)).collect();
        // What the branch holds already is not staged either.
        let mut there = BTreeSet::new();
        for some in missing.chunks(MAX_PATHS_PER_CALL) {
            let found = git.run(&[&["--literal-pathspecs", "ls-files", "-z", "--"], some].concat())?;
            there.extend(split(&found));
        }
        missing.retain(|to| !there.contains(*to));
        Ok(missing.into_iter().map(str::to_owned).collect())
    }

    /// One file that git stops at keeps out all others, so they are staged by halves then, until `calls` have failed.
    fn stage_in_halves(&self, raw: &[&RawCopy], calls: &mut u32) {
        if raw.is_empty() {
            return;
        }
        let Err(error) = self.try_stage(raw) else { return };
        *calls = calls.saturating_sub(1);
        if raw.len() == 1 || *calls == 0 {
            tracing::warn!(%error, "raw files are not part of the commit");
            return;
        }
        let (first, second) = raw.split_at(raw.len() / 2);
        self.stage_in_halves(first, calls);
        self.stage_in_halves(second, calls);
    }

    fn try_stage(&self, raw: &[&RawCopy]) -> Result<(), GitError> {
        let git = &self.worktree.git;
        let from: String = raw.iter().map(|copy| format!("{}\n", copy.source.display())).collect();
        let hashes = git.run_with_input(&["hash-object", "-w", "--no-filters", "--stdin-paths"], from.as_bytes())?;
        let hashes = String::from_utf8_lossy(&hashes);
        let entries =
            hashes.lines().zip(raw).map(|(hash, copy)| format!("{REGULAR_FILE_MODE} {hash}\t{}\n", copy.destination));
        git.run_with_input(&["update-index", "--add", "--index-info"], entries.collect::<String>().as_bytes())?;
        Ok(())
    }
}

/// Whether `path` is a regular file, to which no link of the project `root` leads.
fn is_file(root: &Path, path: &Path) -> bool {
    let (dir, name) = match (path.strip_prefix(root), path.parent(), path.file_name()) {
        (Ok(below), ..) => (root, below),
        (Err(_), Some(parent), Some(name)) => (parent, Path::new(name)),
        _ => return false,
    };
    // Names that are not UTF-8 are refused by git, which says so.
    let kind =
        ScopedDir::open(dir).and_then(|dir| name.to_str().map_or(Ok(Some(FileKind::File)), |name| dir.kind(name)));
    kind.is_ok_and(|kind| kind == Some(FileKind::File))
}
