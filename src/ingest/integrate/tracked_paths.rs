//! The pages and sources of an integration, found by their names regardless of case.

use std::collections::{BTreeSet, HashMap};

use super::{IntegrationError, PatchIntegrator, SEMANTIC_LAYER_DIR, WIKI_DIR, split};

/// Paths of files by their lower-case form, so that the cost of a look-up does not depend on their number.
#[derive(Debug, Default)]
pub(super) struct TrackedPaths(HashMap<String, BTreeSet<String>>);

impl TrackedPaths {
    /// Adds the paths of files that exist now, and removes the others.
    pub(super) fn update<'a>(
        &mut self,
        files: impl IntoIterator<Item = (&'a String, &'a Option<Vec<u8>>)>,
    ) {
        for (path, bytes) in files {
            let same = self.0.entry(path.to_lowercase()).or_default();
            match bytes {
                Some(_) => _ = same.insert(path.clone()),
                None => _ = same.remove(path),
            }
        }
    }

    /// The first other path that differs from `path` only in case.
    pub(super) fn other_case(&self, path: &str) -> Option<&str> {
        let same = self.0.get(&path.to_lowercase())?;
        same.iter().map(String::as_str).find(|other| *other != path)
    }
}

impl FromIterator<String> for TrackedPaths {
    fn from_iter<T: IntoIterator<Item = String>>(paths: T) -> Self {
        let mut new = Self::default();
        for path in paths {
            new.0.entry(path.to_lowercase()).or_default().insert(path);
        }
        new
    }
}

impl PatchIntegrator {
    /// Findings about new files in `created` whose names differ from another file only in case. Some file systems keep
    /// only one of the two, and KTX treats their pages as the same page.
    pub(super) fn case_clashes(
        &mut self,
        created: &[&String],
    ) -> Result<Vec<String>, IntegrationError> {
        if created.is_empty() {
            return Ok(Vec::new());
        }
        if self.tracked_paths.is_none() {
            let all = self.worktree()?.git.run(&[
                "ls-files",
                "-z",
                "--",
                WIKI_DIR,
                SEMANTIC_LAYER_DIR,
            ])?;
            self.tracked_paths = Some(split(&all).into_iter().collect());
        }
        let clash = |path: &&String| {
            let other = self.tracked_paths.as_ref()?.other_case(path)?;
            let (path, other) = (path.escape_debug(), other.escape_debug());
            Some(format!(
                "{path} differs from {other} only in case; write to {other}, or choose another name"
            ))
        };
        Ok(created.iter().filter_map(clash).collect())
    }
}
