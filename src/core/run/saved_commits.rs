//! The commits of a run with their files: those of derived sources, and those of the changes of its units. Pure.

use std::{collections::BTreeSet, fmt};

use serde_json::{Value, json};

use super::state::{Publication, RunInputs};
use crate::text::pluralize;

/// Maximum number of commits that are named. Those before them are counted.
const MAX_NAMED: usize = 5;

/// A commit of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCommit {
    pub id: String,
    /// The branch, if it is recorded.
    pub branch: Option<String>,
    /// The files that it changed, relative to the project.
    pub paths: BTreeSet<String>,
}

impl SavedCommit {
    /// For example `526efde1 on main`.
    fn name(&self) -> String {
        let branch = self
            .branch
            .as_deref()
            .map(|branch| format!(" on {branch}"))
            .unwrap_or_default();
        format!("{}{branch}", self.id.get(..8).unwrap_or(&self.id))
    }
}

/// For example `commit 526efde1 on main · 8 files changed`.
impl fmt::Display for SavedCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = pluralize(self.paths.len(), "file");
        write!(f, "commit {} · {files} changed", self.name())
    }
}

/// The commits of a run, oldest first. Derived sources are committed before the units work, or with their changes.
pub fn saved_commits(inputs: &RunInputs, publication: &Publication) -> Vec<SavedCommit> {
    let projected = inputs
        .projected
        .iter()
        .map(|of| (&of.commit, None, &of.paths));
    let saves = publication
        .saves
        .iter()
        .map(|saved| (&saved.commit, saved.branch.as_ref(), &saved.paths));
    let mut commits: Vec<SavedCommit> = Vec::new();
    for (id, branch, paths) in projected.chain(saves) {
        let Some(id) = id else { continue };
        let known = commits
            .iter()
            .position(|known| known.id == *id)
            .unwrap_or_else(|| {
                commits.push(SavedCommit {
                    id: id.clone(),
                    branch: None,
                    paths: BTreeSet::new(),
                });
                commits.len() - 1
            });
        if let Some(commit) = commits.get_mut(known) {
            commit.branch = branch.cloned().or(commit.branch.take());
            commit.paths.extend(paths.iter().cloned());
        }
    }
    commits
}

/// The last commits, and a sentence about those before them.
pub fn newest_commits(commits: &[SavedCommit]) -> (Option<String>, &[SavedCommit]) {
    let (earlier, newest) = commits.split_at(commits.len().saturating_sub(MAX_NAMED));
    let files: BTreeSet<&String> = earlier.iter().flat_map(|commit| &commit.paths).collect();
    let sentence = || {
        format!(
            "{} · {} changed",
            pluralize(earlier.len(), "earlier commit"),
            pluralize(files.len(), "file")
        )
    };
    ((!earlier.is_empty()).then(sentence), newest)
}

/// All commits in one line, for example `2 commits, the last 526efde1 on main · 9 files changed`; `None` without any.
pub fn commits_line(commits: &[SavedCommit]) -> Option<String> {
    let (last, earlier) = commits.split_last()?;
    if earlier.is_empty() {
        return Some(last.to_string());
    }
    let files: BTreeSet<&String> = commits.iter().flat_map(|commit| &commit.paths).collect();
    Some(format!(
        "{} commits, the last {} · {} changed",
        commits.len(),
        last.name(),
        pluralize(files.len(), "file")
    ))
}

/// The commits for JSON.
pub fn commits_json(commits: &[SavedCommit]) -> Value {
    let json = |commit: &SavedCommit| json!({"commit": commit.id, "branch": commit.branch, "files": commit.paths.len()});
    commits.iter().map(json).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tape::note::{RunSaved, SourcesProjected};

    fn paths(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn saved(id: &str, branch: Option<&str>, names: &[&str]) -> Arc<RunSaved> {
        let (commit, branch) = (Some(id.to_owned()), branch.map(str::to_owned));
        Arc::new(RunSaved {
            commit,
            branch,
            paths: paths(names),
            ..RunSaved::default()
        })
    }

    fn projected(id: Option<&str>, names: &[&str]) -> Arc<SourcesProjected> {
        let commit = id.map(str::to_owned);
        Arc::new(SourcesProjected {
            commit,
            paths: paths(names),
            ..SourcesProjected::default()
        })
    }

    #[test]
    fn every_commit_is_listed_once_with_its_files() {
        let projected = vec![
            projected(Some("87375ff0a1"), &["s/a.yaml", "s/b.yaml"]),
            projected(None, &["s/lost.yaml"]),
            projected(Some("526efde1a1"), &["s/c.yaml"]),
        ];
        let inputs = RunInputs {
            projected,
            ..RunInputs::default()
        };
        let first = saved("526efde1a1", Some("main"), &["s/c.yaml", "w/a.md"]);
        let saves = vec![first, saved("é", None, &["w/b.md"])];
        let publication = Publication {
            saves,
            ..Publication::default()
        };
        let commits = saved_commits(&inputs, &publication);
        let lines: Vec<String> = commits.iter().map(ToString::to_string).collect();
        let expected = [
            "commit 87375ff0 · 2 files changed",
            "commit 526efde1 on main · 2 files changed",
            "commit é · 1 file changed",
        ];
        assert_eq!(lines, expected);
        assert_eq!(newest_commits(&commits), (None, commits.as_slice()));
        assert_eq!(
            commits_json(&commits)[1],
            json!({"commit": "526efde1a1", "branch": "main", "files": 2})
        );
        assert_eq!(
            saved_commits(&RunInputs::default(), &Publication::default()),
            []
        );
    }

    #[test]
    fn many_commits_are_counted_before_the_newest() {
        let ids: Vec<String> = (0..8).map(|number| format!("{number}{number}")).collect();
        let saves = ids
            .iter()
            .map(|id| saved(id, None, &["w/page.md", &format!("w/{id}.md")]))
            .collect();
        let commits = saved_commits(
            &RunInputs::default(),
            &Publication {
                saves,
                ..Publication::default()
            },
        );
        let (earlier, newest) = newest_commits(&commits);
        assert_eq!(
            earlier.as_deref(),
            Some("3 earlier commits · 4 files changed")
        );
        assert_eq!((newest.len(), newest[0].id.as_str()), (5, "33"));
        let line = commits_line(&commits);
        assert_eq!(
            line.as_deref(),
            Some("8 commits, the last 77 · 9 files changed")
        );
        assert_eq!(commits_line(&commits[..1]), Some(commits[0].to_string()));
        assert_eq!(commits_line(&[]), None);
    }
}
