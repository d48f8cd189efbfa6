//! Private temporary directories, and the cleanup of those whose process was killed.
//!
//! Each has a marker file that its process keeps locked. The kernel releases the lock when the process ends for any
//! reason, so a directory whose marker can be locked has no owner. The module must not depend on the use of the
//! directories.

#![expect(clippy::disallowed_methods, reason = "directories for temporary files")]

use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use tempfile::TempDir;

use ingestdeck_os::scoped_dir::{FileKind, PRIVATE_MODE, ScopedDir};

/// Name prefix of the directories of attempts.
pub(crate) const ATTEMPT_PREFIX: &str = "deck-";
/// Name prefix of the projects of demos.
pub const DEMO_PREFIX: &str = "ingestdeck-demo-";

/// Name prefix of the clones of benches.
pub const BENCH_PREFIX: &str = "ingestdeck-bench-";
/// Name prefix of the directories of workers.
pub const WORKER_PREFIX: &str = "ingestdeck-worker-";
/// Name prefix of the directories of downloads.
pub const DOWNLOAD_PREFIX: &str = "ingestdeck-download-";
/// All prefixes of directories that may be abandoned.
const PREFIXES: [&str; 5] = [
    ATTEMPT_PREFIX,
    DEMO_PREFIX,
    BENCH_PREFIX,
    WORKER_PREFIX,
    DOWNLOAD_PREFIX,
];

/// The file that is locked while the directory is in use.
const MARKER_FILE: &str = ".ingestdeck-owner";
/// Name of the file until it is locked.
const UNLOCKED_MARKER_FILE: &str = ".ingestdeck-owner-new";

/// A directory with mode 0700 that is deleted when this value is dropped.
#[derive(Debug)]
pub struct PrivateDir {
    // Deleted before the lock is released.
    dir: TempDir,
    _marker: File,
}

impl PrivateDir {
    /// Creates a directory with the name prefix `prefix` in the system's directory for temporary files.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn new(prefix: &str) -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir(), prefix)
    }

    fn new_in(parent: &Path, prefix: &str) -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(PRIVATE_MODE))
            .tempdir_in(parent)?;
        let scoped = ScopedDir::open(dir.path())?;
        let marker = scoped.create_new(UNLOCKED_MARKER_FILE)?;
        marker.try_lock().map_err(io::Error::from)?;
        std::fs::rename(
            dir.path().join(UNLOCKED_MARKER_FILE),
            dir.path().join(MARKER_FILE),
        )?;
        Ok(Self {
            dir,
            _marker: marker,
        })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Deletes the directories of processes that ended without deleting them. Returns their number.
pub fn remove_abandoned_dirs() -> usize {
    remove_abandoned_dirs_in(&std::env::temp_dir())
}

fn remove_abandoned_dirs_in(parent: &Path) -> usize {
    let Ok(scoped) = ScopedDir::open(parent) else {
        return 0;
    };
    let entries = scoped.entries().unwrap_or_default().into_iter();
    let names = entries
        .filter(|(_, kind)| *kind == FileKind::Directory)
        .filter_map(|(name, _)| name.into_string().ok());
    let ours = names.filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    let swept = ours.filter(|name| match remove_if_abandoned(&scoped, parent, name) {
        Ok(is_removed) => is_removed,
        Err(error) => {
            tracing::debug!(%error, name, "cannot remove a temporary directory");
            false
        }
    });
    swept.count()
}

/// Deletes the directory `name` if this program created it and its process is gone.
fn remove_if_abandoned(scoped: &ScopedDir, parent: &Path, name: &str) -> io::Result<bool> {
    let us = nix::unistd::geteuid().as_raw();
    // The marker is opened through the opened directory, so it cannot be replaced between the two checks.
    let (marker, _) = scoped.dir(name, None)?.open_entry(MARKER_FILE)?;
    let is_ours =
        marker.metadata()?.uid() == us && std::fs::symlink_metadata(parent.join(name))?.uid() == us;
    Ok(is_ours && marker.try_lock().is_ok() && scoped.remove_dir_all(name)?)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn private_dir_is_for_the_owner_alone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = PrivateDir::new_in(parent.path(), ATTEMPT_PREFIX).unwrap();
        assert_eq!(
            fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        drop(dir);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn sweep_removes_only_abandoned_directories() {
        let (parent, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let live = PrivateDir::new_in(parent.path(), ATTEMPT_PREFIX).unwrap();
        // Left behind by a process that was killed.
        for name in [
            "deck-dead",
            "ingestdeck-demo-dead",
            "ingestdeck-bench-dead",
            "other-dead",
        ] {
            fs::create_dir_all(parent.path().join(name).join("deep")).unwrap();
            fs::write(parent.path().join(name).join(MARKER_FILE), "").unwrap();
        }
        fs::write(outside.path().join(MARKER_FILE), "").unwrap();
        symlink(outside.path(), parent.path().join("deck-link")).unwrap();
        symlink(outside.path(), parent.path().join("deck-dead/link")).unwrap();
        fs::create_dir(parent.path().join("deck-unmarked")).unwrap();
        fs::create_dir(parent.path().join("deck-marked-by-a-link")).unwrap();
        symlink(
            outside.path().join(MARKER_FILE),
            parent
                .path()
                .join("deck-marked-by-a-link")
                .join(MARKER_FILE),
        )
        .unwrap();
        assert_eq!(remove_abandoned_dirs_in(parent.path()), 3);
        let mut left: Vec<String> = fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| {
                live.path()
                    .file_name()
                    .is_none_or(|live| live != name.as_str())
            })
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "deck-link",
                "deck-marked-by-a-link",
                "deck-unmarked",
                "other-dead"
            ]
        );
        assert!(live.path().is_dir() && outside.path().join(MARKER_FILE).is_file());
    }
}
