//! One ingest of a project at a time, across processes: two would build on states that the other one replaces.
//!
//! The locks are the kernel's, so a crash frees them. The state directory is locked beside the file that names the
//! process, because the file can be deleted while it is locked. The directory of the project is left to others: `flock
//! PROJECT ingestdeck run` must work. This module must not know what an ingest does.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use crate::scoped_dir::{self, FileLock, STATE_DIR, ScopedDir};

/// In the state directory.
const LOCK_FILE: &str = "ingest.lock";

/// A project that is ours until this value is dropped.
#[derive(Debug)]
pub struct ProjectLock {
    _file: File,
    /// `None` where the file system does not lock directories, as NFS.
    _directory: Option<FileLock>,
}

/// A project cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProjectLockError {
    /// Somebody else ingests.
    #[error(
        "{} is being ingested by {}; wait for it or stop it, then try again", project.display(),
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Held {
        /// The project.
        project: PathBuf,
        /// Who, where the file is locked that names it.
        pid: Option<u32>,
    },
    /// The system refuses.
    #[error("cannot lock the project: {}: {cause}{}", path.display(), scoped_dir::remedy(cause))]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// Whether [`acquire`] can open its lock file in the project at `root`, with its error. Changes nothing.
pub fn check_lock_file(root: &Path) -> Result<(), ProjectLockError> {
    let checked =
        ScopedDir::open(root).and_then(|project| project.check_open_or_create(&format!("{STATE_DIR}/{LOCK_FILE}")));
    checked.map_err(|cause| ProjectLockError::Io { path: root.join(STATE_DIR).join(LOCK_FILE), cause })
}

/// Takes the project at `root`.
pub fn acquire(root: &Path) -> Result<ProjectLock, ProjectLockError> {
    let path = root.join(STATE_DIR).join(LOCK_FILE);
    let failed = |cause| ProjectLockError::Io { path: path.clone(), cause };
    let taken = |pid| ProjectLockError::Held { project: root.to_path_buf(), pid };
    let state = scoped_dir::state_dir(root).map_err(failed)?;
    let mut file = state.open_or_create(LOCK_FILE).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(taken(read_holder(&file))),
        Err(TryLockError::Error(cause)) => return Err(failed(cause)),
    }
    let directory = match state.try_lock_dir() {
        Ok(Some(directory)) => Some(directory),
        // The holder's file was deleted: this one is new or names a process of the past.
        Ok(None) => return Err(taken(None)),
        Err(error) => {
            tracing::debug!(%error, "the state directory cannot be locked; only the lock file is");
            None
        }
    };
    // Named in the message to a second run; the lock holds without it.
    let _ = write_holder(&mut file);
    Ok(ProjectLock { _file: file, _directory: directory })
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn read_holder(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_file_is_ignored_by_git() {
        let dir = tempfile::tempdir().unwrap();
        let lock = acquire(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join(STATE_DIR).join(".gitignore")).unwrap(), "*\n");
        drop(lock);
    }

    #[test]
    fn project_whose_lock_file_was_deleted_stays_locked() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join(STATE_DIR);
        let first = acquire(dir.path()).unwrap();
        std::fs::remove_file(state.join(LOCK_FILE)).unwrap();
        assert!(matches!(acquire(dir.path()), Err(ProjectLockError::Held { pid: None, .. })));
        // A process id in a file that is not locked is of the past.
        std::fs::write(state.join(LOCK_FILE), "4711").unwrap();
        assert!(matches!(acquire(dir.path()), Err(ProjectLockError::Held { pid: None, .. })));
        drop(first);
    }

    /// As `flock PROJECT ingestdeck run`, the line of a crontab.
    #[test]
    fn project_directory_itself_is_not_locked() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        directory.lock().unwrap();
        acquire(dir.path()).unwrap();
    }

    #[test]
    fn second_lock_error_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let first = acquire(dir.path()).unwrap();
        let error = acquire(dir.path()).unwrap_err();
        let own = std::process::id();
        assert!(matches!(&error, ProjectLockError::Held { pid: Some(pid), .. } if *pid == own), "{error}");
        assert!(error.to_string().contains(&format!("process {own}; wait")), "{error}");
        drop(first);
        // A child that another test forks just now holds a copy until it becomes another program.
        assert!((0..1_000_000).any(|_| acquire(dir.path()).is_ok()));
    }
}
