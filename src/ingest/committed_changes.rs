//! Changes of a run that commits contain already, for a review of them afterwards.
//!
//! A file takes part if it is as the run left it. What came before is the state before the first commit of the run that
//! changed the file. This module must not know what a review decides.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    git::{CommitId, Git, GitError},
    reconcile::{self, ChangeKind},
    repository::Repository,
    worktree,
};
use crate::tape::{
    RunId, UnitKey,
    note::{ReviewRequested, ReviewedFile, RunSaved, attempt_output::ArtifactChange},
};

/// A run whose commits are reviewed.
#[derive(Clone, Debug)]
pub(crate) struct CommittedRun {
    pub run: RunId,
    /// Its commits, oldest first.
    pub saves: Vec<RunSaved>,
    /// The units that changed each file.
    pub writers: BTreeMap<String, Vec<UnitKey>>,
}

/// What the commits of a run changed, as far as the files are still as the run left them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommittedChanges {
    /// The commit with the previous state of each file.
    before: BTreeMap<String, CommitId>,
    /// Files that have changed since, or whose commits are gone, sorted.
    pub left_out: Vec<String>,
    writers: BTreeMap<String, Vec<UnitKey>>,
}

/// Mode and object of each page and source of a commit.
type Tree = BTreeMap<String, String>;

impl CommittedChanges {
    /// Compares the commits of `run` with the state at `head`.
    ///
    /// # Errors
    /// If git fails.
    pub(crate) fn find(git: &Git, head: &CommitId, run: &CommittedRun) -> Result<Self, GitError> {
        let (mut before, mut after) = (BTreeMap::<String, CommitId>::new(), BTreeMap::<String, Option<String>>::new());
        let mut left_out = BTreeSet::new();
        for saved in &run.saves {
            let paths = saved.paths.iter().filter(|path| is_artifact(path));
            let Some((old, old_tree, new_tree)) = read_commit(git, saved)? else {
                left_out.extend(paths.cloned());
                continue;
            };
            for path in paths {
                let was_changed = after.get(path).is_some_and(|left| left.as_ref() != old_tree.get(path));
                if was_changed {
                    // The earlier state is not that of the run alone.
                    left_out.insert(path.clone());
                }
                before.entry(path.clone()).or_insert_with(|| old.clone());
                after.insert(path.clone(), new_tree.get(path).cloned());
            }
        }
        let current = read_tree(git, head.as_str())?.unwrap_or_default();
        let changed = after.iter().filter(|(path, left)| current.get(*path) != left.as_ref());
        left_out.extend(changed.map(|(path, _)| path.clone()));
        before.retain(|path, _| !left_out.contains(path));
        let writers = run.writers.iter().filter(|(path, _)| before.contains_key(*path));
        let writers = writers.map(|(path, units)| (path.clone(), units.clone())).collect();
        Ok(Self { before, left_out: left_out.into_iter().collect(), writers })
    }

    /// The commit with the state of `path` before the run; `None` for a file that does not take part.
    pub(super) fn before(&self, path: &str) -> Option<&CommitId> {
        self.before.get(path)
    }

    /// The units that changed the files that take part.
    pub(super) fn writers(&self) -> &BTreeMap<String, Vec<UnitKey>> {
        &self.writers
    }

    /// The files that take part, as they differ from the time before the run in `revision`. Those without a difference
    /// are left out.
    ///
    /// # Errors
    /// If git fails.
    pub(crate) fn reviewed_files(&self, git: &Git, revision: &str) -> Result<Vec<ReviewedFile>, GitError> {
        let mut files = Vec::new();
        for commit in self.before.values().collect::<BTreeSet<_>>() {
            let patch = worktree::diff(git, &["--end-of-options", &format!("{commit}..{revision}")])?;
            let is_of_commit = |file: &ReviewedFile| self.before(&file.path) == Some(commit);
            for mut file in parse_files(&patch, &self.writers).into_iter().filter(is_of_commit) {
                if file.change != ArtifactChange::Created {
                    let blob =
                        git.run(&["cat-file", "blob", "--end-of-options", &format!("{commit}:{}", file.path)])?;
                    file.before = Some(ReviewedFile::digest(&blob));
                }
                files.push(file);
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }
}

impl Repository {
    /// The review of the commits of `run`, and the files that are left out. `branch` is the one that they went to, if
    /// it is not the current one.
    ///
    /// # Errors
    /// If git fails.
    pub(crate) fn committed_review(
        &self,
        run: &CommittedRun,
        branch: Option<&str>,
    ) -> Result<(ReviewRequested, Vec<String>), GitError> {
        let head = branch.map_or("HEAD".to_owned(), |branch| format!("refs/heads/{branch}"));
        let head = self.git.run_for_commit(&["rev-parse", "--verify", "--end-of-options", &head])?;
        let found = CommittedChanges::find(&self.git, &head, run)?;
        let files = found.reviewed_files(&self.git, head.as_str())?;
        let request = ReviewRequested { base: head.to_string(), files, ..ReviewRequested::default() };
        Ok((request, found.left_out))
    }
}

/// The files of a patch, with the units that wrote them. The digests of their earlier contents are missing.
pub(super) fn parse_files(patch: &[u8], writers: &BTreeMap<String, Vec<UnitKey>>) -> Vec<ReviewedFile> {
    let changes = reconcile::parse_patch(&String::from_utf8_lossy(patch)).into_iter();
    let file = |change: reconcile::StagedChange| ReviewedFile {
        units: writers.get(&change.path).cloned().unwrap_or_default(),
        path: change.path,
        change: match change.kind {
            ChangeKind::Created => ArtifactChange::Created,
            ChangeKind::Updated => ArtifactChange::Updated,
            ChangeKind::Removed => ArtifactChange::Removed,
        },
        diff: change.diff,
        before: None,
        omitted: None,
    };
    changes.map(file).collect()
}

/// The warning about files that do not take part in a review.
pub(crate) fn left_out_message(files: &[String]) -> String {
    const MAX_NAMED: usize = 5;
    let named: Vec<_> = files.iter().take(MAX_NAMED).map(|file| file.escape_debug().to_string()).collect();
    let more = files.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("files that changed after the run are not reviewed: {}{more}", named.join(", "))
}

fn is_artifact(path: &str) -> bool {
    ["wiki/", "semantic-layer/"].iter().any(|folder| path.starts_with(folder))
}

/// The parent of a commit of a run, and both trees. `None` if one of them is gone.
fn read_commit(git: &Git, saved: &RunSaved) -> Result<Option<(CommitId, Tree, Tree)>, GitError> {
    let Some(commit) = saved.commit.as_deref().and_then(|commit| CommitId::parse(commit).ok()) else { return Ok(None) };
    let parent = format!("{commit}^1");
    let parent = git.try_run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &parent])?;
    let name = String::from_utf8_lossy(&parent.stdout);
    let Some(parent) = CommitId::parse(name.trim_end()).ok().filter(|_| parent.success) else { return Ok(None) };
    let trees = read_tree(git, parent.as_str())?.zip(read_tree(git, commit.as_str())?);
    Ok(trees.map(|(old, new)| (parent, old, new)))
}

/// The pages and sources of a commit; `None` if it is gone.
fn read_tree(git: &Git, commit: &str) -> Result<Option<Tree>, GitError> {
    let listed =
        git.try_run(&["ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit, "wiki", "semantic-layer"])?;
    if !listed.success {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let entries = text.split('\0').filter_map(|entry| entry.split_once('\t'));
    Ok(Some(entries.map(|(object, path)| (path.to_owned(), object.to_owned())).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::git::tests::{project, write};

    fn commit(git: &Git, root: &std::path::Path, files: &[(&str, Option<&str>)]) -> RunSaved {
        for (path, text) in files {
            match text {
                Some(text) => write(root, path, text),
                None => std::fs::remove_file(root.join(path)).unwrap(),
            }
        }
        git.run(&["add", "--all"]).unwrap();
        git.run(&["commit", "--quiet", "-m", "change"]).unwrap();
        let commit = git.run_for_line(&["rev-parse", "HEAD"]).unwrap();
        let paths = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        RunSaved { commit: Some(commit), paths, ..RunSaved::default() }
    }

    fn find(git: &Git, saves: &[&RunSaved]) -> CommittedChanges {
        let head = git.run_for_commit(&["rev-parse", "HEAD"]).unwrap();
        let writers = [("wiki/global/a.md".to_owned(), vec![UnitKey::from("docs-a")])].into();
        let saves = saves.iter().map(|saved| (*saved).clone()).collect();
        CommittedChanges::find(git, &head, &CommittedRun { run: RunId(uuid::Uuid::nil()), saves, writers }).unwrap()
    }

    fn changes(git: &Git, found: &CommittedChanges) -> Vec<String> {
        let files = found.reviewed_files(git, "HEAD").unwrap();
        files.iter().map(|file| format!("{:?} {} {}", file.change, file.path, file.units.len())).collect()
    }

    #[test]
    fn files_as_the_run_left_them_take_part() {
        let (_dir, root) = project(&[("wiki/global/b.md", "b\n"), ("wiki/global/c.md", "c\n")]);
        let git = Git::open(&root).unwrap();
        let run = [
            ("wiki/global/a.md", Some("a\n")),
            ("wiki/global/b.md", None),
            ("wiki/global/c.md", Some("c 2\n")),
            ("raw/x.md", Some("x\n")),
        ];
        let first = commit(&git, &root, &run);
        let second = commit(&git, &root, &[("wiki/global/a.md", Some("a 2\n")), ("wiki/global/d.md", Some("d\n"))]);
        commit(&git, &root, &[("wiki/global/c.md", Some("c 3\n")), ("wiki/global/e.md", Some("e\n"))]);
        let found = find(&git, &[&first, &second]);
        assert_eq!(found.left_out, ["wiki/global/c.md"]);
        assert_eq!(
            changes(&git, &found),
            ["Created wiki/global/a.md 1", "Removed wiki/global/b.md 0", "Created wiki/global/d.md 0"]
        );
        let files = found.reviewed_files(&git, "HEAD").unwrap();
        assert!(files[0].diff.contains("+a 2\n") && files[0].before.is_none());
        assert_eq!(files[1].before.as_deref(), Some(&*ReviewedFile::digest(b"b\n")));
    }

    #[test]
    fn changes_between_two_commits_of_the_run_are_left_out() {
        let (_dir, root) = project(&[]);
        let git = Git::open(&root).unwrap();
        let first = commit(&git, &root, &[("wiki/global/a.md", Some("a\n"))]);
        commit(&git, &root, &[("wiki/global/a.md", Some("by a person\n"))]);
        let second = commit(&git, &root, &[("wiki/global/a.md", Some("a 2\n"))]);
        let found = find(&git, &[&first, &second]);
        assert_eq!((found.left_out.as_slice(), changes(&git, &found)), (&["wiki/global/a.md".to_owned()][..], vec![]));
    }

    #[test]
    fn commit_that_is_gone_is_left_out() {
        let (_dir, root) = project(&[]);
        let git = Git::open(&root).unwrap();
        let gone = |commit: &str| RunSaved {
            commit: Some(commit.to_owned()),
            paths: vec!["wiki/global/a.md".to_owned(), "ktx.yaml".to_owned()],
            ..RunSaved::default()
        };
        for saved in [gone(&"1".repeat(40)), gone("--output=x"), RunSaved { commit: None, ..gone("") }] {
            let found = find(&git, &[&saved]);
            assert_eq!(found.left_out, ["wiki/global/a.md"], "{saved:?}");
            assert!(changes(&git, &found).is_empty());
        }
    }
}
