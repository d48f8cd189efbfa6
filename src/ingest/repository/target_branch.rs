//! A branch for the commits of a run that is not the current one. The branch that is checked out, the index and all files stay as they
//! are.

use ingestdeck_core::{diagnostic::Diagnostic, text};

use super::{
    super::git::{CommitId, GitError},
    Repository, RepositoryError,
};

/// Longest name of a branch, in bytes.
const MAX_NAME_BYTES: usize = 200;

const REF_PREFIX: &str = "refs/heads/";

/// The branch cannot receive the commits of a run.
#[derive(Debug, thiserror::Error)]
pub enum TargetBranchError {
    #[error("`{}` is not a name for a branch", name.escape_debug())]
    InvalidName { name: String },
    /// Its files would no longer match it.
    #[error("branch `{name}` is checked out in another worktree")]
    CheckedOut { name: String },
    /// It moved, or was deleted, after a prior run had committed to it.
    #[error("branch `{name}` no longer contains commit {} of the run", commit.get(..8).unwrap_or(commit))]
    LacksCommit { name: String, commit: String },
    /// It exists, and the run would be based on an older or another state.
    #[error("branch `{name}` exists and does not contain the current commit")]
    LacksHead { name: String },
    /// git refuses to create it.
    #[error("branch `{name}` cannot be created: {reason}")]
    Refused { name: String, reason: String },
    /// There is no repository of the user's.
    #[error("the project has no git repository, so there can be no branch")]
    NoRepository,
}

impl Diagnostic for TargetBranchError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::InvalidName { .. } => "choose another name, such as ingest/docs".into(),
            Self::CheckedOut { .. } => "check out another branch there, or choose another name".into(),
            Self::LacksHead { .. } => "choose another name, or merge the current branch into it".into(),
            Self::LacksCommit { commit, .. } => {
                format!("let it contain {commit} again, or start over with `ingestdeck run --full`")
            }
            Self::Refused { .. } => "choose another name".into(),
            Self::NoRepository => {
                "make one with `git init && git add -A && git commit -m start`, or leave out --branch".into()
            }
        })
    }
}

/// Whether a run can move a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchUse {
    Free,
    /// The project has it checked out.
    Current,
    /// Another worktree has it checked out.
    CheckedOut,
    /// It points to another branch, which would move.
    Symbolic,
}

impl BranchUse {
    /// # Errors
    /// If a run must not move the branch `name`.
    pub(crate) fn check(self, name: &str) -> Result<(), TargetBranchError> {
        let name = name.to_owned();
        match self {
            Self::Free | Self::Current => Ok(()),
            Self::CheckedOut => Err(TargetBranchError::CheckedOut { name }),
            Self::Symbolic => Err(TargetBranchError::Refused {
                name,
                reason: "it is another name of a branch".to_owned(),
            }),
        }
    }
}

impl Repository {
    /// The branch that commits go to, if it is not the current one.
    pub fn target_branch(&self) -> Option<String> {
        self.target.lock().clone()
    }

    /// Commits go to the branch `name` from now on. `continued` is the last commit of a prior run on it, which it must
    /// contain; otherwise it must contain the current commit if it exists.
    ///
    /// # Errors
    /// If the name is invalid, or the branch is unusable. Nothing changes then.
    pub fn set_target_branch(
        &self,
        name: &str,
        continued: Option<&str>,
    ) -> Result<(), RepositoryError> {
        let is_current = self.check_target_branch(name, continued)? == BranchUse::Current;
        let target = (!is_current).then(|| name.to_owned());
        *self.target.lock() = target;
        Ok(())
    }

    fn check_target_branch(
        &self,
        name: &str,
        continued: Option<&str>,
    ) -> Result<BranchUse, RepositoryError> {
        if self.is_private() {
            return Err(TargetBranchError::NoRepository.into());
        }
        let named = || name.to_owned();
        if !self.is_branch_name(name)? {
            return Err(TargetBranchError::InvalidName { name: named() }.into());
        }
        let used = self.branch_use(name)?;
        used.check(name)?;
        let unborn = |_| RepositoryError::Unborn {
            project: self.root.clone(),
        };
        let head = self.head().map_err(unborn)?;
        match (self.branch_tip(name)?, continued) {
            (Some(tip), commit) => {
                let contained = commit.unwrap_or(head.as_str());
                let contains = [
                    "merge-base",
                    "--is-ancestor",
                    "--end-of-options",
                    contained,
                    tip.as_str(),
                ];
                match (self.git.try_run(&contains)?.success, commit) {
                    (true, _) => Ok(used),
                    (false, None) => Err(TargetBranchError::LacksHead { name: named() }.into()),
                    (false, Some(commit)) => Err(TargetBranchError::LacksCommit {
                        name: named(),
                        commit: commit.to_owned(),
                    }
                    .into()),
                }
            }
            (None, Some(commit)) => Err(TargetBranchError::LacksCommit {
                name: named(),
                commit: commit.to_owned(),
            }
            .into()),
            (None, None) => {
                // Only git knows whether other branches leave room for the name.
                let trial = format!("start\ncreate {REF_PREFIX}{name} {head}\nprepare\nabort\n");
                let tried = self
                    .git
                    .try_run_with_input(&["update-ref", "--stdin"], trial.as_bytes())?;
                match tried.success {
                    true => Ok(used),
                    false => Err(TargetBranchError::Refused {
                        name: named(),
                        reason: tried.stderr,
                    }
                    .into()),
                }
            }
        }
    }

    fn is_branch_name(&self, name: &str) -> Result<bool, GitError> {
        // git accepts more: names that a command line reads as something else, and invisible characters.
        let is_misread = name.starts_with(['-', '+'])
            || name.starts_with("refs/")
            || name == "HEAD"
            || name == "@";
        let is_plain = !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && !is_misread
            && !name.contains(char::is_whitespace)
            && text::printable(name, usize::MAX) == name;
        Ok(is_plain
            && self
                .git
                .try_run(&["check-ref-format", &format!("{REF_PREFIX}{name}")])?
                .success)
    }

    /// Where the branch is in use now.
    pub(crate) fn branch_use(&self, name: &str) -> Result<BranchUse, GitError> {
        let reference = format!("{REF_PREFIX}{name}");
        let head = self.git.try_run(&["symbolic-ref", "--quiet", "HEAD"])?;
        if String::from_utf8_lossy(&head.stdout).trim_end() == reference {
            return Ok(BranchUse::Current);
        }
        let format = "--format=%(refname)%00%(worktreepath)%00%(symref)";
        let listed = self.git.run(&["for-each-ref", format, &reference])?;
        // The pattern also matches branches below the name.
        let listed = String::from_utf8_lossy(&listed);
        let row = listed.lines().find_map(|row| {
            row.strip_prefix(&reference)?
                .strip_prefix('\0')?
                .split_once('\0')
        });
        Ok(match row {
            Some((_, symbolic)) if !symbolic.is_empty() => BranchUse::Symbolic,
            Some((worktree, _)) if !worktree.is_empty() => BranchUse::CheckedOut,
            Some(_) | None => BranchUse::Free,
        })
    }

    /// The commit that the branch points to; `None` if it does not exist.
    fn branch_tip(&self, name: &str) -> Result<Option<CommitId>, GitError> {
        let reference = format!("{REF_PREFIX}{name}^{{commit}}");
        let tip = self.git.try_run(&[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &reference,
        ])?;
        let parse = |tip: &str| {
            let subcommand = "rev-parse".to_owned();
            CommitId::parse(tip).map_err(|cause| GitError::NotACommitId { subcommand, cause })
        };
        tip.success
            .then(|| parse(String::from_utf8_lossy(&tip.stdout).trim_end()))
            .transpose()
    }

    /// The commit that the target branch points to; `None` without a target, and before its first commit.
    pub(crate) fn target_tip(&self) -> Result<Option<CommitId>, GitError> {
        self.target_branch()
            .map_or(Ok(None), |name| self.branch_tip(&name))
    }

    /// True if the target branch exists.
    pub fn has_target_commits(&self) -> Result<bool, GitError> {
        Ok(self.target_tip()?.is_some())
    }

    /// Moves the branch `name` from the commit `old` to `new`, or creates it. Returns false if another process moved it.
    pub(crate) fn move_target_branch(
        &self,
        name: &str,
        (old, new): (&CommitId, &CommitId),
        subject: &str,
    ) -> Result<bool, GitError> {
        let tip = self.branch_tip(name)?;
        if tip.as_ref().is_some_and(|tip| tip != old) {
            return Ok(false);
        }
        let reference = format!("{REF_PREFIX}{name}");
        // An empty old value means that the branch must not exist.
        let expected = tip.as_ref().map_or("", CommitId::as_str);
        let options = [
            "update-ref",
            "--no-deref",
            "--create-reflog",
            "-m",
            subject,
            "--end-of-options",
        ];
        let moved = self
            .git
            .try_run(&[&options[..], &[&reference, new.as_str(), expected]].concat())?;
        match moved.success {
            true => Ok(true),
            false if self.branch_tip(name)? != tip => Ok(false),
            false => Err(GitError::Failed {
                subcommand: "update-ref".into(),
                stderr: moved.stderr,
            }),
        }
    }
}
