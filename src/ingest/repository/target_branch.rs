//! A branch for the commits of a run that is not the current one. The branch that is checked out, the index and all files stay as they
//! are.

use crate::diagnostic::Diagnostic;
use std::sync::PoisonError;

use super::{
    super::git::{CommitId, GitError},
    Repository, RepositoryError,
};

/// Longest name of a branch, in bytes.
const MAX_NAME_BYTES: usize = 200;

const REF_PREFIX: &str = "refs/heads/";

/// The branch cannot receive the commits of a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetBranchError {
    #[error("`{}` is not a name for a branch", name.escape_debug())]
    InvalidName { name: String },
    /// Its files would no longer match it.
    #[error("branch `{name}` is checked out")]
    CheckedOut { name: String },
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
            Self::CheckedOut { .. } => {
                "leave out --branch to commit to the current branch, or choose another name".into()
            }
            Self::LacksHead { name } => {
                format!(
                    "choose another name, delete it with `git branch -D {name}`, or merge the current branch into it"
                )
            }
            Self::Refused { .. } => "choose another name".into(),
            Self::NoRepository => {
                "make one with `git init && git add -A && git commit -m start`, or leave out --branch".into()
            }
        })
    }
}

/// Whether a run can move a branch.
enum BranchUse {
    Free,
    CheckedOut,
    /// It points to another branch, which would move.
    Symbolic,
}

impl Repository {
    /// The branch that commits go to, if it is not the current one.
    pub(crate) fn target_branch(&self) -> Option<String> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Commits go to the branch `name` from now on, or to the current branch.
    ///
    /// # Errors
    /// If `name` is invalid, or names a branch that is checked out or lacks the current commit. Nothing changes then.
    pub(crate) fn set_target_branch(&self, name: Option<&str>) -> Result<(), RepositoryError> {
        if let Some(name) = name {
            self.check_target_branch(name)?;
        }
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = name.map(str::to_owned);
        Ok(())
    }

    fn check_target_branch(&self, name: &str) -> Result<(), RepositoryError> {
        if self.is_private() {
            return Err(TargetBranchError::NoRepository.into());
        }
        let named = || name.to_owned();
        if !self.is_branch_name(name)? {
            return Err(TargetBranchError::InvalidName { name: named() }.into());
        }
        match self.branch_use(name)? {
            BranchUse::Free => {}
            BranchUse::CheckedOut => return Err(TargetBranchError::CheckedOut { name: named() }.into()),
            BranchUse::Symbolic => {
                let reason = "it is another name of a branch".to_owned();
                return Err(TargetBranchError::Refused { name: named(), reason }.into());
            }
        }
        let unborn = |_| RepositoryError::Unborn { project: self.root.clone() };
        let head = self.head().map_err(unborn)?;
        match self.branch_tip(name)? {
            Some(tip) => {
                let contains = ["merge-base", "--is-ancestor", head.as_str(), tip.as_str()];
                match self.git.try_run(&contains)?.success {
                    true => Ok(()),
                    false => Err(TargetBranchError::LacksHead { name: named() }.into()),
                }
            }
            None => {
                // Only git knows whether other branches leave room for the name.
                let trial = format!("start\ncreate {REF_PREFIX}{name} {head}\nprepare\nabort\n");
                let tried = self.git.try_run_with_input(&["update-ref", "--stdin"], trial.as_bytes())?;
                match tried.success {
                    true => Ok(()),
                    false => Err(TargetBranchError::Refused { name: named(), reason: tried.stderr }.into()),
                }
            }
        }
    }

    fn is_branch_name(&self, name: &str) -> Result<bool, GitError> {
        // git accepts any bytes above 127 and would take a leading dash for an option.
        let is_plain = !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && !name.starts_with('-')
            && !name.chars().any(|c| c.is_control() || c.is_whitespace());
        Ok(is_plain && self.git.try_run(&["check-ref-format", &format!("{REF_PREFIX}{name}")])?.success)
    }

    fn branch_use(&self, name: &str) -> Result<BranchUse, GitError> {
        let reference = format!("{REF_PREFIX}{name}");
        let head = self.git.try_run(&["symbolic-ref", "--quiet", "HEAD"])?;
        if String::from_utf8_lossy(&head.stdout).trim_end() == reference {
            return Ok(BranchUse::CheckedOut);
        }
        let format = "--format=%(refname)%00%(worktreepath)%00%(symref)";
        let listed = self.git.run(&["for-each-ref", format, &reference])?;
        // The pattern also matches branches below the name.
        let listed = String::from_utf8_lossy(&listed);
        let row = listed.lines().find_map(|row| row.strip_prefix(&reference)?.strip_prefix('\0')?.split_once('\0'));
        Ok(match row {
            Some((_, symbolic)) if !symbolic.is_empty() => BranchUse::Symbolic,
            Some((worktree, _)) if !worktree.is_empty() => BranchUse::CheckedOut,
            Some(_) | None => BranchUse::Free,
        })
    }

    /// The commit that the branch points to; `None` if it does not exist.
    fn branch_tip(&self, name: &str) -> Result<Option<CommitId>, GitError> {
        let reference = format!("{REF_PREFIX}{name}^{{commit}}");
        let tip = self.git.try_run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &reference])?;
        let parse = |tip: &str| {
            let subcommand = "rev-parse".to_owned();
            CommitId::parse(tip).map_err(|cause| GitError::NotACommitId { subcommand, cause })
        };
        tip.success.then(|| parse(String::from_utf8_lossy(&tip.stdout).trim_end())).transpose()
    }

    /// The commit that the target branch points to; `None` without a target, and before its first commit.
    pub(in crate::ingest) fn target_tip(&self) -> Result<Option<CommitId>, GitError> {
        self.target_branch().map_or(Ok(None), |name| self.branch_tip(&name))
    }

    /// Moves the branch `name` from the commit `old` to `new`, or creates it. Returns false if another process moved it.
    pub(in crate::ingest) fn move_target_branch(
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
        let options = ["update-ref", "--no-deref", "--create-reflog", "-m", subject, "--end-of-options"];
        let moved = self.git.try_run(&[&options[..], &[&reference, new.as_str(), expected]].concat())?;
        match moved.success {
            true => Ok(true),
            false if self.branch_tip(name)? != tip => Ok(false),
            false => Err(GitError::Failed { subcommand: "update-ref".into(), stderr: moved.stderr }),
        }
    }
}
