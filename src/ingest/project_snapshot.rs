//! The committed state of a project, and clones of it in other directories.
//!
//! A clone is a new repository with a copy of the objects of one commit, without its history. So git never reads the
//! original's configuration on behalf of a clone, runs none of its programs, and changes nothing in it; and the original
//! can change or disappear. This module must not know what clones are for.

use std::{collections::BTreeSet, io, path::Path};

use super::{
    git::{
        CommitId, Git, GitError,
        shallow_copy::{self, BRANCH},
    },
    instructions::{PINS_FILE, PROMPTS_DIR, SKILLS_DIR},
    repository::{Repository, RepositoryError},
};
use ingestdeck_core::{diagnostic::Diagnostic, run::commit_trailers::RunTrailers};
use ingestdeck_os::scoped_dir::{self, PRIVATE_MODE, ScopedDir};

/// Directory of the raw files that runs commit, by connection.
const RAW_COPIES_DIR: &str = "raw-sources/";

/// The state of a project at its HEAD.
#[derive(Debug)]
pub struct ProjectSnapshot {
    repository: Repository,
    pub commit: CommitId,
}

/// A project has no committed state, or it cannot be cloned.
#[derive(Debug, thiserror::Error)]
pub enum ProjectSnapshotError {
    #[error("{project} is not a git repository, and only a committed state can be cloned")]
    NoRepository { project: String },
    #[error("the path {path} is not UTF-8")]
    InvalidPath { path: String },
    /// The clone of the user lacks the commits that show what runs wrote.
    #[error("the history of {project} is incomplete, so what earlier runs wrote is unknown")]
    IncompleteHistory { project: String },
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot clone the project: {0}")]
    Io(#[from] io::Error),
}

impl Diagnostic for ProjectSnapshotError {
    fn help(&self) -> Option<String> {
        match self {
            Self::NoRepository { .. } => Some(
                "make it one with `git init && git add -A && git commit -m start` in the project"
                    .to_owned(),
            ),
            Self::InvalidPath { .. } => {
                Some("set TMPDIR to a directory with another path".to_owned())
            }
            Self::IncompleteHistory { .. } => {
                Some("complete it with `git fetch --unshallow`".to_owned())
            }
            Self::Repository(error) => error.help(),
            Self::Git(error) => error.help(),
            Self::Io(error) => scoped_dir::remedy(error).map(str::to_owned),
        }
    }
}

impl ProjectSnapshot {
    /// Opens the state of the project at `root`, which must be the top of a repository.
    pub fn open(root: &Path) -> Result<Self, ProjectSnapshotError> {
        let project = root.display().to_string();
        let Some(repository) = Repository::find(root)? else {
            return Err(ProjectSnapshotError::NoRepository { project });
        };
        let head = repository.git.try_run(&[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            "HEAD^{commit}",
        ])?;
        let commit = CommitId::parse(String::from_utf8_lossy(&head.stdout).trim_end()).ok();
        let commit = commit.filter(|_| head.success);
        let commit = commit.ok_or_else(|| RepositoryError::Unborn {
            project: root.to_path_buf(),
        })?;
        Ok(Self { repository, commit })
    }

    /// Opens the state of the project at `root` at a commit of its repository, or at its HEAD.
    pub fn at(root: &Path, commit: Option<&str>) -> Result<Self, ProjectSnapshotError> {
        let head = Self::open(root)?;
        let Some(commit) = commit.and_then(|commit| CommitId::parse(commit).ok()) else {
            return Ok(head);
        };
        let name = format!("{commit}^{{commit}}");
        let verify = [
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &name,
        ];
        let commit = head.repository.git.run_for_commit(&verify)?;
        Ok(Self { commit, ..head })
    }

    /// Name of the project's directory, or another name if it cannot be the name of a clone.
    pub fn name(&self) -> &str {
        let name = self
            .repository
            .root()
            .file_name()
            .and_then(|name| name.to_str());
        name.filter(|name| !name.starts_with('.'))
            .unwrap_or("project")
    }

    /// Paths of the files that differ from the commit or are not in it. Ignored files are left out, except for those that
    /// agents get as instructions.
    pub fn uncommitted_files(&self) -> Result<BTreeSet<String>, GitError> {
        let status = [
            "status",
            "--porcelain",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=all",
        ];
        let of_instructions = [
            "--ignored=matching",
            "--",
            PROMPTS_DIR,
            SKILLS_DIR,
            PINS_FILE,
        ];
        let changed = self.repository.git.run(&status)?;
        let instructions = self
            .repository
            .git
            .run(&[&status[..], &of_instructions].concat())?;
        // Two letters and a blank are in front of each path.
        let paths = |output: &[u8]| -> BTreeSet<String> {
            let entries = output
                .split(|byte| *byte == 0)
                .filter_map(|entry| entry.get(3..));
            entries
                .map(|path| String::from_utf8_lossy(path).into_owned())
                .collect()
        };
        let mut found = paths(&changed);
        let root = ScopedDir::open(self.repository.root()).ok();
        for path in paths(&instructions) {
            // An ignored directory may have none of them.
            let inner = [PROMPTS_DIR, SKILLS_DIR, PINS_FILE]
                .into_iter()
                .filter(|name| name.starts_with(&path));
            let inner: Vec<&str> = inner
                .filter(|name| name.trim_end_matches('/') != path.trim_end_matches('/'))
                .collect();
            if inner.is_empty() {
                found.insert(path);
                continue;
            }
            let is_there = |name: &&str| {
                root.as_ref()
                    .is_some_and(|root| matches!(root.kind(name), Ok(Some(_))))
            };
            found.extend(inner.into_iter().filter(is_there).map(str::to_owned));
        }
        Ok(found)
    }

    /// Creates a clone in `directory`, which must be empty, with the commit on its own branch.
    pub fn clone_into(&self, directory: &Path) -> Result<(), ProjectSnapshotError> {
        let clone = ScopedDir::open(directory)?;
        shallow_copy::create_repository(&clone, Some(&self.commit))?;
        // The commit has no parents here.
        let shallow = format!("{}\n", self.commit.as_str());
        clone.write(".git/shallow", shallow.as_bytes(), PRIVATE_MODE, 0o600)?;
        let Some(path) = directory.to_str() else {
            return Err(ProjectSnapshotError::InvalidPath {
                path: directory.display().to_string(),
            });
        };
        shallow_copy::copy_objects(&self.repository.git, &self.commit, path)?;
        let git = Git::open(directory)?;
        git.run(&[
            "update-ref",
            &format!("refs/heads/{BRANCH}"),
            self.commit.as_str(),
        ])?;
        git.run(&["reset", "--hard", "--quiet"])?;
        Ok(())
    }

    /// The pages and sources of the commit that runs created while they ingested one of `connections`. Where the commit
    /// of a run does not show its connections, all of its pages and sources are included.
    ///
    /// # Errors
    /// If git fails, or a shallow clone has pages or sources but not their history.
    pub fn ingested_artifacts(
        &self,
        connections: &BTreeSet<&str>,
    ) -> Result<BTreeSet<String>, ProjectSnapshotError> {
        const ARTIFACT_DIRS: [&str; 2] = ["wiki/", "semantic-layer/"];
        let git = &self.repository.git;
        let commit = self.commit.as_str();
        let tree = [
            "ls-tree",
            "-r",
            "-z",
            "--name-only",
            "--end-of-options",
            commit,
        ];
        let tree = git.run(&[&tree[..], &["--"], &ARTIFACT_DIRS].concat())?;
        let mut remaining: BTreeSet<String> = String::from_utf8_lossy(&tree)
            .split_terminator('\0')
            .map(str::to_owned)
            .collect();
        if remaining.is_empty() {
            return Ok(remaining);
        }
        if git.run_for_line(&["rev-parse", "--is-shallow-repository"])? == "true" {
            let project = self.repository.root().display().to_string();
            return Err(ProjectSnapshotError::IncompleteHistory { project });
        }
        let log = [
            "log",
            "--no-show-signature",
            "--no-renames",
            "--diff-filter=A",
            "--name-only",
            "-z",
            "--format=format:%x01%B%x02",
            "--end-of-options",
            commit,
            "--",
            RAW_COPIES_DIR,
        ];
        let log = git.run(&[&log[..], &ARTIFACT_DIRS].concat())?;
        let mut found = BTreeSet::new();
        // Newest first, so the first commit that created a file made the one of today.
        for record in String::from_utf8_lossy(&log).split('\u{1}') {
            let Some((message, files)) = record.split_once('\u{2}') else {
                continue;
            };
            let files = files.split('\0').map(|file| file.trim_start_matches('\n'));
            let (copies, created): (Vec<&str>, Vec<&str>) =
                files.partition(|file| file.starts_with(RAW_COPIES_DIR));
            let mut of_run = copies
                .iter()
                .filter_map(|file| file.strip_prefix(RAW_COPIES_DIR)?.split('/').next());
            let is_ingested = !RunTrailers::parse_all(message).is_empty()
                && (copies.is_empty() || of_run.any(|name| connections.contains(name)));
            for file in created {
                if let Some(file) = remaining.take(file).filter(|_| is_ingested) {
                    found.insert(file);
                }
            }
        }
        Ok(found)
    }

    /// Commits the project without `files`. Only for a clone.
    ///
    /// # Errors
    /// If git fails.
    pub fn without_files(self, files: &BTreeSet<String>) -> Result<Self, ProjectSnapshotError> {
        let git = &self.repository.git;
        let names: String = files.iter().map(|file| format!("{file}\0")).collect();
        let remove = [
            "--literal-pathspecs",
            "rm",
            "--quiet",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
        ];
        git.run_with_input(&remove, names.as_bytes())?;
        let tree = git.run_for_line(&["write-tree"])?;
        let message = "Leave out what earlier runs created";
        let commit =
            git.run_for_commit(&["commit-tree", "-m", message, "--end-of-options", &tree])?;
        git.run(&["reset", "--hard", "--quiet", commit.as_str()])?;
        Ok(Self { commit, ..self })
    }
}

/// Makes `directory` a repository with a commit of its files, those that git would ignore as well.
///
/// # Errors
/// If git fails.
pub fn commit_directory(directory: &Path) -> Result<(), ProjectSnapshotError> {
    shallow_copy::create_repository(&ScopedDir::open(directory)?, None)?;
    let git = Git::open(directory)?;
    git.run(&["add", "--all", "--force"])?;
    let tree = git.run_for_line(&["write-tree"])?;
    let commit = git.run_for_commit(&["commit-tree", "-m", "Files", "--end-of-options", &tree])?;
    let branch = format!("refs/heads/{BRANCH}");
    git.run(&["update-ref", &branch, commit.as_str()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::test_projects::{project, write};

    #[test]
    fn clone_has_the_commit_and_nothing_else() {
        let (dir, root) = project(&[
            ("wiki/global/a.md", "a\n"),
            ("ktx.yaml", "connections: {}\n"),
        ]);
        Git::open(&root)
            .unwrap()
            .run(&["commit", "--quiet", "--allow-empty", "-m", "second"])
            .unwrap();
        write(&root, "wiki/global/a.md", "changed\n");
        write(&root, "wiki/global/new.md", "new\n");
        let snapshot = ProjectSnapshot::open(&root).unwrap();
        assert_eq!(snapshot.uncommitted_files().unwrap().len(), 2);
        let place = tempfile::tempdir().unwrap();
        snapshot.clone_into(place.path()).unwrap();
        // A clone does not need the original.
        dir.close().unwrap();
        let again = tempfile::tempdir().unwrap();
        ProjectSnapshot::open(place.path())
            .unwrap()
            .clone_into(again.path())
            .unwrap();
        for place in [&place, &again] {
            assert_eq!(
                fs::read_to_string(place.path().join("wiki/global/a.md")).unwrap(),
                "a\n"
            );
            assert!(!place.path().join("wiki/global/new.md").exists());
            let clone = ProjectSnapshot::open(place.path()).unwrap();
            assert_eq!(clone.commit, snapshot.commit);
            assert_eq!(clone.repository.branch().unwrap(), Some("main".to_owned()));
            assert!(clone.uncommitted_files().unwrap().is_empty());
            Git::open(place.path())
                .unwrap()
                .run(&["fsck", "--strict"])
                .unwrap();
        }
    }

    #[test]
    fn only_what_runs_created_from_the_connections_is_found() {
        let (_dir, root) = project(&[("wiki/global/own.md", "own\n")]);
        let commit = |files: &[&str], message: &str| {
            files.iter().for_each(|file| write(&root, file, message));
            let git = Git::open(&root).unwrap();
            git.run(&["add", "--all"]).unwrap();
            git.run(&["commit", "--quiet", "-m", message]).unwrap();
        };
        let run = "ingest\n\nIngest-Run: 01a20141-a13e-713f-b820-144f51fc451a\n";
        commit(
            &[
                "raw-sources/a/docs/1/x.md",
                "wiki/global/own.md",
                "wiki/global/of a.md",
            ],
            run,
        );
        commit(&["raw-sources/b/docs/1/x.md", "wiki/global/b.md"], run);
        commit(
            &["semantic-layer/c/unattributed.yaml", "wiki/global/again.md"],
            run,
        );
        fs::remove_file(root.join("wiki/global/again.md")).unwrap();
        commit(&["other.md"], "remove a page");
        commit(&["wiki/global/again.md"], "write it again by hand");
        let snapshot = ProjectSnapshot::open(&root).unwrap();
        let found = snapshot.ingested_artifacts(&["a"].into()).unwrap();
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(
            found,
            ["semantic-layer/c/unattributed.yaml", "wiki/global/of a.md"]
        );
    }

    #[test]
    fn ignored_directory_without_instructions_is_not_named() {
        let (_dir, root) = project(&[(".gitignore", ".ktx/\n")]);
        write(&root, ".ktx/ingestdeck/runs/x", "x");
        let uncommitted = || {
            ProjectSnapshot::open(&root)
                .unwrap()
                .uncommitted_files()
                .unwrap()
        };
        assert!(uncommitted().is_empty());
        write(&root, ".ktx/prompts/a.md", "x");
        assert_eq!(
            uncommitted().into_iter().collect::<Vec<_>>(),
            [".ktx/prompts"]
        );
    }

    #[test]
    fn ignored_instructions_are_named() {
        let (_dir, root) = project(&[
            ("ktx.yaml", "connections: {}\n"),
            (".gitignore", ".ktx/prompts/\n*.log\n"),
        ]);
        write(&root, ".ktx/prompts/work_unit.md", "terse\n");
        write(&root, "other.log", "x\n");
        write(&root, "ktx.yaml", "connections: {}\n# changed\n");
        let changed = ProjectSnapshot::open(&root)
            .unwrap()
            .uncommitted_files()
            .unwrap();
        assert_eq!(
            changed.into_iter().collect::<Vec<_>>(),
            [".ktx/prompts/", "ktx.yaml"]
        );
    }

    #[test]
    fn project_without_a_commit_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let error = ProjectSnapshot::open(place.path()).unwrap_err();
        assert!(error.help().unwrap().contains("git init"), "{error}");
    }
}
