//! The committed state of a project, and clones of it in other directories.
//!
//! A clone is a new repository that reads the objects of the original through `objects/info/alternates`. So git never
//! reads the original's configuration on behalf of a clone, runs none of its programs, and changes nothing in it. This
//! module must not know what clones are for.

use std::{io, path::Path};

use super::{
    git::{CommitId, Git, GitError},
    repository::{Repository, RepositoryError},
};
use crate::{
    diagnostic::Diagnostic,
    scoped_dir::{self, PRIVATE_MODE, ScopedDir},
};

/// Branch of a clone.
const BRANCH: &str = "main";
/// Largest list of commits without parents in a shallow repository, in bytes.
const MAX_SHALLOW_BYTES: u64 = 16 << 20;
/// Length of a SHA-1 commit id.
const SHA1_HEX_LENGTH: usize = 40;

/// The state of a project at its HEAD.
#[derive(Debug)]
pub(crate) struct ProjectSnapshot {
    repository: Repository,
    pub commit: CommitId,
}

/// A project has no committed state, or it cannot be cloned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectSnapshotError {
    #[error("{project} is not a git repository, and only a committed state can be cloned")]
    NoRepository { project: String },
    #[error("git cannot refer to the path of {project} from another repository")]
    InvalidPath { project: String },
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
            Self::NoRepository { .. } => {
                Some("make it one with `git init && git add -A && git commit -m start` in the project".to_owned())
            }
            Self::InvalidPath { .. } => Some("use an absolute path without line breaks that is UTF-8".to_owned()),
            Self::Repository(error) => error.help(),
            Self::Git(error) => error.help(),
            Self::Io(error) => scoped_dir::remedy(error).map(str::to_owned),
        }
    }
}

impl ProjectSnapshot {
    /// Opens the state of the project at `root`, which must be the top of a repository.
    pub(crate) fn open(root: &Path) -> Result<Self, ProjectSnapshotError> {
        let project = root.display().to_string();
        let Some(repository) = Repository::find(root)? else {
            return Err(ProjectSnapshotError::NoRepository { project });
        };
        let head =
            repository.git.try_run(&["rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}"])?;
        let commit = CommitId::parse(String::from_utf8_lossy(&head.stdout).trim_end()).ok();
        let commit = commit.filter(|_| head.success);
        let commit = commit.ok_or_else(|| RepositoryError::Unborn { project: root.to_path_buf() })?;
        Ok(Self { repository, commit })
    }

    /// Name of the project's directory, or another name if it cannot be the name of a clone.
    pub(crate) fn name(&self) -> &str {
        let name = self.repository.root().file_name().and_then(|name| name.to_str());
        name.filter(|name| !name.starts_with('.')).unwrap_or("project")
    }

    /// Number of files that differ from the commit or are not in it.
    pub(crate) fn uncommitted_files(&self) -> Result<usize, GitError> {
        let args = ["status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all"];
        let listed = self.repository.git.run(&args)?;
        Ok(listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).count())
    }

    /// Creates a clone in `directory`, which must be empty, with the commit on its own branch.
    pub(crate) fn clone_into(&self, directory: &Path) -> Result<(), ProjectSnapshotError> {
        let root = self.repository.root();
        // git quotes other paths in `alternates`, and ends them at a line break.
        let is_plain = root.to_str().is_some_and(|path| path.starts_with('/') && !path.contains(['\n', '\r']));
        if !is_plain {
            return Err(ProjectSnapshotError::InvalidPath { project: root.display().to_string() });
        }
        let args = ["rev-parse", "--path-format=absolute", "--git-path", "objects"];
        let objects = self.repository.git.run_for_line(&args)?;
        let is_sha1 = self.commit.as_str().len() == SHA1_HEX_LENGTH;
        let (version, extensions) = if is_sha1 { (0, "") } else { (1, "[extensions]\n\tobjectFormat = sha256\n") };
        let config = format!("[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n{extensions}");
        let clone = ScopedDir::open(directory)?;
        for name in [".git/refs/heads", ".git/objects/pack", ".git/objects/info"] {
            clone.dir(name, Some(PRIVATE_MODE))?;
        }
        let original = ScopedDir::open(root)?;
        if let Some(shallow) = original.read_if_exists(".git/shallow", MAX_SHALLOW_BYTES)? {
            clone.write(".git/shallow", &shallow, PRIVATE_MODE, 0o600)?;
        }
        for (name, text) in [
            (".git/config", config),
            (".git/HEAD", format!("ref: refs/heads/{BRANCH}\n")),
            (".git/objects/info/alternates", format!("{objects}\n")),
        ] {
            clone.write(name, text.as_bytes(), PRIVATE_MODE, 0o600)?;
        }
        let git = Git::open(directory)?;
        git.run(&["update-ref", &format!("refs/heads/{BRANCH}"), self.commit.as_str()])?;
        git.run(&["reset", "--hard", "--quiet"])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ingest::git::tests::{project, write};

    #[test]
    fn clone_has_the_commit_and_nothing_else() {
        let (_dir, root) = project(&[("wiki/global/a.md", "a\n"), ("ktx.yaml", "connections: {}\n")]);
        write(&root, "wiki/global/a.md", "changed\n");
        write(&root, "wiki/global/new.md", "new\n");
        let snapshot = ProjectSnapshot::open(&root).unwrap();
        assert_eq!(snapshot.uncommitted_files().unwrap(), 2);
        let place = tempfile::tempdir().unwrap();
        snapshot.clone_into(place.path()).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("wiki/global/a.md")).unwrap(), "a\n");
        assert!(!place.path().join("wiki/global/new.md").exists());
        let clone = ProjectSnapshot::open(place.path()).unwrap();
        assert_eq!((clone.commit, clone.repository.branch().unwrap()), (snapshot.commit, Some("main".to_owned())));
        assert_eq!(ProjectSnapshot::open(place.path()).unwrap().uncommitted_files().unwrap(), 0);
    }

    #[test]
    fn project_without_a_commit_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let error = ProjectSnapshot::open(place.path()).unwrap_err();
        assert!(error.help().unwrap().contains("git init"), "{error}");
    }
}
