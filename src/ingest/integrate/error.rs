//! Why patches are not integrated or not saved.

use std::{io, path::PathBuf};

use crate::{
    branch_update::BranchUpdateError,
    git::GitError,
    repository::{ConvertedFile, RepositoryError},
    worktree::WorktreeError,
};
use ingestdeck_core::{diagnostic::Diagnostic, tape::note::BlockedFile};

/// The integration failed. The changes of the units are kept in their patches.
#[derive(Debug, thiserror::Error)]
pub enum IntegrationError {
    /// The worktree cannot be created.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    /// A git call failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    /// The current state of the project cannot be determined.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// git would convert a file of the result.
    #[error(transparent)]
    ConvertedFile(ConvertedFile),
    /// The branch cannot be updated to the result.
    #[error(transparent)]
    BranchUpdate(#[from] BranchUpdateError),
    /// The branch moved, and the changes of the units conflict with its new state.
    #[error("the branch moved, and changes of the units conflict with it ({conflicts})")]
    ConflictsWithBranch { conflicts: String },
    /// The accepted part of the changes is not valid without the rest.
    #[error("the accepted changes are not valid without the others: {}", findings.join("; "))]
    InvalidReview {
        /// One sentence for each problem.
        findings: Vec<String>,
    },
    /// The branch moved during every attempt to save.
    #[error("the branch kept changing while saving")]
    BranchMovedRepeatedly,
}

impl IntegrationError {
    /// The files of the user that block a save.
    pub fn blocked_files(&self) -> &[BlockedFile] {
        match self {
            Self::BranchUpdate(BranchUpdateError::WouldOverwrite { files, .. }) => files,
            _ => &[],
        }
    }
}

impl Diagnostic for IntegrationError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Worktree(error) => return error.help(),
            Self::Git(error) => return error.help(),
            Self::BranchUpdate(error) => return error.help(),
            Self::Repository(error) => return error.help(),
            Self::ConvertedFile(file) => {
                let help = file.help().unwrap_or_default();
                format!("{help}; then resume the run: the changes of the units are kept in their patches")
            }
            Self::ConflictsWithBranch { .. } => {
                "resume the run to save the changes that still apply, without running their units again".into()
            }
            Self::InvalidReview { .. } => {
                "accept what they refer to, or reject or edit the files that are named".into()
            }
            Self::BranchMovedRepeatedly => "stop other commits, then try again".into(),
            Self::Io { .. } => return None,
        })
    }
}
