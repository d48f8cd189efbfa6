//! Changes of a run that commits contain already, for a review of them afterwards.
//!
//! A file takes part if it is as the run left it. What came before is the state before the first commit of the run that
//! changed the file. This module must not know what a review decides.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    git::{CommitId, Git, GitError},
    reconcile::{self, ChangeKind},
    repository::Repository,
    workspace, worktree,
};
use ingestdeck_core::tape::{
    RunId, UnitKey,
    note::{ReviewRequested, ReviewedFile, attempt_output::ArtifactChange},
};
use ingestdeck_os::scoped_dir::ScopedDir;

/// Directories with pages and sources.
const ARTIFACT_FOLDERS: [&str; 2] = ["wiki", "semantic-layer"];

/// A run whose commits are reviewed.
#[derive(Clone, Debug)]
pub struct CommittedRun {
    pub run: RunId,
    /// The commits that it made, oldest first.
    pub commits: Vec<RunCommit>,
    /// The units that changed each file.
    pub writers: BTreeMap<String, Vec<UnitKey>>,
}

/// A commit of a run.
#[derive(Clone, Debug, Default)]
pub struct RunCommit {
    pub id: String,
    /// The files that it changed, relative to the project.
    pub paths: BTreeSet<String>,
}

/// Why a file does not take part in a review of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// It is not as the run left it.
    Changed,
    /// The branch does not contain the commit.
    OtherBranch,
    /// The commit or the one before is not in the repository.
    Gone,
}

/// Files that do not take part.
pub(crate) type LeftOutFiles = BTreeMap<String, LeftOut>;

/// What the commits of a run changed, as far as the files are still as the run left them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommittedChanges {
    /// The commit with the previous state of each file.
    before: BTreeMap<String, CommitId>,
    pub left_out: LeftOutFiles,
    writers: BTreeMap<String, Vec<UnitKey>>,
}

/// Mode and object of each page and source of a commit.
type Tree = BTreeMap<String, String>;

impl CommittedChanges {
    /// Compares the commits of `run` with the state at `head`.
    ///
    /// # Errors
    /// If git cannot be run, or refuses to read the repository.
    pub(crate) fn find(git: &Git, head: &CommitId, run: &CommittedRun) -> Result<Self, GitError> {
        let (mut before, mut after) = (
            BTreeMap::<String, CommitId>::new(),
            BTreeMap::<String, Option<String>>::new(),
        );
        let mut left_out = LeftOutFiles::new();
        for commit in &run.commits {
            let paths = commit.paths.iter().filter(|path| is_artifact(path));
            let (old, old_tree, new_tree) = match read_commit(git, head, &commit.id)? {
                Ok(read) => read,
                Err(why) => {
                    left_out.extend(paths.map(|path| (path.clone(), why)));
                    continue;
                }
            };
            for path in paths {
                let was_changed = after
                    .get(path)
                    .is_some_and(|left| left.as_ref() != old_tree.get(path));
                if was_changed {
                    // The earlier state is not that of the run alone.
                    left_out.insert(path.clone(), LeftOut::Changed);
                }
                before.entry(path.clone()).or_insert_with(|| old.clone());
                after.insert(path.clone(), new_tree.get(path).cloned());
            }
        }
        let current = read_tree(git, head)?.unwrap_or_default();
        let changed = after
            .iter()
            .filter(|(path, left)| current.get(*path) != left.as_ref());
        left_out.extend(changed.map(|(path, _)| (path.clone(), LeftOut::Changed)));
        before.retain(|path, _| !left_out.contains_key(path));
        let writers = run
            .writers
            .iter()
            .filter(|(path, _)| before.contains_key(*path));
        let writers = writers
            .map(|(path, units)| (path.clone(), units.clone()))
            .collect();
        Ok(Self {
            before,
            left_out,
            writers,
        })
    }

    /// The commit with the state of `path` before the run; `None` for a file that does not take part.
    pub(super) fn before(&self, path: &str) -> Option<&CommitId> {
        self.before.get(path)
    }

    /// The files that take part, as they differ from the time before the run in `revision`. Those without a difference
    /// are left out.
    ///
    /// # Errors
    /// If git cannot be run, or refuses to read the repository.
    pub(crate) fn reviewed_files(
        &self,
        git: &Git,
        revision: &str,
    ) -> Result<Vec<ReviewedFile>, GitError> {
        let mut files = Vec::new();
        for commit in self.before.values().collect::<BTreeSet<_>>() {
            let range = format!("{commit}..{revision}");
            let patch = worktree::diff(git, &["--end-of-options", &range], &ARTIFACT_FOLDERS)?;
            let is_of_commit = |file: &ReviewedFile| self.before(&file.path) == Some(commit);
            for mut file in parse_files(&patch, &self.writers)
                .into_iter()
                .filter(is_of_commit)
            {
                if file.change != ArtifactChange::Created {
                    let blob = git.run(&[
                        "cat-file",
                        "blob",
                        "--end-of-options",
                        &format!("{commit}:{}", file.path),
                    ])?;
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
    /// If git cannot be run, or refuses to read the repository.
    pub fn committed_review(
        &self,
        run: &CommittedRun,
        branch: Option<&str>,
    ) -> Result<(ReviewRequested, LeftOutFiles), GitError> {
        let branch = self.review_branch(run, branch)?;
        let head = branch.map_or("HEAD".to_owned(), |branch| format!("refs/heads/{branch}"));
        let head =
            self.git
                .run_for_commit(&["rev-parse", "--verify", "--end-of-options", &head])?;
        let mut found = CommittedChanges::find(&self.git, &head, run)?;
        let mut files = found.reviewed_files(&self.git, head.as_str())?;
        if self.is_private() {
            // Its last commit may be older than the files.
            let current = ScopedDir::open(self.root());
            files.retain(|file| {
                let blob = self.git.try_run(&[
                    "cat-file",
                    "blob",
                    "--end-of-options",
                    &format!("{head}:{}", file.path),
                ]);
                let committed = blob
                    .ok()
                    .filter(|blob| blob.success)
                    .map(|blob| blob.stdout);
                let now = current
                    .as_ref()
                    .ok()
                    .and_then(|top| top.read(&file.path, workspace::MAX_FILE_BYTES).ok());
                let is_same = committed == now;
                if !is_same {
                    found.left_out.insert(file.path.clone(), LeftOut::Changed);
                }
                is_same
            });
        }
        let request = ReviewRequested {
            base: head.to_string(),
            files,
            ..ReviewRequested::default()
        };
        Ok((request, found.left_out))
    }

    /// True if the current branch contains the commits of `run`.
    ///
    /// # Errors
    /// If git cannot be run, or refuses to read the repository.
    pub fn has_commits(&self, run: &CommittedRun) -> Result<bool, GitError> {
        match run
            .commits
            .last()
            .and_then(|commit| CommitId::parse(&commit.id).ok())
        {
            Some(last) => is_ancestor(&self.git, &last, "HEAD"),
            None => Ok(false),
        }
    }

    /// The branch for a review of the commits of `run`, which went to `branch`: `None` for the current one, if it
    /// contains them or `branch` does not exist.
    ///
    /// # Errors
    /// If git cannot be run, or refuses to read the repository.
    pub fn review_branch(
        &self,
        run: &CommittedRun,
        branch: Option<&str>,
    ) -> Result<Option<String>, GitError> {
        let Some(branch) = branch else {
            return Ok(None);
        };
        let is_contained = self.has_commits(run)?;
        let name = format!("refs/heads/{branch}");
        let exists = self
            .git
            .try_run(&[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &name,
            ])?
            .success;
        Ok((exists && !is_contained).then(|| branch.to_owned()))
    }
}

/// The files of a patch, with the units that wrote them. The digests of their earlier contents are missing.
pub(super) fn parse_files(
    patch: &[u8],
    writers: &BTreeMap<String, Vec<UnitKey>>,
) -> Vec<ReviewedFile> {
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

/// The warnings about files that do not take part in a review.
pub fn left_out_messages(files: &LeftOutFiles) -> Vec<String> {
    const MAX_NAMED: usize = 5;
    let message = |why: LeftOut| {
        let of: Vec<_> = files
            .iter()
            .filter(|(_, it)| **it == why)
            .map(|(file, _)| file.escape_debug())
            .collect();
        let named: Vec<String> = of.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let more = of.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let reason = match why {
            LeftOut::Changed => "they changed after the run",
            LeftOut::OtherBranch => "the branch does not contain the commit of the run",
            LeftOut::Gone => {
                "the repository no longer has the commit of the run, or the one before"
            }
        };
        (!of.is_empty())
            .then(|| format!("not reviewed, because {reason}: {}{more}", named.join(", ")))
    };
    [LeftOut::Changed, LeftOut::OtherBranch, LeftOut::Gone]
        .into_iter()
        .filter_map(message)
        .collect()
}

fn is_artifact(path: &str) -> bool {
    ARTIFACT_FOLDERS.iter().any(|folder| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}

/// The parent of a commit of a run, and both trees.
fn read_commit(
    git: &Git,
    head: &CommitId,
    commit: &str,
) -> Result<Result<(CommitId, Tree, Tree), LeftOut>, GitError> {
    let Ok(commit) = CommitId::parse(commit) else {
        return Ok(Err(LeftOut::Gone));
    };
    let parent = format!("{commit}^1");
    let parent = git.try_run(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &parent,
    ])?;
    let name = String::from_utf8_lossy(&parent.stdout);
    let Some(parent) = CommitId::parse(name.trim_end())
        .ok()
        .filter(|_| parent.success)
    else {
        return Ok(Err(LeftOut::Gone));
    };
    if !is_ancestor(git, &commit, head.as_str())? {
        return Ok(Err(LeftOut::OtherBranch));
    }
    let trees = read_tree(git, &parent)?.zip(read_tree(git, &commit)?);
    Ok(trees
        .map(|(old, new)| (parent, old, new))
        .ok_or(LeftOut::Gone))
}

/// True if the history of `head` contains the commit.
fn is_ancestor(git: &Git, commit: &CommitId, head: &str) -> Result<bool, GitError> {
    Ok(git
        .try_run(&[
            "merge-base",
            "--is-ancestor",
            "--end-of-options",
            commit.as_str(),
            head,
        ])?
        .success)
}

/// The pages and sources of a commit; `None` if it is gone.
fn read_tree(git: &Git, commit: &CommitId) -> Result<Option<Tree>, GitError> {
    let args = [
        "ls-tree",
        "-r",
        "-z",
        "--full-tree",
        "--end-of-options",
        commit.as_str(),
    ];
    let listed = git.try_run(&[&args[..], &ARTIFACT_FOLDERS].concat())?;
    if !listed.success {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let entries = text.split('\0').filter_map(|entry| entry.split_once('\t'));
    Ok(Some(
        entries
            .map(|(object, path)| (path.to_owned(), object.to_owned()))
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_projects::{project, write};

    fn commit(git: &Git, root: &std::path::Path, files: &[(&str, Option<&str>)]) -> RunCommit {
        for (path, text) in files {
            match text {
                Some(text) => write(root, path, text),
                None => std::fs::remove_file(root.join(path)).unwrap(),
            }
        }
        git.run(&["add", "--all"]).unwrap();
        git.run(&["commit", "--quiet", "-m", "change"]).unwrap();
        let id = git.run_for_line(&["rev-parse", "HEAD"]).unwrap();
        RunCommit {
            id,
            paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
        }
    }

    fn find(git: &Git, commits: &[&RunCommit]) -> CommittedChanges {
        let head = git.run_for_commit(&["rev-parse", "HEAD"]).unwrap();
        let writers = [("wiki/global/a.md".to_owned(), vec![UnitKey::from("docs-a")])].into();
        let commits = commits.iter().map(|commit| (*commit).clone()).collect();
        CommittedChanges::find(
            git,
            &head,
            &CommittedRun {
                run: RunId(uuid::Uuid::nil()),
                commits,
                writers,
            },
        )
        .unwrap()
    }

    fn changes(git: &Git, found: &CommittedChanges) -> Vec<String> {
        let files = found.reviewed_files(git, "HEAD").unwrap();
        files
            .iter()
            .map(|file| format!("{:?} {} {}", file.change, file.path, file.units.len()))
            .collect()
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
        let second = commit(
            &git,
            &root,
            &[
                ("wiki/global/a.md", Some("a 2\n")),
                ("wiki/global/d.md", Some("d\n")),
            ],
        );
        commit(
            &git,
            &root,
            &[
                ("wiki/global/c.md", Some("c 3\n")),
                ("wiki/global/e.md", Some("e\n")),
            ],
        );
        let found = find(&git, &[&first, &second]);
        assert_eq!(
            found.left_out,
            [("wiki/global/c.md".to_owned(), LeftOut::Changed)].into()
        );
        assert_eq!(
            changes(&git, &found),
            [
                "Created wiki/global/a.md 1",
                "Removed wiki/global/b.md 0",
                "Created wiki/global/d.md 0"
            ]
        );
        let files = found.reviewed_files(&git, "HEAD").unwrap();
        assert!(files[0].diff.contains("+a 2\n") && files[0].before.is_none());
        assert_eq!(
            files[1].before.as_deref(),
            Some(&*ReviewedFile::digest(b"b\n"))
        );
    }

    #[test]
    fn changes_between_two_commits_of_the_run_are_left_out() {
        let (_dir, root) = project(&[]);
        let git = Git::open(&root).unwrap();
        let first = commit(&git, &root, &[("wiki/global/a.md", Some("a\n"))]);
        commit(&git, &root, &[("wiki/global/a.md", Some("by a person\n"))]);
        let second = commit(&git, &root, &[("wiki/global/a.md", Some("a 2\n"))]);
        let found = find(&git, &[&first, &second]);
        assert_eq!(
            found.left_out,
            [("wiki/global/a.md".to_owned(), LeftOut::Changed)].into()
        );
        assert!(changes(&git, &found).is_empty());
    }

    #[test]
    fn commits_outside_of_the_branch_are_left_out() {
        let (_dir, root) = project(&[]);
        let git = Git::open(&root).unwrap();
        let paths = || BTreeSet::from(["wiki/global/a.md".to_owned(), "ktx.yaml".to_owned()]);
        let rewritten = commit(&git, &root, &[("wiki/global/a.md", Some("a\n"))]);
        git.run(&["commit", "--quiet", "--amend", "-m", "rewritten"])
            .unwrap();
        let gone = ["1".repeat(40), "--output=x".to_owned(), String::new()]
            .map(|id| RunCommit { id, paths: paths() });
        for (commit, why) in gone
            .iter()
            .map(|gone| (gone, LeftOut::Gone))
            .chain([(&rewritten, LeftOut::OtherBranch)])
        {
            let found = find(&git, &[commit]);
            assert_eq!(
                found.left_out,
                [("wiki/global/a.md".to_owned(), why)].into(),
                "{commit:?}"
            );
            assert!(changes(&git, &found).is_empty());
            assert_eq!(left_out_messages(&found.left_out).len(), 1);
        }
    }
}
