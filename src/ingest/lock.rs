//! Allows one ingest of a project at a time, across processes: concurrent ingests would build on states that the other
//! one replaces.
//!
//! The locks are kernel locks, so a crash releases them. The state directory is locked in addition to the file that
//! names the process, because the file can be deleted while it is locked. The project directory itself is not locked:
//! `flock PROJECT ingestdeck run` must work. This module must not know what an ingest does.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use ingestdeck_core::diagnostic::Diagnostic;
use ingestdeck_os::scoped_dir::{self, FileLock, STATE_DIR, ScopedDir};

/// Name of the lock file in the state directory.
const LOCK_FILE: &str = "ingest.lock";

/// Time between two attempts to lock a project.
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// Exclusive access to a project until this value is dropped.
#[derive(Debug)]
pub struct ProjectLock {
    _file: File,
    /// `None` if the file system cannot lock directories, such as NFS.
    _directory: Option<FileLock>,
}

/// The project cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum ProjectLockError {
    /// Another process ingests the project.
    #[error(
        "{} is being ingested by {}", project.display(),
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Held {
        project: PathBuf,
        /// Process id of the other process; `None` if its lock file was deleted.
        pid: Option<u32>,
    },
    /// A system call failed.
    #[error("cannot lock the project: {}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl Diagnostic for ProjectLockError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Held { .. } => {
                "show it with `ingestdeck attach`, or stop it with `ingestdeck ctl stop-all`, then try again".into()
            }
            Self::Io { cause, .. } => return scoped_dir::remedy(cause).map(str::to_owned),
        })
    }
}

/// Checks whether [`acquire`] can open its lock file in the project at `root`. Changes nothing.
pub fn check_lock_file(root: &Path) -> Result<(), ProjectLockError> {
    let checked = ScopedDir::open(root)
        .and_then(|project| project.check_open_or_create(&format!("{STATE_DIR}/{LOCK_FILE}")));
    checked.map_err(|cause| ProjectLockError::Io {
        path: root.join(STATE_DIR).join(LOCK_FILE),
        cause,
    })
}

/// Locks the project at `root`.
pub fn acquire(root: &Path) -> Result<ProjectLock, ProjectLockError> {
    let path = root.join(STATE_DIR).join(LOCK_FILE);
    let failed = |cause| ProjectLockError::Io {
        path: path.clone(),
        cause,
    };
    let held = |pid| ProjectLockError::Held {
        project: root.to_path_buf(),
        pid,
    };
    let state = scoped_dir::state_dir(root).map_err(failed)?;
    let mut file = state.open_or_create(LOCK_FILE).map_err(failed)?;
    if !scoped_dir::try_lock_file(&file).map_err(failed)? {
        return Err(held(read_holder(&file)));
    }
    let directory = match state.try_lock_dir() {
        Ok(Some(directory)) => Some(directory),
        // The holder's lock file was deleted: this file is new or names an old process.
        Ok(None) => return Err(held(None)),
        Err(error) => {
            tracing::debug!(%error, "the state directory cannot be locked; only the lock file is");
            None
        }
    };
    // The process id is only for the message to a second run, so a failure to write it is ignored.
    let _ = write_holder(&mut file);
    Ok(ProjectLock {
        _file: file,
        _directory: directory,
    })
}

/// Waits until no other process ingests the project at `root`, at most for `limit`. Before it waits, it calls `waiting`
/// with the reason. Another process can be first afterwards.
///
/// # Errors
/// As [`acquire`], at the end of the time.
pub fn wait(
    root: &Path,
    limit: Duration,
    waiting: &dyn Fn(&ProjectLockError),
) -> Result<(), ProjectLockError> {
    let started = Instant::now();
    let mut is_first = true;
    loop {
        match acquire(root) {
            Err(held @ ProjectLockError::Held { .. }) if started.elapsed() < limit => {
                if std::mem::take(&mut is_first) {
                    waiting(&held);
                }
                thread::sleep(LOCK_PAUSE.min(limit));
            }
            other => return other.map(drop),
        }
    }
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
        assert_eq!(
            std::fs::read_to_string(dir.path().join(STATE_DIR).join(".gitignore")).unwrap(),
            "*\n"
        );
        drop(lock);
    }

    #[test]
    fn project_whose_lock_file_was_deleted_stays_locked() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join(STATE_DIR);
        let first = acquire(dir.path()).unwrap();
        std::fs::remove_file(state.join(LOCK_FILE)).unwrap();
        assert!(matches!(
            acquire(dir.path()),
            Err(ProjectLockError::Held { pid: None, .. })
        ));
        // The process id in an unlocked file is outdated.
        std::fs::write(state.join(LOCK_FILE), "4711").unwrap();
        assert!(matches!(
            acquire(dir.path()),
            Err(ProjectLockError::Held { pid: None, .. })
        ));
        drop(first);
    }

    #[test]
    fn hard_link_at_the_lock_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(acquire(dir.path()).unwrap());
        let [lock, own] = [
            dir.path().join(STATE_DIR).join(LOCK_FILE),
            dir.path().join("thesis.txt"),
        ];
        std::fs::remove_file(&lock).unwrap();
        std::fs::write(&own, "years").unwrap();
        std::fs::hard_link(&own, &lock).unwrap();
        for error in [acquire(dir.path()).map(drop), check_lock_file(dir.path())] {
            let error = error.unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("another name, by a hard link; delete it"),
                "{error}"
            );
        }
        assert_eq!(std::fs::read_to_string(own).unwrap(), "years");
    }

    /// Reproduces `flock PROJECT ingestdeck run`, as in a crontab.
    #[test]
    fn project_directory_itself_is_not_locked() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        directory.lock().unwrap();
        acquire(dir.path()).unwrap();
    }

    #[test]
    fn wait_ends_when_the_other_ingest_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let first = acquire(root).unwrap();
        let refused = wait(root, Duration::ZERO, &|_| panic!("it must not wait"));
        assert!(matches!(refused, Err(ProjectLockError::Held { .. })));
        let (waiting, is_waiting) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                wait(root, Duration::MAX, &|held| {
                    waiting.send(held.to_string()).unwrap()
                })
            });
            let shown = is_waiting.recv().unwrap();
            assert!(shown.contains("is being ingested by process"), "{shown}");
            drop(first);
            waiter.join().unwrap().unwrap();
        });
        acquire(root).unwrap();
    }

    #[test]
    fn second_lock_error_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let first = acquire(dir.path()).unwrap();
        let error = acquire(dir.path()).unwrap_err();
        let own = std::process::id();
        assert!(
            matches!(&error, ProjectLockError::Held { pid: Some(pid), .. } if *pid == own),
            "{error}"
        );
        assert!(
            error
                .to_line()
                .contains(&format!("process {own}; show it with")),
            "{error}"
        );
        drop(first);
        acquire(dir.path()).unwrap();
    }
}
